"""Requesting a Pareto front: the question, its options, the forecast of its cost, and Start."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from headlab.core import HEADS, LAYERS, HeadlabError, noun_of, read_players
from headlab.dashboard.frame import Choice, cached_options
from headlab.dashboard.names import ASK_PARAM, FRONT_PARAM, POINT_PARAM, count_words
from headlab.dashboard.pages.prune.front_question import (
    BEST_WITH_HEADS,
    FEWEST_SIZES,
    FULL_ORDERS,
    LARGEST_LOSS,
    MOST_SIZES,
    SIZE_FIELDS,
    SMALLEST_WITHIN,
    default_values,
    link_text,
    question_label,
    values_of_link,
)
from headlab.dashboard.pages.prune.state import PruneState, start_on_page
from headlab.dashboard.pages.prune.stored_fronts import full_sizes
from headlab.dashboard.panels.jobs import (
    arrived_forecast,
    end_job_form,
    forecast_pace,
    scores_refusal,
    show_started_job,
    show_terminal_commands,
)
from headlab.dashboard.panels.stored import ShownFront
from headlab.dashboard.widgets import (
    Button,
    FormValues,
    button_row,
    draw_option,
    notify_of_link,
    set_widget,
    values_at_press,
    widget_values,
)
from headlab.jobs import NestedOptions
from headlab.jobs.table import FrontJob
from headlab.studies import BOUND, DEFAULT_WITHIN, ESTIMATE, ORDERS, PLAYERS
from headlab.tasks import DEV_SIZE

LOSS_BASES = {BOUND: "by its lower bound (conservative)", ESTIMATE: "by the estimate"}

PREFIX = "front-"
"""What the keys of the form's widgets start with."""

SIZE_KEYS = {field: f"{PREFIX}{name}" for name, field in SIZE_FIELDS.items()}
"""Keys of the widgets of these settings."""

ORDERS_KEY = f"{PREFIX}orders"
POINTS_KEY = f"{PREFIX}points"
TEST_KEY = f"{PREFIX}test"
"""Keys of the widgets that Quick and Full fill in."""

SHOWN_FRONT = "front-shown"
"""Widget key of the list of fronts below the form."""


@dataclass(frozen=True)
class FrontForm:
    """The form for a front of smaller models.

    Attributes:
        choice: The model, the task, the languages, what is removed, and the method that orders it.
        size: Number of heads of the model, or of the other players that are removed.
    """

    choice: Choice
    size: int

    @property
    def noun(self) -> str:
        """What is removed, in a word."""
        return noun_of(self.choice.players)

    @property
    def fewest(self) -> int:
        """How many a model must keep: where layers are removed one, as none is written without."""
        return int(LAYERS in read_players(self.choice.players).kinds)

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
            "points": min(int(values.get("front-points", full_sizes())), self.size + 1),
            "within": None,
            "heads": None,
            "by": BOUND,
        }
        if values.get("front-question", SMALLEST_WITHIN) == SMALLEST_WITHIN:
            options["within"] = float(values.get("front-within", DEFAULT_WITHIN))
            options["by"] = values.get("front-by", BOUND)
        else:
            options["heads"] = int(values.get("front-heads", self.default_heads))
        if self.choice.players != HEADS:
            options[PLAYERS] = self.choice.players
        return options

    @property
    def default_heads(self) -> int:
        """How many heads, or other players, the second question keeps, to begin with."""
        return int(default_values(self.size)["heads"])


