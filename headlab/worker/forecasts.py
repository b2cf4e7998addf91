"""What a job will cost, from what the store knows and, where that is too little, from what was just timed."""

from __future__ import annotations

from headlab.worker.engine import Engine
from headlab.worker.kinds.kind import Estimate, Known
from headlab.worker.kinds.table import Submission, kind_of
from headlab.worker.schemas import Measured, Refusal


def estimated(engine: Engine, request: Submission, measured: Measured | None = None) -> Estimate:
    """A job's cost as far as it is known; reads the store, so it waits for the disk but not for the device.

    Raises HeadlabError for params that do not fit, Refusal (503) before the device is there.
    """
    params, store, device = engine.check(request.kind, request.spec.model_dump()), engine.store, engine.device
    if device is None:
        raise Refusal(
            engine.trouble or "the worker is getting its device ready; try again in a moment",
            503,
            code=engine.trouble_code or "worker.starting",
        )
    known = Known(store.scan().results, store.curves().results, device.split(":")[0], store.root, measured)
    return kind_of(request.kind).forecast(params, known)
