"""Value functions of the game: the value of a coalition of heads on one example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headlab.core.errors import HeadlabError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ValueFunction:
    """A value function; on every example its values are in an interval of length `span`.

    Attributes:
        key: Its name on the command line and in specs.
        title: What it is, in words.
        unit: Unit of values and gains.
        span: Length of the interval of its values.
        steps: Number of levels of a gain of one span, for an example with one answer; 1 where gains
            are whole, and more where they are rounded at random, without bias.
    """

    key: str
    title: str
    unit: str
    span: float = 1.0
    steps: int = 1


CLIP = 10.0
FINE_STEPS = 64
"""Of shares of several right answers, whose levels are equally far apart."""
FINEST_STEPS = 4096
"""Of probabilities, whose gains may all be small: levels are as far apart as gains are large."""
VALUE_FUNCTIONS: dict[str, ValueFunction] = {
    value.key: value
    for value in (
        ValueFunction(
            "accuracy",
            "right (1) or wrong (0); of several tokens, the share that is right",
            "accuracy",
        ),
        ValueFunction(
            "probability",
            "probability of the right label; of several tokens, their mean",
            "probability",
            1.0,
            FINEST_STEPS,
        ),
        ValueFunction(
            "log-probability",
            f"log-probability of the right label or token, no lower than {-CLIP:g}; of several, "
            "their mean",
            "nats",
            CLIP,
            FINEST_STEPS,
        ),
    )
}


def value_function_of(key: str) -> ValueFunction:
    """A value function by its key. Raises HeadlabError listing the keys."""
    if key not in VALUE_FUNCTIONS:
        raise HeadlabError(
            f"unknown value function {key!r}; use one of {', '.join(VALUE_FUNCTIONS)}",
            code="value.unknown",
        )
    return VALUE_FUNCTIONS[key]


def display_unit(unit: str) -> tuple[float, str]:
    """Factor and name for displaying a unit: accuracies are shown in points."""
    if unit == "accuracy":
        return (100.0, "points")
    return (1.0, unit)


def value_of_answers(
    value: ValueFunction, logits: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """Value of each example's answers as a share of the span, in [0, 1], [row].

    Args:
        logits: [row, label] with labels int [row], or [row, token, label] with labels int [row,
            token], where the mean is taken over the tokens whose label is not negative.
    """
    has_answer = labels >= 0
    value_by_answer = _value_by_answer(value, logits, labels.clamp(min=0))
    if labels.dim() == 1:
        return value_by_answer
    answer_count = has_answer.sum(dim=1).clamp(min=1)
    return (value_by_answer * has_answer).sum(dim=1) / answer_count


NUMBERS_AT_ONCE = 1 << 18
"""Logits whose logarithms of probabilities a processor computes at once, so that they fit in its
cache."""
# Smoothing scale for the runner-up label and for the answer closest to flipping; in logits.
SMOOTHING = 0.2


def surrogate(
    value: ValueFunction, logits: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """A differentiable quantity and its current value.

    Its gradient predicts changes of `value_of_answers`.

    Both are [row]. For accuracy it is the row's distance from a change, in logits: the smallest
    distance of an answer's margin from 0, which falls below 0 where an answer flips. It is
    smoothed, as a minimum has the gradient of only one competitor; the current value is not. For
    other values it is `value_of_answers` itself.

    Args:
        value: The value function.
        logits: As in `value_of_answers`.
        labels: As in `value_of_answers`.
    """
    import torch

    if value.key != "accuracy":
        worth_of_rows = value_of_answers(value, logits, labels)
        return worth_of_rows, worth_of_rows.detach()
    smooth_margin, margin, has_answer = answer_margins(logits, labels)
    smooth_distance = torch.where(margin < 0, -smooth_margin, smooth_margin)
    # Finite where there is no answer: a row may have none.
    closeness = (smooth_distance / -SMOOTHING).masked_fill(~has_answer, -1e9)
    distance = margin.abs().masked_fill(~has_answer, float("inf"))
    return -SMOOTHING * torch.logsumexp(closeness, dim=-1), distance.amin(dim=-1)


def answer_margins(
    logits: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """By how much each answer's right label leads, in logits; below 0 where the answer is wrong.

    Args:
        logits: As in `value_of_answers`.
        labels: As in `value_of_answers`.

    Returns:
        Three tensors [row, answer]: the lead over the other labels' smoothed maximum, which has a
        gradient by each of them; the lead over the best of them, without a gradient; and whether
        there is an answer, bool.
    """
    import torch

    if logits.dtype != torch.float64:
        logits = logits.float()
    scores = logits.reshape(len(logits), -1, logits.shape[-1])
    has_answer = (labels >= 0).reshape(len(labels), -1)
    right_label = labels.clamp(min=0).reshape(len(labels), -1, 1)
    right_score = scores.gather(-1, right_label)[..., 0]
    other_scores = scores.scatter(-1, right_label, float("-inf"))
    smooth_margin = right_score - SMOOTHING * torch.logsumexp(other_scores / SMOOTHING, dim=-1)
    margin = (right_score - other_scores.amax(dim=-1)).detach()
    return smooth_margin, margin, has_answer


def smoothed_value(
    value: ValueFunction, logits: torch.Tensor, labels: torch.Tensor, bandwidth: float
) -> torch.Tensor:
    """Value of each example's answers as a share of the span, made smooth, [row].

    For accuracy an answer's 0 or 1 becomes Phi(margin / bandwidth): the probability that it is
    right once its margin is blurred by a normal deviate. Other values are smooth as they are.

    Args:
        value: The value function.
        logits: As in `value_of_answers`.
        labels: As in `value_of_answers`.
        bandwidth: Standard deviation of the blur, in logits.
    """
    import torch

    if value.key != "accuracy":
        return value_of_answers(value, logits, labels)
    smooth_margin, _, has_answer = answer_margins(logits, labels)
    value_by_answer: torch.Tensor = torch.special.ndtr(smooth_margin / bandwidth) * has_answer
    return value_by_answer.sum(dim=1) / has_answer.sum(dim=1).clamp(min=1)


def log_probability(logits: torch.Tensor, chosen_labels: torch.Tensor) -> torch.Tensor:
    """Log-probability of chosen labels, [...], from logits [..., label], in float32 or more.

    Where no gradient is asked for, a processor computes them in parts that fit in its cache, to the
    same bits: a language model has tens of thousands of labels.
    """
    import torch

    if logits.requires_grad or logits.device.type != "cpu":
        return _log_probability_at_once(logits, chosen_labels)
    labels = logits.shape[-1]
    rows_at_once = max(1, NUMBERS_AT_ONCE // labels)
    parts = zip(
        logits.reshape(-1, labels).split(rows_at_once),
        chosen_labels.reshape(-1).split(rows_at_once),
        strict=True,
    )
    chosen_parts = [_log_probability_at_once(*part) for part in parts]
    return torch.cat(chosen_parts).reshape(chosen_labels.shape)


def _log_probability_at_once(logits: torch.Tensor, chosen_labels: torch.Tensor) -> torch.Tensor:
    """As `log_probability`."""
    import torch

    scores = logits if logits.dtype == torch.float64 else logits.float()
    return torch.log_softmax(scores, dim=-1).gather(-1, chosen_labels[..., None])[..., 0]


def _value_by_answer(
    value: ValueFunction, logits: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """Value of every answer as a share of the span, of the shape of the labels."""
    import torch

    if value.key == "accuracy":
        return (logits.argmax(dim=-1) == labels).to(torch.float64)
    log_probabilities = log_probability(logits, labels)
    if value.key == "probability":
        return log_probabilities.exp()
    return 1 + log_probabilities.clamp(min=-CLIP) / CLIP