def draw_form(form: FrontForm) -> FrontJob:
    """Draw the form and return its job. A link fills it in, and is kept true to it."""
    _take_link(form)
    _correct_early_quick(form)
    with st.container(border=True, key="front-ask"):
        question = st.radio(
            "Question",
            [SMALLEST_WITHIN, BEST_WITH_HEADS],
            horizontal=True,
            key="front-question",
            format_func=lambda question: question_label(question, form.noun),
        )
        limit_place, basis_place = st.columns([1, 1])
        with limit_place:
            if question == SMALLEST_WITHIN:
                st.number_input(
                    "d, points that may be lost",
                    0.0,
                    LARGEST_LOSS,
                    DEFAULT_WITHIN,
                    step=0.5,
                    key="front-within",
                )
            else:
                st.number_input(
                    f"k, {form.noun} to keep",
                    form.fewest,
                    form.size,
                    form.default_heads,
                    key="front-heads",
                )
        if question == SMALLEST_WITHIN:
            basis_place.selectbox(
                "Accept a loss",
                [BOUND, ESTIMATE],
                format_func=lambda basis: LOSS_BASES[basis],
                key="front-by",
            )
        presets_place = st.container()
        with st.expander("More options"):
            _draw_more_options(form.noun)
        job = _draw_end(form)
        with presets_place:  # drawn last, as the forecast may have arrived meanwhile
            draw_presets(job)
    _write_link(form)
    return job


def _take_link(form: FrontForm) -> None:
    """Fill in the form as a link asks for, once; a link that cannot be read is named."""
    state = PruneState.of_session()
    text = st.query_params.get(ASK_PARAM, "")
    is_drawn = f"{PREFIX}question" in st.session_state  # it is not after the page was left
    if not text or (is_drawn and text in state.link_texts):
        notify_of_link(ASK_PARAM, None)
        return
    state.link_texts.add(text)
    try:
        values = values_of_link(text, form.size, form.fewest)
    except HeadlabError as error:
        notify_of_link(ASK_PARAM, f"{str(error)[:1].upper()}{str(error)[1:]}.")
        return
    notify_of_link(ASK_PARAM, None)
    for name, value in values.items():
        set_widget(f"{PREFIX}{name}", value)


def _write_link(form: FrontForm) -> None:
    """Keep the link true to the form; it says nothing of a form at its defaults."""
    form_values = {key.removeprefix(PREFIX): value for key, value in widget_values(PREFIX).items()}
    text = link_text(form_values, form.size)
    PruneState.of_session().link_texts.add(text)
    if text == st.query_params.get(ASK_PARAM, ""):
        return
    if text:
        st.query_params[ASK_PARAM] = text
    else:
        st.query_params.pop(ASK_PARAM, None)


# What a front costs: candidate masks, each on the dev examples of each language, and two masks on
# test.

QUICK_SECONDS = 120
"""What a quick front may take."""
ASSUMED_PACE = 0.004
"""Seconds a forward, where no pace is known yet; the page says so then."""
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


def draw_presets(job: FrontJob) -> None:
    """The buttons that fill in the form: a front of about two minutes here, or the full one.

    Neither changes the number of dev examples: the scores that order the heads are of as many, and
    would be lacking.

    Args:
        job: The form's.
    """
    if PruneState.of_session().early_quick and known_pace(job) is not None:
        st.rerun()  # the form is corrected before it is drawn
    button_row(
        Button("Quick", "front-quick", _fill_in_quick, (job,), icon="bolt"),
        Button("Full", "front-full", _fill_in_full, icon="done_all"),
    )
    st.caption(
        f"Both fill in the form. {quick_sentence(job, known_pace(job))} Full: {count_words(len(FULL_ORDERS), 'order')}, "
        f"{count_words(full_sizes(), 'size')}. Scores that are not in the cache take longer than "
        "either."
    )


def known_pace(job: FrontJob) -> float | None:
    """Seconds a forward pass on this machine, by the newest forecast for this model and task.

    Passes with other players closed take another time.

    None while there is none.

    Args:
        job: The form's.
    """
    paces = PruneState.of_session().seconds_a_forward
    subject = (str(job.model), str(job.task), job.players_switched)
    pace = forecast_pace(job)
    if pace is not None:
        paces[subject] = pace
    return paces.get(subject)


