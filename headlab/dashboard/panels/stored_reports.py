"""The Experiments page: the chosen experiment, the form with its forecast and Start, and the stored reports."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import streamlit as st

from headlab.core import HeadlabError, Report, part
from headlab.dashboard.frame import (
    Choice,
    LatestValue,
    cached_options,
    open_page,
    other_choices,
    supervisor,
    task_languages,
)
from headlab.dashboard.names import SHORT_KEY, plain
from headlab.dashboard.panels.job_actions import (
    asked,
    end_form,
    progress,
    refusal,
    start_planned,
    terminal,
)
from headlab.dashboard.widgets import (
    Form,
    FormValues,
    button,
    notify_of_link,
    reason_refused,
    set_first_value,
    set_widget,
)
from headlab.jobs.experiment import ExperimentJob
from headlab.jobs.fields import Settings
from headlab.methods.costs import caution
from headlab.methods.table import DEFAULT_METHOD, METHODS
from headlab.report.commands import job_that_makes
from headlab.report.parts import as_text, facts_of, spent
from headlab.results import Result
from headlab.studies.table import METHOD, METHOD_OPTIONS, STUDIES, Experiment, offered_experiments
from headlab.tasks.languages import language_titles

# Experiments on pages: links, the form's job, stored reports newest first.

# Which experiment and report the page shows: stored in the link and across page switches.

KEPT, WRITTEN = (
    "_experiment",
    "_experiment_link",
)  # (experiment, report) of this session; those last put in its link


def remember(experiment: str, report: str = "") -> None:
    """Make the page show this experiment and report next, whatever its link says now."""
    st.session_state[KEPT] = (experiment, report[:SHORT_KEY])
    st.session_state[WRITTEN] = _asked()
    st.session_state.pop(f"report-{experiment}", None)
    st.session_state.pop("experiment", None)


def begin(task: str) -> None:
    """Set the experiment widget: from a new link, from this session, or to one that the task has languages for."""
    asked, sentence = _asked(), None
    offered = offered_experiments()
    kept = st.session_state.get(KEPT, ("", ""))
    if asked[0] in offered and asked != st.session_state.get(WRITTEN):
        set_widget("experiment", asked[0])
        st.session_state[KEPT] = kept = asked
    elif asked[0] and asked != st.session_state.get(WRITTEN):
        named = ", ".join(offered)
        sentence = f"The link asks for experiment {asked[0][:80]!r}, which is unknown here; choose from {named}."
    notify_of_link("experiment", sentence)
    linked = asked[0] != "" and asked == kept != st.session_state.get(WRITTEN)
    fits = [
        key
        for key, about in offered.items()
        if about.least_languages <= max(1, len(task_languages(task)))
    ]
    set_first_value("experiment", kept[0] if linked or kept[0] in fits else fits[0])


def _asked() -> tuple[str, str]:
    return st.query_params.get("experiment", ""), st.query_params.get("report", "")


def report_of(experiment: str, keys: Sequence[str]) -> str | None:
    """Full key of the report asked for; None for the newest. Warns if it does not exist."""
    kept, short = st.session_state.get(KEPT, ("", ""))
    if kept != experiment or not short:
        return None
    fitting = [key for key in keys if key.startswith(short)]
    if not fitting:
        st.warning(
            plain(
                f"The link asks for report {short[:80]!r}, which does not exist for this model and task."
            )
        )
    return fitting[0] if fitting else None


def write(experiment: str, report: str = "") -> None:
    """Store what is shown in the session and in the link. report: empty for the newest."""
    shown = experiment, report[:SHORT_KEY]
    st.session_state[KEPT] = st.session_state[WRITTEN] = shown
    if _asked() != shown:
        st.query_params["experiment"] = experiment
        if shown[1]:
            st.query_params["report"] = shown[1]
        else:
            st.query_params.pop("report", None)


# The form of an experiment and its job. No streamlit here.

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

    def study_options(self) -> Settings:
        """The experiment's options that have a widget of their own."""
        options = {}
        for name, option in self.study.options.items():
            if name != METHOD and option.kind is not dict:
                options[name] = option
        return options

    def method_options(self) -> Settings:
        """Options of the method that can be set."""
        return METHODS[self.choice.method].options if self.uses_method else {}

    def job(self, values: FormValues) -> ExperimentJob:
        """The form's job, which may hold what does not fit yet.

        Args:
            values: Of the widgets drawn so far, by their keys; the rest are at their defaults.
        """
        return ExperimentJob.model_construct(
            experiment=self.experiment,
            languages=list(self.choice.languages),
            options=FORM.read(self.study_options(), values, self.experiment),
            **self.choice.about,
            **self._method_fields(values),
            **FORM.read(ExperimentJob.settings(), values),
        )

    def _method_fields(self, values: FormValues) -> FormValues:
        """The method and its options, as far as the experiment has them."""
        fields: FormValues = {}
        if self.uses_method:
            fields[METHOD] = self.choice.method
        method_options = FORM.read(self.method_options(), values, "method", self.choice.method)
        if METHOD_OPTIONS in self.study.options and method_options:
            fields[METHOD_OPTIONS] = method_options
        return fields

    def trouble(self, job: ExperimentJob) -> str:
        """Why the form's job cannot be started; empty if it can."""
        min_languages = self.study.least_languages
        if len(self.choice.languages) < min_languages:
            return "Choose a language." if min_languages == 1 else self._too_few_languages()
        return reason_refused(resolved_options, job)

    def _too_few_languages(self) -> str:
        needed = f"{self.study.title} takes {self.study.least_languages} languages"
        if len(task_languages(self.choice.task)) == 1:
            task = self.choice.task
            return f"{needed}, and task {task} has one; choose another question above."
        return f"{needed}; {len(self.choice.languages) or 'none'} is chosen."

    def obstacle(self, job: ExperimentJob) -> str:
        """Why Start is disabled; empty if it is not. Beyond `trouble`, this asks what the model refuses."""
        return self.trouble(job) or (refusal(self.choice) if self.uses_method else "")


