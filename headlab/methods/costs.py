"""Expected cost of methods, actual cost of results, and each language's main result."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import scipy

from headlab.core import (
    HEADS,
    Bools,
    HeadGrid,
    HeadlabError,
    OptionValue,
    canonical_json,
    integer_in,
    is_beyond_weights,
    is_number,
    number_in,
    optional_integer_in,
    part,
    value_function_of,
)
from headlab.methods.defaults import method_on
from headlab.methods.method import Method, Options, walk_length
from headlab.methods.table import (
    AVERAGE_COST,
    CANDIDATES_A_NAME,
    DEFAULT_METHOD,
    METHODS,
    PLANNED_COST,
)
from headlab.results import (
    ANYTIME,
    AVERAGE,
    PLANNED,
    Curve,
    HeadScores,
    Result,
    adjusted_p_values,
    has_planned_intervals,
)
from headlab.stats import benjamini_hochberg

# Which stored result represents a language: the rule shared by the pages and the command line.

# Parts of a task's spec that differ between languages; dev sets may differ in size.
DIFFERS_BY_LANGUAGE = ("language", "data_hash", "size")
# Options that set the precision, not the estimand: they may differ between results shown side by
# side. `round` occurs in results stored before `target` existed.
PRECISION = ("samples", "target", "stop", "round", "interval", "names")
EARLIER_VERSION = (
    "earlier version"  # in the names of variants from before their settings were renewed
)


@dataclass(frozen=True)
class ChosenResults:
    """One result per language, all of one variant, so that languages can be compared.

    Attributes:
        results: The results by language, in the requested order.
        others: The best result of each variant that is not chosen.
    """

    results: Mapping[str, Result[HeadScores]] = field(default_factory=dict)
    others: tuple[Result[HeadScores], ...] = ()


def spec_of(scores: HeadScores, *path: str) -> Any:
    """The value at a path in the scores' spec, None where the spec lacks it."""
    return part(scores.spec, *path)


def options_of(scores: HeadScores) -> dict[str, OptionValue]:
    """The options that scores were made with.

    Options that are missing from the spec take the method's defaults.
    """
    options: dict[str, OptionValue] = {}
    method = METHODS.get(scores.method)
    if method is not None:
        options |= {name: option.default for name, option in method.options.items()}
    stored_options = spec_of(scores, "method", "options")
    if isinstance(stored_options, Mapping):  # another program's may be anything
        options |= stored_options
    return options


def settings(scores: HeadScores) -> dict[str, OptionValue]:
    """The options that define the estimand, as in `options_of`."""
    return {name: value for name, value in options_of(scores).items() if name not in PRECISION}


def renewal_of(spec: Mapping[str, object]) -> str:
    """What is different about scores from before their settings were renewed, in a clause.

    It is empty for other scores.

    Args:
        spec: Of the scores, or any that says the method as theirs does: name, options, version.
    """
    method = part(spec, "method", "name")
    options = part(spec, "method", "options")
    recorded_version = part(spec, "method", "version")
    version = recorded_version if isinstance(recorded_version, int) else 1
    if not isinstance(method, str) or version >= renewed_in(method, options):
        return ""
    return METHODS[method].renewal


def order_renewal_of(spec: Mapping[str, object]) -> str:
    """As `renewal_of`, for the scores that ordered a curve.

    A clause on how they differ from those made today; empty if they do not.
    """
    order = part(spec, "order")
    if not isinstance(order, Mapping):
        return ""
    method = {
        "name": order.get("method"),
        "options": order.get("options"),
        "version": order.get("version", 1),
    }
    return renewal_of({"method": method})


def renewed_in(method: object, options: object) -> int:
    """As `Method.renewed_in`, of anything that a file may name.

    It is 1 for a method that is not known here.
    """
    if not isinstance(method, str) or method not in METHODS:
        return 1
    return METHODS[method].renewed_in(options if isinstance(options, Mapping) else {})


def variant(scores: HeadScores) -> str:
    """Key of all settings but language and precision.

    Results of one variant may be shown side by side.
    """
    task_spec = spec_of(scores, "task") or {}
    task = {name: value for name, value in task_spec.items() if name not in DIFFERS_BY_LANGUAGE}
    parts = [
        spec_of(scores, "model"),
        task,
        spec_of(scores, "ablation"),
        scores.method,
        settings(scores),
    ]
    parts += [scores.estimand, spec_of(scores, "seed"), scores.grid.to_json()]
    if scores.grid.members_sha256:  # groups of neurons formed elsewhere are other players
        parts.append(scores.grid.members_sha256)
    return canonical_json([*parts, EARLIER_VERSION] if renewal_of(scores.spec) else parts)


