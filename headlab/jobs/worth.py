"""Jobs that measure what a mask saves, and a smaller vocabulary: parameters, bytes and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import Field

from headlab.core import HeadlabError, Option
from headlab.jobs import (
    NO_CONTEXT,
    SEED,
    SUBJECT_FLAGS,
    BatchSize,
    CommandContext,
    Estimate,
    Flag,
    FlagValue,
    ForecastBasis,
    JobSettings,
    Lab,
    Outcome,
    RunningJob,
    Seed,
    TaskJob,
    estimate,
    listed_languages,
    setting,
    setting_words,
    subject_flags,
)
from headlab.jobs.vocabulary import is_cut, require_languages
from headlab.jobs.written_model import ComparedOn
from headlab.masks import load_mask, mask_from_json
from headlab.methods import Part
from headlab.studies import KEEP, VOCABULARY_CHOICES

if TYPE_CHECKING:
    from headlab.shrink import VocabularyCut
    from headlab.studies.savings import Savings

MODELS = 3  # the untouched, the masked, the shrunk one; a fourth with its vocabulary cut
PASSES = 2  # each timed pass follows an untimed one
ROWS = 32  # examples per pass, as in headlab.studies.savings_run
MASK_PLACEHOLDER = "MASK.json"  # stands for a mask that is no file of its own
BATCH_SIZES = Option("1,8,32", "examples in a batch, comma-separated")


class WorthJob(TaskJob):
    """What a mask saves, on examples of some languages of a task ("all": every one).

    mask: as in a mask file.  rounds: passes of all models, 6 to 200.  examples: of a timed pass, as
    whole batches, one batch at least.  vocabulary: "cut" also
    measures the model with the vocabulary of these languages alone.
    """

    mask: dict[str, Any]
    batch_sizes: Annotated[list[BatchSize], Field(min_length=1, max_length=8)] = Field(
        default=[1, 8, 32]
    )
    rounds: int = setting(
        Option(15, "rounds of timing; each runs every model once", kind=int, low=6, high=200)
    )
    examples: int = setting(
        Option(
            ROWS,
            "examples that a timed pass covers, as whole batches; one batch at least",
            kind=int,
            low=1,
            high=4096,
        )
    )
    vocabulary: str = setting(
        Option(
            KEEP,
            "keep the vocabulary, or measure the model with it cut to --languages too",
            VOCABULARY_CHOICES,
            label="Vocabulary",
            tip="cut: also measures the model with only the vocabulary of these languages.",
        )
    )
    seed: Seed = setting(SEED)

    key: ClassVar[str] = "worth"
    name: ClassVar[str] = "Speed of a mask"
    about: ClassVar[str] = "What a mask saves: parameters, and time on this device."
    summary: ClassVar[str] = "What a mask saves, measured on the worker's own device."
    page: ClassVar[str] = "prune"
    help_order: ClassVar[tuple[str, ...]] = (
        "vocabulary",
        "batch_sizes",
        "rounds",
        "examples",
        "seed",
    )

    def resolve(self) -> Self:
        """The job with its languages filled in.

        Raises:
            HeadlabError: For an unknown task or language, or a bad mask, or where the vocabulary is
                to be cut and no languages are named.
        """
        mask_from_json(self.mask, "the mask")
        if self.cuts_vocabulary:
            require_languages(self.languages)
        return super().resolve()

    @property
    def cuts_vocabulary(self) -> bool:
        """Whether the model is measured with its vocabulary cut, too."""
        return is_cut(self.vocabulary)

    def run(self, lab: Lab, running: RunningJob) -> Outcome:
        """Measure now; times are not reused, so they are stored with the job only."""
        task = lab.task(self.task, self.label_map).with_languages(listed_languages(self.languages))
        compared_on = ComparedOn(task)
        cut = self.vocabulary_cut(lab, running, compared_on)
        return {"worth": self.savings(lab, running, compared_on, cut).to_json()}

    def vocabulary_cut(
        self, lab: Lab, running: RunningJob, compared_on: ComparedOn
    ) -> VocabularyCut | None:
        """The vocabulary cut to the languages of the examples, by their task; None if it is kept.

        Args:
            lab: What the job works with.
            running: The job.
            compared_on: Whose examples are run.

        Raises:
            HeadlabError: As in `cut_by_task`.
        """
        from headlab.shrink import cut_by_task  # imports torch

        task = compared_on.task or compared_on.sentences
        if task is None or not self.cuts_vocabulary:
            return None
        running.progress(0, 0, f"vocabulary of {', '.join(task.languages)}", fresh=True)
        running.tick()
        return cut_by_task(lab.need(self.model), task, task.languages, running.tick)

    def savings(
        self, lab: Lab, running: RunningJob, compared_on: ComparedOn, cut: VocabularyCut | None
    ) -> Savings:
        """What the mask saves on the lab's device.

        Args:
            lab: What the job works with.
            running: The job.
            compared_on: Whose examples are run; those of a task in the job's languages.
            cut: Which pieces of the vocabulary stay; None for all.
        """
        from headlab.hooks import with_players_of  # imports torch
        from headlab.studies.savings_run import measure

        mask = mask_from_json(self.mask, "the mask")
        model = lab.need(self.model)
        if not mask.grid.has_only_heads:
            mask.check_model(model.fingerprint)
            model = with_players_of(model, mask.grid)

        def on_progress(done: int, total: int, note: str) -> None:
            running.progress(done, total, note, fresh=not done)

        return measure(
            model,
            mask,
            task=compared_on.task,
            batch_sizes=self.batch_sizes,
            rounds=self.rounds,
            examples=self.examples,
            seed=self.seed,
            cut=cut,
            sentences=compared_on.sentences,
            tick=running.tick,
            on_round=on_progress,
        )

    def forecast(self, known: ForecastBasis) -> Estimate:
        """Cost of all models' passes, timed and untimed, at the pace of plain passes."""
        rows = sum(max(self.examples, size) for size in set(self.batch_sizes))
        pace, pace_basis = known.measured_pace()
        words = (f"{self.rounds} rounds at each batch size", pace_basis)
        models = MODELS + self.cuts_vocabulary
        part = Part(models * PASSES * self.rounds * rows, pace, words)
        return estimate([part], self.plain_passes())

    # Its command, and back.

    @classmethod
    def command_settings(cls) -> JobSettings:
        """The settings, the batch sizes as its command takes them among them."""
        settings = cls.settings()
        return {
            "rounds": settings["rounds"],
            "batch_sizes": BATCH_SIZES,
            "examples": settings["examples"],
            "vocabulary": settings["vocabulary"],
            "seed": SEED,
        }

    @classmethod
    def flags(cls) -> tuple[Flag, ...]:
        """The mask file, where it is timed, the settings.

        Without a task, the sentences of the embedded one are used.
        """
        task = replace(
            SUBJECT_FLAGS["task"],
            help="task whose examples are run; default: the embedded task's sentences",
            default=None,
        )
        where_flag_list = [
            task if flag == SUBJECT_FLAGS["task"] else flag for flag in subject_flags()
        ]
        return (
            Flag("--mask", "mask file", Path, required=True),
            *where_flag_list,
            *cls.setting_flags(),
        )

    @classmethod
    def from_flags(cls, values: Mapping[str, FlagValue]) -> Self:
        """The job of a command.

        Raises:
            HeadlabError: For a mask file that cannot be read, and for bad batch sizes.
        """
        task = values.get("task") or SUBJECT_FLAGS["task"].default
        sizes = str(values.get("batch_sizes", BATCH_SIZES.default))
        return cls.model_construct(
            mask=load_mask(str(values["mask"])).to_json(),
            batch_sizes=sizes_of(sizes),
            **cls._subject_fields({**values, "task": task}),
            **cls._setting_fields(values),
        )

    def commands(self, context: CommandContext = NO_CONTEXT) -> list[list[str]]:
        """The command, with a name that stands for the mask's file."""
        words = ["headlab", self.key, "--mask", MASK_PLACEHOLDER, *self.subject_words(context)]
        return [[*words, *self.setting_words(context, ("rounds", "batch_sizes"))]]

    def setting_words(self, context: CommandContext, always: Sequence[str] = ()) -> list[str]:
        """The settings, the batch sizes among them."""
        settings = type(self).command_settings()
        values = {name: self.field_value(name) for name in settings}
        return setting_words(values, settings, always)


def sizes_of(text: str) -> list[int]:
    """Batch sizes from a comma-separated text.

    Raises:
        HeadlabError: The text has none, or one that is not a whole number of 1 or more.
    """
    try:
        sizes = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        raise HeadlabError(
            f"batch sizes are {text!r}; give whole numbers of 1 or more, like 1,8,32",
            code="worth.batch_sizes_invalid",
        )
    return sizes
