"""The private names of Streamlit that headlab uses: all in one file, and as installed.

A failure after an upgrade of Streamlit names what has changed. The file
`headlab/dashboard/streamlit_private.py` says with each name what needs it and what would break;
docs/contributing.md says how to go on.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import streamlit as st
import uvicorn
from packaging.requirements import Requirement
from streamlit import runtime
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.runtime.memory_media_file_storage import MemoryMediaFileStorage
from streamlit.runtime.pages_manager import PagesManager
from streamlit.runtime.scriptrunner import (
    ScriptRunContext,
    ScriptRunner,
    StopException,
    get_script_run_ctx,
)
from streamlit.runtime.scriptrunner_utils.script_requests import ScriptRequests
from streamlit.runtime.scriptrunner_utils.script_run_context import ThreadState
from streamlit.runtime.state import SafeSessionState, SessionState, session_state
from streamlit.runtime.state.common import WidgetMetadata, user_key_from_element_id
from streamlit.testing.v1 import AppTest
from streamlit.web.server.starlette import starlette_routes, starlette_server, starlette_websocket
from support import ended_run

from headlab.dashboard import streamlit_private
from headlab.dashboard.streamlit_private import (
    HEALTH_PATH,
    PAGE_NAMES,
    PAGE_SELECTORS,
    TESTED_MINOR,
)

ROOT = Path(__file__).parents[2]
PRIVATE_NAMES_FILE = "headlab/dashboard/streamlit_private.py"
STATIC = ROOT / "headlab" / "dashboard" / "static"
ADVICE = f"look it up in {PRIVATE_NAMES_FILE}; docs/contributing.md, When Streamlit is upgraded"

# Modules of Streamlit that it documents.
DOCUMENTED_MODULES = {
    "streamlit.starlette": "the app as an ASGI application, with middleware (app.py)",
    "streamlit.typing": "types of what its commands give, for arguments",
    "streamlit.components": "components of one's own, v2",
    "streamlit.components.v2": "components of one's own, v2",
    "streamlit.column_config": "columns of a table",
}
NAMED_TUPLE_METHODS = {"_asdict", "_replace", "_fields", "_make"}


def dashboard_files() -> list[Path]:
    """The modules that draw pages, but not the one that may use private names."""
    modules = [
        ROOT / "app.py",
        *(ROOT / "pages").glob("*.py"),
        *(ROOT / "headlab" / "dashboard").rglob("*.py"),
    ]
    return sorted(path for path in modules if path != ROOT / PRIVATE_NAMES_FILE)


# Where private names are used.


def imported_modules(tree: ast.AST) -> Iterator[str]:
    """Every module that is imported, and `streamlit.name`, which may be one too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            if node.module == "streamlit":
                yield from (f"streamlit.{alias.name}" for alias in node.names)


def streamlit_attributes(tree: ast.AST) -> Iterator[str]:
    """Dotted names that begin with `st.`, up to the first call."""
    for node in ast.walk(tree):
        name = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        if re.fullmatch(r"st(\.\w+)+", name):
            yield "streamlit" + name.removeprefix("st")


def is_private(name: str) -> bool:
    """Whether a name of Streamlit has an underscore or is in an undocumented module."""
    parts = name.split(".")
    if parts[0] != "streamlit" or name == "streamlit":
        return False
    if any(part.startswith("_") for part in parts):
        return True
    has_name = hasattr(st, parts[1])
    is_module = not has_name or isinstance(getattr(st, parts[1]), ModuleType)
    module_length = 3 if parts[1] == "components" else 2
    module = ".".join(parts[:module_length])
    return is_module and module not in DOCUMENTED_MODULES


