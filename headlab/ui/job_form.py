"""The form for a new job, and tables of what is cached already, what it cost and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from headlab.methods.costs import caution, cost_of, spec_of, target_of
from headlab.methods.table import METHODS, Method
from headlab.scores import HeadScores
from headlab.studies.table import HOW, JOBS, Settings
from headlab.tasks import names as task_names
from headlab.training.options import FinetuneOptions
from headlab.ui import form_values
from headlab.ui.form_values import Values, held, pressed, wrong
from headlab.ui.job_actions import asked_for, end_form, refusal, show, start
from headlab.ui.job_format import KINDS
from headlab.ui.names import language_title, page_link, plain
from headlab.ui.presses import button, download
from headlab.ui.results import Found
from headlab.ui.shell import Choice, known_models, languages_of, listing, specs_here, supervisor
from headlab.ui.shell import found as found_of
from headlab.value_functions import shown_unit

# The job being set up: its widget keys, and the spec from their values. No streamlit here.

PREFIX = "new-"  # of its widgets' keys
Choices = Mapping[str, Any]


@dataclass(frozen=True)
class Draft:
    """A new job's widgets, initialised from the sidebar's choice.

    A key contains what its widget depends on, so that the widget is reset when that changes.
    """

    model: str
    task: str
    languages: tuple[str, ...]
    method: str
    label_map: Mapping[str, str] | None = None  # of this model on this task

    def key(self, name: str, *of: str) -> str:
        """Key of a widget. of: what else its value depends on."""
        start = {"model": self.model, "task": self.task, "method": self.method}.get(name, "")
        if name == "languages":
            start = ",".join(self.languages)
        return PREFIX + "-".join((name, start, *of))

    def kind(self, state: Choices) -> str:
        """Kind of job."""
        return str(state.get(self.key("kind")) or "score")

    def place(self, state: Choices) -> str:
        """Where the job runs: `here` or `ray`."""
        return str(state.get(self.key("place")) or "here")

    def spec(self, state: Choices) -> dict[str, Any]:
        """The job's spec. state: values of the widgets drawn so far; the rest are at their defaults."""
        kind = self.kind(state)
        task = str(state.get(self.key("task")) or self.task)
        settings = {
            name: state.get(self.key(name), option.default) for name, option in drawn(kind).items()
        }
        if kind == "finetune":
            return {"task": task, **settings}
        method = str(state.get(self.key("method")) or self.method)
        about = {
            "model": str(state.get(self.key("model")) or self.model),
            "task": task,
            "languages": list(state.get(self.key("languages", task), self.languages)),
            "method": method,
            "options": self.options(method, state),
            **settings,
        }
        if self.label_map is not None and (about["model"], task) == (self.model, self.task):
            about["label_map"] = dict(self.label_map)
        return about

    def options(self, method: str, state: Choices) -> dict[str, Any]:
        """The options of a method."""
        options = METHODS[method].options
        return {
            name: state.get(self.key("option", method, name), o.default)
            for name, o in options.items()
        }


def main_options(method: str) -> list[str]:
    """The options that most people set: what is estimated, and from how many samples."""
    return [
        name
        for name in ("estimand", "form", "samples", "target")
        if name in METHODS[method].options
    ]


def other_options(method: str) -> list[str]:
    """The method's remaining options."""
    return [name for name in METHODS[method].options if name not in main_options(method)]


def drawn(kind: str) -> Settings:
    """The settings of a kind of job that have a widget here; a curve is of all examples, its order of 512."""
    return {
        name: option
        for name, option in JOBS[kind].items()
        if kind != "curve" or not name.endswith("size")
    }


def fitting(languages: Iterable[str], of: Iterable[str]) -> list[str]:
    """The languages that a task has, in the task's order. of: the task's languages."""
    wanted = set(languages)
    return [language for language in of if language in wanted]


ABOUT = {
    "score": "The score of each head in each language.",
    "curve": "Accuracy as heads are removed one by one, the lowest scores first.",
    "finetune": "A LoRA adapter for the task on the embedded base, trained on English, measured in every language.",
}
PLACES = {"here": "this worker"}


def draw(choice: Choice) -> None:
    """The form, starting from the sidebar's choice."""
    draft = Draft(choice.model, choice.task, choice.languages, choice.method, choice.label_map)
    with st.container(border=True, key="new-job"):
        st.subheader("New job")
        kind = st.radio(
            "What",
            list(ABOUT),
            format_func=KINDS.__getitem__,
            horizontal=True,
            key=draft.key("kind"),
        )
        st.caption(ABOUT[kind])
        if kind == "finetune":
            _training(draft)
        else:
            _scores(draft, kind)
            _place(draft)
        _begin(draft)
    page_link("experiments", "Analyses that combine several of these: Experiments")
    page_link("roles", "What the heads do: Roles")
    page_link("gates", "Gates that learn which heads to keep: Gates")


