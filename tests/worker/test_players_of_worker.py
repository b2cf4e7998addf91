"""What the worker says of a model's players: the numbers of `headlab worth`, and their places."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import json_output as json_output
from support.commands import run_command as run_command
from support.expected_errors import raises
from support.players_by_hand import playing
from support.saved_models import save_classifier
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.core import HeadlabError
from headlab.hooks import Model, load, script_model_of
from headlab.masks import Mask, full_mask, mask_script
from headlab.studies.player_costs import PlayerCosts
from headlab.studies.savings_run import costs_of, measure
from headlab.worker.model_host import ModelHost
from headlab.worker.schemas import LoadedPlayers, PlayersRequest

KINDS = [
    ("bert", "attention"),
    ("bert", "feed-forward"),
    ("bert", "neurons:2"),
    ("bert", "layers"),
    ("bert", "heads,neurons:2"),
    ("llama", "kv-groups"),
    ("llama", "heads,layers"),
    ("llama", "heads,neurons:2,feed-forward"),
    ("deberta-v2", "neurons:2"),
]


def asked_of_worker(folder: Path, model: Model, mask: Mask) -> LoadedPlayers:
    """The worker's answer, as a client reads it."""
    host = ModelHost(folder, "cpu", loader=lambda _: playing(model, "heads"))
    answer = host.players(PlayersRequest(model="tiny", mask=mask))
    return LoadedPlayers.model_validate_json(answer.model_dump_json())


def masks_of(model: Model) -> list[Mask]:
    """Masks with one player off, and with about half of those of each kind."""
    rng = np.random.default_rng(0)
    masks = []
    for _ in range(3):
        masks.append(Mask(model.grid, rng.random(model.grid.size) > 0.5, model.identity()))
    one_off = np.ones(model.grid.size, bool)
    one_off[-1] = False
    return [*masks, Mask(model.grid, one_off, model.identity())]


@pytest.mark.parametrize(("family", "players"), KINDS)
def test_the_answer_counts_what_worth_counts(tmp_path: Path, family: str, players: str) -> None:
    model = playing(tiny_model(family, tokenizer=tiny_tokenizer()), players)
    task = tiny_task().with_languages(["xx"])
    costs = asked_of_worker(tmp_path, model, full_mask(model.grid)).costs
    assert costs.baseline() == costs_of(model).baseline()
    for mask in masks_of(model):
        savings = measure(model, mask, task=task, batch_sizes=(1,), rounds=6, examples=1)
        tokens = savings.baseline.tokens
        assert costs.baseline(tokens) == savings.baseline
        assert savings.shrunk is not None, savings.refusal
        assert costs.shrunk(mask.kept, tokens) == savings.shrunk
        assert costs.masked_heads(mask.kept) == savings.still_masked


def test_heads_that_stay_with_others_are_counted() -> None:
    model = tiny_model("llama", tokenizer=tiny_tokenizer())
    task = tiny_task().with_languages(["xx"])
    costs = costs_of(model)
    for mask in masks_of(model):
        savings = measure(model, mask, task=task, batch_sizes=(1,), rounds=6, examples=1)
        assert costs.masked_heads(mask.kept) == savings.still_masked


def test_what_cannot_be_removed_has_a_reason(tmp_path: Path) -> None:
    model = playing(tiny_model("t5"), "layers")
    costs = asked_of_worker(tmp_path, model, full_mask(model.grid)).costs
    assert not costs.are_known
    assert costs.note == "its layers give more than states"
    assert costs.masked_heads(np.zeros(model.grid.size, bool)) == 0
    assert costs.baseline() == costs_of(model).baseline()


def test_the_places_are_those_of_the_parts(tmp_path: Path) -> None:
    model = playing(tiny_model("llama"), "neurons:2,layers")
    answer = asked_of_worker(tmp_path, model, full_mask(model.grid))
    assert answer.downs == [f"model.layers.{layer}.mlp.down_proj" for layer in range(3)]
    assert answer.layers == [f"model.layers.{layer}" for layer in range(3)]
    only_heads = playing(tiny_model("llama"), "kv-groups")
    answer = asked_of_worker(tmp_path, only_heads, full_mask(only_heads.grid))
    assert (answer.downs, answer.layers) == ([], [])


