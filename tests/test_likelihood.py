"""Log-probability of the right translations: against a slow computation, and paired.

Its intervals hold the truth as often as they promise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from reference import log_probabilities
from scipy.stats import binom
from support.expected_errors import raises
from support.likelihood_tasks import CHOICES, TEXTS
from support.saved_models import save_family
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

import headlab
from headlab.cli.run import OK, main
from headlab.evaluation import Evaluator, Likelihood, gain, likelihood, right_by_bytes
from headlab.evaluation import generation as module
from headlab.hooks import gated
from headlab.masks import Mask
from headlab.tasks import Example, Task

PAIRS = [("w5 w6", "w7"), ("w8", "w9 w10 w11"), ("w5 w12 w13", "w14 w6")]
EXAMPLES = [Example(str(n), source, target=target) for n, (source, target) in enumerate(PAIRS)]
TASK = Task("made-up", (), ("aa-bb",), False, lambda *_: EXAMPLES)


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    return Evaluator(tiny_model("marian", tokenizer=tiny_tokenizer()), TASK, "aa-bb")


@pytest.fixture(scope="module")
def mask(evaluator: Evaluator) -> Mask:
    kept_heads = np.ones(evaluator.model.grid.size, bool)
    kept_heads[[0, 5, 9, 18]] = False
    return Mask(evaluator.model.grid, kept_heads)


def test_it_is_that_of_the_tokens_one_by_one(evaluator: Evaluator, mask: Mask):
    model = evaluator.model
    start = [model.module.config.decoder_start_token_id]
    all_on = np.ones(model.grid.size, bool)
    for mask_or_none, kept_heads in ((None, all_on), (mask, mask.kept)):
        slow_nats = []
        for source, target in PAIRS:
            ids = model.tokenizer(source, return_tensors="pt")["input_ids"]
            tokens = model.tokenizer(target)["input_ids"]
            with gated(model, model.grid.gates(kept_heads)):
                slow_nats += log_probabilities(model.module, ids, start, tokens)
        result = likelihood(evaluator, mask_or_none)
        assert result.nats == pytest.approx(np.array(slow_nats), abs=1e-9)
        assert result.mean == pytest.approx(np.mean(slow_nats))
        assert result.low < result.mean < result.high < 0
        assert len(set(result.groups)) == 3


def test_a_gain_is_paired_and_of_the_same_answers(evaluator: Evaluator, mask: Mask):
    baseline = likelihood(evaluator)
    under_mask = likelihood(evaluator, mask)
    difference = gain(baseline, under_mask)
    assert difference.difference == pytest.approx(under_mask.mean - baseline.mean)
    assert difference.low <= difference.difference <= difference.high
    no_gain = gain(baseline, baseline)
    assert no_gain.difference == 0 < no_gain.high
    assert likelihood(evaluator, mask, ablation="mean").mean != under_mask.mean
    with raises("likelihood.other_answers"):
        gain(baseline, replace(under_mask, groups=under_mask.groups[::-1]))


def test_texts_with_one_label_have_one_answer_each():
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    result = likelihood(Evaluator(model, tiny_task(), "xx"))
    assert len(result.nats) == 24
    assert len(set(result.groups)) == 12
    assert result.record()["answers"] == 24


def test_intervals_hold_the_truth_as_often_as_they_promise(monkeypatch: pytest.MonkeyPatch):
    """Sentences have several tokens, and some are harder than others.

    The truth is the mean over tokens.
    """
    runs = 200
    sentences = 60
    mean_misses = 0
    gain_misses = 0
    for seed in range(runs):
        rng = np.random.default_rng([5, seed])
        lengths = rng.integers(2, 9, sentences)
        difficulty = np.repeat(rng.gamma(2.0, 0.5, sentences), lengths)  # mean 1
        baseline_nats = -difficulty * rng.exponential(1.0, lengths.sum())
        changes = np.repeat(rng.normal(0, 0.2, sentences), lengths) - 0.1
        baseline = likelihood_of(baseline_nats, lengths, monkeypatch, seed)
        under_mask = likelihood_of(baseline_nats + changes, lengths, monkeypatch, seed)
        mean_misses += not baseline.low <= -1 <= baseline.high
        difference = gain(baseline, under_mask, seed=seed, draws=300)
        gain_misses += not difference.low <= -0.1 <= difference.high
    assert max(mean_misses, gain_misses) <= binom.ppf(1 - 1e-4, runs, 0.06)


def likelihood_of(
    nats: np.ndarray, lengths: np.ndarray, monkeypatch: pytest.MonkeyPatch, seed: int
) -> Likelihood:
    """The likelihood of made-up log-probabilities of tokens, without a model."""
    monkeypatch.setattr(module, "answer_log_probabilities", lambda *_: (nats, 50))
    monkeypatch.setattr(module, "full_mask", lambda _: None)
    examples = [Example(str(n), "") for n in range(len(lengths))]
    evaluator = SimpleNamespace(
        examples=examples, inputs=SimpleNamespace(units=lengths), model=SimpleNamespace(grid=None)
    )
    return likelihood(evaluator, seed=seed, draws=300)  # type: ignore[arg-type]


def declared_task(folder: Path, columns: Sequence[str], rows: Sequence[object]) -> Path:
    """A declaration of a task in one language, with its dev examples beside it."""
    folder.mkdir()
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    (folder / "xx.dev.jsonl").write_text(lines, "utf-8")
    declaration = folder / "made-up.toml"
    declared_columns = "".join(f'{column} = "{column}"\n' for column in columns)
    declaration.write_text(
        'name = "made-up"\nformat = "jsonl"\nfiles = "{language}.{split}.jsonl"\n'
        f'languages = ["xx"]\n[columns]\n{declared_columns}',
        "utf-8",
    )
    return declaration


@pytest.fixture(scope="module")
def decoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny decoder, saved."""
    return save_family(tmp_path_factory.mktemp("decoder") / "model", "llama-lm")


