"""The commands of a mask's section: they choose its heads again, and name the file where it is one."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import cached_scores, synthetic_gates
from support.saved_models import save_classifier
from support.synthetic_curves import made_curve
from support.synthetic_fronts import GRID, IDENTITY, made_front, spec_of
from test_html_report_commands import commands_in, given

from headlab.cli.main import main
from headlab.masks import Mask, load_mask, noted
from headlab.report.again import Again
from headlab.report.build import document, find_results
from headlab.report.parts import Item
from headlab.results import HeadScores, Store
from headlab.studies.pareto import chosen_mask, mask_at
from headlab.studies.table import STUDIES
from headlab.tasks import read_label_map


def scores(language: str = "de", method: str = "shapley") -> HeadScores:
    return cached_scores.made_up(language, method, "0" * 64)


def told(mask: Mask, key: str = "mask.json", file: str = "mask.json") -> Again:
    (section,) = document([Item(mask, key, file=file)]).sections
    return section.again


def one(mask: Mask, name: str) -> dict[str, Any]:
    """What the only command of this name asks for."""
    (line,) = (line for line in told(mask).lines if line.split()[1] == name)
    return given(line)[1]


@pytest.mark.parametrize(
    "options",
    [{"rule": "harmful"}, {"rule": "bottom", "k": 5}, {"rule": "threshold", "threshold": -0.0125}],
)
def test_a_mask_of_scores_is_made_by_their_command_and_prune(options):
    mask = scores().mask(**options)
    assert [line.split()[1] for line in told(mask).lines] == [
        "score",
        "prune",
        "evaluate",
        "shrink",
    ]
    asked = one(mask, "prune")
    assert {name: asked[name] for name in ("rule", "k", "threshold")} == {
        "k": None,
        "threshold": None,
        **options,
    }
    about = ("model", "task", "languages", "method", "out")
    assert [asked[name] for name in about] == [
        "e5-small-intents",
        "intents",
        "de",
        "shapley",
        Path("mask.json"),
    ]
    assert any("takes scores of the cache" in note for note in told(mask).notes)


def test_a_mask_off_a_curve_is_made_of_the_scores_that_ordered_it():
    mask = made_curve().mask(4)
    assert [line.split()[1] for line in told(mask).lines] == [
        "curve",
        "prune",
        "evaluate",
        "shrink",
    ]
    asked = one(mask, "prune")
    assert (asked["rule"], asked["k"], asked["languages"], asked["method"]) == (
        "bottom",
        4,
        "de",
        "shapley",
    )
    other = {**mask.chosen["score"], "order": {**mask.chosen["score"]["order"], "language": "th"}}
    found = told(replace(mask, chosen={**mask.chosen, "score": other}))
    assert [line.split()[1] for line in found.lines] == ["evaluate", "shrink"]
    assert any("No command makes this mask" in note for note in found.notes)


def test_a_mask_of_gates_is_written_by_their_command():
    gates = synthetic_gates.made_gates()
    asked = one(gates.mask(), "gates")
    assert (asked["weight"], asked["out"]) == ([gates.weight], Path("gates"))
    assert any(f"gates/gates-{gates.weight:.12g}.json" in note for note in told(gates.mask()).notes)
    assert not any("of step" in note for note in told(gates.mask()).notes)
    assert any("of step" in note for note in told(gates.mask(0)).notes)


FRONTS = [{}, {"heads": 4, "points": None}, {"within": 2.5, "by": "estimate", "orders": "mean,own"}]


@pytest.mark.parametrize("options", FRONTS)
def test_the_mask_that_answers_a_front_is_made_by_the_same_question(options):
    mask = chosen_mask(replace(made_front(), spec=spec_of(**options)), GRID)
    assert [line.split()[1] for line in told(mask).lines] == ["front", "evaluate", "shrink"]
    asked = one(mask, "front")
    found = {name: asked[name] for name in ("method", "within", "heads", "by", "orders")}
    found |= {"points": None if asked["every"] else asked["points"]}
    assert STUDIES["front"].resolve(found) == spec_of(**options)["options"]
    assert (asked["languages"], asked["size"], asked["test_size"]) == ("de,th", 512, 1000)
    assert asked["out"] == Path("mask.json")
    assert not any("does not record" in note for note in told(mask).notes)


@pytest.mark.parametrize("options", FRONTS)
def test_an_older_mask_of_a_front_asks_what_it_tells_and_says_what_it_does_not(options):
    mask = chosen_mask(replace(made_front(), spec=spec_of(**options)), GRID)
    mask = replace(
        mask, chosen={name: value for name, value in mask.chosen.items() if name != "front"}
    )
    asked = one(mask, "front")
    whole = spec_of(**options)["options"]
    found = {name: asked[name] for name in ("method", "within", "heads", "by")}
    assert {name: STUDIES["front"].resolve(found)[name] for name in found} == {
        name: whole[name] for name in found
    }
    assert (asked["languages"], asked["test_size"], asked["out"]) == (
        "de,th",
        None,
        Path("mask.json"),
    )
    assert any(
        "does not record the front's number of examples" in note for note in told(mask).notes
    )


def test_another_model_of_a_front_is_the_best_of_its_size_on_its_order():
    asked = one(mask_at(made_front(within=2.0), "weakest", 2, GRID), "front")
    assert (asked["heads"], asked["within"], asked["orders"]) == (4, None, "weakest")
    front = made_front()
    own = {**dict(mask_at(front, "weakest", 2, GRID).chosen), "order": "own de"}
    found = told(Mask(GRID, np.ones(GRID.size, bool), IDENTITY, own))
    assert [line.split()[1] for line in found.lines] == ["evaluate", "shrink"]
    assert any("not its answer" in note for note in found.notes)


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({}, "does not record how its heads were chosen"),
        ({"rule": "converted"}, "does not record how its heads were chosen"),
        ({"rule": "by hand", "started_from": {"rule": "harmful"}}, "switched by hand"),
        ({"rule": "combined: or", "combined": []}, "--how or --out mask.json"),
        (
            {"rule": "bottom", "k": 2, "languages": ["de", "th"], "pooled": "mean"},
            "only the Prune page",
        ),
        ({"rule": "bottom", "k": 2}, "does not record the scores"),
        ({"rule": "front", "k": 2}, "does not record all that a command for its mask needs"),
        ({"rule": "gates", "gates": {"kind": "gates", "options": {}}}, "does not say all"),
    ],
)
def test_what_no_command_makes_is_told(chosen, words):
    found = told(Mask(GRID, np.ones(GRID.size, bool), IDENTITY, chosen))
    assert [line.split()[1] for line in found.lines] == ["evaluate", "shrink"]
    assert any(words in note for note in found.notes)


def test_a_mask_inside_another_file_has_a_place_of_its_own_in_the_commands(tmp_path):
    value = {"mask": chosen_mask(made_front(), GRID).to_json(), "report": made_front().to_json()}
    (tmp_path / "front.json").write_text(json.dumps(value), encoding="utf-8")
    sections = document(find_results([str(tmp_path / "front.json")], Store(tmp_path))).sections
    (found,) = (section.again for section in sections if section.kind == "mask")
    assert [given(line)[1].get("mask") or given(line)[1]["out"] for line in found.lines] == [
        Path("MASK.json")
    ] * 3
    assert any("MASK.json stands for this mask (front.json: mask)" in note for note in found.notes)


def test_several_masks_have_their_own_files_and_their_own_smaller_models(tmp_path):
    for at, name in enumerate(("de", "th"), 1):
        scores().mask("bottom", k=at).save(tmp_path / name / "mask.json")
    sections = document(
        find_results([str(tmp_path / name / "mask.json") for name in ("de", "th")], Store(tmp_path))
    ).sections
    assert [section.title.split(":")[0] for section in sections] == [
        "Mask de/mask.json",
        "Mask th/mask.json",
    ]
    for at, (name, section) in enumerate(zip(("de", "th"), sections, strict=True), 1):
        _, asked = given(section.again.lines[-1])
        assert (asked["mask"], asked["out"]) == (
            tmp_path / name / "mask.json",
            Path(f"smaller-{at}"),
        )


@pytest.mark.slow
def test_running_a_masks_commands_makes_the_same_mask(tmp_path, monkeypatch):
    """A mask that prune wrote and one of a front, by the commands as they stand in the file, in an empty cache."""
    monkeypatch.chdir(tmp_path)
    save_classifier(tmp_path / "tiny")
    about = ["--model", "tiny", "--languages", "de", "--cache", "one"]
    assert main(["score", *about, "--method", "gradient", "--size", "12"]) == 0
    assert (
        main(
            [
                "prune",
                *about,
                "--method",
                "gradient",
                "--rule",
                "bottom",
                "--k",
                "2",
                "--out",
                "p.json",
            ]
        )
        == 0
    )
    front = [
        "--method",
        "gradient",
        "--size",
        "10",
        "--test-size",
        "10",
        "--points",
        "3",
        "--within",
        "60",
    ]
    assert main(["front", *about, *front, "--by", "estimate", "--out", "f.json"]) == 0
    digests = {name: load_mask(name).digest for name in ("p.json", "f.json")}
    assert main(["report", "p.json", "f.json", "--cache", "one", "--out", "report.html"]) == 0
    for name in digests:
        Path(name).unlink()
    lines = [shlex.split(line) for line in commands_in(Path("report.html"))]
    for words in lines:
        if words[1] in ("score", "prune", "front"):
            assert main([*words[1:], "--cache", "other"]) == 0
    assert {name: load_mask(name).digest for name in digests} == digests


def test_reported_20_a_masks_figures_are_measured_again_with_their_label_map():
    """As the Prune page exports a mask that was switched by hand."""
    figures = {"de": {"accuracy": 0.5, "n": 9}}
    stated = {"a, b": "x = 1", "c": "it's"}
    chosen = noted(
        {"rule": "by hand", "languages": ["de"]},
        "test",
        "intents",
        figures,
        size=9,
        label_map=stated,
    )
    mask = Mask(GRID, np.ones(GRID.size, bool), IDENTITY, {**chosen, "task": "intents"})
    asked = one(mask, "evaluate")
    assert read_label_map(asked["label_map"]) == stated
    assert (asked["size"], asked["split"], asked["languages"]) == (9, "test", "de")


@pytest.mark.parametrize(
    ("ablation", "names"),
    [("mean", ["evaluate"]), ("mixed", ["evaluate"]), ("zero", ["evaluate", "shrink"])],
)
def test_reported_20_no_command_is_printed_that_is_refused(ablation, names):
    mask = Mask(GRID, np.arange(GRID.size) > 0, IDENTITY, {"rule": "by hand", "ablation": ablation})
    assert [line.split()[1] for line in told(mask).lines] == names
    assert one(mask, "evaluate")["ablation"] == ("zero" if ablation == "mixed" else None)
