"""Intervals of metrics of lm-evaluation-harness: of means, and of other functions of sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

from headlab.core import Floats
from headlab.evaluation import bleu, bleu_gain
from headlab.stats import (
    MIN_GROUPS,
    PairedDifference,
    bootstrap_summary,
    paired_bootstrap,
    resampled_sums,
)
from headlab.stats.bootstrap import DRAWS

# What the harness keeps of one document: a number, or several, or texts.
DocumentValue: TypeAlias = bool | int | float | str | np.generic | Sequence["DocumentValue"] | None
Values = Sequence[DocumentValue]


@dataclass(frozen=True)
class SumStatistic:
    """A function of sums over documents.

    Attributes:
        terms: what is summed, float [document, term], of the values of documents.
        of_sums: the statistic, float [...], of sums, float [term, ...].
    """

    terms: Callable[[Values], Floats]
    of_sums: Callable[[Floats], Floats]


def _numbers(values: Values) -> Floats:
    """A number of each document, and 1, float [document, 2]."""
    numbers = np.array(values, dtype=np.float64)
    return np.stack([numbers, np.ones_like(numbers)], axis=1)


def _numbers_given(values: Values) -> Floats:
    """A number of each document, and 1; both 0 where it is not a number, float [document, 2]."""
    numbers = np.array(values, dtype=np.float64)
    is_number = ~np.isnan(numbers)
    return np.stack([np.where(is_number, numbers, 0.0), is_number.astype(np.float64)], axis=1)


def _pairs(values: Values) -> Floats:
    """Log-probability and number of words or bytes of each document, float [document, 2]."""
    pairs = cast("Sequence[tuple[float, int]]", values)
    return np.array([list(pair) for pair in pairs], dtype=np.float64)


def _squared_errors(values: Values) -> Floats:
    """The Brier score of each document, and 1, float [document, 2]."""
    scores = []
    for right_class, probabilities in cast("Sequence[tuple[int, Sequence[float]]]", values):
        errors = np.array(probabilities, dtype=np.float64)
        errors[int(right_class)] -= 1
        scores.append(float(np.square(errors).sum()))
    return _numbers(scores)


def _positives(values: Values) -> Floats:
    """Whether a document is a hit, is said to be positive, and is so, float [document, 3]."""
    pairs = cast("Sequence[tuple[int, int]]", values)
    labels, answers = (np.array(column) == 1 for column in zip(*pairs, strict=True))
    return np.stack([labels & answers, answers, labels], axis=1).astype(np.float64)


def _classes(values: Values) -> Floats:
    """1, whether an answer is right, both classes as 0 or 1, float [document, 2 + 2 classes]."""
    pairs = cast("Sequence[tuple[int, int]]", values)
    labels, answers = (np.array(column) for column in zip(*pairs, strict=True))
    classes = np.unique(np.concatenate([labels, answers]))
    columns = [np.ones(len(labels)), labels == answers]
    columns += [labels == label for label in classes]
    columns += [answers == label for label in classes]
    return np.stack(columns, axis=1).astype(np.float64)


def _mean(sums: Floats) -> Floats:
    return np.asarray(sums[0] / sums[1])


def _perplexity(sums: Floats) -> Floats:
    return np.asarray(np.exp(-sums[0] / sums[1]))


def _bits(sums: Floats) -> Floats:
    return np.asarray(-sums[0] / sums[1] / np.log(2))


def _f1(sums: Floats) -> Floats:
    hits, said_positive, positive = sums
    total = said_positive + positive
    return np.asarray(np.divide(2 * hits, total, out=np.zeros_like(total), where=total > 0))


def _matthews(sums: Floats) -> Floats:
    """Matthews' correlation of any number of classes (Gorodkin 2004); 0 if one side names one."""
    documents, right_answers = sums[:2]
    classes = (len(sums) - 2) // 2
    truth = sums[2 : 2 + classes]
    answers = sums[2 + classes :]
    covariance = right_answers * documents - (truth * answers).sum(axis=0)
    spread_of_truth = documents**2 - (truth**2).sum(axis=0)
    spread_of_answers = documents**2 - (answers**2).sum(axis=0)
    scale = np.sqrt(spread_of_truth * spread_of_answers)
    return np.asarray(np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 0))


# By the names under which the harness registers its aggregations.
SUM_STATISTICS: Mapping[str, SumStatistic] = MappingProxyType(
    {
        "mean": SumStatistic(_numbers, _mean),
        "nanmean": SumStatistic(_numbers_given, _mean),
        "perplexity": SumStatistic(_numbers, _perplexity),
        "weighted_perplexity": SumStatistic(_pairs, _perplexity),
        "bits_per_byte": SumStatistic(_pairs, _bits),
        "brier_score": SumStatistic(_squared_errors, _mean),
        "f1": SumStatistic(_positives, _f1),
        "matthews_corrcoef": SumStatistic(_classes, _matthews),
    }
)


