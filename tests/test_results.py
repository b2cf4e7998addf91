"""Pages of results: made from the files beside them.

They hold no sentence of the data that they were computed on.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headlab.core import Report
from headlab.results import Store

ROOT = Path(__file__).parents[1]
PAGES = ("results_gates", "results_held", "results_roles")
MAX_BYTES = 6 << 20


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", params=PAGES)
def results(request: pytest.FixtureRequest) -> Any:
    """A tool whose results are committed."""
    results_tool = tool(request.param)
    if not results_tool.FINDINGS.is_file():
        pytest.skip(f"no results are committed for {request.param}")
    return results_tool


def test_the_page_is_what_its_files_give(results: Any) -> None:
    assert results.PAGE.read_text(encoding="utf-8") == results.page(), (
        f"run: python tools/{results.__name__}.py"
    )


def test_every_report_is_whole_and_names_its_command(results: Any) -> None:
    paths = list(results.RESULTS.glob("*.json"))
    assert paths
    for path in paths:
        value = json.loads(path.read_text(encoding="utf-8"))
        assert value["command"].startswith("headlab reproduce ")
        report = Report.from_json(value)
        assert report.tables
        assert not any(table.rows for table in report.tables if table.name == "role-examples")
    sizes = [path.stat().st_size for path in results.RESULTS.rglob("*") if path.is_file()]
    assert sum(sizes) < MAX_BYTES


def test_the_page_of_the_demo_has_the_figures_of_its_cache() -> None:
    demo = tool("results_demo")
    assert demo.PAGE.read_text(encoding="utf-8") == demo.page(), "run: python tools/results_demo.py"


def test_the_committed_reports_are_in_the_cache_as_they_are() -> None:
    """If reports or their specs were stored differently, pages would not find them in the cache."""
    store = Store(ROOT / "headlab" / "embedded" / "results")
    listing = store.reports()
    assert listing.problems == ()
    result_by_key = {result.key: result for result in listing.results}
    model_names = set()
    for _, report in tool("fill_cache").reports():
        model_name = report.spec["model"]["name"]
        model_names.add(model_name)
        result = result_by_key[store.run(report.spec).key]
        if model_name == "e5-small-intents":  # those of the demo have all rows, and sentences
            assert {*result.record.table("roles").rows} >= {*report.table("roles").rows}
        else:
            assert (result.record, result.meta["created"][:4]) == (report, "2026")
    assert model_names == {
        "e5-small-intents",
        "e5-small-udpos",
        "e5-small-xnli",
        "multilingual-e5-small",
    }


@pytest.mark.parametrize("name", ["results_decoders", "results_players"])
def test_the_page_of_findings_is_what_its_files_give(name: str) -> None:
    results_tool = tool(name)
    assert results_tool.PAGE.read_text(encoding="utf-8") == results_tool.page(), (
        f"run: python tools/{name}.py"
    )
    paths = list(results_tool.RESULTS.glob("*.json"))
    assert paths
    for path in paths:
        json.loads(path.read_text(encoding="utf-8"))
    assert sum(path.stat().st_size for path in paths) < MAX_BYTES
