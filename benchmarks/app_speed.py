"""How fast the app answers, as a user feels it: a real browser, the real server, worker and model.

    python benchmarks/app_speed.py            all repetitions; writes benchmarks/results/app_speed.json
    python benchmarks/app_speed.py --smoke    one repetition; writes nothing

Needs Linux (memory is read from /proc), Chromium and the development requirements. Works on a copy
of cache/, so the committed results stay as they are.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "benchmarks" / "results" / "app_speed.json"
MAPS = 6
PACKAGES = ("headlab", "torch", "transformers", "streamlit", "playwright", "numpy")
TOGGLES, REDRAWS, STARTS = 10, 10, 3
SETTLED_MS = 1500
TIMEOUT_MS = 240_000
UNTOUCHED, FINAL = "All heads on: final, 512 dev examples", "1 head off: final, 512 dev examples"
FIRST = re.compile(r"1 head off: (\d+ of 512|final)")

# Notes, with the browser's clock, every change of what is watched, and when the user last clicked.
WATCH = """() => {
  const text = s => document.querySelector(s)?.textContent ?? "";
  const caption = () => [...document.querySelectorAll('[data-testid="stCaptionContainer"]')]
    .map(e => e.textContent.trim()).find(t => /^(All heads on|1 head off): /.test(t)) ?? "";
  const now = () => [caption(), text("h3"),
    document.querySelector('[data-testid="stApp"]')?.dataset.testScriptState ?? ""];
  const log = window.seen = {clicked: 0, changes: []};
  let last = "";
  const note = () => {
    const state = now(), key = JSON.stringify(state);
    if (key !== last) { last = key; log.changes.push([performance.now(), ...state]); }
  };
  document.addEventListener("click", e => { log.clicked = e.timeStamp; log.changes = []; }, true);
  new MutationObserver(note).observe(document.body,
    {subtree: true, childList: true, characterData: true, attributeFilter: ["data-test-script-state"]});
}"""


@dataclass(frozen=True)
class Change:
    """What the page showed from a moment on; after: seconds since the click."""

    after: float
    caption: str
    heading: str
    script: str


@dataclass(frozen=True)
class Figure:
    """One promise and what was measured. unit: s or GB."""

    name: str
    unit: str
    limit: float
    measured: list[float]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.measured)

    @property
    def kept(self) -> bool:
        """Whether the median is below the limit."""
        return self.median < self.limit


def helpers() -> Any:
    """The server and browser of the browser tests."""
    sys.path[:0] = [str(ROOT / "tests" / "browser"), str(ROOT / "tests"), str(ROOT)]
    return importlib.import_module("conftest")


@contextmanager
def browser(tests: Any) -> Iterator[Any]:
    """A headless Chromium; ends the program with a sentence where there is none."""
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, tests.BROWSERS)), None)
    if path is None:
        raise SystemExit(f"no Chromium: none of {', '.join(tests.BROWSERS)} is on the PATH")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=tests.FLAGS)
        yield chromium
        chromium.close()


@contextmanager
def cache_copy() -> Iterator[Path]:
    """The committed results in a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="headlab-bench-") as folder:
        copy = Path(folder) / "cache"
        shutil.copytree(ROOT / "cache", copy, ignore=shutil.ignore_patterns(".*", "checkpoint.npz"))
        yield copy


def cached_languages(cache: Path) -> list[str]:
    """Languages with Shapley results, six at most."""
    from headlab.store import Store

    found = sorted({r.record.language for r in Store(cache).find(model="e5-small-intents", method="shapley")})
    if not found:
        raise SystemExit("cache/ holds no results; run: headlab score --method shapley")
    return found[:MAPS]


def changes(tab: Any) -> list[Change]:
    """What happened on the page since the last click."""
    seen = tab.evaluate("() => window.seen")
    return [Change((at - seen["clicked"]) / 1000, *state) for at, *state in seen["changes"]]


