"""The Gates page with made-up runs and a worker that is only a list of jobs."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from streamlit.testing.v1 import AppTest
from support.app_pages import page_text, run_page
from support.cached_scores import GRID as LARGE
from support.cached_scores import made_scores
from support.expected_errors import raises
from support.fake_client import job_row, loaded_model
from support.page_actions import choose, press
from support.running_worker import wait_until
from support.submitted_jobs import submitted_jobs
from support.synthetic_gates import GRID, THREE_STACKS, keep_gates, made_evaluation, made_gates
from support.synthetic_roles import made_roles
from typer.main import get_command

from headlab.charts.gates import MaskDots, accuracy_chart, expected_open_heads
from headlab.cli.run import build
from headlab.core import Report, Table
from headlab.dashboard.frame import Choice
from headlab.dashboard.pages.gates import figures
from headlab.dashboard.pages.gates.figures import (
    kept_by_scores,
    mask_of_scores,
    overlap_table,
    weight_of_click,
)
from headlab.dashboard.pages.gates.kept_roles import first_run_of_each_size, kept_roles_table
from headlab.dashboard.pages.jobs.details import command_lines
from headlab.dashboard.panels.jobs import job_format
from headlab.dashboard.panels.stored.stored_gates import (
    GATES_FORM,
    GatesForm,
    Sweep,
    grouped_sweeps,
    head_gates_table,
    measured_splits,
    run_facts,
    weights_from,
)
from headlab.jobs.gates import GatesJob
from headlab.masks import mask_from_json
from headlab.plots.drawing import plotly_figure
from headlab.plots.gates import (
    MAX_FRAMES,
    kept_by_layer_figure,
    kept_by_stack_figure,
    moments,
    open_probability_map,
    training_figure,
)
from headlab.plots.style import figure_for_file
from headlab.report.commands import again
from headlab.results import LearnedGates, Result, Store
from headlab.training import gates_table
from headlab.training.l0_table import worth
from headlab.worker.schemas import EvaluateRequest, Figure

pytestmark = pytest.mark.usefixtures("native_buttons", "worker")

CHOICE = Choice("e5-small-intents", "intents", ("de",), "shapley")
WEIGHTS = (0.01, 0.03, 0.06)


def run(**query: Any) -> AppTest:
    return run_page("gates", **{"langs": ["de"], **query})


def charts(app: AppTest) -> dict[str, Any]:
    """What each figure of the page sends to the browser, by its key."""
    spec_by_key = {}
    for element in app.get("plotly_chart"):
        name = element.proto.id.rpartition("-gates-")[2]
        spec_by_key[f"gates-{name}"] = json.loads(element.proto.spec)
    return spec_by_key


def trace_of(chart: dict[str, Any], name: str) -> dict[str, Any]:
    """The dots of this name in a figure; the ring has an empty name."""
    marked_traces = [trace for trace in chart["data"] if "markers" in trace["mode"]]
    (trace,) = (trace for trace in marked_traces if trace["name"] == name)
    return trace


def commands(app: AppTest) -> list[str]:
    """The page's commands for gates: for the run that is shown, then for what would be learned."""
    return [code.value for code in app.code if code.value.startswith("headlab gates ")]


def shown_run_key(app: AppTest) -> str:
    """Key of the run that the page shows."""
    facts = app.table[0].value
    return dict(zip(facts["what"], facts["value"], strict=True))["Run"]


def sweep_of(*weights: float, **gates_arguments: Any) -> Sweep:
    """A sweep of runs that are in no cache.

    Args:
        weights: The weight λ of each run.
        gates_arguments: Arguments of `made_gates` that all runs have.
    """
    results = []
    for weight in weights:
        gates = made_gates(weight=weight, **gates_arguments)
        results.append(Result[LearnedGates](f"key{weight}", Path(), gates, {}))
    (sweep,) = grouped_sweeps(results)
    return sweep


# Figures.


def test_the_map_has_a_frame_for_each_step_and_first_shows_the_last():
    gates = made_gates()
    figure = open_probability_map(gates)
    step_names = [str(step) for step in gates.steps]
    assert [frame.name for frame in figure.frames] == step_names
    for frame, probabilities in zip(figure.frames, gates.open_probability, strict=True):
        cells = np.array(frame.data[0].z, float)
        has_head = ~np.isnan(cells)
        assert has_head.sum(axis=1).tolist() == [4, 4, 3]
        np.testing.assert_allclose(cells[has_head], probabilities, atol=5e-4)
    last_frame = figure.frames[-1]
    np.testing.assert_array_equal(figure.data[0].z, last_frame.data[0].z)
    slider = figure.layout.sliders[0]
    (menu,) = figure.layout.updatemenus
    assert [step.args[0] for step in slider.steps] == [(name,) for name in step_names]
    assert slider.active == len(gates.steps) - 1
    assert [button.label for button in menu.buttons] == ["▶ Play", "❚❚ Pause"]