def private_names(tree: ast.AST) -> Iterator[str]:
    """Private names of Streamlit, and private attributes that the module does not define."""
    yield from filter(is_private, {*imported_modules(tree), *streamlit_attributes(tree)})
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    own_names = NAMED_TUPLE_METHODS | {
        node.attr
        for node in attributes
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
    }
    own_names |= {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    for node in attributes:
        if re.match(r"_[a-z]", node.attr) and node.attr not in own_names:
            yield ast.unparse(node)


def test_no_other_module_of_the_dashboard_uses_a_private_name_of_streamlit():
    uses = []
    for path in dashboard_files():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        uses.extend(f"{path.relative_to(ROOT)}: {name}" for name in private_names(tree))
    assert uses == [], f"belongs in {PRIVATE_NAMES_FILE}"


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("from streamlit import runtime", {"streamlit.runtime"}),
        ("from streamlit.proto.Block_pb2 import Block", {"streamlit.proto.Block_pb2"}),
        ("import streamlit.web.server", {"streamlit.web.server"}),
        ("st.runtime.exists()", {"streamlit.runtime.exists", "streamlit.runtime"}),
        ("st.components.v1.html('')", {"streamlit.components.v1.html", "streamlit.components.v1"}),
        ("st._main.caption('')", {"streamlit._main", "streamlit._main.caption", "st._main"}),
        ("place = st.empty()\nplace._root", {"place._root"}),
        ("from streamlit.typing import UploadedFile\nst.components.v2.component('x')", set()),
        ("import streamlit as st\nst.column_config.NumberColumn()\nst.caption('')", set()),
    ],
)
def test_a_private_name_is_noticed_wherever_it_stands(code: str, names: set[str]):
    assert {*private_names(ast.parse(code))} == names


def test_the_file_says_of_each_function_what_needs_it():
    functions = [
        node
        for node in ast.parse((ROOT / PRIVATE_NAMES_FILE).read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    ]
    barely_documented = [
        node.name for node in functions if len((ast.get_docstring(node) or "").split()) < 20
    ]
    assert barely_documented == []


# The tested version.


def test_the_installed_streamlit_is_the_tested_one():
    installed_minor = ".".join(st.__version__.split(".")[:2])
    assert installed_minor == TESTED_MINOR, (
        f"headlab was tested with Streamlit {TESTED_MINOR}, {st.__version__} is installed: {ADVICE}"
    )


def test_the_package_and_the_lock_ask_for_the_tested_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (streamlit_requirement,) = (
        requirement
        for requirement in map(Requirement, project["optional-dependencies"]["app"])
        if requirement.name == "streamlit"
    )
    major, minor = TESTED_MINOR.split(".")
    assert streamlit_requirement.specifier.contains(f"{TESTED_MINOR}.0")
    assert not streamlit_requirement.specifier.contains(f"{major}.{int(minor) + 1}.0")
    lock = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    (locked_minor,) = re.findall(r"^streamlit==(\d+\.\d+)\.", lock, re.MULTILINE)
    assert locked_minor == TESTED_MINOR


def test_every_option_of_the_config_file_is_known_to_streamlit():
    """Some are undocumented, and Streamlit only warns of one that it does not know."""

    def options(table: dict[str, Any], prefix: str = "") -> Iterator[str]:
        for name, value in table.items():
            if isinstance(value, dict):
                yield from options(value, f"{prefix}{name}.")
            else:
                yield prefix + name

    settings = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text("utf-8"))
    assert len([*options(settings)]) > 10
    for option in options(settings):
        st.get_option(option)  # an error for one that it does not know


# Names in Python, with the arguments and fields that are used.


@pytest.mark.parametrize(
    ("function", "arguments", "keywords"),
    [
        (get_script_run_ctx, (), {}),
        (user_key_from_element_id, ("id",), {}),
        (SafeSessionState.get_widget_states, ("self",), {}),
        (ScriptRequests.on_scriptrunner_yield, ("self",), {}),
        (type(st.session_state).to_dict, ("self",), {}),
        (runtime.exists, (), {}),
        (runtime.get_instance, (), {}),
        (
            MediaFileManager.add,
            ("self", b"content", "text/plain", "place", "name"),
            {"is_for_static_download": True},
        ),
        (starlette_websocket.is_host_allowed, ("localhost",), {}),
        (uvicorn.Server.handle_exit, ("self", signal.SIGTERM, None), {}),
    ],
    ids=lambda value: getattr(value, "__qualname__", None),
)
def test_a_function_takes_the_arguments_that_we_give(
    function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]
):
    try:
        inspect.signature(function).bind(*arguments, **keywords)
    except TypeError as error:
        pytest.fail(f"{function.__qualname__}: {error}. {ADVICE}")


