"""A mask from any point: a run at its end or at a time before, or another method's of the same size."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import streamlit as st

from headlab.l0_gates import LearnedGates
from headlab.masks import Mask
from headlab.records import Floats
from headlab.scores import HeadScores
from headlab.store import GatesResult
from headlab.ui.experiments_store import part
from headlab.ui.gates_against import mask_of
from headlab.ui.headgrid import head_map
from headlab.ui.history import history
from headlab.ui.names import language_title
from headlab.ui.presses import button
from headlab.ui.prune_suggest import risk
from headlab.ui.shell import Choice, go

OWN = "These gates"
OTHER = "{} with as many heads"


def draw(choice: Choice, result: GatesResult, scores: Mapping[str, HeadScores], weights: str | None) -> None:
    """The map at a time of the training, and the mask: as a file, and on the Prune page.

    scores: of other methods.  weights: fingerprint of the chosen model's weights, None if it is not known.
    """
    gates = result.gates
    left, right = st.columns([6, 5], gap="large")
    with right:
        names = [OWN, *(OTHER.format(method) for method in scores)]
        whose = st.selectbox("Mask of", names, key=f"gates-whose-{len(names)}")
        steps = [int(step) for step in gates.steps]
        key = f"gates-step-{result.key[:12]}"
        step = st.select_slider("After step", steps, value=steps[-1], key=key, disabled=whose != OWN)
        time = steps.index(step) if whose == OWN else -1
        method = list(scores)[names.index(whose) - 1] if whose != OWN else None
        mask = gates.mask(time) if method is None else mask_of(gates, scores[method])
        _take(choice, result, mask, weights)
    with left:
        if method is None:
            _likely(gates, mask, time)
        else:
            kept = mask.kept.astype(np.float64)
            _map(gates, kept, f"{method}: {int(kept.sum())} heads kept", ["kept" if on else "off" for on in mask.kept])


def _likely(gates: LearnedGates, mask: Mask, time: int) -> None:
    likely = np.where(gates.gated, gates.open_probability[time], np.nan)
    tips = [_tip(p, bool(kept)) for p, kept in zip(likely, mask.kept, strict=True)]
    _map(gates, likely, f"step {int(gates.steps[time])}: {int(mask.kept.sum())} heads kept", tips)
    even = 100 * (1 - float(gates.concrete.zero(np.array(gates.concrete.even))))
    st.caption(
        f"The darker, the likelier open. The mask keeps a head whose gate is likelier 1 than 0: from {even:.0f} % on. "
        "Hatched: no gate, so it stays."
    )


def _map(gates: LearnedGates, values: Floats, told: str, tips: list[str]) -> None:
    title = f"{language_title(gates.language)}, {told}"
    head_map(values, gates.grid, key="gates-mask-map", title=title, limit=1.0, tips=tips, signed=False)


def _tip(likely: float, kept: bool) -> str:
    told = "no gate" if np.isnan(likely) else f"open with {100 * likely:.0f} %"
    return f"{told}, {'kept' if kept else 'off'}"


def _take(choice: Choice, result: GatesResult, mask: Mask, weights: str | None) -> None:
    """The way out: a file, or the Prune page."""
    off, size = len(mask.removed), mask.grid.size
    st.markdown(f"**{off} of {size} heads** would be off.")
    if sentence := risk(mask.kept):
        st.warning(sentence)
    target, trouble = _model_of(choice, result, mask, weights)
    if trouble:
        st.caption(trouble)
    with st.container(horizontal=True, gap="small"):
        button(
            "Try it on the Prune page", key="gates-prune", kind="primary", icon="content_cut",
            disabled=target is None, on_press=_prune, args=(choice, str(target), mask),
        )  # fmt: skip
        st.download_button(
            "Export the mask (JSON)", json.dumps(mask.to_json(), ensure_ascii=False, indent=1),
            f"mask-gates-{result.gates.language}-{off}-off.json", "application/json", key="gates-export",
            on_click="ignore", icon=":material/download:",
        )  # fmt: skip


def _model_of(choice: Choice, result: GatesResult, mask: Mask, weights: str | None) -> tuple[str | None, str]:
    """The model that the mask can be tried on, None if there is none here; and what to know about that."""
    made_for = str(mask.model.get("fingerprint") or "")
    if made_for == part(result.gates.spec, "model", "fingerprint"):
        if weights is None or weights == made_for:
            return choice.model, ""
        return None, f"{choice.model} has other weights now than those that the gates were learned on."
    folder = result.trained_folder
    if folder is None:
        return None, "The mask is of the model that was trained jointly, and that model is not in this cache."
    return str(folder), "The mask is of the model that was trained jointly; it is in the cache folder."


def _prune(choice: Choice, model: str, mask: Mask) -> None:
    """Make the mask the present one of its model, then turn to the Prune page."""
    history(str(mask.model["fingerprint"]), mask.grid).put(mask.kept, mask.chosen)
    go("prune", Choice(model, choice.task, choice.languages, choice.method))
