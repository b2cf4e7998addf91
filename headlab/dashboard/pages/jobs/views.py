"""The queue, and one job: its progress, map, log, results and the equivalent command."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from headlab.core import Head, HeadlabError, Table
from headlab.dashboard.frame import (
    Choice,
    errors_as_sentences,
    matching_scores,
    open_page,
    scores_of,
    stored_results,
    supervisor,
    task_languages,
    variant_of,
)
from headlab.dashboard.names import PAGES, PRUNE_TAB, PRUNE_TABS, language_title, plain
from headlab.dashboard.pages.heads.maps import about_head, picture
from headlab.dashboard.pages.prune import front
from headlab.dashboard.panels import job_actions, stored_gates, stored_reports
from headlab.dashboard.panels.history import history_of
from headlab.dashboard.panels.job_actions import GOES_ON, cancel_button, far, settle, watch
from headlab.dashboard.panels.job_format import (
    LIVE,
    details,
    ended_line,
    in_order,
    job_in,
    progress_line,
    share,
    title,
    waiting_line,
    words_of,
)
from headlab.dashboard.widgets import (
    Button,
    button,
    button_row,
    download,
    redraw_every,
    set_widget,
    show_named_values,
    show_table,
)
from headlab.jobs.experiment import ExperimentJob, FrontJob
from headlab.jobs.job import Job, Outcome, shown_value
from headlab.jobs.score import CurveJob, ScoreJob
from headlab.jobs.worth import MASK_FILE, WorthJob
from headlab.masks import mask_from_json
from headlab.methods.table import METHODS
from headlab.report.build import document, find, html, known_in
from headlab.results import HeadScores, Store, curve_summary, default_root
from headlab.worker.client import Client
from headlab.worker.schemas import JobRow

# The queue: running, then waiting, then ended jobs.

QUEUE_SECONDS = 1.0
ICONS = {
    "queued": "schedule",
    "running": "sync",
    "done": "check_circle",
    "failed": "error",
    "cancelled": "cancel",
}
SHOWN, MORE = 8, "_jobs_shown"
GONE = "The list of jobs is kept in the cache folder, and they resume where they stopped once a worker runs."
EMPTY = (
    "No job is running or waiting. Create one under **New job**, or press **Compute** on a page that lacks a result. "
    "Jobs keep running when this page is closed."
)


def draw_queue() -> None:
    """The queue; the page reruns when a job is added, starts or ends."""
    with errors_as_sentences():
        job_actions.said()
        if (worker := reached()) is None:
            redraw_every(_await_worker, QUEUE_SECONDS)()
            return
        jobs = worker.jobs()
        settle(jobs, tell=False)
        queue, now = in_order(jobs), time.time()
        if not queue.live:
            st.info(EMPTY)
        for job in queue.running:
            _running(job)
        for position, job in enumerate(queue.waiting, 1):
            _card(job, waiting_line(job, position, now))
        _ended(queue.ended, now)
        watch(queue.live)


def _await_worker() -> None:
    if supervisor().connected:
        st.rerun()


def reached() -> Client | None:
    """The worker if it is connected; else None, and a sentence says why not."""
    watched = supervisor()
    if watched.connected:
        return watched.client()
    state = watched.state()
    if state.kind == "away":
        st.warning(plain(f"{state.line} {GONE}"))
    else:
        st.info("The worker is starting; its jobs appear here in a moment.")
    return None


def _ended(jobs: list[JobRow], now: float) -> None:
    if not jobs:
        return
    st.markdown("##### Ended")
    shown = st.session_state.get(MORE, SHOWN)
    for job_row in jobs[:shown]:
        _card(job_row, ended_line(job_row, now))
    if len(jobs) > shown:
        button(f"Show more ({len(jobs) - shown})", key="jobs-more", on_press=_show_more)


def _show_more() -> None:
    st.session_state[MORE] = st.session_state.get(MORE, SHOWN) + 3 * SHOWN


def _running(job_row: JobRow) -> None:
    with st.container(border=True, key=f"job-{job_row.id}"):
        _heading(job_row)
        far(job_row)
        _asking(job_row)


def _card(job_row: JobRow, line: str) -> None:
    with st.container(border=True, key=f"job-{job_row.id}", gap="xsmall"):
        _heading(job_row)
        st.caption(plain(line))
        if job_row.state == "failed":
            st.error(plain(trouble(job_row)))
        _asking(job_row)


def _heading(job_row: JobRow) -> None:
    with st.container(
        horizontal=True, vertical_alignment="center", horizontal_alignment="distribute", gap="small"
    ):
        open_button(job_row)
        button_row(*buttons(job_row))


def open_button(job_row: JobRow) -> None:
    """The button that opens a job."""
    number = job_row.id
    button(
        f"Job {number}: {title(job_row)}",
        icon=ICONS[job_row.state],
        kind="tertiary",
        key=f"open-{number}",
        on_press=job_actions.show,
        args=(number,),
    )


def trouble(job_row: JobRow) -> str:
    """Why a job failed."""
    return job_row.error or "It failed without an error message; its log may say more."


def actions(job_row: JobRow) -> None:
    """A job's buttons, and the delete confirmation if it is open."""
    button_row(*buttons(job_row, resume_first=False))
    _asking(job_row)


