"""Answers that a mask changes, against a plain loop over the examples."""

from __future__ import annotations

import csv
from dataclasses import astuple, replace

import numpy as np
import pytest
import torch
from support.expected_errors import raises
from support.saved_models import save_family
from support.several_answers import PAIRS, WORDS
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.cli.run import main
from headlab.core import CHANGE_KINDS
from headlab.evaluation import COLUMNS, NO_TARGET, Evaluator, changes, table
from headlab.hooks import gated
from headlab.masks import Mask
from headlab.tasks import Task


def mask_of(model):
    """The mask without the first six heads."""
    kept_heads = np.ones(model.grid.size, bool)
    kept_heads[:6] = False
    provenance = {"name": model.name, "fingerprint": model.fingerprint}
    return Mask(model.grid, kept_heads, provenance)


def one_by_one(evaluator: Evaluator, mask: Mask | None) -> list[np.ndarray]:
    """Label probabilities of every answer, one example and one pass at a time."""
    probabilities = []
    for row in range(len(evaluator.examples)):
        rows = np.array([row])
        model = evaluator.model
        gates = np.ones(model.grid.size, bool)
        if mask is not None:
            gates = mask.kept
        with torch.no_grad(), gated(model, model.grid.gates(gates)):
            logits = evaluator.logits(evaluator.tensors(rows))
        targets = evaluator.targets(rows, logits).flatten().tolist()
        shares_by_example = logits.double().softmax(-1)
        shares = shares_by_example.flatten(0, -2).numpy()
        for answer_shares, target in zip(shares, targets, strict=True):
            if target != NO_TARGET:
                probabilities.append(answer_shares)
    return probabilities


@pytest.mark.parametrize(
    ("family", "task"),
    [
        ("bert", tiny_task()),
        ("bert-tokens", WORDS),
    ],
)
def test_changed_answers_are_those_of_a_plain_loop_with_their_probabilities(
    family: str, task: Task
) -> None:
    model = tiny_model(family, tokenizer=tiny_tokenizer())
    evaluator = Evaluator(model, task, "xx", "dev", 24)
    mask = mask_of(evaluator.model)
    answers = []
    for example in evaluator.examples:
        for index in range(len(example.words) or 1):
            answers.append((example, index))
    shares_before = one_by_one(evaluator, None)
    shares_after = one_by_one(evaluator, mask)
    expected_rows = []
    for (example, index), baseline_shares, mask_shares in zip(
        answers, shares_before, shares_after, strict=True
    ):
        if baseline_shares.argmax() == mask_shares.argmax():
            continue
        label_index = example.labels[index] if example.words else example.label
        label = task.labels[label_index]
        answer_before = task.labels[int(baseline_shares.argmax())]
        answer_after = task.labels[int(mask_shares.argmax())]
        kind = "wrong otherwise"
        if answer_after == label:
            kind = "now right"
        elif answer_before == label:
            kind = "now wrong"
        word = example.words[index] if example.words else None
        probability_before = pytest.approx(baseline_shares.max())
        probability_after = pytest.approx(mask_shares.max())
        expected_row = (
            kind,
            example.text,
            None,
            word,
            label,
            answer_before,
            answer_after,
            probability_before,
            probability_after,
        )
        expected_rows.append(expected_row)
    answer_changes = changes(evaluator, mask)
    rows = [astuple(change)[1:] for change in answer_changes]
    assert rows == expected_rows
    assert len(expected_rows) > 3
    baseline = evaluator.evaluate()
    for change in answer_changes:
        assert change.id in baseline.ids
    kinds = [change.kind for change in answer_changes]
    counts = [kinds.count(kind) for kind in CHANGE_KINDS[:2]]
    correct = evaluator.evaluate(mask).correct
    gains = int((correct & ~baseline.correct).sum())
    losses = int((baseline.correct & ~correct).sum())
    assert counts == [gains, losses]


def test_a_mask_that_changes_nothing_gives_an_empty_table() -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 24)
    all_heads = np.ones(evaluator.model.grid.size, bool)
    unchanging_mask = replace(mask_of(evaluator.model), kept=all_heads)
    answer_changes = changes(evaluator, unchanging_mask)
    assert answer_changes == []
    header = ",".join(("language", *COLUMNS))
    lines = table(answer_changes, "xx").csv().splitlines()
    assert lines == [header]


def test_mean_ablation_is_what_is_asked_for() -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 24)
    mask = mask_of(evaluator.model)
    answer_changes = changes(evaluator, mask, ablation="mean")
    baseline = evaluator.evaluate().predicted
    under_mask = evaluator.evaluate(mask, ablation="mean").predicted
    changed_labels = under_mask[under_mask != baseline]
    labels = [evaluator.task.labels[label] for label in changed_labels]
    assert [change.after for change in answer_changes] == labels


def test_a_task_without_labels_is_refused() -> None:
    evaluator = Evaluator(tiny_model("marian", tokenizer=tiny_tokenizer()), PAIRS, "xx")
    with raises("changes.no_labels", "pairs"):
        changes(evaluator, mask_of(evaluator.model))


def test_the_command_writes_the_changed_answers_of_all_languages(
    tmp_path, capsys, monkeypatch
) -> None:
    monkeypatch.setattr("headlab.tasks.registry.TASKS", {"tiny": lambda _: tiny_task()})
    folder = str(save_family(tmp_path / "bert", "bert"))
    mask_file = tmp_path / "mask.json"
    changes_file = tmp_path / "new" / "changes.csv"
    model_and_task = ["--model", folder, "--task", "tiny"]
    random_scores = [*model_and_task, "--cache", str(tmp_path / "cache")]
    random_scores += ["--languages", "xx", "--method", "random"]
    assert main(["score", *random_scores]) == 0
    rule = ["--rule", "bottom", "--k", "4"]
    prune_flags = [*random_scores, *rule, "--out", str(mask_file)]
    assert main(["prune", *prune_flags]) == 0
    evaluate = ["evaluate", *model_and_task, "--size", "24"]
    changes_flags = ["--changes", str(changes_file)]
    assert main([*evaluate, "--mask", str(mask_file), *changes_flags]) == 0
    output = capsys.readouterr()
    lines = changes_file.read_text().splitlines()
    rows = list(csv.DictReader(lines))
    assert f"{len(rows)} answers changed" in output.err
    assert {row["language"] for row in rows} == {"xx", "yy"}
    assert set(rows[0]) == {"language", *COLUMNS}
    assert main([*evaluate, *changes_flags]) == 2
    assert "give --mask with it" in capsys.readouterr().err
