"""Scores of heads as a section: what was found in each language, a map, and every head's numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from headlab.htmlreport.commands import again, joined
from headlab.htmlreport.facts import facts_of, model_of, spent
from headlab.htmlreport.maps import coloured_around, scale_key, scores_cells, stack_maps
from headlab.htmlreport.parts import Figure, Folded, Item, Made, Section
from headlab.methods.costs import caution, cost_of
from headlab.methods.table import METHODS
from headlab.records import Floats
from headlab.scores import HeadScores
from headlab.stats import holm
from headlab.tables import Cell, Table
from headlab.value_functions import shown_unit

Scored = Sequence[tuple[Item, HeadScores]]


def group_of(scores: HeadScores) -> tuple[object, ...]:
    """Scores of one group can be compared: model, task, method, estimand, unit and ablation are the same."""
    spec = scores.spec
    return (*model_of(spec), spec["task"]["name"], scores.method, scores.estimand, scores.unit, spec["ablation"])


def section(items: Scored) -> Section:
    """The section of one group of scores."""
    first = items[0][1]
    factor, unit = shown_unit(first.unit)
    limit = max((float(np.abs(s.values).max(initial=0.0)) for _, s in items), default=0.0) * factor or 1.0
    around = any(coloured_around(s.values, s.low) for _, s in items)
    figures = [_figure(s, factor, unit, limit, around, len(items)) for _, s in items]
    figures.append(Figure((scale_key(limit, unit, around),), _legend(first, unit), wide=True))
    tables: list[Table | Folded] = [_summary(items, factor, unit), *(Folded(t) for t in _heads(items, factor, unit))]
    made = [Made(i.key, f"{s.language}, {s.method}", facts_of(s.spec, i.meta, _took(s))) for i, s in items]
    title = f"{_title(first.method)} on {first.spec['task']['name']}: {', '.join(s.language for _, s in items)}"
    return Section(
        title, "scores of heads", model_of(first.spec), figures, tables, list(_notes(items)), made,
        joined([again("score", s.spec) for _, s in items]),
    )  # fmt: skip


def _title(method: str) -> str:
    return METHODS[method].title if method in METHODS else method


def _figure(s: HeadScores, factor: float, unit: str, limit: float, around: bool, of: int) -> Figure:
    low, high = (None if end is None else factor * end for end in (s.low, s.high))
    cells = scores_cells(s.grid, factor * s.values, low, high, limit, unit, around)
    label = f"{s.method} of every head in {s.language}, {unit}"
    return Figure(stack_maps(s.grid, cells, label), s.language if of > 1 else f"{s.language}, {unit}")


def _legend(first: HeadScores, unit: str) -> str:
    words = f"{first.estimand}, in {unit}."
    if first.method in METHODS and METHODS[first.method].signed:
        words += " Above 0 (blue): the head helps, and that much is lost when it goes; below 0 (orange): it harms."
    if first.low is not None:
        words += f" Ringed: the {first.level:.0%} interval excludes 0."
    return words


def _took(s: HeadScores) -> tuple[tuple[str, str], ...]:
    return (*spent(s.example_forwards, s.seconds), ("values (sha256)", s.values_sha256()))


def _summary(items: Scored, factor: float, unit: str) -> Table:
    columns = (
        "language", "helpful", "harmful", "undecided", f"half-width, median, {unit}", f"half-width, largest, {unit}",
        "samples a head, median", "examples", "forwards", "seconds",
    )  # fmt: skip
    rows = tuple(_row(s, factor) for _, s in items)
    forms = ("", "d", "d", "d", ".2f", ".2f", ",.0f", ",d", ",d", ",.0f")
    given = [at for at in range(len(columns)) if any(row[at] is not None for row in rows)]
    return Table(
        "scores-summary", "What was found", tuple(columns[at] for at in given), tuple(forms[at] for at in given),
        tuple(tuple(row[at] for at in given) for row in rows),
    )  # fmt: skip


def _row(s: HeadScores, factor: float) -> tuple[Cell, ...]:
    cost, size = cost_of(s), s.spec["task"].get("size")
    undecided = None if cost.narrow is None or cost.wide is None else cost.narrow + cost.wide
    widths = (None if w is None else factor * w for w in (cost.median_width, cost.largest_width))
    drawn = None if cost.samples is None else cost.samples[1]
    known = size if isinstance(size, int) else None
    return (s.language, cost.helpful, cost.harmful, undecided, *widths, drawn, known, cost.forwards, cost.seconds)


def _heads(items: Scored, factor: float, unit: str) -> Iterator[Table]:
    """A table a language; p-values are adjusted over all heads and languages that have any."""
    adjusted = iter(_adjusted([s.p_values for _, s in items if s.p_values is not None]))
    for _, s in items:
        columns: dict[tuple[str, str], Floats | None] = {
            (f"value, {unit}", "+.3f" if METHODS.get(s.method) is None or METHODS[s.method].signed else ".4f"):
                factor * s.values,
            (f"low, {unit}", "+.3f"): None if s.low is None else factor * s.low,
            (f"high, {unit}", "+.3f"): None if s.high is None else factor * s.high,
            ("samples", ",.0f"): None if s.samples is None else s.samples.astype(float),
            ("p", ".4f"): s.p_values,
            ("p (Holm)", ".4f"): None if s.p_values is None else next(adjusted),
        }  # fmt: skip
        given = {name: values for name, values in columns.items() if values is not None}
        rows: tuple[tuple[Cell, ...], ...] = tuple(
            (head.stack, head.layer, head.head, int(s.ranks[at]), *(float(values[at]) for values in given.values()))
            for at, head in enumerate(s.grid.heads)
        )
        names = ("stack", "layer", "head", "rank", *(name for name, _ in given))
        forms = ("", "d", "d", "d", *(form for _, form in given))
        yield Table(f"scores-{s.language}", f"Every head, {s.language}", names, forms, rows)


def _adjusted(given: Sequence[Floats]) -> list[Floats]:
    if not given:
        return []
    ends = np.cumsum([len(p) for p in given])[:-1]
    return list(np.split(holm(np.concatenate(given)), ends))


def _notes(items: Scored) -> Iterator[str]:
    first = items[0][1]
    if text := caution(first.method):
        yield text
    heads = sum(s.grid.size for _, s in items)
    if first.low is not None:
        yield (
            f"{heads:,} intervals are shown, each at {first.level:.0%}: some exclude 0 by chance. p (Holm) is adjusted "
            "over all heads and languages of this section."
        )
    if first.low is None:
        yield "This method gives no intervals: what lies close together may be equal."
    ablation = first.spec["ablation"]
    yield f"A removed head gives {'zeros' if ablation == 'zero' else f'its {ablation}'}. Layers and heads count from 0."
