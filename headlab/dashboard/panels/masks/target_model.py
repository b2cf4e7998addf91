"""The model that the Prune page would load, and which masks fit it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from headlab.core import (
    HEADS,
    HeadGrid,
    fingerprint_of,
    is_same_model,
    players_of,
    players_phrase,
)
from headlab.dashboard.frame import Choice, StoredScores, known_grid, players_grid
from headlab.dashboard.panels.masks.history import histories_by_fingerprint
from headlab.dashboard.panels.stored import current_weights
from headlab.masks import Mask


class TargetModel(NamedTuple):
    """What is known of the chosen model.

    Attributes:
        fingerprint: Of its weights; None if it is not known.
        grid: Its heads, or what else is switched; None if they are not known.
        choice: The sidebar's, if masks of other players may be opened too.
    """

    fingerprint: str | None
    grid: HeadGrid | None
    choice: Choice | None = None


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
    if choice.players != HEADS:
        return TargetModel(fingerprint, players_grid(choice), choice)
    history = histories_by_fingerprint().get(fingerprint)
    if history is not None:
        return TargetModel(fingerprint, history.grid, choice)
    return TargetModel(fingerprint, known_grid(fingerprint), choice)


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
    grid = target.grid
    if target.choice is not None and grid is not None and mask.grid.kinds != grid.kinds:
        grid = _grid_of_kinds(mask, target.choice, target.fingerprint)
        if grid is None:
            phrase = players_phrase(str(players_of(mask.grid)))
            return f"No scores of {phrase} are stored for the chosen model and task: compute them first."
    if grid is not None and mask.grid != grid:
        if mask.grid.to_json() == grid.to_json():
            return "The mask has other groups of neurons than the stored scores of the chosen task."
        return f"A mask of {mask.grid} does not fit the chosen model, which has {grid}."
    return ""


def _grid_of_kinds(mask: Mask, choice: Choice, fingerprint: str) -> HeadGrid | None:
    """The players of the chosen model that are of a mask's kinds; None if they are not known.

    Args:
        mask: The mask.
        choice: The sidebar's, of other kinds.
        fingerprint: Of the model's weights.
    """
    if mask.grid.has_only_heads:
        return known_grid(fingerprint)
    return players_grid(replace(choice, players=str(players_of(mask.grid)), variant=""))
