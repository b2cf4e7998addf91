"""Everything of Streamlit that headlab relies on although Streamlit does not document it.

No other module of the dashboard imports a private name of Streamlit. Each name stands behind a
function whose docstring says what headlab needs it for and what would break without it; at the end
are the parts of Streamlit's page that our styles and scripts in `static/` look for.
tests/ui/test_streamlit_private.py compares all of it with the installed Streamlit, and
docs/contributing.md says what to do when Streamlit is upgraded.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import streamlit as st
import uvicorn
from streamlit import runtime
from streamlit.delta_generator import DeltaGenerator
from streamlit.elements.lib.mutable_popover_container import PopoverContainer
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetStates
from streamlit.runtime.app_session import AppSession, AppSessionState
from streamlit.runtime.pages_manager import PagesManager
from streamlit.runtime.scriptrunner import RerunData, ScriptRunner, get_script_run_ctx
from streamlit.runtime.scriptrunner_utils.run_descriptor import RunDescriptor
from streamlit.runtime.scriptrunner_utils.script_requests import ScriptRequestType
from streamlit.runtime.state import SafeSessionState, SessionState
from streamlit.runtime.state.common import user_key_from_element_id
from streamlit.source_util import PageInfo
from streamlit.web.server.starlette import starlette_websocket

# The minor version of Streamlit whose private names are used here; pyproject.toml admits no other.
TESTED_MINOR = "1.67"

DELIVERY_SECONDS = 0.01
"""How often an ended run is looked at that has not delivered all that it has drawn."""

Placeholder: TypeAlias = DeltaGenerator
"""What `st.empty` and `st.container` give: a type for arguments.

