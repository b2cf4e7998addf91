"""How alike languages rank the heads, resampled once for each set of scores."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import streamlit as st

from headlab.results import HeadScores
from headlab.studies.agreement import RankAgreement, rank_agreement_of


def compared_languages(scores: Mapping[str, HeadScores]) -> RankAgreement:
    """Rank agreement of languages; resampled once per set of scores."""
    digests = tuple((language, _digest(scores[language])) for language in scores)
    return _compare_once(digests, dict(scores))


@st.cache_data(max_entries=16, show_spinner="Resampling heads …")
def _compare_once(
    digests: tuple[tuple[str, str], ...], _scores: Mapping[str, HeadScores]
) -> RankAgreement:
    return rank_agreement_of(_scores)


def _digest(scores: HeadScores) -> str:
    """Names what the agreement of the scores with others rests on."""
    digest = hashlib.sha256(scores.values_sha256().encode())
    for numbers in (scores.halves, scores.sample_means):
        digest.update(b"" if numbers is None else np.ascontiguousarray(numbers, "<f8").tobytes())
    return digest.hexdigest()


def noise_note(scores: Mapping[str, HeadScores]) -> str:
    """How far the correlations can be trusted if no noise ceiling is known, in words.

    Median half-width over the spread (standard deviation) of the values: near 0 the ranks are the
    heads' own; near 1 or above they are mostly sampling noise.
    """
    ratios = []
    for language_scores in scores.values():
        spread = language_scores.tested_values.std()
        if language_scores.half_width is not None and spread:
            ratios.append(float(np.median(language_scores.half_width) / spread))
    if not ratios:
        return "These scores have no intervals, so how much of ρ is noise is not known."
    noise = f"the median half-width is {np.median(ratios):.2f} of the spread of the values"
    return f"Sampling noise pulls ρ towards 0: {noise}."
