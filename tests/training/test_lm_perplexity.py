"""Perplexity of held-out text: every token judged once, passages, intervals that cover."""

from __future__ import annotations

import json

import numpy as np
import pytest
import reference
import torch
from scipy.stats import ttest_1samp
from support.expected_errors import raises
from support.synthetic_text import corpus, tiny_lm
from torch.nn.functional import cross_entropy

from headlab.training.lm_perplexity import passages, perplexity, perplexity_ratio, token_nats
from headlab.training.lm_text import Corpus


@pytest.mark.parametrize("tokens", [5, 8, 30, 37])
def test_each_token_is_judged_once_with_half_a_window_before_it(tokens: int) -> None:
    model = tiny_lm((2, 2))
    given = corpus(tokens)
    block = 8
    found = token_nats(model, given, block)
    for t in range(tokens):
        # the window in whose second half the token stands, or the first one
        start = 0 if t < block else 4 * (t // 4 - 1)
        ids = torch.as_tensor(given.ids[start : t + 2])[None]
        with torch.no_grad():
            logits = model(ids[:, :-1]).logits[0, -1]
        assert found[t] == pytest.approx(float(cross_entropy(logits.float(), ids[0, -1])), abs=1e-5)


def test_passages_are_whole_lines_and_lose_nothing() -> None:
    given = corpus(1003, line=7)
    nats = np.random.default_rng(1).random(given.predicted_tokens)
    found = passages(given, nats, 50)
    assert found.sum(axis=0) == pytest.approx([nats.sum(), 1003, 1003])
    assert 15 <= len(found) <= 21
    assert (found[:, 2] % 7 == 0)[:-1].all()
    # cut finer than asked, or there would be one passage
    assert len(passages(given, nats, 10**6)) >= 20


def test_a_text_of_few_long_lines_is_cut_within_them() -> None:
    given = Corpus(np.zeros(1001, dtype=np.int64), np.array([600, 400]), np.array([300, 100]))
    nats = np.random.default_rng(1).random(1000)
    found = passages(given, nats)
    assert found[:, 2].tolist() == [50] * 20
    assert found[:, 1].tolist() == [25] * 12 + [12.5] * 8
    np.testing.assert_allclose(found[:, 0], nats.reshape(20, 50).sum(axis=1))
    tiny = Corpus(np.zeros(8, dtype=np.int64), np.array([7]), np.array([7]))
    assert passages(tiny, np.ones(7)).tolist() == [[1, 1, 1]] * 7


def test_perplexity_and_its_interval_are_those_of_passages_left_out_one_by_one() -> None:
    rng = np.random.default_rng(2)
    words = rng.integers(50, 100, 25).astype(float)
    sums = np.stack([words * rng.normal(4, 0.4, 25), words, 1.3 * words], axis=1)
    found = perplexity(sums)
    assert found.word == pytest.approx(np.exp(sums[:, 0].sum() / words.sum()))
    assert found.token == pytest.approx(found.word ** (1 / 1.3))
    assert (found.words, found.passages) == (words.sum(), 25)
    wanted = reference.perplexity_interval(sums[:, 0], words)
    assert (found.low, found.high) == pytest.approx(wanted, rel=0.01)


def test_of_passages_of_one_length_the_interval_is_students() -> None:
    levels = np.random.default_rng(4).normal(4, 0.4, 7)
    found = perplexity(np.stack([60 * levels, np.full(7, 60.0), np.full(7, 60.0)], axis=1))
    wanted = np.exp(ttest_1samp(levels, 0).confidence_interval(0.95))
    assert (found.low, found.high) == pytest.approx(tuple(wanted))


@pytest.mark.parametrize("count", [3, 5, 10, 20, 60])
def test_the_interval_covers_the_true_perplexity_and_that_of_a_ratio_the_true_ratio(
    count: int,
) -> None:
    rng = np.random.default_rng(3)
    times = 600
    held = np.zeros(2)
    for _ in range(times):
        words = rng.integers(80, 120, count).astype(float)
        level = rng.normal(4, 0.3, count)
        before = np.stack([words * level, words, words], axis=1)
        after = np.stack([words * (level + rng.normal(0.05, 0.02, count)), words, words], axis=1)
        one = perplexity(before)
        both = perplexity_ratio(before, after)
        assert one.low is not None
        assert one.high is not None
        assert both.low is not None
        assert both.high is not None
        held += [one.low <= np.exp(4) <= one.high, both.low <= np.exp(0.05) <= both.high]
    assert (held / times > 0.92).all()
    assert (held / times < 0.98).all()


def test_of_two_passages_there_is_no_interval() -> None:
    one = perplexity(np.array([[8.0, 2, 3], [9.0, 2, 3]]))
    assert one.word == pytest.approx(np.exp(17 / 4))
    assert (one.low, one.high) == (None, None)


def test_a_script_without_spaces_has_a_perplexity_a_token_where_that_of_a_word_is_beyond_numbers() -> (
    None
):
    found = perplexity(np.array([[8000.0, 2, 1000]] * 20))
    assert found[:4] == (None, None, None, pytest.approx(np.exp(8)))
    assert found.nats == 4000
    json.dumps(found, allow_nan=False)


def test_models_judged_on_other_text_are_not_compared() -> None:
    one = np.ones((4, 3))
    with raises("lm.other_text"):
        perplexity_ratio(one, 2 * one)
