"""The Gates page: the form for a run, a mask from any step of the training, and the roles of the heads kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import streamlit as st

from headlab.core import (
    Floats,
    HeadlabError,
    Report,
    Table,
    current_fingerprint,
    fingerprint_of,
    is_same_model,
)
from headlab.dashboard.frame import Choice, open_page, task_languages
from headlab.dashboard.names import language_title, page_link, plain
from headlab.dashboard.pages.gates.figures import mask_of, measured
from headlab.dashboard.pages.roles.form import stacks
from headlab.dashboard.panels import stored_roles
from headlab.dashboard.panels.history import history_of
from headlab.dashboard.panels.job_actions import asked, end_form, progress, start_planned, terminal
from headlab.dashboard.panels.masks import export
from headlab.dashboard.panels.stored_gates import (
    FORM,
    MAIN,
    WEIGHTS,
    GatesForm,
    Sweep,
    fingerprint,
    training_options,
    trouble,
)
from headlab.dashboard.panels.stored_reports import Shelf, form_of
from headlab.dashboard.panels.suggestion import removal_warning
from headlab.dashboard.widgets import button, draw_map, figure, show_table
from headlab.jobs.gates import GatesJob
from headlab.masks import Mask
from headlab.pictures import head_map
from headlab.plots.heads import stacked
from headlab.results import HeadScores, LearnedGates, Result, trained_folder
from headlab.studies.remaining import COLUMNS, FORMATS, heads_by_role, same_model, staying
from headlab.tasks.languages import language_titles

# Learning gates: languages, weights, forecast, Start and progress.

WEIGHT_HELP = "The penalty in nats for an open gate; the higher, the fewer stay. Each weight is a run of its own."


def draw_form(choice: Choice, shelf: Shelf[Sweep]) -> None:
    """The form for the languages without a run; if all have one, folded, for other languages, weights or options."""
    form_of(
        shelf,
        choice.languages,
        partial(_form, choice),
        "Other weights, languages or options",
        "gates-plan",
    )
    asked("Its gates appear on this page when it is done.")
    progress()


def _form(choice: Choice, languages: tuple[str, ...]) -> None:
    form = GatesForm(choice, _languages(languages, choice))
    st.text_input(
        "λ, one or several",
        FORM.kept("weights", WEIGHTS),
        key=FORM.key("weights"),
        help=WEIGHT_HELP,
    )
    options = dict(training_options())
    for name, column in zip(MAIN, st.columns(len(MAIN)), strict=True):
        with column:
            FORM.draw(name, options.pop(name))
    with st.expander("More options"):
        FORM.grid({**options, **GatesJob.settings()})
    if form.languages:
        _begin(form)
    else:
        st.info("No language is chosen. Pick some here, or in the sidebar.")


def _languages(start: Sequence[str], choice: Choice) -> tuple[str, ...]:
    """Languages to learn gates for, each separately."""
    every, place = task_languages(choice.task), FORM.key(f"languages-{','.join(start)}")
    first = [name for name in start if name in every][
        :1
    ]  # each takes one training per weight, so start with one
    return tuple(
        st.multiselect("Languages", every, default=first, format_func=language_title, key=place)
    )


def _begin(form: GatesForm) -> None:
    """What the job would do, its forecast and its button."""
    values = FORM.values()
    try:
        job = form.job(values)
        problem = trouble(job)
    except HeadlabError as error:
        job = form.job_at([], values)
        problem = f"{error}."
    if not problem:
        st.markdown(_job_words(job))
    press = partial(start_planned, FORM, form.job)
    end_form(job, problem, press, key="gates-start", form=FORM.prefix)
    if not problem:
        terminal(job)


def _job_words(job: GatesJob) -> str:
    """The languages, and the runs in each of them, as Markdown."""
    languages = job.languages_named
    count = len(job.weights) * len(languages)
    runs = f"{count} runs" if count > 1 else "one run"
    weights = ", ".join(f"{weight:g}" for weight in job.weights)
    titles = plain(language_titles(languages))
    steps = job.options["steps"]
    return f"**{titles}**: {runs} of {steps} steps, one after another; λ = {weights}."


# A mask from any step of a run, the last or an earlier one, or another method's of the same size.

OWN = "These gates"
OTHER = "{} with as many heads"


def draw_mask(
    choice: Choice,
    result: Result[LearnedGates],
    scores: Mapping[str, HeadScores],
    weights: str | None,
) -> None:
    """The map at a step of the training, and the mask: as a file, and on the Prune page.

    scores: of other methods.  weights: fingerprint of the chosen model's weights, None if unknown.
    """
    gates = result.record
    left, right = st.columns([6, 5], gap="large")
    with right:
        names = [OWN, *(OTHER.format(method) for method in scores)]
        whose = st.selectbox("Mask of", names, key=f"gates-whose-{len(names)}")
        steps = [int(step) for step in gates.steps]
        key = f"gates-step-{result.key[:12]}"
        step = st.select_slider(
            "After step", steps, value=steps[-1], key=key, disabled=whose != OWN
        )
        time = steps.index(step) if whose == OWN else -1
        method = list(scores)[names.index(whose) - 1] if whose != OWN else None
        mask = gates.mask(time) if method is None else mask_of(gates, scores[method])
        _take(choice, result, mask, weights)
    with left:
        if method is None:
            _likely(gates, mask, time)
        else:
            kept = mask.kept.astype(np.float64)
            _map(
                gates,
                kept,
                f"{method}: {int(kept.sum())} heads kept",
                ["kept" if on else "off" for on in mask.kept],
            )


def _likely(gates: LearnedGates, mask: Mask, time: int) -> None:
    likely = np.where(gates.gated, gates.open_probability[time], np.nan)
    tips = [_tip(p, bool(kept)) for p, kept in zip(likely, mask.kept, strict=True)]
    _map(gates, likely, f"step {int(gates.steps[time])}: {int(mask.kept.sum())} heads kept", tips)
    even = 100 * (1 - float(gates.concrete.zero(np.array(gates.concrete.even))))
    st.caption(
        "Darker: more likely open. The mask keeps a head whose gate is more likely 1 than 0, which takes a probability "
        f"of being open of at least {even:.0f} %. Hatched: no gate, so it stays."
    )


def _map(gates: LearnedGates, values: Floats, told: str, tips: list[str]) -> None:
    title = f"{language_title(gates.language)}, {told}"
    draw_map(
        head_map(values, gates.grid, limit=1.0, signed=False, tips=tips),
        key="gates-mask-map",
        title=title,
    )


def _tip(likely: float, kept: bool) -> str:
    told = "no gate" if np.isnan(likely) else f"open with {100 * likely:.0f} %"
    return f"{told}, {'kept' if kept else 'off'}"


def _take(choice: Choice, result: Result[LearnedGates], mask: Mask, weights: str | None) -> None:
    """Export the mask as a file, or open it on the Prune page."""
    off, size = len(mask.removed), mask.grid.size
    st.markdown(f"**{off} of {size} heads** would be off.")
    if not measured(result.record, mask) and (sentence := removal_warning(mask.kept)):
        st.warning(sentence)
    target, trouble = _model_of(choice, result, mask, weights)
    if trouble:
        st.caption(trouble)
    with st.container(horizontal=True, gap="small"):
        button(
            "Try it on the Prune page", key="gates-prune", kind="primary", icon="content_cut",
            disabled=target is None, on_press=_prune, args=(choice, str(target), mask),
        )  # fmt: skip
        name = f"mask-gates-{result.record.language}-{off}-off.json"
        export("Export the mask (JSON)", mask, name, key="gates-export")


def _model_of(
    choice: Choice, result: Result[LearnedGates], mask: Mask, weights: str | None
) -> tuple[str | None, str]:
    """The model to try the mask on, None if there is none here, and a note about it."""
    made_for = str(mask.model.get("fingerprint") or "")
    if is_same_model(made_for, fingerprint_of(result.record.spec)):
        if weights is None or weights == made_for:
            return choice.model, ""
        return (
            None,
            f"{plain(choice.model)} has other weights now than those that the gates were learned on.",
        )
    folder = trained_folder(result)
    if folder is None:
        return (
            None,
            "The mask is of the model that was trained jointly, and that model is not in this cache.",
        )
    return str(
        folder
    ), "The mask is of the model that was trained jointly; it is in the cache folder."


def _prune(choice: Choice, model: str, mask: Mask) -> None:
    """Make this the current mask of its model, then open the Prune page."""
    history_of(str(current_fingerprint(mask.model["fingerprint"])), mask.grid).put(
        mask.kept, mask.chosen
    )
    open_page("prune", replace(choice, model=model))


# Roles of the heads kept, run by run (Voita et al. 2019, figure 8).

NOTE = (
    "All numbers are of heads with a gate: heads with the role among those that are kept, and among all. A head may "
    "have several roles. by chance: what as many heads drawn at random from those with a gate would hold, with the "
    "range that holds at least 95 % of draws, separately for each row."
)


def draw_roles(choice: Choice, sweep: Sweep) -> None:
    """The roles left at each λ, from a report on the same language; if there is none, a link to make one."""
    language = sweep.first.language
    reports = stored_roles.shelf(choice).by_language.get(language, [])
    if not reports:
        where = f"the heads of {choice.model} do in {language_title(language)}"
        st.info(f"There is no report yet on what {plain(where)}.")
        page_link("roles", "Find their roles")
        return
    try:
        # The best report on the sweep's weights; if there is none, the best of all, which is rejected.
        same = (
            kept
            for kept in reports
            if fingerprint_of(kept.result.record.spec) == fingerprint(sweep)
        )
        table = roles_left(sweep, next(same, reports[0]).result.record)
    except HeadlabError as error:
        st.info(plain(f"These gates cannot be compared with this report of roles: {error}."))
        return
    left, counts = stacks(of_each_size(table))
    fig = stacked(left, counts, "heads with the role")
    figure(
        fig,
        f"gates-{language}-roles",
        key="gates-roles",
        alt="Heads kept with each role, by how many are kept",
        about=language,
    )
    along = (
        " The roles were found before the training, which changed the model too."
        if sweep.along
        else ""
    )
    st.caption(
        "The first bar is all heads with a gate. Of runs that keep equally many heads the lowest λ is drawn. A head "
        f"with several roles counts in each.{along}"
    )
    show_table(table, f"gates-roles-{language}")


def roles_left(sweep: Sweep, report: Report) -> Table:
    """A row per run and role: how many of the heads that have it are kept, and how many would be by chance.

    Raises HeadlabError for a report on another model.
    """
    same_model(report, sweep.first.spec, "gates")
    having, gated = heads_by_role(report, sweep.first.grid), sweep.first.gated
    every = [(None, gated), *((run.record.weight, run.record.kept & gated) for run in sweep.runs)]
    rows = tuple(
        (weight, int(kept.sum()), *stay.cells)
        for weight, kept in every
        for stay in staying(having, kept, gated)
    )
    title = "Roles of the heads that each λ keeps"
    return Table("gates-roles", title, ("λ", *COLUMNS), ("g", *FORMATS), rows, (NOTE,))


def of_each_size(table: Table) -> Table:
    """The rows of the first run of each size, the largest size first."""
    weight, left = table.columns.index("λ"), table.columns.index("heads left")
    first: dict[object, object] = {}
    for row in table.rows:
        first.setdefault(row[left], row[weight])
    rows = [row for row in table.rows if first[row[left]] == row[weight]]
    rows.sort(key=lambda row: -int(row[left] or 0))
    return Table(table.name, table.title, table.columns, table.formats, tuple(rows))