def visit(tab: Any, quiet: str, path: str) -> None:
    """Open a page, wait until it has run, and begin to watch it."""
    tab.goto(path)
    tab.locator("h1").first.wait_for()
    tab.locator(quiet).wait_for()
    tab.evaluate(WATCH)


def new_tab(chromium: Any, url: str) -> Any:
    """A tab of a new session."""
    tab = chromium.new_context(viewport={"width": 1440, "height": 900}, base_url=url).new_page()
    tab.set_default_timeout(TIMEOUT_MS)
    return tab


def start_to_maps(tests: Any, chromium: Any, app: Any, languages: list[str]) -> float:
    """Seconds from the server's start to all maps on the screen of the first visitor."""
    app.start()
    tab = new_tab(chromium, app.url)
    tab.goto(maps_path(languages))
    for language in languages:
        grid = tab.get_by_role("grid", name=f"({language})")
        grid.first.locator('[data-c="11.11"]').wait_for()
    seconds = time.monotonic() - app.started
    tab.locator(tests.QUIET).wait_for()
    tab.context.close()
    return float(seconds)


def maps_path(languages: list[str]) -> str:
    """The Heads page with these languages."""
    return "/heads?" + "&".join(f"langs={language}" for language in languages)


def redraws(tests: Any, tab: Any, times: int, languages: list[str]) -> list[float]:
    """Seconds from a click on a head to the end of the redraw of the page, all maps and the card."""
    visit(tab, tests.QUIET, maps_path(languages))
    return [redraw(tab, languages[0], 1 + i % 10, (5 * i) % 12) for i in range(times)]


def redraw(tab: Any, language: str, layer: int, head: int) -> float:
    """One click, measured."""
    heading = f"Layer {layer}, head {head}"
    tab.get_by_role("grid", name=f"({language})").first.locator(f'[data-c="{layer}.{head}"]').click()
    tab.locator("h3").first.filter(has_text=heading).wait_for()
    tab.wait_for_timeout(SETTLED_MS)
    drawn = [c for c in changes(tab) if c.heading == heading]
    # The script's end; a status line that refreshes itself afterwards is not part of it.
    return next((c.after for c in drawn if c.script == "notRunning"), drawn[-1].after)


def toggles(tests: Any, tab: Any, times: int, language: str) -> tuple[list[float], list[float]]:
    """Seconds from a click on a head to the first accuracy with it off, and to the final one."""
    visit(tab, tests.QUIET, f"/prune?langs={language}")
    figure(tab, UNTOUCHED)
    pairs = [toggle(tab, (7 * i + 3) % 12, (5 * i + 1) % 12) for i in range(times)]
    return [first for first, _ in pairs], [final for _, final in pairs]


def figure(tab: Any, caption: str) -> None:
    """Wait for the figures that a caption tells of; ends the program with what the page says instead."""
    until = time.monotonic() + TIMEOUT_MS / 1000
    while not tab.get_by_text(caption).count():
        if time.monotonic() > until:
            raise SystemExit(f"no figures in {TIMEOUT_MS / 1000:.0f} s; the page says:\n{tab.inner_text('body')}")
        tab.wait_for_timeout(20)


def toggle(tab: Any, layer: int, head: int) -> tuple[float, float]:
    """One head off from the untouched model, measured, and all heads on again.

    The caption under the figures, drawn after them, tells how many heads are off in them.
    """
    tab.locator(f'[data-c="{layer}.{head}"]').click()
    figure(tab, FINAL)
    tab.wait_for_timeout(SETTLED_MS)
    seen = changes(tab)
    first = next(c.after for c in seen if FIRST.match(c.caption))
    final = next(c.after for c in seen if c.caption.startswith(FINAL))
    tab.get_by_role("button", name="Reset").click()
    figure(tab, UNTOUCHED)
    tab.wait_for_timeout(SETTLED_MS)
    return first, final


