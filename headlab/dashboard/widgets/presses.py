"""Every press is handled once, in order: the log of presses that buttons and head grids share.

Streamlit's own button sends one flag with the next request. Traced at the browser's socket and in the server's runs
(streamlit 1.67): a second press before the next run is the same flag; a timer's request right after the press repeats
the flag, so that its callback is called again; and a request that arrives while a callback accesses session state ends
the callback there. A fragment's request is dropped while the page is drawn without that fragment. The next run begins
in a thread of its own while the last one still ends, which resets the flags of both. Running one request at a time
(`runner.fastReruns` off) is no way out: a timer's `st.rerun` then replaces a page turn that is waiting.

So the browser numbers the presses of a tab and resends those not yet handled until the server has acknowledged the
last number (`static/presses.js`), and the action of a press is not interrupted. Every request also brings what the
browser's widgets showed, so one made before an action's effect was drawn would set them back; and a value set in one
run does not reach a browser that draws the widget only after the next run, as its script was still on the way: see
`give`.
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
    keys_in_request,
    serve_download,
    without_interruption,
)

LOG_KEY, ROOT_KEY = "_presses", "headlab-presses"
BASE_COMPONENTS = {"rolegrid": ("headgrid",)}
ButtonKind = Literal["primary", "secondary", "tertiary"]


@dataclass
class GivenValue:
    """A widget's value that the program set. before: what the browser may still show.

    press: (tab, number) of the press that set it.  drawn: a run has drawn it to its end, so what the browser sends from
    now on is what the person chose.  shown: the browser has drawn the widget, as a request has brought its value.
    page: that was being drawn.
    """

    value: Any
    before: list[Any]
    press: tuple[str, int] | None
    page: str = ""
    drawn: bool = False
    shown: bool = False


@dataclass
class PressLog:
    """The presses of one session. taken: {tab: number of its last press handled}.  actions: {key: action of a press}.

    given: {key of a widget: the value that an action set}.  name: of the session, by which a browser detects that a
    new one began.
    """

    taken: dict[str, int] = field(default_factory=dict)
    actions: dict[str, Callable[[Any], None]] = field(default_factory=dict)
    given: dict[str, GivenValue] = field(default_factory=dict)
    press: tuple[str, int] | None = None  # being handled
    page: str = ""  # being drawn
    name: str = field(default_factory=partial(token_hex, 8))
    # The next request's run starts in its own thread while this one may still be executing an action.
    lock: threading.RLock = field(default_factory=threading.RLock)

    def take(self, event: Any) -> None:
        """Execute the presses of an event that are not handled yet, in the order of their numbers.

        event: {"tab": name, "presses": [[number, key, value], ...]}.  One whose key was never drawn does nothing.
        """
        tab = str(event["tab"])
        with self.lock:
            for number, key, value in sorted(event["presses"], key=lambda press: int(press[0])):
                if number > self.taken.get(tab, 0):
                    self.taken[tab] = number  # first: an action that fails is not retried
                    self._act((tab, number), key, value)
                else:  # the browser waits for it, so it has not seen its effect
                    for given_value in self.given.values():
                        given_value.drawn = given_value.drawn and given_value.press != (tab, number)

    def _act(self, press: tuple[str, int], key: str, value: Any) -> None:
        self.press = press
        try:
            if (action := self.actions.get(key)) is not None:
                action(value)
        finally:
            self.press = None


@dataclass(frozen=True)
class Button:
    """One button of a row. on_press: called with `args` before the page is redrawn.

    form: key prefix of a form's widgets; `on_press` then also receives what its number fields showed when the
    button was pressed, by CSS class (`headlab.dashboard.widgets.form_values`).
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


def root(page_path: str, page_paths: Sequence[str]) -> None:
    """The part of the log that is on every page. Called by app.py before a page is drawn.

    page: path of the page being drawn, empty for the default one.  pages: paths of all pages.
    """
    press_log = log()
    with press_log.lock:  # wait for a press in progress, so that the page shows its effect
        press_log.page = page_path
        _restore_given_values(is_timer=False)
        draw("root", ROOT_KEY, {"page": page_path, "pages": list(page_paths)}, {})


def drawn() -> None:
    """The page has been drawn to its end. Called by app.py."""
    for given_value in log().given.values():
        given_value.drawn = True


def set_widget(key: str, value: Any) -> None:
    """Set a widget's value in an action, or before the widget is drawn.

    It holds against requests that still bring what the browser showed before: those of timers always, others until it
    has been drawn. It is sent with every run until the browser has drawn the widget.
    """
    press_log, earlier_values = log(), [st.session_state[key]] if key in st.session_state else []
    if (earlier := press_log.given.get(key)) is not None and not earlier.drawn:
        earlier_values += [earlier.value, *earlier.before]
    press_log.given[key] = GivenValue(value, earlier_values, press_log.press, press_log.page)
    st.session_state[key] = value


