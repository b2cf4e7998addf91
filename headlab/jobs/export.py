"""A model without a mask's heads in a form that stock software reads, with a proof of its answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NotRequired, Self, TypedDict, cast

from headlab.core import HeadlabError, Option
from headlab.jobs import (
    DEVICE,
    NO_CONTEXT,
    SUBJECT_FLAGS,
    CommandContext,
    Estimate,
    Flag,
    FlagValue,
    ForecastBasis,
    Lab,
    LocalPath,
    RunningJob,
    Tick,
    check_about_task,
    estimate,
    examples_of_test,
    setting,
)
from headlab.jobs.shrink import REMOVING, ShrinkJob, ShrinkOutcome
from headlab.jobs.steps import Step, StepProgress
from headlab.jobs.vocabulary import (
    VocabularyOutcome,
    accuracy_by_language,
    default_task,
    is_cut,
    outcome_of_vocabulary,
    require_languages,
    restricted_to,
    smaller_vocabulary,
)
from headlab.jobs.written_model import MODELS_COMPARED, ROWS, ComparedOn, WrittenModelJob
from headlab.masks import load_mask
from headlab.methods import Part
from headlab.studies import VOCABULARY_CHOICES
from headlab.tasks.resolve import task as task_at

if TYPE_CHECKING:
    import torch

    from headlab.hooks import Model
    from headlab.masks import RecordedAccuracy
    from headlab.shrink import (
        MeansOf,
        PlayersRecord,
        ProofNumbers,
        SmallerVocabulary,
        WrittenModel,
    )
    from headlab.studies.savings_run import Batches
    from headlab.tasks import Task

FORMS: Mapping[str, str] = {
    "folder": "the original's class and shapes, heads and neurons silenced; transformers reads it",
    "small": "heads, neurons and layers removed; headlab reads it",
    "onnx": "as small, with a file model.onnx",
    "gguf": "as small, of Llama and Mistral, heads in whole groups; llama.cpp reads it",
    "duo": "which key-value groups stream, with no weights; DuoAttention and kvpress read it",
}
"""What each form is, by its key."""
SHAPES_KEPT = "folder"
"""The form whose shapes are the original's: `--languages` alone does not cut its vocabulary."""
SHRUNK_FORMS = ("small", "onnx")
"""Forms that `headlab shrink` writes."""
DUO = "duo"
"""The form without weights."""
LOADING = "loading the model"
CUTTING = "cutting the vocabulary"
MEASURING = "measuring the accuracy on test"
UNITS_OF_FILES = 100
"""How much work it is to read, write or cut a model, in forward passes of an example: roughly."""
DUO_PASSES = 6
"""Passes of its proof."""
MODELS_EVALUATED = 2
"""The untouched and the written one, on test."""
DECODER_ROWS = 1
"""Examples of a batch of a decoder, whose logits are large: one for every token and piece."""
DECODER_EXAMPLES = 32
"""How many of a decoder's are compared unless a person says otherwise: each has many answers."""
FORM_FLAG = Flag(
    "--as",
    "; ".join(f"{key}: {about}" for key, about in FORMS.items()),
    required=True,
    parameter="form",
)
VOCABULARY = Option(
    None,
    "cut the vocabulary to --languages, or keep it; default: cut if languages are named, but for "
    "--as folder",
    VOCABULARY_CHOICES,
    optional=True,
)
EXPORT_DTYPE = Option(
    None,
    "dtype of the weights: float32, float64, bfloat16, float16, default the model's own; of gguf "
    "float32 (default), float16 or q8_0",
    ("float32", "float64", "bfloat16", "float16", "q8_0"),
    optional=True,
)
EXPORT_MASK_FLAG = Flag(
    "--mask",
    "mask file: what headlab prune, front or the Prune page wrote; without, all heads stay",
    Path,
)
TEXTS_FLAG = Flag(
    "--texts",
    "folder with more texts whose pieces stay: de.txt, th.txt and so on, one text a line",
    Path,
)
OUT_FLAG = Flag(
    "--out",
    "folder of the written model; one that headlab wrote is replaced",
    Path,
    required=True,
)


