"""Score jobs: head scores of a model by one method, language after language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headlab.methods.table import method
from headlab.records import content_key
from headlab.tasks import task
from headlab.worker.kinds.kind import PART, WALKS, Estimate, Kind, Known, Lab, named, reporter, scores_part, total
from headlab.worker.runner import Running
from headlab.worker.schemas import MeasureRequest, Refusal, ScoreSpec

# Options that say how much is held in memory at once; a request may not ask for more.
LARGEST = {"batch_size": 1024}


def fill(spec: ScoreSpec) -> ScoreSpec:
    """Details in full. Raises HeadlabError for a task, language, method or option that does not exist."""
    chosen = method(spec.method)
    languages = task(spec.task, spec.languages).languages
    options = checked(chosen.resolve(spec.options))
    return spec.model_copy(update={"method": chosen.key, "languages": list(languages), "options": options})


def checked(options: dict[str, Any]) -> dict[str, Any]:
    """The options, none larger than a request may ask for. Raises Refusal (422)."""
    for name, most in LARGEST.items():
        if isinstance(value := options.get(name), int) and value > most:
            raise Refusal(f"{name} is {value}; a job may ask for {most} at most", 422, code="job.number_too_large")
    return options


def run(lab: Lab, running: Running, spec: ScoreSpec) -> Mapping[str, Any]:
    """Score the languages one after the other; what the store has already is not computed again."""
    languages = named(spec.languages)
    total, keys = len(languages) * PART, []
    for at, language in enumerate(languages):
        running.progress(at * PART, total, language, fresh=True)
        scores = lab.scored(running, spec, language, reporter(running, language, at, len(languages)))
        keys.append(content_key(scores.spec))
    running.progress(total, total, f"{', '.join(languages)} done")
    return {"keys": keys}


def foresee(spec: ScoreSpec, known: Known) -> Estimate:
    """Cost of the languages that the store lacks."""
    return total([scores_part(spec, named(spec.languages), known)], measure(spec))


def measure(spec: ScoreSpec) -> MeasureRequest:
    """What to time on the device where nothing is known of such work."""
    timed = None if spec.method in WALKS else spec.method
    options = {} if timed is None else dict(spec.options)
    language = named(spec.languages)[0]
    return MeasureRequest(model=spec.model, task=spec.task, language=language, method=timed, options=options)


SCORE = Kind("score", ScoreSpec, fill, run, foresee)
