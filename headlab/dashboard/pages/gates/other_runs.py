"""Two runs of learned gates side by side: which heads each of them keeps."""

from __future__ import annotations

import numpy as np
import streamlit as st

from headlab.core import content_key
from headlab.dashboard.names import language_title, plain
from headlab.dashboard.panels.heads import (
    COMPARED_KEY_LENGTH,
    COMPARISON_HEADING,
    NO_COMPARISON,
    draw_comparison,
    pick_compared_result,
    unitless_scores,
)
from headlab.dashboard.panels.stored import StoredByLanguage, Sweep, run_words, sweep_labels
from headlab.results import HeadScores, LearnedGates, Result


def compare_runs(stored_runs: StoredByLanguage[Sweep], shown_run: Result[LearnedGates]) -> None:
    """Two runs of gates on the same heads, of which the second is chosen here.

    Shown are how likely each gate is open at the end, and which heads both keep.

    Args:
        stored_runs: The stored runs.
        shown_run: The one that the page shows.
    """
    label_by_key = _labels_of_runs(stored_runs)
    comparable_runs = {}
    for sweeps in stored_runs.by_language.values():
        for sweep in sweeps:
            for run in sweep.runs:
                if run.key != shown_run.key and run.record.grid == shown_run.record.grid:
                    comparable_runs[run.key[:COMPARED_KEY_LENGTH]] = run
    if not comparable_runs:
        return
    st.subheader(COMPARISON_HEADING)
    key = pick_compared_result(
        {short_key: label_by_key[run.key] for short_key, run in comparable_runs.items()},
        "gates",
        f"gates-{shown_run.key[:COMPARED_KEY_LENGTH]}",
        list(label_by_key),
    )
    if key == NO_COMPARISON:
        return
    other_run = comparable_runs[key]
    st.markdown(plain(shared_heads_sentence(shown_run.record, other_run.record)))
    captions = (
        f"Shown: {label_by_key[shown_run.key]}.",
        f"Other: {label_by_key[other_run.key]}.",
    )
    draw_comparison(
        _open_probabilities(shown_run.record),
        _open_probabilities(other_run.record),
        (f"{_title(shown_run.record)} (shown)", _title(other_run.record)),
        captions,
        content_key(["gates", shown_run.key, key]),
        None,
        None,
    )


def _labels_of_runs(stored_runs: StoredByLanguage[Sweep]) -> dict[str, str]:
    """What each run is called in the list of runs, by its key."""
    label_by_key = {}
    for language, sweeps in stored_runs.by_language.items():
        label_texts = sweep_labels(sweeps, stored_runs.weights)
        for sweep, sweep_label in zip(sweeps, label_texts, strict=True):
            for run in sweep.runs:
                kept = f"{run_words(run.record)} kept"
                label_by_key[run.key] = f"{language_title(language)}: {kept} · {sweep_label}"
    return label_by_key


def _open_probabilities(gates: LearnedGates) -> HeadScores:
    """How likely each gate is open at the end, as scores; NaN for a head without a gate."""
    probabilities = np.where(gates.has_gate, gates.open_probability[-1], np.nan)
    return unitless_scores(gates.grid, gates.language, "P(g ≠ 0)", probabilities)


def _title(gates: LearnedGates) -> str:
    return f"{language_title(gates.language)}, λ {gates.weight:g}"


def shared_heads_sentence(first_gates: LearnedGates, second_gates: LearnedGates) -> str:
    """How many heads two runs keep, each and both, and how many both would keep by chance.

    Only heads with a gate in both runs are counted.
    """
    gated_in_both = first_gates.has_gate & second_gates.has_gate
    gated_count = int(gated_in_both.sum())
    first_kept = int((first_gates.kept & gated_in_both).sum())
    second_kept = int((second_gates.kept & gated_in_both).sum())
    kept_by_both = int((first_gates.kept & second_gates.kept & gated_in_both).sum())
    by_chance = first_kept * second_kept / max(1, gated_count)
    return (
        f"They keep {first_kept} and {second_kept} of {gated_count} heads with a gate; both keep "
        f"{kept_by_both}, and by chance it would be {by_chance:.1f} on average."
    )
