"""The Pareto front on the Prune page: requesting one, stored fronts, and their points as the current mask."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import streamlit as st

from headlab.charts.front import FrontDot, front_chart
from headlab.errors import HeadlabError
from headlab.fingerprints import is_same_model
from headlab.jobs.experiment import ExperimentJob, FrontJob
from headlab.jobs.fields import NestedOptions
from headlab.options import integer_in
from headlab.plots.drawing import plotly_figure
from headlab.records import Bools, HeadGrid
from headlab.report.commands import QUESTION
from headlab.scores import kept_without
from headlab.store import Result
from headlab.studies.pareto import (
    CHOICE,
    CONFIRMED,
    FRONT,
    FrontResult,
    Point,
    TestedLanguage,
    chosen_mask,
    cost_of,
    mask_at,
    pareto,
)
from headlab.studies.table import BOUND, ESTIMATE, ORDERS, STUDIES, WITHIN, earlier_scores
from headlab.tables import Report, is_number
from headlab.tasks.base import DEV_SIZE
from headlab.ui import experiments, form_values
from headlab.ui.experiments_report import made_again
from headlab.ui.figures import CONFIG, draw_commands, show, with_p
from headlab.ui.form_values import Values, held, pressed
from headlab.ui.history import History
from headlab.ui.job_actions import asked, end_form, refusal, terminal, told_pace
from headlab.ui.names import (
    FRONT_PARAM,
    PRUNE_TAB,
    PRUNE_TABS,
    SHORT_KEY,
    counted,
    languages_words,
    plain,
)
from headlab.ui.notices import notify, pick_one
from headlab.ui.presses import Button, button, give, row, uninterrupted
from headlab.ui.prune_page import AGAIN, ASKED, begin
from headlab.ui.shell import Choice, as_cached, listing

ABOUT = STUDIES["front"]

# Stored fronts: which one to show, and its points as dots. No streamlit here.

WEAKEST, MEAN, HEADS, PARAMETERS = (
    "weakest language",
    "mean of the languages",
    "heads kept",
    "parameters kept",
)
MILLION = 1e6


@dataclass(frozen=True)
class Front:
    """A front with its points.

    Attributes:
        result: The stored report.
        front: What it found.
        points: Its models.
        grid: Of the front's model.
    """

    result: Result[Report]
    front: FrontResult
    points: tuple[Point, ...]
    grid: HeadGrid

    @property
    def report(self) -> Report:
        """The front's report."""
        return self.result.record

    @property
    def answer(self) -> Point:
        """The point that answers the question."""
        answer = self.front.answer
        return self.point(answer.order, answer.removed)

    @property
    def loss(self) -> float | None:
        """Points that may be lost; None if the question was another."""
        return self.front.loss

    @property
    def counted(self) -> bool:
        """Whether parameters are known for every point."""
        return all(point.parameters is not None for point in self.points)

    def point(self, order: str, removed: int) -> Point:
        """The point with this order and number of heads removed. Raises KeyError if there is none."""
        for point in self.points:
            if (point.order, point.removed) == (order, removed):
                return point
        raise KeyError((order, removed))

    def kept(self, point: Point) -> Bools:
        """Heads that a point keeps, bool [head]."""
        order = self.front.removal_order(point.order, self.grid)
        return kept_without(order[: point.removed], self.grid.size)


def read_front(result: Result[Report], grid: HeadGrid) -> Front:
    """A front of this model. Raises HeadlabError if the report is not a front, or is of another model."""
    front = FrontResult.from_report(result.record)
    points = tuple(front.points())
    for order in dict.fromkeys(point.order for point in points):
        front.removal_order(order, grid)
    return Front(result, front, points, grid)


def matching(
    results: Sequence[Result[Report]], fingerprint: str, task: str, languages: Sequence[str]
) -> list[Result[Report]]:
    """Fronts of this model and task, the newest first; those of exactly these languages before the rest."""
    fronts = [r for r in results if r.record.name == ABOUT.key and _of(r, fingerprint, task)]
    return sorted(
        fronts, key=lambda r: (_is_on(r, languages), str(r.meta.get("created", ""))), reverse=True
    )


