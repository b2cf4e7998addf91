"""Records of results: one score per head, and accuracy as heads are removed one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Literal, NamedTuple

import numpy as np

from headlab.core import (
    Bools,
    Cell,
    ComparedByContent,
    Floats,
    HeadGrid,
    HeadlabError,
    Ints,
    Json,
    JsonLike,
    Omissions,
    RunSpec,
    Shown,
    SlopeUse,
    Table,
    arrays_sha256,
    as_object,
    percent_text,
    require_type,
)
from headlab.masks import Mask, heads_kept_by_rule
from headlab.stats import PairedDifference, benjamini_hochberg, holm, paired_bootstrap

# How scores are written down, in a file of the store, as JSON, over HTTP, by the command line:
# grid, spec and these.


class ArrayField(NamedTuple):
    """An array of `HeadScores` as it is written down.

    Attributes:
        number: Type of its numbers.
        axes: What they are counted by: "head", or "half" and "head".
        required: Whether all scores have it.
        in_files_only: Whether JSON leaves it out.
        added_later: Whether JSON may lack it, as that of earlier versions does.
    """

    number: type[np.float64] | type[np.int64] = np.float64
    axes: tuple[str, ...] = ("head",)
    required: bool = False
    in_files_only: bool = False
    added_later: bool = False

    @property
    def json_type(self) -> object:
        """The type of its JSON: a list of numbers, or none where scores may lack the array."""
        numbers = list[int] if self.number is np.int64 else list[float]
        if self.required:
            return numbers
        return numbers | None

    def array(self, numbers: Json) -> ScoreNumbers:
        """The array of a list of numbers. Raises TypeError or ValueError for anything else."""
        if self.number is np.int64:
            return np.array(numbers, np.int64)
        return np.array(numbers, np.float64)

    def shape(self, grid: HeadGrid) -> tuple[int, ...]:
        """The shape of the array for the heads of a grid."""
        lengths = {"half": 2, "head": grid.size}
        return tuple(lengths[axis] for axis in self.axes)


ScoreNumbers = Floats | Ints
SCORE_ARRAYS: Mapping[str, ArrayField] = {
    "values": ArrayField(required=True),
    "low": ArrayField(),
    "high": ArrayField(),
    "samples": ArrayField(np.int64),
    "p_values": ArrayField(),
    "halves": ArrayField(axes=("half", "head"), in_files_only=True),
    "sampling_error": ArrayField(added_later=True),
    "sample_means": ArrayField(added_later=True),
    "average_error": ArrayField(added_later=True),
}
Plain = bool | int | float | str
PlainType = type[bool] | type[int] | type[float] | type[str]
SCORE_VALUES: Mapping[str, PlainType] = {
    "language": str,
    "method": str,
    "estimand": str,
    "unit": str,
    "example_forwards": int,
    "seconds": float,
    "level": float,
}
SIGNED_FIELD = "signed"  # bool, which older results lack
OMISSIONS = "omissions"  # of the examples, which older results lack
MEMBERS = "members"  # the group of every neuron, where groups of neurons are scored
SLOPES = "slopes"  # how far values lean on slopes, which most results lack


ANYTIME = "anytime"
"""Intervals that hold at every look, whenever the run ends."""
PLANNED = "planned"
"""Approximate intervals, at a few planned looks."""
AVERAGE = "average"
"""Intervals that hold for a share of the heads of a run, not for each."""
INTERVALS = (ANYTIME, PLANNED, AVERAGE)
"""What a method's option `interval` can be: which intervals decide when a head is done."""

SAMPLING_ERROR_LIMIT = "does not cover its bias"
"""What a sampling error leaves out, to be said wherever one is shown."""

AVERAGE_LIMIT = "holds on average over the heads, not for each"
"""What an average error leaves out, to be said wherever one is shown."""

# Corrections for testing many heads: of p-values [test], or None where each head's own interval
# decides.
UNCORRECTED = "raw"
CORRECTIONS: Mapping[str, Callable[[Floats], Floats] | None] = {
    UNCORRECTED: None,
    "holm": holm,
    "bh": benjamini_hochberg,
}


def members_field(grid: HeadGrid) -> dict[str, Json]:
    """The groups of neurons as a field beside the grid; none where there are none."""
    members: dict[str, Json] = {}
    for stack, layers in grid.members_json().items():
        members[stack] = [[*groups] for groups in layers]
    return {MEMBERS: members} if members else {}


