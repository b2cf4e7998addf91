"""What a record that shows itself can be asked for; who answers is named by the library's face.

Records neither plot nor save. They ask the module that `headlab.SHOWN_BY` names, which is imported
when the first record is shown.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

FACE = "headlab"
"""The package whose `SHOWN_BY` names the module that shows records."""


class Shown:
    """A record that shows itself in notebooks, as a data frame and as a figure."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """The record as HTML without scripts, for notebooks."""
        html: str = _presenter().html_of(self)
        return html

    def to_frame(self) -> Any:
        """The record as a data frame of pandas, a row for each head, language or point.

        Values are in the record's own unit: shares, of which 0.01 is one point, where that is
        accuracy.

        Returns:
            A new `pandas.DataFrame`.

        Raises:
            HeadlabError: pandas is not installed.
        """
        return _presenter().frame_of(self)

    def plot(self) -> Any:
        """The record as a figure of Plotly.

        Returns:
            A new `plotly.graph_objects.Figure`.

        Raises:
            HeadlabError: Plotly is not installed.
        """
        return _presenter().figure_of(self)


def _presenter() -> Any:
    """The module that the library's face names."""
    return import_module(import_module(FACE).SHOWN_BY)