def _rank(result: Result[HeadScores]) -> tuple[int, int, bool, float, str, str]:
    """Sort key of a result, larger is better.

    More examples count first, then more heads that were sampled, then intervals that are
    guaranteed, then narrower ones, then a later time of creation.
    """
    size = spec_of(result.record, "task", "size") or 0
    width = result.record.half_width
    narrowness = -math.inf if width is None else -float(np.median(width))
    is_guaranteed = not has_planned_intervals(result.record)
    return (
        int(size),
        int(result.record.tested.sum()),
        is_guaranteed,
        narrowness,
        str(result.meta.get("created") or ""),
        result.key,
    )


def _has_default_settings(result: Result[HeadScores]) -> bool:
    """Whether a result was made with its method's default settings on its task."""
    if result.record.method not in METHODS:
        return False
    method = method_on(result.record.method, str(spec_of(result.record, "task", "name")))
    defaults = {}
    for name, option in method.options.items():
        if name not in PRECISION:
            defaults[name] = option.default
    return settings(result.record) == defaults


def select(
    results: Iterable[Result[HeadScores]],
    languages: Sequence[str],
    preferred_variant: str | None = None,
) -> ChosenResults:
    """The best result of each language, from the variant that covers the most languages.

    Between results that differ only in precision (`PRECISION`), the one on more examples wins, then
    the one that sampled more heads, then the one whose intervals are guaranteed, then the one with the smaller median half-width, then
    the later `created`. Between variants that
    cover equally many languages, the method's default settings win, then those that have not been
    renewed since, then the better result by the same rule.

    Args:
        results: Results of one model name, task and method.
        languages: Languages, in the order of the choice.
        preferred_variant: Key of the variant to take instead; nothing is chosen if there is none.
    """
    results_by_variant: dict[str, dict[str, Result[HeadScores]]] = {}
    for result in sorted(results, key=_rank):  # a better one replaces those before it
        if result.record.language in languages:
            by_language = results_by_variant.setdefault(variant(result.record), {})
            by_language[result.record.language] = result
    ranked_variants = sorted(
        results_by_variant,
        key=lambda key: (key == preferred_variant, _merit(results_by_variant[key])),
        reverse=True,
    )
    if not ranked_variants:
        return ChosenResults()
    best_variant = ranked_variants[0]
    best_results: dict[str, Result[HeadScores]] = {}
    other_variants = ranked_variants
    if preferred_variant in (None, best_variant):
        best_results = results_by_variant[best_variant]
        other_variants = ranked_variants[1:]
    others = [max(results_by_variant[key].values(), key=_rank) for key in other_variants]
    chosen = {name: best_results[name] for name in languages if name in best_results}
    return ChosenResults(chosen, tuple(others))


def _merit(
    results: Mapping[str, Result[HeadScores]],
) -> tuple[int, bool, bool, tuple[int, int, bool, float, str, str]]:
    """Sort key of a variant by its results, larger is better."""
    best_result = max(results.values(), key=_rank)
    return (
        len(results),
        _has_default_settings(best_result),
        not renewal_of(best_result.record.spec),
        _rank(best_result),
    )


# Expected cost and limits of a method, how far its intervals can be trusted, and the actual cost of
# a result.

# Where there are so few heads, the sign of the last one moves the values of all noticeably.
FEW_HEADS = 12
# Typical mean square of a gain, observed; `headlab.methods.sampling` starts from it too.
USUAL_SQUARE = 0.02
PLANNED_CAUTION = (
    "intervals and p-values are approximate: they hold at a few planned looks, not at every look"
)
"""What to know of planned intervals, in a clause."""


def require_few_heads(method: Method, heads: int, noun: str = HEADS) -> None:
    """Raise HeadlabError if a method cannot handle this many heads or other players.

    Args:
        method: The method.
        heads: Their number.
        noun: What they are called.
    """
    if method.most_heads is not None and heads > method.most_heads:
        raise HeadlabError(
            f"{method.key} handles up to {method.most_heads} {noun}, and this model has {heads}; use {DEFAULT_METHOD}, "
            "whose intervals say how far off its values may be",
            code="method.heads_too_many",
        )


