"""Jobs as text and in display order. No streamlit here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from headlab.methods.table import METHODS
from headlab.studies.table import EXPERIMENTS
from headlab.tables import duration
from headlab.ui.names import language_title, plain

JobRow = Mapping[str, Any]
Job = JobRow
LIVE = ("queued", "running")
KINDS = {
    "score": "Scores", "curve": "Pruning curve", "finetune": "Fine-tuning", "experiment": "Experiment",
    "roles": "Roles of heads", "gates": "Learned gates", "front": "Front of smaller models",
    "worth": "Speed of a mask",
}  # fmt: skip
NAMED = 3


class Queue(NamedTuple):
    """Jobs in display order: running, waiting (oldest first), ended."""

    running: list[JobRow]
    waiting: list[JobRow]
    ended: list[JobRow]

    @property
    def live(self) -> list[JobRow]:
        """Running and waiting jobs, the running ones first."""
        return [*self.running, *self.waiting]


def in_order(jobs: Iterable[JobRow]) -> Queue:
    """The jobs as a queue; of those that ended, the newest first."""
    every = sorted(jobs, key=lambda job: job["id"])
    ended = [job for job in every if job["state"] not in LIVE]
    return Queue(
        [job for job in every if job["state"] == "running"],
        [job for job in every if job["state"] == "queued"],
        sorted(ended, key=lambda job: (job.get("ended") or 0.0, job["id"]), reverse=True),
    )


def describe(job: JobRow) -> str:
    """A job in few words: method and languages by their keys."""
    params = job.get("params") or {}
    languages = params.get("languages") or []
    what = str(params.get("experiment") or params.get("method") or job.get("kind", "job"))
    return f"{what} for {', '.join(languages)}" if languages else what


def title(job: JobRow) -> str:
    """A job as a heading: what is computed, and for which languages."""
    params = job.get("params") or {}
    method = METHODS.get(str(params.get("method")))
    what = method.title if method else str(params.get("method") or "")
    kind = str(job.get("kind", "job"))
    if kind == "experiment":
        what = _experiment(params)
    elif kind != "score" or not what:
        what = KINDS.get(kind, kind) + (f", {what}" if what else "")
    languages = params.get("languages") or []
    return f"{what} for {spelled(languages)}" if languages else what


def _experiment(params: Mapping[str, Any]) -> str:
    key = str(params.get("experiment"))
    return EXPERIMENTS[key].title if key in EXPERIMENTS else f"Experiment {key}"


def spelled(languages: Sequence[str]) -> str:
    """'German (de), Thai (th)', or how many there are."""
    if len(languages) > NAMED:
        return f"{len(languages)} languages"
    return ", ".join(map(language_title, languages))


def details(job: JobRow) -> list[tuple[str, str]]:
    """What a job computes, as (name, value) pairs; options that differ from the method's default show it."""
    params = dict(job.get("params") or {})
    method = METHODS.get(str(params.get("method")))
    rows = [("What", KINDS.get(str(job.get("kind")), str(job.get("kind"))))]
    if params.get("experiment") and job.get("kind") == "experiment":
        rows.append(("Experiment", f"{_experiment(params)} ({params['experiment']})"))
    if method:
        rows.append(("Method", f"{method.title} ({method.key})"))
    plain = {"model": "Model", "task": "Task", "ablation": "Ablation"}
    rows += [
        (label, str(params[name])) for name, label in plain.items() if params.get(name) is not None
    ]
    if "split" in params:
        rows.append(("Examples", f"{params.get('size') or 'all'} of {params['split']}"))
    if params.get("languages"):
        rows.append(("Languages", ", ".join(map(language_title, params["languages"]))))
    rows += (
        [("Heads off", str(mask.get("removed", "?")))]
        if isinstance(mask := params.get("mask"), Mapping)
        else []
    )
    rows += [("Seed", str(params["seed"]))] if params.get("seed") is not None else []
    own = "method_options" if "method_options" in params else "options"
    if own != "options":
        rows += [
            (f"Option {name}", _shown(value))
            for name, value in (params.get("options") or {}).items()
        ]
    for name, value in (params.get(own) or {}).items():
        usual = method.options[name].default if method and name in method.options else value
        rows.append(
            (
                f"Option {name}",
                _shown(value) + ("" if value == usual else f" (default {_shown(usual)})"),
            )
        )
    known = {
        *plain,
        "split",
        "size",
        "method",
        "languages",
        "seed",
        "options",
        "method_options",
        "experiment",
        "mask",
    }
    rows += [(_spaced(name), _shown(value)) for name, value in params.items() if name not in known]
    rows.append(("Where", place(str(job.get("place", "here")))))
    return rows


def _spaced(name: str) -> str:
    return name.capitalize().replace("_", " ")


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def place(name: str) -> str:
    """Where a job runs."""
    return "this worker" if name == "here" else "Ray"


def share(job: JobRow) -> float:
    """The share of a job that is done, from 0 to 1."""
    done, total = job.get("done") or 0, job.get("total") or 0
    return min(1.0, max(0.0, done / total)) if total else 0.0


def progress_line(job: JobRow) -> str:
    """Progress of a live job: share, what it is computing, time left."""
    words = [
        f"{100 * share(job):.0f} %" if job.get("total") else str(job["state"]),
        str(job.get("note") or ""),
    ]
    left = job.get("seconds_left")
    words += [f"about {duration(left)} left"] if left is not None else []
    return " · ".join(word for word in words if word)


def waiting_line(job: JobRow, position: int, now: float) -> str:
    """A waiting job's place in the queue. position: from 1.  now: Unix seconds."""
    line = "next in line" if position == 1 else f"number {position} in line"
    attempts = job.get("attempts") or 0
    return f"{line} · since {clock(job['created'], now)}" + (
        f" · attempts so far: {attempts}" if attempts else ""
    )


def ended_line(job: JobRow, now: float) -> str:
    """How and when a job ended, how long it took, and its attempts where there was more than one."""
    ended, started = job.get("ended"), job.get("started")
    words = [str(job["state"])]
    if ended is not None and started is None:
        words.append(f"{clock(ended, now)}, before it began")
    elif ended is not None:
        words += [
            clock(ended, now),
            f"{duration(max(0.0, ended - float(started or ended)))} after its start",
        ]
    words += [f"{share(job):.0%} done"] if job["state"] != "done" and job.get("total") else []
    words += [f"attempt {job['attempts']}"] if (job.get("attempts") or 0) > 1 else []
    return " · ".join(words)


def clock(seconds: float, now: float) -> str:
    """A time of day in UTC, like the logs; with the date if it is not today."""
    then, today = (datetime.fromtimestamp(t, UTC) for t in (seconds, now))
    date = "" if then.date() == today.date() else f"{then.day} {then:%b %Y}, "
    return f"{date}{then:%H:%M} UTC"


def forecast_line(forecast: Mapping[str, Any]) -> str:
    """The cost of a job, as the worker forecasts it, in Markdown: time, forward passes, and the basis of both."""
    seconds, forwards, basis = (forecast.get(name) for name in ("seconds", "forwards", "basis"))
    basis = plain(str(basis or "").rstrip("."))
    if seconds == 0 and not forwards:
        return f"**No time**: {basis}."
    words = (
        "How long it takes is not known" if seconds is None else f"**About {duration(seconds)}**"
    )
    words += f", {forwards:,} forwards" if forwards else ""
    return f"{words}: {basis}." if basis else f"{words}."
