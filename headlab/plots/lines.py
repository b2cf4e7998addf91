"""Accuracy as heads are removed, as a Plotly figure."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from headlab.charts.curves import curves_chart
from headlab.plots.drawing import plotly_figure
from headlab.results import AccuracyBand, Curve


def curve_figure(curves: Sequence[Curve], band: AccuracyBand | None = None) -> go.Figure:
    """Accuracy against heads removed, one labelled line per curve.

    Shaded: 95 % intervals of the difference from the model with all heads.

    Args:
        curves: At least one; names are what distinguishes them.
        band: Drawn in grey behind the curves, from lowest to highest, its median dotted; None for
            none.

    Returns:
        A new figure.
    """
    return plotly_figure(curves_chart(curves, band))
