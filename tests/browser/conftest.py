"""The app as a user has it: a streamlit server with its worker, and a real browser in front of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from support.browsing import IDLE_APP, choose_option
from support.cached_scores import fill, made_up, while_cached
from support.saved_models import save_classifier
from support.waiting import until

from headlab import load
from headlab.core import HeadlabError
from headlab.dashboard.panels.job_format import LIVE_STATES
from headlab.worker.client import Client

ROOT = Path(__file__).parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--js-flags=--single-threaded --no-opt",  # a page lives for seconds: compiling it better takes longer than it saves
]
# On a link to a page, streamlit's own script asks for these below that page first, then at the root.
PROBE = re.compile(r"/\w+/_stcore/(health|host-config)$")
# It also fetches what a download button offers when it has drawn one; by then the page may have been drawn anew, with
# another offer, and the first is gone. Tests that download hold that those on the page are there.
GONE = re.compile(r"/media/\w+\.\w+$")
OFFER = "Client Error: Download Button source error - 404"
TOKEN = "made-up-for-tests-0123"  # of the app's worker, so that a test can ask it too

WINDOW = {"width": 1440, "height": 900}
DEADLINE = 120_000  # ms; it only ends a test that would hang


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@dataclass
class App:
    """`streamlit run app.py` on a free port, with results from `cache`."""

    cache: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={self.port}"]
        command.append("--server.fileWatcherType=none")
        environment = {k: v for k, v in os.environ.items() if k != "HEADLAB_WORKER"} | {
            "HEADLAB_CACHE": str(self.cache),
            "HEADLAB_TOKEN": TOKEN,
        }
        with (self.cache / "streamlit.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=log
            )
        self._wait()

    def _wait(self) -> None:
        def answers() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, (
                f"streamlit ended: {(self.cache / 'streamlit.log').read_text()[-2000:]}"
            )
            try:
                with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=10):
                    return True
            except (urllib.error.URLError, OSError):
                return False

        until(answers, "an answer of streamlit")

    def worker(self) -> Client:
        """The app's own worker, which the first visitor starts."""
        told = self.cache / ".worker" / "worker.json"
        until(told.exists, "the app's worker; some page must be visited before")
        return Client(json.loads(told.read_text())["url"], TOKEN)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()


@pytest.fixture(scope="session")
def cache_folder(tmp_path_factory) -> Path:
    """Made-up scores under the real model's fingerprint, so that masks made from them fit it."""
    from headlab.models.embedded import fingerprint

    try:
        identity = fingerprint("e5-small-intents")
    except HeadlabError:
        identity = "0" * 64
    return fill(tmp_path_factory.mktemp("cache"), identity)


@pytest.fixture(scope="session")
def app(cache_folder) -> Iterator[App]:
    app = App(cache_folder)
    app.start()
    yield app
    app.stop()


@pytest.fixture(scope="module")
def light_model(cache_folder, tmp_path_factory) -> Iterator[str]:
    """Folder of a model of 12 by 12 heads that is computed in no time; made-up scores let a link name it."""
    folder = str(save_classifier(tmp_path_factory.mktemp("models") / "light", layers=12, heads=12))
    scores = made_up("de", "shapley", load(folder).fingerprint, folder)
    with while_cached(cache_folder, scores):
        yield folder


@pytest.fixture
def no_jobs_left(app) -> Iterator[None]:
    """A test that fails leaves no job behind that the next one would wait for."""
    yield
    with closing(app.worker()) as worker:
        for job in worker.jobs():
            if job.state in LIVE_STATES:
                worker.cancel(job.id)
        until(
            lambda: not any(job.state in LIVE_STATES for job in worker.jobs()), "an end of all jobs"
        )
        for job in worker.jobs():
            worker.delete(job.id)


@pytest.fixture
def long_job(app, no_jobs_left):
    """Queue a job that would take many minutes, so that it cannot end before a test has looked; its number."""

    def submit(model: str) -> int:
        options = {"target": 0.00001, "samples": 5_000_000}
        asked = {
            "model": model,
            "task": "intents",
            "languages": ["de"],
            "method": "monte-carlo",
            "options": options,
        }
        with closing(app.worker()) as worker:
            return worker.submit("score", asked).id

    return submit


