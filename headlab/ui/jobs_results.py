"""What a job leaves behind: its results here, where to see them, and the command line that does the same."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from headlab.htmlreport.document import document, ordered_on
from headlab.htmlreport.find import find
from headlab.htmlreport.page import html
from headlab.masks import mask_from_json
from headlab.methods.table import METHODS
from headlab.store import Store, default_root
from headlab.studies.table import EXPERIMENTS
from headlab.ui import experiments_link, experiments_plan, gates_link, gates_plan, prune_front_read, roles_plan
from headlab.ui.history import history
from headlab.ui.jobs_words import Job
from headlab.ui.names import language_title
from headlab.ui.overview_coverage import command
from headlab.ui.presses import Button, button, row
from headlab.ui.shell import Choice, go, languages_of


def choice_of(job: Job) -> Choice | None:
    """The choice that shows a job's scores; None for a job of another kind."""
    params = job.get("params") or {}
    if job.get("kind") != "score" or params.get("method") not in METHODS:
        return None
    return Choice(params["model"], params["task"], tuple(params["languages"]), params["method"])


def draw(job: Job) -> None:
    """The results of a finished job, and the way to them."""
    choice, result = choice_of(job), job.get("result") or {}
    if job.get("kind") in PAGES:
        name, turn = PAGES[str(job["kind"])]
        label = f"Open on the {name.capitalize()} page"
        button(label, key=f"results-{name}", kind="primary", on_press=turn, args=(job,))
    elif choice is not None:
        pages = (("heads", "Open on the Heads page"), ("overview", "Open on the Overview page"))
        row(*(Button(label, f"results-{name}", go, (name, choice), "primary") for name, label in pages))
    elif isinstance(result.get("accuracy"), Mapping):
        _trained(result)
    elif result.get("keys"):
        _curves(result["keys"])
    offer_report(job, [str(key) for key in result.get("keys") or ()])


def offer_report(job: Job, keys: Sequence[str]) -> None:
    """The download of what `headlab report` writes, where the results are in the cache of this page."""
    store = Store(default_root())
    there = [key for key in keys if (store.root / key / "result.npz").exists()]
    if there:
        # The file is made when it is asked for.
        st.download_button(
            "Report (HTML)", lambda: html(document(find(there, store), dev_size=ordered_on(store))),
            f"headlab-job-{job['id']}.html", "text/html", key="results-report", on_click="ignore",
            icon=":material/download:",
            help="One file with maps, tables and the commands that make them again; it needs no network.",
        )  # fmt: skip


def _open_report(job: Job) -> None:
    params, keys = job.get("params") or {}, (job.get("result") or {}).get("keys") or [""]
    before = st.session_state.get("_choice")
    usual = before.method if isinstance(before, Choice) else next(iter(METHODS))
    method = params.get("method") if params.get("method") in METHODS else usual
    experiments_link.remember(str(params["experiment"]), str(keys[0]))
    go("experiments", Choice(params["model"], params["task"], tuple(params["languages"]), str(method)))


def _open_roles(job: Job) -> None:
    """Turn to the Roles page; roles are of no method, and of no task where their sentences are a treebank's."""
    params, before = job.get("params") or {}, st.session_state.get("_choice")
    if not isinstance(before, Choice):
        return
    task, languages = str(params.get("task") or before.task), list(params["languages"])
    offered = tuple(name for name in languages if name in languages_of(task)) or before.languages
    st.session_state["focus"] = languages[0]
    go("roles", Choice(params["model"], task, offered, before.method))


def _open_gates(job: Job) -> None:
    """Turn to the Gates page at the job's last run; gates are of no method."""
    params, before = job.get("params") or {}, st.session_state.get("_choice")
    if not isinstance(before, Choice):
        return
    languages = tuple(params["languages"])
    st.session_state["focus"] = languages[0]
    if keys := (job.get("result") or {}).get("keys"):
        gates_link.remember(str(keys[-1]))
    go("gates", Choice(params["model"], params["task"], languages, before.method))


def _open_prune(job: Job) -> None:
    """Turn to the Prune page, with the job's mask where it is about one."""
    params, before = job.get("params") or {}, st.session_state.get("_choice")
    usual = before.method if isinstance(before, Choice) else next(iter(METHODS))
    method = params.get("method") if params.get("method") in METHODS else usual
    if params.get("mask") is not None:
        mask = mask_from_json(params["mask"], "the job's mask")
        history(str(mask.model.get("fingerprint")), mask.grid).put(mask.kept, {"rule": "job", "job": job.get("id")})
    go("prune", Choice(params["model"], params["task"], tuple(params["languages"]), str(method)))


def _trained(result: Mapping[str, Any]) -> None:
    st.markdown("##### Accuracy on dev")
    rows = [(language_title(name), f"{100 * value:.1f} %") for name, value in result["accuracy"].items()]
    st.table(pd.DataFrame(rows, columns=["language", "accuracy"]), border="horizontal", hide_index=True)
    if result.get("folder"):
        st.caption(f"The adapter is in `{result['folder']}`, below the cache folder.")


# Kinds of jobs whose results have a page of their own: its name, and what turns to it.
PAGES = {
    "experiment": ("experiments", _open_report), "roles": ("roles", _open_roles), "gates": ("gates", _open_gates),
    "front": ("prune", _open_prune), "worth": ("prune", _open_prune),
}  # fmt: skip


@st.cache_data(max_entries=16, show_spinner=False)
def _curve_table(root: Path, keys: tuple[str, ...]) -> pd.DataFrame:
    """One row a curve: where it begins, its area, and how many heads can go for a point."""
    results = [result for result in Store(root).curves().results if result.key in keys]
    rows = [
        {
            "Language": language_title(curve.language),
            "All heads on": f"{curve.accuracy[0]:.1%}",
            "Mean over the curve": f"{curve.area:.1%}",
            "Heads gone for one point": f"{curve.heads_until(0.01)} of {curve.grid.size}",
        }
        for curve in (result.curve for result in results)
    ]
    return pd.DataFrame(rows)


def _curves(keys: Sequence[str]) -> None:
    st.markdown("##### Accuracy as heads leave")
    table = _curve_table(default_root(), tuple(keys))
    if table.empty:
        st.caption("The curves are in the worker's cache, which is not the one of this page.")
    else:
        st.dataframe(table, hide_index=True)


def terminal(job: Job) -> str:
    """The command line that does the same as a job; empty where there is none."""
    params = job.get("params") or {}
    if job.get("kind") in ("score", "curve") and params.get("method") in METHODS:
        return command(params, str(job["kind"]))
    if job.get("kind") == "experiment" and params.get("experiment") in EXPERIMENTS:
        return experiments_plan.command(params)
    if job.get("kind") == "roles":
        return roles_plan.command(params)
    if job.get("kind") == "gates":
        return gates_plan.command(params)
    if job.get("kind") == "front":
        return prune_front_read.command(params)
    if job.get("kind") == "worth":
        words = ["headlab", "worth", "--mask", "MASK.json"]
        return _with(words, params, "model", "task", "languages", "rounds", "batch_sizes", "seed")
    if job.get("kind") == "finetune":
        return _with(["headlab", "finetune", str(params["task"])], params, "steps", "learning_rate", "seed")
    return ""


def _with(words: list[str], params: Mapping[str, Any], *names: str) -> str:
    """A command line with the params of these names, as far as they are there, as options of the same names."""
    for name in names:
        if name in params:
            value = params[name]
            told = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            words = [*words, f"--{name.replace('_', '-')}", told]
    return shlex.join(words)
