"""What a click on a head costs when several people click at once: time to first and final accuracy.

Starts a worker as the app does, on the embedded model. Each session is a thread that switches some
heads off, asks for the accuracy of that mask in one language, on 512 dev examples, and reads the
answer to its end before the next mask (TOGGLES: how many). All sessions begin at the same moment,
the worst that can happen. No mask is asked for twice, so nothing comes from a cache. With 1, 5 and
20 sessions, with and without a job that computes Shapley values meanwhile.

`python benchmarks/sessions.py` writes results/sessions.json; `--smoke` asks once and writes nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from machine import installed_version, machine_facts, write_json  # noqa: E402 - beside this file

from headlab.core import HeadGrid  # noqa: E402
from headlab.masks import Mask  # noqa: E402
from headlab.worker.client import Client  # noqa: E402
from headlab.worker.process import start_local  # noqa: E402
from headlab.worker.schemas import EvaluateRequest  # noqa: E402

RESULT_FILE = ROOT / "benchmarks" / "results" / "sessions.json"
MODEL = "e5-small-intents"
TASK = "intents"
LANGUAGES = ("de", "en", "fi", "ru", "th")
PEOPLE = (1, 5, 20)
TOGGLES = {1: 8, 5: 3, 20: 1}
FIRST_LIMIT = 1.0
PACKAGES = ("headlab", "torch", "transformers", "numpy", "httpx", "uvicorn")


@dataclass(frozen=True)
class ResponseTimes:
    """One row: seconds from a request to its first figure (16 examples) and its final one (512).

    Attributes:
        sessions: How many there were at once.
        job: Whether a job ran beside them.
        toggles: Masks of all sessions together.
        first_p50: Median seconds to the first figure.
        first_p95: What 95 % of the first figures took at most.
        final_p50: Median seconds to the final figure.
        final_p95: What 95 % of the final figures took at most.
        final_worst: The longest wait for a final figure.
        seconds: From the common start to the last answer.
        served: Masks answered by session, to see that none was left out.
    """

    sessions: int
    job: bool
    toggles: int
    first_p50: float
    first_p95: float
    final_p50: float
    final_p95: float
    final_worst: float
    seconds: float
    served: list[int]


def random_masks(grid: HeadGrid, identity: dict[str, Any], seed: int, count: int) -> list[Mask]:
    """Masks with one to twelve heads off, different ones for every seed."""
    rng = np.random.default_rng([11, seed])
    masks = []
    for _ in range(count):
        kept = np.ones(grid.size, bool)
        kept[rng.permutation(grid.size)[: rng.integers(1, 13)]] = False
        masks.append(Mask(grid, kept, identity))
    return masks


def toggle(client: Client, language: str, mask: Mask, session: str) -> tuple[float, float]:
    """Seconds to the first and to the final figure of a mask.

    Both are the same where another session asked for this mask before: its answer comes at once.
    """
    start = time.monotonic()
    seconds: list[float] = []
    request = EvaluateRequest(model=MODEL, task=TASK, language=language, mask=mask, session=session)
    for _figure in client.evaluate(request):
        seconds.append(time.monotonic() - start)
    return seconds[0], seconds[-1]


def run_sessions(
    client: Client, masks_by_session: Sequence[Sequence[Mask]]
) -> tuple[list[list[tuple[float, float]]], float]:
    """Run all sessions at once, each in a thread of its own.

    Returns:
        The times of each session's masks (see `toggle`), and the seconds until all had ended.
    """
    times: list[list[tuple[float, float]]] = [[] for _ in masks_by_session]
    barrier = threading.Barrier(len(masks_by_session) + 1)

    def use(number: int) -> None:
        barrier.wait()
        language = LANGUAGES[number % len(LANGUAGES)]
        for mask in masks_by_session[number]:
            times[number].append(toggle(client, language, mask, f"person {number}"))

    threads = [
        threading.Thread(target=use, args=(number,)) for number in range(len(masks_by_session))
    ]
    for thread in threads:
        thread.start()
    barrier.wait()
    start = time.monotonic()
    for thread in threads:
        thread.join()
    return times, time.monotonic() - start


def response_times(
    client: Client, masks_by_session: Sequence[Sequence[Mask]], job: bool
) -> ResponseTimes:
    """Measure one row."""
    times, seconds = run_sessions(client, masks_by_session)
    served = [len(session_times) for session_times in times]
    if served != [len(masks) for masks in masks_by_session]:
        raise SystemExit("a session was not answered; see the error above")
    all_times = np.array([pair for session_times in times for pair in session_times])
    first, final = all_times.T
    return ResponseTimes(
        len(masks_by_session),
        job,
        final.size,
        *np.percentile(first, [50, 95]),
        *np.percentile(final, [50, 95]),
        final.max(),
        seconds,
        served,
    )


def start_job(client: Client, seed: int) -> int:
    """Start a job that outlasts the measurement, and wait until it computes; its number."""
    spec = {"model": MODEL, "task": TASK, "languages": ["de"], "method": "shapley", "seed": seed}
    job = int(client.submit("score", {**spec, "options": {"samples": 100_000}}).id)
    while client.job(job).done == 0:
        if client.job(job).state not in ("queued", "running"):
            raise SystemExit(f"the job ended: {client.job(job).error}")
        time.sleep(0.1)
    return job


def stop_job(client: Client, job: int) -> None:
    """Cancel a job and wait until it has ended."""
    client.cancel(job)
    while client.job(job).state in ("queued", "running"):
        time.sleep(0.05)


def measure(people: Sequence[int], smoke: bool) -> list[ResponseTimes]:
    """All rows, on one worker with a cache of its own."""
    with tempfile.TemporaryDirectory(prefix="headlab-bench-") as folder:
        worker = start_local(Path(folder), MODEL)
        try:
            return list(measured_rows(worker.client(), people, smoke))
        finally:
            worker.stop()


def measured_rows(client: Client, people: Sequence[int], smoke: bool) -> list[ResponseTimes]:
    """Measure every number of sessions, without a job and then with one.

    The worker is asked for the baselines first, so that no session waits for them.
    """
    model = client.load_model(MODEL)
    identity = {"name": MODEL, "fingerprint": model.fingerprint}
    for language in LANGUAGES:
        list(client.evaluate(EvaluateRequest(model=MODEL, task=TASK, language=language)))
    rows = []
    seed = 0
    for job in (False, True):
        running = start_job(client, 0) if job else None
        for count in people:
            masks_by_session = []
            for _ in range(count):
                seed += 1
                mask_count = 1 if smoke else TOGGLES[count]
                masks_by_session.append(random_masks(model.grid, identity, seed, mask_count))
            rows.append(response_times(client, masks_by_session, job))
            print(table_row(rows[-1]), flush=True)
        if running is not None:
            if client.job(running).state != "running":
                raise SystemExit("the job ended before the measurement did")
            stop_job(client, running)
    return rows


TABLE_HEAD = """| sessions | job | toggles | first p50 | first p95 | final p50 | final p95 | final worst |
| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |"""


def table_row(times: ResponseTimes) -> str:
    """A row of the table, in seconds."""
    waits = (
        times.first_p50,
        times.first_p95,
        times.final_p50,
        times.final_p95,
        times.final_worst,
    )
    wait_cells = " | ".join(f"{seconds:.2f} s" for seconds in waits)
    job = "yes" if times.job else "no"
    return f"| {times.sessions} | {job} | {times.toggles} | {wait_cells} |"


def main() -> int:
    """Measure, print, write; 1 if a single session's first figure takes too long beside a job.

    With --smoke the exit status is always 0.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--smoke", action="store_true", help="one toggle a session, to see that it works"
    )
    smoke = parser.parse_args().smoke
    machine = machine_facts()
    print(TABLE_HEAD)
    rows = measure((1, 2) if smoke else PEOPLE, smoke)
    if smoke:
        return 0
    report = {
        "command": "python benchmarks/sessions.py",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine,
        "versions": {name: installed_version(name) for name in PACKAGES},
        "languages": LANGUAGES,
        "settings": [asdict(row) for row in rows],
    }
    write_json(RESULT_FILE, report)
    print(f"written to {RESULT_FILE.relative_to(ROOT)}")
    one_session_beside_job = next(row for row in rows if row.job and row.sessions == 1)
    return 0 if one_session_beside_job.first_p95 < FIRST_LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
