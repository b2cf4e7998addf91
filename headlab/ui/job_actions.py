"""What a page may ask of the job list: presses, forecasts, and bars that follow what runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import streamlit as st

from headlab.errors import HeadlabError
from headlab.records import content_key
from headlab.ui.job_format import LIVE, Job, describe, forecast_line, in_order, progress_line
from headlab.ui.job_format import share as share_of
from headlab.ui.live import follow
from headlab.ui.names import page_link
from headlab.ui.presses import Button, button, row
from headlab.ui.shell import Choice, guarded
from headlab.ui.shell_worker import Latest, client, supervisor
from headlab.worker.client import Client

# What a press may ask of the job list. It is called before anything is drawn again, and is not interrupted.

ASKED, DELETING, TURNED = "_jobs_asked", "_jobs_deleting", "_jobs_turned"


class Started(NamedTuple):
    """A job that a click asked for. before: it was in the queue already."""

    job: int
    state: str
    before: bool


@dataclass
class Asked:
    """What a session has asked for.

    mine: jobs whose end it has not seen yet.  live: all that ran or waited when it last looked.  said: why its last
    click or job did not end well.  started: the job that its last click queued.
    """

    mine: set[int] = field(default_factory=set)
    live: set[int] = field(default_factory=set)
    said: str = ""
    started: Started | None = None

    def forget(self, why: str = "") -> None:
        """A click answers what was said before; why: it could not be done."""
        self.said, self.started = why, None


def asked_for() -> Asked:
    """What this session has asked for."""
    held: Asked = st.session_state.setdefault(ASKED, Asked())
    return held


def ask(do: Callable[[Client], object]) -> None:
    """Ask the worker; what goes wrong is a sentence that `said` shows until the next click."""
    held = asked_for()
    held.forget()
    try:
        do(supervisor().client())
    except HeadlabError as error:
        held.said = str(error)


def said() -> None:
    """Why this session's last click or job did not end well, until the next click."""
    if sentence := asked_for().said:
        st.error(sentence)


def start(kind: str, spec: Mapping[str, Any], place: str = "here") -> None:
    """Queue a job as this session's own."""
    held = asked_for()

    def do(worker: Client) -> None:
        before = {job["id"] for job in worker.jobs() if job["state"] in LIVE}
        made = worker.submit(kind, spec, place)
        held.mine.add(made["id"])
        held.started = Started(made["id"], made["state"], made["id"] in before)

    ask(do)


def show(job: int | None) -> None:
    """Turn the Jobs page to one job, or to all. A link to the same page would drop the rest of the address."""
    asked_for().forget()
    st.session_state.pop(DELETING, None)
    st.session_state[TURNED] = job


def shown() -> str:
    """The job that the link names, or nothing; what a press turned to comes first, and goes into the link here.

    A press does not write the link itself: a timer's run that it ends may still begin again after it, and put the link
    of its own request in the place of the session's.
    """
    if TURNED in st.session_state:
        if (job := st.session_state[TURNED]) is None:
            st.query_params.pop("job", None)
        else:
            st.query_params["job"] = str(job)
        del st.session_state[TURNED]  # last: a run that is ended before leaves it to the next
    return st.query_params.get("job", "")


def cancel(job: int) -> None:
    """End a running job at its next batch, a waiting one at once."""
    _drop()
    ask(lambda worker: worker.cancel(job))


def resume(job: int) -> None:
    """Queue a cancelled or failed job again."""
    _drop()
    ask(lambda worker: worker.resume(job))


def _drop() -> None:
    """The question whether to delete a job is answered by doing something else with one."""
    st.session_state.pop(DELETING, None)


def confirm_delete(job: int | None) -> None:
    """Ask whether to delete a job; None: the answer was no."""
    asked_for().said = ""
    st.session_state[DELETING] = job


def deleting(job: int) -> bool:
    """Whether it is being asked if this job is to be deleted."""
    return st.session_state.get(DELETING) == job


def delete(job: int) -> None:
    """Take a job off the list, with its log and the checkpoints of what it did not finish."""

    def do(worker: Client) -> None:
        worker.delete(job)
        show(None)

    ask(do)


# How every form of a job ends.


