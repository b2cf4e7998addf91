"""What a mask of any players keeps of a model: heads, neurons and whole layers."""

from __future__ import annotations

from dataclasses import dataclass

from headlab.core import Bools
from headlab.hooks import Model, parts_of
from headlab.masks import Mask


@dataclass(frozen=True)
class KeptParts:
    """What a mask keeps of a model.

    Attributes:
        heads: Which heads stay, bool [head] in the order of the model's grid of heads.
        neurons: (path of the down projection, which of its neurons stay, bool [neuron]) of every
            layer; empty where neurons are no players.
        skipped: Paths of the layers that are skipped whole.
    """

    heads: Bools
    neurons: tuple[tuple[str, Bools], ...]
    skipped: frozenset[str]


def kept_parts(model: Model, mask: Mask) -> KeptParts:
    """What a mask keeps of a model.

    Args:
        model: A model with the mask's players.
        mask: The mask.
    """
    player_set = model.player_set
    if player_set is None:
        return KeptParts(mask.kept, (), frozenset())
    gates = model.grid.gates(mask.kept)
    heads = model.head_grid
    kept_heads = ~player_set.closed_heads(gates)[heads.flat[:, 0], heads.flat[:, 1]]
    if not player_set.neuron_cells and not player_set.layer_rows:
        return KeptParts(kept_heads, (), frozenset())
    parts = parts_of(model)
    path_of = {module: path for path, module in model.module.named_modules()}
    neurons: list[tuple[str, Bools]] = []
    if player_set.neuron_cells:
        for number, down in enumerate(parts.downs):
            neurons.append((path_of[down], ~player_set.closed_neurons(gates, number)))
    skipped = [
        path_of[parts.modules[number]]
        for number, is_skipped in enumerate(player_set.skipped_layers(gates))
        if is_skipped
    ]
    return KeptParts(kept_heads, tuple(neurons), frozenset(skipped))
