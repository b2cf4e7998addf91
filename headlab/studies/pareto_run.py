"""Making a Pareto front: scores, orders, walks on dev, the choice, and its confirmation on test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headlab.core import (
    HEADS,
    LAYERS,
    Bools,
    HeadGrid,
    HeadlabError,
    Ints,
    Json,
    MethodSpec,
    ModelSpec,
    OptionValue,
    Progress,
    RunSpec,
    TaskSpec,
    is_streaming,
    nouns_of_kinds,
    number_in,
    optional_integer_in,
    optional_number_in,
    read_ablation,
    read_players,
    text_in,
)
from headlab.evaluation import Evaluator
from headlab.hooks import with_players
from headlab.methods import method as method_of
from headlab.methods.costs import require_players
from headlab.results import Curve, HeadScores, kept_heads_without
from headlab.shrink import cut_by_task
from headlab.studies.curves import Walk, curve_spec, measured_curve
from headlab.studies.differences import NO_DIFFERENCE, Gain, MeanDifference, over_languages
from headlab.studies.front_so_far import AnswersAlongOrder, GrowingFront
from headlab.studies.pareto import (
    ALPHA,
    FrontResult,
    LanguageVerdict,
    NestedOrder,
    Point,
    PointTest,
    answer_records,
    best_with_heads,
    can_be_chosen,
    candidate_orders,
    confirmed_records,
    counts_of,
    emptied_sentences,
    has_several_stacks,
    language_records,
    language_verdict,
    losing_languages,
    model_records,
    no_order_by_cost,
    order_records,
    p_of_any_loss,
    points_of,
    smallest_within,
    untouched_verdict,
)
from headlab.studies.run import Ask, Pieces
from headlab.studies.savings import Costs
from headlab.studies.savings_run import costs_of
from headlab.studies.table import (
    BOUND,
    CUT,
    ESTIMATE,
    PLAYERS,
    VOCABULARY,
    SaySentence,
    method_with_options,
)
from headlab.tasks import Split

# Accuracy on dev along an order, one language at a time: curves that are stored and resumed after
# an interruption.

SPLIT: Split = "dev"
MEASURE_NAMES = {BOUND: "lower bound", ESTIMATE: "estimate"}


def order_scores(pieces: Pieces, order: NestedOrder, scores: dict[str, HeadScores]) -> HeadScores:
    """An order as scores that a curve can follow; the spec records the scores it was made from."""
    any_scores = next(iter(scores.values()))
    keys: dict[str, Json] = {
        language: language_scores.spec.key for language, language_scores in scores.items()
    }
    spec = RunSpec(
        model=ModelSpec.from_json(pieces.identity()),
        task=TaskSpec(name=pieces.task.name, language=",".join(scores), split=SPLIT),
        method=MethodSpec(f"front {order.key}", {"of": any_scores.method, "scores": keys}),
        ablation=read_ablation(pieces.ablation),
        seed=pieces.seed,
        players=any_scores.spec.players,
        groups=any_scores.spec.groups,
    )
    return HeadScores(
        grid=any_scores.grid,
        language=",".join(scores),
        method=f"front {order.key}",
        values=order.values,
        estimand="order",
        unit=any_scores.unit,
        example_forwards=0,
        seconds=0.0,
        spec=spec,
    )


def walk_spec(
    pieces: Pieces, language: str, scores: HeadScores, removed_counts: Sequence[int]
) -> RunSpec:
    """Spec of a walk: everything it depends on; its key names the run."""
    spec = curve_spec(
        pieces.dataset(language, SPLIT),
        scores,
        points=2,
        ablation=pieces.ablation,
        seed=pieces.seed,
    )
    return replace(spec, removed=tuple(removed_counts))


def stored_walk(pieces: Pieces, spec: RunSpec) -> Curve | None:
    """The finished walk, or None if it is not in the store.

    Raises:
        HeadlabError: A stored file cannot be trusted.
    """
    result = None if pieces.store is None else pieces.store.run(spec).result(Curve)
    if result is None:
        return None
    return result.record


def ask_walk(
    pieces: Pieces,
    language: str,
    order: NestedOrder,
    scores: dict[str, HeadScores],
    removed_counts: Sequence[int],
) -> Ask:
    """The cost of a walk."""
    spec = walk_spec(pieces, language, order_scores(pieces, order, scores), removed_counts)
    forwards = 0
    if stored_walk(pieces, spec) is None:
        forwards = len(removed_counts) * len(pieces.examples(language, SPLIT))
    return Ask("curve", language, f"dev accuracy in {language} along order {order.key}", forwards)


def walk_curve(
    pieces: Pieces,
    language: str,
    order: NestedOrder,
    scores: dict[str, HeadScores],
    removed_counts: Sequence[int],
    growing_front: GrowingFront | None = None,
) -> Curve:
    """Answers on dev along an order, from the store, or measured and stored.

    Args:
        pieces: Of the front.
        language: Of the examples.
        order: That heads are removed in.
        scores: In every language, that the order was made from.
        removed_counts: Counts of removed heads.
        growing_front: Takes the answers as they come; None if nobody looks at them.
    """
    spec = walk_spec(pieces, language, order_scores(pieces, order, scores), removed_counts)

    def show(correct: Bools, answered: Ints) -> None:
        if growing_front is not None:
            growing_front.take(order, language, AnswersAlongOrder(correct, answered))

    def show_walk(walk: Walk) -> None:
        show(walk.correct, walk.answered)

    stored_curve = stored_walk(pieces, spec)
    if stored_curve is not None:
        point_count, answer_count = stored_curve.correct.shape
        show(stored_curve.correct, np.full(point_count, answer_count, dtype=np.int64))
        return stored_curve
    task = replace(pieces.task, read=lambda *_: pieces.examples(language, SPLIT))
    evaluator = Evaluator(pieces.model, task, language, SPLIT, None)
    forwards_before = pieces.forwards

    def report(step: Progress) -> None:
        forwards_done = forwards_before + step.done
        note = f"order {order.key} in {language}: {step.note}"
        pieces.report(Progress(forwards_done, forwards_done, note))

    curve = measured_curve(
        evaluator, spec, order.order, pieces.store, report, pieces.tick, show_walk
    )
    pieces.forwards = forwards_before + curve.example_forwards
    return curve


# Making a front: scores, orders, walks on dev, the choice, and its confirmation on test.


@dataclass(frozen=True)
class FrontPlan:
    """What a front is made from, once the scores exist.

    Attributes:
        options: Of the study.
        scores: In every language.
        orders: In which heads, or other players, are removed.
        notes: On orders that are left out.
        removed_counts: Counts of removed ones.
    """

    options: Mapping[str, OptionValue]
    scores: dict[str, HeadScores]
    orders: list[NestedOrder]
    notes: list[str]
    removed_counts: list[int]


def run(pieces: Pieces, options: Mapping[str, OptionValue], report: SaySentence) -> FrontResult:
    """The front, the choice that answers the question and the chosen mask's results on test."""
    costs, vocabulary_notes = costs_of_models(pieces, options, report)
    scores = {language: pieces.study_scores(language, options) for language in pieces.languages}
    plan = plan_of(pieces, options, scores)
    require_layer_left(pieces.model.grid, plan)
    growing_front = GrowingFront(
        orders=plan.orders,
        languages=pieces.languages,
        removed_counts=plan.removed_counts,
        head_count=pieces.model.grid.size,
        costs=costs,
        show=pieces.show_front,
    )
    points: list[Point] = []
    for order in plan.orders:
        curves = {
            language: walk_curve(
                pieces, language, order, plan.scores, plan.removed_counts, growing_front
            )
            for language in pieces.languages
        }
        groups = {
            language: pieces.group_names(language, curve.groups, SPLIT)
            for language, curve in curves.items()
        }
        test = PointTest(groups, len(plan.orders), pieces.seed, pieces.task.aligned)
        points += points_of(order.key, curves, test, costs)
    rules = answers_of(choosable_points(pieces.model.grid, plan, points), options)
    chosen_point = next(iter(rules.values()))
    verdicts, mean = confirm(pieces, plan, chosen_point)
    nouns = nouns_of(options)
    _, noun = nouns
    return FrontResult(
        answers=answer_records(rules, noun),
        tested_languages=confirmed_records(verdicts, mean, nouns),
        models=model_records(points, noun),
        languages=language_records(points, noun),
        orders=order_records(plan.orders, pieces.model.grid),
        loss=optional_number_in(options, "within"),
        notes=(
            *plan.notes,
            *sentences(points, rules, verdicts, options),
            *passed_over_notes(pieces.model.grid, points, chosen_point, options),
            *emptied_sentences(pieces.model.grid, kept_in(plan, chosen_point)),
            *vocabulary_notes,
        ),
    )