def _is_on(result: Result[Report], languages: Sequence[str]) -> bool:
    """Whether a front is on exactly these languages."""
    return set(_languages(result)) == set(languages)


def _of(result: Result[Report], fingerprint: str, task: str) -> bool:
    spec = result.record.spec
    return bool(
        is_same_model(spec["model"].get("fingerprint"), fingerprint)
        and spec["task"].get("name") == task
    )


def _languages(result: Result[Report]) -> list[str]:
    return str(result.record.spec["task"].get("language", "")).split(",")


def label(result: Result[Report]) -> str:
    """A front in one line: question, languages, method that ordered the heads, and date."""
    options, languages = result.record.spec["options"], _languages(result)
    named = ", ".join(languages) if len(languages) < 5 else f"{len(languages)} languages"
    created = str(result.meta.get("created", ""))[:16].replace("T", " ")
    return f"{question_words(options)} · {named} · {options.get('method', 'method not recorded')} · {created}"


def question_words(options: Mapping[str, object]) -> str:
    """What a front was asked, in words; another program may have written options that say it in no way."""
    heads, points = options.get("heads"), options.get("within")
    if is_number(points):
        by = "lower bound" if options.get("by") == BOUND else "estimate"
        return f"within {counted(points, 'point')} by the {by}"
    return f"best with {counted(heads, 'head')}" if is_number(heads) else "question not recorded"


def apart(result: Result[Report], form_job: FrontJob) -> list[str]:
    """The settings of a front that are not those of the form, in words."""
    stored = experiments.StoredJob.of(result.record)
    question = question_words(stored.job.options)
    without_question = replace(stored, job=_without_question(stored.job))
    settings = experiments.differences(without_question, _without_question(form_job))
    if question == question_words(form_job.options):
        return settings
    return [question, *settings]


def _without_question(job: ExperimentJob) -> ExperimentJob:
    """A front's job without its question, which is told in words."""
    options = {name: value for name, value in job.options.items() if name not in QUESTION}
    return job.model_copy(update={"options": options})


def dots_of(front: Front, cost: str, value: str) -> list[FrontDot]:
    """The points as they are drawn. cost: HEADS or PARAMETERS.  value: WEAKEST or MEAN."""
    points = front.points
    costs = (
        cost_of(points) / MILLION
        if cost == PARAMETERS
        else np.array([p.kept for p in points], float)
    )
    values = [100 * (p.worst if value == WEAKEST else p.mean) for p in points]
    lows = [100 * (p.worst_bound if value == WEAKEST else p.mean_low) for p in points]
    best = pareto(costs, np.array(values))
    rows = zip(points, costs.tolist(), values, lows, best.tolist(), strict=True)
    return [FrontDot(p.order, p.removed, c, v, low, b, hover(p)) for p, c, v, low, b in rows]


def offers(front: Front) -> list[Point]:
    """The answer and the Pareto-optimal points, fewest heads first."""
    cost = PARAMETERS if front.counted else HEADS
    best = {(dot.order, dot.removed) for dot in dots_of(front, cost, WEAKEST) if dot.best}
    best.add((front.answer.order, front.answer.removed))
    points = sorted(dict.fromkeys(front.points), key=lambda p: (p.kept, -p.worst))
    return [p for p in points if (p.order, p.removed) in best]


def hover(point: Point) -> str:
    """Hover text of a point."""
    lines = [f"<b>{point.kept} heads kept</b>, {point.removed} off (order {point.order})"]
    if point.parameters is not None:
        lines.append(f"{point.parameters / MILLION:.2f} million parameters after shrinking")
    lines.append(
        f"weakest: {point.weakest} {100 * point.worst:+.1f} points, bound {100 * point.worst_bound:+.1f}"
    )
    lines.append(
        f"mean {100 * point.mean:+.1f} [{100 * point.mean_low:+.1f}, {100 * point.mean_high:+.1f}]"
    )
    return "<br>".join(lines).replace("-", "−")


