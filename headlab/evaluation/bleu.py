"""BLEU of a corpus with its interval, and the paired gain of one system over another.

Sentences are resampled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headlab.core import Floats, HeadlabError, Ints
from headlab.stats import PairedDifference, bootstrap_summary, resampled_sums
from headlab.stats.bootstrap import DRAWS

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

ORDERS = 4  # the longest n-gram
COUNT_COLUMNS = 2 + 2 * ORDERS
STREAM = 29  # separates these draws from others with the same seed
# sacrebleu has special rules for these under their short codes; corpora also use the long ones.
SHORT_CODES = {"zho": "zh", "cmn": "zh", "jpn": "ja", "kor": "ko"}


@dataclass(frozen=True)
class Bleu:
    """BLEU of the translations of some sentences, from 0 to 100, with its 95 % interval.

    Attributes:
        score: BLEU of the whole corpus.
        low: Lower end of the interval.
        high: Upper end of the interval.
        counts: The sufficient statistics, int [sentence, 2 + 4 + 4]: words of the translation and
            of the reference, matching n-grams of 1 to 4 words, and n-grams of the translation.
        groups: The group of each sentence; sentences of one group are resampled together.
        signature: Sacrebleu's, which records tokenisation and counting.
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
        return {
            "bleu": self.score,
            "bleu_low": self.low,
            "bleu_high": self.high,
            "sentences": self.n,
            "signature": self.signature,
        }


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
    """BLEU of translations against one reference each (Papineni et al. 2002).

    Words and n-grams are counted as in sacrebleu (Post 2018).

    Args:
        texts: The translations.
        references: The reference of each.
        language: Language of the translations, which determines the tokenisation; of zh-CN only
            the first part is used.
        groups: The group of each sentence; without them, each sentence is a group of its own.
        seed: Seed of the resampling.
        draws: Number of resamples.
        level: Confidence level of the interval.

    Raises:
        HeadlabError: Sacrebleu is not installed, or texts are missing.
    """
    counts, signature = sentence_counts(texts, references, language)
    if groups is None:
        groups = [str(number) for number in range(len(counts))]
    sentence_groups = tuple(groups)
    pool = _pool(counts, sentence_groups, right_first=True)
    bleu_by_draw = corpus_bleu(_resampled_counts(pool, seed, draws))
    low, high, _ = bootstrap_summary(bleu_by_draw[None], level)
    return Bleu(
        float(corpus_bleu(counts.sum(axis=0))),
        float(low[0]),
        float(high[0]),
        counts,
        sentence_groups,
        signature,
    )


def bleu_gain(
    before: Bleu, after: Bleu, *, seed: int = 0, draws: int = DRAWS, level: float = 0.95
) -> PairedDifference:
    """Difference in BLEU between two systems on the same sentences.

    They are resampled together (Koehn 2004).

    Args:
        before: BLEU of the one system.
        after: BLEU of the other, from which the first is subtracted.
        seed: Seed of the resampling.
        draws: Number of resamples.
        level: Confidence level of the interval.

    Raises:
        HeadlabError: The two are not of the same sentences, counted in the same way.
    """
    same_sentences = (before.groups, before.signature) == (after.groups, after.signature)
    if not same_sentences or (before.counts[:, 1] != after.counts[:, 1]).any():
        raise HeadlabError(
            "the two BLEU scores are of different sentences; compare runs on the same language and split",
            code="bleu.other_sentences",
        )
    pools = (
        _pool(before.counts, before.groups, right_first=True),
        _pool(after.counts, after.groups, right_first=False),
    )
    count_sums = _resampled_counts(np.concatenate(pools, axis=1), seed, draws)
    gains = corpus_bleu(count_sums[:, COUNT_COLUMNS:]) - corpus_bleu(count_sums[:, :COUNT_COLUMNS])
    low, high, p = bootstrap_summary(gains[None], level)
    return PairedDifference(after.score - before.score, float(low[0]), float(high[0]), float(p[0]))


