"""Parts of the sidebar: a task's warnings and label map, its languages, result settings."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from headlab.core import HEADS, HUB_ID, HeadlabError, players_title
from headlab.dashboard.names import CHOICE_KEY, plain
from headlab.dashboard.widgets import (
    Button,
    PageState,
    button_row,
    notices,
    set_widget,
    uninterrupted,
)
from headlab.masks import FOLDER_REVISION
from headlab.tasks import Task, registry_problems, source_of, task, task_names
from headlab.tasks.labels import (
    MAX_LISTED_LABELS,
    PLACEHOLDER,
    check_label_map,
    read_label_map,
    write_label_map,
)

LABEL_MAP_PARAM = "classes"
"""Key of the field of the label map, and its parameter in the link."""
VARIANT_PARAM = "settings"
"""Key of the list of variants of a method's results, and its parameter in the link."""
PLAYERS_PARAM = "players"
"""Key of the list of what can be switched, and its parameter in the link."""
LANGUAGE_CODE = re.compile(r"[\w-]+")
LABEL_MAP_HELP = (
    "For each label the class of the model that stands for it, by its name in the model's config.json. "
    "Empty: classes are matched by name, or all orders are tried on dev examples."
)


@dataclass
class NamedModels(PageState):
    """Models that a person has named in one session.

    Attributes:
        names: Those that can be chosen since.
        missing_folder: What was named last, if it is no hub id and there is no such folder; else
            empty.
    """

    key = "_named_models"
    names: list[str] = field(default_factory=list)
    missing_folder: str = ""


@dataclass
class TypedLabelMaps(PageState):
    """Label maps that a person has typed in one session.

    Attributes:
        by_subject: The text of the field, by model and task.
        refusal: Why the one of the chosen model and task is refused; empty if it is not.
    """

    key = "_stated"
    by_subject: dict[tuple[str, str], str] = field(default_factory=dict)
    refusal: str = ""


def first_link() -> Mapping[str, list[str]]:
    """Parameters of the link that the session was opened with; `run_session` keeps them."""
    link: Mapping[str, list[str]] = st.session_state.get("_link", {})
    return link


def _has_choice() -> bool:
    """Whether the sidebar was drawn before in this session, so that its first link is done with."""
    return CHOICE_KEY in st.session_state


def remember_model(model: str) -> None:
    """Add a model to those that this session can choose."""
    NamedModels.of_session().names.append(model)


def was_named_here(model: str) -> bool:
    """Whether a person has named a model in this session, or brought it."""
    return model in NamedModels.of_session().names


def use_model(name: str) -> None:
    """Choose a model, in an action; it need not be one of those that can be chosen yet."""
    remember_model(name)
    set_widget("model", name)
    recall_label_map()


def use_task(name: str) -> None:
    """Choose a task with all of its languages, in an action."""
    set_widget("task", name)
    set_widget("langs", list(task(name).languages))
    recall_label_map()


def _use_named_model() -> None:
    name = str(st.session_state.get("_named", "")).strip()
    is_path = any(mark in name for mark in "/\\") and not HUB_ID.fullmatch(name)
    is_missing = is_path and not _maybe_folder(name)
    NamedModels.of_session().missing_folder = name if is_missing else ""
    if name and not is_missing:
        use_model(name)


def _maybe_folder(name: str) -> bool:
    """Whether this may be a folder for the worker.

    One elsewhere has folders of its own, which are not known here.
    """
    return bool(os.environ.get("HEADLAB_WORKER")) or os.path.isdir(name)  # noqa: PTH112 - for any text, however long


def is_model_absent(model: str, specs: Iterable[Mapping[str, Any]]) -> bool:
    """Whether only results of a model are here.

    They are of a folder, and there is none of this name.
    """
    for spec in specs:
        spec_model = spec.get("model")
        if not isinstance(spec_model, Mapping) or spec_model.get("name") != model:
            continue
        if spec_model.get("revision") == FOLDER_REVISION:
            return not _maybe_folder(model)
    return False


