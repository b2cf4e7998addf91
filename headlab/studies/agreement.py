"""Figures 1 and 2 of Held & Yang (EACL 2023): do two languages agree on which heads help?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from headlab.options import OptionValue
from headlab.records import Floats
from headlab.scores import HeadScores
from headlab.stats import Agreement, Estimate, Outlier, agreement, clusters
from headlab.stats.agreement import LOWEST_CEILING
from headlab.studies.table import Found, Say
from headlab.tables import Cell, Table

if TYPE_CHECKING:
    from headlab.studies.run import Ask, Pieces


# Agreement between languages as tables: pure functions of head scores, without a model.

PAIR_COLUMNS = (
    "language", "other", "rho", "low", "high", "ceiling", "ceiling, low", "ceiling, high",
    "corrected", "corrected, low", "corrected, high", "across halves", "noise",
)  # fmt: skip
CLEAR, UNCLEAR, UNKNOWN = "", "too noisy", "unknown"
RHO = ".2f"
PAIR_FORMATS = ("", "", *[RHO] * 10, "")


@dataclass(frozen=True)
class Compared:
    """The rank agreement of several languages' scores.

    names: languages, in the order of `found`'s rows.  heads: number of heads.  sizes: number of dev examples per
    language, None where unknown.
    """

    names: tuple[str, ...]
    heads: int
    found: Agreement
    sizes: tuple[int | None, ...]

    @property
    def unmatched(self) -> bool:
        """Whether the languages differ in their number of examples, so that their halves hold different draws."""
        return len(set(self.sizes)) > 1


def compare_languages(scores: Mapping[str, HeadScores], seed: int = 0) -> Compared:
    """Rank agreement of every pair of languages, with intervals by resampling heads."""
    every = list(scores.values())
    values = np.stack([s.values for s in every])
    blank = np.full((2, values.shape[1]), np.nan)
    known = any(s.halves is not None for s in every)
    halves = np.stack([blank if s.halves is None else s.halves for s in every]) if known else None
    sizes = tuple(s.spec.get("task", {}).get("size") for s in every)
    # Which half a draw falls into depends on the number of examples.
    matched = np.array([[one == other for other in sizes] for one in sizes])
    found = agreement(values, halves, np.random.default_rng([seed, 5]), matched=matched)
    return Compared(tuple(scores), values.shape[1], found, sizes)


def agreement_tables(compared: Compared) -> tuple[Table, ...]:
    """Tables of pairs, languages, clusters and, for three languages or more, the outlier."""
    tables = (pair_table(compared), language_table(compared), cluster_table(compared))
    return (*tables, outlier_table(compared)) if compared.found.outlier else tables


def _cells(estimate: Estimate, *at: int) -> tuple[float | None, ...]:
    """Value, low and high at an index; None for NaN."""
    return tuple(None if np.isnan(part[at]) else float(part[at]) for part in estimate)


def pair_rows(compared: Compared) -> list[tuple[Cell, ...]]:
    """Cells of `PAIR_COLUMNS` for every pair of names, each pair once."""
    found, noise, rows = compared.found, compared.found.noise, []
    for a, b in combinations(range(len(compared.names)), 2):
        pair = (compared.names[a], compared.names[b], *_cells(found.rho, a, b))
        if noise is None or np.isnan(noise.ceiling.value[a, b]):
            rows.append((*pair, *[None] * 7, UNKNOWN))
            continue
        clear = bool(noise.clear[a, b])
        corrected = (
            (*_cells(noise.corrected, a, b), *_cells(noise.across, a, b)[:1])
            if clear
            else [None] * 4
        )
        rows.append((*pair, *_cells(noise.ceiling, a, b), *corrected, CLEAR if clear else UNCLEAR))
    return rows


def pair_table(compared: Compared) -> Table:
    """One row per pair of languages, each pair once."""
    return Table(
        "agreement", f"Spearman correlation of the scores of {compared.heads} heads, every pair of languages",
        PAIR_COLUMNS, PAIR_FORMATS, tuple(pair_rows(compared)), pair_notes(compared),
    )  # fmt: skip


def pair_notes(compared: Compared) -> tuple[str, ...]:
    """Notes that explain the columns of `pair_table`."""
    resampled = "low, high: 95 % interval by resampling heads (2,000 times)."
    if compared.found.noise is None:
        return (resampled, no_halves())
    lacking = [name for name, r in zip(compared.names, compared.found.noise.reliability.value, strict=True)
               if np.isnan(r)]  # fmt: skip
    return (
        resampled,
        "ceiling: the correlation that two languages of the same true ranking would show, given how well each one's "
        "halves of the examples agree. corrected: rho over ceiling, at most 1; across halves: the same from halves of "
        "other examples only, so that noise which two languages share does not count as agreement. Both are left out "
        f"where the ceiling's interval reaches below {LOWEST_CEILING}: {UNCLEAR} to say.",
        *([unmatched_halves(compared)] if compared.unmatched else ()),
        *([no_halves(lacking)] if lacking else ()),
    )  # fmt: skip


def unmatched_halves(compared: Compared) -> str:
    """How many examples each language has, and why some pairs have no value across halves."""
    counts = ", ".join(
        f"{name} {size or 'unknown'}"
        for name, size in zip(compared.names, compared.sizes, strict=True)
    )
    return (
        "across halves: no value for two languages with unequally many examples, as a draw may then be in the first "
        f"half of one and in the second of the other, with its noise. Dev examples: {counts}. Score all with a --size "
        "that each of them has."
    )


def no_halves(names: Sequence[str] = ()) -> str:
    """Why there is no noise ceiling and how to get one. names: the languages without one; empty means all."""
    whose = f"the scores of {', '.join(names)}" if names else "these scores"
    return (
        f"The noise ceiling is not known: {whose} do not store the values from each half of the examples. Newer scores "
        "by shapley, monte-carlo and leave-one-out do: delete old results and compute them again."
    )


def language_table(compared: Compared) -> Table:
    """One row per language, similar ones side by side."""
    found, noise, rows = compared.found, compared.found.noise, []
    for place, i in enumerate(order(compared), 1):
        reliability = _cells(noise.reliability, i) if noise else (None,) * 3
        row: list[Cell] = [compared.names[i], place, i, *_cells(found.mean, i), *reliability]
        row += [_share(found.outlier, i), _share(noise.outlier if noise else None, i)]
        rows.append(tuple(row))
    columns = (
        "language", "place", "number", "mean rho", "low", "high", "reliability", "reliability, low",
        "reliability, high", "outlier, %", "outlier across halves, %",
    )  # fmt: skip
    return Table(
        "agreement-languages", "Each language: how it agrees with the others, and how much of its own ranking is noise",
        columns, ("", "d", "d", *[RHO] * 6, ".0f", ".0f"), tuple(rows),
        ("place: in the order that puts similar languages side by side; number: in the table of clusters. reliability: "
         "what a second measurement of the same size would correlate with this one (Spearman of the two halves, "
         "stepped up by Spearman–Brown). outlier: share of resamples of heads in which the language agrees least with "
         "the others; across halves: the same for correlations corrected for noise, where no ceiling is too low.",),
    )  # fmt: skip


def order(compared: Compared) -> list[int]:
    """Row indices in the order of the tree's leaves."""
    tree = compared.found.tree
    placed: list[list[int]] = [[i] for i in range(len(compared.names))]
    for left, right, *_ in tree:
        placed.append(placed[int(left)] + placed[int(right)])
    return placed[-1]


