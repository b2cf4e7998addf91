"""What is cached and what is missing, as tables and as the command that computes the rest."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from headlab.methods.table import Method
from headlab.scores import HeadScores
from headlab.ui.heads_table import shown_unit
from headlab.ui.names import language_title
from headlab.ui.results import Found, spec_of


def by_method(methods: Mapping[str, Method], found: Mapping[str, Found], languages: Sequence[str]) -> pd.DataFrame:
    """One row per method: for how many of the chosen languages it is cached, and which it lacks."""
    rows = [
        {
            "Method": method.title,
            "Key": key,
            "Cached": f"{len(found[key].scores)} of {len(languages)}",
            "Missing": _listed(found[key].missing, len(languages)),
            "Intervals": "yes" if method.intervals else "no",
            "Cost": method.cost,
            "From": method.paper,
        }
        for key, method in methods.items()
    ]
    return pd.DataFrame(rows)


def _listed(missing: Sequence[str], all_of: int) -> str:
    if not missing:
        return "none"
    return "all" if len(missing) == all_of else ", ".join(missing)


def by_language(found: Found, languages: Sequence[str]) -> pd.DataFrame:
    """One row per chosen language: what its result rests on, or that it is missing.

    The half-width is in the unit shown (accuracies in points); empty where a method has none.
    """
    return pd.DataFrame([_row(language, found.scores.get(language)) for language in languages]).dropna(
        axis="columns", how="all"
    )


def _row(language: str, s: HeadScores | None) -> dict[str, object]:
    if s is None:
        return {"Language": language_title(language), "Result": "missing"}
    half, samples = s.half_width, s.samples
    return {
        "Language": language_title(language),
        "Result": "cached",
        "Examples": spec_of(s, "task", "size"),
        "Samples a head": None if samples is None else int(np.median(samples)),
        "Median half-width": None if half is None else shown_unit(s.unit)[0] * float(np.median(half)),
        "Helpful heads": None if half is None else int(s.helpful.sum()),
        "Harmful heads": None if half is None else int(s.harmful.sum()),
        "Computed in (s)": round(s.seconds, 1),
    }


def command(model: str, task: str, languages: Sequence[str], method: str) -> str:
    """The command line that computes these results."""
    words = [
        "headlab",
        "score",
        "--model",
        model,
        "--task",
        task,
        "--languages",
        ",".join(languages),
        "--method",
        method,
    ]
    return shlex.join(words)
