"""What all pages show: a model, a task, a method and languages.

Also what is stored for such a choice.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from headlab.core import APP_MODEL_VARIABLE, APP_TASK_VARIABLE, HEADS, HUB_ID, HeadGrid
from headlab.dashboard.frame.cache_folder import stored_players, stored_results, stored_specs
from headlab.dashboard.frame.sidebar import NamedModels, known_task
from headlab.dashboard.frame.stored_scores import (
    StoredScores,
    best_method,
    comparable_scores,
    languages_with_results,
    matching_scores,
    stored_subjects,
    variants,
)
from headlab.dashboard.frame.worker_supervisor import embedded_models
from headlab.dashboard.names import CHOICE_KEY, count_words
from headlab.dashboard.widgets import button, set_widget
from headlab.methods import METHODS, options_of
from headlab.results import HeadScores, Result
from headlab.tasks import TREEBANK, has_classes_of_map, task_names


@dataclass(frozen=True)
class Choice:
    """What all pages show: one model, task and method, and some of the task's languages.

    Attributes:
        model: Name of the model.
        task: Name of the task.
        languages: Codes of the languages.
        method: Key of the method.
        label_map: {label: class of the model}, where it is stated.
        variant: Name of the method's results that are shown, where the cache has several
            (`headlab.dashboard.frame.stored_scores.variants`).
        players: What is switched and scored, as `headlab.core.read_players` reads it.
    """

    model: str
    task: str
    languages: tuple[str, ...]
    method: str
    label_map: Mapping[str, str] | None = None
    variant: str = ""
    players: str = HEADS

    @property
    def job_fields(self) -> dict[str, Any]:
        """What every job on this choice says of it."""
        label_map_field = {} if self.label_map is None else {"label_map": dict(self.label_map)}
        return {"model": self.model, "task": self.task, **label_map_field}

    def has_classes_of(self, spec: Mapping[str, Any]) -> bool:
        """Whether a result of this spec has the classes of this choice."""
        return has_classes_of_map(spec.get("task") or {}, self.label_map)


PLAYER_PAGES = ("overview", "heads", "prune", "masks", "jobs")
"""Pages that show other players than heads."""


def choice_on_page(choice: Choice, page: str) -> Choice:
    """What a page shows of a choice: heads, unless it knows other players.

    Args:
        choice: The sidebar's.
        page: Key of the page; empty for the first one.
    """
    if choice.players == HEADS or (page or "overview") in PLAYER_PAGES:
        return choice
    return replace(choice, players=HEADS, variant="")


def players_grid(choice: Choice) -> HeadGrid | None:
    """The players of a choice, as its results have them, or else any of its model and task.

    Args:
        choice: The sidebar's; its players are not heads.
    """
    grid = scores_of(choice).grid
    if grid is not None:
        return grid
    results = stored_results(HeadScores, choice.players).results
    matches = matching_scores(results, choice.model, choice.task)
    if not matches:
        return None
    newest = max(matches, key=lambda result: str(result.meta.get("created", "")))
    return newest.record.grid


def current_choice() -> Choice | None:
    """What this session's sidebar shows; None before it was first drawn."""
    choice = st.session_state.get(CHOICE_KEY)
    if isinstance(choice, Choice):
        return choice
    return None


def results_of(choice: Choice, method: str | None = None) -> list[Result[HeadScores]]:
    """The cached results of a choice, of all languages and variants.

    Args:
        choice: The choice.
        method: Key of another method than the choice's.
    """
    return matching_scores(
        stored_results(HeadScores, choice.players).results,
        choice.model,
        choice.task,
        method or choice.method,
        choice.label_map,
    )


def scores_of(choice: Choice, method: str | None = None) -> StoredScores:
    """The cached scores of a choice.

    Args:
        choice: The choice.
        method: Key of another method than the choice's.
    """
    method_key = method or choice.method
    results = results_of(choice, method_key)
    variant = choice.variant if method_key == choice.method else ""
    return comparable_scores(results, choice.languages, variant)


def cached_options(choice: Choice) -> dict[str, Any]:
    """The method's options that the cached scores of a choice were made with.

    Empty if no scores are cached.

    Jobs that build on scores start from these, as with other options the scores would be computed
    again, for hours.
    """
    template = scores_of(choice).template
    if template is None:
        return {}
    method = METHODS[choice.method]
    options = {
        name: value for name, value in options_of(template).items() if name in method.options
    }
    return method.recorded(options)


