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
import torch
from cachetools import LRUCache

from headlab.encoding import IGNORED, Sized
from headlab.errors import HeadlabError, require_type
from headlab.hooks.model import MODEL, Model, as_gates, gated_here, head_means, not_finite
from headlab.hooks.state import Active, LayerStates
from headlab.inputs import label_order, read
from headlab.labels import LEVEL, below_chance
from headlab.masks.mask import Mask, full_mask
from headlab.parallel import Rows, halving, one_thread, spread
from headlab.records import Bools, Comparison, Evaluation, Floats, Ints, Omissions
from headlab.stats import paired_bootstrap, share_interval
from headlab.tasks.base import DEV_SIZE, Example, Split, Task, answer_names
from headlab.tasks.equal_texts import EqualTexts, equal_texts
from headlab.value_functions import Value, value_of, worth

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
    """Examples of similar length: their rows in the evaluator, their tensors, and what is cached of the last pass.

    held: by the pass that writes to the cache; a concurrent pass does not use the cache.
    """

    rows: Ints
    inputs: Mapping[str, torch.Tensor]
    states: LayerStates | None = None
    gates: npt.NDArray[np.generic] | None = None
    held: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def cut(self) -> tuple[Batch, ...]:
        """Two halves of the batch, with its padding and no cache; nothing if it has only one row."""
        middle = len(self.rows) // 2
        parts = (slice(0, middle), slice(middle, None)) if middle else ()
        return tuple(
            Batch(self.rows[part], {k: t[part] for k, t in self.inputs.items()}) for part in parts
        )


def token_budget(model: Model) -> int:
    """Maximum number of tokens per batch, padding included: on a GPU, as many as fit in a share of its free memory.

    Of several GPUs, that with the least free memory counts.  A token needs memory for its input to every layer (stored
    for walks) and about 16 hidden widths of workspace. On a GPU a power of two, so that devices of one kind cut the
    same batches although their free memory differs slightly.
    """
    places = {model.device} | {weight.device for weight in model.module.parameters()}
    cards = [place for place in places if place.type == "cuda"]
    if not cards:
        return CPU_TOKENS
    width = width_of(model)
    item = torch.finfo(model.module.dtype).bits // 8
    free = min(torch.cuda.mem_get_info(card)[0] for card in cards)
    fit = int(GPU_SHARE * free / (item * width * (model.grid.layers + 17)))
    return max(CPU_TOKENS, min(GPU_TOKENS, 1 << max(fit, 1).bit_length() - 1))


def width_of(model: Model) -> int:
    """Width of a model's hidden states; 1024 if its config has none."""
    config = model.module.config.get_text_config()
    return int(getattr(config, "hidden_size", None) or getattr(config, "d_model", None) or 1024)


def cut(inputs: Sized, rows: Ints, tokens: int, most: int | None = None) -> Iterator[Batch]:
    """Batches of the given rows, sorted by length, each padded to its longest row.

    tokens: maximum per batch, padding included; a longer row is a batch of its own.  most: maximum rows per batch.
    """
    lengths, part = inputs.lengths, list[int]()
    for row in rows[np.argsort(lengths[rows], kind="stable")].tolist():
        if part and (len(part) == most or (len(part) + 1) * int(lengths[row]) > tokens):
            yield Batch(np.array(part), inputs.tensors(np.array(part)))
            part = []
        part.append(row)
    if part:
        yield Batch(np.array(part), inputs.tensors(np.array(part)))


# Examples per batch at most, except on a GPU, where the number of tokens alone decides.
BATCH = 64
# A first figure after 16 examples, a better one after 256, then one on all: five people who click at once get the first
# within a second on two cores. Pages show no difference before 128 examples, so a larger first one would tell no more.
CHUNKS = (16, 240)
# Of long texts the first figure is on fewer: at least two, and no more than have this many tokens.
FIRST_TOKENS = 512
# A batch runs on one core, so the first chunk is cut smaller and keeps several busy.
FIRST_SHARE = 4
STATE_BYTES = 192 << 20
REMEMBERED = 64
Tick = Callable[[], None]
T = TypeVar("T")
ComparisonT_co = TypeVar("ComparisonT_co", covariant=True)
Reader = Callable[["Batch", torch.Tensor, torch.Tensor], Sequence[T]]


