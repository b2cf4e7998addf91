"""A cache of made-up scores of the embedded model's shape, so that pages have something to show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from headlab.core import HeadGrid, Stack
from headlab.methods import METHODS
from headlab.results import HeadScores, Store
from headlab.tasks.intents.templates import LANGUAGES

MODEL = "e5-small-intents"
GRID = HeadGrid((Stack("encoder", (12,) * 12),))
HARMFUL = 3 * 12 + 7
HELPFUL = 9 * 12  # heads 3.7 and 9.0, in every language


def made_up(
    language: str, method: str, fingerprint: str = "0" * 64, name: str = MODEL
) -> HeadScores:
    """Scores with a large helpful head 9.0 and a harmful head 3.7; the same for the same arguments."""
    rng = np.random.default_rng([len(method), *language.encode()])
    values = rng.laplace(0.0005, 0.003, GRID.size)
    values[[HARMFUL, HELPFUL]] = -0.05, 0.08
    extra: dict[str, Any] = {"signed": METHODS[method].signed}
    if not METHODS[method].signed:
        values = np.abs(values)
    if METHODS[method].intervals:
        wide = 0.006 if METHODS[method].signed else values / 2
        extra |= {
            "low": values - wide,
            "high": values + wide,
            "samples": np.full(GRID.size, 2048, np.int64),
        }
    if METHODS[method].intervals and METHODS[method].signed:
        extra["p_values"] = np.exp(-((values / 0.004) ** 2)).clip(1e-12, 1)
    model = {"name": name, "revision": "made-up", "fingerprint": fingerprint}
    task = {
        "name": "intents",
        "language": language,
        "split": "dev",
        "size": 512,
        "seed": 0,
        "data_hash": language,
    }
    options = {"name": method, "options": METHODS[method].resolve({})}
    spec = {
        "format": 1,
        "model": model,
        "task": task,
        "ablation": "zero",
        "method": options,
        "seed": 0,
    }
    about = METHODS[method]
    return HeadScores(
        GRID, language, method, values, about.estimand, about.unit, 73728, 33.0, spec=spec, **extra
    )


def fill(root: Path, fingerprint: str = "0" * 64) -> Path:
    """Write shapley, gradient and confidence for all languages, leave-one-out for five."""
    for method in ("shapley", "gradient", "confidence", "leave-one-out"):
        for language in LANGUAGES[:5] if method == "leave-one-out" else LANGUAGES:
            scores = made_up(language, method, fingerprint)
            Store(root).run(scores.spec).finish(
                scores, {"created": "2026-11-21T05:00:00+00:00", "versions": {}}
            )
    return root


@contextmanager
def while_cached(root: Path, record: Any, day: int = 22) -> Iterator[None]:
    """Keep a record, made on a day of November, in a cache that others share, and take it out again."""
    run = Store(root).run(record.spec)
    run.finish(record, {"created": f"2026-11-{day}T05:00:00+00:00", "versions": {}})
    try:
        yield
    finally:
        for file in run.folder.iterdir():
            file.unlink()
        run.folder.rmdir()
