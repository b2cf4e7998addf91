"""Worth jobs: how long a mask's model takes, untouched, masked and shrunk, on the worker's device now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from headlab.masks import mask_from_json
from headlab.tasks import task
from headlab.worker.kinds.kind import Estimate, Kind, Known, Lab, Part, measured, named, total
from headlab.worker.runner import Running
from headlab.worker.schemas import Languages, MeasureRequest, Name, Seed, Strict

# Each timed pass follows one that is not; rows of a pass as in headlab.studies.savings_run.
MODELS, PASSES, ROWS = 3, 2, 32
BatchSize = Annotated[int, Field(ge=1, le=1024)]


class WorthSpec(Strict):
    """What a mask is worth, on examples of some languages of a task ("all": of every one).

    mask: as in a mask file.  rounds: of passes of all three models, 6 to 200.
    """

    model: Name
    task: Name
    languages: Languages
    mask: dict[str, Any]
    batch_sizes: Annotated[list[BatchSize], Field(min_length=1, max_length=8)] = Field(default=[1, 8, 32])
    rounds: Annotated[int, Field(ge=6, le=200)] = 15
    seed: Seed = 0


def fill(spec: WorthSpec) -> WorthSpec:
    """Details in full. Raises HeadlabError for a task or language that does not exist, or no mask."""
    mask_from_json(spec.mask, "the mask")
    return spec.model_copy(update={"languages": list(task(spec.task, spec.languages).languages)})


def run(lab: Lab, running: Running, spec: WorthSpec) -> Mapping[str, Any]:
    """Measure now: times are of no use later, so nothing is looked up or kept but with the job."""
    from headlab.studies.savings_run import measure  # imports torch

    model, mask = lab.need(spec.model), mask_from_json(spec.mask, "the mask")
    chosen = lab.task(spec.task).restricted(named(spec.languages))
    worth = measure(
        model, mask, task=chosen, batch_sizes=spec.batch_sizes, rounds=spec.rounds, seed=spec.seed, tick=running.tick,
        told=lambda done, total, note: running.progress(done, total, note, fresh=not done),
    )  # fmt: skip
    return {"worth": worth.to_json()}


def foresee(spec: WorthSpec, known: Known) -> Estimate:
    """Passes of all three models, each timed one after one that is not, at the pace of plain forwards."""
    rows = sum(max(ROWS, size) for size in set(spec.batch_sizes))
    pace, paced = measured(known)
    part = Part(MODELS * PASSES * spec.rounds * rows, pace, (f"{spec.rounds} rounds at each batch size", paced))
    return total([part], MeasureRequest(model=spec.model, task=spec.task, language=named(spec.languages)[0]))


WORTH = Kind("worth", WorthSpec, fill, run, foresee)