@dataclass(frozen=True, eq=False)
class HeadScores(ComparedByContent, Shown):
    """A method's scores of all heads of a model, in one language.

    Flat arrays [head] in the grid's order.

    Attributes:
        values: Positive where the head helps; in `unit` (for `accuracy`, 0.01 is one point lost
            when the head is removed).
        low: Lower bound of the interval at `level`, None where the method gives none.
        high: Its upper bound.
        samples: Number of draws behind each value.
        p_values: Two-sided p-values of "the head does nothing".
        spec: Everything the numbers depend on.
        halves: [half, head], the values from the first and from the second half of the examples
            alone, where the method provides them.
        sampling_error: Half-width at `level` of the interval that covers nothing but the sampling of
            a value that is biased, where the method gives one: no head is marked by it.
        signed: Whether a sign means help or harm; if not, values are sizes. Results stored before
            this field existed are signed if they have intervals or negative values.
        omissions: What of the examples was cut or has no answer; None in results stored before this
            field existed.
        sample_means: Means of the samples alone, where `values` join them with slopes. Intervals,
            p-values and halves are of these.
        slopes: How far `values` lean on slopes; None for methods that join nothing.
        average_error: Half-width of an interval around `values` within which the true value lies
            for `level` of the heads, on average over them and not for each: no head is marked by
            it. None where the method gives none.
    """

    grid: HeadGrid
    language: str
    method: str
    values: Floats
    estimand: str
    unit: str
    example_forwards: int
    seconds: float
    low: Floats | None = None
    high: Floats | None = None
    samples: Ints | None = None
    p_values: Floats | None = None
    level: float = 0.95
    spec: RunSpec = field(default_factory=RunSpec)
    halves: Floats | None = None
    signed: bool | None = None
    omissions: Omissions | None = None
    sampling_error: Floats | None = None
    sample_means: Floats | None = None
    slopes: SlopeUse | None = None
    average_error: Floats | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "spec", RunSpec.of(self.spec))
        if self.signed is None:
            object.__setattr__(
                self, "signed", self.low is not None or bool((self.values < 0).any())
            )

    @property
    def half_width(self) -> Floats | None:
        """Half the interval's length, [head]."""
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / 2

    @property
    def tested_values(self) -> Floats:
        """What tests, differences and noise ceilings rest on, [head].

        Means of the samples alone where there are any, else the values; NaN for heads that were not
        sampled, which have none.
        """
        means = self.values if self.sample_means is None else self.sample_means
        if self.tested.all():
            return means
        return np.where(self.tested, means, np.nan)

    @property
    def tested(self) -> Bools:
        """Heads that were sampled, bool [head]: corrections for many tests count these alone.

        Runs that name harmful heads sample candidates only, which no sample has chosen.
        """
        if self.samples is None:
            return np.ones(self.grid.size, bool)
        return self.samples > 0

    @property
    def test_count(self) -> int:
        """Number of heads that were sampled, which is the number of tests."""
        return int(self.tested.sum())

    @property
    def chooses_heads(self) -> bool:
        """Whether rules may choose heads by these scores: not if they are for looking only.

        Those that give nothing but a sampling error are (see `sampling_error`).
        """
        return self.sampling_error is None

    @property
    def harmful(self) -> Bools:
        """Heads whose interval is below 0, bool [head]; none without signs or intervals."""
        if not self.signed or self.high is None:
            return np.zeros(self.grid.size, bool)
        return self.high < 0

    @property
    def helpful(self) -> Bools:
        """Heads whose interval is above 0, bool [head]; none without signs or intervals."""
        if not self.signed or self.low is None:
            return np.zeros(self.grid.size, bool)
        return self.low > 0

    @property
    def ranks(self) -> Ints:
        """1 = highest value; a tie goes to the lower (layer, head)."""
        return _ranks_of(self.values)

    @property
    def tested_ranks(self) -> Ints:
        """Ranks of `tested_values`, for counts that are held against chance.

        Heads that were not sampled come after all others, and are to be left out.
        """
        return _ranks_of(self.tested_values)

    def _high(self, rule: str, correction: str) -> Floats | None:
        """Upper bounds, raised to 0 where a claim of harm does not survive the correction."""
        check_correction(rule, correction)
        adjust = CORRECTIONS[correction]
        if adjust is None or not self.signed:
            return self.high if self.signed else None
        if self.high is None or self.p_values is None:
            raise HeadlabError(
                f"correction {correction} needs p-values, which these scores do not have; use "
                f"{UNCORRECTED}, or scores of a method that gives them, such as shapley",
                code="rule.needs_p_values",
            )
        (adjusted_p,) = adjusted_p_values([self], adjust, claims_harm=adjust is benjamini_hochberg)
        survives = adjusted_p <= 1 - self.level
        return np.where(survives, self.high, np.maximum(self.high, 0))

    def values_sha256(self) -> str:
        """sha256 of the values' float64 bytes (little endian), in flat order."""
        return arrays_sha256((self.values, "<f8"))

    def arrays(self) -> dict[str, ScoreNumbers | None]:
        """Every array of `SCORE_ARRAYS` by its name; None where the method gives none."""
        return {name: getattr(self, name) for name in SCORE_ARRAYS}

    def plain_values(self) -> dict[str, Plain]:
        """Every value of `SCORE_VALUES` by its name, and whether the scores are signed."""
        return {name: getattr(self, name) for name in (*SCORE_VALUES, SIGNED_FIELD)}

    @staticmethod
    def from_fields(
        grid: HeadGrid,
        spec: Mapping[str, Json],
        plain_values: Mapping[str, Plain],
        arrays: Mapping[str, ScoreNumbers],
        omissions: Omissions | None,
        slopes: SlopeUse | None,
    ) -> HeadScores:
        """Scores of what was read, by whichever way they were written down.

        Args:
            grid: Heads of the model.
            spec: Everything that the numbers depend on.
            plain_values: As of `plain_values`, of the types in `SCORE_VALUES`.
            arrays: Those of `arrays` that are there, of the types and shapes in `SCORE_ARRAYS`.
            omissions: What of the examples was left out, if known.
            slopes: How far the values lean on slopes, if they may.
        """
        return HeadScores(
            grid=grid,
            spec=RunSpec.of(spec),
            omissions=omissions,
            slopes=slopes,
            **plain_values,  # type: ignore[arg-type] # SCORE_VALUES has their types
            **arrays,  # type: ignore[arg-type] # SCORE_ARRAYS has their types
        )

    def to_json(self) -> dict[str, Json]:
        """Everything but the halves as JSON values, arrays as flat lists [head]."""
        lists: dict[str, Json] = {}
        for name, array in self.arrays().items():
            if not SCORE_ARRAYS[name].in_files_only:
                lists[name] = None if array is None else array.tolist()
        return {
            "grid": {stack: [*heads] for stack, heads in self.grid.to_json().items()},
            **members_field(self.grid),
            "spec": self.spec.to_json(),
            **self.plain_values(),
            **lists,
            OMISSIONS: None if self.omissions is None else self.omissions.to_json(),
            SLOPES: None if self.slopes is None else self.slopes.to_json(),
        }

    @staticmethod
    def from_json(value: Mapping[str, Json]) -> HeadScores:
        """Inverse of `to_json`.

        Raises KeyError, TypeError, AttributeError or ValueError for anything else.
        """
        grid = HeadGrid.from_json(value["grid"], value.get(MEMBERS))
        arrays: dict[str, ScoreNumbers] = {}
        for name, array_field in SCORE_ARRAYS.items():
            if array_field.in_files_only:
                continue
            numbers = value.get(name) if array_field.added_later else value[name]
            if numbers is None:
                continue
            arrays[name] = array_field.array(numbers)
            if arrays[name].shape != array_field.shape(grid):
                raise ValueError("another size than the grid's")
        plain_values = {name: _as_plain(value[name]) for name in SCORE_VALUES}
        signed_value = value.get(SIGNED_FIELD)
        if signed_value is not None:
            plain_values[SIGNED_FIELD] = _as_plain(signed_value)
        omissions = value.get(OMISSIONS)
        slopes = value.get(SLOPES)
        return HeadScores.from_fields(
            grid=grid,
            spec=as_object(value["spec"]),
            plain_values=plain_values,
            arrays=arrays,
            omissions=None if omissions is None else Omissions.from_json(omissions),
            slopes=None if slopes is None else SlopeUse.from_json(slopes),
        )

    def mask(
        self,
        rule: str = "harmful",
        *,
        k: int | None = None,
        threshold: float | None = None,
        correction: str = UNCORRECTED,
    ) -> Mask:
        """The mask that a rule derives from these scores.

        Args:
            rule: As in `headlab.masks.heads_kept_by_rule`.
            k: As in `headlab.masks.heads_kept_by_rule`.
            threshold: As in `headlab.masks.heads_kept_by_rule`.
            correction: Correction of rule harmful for testing all heads: "raw" (none), "holm" or
                "bh" (Benjamini–Hochberg).

        Raises:
            HeadlabError: As `headlab.masks.heads_kept_by_rule`, and for an unknown correction, one
                of another rule, one without p-values, and scores that choose no heads.
        """
        if not self.chooses_heads:
            raise refusal_of_first_look(self.method)
        high = self._high(rule, correction)
        kept_heads = heads_kept_by_rule(
            self.grid, self.values, high, rule, k=k, threshold=threshold
        )
        choice: dict[str, Json] = {"rule": rule}
        if k is not None:
            choice["k"] = int(k)
        if threshold is not None:
            choice["threshold"] = float(threshold)
        if correction != UNCORRECTED:
            choice["correction"] = correction
        choice |= {
            "method": self.method,
            "estimand": self.estimand,
            "languages": [self.language],
        }
        if self.spec.task.name:
            choice["task"] = self.spec.task.name
        choice["score"] = self.spec.to_json()
        return Mask(self.grid, kept_heads, self.spec.model.to_json(), choice)


