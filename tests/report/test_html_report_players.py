"""Reports on other players than heads: their commands, sections of their own, and their noun."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.printed_commands import command_arguments
from support.saved_models import save_classifier

from headlab.charts.curves import curves_chart
from headlab.cli.run import main
from headlab.masks import load_mask
from headlab.report.build import document, find_results
from headlab.report.map_picture import map_caption
from headlab.report.parts import Item
from headlab.results import Store, curve_points, curve_summary

PLAYERS = "neurons:2"
NOUN = "groups of neurons"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With scores and curves of heads and of neurons in its cache, and a mask of neurons."""
    folder = tmp_path_factory.mktemp("players")
    model = str(save_classifier(folder / "tiny"))
    common = ["--model", model, "--languages", "de", "--cache", str(folder / "cache")]
    method = ["--method", "leave-one-out"]
    of_neurons = ["--players", PLAYERS]
    curve = ["curve", *common, *method, "--dev-size", "8", "--size", "8", "--points", "3"]
    assert main([*curve, *of_neurons]) == 0
    assert main(curve) == 0
    prune = ["prune", *common, *method, *of_neurons, "--size", "8", "--rule", "bottom", "--k", "1"]
    assert main([*prune, "--out", str(folder / "m.json")]) == 0
    return folder


def test_a_mask_of_neurons_is_made_again_by_commands_with_its_players(folder: Path) -> None:
    mask = load_mask(folder / "m.json")
    (section,) = document([Item(mask, "m.json", file="m.json")]).sections
    arguments = {line.split()[1]: command_arguments(line)[1] for line in section.again.lines}
    assert [*arguments][:2] == ["score", "prune"]
    for name in ("score", "prune"):  # without, prune would choose heads
        assert arguments[name]["players"] == PLAYERS
    total = mask.grid.size
    assert section.title == f"Mask m.json: {total - 1} of {total} {NOUN} kept"
    (made,) = section.made
    assert NOUN in [name for name, _ in made.facts]


def test_heads_and_neurons_have_sections_of_their_own(folder: Path) -> None:
    store = Store(folder / "cache")
    keys = [result.key for result in (*store.scan(None).results, *store.curves(None).results)]
    report = document(find_results(keys, store))
    titles = [section.title for section in report.sections]
    assert len(titles) == 4
    assert sum(f"as {NOUN} leave" in title for title in titles) == 1
    assert sum("as heads leave" in title for title in titles) == 1
    assert report.title.startswith("Parts of ")


def test_curves_and_maps_of_neurons_are_called_so(folder: Path) -> None:
    store = Store(folder / "cache")
    (curve,) = [result.record for result in store.curves(PLAYERS).results]
    (heads,) = [result.record for result in store.curves().results]
    assert curve_points(curve, "de").columns[0] == f"{NOUN} removed"
    assert curve_points(heads, "de").columns[0] == "heads removed"
    assert curve_summary([curve]).columns[-1] == NOUN
    assert curve_summary([heads]).columns[-1] == "heads"
    assert curve_summary([curve, heads]).columns[-1] == "players"
    assert curves_chart([curve]).x.title == f"{NOUN} removed"
    (scores,) = [result.record for result in store.scan(PLAYERS).results]
    caption = map_caption(scores, "")
    assert caption.startswith("Groups of neurons of ")
    assert "A removed group of neurons gives zeros." in caption
