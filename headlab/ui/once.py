"""A press is one press: streamlit may call a button's callback twice for it.

A request that arrives while streamlit is calling callbacks (a fragment's next look at the worker is one, several times
a second) makes it begin again with both requests' widgets, the press among them, before the page is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def once(change: Callable[..., None]) -> Callable[..., None]:
    """The callback for the next press alone. Make it anew each time that the button is drawn."""
    pressed = False

    def changed(*given: Any) -> None:
        nonlocal pressed
        if not pressed:
            pressed = True
            change(*given)

    return changed