def refusal_of_first_look(method: str) -> HeadlabError:
    """The error for a rule that is to choose heads by scores that are for looking only.

    Args:
        method: Of the scores.
    """
    return HeadlabError(
        f"scores by {method} are for a first look: their error is not known beyond that of sampling, so "
        "no rule chooses heads by them; score the heads by shapley, and prune by those scores",
        code="rule.scores_for_looking",
    )


def check_correction(rule: str, correction: str) -> None:
    """Raise HeadlabError for an unknown correction, and one of a rule that takes none.

    Args:
        rule: As in `headlab.masks.heads_kept_by_rule`.
        correction: As of `HeadScores.mask`.
    """
    if correction not in CORRECTIONS:
        raise HeadlabError(
            f"unknown correction {correction!r}; use {', '.join(CORRECTIONS)}",
            code="rule.correction_unknown",
        )
    if CORRECTIONS[correction] is not None and rule != "harmful":
        raise HeadlabError(
            f"rule {rule} takes no correction; leave it out, or use rule harmful",
            code="rule.option_unused",
        )


def _ranks_of(values: Floats) -> Ints:
    """1 = highest value; a tie goes to the one that comes first."""
    ranks = np.empty(len(values), np.int64)
    ranks[np.argsort(-values, kind="stable")] = np.arange(1, len(values) + 1)
    return ranks