def test_stacks_stand_side_by_side_and_heads_without_a_gate_are_blank():
    figure = open_probability_map(made_gates(grid=THREE_STACKS, stacks="encoder"))
    assert [note.text for note in figure.layout.annotations] == ["encoder", "decoder", "cross"]
    is_blank = [bool(np.isnan(np.array(trace.z, float)).all()) for trace in figure.data]
    assert is_blank == [False, True, True]
    for frame in figure.frames:
        assert len(frame.data) == 3
        assert list(frame.traces) == [0, 1, 2]


def test_of_a_long_history_evenly_spaced_steps_are_drawn_with_both_ends():
    drawn_moments = moments(1001)
    assert len(drawn_moments) == MAX_FRAMES
    assert drawn_moments[0] == 0
    assert drawn_moments[-1] == 1000
    assert set(np.diff(drawn_moments)) == {16, 17}
    assert moments(3) == [0, 1, 2]


def test_the_figure_of_the_training_has_loss_penalty_and_expected_open_heads():
    gates = made_gates(grid=THREE_STACKS)
    figure = training_figure(gates)
    assert [trace.name for trace in figure.data] == [
        "task loss",
        "penalty",
        "open, encoder",
        "open, decoder",
        "open, cross",
    ]
    np.testing.assert_array_equal(figure.data[0].y, gates.loss)
    np.testing.assert_array_equal(figure.data[1].y, gates.penalty)
    np.testing.assert_allclose(
        sum(expected_open_heads(gates).values()), gates.open_probability.sum(axis=1)
    )


def test_kept_heads_are_counted_layer_by_layer_and_stack_by_stack():
    few_heads = made_gates(closed_count=5)
    many_heads = made_gates(closed_count=1)
    layers = kept_by_layer_figure(
        ["few", "many"],
        [few_heads.kept, many_heads.kept],
        GRID,
    ).data[0]
    assert [list(row) for row in layers.text] == [[0, 3, 3], [3, 4, 3]]
    assert layers.customdata[0][1] == "3 of 4"
    stacks = kept_by_stack_figure(
        [0.1, 0.2],
        {"a": [4, 2], "b": [3, 0]},
        {"a": 4, "b": 6},
    )
    assert [list(trace.y) for trace in stacks.data] == [[1.0, 0.5], [0.5, 0.0]]
    assert stacks.layout.xaxis.type == "log"
    with_weight_0 = kept_by_stack_figure([0.0, 0.2], {"a": [4, 2]}, {"a": 4})
    assert with_weight_0.layout.xaxis.type == "linear"


def test_the_trade_off_has_a_dot_with_an_interval_for_each_run_and_a_ring_around_one():
    learned_dots = MaskDots(
        np.array([10, 4]),
        np.array([89.0, 80.0]),
        np.array([88.0, 78.5]),
        np.array([90.5, 81.0]),
        ["a", "b"],
    )
    chart = accuracy_chart({"learned gates": learned_dots}, 90.0, 11, "accuracy", highlighted=1)
    baseline, dots, ring = plotly_figure(chart).data
    assert list(baseline.y) == [90.0, 90.0]
    assert list(dots.x) == [10, 4]
    assert list(dots.y) == [89.0, 80.0]
    assert list(dots.text) == ["a", "b"]
    assert list(dots.error_y.array) == [1.5, 1.0]
    assert list(dots.error_y.arrayminus) == [1.0, 1.5]
    assert list(ring.x) == [4]
    assert list(ring.y) == [80.0]
    assert baseline.showlegend is False
    assert dots.showlegend is None
    assert ring.showlegend is False


# Reading.


def test_runs_that_differ_only_in_their_weight_are_one_sweep():
    results = []
    for weight, seed in ((0.1, 0), (0.01, 0), (0.01, 1), (0.05, 0)):
        gates = made_gates(weight=weight, seed=seed)
        results.append(Result[LearnedGates](f"{len(results)}", Path(), gates, {}))
    first_sweep, second_sweep = grouped_sweeps(results)
    assert [result.record.weight for result in first_sweep.runs] == [0.01, 0.05, 0.1]
    assert [result.key for result in second_sweep.runs] == ["2"]
    assert first_sweep.weights == ["0.01", "0.05", "0.1"]
    assert first_sweep.is_trained_jointly is False
    assert sweep_of(0.1, trained="all").is_trained_jointly


@pytest.mark.parametrize(
    "part",
    [
        None,
        {},
        {"accuracy": "high"},
        {**made_evaluation(9, 0.0), "p": float("nan")},
        {**made_evaluation(9, 0.0), "n": 10**400},
    ],
    ids=["nothing", "empty", "words", "nan", "huge"],
)
def test_what_was_not_measured_or_cannot_be_read_is_left_out(part):
    gates = made_gates()
    assert worth(gates, "test") is not None
    torn = dataclasses.replace(gates, measured={"test": part})
    assert worth(torn, "test") is None
    assert worth(torn, "dev") is None
    assert "test accuracy, %" not in gates_table([torn]).columns


