"""Removing a mask's heads or other players from the weights: a smaller model with a proof."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NotRequired, Self, TypedDict

from headlab.core import HeadlabError
from headlab.jobs import (
    DEVICE,
    NO_CONTEXT,
    CommandContext,
    Estimate,
    Flag,
    FlagValue,
    ForecastBasis,
    Lab,
    RunningJob,
    Tick,
    estimate,
    flag_words,
)
from headlab.jobs.steps import BeginStep, Step
from headlab.jobs.written_model import MASK_FLAG, ROWS, ComparedOn, WrittenModelJob
from headlab.masks import full_mask
from headlab.methods import Part

if TYPE_CHECKING:
    from headlab.hooks import Model
    from headlab.shrink import (
        ExportRecord,
        Inputs,
        PlayersRecord,
        ProofNumbers,
        Shrunk,
        SmallerVocabulary,
        WrittenModel,
    )
    from headlab.studies.savings import Ratio

TIMED_BATCHES = 2
"""Batches that are timed."""
MODELS_TIMED = 2
REMOVING = "removing what is off"
TIMING = "timing both models"
PASSES = 2
"""Each timed pass follows an untimed one."""

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
        players: What went, if the mask is of other players than heads.
    """

    folder: str
    parameters_before: int
    parameters_after: int
    heads_before: int
    heads_removed: int
    heads_masked: list[list[str | int]]
    max_logit_difference: float
    usual_difference: float
    is_rounded: bool
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
    players: NotRequired[PlayersRecord]


