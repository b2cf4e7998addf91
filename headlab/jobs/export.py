"""A model without a mask's heads in a form that stock software reads, with a proof of its answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NotRequired, Self, TypedDict, cast

from headlab.core import HeadlabError, Option
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
    estimate,
    setting,
)
from headlab.jobs.shrink import ShrinkJob, ShrinkOutcome
from headlab.jobs.written_model import MASK_FLAG, ROWS, WrittenModelJob
from headlab.masks import load_mask
from headlab.methods import Part

if TYPE_CHECKING:
    import torch

    from headlab.hooks import Model
    from headlab.shrink import MeansOf, ProofNumbers
    from headlab.shrink.folder import WrittenModel
    from headlab.tasks import Task

FORMS: Mapping[str, str] = {
    "folder": "the original's class and shapes, heads silenced; transformers reads it",
    "small": "heads removed; headlab reads it",
    "onnx": "as small, with a file model.onnx",
    "gguf": "heads removed, in whole groups of Llama and Mistral; llama.cpp reads it",
}
"""What each form is, by its key."""
SHRUNK_FORMS = ("small", "onnx")
"""Forms that `headlab shrink` writes."""
DECODER_ROWS = 4
"""Examples of a batch of a decoder, whose logits are large: one for every token and piece."""
FORM_FLAG = Flag(
    "--as",
    "; ".join(f"{key}: {about}" for key, about in FORMS.items()),
    required=True,
    parameter="form",
)
OUT_FLAG = Flag(
    "--out",
    "folder of the written model; one that headlab wrote is replaced",
    Path,
    required=True,
)


class ExportOutcome(TypedDict):
    """What was written, as in proof.json.

    Attributes:
        form: How it was written.
        bytes_after: Size of the file of weights.
        heads_silenced: Removed heads whose weights are still there.
        file: Of the form "gguf", the file.
        groups_removed: Of the form "gguf", groups of heads with a common key and value.
    """

    form: str
    folder: str
    parameters_before: int
    parameters_after: int
    bytes_before: int
    bytes_after: int
    dtype_before: str
    dtype_after: str
    heads_before: int
    heads_removed: int
    heads_silenced: int
    max_logit_difference: float
    tolerance: float
    equal_answers: float
    examples: int
    random_input: ProofNumbers
    means_of: MeansOf | None
    computed_in: str
    fingerprint: str
    file: NotRequired[str]
    groups_removed: NotRequired[int]


class ExportJob(WrittenModelJob):
    """A model with the answers of a masked one, in a form that other software reads.

    form: one of `FORMS`.
    """

    form: str = "folder"
    dtype: str | None = setting(
        Option(
            None,
            "dtype of the weights: float32, float64, bfloat16, float16, default the model's own; of "
            "gguf float32 (default), float16 or q8_0",
            ("float32", "float64", "bfloat16", "float16", "q8_0"),
            optional=True,
        )
    )

    key: ClassVar[str] = "export"
    name: ClassVar[str] = "Exported model"
    about: ClassVar[str] = "A model with a mask built in, for software that does not know headlab."
    summary: ClassVar[str] = "A model with a mask built in; from the terminal alone."

    def resolve(self) -> Self:
        """The job, checked.

        Raises:
            HeadlabError: As in `WrittenModelJob`, the form is unknown, a package is missing, or
                heads are to give their mean and no task says on which examples.
        """
        if self.form not in FORMS:
            raise HeadlabError(
                f"unknown form {self.form!r}; use --as with one of {', '.join(FORMS)}",
                code="export.form_unknown",
            )
        if self.form in SHRUNK_FORMS:
            self.shrink_job().resolve()
            return self
        job = super().resolve()
        gives_means = self.form == "folder" and load_mask(self.mask).of_means
        if gives_means and self.task is None:
            raise HeadlabError(
                f"{self.mask} was chosen under mean ablation, so its heads give their mean output, "
                "which depends on examples; name those of a task, like --task intents --languages "
                "de --size 1000",
                code="export.means_need_task",
            )
        return job

    def check_dtype(self) -> None:
        """Raise HeadlabError unless weights of this form can be written in the dtype."""
        from headlab.shrink.gguf_folder import check_number_type  # imports torch

        if self.form == "gguf":
            check_number_type(self.dtype)
        else:
            super().check_dtype()

    def shrink_job(self) -> ShrinkJob:
        """The job that writes the forms without the removed heads' weights."""
        fields = {name: getattr(self, name) for name in WrittenModelJob.model_fields}
        return ShrinkJob.model_construct(**fields, onnx=self.form == "onnx")

    def run(self, lab: Lab, running: RunningJob) -> ExportOutcome | ShrinkOutcome:
        """Build the mask into the weights, compare, and write the folder."""
        if self.form in SHRUNK_FORMS:
            outcome = self.shrink_job().write(lab, self.recorded_command())
            return cast("ShrinkOutcome", {"form": self.form, **outcome})
        task = self.chosen_task(lab)
        model = self.exact_model(lab)
        if self.form == "gguf":
            return self._write_gguf(model, task)
        return self._write_folder(model, task)

    def _write_folder(self, model: Model, task: Task | None) -> ExportOutcome:
        """Silence the heads in the weights, and write a folder of the original's class."""
        from headlab.shrink import silence_model  # these import torch
        from headlab.shrink.folder import write_shrunk
        from headlab.shrink.silenced import check_silenceable
        from headlab.studies.savings_run import different_batches

        mask = load_mask(self.mask)
        check_silenceable(model, mask)
        means, means_of = self._head_means(model, task) if mask.of_means else (None, None)
        written_folder = write_shrunk(
            model,
            silence_model(model, mask, means),
            self.out,
            different_batches(model, task, rows=ROWS, size=self.size, seed=self.seed),
            compared_on=self.compared_on(task),
            means_of=means_of,
            dtype=self.dtype,
            command=self.recorded_command(),
        )
        return outcome_of(written_folder)

    def _head_means(self, model: Model, task: Task | None) -> tuple[torch.Tensor, MeansOf]:
        """Mean output of every head, and the examples it was taken on.

        Equally many dev examples of every language, the first ones: all of one language are the
        examples whose means `headlab evaluate` takes.
        """
        from headlab.hooks import head_means  # these import torch
        from headlab.studies.savings_run import first_batches

        assert task is not None  # `resolve` has seen it
        batches, count_by_language = first_batches(model, task, rows=ROWS, size=self.size)
        means_of: MeansOf = {"task": task.name, "split": "dev", "examples": count_by_language}
        return head_means(model, batches), means_of

    def _write_gguf(self, model: Model, task: Task | None) -> ExportOutcome:
        """Remove the heads, and write a file for llama.cpp."""
        from headlab.shrink.folder import GGUF_FILE  # these import torch
        from headlab.shrink.gguf_file import groups_removed
        from headlab.shrink.gguf_folder import write_gguf_folder
        from headlab.studies.savings_run import different_batches

        written_folder, shrunk = write_gguf_folder(
            model,
            load_mask(self.mask),
            self.out,
            different_batches(model, task, rows=DECODER_ROWS, size=self.size, seed=self.seed),
            compared_on=self.compared_on(task),
            number_type=self.dtype or "float32",
            command=self.recorded_command(),
        )
        outcome = outcome_of(written_folder)
        outcome["file"] = str(self.out / GGUF_FILE)
        outcome["groups_removed"] = groups_removed(model, shrunk)
        return outcome

    def forecast(self, known: ForecastBasis) -> Estimate:
        """Cost of the comparisons, at the pace of plain forward passes."""
        if self.form in SHRUNK_FORMS:
            return self.shrink_job().forecast(known)
        parts = [self.comparison_part(known)]
        if self.form == "folder" and load_mask(self.mask).of_means:
            pace, pace_basis = known.measured_pace()
            parts.append(Part(self.size, pace, ("the heads' mean outputs", pace_basis)))
        return estimate(parts, self.timing())

    # Its command, and back.

    @classmethod
    def flags(cls) -> tuple[Flag, ...]:
        """The mask, the form, the folder, the model, the examples, the settings."""
        settings = {flag.key: flag for flag in cls.setting_flags()}
        return (
            MASK_FLAG,
            FORM_FLAG,
            OUT_FLAG,
            *cls.example_flags(),
            settings["size"],
            settings["repeats"],
            settings["seed"],
            DEVICE,
            settings["dtype"],
        )

    @classmethod
    def from_flags(cls, values: Mapping[str, FlagValue]) -> Self:
        """The job of a command. Raises HeadlabError for what cannot be read of it; no file is."""
        fields = cls.fields_of_flags(values) | {"form": str(values["form"])}
        return cls.model_construct(**fields)

    def commands(self, context: CommandContext = NO_CONTEXT) -> list[list[str]]:
        """The command."""
        return [[*self.words_of_fields(context), FORM_FLAG.name, self.form]]


def outcome_of(written_folder: WrittenModel) -> ExportOutcome:
    """What was written, as people and programs read it."""
    record = written_folder.record
    return {
        "form": record["form"],
        "folder": str(written_folder.folder),
        "parameters_before": record["parameters_before"],
        "parameters_after": record["parameters_after"],
        "bytes_before": record["bytes_before"],
        "bytes_after": record["bytes_after"],
        "dtype_before": record["dtype_before"],
        "dtype_after": record["dtype_after"],
        "heads_before": record["heads_before"],
        "heads_removed": record["heads_removed"],
        "heads_silenced": len(record["heads_masked"]),
        "max_logit_difference": record["max_logit_difference"],
        "tolerance": record["tolerance"],
        "equal_answers": record["equal_answers"],
        "examples": record["examples"],
        "random_input": record["random_input"],
        "means_of": record["means_of"],
        "computed_in": record["computed_in"],
        "fingerprint": written_folder.fingerprint,
    }
