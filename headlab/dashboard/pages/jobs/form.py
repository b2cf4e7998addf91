"""The form for a new job, and tables of what is cached, what it cost and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pandas as pd
import streamlit as st

from headlab.core import HEADS, Option, display_unit, players_title, read_players
from headlab.dashboard.frame import (
    Choice,
    StoredScores,
    known_models,
    stored_results,
    stored_specs,
    task_languages,
)
from headlab.dashboard.frame import scores_of as stored_scores_of
from headlab.dashboard.names import language_title, page_link, plain
from headlab.dashboard.panels.jobs import (
    RAY_LEAD,
    draw_job_place,
    end_job_form,
    job_place,
    job_requests,
    missing_weights_reason,
    open_job,
    scores_refusal,
    show_terminal_commands,
    start_job,
)
from headlab.dashboard.widgets import (
    FormValues,
    button,
    download_button,
    draw_option,
    file_stem_of,
    reason_refused,
    values_at_press,
    widget_values,
)
from headlab.jobs import Job, JobPlace, SimpleValue
from headlab.jobs.table import BUILT_IN_KINDS, JOBS, ScoreJob, queued_kinds
from headlab.methods import (
    METHODS,
    Method,
    caution,
    cost_of,
    method_on,
    spec_of,
    target_half_width_of,
)
from headlab.results import HeadScores
from headlab.tasks import task_names as task_names

# The form's values: the keys of its widgets, and the job that they describe. No streamlit here.

PREFIX = "new-"
"""What the keys of the form's widgets start with."""
PLAYERS_FIELD = "players"
USUAL_PLAYERS = ("kv-groups", "neurons:8", "heads,neurons:8", "feed-forward", "attention", "layers")
"""What the form offers to switch besides heads; any other can be typed."""
LAST_SETTINGS = ("ablation", "seed")
"""Settings that most kinds of job have; they are drawn last, in this order."""


@dataclass(frozen=True)
class JobForm:
    """The form for a new job of any kind, whose widgets start from the sidebar's choice.

    The key of a widget contains what the widget depends on, so that it is reset when that changes.

    Attributes:
        model: The sidebar's.
        task: The sidebar's.
        languages: The sidebar's, by their codes.
        method: The sidebar's.
        label_map: Of this model on this task.
        players: The sidebar's.
    """

    model: str
    task: str
    languages: tuple[str, ...]
    method: str
    label_map: Mapping[str, str] | None = None
    players: str = HEADS

    @classmethod
    def from_choice(cls, choice: Choice) -> Self:
        """The form that starts from a choice."""
        return cls(
            choice.model,
            choice.task,
            choice.languages,
            choice.method,
            choice.label_map,
            choice.players,
        )

    def key(self, name: str, *dependencies: str) -> str:
        """Key of a widget.

        Args:
            name: What it sets.
            dependencies: What its value depends on, besides the sidebar's choice.
        """
        starts = {"model": self.model, "task": self.task, "method": self.method}
        starts["players"] = self.players
        starts["languages"] = ",".join(self.languages)
        return PREFIX + "-".join((name, starts.get(name, ""), *dependencies))

    def setting_key(self, job_class: type[Job], name: str) -> str:
        """Key of a setting's widget; kinds of packages may have other settings of the same name."""
        if job_class.key in BUILT_IN_KINDS:
            return self.key(name)
        return self.key(name, job_class.key)

    def kind(self, values: FormValues) -> str:
        """The key of the kind of job.

        Args:
            values: Of the widgets drawn so far.
        """
        kind = values.get(self.key("kind"))
        if kind in JOBS:
            return str(kind)
        return ScoreJob.key

    def place(self, values: FormValues) -> JobPlace:
        """Where the job runs.

        Args:
            values: Of the widgets drawn so far.
        """
        return job_place(JOBS[self.kind(values)], values.get(self.key("place")))

    def job(self, values: FormValues) -> Job:
        """The job, whether its fields are valid or not.

        Args:
            values: Of the widgets drawn so far; the rest are at their defaults.
        """
        job_class = JOBS[self.kind(values)]
        fields = self._common_fields(values)
        fields = {name: value for name, value in fields.items() if job_class.has_field(name)}
        for name, option in job_class.form_settings().items():
            if name != PLAYERS_FIELD:
                fields[name] = values.get(self.setting_key(job_class, name), option.default)
        return job_class.model_construct(**fields)

    def _common_fields(self, values: FormValues) -> dict[str, Any]:
        """The fields whose widgets are the same for every kind of job that has them."""
        model = str(values.get(self.key("model")) or self.model)
        task = str(values.get(self.key("task")) or self.task)
        method = str(values.get(self.key("method")) or self.method)
        fields = {
            "model": model,
            "task": task,
            "languages": list(values.get(self.key("languages", task), self.languages)),
            "method": method,
            "options": METHODS[method].recorded(self.method_options(method, task, values)),
        }
        players = str(values.get(self.key(PLAYERS_FIELD)) or self.players)
        if not reason_refused(read_players, players):
            players = str(read_players(players))  # as results have them, however they are typed
        if players != HEADS:
            fields[PLAYERS_FIELD] = players
        if self.label_map is not None and (model, task) == (self.model, self.task):
            fields["label_map"] = dict(self.label_map)
        return fields

    def method_options(self, method: str, task: str, values: FormValues) -> dict[str, SimpleValue]:
        """The values of a method's options, by name; the default where no widget was drawn.

        Args:
            method: Its key.
            task: Name of the task, which defaults may depend on.
            values: Of the widgets drawn so far.
        """
        options = {}
        for name, option in method_on(method, task).options.items():
            options[name] = values.get(self.option_key(method, name, option), option.default)
        return options

    def option_key(self, method: str, name: str, option: Option) -> str:
        """Key of the widget of a method's option.

        Args:
            method: Key of the method.
            name: Of the option.
            option: The option, with its default on the form's task.
        """
        has_other_default = option.default != METHODS[method].options[name].default
        return self.key("option", method, name, *[str(option.default)] * has_other_default)