def is_encoder(grid: HeadGrid) -> bool:
    """Whether heads are those of an encoder, without a decoder."""
    return all(stack.base == "encoder" for stack in grid.stacks)


def require_encoder(method: Method, grid: HeadGrid) -> None:
    """Raise HeadlabError if a method is for encoders only and a model has a decoder."""
    if method.encoders_only and not is_encoder(grid):
        stacks = [stack.name for stack in grid.stacks if stack.base != "encoder"]
        raise HeadlabError(
            f"{method.key} is for encoders, and this model has a stack of another kind ({', '.join(stacks)}): the "
            f"slopes of decoders do not foresee what their heads do; use {DEFAULT_METHOD}",
            code="method.decoder_unsuited",
        )


def require_candidates(options: Options, grid: HeadGrid) -> None:
    """Raise HeadlabError if heads are to be named where candidates cannot be chosen or tested.

    Args:
        options: Resolved options of a method.
        grid: Heads of the model.
    """
    names = optional_integer_in({"names": None, **options}, "names")
    if names is None:
        return
    interval = str(options.get("interval", ANYTIME))
    if interval != ANYTIME:
        raise HeadlabError(
            f"names={names} ends a run at a look that is not planned, but intervals are {interval}; leave interval out",
            code="method.names_need_anytime",
        )
    if CANDIDATES_A_NAME * names > grid.size:
        raise HeadlabError(
            f"names={names} takes {CANDIDATES_A_NAME * names} candidates, and this model has {grid.size} heads; name "
            f"{grid.size // CANDIDATES_A_NAME} at most, or leave names out",
            code="method.names_too_many",
        )
    if not grid.has_only_heads:
        raise no_candidates(
            "how well slopes foresee other players than heads has not been measured"
        )
    if not is_encoder(grid):
        raise no_candidates("slopes of a model with a decoder do not foresee what its heads do")


def no_candidates(reason: str) -> HeadlabError:
    """The error that heads cannot be named.

    Args:
        reason: Why there are no slopes, in a clause.
    """
    return HeadlabError(
        f"candidates for harmful heads are chosen by slopes, and there are none here: {reason}; leave names out, and "
        "all heads are sampled",
        code="method.names_need_slopes",
    )


def require_stand_in(method: Method, ablation: str, options: Options) -> None:
    """Raise HeadlabError if a method, with these options, cannot put in what an ablation does.

    Zeros and means stand in every method's scores.

    Args:
        method: The method.
        ablation: What stands in a closed player's place.
        options: Of the method.
    """
    if not is_beyond_weights(ablation):
        return
    if not method.takes_other_texts:
        able = ", ".join(key for key, row in METHODS.items() if row.takes_other_texts)
        raise HeadlabError(
            f"{method.key} puts nothing in the place of a closed head, and ablation {ablation} is asked for; use one "
            f"of {able}, or --ablation zero",
            code="ablation.method",
        )
    if options.get("names") is not None:
        raise no_candidates(why_unforeseen(ablation))


def why_unforeseen(ablation: str) -> str:
    """Why `shapley` takes no slopes under an ablation, in a clause; empty if it may."""
    if is_beyond_weights(ablation):
        return f"how well slopes foresee {ablation} ablation has not been measured"
    return ""


def require_players(method: Method, grid: HeadGrid, options: Options) -> None:
    """Raise HeadlabError if a method, with these options, cannot score what is switched.

    Args:
        method: The method.
        grid: The players of the model.
        options: Resolved options.
    """
    if grid.has_only_heads:
        return
    require_sees_players(method, grid.kinds)
    kinds = ", ".join(grid.kinds)
    if options.get("form") == "token":
        raise HeadlabError(
            f"{method.key} with form=token scores heads only, and {kinds} are switched; use "
            "form=example or form=batch",
            code="method.players",
        )


def require_sees_players(method: Method, kinds: Sequence[str]) -> None:
    """Raise HeadlabError if a method scores heads only, and other players are switched.

    Args:
        method: The method.
        kinds: Of the players that are switched.
    """
    if method.sees_players or tuple(kinds) == (HEADS,):
        return
    able = ", ".join(key for key, row in METHODS.items() if row.sees_players)
    raise HeadlabError(
        f"{method.key} scores heads only, and {', '.join(kinds)} are switched; use one of {able}",
        code="method.players",
    )


