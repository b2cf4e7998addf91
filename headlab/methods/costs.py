"""Expected cost and limits of methods, actual cost of results, and the result that represents each language."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from headlab.errors import HeadlabError
from headlab.methods.method import Method, Options, walk_length
from headlab.methods.table import DEFAULT_METHOD, METHODS
from headlab.options import OptionValue, number_in
from headlab.records import Bools, canonical_json, part
from headlab.scores import Curve, HeadScores
from headlab.store import Result
from headlab.tables import is_number
from headlab.value_functions import value_of

# Which stored result represents a language: the rule shared by the pages and the command line.

# Parts of a task's spec that differ between languages; dev sets may differ in size.
PER_LANGUAGE = ("language", "data_hash", "size")
# Options that set the precision, not the estimand: they may differ between results shown side by side.
# `round` occurs in results stored before `target` existed.
PRECISION = ("samples", "target", "stop", "round")
EARLIER = "earlier version"  # in the names of variants from before their settings were renewed


@dataclass(frozen=True)
class Chosen:
    """One result per language, all of one variant, so that languages can be compared.

    results: by language, in the requested order.  others: the best result of each variant not chosen.
    """

    results: Mapping[str, Result[HeadScores]] = field(default_factory=dict)
    others: tuple[Result[HeadScores], ...] = ()


def spec_of(scores: HeadScores, *path: str) -> Any:
    """The value at a path in the scores' spec, None where the spec lacks it."""
    return part(scores.spec, *path)


def options_of(scores: HeadScores) -> dict[str, OptionValue]:
    """The options that scores were made with; options missing from the spec take the method's defaults."""
    known = METHODS.get(scores.method)
    defaults = (
        {} if known is None else {name: option.default for name, option in known.options.items()}
    )
    own = spec_of(scores, "method", "options")
    return {
        **defaults,
        **(own if isinstance(own, Mapping) else {}),
    }  # another program's may be anything


def settings(scores: HeadScores) -> dict[str, OptionValue]:
    """The options that define the estimand, as in `options_of`."""
    return {name: value for name, value in options_of(scores).items() if name not in PRECISION}


def superseded(spec: Mapping[str, object]) -> str:
    """What is different about scores from before their settings were renewed, in a clause; empty for other scores.

    Args:
        spec: Of the scores, or any that says the method as theirs does: name, options, version.
    """
    method = part(spec, "method", "name")
    recorded = part(spec, "method", "version")
    version = recorded if isinstance(recorded, int) else 1
    if not isinstance(method, str) or version >= renewed_in(
        method, part(spec, "method", "options")
    ):
        return ""
    return METHODS[method].renewal


def earlier_order(spec: Mapping[str, object]) -> str:
    """How the scores that order a curve differ from those of today, in a clause; empty if they do not."""
    order = part(spec, "order")
    if not isinstance(order, Mapping):
        return ""
    method = {
        "name": order.get("method"),
        "options": order.get("options"),
        "version": order.get("version", 1),
    }
    return superseded({"method": method})


def renewed_in(method: object, options: object) -> int:
    """As `Method.renewed_in`, of anything that a file may name; 1 for a method that is not known here."""
    if not isinstance(method, str) or method not in METHODS:
        return 1
    return METHODS[method].renewed_in(options if isinstance(options, Mapping) else {})


def variant(scores: HeadScores) -> str:
    """Key of all settings but language and precision: results of one variant may be shown side by side."""
    task = {k: v for k, v in (spec_of(scores, "task") or {}).items() if k not in PER_LANGUAGE}
    parts = [
        spec_of(scores, "model"),
        task,
        spec_of(scores, "ablation"),
        scores.method,
        settings(scores),
    ]
    parts += [scores.estimand, spec_of(scores, "seed"), scores.grid.to_json()]
    return canonical_json([*parts, EARLIER] if superseded(scores.spec) else parts)


def _rank(result: Result[HeadScores]) -> tuple[int, float, str, str]:
    """Sort key, larger is better: more examples, then narrower intervals, then created later, then the key."""
    size, width = spec_of(result.record, "task", "size") or 0, result.record.half_width
    narrow = -math.inf if width is None else -float(np.median(width))
    return int(size), narrow, str(result.meta.get("created") or ""), result.key


def _has_default_settings(result: Result[HeadScores]) -> bool:
    """Whether a result was made with its method's default settings."""
    known = METHODS.get(result.record.method)
    if known is None:
        return False
    defaults = {
        name: option.default for name, option in known.options.items() if name not in PRECISION
    }
    return settings(result.record) == defaults


