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
    loading_words,
    typed_label_map,
    use_model,
    wait_for_result,
    worker_client,
)
from headlab.dashboard.names import count_words, language_title, page_link, plain
from headlab.dashboard.panels.jobs import forecast_line
from headlab.dashboard.widgets import Button, PageState, button_row, set_first_value
from headlab.jobs.table import ScoreJob
from headlab.tasks import read_label_map
from headlab.worker import Client, EvaluateRequest, Figure, Finding

MARK_BY_OUTCOME = {True: ":green[✓]", False: ":red[✗]", None: ":gray[○]"}

FIRST_EXAMPLES = 32
"""Examples that a model answers once it is loaded."""


class ModelToCheck(NamedTuple):
    """A model, and what it is to be checked for.

    Attributes:
        model: Name of the model.
        task: Name of the task.
        method: Key of the method whose cost is told.
        languages: Code of the first chosen language; empty if none is chosen.
        classes: The label map, as pairs of label and class; empty if there is none.
    """

    model: str
    task: str
    method: str
    languages: tuple[str, ...]
    classes: tuple[tuple[str, str], ...] = ()

    @property
    def label_map(self) -> dict[str, str] | None:
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
    to_load: ModelToCheck | None = None
    loaded: ModelToCheck | None = None
    loading_findings: list[Finding] = field(default_factory=list)


def typed_classes(model: str, task: str) -> tuple[tuple[str, str], ...]:
    """The label map that was typed for a model on a task.

    Empty without one, or if it is refused.
    """
    try:
        text = typed_label_map(model, task)
        if text:
            return tuple(read_label_map(text).items())
        return ()
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
            "Its files are checked before its weights are read. A folder is one on the worker's "
            "machine."
        )
        return
    request = ModelToCheck(
        name, choice.task, choice.method, choice.languages[:1], typed_classes(name, choice.task)
    )
    with st.spinner("Looking at its files …"):
        try:
            file_findings = findings_of_files(worker_client(), request, state.file_checks)
        except HeadlabError as error:  # of the worker, which says nothing about the model
            st.warning(plain(as_sentence(error)))
            return
    # another task or a label map mends labels, and either is chosen for the model that the sidebar
    # has
    is_wrong = any(finding.ok is False and finding.what != "Labels" for finding in file_findings)
    loading_findings = [] if is_wrong else _loading_findings(request)
    _draw_findings([*file_findings, *loading_findings])
    button_row(
        Button(
            "Load it and check the rest",
            "own-load",
            _request_loading,
            (request,),
            icon="memory",
            disabled=is_wrong,
        ),
        Button(
            "Use this model",
            "own-use-model",
            use_model,
            (name,),
            "primary",
            "check",
            disabled=is_wrong,
        ),
        Button("Look again", "own-again", _check_files_again, kind="tertiary", icon="refresh"),
    )
    if choice.model == name:
        st.caption("This model is chosen in the sidebar; every page shows it.")
        page_link("overview", "Overview: its first map")


def _draw_findings(findings: Sequence[Finding]) -> None:
    lines = []
    for finding in findings:
        lines.append(
            f"{MARK_BY_OUTCOME[finding.ok]} **{plain(finding.what)}:** {plain(finding.words)}"
        )
    st.markdown("  \n".join(lines))


def _check_files_again() -> None:
    state = OwnModel.of_session()
    state.file_checks += 1
    state.loaded = None


def _request_loading(request: ModelToCheck) -> None:
    OwnModel.of_session().to_load = request


@st.cache_data(max_entries=16, ttl=300, show_spinner=False)
def findings_of_files(_client: Client, request: ModelToCheck, check_number: int) -> list[Finding]:
    """What a model's files tell.

    Args:
        _client: Of the worker.
        request: The model, and what it is to be checked for.
        check_number: Another one reads the files anew.

    Raises:
        HeadlabError: Without a worker.
    """
    known_task_name = request.task if known_task(request.task) else None
    try:
        return wait_for_result(
            lambda: _client.check_model(
                request.model, known_task_name, request.label_map if known_task_name else None
            )
        )
    except HeadlabError as error:
        if error.code.startswith("worker."):
            raise  # it says nothing about the model, so it must not be remembered
        return [_failed_finding("Found", error)]


