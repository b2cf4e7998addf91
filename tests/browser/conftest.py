"""The app as a user has it: a streamlit server with its worker, and a real browser."""

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
from support.browsing import DEADLINE, IDLE_APP, choose_option
from support.cached_scores import fill_cache, made_scores, while_cached
from support.saved_models import save_classifier
from support.waiting import wait_until

from headlab import load
from headlab.core import HeadlabError
from headlab.dashboard.panels.jobs.job_format import LIVE_STATES
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
    # A page lives for seconds: optimising its scripts would take longer than it saves.
    "--js-flags=--single-threaded --no-opt",
]
# When a link to a page is opened, streamlit's own script requests these below that page first, then
# at the root.
PROBE = re.compile(r"/\w+/_stcore/(health|host-config)$")
# The script also fetches the file of a download button once it has drawn the button. By then the
# page may have been drawn anew with another file, and the first is gone. Tests that download hold
# that the files on the page are there.
MEDIA_FILE = re.compile(r"/media/\w+\.\w+$")
DOWNLOAD_GONE = "Client Error: Download Button source error - 404"
TOKEN = "made-up-for-tests-0123"  # of the app's worker, so that tests can send requests to it

WINDOW = {"width": 1440, "height": 900}


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Add to the report of a test that failed what its page showed at that moment.

    A test that fails once in many runs cannot be looked at again.
    """
    report = yield
    page = getattr(item, "funcargs", {}).get("page")
    if report.when == "call" and report.failed and page is not None:
        report.sections.append(("What the page shows", what_is_shown(page)))
    return report


def what_is_shown(page) -> str:
    """A page's address, the state of its script, and its content as assistive software has it."""
    from playwright.sync_api import Error

    try:
        app = page.get_by_test_id("stApp")
        states = [one.get_attribute("data-test-script-state") for one in app.all()]
        content = page.locator("body").aria_snapshot(timeout=10_000)
    except Error as error:
        return f"not to be had: {error}"
    return f"{page.url}\nscript: {states}\n{content}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class App:
    """`streamlit run app.py` on a free port, with results from `cache`, and the demo's if asked."""

    cache: Path
    has_demo: bool = False
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={self.port}"]
        command.append("--server.fileWatcherType=none")
        environment = {**os.environ, "HEADLAB_CACHE": str(self.cache), "HEADLAB_TOKEN": TOKEN}
        environment.pop("HEADLAB_WORKER", None)
        if self.has_demo:
            environment["HEADLAB_DEMO"] = "on"
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

        wait_until(answers, "an answer of streamlit")

    def worker(self) -> Client:
        """A client of the app's own worker, which the first visitor starts."""
        address_file = self.cache / ".worker" / "worker.json"
        wait_until(address_file.exists, "the app's worker; some page must be visited before")
        return Client(json.loads(address_file.read_text())["url"], TOKEN)

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
    """A cache of made-up scores under the real model's fingerprint, so that their masks fit it."""
    from headlab.models.embedded import fingerprint

    try:
        identity = fingerprint("e5-small-intents")
    except HeadlabError:
        identity = "0" * 64
    return fill_cache(tmp_path_factory.mktemp("cache"), identity)


@pytest.fixture(scope="session")
def app(cache_folder) -> Iterator[App]:
    app = App(cache_folder)
    app.start()
    yield app
    app.stop()


@pytest.fixture(scope="module")
def demo_page(chromium, tmp_path_factory):
    """A tab of an app with the demo's results, which has computed nothing."""
    from headlab.models.embedded import fingerprint

    try:
        fingerprint("e5-small-intents")
    except HeadlabError as missing:
        pytest.skip(str(missing))
    app = App(tmp_path_factory.mktemp("empty-cache"), has_demo=True)
    app.start()
    context = chromium.new_context(viewport=WINDOW, base_url=app.url)
    context.set_default_timeout(DEADLINE)
    yield context.new_page()
    context.close()
    app.stop()


