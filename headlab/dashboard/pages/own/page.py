"""Can this model be used, and what do my own examples make of its heads?"""

from __future__ import annotations

from headlab.dashboard.frame import page
from headlab.dashboard.pages.own.data_part import draw_data_part
from headlab.dashboard.pages.own.model_part import draw_model_part


def draw_page() -> None:
    """Draw the page."""
    with page("own") as choice:
        draw_model_part(choice)
        draw_data_part(choice)
