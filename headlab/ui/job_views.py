"""The queue, and one job: its progress, map, log, results and the equivalent command."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from headlab.errors import HeadlabError
from headlab.masks import mask_from_json
from headlab.methods.table import METHODS
from headlab.records import Head
from headlab.report.build import document, find, html, known_in
from headlab.report.commands import MASK_FILE, shell_lines
from headlab.scores import HeadScores, curve_summary
from headlab.store import Store, default_root
from headlab.studies.table import EXPERIMENTS
from headlab.tables import Table
from headlab.ui import experiments, gates_store, job_actions, prune_pareto
from headlab.ui.figures import named_values, show
from headlab.ui.heads_page import about_head, picture
from headlab.ui.history import history
from headlab.ui.job_actions import GOES_ON, cancel_button, far, settle, watch
from headlab.ui.job_format import (
    LIVE,
    Job,
    details,
    ended_line,
    in_order,
    progress_line,
    share,
    title,
    waiting_line,
)
from headlab.ui.names import PRUNE_TAB, PRUNE_TABS, language_title, plain
from headlab.ui.presses import Button, button, download, follow, give, row
from headlab.ui.results import matching, variant_of
from headlab.ui.shell import Choice, found, go, guarded, languages_of, listing, supervisor
from headlab.worker.client import Client

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
    with guarded():
        job_actions.said()
        if (worker := reached()) is None:
            follow(_await_worker, QUEUE_SECONDS)()
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


def _ended(jobs: list[Job], now: float) -> None:
    if not jobs:
        return
    st.markdown("##### Ended")
    shown = st.session_state.get(MORE, SHOWN)
    for job in jobs[:shown]:
        _card(job, ended_line(job, now))
    if len(jobs) > shown:
        button(f"Show more ({len(jobs) - shown})", key="jobs-more", on_press=_show_more)


def _show_more() -> None:
    st.session_state[MORE] = st.session_state.get(MORE, SHOWN) + 3 * SHOWN


def _running(job: Job) -> None:
    with st.container(border=True, key=f"job-{job['id']}"):
        _heading(job)
        far(job)
        _asking(job)


def _card(job: Job, line: str) -> None:
    with st.container(border=True, key=f"job-{job['id']}", gap="xsmall"):
        _heading(job)
        st.caption(plain(line))
        if job["state"] == "failed":
            st.error(plain(trouble(job)))
        _asking(job)


def _heading(job: Job) -> None:
    with st.container(
        horizontal=True, vertical_alignment="center", horizontal_alignment="distribute", gap="small"
    ):
        open_button(job)
        row(*buttons(job))


def open_button(job: Job) -> None:
    """The button that opens a job."""
    number = job["id"]
    label = f"Job {number}: {title(job)}"
    button(
        label,
        icon=ICONS[job["state"]],
        kind="tertiary",
        key=f"open-{number}",
        on_press=job_actions.show,
        args=(number,),
    )


def trouble(job: Job) -> str:
    """Why a job failed."""
    return str(job.get("error") or "It failed without an error message; its log may say more.")


def actions(job: Job) -> None:
    """A job's buttons, and the delete confirmation if it is open."""
    row(*buttons(job, resume_first=False))
    _asking(job)


def buttons(job: Job, *, resume_first: bool = True) -> list[Button]:
    """The buttons for a job in its state.

    resume_first: Resume before Delete.  Delete, which asks first, must take Cancel's place under the pointer,
    or a double click would resume the job; so the order depends on the row's alignment.
    """
    number, state = job["id"], job["state"]
    if state in LIVE:
        return [cancel_button(number)]
    delete = Button("Delete", f"delete-{number}", job_actions.confirm_delete, (number,))
    if state == "done":
        return [delete]
    resume = Button("Resume", f"resume-{number}", job_actions.resume, (number,), help=GOES_ON)
    return [resume, delete] if resume_first else [delete, resume]


def _asking(job: Job) -> None:
    number = job["id"]
    if not job_actions.deleting(number) or job["state"] == "running":
        return
    lost = "" if job["state"] == "done" else " and its unfinished results"
    st.warning(f"Delete job {number} with its log{lost}? Finished results stay.")
    row(
        Button(
            f"Delete job {number}", f"delete-yes-{number}", job_actions.delete, (number,), "primary"
        ),
        Button("Keep it", f"delete-no-{number}", job_actions.confirm_delete, (None,)),
    )


# After a job: its results, where to see them, and the equivalent command.


