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


def draw_option(name: str, option: Option, key: str, start_value: Any = ...) -> None:
    """The widget for an option: a select box, toggle, text or number field. start: initial value, if not default."""
    start_value = (
        option.default
        if start_value is ... or not (start_value is None or option.fits(start_value))
        else start_value
    )
    label, default_text = (
        name.replace("_", " ").capitalize(),
        "none" if option.default is None else option.default,
    )
    help_text = f"{option.help} ({option.range}; default {default_text})"
    if option.label:
        label, help_text = option.label, option.tip
    if option.choices:
        st.selectbox(
            label,
            list(option.choices),
            index=option.choices.index(start_value),
            key=key,
            help=help_text,
        )
    elif option.kind is bool:
        st.toggle(label, start_value, key=key, help=help_text)
    elif option.kind is str:
        st.text_input(label, start_value, key=key, help=help_text)
    else:
        _draw_number_field(label, option, key, help_text, start_value)


def _draw_number_field(
    label: str, option: Option, key: str, help_text: str, start_value: Any
) -> None:
    limits: dict[str, Any] = (
        {} if math.isinf(option.low) else {"min_value": option.kind(option.low)}
    )
    limits |= {} if math.isinf(option.high) else {"max_value": option.kind(option.high)}
    field_options: dict[str, Any] = (
        {"format": "%g", "step": _step_of(option)} if option.kind is float else {"step": 1}
    )
    if option.optional:  # only a field that starts empty can be cleared
        set_first_value(key, start_value)
        st.number_input(
            label,
            value=None,
            placeholder=option.empty,
            key=key,
            help=help_text,
            **limits,
            **field_options,
        )
    else:
        st.number_input(
            label, value=start_value, key=key, help=help_text, **limits, **field_options
        )


def _step_of(option: Option) -> float:
    """What a press of + adds: less than a default that is small itself, like a learning rate."""
    default = option.default
    size = abs(default) if isinstance(default, int | float) and default else 1.0
    return STEP if size >= STEP else 10.0 ** (math.floor(math.log10(size)) - 1)


def reason_refused(check: Callable[..., object], *arguments: Any) -> str:
    """Why a check of what a form holds fails, as a sentence; empty if it passes."""
    try:
        check(*arguments)
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


def remembered(session_key: str, prefix: str) -> FormValues:
    """Current widget values, or the last ones where not drawn. place: session key that stores the last values."""
    st.session_state[session_key] = {
        **st.session_state.get(session_key, {}),
        **widget_values(prefix),
    }
    return dict(st.session_state[session_key])


@dataclass(frozen=True)
class Form:
    """A form that keeps its values across page switches, with which streamlit drops its widgets.

    place: session key of the values.  prefix: of its widgets' keys.
    """

    place: str
    prefix: str

    def key(self, name: str, *depends_on: str) -> str:
        """Key of a widget. of: what else its value depends on."""
        return self.prefix + "-".join((*depends_on, name))

    def values(self) -> FormValues:
        """The widgets' current values, or the last ones where they are not drawn."""
        return remembered(self.place, self.prefix)

    def read(
        self, options: Mapping[str, Option], values: Mapping[str, Any], *depends_on: str
    ) -> FormValues:
        """The options' values, or their defaults. state: values of the widgets drawn so far.  of: as in `key`."""
        return {
            name: values.get(self.key(name, *depends_on), option.default)
            for name, option in options.items()
        }

    def kept(self, name: str, default: Any, *depends_on: str) -> Any:
        """A widget's last value."""
        return st.session_state.get(self.place, {}).get(self.key(name, *depends_on), default)

    def draw(self, name: str, option: Option, *depends_on: str, usual: Any = ...) -> None:
        """The widget for an option, at its last value. usual: the first one, if not the default."""
        start = self.kept(name, option.default if usual is ... else usual, *depends_on)
        draw_option(name, option, self.key(name, *depends_on), start)

    def grid(self, options: Mapping[str, Option]) -> None:
        """The widgets for these options, in three columns."""
        columns = st.columns(3)
        for number, (name, option) in enumerate(options.items()):
            with columns[number % len(columns)]:
                self.draw(name, option)


def values_at_press(
    prefix: str, values_when_drawn: FormValues, typed_numbers: Mapping[str, str] | None
) -> FormValues:
    """A form's values when its button is pressed: what its widgets hold now, not when it was drawn.

    drawn: values when it was drawn, for widgets that no longer hold one.  typed: as in `entered`.
    """
    return with_typed_numbers({**values_when_drawn, **widget_values(prefix)}, typed_numbers)


def with_typed_numbers(
    values: Mapping[str, Any], typed_numbers: Mapping[str, str] | None
) -> FormValues:
    """The values, updated with the numbers shown in the form when its button was pressed.

    typed: text of the number fields, by the CSS class of their key; None: the press carries none.  A number that is
    shown with fewer digits than it has is left unchanged.
    """
    text_by_class = typed_numbers or {}
    return {key: number(text_by_class.get(css_class(key)), value) for key, value in values.items()}


def number(text: str | None, value: Any) -> Any:
    """The number that a field showed; the value itself if it matches, is not numeric or the text is not a number."""
    if text is None or isinstance(value, bool) or not isinstance(value, int | float | None):
        return value
    try:
        typed_number = float(text)
    except ValueError:
        return value
    if not math.isfinite(typed_number) or (
        value is not None and abs(typed_number - value) <= rounding(text)
    ):
        return value
    return (
        int(typed_number)
        if typed_number.is_integer() and not isinstance(value, float) and "." not in text
        else typed_number
    )


def rounding(text: str) -> float:
    """How far a number may differ from the text that shows it: half a unit of the last digit."""
    mantissa, _, exponent = text.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    return 0.5001 * 10.0 ** (int(exponent or 0) - digits) if digits or exponent else 0.0
