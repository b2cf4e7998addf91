"""What pages say of the models of a front: what they keep, their accuracy, their share of the whole.

No streamlit here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headlab.core import HEADS, percent_text
from headlab.dashboard.names import language_title
from headlab.pictures import MINUS
from headlab.studies.front_so_far import FrontSoFar, ModelSoFar
from headlab.studies.pareto import Point

HEADS_KEPT = "heads kept"
"""How many heads, or other players; `cost_label` says which."""
PARAMETERS_KEPT = "parameters kept"
SIZE_IN_MB = "size in MB"
COST_TITLES = {
    PARAMETERS_KEPT: "parameters kept, millions",
    SIZE_IN_MB: "size of the weights, MB",
}
"""Titles of the axis of costs, but for what is counted in heads or other players."""

MILLION = 1e6


@dataclass(frozen=True)
class WholeModel:
    """The untouched model, of which those of a front are a part.

    Attributes:
        size: Its number of heads, or of the other players that a front removes.
        parameters: Its number of parameters; None where it is not known.
        bytes_a_parameter: In a file of its weights; None where it is not known.
        noun: What is removed, in a word.
    """

    size: int
    parameters: int | None = None
    bytes_a_parameter: int | None = None
    noun: str = HEADS

    @property
    def has_bytes(self) -> bool:
        """Whether sizes can be told in MB."""
        return self.bytes_a_parameter is not None

    def megabytes(self, parameters: int) -> float:
        """How much the weights take.

        Args:
            parameters: Number of parameters.
        """
        return parameters * (self.bytes_a_parameter or 0) / MILLION

    def size_words(self, parameters: int) -> str:
        """The size of a smaller model: '443.1 MB, 94.3 % of the whole model'.

        Args:
            parameters: Of the smaller model.
        """
        words = f"{parameters / MILLION:,.2f} million parameters"
        if self.has_bytes:
            words = f"{self.megabytes(parameters):,.1f} MB"
        if self.parameters:
            words += f", {percent_text(parameters / self.parameters, 1)} of the whole model"
        return words


def offered_costs(whole: WholeModel, *, has_parameters: bool) -> list[str]:
    """What the models can be drawn against, the best first.

    Args:
        whole: The untouched model.
        has_parameters: Whether parameters are known for every model.
    """
    if not has_parameters:
        return [HEADS_KEPT]
    if whole.has_bytes:
        return [SIZE_IN_MB, PARAMETERS_KEPT, HEADS_KEPT]
    return [PARAMETERS_KEPT, HEADS_KEPT]


def cost_label(cost: str, noun: str) -> str:
    """What models are drawn against, in the list of what they can be.

    Args:
        cost: From `offered_costs`.
        noun: What is removed, in a word.
    """
    return f"{noun} kept" if cost == HEADS_KEPT else cost


def cost_title(cost: str, whole: WholeModel) -> str:
    """Title of the axis of costs, with what the whole model has.

    Args:
        cost: From `offered_costs`.
        whole: The untouched model.
    """
    if cost == HEADS_KEPT:
        return f"{cost_label(cost, whole.noun)}, of {whole.size}"
    title = COST_TITLES[cost]
    if not whole.parameters:
        return title
    if cost == SIZE_IN_MB:
        return f"{title} (whole model: {whole.megabytes(whole.parameters):,.1f})"
    return f"{title} (whole model: {whole.parameters / MILLION:,.1f})"


def drawn_cost(heads_kept: int, parameters: int | None, cost: str, whole: WholeModel) -> float:
    """Where a model stands on the axis of costs.

    Args:
        heads_kept: How many heads, or other players, it keeps.
        parameters: Of the model.
        cost: From `offered_costs`.
        whole: The untouched model.
    """
    if cost == HEADS_KEPT or parameters is None:
        return float(heads_kept)
    if cost == SIZE_IN_MB:
        return whole.megabytes(parameters)
    return parameters / MILLION


def hover_text(point: Point, whole: WholeModel, time_words: str = "") -> str:
    """Hover text of a point.

    Args:
        point: The point.
        whole: The untouched model.
        time_words: What is known of its speed; empty for nothing.
    """
    lines = [heads_words(point, whole)]
    if point.parameters is not None:
        lines.append(whole.size_words(point.parameters))
    lines += differences_words(point)
    if point.heads_removed and point.parameters is not None:
        lines.append(time_words or "time not measured yet")
    return "\n".join(lines)


def heads_words(point: Point | ModelSoFar, whole: WholeModel) -> str:
    """How many heads, or other players, a model keeps, and in which order the others left.

    Args:
        point: The model.
        whole: The untouched one.
    """
    share = percent_text(point.heads_kept / whole.size)
    return (
        f"{point.heads_kept} of {whole.size} {whole.noun} kept ({share}), {point.heads_removed} "
        f"removed (order {point.order})"
    )


def differences_words(point: Point) -> list[str]:
    """What a model loses: in its weakest language, and on average where there are several."""
    if len(point.languages) == 1 and point.heads_removed:
        return [weakest_words(point)]
    return [weakest_words(point), mean_words(point)]


def weakest_words(point: Point) -> str:
    """The language that loses most, its accuracy, and its difference with interval and bound."""
    index = point.languages.index(point.weakest)
    role = "" if len(point.languages) == 1 else "weakest language "
    words = f"{role}{language_title(point.weakest)}: {percent_text(point.accuracy[index], 1)} right"
    if point.heads_removed:
        words += f", {_difference_words(point.worst, point.low[index], point.high[index])} points"
        words += f", lower bound {_signed(point.worst_bound)}"
    return words


def mean_words(point: Point) -> str:
    """The mean difference over the languages, with its interval."""
    if not point.heads_removed:
        return "the untouched model: difference 0 by definition"
    mean = _difference_words(point.mean, point.mean_low, point.mean_high)
    return f"mean of the languages {mean} points"


def _difference_words(difference: float, low: float, high: float) -> str:
    """A difference with its interval; shares, told in points."""
    return f"{_signed(difference)} [{_signed(low)}, {_signed(high)}]"


def _signed(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", MINUS)


def point_label(point: Point, count: str, *, is_answer: bool = False) -> str:
    """A point as a list entry.

    Args:
        point: The model.
        count: What it keeps, in words: "48 heads".
        is_answer: Whether it answers the question of its front.
    """
    differences = f"{point.weakest} {100 * point.worst:+.1f}"
    if len(point.languages) > 1:
        differences = f"weakest {differences} · mean {100 * point.mean:+.1f}"
    label = f"{count} · {differences} · order {point.order}"
    return f"{label}{' · the answer' if is_answer else ''}".replace("-", "−")


def difference_title(loss_measure: str, languages: Sequence[str]) -> str:
    """Title of the axis of differences.

    Args:
        loss_measure: Whose difference it is, where there are several languages.
        languages: Codes of the languages of the front.
    """
    if len(languages) == 1:
        return f"difference in {language_title(languages[0])}, points"
    return f"difference of the {loss_measure}, points"


# A front that is being measured.


def progress_words(front: FrontSoFar) -> str:
    """How many models are measured, of how many."""
    if len(front.languages) == 1:
        return f"{front.measured} of {front.planned} models measured"
    return (
        f"{len(front.models)} of {front.planned} models measured so far, {front.measured} of them "
        f"in all {len(front.languages)} languages"
    )


def hover_text_so_far(model: ModelSoFar, whole: WholeModel, languages: Sequence[str]) -> str:
    """Hover text of a model that is being measured.

    Args:
        model: The model.
        whole: The untouched one.
        languages: Codes of all languages of the front.
    """
    lines = [heads_words(model, whole)]
    if model.parameters is not None:
        lines.append(whole.size_words(model.parameters))
    weakest = model.weakest
    lines.append(
        f"so far weakest {language_title(weakest.language)}: "
        f"{percent_text(weakest.accuracy, 1)} right, {_signed(weakest.difference)} points, on "
        f"{weakest.answers:,} of {weakest.all_answers:,} answers"
    )
    if len(languages) > 1:
        lines.append(f"answered in {len(model.languages)} of {len(languages)} languages")
    return "\n".join(lines)
