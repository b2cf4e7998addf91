"""Section 5 of Held & Yang (EACL 2023): heads that matter in every language, and heads whose sign varies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, NamedTuple, Self

import numpy as np

from headlab.core import (
    Bools,
    Floats,
    Head,
    Ints,
    OptionValue,
    Report,
    Table,
    integer_in,
    part,
    shown_unit,
)
from headlab.methods import remarks
from headlab.results import HeadScores, coarse
from headlab.stats import benjamini_hochberg, holm
from headlab.studies.head_kinds import HeadKind
from headlab.studies.result import (
    Column,
    HeadCells,
    Records,
    StudyResult,
    TableName,
    table_of,
)
from headlab.studies.table import Say

if TYPE_CHECKING:
    from headlab.studies.run import Ask, Pieces


@dataclass(frozen=True)
class HeadCount:
    """How many heads there are of a kind.

    Attributes:
        kind: What the heads do.
        counts: Their number by the values, and as may be claimed, by correction; None where it has no meaning.
        by_chance: What unrelated rankings would give; None where that is not known.
    """

    kind: Annotated[str, Column("heads that")]
    counts: Annotated[Mapping[str, int | None], Column("{claim}", "d")]
    by_chance: Annotated[float | None, Column("by chance", ".2g")]


@dataclass(frozen=True)
class SharedHead:
    """A head among the highest of every language.

    Attributes:
        head: The head.
        worst_rank: In any language.
        best_rank: In any language.
        mean_value: Over the languages.
        helps_in: Number of languages where it may be claimed to help, by correction.
    """

    head: HeadCells
    worst_rank: Annotated[int, Column("worst rank", "d")]
    best_rank: Annotated[int, Column("best rank", "d")]
    mean_value: Annotated[float, Column("mean value, {unit}", "+.3f")]
    helps_in: Annotated[Mapping[str, int], Column("helps in ({claim})", "d")]


@dataclass(frozen=True)
class SpecificHead:
    """A head that helps in one language and harms in another.

    Attributes:
        head: The head.
        claimed_by: The strictest correction under which both signs stand.
        positive_in: Number of languages where it helps.
        negative_in: Number of languages where it harms.
        lowest: Value in any language.
        highest: Value in any language.
        positive_languages: Those where it helps, comma-separated.
        negative_languages: Those where it harms, comma-separated.
    """

    head: HeadCells
    claimed_by: Annotated[str, Column("claimed by")]
    positive_in: Annotated[int, Column("positive in", "d")]
    negative_in: Annotated[int, Column("negative in", "d")]
    lowest: Annotated[float, Column("lowest, {unit}", "+.3f")]
    highest: Annotated[float, Column("highest, {unit}", "+.3f")]
    positive_languages: Annotated[str, Column("positive languages")]
    negative_languages: Annotated[str, Column("negative languages")]


@dataclass(frozen=True)
class FewHead:
    """A head with a positive value in a few languages and a negative one in all others.

    Attributes:
        head: The head.
        positive_in: Number of languages with a positive value.
        negative_in: Number of languages with a negative value.
        surely: The same by intervals that exclude 0, by sign: "positive" and "negative"; empty without intervals.
        lowest: Value in any language.
        highest: Value in any language.
        positive_languages: Those with a positive value, comma-separated.
        negative_languages: Those with a negative value, comma-separated.
    """

    head: HeadCells
    positive_in: Annotated[int, Column("positive in", "d")]
    negative_in: Annotated[int, Column("negative in", "d")]
    surely: Annotated[Mapping[str, int], Column("surely {sign} in", "d")]
    lowest: Annotated[float, Column("lowest, {unit}", "+.3f")]
    highest: Annotated[float, Column("highest, {unit}", "+.3f")]
    positive_languages: Annotated[str, Column("positive languages")]
    negative_languages: Annotated[str, Column("negative languages")]


@dataclass(frozen=True, kw_only=True)
class HeadsResult(StudyResult):
    """Heads that matter in every language, and heads whose sign varies.

    Attributes:
        languages: Those compared.
        counts: How many heads there are of each kind.
        shared: Among the highest of every language.
        specific: Helpful in one language and harmful in another.
        few: Positive in a few languages only.
    """

    languages: tuple[str, ...]
    counts: Annotated[Records[HeadCount], TableName("heads-counts")]
    shared: Annotated[Records[SharedHead], TableName("heads-agnostic"), HeadKind.AGNOSTIC]
    specific: Annotated[Records[SpecificHead], TableName("heads-specific"), HeadKind.SPECIFIC]
    few: Annotated[Records[FewHead], TableName("heads-few"), HeadKind.SPECIFIC]

    @classmethod
    def from_report(cls, report: Report) -> Self:
        """As of any study; the languages are those of the report's spec."""
        languages = str(part(report.spec, "task", "language") or "").split(",")
        records = cls.records_in(report)
        return cls(notes=report.notes, languages=tuple(filter(None, languages)), **records)


