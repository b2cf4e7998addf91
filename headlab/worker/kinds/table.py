"""The kinds of jobs; a new one needs its own module and its lines here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field

from headlab.worker.kinds.experiment import EXPERIMENT, FRONT, WORTH, ExperimentSpec, FrontSpec, WorthSpec
from headlab.worker.kinds.finetune import FINETUNE, FinetuneSpec
from headlab.worker.kinds.gates import GATES, GatesSpec
from headlab.worker.kinds.kind import Kind
from headlab.worker.kinds.roles import ROLES, RolesSpec
from headlab.worker.kinds.score import CURVE, SCORE, CurveSpec
from headlab.worker.schemas import Place, Refusal, ScoreSpec, Strict

KINDS: Mapping[str, Kind[Any]] = MappingProxyType(
    {kind.key: kind for kind in (SCORE, CURVE, FINETUNE, EXPERIMENT, ROLES, GATES, FRONT, WORTH)}
)
# By kind: the function that checks and fills in a job's params.
CHECKS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = MappingProxyType(
    {key: kind.check for key, kind in KINDS.items()}
)


class ScoreJob(Strict):
    """Head scores, and where they are computed."""

    kind: Literal["score"]
    spec: ScoreSpec
    place: Place = "here"


class CurveJob(Strict):
    """Pruning curves, and where the scores that order the heads are computed."""

    kind: Literal["curve"]
    spec: CurveSpec
    place: Place = "here"


class FinetuneJob(Strict):
    """A fine-tuning job, run on the worker's own device."""

    kind: Literal["finetune"]
    spec: FinetuneSpec
    place: Literal["here"] = "here"


class ExperimentJob(Strict):
    """An experiment, run on the worker's own device."""

    kind: Literal["experiment"]
    spec: ExperimentSpec
    place: Literal["here"] = "here"


class RolesJob(Strict):
    """Roles of heads, computed on the worker's own device."""

    kind: Literal["roles"]
    spec: RolesSpec
    place: Literal["here"] = "here"


class GatesJob(Strict):
    """Learned gates, trained on the worker's own device."""

    kind: Literal["gates"]
    spec: GatesSpec
    place: Literal["here"] = "here"


class FrontJob(Strict):
    """A front of smaller models, computed on the worker's own device."""

    kind: Literal["front"]
    spec: FrontSpec
    place: Literal["here"] = "here"


class WorthJob(Strict):
    """What a mask saves, measured on the worker's own device."""

    kind: Literal["worth"]
    spec: WorthSpec
    place: Literal["here"] = "here"


Submission = Annotated[
    ScoreJob | CurveJob | FinetuneJob | ExperimentJob | RolesJob | GatesJob | FrontJob | WorthJob,
    Field(discriminator="kind"),
]


def kind_of(key: str) -> Kind[Any]:
    """A kind by its key. Raises Refusal (422)."""
    if key not in KINDS:
        raise Refusal(f"unknown kind of job {key!r}; choose from {', '.join(KINDS)}", 422, code="job.kind_unknown")
    return KINDS[key]
