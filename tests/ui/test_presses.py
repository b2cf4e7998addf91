"""The log of presses: each press is taken once, in order, and its action is not interrupted."""

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
from support.page_actions import press

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
    """A browser's message with presses of one button; each has its number as its value."""
    return {"tab": tab, "presses": [[number, key, number] for number in numbers]}


def log_and_taken_values(*keys: str) -> tuple[PressLog, list]:
    """A log whose actions note the values of the presses that it takes."""
    taken_values: list = []
    return PressLog(actions=dict.fromkeys(keys or ("k",), taken_values.append)), taken_values


def test_what_is_sent_again_is_taken_once():
    log, taken_values = log_and_taken_values()
    for message in (event(1), event(1, 2), event(1, 2), event(2, 3)):
        log.take(message)
    assert taken_values == [1, 2, 3]


def test_presses_of_one_message_are_taken_in_the_order_of_their_numbers():
    log, taken_values = log_and_taken_values("k", "other")
    log.take(
        {"tab": "a", "presses": [[3, "k", "third"], [1, "other", "first"], [2, "k", "second"]]}
    )
    assert taken_values == ["first", "second", "third"]


def test_each_tab_counts_its_own_presses():
    log, taken_values = log_and_taken_values()
    log.take(event(5, tab="a"))
    log.take(event(1, tab="b"))
    assert taken_values == [5, 1]


def test_a_press_of_an_unknown_button_does_nothing_and_holds_nothing_up():
    log, taken_values = log_and_taken_values()
    log.take(
        {
            "tab": "a",
            "presses": [[1, "gone", 1], [2, "k", 2]],
        }
    )
    assert taken_values == [2]
    assert log.last_number_by_tab == {"a": 2}


def test_an_action_that_fails_is_not_tried_again_and_the_next_is():
    log, taken_values = log_and_taken_values()
    log.actions["bad"] = lambda _: 1 / 0
    message = {
        "tab": "a",
        "presses": [[1, "bad", 1], [2, "k", 2]],
    }
    with pytest.raises(ZeroDivisionError):
        log.take(message)
    log.take(message)
    assert taken_values == [2]


@given(some.data())
def test_messages_that_each_hold_all_untaken_presses_take_each_press_once(data):
    """Messages may be repeated, merged into the newest or lost, as long as another one comes."""
    log, taken_values = log_and_taken_values()
    press_count = 0
    for _ in range(data.draw(some.integers(1, 12))):
        press_count += data.draw(some.integers(0, 3))
        next_number = log.last_number_by_tab.get("a", 0) + 1
        message = event(*range(next_number, press_count + 1))
        for _ in range(data.draw(some.integers(0, 2))):
            log.take(message)
    next_number = log.last_number_by_tab.get("a", 0) + 1
    log.take(event(*range(next_number, press_count + 1)))
    assert taken_values == list(range(1, press_count + 1))


def test_another_request_waits_for_the_action_of_a_press(monkeypatch):
    requests = ScriptRequests()
    requests.on_scriptrunner_ready()  # streamlit asks so before its first run
    requests = ScriptRequests()
    monkeypatch.setattr(
        streamlit_private,
        "get_script_run_ctx",
        lambda: SimpleNamespace(script_requests=requests),
    )
    requests_let_through = []

    def touch_session_state():
        requests_let_through.append(requests.on_scriptrunner_yield())

    def change():
        requests.request_rerun(RerunData(query_string="next"))
        touch_session_state()
        uninterrupted(touch_session_state)()
        touch_session_state()

    uninterrupted(change)()
    assert requests_let_through == [None, None, None]
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
    """A session with a list of heads, which shows head a, and a log of presses that pick heads.

    It counts how often the list's value is set: Streamlit sends it to the browser each time.
    """

    class State(dict):
        sets = 0

        def __setitem__(self, key, value):
            self.sets += key == "head"
            super().__setitem__(key, value)

    log = PressLog(actions={"grid": lambda head: set_widget("head", head)})
    session_state = State({"head": "a", presses.LOG_KEY: log})
    monkeypatch.setattr(presses.st, "session_state", session_state)
    return session_state