def test_the_table_of_a_sweep_has_a_row_for_each_run_and_a_column_for_each_stack():
    gates_of_runs = sweep_of(0.01, 0.05, grid=THREE_STACKS).gates
    table = gates_table(gates_of_runs)
    assert table.columns[:5] == ("λ", "heads kept", "heads", "gates", "undecided")
    assert table.columns[5:8] == ("encoder kept", "decoder kept", "cross kept")
    kept_counts = [gates.kept.sum() for gates in gates_of_runs]
    assert table.column("heads kept") == kept_counts == [22, 14]
    assert [sum(row[5:8]) for row in table.rows] == kept_counts
    assert table.column("undecided") == [1, 1]
    assert table.column("test p") == [0.04, 0.04]
    assert table.column("test p, Holm") == [0.08, 0.08]
    assert "they do not cover what another training seed would keep" in table.notes[-1]
    translation = sweep_of(0.01, task="translation")
    assert "dev token accuracy, %" in gates_table(translation.gates).columns
    accuracies = [
        0.9 - 0.1 * 2 / 24,
        0.9 - 0.1 * 10 / 24,
    ]
    assert table.column("test accuracy, %") == pytest.approx(100 * np.array(accuracies))


def test_every_head_is_in_the_table_of_gates_whether_it_has_one_or_not():
    gates = made_gates(grid=THREE_STACKS, stacks="cross", closed_count=20)
    rows = head_gates_table(gates).rows
    assert len(rows) == THREE_STACKS.size
    assert [row[:3] for row in rows] == [tuple(head) for head in THREE_STACKS.heads]
    assert [row[7] for row in rows].count(True) == 8
    assert [row[6] for row in rows] == gates.kept.tolist()
    assert all(row[5] <= row[4] for row in rows)  # a gate that is 1 is open


# Beside other methods.


def test_another_method_keeps_as_many_heads_and_removes_only_those_with_a_gate():
    gates = made_gates(grid=LARGE, closed_count=50)
    scores = made_scores("de", "shapley")
    kept_by_shapley = kept_by_scores(gates, scores)
    assert kept_by_shapley.sum() == gates.kept.sum()
    assert scores.values[~kept_by_shapley].max() <= scores.values[kept_by_shapley].min()
    assert mask_of_scores(gates, scores).model["fingerprint"] == "0" * 64
    decoder_gates = made_gates(grid=THREE_STACKS, stacks="decoder", closed_count=14)
    values = np.linspace(-1, 1, THREE_STACKS.size)
    rising_scores = dataclasses.replace(
        scores, grid=THREE_STACKS, values=values, low=None, high=None
    )
    kept_heads = kept_by_scores(decoder_gates, rising_scores)
    assert np.flatnonzero(~kept_heads).tolist() == list(range(8, 14))


def test_heads_in_both_are_counted_beside_what_chance_would_share():
    sweep = sweep_of(0.02, 0.05, grid=LARGE)
    scores = made_scores("de", "shapley")
    figure = Figure(
        language="de",
        n=10,
        total=10,
        accuracy=0.8,
        done=True,
        baseline=0.9,
        difference=-0.1,
        low=-0.2,
        high=0.0,
    )
    measured_figures = {(sweep.runs[0].key, "shapley"): figure}
    table = overlap_table(sweep, {"shapley": scores}, measured_figures, "test")
    for row, result in zip(table.rows, sweep.runs, strict=True):
        kept_indices = set(np.flatnonzero(result.record.kept))
        shapley_indices = set(np.flatnonzero(kept_by_scores(result.record, scores)))
        kept_by_both = kept_indices & shapley_indices
        assert row[2:5] == (len(kept_indices), 144, len(kept_by_both))
        assert row[5] == pytest.approx(len(kept_indices) ** 2 / 144)
    assert table.column("accuracy, %") == [80.0, None]
    assert table.rows[0][-3:] == (-10.0, -20.0, 0.0)
    assert not any("chosen on" in note for note in table.notes)
    caution = (
        "The heads of shapley (shapley-top50) were chosen on dev itself, "
        "which gives an optimistic estimate: compare on test."
    )
    table_of_dev = overlap_table(sweep, {"shapley": scores}, measured_figures, "dev")
    assert table_of_dev.notes[-1] == caution


# Roles.


