"""What studies of pruning curves find, as records: points, areas, and differences between areas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from headlab.studies.result import Column


@dataclass(frozen=True)
class CurvePoint:
    """Accuracy on test without so many heads, in an ordering.

    Attributes:
        language: Its code.
        ordering: What orders the heads.
        heads_removed: Number of heads removed.
        accuracy_percent: Accuracy; of random orders the median.
        low_percent: Lower end of the band around it.
        high_percent: Upper end.
    """

    language: Annotated[str, Column("language")]
    ordering: Annotated[str, Column("ordering")]
    heads_removed: Annotated[int, Column("removed", "d")]
    accuracy_percent: Annotated[float, Column("accuracy, %", ".1f")]
    low_percent: Annotated[float, Column("low, %", ".1f")]
    high_percent: Annotated[float, Column("high, %", ".1f")]


@dataclass(frozen=True)
class CurveArea:
    """The area under an ordering's curve, and how many heads can go.

    Attributes:
        language: Its code, or "mean".
        ordering: What orders the heads.
        area_percent: Mean accuracy from no head gone to all of them.
        low_percent: Lower end of its interval.
        high_percent: Upper end.
        heads: The most that can go within the loss, by the estimate; None of the mean.
        heads_by_interval: The same by the interval.
    """

    language: Annotated[str, Column("language")]
    ordering: Annotated[str, Column("ordering")]
    area_percent: Annotated[float, Column("area, %", ".1f")]
    low_percent: Annotated[float, Column("low, %", ".1f")]
    high_percent: Annotated[float, Column("high, %", ".1f")]
    heads: Annotated[float | None, Column("heads", ".0f")]
    heads_by_interval: Annotated[float | None, Column("heads, by interval", ".0f")]


@dataclass(frozen=True)
class AreaDifference:
    """The area under an ordering's curve minus that of another.

    Attributes:
        language: Its code, or "mean".
        ordering: What orders the heads.
        other_ordering: The other.
        difference: In points.
        low: Lower end of its interval.
        high: Upper end.
        p: Two-sided.
        p_holm: p adjusted over all rows.
        random_orders_below: How many random orders have a smaller area; None where the other is not
            random.
    """

    language: Annotated[str, Column("language")]
    ordering: Annotated[str, Column("ordering")]
    other_ordering: Annotated[str, Column("minus")]
    difference: Annotated[float, Column("difference, points", "+.1f")]
    low: Annotated[float, Column("low, points", "+.1f")]
    high: Annotated[float, Column("high, points", "+.1f")]
    p: Annotated[float, Column("p", ".4f")]
    p_holm: Annotated[float, Column("p (Holm)", ".4f")]
    random_orders_below: Annotated[int | None, Column("random orders below", "d")]