def resolved_options(job: ExperimentJob) -> dict[str, Any]:
    """All options of a job's experiment, the method and its options among them.

    Raises:
        HeadlabError: For an unknown experiment, method or option, or an invalid value.
    """
    return job.study().resolve(job.study_options())


# Stored reports of experiments: those that match a choice, newest first, as labels and as a table of facts.

SHORT_FINGERPRINT = 12  # characters of a fingerprint, enough to tell weights apart
WAIT_SECONDS, FRESH_SECONDS = 0.3, 60.0
Stored = TypeVar("Stored")


def weights_of(model: str) -> str | None:
    """Fingerprint of the weights that a job would use; None if the worker does not know it or answer at once."""
    if not supervisor().connected:
        return None
    asked = _asking()
    asked.wait(1, WAIT_SECONDS)
    if asked.error is not None:
        _asking.clear()  # the next call asks again
    return (asked.value or {}).get(model)


@st.cache_resource(ttl=FRESH_SECONDS, show_spinner=False)
def _asking() -> LatestValue[dict[str, str | None]]:
    worker = supervisor().client()

    def ask() -> Generator[dict[str, str | None]]:
        yield {card.name: card.fingerprint for card in worker.models()}

    return LatestValue(ask)


@dataclass(frozen=True)
class Shelf(Generic[Stored]):
    """The cached results for a choice.

    by_language: results of each chosen language that has any (and of languages that the task does not offer), best
    first.  missing: chosen languages without results.  problems: a sentence for every result that was skipped.
    weights: fingerprint of the chosen model's weights, None if unknown.
    """

    by_language: Mapping[str, list[Stored]]
    missing: tuple[str, ...]
    problems: tuple[str, ...]
    weights: str | None = None


def shelved(
    choice: Choice, found: Mapping[str, list[Stored]], problems: Iterable[str], weights: str | None
) -> Shelf[Stored]:
    """A shelf of the results found, the chosen languages first, in their order."""
    order = [
        *(name for name in choice.languages if name in found),
        *sorted(set(found) - set(choice.languages)),
    ]
    missing = tuple(name for name in choice.languages if name not in found)
    return Shelf({name: found[name] for name in order}, missing, tuple(problems), weights)


def form_of(
    shelf: Shelf[Stored],
    languages: tuple[str, ...],
    form: Callable[[tuple[str, ...]], None],
    others: str,
    key: str,
) -> None:
    """A form for the languages without a result; if all have one, for these languages, folded under `others`."""
    if shelf.missing or not shelf.by_language:
        st.subheader("What will it cost?")
        with st.container(border=True, key=key):
            form(shelf.missing)
    else:
        with st.expander(others), st.container(key=key):
            form(languages)


def matching(
    results: Iterable[Result[Report]], choice: Choice, experiment: str, weights: str | None = None
) -> list[Result[Report]]:
    """Reports of an experiment on a choice's model and task: those a job would make now, then others; newest first.

    weights: fingerprint of the model's current weights, None if unknown.
    """
    wanted = (choice.model, choice.task, experiment)

    def rank(result: Result[Report]) -> tuple[bool, bool, float, int, str]:
        stored = StoredJob.of(result.record)
        same_weights = weights is None or stored.fingerprint == weights
        is_float32 = stored.dtype is None
        changed = changed_options(stored.job)
        return same_weights, is_float32, made_at(result), -len(changed), result.key

    fitting = [r for r in results if _subject_of(r.record) == wanted and choice.fits(r.record.spec)]
    return sorted(fitting, key=rank, reverse=True)


