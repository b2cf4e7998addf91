"""A worker's client without a worker: its jobs are a list, and it records the requests it gets."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headlab.core import HeadGrid, HeadlabError
from headlab.jobs import Job
from headlab.methods import Forecast
from headlab.studies.front_so_far import FrontSoFar
from headlab.worker.schemas import (
    Answer,
    AttentionRequest,
    Deleted,
    ExampleCard,
    Finding,
    Health,
    JobRow,
    LoadedModel,
    LoadedPlayers,
    ModelCard,
    NextToken,
    Submitted,
    TaskCard,
    Weights,
)

SPEC = {
    "model": "e5-small-intents",
    "task": "intents",
    "languages": ["de", "th"],
    "method": "leave-one-out",
    "options": {"level": 0.95},
    "seed": 0,
    "split": "dev",
    "size": 512,
    "ablation": "zero",
}


def job_row(number: int, state: str = "queued", **fields: Any) -> JobRow:
    """A row of the job list, as the worker sends it."""
    now = time.time()
    row: dict[str, Any] = {
        "id": number,
        "kind": "score",
        "params": SPEC,
        "state": state,
        "done": 0,
        "total": 0,
    }
    row |= {
        "note": "",
        "error": None,
        "seconds_left": None,
        "attempts": 0,
        "created": now - 60,
        "started": None,
    }
    row |= {"ended": None, "place": "here", "result": None}
    if state != "queued":
        row |= {"started": now - 50, "attempts": 1, "total": 2000, "done": 680}
    if state in ("done", "failed", "cancelled"):
        row |= {"ended": now - 20}
    return JobRow(**{**row, **fields})


def health(**fields: Any) -> Health:
    """What a worker says of itself: it is idle without a device, unless the fields differ."""
    idle: dict[str, Any] = {
        "ok": True,
        "device": None,
        "model": None,
        "jobs_running": 0,
        "jobs_waiting": 0,
        "ray": "",
        "version": "",
        "pid": 1,
        "state": ".worker",
        "note": "",
    }
    return Health(**{**idle, **fields})


def loaded_model(name: str, **fields: Any) -> LoadedModel:
    """A model as a worker describes it, with the required fields alone and those given."""
    model: dict[str, Any] = {
        "name": name,
        "revision": "x",
        "fingerprint": "0" * 64,
        "grid": {"encoder": [12] * 12},
        "device": "cpu",
        "note": "",
    }
    return LoadedModel(**{**model, **fields})


@dataclass
class FakeClient:
    """Everything that the pages ask of a worker.

    Attributes:
        rows: The job list.
        ray: Address of a Ray cluster; empty for none.
        calls: (method, arguments) of every request that changes something.
        lines: The log of every job.
        foretold: The forecast of every job.
        scores: Partial scores of a running job.
        front: What a running job has measured of a front.
        trouble: Message of the error that every request raises; empty for none.
        no_answer_note: Why the model gives no answer; empty if it gives one.
        next_tokens: What the model expects, in place of answers; empty for a model with labels.
        findings_by_subject: What the files of a model tell, by model and task; of others nothing.
    """

    rows: list[JobRow] = field(default_factory=list)
    ray: str = ""
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    lines: list[str] = field(default_factory=lambda: ["2026-11-21T14:00:00Z submitted"])
    forecast_of_all_jobs: Forecast = field(
        default_factory=lambda: Forecast(
            forwards=147456,
            seconds=150.0,
            basis="measured here: 1 ms a forward",
        )
    )
    scores: Any = None
    front: FrontSoFar | None = None
    connection_error: str = ""
    no_answer_note: str = ""
    next_tokens: list[NextToken] = field(default_factory=list)
    findings_by_subject: dict[tuple[str, str | None], list[Finding]] = field(default_factory=dict)

    def _refuse_if_unreachable(self) -> None:
        if self.connection_error:
            raise HeadlabError(self.connection_error, code="worker.unreachable")

    def health(self) -> Health:
        self._refuse_if_unreachable()
        running = sum(row.state == "running" for row in self.rows)
        return health(device="cpu", jobs_running=running, ray=self.ray)

    def models(self) -> list[ModelCard]:
        self._refuse_if_unreachable()
        return [ModelCard(name="e5-small-intents", summary="", embedded=True, fingerprint="0" * 64)]

    def jobs(self) -> list[JobRow]:
        self._refuse_if_unreachable()
        return sorted(self.rows, key=lambda row: -row.id)

    def job(self, number: int) -> JobRow:
        self._refuse_if_unreachable()
        for row in self.rows:
            if row.id == number:
                return row
        raise HeadlabError(
            f"there is no job {number}; the list of jobs shows those that exist", code="job.unknown"
        )

    def change(self, number: int, **changes: Any) -> None:
        """Change a row of the list."""
        index = self.rows.index(self.job(number))
        self.rows[index] = self.rows[index].model_copy(update=changes)

    def snapshot(self, number: int) -> tuple[JobRow, Any]:
        return self.job(number), self.scores

    def front_so_far(self, number: int) -> tuple[JobRow, FrontSoFar | None]:
        return self.job(number), self.front

    def log(self, number: int) -> list[str]:
        self.job(number)
        return self.lines

    def submit(self, job_to_submit: Job, *, place: str = "here") -> Submitted:
        self._refuse_if_unreachable()
        params = job_to_submit.params()
        self.calls.append(("submit", job_to_submit.key, params, place))
        for row in self.rows:
            if row.params == params and row.state in ("queued", "running"):
                return Submitted(id=row.id, state=row.state)
        largest_id = max((row.id for row in self.rows), default=0)
        row = job_row(1 + largest_id, params=params, kind=job_to_submit.key)
        self.rows.append(row)
        return Submitted(id=row.id, state=row.state)

    def forecast(self, job_to_submit: Job) -> Forecast:
        self._refuse_if_unreachable()
        return self.forecast_of_all_jobs

    def gradient(self, model: str, task: str, language: str, **options: Any) -> None:
        self._refuse_if_unreachable()
        self.calls.append(("gradient", model, task, language, options))

    def load_model(self, name: str) -> LoadedModel:
        self._refuse_if_unreachable()
        return loaded_model(name)

    def players(self, model: str, grid: HeadGrid) -> LoadedPlayers:
        """The refusal of a worker of an earlier version."""
        self._refuse_if_unreachable()
        raise HeadlabError("there is no /players", code="request.path_unknown")

    def check_model(
        self, model: str, task: str | None = None, label_map: Mapping[str, str] | None = None
    ) -> list[Finding]:
        self._refuse_if_unreachable()
        return list(self.findings_by_subject.get((model, task), ()))

    def tasks(self) -> list[TaskCard]:
        cards = []
        for name in ("intents", "slots"):
            cards.append(TaskCard(name=name, labels=[name], languages=["de", "th"], aligned=False))
        return cards

    def sentences(self, task: str, language: str, n: int) -> list[ExampleCard]:
        text = ExampleCard(id="1", text=f"licht an ({language})", label="turn_on")
        if task != "slots":
            return [text]
        of_words = {"label": None, "words": ["licht", "an"], "labels": ["device", "other"]}
        return [text.model_copy(update=of_words)]

    def attention(self, request: AttentionRequest) -> Weights:
        """Three tokens, each of which looks at the next.

        Without the heads the sentence gets another label; of two words, the first one does.
        """
        self.calls.append(("attention", request))
        rows = [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
        weight_bytes = bytes(int(255 * weight) for row in rows for weight in row)
        encoded_weights = b64encode(weight_bytes).decode("ascii")
        answers = [Answer(word=None, on="turn_on", p_on=0.931, off="turn_off", p_off=0.5)]
        if request.words:
            answers = [
                Answer(word="licht", on="device", p_on=0.9, off="other", p_off=0.6),
                Answer(word="an", on="other", p_on=0.8, off="other", p_off=0.7),
            ]
        elif self.no_answer_note or self.next_tokens:
            answers = []
        weights_by_head = {
            f"encoder.{layer}.{head}": encoded_weights for layer in range(12) for head in range(12)
        }
        return Weights(
            tokens=["<s>", "licht", "an"],
            special=[0],
            places=[-1, 0, 1],
            words=["licht", "an"],
            weights={f"{stack}.{layer}.{head}": rows for stack, layer, head in request.heads},
            truncated=False,
            answers=answers,
            note=self.no_answer_note,
            next_tokens=self.next_tokens if request.task else [],
            maps=weights_by_head if request.maps else {},
        )

    def cancel(self, number: int) -> JobRow:
        return self._become("cancel", number, "cancelled")

    def resume(self, number: int) -> JobRow:
        return self._become("resume", number, "queued")

    def delete(self, number: int) -> Deleted:
        self.rows.remove(self.job(number))
        self.calls.append(("delete", number))
        return Deleted()

    def _become(self, action: str, number: int, state: str) -> JobRow:
        self.change(number, state=state)
        self.calls.append((action, number))
        return self.job(number)


@dataclass
class FakeWorker:
    """Stands for `headlab.worker.process.Worker`."""

    fake_client: FakeClient
    url: str = "http://worker"

    def client(self) -> FakeClient:
        return self.fake_client