def test_the_roles_that_stay_are_those_of_the_heads_that_are_kept():
    sweep = sweep_of(0.01, 0.05)
    report = made_roles("de")
    table = kept_roles_table(sweep, report)
    for weight, result in ((0.01, sweep.runs[0]), (0.05, sweep.runs[1])):
        kept_heads = {GRID.heads[index] for index in np.flatnonzero(result.record.kept)}
        rows = [row for row in table.rows if row[0] == weight]
        assert {row[1] for row in rows} == {len(kept_heads)}
        positional = next(row for row in rows if row[2] == "positional")
        assert positional[3] == int(GRID.heads[0] in kept_heads)
        assert positional[4] == 1
    assert {row[1] for row in table.rows if row[0] is None} == {GRID.size}
    sweep_with_a_repeated_run = Sweep((*sweep.runs, sweep.runs[1]))
    repeated_table = kept_roles_table(sweep_with_a_repeated_run, report)
    rows_of_second_run = [row for row in table.rows if row[0] == 0.05]
    assert len(repeated_table.rows) == len(table.rows) + len(rows_of_second_run)
    assert {row[1] for row in first_run_of_each_size(table).rows} == {11, 10, 7}


def test_gates_of_other_weights_are_not_laid_beside_roles():
    with raises("roles.other_model"):
        kept_roles_table(sweep_of(0.01, fingerprint="1" * 64), made_roles("de"))


def test_roles_are_counted_among_the_heads_that_have_a_gate():
    """Heads of other stacks stay at any λ, so neither the counts nor chance include them."""
    sweep = sweep_of(0.06, grid=THREE_STACKS, stacks="encoder", closed_count=5)
    heads_with_role = [0, 1, 6, 10, 11, 12]
    rows = []
    for head_index, head in enumerate(THREE_STACKS.heads):
        rows.append((*head, "rare word", head_index in heads_with_role))
    columns = ("stack", "layer", "head", "role", "has it")
    table = Table("roles", "Roles", columns, ("",) * 5, tuple(rows))
    spec = {"model": {"name": "m", "fingerprint": "0" * 64}}
    roles_table = kept_roles_table(sweep, Report("roles", (table,), (), spec))
    kept_indices = set(np.flatnonzero(sweep.first_gates.kept[:8]))
    assert 0 < len(kept_indices) < 8
    first_cells = (0.06, len(kept_indices), "rare word")
    (rare_word_row,) = (row for row in roles_table.rows if row[:3] == first_cells)
    assert rare_word_row[3] == len(kept_indices & {0, 1, 6})
    assert rare_word_row[4] == 3
    chance_of_each_count = reference.shared_by_chance(8, 3, len(kept_indices))
    expected_count = sum(count * share for count, share in enumerate(chance_of_each_count))
    assert rare_word_row[6] == pytest.approx(expected_count)
    assert {row[1] for row in roles_table.rows if row[0] is None} == {8}


# The page with runs.


def test_a_sweep_is_a_map_curves_a_trade_off_layers_and_a_mask(cache):
    for weight in WEIGHTS:
        keep_gates(cache, made_gates(weight=weight))
    app = run()
    assert not app.error
    assert {metric.label: metric.value for metric in app.metric} == {
        "Heads kept": "8 of 11",
        "Undecided": "1 of 11 gates",
        "Accuracy on dev": "87.3 %",
        "Accuracy on test": "87.3 %",
    }
    assert app.selectbox(key="weight").options == ["0.01", "0.03", "0.06"]
    assert "3 runs · model frozen · 100 steps · learned on 900 examples of train" in page_text(app)
    assert "- Made up for a test." in page_text(app)
    page_charts = charts(app)
    map_chart = next(chart for name, chart in page_charts.items() if name.startswith("gates-map"))
    assert len(map_chart["frames"]) == 7
    ring = trace_of(page_charts["gates-tradeoff"], "")
    assert ring["x"] == [8]
    assert ring["y"] == [pytest.approx(87.27, abs=0.01)]
    sweep = next(frame.value for frame in app.dataframe if "heads kept" in frame.value.columns)
    assert sweep["heads kept"].tolist() == [10, 8, 6]
    assert "**3 of 11 heads** would be off." in page_text(app)
    assert "which takes a probability of being open of at least" in page_text(app)
    assert (
        "There is no report yet on what the heads of e5-small-intents do in German (de)."
        in page_text(app)
    )
    assert "No shapley or gradient scores of this model in this language are cached" in page_text(
        app
    )
    assert commands(app)[0] == (
        "headlab gates --model e5-small-intents --task intents --language de --weight 0.03 "
        "-o steps=100 -o history=6"
    )


def test_a_run_is_chosen_here_or_by_the_link(cache):
    for weight in WEIGHTS:
        keep_gates(cache, made_gates(weight=weight))
    keep_gates(cache, made_gates(weight=0.09, seed=5))
    app = run(weight="0.06")
    assert app.selectbox(key="weight").value == "0.06"
    assert app.metric[0].value == "6 of 11"
    choose(app, "weight", "0.01")
    assert app.metric[0].value == "10 of 11"
    sweep_box = app.selectbox(key="gates-sweep-de-2")
    for option in sweep_box.options:
        assert option.endswith(("900 examples of train", "seed 5"))
    first_parts = [option.split(" · ")[0] for option in sweep_box.options]
    assert first_parts == ["3 runs", "one run, λ = 0.09"]
    sweep_box.set_value(sweep_box.options[1]).run()
    assert not app.exception
    assert app.selectbox(key="weight").options == ["0.09"]
    assert run(weight="7", focus="tlh").metric[0].value == "8 of 11"