def quick_sentence(job: FrontJob, seconds_a_forward: float | None) -> str:
    """What Quick fills in, and which pace it goes by.

    Args:
        job: The form's.
        seconds_a_forward: Of this machine; None if it is not known.
    """
    sizes, test_size = _quick_front(job, seconds_a_forward)
    words = f"Quick: 1 order, {count_words(sizes, 'size')}, {test_size:,} test examples a language"
    if seconds_a_forward is not None:
        pace = f"{_milliseconds_text(1000 * seconds_a_forward)} ms an example"
        if _seconds_of(job, sizes, test_size, seconds_a_forward) > QUICK_SECONDS:
            return f"{words}, the least there is; at {pace} here, more than two minutes."
        return f"{words}, which fits into two minutes at {pace} here."
    forecast = arrived_forecast(job)
    if forecast is not None and forecast.forwards == 0:
        return f"{words}. This machine's pace is not known: the front above needs no more passes."
    sentence = (
        f"{words}. This machine's pace is not known yet: Quick assumes "
        f"{1000 * ASSUMED_PACE:g} ms an example."
    )
    if _holds_early_quick():
        sentence += " What Quick filled in is corrected once the pace is known."
    return sentence


def _milliseconds_text(milliseconds: float) -> str:
    return f"{milliseconds:,.0f}" if milliseconds >= 100 else f"{milliseconds:.3g}"


def _fill_in_quick(job: FrontJob) -> None:
    """Fill in the form with the largest quick front.

    Args:
        job: Of the form as it was drawn.
    """
    pace = known_pace(job)
    sizes, test_size = _quick_front(job, pace)
    quick_values = _fill_in(FULL_ORDERS[:1], sizes, test_size)
    PruneState.of_session().early_quick = quick_values if pace is None else {}


def _holds_early_quick() -> bool:
    """Whether the form still says what Quick filled in before the pace was known."""
    early_quick = PruneState.of_session().early_quick
    form_values = widget_values(PREFIX)
    return bool(early_quick) and all(
        form_values.get(key) == value for key, value in early_quick.items()
    )


def _correct_early_quick(form: FrontForm) -> None:
    """Fill in the quick front anew once the pace is known, if Quick was pressed before.

    A form that says something else by then is left alone.

    Args:
        form: The form, which is not drawn yet.
    """
    state = PruneState.of_session()
    if not state.early_quick:
        return
    job = form.job(widget_values(PREFIX))
    if known_pace(job) is None:
        return
    if _holds_early_quick():
        _fill_in_quick(job)
    state.early_quick = {}


def _fill_in_full() -> None:
    """Fill in the form with the full front."""
    PruneState.of_session().early_quick = {}
    _fill_in(FULL_ORDERS, full_sizes(), None)


def _quick_front(job: FrontJob, seconds_a_forward: float | None) -> tuple[int, int]:
    """The number of sizes of the largest quick front, and of test examples a language.

    Args:
        job: The form's.
        seconds_a_forward: Of this machine; None if it is not known.
    """
    return largest_quick_front(
        len(job.language_codes),
        int(job.dev_size or DEV_SIZE),
        seconds_a_forward or ASSUMED_PACE,
    )


def _seconds_of(job: FrontJob, sizes: int, test_size: int, seconds_a_forward: float) -> float:
    """How long a front of one order takes.

    Args:
        job: The form's.
        sizes: How many are measured.
        test_size: Test examples a language.
        seconds_a_forward: Of this machine.
    """
    forwards_a_language = sizes * int(job.dev_size or DEV_SIZE) + 2 * test_size
    return seconds_a_forward * len(job.language_codes) * forwards_a_language


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


def _fill_in(orders: Sequence[str], points: int, test_size: int | None) -> dict[str, Any]:
    """Fill in the form.

    Returns:
        What it then says, by the keys of its widgets.
    """
    values = {ORDERS_KEY: list(orders), POINTS_KEY: points, TEST_KEY: test_size}
    for key, value in values.items():
        set_widget(key, value)
    return values


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


def _draw_more_options(noun: str) -> None:
    """The orders, the sizes, and the numbers of examples.

    Args:
        noun: What is removed, in a word.
    """
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
        FEWEST_SIZES,
        MOST_SIZES,
        full_sizes(),
        key="front-points",
        help=f"Evenly spaced counts of {noun} off.",
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
        show_started_job("Its front grows below.")
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
    for param in (FRONT_PARAM, POINT_PARAM):
        st.query_params.pop(param, None)
    ShownFront.of_session().awaits_new = True
    PruneState.of_session().early_quick = {}  # what runs is as the form says
    start_on_page(form.job(values_at_press(PREFIX, drawn_values, typed_values)))
