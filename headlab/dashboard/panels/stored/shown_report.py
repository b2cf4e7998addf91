"""What a page shows next: experiment and report on the Experiments page, the front on Prune."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import streamlit as st

from headlab.dashboard.frame import task_languages
from headlab.dashboard.names import SHORT_KEY, plain
from headlab.dashboard.widgets import PageState, notify_of_link, set_first_value, set_widget
from headlab.studies import offered_experiments


class ReportLink(NamedTuple):
    """What a link to the Experiments page names.

    Attributes:
        experiment: Key of the experiment; empty if none is named.
        report: Start of the key of the report; empty for the newest.
    """

    experiment: str = ""
    report: str = ""


NO_REPORT = ReportLink()
"""A link that names nothing."""


@dataclass
class ShownReport(PageState):
    """What the Experiments page shows in one session.

    Attributes:
        shown: The experiment and the report that are shown, or are to be shown next.
        written: What the page itself put in its link last; None if it has not yet.
    """

    key = "_experiment"
    shown: ReportLink = NO_REPORT
    written: ReportLink | None = None


def _link_now() -> ReportLink:
    """What the browser's link names."""
    return ReportLink(st.query_params.get("experiment", ""), st.query_params.get("report", ""))


def show_report_next(experiment: str, report: str = "") -> None:
    """Make the page show this experiment and report next, whatever its link says now."""
    state = ShownReport.of_session()
    state.shown = ReportLink(experiment, report[:SHORT_KEY])
    state.written = _link_now()
    st.session_state.pop(f"report-{experiment}", None)
    st.session_state.pop("experiment", None)


def choose_experiment(task: str) -> None:
    """Set the experiment widget: from a new link, from this session, or from the task.

    A task may lack languages for an experiment.
    """
    state = ShownReport.of_session()
    link = _link_now()
    experiments = offered_experiments()
    is_new_link = link.experiment != "" and link != state.written
    sentence = None
    if is_new_link and link.experiment in experiments:
        set_widget("experiment", link.experiment)
        state.shown = link
    elif is_new_link:
        sentence = (
            f"The link asks for experiment {link.experiment[:80]!r}, which is unknown here; "
            f"choose from {', '.join(experiments)}."
        )
    notify_of_link("experiment", sentence)
    is_linked = is_new_link and link == state.shown
    languages = max(1, len(task_languages(task)))
    fitting = [name for name, study in experiments.items() if study.least_languages <= languages]
    experiment = state.shown.experiment
    set_first_value("experiment", experiment if is_linked or experiment in fitting else fitting[0])


def requested_report(experiment: str, keys: Sequence[str]) -> str | None:
    """Full key of the report asked for; None for the newest. Warns if it does not exist.

    Args:
        experiment: Key of the experiment that is shown.
        keys: Full keys of its stored reports.
    """
    shown_link = ShownReport.of_session().shown
    if shown_link.experiment != experiment or not shown_link.report:
        return None
    matching = [key for key in keys if key.startswith(shown_link.report)]
    if matching:
        return matching[0]
    st.warning(
        plain(
            f"The link asks for report {shown_link.report[:80]!r}, which does not exist for this model "
            "and task."
        )
    )
    return None


def write_report_link(experiment: str, report: str = "") -> None:
    """Store what is shown in the session and in the link.

    Args:
        experiment: Key of the experiment.
        report: Key of the report; empty for the newest.
    """
    state = ShownReport.of_session()
    state.shown = state.written = ReportLink(experiment, report[:SHORT_KEY])
    if _link_now() == state.shown:
        return
    st.query_params["experiment"] = experiment
    if state.shown.report:
        st.query_params["report"] = state.shown.report
    else:
        st.query_params.pop("report", None)


@dataclass
class ShownFront(PageState):
    """The choice of a front in one session, beside the list to choose from.

    Attributes:
        requested: Start of the key of the front that another page opens; empty once it is shown.
        linked: Starts of the keys that the page itself has put in its link.
        nearest: Full key of the front that fitted the form best when the page was last drawn.
        awaits_new: Whether a front was asked for that is not there yet: until then the link names
            none.
    """

    key = "_front"
    requested: str = ""
    linked: set[str] = field(default_factory=set)
    nearest: str = ""
    awaits_new: bool = False


def show_front_next(key: str) -> None:
    """Make the Prune page show this front next, whatever fits its form.

    Args:
        key: Full key of the front's report.
    """
    ShownFront.of_session().requested = key[:SHORT_KEY]
