"""Evaluations as the figures that cross the worker's door."""

from __future__ import annotations

from collections.abc import Iterator

from headlab.evaluator import accuracy_interval, compare
from headlab.hooks.model import Model
from headlab.masks import Mask, mask_from_json
from headlab.records import Evaluation
from headlab.worker.schemas import EvaluateRequest, Figure


def mask_of(request: EvaluateRequest, model: Model) -> Mask:
    """The mask of a request. Raises HeadlabError if it is none of this model's."""
    mask = mask_from_json(request.mask, "the mask")
    mask.check(model.grid, model.fingerprint)
    return mask


def paired(whole: Iterator[Evaluation], masked: Iterator[Evaluation]) -> Iterator[Figure]:
    """Both grow together, so that the first comparison does not wait for all of the baseline."""
    before: Evaluation | None = None
    for after in masked:
        while before is None or before.n < after.n:
            before = next(whole)
        yield _compared(before, after)


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