def buttons(job_row: JobRow, *, resume_first: bool = True) -> list[Button]:
    """The buttons for a job in its state.

    Args:
        job_row: The job.
        resume_first: Whether Resume is before Delete. Delete, which asks first, must take Cancel's place under the
            pointer, or a double click would resume the job; so the order depends on the row's alignment.
    """
    number = job_row.id
    if job_row.state in LIVE:
        return [cancel_button(number)]
    delete = Button("Delete", f"delete-{number}", job_actions.confirm_delete, (number,))
    if job_row.state == "done":
        return [delete]
    resume = Button("Resume", f"resume-{number}", job_actions.resume, (number,), help=GOES_ON)
    return [resume, delete] if resume_first else [delete, resume]


def _asking(job_row: JobRow) -> None:
    number = job_row.id
    if not job_actions.deleting(number) or job_row.state == "running":
        return
    lost = "" if job_row.state == "done" else " and its unfinished results"
    st.warning(f"Delete job {number} with its log{lost}? Finished results stay.")
    button_row(
        Button(
            f"Delete job {number}", f"delete-yes-{number}", job_actions.delete, (number,), "primary"
        ),
        Button("Keep it", f"delete-no-{number}", job_actions.confirm_delete, (None,)),
    )


# After a job: its results, where to see them, and the equivalent command.


def keys_of(job_row: JobRow) -> list[str]:
    """The keys of a job's results in the store; none before it is done, or if it stores none."""
    keys = (job_row.result or {}).get("keys")
    return list(map(str, keys)) if isinstance(keys, list) else []


def choice_of(job_row: JobRow) -> Choice | None:
    """The choice that shows a job's scores; None for a job of another kind."""
    job = job_in(job_row)
    if not isinstance(job, ScoreJob) or job.method not in METHODS:
        return None
    choice = _choice(job)
    results = matching_scores(
        stored_results(HeadScores).results,
        choice.model,
        choice.task,
        choice.method,
        choice.label_map,
    )
    return replace(choice, variant=variant_of(results, keys_of(job_row)))


def _choice(job: Job) -> Choice:
    """What a job is on; what it does not say is as in the sidebar."""
    before = st.session_state.get("_choice")
    method = job.value("method")
    if method not in METHODS:
        method = before.method if isinstance(before, Choice) else next(iter(METHODS))
    model = job.value("model")
    task = job.value("task")
    languages = tuple(job.languages_named)
    if isinstance(before, Choice):
        model, task = model or before.model, task or before.task
        languages = languages or before.languages
    return Choice(str(model), str(task), languages, str(method), job.value("label_map"))


