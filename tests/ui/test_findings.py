"""What the Overview says was found: made from results by rule, nothing typed in."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from app_pages import app_on, said
from cached_reports import keep
from cached_scores import fill, made_up
from made_fronts import made_front
from streamlit.testing.v1 import AppTest

from headlab.scores import HeadScores
from headlab.store import Result
from headlab.studies.differences import COLUMNS
from headlab.tables import Report, Table
from headlab.ui.findings import findings

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("native_buttons")
TARGETED = ("language", "removed by", "heads removed", "untouched, %", "accuracy, %", *COLUMNS, "p (Holm)")
PAIRS = ("language", "other", "rho", "low", "high", "ceiling")


def scores(harmful: int, *, size: int = 144, language: str = "de") -> HeadScores:
    """So many heads surely harm, two surely help, the others are 0."""
    made = made_up(language, "shapley")
    values = np.zeros(size)
    values[:harmful], values[-2:] = -0.03, 0.03
    p = np.where(values == 0, 1.0, 1e-9)
    return dataclasses.replace(made, values=values, low=values - 0.01, high=values + 0.01, p_values=p)


def stored(report: Report) -> Result[Report]:
    return Result[Report]("0123456789abcdef", Path("nowhere"), report, {})


def report(name: str, columns: tuple[str, ...], *rows: tuple[Any, ...]) -> Report:
    spec = {
        "format": 1, "kind": "report", "experiment": name, "seed": 0, "options": {}, "version": 1, "ablation": "zero",
        "model": {"name": "e5-small-intents", "revision": "r", "fingerprint": "0" * 64},
        "task": {"name": "intents", "language": "de,th", "split": "dev,test", "seed": 0, "data_hash": "x",
                 "sizes": {"dev": [512, 512], "test": [1000, 900]}},
    }  # fmt: skip
    return Report(name, (Table(name, name, columns, ("",) * len(columns), rows),), (), spec)


def test_harm_is_counted_before_and_after_correction_with_its_basis() -> None:
    found = findings({"de": scores(3), "th": scores(1, language="th")}, {})
    assert "German (de): 3 of 144 heads lower the accuracy (dev, n = 512; each by its own 95 % interval)" in (
        found[0].sentence.replace("95%", "95 %")
    )
    assert "Holm's correction for all 288 heads of these 2 languages: 4." in found[0].sentence
    assert (found[0].page, found[0].more) == ("heads", {"focus": "de"})
    assert "2 heads surely help, and 140 of 144 neither" in found[1].sentence
    assert found[1].sentence.startswith("In the median of these 2 languages")


def test_no_harm_no_signs_and_no_results() -> None:
    assert findings({"de": scores(0)}, {})[0].sentence.startswith("No head surely harms this language (dev, n = 512")
    assert findings({"de": scores(0)}, {})[1].sentence.startswith("Here 2 heads surely help")
    assert findings({"de": made_up("de", "gradient")}, {}) == []
    assert findings({}, {}) == []


def test_what_switching_off_gains_is_the_surest_language_of_the_report() -> None:
    rows = [
        ("de", "harmful", 10, 70.7, 75.4, 4.7, 2.2, 7.3, 0.001, 0.002),
        ("th", "harmful", 1, 71.5, 73.7, 2.2, -0.8, 3.8, 0.2, 0.0004),
        ("de", "random", 10, 70.7, 90.0, 19.3, 15.0, 24.0, 0.001, 0.002),
        ("mean", "harmful", None, 71.1, 74.5, 3.4, 1.0, 5.0, 0.001, None),
        ("fi", "harmful", 0, 54.0, 54.0, 0.0, None, None, 1.0, 1.0),
    ]
    (found,) = findings({}, {"targeted": stored(report("targeted", TARGETED, *rows))})
    assert "German (de): its 10 harmful heads switched off, accuracy on test goes from 70.7 to 75.4 %" in found.sentence
    assert "(+4.7 [+2.2, +7.3] points, n = 1,000, p = 0.002 by Holm over the languages)" in found.sentence
    assert found.more == {"experiment": "targeted", "report": "0123456789ab"}
    (found,) = findings({}, {"targeted": stored(report("targeted", TARGETED, rows[1]))})
    assert "(+2.2 [\N{MINUS SIGN}0.8, +3.8] points, n = 900, p = below 0.001 by Holm" in found.sentence
    assert findings({}, {"targeted": stored(report("targeted", TARGETED, *rows[2:]))}) == []


def test_a_front_and_an_agreement_say_what_they_found() -> None:
    (front,) = findings({}, {"front": stored(made_front())})
    assert front.sentence.startswith("2 of 6 heads can go in every language at once: smallest within 1 points")
    assert front.page == "prune"
    rows = [("de", "th", 0.4, 0.3, 0.5, 0.9), ("de", "fi", 0.6, 0.5, 0.7, 0.8), ("th", "fi", 0.2, 0.1, 0.3, None)]
    (pair,) = findings({}, {"agreement": stored(report("agreement", PAIRS, *rows))})
    assert "The median of 3 pairs of languages, German (de) and Thai (th)" in pair.sentence
    assert "ρ = 0.40 [0.30, 0.50]; noise alone would allow 0.85" in pair.sentence
    rows = [(*row[:5], None) for row in rows]
    (pair,) = findings({}, {"agreement": stored(report("agreement", PAIRS, *rows))})
    assert "noise" not in pair.sentence


def test_a_table_of_another_version_is_left_out() -> None:
    (one,) = (findings({}, {"targeted": stored(report("other", TARGETED))}),)
    assert one == []


def test_the_overview_begins_with_what_was_found(tmp_path: Path) -> None:
    with app_on(fill(tmp_path)):
        rows = [("de", "harmful", 10, 70.7, 75.4, 4.7, 2.2, 7.3, 0.001, 0.002)]
        keep(tmp_path, report("targeted", TARGETED, *rows))
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
        app.query_params["langs"] = ["de", "th"]
        app.run()
        assert not app.exception
        words = said(app)
        assert "What was found" in words
        assert "lower the accuracy" in words
        assert "accuracy on test goes from 70.7 to 75.4 %" in words
