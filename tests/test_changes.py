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

from headlab.cli.main import main
from headlab.core import CHANGE_KINDS
from headlab.evaluation import COLUMNS, NO_TARGET, Evaluator, changes, table
from headlab.hooks import gated
from headlab.masks import Mask
from headlab.tasks import Task

OFF = slice(0, 6)


def mask_of(model):
    kept = np.ones(model.grid.size, bool)
    kept[OFF] = False
    return Mask(model.grid, kept, {"name": model.name, "fingerprint": model.fingerprint})


def one_by_one(evaluator: Evaluator, mask: Mask | None) -> list[np.ndarray]:
    """Label probabilities of every answer, one example and one pass at a time."""
    out = []
    for row in range(len(evaluator.examples)):
        rows = np.array([row])
        model = evaluator.model
        gates = np.ones(model.grid.size, bool) if mask is None else mask.kept
        with torch.no_grad(), gated(model, model.grid.gates(gates)):
            logits = evaluator.logits(evaluator.tensors(rows))
        targets = evaluator.targets(rows, logits).flatten().tolist()
        parts = logits.double().softmax(-1).flatten(0, -2).numpy()
        out += [part for part, target in zip(parts, targets, strict=True) if target != NO_TARGET]
    return out


@pytest.mark.parametrize(("family", "task"), [("bert", tiny_task()), ("bert-tokens", WORDS)])
def test_changed_answers_are_those_of_a_plain_loop_with_their_probabilities(
    family: str, task: Task
) -> None:
    evaluator = Evaluator(tiny_model(family, tokenizer=tiny_tokenizer()), task, "xx", "dev", 24)
    mask = mask_of(evaluator.model)
    before = one_by_one(evaluator, None)
    after = one_by_one(evaluator, mask)
    answers = [(e, place) for e in evaluator.examples for place in range(len(e.words) or 1)]
    wanted = []
    for (example, place), old, new in zip(answers, before, after, strict=True):
        if old.argmax() == new.argmax():
            continue
        right = task.labels[example.labels[place] if example.words else example.label]
        given = task.labels[int(old.argmax())], task.labels[int(new.argmax())]
        kind = (
            "now right"
            if given[1] == right
            else "now wrong"
            if given[0] == right
            else "wrong otherwise"
        )
        word = example.words[place] if example.words else None
        wanted.append(
            (
                kind,
                example.text,
                None,
                word,
                right,
                *given,
                pytest.approx(old.max()),
                pytest.approx(new.max()),
            )
        )
    found = changes(evaluator, mask)
    assert [astuple(one)[1:] for one in found] == wanted
    assert len(wanted) > 3
    whole = evaluator.evaluate()
    assert all(one.id in whole.ids for one in found)
    counted = [sum(one.kind == kind for one in found) for kind in CHANGE_KINDS[:2]]
    masked = evaluator.evaluate(mask).correct
    assert counted == [int((masked & ~whole.correct).sum()), int((whole.correct & ~masked).sum())]


def test_a_mask_that_changes_nothing_gives_an_empty_table() -> None:
    evaluator = Evaluator(
        tiny_model("bert", tokenizer=tiny_tokenizer()), tiny_task(), "xx", "dev", 24
    )
    whole = replace(mask_of(evaluator.model), kept=np.ones(evaluator.model.grid.size, bool))
    found = changes(evaluator, whole)
    assert (found, table(found, "xx").csv().splitlines()) == (
        [],
        [",".join(("language", *COLUMNS))],
    )


def test_mean_ablation_is_what_is_asked_for() -> None:
    evaluator = Evaluator(
        tiny_model("bert", tokenizer=tiny_tokenizer()), tiny_task(), "xx", "dev", 24
    )
    mask = mask_of(evaluator.model)
    found = changes(evaluator, mask, ablation="mean")
    new = evaluator.evaluate(mask, ablation="mean").predicted
    assert [one.after for one in found] == [
        evaluator.task.labels[label]
        for label, old in zip(new, evaluator.evaluate().predicted, strict=True)
        if label != old
    ]


def test_a_task_without_labels_is_refused() -> None:
    evaluator = Evaluator(tiny_model("marian", tokenizer=tiny_tokenizer()), PAIRS, "xx")
    with raises("changes.no_labels", "pairs"):
        changes(evaluator, mask_of(evaluator.model))


def test_the_command_writes_the_changed_answers_of_all_languages(
    tmp_path, capsys, monkeypatch
) -> None:
    monkeypatch.setattr("headlab.tasks.registry.TASKS", {"tiny": lambda _: tiny_task()})
    folder = str(save_family(tmp_path / "bert", "bert"))
    mask = tmp_path / "mask.json"
    out = tmp_path / "new" / "changes.csv"
    asked = ["--model", folder, "--task", "tiny", "--cache", str(tmp_path / "cache")]
    assert main(["score", *asked, "--languages", "xx", "--method", "random"]) == 0
    assert (
        main(
            [
                "prune",
                *asked,
                "--languages",
                "xx",
                "--method",
                "random",
                "--rule",
                "bottom",
                "--k",
                "4",
                "--out",
                str(mask),
            ]
        )
        == 0
    )
    evaluate = ["evaluate", *asked[:4], "--size", "24"]
    assert main([*evaluate, "--mask", str(mask), "--changes", str(out)]) == 0
    told = capsys.readouterr()
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert f"{len(rows)} answers changed" in told.err
    assert {row["language"] for row in rows} == {"xx", "yy"}
    assert set(rows[0]) == {"language", *COLUMNS}
    assert main([*evaluate, "--changes", str(out)]) == 2
    assert "give --mask with it" in capsys.readouterr().err
