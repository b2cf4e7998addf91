"""Section 5 of Held & Yang (EACL 2023): heads that matter in every language, and heads whose sign varies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headlab.methods.costs import remarks
from headlab.options import OptionValue, integer_in
from headlab.records import HEAD, HEAD_FORMATS, Bools, Floats, Head, Ints
from headlab.scores import HeadScores, coarse
from headlab.stats import benjamini_hochberg, holm
from headlab.studies.table import Found, Say
from headlab.tables import Cell, Table
from headlab.value_functions import shown_unit

if TYPE_CHECKING:
    from headlab.studies.run import Ask, Pieces


# Tables of language-agnostic and language-specific heads: pure functions of head scores, without a model.

Scores = Mapping[str, HeadScores]
RAW, BH, HOLM = "raw", "Benjamini–Hochberg", "Holm"
SIGN_FORMATS = ("d", "d", "+.3f", "+.3f", "", "")
ADJUSTED = {BH: benjamini_hochberg, HOLM: holm}


class Signs(NamedTuple):
    """Where a head is claimed to help or to harm, bool [language, head] each."""

    helps: Bools
    harms: Bools

    @property
    def both(self) -> Bools:
        """Heads that help in some language and harm in another, bool [head]."""
        return np.asarray(self.helps.any(axis=0) & self.harms.any(axis=0))


def has_intervals(scores: Scores) -> bool:
    """Whether every language's scores come with signs and intervals."""
    return all(s.signed and s.low is not None and s.high is not None for s in scores.values())


def estimated(scores: Scores) -> Signs:
    """Signs of the values themselves, noise included."""
    values = np.stack([s.values for s in scores.values()])
    return Signs(values > 0, values < 0)


def claimed(scores: Scores) -> dict[str, Signs]:
    """Signs that may be claimed, by correction: raw intervals, and p-values adjusted over all heads and languages.

    Without intervals the result is empty; without p-values it holds only the raw signs.
    """
    every = list(scores.values())
    if not has_intervals(scores):
        return {}
    found = {RAW: Signs(np.stack([s.helpful for s in every]), np.stack([s.harmful for s in every]))}
    p = [s.p_values for s in every if s.p_values is not None]
    if len(p) < len(every):
        return found
    alpha = 1 - np.array([[s.level] for s in every])
    for name, adjust in ADJUSTED.items():
        sure = adjust(np.concatenate(p)).reshape(len(every), -1) <= alpha
        found[name] = Signs(*(sure & sign for sign in estimated(scores)))
    return found


def expected_shared(heads: int, languages: int, k: int) -> float:
    """Expected number of heads in every language's top k if the rankings were unrelated."""
    return float(heads * (k / heads) ** languages)


def heads_tables(scores: Scores, top: int, few: int) -> tuple[Table, ...]:
    """The table of counts of every kind of head, then tables of the heads themselves."""
    tables = (count_table(scores, top, few), shared_table(scores, top), specific_table(scores))
    return (*tables, few_table(scores, few))


def count_table(scores: Scores, top: int, few: int) -> Table:
    """Number of heads of each kind: by the values, and as may be claimed with and without correction."""
    signs = {"values": estimated(scores)} | claimed(scores)
    size = next(iter(scores.values())).grid.size
    shared, chance = int(in_every_top(scores, top).sum()), expected_shared(size, len(scores), top)
    kinds: dict[str, list[Bools]] = {
        "help in every language": [np.asarray(s.helps.all(axis=0)) for s in signs.values()],
        "harm in every language": [np.asarray(s.harms.all(axis=0)) for s in signs.values()],
        "help in one language and harm in another": [s.both for s in signs.values()],
        f"positive in at most {few} languages, negative in the others": [
            _few(s, few) for s in signs.values()
        ],
    }
    rows = [(name, *(int(heads.sum()) for heads in found), None) for name, found in kinds.items()]
    first = (f"among the top {top} of every language", shared, *[None] * (len(signs) - 1), chance)
    return Table(
        "heads-counts", f"How many of {size} heads matter in all of {len(scores)} languages, or in a few",
        ("heads that", *signs, "by chance"), ("", *["d"] * len(signs), ".2g"), (first, *rows), count_notes(scores),
    )  # fmt: skip


def count_notes(scores: Scores) -> tuple[str, ...]:
    """Notes on the corrections, and on whether the p-values are fine enough for them."""
    level = 100 * next(iter(scores.values())).level
    out = [
        "values: by the sign of the value, noise included. by chance: what unrelated rankings would give."
    ]
    if not has_intervals(scores):
        return (*out, "These scores have no signs with intervals, so no sign can be claimed.")
    out.append(
        f"{RAW}: by {level:g} % intervals of each head and language alone. {BH}, {HOLM}: by p-values adjusted "
        "over all heads and languages at once, which bounds the share of false claims, or the chance of any."
    )
    if all(s.p_values is not None for s in scores.values()) and (words := coarse(scores.values())):
        out.append(words)
    return tuple(out)


def _ranks(scores: Scores) -> Ints:
    return np.stack([s.ranks for s in scores.values()])


def in_every_top(scores: Scores, top: int) -> Bools:
    """Heads among the `top` highest of every language, bool [head]."""
    return np.asarray((_ranks(scores) <= top).all(axis=0))


def _few(signs: Signs, few: int) -> Bools:
    """Heads that help in 1 to `few` languages and harm in all others, bool [head]."""
    often = signs.helps.sum(axis=0)
    others = (signs.helps | signs.harms).all(axis=0) & signs.harms.any(axis=0)
    return np.asarray((often >= 1) & (often <= few) & others)


