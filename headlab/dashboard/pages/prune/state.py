"""What the Prune page keeps in the session besides its widgets."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from headlab.dashboard.panels.jobs import start_job
from headlab.dashboard.widgets import PageState
from headlab.jobs import Job


@dataclass
class PruneState(PageState):
    """The Prune page of one session.

    Attributes:
        last_job: What the last job that was started here was for; empty if none was.
        rerun_is_due: Whether to run the whole page again, as something has changed in a part of it.
        asker: Tells the worker which of its questions about masks are this page's: a new one
            replaces the last.
        link_texts: What links said of the form for a front, and what the page itself wrote there.
        linked_points: The same of models of a front, each with the front's key.
        seconds_a_forward: The last pace that was forecast, by model, task and players.
        early_quick: What *Quick* filled in before the pace was known, by the form's widgets; empty
            if it was known, or the form was started or filled in otherwise since.
    """

    key = "_prune"
    last_job: str = ""
    rerun_is_due: bool = False
    asker: str = field(default_factory=lambda: secrets.token_hex(8))
    link_texts: set[str] = field(default_factory=set)
    linked_points: set[tuple[str, str]] = field(default_factory=set)
    seconds_a_forward: dict[tuple[str, str, str], float] = field(default_factory=dict)
    early_quick: dict[str, Any] = field(default_factory=dict)

    def rerun_if_due(self) -> None:
        """Run the whole page again if that is due. To be called within a part of it."""
        if self.rerun_is_due:
            self.rerun_is_due = False
            st.rerun()


def start_on_page(job: Job, purpose: str = "") -> None:
    """Queue a job from this page.

    Args:
        job: The job.
        purpose: What it is for, where several parts of the page start such jobs; empty for its
            kind.
    """
    state = PruneState.of_session()
    state.last_job = purpose or job.key
    state.rerun_is_due = True
    start_job(job)
