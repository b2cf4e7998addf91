"""Ten minutes of fifty sessions, an hour of jobs, and what `make soak` and faults.py found, in one file and one page.

    python benchmarks/reliability.py sessions jobs    both measurements, 70 minutes; then the file and the page
    python benchmarks/reliability.py inputs           2,000 bad inputs of each family; then the file and the page
    python benchmarks/reliability.py                  only the file and the page, from what is there
    python benchmarks/reliability.py sessions jobs --minutes 0.2    the same in short; writes nothing
    python benchmarks/reliability.py inputs --count 20              the same in short; writes nothing

*sessions*: 50 threads, each a session that asks the app's worker for the accuracy of masks of its own on the embedded
model, one after the other, no mask twice, while a job runs; CHECKED final figures are compared with the library's.
*jobs*: one job after another on one worker, methods, languages and seeds in turn. In both the worker's memory and open
files are read every few seconds. *inputs*: command lines, task files, model folders, stored files and HTTP bodies, each
valid but for one thing (`benchmarks/bad_inputs`). Needs Linux. Writes results/reliability.json and docs/reliability.md.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), str(ROOT / "tests")]

from bad_inputs.runner import FAMILIES, measure  # noqa: E402 - beside this file
from machine import installed, machine, percentiles, write  # noqa: E402 - beside this file
from sessions import LANGUAGES, MODEL, PACKAGES, TASK, masks, start_job, stop_job  # noqa: E402
from support.soak_record import commit  # noqa: E402

import headlab  # noqa: E402
from headlab.core import HeadlabError  # noqa: E402
from headlab.masks import Mask  # noqa: E402
from headlab.worker.client import Client  # noqa: E402
from headlab.worker.process import start_local  # noqa: E402
from headlab.worker.schemas import EvaluateRequest  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
OUT = RESULTS / "reliability.json"
PAGE = ROOT / "docs" / "reliability.md"
PEOPLE = 50
CHECKED = 100
MINUTES = {"sessions": 10.0, "jobs": 60.0}
INPUTS_OF_A_FAMILY = 2000
SEED = 0
# Of all families together: keys of their own in the file, beside the part `inputs` with the details.
INPUT_SUMS = ("bad_inputs", "tracebacks", "hangs", "http_500")
EVERY = 5.0  # seconds between two readings of memory
METHODS: Mapping[str, Mapping[str, Any]] = {
    "shapley": {"samples": 512},
    "gradient": {},
    "leave-one-out": {},
    "confidence": {},
    "random": {},
}


@dataclass
class Watch:
    """Memory (MiB) and open files of a process, read every few seconds."""

    process: int
    memory: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)

    def look(self) -> None:
        """Read both now."""
        status = Path(f"/proc/{self.process}/status").read_text()
        self.memory.append(int(status.split("VmRSS:")[1].split()[0]) / 1024)
        self.files.append(sum(1 for _ in Path(f"/proc/{self.process}/fd").iterdir()))

    def told(self) -> dict[str, float]:
        """Means of the second and of the last fifth, and the most: what is loaded once is loaded in the first."""
        fifth = max(1, len(self.memory) // 5)
        start = len(self.memory) // 5
        return {
            "memory_before_mib": float(np.mean(self.memory[start : start + fifth])),
            "memory_after_mib": float(np.mean(self.memory[-fifth:])),
            "memory_most_mib": max(self.memory),
            "files_before": float(np.mean(self.files[start : start + fifth])),
            "files_after": float(np.mean(self.files[-fifth:])),
        }


@contextmanager
def watched(process: int) -> Iterator[Watch]:
    """Look at a process until the block ends."""
    watch = Watch(process)
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(EVERY):
            watch.look()

    watch.look()
    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield watch
    finally:
        ended.set()
        thread.join()
        watch.look()


@dataclass
class Seen:
    """What the sessions saw: seconds to first and final figures, requests that failed, and the figures themselves."""

    first: list[float] = field(default_factory=list)
    final: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    figures: list[tuple[str, Mask, float]] = field(default_factory=list)


def use(client: Client, number: int, until: float, seen: Seen) -> None:
    """One session: one mask after the other until the time is up."""
    loaded = client.model(MODEL)
    identity = {"name": MODEL, "fingerprint": loaded.fingerprint}
    for turn in count():
        if time.monotonic() >= until:
            return
        language = LANGUAGES[(number + turn) % len(LANGUAGES)]
        (mask,) = masks(loaded.grid, identity, number * 10_000 + turn, 1)
        request = EvaluateRequest(
            model=MODEL, task=TASK, language=language, mask=mask, session=f"person {number}"
        )
        begun = time.monotonic()
        seconds: list[float] = []
        accuracies: list[float] = []
        try:  # one figure alone where another session has asked for the same mask before
            for figure in client.evaluate(request):
                seconds.append(time.monotonic() - begun)
                accuracies.append(figure.accuracy)
        except HeadlabError as error:
            seen.failed.append(f"{error.code}: {error}")
            continue
        seen.first.append(seconds[0])
        seen.final.append(seconds[-1])
        seen.figures.append((language, mask, accuracies[-1]))


def wrong(figures: Sequence[tuple[str, Mask, float]]) -> list[str]:
    """Those of a sample that differ from the library's."""
    model = headlab.load(MODEL, device="cpu")
    found = []
    for language, mask, accuracy in random.Random(0).sample(figures, min(CHECKED, len(figures))):
        seen = headlab.evaluate(model, headlab.task(TASK, [language]), mask, split="dev", size=512)[
            language
        ]
        if abs(seen.accuracy - accuracy) > 1e-9:
            found.append(f"{language}: {accuracy}, not {seen.accuracy}")
    return found


