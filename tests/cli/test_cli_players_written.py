"""`headlab shrink`, `export` and `worth` with masks of players: what they write, print and refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cut_vocabularies import save_intents_classifier
from support.exports import export
from support.players_by_hand import playing

import headlab
from headlab.cli.run import main
from headlab.masks import Mask
from headlab.shrink import parameters_of

THAI = ("--task", "intents", "--languages", "th")
WIDTH = 24
HEAD = 4 * WIDTH * 8 + 3 * 8
NEURON = 2 * WIDTH + 1
Result = tuple[int, str, str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny classifier of two layers of three heads and 32 neurons, and masks of its players.

    The mask without a head loses a group of 16 neurons too; that of a layer loses the second.
    """
    folder = save_intents_classifier(tmp_path_factory.mktemp("players"))
    model = headlab.load(str(folder / "model"))
    for name, players, closed in (
        ("joint", "heads,neurons:2", ("0.1", "encoder-neurons 1.0")),
        ("layer", "layers", ("encoder-layers 1.0",)),
        ("all", "layers", tuple(f"encoder-layers {layer}.0" for layer in range(2))),
    ):
        variant = playing(model, players)
        kept = np.array([str(player) not in closed for player in variant.grid.heads])
        Mask(variant.grid, kept, model.identity()).save(folder / f"{name}.json")
    return folder


def test_shrink_says_what_went(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["shrink", "--model", str(folder / "model"), "--mask", str(folder / "joint.json")]
    words += ["--out", str(folder / "joint"), "--size", "5", "--repeats", "6"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "1 of 6 heads and 16 of 64 neurons removed" in text
    assert "masked model" in text
    proof = json.loads((folder / "joint" / "proof.json").read_text())
    assert proof["parameters_before"] - proof["parameters_after"] == HEAD + 16 * NEURON
    assert proof["players"]["removed"] == [["encoder", 0, 1], ["encoder-neurons", 1, 0]]
    assert parameters_of(headlab.load_shrunk(folder / "joint")) == proof["parameters_after"]
    task = ["--task", "intents", "--languages", "de", "--size", "20", "--json"]
    assert main(["evaluate", "--model", str(folder / "joint"), *task]) == 0
    written = json.loads(capsys.readouterr().out)
    mask = ["--mask", str(folder / "joint.json")]
    assert main(["evaluate", "--model", str(folder / "model"), *mask, *task]) == 0
    masked = json.loads(capsys.readouterr().out)
    accuracies = [record["languages"]["de"]["accuracy"] for record in (written, masked)]
    assert accuracies[0] == accuracies[1]


def test_a_layer_less_is_an_ordinary_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, stdout, _ = export(folder, capsys, "small", "--json", out="layer-less", mask="layer.json")
    assert code == 0
    outcome = json.loads(stdout)
    assert outcome["players"]["layers_removed"] == 1
    config = json.loads((folder / "layer-less" / "config.json").read_text())
    assert (config["model_type"], config["num_hidden_layers"]) == ("bert", 1)


def test_a_plain_folder_has_silent_neurons(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, stdout, _ = export(folder, capsys, "folder", out="plain", mask="joint.json")
    assert code == 0
    assert "1 of 6 heads and 16 of 64 neurons silenced" in stdout


@pytest.mark.parametrize(
    ("form", "mask", "words"),
    [
        ("small", "all.json", "a model needs one or more"),
        ("folder", "layer.json", "use --as small"),
        ("gguf", "joint.json", "headlab writes GGUF for"),
    ],
)
def test_what_cannot_be_written_is_refused(
    form: str, mask: str, words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, stderr = export(folder, capsys, form, out="refused", mask=mask)
    assert code == 2
    assert words in stderr
    assert not (folder / "refused").exists()


def test_another_models_mask_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value: dict[str, Any] = json.loads((folder / "joint.json").read_text())
    value["model"]["fingerprint"] = "0" * 64
    (folder / "other.json").write_text(json.dumps(value))
    code, _, stderr = export(folder, capsys, "small", out="refused", mask="other.json")
    assert code == 2
    assert "mask" in stderr
    value["members"]["encoder-neurons"][0].pop()
    value["model"]["fingerprint"] = None
    (folder / "shorter.json").write_text(json.dumps(value))
    code, _, stderr = export(folder, capsys, "small", out="refused", mask="shorter.json")
    assert code == 2
    assert "neurons" in stderr
    assert not (folder / "refused").exists()


def test_a_smaller_vocabulary_is_measured_and_written_with_players(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["worth", "--model", str(folder / "model"), "--mask", str(folder / "joint.json")]
    words += [*THAI, "--vocabulary", "cut", "--rounds", "6", "--batch-sizes", "4", "--json"]
    assert main([*words, "--device", "cpu"]) == 0
    record = json.loads(capsys.readouterr().out)
    options = (*THAI, "--test-size", "5", "--json")
    code, stdout, _ = export(folder, capsys, "small", *options, out="thai", mask="joint.json")
    assert code == 0
    written = json.loads(stdout)
    parameters = record["parameters"]
    assert parameters["untouched"] == written["parameters_before"]
    assert parameters["untouched"] - parameters["shrunk"] == HEAD + 16 * NEURON
    assert parameters["cut"] == written["parameters_after"]
