"""The tab of smaller models on the Prune page: the form, the front that grows, and which is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from headlab.core import (
    HEADS,
    HeadGrid,
    HeadlabError,
    Report,
    players_of,
    players_phrase,
    players_title,
)
from headlab.dashboard.frame import Choice, stored_players, stored_results
from headlab.dashboard.names import (
    FRONT_PARAM,
    POINT_PARAM,
    PRUNE_TAB,
    PRUNE_TABS,
    SHORT_KEY,
    plain,
)
from headlab.dashboard.pages.prune.front_form import SHOWN_FRONT, FrontForm, draw_form
from headlab.dashboard.pages.prune.front_growth import draw_growing_fronts, fronts_under_way
from headlab.dashboard.pages.prune.front_view import draw_front
from headlab.dashboard.pages.prune.point_words import WholeModel
from headlab.dashboard.pages.prune.state import PruneState
from headlab.dashboard.pages.prune.stored_fronts import (
    FRONT_STUDY,
    StoredFront,
    front_label,
    is_on_languages,
    matching_fronts,
    other_settings,
    read_front,
)
from headlab.dashboard.panels.masks import MaskHistory
from headlab.dashboard.panels.stored import ShownFront
from headlab.dashboard.widgets import notify_of_link, pick_result, set_widget
from headlab.jobs.table import FrontJob
from headlab.results import Result
from headlab.worker import JobRow, LoadedModel

INTRO = (
    "{} are removed in several orders; every intermediate model is measured on dev in each "
    "language, paired with the unpruned one. Only the chosen model is then measured on test."
)
OTHER_GROUPS = (
    "This front was made of groups with other neurons than those that are shown here, so its "
    "models cannot be switched. Make it again."
)


def draw_fronts(
    choice: Choice, history: MaskHistory, model: LoadedModel, jobs: Sequence[JobRow]
) -> None:
    """The section, a fragment: the question, and the front that fits it best.

    Fronts are of this model and task.

    Args:
        choice: The sidebar's.
        history: Of the mask of its model's heads, or other players, which a point becomes.
        model: The worker's description of the model.
        jobs: Jobs that measure the speed of a mask.
    """
    PruneState.of_session().rerun_if_due()  # the mask has changed, or a job was started
    noun = history.grid.noun
    st.markdown(INTRO.format(intro_subject(history.grid)))
    form_job = draw_form(FrontForm(choice, history.grid.size))
    whole = WholeModel(
        history.grid.size,
        None if model.costs is None else model.costs.parameters,
        model.bytes_a_parameter,
        noun,
    )
    growing_fronts = fronts_under_way(choice)
    # Places of their own: what begins to grow, or ends, moves nothing below it.
    with st.container():
        draw_growing_fronts(growing_fronts, whole)
    choice_place = st.container()
    front_place = st.container()
    stored_reports = stored_results(Report, choice.players)
    fitting = [
        result for result in stored_reports.results if choice.has_classes_of(result.record.spec)
    ]
    fronts = matching_fronts(
        fitting, model.fingerprint, choice.task, choice.languages, choice.players
    )
    results_by_key = {result.key: result for result in fronts}
    requested_key = _requested_front(results_by_key, choice)
    if not fronts:
        _forget_shown_front()
        if not growing_fronts:
            st.caption(no_front_words(choice))
        return
    with choice_place:
        shown_result = _pick_front(results_by_key, form_job, choice.languages, requested_key)
    front = _front_or_warning(shown_result, history)
    if front is not None:
        with front_place:
            draw_front(front, whole, history, choice, jobs)


def intro_subject(grid: HeadGrid) -> str:
    """What is removed, as the start of a sentence: "Groups of neurons", "Heads and layers".

    Args:
        grid: Of the heads, or other players.
    """
    if len(grid.kinds) > 1:
        return players_title(str(players_of(grid)))
    return f"{grid.noun[0].upper()}{grid.noun[1:]}"


def no_front_words(choice: Choice) -> str:
    """That there is no front to show.

    Args:
        choice: The sidebar's.
    """
    of_players = "" if choice.players == HEADS else f" with {players_phrase(choice.players)}"
    return f"No front of this model and task{of_players} is in the cache yet."


def _pick_front(
    results_by_key: Mapping[str, Result[Report]],
    form_job: FrontJob,
    languages: Sequence[str],
    requested_key: str | None,
) -> Result[Report]:
    """Draw the choice of a front, and what sets it apart from the form; return it.

    Args:
        results_by_key: The fronts by their keys; of equal ones the newest first.
        form_job: The form's job.
        languages: Codes of the chosen languages.
        requested_key: From `_requested_front`.
    """
    _choose_nearest_front(results_by_key, form_job, languages, requested_key)
    shown_result = pick_result(
        "Front", results_by_key, lambda key: front_label(results_by_key[key]), SHOWN_FRONT
    )
    _write_link(shown_result.key)
    settings = other_settings(shown_result, form_job)
    if settings:
        st.info(
            "This front was made with other settings than those in the form above: "
            f"{plain('; '.join(settings))}."
        )
    return shown_result


def _requested_front(results_by_key: Mapping[str, Result[Report]], choice: Choice) -> str | None:
    """Full key of the front that another page or the link asks for; None if none does.

    Warns if it is not there, or is of other players.

    Args:
        results_by_key: The fronts by their keys.
        choice: The sidebar's.
    """
    shown_front = ShownFront.of_session()
    linked_start = st.query_params.get(FRONT_PARAM, "")
    is_shown_yet = SHOWN_FRONT in st.session_state or shown_front.awaits_new
    is_new = not is_shown_yet or linked_start not in shown_front.linked
    key_start = shown_front.requested or (linked_start if is_new else "")
    shown_front.requested = ""
    if key_start:
        shown_front.awaits_new = False
    matches = [key for key in results_by_key if key_start and key.startswith(key_start)]
    sentence = None
    if key_start and not matches and key_start not in shown_front.linked:
        sentence = (
            f"The link asks for front {key_start[:80]!r}, which does not exist for this model and "
            "task."
        )
        players = _players_of_key(key_start, choice)
        if players:
            sentence = f"The link asks for a front of {players_phrase(players)}: choose these under Players."
    notify_of_link(SHOWN_FRONT, sentence)
    return matches[0] if matches else None


def _forget_shown_front() -> None:
    """Take a front that was shown before out of the link: there is none of what is chosen now."""
    if st.query_params.get(FRONT_PARAM) in ShownFront.of_session().linked:
        for param in (FRONT_PARAM, POINT_PARAM):
            st.query_params.pop(param, None)


def _players_of_key(key_start: str, choice: Choice) -> str:
    """What else than the chosen players the front of a link removes; empty if there is none.

    Args:
        key_start: Start of its key.
        choice: The sidebar's.
    """
    for players in (HEADS, *stored_players(choice.model, choice.task)):
        if players != choice.players:
            for result in stored_results(Report, players).results:
                is_front = result.record.name == FRONT_STUDY.key
                if is_front and result.key.startswith(key_start):
                    return players
    return ""


def _write_link(key: str) -> None:
    """Keep the link true to the front that is shown, once this tab is looked at.

    A link that is copied then opens this front, whatever else is computed meanwhile.

    Args:
        key: Full key of the front that is shown.
    """
    shown_front = ShownFront.of_session()
    if shown_front.awaits_new:
        return
    key_start = key[:SHORT_KEY]
    linked_start = st.query_params.get(FRONT_PARAM, "")
    is_in_sight = st.session_state.get(PRUNE_TAB) == PRUNE_TABS[1]
    shown_front.linked.add(key_start)
    if linked_start != key_start and (linked_start or is_in_sight):
        st.query_params[FRONT_PARAM] = key_start


def _choose_nearest_front(
    results_by_key: Mapping[str, Result[Report]],
    form_job: FrontJob,
    languages: Sequence[str],
    requested_key: str | None,
) -> None:
    """Show the front that fits the form best, until another is chosen by hand.

    A front chosen by hand stays as long as the form does.

    Args:
        results_by_key: The fronts by their keys; of equal ones the newest first.
        form_job: The form's job.
        languages: Codes of the chosen languages; a front on exactly these fits better than any
            other.
        requested_key: Of the front that a link asks for, which is shown whatever fits.
    """

    def misfit(key: str) -> tuple[bool, int]:
        result = results_by_key[key]
        return not is_on_languages(result, languages), len(other_settings(result, form_job))

    nearest_key = min(results_by_key, key=misfit)
    shown_front = ShownFront.of_session()
    nearest_is_new = nearest_key != shown_front.nearest or SHOWN_FRONT not in st.session_state
    if nearest_key != shown_front.nearest:
        shown_front.awaits_new = False
    if len(results_by_key) > 1 and (requested_key or nearest_is_new):
        set_widget(SHOWN_FRONT, requested_key or nearest_key)
    shown_front.nearest = nearest_key


def _front_or_warning(result: Result[Report], history: MaskHistory) -> StoredFront | None:
    try:
        return read_front(result, history.grid)
    except HeadlabError as error:
        if error.code == "front.other_players":
            st.warning(OTHER_GROUPS)
        else:
            st.warning(plain(f"The front cannot be shown: {error}."))
        return None