def corpus_bleu(counts: Floats | Ints) -> Floats:
    """BLEU from a corpus's counts: float [...] from counts [..., 10] summed over its sentences.

    exp(min(0, 1 - r / c) + mean over n of log p_n), with c words in the translations and r in the
    references (Papineni et al. 2002, section 2.3). Where no n-gram of an order matches, the count
    is 1/2, 1/4, ... for successive such orders (the smoothing "exp", Chen & Cherry 2014, method 3).
    BLEU is 0 without any match, or if an order has no n-grams.
    """
    sums = np.asarray(counts, dtype=np.float64)
    length = sums[..., 0]
    reference_length = sums[..., 1]
    matches = sums[..., 2 : 2 + ORDERS]
    ngrams = sums[..., 2 + ORDERS :]
    unmatched = matches == 0
    smoothed_matches = np.where(unmatched, 0.5 ** np.cumsum(unmatched, axis=-1), matches)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_precision = np.log(smoothed_matches / ngrams).mean(axis=-1)
        scores = 100 * np.exp(np.minimum(0, 1 - reference_length / length) + log_precision)
    is_zero = unmatched.all(axis=-1) | (ngrams == 0).any(axis=-1)
    return np.asarray(np.where(is_zero, 0.0, scores))


def sentence_counts(
    texts: Sequence[str], references: Sequence[str], language: str = ""
) -> tuple[Ints, str]:
    """Counts of each sentence, int [sentence, 10] as in `Bleu`, and sacrebleu's signature.

    Raises:
        HeadlabError: Sacrebleu is not installed or cannot tokenise the language, or texts are
            missing.
    """
    if not texts or len(texts) != len(references):
        raise HeadlabError(
            f"{len(texts)} translations for {len(references)} references; give one for each",
            code="bleu.counts_differ",
        )
    metric, signature = sacrebleu_metric(language)
    scores = [
        metric.sentence_score(text, [reference])
        for text, reference in zip(texts, references, strict=True)
    ]
    rows = [[score.sys_len, score.ref_len, *score.counts, *score.totals] for score in scores]
    return np.array(rows, dtype=np.int64), signature


def sacrebleu_metric(language: str) -> tuple[BLEU, str]:
    """Sacrebleu's metric for a language, and its signature.

    Raises:
        HeadlabError: A package that it needs is missing.
    """
    primary_code = re.split("[-_]", language)[0].lower()
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise HeadlabError(
            "BLEU is computed by the package sacrebleu, which is not installed; pip install 'headlab[translation]'",
            code="package.sacrebleu_missing",
        ) from error
    try:
        # effective_order does not change the counts, but avoids a warning for short sentences.
        sacrebleu_code = SHORT_CODES.get(primary_code, primary_code)
        metric = BLEU(trg_lang=sacrebleu_code, effective_order=True)
        corpus_metric = BLEU(trg_lang=sacrebleu_code)
    except (ImportError, RuntimeError) as error:
        raise HeadlabError(
            f"sacrebleu cannot tokenise {language} here ({error}); install what it asks for",
            code="bleu.language_unsupported",
        ) from error
    # The signature has the number of references only after scoring.
    corpus_metric.corpus_score(["a"], [["a"]])
    return metric, str(corpus_metric.get_signature())


def _pool(counts: Ints, groups: Sequence[str], *, right_first: bool) -> Floats:
    """Sums of each group, plus two pseudo-sentences of the mean length, float [group + 2, 10].

    One pseudo-sentence is all right and the other all wrong, so that perfect translations, or
    equal ones, do not get an interval of length 0 (as in `headlab.stats.group_bootstrap`).

    Args:
        counts: Counts of each sentence, int [sentence, 10].
        groups: The group of each sentence.
        right_first: Whether the right pseudo-sentence comes before the wrong one.
    """
    _, group_indices = np.unique(np.array(groups), return_inverse=True)
    sums = np.zeros((int(group_indices.max()) + 1, COUNT_COLUMNS))
    np.add.at(sums, group_indices, counts)
    mean_words = max(1, round(float(counts[:, 1].mean())))
    ngrams = [max(0, mean_words - order) for order in range(ORDERS)]
    no_matches = [0] * ORDERS
    right_sentence = [mean_words, mean_words, *ngrams, *ngrams]
    wrong_sentence = [mean_words, mean_words, *no_matches, *ngrams]
    pseudo_sentences = [right_sentence, wrong_sentence]
    if not right_first:
        pseudo_sentences.reverse()
    return np.array([*sums, *pseudo_sentences], dtype=np.float64)


def _resampled_counts(rows: Floats, seed: int, draws: int) -> Floats:
    """Sums over resamples of the rows, each of as many rows as there are, float [draw, column]."""
    return resampled_sums(rows, [seed, STREAM], draws).T


gain = bleu_gain
"""The name of `bleu_gain` by which other packages may import it, from `headlab.bleu`."""
