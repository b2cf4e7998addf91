"""Accuracy on dev along an order, language by language: curves that are kept, and that go on where they stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import torch

from headlab.curves.settings import curve_spec
from headlab.curves.walk import Walk
from headlab.evaluator import Evaluator
from headlab.experiments.ask import Ask
from headlab.experiments.pieces import Pieces, Source
from headlab.front.orders import Order
from headlab.models.versions import versions
from headlab.progress import Progress
from headlab.records import content_key
from headlab.scores import Curve, HeadScores
from headlab.tasks.base import Split

SPLIT: Split = "dev"


def order_scores(pieces: Pieces, order: Order, scores: dict[str, HeadScores]) -> HeadScores:
    """An order as scores that a curve can be walked by; its spec says what it was made of."""
    first = next(iter(scores.values()))
    used = {language: content_key(dict(one.spec)) for language, one in scores.items()}
    spec = {
        "model": pieces.identity(),
        "task": {"name": pieces.task.name, "language": ",".join(scores), "split": SPLIT},
        "method": {"name": f"front {order.key}", "options": {"of": first.method, "scores": used}},
        "ablation": pieces.ablation,
        "seed": pieces.seed,
    }
    return HeadScores(
        first.grid, ",".join(scores), f"front {order.key}", order.values, "order", first.unit, 0, 0.0, spec=spec
    )  # fmt: skip


def walk_spec(pieces: Pieces, language: str, scores: HeadScores, removed: Sequence[int]) -> dict[str, Any]:
    """Everything a walk depends on; its sha256 names the run."""
    source = Source(pieces.model, pieces.task, language, SPLIT, pieces.examples(language, SPLIT))
    spec = curve_spec(cast(Evaluator, source), scores, points=2, ablation=pieces.ablation, seed=pieces.seed)
    return spec | {"removed": list(removed)}


def found_walk(pieces: Pieces, spec: dict[str, Any]) -> Curve | None:
    """The finished walk if the store has it. Raises HeadlabError for a file that cannot be trusted."""
    kept = None if pieces.store is None else pieces.store.run(spec).curve()
    return None if kept is None else kept.curve


def ask_walk(pieces: Pieces, language: str, order: Order, scores: dict[str, HeadScores], removed: Sequence[int]) -> Ask:
    """What a walk will take."""
    spec = walk_spec(pieces, language, order_scores(pieces, order, scores), removed)
    forwards = 0 if found_walk(pieces, spec) is not None else len(removed) * len(pieces.examples(language, SPLIT))
    return Ask("curve", language, f"dev accuracy in {language} along order {order.key}", forwards)


def walked(pieces: Pieces, language: str, order: Order, scores: dict[str, HeadScores], removed: Sequence[int]) -> Curve:
    """Answers on dev as heads leave in an order, at these counts: from the store, or measured and kept there."""
    source = order_scores(pieces, order, scores)
    spec = walk_spec(pieces, language, source, removed)
    found = found_walk(pieces, spec)
    if found is not None:
        return found
    task = replace(pieces.task, read=lambda *_: pieces.examples(language, SPLIT))
    evaluator = Evaluator(pieces.model, task, language, SPLIT, None)
    run, before = None if pieces.store is None else pieces.store.run(spec), pieces.forwards

    def report(step: Progress) -> None:
        done = before + step.done
        pieces.report(Progress(done, done, f"order {order.key} in {language}: {step.note}"))

    curve = Walk(evaluator, spec, order.order, run).go(report, pieces.tick)
    pieces.forwards = before + curve.example_forwards
    if run is not None:
        meta = {"created": datetime.now(UTC).isoformat(timespec="seconds"), "versions": versions()}
        run.finish(curve, meta | {"threads": torch.get_num_threads(), "device": pieces.model.device.type})
    return curve
