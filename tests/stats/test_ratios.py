"""Shares of clustered answers: a slow derivation, and how often intervals hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
import reference

from headlab.stats import TERMS, ratio_excess, ratio_interval, ratio_sums

SHARES = (0.02, 0.5, 0.98)
RUNS = 1000
SENTENCES = 80


def random_ratio_sums(share: float, evenness: float, seed: int = 0) -> np.ndarray:
    """The sums of many runs, [run, TERMS], with up to six answers in each sentence.

    All answers of a sentence are right with one chance, which differs from sentence to sentence.

    Args:
        share: The mean chance, which is also the share of hits by chance.
        evenness: How alike the chances of sentences are; if it is small, the answers of a sentence
            are nearly all right or nearly all wrong.
        seed: The seed of the random numbers.
    """
    rng = np.random.default_rng(
        [
            seed,
            int(100 * share),
            int(10 * evenness),
        ]
    )
    answer_counts = rng.integers(0, 7, (RUNS, SENTENCES))
    chances = rng.beta(
        share * evenness,
        (1 - share) * evenness,
        answer_counts.shape,
    )
    hits = rng.binomial(answer_counts, chances).astype(float)
    counts = answer_counts.astype(float)
    sums = []
    for hits_of_run, counts_of_run in zip(hits, counts, strict=True):
        hits_by_chance = share * counts_of_run
        sums.append(ratio_sums(hits_of_run, counts_of_run, hits_by_chance))
    return np.array(sums)


@pytest.mark.parametrize("evenness", [0.5, 3, 50])
@pytest.mark.parametrize("share", SHARES)
def test_the_interval_of_a_share_covers_it_as_often_as_it_says(
    share: float, evenness: float
) -> None:
    interval = ratio_interval(random_ratio_sums(share, evenness))
    is_covered = (interval.low <= share) & (share <= interval.high)
    assert is_covered.mean() >= 0.93  # 0.939 to 0.992 were seen


@pytest.mark.parametrize("evenness", [0.5, 3])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_interval_of_an_excess_over_chance_covers_0_as_often_as_it_says(
    share: float, evenness: float
) -> None:
    excess = ratio_excess(random_ratio_sums(share, evenness, seed=1))
    is_covered = (excess.low <= 0) & (excess.high >= 0)
    assert is_covered.mean() >= 0.93
    assert (excess.p <= 0.05).mean() <= 0.08  # one-sided: 0.064 were seen where chance is 0.9
    assert (excess.p <= 0.001).mean() <= 0.006


def test_an_interval_that_ignores_sentences_covers_too_seldom() -> None:
    sums = random_ratio_sums(0.5, 0.5)
    sums_by_answer = sums.copy()  # as if every answer had a sentence of its own
    hits = sums[:, 1]
    counts = sums[:, 2]
    value_by_term = {
        "1": counts,
        "hh": hits,
        "hn": hits,
        "nn": counts,
    }
    for term, value in value_by_term.items():
        sums_by_answer[:, TERMS.index(term)] = value
    interval = ratio_interval(sums_by_answer)
    is_covered = (interval.low <= 0.5) & (interval.high >= 0.5)
    assert is_covered.mean() < 0.85


@pytest.mark.parametrize("seed", range(6))
def test_a_share_and_its_interval_equal_a_slow_derivation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    answer_counts = rng.integers(0, 5, 12)
    if seed == 0:
        hits = np.zeros(12, int)
    elif seed == 1:
        hits = answer_counts
    else:
        hits = rng.binomial(answer_counts, 0.3)
    sums = ratio_sums(
        hits.astype(float),
        answer_counts.astype(float),
        0.1 * answer_counts,
    )
    interval = ratio_interval(sums, 0.9)
    expected = reference.clustered_share(
        hits.tolist(),
        answer_counts.tolist(),
        0.9,
    )
    share_and_ends = [float(value) for value in interval]
    np.testing.assert_allclose(share_and_ends, expected, atol=1e-9)


def test_the_excess_over_chance_equals_the_pseudo_sentences_written_out() -> None:
    from scipy.stats import t

    rng = np.random.default_rng(3)
    n = rng.integers(1, 6, 9).astype(float)
    h = rng.binomial(n.astype(int), 0.6).astype(float)
    c = rng.uniform(0, 0.5, 9) * n
    excess = ratio_excess(ratio_sums(h, n, c))
    mean = n.mean()
    excess_hits = np.append(h - c, [mean, -mean])
    counts = np.append(n, [mean, mean])
    centre = excess_hits.sum() / counts.sum()
    rest = excess_hits - centre * counts
    sum_of_squares = (rest**2).sum()
    error = np.sqrt(11 / 10 * sum_of_squares) / counts.sum()
    difference = (h - c).sum() / n.sum()
    half_width = t.ppf(0.975, 10) * error
    low = centre - half_width
    high = centre + half_width
    p = t.sf(centre / error, 10)
    assert float(excess.difference) == pytest.approx(difference)
    assert float(excess.low) == pytest.approx(low)
    assert float(excess.high) == pytest.approx(high)
    assert float(excess.p) == pytest.approx(p)


def test_sums_of_parts_add_up_and_a_sentence_without_an_answer_does_not_count() -> None:
    rng = np.random.default_rng(4)
    n = np.array([3.0, 0, 2, 5, 0, 1])
    h = rng.binomial(n.astype(int), 0.5, (4, 6)).astype(float)
    c = 0.25 * n
    sums = ratio_sums(h, n, c)
    first_two = slice(None, 2)
    last_four = slice(2, None)
    first_sums = ratio_sums(h[:, first_two], n[first_two], c[first_two])
    other_sums = ratio_sums(h[:, last_four], n[last_four], c[last_four])
    np.testing.assert_array_equal(sums, first_sums + other_sums)
    assert (sums[:, 0] == 4).all()


def test_a_few_sentences_that_agree_are_no_certainty() -> None:
    counts = np.array([4.0, 5, 3])
    sums = ratio_sums(counts, counts, 0.1 * counts)
    share = ratio_interval(sums)
    excess = ratio_excess(sums)
    assert float(share.share) == 1.0
    assert float(share.high) == 1.0
    assert float(share.low) < 0.5
    assert float(excess.p) > 0.01
    no_hits = np.zeros(40)
    answer_counts = np.ones(40)
    no_hits_by_chance = np.zeros(40)
    sums_without_hits = ratio_sums(no_hits, answer_counts, no_hits_by_chance)
    interval_without_hits = ratio_interval(sums_without_hits)
    assert 0 < float(interval_without_hits.high) < 0.1


def test_one_sentence_has_an_interval_and_none_has_no_number() -> None:
    hits = np.array([3.0])
    answer_counts = np.array([6.0])
    hits_by_chance = np.array([1.0])
    interval = ratio_interval(ratio_sums(hits, answer_counts, hits_by_chance))
    low = float(interval.low)
    high = float(interval.high)
    assert 0 <= low < 0.5 < high <= 1
    zeros = np.zeros(2)
    sums_without_answers = ratio_sums(zeros, zeros, zeros)
    interval_without_answers = list(ratio_interval(sums_without_answers))
    excess_without_answers = list(ratio_excess(sums_without_answers))
    assert np.isnan(interval_without_answers).all()
    assert np.isnan(excess_without_answers).all()