def _values(scores: Scores) -> tuple[Floats, str]:
    """Values of all languages, float [language, head], in the unit shown, and that unit."""
    (factor, unit), *_ = (shown_unit(s.unit) for s in scores.values())
    return factor * np.stack([s.values for s in scores.values()]), unit


def _heads(scores: Scores) -> tuple[Head, ...]:
    return next(iter(scores.values())).grid.heads


def shared_table(scores: Scores, top: int) -> Table:
    """Heads among the `top` highest of every language, sorted by their worst rank."""
    ranks, (values, unit), heads = _ranks(scores), _values(scores), _heads(scores)
    signs = claimed(scores)
    chosen = np.flatnonzero(in_every_top(scores, top))
    rows: list[tuple[Cell, ...]] = [
        (*heads[i], int(ranks[:, i].max()), int(ranks[:, i].min()), float(values[:, i].mean()),
         *(int(s.helps[:, i].sum()) for s in signs.values()))
        for i in chosen[np.argsort(ranks.max(axis=0)[chosen], kind="stable")]
    ]  # fmt: skip
    return Table(
        "heads-agnostic", f"Heads among the {top} highest of every language",
        (*HEAD, "worst rank", "best rank", f"mean value, {unit}", *(f"helps in ({name})" for name in signs)),
        (*HEAD_FORMATS, "d", "d", "+.3f", *["d"] * len(signs)), tuple(rows),
        (f"Unrelated rankings would share {expected_shared(len(heads), len(scores), top):.2g}."
         + (" helps in: languages where that may be claimed." if signs else ""),),
    )  # fmt: skip


def few_table(scores: Scores, few: int) -> Table:
    """Heads with a positive value in 1 to `few` languages and a negative one in all others, most certain first."""
    signs, sure = estimated(scores), claimed(scores).get(RAW)
    added = () if sure is None else ("surely positive in", "surely negative in")
    rows = []
    for i in np.flatnonzero(_few(signs, few)).tolist():
        cells = _sign_cells(scores, i, signs)
        often = () if sure is None else tuple(int(side[:, i].sum()) for side in sure)
        rows.append((*_head_cells(scores, i), *cells[:2], *often, *cells[2:]))
    rows.sort(key=lambda row: row[5:7] if added else row[6:7], reverse=True)
    columns, wide = _sign_columns(scores), len(added)
    return Table(
        "heads-few", f"Heads with a positive value in at most {few} languages and a negative one in all others",
        (*HEAD, *columns[:2], *added, *columns[2:]),
        (*HEAD_FORMATS, *SIGN_FORMATS[:2], *["d"] * wide, *SIGN_FORMATS[2:]), tuple(rows),
        ("A sign may be noise" + ("." if sure is None else "; surely: in languages whose interval excludes 0."),),
    )  # fmt: skip


def _sign_columns(scores: Scores) -> tuple[str, ...]:
    unit = _values(scores)[1]
    return ("positive in", "negative in", f"lowest, {unit}", f"highest, {unit}", "positive languages",
            "negative languages")  # fmt: skip


def _head_cells(scores: Scores, i: int) -> tuple[Cell, ...]:
    return tuple(_heads(scores)[i])


# What `_sign_columns` are of.
SignCells = tuple[int, int, float, float, str, str]


def _sign_cells(scores: Scores, i: int, signs: Signs) -> SignCells:
    """In how many languages a head has each sign, its extreme values, and the languages."""
    values, languages = _values(scores)[0][:, i], np.array(list(scores))
    positive, negative = (languages[side[:, i]] for side in signs)
    return (
        len(positive),
        len(negative),
        float(values.min()),
        float(values.max()),
        ", ".join(positive),
        ", ".join(negative),
    )


def specific_table(scores: Scores) -> Table:
    """Heads that help in one language and harm in another, by the strictest correction that supports the claim."""
    rows, seen = [], np.zeros(len(_heads(scores)), dtype=bool)
    for name, signs in reversed(claimed(scores).items()):  # strictest first; a head is listed once
        found = [
            (i, _sign_cells(scores, i, signs)) for i in np.flatnonzero(signs.both & ~seen).tolist()
        ]
        found.sort(key=lambda pair: pair[1][:2], reverse=True)
        rows += [(*_head_cells(scores, i), name, *cells) for i, cells in found]
        seen |= signs.both
    return Table(
        "heads-specific", "Heads that help in one language and harm in another, with significance",
        (*HEAD, "claimed by", *_sign_columns(scores)), (*HEAD_FORMATS, "", *SIGN_FORMATS), tuple(rows),
        ("claimed by: the strictest of the corrections under which both signs stand; the languages are those it "
         "leaves.",),
    )  # fmt: skip


def run(pieces: Pieces, options: Mapping[str, OptionValue], report: Say) -> Found:
    """Counts and lists of language-agnostic and language-specific heads.

    options: method, method_options, top (20 in the paper), few (languages that a head may be positive in).
    """
    scores = {
        language: pieces.scored(language, options) for language in pieces.each("heads", report)
    }
    most = max(1, len(scores) - 1)
    top = min(integer_in(options, "top"), next(iter(scores.values())).grid.size)
    tables = heads_tables(scores, top, min(integer_in(options, "few"), most))
    caveats = [f"{remark[:1].upper()}{remark[1:]}." for remark in remarks(scores.values())]
    return tables, (*tables[0].notes, *caveats)


def cost(pieces: Pieces, options: Mapping[str, OptionValue]) -> list[Ask]:
    """The scores of every language."""
    return pieces.ask_scored(options)
