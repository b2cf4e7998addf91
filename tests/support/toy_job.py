"""A kind of job as a package adds it: it counts the words of a length in the texts of a task."""

from __future__ import annotations

from typing import ClassVar

from headlab.core import Option
from headlab.jobs import (
    Estimate,
    ForecastBasis,
    Job,
    Lab,
    Languages,
    OnTask,
    Outcome,
    RunningJob,
    listed_languages,
    setting,
)
from headlab.methods import Forecast
from headlab.tasks import task


class WordsJob(Job, OnTask):
    """Counts the words of a length in some languages of a task."""

    languages: Languages
    length: int = setting(Option(3, "letters of a word", kind=int, low=1, high=9, label="Letters"))
    case: str = setting(Option("any", "of the first letter", ("any", "upper", "lower")))

    key: ClassVar[str] = "count-words"
    name: ClassVar[str] = "Words of a length"
    about: ClassVar[str] = "How many words of a length the dev texts have."
    on_jobs_page: ClassVar[bool] = True
    main_settings: ClassVar[tuple[str, ...]] = ("length",)

    def resolve(self) -> WordsJob:
        """The job with its languages filled in."""
        return self.model_copy(
            update={"languages": list(task(self.task, self.languages).languages)}
        )

    def forecast(self, known: ForecastBasis) -> Estimate:
        """No model is needed."""
        return Estimate(Forecast(forwards=0, seconds=1.0, basis="texts are read"))

    def run(self, lab: Lab, running: RunningJob) -> Outcome:
        """Count the words."""
        counts = {}
        for language in listed_languages(self.languages):
            texts = [example.text for example in lab.task(self.task).examples(language, "dev")]
            words = [word for text in texts for word in text.split()]
            counts[language] = sum(len(word) == self.length for word in words)
        return {"words": counts, "length": self.length}