@pytest.fixture
def head_after_request(monkeypatch, state):
    """A function that makes a request and gives the head that its run shows."""
    browser_widgets: list = []
    browser_state = SimpleNamespace(get_widget_states=lambda: browser_widgets)
    context = SimpleNamespace(fragment_ids_this_run=["timer"], session_state=browser_state)
    monkeypatch.setattr(presses, "draw", lambda *_: None)
    monkeypatch.setattr(streamlit_private, "get_script_run_ctx", lambda: context)
    monkeypatch.setattr(presses.st, "fragment", lambda look, run_every: look)

    def request(
        browser_head: str | None,
        *numbers_and_heads: tuple[int, str],
        completes: bool = True,
        timer: bool = False,
        part: bool = False,
    ) -> str:
        """Run the page once and give the head that it shows.

        Args:
            browser_head: The head in the browser's list; None while the list is not drawn.
            numbers_and_heads: The number and the head of each press that the request brings.
            completes: Whether the run ends by itself, not because of another request.
            timer: Whether a timer made the request, so that only a part is redrawn.
            part: Whether a person chose in a part of the page, so that only that is redrawn.
        """
        browser_widgets.clear()
        if browser_head is not None:
            browser_widgets.append(SimpleNamespace(id="$$ID-0-head"))
            dict.__setitem__(state, "head", browser_head)
        if timer or part:
            redraw = redraw_every(lambda: None, None)
            context.fragment_ids_this_run = ["board"] if part else None
            redraw()  # in the run that made it
            context.fragment_ids_this_run = ["timer"]
            if timer:
                redraw()
            return state["head"]
        grid_presses = [[number, "grid", head] for number, head in numbers_and_heads]
        state[presses.LOG_KEY].take({"tab": "t", "presses": grid_presses})
        presses.draw_log_root("", [])
        if completes:
            presses.mark_page_drawn()
        return state["head"]

    return request


def test_a_pick_survives_requests_made_before_it_was_drawn(head_after_request):
    assert head_after_request("a", (1, "b"), completes=False) == "b"
    assert head_after_request("a", completes=False) == "b"
    assert head_after_request("a", (2, "c"), completes=False) == "c"
    assert head_after_request("b", completes=False) == "c"
    assert head_after_request("a") == "c"


def test_a_pick_survives_its_own_press_sent_again_after_the_run(head_after_request):
    assert head_after_request("a", (1, "b")) == "b"
    assert head_after_request("a", (1, "b")) == "b"
    assert head_after_request("a", (1, "b"), (2, "c")) == "c"


def test_a_pick_survives_requests_of_timers(head_after_request):
    assert head_after_request("a", (1, "b")) == "b"
    assert head_after_request("a", timer=True) == "b"
    assert head_after_request("b") == "b"
    assert head_after_request("a") == "a"  # chosen from the list
    assert head_after_request("a", timer=True) == "a"


def test_a_choice_in_a_part_of_the_page_stands_against_timers(head_after_request):
    """As of the examples on the Prune page after "What does it do on test?"."""
    assert head_after_request("a", (1, "b")) == "b"
    assert head_after_request("a", part=True) == "a"
    assert head_after_request("a", timer=True) == "a"


def test_a_pick_that_was_not_drawn_yet_is_not_overruled_in_a_part(head_after_request):
    assert head_after_request("a", (1, "b"), completes=False) == "b"
    head_after_request("a", part=True)
    assert head_after_request("a", timer=True) == "b"


def test_a_pick_is_sent_with_every_run_until_the_browser_has_drawn_its_list(
    head_after_request, state
):
    assert head_after_request(None, (1, "b")) == "b"
    for _ in range(2):
        sets_before = state.sets
        assert head_after_request(None) == "b"
        assert state.sets == sets_before + 1
    assert head_after_request("b") == "b"
    sets_before = state.sets
    assert head_after_request(None) == "b"  # the page no longer has the list
    assert state.sets == sets_before


def test_a_pick_does_not_outlive_its_page(head_after_request, state):
    assert head_after_request(None, (1, "b")) == "b"
    presses.draw_log_root("another page", [])
    sets_before = state.sets
    presses.draw_log_root("another page", [])
    assert state.sets == sets_before


def test_a_field_that_was_cleared_before_the_page_was_drawn_stays_empty(state, head_after_request):
    set_first_value("size", 5)
    state["size"] = None
    head_after_request("a", completes=False)
    assert state["size"] is None


def test_what_a_person_chooses_from_the_list_wins_over_a_pick(head_after_request):
    assert head_after_request("a", (1, "b"), completes=False) == "b"
    assert head_after_request("c", completes=False) == "c"  # not what it showed before
    assert head_after_request("a", (2, "b")) == "b"
    assert head_after_request("a") == "a"  # the run before was complete, so the list showed b


def page():
    import streamlit as st

    from headlab.dashboard.widgets import Button, button, button_row

    taken_values = st.session_state.setdefault("taken_values", [])
    button(
        "Start",
        key="start",
        on_press=taken_values.append,
        args=(st.number_input("n", value=1),),
        kind="primary",
    )
    button_row(
        Button("A", "a", taken_values.append, ("a",)),
        Button("B", "b", taken_values.append, ("b",), disabled=len(taken_values) > 1),
    )
    st.text(" ".join(map(str, taken_values)))


