"""`headlab mask`: read, compare, convert and combine mask files as scripts do."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.saved_models import save_classifier

import headlab
from headlab.cli.main import main
from headlab.masks import Mask, load_mask, noted, parse_grid

GRID = parse_grid("3x4")
MODEL = {"name": "m", "revision": "r", "fingerprint": "f" * 64}
FIGURE = {
    "accuracy": 0.61,
    "n": 512,
    "baseline": 0.6,
    "difference": 0.01,
    "low": -0.01,
    "high": 0.03,
    "p": 0.4,
}


@pytest.fixture
def run(capsys):
    """Run `headlab mask ...`; gives (exit code, stdout, stderr)."""

    def go(*arguments):
        code = main(["mask", *map(str, arguments)])
        return code, *capsys.readouterr()

    return go


@pytest.fixture
def file(tmp_path):
    """Write a mask without these heads (flat indices); gives its path."""

    def write(name, *off, **more):
        kept = np.ones(GRID.size, bool)
        kept[list(off)] = False
        chosen = noted(
            {"rule": "bottom", "k": len(off), "languages": ["th"]},
            "test",
            "intents",
            {"th": FIGURE},
        )
        Mask(GRID, kept, MODEL, chosen, **more).save(tmp_path / name)
        return tmp_path / name

    return write


def test_show_tells_model_choice_map_accuracies_and_time(run, file):
    code, out, _ = run(
        "show", file("a.json", 1, 6, created="2026-11-21T09:30:00Z", versions={"torch": "2.13.0"})
    )
    assert code == 0
    for words in (
        "2 of 12 heads off (encoder 3×4)",
        "m, fingerprint ffffffffffff",
        "rule bottom; k 2; languages th",
        "encoder   1  . . x .  1 off",
        "| a.json | test | intents | th | 512 | 61.0 | 60.0 | +1.0 | -1.0 … +3.0 |",
        "made 2026-11-21T09:30:00Z with torch 2.13.0",
    ):
        assert words in out
    code, out, _ = run("show", file("a.json", 1), "--json")
    assert json.loads(out)["kept"] == {"encoder": [[1, 0, 1, 1], [1] * 4, [1] * 4]}


def test_validate_exits_with_0_or_with_2_and_a_sentence(run, file, tmp_path):
    good = file("a.json", 0, 5)
    code, out, err = run("validate", good)
    assert (code, err) == (0, "")
    assert "is a valid mask: 2 of 12 heads off" in out
    code, out, _ = run("validate", good, "--json")
    assert json.loads(out) | {"digest": ""} == {
        "valid": True,
        "heads": 12,
        "removed": 2,
        "digest": "",
    }
    later = json.loads(good.read_text()) | {"version": 3}
    broken = {
        "later.json": json.dumps(later),
        "torn.json": good.read_text()[:50],
        "list.json": "[]",
    }
    for name, text in broken.items():
        (tmp_path / name).write_text(text)
        code, out, err = run("validate", tmp_path / name)
        assert (code, out) == (2, "")
        assert err.startswith("headlab: ")
        assert name in err
        assert len(err.splitlines()) == 1
    assert run("validate", tmp_path / "none.json")[0] == 2


def test_diff_tells_what_only_one_removes(run, file):
    a = file("a.json", 0, 1, 6)
    b = file("b.json", 1, 6, 11)
    code, out, _ = run("diff", a, b, "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["only_a"], found["only_b"]) == ([["encoder", 0, 0]], [["encoder", 2, 3]])
    assert found["both"] == [["encoder", 0, 1], ["encoder", 1, 2]]
    assert found["jaccard"] == 0.5
    code, out, _ = run("diff", a, b)
    assert "only A removes 1: 0.0" in out
    assert "| encoder | 0 | 4 | 2 | 1 | 1 | 1 | 0 | 0.50 |" in out
    assert "| B | test | intents | th |" in out


@pytest.mark.parametrize(
    ("how", "off"), [("and", [0, 1, 6, 11]), ("or", [1]), ("majority", [1, 6])]
)
def test_combine_makes_one_mask_of_several(run, file, tmp_path, how, off):
    files = [file("a.json", 0, 1, 6), file("b.json", 1, 6, 11), file("c.json", 1)]
    code, out, _ = run("combine", *files, "--how", how, "--out", tmp_path / "all.json", "--json")
    assert (code, json.loads(out)["removed"]) == (0, len(off))
    made = load_mask(tmp_path / "all.json")
    assert np.flatnonzero(~made.kept).tolist() == off
    assert made.model == MODEL
    code, out, _ = run("combine", *files, "--how", how, "--out", tmp_path / "all.json")
    assert f"{len(off)} of 12 heads off" in out
    assert run("combine", files[0], "--out", tmp_path / "one.json")[0] == 2
    before = files[1].read_bytes()
    (tmp_path / "link.json").symlink_to(files[1])
    for out in (files[1], tmp_path / "link.json"):
        code, _, err = run("combine", *files, "--out", out)
        assert (code, "one of the masks to combine" in err) == (2, True)
    assert files[1].read_bytes() == before


def test_a_note_says_which_masks_name_no_model(run, file, tmp_path):
    nameless = json.loads(file("a.json", 1).read_text()) | {
        "model": {"name": None, "fingerprint": None}
    }
    (tmp_path / "a.json").write_text(json.dumps(nameless))
    code, _, err = run(
        "combine", tmp_path / "a.json", file("b.json", 2), "--out", tmp_path / "all.json"
    )
    assert code == 0
    assert err == (
        "headlab: note: 1 of the 2 masks have no fingerprint, so whether they are of this model was not checked\n"
    )


def test_what_a_file_says_cannot_command_the_terminal(run, file, tmp_path):
    odd = "\x1b[2Jgotcha\nmodel: trusted"
    value = json.loads(file("a.json", 1).read_text())
    value["model"] = {
        "name": odd,
        "fingerprint": odd,
        "architecture": {"class": odd, "model_type": odd},
    }
    value["chosen"]["evaluated"]["test"] = {"task": odd, "languages": {odd: FIGURE}}
    value["chosen"] |= {"rule": odd, "languages": [odd], odd: odd}
    value["versions"] = {odd: odd}
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(value))
    value["chosen"]["evaluated"]["test"]["languages"] = {odd: {}}
    (tmp_path / "broken.json").write_text(json.dumps(value))
    for arguments in (
        ["show", path],
        ["validate", path],
        ["diff", path, path],
        ["validate", tmp_path / "broken.json"],
        ["combine", path, file("b.json", 2), "--out", tmp_path / "c.json"],
    ):
        _, out, err = run(*arguments)
        assert "\x1b" not in out + err
        assert "model: trusted" not in (out + err).splitlines()
        if arguments[0] == "validate":
            assert len((out + err).splitlines()) == 1


def test_convert_takes_heads_as_text_and_gives_them_back(run, tmp_path):
    out = tmp_path / "m.json"
    code, told, _ = run(
        "convert", "2:1 3:4", "--grid", "3x4", "--count-from", "1", "--out", out, "--json"
    )
    assert (code, json.loads(told)["removed"]) == (0, 2)
    assert [tuple(head) for head in load_mask(out).removed] == [
        ("encoder", 1, 0),
        ("encoder", 2, 3),
    ]
    assert run("convert", out, "--to", "text", "--count-from", "1")[1] == "2:1 3:4\n"
    assert run("convert", out, "--to", "pruned-heads")[1] == '{"1": [0], "2": [3]}\n'
    assert run("convert", out, "--to", "pairs")[1] == "[[1, 0], [2, 3]]\n"
    code, _, note = run("convert", out, "--to", "array", "--out", tmp_path / "m.npy")
    assert "the heads only" in note
    assert np.load(tmp_path / "m.npy").tolist() == [[1] * 4, [0, 1, 1, 1], [1, 1, 1, 0]]
    assert run("convert", tmp_path / "m.npy", "--to", "pairs")[1] == "[[1, 0], [2, 3]]\n"


def test_convert_refuses_what_is_not_clear(run, tmp_path):
    (tmp_path / "unclear.json").write_text("[[0, 1], [1, 0]]")
    for arguments, words in (
        (["2:1"], "--grid like 12x12"),
        ([tmp_path / "none.json"], "cannot read"),
        ([tmp_path], "is not a file"),
        ([tmp_path / "unclear.json"], "--from array or --from pairs"),
        (["2:1", "--grid", "3x4", "--to", "onnx"], "unknown form"),
        (["2:1", "--grid", "3x4", "--lists", "some"], "kept or removed"),
        (["2:1", "--grid", "3x4", "--json"], "--out"),
        (["2:1", "--grid", "3x4", "--out", tmp_path / "m.npy"], "--to array"),
        (["2:1", "--grid", "3x4", "--model", "m"], "leave --grid out"),
    ):
        code, _, err = run("convert", *arguments)
        assert (code, words in err) == (2, True), err


def test_each_way_of_counting_and_listing_goes_to_the_form_that_has_it(run, file, tmp_path):
    mask = file("a.json", 1, 6)
    grid = ["--grid", "3x4"]
    array = tmp_path / "kept.json"
    array.write_text(json.dumps([[0, 1, 0, 0], [0, 0, 1, 0], [0] * 4]))
    arguments = ["convert", array, "--to", "text", "--lists", "removed", "--count-from", "1"]
    assert run(*arguments)[1] == "1:2 2:3\n"
    for arguments, words in (
        ([mask, "--to", "text", "--lists", "kept"], "--lists does not apply to headlab or text"),
        ([mask, "--to", "pruned-heads", "--lists", "kept"], "--lists does not apply"),
        (
            [mask, "--to", "array", "--count-from", "0"],
            "--count-from does not apply to headlab or array",
        ),
        ([mask, "--count-from", "1"], "--count-from does not apply to headlab or headlab"),
        (["0:1", *grid, "--lists", "kept"], "--lists does not apply to text"),
        (
            ["0:1", *grid, "--to", "pairs", "--count-from", "1"],
            "refer to text or to pairs; convert to headlab first",
        ),
        ([mask, "--to", "text", "--stack", "decoder"], "--stack names the only stack"),
        (["0:1", "--model", "m", "--stack", "decoder"], "--model takes none"),
        (["0:1", *grid, "--stack", "a b"], "not a stack name"),
        ([array, "--stack", "a b"], "not a stack name"),
    ):
        code, out, err = run("convert", *arguments)
        assert (code, out, words in err) == (2, "", True), err
    assert json.loads(run("convert", "0:1", *grid, "--stack", "decoder")[1])["grid"] == {
        "decoder": [4, 4, 4]
    }
    assert json.loads(run("convert", array, "--stack", "decoder")[1])["grid"] == {
        "decoder": [4, 4, 4]
    }


def test_a_converted_mask_is_of_the_model_and_evaluates_on_it(run, tmp_path, capsys):
    folder = save_classifier(tmp_path / "tiny")
    code, *_ = run("convert", "0:1", "--model", folder, "--out", tmp_path / "m.json")
    mask = load_mask(tmp_path / "m.json")
    model = headlab.load(str(folder))
    assert code == 0
    mask.check(model.grid, model.fingerprint)
    assert mask.model["architecture"] == {
        "class": "BertForSequenceClassification",
        "model_type": "bert",
    }
    code, script, _ = run("snippet", tmp_path / "m.json")
    assert code == 0
    assert f"BertForSequenceClassification.from_pretrained({str(folder.resolve())!r})" in script
    code, told, _ = run("snippet", tmp_path / "m.json", "--out", tmp_path / "apply.py")
    assert (tmp_path / "apply.py").read_text() == script
    assert "without headlab" in told


def test_a_snippet_needs_a_model(run, tmp_path):
    run("convert", "0:1", "--grid", "3x4", "--out", tmp_path / "m.json")
    code, _, err = run("snippet", tmp_path / "m.json")
    assert (code, "--model" in err) == (2, True)
