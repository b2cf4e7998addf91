"""A timer's request of a page that the browser has left, at Streamlit's server, as a program.

    python -m support.left_page             Streamlit as it is
    python -m support.left_page --mended    with headlab's `leave_out_requests_of_left_pages`

The timer is part of every page. Its request, made on the first page, arrives after that for the
second page. Printed are, as JSON, the pages in whose name the server answers the two, in order,
each with the texts drawn on it. Where the late request is left out, the timer of the second page
asks in its place.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from starlette.testclient import TestClient
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.app_session import AppSession
from streamlit.starlette import App

from headlab.dashboard.streamlit_private import leave_out_requests_of_left_pages
from support.ended_run import ask_to_run, messages

APP = """
import streamlit as st
from support.left_page import wait_for_timer

def first() -> None:
    st.write("first page")

def second() -> None:
    wait_for_timer()
    st.write("second page")

page = st.navigation([st.Page(first, default=True), st.Page(second)])
st.fragment(lambda: st.write("timer"), run_every=3600)()
page.run()
"""

PATIENCE_SECONDS = 60.0
"""How long the second page waits for the timer's request, which comes at once."""

timer_has_asked = threading.Event()
take_message = AppSession.handle_backmsg


def wait_for_timer() -> None:
    """Let the second page's run wait until the server has taken the timer's request."""
    timer_has_asked.wait(PATIENCE_SECONDS)


def take_and_notice(session: AppSession, message: BackMsg) -> None:
    """Stand in for `AppSession.handle_backmsg`, and notice the request of the timer."""
    take_message(session, message)
    if message.rerun_script.fragment_id:
        timer_has_asked.set()


def read_run(received: Iterator[ForwardMsg]) -> tuple[str, list[str], list[ForwardMsg]]:
    """The hash of the page of the next run, the texts that it draws, and all of its messages."""
    page_hash = ""
    texts: list[str] = []
    messages_of_run: list[ForwardMsg] = []
    for message in received:
        messages_of_run.append(message)
        kind = message.WhichOneof("type")
        if kind == "new_session":
            page_hash = message.new_session.page_script_hash
        elif kind == "delta" and (text := message.delta.new_element.markdown.body):
            texts.append(text)
        elif kind == "script_finished":
            break
    return page_hash, texts, messages_of_run


def main() -> None:
    """Turn to the second page, ask for the first page's timer, and say what is answered."""
    is_mended = "--mended" in sys.argv[1:]
    if is_mended:
        leave_out_requests_of_left_pages()
    AppSession.handle_backmsg = take_and_notice  # type: ignore[method-assign]
    entry = Path(tempfile.mkdtemp()) / "entry.py"
    entry.write_text(APP, "utf-8")
    with (
        TestClient(App(str(entry)), base_url="http://localhost") as client,
        client.websocket_connect("/_stcore/stream", subprotocols=["streamlit"]) as socket,
    ):
        received = messages(socket)
        ask_to_run(socket)
        _, _, messages_of_first_run = read_run(received)
        fragment_id = ""
        hash_by_title: dict[str, str] = {}
        for message in messages_of_first_run:
            kind = message.WhichOneof("type")
            if kind == "auto_rerun":
                fragment_id = message.auto_rerun.fragment_id
            elif kind == "navigation":
                for page in message.navigation.app_pages:
                    hash_by_title[page.page_name] = page.page_script_hash
        title_by_hash = {page_hash: title for title, page_hash in hash_by_title.items()}
        ask_to_run(socket, page_hash=hash_by_title["second"])
        ask_to_run(socket, fragment_id, hash_by_title["first"])  # too late
        answers: list[tuple[str, list[str]]] = []
        for _ in range(2):
            page_hash, texts, _ = read_run(received)
            answers.append((title_by_hash[page_hash], texts))
            if is_mended and len(answers) == 1:  # the timer of the page turned to is answered
                ask_to_run(socket, fragment_id, hash_by_title["second"])
        sys.stdout.write(json.dumps(answers))
        sys.stdout.flush()
        os._exit(0)  # a server whose messages are lost may not end


if __name__ == "__main__":
    from support import left_page  # the module that the app imports, which is another one

    left_page.main()
