"""`headlab worth` and `headlab front` with a vocabulary cut to languages: what export writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.cut_vocabularies import save_intents_classifier
from support.exports import export

from headlab.cli.run import main
from headlab.studies import savings

THAI = ("--task", "intents", "--languages", "th")
TIMING = ("--rounds", "6", "--batch-sizes", "4", "--device", "cpu")
WIDTH = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny classifier of intents whose vocabulary can be cut, and a mask."""
    return save_intents_classifier(tmp_path_factory.mktemp("vocabulary"))


def worth(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """What `headlab worth` prints: text, or with --json the record."""
    words = ["worth", "--model", str(folder / "model"), "--mask", str(folder / "mask.json")]
    assert main([*words, *TIMING, *arguments]) == 0
    output = capsys.readouterr().out
    return json.loads(output) if "--json" in arguments else output


def exported(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str, **options: Any):
    """The record of `headlab export --as small` in Thai."""
    thai = (*THAI, "--test-size", "5", "--json")
    code, stdout, _ = export(folder, capsys, "small", *thai, *arguments, **options)
    assert code == 0
    return json.loads(stdout)


def test_the_parameters_are_those_that_export_writes(folder, capsys):
    record = worth(folder, capsys, *THAI, "--vocabulary", "cut", "--json")
    written = exported(folder, capsys, out="thai")
    parameters = record["parameters"]
    assert parameters["untouched"] == written["parameters_before"]
    assert parameters["cut"] == written["parameters_after"]
    vocabulary = record["vocabulary"]
    assert vocabulary["pieces"] == written["pieces_before"]
    assert vocabulary["parameters"] == WIDTH * written["pieces_before"]
    assert vocabulary["share"] == vocabulary["parameters"] / parameters["untouched"]
    assert vocabulary["cut"] == {
        "languages": ["th"],
        "pieces": written["pieces_after"],
        "parameters": WIDTH * written["pieces_after"],
        "share": WIDTH * written["pieces_after"] / parameters["cut"],
    }
    pieces_gone = written["pieces_before"] - written["pieces_after"]
    assert parameters["shrunk"] - parameters["cut"] == WIDTH * pieces_gone
    assert record["bytes"]["untouched"] == written["bytes_before"]
    assert record["bytes"]["cut"] == 4 * parameters["cut"]
    assert record["macs"]["cut"] == record["macs"]["shrunk"]
    (speed,) = record["speed"]
    assert speed["cut"]["rounds"] == 6
    assert record["spec"]["languages"] == ["th"]
    assert savings.Savings.from_json(record).to_json() == record


def test_the_report_has_a_row_and_a_sentence_for_the_model_with_fewer_pieces(folder, capsys):
    text = worth(folder, capsys, "--languages", "th", "--vocabulary", "cut")
    assert text.count("| shrunk, vocabulary cut |") == 2
    assert "Without the heads and with a vocabulary of th (" in text
    assert "with the vocabulary cut " in text
    assert "sentences of intents in th, as plain texts" in text
    assert "cuts it to the languages that you name" not in text


def test_a_large_vocabulary_that_stays_is_named_with_the_command_that_cuts_it(
    folder, capsys, monkeypatch
):
    monkeypatch.setattr(savings, "LARGE_SHARE", 0.05)
    text = worth(folder, capsys, *THAI)
    assert "`headlab export --mask mask.json --languages de,th --as small` cuts it to" in text
    record = worth(folder, capsys, *THAI, "--json")
    share = record["vocabulary"]["share"]
    assert f"The vocabulary is {share:.0%} of the model" in text
    assert record["vocabulary"]["cut"] is record["parameters"]["cut"] is None
    assert record["speed"][0]["cut"] is None


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        (("--vocabulary", "cut"), "needs the languages that stay"),
        (("--vocabulary", "cut", *THAI[:2]), "needs the languages that stay"),
        (("--vocabulary", "some"), "keep or cut"),
        (
            ("--vocabulary", "cut", "--languages", "th", "--data", "."),
            "--data would be about a task",
        ),
        (("--vocabulary", "cut", "--languages", "lo"), "'lo'"),
        (("--languages", "th"), "--languages would be about a task"),
    ],
)
def test_what_does_not_fit_ends_with_a_sentence(folder, capsys, arguments, phrase):
    words = ["worth", "--model", str(folder / "model"), "--mask", str(folder / "mask.json")]
    assert main([*words, *arguments]) == 2
    assert phrase in capsys.readouterr().err


