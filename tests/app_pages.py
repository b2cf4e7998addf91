"""Pages of the app run without a browser, and what they say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from headlab.ui import shell_worker

ROOT = Path(__file__).parents[1]


def run_page(path: str, **query) -> AppTest:
    """A page, opened by a link with these parameters; it must not end in an exception."""
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    app.switch_page(f"pages/{path}.py")
    for name, value in query.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    return app


def said(app: AppTest) -> str:
    """All that a page tells in words."""
    kinds = (app.error, app.warning, app.info, app.success, app.caption, app.markdown, app.subheader)
    return "\n".join(element.value for kind in kinds for element in kind)


def connect_with(patch: pytest.MonkeyPatch, connect: Callable[[], object]) -> None:
    """Let pages connect to the worker in this way, at once."""
    patch.setattr(shell_worker, "connect", connect)
    patch.setattr(shell_worker, "HEAD_START_SECONDS", 0.0)
