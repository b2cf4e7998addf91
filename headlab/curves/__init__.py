"""Pruning curves: heads leave one after another, and the accuracy is watched."""

from headlab.curves.compare import areas, compare_areas
from headlab.curves.prune import prune_curve
from headlab.curves.settings import caution_of, counts, curve_spec
from headlab.scores import Band, band

__all__ = [
    "Band",
    "areas",
    "band",
    "caution_of",
    "compare_areas",
    "counts",
    "curve_spec",
    "prune_curve",
]