def choice_of(job: Job) -> Choice | None:
    """The choice that shows a job's scores; None for a job of another kind."""
    params = job.get("params") or {}
    if job.get("kind") != "score" or params.get("method") not in METHODS:
        return None
    choice = _choice(params)
    results = matching(
        listing(HeadScores).results, choice.model, choice.task, choice.method, choice.label_map
    )
    return replace(choice, variant=variant_of(results, (job.get("result") or {}).get("keys") or ()))


def _choice(params: Mapping[str, Any]) -> Choice:
    """What a job is on; its method, or the one chosen in the sidebar."""
    before = st.session_state.get("_choice")
    usual = before.method if isinstance(before, Choice) else next(iter(METHODS))
    method = str(params["method"]) if params.get("method") in METHODS else usual
    return Choice(
        params["model"], params["task"], tuple(params["languages"]), method, params.get("label_map")
    )


def draw_results(job: Job) -> None:
    """The results of a finished job, or buttons that open them."""
    choice, result = choice_of(job), job.get("result") or {}
    if job.get("kind") in PAGES:
        name, turn = PAGES[str(job["kind"])]
        label = f"Open on the {name.capitalize()} page"
        button(label, key=f"results-{name}", kind="primary", on_press=turn, args=(job,))
    elif choice is not None:
        pages = (("heads", "Open on the Heads page"), ("overview", "Open on the Overview page"))
        row(
            *(
                Button(label, f"results-{name}", go, (name, choice), "primary")
                for name, label in pages
            )
        )
    elif isinstance(result.get("accuracy"), Mapping):
        _trained(result)
    elif result.get("keys"):
        _curves(result["keys"])
    offer_report(job, [str(key) for key in result.get("keys") or ()])


def offer_report(job: Job, keys: Sequence[str]) -> None:
    """The download of what `headlab report` writes, if the results are in this server's cache."""
    store = Store(default_root())
    there = [key for key in keys if (store.root / key / "result.npz").exists()]
    if there:
        # The file is built when it is downloaded.
        download(
            "Report (HTML)", lambda: html(document(find(there, store), known=known_in(store))),
            f"headlab-job-{job['id']}.html", "text/html", key="results-report",
            help="One file with maps, tables and the commands that reproduce them; it needs no network.",
        )  # fmt: skip


def _open_report(job: Job) -> None:
    params, keys = job.get("params") or {}, (job.get("result") or {}).get("keys") or [""]
    experiments.remember(str(params["experiment"]), str(keys[0]))
    go("experiments", _choice(params))


def _open_roles(job: Job) -> None:
    """Open the Roles page; roles have no method, and no task if their sentences are from a treebank."""
    params, before = job.get("params") or {}, st.session_state.get("_choice")
    if not isinstance(before, Choice):
        return
    task, languages = str(params.get("task") or before.task), list(params["languages"])
    offered = tuple(name for name in languages if name in languages_of(task)) or before.languages
    give("focus", languages[0])
    stated = before.label_map if (params["model"], task) == (before.model, before.task) else None
    go("roles", Choice(params["model"], task, offered, before.method, stated))


def _open_gates(job: Job) -> None:
    """Open the Gates page at the job's last run; gates have no method."""
    params = job.get("params") or {}
    give("focus", params["languages"][0])
    if keys := (job.get("result") or {}).get("keys"):
        gates_store.remember(str(keys[-1]))
    go("gates", _choice(params))


def _open_prune(job: Job) -> None:
    """Open the Prune page: at the job's front if it made one, else with the job's mask if it has one."""
    params = job.get("params") or {}
    of_front = job.get("kind") == "front"
    keys = (job.get("result") or {}).get("keys")
    if of_front and keys:
        prune_pareto.remember(str(keys[0]))
    if params.get("mask") is not None:
        mask = mask_from_json(params["mask"], "the job's mask")
        history(str(mask.model.get("fingerprint")), mask.grid).put(
            mask.kept, {"rule": "job", "job": job.get("id")}
        )
    give(PRUNE_TAB, PRUNE_TABS[int(of_front)])
    go("prune", _choice(params))


def _trained(result: Mapping[str, Any]) -> None:
    st.markdown("##### Accuracy on dev")
    rows = [
        (language_title(name), f"{100 * value:.1f} %") for name, value in result["accuracy"].items()
    ]
    st.table(
        pd.DataFrame(rows, columns=["language", "accuracy"]), border="horizontal", hide_index=True
    )
    if result.get("folder"):
        st.caption(f"The adapter is in {plain(str(result['folder']))}, below the cache folder.")


# Kinds of jobs whose results have their own page: its name, and the function that opens it.
PAGES = {
    "experiment": ("experiments", _open_report), "roles": ("roles", _open_roles), "gates": ("gates", _open_gates),
    "front": ("prune", _open_prune), "worth": ("prune", _open_prune),
}  # fmt: skip


