"""What a finished job gave: its outcome, the pages that show it, and its report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from headlab.core import Table
from headlab.dashboard.frame import open_page
from headlab.dashboard.names import PAGES, language_title, plain
from headlab.dashboard.pages.jobs.openers import (
    JOB_OPENERS,
    OPENERS,
    choice_of_scores,
    open_job_page,
    result_keys,
)
from headlab.dashboard.panels.jobs import job_of_row
from headlab.dashboard.panels.masks import draw_written_model
from headlab.dashboard.widgets import (
    Button,
    button_row,
    download_button,
    show_named_values,
    show_table,
)
from headlab.jobs import Job, Outcome, value_text
from headlab.jobs.table import CurveJob, ScoreJob, WriteJob
from headlab.report.build import document, find_results, html_of_document, known_in
from headlab.results import curve_summary, store_with_demo
from headlab.worker import JobRow


def draw_results(job_row: JobRow) -> None:
    """The results of a finished job, or buttons that open them."""
    job = job_of_row(job_row)
    page = "" if job is None else job.page
    scores = choice_of_scores(job_row)
    if isinstance(job, WriteJob):
        draw_written_model(job, job_row)
    elif scores is not None and page == ScoreJob.page:
        button_row(
            _page_button("heads", open_page, ("heads", scores)),
            _page_button("overview", open_page, ("overview", scores)),
        )
    elif job is not None and page in PAGES and not isinstance(job, ScoreJob):
        open_results = JOB_OPENERS.get(job.key, OPENERS.get(page, open_job_page))
        button_row(_page_button(page, open_results, (job, job_row)))
    else:
        _draw_outcome(job, job_row)
    offer_report(job_row, result_keys(job_row))


def _page_button(page: str, open_page: Callable[..., None], arguments: tuple[Any, ...]) -> Button:
    label = f"Open on the {page.capitalize()} page"
    return Button(label, f"results-{page}", open_page, arguments, "primary")


def offer_report(job_row: JobRow, keys: Sequence[str]) -> None:
    """The download of what `headlab report` writes, if the results are in this server's cache."""
    store = store_with_demo()
    stored_keys = [key for key in keys if (store.folder_of(key) / "result.npz").exists()]
    if stored_keys:
        # The file is built when it is downloaded.
        download_button(
            "Report (HTML)",
            lambda: html_of_document(
                document(find_results(stored_keys, store), known=known_in(store))
            ),
            f"headlab-job-{job_row.id}.html",
            "text/html",
            key="results-report",
            help=(
                "One file with maps, tables and the commands that reproduce them; it needs no "
                "network."
            ),
        )


# What an outcome says, of a job without a page that shows its results.

BESIDE_FIGURES = ("keys", "folder")
"""What an outcome has besides its figures."""


def _draw_outcome(job: Job | None, job_row: JobRow) -> None:
    """What a job's outcome says: its figures, and its results by their keys."""
    outcome: Outcome = job_row.result or {}
    figures = {name: value for name, value in outcome.items() if name not in BESIDE_FIGURES}
    if _are_shares(figures.get("accuracy")):
        _draw_accuracies(figures.pop("accuracy"))
    if outcome.get("folder"):
        st.caption(f"The adapter is in {plain(str(outcome['folder']))}, below the cache folder.")
    _draw_figures(figures)
    keys = result_keys(job_row)
    if keys:
        _draw_results(keys, "curves" if isinstance(job, CurveJob) else "results")


def _are_shares(figures: object) -> bool:
    """Whether these are numbers by language; a package may call other figures accuracies."""
    if not isinstance(figures, Mapping):
        return False
    return all(isinstance(value, int | float) for value in figures.values())


def _draw_accuracies(accuracy_by_language: Mapping[str, float]) -> None:
    st.markdown("##### Accuracy on dev")
    rows = []
    for language, accuracy in accuracy_by_language.items():
        rows.append((language_title(language), f"{100 * accuracy:.1f} %"))
    _draw_table(rows, ("language", "accuracy"))


def _draw_figures(figures: Mapping[str, Any]) -> None:
    """Figures of a kind of job that is not known here.

    One table has those that stand alone, and each group of figures has a table of its own.
    """
    singles = []
    for name, value in figures.items():
        label = name.capitalize().replace("_", " ")
        if isinstance(value, Mapping):
            st.markdown(f"##### {plain(label)}")
            if value and all(isinstance(row, Mapping) for row in value.values()):
                _draw_table_of_groups(value)
            else:
                _draw_table(
                    [(key, _shown_figure(single)) for key, single in value.items()], ("of", "value")
                )
        else:
            singles.append((label, _shown_figure(value)))
    if singles:
        _draw_table(singles, ("figure", "value"))


def _draw_table_of_groups(groups: Mapping[str, Mapping[str, Any]]) -> None:
    """A table with a row for each group and a column for each name that any of them has."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    rows = []
    for key, group in groups.items():
        cells = [_shown_figure(group[name]) if name in group else "" for name in names]
        rows.append((key, *cells))
    _draw_table(rows, ("of", *names))


def _shown_figure(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return value_text(value)


def _draw_table(rows: Sequence[tuple[str, ...]], columns: tuple[str, ...]) -> None:
    table = pd.DataFrame(rows, columns=list(columns))
    st.table(table, border="horizontal", hide_index=True)


@st.cache_data(max_entries=16, show_spinner=False)
def curve_table(root: Path, keys: tuple[str, ...]) -> Table | None:
    """The summary of a job's curves; None if none of its results is a curve of this cache."""
    stored_curves = store_with_demo(root).curves(None).results  # of whatever players
    curves = {result.key: result.record for result in stored_curves}
    of_job = [curves[key] for key in keys if key in curves]
    if of_job:
        return curve_summary(of_job)
    return None


def _draw_results(keys: Sequence[str], results_noun: str) -> None:
    """The results of a job that this server's cache has: curves in a table, others by their keys.

    Args:
        keys: Of the results.
        results_noun: What they are, in the plural.
    """
    store = store_with_demo()
    stored_keys = [key for key in keys if (store.folder_of(key) / "result.npz").exists()]
    table = curve_table(store.root, tuple(keys))
    if table is not None:
        show_table(table, str(keys[0]))
    elif stored_keys:
        show_named_values([(f"Result {number}", key) for number, key in enumerate(stored_keys, 1)])
    else:
        st.caption(f"The {results_noun} are in the worker's cache, which this page does not read.")
