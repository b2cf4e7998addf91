"""Score jobs: head scores by one method.  Curve jobs: accuracy as heads are removed in the order of their scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headlab.labels import same_classes
from headlab.methods.table import method
from headlab.scores import Curve, HeadScores
from headlab.tasks import task
from headlab.worker.kinds.kind import (
    Estimate,
    Kind,
    Known,
    Lab,
    Part,
    about,
    heads_of,
    in_turn,
    is_of,
    median_pace,
    named,
    reporter,
    scores_part,
    task_of,
    total,
    within,
)
from headlab.worker.runner import Running
from headlab.worker.schemas import CurveSpec, MeasureRequest, Place, ScoreSpec

# Score jobs: head scores of a model by one method, language after language.

# Upper limits of options that determine how much is held in memory at once.
LARGEST = {"batch_size": 1024}


def fill(spec: ScoreSpec) -> ScoreSpec:
    """The spec with every default filled in. Raises HeadlabError for an unknown task, language, method or option."""
    chosen = method(spec.method)
    languages = task_of(spec, spec.languages).languages
    options = within(chosen.resolve(spec.options), LARGEST)
    return spec.model_copy(
        update={"method": chosen.key, "languages": list(languages), "options": options}
    )


def run(lab: Lab, running: Running, spec: ScoreSpec) -> Mapping[str, Any]:
    """Score the languages one after the other; stored scores are not computed again."""
    languages = named(spec.languages)

    def scored(at: int, language: str) -> HeadScores:
        return lab.scored(running, spec, language, reporter(running, language, at, len(languages)))

    return in_turn(running, languages, scored)


def foresee(spec: ScoreSpec, known: Known) -> Estimate:
    """Cost of the languages that the store lacks."""
    return total([scores_part(spec, named(spec.languages), known)], measure(spec))


def measure(spec: ScoreSpec) -> MeasureRequest:
    """What to time on the device if no stored result tells the pace."""
    timed = None if method(spec.method).costs.in_walks else spec.method
    options = {} if timed is None else dict(spec.options)
    language = named(spec.languages)[0]
    return MeasureRequest(
        model=spec.model, **about(spec), language=language, method=timed, options=options
    )


SCORE = Kind(
    "score", ScoreSpec, fill, run, foresee, "Head scores, and where they are computed.", Place
)


# Curve jobs: accuracy as heads are removed in the order of their scores, language after language.


def ordering(spec: CurveSpec) -> ScoreSpec:
    """Spec of the scores that order the heads: those of a score job with the same settings, on dev."""
    names = ("model", "task", "label_map", "languages", "method", "options", "seed", "ablation")
    return ScoreSpec(**{name: getattr(spec, name) for name in names})


def fill_curve(spec: CurveSpec) -> CurveSpec:
    """The spec with every default filled in. Raises HeadlabError for an unknown task, language, method or option."""
    full = fill(ordering(spec))
    return spec.model_copy(
        update={name: getattr(full, name) for name in ("method", "languages", "options")}
    )


def run_curve(lab: Lab, running: Running, spec: CurveSpec) -> Mapping[str, Any]:
    """Compute for each language the scores, if the store lacks them, then the curve."""
    from headlab.studies.curves import prune_curve  # imports torch

    languages = named(spec.languages)
    model, chosen, steps = (
        lab.need(spec.model),
        lab.task(spec.task, spec.label_map),
        2 * len(languages),
    )

    def made(at: int, language: str) -> Curve:
        scores = lab.scored(
            running, ordering(spec), language, reporter(running, language, 2 * at, steps)
        )
        return prune_curve(
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

    return in_turn(running, languages, made, parts=2)


def foresee_curve(spec: CurveSpec, known: Known) -> Estimate:
    """Cost of the missing scores and of the points, each one forward pass per example."""
    languages = named(spec.languages)
    ask = MeasureRequest(model=spec.model, **about(spec), language=languages[0])
    return total(
        [scores_part(ordering(spec), languages, known), _points_part(spec, languages, known)], ask
    )


def _points_part(spec: CurveSpec, languages: list[str], known: Known) -> Part:
    left = [
        name
        for name in languages
        if not any(_same(curve.record, spec, name) for curve in known.curves)
    ]
    if not left:
        return Part(0, None, ("the curves are in the cache already",))
    heads, (pace, paced) = heads_of(spec.model, known), _curve_pace(spec, known)
    if heads is None:
        return Part(None, pace, ("how many heads the model has is not known yet",))
    points = spec.points or heads + 1
    examples = len(task(spec.task).examples(left[0], spec.split, spec.size))
    plural = "s" if len(left) > 1 else ""
    words = f"{points} points of {examples} examples in {len(left)} language{plural}"
    return Part(points * examples * len(left), pace, (words, paced))


def _curve_pace(spec: CurveSpec, known: Known) -> tuple[float | None, str]:
    here = [
        r.record
        for r in known.curves
        if r.meta.get("device") == known.device and is_of(r.record, spec.model, spec.task)
    ]
    seen = [curve.seconds / curve.example_forwards for curve in here if curve.example_forwards]
    plural = "s" if len(seen) > 1 else ""
    return median_pace(
        seen, known, f"{len(seen)} curve{plural} computed on such a device ({known.device})"
    )


def _same(curve: Curve, spec: CurveSpec, language: str) -> bool:
    """Whether a curve is what the job would compute, as far as can be known without the model."""
    order = curve.spec["order"]
    got = (
        curve.language,
        curve.split,
        order["method"],
        order["options"],
        order["seed"],
        curve.spec["ablation"],
    )
    want = (language, spec.split, spec.method, dict(spec.options), spec.seed, spec.ablation)
    if (
        not is_of(curve, spec.model, spec.task)
        or got != want
        or not same_classes(curve.spec["task"], spec.label_map)
    ):
        return False
    if (spec.points or curve.grid.size + 1) != len(curve.removed):
        return False
    return bool(
        curve.spec["task"]["size"] == len(task(spec.task).examples(language, spec.split, spec.size))
    )


CURVE = Kind(
    "curve", CurveSpec, fill_curve, run_curve, foresee_curve,
    "Pruning curves, and where the scores that order the heads are computed.", Place,
)  # fmt: skip
