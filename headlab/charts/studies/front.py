"""The front of smaller models: what each keeps against what its weakest language loses."""

from __future__ import annotations

from headlab.charts.chart import Chart
from headlab.charts.front import MILLION, FrontDot, front_chart
from headlab.studies.pareto import FrontResult, SmallerModel


def figures(result: FrontResult) -> dict[str, Chart]:
    """Cost against the weakest language's difference.

    Costs are parameters kept where known, else heads or other players kept; which models are best
    for their size is the front's own.
    """
    models = result.models.rows
    is_counted = all(model.parameters is not None for model in models)
    cost_title = "parameters kept, millions" if is_counted else f"{result.noun} kept"
    chart = front_chart(
        [_dot(model, result.noun, is_counted=is_counted) for model in models],
        cost_title,
        "difference of the weakest language, points",
        loss=result.loss,
        chosen=(result.answer.order, result.answer.heads_removed),
    )
    return {"front": chart}


def _dot(model: SmallerModel, noun: str, *, is_counted: bool) -> FrontDot:
    """A model as it is drawn.

    Args:
        model: The model.
        noun: What is removed, in a word.
        is_counted: Whether its cost is its parameters, or else what it keeps.
    """
    cost: float = model.heads_kept
    if is_counted and model.parameters is not None:
        cost = model.parameters / MILLION
    words = f"{model.heads_kept} {noun} kept, {model.weakest_language} {model.weakest:+.1f}"
    return FrontDot(
        model.order,
        model.heads_removed,
        cost,
        model.weakest,
        model.lower_bound,
        model.is_best,
        words,
    )
