"""What a page keeps in the session besides its widgets.

It is one object with typed fields, under one key.
"""

from __future__ import annotations

from typing import ClassVar, Self

import streamlit as st


class PageState:
    """The base of a dataclass whose one object a session keeps.

    Its fields have defaults, which they are at until they are first changed. To change one, set it:
    the object itself stays in the session. Values of widgets do not belong here; streamlit keeps
    those by their keys.

        @dataclass
        class PruneState(PageState):
            key = "_prune"
            last_job: str = ""

        PruneState.of_session().last_job = job.key
    """

    key: ClassVar[str]
    """The session's key of the object, with an underscore before the name of the page."""

    @classmethod
    def of_session(cls) -> Self:
        """This session's object, at its defaults the first time."""
        state = st.session_state.get(cls.key)
        if not isinstance(state, cls):
            state = cls()
            st.session_state[cls.key] = state
        return state
