"""Public names, commands, requests and files stay as they were written down, or a test says so."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import headlab
from headlab.masks import load_mask
from headlab.results import HeadScores, Store

sys.path.append(str(Path(__file__).parents[1] / "tools"))
import public_names

FROZEN_FILES = Path(__file__).parent / "frozen"


@pytest.fixture(scope="module")
def present():
    return json.loads(public_names.as_text(public_names.present()))


def test_everything_public_is_as_it_was_written_down(present):
    said = public_names.advice(public_names.changes(public_names.read_frozen(), present))
    assert not said, said


def test_what_the_documents_import_is_public(present):
    assert {
        "headlab.score",
        "headlab.methods.Method",
        "headlab.studies.run.Pieces",
        "headlab.shrink.silence_model",
    } <= set(present["names"])
    assert not [name for name in present["names"] if name.startswith("headlab.dashboard")]
    assert present["names"]["headlab.HeadlabError"] == {"()": "(message, *, code)"}
    assert present["names"]["headlab.load_mask"] == "(path)"


def test_what_was_removed_added_or_changed_is_named_with_what_to_do(present):
    frozen = copy.deepcopy(present)
    names = frozen["names"]
    names["headlab.old_score"] = "(model)"
    names["headlab.load_mask"] = "(file)"
    del names["headlab.score"]
    frozen["commands"]["headlab prune"].append("--former")
    frozen["commands"]["headlab prune"].remove("--rule")
    frozen["files"]["mask"]["schema"]["properties"]["author"] = {"type": "string"}
    frozen["files"]["result"]["result.npz"]["score"]["arrays"]["values"] = "float32 of 1 dimensions"
    frozen["routes"]["paths"].remove("GET /health")
    lines = public_names.changes(frozen, present)
    assert set(lines) == {
        'removed: names › headlab.old_score ("(model)")',
        'changed: names › headlab.load_mask: "(file)" is now "(path)"',
        f"added: names › headlab.score ({json.dumps(present['names']['headlab.score'])})",
        "removed: commands › headlab prune › --former",
        "added: commands › headlab prune › --rule",
        "removed: files › mask › schema › properties › author",
        "changed: files › result › result.npz › score › arrays › values: "
        '"float32 of 1 dimensions" is now "float64 of 1 dimensions"',
        "added: routes › paths › GET /health",
    }
    said = public_names.advice(lines)
    assert all(line in said for line in lines)
    for word in ("docs/stability.md", "CHANGELOG.md", "python tools/public_names.py --write"):
        assert word in said


def test_only_an_addition_asks_for_no_former_name():
    said = public_names.advice(["added: names › headlab.more"])
    assert "stability" not in said
    assert "CHANGELOG.md" in said
    assert public_names.advice([]) == ""


def test_another_parameter_and_another_export_are_seen(monkeypatch: pytest.MonkeyPatch):
    before = public_names.names()

    def load_mask(path, strict=False): ...

    monkeypatch.setattr(headlab, "load_mask", load_mask, raising=False)
    monkeypatch.setattr(headlab, "__all__", [*set(headlab.__all__) - {"prune_curve"}])
    assert public_names.changes(before, public_names.names()) == [
        'changed: headlab.load_mask: "(path)" is now "(path, strict=False)"',
        f"removed: headlab.prune_curve ({json.dumps(before['headlab.prune_curve'])})",
    ]


@pytest.mark.parametrize("version", [1, 2])
def test_a_mask_of_each_version_is_read(version):
    path = FROZEN_FILES / f"mask-{version}.json"
    assert json.loads(path.read_text("utf-8"))["version"] == version
    mask = load_mask(path)
    assert [tuple(head) for head in mask.removed] == [("encoder", 1, 1), ("encoder", 2, 2)]
    assert mask.to_json()["version"] == 2


def test_scores_that_0_1_0_stored_are_read():
    (result,) = Store(FROZEN_FILES / "results").listing(HeadScores).results
    scores = result.record
    assert (scores.method, scores.language, scores.spec.task.name) == ("shapley", "ar", "intents")
    assert scores.values.shape == (144,)
    assert np.isfinite(scores.values).all()
