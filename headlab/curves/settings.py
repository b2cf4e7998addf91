"""What a curve depends on: which heads leave in which order, and where that is measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headlab.errors import HeadlabError
from headlab.evaluator import Evaluator
from headlab.gates import Model
from headlab.methods.best import spec_of
from headlab.methods.run import make_spec
from headlab.methods.table import METHODS
from headlab.records import content_key
from headlab.scores import HeadScores, counts

ORDERED_BY_CHANCE = "random"


def check_scores(scores: HeadScores, model: Model) -> None:
    """Raise HeadlabError, with the reason, unless the scores are of this model and can order its heads."""
    if scores.grid != model.grid:
        raise HeadlabError(
            f"the scores are of a model with {scores.grid}; {model.name} has {model.grid}. Score this model first",
            code="score.other_grid",
        )
    made_for = spec_of(scores, "model", "fingerprint")
    if made_for != model.fingerprint:
        name = spec_of(scores, "model", "name") or "a model that they do not name"
        raise HeadlabError(
            f"the scores are of {name} (fingerprint {str(made_for)[:12]}); {model.name} has {model.fingerprint[:12]}. "
            "The shapes agree, but heads of one model say nothing about another's. Score this model first",
            code="score.other_model",
        )
    if not np.isfinite(scores.values).all():
        raise HeadlabError(
            f"the {scores.method} scores hold a value that is not a number; score the model again",
            code="score.not_finite",
        )


def curve_spec(
    evaluator: Evaluator, scores: HeadScores, *, points: int | None = None, ablation: str = "zero", seed: int = 0
) -> dict[str, Any]:
    """Everything a curve depends on; its sha256 names the run."""
    base = make_spec(evaluator, METHODS[ORDERED_BY_CHANCE], {}, seed, ablation)
    order = {
        "method": scores.method,
        "options": spec_of(scores, "method", "options"),
        "estimand": scores.estimand,
        "task": spec_of(scores, "task", "name"),
        "language": scores.language,
        "split": spec_of(scores, "task", "split"),
        "ablation": spec_of(scores, "ablation"),
        "seed": spec_of(scores, "seed"),
        "values_sha256": scores.values_sha256(),
        "run": content_key(dict(scores.spec)),
    }
    removed = counts(scores.grid.size, points)
    return {k: v for k, v in base.items() if k != "method"} | {"kind": "curve", "order": order, "removed": removed}


def caution_of(spec: Mapping[str, Any]) -> str:
    """What to know before believing a curve of this spec, or empty."""
    order, task, notes = spec["order"], spec["task"], []
    if order["method"] != ORDERED_BY_CHANCE:
        if order["split"] is None:
            notes.append(
                "the scores do not say which examples they were made on; if on these, the curve flatters itself"
            )
        elif (order["split"], order["task"]) == (task["split"], task["name"]):
            notes.append(
                f"the heads were ordered on the {task['split']} split too, so the curve flatters itself; "
                "judge on another split"
            )
        if order["ablation"] not in (None, spec["ablation"]):
            notes.append(f"the scores are of {order['ablation']} ablation, the curve is of {spec['ablation']}")
    return "; ".join(notes)
