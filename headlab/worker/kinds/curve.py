"""Curve jobs: accuracy as heads leave in the order of their scores, language after language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from headlab.records import content_key
from headlab.scores import Curve
from headlab.tasks import task
from headlab.worker.kinds import score
from headlab.worker.kinds.kind import (
    PART,
    Estimate,
    Kind,
    Known,
    Lab,
    Part,
    heads_of,
    measured,
    named,
    reporter,
    scores_part,
    told,
    total,
)
from headlab.worker.runner import Running
from headlab.worker.schemas import (
    Ablation,
    Languages,
    MeasureRequest,
    Name,
    Options,
    ScoreSpec,
    Seed,
    Size,
    SplitName,
    Strict,
)


class CurveSpec(Strict):
    """Accuracy on `split` as heads leave, lowest first by the scores that `method` gives on the dev split.

    size: examples of the split, None for all.  points: at how many counts of heads gone, None for the
    usual ones.
    """

    model: Name
    task: Name
    languages: Languages
    method: Name = "shapley"
    options: Options = Field(default_factory=dict)
    seed: Seed = 0
    split: SplitName = "test"
    size: Size | None = None
    ablation: Ablation = "zero"
    points: Annotated[int, Field(ge=2, le=4096)] | None = None


def ordering(spec: CurveSpec) -> ScoreSpec:
    """The scores that give the order: those of a score job with the same settings, on dev."""
    names = ("model", "task", "languages", "method", "options", "seed", "ablation")
    return ScoreSpec(**{name: getattr(spec, name) for name in names})


def fill(spec: CurveSpec) -> CurveSpec:
    """Details in full. Raises HeadlabError for a task, language, method or option that does not exist."""
    full = score.fill(ordering(spec))
    return spec.model_copy(update={name: getattr(full, name) for name in ("method", "languages", "options")})


def run(lab: Lab, running: Running, spec: CurveSpec) -> Mapping[str, Any]:
    """For each language the scores, if the store lacks them, then the curve."""
    from headlab.studies.curves import prune_curve  # imports torch

    languages = named(spec.languages)
    model, chosen, steps = lab.need(spec.model), lab.task(spec.task), 2 * len(languages)
    keys = []
    for at, language in enumerate(languages):
        running.progress(2 * at * PART, steps * PART, language, fresh=True)
        scores = lab.scored(running, ordering(spec), language, reporter(running, language, 2 * at, steps))
        curve = prune_curve(
            model,
            chosen,
            language=language,
            scores=scores,
            split=spec.split,
            size=spec.size,
            points=spec.points,
            ablation=spec.ablation,
            store=lab.watched(running, language),
            on_progress=reporter(running, f"{language}, curve", 2 * at + 1, steps),
            tick=running.tick,
        )
        keys.append(content_key(curve.spec))
    running.progress(steps * PART, steps * PART, f"{', '.join(languages)} done")
    return {"keys": keys}


def foresee(spec: CurveSpec, known: Known) -> Estimate:
    """Cost of the scores that are lacking, then of the points: examples forwards each."""
    languages = named(spec.languages)
    ask = MeasureRequest(model=spec.model, task=spec.task, language=languages[0])
    return total([scores_part(ordering(spec), languages, known), _points_part(spec, languages, known)], ask)


def _points_part(spec: CurveSpec, languages: list[str], known: Known) -> Part:
    left = [name for name in languages if not any(_same(curve.curve, spec, name) for curve in known.curves)]
    if not left:
        return Part(0, None, ("the curves are in the cache already",))
    heads, (pace, paced) = heads_of(spec.model, known), _pace(spec, known)
    if heads is None:
        return Part(None, pace, ("how many heads the model has is not known yet",))
    points = spec.points or heads + 1
    examples = len(task(spec.task).examples(left[0], spec.split, spec.size))
    plural = "s" if len(left) > 1 else ""
    words = f"{points} points of {examples} examples in {len(left)} language{plural}"
    return Part(points * examples * len(left), pace, (words, paced))


def _pace(spec: CurveSpec, known: Known) -> tuple[float | None, str]:
    here = [r.curve for r in known.curves if r.meta.get("device") == known.device and _of(r.curve, spec)]
    seen = [curve.seconds / curve.example_forwards for curve in here if curve.example_forwards]
    if not seen:
        return measured(known)
    pace = float(np.median(seen))
    plural = "s" if len(seen) > 1 else ""
    return pace, told(pace, f"as in {len(seen)} curve{plural} computed on such a device ({known.device})")


def _of(curve: Curve, spec: CurveSpec) -> bool:
    return bool((curve.spec["model"]["name"], curve.spec["task"]["name"]) == (spec.model, spec.task))


def _same(curve: Curve, spec: CurveSpec, language: str) -> bool:
    """Whether a curve is what the job would compute, as far as can be told without the model."""
    order = curve.spec["order"]
    got = (curve.language, curve.split, order["method"], order["options"], order["seed"], curve.spec["ablation"])
    want = (language, spec.split, spec.method, dict(spec.options), spec.seed, spec.ablation)
    if not _of(curve, spec) or got != want or (spec.points or curve.grid.size + 1) != len(curve.removed):
        return False
    return bool(curve.spec["task"]["size"] == len(task(spec.task).examples(language, spec.split, spec.size)))


CURVE = Kind("curve", CurveSpec, fill, run, foresee)
