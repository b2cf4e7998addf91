"""What the public functions return shows itself: as HTML, as a data frame and as a figure."""

from __future__ import annotations

import builtins
import copy
import pickle
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
from numpy.testing import assert_array_equal
from support.cached_scores import made_scores
from support.synthetic_curves import made_curve

import headlab
from headlab.api import Report
from headlab.core import Comparison, Evaluation, HeadGrid, HeadlabError, Shown, Stack, percent_text
from headlab.masks import Mask
from headlab.results import HeadScores
from headlab.tasks import language_title

SVG = "{http://www.w3.org/2000/svg}"
WILD = '<b onclick="x">&\'amp;'
TWO_STACKS = HeadGrid((Stack("encoder", (3, 2)), Stack("cross", (20,))))


def comparison(language: str = "de", difference: float = -0.04) -> Comparison:
    low, high = difference - 0.02, difference + 0.02
    return Comparison(
        language, 1512, 1512, 0.95 + difference, 0.95, difference, low, high, 0.0001, 2, 17
    )


def evaluation(language: str = "de") -> Evaluation:
    names = tuple(map(str, range(200)))
    correct = np.arange(200) % 4 > 0
    return Evaluation(language, correct, correct.astype(np.int64), names, names, 200)


def records() -> dict[str, Shown]:
    scores = made_scores("de", "shapley")
    return {
        "scores": scores,
        "mask": scores.mask("bottom", k=20),
        "curve": made_curve(),
        "comparisons": Report(de=comparison(), th=comparison("th", 0.03)),
        "evaluations": Report(de=evaluation()),
        "comparison": comparison(),
        "evaluation": evaluation(),
    }


def html_tree(record: Shown) -> ET.Element:
    """The record's HTML, which is well-formed, without scripts and without what asks a network."""
    html = record._repr_html_()
    tree = ET.fromstring(html)
    tags = {element.tag.removeprefix(SVG) for element in tree.iter()}
    assert not tags & {"script", "style", "link", "iframe", "img", "b", "foreignObject"}
    for element in tree.iter():
        assert not [name for name in element.attrib if name.startswith("on")]
        assert "url(http" not in element.get("style", "")
    return tree


def hints(tree: ET.Element) -> list[str]:
    return [element.text or "" for element in tree.iter(f"{SVG}title")]


def table_rows(tree: ET.Element) -> list[list[str]]:
    return [[cell.text or "" for cell in row] for row in tree.iter("tr")]


def test_scores_show_a_map_with_scale_unit_and_the_interval_of_every_head():
    scores = made_scores("de", "shapley")
    tree = html_tree(scores)
    head_hints = hints(tree)
    assert len(head_hints) == scores.grid.size
    head, value, low, high = (
        scores.grid.heads[0],
        *(100 * array[0] for array in (scores.values, scores.low, scores.high)),
    )
    assert f"layer {head.layer}, head {head.head}" in head_hints[0]
    numbers = f"{value:+.2f} points, {percent_text(0.95)} interval {low:+.2f} to {high:+.2f}"
    assert numbers.replace("-", "−") in head_hints[0]
    text = "".join(tree.itertext())
    for words in ("German (de)", "144 heads by shapley", "points", "Holm", "harms"):
        assert words in text
    keys = [svg.get("aria-label", "") for svg in tree.iter(f"{SVG}svg")]
    assert any(label.startswith("colours from ≤ −") for label in keys)


def test_scores_of_several_stacks_without_intervals_show_every_head():
    values = np.linspace(-0.2, 0.3, TWO_STACKS.size)
    scores = HeadScores(TWO_STACKS, "de", "gradient", values, "made up", "loss", 1, 1.0)
    tree = html_tree(scores)
    assert len(hints(tree)) == TWO_STACKS.size
    assert "interval" not in "".join(hints(tree))
    frame = scores.to_frame()
    assert list(frame.columns) == ["stack", "layer", "head", "value"]
    assert frame.attrs == {"unit": "loss"}
    (heat_map,) = scores.plot().data
    assert np.isfinite(np.array(heat_map.z, float)).sum() == TWO_STACKS.size


