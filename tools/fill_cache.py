"""Puts what pages show first into the cache: `python tools/fill_cache.py`.

The reports under docs/results, and the answers of the evaluations_of_baseline demo model, with which the Prune page compares every
mask. The reports are of models and data that are not shipped, so that nobody can make them here again; a report holds
numbers and no sentence of the data. Their date is that of the commit that last changed their file.

It also scores the heads of the embedded `e5-small-slots` on `slots` in all languages by the methods that take minutes
(METHODS); with `--data DIR` and `--nli FOLDER` those of e5-small-xnli on XNLI, and with `--tagger FOLDER` those of the
tagger that `headlab reproduce held` trains (e5-small-udpos) on part-of-speech tags.
"""

from __future__ import annotations

import argparse
import subprocess
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from headlab import load, task
from headlab.core import Report, read_json
from headlab.dashboard.panels.accuracy import EXAMPLES_BY_SPLIT
from headlab.evaluation import Evaluator
from headlab.hooks import Model
from headlab.methods.run import score
from headlab.reproduce.held import TAGGER
from headlab.reproduce.models import NLI, open_model
from headlab.results import Store
from headlab.tasks import Task
from headlab.tasks.intents.templates import LANGUAGES
from headlab.worker.answers import evaluations_of_baseline

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
FOLDERS = ("held", "roles")
METHODS = ("gradient", "confidence")
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
    return subprocess.run(
        asked, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def baselines(store: Store) -> None:
    """The answers of the evaluations_of_baseline demo model to the examples that the Prune page asks for; those there are kept."""
    model = load("e5-small-intents", device="cpu")
    for language in LANGUAGES:
        for split, size in EXAMPLES_BY_SPLIT.items():
            deque(
                evaluations_of_baseline(
                    Evaluator(model, task("intents"), language, split, size), store
                ),
                maxlen=0,
            )


def score_heads(store: Store, model: Model, asked: Task) -> None:
    """Head scores of a model in every language of a task that has dev examples, those that the cache lacks."""
    for method in METHODS:
        for language in asked.languages:
            score(model, asked, language=language, method=method, size=512, seed=0, store=store)


def main() -> None:
    """Write those that the cache lacks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="a folder with xnli/, as docs/tasks.md says")
    parser.add_argument("--nli", type=Path, help=f"folder of {NLI}")
    parser.add_argument("--tagger", type=Path, help=f"folder of {TAGGER}")
    asked = parser.parse_args()
    store = Store(ROOT / "cache")
    baselines(store)
    score_heads(store, load("e5-small-slots", device="cpu"), task("slots"))
    for folder, name, of in ((asked.nli, NLI, "xnli"), (asked.tagger, TAGGER, "udpos")):
        if folder:
            score_heads(store, open_model(folder, name, None, "float32"), task(of, data=asked.data))
    for path, report in reports():
        run = store.run(report.spec)
        if not run.finished:
            run.finish(report, {"created": committed(path), "dated": DATED})


if __name__ == "__main__":
    main()