def end_form(
    kind: str, spec: Mapping[str, Any], wrong: str, press: Callable[..., None], *args: Any, key: str, form: str,
    before: str = "What it will take:",
) -> None:  # fmt: skip
    """What is wrong with the form, or else what its job will take; and Start.

    press: what Start does with `args` and what was typed last.  key: of the button.  form: prefix of the keys of the
    form's widgets.  before: what the forecast begins with.
    """
    if wrong:
        st.warning(wrong)
    else:
        draw(kind, spec, before, "")
    button(
        "Start", kind="primary", icon="play_arrow", key=key, disabled=bool(wrong), on_press=press, args=args, form=form
    )


def terminal(*commands: str, about: str = "") -> None:
    """The same from a terminal, folded. about: what to know of the commands."""
    with st.expander("The same from a terminal"):
        if about:
            st.caption(about)
        st.code("\n".join(commands), language="bash", wrap_lines=True)


# What a job will cost, as the worker says it. It may have to time its device first, so no page waits for it.

KNOWN = "_forecasts"
FIRST_SECONDS, POLL_SECONDS, AGAIN_SECONDS, FRESH_SECONDS, KEPT = 0.3, 0.5, 3.0, 60.0, 50
Forecast = Latest[dict[str, Any]]


def draw(kind: str, spec: Mapping[str, Any], before: str, otherwise: str) -> None:
    """A caption: `before`, then the forecast as soon as it is there.

    otherwise: what to say where no worker can be asked without waiting for it, or it has no answer; if
    empty, why there is none.
    """
    held = _asked(kind, spec)
    if held is not None:
        held.wait(1, FIRST_SECONDS)
    # Room for all its lines, so that no button below moves just as one presses it. A page may show several.
    with st.container(key=f"forecast-{_key(kind, spec)[:12]}"):
        if held is not None and held.value is not None:
            st.caption(f"{before} {words(held, otherwise)}".strip())
        else:  # a worker may yet come
            every = AGAIN_SECONDS if held is None else POLL_SECONDS
            follow(_poll, every)(kind, spec, before, otherwise)


def _poll(kind: str, spec: Mapping[str, Any], before: str, otherwise: str) -> None:
    with guarded():
        held = _asked(kind, spec)
        if held is not None and held.value is not None:
            st.rerun()
        asking = held is not None and not held.error
        told = "Asking the worker how long it will take …" if asking else words(held, otherwise)
        st.caption(f"{before} {told}".strip())


def words(held: Forecast | None, otherwise: str) -> str:
    """A forecast in words; where there is none, `otherwise` or else the reason."""
    if held is not None and held.value is not None:
        return forecast_line(held.value)
    if otherwise or held is None:
        return otherwise or "not known, as no worker could be asked."
    return f"not known: {held.error or 'the worker has not answered yet'}."


def at_once(kind: str, spec: Mapping[str, Any], otherwise: str) -> str:
    """The forecast in words if it comes within a moment."""
    held = _asked(kind, spec)
    if held is not None:
        held.wait(1, FIRST_SECONDS)
    return words(held, otherwise)


def _asked(kind: str, spec: Mapping[str, Any]) -> Forecast | None:
    """The forecast of a spec, asked for now unless this session did so a moment ago; sooner again if that failed."""
    if not supervisor().connected:
        return None
    known: dict[str, tuple[float, Forecast]] = st.session_state.setdefault(KNOWN, {})
    key, now = _key(kind, spec), time.monotonic()
    asked, held = known.get(key, (-FRESH_SECONDS, None))
    if held is None or now - asked > (FRESH_SECONDS if held.error is None else AGAIN_SECONDS):
        worker = supervisor().client()

        def ask() -> Generator[dict[str, Any]]:
            yield worker.forecast(kind, spec)

        known.pop(key, None)
        known[key] = now, Latest(ask)
        while len(known) > KEPT:
            known.pop(next(iter(known)))
    return known[key][1]


def _key(kind: str, spec: Mapping[str, Any]) -> str:
    return content_key([kind, dict(spec)])


# Following jobs on any page: bars with time left, and the page run again when one begins or ends.

SECONDS, SHOWN = 1.0, 3
States = tuple[tuple[int, str], ...]
GOES_ON = "Finished work is kept; the same job goes on from there."


