"""What heads do: the map by role, each head's roles with intervals, by relation, by language, after pruning."""

import streamlit as st

from headlab.ui import contrast, roles_form, roles_page, roles_store
from headlab.ui.experiments import facts
from headlab.ui.experiments_report import made_again
from headlab.ui.figures import how_made, show, skipped
from headlab.ui.names import head_from, head_key, language_title, plain
from headlab.ui.notices import keep_known, pick_one
from headlab.ui.presses import give
from headlab.ui.shell import page


def pick(head):
    give("head", head_key(head))


def select(shelf):
    """The widgets for language, report and head, which match a click."""
    languages = list(shelf.by_language)
    keep_known("focus", "language", languages)
    left, right = st.columns(2)
    focus = left.selectbox("Language", languages, format_func=str, key="focus", bind="query-params")
    kept = choose(shelf, focus)
    heads = [head_key(head) for head in kept.roles.grid.heads]
    keep_known("head", "head", heads)
    best = next((at for at, head in enumerate(kept.roles.grid.heads) if kept.roles.having(head)), 0)
    head = right.selectbox(
        "Head (stack.layer.head)", heads, index=best, key="head", bind="query-params"
    )
    return focus, kept, head_from(head)


def choose(shelf, focus):
    by_key = {kept.key: kept for kept in shelf.by_language[focus]}
    return pick_one(
        "Report",
        by_key,
        lambda k: roles_store.label(by_key[k], shelf.weights),
        f"roles-report-{focus}",
    )


def tables(kept):
    for name, place in zip(
        ("role-counts", "relations"), st.columns([1, 2], gap="large"), strict=True
    ):
        if table := kept.roles.table(name):
            with place:
                show(table, kept.key)
    if not kept.roles.syntax:
        st.info("These sentences have no trees, so no relation of syntax could be looked for.")


def made(kept):
    with st.expander("Every head in numbers, and how it was made"):
        for name in ("measures", "roles"):
            if table := kept.roles.table(name):
                show(table, kept.key)
        report = kept.result.record
        commands = made_again("report", kept.result)
        how_made(facts(kept.result), commands, report, f"roles-{kept.language}", kept.key)


def body(choice, shelf):
    left, right = st.columns([10, 11], gap="large")
    with left:
        focus, kept, head = select(shelf)
        roles_store.role_map(
            kept.roles, key="roles-map", title=language_title(focus), selected=head, on_click=pick
        )
    with right:
        roles_page.draw_card(kept.roles, head)
    st.caption(plain(roles_store.label(kept, shelf.weights)))
    for note in kept.result.record.notes:
        st.markdown(f"- {plain(note)}")
    roles_page.details(kept.roles, head, kept.key)
    st.subheader("Which roles, and which relations")
    tables(kept)
    st.subheader("Sentences")
    roles_page.draw_examples(kept.roles, head)
    contrast.of_roles(shelf, kept, head, pick)
    st.subheader("Roles by language")
    others = {name: rows[0].roles for name, rows in shelf.by_language.items()}
    roles_page.draw_languages(others | {focus: kept.roles}, focus)
    st.subheader("Roles of the heads that remain after pruning")
    roles_form.draw_remaining(choice, kept)
    made(kept)


with page("roles") as choice:
    shelf = roles_store.shelf(choice)
    if shelf.by_language:
        body(choice, shelf)
    elif choice.languages:
        st.info(
            f"There is no report yet on what the heads of {plain(choice.model)} do in these languages. **Start** makes "
            "one: the map of heads by role, tables to download, examples, and notes on what limits them."
        )
    roles_form.draw_form(choice, shelf)
    skipped(shelf.problems, "report")
