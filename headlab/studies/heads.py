"""Section 5 of Held & Yang (EACL 2023): heads that matter in every language.

Also heads whose sign varies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    display_unit,
    integer_in,
    part,
)
from headlab.methods import remarks
from headlab.results import HeadScores, adjusted_p_values, why_holm_rejects_none
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
from headlab.studies.table import SaySentence

if TYPE_CHECKING:
    from headlab.studies.run import Ask, Pieces


@dataclass(frozen=True)
class HeadCount:
    """How many heads there are of a kind.

    Attributes:
        kind: What the heads do.
        counts: Their number by the values, and as may be claimed, by correction; None where it has
            no meaning.
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
        lowest: Lowest value over the languages, in the unit shown.
        highest: Highest value over the languages, in the unit shown.
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
class HeadPositiveInFew:
    """A head with a positive value in a few languages and a negative one in all others.

    Attributes:
        head: The head.
        positive_in: Number of languages with a positive value.
        negative_in: Number of languages with a negative value.
        surely: Number of languages whose interval excludes 0, by sign ("positive", "negative");
            empty without intervals.
        lowest: Lowest value over the languages, in the unit shown.
        highest: Highest value over the languages, in the unit shown.
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
        few_positive: Positive in a few languages only.
    """

    languages: tuple[str, ...]
    counts: Annotated[Records[HeadCount], TableName("heads-counts")]
    shared: Annotated[Records[SharedHead], TableName("heads-agnostic"), HeadKind.AGNOSTIC]
    specific: Annotated[Records[SpecificHead], TableName("heads-specific"), HeadKind.SPECIFIC]
    few_positive: Annotated[Records[HeadPositiveInFew], TableName("heads-few"), HeadKind.SPECIFIC]

    @classmethod
    def from_report(cls, report: Report) -> Self:
        """As of any study; the languages are those of the report's spec."""
        languages = str(part(report.spec, "task", "language") or "").split(",")
        records = cls.records_in(report)
        return cls(notes=report.notes, languages=tuple(filter(None, languages)), **records)


# Language-agnostic and language-specific heads: pure functions of head scores, without a model.

Scores = Mapping[str, HeadScores]
RAW = "raw"
BH = "Benjamini–Hochberg"
HOLM = "Holm"
CORRECTIONS = {BH: benjamini_hochberg, HOLM: holm}


class Signs(NamedTuple):
    """Where a head is claimed to help or to harm, bool [language, head] each."""

    helps: Bools
    harms: Bools

    @property
    def vary(self) -> Bools:
        """Heads that help in some language and harm in another, bool [head]."""
        return np.asarray(self.helps.any(axis=0) & self.harms.any(axis=0))


def has_intervals(scores: Scores) -> bool:
    """Whether every language's scores come with signs and intervals."""
    for scores_of_language in scores.values():
        has_interval = scores_of_language.low is not None and scores_of_language.high is not None
        if not scores_of_language.signed or not has_interval:
            return False
    return True


def estimated_signs(scores: Scores) -> Signs:
    """Signs of the values themselves, noise included; none of heads that were not sampled."""
    values = np.stack(
        [
            np.where(scores_of_language.tested, scores_of_language.values, 0.0)
            for scores_of_language in scores.values()
        ]
    )
    return Signs(values > 0, values < 0)


def claimed_signs(scores: Scores) -> dict[str, Signs]:
    """Signs that may be claimed, by correction.

    They are by raw intervals, and by p-values adjusted over all heads and languages. Without
    intervals the result is empty; without p-values it holds only the raw signs.
    """
    all_scores = list(scores.values())
    if not has_intervals(scores):
        return {}
    signs_by_claim = {
        RAW: Signs(
            np.stack([scores_of_language.helpful for scores_of_language in all_scores]),
            np.stack([scores_of_language.harmful for scores_of_language in all_scores]),
        )
    }
    if any(scores_of_language.p_values is None for scores_of_language in all_scores):
        return signs_by_claim
    alpha = 1 - np.array([[scores_of_language.level] for scores_of_language in all_scores])
    tested_values = np.stack(
        [scores_of_language.tested_values for scores_of_language in all_scores]
    )
    for name, adjust in CORRECTIONS.items():
        is_sure = np.stack(adjusted_p_values(all_scores, adjust)) <= alpha
        signs_by_claim[name] = Signs(is_sure & (tested_values > 0), is_sure & (tested_values < 0))
    return signs_by_claim


def expected_shared(heads: int, languages: int, k: int) -> float:
    """Expected number of heads in every language's top k if the rankings were unrelated."""
    return float(heads * (k / heads) ** languages)


def heads_result(scores: Scores, top: int, max_positive: int) -> HeadsResult:
    """Counts of every kind of head, and the heads themselves."""
    counts = head_counts(scores, top, max_positive)
    return HeadsResult(
        languages=tuple(scores),
        counts=counts,
        shared=shared_heads(scores, top),
        specific=specific_heads(scores),
        few_positive=heads_positive_in_few(scores, max_positive),
        notes=counts.notes,
    )