`streamlit.typing` does not have it.
"""

Popover: TypeAlias = PopoverContainer
"""What `st.popover` gives: a type for arguments that are looked at for being unfolded."""


# The request that a run answers.


def is_fragment_run() -> bool:
    """Whether the request redraws fragments only.

    One of their timers has made it, or a widget in one.

    A fragment that redraws itself puts back what the program set, as its timer's request brings
    what the browser showed before. Were this always false, a timer could undo a press.
    """
    context = get_script_run_ctx()
    return context is not None and bool(context.fragment_ids_this_run)


def keys_in_request() -> set[str | None]:
    """Keys of the widgets whose values the request brought; None stands for those without a key.

    A value that the program set is sent until the browser has drawn its widget, which is when a
    request brings it. Were this empty, values would be sent for ever; were it too full, a browser
    that was slow would lose a pick.
    """
    context = get_script_run_ctx()
    if context is None:
        return set()
    return {
        user_key_from_element_id(widget.id) for widget in context.session_state.get_widget_states()
    }


# Requests that arrive while a run is under way.


@contextmanager
def without_interruption() -> Iterator[None]:
    """Let other requests wait until the block has ended.

    Streamlit asks for a waiting request whenever session state is read or written, and ends the run
    for it. Without this a press could be acted on by half.
    """
    context = get_script_run_ctx()
    requests = None if context is None else context.script_requests
    if requests is None or "on_scriptrunner_yield" in vars(requests):
        yield
        return
    vars(requests)["on_scriptrunner_yield"] = lambda: None
    try:
        yield
    finally:
        del vars(requests)["on_scriptrunner_yield"]


def let_requests_through() -> None:
    """End this run here if another request waits.

    Streamlit looks for one whenever session state is read. Without this a page switch would wait
    for the worker.
    """
    st.session_state.get("_")


def session_values() -> dict[str, object]:
    """A copy of session state and of the values of keyed widgets, by key, all taken at one moment.

    Reading them one after the other fails where the next run takes one away meanwhile, and with it
    a press.
    """
    return st.session_state.to_dict()


def deliver_ended_runs_first() -> None:
    """Let a timer's request wait until all that an ended run has drawn is on its way to the browser.

    Streamlit answers a fragment's request that comes just as a run ends with a new script runner,
    and drops what the former one has drawn but the server's event loop has not sent yet. On a busy
    server that was the end of a page: buttons were missing, and without its timers nothing was drawn
    any more until a reload.
    """
    create_runner = AppSession._create_scriptrunner
    if create_runner.__module__ == __name__:  # it is ours already
        return

    def create_once_delivered(self: AppSession, initial_rerun_data: RerunData) -> None:
        if self._scriptrunner is None:  # its last event has arrived, or a full run replaces it
            create_runner(self, initial_rerun_data)
            return
        self._event_loop.call_later(
            DELIVERY_SECONDS, ask_again, self, initial_rerun_data, self._scriptrunner
        )

    def ask_again(
        session: AppSession, rerun_data: RerunData, ended_runner: ScriptRunner | None
    ) -> None:
        fragment_id = rerun_data.fragment_id
        is_over = session._state == AppSessionState.SHUTDOWN_REQUESTED
        if is_over or (fragment_id and not session.has_fragment(fragment_id)):
            return
        if fragment_id and _is_of_left_page(session, rerun_data.page_script_hash):
            return
        runner = session._scriptrunner
        if runner not in (None, ended_runner):
            # A newer request came meanwhile: what the browser's widgets showed before is outdated.
            rerun_data = replace(rerun_data, widget_states=None)
        if runner is None or not runner.request_rerun(rerun_data):
            create_once_delivered(session, rerun_data)

    AppSession._create_scriptrunner = create_once_delivered  # type: ignore[method-assign]


@cache
def _locks_by_state() -> WeakValueDictionary[int, Any]:
    """The lock that the runs of a session share, by the identity of the session's state.

    Each run holds its lock, and with it the state, so that no identity is used again while it
    counts. Streamlit gives each run a lock of its own, and its state has no room for another field.
    """
    return WeakValueDictionary()


def let_runs_take_turns_with_state() -> None:
    """Let the runs of a session change its state one at a time, and a stopped run not at all.

    Streamlit begins the run of a person's request in a thread of its own while the former one, which
    it has told to stop, may still be taking in a timer's request or ending. Each has a lock of its
    own for the state that they share. So one clears the values of the browser's widgets that the
    other has just taken in: what a person chose is lost, and the page is drawn with the value
    before. Here they share one lock, look under it whether they were stopped, and let go of it while
    a callback runs, which may wait for another run.
    """
    make_state = SafeSessionState.__init__
    finish = SafeSessionState.on_script_finished
    run_callback = SessionState._run_callback_and_record_rerun
    if make_state.__module__ == __name__:  # it is ours already
        return

    def make_state_with_shared_lock(
        self: SafeSessionState, state: SessionState, yield_callback: Callable[[], None]
    ) -> None:
        make_state(self, state, yield_callback)
        shared_lock = _locks_by_state().setdefault(id(state), threading.RLock())
        object.__setattr__(self, "_lock", shared_lock)

    def take_in_request(
        self: SafeSessionState, fresh_widget_states: WidgetStates | None, **options: Any
    ) -> None:
        with self._lock:
            self._yield_callback()  # ends the run here if it was stopped
            self._state.on_script_will_rerun(fresh_widget_states, **options)

    def finish_unless_stopped(
        self: SafeSessionState, widget_ids_this_run: frozenset[str], **options: Any
    ) -> None:
        with self._lock:
            if not _is_run_stopped():
                finish(self, widget_ids_this_run, **options)

    def run_callback_unlocked(self: SessionState, votes: Any, callback: Callable[[], None]) -> None:
        shared_lock = _locks_by_state()[id(self)]

        def run_unlocked() -> None:
            shared_lock.release()
            try:
                callback()
            finally:
                shared_lock.acquire()

        run_callback(self, votes, run_unlocked)

    SafeSessionState.__init__ = make_state_with_shared_lock  # type: ignore[method-assign]
    SafeSessionState.on_script_will_rerun = take_in_request  # type: ignore[method-assign]
    SafeSessionState.on_script_finished = finish_unless_stopped  # type: ignore[method-assign]
    SessionState._run_callback_and_record_rerun = (  # type: ignore[method-assign]
        run_callback_unlocked  # type: ignore[assignment]
    )


def _is_run_stopped() -> bool:
    """Whether the run of this thread was told to stop, as another one has taken its place.

    Its end must not tidy the state that the other one uses: that would drop what the browser has
    just brought.
    """
    context = get_script_run_ctx()
    requests = None if context is None else context.script_requests
    return requests is not None and requests._state == ScriptRequestType.STOP


PAGE_TURNED_TO = "_headlab_page_turned_to"
"""Where a session keeps the hash of the page that it was last asked for or began to run."""


def leave_out_requests_of_left_pages() -> None:
    """Leave out the request of a fragment that the browser made on a page which it has left.

    A part of every page, such as the sidebar's state of the worker, has the same fragment on each.
    Its timer's request from the page before may be answered after the page that was turned to.
    Streamlit answers in the name of the page before, so the browser takes away the page that it
    shows, and nothing draws it again. The new page has a timer of its own. What a person chose in
    such a part is in the browser's next request as well.
    """
    take_request = AppSession.request_rerun
    make_new_session = AppSession._create_new_session_message
    if take_request.__module__ == __name__:  # it is ours already
        return

    def take_request_of_page(self: AppSession, client_state: ClientState | None) -> None:
        if client_state is not None:
            page_hash = client_state.page_script_hash
            if not client_state.fragment_id:
                _note_turn(self, page_hash)
            elif _is_of_left_page(self, page_hash):
                return
        take_request(self, client_state)

    def make_new_session_of_page(
        self: AppSession,
        page_script_hash: str,
        run_descriptor: RunDescriptor,
        pages: dict[str, PageInfo] | None = None,
    ) -> ForwardMsg:
        if not run_descriptor.fragment_ids:  # the server may have turned to a page by itself
            _note_turn(self, page_script_hash)
        return make_new_session(self, page_script_hash, run_descriptor, pages)

    AppSession.request_rerun = take_request_of_page  # type: ignore[method-assign]
    AppSession._create_new_session_message = make_new_session_of_page  # type: ignore[method-assign]


def _note_turn(session: AppSession, page_hash: str) -> None:
    """Note the page that a session turns to; empty while the hash is not yet that of a page.

    So it is for a session's first request: its run finds the page by its name.
    """
    manager = session._pages_manager
    is_known = page_hash in manager.get_pages() and page_hash != manager.main_script_hash
    vars(session)[PAGE_TURNED_TO] = page_hash if is_known else ""


def _is_of_left_page(session: AppSession, page_hash: str) -> bool:
    """Whether a fragment's request was made on another page than the session has turned to.

    Its answer would empty the page that the browser shows by now.
    """
    page_turned_to = vars(session).get(PAGE_TURNED_TO, "")
    return bool(page_turned_to) and page_hash != page_turned_to


# Files, pages, connections.


def serve_download(content: bytes, mime_type: str, place: str, file_name: str) -> None:
    """Let the server keep a file for download until another is kept at the same place.

    Nothing without a server.

    Streamlit forgets the file of a button that makes it on demand after two runs of anybody, so on
    a busy server the browser would ask for it too late.

    Args:
        content: Of the file.
        mime_type: Of the file.
        place: A name of our own, where Streamlit expects the place of an element on the page.
        file_name: Under which the browser saves it.
    """
    if runtime.exists():
        runtime.get_instance().media_file_mgr.add(
            content, mime_type, place, file_name, is_for_static_download=True
        )


def keep_deferred_files(max_outdated: int) -> None:
    """Let buttons of earlier runs still make their file on demand.

    Nothing without a server.

    Streamlit gives such a button a new id in each run, and forgets the earlier one when any run of
    anybody ends. A press while the page was redrawn brought an id that was forgotten, and saved
    nothing.

    Args:
        max_outdated: How many ids that no page refers to any more are kept, the newest, of
            everybody.
    """
    if not runtime.exists():
        return
    files = runtime.get_instance().media_file_mgr

    def forget_outdated_ids() -> None:
        current_ids: set[str] = set()
        for ids_by_place in files._files_by_session_and_coord.values():
            current_ids.update(ids_by_place.values())
        outdated_ids = [id_ for id_ in files._deferred_callables if id_ not in current_ids]
        for outdated_id in outdated_ids[: max(0, len(outdated_ids) - max_outdated)]:
            files._drop_deferred_id(outdated_id)

    # The method's callers hold the lock.
    vars(files)["_remove_orphaned_deferred_callables"] = forget_outdated_ids


def leave_pages_folder() -> bool:
    """Tell Streamlit that the folder `pages/` is not a list of pages.

    Whether it had taken it for one.

    It does until `st.navigation` has been called once. Without this the first link straight to a
    page, on a server that was just started, would show the page without its frame.
    """
    if not PagesManager.uses_pages_directory:
        return False
    PagesManager.uses_pages_directory = False
    return True


def is_host_allowed(host: str) -> bool:
    """Whether Streamlit accepts a connection under this host name.

    Its option `server.allowedHosts` says so.

    The app explains a refusal; without this it could not tell which of two reasons it was.

    Args:
        host: Of a Host header, with or without a port.
    """
    return starlette_websocket.is_host_allowed(host)


HEALTH_PATH = "/_stcore/health"
"""Asked by Streamlit's page when it cannot connect.

