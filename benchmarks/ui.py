"""What a user meets in a real browser: waits, barriers to assistive technology, and cut-off texts.

    python benchmarks/ui.py                all; writes benchmarks/results/ui.json (about twelve minutes)
    python benchmarks/ui.py axe clipped    only these parts; the rest of ui.json stays
    python benchmarks/ui.py words          words in sight on each page, all languages chosen
    python benchmarks/ui.py first_map own  where the first map is, and how soon a model just brought has one
    python benchmarks/ui.py decoder        clicks on a head of SmolLM2 (`make decoder`); not part of "all"
    python benchmarks/ui.py --smoke        one repetition of each, one page; writes nothing

Needs Linux (memory is read from /proc), Chromium and requirements-soak.txt. What pages compute goes
to a folder of its own; the results are those of the demo, which come with headlab.
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

from machine import ROOT, commit, installed_version, machine_facts, percentiles, write_json

RESULT_FILE = ROOT / "benchmarks" / "results" / "ui.json"
PACKAGES = (
    "headlab",
    "torch",
    "transformers",
    "streamlit",
    "playwright",
    "axe-playwright-python",
    "numpy",
)
PARTS = ("speed", "axe", "clipped", "words", "first_map", "own")
DECODER = "decoder"  # measured only on request: its model comes with `make decoder`
MAPS = 6
SETTLED_MS = 1500
# Between two looks at the page, each of which takes the browser, and so the figures, some
# milliseconds. Times are those that the page itself has noted.
POLL_MS = 250
TIMEOUT_MS = 240_000
# The caption under the figures once one head is off: the first figures, or the final ones.
ONE_HEAD_OFF = re.compile(r"1 head off: (\d+ of \d+|final)")
SCHEMES = ("light", "dark")
SIZES = {"1440": (1440, 900), "1024": (1024, 768), "390": (390, 844)}
# Every page as a newcomer finds it, with a few languages.
PAGES = {
    "overview": "/?langs=de&langs=en", "heads": "/heads?langs=de&langs=en",
    "head": "/head?langs=de&langs=en", "scatter": "/scatter?langs=de&langs=en", "languages": "/languages?langs=de&langs=en",
    "pairs": "/pairs?langs=de&langs=en",
    "roles": "/roles?langs=de", "gates": "/gates?langs=en", "prune": "/prune?langs=de&langs=en",
    "masks": "/masks?langs=de&langs=en", "experiments": "/experiments?experiment=targeted",
    "attention": "/attention?langs=de", "jobs": "/jobs?langs=de&langs=en",
}  # fmt: skip
# What the median of each figure must not exceed: milliseconds, megabytes for memory.
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

# JavaScript that logs, by the browser's clock, the last click and every later change of the caption,
# the headings and the state of the script.
WATCH_CHANGES = """() => {
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

# JavaScript that lists texts which a reader cannot reach: those beyond the window's edge, or cut off
# by their own box without an ellipsis, if no box around them scrolls sideways. What is hidden from
# everyone, such as a closed sidebar, does not count.
CLIPPED_TEXTS = """() => {
  const scrolls = e => {
    for (let p = e; p && p !== document.body; p = p.parentElement) {
      const style = getComputedStyle(p);
      if (["auto", "scroll"].includes(style.overflowX) && p.scrollWidth > p.clientWidth) return true;
      if (style.clip !== "auto" || style.clipPath !== "none") return true;  // for screen readers alone
    }
    return false;
  };
  const clipped = [];
  for (const e of document.querySelectorAll('[data-testid="stMain"] *')) {
    const hasText = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    const box = e.getBoundingClientRect(), style = getComputedStyle(e);
    const shown = box.width && box.height && style.visibility === "visible" && e.checkVisibility();
    if (!hasText || !shown) continue;
    const outside = box.right > innerWidth + 1 || box.left < -1;
    const cut = style.overflowX === "hidden" && style.textOverflow !== "ellipsis"
      && e.scrollWidth > e.clientWidth + 1;
    if ((outside || cut) && !scrolls(e)) clipped.push(e.textContent.trim().slice(0, 60));
  }
  return clipped;
}"""


# JavaScript that counts the words in sight: those of texts that lie in the window, without tables,
# pictures and closed folds. Components keep theirs below shadow roots.
VISIBLE_WORDS = r"""() => {
  const isSkipped = e => ["TABLE", "SVG", "CANVAS", "SCRIPT", "STYLE"].includes(e.tagName.toUpperCase())
    || e.getAttribute("data-testid") === "stDataFrame" || e.classList.contains("tip")
    || e.classList.contains("icon") || e.getAttribute("data-testid") === "stIconMaterial";
  const isSeen = e => {
    const box = e.getBoundingClientRect(), style = getComputedStyle(e);
    return box.width && box.height && box.bottom > 0 && box.top < innerHeight
      && box.right > 0 && box.left < innerWidth && style.visibility === "visible" && e.checkVisibility();
  };
  const words = [];
  const collect = (node, parent) => {
    if (node.nodeType === 3) {
      if (isSeen(parent)) words.push(...node.textContent.split(/\s+/).filter(w => /[\p{L}\p{N}]/u.test(w)));
      return;
    }
    if (node.nodeType === 1 && isSkipped(node)) return;
    const inside = node.nodeType === 1 ? node : parent;
    if (node.shadowRoot) [...node.shadowRoot.childNodes].forEach(child => collect(child, inside));
    [...node.childNodes].forEach(child => collect(child, inside));
  };
  const main = document.querySelector('[data-testid="stMain"]');
  collect(main, main);
  return words.length;
}"""


@dataclass(frozen=True)
class Change:
    """What the page showed from a moment on.

    Attributes:
        milliseconds: Since the click.
        caption: How many heads are off in the figures, and on how many examples they are.
        heading: The first h3.
        title: The page's h1.
        script: The state of the page's script, "notRunning" once it has ended.
    """

    milliseconds: float
    caption: str
    heading: str
    title: str
    script: str


def browser_test_helpers() -> Any:
    """The module tests/browser/conftest.py, which has the server and the browsers' names."""
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
def own_cache() -> Iterator[Path]:
    """A folder for what the pages compute; the demo's results come with headlab."""
    with tempfile.TemporaryDirectory(prefix="headlab-bench-") as folder:
        yield Path(folder)


def new_tab(
    chromium: Any, url: str, size: tuple[int, int] = (1440, 900), scheme: str = "light"
) -> Any:
    """A tab of a new session."""
    window = {"width": size[0], "height": size[1]}
    tab = chromium.new_context(viewport=window, base_url=url, color_scheme=scheme).new_page()
    tab.set_default_timeout(TIMEOUT_MS)
    return tab


# How long a user waits.


def changes_since_click(tab: Any) -> list[Change]:
    """What happened on the page since the last click."""
    log = tab.evaluate("() => window.seen")
    return [Change(clock - log["clicked"], *state) for clock, *state in log["changes"]]


def visit(tab: Any, quiet: str, path: str) -> None:
    """Open a page, wait until it has run, and begin to watch it.

    Args:
        tab: Of the browser.
        quiet: Selector of a page whose script has ended.
        path: Path and query of the page.
    """
    tab.goto(path)
    tab.locator("h1").first.wait_for()
    tab.locator(quiet).wait_for()
    tab.evaluate(WATCH_CHANGES)


def cold_start(tests: Any, chromium: Any, app: Any) -> float:
    """Milliseconds from the server's start to the first map on the screen of the first visitor."""
    start = time.monotonic()
    app.start()
    tab = new_tab(chromium, app.url)
    tab.goto("/")
    tab.get_by_role("grid").first.locator('[data-c="11.11"]').wait_for()
    milliseconds = 1000 * (time.monotonic() - start)
    tab.locator(tests.IDLE_APP).wait_for()
    tab.context.close()
    return milliseconds


def card_waits(tests: Any, tab: Any, languages: Sequence[str], times: int) -> list[float]:
    """Milliseconds from a click on a head of the Heads page to its card."""
    visit(tab, tests.IDLE_APP, f"/heads?{_language_query(languages)}")
    waits = []
    for turn in range(times):
        waits.append(_card_wait(tab, languages[0], layer=1 + turn % 10, head=(5 * turn) % 12))
    return waits


def _language_query(languages: Sequence[str]) -> str:
    """The part of a link that chooses languages."""
    return "&".join(f"langs={language}" for language in languages)


def _card_wait(tab: Any, language: str, layer: int, head: int) -> float:
    heading = f"Head {layer}.{head}"
    grid = tab.get_by_role("grid", name=f"({language})").first
    grid.locator(f'[data-c="{layer}.{head}"]').click()
    tab.locator("h3").first.filter(has_text=heading).wait_for()
    tab.wait_for_timeout(SETTLED_MS)
    return next(
        change.milliseconds for change in changes_since_click(tab) if change.heading == heading
    )


def page_switch_waits(tests: Any, tab: Any, times: int) -> list[float]:
    """Milliseconds from a click on a page's name to the end of that page's run."""
    pages = importlib.import_module("headlab.dashboard.names").PAGES
    names = [title for title, _ in pages.values()]
    visit(tab, tests.IDLE_APP, PAGES["overview"])
    waits = []
    for name in [*names[1:], names[0]] * times:
        title = "headlab" if name == names[0] else name
        tab.get_by_role("link", name=name, exact=True).first.click()
        tab.locator("h1").filter(has_text=title).wait_for()
        tab.wait_for_timeout(SETTLED_MS)
        tab.locator(tests.IDLE_APP).wait_for()
        title_changes = [change for change in changes_since_click(tab) if change.title == title]
        ends = [change for change in title_changes if change.script == "notRunning"]
        end = ends[0] if ends else title_changes[-1]
        waits.append(end.milliseconds)
    return waits


def toggle_waits(
    tests: Any,
    tab: Any,
    times: int,
    languages: Sequence[str],
    model: str = "",
    cell: str = "{}.{}",
    grid: tuple[int, int] = (12, 12),
) -> tuple[list[float], list[float]]:
    """Milliseconds from a click on a head of the Prune page to figures with that head off.

    Args:
        tests: The module of the browser tests.
        tab: Of the browser.
        times: How many heads are clicked.
        languages: Whose figures the page shows.
        model: The part of the link that chooses model and task; empty for the defaults.
        cell: Name of a head's cell, of its layer and number.
        grid: Layers, and heads of a layer.

    Returns:
        Milliseconds to the first figures, and to the final ones.
    """
    visit(tab, tests.IDLE_APP, f"/prune?{model}{_language_query(languages)}")
    wait_for_figures(tab, "All heads on: final")
    layers, heads = grid
    first_waits = []
    final_waits = []
    for turn in range(times):
        layer = (7 * turn + 3) % layers
        head = (5 * turn + 1) % heads
        first, final = _toggle_wait(tab, cell.format(layer, head))
        first_waits.append(first)
        final_waits.append(final)
    return first_waits, final_waits


def wait_for_figures(tab: Any, caption: str) -> None:
    """Wait for the figures with a caption; if they do not come, exit with what the page says."""
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    while not tab.get_by_text(caption).count():
        if time.monotonic() > deadline:
            raise SystemExit(
                f"no figures in {TIMEOUT_MS / 1000:.0f} s; the page says:\n{tab.inner_text('body')}"
            )
        tab.wait_for_timeout(POLL_MS)


def _toggle_wait(tab: Any, cell: str) -> tuple[float, float]:
    """Switch one head off, measure, and switch all heads on again.

    The caption under the figures, which is drawn after them, says how many heads are off in them.

    Returns:
        Milliseconds to the first figures, and to the final ones.
    """
    tab.locator(f'[data-c="{cell}"]').click()
    wait_for_figures(tab, "1 head off: final")
    tab.wait_for_timeout(SETTLED_MS)
    page_changes = changes_since_click(tab)
    first = next(change for change in page_changes if ONE_HEAD_OFF.match(change.caption))
    final = next(
        change for change in page_changes if change.caption.startswith("1 head off: final")
    )
    tab.get_by_role("button", name="Reset").click()
    wait_for_figures(tab, "All heads on: final")
    tab.wait_for_timeout(SETTLED_MS)
    return first.milliseconds, final.milliseconds


def descendants(pid: int) -> list[int]:
    """Ids of the processes that a process started, directly or not; none without /proc.

    Processes in sessions of their own are among them.
    """
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
    family = [pid]
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
    return family[1:]


def peak_megabytes(pid: int) -> float:
    """Sum of the peak resident memory of a process and its descendants.

    Their peaks may be at different times, so the sum is an upper bound of the peak of the sum.
    """
    total_bytes = 0
    for process_id in (pid, *descendants(pid)):
        try:
            status = Path(f"/proc/{process_id}/status").read_text()
        except OSError:
            continue
        peak = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
        if peak is not None:
            total_bytes += int(peak.group(1)) * 1024
    return total_bytes / 1e6


def speed(tests: Any, chromium: Any, app: Any, smoke: bool) -> dict[str, Any]:
    """Every wait, from one server after several starts."""
    from headlab.tasks.intents.classes import LANGUAGES

    starts = 1 if smoke else 3
    times = 1 if smoke else 10
    figures: dict[str, list[float]] = {"cold_start_ms": []}
    for _ in range(starts):
        app.stop()
        figures["cold_start_ms"].append(cold_start(tests, chromium, app))
    tab = new_tab(chromium, app.url)
    figures["card_ms"] = card_waits(tests, tab, LANGUAGES[:MAPS], times)
    first_waits, final_waits = toggle_waits(tests, tab, times, ["de"])
    figures["click_to_first_ms"] = first_waits
    figures["click_to_final_ms"] = final_waits
    if not smoke:
        first_waits, final_waits = toggle_waits(tests, tab, 3, LANGUAGES)
        figures["click_to_first_of_15_languages_ms"] = first_waits
        figures["click_to_final_of_15_languages_ms"] = final_waits
    figures["page_switch_ms"] = page_switch_waits(tests, tab, 1 if smoke else 3)
    figures["memory_mb"] = [peak_megabytes(app.process.pid)]
    tab.context.close()
    return {name: {**percentiles(values), "measured": values} for name, values in figures.items()}


def decoder(tests: Any, chromium: Any, app: Any, smoke: bool) -> dict[str, Any]:
    """Clicks on heads of SmolLM2 on `repeats`, whose texts have 57 tokens.

    The first figures are on 16 texts, the final ones on 512.
    """
    tab = new_tab(chromium, app.url)
    model = "model=smollm2-135m&task=repeats&method=gradient&"
    waits = toggle_waits(tests, tab, 1 if smoke else 4, ["en"], model, "decoder {}.{}", (30, 9))
    tab.context.close()
    names = ("decoder_click_to_first_ms", "decoder_click_to_final_ms")
    return {
        name: {**percentiles(values), "measured": values}
        for name, values in zip(names, waits, strict=True)
    }


# What assistive technology meets, and what is cut off.


def open_page(tests: Any, tab: Any, path: str) -> None:
    """Open a page and wait until nothing on it changes."""
    tab.goto(path)
    tab.locator("h1").first.wait_for()
    tab.wait_for_timeout(2 * SETTLED_MS)
    tab.locator(tests.IDLE_APP).wait_for()


def axe(tests: Any, chromium: Any, app: Any, smoke: bool) -> dict[str, Any]:
    """Rules of axe-core that each page breaks in each scheme, and on how many elements."""
    script = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
    names = list(PAGES)[:1] if smoke else list(PAGES)
    rules: dict[str, dict[str, dict[str, int]]] = {}
    figures: dict[str, Any] = {f"axe_{impact}_violations": {} for impact in ("serious", "critical")}
    for scheme in SCHEMES:
        tab = new_tab(chromium, app.url, scheme=scheme)
        for name in names:
            open_page(tests, tab, PAGES[name])
            tab.evaluate(script)
            violations = tab.evaluate("() => axe.run().then(r => r.violations)")
            for impact in ("serious", "critical"):
                violation_count = sum(rule["impact"] == impact for rule in violations)
                figures[f"axe_{impact}_violations"].setdefault(name, {})[scheme] = violation_count
            rules.setdefault(name, {})[scheme] = {
                f"{rule['impact']}: {rule['id']}": len(rule["nodes"]) for rule in violations
            }
            faults = []
            for rule in violations:
                faults += [f"{rule['id']}: {node['html'][:160]}" for node in rule["nodes"]]
            _print_faults(f"{name}, {scheme}", faults)
        tab.context.close()
    return {**figures, "axe_rules": rules}


def clipped_text_counts(tests: Any, chromium: Any, app: Any, smoke: bool) -> dict[str, Any]:
    """Texts that are cut off, by page and width of the window."""
    counts: dict[str, dict[str, int]] = {}
    for width, size in SIZES.items():
        tab = new_tab(chromium, app.url, size)
        for name in list(PAGES)[:1] if smoke else PAGES:
            open_page(tests, tab, PAGES[name])
            texts = tab.evaluate(CLIPPED_TEXTS)
            counts.setdefault(name, {})[width] = len(texts)
            _print_faults(f"{name}, {width}", texts)
        tab.context.close()
    return {"clipped": counts}


def visible_words(tests: Any, chromium: Any, app: Any, smoke: bool) -> dict[str, Any]:
    """Words in sight on each page at 1440 by 900, with all languages of the task chosen."""
    tab = new_tab(chromium, app.url)
    counts: dict[str, int] = {}
    for name in list(PAGES)[:1] if smoke else [*PAGES, "own"]:
        open_page(tests, tab, "/" if name == "overview" else f"/{name}")
        counts[name] = tab.evaluate(VISIBLE_WORDS)
    tab.context.close()
    return {"words": counts}


def first_map_above_fold(tests: Any, chromium: Any, app: Any, smoke: bool) -> dict[str, Any]:
    """Whether a newcomer sees the whole first map of the Overview without scrolling, by width."""
    is_above: dict[str, bool] = {}
    for width, size in SIZES.items():
        tab = new_tab(chromium, app.url, size)
        open_page(tests, tab, "/")
        box = tab.get_by_role("grid").first.bounding_box()
        is_above[width] = box["y"] >= 0 and box["y"] + box["height"] <= size[1]
        tab.context.close()
    return {"first_map_above_fold": is_above}


def own_first_map(tests: Any, chromium: Any, app: Any, smoke: bool) -> dict[str, Any]:
    """Seconds from "Use this model" to the first map of a model that was just brought.

    The model is a copy of the embedded one with other weights, so that the cache has nothing of it.
    It is loaded before, as on that page.
    """
    with tempfile.TemporaryDirectory(prefix="headlab-bench-model-") as folder:
        save_other_weights(Path(folder))
        tab = new_tab(chromium, app.url)
        open_page(tests, tab, "/own?langs=de")
        field = tab.get_by_label("Model folder or hub id")
        field.fill(folder)
        field.press("Enter")
        tab.get_by_role("button", name="Load it and check the rest").click()
        tab.get_by_text("Open gates change no answer").wait_for()
        start = time.monotonic()
        tab.get_by_role("button", name="Use this model").click()
        tab.get_by_role("link", name="Overview: its first map").click()
        tab.get_by_role("grid").first.locator('[data-c="0.0"]').wait_for()
        seconds = time.monotonic() - start
        tab.context.close()
    return {"own_first_map_seconds": seconds}


def save_other_weights(folder: Path) -> None:
    """Save the embedded classifier with a bias that is a little different, as somebody's own."""
    import torch

    import headlab

    model = headlab.load("e5-small-intents")
    with torch.no_grad():
        list(model.module.parameters())[-1][0] += 1e-3
    model.module.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)


