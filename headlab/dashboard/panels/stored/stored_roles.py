"""Requesting, finding and reading roles: jobs of a form, reports, remaining heads' roles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import streamlit as st

from headlab.core import (
    Head,
    HeadlabError,
    Report,
    Table,
    current_fingerprint,
    fingerprint_of,
    part,
)
from headlab.dashboard.frame import Choice, stored_results, task_languages
from headlab.dashboard.names import language_title, stored_count_text
from headlab.dashboard.panels.stored.shelf import (
    StoredByLanguage,
    current_weights,
    model_differences,
    stored_by_language,
)
from headlab.dashboard.panels.stored.stored_reports import creation_date_words, creation_seconds
from headlab.dashboard.widgets import Form, FormValues, draw_grid, reason_refused
from headlab.jobs.table import RolesJob
from headlab.pictures import look_of, role_map_of
from headlab.results import Result
from headlab.roles import Roles, read_roles
from headlab.roles.table import NAME, OPTIONS, resolve
from headlab.tasks import SPLITS, TREEBANK

# The map of heads by role: the head grid with a colour and a letter per role, and its legend.


def draw_role_map(
    roles: Roles,
    *,
    key: str,
    title: str,
    selected_head: Head | None,
    on_click: Callable[[Head], None] | None,
    chosen_group: str = "",
    on_group: Callable[[str], None] | None = None,
) -> None:
    """Draw every head's roles.

    Args:
        roles: The report.
        key: Widget key.
        title: Above the map.
        selected_head: The head that is marked.
        on_click: Called with a head that is clicked, or on which Enter is pressed, before the page
            runs.
        chosen_group: The group of roles whose heads stand out; empty for none.
        on_group: Called with a group that is pressed in the legend, or with an empty text where the
            chosen one is pressed; None where the legend cannot be pressed.
    """
    groups = list(role_map_of(roles).counts)
    data = role_map_data(roles, chosen_group)
    other_actions: dict[str, Callable[[Any], None]] = {}
    if on_group is not None:
        data["legendKey"] = f"{key}-legend"
        other_actions[data["legendKey"]] = partial(press_group, groups, on_group)
    draw_grid(
        "rolegrid",
        data,
        roles.grid,
        key,
        title,
        selected_head,
        on_click,
        other_actions=other_actions,
    )


def press_group(groups: Sequence[str], on_group: Callable[[str], None], number: Any) -> None:
    """The action of a press on the legend.

    Args:
        groups: Of roles, in the legend's order.
        on_group: As in `draw_role_map`.
        number: Of the pressed group, -1 for none, as the browser sends it.
    """
    if number == -1:
        on_group("")
    elif isinstance(number, int) and 0 <= number < len(groups):
        on_group(groups[number])


def role_map_data(roles: Roles, chosen_group: str = "") -> dict[str, Any]:
    """Data for the browser: groups of roles, and each head's groups, mark and tooltip.

    Groups have colours and counts.

    Args:
        roles: The report.
        chosen_group: The group of roles whose heads stand out; empty for none.
    """
    shown_map = role_map_of(roles)
    group_numbers = {group: number for number, group in enumerate(shown_map.counts)}
    roles_by_head: list[list[int] | None] = []
    for head_groups in shown_map.groups:
        if head_groups is None:
            roles_by_head.append(None)
        else:
            roles_by_head.append([group_numbers[group] for group in head_groups])
    return {
        "kinds": [
            {"name": name, **look_of(name)._asdict(), "heads": head_count}
            for name, head_count in shown_map.counts.items()
        ],
        "roles": roles_by_head,
        "shown": list(shown_map.marks),
        "tips": list(shown_map.tips),
        "chosen": group_numbers.get(chosen_group, -1),
        "legendKey": "",
    }


# The form for roles to find: sentences, thresholds, and the jobs that it makes.

ROLES_FORM = Form("_roles_plan", "roles-plan-")
TREEBANK_SOURCE: Literal["treebank"] = "treebank"
TASK_SOURCE: Literal["task"] = "task"
SENTENCE_SOURCES = {
    TREEBANK_SOURCE: "Gold trees, where there are any",
    TASK_SOURCE: "The texts of the task, without syntax",
}


@dataclass(frozen=True)
class RolesRequest:
    """What one job of the form would compute: roles on one kind of sentences.

    Attributes:
        choice: The model and the task.
        source: TREES or TEXTS.
        languages: Codes of the languages that have such sentences.
    """

    choice: Choice
    source: Literal["treebank", "task"]
    languages: tuple[str, ...]

    def job(self, values: FormValues) -> RolesJob:
        """The job, whose split and thresholds may not fit yet.

        Args:
            values: Of the widgets drawn so far, by their keys; the rest are at their defaults.
        """
        return RolesJob.model_construct(
            model=self.choice.model,
            task=self.choice.task if self.source == TASK_SOURCE else None,
            languages=list(self.languages),
            source=self.source,
            options=ROLES_FORM.read(OPTIONS, values),
            **ROLES_FORM.read(RolesJob.settings(), values),
        )

    @property
    def words(self) -> str:
        """The sentences, in words."""
        if self.source == TREEBANK_SOURCE:
            return "gold trees of their treebanks: every role can be found"
        return (
            f"the texts of task {self.choice.task}, without syntax: positions, rare words, separators "
            "and the like, but no subjects, objects or modifiers"
        )


def roles_requests(
    choice: Choice,
    languages: Sequence[str],
    treebanks: Sequence[str],
    task_languages: Sequence[str],
    source: str,
) -> list[RolesRequest]:
    """A job for the languages with a treebank and one for those without.

    None where there is no language.

    Args:
        choice: The model and the task.
        languages: Codes of the languages that are asked for; those with neither texts nor trees are
            left out.
        treebanks: Codes of the languages with a treebank.
        task_languages: Codes of the languages of the task.
        source: TREES, or TEXTS to use no treebank.
    """
    with_trees = [name for name in languages if name in treebanks and source == TREEBANK_SOURCE]
    with_texts = [name for name in languages if name in task_languages and name not in with_trees]
    requests = [
        RolesRequest(choice, TREEBANK_SOURCE, tuple(with_trees)),
        RolesRequest(choice, TASK_SOURCE, tuple(with_texts)),
    ]
    return [request for request in requests if request.languages]


def roles_job_refusal(job: RolesJob) -> str:
    """Why a form's job cannot be started; empty if it can."""
    unknown_split = "" if job.split in SPLITS else f"There is no split {job.split}."
    return reason_refused(resolve, job.options) or unknown_split


