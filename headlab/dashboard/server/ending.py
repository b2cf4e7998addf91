"""How the app ends on Ctrl-C or a request to terminate: in order, and with its worker.

The process ends as a success.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType

from streamlit.starlette import App

from headlab.dashboard.streamlit_private import (
    deliver_ended_runs_first,
    leave_out_requests_of_left_pages,
    let_runs_take_turns_with_state,
    running_server,
)

# SIGQUIT is missing on Windows, SIGBREAK elsewhere.
SIGNAL_NAMES = ("SIGINT", "SIGTERM", "SIGQUIT", "SIGBREAK")


@asynccontextmanager
async def lifespan(_app: App) -> AsyncIterator[None]:
    """What the app's server enters as it starts and leaves as it ends."""
    deliver_ended_runs_first()
    leave_out_requests_of_left_pages()
    let_runs_take_turns_with_state()
    end_in_order()
    yield


def end_in_order() -> None:
    """Let a signal end the server of this process.

    The process then ends as if by itself.

    Left alone, uvicorn sends itself the signal again once its server has stopped. That kills the
    process before it does what is registered for its exit, as is the end of its worker.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    server = running_server()
    if server is None:
        return

    def stop(signal_number: int, _frame: FrameType | None) -> None:
        """Stop the server; a second Ctrl-C does not wait for its connections."""
        if server.should_exit and signal_number == signal.SIGINT:
            server.force_exit = True
        server.should_exit = True

    for name in SIGNAL_NAMES:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), stop)
