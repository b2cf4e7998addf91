"""Every press is handled once, in order: the log of presses that buttons and head grids share.

Streamlit's own button sends one flag with the next request. Traced at the browser's socket and in
the server's runs (streamlit 1.67): a second press before the next run is the same flag; a timer's
request right after the press repeats the flag, so that its callback is called again; and a request
that arrives while a callback accesses session state ends the callback there. A fragment's request
is dropped while the page is drawn without that fragment. The next run begins in a thread of its own
while the last one still ends, which resets the flags of both. Running one request at a time
(`runner.fastReruns` off) is no way out: a timer's `st.rerun` then replaces a page turn that is
waiting.

So the browser numbers the presses of a tab and resends those not yet handled until the server has
acknowledged the last number (`static/presses.js`), and the action of a press is not interrupted.
Every request also brings what the browser's widgets showed, so one made before an action's effect
was drawn would set them back; and a value set in one run does not reach a browser that draws the
widget only after the next run, as its script was still on the way: see `set_widget`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial, wraps
from importlib import resources
from itertools import count
from secrets import token_hex
from typing import Any, Literal

import streamlit as st

from headlab.dashboard.streamlit_private import (
    is_fragment_run,
    keep_deferred_files,
    keys_in_request,
    serve_download,
    without_interruption,
)

LOG_KEY = "_presses"
ROOT_KEY = "headlab-presses"
BASE_COMPONENTS = {"rolegrid": ("headgrid",)}
ButtonKind = Literal["primary", "secondary", "tertiary", "card"]


@dataclass
class GivenValue:
    """A widget's value that the program set.

    Attributes:
        value: The value.
        earlier_values: What the browser may still show.
        press: (tab, number) of the press that set it; None if none did.
        page: That was being drawn.
        is_drawn: Whether a run has drawn it to its end, so that what the browser sends from now on
            is what the person chose.
        is_shown: Whether the browser has drawn the widget, as a request has brought its value.
    """

    value: Any
    earlier_values: list[Any]
    press: tuple[str, int] | None
    page: str = ""
    is_drawn: bool = False
    is_shown: bool = False


@dataclass
class PressLog:
    """The presses of one session.

    Attributes:
        last_number_by_tab: Number of each tab's last press that was handled.
        actions: By key, the action of a press.
        given_values: By key of a widget, the value that an action set.
        press: (tab, number) of the press that is being handled; None if none is.
        page: That is being drawn.
        visit: Number of page turns so far: a page that is left and turned to again is another one.
        name: Of the session, by which a browser detects that a new one began.
        lock: Held while a press is handled: the next request's run starts in its own thread while
            this one may still be executing an action.
    """

    last_number_by_tab: dict[str, int] = field(default_factory=dict)
    actions: dict[str, Callable[[Any], None]] = field(default_factory=dict)
    given_values: dict[str, GivenValue] = field(default_factory=dict)
    press: tuple[str, int] | None = None
    page: str = ""
    visit: int = 0
    name: str = field(default_factory=partial(token_hex, 8))
    lock: threading.RLock = field(default_factory=threading.RLock)

    def take(self, event: Any) -> None:
        """Execute the presses of an event that are not handled yet, in the order of their numbers.

        A press whose key was never drawn does nothing.

        Args:
            event: {"tab": name, "presses": [[number, key, value], ...]}.
        """
        tab = str(event["tab"])
        with self.lock:
            for number, key, value in sorted(event["presses"], key=lambda press: int(press[0])):
                if number > self.last_number_by_tab.get(tab, 0):
                    self.last_number_by_tab[tab] = (
                        number  # first: an action that fails is not retried
                    )
                    self._act((tab, number), key, value)
                    continue
                # The browser waits for it, so it has not seen its effect.
                for given_value in self.given_values.values():
                    if given_value.press == (tab, number):
                        given_value.is_drawn = False

    def _act(self, press: tuple[str, int], key: str, value: Any) -> None:
        self.press = press
        try:
            action = self.actions.get(key)
            if action is not None:
                action(value)
        finally:
            self.press = None


@dataclass(frozen=True)
class Button:
    """One button of a row.

    Attributes:
        label: Its text.
        key: Widget key.
        on_press: Called with `args` before the page is redrawn.
        args: Of `on_press`.
        kind: How it looks; a card is as wide as its place, and several share a row.
        icon: A Material Symbols name; empty for none.
        help: Shown beside the pointer.
        disabled: Whether it cannot be pressed.
        form: Key prefix of a form's widgets; `on_press` then also receives what its number fields
            showed when the button was pressed, by CSS class
            (`headlab.dashboard.widgets.form_values`).
    """

    label: str
    key: str
    on_press: Callable[..., None]
    args: Sequence[Any] = ()
    kind: ButtonKind = "secondary"
    icon: str = ""
    help: str = ""
    disabled: bool = False
    form: str = ""


def log() -> PressLog:
    """The log of this session."""
    press_log: PressLog = st.session_state.setdefault(LOG_KEY, PressLog())
    return press_log


def draw_log_root(page_path: str, page_paths: Sequence[str]) -> None:
    """Draw the part of the log that is on every page. Called by `run_session` before a page is drawn.

    Args:
        page_path: Of the page being drawn, empty for the default one.
        page_paths: Of all pages.
    """
    press_log = log()
    with press_log.lock:  # wait for a press in progress, so that the page shows its effect
        if press_log.page != page_path:
            press_log.visit += 1
        press_log.page = page_path
        _restore_given_values(is_timer=False)
        draw("root", ROOT_KEY, {"page": page_path, "pages": list(page_paths)}, {})


def mark_page_drawn() -> None:
    """The page has been drawn to its end. Called by `run_session`."""
    for given_value in log().given_values.values():
        given_value.is_drawn = True


def set_widget(key: str, value: Any) -> None:
    """Set a widget's value in an action, or before the widget is drawn.

    It holds against requests that still bring what the browser showed before: those of timers
    always, others until it has been drawn. It is sent with every run until the browser has drawn
    the widget.
    """
    press_log = log()
    earlier_values = [st.session_state[key]] if key in st.session_state else []
    earlier = press_log.given_values.get(key)
    if earlier is not None and not earlier.is_drawn:
        earlier_values += [earlier.value, *earlier.earlier_values]
    press_log.given_values[key] = GivenValue(value, earlier_values, press_log.press, press_log.page)
    st.session_state[key] = value


def set_first_value(key: str, value: Any) -> None:
    """Set a widget's value before it is drawn for the first time."""
    if key not in st.session_state:
        set_widget(key, value)


