"""A fragment's request that reaches Streamlit's server just as a full run ends, as a program.

    python -m support.ended_run             Streamlit as it is
    python -m support.ended_run --mended    with headlab's `deliver_ended_runs_first`

It prints, as JSON, the texts that the browser was sent since the full run began.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from starlette.testclient import TestClient, WebSocketTestSession
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.app_session import AppSession
from streamlit.starlette import App

from headlab.dashboard.streamlit_private import deliver_ended_runs_first

PAGE = """
import streamlit as st
from support.ended_run import wait_half_way

st.fragment(lambda: st.write("timer"), run_every=3600)()
st.write("first half")
wait_half_way()
st.write("second half")
"""
TEXTS_OF_PAGE = ["timer", "first half", "second half"]
PATIENCE_SECONDS = 60.0
"""How long the run and the request wait for each other; both come at once."""

is_held = threading.Event()
request_arrived = threading.Event()


def wait_half_way() -> None:
    """Let the page's run wait for the fragment's request, once `is_held` is set."""
    if is_held.is_set():
        request_arrived.wait(PATIENCE_SECONDS)


has_fragment = AppSession.has_fragment


def end_run_first(session: AppSession, fragment_id: str) -> bool:
    """Stand in for `AppSession.has_fragment`, which Streamlit asks before it looks at the run.

    The event loop stands still here, as on a busy server, until the run's thread has ended.
    """
    request_arrived.set()
    for thread in threading.enumerate():
        if thread.name == "ScriptRunner.scriptThread":
            thread.join(PATIENCE_SECONDS)
    return has_fragment(session, fragment_id)


def ask_to_run(socket: WebSocketTestSession, fragment_id: str = "", page_hash: str = "") -> None:
    """Ask for a run of a page, the first one by default, or of a fragment as its timer there would."""
    message = BackMsg()
    message.rerun_script.page_script_hash = page_hash
    message.rerun_script.fragment_id = fragment_id
    message.rerun_script.is_auto_rerun = bool(fragment_id)
    socket.send_bytes(message.SerializeToString())


def messages(socket: WebSocketTestSession) -> Iterator[ForwardMsg]:
    """What the server sends to the browser."""
    while True:
        message = ForwardMsg()
        message.ParseFromString(socket.receive_bytes())
        yield message


def main() -> None:
    """Print the texts when the fragment's run, which is the last one, has ended."""
    if "--mended" in sys.argv[1:]:
        deliver_ended_runs_first()
    page = Path(tempfile.mkdtemp()) / "page.py"
    page.write_text(PAGE, "utf-8")
    texts: list[str] = []
    with (
        TestClient(App(str(page)), base_url="http://localhost") as client,
        client.websocket_connect("/_stcore/stream", subprotocols=["streamlit"]) as socket,
    ):
        received = messages(socket)
        ask_to_run(socket)
        fragment_id = ""
        for message in received:
            if message.WhichOneof("type") == "auto_rerun":
                fragment_id = message.auto_rerun.fragment_id
            if message.WhichOneof("type") == "script_finished":
                break
        AppSession.has_fragment = end_run_first  # type: ignore[method-assign]
        is_held.set()
        ask_to_run(socket)
        for message in received:
            if text := message.delta.new_element.markdown.body:
                texts.append(text)
                if texts == TEXTS_OF_PAGE[:2]:
                    ask_to_run(socket, fragment_id)
            if message.script_finished == ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY:
                break
        sys.stdout.write(json.dumps(texts))
        sys.stdout.flush()
        os._exit(0)  # a server whose messages are lost may not end


if __name__ == "__main__":
    from support import ended_run  # the module that the page imports, which is another one

    ended_run.main()