def _as_plain(value: Json) -> Plain:
    """A number, a text, true or false. Raises TypeError for anything else."""
    if value is None or isinstance(value, list | dict):
        raise TypeError(f"{value!r:.40} is neither a number nor a text")
    return value


def omission_notes(results: Iterable[HeadScores | Curve]) -> tuple[str, ...]:
    """A sentence for each language in which examples were cut or words have no answer.

    Older results do not say it, and have none.
    """
    sentences = []
    for result in results:
        if result.omissions is not None and result.omissions.sentence:
            sentences.append(f"{result.language}: {result.omissions.sentence}.")
    return tuple(dict.fromkeys(sentences))


def slope_notes(results: Iterable[HeadScores]) -> tuple[str, ...]:
    """What values of heads rest on besides their samples, in a few sentences.

    None where no value of these results joins samples with slopes or might have.
    """
    all_scores = list(results)
    joined_scores = []
    languages_by_reason: dict[str, list[str]] = {}
    for scores in all_scores:
        if scores.sample_means is not None:
            joined_scores.append(scores)
        elif scores.slopes is not None and scores.slopes.why_none:
            languages_by_reason.setdefault(scores.slopes.why_none, []).append(scores.language)
    sentences = []
    if joined_scores:
        sentences.append(_share_sentence(joined_scores, len(all_scores)))
        for scores in all_scores:
            if scores.slopes is None:
                reason = "they were made without slopes"
                languages_by_reason.setdefault(reason, []).append(scores.language)
    for reason, languages in languages_by_reason.items():
        sentences.append(
            f"{', '.join(languages)}: values are means of samples alone, because {reason}."
        )
    return tuple(sentences)


def value_notes(results: Iterable[HeadScores]) -> tuple[str, ...]:
    """What values rest on besides samples, and what their intervals promise, in a few sentences."""
    all_scores = list(results)
    return (*slope_notes(all_scores), *interval_notes(all_scores))


def interval_notes(results: Iterable[HeadScores]) -> tuple[str, ...]:
    """What average errors promise, in a sentence; none where there are none."""
    all_scores = list(results)
    levels = [scores.level for scores in all_scores if scores.average_error is not None]
    if not levels:
        return ()
    return (
        f"An average error is a half-width within which the true values of {percent_text(levels[0])} "
        "of the heads lie on average, so it marks no head; marks rest on the intervals.",
    )


def has_planned_intervals(scores: HeadScores) -> bool:
    """Whether the intervals of scores hold at planned looks only, and approximately."""
    options = scores.spec.method.options or {}
    return options.get("interval") == PLANNED