@pytest.fixture(scope="module")
def light_model(cache_folder, tmp_path_factory) -> Iterator[str]:
    """The folder of a model of 12 by 12 heads that computes in no time.

    It has made-up scores in the cache, so that a link can name it.
    """
    folder = str(save_classifier(tmp_path_factory.mktemp("models") / "light", layers=12, heads=12))
    scores = made_scores("de", "shapley", load(folder).fingerprint, folder)
    with while_cached(cache_folder, scores):
        yield folder


@pytest.fixture
def no_jobs_left(app) -> Iterator[None]:
    """After the test, cancel and delete all jobs, so that the next test does not wait for them."""
    yield
    with closing(app.worker()) as worker:
        for job in worker.jobs():
            if job.state in LIVE_STATES:
                worker.cancel(job.id)

        def all_have_ended() -> bool:
            return not any(job.state in LIVE_STATES for job in worker.jobs())

        wait_until(all_have_ended, "an end of all jobs")
        for job in worker.jobs():
            worker.delete(job.id)


@pytest.fixture
def long_job(app, no_jobs_left):
    """A function that queues a job for a model and gives its number.

    The job would take many minutes, so that it cannot end before a test has looked at it.
    """

    def submit(model: str) -> int:
        options = {"target": 0.00001, "samples": 5_000_000}
        job_fields = {
            "model": model,
            "task": "intents",
            "languages": ["de"],
            "method": "monte-carlo",
            "options": options,
        }
        with closing(app.worker()) as worker:
            return worker.submit("score", job_fields).id

    return submit


@pytest.fixture(scope="session")
def chromium():
    """A browser; tests are skipped where there is none."""
    paths = [path for path in map(shutil.which, BROWSERS) if path]
    if not paths:
        pytest.skip(f"no Chromium: none of {', '.join(BROWSERS)} is on the PATH")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=DEADLINE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=paths[0], args=FLAGS)
        yield browser
        browser.close()


def _is_about_a_gone_download(url: str, text: str) -> bool:
    return text == DOWNLOAD_GONE or ("status of 404" in text and MEDIA_FILE.search(url) is not None)


@dataclass
class Watch:
    """Records what must not happen while a page is used.

    Attributes:
        host: The app's address.
        outside: Addresses of requests to other hosts.
        errors: Messages of the console's errors and of uncaught exceptions.
    """

    host: str
    outside: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def request(self, request) -> None:
        allowed = (self.host, self.host.replace("http", "ws", 1), "data:", "blob:")
        if not request.url.startswith(allowed):
            self.outside.append(request.url)

    def console(self, message) -> None:
        url = message.location.get("url", "")
        is_harmless = PROBE.search(url) or _is_about_a_gone_download(url, message.text)
        if message.type == "error" and not is_harmless:
            self.errors.append(message.text)

    def uncaught(self, error) -> None:
        self.errors.append(str(error))


@pytest.fixture(scope="session")
def profile(app, chromium):
    """A browser context that all tests share, with its cache of streamlit's own scripts."""
    context = chromium.new_context(viewport=WINDOW, base_url=app.url)
    context.set_default_timeout(DEADLINE)
    yield context
    context.close()


@pytest.fixture(scope="session")
def tab(profile):
    """One tab for all tests, since opening a tab takes longer than drawing a page."""
    return profile.new_page()


@pytest.fixture
def page(app, profile, tab):
    """A tab as good as new.

    The test fails if a request goes to another host, or if the console or the page shows an error.
    Each address that is opened is a session of its own.
    """
    watch = Watch(app.url)
    watchers = {"request": watch.request, "console": watch.console, "pageerror": watch.uncaught}
    for event, watcher in watchers.items():
        tab.on(event, watcher)
    yield tab
    exception_count = tab.get_by_test_id("stException").count()
    for event, watcher in watchers.items():
        tab.remove_listener(event, watcher)
    as_new(tab)
    assert watch.outside == []
    assert watch.errors == []
    assert exception_count == 0


