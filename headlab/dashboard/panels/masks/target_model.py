"""The model that the Prune page would load, and which masks fit it."""

from __future__ import annotations

from typing import NamedTuple

from headlab.core import HeadGrid, fingerprint_of, is_same_model
from headlab.dashboard.frame import Choice, StoredScores, known_grid
from headlab.dashboard.panels.masks.history import histories_by_fingerprint
from headlab.dashboard.panels.stored import current_weights
from headlab.masks import Mask


class TargetModel(NamedTuple):
    """What is known of the chosen model.

    Attributes:
        fingerprint: Of its weights; None if it is not known.
        grid: Its heads; None if they are not known.
    """

    fingerprint: str | None
    grid: HeadGrid | None


def target_of(choice: Choice, results: StoredScores) -> TargetModel:
    """The chosen model, as known from the worker, the cached results and this session's pruning.

    Args:
        choice: The sidebar's.
        results: Its stored scores, which say the fingerprint where the worker does not.
    """
    fingerprint = current_weights(choice.model)
    if not fingerprint and results.first_scores is not None:
        fingerprint = str(fingerprint_of(results.first_scores.spec))
    if not fingerprint:
        return TargetModel(None, None)
    history = histories_by_fingerprint().get(fingerprint)
    if history is not None:
        return TargetModel(fingerprint, history.grid)
    return TargetModel(fingerprint, known_grid(fingerprint))


def why_not_openable(mask: Mask, target: TargetModel) -> str:
    """Why a mask cannot be opened on the Prune page of the chosen model; empty where it can."""
    made_for = mask.model.get("fingerprint")
    if target.fingerprint is None or (target.grid is None and not made_for):
        return (
            "The chosen model is not known here yet: open the Prune page once, or wait for the "
            "worker."
        )
    if made_for and not is_same_model(made_for, target.fingerprint):
        name = str(mask.model.get("name") or "another model")
        return (
            f"A mask made for {name} ({str(made_for)[:12]}) opens once that model is chosen in "
            "the sidebar."
        )
    if target.grid is not None and mask.grid != target.grid:
        return f"A mask of {mask.grid} does not fit the chosen model, which has {target.grid}."
    return ""
