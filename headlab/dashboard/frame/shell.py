"""The frame of every page: the worker, the shared choice, the cached listing, and errors as sentences."""

from __future__ import annotations

import gc
import importlib
import logging
import math
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast

import streamlit as st
from streamlit.runtime.pages_manager import PagesManager

from headlab.core import HeadGrid, HeadlabError, Report, remember_former
from headlab.dashboard.frame import guide
from headlab.dashboard.frame.sidebar import (
    CLASSES,
    HUB_ID,
    VARIANT,
    as_text,
    know,
    known_task,
    label_map,
    notes,
    pick_languages,
    pick_model,
    pick_variant,
    recall,
    stop_if_refused,
    typed,
)
from headlab.dashboard.frame.stored_scores import (
    Found,
    best_method,
    matching,
    of_own_heads,
    select,
    spoken,
    stored,
    variants,
)
from headlab.dashboard.names import PAGES, counted, page_link, plain
from headlab.dashboard.widgets import notices
from headlab.dashboard.widgets.headgrid import know_groups
from headlab.dashboard.widgets.presses import follow, give, uninterrupted
from headlab.methods.costs import options_of
from headlab.methods.table import METHODS
from headlab.results import HeadScores, LearnedGates, Listing, Store, default_root
from headlab.tasks import names
from headlab.tasks.base import TREEBANK
from headlab.tasks.labels import same_classes
from headlab.worker import process
from headlab.worker.client import Client
from headlab.worker.schemas import Health, LoadedModel

# An iterator read in its own thread, so that no click waits for its next value.

T = TypeVar("T")


class Latest(Generic[T]):
    """The newest value of an iterator, which a thread starts reading at once.

    In streamlit, a click in a fragment waits for the current run to end, so a run must be short: the page
    polls `value` instead of reading the iterator itself.  error: the exception that ended the iterator,
    if any.

    Args:
        make: Gives the iterator, in the thread.
        stopped: Set by `stop`; for an iterator that must know whether it is still wanted.
    """

    def __init__(
        self, make: Callable[[], Generator[T]], stopped: threading.Event | None = None
    ) -> None:
        self.value: T | None = None
        self.error: Exception | None = None
        self.done = False
        self._begun = time.monotonic()
        self._make = make
        self._seen = 0
        self._news = threading.Condition()
        self._stopped = threading.Event() if stopped is None else stopped
        threading.Thread(target=self._read, name="figures", daemon=True).start()

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._begun

    def stop(self) -> None:
        """Close the iterator at its next value."""
        self._stopped.set()

    def wait(self, values: int, seconds: float) -> bool:
        """Whether this many values have arrived or the iterator has ended, at the latest when the time is up."""
        with self._news:
            return self._news.wait_for(lambda: self.done or self._seen >= values, timeout=seconds)

    def _read(self) -> None:
        try:
            with closing(self._make()) as values:
                for value in values:
                    with self._news:
                        self.value, self._seen = value, self._seen + 1
                        self._news.notify_all()
                    if self._stopped.is_set():
                        break
        except Exception as error:  # for the caller to raise, not this thread
            self.error = error
        with self._news:
            self.done = True
            self._news.notify_all()


# The worker as pages see it: started once per server, its state in one line, a client to ask it.

WAIT_SECONDS = 60.0
FRESH_SECONDS = 2.0
RETRY_SECONDS = 10.0
LOOK_SECONDS = 3.0
GIVE_WAY_SECONDS = 0.1
# The first page also needs the processor, and needs no worker.
HEAD_START_SECONDS = 1.5
SIGNS = {
    "starting": ":material/hourglass_top:",
    "ready": ":material/check_circle:",
    "busy": ":material/sync:",
}


class State(NamedTuple):
    """What the worker is doing: `starting`, `ready`, `busy` or `away`, and a line that says so.

    ray: the Ray cluster that it can hand jobs to, in a word; empty if there is none.
    """

    kind: str
    line: str
    ray: str = ""


def embedded_models() -> list[str]:
    """Models shipped with headlab: the folders of their adapters (read without torch)."""
    root = Path(str(files("headlab") / "embedded"))
    return sorted(p.parent.name for p in root.glob("*/adapter_config.json"))