def test_every_sweep_can_be_chosen_whatever_it_differs_in(cache):
    spec = made_gates().spec
    model = {**spec["model"], "dtype": "bfloat16"}
    task_y = {**spec["task"], "data_hash": "y"}
    task_z = {**spec["task"], "data_hash": "z"}
    all_gates = [
        made_gates(),
        made_gates(gate_rate=0.1),
        made_gates(sample="batch"),
    ]
    for change in ({"model": model}, {"version": 2}, {"task": task_y}, {"task": task_z}):
        all_gates.append(dataclasses.replace(made_gates(), spec={**spec, **change}))
    keys = {keep_gates(cache, gates) for gates in all_gates}
    app = run()
    lines = app.selectbox(key="gates-sweep-de-7").options
    assert len(set(lines)) == len(keys) == 7
    for difference in ("gate rate 0.1", "sample batch", "dtype bfloat16", "version 2"):
        assert len([line for line in lines if difference in line]) == 1
    # Three sweeps have no other difference, so their labels end with their keys.
    key_endings = tuple(f"({key[:6]})" for key in keys)
    assert len([line for line in lines if line.endswith(key_endings)]) == 3
    shown_keys = set()
    for line in lines:
        choose(app, "gates-sweep-de-7", line)
        shown_keys.add(shown_run_key(app))
    assert shown_keys == keys


def test_a_date_that_is_in_no_year_of_utc_is_left_out():
    for creation_time in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "today", None):
        result = Result[LearnedGates]("k", Path(), made_gates(), {"created": creation_time})
        assert "Made" not in dict(run_facts(result))


def test_roles_are_those_of_the_sweep_s_own_weights(cache):
    keep_gates(cache, made_gates(fingerprint="1" * 64))
    for weights in ("0", "1"):
        report = made_roles("de", fingerprint=weights * 64)
        Store(cache).run(report.spec).finish(
            report, {"created": "2026-11-22T01:00:00+00:00", "versions": {}}
        )
    app = run()
    assert "made with other weights (111111111111…)" in page_text(app)
    assert "cannot be laid beside" not in page_text(app)
    assert any(name.startswith("gates-roles") for name in charts(app))


def test_three_stacks_are_drawn_side_by_side_and_the_figure_of_stacks_has_each(cache):
    for weight in WEIGHTS[:2]:
        keep_gates(cache, made_gates(weight=weight, grid=THREE_STACKS))
    page_charts = charts(run())
    picture = next(chart for name, chart in page_charts.items() if name.startswith("gates-map"))
    assert [trace["type"] for trace in picture["data"]] == ["heatmap"] * 3
    assert [trace["name"] for trace in page_charts["gates-stacks"]["data"]] == [
        "encoder",
        "decoder",
        "cross",
    ]


def test_runs_of_another_model_or_task_are_left_out_and_those_of_other_weights_say_so(cache):
    keep_gates(cache, made_gates(model="another"))
    keep_gates(cache, made_gates(task="xnli"))
    assert "No gates of e5-small-intents have been learned on task intents" in page_text(run())
    keep_gates(cache, made_gates(fingerprint="1" * 64))
    app = run()
    assert "made with other weights (111111111111…)" in page_text(app)
    assert app.button(key="gates-prune").disabled


def test_gates_learned_on_dev_are_to_be_judged_on_test(cache):
    keep_gates(cache, made_gates(split="dev"))
    app = run()
    assert app.radio(key="gates-split").value == "test"
    assert "learned on dev itself" not in page_text(app)
    assert "is chosen on test" not in page_text(app)
    app.radio(key="gates-split").set_value("dev").run()
    assert "The gates were learned on dev itself: judge them on test." in page_text(app)


def test_the_trade_off_opens_on_dev_and_asks_not_to_choose_on_test(cache):
    for weight in WEIGHTS[:2]:
        keep_gates(cache, made_gates(weight=weight, task="intents"))
    app = run()
    assert app.radio(key="gates-split").value == "dev"
    assert app.radio(key="gates-split").options == ["dev", "test"]
    assert "is chosen on test" not in page_text(app)
    app.radio(key="gates-split").set_value("test").run()
    assert (
        "A λ that is chosen by these numbers is chosen on test: "
        "choose it on dev, and look here once." in page_text(app)
    )
    assert measured_splits(sweep_of(0.01, split="dev")) == ["test", "dev"]


