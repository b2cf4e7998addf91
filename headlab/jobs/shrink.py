"""Removing a mask's heads from a model's weights: a smaller model with a proof of its answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self, TypedDict

from headlab.core import Option
from headlab.jobs import (
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
    JobPlace,
    Lab,
    LabelMap,
    Languages,
    LocalPath,
    Measured,
    MeasureRequest,
    Name,
    RunningJob,
    Seed,
    check_about_task,
    estimate,
    flag_words,
    setting,
    subject_flags,
)
from headlab.masks import full_mask, load_mask
from headlab.methods import Part, is_encoder

if TYPE_CHECKING:
    from headlab.hooks import Model
    from headlab.shrink import ExportRecord, ProofNumbers, Shrunk
    from headlab.shrink.folder import WrittenModel
    from headlab.studies.savings import Ratio
    from headlab.tasks import Task

ROWS = 16
"""Examples of a batch, for comparison and timing."""
TIMED_BATCHES = 2
"""Batches that are timed."""
MODELS_COMPARED = 3
"""Models that a comparison runs: the untouched, the masked, the smaller one."""
MODELS_TIMED = 2
PASSES = 2
"""Each timed pass follows an untimed one."""

MASK_FLAG = Flag(
    "--mask", "mask file: what headlab prune, front or the Prune page wrote", Path, required=True
)
OUT_FLAG = Flag(
    "--out", "folder of the smaller model; one that shrink wrote is replaced", Path, required=True
)
ONNX_FLAG = Flag("--onnx", "write model.onnx too, and compare it (extra onnx)", bool, default=False)


class ShrinkOutcome(TypedDict):
    """What the smaller model is: its folder, its sizes, its proof, its speed; as in proof.json.

    Attributes:
        latency_ratio: Time of a forward pass over that of the untouched model.
        latency_interval: Both ends.
        onnx: The ONNX file; None if none was asked for.
    """

    folder: str
    parameters_before: int
    parameters_after: int
    heads_before: int
    heads_removed: int
    heads_masked: list[list[str | int]]
    max_logit_difference: float
    tolerance: float
    cut_alone: ProofNumbers | None
    examples: int
    computed_in: str
    dtype_before: str
    dtype_after: str
    bytes_before: int
    bytes_after: int
    latency_ratio: float
    latency_interval: list[float]
    fingerprint: str
    onnx: ExportRecord | None


class ShrinkJob(Job):
    """A smaller model with the answers of the masked one, written to a folder.

    The folder is on this machine.

    mask: a file.  task: whose examples are compared, with `label_map` and `languages`; None for the
    sentences of the embedded one.  dtype: of the weights; None for the model's own.
    """

    mask: LocalPath
    out: LocalPath
    model: Name = str(SUBJECT_FLAGS["model"].default)
    task: Name | None = None
    label_map: LabelMap = None
    languages: Languages = "all"
    size: int = setting(
        Option(128, "examples that are compared, drawn over the languages' dev", kind=int, low=1)
    )
    repeats: int = setting(Option(15, "rounds in which both models are timed", kind=int, low=6))
    onnx: bool = False
    seed: Seed = setting(SEED)
    dtype: str | None = setting(
        Option(
            None,
            "dtype of the weights: float32, float64, bfloat16, float16; default: the model's own",
            ("float32", "float64", "bfloat16", "float16"),
            optional=True,
        )
    )

    key: ClassVar[str] = "shrink"
    name: ClassVar[str] = "Smaller model"
    about: ClassVar[str] = "A model without a mask's heads, verified to give the same answers."
    summary: ClassVar[str] = "Removal of heads from the weights; from the terminal alone."
    places: ClassVar[tuple[JobPlace, ...]] = ()

    def subject(self) -> str:
        """What is made smaller, and by which mask."""
        return f"{self.name}, {self.model} without the heads of {self.mask.name}"

    def title(self) -> str:
        """The job as a heading; the languages are only of the examples that are compared."""
        return self.subject()

    def resolve(self) -> Self:
        """The job, checked.

        Raises:
            HeadlabError: The mask cannot be read, a folder would be lost, a package is missing, the
                dtype is unknown, or something is said about a task without one.
        """
        from headlab.shrink.folder import check_target, require_onnx  # these import torch
        from headlab.shrink.model import check_dtype

        load_mask(self.mask)
        check_target(self.out, self.model)
        check_dtype(self.dtype)
        if self.onnx:
            require_onnx("float32")
        self.check_has_task()
        return self

    def check_has_task(self, data: Path | None = None) -> None:
        """Refuse what is said about a task where there is none: it would have no effect.

        Args:
            data: Folder of the task's files, if one is given.

        Raises:
            HeadlabError: Something is said about a task, and there is none.
        """
        if self.task is None:
            languages = None if self.languages == "all" else self.languages
            check_about_task(
                {"--data": data, "--label-map": self.label_map, "--languages": languages}
            )

    def run(self, lab: Lab, running: RunningJob) -> ShrinkOutcome:
        """Remove the heads, compare and time the smaller model, and write its folder."""
        from headlab.shrink import (
            Speed,
            shrink_model,  # these import torch
        )
        from headlab.shrink.folder import write_shrunk
        from headlab.studies.savings_run import different_batches

        mask = load_mask(self.mask)
        task = self.chosen_task(lab)
        model = self.exact_model(lab)
        shrunk = shrink_model(model, mask)
        inputs = different_batches(model, task, rows=ROWS, size=self.size, seed=self.seed)
        time_ratio = self._time_ratio(model, shrunk, task)
        conditions = (
            f"{model.device.type}, {model.dtype}, {TIMED_BATCHES} batches of {ROWS} examples, "
            f"{self.repeats} rounds in turn"
        )
        written_folder = write_shrunk(
            model,
            shrunk,
            self.out,
            inputs,
            compared_on={
                "task": self.task,
                "languages": [] if task is None else list(task.languages),
                "split": "dev",
                "seed": self.seed,
                "size": self.size,
            },
            speed=Speed(time_ratio.ratio, time_ratio.low, time_ratio.high, conditions),
            onnx=self.onnx,
            dtype=self.dtype,
        )
        return outcome_of(written_folder, time_ratio)

    def chosen_task(self, lab: Lab) -> Task | None:
        """The task whose examples are run; None for the sentences of the embedded one.

        Raises:
            HeadlabError: The task or a language is unknown.
        """
        if self.task is None:
            return None
        task = lab.task(self.task, self.label_map)
        if self.languages == "all":
            return task
        return task.with_languages(self.languages)

    def exact_model(self, lab: Lab) -> Model:
        """The model to compute with: in float64 if its weights are, or are to be written so."""
        import headlab
        from headlab.shrink.model import checkpoint_dtype  # imports torch

        model = lab.need(self.model)
        if "float64" in (self.dtype, checkpoint_dtype(model)) and model.dtype != "float64":
            return headlab.load(self.model, device=lab.device, dtype="float64")
        return model

    def _time_ratio(self, model: Model, shrunk: Shrunk, task: Task | None) -> Ratio:
        """Time of the smaller model divided by the baseline's, a copy without headlab's hooks."""
        from headlab.shrink import shrink_model  # these import torch
        from headlab.studies.savings_run import batches_of, latency_ratio

        baseline_module = shrink_model(model, full_mask(model.grid)).module
        inputs = batches_of(model, task, rows=ROWS, count=TIMED_BATCHES, seed=self.seed)
        return latency_ratio(
            baseline_module, shrunk.module, inputs, repeats=self.repeats, seed=self.seed
        )

    def forecast(self, known: ForecastBasis) -> Estimate:
        """Cost of the comparisons and of the timing, at the pace of plain forward passes."""
        pace, pace_basis = known.measured_pace()
        comparisons = 1 + (self.dtype is not None) + self.onnx
        comparison = Part(
            MODELS_COMPARED * comparisons * self.size,
            pace,
            (f"the untouched, the masked and the smaller model on {self.size} examples",),
        )
        timing = Part(
            MODELS_TIMED * PASSES * self.repeats * TIMED_BATCHES * ROWS,
            pace,
            (f"{self.repeats} rounds of timing", pace_basis),
        )
        return estimate([comparison, timing], self.timing())

    def timing(self) -> MeasureRequest:
        """A request to time plain forward passes on the examples that are compared."""
        return MeasureRequest(model=self.model, task=self.task or "", language="", job=self)

    def measure(self, lab: Lab, request: MeasureRequest, tick: Callable[[], None]) -> Measured:
        """How long a plain forward pass takes on a batch of the examples that are compared."""
        import torch

        from headlab.core.parallel import timed_pass  # these import torch
        from headlab.studies.savings_run import batches_of

        task = self.chosen_task(lab)
        model = lab.need(self.model)
        (batch,) = batches_of(model, task, rows=ROWS, count=1, seed=self.seed)
        with torch.inference_mode():
            seconds = timed_pass(lambda: model.module(**batch), model.device) / ROWS
        return Measured(
            heads=model.grid.size,
            seconds=seconds,
            resumable=model.resumable,
            is_encoder=is_encoder(model.grid),
        )

    # Its command, and back.

    @classmethod
    def flags(cls) -> tuple[Flag, ...]:
        """The mask, the folder, the model, the examples, the settings."""
        task = replace(
            SUBJECT_FLAGS["task"],
            help="task whose examples are compared; default: the embedded task's sentences",
            default=None,
        )
        where_flag_list = [
            task if flag == SUBJECT_FLAGS["task"] else flag for flag in subject_flags()
        ]
        settings = {flag.key: flag for flag in cls.setting_flags()}
        return (
            MASK_FLAG,
            OUT_FLAG,
            *where_flag_list,
            settings["size"],
            settings["repeats"],
            ONNX_FLAG,
            settings["seed"],
            DEVICE,
            settings["dtype"],
        )

    @classmethod
    def from_flags(cls, values: Mapping[str, FlagValue]) -> Self:
        """The job of a command. Raises HeadlabError for what cannot be read of it; no file is."""
        return cls.model_construct(
            mask=Path(str(values["mask"])),
            out=Path(str(values["out"])),
            onnx=bool(values.get("onnx")),
            **cls._subject_fields({"task": None, **values}),
            **cls._setting_fields(values),
        )

    def commands(self, context: CommandContext = NO_CONTEXT) -> list[list[str]]:
        """The command; it names languages only where some are chosen or a task is."""
        with_languages = self.task is not None or self.languages != "all"
        words = [
            *self.program_words(),
            *("--mask", str(self.mask), "--out", str(self.out)),
            *self.subject_words(context, languages=with_languages),
            *self.setting_words(context),
        ]
        return [[*words, *(flag_words(ONNX_FLAG.name, self.onnx) if self.onnx else [])]]


def outcome_of(written_folder: WrittenModel, time_ratio: Ratio) -> ShrinkOutcome:
    """What the smaller model is.

    Args:
        written_folder: Its folder.
        time_ratio: Of its forward pass.
    """
    record = written_folder.record
    return {
        "folder": str(written_folder.folder),
        "parameters_before": record["parameters_before"],
        "parameters_after": record["parameters_after"],
        "heads_before": record["heads_before"],
        "heads_removed": record["heads_removed"],
        "heads_masked": record["heads_masked"],
        "max_logit_difference": record["max_logit_difference"],
        "tolerance": record["tolerance"],
        "cut_alone": record["cut_alone"],
        "examples": record["examples"],
        "computed_in": record["computed_in"],
        "dtype_before": record["dtype_before"],
        "dtype_after": record["dtype_after"],
        "bytes_before": record["bytes_before"],
        "bytes_after": record["bytes_after"],
        "latency_ratio": time_ratio.ratio,
        "latency_interval": [time_ratio.low, time_ratio.high],
        "fingerprint": written_folder.fingerprint,
        "onnx": record.get("onnx"),
    }