def head_counts(scores: Scores, top: int, max_positive: int) -> Records[HeadCount]:
    """Number of heads of each kind.

    By the values, and as may be claimed with and without correction.

    Args:
        scores: By language.
        top: The highest heads of every language.
        max_positive: The most languages that a head positive in few of them is positive in.
    """
    signs_by_claim = {"values": estimated_signs(scores)} | claimed_signs(scores)
    head_count = next(iter(scores.values())).grid.size
    in_every_top_count = int(in_every_top(scores, top).sum())
    kinds: dict[str, Callable[[Signs], Bools]] = {
        "help in every language": lambda signs: np.asarray(signs.helps.all(axis=0)),
        "harm in every language": lambda signs: np.asarray(signs.harms.all(axis=0)),
        "help in one language and harm in another": lambda signs: signs.vary,
        f"positive in at most {max_positive} languages, negative in the others": (
            lambda signs: _helps_in_few(signs, max_positive)
        ),
    }
    top_count = HeadCount(
        f"among the top {top} of every language",
        {**dict.fromkeys(signs_by_claim), "values": in_every_top_count},
        expected_shared(head_count, len(scores), top) if _all_are_tested(scores) else None,
    )
    rows = [top_count]
    for kind, heads_of_kind in kinds.items():
        counts = {claim: int(heads_of_kind(signs).sum()) for claim, signs in signs_by_claim.items()}
        rows.append(HeadCount(kind, counts, None))
    return Records(
        f"How many of {head_count} heads matter in all of {len(scores)} languages, or in a few",
        tuple(rows),
        count_notes(scores),
        {"claim": tuple(signs_by_claim)},
    )


def count_notes(scores: Scores) -> tuple[str, ...]:
    """Notes on the corrections, and on whether the p-values are fine enough for them."""
    level = 100 * next(iter(scores.values())).level
    notes = [
        "values: by the sign of the value, noise included. by chance: what unrelated rankings "
        "would give."
    ]
    if not has_intervals(scores):
        return (*notes, "These scores have no signs with intervals, so no sign can be claimed.")
    notes.append(
        f"{RAW}: by {level:g} % intervals of each head and language alone. {BH}, {HOLM}: by "
        "p-values adjusted over all heads and languages at once, which bounds the share of false "
        "claims, or the chance of any."
    )
    if all(scores_of_language.p_values is not None for scores_of_language in scores.values()):
        coarse_note = why_holm_rejects_none(scores.values())
        if coarse_note:
            notes.append(coarse_note)
    return tuple(notes)


def _ranks(scores: Scores) -> Ints:
    """Ranks of all languages, int [language, head]; 1 is the highest score.

    By samples alone, since they are held against chance: slopes of two languages may agree though
    their heads do not.
    """
    return np.stack([scores_of_language.tested_ranks for scores_of_language in scores.values()])


def in_every_top(scores: Scores, top: int) -> Bools:
    """Heads among the `top` highest of every language, bool [head]; sampled ones alone."""
    is_tested = np.stack([scores_of_language.tested for scores_of_language in scores.values()])
    return np.asarray(((_ranks(scores) <= top) & is_tested).all(axis=0))


def _all_are_tested(scores: Scores) -> bool:
    """Whether every language's scores sampled every head."""
    return all(scores_of_language.tested.all() for scores_of_language in scores.values())


def _helps_in_few(signs: Signs, max_positive: int) -> Bools:
    """Heads that help in 1 to `max_positive` languages and harm in all others, bool [head]."""
    helped = signs.helps.sum(axis=0)
    harms_elsewhere = (signs.helps | signs.harms).all(axis=0) & signs.harms.any(axis=0)
    return np.asarray((helped >= 1) & (helped <= max_positive) & harms_elsewhere)


def _values(scores: Scores) -> tuple[Floats, str]:
    """Values of all languages, float [language, head], in the unit shown, and that unit."""
    factor, unit = display_unit(next(iter(scores.values())).unit)
    values = np.stack([scores_of_language.values for scores_of_language in scores.values()])
    return factor * values, unit


def _heads(scores: Scores) -> tuple[Head, ...]:
    """The heads of the model that the scores are of."""
    return next(iter(scores.values())).grid.heads


def shared_heads(scores: Scores, top: int) -> Records[SharedHead]:
    """Heads among the `top` highest of every language, sorted by their worst rank."""
    ranks = _ranks(scores)
    values, unit = _values(scores)
    heads = _heads(scores)
    signs_by_claim = claimed_signs(scores)
    in_top = np.flatnonzero(in_every_top(scores, top))
    rows = []
    for index in in_top[np.argsort(ranks.max(axis=0)[in_top], kind="stable")]:
        row = SharedHead(
            head=heads[index],
            worst_rank=int(ranks[:, index].max()),
            best_rank=int(ranks[:, index].min()),
            mean_value=float(values[:, index].mean()),
            helps_in={
                claim: int(signs.helps[:, index].sum()) for claim, signs in signs_by_claim.items()
            },
        )
        rows.append(row)
    note = "What unrelated rankings would share is not known, as not all heads were sampled."
    if _all_are_tested(scores):
        shared_by_chance = expected_shared(len(heads), len(scores), top)
        note = f"Unrelated rankings would share {shared_by_chance:.2g}."
    if signs_by_claim:
        note += " helps in: languages where that may be claimed."
    return Records(
        f"Heads among the {top} highest of every language",
        tuple(rows),
        (note,),
        {"unit": (unit,), "claim": tuple(signs_by_claim)},
    )


