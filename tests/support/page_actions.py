"""What a person does on a page of the app: press a button, choose from a list."""

from __future__ import annotations

from typing import Any

from streamlit.testing.v1 import AppTest


def press(app: AppTest, key: str) -> AppTest:
    """Press a button and run the page, which must not end in an exception.

    Args:
        app: The page.
        key: The button's key.
    """
    app.button(key=key).click().run()
    assert not app.exception
    return app


def choose(app: AppTest, key: str, value: Any) -> AppTest:
    """Choose from a list and run the page, which must not end in an exception.

    Args:
        app: The page.
        key: The key of the list, a `selectbox`.
        value: The value to choose, not its label.
    """
    app.selectbox(key=key).set_value(value).run()
    assert not app.exception
    return app
