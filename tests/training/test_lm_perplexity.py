"""Perplexity of held-out text: every token judged once, passages, intervals that cover."""

from __future__ import annotations

import json

import numpy as np
import pytest
import reference
import torch
from scipy.stats import ttest_1samp
from support.expected_errors import raises
from support.synthetic_text import random_corpus, tiny_lm
from torch.nn.functional import cross_entropy

from headlab.training.lm_perplexity import passages, perplexity, perplexity_ratio, token_nats
from headlab.training.lm_text import Corpus


@pytest.mark.parametrize("tokens", [5, 8, 30, 37])
def test_each_token_is_judged_once_with_half_a_window_before_it(tokens: int) -> None:
    model = tiny_lm((2, 2))
    text = random_corpus(tokens)
    block = 8
    nats = token_nats(model, text, block)
    for token in range(tokens):
        # The window in whose second half the token stands, or the first one.
        start = 0
        if token >= block:
            start = 4 * (token // 4 - 1)
        window = text.ids[start : token + 2]
        ids = torch.as_tensor(window)[None]
        with torch.no_grad():
            output = model(ids[:, :-1])
        last_logits = output.logits[0, -1].float()
        want = float(cross_entropy(last_logits, ids[0, -1]))
        assert nats[token] == pytest.approx(want, abs=1e-5)


def test_passages_are_whole_lines_and_lose_nothing() -> None:
    text = random_corpus(1003, line=7)
    nats = np.random.default_rng(1).random(text.predicted_tokens)
    sums = passages(text, nats, 50)
    totals = sums.sum(axis=0)
    assert totals == pytest.approx([nats.sum(), 1003, 1003])
    assert 15 <= len(sums) <= 21
    tokens = sums[:, 2]
    tokens_of_whole_lines = tokens[:-1]
    assert (tokens_of_whole_lines % 7 == 0).all()
    # Passages as long as requested would make one; the text is cut into shorter ones.
    shorter_sums = passages(text, nats, 10**6)
    assert len(shorter_sums) >= 20


def test_a_text_of_few_long_lines_is_cut_within_them() -> None:
    text = Corpus(
        ids=np.zeros(1001, dtype=np.int64),
        line_tokens=np.array([600, 400]),
        line_words=np.array([300, 100]),
    )
    nats = np.random.default_rng(1).random(1000)
    passage_nats, words, tokens = passages(text, nats).T
    assert tokens.tolist() == [50] * 20
    assert words.tolist() == [25] * 12 + [12.5] * 8
    expected_nats = nats.reshape(20, 50).sum(axis=1)
    np.testing.assert_allclose(passage_nats, expected_nats)
    short_text = Corpus(
        ids=np.zeros(8, dtype=np.int64),
        line_tokens=np.array([7]),
        line_words=np.array([7]),
    )
    short_sums = passages(short_text, np.ones(7))
    single_token = [1, 1, 1]
    assert short_sums.tolist() == [single_token] * 7


def test_perplexity_and_its_interval_are_those_of_passages_left_out_one_by_one() -> None:
    rng = np.random.default_rng(2)
    words = rng.integers(50, 100, 25).astype(float)
    nats = words * rng.normal(4, 0.4, 25)
    sums = passage_sums(nats, words, 1.3 * words)
    result = perplexity(sums)
    nats_of_a_word = nats.sum() / words.sum()
    assert result.word == pytest.approx(np.exp(nats_of_a_word))
    assert result.token == pytest.approx(result.word ** (1 / 1.3))
    assert result.words == words.sum()
    assert result.passages == 25
    want = reference.perplexity_interval(nats, words)
    interval = (result.low, result.high)
    assert interval == pytest.approx(want, rel=0.01)


def passage_sums(
    nats: np.ndarray,
    words: np.ndarray,
    tokens: np.ndarray,
) -> np.ndarray:
    """One row a passage, as `passages` gives them: nats, words and tokens."""
    return np.stack([nats, words, tokens], axis=1)


def test_of_passages_of_one_length_the_interval_is_students() -> None:
    rng = np.random.default_rng(4)
    nats_a_word = rng.normal(4, 0.4, 7)
    words = np.full(7, 60.0)
    sums = passage_sums(words * nats_a_word, words, words)
    result = perplexity(sums)
    t_test = ttest_1samp(nats_a_word, 0)
    want = np.exp(t_test.confidence_interval(0.95))
    interval = (result.low, result.high)
    assert interval == pytest.approx(tuple(want))


@pytest.mark.parametrize("count", [3, 5, 10, 20, 60])
def test_the_interval_covers_the_true_perplexity_and_that_of_a_ratio_the_true_ratio(
    count: int,
) -> None:
    rng = np.random.default_rng(3)
    repetitions = 600
    true_perplexity = np.exp(4)
    true_ratio = np.exp(0.05)
    perplexities_covered = 0
    ratios_covered = 0
    for _ in range(repetitions):
        words = rng.integers(80, 120, count).astype(float)
        nats_a_word = rng.normal(4, 0.3, count)
        worse_nats_a_word = nats_a_word + rng.normal(0.05, 0.02, count)
        sums = passage_sums(words * nats_a_word, words, words)
        worse_sums = passage_sums(words * worse_nats_a_word, words, words)
        result = perplexity(sums)
        ratio = perplexity_ratio(sums, worse_sums)
        assert result.low is not None
        assert result.high is not None
        assert ratio.low is not None
        assert ratio.high is not None
        perplexities_covered += result.low <= true_perplexity <= result.high
        ratios_covered += ratio.low <= true_ratio <= ratio.high
    assert 0.92 < perplexities_covered / repetitions < 0.98
    assert 0.92 < ratios_covered / repetitions < 0.98


def test_of_two_passages_there_is_no_interval() -> None:
    sums = np.array(
        [
            [8.0, 2, 3],
            [9.0, 2, 3],
        ]
    )
    result = perplexity(sums)
    assert result.word == pytest.approx(np.exp(17 / 4))
    assert result.low is None
    assert result.high is None


def test_where_the_perplexity_of_a_word_is_beyond_numbers_there_is_one_of_a_token() -> None:
    """As in a script without spaces."""
    sums = np.array([[8000.0, 2, 1000]] * 20)
    result = perplexity(sums)
    assert result[:3] == (None, None, None)
    assert result[3] == pytest.approx(np.exp(8))
    assert result.nats == 4000
    json.dumps(result, allow_nan=False)


def test_models_judged_on_other_text_are_not_compared() -> None:
    sums = np.ones((4, 3))
    sums_of_other_text = 2 * sums
    with raises("lm.other_text"):
        perplexity_ratio(sums, sums_of_other_text)
