"""The stored results for a choice: of which languages there are any, and how their model differs from the chosen one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import streamlit as st

from headlab.dashboard.frame import Choice, LatestValue, supervisor
from headlab.report.parts import facts_of, spent

SHORT_FINGERPRINT = 12  # characters of a fingerprint, enough to tell weights apart

WAIT_SECONDS = 0.3

FRESH_SECONDS = 60.0

Stored = TypeVar("Stored")


def current_weights(model: str) -> str | None:
    """Fingerprint of the weights that a job would use; None if the worker does not know it or answer at once."""
    if not supervisor().connected:
        return None
    asked = _fingerprints()
    asked.wait(1, WAIT_SECONDS)
    if asked.error is not None:
        _fingerprints.clear()  # the next call asks again
    return (asked.value or {}).get(model)


@st.cache_resource(ttl=FRESH_SECONDS, show_spinner=False)
def _fingerprints() -> LatestValue[dict[str, str | None]]:
    worker = supervisor().client()

    def ask() -> Generator[dict[str, str | None]]:
        yield {card.name: card.fingerprint for card in worker.models()}

    return LatestValue(ask)


@dataclass(frozen=True)
class Shelf(Generic[Stored]):
    """The cached results for a choice.

    by_language: results of each chosen language that has any (and of languages that the task does not offer), best
    first.  missing: chosen languages without results.  problems: a sentence for every result that was skipped.
    weights: fingerprint of the chosen model's weights, None if unknown.
    """

    by_language: Mapping[str, list[Stored]]
    missing: tuple[str, ...]
    problems: tuple[str, ...]
    weights: str | None = None


def put_on_shelf(
    choice: Choice, found: Mapping[str, list[Stored]], problems: Iterable[str], weights: str | None
) -> Shelf[Stored]:
    """A shelf of the results found, the chosen languages first, in their order."""
    order = [
        *(name for name in choice.languages if name in found),
        *sorted(set(found) - set(choice.languages)),
    ]
    missing = tuple(name for name in choice.languages if name not in found)
    return Shelf({name: found[name] for name in order}, missing, tuple(problems), weights)


def draw_form_below(
    shelf: Shelf[Stored],
    languages: tuple[str, ...],
    form: Callable[[tuple[str, ...]], None],
    others: str,
    key: str,
) -> None:
    """A form for the languages without a result; if all have one, for these languages, folded under `others`."""
    if shelf.missing or not shelf.by_language:
        st.subheader("What will it cost?")
        with st.container(border=True, key=key):
            form(shelf.missing)
    else:
        with st.expander(others), st.container(key=key):
            form(languages)


def model_differences(own: str | None, weights: str | None, dtype: str | None) -> list[str]:
    """How a result's model differs from the chosen one, in words. own, weights: fingerprints, if known."""
    other = (
        [f"made with other weights ({short_fingerprint(own)})"]
        if weights and own is not None and own != weights
        else []
    )
    return other + ([f"in {dtype}"] if dtype else [])


def short_fingerprint(fingerprint: str) -> str:
    """The start of a fingerprint, as pages name weights."""
    return f"{fingerprint[:SHORT_FINGERPRINT]}…" if fingerprint else "unknown ones"


def facts_table(
    spec: Mapping[str, Any],
    meta: Mapping[str, Any],
    took: tuple[int, float],
    named: tuple[str, str],
) -> list[tuple[str, str]]:
    """How a result was made, as (name, value) pairs. took: example forwards and seconds."""
    return [
        *(
            (name[:1].upper() + name[1:], value)
            for name, value in facts_of(spec, meta, spent(*took))
        ),
        named,
    ]
