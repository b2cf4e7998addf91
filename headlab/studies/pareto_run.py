"""Making a Pareto front: scores, orders, walks on dev, the choice, and its confirmation on test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headlab.core import (
    HeadlabError,
    Json,
    MethodSpec,
    ModelSpec,
    OptionValue,
    Progress,
    RunSpec,
    TaskSpec,
    number_in,
    optional_integer_in,
    optional_number_in,
    text_in,
)
from headlab.evaluation import Evaluator
from headlab.results import Curve, HeadScores, kept_without
from headlab.studies.curves import curve_spec, measured
from headlab.studies.differences import NO_DIFFERENCE, Difference, Gain, over_languages
from headlab.studies.pareto import (
    ALPHA,
    FrontResult,
    Judge,
    Order,
    Point,
    Verdict,
    all_within,
    answer_records,
    at_heads,
    candidate_orders,
    confirmed_records,
    counts_of,
    language_records,
    losing,
    model_records,
    no_order_by_cost,
    order_records,
    points_of,
    untouched,
    verdict,
    within,
)
from headlab.studies.run import Ask, Pieces
from headlab.studies.savings import Costs
from headlab.studies.savings_run import costs_of
from headlab.studies.table import BOUND, ESTIMATE, Say
from headlab.tasks import Split

# Accuracy on dev along an order, one language at a time: curves that are stored and resumed after an interruption.

SPLIT: Split = "dev"
BY = {BOUND: "lower bound", ESTIMATE: "estimate"}


def order_scores(pieces: Pieces, order: Order, scores: dict[str, HeadScores]) -> HeadScores:
    """An order as scores that a curve can follow; the spec records the scores it was made from."""
    first = next(iter(scores.values()))
    keys: dict[str, Json] = {language: scored.spec.key for language, scored in scores.items()}
    spec = RunSpec(
        model=ModelSpec.from_json(pieces.identity()),
        task=TaskSpec(name=pieces.task.name, language=",".join(scores), split=SPLIT),
        method=MethodSpec(f"front {order.key}", {"of": first.method, "scores": keys}),
        ablation=pieces.ablation,
        seed=pieces.seed,
    )
    return HeadScores(
        first.grid, ",".join(scores), f"front {order.key}", order.values, "order", first.unit, 0, 0.0, spec=spec
    )  # fmt: skip


def walk_spec(pieces: Pieces, language: str, scores: HeadScores, removed: Sequence[int]) -> RunSpec:
    """Spec of a walk: everything it depends on; its key names the run."""
    spec = curve_spec(
        pieces.dataset(language, SPLIT),
        scores,
        points=2,
        ablation=pieces.ablation,
        seed=pieces.seed,
    )
    return replace(spec, removed=tuple(removed))


def found_walk(pieces: Pieces, spec: RunSpec) -> Curve | None:
    """The finished walk, or None if it is not in the store. Raises HeadlabError for a file that cannot be trusted."""
    kept = None if pieces.store is None else pieces.store.run(spec).result(Curve)
    return None if kept is None else kept.record


def ask_walk(
    pieces: Pieces,
    language: str,
    order: Order,
    scores: dict[str, HeadScores],
    removed: Sequence[int],
) -> Ask:
    """The cost of a walk."""
    spec = walk_spec(pieces, language, order_scores(pieces, order, scores), removed)
    forwards = (
        0
        if found_walk(pieces, spec) is not None
        else len(removed) * len(pieces.examples(language, SPLIT))
    )
    return Ask("curve", language, f"dev accuracy in {language} along order {order.key}", forwards)


def walked(
    pieces: Pieces,
    language: str,
    order: Order,
    scores: dict[str, HeadScores],
    removed: Sequence[int],
) -> Curve:
    """Answers on dev along an order, at these counts of removed heads: from the store, or measured and stored."""
    source = order_scores(pieces, order, scores)
    spec = walk_spec(pieces, language, source, removed)
    found = found_walk(pieces, spec)
    if found is not None:
        return found
    task = replace(pieces.task, read=lambda *_: pieces.examples(language, SPLIT))
    evaluator = Evaluator(pieces.model, task, language, SPLIT, None)
    before = pieces.forwards

    def report(step: Progress) -> None:
        done = before + step.done
        pieces.report(Progress(done, done, f"order {order.key} in {language}: {step.note}"))

    curve = measured(evaluator, spec, order.order, pieces.store, report, pieces.tick)
    pieces.forwards = before + curve.example_forwards
    return curve


# Making a front: scores, orders, walks on dev, the choice, and its confirmation on test.


@dataclass(frozen=True)
class Plan:
    """What a front is made from, once the scores exist. removed: counts of removed heads."""

    options: Mapping[str, OptionValue]
    scores: dict[str, HeadScores]
    orders: list[Order]
    notes: list[str]
    removed: list[int]
    costs: Costs


def run(pieces: Pieces, options: Mapping[str, OptionValue], say: Say) -> FrontResult:
    """The front, the choice that answers the question and the chosen mask's results on test."""
    plan = plan_of(
        pieces, options, {name: pieces.study_scores(name, options) for name in pieces.languages}
    )
    points: list[Point] = []
    for order in plan.orders:
        curves = {
            name: walked(pieces, name, order, plan.scores, plan.removed)
            for name in pieces.languages
        }
        groups = {
            name: pieces.group_names(name, curve.groups, SPLIT) for name, curve in curves.items()
        }
        judge = Judge(groups, len(plan.orders), pieces.seed, pieces.task.aligned)
        points += points_of(order.key, curves, judge, plan.costs)
    rules = choices(points, options)
    chosen = next(iter(rules.values()))
    verdicts, mean = confirm(pieces, plan, chosen)
    return FrontResult(
        answers=answer_records(rules),
        confirmed=confirmed_records(verdicts, mean),
        models=model_records(points),
        languages=language_records(points),
        orders=order_records(plan.orders, pieces.model.grid),
        loss=optional_number_in(options, "within"),
        notes=(*plan.notes, *sentences(points, rules, verdicts, options)),
    )