def confirmed(front: Front) -> pd.DataFrame:
    """The answer's accuracy on test: a row per language, and one for their mean."""
    rows = front.front.confirmed.rows
    columns = {
        "Language": [row.language for row in rows],
        "Accuracy %": [row.accuracy for row in rows],
        "Difference": [row.difference for row in rows],
        "95 % interval": [interval_words(row) for row in rows],
    }
    if front.loss is not None:
        columns["p of the loss"] = [row.p_loss for row in rows]
    return pd.DataFrame(columns)


def interval_words(row: TestedLanguage) -> str | None:
    """The interval of a difference on test; None where there is none."""
    if row.low is None or row.high is None:
        return None
    return f"{row.low:+.1f} … {row.high:+.1f}"


def words(point: Point, *, answer: bool = False) -> str:
    """A point as a list entry."""
    told = (
        f"{point.kept} heads · weakest {point.weakest} {100 * point.worst:+.1f} · mean {100 * point.mean:+.1f} "
        f"· order {point.order}"
    )
    return f"{told}{' · the answer' if answer else ''}".replace("-", "−")


# Requesting a front: the question, its options, forecast and Start.

SMALLEST, BEST = "Smallest model within d points in every language", "Best model with k heads"
BY = {BOUND: "by its lower bound (conservative)", ESTIMATE: "by the estimate"}
PREFIX = "front-"  # of its widgets' keys
SIZES = {
    "dev_size": "front-dev",
    "test_size": "front-test",
}  # keys of the widgets of these settings
KEPT_HEADS = 0.75  # default of the share of heads kept


@dataclass(frozen=True)
class FrontForm:
    """The form for a front of smaller models.

    Attributes:
        choice: The model, the task, the languages and the method that orders the heads.
        heads: Number of heads of the model.
    """

    choice: Choice
    heads: int

    def job(self, values: Values) -> FrontJob:
        """The form's job; the method has the options of the choice's cached scores.

        Args:
            values: Of the widgets drawn so far, by their keys; the rest are at their defaults.
        """
        settings = FrontJob.settings()
        sizes = {name: values.get(key, settings[name].default) for name, key in SIZES.items()}
        job = FrontJob.model_construct(
            languages=list(self.choice.languages),
            method=self.choice.method,
            options=self._options(values),
            **self.choice.about,
            **sizes,
        )
        method_options = as_cached(self.choice)
        return job.model_copy(update={"method_options": method_options}) if method_options else job

    def _options(self, values: Values) -> NestedOptions:
        """The question, and the orders and sizes to try."""
        options: NestedOptions = {
            "orders": ",".join(values.get("front-orders") or ["mean"]),
            "points": min(int(values.get("front-points", full_sizes())), self.heads + 1),
            "within": None,
            "heads": None,
            "by": BOUND,
        }
        if values.get("front-question", SMALLEST) == SMALLEST:
            options["within"] = float(values.get("front-within", WITHIN))
            options["by"] = values.get("front-by", BOUND)
        else:
            options["heads"] = int(values.get("front-heads", self.default_heads))
        return options

    @property
    def default_heads(self) -> int:
        """How many heads the second question keeps, to begin with."""
        return round(KEPT_HEADS * self.heads)


def ask(form: FrontForm) -> FrontJob:
    """Draw the form and return its job."""
    with st.container(border=True, key="front-ask"):
        question = st.radio("Question", [SMALLEST, BEST], horizontal=True, key="front-question")
        left, right = st.columns([1, 1])
        with left:
            if question == SMALLEST:
                st.number_input(
                    "d, points that may be lost", 0.0, 100.0, WITHIN, step=0.5, key="front-within"
                )
            else:
                st.number_input(
                    "k, heads to keep", 0, form.heads, form.default_heads, key="front-heads"
                )
        if question == SMALLEST:
            right.selectbox(
                "Accept a loss based on",
                [BOUND, ESTIMATE],
                format_func=lambda by: BY[by],
                key="front-by",
            )
        presets(form)
        with st.expander("More options"):
            _more()
        return _begin(form)


# What a front costs: candidate masks, each on the dev examples of each language, and two masks on test.

QUICK_SECONDS, USUAL_PACE = (
    120,
    0.004,
)  # what a quick front may take, and seconds a forward where none was told yet
QUICK = (
    (25, 1000),
    (17, 512),
    (13, 512),
    (9, 256),
    (7, 256),
    (5, 128),
    (4, 128),
    (3, 64),
)  # sizes, test examples
# Of the full front.
ORDERED = str(ABOUT.options["orders"].default).split(",")