@dataclass
class Evaluator:
    """Accuracy of any mask on one language of a task, answer by answer (one per example, word or target token).

    size: number of examples of the split (512 of dev by default).  batch_size: maximum examples per batch; None suits
    the device.  state_bytes: memory for cached layer inputs,
    so that the next mask can start at the layer that changed.  tick: called between batches; may raise
    to stop.
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
    elsewhere: float = field(init=False, default=0.0)  # seconds of computing on other devices

    def __post_init__(self) -> None:
        require_type("model", self.model, Model, MODEL)
        require_type("task", self.task, Task, "a task that headlab.task returns")
        self.examples = self.task.examples(self.language, self.split, self.size)
        self.inputs = read(self.model, self.task, self.examples, self.language)
        self.lengths = self.inputs.lengths
        self._last = np.cumsum(self.inputs.units)
        short = max(
            2,
            int(np.searchsorted(np.cumsum(self.lengths[: CHUNKS[0]]), FIRST_TOKENS, side="right")),
        )
        chunks = accumulate((min(CHUNKS[0], short), *CHUNKS[1:]))
        edges = sorted({min(edge, len(self.examples)) for edge in (0, *chunks, len(self.examples))})
        self._chunks = [
            self.cut(np.arange(a, b), FIRST_SHARE if a == 0 else 1) for a, b in pairwise(edges)
        ]
        self._evaluations: LRUCache[str, Evaluation] = LRUCache(REMEMBERED)
        self._means: torch.Tensor | None = None
        self._below_chance = ""

    @property
    def dataset(self) -> Dataset:
        """Its examples, without their tokens."""
        return Dataset(self.model, self.task, self.language, self.split, self.examples)

    @property
    def note(self) -> str:
        """What to know beside its figures: of classes taken for labels, of tokens, and figures below chance."""
        of_labels = label_order(self.model, self.task).words if self.task.labels else ""
        return "; ".join(filter(None, (of_labels, self.inputs.note, self._below_chance)))

    @cached_property
    def equal_texts(self) -> tuple[EqualTexts, ...]:
        """How many of its examples have a text that another split has too; counted when first asked for."""
        return equal_texts(self.task, self.language, self.split, self.examples)

    @property
    def omissions(self) -> Omissions:
        """What of its examples was cut, or has no answer."""
        return self.inputs.omitted.first(len(self.examples))

    @property
    def weights(self) -> Floats | None:
        """Share of all answers that belong to each example, [example]; None where all have equally many."""
        units = self.inputs.units
        return None if (units == units[0]).all() else np.asarray(units / units.sum())

    def _places(self, rows: Ints) -> Ints:
        """Indices of some examples' answers among all answers, in the rows' order."""
        ends, units = self._last[rows], self.inputs.units[rows]
        return np.concatenate([np.arange(end - n, end) for end, n in zip(ends, units, strict=True)])

    @property
    def bytes(self) -> int:
        """Memory used by cached layer inputs, in bytes."""
        return sum(b.states.bytes for chunk in self._chunks for b in chunk if b.states is not None)

    def forget_states(self, more: Sequence[Batch] = ()) -> None:
        """Free the cached layer inputs; the next pass starts at the first layer.

        more: batches of the evaluator that are not in its list yet.
        """
        for chunk in (*self._chunks, more):
            for batch in chunk:
                batch.states = batch.gates = None

    def cut(self, rows: Ints, share: int = 1) -> list[Batch]:
        """Batches of the given rows for `answers`, with as many tokens as suit the device, or this share of them."""
        most_rows = self.batch_size
        if most_rows is None and self.model.device.type != "cuda":
            most_rows = BATCH
        return list(cut(self.inputs, rows, token_budget(self.model) // share, most_rows))

    def batches(self, rows: Ints, size: int | None = None) -> list[Batch]:
        """Batches of the given rows, sorted by length, each padded to its longest row."""
        return list(cut(self.inputs, rows, sys.maxsize, size or self._batch_size))

    @property
    def _batch_size(self) -> int:
        """Examples per batch where their tokens are not counted."""
        return self.batch_size or BATCH

    def tensors(self, rows: Ints) -> dict[str, torch.Tensor]:
        """Model inputs of some rows, padded to the longest of them."""
        return self.inputs.tensors(rows)

    def logits(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Scores of the task's labels, [row, label] or [row, token, label], in its order. Counts forward passes."""
        found = self.inputs.logits(inputs)
        self.forwards += len(next(iter(inputs.values())))  # a pass that failed is not counted
        return found

    def worth(
        self, rows: Ints, value: Value, inputs: Mapping[str, torch.Tensor] | None = None
    ) -> Floats:
        """Value of the model's answers to some examples, float64 [row], as a share of the value's span."""
        return self.worth_of(
            rows, value, self.logits(self.tensors(rows) if inputs is None else inputs)
        )

    def worth_of(self, rows: Ints, value: Value, logits: torch.Tensor) -> Floats:
        """As `worth`, from given logits. Raises HeadlabError if they are not finite."""
        targets = self.targets(rows, logits)
        broken = self._broken(logits, targets)
        values = worth(value, logits, targets).double()
        packed = torch.stack(
            [values, broken.reshape(len(broken), -1).any(dim=1).double()]
        )  # one copy to the processor
        values_of_rows, broken_rows = packed.cpu().numpy()
        self._refuse(rows, broken_rows)
        return np.asarray(values_of_rows, dtype=np.float64)

    def targets(self, rows: Ints, logits: torch.Tensor) -> torch.Tensor:
        """Right answers of some examples, int [row] or [row, token], with as many tokens as their logits have."""
        return self.inputs.targets(rows, logits.shape[1] if logits.dim() > 2 else 0)

    def require_finite(self, rows: Ints, logits: torch.Tensor, targets: torch.Tensor) -> None:
        """Raise HeadlabError, naming the first example, unless the logits of all its answers are finite.

        Otherwise `argmax` would give an answer that looks like any other. A generated token may have logits of minus
        infinity, which rule tokens out.
        """
        broken = self._broken(logits, targets)
        self._refuse(rows, broken.reshape(len(broken), -1).any(dim=1).cpu().numpy())

    def _broken(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Whether the logits of an answer are not finite, bool [row] or [row, token]."""
        with torch.no_grad():
            finite = logits.amax(dim=-1).isfinite()
            if self.task.labels:
                finite &= logits.amin(dim=-1).isfinite()
            return ~finite & (targets != IGNORED)

    def _refuse(self, rows: Ints, broken: npt.NDArray[np.generic]) -> None:
        """Raise HeadlabError, naming the first example, if a row is broken, [row]."""
        if not broken.any():
            return
        example = self.examples[rows[int(broken.argmax())]]
        place = f"example {example.id} ({self.language}, {self.split})"
        raise not_finite(
            self.model, f"outputs that are not finite for {place}", code="model.answers_not_finite"
        )

    def stream(self, mask: Mask | None = None, *, ablation: str = "zero") -> Iterator[Evaluation]:
        """Evaluations on growing random subsets of the examples; the last one is `done`.

        mask: None for the unpruned model.  Raises HeadlabError for another model's mask.
        """
        kept = full_mask(self.model.grid) if mask is None else mask
        kept.check(self.model.grid, self.model.fingerprint)
        key = _named(kept, ablation)
        predicted = np.full(len(self.inputs.answers), -1, dtype=np.int64)
        gates, seen = self.model.grid.gates(kept.kept), 0
        for chunk in self._chunks:
            # Of an earlier stream, or of one that has overtaken this one.
            known_evaluation = self._evaluations.get(key)
            if known_evaluation is not None:
                yield known_evaluation
                return
            fitted = []
            for batch, found in self.answers(chunk, gates, ablation):
                predicted[self._places(batch.rows)] = found
                fitted.append(batch)
            chunk[:] = fitted  # batches that did not fit in memory stay cut
            seen += sum(len(batch.rows) for batch in chunk)
            given = predicted[: self._last[seen - 1]].copy()
            if not len(given):
                continue  # none of these sentences has a word with an answer, so there is no share yet
            ids, groups = answer_names(self.examples[:seen], self.inputs.units[:seen])
            right = given == self.inputs.answers[: len(given)]
            omissions = self.inputs.omitted.first(seen)
            evaluation = Evaluation(
                self.language, right, given, ids, groups, len(predicted), omissions
            )
            if evaluation.done:
                self._evaluations[key] = evaluation
                if kept.kept.all():
                    self._note_chance(evaluation)
            yield evaluation

    @property
    def knows(self) -> bool:
        """Whether the untouched model's answers are there, so that `stream` gives them at once."""
        return _named(full_mask(self.model.grid)) in self._evaluations

    def know(self, whole: Evaluation) -> None:
        """Take the untouched model's answers to these examples from elsewhere, as from an earlier process."""
        known = replace(whole, omissions=self.omissions)
        self._evaluations[_named(full_mask(self.model.grid))] = known
        self._note_chance(known)

    def _note_chance(self, whole: Evaluation) -> None:
        """Warn if the untouched model is significantly worse than guessing."""
        right, labels = int(whole.correct.sum()), len(self.task.labels)
        if below_chance(right, whole.n, labels):
            self._below_chance = (
                f"{self.model.name} gives {right} of {whole.n} right answers on {self.task.name} in {self.language} "
                f"({self.split}), significantly fewer than guessing one of {labels} labels (p at most {LEVEL:g}); its "
                "classes may be in another order than their names say: correct that with a label map"
            )
            warnings.warn(self._below_chance, stacklevel=2)

    def answers(
        self, batches: Iterable[Batch], gates: Bools, ablation: str
    ) -> Iterator[tuple[Batch, Ints]]:
        """Answers to batches run in parallel, int [answer] each, row by row; batches that do not fit in memory are cut.

        gates: bool [layer, head].  Each batch runs on one thread, so no answer depends on the number of cores.
        """
        fitted: list[Batch] = []
        with one_thread(self.model.device):
            self.fill(ablation)  # before the batches start, since it runs batches of its own

        def run(batch: Batch, _: Tick) -> tuple[Ints, int]:
            lane = copy(self)
            lane.forwards = 0
            try:
                return lane._predict(batch, gates, ablation), lane.forwards
            except (RuntimeError, MemoryError):
                self.forget_states(fitted)  # their memory may be what is missing
                raise

        for batch, (found, forwards) in spread(batches, run, on=self.model, tick=self.tick):
            self.forwards += forwards
            fitted.append(batch)
            yield batch, found

    def _predict(self, batch: Batch, gates: Bools, ablation: str) -> Ints:
        """Answers to a batch, starting at the first layer whose gates changed since its last pass."""
        room = batch.states is not None or self.bytes < self.state_bytes
        able = room and self.model.resumable and ablation == "zero"
        # The cache has one writer: a request served between this one's batches may use the same batch.
        if not able or not batch.held.acquire(blocking=False):
            return self._pass(
                batch, Active(gates=as_gates(self.model, gates), fill=self.fill(ablation))
            )
        try:
            states = batch.states or LayerStates(self.model.grid.layers)
            start = None
            if batch.gates is not None:
                changed = np.flatnonzero((batch.gates != gates).any(axis=1))
                first = (
                    int(changed[0]) if len(changed) else len(gates)
                )  # the number of layers if none has changed
                start = torch.full((len(batch.rows),), first)
            states.begin(start)
            batch.gates = None  # a pass cut short must not be resumed from
            found = self._pass(batch, Active(gates=as_gates(self.model, gates), states=states))
            # The states may have been freed meanwhile, or other lanes may have used the memory.
            if batch.states is not None or self.bytes < self.state_bytes:
                batch.states, batch.gates = states, gates
        finally:
            batch.held.release()
        return found

    def _pass(self, batch: Batch, active: Active) -> Ints:
        with torch.inference_mode(), self.model.active(active):
            logits = self.logits(batch.inputs)
            targets = self.targets(batch.rows, logits)
            broken = self._broken(logits, targets)
            packed = torch.stack(
                [logits.argmax(dim=-1), targets, broken.long()]
            )  # one copy to the processor
            answers, right_answers, broken_answers = packed.cpu().numpy()
        self._refuse(batch.rows, broken_answers.reshape(len(batch.rows), -1).any(axis=1))
        return np.asarray(answers[right_answers != IGNORED], dtype=np.int64)

    def each(self, rows: Ints, mask: Mask, ablation: str, read: Reader[T]) -> list[T]:
        """What `read` makes of some examples under a mask, row by row, from a batch, its logits and right answers.

        Raises HeadlabError for another model's mask, and for outputs that are not finite.
        """
        gates = as_gates(self.model, mask)
        with one_thread(self.model.device):
            fill = self.fill(ablation)

        def run(batch: Batch, _: Tick) -> Sequence[T]:
            with torch.inference_mode(), self.model.active(Active(gates=gates, fill=fill)):
                logits = self.inputs.logits(batch.inputs)
            targets = self.targets(batch.rows, logits)
            self.require_finite(batch.rows, logits, targets)
            return read(batch, logits, targets)

        found: dict[int, T] = {}
        for batch, part in spread(self.cut(rows), run, on=self.model, tick=self.tick):
            self.forwards += len(batch.rows)
            found |= zip(batch.rows.tolist(), part, strict=True)
        return [found[row] for row in rows.tolist()]

    def fill(self, ablation: str) -> torch.Tensor | None:
        """Output of removed heads: None for "zero"; for "mean" their mean output over the language's dev examples.

        float64 [layer, head, head_dim], computed once.  Raises HeadlabError for an unknown ablation.
        """
        if ablation == "zero":
            return None
        if ablation != "mean":
            raise HeadlabError(
                f'unknown ablation {ablation!r}; use "zero" or "mean"', code="ablation.unknown"
            )
        if self._means is None:
            dev = self.task.examples(
                self.language, "dev", DEV_SIZE
            )  # whichever split is evaluated, also for test
            inputs = read(self.model, self.task, dev, self.language)
            parts = np.split(
                np.arange(len(dev)), range(self._batch_size, len(dev), self._batch_size)
            )
            self._means = head_means(self.model, (inputs.tensors(rows) for rows in parts))
        return self._means

    def evaluate(self, mask: Mask | None = None, *, ablation: str = "zero") -> Evaluation:
        """Evaluation of a mask (None: the unpruned model) on all examples."""
        return deque(self.stream(mask, ablation=ablation), maxlen=1)[0]

    def correct(self, gates: Bools, rows: Ints, *, ablation: str = "zero") -> Bools:
        """Whether all answers are right, for pairs of coalition and example, bool [row].

        gates: bool [row, layer, head].  rows: int [row], indices of examples.
        """
        out = np.zeros(len(rows), dtype=bool)
        fill = self.fill(ablation)
        order = np.argsort(self.lengths[rows], kind="stable")

        def run(part: Rows) -> None:
            asked = rows[part.rows]
            with (
                torch.inference_mode(),
                gated_here(self.model, gates[part.rows], ablation=ablation, means=fill),
            ):
                out[part.rows] = self.worth(asked, value_of("accuracy")) == 1
            self.tick()

        halving(
            map(Rows, np.split(order, range(self._batch_size, len(order), self._batch_size))), run
        )
        return out


def _named(mask: Mask, ablation: str = "zero") -> str:
    return f"{mask.digest}:{ablation}"


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
    """Comparison of a masked model with the unpruned one, paired over the answers in both evaluations.

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


def accuracy_interval(evaluation: Evaluation, seed: int = 0) -> tuple[float, float]:
    """95 % interval for an accuracy, by resampling groups of examples."""
    return share_interval(evaluation.correct, evaluation.groups, np.random.default_rng(seed))