def _loading_findings(request: ModelToCheck) -> list[Finding]:
    """What loading has told, or that it can tell more; loads the model if that was asked for."""
    state = OwnModel.of_session()
    if state.to_load == request:
        with st.spinner(loading_words(request.model), show_time=True):
            state.loading_findings = findings_of_loading(worker_client(), request)
            state.loaded = request
        state.to_load = None
    if state.loaded == request:
        return list(state.loading_findings)
    not_yet_known = Finding(
        what="Self-test, size, answers and cost",
        ok=None,
        words="Known once the model is loaded.",
    )
    return [not_yet_known]


def findings_of_loading(worker: Client, request: ModelToCheck) -> list[Finding]:
    """What loading a model tells: heads, self-test, size, first answers and the cost of scores."""
    try:
        model = wait_for_result(lambda: worker.load_model(request.model))
    except HeadlabError as error:
        return [_failed_finding("Loaded", error)]
    size = f"On {model.device}."
    if model.costs is not None and model.costs.parameters:
        size = f"{model.costs.parameters / 1e6:,.1f} million parameters on {model.device}."
    note = f" {model.note}." if model.note else ""
    self_test = "Open gates change no answer, and a closed gate removes only its head's output."
    known_at_once = {
        "Heads found": _heads_words(model.grid),
        "Self-test": self_test,
        "Size": size + note,
    }
    findings = []
    for subject, words in known_at_once.items():
        findings.append(Finding(what=subject, ok=True, words=words))
    if request.languages:
        findings.append(_finding_of_question("Answers", partial(_accuracy_words, worker, request)))
        findings.append(_finding_of_question("Cost", partial(_cost_words, worker, request)))
    return findings


def _finding_of_question(subject: str, ask: Callable[[], str]) -> Finding:
    """What a question to the worker gives, or why it gives nothing."""
    try:
        return Finding(what=subject, ok=True, words=ask())
    except HeadlabError as error:
        return _failed_finding(subject, error)


def _failed_finding(subject: str, error: HeadlabError) -> Finding:
    return Finding(what=subject, ok=False, words=as_sentence(error))


def _heads_words(grid: HeadGrid) -> str:
    """A grid in words, like '12 layers × 12 heads = 144', stack by stack if there are several."""
    parts = []
    for stack in grid.stacks:
        min_heads = min(stack.heads, default=0)
        max_heads = max(stack.heads, default=0)
        heads_a_layer = str(min_heads) if min_heads == max_heads else f"{min_heads} to {max_heads}"
        stack_name = f"{stack.name} " if len(grid.stacks) > 1 else ""
        parts.append(
            f"{stack_name}{count_words(len(stack.heads), 'layer')} × {heads_a_layer} heads"
        )
    return f"{', '.join(parts)} = {grid.size}."


def _accuracy_words(worker: Client, request: ModelToCheck) -> str:
    """The accuracy on a task's first dev examples, and which class was taken for which label."""
    (language,) = request.languages
    evaluate_request = EvaluateRequest.model_construct(
        model=request.model,
        task=request.task,
        language=language,
        size=FIRST_EXAMPLES,
        label_map=request.label_map,
    )

    def last_figure() -> Figure:
        *_, figure = worker.evaluate(evaluate_request)
        return figure

    figure = wait_for_result(last_figure)
    subject = f"its first {figure.n} dev answers on {request.task} in {language_title(language)}"
    note = f" {figure.note}." if figure.note else ""
    return f"{100 * figure.accuracy:.1f} % of {subject} are right.{note}"


def _cost_words(worker: Client, request: ModelToCheck) -> str:
    """What scores of the chosen method will cost."""
    job = ScoreJob.model_construct(
        model=request.model,
        task=request.task,
        method=request.method,
        languages=list(request.languages),
    )
    if request.label_map is not None:
        job = job.model_copy(update={"label_map": request.label_map})
    forecast = wait_for_result(lambda: worker.forecast(job))
    cost = forecast_line(forecast).replace("**", "")
    return f"Scores of {request.method} in {language_title(request.languages[0])}: {cost}"