def settled_options(
    pieces: Pieces, given: Mapping[str, OptionValue], options: Mapping[str, OptionValue]
) -> dict[str, OptionValue]:
    """The options with the players of the model, where none were given.

    Args:
        pieces: Of the front.
        given: The options that were given.
        options: All of them, resolved.

    Raises:
        HeadlabError: The players that were given are not the model's.
    """
    players = pieces.model.players
    if PLAYERS in given and options.get(PLAYERS, HEADS) != str(players):
        raise HeadlabError(
            f"the front is to remove {options.get(PLAYERS, HEADS)}, but the model was given with "
            f"{players} to switch; give it as headlab.methods.model_with_players makes it",
            code="front.players_not_of_model",
        )
    settled = {name: value for name, value in options.items() if name != PLAYERS}
    return settled if players.are_heads else {**settled, PLAYERS: str(players)}


def nouns_of(options: Mapping[str, OptionValue]) -> tuple[str, str]:
    """What a front removes: the name of one, and of several."""
    return nouns_of_kinds(read_players(str(options.get(PLAYERS) or HEADS)).kinds)


def check_options(pieces: Pieces, options: Mapping[str, OptionValue]) -> None:
    """Raise HeadlabError for options that do not fit this model."""
    method, method_options = method_with_options(options)
    require_players(method_of(method), pieces.model.grid, method_options)
    pieces.model.require_ablation(pieces.ablation)
    if options.get(VOCABULARY) == CUT:
        _require_known_parameters(_costs(pieces))
    head_count = pieces.model.grid.size
    heads_to_keep = optional_integer_in(options, "heads")
    if heads_to_keep is not None and heads_to_keep > head_count:
        raise HeadlabError(
            f"heads is {heads_to_keep}, but {pieces.model.name} has {head_count} "
            f"{pieces.model.grid.noun}; give {head_count} or fewer to keep",
            code="front.heads_too_many",
        )
    if heads_to_keep == 0 and LAYERS in pieces.model.grid.kinds:
        raise HeadlabError(
            "heads is 0, and no model can be written without a layer; give 1 or more to keep",
            code="front.no_layer_left",
        )
    if options["orders"] == "cost":
        reason = no_order_by_cost(_costs(pieces))  # before any scores are made
        if reason:
            raise HeadlabError(
                f"orders is cost alone, but there is no order by cost: {reason}; "
                "name mean or weakest too",
                code="front.no_order",
            )