@pytest.mark.usefixtures("native_buttons")
def test_a_press_runs_the_action_that_its_button_was_drawn_with():
    app = AppTest.from_function(page).run()
    for key in ("a", "b"):
        press(app, key)
    assert app.text[0].value == "a b"
    assert app.button(key="b").disabled
    # This press was sent while the person still saw the button as enabled.
    app.session_state["_presses"].take({"tab": "late", "presses": [[1, "b", None]]})
    assert app.run().text[0].value == "a b b"


def test_an_undo_counts_though_an_earlier_undo_had_disabled_its_button():
    """The browser does not show yet that the button was disabled."""
    grid = HeadGrid((Stack("encoder", (2, 2)),))
    app = AppTest.from_function(undo_page).run()
    log = app.session_state["_presses"]
    history = app.session_state["history"]
    first_head_off = {"heads": [0], "on": False}
    log.take(
        {
            "tab": "a",
            "presses": [[1, "grid", first_head_off], [2, "undo", None]],
        }
    )
    app.run()
    log.take(
        {
            "tab": "a",
            "presses": [[3, "grid", first_head_off], [4, "undo", None]],
        }
    )
    assert history.mask.kept.all()
    assert history.grid == grid


def undo_page():
    import numpy as np
    import streamlit as st

    from headlab.core import HeadGrid, Stack
    from headlab.dashboard.panels.masks.history import MaskHistory
    from headlab.dashboard.widgets import button, draw_head_switches

    grid = HeadGrid((Stack("encoder", (2, 2)),))
    history = st.session_state.setdefault("history", MaskHistory(grid))
    button(
        "Undo",
        key="undo",
        on_press=history.undo,
        disabled=len(history.masks) != 1 and not history.can_undo,
    )
    draw_head_switches(
        np.zeros(4), history.grid, history.mask.kept, key="grid", on_switch=history.switch
    )


def test_the_last_number_of_a_tab_only_grows():
    log, _ = log_and_taken_values()
    for messages in itertools.permutations([event(1), event(1, 2), event(1, 2, 3)]):
        for message in messages:
            log.take(message)
        assert log.last_number_by_tab["a"] == 3


def test_a_file_made_on_demand_is_there_when_the_browser_asks_late(monkeypatch):
    storage = MemoryMediaFileStorage("/media")
    files = MediaFileManager(storage)
    monkeypatch.setattr(runtime, "get_instance", lambda: SimpleNamespace(media_file_mgr=files))
    monkeypatch.setattr(runtime, "exists", lambda: True)

    def make_file(text: str) -> str:
        make = partial(presses.kept_content, lambda: text, "é.txt", "text/plain")
        url = files.execute_deferred(files.add_deferred(make, "text/plain", "0.1", "é.txt"))
        for _ in range(3):  # runs of any session end
            files.remove_orphaned_files()
        return url.rpartition("/")[2]

    def is_removed(name: str) -> bool:
        try:
            file = storage.get_file(name)
        except MediaFileStorageError:
            return True
        assert file.filename == "é.txt"
        assert file.kind == MediaFileKind.DOWNLOADABLE
        return False

    names = [make_file(f"file {n}") for n in range(presses.MAX_KEPT_FILES)]
    assert storage.get_file(names[0]).content == b"file 0"
    assert not any(map(is_removed, names))
    make_file("one more")  # the oldest makes room
    files.remove_orphaned_files()
    assert [is_removed(name) for name in names].count(True) == 1


def test_a_button_of_an_earlier_run_still_makes_its_file(monkeypatch):
    files = MediaFileManager(MemoryMediaFileStorage("/media"))
    monkeypatch.setattr(runtime, "get_instance", lambda: SimpleNamespace(media_file_mgr=files))
    monkeypatch.setattr(runtime, "exists", lambda: True)
    streamlit_private.keep_deferred_files(max_outdated=3)

    def button_id_of_run(number: int) -> str:
        files.clear_session_refs()
        return files.add_deferred(f"file {number}".encode, "text/plain", "0.1", "name.txt")

    button_ids = []
    for number in range(5):
        button_ids.append(button_id_of_run(number))
        files.remove_orphaned_files()
    with pytest.raises(MediaFileStorageError):  # the oldest made room
        files.execute_deferred(button_ids[0])
    for number in range(1, 5):
        url = files.execute_deferred(button_ids[number])
        file = files.read_file(url.rpartition("/")[2].partition(".")[0])
        assert file is not None
        assert file.content == f"file {number}".encode()
