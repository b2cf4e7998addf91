"""Learned gates: the accuracy that each mask keeps, and the course of a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from headlab.charts.chart import RING, SYMBOLS, Axis, Chart, Line, Points, Series
from headlab.core import Floats, Ints
from headlab.pictures import LINE_COLOURS, UNSURE, line_look
from headlab.results import LearnedGates

ACCURACY_HEIGHT = 420
LOSS_HEIGHT = 310
OPEN_HEADS_HEIGHT = 254
MARGIN = 0.02  # of the axis of kept heads, beyond none and all of them
RING_SIZE = 18.0  # of the ring around the highlighted dot
LOSS_TITLE = "nats an answer"
TASK_LOSS = "task loss"
PENALTY = "penalty"
LOSS_TIP = "{name} {y:.4f} nats at step {x}"
OPEN_HEADS_TIP = "{name}: {y:.1f} heads at step {x}"


class MaskDots(NamedTuple):
    """Masks as dots.

    Attributes:
        kept: Heads kept, int [mask].
        accuracy: In percent, float [mask].
        low: Lower ends of its intervals, float [mask], NaN for none.
        high: Their upper ends.
        texts: What is said about each mask where the pointer is on its dot.
        keys: What a click on each dot gives; empty where nothing can be clicked.
    """

    kept: Ints
    accuracy: Floats
    low: Floats
    high: Floats
    texts: Sequence[str]
    keys: Sequence[str] = ()


def accuracy_chart(
    dots_by_way: Mapping[str, MaskDots],
    baseline: float | None,
    heads: int,
    measure: str,
    *,
    highlighted: int | None = None,
    has_legend: bool = True,
) -> Chart:
    """Accuracy against heads kept: a dot per mask, joined for each way of choosing heads.

    Args:
        dots_by_way: The masks by how their heads were chosen; at least one.
        baseline: Accuracy with all heads in percent, drawn as a dotted line; None if not known.
        heads: Number of all heads.
        measure: What the accuracies are, such as "accuracy on test".
        highlighted: Index of the mask of the first way that has a ring; None for none.
        has_legend: Whether a legend names the ways.

    Returns:
        The chart.
    """
    limits = (-MARGIN * heads, (1 + MARGIN) * heads)
    series: list[Series] = []
    if baseline is not None:
        ends = (baseline, baseline)
        series.append(Line("", limits, ends, UNSURE, "dot", width=1, is_in_legend=False))
    for number, (way, dots) in enumerate(dots_by_way.items()):
        series.append(_mask_points(way, dots, number))
    if highlighted is not None:
        first = next(iter(dots_by_way.values()))
        series.append(_ring(first.kept[highlighted], first.accuracy[highlighted]))
    return Chart(
        f"{measure} against heads kept",
        series,
        x=Axis("heads kept", limits=limits),
        y=Axis(f"{measure}, %"),
        height=ACCURACY_HEIGHT,
        has_legend=has_legend,
        is_clickable=any(dots.keys for dots in dots_by_way.values()),
    )


def _mask_points(way: str, dots: MaskDots, number: int) -> Points:
    """The dots of one way of choosing heads.

    Args:
        number: Its place among the ways, from 0.
    """
    colour, dashes = line_look(number)
    return Points(
        way,
        dots.kept,
        dots.accuracy,
        colour,
        SYMBOLS[number % len(LINE_COLOURS)],
        is_filled=[True] * len(dots.kept),
        low=dots.low,
        high=dots.high,
        along="y",
        joined_by=dashes,
        texts=dots.texts,
        keys=[(key,) for key in dots.keys],
    )


def _ring(kept: float, accuracy: float) -> Points:
    """The ring around one dot."""
    return Points(
        "",
        [kept],
        [accuracy],
        UNSURE,
        RING,
        is_filled=[True],
        sizes=RING_SIZE,
        outline=2,
        tip="",
    )


def loss_chart(runs: Sequence[LearnedGates]) -> Chart:
    """Task loss and penalty of one training, or the task losses of several, by step.

    Args:
        runs: At least one.

    Returns:
        The chart.
    """
    if len(runs) == 1:
        run = runs[0]
        title = "task loss and penalty"
        lines = [
            _course_line(TASK_LOSS, run.steps, run.loss, 0, LOSS_TIP),
            _course_line(PENALTY, run.steps, run.penalty, 1, LOSS_TIP),
        ]
    else:
        title = "task loss at each λ"
        lines = [
            _course_line(f"λ = {run.weight:g}", run.steps, run.loss, number, LOSS_TIP)
            for number, run in enumerate(runs)
        ]
    last = max(float(run.steps[-1]) for run in runs)
    return Chart(
        f"{title} over the steps",
        lines,
        x=Axis("step", limits=(0, last)),
        y=Axis(LOSS_TITLE, has_zero=True),
        height=LOSS_HEIGHT,
        has_legend=True,
    )


def open_heads_chart(gates: LearnedGates) -> Chart:
    """How many heads are open by step, stack by stack: sums of P(open), with heads without a gate.

    Args:
        gates: Of one training.

    Returns:
        The chart.
    """
    stacks = expected_open_heads(gates)
    lines = []
    for number, (stack, heads) in enumerate(stacks.items()):
        name = f"open, {stack}" if len(stacks) > 1 else "open heads"
        # Loss and penalty, which stand above them, have the first two looks.
        lines.append(_course_line(name, gates.steps, heads, number + 2, OPEN_HEADS_TIP))
    return Chart(
        "open heads over the steps",
        lines,
        x=Axis("step", limits=(0, float(gates.steps[-1]))),
        y=Axis("heads open", has_zero=True),
        height=OPEN_HEADS_HEIGHT,
        has_legend=True,
    )


def _course_line(name: str, steps: Ints, values: Floats, number: int, tip: str) -> Line:
    """Values by step.

    Args:
        number: Which colour and dashes the line has.
    """
    colour, dashes = line_look(number)
    return Line(name, steps, values, colour, dashes, tip=tip)


def expected_open_heads(gates: LearnedGates) -> Mapping[str, Floats]:
    """{stack: expected number of open heads, float [time]}."""
    stack_of_head = np.array([head.stack for head in gates.grid.heads])
    return {
        stack.name: gates.open_probability[:, stack_of_head == stack.name].sum(axis=1)
        for stack in gates.grid.stacks
    }