def full_sizes() -> int:
    """How many sizes the full front measures."""
    return integer_in({"points": ABOUT.options["points"].default}, "points")


def presets(form: FrontForm) -> None:
    """The buttons that fill in the form: a front of about two minutes here, or the full one.

    Neither changes the number of dev examples: the scores that order the heads are of as many, and would be lacking.
    """
    job = form.job(held(PREFIX))
    row(
        Button("Quick", "front-quick", _quick, (job,), icon="bolt"),
        Button("Full", "front-full", _fill, (ORDERED, full_sizes(), None), icon="done_all"),
    )
    st.caption(
        "Quick tries one order of removal, and as many sizes as this machine measures in about two minutes, three at "
        f"least; the estimate of its time is below. Full tries {len(ORDERED)} orders at {full_sizes()} sizes. Scores that are "
        "not in the cache take longer than either."
    )


def _quick(job: FrontJob) -> None:
    """Fill in the form with the largest quick front. job: of the form as it was drawn."""
    pace = told_pace(job) or USUAL_PACE
    points, test_size = quick(len(job.languages_named), int(job.dev_size or DEV_SIZE), pace)
    _fill(ORDERED[:1], points, test_size)


def quick(languages: int, dev: int, pace: float) -> tuple[int, int]:
    """Sizes and test examples of the largest quick front. dev: examples a language.  pace: seconds a forward pass."""
    fit = (
        each for each in QUICK if pace * languages * (each[0] * dev + 2 * each[1]) <= QUICK_SECONDS
    )
    return next(fit, QUICK[-1])


def _fill(orders: Sequence[str], points: int, test: int | None) -> None:
    for name, value in (("orders", list(orders)), ("points", points), ("test", test)):
        give(f"{PREFIX}{name}", value)


def grows(job: FrontJob) -> str:
    """A sentence that says what a front's cost grows with. job: of the form."""
    points = job.options["points"]
    assert isinstance(points, int), "the form always has a number of sizes"
    factors = {
        "language": len(job.languages_named),
        "order": len(str(job.options["orders"]).split(",")),
        "size": points,
        "dev example": job.dev_size or DEV_SIZE,
    }
    product = " × ".join(counted(number, what) for what, number in factors.items())
    return (
        f"It grows with each of these: {product} = {math.prod(factors.values()):,} forwards at most, and then two models "
        "on the test examples. Masks that orders share, and what is in the cache, are not run again."
    )


def _more() -> None:
    st.multiselect("Removal orders", list(ORDERS), ORDERED, key="front-orders",
                   format_func=lambda name: f"{name}: {ORDERS[name]}")  # fmt: skip
    first, *places = st.columns(3)
    first.number_input(
        "Sizes to try",
        2,
        4096,
        full_sizes(),
        key="front-points",
        help="Evenly spaced counts of heads off.",
    )
    settings = FrontJob.settings()
    for place, (name, key) in zip(places, SIZES.items(), strict=True):
        with place:
            form_values.draw(name, settings[name], key)


def _begin(form: FrontForm) -> FrontJob:
    """The forecast, the button, and the outcome of the last click; returns the job."""
    values = held(PREFIX)
    job = form.job(values)
    trouble = refusal(form.choice)
    end_form(job, trouble, _start, form, values, key="front-start", form=PREFIX)
    st.caption(grows(job))
    if st.session_state.get(ASKED) == FrontJob.key:
        asked("Its front appears below when it is done.")
    terminal(job)
    return job


def _start(form: FrontForm, drawn: Values, typed: Mapping[str, str] | None) -> None:
    """Queue the form's job. drawn: its values as it was drawn.  typed: as in `pressed`."""
    st.session_state.pop(SHOWN, None)  # show the one that is being made, once it is there
    st.query_params.pop(FRONT_PARAM, None)
    begin(form.job(pressed(PREFIX, drawn, typed)))


# The front on the Prune page: the form, and the figure, whose points become the current mask.

