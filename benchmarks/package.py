"""What it takes to get headlab: the wheel's size, the installation, the first map, the first word.

    python benchmarks/package.py
    python benchmarks/package.py docs     # the site of the documentation alone

It builds a wheel, installs it with the extra `app` into a new environment outside the checkout,
serves it and waits for a map on the first page. The packages come from pip's index, so the seconds
of the installation are also those of the network; PIP_EXTRA_INDEX_URL names an index of torch
without CUDA. Then it builds the site by `make docs` (in the environment that VENV names), and counts
its examples and dead links. Figures go to benchmarks/results/package.json. Needs Chromium.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from machine import commit, machine_facts, write_json

ROOT = Path(__file__).resolve().parents[1]
RESULT_FILE = ROOT / "benchmarks" / "results" / "package.json"
SITE_FIGURES = ROOT / "site" / "build.json"
DOCS = "docs"
"""What names the figures of the site, as the script's argument and in the file."""
TIMES = 7
"""How often a short program is started; its median counts."""
IMPORT = "import time; t = time.perf_counter(); import headlab; print(time.perf_counter() - t)"


def test_helpers(name: str) -> Any:
    """A module of the tests, by its name below tests/ or tests/browser/."""
    for folder in (ROOT, ROOT / "tests", ROOT / "tests" / "browser"):  # the last is looked in first
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    return importlib.import_module(name)


def install(wheel: Path, folder: Path) -> float:
    """Install a wheel with its extra `app` into a new environment; gives the seconds it took."""
    start = time.perf_counter()
    venv.create(folder, with_pip=True)
    command = [folder / "bin" / "python", "-I", "-m", "pip", "install", "--quiet"]
    subprocess.run([*command, f"{wheel}[app]"], check=True)
    return time.perf_counter() - start


def seconds_to_first_map(programs: Path, folder: Path, environment: dict[str, str]) -> float:
    """Seconds from `headlab app` to a map on its first page."""
    built_wheel = test_helpers("support.built_wheel")
    browser_tests = test_helpers("conftest")
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, browser_tests.BROWSERS)), None)
    if path is None:
        raise SystemExit(f"no Chromium: none of {', '.join(browser_tests.BROWSERS)} is on the PATH")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=browser_tests.FLAGS)
        tab = chromium.new_page()
        start = time.perf_counter()
        with built_wheel.served_app([str(programs / "headlab")], folder, environment) as address:
            tab.goto(address)
            tab.get_by_role("grid").first.locator('[data-c="11.11"]').wait_for(timeout=120_000)
            seconds = time.perf_counter() - start
            chromium.close()
    return seconds


def import_seconds(python: Path, folder: Path) -> float:
    """Median seconds of `import headlab` in a new process."""
    runs = [
        subprocess.run(
            [python, "-I", "-c", IMPORT], cwd=folder, capture_output=True, text=True, check=True
        )
        for _ in range(TIMES)
    ]
    return median(float(run.stdout) for run in runs)


def help_seconds(program: Path, folder: Path) -> float:
    """Median seconds of `headlab --help`, from its start to its end."""
    seconds = []
    for _ in range(TIMES):
        start = time.perf_counter()
        subprocess.run([program, "--help"], cwd=folder, stdout=subprocess.DEVNULL, check=True)
        seconds.append(time.perf_counter() - start)
    return median(seconds)


def site_figures() -> dict[str, Any]:
    """Build the documentation as a site; how long it took, its examples, its dead links."""
    provenance = provenance_of("python benchmarks/package.py docs")
    subprocess.run(["make", "--no-print-directory", "docs"], cwd=ROOT, check=True)
    figures = json.loads(SITE_FIGURES.read_text(encoding="utf-8"))
    return {DOCS: provenance, **figures}


def provenance_of(command: str) -> dict[str, Any]:
    """When, where and by which commit something is measured.

    Args:
        command: That measures it.
    """
    return {
        "command": command,
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine_facts(),
        "python": platform.python_version(),
    }


def main() -> None:
    """Measure, print, write."""
    if sys.argv[1:] == [DOCS]:
        kept = json.loads(RESULT_FILE.read_text(encoding="utf-8"))
        write_json(RESULT_FILE, kept | site_figures())
        print(f"written to {RESULT_FILE.relative_to(ROOT)}")
        return
    provenance = provenance_of("python benchmarks/package.py")
    with tempfile.TemporaryDirectory(prefix="headlab-package-") as name:
        folder = Path(name)
        (folder / "built").mkdir()
        wheel = test_helpers("support.built_wheel").build_wheel(folder / "built").path
        install_seconds = install(wheel, folder / "environment")
        programs = folder / "environment" / "bin"
        environment = {**os.environ, "HEADLAB_CACHE": str(folder / "cache")}
        environment.pop("HEADLAB_DEMO", None)
        first_map_seconds = seconds_to_first_map(programs, folder, environment)
        figures = {
            "wheel_bytes": wheel.stat().st_size,
            "install_seconds": install_seconds,
            "app_to_first_map_seconds": first_map_seconds,
            "install_to_first_map_seconds": install_seconds + first_map_seconds,
            "import_seconds": import_seconds(programs / "python", folder),
            "help_seconds": help_seconds(programs / "headlab", folder),
        }
    for key, value in figures.items():
        print(f"{key}: {value:,.3f}")
    write_json(RESULT_FILE, {**provenance, **figures, **site_figures()})
    print(f"written to {RESULT_FILE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
