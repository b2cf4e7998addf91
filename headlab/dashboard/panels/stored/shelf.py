"""The stored results for a choice: their languages, and how their model differs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import streamlit as st

from headlab.dashboard.frame import Choice, LatestValue, supervisor
from headlab.report.parts import cost_facts, facts_of

SHORT_FINGERPRINT = 12
"""Characters of a fingerprint, enough to tell weights apart."""
WAIT_SECONDS = 0.3
FRESH_SECONDS = 60.0

StoredResult = TypeVar("StoredResult")


def current_weights(model: str) -> str | None:
    """Fingerprint of the weights that a job would use.

    None if the worker does not know it or answer at once.
    """
    if not supervisor().is_connected:
        return None
    fingerprints = _model_fingerprints()
    fingerprints.wait(1, WAIT_SECONDS)
    if fingerprints.error is not None:
        _model_fingerprints.clear()  # the next call asks again
    return (fingerprints.value or {}).get(model)


@st.cache_resource(ttl=FRESH_SECONDS, show_spinner=False)
def _model_fingerprints() -> LatestValue[dict[str, str | None]]:
    worker = supervisor().client()

    def ask_worker() -> Generator[dict[str, str | None]]:
        yield {card.name: card.fingerprint for card in worker.models()}

    return LatestValue(ask_worker)


@dataclass(frozen=True)
class StoredByLanguage(Generic[StoredResult]):
    """The cached results for a choice.

    Attributes:
        by_language: Results of each chosen language that has any, and of languages that the task
            does not offer; the best first.
        missing: Chosen languages without results.
        problems: A sentence for every result that was skipped.
        weights: Fingerprint of the chosen model's weights, None if unknown.
    """

    by_language: Mapping[str, list[StoredResult]]
    missing: tuple[str, ...]
    problems: tuple[str, ...]
    weights: str | None = None


def stored_by_language(
    choice: Choice,
    results_by_language: Mapping[str, list[StoredResult]],
    problems: Iterable[str],
    weights: str | None,
) -> StoredByLanguage[StoredResult]:
    """The results found, the chosen languages first, in their order."""
    languages = [
        *(language for language in choice.languages if language in results_by_language),
        *sorted(set(results_by_language) - set(choice.languages)),
    ]
    missing = tuple(
        language for language in choice.languages if language not in results_by_language
    )
    return StoredByLanguage(
        {language: results_by_language[language] for language in languages},
        missing,
        tuple(problems),
        weights,
    )


def draw_form_for_missing(
    stored: StoredByLanguage[StoredResult],
    languages: tuple[str, ...],
    draw_form: Callable[[tuple[str, ...]], None],
    expander_title: str,
    key: str,
) -> None:
    """Draw a form for the languages without a result; if all have one, for `languages`, folded.

    Args:
        stored: The results for the choice.
        languages: The chosen languages.
        draw_form: Draws the form for languages.
        expander_title: Under which the form is folded.
        key: Of the container that it stands in.
    """
    if stored.missing or not stored.by_language:
        st.subheader("What will it cost?")
        with st.container(border=True, key=key):
            draw_form(stored.missing)
    else:
        with st.expander(expander_title), st.container(key=key):
            draw_form(languages)


def model_differences(
    result_fingerprint: str | None, current_fingerprint: str | None, dtype: str | None
) -> list[str]:
    """How a result's model differs from the chosen one, in words.

    Args:
        result_fingerprint: Of the weights that the result was made with, if known.
        current_fingerprint: Of the chosen model's weights, if known.
        dtype: Precision of the result's model; empty or None for float32.
    """
    differences = []
    has_other_weights = result_fingerprint != current_fingerprint
    if current_fingerprint and result_fingerprint is not None and has_other_weights:
        differences.append(f"made with other weights ({short_fingerprint(result_fingerprint)})")
    if dtype:
        differences.append(f"in {dtype}")
    return differences


def short_fingerprint(fingerprint: str) -> str:
    """The start of a fingerprint, as pages name weights."""
    if fingerprint:
        return f"{fingerprint[:SHORT_FINGERPRINT]}…"
    return "unknown ones"


def facts_table(
    spec: Mapping[str, Any],
    meta: Mapping[str, Any],
    forwards_and_seconds: tuple[int, float],
    key_row: tuple[str, str],
) -> list[tuple[str, str]]:
    """How a result was made, as (name, value) pairs.

    Args:
        spec: Of the result.
        meta: What is stored beside it.
        forwards_and_seconds: That it took, in example forwards and seconds.
        key_row: The last pair: what kind of result it is, and its key.
    """
    facts = facts_of(spec, meta, cost_facts(*forwards_and_seconds))
    rows = [(name[:1].upper() + name[1:], value) for name, value in facts]
    return [*rows, key_row]
