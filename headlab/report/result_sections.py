"""A section for each kind of result: scores, curves, learned gates, masks, and reports of experiments."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from headlab.charts.chart import SYMBOLS, Axis, Chart, Line, Points, Series
from headlab.charts.curves import curves_chart
from headlab.core import (
    HEAD,
    HEAD_FORMATS,
    Cell,
    Floats,
    HeadlabError,
    Report,
    Table,
    by_layer,
    part,
    shown_unit,
)
from headlab.jobs import where_words
from headlab.jobs.experiment import largest
from headlab.jobs.table import MASK_FILE
from headlab.masks import MIXED, Mask, Seen, accuracy_notes, seen
from headlab.methods import METHODS, cost_of, earlier_order, remarks
from headlab.pictures import (
    DIVERGING,
    LINES,
    UNSURE,
    HeadMap,
    adjusted,
    line_look,
    maps_of,
    parts_note,
)
from headlab.report.again import Again, joined
from headlab.report.commands import (
    MADE_FROM,
    NOT_SHRUNK,
    Known,
    MaskFile,
    cut,
    model_word,
    surroundings,
)
from headlab.report.figures import drawn, inline
from headlab.report.maps import (
    key,
    mask_cells,
    order_cells,
    scale_key,
    scores_cells,
    share_cells,
    stack_maps,
)
from headlab.report.parts import (
    LONGEST,
    Facts,
    Figure,
    Folded,
    Item,
    Made,
    Section,
    as_text,
    facts_of,
    model_of,
    spent,
)
from headlab.results import (
    Curve,
    HeadScores,
    LearnedGates,
    coarse,
    curve_names,
    curve_points,
    curve_summary,
    omission_notes,
)
from headlab.roles import EXAMPLE_TOKENS, EXAMPLES
from headlab.roles import NAME as ROLES
from headlab.studies import STUDIES, earlier_scores, offered_experiments
from headlab.studies.published import with_paper
from headlab.tasks import notes_of_record
from headlab.training import SPLITS, gates_table, run_notes


def group_of(record: object) -> tuple[object, ...] | None:
    """What the results of one section share, so that they can be compared; None: each has a section of its own."""
    match record:
        case HeadScores():
            own: tuple[object, ...] = (
                record.method,
                record.estimand,
                record.unit,
                record.spec["ablation"],
            )
        case Curve():
            own = (record.split, record.spec["ablation"])
        case LearnedGates():
            own = (record.language,)
        case _:
            return None
    return (type(record), *model_of(record.spec), record.spec["task"]["name"], *own)


def _made(item: Item[HeadScores | Curve | LearnedGates], title: str) -> Made:
    """Where a result comes from, and what it took."""
    record = item.record
    took = spent(record.example_forwards, record.seconds)
    if not isinstance(record, LearnedGates):
        took += (("values (sha256)", record.values_sha256()),)
    return Made(item.key, title, facts_of(record.spec, item.meta, took))


def _equal_texts_notes(items: Sequence[Item[HeadScores]] | Sequence[Item[Curve]]) -> Iterator[str]:
    """What was counted beside the results of texts that are in dev and test, once for each language."""
    notes = [
        f"{part(item.record.spec, 'task', 'language')}: {note}."
        for item in items
        for note in notes_of_record(item.meta, str(part(item.record.spec, "task", "split")))
    ]
    yield from dict.fromkeys(notes)


# Scores of heads as a section: the findings in each language, a map, and every head's numbers.


def scores_section(items: Sequence[Item[HeadScores]], known: Known) -> Section:
    """The section of one group of scores. known: what the store of the report knows."""
    every = [item.record for item in items]
    first, (factor, unit) = every[0], shown_unit(every[0].unit)
    shown = list(maps_of({str(at): s for at, s in enumerate(every)}).values())
    figures = [_figure(s, one, len(items)) for s, one in zip(every, shown, strict=True)]
    figures.append(Figure((scale_key(shown),), _legend(first, shown), wide=True))
    tables: list[Table | Folded] = [
        _scores_summary(every, factor, unit),
        *map(Folded, _heads(every, factor, unit)),
    ]
    made = [_made(item, f"{item.record.language}, {item.record.method}") for item in items]
    method = METHODS[first.method].title if first.method in METHODS else first.method
    title = f"{method} on {first.spec['task']['name']}: {', '.join(s.language for s in every)}"
    return Section(
        title, "scores of heads", model_of(first.spec), figures, tables,
        [*_scores_notes(every), *_equal_texts_notes(items)], made,
        joined([known.again("score", s.spec) for s in every]),
    )  # fmt: skip


def _figure(s: HeadScores, shown: HeadMap, of: int) -> Figure:
    label = f"{s.method} of every head in {s.language}, {shown.unit}"
    maps = stack_maps(s.grid, scores_cells(shown), label)
    return Figure(maps, s.language if of > 1 else f"{s.language}, {shown.unit}")


def _legend(first: HeadScores, shown: Sequence[HeadMap]) -> str:
    words = f"{first.estimand}, in {shown[0].unit}."
    if any(one.signed for one in shown):
        words += " Above 0 (blue): the head helps, and that much is lost when it goes; below 0 (orange): it harms."
    tests = max(one.tests for one in shown)
    if first.signed and first.low is not None:
        words += f" A ring in the corner: the head's own {first.level:.0%} interval excludes 0"
        words += (
            f"; a filled one: also after Holm's correction for {tests:,} tests." if tests else "."
        )
    return words


def _scores_summary(every: Sequence[HeadScores], factor: float, unit: str) -> Table:
    columns = (
        "language", "helpful", "harmful", "undecided", f"half-width, median, {unit}", f"half-width, largest, {unit}",
        "samples a head, median", "examples", "forwards", "seconds",
    )  # fmt: skip
    rows = tuple(_row(s, factor) for s in every)
    width = ".2f" if factor > 1 else ".3g"  # points, or a unit whose values may be small
    forms = ("", "d", "d", "d", width, width, ",.0f", ",d", ",d", ",.0f")
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
    return (
        s.language,
        cost.helpful,
        cost.harmful,
        undecided,
        *widths,
        drawn,
        known,
        cost.forwards,
        cost.seconds,
    )


def _heads(every: Sequence[HeadScores], factor: float, unit: str) -> Iterator[Table]:
    """One table per language; p-values are adjusted over all heads and languages that have any."""
    holms = adjusted({str(at): s for at, s in enumerate(every)})
    for at, s in enumerate(every):
        form = "+.3f" if s.signed else ".4f"
        columns: dict[tuple[str, str], Floats | None] = {
            (f"value, {unit}", form): factor * s.values,
            (f"low, {unit}", form): None if s.low is None else factor * s.low,
            (f"high, {unit}", form): None if s.high is None else factor * s.high,
            ("samples", ",.0f"): None if s.samples is None else s.samples.astype(float),
            ("p", ".4f"): s.p_values,
            ("p (Holm)", ".4f"): holms.get(str(at)),
        }  # fmt: skip
        given = {name: values for name, values in columns.items() if values is not None}
        rows: tuple[tuple[Cell, ...], ...] = tuple(
            (
                head.stack,
                head.layer,
                head.head,
                int(s.ranks[at]),
                *(float(values[at]) for values in given.values()),
            )
            for at, head in enumerate(s.grid.heads)
        )
        names = (*HEAD, "rank", *(name for name, _ in given))
        forms = (*HEAD_FORMATS, "d", *(form for _, form in given))
        yield Table(f"scores-{s.language}", f"Every head, {s.language}", names, forms, rows)


def _scores_notes(every: Sequence[HeadScores]) -> Iterator[str]:
    first = every[0]
    yield from (f"{remark[:1].upper()}{remark[1:]}." for remark in remarks(every))
    heads = sum(s.grid.size for s in every)
    if first.low is not None and not first.signed:
        yield f"Intervals, each at {first.level:.0%}, cover the sampling of the examples."
    elif first.low is not None:
        yield (
            f"{heads:,} intervals are shown, each at {first.level:.0%}: some exclude 0 by chance. p (Holm) is adjusted "
            "over all heads and languages of this section."
        )
    if words := coarse(every):
        yield words
    if first.low is None:
        yield "These scores have no intervals: what lies close together may be equal."
    yield from omission_notes(every)
    ablation = first.spec["ablation"]
    yield f"A removed head gives {'zeros' if ablation == 'zero' else f'its {ablation}'}. Layers and heads count from 0."


# Pruning curves as a section: the curves, a summary, the order of the heads, every point.

MANY = 6


def curves_section(items: Sequence[Item[Curve]], known: Known) -> Section:
    """The section of one group of curves. known: what the store of the report knows."""
    curves = [item.record for item in items]
    first, names = curves[0], curve_names(curves)
    enclosed = "Shaded: 95 % intervals of the difference to the model with all heads, on the same examples."
    orders = [
        Figure(stack_maps(c.grid, order_cells(c.grid, c.order.tolist()), f"order of removal, {name}"),
               f"{name}: when each head is removed (1 is the first)")
        for c, name in zip(curves, names, strict=True)
    ]  # fmt: skip
    points = [Folded(curve_points(c, name)) for c, name in zip(curves, names, strict=True)]
    told = [known.again("curve", c.spec) for c in curves]
    made = list(map(_made, items, names))
    listed = ", ".join(names) if len(names) <= MANY else f"{len(names)} curves"
    title = f"Accuracy on {first.spec['task']['name']} ({first.split}) as heads leave: {listed}"
    notes = [
        f"Ordered by {text}."
        for text in dict.fromkeys(earlier_order(c.spec) for c in curves)
        if text
    ]
    chart = curves_chart(curves, has_labels=False)
    figures = [Figure((inline(chart),), enclosed, wide=True), *orders]
    return Section(
        title,
        "pruning curves",
        model_of(first.spec),
        figures,
        [curve_summary(curves), *points],
        [*notes, *_equal_texts_notes(items)],
        made,
        joined(told),
    )


# Learned gates as a section: how open each is, what each penalty keeps and costs, and the course of training.

ENDS = ("accuracy", "accuracy_low", "accuracy_high")
TRADE_OFF_HEIGHT, COURSE_HEIGHT = 370, 310


def gates_section(items: Sequence[Item[LearnedGates]], known: Known) -> Section:
    """The section of one group of gates, by rising penalty. known: what the store of the report knows."""
    items = sorted(items, key=lambda item: item.record.weight)
    every = [item.record for item in items]
    first = every[0]
    maps = [
        Figure(stack_maps(g.grid, share_cells(g.grid, g.open_probability[-1], "open with", blank=~g.gated),
                          f"P(open) of every gate at λ {g.weight:g}"),
               f"λ = {g.weight:g}: {int(g.kept.sum())} of {g.grid.size} heads kept; percent")
        for g in every
    ]  # fmt: skip
    colours = Figure((key(DIVERGING, ["closed", "undecided", "open"], "P(open)"),), wide=True)
    made = [_made(item, f"{item.record.language}, λ = {item.record.weight:g}") for item in items]
    return Section(
        f"Gates learned on {first.spec['task']['name']}, {first.language}", "learned gates", model_of(first.spec),
        [*_trade_off(every), *maps, colours, _course(every)],
        [gates_table(every), *map(Folded, map(_history, every))],
        run_notes(every), made, joined([known.again("gates", g.spec) for g in every]),
    )  # fmt: skip


def _trade_off(every: Sequence[LearnedGates]) -> Iterator[Figure]:
    """Accuracy against heads kept, one dot per penalty; nothing if no accuracy was measured."""
    split = next((split for split in reversed(SPLITS) if split in every[0].measured), "")
    found = [(int(g.kept.sum()), g.measured.get(split, {}), g.weight) for g in every]
    measured = [(kept, worth, weight) for kept, worth, weight in found if _whole(worth)]
    if not measured:
        return
    size = every[0].grid.size
    accuracies, lows, highs = (
        [100 * float(worth[name]) for _, worth, _ in measured] for name in ENDS
    )
    dots = Points(
        "",
        [kept for kept, _, _ in measured],
        accuracies,
        LINES[0],
        SYMBOLS[0],
        is_filled=[True] * len(measured),
        low=lows,
        high=highs,
        along="y",
        texts=[f"λ = {weight:g}" for _, _, weight in measured],
    )
    series: list[Series] = [dots]
    base = found[0][1].get("baseline")
    if isinstance(base, float):
        series.append(Line("", [0, size], [100 * base] * 2, UNSURE, "dot", width=1))
    chart = Chart(
        f"accuracy on {split} against heads kept",
        series,
        x=Axis("heads kept", limits=(0, size)),
        y=Axis(f"accuracy on {split}, %"),
        height=TRADE_OFF_HEIGHT,
        has_legend=False,
    )
    caption = "A dot a penalty, with its 95 % interval; dotted: all heads."
    yield Figure((inline(chart),), caption, wide=True)


def _whole(worth: Mapping[str, Any]) -> bool:
    return all(isinstance(worth.get(name), int | float) for name in ENDS)


def _course(every: Sequence[LearnedGates]) -> Figure:
    """Task loss and penalty of one run, or the task losses of several."""
    first = every[0]
    series = {f"λ = {gates.weight:g}": (gates.steps, gates.loss) for gates in every}
    if len(every) == 1:
        series = {"task loss": (first.steps, first.loss), "penalty": (first.steps, first.penalty)}
    lines = []
    for number, (name, (steps, values)) in enumerate(series.items()):
        colour, dashes = line_look(number)
        lines.append(Line(name, steps, values, colour, dashes))
    what = "task loss and penalty" if len(every) == 1 else "task loss at each λ"
    last = max(float(gates.steps[-1]) for gates in every)
    chart = Chart(
        f"{what} over the steps",
        lines,
        x=Axis("step", limits=(0, last)),
        y=Axis("nats an answer", has_zero=True),
        height=COURSE_HEIGHT,
        has_legend=True,
    )
    return Figure((inline(chart),), f"Course of training: {what}", wide=True)


def _history(gates: LearnedGates) -> Table:
    expected = np.where(gates.gated, gates.open_probability, 1.0).sum(axis=1)
    rows = tuple(
        (int(step), None if np.isnan(loss) else float(loss), float(penalty), float(heads))
        for step, loss, penalty, heads in zip(
            gates.steps, gates.loss, gates.penalty, expected, strict=True
        )
    )
    columns = ("step", "task loss, nats", "penalty, nats", "heads open, expected")
    return Table(
        "gates-history",
        f"Over the steps, λ = {gates.weight:g}",
        columns,
        ("d", ".4f", ".4f", ".1f"),
        rows,
    )


# Masks as sections: which heads are kept, how they were chosen, and the known accuracies.

EVALUATED, UNNAMED = "evaluated", "not said"
MODEL = "MODEL"  # stands for a model that the file does not name


class Number(NamedTuple):
    """How a number in a mask file is shown."""

    column: str
    form: str
    factor: int = 100


NUMBERS = {
    "n": Number("answers", ",d", 1),
    "accuracy": Number("accuracy, %", ".1f"),
    "accuracy_low": Number("accuracy low, %", ".1f"),
    "accuracy_high": Number("accuracy high, %", ".1f"),
    "baseline": Number("all heads, %", ".1f"),
    "difference": Number("difference, points", "+.1f"),
    "low": Number("low, points", "+.1f"),
    "high": Number("high, points", "+.1f"),
    "p": Number("p", ".4f", 1),
}


def masks_section(item: Item[Mask], number: int, known: Known) -> Section:
    """The section of one mask.

    Args:
        item: The mask.
        number: Its number among several masks, from 1; 0 if it is the only one.
        known: What the store of the report knows.
    """
    mask = item.record
    name, gone = str(mask.model.get("name") or UNNAMED), len(mask.removed)
    model = (name, str(mask.model.get("fingerprint") or ""))
    drawn = stack_maps(mask.grid, mask_cells(mask.grid, mask.kept), "heads kept and removed")
    layers = _layers(mask)
    tables: list[Table | Folded] = [
        layers if len(layers.rows) <= 12 else Folded(layers),
        *_worth(mask),
    ]
    made = Made(item.key, "mask", _facts(mask))
    caption = f"Blue is kept, a cross is removed: {gone} of {mask.grid.size} heads."
    return Section(
        f"Mask {item.key}: {mask.grid.size - gone} of {mask.grid.size} heads kept", "mask", model,
        [Figure(drawn, caption)], tables, list(_masks_notes(mask)), [made], _masks_again(item, number, known),
    )  # fmt: skip


def _layers(mask: Mask) -> Table:
    several = len(mask.grid.stacks) > 1
    rows = tuple(
        (*((stack,) if several else ()), layer, int(kept.sum()), len(kept),
         ", ".join(str(head) for head, stays in enumerate(kept.tolist()) if not stays) or "none")
        for stack, layer, kept in by_layer(mask.grid, mask.kept)
    )  # fmt: skip
    columns = ("layer", "kept", "of", "removed heads")
    forms = ("d", "d", "d", "")
    if several:
        columns, forms = ("stack", *columns), ("", *forms)  # type: ignore[assignment] # one column more
    return Table("mask-layers", "By layer", columns, forms, rows)


def _worth(mask: Mask) -> Iterator[Table]:
    """The accuracies in the file, one table per split and task, without columns that no language has."""
    parts: dict[tuple[str, str], list[Seen]] = {}
    for one in seen(mask):
        parts.setdefault((one.split, one.task), []).append(one)
    for (split, task), rows in parts.items():
        given = [name for name in NUMBERS if any(one.figure.get(name) is not None for one in rows)]
        cells = tuple(
            (one.language, *(_cell(one.figure.get(name), NUMBERS[name]) for name in given))
            for one in rows
        )
        columns = ("language", *(NUMBERS[name].column for name in given))
        forms = ("", *(NUMBERS[name].form for name in given))
        yield Table(
            f"mask-{split}", f"Accuracy with the mask on {task}, {split}", columns, forms, cells
        )


def _cell(value: Any, how: Number) -> Cell:
    return None if value is None else float(how.factor * value) if how.factor != 1 else value


def _facts(mask: Mask) -> Facts:
    chosen = {
        name: value for name, value in mask.chosen.items() if name not in (*MADE_FROM, EVALUATED)
    }
    model = {("model" if name == "name" else name): value for name, value in mask.model.items()}
    rows = [
        *model.items(),
        ("heads", str(mask.grid)),
        *chosen.items(),
        ("digest (sha256)", mask.digest),
    ]
    rows += [("versions", mask.versions or None), ("written", mask.created)]
    return tuple(
        (name.replace("_", " "), as_text(value)[:LONGEST])
        for name, value in rows
        if value is not None
    )


def _masks_again(item: Item[Mask], number: int, known: Known) -> Again:
    """How a mask is made again, evaluated and applied.

    Args:
        item: The mask.
        number: Its number among several masks, from 1; 0 if it is the only one.
        known: What the store of the report knows.
    """
    mask = item.record
    spec = _chosen_on(mask)
    name = str(mask.model.get("name") or MODEL)
    model = model_word(name, known.places(spec).model)
    notes = ["The file names no model: put yours in place of MODEL."] if name == MODEL else []
    alone = item.key == item.file  # and not one of several things in its file
    path = item.path if alone else ""
    if not path and not (alone and item.key.endswith(".json")):
        path = MASK_FILE
        notes.append(
            f"{MASK_FILE} stands for this mask ({item.key}): save it under that name, or put its path in its place."
        )
    out = item.key if alone and item.key.endswith(".json") else MASK_FILE
    made = cut(MaskFile(mask, model, out, known))
    about = ["--model", model, "--mask", path or item.key]
    use = [
        "headlab",
        "evaluate",
        *about,
        *_evaluated(mask, {**spec, "model": dict(mask.model)}, known),
    ]
    commands = [tuple(use)]
    if mask.of_means:
        notes.append(NOT_SHRUNK)
    else:
        smaller = f"smaller-{number}" if number else "smaller"
        commands.append(("headlab", "shrink", *about, "--out", smaller))
    return joined([made, Again(tuple(commands), tuple(notes))])


def _chosen_on(mask: Mask) -> Mapping[str, Any]:
    """The spec that a mask's heads were chosen by; without one, what the mask says of its task and its model."""
    specs = (mask.chosen.get(name) for name in MADE_FROM)
    recorded = next((spec for spec in specs if part(spec, "task", "name")), None)
    if isinstance(recorded, Mapping):
        return recorded
    task = mask.chosen.get("task")
    return {"model": dict(mask.model), "task": {"name": task} if task else {}}


