"""Reports of every experiment on a tiny model, for the tests of figures and pages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headlab.core import Report
from headlab.results import Store
from headlab.studies.run import Pieces, run_experiment
from headlab.tasks import Task
from support.planted_scores import plant_scores
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

LANGUAGES = ("xx", "yy", "zz")
HARMFUL = {"xx": (0, 1, 2), "yy": (0, 4), "zz": ()}
OPTIONS: Mapping[str, dict[str, Any]] = {
    "agreement": {},
    "targeted": {"runs": 2},
    "transfer": {"source": "xx"},
    "iterative": {"orderings": "random,shapley,gradient", "points": 4, "runs": 2},
    "methods": {"methods": "shapley,gradient", "points": 4, "runs": 2, "top": 6},
    "heads": {"top": 6},
    "separators": {"top": 6},
    "gap": {},
}


def made_reports(root: Path) -> dict[str, Report]:
    """Reports by experiment.

    By their intervals, head 0 harms in xx and yy; its values in zz are positive.
    """
    task = Task("tiny", tiny_task().labels, LANGUAGES, False, tiny_task().read)
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    pieces = Pieces(model, task, Store(root), dev_size=8, test_size=10)
    rng = np.random.default_rng(3)
    shared_values = rng.normal(0, 0.2, 12)
    for language in LANGUAGES:
        values = shared_values + rng.normal(0, 0.1, 12)
        values[0] = 0.8 if language == "zz" else -0.5
        harmful = list(HARMFUL[language])
        values[harmful] = -np.abs(values[harmful])
        first_half = values + rng.normal(0, 0.02, 12)
        second_half = values - rng.normal(0, 0.02, 12)
        values_by_half = np.stack([first_half, second_half])
        plant_scores(pieces, language, values, HARMFUL[language], halves=values_by_half)
        plant_scores(pieces, language, values[::-1], method="leave-one-out")
    return {
        name: run_experiment(name, pieces, options=options) for name, options in OPTIONS.items()
    }