@pytest.fixture
def mask_file(decoder_folder: Path, tmp_path: Path) -> Path:
    """A mask of the decoder without two of its heads."""
    model = headlab.load(str(decoder_folder))
    kept_heads = np.ones(model.grid.size, bool)
    kept_heads[[0, 3]] = False
    file = tmp_path / "mask.json"
    Mask(model.grid, kept_heads, model.identity()).save(file)
    return file


def test_the_command_prints_accuracy_by_bytes_with_and_without_a_mask(
    decoder_folder: Path, mask_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    examples = CHOICES.examples("xx", "dev", 12)
    rows = [
        {
            "context": example.text,
            "choices": [choice.strip() for choice in example.choices],
            "answer": example.label,
        }
        for example in examples
    ]
    declaration = declared_task(tmp_path / "data", ("context", "choices", "answer"), rows)
    command = ["evaluate", "--model", str(decoder_folder), "--task", str(declaration)]
    evaluator = Evaluator(headlab.load(str(decoder_folder)), headlab.task(declaration), "xx")
    share = right_by_bytes(evaluator).mean()

    assert main([*command, "--json"]) == OK
    figures = json.loads(capsys.readouterr().out)["languages"]["xx"]
    low = figures["accuracy_normalised_low"]
    high = figures["accuracy_normalised_high"]
    assert low <= share <= high
    assert figures["accuracy_normalised"] == pytest.approx(share)
    assert "normalised" not in figures
    assert main(command) == OK
    assert f"accuracy by log-probability per byte {share:.1%}" in capsys.readouterr().out

    command += ["--mask", str(mask_file)]
    assert main([*command, "--json"]) == OK
    figures = json.loads(capsys.readouterr().out)["languages"]["xx"]
    difference = figures["normalised"]
    assert difference["baseline"] == pytest.approx(share)
    expected_difference = figures["accuracy_normalised"] - share
    assert difference["difference"] == pytest.approx(expected_difference)
    assert main(command) == OK
    line = capsys.readouterr().out.splitlines()[-1]
    assert f"per byte {figures['accuracy_normalised']:.1%}" in line
    assert f"untouched {share:.1%}" in line
    assert f"difference {expected_difference:+.1%} [" in line


def test_the_command_prints_bits_per_byte_of_a_text(
    decoder_folder: Path, mask_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    rows = [{"text": example.target.strip()} for example in TEXTS.examples("xx", "dev", 12)]
    declaration = declared_task(tmp_path / "data", ("text",), rows)
    command = ["evaluate", "--model", str(decoder_folder), "--task", str(declaration)]
    command += ["--mask", str(mask_file)]
    assert main([*command, "--json"]) == OK
    figures = json.loads(capsys.readouterr().out)["languages"]["xx"]["log_probability"]
    assert main(command) == OK
    accuracy, log_probability, rates = capsys.readouterr().out.splitlines()
    assert re.match(r"xx +\d+\.\d%  untouched .* difference .* n=\d+$", accuracy)
    assert f"log-probability {figures['log_probability']:.3f} nats a token" in log_probability
    assert f"difference {figures['difference']:+.3f} [" in log_probability
    for name, label in (("bits_per_byte", "bits per byte"), ("word_perplexity", "word perplexity")):
        low = figures[f"{name}_low"]
        high = figures[f"{name}_high"]
        assert f"{label} {figures[name]:.3f}  [{low:.3f}, {high:.3f}]" in rates
