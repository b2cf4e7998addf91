"""Players of tiny models, and the slow way to close them: zeroed weights, skipped layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from headlab.core import Head, Stack
from headlab.hooks import Model, neurons_of, with_players
from headlab.hooks.player_models import parts_of

GROUPS = 2
"""Groups of neurons of a layer, so that every layer has a closed and an open one."""
# Where each type keeps the down projection of layer {}: what headlab has to find by itself.
DOWNS = {
    "bert": "layer.{}.output.dense",
    "roberta": "layer.{}.output.dense",
    "xlm-roberta": "layer.{}.output.dense",
    "electra": "layer.{}.output.dense",
    "mpnet": "layer.{}.output.dense",
    "deberta-v2": "layer.{}.output.dense",
    "distilbert": "layer.{}.ffn.lin2",
    "modernbert": "layers.{}.mlp.Wo",
    "xlm": "ffns.{}.lin2",
    "albert": "albert_layers.0.ffn_output",
    "gpt2": "h.{}.mlp.c_proj",
    "gpt_neo": "h.{}.mlp.c_proj",
    "gptj": "h.{}.mlp.fc_out",
    "gpt_neox": "layers.{}.mlp.dense_4h_to_h",
    "bloom": "h.{}.mlp.dense_4h_to_h",
    "falcon": "h.{}.mlp.dense_4h_to_h",
    "opt": "layers.{}.fc2",
    "llama": "layers.{}.mlp.down_proj",
    "mistral": "layers.{}.mlp.down_proj",
    "qwen2": "layers.{}.mlp.down_proj",
    "gemma2": "layers.{}.mlp.down_proj",
    "phi": "layers.{}.mlp.fc2",
    "marian": "{stack}.layers.{}.fc2",
    "mbart": "{stack}.layers.{}.fc2",
    "bart": "{stack}.layers.{}.fc2",
    "t5": "{stack}.block.{}.layer.{last}.DenseReluDense.wo",
}


def neuron_groups(model: Model) -> tuple[tuple[int, ...], ...]:
    """Neighbours are in different groups."""
    return tuple(tuple(n % GROUPS for n in range(size)) for size in neurons_of(model))


def playing(model: Model, players: str) -> Model:
    groups = neuron_groups(model) if "neurons" in players else None
    return with_players(model, players, groups)


def down_of(model: Model, kind: str, stack: str, layer: int) -> nn.Module:
    ending = DOWNS[kind].format(layer, stack=stack, last=1 if stack == "encoder" else 2)
    matches = [
        module for name, module in model.module.named_modules() if f".{name}".endswith(f".{ending}")
    ]
    assert len(matches) == 1, ending
    return matches[0]


@contextmanager
def closed_by_hand(model: Model, kind: str, closed: list[Head]) -> Iterator[None]:
    """Zero the weights of players, and let skipped layers give what they take."""
    weights: list[tuple[nn.Module, torch.Tensor]] = []
    hooks = []
    rows = {}
    for row, stack in enumerate(model.grid.rows):
        rows[stack, len([name for name in model.grid.rows[:row] if name == stack])] = row

    def zero(linear: nn.Module, columns: list[int], blocks: int) -> None:
        weight = linear.weight
        axis = 1 if isinstance(linear, nn.Linear) else 0
        weights.append((linear, weight.detach().clone()))
        size = weight.shape[axis] // blocks
        with torch.no_grad():
            for column in columns:
                weight.narrow(axis, column * size, size).zero_()

    for player in closed:
        stack = Stack(player.stack, ())
        if stack.kind in ("heads", "kv-groups", "attention"):
            row = rows[stack.base, player.layer]
            heads = model.calls[row].heads
            shared = {"heads": 1, "kv-groups": heads // 2, "attention": heads}[stack.kind]
            columns = [player.head * shared + head for head in range(shared)]
            zero(model.projections[row], columns, heads)
        elif stack.kind == "layers":
            parts = parts_of(model)
            number = [(place.stack, place.number) for place in parts.layers].index(
                (stack.base, player.layer)
            )
            hooks.append(parts.modules[number].register_forward_hook(give_input, with_kwargs=True))
        else:
            down = down_of(model, kind, stack.base, player.layer)
            size = down.weight.shape[1 if isinstance(down, nn.Linear) else 0]
            columns = list(range(size))
            if stack.kind == "neurons":
                columns = columns[player.head :: GROUPS]
            zero(down, columns, size)
    try:
        yield
    finally:
        for linear, weight in reversed(weights):
            with torch.no_grad():
                linear.weight.copy_(weight)
        for hook in hooks:
            hook.remove()


def give_input(_module: nn.Module, args: tuple, kwargs: dict, output: object) -> object:
    states = args[0] if args else kwargs["hidden_states"]
    return (states, *output[1:]) if isinstance(output, tuple) else states
