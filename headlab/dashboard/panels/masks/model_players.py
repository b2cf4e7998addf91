"""What the worker says of a model's players: what they cost, and where the model has them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import streamlit as st

from headlab.core import HeadGrid, HeadlabError
from headlab.dashboard.frame import wait_for_result, worker_client
from headlab.dashboard.names import plain
from headlab.masks import ScriptModel
from headlab.studies.savings import Costs
from headlab.worker import LoadedModel, LoadedPlayers

MAX_KNOWN = 64
"""Players of models whose costs are kept; anybody's masks may have groups of their own."""
OF_OLDER_VERSION = "request.path_unknown"
"""Code of the refusal of a worker that knows no costs of players."""


@dataclass(frozen=True)
class ModelPlayers:
    """What is known of a model's heads or other players.

    Attributes:
        costs: What they cost; None where the worker does not say it.
        place: Where the model has them, for scripts.
        why_unknown: Why the worker does not say one of them, in a sentence; else empty.
    """

    costs: Costs | None
    place: ScriptModel
    why_unknown: str = ""


@st.cache_resource(show_spinner=False)
def _answers() -> dict[tuple[str, HeadGrid], LoadedPlayers]:
    """What the worker has said of players, by the fingerprint of their model."""
    return {}


def players_of_model(name: str, model: LoadedModel, grid: HeadGrid) -> ModelPlayers:
    """What is known of a model's players; the worker is asked once for it.

    Args:
        name: Under which the worker loads the model.
        model: The worker's description of it.
        grid: The players.
    """
    place = place_of(model, name)
    if grid.has_only_heads:
        return ModelPlayers(model.costs, place, _older_version(grid) if model.costs is None else "")
    try:
        answer = _answer_on(name, model.fingerprint, grid)
    except HeadlabError as error:
        if error.code == OF_OLDER_VERSION:
            return ModelPlayers(None, place, _older_version(grid))
        reason = plain(str(error).rstrip("."))
        return ModelPlayers(
            None, place, f"What this model's {grid.noun} cost is not known: {reason}."
        )
    cells = answer.player_cells
    place = replace(place, downs=answer.downs, layers=answer.layers, players=cells)
    return ModelPlayers(answer.costs, place, _without_cells(grid) if cells is None else "")


def place_of(loaded_model: LoadedModel, model_name: str) -> ScriptModel:
    """Where a model has its output projections.

    Args:
        loaded_model: The worker's description of it.
        model_name: What `headlab.load` takes.
    """
    return ScriptModel(
        loaded_model.projections,
        loaded_model.architecture,
        loaded_model.source,
        loaded_model.revision,
        model_name,
    )


def _older_version(grid: HeadGrid) -> str:
    """What is said where the worker knows nothing of it."""
    return (
        f"The worker does not say what this model's {grid.noun} cost: it is from an older version."
    )


def _without_cells(grid: HeadGrid) -> str:
    """What is said where an older worker has said what the players cost, but not what they are."""
    return (
        f"The worker does not say what this model's {grid.noun} contain: it is from an older "
        "version."
    )


def _answer_on(name: str, fingerprint: str, grid: HeadGrid) -> LoadedPlayers:
    """The worker's answer, or the one that it gave before. Raises HeadlabError if it refuses.

    Args:
        name: Of the model.
        fingerprint: Of its weights.
        grid: The players.
    """
    answers = _answers()
    key = (fingerprint, grid)
    answer = answers.get(key)
    if answer is None:
        answer = wait_for_result(partial(worker_client().players, name, grid))
        if len(answers) >= MAX_KNOWN:
            answers.clear()
        answers[key] = answer
    return answer