It shows a person the answer, unless its status is 200 or 403.
"""


def running_server() -> uvicorn.Server | None:
    """The server in which Streamlit runs the app, in the main thread.

    None where it is not one of uvicorn.

    It is found by its handler of signals. Without it the app's worker would go on after a request
    to terminate.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    if isinstance(server, uvicorn.Server):
        return server
    return None


# The page in the browser.


def css_class(key: str) -> str:
    """A widget's key as Streamlit's page writes it after `st-key-` into the class of its element.

    `static/buttons.js` sends the numbers of a form by these classes. Were they others, a number
    that was typed just before a press could be lost.
    """
    return re.sub(r"[^a-zA-Z0-9_-]", "-", key.strip())


PAGE_SELECTORS = {
    '[data-testid="stMain"]': "page.css: less room above the titles of Prune and Overview",
    '[data-testid="stHeader"]': "page.css: the navigation stands in its place",
    '[data-testid="stMainBlockContainer"]': "page.css: margins and width of every page",
    '[data-testid="stHorizontalBlock"]': "page.css: map and card of Heads and Roles side by side",
    '[data-testid="stPageLink"]': "page.css: links below the Overview's findings in several lines",
    '[data-testid="stMetricValue"]': "page.css: size and paleness of the Prune page's figures",
    '[data-testid="stMetricDelta"]': "page.css: what stands below a figure, in several lines",
    '[data-testid="stRadio"]': "page.css: the choice of examples beside its name",
    '[data-testid="stCaptionContainer"]': "page.css: contrast of small text",
    '[data-testid="stMultiSelectTagsContainer"]': "page.css: chosen values are no alarm in red",
    "[data-tag]": "page.css: one chosen value",
    'a[data-testid="stPageLink-NavLink"]': "root.js: a page that was turned to is asked for again",
    '[data-testid="stNumberInput"]': "buttons.js: numbers of a form, sent with its press",
    '[data-testid="stElementContainer"]': "attention.js: room for the frame with BertViz' drawing",
    ".stApp": "attention.js: colour of the text in that frame",
    ".js-plotly-plot": "savefigure.js: the figure to save",
    '.modebar-btn[aria-label^="Download plot"]': "savefigure.js: plotly's own button that saves",
}
"""Selector of a part of Streamlit's page: where it is used, and what breaks without it."""

PAGE_NAMES = {
    "_context": "savefigure.js: plotly's options of the figure, in which the file's are put",
    "toImageButtonOptions": "savefigure.js: plotly's name of those options",
    "history.pushState": "root.js: what Streamlit calls for each change of the link",
    "Material Symbols Rounded": "buttons.css: the font that draws icons",
    "Source Sans": "attention.css: the font of the page, in BertViz' frame",
}
"""Name in the scripts and fonts of Streamlit's page: where it is used."""