def caution(method: str) -> str:
    """Caveat about a method's intervals, a clause without a full stop, or empty."""
    if method in METHODS:
        return METHODS[method].caution.rstrip(".")
    return ""


# What to know beside the numbers of results: one function for pages, command line and reports.

BY_SIGN = "sign"  # the value of option `stop` that lets a head go once its sign is decided


def stopped_at_sign(scores: HeadScores) -> Bools:
    """Heads whose sampling ended because their sign was decided, bool [head].

    Their values lean away from 0. Heads that had reached the target width or the largest number of
    samples by then are not among them.
    """
    no_heads = np.zeros(scores.grid.size, bool)
    method = METHODS.get(scores.method)
    if method is None or scores.samples is None or scores.half_width is None:
        return no_heads
    is_decided = scores.helpful | scores.harmful
    if names_of(scores) is not None:  # only a head that is named is let go
        return no_heads
    if method.stops_at_sign:
        return np.asarray(is_decided & (scores.samples < _samples(options_of(scores))))
    target = _sign_target(scores)
    if target is None or method.interval_check == "all heads together":
        return no_heads
    before_all_samples = scores.samples < _samples(options_of(scores))
    return np.asarray(is_decided & before_all_samples & (scores.half_width > target))


def _sign_target(scores: HeadScores) -> float | None:
    """The target half-width of a run whose option `stop` is "sign".

    It is None for other runs, which no sign ends, as for runs from before there was a target.
    """
    stored_options = spec_of(scores, "method", "options") or {}
    target = stored_options.get("target")
    if names_of(scores) is not None:
        return None
    if stored_options.get("stop") != BY_SIGN or not is_number(target):
        return None
    if stored_options.get("interval") == AVERAGE:  # such a run ends for all heads together
        return None
    return float(target)


def names_of(scores: HeadScores) -> OptionValue:
    """How many harmful heads a run was to name; None for runs that name none."""
    return options_of(scores).get("names")


def heads_named_early(scores: HeadScores) -> Bools:
    """Candidates that were let go because they had been named, bool [head].

    Their values lean away from 0. A head is let go only where a run with names has named it, as
    harmful among all candidates by Benjamini and Hochberg, before its last sample.
    """
    no_heads = np.zeros(scores.grid.size, bool)
    if names_of(scores) is None or scores.samples is None or scores.p_values is None:
        return no_heads
    (adjusted_p,) = adjusted_p_values([scores], benjamini_hochberg, claims_harm=True)
    is_named = adjusted_p <= 1 - scores.level
    return np.asarray(is_named & (scores.samples < _samples(options_of(scores))))


def ended_at_sign(scores: HeadScores) -> bool:
    """Whether a run that ends for all heads at once may have been ended by its last head's sign.

    Its values lean away from 0, each by about as much as a single head's would, over the number of
    heads.
    """
    method = METHODS.get(scores.method)
    if method is None or method.interval_check != "all heads together":
        return False
    if scores.samples is None or _sign_target(scores) is None:
        return False
    orders = _samples(options_of(scores))
    heads_removed = walk_length({"estimand": scores.estimand}, scores.grid.size)
    return int(scores.samples.sum()) < orders * heads_removed


def lean_remark(scores: Iterable[HeadScores]) -> str:
    """Which values lean away from 0 because sampling ended at a decided sign, in a clause.

    It is empty if none does.
    """
    results = list(scores)
    return "; ".join(filter(None, (_lean_at_sign(results), _lean_of_names(results))))


def _lean_of_names(results: Sequence[HeadScores]) -> str:
    """As `lean_remark`, of heads that were let go as they were named."""
    heads_named = sum(int(heads_named_early(result).sum()) for result in results)
    if not heads_named:
        return ""
    were = "head was" if heads_named == 1 else "heads were"
    return (
        f"{heads_named:,} {were} let go once named as harmful: such values lean away from 0 (docs/statistics.md); "
        "signs and intervals are not touched by it; compare sizes without names only"
    )


