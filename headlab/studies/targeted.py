"""Table 2 of Held & Yang (EACL 2023): remove the heads that harm a language, and measure the effect on test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headlab.methods.table import RIVALS
from headlab.options import OptionValue, integer_in, optional_integer_in, options_in, text_in
from headlab.records import Bools, Evaluation
from headlab.scores import HeadScores
from headlab.studies.differences import (
    COLUMNS,
    FORMATS,
    NOTHING,
    Difference,
    Gain,
    adjusted,
    caution,
    difference,
    gain_of,
    minus,
    over_languages,
    removed,
    without_harmful,
    without_lowest,
)
from headlab.studies.table import METHOD, METHOD_OPTIONS, Found, Say
from headlab.tables import Cell, Table

if TYPE_CHECKING:
    from headlab.studies.run import Ask, Pieces

Lookup = Callable[..., HeadScores | None]
HARMFUL, RANDOM = "harmful", "random"
MEAN = "mean"


@dataclass(frozen=True)
class Row:
    """One language under every choice of heads.

    masks: kept heads by choice, several for random.  whole: answers of the untouched model.  found: answers by
    choice.
    """

    language: str
    masks: Mapping[str, Sequence[Bools]]
    whole: Evaluation
    found: Mapping[str, Sequence[Evaluation]]

    def heads(self, choice: str) -> int:
        """Number of heads removed."""
        return removed(self.masks[choice][0])

    def gain(self, choice: str) -> Gain:
        """What each answer gains; the mean over the runs of a choice."""
        return gain_of(self.whole, self.found[choice])

    def accuracies(self, choice: str) -> list[float]:
        """Accuracy of each run."""
        return [e.accuracy for e in self.found[choice]]


def run(pieces: Pieces, options: Mapping[str, OptionValue], report: Say) -> Found:
    """Accuracy on test under every choice of heads, and each choice compared with the method's own."""
    rows: list[Row] = []
    for language in pieces.each("targeted", report):
        masks = masks_of(pieces, language, options, pieces.scores)
        every = [None, *(kept for several in masks.values() for kept in several)]
        whole, *answers = pieces.all_answers(language, every)
        left = iter(answers)
        rows.append(
            Row(
                language,
                masks,
                whole,
                {name: [next(left) for _ in of] for name, of in masks.items()},
            )
        )
    method, choices = text_in(options, METHOD), list(rows[0].masks)
    tables = (
        wide_table(rows, choices),
        long_table(rows, choices, pieces),
        against_table(rows, choices, method, pieces),
    )
    return tables, notes(rows, options, method)


def cost(pieces: Pieces, options: Mapping[str, OptionValue]) -> list[Ask]:
    """Scores of every method, then the answers under their masks."""
    asks = []
    for language in pieces.languages:
        asked = {
            (name, tuple(own.items())): (name, own) for name, own in _methods(options).values()
        }
        asks += [pieces.ask_scores(language, name, options=own) for name, own in asked.values()]
        masks = masks_of(pieces, language, options, pieces.found)
        known = [kept for several in masks.values() for kept in several]
        unknown = len(_methods(options)) + 1 + integer_in(options, "runs") - len(known)
        asks.append(pieces.ask_answers(language, [None, *known], unknown=unknown))
    return asks


def _methods(
    options: Mapping[str, OptionValue],
) -> dict[str, tuple[str, Mapping[str, OptionValue]]]:
    """{choice: (method whose lowest heads are removed, its options)}, the method's own choice first."""
    own = text_in(options, METHOD)
    left = {own} if options["leave_one_out"] else {own, "leave-one-out"}
    rivals = {name: rival for name, rival in RIVALS.items() if name not in left}
    return {own: (own, options_in(options, METHOD_OPTIONS)), **rivals}


def masks_of(
    pieces: Pieces, language: str, options: Mapping[str, OptionValue], lookup: Lookup
) -> dict[str, list[Bools]]:
    """Kept heads, bool [head], by choice: without the harmful ones, or without as many of the lowest by each method.

    lookup: `pieces.scores`, or `pieces.found` to omit what depends on scores not computed yet.
    """
    own = text_in(options, METHOD)
    first = lookup(language, own, **options_in(options, METHOD_OPTIONS))
    if first is None:
        return {}
    out = {HARMFUL: [without_harmful(first)]}
    k = optional_integer_in(options, "k")
    if k is None:
        k = removed(out[HARMFUL][0])
    for name, (method, given) in _methods(options).items():
        scores = lookup(language, method, **given)
        if scores is not None:
            out[name] = [without_lowest(scores, k)]
    seeds = range(pieces.seed, pieces.seed + integer_in(options, "runs"))
    drawn = [pieces.scores(language, RANDOM, seed=seed) for seed in seeds]
    return out | {RANDOM: [without_lowest(scores, k) for scores in drawn]}


def _difference(row: Row, choice: str, seed: int) -> Difference:
    return difference(row.gain(choice), seed) if row.heads(choice) else NOTHING


