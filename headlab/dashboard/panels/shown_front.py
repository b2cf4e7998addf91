"""Which front the Prune page shows: asked for by another page or by its link, or fitting its form best."""

from __future__ import annotations

import streamlit as st

from headlab.dashboard.names import (
    SHORT_KEY,
)

REQUESTED = "_front_requested"  # start of the key of the front that another page opens


def show_front_next(key: str) -> None:
    """Make the Prune page show this front next, whatever fits its form.

    Args:
        key: Full key of the front's report.
    """
    st.session_state[REQUESTED] = key[:SHORT_KEY]
