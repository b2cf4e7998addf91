"""The mask from any step of a training, or another method's of the same size: as a file, and on the Prune page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import streamlit as st

from headlab.core import Floats, current_fingerprint, fingerprint_of, is_same_model
from headlab.dashboard.frame import Choice, open_page
from headlab.dashboard.names import language_title, plain
from headlab.dashboard.pages.gates.figures import mask_of, measured
from headlab.dashboard.panels.history import history_of
from headlab.dashboard.panels.mask_files import offer_mask_file
from headlab.dashboard.panels.suggestion import removal_warning
from headlab.dashboard.widgets import button, draw_map
from headlab.masks import Mask
from headlab.pictures import head_map
from headlab.results import HeadScores, LearnedGates, Result, trained_folder

OWN = "These gates"

OTHER = "{} with as many heads"


def draw_mask(
    choice: Choice,
    result: Result[LearnedGates],
    scores: Mapping[str, HeadScores],
    weights: str | None,
) -> None:
    """The map at a step of the training, and the mask: as a file, and on the Prune page.

    scores: of other methods.  weights: fingerprint of the chosen model's weights, None if unknown.
    """
    gates = result.record
    left, right = st.columns([6, 5], gap="large")
    with right:
        names = [OWN, *(OTHER.format(method) for method in scores)]
        whose = st.selectbox("Mask of", names, key=f"gates-whose-{len(names)}")
        steps = [int(step) for step in gates.steps]
        key = f"gates-step-{result.key[:12]}"
        step = st.select_slider(
            "After step", steps, value=steps[-1], key=key, disabled=whose != OWN
        )
        time = steps.index(step) if whose == OWN else -1
        method = list(scores)[names.index(whose) - 1] if whose != OWN else None
        mask = gates.mask(time) if method is None else mask_of(gates, scores[method])
        _take(choice, result, mask, weights)
    with left:
        if method is None:
            _likely(gates, mask, time)
        else:
            kept = mask.kept.astype(np.float64)
            _map(
                gates,
                kept,
                f"{method}: {int(kept.sum())} heads kept",
                ["kept" if on else "off" for on in mask.kept],
            )


def _likely(gates: LearnedGates, mask: Mask, time: int) -> None:
    likely = np.where(gates.gated, gates.open_probability[time], np.nan)
    tips = [_tip(p, bool(kept)) for p, kept in zip(likely, mask.kept, strict=True)]
    _map(gates, likely, f"step {int(gates.steps[time])}: {int(mask.kept.sum())} heads kept", tips)
    even = 100 * (1 - float(gates.concrete.zero(np.array(gates.concrete.even))))
    st.caption(
        "Darker: more likely open. The mask keeps a head whose gate is more likely 1 than 0, which takes a probability "
        f"of being open of at least {even:.0f} %. Hatched: no gate, so it stays."
    )


def _map(gates: LearnedGates, values: Floats, told: str, tips: list[str]) -> None:
    title = f"{language_title(gates.language)}, {told}"
    draw_map(
        head_map(values, gates.grid, limit=1.0, signed=False, tips=tips),
        key="gates-mask-map",
        title=title,
    )


def _tip(likely: float, kept: bool) -> str:
    told = "no gate" if np.isnan(likely) else f"open with {100 * likely:.0f} %"
    return f"{told}, {'kept' if kept else 'off'}"


def _take(choice: Choice, result: Result[LearnedGates], mask: Mask, weights: str | None) -> None:
    """Export the mask as a file, or open it on the Prune page."""
    off, size = len(mask.removed), mask.grid.size
    st.markdown(f"**{off} of {size} heads** would be off.")
    if not measured(result.record, mask) and (sentence := removal_warning(mask.kept)):
        st.warning(sentence)
    target, trouble = _model_of(choice, result, mask, weights)
    if trouble:
        st.caption(trouble)
    with st.container(horizontal=True, gap="small"):
        button(
            "Try it on the Prune page",
            key="gates-prune",
            kind="primary",
            icon="content_cut",
            disabled=target is None,
            on_press=_prune,
            args=(choice, str(target), mask),
        )
        name = f"mask-gates-{result.record.language}-{off}-off.json"
        offer_mask_file("Export the mask (JSON)", mask, name, key="gates-export")


def _model_of(
    choice: Choice, result: Result[LearnedGates], mask: Mask, weights: str | None
) -> tuple[str | None, str]:
    """The model to try the mask on, None if there is none here, and a note about it."""
    made_for = str(mask.model.get("fingerprint") or "")
    if is_same_model(made_for, fingerprint_of(result.record.spec)):
        if weights is None or weights == made_for:
            return choice.model, ""
        return (
            None,
            f"{plain(choice.model)} has other weights now than those that the gates were learned on.",
        )
    folder = trained_folder(result)
    if folder is None:
        return (
            None,
            "The mask is of the model that was trained jointly, and that model is not in this cache.",
        )
    return str(
        folder
    ), "The mask is of the model that was trained jointly; it is in the cache folder."


def _prune(choice: Choice, model: str, mask: Mask) -> None:
    """Make this the current mask of its model, then open the Prune page."""
    history_of(str(current_fingerprint(mask.model["fingerprint"])), mask.grid).put(
        mask.kept, mask.chosen
    )
    open_page("prune", replace(choice, model=model))
