"""Gates that learn which heads to keep, compared with other methods.

They are shown over training and at each weight.
"""

from __future__ import annotations

import streamlit as st

from headlab.dashboard.frame import Choice, page
from headlab.dashboard.names import plain, with_minus_signs
from headlab.dashboard.pages.gates import figures, other_runs
from headlab.dashboard.pages.gates.form import draw_form
from headlab.dashboard.pages.gates.kept_roles import draw_roles
from headlab.dashboard.pages.gates.mask import draw_mask
from headlab.dashboard.panels.stored import (
    StoredByLanguage,
    Sweep,
    commands_again,
    head_gates_table,
    open_requested_run,
    run_facts,
    stored_sweeps,
    sweep_labels,
    sweep_widget_key,
)
from headlab.dashboard.widgets import (
    keep_known_choice,
    pick_result,
    show_how_made,
    show_skipped,
    show_table,
)
from headlab.results import LearnedGates, Result


def pick_run(stored_runs: StoredByLanguage[Sweep]) -> tuple[Sweep, int]:
    """Draw the widgets for language, sweep and weight.

    Returns:
        The sweep, and the position of the run in it.
    """
    languages = list(stored_runs.by_language)
    keep_known_choice("focus", "language", languages)
    language_place, weight_place = st.columns(2)
    language = language_place.selectbox(
        "Language", languages, format_func=str, key="focus", bind="query-params"
    )
    sweep = pick_sweep(stored_runs, language)
    weights = sweep.weights
    keep_known_choice("weight", "λ", weights)
    middle = len(weights) // 2
    weight = weight_place.selectbox("λ", weights, index=middle, key="weight", bind="query-params")
    return sweep, weights.index(weight)


def pick_sweep(stored_runs: StoredByLanguage[Sweep], language: str) -> Sweep:
    """The sweep to show of those in a language; what one is on is said where there is no choice."""
    sweeps = stored_runs.by_language[language]
    labels = sweep_labels(sweeps, stored_runs.weights)
    label_by_key = {sweep.runs[0].key: label for sweep, label in zip(sweeps, labels, strict=True)}
    if len(sweeps) == 1:
        st.caption(plain(labels[0]))
    sweep_by_key = {sweep.runs[0].key: sweep for sweep in sweeps}
    widget_key = sweep_widget_key(language, sweeps)
    return pick_result("Made as", sweep_by_key, label_by_key.__getitem__, widget_key)


def draw_how_made(result: Result[LearnedGates]) -> None:
    """Every gate of a run in numbers, and how the run was made."""
    with st.expander("Every gate in numbers, and how it was made"):
        gates = result.record
        table = head_gates_table(gates)
        show_table(table, result.key)
        commands = commands_again("gates", result)
        facts = run_facts(result)
        show_how_made(facts, commands, table, f"gates-{gates.language}", result.key)


def draw_gates(choice: Choice, stored_runs: StoredByLanguage[Sweep]) -> None:
    """The page where there are learned gates.

    Args:
        choice: The sidebar's.
        stored_runs: Its stored gates.
    """
    sweep, run_number = pick_run(stored_runs)
    result = sweep.runs[run_number]
    figures.draw_key_figures(result.record)
    for note in result.record.notes:
        st.markdown(f"- {plain(with_minus_signs(note))}")
    figures.draw_training(result.record, result.key[:12])
    figures.draw_trade_off(choice, sweep, run_number)
    st.subheader("Heads kept, by layer")
    figures.draw_heads_kept_by_layer(sweep)
    st.subheader("Roles of the heads that stay")
    draw_roles(choice, sweep)
    other_runs.compare_runs(stored_runs, result)
    st.subheader("The mask")
    draw_mask(choice, result, figures.scores_by_method(choice, sweep), stored_runs.weights)
    draw_how_made(result)


def draw_page() -> None:
    """Draw the page."""
    with page("gates") as choice:
        stored_runs = stored_sweeps(choice)
        open_requested_run(stored_runs.by_language)
        if stored_runs.by_language:
            draw_gates(choice, stored_runs)
        elif choice.languages:
            subject = f"{plain(choice.model)} have been learned on task {plain(choice.task)}"
            st.info(
                f"No gates of {subject} in these languages yet. **Start** learns them: a map that "
                "shows them open and close, the accuracy at each λ, and masks to export."
            )
        draw_form(choice, stored_runs)
        show_skipped(stored_runs.problems, "run")
