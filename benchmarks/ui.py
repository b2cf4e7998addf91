"""What a user meets in a real browser: how long they wait, what assistive technology meets, and what is cut off.

    python benchmarks/ui.py                all; writes benchmarks/results/ui.json (about twelve minutes)
    python benchmarks/ui.py axe clipped    only these parts; the rest of ui.json stays
    python benchmarks/ui.py decoder        clicks on a head of SmolLM2 (`make decoder`), which the first line leaves out
    python benchmarks/ui.py --smoke        one repetition of each, one page; writes nothing

Needs Linux (memory is read from /proc), Chromium and requirements-soak.txt. Works on a copy of cache/, so the committed
results stay as they are.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from machine import ROOT, commit, installed, machine, percentiles, write

OUT = ROOT / "benchmarks" / "results" / "ui.json"
PACKAGES = (
    "headlab",
    "torch",
    "transformers",
    "streamlit",
    "playwright",
    "axe-playwright-python",
    "numpy",
)
PARTS = ("speed", "axe", "clipped")
DECODER = "decoder"  # measured only where it is asked for: its model comes with `make decoder`
MAPS = 6
SETTLED_MS = 1500
TIMEOUT_MS = 240_000
FIRST = re.compile(r"1 head off: (\d+ of \d+|final)")
SCHEMES = ("light", "dark")
SIZES = {"1440": (1440, 900), "1024": (1024, 768), "390": (390, 844)}
# Every page as a newcomer finds it, with a few languages.
PAGES = {
    "overview": "/?langs=de&langs=en", "heads": "/heads?langs=de&langs=en", "languages": "/languages?langs=de&langs=en",
    "roles": "/roles?langs=de", "gates": "/gates?langs=en", "prune": "/prune?langs=de&langs=en",
    "masks": "/masks?langs=de&langs=en", "experiments": "/experiments?experiment=targeted",
    "attention": "/attention?langs=de", "jobs": "/jobs?langs=de&langs=en",
}  # fmt: skip
# Milliseconds (megabytes for memory) that the median is to keep below.
LIMITS = {
    "click_to_first_ms": 600,
    "click_to_final_ms": 3000,
    "click_to_first_of_15_languages_ms": 1500,
    "click_to_final_of_15_languages_ms": 35_000,
    "decoder_click_to_first_ms": 1500,
    "page_switch_ms": 700,
    "card_ms": 300,
    "cold_start_ms": 6000,
    "memory_mb": 3000,
}

# Notes, with the browser's clock, every change of what is watched, and when the user last clicked.
WATCH = """() => {
  const text = s => document.querySelector(s)?.textContent ?? "";
  const caption = () => [...document.querySelectorAll('[data-testid="stCaptionContainer"]')]
    .map(e => e.textContent.trim()).find(t => /^(All heads on|1 head off): /.test(t)) ?? "";
  const now = () => [caption(), text("h3"), text("h1"),
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

# Text that a reader cannot reach: beyond the window's edge, or cut off by its own box without an ellipsis, and no
# box around it scrolls sideways. What is hidden from everyone, such as a closed sidebar, does not count.
CLIPPED = """() => {
  const scrolls = e => {
    for (let p = e; p && p !== document.body; p = p.parentElement) {
      const style = getComputedStyle(p);
      if (["auto", "scroll"].includes(style.overflowX) && p.scrollWidth > p.clientWidth) return true;
      if (style.clip !== "auto" || style.clipPath !== "none") return true;  // for screen readers alone
    }
    return false;
  };
  const found = [];
  for (const e of document.querySelectorAll('[data-testid="stMain"] *')) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    const box = e.getBoundingClientRect(), style = getComputedStyle(e);
    if (!own || !box.width || !box.height || style.visibility !== "visible" || !e.checkVisibility()) continue;
    const outside = box.right > innerWidth + 1 || box.left < -1;
    const cut = style.overflowX === "hidden" && style.textOverflow !== "ellipsis" && e.scrollWidth > e.clientWidth + 1;
    if ((outside || cut) && !scrolls(e)) found.push(e.textContent.trim().slice(0, 60));
  }
  return found;
}"""


@dataclass(frozen=True)
class Change:
    """What the page showed from a moment on.

    Attributes:
        after: Milliseconds since the click.
    """

    after: float
    caption: str
    heading: str
    title: str
    script: str


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


def new_tab(
    chromium: Any, url: str, size: tuple[int, int] = (1440, 900), scheme: str = "light"
) -> Any:
    """A tab of a new session."""
    window = {"width": size[0], "height": size[1]}
    tab = chromium.new_context(viewport=window, base_url=url, color_scheme=scheme).new_page()
    tab.set_default_timeout(TIMEOUT_MS)
    return tab


# How long a user waits.


def changes(tab: Any) -> list[Change]:
    """What happened on the page since the last click."""
    seen = tab.evaluate("() => window.seen")
    return [Change(at - seen["clicked"], *state) for at, *state in seen["changes"]]


def visit(tab: Any, quiet: str, path: str) -> None:
    """Open a page, wait until it has run, and begin to watch it."""
    tab.goto(path)
    tab.locator("h1").first.wait_for()
    tab.locator(quiet).wait_for()
    tab.evaluate(WATCH)


def cold_start(tests: Any, chromium: Any, app: Any) -> float:
    """Milliseconds from the server's start to the first map on the screen of the first visitor."""
    begun = time.monotonic()
    app.start()
    tab = new_tab(chromium, app.url)
    tab.goto("/")
    tab.get_by_role("grid").first.locator('[data-c="11.11"]').wait_for()
    passed = 1000 * (time.monotonic() - begun)
    tab.locator(tests.QUIET).wait_for()
    tab.context.close()
    return passed


def card(tests: Any, tab: Any, languages: Sequence[str], times: int) -> list[float]:
    """Milliseconds from a click on a head of the Heads page to its card."""
    visit(tab, tests.QUIET, "/heads?" + "&".join(f"langs={language}" for language in languages))
    return [_card(tab, languages[0], 1 + i % 10, (5 * i) % 12) for i in range(times)]


def _card(tab: Any, language: str, layer: int, head: int) -> float:
    heading = f"Layer {layer}, head {head}"
    tab.get_by_role("grid", name=f"({language})").first.locator(
        f'[data-c="{layer}.{head}"]'
    ).click()
    tab.locator("h3").first.filter(has_text=heading).wait_for()
    tab.wait_for_timeout(SETTLED_MS)
    return next(c.after for c in changes(tab) if c.heading == heading)


def switches(tests: Any, tab: Any, times: int) -> list[float]:
    """Milliseconds from a click on a page's name in the navigation to the end of that page's run."""
    names = [
        title for title, _ in importlib.import_module("headlab.dashboard.names").PAGES.values()
    ]
    visit(tab, tests.QUIET, PAGES["overview"])
    found = []
    for name in [*names[1:], names[0]] * times:
        title = "headlab" if name == names[0] else name
        tab.get_by_role("link", name=name, exact=True).first.click()
        tab.locator("h1").filter(has_text=title).wait_for()
        tab.wait_for_timeout(SETTLED_MS)
        tab.locator(tests.QUIET).wait_for()
        shown = [c for c in changes(tab) if c.title == title]
        found.append(next((c.after for c in shown if c.script == "notRunning"), shown[-1].after))
    return found


def toggles(
    tests: Any,
    tab: Any,
    times: int,
    languages: Sequence[str],
    model: str = "",
    cell: str = "{}.{}",
    grid: tuple[int, int] = (12, 12),
) -> tuple[list[float], list[float]]:
    """Milliseconds from a click on a head of the Prune page to the first figures with it off, and to the final ones."""
    visit(
        tab,
        tests.QUIET,
        f"/prune?{model}" + "&".join(f"langs={language}" for language in languages),
    )
    figure(tab, "All heads on: final")
    places = [((7 * i + 3) % grid[0], (5 * i + 1) % grid[1]) for i in range(times)]
    pairs = [_toggle(tab, cell.format(layer, head)) for layer, head in places]
    return [first for first, _ in pairs], [final for _, final in pairs]


def figure(tab: Any, caption: str) -> None:
    """Wait for the figures that a caption tells of; ends the program with what the page says instead."""
    until = time.monotonic() + TIMEOUT_MS / 1000
    while not tab.get_by_text(caption).count():
        if time.monotonic() > until:
            raise SystemExit(
                f"no figures in {TIMEOUT_MS / 1000:.0f} s; the page says:\n{tab.inner_text('body')}"
            )
        tab.wait_for_timeout(20)


def _toggle(tab: Any, cell: str) -> tuple[float, float]:
    """One head off from the untouched model, measured, and all heads on again.

    The caption under the figures, drawn after them, tells how many heads are off in them.
    """
    tab.locator(f'[data-c="{cell}"]').click()
    figure(tab, "1 head off: final")
    tab.wait_for_timeout(SETTLED_MS)
    seen = changes(tab)
    first = next(c.after for c in seen if FIRST.match(c.caption))
    final = next(c.after for c in seen if c.caption.startswith("1 head off: final"))
    tab.get_by_role("button", name="Reset").click()
    figure(tab, "All heads on: final")
    tab.wait_for_timeout(SETTLED_MS)
    return first, final


def descendants(pid: int) -> list[int]:
    """What a process started, directly or not, which may be in sessions of their own; none where there is no /proc."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    family = [pid]
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
    return family[1:]


def peak_megabytes(pid: int) -> float:
    """Sum of each process's highest resident memory: at least the highest sum."""
    total = 0
    for one in (pid, *descendants(pid)):
        try:
            status = Path(f"/proc/{one}/status").read_text()
        except OSError:
            continue
        found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
        total += int(found.group(1)) * 1024 if found else 0
    return total / 1e6


def speed(tests: Any, chromium: Any, app: Any, smoke: bool) -> dict[str, Any]:
    """Every wait, from one server after several starts."""
    from headlab.tasks.intents.templates import LANGUAGES

    starts, times = (1, 1) if smoke else (3, 10)
    measured: dict[str, list[float]] = {"cold_start_ms": []}
    for _ in range(starts):
        app.stop()
        measured["cold_start_ms"].append(cold_start(tests, chromium, app))
    tab = new_tab(chromium, app.url)
    measured["card_ms"] = card(tests, tab, LANGUAGES[:MAPS], times)
    measured["click_to_first_ms"], measured["click_to_final_ms"] = toggles(
        tests, tab, times, ["de"]
    )
    if not smoke:
        several = toggles(tests, tab, 3, LANGUAGES)
        (
            measured["click_to_first_of_15_languages_ms"],
            measured["click_to_final_of_15_languages_ms"],
        ) = several
    measured["page_switch_ms"] = switches(tests, tab, 1 if smoke else 3)
    measured["memory_mb"] = [peak_megabytes(app.process.pid)]
    tab.context.close()
    return {name: {**percentiles(values), "measured": values} for name, values in measured.items()}


def decoder(tests: Any, chromium: Any, app: Any, smoke: bool) -> dict[str, Any]:
    """Clicks on heads of SmolLM2 on `repeats`: the first figures are of 16 texts of 57 tokens, the last ones of 512."""
    tab = new_tab(chromium, app.url)
    model = "model=smollm2-135m&task=repeats&method=gradient&"
    waits = toggles(tests, tab, 1 if smoke else 4, ["en"], model, "decoder {}.{}", (30, 9))
    tab.context.close()
    names = ("decoder_click_to_first_ms", "decoder_click_to_final_ms")
    return {
        name: {**percentiles(values), "measured": values}
        for name, values in zip(names, waits, strict=True)
    }


# What assistive technology meets, and what is cut off.


def opened(tests: Any, tab: Any, path: str) -> None:
    """Open a page and wait until nothing on it changes."""
    tab.goto(path)
    tab.locator("h1").first.wait_for()
    tab.wait_for_timeout(2 * SETTLED_MS)
    tab.locator(tests.QUIET).wait_for()


def axe(tests: Any, chromium: Any, app: Any, smoke: bool) -> dict[str, Any]:
    """Rules of axe-core that a page breaks, by page and scheme, and on how many elements."""
    script = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
    names = list(PAGES)[:1] if smoke else list(PAGES)
    rules: dict[str, dict[str, dict[str, int]]] = {}
    found: dict[str, Any] = {f"axe_{impact}_violations": {} for impact in ("serious", "critical")}
    for scheme in SCHEMES:
        tab = new_tab(chromium, app.url, scheme=scheme)
        for name in names:
            opened(tests, tab, PAGES[name])
            tab.evaluate(script)
            broken = tab.evaluate("() => axe.run().then(r => r.violations)")
            for impact in ("serious", "critical"):
                many = sum(rule["impact"] == impact for rule in broken)
                found[f"axe_{impact}_violations"].setdefault(name, {})[scheme] = many
            rules.setdefault(name, {})[scheme] = {
                f"{r['impact']}: {r['id']}": len(r["nodes"]) for r in broken
            }
            _tell(
                f"{name}, {scheme}",
                [f"{r['id']}: {n['html'][:160]}" for r in broken for n in r["nodes"]],
            )
        tab.context.close()
    return {**found, "axe_rules": rules}


def clipped(tests: Any, chromium: Any, app: Any, smoke: bool) -> dict[str, Any]:
    """Texts that are cut off, by page and width of the window."""
    found: dict[str, dict[str, int]] = {}
    for width, size in SIZES.items():
        tab = new_tab(chromium, app.url, size)
        for name in list(PAGES)[:1] if smoke else PAGES:
            opened(tests, tab, PAGES[name])
            texts = tab.evaluate(CLIPPED)
            found.setdefault(name, {})[width] = len(texts)
            _tell(f"{name}, {width}", texts)
        tab.context.close()
    return {"clipped": found}


def _tell(where: str, faults: Sequence[str]) -> None:
    """What is wrong where, for the one who mends it."""
    for fault in faults:
        print(f"{where}: {fault}", file=sys.stderr)


def measure(parts: Sequence[str], smoke: bool) -> dict[str, Any]:
    """The parts asked for, on one server."""
    tests = helpers()
    found = dict[str, Any]()
    run = {"speed": speed, "axe": axe, "clipped": clipped, DECODER: decoder}
    with cache_copy() as cache, browser(tests) as chromium:
        app = tests.App(cache)
        try:
            app.start()
            for part in parts:
                found |= run[part](tests, chromium, app, smoke)
        finally:
            app.stop()
    return found


def table(found: dict[str, Any]) -> str:
    """A Markdown table of the waits, then the sums of the rest."""
    lines = [
        "| what | limit | p50 | p95 | times | kept |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for name, limit in LIMITS.items():
        if name in found:
            own = found[name]
            kept = "yes" if own["p50"] <= limit else "NO"
            cells = (
                name,
                f"{limit:,}",
                f"{own['p50']:,.0f}",
                f"{own['p95']:,.0f}",
                len(own["measured"]),
                kept,
            )
            lines.append(f"| {' | '.join(map(str, cells))} |")
    for name in ("axe_serious_violations", "axe_critical_violations", "clipped"):
        if name in found:
            sums = {page: sum(by.values()) for page, by in found[name].items()}
            lines.append(
                f"{name}: {sum(sums.values())} ({', '.join(f'{k} {v}' for k, v in sums.items() if v)})"
            )
    return "\n".join(lines)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", choices=[*PARTS, DECODER, []], help="what to measure; default: all"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="one repetition, to see that it works; writes nothing"
    )
    asked = parser.parse_args()
    parts = asked.parts or list(PARTS)
    about = {
        "command": "python benchmarks/ui.py" + "".join(f" {part}" for part in asked.parts),
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": {
            "python": platform.python_version(),
            **{name: installed(name) for name in PACKAGES},
        },
    }
    found = measure(parts, asked.smoke)
    print(table(found))
    if asked.smoke:
        return
    before = json.loads(OUT.read_text(encoding="utf-8")) if OUT.is_file() else {}
    made = {**before.get("made", {}), **dict.fromkeys(parts, about)}
    write(OUT, {**before, **about, "made": made, **found})
    print(f"written to {OUT.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