FIGURE, PICKED = "front-figure", "front-point"
SHOWN, NEAREST = (
    "front-shown",
    "_front_nearest",
)  # the front below the form, and the one that fits the form best
REQUESTED = "_front_requested"  # start of the key of the front that another page opens
LINKED = "_front_linked"  # starts of the keys that the page itself has put in its link
INTRO = (
    "Heads are removed in several orders; every intermediate model is measured on dev in each language, paired with "
    "the unpruned one. Only the chosen model is then measured on test."
)
READING = (
    "A click on a dot makes it the current mask and opens the first tab. Filled dots lie on the line: no other model "
    "here is as small and loses less. Their bar reaches down to the lower bound. All of it is measured on the examples "
    "that chose the heads, so it is optimistic. Drag to zoom in; double-click to see everything."
)

BOUNDS = (
    "The interval is two-sided. Where the text above says how many points may be lost at most, at 95 %, it takes the "
    "one-sided bound, which lies closer to the difference than the interval's lower end."
)


def draw(choice: Choice, now: History, fingerprint: str) -> None:
    """The section, a fragment: the question, and of this model's and task's fronts the one that fits it best."""
    if st.session_state.pop(AGAIN, False):
        st.rerun()  # the mask has changed, or a job was started: rerun the whole page
    st.markdown(INTRO)
    form_job = ask(FrontForm(choice, now.grid.size))
    stored = listing(Report)
    fitting = [result for result in stored.results if choice.fits(result.record.spec)]
    fronts = matching(fitting, fingerprint, choice.task, choice.languages)
    if not fronts:
        st.caption("No front of this model and task is in the cache yet.")
        return
    by_key = {result.key: result for result in fronts}
    _follow(by_key, form_job, choice.languages, _requested(by_key))
    shown = pick_one("Front", by_key, lambda key: label(by_key[key]), SHOWN)
    _write_link(shown.key)
    if settings := apart(shown, form_job):
        st.info(
            "This front was made with other settings than those in the form above: "
            f"{plain('; '.join(settings))}."
        )
    front = _readable(shown, now)
    if front is not None:
        _show(front, now)


def remember(key: str) -> None:
    """Make the Prune page show this front next, whatever fits its form.

    Args:
        key: Full key of the front's report.
    """
    st.session_state[REQUESTED] = key[:SHORT_KEY]


def _requested(by_key: Mapping[str, Result[Report]]) -> str | None:
    """Full key of the front that another page or the link asks for; None if none does. Warns if it is not there."""
    state = st.session_state
    linked = st.query_params.get(FRONT_PARAM, "")
    is_new = SHOWN not in state or linked not in state.get(LINKED, ())
    short = state.pop(REQUESTED, "") or (linked if is_new else "")
    matches = [key for key in by_key if short and key.startswith(short)]
    sentence = None
    if short and not matches:
        sentence = (
            f"The link asks for front {short[:80]!r}, which does not exist for this model and task."
        )
    notify(SHOWN, sentence)
    return matches[0] if matches else None


def _write_link(key: str) -> None:
    """Keep a link that names a front true to the one that is shown. key: its full key."""
    short = key[:SHORT_KEY]
    if st.query_params.get(FRONT_PARAM, short) != short:
        st.query_params[FRONT_PARAM] = short
    st.session_state[LINKED] = {*st.session_state.get(LINKED, ()), short}


def _follow(
    by_key: Mapping[str, Result[Report]],
    form_job: FrontJob,
    languages: Sequence[str],
    requested: str | None,
) -> None:
    """Show the front that fits the form best, until another is chosen by hand and for as long as the form stays.

    Args:
        by_key: The fronts by their keys; of equal ones the newest first.
        form_job: The form's job.
        languages: Codes of the chosen languages; a front on exactly these fits better than any other.
        requested: Key of the front that a link asks for, which is shown whatever fits.
    """

    def misfit(key: str) -> tuple[bool, int]:
        return not _is_on(by_key[key], languages), len(apart(by_key[key], form_job))

    nearest = min(by_key, key=misfit)
    changed = nearest != st.session_state.get(NEAREST) or SHOWN not in st.session_state
    if len(by_key) > 1 and (requested or changed):
        give(SHOWN, requested or nearest)
    st.session_state[NEAREST] = nearest