def check(pieces: Pieces, options: Mapping[str, OptionValue]) -> None:
    """Raise HeadlabError for options that do not fit this model."""
    size = pieces.model.grid.size
    heads = optional_integer_in(options, "heads")
    if heads is not None and heads > size:
        raise HeadlabError(
            f"heads is {heads}, but {pieces.model.name} has {size}; give {size} or fewer to keep",
            code="front.heads_too_many",
        )
    if options["orders"] == "cost" and (
        why := no_order_by_cost(_costs(pieces))
    ):  # before any scores are made
        raise HeadlabError(
            f"orders is cost alone, but there is no order by cost: {why}; name mean or weakest too",
            code="front.no_order",
        )


def plan_of(
    pieces: Pieces, options: Mapping[str, OptionValue], scores: dict[str, HeadScores]
) -> Plan:
    """The orders, counts of removed heads and costs that follow from these scores."""
    costs = _costs(pieces)
    orders, notes = candidate_orders(text_in(options, "orders").split(","), scores, costs)
    counts = _counts_of(pieces, options)
    return Plan(options, scores, orders, notes, counts, costs)


def _counts_of(pieces: Pieces, options: Mapping[str, OptionValue]) -> list[int]:
    """The counts of removed heads that the options ask for."""
    points = optional_integer_in(options, "points")
    heads = optional_integer_in(options, "heads")
    return counts_of(pieces.model.grid.size, points, heads)


def _costs(pieces: Pieces) -> Costs:
    costs = costs_of(pieces.model)
    if pieces.ablation == "zero":
        return costs
    return replace(costs, layers=(), note="heads that give their mean cannot be removed")


def choices(points: Sequence[Point], options: Mapping[str, OptionValue]) -> dict[str, Point]:
    """{question in words: the point that answers it}, the question asked first."""
    heads = optional_integer_in(options, "heads")
    if heads is not None:
        return {f"best with {heads} heads, the weakest language protected": at_heads(points, heads)}
    loss = number_in(options, "within")
    question = f"smallest within {_points(loss)} in every language"
    first = text_in(options, "by")
    other = ESTIMATE if first == BOUND else BOUND
    return {f"{question}, by the {BY[by]}": within(points, loss / 100, by) for by in (first, other)}


def _points(count: float) -> str:
    return f"{count:g} point{'s' * (count != 1)}"


def confirm(pieces: Pieces, plan: Plan, chosen: Point) -> tuple[list[Verdict], Difference]:
    """The chosen mask on test: a verdict per language, and the mean difference over them."""
    order = next(one for one in plan.orders if one.key == chosen.order)
    kept = kept_without(order.order[: chosen.removed], pieces.model.grid.size)
    within_points = optional_number_in(plan.options, "within")
    loss = None if within_points is None else within_points / 100
    verdicts, gains = [], {}
    for name in pieces.languages:
        before = pieces.answers(name, None)
        if not chosen.removed:
            verdicts.append(untouched(name, before.correct))
            continue
        after = pieces.answers(name, kept)
        verdicts.append(
            verdict(name, before.correct, after.correct, before.groups, loss, pieces.seed)
        )
        gains[name] = Gain(after.correct.astype(np.float64) - before.correct, before.groups)
    mean = (
        over_languages(gains, pieces.seed, are_aligned=pieces.task.aligned)
        if chosen.removed
        else NO_DIFFERENCE
    )
    return verdicts, mean