def offered_kinds() -> dict[str, type[Job]]:
    """The kinds of job that the form offers, by key; those of packages too."""
    return {key: job_class for key, job_class in queued_kinds().items() if job_class.on_jobs_page}


def main_options(method: str) -> list[str]:
    """The options that most people set: what is estimated, and from how many samples."""
    names = ("estimand", "form", "samples", "target")
    return [name for name in names if name in METHODS[method].options]


def other_options(method: str) -> list[str]:
    """The method's remaining options."""
    return [name for name in METHODS[method].options if name not in main_options(method)]


def offered_of(languages: Iterable[str], offered_languages: Iterable[str]) -> list[str]:
    """Those of the languages that are offered, in the order of the offer."""
    requested_languages = set(languages)
    return [language for language in offered_languages if language in requested_languages]


def why_not_startable(job: Job) -> str:
    """Why a job cannot be started; empty if it can, as far as is known here."""
    if job.has_field(PLAYERS_FIELD):
        reason = reason_refused(read_players, job.players_switched)
        if reason:
            return reason
    for name, option in job.form_settings().items():
        if not option.fits(job.field_value(name)):
            return f"{name} is {job.field_value(name)!r:.40}; choose {option.range}."
    if job.has_field("languages") and not job.language_codes:
        return "Choose at least one language."
    model = job.field_value("model")
    method = job.field_value("method")
    if method is None:
        if model is None:
            return ""
        return missing_weights_reason(model)
    if job.has_field("options"):
        reason = reason_refused(METHODS[method].resolve, job.field_value("options"))
        if reason:
            return reason
    if model is None:
        return ""
    return scores_refusal(
        Choice(
            model,
            str(job.field_value("task")),
            tuple(job.language_codes),
            method,
            job.field_value("label_map") if job.has_field("label_map") else None,
            players=job.players_switched,
        )
    )


# The form itself.


def draw_form(choice: Choice) -> None:
    """The form, starting from the sidebar's choice."""
    form = JobForm.from_choice(choice)
    kinds = offered_kinds()
    with st.container(border=True, key="new-job"):
        st.subheader("New job")
        kind = st.radio(
            "What",
            list(kinds),
            format_func=lambda key: plain(kinds[key].name),
            horizontal=True,
            key=form.key("kind"),
        )
        st.caption(plain(kinds[kind].about))
        _draw_fields(form, kinds[kind])
        draw_job_place(kinds[kind], form.key("place"))
        _draw_end(form)
    page_link("experiments", "Analyses of several scores")
    page_link("roles", "What the heads do")
    page_link("gates", "Gates that learn")


def _draw_fields(form: JobForm, job_class: type[Job]) -> None:
    """The widgets of a job's fields.

    Widgets that differ between methods are in containers: the browser identifies the expander by
    its position, and if the number of widgets before it changed, would close it and drop what is
    being typed there.
    """
    method = None
    with st.container():
        if job_class.has_field("model"):
            _draw_model(form)
        task = _draw_task(form) if job_class.has_field("task") else form.task
        if job_class.has_field("languages"):
            _draw_languages(form, task)
        if job_class.has_field("method"):
            method = _draw_method(form, task, with_options=job_class.has_field("options"))
        if job_class.has_field(PLAYERS_FIELD):
            _draw_players(form)
        _draw_settings(form, job_class, job_class.main_settings)
    options = []
    if method is not None and job_class.has_field("options"):
        options = other_options(method)
    main_settings = job_class.main_settings
    drawn_names = (*main_settings, PLAYERS_FIELD)
    settings = [name for name in job_class.form_settings() if name not in drawn_names]
    if not options and not settings:
        return
    with st.expander("More options"):
        with st.container():
            for name in options:
                option = method_on(str(method), task).options[name]
                _draw_method_option(form, str(method), name, option)
            _draw_settings(
                form, job_class, [name for name in settings if name not in LAST_SETTINGS]
            )
        _draw_settings(form, job_class, [name for name in LAST_SETTINGS if name in settings])


