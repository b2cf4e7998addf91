"""Whether methods agree, as tables: rank correlations and shared heads. Pure functions of scores, without a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from headlab.experiments.agreement_tables import PAIR_COLUMNS, PAIR_FORMATS, Compared, compare_languages, pair_rows
from headlab.experiments.overlap import by_chance, chance_of_more
from headlab.methods.table import METHODS
from headlab.records import Bools
from headlab.scores import HeadScores
from headlab.stats import Estimate, holm, spearman, spearman_of_counts
from headlab.stats.ranks import DRAWS, bca, left_out, resamples
from headlab.tables import Cell, Table

MEAN = "mean"
HIGHEST, LOWEST = "highest", "lowest"
Scores = Mapping[str, Mapping[str, HeadScores]]  # language, method


def agreement_table(scores: Scores, seed: int) -> Table:
    """A row per language (and their mean) and pair of methods: Spearman's rho, and what noise lets it be."""
    compared = {language: compare_languages(of, seed) for language, of in scores.items()}
    rows: list[tuple[Cell, ...]] = [(name, *row) for name, one in compared.items() for row in pair_rows(one)]
    first = next(iter(compared.values()))
    if len(scores) > 1:
        rho = mean_rho(scores, seed)
        for a, b in combinations(range(len(first.names)), 2):
            cells = (None if np.isnan(part[a, b]) else float(part[a, b]) for part in rho)
            rows.append((MEAN, first.names[a], first.names[b], *cells, *[None] * 8))
    return Table(
        "methods-agreement", f"Spearman correlation of the scores of {first.heads} heads, every pair of methods",
        ("language", "method", *PAIR_COLUMNS[1:]), ("", *PAIR_FORMATS), tuple(rows), agreement_notes(scores, first),
    )  # fmt: skip


def agreement_notes(scores: Scores, first: Compared) -> tuple[str, ...]:
    """What the columns are, and of which methods there are no halves."""
    halved = {name for of in scores.values() for name, one in of.items() if one.halves is not None}
    bare = [name for name in first.names if name not in halved]
    out = [f"low, high: 95 % interval by resampling heads ({DRAWS:,} times), the same heads for every language."]
    if len(scores) > 1:
        out[0] += f" {MEAN}: of the languages' correlations."
    if halved:
        out.append(
            "ceiling: the correlation that two methods of the same true ranking would show, given how well the two "
            "halves of the dev examples agree by each. corrected: rho over ceiling; across halves: the same from "
            "halves of other examples, since the methods share examples and their luck. Left out where the ceiling "
            "is too low to say."
        )
    if bare:
        out.append(f"No ceiling where one is {' or '.join(bare)}: these scores say nothing of halves of the examples.")
    unsigned = [name for name in first.names if not _signed(scores, name)]
    if unsigned:
        out.append(f"{', '.join(unsigned)}: without a sign, so these rank how much a head does, not whether it helps.")
    return tuple(out)


def _signed(scores: Scores, name: str) -> bool:
    """Whether a method tells heads that help from heads that harm."""
    return METHODS[next(iter(scores.values()))[name].method].signed


def mean_rho(scores: Scores, seed: int, draws: int = DRAWS) -> Estimate:
    """Mean over languages of the methods' rank correlations, [method, method], heads resampled for all at once."""
    values = [np.stack([one.values for one in of.values()]) for of in scores.values()]
    items, rng = values[0].shape[1], np.random.default_rng([seed, 5])
    point = np.mean([spearman(value) for value in values], axis=0)
    drawn, without = (
        np.mean([spearman_of_counts(value, counts) for value in values], axis=0)
        for counts in (resamples(items, rng, draws), left_out(items))
    )
    return Estimate(point, *bca(point, drawn, without))


def overlap_table(scores: Scores, k: int) -> Table:
    """A row per language, pair of methods and end of the ranking: how many of the k heads both choose."""
    rows: list[tuple[Cell, ...]] = []
    for language, of in scores.items():
        size = next(iter(of.values())).grid.size
        chance = by_chance(size, min(k, size), min(k, size))
        for (one, first), (other, second) in combinations(of.items(), 2):
            for end in (HIGHEST, LOWEST):
                shared = int((_chosen(first, k, end) & _chosen(second, k, end)).sum())
                p = chance_of_more(size, min(k, size), min(k, size), shared)
                rows.append((language, one, other, end, shared, *chance, p))
    adjusted = holm(np.array([row[-1] for row in rows], float))
    return Table(
        "methods-overlap", f"How many of the {k} highest and of the {k} lowest heads two methods share",
        ("language", "method", "other", "heads", "shared", "by chance", "chance, low", "chance, high", "p", "p (Holm)"),
        ("", "", "", "", "d", ".1f", "d", "d", ".2g", ".2g"),
        tuple((*row, float(p)) for row, p in zip(rows, adjusted, strict=True)),
        ("by chance: what unrelated rankings share, with the range that holds at least 95 % of them; p: their chance "
         "to share so many or more, p (Holm) adjusted for all rows. The lowest heads are those that leave first.",),
    )  # fmt: skip


def _chosen(scores: HeadScores, k: int, end: str) -> Bools:
    """The k heads at an end of the ranking, bool [head]."""
    ranks = scores.ranks
    return np.asarray(ranks <= k if end == HIGHEST else ranks > len(ranks) - k)


def listed(names: Sequence[str]) -> str:
    """Names as a sentence has them: a, b and c."""
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