def _share_sentence(joined_scores: Sequence[HeadScores], all_count: int) -> str:
    """How far values lean on slopes.

    Args:
        joined_scores: Scores that join samples with slopes.
        all_count: How many scores are shown; where some join nothing, the languages are named.
    """
    if all(scores.samples is not None and not scores.samples.any() for scores in joined_scores):
        return "So far the values are slopes of the smoothed value alone; samples come next."
    shares = [0.0 if scores.slopes is None else scores.slopes.share for scores in joined_scores]
    lowest = f"{min(shares):.0%}"
    highest = f"{max(shares):.0%}"
    share_text = lowest if lowest == highest else f"{lowest} to {highest}"
    opening = "On average"
    if len(joined_scores) < all_count:
        opening = f"{', '.join(scores.language for scores in joined_scores)}: on average"
    return (
        f"{opening} {share_text} of a value rests on gradients of the model (slopes of its smoothed "
        "value), the rest on samples; intervals, p-values and differences use the samples alone."
    )


def adjusted_p_values(
    scores: Sequence[HeadScores],
    adjust: Callable[[Floats], Floats],
    *,
    claims_harm: bool = False,
) -> list[Floats]:
    """p-values of several scores, adjusted for all their tests together, [head] each.

    Heads that were not sampled are no tests, and get 1.

    Args:
        scores: Scores, all of them with p-values.
        adjust: Adjusts p-values [test], such as `headlab.stats.holm`.
        claims_harm: Whether only harm is claimed: heads that help are no false claims of it, but
            would loosen the threshold of Benjamini and Hochberg's procedure, and count as 1.
    """
    p_of_tests = []
    for head_scores in scores:
        p_values = head_scores.p_values
        assert p_values is not None
        if claims_harm:
            p_values = np.where(head_scores.tested_values < 0, p_values, 1.0)
        p_of_tests.append(p_values[head_scores.tested])
    if not p_of_tests:
        return []
    cuts = np.cumsum([len(p_values) for p_values in p_of_tests])[:-1]
    adjusted_of_tests = np.split(adjust(np.concatenate(p_of_tests)), cuts)
    all_adjusted = []
    for head_scores, adjusted in zip(scores, adjusted_of_tests, strict=True):
        adjusted_of_heads = np.ones(head_scores.grid.size)
        adjusted_of_heads[head_scores.tested] = adjusted
        all_adjusted.append(adjusted_of_heads)
    return all_adjusted


def require_all_tested(scores: Iterable[HeadScores], purpose: str) -> None:
    """Raise HeadlabError if some heads were not sampled, so that they have no rank.

    Args:
        scores: Scores of any languages and methods.
        purpose: What needs all heads, as the subject of a sentence.
    """
    for head_scores in scores:
        if head_scores.test_count < head_scores.grid.size:
            raise HeadlabError(
                f"{purpose} needs a value of every head, and these scores of {head_scores.language} by "
                f"{head_scores.method} sampled {head_scores.test_count} of {head_scores.grid.size} heads only; "
                "leave option names out of their method, and all heads are sampled",
                code="score.heads_untested",
            )


def why_holm_rejects_none(scores: Iterable[HeadScores]) -> str:
    """Why no head of several scores can survive Holm's correction, in a sentence.

    Empty where one may.
    """
    levels = []
    p_values = []
    for head_scores in scores:
        if head_scores.p_values is not None:
            levels.append(head_scores.level)
            p_values.append(head_scores.p_values[head_scores.tested])
    if not p_values:
        return ""
    test_count = sum(map(len, p_values))
    smallest_p = min(float(p.min(initial=1.0)) for p in p_values)
    if smallest_p * test_count <= 1 - levels[0]:
        return ""
    return (
        f"The smallest p here is {smallest_p:.2g}: over {test_count:,} tests no head can survive "
        "Holm's correction."
    )


# Two results side by side.


@dataclass(frozen=True)
class Contrast:
    """Two results on the same heads, head by head: the first minus the second, all arrays [head].

    All of it is of means of samples where values join them with slopes (`tested_values`), and NaN
    or false where one result did not sample a head.

    Attributes:
        difference: First minus second value; None where the results have different units.
        low: Lower bound of the difference at `level`; None where a result has no intervals.
        high: Its upper bound.
        level: Level of the interval.
        ranks: Ranks in the first and in the second result, among heads that both sampled; 1 is the
            highest value, and other heads come last.
        turned: Heads whose values have opposite signs.
        surely: Those of them whose intervals lie on opposite sides of 0.
    """

    difference: Floats | None
    low: Floats | None
    high: Floats | None
    level: float
    ranks: tuple[Ints, Ints]
    turned: Bools
    surely: Bools

    @property
    def clear(self) -> Bools:
        """Heads whose difference has an interval without 0, bool [head]."""
        if self.low is None or self.high is None:
            return np.zeros(len(self.turned), bool)
        return (self.low > 0) | (self.high < 0)


