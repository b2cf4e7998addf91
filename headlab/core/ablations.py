"""What stands in the place of a closed player: nothing, its mean, or its output on another text."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from headlab.core.errors import HeadlabError

ZERO = "zero"
MEAN = "mean"
RESAMPLE = "resample"
COUNTERFACTUAL = "counterfactual"
ABLATIONS = (ZERO, MEAN, RESAMPLE, COUNTERFACTUAL)
OF_OTHER_TEXTS = (RESAMPLE, COUNTERFACTUAL)
"""Those that put in the output on another text, which no weights can hold."""
REPLACEMENTS: Mapping[str, str] = MappingProxyType(
    {
        ZERO: "zeros",
        MEAN: "its mean output",
        RESAMPLE: "its output on another example",
        COUNTERFACTUAL: "its output on the example's counterfactual",
    }
)
"""What a removed head gives, in words."""
MOST_DONOR_EXAMPLES = 64
"""Examples that `exact` averages every donor over, at most: each has all others as donors."""

Ints = npt.NDArray[np.int64]


def is_of_other_texts(ablation: str) -> bool:
    """Whether a closed player gives its output on another text."""
    return ablation in OF_OTHER_TEXTS


def require_own_output(ablation: str, use: str) -> None:
    """Raise HeadlabError if closed players give their output on another text.

    Args:
        ablation: What stands in the place of a closed player.
        use: What that cannot be used for, in a clause such as "translations are written".
    """
    if is_of_other_texts(ablation):
        raise HeadlabError(
            f"{use} with zero or mean ablation only, and {ablation} is asked for, by --ablation or by the mask: there "
            "a closed head gives its output on another text, which exists only where examples are answered; use "
            "--ablation zero",
            code="ablation.other_texts",
        )


# The randomness of donors: each is a function of the seed, the number of its draw and its example,
# so that nothing depends on batches, devices or interruptions.

_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_STEP = 0x9E3779B97F4A7C15
_STREAM = 23


def drawn_donors(seed: int, numbers: npt.ArrayLike, examples: Ints, example_count: int) -> Ints:
    """Another example for each row, all others alike, int [row].

    Args:
        seed: Of the run.
        numbers: The number of each row's draw, one for all rows or int [row].
        examples: The example of each row, int [row].
        example_count: Number of examples, at least 2.
    """
    # 64 bits of a seed that may have 63, and the finaliser of SplitMix64 (Steele et al. 2014).
    state = _mixed(np.full(examples.shape, seed ^ (_STREAM << 56), np.uint64))
    state = _mixed(state ^ np.asarray(numbers).astype(np.uint64))
    state = _mixed(state ^ examples.astype(np.uint64))
    others = (state % np.uint64(example_count - 1)).astype(np.int64)
    return others + (others >= examples)


def _mixed(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Numbers of which every bit depends on all bits of those given."""
    state = state + np.uint64(_STEP)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(_MULTIPLIERS[0])
    state = (state ^ (state >> np.uint64(27))) * np.uint64(_MULTIPLIERS[1])
    return state ^ (state >> np.uint64(31))
