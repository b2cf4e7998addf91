"""Links between pages that carry what they are about."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

PAGES = {
    "overview": ("Overview", ":material/space_dashboard:"),
    "heads": ("Heads", ":material/grid_on:"),
    "languages": ("Languages", ":material/translate:"),
    "roles": ("Roles", ":material/category:"),
    "gates": ("Gates", ":material/door_open:"),
    "prune": ("Prune", ":material/content_cut:"),
    "masks": ("Masks", ":material/compare:"),
    "experiments": ("Experiments", ":material/science:"),
    "attention": ("Attention", ":material/visibility:"),
    "jobs": ("Jobs", ":material/checklist:"),
}


def page_link(name: str, label: str = "", more: Mapping[str, str | list[str]] | None = None, icon: str = "") -> None:
    """A link to a page with `more` parameters; the shared choice goes along by itself."""
    title, usual = PAGES[name]
    st.page_link(f"pages/{name}.py", label=label or title, icon=icon or usual, query_params=dict(more or {}))