def wide_table(rows: Sequence[Row], choices: Sequence[str]) -> Table:
    """One row per language: accuracy untouched and under every choice, as in the paper."""
    cells: list[tuple[Cell, ...]] = []
    for row in rows:
        means = [100 * float(np.mean(row.accuracies(choice))) for choice in choices]
        cells.append(
            (row.language, row.heads(HARMFUL), row.heads(RANDOM), 100 * row.whole.accuracy, *means)
        )
    mean = [float(np.mean(column)) for column in list(zip(*cells, strict=True))[1:]]
    return Table(
        "targeted-accuracy",
        "Accuracy on test with heads removed",
        ("language", "harmful heads", "K", "untouched, %", *(f"{choice}, %" for choice in choices)),
        ("", ".4g", ".4g", ".1f", *(".1f" for _ in choices)),
        (*cells, (MEAN, *mean)),
        ("harmful: all heads whose interval on dev lies below 0.  The others: the K lowest heads of each method; "
         "random is the mean over its runs.",),
    )  # fmt: skip


def long_table(rows: Sequence[Row], choices: Sequence[str], pieces: Pieces) -> Table:
    """One row per language and choice: paired difference from the untouched model, with interval and tests."""
    cells: list[tuple[Cell, ...]] = []
    for choice in choices:
        found = [_difference(row, choice, pieces.seed) for row in rows]
        for row, d, corrected in zip(rows, found, adjusted(found), strict=True):
            shares = row.accuracies(choice)
            ends = (100 * min(shares), 100 * max(shares)) if choice == RANDOM else (None, None)
            cells.append(
                (row.language, choice, row.heads(choice), 100 * row.whole.accuracy, 100 * float(np.mean(shares)),
                 *d.cells, corrected, d.mark, *ends)
            )  # fmt: skip
        if len(rows) > 1:
            cells.append((MEAN, choice, None, *_means(rows, choice), *_mean(rows, choice, pieces).cells, None,
                          _mean(rows, choice, pieces).mark, None, None))  # fmt: skip
    return Table(
        "targeted",
        "Accuracy on test with heads removed, against the untouched model",
        ("language", "removed by", "heads removed", "untouched, %", "accuracy, %", *COLUMNS, "p (Holm)", "P < 0.05",
         "lowest run, %", "highest run, %"),
        ("", "", "d", ".1f", ".1f", *FORMATS, ".4f", "", ".1f", ".1f"),
        tuple(cells),
        ("p (Holm): adjusted over the languages, for each choice.",),
    )  # fmt: skip


def _means(rows: Sequence[Row], choice: str) -> tuple[float, float]:
    """Mean accuracy over the languages, untouched and under a choice, in percent."""
    after = [float(np.mean(row.accuracies(choice))) for row in rows]
    return 100 * float(np.mean([row.whole.accuracy for row in rows])), 100 * float(np.mean(after))


def _mean(rows: Sequence[Row], choice: str, pieces: Pieces) -> Difference:
    """The mean difference over languages; a language without heads to remove counts as 0."""
    if not any(row.heads(choice) for row in rows):
        return NOTHING
    return over_languages(
        {r.language: r.gain(choice) for r in rows}, pieces.seed, aligned=pieces.task.aligned
    )


def against_table(
    rows: Sequence[Row], choices: Sequence[str], method: str, pieces: Pieces
) -> Table:
    """One row per language and other choice: its accuracy minus that without the method's K lowest heads, paired."""
    cells: list[tuple[Cell, ...]] = []
    for choice in (c for c in choices if c != method):
        gains = {row.language: minus(row.gain(choice), row.gain(method)) for row in rows}
        touched = {row.language: _differ(row, choice, method) for row in rows}
        found = [
            difference(g, pieces.seed) if touched[name] else NOTHING for name, g in gains.items()
        ]
        for name, d, corrected in zip(gains, found, adjusted(found), strict=True):
            cells.append((name, choice, *d.cells, corrected, d.mark))
        if len(rows) > 1 and any(touched.values()):
            d = over_languages(gains, pieces.seed, aligned=pieces.task.aligned)
            cells.append((MEAN, choice, *d.cells, None, d.mark))
    return Table(
        "targeted-against",
        f"Accuracy on test minus that without the K lowest heads by {method}",
        ("language", "removed by", *COLUMNS, "p (Holm)", "P < 0.05"),
        ("", "", *FORMATS, ".4f", ""),
        tuple(cells),
        ("p (Holm): adjusted over the languages, for each choice.",),
    )


def _differ(row: Row, choice: str, other: str) -> bool:
    return any(not np.array_equal(mask, row.masks[other][0]) for mask in row.masks[choice])


def notes(rows: Sequence[Row], options: Mapping[str, OptionValue], method: str) -> tuple[str, ...]:
    """Caveats about the tables."""
    bare = [row.language for row in rows if not row.heads(HARMFUL)]
    out = [
        f"Heads are chosen on dev by {method} and judged on test. Intervals (95 %) and p are of the paired bootstrap "
        "with 10,000 resamples of groups of examples; mean rows weigh languages alike.",
        f"random: the mean over {options['runs']} runs, averaged answer by answer before it is tested.",
    ]
    if bare:
        out.append(
            f"No head has an interval below 0 in {', '.join(bare)}: nothing to remove"
            + (", so the accuracy there is the untouched one and counts as 0 in the means." if options["k"] is None
               else f"; the other rows show the {options['k']} lowest.")
        )  # fmt: skip
    risky = {row.language: caution(row.masks[RANDOM][0]) for row in rows}
    return (*out, *(f"{name}: {text}." for name, text in risky.items() if text))