def plan_of(
    pieces: Pieces, options: Mapping[str, OptionValue], scores: dict[str, HeadScores]
) -> FrontPlan:
    """The orders and counts of removed heads that follow from these scores."""
    names = text_in(options, "orders").split(",")
    orders, notes = candidate_orders(names, scores, _costs(pieces))
    return FrontPlan(options, scores, orders, notes, _counts_of(pieces, options))


def _counts_of(pieces: Pieces, options: Mapping[str, OptionValue]) -> list[int]:
    """The counts of removed heads that the options ask for."""
    points = optional_integer_in(options, "points")
    heads = optional_integer_in(options, "heads")
    return counts_of(pieces.model.grid.size, points, heads)


def _costs(pieces: Pieces) -> Costs:
    """The model's costs; none of its heads' if the ablation does not remove them."""
    costs = costs_of(pieces.model)
    noun = pieces.model.grid.noun
    if pieces.ablation == "zero":
        return costs
    if pieces.ablation == "mean":
        return costs.unknown(f"{noun} that give their mean cannot be removed")
    if is_streaming(pieces.ablation):
        return costs.unknown(f"{noun} that read the first and last tokens stay in the model")
    return costs.unknown(f"{noun} that give their output on another text cannot be removed")


def costs_of_models(
    pieces: Pieces, options: Mapping[str, OptionValue], say: SaySentence
) -> tuple[Costs, tuple[str, ...]]:
    """What the models of the front cost, and notes on their vocabulary if that is cut.

    Args:
        pieces: Of the front.
        options: Of the study.
        say: Takes what is being done.

    Raises:
        HeadlabError: The vocabulary cannot be cut to the languages.
    """
    costs = _costs(pieces)
    if options.get(VOCABULARY) != CUT:
        return costs, ()
    _require_known_parameters(costs)
    sentence = f"vocabulary of {', '.join(pieces.languages)}"
    model = with_players(pieces.model, HEADS)
    cut = cut_by_task(model, pieces.task, pieces.languages, lambda: say(sentence))
    say("")
    piece_count = len(cut.kept_ids)
    cut_costs = costs.cut_to(piece_count)
    languages = ",".join(pieces.languages)
    _, noun = nouns_of(options)
    where = f"--mask mask.json --task {pieces.task.name} --languages {languages}"
    command = f"`headlab export {where} --as small` writes such a model"
    return cut_costs, (
        f"Parameters are counted with the vocabulary cut to {languages.replace(',', ', ')}, too: "
        f"{piece_count:,} of {cut.size_before:,} pieces stay, and with all {noun} "
        f"{cut_costs.parameters:,} parameters; the untouched model has {costs.parameters:,}. "
        f"{command}. Accuracies are with the whole vocabulary: the export counts what texts lose "
        "by the cut.",
    )


