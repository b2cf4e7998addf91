"""A widget for an option of a method or an experiment: what fits is in the table it comes from."""

from __future__ import annotations

import math
from typing import Any

import streamlit as st

from headlab.options import Option


def draw(name: str, option: Option, key: str, start: Any = ...) -> None:
    """The widget of an option: a choice, a switch, a text or a number. start: what it begins with, if not the usual."""
    start = option.default if start is ... or not (start is None or option.fits(start)) else start
    label, usual = name.replace("_", " ").capitalize(), "none" if option.default is None else option.default
    about = f"{option.help} ({option.range}; default {usual})"
    if option.choices:
        st.selectbox(label, option.choices, index=option.choices.index(start), key=key, help=about)
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
