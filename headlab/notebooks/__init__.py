"""How records show themselves in notebooks: as HTML, as data frames and as Plotly figures.

`headlab.core.Shown` asks this package, since `headlab.SHOWN_BY` names it.
"""

from __future__ import annotations

from headlab.notebooks.figures import figure_of as figure_of
from headlab.notebooks.frames import frame_of as frame_of
from headlab.notebooks.html import html_of as html_of