class ShrinkJob(WrittenModelJob):
    """A smaller model with the answers of the masked one, written to a folder.

    The folder is on this machine.
    """

    onnx: bool = False

    key: ClassVar[str] = "shrink"
    name: ClassVar[str] = "Smaller model"
    about: ClassVar[str] = "A model without a mask's heads, verified to give the same answers."
    summary: ClassVar[str] = "Removal of heads from the weights; from the terminal alone."

    def resolve(self) -> Self:
        """The job, checked.

        Raises:
            HeadlabError: As in `WrittenModelJob`, there is no mask, or a package is missing.
        """
        from headlab.shrink import require_onnx  # imports torch

        if self.mask is None:
            raise HeadlabError(
                "there is no mask, so no head would go; name its file with --mask",
                code="shrink.mask_missing",
            )
        job = super().resolve()
        if self.onnx:
            require_onnx("float32")
        return job

    def run(self, lab: Lab, running: RunningJob) -> ShrinkOutcome:
        """Remove what the mask closes, compare and time the smaller model, write its folder."""
        model = self.exact_model(lab)
        compared_on = ComparedOn(self.chosen_task(lab))
        return self.write(model, compared_on, self.recorded_command(), running.tick)

    def write(
        self,
        model: Model,
        compared_on: ComparedOn,
        command: list[str],
        tick: Tick,
        vocabulary: SmallerVocabulary | None = None,
        begin_step: BeginStep = lambda note: None,
    ) -> ShrinkOutcome:
        """As `run`.

        Args:
            model: The original.
            compared_on: Whose examples are compared and timed.
            command: That writes the same, for the record.
            tick: Called between batches.
            vocabulary: That the smaller model gets; None for the original's.
            begin_step: Called with what begins now.
        """
        from headlab.shrink import (  # these import torch
            Speed,
            shrink_model,
            with_vocabulary,
            write_shrunk,
        )

        begin_step(REMOVING)
        shrunk = shrink_model(model, self.mask_of(model))
        if vocabulary is not None:
            shrunk = with_vocabulary(shrunk, vocabulary)
        begin_step(TIMING)
        time_ratio = self._time_ratio(model, shrunk, compared_on, tick)
        conditions = (
            f"{model.device.type}, {model.dtype}, {TIMED_BATCHES} batches of {ROWS} examples, "
            f"{self.repeats} rounds in turn"
        )
        written_folder = write_shrunk(
            model,
            shrunk,
            self.out,
            self.examples_of(model, compared_on, rows=ROWS),
            compared_on=self.record_of(compared_on),
            speed=Speed(time_ratio.ratio, time_ratio.low, time_ratio.high, conditions),
            onnx=self.onnx,
            dtype=self.dtype,
            command=command,
            tick=tick,
            begin_step=begin_step,
        )
        return outcome_of(written_folder, time_ratio)

    def timing_step(self) -> Step:
        """The step in which both models are timed."""
        rounds = MODELS_TIMED * self.repeats
        return Step(TIMING, rounds * PASSES * TIMED_BATCHES * ROWS, rounds)

    def _time_ratio(
        self, model: Model, shrunk: Shrunk, compared_on: ComparedOn, tick: Tick
    ) -> Ratio:
        """Time of the smaller model divided by the baseline's, a copy without headlab's hooks."""
        from headlab.shrink import (  # these import torch
            covered_batches,
            renumbered_batch,
            shrink_model,
        )
        from headlab.studies.savings_run import batches_of, latency_ratio

        baseline_module = shrink_model(model, full_mask(model.grid)).module
        inputs: Inputs = batches_of(
            model,
            compared_on.task,
            rows=ROWS,
            count=TIMED_BATCHES,
            seed=self.seed,
            sentences=compared_on.sentences,
        )
        inputs_after = inputs
        if shrunk.cut is not None:
            inputs = covered_batches(inputs, shrunk.cut)
            inputs_after = [renumbered_batch(batch, shrunk.cut) for batch in inputs]
        return latency_ratio(
            baseline_module,
            shrunk.module,
            inputs,
            inputs_after=inputs_after,
            repeats=self.repeats,
            seed=self.seed,
            tick=tick,
        )

    def forecast(self, known: ForecastBasis) -> Estimate:
        """Cost of the comparisons and of the timing, at the pace of plain forward passes."""
        comparison = self.comparison_part(known, onnx=self.onnx)
        return estimate([comparison, self.timing_part(known)], self.timing())

    def timing_part(self, known: ForecastBasis) -> Part:
        """Cost of the timing, at the pace of plain forward passes."""
        pace, pace_basis = known.measured_pace()
        return Part(
            self.timing_step().units,
            pace,
            (f"{self.repeats} rounds of timing", pace_basis),
        )

    # Its command, and back.

    @classmethod
    def flags(cls) -> tuple[Flag, ...]:
        """The mask, the folder, the model, the examples, the settings."""
        settings = {flag.key: flag for flag in cls.setting_flags()}
        return (
            MASK_FLAG,
            OUT_FLAG,
            *cls.example_flags(),
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
        return cls.model_construct(onnx=bool(values.get("onnx")), **cls.fields_of_flags(values))

    def commands(self, context: CommandContext = NO_CONTEXT) -> list[list[str]]:
        """The command; it names languages only where some are chosen or a task is."""
        words = self.words_of_fields(context)
        return [[*words, *(flag_words(ONNX_FLAG.name, self.onnx) if self.onnx else [])]]


def outcome_of(written_folder: WrittenModel, time_ratio: Ratio) -> ShrinkOutcome:
    """What the smaller model is.

    Args:
        written_folder: Its folder.
        time_ratio: Of its forward pass.
    """
    record = written_folder.record
    outcome: ShrinkOutcome = {
        "folder": str(written_folder.folder),
        "parameters_before": record["parameters_before"],
        "parameters_after": record["parameters_after"],
        "heads_before": record["heads_before"],
        "heads_removed": record["heads_removed"],
        "heads_masked": record["heads_masked"],
        "max_logit_difference": record["max_logit_difference"],
        "usual_difference": record["usual_difference"],
        "is_rounded": record["is_rounded"],
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
    if "players" in record:
        outcome["players"] = record["players"]
    return outcome