def _readable(result: Result[Report], now: History) -> Front | None:
    try:
        return read_front(result, now.grid)
    except HeadlabError as error:
        st.warning(plain(f"The front cannot be shown: {error}."))
        return None


def _show(front: Front, now: History) -> None:
    st.markdown(f"**On {plain(languages_words(_languages(front.result)))}:**")
    for note in filter(None, (*front.report.notes, earlier_scores(front.report.spec))):
        st.markdown(f"- {plain(note)}")
    left, right = st.columns([7, 5], gap="large")
    with left:
        _figure(front, now)
    with right:
        _list(front, now)
        _confirmed(front)
    with st.expander("More tables, and how it was made"):
        for name in (CHOICE, CONFIRMED, FRONT):
            show(front.report.table(name), front.result.key)
        draw_commands(made_again("report", front.result))


def _figure(front: Front, now: History) -> None:
    with st.container(horizontal=True):
        costs = [PARAMETERS, HEADS] if front.counted else [HEADS]
        cost = (
            st.radio("Against", costs, horizontal=True, key="front-cost")
            if len(costs) > 1
            else HEADS
        )
        value = st.radio("What is lost by", [WEAKEST, MEAN], horizontal=True, key="front-value")
    answer = front.answer
    chart = front_chart(
        dots_of(front, cost, value), "parameters kept, millions" if cost == PARAMETERS else cost,
        f"difference of the {value}, points", loss=front.loss, chosen=(answer.order, answer.removed),
    )  # fmt: skip
    key = f"{FIGURE}-{now.stamp}"  # a new one for every mask: a selected dot has been applied, and can be clicked again
    st.plotly_chart(
        plotly_figure(chart), key=key, config=CONFIG, on_select=uninterrupted(lambda: picked(key, front, now)),
        selection_mode="points",
        alt="Smaller models: what they keep against what they lose",
    )  # fmt: skip
    st.caption(READING)


def picked(key: str, front: Front, now: History) -> None:
    """Make the clicked dot the current mask."""
    state = st.session_state.get(key) or {}
    points = (state.get("selection") or {}).get("points") or []
    given = next((p["customdata"] for p in points if p.get("customdata")), None)
    if given is None:
        return
    order, removed = (given["0"], given["1"]) if isinstance(given, dict) else given[:2]
    put(front, now, str(order), int(removed))


def put(front: Front, now: History, order: str, removed: int) -> None:
    """Make the mask of one point the current one."""
    answer = (order, removed) == (
        front.answer.order,
        front.answer.removed,
    )  # only the answer was measured on test
    mask = (
        chosen_mask(front.report, now.grid)
        if answer
        else mask_at(front.report, order, removed, now.grid)
    )
    now.put(mask.kept, mask.chosen)
    give(PRUNE_TAB, PRUNE_TABS[0])  # where its figures are
    st.session_state[AGAIN] = True


def _confirmed(front: Front) -> None:
    """The answer's accuracy on test, in short."""
    st.markdown("##### The answer on test")
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    columns = {
        "Language": text(pinned=True), "Accuracy %": number(format="%.1f"),
        "Difference": number(format="%+.1f", help="Points, on the same examples"),
        "95 % interval": text(help="Of the difference, paired bootstrap, points; two-sided"),
        "p of the loss": number(help="One-sided, of more being lost than was allowed"),
    }  # fmt: skip
    st.dataframe(with_p(confirmed(front)), hide_index=True, column_config=columns, placeholder="–")
    if front.answer.removed:
        st.caption(BOUNDS)


def _list(front: Front, now: History) -> None:
    """The same points as a list: for the keyboard, and where a dot is hard to hit."""
    offered = offers(front)
    key = f"{PICKED}-{front.result.key[:12]}"  # one per front: a point chosen in another is not valid here
    chosen: Point = st.selectbox(
        "The answer, and the best for their size", offered, index=offered.index(front.answer), key=key,
        format_func=lambda point: words(point, answer=point == front.answer),
    )  # fmt: skip
    button(
        "Make it the current mask", kind="primary", icon="check", key="front-put", on_press=put,
        args=(front, now, chosen.order, chosen.removed),
    )  # fmt: skip
