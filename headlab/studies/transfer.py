"""Table 3 of Held & Yang (EACL 2023), for all pairs: a mask chosen on one language, tested on every other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from headlab.options import OptionValue, optional_integer_in, text_in
from headlab.records import Bools
from headlab.studies.differences import (
    COLUMNS,
    FORMATS,
    NOTHING,
    Difference,
    Gain,
    adjusted,
    caution,
    chosen,
    difference,
    gain_of,
    minus,
    over_languages,
    removed,
)
from headlab.studies.table import Found, Say
from headlab.tables import Cell, Table

if TYPE_CHECKING:
    from headlab.studies.run import Ask, Pieces


class Transfer(NamedTuple):
    """Masks by the language they were chosen on, and their gains by (chosen on, tested on).

    untouched: accuracy of the untouched model by language.  accuracy: under a mask, by (chosen on, tested on).
    """

    masks: Mapping[str, Bools]
    gains: Mapping[tuple[str, str], Gain]
    untouched: Mapping[str, float]
    accuracy: Mapping[tuple[str, str], float]

    def heads(self, language: str) -> int:
        """Number of heads that a language's mask removes."""
        return removed(self.masks[language])

    def difference(self, row: str, column: str, seed: int) -> Difference:
        """What the mask chosen on `row` does to `column`."""
        return difference(self.gains[row, column], seed) if self.heads(row) else NOTHING


def run(pieces: Pieces, options: Mapping[str, OptionValue], report: Say) -> Found:
    """Every mask on every language: the matrix, its means, and the row of the source language."""
    found = measured(pieces, options, report)
    source = text_in(options, "source")
    tables = [matrix_table(found, pieces), long_table(found, pieces)]
    if source in found.masks:
        tables.append(source_table(found, source, pieces))
    return tuple(tables), notes(found, options)


def cost(pieces: Pieces, options: Mapping[str, OptionValue]) -> list[Ask]:
    """Scores of every language, then each language's answers under all masks."""
    scores = pieces.known(options).values()
    k = optional_integer_in(options, "k")
    masks = [None, *(chosen(s, k) for s in scores if s is not None)]
    unknown = sum(s is None for s in scores)
    answers = (
        pieces.ask_answers(language, masks, unknown=unknown) for language in pieces.languages
    )
    return [*pieces.ask_scored(options), *answers]


def measured(pieces: Pieces, options: Mapping[str, OptionValue], report: Say) -> Transfer:
    """All masks on all languages, one tested language at a time."""
    masks: dict[str, Bools] = {}
    k = optional_integer_in(options, "k")
    for language in pieces.languages:
        report(f"transfer, scores of {language}")
        masks[language] = chosen(pieces.scored(language, options), k)
    gains: dict[tuple[str, str], Gain] = {}
    untouched: dict[str, float] = {}
    accuracy: dict[tuple[str, str], float] = {}
    for number, column in enumerate(pieces.languages, 1):
        report(f"transfer, all masks on {column} ({number} of {len(pieces.languages)})")
        whole, *after = pieces.all_answers(column, [None, *masks.values()])
        untouched[column] = whole.accuracy
        for row, evaluation in zip(masks, after, strict=True):
            gains[row, column] = gain_of(whole, [evaluation])
            accuracy[row, column] = evaluation.accuracy
    return Transfer(masks, gains, untouched, accuracy)


def elsewhere(found: Transfer, row: str, pieces: Pieces) -> Difference:
    """Mean effect of a language's mask over all other languages."""
    if not found.heads(row):
        return NOTHING
    gains = {column: found.gains[row, column] for column in found.masks if column != row}
    return over_languages(gains, pieces.seed, aligned=pieces.task.aligned)