def test_a_dot_that_is_clicked_names_its_run(cache, monkeypatch):
    for weight in WEIGHTS:
        keep_gates(cache, made_gates(weight=weight))
    app = run()
    dots = trace_of(charts(app)["gates-tradeoff"], "learned gates")
    assert dots["customdata"] == [["0.01"], ["0.03"], ["0.06"]]
    event = {"selection": {"points": [{"curve_number": 1, "customdata": dots["customdata"][2]}]}}
    state = {"gates-tradeoff": event, "weight": "0.03"}
    monkeypatch.setattr(figures.st, "session_state", state)
    figures.show_clicked_run()
    assert state["weight"] == "0.06"
    for empty_event in (
        None,
        {"selection": {"points": []}},
        {"selection": {"points": [{"curve_number": 1}]}},
    ):
        state["gates-tradeoff"] = empty_event
        figures.show_clicked_run()
    assert state["weight"] == "0.06"
    assert weight_of_click({"selection": {"points": [{"customdata": ["0.01"]}]}}) == "0.01"


@pytest.mark.parametrize("damage", ["torn", "empty"])
def test_a_run_that_cannot_be_read_is_a_sentence(cache, damage):
    key = keep_gates(cache, made_gates())
    path = cache / key / "result.npz"
    path.write_bytes(path.read_bytes()[:200] if damage == "torn" else b"")
    app = run()
    assert "1 run was skipped" in [expander.label for expander in app.expander]
    assert key[:12] in page_text(app)
    assert "No gates of e5-small-intents have been learned" in page_text(app)


# Other methods on the page.


def evaluate_into(questions: list[Any]) -> Any:
    """A worker's `evaluate`, which gives two figures, the last one final.

    Args:
        questions: A list to which it adds what each request asks.
    """

    def evaluate(request: EvaluateRequest) -> Iterator[Figure]:
        removed_count = len(request.mask.removed)
        subject = (request.model, request.task, request.language)
        questions.append((*subject, removed_count, request.split, request.size))
        for example_count, is_final in ((32, False), (request.size, True)):
            yield Figure(
                language=request.language,
                n=example_count,
                total=request.size,
                accuracy=0.7,
                done=is_final,
                baseline=0.9,
                difference=-0.2,
                low=-0.25,
                high=-0.15,
                p=0.001,
            )

    return evaluate


def test_other_methods_masks_are_measured_on_request_and_drawn_in_the_trade_off(worker, cache):
    for weight in WEIGHTS[:2]:
        keep_gates(cache, made_gates(weight=weight, grid=LARGE))
    scores = made_scores("de", "shapley")
    Store(cache).run(scores.spec).finish(scores, {"versions": {}})
    questions: list[Any] = []
    worker.evaluate = evaluate_into(questions)
    app = run()
    assert "No gradient scores of this model in this language are cached" in page_text(app)
    caution = (
        "The heads of shapley (shapley-top50) were chosen on dev itself, "
        "which gives an optimistic estimate: compare on test."
    )

    def reading_caption():
        captions = [caption.value for caption in app.caption]
        return next(caption for caption in captions if caption.startswith(figures.READING))

    assert "were chosen on" not in reading_caption()  # their masks are not drawn yet
    trade_off = charts(app)["gates-tradeoff"]
    trace_names = {trace["name"] for trace in trade_off["data"] if "name" in trace}
    assert questions == []
    assert trace_names - {""} == {"learned gates"}
    press(app, "gates-compare")
    wait_until(lambda: len(questions) == 2, 10)
    wait_until(lambda: app.session_state["_gates_asked"].progress.done, 10)
    app.run()
    assert questions == [
        ("e5-small-intents", "intents", "de", removed_count, "dev", 512)
        for removed_count in (12, 35)
    ]
    assert not app.exception
    dots = trace_of(charts(app)["gates-tradeoff"], "shapley (shapley-top50), as many heads")
    assert caution in reading_caption()
    assert dots["customdata"] == [["0.01"], ["0.03"]]
    assert "gates-compare" not in {button.key for button in app.button}
    table = next(frame.value for frame in app.dataframe if "in both" in frame.value.columns)
    assert table["accuracy, %"].tolist() == [70.0, 70.0]
    app.radio(key="gates-split").set_value("test").run()
    assert "were chosen on" not in page_text(app)


# The mask.


def test_a_mask_whose_accuracy_was_measured_brings_no_warning_that_few_models_keep_theirs(cache):
    keep_gates(cache, made_gates(closed_count=8))
    app = run()
    assert "**8 of 11 heads** would be off." in page_text(app)
    assert not app.warning


