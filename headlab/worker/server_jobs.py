"""The routes about jobs: what they will cost, submitting, following and ending them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import FastAPI, Path, Request
from starlette.concurrency import run_in_threadpool

from headlab.worker.engine import Engine
from headlab.worker.forecasts import estimated
from headlab.worker.kinds.table import Submission
from headlab.worker.schemas import Deleted, Forecast, Job, JobLog, Measured, Refusal, Scores, Snapshot, Submitted
from headlab.worker.snapshots import told
from headlab.worker.streams import only

JobId = Annotated[int, Path(ge=1, lt=1 << 63)]


def add_jobs(app: FastAPI, engine: Engine, admit: Callable[[str], str]) -> None:
    """Routes about jobs. admit: refuses models that may not be asked for."""
    _add_list(app, engine, admit)
    _add_one(app, engine, admit)


def _add_list(app: FastAPI, engine: Engine, admit: Callable[[str], str]) -> None:
    @app.post("/jobs", status_code=202)
    def submit(request: Submission) -> Submitted:
        """Queue a job; the same work asked for twice is one job, wherever it is computed."""
        _admit(request, admit)
        return engine.submit(request.kind, request.spec.model_dump(), request.place)

    @app.post("/forecast")
    async def forecast(request: Submission, http: Request) -> Forecast:
        """What a job will cost; where nothing is known of such work, a few batches of it are timed."""
        await run_in_threadpool(_admit, request, admit)
        first = await run_in_threadpool(estimated, engine, request)
        if first.ask is None:
            return first.forecast
        ask = first.ask
        try:
            seen = await only(http, lambda send: engine.measure(ask, send))
        except Refusal as refusal:  # a job holds another model, or too many wait: what is known is told
            return first.forecast.model_copy(update={"basis": f"{first.forecast.basis} ({refusal})"})
        assert isinstance(seen, Measured)
        return (await run_in_threadpool(estimated, engine, request, seen)).forecast

    @app.get("/jobs")
    def jobs() -> list[Job]:
        return engine.jobs.list()


def _add_one(app: FastAPI, engine: Engine, admit: Callable[[str], str]) -> None:
    @app.get("/jobs/{job}")
    def one(job: JobId) -> Job:
        return engine.jobs.get(job)

    @app.get("/jobs/{job}/snapshot")
    def snapshot(job: JobId) -> Snapshot:
        found, scores = engine.jobs.get(job), engine.look(job)
        return Snapshot(job=found, scores=None if scores is None else Scores(**told(scores)))

    @app.get("/jobs/{job}/log")
    def lines(job: JobId) -> JobLog:
        """What happened to a job: its last 500 lines."""
        return JobLog(lines=list(engine.jobs.log(job)))

    @app.delete("/jobs/{job}")
    def delete(job: JobId) -> Deleted:
        """Take a job that does not run off the list, with its log and checkpoints; results stay."""
        engine.delete(job)
        return Deleted()

    @app.post("/jobs/{job}/cancel")
    def cancel(job: JobId) -> Job:
        return engine.jobs.cancel(job)

    @app.post("/jobs/{job}/resume")
    def resume(job: JobId) -> Job:
        """Queue a cancelled or failed job again; it goes on from its checkpoint."""
        model = engine.jobs.get(job).params.get("model")
        if model is not None:
            admit(str(model))  # it may be of a time when the worker was on loopback
        return engine.resume(job)


def _admit(request: Submission, admit: Callable[[str], str]) -> None:
    """Refuse a job on a model that may not be asked for; a fine-tuning has its own base."""
    model = getattr(request.spec, "model", None)
    if model is not None:
        admit(str(model))
