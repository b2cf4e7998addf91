"""Value functions of the game: the value of a coalition of heads on one example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headlab.core.errors import HeadlabError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Value:
    """A value function; on every example its values are in an interval of length `span`.

    Attributes:
        unit: of values and gains.
        steps: Number of levels of a gain of one span, for an example with one answer; 1 where gains
            are whole, FINE where they are rounded at random, without bias, to multiples of span /
            FINE.
    """

    key: str
    title: str
    unit: str
    span: float = 1.0
    steps: int = 1


CLIP = 10.0
FINE = 64
VALUES: dict[str, Value] = {
    value.key: value
    for value in (
        Value(
            "accuracy",
            "right (1) or wrong (0); of several tokens, the share that is right",
            "accuracy",
        ),
        Value(
            "probability",
            "probability of the right label; of several tokens, their mean",
            "probability",
            1.0,
            FINE,
        ),
        Value(
            "log-probability",
            f"log-probability of the right label or token, no lower than {-CLIP:g}; of several, "
            "their mean",
            "nats",
            CLIP,
            FINE,
        ),
    )
}


def value_of(key: str) -> Value:
    """A value function by its key. Raises HeadlabError listing the keys."""
    if key not in VALUES:
        raise HeadlabError(
            f"unknown value function {key!r}; use one of {', '.join(VALUES)}", code="value.unknown"
        )
    return VALUES[key]


def shown_unit(unit: str) -> tuple[float, str]:
    """Factor and name for displaying a unit: accuracies are shown in points."""
    return (100.0, "points") if unit == "accuracy" else (1.0, unit)


def worth(value: Value, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Value of each example's answers as a share of the span, in [0, 1], [row].

    Args:
        logits: [row, label] with labels int [row], or [row, token, label] with labels int [row,
            token], where the mean is taken over the tokens whose label is not negative.
    """
    asked = labels >= 0
    each = _each(value, logits, labels.clamp(min=0))
    return each if labels.dim() == 1 else (each * asked).sum(dim=1) / asked.sum(dim=1).clamp(min=1)


# Smoothing scale for the runner-up label and for the answer closest to flipping; in logits.
SOFT = 0.2


def surrogate(
    value: Value, logits: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """A differentiable quantity whose gradient predicts changes of `worth`, and its current value, both [row].

    For accuracy it is the row's distance from a change, in logits: the smallest distance of an
    answer's margin from 0, which falls below 0 where an answer flips. It is smoothed, as a minimum
    has the gradient of only one competitor; the current value is not. For other values it is
    `worth` itself.

    Args:
        logits, labels: as in `worth`.
    """
    import torch

    if value.key != "accuracy":
        found = worth(value, logits, labels)
        return found, found.detach()
    wide = (logits if logits.dtype == torch.float64 else logits.float()).reshape(
        len(logits), -1, logits.shape[-1]
    )
    asked, chosen = (
        (labels >= 0).reshape(len(labels), -1),
        labels.clamp(min=0).reshape(len(labels), -1, 1),
    )
    right = wide.gather(-1, chosen)[..., 0]
    others = wide.scatter(-1, chosen, float("-inf"))
    soft = right - SOFT * torch.logsumexp(others / SOFT, dim=-1)
    hard = (right - others.amax(dim=-1)).detach()
    near = (torch.where(hard < 0, -soft, soft) / -SOFT).masked_fill(
        ~asked, -1e9
    )  # finite: a row may have no answers
    return -SOFT * torch.logsumexp(near, dim=-1), hard.abs().masked_fill(~asked, float("inf")).amin(
        dim=-1
    )


def log_probability(logits: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Log-probability of chosen labels, [...], from logits [..., label], in float32 or more."""
    import torch

    wide = logits if logits.dtype == torch.float64 else logits.float()
    return torch.log_softmax(wide, dim=-1).gather(-1, chosen[..., None])[..., 0]


def _each(value: Value, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    import torch

    if value.key == "accuracy":
        return (logits.argmax(dim=-1) == labels).to(torch.float64)
    chosen = log_probability(logits, labels)
    return chosen.exp() if value.key == "probability" else 1 + chosen.clamp(min=-CLIP) / CLIP
