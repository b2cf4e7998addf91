"""What stands in the place of a closed player.

Nothing, its mean, its output on another text, or its output on the first and last tokens alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headlab.core.errors import HeadlabError

ZERO = "zero"
MEAN = "mean"
RESAMPLE = "resample"
COUNTERFACTUAL = "counterfactual"
STREAMING = "streaming"
ABLATIONS = (ZERO, MEAN, RESAMPLE, COUNTERFACTUAL, STREAMING)
"""All by name; streaming is recorded with its sizes (`read_ablation`)."""
ABLATION_CHOICES = (ZERO, MEAN, RESAMPLE, COUNTERFACTUAL, f"{STREAMING}:4,64")
"""The same as they are recorded, streaming with its usual sizes."""
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


class StreamingSizes(NamedTuple):
    """What a streaming head sees of a text.

    Attributes:
        first: How many of the first tokens.
        last: How many of the last tokens up to the one that looks, itself included.
    """

    first: int
    last: int

    def __str__(self) -> str:
        """The ablation with these sizes, as it is recorded."""
        return f"{STREAMING}:{self.first},{self.last}"


USUAL_SIZES = StreamingSizes(4, 64)
"""Sizes of `streaming` without any: the four that StreamingLLM keeps, and a short window."""
MOST_STREAMING_TOKENS = 99_999_999
"""Of the first and of the last, each: more than any model takes."""
_SIZES = re.compile(r"streaming:(\d{1,12}),(\d{1,12})", re.ASCII)


def read_ablation(text: str) -> str:
    """An ablation as it is recorded: streaming with its sizes, any other by its name.

    Args:
        text: As a person gives it: a name, or streaming:FIRST,LAST.

    Raises:
        HeadlabError: There is no such ablation, or its sizes do not fit.
    """
    if text == STREAMING:
        return str(USUAL_SIZES)
    if text in ABLATIONS:
        return text
    if not text.startswith(STREAMING):
        raise HeadlabError(
            f"unknown ablation {text!r:.60}; use one of {', '.join(ABLATIONS)}",
            code="ablation.unknown",
        )
    match = _SIZES.fullmatch(text)
    if match is None:
        raise HeadlabError(
            f"{text!r:.60} does not say how many tokens a streaming head sees; write {USUAL_SIZES}: how many of the "
            "first tokens, then how many of the last, or leave both out for these",
            code="ablation.streaming_sizes",
        )
    sizes = StreamingSizes(*map(int, match.groups()))
    if sizes.last < 1 or max(sizes) > MOST_STREAMING_TOKENS:
        raise HeadlabError(
            f"{text!r:.60} has sizes that do not fit: a streaming head sees 0 or more of the first tokens and 1 or "
            f"more of the last, which the token itself is among, and {MOST_STREAMING_TOKENS:,} at most; write "
            f"{USUAL_SIZES}, for instance",
            code="ablation.streaming_sizes",
        )
    return str(sizes)


def is_ablation(value: object) -> bool:
    """Whether a value is an ablation as it is recorded."""
    try:
        return isinstance(value, str) and read_ablation(value) == value
    except HeadlabError:
        return False


def is_streaming(ablation: str) -> bool:
    """Whether a closed head sees the first and last tokens alone."""
    return ablation.startswith(STREAMING)


def streaming_sizes(ablation: str) -> StreamingSizes | None:
    """How many tokens a closed head sees; None where no head is to stream.

    Raises:
        HeadlabError: The sizes do not fit.
    """
    if not is_streaming(ablation):
        return None
    match = _SIZES.fullmatch(read_ablation(ablation))
    assert match is not None
    return StreamingSizes(*map(int, match.groups()))


def replacement_of(ablation: str) -> str:
    """What a removed head gives, in words."""
    if is_streaming(ablation) and is_ablation(ablation):
        sizes = streaming_sizes(ablation)
        assert sizes is not None
        return (
            f"what it reads from the first {sizes.first:,} and the last {sizes.last:,} tokens alone"
        )
    return REPLACEMENTS.get(ablation, ablation)


def ablation_title(ablation: str) -> str:
    """An ablation as pages show it: its name, and the sizes of streaming in words."""
    sizes = streaming_sizes(ablation) if is_ablation(ablation) else None
    if sizes is None:
        return ablation
    return f"{STREAMING} (first {sizes.first:,}, last {sizes.last:,} tokens)"


def is_beyond_weights(ablation: str) -> bool:
    """Whether no weights can hold what closed players give."""
    return is_of_other_texts(ablation) or is_streaming(ablation)


def is_of_other_texts(ablation: str) -> bool:
    """Whether a closed player gives its output on another text."""
    return ablation in OF_OTHER_TEXTS


def require_own_output(ablation: str, use: str) -> None:
    """Raise HeadlabError if closed players give their output on another text, or stream.

    Args:
        ablation: What stands in the place of a closed player.
        use: What that cannot be used for, in a clause such as "translations are written".
    """
    if is_streaming(ablation):
        raise HeadlabError(
            f"{use} with zero or mean ablation only, and {ablation} is asked for, by --ablation or by the mask; use "
            "--ablation zero",
            code="ablation.streaming_unused",
        )
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
