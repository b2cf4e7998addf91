"""The state that pages keep in the session, apart from their widgets."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass, field

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from headlab import dashboard
from headlab.dashboard.widgets import PageState


@dataclass
class Visits(PageState):
    """How often a page was opened, and by which links."""

    key = "_visits"
    count: int = 0
    links: list[str] = field(default_factory=list)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The state of one session."""
    state: dict[str, object] = {}
    monkeypatch.setattr(st, "session_state", state)
    return state


def test_a_state_is_at_its_defaults_until_it_is_changed(session):
    assert Visits.of_session() == Visits(0, [])
    Visits.of_session().count += 1
    Visits.of_session().links.append("m=abc")
    assert Visits.of_session() == Visits(1, ["m=abc"])
    assert list(session) == ["_visits"]


def test_two_sessions_share_nothing(monkeypatch, session):
    Visits.of_session().links.append("m=abc")
    monkeypatch.setattr(st, "session_state", {})
    assert Visits.of_session().links == []


def test_what_something_else_put_under_the_key_is_replaced(session):
    session["_visits"] = ("written", "by an earlier version")
    Visits.of_session().count = 2
    assert Visits.of_session() == Visits(2, [])


def test_a_state_outlives_a_run_and_a_change_of_page():
    def count_visit() -> None:
        import streamlit
        from test_page_state import Visits

        Visits.of_session().count += 1
        streamlit.markdown(f"opened {Visits.of_session().count} times")

    app = AppTest.from_function(count_visit).run().run()
    assert app.markdown[0].value == "opened 2 times"


def test_every_page_state_has_a_key_of_its_own():
    """Two states with one key would overwrite each other."""
    for module in pkgutil.walk_packages(dashboard.__path__, "headlab.dashboard."):
        importlib.import_module(module.name)
    kinds = [kind for kind in PageState.__subclasses__() if kind.__module__.startswith("headlab.")]
    assert len(kinds) >= 7
    assert len({kind.key for kind in kinds}) == len(kinds)
