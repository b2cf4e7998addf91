"""`headlab push` and `headlab pull` as people and scripts use them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.saved_models import save_classifier
from support.shared_masks import kept_scores, mask_file

import headlab
from headlab.cli.run import main
from headlab.masks import Mask, full_mask
from headlab.results import Store


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the masks a.json and b.json, and a cache with scores."""
    monkeypatch.chdir(tmp_path)
    mask_file(tmp_path, "a")
    mask_file(tmp_path, "b", k=1)
    return tmp_path


def test_a_mask_goes_there_and_back(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["push", "a.json", "--to", "./shared"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert output.out.splitlines() == [
        "  masks/a.json",
        "  README.md",
        f"{folder / 'shared'} holds 1 mask and 0 sets of scores",
    ]
    assert main(["pull", "./shared", "--out", "copy.json"]) == 0
    assert (folder / "copy.json").read_bytes() == (folder / "a.json").read_bytes()
    assert capsys.readouterr().out == (
        "copy.json: 2 of 5 heads off; it fits only owner/tiny-bert (fingerprint 111111111111)\n"
    )


def test_several_masks_and_scores_are_listed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = kept_scores(Store(folder / "cache")).spec.key
    words = ["a.json", "b.json", key[:8], "--cache", "cache", "--to", "./shared", "--json"]
    assert main(["push", *words]) == 0
    pushed = json.loads(capsys.readouterr().out)
    assert (pushed["masks"], pushed["scores"]) == (["a", "b"], [key])
    assert main(["pull", "./shared"]) == 0
    listing = capsys.readouterr().out
    assert "masks: a, b\n  headlab pull ./shared --mask a --out a.json\n" in listing
    assert f"scores: {key[:12]}\n" in listing
    assert main(["pull", "./shared", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "source": "./shared",
        "kind": "folder",
        "commit": None,
        "masks": ["a", "b"],
        "scores": [key],
    }
    assert not (folder / "a-copy.json").exists()


@pytest.mark.parametrize("words", [["--cache", "new"], ["--cache", "new", "--scores", "all"]])
def test_scores_go_into_the_cache(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    key = kept_scores(Store(folder / "cache")).spec.key
    assert main(["push", key, "--cache", "cache", "--to", "./shared"]) == 0
    capsys.readouterr()
    assert main(["pull", "./shared", *words]) == 0
    assert capsys.readouterr().out == "new: 1 taken, 0 were there already\n"
    assert main(["pull", "./shared", *words, "--json"]) == 0
    pulled = json.loads(capsys.readouterr().out)
    assert (pulled["mask"], pulled["scores"], pulled["scores_known"]) == (None, [], [key])


def test_the_model_is_checked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = headlab.load(str(save_classifier(folder / "tiny")))
    mask = full_mask(model.grid)
    names = {"name": "tiny", "fingerprint": model.fingerprint}
    Mask(mask.grid, mask.kept, names).save(folder / "own.json")
    names["fingerprint"] = "2" * 64
    Mask(mask.grid, mask.kept, names).save(folder / "other.json")
    assert main(["push", "own.json", "other.json", "--to", "./shared"]) == 0
    command = ["pull", "./shared", "--model", "tiny", "--out", "out.json", "--mask"]
    assert main([*command, "other"]) == 2
    assert "222222222222" in capsys.readouterr().err
    assert not (folder / "out.json").exists()
    assert main([*command, "own"]) == 0
    assert "checked: it is of tiny" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        (["push", "a.json"], "--to"),
        (["push", "--to", "./shared"], "FILE_OR_RUN"),
        (["push", "a.json", "--to", "shared"], "./masks"),
        (["push", "a.json", "--to", "./a.json"], "is a file"),
        (["push", "a.json", "--to", "./new", "--public"], "--public"),
        (["push", "c.json", "--to", "./new"], "c.json"),
        (["push", "a.json", "--to", "owner/masks"], "hf auth login"),
        (["pull", "./nowhere"], "./nowhere"),
        (["pull", "owner/masks"], "HF_HUB_OFFLINE"),
        (["pull", "./shared", "--out", "x.json"], "--mask"),
        (["pull", "./shared", "--mask", "a"], "--out"),
        (["pull", "./shared", "--mask", "c", "--out", "x.json"], "a, b"),
        (["pull", "./shared", "--scores", "abcdef"], "--scores"),
        (["pull", "./shared", "--revision", "main"], "--revision"),
        (["pull", "./shared", "--model", "e5-small-intents"], "--model"),
        (["pull", "./shared", "--mask", "a", "--out", "x.json", "--cache", "c"], "--cache"),
    ],
)
def test_a_mistake_is_one_sentence_and_writes_nothing(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    phrase: str,
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    assert main(["push", "a.json", "b.json", "--to", "./shared"]) == 0
    before = sorted(folder.rglob("*"))
    capsys.readouterr()
    assert main(words) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert phrase in output.err
    assert "Traceback" not in output.err
    assert sorted(folder.rglob("*")) == before