def sessions(minutes: float) -> dict[str, Any]:
    """Fifty of them, beside a job."""
    seen = Seen()
    with tempfile.TemporaryDirectory(prefix="headlab-bench-") as folder:
        worker = start_local(Path(folder), MODEL)
        try:
            client = worker.client()
            for language in LANGUAGES:
                list(client.evaluate(EvaluateRequest(model=MODEL, task=TASK, language=language)))
            job = start_job(client, 0)
            with watched(client.health().pid) as watch, ThreadPoolExecutor(PEOPLE) as people:
                until = time.monotonic() + 60 * minutes
                for done in [
                    people.submit(use, client, number, until, seen) for number in range(PEOPLE)
                ]:
                    done.result()
            stop_job(client, job)
        finally:
            worker.stop()
    differ = wrong(seen.figures)
    return {
        "sessions": PEOPLE,
        "minutes": minutes,
        "figures": len(seen.final),
        "checked": min(CHECKED, len(seen.figures)),
        "wrong": len(differ),
        "failed": len(seen.failed),
        "examples_of_failures": (differ + seen.failed)[:5],
        **quantiles(seen),
        **watch.told(),
    }


def quantiles(seen: Seen) -> dict[str, float]:
    """Seconds that half, and 95 of 100, of the figures took at most."""
    shares = {name: percentiles(getattr(seen, name)) for name in ("first", "final")}
    return {f"{name}_{share}": value for name, of in shares.items() for share, value in of.items()}


def jobs(minutes: float) -> dict[str, Any]:
    """One after the other, each to its end."""
    done = 0
    failed = []
    seconds = []
    with tempfile.TemporaryDirectory(prefix="headlab-bench-") as folder:
        worker = start_local(Path(folder), MODEL)
        try:
            client = worker.client()
            client.model(MODEL)
            with watched(client.health().pid) as watch:
                until = time.monotonic() + 60 * minutes
                while time.monotonic() < until:
                    method = list(METHODS)[done % len(METHODS)]
                    spec = {
                        "model": MODEL,
                        "task": TASK,
                        "languages": [LANGUAGES[done % len(LANGUAGES)]],
                        "size": 64,
                        "method": method,
                        "options": dict(METHODS[method]),
                        "seed": done,
                    }
                    begun = time.monotonic()
                    job = int(client.submit("score", spec).id)
                    while (state := client.job(job).state) in ("queued", "running"):
                        time.sleep(0.1)
                    seconds.append(time.monotonic() - begun)
                    failed += [str(client.job(job).error)] if state != "done" else []
                    done += 1
        finally:
            worker.stop()
    p50, p95 = np.percentile(seconds, [50, 95])
    return {
        "jobs": done,
        "minutes": minutes,
        "failed": len(failed),
        "examples_of_failures": failed[:5],
        "seconds_p50": float(p50),
        "seconds_p95": float(p95),
        **watch.told(),
    }