def _restore_given_values(*, is_timer: bool) -> None:
    """Put back what the program set where the request brought an older value or none.

    A value that a person chose since then stays.

    Args:
        is_timer: Whether the request is a timer's, so that it brings nobody's choice.
    """
    press_log = log()
    state = st.session_state
    keys_brought = keys_in_request()
    for key, given_value in list(press_log.given_values.items()):
        if key not in state:
            continue
        given_value.is_shown = given_value.is_shown or key in keys_brought
        if state[key] == given_value.value:
            # Streamlit sends only a value that was set in the run; on another page it would outlive
            # its widget.
            if not given_value.is_shown and given_value.page == press_log.page:
                state[key] = given_value.value
        elif state[key] in given_value.earlier_values and (is_timer or not given_value.is_drawn):
            state[key] = given_value.value
        elif not is_timer:
            del press_log.given_values[key]


def _forget_overruled_values() -> None:
    """Forget what the program set where a person has chosen another value since it was drawn."""
    press_log = log()
    for key, given_value in list(press_log.given_values.items()):
        is_other = key in st.session_state and st.session_state[key] != given_value.value
        if is_other and given_value.is_drawn:
            del press_log.given_values[key]


def button(
    label: str,
    *,
    key: str,
    on_press: Callable[..., None],
    args: Sequence[Any] = (),
    kind: ButtonKind = "secondary",
    icon: str = "",
    help: str = "",
    disabled: bool = False,
    form: str = "",
) -> None:
    """Draw a button whose presses are handled once each.

    Arguments as the attributes of `Button`.
    """
    button_row(Button(label, key, on_press, args, kind, icon, help, disabled, form))


def button_row(*buttons: Button) -> None:
    """Draw several buttons side by side."""
    names = ("label", "key", "kind", "icon", "help", "disabled", "form")
    button_fields: list[dict[str, Any]] = []
    actions: dict[str, Callable[[Any], None] | None] = {}
    for one_button in buttons:
        button_fields.append({name: getattr(one_button, name) for name in names})
        is_disabled = one_button.disabled
        actions[one_button.key] = None if is_disabled else partial(_call_action, one_button)
    width: Literal["content", "stretch"] = "content"
    if any(one_button.kind == "card" for one_button in buttons):
        width = "stretch"
    draw("buttons", f"row-{buttons[0].key}", {"buttons": button_fields}, actions, width=width)


def _call_action(pressed_button: Button, typed_numbers: Any) -> None:
    if pressed_button.form:
        pressed_button.on_press(*pressed_button.args, typed_numbers)
    else:
        pressed_button.on_press(*pressed_button.args)


