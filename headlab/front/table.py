"""The options of a front; needs no model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headlab.errors import HeadlabError
from headlab.experiments.table import ANY_METHOD, METHOD, METHOD_OPTIONS, OF_METHOD, Experiment
from headlab.options import Option

BOUND, ESTIMATE = "bound", "estimate"
WITHIN, HEADS = 1.0, None
ORDERS: Mapping[str, str] = {
    "mean": "by the mean score over the languages",
    "weakest": "by its best rank in any language, so that a head stays while one language needs it",
    "own": "by each language's own scores, an order a language",
    "cost": "by the mean score per parameter, where heads cost differently",
}
ABOUT = Experiment(
    "front",
    "Front of smaller models",
    "What is the smallest model that is good enough in every language, or the best one with so many heads?",
    "nested masks; intersection-union and fixed-sequence tests (Berger 1982; Maurer et al. 1995); Holm 1979",
    {
        METHOD: ANY_METHOD,
        METHOD_OPTIONS: OF_METHOD,
        "orders": Option("mean,weakest,cost", "in which orders heads leave, comma-separated; also own"),
        "points": Option(25, "counts of removed heads; none for every one", kind=int, low=2, optional=True),
        "within": Option(
            None, "points of accuracy that may be lost in any language", kind=float, low=0, high=100, optional=True
        ),
        "heads": Option(None, "heads to keep, in place of within", kind=int, low=0, optional=True),
        "by": Option(BOUND, "whether a loss is told by the lower bound or by the estimate", (BOUND, ESTIMATE)),
    },
    "front",
    version=2,
    lists={"orders": tuple(ORDERS)},
)


def resolve(given: Mapping[str, Any]) -> dict[str, Any]:
    """All options in full; within is 1.0 where neither question is asked. Raises HeadlabError for what does not fit."""
    out = ABOUT.resolve(given)
    if out["within"] is not None and out["heads"] is not None:
        raise HeadlabError(
            "a front answers one question: give within (points that may be lost) or heads (how many to keep), not both",
            code="front.two_questions",
        )
    return out | {"within": WITHIN if out["heads"] is None and out["within"] is None else out["within"]}
