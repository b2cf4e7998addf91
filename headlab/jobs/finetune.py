"""Fine-tuning jobs: a LoRA adapter of the embedded base model, trained on English."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import ClassVar, Protocol, Self, cast

import numpy as np

from headlab.core import (
    HeadlabError,
    Option,
    OptionValue,
    content_key,
    needs_extra,
    read_json,
)
from headlab.jobs import (
    DATA,
    DEVICE,
    NO_CONTEXT,
    SEED,
    SUBJECT_FLAGS,
    CommandContext,
    Estimate,
    Flag,
    FlagValue,
    ForecastBasis,
    Job,
    Lab,
    Name,
    Outcome,
    RunningJob,
    Seed,
    StepProgress,
    estimate,
    examples_of_dev,
    flag_of,
    languages_of,
    setting,
    unset_flags,
)
from headlab.jobs.training import (
    FORWARDS_LEARNED,
    RECORD,
    LoggedOutcome,
    LoggedProgress,
    judging_part,
)
from headlab.methods import Part
from headlab.results import ADAPTERS_FOLDER
from headlab.tasks import DEV_SIZE, Task, task
from headlab.training import FinetuneOptions, FinetuneStep, default_preset
from headlab.training.options import options_of

LANGUAGE = "en"
DEFAULT_TASK = SUBJECT_FLAGS["task"].default
CHECKPOINT_STEPS = 10


class FinetuneJob(Job):
    """An adapter for a task, trained on its English train split.

    It is measured on dev in every language.
    """

    task: Name
    steps: int = setting(
        Option(FinetuneOptions.steps, "training steps", kind=int, low=1, high=20_000, label="Steps")
    )
    learning_rate: float = setting(
        Option(
            FinetuneOptions.learning_rate,
            "the highest",
            kind=float,
            low=0,
            high=1,
            open=True,
            label="Peak learning rate",
        )
    )
    seed: Seed = setting(SEED)

    key: ClassVar[str] = "finetune"
    name: ClassVar[str] = "Fine-tuning"
    about: ClassVar[str] = (
        "A LoRA adapter for the task on the embedded base, trained on English, measured in every "
        "language."
    )
    summary: ClassVar[str] = "A fine-tuning job, run on the worker's own device."
    on_jobs_page: ClassVar[bool] = True
    main_settings: ClassVar[tuple[str, ...]] = ("steps",)

    def training_options(self) -> FinetuneOptions:
        """Options of the training."""
        return FinetuneOptions(seed=self.seed, steps=self.steps, learning_rate=self.learning_rate)

    def resolve(self) -> Self:
        """The job, checked.

        Raises:
            HeadlabError: For an unknown task, one without English, or invalid options.
        """
        task(self.task).check(LANGUAGE, "train")
        self.training_options().check()
        return self

    def adapter(self, chosen_task: Task) -> str:
        """The adapter's folder, relative to the cache.

        Its name is a hash of all that the weights depend on.
        """
        from headlab.models import BASE_SHA256  # takes a while

        examples = chosen_task.examples(LANGUAGE, "train")
        adapter_spec = {
            "task": chosen_task.name,
            "data": chosen_task.data_hash(examples),
            "options": self.training_options().record(),
            "base": BASE_SHA256,
        }
        return f"{ADAPTERS_FOLDER}/{content_key(adapter_spec)[:24]}"

    def run(self, lab: Lab, running: RunningJob) -> Outcome:
        """Train and measure, unless the adapter is in the cache."""
        chosen_task = lab.task(self.task)
        folder = self.adapter(chosen_task)
        folder_path = lab.store.root / folder
        if (folder_path / RECORD).is_file():
            running.log("the adapter is in the cache already")
            return {"folder": folder, "accuracy": read_json(folder_path / RECORD)["accuracy"]}
        running.record_folder(folder, LANGUAGE)
        options = self.training_options()
        progress = TrainingProgress(running, chosen_task, options)
        Finetuning(chosen_task, LANGUAGE, chosen_task, options, folder_path).train(lab, progress)
        progress.finish()
        return {"folder": folder, "accuracy": read_json(folder_path / RECORD)["accuracy"]}

    def forecast(self, known: ForecastBasis) -> Estimate:
        """Cost of the steps, at the pace of earlier trainings, and of one pass over dev."""
        chosen_task = task(self.task)
        options = self.training_options()
        if (known.root / self.adapter(chosen_task) / RECORD).is_file():
            return estimate([Part(0, None, ("the adapter is in the cache already",))])
        languages = len(chosen_task.languages)
        words = (
            f"{options.steps} steps of {options.batch} examples, then up to {DEV_SIZE} in each of "
            f"{languages} languages"
        )
        pace, pace_basis = _step_pace(known)
        pace_of_example = None if pace is None else pace / options.batch
        training = Part(options.steps * options.batch, pace_of_example, (words, pace_basis))
        return estimate([training, judging_part(DEV_SIZE * languages, "", pace_of_example)])

    # Its command, and back.

    @classmethod
    def flags(cls) -> tuple[Flag, ...]:
        """The task, and the flags of the training: far more of them than a job can ask for."""
        return (
            Flag("task", f"task to train on; default {DEFAULT_TASK}", metavar="TASK"),
            Flag("--task", "the same, as an option", parameter="task_named"),
            DATA,
            *base_flags(),
            *(
                replace(flag, command_only=flag.key not in cls.model_fields)
                for flag in training_flags()
            ),
            DEVICE,
            flag_of("seed", SEED),
        )

    @classmethod
    def from_flags(cls, values: Mapping[str, FlagValue]) -> Self:
        """The job of a command; settings that are not given are not among those that it was given.

        Raises:
            HeadlabError: Two tasks are given.
        """
        settings = {name: values[name] for name in cls.settings() if values.get(name) is not None}
        return cls.model_construct(_fields_set=None, task=_task_of(values), **settings)

    def commands(self, context: CommandContext = NO_CONTEXT) -> list[list[str]]:
        """The command; it names the steps and the rate, as its own defaults depend on the task."""
        words = ["headlab", self.key, context.task or self.task]
        return [[*words, *self.setting_words(context, ("steps", "learning_rate"))]]


def base_flags() -> Iterator[Flag]:
    """The flags of the command alone: what is trained from what, and what is measured."""
    flags = (
        Flag("--language", "language of the train split", default=LANGUAGE),
        Flag(
            "--languages", 'evaluated on dev at the end: comma-separated, or "all"', default="all"
        ),
        flag_of("size", examples_of_dev("number of examples of the split")),
        Flag("--base", "hub id or folder of an encoder; default: the embedded one"),
        Flag("--method", "full or lora; default: lora on the embedded base"),
        Flag("--preset", "named hyper-parameters; default: those that fit"),
        Flag("--out", "folder to write; default adapter, or model", Path),
        Flag("--epochs", "passes over the examples, in place of steps", float),
        Flag("--targets", "modules that get a LoRA, comma-separated"),
    )
    for flag in flags:
        yield replace(flag, command_only=True)


def training_flags() -> Iterator[Flag]:
    """The flags of the training; without a value where a preset decides."""
    names = (
        "steps",
        "batch",
        "micro_batch",
        "learning_rate",
        "max_length",
        "rank",
        "freeze_embeddings",
        "freeze_layers",
    )
    return unset_flags(FinetuneOptions.table(), names)


def _task_of(values: Mapping[str, FlagValue]) -> str:
    """The task of a command: its argument, the value of --task, or the default.

    Raises:
        HeadlabError: Two different tasks are given.
    """
    task_argument = values.get("task")
    task_named = values.get("task_named")
    if task_argument and task_named and task_argument != task_named:
        raise HeadlabError(
            f"two tasks given, {task_argument} and {task_named}; give one of them",
            code="option.two_tasks",
        )
    return str(task_argument or task_named or DEFAULT_TASK)


def _names(text: str | None) -> tuple[str, ...] | None:
    """The names in a comma-separated text; None if there is no text."""
    if text is None:
        return None
    return tuple(part.strip() for part in text.split(",") if part.strip())


class FinetuneProgress(Protocol):
    """How far a fine-tuning is."""

    def step(self, step: FinetuneStep, /) -> None:
        """Called after each step; the first may continue from a checkpoint."""

    def measuring(self, language: str, examples_begun: int, /) -> None:
        """Called between batches of a language's dev examples; may raise to stop.

        Args:
            language: Its code.
            examples_begun: How many of them were begun.
        """


@dataclass(frozen=True)
class Finetuning:
    """A fine-tuning with all that it depends on: a job's, or one that only the command can make.

    Attributes:
        task: Whose labels are learned.
        language: Of the train split.
        measured: The task in the languages that are measured on dev at the end.
        options: Of the training.
        out: Folder to write.
        base: Hub id or folder of an encoder; None for the embedded one.
        size: Examples of dev that are measured in each language, at most.
    """

    task: Task
    language: str
    measured: Task
    options: FinetuneOptions
    out: Path
    base: str | None = None
    size: int = DEV_SIZE

    @classmethod
    def from_flags(cls, values: Mapping[str, FlagValue], lab: Lab) -> Self:
        """The fine-tuning of a command; its examples are read, for they decide on defaults.

        Args:
            values: Of all flags of the command, by their keys.
            lab: Has the task.

        Raises:
            HeadlabError: Two tasks are given, or the task, a language, the preset or an option does
                not fit.
        """
        task = lab.task(_task_of(values))
        language = str(values["language"])
        examples = task.examples(language, "train")
        base = cast("str | None", values["base"])
        has_embedded_base = is_embedded(base)
        method = str(values["method"] or ("lora" if has_embedded_base else "full"))
        preset = values["preset"] or default_preset(
            bool(examples[0].words), method, has_embedded_base
        )
        training = {flag.key: values[flag.key] for flag in training_flags()}
        options = options_of(
            str(preset),
            method,
            len(examples),
            epochs=cast("float | None", values["epochs"]),
            seed=cast("int", values["seed"]),
            targets=_names(cast("str | None", values["targets"])),
            **cast("dict[str, OptionValue]", training),  # each is given once
        )
        languages = languages_of(str(values["languages"]))
        folder_name = "adapter" if method == "lora" and has_embedded_base else "model"
        return cls(
            task,
            language,
            measured=task if languages == "all" else task.with_languages(languages),
            options=options,
            out=Path(str(values["out"] or folder_name)),
            base=base,
            size=cast("int", values["size"]),
        )

    def run(self, lab: Lab, running: RunningJob) -> LoggedOutcome:
        """Train, measure, and write the folder; an interrupted training is resumed."""
        progress = FolderProgress(running, self.size)
        self.train(lab, progress)
        return {
            "folder": str(self.out),
            "training": read_json(self.out / RECORD),
            "steps": progress.steps,
        }

    def train(self, lab: Lab, progress: FinetuneProgress) -> None:
        """As `run`, for a progress of one's own.

        Raises:
            HeadlabError: The folder would be lost, a language has no dev examples, or the base
                cannot be trained.
        """
        from headlab.training import check_out, embedded_base, find_base

        with needs_extra("train"):
            from headlab.training.finetune import finetune, on_dev  # these import torch

        check_out(self.out)
        device = lab.device
        measure = on_dev(self.measured, self.size, progress.measuring)
        finetune(
            embedded_base(lab.base()) if is_embedded(self.base) else find_base(self.base),
            self.task.examples(self.language, "train"),
            self.task.labels,
            out=self.out,
            options=self.options,
            device=device,
            checkpoint_every=CHECKPOINT_STEPS,
            progress=progress.step,
            evaluate=measure,
        )


def is_embedded(base: str | None) -> bool:
    """Whether a base is the one that ships with the package."""
    from headlab.training import EMBEDDED_BASE  # imports torch

    return base is None or base == EMBEDDED_BASE


class FolderProgress(LoggedProgress):
    """Progress of a command's fine-tuning: its steps, then the dev examples of each language."""

    def __init__(self, running: RunningJob, size: int) -> None:
        """Nothing is done yet.

        Args:
            running: Shows how far it is.
            size: Dev examples of a language.
        """
        super().__init__(running)
        self._running = running
        self._size = size

    def measuring(self, language: str, examples_begun: int) -> None:
        """Called between batches of a language's dev examples."""
        self._running.progress(examples_begun, self._size, f"measuring {language}")