def progress() -> list[Job]:
    """Draw the jobs under way, kept up to date, and return them; when one ends, the page runs again."""
    jobs: list[Job] = []
    with guarded():
        said()
        jobs = known_jobs()
        for job in jobs[:SHOWN]:
            bar(job)
        more = f"Jobs: {len(jobs) - SHOWN} more in line" if len(jobs) > SHOWN else "Jobs: queue, logs and time left"
        if jobs:
            page_link("jobs", more)
            watch(jobs)
    return jobs


def watch(jobs: Sequence[Job]) -> None:
    """Run the page again as soon as other jobs are under way than these, or in another state."""
    follow(_watch, SECONDS, waits=bool(jobs))(_states(jobs))


def _watch(drawn: States) -> None:
    with guarded():
        jobs = client().jobs()
        settle(jobs)
        if _states(in_order(jobs).live) != drawn:
            st.rerun()


def _states(jobs: Sequence[Job]) -> States:
    return tuple((job["id"], job["state"]) for job in jobs)


def asked(what_then: str) -> None:
    """What became of the last click that asked for a job, with a link to it. what_then: a sentence on its result."""
    held = asked_for()
    if (made := held.started) is not None and made.job in held.mine:
        told = f"Job {made.job} is in the queue." if not made.before else f"This is already job {made.job}."
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption(f"{told} {what_then}")
            page_link("jobs", f"Follow job {made.job}", {"job": str(made.job)})


def known_jobs(choice: Choice | None = None) -> list[Job]:
    """Jobs that run or wait, as far as a worker can be asked without waiting for it; the running ones first.

    choice: only score jobs of its model, task and method.  Runs the page again if one has ended since this session's
    last look.
    """
    if not supervisor().connected:
        return []
    jobs = client().jobs()
    settle(jobs)
    live = in_order(jobs).live
    return live if choice is None else [job for job in live if _is_of(job, choice)]


def _is_of(job: Job, choice: Choice) -> bool:
    params = job.get("params") or {}
    asked = tuple(params.get(name) for name in ("model", "task", "method"))
    return job.get("kind", "score") == "score" and asked == (choice.model, choice.task, choice.method)


def settle(jobs: Sequence[Job], *, tell: bool = True) -> None:
    """Run the page again if a job has ended since the last look, whoever asked for it: what is stored has changed.

    tell: say why a job of this session failed; the page may show that already.
    """
    held, states = asked_for(), {job["id"]: job["state"] for job in jobs}
    now, mine = {number for number, state in states.items() if state in LIVE}, set(held.mine)
    ended = (mine | held.live) & states.keys() - now
    newest = max(states, default=0)  # a list that was asked for before a click does not know the click's job
    held.mine.difference_update(number for number in mine - now if number <= newest)
    held.live = now
    if tell and (failed := [failure(job) for job in jobs if job["id"] in mine & ended and job["state"] == "failed"]):
        held.said = " ".join(failed)
    if ended:
        st.session_state.pop(KNOWN, None)  # what was forecast may be in the cache now
        st.rerun()


def failure(job: Job) -> str:
    """Why a job failed, as a sentence."""
    return f"{describe(job)}: {job['state']}. {job.get('error') or ''}".rstrip()


def bar(job: Job) -> None:
    """A job with how far it is and a button that cancels it."""
    with st.container(horizontal=True, vertical_alignment="center", key=f"bar-{job['id']}"):
        with st.container():
            far(job, describe(job))
        row(cancel_button(job["id"]))


def cancel_button(job: int) -> Button:
    """The button that cancels a job."""
    return Button("Cancel", f"cancel-{job}", cancel, (job,), help=GOES_ON)


def far(job: Job, words: str = "") -> None:
    """How far a job is, kept up to date while it runs. It holds no button: one could be drawn again as it is pressed.

    words: before it.
    """
    if job["state"] == "running":
        follow(_far, SECONDS)(job["id"], words)
    else:
        _bar(job, words)


def _far(number: int, words: str) -> None:
    with guarded():
        _bar(client().job(number), words)


def _bar(job: Job, words: str) -> None:
    st.progress(share_of(job), " · ".join(word for word in (words, progress_line(job)) if word))