def shares(values: Values) -> bool:
    """Whether all values are numbers from 0 to 1."""
    return all(isinstance(value, int | float | np.number) and 0 <= value <= 1 for value in values)


def paired_interval(
    aggregation: str, before: Values, after: Values, documents: tuple[str, ...], seed: int
) -> PairedDifference | str:
    """Difference that a mask makes to a metric, with its 95 % interval; or why there is none.

    Args:
        aggregation: name of the function by which the harness computes the metric of all documents.
        before: value of each document without the mask.
        after: the same with it.
        documents: name of each document; documents are resampled.
        seed: of the resampling.
    """
    if aggregation in ("mean", "nanmean") and shares([*before, *after]):
        rng = np.random.default_rng(seed)
        return paired_bootstrap(np.array(before), np.array(after), documents, rng)
    if aggregation == "bleu":
        return _bleu_interval(before, after, documents, seed)
    if aggregation not in SUM_STATISTICS:
        return f"the harness computes it of all documents at once ({aggregation})"
    statistic = SUM_STATISTICS[aggregation]
    return _statistic_interval(statistic, before, after, seed)


def document_count(aggregation: str, values: Values) -> int:
    """Number of documents that enter a metric.

    Those without a number are left out if the metric does so.

    Args:
        aggregation: name of the function by which the harness computes the metric of all documents.
        values: of the documents.
    """
    if aggregation != "nanmean":
        return len(values)
    return int(_numbers_given(values)[:, 1].sum())


def _statistic_interval(
    statistic: SumStatistic,
    before: Values,
    after: Values,
    seed: int,
) -> PairedDifference | str:
    """As `paired_interval`, for a function of sums; there is none where few documents change."""
    terms_before = statistic.terms(before)
    terms_after = statistic.terms(after)
    if len(before) < MIN_GROUPS:
        return f"{len(before)} documents are too few"
    changed_documents = 0
    for value_before, value_after in zip(before, after, strict=True):
        changed_documents += not _same_values(value_before, value_after)
    if changed_documents < MIN_GROUPS:
        return f"the mask changes {changed_documents} of {len(before)} documents, which are too few"
    columns = np.concatenate([terms_before, terms_after], axis=1)
    width = terms_before.shape[1]
    sums_by_draw = resampled_sums(columns, [seed], DRAWS)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        gains = statistic.of_sums(sums_by_draw[width:]) - statistic.of_sums(sums_by_draw[:width])
        total_before = statistic.of_sums(terms_before.sum(axis=0))
        total_after = statistic.of_sums(terms_after.sum(axis=0))
    if not np.isfinite(gains).all():
        return "it is not a number in some resamples of the documents"
    low, high, p = bootstrap_summary(gains[None], 0.95)
    return PairedDifference(
        float(total_after - total_before), float(low[0]), float(high[0]), float(p[0])
    )


def _same_values(one_value: DocumentValue, other_value: DocumentValue) -> bool:
    """Whether the harness keeps the same of a document twice: numbers or texts, or rows of them."""
    if isinstance(one_value, list | tuple) and isinstance(other_value, list | tuple):
        if len(one_value) != len(other_value):
            return False
        return all(
            _same_values(part, other) for part, other in zip(one_value, other_value, strict=True)
        )
    if _is_nan(one_value) and _is_nan(other_value):
        return True
    return np.array_equal(cast("npt.ArrayLike", one_value), cast("npt.ArrayLike", other_value))


def _is_nan(value: DocumentValue) -> bool:
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _bleu_interval(
    before: Values,
    after: Values,
    documents: tuple[str, ...],
    seed: int,
) -> PairedDifference | str:
    """As `paired_interval`, for BLEU with one reference each."""
    columns = []
    for values, part in ((before, 0), (before, 1), (after, 1)):
        pairs = cast("Sequence[Sequence[DocumentValue]]", values)
        texts = [_single_text(pair[part]) for pair in pairs]
        columns.append([text for text in texts if text is not None])
    references, texts_before, texts_after = columns
    if any(len(texts) < len(documents) for texts in columns):
        return "headlab resamples BLEU with one reference to a document only"
    bleu_before = bleu.bleu(texts_before, references, groups=documents, seed=seed)
    bleu_after = bleu.bleu(texts_after, references, groups=documents, seed=seed)
    gain = bleu_gain(bleu_before, bleu_after, seed=seed)
    if gain.low == gain.high:
        return "it is the same in all resamples of the documents"
    return gain


def _single_text(text: DocumentValue) -> str | None:
    """A text, also as a list of one; None for several."""
    if isinstance(text, list | tuple):
        if len(text) != 1:
            return None
        (text,) = text
    return text if isinstance(text, str) else None
