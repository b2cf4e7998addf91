"""Figures of one value for every pair of languages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from headlab.plots.style import DIVERGING, ROW_PIXELS, finish
from headlab.records import Bools, Floats

MOST_NUMBERS = 10  # columns whose cells hold numbers on a narrow screen


def agreement(rho: Floats, names: Sequence[str], template: str | None = None) -> go.Figure:
    """Rank correlations of every pair of languages, one colour scale from -1 to 1.

    rho: float [language, language], NaN where a language's scores are all equal.
    """
    figure = go.Figure(
        go.Heatmap(
            z=rho,
            x=list(names),
            y=list(names),
            text=np.where(np.isnan(rho), "–", np.char.mod("%.2f", np.nan_to_num(rho))),
            texttemplate="%{text}" if len(names) <= 20 else None,
            hovertemplate="%{y} and %{x}: ρ = %{text}<extra></extra>",
            colorscale=DIVERGING,
            zmin=-1,
            zmax=1,
            xgap=1,
            ygap=1,
            colorbar={"title": {"text": "Spearman ρ", "side": "right"}, "thickness": 12, "dtick": 0.5},
        )
    )
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    figure.update_xaxes(side="top", type="category", showgrid=False)
    return finish(figure, template, height=max(260, 110 + ROW_PIXELS * len(names)))


def marked(
    values: Floats,
    told: Sequence[Sequence[str]],
    sure: Bools,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    scale: str,
    hover: str,
) -> go.Figure:
    """A cell a row and column, coloured on a scale around 0 and marked by a dot where it is sure.

    values: float [row, column], NaN where there is none.  told: what a cell says; among many columns only under the
    pointer.  scale, hover: what the colours are, what the pointer shows (Plotly's template).
    """
    limit = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
    text = [
        [word + "●" * bool(s and not np.isnan(v)) for v, word, s in zip(*row, strict=True)]
        for row in zip(values, told, sure, strict=True)
    ]
    shown = text if len(columns) <= MOST_NUMBERS else np.where(sure, "●", "")
    figure = go.Figure(
        go.Heatmap(
            z=values, x=list(columns), y=list(rows), text=shown, texttemplate="%{text}", customdata=text,
            hovertemplate=hover, colorscale=DIVERGING, zmin=-limit, zmax=limit, xgap=1, ygap=1,
            colorbar={"title": {"text": scale, "side": "right"}, "thickness": 12},
        )
    )  # fmt: skip
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    figure.update_xaxes(side="top", type="category", showgrid=False)
    return figure


def transfer_matrix(
    values: Floats, sure: Bools, rows: Sequence[str], columns: Sequence[str], template: str | None = None
) -> go.Figure:
    """What masks chosen on one language (rows) do to others (columns): differences on a scale around 0.

    values: float [row, column] in points, NaN where there is none.  sure: bool [row, column], marked by a dot.
    Among many languages numbers would be too small to read: there they are under the pointer only.
    """
    told = [["–" if np.isnan(v) else f"{round(v, 1) + 0.0:+.1f}" for v in row] for row in values]
    hover = "chosen on %{y}, tested on %{x}: %{customdata} points<extra></extra>"
    figure = marked(values, told, sure, rows, columns, scale="points", hover=hover)
    figure.update_yaxes(title="chosen on")
    figure.update_xaxes(title="tested on")
    return finish(figure, template, height=max(260, 130 + ROW_PIXELS * len(rows)))


def sign_matrix(
    helps: Sequence[Sequence[str]],
    harms: Sequence[Sequence[str]],
    heads: Sequence[str],
    languages: Sequence[str],
    template: str | None = None,
) -> go.Figure:
    """In which languages heads help (blue, +) and harm (orange, −); elsewhere nothing is said.

    helps, harms: languages of each head.
    """
    z = np.full((len(heads), len(languages)), np.nan)
    for row, (good, bad) in enumerate(zip(helps, harms, strict=True)):
        for sign, chosen in ((1.0, good), (-1.0, bad)):
            z[row, [at for at, language in enumerate(languages) if language in chosen]] = sign
    words = np.select([z > 0, z < 0], ["+", "−"], "")
    figure = go.Figure(
        go.Heatmap(
            z=z, x=list(languages), y=list(heads), text=words, texttemplate="%{text}", colorscale=DIVERGING, zmin=-1.6,
            zmax=1.6, xgap=1, ygap=1, showscale=False, hovertemplate="head %{y}, %{x}: %{text}<extra></extra>",
        )
    )  # fmt: skip
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False, title="head")
    figure.update_xaxes(side="top", type="category", showgrid=False)
    return finish(figure, template, height=max(180, 90 + ROW_PIXELS * len(heads)))