@pytest.mark.parametrize(
    ("family", "players"),
    [("t5", "layers"), ("deberta-v2", "attention"), ("bloom", "heads,neurons:2")],
)
def test_there_is_a_script_where_the_costs_are_unknown(
    tmp_path: Path, family: str, players: str
) -> None:
    model = playing(tiny_model(family, tokenizer=tiny_tokenizer()), players)
    mask = masks_of(model)[-1]
    answer = asked_of_worker(tmp_path, model, mask)
    assert not answer.costs.are_known
    of_command = script_model_of(model)
    of_page = replace(
        of_command, downs=answer.downs, layers=answer.layers, players=answer.player_cells
    )
    assert mask_script(mask, of_page) == mask_script(mask, of_command)


def test_what_players_contain_is_sent_once(tmp_path: Path) -> None:
    model = playing(tiny_model("bert"), "neurons:2")
    answer = asked_of_worker(tmp_path, model, full_mask(model.grid))
    assert answer.cells is None
    assert answer.player_cells is answer.costs.player_set
    unknown = playing(tiny_model("t5"), "layers")
    answer = asked_of_worker(tmp_path, unknown, full_mask(unknown.grid))
    record = answer.model_dump(mode="json")
    assert answer.player_cells is not None
    assert answer.player_cells.cells_to_json() == record["cells"]
    del record["cells"]  # as an older worker answers
    assert LoadedPlayers.model_validate(record).player_cells is None
    record["cells"] = {"grid": {}}
    with pytest.raises(HeadlabError) as caught:
        LoadedPlayers.model_validate(record)
    assert caught.value.code == "players.malformed"


def test_heads_and_other_models_are_refused(tmp_path: Path) -> None:
    model = tiny_model("bert")
    with raises("players.are_heads"):
        asked_of_worker(tmp_path, model, full_mask(model.grid))
    other = playing(tiny_model("llama"), "feed-forward")
    with raises("mask.other_grid"):
        asked_of_worker(tmp_path, model, full_mask(other.grid))


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value.pop("parts"),
        lambda value: value["parts"].pop(),
        lambda value: value["parts"][0].update(neurons=-1),
        lambda value: value["parts"][0].update(rows=[99]),
        lambda value: value["player_set"].pop("grid"),
        lambda value: value["player_set"].update(members={}),
        lambda value: value["player_set"]["layer_rows"].append(99),
        lambda value: value["player_set"]["neuron_rows"].pop(),
        lambda value: value["player_set"]["neurons"].__setitem__(0, 5),
        lambda value: value["player_set"]["head_cells"][0][0][0].__setitem__(0, 99),
        lambda value: value["player_set"]["head_cells"][0].pop(),
        lambda value: value["player_set"].update(heads={"encoder": [1]}),
    ],
)
def test_a_malformed_answer_is_refused(change: Callable[[Any], Any]) -> None:
    model = playing(tiny_model("bert"), "heads,neurons:2,layers")
    costs = costs_of(model)
    assert isinstance(costs, PlayerCosts)
    text = json.dumps(costs.to_json())
    assert PlayerCosts.from_json(json.loads(text)).to_json() == json.loads(text)
    value = json.loads(text)
    change(value)
    with pytest.raises(HeadlabError) as caught:
        PlayerCosts.from_json(value)
    assert caught.value.code in ("costs.malformed", "players.malformed")


@pytest.mark.parametrize("players", ["neurons:2", "heads,neurons:2", "layers", "attention"])
def test_the_command_says_the_same(
    tmp_path: Path, json_output: Callable[..., Any], players: str
) -> None:
    folder = save_classifier(tmp_path / "tiny")
    model = playing(load(str(folder), device="cpu"), players)
    mask = masks_of(model)[0]
    mask.save(tmp_path / "mask.json")
    command = ["worth", "--model", folder, "--mask", tmp_path / "mask.json", "--device", "cpu"]
    command += ["--task", "intents", "--languages", "de", "--rounds", 6, "--batch-sizes", 1]
    record = json_output(*command, "--examples", 1)
    costs = asked_of_worker(tmp_path, model, mask).costs
    counted = costs.shrunk(mask.kept, record["tokens"])
    assert counted.parameters == record["parameters"]["shrunk"]
    assert counted.macs == record["macs"]["shrunk"]
    assert costs.parameters == record["parameters"]["untouched"]
    assert f"of {mask.grid.count_words(mask.grid.size)} saves" in record["notes"][2]