def draw_results(job_row: JobRow) -> None:
    """The results of a finished job, or buttons that open them."""
    job = job_in(job_row)
    page = "" if job is None else job.page
    scores = choice_of(job_row)
    if scores is not None and page == ScoreJob.page:
        button_row(
            _page_button("heads", open_page, ("heads", scores)),
            _page_button("overview", open_page, ("overview", scores)),
        )
    elif job is not None and page in PAGES and not isinstance(job, ScoreJob):
        open_results = JOB_OPENERS.get(job.key, OPENERS.get(page, _open))
        button_row(_page_button(page, open_results, (job, job_row)))
    else:
        _outcome(job, job_row)
    offer_report(job_row, keys_of(job_row))


def _page_button(page: str, open_page: Callable[..., None], arguments: tuple[Any, ...]) -> Button:
    label = f"Open on the {page.capitalize()} page"
    return Button(label, f"results-{page}", open_page, arguments, "primary")


def offer_report(job_row: JobRow, keys: Sequence[str]) -> None:
    """The download of what `headlab report` writes, if the results are in this server's cache."""
    store = Store(default_root())
    there = [key for key in keys if (store.root / key / "result.npz").exists()]
    if there:
        # The file is built when it is downloaded.
        download(
            "Report (HTML)",
            lambda: html(document(find(there, store), known=known_in(store))),
            f"headlab-job-{job_row.id}.html",
            "text/html",
            key="results-report",
            help="One file with maps, tables and the commands that reproduce them; it needs no network.",
        )


# Opening the page that shows a job's results.


def _open(job: Job, job_row: JobRow) -> None:
    """Open the page that a job names, at what the job is on."""
    open_page(job.page, _choice(job))


def _open_report(job: Job, job_row: JobRow) -> None:
    """Open the Experiments page at the job's report."""
    if isinstance(job, ExperimentJob):
        stored_reports.remember(job.experiment, next(iter(keys_of(job_row)), ""))
    open_page("experiments", _choice(job))


def _open_roles(job: Job, job_row: JobRow) -> None:
    """Open the Roles page; roles have no method, and no task if their sentences are from a treebank."""
    before = st.session_state.get("_choice")
    if not isinstance(before, Choice):
        return
    model = job.value("model")
    task = str(job.value("task") or before.task)
    languages = job.languages_named
    offered = task_languages(task)
    shown = tuple(language for language in languages if language in offered)
    label_map = before.label_map if (model, task) == (before.model, before.task) else None
    set_widget("focus", languages[0])
    open_page(
        "roles", Choice(str(model), task, shown or before.languages, before.method, label_map)
    )


def _open_gates(job: Job, job_row: JobRow) -> None:
    """Open the Gates page at the job's last run; gates have no method."""
    set_widget("focus", job.languages_named[0])
    if keys := keys_of(job_row):
        stored_gates.remember(keys[-1])
    open_page("gates", _choice(job))


def _open_prune(job: Job, job_row: JobRow) -> None:
    """Open the Prune page: with the job's mask if it has one."""
    if isinstance(job, WorthJob):
        mask = mask_from_json(job.mask, "the job's mask")
        history_of(str(mask.model.get("fingerprint")), mask.grid).put(
            mask.kept, {"rule": "job", "job": job_row.id}
        )
    set_widget(PRUNE_TAB, PRUNE_TABS[0])
    open_page("prune", _choice(job))


def _open_front(job: Job, job_row: JobRow) -> None:
    """Open the Prune page at the job's front, if it made one."""
    if keys := keys_of(job_row):
        front.remember(keys[0])
    set_widget(PRUNE_TAB, PRUNE_TABS[1])
    open_page("prune", _choice(job))


OPENERS: Mapping[str, Callable[[Job, JobRow], None]] = {
    "experiments": _open_report,
    "roles": _open_roles,
    "gates": _open_gates,
    "prune": _open_prune,
}
"""By page: the function that opens it at a job's results, where more is to be set than what the job is on."""
JOB_OPENERS: Mapping[str, Callable[[Job, JobRow], None]] = {FrontJob.key: _open_front}
"""By kind of job, before `OPENERS`: the function that opens its page, where that shows the results of several."""