def test_another_method_s_mask_is_warned_of_until_it_is_measured(worker, cache):
    keep_gates(cache, made_gates(closed_count=100, grid=LARGE))
    scores = made_scores("de", "shapley")
    Store(cache).run(scores.spec).finish(scores, {"versions": {}})
    worker.evaluate = evaluate_into([])
    app = run()
    mask_box = next(box for box in app.selectbox if box.label == "Mask of")
    mask_box.set_value("shapley with as many heads").run()
    assert [warning.value for warning in app.warning] == [
        "This switches off 100 of 144 heads; few models keep their accuracy beyond half."
    ]
    press(app, "gates-compare")
    wait_until(lambda: app.session_state["_gates_asked"].progress.done, 10)
    app.run()
    assert not app.warning


def test_any_time_of_a_run_becomes_a_mask_that_fits_its_model(cache):
    key = keep_gates(cache, made_gates(weight=0.06))
    app = run()
    slider = app.select_slider(key=f"gates-step-{key[:12]}")
    assert slider.options[0] == "0"
    slider.set_value(0).run()
    assert "**0 of 11 heads** would be off." in page_text(app)
    gates = made_gates(weight=0.06)
    mask_text = json.dumps(gates.mask(-1).to_json())
    mask = mask_from_json(json.loads(mask_text))
    mask.check(GRID, "0" * 64)
    assert mask.kept.tolist() == gates.kept.tolist()


def test_the_prune_page_opens_with_the_mask_and_how_it_was_chosen(worker, cache):
    keep_gates(cache, made_gates(weight=0.06))
    worker.load_model = partial(loaded_model, grid=GRID)
    worker.evaluate = lambda *arguments, **options: iter(())
    app = run()
    press(app, "gates-prune")
    assert app.title[0].value == "Prune"
    history = app.session_state[f"_history:{'0' * 64}"]
    assert history.mask.kept.tolist() == made_gates(weight=0.06).kept.tolist()
    assert history.mask.chosen["rule"] == "gates"
    assert history.mask.chosen["weight"] == 0.06


def test_a_model_that_was_trained_along_is_the_one_its_mask_is_tried_on(worker, cache):
    joint_model = {
        "name": "model",
        "revision": "folder",
        "fingerprint": "2" * 64,
        "folder": "model",
    }
    gates = made_gates(trained="all", model_of_its_own=joint_model)
    key = keep_gates(cache, gates)
    app = run()
    assert "model trained jointly" in page_text(app)
    assert "that model is not in this cache" in page_text(app)
    assert app.button(key="gates-prune").disabled
    (cache / key / "model").mkdir()
    app = run()
    assert "it is in the cache folder" in page_text(app)
    worker.load_model = partial(loaded_model, fingerprint="2" * 64, grid=GRID)
    worker.evaluate = lambda *arguments, **options: iter(())
    press(app, "gates-prune")
    assert app.title[0].value == "Prune"
    assert app.session_state["model"] == str(cache / key / "model")
    history = app.session_state[f"_history:{'2' * 64}"]
    assert history.mask.kept.tolist() == gates.kept.tolist()


# Learning.


def test_without_runs_the_page_says_what_they_cost_and_starts_them(worker, cache):
    app = run()
    assert (
        "No gates of e5-small-intents have been learned on task intents in these languages yet."
        in page_text(app)
    )
    assert (
        "**German (de)**: 4 runs of 400 steps, one after another; λ = 0.003, 0.01, 0.03, 0.1."
        in page_text(app)
    )
    assert "What it will take: **About 2 min**" in page_text(app)
    app.text_input(key=GATES_FORM.key("weights")).set_value("0.2 0.1,0.2")
    app.number_input(key=GATES_FORM.key("steps")).set_value(50)
    press(app, "gates-start")
    (gates_job,) = submitted_jobs(worker)
    spec = gates_job.params
    assert gates_job.kind == "gates"
    assert gates_job.place == "here"
    assert spec["languages"] == ["de"]
    assert spec["weights"] == [0.1, 0.2]
    assert spec["options"]["steps"] == 50
    assert spec["seed"] == 0
    assert "weight" not in spec["options"]
    assert "Job 1 is in the queue." in page_text(app)
    app.switch_page("pages/overview.py").run()
    app.switch_page("pages/gates.py").run()
    assert app.text_input(key=GATES_FORM.key("weights")).value == "0.2 0.1,0.2"
    worker.change(1, state="done")
    keep_gates(cache, made_gates())
    app.run()
    assert app.metric[0].value == "10 of 11"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "count_out_of_range"),
        ("much", "invalid"),
        ("-1", "invalid"),
        ("nan", "invalid"),
        ("inf", "invalid"),
        ("0,01", "ambiguous"),
        ("0.1, 0,3", "ambiguous"),
        (", ".join(str(n) for n in range(21)), "count_out_of_range"),
    ],
)
def test_weights_that_are_none_are_refused_with_a_sentence(worker, cache, text, problem):
    with raises(f"gate.weight_{problem}"):
        weights_from(text)
    if text in ("", "much"):
        app = run()
        app.text_input(key=GATES_FORM.key("weights")).set_value(text).run()
        assert app.button(key="gates-start").disabled
        assert "weight" in app.warning[0].value


