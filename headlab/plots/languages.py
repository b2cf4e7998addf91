"""The figures of agreement between languages, drawn from its tables alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from headlab.plots.matrices import agreement
from headlab.plots.style import HELPS, ROW_PIXELS, UNSURE, finish
from headlab.tables import NOTHING, Table

SURE = 80.0  # percent of resamples that have a cluster before its lines are drawn as sure


def agreement_matrix(pairs: Table, languages: Table, *, similar: bool = True, template: str | None = None) -> go.Figure:
    """Rank correlations of every pair of languages; interval, ceiling and corrected value under the pointer.

    pairs, languages: tables "agreement" and "agreement-languages".  similar: similar languages side by side,
    instead of the order in which the pairs name them.
    """
    names = list(dict.fromkeys([*pairs.column("language"), *pairs.column("other")]))
    if similar:
        names = [str(name) for name in languages.column("language")]
    return correlation_matrix(pairs, names, ("language", "other"), "the same language", template=template)


def correlation_matrix(
    pairs: Table,
    names: Sequence[str],
    of: tuple[str, str],
    same: str,
    *,
    where: Sequence[int] = (),
    template: str | None = None,
) -> go.Figure:
    """Rank correlations of every pair of names; interval, ceiling and corrected value under the pointer.

    pairs: a table with the columns of "agreement".  of: the two columns of names.  same: what the diagonal says.
    where: rows of the table; all if empty.
    """
    at = {name: i for i, name in enumerate(names)}
    rho, words = np.eye(len(names)), [[same] * len(names) for _ in names]
    shown, values = pairs.shown(), pairs.column("rho")
    for row in where or range(len(pairs.rows)):
        cell = dict(zip(pairs.columns, shown[row], strict=True))
        one, other = (at[cell[name]] for name in of)
        for a, b in ((one, other), (other, one)):
            rho[a, b] = np.nan if values[row] is None else values[row]
            words[a][b] = _words(cell)
    figure = agreement(rho, names, template)
    return figure.update_traces(customdata=words, hovertemplate="%{y} and %{x}: %{customdata}<extra></extra>")


def _words(cell: dict[str, str]) -> str:
    """A pair's figures, a line each."""
    lines = [f"ρ = {cell['rho']} [{cell['low']}, {cell['high']}]"]
    if cell["noise"] == NOTHING:  # a mean of correlations, which has no ceiling of its own
        return lines[0]
    if cell["ceiling"] == NOTHING:
        lines.append("noise ceiling unknown")
    else:
        lines.append(f"noise ceiling {cell['ceiling']} [{cell['ceiling, low']}, {cell['ceiling, high']}]")
        lines.append(cell["noise"] or f"corrected {cell['corrected']}, across halves {cell['across halves']}")
    return "<br>".join(lines)


def dendrogram(merges: Table, languages: Table, template: str | None = None) -> go.Figure:
    """The tree of languages, similar ones side by side; clusters that most resamples have are drawn in colour.

    merges, languages: tables "agreement-clusters" and "agreement-languages".
    """
    names = [str(name) for name in languages.column("language")]
    ends = {int(number): (float(row), 0.0) for row, number in enumerate(languages.column("number"))}
    figure = go.Figure()
    columns = ("merge", "left", "right", "languages", "size", "1 − rho", "support, %")
    for merge, left, right, below, size, height, support in zip(*map(merges.column, columns), strict=True):
        (y1, x1), (y2, x2) = ends[left], ends[right]
        ends[merge] = ((y1 + y2) / 2, height)
        figure.add_scatter(
            x=[x1, height, height, x2], y=[y1, y1, y2, y2], mode="lines", showlegend=False,
            line={"color": HELPS if support >= SURE and size < len(names) else UNSURE, "width": 2},
            hovertemplate=f"{below}<br>1 − ρ = {height:.2f}; in {support:.0f} % of resamples<extra></extra>",
        )  # fmt: skip
        if size < len(names):
            figure.add_annotation(
                x=height, y=(y1 + y2) / 2, text=f"{support:.0f} %", showarrow=False, xanchor="left", xshift=2, yshift=8,
                font={"size": 11},
            )  # fmt: skip
    figure.update_yaxes(
        tickvals=list(range(len(names))), ticktext=names, range=[len(names) - 0.5, -0.5], showgrid=False, zeroline=False
    )
    far = 1.06 * max((height for _, height in ends.values()), default=1.0)
    figure.update_xaxes(title="1 − ρ, mean over the pairs of two clusters", range=[0, far], zeroline=False)
    return finish(figure, template, height=max(220, 90 + ROW_PIXELS * len(names)))
