"""`--players` of score, prune, evaluate and curve: from scores of a joint game to its mask."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import json_output as json_output
from support.commands import refused as refused
from support.commands import run_command as run_command
from support.players_by_hand import playing
from support.saved_models import HEADS, LAYERS, save_classifier

from headlab.hooks import load
from headlab.masks import Mask, load_mask
from headlab.results import Store

JOINT = "heads,neurons:2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_classifier(tmp_path_factory.mktemp("model") / "tiny")


def test_a_joint_game_is_scored_pruned_and_evaluated(
    folder: Path,
    tmp_path: Path,
    run_command: Callable[..., tuple[int, str, str]],
    json_output: Callable[..., Any],
    refused: Callable[..., str],
) -> None:
    common = ["--model", folder, "--languages", "de"]
    stored = [*common, "--cache", tmp_path / "cache"]
    score = ["score", *stored, "--size", 12, "--method", "leave-one-out"]
    row = json_output(*score, "--players", "neurons:2, heads")["languages"]["de"]
    assert row["players"] == JOINT
    assert set(row["values"]) == {"encoder", "encoder-neurons"}
    assert [len(layer) for layer in row["values"]["encoder"]] == [HEADS] * LAYERS
    assert [len(layer) for layer in row["values"]["encoder-neurons"]] == [2] * LAYERS
    again = json_output(*score, "--players", JOINT)["languages"]["de"]
    assert again["seconds"] == row["seconds"]  # read, not computed
    heads = json_output(*score)["languages"]["de"]
    assert "players" not in heads
    store = Store(tmp_path / "cache")
    assert [result.record.spec.players for result in store.scan().results] == [""]
    assert len(store.scan(None).results) == 2
    listed = json_output("cache", "--cache", tmp_path / "cache")["results"]
    assert sorted(str(entry.get("players")) for entry in listed) == ["None", JOINT]
    _, stdout, _ = run_command("cache", "--cache", tmp_path / "cache")
    lines = [line for line in stdout.splitlines() if str(folder) in line]
    assert sorted(line.endswith(f"players {JOINT}") for line in lines) == [False, True]

    out = tmp_path / "mask.json"
    prune = ["prune", *stored, "--method", "leave-one-out", "--rule", "bottom", "--size", 8]
    pruned = json_output(*prune, "--players", JOINT, "--k", 3, "--out", out)
    mask = load_mask(out)
    assert len(mask.removed) == 3
    assert mask.grid.kinds == ("heads", "neurons")
    assert mask.chosen["score"]["players"] == JOINT
    evaluate = ["evaluate", *common, "--mask", out, "--split", "test", "--size", 8]
    figures = json_output(*evaluate)["languages"]["de"]
    accuracy = pruned["languages"]["de"]["accuracy"]
    assert figures["accuracy"] == accuracy
    assert json_output(*evaluate, "--players", JOINT)["languages"]["de"] == figures
    code, stdout, _ = run_command("mask", "show", out)
    assert (code, "3 of" in stdout, "players off" in stdout) == (0, True, True)
    _, stdout, _ = run_command(*prune, "--players", JOINT, "--k", 3)
    assert "| players removed |" in stdout
    sentence = refused(*evaluate, "--players", "layers")
    assert JOINT in sentence
    assert "layers" in sentence
    code, script, _ = run_command("mask", "snippet", out)
    assert (code, "Switches 3 of" in script, "players of" in script) == (0, True, True)
    code, _, sentence = run_command(*prune, "--players", JOINT, "--k", 99)
    assert code == 2
    assert "removes k players" in sentence
    sentence = refused(*prune, "--players", "layers", "--k", 1)
    assert "--players layers" in sentence  # the command that makes the scores


@pytest.mark.parametrize("players", ["neurons:2", "layers", JOINT])
def test_a_script_of_another_model_is_refused_before_its_players_are_made(
    folder: Path,
    tmp_path: Path,
    refused: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    players: str,
) -> None:
    model = playing(load(str(folder), device="cpu"), players)
    kept = np.ones(model.grid.size, bool)
    kept[0] = False
    Mask(model.grid, kept, model.identity()).save(tmp_path / "mask.json")

    def make_players(*_arguments: object) -> None:
        raise AssertionError("players were made")

    monkeypatch.setattr("headlab.hooks.with_players_of", make_players)
    for layers in (LAYERS, LAYERS - 1):
        other = save_classifier(tmp_path / f"other-{layers}", seed=1, layers=layers)
        sentence = refused("mask", "snippet", tmp_path / "mask.json", "--model", other)
        assert "made for" in sentence


def test_curves_remove_players_one_after_another(
    folder: Path, tmp_path: Path, json_output: Callable[..., Any]
) -> None:
    command = ["curve", "--model", folder, "--languages", "de", "--cache", tmp_path]
    command += ["--method", "leave-one-out", "--size", 8, "--dev-size", 8]
    row = json_output(*command, "--players", "layers,feed-forward")["languages"]["de"]
    assert row["removed"] == list(range(2 * LAYERS + 1))
    stacks = {stack for stack, _, _ in row["order"]}
    assert stacks == {"encoder-layers", "encoder-feed-forward"}
    assert Store(tmp_path).curves().results == ()


def test_players_that_do_not_fit_are_refused_with_what_does(
    folder: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    score = ["score", "--model", folder, "--languages", "de", "--cache", tmp_path, "--size", 8]
    for players, phrase in {
        "neurons:0": "neurons:8",
        "neurons:4096": "more groups than layer 0 has neurons",
        "experts": "kv-groups",
        "kv-groups": "use heads",
    }.items():
        assert phrase in refused(*score, "--players", players)
    for method in ("confidence", "relevance"):
        assert "leave-one-out" in refused(*score, "--players", "layers", "--method", method)
    assert "zero" in refused(*score, "--players", "layers", "--ablation", "mean")
    evaluate = ["evaluate", "--model", folder, "--languages", "de", "--size", 8]
    assert "--mask" in refused(*evaluate, "--players", "layers")
    assert not list(tmp_path.iterdir())


def test_a_front_of_players_is_chosen_written_and_evaluated(
    folder: Path,
    tmp_path: Path,
    run_command: Callable[..., tuple[int, str, str]],
    json_output: Callable[..., Any],
) -> None:
    out = tmp_path / "mask.json"
    command = ["front", "--model", folder, "--languages", "de", "--cache", tmp_path / "cache"]
    command += ["--size", 8, "--test-size", 8, "--points", 3, "--method", "leave-one-out"]
    command += ["--within", 100, "--by", "estimate", "--players", JOINT]
    code, stdout, _ = run_command(*command, "--out", out)
    assert code == 0
    assert "| players removed | players kept |" in stdout
    assert "Players were ordered and the model chosen on dev" in stdout
    mask = load_mask(out)
    assert mask.grid.kinds == ("heads", "neurons")
    evaluate = ["evaluate", "--model", folder, "--languages", "de", "--mask", out]
    figures = json_output(*evaluate, "--split", "test", "--size", 8)["languages"]["de"]
    on_test = mask.chosen["evaluated"]["test"]["languages"]["de"]
    assert figures["accuracy"] == on_test["accuracy"]
    listed = json_output("cache", "--cache", tmp_path / "cache")
    assert [entry["key"] for entry in listed["reports"]]
    assert Store(tmp_path / "cache").reports().results == ()


def test_fronts_of_players_that_do_not_fit_are_refused(
    folder: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    command = ["front", "--model", folder, "--languages", "de", "--cache", tmp_path, "--size", 8]
    for players, phrase in {
        "neurons:0": "neurons:8",
        "neurons:4096": "more groups than layer 0 has neurons",
        "experts": "kv-groups",
        "kv-groups": "use heads",
        "": "kv-groups",
    }.items():
        assert phrase in refused(*command, "--players", players)
    sentence = refused(*command, "--players", "layers", "--method", "confidence")
    assert "leave-one-out" in sentence
    assert "zero" in refused(*command, "--players", "layers", "--ablation", "mean")
    assert not list(tmp_path.iterdir())
