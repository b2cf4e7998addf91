"""BLEU against its definition and sacrebleu, and whether its intervals hold what they promise."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import reference
from sacrebleu.metrics.bleu import BLEU
from scipy.stats import binom
from support.expected_errors import raises

from headlab.evaluation import Bleu
from headlab.evaluation import bleu as module
from headlab.evaluation.bleu import bleu, corpus_bleu, gain, sacrebleu_metric, sentence_counts

WORDS = ["ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben"]


def sides(rng: np.random.Generator, n: int, wrong: float) -> tuple[list[str], list[str]]:
    """References of made-up words, and texts with some words exchanged, some dropped and some more."""
    texts = []
    references = []
    for _ in range(n):
        words = list(rng.choice(WORDS, rng.integers(1, 12)))
        references.append(" ".join(words))
        drawn = [
            str(rng.choice(WORDS)) if rng.random() < wrong else word
            for word in words
            if rng.random() > 0.05
        ]
        texts.append(" ".join(drawn + list(rng.choice(WORDS, rng.integers(0, 2)))))
    return texts, references


@pytest.mark.parametrize("wrong", [0.0, 0.2, 0.6, 0.95])
@pytest.mark.parametrize("n", [1, 2, 40])
def test_bleu_is_sacrebleu_s_and_that_of_its_definition(n: int, wrong: float):
    for seed in range(4):
        texts, references = sides(np.random.default_rng([seed, n]), n, wrong)
        found = bleu(texts, references, draws=20)
        assert found.score == pytest.approx(
            BLEU().corpus_score(texts, [references]).score, abs=1e-9
        )
        assert found.score == pytest.approx(reference.bleu(texts, references), abs=1e-9)


def test_many_corpora_are_counted_at_once():
    counts, _ = sentence_counts(*sides(np.random.default_rng(0), 6, 0.3))
    assert corpus_bleu(counts).tolist() == [float(corpus_bleu(row)) for row in counts]


def test_the_signature_says_how_words_were_cut():
    assert "|tok:13a|" in bleu(["Ein Hund."], ["Ein Hund."], draws=5).signature
    assert "|tok:zh|" in bleu(["一只狗"], ["一只狗"], language="zh", draws=5).signature


def test_a_country_or_a_script_changes_nothing_of_how_words_are_cut():
    texts = (["一只狗在跑"], ["一只黑狗在跑"])
    plain = bleu(*texts, language="zh", draws=5)
    for language in ("zh-CN", "zh_TW", "ZH", "zho_Hans", "cmn"):
        found = bleu(*texts, language=language, draws=5)
        assert (found.score, found.signature) == (plain.score, plain.signature)
    assert "|tok:13a|" in bleu(["Ein Hund."], ["Ein Hund."], language="de-CH", draws=5).signature


def test_nothing_right_is_0_and_all_right_is_100_but_neither_is_certain():
    none = bleu(["a b c d"] * 9, ["e f g h"] * 9)
    whole = bleu(["a b c d"] * 9, ["a b c d"] * 9)
    assert none.score == 0
    assert whole.score == pytest.approx(100)
    assert none.high > 0
    assert whole.low < 100
    assert bleu([""] * 3, ["a b"] * 3).score == 0


def test_systems_that_write_the_same_differ_by_0_and_by_how_much_is_not_certain():
    texts, references = sides(np.random.default_rng(2), 30, 0.3)
    one = bleu(texts, references)
    same = gain(one, bleu(texts, references))
    assert same.difference == 0
    assert same.low < 0 < same.high
    assert same.p > 0.5


def test_a_better_system_is_found_to_be_better_and_pairing_makes_the_interval_narrow():
    rng = np.random.default_rng(1)
    texts, references = sides(rng, 150, 0.5)
    better = [r if rng.random() < 0.3 else t for t, r in zip(texts, references, strict=True)]
    before = bleu(texts, references)
    after = bleu(better, references)
    found = gain(before, after)
    assert found.difference == pytest.approx(after.score - before.score)
    assert 0 < found.low < found.difference < found.high
    assert found.p < 0.01
    assert found.high - found.low < (before.high - before.low) + (after.high - after.low)
    back = gain(after, before)
    assert back.difference == -found.difference
    assert back.p < 0.01


def test_the_same_seed_gives_the_same_interval_and_groups_make_it_wider():
    texts, references = sides(np.random.default_rng(3), 20, 0.4)
    twice = (
        [text for text in texts for _ in range(4)],
        [text for text in references for _ in range(4)],
    )
    groups = [str(row // 4) for row in range(80)]
    alone = bleu(*twice, seed=5)
    grouped = bleu(*twice, seed=5, groups=groups)
    assert (grouped.low, grouped.high) == (lambda b: (b.low, b.high))(
        bleu(*twice, seed=5, groups=groups)
    )
    assert grouped.high - grouped.low > 1.5 * (alone.high - alone.low)


def drawn(rng: np.random.Generator, words: np.ndarray, right: float) -> np.ndarray:
    """Counts of sentences whose words are right with a chance of their own, int [sentence, 10]."""
    own = rng.beta(8 * right, 8 * (1 - right), len(words))
    grams = np.stack([words - order for order in range(4)], axis=1)
    hits = rng.binomial(grams, own[:, None] ** (1 + 0.8 * np.arange(4)))
    return np.concatenate([words[:, None], words[:, None], hits, grams], axis=1).astype(np.int64)


def test_intervals_hold_the_truth_as_often_as_they_promise(monkeypatch: pytest.MonkeyPatch):
    runs = 200
    rng = np.random.default_rng(4)
    many = rng.integers(4, 16, 200_000)
    truth, better = (
        float(corpus_bleu(drawn(rng, many, right).sum(axis=0))) for right in (0.6, 0.65)
    )
    missed = [0, 0]
    for run in range(runs):
        words = rng.integers(4, 16, 60)
        made = [drawn(rng, words, right) for right in (0.6, 0.65)]
        given = iter(made)
        monkeypatch.setattr(
            module, "sentence_counts", lambda *_, given=given: (next(given), "made up")
        )
        before, after = (bleu([], [], draws=300, seed=run) for _ in made)
        found = gain(before, after, draws=300, seed=run)
        missed[0] += not before.low <= truth <= before.high
        missed[1] += not found.low <= better - truth <= found.high
    assert max(missed) <= binom.ppf(1 - 1e-4, runs, 0.05)


def test_what_cannot_be_compared_is_refused(monkeypatch: pytest.MonkeyPatch):
    one = bleu(["a b"], ["a b"])
    other = bleu(["a b"], ["a b c"])
    with raises("bleu.other_sentences"):
        gain(one, other)
    with raises("bleu.counts_differ"):
        bleu([], [])
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
    with raises("package.sacrebleu_missing"):
        bleu(["a"], ["a"])
    with raises("package.sacrebleu_missing"):
        sacrebleu_metric("de")


def test_a_record_says_what_was_counted():
    found: Bleu = bleu(["a b c d"], ["a b c d"])
    assert found.record()["bleu"] == pytest.approx(100)
    assert found.record()["sentences"] == 1
