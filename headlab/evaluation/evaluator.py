"""Evaluates a model's answers per example under any mask; everything else builds on this."""

from __future__ import annotations

import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.stats  # noqa: F401 - estimates use it; loaded here, no run's time includes it
import torch
from cachetools import LRUCache

from headlab.core import (
    COUNTERFACTUAL,
    RESAMPLE,
    Bools,
    Comparison,
    Evaluation,
    Floats,
    HeadlabError,
    Ints,
    Omissions,
    Rows,
    ValueFunction,
    is_of_other_texts,
    is_streaming,
    one_thread,
    read_ablation,
    require_own_output,
    require_type,
    run_halving,
    run_in_parallel,
    value_function_of,
    value_of_answers,
)
from headlab.evaluation.encoding import NO_TARGET, Sized
from headlab.evaluation.inputs import label_order, read_inputs
from headlab.evaluation.stand_ins import (
    Contrasts,
    DonorTexts,
    StandIn,
    contrasts_of,
    donors_by,
    places_in,
    require_donors,
    require_streaming,
    share_beyond,
)
from headlab.hooks import (
    MODEL_WORDS,
    ActiveGates,
    LayerStates,
    Model,
    as_gate_tensor,
    head_means,
    not_finite_error,
)
from headlab.masks import Mask, RecordedAccuracy, full_mask
from headlab.stats import paired_bootstrap, share_interval
from headlab.tasks import (
    CHANCE_LEVEL,
    DEV_SIZE,
    EqualTexts,
    Example,
    Split,
    Task,
    answer_names,
    equal_texts,
    is_below_chance,
)

# Size of a batch of examples, and what is cached of its last pass.

# Tokens per batch on a CPU: enough to fill the matrix units, few enough to stay in its caches.
CPU_TOKENS = 1024
GPU_SHARE = 0.3
GPU_TOKENS = 1 << 18


@dataclass(frozen=True)
class Dataset:
    """The examples of a language that a model is given: all that the spec of a result needs.

    Attributes:
        model: The model.
        task: Their task.
        language: One of the task's.
        split: Of the task.
        examples: The examples of it that are used, not tokenised.
    """

    model: Model
    task: Task
    language: str
    split: Split
    examples: tuple[Example, ...]


@dataclass
class Batch:
    """Examples of similar length, and what is cached of their last pass.

    Attributes:
        rows: Indices of the examples in the evaluator, int [row].
        inputs: Model inputs by name, [row, ...].
        states: The layers' inputs in the last pass.
        gates: The gates of the last pass, [layer, head].
        cache_lock: Held by the pass that writes to the cache; a concurrent pass does not use the
            cache.
    """

    rows: Ints
    inputs: Mapping[str, torch.Tensor]
    states: LayerStates | None = None
    gates: npt.NDArray[np.generic] | None = None
    cache_lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def halves(self) -> tuple[Batch, ...]:
        """Two halves of the batch, with its padding and no cache.

        Nothing if it has only one row.
        """
        middle = len(self.rows) // 2
        if not middle:
            return ()
        halves = []
        for half in (slice(0, middle), slice(middle, None)):
            inputs = {name: tensor[half] for name, tensor in self.inputs.items()}
            halves.append(Batch(self.rows[half], inputs))
        return tuple(halves)


def token_budget(model: Model) -> int:
    """Maximum number of tokens per batch, padding included.

    On a GPU, it is as many as fit in a share of its free memory; of several GPUs, that with the
    least free memory counts. A token needs memory for its input to every layer (stored for walks)
    and about 16 hidden widths of workspace. The number is then a power of two, so that devices of
    one kind cut the same batches although their free memory differs slightly.
    """
    devices = {model.device} | {weight.device for weight in model.module.parameters()}
    gpus = [device for device in devices if device.type == "cuda"]
    if not gpus:
        return CPU_TOKENS
    hidden_width = width_of(model)
    item_bytes = torch.finfo(model.module.dtype).bits // 8
    free_bytes = min(torch.cuda.mem_get_info(gpu)[0] for gpu in gpus)
    token_bytes = item_bytes * hidden_width * (model.depth + 17)
    fitting_tokens = int(GPU_SHARE * free_bytes / token_bytes)
    power_of_two = 1 << max(fitting_tokens, 1).bit_length() - 1
    return max(CPU_TOKENS, min(GPU_TOKENS, power_of_two))