# Stored roles reports of a model, by language, best first.

FOLDER_NAME_CHARACTERS = 12
"""Characters of a folder's name, enough to tell reports apart."""


@dataclass(frozen=True)
class StoredRoles:
    """A readable report on one language, and the result it is from."""

    result: Result[Report]
    roles: Roles

    @property
    def key(self) -> str:
        """The report's key."""
        return self.result.key

    @property
    def language(self) -> str:
        """Language of its sentences."""
        return str(part(self.result.record.spec, "task", "language"))

    @property
    def source(self) -> str:
        """Where its sentences are from: "treebank" or a task's name."""
        return str(part(self.result.record.spec, "task", "name"))


def stored_roles_reports(choice: Choice) -> StoredByLanguage[StoredRoles]:
    """Every roles report of the chosen model, whatever its sentences are of.

    Roles are the model's. Of equally good reports those on the chosen task come first.
    """
    listing = stored_results(Report)
    weights_fingerprint = current_weights(choice.model)
    offered_languages = set(task_languages(choice.task))
    reports_by_language: dict[str, list[StoredRoles]] = {}
    problems = [*listing.problems]
    for result in listing.results:
        if not _is_roles_report_of(result.record, choice.model):
            continue
        language = str(part(result.record.spec, "task", "language"))
        if language in offered_languages and language not in choice.languages:
            continue
        roles = _read_roles(result.key, str(result.meta.get("created")), result)
        if isinstance(roles, str):
            problems.append(roles)
        else:
            reports_by_language.setdefault(language, []).append(StoredRoles(result, roles))
    rank = partial(_rank, task=choice.task, weights=weights_fingerprint)
    for language_reports in reports_by_language.values():
        language_reports.sort(key=rank, reverse=True)
    return stored_by_language(choice, reports_by_language, problems, weights_fingerprint)


def _is_roles_report_of(report: Report, model: str) -> bool:
    return report.name == NAME and part(report.spec, "model", "name") == model


@st.cache_resource(max_entries=64, show_spinner=False)
def _read_roles(key: str, creation_date: str, _result: Result[Report]) -> Roles | str:
    """The roles in a stored report, or a sentence on why they cannot be shown.

    Streamlit caches them by the key and the date of the result; it does not hash an argument with
    an underscore.
    """
    try:
        return read_roles(_result.record)
    except HeadlabError as error:
        folder = f"{_result.folder.name[:FOLDER_NAME_CHARACTERS]}…"
        return (
            f"skipped: the report of roles in {folder} cannot be shown ({error}); delete its folder, "
            "then make it again"
        )


def _rank(
    stored_roles: StoredRoles, task: str, weights: str | None
) -> tuple[bool, bool, bool, bool, float, str]:
    """What stored reports are ordered by, the best last.

    Args:
        stored_roles: A report.
        task: Name of the chosen task.
        weights: Fingerprint of the chosen model's weights, None if unknown.
    """
    report = stored_roles.result.record
    has_current_weights = True
    if weights is not None:
        has_current_weights = fingerprint_of(report.spec) == current_fingerprint(weights)
    return (
        has_current_weights,
        stored_roles.roles.has_syntax,
        stored_roles.source in (TREEBANK, task),
        not part(report.spec, "model", "dtype"),
        creation_seconds(stored_roles.result),
        stored_roles.key,
    )


def roles_report_label(stored_roles: StoredRoles, weights: str | None = None) -> str:
    """A report in one line: date, language, sentences, and weights if not the model's.

    Sentences are told by number and source.
    """
    report = stored_roles.result.record
    source_text = "treebank"
    if stored_roles.source != TREEBANK:
        source_text = f"task {stored_roles.source}, without syntax"
    size = stored_count_text(part(report.spec, "task", "size"))
    split = part(report.spec, "task", "split") or "?"
    fingerprint = str(part(report.spec, "model", "fingerprint") or "")
    dtype = part(report.spec, "model", "dtype")
    parts = [
        creation_date_words(stored_roles.result),
        language_title(stored_roles.language),
        f"{size} sentences of {split} ({source_text})",
        *model_differences(fingerprint, weights, dtype),
    ]
    return " · ".join(parts)


def role_counts_by_size(table: Table) -> tuple[list[int], dict[str, list[float]]]:
    """How many heads with each role remain, by how many heads remain in all.

    Args:
        table: With the columns "heads left", "role" and "heads".

    Returns:
        The numbers of remaining heads, and {role: heads with it at each of these}.
    """
    sizes_column = table.column("heads left")
    roles = table.column("role")
    sizes = list(dict.fromkeys(sizes_column))
    counts = {role: [0.0] * len(sizes) for role in roles}
    for size, role, count in zip(sizes_column, roles, table.column("heads"), strict=True):
        counts[role][sizes.index(size)] = count
    return sizes, counts