def connect() -> process.Worker:
    """The worker that $HEADLAB_WORKER names, or a local one that loads the embedded model at once."""
    return process.connect(warm=next(iter(embedded_models()), None))


class Supervisor:
    """Connects to the worker in the background and retries after a failure; all sessions share it."""

    def __init__(self, connect: Callable[[], process.Worker], delay: float) -> None:
        self._connect = connect
        self._delay = delay
        self._worker: process.Worker | None = None
        self._error = self._error_code = ""
        self._failed = 0.0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._seen = (0.0, State("starting", "Worker: starting"))
        self._begin()

    def _begin(self) -> None:
        self._thread = threading.Thread(
            target=self._start, name="headlab-worker-start", daemon=True
        )
        self._thread.start()

    def _start(self) -> None:
        time.sleep(self._delay)
        try:
            self._worker, self._error, self._error_code = self._connect(), "", ""
        except HeadlabError as error:
            self._error, self._error_code, self._failed = str(error), error.code, time.monotonic()

    def _again(self) -> None:
        """Try once more if the last attempt failed a while ago."""
        with self._lock:
            idle = self._thread is None or not self._thread.is_alive()
            if self._worker is None and idle and time.monotonic() - self._failed > RETRY_SECONDS:
                self._delay = 0.0
                self._begin()

    def client(self, wait: float = WAIT_SECONDS) -> Client:
        """The worker's client, waiting while a worker starts. Raises HeadlabError if there is none."""
        self._again()
        until = time.monotonic() + wait
        while (
            self._worker is None
            and self._thread is not None
            and self._thread.is_alive()
            and time.monotonic() < until
        ):
            time.sleep(0.02)
        if self._worker is None:
            raise HeadlabError(
                self._error or "the worker is still starting; try again in a few seconds",
                code=self._error_code or "worker.starting",
            )
        return self._worker.client()

    @property
    def connected(self) -> bool:
        """Whether `client` answers at once."""
        return self._worker is not None

    def state(self) -> State:
        """The worker's state, requested at most every two seconds, however many tabs are open."""
        asked, state = self._seen
        begun = state.kind == "starting" and self.connected
        if begun or time.monotonic() - asked > FRESH_SECONDS:
            self._seen = (time.monotonic(), state)
            self._seen = (time.monotonic(), state := self._ask())
        return state

    def _ask(self) -> State:
        self._again()
        if self._worker is None:
            return (
                State("away", f"Worker: not running. {self._error}")
                if self._error
                else State("starting", "Worker: starting")
            )
        try:
            return describe(self._worker.client().health())
        except HeadlabError as error:
            return State("away", f"Worker: not reachable. {error}")


def describe(health: Health) -> State:
    """A worker's health in one line."""
    where = f" on {health.device}" if health.device else ""
    if not health.jobs_running:
        note = f". {health.note}" if health.note else ""
        return State("ready", f"Worker: ready{where}{note}", health.ray)
    waiting = health.jobs_waiting
    more = f", {counted(waiting, 'more job')} in line" if waiting else ""
    line = f"Worker: computing scores{where}{more}; live requests for its model go first"
    return State("busy", line, health.ray)


@st.cache_resource(show_spinner=False)
def supervisor() -> Supervisor:
    """The one supervisor of this server; $HEADLAB_WORKER names a worker elsewhere."""
    return Supervisor(connect, HEAD_START_SECONDS)


def client() -> Client:
    """A client of the worker; waits, with a spinner, while a local one starts. Raises HeadlabError."""
    watched = supervisor()
    if watched.connected:
        return watched.client()
    with st.spinner("Starting the worker that holds the model …"):
        return waited(watched.client)


def await_news(live: Latest[Any], values: int, seconds: float = math.inf) -> None:
    """Wait until it has so many values or has ended, or is that old; another request may end this run meanwhile."""
    while live.age < seconds and not live.wait(values, GIVE_WAY_SECONDS):
        st.session_state.get("_")  # here streamlit checks for other requests


