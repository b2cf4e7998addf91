"""p-values of many tests at once."""

from __future__ import annotations

import numpy as np

from headlab.records import Floats


def holm(p: Floats) -> Floats:
    """Holm's adjusted p-values: controls the chance of any false claim (Holm 1979)."""
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    out = np.empty_like(p)
    out[order] = np.minimum(1.0, steps)
    return out


def benjamini_hochberg(p: Floats) -> Floats:
    """Benjamini–Hochberg adjusted p-values: controls the share of false claims (1995)."""
    order = np.argsort(p, kind="stable")[::-1]
    steps = np.minimum.accumulate(p[order] * len(p) / np.arange(len(p), 0, -1))
    out = np.empty_like(p)
    out[order] = np.minimum(1.0, steps)
    return out
