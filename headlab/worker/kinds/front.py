"""Front jobs: nested masks judged on dev in every language, the choice among them, and its confirmation on test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from headlab.errors import HeadlabError
from headlab.methods.table import method
from headlab.records import content_key
from headlab.scores import Curve
from headlab.studies.pareto import ABOUT, resolve
from headlab.studies.table import METHOD, METHOD_OPTIONS
from headlab.tasks import task
from headlab.worker.kinds.experiment import ExperimentSpec, modest, pieces_of
from headlab.worker.kinds.kind import (
    Estimate,
    Kind,
    Known,
    Lab,
    Part,
    heads_of,
    measured,
    named,
    scores_part,
    told,
    total,
)
from headlab.worker.kinds.score import checked
from headlab.worker.runner import Running
from headlab.worker.schemas import MeasureRequest, Refusal, ScoreSpec

if TYPE_CHECKING:  # it imports torch
    from headlab.records import Progress

MEASURED = 2  # masks on test: none, and the chosen one


class FrontSpec(ExperimentSpec):
    """A front on some languages of a task ("all": on every one).

    method, method_options: of the scores that order the heads.  options: orders, points, within, heads and by, as in
    docs/front.md.  dev_size, test_size: examples of each split, None for all.
    """

    experiment: Literal["front"] = "front"


def fill(spec: FrontSpec) -> FrontSpec:
    """Details in full. Raises Refusal (422) for what does not exist or fit, and where the task's data are not here."""
    try:
        return _filled(spec)
    except HeadlabError as error:
        raise Refusal(str(error), 422, code=error.code) from error


def _filled(spec: FrontSpec) -> FrontSpec:
    chosen = task(spec.task, spec.languages)
    for place, about_it in ((METHOD, "method"), (METHOD_OPTIONS, "options of the method")):
        if place in spec.options:
            raise HeadlabError(
                f"the {about_it} goes beside the options of a front, not among them", code="front.option_misplaced"
            )
    full = resolve(options_of(spec))
    for split in ("dev", "test"):
        chosen.examples(chosen.languages[0], split, 1)
    return spec.model_copy(
        update={
            "languages": list(chosen.languages),
            "method": full[METHOD],
            "method_options": modest(checked(dict(full[METHOD_OPTIONS]))),
            "options": modest({name: full[name] for name in ABOUT.options if name not in (METHOD, METHOD_OPTIONS)}),
        }
    )


def options_of(spec: FrontSpec) -> dict[str, Any]:
    """The options as `find_front` takes them."""
    return {**spec.options, METHOD: method(spec.method).key, METHOD_OPTIONS: dict(spec.method_options)}


def run(lab: Lab, running: Running, spec: FrontSpec) -> Mapping[str, Any]:
    """Make the front; what the store has is not computed again."""
    from headlab.studies.pareto_run import find_front

    running.progress(0, 0, "looking up what there is", fresh=True)
    pieces = pieces_of(lab, spec, running.tick, running)
    fresh = True

    def on_progress(step: Progress) -> None:
        nonlocal fresh
        running.progress(step.done, step.total, step.note, fresh=fresh)
        fresh = False

    report = find_front(pieces, options=options_of(spec), on_progress=on_progress)
    done = max(1, pieces.forwards)
    running.progress(done, done, "the front is kept")
    return {"keys": [content_key(report.spec)]}


def foresee(spec: FrontSpec, known: Known) -> Estimate:
    """Cost of the scores that are lacking, of the walks on dev, and of two masks on test."""
    languages, size = named(spec.languages), spec.dev_size or 100_000
    scores = ScoreSpec(
        model=spec.model, task=spec.task, languages=languages, method=spec.method, options=spec.method_options,
        seed=spec.seed, size=size, ablation=spec.ablation,
    )  # fmt: skip
    parts = [scores_part(scores, languages, known), _walks(spec, languages, known), _test(spec, languages, known)]
    return total(parts, MeasureRequest(model=spec.model, task=spec.task, language=languages[0]))


def _walks(spec: FrontSpec, languages: list[str], known: Known) -> Part:
    heads, (pace, paced) = heads_of(spec.model, known), _pace(spec, known)
    if heads is None:
        return Part(None, pace, ("how many heads the model has is not known yet",))
    orders = list(str(spec.options["orders"]).split(","))
    count = sum(len(languages) if name == "own" else 1 for name in orders)
    asked = spec.options["points"]
    points = min(asked, heads + 1) if isinstance(asked, int) else heads + 1
    examples = len(task(spec.task).examples(languages[0], "dev", spec.dev_size))
    there = _kept(spec, languages, known)
    left = max(0, count * len(languages) - there)
    kept = (f"{there} walks are in the cache already",) if there else ()
    words = f"{left} walks of at most {points} points over {examples} dev examples"
    return Part(left * points * examples, pace, (*kept, words, *((paced,) if left else ())))


def _kept(spec: FrontSpec, languages: list[str], known: Known) -> int:
    """Walks of a front with these settings that the store has, as far as can be told without the model."""
    found = {
        (c.spec["order"]["method"], c.language)
        for c in (one.curve for one in known.curves)
        if _of(c, spec) and c.split == "dev" and c.language in languages and c.spec["ablation"] == spec.ablation
        and c.spec["order"]["language"] == ",".join(languages) and c.spec["order"]["seed"] == spec.seed
        and dict(c.spec["order"].get("options") or {}).get("of") == spec.method
    }  # fmt: skip
    return len(found)


def _pace(spec: FrontSpec, known: Known) -> tuple[float | None, str]:
    here = [r.curve for r in known.curves if r.meta.get("device") == known.device and _of(r.curve, spec)]
    seen = sorted(curve.seconds / curve.example_forwards for curve in here if curve.example_forwards)
    if not seen:
        return measured(known)
    return (pace := seen[len(seen) // 2]), told(pace, f"as in {len(seen)} curves computed on such a device")


def _test(spec: FrontSpec, languages: list[str], known: Known) -> Part:
    examples = len(task(spec.task).examples(languages[0], "test", spec.test_size))
    pace, paced = _pace(spec, known)
    words = f"{MEASURED} masks on {examples} test examples in each of {len(languages)} languages"
    return Part(MEASURED * examples * len(languages), pace, (words, paced))


def _of(curve: Curve, spec: FrontSpec) -> bool:
    return bool((curve.spec["model"]["name"], curve.spec["task"]["name"]) == (spec.model, spec.task))


FRONT = Kind("front", FrontSpec, fill, run, foresee)
