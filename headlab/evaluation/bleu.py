"""BLEU of a corpus with its interval, and the paired gain of one system over another, by resampling sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headlab.core import Floats, HeadlabError, Ints
from headlab.stats import Paired, resampled_sums, summary
from headlab.stats.bootstrap import DRAWS

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

ORDERS = 4  # the longest n-gram
WIDTH = 2 + 2 * ORDERS
STREAM = 29  # separates these draws from others with the same seed
# sacrebleu has special rules for these under their short codes; corpora also use the long ones.
LONG = {"zho": "zh", "cmn": "zh", "jpn": "ja", "kor": "ko"}


@dataclass(frozen=True)
class Bleu:
    """BLEU of the translations of some sentences, from 0 to 100, with its 95 % interval.

    counts: int [sentence, 2 + 4 + 4], sufficient statistics: words of the translation and of the reference,
    matching n-grams of 1 to 4 words, and n-grams of the translation.  groups: sentences of one group are
    resampled together.  signature: sacrebleu's, which records tokenisation and counting.
    """

    score: float
    low: float
    high: float
    counts: Ints
    groups: tuple[str, ...]
    signature: str

    @property
    def n(self) -> int:
        """Number of sentences."""
        return len(self.counts)

    def record(self) -> dict[str, Any]:
        """The figures to print, ready for JSON."""
        return {"bleu": self.score, "bleu_low": self.low, "bleu_high": self.high, "sentences": self.n,
                "signature": self.signature}  # fmt: skip


def bleu(
    texts: Sequence[str],
    references: Sequence[str],
    *,
    language: str = "",
    groups: Sequence[str] | None = None,
    seed: int = 0,
    draws: int = DRAWS,
    level: float = 0.95,
) -> Bleu:
    """BLEU of translations against one reference each (Papineni et al. 2002; counted as in sacrebleu, Post 2018).

    language: of the translations, which determines the tokenisation; of zh-CN only the first part is used.  seed: of
    the resampling.  Raises HeadlabError if sacrebleu is not installed, or texts are missing.
    """
    counts, signature = sentence_counts(texts, references, language)
    kept = tuple(map(str, range(len(counts)))) if groups is None else tuple(groups)
    drawn = corpus_bleu(_drawn(_pool(counts, kept, perfect=True), seed, draws))
    low, high, _ = summary(drawn[None], level)
    return Bleu(
        float(corpus_bleu(counts.sum(axis=0))),
        float(low[0]),
        float(high[0]),
        counts,
        kept,
        signature,
    )


def gain(
    before: Bleu, after: Bleu, *, seed: int = 0, draws: int = DRAWS, level: float = 0.95
) -> Paired:
    """Difference in BLEU between two systems on the same sentences, resampled together (Koehn 2004).

    Raises HeadlabError unless both are of the same sentences, counted in the same way.
    """
    same = (before.groups, before.signature) == (after.groups, after.signature)
    if not same or (before.counts[:, 1] != after.counts[:, 1]).any():
        raise HeadlabError(
            "the two BLEU scores are of different sentences; compare runs on the same language and split",
            code="bleu.other_sentences",
        )
    pools = (
        _pool(before.counts, before.groups, perfect=True),
        _pool(after.counts, after.groups, perfect=False),
    )
    drawn = _drawn(np.concatenate(pools, axis=1), seed, draws)
    gains = corpus_bleu(drawn[:, WIDTH:]) - corpus_bleu(drawn[:, :WIDTH])
    low, high, p = summary(gains[None], level)
    return Paired(after.score - before.score, float(low[0]), float(high[0]), float(p[0]))


def corpus_bleu(counts: Floats | Ints) -> Floats:
    """BLEU from a corpus's counts: float [...] from counts [..., 10] summed over its sentences.

    exp(min(0, 1 - r / c) + mean over n of log p_n), with c words in the translations and r in the references
    (Papineni et al. 2002, section 2.3); where no n-gram of an order matches, the count is 1/2, 1/4, ... for successive
    such orders (the smoothing "exp", Chen & Cherry 2014, method 3). 0 without any match, or if an order has no n-grams.
    """
    sums = np.asarray(counts, dtype=np.float64)
    length, reference = sums[..., 0], sums[..., 1]
    right, all_ = sums[..., 2 : 2 + ORDERS], sums[..., 2 + ORDERS :]
    none = right == 0
    smoothed = np.where(none, 0.5 ** np.cumsum(none, axis=-1), right)
    with np.errstate(divide="ignore", invalid="ignore"):
        orders = np.log(smoothed / all_).mean(axis=-1)
        found = 100 * np.exp(np.minimum(0, 1 - reference / length) + orders)
    nothing = none.all(axis=-1) | (all_ == 0).any(axis=-1)
    return np.asarray(np.where(nothing, 0.0, found))


def sentence_counts(
    texts: Sequence[str], references: Sequence[str], language: str = ""
) -> tuple[Ints, str]:
    """Counts of each sentence, int [sentence, 10] as in `Bleu`, and sacrebleu's signature. Raises HeadlabError."""
    if not texts or len(texts) != len(references):
        raise HeadlabError(
            f"{len(texts)} translations for {len(references)} references; give one for each",
            code="bleu.counts_differ",
        )
    metric, signature = metric_of(language)
    scores = [
        metric.sentence_score(text, [reference])
        for text, reference in zip(texts, references, strict=True)
    ]
    rows = [[score.sys_len, score.ref_len, *score.counts, *score.totals] for score in scores]
    return np.array(rows, dtype=np.int64), signature


def metric_of(language: str) -> tuple[BLEU, str]:
    """Sacrebleu's metric for a language, and its signature. Raises HeadlabError if a package it needs is missing."""
    first = re.split("[-_]", language)[0].lower()
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise HeadlabError(
            "BLEU is computed by the package sacrebleu, which is not installed; pip install 'headlab[translation]'",
            code="package.sacrebleu_missing",
        ) from error
    try:
        # effective_order does not change the counts, but avoids a warning for short sentences.
        code = LONG.get(first, first)
        metric, whole = BLEU(trg_lang=code, effective_order=True), BLEU(trg_lang=code)
    except (ImportError, RuntimeError) as error:
        raise HeadlabError(
            f"sacrebleu cannot tokenise {language} here ({error}); install what it asks for",
            code="bleu.language_unsupported",
        ) from error
    whole.corpus_score(
        ["a"], [["a"]]
    )  # the signature has the number of references only after scoring
    return metric, str(whole.get_signature())


def _pool(counts: Ints, groups: Sequence[str], *, perfect: bool) -> Floats:
    """Sums of each group, plus two pseudo-sentences of the mean length, float [group + 2, 10].

    One is all right and the other all wrong, the right one first if `perfect`; so perfect translations, or equal
    ones, do not get an interval of length 0 (as in `headlab.stats.group_bootstrap`).
    """
    _, member = np.unique(np.array(groups), return_inverse=True)
    sums = np.zeros((int(member.max()) + 1, WIDTH))
    np.add.at(sums, member, counts)
    words = max(1, round(float(counts[:, 1].mean())))
    grams = [max(0, words - order) for order in range(ORDERS)]
    right, wrong = [words, words, *grams, *grams], [words, words, *[0] * ORDERS, *grams]
    return np.array([*sums, *((right, wrong) if perfect else (wrong, right))], dtype=np.float64)


def _drawn(rows: Floats, seed: int, draws: int) -> Floats:
    """Sums over resamples of as many rows, float [draw, column]."""
    return resampled_sums(rows, [seed, STREAM], draws).T