# Language-agnostic and language-specific heads: pure functions of head scores, without a model.

Scores = Mapping[str, HeadScores]
RAW, BH, HOLM = "raw", "Benjamini–Hochberg", "Holm"
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


def heads_result(scores: Scores, top: int, few: int) -> HeadsResult:
    """Counts of every kind of head, and the heads themselves."""
    counts = head_counts(scores, top, few)
    return HeadsResult(
        languages=tuple(scores),
        counts=counts,
        shared=shared_heads(scores, top),
        specific=specific_heads(scores),
        few=few_heads(scores, few),
        notes=counts.notes,
    )


def head_counts(scores: Scores, top: int, few: int) -> Records[HeadCount]:
    """Number of heads of each kind: by the values, and as may be claimed with and without correction."""
    signs = {"values": estimated(scores)} | claimed(scores)
    size = next(iter(scores.values())).grid.size
    in_every_top_count = int(in_every_top(scores, top).sum())
    kinds: dict[str, list[Bools]] = {
        "help in every language": [np.asarray(s.helps.all(axis=0)) for s in signs.values()],
        "harm in every language": [np.asarray(s.harms.all(axis=0)) for s in signs.values()],
        "help in one language and harm in another": [s.both for s in signs.values()],
        f"positive in at most {few} languages, negative in the others": [
            _few(s, few) for s in signs.values()
        ],
    }
    first = HeadCount(
        f"among the top {top} of every language",
        {**dict.fromkeys(signs), "values": in_every_top_count},
        expected_shared(size, len(scores), top),
    )
    rows = [first]
    for kind, heads_by_claim in kinds.items():
        numbers = [int(heads.sum()) for heads in heads_by_claim]
        rows.append(HeadCount(kind, dict(zip(signs, numbers, strict=True)), None))
    return Records(
        f"How many of {size} heads matter in all of {len(scores)} languages, or in a few",
        tuple(rows),
        count_notes(scores),
        {"claim": tuple(signs)},
    )


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


def shared_heads(scores: Scores, top: int) -> Records[SharedHead]:
    """Heads among the `top` highest of every language, sorted by their worst rank."""
    ranks, (values, unit), heads = _ranks(scores), _values(scores), _heads(scores)
    signs = claimed(scores)
    in_top = np.flatnonzero(in_every_top(scores, top))
    rows = []
    for index in in_top[np.argsort(ranks.max(axis=0)[in_top], kind="stable")]:
        row = SharedHead(
            head=heads[index],
            worst_rank=int(ranks[:, index].max()),
            best_rank=int(ranks[:, index].min()),
            mean_value=float(values[:, index].mean()),
            helps_in={name: int(claim.helps[:, index].sum()) for name, claim in signs.items()},
        )
        rows.append(row)
    note = f"Unrelated rankings would share {expected_shared(len(heads), len(scores), top):.2g}."
    if signs:
        note += " helps in: languages where that may be claimed."
    return Records(
        f"Heads among the {top} highest of every language",
        tuple(rows),
        (note,),
        {"unit": (unit,), "claim": tuple(signs)},
    )


POSITIVE, NEGATIVE = "positive", "negative"