def _draw_end(form: JobForm) -> None:
    """The forecast, the button, the outcome of the last click, and the equivalent commands."""
    values = widget_values(PREFIX)
    job = form.job(values)
    forecast_lead = "What it will take:"
    if form.place(values) == "ray":
        forecast_lead = RAY_LEAD
    reason = why_not_startable(job)
    end_job_form(
        job,
        reason,
        _start,
        form,
        values,
        key="new-start",
        form_prefix=PREFIX,
        text_before=forecast_lead,
    )
    _draw_outcome()
    if not reason:
        show_terminal_commands(job)


def _start(form: JobForm, drawn_values: FormValues, typed_values: Mapping[str, str] | None) -> None:
    values = values_at_press(PREFIX, drawn_values, typed_values)
    start_job(form.job(values), form.place(values))


def _draw_outcome() -> None:
    """The outcome of the last click on Start."""
    request = job_requests().started
    if request is None:
        return
    if request.was_in_queue:
        state_words = "running" if request.state == "running" else "waiting"
        st.info(
            f"This is already job {request.number}, {state_words} now: identical requests share one "
            "job."
        )
    else:
        st.success(f"Job {request.number} is in the queue.")
    button(f"Open job {request.number}", key="new-open", on_press=open_job, args=(request.number,))


def _draw_model(form: JobForm) -> None:
    models = list(dict.fromkeys([form.model, *known_models(stored_specs())]))
    st.selectbox(
        "Model",
        models,
        key=form.key("model"),
        accept_new_options=True,
        help="Or type a hub id or a folder.",
    )


def _draw_task(form: JobForm) -> str:
    tasks = list(dict.fromkeys([form.task, *task_names()]))
    return st.selectbox("Task", tasks, key=form.key("task"))


def _draw_languages(form: JobForm, task: str) -> None:
    offered_languages = task_languages(task)
    st.multiselect(
        "Languages",
        offered_languages,
        default=offered_of(form.languages, offered_languages),
        format_func=language_title,
        key=form.key("languages", task),
    )


def _draw_method(form: JobForm, task: str, *, with_options: bool) -> str:
    """The method, what it costs, and its main options."""
    keys = list(METHODS)
    method = st.selectbox(
        "Method",
        keys,
        index=keys.index(form.method),
        format_func=lambda key: METHODS[key].title,
        key=form.key("method"),
    )
    cost = f"Cost: {METHODS[method].costs.words}."
    warning = caution(method)
    st.caption(f"{cost} Caution: {warning}." if warning else cost)
    if not with_options:
        return method
    options = method_on(method, task).options
    names = main_options(method)
    for name in names:
        if options[name].choices:
            _draw_method_option(form, method, name, options[name])
    numbers = [name for name in names if not options[name].choices]
    for name, column in zip(numbers, st.columns(len(numbers)) if numbers else (), strict=True):
        with column:
            _draw_method_option(form, method, name, options[name])
    return method


def _draw_players(form: JobForm) -> None:
    """What is switched: one of the usual choices, or any that is typed."""
    options = list(dict.fromkeys([HEADS, form.players, *USUAL_PLAYERS]))
    labels = {players: _players_label(players) for players in options}
    st.selectbox(
        "What is switched",
        options,
        index=options.index(form.players),
        format_func=lambda players: labels.get(players, players),
        key=form.key(PLAYERS_FIELD),
        accept_new_options=True,
        help="Or type others: neurons:32 for 32 groups a layer, or several joined by commas.",
    )


def _players_label(players: str) -> str:
    """What is switched in words, and as people type it."""
    if players == HEADS:
        return players_title(players)
    return f"{players_title(players)} ({players})"


def _draw_method_option(form: JobForm, method: str, name: str, option: Option) -> None:
    draw_option(name, option, form.option_key(method, name, option))


def _draw_settings(form: JobForm, job_class: type[Job], names: Iterable[str]) -> None:
    settings = job_class.form_settings()
    for name in names:
        draw_option(name, settings[name], form.setting_key(job_class, name))


# What is cached, what it cost and what is missing, as tables.


