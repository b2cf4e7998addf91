"""The log of presses: each is taken once, in order, and what it does is not interrupted."""

from __future__ import annotations

import itertools
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as some
from streamlit import runtime
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.runtime.media_file_storage import MediaFileKind, MediaFileStorageError
from streamlit.runtime.memory_media_file_storage import MemoryMediaFileStorage
from streamlit.runtime.scriptrunner import RerunData
from streamlit.runtime.scriptrunner_utils.script_requests import ScriptRequests
from streamlit.testing.v1 import AppTest

from headlab.core import HeadGrid, Stack
from headlab.dashboard import streamlit_private
from headlab.dashboard.widgets import (
    presses,
    redraw_every,
    set_first_value,
    set_widget,
    uninterrupted,
)
from headlab.dashboard.widgets.presses import PressLog


def event(*numbers: int, tab: str = "a", key: str = "k"):
    return {"tab": tab, "presses": [[number, key, number] for number in numbers]}


def listening(*keys: str) -> tuple[PressLog, list]:
    done: list = []
    return PressLog(actions=dict.fromkeys(keys or ("k",), done.append)), done


def test_what_is_sent_again_is_taken_once():
    log, done = listening()
    for sent in (event(1), event(1, 2), event(1, 2), event(2, 3)):
        log.take(sent)
    assert done == [1, 2, 3]


def test_presses_of_one_message_are_taken_in_the_order_they_were_made():
    log, done = listening("k", "other")
    log.take(
        {"tab": "a", "presses": [[3, "k", "third"], [1, "other", "first"], [2, "k", "second"]]}
    )
    assert done == ["first", "second", "third"]


def test_tabs_count_by_themselves():
    log, done = listening()
    log.take(event(5, tab="a"))
    log.take(event(1, tab="b"))
    assert done == [5, 1]


def test_a_button_that_never_was_does_nothing_and_holds_nothing_up():
    log, done = listening()
    log.take({"tab": "a", "presses": [[1, "gone", 1], [2, "k", 2]]})
    assert done == [2]
    assert log.last_number_by_tab == {"a": 2}


def test_an_action_that_fails_is_not_tried_again_and_the_next_is():
    log, done = listening()
    log.actions["bad"] = lambda _: 1 / 0
    sent = {"tab": "a", "presses": [[1, "bad", 1], [2, "k", 2]]}
    with pytest.raises(ZeroDivisionError):
        log.take(sent)
    log.take(sent)
    assert done == [2]


@given(some.data())
def test_any_order_of_messages_that_each_hold_all_untaken_presses_takes_each_once(data):
    """Messages may be repeated, merged into the newest, and lost, as long as another comes."""
    log, done = listening()
    pressed = 0
    for _ in range(data.draw(some.integers(1, 12))):
        pressed += data.draw(some.integers(0, 3))
        sent = event(*range(log.last_number_by_tab.get("a", 0) + 1, pressed + 1))
        for _ in range(data.draw(some.integers(0, 2))):
            log.take(sent)
    log.take(event(*range(log.last_number_by_tab.get("a", 0) + 1, pressed + 1)))
    assert done == list(range(1, pressed + 1))


def test_another_request_waits_for_what_a_press_does(monkeypatch):
    requests = ScriptRequests()
    requests.on_scriptrunner_ready()  # streamlit asks so before its first run
    requests = ScriptRequests()
    monkeypatch.setattr(
        streamlit_private,
        "get_script_run_ctx",
        lambda: SimpleNamespace(script_requests=requests),
    )
    seen = []

    def change():
        requests.request_rerun(RerunData(query_string="next"))
        seen.append(requests.on_scriptrunner_yield())  # as each touch of the session's state does
        uninterrupted(lambda: seen.append(requests.on_scriptrunner_yield()))()
        seen.append(requests.on_scriptrunner_yield())

    uninterrupted(change)()
    assert seen == [None, None, None]
    waiting = requests.on_scriptrunner_yield()
    assert waiting is not None
    assert waiting.rerun_data.query_string == "next"