@pytest.mark.parametrize(
    ("owner", "names", "needed_names"),
    [
        (
            "ScriptRunContext",
            {field.name for field in dataclasses.fields(ScriptRunContext)},
            {"session_state", "script_requests", "fragment_ids_this_run"},
        ),
        ("WidgetState", {field.name for field in WidgetState.DESCRIPTOR.fields}, {"id"}),
        ("PagesManager", {*vars(PagesManager)}, {"uses_pages_directory"}),
        ("Runtime", {*vars(runtime.Runtime)}, {"media_file_mgr"}),
        (
            "MediaFileManager",
            {*vars(MediaFileManager(MemoryMediaFileStorage("/media")))},
            {"_files_by_session_and_coord", "_deferred_callables"},
        ),
        (
            "uvicorn.Server",
            {*vars(uvicorn.Server(uvicorn.Config(app="")))},
            {"should_exit", "force_exit"},
        ),
    ],
)
def test_an_object_has_the_fields_that_we_use(owner: str, names: set[str], needed_names: set[str]):
    assert needed_names <= names, f"{owner} has no {needed_names - names}: {ADVICE}"


def test_streamlit_asks_for_waiting_requests_by_the_method_that_we_replace():
    assert ".on_scriptrunner_yield()" in inspect.getsource(ScriptRunner), ADVICE


def test_streamlit_forgets_deferred_files_by_the_methods_that_we_replace_and_call():
    source = inspect.getsource(MediaFileManager)
    assert "            self._remove_orphaned_deferred_callables()" in source, ADVICE
    assert "def _drop_deferred_id(self, file_id: str)" in source, ADVICE


def test_reading_session_state_lets_requests_through():
    yields: list[str] = []
    state = SafeSessionState(SessionState(), lambda: yields.append("yield"))
    with pytest.raises(KeyError):
        state["_"]
    assert yields == ["yield"], ADVICE


def test_a_run_knows_which_widgets_its_request_brought_and_what_they_hold():
    def script() -> None:
        import streamlit as st

        from headlab.dashboard import streamlit_private

        keys_in_request = streamlit_private.keys_in_request()
        st.number_input("number", key="a number")
        st.session_state["set"] = 2
        streamlit_private.let_requests_through()
        with streamlit_private.without_interruption(), streamlit_private.without_interruption():
            session_values = streamlit_private.session_values()
        st.json(
            {
                "keys_in_request": sorted(map(str, keys_in_request)),
                "session_values": session_values,
                "fragment": streamlit_private.is_fragment_run(),
            }
        )

    def page_json(app: AppTest) -> dict[str, Any]:
        assert not app.exception
        return ast.literal_eval(app.json[0].value.replace("false", "False"))

    app = AppTest.from_function(script).run()
    assert page_json(app)["keys_in_request"] == []
    app.number_input[0].set_value(5.0).run()
    assert page_json(app) == {
        "keys_in_request": ["a number"],
        "session_values": {"a number": 5.0, "set": 2},
        "fragment": False,
    }


def test_only_a_run_with_fragments_is_a_fragment_run(monkeypatch: pytest.MonkeyPatch):
    for fragments, is_fragment_run in ((["timer"], True), ([], False), (None, False)):
        context = SimpleNamespace(fragment_ids_this_run=fragments)
        monkeypatch.setattr(
            streamlit_private, "get_script_run_ctx", lambda context=context: context
        )
        assert streamlit_private.is_fragment_run() is is_fragment_run


def test_what_an_ended_run_has_drawn_is_sent_before_a_timer_s_request_is_served() -> None:
    texts = texts_beside_a_timer("--mended")
    assert texts == [*ended_run.TEXTS_OF_PAGE, "timer"]


def test_streamlit_alone_loses_what_a_run_drew_last() -> None:
    texts = texts_beside_a_timer()
    assert texts == [*ended_run.TEXTS_OF_PAGE[:2], "timer"], (
        f"`deliver_ended_runs_first` may no longer be needed. {ADVICE}"
    )