def contrast(first: HeadScores, second: HeadScores) -> Contrast:
    """Compare two results head by head, such as those of two methods, checkpoints or languages.

    The interval of a difference reaches from one's lower end minus the other's upper end to the
    reverse: it holds whenever both intervals do, hence at one minus the sum of their error rates,
    whatever the two results share. Raises HeadlabError for results on other head grids.
    """
    if first.grid != second.grid:
        raise HeadlabError(
            f"the two results are of models with other heads: {first.grid} and {second.grid}; "
            "compare results of one grid",
            code="score.grids_differ",
        )
    same_unit = first.unit == second.unit
    first_values = first.tested_values
    second_values = second.tested_values
    is_tested = first.tested & second.tested
    return Contrast(
        first_values - second_values if same_unit else None,
        _difference_or_none(first.low, second.high, is_tested) if same_unit else None,
        _difference_or_none(first.high, second.low, is_tested) if same_unit else None,
        max(0.0, first.level + second.level - 1),
        (
            _ranks_of(np.where(is_tested, first_values, np.nan)),
            _ranks_of(np.where(is_tested, second_values, np.nan)),
        ),
        ((first_values < 0) & (second_values > 0)) | ((first_values > 0) & (second_values < 0)),
        (first.helpful & second.harmful) | (first.harmful & second.helpful),
    )


def _difference_or_none(
    minuend: Floats | None, subtrahend: Floats | None, is_tested: Bools
) -> Floats | None:
    """The difference of bounds, NaN where a head was not tested; None where one has no bounds."""
    if minuend is None or subtrahend is None:
        return None
    return np.where(is_tested, minuend - subtrahend, np.nan)


@dataclass(frozen=True, eq=False)
class Curve(ComparedByContent, Shown):
    """Accuracy in one language as heads are removed one after another.

    It is paired with the accuracy of the model with all heads on.

    Attributes:
        order: int [head], flat indices in order of removal.
        removed: int [point], number of removed heads, ascending from 0 to all.
        correct: bool [point, answer].
        groups: int [answer]; answers of one group number are resampled together.
        low: float [point], lower bound of the 95 % interval of `difference`.
        high: float [point], its upper bound.
        p_values: float [point], two-sided p-values of "the difference is 0"; with no head removed
            bounds and p-value are 0, 0 and 1.
        ordering: The method whose scores gave the order.
        caution: Caveat about the curve, or empty.
        spec: Everything the numbers depend on.
        omissions: As of `HeadScores`.
    """

    grid: HeadGrid
    language: str
    split: str
    ordering: str
    order: Ints
    removed: Ints
    correct: Bools
    groups: Ints
    low: Floats
    high: Floats
    p_values: Floats
    example_forwards: int
    seconds: float
    caution: str = ""
    spec: RunSpec = field(default_factory=RunSpec)
    omissions: Omissions | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "spec", RunSpec.of(self.spec))

    @property
    def n(self) -> int:
        """Number of answers at every point."""
        return int(self.correct.shape[1])

    @property
    def accuracy(self) -> Floats:
        """Share of right answers, float [point]."""
        return np.asarray(self.correct.mean(axis=1))

    @property
    def difference(self) -> Floats:
        """Accuracy minus that with all heads on, float [point]; 0.01 is one point."""
        right_answers = self.correct.sum(axis=1)
        return np.asarray((right_answers - right_answers[0]) / self.n)

    @property
    def area(self) -> float:
        """Mean accuracy over the share of heads removed, by the trapezoid rule."""
        return float(np.trapezoid(self.accuracy, self.removed / self.removed[-1]))

    def heads_until(
        self, points: float = 0.01, by: Literal["estimate", "interval"] = "estimate"
    ) -> int:
        """Most heads that can be removed before more than `points` of accuracy is lost.

        Only measured counts of removed heads are considered. A recovery after the first fall does
        not count.

        Args:
            points: 0.01 is one point.
            by: "estimate", until `difference` falls below -points; "interval", until `low` does, so
                that a larger loss is ruled out at every count up to the result.

        Raises:
            HeadlabError: For an unknown `by` or a negative loss.
        """
        if by not in ("estimate", "interval"):
            raise HeadlabError(
                f'unknown criterion for a loss {by!r}; use "estimate" or "interval"',
                code="curve.loss_way_unknown",
            )
        if not points >= 0:
            raise HeadlabError(
                f"asked for heads until {points} of accuracy is lost; give 0 or more, 0.01 is one "
                "point",
                code="curve.loss_out_of_range",
            )
        loss_bound = self.difference if by == "estimate" else self.low
        points_below = np.flatnonzero(loss_bound < -points)
        if len(points_below) == 0:
            return int(self.removed[-1])
        return int(self.removed[points_below[0] - 1])

    def mask(self, k: int) -> Mask:
        """The mask without the first `k` heads of the order.

        Raises:
            HeadlabError: If `k` is out of range.
        """
        require_type("k", k, Integral, "a whole number of heads")
        if not 0 <= k <= self.grid.size:
            raise HeadlabError(
                f"asked for the mask without {k} heads; the model has {self.grid.size} "
                f"({self.grid})",
                code="head.count_out_of_range",
            )
        order = self.spec.order or {}
        choice: dict[str, JsonLike] = {
            "rule": "bottom",
            "k": k,
            "method": self.ordering,
            "languages": [order.get("language", self.language)],
            "score": self.spec.to_json(),
        }
        kept_heads = kept_heads_without(self.order[:k], self.grid.size)
        return Mask(self.grid, kept_heads, self.spec.model.to_json(), choice)

    def values_sha256(self) -> str:
        """sha256 of order, counts, answers, intervals and p-values (little endian)."""
        return arrays_sha256(
            (self.order, "<i8"),
            (self.removed, "<i8"),
            (self.correct, "|b1"),
            (self.groups, "<i8"),
            (self.low, "<f8"),
            (self.high, "<f8"),
            (self.p_values, "<f8"),
        )


