"""What the form for a front says, at its defaults and in a link. No streamlit here.

A link says it as words and values, like `within 2 by estimate orders mean-weakest points 9`, and
leaves out what is at its default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headlab.core import HeadlabError
from headlab.dashboard.pages.prune.stored_fronts import FRONT_STUDY, full_sizes
from headlab.jobs.table import FrontJob
from headlab.studies import BOUND, DEFAULT_WITHIN, ESTIMATE, ORDERS
from headlab.studies.pareto import Point

SMALLEST_WITHIN = "Smallest model within d points in every language"
BEST_WITH_HEADS = "Best model with k heads"
FULL_ORDERS = str(FRONT_STUDY.options["orders"].default).split(",")
"""The orders of removal that the full front tries."""
LARGEST_LOSS = 100.0
FEWEST_SIZES = 2
MOST_SIZES = 4096
KEPT_HEADS = 0.75
"""The share of heads, or other players, that the second question keeps, to begin with."""

ALL_EXAMPLES = "all"
MOST_CHARACTERS = 300
"""Of a link's form that are read."""
SIZE_FIELDS = {"dev": "dev_size", "test": "test_size"}
"""Fields of the job, by what the form calls them."""

QuestionValues = dict[str, Any]
"""Values of the form, by their names in the link."""


def question_label(question: str, noun: str) -> str:
    """A question as the form says it.

    Args:
        question: SMALLEST_WITHIN or BEST_WITH_HEADS.
        noun: What is removed, in a word.
    """
    return f"Best model with k {noun}" if question == BEST_WITH_HEADS else question


def default_values(head_count: int) -> QuestionValues:
    """What the form says to begin with.

    Args:
        head_count: Heads of the model, or the other players that are removed.
    """
    settings = FrontJob.settings()
    sizes = {name: settings[field].default for name, field in SIZE_FIELDS.items()}
    return {
        "question": SMALLEST_WITHIN,
        "within": DEFAULT_WITHIN,
        "by": BOUND,
        "heads": round(KEPT_HEADS * head_count),
        "orders": list(FULL_ORDERS),
        "points": full_sizes(),
        **sizes,
    }


def link_text(values: Mapping[str, Any], head_count: int) -> str:
    """What a link says of the form; empty where all is at its default.

    Args:
        values: Of the form; what is missing is at its default.
        head_count: Heads of the model, or the other players that are removed.
    """
    defaults = default_values(head_count)
    form_values = {**defaults, **values}
    words = []
    asks_for_heads = form_values["question"] == BEST_WITH_HEADS
    if asks_for_heads:
        words.append(f"heads {form_values['heads']}")
    for name in ("within", "by"):
        if not asks_for_heads and form_values[name] != defaults[name]:
            words.append(f"{name} {_number_text(form_values[name])}")
    if form_values["orders"] and form_values["orders"] != defaults["orders"]:
        words.append(f"orders {'-'.join(form_values['orders'])}")
    for name in ("points", *SIZE_FIELDS):
        if form_values[name] != defaults[name]:
            words.append(f"{name} {_number_text(form_values[name])}")
    return " ".join(words)


def _number_text(value: object) -> str:
    if value is None:
        return ALL_EXAMPLES
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def values_of_link(text: str, head_count: int, fewest: int = 0) -> QuestionValues:
    """All values of the form that a link's text asks for; the rest are at their defaults.

    Args:
        text: As `link_text` writes it.
        head_count: Heads of the model, or the other players that are removed.
        fewest: How many of them a model must keep.

    Raises:
        HeadlabError: The text is not of that form, or names a value that does not fit.
    """
    values = default_values(head_count)
    words = text.split() if len(text) <= MOST_CHARACTERS else []
    if not words or len(words) % 2:
        raise _unreadable(text, "words and values in turn, like within 2 points 9")
    readers = _readers(head_count, fewest)
    for name, value_text in zip(words[::2], words[1::2], strict=True):
        if name not in readers:
            raise _unreadable(text, f"{', '.join(readers)} are known")
        values[name] = readers[name](text, value_text)
    if "heads" in words[::2]:
        values["question"] = BEST_WITH_HEADS
    return values


Reader = Callable[[str, str], Any]
"""Reads a value, given the whole text of the link and that of the value."""


def _readers(head_count: int, fewest: int) -> dict[str, Reader]:
    """How each value of the form is read.

    Args:
        head_count: Heads of the model, or the other players that are removed.
        fewest: How many of them a model must keep.
    """
    return {
        "within": lambda text, value: _number_in(text, value, 0.0, LARGEST_LOSS),
        "by": _basis_in,
        "heads": lambda text, value: _count_in(text, value, fewest, head_count),
        "orders": _orders_in,
        "points": lambda text, value: _count_in(text, value, FEWEST_SIZES, MOST_SIZES),
        **{name: _size_reader(field) for name, field in SIZE_FIELDS.items()},
    }


def _number_in(text: str, value: str, low: float, high: float) -> float:
    """A number between two ends, these included."""
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not low <= number <= high:
        raise _unreadable(text, f"{value[:40]!r} is no number from {low:g} to {high:g}")
    return number


def _count_in(text: str, value: str, low: int, high: int) -> int:
    """A whole number between two ends, these included."""
    is_count = value.isascii() and value.isdigit() and len(value) <= len(str(high))
    if not is_count or not low <= int(value) <= high:
        raise _unreadable(text, f"{value[:40]!r} is no whole number from {low} to {high}")
    return int(value)


def _basis_in(text: str, value: str) -> str:
    if value not in (BOUND, ESTIMATE):
        raise _unreadable(text, f"by is {BOUND} or {ESTIMATE}")
    return value


def _orders_in(text: str, value: str) -> list[str]:
    orders = list(dict.fromkeys(value.split("-")))
    if not all(order in ORDERS for order in orders):
        raise _unreadable(text, f"the orders are {', '.join(ORDERS)}, joined by -")
    return orders


def _size_reader(field: str) -> Reader:
    """Reads a number of examples.

    Args:
        field: Of the job.
    """
    option = FrontJob.settings()[field]

    def read(text: str, value: str) -> int | None:
        if value == ALL_EXAMPLES and option.optional:
            return None
        return _count_in(text, value, int(option.low), int(option.high))

    return read


def _unreadable(text: str, advice: str) -> HeadlabError:
    """The error of a link whose form cannot be read.

    Args:
        text: Of the link.
        advice: What is wrong, or what fits.
    """
    return HeadlabError(
        f"the link asks for a front by {text[:80]!r}, which cannot be read: {advice}. The form "
        "stays as it was",
        code="front.link_unreadable",
    )


def point_text(point: Point) -> str:
    """A model of a front as a link says it: its order, and how many players are removed.

    Args:
        point: The model.
    """
    return f"{point.order}-{point.heads_removed}"


def point_of_text(text: str, points: tuple[Point, ...]) -> Point | None:
    """The model that a link's text names; None if there is none of it.

    Args:
        text: As `point_text` writes it.
        points: Of the front.
    """
    return next((point for point in points if point_text(point) == text), None)
