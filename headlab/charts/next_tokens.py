"""How probable each next token of a sentence is, with some heads on and with them off."""

from __future__ import annotations

from collections.abc import Sequence

from headlab.charts.chart import Axis, Chart, Points
from headlab.core import percent_text
from headlab.pictures import HARMS, HELPS

ROW_PIXELS = 20
LEGEND_PIXELS = 40
AXIS_PIXELS = 60
MAX_LABEL_LENGTH = 20
"""Characters of a token beside its row."""
MARGIN = 0.03
"""Of the axis beside its smallest and its largest value."""
FEW_PERCENT = 0.05
"""The largest probability up to which the axis has decimals."""
SMALLEST_RANGE = 0.001
"""Of the axis, where all probabilities are nearly 0."""


def next_tokens_chart(
    tokens: Sequence[str], p_on: Sequence[float], p_off: Sequence[float], off_name: str
) -> Chart:
    """A row per token, from top to bottom as the sentence runs: its probability on and off.

    Args:
        tokens: The tokens that are predicted, in the order of the sentence.
        p_on: Their probabilities with all heads on, float [token].
        p_off: Those with some heads off, float [token].
        off_name: What the legend calls the latter.
    """
    rows = [float(row) for row in range(len(tokens))]

    def points(name: str, shares: Sequence[float], colour: str, symbol: str) -> Points:
        return Points(
            name,
            list(shares),
            rows,
            colour,
            symbol,
            is_filled=[True] * len(rows),
            joined_by="solid",
            texts=[
                f"{token}: {percent_text(share, 1)}"
                for token, share in zip(tokens, shares, strict=True)
            ],
            tip="{text}\n{name}",
        )

    largest = max(*p_on, *p_off, SMALLEST_RANGE)
    ticks = tuple((row, token[:MAX_LABEL_LENGTH]) for row, token in zip(rows, tokens, strict=True))
    return Chart(
        f"probability of each next token, {off_name}",
        (
            points("all heads on", p_on, HELPS, "circle"),
            points(off_name, p_off, HARMS, "diamond"),
        ),
        x=Axis(
            "probability of the token that follows",
            limits=(-MARGIN * largest, (1 + MARGIN) * largest),
            number_format=".0%" if largest > FEW_PERCENT else ".1%",
        ),
        y=Axis(ticks=ticks, limits=(len(rows) - 0.5, -0.5)),
        height=LEGEND_PIXELS + AXIS_PIXELS + ROW_PIXELS * max(3, len(rows)),
    )