def width_of(model: Model) -> int:
    """Width of a model's hidden states; 1024 if its config has none."""
    config = model.module.config.get_text_config()
    return int(getattr(config, "hidden_size", None) or getattr(config, "d_model", None) or 1024)


def length_sorted_batches(
    inputs: Sized, rows: Ints, max_tokens: int, max_rows: int | None = None
) -> Iterator[Batch]:
    """Batches of the given rows, sorted by length, each padded to its longest row.

    Args:
        inputs: All rows.
        rows: Indices of the given rows, int [row].
        max_tokens: Maximum number of tokens of a batch, padding included; a longer row is a batch
            of its own.
        max_rows: Maximum number of rows of a batch; None for no limit.
    """
    lengths = inputs.lengths
    batch_rows: list[int] = []
    for row in rows[np.argsort(lengths[rows], kind="stable")].tolist():
        padded_tokens = (len(batch_rows) + 1) * int(lengths[row])
        is_full = len(batch_rows) == max_rows or padded_tokens > max_tokens
        if batch_rows and is_full:
            yield Batch(np.array(batch_rows), inputs.tensors(np.array(batch_rows)))
            batch_rows = []
        batch_rows.append(row)
    if batch_rows:
        yield Batch(np.array(batch_rows), inputs.tensors(np.array(batch_rows)))


# Examples per batch at most, except on a GPU, where the number of tokens alone decides.
BATCH = 64
# Examples of the first chunks. There is a first estimate after 16 examples, a better one after 256,
# then one on all: five people who click at once get the first within a second on two cores. Pages
# show no difference before 128 examples, so a larger first chunk would tell no more.
CHUNKS = (16, 240)
# For long texts the first estimate uses fewer examples: at least two, at most so many tokens in
# all.
FIRST_TOKENS = 512
# A batch runs on one core. Batches of the first chunk have this many times fewer tokens, so that
# there are several and more cores are busy.
FIRST_DIVISOR = 4
# Default for the memory that cached layer inputs may take.
STATE_BYTES = 192 << 20
# Number of masks whose evaluations are kept.
CACHED_EVALUATIONS = 64
# Stands for a prediction while there is none.
NOT_ANSWERED = -1
Tick = Callable[[], None]
T = TypeVar("T")
ComparisonT_co = TypeVar("ComparisonT_co", covariant=True)
Reader = Callable[["Batch", torch.Tensor, torch.Tensor], Sequence[T]]


