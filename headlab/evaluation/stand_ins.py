"""What closed players give on other texts: recorded once, or for each batch where memory is short."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from headlab.core import (
    COUNTERFACTUAL,
    Bools,
    HeadlabError,
    Ints,
    Rows,
    StreamingSizes,
    Tick,
    drawn_donors,
    run_halving,
    run_in_parallel,
    streaming_sizes,
)
from headlab.evaluation.context import context_length
from headlab.evaluation.encoding import Choices
from headlab.evaluation.inputs import Inputs, Pairs, TargetChoices, read_inputs
from headlab.hooks import (
    ActiveGates,
    Donors,
    Model,
    OutputsOfBatch,
    TextOutputs,
    recorded,
    recorder_of,
    recording,
    text_outputs,
)
from headlab.hooks.state import Pass
from headlab.tasks import Example, Task

MOST_BYTES = 1 << 30
"""Memory for recorded outputs of all languages and models together."""
FIXED_DRAW = 0
"""Seed of the donors of masks, which are compared example by example: always the same ones."""


class StandIn(NamedTuple):
    """What stands in closed players' places in one batch.

    Attributes:
        fill: The means of heads; None where it is 0 or `donors`.
        donors: Outputs on other texts.
        streaming: What closed heads see of a text.
    """

    fill: torch.Tensor | None = None
    donors: Donors | None = None
    streaming: StreamingSizes | None = None

    def active(self, gates: torch.Tensor, states: Pass | None = None) -> ActiveGates:
        """These under some gates.

        Args:
            gates: Of the players.
            states: How the layers are run.
        """
        return ActiveGates(
            gates=gates,
            fill=self.fill,
            donors=self.donors,
            streaming=self.streaming,
            states=states,
        )

    def taking(self, rows: Ints) -> StandIn:
        """The same for a batch whose rows are copies of these, int [row]."""
        if self.donors is None:
            return self
        return self._replace(donors=self.donors.taking(rows))

    def for_gradients(self) -> StandIn:
        """The same with tensors that gradients may go through."""
        if self.fill is None:
            return self
        return self._replace(fill=self.fill.clone())


# Outputs that are kept, the oldest first; those of an evaluator that is gone go with it.
_kept: list[weakref.ref[DonorTexts]] = []
_kept_lock = threading.Lock()


class DonorTexts:
    """Texts whose outputs stand in closed players' places.

    Args:
        model: The model.
        inputs: The texts.
        max_tokens: Of a batch, padding included.
    """

    def __init__(self, model: Model, inputs: Inputs, max_tokens: int) -> None:
        if isinstance(inputs, TargetChoices):
            raise HeadlabError(
                f"{model.name} reads the choices of an example in passes of their own, so no single output of a "
                "head stands for an example; use ablation zero or mean",
                code="ablation.several_passes",
            )
        self.model = model
        self.inputs = inputs
        self._max_tokens = max_tokens
        self._outputs: TextOutputs | None = None
        self._is_too_large = False
        # A tick between two batches may serve somebody who needs the same outputs.
        self._lock = threading.RLock()

    @property
    def bytes(self) -> int:
        """Memory that kept outputs take."""
        outputs = self._outputs
        return 0 if outputs is None else outputs.bytes

    def prepare(self, tick: Tick) -> None:
        """Record the outputs of all texts, unless they take more memory than there is for them.

        Not to be called from a batch that runs beside others, as it runs batches of its own. A tick
        may call it again.

        Args:
            tick: Called between batches; may raise to stop.
        """
        with self._lock:
            if self._outputs is not None or self._is_too_large:
                return
            all_texts = np.arange(len(self.inputs.lengths))
            if self._bytes_of(all_texts) > MOST_BYTES:
                self._is_too_large = True
                return
            batches = self._recorded(self._parts(all_texts), tick)
            if self.bytes:  # recorded by a tick meanwhile
                return
            self._outputs = text_outputs(batches, len(all_texts))
        _keep(self)

    def forget(self) -> None:
        """Free what is kept; batches that use it keep it to their ends."""
        self._outputs = None

    def donors(self, texts: Ints, is_own: Bools, places: Ints | None = None) -> Donors:
        """The donors of a batch.

        Args:
            texts: The number of each row's donor, int [row].
            is_own: Whether it is the row's own text, bool [row].
            places: As in `Donors`.
        """
        outputs = self._outputs
        if outputs is not None:
            return Donors(outputs, texts, is_own, places)
        used, numbers = np.unique(texts, return_inverse=True)
        if len(used) > 1 and self._bytes_of(used) > MOST_BYTES:
            raise MemoryError("the donors of a batch are too large")  # so it is cut
        batches: list[tuple[Ints, OutputsOfBatch]] = []

        def run(part: Rows) -> None:
            batches.append((part.rows, self._outputs_of(used[part.rows])))

        run_halving(self._parts(used), run)  # of short texts, the donors may be long
        outputs = text_outputs(batches, len(used))
        return Donors(outputs, np.asarray(numbers, np.int64), is_own, places)

    def _bytes_of(self, texts: Ints) -> float:
        """Memory that the outputs of some texts take, about."""
        return self._bytes_a_token * float(self.inputs.lengths[texts].sum())

    @cached_property
    def _bytes_a_token(self) -> float:
        """Memory that the outputs of a token take, by a text of usual length."""
        by_length = np.argsort(self.inputs.lengths, kind="stable")
        text = by_length[[len(by_length) // 2]]
        return self._outputs_of(text).bytes / max(1, int(self.inputs.lengths[text].sum()))

    def _parts(self, texts: Ints) -> list[Rows]:
        """The indices of texts, by length, in parts that fit in a batch."""
        lengths = self.inputs.lengths[texts]
        parts: list[list[int]] = [[]]
        for index in np.argsort(lengths, kind="stable").tolist():
            if parts[-1] and (len(parts[-1]) + 1) * int(lengths[index]) > self._max_tokens:
                parts.append([])
            parts[-1].append(index)
        return [Rows(np.array(part, np.int64)) for part in parts]

    def _recorded(self, parts: Sequence[Rows], tick: Tick) -> list[tuple[Ints, OutputsOfBatch]]:
        """The outputs of the texts of each part, in the order of the parts."""

        def run(part: Rows, _: Tick) -> OutputsOfBatch:
            return self._outputs_of(part.rows)

        return [
            (part.rows, outputs)
            for part, outputs in run_in_parallel(parts, run, model=self.model, tick=tick)
        ]

    def _outputs_of(self, texts: Ints) -> OutputsOfBatch:
        """The outputs of some texts, in one pass."""
        # The caller may be in inference mode, whose tensors no later gradient may use.
        with torch.inference_mode(False), torch.no_grad():
            inputs = self.inputs.tensors(texts)
            recorder = recorder_of(self.model, inputs)
            with self.model.active(recording(recorder)):
                self.inputs.logits(inputs)
            return recorded(recorder)


def _keep(newest: DonorTexts) -> None:
    """Count what was recorded last, and free what was recorded first where all is too much."""
    with _kept_lock:
        kept = [texts for texts in (reference() for reference in _kept) if texts is not None]
        kept = [texts for texts in kept if texts is not newest]
        total = newest.bytes + sum(texts.bytes for texts in kept)
        while kept and total > MOST_BYTES:
            oldest = kept.pop(0)
            total -= oldest.bytes
            oldest.forget()
        _kept[:] = [weakref.ref(texts) for texts in (*kept, newest)]


def require_streaming(model: Model, ablation: str) -> StreamingSizes | None:
    """What closed heads see of a text under an ablation; None where they do not stream.

    Raises:
        HeadlabError: The model's heads cannot, or would see more than it takes.
    """
    sizes = streaming_sizes(ablation)
    if sizes is None:
        return None
    model.require_ablation(ablation)
    length = context_length(model)
    if sum(sizes) > length:
        raise HeadlabError(
            f"{sizes} lets a head see {sum(sizes):,} tokens, and {model.name} takes {length:,} at most, so no head "
            f"would see less than now; give sizes of {length:,} together at most",
            code="ablation.streaming_length",
        )
    return sizes


# Which text is the donor of which.


def fixed_donors(examples: Ints, example_count: int) -> Ints:
    """The donors of examples in evaluations of masks, int [row]: always the same."""
    return drawn_donors(FIXED_DRAW, 0, examples, example_count)


def require_donors(task: Task, language: str, examples: Sequence[Example]) -> None:
    """Raise HeadlabError if there is only one example, which would have no donor."""
    if len(examples) < 2:
        raise HeadlabError(
            f"resample puts in what a head gives on another example of task {task.name} in {language}, and only one "
            "is used; give --size 2 or more, or use --ablation zero",
            code="ablation.one_example",
        )


@dataclass(frozen=True)
class Contrasts:
    """The counterfactuals of examples.

    Attributes:
        inputs: As model inputs, one for each example.
        is_own: Whether it is the example's own text, bool [example].
    """

    inputs: Inputs
    is_own: Bools


def contrasts_of(
    model: Model, task: Task, language: str, examples: Sequence[Example], inputs: Inputs
) -> Contrasts:
    """The counterfactual of each example: the first that has as many tokens.

    Args:
        model: The model.
        task: The task.
        language: Of the examples.
        examples: The examples.
        inputs: Of the examples themselves.

    Raises:
        HeadlabError: An example has none, or none of its length.
    """
    lacking = [example for example in examples if not example.counterfactuals]
    if lacking:
        raise HeadlabError(
            f"{len(lacking):,} of {len(examples):,} examples of task {task.name} in {language} have no counterfactual "
            f"(the first is {lacking[0].reference}); add a column counterfactual to your file, with a text of as many "
            "tokens in which only what matters differs, or use --ablation resample; ioi and agreement bring theirs",
            code="ablation.no_counterfactual",
        )
    chosen = [_with_text(example, 0) for example in examples]
    others = read_inputs(model, task, chosen, language)
    first_lengths = others.lengths
    unfit = np.flatnonzero(first_lengths != inputs.lengths).tolist()
    numbers = range(1, 2)
    while unfit and any(len(examples[row].counterfactuals) > numbers.start for row in unfit):
        tries = [
            (row, _with_text(examples[row], number))
            for row in unfit
            for number in numbers
            if number < len(examples[row].counterfactuals)
        ]
        tried = read_inputs(model, task, [contrast for _, contrast in tries], language)
        fitting: dict[int, Example] = {}
        for (row, contrast), length in zip(tries, tried.lengths.tolist(), strict=True):
            if length == inputs.lengths[row]:
                fitting.setdefault(row, contrast)
        for row, contrast in fitting.items():
            chosen[row] = contrast
        unfit = [row for row in unfit if row not in fitting]
        numbers = range(numbers.stop, 3 * numbers.stop)
    if unfit:
        first = unfit[0]
        raise HeadlabError(
            f"{len(unfit):,} of {len(examples):,} examples of task {task.name} in {language} have a counterfactual of "
            f"another length for {model.name}: that of {examples[first].reference} has {first_lengths[first]} tokens, "
            f"and the example {inputs.lengths[first]}; give texts of as many tokens, so that each position stands for "
            "the same, or use --ablation resample",
            code="ablation.counterfactual_length",
        )
    if (first_lengths != inputs.lengths).any():
        others = read_inputs(model, task, chosen, language)
    is_own = [other.text == example.text for other, example in zip(chosen, examples, strict=True)]
    return Contrasts(others, np.array(is_own))


def _with_text(example: Example, number: int) -> Example:
    """An example with one of its counterfactuals as its text."""
    return replace(example, text=example.counterfactuals[number], counterfactuals=())


def places_in(inputs: Inputs, rows: Ints, others: Inputs, texts: Ints) -> Ints | None:
    """Where in its donor each position of a row is, int [row, position]; None for the same place.

    Args:
        inputs: Of the examples.
        rows: The example of each row, int [row].
        others: Of the donors.
        texts: The donor of each row, int [row].
    """
    if isinstance(inputs, Choices) and isinstance(others, Choices):
        return inputs.packing.places(rows, others.packing, texts)
    return None


def share_beyond(inputs: Inputs) -> float:
    """Share of the positions of examples that are beyond the end of a donor, over all donors.

    0 stands there.

    Args:
        inputs: Of at least two examples.
    """
    if isinstance(inputs, Choices):
        return inputs.packing.share_beyond()
    sides = inputs.lengths_by_side if isinstance(inputs, Pairs) else (inputs.lengths,)
    return sum(map(_positions_beyond, sides)) / float(inputs.lengths.sum())


def _positions_beyond(lengths: Ints) -> float:
    """Positions of texts beyond the end of another, in the mean over all others.

    Args:
        lengths: Positions of each, int [text].
    """
    distinct, counts = np.unique(lengths, return_counts=True)
    beyond = np.maximum(distinct[:, None] - distinct, 0)
    return float(counts @ beyond @ counts) / (len(lengths) - 1)


def donors_by(ablation: str, rows: Ints, donors: Ints | None, example_count: int) -> Ints:
    """The numbers of the donors of some rows, int [row].

    Args:
        ablation: `resample` or `counterfactual`.
        rows: The example of each row, int [row].
        donors: What was drawn; None for the fixed ones.
        example_count: Number of examples.
    """
    if ablation == COUNTERFACTUAL:
        return rows
    return fixed_donors(rows, example_count) if donors is None else donors
