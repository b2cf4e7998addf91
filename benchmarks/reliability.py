"""How reliable headlab is: many sessions, an hour of jobs, bad inputs, and what other runs found.

    python benchmarks/reliability.py sessions jobs    both measurements, 70 minutes; then the file and the page
    python benchmarks/reliability.py inputs           2,000 bad inputs of each family; then the file and the page
    python benchmarks/reliability.py                  only the file and the page, from what is there
    python benchmarks/reliability.py sessions jobs --minutes 0.2    the same in short; writes nothing
    python benchmarks/reliability.py inputs --count 20              the same in short; writes nothing

*sessions*: 50 threads, each a session that asks the app's worker for the accuracy of masks of its
own on the embedded model, one after the other, no mask twice, while a job runs; CHECKED_FIGURES
final figures are compared with the library's.

*jobs*: one job after another on one worker, methods, languages and seeds in turn. During both
measurements the worker's memory and open files are read every few seconds.

*inputs*: command lines, task files, model folders, stored files and HTTP bodies, each valid but for
one thing (`benchmarks/bad_inputs`).

The file and the page also take over what `make soak` and faults.py found. Needs Linux. Writes
results/reliability.json and docs/reliability.md.
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
from machine import installed_version, machine_facts, percentiles, write_json  # noqa: E402 - beside this file
from sessions import LANGUAGES, MODEL, PACKAGES, TASK, random_masks, start_job, stop_job  # noqa: E402
from support.soak_record import tested_commit  # noqa: E402

import headlab  # noqa: E402
from headlab.core import HeadlabError  # noqa: E402
from headlab.masks import Mask  # noqa: E402
from headlab.worker.client import Client  # noqa: E402
from headlab.worker.process import start_local  # noqa: E402
from headlab.worker.schemas import EvaluateRequest  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
RESULT_FILE = RESULTS / "reliability.json"
PAGE = ROOT / "docs" / "reliability.md"
PEOPLE = 50
CHECKED_FIGURES = 100
MINUTES = {"sessions": 10.0, "jobs": 60.0}
INPUTS_OF_A_FAMILY = 2000
SEED = 0
# Sums over all families; they are also keys at the top level of the file.
INPUT_SUMS = ("bad_inputs", "tracebacks", "hangs", "http_500")
READING_SECONDS = 5.0  # seconds between two readings of memory
METHODS: Mapping[str, Mapping[str, Any]] = {
    "shapley": {"samples": 512},
    "gradient": {},
    "leave-one-out": {},
    "confidence": {},
    "random": {},
}


@dataclass
class ProcessWatch:
    """Memory (MiB) and open files of a process, read every few seconds."""

    process: int
    memory: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)

    def look(self) -> None:
        """Read both now."""
        status = Path(f"/proc/{self.process}/status").read_text()
        self.memory.append(int(status.split("VmRSS:")[1].split()[0]) / 1024)
        self.files.append(sum(1 for _ in Path(f"/proc/{self.process}/fd").iterdir()))

    def summary(self) -> dict[str, float]:
        """Mean memory and open files in the second and the last fifth of the time, and the peak.

        The first fifth is left out: whatever is loaded only once is loaded then.
        """
        fifth = max(1, len(self.memory) // 5)
        second_fifth = len(self.memory) // 5
        return {
            "memory_before_mib": float(np.mean(self.memory[second_fifth : second_fifth + fifth])),
            "memory_after_mib": float(np.mean(self.memory[-fifth:])),
            "memory_most_mib": max(self.memory),
            "files_before": float(np.mean(self.files[second_fifth : second_fifth + fifth])),
            "files_after": float(np.mean(self.files[-fifth:])),
        }


@contextmanager
def watch_process(process: int) -> Iterator[ProcessWatch]:
    """Look at a process until the block ends."""
    watch = ProcessWatch(process)
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(READING_SECONDS):
            watch.look()

    watch.look()
    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield watch
    finally:
        stop.set()
        thread.join()
        watch.look()


@dataclass
class SessionFigures:
    """What the sessions were answered.

    Attributes:
        first_seconds: Seconds to the first figure of each mask.
        final_seconds: Seconds to the final one.
        failures: Messages of requests that failed.
        figures: Language, mask and final accuracy of each request that was answered.
    """

    first_seconds: list[float] = field(default_factory=list)
    final_seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    figures: list[tuple[str, Mask, float]] = field(default_factory=list)


def run_session(
    client: Client, number: int, deadline: float, session_figures: SessionFigures
) -> None:
    """Be one session: ask for one mask after the other until the time is up.

    Args:
        client: Of the worker.
        number: Of the session; its masks are drawn from it.
        deadline: When to stop, by the monotonic clock.
        session_figures: What is answered is added here.
    """
    model = client.load_model(MODEL)
    identity = {"name": MODEL, "fingerprint": model.fingerprint}
    for turn in count():
        if time.monotonic() >= deadline:
            return
        language = LANGUAGES[(number + turn) % len(LANGUAGES)]
        (mask,) = random_masks(model.grid, identity, number * 10_000 + turn, 1)
        request = EvaluateRequest(
            model=MODEL, task=TASK, language=language, mask=mask, session=f"person {number}"
        )
        start = time.monotonic()
        seconds: list[float] = []
        accuracies: list[float] = []
        try:  # one figure alone where another session has asked for the same mask before
            for figure in client.evaluate(request):
                seconds.append(time.monotonic() - start)
                accuracies.append(figure.accuracy)
        except HeadlabError as error:
            session_figures.failures.append(f"{error.code}: {error}")
            continue
        session_figures.first_seconds.append(seconds[0])
        session_figures.final_seconds.append(seconds[-1])
        session_figures.figures.append((language, mask, accuracies[-1]))


def wrong_figures(figures: Sequence[tuple[str, Mask, float]]) -> list[str]:
    """Compute a sample of figures again with the library, and say which of them differ."""
    model = headlab.load(MODEL, device="cpu")
    differences = []
    sample = random.Random(0).sample(figures, min(CHECKED_FIGURES, len(figures)))
    for language, mask, accuracy in sample:
        task = headlab.task(TASK, [language])
        evaluation = headlab.evaluate(model, task, mask, split="dev", size=512)[language]
        if abs(evaluation.accuracy - accuracy) > 1e-9:
            differences.append(f"{language}: {accuracy}, not {evaluation.accuracy}")
    return differences


def session_part(minutes: float) -> dict[str, Any]:
    """Measure fifty sessions beside a job."""
    session_figures = SessionFigures()
    with tempfile.TemporaryDirectory(prefix="headlab-bench-") as folder:
        worker = start_local(Path(folder), MODEL)
        try:
            client = worker.client()
            for language in LANGUAGES:
                list(client.evaluate(EvaluateRequest(model=MODEL, task=TASK, language=language)))
            job = start_job(client, 0)
            with watch_process(client.health().pid) as watch, ThreadPoolExecutor(PEOPLE) as people:
                deadline = time.monotonic() + 60 * minutes
                futures = [
                    people.submit(run_session, client, number, deadline, session_figures)
                    for number in range(PEOPLE)
                ]
                for future in futures:
                    future.result()
            stop_job(client, job)
        finally:
            worker.stop()
    differences = wrong_figures(session_figures.figures)
    return {
        "sessions": PEOPLE,
        "minutes": minutes,
        "figures": len(session_figures.final_seconds),
        "checked": min(CHECKED_FIGURES, len(session_figures.figures)),
        "wrong": len(differences),
        "failed": len(session_figures.failures),
        "examples_of_failures": (differences + session_figures.failures)[:5],
        **quantiles(session_figures),
        **watch.summary(),
    }


def quantiles(session_figures: SessionFigures) -> dict[str, float]:
    """Seconds that half, and 95 of 100, of the figures took at most."""
    first = percentiles(session_figures.first_seconds)
    final = percentiles(session_figures.final_seconds)
    return {
        **{f"first_{percentile}": seconds for percentile, seconds in first.items()},
        **{f"final_{percentile}": seconds for percentile, seconds in final.items()},
    }


def job_part(minutes: float) -> dict[str, Any]:
    """Measure jobs that run one after the other, each to its end."""
    job_count = 0
    failures = []
    seconds = []
    with tempfile.TemporaryDirectory(prefix="headlab-bench-") as folder:
        worker = start_local(Path(folder), MODEL)
        try:
            client = worker.client()
            client.load_model(MODEL)
            with watch_process(client.health().pid) as watch:
                deadline = time.monotonic() + 60 * minutes
                while time.monotonic() < deadline:
                    method = list(METHODS)[job_count % len(METHODS)]
                    spec = {
                        "model": MODEL,
                        "task": TASK,
                        "languages": [LANGUAGES[job_count % len(LANGUAGES)]],
                        "size": 64,
                        "method": method,
                        "options": dict(METHODS[method]),
                        "seed": job_count,
                    }
                    start = time.monotonic()
                    job = int(client.submit("score", spec).id)
                    while (state := client.job(job).state) in ("queued", "running"):
                        time.sleep(0.1)
                    seconds.append(time.monotonic() - start)
                    if state != "done":
                        failures.append(str(client.job(job).error))
                    job_count += 1
        finally:
            worker.stop()
    p50, p95 = np.percentile(seconds, [50, 95])
    return {
        "jobs": job_count,
        "minutes": minutes,
        "failed": len(failures),
        "examples_of_failures": failures[:5],
        "seconds_p50": float(p50),
        "seconds_p95": float(p95),
        **watch.summary(),
    }


def input_part(count_of_each: int) -> dict[str, Any]:
    """Try bad inputs of every family; counts as `bad_inputs.runner.measure` returns them."""
    return measure(list(FAMILIES), count_of_each, SEED)


def input_sums(counts: Mapping[str, Any]) -> dict[str, int]:
    """The sums over all families."""
    return {name: counts[name] for name in INPUT_SUMS}


# From the files of other runs.


def soak_counts(tests: Sequence[Mapping[str, Any]], kind: str) -> dict[str, Any]:
    """What the soak's tests of one kind counted, and how many of them failed or were skipped.

    Args:
        tests: The rows of soak.json.
        kind: What is counted: "cases", "payloads" or "commands".
    """
    tests_of_kind = [test for test in tests if kind in test.get("counts", {})]
    outcomes = [test["outcome"] for test in tests_of_kind]
    return {
        "count": sum(test["counts"][kind] for test in tests_of_kind),
        "tests": len(tests_of_kind),
        "failures": outcomes.count("failed"),
        "skipped": outcomes.count("skipped"),
    }


def figures_of_other_runs(soak: Mapping[str, Any], faults: Mapping[str, Any]) -> dict[str, Any]:
    """Cases, payloads and faults, from the files that `make soak` and faults.py write."""
    tests = soak["tests"]
    if not any("counts" in test for test in tests):
        raise SystemExit("soak.json counts nothing: it is from before, so run `make soak` first")
    outcomes = [test["outcome"] for test in tests]
    return {
        "cases": soak_counts(tests, "cases"),
        "payloads": soak_counts(tests, "payloads"),
        "commands": soak_counts(tests, "commands"),
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


def page(report: Mapping[str, Any]) -> str:
    """The text of docs/reliability.md."""
    faults = report["faults"]
    soak = report["soak"]
    rows = [
        ("files, links and requests spoiled at random, or by atheris", "cases"),
        ("scripts and markup as names, sentences and file names, in a browser", "payloads"),
        ("printed commands read back by the command line", "commands"),
    ]
    lines = [
        "# Reliability",
        "",
        "What was tried to break headlab, and what came of it. "
        "`python benchmarks/reliability.py` makes this page from",
        "`benchmarks/results/reliability.json`. What is promised: [faults](faults.md), [security](security.md).",
        "",
        "| tried | how often | tests | failed | skipped | command |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for description, name in rows:
        counts = report[name]
        lines.append(
            f"| {description} | {counts['count']:,} | {counts['tests']} | {counts['failures']} | "
            f"{counts['skipped']} | `make soak` |"
        )
    lines += [
        f"| kills at random moments, results compared bit by bit | {faults['kills']:,} | – | "
        f"{0 if faults['identical'] else 'some'} | – | `python benchmarks/faults.py` |",
        f"| all tests of the soak | – | {soak['tests']:,} | {soak['failed']} | {soak['skipped']} "
        "| `make soak` |",
    ]
    if "inputs" in report:
        lines += ["", *_inputs(report["inputs"])]
    if "sessions" in report:
        lines += ["", *_sessions(report["sessions"])]
    if "jobs" in report:
        lines += ["", *_jobs(report["jobs"])]
    return "\n".join(lines) + "\n"


def _inputs(counts: Mapping[str, Any]) -> list[str]:
    """The section about bad inputs: a row a family."""
    columns = ("inputs", "for_real", "accepted", "refused", "tracebacks", "hangs", "http_500")
    rows = []
    for family, family_counts in counts["families"].items():
        figures = " | ".join(f"{family_counts[name]:,}" for name in columns)
        # A family that was tried alone names the commit itself.
        commit = family_counts.get("commit", counts["commit"])[:7]
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


def _sessions(figures: Mapping[str, Any]) -> list[str]:
    return [
        f"## {figures['sessions']} sessions for {figures['minutes']:g} minutes",
        "",
        "Each asks for one mask after the other on the embedded model, 512 examples each, "
        "beside a job. It got",
        f"{figures['figures']:,} final figures; {figures['checked']} were computed again by the "
        f"library, {figures['wrong']} differ;",
        f"{figures['failed']} requests failed.",
        "",
        "| | half within | 95 % within |",
        "| --- | ---: | ---: |",
        f"| first figure | {figures['first_p50']:.1f} s | {figures['first_p95']:.1f} s |",
        f"| final figure | {figures['final_p50']:.1f} s | {figures['final_p95']:.1f} s |",
        "",
        _memory_sentence(figures),
    ]


def _jobs(figures: Mapping[str, Any]) -> list[str]:
    return [
        f"## Jobs for {figures['minutes']:g} minutes",
        "",
        f"One after the other on one worker: {figures['jobs']:,} jobs, {figures['failed']} failed; "
        f"half took at most {figures['seconds_p50']:.1f} s, 95 % at most {figures['seconds_p95']:.1f} s.",
        "",
        _memory_sentence(figures),
    ]


def _memory_sentence(figures: Mapping[str, Any]) -> str:
    other_work = ""
    if "beside" in figures:
        other_work = f" Meanwhile the machine also did: {figures['beside']}."
    return (
        f"Memory of the worker: {figures['memory_before_mib']:,.0f} MiB in the second fifth of "
        f"the time, {figures['memory_after_mib']:,.0f} MiB in the last, "
        f"{figures['memory_most_mib']:,.0f} MiB at most. Open files: "
        f"{figures['files_before']:.0f}, then {figures['files_after']:.0f}.{other_work}"
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
    arguments = parser.parse_args()
    provenance = {
        "commit": tested_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine_facts(),
    }
    if arguments.beside:
        provenance["beside"] = arguments.beside
    provenance |= {
        "versions": {name: installed_version(name) for name in PACKAGES},
        "command": "python benchmarks/reliability.py",
    }
    figures_by_part = {
        part: measured_part(part, arguments.minutes, arguments.count) for part in arguments.parts
    }
    print(json.dumps(figures_by_part, indent=1, ensure_ascii=False))
    if arguments.minutes is None and arguments.count is None:
        stored = json.loads(RESULT_FILE.read_text()) if RESULT_FILE.exists() else {}
        stored_parts = {part: stored[part] for part in (*MINUTES, "inputs") if part in stored}
        soak = json.loads((RESULTS / "soak.json").read_text())
        faults = json.loads((RESULTS / "faults.json").read_text())
        report = {
            **provenance,
            **figures_of_other_runs(soak, faults),
            **stored_parts,
            **{part: {**figures, **provenance} for part, figures in figures_by_part.items()},
        }
        if "inputs" in report:
            report |= input_sums(report["inputs"])
        write_json(RESULT_FILE, report)
        PAGE.write_text(page(json.loads(RESULT_FILE.read_text())), encoding="utf-8")
    return int(any(has_failures(part) for part in figures_by_part.values()))


def measured_part(part: str, minutes: float | None, count_of_each: int | None) -> dict[str, Any]:
    """Measure one part, at full length unless minutes or a count are given."""
    if part == "inputs":
        return input_part(count_of_each or INPUTS_OF_A_FAMILY)
    return {"sessions": session_part, "jobs": job_part}[part](minutes or MINUTES[part])


def has_failures(counts: Mapping[str, Any]) -> bool:
    """Whether anything in a part went wrong."""
    return any(counts.get(name) for name in ("failed", "wrong", "tracebacks", "hangs", "http_500"))


if __name__ == "__main__":
    sys.exit(main())
