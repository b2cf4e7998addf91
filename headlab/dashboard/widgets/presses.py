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

LOG, ROOT = "_presses", "headlab-presses"
BASES = {"rolegrid": ("headgrid",)}
Kind = Literal["primary", "secondary", "tertiary"]


@dataclass
class Given:
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
class Log:
    """The presses of one session. taken: {tab: number of its last press handled}.  actions: {key: action of a press}.

    given: {key of a widget: the value that an action set}.  name: of the session, by which a browser detects that a
    new one began.
    """

    taken: dict[str, int] = field(default_factory=dict)
    actions: dict[str, Callable[[Any], None]] = field(default_factory=dict)
    given: dict[str, Given] = field(default_factory=dict)
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
                    for given in self.given.values():
                        given.drawn = given.drawn and given.press != (tab, number)

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
    kind: Kind = "secondary"
    icon: str = ""
    help: str = ""
    disabled: bool = False
    form: str = ""


def log() -> Log:
    """The log of this session."""
    held: Log = st.session_state.setdefault(LOG, Log())
    return held


def root(page: str, pages: Sequence[str]) -> None:
    """The part of the log that is on every page. Called by app.py before a page is drawn.

    page: path of the page being drawn, empty for the default one.  pages: paths of all pages.
    """
    held = log()
    with held.lock:  # wait for a press in progress, so that the page shows its effect
        held.page = page
        _hold(timer=False)
        draw("root", ROOT, {"page": page, "pages": list(pages)}, {})


def drawn() -> None:
    """The page has been drawn to its end. Called by app.py."""
    for given in log().given.values():
        given.drawn = True


def set_widget(key: str, value: Any) -> None:
    """Set a widget's value in an action, or before the widget is drawn.

    It holds against requests that still bring what the browser showed before: those of timers always, others until it
    has been drawn. It is sent with every run until the browser has drawn the widget.
    """
    held, before = log(), [st.session_state[key]] if key in st.session_state else []
    if (earlier := held.given.get(key)) is not None and not earlier.drawn:
        before += [earlier.value, *earlier.before]
    held.given[key] = Given(value, before, held.press, held.page)
    st.session_state[key] = value


def set_first_value(key: str, value: Any) -> None:
    """Set a widget's value before it is drawn for the first time."""
    if key not in st.session_state:
        set_widget(key, value)


def _hold(*, timer: bool) -> None:
    """Put back what the program set where a request brought what the browser showed before, or nothing.

    A value that a person chose since then stays.

    timer: the request is a timer's, so that it brings nobody's choice.
    """
    held, state, brought = log(), st.session_state, keys_in_request()
    for key, given in list(held.given.items()):
        if key not in state:
            continue
        given.shown = given.shown or key in brought
        if state[key] == given.value:
            if (
                not given.shown and given.page == held.page
            ):  # on another page it would outlive its widget
                state[key] = given.value  # streamlit sends only a value that was set in the run
        elif state[key] in given.before and (timer or not given.drawn):
            state[key] = given.value
        elif not timer:
            del held.given[key]


def button(
    label: str,
    *,
    key: str,
    on_press: Callable[..., None],
    args: Sequence[Any] = (),
    kind: Kind = "secondary",
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
    shown = [{name: getattr(b, name) for name in names} for b in buttons]
    actions = {b.key: None if b.disabled else partial(_press, b) for b in buttons}
    draw("buttons", f"row-{buttons[0].key}", {"buttons": shown}, actions, width="content")


def _press(pressed: Button, typed: Any) -> None:
    pressed.on_press(*pressed.args, *([typed] if pressed.form else []))


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
    held = log()
    held.actions |= {name: action for name, action in actions.items() if action is not None}

    def received() -> None:
        state = st.session_state.get(key)
        if state is not None and (event := state.get("presses")):
            held.take(event)

    component(kind)(
        key=key,
        data=data | {"taken": held.taken, "session": held.name},
        width=width,
        on_presses_change=uninterrupted(received),
    )


@cache
def component(kind: str) -> Callable[..., Any]:
    """The component whose script and style are `static/{kind}`, after those of its base."""
    files = resources.files("headlab.dashboard") / "static"
    parts = [*BASES.get(kind, ()), kind]
    styles = [files / f"{part}.css" for part in parts]
    scripts = [(files / f"{part}.js").read_text("utf-8") for part in ["presses", *parts]]
    # Only the last one is mounted.
    js = "\n".join(
        [*(script.partition("export default")[0] for script in scripts[:-1]), scripts[-1]]
    )
    css = "".join(style.read_text("utf-8") for style in styles if style.is_file()) or None
    made: Callable[..., Any] = st.components.v2.component(f"headlab-{kind}", css=css, js=js)
    return made


def uninterrupted(change: Callable[..., None]) -> Callable[..., None]:
    """A callback that other requests wait for: streamlit would end it where it accesses session state."""

    def changed(*given: Any) -> None:
        with without_interruption():
            change(*given)

    return changed


# Downloads. Streamlit forgets a file that no session's page refers to once two runs of anybody have ended, and to one
# that is made on demand no page refers: on a busy server the browser asked for it too late and saved nothing.

KEPT = 32  # files made on demand, of everybody


def download(
    label: str, data: str | bytes | Callable[[], str | bytes], name: str, kind: str, *, key: str | None = None,
    help: str | None = None,
) -> None:  # fmt: skip
    """A button that saves `data` as the file `name`; a function is called when the button is pressed.

    kind: MIME type.
    """
    held = partial(kept, data, name, kind) if callable(data) else data
    st.download_button(
        label, held, name, kind, key=key, help=help, on_click="ignore", icon=":material/download:"
    )


def kept(make: Callable[[], str | bytes], name: str, kind: str) -> bytes:
    """What `make` gives, kept in the server until `KEPT` later files have been made."""
    data = make()
    content = data.encode() if isinstance(data, str) else data
    serve_download(content, kind, f"made-{next(_places()) % KEPT}", name)
    return content


@cache
def _places() -> Iterator[int]:
    return count()


# Parts of a page that redraw themselves while something runs. Such a timer is a request like a user's, so there are as
# few as possible, and what it redraws holds no input and no button.

# Marks a page that is not final yet: it will change by itself.
LIVE = '<span hidden data-state="live"></span>'


def redraw_every(
    look: Callable[..., None], seconds: float | None, *, waits: bool = True
) -> Callable[..., None]:
    """`look`, redrawn every `seconds`; None: drawn once.

    waits: something is running that will end.  False for what only checks for news.
    """

    @wraps(look)
    def looked(*given: Any) -> None:
        if is_fragment_run():
            _hold(timer=True)  # `look` may draw the whole page anew
        look(*given)
        if seconds is not None and waits:
            st.html(LIVE)

    drawn: Callable[..., Any] = st.fragment(looked, run_every=seconds)
    return drawn