def inputs(count_of_each: int) -> dict[str, Any]:
    """What headlab answers to bad inputs of every family; counts as `bad_inputs.runner.measure` has them."""
    return measure(list(FAMILIES), count_of_each, SEED)


def input_sums(counts: Mapping[str, Any]) -> dict[str, int]:
    """The sums over all families."""
    return {name: counts[name] for name in INPUT_SUMS}


# From the files of other runs.


def counted(tests: Sequence[Mapping[str, Any]], what: str) -> dict[str, Any]:
    """What the soak's tests of one kind counted, and how many of them failed or were skipped."""
    own = [test for test in tests if what in test.get("counts", {})]
    outcomes = [test["outcome"] for test in own]
    return {
        "count": sum(test["counts"][what] for test in own),
        "tests": len(own),
        "failures": outcomes.count("failed"),
        "skipped": outcomes.count("skipped"),
    }


def gathered(soak: Mapping[str, Any], faults: Mapping[str, Any]) -> dict[str, Any]:
    """Cases, payloads and faults, from the files that `make soak` and faults.py write."""
    tests = soak["tests"]
    if not any("counts" in test for test in tests):
        raise SystemExit("soak.json counts nothing: it is from before, so run `make soak` first")
    outcomes = [test["outcome"] for test in tests]
    return {
        "cases": counted(tests, "cases"),
        "payloads": counted(tests, "payloads"),
        "commands": counted(tests, "commands"),
        "faults": {
            "kills": faults["kills"],
            "identical": faults["all_identical"],
            "commit": faults["commit"],
        },
        "soak": {
            "tests": len(tests),
            **{name: outcomes.count(name) for name in ("passed", "failed", "skipped")},
            "seconds": soak["seconds"],
            "commit": soak["commit"],
        },
    }


def page(told: Mapping[str, Any]) -> str:
    """The document."""
    faults = told["faults"]
    soak = told["soak"]
    rows = [
        ("files, links and requests spoiled at random, or by atheris", "cases"),
        ("scripts and markup as names, sentences and file names, in a browser", "payloads"),
        ("printed commands read back by the command line", "commands"),
    ]
    lines = [
        "# Reliability",
        "",
        "What was tried to break headlab, and what came of it. `python benchmarks/reliability.py` makes this page from",
        "`benchmarks/results/reliability.json`. What is promised: [faults](faults.md), [security](security.md).",
        "",
        "| tried | how often | tests | failed | skipped | command |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
        *(
            f"| {what} | {told[name]['count']:,} | {told[name]['tests']} | {told[name]['failures']} | "
            f"{told[name]['skipped']} | `make soak` |"
            for what, name in rows
        ),
        f"| kills at random moments, results compared bit by bit | {faults['kills']:,} | – | "
        f"{0 if faults['identical'] else 'some'} | – | `python benchmarks/faults.py` |",
        f"| all tests of the soak | – | {soak['tests']:,} | {soak['failed']} | {soak['skipped']} | `make soak` |",
    ]
    if "inputs" in told:
        lines += ["", *_inputs(told["inputs"])]
    if "sessions" in told:
        lines += ["", *_sessions(told["sessions"])]
    if "jobs" in told:
        lines += ["", *_jobs(told["jobs"])]
    return "\n".join(lines) + "\n"


def _inputs(counts: Mapping[str, Any]) -> list[str]:
    """The section about bad inputs: a row a family."""
    columns = ("inputs", "for_real", "accepted", "refused", "tracebacks", "hangs", "http_500")
    rows = []
    for family, of_family in counts["families"].items():
        figures = " | ".join(f"{of_family[name]:,}" for name in columns)
        # A family that was tried alone names the commit itself.
        commit = of_family.get("commit", counts["commit"])[:7]
        rows.append(f"| {family.replace('-', ' ')} | {figures} | {commit} |")
    return [
        f"## {counts['bad_inputs']:,} bad inputs",
        "",
        "Each is valid but for one thing, and no two are alike. All are tried in one process, with 10 s",
        "of its processor's time for each, and one in fifty again as a process of its own or over a",
        "socket; both are counted. Taken are those whose one wrong thing does not matter. Drawn from",
        f"seed {counts['seed']}, with `python benchmarks/reliability.py inputs`.",
        "",
        "| family | inputs | also for real | taken | refused in a sentence | tracebacks | no answer "
        "| HTTP 500 | commit |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
        *rows,
    ]