class SmallOutcome(ShrinkOutcome, VocabularyOutcome):
    """What was written without the weights of the removed heads.

    Attributes:
        form: How it was written.
    """

    form: str


class ExportOutcome(VocabularyOutcome):
    """What was written, as in proof.json.

    Attributes:
        form: How it was written.
        bytes_after: Size of the file of weights.
        heads_silenced: Removed heads whose weights are still there.
        file: Of the form "gguf", the file.
        groups_removed: Of the form "gguf", groups of heads with a common key and value.
        players: What went, if the mask is of other players than heads.
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
    usual_difference: float
    is_rounded: bool
    tolerance: float
    equal_answers: float
    examples: int
    random_input: ProofNumbers
    means_of: MeansOf | None
    computed_in: str
    fingerprint: str
    file: NotRequired[str]
    groups_removed: NotRequired[int]
    players: NotRequired[PlayersRecord]


class DuoOutcome(TypedDict):
    """A table of key-value groups that stream, as in proof.json.

    Attributes:
        form: "duo".
        folder: What was written.
        groups: Key-value groups of the model.
        streaming: How many of them stream.
        sparsity: Their share.
        sink_size: How many of the first tokens they see.
        recent_size: How many of the last tokens they see.
        chosen_under: The ablation that the mask was chosen under; None if it is not recorded.
        max_logit_difference: How far logits under the files are from those under the mask.
        untouched_difference: How far they are from the untouched model's.
        readers: The programs that take a model of this type.
        note: What to know of a mask that was not chosen to stream.
    """

    form: str
    folder: str
    groups: int
    streaming: int
    sparsity: float
    sink_size: int
    recent_size: int
    chosen_under: str | None
    max_logit_difference: float
    untouched_difference: float
    readers: list[str]
    note: NotRequired[str]


class ExportJob(WrittenModelJob):
    """A model with the answers of a masked one, in a form that other software reads.

    form: one of `FORMS`.  texts: a folder, see `TEXTS_FLAG`.
    """

    form: str = "folder"
    vocabulary: str | None = setting(VOCABULARY)
    texts: LocalPath | None = None
    test_size: int | None = setting(
        examples_of_test(
            "test examples of each language for the accuracy with a cut vocabulary; default: all"
        )
    )
    dtype: str | None = setting(EXPORT_DTYPE)

    key: ClassVar[str] = "export"
    name: ClassVar[str] = "Exported model"
    about: ClassVar[str] = "A model with a mask built in, for software that does not know headlab."
    summary: ClassVar[str] = "A model with a mask built in; from the terminal alone."

    @property
    def compared_count(self) -> int:
        """How many examples are compared."""
        if self.size is None and self.form == "gguf":
            return DECODER_EXAMPLES
        return super().compared_count

    def resolve(self) -> Self:
        """The job, checked.

        Raises:
            HeadlabError: As in `WrittenModelJob`, the form is unknown, a package is missing,
                nothing would change, or heads are to give their mean and no task says on which
                examples.
        """
        from headlab.shrink import require_onnx  # imports torch

        if self.form not in FORMS:
            raise HeadlabError(
                f"unknown form {self.form!r}; use --as with one of {', '.join(FORMS)}",
                code="export.form_unknown",
            )
        self._check_changes()
        job = super().resolve()
        if self.form == "onnx":
            require_onnx("float32")
        if self._gives_means and self.task is None:
            raise self._means_need_task()
        return job

    def _check_changes(self) -> None:
        """Refuse an export that changes nothing, and settings that would have no effect.

        Raises:
            HeadlabError: There is such a thing.
        """
        if self.form != DUO and self.vocabulary is not None and is_cut(self.vocabulary):
            require_languages(self.languages)
        if self.form == DUO:
            self._check_duo()
        if self.cuts_vocabulary:
            return
        if self.mask is None:
            raise HeadlabError(
                "nothing would change: name heads to remove with --mask mask.json, or the "
                "languages that the vocabulary is cut to, with --languages de,th --as small",
                code="export.nothing_changes",
            )
        settings = {"--texts": self.texts, "--test-size": self.test_size}
        names = " and ".join(name for name, value in settings.items() if value is not None)
        if names:
            raise HeadlabError(
                f"{names} would have no effect, as the vocabulary stays; name the languages that it "
                "is cut to, with --languages de,th --vocabulary cut",
                code="export.vocabulary_kept",
            )

    def _check_duo(self) -> None:
        """Refuse settings of weights and of examples where neither is written or compared.

        Raises:
            HeadlabError: There is such a setting.
        """
        settings = {
            "--task": self.task,
            "--label-map": self.label_map,
            "--languages": None if self.languages == "all" else self.languages,
            "--vocabulary": self.vocabulary,
            "--texts": self.texts,
            "--test-size": self.test_size,
            "--size": self.size,
            "--dtype": self.dtype,
        }
        names = " and ".join(name for name, value in settings.items() if value is not None)
        if names:
            raise HeadlabError(
                f"{names} would have no effect: --as {DUO} writes no weights and compares random texts; leave it out",
                code="export.duo_settings",
            )

    @property
    def cuts_vocabulary(self) -> bool:
        """Whether the vocabulary is cut to the languages that are named."""
        if self.vocabulary is not None:
            return is_cut(self.vocabulary)
        return self.languages != "all" and self.form != SHAPES_KEPT

    @property
    def _gives_means(self) -> bool:
        """Whether removed heads are to give their mean output."""
        if self.form != "folder" or self.mask is None:
            return False
        return load_mask(self.mask).of_means

    def _means_need_task(self) -> HeadlabError:
        """The error for means of no examples."""
        return HeadlabError(
            f"{self.mask} was chosen under mean ablation, so its heads give their mean output, "
            "which depends on examples; name those of a task, like --task intents --languages "
            "de --size 1000",
            code="export.means_need_task",
        )

    def check_has_task(self, data: Path | None = None) -> None:
        """As in `WrittenModelJob`; languages may also be those of the vocabulary."""
        if not self.cuts_vocabulary:
            super().check_has_task(data)
        elif self._task_name is None:
            check_about_task({"--data": data, "--label-map": self.label_map})

    @property
    def _task_name(self) -> str | None:
        """The task that is named, or the embedded model's own if the vocabulary is cut."""
        if self.task is None and self.cuts_vocabulary:
            return default_task(self.model)
        return self.task

    def chosen_task(self, lab: Lab) -> Task | None:
        """As in `WrittenModelJob`.

        Where the vocabulary is cut, the task need not have all languages.
        """
        if not self.cuts_vocabulary:
            return super().chosen_task(lab)
        if self._task_name is None:
            return None
        return restricted_to(
            lab.task(self._task_name, self.label_map), require_languages(self.languages)
        )

    def check_dtype(self) -> None:
        """Raise HeadlabError unless weights of this form can be written in the dtype."""
        from headlab.shrink import check_number_type  # imports torch

        if self.form == "gguf":
            check_number_type(self.dtype)
        else:
            super().check_dtype()

    def names_in_place_of_paths(self) -> dict[str, Any]:
        """As in `WrittenModelJob`, with the folder of texts."""
        names = super().names_in_place_of_paths()
        if self.texts is not None:
            names["texts"] = Path(self.texts.name)
        return names

    def shrink_job(self) -> ShrinkJob:
        """The job that writes the forms without the removed heads' weights."""
        fields = {name: getattr(self, name) for name in WrittenModelJob.model_fields}
        return ShrinkJob.model_construct(**fields, onnx=self.form == "onnx")

    def run(self, lab: Lab, running: RunningJob) -> ExportOutcome | SmallOutcome | DuoOutcome:
        """Build the mask into the weights, compare, and write the folder."""
        if self.form == DUO:
            return self._write_duo(lab, running)
        task = self.chosen_task(lab)
        progress = StepProgress(running, self._steps(task))
        progress.begin(LOADING)
        model = self.exact_model(lab)
        vocabulary = sentences = None
        if self.cuts_vocabulary:
            progress.begin(CUTTING)
            vocabulary, sentences = self._smaller_vocabulary(lab, model, progress.tick)
        compared_on = ComparedOn(task, sentences)
        accuracy: dict[str, RecordedAccuracy] = {}
        if self.form in SHRUNK_FORMS:
            command = self.recorded_command()
            written = self.shrink_job().write(
                model, compared_on, command, progress.tick, vocabulary, progress.begin
            )
            outcome: Any = {"form": self.form, **written}
        elif self.form == "gguf":
            outcome = self._write_gguf(model, compared_on, progress, vocabulary)
        else:
            outcome = self._write_folder(model, compared_on, progress, vocabulary)
        if task is not None and self._measures_accuracy:
            progress.begin(MEASURING)
            accuracy = accuracy_by_language(model, self.out, task, self.test_size, progress.tick)
        progress.end()
        return cast(
            "ExportOutcome | SmallOutcome",
            {**outcome, **outcome_of_vocabulary(vocabulary, accuracy)},
        )

    @property
    def _measures_accuracy(self) -> bool:
        """Whether the accuracy of the written model is measured, if there is a task.

        headlab reads no GGUF, so that nothing can be measured on such a file.
        """
        return self.cuts_vocabulary and self.form != "gguf"

    def _write_duo(self, lab: Lab, running: RunningJob) -> DuoOutcome:
        """Write which key-value groups stream, and compare what is read back with the mask."""
        from headlab.evaluation import require_streaming  # these import torch
        from headlab.shrink import remark_on, sizes_of_mask, write_duo_folder

        running.progress(0, 2, "loading the model", fresh=True)
        model = self.exact_model(lab)
        mask = self.mask_of(model)
        require_streaming(model, str(sizes_of_mask(mask)))
        running.progress(1, 2, "writing and comparing", fresh=True)
        command = self.recorded_command()
        record = write_duo_folder(model, mask, self.out, command=command, tick=running.tick)
        running.progress(2, 2, "done", fresh=True)
        outcome = DuoOutcome(
            form=record["form"],
            folder=str(self.out),
            groups=record["groups"],
            streaming=record["streaming"],
            sparsity=record["sparsity"],
            sink_size=record["sink_size"],
            recent_size=record["recent_size"],
            chosen_under=record["chosen_under"],
            max_logit_difference=record["max_logit_difference"],
            untouched_difference=record["untouched_difference"],
            readers=record["readers"],
        )
        remark = remark_on(mask)
        if remark:
            outcome["note"] = remark
        return outcome

    def _steps(self, task: Task | None) -> list[Step]:
        """The steps of the job, in the order in which they come.

        Args:
            task: Whose accuracy may be measured; None for none.
        """
        from headlab.shrink import COMPARING, COMPARING_ONNX, READING_BACK, WRITING  # import torch

        steps = [Step(LOADING, UNITS_OF_FILES)]
        if self.cuts_vocabulary:
            steps.append(Step(CUTTING, UNITS_OF_FILES))
        row_count = DECODER_ROWS if self.form == "gguf" else ROWS
        batches = -(-self.compared_count // row_count)
        steps.append(Step(REMOVING, self.compared_count if self._gives_means else 1, batches))
        if self.form in SHRUNK_FORMS:
            steps.append(self.shrink_job().timing_step())
        steps += [Step(WRITING, UNITS_OF_FILES), Step(READING_BACK, UNITS_OF_FILES)]
        inputs = 2  # examples, and as much random input
        compared = inputs * MODELS_COMPARED * self.compared_count
        steps.append(Step(COMPARING, compared, inputs * batches))
        if self.form == "onnx":
            steps.append(Step(COMPARING_ONNX, compared // inputs))
        if task is not None and self._measures_accuracy and self._task_name is not None:
            answered = MODELS_EVALUATED * self._test_examples(self._task_name)
            steps.append(Step(MEASURING, max(answered, 1), max(answered // ROWS, 1)))
        return steps

    def _smaller_vocabulary(
        self, lab: Lab, model: Model, tick: Tick
    ) -> tuple[SmallerVocabulary, Task]:
        """The vocabulary that is written, cut to the languages, and texts in them."""
        name = self._task_name or str(SUBJECT_FLAGS["task"].default)
        label_map = None if self._task_name is None else self.label_map
        languages = require_languages(self.languages)
        return smaller_vocabulary(model, lab.task(name, label_map), languages, self.texts, tick)

    def _write_folder(
        self,
        model: Model,
        compared_on: ComparedOn,
        progress: StepProgress,
        vocabulary: SmallerVocabulary | None,
    ) -> ExportOutcome:
        """Silence the heads in the weights, and write a folder of the original's class.

        Args:
            model: The original.
            compared_on: Whose examples are compared, and the heads' means taken on.
            progress: Told of steps and batches.
            vocabulary: That it gets; None for the original's.
        """
        from headlab.shrink import (  # these import torch
            check_silenceable,
            silence_model,
            with_vocabulary,
            write_shrunk,
        )

        progress.begin(REMOVING)
        mask = self.mask_of(model)
        check_silenceable(model, mask)
        means = means_of = None
        if mask.of_means:
            means, means_of = self._head_means(model, compared_on.task, progress.tick)
        silenced = silence_model(model, mask, means)
        if vocabulary is not None:
            silenced = with_vocabulary(silenced, vocabulary)
        written_folder = write_shrunk(
            model,
            silenced,
            self.out,
            self.examples_of(model, compared_on, rows=ROWS),
            compared_on=self.record_of(compared_on),
            means_of=means_of,
            dtype=self.dtype,
            command=self.recorded_command(),
            tick=progress.tick,
            begin_step=progress.begin,
        )
        return outcome_of(written_folder)

    def _head_means(
        self, model: Model, task: Task | None, tick: Tick
    ) -> tuple[torch.Tensor, MeansOf]:
        """Mean output of every head, and the examples it was taken on.

        Equally many dev examples of every language, the first ones: all of one language are the
        examples whose means `headlab evaluate` takes.
        """
        from headlab.hooks import head_means  # these import torch
        from headlab.studies.savings_run import first_batches

        if task is None:
            raise self._means_need_task()
        batches, count_by_language = first_batches(model, task, rows=ROWS, size=self.compared_count)
        means_of: MeansOf = {"task": task.name, "split": "dev", "examples": count_by_language}
        return head_means(model, with_ticks(batches, tick)), means_of

    def _write_gguf(
        self,
        model: Model,
        compared_on: ComparedOn,
        progress: StepProgress,
        vocabulary: SmallerVocabulary | None,
    ) -> ExportOutcome:
        """Remove the heads, and write a file for llama.cpp.

        Args:
            model: The original.
            compared_on: Whose examples are compared.
            progress: Told of steps and batches.
            vocabulary: That it gets; None for the original's.
        """
        from headlab.shrink import (  # these import torch
            EXACT_TYPE,
            GGUF_FILE,
            groups_removed,
            write_gguf_folder,
        )

        progress.begin(REMOVING)
        written_folder, shrunk = write_gguf_folder(
            model,
            self.mask_of(model),
            self.out,
            self.examples_of(model, compared_on, rows=DECODER_ROWS),
            compared_on=self.record_of(compared_on),
            number_type=self.dtype or EXACT_TYPE,
            command=self.recorded_command(),
            vocabulary=vocabulary,
            tick=progress.tick,
            begin_step=progress.begin,
        )
        outcome = outcome_of(written_folder)
        outcome["file"] = str(self.out / GGUF_FILE)
        outcome["groups_removed"] = groups_removed(model, shrunk)
        return outcome

    def forecast(self, known: ForecastBasis) -> Estimate:
        """Cost of the comparisons, at the pace of plain forward passes."""
        pace, pace_basis = known.measured_pace()
        if self.form == DUO:
            reason = (f"{DUO_PASSES} random texts", pace_basis)
            return estimate([Part(DUO_PASSES, pace, reason)], self.timing())
        parts = [self.comparison_part(known, onnx=self.form == "onnx")]
        if self.form in SHRUNK_FORMS:
            parts.append(self.shrink_job().timing_part(known))
        if self._gives_means:
            parts.append(Part(self.compared_count, pace, ("the heads' mean outputs", pace_basis)))
        if self._measures_accuracy and self._task_name is not None:
            examples = self._test_examples(self._task_name)
            if examples:
                reason = (f"both models on {examples} examples of test", pace_basis)
                parts.append(Part(MODELS_EVALUATED * examples, pace, reason))
        return estimate(parts, self.timing())

    def _test_examples(self, task_name: str) -> int:
        """How many test examples the accuracy is measured on, in all languages."""
        from headlab.shrink import held_out_examples  # imports torch

        evaluated_task = restricted_to(task_at(task_name), require_languages(self.languages))
        if evaluated_task is None or not evaluated_task.has_named_answers:
            return 0
        return sum(
            len(held_out_examples(evaluated_task, language, self.test_size))
            for language in evaluated_task.languages
        )

    # Its command, and back.

    @classmethod
    def flags(cls) -> tuple[Flag, ...]:
        """The mask, the form, the folder, the model, the examples, the settings."""
        settings = {flag.key: flag for flag in cls.setting_flags()}
        return (
            EXPORT_MASK_FLAG,
            FORM_FLAG,
            OUT_FLAG,
            *cls.example_flags(),
            settings["vocabulary"],
            TEXTS_FLAG,
            settings["test_size"],
            settings["size"],
            settings["repeats"],
            settings["seed"],
            DEVICE,
            settings["dtype"],
        )

    @classmethod
    def from_flags(cls, values: Mapping[str, FlagValue]) -> Self:
        """The job of a command. Raises HeadlabError for what cannot be read of it; no file is."""
        fields = cls.fields_of_flags(values)
        fields["form"] = str(values["form"])
        texts = values.get("texts")
        fields["texts"] = None if texts is None else Path(str(texts))
        return cls.model_construct(**fields)

    def commands(self, context: CommandContext = NO_CONTEXT) -> list[list[str]]:
        """The command."""
        texts = () if self.texts is None else (TEXTS_FLAG.name, str(self.texts))
        return [[*self.words_of_fields(context), *texts, FORM_FLAG.name, self.form]]


def with_ticks(batches: Batches, tick: Tick) -> Iterator[Mapping[str, torch.Tensor]]:
    """The batches, with a tick before each."""
    for batch in batches:
        tick()
        yield batch


def outcome_of(written_folder: WrittenModel) -> ExportOutcome:
    """What was written, as people and programs read it."""
    record = written_folder.record
    outcome: ExportOutcome = {
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
        "usual_difference": record["usual_difference"],
        "is_rounded": record["is_rounded"],
        "tolerance": record["tolerance"],
        "equal_answers": record["equal_answers"],
        "examples": record["examples"],
        "random_input": record["random_input"],
        "means_of": record["means_of"],
        "computed_in": record["computed_in"],
        "fingerprint": written_folder.fingerprint,
    }
    if "players" in record:
        outcome["players"] = record["players"]
    return outcome
