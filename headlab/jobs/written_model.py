"""What jobs have in common that write a model without a mask's heads to a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from headlab.core import Option
from headlab.jobs import (
    NO_CONTEXT,
    SEED,
    SUBJECT_FLAGS,
    CommandContext,
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
    Seed,
    check_about_task,
    setting,
    subject_flags,
)
from headlab.masks import Mask, full_mask, load_mask
from headlab.methods import Part, is_encoder

if TYPE_CHECKING:
    from headlab.hooks import Model
    from headlab.studies.savings_run import Batches
    from headlab.tasks import Task

ROWS = 16
"""Examples of a batch, for comparison and timing."""
MODELS_COMPARED = 3
"""Models that a comparison runs: the untouched, the masked, the written one."""

USUAL_COMPARED = 128
"""How many examples are compared unless the form or a person says otherwise."""
EXAMPLES_COMPARED = Option(
    None,
    f"examples that are compared, drawn over the languages' dev; default: {USUAL_COMPARED}, of "
    "gguf 32",
    kind=int,
    low=1,
    optional=True,
)
MASK_FLAG = Flag(
    "--mask", "mask file: what headlab prune, front or the Prune page wrote", Path, required=True
)


def difference_text(outcome: Mapping[str, Any]) -> str:
    """How far a written model's logits are from the masked model's, after "differ by".

    Args:
        outcome: Of the job that wrote it; an earlier version's lacks what is said of rounding.
    """
    largest = f"{outcome['max_logit_difference']:.2g} at most"
    if not outcome.get("is_rounded"):
        return largest
    return f"{outcome['usual_difference']:.2g} for 99 % of the answers, and by {largest}"


@dataclass(frozen=True)
class ComparedOn:
    """Whose examples models are compared on.

    Attributes:
        task: The task; None for plain sentences.
        sentences: Whose texts these are; None for the embedded task's.
    """

    task: Task | None
    sentences: Task | None = None


class WrittenModelJob(Job):
    """A model with the answers of a masked one, written to a folder of this machine.

    mask: a file; None to keep all heads.  task: whose examples are compared, with `label_map` and
    `languages`; None for the sentences of the embedded one.  dtype: of the weights; None for the
    model's own.
    """

    mask: LocalPath | None = None
    out: LocalPath
    model: Name = str(SUBJECT_FLAGS["model"].default)
    task: Name | None = None
    label_map: LabelMap = None
    languages: Languages = "all"
    size: int | None = setting(EXAMPLES_COMPARED)
    repeats: int = setting(Option(15, "rounds in which both models are timed", kind=int, low=6))
    seed: Seed = setting(SEED)
    dtype: str | None = setting(
        Option(
            None,
            "dtype of the weights: float32, float64, bfloat16, float16; default: the model's own",
            ("float32", "float64", "bfloat16", "float16"),
            optional=True,
        )
    )

    places: ClassVar[tuple[JobPlace, ...]] = ()

    def subject(self) -> str:
        """What is written, and without which heads."""
        if self.mask is None:
            return f"{self.name}, {self.model}"
        return f"{self.name}, {self.model} without the heads of {self.mask.name}"

    def title(self) -> str:
        """The job as a heading; the languages are only of the examples that are compared."""
        return self.subject()

    def resolve(self) -> Self:
        """The job, checked.

        Raises:
            HeadlabError: The mask cannot be read, a folder would be lost, the dtype is unknown, or
                something is said about a task without one.
        """
        from headlab.shrink import check_target  # imports torch

        if self.mask is not None:
            load_mask(self.mask)
        check_target(self.out, self.model)
        self.check_dtype()
        self.check_has_task()
        return self

    def check_dtype(self) -> None:
        """Raise HeadlabError unless weights can be written in the dtype."""
        from headlab.shrink import check_dtype  # imports torch

        check_dtype(self.dtype)

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

    def mask_of(self, model: Model) -> Mask:
        """The mask in the file; without one, all heads stay.

        Raises:
            HeadlabError: The file cannot be read.
        """
        if self.mask is None:
            return full_mask(model.grid)
        return load_mask(self.mask)

    def exact_model(self, lab: Lab) -> Model:
        """The model to compute with: in float64 if its weights are, or are to be written so.

        Its players are those of the mask.
        """
        import headlab
        from headlab.hooks import with_players_of  # these import torch
        from headlab.shrink import checkpoint_dtype

        model = lab.need(self.model)
        if "float64" in (self.dtype, checkpoint_dtype(model)) and model.dtype != "float64":
            model = headlab.load(self.model, device=lab.device, dtype="float64")
        if self.mask is None:
            return model
        mask = load_mask(self.mask)
        if mask.grid.has_only_heads:
            return model
        mask.check_model(model.fingerprint)
        return with_players_of(model, mask.grid)

    @property
    def compared_count(self) -> int:
        """How many examples are compared."""
        return USUAL_COMPARED if self.size is None else self.size

    def examples_of(self, model: Model, compared_on: ComparedOn, *, rows: int) -> Batches:
        """Batches of the examples that the models are compared on.

        Args:
            model: The original.
            compared_on: Whose examples they are.
            rows: Examples of a batch, at most.

        Raises:
            HeadlabError: The model does not fit the task.
        """
        from headlab.studies.savings_run import different_batches  # imports torch

        return different_batches(
            model,
            compared_on.task,
            rows=rows,
            size=self.compared_count,
            seed=self.seed,
            sentences=compared_on.sentences,
        )

    def record_of(self, compared_on: ComparedOn) -> dict[str, Any]:
        """What the examples are that the models are compared on, as proof.json records it."""
        task = compared_on.task
        source = task or compared_on.sentences
        return {
            "task": None if task is None else self.task or task.name,
            "languages": [] if source is None else list(source.languages),
            "split": "dev",
            "seed": self.seed,
            "size": self.compared_count,
        }

    def recorded_command(self) -> list[str]:
        """The command as proof.json records it: with names of files in place of paths."""
        return self.model_copy(update=self.names_in_place_of_paths()).commands()[0]

    def names_in_place_of_paths(self) -> dict[str, Any]:
        """The fields that hold paths, with the names alone."""
        model = Path(self.model).name if Path(self.model).is_dir() else self.model
        names: dict[str, Any] = {"out": Path(self.out.name), "model": model}
        if self.mask is not None:
            names["mask"] = Path(self.mask.name)
        return names

    def comparison_part(self, known: ForecastBasis, *, onnx: bool = False) -> Part:
        """Cost of the comparisons, at the pace of plain forward passes.

        Args:
            known: What is known of the pace.
            onnx: Whether an ONNX file is compared too.
        """
        pace, pace_basis = known.measured_pace()
        comparisons = 2 + (self.dtype is not None) * 2 + onnx  # on examples and on random input
        return Part(
            MODELS_COMPARED * comparisons * self.compared_count,
            pace,
            (
                f"the untouched, the masked and the written model on {self.compared_count} examples and on "
                "as much random input",
                pace_basis,
            ),
        )

    def timing(self) -> MeasureRequest:
        """A request to time plain forward passes on the examples that are compared."""
        return MeasureRequest(model=self.model, task=self.task or "", language="", job=self)

    def measure(self, lab: Lab, request: MeasureRequest, tick: Callable[[], None]) -> Measured:
        """How long a plain forward pass takes on a batch of the examples that are compared."""
        import torch

        from headlab.core import timed_pass  # these import torch
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
    def example_flags(cls) -> tuple[Flag, ...]:
        """The flags of the model and of the examples that are compared."""
        task = replace(
            SUBJECT_FLAGS["task"],
            help="task whose examples are compared; default: the embedded task's sentences",
            default=None,
        )
        return tuple(task if flag == SUBJECT_FLAGS["task"] else flag for flag in subject_flags())

    @classmethod
    def fields_of_flags(cls, values: Mapping[str, FlagValue]) -> dict[str, Any]:
        """The fields that a command gives.

        Raises:
            HeadlabError: For what cannot be read of it; no file is.
        """
        mask = values.get("mask")
        return {
            "mask": None if mask is None else Path(str(mask)),
            "out": Path(str(values["out"])),
            **cls._subject_fields({"task": None, **values}),
            **cls._setting_fields(values),
        }

    def words_of_fields(self, context: CommandContext = NO_CONTEXT) -> list[str]:
        """The words of its command, but for what only its own kind has.

        Languages are named only where some are chosen or a task is.
        """
        with_languages = self.task is not None or self.languages != "all"
        return [
            *self.program_words(),
            *(() if self.mask is None else (MASK_FLAG.name, str(self.mask))),
            *("--out", str(self.out)),
            *self.subject_words(context, languages=with_languages),
            *self.setting_words(context),
        ]