def _scores(draft: Draft, kind: str) -> None:
    """The widgets of a job that needs scores; a curve removes heads in their order.

    Widgets that differ between methods are in containers: the browser identifies the expander by its position, and
    if the number of widgets before it changed, would close it and drop what is being typed there.
    """
    with st.container():
        _model(draft)
        _languages(draft, _task(draft))
        method = _method(draft)
    with st.expander("More options"):
        with st.container():
            for name in other_options(method):
                _option(draft, method, name)
            _settings(draft, kind, *(name for name in drawn(kind) if name not in HOW))
        _settings(draft, kind, "ablation", "seed")


def _begin(draft: Draft) -> None:
    """The forecast, the button, and the outcome of the last click on it."""
    values = held(PREFIX)
    kind, spec = draft.kind(values), draft.spec(values)
    shared = draft.place(values) == "ray"
    label = (
        "What it would take this worker alone; Ray workers share it:"
        if shared
        else "What it will take:"
    )
    from headlab.jobs.table import JOBS as CLASSES
    end_form(
        CLASSES[kind].model_construct(**spec),
        _trouble(spec),
        _start,
        draft,
        values,
        key="new-start",
        form=PREFIX,
        before=label,
    )
    _told()


def _start(draft: Draft, drawn: Values, typed: Mapping[str, str] | None) -> None:
    values = pressed(PREFIX, drawn, typed)
    from headlab.jobs.table import JOBS as CLASSES
    start(CLASSES[draft.kind(values)].model_construct(**draft.spec(values)), draft.place(values))


def _told() -> None:
    """The outcome of the last click on Start."""
    if (made := asked_for().started) is None:
        return
    if made.before:
        doing = "running" if made.state == "running" else "waiting"
        st.info(f"This is already job {made.job}, {doing} now: identical requests share one job.")
    else:
        st.success(f"Job {made.job} is in the queue.")
    button(f"Open job {made.job}", key="new-open", on_press=show, args=(made.job,))


def _model(draft: Draft) -> None:
    models = list(dict.fromkeys([draft.model, *known_models(specs_here())]))
    st.selectbox(
        "Model",
        models,
        key=draft.key("model"),
        accept_new_options=True,
        help="Or type a hub id or a folder.",
    )


def _task(draft: Draft) -> str:
    return st.selectbox(
        "Task", list(dict.fromkeys([draft.task, *task_names()])), key=draft.key("task")
    )


def _languages(draft: Draft, task: str) -> None:
    every = languages_of(task)
    start, key = fitting(draft.languages, every), draft.key("languages", task)
    st.multiselect("Languages", every, default=start, format_func=language_title, key=key)


def _method(draft: Draft) -> str:
    keys = list(METHODS)
    start = keys.index(draft.method)
    method = st.selectbox("Method", keys, index=start, format_func=_title, key=draft.key("method"))
    words = f"Cost: {METHODS[method].costs.words}."
    st.caption(f"{words} Caution: {text}." if (text := caution(method)) else words)
    options = METHODS[method].options
    names = main_options(method)
    for name in (n for n in names if options[n].choices):
        _option(draft, method, name)
    numbers = [n for n in names if not options[n].choices]
    for name, place in zip(numbers, st.columns(len(numbers)) if numbers else (), strict=True):
        with place:
            _option(draft, method, name)
    return method


def _title(method: str) -> str:
    return METHODS[method].title


def _option(draft: Draft, method: str, name: str) -> None:
    form_values.draw(name, METHODS[method].options[name], draft.key("option", method, name))


def _settings(draft: Draft, kind: str, *names: str) -> None:
    for name in names:
        form_values.draw(name, JOBS[kind][name], draft.key(name))


def _training(draft: Draft) -> None:
    _task(draft)
    _settings(draft, "finetune", "steps")
    with st.expander("More options"):
        _settings(draft, "finetune", "learning_rate", "seed")


def _place(draft: Draft) -> None:
    ray = supervisor().state().ray
    if ray:
        places = PLACES | {"ray": f"Ray ({ray})"}
        st.radio(
            "Where it runs",
            list(places),
            format_func=places.__getitem__,
            horizontal=True,
            key=draft.key("place"),
        )


