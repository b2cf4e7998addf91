"""A smaller model of a family that headlab does not write: in memory, to be measured.

What is found by running the model is taken out of its modules, so that no configuration says its
shapes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from headlab.core import Bools, HeadlabError
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
from headlab.models.allattention import AllAttentionForCausalLM
from headlab.models.shrunk_cut import FAMILIES, base_type
from headlab.shrink.kept_parts import kept_parts
from headlab.shrink.model import (
    Shrunk,
    parameters_of,
    require_family,
    require_zero,
    shrink_model,
)
from headlab.shrink.silenced import silence_model

FLOAT_TOLERANCE = 2e-4
DOUBLE_TOLERANCE = 1e-9


class PassedBy(nn.Module):
    """What stands for a layer that is skipped: it gives the states that it is given."""

    def forward(self, hidden_states: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        """The same states."""
        return hidden_states


def shrink_players(model: Model, mask: Mask) -> Shrunk:
    """A copy of a model without the weights of a mask's closed players, to be measured.

    It is that of `shrink_model` where headlab can write the family. Else neurons go with the rows
    and columns of their projections, and layers whole; that copy has other shapes than its
    configuration says, so it is for memory alone.

    Args:
        model: A model with these players.
        mask: The mask.

    Raises:
        HeadlabError: The mask is another model's, the family cannot be shrunk, or the copy has not
            the masked model's outputs.
    """
    is_written = base_type(model.module.config) in FAMILIES
    if model.player_set is None or is_written or isinstance(model.module, AllAttentionForCausalLM):
        shrunk = shrink_model(model, mask)
        _require_same_outputs(model, model.grid.gates(mask.kept), shrunk.module)
        return shrunk
    mask.check(model.grid, model.fingerprint)
    require_zero(mask)
    model.require_whole("shrinking")
    kept = kept_parts(model, mask)
    with_heads = with_players(model, "heads")
    if kept.skipped and not with_heads.resumable:
        raise HeadlabError(
            f"layers of {model.name} give more than states, so headlab cannot leave any out",
            code="shrink.layers_not_separate",
        )
    if not kept.heads.all():
        require_family(model)  # heads are taken out of known families only
    parts = parts_of(model)
    path_of = {module: path for path, module in model.module.named_modules()}
    smaller = silence_model(with_heads, full_mask(with_heads.grid)).module
    with torch.no_grad():
        for ups, (down_path, kept_neurons) in zip(parts.ups, kept.neurons, strict=False):
            up_paths = [path_of[up] for up in ups]
            _cut_neurons(smaller, down_path, up_paths, kept_neurons)
        for path in kept.skipped:
            _replace(smaller, path, PassedBy())
    _require_same_outputs(model, model.grid.gates(mask.kept), smaller)
    return Shrunk(smaller.eval(), mask, (), parameters_of(model.module), parameters_of(smaller))


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
    if kept.all() or widths_of(module.get_submodule(down))[0] != len(kept):
        return  # a part that several layers share is cut once
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