def waited(ask: Callable[[], T]) -> T:
    """The answer to a slow call. Meanwhile another request, such as a page switch, may end this run."""

    def answer() -> Generator[T]:
        yield ask()

    live = Latest(answer)
    await_news(live, 2)
    if live.error is not None:
        raise live.error
    return cast(T, live.value)


def status_line() -> None:
    """One line in the sidebar; it keeps itself up to date unless the worker has nothing to do."""
    every = None if supervisor().state().kind == "ready" else LOOK_SECONDS
    follow(_status, every)(every)


def _status(every: float | None) -> None:
    state = supervisor().state()
    if every is not None and state.kind == "ready":
        st.rerun()  # which ends the timer
    if state.kind == "away":
        st.warning(plain(state.line))
    else:
        st.caption(f"{SIGNS[state.kind]} {plain(state.line)}")


# Contents of the cache folder, re-read only when one of its files changed.

Stamp = str  # name, time and size of every file: one text, as streamlit takes long to hash many small values
KINDS = (HeadScores, Report, LearnedGates)  # what pages list
R = TypeVar("R")
Kind = TypeVar("Kind")


def listing(kind: type[Kind]) -> Listing[Kind]:
    """Every readable result of a kind (HeadScores, Report, …) in the cache folder, re-read only when it changed.

    Results of other heads than their model's are problems. Raises HeadlabError for a folder that cannot be read.
    """
    return cast(Listing[Kind], _of_folder(lambda root, stamp: _listing(root, stamp, kind)))


@st.cache_resource(show_spinner=False)
def _grids() -> dict[str, HeadGrid]:
    """Heads of every model that the worker has loaded for a page, by fingerprint."""
    return {}


def loaded(name: str) -> LoadedModel:
    """The worker's description of a model, which it loads; from then on its heads are known."""
    model = waited(partial(client().model, name))
    remember_former(model.fingerprint, model.former_fingerprints)
    _grids()[model.fingerprint] = model.grid
    if model.costs is not None:
        know_groups(model.fingerprint, model.costs)
    return model


def specs_here() -> list[Mapping[str, Any]]:
    """The spec of every stored result that pages list. Raises as `listing` does."""
    return _of_folder(_specs)


def _of_folder(read: Callable[[Path, Stamp], R]) -> R:
    """What is read of the cache folder. read: of folder and stamp, cached by both; the stamp tells known models too."""
    root = default_root()
    try:
        return read(root, "\n".join((_stamp(root), *_grids())))
    except OSError as error:
        raise HeadlabError(
            f"cannot read the cache folder {root} ({error.strerror}); set HEADLAB_CACHE to another",
            code="store.unreadable",
        ) from error


@st.cache_resource(max_entries=2 * len(KINDS), show_spinner=False)
def _listing(root: Path, stamp: Stamp, kind: type) -> Listing[Any]:
    return of_own_heads(store(root).listing(kind), _grids())


@st.cache_resource(max_entries=2, show_spinner=False)
def _specs(root: Path, stamp: Stamp) -> list[Mapping[str, Any]]:
    return [result.record.spec for kind in KINDS for result in _listing(root, stamp, kind).results]


@st.cache_resource(max_entries=2, show_spinner=False)
def store(root: Path) -> Store:
    """The store of a folder, one for all sessions: it re-reads only the results that changed."""
    return Store(root)


def _stamp(root: Path) -> Stamp:
    """Name, time and size of every result file: changes whenever the listing may."""
    names = ("spec.json", "result.npz")
    stats = (
        [(p, p.stat()) for p in sorted(root.glob("*/*")) if p.name in names]
        if root.is_dir()
        else []
    )
    return "\n".join(f"{p.parent.name}/{p.name} {s.st_mtime_ns} {s.st_size}" for p, s in stats)


# The frame of every page; static/page.css has its style.

