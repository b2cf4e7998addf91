"""What several test files share."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

# One thread for a test process and what it starts, before NumPy and torch are loaded: those of two processes on two
# cores wait for each other by spinning. Tests that mean several threads set them themselves.
os.environ.setdefault("OMP_NUM_THREADS", "1")

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
    soak_record.keep(config)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    file_order.longest_first(
        items, file_order.seconds_of_files(file_order.SECONDS.read_text(encoding="utf-8"))
    )


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator of its own for each test, always from the same seed."""
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def own_main(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streamlit puts the page that it runs in the place of `__main__`, which a spawned process would then run."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """A worker served in this process takes its signals for good; the next test finds them as they were."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def one_lane() -> Iterator[None]:
    """One thread, so that what happens between batches happens the same number of times in every run."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def native_buttons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of buttons as streamlit's own, which its AppTest can press; a press goes to the log as from a browser."""
    import streamlit as st

    from headlab.dashboard.widgets import presses

    drawn = presses.component

    def pressed(key: str) -> None:
        log = presses.log()
        log.take(
            {"tab": "test", "presses": [[log.last_number_by_tab.get("test", 0) + 1, key, None]]}
        )

    def native(*, data: dict[str, Any], **_: Any) -> None:
        for b in data["buttons"]:
            look = {"type": b["kind"], "disabled": b["disabled"], "help": b["help"] or None}
            st.button(b["label"], key=b["key"], on_click=pressed, args=(b["key"],), **look)

    monkeypatch.setattr(
        presses, "component", lambda kind: native if kind == "buttons" else drawn(kind)
    )
