"""Requesting a Pareto front: the question, its options, the forecast of its cost, and Start."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from headlab.core import integer_in
from headlab.dashboard.frame import Choice, cached_options
from headlab.dashboard.names import FRONT_PARAM, counted
from headlab.dashboard.pages.prune.state import PruneState, start_on_page
from headlab.dashboard.pages.prune.stored_fronts import ABOUT
from headlab.dashboard.panels.job_actions import asked, end_form, refusal, terminal, told_pace
from headlab.dashboard.widgets import (
    Button,
    FormValues,
    button_row,
    draw_option,
    set_widget,
    values_at_press,
    widget_values,
)
from headlab.jobs import NestedOptions
from headlab.jobs.table import FrontJob
from headlab.studies import BOUND, ESTIMATE, ORDERS, WITHIN
from headlab.tasks import DEV_SIZE

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

    def job(self, values: FormValues) -> FrontJob:
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
        method_options = cached_options(self.choice)
        return job.model_copy(update={"method_options": method_options}) if method_options else job

    def _options(self, values: FormValues) -> NestedOptions:
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


def draw_form(form: FrontForm) -> FrontJob:
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
        draw_presets(form)
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


def draw_presets(form: FrontForm) -> None:
    """The buttons that fill in the form: a front of about two minutes here, or the full one.

    Neither changes the number of dev examples: the scores that order the heads are of as many, and would be lacking.
    """
    job = form.job(widget_values(PREFIX))
    button_row(
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
    points, test_size = largest_quick_front(
        len(job.languages_named), int(job.dev_size or DEV_SIZE), pace
    )
    _fill(ORDERED[:1], points, test_size)


def largest_quick_front(languages: int, dev: int, pace: float) -> tuple[int, int]:
    """Sizes and test examples of the largest quick front. dev: examples a language.  pace: seconds a forward pass."""
    fit = (
        each for each in QUICK if pace * languages * (each[0] * dev + 2 * each[1]) <= QUICK_SECONDS
    )
    return next(fit, QUICK[-1])


def _fill(orders: Sequence[str], points: int, test: int | None) -> None:
    for name, value in (("orders", list(orders)), ("points", points), ("test", test)):
        set_widget(f"{PREFIX}{name}", value)


def cost_sentence(job: FrontJob) -> str:
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
    st.multiselect(
        "Removal orders",
        list(ORDERS),
        ORDERED,
        key="front-orders",
        format_func=lambda name: f"{name}: {ORDERS[name]}",
    )
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
            draw_option(name, settings[name], key)


def _begin(form: FrontForm) -> FrontJob:
    """The forecast, the button, and the outcome of the last click; returns the job."""
    values = widget_values(PREFIX)
    job = form.job(values)
    trouble = refusal(form.choice)
    end_form(job, trouble, _start, form, values, key="front-start", form=PREFIX)
    st.caption(cost_sentence(job))
    if PruneState.of_session().last_job == FrontJob.key:
        asked("Its front appears below when it is done.")
    terminal(job)
    return job


def _start(form: FrontForm, drawn: FormValues, typed: Mapping[str, str] | None) -> None:
    """Queue the form's job. drawn: its values as it was drawn.  typed: as in `pressed`."""
    st.session_state.pop(SHOWN, None)  # show the one that is being made, once it is there
    st.query_params.pop(FRONT_PARAM, None)
    start_on_page(form.job(values_at_press(PREFIX, drawn, typed)))


SHOWN = "front-shown"
"""Widget key: the front below the form."""
