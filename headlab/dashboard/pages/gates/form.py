"""The Gates page: the form, a mask from any step, and the roles of the heads kept."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from headlab.core import HeadlabError
from headlab.dashboard.frame import Choice, task_languages
from headlab.dashboard.names import language_title, plain
from headlab.dashboard.panels.jobs import (
    draw_live_jobs,
    end_job_form,
    show_started_job,
    show_terminal_commands,
    start_job_of_form,
)
from headlab.dashboard.panels.stored import (
    DEFAULT_WEIGHTS,
    GATES_FORM,
    MAIN_GATE_OPTIONS,
    GatesForm,
    StoredByLanguage,
    Sweep,
    draw_form_for_missing,
    gates_job_refusal,
    training_options,
)
from headlab.jobs.table import GatesJob
from headlab.tasks import language_titles

WEIGHT_HELP = (
    "The penalty in nats for an open gate; the higher, the fewer stay. Each weight is a run of "
    "its own."
)


def draw_form(choice: Choice, stored_runs: StoredByLanguage[Sweep]) -> None:
    """The form for the languages without a run.

    If all languages have one, the form is folded, and for other languages, weights or options.
    """
    draw_form_for_missing(
        stored_runs,
        choice.languages,
        partial(_draw_fields, choice),
        "Other weights, languages or options",
        "gates-plan",
    )
    show_started_job("Its gates appear on this page when it is done.")
    draw_live_jobs()


def _draw_fields(choice: Choice, languages: tuple[str, ...]) -> None:
    form = GatesForm(choice, _languages(languages, choice))
    st.text_input(
        "λ, one or several",
        GATES_FORM.last_value("weights", DEFAULT_WEIGHTS),
        key=GATES_FORM.key("weights"),
        help=WEIGHT_HELP,
    )
    options = dict(training_options())
    for name, column in zip(MAIN_GATE_OPTIONS, st.columns(len(MAIN_GATE_OPTIONS)), strict=True):
        with column:
            GATES_FORM.draw(name, options.pop(name))
    with st.expander("More options"):
        GATES_FORM.draw_all({**options, **GatesJob.settings()})
    if form.languages:
        _draw_end(form)
    else:
        st.info("No language is chosen. Pick some here, or in the sidebar.")


def _languages(start: Sequence[str], choice: Choice) -> tuple[str, ...]:
    """Languages to learn gates for, each separately."""
    task_codes = task_languages(choice.task)
    widget_key = GATES_FORM.key(f"languages-{','.join(start)}")
    # Each language takes one training per weight, so the list starts with one.
    default = [name for name in start if name in task_codes][:1]
    return tuple(
        st.multiselect(
            "Languages", task_codes, default=default, format_func=language_title, key=widget_key
        )
    )


def _draw_end(form: GatesForm) -> None:
    """What the job would do, its forecast and its button."""
    values = GATES_FORM.values()
    try:
        job = form.job(values)
        problem = gates_job_refusal(job)
    except HeadlabError as error:
        job = form.job_at([], values)
        problem = f"{error}."
    if not problem:
        st.markdown(_job_words(job))
    press = partial(start_job_of_form, GATES_FORM, form.job)
    end_job_form(job, problem, press, key="gates-start", form_prefix=GATES_FORM.prefix)
    if not problem:
        show_terminal_commands(job)


def _job_words(job: GatesJob) -> str:
    """The languages, and the runs in each of them, as Markdown."""
    languages = job.language_codes
    count = len(job.weights) * len(languages)
    runs = f"{count} runs" if count > 1 else "one run"
    weights = ", ".join(f"{weight:g}" for weight in job.weights)
    titles = plain(language_titles(languages))
    steps = job.options["steps"]
    return f"**{titles}**: {runs} of {steps} steps, one after another; λ = {weights}."