def _share(outlier: Outlier | None, row: int) -> float | None:
    return None if outlier is None else 100 * float(outlier.share[row])


def cluster_table(compared: Compared) -> Table:
    """One row per merge of the tree, nearest first, numbered as in `scipy.cluster.hierarchy.linkage`."""
    tree, names = compared.found.tree, compared.names
    rows = [
        (merge, int(left), int(right), ", ".join(names[i] for i in order(compared) if i in members), len(members),
         float(height), 100 * float(share))
        for merge, ((left, right, height, _), members, share) in enumerate(
            zip(tree, clusters(tree), compared.found.support, strict=True), len(names)
        )
    ]  # fmt: skip
    return Table(
        "agreement-clusters", "Clusters of languages: average linkage on 1 − rho",
        ("merge", "left", "right", "languages", "size", "1 − rho", "support, %"),
        ("d", "d", "d", "", "d", RHO, ".0f"), tuple(rows),
        ("left, right: what is merged, languages by their number or earlier merges. support: share of resamples of "
         "heads whose own tree has the same cluster.",),
    )  # fmt: skip


def outlier_table(compared: Compared) -> Table:
    """The language that agrees least with the others, by rho and by rho corrected for noise."""
    noise = compared.found.noise
    kinds = {"rho": compared.found.outlier, "across halves": noise.outlier if noise else None}
    rows = [
        (
            compared.names[o.row],
            by,
            100 * float(o.share[o.row]),
            compared.names[o.next],
            *_cells(o.gap),
        )
        for by, o in kinds.items()
        if o is not None
    ]
    return Table(
        "agreement-outlier", "The language that agrees least with the others",
        ("language", "by", "share of resamples, %", "next", "gap", "low", "high"),
        ("", "", ".0f", "", RHO, RHO, RHO), tuple(rows),
        ("gap: mean correlation with the others of the next language, minus that of this one, 95 % interval.",),
    )  # fmt: skip


def outlier_words(compared: Compared) -> str:
    """One or two sentences on which language stands apart and how sure that is; empty for fewer than three."""
    table = outlier_table(compared) if compared.found.outlier else None
    if table is None:
        return ""
    words = []
    for name, by, share, following, gap, low, high in table.rows:
        sure = low is not None and float(low) > 0
        kind = "mean ρ" if by == "rho" else "mean ρ corrected for noise (across halves)"
        words.append(
            f"By {kind}, {name} agrees least with the others: it is the lowest in {share:.0f} % of resamples of heads, "
            f"{gap:.2f} [{low:.2f}, {high:.2f}] below {following}"
            + ("." if sure else ", so which language is the outlier is not settled.")
        )
    if compared.found.noise and not compared.found.noise.outlier:
        why = "the noise ceiling is too low, or unknown"
        why += ", or the languages have unequally many examples" if compared.unmatched else ""
        words.append(f"Whether that is noise cannot be said: for some pairs {why}.")
    return " ".join(words)


def square(compared: Compared, estimate: Estimate) -> Floats:
    """An estimate's values, float [language, language], ordered so that similar languages are adjacent."""
    at = order(compared)
    return np.asarray(estimate.value[np.ix_(at, at)])


def run(pieces: Pieces, options: Mapping[str, OptionValue], report: Say) -> Found:
    """Rank correlations of every pair of languages with their noise ceilings, the clusters and the outlier.

    options: method, method_options.
    """
    scores = {
        language: pieces.scored(language, options) for language in pieces.each("agreement", report)
    }
    report("agreement: resampling heads")
    compared = compare_languages(scores, pieces.seed)
    sentence = outlier_words(compared)
    return agreement_tables(compared), (sentence,) if sentence else ()


def cost(pieces: Pieces, options: Mapping[str, OptionValue]) -> list[Ask]:
    """The scores of every language."""
    return pieces.ask_scored(options)
