"""Dev against test: what the same mask gains on either, and which heads stay harmful after correction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headlab.options import OptionValue, optional_integer_in, text_in
from headlab.records import Bools, Floats
from headlab.scores import HeadScores
from headlab.stats import benjamini_hochberg, holm
from headlab.studies.differences import (
    NOTHING,
    Difference,
    Gain,
    apart,
    caution,
    difference,
    gain_of,
    over_languages,
    removed,
    without_harmful,
    without_lowest,
)
from headlab.studies.table import METHOD, Found, Say
from headlab.tables import Cell, Table
from headlab.tasks.base import Split

if TYPE_CHECKING:
    from headlab.studies.run import Ask, Pieces

HARMFUL, LOWEST = "harmful", "K lowest"
SPLITS: tuple[Split, ...] = ("dev", "test")
MEAN, ALL = "mean", "all"


class Measured(NamedTuple):
    """One mask of a language, and what it gains on each answer of either split."""

    language: str
    rule: str
    kept: Bools
    gains: Mapping[Split, Gain]

    @property
    def heads(self) -> int:
        """Number of heads removed."""
        return removed(self.kept)


def run(pieces: Pieces, options: Mapping[str, OptionValue], report: Say) -> Found:
    """Gains on dev and on test, and the heads that stay harmful when all are tested together."""
    scores: dict[str, HeadScores] = {}
    found: list[Measured] = []
    for language in pieces.each("gap", report):
        scores[language] = pieces.scored(language, options)
        masks = masks_of(scores[language], optional_integer_in(options, "k"))
        gains: dict[str, dict[Split, Gain]] = {rule: {} for rule in masks}
        for split in SPLITS:
            whole, *after = pieces.all_answers(language, [None, *masks.values()], split)
            for rule, evaluation in zip(masks, after, strict=True):
                gains[rule][split] = gain_of(whole, [evaluation])
        found += [Measured(language, rule, kept, gains[rule]) for rule, kept in masks.items()]
    return (gap_table(found, pieces), heads_table(scores)), notes(found, scores, options)


def cost(pieces: Pieces, options: Mapping[str, OptionValue]) -> list[Ask]:
    """Scores, and the answers of both splits under two masks."""
    asks = pieces.ask_scored(options)
    for language, scores in pieces.known(options).items():
        known = (
            []
            if scores is None
            else list(masks_of(scores, optional_integer_in(options, "k")).values())
        )
        for split in SPLITS:
            asks.append(
                pieces.ask_answers(language, [None, *known], unknown=2 - len(known), split=split)
            )
    return asks


def masks_of(scores: HeadScores, k: int | None) -> dict[str, Bools]:
    """Kept heads by rule: without the harmful ones, and without as many (or k) of the lowest."""
    kept = without_harmful(scores)
    return {HARMFUL: kept, LOWEST: without_lowest(scores, removed(kept) if k is None else k)}


def gap_table(found: Sequence[Measured], pieces: Pieces) -> Table:
    """One row per language and rule: gain on dev, gain on test, and their difference."""
    rows: list[tuple[Cell, ...]] = []
    for rule in (HARMFUL, LOWEST):
        mine = [one for one in found if one.rule == rule]
        for one in mine:
            sides = [
                difference(one.gains[s], pieces.seed) if one.heads else NOTHING for s in SPLITS
            ]
            rows.append((one.language, rule, one.heads, *_cells(*sides)))
        if len(mine) > 1:
            rows.append(
                (MEAN, rule, None, *_cells(*(_mean(mine, split, pieces) for split in SPLITS)))
            )
    ends = ("low, points", "high, points")
    return Table(
        "gap",
        "What a mask chosen on dev gains there and on test",
        ("language", "rule", "heads removed", "dev, points", *(f"dev {e}" for e in ends), "test, points",
         *(f"test {e}" for e in ends), "dev minus test, points", *ends),
        ("", "", "d", *("+.2f" for _ in range(9))),
        tuple(rows),
        ("dev minus test: the winner's curse, since the examples that chose a mask give an optimistic estimate of its "
         "gain; its interval is made of those of the two gains, which share no example.",),
    )  # fmt: skip


def _cells(dev: Difference, test: Difference) -> tuple[float | None, ...]:
    return (*dev.cells[:3], *test.cells[:3], *apart(dev, test).cells[:3])


def _mean(mine: Sequence[Measured], split: Split, pieces: Pieces) -> Difference:
    if not any(one.heads for one in mine):
        return NOTHING
    return over_languages(
        {m.language: m.gains[split] for m in mine}, pieces.seed, aligned=pieces.task.aligned
    )


def heads_table(scores: Mapping[str, HeadScores]) -> Table:
    """One row per language: heads whose interval lies below 0, and those that stay harmful under each correction."""
    rows: list[tuple[Cell, ...]] = []
    for language, one in scores.items():
        rows.append((language, one.grid.size, removed(without_harmful(one)), *_stay([one])))
    if len(scores) > 1:
        every = list(scores.values())
        harmful = sum(removed(without_harmful(one)) for one in every)
        rows.append((ALL, sum(one.grid.size for one in every), harmful, *_stay(every)))
    return Table(
        "gap-heads",
        "Heads that harm on dev, each judged alone, and all together",
        ("language", "heads", "interval below 0", "Benjamini–Hochberg", "Holm"),
        ("", "d", "d", "d", "d"),
        tuple(rows),
        ("Adjusted over the heads of the language; in the last row over those of all languages. Holm bounds the chance "
         "of any false claim, Benjamini–Hochberg the share of false ones, at 1 minus the intervals' level.",),
    )  # fmt: skip


def _stay(scores: Sequence[HeadScores]) -> tuple[int | None, int | None]:
    """Number of significantly negative heads by Benjamini–Hochberg and by Holm; None without p-values."""
    given = [one.p_values for one in scores if one.p_values is not None]
    if len(given) < len(scores):
        return None, None
    p: Floats = np.concatenate(given)
    below, alpha = np.concatenate([one.values for one in scores]) < 0, 1 - scores[0].level
    # Heads that help would loosen the threshold for claims of harm.
    every = (benjamini_hochberg(np.where(below, p, 1.0)), holm(p))
    bh, family = (int((below & (corrected <= alpha)).sum()) for corrected in every)
    return bh, family


def notes(
    found: Sequence[Measured], scores: Mapping[str, HeadScores], options: Mapping[str, OptionValue]
) -> tuple[str, ...]:
    """Caveats about the tables."""
    method = text_in(options, METHOD)
    bare = [m.language for m in found if m.rule == HARMFUL and not m.heads]
    out = [
        f"Heads are chosen on dev by {method}. Gains are differences to the untouched model, with 95 % intervals of "
        "the paired bootstrap (10,000 resamples of groups of examples); mean rows weigh languages alike."
    ]
    if bare:
        out.append(
            f"No head has an interval below 0 in {', '.join(bare)}: nothing to remove, gains there are 0."
        )
    if any(one.p_values is None for one in scores.values()):
        out.append(f"{method} gives no p-values, so nothing can be said about all heads together.")
    risky = {(m.language, m.rule): caution(m.kept) for m in found}
    return (*out, *(f"{name}, {rule}: {text}." for (name, rule), text in risky.items() if text))
