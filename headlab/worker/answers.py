"""What the device's thread computes for one request: figures, attention, paces. Imports torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from headlab.errors import HeadlabError
from headlab.evaluator import Evaluator, accuracy_interval, compare
from headlab.extensions import implementation
from headlab.hooks.model import Model, attention, excluded_ids, started
from headlab.inputs import check_tokens
from headlab.masks import Mask, mask_from_json
from headlab.masks.mask import full_mask
from headlab.methods.run import HOME, Work, answers_spec
from headlab.methods.table import method as method_of
from headlab.records import Evaluation, Head
from headlab.roles.tokenised import special_ids
from headlab.store import Store
from headlab.worker.schemas import MAX_TOKENS, AttentionRequest, EvaluateRequest, Figure, Weights

# Evaluations as the figures that the worker sends.


def mask_of(request: EvaluateRequest, model: Model) -> Mask:
    """The mask of a request. Raises HeadlabError if it does not fit the model."""
    mask = mask_from_json(request.mask, "the mask")
    mask.check(model.grid, model.fingerprint)
    return mask


def paired(whole: Iterator[Evaluation], masked: Iterator[Evaluation]) -> Iterator[Figure]:
    """Compare two growing evaluations, so that the first figure does not wait for the whole baseline."""
    before: Evaluation | None = None
    for after in masked:
        while before is None or before.n < after.n:
            before = next(whole)
        yield _compared(before, after)


def untouched(evaluator: Evaluator, store: Store) -> Iterator[Evaluation]:
    """The untouched model's answers: those known or stored at once, or growing as they are computed, and then stored.

    Those of another kind of device are other ones: a masked model's are compared with them answer by answer.
    """
    if evaluator.knows:
        yield from evaluator.stream(None)
        return
    device, digest = evaluator.model.device.type, full_mask(evaluator.model.grid).digest
    run = store.run(answers_spec(evaluator) | ({} if device == "cpu" else {"device": device}))
    kept = None
    with suppress(HeadlabError):  # damaged, in a cache that is read-only and takes no log
        kept = run.answers(digest, evaluator.examples)
    if kept is not None:
        evaluator.know(kept)
    for seen in evaluator.stream(None):
        if seen.done and kept is None:
            with suppress(HeadlabError):  # a figure needs no cache that can be written
                run.keep_answers(digest, seen, evaluator.inputs.units)
        yield seen


def figure(seen: Evaluation) -> Figure:
    """Accuracy of the untouched model over the examples seen."""
    low, high = accuracy_interval(seen)
    return Figure(
        language=seen.language, n=seen.n, total=seen.total, accuracy=seen.accuracy, low=low, high=high, done=seen.done
    )


def _compared(before: Evaluation, after: Evaluation) -> Figure:
    both = compare(before, after)
    return Figure(
        language=both.language,
        n=both.n,
        total=both.total,
        accuracy=both.accuracy,
        low=both.low,
        high=both.high,
        done=both.n == both.total,
        baseline=both.baseline,
        difference=both.difference,
        p=both.p,
        flipped_right=both.flipped_right,
        flipped_wrong=both.flipped_wrong,
    )


# Attention of chosen heads for one sentence, as the worker sends it.


def weights_of(model: Model, request: AttentionRequest) -> Weights:
    """Attention of some heads for one sentence or pair, cut to 64 tokens. Raises HeadlabError for unknown heads."""
    heads = [Head(*head) for head in request.heads]
    for head in heads:
        model.grid.index(head)
    texts = (request.text,) if request.pair is None else (request.text, request.pair)
    cut = model.tokenizer(*texts, truncation=True, max_length=MAX_TOKENS)["input_ids"]
    full = model.tokenizer(*texts)["input_ids"]
    check_tokens(model, [cut])
    inputs = model.tokenizer(*texts, truncation=True, max_length=MAX_TOKENS, return_tensors="pt").to(model.device)
    found = attention(model, {**inputs, **_target(model, heads)}, heads)
    ends, special = set(excluded_ids(model.tokenizer, "separator")), special_ids(model)
    return Weights(
        tokens=[str(token) for token in model.tokenizer.convert_ids_to_tokens(cut)],
        weights={f"{h.stack}.{h.layer}.{h.head}": _rounded(found[h]) for h in heads},
        separators=[place for place, token in enumerate(cut) if token in ends],
        special=[place for place, token in enumerate(cut) if token in special],
        truncated=len(full) > len(cut),
    )


def _target(model: Model, heads: list[Head]) -> dict[str, torch.Tensor]:
    """Further inputs of an encoder-decoder model. Raises HeadlabError for heads that attend from a target."""
    if not model.module.config.is_encoder_decoder:
        return {}
    for head in heads:
        if head.stack != "encoder":
            raise HeadlabError(
                f"head {head} attends from a translation, and a plain sentence has none; choose encoder heads",
                code="head.of_translation",
            )
    return started(model, 1)


def _rounded(weights: torch.Tensor) -> list[list[float]]:
    rounded: list[list[float]] = weights.double().numpy().round(3).tolist()
    return rounded


# How long a forward pass of some work takes, timed over a few batches.

BATCHES = 8
SECONDS = 1.0
WARMING = 16  # examples before the clock starts: the first batch of a model is slow


class Enough(Exception):
    """Raised to end the work once it has been timed."""


class Stopwatch:
    """Times the batches of an evaluator, without what others do between them."""

    def __init__(self, evaluator: Evaluator, tick: Callable[[], None]) -> None:
        self._evaluator, self._tick = evaluator, tick
        self._since, self._counted = time.perf_counter(), evaluator.forwards
        self._open = 0.0  # seconds since forwards were last counted
        self.seconds, self.forwards, self.batches = 0.0, 0, 0

    def __call__(self) -> None:
        """Called between batches, and while they are under way. Raises Enough once enough has been timed."""
        self.take()
        if self.batches and (self.batches >= BATCHES or self.seconds >= SECONDS):
            raise Enough
        self._tick()
        self._since = time.perf_counter()

    def take(self) -> None:
        """Count the forward passes and seconds since the last call."""
        now, counted = time.perf_counter(), self._evaluator.forwards
        self._open += now - self._since
        self._since = now
        if counted > self._counted:
            self.seconds, self._open = self.seconds + self._open, 0.0
            self.forwards, self._counted = self.forwards + counted - self._counted, counted
            self.batches += 1

    @property
    def pace(self) -> float:
        """Seconds per forward pass."""
        return self.seconds / max(1, self.forwards)


def pace_of(evaluator: Evaluator, method: str | None, options: Mapping[str, Any], tick: Callable[[], None]) -> float:
    """Seconds per forward pass of a method, or of a plain one (method None).  tick: called between batches."""
    answered(evaluator, min(WARMING, len(evaluator.examples)))
    watch = Stopwatch(evaluator, tick)
    evaluator.tick = watch
    try:
        if method is None:
            answered(evaluator, len(evaluator.examples))
        else:
            chosen = method_of(method)
            implementation(chosen.module, HOME).run(Work(evaluator, 0, chosen.resolve(options)))
        watch.take()
    except Enough:
        pass
    return watch.pace


def answered(evaluator: Evaluator, examples: int) -> None:
    """Run plain forward passes of the untouched model on the first examples and discard the results."""
    grid = evaluator.model.grid
    whole = np.ones((examples, grid.layers, grid.width), dtype=bool)
    evaluator.correct(whole, np.arange(examples))