class TrainingProgress:
    """Progress of a training in forward passes; serves live requests between batches."""

    def __init__(self, running: RunningJob, chosen_task: Task, options: FinetuneOptions) -> None:
        self.running = running
        self._task = chosen_task
        self._forwards_a_step = FORWARDS_LEARNED * options.batch
        self._training = options.steps * self._forwards_a_step
        self._total = self._training + DEV_SIZE * len(chosen_task.languages)
        self._steps = StepProgress(running)
        running.progress(0, self._total, "getting ready", fresh=True)

    def step(self, finetune_step: FinetuneStep) -> None:
        """Called after each step; the first may continue from a checkpoint."""
        note = f"step {finetune_step.step} of {finetune_step.steps}, loss {finetune_step.loss:.3f}"
        self._steps.report_step(
            finetune_step, finetune_step.step * self._forwards_a_step, self._total, note
        )

    def measuring(self, language: str, examples_begun: int) -> None:
        """Called between batches of a language's dev examples."""
        earlier_forwards = self._training + self._task.languages.index(language) * DEV_SIZE
        self.running.progress(
            earlier_forwards + min(examples_begun, DEV_SIZE), self._total, f"measuring {language}"
        )

    def finish(self) -> None:
        """Called after the last language."""
        self.running.progress(self._total, self._total, "measured in every language")


def _step_pace(known: ForecastBasis) -> tuple[float | None, str]:
    """Seconds a step in earlier trainings on such a device, and what that is based on.

    The seconds are None if there was no such training.
    """
    paces = list(_step_paces(known))
    if not paces:
        return None, "how long a step takes on this device is not known yet"
    pace = float(np.median(paces))
    plural = "s" if len(paces) > 1 else ""
    trainings = f"{len(paces)} training{plural} on such a device ({known.device})"
    return pace, f"{pace:.3g} s a step, as in {trainings}"


def _step_paces(known: ForecastBasis) -> Iterator[float]:
    """Seconds per step in the records of earlier trainings, those of embedded models included."""
    embedded_models = Path(str(files("headlab"))) / "embedded"
    for path in [
        *embedded_models.glob(f"*/{RECORD}"),
        *(known.root / ADAPTERS_FOLDER).glob(f"*/{RECORD}"),
    ]:
        try:
            record = read_json(path)
            if str(record["device"]).split(":")[0] == known.device:
                yield float(record["seconds"]) / int(record["options"]["steps"])
        except (HeadlabError, KeyError, TypeError, ValueError, ZeroDivisionError):
            continue  # a record in another format says nothing about the pace
