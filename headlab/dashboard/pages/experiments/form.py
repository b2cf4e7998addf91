"""The form for an experiment: its options, the forecast of its cost, and Start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from headlab.core import Report
from headlab.dashboard.frame import Choice, cached_options, open_page, other_choices, task_languages
from headlab.dashboard.panels.jobs import (
    draw_live_jobs,
    end_job_form,
    scores_refusal,
    show_started_job,
    show_terminal_commands,
    start_job_of_form,
)
from headlab.dashboard.panels.stored import matching_reports, resolved_options, show_report_next
from headlab.dashboard.widgets import Form, FormValues, button, reason_refused
from headlab.jobs import JobSettings
from headlab.jobs.table import ExperimentJob
from headlab.methods import METHODS, caution, method_on
from headlab.results import Result
from headlab.studies import METHOD, METHOD_OPTIONS, STUDIES, Experiment

FORM = Form("_plan", "plan-")


@dataclass(frozen=True)
class ExperimentForm:
    """The form for an experiment on the sidebar's choice.

    Attributes:
        experiment: Its key.
        choice: The model, the task, the languages and the method.
    """

    experiment: str
    choice: Choice

    @property
    def study(self) -> Experiment:
        """The experiment itself."""
        return STUDIES[self.experiment]

    @property
    def uses_method(self) -> bool:
        """Whether the sidebar's method matters."""
        return METHOD in self.study.options

    def study_options(self) -> JobSettings:
        """The experiment's options that have a widget of their own."""
        options = {}
        for name, option in self.study.options.items():
            if name != METHOD and option.kind is not dict:
                options[name] = option
        return options

    def method_options(self) -> JobSettings:
        """Options of the method that can be set."""
        if self.uses_method:
            return method_on(self.choice.method, self.choice.task).options
        return {}

    def method_place(self) -> tuple[str, ...]:
        """What the values of the method's options depend on."""
        method = METHODS[self.choice.method]
        if method_on(method.key, self.choice.task) is method:
            return ("method", method.key)
        return ("method", method.key, "likelihood")

    def job(self, values: FormValues) -> ExperimentJob:
        """The form's job, which may hold what does not fit yet.

        Args:
            values: Of the widgets drawn so far, by their keys; the rest are at their defaults.
        """
        return ExperimentJob.model_construct(
            experiment=self.experiment,
            languages=list(self.choice.languages),
            options=FORM.read(self.study_options(), values, self.experiment),
            **self.choice.job_fields,
            **self._method_fields(values),
            **FORM.read(ExperimentJob.settings(), values),
        )

    def _method_fields(self, values: FormValues) -> FormValues:
        """The method and its options, as far as the experiment has them."""
        fields: FormValues = {}
        if self.uses_method:
            fields[METHOD] = self.choice.method
        method_options = FORM.read(self.method_options(), values, *self.method_place())
        if METHOD_OPTIONS in self.study.options and method_options:
            fields[METHOD_OPTIONS] = METHODS[self.choice.method].recorded(method_options)
        return fields

    def trouble(self, job: ExperimentJob) -> str:
        """Why the form's job cannot be started; empty if it can."""
        min_languages = self.study.least_languages
        if len(self.choice.languages) < min_languages:
            if min_languages == 1:
                return "Choose a language."
            return self._too_few_languages()
        return reason_refused(resolved_options, job)

    def _too_few_languages(self) -> str:
        requirement = f"{self.study.title} takes {self.study.least_languages} languages"
        if len(task_languages(self.choice.task)) == 1:
            task = self.choice.task
            return f"{requirement}, and task {task} has one; choose another question above."
        return f"{requirement}; {len(self.choice.languages) or 'none'} is chosen."

    def obstacle(self, job: ExperimentJob) -> str:
        """Why Start is disabled; empty if it is not.

        Beyond `trouble`, this asks what the model refuses.
        """
        return self.trouble(job) or (scores_refusal(self.choice) if self.uses_method else "")


def link_other_reports(form: ExperimentForm, results: Sequence[Result[Report]]) -> None:
    """Links to this experiment's reports on other models and tasks, if the chosen have none."""
    # A model with reports of roles is listed twice: with the chosen task, and with its own.
    choice_by_subject: dict[str, Choice] = {}
    for other_result in other_choices(form.choice):
        choice = other_result.choice
        if matching_reports(results, choice, form.experiment):
            choice_by_subject.setdefault(f"{choice.model} on {choice.task}", choice)
    if choice_by_subject:
        st.markdown("The cache has some of other models and tasks:")
    for subject, choice in choice_by_subject.items():
        button(
            subject, key=f"report-of-{subject}", on_press=open_page, args=("experiments", choice)
        )


def draw_form(form: ExperimentForm) -> ExperimentJob:
    """Draw the form and return its job, as its widgets are now."""
    with st.container(border=True, key="plan"):
        options = form.study_options()
        columns = st.columns(len(options)) if options else ()
        for (name, option), column in zip(options.items(), columns, strict=True):
            with column:
                FORM.draw(name, option, form.experiment)
        with st.expander("More options"):
            _draw_more_options(form)
        job = form.job(FORM.values())
        _draw_end(form, job)
        show_terminal_commands(
            job, note="It can be interrupted; run the same command again to resume:"
        )
    return job


def _draw_more_options(form: ExperimentForm) -> None:
    """The settings, then the options of the method."""
    places = [*st.columns(3), st.container()]
    for place, (name, option) in zip(places, ExperimentJob.settings().items(), strict=True):
        with place:
            FORM.draw(name, option)
    method = form.choice.method
    options = form.method_options()
    if options:
        st.markdown(f"###### {METHODS[method].title}")
    options_of_scores = cached_options(form.choice) if form.uses_method else {}
    for name, option in options.items():
        default = options_of_scores.get(name, option.default)
        FORM.draw(name, option, *form.method_place(), usual=default)


def _draw_end(form: ExperimentForm, job: ExperimentJob) -> None:
    """The forecast, the button, the outcome of the last click, and jobs in progress."""
    warning = caution(form.choice.method) if form.uses_method else ""
    forecast_lead = f"Caution: {warning}. What it will take:" if warning else "What it will take:"
    end_job_form(
        job,
        form.obstacle(job),
        _start,
        form,
        key="plan-start",
        form_prefix=FORM.prefix,
        text_before=forecast_lead,
    )
    show_started_job("Its report appears below when it is done.")
    draw_live_jobs()


def _start(form: ExperimentForm, typed_values: Mapping[str, str] | None) -> None:
    show_report_next(form.experiment)  # show its report, which will be the newest
    start_job_of_form(FORM, form.job, typed_values)
