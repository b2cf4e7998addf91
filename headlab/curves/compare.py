"""Two curves side by side."""

from __future__ import annotations

import numpy as np

from headlab.errors import HeadlabError
from headlab.records import Floats, Ints
from headlab.scores import Curve
from headlab.stats import Paired, group_bootstrap


def compare_areas(one: Curve, other: Curve, seed: int = 0) -> Paired:
    """Area of one curve minus that of the other, paired over the answers and resampled by group.

    Raises HeadlabError unless both are of the same examples.
    """
    if one.spec.get("task") != other.spec.get("task") or not np.array_equal(one.groups, other.groups):
        raise HeadlabError(
            "the two curves are of different examples; compare those of one language, split and size",
            code="curve.other_examples",
        )
    gain = areas(one) - areas(other)
    low, high, p = group_bootstrap(gain[None], labels(one.groups), np.random.default_rng(seed))
    return Paired(float(gain.mean()), float(low[0]), float(high[0]), float(p[0]))


def areas(curve: Curve) -> Floats:
    """Each answer's part in the area under a curve, float [answer]; their mean is `Curve.area`."""
    return np.asarray(np.trapezoid(curve.correct.astype(np.float64), curve.removed / curve.removed[-1], axis=0))


def labels(groups: Ints) -> tuple[str, ...]:
    """Labels that sort as the numbers do, so that draws are those of the groups' own names."""
    return tuple(f"{group:012d}" for group in groups.tolist())