def _sessions(s: Mapping[str, Any]) -> list[str]:
    return [
        f"## {s['sessions']} sessions for {s['minutes']:g} minutes",
        "",
        "Each asks for one mask after the other on the embedded model, 512 examples each, beside a job. It got",
        f"{s['figures']:,} final figures; {s['checked']} were computed again by the library, {s['wrong']} differ;",
        f"{s['failed']} requests failed.",
        "",
        "| | half within | 95 % within |",
        "| --- | ---: | ---: |",
        f"| first figure | {s['first_p50']:.1f} s | {s['first_p95']:.1f} s |",
        f"| final figure | {s['final_p50']:.1f} s | {s['final_p95']:.1f} s |",
        "",
        _kept(s),
    ]


def _jobs(j: Mapping[str, Any]) -> list[str]:
    return [
        f"## Jobs for {j['minutes']:g} minutes",
        "",
        f"One after the other on one worker: {j['jobs']:,} jobs, {j['failed']} failed; half took at most "
        f"{j['seconds_p50']:.1f} s, 95 % at most {j['seconds_p95']:.1f} s.",
        "",
        _kept(j),
    ]


def _kept(told: Mapping[str, Any]) -> str:
    beside = f" Meanwhile the machine also did: {told['beside']}." if "beside" in told else ""
    return (
        f"Memory of the worker: {told['memory_before_mib']:,.0f} MiB in the second fifth of the time, "
        f"{told['memory_after_mib']:,.0f} MiB in the last, {told['memory_most_mib']:,.0f} MiB at most. Open files: "
        f"{told['files_before']:.0f}, then {told['files_after']:.0f}.{beside}"
    )


def main() -> int:
    """Measure what is asked for, write; 1 if anything failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=["sessions", "jobs", "inputs", []])
    parser.add_argument(
        "--minutes", type=float, help="of each part, in place of 10 and 60; then nothing is written"
    )
    parser.add_argument(
        "--count",
        type=int,
        help="inputs of each family, in place of 2,000; then nothing is written",
    )
    parser.add_argument(
        "--beside",
        default="",
        help="what else the machine did meanwhile; stands beside the figures",
    )
    given = parser.parse_args()
    about = {
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
    }
    about |= {"beside": given.beside} if given.beside else {}
    about |= {
        "versions": {name: installed(name) for name in PACKAGES},
        "command": "python benchmarks/reliability.py",
    }
    found = {part: measured_part(part, given.minutes, given.count) for part in given.parts}
    print(json.dumps(found, indent=1, ensure_ascii=False))
    if given.minutes is None and given.count is None:
        before = json.loads(OUT.read_text()) if OUT.exists() else {}
        kept = {part: before[part] for part in (*MINUTES, "inputs") if part in before}
        other = (json.loads((RESULTS / f"{name}.json").read_text()) for name in ("soak", "faults"))
        told = {
            **about,
            **gathered(*other),
            **kept,
            **{part: {**one, **about} for part, one in found.items()},
        }
        told |= input_sums(told["inputs"]) if "inputs" in told else {}
        write(OUT, told)
        PAGE.write_text(page(json.loads(OUT.read_text())), encoding="utf-8")
    return int(any(failed(part) for part in found.values()))


def measured_part(part: str, minutes: float | None, count_of_each: int | None) -> dict[str, Any]:
    """Measure one part, at full length unless minutes or a count are given."""
    if part == "inputs":
        return inputs(count_of_each or INPUTS_OF_A_FAMILY)
    return {"sessions": sessions, "jobs": jobs}[part](minutes or MINUTES[part])


def failed(counts: Mapping[str, Any]) -> bool:
    """Whether anything in a part went wrong."""
    return any(counts.get(name) for name in ("failed", "wrong", "tracebacks", "hangs", "http_500"))


if __name__ == "__main__":
    sys.exit(main())