def family(pid: int) -> list[int]:
    """A process and all that it started, directly or not."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
            except OSError:
                continue
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found.extend(child for child, parent in parents.items() if parent == one)
    return found


def peak_gigabytes(pid: int) -> float:
    """Sum of each process's highest resident memory: at least the highest sum."""
    total = 0
    for one in family(pid):
        try:
            status = Path(f"/proc/{one}/status").read_text()
        except OSError:
            continue
        found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
        total += int(found.group(1)) * 1024 if found else 0
    return total / 1e9


def measure(smoke: bool) -> list[Figure]:
    """All figures, from one server after several starts."""
    tests = helpers()
    starts, times = (1, 1) if smoke else (STARTS, TOGGLES)
    with cache_copy() as cache, browser(tests) as chromium:
        app, languages = tests.App(cache), cached_languages(cache)
        try:
            begun = [start_to_maps(tests, chromium, app, languages)]
            for _ in range(starts - 1):
                app.stop()
                begun.append(start_to_maps(tests, chromium, app, languages))
            tab = new_tab(chromium, app.url)
            drawn = redraws(tests, tab, 1 if smoke else REDRAWS, languages)
            first, final = toggles(tests, tab, times, languages[0])
            for path in ("/", "/languages?langs=de&langs=th", "/attention?langs=de"):
                visit(tab, tests.QUIET, path)
            assert app.process is not None
            memory = peak_gigabytes(app.process.pid)
        finally:
            app.stop()
    return [
        Figure(f"server start to {len(languages)} head maps", "s", 10.0, begun),
        Figure(f"redraw of {len(languages)} cached maps after a click", "s", 0.3, drawn),
        Figure("first accuracy after a click, one language", "s", 0.5, first),
        Figure("final accuracy (512 examples) after a click", "s", 3.0, final),
        Figure("peak memory, app and worker", "GB", 3.0, [memory]),
    ]


def machine() -> dict[str, Any]:
    """What this ran on."""
    told = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "cpu": told.group(1) if told else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load_before": [round(load, 2) for load in os.getloadavg()],
        "system": platform.platform(),
    }


def installed(package: str) -> str:
    """A package's version; headlab may run from its folder."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return str(importlib.import_module(package).__version__)


def table(figures: list[Figure]) -> str:
    """A Markdown table of the figures."""
    lines = ["| what | limit | median | worst | times | kept |", "| --- | ---: | ---: | ---: | ---: | --- |"]
    for f in figures:
        cells = (f"{v:.2f} {f.unit}" for v in (f.limit, f.median, max(f.measured)))
        lines.append(f"| {f.name} | {' | '.join(cells)} | {len(f.measured)} | {'yes' if f.kept else 'NO'} |")
    return "\n".join(lines)


def report(figures: list[Figure], about: dict[str, Any]) -> dict[str, Any]:
    """The figures and everything they depend on."""
    return {
        "command": "python benchmarks/app_speed.py",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": about,
        "versions": {"python": platform.python_version(), **{name: installed(name) for name in PACKAGES}},
        "figures": [asdict(f) | {"median": f.median, "kept": f.kept} for f in figures],
    }


def write(path: Path, value: dict[str, Any]) -> None:
    """JSON with rounded numbers."""
    rounded = json.loads(json.dumps(value), parse_float=lambda text: round(float(text), 4))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rounded, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> int:
    """Measure, print, write; 1 if a promise is not kept (never with --smoke)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="one repetition, to see that it works; writes nothing")
    smoke = parser.parse_args().smoke
    about = machine()
    figures = measure(smoke)
    print(table(figures))
    print(f"{about['cpu']}, {about['cores']} cores, load before {about['load_before'][0]}")
    if smoke:
        return 0
    write(OUT, report(figures, about))
    print(f"written to {OUT.relative_to(ROOT)}")
    return 0 if all(f.kept for f in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