def _require_known_parameters(costs: Costs) -> None:
    """Raise HeadlabError where models cost heads alone, so that a cut would change nothing."""
    if not costs.are_known:
        reason = costs.note.rstrip(".") or f"the cost of this model's {costs.noun} is unknown"
        raise HeadlabError(
            f"--vocabulary cut would have no effect, as models cost their number of {costs.noun} here: "
            f"{reason}; leave --vocabulary out",
            code="front.vocabulary_no_cost",
        )


def choosable_points(grid: HeadGrid, plan: FrontPlan, points: Sequence[Point]) -> list[Point]:
    """The models that may be chosen: all that a smaller model can be written of.

    Args:
        grid: Of the players.
        plan: Of the front.
        points: Its models.
    """
    return [point for point in points if can_be_chosen(grid, kept_in(plan, point))]


def require_layer_left(grid: HeadGrid, plan: FrontPlan) -> None:
    """Check, before anything is measured, that a model of the size asked for can be chosen.

    Args:
        grid: Of the players.
        plan: Of the front.

    Raises:
        HeadlabError: No order keeps a layer where it keeps as many players as asked for.
    """
    heads = optional_integer_in(plan.options, "heads")
    if heads is None:
        return
    removed_count = grid.size - heads
    for order in plan.orders:
        if can_be_chosen(grid, kept_heads_without(order.order[:removed_count], grid.size)):
            return
    raise HeadlabError(
        f"no order keeps a layer where it keeps {grid.count_words(heads)}, and no model can be "
        "written without one; keep more, or choose players without layers",
        code="front.no_layer_left",
    )


def passed_over_notes(
    grid: HeadGrid,
    points: Sequence[Point],
    chosen_point: Point,
    options: Mapping[str, OptionValue],
) -> list[str]:
    """That a model without any layer was not chosen, where it would have been.

    Args:
        grid: Of the players.
        points: All of the front.
        chosen_point: The one that is chosen.
        options: Of the study.
    """
    if next(iter(answers_of(points, options).values())) == chosen_point:
        return []
    which, what_each_needs = "any layer", "a layer"
    if has_several_stacks(grid):
        which, what_each_needs = "any layer of one of its stacks", "a layer of each stack"
    return [
        f"A model without {which} answers the question too. It is not chosen: none can be written "
        f"without {what_each_needs}."
    ]


