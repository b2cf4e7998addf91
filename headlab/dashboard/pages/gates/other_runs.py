"""Two runs of learned gates side by side: which heads each of them keeps."""

from __future__ import annotations

import numpy as np
import streamlit as st

from headlab.core import content_key
from headlab.dashboard.names import language_title, plain
from headlab.dashboard.panels import stored_gates
from headlab.dashboard.panels.contrast import HEADING, NOTHING, SHORT, bare_scores, compare, pick
from headlab.dashboard.panels.shelf import Shelf
from headlab.dashboard.panels.stored_gates import Sweep, run_words
from headlab.results import LearnedGates, Result


def compare_runs(shelf: Shelf[Sweep], shown: Result[LearnedGates]) -> None:
    """Two runs of gates on the same heads: how likely each gate is open at the end, and which heads both keep."""
    runs = {
        run.key: (run, f"{language_title(language)}: {run_words(run.record)} kept · {line}")
        for language, sweeps in shelf.by_language.items()
        for sweep, line in zip(sweeps, stored_gates.labels(sweeps, shelf.weights), strict=True)
        for run in sweep.runs
    }
    there = {
        key[:SHORT]: one
        for key, one in runs.items()
        if key != shown.key and one[0].record.grid == shown.record.grid
    }
    if not there:
        return
    st.subheader(HEADING)
    key = pick(
        {k: words for k, (_, words) in there.items()},
        "gates",
        f"gates-{shown.key[:SHORT]}",
        list(runs),
    )
    if key == NOTHING:
        return
    other, name = there[key][0].record, runs[shown.key][1]
    st.markdown(plain(kept_words(shown.record, other)))
    pair = [
        bare_scores(
            g.grid, g.language, "P(g ≠ 0)", np.where(g.gated, g.open_probability[-1], np.nan)
        )
        for g in (shown.record, other)
    ]
    titles = tuple(f"{language_title(g.language)}, λ {g.weight:g}" for g in (shown.record, other))
    told = f"Shown: {name}.", f"Other: {there[key][1]}."
    compare(
        pair[0],
        pair[1],
        (f"{titles[0]} (shown)", titles[1]),
        told,
        content_key(["gates", shown.key, key]),
        None,
        None,
    )


def kept_words(one: LearnedGates, other: LearnedGates) -> str:
    """How many heads two runs keep, each and both, and how many both would keep by chance; of heads gated in both."""
    gated = one.gated & other.gated
    first, second = int((one.kept & gated).sum()), int((other.kept & gated).sum())
    both, size = int((one.kept & other.kept & gated).sum()), int(gated.sum())
    return (
        f"They keep {first} and {second} of {size} heads with a gate; both keep {both}, and by chance it would be "
        f"{first * second / max(1, size):.1f} on average."
    )
