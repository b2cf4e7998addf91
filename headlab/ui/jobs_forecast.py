"""What a job will cost, as the worker says it. It may have to time its device first, so no page waits for it."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from typing import Any

import streamlit as st

from headlab.records import content_key
from headlab.ui.background import Latest
from headlab.ui.jobs_words import forecast_line
from headlab.ui.live import follow
from headlab.ui.shell import guarded
from headlab.ui.shell_worker import supervisor

KNOWN = "_forecasts"
FIRST_SECONDS, POLL_SECONDS, AGAIN_SECONDS, FRESH_SECONDS, KEPT = 0.3, 0.5, 3.0, 60.0, 50
Forecast = Latest[dict[str, Any]]


def draw(kind: str, spec: Mapping[str, Any], before: str, otherwise: str) -> None:
    """A caption: `before`, then the forecast as soon as it is there.

    otherwise: what to say where no worker can be asked without waiting for it, or it has no answer; if
    empty, why there is none.
    """
    held = _asked(kind, spec)
    if held is not None:
        held.wait(1, FIRST_SECONDS)
    # Room for all its lines, so that no button below moves just as one presses it. A page may show several.
    with st.container(key=f"forecast-{_key(kind, spec)[:12]}"):
        if held is not None and held.value is not None:
            st.caption(f"{before} {words(held, otherwise)}".strip())
        else:  # a worker may yet come
            every = AGAIN_SECONDS if held is None else POLL_SECONDS
            follow(_poll, every)(kind, spec, before, otherwise)


def _poll(kind: str, spec: Mapping[str, Any], before: str, otherwise: str) -> None:
    with guarded():
        held = _asked(kind, spec)
        if held is not None and held.value is not None:
            st.rerun()
        asking = held is not None and not held.error
        told = "Asking the worker how long it will take …" if asking else words(held, otherwise)
        st.caption(f"{before} {told}".strip())


def words(held: Forecast | None, otherwise: str) -> str:
    """A forecast in words; where there is none, `otherwise` or else the reason."""
    if held is not None and held.value is not None:
        return forecast_line(held.value)
    if otherwise or held is None:
        return otherwise or "not known, as no worker could be asked."
    return f"not known: {held.error or 'the worker has not answered yet'}."


def at_once(kind: str, spec: Mapping[str, Any], otherwise: str) -> str:
    """The forecast in words if it comes within a moment."""
    held = _asked(kind, spec)
    if held is not None:
        held.wait(1, FIRST_SECONDS)
    return words(held, otherwise)


def _asked(kind: str, spec: Mapping[str, Any]) -> Forecast | None:
    """The forecast of a spec, asked for now unless this session did so a moment ago; sooner again if that failed."""
    if not supervisor().connected:
        return None
    known: dict[str, tuple[float, Forecast]] = st.session_state.setdefault(KNOWN, {})
    key, now = _key(kind, spec), time.monotonic()
    asked, held = known.get(key, (-FRESH_SECONDS, None))
    if held is None or now - asked > (FRESH_SECONDS if held.error is None else AGAIN_SECONDS):
        worker = supervisor().client()

        def ask() -> Generator[dict[str, Any]]:
            yield worker.forecast(kind, spec)

        known.pop(key, None)
        known[key] = now, Latest(ask)
        while len(known) > KEPT:
            known.pop(next(iter(known)))
    return known[key][1]


def _key(kind: str, spec: Mapping[str, Any]) -> str:
    return content_key([kind, dict(spec)])
