"""Whether the chosen model can do the chosen task at all, and what to choose where it cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import PurePath

import streamlit as st

from headlab.core import HUB_ID, HeadlabError
from headlab.dashboard.frame import (
    Choice,
    embedded_models,
    known_models,
    known_task,
    matching_scores,
    other_choices,
    show_choice,
    stored_results,
    stored_specs,
    supervisor,
    use_model,
    use_task,
    wait_for_result,
    was_named_here,
    worker_client,
)
from headlab.dashboard.names import count_words, page_link, plain
from headlab.dashboard.widgets import Button, button_row
from headlab.results import HeadScores
from headlab.tasks import Task, columns_by_name, first_names_of, task_names
from headlab.worker import Client, Finding

TASK_FINDINGS = ("Labels", "Answers")
"""Findings about a model's files that tell whether it can do a task."""
FRESH_SECONDS = 60.0
"""Findings that are older are asked for again, as files may have changed."""
MAX_TASKS = 4
"""Tasks that are offered at most."""
MAX_ASKED = 12
"""Models, or tasks, that are tried in search of one that fits."""


def misfit_reason(choice: Choice) -> str:
    """Why the model cannot do the task, in a sentence; empty if it can, as far as is known.

    Nothing is asked of a model that has scores on the task, nor of one on the hub that nobody
    brought here, whose files would have to be fetched.
    """
    chosen_task = known_task(choice.task)
    if chosen_task is None or not _may_be_asked(choice.model):
        return ""
    if matching_scores(stored_results(HeadScores).results, choice.model, choice.task):
        return ""
    findings = _findings(choice.model, choice.task, choice.label_map)
    for finding in findings:
        if finding.what in TASK_FINDINGS and finding.ok is False:
            classes = [name for other in findings for name in other.classes]
            return _misfit_sentence(choice.model, chosen_task, classes, finding)
    return ""


def can_do(model: str, task: str) -> bool:
    """Whether a model can do a task, as far as its files tell; False if it is not found."""
    try:
        findings = _findings(model, task, None, raises=True)
    except HeadlabError:
        return False
    return all(finding.ok is not False for finding in findings)


def _misfit_sentence(model: str, task: Task, classes: Sequence[str], finding: Finding) -> str:
    name = _short_name(model)
    if task.likelihood:
        return f"{name} does not continue texts, so it cannot do the task {task.name}."
    if not classes:
        return f"{name} is no classifier, so it cannot do the task {task.name}, which has labels."
    if columns_by_name(task.labels, classes) is not None:
        return finding.words
    return (
        f"{name} cannot do the task {task.name}: its {len(classes):,} classes "
        f"({first_names_of(classes)}) do not have the names of the task's "
        f"{count_words(len(task.labels), 'label')} ({first_names_of(task.labels)})."
    )


def _short_name(model: str) -> str:
    """A model's name; of a folder its last part."""
    return model if HUB_ID.fullmatch(model) else PurePath(model).name or model


def _may_be_asked(model: str) -> bool:
    return supervisor().is_connected and (not HUB_ID.fullmatch(model) or was_named_here(model))


def _findings(
    model: str, task: str, label_map: Mapping[str, str] | None, *, raises: bool = False
) -> Sequence[Finding]:
    """What the worker finds in a model's files; nothing if it does not answer.

    Args:
        model: Name of the model.
        task: Name of the task.
        label_map: {label: class of the model}, where it is stated.
        raises: Whether an error of the worker is raised instead.
    """
    try:
        return _asked_findings(worker_client(), model, task, tuple((label_map or {}).items()))
    except HeadlabError:
        if raises:
            raise
        return []


@st.cache_resource(max_entries=64, ttl=FRESH_SECONDS, show_spinner=False)
def _asked_findings(
    _client: Client, model: str, task: str, label_map: tuple[tuple[str, str], ...]
) -> tuple[Finding, ...]:
    return tuple(wait_for_result(lambda: _client.check_model(model, task, dict(label_map) or None)))


def draw_misfit(choice: Choice, reason: str) -> None:
    """Say that the model cannot do the task, with buttons to a task and a model that fit.

    Args:
        choice: The sidebar's.
        reason: Why it cannot, in a sentence.
    """
    with st.container(border=True, key="misfit"):
        st.markdown(f"**{plain(reason)}**")
        buttons = [*_fitting_task_buttons(choice), *_fitting_model_buttons(choice)]
        if buttons:
            button_row(*buttons)
        page_link("own", "Bring another model, or data of your own")


def _fitting_task_buttons(choice: Choice) -> list[Button]:
    """The buttons that choose tasks that the model can do.

    They are those on which it has scores, the most first, or else the first one that fits.
    """
    choices_with_scores = []
    for other_choice in other_choices(choice):
        if other_choice.choice.model == choice.model and other_choice.page == "overview":
            choices_with_scores.append(other_choice.choice)
    if choices_with_scores:
        score_counts = Counter(
            str(result.record.spec.task.name)
            for result in matching_scores(stored_results(HeadScores).results, choice.model)
        )
        choices_with_scores.sort(key=lambda other: -score_counts[other.task])
        return [
            _task_button(other.task, partial(show_choice, other), number)
            for number, other in enumerate(choices_with_scores[:MAX_TASKS])
        ]
    other_tasks = [name for name in task_names() if name != choice.task and known_task(name)]
    for name in other_tasks[:MAX_ASKED]:
        if can_do(choice.model, name):
            return [_task_button(name, partial(use_task, name))]
    return []


def _task_button(task: str, on_press: partial[None], number: int = 0) -> Button:
    """The button of one task; the first one is the primary one."""
    if number:
        return Button(f"Choose the task {task}", f"fitting-task-{number}", on_press)
    return Button(f"Choose the task {task}", "fitting-task", on_press, kind="primary")


def _fitting_model_buttons(choice: Choice) -> list[Button]:
    """The button that chooses a model that can do the task, if one is known.

    Models that were brought here are tried before the others.
    """
    models = [name for name in known_models(stored_specs()) if name != choice.model]
    models = [name for name in models if _may_be_asked(name)]
    models.sort(key=lambda name: (not was_named_here(name), name not in embedded_models()))
    for name in models[:MAX_ASKED]:
        if can_do(name, choice.task):
            words = f"Choose the model {_short_name(name)}"
            return [Button(words, "fitting-model", use_model, (name,))]
    return []