def sentences(
    points: Sequence[Point],
    rules: Mapping[str, Point],
    verdicts: Sequence[Verdict],
    options: Mapping[str, OptionValue],
) -> tuple[str, ...]:
    """Plain sentences on what was found and what is guaranteed."""
    question, chosen = next(iter(rules.items()))
    within_points = optional_number_in(options, "within")
    nothing = "no head goes" if within_points is None else "no head can be removed"
    gone = (
        f"{chosen.removed} heads are removed, by order {chosen.order}"
        if chosen.removed
        else nothing
    )
    languages = ", ".join(chosen.languages)
    out = [
        f"{question[0].upper()}{question[1:]} (languages: {languages}): {gone}; {chosen.kept} are left."
    ]
    if chosen.removed:
        out.append(
            _loss_words(verdicts)
            if within_points is None
            else _verdict_words(verdicts, within_points)
        )
    if not chosen.removed and options["by"] == BOUND and within_points is not None:
        width = max(d - b for p in points[1:2] for d, b in zip(p.difference, p.bound, strict=True))
        out.append(
            f"Even the first step's bounds lie up to {100 * width:.1f} points below its estimates: with more dev "
            "examples, fewer languages or a larger loss allowed there is more to find. The row by the estimate says "
            "what the point estimates would allow."
        )
    return (*out, GUARANTEE)


GUARANTEE = (
    "Heads were ordered and the model chosen on dev, so dev gives an optimistic estimate of it. Rely on test: this "
    "front judged at most one mask there. Other looks at the same test examples, by another front or any other mask, "
    "are not counted: if there were any, divide the 5 % among them yourself."
)


def _loss_words(verdicts: Sequence[Verdict]) -> str:
    """Which languages lose, and how much at most: no language loses more than the lowest bound (as `all_within`)."""
    bounds = {one.language: one.bound for one in verdicts if one.bound is not None}
    language, lost = min(bounds, key=lambda name: bounds[name]), losing(verdicts)
    tested = ", ".join(bounds)
    named = f"On test none of the languages {tested} is shown to lose (no p by Holm below 0.05)."
    if lost:
        named = f"Of the languages {tested}, on test it loses in {', '.join(lost)} (p by Holm below 0.05)."
    most = max(0.0, -100 * bounds[language])
    return f"{named} At 95 % none of them loses more than {most:.1f} points; the lowest bound is that of {language}."


def _verdict_words(verdicts: Sequence[Verdict], within_points: float) -> str:
    p = all_within(verdicts)
    if p <= ALPHA:
        languages = ", ".join(one.language for one in verdicts)
        return (
            f"Confirmed on test: within {_points(within_points)} of the untouched model in every language, {languages} "
            f"(p = {p:.3g} for all of them together, the largest of theirs; 95 % confidence)."
        )
    open_ = [f"{one.language} (up to {100 * max(0.0, -one.bound):.1f})" for one in verdicts
             if one.p_loss is not None and one.bound is not None and one.p_loss > ALPHA]  # fmt: skip
    return (
        f"Not confirmed on test: a loss of more than {_points(within_points)} cannot be ruled out at 95 % in "
        f"{', '.join(open_)}; in brackets the points that may be lost there, by the one-sided 95 % bound."
    )


def cost(pieces: Pieces, options: Mapping[str, OptionValue]) -> list[Ask]:
    """What a front needs: scores, a walk per order and language, and the test answers. Raises as `check`."""
    check(pieces, options)
    asks, found = pieces.ask_study_scores(options), pieces.available_study_scores(options)
    known = {name: one for name, one in found.items() if one is not None}
    if len(known) == len(found):
        plan = plan_of(pieces, options, known)
        asks += [
            ask_walk(pieces, name, o, known, plan.removed)
            for o in plan.orders
            for name in pieces.languages
        ]
    else:
        removed = _counts_of(pieces, options)
        for order in text_in(options, "orders").split(","):
            asks += [_unknown_walk(pieces, name, order, len(removed)) for name in pieces.languages]
    return asks + [pieces.ask_answers(name, [None], unknown_masks=1) for name in pieces.languages]


def _unknown_walk(pieces: Pieces, language: str, order: str, points: int) -> Ask:
    several = len(pieces.languages) if order == "own" else 1
    forwards = several * points * len(pieces.examples(language, SPLIT))
    return Ask("curve", language, f"dev accuracy in {language} along order {order}", forwards)
