"""Can this model be used, and what do my own examples make of its heads?"""

from __future__ import annotations

from headlab.dashboard.frame import page
from headlab.dashboard.pages.own import parts


def draw_page() -> None:
    """Draw the page."""
    with page("own") as choice:
        parts.model_part(choice)
        parts.data_part(choice)