def _evaluated(mask: Mask, spec: Mapping[str, Any], known: Known) -> list[str]:
    """Flags of `headlab evaluate`: the task and languages a mask was chosen for, and the examples of its figures."""
    figures = part(mask.chosen, EVALUATED, "test") or {}
    languages = mask.languages
    around = surroundings(spec, known.places(spec), paths=False)
    task = part(spec, "task", "name")
    where: list[str] = []
    if task or around.data:
        label_map = figures.get("label_map")
        if not isinstance(label_map, Mapping):
            label_map = part(spec, "task", "classes")
        where = where_words(
            replace(around, model=None),
            task=task,
            label_map=label_map,
            languages=list(languages) if languages else None,
        )
    of_report = largest(part(spec, "task", "sizes", "test")) if figures else None
    ablation = (
        "zero" if mask.ablation == MIXED else None
    )  # of several, headlab evaluate has to be told one
    settings = {
        "size": figures.get("size") or of_report,
        "ablation": figures.get("ablation") or ablation,
    }
    words = ["--split", "test", *where]
    for name, value in settings.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    return words


def _masks_notes(mask: Mask) -> Iterator[str]:
    if 2 * len(mask.removed) > mask.grid.size:
        yield "This mask removes more than half of the heads: few models keep their accuracy beyond that."
    if not seen(mask):
        yield "The file carries no accuracies: judge the mask on test, by the command below."
    yield from accuracy_notes([mask])
    yield "A mask alone makes a model no faster: it switches heads off. headlab shrink takes them out."