def texts_beside_a_timer(*options: str) -> list[str]:
    """The texts that a browser is sent, of a server in a process of its own."""
    texts: list[str] = printed_by_server("support.ended_run", *options)
    return texts


def test_the_timer_of_a_page_that_was_left_is_not_answered_in_its_name() -> None:
    answers = printed_by_server("support.left_page", "--mended")
    assert answers == [["second", ["timer", "second page"]], ["second", ["timer"]]]


def test_streamlit_alone_answers_in_the_name_of_a_page_that_was_left() -> None:
    pages = [page for page, _ in printed_by_server("support.left_page")]
    assert pages == ["second", "first"], (
        f"`leave_out_requests_of_left_pages` may no longer be needed. {ADVICE}"
    )


# Two runs of a session at once.

PICK = "$$ID-0-pick"


@pytest.fixture
def untouched_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """The methods of Streamlit's session state, put back after the test."""
    for owner in (SafeSessionState, SessionState):
        for name, method in list(vars(owner).items()):
            if inspect.isfunction(method):
                monkeypatch.setattr(owner, name, method)


@pytest.fixture
def runs_in_turn(untouched_state: None) -> None:
    streamlit_private.let_runs_take_turns_with_state()
    assert SafeSessionState.__init__.__module__ == streamlit_private.__name__, ADVICE


def picked(number: int) -> WidgetStates:
    """A request that brings this pick."""
    return WidgetStates(widgets=[WidgetState(id=PICK, int_value=number)])


def state_with_pick(number: int, **metadata: Any) -> SessionState:
    """The state of a session whose one widget holds this pick."""
    state = SessionState()
    fields: dict[str, Any] = {"deserializer": lambda value: value, **metadata}
    metadata = WidgetMetadata(PICK, serializer=int, value_type="int_value", **fields)
    state.register_widget(metadata, user_key=None)
    state.set_widgets_from_proto(picked(number))
    return state


class HeldUpRun:
    """A run that takes in a request and is held up where it keeps the values so far.

    Attributes:
        state: Of the session, whose one widget holds 1.
    """

    def __init__(self, number_brought: int) -> None:
        self._reads, self._may_go_on = threading.Event(), threading.Event()
        self.state = state_with_pick(1, deserializer=self._read)
        run = SafeSessionState(self.state, lambda: None)
        self._thread = threading.Thread(
            target=run.on_script_will_rerun, args=(picked(number_brought),)
        )
        self._thread.start()
        assert self._reads.wait(60)

    def _read(self, value: int | None) -> int | None:
        if threading.current_thread() is getattr(self, "_thread", None):
            self._reads.set()
            assert self._may_go_on.wait(60)
        return value

    def end(self) -> None:
        """Let it go on, to its end."""
        self._may_go_on.set()
        self._thread.join(60)


def pick_after_a_choice_while_a_timer_is_taken_in() -> int:
    """What a widget holds that held 1, when a person chooses 2 as a timer's request is taken in."""
    timer_run = HeldUpRun(1)
    person_state = SafeSessionState(timer_run.state, lambda: None)
    person_run = threading.Thread(target=person_state.on_script_will_rerun, args=(picked(2),))
    person_run.start()
    person_run.join(timeout=1)  # it ends at once, or waits for the timer's run
    timer_run.end()
    person_run.join(60)
    return int(timer_run.state[PICK])


def test_what_a_person_chose_outlives_a_timer_s_request_that_is_being_taken_in(
    runs_in_turn: None,
) -> None:
    assert pick_after_a_choice_while_a_timer_is_taken_in() == 2


def test_streamlit_alone_loses_a_choice_to_a_timer_s_request(untouched_state: None) -> None:
    assert pick_after_a_choice_while_a_timer_is_taken_in() == 1, (
        f"`let_runs_take_turns_with_state` may no longer be needed. {ADVICE}"
    )