def matrix_table(found: Transfer, pieces: Pieces) -> Table:
    """One row per language that chose the mask, one column per language tested: difference in points."""
    names = list(found.masks)
    rows: list[tuple[Cell, ...]] = []
    for row in names:
        across = [100 * float(found.gains[row, column].values.mean()) for column in names]
        mean = elsewhere(found, row, pieces)
        rows.append((row, found.heads(row), *across, *mean.cells))
    return Table(
        "transfer-matrix",
        "Accuracy on test minus the untouched model's, in points: the language that chose the heads by the one tested",
        ("chosen on", "heads removed", *(f"{name}, points" for name in names), "mean of the others, points",
         "low, points", "high, points", "p"),
        ("", "d", *("+.2f" for _ in names), *FORMATS),
        tuple(rows),
        ("The diagonal is targeted pruning.  low, high and p are of the mean of the others.",),
    )  # fmt: skip


def long_table(found: Transfer, pieces: Pieces) -> Table:
    """One row per pair of languages, with intervals and tests."""
    rows: list[tuple[Cell, ...]] = []
    for row in found.masks:
        differences = {column: found.difference(row, column, pieces.seed) for column in found.masks}
        corrected = dict(zip(differences, adjusted(list(differences.values())), strict=True))
        for column, d in differences.items():
            rows.append(
                (row, column, found.heads(row), 100 * found.untouched[column], 100 * found.accuracy[row, column],
                 *d.cells, corrected[column], d.mark)
            )  # fmt: skip
    return Table(
        "transfer",
        "Accuracy on test without the heads chosen on one language",
        (
            "chosen on",
            "language",
            "heads removed",
            "untouched, %",
            "accuracy, %",
            *COLUMNS,
            "p (Holm)",
            "P < 0.05",
        ),
        ("", "", "d", ".1f", ".1f", *FORMATS, ".4f", ""),
        tuple(rows),
        ("p (Holm): adjusted over the languages tested, for each language that chose.",),
    )


def source_table(found: Transfer, source: str, pieces: Pieces) -> Table:
    """The source language's mask on every language, beside each language's own."""
    names, seed = list(found.masks), pieces.seed
    zero = [found.difference(source, name, seed) for name in names]
    own = [found.difference(name, name, seed) for name in names]
    rows: list[tuple[Cell, ...]] = []
    for name, there, here, corrected in zip(names, zero, own, adjusted(zero), strict=True):
        touched = name != source and found.heads(source) + found.heads(name) > 0
        against = (
            difference(minus(found.gains[source, name], found.gains[name, name]), seed)
            if touched
            else NOTHING
        )
        rows.append(
            (name, 100 * found.untouched[name], 100 * found.accuracy[source, name], *there.cells, corrected, there.mark,
             found.heads(name), 100 * here.mean, *against.cells)
        )  # fmt: skip
    return Table(
        "zero-shot",
        f"Accuracy on test without the {found.heads(source)} heads chosen on {source}, and without each language's own",
        ("language", "untouched, %", f"mask of {source}, %", *COLUMNS, "p (Holm)", "P < 0.05", "own heads removed",
         "own mask, points", "minus own, points", "minus own low, points", "minus own high, points", "minus own p"),
        ("", ".1f", ".1f", *FORMATS, ".4f", "", "d", "+.2f", *FORMATS),
        tuple(rows),
        (f"minus own: accuracy under the mask of {source} minus that under the language's own.",),
    )  # fmt: skip


def notes(found: Transfer, options: Mapping[str, OptionValue]) -> tuple[str, ...]:
    """Caveats about the tables."""
    bare = [name for name in found.masks if not found.heads(name)]
    which = (
        "those whose interval lies below 0"
        if options["k"] is None
        else f"the {options['k']} lowest"
    )
    out = [
        f"Heads removed: {which} by {options['method']} on dev. Intervals (95 %) and p are of the paired bootstrap "
        "with 10,000 resamples of groups of examples; means weigh languages alike."
    ]
    if bare:
        out.append(
            f"No head has an interval below 0 in {', '.join(bare)}: that row is 0 by definition."
        )
    if options["source"] not in found.masks:
        out.append(
            f"{options['source']} is not among the languages, so there is no zero-shot table."
        )
    cautions = {name: caution(mask) for name, mask in found.masks.items()}
    return (*out, *(f"{name}: {text}." for name, text in cautions.items() if text))