def test_an_error_in_a_press_lets_requests_through_again(monkeypatch):
    requests = ScriptRequests()
    monkeypatch.setattr(
        streamlit_private,
        "get_script_run_ctx",
        lambda: SimpleNamespace(script_requests=requests),
    )
    with pytest.raises(ZeroDivisionError):
        uninterrupted(lambda: 1 / 0)()
    requests.request_rerun(RerunData())
    assert requests.on_scriptrunner_yield() is not None


@pytest.fixture
def state(monkeypatch):
    """The state of a session, which has a list of heads that shows a and a log whose presses pick another.

    It counts how often the list's value was set, which is when streamlit sends it to the browser.
    """

    class State(dict):
        sets = 0

        def __setitem__(self, key, value):
            self.sets += key == "head"
            super().__setitem__(key, value)

    held = State(
        {
            "head": "a",
            presses.LOG_KEY: PressLog(actions={"grid": lambda head: set_widget("head", head)}),
        }
    )
    monkeypatch.setattr(presses.st, "session_state", held)
    return held


@pytest.fixture
def picked(monkeypatch, state):
    """Make a request, and say which head its run shows."""
    shown_by_browser = SimpleNamespace(get_widget_states=lambda: brought)
    run = SimpleNamespace(fragment_ids_this_run=["timer"], session_state=shown_by_browser)
    brought: list = []
    monkeypatch.setattr(presses, "draw", lambda *_: None)
    monkeypatch.setattr(streamlit_private, "get_script_run_ctx", lambda: run)
    monkeypatch.setattr(presses.st, "fragment", lambda look, run_every: look)

    def request(
        shown: str | None,
        *numbers_and_heads: tuple[int, str],
        whole: bool = True,
        timer: bool = False,
    ) -> str:
        """The head that a run shows.

        Args:
            shown: The head in the browser's list; None: it has not drawn it.
            whole: No other request ends the run.
            timer: It redraws a part of the page.
        """
        brought[:] = [] if shown is None else [SimpleNamespace(id="$$ID-0-head")]
        if shown is not None:
            dict.__setitem__(state, "head", shown)
        if timer:
            redraw_every(lambda: None, None)()
            return state["head"]
        state[presses.LOG_KEY].take(
            {"tab": "t", "presses": [[n, "grid", head] for n, head in numbers_and_heads]}
        )
        presses.draw_log_root("", [])
        if whole:
            presses.mark_page_drawn()
        return state["head"]

    return request


def test_a_pick_survives_requests_made_before_it_was_drawn(picked):
    assert picked("a", (1, "b"), whole=False) == "b"
    assert picked("a", whole=False) == "b"
    assert picked("a", (2, "c"), whole=False) == "c"
    assert picked("b", whole=False) == "c"
    assert picked("a") == "c"


def test_a_pick_survives_its_own_press_sent_again_after_the_run(picked):
    assert picked("a", (1, "b")) == "b"
    assert picked("a", (1, "b")) == "b"
    assert picked("a", (1, "b"), (2, "c")) == "c"


def test_a_pick_survives_what_timers_bring(picked):
    assert picked("a", (1, "b")) == "b"
    assert picked("a", timer=True) == "b"
    assert picked("b") == "b"
    assert picked("a") == "a"  # chosen from the list
    assert picked("a", timer=True) == "a"


def test_a_pick_is_sent_with_every_run_until_the_browser_has_drawn_its_list(picked, state):
    assert picked(None, (1, "b")) == "b"
    for _ in range(2):
        before = state.sets
        assert picked(None) == "b"
        assert state.sets == before + 1
    assert picked("b") == "b"
    before = state.sets
    assert picked(None) == "b"  # the list is on no page now
    assert state.sets == before


def test_a_pick_does_not_outlive_its_page(picked, state):
    assert picked(None, (1, "b")) == "b"
    presses.draw_log_root("another page", [])
    before = state.sets
    presses.draw_log_root("another page", [])
    assert state.sets == before


def test_a_field_that_was_cleared_before_the_page_was_drawn_stays_empty(state, picked):
    set_first_value("size", 5)
    state["size"] = None
    picked("a", whole=False)
    assert state["size"] is None


