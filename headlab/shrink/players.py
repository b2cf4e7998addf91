"""A smaller model without closed players: in memory, with the masked model's outputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from headlab.core import Bools, Head, HeadlabError
from headlab.hooks import (
    MODEL_ERRORS,
    Model,
    gated_in_this_thread,
    logits,
    parts_of,
    widths_of,
    with_players,
)
from headlab.masks import Mask, full_mask
from headlab.shrink.model import Shrunk, parameters_of, require_zero, shrink_model
from headlab.shrink.silenced import silence_model

FLOAT_TOLERANCE = 2e-4
DOUBLE_TOLERANCE = 1e-9


class PassedBy(nn.Module):
    """What stands for a layer that is skipped: it gives the states that it is given."""

    def forward(self, hidden_states: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        """The same states."""
        return hidden_states


def shrink_players(model: Model, mask: Mask) -> Shrunk:
    """A copy of a model without the weights of a mask's closed players.

    Heads, groups and attentions go as in `shrink_model`; neurons with the rows and columns of their
    projections; layers whole. The copy has other shapes than its configuration says, so it is for
    measuring in memory and not for writing.

    Args:
        model: A model with these players.
        mask: The mask.

    Raises:
        HeadlabError: The mask is another model's, the family cannot be shrunk, or the copy has not
            the masked model's outputs.
    """
    mask.check(model.grid, model.fingerprint)
    require_zero(mask)
    model.require_whole("shrinking")
    player_set = model.player_set
    if player_set is None:
        return shrink_model(model, mask)
    with_heads = with_players(model, "heads")
    parts = parts_of(model)
    gates = model.grid.gates(mask.kept)
    skipped = player_set.skipped_layers(gates) or [False] * len(parts.layers)
    if any(skipped) and not with_heads.resumable:
        raise HeadlabError(
            f"layers of {model.name} give more than states, so headlab cannot leave any out",
            code="shrink.layers_not_separate",
        )
    masked_heads: tuple[Head, ...] = ()
    head_mask = _mask_of_heads(with_heads, player_set.closed_heads(gates))
    if head_mask.kept.all():
        smaller = silence_model(with_heads, full_mask(with_heads.grid)).module
    else:
        shrunk_heads = shrink_model(with_heads, head_mask)
        smaller, masked_heads = shrunk_heads.module, shrunk_heads.masked_heads
    path_of = {module: path for path, module in model.module.named_modules()}
    with torch.no_grad():
        for number, is_skipped in enumerate(skipped):
            if is_skipped:
                _replace(smaller, path_of[parts.modules[number]], PassedBy())
            elif player_set.neuron_cells:
                kept = ~player_set.closed_neurons(gates, number)
                up_paths = [path_of[up] for up in parts.ups[number]]
                _cut_neurons(smaller, path_of[parts.downs[number]], up_paths, kept)
    _require_same_outputs(model, gates, smaller)
    return Shrunk(
        smaller.eval(), mask, masked_heads, parameters_of(model.module), parameters_of(smaller)
    )


def _mask_of_heads(model: Model, closed: Bools) -> Mask:
    """The mask that removes heads, bool [layer row, head]."""
    rows, columns = model.grid.flat.T
    return Mask(model.grid, ~closed[rows, columns], model.identity())


def _replace(module: PreTrainedModel, path: str, replacement: nn.Module) -> None:
    """Put another module at a path."""
    parent, _, name = path.rpartition(".")
    setattr(module.get_submodule(parent), name, replacement)


def _cut_neurons(module: PreTrainedModel, down: str, ups: Sequence[str], kept: Bools) -> None:
    """Leave closed neurons out of a feed-forward part.

    Args:
        module: The copy.
        down: Path of the down projection.
        ups: Paths of what makes the neurons.
        kept: Which neurons stay, bool [neuron].
    """
    if kept.all():
        return
    kept_inputs = torch.as_tensor(np.flatnonzero(kept))
    _replace(module, down, _with_inputs(module.get_submodule(down), kept_inputs))
    for path in ups:
        up = module.get_submodule(path)
        _, outputs = widths_of(up)
        # A gated part may make both numbers of a neuron with one linear layer, one half each.
        copies = outputs // len(kept)
        kept_outputs = torch.cat([kept_inputs + copy * len(kept) for copy in range(copies)])
        _replace(module, path, _with_outputs(up, kept_outputs))


def _linear_of(
    like: nn.Module, weight: torch.Tensor, bias: torch.Tensor | None
) -> nn.Linear | Conv1D:
    """A linear layer of the same class, with these weights."""
    # Made of size 1, since torch warns of weights without numbers.
    linear: nn.Linear | Conv1D
    has_no_inputs = isinstance(like, Conv1D) and not len(weight)
    if has_no_inputs:  # a Conv1D cannot compute with none
        weight = weight.T
    if isinstance(like, nn.Linear) or has_no_inputs:
        linear = nn.Linear(1, 1, bias=False)
        linear.out_features, linear.in_features = weight.shape
    else:
        linear = Conv1D(1, 1)
        linear.nx, linear.nf = weight.shape
    linear.weight = nn.Parameter(weight.clone(), requires_grad=False)
    linear.register_parameter(
        "bias", None if bias is None else nn.Parameter(bias.clone(), requires_grad=False)
    )
    return linear


def _weights_of(linear: nn.Module) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Weight and bias of a linear layer."""
    weight, bias = linear.weight, linear.bias
    assert isinstance(weight, torch.Tensor)
    assert bias is None or isinstance(bias, torch.Tensor)
    return weight.detach(), None if bias is None else bias.detach()


def _with_inputs(linear: nn.Module, kept: torch.Tensor) -> nn.Linear | Conv1D:
    """A linear layer with some of its inputs."""
    weight, bias = _weights_of(linear)
    axis = 1 if isinstance(linear, nn.Linear) else 0
    return _linear_of(linear, weight.index_select(axis, kept.to(weight.device)), bias)


def _with_outputs(linear: nn.Module, kept: torch.Tensor) -> nn.Linear | Conv1D:
    """A linear layer with some of its outputs."""
    weight, bias = _weights_of(linear)
    axis = 0 if isinstance(linear, nn.Linear) else 1
    kept = kept.to(weight.device)
    kept_bias = None if bias is None else bias[kept]
    return _linear_of(linear, weight.index_select(axis, kept), kept_bias)


def _require_same_outputs(
    model: Model, gates: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], smaller: PreTrainedModel
) -> None:
    """Raise HeadlabError unless the copy gives what the masked model gives for a short text."""
    with gated_in_this_thread(model, gates):
        want = logits(model.module)
    try:
        got = logits(smaller)
        tolerance = DOUBLE_TOLERANCE if want.dtype == torch.float64 else FLOAT_TOLERANCE
        largest = tolerance * float(1 + want.abs().max())
        is_same = got.shape == want.shape and torch.allclose(got, want, atol=largest, rtol=0)
    except MODEL_ERRORS:
        is_same = False
    if not is_same:
        raise HeadlabError(
            f"{model.name} without the closed players does not give the masked model's outputs, so "
            "headlab cannot take them out of this family's weights",
            code="shrink.players_differ",
        )
