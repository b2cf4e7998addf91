"""What heads do: roles by head with intervals, by relation, by language, after pruning."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import streamlit as st

from headlab.core import Head, HeadGrid
from headlab.dashboard.frame import Choice, page, scores_of
from headlab.dashboard.names import (
    count_words,
    head_number,
    language_title,
    page_link,
    plain,
    with_minus_signs,
)
from headlab.dashboard.pages.roles import other_reports
from headlab.dashboard.pages.roles.across_languages import draw_languages
from headlab.dashboard.pages.roles.form import draw_form
from headlab.dashboard.pages.roles.remaining import draw_remaining
from headlab.dashboard.panels.heads import (
    HEAD_PARAM,
    draw_head_actions,
    draw_role_card,
    draw_role_details,
    draw_role_examples,
    effect_of_role,
    heads_with,
    pick_head,
)
from headlab.dashboard.panels.stored import (
    StoredByLanguage,
    StoredRoles,
    commands_again,
    draw_role_map,
    report_facts,
    roles_report_label,
    stored_roles_reports,
)
from headlab.dashboard.widgets import (
    PageState,
    button,
    keep_known_choice,
    pick_result,
    set_widget,
    show_how_made,
    show_skipped,
    show_table,
)
from headlab.roles import Roles

ROLES_MAP = "roles-map"
"""Widget key of the map of heads."""
ROLE_PARAM = "role"
"""Parameter of the link: the group of roles whose heads stand out."""


@dataclass
class ChosenRole(PageState):
    """The group of roles whose heads stand out in one session.

    Attributes:
        group: Its name; empty for none.
        unknown_group: The group of a link that no head of the report has; empty for none.
    """

    key = "_roles"
    group: str = ""
    unknown_group: str = ""


def select_head(grid: HeadGrid, head: Head) -> None:
    """Show this head: the action of a click."""
    set_widget(HEAD_PARAM, head_number(head, grid))


def select_role(group: str) -> None:
    """Let the heads of a group of roles stand out, or of none: the action of a click."""
    chosen_role = ChosenRole.of_session()
    chosen_role.group = group
    chosen_role.unknown_group = ""


def chosen_group_of(roles: Roles) -> str:
    """The group of roles whose heads stand out; empty for none, or where no head has it.

    The link is read and written. A group that this report lacks stays chosen for the next one.

    Args:
        roles: The report that is shown.
    """
    chosen_role = ChosenRole.of_session()
    linked_group = st.query_params.get(ROLE_PARAM, "")
    # Only on arrival, as a widget's state is dropped with its page: later the browser may still
    # send the link of an earlier press.
    if ROLES_MAP not in st.session_state:
        select_role(linked_group or chosen_role.group)
        if linked_group and not roles.counts.get(linked_group):
            chosen_role.unknown_group = linked_group
    group = chosen_role.group if roles.counts.get(chosen_role.group) else ""
    if chosen_role.unknown_group and not group:
        st.warning(
            plain(f"No head of this report has the role {chosen_role.unknown_group[:80]!r}.")
        )
    # Writing the link replaces all of it by what it was when the request was sent, so it is
    # written only if it changes.
    if not group:
        st.query_params.pop(ROLE_PARAM, None)
    elif group != linked_group:
        st.query_params[ROLE_PARAM] = group
    return group


def pick_report_and_head(
    stored_reports: StoredByLanguage[StoredRoles],
) -> tuple[str, StoredRoles, str, Head]:
    """Draw the widgets for language, report and head, which match a click.

    Returns:
        Language, report, the group of roles whose heads stand out (empty for none), and the head.
    """
    languages = list(stored_reports.by_language)
    keep_known_choice("focus", "language", languages)
    language_place, head_place = st.columns(2)
    language = language_place.selectbox(
        "Language", languages, format_func=str, key="focus", bind="query-params"
    )
    report = pick_report(stored_reports, language)
    heads = report.roles.grid.heads
    indices_with_roles = (index for index, head in enumerate(heads) if report.roles.roles_of(head))
    with head_place:
        head = pick_head(report.roles.grid, heads[next(indices_with_roles, 0)])
    return language, report, chosen_group_of(report.roles), head


def draw_chosen_role(choice: Choice, report: StoredRoles, group: str) -> None:
    """The heads of one group of roles, and what can be done with them.

    Args:
        choice: The sidebar's.
        report: The report.
        group: Of roles, which some heads have.
    """
    heads = heads_with(report.roles, group)
    grid = report.roles.grid
    st.subheader(plain(f"{count_words(len(heads), 'head')}: {group}"))
    st.markdown(plain(", ".join(head_number(head, grid) for head in heads)))
    effect = effect_of_role(report, group, choice.task)
    if effect is not None:
        others = "it" if len(heads) == 1 else "them"
        st.markdown(
            f"**Without {others}, {plain(choice.task)} {effect.accuracies_text}** "
            f"({effect.size:,} examples)."
        )
    draw_head_actions(
        choice,
        scores_of(choice),
        heads,
        report.result.record.spec,
        {"role": group, "languages": [report.language]},
        key="role-actions",
        colour_language=report.language if report.language in choice.languages else "",
    )
    button(
        "All roles",
        key="role-none",
        on_press=select_role,
        args=("",),
        kind="tertiary",
        icon="close",
    )


def pick_report(stored_reports: StoredByLanguage[StoredRoles], language: str) -> StoredRoles:
    """The report to show of those in a language."""
    report_by_key = {report.key: report for report in stored_reports.by_language[language]}
    return pick_result(
        "Report",
        report_by_key,
        lambda key: roles_report_label(report_by_key[key], stored_reports.weights),
        f"roles-report-{language}",
    )


def draw_tables(report: StoredRoles) -> None:
    """How many heads have each role, and each relation of syntax."""
    names = ("role-counts", "relations")
    for name, column in zip(names, st.columns([2, 3], gap="medium"), strict=True):
        table = report.roles.table(name)
        if table:
            with column:
                show_table(table, report.key)
    if not report.roles.has_syntax:
        st.info("These sentences have no trees, so no relation of syntax could be looked for.")


def draw_how_made(report: StoredRoles) -> None:
    """Every head in numbers, and how the report was made."""
    with st.expander("Every head in numbers, and how it was made"):
        for name in ("measures", "roles"):
            table = report.roles.table(name)
            if table:
                show_table(table, report.key)
        facts = report_facts(report.result)
        commands = commands_again("report", report.result)
        name = f"roles-{report.language}"
        show_how_made(facts, commands, report.result.record, name, report.key)


def draw_roles(choice: Choice, stored_reports: StoredByLanguage[StoredRoles]) -> None:
    """The page where there are reports of roles.

    Args:
        choice: The sidebar's.
        stored_reports: Its stored reports.
    """
    with st.container(key="map-and-card"):
        map_column, card_column = st.columns([10, 11], gap="large")
    with map_column:
        language, report, group, head = pick_report_and_head(stored_reports)
        select = partial(select_head, report.roles.grid)
        draw_role_map(
            report.roles,
            key=ROLES_MAP,
            title=language_title(language),
            selected_head=head,
            on_click=select,
            chosen_group=group,
            on_group=select_role,
        )
    with card_column:
        if group:
            draw_chosen_role(choice, report, group)
        draw_role_card(report.roles, head)
        page_link("head", "All that is known of it")
    st.caption(plain(roles_report_label(report, stored_reports.weights)))
    if report.result.record.notes:
        with st.expander("What the numbers rest on", icon=":material/info:"):
            for note in report.result.record.notes:
                st.markdown(f"- {plain(with_minus_signs(note))}")
    draw_role_details(report.roles, head, report.key)
    st.subheader("Which roles, and which relations")
    draw_tables(report)
    st.subheader("Sentences")
    draw_role_examples(report.roles, head)
    other_reports.compare_reports(stored_reports, report, head, select)
    st.subheader("Roles by language")
    roles_by_language = {
        name: reports[0].roles for name, reports in stored_reports.by_language.items()
    }
    draw_languages(roles_by_language | {language: report.roles}, language)
    st.subheader("Roles of the heads that remain after pruning")
    draw_remaining(choice, report)
    draw_how_made(report)


def draw_page() -> None:
    """Draw the page."""
    with page("roles") as choice:
        stored_reports = stored_roles_reports(choice)
        if stored_reports.by_language:
            draw_roles(choice, stored_reports)
        elif choice.languages:
            st.info(
                f"There is no report yet on what the heads of {plain(choice.model)} do in these "
                "languages. **Start** makes one: the map of heads by role, tables to download, "
                "examples, and notes on what limits them."
            )
        draw_form(choice, stored_reports)
        show_skipped(stored_reports.problems, "report")