def _trouble(spec: dict[str, Any]) -> str:
    """Why this job cannot be started; empty if it can."""
    if "method" not in spec:
        return wrong(FinetuneOptions.of, {name: spec[name] for name in JOBS["finetune"]})
    if not spec["languages"]:
        return "Choose at least one language."
    choice = Choice(spec["model"], spec["task"], tuple(spec["languages"]), spec["method"])
    return wrong(METHODS[choice.method].resolve, spec["options"]) or refusal(choice)


# What is cached, what it cost and what is missing, as tables.


def draw_cached(choice: Choice) -> None:
    """What the cache has of the sidebar's choice, what it cost, and what was skipped there."""
    results = found_of(choice)
    st.subheader("What is cached, what is missing")
    table = by_language(results, choice.languages)
    height = 38 + 35 * min(len(table), 20)
    st.dataframe(
        table, hide_index=True, column_config=columns(results), height=height, placeholder="–"
    )
    if results.scores:
        name = f"costs-{choice.model}-{choice.task}-{choice.method}.csv".replace("/", "_")
        download("Download this table as CSV", table.to_csv(index=False), name, "text/csv")
    if results.variant:
        st.caption(
            plain(f"All of one kind: {results.variant}.")
            + " Also cached (see Settings in the sidebar): " * bool(results.others)
            + plain("; ".join(results.others))
        )
    every = {key: found_of(choice, key) for key in METHODS}
    st.dataframe(by_method(METHODS, every, choice.languages), hide_index=True)
    problems = listing(HeadScores).problems
    if problems:
        with st.expander(f"{len(problems)} cache folders were skipped", icon=":material/warning:"):
            st.markdown("\n".join(f"- {plain(problem)}" for problem in problems))


def by_method(
    methods: Mapping[str, Method], found: Mapping[str, Found], languages: Sequence[str]
) -> pd.DataFrame:
    """One row per method: for how many of the chosen languages it is cached, and which it lacks."""
    rows = [
        {
            "Method": method.title,
            "Key": key,
            "Cached": f"{len(found[key].scores)} of {len(languages)}",
            "Missing": _listed(found[key].missing, len(languages)),
            "Intervals": "yes" if method.intervals else "no",
            "Cost": method.costs.words,
            "From": method.paper,
        }
        for key, method in methods.items()
    ]
    return pd.DataFrame(rows)


def _listed(missing: Sequence[str], all_of: int) -> str:
    if not missing:
        return "none"
    return "all" if len(missing) == all_of else ", ".join(missing)


def by_language(found: Found, languages: Sequence[str]) -> pd.DataFrame:
    """One row per chosen language: what its result is based on and what it cost, or that it is missing.

    Half-widths are in the unit shown (accuracies in points); columns that a method does not provide are left out.
    """
    rows = [_row(language, found.scores.get(language)) for language in languages]
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def _row(language: str, s: HeadScores | None) -> dict[str, object]:
    if s is None:
        return {"Language": language_title(language), "Result": "missing"}
    cost, factor = cost_of(s), shown_unit(s.unit)[0]
    least, median, most = cost.samples or (None, None, None)
    return {
        "Language": language_title(language),
        "Result": "cached",
        "Helpful": cost.helpful,
        "Harmful": cost.harmful,
        "Narrow": cost.narrow,
        "Undecided": cost.wide,
        "Half-width, median": None if cost.median_width is None else factor * cost.median_width,
        "Half-width, largest": None if cost.largest_width is None else factor * cost.largest_width,
        "Samples, least": least,
        "Samples, median": median,
        "Samples, most": most,
        "Example forwards": cost.forwards,
        "Seconds": round(cost.seconds, 1),
        "Examples": spec_of(s, "task", "size"),
    }


def columns(found: Found) -> dict[str, Any]:
    """Formats and help texts of the columns of `by_language`."""
    number = st.column_config.NumberColumn
    unit = shown_unit(found.first.unit)[1] if found.first else "points"
    target = (
        f"{shown_unit(found.first.unit)[0] * target_of(found.first):g} {unit}"
        if found.first
        else "the target"
    )
    samples = {"least": ("Samples min", 92), "median": ("median", 68), "most": ("max", 64)}
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
        **{
            f"Samples, {which}": number(
                label, width=wide, format="localized", help=f"Samples a head, {which}"
            )
            for which, (label, wide) in samples.items()
        },
        "Example forwards": number(
            "Forwards", width=88, format="localized", help="Of one example, parts of one too"
        ),
        "Seconds": number(width=76, format="localized"),
        "Examples": number(width=76),
    }
