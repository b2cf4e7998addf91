"""The mask from any step of a training, or another method's of the same size.

It can be saved as a file or shown on the Prune page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import streamlit as st

from headlab.core import Floats, current_fingerprint, fingerprint_of, is_same_model
from headlab.dashboard.frame import Choice, open_page
from headlab.dashboard.names import language_title, plain
from headlab.dashboard.pages.gates.figures import accuracy_is_known, mask_of_scores
from headlab.dashboard.panels.masks import history_of, offer_mask_file, removal_warning
from headlab.dashboard.widgets import button, draw_map
from headlab.masks import Mask
from headlab.pictures import SWITCHES, head_map
from headlab.results import HeadScores, LearnedGates, Result, trained_folder

THESE_GATES = "These gates"
"""Where the mask is from: the run itself."""
OTHER_METHOD = "{} with as many heads"
"""Where the mask is from: the scores of the method of this name."""


def draw_mask(
    choice: Choice,
    result: Result[LearnedGates],
    scores: Mapping[str, HeadScores],
    weights: str | None,
) -> None:
    """The map at a step of the training, and the mask: as a file, and on the Prune page.

    Args:
        choice: The sidebar's.
        result: The run.
        scores: Of other methods, by method.
        weights: Fingerprint of the chosen model's weights; None if unknown.
    """
    gates = result.record
    map_column, mask_column = st.columns([6, 5], gap="large")
    with mask_column:
        names = [THESE_GATES, *(OTHER_METHOD.format(method) for method in scores)]
        mask_source = st.selectbox("Mask of", names, key=f"gates-whose-{len(names)}")
        steps = [int(step) for step in gates.steps]
        key = f"gates-step-{result.key[:12]}"
        step = st.select_slider(
            "After step", steps, value=steps[-1], key=key, disabled=mask_source != THESE_GATES
        )
        if mask_source == THESE_GATES:
            method = None
            mask = gates.mask(steps.index(step))
        else:
            method = list(scores)[names.index(mask_source) - 1]
            mask = mask_of_scores(gates, scores[method])
        _draw_exits(choice, result, mask, weights)
    with map_column:
        if method is None:
            _draw_gates_map(gates, mask, steps.index(step))
        else:
            kept_heads = mask.kept.astype(np.float64)
            _draw_map(
                gates,
                kept_heads,
                f"{method}: {int(kept_heads.sum())} heads kept",
                ["kept" if is_kept else "off" for is_kept in mask.kept],
            )


def _draw_gates_map(gates: LearnedGates, mask: Mask, step_index: int) -> None:
    open_probabilities = np.where(gates.has_gate, gates.open_probability[step_index], np.nan)
    tips = []
    for probability, is_kept in zip(open_probabilities, mask.kept, strict=True):
        tips.append(_tip_text(probability, bool(is_kept)))
    _draw_map(
        gates,
        open_probabilities,
        f"step {int(gates.steps[step_index])}: {int(mask.kept.sum())} heads kept",
        tips,
    )
    least_percent = 100 * (
        1 - float(gates.concrete.probability_zero(np.array(gates.concrete.even_log_alpha)))
    )
    st.caption(
        "Stronger colour: more likely open. The mask keeps a head whose gate is more likely 1 than 0, "
        f"which takes a probability of being open of at least {least_percent:.0f} %. Hatched: no "
        "gate, so it stays."
    )


def _draw_map(gates: LearnedGates, values: Floats, description: str, tips: list[str]) -> None:
    title = f"{language_title(gates.language)}, {description}"
    draw_map(
        head_map(values, gates.grid, limit=1.0, signed=False, tips=tips, own_scale=SWITCHES),
        key="gates-mask-map",
        title=title,
    )


def _tip_text(open_probability: float, is_kept: bool) -> str:
    gate_words = f"open with {100 * open_probability:.0f} %"
    if np.isnan(open_probability):
        gate_words = "no gate"
    return f"{gate_words}, {'kept' if is_kept else 'off'}"


def _draw_exits(
    choice: Choice, result: Result[LearnedGates], mask: Mask, weights: str | None
) -> None:
    """Export the mask as a file, or open it on the Prune page."""
    removed_count = len(mask.removed)
    st.markdown(f"**{removed_count} of {mask.grid.size} heads** would be off.")
    warning = removal_warning(mask.kept)
    if warning and not accuracy_is_known(result.record, mask):
        st.warning(warning)
    target, note = _model_for_mask(choice, result, mask, weights)
    if note:
        st.caption(note)
    with st.container(horizontal=True, gap="small"):
        button(
            "Try it on the Prune page",
            key="gates-prune",
            kind="primary",
            icon="content_cut",
            disabled=target is None,
            on_press=_open_on_prune_page,
            args=(choice, str(target), mask),
        )
        name = f"mask-gates-{result.record.language}-{removed_count}-off.json"
        offer_mask_file("Export the mask (JSON)", mask, name, key="gates-export")


def _model_for_mask(
    choice: Choice, result: Result[LearnedGates], mask: Mask, weights: str | None
) -> tuple[str | None, str]:
    """The model to try the mask on.

    Args:
        choice: The sidebar's.
        result: The run.
        mask: Of the run's model, or of that before the training.
        weights: Fingerprint of the chosen model's weights; None if unknown.

    Returns:
        Its name or folder, None if there is none here, and a note about it; empty if none is
        needed.
    """
    made_for = str(mask.model.get("fingerprint") or "")
    if is_same_model(made_for, fingerprint_of(result.record.spec)):
        if weights is None or weights == made_for:
            return choice.model, ""
        note = (
            f"{plain(choice.model)} has other weights now than those that the gates were learned "
            "on."
        )
        return None, note
    folder = trained_folder(result)
    if folder is None:
        note = (
            "The mask is of the model that was trained jointly, and that model is not in this "
            "cache."
        )
        return None, note
    note = "The mask is of the model that was trained jointly; it is in the cache folder."
    return str(folder), note


def _open_on_prune_page(choice: Choice, model: str, mask: Mask) -> None:
    """Make this the current mask of its model, then open the Prune page."""
    fingerprint = str(current_fingerprint(mask.model["fingerprint"]))
    history_of(fingerprint, mask.grid).set_mask(mask.kept, mask.chosen)
    open_page("prune", replace(choice, model=model))
