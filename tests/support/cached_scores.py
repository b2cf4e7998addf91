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
from headlab.tasks.intents.classes import LANGUAGES

MODEL = "e5-small-intents"
GRID = HeadGrid((Stack("encoder", (12,) * 12),))
# Indices of heads 3.7 and 9.0, which harm and help in every language.
HARMFUL = 3 * 12 + 7
HELPFUL = 9 * 12


def made_scores(
    language: str, method: str, fingerprint: str = "0" * 64, name: str = MODEL
) -> HeadScores:
    """Scores of which head 9.0 is by far the most helpful and head 3.7 the most harmful.

    The same arguments give the same scores.
    """
    rng = np.random.default_rng([len(method), *language.encode()])
    values = rng.laplace(0.0005, 0.003, GRID.size)
    values[[HARMFUL, HELPFUL]] = -0.05, 0.08
    extra: dict[str, Any] = {"signed": METHODS[method].signed}
    if not METHODS[method].signed:
        values = np.abs(values)
    if METHODS[method].intervals:
        half_width = 0.006 if METHODS[method].signed else values / 2
        extra |= {
            "low": values - half_width,
            "high": values + half_width,
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
    options = {"name": method, "options": METHODS[method].recorded(METHODS[method].resolve({}))}
    spec = {
        "format": 1,
        "model": model,
        "task": task,
        "ablation": "zero",
        "method": options,
        "seed": 0,
    }
    method_row = METHODS[method]
    return HeadScores(
        GRID,
        language,
        method,
        values,
        method_row.estimand,
        method_row.unit,
        73728,
        33.0,
        spec=spec,
        **extra,
    )


def fill_cache(root: Path, fingerprint: str = "0" * 64) -> Path:
    """Write shapley, gradient and confidence scores for all languages, leave-one-out for five."""
    for method in ("shapley", "gradient", "confidence", "leave-one-out"):
        languages = LANGUAGES[:5] if method == "leave-one-out" else LANGUAGES
        for language in languages:
            scores = made_scores(language, method, fingerprint)
            Store(root).run(scores.spec).finish(
                scores, {"created": "2026-11-21T05:00:00+00:00", "versions": {}}
            )
    return root


@contextmanager
def while_cached(root: Path, record: Any, day: int = 22) -> Iterator[None]:
    """Add a record to a cache that other tests share, and remove it again.

    Args:
        root: The cache folder.
        record: Scores, a report or another record of the store.
        day: The day of November 2026 on which it was made.
    """
    stored_run = Store(root).run(record.spec)
    stored_run.finish(record, {"created": f"2026-11-{day}T05:00:00+00:00", "versions": {}})
    try:
        yield
    finally:
        for file in stored_run.folder.iterdir():
            file.unlink()
        stored_run.folder.rmdir()