def select(
    results: Iterable[Result[HeadScores]], languages: Sequence[str], wanted: str | None = None
) -> Chosen:
    """The best result of each language, from the variant that covers the most languages.

    Between results that differ only in precision (`PRECISION`), the one on more examples wins, then the
    one with the smaller median half-width, then the later `created`. Between variants that cover equally
    many languages, the method's default settings win, then those that have not been renewed since, then the better
    result by the same rule.  results: of one model name, task and method.  wanted: key of the variant to take instead.
    """
    variants: dict[str, dict[str, Result[HeadScores]]] = {}
    for result in sorted(results, key=_rank):
        if result.record.language in languages:
            variants.setdefault(variant(result.record), {})[result.record.language] = result
    ranked = sorted(variants, key=lambda key: (key == wanted, _merit(variants[key])), reverse=True)
    if not ranked:
        return Chosen()
    best = {} if wanted not in (None, ranked[0]) else variants[ranked[0]]
    others = tuple(
        max(variants[key].values(), key=_rank) for key in ranked if variants[key] is not best
    )
    return Chosen({name: best[name] for name in languages if name in best}, others)


def _merit(
    group: Mapping[str, Result[HeadScores]],
) -> tuple[int, bool, bool, tuple[int, float, str, str]]:
    top = max(group.values(), key=_rank)
    return (
        len(group),
        _has_default_settings(top),
        not superseded(top.record.spec),
        max(map(_rank, group.values())),
    )


# Expected cost and limits of a method, how far its intervals can be trusted, and the actual cost of a result.

FEW_HEADS = 12  # of so many at most, the last one's sign moves the values of all noticeably
USUAL_SQUARE = (
    0.02  # typical mean square of a gain, observed; `headlab.methods.sampling` starts from it too
)


def refuse(method: Method, heads: int) -> None:
    """Raise HeadlabError if a method cannot handle this many heads."""
    if method.most_heads is not None and heads > method.most_heads:
        raise HeadlabError(
            f"{method.key} handles up to {method.most_heads} heads, and this model has {heads}; use {DEFAULT_METHOD}, "
            "whose intervals say how far off its values may be",
            code="method.heads_too_many",
        )


def caution(method: str) -> str:
    """Caveat about a method's intervals, a clause without a full stop, or empty."""
    return METHODS[method].caution.rstrip(".") if method in METHODS else ""


# What to know beside the numbers of results: one function for pages, command line and reports.

BY_SIGN = "sign"  # the value of option `stop` that lets a head go once its sign is decided


def stopped_at_sign(scores: HeadScores) -> Bools:
    """Heads whose sampling ended because their sign was decided, bool [head]: their values lean away from 0.

    Not those that had reached the target width or the largest number of samples by then.
    """
    none = np.zeros(scores.grid.size, bool)
    known = METHODS.get(scores.method)
    if known is None or scores.samples is None or scores.half_width is None:
        return none
    decided = scores.helpful | scores.harmful
    if known.stops_at_sign:
        return np.asarray(decided & (scores.samples < _samples(options_of(scores))))
    target = _sign_target(scores)
    if target is None or known.interval_check == "all heads together":
        return none
    early = scores.samples < _samples(options_of(scores))
    return np.asarray(decided & early & (scores.half_width > target))


def _sign_target(scores: HeadScores) -> float | None:
    """The target half-width of a run whose option `stop` is "sign"; None for other runs, which no sign ends."""
    recorded = spec_of(scores, "method", "options") or {}
    target = recorded.get("target")  # runs from before there was one were not ended by a sign
    return float(target) if recorded.get("stop") == BY_SIGN and is_number(target) else None


def ended_at_sign(scores: HeadScores) -> bool:
    """Whether a run that ends for all heads at once may have been ended by the sign of its last head.

    Its values lean away from 0, each by about as much as a single head's would, over the number of heads.
    """
    known = METHODS.get(scores.method)
    if known is None or known.interval_check != "all heads together":
        return False
    if scores.samples is None or _sign_target(scores) is None:
        return False
    samples_of_a_whole_run = _samples(options_of(scores)) * walk_length(
        {"estimand": scores.estimand}, scores.grid.size
    )
    return int(scores.samples.sum()) < samples_of_a_whole_run