def _lean_at_sign(results: Sequence[HeadScores]) -> str:
    """As `lean_remark`, of heads that were let go at a decided sign."""
    heads_stopped = sum(int(stopped_at_sign(result).sum()) for result in results)
    some_ended_together = any(
        result.grid.size <= FEW_HEADS and ended_at_sign(result) for result in results
    )
    if not heads_stopped and not some_ended_together:
        return ""
    heads = sum(result.grid.size for result in results)
    noun = results[0].grid.noun
    which_values = (
        f"{heads_stopped:,} of {heads:,} {noun} were let go as soon as their sign was decided: "
        "their values"
    )
    if not heads_stopped:
        which_values = f"sampling ended as soon as the last sign was decided, and the {noun} are few: their values"
    has_stop = "stop" in options_of(results[0])
    advice = "compare sizes with stop=width only" if has_stop else "do not compare their sizes"
    method = METHODS.get(results[0].method)
    amount = f", {method.sign_lean}" if method is not None and method.sign_lean else ""
    return (
        f"{which_values} lean away from 0{amount} (docs/statistics.md); signs and intervals are not "
        f"touched by it; {advice}"
    )


def cautions(scores: Iterable[HeadScores]) -> tuple[str, ...]:
    """Caveats about claims that rest on results of one method; mostly none.

    Each is a clause without a full stop.
    """
    clauses = []
    for result in scores:
        clauses += [caution(result.method), renewal_of(result.spec)]
        if has_planned_intervals(result):
            clauses.append(PLANNED_CAUTION)
    return tuple(dict.fromkeys(clause for clause in clauses if clause))


def remarks(scores: Iterable[HeadScores]) -> tuple[str, ...]:
    """All that a reader must know beside the values of results of one method.

    Each is a clause without a full stop.
    """
    results = list(scores)
    return tuple(filter(None, (*cautions(results), lean_remark(results), tested_remark(results))))


def tested_remark(scores: Iterable[HeadScores]) -> str:
    """Which heads were tested where not all were, in a clause; empty where all were."""
    counts = []
    for result in scores:
        tested = int(result.tested.sum())
        if names_of(result) is not None and tested < result.grid.size:
            counts.append(f"{tested} of {result.grid.size} heads of {result.language}")
    if not counts:
        return ""
    return (
        f"only {', '.join(counts)} were sampled, the candidates by slopes, and corrections count these alone; the "
        "other heads are not known to do no harm"
    )


def remarks_on_choice(scores: Iterable[HeadScores], rule: str) -> tuple[str, ...]:
    """What a reader must know beside heads that a rule chose.

    Clauses as in `remarks`.

    Args:
        scores: Results of one method.
        rule: One of `headlab.masks.rules`. Of "harmful" only signs count, which do not lean, and
            which heads were tested.
    """
    results = list(scores)
    if rule == "harmful":
        return tuple(filter(None, (*cautions(results), tested_remark(results))))
    return remarks(results)


def _samples(options: Options) -> int:
    """The largest number of samples of a run.

    It is 0 where the options, which may be from a file, name no number.
    """
    samples = options.get("samples", 0)
    if is_number(samples):
        return int(samples)
    return 0


# Half-width, as a share of the span, below which no realistic number of samples suffices.
NARROWEST = 1e-6


def expected_forwards(
    method: Method,
    options: Options,
    heads: int,
    examples: int,
    earlier_scores: Iterable[HeadScores],
    *,
    resumable: bool = True,
    has_slopes: bool = True,
    likelihood: bool = False,
) -> tuple[int, str]:
    """Forward passes that a method should take for one language, and their basis in words.

    Where a run may end at a target width, it rests on the median of earlier runs over the
    languages, without those that fewer samples may have ended; without any, on a rule for how many
    samples an interval of that width needs.

    Args:
        method: The method.
        options: Its resolved options.
        heads: The number of heads of the model.
        examples: The number of examples of the language.
        earlier_scores: Results of the same model, task, method and options (see `is_alike`).
        resumable: Whether the model's layers can be resumed; otherwise no gain is foreseen, and all
            of them are computed.
        has_slopes: Whether slopes are taken of the model, where the method takes any: it is an
            encoder.
        likelihood: Whether the task is one of likelihood.

    Raises:
        HeadlabError: A method from a package cannot say what it costs.
    """
    max_forwards = method.max_forwards(options, heads, examples)
    # On tasks of likelihood a decoder's gains are foreseen of accuracy alone, on others of every
    # value (`headlab.methods.model_game`).
    is_accuracy = options.get("value", "accuracy") == "accuracy"
    resumable = resumable and (has_slopes or is_accuracy or not likelihood)
    if not _may_end_at_target(options):
        forwards = _forwards_of_samples(
            method, options, heads, examples, resumable=resumable, has_slopes=has_slopes
        )
        return forwards, _basis_without_target(method, options)
    forwards_by_language = {}
    for scores in earlier_scores:
        if _ended_at_target(scores, _samples(options)):
            forwards_by_language[scores.language] = scores.example_forwards
    if forwards_by_language:
        plural = "s" if len(forwards_by_language) > 1 else ""
        basis = f"samples as in {len(forwards_by_language)} language{plural} scored before"
        median_forwards = float(np.median(list(forwards_by_language.values())))
        return min(max_forwards, round(median_forwards)), basis
    samples, basis = _samples_to_target(method, options, examples, resumable)
    expected_options = {**options, "samples": samples}
    forwards = _forwards_of_samples(
        method, expected_options, heads, examples, resumable=resumable, has_slopes=has_slopes
    )
    return forwards, basis