def kept_heads_without(removed_indices: Ints, size: int) -> Bools:
    """Heads kept, bool [head], when those with the flat indices `gone` are removed."""
    kept_heads = np.ones(size, dtype=bool)
    kept_heads[removed_indices] = False
    return kept_heads


class AccuracyBand(NamedTuple):
    """Accuracy over several curves at the same counts of removed heads.

    Attributes:
        low: float [point], lowest accuracy.
        median: float [point], median accuracy.
        high: float [point], highest accuracy.
        removed: int [point], number of removed heads.
        ordering: The order of the curves.
        curves: Number of curves.
    """

    low: Floats
    median: Floats
    high: Floats
    removed: Ints
    ordering: str
    curves: int


def band(curves: Sequence[Curve]) -> AccuracyBand:
    """The band spanned by several curves of one grid, such as those of random orders.

    Raises HeadlabError without curves, or if their grids or counts of removed heads differ.
    """
    if not curves:
        raise HeadlabError("a band needs curves; give at least one", code="band.empty")
    first_curve = curves[0]
    for curve in curves[1:]:
        if curve.grid != first_curve.grid or not np.array_equal(curve.removed, first_curve.removed):
            raise HeadlabError(
                "a band needs curves of one head grid, measured at the same counts of removed "
                f"heads; given {first_curve.grid} at {len(first_curve.removed)} points and "
                f"{curve.grid} at {len(curve.removed)}",
                code="band.curves_differ",
            )
    accuracy = np.stack([curve.accuracy for curve in curves])
    median = np.median(accuracy, axis=0)
    return AccuracyBand(
        accuracy.min(axis=0),
        median,
        accuracy.max(axis=0),
        first_curve.removed,
        first_curve.ordering,
        len(curves),
    )


