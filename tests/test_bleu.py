"""BLEU against its definition and sacrebleu, and whether its intervals hold what they promise."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest
import reference
from sacrebleu.metrics.bleu import BLEU
from scipy.stats import binom
from support.expected_errors import raises

from headlab.evaluation import bleu as module
from headlab.evaluation.bleu import bleu, corpus_bleu, gain, sacrebleu_metric, sentence_counts

WORDS = ["ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben"]


def made_up_corpus(
    rng: np.random.Generator,
    n: int,
    wrong: float,
) -> tuple[list[str], list[str]]:
    """Texts and references of made-up words.

    In the texts some words are exchanged, some dropped and some added.

    Args:
        rng: The generator of random numbers.
        n: Number of sentences.
        wrong: Share of the words that are exchanged.
    """
    texts = []
    references = []
    for _ in range(n):
        word_count = rng.integers(1, 12)
        words = list(rng.choice(WORDS, word_count))
        references.append(" ".join(words))
        text_words = []
        for word in words:
            if rng.random() > 0.05:
                if rng.random() < wrong:
                    text_words.append(str(rng.choice(WORDS)))
                else:
                    text_words.append(word)
        added_count = rng.integers(0, 2)
        text_words += list(rng.choice(WORDS, added_count))
        texts.append(" ".join(text_words))
    return texts, references


@pytest.mark.parametrize("wrong", [0.0, 0.2, 0.6, 0.95])
@pytest.mark.parametrize("n", [1, 2, 40])
def test_bleu_is_sacrebleu_s_and_that_of_its_definition(n: int, wrong: float):
    for seed in range(4):
        rng = np.random.default_rng([seed, n])
        texts, references = made_up_corpus(rng, n, wrong)
        score = bleu(texts, references, draws=20).score
        sacrebleu_score = BLEU().corpus_score(texts, [references]).score
        expected_score = reference.bleu(texts, references)
        assert score == pytest.approx(sacrebleu_score, abs=1e-9)
        assert score == pytest.approx(expected_score, abs=1e-9)


def test_many_corpora_are_counted_at_once():
    rng = np.random.default_rng(0)
    texts, references = made_up_corpus(rng, 6, 0.3)
    counts, _ = sentence_counts(texts, references)
    expected_scores = [float(corpus_bleu(row)) for row in counts]
    assert corpus_bleu(counts).tolist() == expected_scores


def test_the_signature_says_how_words_were_cut():
    german = bleu(["Ein Hund."], ["Ein Hund."], draws=5)
    chinese = bleu(["一只狗"], ["一只狗"], language="zh", draws=5)
    assert "|tok:13a|" in german.signature
    assert "|tok:zh|" in chinese.signature


def test_a_country_or_a_script_changes_nothing_of_how_words_are_cut():
    corpus = (["一只狗在跑"], ["一只黑狗在跑"])
    by_language = bleu(*corpus, language="zh", draws=5)
    for tag in ("zh-CN", "zh_TW", "ZH", "zho_Hans", "cmn"):
        by_tag = bleu(*corpus, language=tag, draws=5)
        assert by_tag.score == by_language.score
        assert by_tag.signature == by_language.signature
    swiss_german = bleu(["Ein Hund."], ["Ein Hund."], language="de-CH", draws=5)
    assert "|tok:13a|" in swiss_german.signature


def test_nothing_right_is_0_and_all_right_is_100_but_neither_is_certain():
    texts = ["a b c d"] * 9
    nothing_right = bleu(texts, ["e f g h"] * 9)
    all_right = bleu(texts, texts)
    assert nothing_right.score == 0
    assert all_right.score == pytest.approx(100)
    assert nothing_right.high > 0
    assert all_right.low < 100
    empty_texts = bleu([""] * 3, ["a b"] * 3)
    assert empty_texts.score == 0


def test_systems_that_write_the_same_differ_by_0_with_an_interval_around_it():
    rng = np.random.default_rng(2)
    texts, references = made_up_corpus(rng, 30, 0.3)
    first_bleu = bleu(texts, references)
    second_bleu = bleu(texts, references)
    no_gain = gain(first_bleu, second_bleu)
    assert no_gain.difference == 0
    assert no_gain.low < 0 < no_gain.high
    assert no_gain.p > 0.5


def test_a_better_system_is_found_to_be_better_and_pairing_makes_the_interval_narrow():
    rng = np.random.default_rng(1)
    texts, references = made_up_corpus(rng, 150, 0.5)
    better_texts = []
    for text, reference_text in zip(texts, references, strict=True):
        if rng.random() < 0.3:
            better_texts.append(reference_text)
        else:
            better_texts.append(text)
    worse_bleu = bleu(texts, references)
    better_bleu = bleu(better_texts, references)
    improvement = gain(worse_bleu, better_bleu)
    difference = better_bleu.score - worse_bleu.score
    assert improvement.difference == pytest.approx(difference)
    assert 0 < improvement.low < improvement.difference < improvement.high
    assert improvement.p < 0.01
    width_of_worse = worse_bleu.high - worse_bleu.low
    width_of_better = better_bleu.high - better_bleu.low
    assert improvement.high - improvement.low < width_of_worse + width_of_better
    loss = gain(better_bleu, worse_bleu)
    assert loss.difference == -improvement.difference
    assert loss.p < 0.01


def test_the_same_seed_gives_the_same_interval_and_groups_make_it_wider():
    rng = np.random.default_rng(3)
    texts, references = made_up_corpus(rng, 20, 0.4)
    copies = (
        [text for text in texts for _ in range(4)],
        [reference for reference in references for _ in range(4)],
    )
    groups = [str(row // 4) for row in range(80)]
    without_groups = bleu(*copies, seed=5)
    with_groups = bleu(*copies, seed=5, groups=groups)
    second = bleu(*copies, seed=5, groups=groups)
    assert with_groups.low == second.low
    assert with_groups.high == second.high
    width = without_groups.high - without_groups.low
    width_with_groups = with_groups.high - with_groups.low
    assert width_with_groups > 1.5 * width


def random_counts(
    rng: np.random.Generator,
    words: np.ndarray,
    mean: float,
) -> np.ndarray:
    """Counts of sentences whose words are right with a probability of each sentence's own.

    Args:
        rng: The generator of random numbers.
        words: Number of words of each sentence.
        mean: Mean of the probabilities over sentences.

    Returns:
        Int [sentence, 10], as `sentence_counts` gives them.
    """
    first_shape = 8 * mean
    second_shape = 8 * (1 - mean)
    probabilities = rng.beta(first_shape, second_shape, len(words))
    orders = np.arange(4)
    grams = words[:, None] - orders
    exponents = 1 + 0.8 * orders
    hits = rng.binomial(grams, probabilities[:, None] ** exponents)
    lengths = words[:, None]
    counts = np.concatenate([lengths, lengths, hits, grams], axis=1)
    return counts.astype(np.int64)


def test_intervals_hold_the_truth_as_often_as_they_promise(monkeypatch: pytest.MonkeyPatch):
    runs = 200
    rng = np.random.default_rng(4)
    population = rng.integers(4, 16, 200_000)
    worse_counts = random_counts(rng, population, 0.6)
    better_counts = random_counts(rng, population, 0.65)
    true_worse = float(corpus_bleu(worse_counts.sum(axis=0)))
    true_better = float(corpus_bleu(better_counts.sum(axis=0)))
    true_gain = true_better - true_worse
    score_misses = 0
    gain_misses = 0
    for seed in range(runs):
        words = rng.integers(4, 16, 60)
        worse_counts = random_counts(rng, words, 0.6)
        better_counts = random_counts(rng, words, 0.65)
        counts = iter([worse_counts, better_counts])

        def next_counts(
            *_: object, counts: Iterator[np.ndarray] = counts
        ) -> tuple[np.ndarray, str]:
            return next(counts), "made up"

        monkeypatch.setattr(module, "sentence_counts", next_counts)
        worse_bleu = bleu([], [], draws=300, seed=seed)
        better_bleu = bleu([], [], draws=300, seed=seed)
        improvement = gain(worse_bleu, better_bleu, draws=300, seed=seed)
        score_misses += not worse_bleu.low <= true_worse <= worse_bleu.high
        gain_misses += not improvement.low <= true_gain <= improvement.high
    highest_count = binom.ppf(1 - 1e-4, runs, 0.05)
    assert max(score_misses, gain_misses) <= highest_count


def test_what_cannot_be_compared_is_refused(monkeypatch: pytest.MonkeyPatch):
    with raises("bleu.other_sentences"):
        two_words = bleu(["a b"], ["a b"])
        three_words = bleu(["a b"], ["a b c"])
        gain(two_words, three_words)
    with raises("bleu.counts_differ"):
        bleu([], [])
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
    with raises("package.sacrebleu_missing"):
        bleu(["a"], ["a"])
    with raises("package.sacrebleu_missing"):
        sacrebleu_metric("de")


def test_a_record_says_what_was_counted():
    record = bleu(["a b c d"], ["a b c d"]).record()
    assert record["bleu"] == pytest.approx(100)
    assert record["sentences"] == 1