POSITIVE = "positive"
NEGATIVE = "negative"


def heads_positive_in_few(scores: Scores, max_positive: int) -> Records[HeadPositiveInFew]:
    """Heads that are positive in 1 to `max_positive` languages and negative in all others.

    Those that are surely positive in most languages come first, then those surely negative in most;
    without intervals, those with the highest value.
    """
    signs = estimated_signs(scores)
    raw_signs = claimed_signs(scores).get(RAW)
    _, unit = _values(scores)
    rows = []
    for index in np.flatnonzero(_helps_in_few(signs, max_positive)).tolist():
        sure_counts: dict[str, int] = {}
        if raw_signs is not None:
            sure_counts[POSITIVE] = int(raw_signs.helps[:, index].sum())
            sure_counts[NEGATIVE] = int(raw_signs.harms[:, index].sum())
        shown_signs = _shown_signs(scores, index, signs)
        row = HeadPositiveInFew(
            head=_heads(scores)[index],
            positive_in=shown_signs.positive_in,
            negative_in=shown_signs.negative_in,
            surely=sure_counts,
            lowest=shown_signs.lowest,
            highest=shown_signs.highest,
            positive_languages=shown_signs.positive_languages,
            negative_languages=shown_signs.negative_languages,
        )
        rows.append(row)
    if raw_signs is None:
        rows.sort(key=lambda row: row.highest, reverse=True)
    else:
        rows.sort(key=lambda row: (row.surely[POSITIVE], row.surely[NEGATIVE]), reverse=True)
    surely_note = "" if raw_signs is None else "; surely: in languages whose interval excludes 0"
    return Records(
        f"Heads with a positive value in at most {max_positive} languages and a negative one in "
        "all others",
        tuple(rows),
        (f"A sign may be noise{surely_note}.",),
        {"unit": (unit,), "sign": () if raw_signs is None else (POSITIVE, NEGATIVE)},
    )


class ShownSigns(NamedTuple):
    """In how many languages a head has each sign, its extreme values, and the languages.

    The languages are separated by commas.
    """

    positive_in: int
    negative_in: int
    lowest: float
    highest: float
    positive_languages: str
    negative_languages: str


def _shown_signs(scores: Scores, index: int, signs: Signs) -> ShownSigns:
    """What is shown of a head's signs."""
    all_values, _ = _values(scores)
    values = all_values[:, index]
    languages = np.array(list(scores))
    positive_languages = languages[signs.helps[:, index]]
    negative_languages = languages[signs.harms[:, index]]
    return ShownSigns(
        positive_in=len(positive_languages),
        negative_in=len(negative_languages),
        lowest=float(values.min()),
        highest=float(values.max()),
        positive_languages=", ".join(positive_languages),
        negative_languages=", ".join(negative_languages),
    )


def specific_heads(scores: Scores) -> Records[SpecificHead]:
    """Heads that help in one language and harm in another.

    Each has the strictest correction that supports the claim.
    """
    heads = _heads(scores)
    rows: list[SpecificHead] = []
    is_listed = np.zeros(len(heads), dtype=bool)
    for claim, signs in reversed(
        claimed_signs(scores).items()
    ):  # strictest first; a head is listed once
        claimed_rows = [
            SpecificHead(heads[index], claim, *_shown_signs(scores, index, signs))
            for index in np.flatnonzero(signs.vary & ~is_listed).tolist()
        ]
        claimed_rows.sort(key=lambda row: (row.positive_in, row.negative_in), reverse=True)
        rows += claimed_rows
        is_listed |= signs.vary
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


def few_table(heads: Records[HeadPositiveInFew]) -> Table:
    """The table of `heads_positive_in_few`."""
    return table_of(heads, HeadPositiveInFew, "heads-few")


def run(pieces: Pieces, options: Mapping[str, OptionValue], report: SaySentence) -> HeadsResult:
    """Counts and lists of language-agnostic and language-specific heads.

    Args:
        options: method, method_options, top (20 in the paper), few (languages that a head may be
            positive in).
    """
    scores = {
        language: pieces.study_scores(language, options)
        for language in pieces.languages_in_turn("heads", report)
    }
    max_few = max(1, len(scores) - 1)
    top = min(integer_in(options, "top"), next(iter(scores.values())).grid.size)
    result = heads_result(scores, top, min(integer_in(options, "few"), max_few))
    caveats = [f"{remark[:1].upper()}{remark[1:]}." for remark in remarks(scores.values())]
    return replace(result, notes=(*result.notes, *caveats))


def cost(pieces: Pieces, options: Mapping[str, OptionValue]) -> list[Ask]:
    """The scores of every language."""
    return pieces.ask_study_scores(options)
