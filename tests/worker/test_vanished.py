"""A client that goes away: its live requests are not computed any more, but its jobs are."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.fake_worker import MODEL, FakeBench
from support.running_worker import RunningWorker, evaluate_request, started_worker
from support.waiting import HANG_SECONDS, wait_until
from support.worker_jobs import wait_for_state

from headlab.core import HeadGrid, Stack
from headlab.masks import full_mask
from headlab.worker.schemas import AttentionRequest, Changed, EvaluateRequest, LoadedModel, Weights

GRID = HeadGrid((Stack("encoder", (4, 4)),))
MASK = full_mask(GRID).to_json()
REQUESTS: dict[str, dict[str, Any]] = {
    "/attention": {"model": MODEL, "text": "turn it off", "heads": [["encoder", 0, 0]]},
    "/model": {"model": "another"},
    "/changes": {"model": MODEL, "task": "intents", "language": "fr", "mask": MASK},
    "/gradient": {"model": MODEL, "task": "intents", "language": "fr"},
    "/evaluate": {"model": MODEL, "task": "intents", "language": "fr", "session": "gone"},
}


class RecordingBench(FakeBench):
    """Records what it is asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, pause=0.0)
        self.batches_may_end.clear()
        self.calls: list[str] = []

    def load(self, model: str) -> LoadedModel:
        self.calls.append(model)
        return super().load(model)

    def changes(self, request: EvaluateRequest) -> Changed:
        self.calls.append("changes")
        return super().changes(request)

    def attention(self, request: AttentionRequest) -> Weights:
        self.calls.append("attention")
        return super().attention(request)


@pytest.fixture
def benches() -> list[RecordingBench]:
    return []


@pytest.fixture
def worker(tmp_path: Path, benches: list[RecordingBench]) -> Iterator[RunningWorker]:
    def make() -> RecordingBench:
        benches.append(RecordingBench(tmp_path))
        return benches[0]

    with started_worker(tmp_path, make) as worker:
        yield worker


@pytest.mark.parametrize("path", REQUESTS)
def test_nothing_is_done_for_a_client_that_left_before_its_turn(
    worker: RunningWorker, benches: list[RecordingBench], path: str
) -> None:
    """Another client's evaluation is in the middle of a long batch meanwhile."""
    bench = benches[0]
    other_client = threading.Thread(
        target=lambda: list(
            worker.client.evaluate(evaluate_request(MODEL, "intents", "de", session="stays"))
        )
    )
    other_client.start()
    wait_until(lambda: bench.log == ["begin stays 512"])
    url = httpx.URL(worker.url + path)
    with socket.create_connection((url.host, url.port)) as impatient:
        body = json.dumps(REQUESTS[path]).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: {url.host}\r\ncontent-type: application/json\r\n"
        head += f"content-length: {len(body)}\r\n\r\n"
        impatient.sendall(head.encode() + body)
        wait_until(lambda: worker.engine.waiting == 1)
    wait_until(lambda: worker.engine.waiting == 0, "that the server sees that its client has gone")
    bench.batches_may_end.set()
    other_client.join(120)
    wait_until(lambda: worker.engine.idle)
    assert bench.calls == [MODEL]
    assert [line for line in bench.log if line.startswith("begin")] == ["begin stays 512"]
    assert bench.log[-1] == "end stays 512"


def test_a_job_does_not_need_the_client_that_submitted_it(
    worker: RunningWorker, benches: list[RecordingBench]
) -> None:
    spec = {
        "model": MODEL,
        "task": "intents",
        "languages": ["de"],
        "method": "random",
        "seed": 1,
    }
    with httpx.Client(timeout=HANG_SECONDS) as client:
        body = {"kind": "score", "spec": spec}
        job = client.post(f"{worker.url}/jobs", json=body).json()["id"]
    wait_for_state(worker.client, job, "done")