@st.cache_data(max_entries=16, show_spinner=False)
def _curve_table(root: Path, keys: tuple[str, ...]) -> Table | None:
    """The summary of a job's curves; None if none of them is in this cache."""
    there = {result.key: result.record for result in Store(root).curves().results}
    found = [there[key] for key in keys if key in there]
    return curve_summary(found) if found else None


def _curves(keys: Sequence[str]) -> None:
    if (table := _curve_table(default_root(), tuple(keys))) is None:
        st.caption("The curves are in the worker's cache, which this page does not read.")
    else:
        show(table, str(keys[0]))


def terminal(job: Job) -> str:
    """The commands equivalent to a job; empty if there are none."""
    kind, params = str(job.get("kind")), job.get("params") or {}
    if kind in ("score", "curve") and params.get("method") not in METHODS:
        return ""  # from a version or package with other methods; likewise below
    if kind == "experiment" and params.get("experiment") not in EXPERIMENTS:
        return ""
    return shell_lines(kind, params)


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
    job = _known(number)
    if job is None:
        follow(_ask_again, AGAIN_SECONDS)(number)
        return
    st.subheader(f"Job {number}: {plain(title(job))}")
    with guarded():
        job_actions.said()
        if job["state"] not in LIVE:
            job_actions.asked_for().mine.discard(number)  # its end has been seen
        follow(_look, SECONDS if job["state"] in LIVE else None)(number, job["state"])
        actions(job)
        _body(supervisor().client(), job)


def _known(number: int) -> Job | None:
    """The job; None if it cannot be fetched now: `_ask_again` says why."""
    try:
        return supervisor().client().job(number) if supervisor().connected else None
    except HeadlabError:
        return None


def _ask_again(number: int) -> None:
    with guarded():
        worker = reached()
        if worker is not None and worker.job(number):
            st.rerun()


def _look(number: int, state: str) -> None:
    with guarded():
        worker = supervisor().client()
        job = worker.job(number)
        if job["state"] != state:
            st.rerun()  # the rest of the page has changed too
        _state(worker, job)


def _body(worker: Client, job: Job) -> None:
    """On the left what the job computes, on the right its log, which keeps its place in every state."""
    left, right = st.columns([10, 11], gap="large")
    every = SECONDS if job["state"] in LIVE else None
    with left:
        if every:
            follow(_map, every)(job["id"])
        if job["state"] == "done":
            draw_results(job)
        _about(job)
    with right:
        follow(_log, every)(job["id"])
        if line := terminal(job):
            st.caption("The same from a terminal:")
            st.code(line, language="bash", wrap_lines=True)
            _mask_of(job)


def _mask_of(job: Job) -> None:
    """The mask that a job's command names, as a file, if it names one."""
    mask = (job.get("params") or {}).get("mask")
    if isinstance(mask, Mapping):
        text = json.dumps(mask, ensure_ascii=False, indent=1)
        download(f"Download {MASK_FILE}", text, MASK_FILE, "application/json", key="job-mask")


def _map(number: int) -> None:
    """The map of what is computed now. Its clicks go through the log of presses, so redrawing loses none."""
    with guarded():
        job, scores = supervisor().client().snapshot(number)
        if scores is not None:
            stored = _stored(job)
            st.markdown(f"##### {plain(language_title(scores.language))}, being computed")
            picture(job, scores, stored, st.session_state.get(HEAD), _pick)
            about_head(scores, stored, st.session_state.get(HEAD))


def _pick(head: Head) -> None:
    st.session_state[HEAD] = head


def _state(worker: Client, job: Job) -> None:
    now = time.time()
    if job["state"] == "running":
        st.progress(share(job), plain(progress_line(job)))
    elif job["state"] == "queued":
        ahead = [
            other
            for other in worker.jobs()
            if other["state"] == "queued" and other["id"] <= job["id"]
        ]
        st.markdown(plain(f"Waiting: {waiting_line(job, max(1, len(ahead)), now)}."))
    else:
        line = ended_line(job, now)
        st.markdown(plain(f"{line[0].upper()}{line[1:]}."))
    if job["state"] == "failed":
        st.error(plain(trouble(job)))


def _log(number: int) -> None:
    with guarded():
        st.markdown("##### Log, newest first")
        if lines := supervisor().client().log(number):
            st.code("\n".join(reversed(lines)), language=None, height=LOG_HEIGHT, wrap_lines=True)
        else:
            st.caption("Nothing has been logged yet.")


def _stored(job: Job) -> dict[str, HeadScores]:
    choice = choice_of(job)
    return {} if choice is None else dict(found(choice).scores)


def _about(job: Job) -> None:
    st.markdown("##### What it computes")
    named_values(details(job))
