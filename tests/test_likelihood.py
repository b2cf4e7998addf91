"""Log-probability of the right translations: against a slow one, paired, and whether its intervals hold the truth."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from reference import log_probabilities
from scipy.stats import binom
from support.expected_errors import raises
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.evaluation import Evaluator, Likelihood, gain, likelihood
from headlab.evaluation import generation as module
from headlab.hooks import gated
from headlab.masks import Mask
from headlab.tasks import Example, Task

ROWS = [("w5 w6", "w7"), ("w8", "w9 w10 w11"), ("w5 w12 w13", "w14 w6")]
TASK = Task(
    "made-up",
    (),
    ("aa-bb",),
    False,
    lambda *_: [Example(str(n), a, target=b) for n, (a, b) in enumerate(ROWS)],
)


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    return Evaluator(tiny_model("marian", tokenizer=tiny_tokenizer()), TASK, "aa-bb")


@pytest.fixture(scope="module")
def mask(evaluator: Evaluator) -> Mask:
    kept = np.ones(evaluator.model.grid.size, bool)
    kept[[0, 5, 9, 18]] = False
    return Mask(evaluator.model.grid, kept)


def test_it_is_that_of_the_tokens_one_by_one(evaluator: Evaluator, mask: Mask):
    model = evaluator.model
    for gates in (None, mask):
        kept = np.ones(model.grid.size, bool) if gates is None else gates.kept
        slow = []
        for source, target in ROWS:
            ids = model.tokenizer(source, return_tensors="pt")["input_ids"]
            asked = model.tokenizer(target)["input_ids"]
            with gated(model, model.grid.gates(kept)):
                slow += log_probabilities(
                    model.module, ids, [model.module.config.decoder_start_token_id], asked
                )
        found = likelihood(evaluator, gates)
        assert found.nats == pytest.approx(np.array(slow), abs=1e-9)
        assert found.mean == pytest.approx(np.mean(slow))
        assert found.low < found.mean < found.high < 0
    assert len(set(found.groups)) == 3


def test_a_gain_is_paired_and_of_the_same_answers(evaluator: Evaluator, mask: Mask):
    whole = likelihood(evaluator)
    fewer = likelihood(evaluator, mask)
    found = gain(whole, fewer)
    assert found.difference == pytest.approx(fewer.mean - whole.mean)
    assert found.low <= found.difference <= found.high
    assert gain(whole, whole).difference == 0 < gain(whole, whole).high
    assert likelihood(evaluator, mask, ablation="mean").mean != fewer.mean
    with raises("likelihood.other_answers"):
        gain(whole, replace(fewer, groups=fewer.groups[::-1]))


def test_texts_with_one_label_have_one_answer_each():
    found = likelihood(Evaluator(tiny_model("bert", tokenizer=tiny_tokenizer()), tiny_task(), "xx"))
    assert len(found.nats) == 24
    assert len(set(found.groups)) == 12
    assert found.record()["answers"] == 24


def test_intervals_hold_the_truth_as_often_as_they_promise(monkeypatch: pytest.MonkeyPatch):
    """Sentences of several tokens, of which some are harder than others; what is asked is the mean over tokens."""
    runs = 200
    sentences = 60
    missed = np.zeros(2, int)
    for run in range(runs):
        rng = np.random.default_rng([5, run])
        lengths = rng.integers(2, 9, sentences)
        hard = np.repeat(rng.gamma(2.0, 0.5, sentences), lengths)  # mean 1
        before = -hard * rng.exponential(1.0, lengths.sum())
        after = before - 0.1 + np.repeat(rng.normal(0, 0.2, sentences), lengths)
        pair = [stub(nats, lengths, monkeypatch, run) for nats in (before, after)]
        missed[0] += not pair[0].low <= -1 <= pair[0].high
        found = gain(*pair, seed=run, draws=300)
        missed[1] += not found.low <= -0.1 <= found.high
    assert missed.max() <= binom.ppf(1 - 1e-4, runs, 0.06)


def stub(
    nats: np.ndarray, lengths: np.ndarray, monkeypatch: pytest.MonkeyPatch, seed: int
) -> Likelihood:
    monkeypatch.setattr(module, "answer_log_probabilities", lambda *_: (nats, 50))
    monkeypatch.setattr(module, "full_mask", lambda _: None)
    examples = [Example(str(n), "") for n in range(len(lengths))]
    given = SimpleNamespace(
        examples=examples, inputs=SimpleNamespace(units=lengths), model=SimpleNamespace(grid=None)
    )
    return likelihood(given, seed=seed, draws=300)  # type: ignore[arg-type]
