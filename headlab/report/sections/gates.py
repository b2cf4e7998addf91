"""Learned gates as a section: how open each is, what each penalty keeps and costs, the training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from headlab.charts.gates import MaskDots, accuracy_chart, loss_chart
from headlab.core import Cell, Table
from headlab.pictures import SWITCHES
from headlab.report.again import joined
from headlab.report.commands import Known
from headlab.report.figures import inline
from headlab.report.maps import key, share_cells, stack_maps
from headlab.report.parts import Folded, Item, ReportFigure, Section, model_of
from headlab.report.sections.shared import origin_of
from headlab.results import LearnedGates
from headlab.training import SPLITS, gates_table, run_notes

INTERVAL_FIELDS = ("accuracy", "accuracy_low", "accuracy_high")


def gates_section(items: Sequence[Item[LearnedGates]], known: Known) -> Section:
    """The section of one group of gates, by rising penalty.

    Args:
        items: At least one run; all of one model, task and language.
        known: What the store of the report knows.
    """
    items = sorted(items, key=lambda item: item.record.weight)
    runs = [item.record for item in items]
    first = runs[0]
    colours = key(SWITCHES, ["closed", "undecided", "open"], "P(open)")
    return Section(
        f"Gates learned on {first.spec['task']['name']}, {first.language}",
        "learned gates",
        model_of(first.spec),
        [
            *_accuracy_figures(runs),
            *map(_map_figure, runs),
            ReportFigure((colours,), wide=True),
            _course_figure(runs),
        ],
        [gates_table(runs), *(Folded(_history_table(gates)) for gates in runs)],
        run_notes(runs),
        [origin_of(item, f"{item.record.language}, λ = {item.record.weight:g}") for item in items],
        joined([known.again("gates", gates.spec) for gates in runs]),
    )


def _map_figure(gates: LearnedGates) -> ReportFigure:
    """The map of how likely each gate is open at the end."""
    shares = gates.open_probability[-1]
    cells = share_cells(gates.grid, shares, "open with", blank=~gates.has_gate)
    maps = stack_maps(gates.grid, cells, f"P(open) of every gate at λ {gates.weight:g}")
    kept_heads = f"{int(gates.kept.sum())} of {gates.grid.size} heads kept"
    return ReportFigure(maps, f"λ = {gates.weight:g}: {kept_heads}; percent")


def _accuracy_figures(runs: Sequence[LearnedGates]) -> Iterator[ReportFigure]:
    """Accuracy against heads kept, one dot per penalty; nothing if no accuracy was measured."""
    split = next((split for split in reversed(SPLITS) if split in runs[0].measured), "")
    measured_runs = [gates for gates in runs if _has_interval(gates.measured.get(split, {}))]
    if not measured_runs:
        return
    percents = 100 * np.array(
        [[gates.measured[split][field] for field in INTERVAL_FIELDS] for gates in measured_runs],
        dtype=float,
    )
    accuracy, low, high = percents.T
    dots = MaskDots(
        np.array([int(gates.kept.sum()) for gates in measured_runs]),
        accuracy,
        low,
        high,
        texts=[f"λ = {gates.weight:g}" for gates in measured_runs],
    )
    baseline = runs[0].measured.get(split, {}).get("baseline")
    chart = accuracy_chart(
        {"": dots},
        100 * baseline if isinstance(baseline, float) else None,
        runs[0].grid.size,
        f"accuracy on {split}",
        has_legend=False,
    )
    caption = "A dot a penalty, with its 95 % interval; dotted: all heads."
    yield ReportFigure((inline(chart),), caption, wide=True)


def _has_interval(measured: Mapping[str, object]) -> bool:
    """Whether what was measured on a split has an accuracy and the ends of its interval."""
    return all(isinstance(measured.get(field), int | float) for field in INTERVAL_FIELDS)


def _course_figure(runs: Sequence[LearnedGates]) -> ReportFigure:
    """Task loss and penalty of one run, or the task losses of several."""
    content = "task loss and penalty" if len(runs) == 1 else "task loss at each λ"
    return ReportFigure((inline(loss_chart(runs)),), f"Course of training: {content}", wide=True)


def _history_table(gates: LearnedGates) -> Table:
    """A row for each recorded step: losses, and the expected number of open heads."""
    # A head without a gate is always open.
    expected_open_heads = np.where(gates.has_gate, gates.open_probability, 1.0).sum(axis=1)
    rows: list[tuple[Cell, ...]] = []
    for step, loss, penalty, open_head_count in zip(
        gates.steps, gates.loss, gates.penalty, expected_open_heads, strict=True
    ):
        known_loss = None if np.isnan(loss) else float(loss)
        rows.append((int(step), known_loss, float(penalty), float(open_head_count)))
    return Table(
        "gates-history",
        f"Over the steps, λ = {gates.weight:g}",
        ("step", "task loss, nats", "penalty, nats", "heads open, expected"),
        ("d", ".4f", ".4f", ".1f"),
        tuple(rows),
    )
