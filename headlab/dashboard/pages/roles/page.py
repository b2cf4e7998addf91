"""What heads do: the map by role, each head's roles with intervals, by relation, by language, after pruning."""

from __future__ import annotations

import streamlit as st

from headlab.dashboard.frame import page
from headlab.dashboard.names import head_from, head_key, language_title, plain
from headlab.dashboard.pages.roles import head_card, other_reports
from headlab.dashboard.pages.roles.form import draw_form
from headlab.dashboard.pages.roles.remaining import draw_remaining
from headlab.dashboard.panels import stored_roles
from headlab.dashboard.panels.reproduction import commands_again
from headlab.dashboard.panels.stored_reports import report_facts
from headlab.dashboard.widgets import (
    keep_known_choice,
    pick_result,
    set_widget,
    show_how_made,
    show_skipped,
    show_table,
)


def pick(head):
    set_widget("head", head_key(head))


def select(shelf):
    """The widgets for language, report and head, which match a click."""
    languages = list(shelf.by_language)
    keep_known_choice("focus", "language", languages)
    left, right = st.columns(2)
    focus = left.selectbox("Language", languages, format_func=str, key="focus", bind="query-params")
    kept = choose(shelf, focus)
    heads = [head_key(head) for head in kept.roles.grid.heads]
    keep_known_choice("head", "head", heads)
    best = next((at for at, head in enumerate(kept.roles.grid.heads) if kept.roles.having(head)), 0)
    head = right.selectbox(
        "Head (stack.layer.head)", heads, index=best, key="head", bind="query-params"
    )
    return focus, kept, head_from(head)


def choose(shelf, focus):
    by_key = {kept.key: kept for kept in shelf.by_language[focus]}
    return pick_result(
        "Report",
        by_key,
        lambda k: stored_roles.label(by_key[k], shelf.weights),
        f"roles-report-{focus}",
    )


def tables(kept):
    for name, place in zip(
        ("role-counts", "relations"), st.columns([1, 2], gap="large"), strict=True
    ):
        if table := kept.roles.table(name):
            with place:
                show_table(table, kept.key)
    if not kept.roles.syntax:
        st.info("These sentences have no trees, so no relation of syntax could be looked for.")


def made(kept):
    with st.expander("Every head in numbers, and how it was made"):
        for name in ("measures", "roles"):
            if table := kept.roles.table(name):
                show_table(table, kept.key)
        report = kept.result.record
        commands = commands_again("report", kept.result)
        show_how_made(
            report_facts(kept.result), commands, report, f"roles-{kept.language}", kept.key
        )


def body(choice, shelf):
    left, right = st.columns([10, 11], gap="large")
    with left:
        focus, kept, head = select(shelf)
        stored_roles.role_map(
            kept.roles, key="roles-map", title=language_title(focus), selected=head, on_click=pick
        )
    with right:
        head_card.draw_card(kept.roles, head)
    st.caption(plain(stored_roles.label(kept, shelf.weights)))
    for note in kept.result.record.notes:
        st.markdown(f"- {plain(note)}")
    head_card.details(kept.roles, head, kept.key)
    st.subheader("Which roles, and which relations")
    tables(kept)
    st.subheader("Sentences")
    head_card.draw_examples(kept.roles, head)
    other_reports.compare_reports(shelf, kept, head, pick)
    st.subheader("Roles by language")
    others = {name: rows[0].roles for name, rows in shelf.by_language.items()}
    head_card.draw_languages(others | {focus: kept.roles}, focus)
    st.subheader("Roles of the heads that remain after pruning")
    draw_remaining(choice, kept)
    made(kept)


def draw_page() -> None:
    """Draw the page."""
    with page("roles") as choice:
        shelf = stored_roles.shelf(choice)
        if shelf.by_language:
            body(choice, shelf)
        elif choice.languages:
            st.info(
                f"There is no report yet on what the heads of {plain(choice.model)} do in these languages. **Start** makes "
                "one: the map of heads by role, tables to download, examples, and notes on what limits them."
            )
        draw_form(choice, shelf)
        show_skipped(shelf.problems, "report")