# What an outcome says, of a job without a page that shows its results.

BESIDE_FIGURES = ("keys", "folder")  # what an outcome has besides its figures


def _outcome(job: Job | None, job_row: JobRow) -> None:
    """What a job's outcome says: its figures, and its results by their keys."""
    outcome: Outcome = job_row.result or {}
    figures = {name: value for name, value in outcome.items() if name not in BESIDE_FIGURES}
    if _are_shares(figures.get("accuracy")):
        _accuracies(figures.pop("accuracy"))
    if outcome.get("folder"):
        st.caption(f"The adapter is in {plain(str(outcome['folder']))}, below the cache folder.")
    _figures(figures)
    if keys := keys_of(job_row):
        _results(keys, "curves" if isinstance(job, CurveJob) else "results")


def _are_shares(figures: object) -> bool:
    """Whether these are numbers by language; a package may give other figures the name of accuracies."""
    if not isinstance(figures, Mapping):
        return False
    return all(isinstance(value, int | float) for value in figures.values())


def _accuracies(accuracy: Mapping[str, float]) -> None:
    st.markdown("##### Accuracy on dev")
    rows = [(language_title(name), f"{100 * value:.1f} %") for name, value in accuracy.items()]
    _table(rows, ("language", "accuracy"))


def _figures(figures: Mapping[str, Any]) -> None:
    """Figures of a kind of job that is not known here: one table of single ones, and one for each group of them."""
    singles = []
    for name, value in figures.items():
        label = name.capitalize().replace("_", " ")
        if isinstance(value, Mapping):
            st.markdown(f"##### {plain(label)}")
            _table([(key, _shown_figure(one)) for key, one in value.items()], ("of", "value"))
        else:
            singles.append((label, _shown_figure(value)))
    if singles:
        _table(singles, ("figure", "value"))