def pick_model(options: list[str], specs: Iterable[Mapping[str, Any]]) -> str:
    """Draw the models, to choose from, and a field for another one.

    Args:
        options: Names of the models.
        specs: Of all stored results.

    Returns:
        The model chosen.
    """
    notices.note("model", "model", options)
    model = st.selectbox(
        "Model",
        options,
        key="model",
        bind="query-params",
        on_change=uninterrupted(recall_label_map),
    )
    if is_model_absent(model, specs):
        st.caption(
            "Its weights are not here: pages show its stored results. To compute with it, give the "
            "folder that holds it, under **Another model**."
        )
    with st.expander("Another model"):
        st.text_input(
            "Hub id or folder",
            key="_named",
            on_change=uninterrupted(_use_named_model),
            placeholder="owner/name or /path/to/model",
        )
        if missing_folder := NamedModels.of_session().missing_folder:
            st.error(
                f"There is no folder {plain(missing_folder)}, and a hub id has the form owner/name. "
                "Nothing was changed."
            )
    return model


def reason_task_unreadable(name: str) -> str:
    """Why a task cannot be built; empty if it can."""
    try:
        task(name)
    except HeadlabError as error:
        return str(error)
    return ""


def known_task(name: str) -> Task | None:
    """A task by its name; None if it is unknown here or cannot be built."""
    is_readable = name in task_names() and not reason_task_unreadable(name)
    return task(name) if is_readable else None


def notes_on_task(name: str) -> list[str]:
    """Notes on a task's examples: what is missing, and declarations that were left out."""
    notes = []
    if name in task_names():
        notes.append(reason_task_unreadable(name) or source_of(name).advice)
    return [note for note in (*notes, *registry_problems()) if note]


def draw_label_map(model: str, name: str) -> Mapping[str, str] | None:
    """Draw the field for the label map of a model on a task.

    Args:
        model: Name of the model.
        name: Of the task.

    Returns:
        The label map; None if it is empty or refused, or the task has no labels.
    """
    typed_maps = TypedLabelMaps.of_session()
    typed_maps.refusal = ""
    chosen_task = known_task(name)
    labels = chosen_task.labels if chosen_task else ()
    if not labels:
        _note_unused_label_map(name)
        return None
    with st.expander("Label map"):
        example_map = write_label_map(dict.fromkeys(labels[:MAX_LISTED_LABELS], PLACEHOLDER))
        text = st.text_input(
            "Label map",
            key=LABEL_MAP_PARAM,
            bind="query-params",
            placeholder=example_map,
            help=LABEL_MAP_HELP,
        ).strip()
    typed_maps.by_subject[model, name] = text
    if not text:
        return None
    try:
        stated_map = read_label_map(text)
        check_label_map(name, labels, stated_map)
        _require_class_names(stated_map)
    except HeadlabError as error:
        typed_maps.refusal = str(error)
        return None
    return stated_map


def _note_unused_label_map(name: str) -> None:
    """Say on every page that a link's label map is left out, as the task has no labels here."""
    if first_link().get(LABEL_MAP_PARAM) and not _has_choice():
        sentence = f"The link has a label map, but task {name} has no labels here. It was left out."
        notices.add(sentence)


def _require_class_names(stated_map: Mapping[str, str]) -> None:
    """Raise HeadlabError for a class given by its number.

    Stored results name their classes, and only the model tells which name a number stands for.
    """
    for class_name in stated_map.values():
        if class_name.isdigit():
            raise HeadlabError(
                f"the label map has class {class_name}; here write the class's name as the model's "
                "config.json has it",
                code="label_map.number_on_page",
            )


def stop_if_refused() -> None:
    """End the page if the label map is refused, with the reason.

    Its figures would be those of other classes.
    """
    if reason := TypedLabelMaps.of_session().refusal:
        st.error(plain(reason))
        st.stop()