def answers_of(points: Sequence[Point], options: Mapping[str, OptionValue]) -> dict[str, Point]:
    """{question in words: the point that answers it}, the question asked first."""
    heads = optional_integer_in(options, "heads")
    if heads is not None:
        one, several = nouns_of(options)
        noun = one if heads == 1 else several
        question = f"best with {heads} {noun}, the weakest language protected"
        return {question: best_with_heads(points, heads)}
    loss = number_in(options, "within")
    question = f"smallest within {_points_text(loss)} in every language"
    requested_measure = text_in(options, "by")
    other_measure = ESTIMATE if requested_measure == BOUND else BOUND
    return {
        f"{question}, by the {MEASURE_NAMES[measure]}": smallest_within(points, loss / 100, measure)
        for measure in (requested_measure, other_measure)
    }


def _points_text(points: float) -> str:
    """A number of points, as a text."""
    if points == 1:
        return f"{points:g} point"
    return f"{points:g} points"


def kept_in(plan: FrontPlan, point: Point) -> Bools:
    """What a model of a front keeps, bool [head], or of other players."""
    order = next(candidate for candidate in plan.orders if candidate.key == point.order)
    return kept_heads_without(order.order[: point.heads_removed], len(order.order))


def confirm(
    pieces: Pieces, plan: FrontPlan, chosen_point: Point
) -> tuple[list[LanguageVerdict], MeanDifference]:
    """The chosen mask on test: a verdict per language, and the mean difference over them."""
    kept_heads = kept_in(plan, chosen_point)
    within_points = optional_number_in(plan.options, "within")
    loss = None if within_points is None else within_points / 100
    verdicts = []
    gains: dict[str, Gain] = {}
    for language in pieces.languages:
        baseline = pieces.answers(language, None)
        if not chosen_point.heads_removed:
            verdicts.append(untouched_verdict(language, baseline.correct))
            continue
        evaluation = pieces.answers(language, kept_heads)
        verdict = language_verdict(
            language, baseline.correct, evaluation.correct, baseline.groups, loss, pieces.seed
        )
        verdicts.append(verdict)
        gain = evaluation.correct.astype(np.float64) - baseline.correct
        gains[language] = Gain(gain, baseline.groups)
    if not chosen_point.heads_removed:
        return verdicts, NO_DIFFERENCE
    return verdicts, over_languages(gains, pieces.seed, are_aligned=pieces.task.aligned)


def sentences(
    points: Sequence[Point],
    rules: Mapping[str, Point],
    verdicts: Sequence[LanguageVerdict],
    options: Mapping[str, OptionValue],
) -> tuple[str, ...]:
    """Plain sentences on what was found and what is guaranteed.

    Args:
        points: Of the front.
        rules: {question in words: the point that answers it}, the question asked first.
        verdicts: On the first answer, in each language.
        options: Of the study.
    """
    question, answer = next(iter(rules.items()))
    within_points = optional_number_in(options, "within")
    one, several = nouns_of(options)
    if answer.heads_removed == 1:
        what_goes = f"1 {one} is removed, by order {answer.order}"
    elif answer.heads_removed:
        what_goes = f"{answer.heads_removed} {several} are removed, by order {answer.order}"
    elif within_points is None:
        what_goes = f"no {one} goes"
    else:
        what_goes = f"no {one} can be removed"
    languages = ", ".join(answer.languages)
    texts = [
        f"{question[0].upper()}{question[1:]} (languages: {languages}): {what_goes}; "
        f"{answer.heads_kept} {'is' if answer.heads_kept == 1 else 'are'} left."
    ]
    if answer.heads_removed and within_points is None:
        texts.append(_loss_words(verdicts))
    elif answer.heads_removed and within_points is not None:
        texts.append(_verdict_words(verdicts, within_points))
    elif options["by"] == BOUND and within_points is not None:
        first_step = points[1]
        width = max(np.subtract(first_step.difference, first_step.bound))
        texts.append(
            f"Even the first step's bounds lie up to {100 * width:.1f} points below its estimates: "
            "with more dev examples, fewer languages or a larger loss allowed there is more to "
            "find. The row by the estimate says what the point estimates would allow."
        )
    return (*texts, guarantee(several))


