"""`headlab.prune_curve`: looked up, or measured and kept."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import torch

from headlab.curves.settings import check_scores, curve_spec
from headlab.curves.walk import Walk
from headlab.errors import HeadlabError
from headlab.evaluator import Evaluator
from headlab.gates import Model
from headlab.masks import removal_order
from headlab.methods.run import only_language
from headlab.models.versions import versions
from headlab.progress import Progress
from headlab.scores import Curve, HeadScores
from headlab.store import Store
from headlab.tasks.base import Split, Task


def prune_curve(
    model: Model,
    task: Task,
    *,
    language: str | None = None,
    scores: HeadScores,
    split: Split = "test",
    size: int | None = None,
    points: int | None = None,
    ablation: str = "zero",
    store: Store | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    tick: Callable[[], None] | None = None,
    seed: int = 0,
) -> Curve:
    """Accuracy while heads leave, lowest score first, from the whole model down to none.

    scores: what orders the heads; of equal ones the last in the grid goes first, as `masks.removal_order`
    has it.  size: examples of the split, None for all.  points: how many counts of removed heads are
    measured, evenly spaced with none and all among them; None for every count.  seed: of the bootstrap.
    store: where a finished curve is looked up and kept, and where an interrupted one goes on after its
    last whole point; None keeps nothing.  on_progress: called between batches, counted in forwards.
    tick: called between batches; either may raise to stop.  Raises HeadlabError for scores of another
    model and for anything else that does not fit.
    """
    check_scores(scores, model)
    if seed < 0:
        raise HeadlabError(f"seed is {seed}; choose 0 or more", code="seed.invalid")
    evaluator = Evaluator(model, task, only_language(task, language), split, size)
    spec = curve_spec(evaluator, scores, points=points, ablation=ablation, seed=seed)
    run = store.run(spec) if store is not None else None
    done = run.curve() if run is not None else None
    if done is not None:
        return done.curve
    walk = Walk(evaluator, spec, removal_order(scores.values), run)
    curve = walk.go(on_progress or (lambda _: None), tick or (lambda: None))
    if run is not None:
        run.finish(curve, _made(evaluator))
    return curve


def _made(evaluator: Evaluator) -> dict[str, Any]:
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "threads": torch.get_num_threads(),
        "device": evaluator.model.device.type,
    }
