"""Requesting a Pareto front: the question, its options, the forecast of its cost, and Start."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from headlab.dashboard.frame import Choice, cached_options
from headlab.dashboard.names import FRONT_PARAM, count_words
from headlab.dashboard.pages.prune.state import PruneState, start_on_page
from headlab.dashboard.pages.prune.stored_fronts import FRONT_STUDY, full_sizes
from headlab.dashboard.panels.jobs import (
    end_job_form,
    forecast_pace,
    scores_refusal,
    show_started_job,
    show_terminal_commands,
)
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
from headlab.studies import BOUND, DEFAULT_WITHIN, ESTIMATE, ORDERS
from headlab.tasks import DEV_SIZE

SMALLEST_WITHIN = "Smallest model within d points in every language"
BEST_WITH_HEADS = "Best model with k heads"

LOSS_BASES = {BOUND: "by its lower bound (conservative)", ESTIMATE: "by the estimate"}

PREFIX = "front-"
"""What the keys of the form's widgets start with."""

SIZE_KEYS = {"dev_size": "front-dev", "test_size": "front-test"}
"""Keys of the widgets of these settings."""

KEPT_HEADS = 0.75
"""The share of heads that the second question keeps, to begin with."""

SHOWN_FRONT = "front-shown"
"""Widget key of the list of fronts below the form."""


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
        sizes = {name: values.get(key, settings[name].default) for name, key in SIZE_KEYS.items()}
        job = FrontJob.model_construct(
            languages=list(self.choice.languages),
            method=self.choice.method,
            options=self._options(values),
            **self.choice.job_fields,
            **sizes,
        )
        method_options = cached_options(self.choice)
        if method_options:
            return job.model_copy(update={"method_options": method_options})
        return job

    def _options(self, values: FormValues) -> NestedOptions:
        """The question, and the orders and sizes to try."""
        options: NestedOptions = {
            "orders": ",".join(values.get("front-orders") or ["mean"]),
            "points": min(int(values.get("front-points", full_sizes())), self.heads + 1),
            "within": None,
            "heads": None,
            "by": BOUND,
        }
        if values.get("front-question", SMALLEST_WITHIN) == SMALLEST_WITHIN:
            options["within"] = float(values.get("front-within", DEFAULT_WITHIN))
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
        question = st.radio(
            "Question", [SMALLEST_WITHIN, BEST_WITH_HEADS], horizontal=True, key="front-question"
        )
        limit_place, basis_place = st.columns([1, 1])
        with limit_place:
            if question == SMALLEST_WITHIN:
                st.number_input(
                    "d, points that may be lost",
                    0.0,
                    100.0,
                    DEFAULT_WITHIN,
                    step=0.5,
                    key="front-within",
                )
            else:
                st.number_input(
                    "k, heads to keep", 0, form.heads, form.default_heads, key="front-heads"
                )
        if question == SMALLEST_WITHIN:
            basis_place.selectbox(
                "Accept a loss based on",
                [BOUND, ESTIMATE],
                format_func=lambda basis: LOSS_BASES[basis],
                key="front-by",
            )
        draw_presets(form)
        with st.expander("More options"):
            _draw_more_options()
        return _draw_end(form)


# What a front costs: candidate masks, each on the dev examples of each language, and two masks on
# test.

QUICK_SECONDS = 120
"""What a quick front may take."""
USUAL_PACE = 0.004
"""Seconds a forward, where no pace is known yet."""
QUICK_SIZES = (
    (25, 1000),
    (17, 512),
    (13, 512),
    (9, 256),
    (7, 256),
    (5, 128),
    (4, 128),
    (3, 64),
)
"""Quick fronts, the largest first: the number of sizes, and of test examples a language."""
FULL_ORDERS = str(FRONT_STUDY.options["orders"].default).split(",")
"""The orders of removal that the full front tries."""