def _shown_figure(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else shown_value(value)


def _table(rows: Sequence[tuple[str, str]], columns: tuple[str, str]) -> None:
    table = pd.DataFrame(rows, columns=list(columns))
    st.table(table, border="horizontal", hide_index=True)


@st.cache_data(max_entries=16, show_spinner=False)
def _curve_table(root: Path, keys: tuple[str, ...]) -> Table | None:
    """The summary of a job's curves; None if none of its results is a curve of this cache."""
    curves = {result.key: result.record for result in Store(root).curves().results}
    of_job = [curves[key] for key in keys if key in curves]
    return curve_summary(of_job) if of_job else None


def _results(keys: Sequence[str], results_noun: str) -> None:
    """The results of a job that this server's cache has: curves in a table, others by their keys.

    Args:
        keys: Of the results.
        results_noun: What they are, in the plural.
    """
    root = default_root()
    there = [key for key in keys if (root / key / "result.npz").exists()]
    table = _curve_table(root, tuple(keys))
    if table is not None:
        show_table(table, str(keys[0]))
    elif there:
        show_named_values([(f"Result {number}", key) for number, key in enumerate(there, 1)])
    else:
        st.caption(f"The {results_noun} are in the worker's cache, which this page does not read.")


def terminal(job_row: JobRow) -> str:
    """The commands equivalent to a job; empty if there are none, as for a method of a package that is not here."""
    job = job_in(job_row)
    if job is None:
        return ""
    method = job.value("method")
    if method is not None and method not in METHODS:
        return ""
    return words_of(job, lambda job: job.terminal_lines())


# One job: progress, map while it sharpens, log, details and results.

SECONDS, AGAIN_SECONDS, LOG_HEIGHT = 1.0, 3.0, 260
HEAD = "_jobs_head"


def draw_details(number: int) -> None:
    """A job by its number; what changes while it runs is kept up to date, apart from the buttons."""
    button(
        "All jobs",
        icon="arrow_back",
        kind="tertiary",
        key="jobs-all",
        on_press=job_actions.show,
        args=(None,),
    )
    job_row = _known(number)
    if job_row is None:
        redraw_every(_ask_again, AGAIN_SECONDS)(number)
        return
    st.subheader(f"Job {number}: {plain(title(job_row))}")
    with errors_as_sentences():
        job_actions.said()
        is_live = job_row.state in LIVE
        if not is_live:
            job_actions.asked_for().mine.discard(number)  # its end has been seen
        redraw_every(_look, SECONDS if is_live else None)(number, job_row.state)
        actions(job_row)
        _body(supervisor().client(), job_row)


def _known(number: int) -> JobRow | None:
    """The job; None if it cannot be fetched now: `_ask_again` says why."""
    try:
        return supervisor().client().job(number) if supervisor().connected else None
    except HeadlabError:
        return None


def _ask_again(number: int) -> None:
    with errors_as_sentences():
        worker = reached()
        if worker is not None and worker.job(number):
            st.rerun()


def _look(number: int, state: str) -> None:
    with errors_as_sentences():
        worker = supervisor().client()
        job_row = worker.job(number)
        if job_row.state != state:
            st.rerun()  # the rest of the page has changed too
        _state(worker, job_row)


def _body(worker: Client, job_row: JobRow) -> None:
    """On the left what the job computes, on the right its log, which keeps its place in every state."""
    left, right = st.columns([10, 11], gap="large")
    every = SECONDS if job_row.state in LIVE else None
    with left:
        if every:
            redraw_every(_map, every)(job_row.id)
        if job_row.state == "done":
            draw_results(job_row)
        _about(job_row)
    with right:
        redraw_every(_log, every)(job_row.id)
        if line := terminal(job_row):
            st.caption("The same from a terminal:")
            st.code(line, language="bash", wrap_lines=True)
            _mask_of(job_row)


def _mask_of(job_row: JobRow) -> None:
    """The mask that a job's command names, as a file, if it names one."""
    job = job_in(job_row)
    if isinstance(job, WorthJob):
        text = json.dumps(job.mask, ensure_ascii=False, indent=1)
        download(f"Download {MASK_FILE}", text, MASK_FILE, "application/json", key="job-mask")


def _map(number: int) -> None:
    """The map of what is computed now. Its clicks go through the log of presses, so redrawing loses none."""
    with errors_as_sentences():
        job_row, scores = supervisor().client().snapshot(number)
        if scores is not None:
            stored = _stored(job_row)
            st.markdown(f"##### {plain(language_title(scores.language))}, being computed")
            picture(job_row, scores, stored, st.session_state.get(HEAD), _pick)
            about_head(scores, stored, st.session_state.get(HEAD))


def _pick(head: Head) -> None:
    st.session_state[HEAD] = head


def _state(worker: Client, job_row: JobRow) -> None:
    now = time.time()
    if job_row.state == "running":
        st.progress(share(job_row), plain(progress_line(job_row)))
    elif job_row.state == "queued":
        waiting = [other for other in worker.jobs() if other.state == "queued"]
        position = sum(other.id <= job_row.id for other in waiting)
        st.markdown(plain(f"Waiting: {waiting_line(job_row, max(1, position), now)}."))
    else:
        line = ended_line(job_row, now)
        st.markdown(plain(f"{line[0].upper()}{line[1:]}."))
    if job_row.state == "failed":
        st.error(plain(trouble(job_row)))


def _log(number: int) -> None:
    with errors_as_sentences():
        st.markdown("##### Log, newest first")
        if lines := supervisor().client().log(number):
            st.code("\n".join(reversed(lines)), language=None, height=LOG_HEIGHT, wrap_lines=True)
        else:
            st.caption("Nothing has been logged yet.")


def _stored(job_row: JobRow) -> dict[str, HeadScores]:
    choice = choice_of(job_row)
    return {} if choice is None else dict(scores_of(choice).scores)


def _about(job_row: JobRow) -> None:
    st.markdown("##### What it computes")
    show_named_values(details(job_row))
