"""The findings on the Overview: sentences that rules make from stored results."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest
from support.app_pages import app_on, page_text
from support.cached_reports import keep_report
from support.cached_scores import fill_cache, made_scores
from support.synthetic_fronts import (
    POINTS,
    made_embedded_front,
    made_front,
    made_front_without_layers,
)

from headlab.core import HeadGrid, Report, Table
from headlab.dashboard.pages.overview.findings import (
    OverviewFinding,
    by_preference,
    findings,
    findings_of_roles,
)
from headlab.dashboard.panels.heads import RoleEffect
from headlab.masks import Mask
from headlab.results import HeadScores, Result
from headlab.studies.differences import COLUMNS

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("native_buttons")
TARGETED_COLUMNS = (
    "language",
    "removed by",
    "heads removed",
    "untouched, %",
    "accuracy, %",
    *COLUMNS,
    "p (Holm)",
)
PAIR_COLUMNS = ("language", "other", "rho", "low", "high", "ceiling", "noise")


def scores_with_harm(harmful: int, *, size: int = 144, language: str = "de") -> HeadScores:
    """Scores by which some heads surely harm, two surely help and all others are 0.

    Args:
        harmful: How many heads harm.
        size: How many heads there are.
        language: The language of the scores.
    """
    template = made_scores(language, "shapley")
    values = np.zeros(size)
    values[:harmful] = -0.03
    values[-2:] = 0.03
    return dataclasses.replace(
        template,
        values=values,
        low=values - 0.01,
        high=values + 0.01,
        p_values=np.where(values == 0, 1.0, 1e-9),
    )


def stored_result(report: Report) -> Result[Report]:
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
    formats = ("",) * len(columns)
    table = Table(name, name, columns, formats, rows)
    return Report(name, (table,), (), spec)


def findings_of(
    name: str, report: Report, languages: tuple[str, ...] = ()
) -> list[OverviewFinding]:
    """What the Overview finds in one report.

    Args:
        name: The experiment that the report is of.
        report: The only report in the cache, without any scores.
        languages: The languages chosen in the sidebar.
    """
    return findings({}, {name: [stored_result(report)]}, languages)


def test_harm_is_counted_before_and_after_correction_with_its_basis() -> None:
    unsure = scores_with_harm(1, language="th")
    unsure = dataclasses.replace(
        unsure, p_values=np.where(unsure.values < 0, 0.02, unsure.p_values)
    )
    all_findings = findings({"de": scores_with_harm(3), "th": unsure}, {})
    assert all_findings[0].sentence == (
        "Of 288 heads in German (de) and Thai (th), 4 harm, each by its own 95 % interval; 3 "
        "of them after Holm's correction for all 288 "
        "(shapley, dev, 512 examples). Most are in German (de): 3 of 144."
    )
    assert all_findings[0].page == "heads"
    assert all_findings[0].link_params == {"focus": "de"}
    assert all_findings[1].sentence.startswith(
        "The median of German (de) and Thai (th): 2 of 144 heads help, "
        "and the sign of 140 is not settled"
    )
    (harm_finding, _) = findings({"th": unsure}, {})
    assert (
        "Thai (th): 1 of 144 heads harm, each by its own 95 % interval; none of them after Holm's"
        in harm_finding.sentence
    )


def test_no_harm_no_signs_and_no_results() -> None:
    no_harm, verdicts = findings({"de": scores_with_harm(0)}, {})
    assert (
        no_harm.sentence
        == "No head in German (de) has a 95 % interval below 0 (shapley, dev, 512 examples)."
    )
    assert verdicts.sentence.startswith("German (de): 2 of 144 heads help")
    assert findings({"de": made_scores("de", "gradient")}, {}) == []
    assert findings({}, {}) == []


def test_examples_levels_and_cautions_are_those_of_the_scores() -> None:
    thai = scores_with_harm(1, language="th")
    task = {**thai.spec["task"], "size": 300}
    few_examples = dataclasses.replace(thai, spec={**thai.spec, "task": task}, level=0.975)
    paper = dataclasses.replace(scores_with_harm(2), method="paper", level=0.975, p_values=None)
    sentence = findings({"de": paper, "th": few_examples}, {})[0].sentence
    assert "each by its own 97.5 % interval (paper, dev, 300 to 512 examples)" in sentence
    assert "Caution: " in sentence


TARGETS = [
    ("de", "harmful", 10, 70.7, 75.4, 4.7, 2.2, 7.3, 0.001, 0.002),
    ("th", "harmful", 1, 71.5, 73.7, 2.2, -0.8, 3.8, 0.2, 0.4),
    ("de", "random", 10, 70.7, 90.0, 19.3, 15.0, 24.0, 0.001, 0.002),
    ("mean", "harmful", None, 71.1, 74.5, 3.4, -1.0, 5.0, 0.001, None),
    ("fi", "harmful", 0, 54.0, 54.0, 0.0, None, None, 1.0, 1.0),
]


def test_the_gain_of_switching_off_names_how_many_languages_gain_and_the_mean() -> None:
    targeted_report = report("targeted", TARGETED_COLUMNS, *TARGETS, languages="de,th,fi")
    (gain_finding,) = findings_of("targeted", targeted_report)
    assert gain_finding.sentence == (
        "Heads that harm on dev by the scores, switched off in German (de), Thai (th) "
        "and Finnish (fi): of 2 languages with such heads 1 gains significantly on test "
        "(Holm-adjusted p at most 0.05). The clearest is German (de), 10 heads off: 70.7 to 75.4 "
        "%, +4.7 [+2.2, +7.3] points, 1,000 examples. "
        "Mean of these 3 languages: +3.4 [\N{MINUS SIGN}1.0, +5.0] points."
    )
    assert gain_finding.link_params == {"experiment": "targeted", "report": "0123456789ab"}
    no_harmful_heads = report("targeted", TARGETED_COLUMNS, *TARGETS[2:])
    assert findings_of("targeted", no_harmful_heads) == []


def test_a_front_says_whether_test_confirms_it() -> None:
    front_report = made_front()
    (front,) = findings_of("front", front_report)
    assert front.sentence == (
        "2 of 6 heads can go in German (de) and Thai (th) at once "
        "with a loss of at most 1 point in any, by the lower bound on dev "
        "(heads ordered by shapley; 512 dev and 1,000 test examples a language); "
        "on test, a larger loss is not ruled out in German (de) and Thai (th); mean of both "
        "\N{MINUS SIGN}1.0 [\N{MINUS SIGN}2.0, +0.0] points."
    )
    assert front.page == "prune"
    # A front that asked for a number of heads has no limit on the loss, so nothing is claimed.
    options = {**front_report.spec["options"], "within": None, "heads": 4}
    spec = {**front_report.spec, "options": options}
    assert findings_of("front", dataclasses.replace(front_report, spec=spec)) == []


def test_an_agreement_names_its_extreme_pairs_its_median_and_its_ceiling() -> None:
    rows = [
        ("de", "th", 0.4, 0.3, 0.5, 0.9, ""),
        ("de", "fi", 0.6, 0.5, 0.7, 0.8, ""),
        ("th", "fi", -0.2, -0.3, 0.3, 0.1, "too noisy"),
    ]
    agreement = report("agreement", PAIR_COLUMNS, *rows, languages="de,fi,th")
    (agreement_finding,) = findings_of("agreement", agreement)
    assert agreement_finding.sentence == (
        "Of German (de), Finnish (fi) and Thai (th), "
        "Thai (th) and Finnish (fi) (ρ = \N{MINUS SIGN}0.20 [\N{MINUS SIGN}0.30, 0.30]) "
        "rank the heads least alike, "
        "German (de) and Finnish (fi) (ρ = 0.60 [0.50, 0.70]) most, the median "
        "of 3 pairs is 0.40 (by the scores, on 512 dev examples a language). With this noise two "
        "equal rankings would show about 0.85."
    )
    row_with_region_code = ("zh-CN", "th", -0.1, -0.2, 0.1, None, "")
    agreement = report("agreement", PAIR_COLUMNS, row_with_region_code)
    (with_region_code,) = findings_of("agreement", agreement)
    # Only the number's minus becomes a minus sign; the code keeps its hyphen.
    assert "(zh-CN) and Thai (th) (ρ = \N{MINUS SIGN}0.10" in with_region_code.sentence
    (agreement_finding,) = findings_of("agreement", report("agreement", PAIR_COLUMNS, rows[2]))
    assert agreement_finding.sentence.startswith("Thai (th) and Finnish (fi) (ρ = ")
    assert "noise" not in agreement_finding.sentence


EIGHT_LANGUAGES = ("ar", "bg", "de", "fi", "fr", "hu", "th", "vi")


def of_languages(original: Report, languages: str, **options: Any) -> Report:
    """The same report on other languages, and with other options."""
    task = {**original.spec["task"], "language": languages}
    all_options = {**original.spec["options"], **options}
    spec = {**original.spec, "task": task, "options": all_options}
    return dataclasses.replace(original, spec=spec)


def test_reported_12_a_front_on_two_languages_says_so_where_more_are_chosen() -> None:
    """The Overview once claimed it for "every language", though the front was on fewer."""
    (front,) = findings_of("front", made_front(), EIGHT_LANGUAGES)
    assert "can go in German (de) and Thai (th) at once" in front.sentence
    assert "every language" not in front.sentence
    assert f"{len(EIGHT_LANGUAGES)} languages" not in front.sentence
    eight_language_front = of_languages(made_front(), ",".join(EIGHT_LANGUAGES))
    (front,) = findings_of("front", eight_language_front, EIGHT_LANGUAGES)
    assert f"can go in the {len(EIGHT_LANGUAGES)} languages chosen at once" in front.sentence
    (front,) = findings_of("front", eight_language_front, ("de", "th"))
    all_codes = ", ".join(EIGHT_LANGUAGES)
    assert f"can go in {len(EIGHT_LANGUAGES)} languages ({all_codes}) at once" in front.sentence


def test_reported_12_a_front_is_confirmed_only_where_each_of_its_languages_was_tested() -> None:
    (front,) = findings_of("front", of_languages(made_front(), "de,th,fi"))
    assert "; not tested in Finnish (fi)" in front.sentence
    front_report = made_front()
    confirmed_table = front_report.table("front-confirmed")
    p_index = confirmed_table.columns.index("p of the loss")
    significant_rows = []
    for row in confirmed_table.rows:
        cells = list(row)
        if cells[p_index] is not None:
            cells[p_index] = 0.01
        significant_rows.append(tuple(cells))
    significant_table = dataclasses.replace(confirmed_table, rows=tuple(significant_rows))
    tables = tuple(
        significant_table if table.name == confirmed_table.name else table
        for table in front_report.tables
    )
    (front,) = findings_of("front", dataclasses.replace(front_report, tables=tables))
    assert "; test confirms it (p = 0.010)" in front.sentence


def test_reported_12_a_front_that_removes_no_head_says_so_and_other_questions_are_ignored() -> None:
    nothing_removed = made_front(answer=POINTS[0])
    other_question = of_languages(made_front(), "de,th", within=None, heads=4)
    reports = [stored_result(other_question), stored_result(nothing_removed)]
    (front,) = findings({}, {"front": reports})
    # No mask was tested, so the sentence says nothing of the test split.
    assert front.sentence == (
        "No head of 6 can go in German (de) and Thai (th) at once "
        "with a loss of at most 1 point in any, by the lower bound on dev "
        "(heads ordered by shapley; 512 dev examples a language)."
    )
    (front,) = findings_of("front", of_languages(made_front(), "de", by="estimate"))
    assert front.sentence.startswith(
        "2 of 6 heads can go in German (de) with a loss of at most 1 point, "
        "by the estimate on dev (heads ordered by "
    )
    assert "a language" not in front.sentence
    assert "mean of" not in front.sentence


def test_reported_12_the_report_on_the_chosen_languages_goes_before_a_newer_one_on_others() -> None:
    result_by_languages = {
        languages: stored_result(of_languages(made_front(), languages))
        for languages in ("de,th,fi", "th,de", "fr", "de")
    }
    newest_first = [
        result_by_languages["fr"],
        result_by_languages["de,th,fi"],
        result_by_languages["de"],
        result_by_languages["th,de"],
    ]
    assert by_preference(newest_first, ("de", "th"), "shapley") == [
        result_by_languages["th,de"],
        result_by_languages["de,th,fi"],
        result_by_languages["de"],
        result_by_languages["fr"],
    ]
    by_shapley = result_by_languages["th,de"]
    by_gradient = stored_result(of_languages(made_front(), "de,th", method="gradient"))
    assert by_preference([by_gradient, by_shapley], ("de", "th"), "shapley")[0] is by_shapley
    assert by_preference([by_shapley, by_gradient], ("de", "th"), "gradient")[0] is by_gradient
    front_report = made_front()
    spec = {**front_report.spec, "ablation": "mean"}
    of_mean = stored_result(dataclasses.replace(front_report, spec=spec))
    assert by_preference([of_mean, by_shapley], ("de", "th"), "shapley")[0] is by_shapley
    (front,) = findings({}, {"front": [of_mean]})
    assert "(heads ordered by shapley, mean ablation; 512 dev" in front.sentence


def test_reported_12_links_open_the_report_that_the_sentence_is_of() -> None:
    targeted_report = report("targeted", TARGETED_COLUMNS, TARGETS[0])
    agreement_report = report(
        "agreement",
        PAIR_COLUMNS,
        ("de", "th", 0.4, 0.3, 0.5, 0.9, ""),
    )
    reports = {
        "targeted": [stored_result(targeted_report)],
        "agreement": [stored_result(agreement_report)],
        "front": [stored_result(made_front())],
    }
    all_findings = findings({}, reports, ("de", "th"))
    assert [(finding.page, finding.link_params) for finding in all_findings] == [
        ("experiments", {"experiment": "targeted", "report": "0123456789ab"}),
        ("prune", {"tool": "Find a smaller model", "front": "0123456789ab"}),
        ("experiments", {"experiment": "agreement", "report": "0123456789ab"}),
    ]


def test_reported_12_scores_name_their_languages_and_one_language_leads_to_its_heads() -> None:
    german_scores = {"de": scores_with_harm(3)}
    harm_finding, help_finding = findings(german_scores, {}, ("de", "th"))
    assert harm_finding.sentence.startswith("German (de): 3 of 144 heads harm")
    assert help_finding.page == "heads"
    assert help_finding.link_params == {"focus": "de"}
    scores_by_language = {name: scores_with_harm(1, language=name) for name in EIGHT_LANGUAGES}
    sentence = findings(scores_by_language, {}, EIGHT_LANGUAGES)[0].sentence
    assert f"heads in the {len(EIGHT_LANGUAGES)} languages chosen, " in sentence
    scores_of_five = {name: scores_by_language[name] for name in EIGHT_LANGUAGES[:5]}
    all_findings = findings(scores_of_five, {}, EIGHT_LANGUAGES)
    assert "Of 720 heads in 5 languages (ar, bg, de, fi, fr), 5 harm" in all_findings[0].sentence
    assert all_findings[1].sentence.startswith("The median of 5 languages (ar, bg, de, fi, fr): ")


ODD = (None, "x", True, float("nan"), float("inf"))


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize(
    ("name", "columns", "row"),
    [
        ("targeted", TARGETED_COLUMNS, TARGETS[0]),
        ("agreement", PAIR_COLUMNS, ("de", "th", 0.4, 0.3, 0.5, 0.9, "")),
    ],
)
def test_reports_of_others_with_odd_cells_or_fewer_columns_are_left_out(
    name: str, columns: tuple[str, ...], row: tuple[Any, ...], value: object
) -> None:
    for column_index in range(len(columns)):
        odd_row = (*row[:column_index], value, *row[column_index + 1 :])
        remaining_columns = columns[:column_index] + columns[column_index + 1 :]
        remaining_row = row[:column_index] + row[column_index + 1 :]
        with_odd_cell = report(name, columns, odd_row)
        without_column = report(name, remaining_columns, remaining_row)
        for strange_report in (with_odd_cell, without_column):
            for finding in findings_of(name, strange_report):
                assert "nan" not in finding.sentence
    assert findings_of(name, report("other", columns, row)) == []


def test_the_overview_begins_with_what_was_found(tmp_path: Path) -> None:
    with app_on(fill_cache(tmp_path)):
        rows = [("de", "harmful", 10, 70.7, 75.4, 4.7, 2.2, 7.3, 0.001, 0.002)]
        keep_report(tmp_path, report("targeted", TARGETED_COLUMNS, *rows))
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
        app.query_params["langs"] = ["de", "th"]
        app.run()
        assert not app.exception
        words_on_page = page_text(app)
        assert "What was found" in words_on_page
        assert "harm, each by its own 95 % interval" in words_on_page
        assert "The clearest is German (de), 10 heads off: 70.7 to 75.4 %" in words_on_page


def test_reported_12_the_overview_speaks_of_the_front_on_the_chosen_languages(
    tmp_path: Path,
) -> None:
    """The newest of three fronts is on a further language.

    So the sentence is on the newer one of the other two.
    """
    weights = made_scores("de", "shapley").spec["model"]
    front_by_day = {
        20: made_front(within=1.0),
        21: made_front(within=2.0),
        22: of_languages(made_front(within=3.0), "de,th,fi"),
    }
    with app_on(fill_cache(tmp_path)):
        key_by_day = {}
        for day, front_report in front_by_day.items():
            spec = {**front_report.spec, "model": weights}
            front_of_weights = dataclasses.replace(front_report, spec=spec)
            key_by_day[day] = keep_report(tmp_path, front_of_weights, day)
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
        app.query_params["langs"] = ["de", "th"]
        app.run()
        assert not app.exception
        assert (
            "can go in German (de) and Thai (th) at once with a loss of at most 2 points in any"
            in page_text(app)
        )
        links = {link.proto.label: link.proto.query_string for link in app.get("page_link")}
        assert f"front={key_by_day[21][:12]}" in links["Smaller models"]
        assert "tool=Find" in links["Smaller models"]


MAX_WORDS = 15


def test_headlines_are_short_and_say_what_is_proven() -> None:
    proven = report("targeted", TARGETED_COLUMNS, TARGETS[0])
    (finding,) = findings_of("targeted", proven)
    assert finding.headline == "10 heads hurt German: without them 70.7 → 75.4\u00a0% on test"
    unproven = report("targeted", TARGETED_COLUMNS, TARGETS[1])
    (finding,) = findings_of("targeted", unproven)
    assert finding.headline == "Thai without 1 head: 71.5 → 73.7\u00a0% on test, not proven better"
    (finding,) = findings_of("front", made_front())
    assert finding.headline == (
        "2 of 6 heads can go: 2 languages lose ≤\u00a01 point; unconfirmed on test"
    )
    (finding,) = findings_of("front", made_front(answer=POINTS[0]))
    assert finding.headline == "No head of 6 can go if dev loses at most 1 point in 2 languages"
    pairs = (("de", "th", 0.4, 0.3, 0.5, 0.9, ""), ("de", "fi", 0.6, 0.5, 0.7, 0.9, ""))
    (finding,) = findings_of("agreement", report("agreement", PAIR_COLUMNS, *pairs))
    assert finding.headline == (
        "German and Thai rank heads least alike (ρ\u00a00.40), German and Finnish most (0.60)"
    )
    scores_by_language = {"de": scores_with_harm(3), "th": scores_with_harm(1, language="th")}
    harm, helpful = findings(scores_by_language, {})
    assert harm.headline == (
        "3 heads harm German by their own 95\u00a0% intervals, the most of 2 languages"
    )
    assert helpful.headline == "2 of 144 heads help in the median language; 140 are not settled"
    (harm, _) = findings({"de": scores_with_harm(0)}, {})
    assert harm.headline == "No head has a 95 % interval below 0 in German"
    all_findings = [
        *findings_of("targeted", proven),
        *findings_of("front", made_front()),
        *findings(scores_by_language, {}),
    ]
    for finding in all_findings:
        assert len(finding.headline.split()) <= MAX_WORDS, finding.headline


def test_what_a_task_loses_without_induction_heads_is_the_headline_and_opens_their_mask() -> None:
    grid = made_scores("de", "shapley").grid
    mask = Mask(grid, np.arange(grid.size) >= 14)
    right_before = np.arange(1000) < 867
    effect = RoleEffect(mask, "repeats", "test", 1000, right_before, np.arange(1000) < 3)
    roles = SimpleNamespace(counts={"induction": 14}, grid=grid)
    (finding,) = findings_of_roles(roles, "en", "64 sentences", effect)
    accuracies = "repeats 86.7 → 0.3\u00a0% on test"
    assert finding.headline == f"14 induction heads: without them {accuracies}"
    assert len(finding.headline.split()) <= MAX_WORDS
    assert f"Without them, {accuracies}, 1,000 examples." in finding.sentence
    assert finding.mask_to_open.mask is mask
    assert finding.mask_to_open.link_params == {"split": "test"}
    (finding,) = findings_of_roles(roles, "en", "64 sentences")
    assert finding.headline.startswith("14 heads do induction")
    assert finding.mask_to_open is None


def test_a_finding_opens_the_mask_that_it_speaks_of_and_no_other() -> None:
    scores_by_language = {"de": scores_with_harm(10), "th": scores_with_harm(1, language="th")}
    targeted = report("targeted", TARGETED_COLUMNS, TARGETS[0])
    options = {"method": "shapley", "method_options": {"estimand": "shapley-top50"}}

    def mask_to_open(report_options: dict[str, Any], scores: dict[str, HeadScores]):
        spec = {**targeted.spec, "options": report_options}
        reports = {"targeted": [stored_result(dataclasses.replace(targeted, spec=spec))]}
        return findings(scores, reports)[0].mask_to_open

    opened = mask_to_open(options, scores_by_language)
    assert opened is not None
    assert np.flatnonzero(~opened.mask.kept).tolist() == list(range(10))
    assert opened.mask.chosen["rule"] == "harmful"
    assert opened.mask.chosen["languages"] == ["de"]
    assert opened.link_params == {"split": "test", "from": "de"}
    # Scores of another estimand, of another method, with other harmful heads, or none.
    other_options = {"method": "shapley", "method_options": {"estimand": "shapley"}}
    assert mask_to_open(other_options, scores_by_language) is None
    assert mask_to_open({**options, "method": "gradient"}, scores_by_language) is None
    assert mask_to_open(options, {"de": scores_with_harm(9)}) is None
    assert mask_to_open(options, {}) is None
    front = stored_result(made_embedded_front("0" * 64))
    front_finding = findings(scores_by_language, {"front": [front]})[0]
    assert front_finding.mask_to_open is not None
    assert len(front_finding.mask_to_open.mask.removed) == 48
    assert front_finding.mask_to_open.link_params == {"split": "test", "front": "0123456789ab"}
    assert findings({}, {"front": [front]})[0].mask_to_open is None
    few_heads = {"de": scores_with_harm(2, size=144)}
    assert findings(few_heads, {})[0].mask_to_open is not None
    assert findings(few_heads, {})[1].mask_to_open is None


def test_a_mask_chosen_under_another_ablation_opens_with_it() -> None:
    of_zero = scores_with_harm(2, size=144)
    of_mean = dataclasses.replace(of_zero, spec={**of_zero.spec, "ablation": "mean"})
    opened = findings({"de": of_mean}, {})[0].mask_to_open
    assert opened is not None
    assert opened.mask.ablation == "mean"
    assert opened.mask.kept.tolist() == of_zero.mask("harmful").kept.tolist()
    zero_front = made_embedded_front("0" * 64)
    spec = {**zero_front.spec, "ablation": "mean"}
    mean_front = stored_result(dataclasses.replace(zero_front, spec=spec))
    opened = findings({"de": of_mean}, {"front": [mean_front]})[0].mask_to_open
    assert opened is not None
    assert opened.mask.ablation == "mean"
    assert len(opened.mask.removed) == 48


def test_a_stored_answer_without_a_layer_is_no_finding() -> None:
    """Earlier versions chose such models, and none can be written."""
    front = stored_result(made_front_without_layers("0" * 64))
    grid = HeadGrid.from_json({"encoder-layers": [1] * 12})
    scores = dataclasses.replace(scores_with_harm(0, size=12), grid=grid, samples=None)
    headlines = [finding.headline for finding in findings({"de": scores}, {"front": [front]})]
    assert headlines
    assert not any("can go" in headline for headline in headlines)


def test_a_press_on_a_finding_sets_the_mask_and_turns_to_the_prune_page(tmp_path: Path) -> None:
    with app_on(fill_cache(tmp_path)):
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
        app.query_params["langs"] = ["de", "th"]
        app.run()
        assert not app.exception
        (headline,) = [button for button in app.button if "harm" in button.label]
        harmful_count = int(headline.label.split()[0])
        headline.click().run()
        assert app.query_params["split"] == "test"
        history = app.session_state[f"_history:{'0' * 64}"]
        assert len(history.mask.removed) == harmful_count
        assert history.mask.chosen["rule"] == "harmful"
