"""Gates that learn which heads to keep: over training, at each weight, and compared with other methods."""

import streamlit as st

from headlab.training.l0_table import accuracy_name
from headlab.ui import contrast, gates_figures, gates_page, gates_store
from headlab.ui.experiments_report import made_again
from headlab.ui.figures import how_made, show, skipped
from headlab.ui.gates_store import every_gate
from headlab.ui.names import plain
from headlab.ui.notices import keep_known, pick_one
from headlab.ui.shell import page


def select(shelf):
    """Language, sweep and run to show."""
    languages = list(shelf.by_language)
    keep_known("focus", "language", languages)
    left, right = st.columns(2)
    focus = left.selectbox("Language", languages, format_func=str, key="focus", bind="query-params")
    sweep = choose(shelf, focus)
    weights = sweep.weights
    keep_known("weight", "λ", weights)
    middle = len(weights) // 2
    weight = right.selectbox("λ", weights, index=middle, key="weight", bind="query-params")
    return sweep, weights.index(weight)


def choose(shelf, focus):
    every = shelf.by_language[focus]
    lines = gates_store.labels(every, shelf.weights)
    names = {sweep.runs[0].key: line for sweep, line in zip(every, lines, strict=True)}
    if len(every) == 1:
        st.caption(plain(*names.values()))
    by_key = {sweep.runs[0].key: sweep for sweep in every}
    return pick_one("Made as", by_key, names.__getitem__, gates_store.sweep_key(focus, every))


def made(result):
    with st.expander("Every gate in numbers, and how it was made"):
        gates, table = result.record, every_gate(result.record)
        show(table, result.key)
        commands = made_again("gates", result)
        how_made(gates_store.facts(result), commands, table, f"gates-{gates.language}", result.key)


def body(choice, shelf):
    sweep, at = select(shelf)
    result = sweep.runs[at]
    gates_figures.at_a_glance(result.record)
    for note in result.record.notes:
        st.markdown(f"- {plain(note)}")
    gates_figures.training(result.record, result.key[:12])
    st.subheader(f"{accuracy_name(result.record).capitalize()} against heads kept")
    gates_figures.draw(choice, sweep, at)
    st.subheader("Heads kept, by layer")
    gates_figures.kept_where(sweep)
    st.subheader("Roles of the heads that stay")
    gates_page.draw_roles(choice, sweep)
    contrast.of_gates(shelf, result)
    st.subheader("The mask")
    gates_page.draw_mask(choice, result, gates_figures.scores_for(choice, sweep), shelf.weights)
    made(result)


with page("gates") as choice:
    shelf = gates_store.shelf(choice)
    gates_store.begin(shelf.by_language)
    if shelf.by_language:
        body(choice, shelf)
    elif choice.languages:
        st.info(
            f"No gates of {plain(choice.model)} have been learned on task {plain(choice.task)} in these languages yet. "
            "**Start** learns them: a map that shows them open and close, the accuracy at each λ, and masks to export."
        )
    gates_page.draw_form(choice, shelf)
    skipped(shelf.problems, "run")