def test_a_run_that_was_stopped_while_it_waited_takes_nothing_in(runs_in_turn: None) -> None:
    person_run = HeldUpRun(2)
    is_stopped = threading.Event()
    outcomes: list[str] = []

    def look_for_requests() -> None:
        if is_stopped.is_set():
            raise StopException

    late_state = SafeSessionState(person_run.state, look_for_requests)

    def take_in_late() -> None:
        try:
            late_state.on_script_will_rerun(picked(1))
        except StopException:
            outcomes.append("stopped")

    late_run = threading.Thread(target=take_in_late)
    late_run.start()
    late_run.join(timeout=0.2)  # it waits for the person's run
    is_stopped.set()
    person_run.end()
    late_run.join(60)
    assert outcomes == ["stopped"]
    assert person_run.state[PICK] == 2


def test_other_runs_may_read_while_a_callback_runs(runs_in_turn: None) -> None:
    picks_read: list[int] = []

    def let_another_run_read() -> None:
        reading = threading.Thread(target=lambda: picks_read.append(other_state[PICK]))
        reading.start()
        reading.join(60)

    state = state_with_pick(1, callback=let_another_run_read)
    other_state = SafeSessionState(state, lambda: None)
    ThreadState.initialize()  # as a run does
    SafeSessionState(state, lambda: None).on_script_will_rerun(picked(2))
    assert picks_read == [2]


@pytest.mark.parametrize("is_stopped", [True, False])
def test_the_end_of_a_stopped_run_leaves_what_the_next_one_took_in(
    runs_in_turn: None, monkeypatch: pytest.MonkeyPatch, is_stopped: bool
) -> None:
    state = state_with_pick(1)
    SafeSessionState(state, lambda: None).on_script_will_rerun(picked(2))
    requests = ScriptRequests()
    if is_stopped:
        requests.request_stop()
    context = SimpleNamespace(
        script_requests=requests, fragment_ids_this_run=None, page_script_hash=""
    )
    for module in (streamlit_private, session_state):
        monkeypatch.setattr(module, "get_script_run_ctx", lambda: context)
    SafeSessionState(state, lambda: None).on_script_finished(frozenset())
    assert (PICK in state) is is_stopped


def printed_by_server(module: str, *options: str) -> Any:
    """What a program with a server, in a process of its own, prints as JSON."""
    command = [sys.executable, "-m", module, *options]
    finished = subprocess.run(
        command, cwd=ROOT / "tests", capture_output=True, text=True, timeout=300, check=True
    )
    return json.loads(finished.stdout)


def test_the_folder_of_pages_is_left_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(PagesManager, "uses_pages_directory", True)
    assert streamlit_private.leave_pages_folder()
    assert PagesManager.uses_pages_directory is False
    assert not streamlit_private.leave_pages_folder()


def test_places_on_a_page_are_of_the_type_that_annotations_name():
    assert isinstance(st.empty(), streamlit_private.Placeholder)
    assert isinstance(st.container(), streamlit_private.Placeholder)


def test_the_server_of_uvicorn_is_found_by_its_handler_of_signals():
    assert "uvicorn.Server(" in inspect.getsource(starlette_server), ADVICE
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert streamlit_private.running_server() is None
    server = uvicorn.Server(uvicorn.Config(app=""))
    with server.capture_signals():
        assert streamlit_private.running_server() is server, ADVICE


# The page in the browser.


@pytest.fixture(scope="module")
def frontend() -> bytes:
    """Scripts and styles of the installed Streamlit's page."""
    folder = Path(inspect.getfile(st)).parent / "static" / "static"
    files = [*folder.glob("js/*.js"), *folder.glob("css/*.css")]
    assert len(files) > 50, f"Streamlit's page is elsewhere: {ADVICE}"
    return b"\n".join(path.read_bytes() for path in files)


KEY_SELECTOR = re.compile(r'(\[class\*="st-key-[^"]*"\]|\.st-key-[\w-]+)')  # documented
SELECTOR = re.compile(
    r"""a?\[data-testid[~^$*|]?=[^\]]+\] | \.st[A-Z]\w* | \.js-plotly-plot
    | \.modebar-btn(?:\[[^\]]+\])?""",
    re.VERBOSE,
)


