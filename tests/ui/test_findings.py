"""What the Overview says was found: made from results by rule, nothing typed in."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest
from support.app_pages import app_on, said
from support.cached_reports import keep
from support.cached_scores import fill, made_up
from support.synthetic_fronts import POINTS, made_front

from headlab.core import Report, Table
from headlab.dashboard.pages.overview.findings import by_preference, findings
from headlab.results import HeadScores, Result
from headlab.studies.differences import COLUMNS

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("native_buttons")
TARGETED = (
    "language",
    "removed by",
    "heads removed",
    "untouched, %",
    "accuracy, %",
    *COLUMNS,
    "p (Holm)",
)
PAIRS = ("language", "other", "rho", "low", "high", "ceiling", "noise")


def scores(harmful: int, *, size: int = 144, language: str = "de") -> HeadScores:
    """So many heads surely harm, two surely help, the others are 0."""
    made = made_up(language, "shapley")
    values = np.zeros(size)
    values[:harmful], values[-2:] = -0.03, 0.03
    p = np.where(values == 0, 1.0, 1e-9)
    return dataclasses.replace(
        made, values=values, low=values - 0.01, high=values + 0.01, p_values=p
    )


def stored(report: Report) -> Result[Report]:
    return Result[Report]("0123456789abcdef", Path("nowhere"), report, {})


def report(
    name: str, columns: tuple[str, ...], *rows: tuple[Any, ...], languages: str = "de,th"
) -> Report:
    spec = {
        "format": 1,
        "kind": "report",
        "experiment": name,
        "seed": 0,
        "options": {},
        "version": 1,
        "ablation": "zero",
        "model": {"name": "e5-small-intents", "revision": "made-up", "fingerprint": "0" * 64},
        "task": {
            "name": "intents",
            "language": languages,
            "split": "dev,test",
            "seed": 0,
            "data_hash": "x",
            "sizes": {"dev": [512, 512, 512], "test": [1000, 900, 800][: languages.count(",") + 1]},
        },
    }
    return Report(name, (Table(name, name, columns, ("",) * len(columns), rows),), (), spec)


def test_harm_is_counted_before_and_after_correction_with_its_basis() -> None:
    unsure = scores(1, language="th")
    unsure = dataclasses.replace(
        unsure, p_values=np.where(unsure.values < 0, 0.02, unsure.p_values)
    )
    found = findings({"de": scores(3), "th": unsure}, {})
    assert found[0].sentence == (
        "Of 288 heads in German (de) and Thai (th), 4 harm, each by its own 95 % interval; 3 "
        "of them after Holm's correction for all 288 "
        "(shapley, dev, 512 examples). Most are in German (de): 3 of 144."
    )
    assert (found[0].page, found[0].link_params) == ("heads", {"focus": "de"})
    assert found[1].sentence.startswith(
        "The median of German (de) and Thai (th): 2 of 144 heads help, and the sign of 140 is not settled"
    )
    (one, _) = findings({"th": unsure}, {})
    assert (
        "Thai (th): 1 of 144 heads harm, each by its own 95 % interval; none of them after Holm's"
        in one.sentence
    )


def test_no_harm_no_signs_and_no_results() -> None:
    none, rest = findings({"de": scores(0)}, {})
    assert (
        none.sentence
        == "No head in German (de) has a 95 % interval below 0 (shapley, dev, 512 examples)."
    )
    assert rest.sentence.startswith("German (de): 2 of 144 heads help")
    assert findings({"de": made_up("de", "gradient")}, {}) == []
    assert findings({}, {}) == []


def test_examples_levels_and_cautions_are_those_of_the_scores() -> None:
    small = scores(1, language="th")
    small = dataclasses.replace(
        small, spec={**small.spec, "task": {**small.spec["task"], "size": 300}}, level=0.975
    )
    paper = dataclasses.replace(scores(2), method="paper", level=0.975, p_values=None)
    sentence = findings({"de": paper, "th": small}, {})[0].sentence
    assert "each by its own 97.5 % interval (paper, dev, 300 to 512 examples)" in sentence
    assert "Caution: " in sentence


TARGETS = [
    ("de", "harmful", 10, 70.7, 75.4, 4.7, 2.2, 7.3, 0.001, 0.002),
    ("th", "harmful", 1, 71.5, 73.7, 2.2, -0.8, 3.8, 0.2, 0.4),
    ("de", "random", 10, 70.7, 90.0, 19.3, 15.0, 24.0, 0.001, 0.002),
    ("mean", "harmful", None, 71.1, 74.5, 3.4, -1.0, 5.0, 0.001, None),
    ("fi", "harmful", 0, 54.0, 54.0, 0.0, None, None, 1.0, 1.0),
]


def test_what_switching_off_gains_is_said_with_how_many_languages_gain_and_the_mean() -> None:
    (found,) = findings(
        {}, {"targeted": [stored(report("targeted", TARGETED, *TARGETS, languages="de,th,fi"))]}
    )
    assert found.sentence == (
        "Heads that harm on dev by the scores, switched off in German (de), Thai (th) and Finnish (fi): of 2 "
        "languages with such heads 1 gains significantly on test "
        "(Holm-adjusted p at most 0.05). The clearest is German (de), 10 heads off: 70.7 to 75.4 "
        "%, +4.7 [+2.2, +7.3] points, 1,000 examples. "
        "Mean of these 3 languages: +3.4 [\N{MINUS SIGN}1.0, +5.0] points."
    )
    assert found.link_params == {"experiment": "targeted", "report": "0123456789ab"}
    assert findings({}, {"targeted": [stored(report("targeted", TARGETED, *TARGETS[2:]))]}) == []


def test_a_front_says_whether_test_confirms_it() -> None:
    made = made_front()
    (front,) = findings({}, {"front": [stored(made)]})
    assert front.sentence == (
        "2 of 6 heads can go in German (de) and Thai (th) at once with a loss of at most 1 point in any, by the "
        "lower bound on dev (heads ordered by shapley; 512 dev and 1,000 test examples a language); on test, a larger "
        "loss is not ruled out in German (de) and Thai (th); mean of both "
        "\N{MINUS SIGN}1.0 [\N{MINUS SIGN}2.0, +0.0] points."
    )
    assert front.page == "prune"
    spec = {**made.spec, "options": {**made.spec["options"], "within": None, "heads": 4}}
    # whatever is lost
    assert findings({}, {"front": [stored(dataclasses.replace(made, spec=spec))]}) == []


def test_an_agreement_is_said_with_its_ends_its_median_and_its_ceiling() -> None:
    rows = [
        ("de", "th", 0.4, 0.3, 0.5, 0.9, ""), ("de", "fi", 0.6, 0.5, 0.7, 0.8, ""),
        ("th", "fi", -0.2, -0.3, 0.3, 0.1, "too noisy"),
    ]  # fmt: skip
    (found,) = findings(
        {}, {"agreement": [stored(report("agreement", PAIRS, *rows, languages="de,fi,th"))]}
    )
    assert found.sentence == (
        "Of German (de), Finnish (fi) and Thai (th), "
        "Thai (th) and Finnish (fi) (ρ = \N{MINUS SIGN}0.20 [\N{MINUS SIGN}0.30, 0.30]) rank the heads least alike, "
        "German (de) and Finnish (fi) (ρ = 0.60 [0.50, 0.70]) most, the median "
        "of 3 pairs is 0.40 (by the scores, on 512 dev examples a language). With this noise two "
        "equal rankings would show about 0.85."
    )
    (coded,) = findings(
        {},
        {
            "agreement": [
                stored(report("agreement", PAIRS, ("zh-CN", "th", -0.1, -0.2, 0.1, None, "")))
            ]
        },
    )
    # the minus is the number's alone
    assert "(zh-CN) and Thai (th) (ρ = \N{MINUS SIGN}0.10" in coded.sentence
    (found,) = findings({}, {"agreement": [stored(report("agreement", PAIRS, rows[2]))]})
    assert found.sentence.startswith("Thai (th) and Finnish (fi) (ρ = ")
    assert "noise" not in found.sentence


EVERY = ("ar", "bg", "de", "fi", "fr", "hu", "th", "vi")


def of_languages(made: Report, languages: str, **options: Any) -> Report:
    """The same report on other languages, and with other options."""
    task = {**made.spec["task"], "language": languages}
    return dataclasses.replace(
        made, spec={**made.spec, "task": task, "options": {**made.spec["options"], **options}}
    )


def test_reported_12_a_front_on_two_languages_says_so_where_more_are_chosen() -> None:
    """It said of 15 languages "12 heads can go in every language at once … test confirms it"."""
    (front,) = findings({}, {"front": [stored(made_front())]}, EVERY)
    assert "can go in German (de) and Thai (th) at once" in front.sentence
    assert "every language" not in front.sentence
    assert f"{len(EVERY)} languages" not in front.sentence
    many = of_languages(made_front(), ",".join(EVERY))
    (front,) = findings({}, {"front": [stored(many)]}, EVERY)
    assert f"can go in the {len(EVERY)} languages chosen at once" in front.sentence
    (front,) = findings({}, {"front": [stored(many)]}, ("de", "th"))
    assert f"can go in {len(EVERY)} languages ({', '.join(EVERY)}) at once" in front.sentence


def test_reported_12_a_front_is_confirmed_only_where_each_of_its_languages_was_tested() -> None:
    (front,) = findings({}, {"front": [stored(of_languages(made_front(), "de,th,fi"))]})
    assert "; not tested in Finnish (fi)" in front.sentence
    made = made_front()
    confirmed = made.table("front-confirmed")
    place = confirmed.columns.index("p of the loss")
    sure = tuple(
        (*row[:place], None if row[place] is None else 0.01, *row[place + 1 :])
        for row in confirmed.rows
    )
    tables = tuple(
        dataclasses.replace(t, rows=sure) if t.name == confirmed.name else t for t in made.tables
    )
    (front,) = findings({}, {"front": [stored(dataclasses.replace(made, tables=tables))]})
    assert "; test confirms it (p = 0.010)" in front.sentence


def test_reported_12_a_front_without_a_head_to_remove_says_so_and_one_of_another_question_nothing() -> (
    None
):
    none = made_front(answer=POINTS[0])
    other = of_languages(made_front(), "de,th", within=None, heads=4)
    (front,) = findings({}, {"front": [stored(other), stored(none)]})
    # nothing was tested, so nothing is said of test
    assert front.sentence == (
        "No head of 6 can go in German (de) and Thai (th) at once with a loss of at most 1 point in any, by the lower "
        "bound on dev (heads ordered by shapley; 512 dev examples a language)."
    )
    (front,) = findings({}, {"front": [stored(of_languages(made_front(), "de", by="estimate"))]})
    assert front.sentence.startswith(
        "2 of 6 heads can go in German (de) with a loss of at most 1 point, by the estimate on dev (heads ordered by "
    )
    assert "a language" not in front.sentence
    assert "mean of" not in front.sentence


def test_reported_12_the_report_on_the_chosen_languages_goes_before_a_newer_one_on_others() -> None:
    on = {
        languages: stored(of_languages(made_front(), languages))
        for languages in ("de,th,fi", "th,de", "fr", "de")
    }
    newest_first = [on["fr"], on["de,th,fi"], on["de"], on["th,de"]]
    assert by_preference(newest_first, ("de", "th"), "shapley") == [
        on["th,de"],
        on["de,th,fi"],
        on["de"],
        on["fr"],
    ]
    by_gradient = stored(of_languages(made_front(), "de,th", method="gradient"))
    assert by_preference([by_gradient, on["th,de"]], ("de", "th"), "shapley")[0] is on["th,de"]
    assert by_preference([on["th,de"], by_gradient], ("de", "th"), "gradient")[0] is by_gradient
    made = made_front()
    of_mean = stored(dataclasses.replace(made, spec={**made.spec, "ablation": "mean"}))
    assert by_preference([of_mean, on["th,de"]], ("de", "th"), "shapley")[0] is on["th,de"]
    (front,) = findings({}, {"front": [of_mean]})
    assert "(heads ordered by shapley, mean ablation; 512 dev" in front.sentence


def test_reported_12_links_open_the_report_that_the_sentence_is_of() -> None:
    tables = {
        "targeted": (TARGETED, TARGETS[0]),
        "agreement": (PAIRS, ("de", "th", 0.4, 0.3, 0.5, 0.9, "")),
    }
    reports = {name: [stored(report(name, *given))] for name, given in tables.items()}
    found = findings({}, {**reports, "front": [stored(made_front())]}, ("de", "th"))
    assert [(one.page, one.link_params) for one in found] == [
        ("experiments", {"experiment": "targeted", "report": "0123456789ab"}),
        ("prune", {"tool": "Find a smaller model", "front": "0123456789ab"}),
        ("experiments", {"experiment": "agreement", "report": "0123456789ab"}),
    ]


def test_reported_12_scores_name_their_languages_and_one_language_does_not_lead_to_a_comparison() -> (
    None
):
    (one, rest) = findings({"de": scores(3)}, {}, ("de", "th"))
    assert one.sentence.startswith("German (de): 3 of 144 heads harm")
    assert (rest.page, rest.link_params) == ("heads", {"focus": "de"})
    many = {name: scores(1, language=name) for name in EVERY}
    assert f"heads in the {len(EVERY)} languages chosen, " in findings(many, {}, EVERY)[0].sentence
    some = {name: many[name] for name in EVERY[:5]}
    found = findings(some, {}, EVERY)
    assert "Of 720 heads in 5 languages (ar, bg, de, fi, fr), 5 harm" in found[0].sentence
    assert found[1].sentence.startswith("The median of 5 languages (ar, bg, de, fi, fr): ")


ODD = (None, "x", True, float("nan"), float("inf"))


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize(
    ("name", "columns", "row"),
    [
        ("targeted", TARGETED, TARGETS[0]),
        ("agreement", PAIRS, ("de", "th", 0.4, 0.3, 0.5, 0.9, "")),
    ],
)
def test_reports_of_others_with_odd_cells_or_fewer_columns_are_left_out(
    name: str, columns: tuple[str, ...], row: tuple[Any, ...], value: object
) -> None:
    for at in range(len(columns)):
        odd = (*row[:at], value, *row[at + 1 :])
        fewer = columns[:at] + columns[at + 1 :], row[:at] + row[at + 1 :]
        for given in ((columns, odd), fewer):
            for finding in findings({}, {name: [stored(report(name, given[0], given[1]))]}):
                assert "nan" not in finding.sentence
    assert findings({}, {name: [stored(report("other", columns, row))]}) == []


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
        assert "harm, each by its own 95 % interval" in words
        assert "The clearest is German (de), 10 heads off: 70.7 to 75.4 %" in words


def test_reported_12_the_overview_speaks_of_the_front_on_the_chosen_languages(
    tmp_path: Path,
) -> None:
    """Of three, the newest is on one language more, and the oldest answers what was asked of these two."""
    weights = made_up("de", "shapley").spec["model"]
    fronts = {day: made_front(within=loss) for day, loss in ((20, 1.0), (21, 2.0))}
    fronts[22] = of_languages(made_front(within=3.0), "de,th,fi")
    with app_on(fill(tmp_path)):
        keys = {
            day: keep(
                tmp_path, dataclasses.replace(made, spec={**made.spec, "model": weights}), day
            )
            for day, made in fronts.items()
        }
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
        app.query_params["langs"] = ["de", "th"]
        app.run()
        assert not app.exception
        assert (
            "can go in German (de) and Thai (th) at once with a loss of at most 2 points in any"
            in said(app)
        )
        links = {link.proto.label: link.proto.query_string for link in app.get("page_link")}
        assert f"front={keys[21][:12]}" in links["Smaller models"]
        assert "tool=Find" in links["Smaller models"]
