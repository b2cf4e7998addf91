"""What the trainings from scratch, the commands of `headlab train`, have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypedDict, TypeVar

from headlab.core import HeadlabError, Options, options_as_words, parse_options, read_json
from headlab.jobs import (
    NO_CONTEXT,
    OPTION_FLAG,
    SEED,
    CommandContext,
    Details,
    Flag,
    FlagValue,
    ForecastBasis,
    Job,
    JobPlace,
    LocalPath,
    MeasureRequest,
    RunningJob,
    StepProgress,
    flag_of,
    pairs_of,
    setting_words,
    value_text,
)
from headlab.methods import Part
from headlab.training import FinetuneStep

AnyOptions = TypeVar("AnyOptions", bound=Options)

FORWARDS_LEARNED = 3
"""Forward passes that a training example costs: it goes forward and back."""
RECORD = "training.json"
SEED_OPTION = "seed"
OUT_FLAG = Flag("--out", "folder to write", Path, required=True)


class TrainingOutcome(TypedDict):
    """What a finished training says: its folder, and the record in it."""

    folder: str
    training: dict[str, Any]


class LoggedStep(TypedDict):
    """A step as the output of --json lists it.

    Attributes:
        seconds: Since the start.
    """

    step: int
    loss: float
    seconds: float


class LoggedOutcome(TrainingOutcome):
    """What a finished training says, with every step."""

    steps: list[LoggedStep]


class LoggedProgress:
    """Progress of a training in its steps, and a list of them."""

    def __init__(self, running: RunningJob) -> None:
        """Nothing is done yet."""
        self.steps: list[LoggedStep] = []
        self._progress = StepProgress(running)

    def step(self, step: FinetuneStep) -> None:
        """Called after each step; the first may continue from a checkpoint."""
        self.steps.append(
            {"step": step.step, "loss": round(step.loss, 4), "seconds": round(step.seconds, 1)}
        )
        self._progress.report_step(step, step.step, step.steps, step.note)


class TrainingJob(Job):
    """A model trained from scratch, written to a folder of this machine.

    A subclass has a field `training` with the options of its kind. Some of them have a flag of
    their own; the others are given as name=value.

    Attributes:
        options_class: Of the field `training`.
        flag_names: The options with a flag of their own, in the order of the help.
    """

    out: LocalPath

    places: ClassVar[tuple[JobPlace, ...]] = ()
    options_class: ClassVar[type[Options]]
    flag_names: ClassVar[tuple[str, ...]] = ()

    def outcome(self) -> TrainingOutcome:
        """What stands in the folder that was written."""
        return {"folder": str(self.out), "training": read_json(self.out / RECORD)}

    def training_record(self) -> dict[str, Any]:
        """The options of the training by name."""
        options = self.field_value("training")
        assert isinstance(options, Options)
        return options.record()

    def _option_rows(self) -> Details:
        """The options that differ from their defaults."""
        table = self.options_class.table()
        return [
            (f"Option {name}", f"{value_text(value)} (default {value_text(table[name].default)})")
            for name, value in self.training_record().items()
            if value != table[name].default
        ]

    # What it will cost.

    def timing(self) -> MeasureRequest:
        """A request to time its steps on a model of its sizes; there is none to be loaded."""
        return MeasureRequest(model="", task="", language="", job=self)

    # Its command, and back.

    @classmethod
    def training_flags(cls) -> Sequence[Flag]:
        """The flags of the options that have one."""
        table = cls.options_class.table()
        return [flag_of(name, table[name]) for name in cls.flag_names]

    @classmethod
    def options_given(
        cls, values: Mapping[str, FlagValue]
    ) -> tuple[dict[str, object], dict[str, object]]:
        """The options of a command: those of flags, the seed among them, and those as name=value.

        Raises:
            HeadlabError: A pair is malformed, or its option has a flag.
        """
        by_flag: dict[str, object] = {
            flag.key: values.get(flag.key, flag.default) for flag in cls.training_flags()
        }
        by_flag[SEED_OPTION] = values.get(SEED_OPTION, SEED.default)
        pairs = parse_options(pairs_of(values, "option"), cls.options_class.table())
        for name in pairs:
            if name in by_flag:
                raise cls.set_elsewhere(name)
        return by_flag, dict(pairs)

    @classmethod
    def set_elsewhere(cls, name: str) -> HeadlabError:
        """The refusal of an option as name=value that has a flag."""
        return HeadlabError(
            f"{name} is set by --{name.replace('_', '-')}, not by -o", code="option.set_elsewhere"
        )

    def training_words(
        self, context: CommandContext = NO_CONTEXT, *, left_out: Sequence[str] = ()
    ) -> list[str]:
        """The flags of all settings and options that differ from their defaults, the seed last.

        Args:
            context: What the command names besides the job.
            left_out: Options that follow from others.
        """
        table = self.options_class.table()
        values = self.training_record()
        seed = values.pop(SEED_OPTION)
        with_flags = {name: table[name] for name in self.flag_names}
        other_flags = {
            name: value
            for name, value in values.items()
            if name not in with_flags and name not in left_out
        }
        return [
            *setting_words(values, with_flags),
            *options_as_words(OPTION_FLAG, other_flags, table),
            *self.setting_words(context),
            *setting_words({SEED_OPTION: seed}, {SEED_OPTION: SEED}),
        ]


def training_options(options_class: type[AnyOptions], value: object) -> AnyOptions:
    """The options of a training from a field of a job, unchanged where they are ones already.

    Args:
        options_class: Their class.
        value: They, or their values by name.

    Raises:
        HeadlabError: For an unknown name, and for a value that does not fit.
        ValueError: It is neither.
    """
    if isinstance(value, options_class):
        return value
    if isinstance(value, Mapping):
        return options_class.of(value)
    raise ValueError(f"give {options_class.__name__}, or options by name")


def options_record(value: object) -> object:
    """The options of a training by name; anything else stays, so that a check can name it."""
    if isinstance(value, Options):
        return value.record()
    return value


def steps_part(steps: int, batch: int, unit: str, pace: float | None, pace_basis: str) -> Part:
    """Cost of the steps of a training.

    Args:
        steps: How many.
        batch: Examples of a step.
        unit: An example, in the plural.
        pace: Seconds an example, forward and back; None where unknown.
        pace_basis: What that is based on.
    """
    return Part(steps * batch, pace, (f"{steps:,} steps of {batch} {unit}", pace_basis))


def judging_part(passes: int, words: str, pace: float | None) -> Part:
    """Cost of measuring the trained model.

    Args:
        passes: Forward passes of an example each.
        words: What they are; empty where the steps say it.
        pace: Seconds of a training example, which goes forward and back; None where unknown.
    """
    clauses = (words,) if words else ()
    return Part(passes, None if pace is None else pace / FORWARDS_LEARNED, clauses)


def measured_pace(known: ForecastBasis) -> tuple[float | None, str]:
    """Seconds of a training example as just timed, None if it was not, and their basis."""
    if known.measured is None:
        return None, "how long a step takes here is not known yet"
    seconds = known.measured.seconds
    return seconds, learned_pace_words(seconds, "measured now")


def learned_pace_words(pace: float, basis: str) -> str:
    """A pace in words.

    Args:
        pace: Seconds of a training example, forward and back.
        basis: What that is based on.
    """
    return f"{1000 * pace:.3g} ms an example, forward and back, {basis}"
