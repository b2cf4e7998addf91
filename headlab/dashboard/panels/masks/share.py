"""Share: the link of what a page shows, its report, its map as a picture, and its mask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import resources
from typing import Any
from urllib.parse import urlsplit

import streamlit as st

from headlab.dashboard.frame import Choice, StoredScores, current_choice, link_params_of, scores_of
from headlab.dashboard.names import language_title, plain
from headlab.dashboard.panels.masks.known_masks import CURRENT_MASK, masks_of_prune_page
from headlab.dashboard.panels.masks.mask_files import mask_file_name
from headlab.dashboard.panels.masks.target_model import target_of
from headlab.dashboard.panels.stored import draw_label_form, page_report, page_report_name
from headlab.dashboard.streamlit_private import Popover
from headlab.dashboard.widgets import PageState, download_button, file_stem_of, remembered_choice
from headlab.masks import Mask
from headlab.report.map_picture import map_picture

COPY_BUTTON_HTML = (
    '<div class="copy"><button type="button">Copy link</button>'
    '<span class="told" role="status"></span></div>'
)
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


@dataclass
class PageView(PageState):
    """What the page of one session shows besides the sidebar's choice.

    Attributes:
        masks: By name; for the report of the view. Those of an earlier run stay until this one ends,
            as a click may come meanwhile.
        has_masks_of_run: Whether the run that is under way has said which they are.
    """

    key = "_view"
    masks: Mapping[str, Mask] = field(default_factory=dict)
    has_masks_of_run: bool = False


def show_masks_in_report(masks: Mapping[str, Mask]) -> None:
    """Let the report of this page hold masks, until another page is drawn.

    Args:
        masks: By name.
    """
    view = PageView.of_session()
    view.masks = dict(masks)
    view.has_masks_of_run = True


def place_share() -> Popover:
    """Draw the button that unfolds what can be shared, and return its place.

    It is filled by `draw_share` after the page.
    """
    PageView.of_session().has_masks_of_run = False
    return st.popover(
        "Share", icon=":material/share:", width="content", key="share", on_change="rerun"
    )


def draw_share(place: Popover) -> None:
    """Fill the place of `place_share`, if it is unfolded.

    Args:
        place: What `place_share` gave.
    """
    view = PageView.of_session()
    if not view.has_masks_of_run:  # a page without any
        view.masks = {}
    choice = current_choice()
    if choice is None or not place.open:
        return
    with place:
        _copy_button()(key="share-link", data={"params": full_link_params(choice)})
        st.caption(reach_of(st.context.url or ""))
        results = scores_of(choice)
        _offer_report(choice, results)
        _offer_map(choice, results)
        _offer_mask(choice, results)
        draw_label_form(results.scores)


def full_link_params(choice: Choice) -> dict[str, list[str]]:
    """All parameters of a link to this view; the browser's address leaves out what is the default.

    Args:
        choice: The sidebar's.
    """
    params = link_params_of(choice)
    for name in ("focus", "head"):
        chosen = remembered_choice(name)
        if chosen:
            params[name] = [str(chosen)]
    return params


def reach_of(address: str) -> str:
    """Who can open a link to this page, in a sentence.

    Args:
        address: Of the page, as the browser has it; empty where it is not known.
    """
    host = urlsplit(address).hostname or "this server"
    if host in LOCAL_HOSTS:
        return "The link opens this view, on this machine only."
    return f"The link opens this view for whoever can reach {host}."


@cache
def _copy_button() -> Callable[..., Any]:
    """The component that copies the browser's address."""
    files = resources.files("headlab.dashboard") / "static"
    renderer: Callable[..., Any] = st.components.v2.component(
        "headlab-copylink",
        html=COPY_BUTTON_HTML,
        css=(files / "copylink.css").read_text("utf-8"),
        js=(files / "copylink.js").read_text("utf-8"),
    )
    return renderer


def _offer_report(choice: Choice, results: StoredScores) -> None:
    """The button that saves what the page shows as one file, or why there is nothing to save.

    Args:
        choice: The sidebar's.
        results: Its stored scores.
    """
    view = PageView.of_session()
    if not results.scores and not view.masks:
        st.caption("No results of this choice are cached, so there is no report and no map of it.")
        return

    def report() -> bytes:
        return page_report(choice, tuple(results.scores.values()), view.masks)

    download_button(
        "Report of this view (HTML)",
        report,
        page_report_name(choice, results.scores),
        "text/html",
        key="view-report",
        help="One file with maps, tables and the commands that reproduce them; it needs no network.",
    )


def _offer_map(choice: Choice, results: StoredScores) -> None:
    """The button that saves the map of one language as a picture with its caption.

    Args:
        choice: The sidebar's.
        results: Its stored scores.
    """
    if not results.scores:
        return
    focus = remembered_choice("focus")
    language = focus if focus in results.scores else next(iter(results.scores))
    name = file_stem_of(f"map-{language}", (choice.model, choice.task, choice.method))
    download_button(
        f"Map of {plain(language_title(language))} (PNG)",
        partial(map_picture, results.scores, language),
        f"{name}.png",
        "image/png",
        key="share-map",
        help="With a caption that says what it shows and what it rests on",
    )


def _offer_mask(choice: Choice, results: StoredScores) -> None:
    """The button that saves the mask of the Prune page, if it switches a head of this model off.

    Args:
        choice: The sidebar's.
        results: Its stored scores.
    """
    mask = current_mask(choice, results)
    if mask is None:
        return
    download_button(
        f"Mask without {mask.grid.count_words(len(mask.removed))} (JSON)",
        mask.to_text,
        mask_file_name(mask, choice.model),
        "application/json",
        key="share-mask",
    )


def current_mask(choice: Choice, results: StoredScores) -> Mask | None:
    """The mask that the Prune page has of the choice's model; None if all heads are on.

    Args:
        choice: The sidebar's.
        results: Its stored scores.
    """
    target = target_of(choice, results)
    masks = masks_of_prune_page(choice, target.fingerprint)
    for name, mask in masks.items():
        if name.startswith(CURRENT_MASK) and mask.grid == target.grid:
            return mask
    return None