@pytest.fixture(scope="session")
def chromium():
    """A browser; tests are skipped, with the reason, where there is none."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no Chromium: none of {', '.join(BROWSERS)} is on the PATH")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=DEADLINE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


def _is_gone(url: str, text: str) -> bool:
    return text == OFFER or ("status of 404" in text and GONE.search(url) is not None)


@dataclass
class Watch:
    """What must not happen while a page is used."""

    host: str
    outside: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def request(self, request) -> None:
        if not request.url.startswith(
            (self.host, self.host.replace("http", "ws", 1), "data:", "blob:")
        ):
            self.outside.append(request.url)

    def console(self, message) -> None:
        url = message.location.get("url", "")
        if message.type == "error" and not (PROBE.search(url) or _is_gone(url, message.text)):
            self.errors.append(message.text)

    def failed(self, error) -> None:
        self.errors.append(str(error))


@pytest.fixture(scope="session")
def profile(app, chromium):
    """What all tests share: the cache of streamlit's own scripts."""
    context = chromium.new_context(viewport=WINDOW, base_url=app.url)
    context.set_default_timeout(DEADLINE)
    yield context
    context.close()


@pytest.fixture(scope="session")
def tab(profile):
    """One tab for all tests: a new one takes the browser longer than a page takes streamlit."""
    return profile.new_page()


@pytest.fixture
def page(app, profile, tab):
    """A tab as good as new; fails if a request left this host, or the console or the page showed an error.

    Each address that is opened is a session of its own.
    """
    watch = Watch(app.url)
    seen = {"request": watch.request, "console": watch.console, "pageerror": watch.failed}
    for event, look in seen.items():
        tab.on(event, look)
    yield tab
    traces = tab.get_by_test_id("stException").count()
    for event, look in seen.items():
        tab.remove_listener(event, look)
    as_new(tab)
    assert watch.outside == []
    assert watch.errors == []
    assert traces == 0


def as_new(tab) -> None:
    """Close what a test opened beside a tab, and leave nothing of what it set."""
    for opened in tab.context.pages:
        if opened is not tab:
            opened.close()
    if tab.url.startswith("http"):
        tab.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
    tab.goto("about:blank")
    tab.set_viewport_size(WINDOW)
    tab.emulate_media(color_scheme="null")
    tab.context.clear_cookies()


@dataclass
class Line:
    """A tab of a test's own, and what it and the server say to each other.

    Attributes:
        lost: Its messages while the line was cut.
        late: The server's while the tab is deaf.
    """

    page: Any
    cut: bool = False
    deaf: bool = False
    lost: list[Any] = field(default_factory=list)
    late: list[Any] = field(default_factory=list)

    def between(self, browser) -> None:
        self.browser, server = browser, browser.connect_to_server()

        browser.on_message(
            lambda message: self.lost.append(message) if self.cut else server.send(message)
        )
        server.on_message(
            lambda message: self.late.append(message) if self.deaf else browser.send(message)
        )

    def said(self) -> list[ForwardMsg]:
        """What the server has said while the tab is deaf."""
        return [ForwardMsg.FromString(message) for message in self.late]

    def runs(self) -> int:
        """Runs of the whole page that have ended while the tab is deaf."""
        ended = [m for m in self.said() if m.HasField("script_finished")]
        return sum(m.script_finished == m.FINISHED_SUCCESSFULLY for m in ended)

    def wait_for_runs(self, count: int) -> None:
        """Wait until so many runs of the whole page have ended."""
        for _ in range(DEADLINE // 100):
            if self.runs() >= count:
                return
            self.page.wait_for_timeout(100)
        ends = [m.script_finished for m in self.said() if m.HasField("script_finished")]
        begun = [
            list(m.new_session.fragment_ids_this_run)
            for m in self.said()
            if m.HasField("new_session")
        ]
        raise AssertionError(
            f"{self.runs()} of {count} runs have ended; ends {ends}, of fragments {begun}"
        )

    def hear(self) -> None:
        """Deliver what was kept back, and from now on all at once."""
        self.deaf = False
        while self.late:
            self.browser.send(self.late.pop(0))


@pytest.fixture
def line(profile):
    """A tab whose line can be cut. It is closed after the test, as nothing takes such a route back."""
    page = profile.new_page()
    held = Line(page)
    page.route_web_socket(re.compile(r"/_stcore/stream"), held.between)
    yield held
    page.close()


@pytest.fixture(scope="session")
def warm_up(tab):
    """Open a page and wait until something is on it that takes the worker and its model."""

    def wait(path: str, selector: str) -> None:
        tab.goto(path)
        tab.locator(selector).wait_for(timeout=240_000)
        as_new(tab)

    return wait


@pytest.fixture
def settled(page):
    """Wait until the page has run."""
    return lambda: page.locator(IDLE_APP).wait_for()


@pytest.fixture
def visit(page, settled):
    """Open a path and wait until the page has run."""

    def go(path: str):
        page.goto(path)
        page.locator("h1").first.wait_for()
        settled()
        return page

    return go


@pytest.fixture
def choose(page):
    """Choose from a list."""

    def pick(box: str, name: str) -> None:
        choose_option(page.get_by_role("combobox", name=box, exact=True), name)

    return pick
