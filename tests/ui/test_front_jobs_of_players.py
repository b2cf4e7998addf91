"""Front and worth jobs of other players than heads: where pages show them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headlab.core import HeadGrid
from headlab.dashboard.frame import Choice
from headlab.dashboard.names import PRUNE_TAB, PRUNE_TABS
from headlab.dashboard.pages.jobs import openers
from headlab.dashboard.pages.prune import front_growth
from headlab.jobs.table import FrontJob, WorthJob
from headlab.masks import Mask
from headlab.methods import METHODS

CHOICE = Choice("tiny", "intents", ("de",), "shapley")
LAYERS = HeadGrid.from_json({"encoder-layers": [1, 1, 1]})


def front_job(players: str) -> FrontJob:
    return FrontJob.model_construct(
        model="tiny",
        task="intents",
        languages=["de"],
        method="shapley",
        options={"players": players},
    )


def row_of(job: object) -> Any:
    return SimpleNamespace(job=job, id=1, state="done", result=None)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What openers set, and the choice that a page is opened with."""
    seen: dict[str, Any] = {}
    monkeypatch.setattr(openers, "set_widget", seen.__setitem__)
    monkeypatch.setattr(openers, "open_page", lambda page, choice: seen.update({page: choice}))
    monkeypatch.setattr(openers, "current_choice", lambda: CHOICE)
    history = SimpleNamespace(set_mask=lambda *_: None)
    monkeypatch.setattr(openers, "history_of", lambda *_: history)
    return seen


def test_a_front_of_players_is_not_drawn_among_those_of_heads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [row_of(front_job("heads")), row_of(front_job("neurons:8"))]
    monkeypatch.setattr(front_growth, "live_jobs", lambda: rows)
    monkeypatch.setattr(front_growth, "job_of_row", lambda row: row.job)
    assert front_growth.fronts_under_way(CHOICE) == rows[:1]
    of_neurons = replace(CHOICE, players="neurons:8")
    assert front_growth.fronts_under_way(of_neurons) == rows[1:]
    title = METHODS["shapley"].title
    assert rows[1].job.subject() == f"Front of smaller models, neurons in 8 groups, {title}"
    assert "heads" not in rows[0].job.subject()
    assert "wheels" in front_job("wheels").subject()  # another program's


def test_a_front_opens_among_those_of_its_players(opened: dict[str, Any]) -> None:
    openers.JOB_OPENERS[FrontJob.key](front_job("neurons:8"), row_of(None))
    assert opened["prune"].players == "neurons:8"
    assert opened[PRUNE_TAB] == PRUNE_TABS[1]
    openers.JOB_OPENERS[FrontJob.key](front_job("heads"), row_of(None))
    assert opened["prune"].players == "heads"
    assert opened[PRUNE_TAB] == PRUNE_TABS[1]


def test_a_mask_of_layers_whose_worth_was_measured_opens_among_layers(
    opened: dict[str, Any],
) -> None:
    mask = Mask(LAYERS, np.array([True, False, True]), {"name": "tiny", "fingerprint": "f" * 64})
    job = WorthJob.model_construct(model="tiny", task="intents", mask=mask.to_json())
    openers.OPENERS["prune"](job, row_of(None))
    assert opened["prune"].players == "layers"
