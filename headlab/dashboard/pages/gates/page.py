"""Gates that learn which heads to keep: over training, at each weight, and compared with other methods."""

from __future__ import annotations

import streamlit as st

from headlab.dashboard.frame import page
from headlab.dashboard.names import plain
from headlab.dashboard.pages.gates import figures, other_runs
from headlab.dashboard.pages.gates.form import draw_form
from headlab.dashboard.pages.gates.kept_roles import draw_roles
from headlab.dashboard.pages.gates.mask import draw_mask
from headlab.dashboard.panels import stored_gates
from headlab.dashboard.panels.reproduction import commands_again
from headlab.dashboard.panels.stored_gates import every_gate
from headlab.dashboard.widgets import (
    keep_known_choice,
    pick_result,
    show_how_made,
    show_skipped,
    show_table,
)
from headlab.training.l0_table import accuracy_name


def select(shelf):
    """Language, sweep and run to show."""
    languages = list(shelf.by_language)
    keep_known_choice("focus", "language", languages)
    left, right = st.columns(2)
    focus = left.selectbox("Language", languages, format_func=str, key="focus", bind="query-params")
    sweep = choose(shelf, focus)
    weights = sweep.weights
    keep_known_choice("weight", "λ", weights)
    middle = len(weights) // 2
    weight = right.selectbox("λ", weights, index=middle, key="weight", bind="query-params")
    return sweep, weights.index(weight)


def choose(shelf, focus):
    every = shelf.by_language[focus]
    lines = stored_gates.labels(every, shelf.weights)
    names = {sweep.runs[0].key: line for sweep, line in zip(every, lines, strict=True)}
    if len(every) == 1:
        st.caption(plain(*names.values()))
    by_key = {sweep.runs[0].key: sweep for sweep in every}
    return pick_result("Made as", by_key, names.__getitem__, stored_gates.sweep_key(focus, every))


def made(result):
    with st.expander("Every gate in numbers, and how it was made"):
        gates, table = result.record, every_gate(result.record)
        show_table(table, result.key)
        commands = commands_again("gates", result)
        show_how_made(
            stored_gates.facts(result), commands, table, f"gates-{gates.language}", result.key
        )


def body(choice, shelf):
    sweep, at = select(shelf)
    result = sweep.runs[at]
    figures.at_a_glance(result.record)
    for note in result.record.notes:
        st.markdown(f"- {plain(note)}")
    figures.training(result.record, result.key[:12])
    st.subheader(f"{accuracy_name(result.record).capitalize()} against heads kept")
    figures.draw(choice, sweep, at)
    st.subheader("Heads kept, by layer")
    figures.kept_where(sweep)
    st.subheader("Roles of the heads that stay")
    draw_roles(choice, sweep)
    other_runs.compare_runs(shelf, result)
    st.subheader("The mask")
    draw_mask(choice, result, figures.scores_for(choice, sweep), shelf.weights)
    made(result)


def draw_page() -> None:
    """Draw the page."""
    with page("gates") as choice:
        shelf = stored_gates.shelf(choice)
        stored_gates.begin(shelf.by_language)
        if shelf.by_language:
            body(choice, shelf)
        elif choice.languages:
            st.info(
                f"No gates of {plain(choice.model)} have been learned on task {plain(choice.task)} in these languages yet. "
                "**Start** learns them: a map that shows them open and close, the accuracy at each λ, and masks to export."
            )
        draw_form(choice, shelf)
        show_skipped(shelf.problems, "run")
