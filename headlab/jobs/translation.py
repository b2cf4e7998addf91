"""Training a translation model from scratch: `headlab train translation`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

from pydantic import Field, PlainSerializer, PlainValidator

from headlab.core import HeadlabError, Option
from headlab.jobs import (
    DATA,
    DEVICE,
    NO_CONTEXT,
    SEED,
    CommandContext,
    Estimate,
    Flag,
    FlagValue,
    ForecastBasis,
    Lab,
    Language,
    LocalPath,
    Measured,
    MeasureRequest,
    Name,
    RunningJob,
    estimate,
    flag_of,
    setting,
)
from headlab.jobs.training import (
    OUT_FLAG,
    LoggedOutcome,
    LoggedProgress,
    TrainingJob,
    judging_part,
    measured_pace,
    options_record,
    steps_part,
    training_options,
)
from headlab.masks import load_mask
from headlab.tasks import DEV_SIZE
from headlab.training import TranslationOptions

if TYPE_CHECKING:
    from headlab.core import JsonRecord
    from headlab.evaluation import Decoding
    from headlab.hooks import Model
    from headlab.tasks import Task

TASK = Flag("--task", "translation, or a declaration of your own (.toml)", default="translation")
LANGUAGE = Flag("--language", "the pair, source first", default="en-de")
OPTIONS = Flag(
    "--option",
    "name=value, like steps=2000 or encoder_heads=4; docs/translation.md lists them",
    short="-o",
    repeated=True,
)
MASK = Flag("--mask", "mask file: its heads are off from the first step on", Path)
TOKENS_A_WORD = 1.5
"""About how many pieces a small vocabulary cuts a word into."""
MEASURES = 2
"""Passes over dev besides its translation: for the accuracy and for the log-probability."""


class TranslationJob(TrainingJob):
    """A translation model trained from scratch, measured on dev.

    language: the pair, source first.  mask: a file; its heads are off from the first step on.
    """

    task: Name = str(TASK.default)
    language: Language = str(LANGUAGE.default)
    mask: LocalPath | None = None
    training: Annotated[
        TranslationOptions,
        PlainValidator(partial(training_options, TranslationOptions)),
        PlainSerializer(options_record),
    ] = Field(default_factory=TranslationOptions)
    size: int = setting(
        Option(DEV_SIZE, "dev sentences that are measured at the end", kind=int, low=1)
    )
    beams: int = setting(
        Option(1, "beam size of the translations for BLEU; 1 is greedy", kind=int, low=1)
    )

    key: ClassVar[str] = "train translation"
    name: ClassVar[str] = "Translation model"
    about: ClassVar[str] = "A translation model and its vocabulary, trained from scratch."
    summary: ClassVar[str] = "Training of a translation model; from the terminal alone."
    options_class: ClassVar[type[TranslationOptions]] = TranslationOptions

    def subject(self) -> str:
        """What is trained, and the pair."""
        return f"{self.name}, {self.language}"

    def resolve(self) -> Self:
        """The job, checked.

        Raises:
            HeadlabError: An option is invalid, a folder would be lost, or the mask cannot be read.
        """
        from headlab.training import check_out  # imports torch

        self.training.check()
        check_out(self.out)
        if self.mask is not None:
            load_mask(self.mask)
        return self

    def run(self, lab: Lab, running: RunningJob) -> LoggedOutcome:
        """Train, measure, and write the folder; an interrupted training is resumed."""
        from headlab.evaluation import Decoding  # these import torch
        from headlab.training import train_translation

        chosen_task = self.chosen_task(lab)
        decoding = Decoding(self.beams)
        progress = LoggedProgress(running)

        def measure(model: Model) -> JsonRecord:
            running.progress(0, self.size, "measuring", fresh=True)
            return measured_on_dev(model, chosen_task, self.language, self.size, decoding)

        train_translation(
            chosen_task.examples(self.language, "train"),
            pair=self.language,
            out=self.out,
            options=self.training,
            mask=None if self.mask is None else load_mask(self.mask),
            device=lab.device,
            progress=progress.step,
            measure=measure,
        )
        return {**self.outcome(), "steps": progress.steps}

    def chosen_task(self, lab: Lab) -> Task:
        """The task of the pair.

        Raises:
            HeadlabError: It is unknown, or its translations cannot be measured.
        """
        from headlab.evaluation import Decoding, check_bleu  # imports torch

        task = lab.task(self.task).with_languages([self.language])
        check_bleu(task, self.language, "dev", Decoding(self.beams))
        return task

    def forecast(self, known: ForecastBasis) -> Estimate:
        """Cost of the steps and of measuring the model, at the pace of a step timed now."""
        training = self.training
        pace, pace_basis = measured_pace(known)
        steps = steps_part(training.steps, training.batch, "sentences", pace, pace_basis)
        passes = self.size * (MEASURES + self.beams)
        words = f"up to {self.size} sentences of dev measured, and translated by {self.beams}"
        beams = "beam" if self.beams == 1 else "beams"
        return estimate([steps, judging_part(passes, f"{words} {beams}", pace)], self.timing())

    def measure(self, lab: Lab, request: MeasureRequest, tick: Callable[[], None]) -> Measured:
        """How long a step takes on made-up sentences of the usual length, at these sizes."""
        from headlab.training import check_sentences, seconds_a_sentence

        examples = self.chosen_task(lab).examples(self.language, "train")
        check_sentences(examples)
        words = median(len(example.text.split()) for example in examples)
        tokens = min(self.training.max_length, round(TOKENS_A_WORD * words) + 1)
        seconds = seconds_a_sentence(self.training, tokens, lab.device)
        heads = self.training.encoder_layers * self.training.encoder_heads
        heads += 2 * self.training.decoder_layers * self.training.decoder_heads
        return Measured(heads=heads, seconds=seconds)

    # Its command, and back.

    @classmethod
    def flags(cls) -> tuple[Flag, ...]:
        """The folder, the sentences, the options, and what is measured."""
        return (
            OUT_FLAG,
            DATA,
            LANGUAGE,
            TASK,
            OPTIONS,
            MASK,
            *cls.setting_flags(),
            DEVICE,
            flag_of("seed", SEED),
        )

    @classmethod
    def set_elsewhere(cls, name: str) -> HeadlabError:
        """The refusal of the seed as name=value."""
        return HeadlabError("give the seed with --seed", code="option.seed_elsewhere")

    @classmethod
    def from_flags(cls, values: Mapping[str, FlagValue]) -> Self:
        """The job of a command.

        Raises:
            HeadlabError: For options that do not fit; no file is read.
        """
        by_flag, pairs = cls.options_given(values)
        mask = values.get("mask")
        return cls.model_construct(
            out=Path(str(values["out"])),
            task=values.get(TASK.key, TASK.default),
            language=values.get(LANGUAGE.key, LANGUAGE.default),
            mask=None if mask is None else Path(str(mask)),
            training=TranslationOptions.of(pairs | by_flag),
            **cls._setting_fields(values),
        )

    def commands(self, context: CommandContext = NO_CONTEXT) -> list[list[str]]:
        """The command, with the options that differ from their defaults."""
        words = [*self.program_words(), "--out", str(self.out)]
        if context.data is not None:
            words += ["--data", context.data]
        task = context.task or self.task
        if task != TASK.default:
            words += ["--task", task]
        if self.language != LANGUAGE.default:
            words += ["--language", self.language]
        if self.mask is not None:
            words += ["--mask", str(self.mask)]
        return [[*words, *self.training_words(context)]]


def measured_on_dev(
    model: Model, task: Task, language: str, size: int, decoding: Decoding
) -> JsonRecord:
    """A model's token accuracy, log-probability and BLEU on dev with their intervals, as JSON.

    Args:
        model: It is trained.
        task: Of translation.
        language: The pair.
        size: Sentences, at most.
        decoding: How they are translated.
    """
    from headlab.evaluation import (  # these import torch
        Evaluator,
        accuracy_interval,
        likelihood,
        translated_bleu,
    )

    evaluator = Evaluator(model, task, language, "dev", size)
    evaluation = evaluator.evaluate()
    low, high = accuracy_interval(evaluation)
    bleu = translated_bleu(evaluator, decoding=decoding)
    accuracy = {
        "accuracy": evaluation.accuracy,
        "accuracy_low": low,
        "accuracy_high": high,
        "tokens": evaluation.n,
    }
    log_probability = {
        name: value for name, value in likelihood(evaluator).record().items() if name != "answers"
    }
    return {"dev": accuracy | log_probability | bleu.record() | decoding.record()}
