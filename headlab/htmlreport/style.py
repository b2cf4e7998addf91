"""The colours of headlab's figures, without Plotly: a test holds them equal to those of `headlab.plots`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

Scale = tuple[tuple[float, str], ...]
DIVERGING: Scale = ((0.0, "#b35806"), (0.25, "#f1a340"), (0.5, "#f7f7f7"), (0.75, "#67a9cf"), (1.0, "#2166ac"))
SEQUENTIAL: Scale = ((0.0, "#f7fbff"), (0.5, "#6baed6"), (1.0, "#08306b"))
HELPS, HARMS, UNSURE = "#2b7bba", "#d9730d", "#8a8f98"
LINES = (HELPS, HARMS, "#3a8f5c", "#8e5ea2", "#b08d2e", "#c94f7c")
CHANCE = "random"
DASHES = ("solid", "dash", "dashdot", "longdash", "longdashdot", "dash")
DARK, LIGHT = "#101418", "#ffffff"
SHADE, FAINT = 0.13, 0.06  # opacity of an area: of few, and of many that lie on each other


def rgb(colour: str) -> tuple[int, int, int]:
    """Red, green and blue of "#rrggbb"."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def on_scale(scale: Sequence[tuple[float, str]], share: float) -> str:
    """The colour at a share of a scale, "#rrggbb"; shares beyond its ends have the ends' colours."""
    share = min(max(share, scale[0][0]), scale[-1][0])
    for (start, one), (end, other) in pairwise(scale):
        if share <= end:
            t = (share - start) / (end - start)
            mixed = (round(a + t * (b - a)) for a, b in zip(rgb(one), rgb(other), strict=True))
            return "#" + "".join(f"{part:02x}" for part in mixed)
    return scale[-1][1]


def ink_on(colour: str) -> str:
    """Dark or light, whichever is easier to read on a colour (WCAG 2 contrast)."""
    light = luminance(colour)
    return DARK if (light + 0.05) ** 2 > (luminance(DARK) + 0.05) * 1.05 else LIGHT


def luminance(colour: str) -> float:
    """Relative luminance of "#rrggbb", 0 to 1 (WCAG 2)."""
    parts = [value / 255 for value in rgb(colour)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