def test_a_mask_marks_the_heads_that_it_removes():
    mask = made_scores("de", "shapley").mask("bottom", k=20)
    tree = html_tree(mask)
    states = [hint.rpartition(": ")[2] for hint in hints(tree)]
    assert states == ["kept" if kept else "removed" for kept in mask.kept]
    crosses = [text for text in tree.iter(f"{SVG}text") if text.text == "×"]
    assert len(crosses) == 20
    text = "".join(tree.itertext())
    assert "20 of 144 heads removed, e5-small-intents" in text
    assert "rule bottom, method shapley, task intents, languages de" in text
    frame = mask.to_frame()
    assert_array_equal(frame["kept"], mask.kept)
    assert frame["kept"].dtype == bool
    (heat_map,) = mask.plot().data
    assert_array_equal(np.array(heat_map.z).ravel(), mask.kept.astype(float))


def test_a_mask_that_says_nothing_of_itself_is_shown():
    mask = Mask(TWO_STACKS, np.zeros(TWO_STACKS.size, bool))
    assert "Chosen by" not in "".join(html_tree(mask).itertext())


def test_evaluations_are_a_table_with_intervals():
    header, german, thai = table_rows(html_tree(records()["comparisons"]))
    assert header[:6] == [
        "language",
        "accuracy, %",
        "all heads, %",
        "difference, points",
        "95 % low",
        "95 % high",
    ]
    assert german[:6] == ["German (de)", "91.0", "95.0", "−4.0", "−6.0", "−2.0"]
    assert german[-1] == "1,512"
    assert thai[3:6] == ["+3.0", "+1.0", "+5.0"]
    header, alone = table_rows(html_tree(records()["evaluations"]))
    assert header == ["language", "accuracy, %", "95 % low", "95 % high", "answers"]
    assert alone[1] == "75.0"
    assert float(alone[2]) < 75 < float(alone[3])
    assert table_rows(html_tree(comparison())) == table_rows(html_tree(Report(de=comparison())))


def test_an_empty_report_is_shown():
    assert len(table_rows(html_tree(Report()))) == 1
    assert len(Report().to_frame()) == 0
    assert isinstance(Report().plot(), go.Figure)


def test_a_curve_is_a_drawing_with_its_summary():
    curve = made_curve()
    tree = html_tree(curve)
    assert len(list(tree.iter(f"{SVG}svg"))) == 1
    _, summary, _, *points = table_rows(tree)
    assert summary[:2] == ["de", "shapley"]
    assert len(points) == len(curve.removed)
    assert points[1][3:5] == [
        f"{100 * bound[1]:+.1f}".replace("-", "−") for bound in (curve.low, curve.high)
    ]


def test_a_curve_without_matplotlib_is_a_table_of_its_points(monkeypatch: pytest.MonkeyPatch):
    without_package(monkeypatch, "matplotlib")
    monkeypatch.delitem(sys.modules, "headlab.charts.static", raising=False)
    monkeypatch.delattr("headlab.charts.static", raising=False)
    curve = made_curve()
    tree = html_tree(curve)
    assert not list(tree.iter(f"{SVG}svg"))
    assert len(table_rows(tree)) == 1 + len(curve.removed) + 2