def draw(
    kind: str,
    key: str,
    data: dict[str, Any],
    actions: Mapping[str, Callable[[Any], None] | None],
    *,
    width: Literal["content", "stretch"] = "stretch",
) -> None:
    """Draw a component that sends presses.

    Args:
        kind: Name of the component.
        key: Widget key.
        data: What it shows.
        actions: The action of a press of each key; None: it is disabled. Presses already sent keep
            the old action.
        width: Of the component.
    """
    press_log = log()
    press_log.actions |= {name: action for name, action in actions.items() if action is not None}

    def take_presses() -> None:
        state = st.session_state.get(key)
        event = None if state is None else state.get("presses")
        if event:
            press_log.take(event)

    component(kind)(
        key=key,
        data=data | {"taken": press_log.last_number_by_tab, "session": press_log.name},
        width=width,
        on_presses_change=uninterrupted(take_presses),
    )


@cache
def component(kind: str) -> Callable[..., Any]:
    """The component whose script and style are `static/{kind}`, after those of its base."""
    files = resources.files("headlab.dashboard") / "static"
    parts = [*BASE_COMPONENTS.get(kind, ()), kind]
    styles = [files / f"{part}.css" for part in parts]
    scripts = [(files / f"{part}.js").read_text("utf-8") for part in ["presses", *parts]]
    # Only the last one is mounted.
    helpers = [script.partition("export default")[0] for script in scripts[:-1]]
    js = "\n".join([*helpers, scripts[-1]])
    css = "".join(style.read_text("utf-8") for style in styles if style.is_file()) or None
    draw_component: Callable[..., Any] = st.components.v2.component(
        f"headlab-{kind}", css=css, js=js
    )
    return draw_component


def uninterrupted(callback: Callable[..., None]) -> Callable[..., None]:
    """The callback, made to run to its end before another request is served.

    Without this, streamlit would end it for a waiting request where it accesses session state.
    """

    def run_uninterrupted(*arguments: Any) -> None:
        with without_interruption():
            callback(*arguments)

    return run_uninterrupted


# Downloads. Streamlit forgets a file that no session's page refers to once two runs of anybody have
# ended, and to one that is made on demand no page refers: on a busy server the browser asked for it
# too late and saved nothing. It forgets how to make the file even sooner, when the page is redrawn.

MAX_KEPT_FILES = 32
"""Files made on demand, of everybody."""

MAX_OUTDATED_BUTTONS = 1024
"""Buttons of earlier runs that still make their file, of everybody; a page has up to about 20."""


def download_button(
    label: str,
    data: str | bytes | Callable[[], str | bytes],
    name: str,
    kind: str,
    *,
    key: str | None = None,
    help: str | None = None,
) -> None:
    """Draw a button that saves a file.

    Args:
        label: Of the button.
        data: Content of the file; a function is called when the button is pressed.
        name: Of the file.
        kind: MIME type of the file.
        key: Widget key.
        help: Shown beside the pointer.
    """
    content = data
    if callable(data):
        keep_deferred_files(MAX_OUTDATED_BUTTONS)
        content = partial(kept_content, data, name, kind)
    st.download_button(
        label,
        content,
        name,
        kind,
        key=key,
        help=help,
        on_click="ignore",
        icon=":material/download:",
    )


def kept_content(make: Callable[[], str | bytes], name: str, kind: str) -> bytes:
    """What `make` gives, kept in the server until `MAX_KEPT_FILES` later files have been made."""
    data = make()
    content = data.encode() if isinstance(data, str) else data
    serve_download(content, kind, f"made-{next(_download_numbers()) % MAX_KEPT_FILES}", name)
    return content


@cache
def _download_numbers() -> Iterator[int]:
    return count()


# Parts of a page that redraw themselves while something runs. Such a timer is a request like a
# user's, so there are as few as possible, and what it redraws holds no input and no button.

LIVE_MARK = '<span hidden data-state="live"></span>'
"""Marks a page that is not final yet: it will change by itself."""


def redraw_every(
    draw_part: Callable[..., None], seconds: float | None, *, waits: bool = True
) -> Callable[..., None]:
    """A function that draws a part of a page again and again.

    Args:
        draw_part: Draws it.
        seconds: Between two drawings; None: it is drawn once.
        waits: Whether something is running that will end; False for what only checks for news.
    """
    was_drawn = False

    @wraps(draw_part)
    def redraw(*arguments: Any) -> None:
        # The first drawing is part of the run that made this function, which may answer a person's
        # choice in a fragment around it. Only later ones are the timer's.
        nonlocal was_drawn
        is_timer = was_drawn and is_fragment_run()
        if is_fragment_run() and not was_drawn:
            _forget_overruled_values()
        was_drawn = True
        if is_timer:
            _restore_given_values(is_timer=True)  # `draw_part` may draw the whole page anew
        draw_part(*arguments)
        if seconds is not None and waits:
            st.html(LIVE_MARK)

    fragment: Callable[..., Any] = st.fragment(redraw, run_every=seconds)
    return fragment
