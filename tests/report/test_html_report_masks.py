"""The commands of a mask's section: they choose its heads again, and name its file."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import cached_scores, synthetic_fronts, synthetic_gates
from support.html_pages import HtmlPage
from support.printed_commands import command_arguments, commands_in
from support.saved_models import save_classifier
from support.synthetic_curves import made_curve
from support.synthetic_fronts import GRID, IDENTITY, made_front, spec_of

from headlab.cli.run import main
from headlab.masks import Mask, load_mask, noted
from headlab.report import build
from headlab.report.again import Again
from headlab.report.build import document, find_results
from headlab.report.parts import Item, facts_of
from headlab.results import HeadScores, Store
from headlab.studies.pareto import chosen_mask, mask_at
from headlab.studies.table import STUDIES
from headlab.tasks import read_label_map


def scores(language: str = "de", method: str = "shapley") -> HeadScores:
    return cached_scores.made_scores(language, method, "0" * 64)


def remake_of(mask: Mask, key: str = "mask.json", file: str = "mask.json") -> Again:
    item = Item(mask, key, file=file)
    (section,) = document([item]).sections
    return section.again


def arguments_of(mask: Mask, name: str) -> dict[str, Any]:
    """The arguments of the only command of this name."""
    lines = remake_of(mask).lines
    (line,) = [line for line in lines if line.split()[1] == name]
    return command_arguments(line)[1]


def names_of(remake: Again) -> list[str]:
    """The names of the commands."""
    return [line.split()[1] for line in remake.lines]


@pytest.mark.parametrize(
    "options",
    [
        {"rule": "harmful"},
        {"rule": "bottom", "k": 5},
        {"rule": "threshold", "threshold": -0.0125},
    ],
)
def test_a_mask_of_scores_is_made_by_their_command_and_prune(options):
    mask = scores().mask(**options)
    remake = remake_of(mask)
    assert names_of(remake) == ["score", "prune", "evaluate", "shrink"]
    arguments = arguments_of(mask, "prune")
    for name in ("rule", "k", "threshold"):
        assert arguments[name] == options.get(name)
    assert arguments["model"] == "e5-small-intents"
    assert arguments["task"] == "intents"
    assert arguments["languages"] == "de"
    assert arguments["method"] == "shapley"
    assert arguments["out"] == Path("mask.json")
    assert any("takes scores of the cache" in note for note in remake.notes)


def test_a_mask_of_a_curve_is_made_from_the_scores_that_ordered_it():
    mask = made_curve().mask(4)
    remake = remake_of(mask)
    assert names_of(remake) == ["curve", "prune", "evaluate", "shrink"]
    arguments = arguments_of(mask, "prune")
    assert arguments["rule"] == "bottom"
    assert arguments["k"] == 4
    assert arguments["languages"] == "de"
    assert arguments["method"] == "shapley"
    score = mask.chosen["score"]
    other_order = {**score["order"], "language": "th"}
    other_score = {**score, "order": other_order}
    other_provenance = {**mask.chosen, "score": other_score}
    remake = remake_of(replace(mask, chosen=other_provenance))
    assert names_of(remake) == ["evaluate", "shrink"]
    assert any("No command makes this mask" in note for note in remake.notes)


def test_a_mask_of_gates_is_written_by_their_command():
    gates = synthetic_gates.made_gates()
    arguments = arguments_of(gates.mask(), "gates")
    assert arguments["weight"] == [gates.weight]
    assert arguments["out"] == Path("gates")
    notes = remake_of(gates.mask()).notes
    file_name = f"gates/gates-{gates.weight:.12g}.json"
    assert any(file_name in note for note in notes)
    assert not any("of step" in note for note in notes)
    notes_of_step = remake_of(gates.mask(0)).notes
    assert any("of step" in note for note in notes_of_step)


FRONTS = [
    {},
    {"heads": 4, "points": None},
    {"within": 2.5, "by": "estimate", "orders": "mean,own"},
]


@pytest.mark.parametrize("options", FRONTS)
def test_the_mask_that_answers_a_front_is_made_by_the_same_question(options):
    front = replace(made_front(), spec=spec_of(**options))
    mask = chosen_mask(front, GRID)
    remake = remake_of(mask)
    assert names_of(remake) == ["front", "evaluate", "shrink"]
    arguments = arguments_of(mask, "front")
    front_options = {}
    for name in ("method", "within", "heads", "by", "orders"):
        front_options[name] = arguments[name]
    front_options["points"] = None if arguments["every"] else arguments["points"]
    resolved_options = STUDIES["front"].resolve(front_options)
    assert resolved_options == spec_of(**options)["options"]
    assert arguments["languages"] == "de,th"
    assert arguments["size"] == 512
    assert arguments["test_size"] == 1000
    assert arguments["out"] == Path("mask.json")
    assert not any("does not record" in note for note in remake.notes)


@pytest.mark.parametrize("options", FRONTS)
def test_the_command_of_an_older_mask_of_a_front_has_what_it_records_and_a_note_on_the_rest(
    options,
):
    front = replace(made_front(), spec=spec_of(**options))
    mask = chosen_mask(front, GRID)
    older_provenance = dict(mask.chosen)
    older_provenance.pop("front", None)
    mask = replace(mask, chosen=older_provenance)
    arguments = arguments_of(mask, "front")
    expected_options = spec_of(**options)["options"]
    front_options = {}
    for name in ("method", "within", "heads", "by"):
        front_options[name] = arguments[name]
    resolved_options = STUDIES["front"].resolve(front_options)
    for name in front_options:
        assert resolved_options[name] == expected_options[name]
    assert arguments["languages"] == "de,th"
    assert arguments["test_size"] is None
    assert arguments["out"] == Path("mask.json")
    notes = remake_of(mask).notes
    assert any("does not record the front's number of examples" in note for note in notes)


def test_another_model_of_a_front_is_the_best_of_its_size_on_its_order():
    mask = mask_at(made_front(within=2.0), "weakest", 2, GRID)
    arguments = arguments_of(mask, "front")
    assert arguments["heads"] == 4
    assert arguments["within"] is None
    assert arguments["orders"] == "weakest"
    front = made_front()
    chosen = mask_at(front, "weakest", 2, GRID).chosen
    provenance = {**dict(chosen), "order": "own de"}
    all_heads = np.ones(GRID.size, bool)
    remake = remake_of(Mask(GRID, all_heads, IDENTITY, provenance))
    assert names_of(remake) == ["evaluate", "shrink"]
    assert any("not its answer" in note for note in remake.notes)


def test_a_report_says_streaming_in_words_and_under_what_a_mask_was_measured():
    words = "streaming (first 4, last 64 tokens)"
    streaming = "streaming:4,64"
    spec = {"ablation": streaming, "seed": 0, "order": {"method": "m", "ablation": streaming}}
    facts = dict(facts_of(spec, {}))
    assert facts["ablation"] == words
    assert facts["heads ordered by"] == f"method m, ablation {words}"
    kept = np.ones(GRID.size, bool)
    kept[0] = False
    figure = {"accuracy": 0.5, "n": 10}
    evaluated = {"dev": {"task": "intents", "ablation": "zero", "languages": {"de": figure}}}
    chosen = {"rule": "bottom", "k": 1, "ablation": streaming, "evaluated": evaluated}
    mask = Mask(GRID, kept, IDENTITY, chosen)
    (section,) = document([Item(mask, "m.json")]).sections
    assert dict(section.made[0].facts)["ablation"] == words
    assert (
        f"dev: measured with zero ablation (what is removed gives zeros), and the heads were chosen under {words} ablation."
    ) in section.notes


@pytest.mark.parametrize(
    ("provenance", "phrase"),
    [
        ({}, "does not record how its heads were chosen"),
        ({"rule": "converted"}, "does not record how its heads were chosen"),
        ({"rule": "by hand", "started_from": {"rule": "harmful"}}, "chosen by hand"),
        ({"rule": "combined: or", "combined": []}, "--how or --out mask.json"),
        (
            {
                "rule": "bottom",
                "k": 2,
                "languages": ["de", "th"],
                "pooled": "mean",
            },
            "only the Prune page",
        ),
        ({"rule": "bottom", "k": 2}, "does not record the scores"),
        ({"rule": "front", "k": 2}, "does not record all that a command for its mask needs"),
        (
            {
                "rule": "gates",
                "gates": {"kind": "gates", "options": {}},
            },
            "does not say all",
        ),
    ],
)
def test_a_note_says_why_no_command_makes_a_mask(provenance, phrase):
    all_heads = np.ones(GRID.size, bool)
    remake = remake_of(Mask(GRID, all_heads, IDENTITY, provenance))
    assert names_of(remake) == ["evaluate", "shrink"]
    assert any(phrase in note for note in remake.notes)


def test_a_mask_inside_another_file_has_a_file_name_of_its_own_in_the_commands(tmp_path):
    path = tmp_path / "front.json"
    value = {
        "mask": chosen_mask(made_front(), GRID).to_json(),
        "report": made_front().to_json(),
    }
    path.write_text(json.dumps(value), encoding="utf-8")
    items = find_results([str(path)], Store(tmp_path))
    sections = document(items).sections
    (remake,) = [section.again for section in sections if section.kind == "mask"]
    assert len(remake.lines) == 3
    for line in remake.lines:
        _, arguments = command_arguments(line)
        file = arguments.get("mask") or arguments["out"]
        assert file == Path("MASK.json")
    explanation = "MASK.json stands for this mask (front.json: mask)"
    assert any(explanation in note for note in remake.notes)


def test_several_masks_have_their_own_files_and_their_own_smaller_models(tmp_path):
    paths = [tmp_path / language / "mask.json" for language in ("de", "th")]
    for removed_count, path in enumerate(paths, start=1):
        mask = scores().mask("bottom", k=removed_count)
        mask.save(path)
    items = find_results([str(path) for path in paths], Store(tmp_path))
    sections = document(items).sections
    titles = [section.title.split(":")[0] for section in sections]
    assert titles == ["Mask de/mask.json", "Mask th/mask.json"]
    for number, (path, section) in enumerate(zip(paths, sections, strict=True), start=1):
        last_line = section.again.lines[-1]
        _, arguments = command_arguments(last_line)
        assert arguments["mask"] == path
        assert arguments["out"] == Path(f"smaller-{number}")


@pytest.mark.slow
def test_running_a_masks_commands_makes_the_same_mask(tmp_path, monkeypatch):
    """A mask of prune and one of a front; the printed commands are run with an empty cache."""
    monkeypatch.chdir(tmp_path)
    save_classifier(tmp_path / "tiny")
    common_flags = ["--model", "tiny", "--languages", "de", "--cache", "one"]
    score_flags = ["--method", "gradient", "--size", "12"]
    prune_flags = ["--method", "gradient", "--rule", "bottom", "--k", "2"]
    front_flags = ["--method", "gradient", "--size", "10", "--test-size", "10", "--points", "3"]
    front_flags += ["--within", "60", "--by", "estimate"]
    report_flags = ["--cache", "one", "--out", "report.html"]
    assert main(["score", *common_flags, *score_flags]) == 0
    assert main(["prune", *common_flags, *prune_flags, "--out", "p.json"]) == 0
    assert main(["front", *common_flags, *front_flags, "--out", "f.json"]) == 0
    digests = {name: load_mask(name).digest for name in ("p.json", "f.json")}
    assert main(["report", "p.json", "f.json", *report_flags]) == 0
    for name in digests:
        Path(name).unlink()
    for line in commands_in(Path("report.html")):
        command = shlex.split(line)
        if command[1] in ("score", "prune", "front"):
            assert main([*command[1:], "--cache", "other"]) == 0
    for name, digest in digests.items():
        assert load_mask(name).digest == digest


def test_reported_20_a_masks_figures_are_measured_again_with_their_label_map():
    """As the Prune page exports a mask that was switched by hand."""
    figures = {"de": {"accuracy": 0.5, "n": 9}}
    label_map = {"a, b": "x = 1", "c": "it's"}
    provenance = noted(
        {"rule": "by hand", "languages": ["de"]},
        "test",
        "intents",
        figures,
        size=9,
        label_map=label_map,
    )
    all_heads = np.ones(GRID.size, bool)
    mask = Mask(GRID, all_heads, IDENTITY, {**provenance, "task": "intents"})
    arguments = arguments_of(mask, "evaluate")
    assert read_label_map(arguments["label_map"]) == label_map
    assert arguments["size"] == 9
    assert arguments["split"] == "test"
    assert arguments["languages"] == "de"


@pytest.mark.parametrize(
    ("ablation", "names"),
    [
        ("mean", ["evaluate"]),
        ("mixed", ["evaluate"]),
        ("zero", ["evaluate", "shrink"]),
    ],
)
def test_reported_20_no_command_is_printed_that_is_refused(ablation, names):
    is_kept = np.arange(GRID.size) > 0
    provenance = {"rule": "by hand", "ablation": ablation}
    mask = Mask(GRID, is_kept, IDENTITY, provenance)
    assert names_of(remake_of(mask)) == names
    expected_ablation = "zero" if ablation == "mixed" else None
    arguments = arguments_of(mask, "evaluate")
    assert arguments["ablation"] == expected_ablation


def test_a_front_and_a_mask_of_other_players_are_called_by_their_noun(tmp_path):
    synthetic_fronts.keep_front(tmp_path, players="neurons:2", within=1.0)
    report = Store(tmp_path).reports(None).results[0].record
    mask = chosen_mask(report, synthetic_fronts.GRIDS_OF_PLAYERS["neurons:2"])
    html = build.html_of_document(document([Item(report, "front"), Item(mask, "mask")]))
    text = " ".join(HtmlPage(html).text.split())
    assert "Parts of e5-small-intents" in text
    assert "Attention heads" not in text
    assert "groups of neurons removed" in text
    assert "all groups of neurons, %" in text
    assert "all heads" not in text
    assert b"heads kept" not in html
    of_heads = build.html_of_document(
        document([Item(synthetic_fronts.made_front(within=1.0), "front")])
    )
    assert b"Attention heads of e5-small-intents" in of_heads
