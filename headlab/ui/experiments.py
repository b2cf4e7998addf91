"""The Experiments page: the chosen experiment, the form with its forecast and Start, and the stored reports."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import streamlit as st

from headlab.errors import HeadlabError
from headlab.methods.costs import caution
from headlab.methods.table import METHODS
from headlab.records import part
from headlab.report.commands import job_of, shell_lines
from headlab.report.parts import as_text, facts_of, spent
from headlab.store import Result
from headlab.studies.table import (
    EXPERIMENTS,
    JOBS,
    METHOD,
    METHOD_OPTIONS,
    Experiment,
    Settings,
    study,
)
from headlab.tables import Report
from headlab.ui.form_values import Form, wrong
from headlab.ui.job_actions import asked, end_form, progress, refusal, start_planned, terminal
from headlab.ui.job_format import spelled
from headlab.ui.names import SHORT_KEY, plain
from headlab.ui.notices import notify
from headlab.ui.presses import button, give, start_with
from headlab.ui.shell import Choice, Latest, as_cached, go, languages_of, others, supervisor

# Experiments on pages: links, the job's spec, stored reports newest first.

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
    kept = st.session_state.get(KEPT, ("", ""))
    if asked[0] in EXPERIMENTS and asked != st.session_state.get(WRITTEN):
        give("experiment", asked[0])
        st.session_state[KEPT] = kept = asked
    elif asked[0] and asked != st.session_state.get(WRITTEN):
        named = ", ".join(EXPERIMENTS)
        sentence = f"The link asks for experiment {asked[0][:80]!r}, which is unknown here; choose from {named}."
    notify("experiment", sentence)
    linked = asked[0] != "" and asked == kept != st.session_state.get(WRITTEN)
    fits = [
        key
        for key, about in EXPERIMENTS.items()
        if about.least_languages <= max(1, len(languages_of(task)))
    ]
    start_with("experiment", kept[0] if linked or kept[0] in fits else fits[0])


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


# The experiment being set up: its widget keys and the job's spec. No streamlit here.

FORM, SETTINGS = Form("_plan", "plan-"), JOBS["experiment"]
Choices = Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    """What would be computed: an experiment on the sidebar's choice."""

    experiment: str
    choice: Choice

    @property
    def about(self) -> Experiment:
        """The experiment itself."""
        return EXPERIMENTS[self.experiment]

    @property
    def uses_method(self) -> bool:
        """Whether the sidebar's method matters."""
        return METHOD in self.about.options

    def own_options(self) -> Settings:
        """The experiment's options that have their own widget."""
        return {
            name: o
            for name, o in self.about.options.items()
            if name != METHOD and o.kind is not dict
        }

    def method_options(self) -> Settings:
        """Options of the method that can be set."""
        return METHODS[self.choice.method].options if self.uses_method else {}

    def spec(self, state: Choices) -> dict[str, Any]:
        """The job's spec. state: values of the widgets drawn so far; the rest are at their defaults."""
        own = FORM.read(self.method_options(), state, "method", self.choice.method)
        return {
            "experiment": self.experiment,
            **self.choice.about,
            "languages": list(self.choice.languages),
            **({"method": self.choice.method} if self.uses_method else {}),
            **({"method_options": own} if METHOD_OPTIONS in self.about.options and own else {}),
            "options": FORM.read(self.own_options(), state, self.experiment),
            **FORM.read(SETTINGS, state),
        }

    def trouble(self, spec: Mapping[str, Any]) -> str:
        """Why this cannot be started; empty if it can."""
        least, have = self.about.least_languages, len(self.choice.languages)
        if have < least:
            return "Choose a language." if least == 1 else self._too_few()
        return wrong(self.about.resolve, resolvable(spec))

    def _too_few(self) -> str:
        takes, chosen = (
            f"{self.about.title} takes {self.about.least_languages} languages",
            len(self.choice.languages),
        )
        if len(languages_of(self.choice.task)) == 1:
            return f"{takes}, and task {self.choice.task} has one; choose another question above."
        return f"{takes}; {chosen or 'none'} is chosen."

    def obstacle(self, spec: Mapping[str, Any]) -> str:
        """Why Start is disabled; empty if it is not. Beyond `trouble`, this asks what the model refuses."""
        return self.trouble(spec) or (refusal(self.choice) if self.uses_method else "")


