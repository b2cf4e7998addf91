"""A model of the user's own: what its files tell at once, and what loading it tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import streamlit as st

from headlab.core import HeadGrid, HeadlabError, as_sentence
from headlab.dashboard.frame import (
    Choice,
    known_task,
    typed_label_map,
    use_model,
    wait_for_result,
    worker_client,
)
from headlab.dashboard.names import counted, language_title, plain
from headlab.dashboard.panels.job_format import forecast_line
from headlab.dashboard.widgets import Button, PageState, button_row, set_first_value
from headlab.jobs.table import ScoreJob
from headlab.tasks import read_map
from headlab.worker import Client, EvaluateRequest, Figure, Finding

SIGNS = {True: ":green[✓]", False: ":red[✗]", None: ":gray[○]"}

FIRST = 32  # examples that a loaded model answers


class ModelRequest(NamedTuple):
    """A model, and what it is to be checked for.  languages: the first one chosen, if any.  classes: the label map."""

    model: str
    task: str
    method: str
    languages: tuple[str, ...]
    classes: tuple[tuple[str, str], ...] = ()

    @property
    def stated(self) -> dict[str, str] | None:
        """The label map; None if there is none."""
        return dict(self.classes) or None


@dataclass
class OwnModel(PageState):
    """The model part of the page of one session.

    Attributes:
        name: What was typed last, as streamlit drops the field's text with its page.
        file_checks: How often the files were to be looked at again.
        to_load: The model that the next run of the page loads; None if it loads none.
        loaded: The model that was loaded last; None if none was, or its files were looked at since.
        loading_findings: What loading it told.
    """

    key = "_own_model"
    name: str = ""
    file_checks: int = 0
    to_load: ModelRequest | None = None
    loaded: ModelRequest | None = None
    loading_findings: list[Finding] = field(default_factory=list)


def _classes(model: str, task: str) -> tuple[tuple[str, str], ...]:
    """The label map that was typed for a model on a task; empty if there is none, or it is refused."""
    try:
        return (
            tuple(read_map(typed_label_map(model, task)).items())
            if typed_label_map(model, task)
            else ()
        )
    except HeadlabError:
        return ()


def draw_model_part(choice: Choice) -> None:
    """The field for a model, its checks, and the buttons that load and choose it."""
    st.subheader("A model")
    state = OwnModel.of_session()
    set_first_value("own-model", state.name)
    name = st.text_input(
        "Model folder or hub id", key="own-model", placeholder="/path/to/model or owner/name"
    ).strip()
    state.name = name
    if not name:
        st.caption(
            "Its files are checked before its weights are read. A folder is one on the worker's machine."
        )
        return
    wanted = ModelRequest(
        name, choice.task, choice.method, choice.languages[:1], _classes(name, choice.task)
    )
    with st.spinner("Looking at its files …"):
        try:
            found = findings_of_files(worker_client(), wanted, state.file_checks)
        except HeadlabError as error:  # of the worker, which says nothing about the model
            st.warning(plain(as_sentence(error)))
            return
    # another task or a label map mends labels, and either is chosen for the model that the sidebar has
    wrong = any(finding.ok is False and finding.what != "Labels" for finding in found)
    _tell([*found, *([] if wrong else _loaded(wanted))])
    button_row(
        Button(
            "Load it and check the rest",
            "own-load",
            _load,
            (wanted,),
            icon="memory",
            disabled=wrong,
        ),
        Button(
            "Use this model",
            "own-use-model",
            use_model,
            (name,),
            "primary",
            "check",
            disabled=wrong,
        ),
        Button("Look again", "own-again", _again, kind="tertiary", icon="refresh"),
    )
    if choice.model == name:
        st.caption("This model is chosen in the sidebar; every page shows it.")


def _tell(findings: Sequence[Finding]) -> None:
    lines = []
    for finding in findings:
        lines.append(f"{SIGNS[finding.ok]} **{plain(finding.what)}:** {plain(finding.words)}")
    st.markdown("  \n".join(lines))


def _again() -> None:
    state = OwnModel.of_session()
    state.file_checks += 1
    state.loaded = None


def _load(wanted: ModelRequest) -> None:
    OwnModel.of_session().to_load = wanted


@st.cache_data(max_entries=16, ttl=300, show_spinner=False)
def findings_of_files(_client: Client, wanted: ModelRequest, again: int) -> list[Finding]:
    """What a model's files tell; raises HeadlabError without a worker. again: looks anew when it changes."""
    known = wanted.task if known_task(wanted.task) else None
    try:
        return wait_for_result(
            lambda: _client.check(wanted.model, known, wanted.stated if known else None)
        )
    except HeadlabError as error:
        if error.code.startswith(
            "worker."
        ):  # it says nothing about the model, so it must not be remembered
            raise
        return [_wrong("Found", error)]