@dataclass(frozen=True)
class OtherChoice:
    """Stored results of another model or task.

    Attributes:
        choice: That shows them.
        page: Where most of them are shown, a key of `headlab.dashboard.names.PAGES`.
        words: What they are, and how many.
    """

    choice: Choice
    page: str
    words: str


def other_choices(choice: Choice) -> list[OtherChoice]:
    """Other models and tasks that have stored results.

    Reports of roles on a treebank are of no task.
    """
    specs = stored_specs()
    choices: list[OtherChoice] = []
    for (model, task_name), count in sorted(stored_subjects(specs).items()):
        result_count = count_words(count, "result")
        if task_name == TREEBANK:
            if model != choice.model:
                other_choice = replace(choice, model=model, label_map=None)
                words = f"{model}: {result_count} on roles"
                choices.append(OtherChoice(other_choice, "roles", words))
        elif (model, task_name) != (choice.model, choice.task):
            method = stored_method(model, task_name, choice.method, HEADS)
            other_choice = Choice(
                model, task_name, tuple(task_languages(task_name)), method or choice.method
            )
            if method is None:
                other_choice = _of_players(other_choice, choice.method)
            has_scores = method is not None or other_choice.players != HEADS
            page = "overview" if has_scores else "experiments"
            words = f"{model} on {task_name}: {result_count}"
            choices.append(OtherChoice(other_choice, page, words))
    return choices


def _of_players(choice: Choice, wanted_method: str) -> Choice:
    """The choice, of the first players that it has scores of, if any.

    Args:
        choice: Of a model and task without scores of heads.
        wanted_method: Key of the method to show if there are such scores of it.
    """
    for players in stored_players(choice.model, choice.task)[:1]:
        method = stored_method(choice.model, choice.task, wanted_method, players)
        return replace(choice, players=players, method=method or choice.method)
    return choice


def stored_method(model: str, task: str, wanted_method: str, players: str) -> str | None:
    """The method to show of the stored scores of some players; None if none are stored.

    Args:
        model: Name of the model.
        task: Name of the task.
        wanted_method: Key of the method to show if there are such scores of it.
        players: What is scored.
    """
    results = stored_results(HeadScores, players).results
    return best_method(matching_scores(results, model, task), wanted_method)


def known_models(specs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Models that can be chosen, the one that is shown first before the others.

    They are the one that `headlab app` was told, the embedded ones, those with results, and those
    named in this session.

    Args:
        specs: Of all stored results.
    """
    models_with_results = sorted({model for model, _ in stored_subjects(specs)})
    linked_models = filter(HUB_ID.fullmatch, st.query_params.get_all("model"))
    models = [
        *told_by_command(APP_MODEL_VARIABLE),
        *embedded_models(),
        *models_with_results,
        *NamedModels.of_session().names,
        *linked_models,
    ]
    return list(dict.fromkeys(models)) or ["e5-small-intents"]


def known_tasks(specs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Tasks that can be chosen, the one that is shown first before the others.

    They are the one that `headlab app` was told, those that are known here, and others with
    results.

    Args:
        specs: Of all stored results.
    """
    tasks_with_results = {task_name for _, task_name in stored_subjects(specs)} - {TREEBANK}
    told_tasks = told_by_command(APP_TASK_VARIABLE)
    return list(dict.fromkeys([*told_tasks, *task_names(), *sorted(tasks_with_results)]))


def told_by_command(variable: str) -> list[str]:
    """What `headlab app` was told to show first, if it was told.

    Args:
        variable: The environment variable that says so.
    """
    name = os.environ.get(variable, "")
    return [name] if name else []


def cached_variants(
    model: str,
    task: str,
    method: str,
    label_map: Mapping[str, str] | None,
    players: str = HEADS,
) -> list[str]:
    """Names of the variants of a method's cached results, the one shown by default first.

    Args:
        model: Name of the model.
        task: Name of the task.
        method: Key of the method.
        label_map: {label: class of the model}, where it is stated.
        players: What is scored.
    """
    all_scores = stored_results(HeadScores, players).results
    return list(variants(matching_scores(all_scores, model, task, method, label_map)))


def draw_no_language(choice: Choice) -> None:
    """Say that no language is chosen, with the button that chooses all of the task's."""
    st.info("No language is chosen. Pick some in the sidebar, or take all.")
    button(
        "Choose all languages",
        key="choose-all-languages",
        kind="primary",
        on_press=set_widget,
        args=("langs", task_languages(choice.task)),
    )


def task_languages(name: str) -> list[str]:
    """A task's languages.

    Of a task that is unknown here or cannot be read, they are those of its results.
    """
    task = known_task(name)
    if task:
        return list(task.languages)
    return languages_with_results(stored_specs(), name)
