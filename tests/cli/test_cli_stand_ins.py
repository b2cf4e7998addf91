"""`--ablation resample` and `counterfactual`: scores, curves, masks and what cannot hold them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import json_output as json_output
from support.commands import refused as refused
from support.commands import run_command as run_command
from support.saved_models import save_classifier
from support.several_answers import PAIRS

from headlab.cli.output import TaskSelection
from headlab.core import HeadGrid, HeadlabError, Stack
from headlab.evaluation.stand_ins import Contrasts
from headlab.masks import Mask, load_mask
from headlab.results import Store


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_classifier(tmp_path_factory.mktemp("model") / "tiny")


def test_resampled_scores_become_a_mask_that_is_evaluated_and_not_cut_out(
    folder: Path,
    tmp_path: Path,
    run_command: Callable[..., tuple[int, str, str]],
    json_output: Callable[..., Any],
) -> None:
    common = ["--model", folder, "--languages", "de"]
    stored = [*common, "--cache", tmp_path / "cache"]
    score = ["score", *stored, "--size", 12, "--method", "leave-one-out"]
    row = json_output(*score, "--ablation", "resample")["languages"]["de"]
    assert 0 < row["beyond_donors"] < 1
    again = json_output(*score, "--ablation", "resample")["languages"]["de"]
    assert again["seconds"] == row["seconds"]  # read, not computed
    zero = json_output(*score)["languages"]["de"]
    assert zero["values_sha256"] != row["values_sha256"]
    results = Store(tmp_path / "cache").scan().results
    assert sorted(result.record.spec.ablation for result in results) == ["resample", "zero"]
    mask_file = tmp_path / "mask.json"
    prune = ["prune", *stored, "--method", "leave-one-out", "--dev-size", 12]
    prune += ["--ablation", "resample", "--rule", "bottom", "--k", 1, "--split", "dev"]
    code, _, stderr = run_command(*prune, "--size", 8, "--out", mask_file)
    assert code == 0, stderr
    mask = load_mask(mask_file)
    assert mask.ablation == "resample"
    assert mask.of_other_texts == "resample"
    evaluate = ["evaluate", *common, "--mask", mask_file, "--size", 8]
    by_mask = json_output(*evaluate)["languages"]["de"]
    by_name = json_output(*evaluate, "--ablation", "resample")["languages"]["de"]
    assert by_mask == by_name
    assert json_output(*evaluate, "--ablation", "zero")["languages"]["de"] != by_mask
    curve = ["curve", *stored, "--method", "leave-one-out", "--dev-size", 12, "--size", 8]
    curve += ["--split", "dev", "--points", 3, "--ablation", "resample"]
    assert json_output(*curve)["languages"]["de"]["n"] == 8
    model_and_mask = ["--model", folder, "--mask", mask_file]
    for command in (["shrink"], ["export", "--as", "folder"]):
        code, _, stderr = run_command(*command, *model_and_mask, "--out", tmp_path / command[0])
        assert code == 2
        assert "chosen under resample ablation" in stderr
        assert not (tmp_path / command[0]).exists()


def test_what_cannot_do_it_says_what_fits(
    folder: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    score = ["score", "--model", folder, "--languages", "de", "--cache", tmp_path / "cache"]
    resample = [*score, "--ablation", "resample"]
    assert "give --size 2 or more" in refused(*resample, "--size", 1)
    assert "use one of shapley" in refused(*resample, "--size", 8, "--method", "gradient")
    sentence = refused(*score, "--ablation", "counterfactual", "--size", 8)
    assert "add a column counterfactual" in sentence
    sentence = refused(*score, "--ablation", "shuffle")
    assert "zero, mean, resample, counterfactual" in sentence


def test_a_language_without_contrasts_does_not_keep_the_others_from_their_scores(
    folder: Path,
    tmp_path: Path,
    refused: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def contrasts_of(
        _model: object, _task: object, language: str, examples: Any, inputs: Any
    ) -> Contrasts:
        if language == "fr":
            raise HeadlabError("3 of 8 have none", code="ablation.counterfactual_length")
        return Contrasts(inputs, np.ones(len(examples), bool))

    monkeypatch.setattr("headlab.evaluation.evaluator.contrasts_of", contrasts_of)
    command = ["score", "--model", folder, "--languages", "de,fr,en", "--cache", tmp_path]
    command += ["--method", "leave-one-out", "--size", 8, "--ablation", "counterfactual"]
    sentence = refused(*command)
    assert "1 of 3 languages could not be scored" in sentence
    assert "fr: 3 of 8 have none" in sentence
    results = Store(tmp_path).scan().results
    assert {result.record.language for result in results} == {"de", "en"}


def test_translations_are_refused_before_the_model_is_loaded(
    tmp_path: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mask_file = tmp_path / "mask.json"
    grid = HeadGrid((Stack("encoder", (2,)), Stack("decoder", (2,)), Stack("cross", (2,))))
    Mask(grid, np.ones(6, bool), chosen={"ablation": "resample"}).save(mask_file)
    monkeypatch.setattr(TaskSelection, "load_task", lambda _: PAIRS)
    evaluate = ["evaluate", "--model", tmp_path / "none", "--mask", mask_file, "--bleu"]
    assert "translations are written with zero or mean" in refused(*evaluate, "--task", "opus")