def as_new(tab) -> None:
    """Close all tabs but this one, and reset all that a test may have set in it."""
    for other_tab in tab.context.pages:
        if other_tab is not tab:
            other_tab.close()
    if tab.url.startswith("http"):
        tab.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
    tab.goto("about:blank")
    tab.set_viewport_size(WINDOW)
    tab.emulate_media(color_scheme="null")
    tab.context.clear_cookies()


@dataclass
class Connection:
    """The connection between a tab and the server, which a test can interrupt.

    Attributes:
        page: The tab.
        is_cut: While true, messages of the tab do not reach the server.
        is_deaf: While true, messages of the server are held back from the tab.
        lost_messages: The tab's messages that were lost while the connection was cut.
        held_back: The server's messages that are held back, encoded.
    """

    page: Any
    is_cut: bool = False
    is_deaf: bool = False
    lost_messages: list[Any] = field(default_factory=list)
    held_back: list[Any] = field(default_factory=list)

    def route(self, browser) -> None:
        """Stand between the tab's web socket and the server."""
        self.browser = browser
        server = browser.connect_to_server()

        def to_server(message) -> None:
            if self.is_cut:
                self.lost_messages.append(message)
            else:
                server.send(message)

        def to_browser(message) -> None:
            if self.is_deaf:
                self.held_back.append(message)
            else:
                browser.send(message)

        browser.on_message(to_server)
        server.on_message(to_browser)

    def held_messages(self) -> list[ForwardMsg]:
        """The server's messages that are held back."""
        return [ForwardMsg.FromString(message) for message in self.held_back]

    def finished_scripts(self) -> list[int]:
        """How the runs ended that have ended while the tab is deaf, as streamlit's numbers."""
        return [
            message.script_finished
            for message in self.held_messages()
            if message.HasField("script_finished")
        ]

    def runs(self) -> int:
        """Number of runs of the whole page that have ended while the tab is deaf."""
        return self.finished_scripts().count(ForwardMsg.FINISHED_SUCCESSFULLY)

    def wait_for_runs(self, count: int) -> None:
        """Wait until so many runs of the whole page have ended."""
        for _ in range(DEADLINE // 100):
            if self.runs() >= count:
                return
            self.page.wait_for_timeout(100)
        fragments_begun = [
            list(message.new_session.fragment_ids_this_run)
            for message in self.held_messages()
            if message.HasField("new_session")
        ]
        raise AssertionError(
            f"{self.runs()} of {count} runs have ended; ends {self.finished_scripts()}, "
            f"of fragments {fragments_begun}"
        )

    def hear(self) -> None:
        """Deliver the messages that were held back, and further messages as they come."""
        self.is_deaf = False
        while self.held_back:
            self.browser.send(self.held_back.pop(0))


@pytest.fixture
def connection(profile):
    """A new tab with a connection that can be interrupted.

    The tab is closed after the test, since such a route cannot be removed.
    """
    page = profile.new_page()
    interruptible = Connection(page)
    page.route_web_socket(re.compile(r"/_stcore/stream"), interruptible.route)
    yield interruptible
    page.close()


@pytest.fixture(scope="session")
def warm_up(tab):
    """A function that opens a page and waits for a part of it that needs the worker's model."""

    def wait(path: str, selector: str) -> None:
        tab.goto(path)
        tab.locator(selector).wait_for(timeout=240_000)
        as_new(tab)

    return wait


@pytest.fixture
def wait_until_drawn(page):
    """A function that waits until the page's script has ended and all is drawn."""
    return lambda: page.locator(IDLE_APP).wait_for()


@pytest.fixture
def visit(page, wait_until_drawn):
    """A function that opens a path and waits until the page is drawn."""

    def go(path: str):
        page.goto(path)
        page.locator("h1").first.wait_for()
        wait_until_drawn()
        return page

    return go


@pytest.fixture
def choose(page):
    """A function that chooses an option from the list of a select box."""

    def pick(box: str, name: str) -> None:
        choose_option(page.get_by_role("combobox", name=box, exact=True), name)

    return pick