def _subject_of(report: Report) -> tuple[object, object, object]:
    """The model, the task and the experiment of a report."""
    spec = report.spec
    return part(spec, "model", "name"), part(spec, "task", "name"), spec.get("experiment")


def made_at(result: Result[Report]) -> float:
    """When a report was made, in Unix seconds; 0 if the date is missing or out of range."""
    try:
        when = datetime.fromisoformat(str(result.meta.get("created"))).astimezone(UTC)
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, when.timestamp())


@dataclass(frozen=True)
class StoredJob:
    """The job that makes a stored report again, and the model's weights and precision beside it.

    Attributes:
        job: Of an experiment or a front. Its sizes are actual, not as requested, and nothing in it is checked.
        fingerprint: Of the model's weights; empty if the report does not have it.
        dtype: Precision of the model; None for float32.
    """

    job: ExperimentJob
    fingerprint: str
    dtype: str | None

    @classmethod
    def of(cls, report: Report) -> StoredJob:
        """The job of a stored report of an experiment or a front."""
        job = job_that_makes("report", report.spec)
        assert isinstance(job, ExperimentJob), f"{report.name} is no experiment and no front"
        dtype = part(report.spec, "model", "dtype")
        return cls(
            job=job,
            fingerprint=str(part(report.spec, "model", "fingerprint") or ""),
            dtype=str(dtype) if dtype else None,
        )


def offer_others(form: ExperimentForm, results: Sequence[Result[Report]]) -> None:
    """Links to this experiment's reports on other models and tasks, where the chosen one has none."""
    choices = [
        other.choice
        for other in other_choices(form.choice)
        if matching(results, other.choice, form.experiment)
    ]
    if choices:
        st.markdown("The cache has some of other models and tasks:")
    for choice in choices:
        subject = f"{choice.model} on {choice.task}"
        button(
            subject, key=f"report-of-{subject}", on_press=open_page, args=("experiments", choice)
        )


def label(result: Result[Report], weights: str | None = None) -> str:
    """A report in one line: date, languages, method, number of examples, seed and weights.

    weights: fingerprint of the chosen model's weights; if it is None, the report's own are named.
    """
    stored = StoredJob.of(result.record)
    job = stored.job
    words = [made_words(result), language_titles(job.languages_named)]
    if job.method:
        words.append(str(job.method))
    words += setting_words(changed_options(job))
    words.append(sizes_words(job))
    if job.seed:
        words.append(f"seed {job.seed}")
    if weights is None and stored.fingerprint:
        words.append(f"weights {_short(stored.fingerprint)}")
    return " · ".join([*words, *origin(stored.fingerprint, weights, stored.dtype)])


def setting_words(settings: Mapping[str, object]) -> list[str]:
    """Settings in words, each with its value."""
    return [f"{name.replace('_', ' ')} {as_text(value)}" for name, value in settings.items()]


def sizes_words(job: ExperimentJob) -> str:
    """How many examples a report is on."""
    return f"up to {job.dev_size or '?'} examples of dev and {job.test_size or '?'} of test"


def changed_options(job: ExperimentJob) -> dict[str, object]:
    """The experiment's options that are not at their defaults, but for those of methods."""
    study = job.known_study()
    if study is None:
        return {}
    changed: dict[str, object] = {}
    for name, value in job.options.items():
        if name in study.options_of or name not in study.options:
            continue
        if value != study.options[name].default:
            changed[name] = value
    return changed


def made_words(result: Result[Report]) -> str:
    """When a report was made, in words."""
    when = datetime.fromtimestamp(made_at(result), UTC)
    return f"{when.day} {when:%b %Y, %H:%M} UTC"


def origin(own: str | None, weights: str | None, dtype: str | None) -> list[str]:
    """How a result's model differs from the chosen one, in words. own, weights: fingerprints, if known."""
    other = (
        [f"made with other weights ({_short(own)})"]
        if weights and own is not None and own != weights
        else []
    )
    return other + ([f"in {dtype}"] if dtype else [])


def _short(fingerprint: str) -> str:
    return f"{fingerprint[:SHORT_FINGERPRINT]}…" if fingerprint else "unknown ones"


COMPARED = ("languages", METHOD, "dev_size", "test_size", "seed", "ablation")
"""The fields in which a report may differ from a form, besides the options, in the order in which this is told."""