def lean(scores: Iterable[HeadScores]) -> str:
    """Which values lean away from 0 because sampling ended at a decided sign, in a clause; empty if none does."""
    results = list(scores)
    count = sum(int(stopped_at_sign(one).sum()) for one in results)
    at_once = [one for one in results if one.grid.size <= FEW_HEADS and ended_at_sign(one)]
    if not count and not at_once:
        return ""
    heads = sum(one.grid.size for one in results)
    whose = (
        f"{count:,} of {heads:,} heads were let go as soon as their sign was decided: their values"
    )
    if not count:
        whose = "sampling ended as soon as the last sign was decided, and the heads are few: their values"
    has_stop = "stop" in options_of(results[0])
    advice = "compare sizes with stop=width only" if has_stop else "do not compare their sizes"
    known = METHODS.get(results[0].method)
    size = known.sign_lean if known is not None else ""
    return (
        f"{whose} lean away from 0{size and f', {size}'} (docs/statistics.md); signs and intervals are not touched by "
        f"it; {advice}"
    )


def cautions(scores: Iterable[HeadScores]) -> tuple[str, ...]:
    """Caveats about claims that rest on results of one method, a clause each without a full stop; mostly none."""
    clauses = [
        text for one in scores for text in (caution(one.method), superseded(one.spec)) if text
    ]
    return tuple(dict.fromkeys(clauses))


def remarks(scores: Iterable[HeadScores]) -> tuple[str, ...]:
    """All that a reader must know beside the values of results of one method, a clause each without a full stop."""
    results = list(scores)
    return tuple(filter(None, (*cautions(results), lean(results))))


def remarks_on_choice(scores: Iterable[HeadScores], rule: str) -> tuple[str, ...]:
    """What a reader must know beside heads that a rule chose by their scores, clauses as in `remarks`.

    Args:
        scores: Results of one method.
        rule: One of `headlab.masks.rules`. Of "harmful" only signs count, which do not lean.
    """
    return cautions(scores) if rule == "harmful" else remarks(scores)


def _samples(options: Options) -> int:
    """The largest number of samples of a run; 0 where its options, which a file may say, name no number."""
    samples = options.get("samples", 0)
    return int(samples) if is_number(samples) else 0


NARROWEST = (
    1e-6  # half-width, as a share of the span, below which no realistic number of samples suffices
)


def expected_forwards(
    method: Method,
    options: Options,
    heads: int,
    examples: int,
    earlier_scores: Iterable[HeadScores],
    *,
    resumable: bool = True,
) -> tuple[int, str]:
    """How many forward passes a method should take for one language, and in words what that rests on.

    Where a run may end at a target width, it rests on the median of earlier runs over the languages,
    without those that fewer samples may have ended; without any, on a rule for how many samples an
    interval of that width needs.

    Args:
        method: The method.
        options: Its resolved options.
        heads: The number of heads of the model.
        examples: The number of examples of the language.
        earlier_scores: Results of the same model, task, method and options (see `alike`).
        resumable: Whether the model's layers can be resumed; otherwise no gain is foreseen, and all
            of them are computed.

    Raises:
        HeadlabError: A method from a package cannot say what it costs.
    """
    max_forwards = method.max_forwards(options, heads, examples)
    if not _may_end_at_target(options):
        return _after_screening(method, options, max_forwards, resumable), _basis_without_target(
            method, options
        )
    forwards_by_language = {
        scores.language: scores.example_forwards
        for scores in earlier_scores
        if _ended_at_target(scores, _samples(options))
    }
    if forwards_by_language:
        plural = "s" if len(forwards_by_language) > 1 else ""
        basis = f"samples as in {len(forwards_by_language)} language{plural} scored before"
        return min(
            max_forwards, round(float(np.median(list(forwards_by_language.values()))))
        ), basis
    samples, basis = _samples_to_target(method, options, examples, resumable)
    expected_options = {**options, "samples": samples}
    forwards = method.max_forwards(expected_options, heads, examples)
    return _after_screening(method, expected_options, forwards, resumable), basis


def _may_end_at_target(options: Options) -> bool:
    """Whether intervals may end a run, by options that mean what headlab's own do."""
    return options.get("target") is not None and {"samples", "value", "level"} <= options.keys()


def _basis_without_target(method: Method, options: Options) -> str:
    """What the forecast of a run rests on that no width ends."""
    if method.costs.assumed:
        return f"{method.key} says in words only what it costs ({method.costs.words}): one forward an example is assumed"
    if _samples(options):
        return "every sample is drawn"
    return "a fixed number of forward passes"


