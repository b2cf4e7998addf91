"""`--ablation streaming`, task `needle` and `export --as duo` on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import run_command as run_command
from support.players_by_hand import playing
from support.saved_models import save_classifier, save_model
from support.tiny_llama import tiny_llama

import headlab
from headlab.core import ablation_title
from headlab.masks import Mask, load_mask
from headlab.results import Store

SIZES = "streaming:2,20"
# Byte-level tokens of the needles' texts: several hundred.
OPTIONS = {"max_position_embeddings": 2048}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny"
    tiny = tiny_llama(**OPTIONS)
    save_model(path, tiny.module, tiny.tokenizer)
    return path


@pytest.fixture(scope="module")
def mask_file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = playing(headlab.load(str(folder)), "kv-groups")
    path = tmp_path_factory.mktemp("mask") / "g.json"
    kept = np.array([True, False, False, True, False, True])
    Mask(model.grid, kept, model.identity(), {"ablation": SIZES}).save(path)
    return path


@pytest.fixture
def refused(run_command: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """Runs a command that must end with a sentence, maybe after a forecast; gives what it says."""

    def go(*arguments: object) -> str:
        code, stdout, stderr = run_command(*arguments)
        assert (code, stdout) == (2, "")
        assert "Traceback" not in stderr
        return stderr

    return go


def evaluated(stdout: str) -> dict[str, Any]:
    languages: dict[str, Any] = json.loads(stdout)["languages"]["en"]
    return languages


def test_a_mask_is_evaluated_as_it_was_chosen_or_under_other_sizes(
    folder: Path, mask_file: Path, run_command: Callable[..., tuple[int, str, str]]
) -> None:
    common = ["evaluate", "--model", folder, "--task", "needle:20", "--languages", "en"]
    common += ["--size", 6, "--mask", mask_file, "--json"]
    figures = {}
    for ablation in (None, SIZES, "streaming:0,1", "streaming:24,2000", "zero"):
        flags = [] if ablation is None else ["--ablation", ablation]
        code, stdout, stderr = run_command(*common, *flags)
        assert code == 0, stderr
        figures[ablation] = evaluated(stdout)
    assert figures[None] == figures[SIZES]  # the mask says it
    of_sizes = {name: row["log_probability"]["log_probability"] for name, row in figures.items()}
    assert len(set(of_sizes.values())) == 4
    whole = figures["streaming:24,2000"]
    assert whole["log_probability"]["difference"] == whole["difference"] == 0


def test_scores_of_streaming_become_a_mask_a_table_and_no_smaller_weights(
    folder: Path,
    tmp_path: Path,
    run_command: Callable[..., tuple[int, str, str]],
    refused: Callable[..., str],
) -> None:
    stored = [
        "--model",
        folder,
        "--task",
        "needle:20",
        "--languages",
        "en",
        "--players",
        "kv-groups",
    ]
    stored += ["--cache", tmp_path / "cache"]
    score = ["score", *stored, "--size", 4, "--method", "leave-one-out"]
    for ablation in (SIZES, "streaming"):
        code, stdout, stderr = run_command(*score, "--ablation", ablation, "--json")
        assert code == 0, stderr
    results = Store(tmp_path / "cache").scan(players="kv-groups").results
    recorded = sorted(result.record.spec.ablation for result in results)
    assert recorded == [SIZES, "streaming:4,64"]
    written = tmp_path / "mask.json"
    prune = ["prune", *stored, "--method", "leave-one-out", "--dev-size", 4, "--ablation", SIZES]
    prune += ["--rule", "bottom", "--k", 2, "--split", "dev", "--size", 4, "--out", written]
    code, _, stderr = run_command(*prune)
    assert code == 0, stderr
    assert load_mask(written).ablation == SIZES
    export = ["export", "--model", folder, "--mask", written, "--out", tmp_path / "d4"]
    code, stdout, _ = run_command(*export, "--as", "duo", "--json")
    outcome = json.loads(stdout)
    assert code == 0
    assert (outcome["sink_size"], outcome["recent_size"]) == (2, 20)
    assert (outcome["groups"], outcome["streaming"]) == (6, 2)
    assert outcome["max_logit_difference"] == 0
    assert outcome["readers"] == ["DuoAttention", "kvpress"]
    assert "note" not in outcome
    code, stdout, _ = run_command(*export, "--as", "duo")  # replaces it
    assert "2 of 6 key-value groups see the first 2 and the last 20 tokens alone" in stdout
    for form in ("folder", "small", "gguf"):
        assert "which no weights can hold" in refused(*export[:-1], tmp_path / "w", "--as", form)


def test_a_mask_of_zero_ablation_is_written_and_said(
    folder: Path, mask_file: Path, tmp_path: Path, run_command: Callable[..., tuple[int, str, str]]
) -> None:
    zero = tmp_path / "zero.json"
    mask = load_mask(mask_file)
    Mask(mask.grid, mask.kept, mask.model, {"ablation": "zero"}).save(zero)
    export = ["export", "--model", folder, "--mask", zero, "--as", "duo", "--out", tmp_path / "d4"]
    code, stdout, _ = run_command(*export)
    assert code == 0
    assert "chosen under zero ablation" in stdout
    assert "--ablation streaming:4,64" in stdout


def test_what_cannot_stream_is_refused_with_what_fits(
    folder: Path, mask_file: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    evaluate = ["evaluate", "--model", folder, "--task", "needle", "--languages", "en", "--size", 2]
    evaluate += ["--mask", mask_file, "--ablation"]
    assert "streaming:4,64" in refused(*evaluate, "streaming:4")
    assert "1 or more of the last" in refused(*evaluate, "streaming:4,0")
    assert "takes 2,048 at most" in refused(*evaluate, "streaming:4,2045")
    assert "streaming" in refused(*evaluate, "stream")
    assert "whole number from 1" in refused(
        "evaluate", "--model", folder, "--task", "needle:x", "--size", 2
    )
    encoder = save_classifier(tmp_path / "encoder")
    words = ["--model", encoder, "--languages", "de", "--size", 4, "--ablation", "streaming"]
    words += ["--cache", tmp_path / "cache"]
    assert "is for decoders" in refused("score", *words, "--method", "leave-one-out")
    export = ["export", "--model", folder, "--as", "duo", "--out", tmp_path / "d4"]
    assert "nothing would change" in refused(*export)
    export += ["--mask", mask_file]
    assert "--dtype" in refused(*export, "--dtype", "float16")
    assert "--size and" not in refused(*export, "--size", 4)
    assert "--languages" in refused(*export, "--languages", "de")
    assert not (tmp_path / "d4").exists()


def test_sizes_beyond_the_model_are_refused_without_a_mask_too(
    folder: Path, refused: Callable[..., str]
):
    sentence = refused(
        "evaluate", "--model", folder, "--task", "needle:1", "--languages", "en", "--size", 2,
        "--ablation", "streaming:4,99999",
    )  # fmt: skip
    assert "takes 2,048 at most" in sentence


def test_pages_name_an_ablation_in_words():
    assert ablation_title("streaming:4,64") == "streaming (first 4, last 64 tokens)"
    assert ablation_title("resample") == "resample"