def front(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The report of a small front in Thai."""
    sizes = ("--size", "12", "--test-size", "12", "--points", "3", "--orders", "mean")
    words = ["front", "--model", str(folder / "model"), *THAI, "--method", "random", *sizes]
    place = ("--cache", str(folder / "cache"), "--device", "cpu", "--full", "--json")
    assert main([*words, *place, *arguments]) == 0
    return json.loads(capsys.readouterr().out)["report"]


def test_a_front_counts_the_cut_vocabulary_and_changes_nothing_else(folder, capsys):
    kept, cut = (front(folder, capsys, "--vocabulary", choice) for choice in ("keep", "cut"))
    written = exported(folder, capsys, mask=None, out="all-heads")
    kept_models, cut_models = (tables_of(report)["front"] for report in (kept, cut))
    pieces_gone = written["pieces_before"] - written["pieces_after"]
    column = kept_models["columns"].index("parameters")
    for kept_row, cut_row in zip(kept_models["rows"], cut_models["rows"], strict=True):
        assert kept_row[column] - cut_row[column] == WIDTH * pieces_gone
        assert kept_row[:column] == cut_row[:column]
        assert kept_row[column + 1 :] == cut_row[column + 1 :]
    assert cut_models["rows"][0][column] == written["parameters_after"]
    assert "vocabulary" not in kept["spec"]["options"]  # as in fronts of earlier versions
    assert cut["spec"]["options"]["vocabulary"] == "cut"
    (note,) = (note for note in cut["notes"] if "vocabulary" in note)
    assert f"{written['pieces_after']:,} of {written['pieces_before']:,} pieces stay" in note
    assert f"the untouched model has {written['parameters_before']:,}" in note
    assert "--task intents --languages th --as small" in note
    assert [*kept["notes"], note] == cut["notes"]


def tables_of(report: dict[str, Any]) -> dict[str, Any]:
    """The tables of a report by name."""
    return {table["name"]: table for table in report["tables"]}


def test_a_front_whose_models_cost_heads_refuses_a_cut(folder, capsys):
    words = ["front", "--model", str(folder / "model"), *THAI, "--ablation", "mean"]
    place = ("--cache", str(folder / "cache"), "--device", "cpu")
    assert main([*words, *place, "--vocabulary", "cut", "--method", "random"]) == 2
    error = capsys.readouterr().err
    assert "--vocabulary cut would have no effect" in error
    assert "heads that give their mean cannot be removed" in error


def test_a_front_of_players_counts_them_with_the_cut_vocabulary_as_worth_does(
    folder, capsys, tmp_path
):
    players = "heads,neurons:2"
    mask = tmp_path / "mask.json"
    front_of_players = ("--players", players, "--within", "100", "--by", "estimate")
    kept, cut = (
        front(folder, capsys, "--vocabulary", choice, *front_of_players, "--out", str(mask))
        for choice in ("keep", "cut")
    )
    assert cut["spec"]["options"]["players"] == cut["spec"]["players"] == players
    kept_models, cut_models = (tables_of(report)["front"] for report in (kept, cut))
    assert cut_models["columns"][1:3] == ["players removed", "players kept"]
    column = kept_models["columns"].index("parameters")
    saved = {
        kept_row[column] - cut_row[column]
        for kept_row, cut_row in zip(kept_models["rows"], cut_models["rows"], strict=True)
    }
    assert len(saved) == 1
    (note,) = (note for note in cut["notes"] if "vocabulary" in note)
    assert "`headlab export --mask mask.json --task intents --languages th --as small`" in note
    (answer, _) = tables_of(cut)["front-choice"]["rows"]
    assert json.loads(mask.read_text(encoding="utf-8"))["version"] == 3
    words = ["worth", "--model", str(folder / "model"), "--mask", str(mask), *THAI, *TIMING]
    assert main([*words, "--vocabulary", "cut", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["parameters"]["cut"] == answer[4]
    assert record["parameters"]["shrunk"] - record["parameters"]["cut"] == saved.pop()
    assert record["speed"][0]["cut"]["rounds"] == 6
    assert any("Without the players and with a vocabulary of th" in n for n in record["notes"])
    heads = front(folder, capsys)
    assert not {"players", "groups"} & {*heads["spec"], *heads["spec"]["options"]}
    assert tables_of(heads)["front"]["columns"][1:3] == ["heads removed", "heads kept"]