def _loaded(wanted: ModelRequest) -> list[Finding]:
    """What loading has told, or that it can tell more; loads the model if that was asked for."""
    state = OwnModel.of_session()
    if state.to_load == wanted:
        with st.spinner("Loading the model …"):
            state.loading_findings = findings_of_loading(worker_client(), wanted)
            state.loaded = wanted
        state.to_load = None
    if state.loaded == wanted:
        return list(state.loading_findings)
    rest = Finding(
        what="Self-test, size, answers and cost",
        ok=None,
        words="Known once the model is loaded.",
    )
    return [rest]


def findings_of_loading(worker: Client, wanted: ModelRequest) -> list[Finding]:
    """What loading a model tells: its heads, the self-test, its size, its first answers and the cost of scores."""
    try:
        model = wait_for_result(lambda: worker.model(wanted.model))
    except HeadlabError as error:
        return [_wrong("Loaded", error)]
    size = f"On {model.device}."
    if model.costs is not None and model.costs.parameters:
        size = f"{model.costs.parameters / 1e6:,.1f} million parameters on {model.device}."
    note = f" {model.note}." if model.note else ""
    tests = "Open gates change no answer, and a closed gate removes only its head's output."
    told = {
        "Heads found": _heads(model.grid),
        "Self-test": tests,
        "Size": size + note,
    }
    asked = (("Answers", _answers), ("Cost", _cost)) if wanted.languages else ()
    return [
        *(Finding(what=what, ok=True, words=words) for what, words in told.items()),
        *(_finding(what, partial(ask, worker, wanted)) for what, ask in asked),
    ]


def _finding(what: str, ask: Callable[[], str]) -> Finding:
    """What a question to the worker gives, or why it gives nothing."""
    try:
        return Finding(what=what, ok=True, words=ask())
    except HeadlabError as error:
        return _wrong(what, error)


def _wrong(what: str, error: HeadlabError) -> Finding:
    return Finding(what=what, ok=False, words=as_sentence(error))


def _heads(grid: HeadGrid) -> str:
    """A grid in words, like '12 layers × 12 heads = 144', stack by stack where there are several."""
    parts = []
    for stack in grid.stacks:
        few, many = min(stack.heads, default=0), max(stack.heads, default=0)
        each = str(few) if few == many else f"{few} to {many}"
        whose = f"{stack.name} " if len(grid.stacks) > 1 else ""
        parts.append(f"{whose}{counted(len(stack.heads), 'layer')} × {each} heads")
    return f"{', '.join(parts)} = {grid.size}."


def _answers(worker: Client, wanted: ModelRequest) -> str:
    """The accuracy on a task's first dev examples, and which class was taken for which label."""
    (language,), stated = wanted.languages, wanted.stated

    request = EvaluateRequest.model_construct(
        model=wanted.model,
        task=wanted.task,
        language=language,
        size=FIRST,
        label_map=None if stated is None else dict(stated),
    )

    def last_figure() -> Figure:
        *_, figure = worker.evaluate(request)
        return figure

    figure = wait_for_result(last_figure)
    of = f"its first {figure.n} dev answers on {wanted.task} in {language_title(language)}"
    note = f" {figure.note}." if figure.note else ""
    return f"{100 * figure.accuracy:.1f} % of {of} are right.{note}"


def _cost(worker: Client, wanted: ModelRequest) -> str:
    """What scores of the chosen method will cost."""
    job = ScoreJob.model_construct(
        model=wanted.model,
        task=wanted.task,
        method=wanted.method,
        languages=list(wanted.languages),
    )
    if wanted.stated is not None:
        job = job.model_copy(update={"label_map": wanted.stated})
    forecast = wait_for_result(lambda: worker.forecast(job))
    cost = forecast_line(forecast).replace("**", "")
    return f"Scores of {wanted.method} in {language_title(wanted.languages[0])}: {cost}"
