"""What languages share and where they differ: figures from the experiments' tables, cached by the scores."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import streamlit as st

from headlab.methods.costs import spec_of
from headlab.scores import HeadScores
from headlab.studies.agreement import Compared, compare_languages


def compared(scores: Mapping[str, HeadScores]) -> Compared:
    """Rank agreement of languages; resampled once per set of scores."""
    return _compared(tuple((name, _digest(s)) for name, s in scores.items()), dict(scores))


@st.cache_data(max_entries=16, show_spinner="Resampling heads …")
def _compared(digests: tuple[tuple[str, str], ...], _scores: Mapping[str, HeadScores]) -> Compared:
    return compare_languages(_scores)


def _digest(scores: HeadScores) -> str:
    halves = b"" if scores.halves is None else np.ascontiguousarray(scores.halves, "<f8").tobytes()
    return hashlib.sha256(scores.values_sha256().encode() + halves).hexdigest()


def noise_share(scores: Mapping[str, HeadScores]) -> float | None:
    """Median half-width over the spread (standard deviation) of the values; None without intervals.

    Near 0 the ranks are the heads' own; near 1 or above they are mostly sampling noise.
    """
    ratios = [
        float(np.median(s.half_width) / s.values.std())
        for s in scores.values()
        if s.half_width is not None and s.values.std()
    ]
    return float(np.median(ratios)) if ratios else None


def noise_note(scores: Mapping[str, HeadScores]) -> str:
    """How far the correlations can be trusted if no noise ceiling is known, in words."""
    noise = noise_share(scores)
    if noise is None:
        return "This method gives no intervals, so how much of ρ is noise is not known."
    return f"Sampling noise pulls ρ towards 0: the median half-width is {noise:.2f} of the spread of the values."


def sample_note(scores: Mapping[str, HeadScores]) -> str:
    """How many examples and samples the values are based on, in words."""
    examples = sorted({int(n) for s in scores.values() if (n := spec_of(s, "task", "size"))})
    samples = sorted({int(np.median(s.samples)) for s in scores.values() if s.samples is not None})
    words = [f"{_span(examples)} examples"] if examples else []
    words += [f"{_span(samples)} samples a head"] if samples else []
    return f"From {', '.join(words)}." if words else ""


def _span(numbers: list[int]) -> str:
    return f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,}"