def draw_presets(form: FrontForm) -> None:
    """The buttons that fill in the form: a front of about two minutes here, or the full one.

    Neither changes the number of dev examples: the scores that order the heads are of as many, and
    would be lacking.
    """
    job = form.job(widget_values(PREFIX))
    button_row(
        Button("Quick", "front-quick", _fill_in_quick, (job,), icon="bolt"),
        Button("Full", "front-full", _fill_in, (FULL_ORDERS, full_sizes(), None), icon="done_all"),
    )
    st.caption(
        "Quick tries one order of removal, and as many sizes as this machine measures in about "
        "two minutes, three at least; the estimate of its time is below. Full tries "
        f"{len(FULL_ORDERS)} orders at {full_sizes()} sizes. Scores that are not in the cache "
        "take longer than either."
    )


def _fill_in_quick(job: FrontJob) -> None:
    """Fill in the form with the largest quick front.

    Args:
        job: Of the form as it was drawn.
    """
    seconds_per_forward = forecast_pace(job) or USUAL_PACE
    points, test_size = largest_quick_front(
        len(job.language_codes), int(job.dev_size or DEV_SIZE), seconds_per_forward
    )
    _fill_in(FULL_ORDERS[:1], points, test_size)


def largest_quick_front(
    languages: int, dev_size: int, seconds_per_forward: float
) -> tuple[int, int]:
    """The largest front that takes about two minutes; the smallest one where none does.

    Args:
        languages: How many there are.
        dev_size: Dev examples a language.
        seconds_per_forward: Of this machine.

    Returns:
        The number of sizes, and of test examples a language.
    """
    for points, test_size in QUICK_SIZES:
        forwards_a_language = points * dev_size + 2 * test_size
        if seconds_per_forward * languages * forwards_a_language <= QUICK_SECONDS:
            return points, test_size
    return QUICK_SIZES[-1]


def _fill_in(orders: Sequence[str], points: int, test_size: int | None) -> None:
    set_widget(f"{PREFIX}orders", list(orders))
    set_widget(f"{PREFIX}points", points)
    set_widget(f"{PREFIX}test", test_size)


def cost_sentence(job: FrontJob) -> str:
    """A sentence that says what the cost of the form's job grows with."""
    points = job.options["points"]
    assert isinstance(points, int), "the form always has a number of sizes"
    factors = {
        "language": len(job.language_codes),
        "order": len(str(job.options["orders"]).split(",")),
        "size": points,
        "dev example": job.dev_size or DEV_SIZE,
    }
    product = " × ".join(count_words(number, noun) for noun, number in factors.items())
    return (
        f"It grows with each of these: {product} = {math.prod(factors.values()):,} forwards at "
        "most, and then two models on the test examples. Masks that orders share, and what is in "
        "the cache, are not run again."
    )


def _draw_more_options() -> None:
    st.multiselect(
        "Removal orders",
        list(ORDERS),
        FULL_ORDERS,
        key="front-orders",
        format_func=lambda name: f"{name}: {ORDERS[name]}",
    )
    points_place, *size_places = st.columns(3)
    points_place.number_input(
        "Sizes to try",
        2,
        4096,
        full_sizes(),
        key="front-points",
        help="Evenly spaced counts of heads off.",
    )
    settings = FrontJob.settings()
    for place, (name, key) in zip(size_places, SIZE_KEYS.items(), strict=True):
        with place:
            draw_option(name, settings[name], key)


def _draw_end(form: FrontForm) -> FrontJob:
    """The forecast, the button, and the outcome of the last click; returns the job."""
    values = widget_values(PREFIX)
    job = form.job(values)
    reason = scores_refusal(form.choice)
    end_job_form(job, reason, _start, form, values, key="front-start", form_prefix=PREFIX)
    st.caption(cost_sentence(job))
    if PruneState.of_session().last_job == FrontJob.key:
        show_started_job("Its front appears below when it is done.")
    show_terminal_commands(job)
    return job


def _start(
    form: FrontForm, drawn_values: FormValues, typed_values: Mapping[str, str] | None
) -> None:
    """Queue the form's job.

    Args:
        form: The form.
        drawn_values: Of its widgets when they were drawn.
        typed_values: As in `values_at_press`.
    """
    st.session_state.pop(SHOWN_FRONT, None)  # show the one that is being made, once it is there
    st.query_params.pop(FRONT_PARAM, None)
    start_on_page(form.job(values_at_press(PREFIX, drawn_values, typed_values)))