HEAVY = (
    "pandas",
    "plotly.graph_objects",
    "scipy.stats",
    "scipy.cluster.hierarchy",
    "headlab.worker.client",
)
LINKED = (
    "model",
    "task",
    "method",
    "langs",
    CLASSES,
    VARIANT,
)  # the choice's keys, in the link and of the widgets
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Choice:
    """What all pages show: one model, task and method, and some of the task's languages.

    label_map: {label: class of the model}, where it is stated.  variant: name of the method's results that are shown,
    where the cache has several (`headlab.dashboard.frame.stored_scores.variants`).
    """

    model: str
    task: str
    languages: tuple[str, ...]
    method: str
    label_map: Mapping[str, str] | None = None
    variant: str = ""

    @property
    def about(self) -> dict[str, Any]:
        """What every job on this choice says of it."""
        stated = {} if self.label_map is None else {"label_map": dict(self.label_map)}
        return {"model": self.model, "task": self.task, **stated}

    def fits(self, spec: Mapping[str, Any]) -> bool:
        """Whether a result of this spec has the classes of this choice."""
        return same_classes(spec.get("task") or {}, self.label_map)


def boot() -> None:
    """Run the entry file even for a link straight to a page, right after the server has started.

    Until the entry page has been opened, streamlit treats the folder pages/ as an old-style app and
    would run the page without it. tests/browser/test_navigation.py tests this.
    """
    if PagesManager.uses_pages_directory:
        PagesManager.uses_pages_directory = False
        st.rerun()


@st.cache_resource(show_spinner=False)
def warm_up() -> None:
    """Import what the pages need, then exempt it from garbage collection; once per server."""
    for name in HEAVY:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _static(name: str) -> Path:
    return Path(str(files("headlab.dashboard") / "static" / name))


def icon() -> str:
    """Path of the app's icon; a named one would be fetched from the network."""
    return str(_static("icon.svg"))


@contextmanager
def guarded() -> Iterator[None]:
    """Show a problem as a sentence. Fragments need their own: they run again without their page."""
    try:
        yield
    except HeadlabError as error:
        st.error(plain(str(error)))
        if error.code == "worker.other_model_in_use":
            page_link("jobs", "Jobs: how long that job takes, and Cancel")
    except Exception as error:  # last resort before the user: the traceback goes to the log
        log.exception("page failed")
        st.error(f"An unexpected error occurred ({plain(f'{type(error).__name__}: {error}')}). "
                 "Nothing is lost; reload the page. Details are in the server's log.")  # fmt: skip


@contextmanager
def page(name: str, intro: str = "") -> Iterator[Choice]:
    """A page's frame: title, what it answers, notices about the link, and errors as sentences. Yields the choice.

    name: of one of headlab's pages, or the title of another package's.  intro: what the latter answers.
    """
    boot()
    st.html(_static("page.css"))
    own = name in PAGES
    st.title("headlab" if name == "overview" else PAGES[name][0] if own else name)
    if own:
        guide.top(name)
    elif intro:
        st.markdown(intro)
    notices.draw()
    stop_if_refused()
    with guarded():
        made = st.session_state.get("_choice")
        yield made if isinstance(made, Choice) else sidebar()
        notices.settle()


def found(choice: Choice, method: str | None = None) -> Found:
    """The cached results of a choice; `method` overrides the choice's."""
    asked = method or choice.method
    results = matching(
        listing(HeadScores).results, choice.model, choice.task, asked, choice.label_map
    )
    return select(results, choice.languages, choice.variant if asked == choice.method else "")


def as_cached(choice: Choice) -> dict[str, Any]:
    """The method's options that the cached scores of a choice were made with; none where there are none.

    What builds on scores starts from these: scores of another precision would be computed for hours beside them.
    """
    like, known = found(choice).like, METHODS[choice.method].options
    return (
        {}
        if like is None
        else {name: value for name, value in options_of(like).items() if name in known}
    )


@dataclass(frozen=True)
class Other:
    """Stored results of another model or task.  page: where most of them are shown.  choice: that shows them."""

    choice: Choice
    page: str
    words: str


def others(choice: Choice) -> list[Other]:
    """Other models and tasks that have stored results; reports of roles on a treebank are of no task."""
    specs = specs_here()
    scores, found = listing(HeadScores).results, list[Other]()
    for (model, name), count in sorted(stored(specs).items()):
        many = counted(count, "result")
        if name == TREEBANK:
            if model != choice.model:
                found.append(
                    Other(
                        replace(choice, model=model, label_map=None),
                        "roles",
                        f"{model}: {many} on roles",
                    )
                )
        elif (model, name) != (choice.model, choice.task):
            method = best_method(matching(scores, model, name), choice.method)
            other = Choice(model, name, tuple(languages_of(name)), method or choice.method)
            found.append(
                Other(other, "overview" if method else "experiments", f"{model} on {name}: {many}")
            )
    return found


