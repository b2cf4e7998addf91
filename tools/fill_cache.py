"""Puts what pages show first into the cache: `python tools/fill_cache.py`.

The reports under docs/results, and the answers of the untouched demo model, with which the Prune page compares every
mask. The reports are of models and data that are not shipped, so that nobody can make them here again; a report holds
numbers and no sentence of the data. Their date is that of the commit that last changed their file.

`python tools/fill_cache.py --data DIR --model FOLDER` also scores the heads of that model of XNLI (e5-small-xnli) in
all 15 languages, by the methods that take minutes (METHODS).
"""

from __future__ import annotations

import argparse
import subprocess
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from headlab import load, task
from headlab.evaluator import Evaluator
from headlab.files import read_json
from headlab.methods.run import score
from headlab.reproduce.models import opened
from headlab.store import Store
from headlab.tables import Report
from headlab.tasks.intents.templates import LANGUAGES
from headlab.ui.prune_figures import SIZES
from headlab.worker.answers import untouched

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
FOLDERS = ("held", "roles")
NLI, METHODS = "e5-small-xnli", ("gradient", "confidence")
DATED = "by the commit of its file under docs/results"


def reports() -> Iterator[tuple[Path, Report]]:
    """(file, report) of every committed report on one model; a summary over several models is none."""
    for folder in FOLDERS:
        for path in sorted((RESULTS / folder).glob("*.json")):
            report = Report.from_json(read_json(path))
            if "model" in report.spec:
                yield path, report


def committed(path: Path) -> str:
    """When a file was last committed, ISO 8601."""
    asked = ["git", "log", "-1", "--format=%cI", "--", str(path)]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def baselines(store: Store) -> None:
    """The answers of the untouched demo model to the examples that the Prune page asks for; those there are kept."""
    model = load("e5-small-intents", device="cpu")
    for language in LANGUAGES:
        for split, size in SIZES.items():
            deque(untouched(Evaluator(model, task("intents"), language, split, size), store), maxlen=0)


def score_nli(store: Store, data: Path, model: Path) -> None:
    """Head scores of the NLI model in every language of XNLI, those that the cache lacks."""
    loaded, xnli = opened(model, NLI, None, "float32"), task("xnli", data=data)
    for method in METHODS:
        for language in xnli.languages:
            score(loaded, xnli, language=language, method=method, size=512, seed=0, store=store)


def main() -> None:
    """Write those that the cache lacks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder with xnli/, as docs/tasks.md says")
    parser.add_argument("--model", type=Path, help="folder of e5-small-xnli")
    asked, store = parser.parse_args(), Store(ROOT / "cache")
    baselines(store)
    if asked.data and asked.model:
        score_nli(store, asked.data, asked.model)
    for path, report in reports():
        run = store.run(report.spec)
        if not run.finished:
            run.finish(report, {"created": committed(path), "dated": DATED})


if __name__ == "__main__":
    main()
