"""Do the methods agree on the heads of a model, and by which score is it pruned best?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headlab.experiments.ask import Ask
from headlab.experiments.curve_tables import (
    RANDOM,
    Pair,
    Walked,
    area_cells,
    area_table,
    pair_table,
    point_table,
    walked,
)
from headlab.experiments.method_tables import MEAN, agreement_table, overlap_table
from headlab.experiments.orders import Order, Report, asks_of, orders_of, plan_of
from headlab.experiments.trust import compare, level_of, trust_words, verdict, verdict_table
from headlab.tables import Cell, Table

if TYPE_CHECKING:
    from headlab.experiments.pieces import Pieces

Orders = Mapping[str, Mapping[str, Sequence[Order]]]  # language, ordering


def methods_of(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The methods asked for."""
    return tuple(str(options["methods"]).split(","))


def run(pieces: Pieces, options: Mapping[str, Any], report: Report) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    """How the methods' rankings agree, the curve of each beside random orders, and which of them keeps most.

    options: methods, top, points, runs, loss, method_options (of shapley), monte_carlo_options.
    """
    names = methods_of(options)
    plan = plan_of((RANDOM, *names), options, pieces.seed)
    orders = {
        language: orders_of(pieces, language, plan, options["points"], report, "methods")
        for language in pieces.languages
    }
    report("methods: resampling heads and examples")
    scores = {language: {name: of[name][0].scores for name in names} for language, of in orders.items()}
    tables = (agreement_table(scores, pieces.seed), overlap_table(scores, int(options["top"])))
    (first, *judged), words = judge(pieces, orders, names, float(options["loss"]))
    return (first, *tables, *judged), (words, *notes(options))


def cost(pieces: Pieces, options: Mapping[str, Any]) -> list[Ask]:
    """The scores and curves of every method and of the random orders, in every language."""
    plan = plan_of((RANDOM, *methods_of(options)), options, pieces.seed)
    return asks_of(pieces, plan, options["points"])


def judge(pieces: Pieces, orders: Orders, names: Sequence[str], loss: float) -> tuple[tuple[Table, ...], str]:
    """The tables of the curves, and the sentence on which score to trust."""
    seed, aligned = pieces.seed, pieces.task.aligned
    curves = {language: {name: [one.curve for one in of] for name, of in by.items()} for language, by in orders.items()}
    places = {language: [walked(of)] for language, of in curves.items()}
    if len(curves) > 1:
        places[MEAN] = [Walked(of, groups(pieces, language, of[RANDOM][0].groups)) for language, of in curves.items()]
    pairs: dict[str, list[Pair]] = {}
    found = {}
    for place, of in places.items():
        pairs[place] = compare(of, names, seed, aligned=aligned and place == MEAN)
        found[place] = verdict(of, names, pairs[place])
    tables = (
        verdict_table(found, level_of(names)),
        with_means(area_table(curves, seed, loss, "methods-areas"), places.get(MEAN), seed, aligned),
        pair_table(pairs, "methods-differences", difference_note(names)),
        point_table(curves, "methods-curves"),
    )
    return tables, trust_words(found)


def groups(pieces: Pieces, language: str, numbers: Any) -> tuple[str, ...]:
    """The names of a curve's groups, [answer], which tell what is one text in all languages of an aligned task."""
    known = np.unique([one.group or one.id for one in pieces.examples(language, "test")])
    return tuple(known[numbers].tolist())


def with_means(table: Table, found: Sequence[Walked] | None, seed: int, aligned: bool) -> Table:
    """A table of areas with those of the mean over languages below, if there are several."""
    if found is None:
        return table
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (MEAN, name, *area_cells(found, name, seed, aligned=aligned), None, None) for name in found[0].curves
    )
    return replace(table, rows=(*table.rows, *rows))


def difference_note(names: Sequence[str]) -> str:
    """What the columns of the differences are."""
    return (
        f"Minus random: minus the mean over its orders. low, high: {100 * level_of(names):.4g} % each, so that all of "
        "a language hold together with 95 % (Bonferroni). p (Holm) is adjusted for all rows."
    )


def notes(options: Mapping[str, Any]) -> tuple[str, ...]:
    """What to know before believing the tables."""
    return (
        "Heads are scored on dev and leave lowest score first; accuracy is of test. The area is the mean accuracy from "
        "no head gone to all of them, so it says which order is good on the whole, not at one size: see the curves.",
        f"random: {options['runs']} orders; its curve is their median, its area their mean.",
        "Intervals of areas are by resampling groups of test examples. They hold for these orders: how far another dev "
        "sample would change an order is not in them, nor are other models.",
    )
