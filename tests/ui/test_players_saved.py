"""What masks of other players than heads save and where they are used, on the Prune page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest
from support.app_pages import page_text, shown_text
from support.expected_errors import raises
from support.fake_client import FakeClient, job_row, loaded_model
from support.players_by_hand import playing
from support.tiny_models import tiny_model

from headlab.core import HeadlabError
from headlab.dashboard.frame import Choice
from headlab.dashboard.pages.prune import savings
from headlab.dashboard.pages.prune.savings import estimate_job, newest_measured, worth_job
from headlab.dashboard.panels.masks import model_players
from headlab.dashboard.panels.masks.mask_files import others_off
from headlab.dashboard.panels.masks.model_players import ModelPlayers, players_of_model
from headlab.hooks import Model, script_model_of
from headlab.masks import Mask, mask_script
from headlab.shrink import shrink_model, shrink_players
from headlab.studies.player_costs import PlayerCosts
from headlab.studies.savings import MeasuredSpeed, ModelCost, Ratio, Savings
from headlab.studies.savings_run import costs_of
from headlab.worker import LoadedPlayers

pytestmark = pytest.mark.usefixtures("native_buttons")
CHOICE = Choice("tiny", "intents", ("de",), "shapley", players="neurons:2")


def mask_without(model: Model, *removed: int) -> Mask:
    kept = np.ones(model.grid.size, bool)
    kept[list(removed)] = False
    return Mask(model.grid, kept, model.identity())


def counts_of(model: Model, mask: Mask) -> AppTest:
    def body(costs, mask):
        from headlab.dashboard.pages.prune.savings import draw_counts

        draw_counts(costs, mask)

    app = AppTest.from_function(body, args=(costs_of(model), mask), default_timeout=30).run()
    assert not app.exception
    return app


def test_the_counts_are_of_the_players_that_are_off() -> None:
    model = playing(tiny_model("bert"), "neurons:2")
    costs = costs_of(model)
    app = counts_of(model, mask_without(model, 0, 3))
    saved = 2 * 16 * (24 + 1 + 24)
    share = round(100 * saved / costs.parameters, 1)
    assert app.metric[0].delta == f"−{share} %"
    (caption,) = (shown_text(caption) for caption in app.caption)
    assert caption.startswith("After removing the groups of neurons that are off from the weights.")
    assert "a group of neurons that is off is computed like any other" in caption
    assert "head" not in caption
    app = counts_of(model, mask_without(model))
    assert [metric.delta for metric in app.metric] == ["unchanged", "unchanged"]
    assert "After removing" not in page_text(app)


def test_the_words_are_those_of_the_players() -> None:
    attention = playing(tiny_model("bert"), "attention")
    assert "an attention block that is off" in page_text(
        counts_of(attention, mask_without(attention, 0))
    )
    layers = playing(tiny_model("t5"), "layers")
    text = page_text(counts_of(layers, mask_without(layers, 0)))
    assert "No layer of this model can be removed: its layers give more than states." in text
    joint = playing(tiny_model("llama"), "heads,neurons:2")
    text = page_text(counts_of(joint, mask_without(joint, 0)))
    assert "Heads that share a key and a value with one that is on stay: 1." in text


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"ablation": "mean"}, "chosen under mean ablation: they go on giving their mean"),
        ({"ablation": "resample"}, "on another or a shorter text, which no weights can hold"),
        ({"ablation": "streaming:4,64"}, "on another or a shorter text, which no weights can hold"),
        ({"combined": [{"ablation": "mean"}, {"ablation": "zero"}]}, "so they cannot leave"),
    ],
)
def test_what_cannot_leave_the_weights_saves_nothing(chosen: dict[str, Any], words: str) -> None:
    model = tiny_model("bert")
    mask = replace(mask_without(model, 0, 1, 2, 3), chosen={"rule": "bottom", **chosen})
    with pytest.raises(HeadlabError):
        shrink_model(model, mask)
    app = counts_of(model, mask)
    assert [metric.delta for metric in app.metric] == ["unchanged", "unchanged"]
    (caption,) = (shown_text(caption) for caption in app.caption)
    assert caption.startswith("This mask saves nothing. These heads were chosen")
    assert words in caption
    assert "After removing" not in caption
    layers = playing(tiny_model("t5"), "layers")
    not_removable = replace(mask_without(layers, 0), chosen={"ablation": "mean"})
    assert "No layer of this model can be removed" in page_text(counts_of(layers, not_removable))


def test_the_same_heads_save_where_they_were_chosen_under_zero_ablation() -> None:
    model = tiny_model("bert")
    for chosen in ({}, {"rule": "bottom", "ablation": "zero"}):
        mask = replace(mask_without(model, 0, 1, 2, 3), chosen=chosen)
        saved = 100 * (1 - shrink_model(model, mask).parameters_after / costs_of(model).parameters)
        app = counts_of(model, mask)
        assert app.metric[0].delta == f"−{round(saved, 1)} %"
        assert "After removing the heads that are off from the weights." in page_text(app)
    nothing_off = replace(mask_without(model), chosen={"ablation": "mean"})
    assert "This mask saves nothing" not in page_text(counts_of(model, nothing_off))


def test_a_speed_is_said_to_be_of_another_model_where_the_heads_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(savings, "forecast_seconds", lambda job: None)

    def body(choice, mask):
        from headlab.dashboard.pages.prune.savings import draw_speed

        draw_speed(choice, mask, [], "worth")

    words = "neither answers as this mask does"
    for ablation, is_said in (("mean", True), ("resample", True), ("zero", False)):
        mask = replace(mask_without(tiny_model("bert"), 0), chosen={"ablation": ablation})
        app = AppTest.from_function(body, args=(CHOICE, mask), default_timeout=30).run()
        assert not app.exception
        assert (words in page_text(app)) == is_said


def test_a_model_without_layers_is_not_counted() -> None:
    model = playing(tiny_model("bert"), "layers")
    without_any = mask_without(model, 0, 1, 2)
    with raises("shrink.no_layer_left"):
        shrink_players(model, without_any)
    app = counts_of(model, without_any)
    assert not app.metric
    assert "There is nothing to count: this mask closes every layer of the encoder" in page_text(
        app
    )
    without_two = mask_without(model, 0, 1)
    saved = 100 * (
        1 - shrink_players(model, without_two).parameters_after / costs_of(model).parameters
    )
    assert counts_of(model, without_two).metric[0].delta == f"−{round(saved, 1)} %"


class KnowingClient(FakeClient):
    """A client of a worker that knows what players cost."""

    def __init__(self, costs: PlayerCosts) -> None:
        super().__init__()
        self.costs = costs
        self.asked = 0

    def players(self, model: str, grid: Any) -> LoadedPlayers:
        self.asked += 1
        assert grid == self.costs.player_set.grid
        return LoadedPlayers(costs=self.costs, downs=["a.0.down"], layers=[])


def test_the_worker_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = playing(tiny_model("bert"), "neurons:2")
    client = KnowingClient(costs_of(model))
    monkeypatch.setattr(model_players, "worker_client", lambda: client)
    st.cache_resource.clear()
    for _ in range(2):
        known = players_of_model("tiny", loaded_model("tiny"), model.grid)
    assert client.asked == 1
    assert known.costs is client.costs
    assert (known.place.downs, known.place.players) == (["a.0.down"], client.costs.player_set)
    assert known.why_unknown == ""
    heads = tiny_model("bert").grid
    known = players_of_model("tiny", loaded_model("tiny", costs=None), heads)
    assert "what this model's heads cost: it is from an older version" in known.why_unknown
    assert client.asked == 1


def test_a_worker_that_knows_nothing_of_players_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    st.cache_resource.clear()
    model = playing(tiny_model("bert"), "neurons:2")
    monkeypatch.setattr(model_players, "worker_client", FakeClient)
    known = players_of_model("tiny", loaded_model("tiny"), model.grid)
    assert known.costs is None
    assert known.why_unknown == (
        "The worker does not say what this model's groups of neurons cost: it is from an older version."
    )

    class Refusing(FakeClient):
        def players(self, model: str, grid: Any) -> LoadedPlayers:
            raise HeadlabError("its layers share_weights.", code="players.no_feed_forward")

    monkeypatch.setattr(model_players, "worker_client", Refusing)
    known = players_of_model("tiny", loaded_model("tiny"), model.grid)
    assert known.why_unknown.startswith(
        "What this model's groups of neurons cost is not known: its layer"
    )

    def body(choice, known, mask):
        from headlab.dashboard.pages.prune.savings import draw_savings

        draw_savings(choice, known, mask, [])

    app = AppTest.from_function(
        body, args=(CHOICE, known, mask_without(model)), default_timeout=30
    ).run()
    assert not app.exception
    assert "is not known" in page_text(app)


def used_elsewhere(mask: Mask, known: ModelPlayers) -> AppTest:
    def body(mask, known):
        from headlab.dashboard.panels.masks.mask_files import draw_use_elsewhere

        draw_use_elsewhere(mask, known.place, known.why_unknown)

    app = AppTest.from_function(body, args=(mask, known), default_timeout=30).run()
    assert not app.exception
    return app


def test_a_mask_of_players_is_offered_as_a_script_and_in_forms_where_heads_alone_are_off() -> None:
    model = playing(tiny_model("bert"), "heads,neurons:2")
    known = ModelPlayers(costs_of(model), script_model_of(model))
    only_a_head, with_a_group = mask_without(model, 1), mask_without(model, 1, 12)
    app = used_elsewhere(only_a_head, known)
    script, form = (block.value for block in app.code)
    assert "Switches 1 of 12 attention heads" in script
    assert form == '{"0": [1]}'
    app = used_elsewhere(with_a_group, known)
    (script,) = (block.value for block in app.code)
    assert "Switches 2 of 18 players" in script
    text = page_text(app)
    assert "Other tools know attention heads only, and here 1 group of neurons is off." in text
    app = used_elsewhere(mask_without(model), known)
    assert "All players are on: there is nothing to switch off elsewhere." in page_text(app)
    unknown = ModelPlayers(None, replace(known.place, players=None), "The worker is old.")
    text = page_text(used_elsewhere(with_a_group, unknown))
    assert "There is no script for this mask. The worker is old." in text
    text = used_elsewhere(only_a_head, unknown)
    assert [block.value for block in text.code][1] == '{"0": [1]}'


def test_a_mask_has_a_script_on_the_page_where_nothing_can_be_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = playing(tiny_model("t5"), "layers")
    described = script_model_of(model)
    described_heads = loaded_model(
        "tiny",
        architecture=dict(described.architecture),
        projections=list(described.projections),
        source="tiny",
    )
    costs = costs_of(model)
    assert isinstance(costs, PlayerCosts)
    assert not costs.are_known

    class Knowing(FakeClient):
        cells: Any = described.players

        def players(self, model: str, grid: Any) -> LoadedPlayers:
            paths = {"downs": list(described.downs), "layers": list(described.layers)}
            return LoadedPlayers(costs=costs, cells=self.cells, **paths)

    class Older(Knowing):
        cells = None

    monkeypatch.setattr(model_players, "worker_client", Knowing)
    st.cache_resource.clear()
    mask = mask_without(model, 1)
    known = players_of_model("tiny", described_heads, model.grid)
    assert known.why_unknown == ""
    app = used_elsewhere(mask, known)
    (script,) = (block.value for block in app.code)
    assert script.strip() == mask_script(mask, known.place).strip()
    assert "here 1 layer is off. The script switches off all of it." in page_text(app)
    monkeypatch.setattr(model_players, "worker_client", Older)
    st.cache_resource.clear()
    known = players_of_model("tiny", described_heads, model.grid)
    assert known.costs is costs
    app = used_elsewhere(mask, known)
    assert not app.code
    text = page_text(app)
    assert (
        "There is no script for this mask. The worker does not say what this model's layers contain"
    ) in text
    assert "The script switches off all of it" not in text


def test_what_is_off_is_counted_by_kind() -> None:
    model = playing(tiny_model("bert"), "attention,neurons:2,layers")
    assert others_off(mask_without(model, 0)) == "1 attention block is"
    assert others_off(mask_without(model, 0, 1, 4, 10)) == (
        "2 attention blocks, 1 group of neurons and 1 layer are"
    )


def test_a_measurement_of_players_is_found_again() -> None:
    model = playing(tiny_model("bert"), "neurons:2")
    mask = mask_without(model, 0)
    speed = MeasuredSpeed("cpu", 8, 10, 10.0, *[Ratio(0.9, 0.8, 1.1, 0.95, 9)] * 2)
    cost = ModelCost(10, 10, 10)
    savings = Savings(6, 1, cost, cost, (speed,), spec={"rounds": 9, "players": "neurons:2"})
    row = job_row(
        1,
        "done",
        kind="worth",
        params=estimate_job(CHOICE, mask).params(),
        result={"worth": savings.to_json()},
    )
    measurement = newest_measured([row], "tiny", mask, "intents", ["de"])
    assert measurement is not None
    assert measurement.is_estimate
    assert "group of neurons that is off" in " ".join(measurement.savings.sentences())
    assert newest_measured([row], "tiny", mask_without(model, 1)) is None
    (stack,) = mask.grid.stacks
    members = tuple(tuple(1 - group for group in layer) for layer in stack.members or ())
    other_groups = replace(mask.grid, stacks=(replace(stack, members=members),))
    assert newest_measured([row], "tiny", Mask(other_groups, mask.kept, mask.model)) is None
    assert ("Groups of neurons off", "1") in worth_job(CHOICE, mask).details()
