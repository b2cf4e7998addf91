"""Shares of clustered answers: against a slow derivation, and how often their intervals hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
import reference

from headlab.stats import TERMS, ratio_excess, ratio_interval, ratio_sums

SHARES = (0.02, 0.5, 0.98)
RUNS = 1000
SENTENCES = 80


def drawn(share: float, alike: float, seed: int = 0) -> np.ndarray:
    """Sums of many runs, [run, TERMS]: up to six answers a sentence, of one chance that differs by sentence.

    Args:
        alike: How much the sentences' chances are alike; small ones make sentences all right or all
            wrong.
    """
    rng = np.random.default_rng([seed, int(100 * share), int(10 * alike)])
    asked = rng.integers(0, 7, (RUNS, SENTENCES))
    hits = rng.binomial(asked, rng.beta(share * alike, (1 - share) * alike, asked.shape))
    parts = zip(hits.astype(float), asked.astype(float), strict=True)
    return np.array([ratio_sums(h, n, share * n) for h, n in parts])


@pytest.mark.parametrize("alike", [0.5, 3, 50])
@pytest.mark.parametrize("share", SHARES)
def test_the_interval_of_a_share_holds_it_as_often_as_it_says(share: float, alike: float) -> None:
    found = ratio_interval(drawn(share, alike))
    covered = ((found.low <= share) & (share <= found.high)).mean()
    assert covered >= 0.93  # 0.939 to 0.992 were seen


@pytest.mark.parametrize("alike", [0.5, 3])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_interval_of_what_is_above_chance_holds_nothing_as_often_as_it_says(
    share: float, alike: float
) -> None:
    found = ratio_excess(drawn(share, alike, seed=1))
    assert ((found.low <= 0) & (found.high >= 0)).mean() >= 0.93
    assert (found.p <= 0.05).mean() <= 0.08  # one-sided: 0.064 were seen where chance is 0.9
    assert (found.p <= 0.001).mean() <= 0.006


def test_an_interval_that_ignores_the_sentences_is_found_out() -> None:
    sums = drawn(0.5, 0.5)
    alone = sums.copy()  # every answer a sentence of its own
    h = sums[:, 1]
    n = sums[:, 2]
    for term, value in (("1", n), ("hh", h), ("hn", h), ("nn", n)):
        alone[:, TERMS.index(term)] = value
    found = ratio_interval(alone)
    assert ((found.low <= 0.5) & (found.high >= 0.5)).mean() < 0.85


@pytest.mark.parametrize("seed", range(6))
def test_a_share_and_its_interval_equal_a_slow_derivation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    asked = rng.integers(0, 5, 12)
    hits = np.zeros(12, int) if seed == 0 else asked if seed == 1 else rng.binomial(asked, 0.3)
    sums = ratio_sums(hits.astype(float), asked.astype(float), 0.1 * asked)
    found = ratio_interval(sums, 0.9)
    want = reference.clustered_share(hits.tolist(), asked.tolist(), 0.9)
    np.testing.assert_allclose([float(v) for v in found], want, atol=1e-9)


def test_what_is_above_chance_equals_the_made_up_sentences_written_out() -> None:
    rng = np.random.default_rng(3)
    n = rng.integers(1, 6, 9).astype(float)
    h = rng.binomial(n.astype(int), 0.6).astype(float)
    c = rng.uniform(0, 0.5, 9) * n
    found = ratio_excess(ratio_sums(h, n, c))
    mean = n.mean()
    d = np.append(h - c, [mean, -mean])
    m = np.append(n, [mean, mean])
    centre = d.sum() / m.sum()
    rest = d - centre * m
    error = np.sqrt(11 / 10 * (rest**2).sum()) / m.sum()
    from scipy.stats import t

    assert float(found.difference) == pytest.approx((h - c).sum() / n.sum())
    assert float(found.low) == pytest.approx(centre - t.ppf(0.975, 10) * error)
    assert float(found.high) == pytest.approx(centre + t.ppf(0.975, 10) * error)
    assert float(found.p) == pytest.approx(t.sf(centre / error, 10))


def test_sums_of_parts_add_up_and_a_sentence_without_an_answer_does_not_count() -> None:
    rng = np.random.default_rng(4)
    n = np.array([3.0, 0, 2, 5, 0, 1])
    h = rng.binomial(n.astype(int), 0.5, (4, 6)).astype(float)
    c = 0.25 * n
    whole = ratio_sums(h, n, c)
    parts = ratio_sums(h[:, :2], n[:2], c[:2]) + ratio_sums(h[:, 2:], n[2:], c[2:])
    np.testing.assert_array_equal(whole, parts)
    assert (whole[:, 0] == 4).all()


def test_a_few_sentences_that_agree_are_no_certainty() -> None:
    three = ratio_sums(np.array([4.0, 5, 3]), np.array([4.0, 5, 3]), np.array([0.4, 0.5, 0.3]))
    share = ratio_interval(three)
    excess = ratio_excess(three)
    assert float(share.share) == 1.0
    assert float(share.high) == 1.0
    assert float(share.low) < 0.5
    assert float(excess.p) > 0.01
    none = ratio_interval(ratio_sums(np.zeros(40), np.ones(40), np.zeros(40)))
    assert 0 < float(none.high) < 0.1


def test_one_sentence_has_an_interval_and_none_has_no_number() -> None:
    one = ratio_interval(ratio_sums(np.array([3.0]), np.array([6.0]), np.array([1.0])))
    assert 0 <= float(one.low) < 0.5 < float(one.high) <= 1
    nothing = ratio_sums(np.zeros(2), np.zeros(2), np.zeros(2))
    assert np.isnan([*ratio_interval(nothing), *ratio_excess(nothing)]).all()