def pick_variant(names: Sequence[str]) -> str:
    """Draw the list of variants of the cached results, where there are several.

    Empty where there are not.

    Args:
        names: Of the variants, the one that is shown by default first.

    Returns:
        The name of the variant chosen, or empty.
    """
    linked_names = first_link().get(VARIANT_PARAM)
    if linked_names and linked_names[0] not in names and not _has_choice():
        known_words = f"; the cache has {' or '.join(names)}" if names else ""
        settings = f"{linked_names[0][:80]!r}"
        notices.add(
            f"The link asks for scores with the settings {settings}, which are not cached{known_words}."
        )
    if len(names) < 2:
        st.session_state.pop(VARIANT_PARAM, None)
        return ""
    if VARIANT_PARAM in st.session_state and st.session_state[VARIANT_PARAM] not in names:
        set_widget(VARIANT_PARAM, names[0])  # of another model, or what an action has left open
    help_text = (
        "The cache has scores of this method with other settings too: the estimand first, then what is "
        "not default."
    )
    return st.selectbox("Settings", names, key=VARIANT_PARAM, bind="query-params", help=help_text)


def pick_players(stored: Sequence[str], on_change: Callable[[], None]) -> str:
    """Draw the list of what is switched and scored, where not only heads are.

    Args:
        stored: What else than heads the stored scores of the model and task are of.
        on_change: Called when a person has chosen others.

    Returns:
        What is chosen; heads where there is nothing to choose.
    """
    options = [HEADS, *stored]
    linked_players = first_link().get(PLAYERS_PARAM)
    if linked_players and linked_players[0] not in options and not _has_choice():
        known_words = f"; stored are those of {', '.join(options)}" if stored else ""
        notices.add(
            f"The link asks for scores of {linked_players[0][:80]!r}, which are not stored for this "
            f"model and task{known_words}. Heads are shown."
        )
    if not stored:
        st.session_state.pop(PLAYERS_PARAM, None)
        return HEADS
    if st.session_state.get(PLAYERS_PARAM, HEADS) not in options:
        set_widget(PLAYERS_PARAM, HEADS)  # of another model, or what an action has left open
    players = st.selectbox(
        "Players",
        options,
        key=PLAYERS_PARAM,
        bind="query-params",
        on_change=uninterrupted(on_change),
        help="What is switched off one by one: heads, or other parts that were scored too",
    )
    if players != HEADS:
        st.caption(f"{players_title(players)}.")
    return players


def pick_languages(options: list[str]) -> None:
    """Draw the task's languages, to choose from."""
    st.pills(
        "Languages",
        options,
        selection_mode="multi",
        default=options,
        key="langs",
        bind="query-params",
        format_func=_language_label,
    )
    button_row(
        Button("All", "langs-all", set_widget, ("langs", options), "tertiary"),
        Button("None", "langs-none", set_widget, ("langs", []), "tertiary"),
    )


def _language_label(language: str) -> str:
    """A language as a label, which is Markdown.

    Usual codes are unchanged, as the link holds labels.
    """
    if LANGUAGE_CODE.fullmatch(language):
        return language
    return plain(language)


def recall_label_map() -> None:
    """Give the field what was typed for the model and task chosen now.

    A label map of others does not hold for them.
    """
    model_and_task = str(st.session_state.get("model")), str(st.session_state.get("task"))
    set_widget(LABEL_MAP_PARAM, typed_label_map(*model_and_task))


def typed_label_map(model: str, name: str) -> str:
    """What was typed for a model and a task, refused or not."""
    return TypedLabelMaps.of_session().by_subject.get((model, name), "")


def label_map_text(stated_map: Mapping[str, str] | None) -> str:
    """A label map as the field shows it."""
    if stated_map is None:
        return ""
    return write_label_map(stated_map)