def test_what_a_person_chooses_from_the_list_wins_over_a_pick(picked):
    assert picked("a", (1, "b"), whole=False) == "b"
    assert picked("c", whole=False) == "c"  # not what it showed before
    assert picked("a", (2, "b")) == "b"
    assert picked("a") == "a"  # the run was whole, so the list showed b


def page():
    import streamlit as st

    from headlab.dashboard.widgets import Button, button, button_row

    done = st.session_state.setdefault("done", [])
    button(
        "Start",
        key="start",
        on_press=done.append,
        args=(st.number_input("n", value=1),),
        kind="primary",
    )
    button_row(
        Button("A", "a", done.append, ("a",)),
        Button("B", "b", done.append, ("b",), disabled=len(done) > 1),
    )
    st.text(" ".join(map(str, done)))


@pytest.mark.usefixtures("native_buttons")
def test_buttons_do_what_they_were_drawn_for():
    app = AppTest.from_function(page).run()
    for key in ("a", "b"):
        app.button(key=key).click().run()
    assert app.text[0].value == "a b"
    assert app.button(key="b").disabled
    # One that was on its way while the button was still enabled, as the person saw it.
    app.session_state["_presses"].take({"tab": "late", "presses": [[1, "b", None]]})
    assert app.run().text[0].value == "a b b"


def test_undo_right_after_a_click_that_came_after_another_undo_counts():
    """The last Undo had disabled the button, which the browser did not show yet."""
    grid = HeadGrid((Stack("encoder", (2, 2)),))
    app = AppTest.from_function(undoing).run()
    log = app.session_state["_presses"]
    now = app.session_state["now"]
    off = {"heads": [0], "on": False}
    log.take({"tab": "a", "presses": [[1, "grid", off], [2, "undo", None]]})
    app.run()
    log.take({"tab": "a", "presses": [[3, "grid", off], [4, "undo", None]]})
    assert now.mask.kept.all()
    assert now.grid == grid


def undoing():
    import numpy as np
    import streamlit as st

    from headlab.core import HeadGrid, Stack
    from headlab.dashboard.panels.history import MaskHistory
    from headlab.dashboard.widgets import button, draw_head_switches

    now = st.session_state.setdefault("now", MaskHistory(HeadGrid((Stack("encoder", (2, 2)),))))
    button(
        "Undo",
        key="undo",
        on_press=now.undo,
        disabled=False if len(now.masks) == 1 else not now.can_undo,
    )
    draw_head_switches(np.zeros(4), now.grid, now.mask.kept, key="grid", on_switch=now.switch)


def test_numbers_of_a_tab_only_grow():
    log, _ = listening()
    for sent in itertools.permutations([event(1), event(1, 2), event(1, 2, 3)]):
        for one in sent:
            log.take(one)
        assert log.last_number_by_tab["a"] == 3


def test_a_file_made_on_demand_is_there_when_the_browser_asks_late(monkeypatch):
    storage = MemoryMediaFileStorage("/media")
    files = MediaFileManager(storage)
    monkeypatch.setattr(runtime, "get_instance", lambda: SimpleNamespace(media_file_mgr=files))
    monkeypatch.setattr(runtime, "exists", lambda: True)

    def made(text: str) -> str:
        make = partial(presses.kept_content, lambda: text, "é.txt", "text/plain")
        url = files.execute_deferred(files.add_deferred(make, "text/plain", "0.1", "é.txt"))
        for _ in range(3):  # runs end, of anybody
            files.remove_orphaned_files()
        return url.rpartition("/")[2]

    def gone(name: str) -> bool:
        try:
            file = storage.get_file(name)
        except MediaFileStorageError:
            return True
        assert (file.filename, file.kind) == ("é.txt", MediaFileKind.DOWNLOADABLE)
        return False

    names = [made(f"file {n}") for n in range(presses.MAX_KEPT_FILES)]
    assert storage.get_file(names[0]).content == b"file 0"
    assert not any(map(gone, names))
    made("one more")  # and it does not grow without end
    files.remove_orphaned_files()
    assert [gone(name) for name in names].count(True) == 1