def draw_cached(choice: Choice) -> None:
    """What the cache has of the sidebar's choice, what it cost, and what was skipped there."""
    results = stored_scores_of(choice)
    st.subheader("What is cached, what is missing")
    table = table_by_language(results, choice.languages)
    height = 38 + 35 * min(len(table), 20)
    st.dataframe(
        table, hide_index=True, column_config=column_config(results), height=height, placeholder="–"
    )
    if results.scores:
        name = f"{file_stem_of('costs', (choice.model, choice.task, choice.method))}.csv"
        download_button("Download this table as CSV", table.to_csv(index=False), name, "text/csv")
    if results.variant:
        st.caption(
            plain(f"All of one kind: {results.variant}.")
            + " Also cached (see Settings in the sidebar): " * bool(results.other_variants)
            + plain("; ".join(results.other_variants))
        )
    results_by_method = {key: stored_scores_of(choice, key) for key in METHODS}
    st.dataframe(table_by_method(METHODS, results_by_method, choice.languages), hide_index=True)
    problems = stored_results(HeadScores).problems
    if problems:
        with st.expander(f"{len(problems)} cache folders were skipped", icon=":material/warning:"):
            st.markdown("\n".join(f"- {plain(problem)}" for problem in problems))


def table_by_method(
    methods: Mapping[str, Method],
    results_by_method: Mapping[str, StoredScores],
    languages: Sequence[str],
) -> pd.DataFrame:
    """One row per method: for how many of the chosen languages it is cached, and which it lacks."""
    rows = []
    for key, method in methods.items():
        results = results_by_method[key]
        rows.append(
            {
                "Method": method.title,
                "Key": key,
                "Cached": f"{len(results.scores)} of {len(languages)}",
                "Missing": _missing_words(results.missing, len(languages)),
                "Intervals": "yes" if method.intervals else "no",
                "Cost": method.costs.words,
                "From": method.paper,
            }
        )
    return pd.DataFrame(rows)


def _missing_words(missing: Sequence[str], all_of: int) -> str:
    if not missing:
        return "none"
    if len(missing) == all_of:
        return "all"
    return ", ".join(missing)


def table_by_language(results: StoredScores, languages: Sequence[str]) -> pd.DataFrame:
    """One row per chosen language: its result's basis and cost, or that it is missing.

    Half-widths are in the unit shown (accuracies in points); columns that a method does not provide
    are left out.
    """
    rows = [_row_of_language(language, results.scores.get(language)) for language in languages]
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def _row_of_language(language: str, scores: HeadScores | None) -> dict[str, object]:
    if scores is None:
        return {"Language": language_title(language), "Result": "missing"}
    cost = cost_of(scores)
    factor, _ = display_unit(scores.unit)
    min_samples, median_samples, max_samples = cost.samples or (None, None, None)
    return {
        "Language": language_title(language),
        "Result": "cached",
        "Helpful": cost.helpful,
        "Harmful": cost.harmful,
        "Narrow": cost.narrow,
        "Undecided": cost.wide,
        "Half-width, median": None
        if cost.median_half_width is None
        else factor * cost.median_half_width,
        "Half-width, largest": None
        if cost.largest_half_width is None
        else factor * cost.largest_half_width,
        "Samples, least": min_samples,
        "Samples, median": median_samples,
        "Samples, most": max_samples,
        "Example forwards": cost.forwards,
        "Seconds": round(cost.seconds, 1),
        "Examples": spec_of(scores, "task", "size"),
    }


def column_config(results: StoredScores) -> dict[str, Any]:
    """Formats and help texts of the columns of `table_by_language`."""
    number = st.column_config.NumberColumn
    unit = "points"
    target = "the target"
    if results.first_scores:
        factor, unit = display_unit(results.first_scores.unit)
        target = f"{factor * target_half_width_of(results.first_scores):g} {unit}"
    return {
        "Language": st.column_config.TextColumn(pinned=True),
        "Result": st.column_config.TextColumn(width=64),
        "Helpful": number(width=62, help="Heads whose interval lies above 0"),
        "Harmful": number(width=66, help="Heads whose interval lies below 0"),
        "Narrow": number(width=62, help=f"Undecided, but with a half-width of {target} or less"),
        "Undecided": number(width=80, help=f"Undecided, with a half-width above {target}"),
        "Half-width, median": number(
            "Half-width", width=84, format="%.3f", help=f"Median over the heads, in {unit}"
        ),
        "Half-width, largest": number(
            "largest", width=68, format="%.3f", help=f"Largest half-width, in {unit}"
        ),
        "Samples, least": number(
            "Samples min", width=92, format="localized", help="Samples a head, least"
        ),
        "Samples, median": number(
            "median", width=68, format="localized", help="Samples a head, median"
        ),
        "Samples, most": number("max", width=64, format="localized", help="Samples a head, most"),
        "Example forwards": number(
            "Forwards", width=88, format="localized", help="Of one example, parts of one too"
        ),
        "Seconds": number(width=76, format="localized"),
        "Examples": number(width=76),
    }