def guarantee(noun: str) -> str:
    """What can be relied on, in sentences.

    Args:
        noun: What is removed, in a word.
    """
    return f"{noun.capitalize()} {GUARANTEE}"


GUARANTEE = (
    "were ordered and the model chosen on dev, so dev gives an optimistic estimate of it. "
    "Rely on test: this front judged at most one mask there. Other looks at the same test "
    "examples, by another front or any other mask, are not counted: if there were any, divide the "
    "5 % among them yourself."
)


def _loss_words(verdicts: Sequence[LanguageVerdict]) -> str:
    """Which languages lose, and how much at most.

    No language loses more than the lowest bound (as `p_of_any_loss` argues).
    """
    bounds = {verdict.language: verdict.bound for verdict in verdicts if verdict.bound is not None}
    language = min(bounds, key=lambda name: bounds[name])
    losing = ", ".join(losing_languages(verdicts))
    tested = ", ".join(bounds)
    if losing:
        losses = f"Of the languages {tested}, on test it loses in {losing} (p by Holm below 0.05)."
    else:
        losses = (
            f"On test none of the languages {tested} is shown to lose (no p by Holm below 0.05)."
        )
    largest_loss = max(0.0, -100 * bounds[language])
    return (
        f"{losses} At 95 % none of them loses more than {largest_loss:.1f} points; the lowest "
        f"bound is that of {language}."
    )


def _verdict_words(verdicts: Sequence[LanguageVerdict], within_points: float) -> str:
    """Whether a loss of more than so many points is ruled out, and else in which languages not."""
    p = p_of_any_loss(verdicts)
    if p <= ALPHA:
        languages = ", ".join(verdict.language for verdict in verdicts)
        return (
            f"Confirmed on test: within {_points_text(within_points)} of the untouched model in "
            f"every language, {languages} (p = {p:.3g} for all of them together, the largest of "
            "theirs; 95 % confidence)."
        )
    undecided = []
    for verdict in verdicts:
        if verdict.p_loss is None or verdict.bound is None or verdict.p_loss <= ALPHA:
            continue
        possible_loss = 100 * max(0.0, -verdict.bound)
        undecided.append(f"{verdict.language} (up to {possible_loss:.1f})")
    return (
        f"Not confirmed on test: a loss of more than {_points_text(within_points)} cannot be ruled "
        f"out at 95 % in {', '.join(undecided)}; in brackets the points that may be lost there, by "
        "the one-sided 95 % bound."
    )


def cost(pieces: Pieces, options: Mapping[str, OptionValue]) -> list[Ask]:
    """What a front needs: scores, a walk per order and language, and the test answers.

    Raises:
        HeadlabError: As `check_options`.
    """
    check_options(pieces, options)
    asks = pieces.ask_study_scores(options)
    scores_by_language = pieces.available_study_scores(options)
    known_scores = {
        language: scores for language, scores in scores_by_language.items() if scores is not None
    }
    if len(known_scores) == len(scores_by_language):
        plan = plan_of(pieces, options, known_scores)
        for order in plan.orders:
            for language in pieces.languages:
                asks.append(ask_walk(pieces, language, order, known_scores, plan.removed_counts))
    else:
        points = len(_counts_of(pieces, options))
        for order_name in text_in(options, "orders").split(","):
            for language in pieces.languages:
                asks.append(_ask_unknown_walk(pieces, language, order_name, points))
    for language in pieces.languages:
        asks.append(pieces.ask_answers(language, [None], unknown_masks=1))
    return asks


def _ask_unknown_walk(pieces: Pieces, language: str, order: str, points: int) -> Ask:
    """The cost of the walks of a kind of orders, whose scores do not exist yet."""
    walks = len(pieces.languages) if order == "own" else 1
    forwards = walks * points * len(pieces.examples(language, SPLIT))
    return Ask("curve", language, f"dev accuracy in {language} along order {order}", forwards)