def _may_end_at_target(options: Options) -> bool:
    """Whether intervals may end a run, by options that mean what headlab's own do.

    No width ends one that names heads.
    """
    if options.get("names") is not None:
        return False
    return options.get("target") is not None and {"samples", "value", "level"} <= options.keys()


def _basis_without_target(method: Method, options: Options) -> str:
    """What the forecast of a run rests on that no width ends."""
    if method.costs.assumed:
        return (
            f"{method.key} says in words only what it costs ({method.costs.words}): one forward an "
            "example is assumed"
        )
    if options.get("names") is not None and _samples(options):
        candidates = CANDIDATES_A_NAME * integer_in(options, "names")
        return f"every sample of {candidates} candidates is drawn at most"
    if _samples(options):
        return "every sample is drawn"
    return "a fixed number of forward passes"


def _samples_to_target(
    method: Method, options: Options, examples: int, resumable: bool
) -> tuple[int, str]:
    """Samples after which intervals should reach the target width, before any gain is known.

    Also gives what that rests on, in words.
    """
    max_samples = _samples(options)
    screening = method.costs.screening if resumable else None
    largest_weight = 1 if screening is None else screening.largest_weight
    samples = math.ceil(min(max_samples, typical_samples(options, largest_weight)))
    if method.interval_check != "every cycle" or samples >= max_samples:
        return samples, f"{samples:,} samples per head, typical for intervals of this width"
    samples = min(max_samples, samples + -samples % examples)
    return samples, (
        f"{samples:,} samples per head, typical for intervals of this width, "
        f"in whole cycles of the {examples:,} examples"
    )


def _ended_at_target(scores: HeadScores, max_samples: int) -> bool:
    """Whether a run ended at its target, and not at a maximum of samples below this one."""
    max_samples_then = _samples(spec_of(scores, "method", "options") or {})
    if max_samples_then >= max_samples:
        return True
    return scores.samples is not None and 2 * int(scores.samples.max()) < max_samples_then


def _forwards_of_samples(
    method: Method,
    options: Options,
    heads: int,
    examples: int,
    *,
    resumable: bool,
    has_slopes: bool,
) -> int:
    """Forward passes of a run that draws all its samples; arguments as of `expected_forwards`."""
    slope_forwards = method.slope_forwards(options, examples)
    gain_forwards = method.max_forwards(options, heads, examples) - slope_forwards
    forwards = _after_screening(method, options, gain_forwards, resumable)
    if has_slopes:
        forwards += slope_forwards
    return forwards


def _after_screening(method: Method, options: Options, forwards: int, resumable: bool) -> int:
    """Forward passes without those that a gradient spares.

    One pass a sample is added for the gradient.
    """
    screening = method.costs.screening
    if screening is None or not resumable:
        return forwards
    may_end_early = options.get("target") is not None or options.get("names") is not None
    computed_share = (
        screening.computed_with_target if may_end_early else screening.computed_without_target
    )
    return math.ceil(computed_share * forwards) + _samples(options)


def typical_samples(options: Options, largest_weight: int = 1) -> float:
    """Samples after which a head's interval should reach the target width.

    No gain is known yet.

    It is the rule of `headlab.methods.sampling`, by which a running job foresees its remaining
    time.

    Args:
        options: Resolved options with a target.
        largest_weight: The largest weight of a gain.
    """
    width = number_in(options, "target") / value_function_of(str(options["value"])).span
    if width < NARROWEST:
        return math.inf
    interval = options.get("interval")
    if interval in (PLANNED, AVERAGE):
        reach = float(scipy.stats.norm.isf((1 - number_in(options, "level")) / 2)) / width
        samples = USUAL_SQUARE * reach**2
        return samples * (PLANNED_COST if interval == PLANNED else AVERAGE_COST)
    price = math.log(2 / (1 - number_in(options, "level"))) + 1
    return price * (2 * USUAL_SQUARE / width**2 + largest_weight / width)


