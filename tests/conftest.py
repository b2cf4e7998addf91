"""What several test files share."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

# One thread for a test process and what it starts, set before NumPy and torch are loaded: the
# threads of two processes on two cores wait for each other by spinning. Tests that need several
# threads set them themselves.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A test's cache holds what the test puts there. Those of the demo's results turn them on.
os.environ["HEADLAB_DEMO"] = "off"

import numpy as np
from hypothesis import settings
from support import file_order, soak_record

# The same examples in every run; HYPOTHESIS_PROFILE=default searches anew.
settings.register_profile("same", derandomize=True, deadline=None, database=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--soak-out",
        metavar="FILE",
        help="write what ran, how it ended and how long it took as JSON",
    )


def pytest_configure(config: pytest.Config) -> None:
    soak_record.register_recorder(config)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    document = file_order.SECONDS.read_text(encoding="utf-8")
    file_order.longest_first(items, file_order.seconds_of_files(document))


@pytest.fixture(scope="session", autouse=True)
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where results go of which a test does not say where: not into the developer's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator of its own for each test, always from the same seed."""
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def own_main(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore `__main__` after the test.

    Streamlit replaces it by the page that it runs, which a spawned process would then run again.
    """
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """Restore the signal handlers after the test: a worker served in this process replaces them."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def one_lane() -> Iterator[None]:
    """One thread, so that batches end, and call back, equally often in every run."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def native_buttons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw rows of buttons as Streamlit's own, which its AppTest can press.

    A press goes to the log as it does from a browser.
    """
    import streamlit as st

    from headlab.dashboard.widgets import presses

    component = presses.component

    def send_press(key: str) -> None:
        log = presses.log()
        number = log.last_number_by_tab.get("test", 0) + 1
        log.take({"tab": "test", "presses": [[number, key, None]]})

    def streamlit_buttons(*, data: dict[str, Any], **_: Any) -> None:
        for button in data["buttons"]:
            st.button(
                button["label"],
                key=button["key"],
                on_click=send_press,
                args=(button["key"],),
                type="secondary" if button["kind"] == "card" else button["kind"],
                disabled=button["disabled"],
                help=button["help"] or None,
            )

    monkeypatch.setattr(
        presses,
        "component",
        lambda kind: streamlit_buttons if kind == "buttons" else component(kind),
    )