# Reports of experiments as sections: their figures, tables and notes, unchanged.

TITLES = {ROLES: "Roles of heads"}


def reports_section(item: Item[Report], known: Known) -> Section:
    """The section of one report; figures that cannot be drawn are omitted, with the reason in the notes.

    known: what the store of the report knows.
    """
    report = item.record
    notes, figures = list(report.notes), list[Figure]()
    try:
        figures = [
            Figure(drawings, name.replace("-", " "), wide=True)
            for name, drawings in drawn(report).items()
        ]
    except HeadlabError as error:
        notes.append(f"The figures are left out: {error}.")
    about = STUDIES.get(report.name)
    title = about.title if about else TITLES.get(report.name, f"Report {report.name}")
    languages = str(part(report.spec, "task", "language") or "").replace(",", ", ")
    kind = f"experiment {report.name}" if report.name in offered_experiments() else report.name
    took = spent(report.example_forwards, report.seconds)
    if sentence := earlier_scores(report.spec):
        notes.append(sentence)
    if parts := parts_note(_example_tokens(report)):
        notes.append(parts)
    if about:
        notes.insert(0, f"{about.question} After {about.paper}.")
    return Section(
        f"{title}: {languages}" if languages else title, kind, model_of(report.spec), figures,
        [table for table in with_paper(report) if table.rows], notes,
        [Made(item.key, title, facts_of(report.spec, item.meta, took))], _reports_again(item, known),
    )  # fmt: skip


def _example_tokens(report: Report) -> Iterator[str]:
    """The tokens in a report's examples of roles."""
    for table in report.tables:
        if table.name == EXAMPLES:
            columns = [table.column(name) for name in EXAMPLE_TOKENS if name in table.columns]
            yield from (token for column in columns for token in column if isinstance(token, str))


def _reports_again(item: Item[Report], known: Known) -> Again:
    """The command named in the file, or else the one derived from the spec; only headlab commands are passed on."""
    given = item.command or item.record.spec.get("command")
    if not isinstance(given, str) or not given:
        return known.again("report", item.record.spec)
    try:
        words = tuple(shlex.split(given))
    except ValueError:  # unclosed quotation
        words = ()
    if words[:1] != ("headlab",):
        return Again(
            (),
            (
                f"The file says that this made it, which is not a command of headlab's: {given[:LONGEST]}",
            ),
        )
    open_places = "DIR" in words or "FOLDER" in words
    return Again((words,), ("DIR and FOLDER stand for folders of yours.",) if open_places else ())
