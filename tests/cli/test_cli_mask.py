"""`headlab mask`: read, compare, convert and combine mask files as scripts do."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.saved_models import save_classifier

import headlab
from headlab.cli.run import main
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
def run_command(capsys):
    """A function that runs `headlab mask ...` and gives its exit code, stdout and stderr."""

    def go(*arguments):
        code = main(["mask", *map(str, arguments)])
        return code, *capsys.readouterr()

    return go


@pytest.fixture
def file(tmp_path):
    """A function that writes a mask without some heads (flat indices) and gives its path."""

    def write(name, *removed_heads, **fields):
        is_kept = np.ones(GRID.size, bool)
        is_kept[list(removed_heads)] = False
        provenance = noted(
            {"rule": "bottom", "k": len(removed_heads), "languages": ["th"]},
            "test",
            "intents",
            {"th": FIGURE},
        )
        Mask(GRID, is_kept, MODEL, provenance, **fields).save(tmp_path / name)
        return tmp_path / name

    return write


def test_show_prints_model_choice_map_accuracies_and_time(run_command, file):
    path = file("a.json", 1, 6, created="2026-11-21T09:30:00Z", versions={"torch": "2.13.0"})
    code, stdout, _ = run_command("show", path)
    assert code == 0
    for phrase in (
        "2 of 12 heads off (encoder 3×4)",
        "m, fingerprint ffffffffffff",
        "rule bottom; k 2; languages th",
        "encoder   1  . . x .  1 off",
        "| a.json | test | intents | th | 512 | 61.0 | 60.0 | +1.0 | -1.0 … +3.0 |",
        "made 2026-11-21T09:30:00Z with torch 2.13.0",
    ):
        assert phrase in stdout
    code, stdout, _ = run_command("show", file("a.json", 1), "--json")
    rows_of_layers = [
        [1, 0, 1, 1],
        [1] * 4,
        [1] * 4,
    ]
    assert json.loads(stdout)["kept"] == {"encoder": rows_of_layers}


def test_validate_exits_with_0_or_with_2_and_a_sentence(run_command, file, tmp_path):
    valid_file = file("a.json", 0, 5)
    code, stdout, stderr = run_command("validate", valid_file)
    assert (code, stderr) == (0, "")
    assert "is a valid mask: 2 of 12 heads off" in stdout
    code, stdout, _ = run_command("validate", valid_file, "--json")
    facts = json.loads(stdout)
    del facts["digest"]
    assert facts == {"valid": True, "heads": 12, "removed": 2}
    later_version = json.loads(valid_file.read_text()) | {"version": 4}
    broken = {
        "later.json": json.dumps(later_version),
        "torn.json": valid_file.read_text()[:50],
        "list.json": "[]",
    }
    for name, text in broken.items():
        (tmp_path / name).write_text(text)
        code, stdout, stderr = run_command("validate", tmp_path / name)
        assert (code, stdout) == (2, "")
        assert stderr.startswith("headlab: ")
        assert name in stderr
        assert len(stderr.splitlines()) == 1
    assert run_command("validate", tmp_path / "none.json")[0] == 2


def test_diff_prints_the_heads_that_only_one_mask_removes(run_command, file):
    file_a = file("a.json", 0, 1, 6)
    file_b = file("b.json", 1, 6, 11)
    code, stdout, _ = run_command("diff", file_a, file_b, "--json")
    difference = json.loads(stdout)
    assert code == 0
    assert difference["only_a"] == [["encoder", 0, 0]]
    assert difference["only_b"] == [["encoder", 2, 3]]
    assert difference["both"] == [["encoder", 0, 1], ["encoder", 1, 2]]
    assert difference["jaccard"] == 0.5
    code, stdout, _ = run_command("diff", file_a, file_b)
    assert "only A removes 1: 0.0" in stdout
    assert "| encoder | 0 | 4 | 2 | 1 | 1 | 1 | 0 | 0.50 |" in stdout
    assert "| B | test | intents | th |" in stdout


def test_diff_says_which_mask_a_note_is_of(run_command, file):
    files = []
    for name, ablation in (("a.json", "mean"), ("b.json", "zero")):
        path = file(name, 0)
        mask = load_mask(path)
        choice = noted(
            {"ablation": ablation}, "dev", "t", {"de": {"accuracy": 0.5, "n": 9}}, ablation=ablation
        )
        Mask(mask.grid, mask.kept, mask.model, choice).save(path)
        files.append(path)
    _, stdout, _ = run_command("diff", *files)
    notes = [line for line in stdout.splitlines() if "measured with" in line]
    words = "dev: measured with mean ablation (what is removed gives its mean output)"
    assert notes == [f"A: {words}, as the heads were chosen."]
    _, stdout, _ = run_command("show", files[0])
    assert f"{words}, as the heads were chosen." in stdout.splitlines()


@pytest.mark.parametrize(
    ("way", "removed_heads"),
    [
        ("and", [0, 1, 6, 11]),
        ("or", [1]),
        ("majority", [1, 6]),
    ],
)
def test_combine_makes_one_mask_of_several(run_command, file, tmp_path, way, removed_heads):
    files = [
        file("a.json", 0, 1, 6),
        file("b.json", 1, 6, 11),
        file("c.json", 1),
    ]
    command = ["combine", *files, "--how", way, "--out", tmp_path / "all.json"]
    code, stdout, _ = run_command(*command, "--json")
    assert code == 0
    assert json.loads(stdout)["removed"] == len(removed_heads)
    combined_mask = load_mask(tmp_path / "all.json")
    assert np.flatnonzero(~combined_mask.kept).tolist() == removed_heads
    assert combined_mask.model == MODEL
    code, stdout, _ = run_command(*command)
    assert f"{len(removed_heads)} of 12 heads off" in stdout
    assert run_command("combine", files[0], "--out", tmp_path / "one.json")[0] == 2
    bytes_before = files[1].read_bytes()
    (tmp_path / "link.json").symlink_to(files[1])
    for path in (files[1], tmp_path / "link.json"):
        code, _, stderr = run_command("combine", *files, "--out", path)
        assert code == 2
        assert "one of the masks to combine" in stderr
    assert files[1].read_bytes() == bytes_before


def test_a_note_says_which_masks_name_no_model(run_command, file, tmp_path):
    mask_without_model = json.loads(file("a.json", 1).read_text())
    mask_without_model["model"] = {"name": None, "fingerprint": None}
    (tmp_path / "a.json").write_text(json.dumps(mask_without_model))
    files = [tmp_path / "a.json", file("b.json", 2)]
    code, _, stderr = run_command("combine", *files, "--out", tmp_path / "all.json")
    assert code == 0
    assert stderr == (
        "headlab: note: 1 of the 2 masks have no fingerprint, so whether they are of this model was not checked\n"
    )


def test_texts_of_a_file_cannot_control_the_terminal(run_command, file, tmp_path):
    attack = "\x1b[2Jgotcha\nmodel: trusted"
    value = json.loads(file("a.json", 1).read_text())
    value["model"] = {
        "name": attack,
        "fingerprint": attack,
        "architecture": {"class": attack, "model_type": attack},
    }
    value["chosen"]["evaluated"]["test"] = {
        "task": attack,
        "languages": {attack: FIGURE},
    }
    value["chosen"] |= {
        "rule": attack,
        "languages": [attack],
        attack: attack,
    }
    value["versions"] = {attack: attack}
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(value))
    value["chosen"]["evaluated"]["test"]["languages"] = {attack: {}}
    (tmp_path / "broken.json").write_text(json.dumps(value))
    for arguments in (
        ["show", path],
        ["validate", path],
        ["diff", path, path],
        ["validate", tmp_path / "broken.json"],
        ["combine", path, file("b.json", 2), "--out", tmp_path / "c.json"],
    ):
        _, stdout, stderr = run_command(*arguments)
        assert "\x1b" not in stdout + stderr
        assert "model: trusted" not in (stdout + stderr).splitlines()
        if arguments[0] == "validate":
            assert len((stdout + stderr).splitlines()) == 1


def test_convert_takes_heads_as_text_and_gives_them_back(run_command, tmp_path):
    mask_path = tmp_path / "m.json"
    code, stdout, _ = run_command(
        "convert", "2:1 3:4", "--grid", "3x4", "--count-from", "1", "--out", mask_path, "--json"
    )
    assert code == 0
    assert json.loads(stdout)["removed"] == 2
    removed_heads = [tuple(head) for head in load_mask(mask_path).removed]
    assert removed_heads == [("encoder", 1, 0), ("encoder", 2, 3)]
    assert run_command("convert", mask_path, "--to", "text", "--count-from", "1")[1] == "2:1 3:4\n"
    assert run_command("convert", mask_path, "--to", "pruned-heads")[1] == '{"1": [0], "2": [3]}\n'
    assert run_command("convert", mask_path, "--to", "pairs")[1] == "[[1, 0], [2, 3]]\n"
    code, _, stderr = run_command(
        "convert", mask_path, "--to", "array", "--out", tmp_path / "m.npy"
    )
    assert "the heads only" in stderr
    array = np.load(tmp_path / "m.npy")
    assert array.tolist() == [
        [1] * 4,
        [0, 1, 1, 1],
        [1, 1, 1, 0],
    ]
    assert run_command("convert", tmp_path / "m.npy", "--to", "pairs")[1] == "[[1, 0], [2, 3]]\n"


def test_convert_refuses_what_is_not_clear(run_command, tmp_path):
    (tmp_path / "unclear.json").write_text("[[0, 1], [1, 0]]")
    for arguments, phrase in (
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
        code, _, stderr = run_command("convert", *arguments)
        assert code == 2
        assert phrase in stderr


def test_flags_of_counting_and_listing_apply_to_the_forms_that_have_them(
    run_command, file, tmp_path
):
    mask = file("a.json", 1, 6)
    grid = ["--grid", "3x4"]
    array = tmp_path / "kept.json"
    rows_of_layers = [
        [0, 1, 0, 0],
        [0, 0, 1, 0],
        [0] * 4,
    ]
    array.write_text(json.dumps(rows_of_layers))
    arguments = ["convert", array, "--to", "text", "--lists", "removed", "--count-from", "1"]
    assert run_command(*arguments)[1] == "1:2 2:3\n"
    for arguments, phrase in (
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
        code, stdout, stderr = run_command("convert", *arguments)
        assert (code, stdout) == (2, ""), stderr
        assert phrase in stderr
    for arguments in (["0:1", *grid], [array]):
        _, stdout, _ = run_command("convert", *arguments, "--stack", "decoder")
        assert json.loads(stdout)["grid"] == {"decoder": [4, 4, 4]}


def test_a_converted_mask_is_of_the_model_and_evaluates_on_it(run_command, tmp_path, capsys):
    folder = save_classifier(tmp_path / "tiny")
    code, *_ = run_command("convert", "0:1", "--model", folder, "--out", tmp_path / "m.json")
    mask = load_mask(tmp_path / "m.json")
    model = headlab.load(str(folder))
    assert code == 0
    mask.check(model.grid, model.fingerprint)
    assert mask.model["architecture"] == {
        "class": "BertForSequenceClassification",
        "model_type": "bert",
    }
    code, script, _ = run_command("snippet", tmp_path / "m.json")
    assert code == 0
    assert f"BertForSequenceClassification.from_pretrained({str(folder.resolve())!r})" in script
    code, stdout, _ = run_command("snippet", tmp_path / "m.json", "--out", tmp_path / "apply.py")
    assert (tmp_path / "apply.py").read_text() == script
    assert "without headlab" in stdout


def test_a_snippet_needs_a_model(run_command, tmp_path):
    run_command("convert", "0:1", "--grid", "3x4", "--out", tmp_path / "m.json")
    code, _, stderr = run_command("snippet", tmp_path / "m.json")
    assert code == 2
    assert "--model" in stderr