def without_package(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Let imports of these packages fail, as where they are not installed."""
    import_module = builtins.__import__

    def fail_for_packages(name, *args, **kwargs):
        if name.partition(".")[0] in packages:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return import_module(name, *args, **kwargs)

    for name in list(sys.modules):
        if name.partition(".")[0] in packages:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", fail_for_packages)


@pytest.mark.parametrize("kind", ["scores", "mask", "curve", "comparisons", "evaluations"])
def test_what_a_name_holds_is_escaped(kind):
    spec = {
        "model": {"name": WILD, "fingerprint": "0"},
        "task": {"name": WILD},
        "order": {"method": WILD},
    }
    scores = made_scores("de", "shapley")
    wild_records = {
        "scores": replace(scores, language=WILD, method=WILD, estimand=WILD, spec=spec),
        "mask": replace(
            scores.mask("bottom", k=3), model={"name": WILD}, chosen={"languages": [WILD]}
        ),
        "curve": replace(made_curve(), language=WILD, ordering=WILD, caution=WILD),
        "comparisons": Report({WILD: comparison(WILD)}),
        "evaluations": Report({WILD: evaluation(WILD)}),
    }
    tree = html_tree(wild_records[kind])
    assert WILD in "".join(tree.itertext())
    assert isinstance(wild_records[kind].plot(), go.Figure)


def test_data_frames_have_the_numbers_of_the_records():
    scores = made_scores("de", "shapley")
    frame = scores.to_frame()
    assert len(frame) == scores.grid.size
    assert [*zip(frame["stack"], frame["layer"], frame["head"], strict=True)] == [
        tuple(head) for head in scores.grid.heads
    ]
    for column, array in {
        "value": scores.values,
        "low": scores.low,
        "high": scores.high,
        "samples": scores.samples,
        "p": scores.p_values,
    }.items():
        assert_array_equal(frame[column], array)
    assert frame.attrs == {"unit": "accuracy"}
    curve = made_curve()
    points = curve.to_frame()
    for column in ("removed", "accuracy", "difference", "low", "high"):
        assert_array_equal(points[column], getattr(curve, column))
    assert_array_equal(points["p"], curve.p_values)
    rows = records()["comparisons"].to_frame()
    assert rows["language"].tolist() == ["de", "th"]
    assert rows["difference"].tolist() == [-0.04, 0.03]
    assert rows["flipped_wrong"].tolist() == [17, 17]
    alone = evaluation().to_frame()
    assert alone["accuracy"].tolist() == [0.75]
    assert alone["low"][0] < 0.75 < alone["high"][0]


def test_a_data_frame_is_the_callers_own():
    scores = made_scores("de", "shapley")
    before = scores.values.copy()
    frame = scores.to_frame()
    frame.loc[:, "value"] = 0.0
    assert_array_equal(scores.values, before)


@pytest.mark.parametrize("kind", list(records()))
def test_everything_shown_has_a_figure(kind):
    figure = records()[kind].plot()
    assert figure.layout.paper_bgcolor == "#ffffff"  # readable in a dark notebook, too
    assert figure.layout.yaxis.automargin
    assert isinstance(figure, go.Figure)
    assert len(figure.data)


def test_a_figure_has_the_interval_of_every_head_and_language():
    scores = made_scores("de", "shapley")
    (heat_map,) = scores.plot().data
    assert_array_equal(np.array(heat_map.z).ravel(), 100 * scores.values)
    tips = [tip for row in heat_map.customdata for tip in row]
    assert len(tips) == scores.grid.size
    assert all(f"{percent_text(0.95)} interval" in tip for tip in tips)
    dots = records()["comparisons"].plot().data[0]
    assert list(dots.x) == pytest.approx([-4.0, 3.0])
    assert list(dots.error_x.array) == pytest.approx([2.0, 2.0])


@pytest.mark.parametrize(
    ("package", "method", "extra"), [("pandas", "to_frame", "app"), ("plotly", "plot", "figures")]
)
def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, package, method, extra):
    scores = made_scores("de", "shapley")
    scores.plot()
    without_package(monkeypatch, package)
    for name in [name for name in sys.modules if name.startswith("headlab.plots")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(HeadlabError, match=rf"package {package}.*headlab\[{extra}\]"):
        getattr(scores, method)()
    assert "<svg" in scores._repr_html_()


def test_html_asks_for_no_drawing_library():
    program = (
        "import sys; sys.path[:0] = ['tests']\n"
        "from support.cached_scores import made_scores\n"
        "scores = made_scores('de', 'shapley')\n"
        "assert scores._repr_html_() and scores.mask('bottom', k=2)._repr_html_()\n"
        "print([name for name in ('pandas', 'plotly', 'matplotlib') if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert ran.stdout.strip() == "[]"


def test_records_are_what_they_were():
    """Types, equality, copies and pickles know nothing of how a record is shown."""
    for record in records().values():
        assert isinstance(record, Shown)
        assert "__dict__" not in vars(Shown)
    row = comparison()
    assert row == comparison()
    assert hash(row) == hash(comparison())
    assert replace(row, n=3).n == 3
    assert pickle.loads(pickle.dumps(row)) == row  # noqa: S301 - of this line
    report = copy.deepcopy(Report(de=row))
    assert report == {"de": row}
    assert pickle.loads(pickle.dumps(report)) == {"de": row}  # noqa: S301 - of this line
    mask = made_scores("de", "shapley").mask("bottom", k=2)
    assert type(mask) is headlab.Mask
    assert pickle.loads(pickle.dumps(mask)).digest == mask.digest  # noqa: S301 - of this line
    assert language_title("de") in html_tree(Report(de=row)).find(".//td").text


def test_what_headlab_does_not_know_is_not_shown():
    class Other(Shown):
        pass

    for show in (Other()._repr_html_, Other().to_frame, Other().plot):
        with pytest.raises(TypeError, match="does not show a Other"):
            show()