def _samples_to_target(
    method: Method, options: Options, examples: int, resumable: bool
) -> tuple[int, str]:
    """Samples after which intervals should reach the target width, before any gain is known, and that in words."""
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


def _after_screening(method: Method, options: Options, forwards: int, resumable: bool) -> int:
    """Forward passes without those that a gradient spares, with one pass a sample for the gradient."""
    screening = method.costs.screening
    if screening is None or not resumable:
        return forwards
    has_target = options.get("target") is not None
    computed_share = (
        screening.computed_with_target if has_target else screening.computed_without_target
    )
    return math.ceil(computed_share * forwards) + _samples(options)


def typical_samples(options: Options, largest_weight: int = 1) -> float:
    """Samples after which a head's interval should reach the target width, before any gain is known.

    It is the rule of `headlab.methods.sampling`, by which a running job foresees its remaining time.

    Args:
        options: Resolved options with a target.
        largest_weight: The largest weight of a gain.
    """
    width = number_in(options, "target") / value_of(str(options["value"])).span
    if width < NARROWEST:
        return math.inf
    price = math.log(2 / (1 - number_in(options, "level"))) + 1
    return price * (2 * USUAL_SQUARE / width**2 + largest_weight / width)


def alike(scores: HeadScores, method: Method, options: Options) -> bool:
    """Whether a result was made by this version of a method with these options, ignoring `samples`."""
    stored = spec_of(scores, "method", "options") or {}
    names = [name for name in method.options if name != "samples"]
    return current(scores, method) and all(stored.get(name) == options.get(name) for name in names)


def current(scores: HeadScores, method: Method) -> bool:
    """Whether a result was made by this version of a method: earlier versions took different forward passes."""
    return scores.method == method.key and (
        spec_of(scores, "method", "version") or 1
    ) == method.version_of(options_of(scores))


def pace(
    results: Iterable[HeadScores | Curve], model: str, task: str, method: str | None = None
) -> float | None:
    """Median seconds per forward pass in the stored scores, or curves, of a model and task; None without any.

    method: use results of this method only, since most of Shapley's forward passes are partial.
    """
    seen = [
        s.seconds / s.example_forwards
        for s in results
        if s.example_forwards
        and (part(s.spec, "model", "name"), part(s.spec, "task", "name")) == (model, task)
        and method in (None, getattr(s, "method", None))
    ]
    return float(np.median(seen)) if seen else None


@dataclass(frozen=True)
class Cost:
    """Cost of a result and the precision it reached; half-widths in the score's unit, None where there are none.

    samples: minimum, median and maximum over the heads.  helpful, harmful: number of heads whose sign is decided.
    narrow: undecided, but at least as narrow as the run's target (or, where it had none, the method's
    default one).  wide: the rest.  These four are None for scores without signs.
    """

    forwards: int
    seconds: float
    samples: tuple[int, float, int] | None
    helpful: int | None
    harmful: int | None
    narrow: int | None
    wide: int | None
    median_width: float | None
    largest_width: float | None


def cost_of(scores: HeadScores) -> Cost:
    """The cost of a result."""
    drawn, width = scores.samples, scores.half_width
    samples = (
        None if drawn is None else (int(drawn.min()), float(np.median(drawn)), int(drawn.max()))
    )
    if width is None:
        return Cost(scores.example_forwards, scores.seconds, samples, *(None,) * 6)
    widths = float(np.median(width)), float(width.max())
    if not scores.signed:
        return Cost(scores.example_forwards, scores.seconds, samples, *(None,) * 4, *widths)
    open_ = ~(scores.helpful | scores.harmful)
    narrow: Bools = open_ & (width <= target_of(scores))
    return Cost(
        scores.example_forwards,
        scores.seconds,
        samples,
        int(scores.helpful.sum()),
        int(scores.harmful.sum()),
        int(narrow.sum()),
        int((open_ & ~narrow).sum()),
        *widths,
    )


def target_of(scores: HeadScores) -> float:
    """The target half-width of a run, in the score's unit; the default one where it had none."""
    given = spec_of(scores, "method", "options", "target")
    if is_number(given):
        return float(given)
    known = METHODS.get(scores.method)
    option = known.options.get("target") if known is not None else None
    default = (option or METHODS[DEFAULT_METHOD].options["target"]).default
    return float(cast("float", default))