def selectors_in_use() -> set[str]:
    """Selectors of parts of Streamlit's page in our styles and scripts."""
    page_style = (STATIC / "page.css").read_text("utf-8")
    page_style = re.sub(r"/\*.*?\*/", "", page_style, flags=re.DOTALL)
    rules = KEY_SELECTOR.sub("", re.sub(r"\{[^{}]*\}", "", page_style))
    used = {*re.findall(r"\[[^\]]+\]|\.[A-Za-z][\w-]*", rules)}
    for script in STATIC.glob("*.js"):
        used |= {*SELECTOR.findall(script.read_text("utf-8"))}
    return used


def test_the_list_of_selectors_is_that_of_our_styles_and_scripts():
    assert selectors_in_use() == {*PAGE_SELECTORS}


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_a_name_of_the_page_is_used_and_there(frontend: bytes, name: str):
    assert any(name in path.read_text("utf-8") for path in STATIC.iterdir())
    assert name.encode() in frontend, f"{name} is gone: {PAGE_NAMES[name]}. {ADVICE}"


def has_text(frontend: bytes, text: str, *, begins: bool = False) -> bool:
    """Whether the page has a text as a value of its own, or as one word of several.

    Args:
        frontend: Scripts and styles.
        text: The text to look for.
        begins: Whether a longer word that begins with it is enough.
    """
    end = b"" if begins else rb"[`\"' ]"
    return re.search(rb"[`\"' ]" + re.escape(text.encode()) + end, frontend) is not None


@pytest.mark.parametrize("selector", PAGE_SELECTORS)
def test_a_selector_finds_what_the_page_has(frontend: bytes, selector: str):
    parts = re.findall(r'\[([\w-]+)(?:(\^?=)"([^"]+)")?\]|\.([\w-]+)', selector)
    assert parts
    for attribute, comparison, value, css_class in parts:
        for text in filter(None, (value, css_class)):
            is_there = has_text(frontend, text, begins=comparison == "^=")
            assert is_there, f"{text} is gone: {PAGE_SELECTORS[selector]}. {ADVICE}"
        assert attribute.encode() in frontend, f"no {attribute}: {ADVICE}"


def test_a_text_that_the_page_lacks_is_noticed(frontend: bytes):
    assert has_text(frontend, "stMain")
    assert has_text(frontend, "stTopNavL", begins=True)
    assert not has_text(frontend, "stTopNavL")
    assert not has_text(frontend, "stMai")
    assert not has_text(frontend, "stNoSuchPart", begins=True)


def test_the_page_writes_a_key_into_a_class_as_we_do(frontend: bytes):
    class_pattern = rb"`st-key-`\+\w+\.trim\(\)\.replaceAll\(/\[\^a-zA-Z0-9_-\]/g,`-`\)"
    assert re.search(class_pattern, frontend), ADVICE
    assert streamlit_private.css_class(" new-model-a/b.c é ") == "new-model-a-b-c--"


def test_the_page_asks_for_the_servers_health_where_we_answer(frontend: bytes):
    assert f"/{starlette_routes.ROUTE_HEALTH}" == HEALTH_PATH, ADVICE
    assert has_text(frontend, HEALTH_PATH.removeprefix("/")), ADVICE


def test_the_page_has_what_tests_and_benchmarks_look_for(frontend: bytes):
    """Tests in a browser wait for a state that the page has in an attribute."""
    assert b"data-test-script-state" in frontend
    assert has_text(frontend, "notRunning")
    files = [
        ROOT / "tests" / "support" / "browsing.py",
        ROOT / "benchmarks" / "ui.py",
        *(ROOT / "tests" / "browser").glob("*.py"),
    ]
    name_pattern = re.compile(
        r"""get_by_test_id\(\s*"(\w+)"|data-testid=\\?["']?([\w-]+)|['"]\.(st[A-Z]\w+)"""
    )
    texts = set()
    for path in files:
        for match in name_pattern.findall(path.read_text("utf-8")):
            texts.update(filter(None, match))
    assert len(texts) > 10
    missing_texts = [text for text in sorted(texts) if not has_text(frontend, text)]
    assert missing_texts == [], ADVICE