def _print_faults(page: str, faults: Sequence[str]) -> None:
    """Print what is wrong on a page, for whoever mends it."""
    for fault in faults:
        print(f"{page}: {fault}", file=sys.stderr)


def measure(parts: Sequence[str], smoke: bool) -> dict[str, Any]:
    """Measure the requested parts, on one server."""
    tests = browser_test_helpers()
    figures = dict[str, Any]()
    measure_part = {
        "speed": speed,
        "axe": axe,
        "clipped": clipped_text_counts,
        "words": visible_words,
        "first_map": first_map_above_fold,
        "own": own_first_map,
        DECODER: decoder,
    }
    with own_cache() as cache, browser(tests) as chromium:
        app = tests.App(cache)
        try:
            app.start()
            for part in parts:
                figures |= measure_part[part](tests, chromium, app, smoke)
        finally:
            app.stop()
    return figures


def table(figures: dict[str, Any]) -> str:
    """A Markdown table of the waits, then the sums of the rest."""
    lines = [
        "| what | limit | p50 | p95 | times | kept |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for name, limit in LIMITS.items():
        if name in figures:
            distribution = figures[name]
            within_limit = "yes" if distribution["p50"] <= limit else "NO"
            cells = (
                name,
                f"{limit:,}",
                f"{distribution['p50']:,.0f}",
                f"{distribution['p95']:,.0f}",
                len(distribution["measured"]),
                within_limit,
            )
            lines.append(f"| {' | '.join(map(str, cells))} |")
    for name in ("words", "first_map_above_fold", "own_first_map_seconds"):
        if name in figures:
            lines.append(f"{name}: {figures[name]}")
    for name in ("axe_serious_violations", "axe_critical_violations", "clipped"):
        if name in figures:
            sums = {page: sum(counts.values()) for page, counts in figures[name].items()}
            faulty_pages = ", ".join(f"{page} {count}" for page, count in sums.items() if count)
            lines.append(f"{name}: {sum(sums.values())} ({faulty_pages})")
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
    arguments = parser.parse_args()
    parts = arguments.parts or list(PARTS)
    provenance = {
        "command": "python benchmarks/ui.py" + "".join(f" {part}" for part in arguments.parts),
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine_facts(),
        "versions": {
            "python": platform.python_version(),
            **{name: installed_version(name) for name in PACKAGES},
        },
    }
    figures = measure(parts, arguments.smoke)
    print(table(figures))
    if arguments.smoke:
        return
    stored_figures = (
        json.loads(RESULT_FILE.read_text(encoding="utf-8")) if RESULT_FILE.is_file() else {}
    )
    provenance_by_part = {**stored_figures.get("made", {}), **dict.fromkeys(parts, provenance)}
    write_json(RESULT_FILE, {**stored_figures, **provenance, "made": provenance_by_part, **figures})
    print(f"written to {RESULT_FILE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