def set_first_value(key: str, value: Any) -> None:
    """Set a widget's value before it is drawn for the first time."""
    if key not in st.session_state:
        set_widget(key, value)


def _restore_given_values(*, is_timer: bool) -> None:
    """Put back what the program set where a request brought what the browser showed before, or nothing.

    A value that a person chose since then stays.

    timer: the request is a timer's, so that it brings nobody's choice.
    """
    press_log, state, keys_brought = log(), st.session_state, keys_in_request()
    for key, given_value in list(press_log.given.items()):
        if key not in state:
            continue
        given_value.shown = given_value.shown or key in keys_brought
        if state[key] == given_value.value:
            if (
                not given_value.shown and given_value.page == press_log.page
            ):  # on another page it would outlive its widget
                state[key] = (
                    given_value.value
                )  # streamlit sends only a value that was set in the run
        elif state[key] in given_value.before and (is_timer or not given_value.drawn):
            state[key] = given_value.value
        elif not is_timer:
            del press_log.given[key]


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
    """A button whose presses are handled once each. icon: a Material Symbols name.  form: as in `Button`."""
    button_row(Button(label, key, on_press, args, kind, icon, help, disabled, form))


def button_row(*buttons: Button) -> None:
    """Several buttons side by side."""
    names = ("label", "key", "kind", "icon", "help", "disabled", "form")
    button_fields = [{name: getattr(b, name) for name in names} for b in buttons]
    actions = {b.key: None if b.disabled else partial(_call_action, b) for b in buttons}
    draw("buttons", f"row-{buttons[0].key}", {"buttons": button_fields}, actions, width="content")


def _call_action(pressed_button: Button, typed_numbers: Any) -> None:
    pressed_button.on_press(*pressed_button.args, *([typed_numbers] if pressed_button.form else []))


def draw(
    kind: str,
    key: str,
    data: dict[str, Any],
    actions: Mapping[str, Callable[[Any], None] | None],
    *,
    width: Literal["content", "stretch"] = "stretch",
) -> None:
    """Draw a component that sends presses.

    actions: the action of a press of each key; None: it is disabled.  A press on its way was made before that, so
    its earlier action is kept.
    """
    press_log = log()
    press_log.actions |= {name: action for name, action in actions.items() if action is not None}

    def take_presses() -> None:
        state = st.session_state.get(key)
        if state is not None and (event := state.get("presses")):
            press_log.take(event)

    component(kind)(
        key=key,
        data=data | {"taken": press_log.taken, "session": press_log.name},
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
    js = "\n".join(
        [*(script.partition("export default")[0] for script in scripts[:-1]), scripts[-1]]
    )
    css = "".join(style.read_text("utf-8") for style in styles if style.is_file()) or None
    draw_component: Callable[..., Any] = st.components.v2.component(
        f"headlab-{kind}", css=css, js=js
    )
    return draw_component


def uninterrupted(callback: Callable[..., None]) -> Callable[..., None]:
    """A callback that other requests wait for: streamlit would end it where it accesses session state."""

    def run_uninterrupted(*arguments: Any) -> None:
        with without_interruption():
            callback(*arguments)

    return run_uninterrupted


# Downloads. Streamlit forgets a file that no session's page refers to once two runs of anybody have ended, and to one
# that is made on demand no page refers: on a busy server the browser asked for it too late and saved nothing.

MAX_KEPT_FILES = 32  # files made on demand, of everybody


def download(
    label: str, data: str | bytes | Callable[[], str | bytes], name: str, kind: str, *, key: str | None = None,
    help: str | None = None,
) -> None:  # fmt: skip
    """A button that saves `data` as the file `name`; a function is called when the button is pressed.

    kind: MIME type.
    """
    content = partial(kept_content, data, name, kind) if callable(data) else data
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
    """What `make` gives, kept in the server until `KEPT` later files have been made."""
    data = make()
    content = data.encode() if isinstance(data, str) else data
    serve_download(content, kind, f"made-{next(_download_numbers()) % MAX_KEPT_FILES}", name)
    return content


@cache
def _download_numbers() -> Iterator[int]:
    return count()


# Parts of a page that redraw themselves while something runs. Such a timer is a request like a user's, so there are as
# few as possible, and what it redraws holds no input and no button.

# Marks a page that is not final yet: it will change by itself.
LIVE_MARK = '<span hidden data-state="live"></span>'


def redraw_every(
    draw_part: Callable[..., None], seconds: float | None, *, waits: bool = True
) -> Callable[..., None]:
    """`draw_part`, redrawn every `seconds`; None: drawn once.

    waits: something is running that will end.  False for what only checks for news.
    """

    @wraps(draw_part)
    def redraw(*arguments: Any) -> None:
        if is_fragment_run():
            _restore_given_values(is_timer=True)  # `draw_part` may draw the whole page anew
        draw_part(*arguments)
        if seconds is not None and waits:
            st.html(LIVE_MARK)

    fragment: Callable[..., Any] = st.fragment(redraw, run_every=seconds)
    return fragment
