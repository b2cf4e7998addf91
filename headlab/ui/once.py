"""A press is one press: streamlit may call a button's callback twice for it.

A request that arrives while streamlit is calling callbacks (a fragment's next look at the worker is one, several times
a second) makes it begin again with both requests' widgets, the press among them, before the page is drawn. It may also
cut the first call short, where that first touches the session's state: then only the second one is the press.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamlit.runtime.scriptrunner_utils.exceptions import ScriptControlException


def once(change: Callable[..., None]) -> Callable[..., None]:
    """The callback for the next press alone. Make it anew each time that the button is drawn.

    change: touches the session's state, if it does, before it changes anything; it may be cut short there.
    """
    pressed = False

    def changed(*given: Any) -> None:
        nonlocal pressed
        if pressed:
            return
        pressed = True
        try:
            change(*given)
        except ScriptControlException:
            pressed = False
            raise

    return changed
