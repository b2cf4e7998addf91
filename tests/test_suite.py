"""The suite about itself: which files begin first, and the record that `make soak` writes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from support.file_order import SECONDS, longest_first, seconds_of_files
from support.soak_record import SoakRecorder

ROOT = Path(__file__).parents[1]


def report(test: str, outcome: str, seconds: float, *counts: tuple[str, object]) -> Any:
    return SimpleNamespace(nodeid=test, outcome=outcome, duration=seconds, user_properties=counts)


def test_a_soak_run_is_written_with_outcome_and_seconds_of_every_test(tmp_path: Path) -> None:
    record_file = tmp_path / "new" / "soak.json"
    recorder = SoakRecorder(record_file, "pytest -m soak")
    for row in [
        ("b", "passed", 1.0),
        ("b", "failed", 2.0),
        ("b", "passed", 0.5),
        ("a", "passed", 0.25),
        ("a", "passed", 4.0),
        ("a", "passed", 0.0, ("cases", 7)),
        ("c", "skipped", 0.0),
        ("c", "passed", 0.0),
    ]:
        recorder.pytest_runtest_logreport(report(*row))
    recorder.pytest_sessionfinish(1)
    record = json.loads(record_file.read_text())
    assert record["tests"] == [
        {"test": "a", "outcome": "passed", "seconds": 4.2, "counts": {"cases": 7}},
        {"test": "b", "outcome": "failed", "seconds": 3.5},
        {"test": "c", "outcome": "skipped", "seconds": 0.0},
    ]
    assert (record["command"], record["exit"], record["seconds"]) == ("pytest -m soak", 1, 7.7)
    assert set(record) == {"command", "commit", "python", "cores", "exit", "seconds", "tests"}


def test_soak_is_left_out_by_default_and_by_the_fast_tests_too() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert '-m "not slow and not browser and not soak"' in makefile
    assert "pytest -m soak --soak-out=benchmarks/results/soak.json" in makefile
    assert '"-m", "not soak"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_files_that_take_long_are_those_of_the_document_and_begin_first() -> None:
    seconds = seconds_of_files(SECONDS.read_text(encoding="utf-8"))
    assert all((ROOT / name).exists() for name in seconds)
    names = ("a.py::1", "b.py::2", "c.py::3", "b.py::1", "a.py::0")
    items: list[Any] = [SimpleNamespace(nodeid=f"tests/test_{name}") for name in names]
    longest_first(items, {"tests/test_c.py": 9.0, "tests/test_b.py": 3.5})
    order = [item.nodeid.removeprefix("tests/test_") for item in items]
    assert order == ["c.py::3", "b.py::2", "b.py::1", "a.py::1", "a.py::0"]
    page = "| `tests/test_a.py` | 12.5 | 3.5 |\n| `tests/test_b.py` | 7 | – |\n| all | 19 | 3 |\n"
    assert seconds_of_files(page) == {"tests/test_a.py": 3.5}
