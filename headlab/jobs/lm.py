"""Language models trained on a text, and pruned: `headlab train lm` and `train lm-prune`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import Field, PlainSerializer, PlainValidator

from headlab.core import HeadlabError, Option, read_json
from headlab.jobs import (
    DEVICE,
    NO_CONTEXT,
    SEED,
    CommandContext,
    Estimate,
    Flag,
    FlagValue,
    ForecastBasis,
    Lab,
    LocalPath,
    Measured,
    MeasureRequest,
    RunningJob,
    StepProgress,
    estimate,
    flag_of,
    setting,
)
from headlab.jobs.training import (
    OUT_FLAG,
    RECORD,
    TrainingJob,
    TrainingOutcome,
    judging_part,
    learned_pace_words,
    measured_pace,
    options_record,
    steps_part,
    training_options,
)
from headlab.methods import Part
from headlab.training import LmGateOptions, LmOptions, LmStep, Windows

if TYPE_CHECKING:
    from headlab.models.allattention import AllAttentionConfig
    from headlab.training import Watch

DATA_FLAG = Flag(
    "--data",
    "text file, or folder with train.txt, valid.txt and test.txt; a line a paragraph",
    Path,
    required=True,
)
TRAINING_OPTION_FLAG = Flag(
    "--option", "any other option as name=value, e.g. clip=0.5", short="-o", repeated=True
)
WORDS_OPTION = Option(
    None,
    "use only the first N words of the training text; default all",
    kind=int,
    low=1,
    optional=True,
)
SUMS_FILE = "perplexity.json"
"""In the folder of a language model: what its perplexity was computed from."""
BLOCK = "block"
MODEL_RATE = "model_rate"
TUNE_RATE = "tune_rate"


class TextJob(TrainingJob):
    """A training on a text. words: of its training part, None for all."""

    data: LocalPath
    words: int | None = setting(WORDS_OPTION)

    @classmethod
    def flags(cls) -> tuple[Flag, ...]:
        """The text, the folder, the options, and what all such commands have."""
        folder = replace(OUT_FLAG, default=cls.model_fields["out"].default, required=False)
        words = flag_of("words", WORDS_OPTION)
        return (
            DATA_FLAG,
            folder,
            *cls.training_flags(),
            TRAINING_OPTION_FLAG,
            words,
            DEVICE,
            flag_of("seed", SEED),
        )

    @classmethod
    def text_fields(cls, values: Mapping[str, FlagValue]) -> dict[str, Any]:
        """The text and the folder of a command."""
        folder = values.get("out") or cls.model_fields["out"].default
        return {
            "data": Path(str(values["data"])),
            "out": Path(str(folder)),
            "words": values.get("words"),
        }

    def text_words(self) -> list[str]:
        """The flags of the text and the folder."""
        return ["--data", str(self.data), "--out", str(self.out)]

    def judging_windows(self, block: int) -> int:
        """About how many windows cover the held-out parts of the text, overlapping by half.

        Raises:
            HeadlabError: The text cannot be read.
        """
        from headlab.training.lm_text import SPLITS, read_lines  # imports transformers

        lines_by_split = read_lines(self.data, self.words)
        words = 0
        for split in SPLITS[1:]:  # the held-out ones
            words += sum(len(line.split()) + 1 for line in lines_by_split[split])
        return -(-words // max(1, block // 2))

    def watch(self, running: RunningJob) -> Watch[LmStep]:
        """What a training calls between and after its steps."""
        from headlab.training import Watch  # imports torch

        return Watch(LmProgress(running).step, running.tick)


class LmProgress:
    """Progress of a training in its steps, part by part."""

    def __init__(self, running: RunningJob) -> None:
        """Nothing is done yet."""
        self._running = running
        self._part = ""
        self._steps = StepProgress(running)

    def step(self, step: LmStep) -> None:
        """Called after each step; the first of a part may continue from a checkpoint."""
        if step.part != self._part:
            self._part = step.part
            self._steps = StepProgress(self._running)
        self._steps.report_step(step, step.step, step.steps, step.note)


class LmJob(TextJob):
    """A language model trained from scratch on a text, and its perplexity on held-out parts."""

    out: LocalPath = Path("lm")
    training: Annotated[
        LmOptions,
        PlainValidator(partial(training_options, LmOptions)),
        PlainSerializer(options_record),
    ] = Field(default_factory=LmOptions)

    key: ClassVar[str] = "train lm"
    name: ClassVar[str] = "Language model"
    about: ClassVar[str] = "A language model trained from scratch on a text of your own."
    summary: ClassVar[str] = "Training of a language model; from the terminal alone."
    options_class: ClassVar[type[LmOptions]] = LmOptions
    flag_names: ClassVar[tuple[str, ...]] = (
        "kind",
        "tokenizer",
        "vocabulary",
        "layers",
        "heads",
        "width",
        "persistent",
        "positions",
        "block",
        "batch",
        "micro_batch",
        "steps",
        "learning_rate",
        "dropout",
    )

    def subject(self) -> str:
        """What is trained, and on which text."""
        return f"{self.name}, {self.training.kind}, trained on {self.data.name}"

    def resolve(self) -> Self:
        """The job, checked.

        Raises:
            HeadlabError: For invalid options, and for a folder that would be lost.
        """
        from headlab.training import check_out  # imports torch

        self.training.check()
        check_out(self.out)
        return self

    def run(self, lab: Lab, running: RunningJob) -> TrainingOutcome:
        """Train, measure, and write the folder; an interrupted training is resumed."""
        from headlab.training import train_lm
        from headlab.training.lm_text import read_lines  # these import torch

        lines = read_lines(self.data, self.words)
        train_lm(lines, self.out, self.training, device=lab.device, watch=self.watch(running))
        return self.outcome()

    def forecast(self, known: ForecastBasis) -> Estimate:
        """Cost of the steps and of measuring the model, at the pace of a step timed now."""
        pace, pace_basis = measured_pace(known)
        windows = self.judging_windows(self.training.block)
        return estimate(
            [
                windows_part(self.training, self.training.steps, pace, pace_basis),
                judging_part(windows, f"about {windows:,} windows of held-out text", pace),
            ],
            self.timing(),
        )

    def measure(self, lab: Lab, request: MeasureRequest, tick: Callable[[], None]) -> Measured:
        """How long a step takes: made-up text on a model of these sizes."""
        from headlab.training import model_config_of  # imports torch

        config = model_config_of(self.training, self.training.vocabulary)
        return timed_windows(config, self.training, lab.device)

    @classmethod
    def from_flags(cls, values: Mapping[str, FlagValue]) -> Self:
        """The job of a command. Raises HeadlabError for options that do not fit."""
        by_flag, pairs = cls.options_given(values)
        training = LmOptions.of(by_flag | pairs)
        return cls.model_construct(training=training, **cls.text_fields(values))

    def commands(self, context: CommandContext = NO_CONTEXT) -> list[list[str]]:
        """The command, with the options that differ from their defaults."""
        return [[*self.program_words(), *self.text_words(), *self.training_words(context)]]


class LmPruneJob(TextJob):
    """A trained language model that learns which heads to keep and loses the others.

    It is then trained on.

    model: folder that a training of a language model wrote.
    """

    model: LocalPath
    out: LocalPath = Path("lm-pruned")
    training: Annotated[
        LmGateOptions,
        PlainValidator(partial(training_options, LmGateOptions)),
        PlainSerializer(options_record),
    ] = Field(default_factory=LmGateOptions)

    key: ClassVar[str] = "train lm-prune"
    name: ClassVar[str] = "Pruned language model"
    about: ClassVar[str] = "A language model without the heads whose gates closed, trained on."
    summary: ClassVar[str] = "Pruning of a language model; from the terminal alone."
    options_class: ClassVar[type[LmGateOptions]] = LmGateOptions
    flag_names: ClassVar[tuple[str, ...]] = (
        "weight",
        "warm_up",
        "open_start",
        "scale",
        "steps",
        "tune_steps",
        "gate_rate",
        MODEL_RATE,
        "batch",
        "micro_batch",
    )

    def subject(self) -> str:
        """What is pruned, and on which text."""
        return f"{self.name}, {self.model.name} on {self.data.name}"

    def resolve(self) -> Self:
        """The job with the window length of the model's own training filled in.

        Raises:
            HeadlabError: The folder holds no language model, an option is invalid, or a folder
                would be lost.
        """
        from headlab.training import (
            check_apart,  # these import torch
            check_out,
        )

        training = replace(self.training, block=block_of(self.model))
        training.check()
        check_out(self.out)
        check_apart(self.model, self.out)
        return self.model_copy(update={"training": training})

    def run(self, lab: Lab, running: RunningJob) -> TrainingOutcome:
        """Learn the gates, remove heads, train on, measure, and write the folder."""
        from headlab.training import prune_lm  # these import torch
        from headlab.training.lm_text import read_lines

        prune_lm(
            self.model,
            read_lines(self.data, self.words),
            self.out,
            self.training,
            device=lab.device,
            watch=self.watch(running),
        )
        return self.outcome()

    def forecast(self, known: ForecastBasis) -> Estimate:
        """Cost of the steps with gates, of those that follow, and of measuring after each part."""
        training = self.training
        pace, pace_basis = self._pace(known)
        parts = [windows_part(training, training.steps, pace, pace_basis)]
        if training.tune_steps:
            parts.append(windows_part(training, training.tune_steps, pace, pace_basis))
        windows = self.judging_windows(training.block) * len(parts)
        parts.append(judging_part(windows, f"about {windows:,} windows of held-out text", pace))
        return estimate(parts, self.timing())

    def _pace(self, known: ForecastBasis) -> tuple[float | None, str]:
        """Seconds a window, and what that is based on.

        They are those of the model's own training if that was on such a device, else as just timed.
        """
        try:
            record = read_json(self.model / RECORD)
            windows = int(record["options"]["steps"]) * int(record["options"]["batch"])
            pace = float(record["took"]["seconds"]) / windows
            device = str(record["took"]["device"]).split(":")[0]
        except (HeadlabError, KeyError, TypeError, ValueError, ZeroDivisionError):
            return measured_pace(known)  # it was pruned before, or is of another version
        if device != known.device or not pace > 0:
            return measured_pace(known)
        return pace, learned_pace_words(pace, f"as in its own training on such a device ({device})")

    def measure(self, lab: Lab, request: MeasureRequest, tick: Callable[[], None]) -> Measured:
        """How long a step takes: made-up text on a model of the same sizes."""
        from headlab.training import config_of  # imports torch

        return timed_windows(config_of(self.model), self.training, lab.device)

    @classmethod
    def flags(cls) -> tuple[Flag, ...]:
        """The model, then as for a training."""
        model = Flag("model", "folder that headlab train lm wrote", Path, required=True)
        return (model, *super().flags())

    @classmethod
    def from_flags(cls, values: Mapping[str, FlagValue]) -> Self:
        """The job of a command.

        Raises:
            HeadlabError: For options that do not fit; the model is not read.
        """
        by_flag, pairs = cls.options_given(values)
        if BLOCK in pairs:
            raise HeadlabError(
                "block is that of the model's own training; leave it out", code="lm.block_fixed"
            )
        training = LmGateOptions.of({TUNE_RATE: by_flag[MODEL_RATE]} | by_flag | pairs)
        model = Path(str(values["model"]))
        return cls.model_construct(model=model, training=training, **cls.text_fields(values))

    def commands(self, context: CommandContext = NO_CONTEXT) -> list[list[str]]:
        """The command, with the options that differ from their defaults."""
        words = self.training_words(context, left_out=(BLOCK, TUNE_RATE))
        if self.training.tune_rate != self.training.model_rate:
            words += ["-o", f"{TUNE_RATE}={self.training.tune_rate}"]
        return [[*self.program_words(), str(self.model), *self.text_words(), *words]]


def windows_part(training: Windows, steps: int, pace: float | None, pace_basis: str) -> Part:
    """Cost of some steps of a training on windows of text.

    Args:
        training: Its options.
        steps: How many.
        pace: Seconds a window, forward and back; None where unknown.
        pace_basis: What that is based on.
    """
    unit = f"windows of {training.block} tokens"
    return steps_part(steps, training.batch, unit, pace, pace_basis)


def timed_windows(config: AllAttentionConfig, training: Windows, device: str) -> Measured:
    """How long a step of a training takes now, by window.

    Args:
        config: Sizes of the model.
        training: Options of the training.
        device: Where it is trained.

    Raises:
        HeadlabError: The model does not fit in memory.
    """
    from headlab.training import seconds_a_window  # imports torch

    seconds = seconds_a_window(config, training, device)
    return Measured(heads=sum(config.heads_per_layer), seconds=seconds)


def block_of(model: Path) -> int:
    """Window length, in tokens, of a model's training.

    Args:
        model: Its folder.

    Raises:
        HeadlabError: It is not a language model's folder.
    """
    if not (model / SUMS_FILE).is_file():
        raise HeadlabError(
            f"{model} is not a folder that headlab train lm wrote; train a model first",
            code="lm.folder_missing",
        )
    sums = read_json(model / SUMS_FILE)
    block = sums.get(BLOCK) if isinstance(sums, dict) else None
    if type(block) is not int or block < 1:
        raise HeadlabError(
            f"{model / SUMS_FILE} does not give the window length; train the model again",
            code="lm.window_unknown",
        )
    return block
