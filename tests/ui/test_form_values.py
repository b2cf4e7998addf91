"""The values of a form that a press sends along.

They are the numbers that a person saw, even where Streamlit holds others.
"""

from __future__ import annotations

from typing import Any

import pytest
import streamlit as st
from hypothesis import given
from hypothesis import strategies as some
from streamlit.runtime.state.session_state_proxy import SessionStateProxy

from headlab.dashboard.pages.jobs.form import JobForm
from headlab.dashboard.streamlit_private import css_class
from headlab.dashboard.widgets import values_at_press, widget_values, with_typed_numbers
from headlab.dashboard.widgets.form_values import number


@pytest.mark.parametrize(
    ("text", "value", "want"),
    [
        ("1013", 0, 1013),
        ("1013", 1013, 1013),
        ("-5", 0, -5),
        ("7", None, 7),
        ("0.25", None, 0.25),
        ("3", 2.0, 3.0),
        ("0.50", 0.25, 0.5),
        ("1e-05", 0.01, 1e-5),
        ("0.01", 0.0123, 0.0123),
        ("0.00", 0.00001, 0.00001),
        ("0.3", 0.1 + 0.2, 0.1 + 0.2),  # shown with fewer digits
        ("1e-06", 1.04e-6, 1.04e-6),
        ("3", 3.2, 3.0),
        ("", 5, 5),
        ("", None, None),
        ("-", 5, 5),
        ("nan", 5, 5),
        ("inf", 5, 5),
        (None, 5, 5),
        ("1", True, True),
        ("1", "a text", "a text"),
        ("1", ["de"], ["de"]),
    ],
)
def test_what_a_number_field_showed_is_what_counts(text: str | None, value: Any, want: Any) -> None:
    field_value = number(text, value)
    assert field_value == want
    assert type(field_value) is type(want)


@given(some.integers(-(10**9), 10**9), some.integers(-(10**9), 10**9))
def test_a_whole_number_that_was_typed_is_that_number(typed_number: int, held_number: int) -> None:
    assert number(str(typed_number), held_number) == typed_number


@given(some.floats(-1e6, 1e6, allow_subnormal=False), some.integers(1, 8))
def test_a_number_that_is_shown_with_fewer_digits_stays_as_it_is(value: float, digits: int) -> None:
    assert number(f"{value:.{digits}f}", value) == value


@given(some.text())
def test_any_text_in_a_field_leaves_a_number(text: str) -> None:
    assert isinstance(number(text, 5), int | float)


def test_values_that_streamlit_lost_come_back_with_the_press() -> None:
    form = JobForm("a/model", "intents", ("de",), "leave-one-out")
    values_when_drawn = {
        form.key("seed"): 0,
        form.key("size"): 512,
        form.key("method"): "monte-carlo",
    }
    texts_by_class = {
        css_class(form.key("seed")): "1013",
        css_class(form.key("size")): "512",
        "another": "9",
    }
    params = form.job(with_typed_numbers(values_when_drawn, texts_by_class)).params()
    assert params["seed"] == 1013
    assert params["size"] == 512
    assert params["method"] == "monte-carlo"
    assert with_typed_numbers(values_when_drawn, None) == values_when_drawn


def test_a_key_that_the_next_run_removes_meanwhile_ends_no_action(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a browser, the key of a component was listed and then no longer there to be read."""
    monkeypatch.setitem(st.session_state, "row-open-15", 1)
    monkeypatch.setitem(st.session_state, "new-seed-", 1017)
    get_item = SessionStateProxy.__getitem__

    def get_item_or_lose_it(state: SessionStateProxy, key: str) -> Any:
        if key == "row-open-15":
            raise KeyError(key)
        return get_item(state, key)

    monkeypatch.setattr(SessionStateProxy, "__getitem__", get_item_or_lose_it)
    with pytest.raises(KeyError):
        dict(st.session_state.items())
    assert widget_values("new-") == {"new-seed-": 1017}
    assert values_at_press("new-", {}, {"new-seed-": "7"}) == {"new-seed-": 7}
    monkeypatch.undo()


def test_players_are_those_of_the_results_however_they_are_typed() -> None:
    form = JobForm("tiny", "intents", ("de",), "shapley")
    for typed, want in {"neurons:8, heads": "heads,neurons:8", "frogs": "frogs"}.items():
        values = {form.key("kind"): "score", form.key("players"): typed}
        assert form.job(values).players_switched == want