def resolvable(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a spec as `Experiment.resolve` takes them."""
    beside = {name: spec[name] for name in (METHOD, METHOD_OPTIONS) if spec.get(name) is not None}
    fits = study(spec["experiment"]).options
    return {**spec["options"], **{name: value for name, value in beside.items() if name in fits}}


# Stored reports of experiments: those that match a choice, newest first, as labels and as a table of facts.

WEIGHTS = "fingerprint"
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
def _asking() -> Latest[dict[str, str | None]]:
    worker = supervisor().client()

    def ask() -> Generator[dict[str, str | None]]:
        yield {card["name"]: card["fingerprint"] for card in worker.models()}

    return Latest(ask)


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
    shelf: Shelf[Any],
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
        model = job_spec(result.record.spec)
        same = weights is None or model[WEIGHTS] == weights
        return same, "dtype" not in model, made_at(result), -len(own_settings(result)), result.key

    fit = (r for r in results if _about(r) == wanted and choice.fits(r.record.spec))
    return sorted(fit, key=rank, reverse=True)


def _about(result: Result[Report]) -> tuple[Any, ...]:
    spec = result.record.spec
    return (part(spec, "model", "name"), part(spec, "task", "name"), spec.get("experiment"))


def made_at(result: Result[Report]) -> float:
    """When a report was made, in Unix seconds; 0 if the date is missing or out of range."""
    try:
        when = datetime.fromisoformat(str(result.meta.get("created"))).astimezone(UTC)
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, when.timestamp())


def job_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Details of the job that makes a report with this spec, from `job_of`, and the model's fingerprint."""
    details = job_of("report", spec)[1]
    about = {"experiment": spec.get("experiment"), "model": details["model"]}
    return {**about, WEIGHTS: str(part(spec, "model", WEIGHTS) or ""), **details}


def _mapping(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    return found if isinstance(found, Mapping) else {}


def offer_others(plan: Plan, results: Sequence[Result[Report]]) -> None:
    """Links to this experiment's reports on other models and tasks, where the chosen one has none."""
    there = [
        other.choice
        for other in others(plan.choice)
        if matching(results, other.choice, plan.experiment)
    ]
    if there:
        st.markdown("The cache has some of other models and tasks:")
    for other in there:
        named = f"{other.model} on {other.task}"
        button(named, key=f"report-of-{named}", on_press=go, args=("experiments", other))


def label(result: Result[Report], weights: str | None = None) -> str:
    """A report in one line: date, languages, method, number of examples, seed and weights.

    weights: fingerprint of the chosen model's weights; if it is None, the report's own are named.
    """
    spec = job_spec(result.record.spec)
    words = [made_words(result), spelled(spec["languages"])]
    words += [str(spec[METHOD])] if METHOD in spec else []
    words += [
        f"{name.replace('_', ' ')} {as_text(value)}" for name, value in own_settings(result).items()
    ]
    words += [sizes_words(spec)]
    words += [f"seed {spec['seed']}"] if spec["seed"] else []
    words += [f"weights {_short(spec[WEIGHTS])}"] if weights is None and spec[WEIGHTS] else []
    return " · ".join([*words, *origin(spec.get(WEIGHTS), weights, spec.get("dtype"))])


def sizes_words(spec: Mapping[str, Any]) -> str:
    """How many examples a report is on. spec: as from `job_spec`."""
    return f"up to {spec['dev_size'] or '?'} examples of dev and {spec['test_size'] or '?'} of test"


def own_settings(result: Result[Report]) -> dict[str, Any]:
    """The experiment's options of a report that are not at their defaults, but for the method's."""
    known = EXPERIMENTS.get(result.record.name)
    given = job_spec(result.record.spec).get("options")
    if known is None or not isinstance(given, Mapping):
        return {}
    beside = (METHOD, METHOD_OPTIONS, *known.options_of)
    return {name: value for name, value in given.items()
            if name not in beside and name in known.options and value != known.options[name].default}  # fmt: skip


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


def differences(spec: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Settings in which a report differs from what is chosen, in words, with the report's values.

    spec, wanted: job details; wanted has the fingerprint of the chosen model, if it is known.  A wanted size of
    "all" is not compared, because the number of examples is not known here.
    """
    spec, wanted = _settled(spec), _settled(wanted)
    names = [
        name
        for name in ("languages", METHOD, "dev_size", "test_size", "seed", "ablation")
        if name in wanted
    ]
    found = {name: spec.get(name) for name in names if wanted[name] not in (None, spec.get(name))}
    if sorted(found.get("languages") or []) == sorted(wanted["languages"]):
        found.pop("languages", None)
    inner = [METHOD_OPTIONS] if spec.get(METHOD) == wanted.get(METHOD) else []
    for place in ("options", *inner):
        own, asked = _mapping(spec, place), _mapping(wanted, place)
        found |= {
            name: value for name, value in own.items() if name in asked and value != asked[name]
        }
    words = [f"{name.replace('_', ' ')} {as_text(value)}" for name, value in found.items()]
    return origin(spec.get(WEIGHTS), wanted.get(WEIGHTS), spec.get("dtype")) + words


def _settled(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Job details with all options filled in; unchanged if they fit neither an experiment nor the front."""
    try:
        full = study(spec["experiment"]).resolve(resolvable(spec))
    except (HeadlabError, KeyError):
        return dict(spec)
    beside = {name: full.pop(name) for name in (METHOD, METHOD_OPTIONS) if name in full}
    return {**spec, **beside, "options": full}


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


def draw(plan: Plan) -> dict[str, Any]:
    """Draw the form and return the job's current details."""
    with st.container(border=True, key="plan"):
        own = plan.own_options()
        for (name, option), place in zip(
            own.items(), st.columns(len(own)) if own else (), strict=True
        ):
            with place:
                FORM.draw(name, option, plan.experiment)
        with st.expander("More options"):
            _more(plan)
        spec = plan.spec(FORM.values())
        _begin(plan, spec)
        terminal(
            shell_lines("experiment", spec),
            about="It can be interrupted; run the same command again to resume:",
        )
    return spec


def _more(plan: Plan) -> None:
    places = [*st.columns(3), st.container()]
    for place, (name, option) in zip(places, SETTINGS.items(), strict=True):
        with place:
            FORM.draw(name, option)
    method = plan.choice.method
    if plan.method_options():
        st.markdown(f"###### {METHODS[method].title}")
    before = as_cached(plan.choice) if plan.uses_method else {}
    for name, option in plan.method_options().items():
        FORM.draw(name, option, "method", method, usual=before.get(name, option.default))


def _begin(plan: Plan, spec: dict[str, Any]) -> None:
    """The forecast, the button, the outcome of the last click, and jobs in progress."""
    text = caution(plan.choice.method) if plan.uses_method else ""
    before = f"{f'Caution: {text}. ' if text else ''}What it will take:"
    end_form(
        "experiment",
        spec,
        plan.obstacle(spec),
        _start,
        plan,
        key="plan-start",
        form=FORM.prefix,
        before=before,
    )
    asked("Its report appears below when it is done.")
    progress()


def _start(plan: Plan, typed: Mapping[str, str] | None) -> None:
    remember(plan.experiment)  # show its report, which will be the newest
    start_planned("experiment", FORM, plan.spec, typed)
