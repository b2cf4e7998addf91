"""Form values: a widget per option, and its value now, last and at the press."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from headlab.core import HeadlabError, Option, ablation_title
from headlab.dashboard.streamlit_private import css_class, session_values
from headlab.dashboard.widgets.presses import set_first_value

# A widget for an option of a method or an experiment: valid values come from its table of options.

STEP = 0.005
"""Of a field for a float."""


def draw_option(name: str, option: Option, key: str, start_value: Any = ...) -> None:
    """Draw the widget for an option: a select box, toggle, text or number field.

    Args:
        name: Of the option.
        option: The option.
        key: Widget key.
        start_value: Initial value, if not the default.
    """
    if start_value is ... or not (start_value is None or option.fits(start_value)):
        start_value = option.default
    if option.label:
        label = option.label
        help_text = option.tip
    else:
        label = name.replace("_", " ").capitalize()
        default_text = "none" if option.default is None else option.default
        help_text = f"{option.help} ({option.range}; default {default_text})"
    if option.choices:
        # An ablation may have other sizes than those in the list.
        choices = list(dict.fromkeys([*option.choices, start_value]))
        st.selectbox(
            label,
            choices,
            index=choices.index(start_value),
            format_func=lambda choice: ablation_title(str(choice)),
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
    field_options: dict[str, Any] = {"step": 1}
    if option.kind is float:
        field_options = {"format": "%g", "step": _step_of(option)}
    if not math.isinf(option.low):
        field_options["min_value"] = option.kind(option.low)
    if not math.isinf(option.high):
        field_options["max_value"] = option.kind(option.high)
    if option.optional:  # only a field that starts empty can be cleared
        set_first_value(key, start_value)
        st.number_input(
            label,
            value=None,
            placeholder=option.empty,
            key=key,
            help=help_text,
            **field_options,
        )
    else:
        st.number_input(label, value=start_value, key=key, help=help_text, **field_options)


def _step_of(option: Option) -> float:
    """What a press of + adds: less than a default that is small itself, like a learning rate."""
    default = option.default
    size = 1.0
    if default and isinstance(default, int | float):
        size = abs(default)
    if size >= STEP:
        return STEP
    return 10.0 ** (math.floor(math.log10(size)) - 1)


def reason_refused(check: Callable[..., object], *arguments: Any) -> str:
    """Why a check of what a form holds fails, as a sentence; empty if it passes."""
    try:
        check(*arguments)
    except HeadlabError as error:
        return f"{error}."
    return ""


# Form values: those that widgets hold now, those they last held, and those shown when the button
# was pressed. Once in 300 presses a job got seed 0 where 1013 was shown, probably as a timer's request
# cleared what a widget had just brought (`let_runs_take_turns_with_state` of streamlit_private.py
# prevents that by now). A number can also be typed just before the press and not have been sent.
# So a press brings the numbers that its form showed.

FormValues = dict[str, Any]


def widget_values(prefix: str) -> FormValues:
    """Current values of the session state whose keys have a prefix, by key.

    Taken at one moment: the next request's run may begin while an action reads them, and a key that
    it takes away between a listing and a reading would end the action, so that its press came to
    nothing.
    """
    return {key: value for key, value in session_values().items() if key.startswith(prefix)}


def last_values(session_key: str, prefix: str) -> FormValues:
    """Current widget values, or the last ones where not drawn.

    Args:
        session_key: That stores the last values.
        prefix: Of the widgets' keys.
    """
    st.session_state[session_key] = {
        **st.session_state.get(session_key, {}),
        **widget_values(prefix),
    }
    return dict(st.session_state[session_key])


@dataclass(frozen=True)
class Form:
    """A form that keeps its values across page switches, with which streamlit drops its widgets.

    Attributes:
        place: Session key of the values.
        prefix: Of its widgets' keys.
    """

    place: str
    prefix: str

    def key(self, name: str, *depends_on: str) -> str:
        """Key of a widget.

        Args:
            name: Of the option.
            depends_on: What else its value depends on, such as a method.
        """
        return self.prefix + "-".join((*depends_on, name))

    def values(self) -> FormValues:
        """The widgets' current values, or the last ones where they are not drawn."""
        return last_values(self.place, self.prefix)

    def read(
        self, options: Mapping[str, Option], values: Mapping[str, Any], *depends_on: str
    ) -> FormValues:
        """The options' values, or their defaults.

        Args:
            options: By name.
            values: Of the widgets drawn so far, by key.
            depends_on: As in `key`.
        """
        return {
            name: values.get(self.key(name, *depends_on), option.default)
            for name, option in options.items()
        }

    def last_value(self, name: str, default: Any, *depends_on: str) -> Any:
        """A widget's last value."""
        return st.session_state.get(self.place, {}).get(self.key(name, *depends_on), default)

    def draw(self, name: str, option: Option, *depends_on: str, usual: Any = ...) -> None:
        """Draw the widget for an option, at its last value.

        Args:
            name: Of the option.
            option: The option.
            depends_on: As in `key`.
            usual: Its first value, if not the default.
        """
        start = self.last_value(name, option.default if usual is ... else usual, *depends_on)
        draw_option(name, option, self.key(name, *depends_on), start)

    def draw_all(self, options: Mapping[str, Option]) -> None:
        """Draw the widgets for these options, in three columns."""
        columns = st.columns(3)
        for number, (name, option) in enumerate(options.items()):
            with columns[number % len(columns)]:
                self.draw(name, option)


def values_at_press(
    prefix: str, values_when_drawn: FormValues, typed_numbers: Mapping[str, str] | None
) -> FormValues:
    """A form's values when its button is pressed: what its widgets hold now, not when it was drawn.

    Args:
        prefix: Of the widgets' keys.
        values_when_drawn: For widgets that no longer hold one.
        typed_numbers: As in `with_typed_numbers`.
    """
    return with_typed_numbers({**values_when_drawn, **widget_values(prefix)}, typed_numbers)


def with_typed_numbers(
    values: Mapping[str, Any], typed_numbers: Mapping[str, str] | None
) -> FormValues:
    """The values, updated with the numbers shown in the form when its button was pressed.

    A number that is shown with fewer digits than it has is left unchanged.

    Args:
        values: Of the widgets, by key.
        typed_numbers: Text of the number fields, by the CSS class of their key; None: the press
            carries none.
    """
    text_by_class = typed_numbers or {}
    return {key: number(text_by_class.get(css_class(key)), value) for key, value in values.items()}


def number(text: str | None, value: Any) -> Any:
    """The number that a field showed.

    The value itself if it matches, is not numeric or the text is not a number.
    """
    if text is None or isinstance(value, bool) or not isinstance(value, int | float | None):
        return value
    try:
        typed_number = float(text)
    except ValueError:
        return value
    if not math.isfinite(typed_number):
        return value
    if value is not None and abs(typed_number - value) <= rounding(text):
        return value
    is_whole = typed_number.is_integer() and "." not in text
    if is_whole and not isinstance(value, float):
        return int(typed_number)
    return typed_number


def rounding(text: str) -> float:
    """How far a number may differ from the text that shows it: half a unit of the last digit."""
    mantissa, _, exponent = text.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    if not digits and not exponent:
        return 0.0
    return 0.5001 * 10.0 ** (int(exponent or 0) - digits)
