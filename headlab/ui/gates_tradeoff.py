"""The trade-off over λ: accuracy against heads kept, a dot a run, beside other methods' masks of the same size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from headlab.plots.gates import Dots, trade_off
from headlab.scores import HeadScores
from headlab.ui import gates_against
from headlab.ui.experiments_report import show
from headlab.ui.figures import figure
from headlab.ui.gates_read import Sweep, accuracy_name, hover, learned_on, splits_of, table_of, worth
from headlab.ui.prune_figures import Figure
from headlab.ui.shell import Choice

GATES = "learned gates"
READING = (
    "Bars: 95 % interval of the difference to the model with all heads (dotted), on the same examples. Click a point "
    "to see its run."
)
CHART, WEIGHT = "gates-tradeoff", "weight"  # keys of the figure, and of the widget that names the run


def draw(choice: Choice, sweep: Sweep, at: int) -> None:
    """The trade-off with its table; at: the run that is ringed."""
    splits = splits_of(sweep)
    if not splits:
        st.info("These runs do not say what their masks are worth; learn the gates again to measure it.")
        show(table_of(sweep), f"gates-{sweep.first.language}")
        return
    split = st.radio("Accuracy on", splits, horizontal=True, key="gates-split")
    scores = gates_against.scores_for(choice, sweep)
    asked = gates_against.questions(choice, sweep, scores, split)
    known = gates_against.seen(asked, sweep.first.language)
    fig = of_sweep(sweep, split, known, at, names={method: gates_against.called(own) for method, own in scores.items()})
    name = f"gates-{sweep.first.language}-{split}"
    figure(fig, name, key=CHART, alt="Accuracy against heads kept", on_point=choose)
    st.caption(
        " ".join(filter(None, [READING, _caution(sweep, split, splits), gates_against.flattered(scores, split)]))
    )
    show(table_of(sweep), f"gates-{sweep.first.language}")
    _beside(sweep, scores, known, split)
    gates_against.offer(asked, sweep.first.language)


def _caution(sweep: Sweep, split: str, splits: list[str]) -> str:
    if learned_on(sweep.first) == split:
        return f"The gates were learned on {split} itself: judge them on test."
    if split == "test" and splits[0] != "test":
        return "A λ that is chosen by these numbers is chosen on test: choose it on dev, and look here once."
    return ""


def choose() -> None:
    """The run of the point that was clicked becomes the one that is shown."""
    weight = clicked(st.session_state.get(CHART))
    if weight:
        st.session_state[WEIGHT] = weight


def clicked(event: Any) -> str:
    """Which run a clicked point is of, as the figure names it; empty where none is."""
    points = event["selection"]["points"] if event else []
    found = points[-1].get("customdata") if points else None
    found = found[0] if isinstance(found, list | tuple) and found else found
    return found if isinstance(found, str) else ""


def _beside(
    sweep: Sweep, scores: Mapping[str, HeadScores], known: Mapping[tuple[str, str], Figure], split: str
) -> None:
    lacking = [method for method in gates_against.METHODS if method not in scores]
    if scores:
        show(gates_against.overlap(sweep, scores, known, split), f"overlap-{sweep.first.language}")
    if lacking:
        st.caption(
            f"No {' or '.join(lacking)} scores of this model in this language are cached: with them, the heads that "
            f"{'they' if len(lacking) > 1 else 'it'} would have kept stand here. The Heads page computes them."
        )
    if scores and sweep.along:
        st.caption("The model was trained jointly with the gates; the other methods' masks are of the original model.")


def of_sweep(
    sweep: Sweep, split: str, known: Mapping[tuple[str, str], Figure], at: int, *, names: Mapping[str, str],
    template: str | None = None,
) -> go.Figure:  # fmt: skip
    """The figure: the runs that were measured on the split, and other methods' masks as far as they are known.

    names: {method: what its scores are called}.
    """
    found = [(run, w) for run in sweep.runs if (w := worth(run.gates, split)) is not None]
    weights = [name for run, name in zip(sweep.runs, sweep.weights, strict=True) if worth(run.gates, split) is not None]
    ends = np.array([w.ends for _, w in found])
    kept = np.array([int(run.gates.kept.sum()) for run, _ in found])
    told = [hover(run.gates, split) for run, _ in found]
    own = np.array([100 * w.accuracy for _, w in found])
    series = {GATES: Dots(kept, own, ends[:, 0], ends[:, 1], told, weights)}
    for method in dict.fromkeys(method for _, method in known):
        name = names.get(method, method)
        series[f"{name}, as many heads"] = _dots(sweep, method, name, known)
    ringed = next((place for place, (run, _) in enumerate(found) if run is sweep.runs[at]), None)
    size, unit = sweep.first.grid.size, f"{accuracy_name(sweep.first)} on {split}, %"
    return trade_off(series, 100 * found[0][1].baseline, size, unit, chosen=ringed, template=template)


def _dots(sweep: Sweep, method: str, name: str, known: Mapping[tuple[str, str], Figure]) -> Dots:
    there = [(run, at) for run, at in zip(sweep.runs, sweep.weights, strict=True) if (run.key, method) in known]
    rows = [(int(run.gates.kept.sum()), known[run.key, method]) for run, _ in there]
    ends = [(f.accuracy, f.accuracy) if f.baseline is None else (f.baseline + (f.low or 0), f.baseline + (f.high or 0))
            for _, f in rows]  # fmt: skip
    low, high = 100 * np.array(ends).T
    told = [f"{name}: {kept} heads kept<br>{100 * f.accuracy:.1f} %, interval {a:.1f} to {b:.1f}"
            for (kept, f), a, b in zip(rows, low, high, strict=True)]  # fmt: skip
    kept, found = np.array([kept for kept, _ in rows]), np.array([100 * f.accuracy for _, f in rows])
    return Dots(kept, found, low, high, told, [at for _, at in there])