def is_alike(scores: HeadScores, method: Method, options: Options) -> bool:
    """Whether a result was made by this version of a method with these options.

    The option `samples` may differ.
    """
    if not is_current(scores, method):
        return False
    stored_options = options_of(scores)
    for name, option in method.options.items():
        if name != "samples" and stored_options[name] != options.get(name, option.default):
            return False
    return True


def is_current(scores: HeadScores, method: Method) -> bool:
    """Whether a result was made by this version of a method.

    Earlier versions took different forward passes.
    """
    if scores.method != method.key:
        return False
    version: object = spec_of(scores, "method", "version") or 1
    return version == method.version_of(options_of(scores))


def pace(
    results: Iterable[HeadScores | Curve], model: str, task: str, method: str | None = None
) -> float | None:
    """Median seconds per forward pass in stored scores, or curves; None without any.

    Args:
        results: The scores or curves.
        model: Name of the model whose results count.
        task: Name of the task whose results count.
        method: The method whose results count, since most of Shapley's forward passes are partial;
            None for all.
    """
    seconds_per_forward = []
    for result in results:
        names = (part(result.spec, "model", "name"), part(result.spec, "task", "name"))
        is_of_method = method in (None, getattr(result, "method", None))
        if result.example_forwards and names == (model, task) and is_of_method:
            seconds_per_forward.append(result.seconds / result.example_forwards)
    if seconds_per_forward:
        return float(np.median(seconds_per_forward))
    return None


@dataclass(frozen=True)
class Cost:
    """Cost of a result, and the precision that it reached.

    Attributes:
        forwards: Number of forward passes of one example each.
        seconds: Seconds of computing.
        samples: Minimum, median and maximum number of samples over the heads; None without samples.
        helpful: Number of heads that are decided to help, like the next three None for scores
            without signs.
        harmful: Number of heads that are decided to harm.
        narrow: Number of undecided heads whose interval is at least as narrow as the run's target,
            or, where it had none, the method's default one.
        wide: Number of the other undecided heads.
        median_half_width: Median half-width, in the score's unit; None without intervals.
        largest_half_width: Largest half-width, in the score's unit; None without intervals.
    """

    forwards: int
    seconds: float
    samples: tuple[int, float, int] | None
    helpful: int | None
    harmful: int | None
    narrow: int | None
    wide: int | None
    median_half_width: float | None
    largest_half_width: float | None


def cost_of(scores: HeadScores) -> Cost:
    """The cost of a result."""
    samples_by_head = scores.samples
    samples = None
    if samples_by_head is not None:
        samples = (
            int(samples_by_head.min()),
            float(np.median(samples_by_head)),
            int(samples_by_head.max()),
        )
    half_width = scores.half_width
    cost = Cost(
        forwards=scores.example_forwards,
        seconds=scores.seconds,
        samples=samples,
        helpful=None,
        harmful=None,
        narrow=None,
        wide=None,
        median_half_width=None if half_width is None else float(np.median(half_width)),
        largest_half_width=None if half_width is None else float(half_width.max()),
    )
    if half_width is None or not scores.signed:
        return cost
    is_undecided = ~(scores.helpful | scores.harmful)
    is_narrow: Bools = is_undecided & (half_width <= target_half_width_of(scores))
    return replace(
        cost,
        helpful=int(scores.helpful.sum()),
        harmful=int(scores.harmful.sum()),
        narrow=int(is_narrow.sum()),
        wide=int((is_undecided & ~is_narrow).sum()),
    )


def target_half_width_of(scores: HeadScores) -> float:
    """The target half-width of a run, in the score's unit; the default one where it had none."""
    stored_target = spec_of(scores, "method", "options", "target")
    if is_number(stored_target):
        return float(stored_target)
    option = METHODS[DEFAULT_METHOD].options["target"]
    method = METHODS.get(scores.method)
    if method is not None and "target" in method.options:
        option = method.options["target"]
    return float(cast("float", option.default))