def few_heads(scores: Scores, few: int) -> Records[FewHead]:
    """Heads with a positive value in 1 to `few` languages and a negative one in all others, most certain first."""
    signs, sure = estimated(scores), claimed(scores).get(RAW)
    rows = []
    for index in np.flatnonzero(_few(signs, few)).tolist():
        surely: dict[str, int] = {}
        if sure is not None:
            surely[POSITIVE] = int(sure.helps[:, index].sum())
            surely[NEGATIVE] = int(sure.harms[:, index].sum())
        shown = _shown_signs(scores, index, signs)
        row = FewHead(
            head=_heads(scores)[index],
            positive_in=shown.positive_in,
            negative_in=shown.negative_in,
            surely=surely,
            lowest=shown.lowest,
            highest=shown.highest,
            positive_languages=shown.positive_languages,
            negative_languages=shown.negative_languages,
        )
        rows.append(row)
    if sure is None:
        rows.sort(key=lambda row: row.highest, reverse=True)
    else:
        rows.sort(key=lambda row: (row.surely[POSITIVE], row.surely[NEGATIVE]), reverse=True)
    surely_note = "" if sure is None else "; surely: in languages whose interval excludes 0"
    return Records(
        f"Heads with a positive value in at most {few} languages and a negative one in all others",
        tuple(rows),
        (f"A sign may be noise{surely_note}.",),
        {"unit": (_values(scores)[1],), "sign": () if sure is None else (POSITIVE, NEGATIVE)},
    )


class ShownSigns(NamedTuple):
    """In how many languages a head has each sign, its extreme values, and the languages, comma-separated."""

    positive_in: int
    negative_in: int
    lowest: float
    highest: float
    positive_languages: str
    negative_languages: str


def _shown_signs(scores: Scores, index: int, signs: Signs) -> ShownSigns:
    """What is shown of a head's signs."""
    values, languages = _values(scores)[0][:, index], np.array(list(scores))
    positive, negative = (languages[side[:, index]] for side in signs)
    return ShownSigns(
        len(positive),
        len(negative),
        float(values.min()),
        float(values.max()),
        ", ".join(positive),
        ", ".join(negative),
    )


def specific_heads(scores: Scores) -> Records[SpecificHead]:
    """Heads that help in one language and harm in another, by the strictest correction that supports the claim."""
    heads = _heads(scores)
    rows: list[SpecificHead] = []
    is_listed = np.zeros(len(heads), dtype=bool)
    for claim, signs in reversed(claimed(scores).items()):  # strictest first; a head is listed once
        claimed_rows = [
            SpecificHead(heads[index], claim, *_shown_signs(scores, index, signs))
            for index in np.flatnonzero(signs.both & ~is_listed).tolist()
        ]
        claimed_rows.sort(key=lambda row: (row.positive_in, row.negative_in), reverse=True)
        rows += claimed_rows
        is_listed |= signs.both
    return Records(
        "Heads that help in one language and harm in another, with significance",
        tuple(rows),
        (
            "claimed by: the strictest of the corrections under which both signs stand; the "
            "languages are those it leaves.",
        ),
        {"unit": (_values(scores)[1],)},
    )


# The same as tables, for a page.


def count_table(scores: Scores, top: int, few: int) -> Table:
    """The counts of every kind of head."""
    return table_of(head_counts(scores, top, few), HeadCount, "heads-counts")


def shared_table(heads: Records[SharedHead]) -> Table:
    """The table of `shared_heads`."""
    return table_of(heads, SharedHead, "heads-agnostic")


def specific_table(heads: Records[SpecificHead]) -> Table:
    """The table of `specific_heads`."""
    return table_of(heads, SpecificHead, "heads-specific")


def few_table(heads: Records[FewHead]) -> Table:
    """The table of `few_heads`."""
    return table_of(heads, FewHead, "heads-few")


def run(pieces: Pieces, options: Mapping[str, OptionValue], report: Say) -> HeadsResult:
    """Counts and lists of language-agnostic and language-specific heads.

    options: method, method_options, top (20 in the paper), few (languages that a head may be positive in).
    """
    scores = {
        language: pieces.study_scores(language, options)
        for language in pieces.languages_in_turn("heads", report)
    }
    most = max(1, len(scores) - 1)
    top = min(integer_in(options, "top"), next(iter(scores.values())).grid.size)
    result = heads_result(scores, top, min(integer_in(options, "few"), most))
    caveats = [f"{remark[:1].upper()}{remark[1:]}." for remark in remarks(scores.values())]
    return replace(result, notes=(*result.notes, *caveats))


def cost(pieces: Pieces, options: Mapping[str, OptionValue]) -> list[Ask]:
    """The scores of every language."""
    return pieces.ask_study_scores(options)