def known_models(specs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Models that can be chosen: the embedded ones, those with results, and those named in this session.

    specs: of all stored results.
    """
    named = [
        *st.session_state.get("_named_models", []),
        *filter(HUB_ID.fullmatch, st.query_params.get_all("model")),
    ]
    known = dict.fromkeys(
        [*embedded_models(), *sorted({model for model, _ in stored(specs)}), *named]
    )
    return list(known) or ["e5-small-intents"]


def languages_of(name: str) -> list[str]:
    """A task's languages; for a task that is unknown here or cannot be read, those of its results."""
    found = known_task(name)
    return list(found.languages) if found else spoken(specs_here(), name)


def _restore() -> None:
    """Restore what a page switch lost: a browser that has not drawn a widget yet sends neither its value nor its link.

    When going back in the browser's history, streamlit gives the link precedence over this.
    """
    before = st.session_state.get("_choice")
    if not isinstance(before, Choice):
        _return_link()
        return
    for key, value in (_widgets(before) | {CLASSES: typed(before.model, before.task)}).items():
        if key not in st.session_state and not st.query_params.get_all(key):
            st.session_state[key] = value


def _return_link() -> None:
    """Restore the choice of the session's first link, if a page switch ended its run before it got here.

    Widgets read the link as it was when their run started, so this starts another run.
    """
    first = st.session_state.get("_link", {})
    lost = {
        key: first[key] for key in LINKED if first.get(key) and not st.query_params.get_all(key)
    }
    if lost:
        st.query_params.update(lost)
        st.rerun()


def go(name: str, choice: Choice) -> None:
    """Open a page with another choice, in a callback.

    The choice is applied after the switch, because the browser sends what it showed before along with it.
    """
    st.session_state["_go"], st.session_state["_wanted"] = name, choice


def _arrive() -> None:
    """Make the switch that `go` asked for, or apply its choice once it has been made."""
    if (name := st.session_state.pop("_go", None)) is not None:
        st.switch_page(f"pages/{name}.py", query_params={})
    if (wanted := st.session_state.pop("_wanted", None)) is not None:
        know(wanted.model)
        for key, value in _widgets(wanted).items():
            give(key, value)


def _widgets(choice: Choice) -> dict[str, Any]:
    stated = as_text(choice.label_map)
    values = (
        choice.model,
        choice.task,
        choice.method,
        list(choice.languages),
        stated,
        choice.variant,
    )
    return dict(zip(LINKED, values, strict=True))


def sidebar() -> Choice:
    """Draw the shared widgets, bound to the link, and return the choice. Called by app.py only."""
    _restore()
    _arrive()
    specs = specs_here()
    tasks = list(
        dict.fromkeys([*names(), *sorted({name for _, name in stored(specs)} - {TREEBANK})])
    )
    with st.sidebar:
        model = pick_model(known_models(specs), specs)
        notices.note("task", "task", tasks)
        name = st.selectbox(
            "Task", tasks, key="task", bind="query-params", on_change=uninterrupted(recall)
        )
        for note in notes(name):
            st.caption(plain(note))
        stated = label_map(model, name)
        notices.note("method", "method", list(METHODS))
        method = st.selectbox("Method", list(METHODS), key="method", bind="query-params")
        st.caption(f"{METHODS[method].title}. Unit: {METHODS[method].unit}.")
        variant = pick_variant(
            list(variants(matching(listing(HeadScores).results, model, name, method, stated)))
        )
        options = languages_of(name)
        notices.note("langs", "language", options)
        pick_languages(options)
        status_line()
    chosen = st.session_state["langs"]
    choice = Choice(model, name, tuple(o for o in options if o in chosen), method, stated, variant)
    if st.session_state.get("_choice") not in (None, choice):
        notices.clear()  # they are about the link
    st.session_state["_choice"] = choice
    return choice