def removed_counts(heads: int, points: int | None = None) -> list[int]:
    """Number of removed heads at each point of a curve, from 0 to all.

    Args:
        heads: Number of heads of the model.
        points: Number of evenly spaced points; None for every count.

    Raises:
        HeadlabError: `points` is not from 2 to heads + 1.
    """
    if points is None:
        return list(range(heads + 1))
    if not 2 <= points <= heads + 1:
        raise HeadlabError(
            f"asked for {points} points; a curve of {heads} heads has 2 to {heads + 1}",
            code="curve.points_out_of_range",
        )
    steps = points - 1
    return [(2 * heads * point + steps) // (2 * steps) for point in range(points)]


# Curves as tables, with names that tell them apart.

ONE_POINT = 0.01


def curve_names(curves: Sequence[Curve]) -> list[str]:
    """Names that distinguish curves: language, ordering, or both.

    The seed too, if these are the same.
    """
    one_language = len({curve.language for curve in curves}) == 1
    one_ordering = len({curve.ordering for curve in curves}) == 1
    if len(curves) == 1:
        return [f"{curves[0].language} by {curves[0].ordering}"]
    if one_ordering and not one_language:
        names = [curve.language for curve in curves]
    elif one_language:
        names = [curve.ordering for curve in curves]
    else:
        names = [f"{curve.language} by {curve.ordering}" for curve in curves]
    unique_names = []
    for name, curve in zip(names, curves, strict=True):
        is_repeated = names.count(name) > 1
        unique_names.append(f"{name}, seed {_seed_of(curve)}" if is_repeated else name)
    return unique_names


def _seed_of(curve: Curve) -> Cell:
    """The seed of the scores that order the heads, or that of a curve without an order."""
    order = curve.spec.order
    seed = curve.spec.seed if order is None else order.get("seed")
    if isinstance(seed, list | dict):
        return None
    return seed


def removed_noun(curves: Sequence[Curve]) -> str:
    """What is removed along curves, in a word: "heads", or "players" where they differ."""
    nouns = {curve.grid.noun for curve in curves}
    return nouns.pop() if len(nouns) == 1 else "players"


def curve_summary(curves: Sequence[Curve]) -> Table:
    """A row per curve: its accuracy at the start, its mean, and how many heads can be removed.

    Heads are removed until one point of accuracy is lost.
    """
    noun = removed_noun(curves)
    columns = (
        "language",
        "ordered by",
        "seed",
        "split",
        "answers",
        f"all {noun}, %",
        "mean over the curve, %",
        f"{noun} gone for 1 point, estimate",
        f"{noun} gone for 1 point, interval",
        noun,
    )
    rows = []
    for curve in curves:
        row: tuple[Cell, ...] = (
            curve.language,
            curve.ordering,
            _seed_of(curve),
            curve.split,
            curve.n,
            100 * float(curve.accuracy[0]),
            100 * curve.area,
            curve.heads_until(ONE_POINT),
            curve.heads_until(ONE_POINT, "interval"),
            curve.grid.size,
        )
        rows.append(row)
    notes = (
        f"{noun[0].upper()}{noun[1:]} gone for 1 point: the most that can go before more than 1 point is "
        "lost; by the interval, a larger loss is ruled out at every count up to there. Each interval is for its "
        f"own count of {noun}: among many counts some are off by chance.",
        *dict.fromkeys(curve.caution for curve in curves if curve.caution),
        *omission_notes(curves),
    )
    formats = ("", "", "d", "", ",d", ".1f", ".1f", "d", "d", "d")
    return Table(
        "curve-summary", f"Accuracy as {noun} are removed", columns, formats, tuple(rows), notes
    )


def curve_points(curve: Curve, name: str) -> Table:
    """A row per count of removed heads: accuracy, and its difference from the untouched model.

    Args:
        curve: The curve.
        name: Name of the curve.
    """
    columns = (
        f"{removed_noun([curve])} removed",
        "accuracy, %",
        "difference, points",
        "low, points",
        "high, points",
        "p",
    )
    shares = 100 * np.stack([curve.accuracy, curve.difference, curve.low, curve.high], axis=1)
    points = zip(curve.removed.tolist(), shares.tolist(), curve.p_values.tolist(), strict=True)
    rows = tuple((removed_count, *cells, p) for removed_count, cells, p in points)
    formats = ("d", ".1f", "+.1f", "+.1f", "+.1f", ".4f")
    return Table("curve-points", f"Every point, {name}", columns, formats, rows)


# Two curves side by side.


def compare_areas(curve: Curve, reference_curve: Curve, seed: int = 0) -> PairedDifference:
    """Area of one curve minus that of the other, paired over the answers and resampled by group.

    Raises HeadlabError unless both are of the same examples.
    """
    if curve.spec.task != reference_curve.spec.task or not np.array_equal(
        curve.groups, reference_curve.groups
    ):
        raise HeadlabError(
            "the two curves were measured on different examples; compare curves of one language, "
            "split and size",
            code="curve.other_examples",
        )
    return paired_bootstrap(
        areas_by_answer(reference_curve),
        areas_by_answer(curve),
        group_labels(curve.groups),
        np.random.default_rng(seed),
    )


def areas_by_answer(curve: Curve) -> Floats:
    """Each answer's contribution to the area under a curve, float [answer].

    Their mean is `Curve.area`.
    """
    return np.asarray(
        np.trapezoid(curve.correct.astype(np.float64), curve.removed / curve.removed[-1], axis=0)
    )


def group_labels(groups: Ints) -> tuple[str, ...]:
    """Labels that sort like the numbers of groups; draws are then as with their names."""
    return tuple(f"{group:012d}" for group in groups.tolist())
