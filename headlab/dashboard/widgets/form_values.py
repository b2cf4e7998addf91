"""Form values: a widget per option, and its value now, last, and when the form's button was pressed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from headlab.core import HeadlabError, Option
from headlab.dashboard.streamlit_private import css_class, session_values
from headlab.dashboard.widgets.presses import set_first_value

# A widget for an option of a method or an experiment: valid values come from its table of options.

STEP = 0.005  # of a field for a float


def draw_option(name: str, option: Option, key: str, start: Any = ...) -> None:
    """The widget for an option: a select box, toggle, text or number field. start: initial value, if not default."""
    start = option.default if start is ... or not (start is None or option.fits(start)) else start
    label, usual = (
        name.replace("_", " ").capitalize(),
        "none" if option.default is None else option.default,
    )
    about = f"{option.help} ({option.range}; default {usual})"
    if option.label:
        label, about = option.label, option.tip
    if option.choices:
        st.selectbox(
            label, list(option.choices), index=option.choices.index(start), key=key, help=about
        )
    elif option.kind is bool:
        st.toggle(label, start, key=key, help=about)
    elif option.kind is str:
        st.text_input(label, start, key=key, help=about)
    else:
        _number(label, option, key, about, start)


def _number(label: str, option: Option, key: str, about: str, start: Any) -> None:
    limits: dict[str, Any] = (
        {} if math.isinf(option.low) else {"min_value": option.kind(option.low)}
    )
    limits |= {} if math.isinf(option.high) else {"max_value": option.kind(option.high)}
    looks: dict[str, Any] = (
        {"format": "%g", "step": _step(option)} if option.kind is float else {"step": 1}
    )
    if option.optional:  # only a field that starts empty can be cleared
        set_first_value(key, start)
        st.number_input(
            label, value=None, placeholder=option.empty, key=key, help=about, **limits, **looks
        )
    else:
        st.number_input(label, value=start, key=key, help=about, **limits, **looks)


def _step(option: Option) -> float:
    """What a press of + adds: less than a default that is small itself, like a learning rate."""
    default = option.default
    size = abs(default) if isinstance(default, int | float) and default else 1.0
    return STEP if size >= STEP else 10.0 ** (math.floor(math.log10(size)) - 1)


def reason_refused(check: Callable[..., object], *given: Any) -> str:
    """Why a check of what a form holds fails, as a sentence; empty if it passes."""
    try:
        check(*given)
    except HeadlabError as error:
        return f"{error}."
    return ""


# Form values: those that widgets hold now, those they last held, and those shown when the button was pressed. Streamlit
# can lose what a widget holds (once in 300 presses a job got seed 0 where 1013 was shown; it is not known which request
# removed it), so a press brings the numbers that its form showed.

FormValues = dict[str, Any]


def widget_values(prefix: str) -> FormValues:
    """Current values of the session state, by key. prefix: of their keys.

    Taken at one moment: the next request's run may begin while an action reads them, and a key that it takes away
    between a listing and a reading would end the action, so that its press came to nothing.
    """
    return {key: value for key, value in session_values().items() if key.startswith(prefix)}


def remembered(place: str, prefix: str) -> FormValues:
    """Current widget values, or the last ones where not drawn. place: session key that stores the last values."""
    st.session_state[place] = {**st.session_state.get(place, {}), **widget_values(prefix)}
    return dict(st.session_state[place])


@dataclass(frozen=True)
class Form:
    """A form that keeps its values across page switches, with which streamlit drops its widgets.

    place: session key of the values.  prefix: of its widgets' keys.
    """

    place: str
    prefix: str

    def key(self, name: str, *of: str) -> str:
        """Key of a widget. of: what else its value depends on."""
        return self.prefix + "-".join((*of, name))

    def values(self) -> FormValues:
        """The widgets' current values, or the last ones where they are not drawn."""
        return remembered(self.place, self.prefix)

    def read(self, options: Mapping[str, Option], state: Mapping[str, Any], *of: str) -> FormValues:
        """The options' values, or their defaults. state: values of the widgets drawn so far.  of: as in `key`."""
        return {
            name: state.get(self.key(name, *of), option.default) for name, option in options.items()
        }

    def kept(self, name: str, usual: Any, *of: str) -> Any:
        """A widget's last value."""
        return st.session_state.get(self.place, {}).get(self.key(name, *of), usual)

    def draw(self, name: str, option: Option, *of: str, usual: Any = ...) -> None:
        """The widget for an option, at its last value. usual: the first one, if not the default."""
        start = self.kept(name, option.default if usual is ... else usual, *of)
        draw_option(name, option, self.key(name, *of), start)

    def grid(self, options: Mapping[str, Option]) -> None:
        """The widgets for these options, in three columns."""
        places = st.columns(3)
        for number, (name, option) in enumerate(options.items()):
            with places[number % len(places)]:
                self.draw(name, option)


def values_at_press(prefix: str, drawn: FormValues, typed: Mapping[str, str] | None) -> FormValues:
    """A form's values when its button is pressed: what its widgets hold now, not when it was drawn.

    drawn: values when it was drawn, for widgets that no longer hold one.  typed: as in `entered`.
    """
    return with_typed_numbers({**drawn, **widget_values(prefix)}, typed)


def with_typed_numbers(values: Mapping[str, Any], typed: Mapping[str, str] | None) -> FormValues:
    """The values, updated with the numbers shown in the form when its button was pressed.

    typed: text of the number fields, by the CSS class of their key; None: the press carries none.  A number that is
    shown with fewer digits than it has is left unchanged.
    """
    shown = typed or {}
    return {key: number(shown.get(css_class(key)), value) for key, value in values.items()}


def number(text: str | None, value: Any) -> Any:
    """The number that a field showed; the value itself if it matches, is not numeric or the text is not a number."""
    if text is None or isinstance(value, bool) or not isinstance(value, int | float | None):
        return value
    try:
        found = float(text)
    except ValueError:
        return value
    if not math.isfinite(found) or (value is not None and abs(found - value) <= rounding(text)):
        return value
    return (
        int(found)
        if found.is_integer() and not isinstance(value, float) and "." not in text
        else found
    )


def rounding(text: str) -> float:
    """How far a number may differ from the text that shows it: half a unit of the last digit."""
    mantissa, _, exponent = text.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    return 0.5001 * 10.0 ** (int(exponent or 0) - digits) if digits or exponent else 0.0