def test_without_a_language_the_page_asks_for_one(worker):
    app = run(langs=[""])
    assert "No language is chosen." in page_text(app)
    assert "gates-start" not in {button.key for button in app.button}


# Jobs.


def form_job(**values: Any) -> GatesJob:
    form = GatesForm(CHOICE, ("de",))
    return form.job({GATES_FORM.key(name): value for name, value in values.items()})


def test_a_job_has_a_title_details_and_its_command(worker):
    row = job_row(
        1, "failed", kind="gates", params=form_job(weights="0.1", seed=3).params(), error="it broke"
    )
    assert job_format.job_title(row) == "Learned gates for German (de)"
    assert job_format.describe_job(row) == "gates for de"
    assert ("Weights", "0.1") in job_format.job_details(row)
    line = (
        "headlab gates --model e5-small-intents --task intents --language de --weight 0.1 --seed 3"
    )
    assert command_lines(row) == line


def test_the_command_line_knows_what_the_page_writes():
    gates_command = get_command(build()).commands["gates"]
    options = {"stacks": "encoder,cross", "trained": "all", "steps": 9, "size": 64, "clip": None}
    command_words = shlex.split(form_job(weights="0.1 0.02", **options).terminal_lines())
    context = gates_command.make_context("gates", command_words[2:], resilient_parsing=True)
    arguments = context.params
    assert arguments["weight"] == [0.02, 0.1]
    assert arguments["language"] == "de"
    assert arguments["seed"] == 0
    parsed_options = GatesJob.from_flags(arguments).gate_options(0.1)
    assert {name: getattr(parsed_options, name) for name in options} == options


def test_the_command_under_a_run_makes_the_same_run_again(cache):
    weight = 0.012345678901234567
    gates = made_gates(
        weight=weight, seed=7, sample="batch", stacks="encoder", clip=None, trained="all"
    )
    keep_gates(cache, gates)
    (line, _) = commands(run())
    gates_command = get_command(build()).commands["gates"]
    command_words = shlex.split(line)
    context = gates_command.make_context("gates", command_words[2:], resilient_parsing=True)
    arguments = context.params
    assert arguments["weight"] == [weight]
    assert arguments["seed"] == 7
    assert arguments["dtype"] == "float32"
    parsed_options = GatesJob.from_flags(arguments).gate_options(weight)
    assert parsed_options.record() == gates.spec["options"]
    model = {**gates.spec["model"], "dtype": "bfloat16"}
    (line,) = again("gates", {**gates.spec, "model": model}).lines
    assert line.endswith(" --seed 7 --dtype bfloat16")


def test_a_finished_job_opens_its_gates(worker, cache):
    keep_gates(cache, made_gates("th"))
    worker.rows = [
        job_row(
            1,
            "done",
            kind="gates",
            params={**form_job().params(), "languages": ["th"]},
            result={"keys": ["x"]},
        )
    ]
    app = run_page("jobs", job="1", langs=["de"])
    press(app, "results-gates")
    assert app.title[0].value == "Gates"
    assert app.selectbox(key="focus").value == "th"


def test_a_finished_job_opens_its_own_run(worker, cache):
    for weight in WEIGHTS:
        keep_gates(cache, made_gates(weight=weight))
    keys_of_job = [
        keep_gates(cache, made_gates(weight=weight, gate_rate=0.2)) for weight in WEIGHTS[:2]
    ]
    worker.rows = [
        job_row(
            1, "done", kind="gates", params=form_job().params(), result={"keys": keys_of_job[::-1]}
        )
    ]
    app = run_page("jobs", job="1", langs=["de"])
    press(app, "results-gates")
    assert shown_run_key(app) == keys_of_job[0]
    assert app.selectbox(key="weight").value == "0.01"
    # The test's browser does not notice by itself that the page was switched.
    app.switch_page("pages/gates.py").run()
    sweep_box = app.selectbox(key="gates-sweep-de-2")
    sweep_box.set_value(sweep_box.options[0]).run()
    choose(app, "weight", "0.06")
    # The job's run is asked for once only.
    assert shown_run_key(app) not in keys_of_job
    assert app.selectbox(key="weight").value == "0.06"
    app.switch_page("pages/jobs.py").run()
    app.query_params["job"] = "1"
    app.run()
    press(app, "results-gates")
    assert shown_run_key(app) == keys_of_job[0]


def test_in_a_file_the_map_is_the_end_of_the_training_without_controls():
    figure = open_probability_map(made_gates())
    still_figure = figure_for_file(figure, "gates")
    assert still_figure.frames == ()
    assert still_figure.layout.sliders == ()
    assert still_figure.layout.updatemenus == ()
    np.testing.assert_array_equal(still_figure.data[0].z, figure.data[0].z)
    assert len(figure.frames) == 7
