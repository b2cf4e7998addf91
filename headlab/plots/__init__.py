"""Records as Plotly figures, transparent and without a template of their own."""

from headlab.charts.dots import ROW_PIXELS
from headlab.pictures import (
    DIVERGING,
    HARMS,
    HELPS,
    LINE_COLOURS,
    SEQUENTIAL,
    UNSURE,
    symmetric_limit,
)
from headlab.plots.heads import across_languages, distribution, head_map
from headlab.plots.lines import curve_figure
from headlab.plots.matrices import agreement
from headlab.plots.report import report_figures
from headlab.plots.style import PRINT_WIDTH, as_data, figure_for_file

__all__ = [
    "DIVERGING",
    "HARMS",
    "HELPS",
    "LINE_COLOURS",
    "PRINT_WIDTH",
    "ROW_PIXELS",
    "SEQUENTIAL",
    "UNSURE",
    "across_languages",
    "agreement",
    "as_data",
    "curve_figure",
    "distribution",
    "figure_for_file",
    "head_map",
    "report_figures",
    "symmetric_limit",
]