def differences(
    stored: StoredJob, form_job: ExperimentJob, weights: str | None = None
) -> list[str]:
    """Settings in which a report differs from what is chosen, in words, with the report's values.

    Args:
        stored: The report's job.
        form_job: The form's job. Where it takes all examples, how many are not compared: how many
            there are is not known here.
        weights: Fingerprint of the chosen model's weights, None if unknown.
    """
    report_job = with_defaults(stored.job)
    wanted = with_defaults(form_job)
    settings = _other_fields(report_job, wanted)
    settings |= _other_options(report_job.options, wanted.options)
    if _method_of(report_job) == _method_of(wanted):
        settings |= _other_options(report_job.method_options, wanted.method_options)
    return [*origin(stored.fingerprint, weights, stored.dtype), *setting_words(settings)]


def _other_fields(report_job: ExperimentJob, wanted: ExperimentJob) -> dict[str, object]:
    """The report's values of `COMPARED` that are not as wanted."""
    others: dict[str, object] = {}
    for name in COMPARED:
        if name == METHOD and _method_of(wanted) is None:
            continue
        value = report_job.value(name)
        if wanted.value(name) not in (None, value):
            others[name] = value
    if sorted(report_job.languages_named) == sorted(wanted.languages_named):
        others.pop("languages", None)
    return others


def _other_options(report_options: object, wanted: object) -> dict[str, object]:
    """The report's options that are not as wanted; those that only one of them has are not compared.

    Args:
        report_options: By name; anything else, as another program may have written, is not compared.
        wanted: By name.
    """
    others: dict[str, object] = {}
    if not isinstance(report_options, Mapping) or not isinstance(wanted, Mapping):
        return others
    for name, value in report_options.items():
        if name in wanted and value != wanted[name]:
            others[name] = value
    return others


def _method_of(job: ExperimentJob) -> str | None:
    """The method whose scores a job uses; None if its experiment uses none."""
    study = job.known_study()
    return None if study is None or METHOD not in study.options else job.method


def with_defaults(job: ExperimentJob) -> ExperimentJob:
    """The job with all options filled in; unchanged if they do not fit, as those of another program may not."""
    with_method = job if job.method else job.model_copy(update={METHOD: DEFAULT_METHOD})
    try:
        options = resolved_options(with_method)
    except (HeadlabError, TypeError, ValueError):
        return job
    fields = {name: options.pop(name) for name in (METHOD, METHOD_OPTIONS) if name in options}
    return job.model_copy(update={**fields, "options": options})


def facts(result: Result[Report]) -> list[tuple[str, str]]:
    """How a report was made, as (name, value) pairs."""
    report = result.record
    rows = facts_table(
        report.spec, result.meta, (report.example_forwards, report.seconds), ("Report", result.key)
    )
    return [*rows, ("Not counted", "forward passes and time of what was in the cache already")]


def facts_table(
    spec: Mapping[str, Any],
    meta: Mapping[str, Any],
    took: tuple[int, float],
    named: tuple[str, str],
) -> list[tuple[str, str]]:
    """How a result was made, as (name, value) pairs. took: example forwards and seconds."""
    return [
        *(
            (name[:1].upper() + name[1:], value)
            for name, value in facts_of(spec, meta, spent(*took))
        ),
        named,
    ]


# The form for an experiment: its options, the forecast of its cost, and Start.


def draw(form: ExperimentForm) -> ExperimentJob:
    """Draw the form and return its job, as its widgets are now."""
    with st.container(border=True, key="plan"):
        options = form.study_options()
        columns = st.columns(len(options)) if options else ()
        for (name, option), column in zip(options.items(), columns, strict=True):
            with column:
                FORM.draw(name, option, form.experiment)
        with st.expander("More options"):
            _more_options(form)
        job = form.job(FORM.values())
        _begin(form, job)
        terminal(job, about="It can be interrupted; run the same command again to resume:")
    return job


def _more_options(form: ExperimentForm) -> None:
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
        usual = options_of_scores.get(name, option.default)
        FORM.draw(name, option, "method", method, usual=usual)


def _begin(form: ExperimentForm, job: ExperimentJob) -> None:
    """The forecast, the button, the outcome of the last click, and jobs in progress."""
    warning = caution(form.choice.method) if form.uses_method else ""
    before = f"Caution: {warning}. What it will take:" if warning else "What it will take:"
    end_form(
        job,
        form.obstacle(job),
        _start,
        form,
        key="plan-start",
        form=FORM.prefix,
        before=before,
    )
    asked("Its report appears below when it is done.")
    progress()


def _start(form: ExperimentForm, typed: Mapping[str, str] | None) -> None:
    remember(form.experiment)  # show its report, which will be the newest
    start_planned(FORM, form.job, typed)
