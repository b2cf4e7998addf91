"""Counting what other players than heads cost, from a model's modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import nn

from headlab.core import HEADS, KINDS_OF_HEADS, LAYERS
from headlab.hooks import Model, parts_of, widths_of, with_players
from headlab.shrink import parameters_of
from headlab.studies.player_costs import PartCost, PlayerCosts
from headlab.studies.savings import Costs


def player_costs(model: Model, whole: Costs) -> PlayerCosts:
    """The costs of a model whose players are other than heads alone.

    Args:
        model: The model with these players.
        whole: The costs of the same model and its heads.
    """
    player_set = model.player_set
    assert player_set is not None
    costs = PlayerCosts(whole.parameters, whole.macs, whole.layers, "", whole.vocabulary)
    kinds = set(player_set.players.kinds)
    if not whole.layers and kinds & {*KINDS_OF_HEADS, LAYERS}:
        return replace(costs, note=whole.note)
    if LAYERS in kinds and not with_players(model, HEADS).resumable:
        return replace(costs, layers=(), note="its layers give more than states")
    parts = parts_of(model)
    for linears in (parts.downs, parts.modules if LAYERS in kinds else ()):
        if len(set(linears)) < len(linears):
            note = f"the layers of {model.name} share their weights, so nothing leaves with one"
            return replace(costs, layers=(), note=note)
    if LAYERS in kinds and not parts.downs:
        return replace(costs, layers=(), note=f"a layer cannot be counted: {parts.why_no_neurons}")
    part_costs = []
    for number, layer in enumerate(parts.layers):
        neurons = parameters = macs = all_parameters = 0
        if parts.downs:
            neurons = parts.neurons[number]
            parameters, macs = _neuron_cost(parts.downs[number], parts.ups[number], neurons)
        if LAYERS in kinds:
            all_parameters = parameters_of(parts.modules[number])
        rows = layer.rows if whole.layers else ()
        part_costs.append(PartCost(rows, neurons, parameters, macs, all_parameters))
    return replace(costs, player_set=player_set, parts=tuple(part_costs))


def _neuron_cost(down: nn.Module, ups: Sequence[nn.Module], neurons: int) -> tuple[int, int]:
    """Parameters of one neuron, and its multiply-accumulates per token.

    Args:
        down: Down projection.
        ups: What makes the neurons.
        neurons: Their number.
    """
    weights = widths_of(down)[1]
    biases = 0
    for up in ups:
        inputs, outputs = widths_of(up)
        copies = outputs // neurons
        weights += copies * inputs
        biases += copies * (up.bias is not None)
    return weights + biases, weights