@dataclass
class Evaluator:
    """Accuracy of any mask on one language of a task, answer by answer.

    There is one answer per example, word or target token.

    Attributes:
        model: The model.
        task: The task.
        language: One of the task's.
        split: Of the task.
        size: Number of examples of the split, 512 of dev by default; None for all.
        batch_size: Maximum number of examples per batch; None suits the device.
        state_bytes: Memory for cached layer inputs, so that the next mask can start at the layer
            that changed.
        tick: Called between batches; may raise to stop.
        examples: The examples that are used.
        forwards: Number of forward passes so far.
        seconds_elsewhere: Seconds of computing on other devices.
    """

    model: Model
    task: Task
    language: str
    split: Split = "dev"
    size: int | None = DEV_SIZE
    batch_size: int | None = None
    state_bytes: int = STATE_BYTES
    tick: Tick = lambda: None
    examples: tuple[Example, ...] = field(init=False)
    forwards: int = field(init=False, default=0)
    seconds_elsewhere: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        require_type("model", self.model, Model, MODEL_WORDS)
        require_type("task", self.task, Task, "a task that headlab.task returns")
        self.examples = self.task.examples(self.language, self.split, self.size)
        self.inputs = read_inputs(self.model, self.task, self.examples, self.language)
        self.lengths = self.inputs.lengths
        self._answer_ends = np.cumsum(self.inputs.units)
        tokens_so_far = np.cumsum(self.lengths[: CHUNKS[0]])
        examples_in_budget = int(np.searchsorted(tokens_so_far, FIRST_TOKENS, side="right"))
        first_chunk = min(CHUNKS[0], max(2, examples_in_budget))
        chunk_ends = accumulate((first_chunk, *CHUNKS[1:]))
        example_count = len(self.examples)
        edges = sorted({min(edge, example_count) for edge in (0, *chunk_ends, example_count)})
        self._chunks: list[list[Batch]] = []
        for start, end in pairwise(edges):
            divisor = FIRST_DIVISOR if start == 0 else 1
            batches = self.batches_by_tokens(np.arange(start, end), divisor)
            self._chunks.append(batches[::-1])  # the longest first, so that all cores end together
        self._evaluations: LRUCache[str, Evaluation] = LRUCache(CACHED_EVALUATIONS)
        self._head_means: torch.Tensor | None = None
        self._donor_texts: dict[str, DonorTexts] = {}  # by ablation; shared by copies
        self._below_chance = ""

    @property
    def dataset(self) -> Dataset:
        """Its examples, without their tokens."""
        return Dataset(self.model, self.task, self.language, self.split, self.examples)

    @property
    def note(self) -> str:
        """What to know beside its figures.

        That is which classes were taken for which labels, what happened to tokens, and whether the
        baseline is below chance.
        """
        label_note = label_order(self.model, self.task).caption if self.task.labels else ""
        return "; ".join(filter(None, (label_note, self.inputs.note, self._below_chance)))

    @cached_property
    def equal_texts(self) -> tuple[EqualTexts, ...]:
        """How many of its examples have a text that another split has too.

        Counted when first asked for.
        """
        return equal_texts(self.task, self.language, self.split, self.examples)

    @property
    def omissions(self) -> Omissions:
        """What of its examples was cut, or has no answer."""
        return self.inputs.omitted.of_first(len(self.examples))

    def omissions_under(self, ablation: str) -> Omissions:
        """The omissions, with the share of positions at which no other text's output is there.

        Args:
            ablation: What stands in the place of a closed player.
        """
        if ablation != RESAMPLE or len(self.examples) < 2:
            return self.omissions
        return replace(self.omissions, beyond_donors=self._share_beyond)

    @cached_property
    def _share_beyond(self) -> float:
        return share_beyond(self.inputs)

    @property
    def weights(self) -> Floats | None:
        """Share of all answers that belong to each example, [example].

        None where all have equally many.
        """
        answer_counts = self.inputs.units
        if (answer_counts == answer_counts[0]).all():
            return None
        return np.asarray(answer_counts / answer_counts.sum())

    def _answer_indices(self, rows: Ints) -> Ints:
        """Indices of some examples' answers among all answers, in the rows' order."""
        ends = self._answer_ends[rows]
        counts = self.inputs.units[rows]
        ranges = [np.arange(end - n, end) for end, n in zip(ends, counts, strict=True)]
        return np.concatenate(ranges)

    @property
    def bytes(self) -> int:
        """Memory used by cached layer inputs, in bytes."""
        total = 0
        for chunk in self._chunks:
            total += sum(batch.states.bytes for batch in chunk if batch.states is not None)
        return total

    def forget_states(self, further_batches: Sequence[Batch] = ()) -> None:
        """Free the cached layer inputs; the next pass starts at the first layer.

        Args:
            further_batches: Finished batches of the call, which may be halves of the evaluator's
                own and are not stored in it yet.
        """
        for chunk in (*self._chunks, further_batches):
            for batch in chunk:
                batch.states = batch.gates = None

    def batches_by_tokens(self, rows: Ints, divisor: int = 1) -> list[Batch]:
        """Batches of the given rows for `answers`, with as many tokens as suit the device.

        Args:
            rows: Indices of examples, int [row].
            divisor: Batches have this many times fewer tokens.
        """
        max_rows = self.batch_size
        if max_rows is None and self.model.device.type != "cuda":
            max_rows = BATCH
        return list(
            length_sorted_batches(self.inputs, rows, token_budget(self.model) // divisor, max_rows)
        )

    def batches(self, rows: Ints, size: int | None = None) -> list[Batch]:
        """Batches of the given rows, sorted by length, each padded to its longest row.

        The number of tokens in a batch is not limited.

        Args:
            rows: Indices of examples, int [row].
            size: Maximum number of rows of a batch; None for the evaluator's own.
        """
        return list(length_sorted_batches(self.inputs, rows, sys.maxsize, size or self._batch_size))

    @property
    def _batch_size(self) -> int:
        """Examples per batch where their tokens are not counted."""
        return self.batch_size or BATCH

    def tensors(self, rows: Ints) -> dict[str, torch.Tensor]:
        """Model inputs of some rows, padded to the longest of them."""
        return self.inputs.tensors(rows)

    def logits(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Scores of the task's labels, in its order, [row, label] or [row, token, label].

        Counts the forward passes.
        """
        logits = self.inputs.logits(inputs)
        self.forwards += len(next(iter(inputs.values())))  # a pass that failed is not counted
        return logits

    def worth(
        self, rows: Ints, value: ValueFunction, inputs: Mapping[str, torch.Tensor] | None = None
    ) -> Floats:
        """Value of the model's answers to some examples, float64 [row].

        It is a share of the value's span.
        """
        if inputs is None:
            inputs = self.tensors(rows)
        return self.worth_of(rows, value, self.logits(inputs))

    def worth_of(self, rows: Ints, value: ValueFunction, logits: torch.Tensor) -> Floats:
        """As `worth`, from given logits.

        Raises:
            HeadlabError: The logits are not finite.
        """
        targets = self.targets(rows, logits)
        not_finite_answers = self._not_finite(logits, targets)
        not_finite_rows = not_finite_answers.reshape(len(not_finite_answers), -1).any(dim=1)
        values = value_of_answers(value, logits, targets).double()
        # Stacked, so that there is one copy to the processor.
        stacked = torch.stack([values, not_finite_rows.double()])
        values_on_host, not_finite_on_host = stacked.cpu().numpy()
        self._refuse_not_finite(rows, not_finite_on_host)
        return np.asarray(values_on_host, dtype=np.float64)

    def targets(self, rows: Ints, logits: torch.Tensor) -> torch.Tensor:
        """Right answers of some examples, int [row] or [row, token].

        There are as many tokens as in the logits of the same rows.
        """
        width = logits.shape[1] if logits.dim() > 2 else 0
        return self.inputs.targets(rows, width)

    def require_finite(self, rows: Ints, logits: torch.Tensor, targets: torch.Tensor) -> None:
        """Raise HeadlabError unless the logits of all answers are finite.

        The error names the first example.

        Otherwise `argmax` would give an answer that looks like any other. A generated token may
        have logits of minus infinity, which rule tokens out.
        """
        not_finite_answers = self._not_finite(logits, targets)
        not_finite_rows = not_finite_answers.reshape(len(not_finite_answers), -1).any(dim=1)
        self._refuse_not_finite(rows, not_finite_rows.cpu().numpy())

    def _not_finite(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Whether the logits of an answer are not finite, bool [row] or [row, token]."""
        with torch.no_grad():
            finite = logits.amax(dim=-1).isfinite()
            if self.task.labels:
                finite &= logits.amin(dim=-1).isfinite()
            return ~finite & (targets != NO_TARGET)

    def _refuse_not_finite(self, rows: Ints, is_not_finite: npt.NDArray[np.generic]) -> None:
        """Raise HeadlabError, naming the first example, if the logits of any row are not finite.

        Args:
            rows: Indices of examples, int [row].
            is_not_finite: Whether a row's logits are not finite, [row].
        """
        if not is_not_finite.any():
            return
        example = self.examples[rows[int(is_not_finite.argmax())]]
        example_name = f"example {example.id} ({self.language}, {self.split})"
        raise not_finite_error(
            self.model,
            f"outputs that are not finite for {example_name}",
            code="model.answers_not_finite",
        )

    def stream(self, mask: Mask | None = None, *, ablation: str = "zero") -> Iterator[Evaluation]:
        """Evaluations on growing random subsets of the examples; the last one is `done`.

        Args:
            mask: Of the model's heads; None for the unpruned model.
            ablation: What stands in the place of a removed head, one of `headlab.core.ABLATIONS`.

        Raises:
            HeadlabError: The mask is another model's.
        """
        if mask is None:
            mask = full_mask(self.model.grid)
        mask.check(self.model.grid, self.model.fingerprint)
        evaluation_key = _evaluation_key(mask, ablation)
        gates = self.model.grid.gates(mask.kept)
        predictions = np.full(len(self.inputs.answers), NOT_ANSWERED, dtype=np.int64)
        examples_seen = 0
        for chunk in self._chunks:
            # There may be one of an earlier stream, or of one that has overtaken this one.
            cached_evaluation = self._evaluations.get(evaluation_key)
            if cached_evaluation is not None:
                yield cached_evaluation
                return
            fitted_batches = []
            for batch, batch_predictions in self.answers(chunk, gates, ablation):
                predictions[self._answer_indices(batch.rows)] = batch_predictions
                fitted_batches.append(batch)
            chunk[:] = fitted_batches  # batches that did not fit in memory stay cut
            examples_seen += sum(len(batch.rows) for batch in chunk)
            predictions_so_far = predictions[: self._answer_ends[examples_seen - 1]].copy()
            if not len(predictions_so_far):
                continue  # none of these sentences has a word with an answer, so there is no share
            evaluation = self._evaluation_of(predictions_so_far, examples_seen, ablation)
            if evaluation.is_complete:
                self._evaluations[evaluation_key] = evaluation
                if mask.kept.all():
                    self._note_chance(evaluation)
            yield evaluation

    def _evaluation_of(self, predictions: Ints, examples_seen: int, ablation: str) -> Evaluation:
        """The evaluation of the model's answers to the first examples, int [answer]."""
        answer_counts = self.inputs.units[:examples_seen]
        ids, groups = answer_names(self.examples[:examples_seen], answer_counts)
        right_answers = self.inputs.answers
        omissions = self.inputs.omitted.of_first(examples_seen)
        beyond_donors = self.omissions_under(ablation).beyond_donors
        return Evaluation(
            self.language,
            predictions == right_answers[: len(predictions)],
            predictions,
            ids,
            groups,
            len(right_answers),
            replace(omissions, beyond_donors=beyond_donors),
        )

    @property
    def has_baseline(self) -> bool:
        """Whether the baseline is cached, so that `stream` gives it at once."""
        return _evaluation_key(full_mask(self.model.grid)) in self._evaluations

    def set_baseline(self, evaluation: Evaluation) -> None:
        """Cache a baseline on these examples that was computed elsewhere.

        It may be of an earlier process.
        """
        baseline = self.set_evaluation(full_mask(self.model.grid), evaluation)
        self._note_chance(baseline)

    def has_evaluation(self, mask: Mask, ablation: str = "zero") -> bool:
        """Whether the evaluation of a mask is cached, so that `stream` gives it at once."""
        return _evaluation_key(mask, ablation) in self._evaluations

    def set_evaluation(
        self, mask: Mask, evaluation: Evaluation, ablation: str = "zero"
    ) -> Evaluation:
        """Cache the evaluation of a mask on these examples that was computed elsewhere.

        It may be of an earlier process.

        Returns:
            What is cached, with these examples' omissions.
        """
        known_evaluation = replace(evaluation, omissions=self.omissions_under(ablation))
        self._evaluations[_evaluation_key(mask, ablation)] = known_evaluation
        return known_evaluation

    def _note_chance(self, baseline: Evaluation) -> None:
        """Warn if the untouched model is significantly worse than guessing."""
        right_answers = int(baseline.correct.sum())
        label_count = len(self.task.labels)
        if is_below_chance(right_answers, baseline.n, label_count):
            self._below_chance = (
                f"{self.model.name} gives {right_answers} of {baseline.n} right answers on "
                f"{self.task.name} in {self.language} ({self.split}), significantly fewer than "
                f"guessing one of {label_count} labels (p at most {CHANCE_LEVEL:g}); its classes may be in "
                "another order than their names say: correct that with a label map"
            )
            warnings.warn(self._below_chance, stacklevel=2)

    def answers(
        self, batches: Iterable[Batch], gates: Bools, ablation: str
    ) -> Iterator[tuple[Batch, Ints]]:
        """Answers to batches run in parallel, int [answer] each, row by row.

        Each batch runs on one thread, so no answer depends on the number of cores. Batches that do
        not fit in memory are cut.

        Args:
            batches: Of the evaluator's examples.
            gates: Which heads are on, bool [layer, head].
            ablation: What stands in the place of a removed head.
        """
        fitted_batches: list[Batch] = []
        self.prepare(ablation)

        def run(batch: Batch, _: Tick) -> tuple[Ints, int]:
            lane = copy(self)
            lane.forwards = 0
            try:
                return lane._predict(batch, gates, ablation), lane.forwards
            except (RuntimeError, MemoryError):
                self.forget_states(fitted_batches)  # their memory may be what is missing
                raise

        for batch, (predictions, forwards) in run_in_parallel(
            batches, run, model=self.model, tick=self.tick
        ):
            self.forwards += forwards
            fitted_batches.append(batch)
            yield batch, predictions

    def _predict(self, batch: Batch, gates: Bools, ablation: str) -> Ints:
        """Answers to a batch.

        The pass starts at the first layer whose gates have changed since the batch's last one.
        """
        has_room = batch.states is not None or self.bytes < self.state_bytes
        can_resume = has_room and self.model.resumable and ablation == "zero"
        # The cache has one writer: a request served between this one's batches may use the same
        # batch.
        if not can_resume or not batch.cache_lock.acquire(blocking=False):
            gate_tensor = as_gate_tensor(self.model, gates)
            return self._pass(batch, self.stand_in(ablation, batch.rows).active(gate_tensor))
        try:
            states = batch.states or LayerStates(
                self.model.depth, first_token=self.model.first_token
            )
            start_layers = None
            if batch.gates is not None:
                changed_layers = self.model.layer_of_row[(batch.gates != gates).any(axis=1)]
                # Where no layer has changed, the pass starts behind the last one.
                first_layer = int(changed_layers.min(initial=self.model.depth))
                start_layers = torch.full((len(batch.rows),), first_layer)
            states.begin(start_layers)
            batch.gates = None  # a pass cut short must not be resumed from
            active = ActiveGates(gates=as_gate_tensor(self.model, gates), states=states)
            predictions = self._pass(batch, active)
            # The states may have been freed meanwhile, or other lanes may have used the memory.
            if batch.states is not None or self.bytes < self.state_bytes:
                batch.states = states
                batch.gates = gates
        finally:
            batch.cache_lock.release()
        return predictions

    def _pass(self, batch: Batch, active: ActiveGates) -> Ints:
        with torch.inference_mode(), self.model.active(active):
            logits = self.logits(batch.inputs)
            targets = self.targets(batch.rows, logits)
            is_not_finite = self._not_finite(logits, targets)
            # Stacked, so that there is one copy to the processor.
            stacked = torch.stack([logits.argmax(dim=-1), targets, is_not_finite.long()])
            answers, right_answers, not_finite_answers = stacked.cpu().numpy()
        not_finite_rows = not_finite_answers.reshape(len(batch.rows), -1).any(axis=1)
        self._refuse_not_finite(batch.rows, not_finite_rows)
        return np.asarray(answers[right_answers != NO_TARGET], dtype=np.int64)

    def each(self, rows: Ints, mask: Mask, ablation: str, read: Reader[T]) -> list[T]:
        """What a function makes of the model's outputs for some examples under a mask, row by row.

        Args:
            rows: Indices of the examples, int [row].
            mask: Of the model's heads.
            ablation: What stands in the place of a removed head.
            read: Given a batch, its logits and its right answers, returns one item for each row.

        Raises:
            HeadlabError: The mask is another model's, or outputs are not finite.
        """
        gates = as_gate_tensor(self.model, mask)
        self.prepare(ablation)

        def run(batch: Batch, _: Tick) -> Sequence[T]:
            active = self.stand_in(ablation, batch.rows).active(gates)
            with torch.inference_mode(), self.model.active(active):
                logits = self.inputs.logits(batch.inputs)
            targets = self.targets(batch.rows, logits)
            self.require_finite(batch.rows, logits, targets)
            return read(batch, logits, targets)

        results_by_row: dict[int, T] = {}
        for batch, batch_results in run_in_parallel(
            self.batches_by_tokens(rows), run, model=self.model, tick=self.tick
        ):
            self.forwards += len(batch.rows)
            results_by_row |= zip(batch.rows.tolist(), batch_results, strict=True)
        return [results_by_row[row] for row in rows.tolist()]

    def prepare(self, ablation: str) -> None:
        """Compute what stands in closed players' places, once, before batches that need it start.

        It runs batches of its own.

        Raises:
            HeadlabError: The ablation is unknown, or there is nothing to put in.
        """
        if is_streaming(ablation):
            require_streaming(self.model, ablation)
            return
        if not is_of_other_texts(ablation):
            with one_thread(self.model.device):
                self.fill(ablation)
            return
        self.donor_texts(ablation).prepare(self.tick)

    def stand_in(self, ablation: str, rows: Ints, donors: Ints | None = None) -> StandIn:
        """What stands in closed players' places in one batch.

        Args:
            ablation: One of `headlab.core.ABLATIONS`.
            rows: The example of each row, int [row].
            donors: For resample, the example whose outputs each row gets, int [row]; None for the
                fixed ones of evaluations, one for each example.
        """
        if is_streaming(ablation):
            return StandIn(streaming=require_streaming(self.model, ablation))
        if not is_of_other_texts(ablation):
            return StandIn(fill=self.fill(ablation))
        texts = donors_by(ablation, rows, donors, len(self.examples))
        is_own = texts == rows
        if ablation == COUNTERFACTUAL:
            is_own = self._contrasts.is_own[rows]
        donor_texts = self.donor_texts(ablation)
        places = places_in(self.inputs, rows, donor_texts.inputs, texts)
        return StandIn(donors=donor_texts.donors(texts, is_own, places))

    @cached_property
    def _contrasts(self) -> Contrasts:
        return contrasts_of(self.model, self.task, self.language, self.examples, self.inputs)

    def donor_texts(self, ablation: str) -> DonorTexts:
        """The texts whose outputs stand in closed players' places.

        Raises:
            HeadlabError: There is only one example, or examples have no counterfactual that fits.
        """
        if ablation not in self._donor_texts:
            inputs = self.inputs
            if ablation == COUNTERFACTUAL:
                inputs = self._contrasts.inputs
            else:
                require_donors(self.task, self.language, self.examples)
            self._donor_texts[ablation] = DonorTexts(self.model, inputs, token_budget(self.model))
        return self._donor_texts[ablation]

    def fill(self, ablation: str) -> torch.Tensor | None:
        """Output of removed heads under an ablation, computed once.

        Returns:
            None for "zero"; for "mean" the heads' mean output over the language's dev examples,
            whichever split is evaluated, float64 [layer, head, head_dim].

        Raises:
            HeadlabError: The ablation is unknown, or puts in outputs on other texts (`stand_in`).
        """
        if ablation == "zero":
            return None
        require_own_output(read_ablation(ablation), "this works")
        self.model.require_ablation(ablation)
        if self._head_means is None:
            dev_examples = self.task.examples(self.language, "dev", DEV_SIZE)
            inputs = read_inputs(self.model, self.task, dev_examples, self.language)
            batches = (inputs.tensors(rows) for rows in self._row_parts(len(dev_examples)))
            self._head_means = head_means(self.model, batches)
        return self._head_means

    def evaluate(self, mask: Mask | None = None, *, ablation: str = "zero") -> Evaluation:
        """Evaluation of a mask (None: the unpruned model) on all examples."""
        return deque(self.stream(mask, ablation=ablation), maxlen=1)[0]

    def correct(self, gates: Bools, rows: Ints, *, ablation: str = "zero") -> Bools:
        """Whether all answers are right, for pairs of coalition and example, bool [row].

        Args:
            gates: The coalitions, bool [row, layer, head].
            rows: Indices of the examples, int [row].
            ablation: What stands in the place of a removed head.
        """
        is_right = np.zeros(len(rows), dtype=bool)
        self.prepare(ablation)
        by_length = np.argsort(self.lengths[rows], kind="stable")

        def run(part: Rows) -> None:
            example_rows = rows[part.rows]
            gate_tensor = as_gate_tensor(self.model, gates[part.rows])
            active = self.stand_in(ablation, example_rows).active(gate_tensor)
            with torch.inference_mode(), self.model.active(active):
                is_right[part.rows] = self.worth(example_rows, value_function_of("accuracy")) == 1
            self.tick()

        parts = (Rows(by_length[part]) for part in self._row_parts(len(rows)))
        run_halving(parts, run)
        return is_right

    def _row_parts(self, count: int) -> list[Ints]:
        """The numbers from 0 on, as many as there are rows, in parts of a batch each."""
        size = self._batch_size
        return np.split(np.arange(count), range(size, count, size))


def _evaluation_key(mask: Mask, ablation: str = "zero") -> str:
    """The name under which the evaluation of a mask is cached."""
    return f"{mask.digest}:{read_ablation(ablation)}"


class ComparisonType(Protocol[ComparisonT_co]):
    """A type of records with the fields of a `Comparison`, by which one is made."""

    def __call__(
        self,
        *,
        language: str,
        n: int,
        total: int,
        accuracy: float,
        baseline: float,
        difference: float,
        low: float,
        high: float,
        p: float,
        flipped_right: int,
        flipped_wrong: int,
        omissions: Omissions | None,
    ) -> ComparisonT_co:
        """A record of these fields."""


def compare(before: Evaluation, after: Evaluation, seed: int = 0) -> Comparison:
    """Comparison of a masked model with the unpruned one.

    It is paired over the answers in both evaluations.

    Args:
        before: Of the unpruned model.
        after: Of the masked model.
        seed: Of the bootstrap.

    Raises:
        HeadlabError: If the evaluations are of different examples.
    """
    return compare_as(Comparison, before, after, seed)


def compare_as(
    record_type: ComparisonType[ComparisonT_co],
    before: Evaluation,
    after: Evaluation,
    seed: int = 0,
) -> ComparisonT_co:
    """The same as a record of another type, such as the one that the worker sends.

    Args:
        record_type: Its type.
        before: As in `compare`, like `after`, `seed` and what is raised.
        after: Of the masked model.
        seed: Of the bootstrap.
    """
    n = min(before.n, after.n)
    if before.ids[:n] != after.ids[:n]:
        raise HeadlabError(
            "the two evaluations are of different examples; compare runs on the same language, split and size",
            code="evaluation.other_examples",
        )
    right_before = before.correct[:n]
    right_after = after.correct[:n]
    difference = paired_bootstrap(
        right_before, right_after, before.groups[:n], np.random.default_rng(seed)
    )
    return record_type(
        language=after.language,
        n=n,
        total=after.total,
        accuracy=float(right_after.mean()),
        baseline=float(right_before.mean()),
        difference=difference.difference,
        low=difference.low,
        high=difference.high,
        p=difference.p,
        flipped_right=int((right_after & ~right_before).sum()),
        flipped_wrong=int((right_before & ~right_after).sum()),
        omissions=after.omissions or before.omissions,
    )


def recorded_accuracy(before: Evaluation, after: Evaluation, seed: int = 0) -> RecordedAccuracy:
    """A comparison as mask files and outcomes of jobs have it, with the interval of the accuracy.

    Args:
        before: As in `compare`, like `after` and what is raised.
        after: Of the masked model, or of one that was made of it.
        seed: Of the bootstraps.
    """
    comparison = compare(before, after, seed)
    accuracy_low, accuracy_high = accuracy_interval(after, seed)
    return {
        "accuracy": comparison.accuracy,
        "n": comparison.n,
        "accuracy_low": accuracy_low,
        "accuracy_high": accuracy_high,
        "baseline": comparison.baseline,
        "difference": comparison.difference,
        "low": comparison.low,
        "high": comparison.high,
        "p": comparison.p,
        "flipped_right": comparison.flipped_right,
        "flipped_wrong": comparison.flipped_wrong,
    }


def accuracy_interval(evaluation: Evaluation, seed: int = 0) -> tuple[float, float]:
    """95 % interval for an accuracy, by resampling groups of examples."""
    return share_interval(evaluation.correct, evaluation.groups, np.random.default_rng(seed))
