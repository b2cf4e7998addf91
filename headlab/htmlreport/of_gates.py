"""Learned gates as a section: how open each is, what each penalty keeps and costs, and how the learning went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from headlab.htmlreport.chart import Chart, Dot, Entry, Line, Mark, draw
from headlab.htmlreport.commands import again, joined
from headlab.htmlreport.facts import facts_of, model_of, spent
from headlab.htmlreport.maps import key, share_cells, stack_maps
from headlab.htmlreport.parts import Figure, Folded, Item, Made, Section
from headlab.htmlreport.style import DASHES, DIVERGING, LINES, UNSURE
from headlab.htmlreport.ticks import axis, widened
from headlab.l0_gates import LearnedGates
from headlab.tables import Cell, Table

Learned = Sequence[tuple[Item, LearnedGates]]
SPLITS = ("test", "dev")
ENDS = ("accuracy", "accuracy_low", "accuracy_high")
WORTH = ("accuracy", "difference", "low", "high")


def group_of(gates: LearnedGates) -> tuple[object, ...]:
    """Gates of one group make a sweep: model, task and language are the same."""
    return (*model_of(gates.spec), gates.spec["task"]["name"], gates.language)


def section(items: Learned) -> Section:
    """The section of one group of gates, by rising penalty."""
    items = sorted(items, key=lambda one: one[1].weight)
    every = [gates for _, gates in items]
    first = every[0]
    maps = [
        Figure(stack_maps(g.grid, share_cells(g.grid, g.open_probability[-1], "open with", blank=~g.gated),
                          f"P(open) of every gate at λ {g.weight:g}"),
               f"λ = {g.weight:g}: {int(g.kept.sum())} of {g.grid.size} heads kept; percent")
        for g in every
    ]  # fmt: skip
    colours = Figure((key(DIVERGING, ["closed", "undecided", "open"], "P(open)"),), wide=True)
    made = [
        Made(i.key, f"{g.language}, λ = {g.weight:g}", facts_of(g.spec, i.meta, spent(g.example_forwards, g.seconds)))
        for i, g in items
    ]
    return Section(
        f"Gates learned on {first.spec['task']['name']}, {first.language}", "learned gates", model_of(first.spec),
        [*_trade_off(every), *maps, colours, _course(every)],
        [_summary(every), *map(Folded, map(_history, every))],
        list(_notes(every)), made, joined([again("gates", g.spec) for g in every]),
    )  # fmt: skip


def _split(gates: LearnedGates) -> str:
    return next((split for split in SPLITS if split in gates.measured), "")


def _trade_off(every: Sequence[LearnedGates]) -> Iterator[Figure]:
    """Accuracy against heads kept, a dot a penalty; nothing where nothing was measured."""
    split = _split(every[0])
    found = [(int(g.kept.sum()), g.measured.get(split, {}), g.weight) for g in every]
    dots = [_worth_dot(kept, worth, weight) for kept, worth, weight in found if _whole(worth)]
    if not dots:
        return
    size, marks = every[0].grid.size, list[Mark](dots)
    heights = [end for dot in dots for end in (dot.low, dot.high)]
    base = found[0][1].get("baseline")
    if isinstance(base, float):
        marks.append(Line([0, size], [100 * base] * 2, UNSURE, "dot", 1))
        heights.append(100 * base)
    y = axis(*widened(heights), title=f"accuracy on {split}", unit=" %")
    chart = Chart(axis(0, size, title="heads kept"), y, marks, 260, f"accuracy on {split} against heads kept")
    yield Figure((draw(chart),), "A dot a penalty, with its 95 % interval; dotted: all heads.", wide=True)


def _whole(worth: Mapping[str, Any]) -> bool:
    return all(isinstance(worth.get(name), int | float) for name in ENDS)


def _worth_dot(kept: int, worth: Mapping[str, Any], weight: float) -> Dot:
    accuracy, low, high = (100 * float(worth[name]) for name in ENDS)
    return Dot(kept, accuracy, LINES[0], told=f"λ = {weight:g}", low=low, high=high, along="y")


def _course(every: Sequence[LearnedGates]) -> Figure:
    """Task loss and penalty of one run, or the task losses of several."""
    first = every[0]
    series = {f"λ = {gates.weight:g}": (gates.steps, gates.loss) for gates in every}
    if len(every) == 1:
        series = {"task loss": (first.steps, first.loss), "penalty": (first.steps, first.penalty)}
    marks, entries, heights = list[Mark](), list[Entry](), list[float]()
    for at, (name, (steps, values)) in enumerate(series.items()):
        colour, dash = LINES[at % len(LINES)], DASHES[at % len(DASHES)]
        marks.append(Line(steps.astype(float).tolist(), values.tolist(), colour, dash))
        entries.append(Entry(name, colour, dash))
        heights += values.tolist()
    what = "task loss and penalty" if len(every) == 1 else "task loss at each λ"
    last = max(float(gates.steps[-1]) for gates in every)
    y = axis(*widened(heights, zero=True), title="nats an answer")
    chart = Chart(axis(0, last, title="step"), y, marks, 200, f"{what} over the steps", entries)
    return Figure((draw(chart),), f"How the learning went: {what}", wide=True)


def _summary(every: Sequence[LearnedGates]) -> Table:
    splits = [split for split in SPLITS if any(split in g.measured for g in every)]
    worth = [f"{split}: {name}, {'%' if name == 'accuracy' else 'points'}" for split in splits for name in WORTH]
    rows = tuple(
        (g.weight, int(g.kept.sum()), int(g.gated.sum()), g.grid.size, g.undecided(),
         *(_percent(g.measured.get(split, {}).get(name)) for split in splits for name in WORTH))
        for g in every
    )  # fmt: skip
    forms = ("g", "d", "d", "d", "d", *(".1f" if name == "accuracy" else "+.1f" for _ in splits for name in WORTH))
    columns = ("λ", "heads kept", "gates", "heads", "undecided", *worth)
    notes = (
        "Undecided: P(open) between 0.1 and 0.9. Differences are to the model with all heads, on the same examples.",
    )
    return Table("gates-summary", "What each penalty keeps", columns, forms, rows, notes)


def _percent(value: Any) -> Cell:
    return 100 * value if isinstance(value, int | float) else None


def _history(gates: LearnedGates) -> Table:
    expected = np.where(gates.gated, gates.open_probability, 1.0).sum(axis=1)
    rows = tuple(
        (int(step), None if np.isnan(loss) else float(loss), float(penalty), float(heads))
        for step, loss, penalty, heads in zip(gates.steps, gates.loss, gates.penalty, expected, strict=True)
    )
    columns = ("step", "task loss, nats", "penalty, nats", "heads open, expected")
    return Table("gates-history", f"Over the steps, λ = {gates.weight:g}", columns, ("d", ".4f", ".4f", ".1f"), rows)


def _notes(every: Sequence[LearnedGates]) -> Iterator[str]:
    yield from dict.fromkeys(note for gates in every for note in gates.notes)
    yield "A gate that is likelier open than closed is kept."
