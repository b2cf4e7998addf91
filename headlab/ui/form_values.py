"""What a form says: a widget for each option, what it holds, held last, and showed when its button was pressed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import streamlit as st

from headlab.options import Option

# A widget for an option of a method or an experiment: what fits is in the table it comes from.


def draw(name: str, option: Option, key: str, start: Any = ...) -> None:
    """The widget of an option: a choice, a switch, a text or a number. start: what it begins with, if not the usual."""
    start = option.default if start is ... or not (start is None or option.fits(start)) else start
    label, usual = name.replace("_", " ").capitalize(), "none" if option.default is None else option.default
    about = f"{option.help} ({option.range}; default {usual})"
    if option.choices:
        st.selectbox(label, list(option.choices), index=option.choices.index(start), key=key, help=about)
    elif option.kind is bool:
        st.toggle(label, start, key=key, help=about)
    elif option.kind is str:
        st.text_input(label, start, key=key, help=about)
    else:
        _number(label, option, key, about, start)


def _number(label: str, option: Option, key: str, about: str, start: Any) -> None:
    limits: dict[str, Any] = {} if math.isinf(option.low) else {"min_value": option.kind(option.low)}
    limits |= {} if math.isinf(option.high) else {"max_value": option.kind(option.high)}
    looks: dict[str, Any] = {"format": "%g", "step": 0.005} if option.kind is float else {"step": 1}
    if option.optional:  # only a field that begins empty can be emptied
        st.session_state.setdefault(key, start)
        st.number_input(label, value=None, placeholder="none", key=key, help=about, **limits, **looks)
    else:
        st.number_input(label, value=start, key=key, help=about, **limits, **looks)


# What a form says: as its widgets hold it, as they held it last, and as it stood there when its button was pressed.

Values = dict[str, Any]


def held(prefix: str) -> Values:
    """What widgets hold now, by key. prefix: of their keys."""
    return {str(key): value for key, value in st.session_state.items() if str(key).startswith(prefix)}


def remembered(place: str, prefix: str) -> Values:
    """What widgets hold now, and what they held last where they are not drawn. place: in the session, of the latter."""
    st.session_state[place] = {**st.session_state.get(place, {}), **held(prefix)}
    return dict(st.session_state[place])


def pressed(prefix: str, drawn: Values, typed: Mapping[str, str] | None) -> Values:
    """What a form says as its button is pressed: what its widgets hold now, not what they held when it was drawn.

    drawn: what they held then, for what nothing is held of any more.  typed: as of `entered`.
    """
    return entered({**drawn, **held(prefix)}, typed)


def entered(values: Mapping[str, Any], typed: Mapping[str, str] | None) -> Values:
    """The values, with the numbers that stood in the form when its button was pressed.

    typed: what number fields showed, by the class that their key has in the page; None: a press that brings nothing.
    A number that is shown with fewer digits than it has stays as it is.
    """
    shown = typed or {}
    return {key: number(shown.get(class_of(key)), value) for key, value in values.items()}


def class_of(key: str) -> str:
    """A widget's key as streamlit writes it into the class of its element."""
    return re.sub(r"[^a-zA-Z0-9_-]", "-", key.strip())


def number(text: str | None, value: Any) -> Any:
    """The number that a field showed; the value where it says the same, shows none or is not a number's."""
    if text is None or isinstance(value, bool) or not isinstance(value, int | float | None):
        return value
    try:
        found = float(text)
    except ValueError:
        return value
    if not math.isfinite(found) or (value is not None and abs(found - value) <= rounding(text)):
        return value
    return int(found) if found.is_integer() and not isinstance(value, float) and "." not in text else found


def rounding(text: str) -> float:
    """By how much a number may differ from what a field shows of it: half of the last digit."""
    mantissa, _, exponent = text.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    return 0.5001 * 10.0 ** (int(exponent or 0) - digits) if digits or exponent else 0.0
