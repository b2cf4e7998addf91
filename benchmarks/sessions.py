"""What a click on a head costs when several people click at once: time to the first and to the final accuracy.

Starts a worker as the app does, on the embedded model. Each session is a thread that switches other heads off, asks for
the accuracy of that mask in one language, on 512 dev examples, and reads it to the end before the next (TOGGLES: how
often). All begin at one moment, the worst that can happen. Nothing can be remembered from before: no mask is asked for
twice. With 1, 5 and 20 sessions, with and without a job that computes Shapley values meanwhile.

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

from machine import installed, machine, write  # noqa: E402 - beside this file

from headlab.core import HeadGrid  # noqa: E402
from headlab.masks import Mask  # noqa: E402
from headlab.worker.client import Client  # noqa: E402
from headlab.worker.process import start_local  # noqa: E402
from headlab.worker.schemas import EvaluateRequest  # noqa: E402

OUT = ROOT / "benchmarks" / "results" / "sessions.json"
MODEL = "e5-small-intents"
TASK = "intents"
LANGUAGES = ("de", "en", "fi", "ru", "th")
PEOPLE = (1, 5, 20)
TOGGLES = {1: 8, 5: 3, 20: 1}
FIRST_LIMIT = 1.0
PACKAGES = ("headlab", "torch", "transformers", "numpy", "httpx", "uvicorn")


@dataclass(frozen=True)
class Setting:
    """One row: seconds from the question to the first figure (16 examples) and to the final one (512).

    Attributes:
        served: Toggles answered by session, to see that none was left out.
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


def masks(grid: HeadGrid, identity: dict[str, Any], seed: int, count: int) -> list[Mask]:
    """Masks with one to twelve heads off, other ones for every seed."""
    rng = np.random.default_rng([11, seed])
    made = []
    for _ in range(count):
        kept = np.ones(grid.size, bool)
        kept[rng.permutation(grid.size)[: rng.integers(1, 13)]] = False
        made.append(Mask(grid, kept, identity))
    return made


def toggle(client: Client, language: str, mask: Mask, session: str) -> tuple[float, float]:
    """Seconds to the first and the final figure: the same one where another session asked for this mask before."""
    begun = time.monotonic()
    seconds: list[float] = []
    request = EvaluateRequest(model=MODEL, task=TASK, language=language, mask=mask, session=session)
    for _figure in client.evaluate(request):
        seconds.append(time.monotonic() - begun)
    return seconds[0], seconds[-1]


def together(
    client: Client, wanted: Sequence[Sequence[Mask]]
) -> tuple[list[list[tuple[float, float]]], float]:
    """All sessions at once, a thread each; their times, and how long all took."""
    times: list[list[tuple[float, float]]] = [[] for _ in wanted]
    start = threading.Barrier(len(wanted) + 1)

    def use(number: int) -> None:
        start.wait()
        for mask in wanted[number]:
            times[number].append(
                toggle(client, LANGUAGES[number % len(LANGUAGES)], mask, f"person {number}")
            )

    threads = [threading.Thread(target=use, args=(number,)) for number in range(len(wanted))]
    for thread in threads:
        thread.start()
    start.wait()
    begun = time.monotonic()
    for thread in threads:
        thread.join()
    return times, time.monotonic() - begun


def setting(client: Client, wanted: Sequence[Sequence[Mask]], job: bool) -> Setting:
    """Measure one row."""
    times, seconds = together(client, wanted)
    if any(len(got) != len(asked) for got, asked in zip(times, wanted, strict=True)):
        raise SystemExit("a session was not answered; see the error above")
    first, final = (
        np.array(column) for column in zip(*(pair for one in times for pair in one), strict=True)
    )
    return Setting(
        len(wanted),
        job,
        final.size,
        *np.percentile(first, [50, 95]),
        *np.percentile(final, [50, 95]),
        final.max(),
        seconds,
        [len(one) for one in times],
    )


def start_job(client: Client, seed: int) -> int:
    """A job that outlasts the measurement; returns when it computes."""
    spec = {"model": MODEL, "task": TASK, "languages": ["de"], "method": "shapley", "seed": seed}
    job = int(client.submit("score", {**spec, "options": {"samples": 100_000}}).id)
    while client.job(job).done == 0:
        if client.job(job).state not in ("queued", "running"):
            raise SystemExit(f"the job ended: {client.job(job).error}")
        time.sleep(0.1)
    return job


def stop_job(client: Client, job: int) -> None:
    """Cancel it and wait until it has ended."""
    client.cancel(job)
    while client.job(job).state in ("queued", "running"):
        time.sleep(0.05)


def measure(people: Sequence[int], smoke: bool) -> list[Setting]:
    """All rows, on one worker with a cache of its own."""
    with tempfile.TemporaryDirectory(prefix="headlab-bench-") as folder:
        worker = start_local(Path(folder), MODEL)
        try:
            return list(rows(worker.client(), people, smoke))
        finally:
            worker.stop()


def rows(client: Client, people: Sequence[int], smoke: bool) -> list[Setting]:
    """Every number of sessions without a job, then with one; the untouched model is known before."""
    loaded = client.model(MODEL)
    identity = {"name": MODEL, "fingerprint": loaded.fingerprint}
    for language in LANGUAGES:
        list(client.evaluate(EvaluateRequest(model=MODEL, task=TASK, language=language)))
    found = []
    seed = 0
    for job in (False, True):
        running = start_job(client, 0) if job else None
        for count in people:
            wanted = []
            for _ in range(count):
                seed += 1
                wanted.append(masks(loaded.grid, identity, seed, 1 if smoke else TOGGLES[count]))
            found.append(setting(client, wanted, job))
            print(line(found[-1]), flush=True)
        if running is not None:
            if client.job(running).state != "running":
                raise SystemExit("the job ended before the measurement did")
            stop_job(client, running)
    return found


HEAD = """| sessions | job | toggles | first p50 | first p95 | final p50 | final p95 | final worst |
| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |"""


def line(s: Setting) -> str:
    """A row of the table, in seconds."""
    figures = " | ".join(
        f"{v:.2f} s" for v in (s.first_p50, s.first_p95, s.final_p50, s.final_p95, s.final_worst)
    )
    return f"| {s.sessions} | {'yes' if s.job else 'no'} | {s.toggles} | {figures} |"


def main() -> int:
    """Measure, print, write; 1 if one session's first figure takes too long beside a job (never with --smoke)."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--smoke", action="store_true", help="one toggle a session, to see that it works"
    )
    smoke = parser.parse_args().smoke
    about = machine()
    print(HEAD)
    found = measure((1, 2) if smoke else PEOPLE, smoke)
    if smoke:
        return 0
    told = {
        "command": "python benchmarks/sessions.py",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": about,
        "versions": {name: installed(name) for name in PACKAGES},
        "languages": LANGUAGES,
        "settings": [asdict(row) for row in found],
    }
    write(OUT, told)
    print(f"written to {OUT.relative_to(ROOT)}")
    alone = next(row for row in found if row.job and row.sessions == 1)
    return 0 if alone.first_p95 < FIRST_LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
