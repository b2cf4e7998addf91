"""Players silenced in the weights: a model of the same class and shapes that needs no hooks.

A head acts on the rest of the model through its columns of the output projection alone, and a
neuron through its column of the down projection. With these columns at zero it gives nothing; where
a head is to give its mean, that constant goes into the projection's bias. Any software that reads
the original reads such a model. A layer that is skipped whole has no such columns.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from headlab.core import NEURONS, Bools, Head, HeadlabError, by_layer, stack_name
from headlab.hooks import Model, parts_of
from headlab.masks import Mask
from headlab.models.allattention import AllAttentionForCausalLM
from headlab.models.shrunk_classes import is_shrunk
from headlab.models.shrunk_cut import projection_weight
from headlab.shrink.kept_parts import kept_parts
from headlab.shrink.model import PartCounts, Shrunk, parameters_of, require_in_weights


@dataclass(frozen=True)
class SilencedLayer:
    """An attention layer some of whose heads are silenced, or a feed-forward part with its neurons.

    Attributes:
        stack: Its stack.
        layer: Its number in the stack.
        path: Of its output projection in the model, or of its down projection.
        removed: bool [head or neuron], whether the mask removes it.
        mean_outputs: [head, head_dim], what a removed head gives instead; None for zero.
    """

    stack: str
    layer: int
    path: str
    removed: Bools
    mean_outputs: torch.Tensor | None


def silence_model(model: Model, mask: Mask, means: torch.Tensor | None = None) -> Shrunk:
    """A copy of the model in which a mask's heads are silenced in the weights.

    Its outputs are those of the model under the mask. Class, configuration and shapes are the
    original's.

    Args:
        model: The model; it stays as it is.
        mask: Whose removed heads are silenced.
        means: Mean output of every head, [layer, head, head_dim], from `headlab.hooks.head_means`;
            for a mask that was chosen under mean ablation, and for such a mask alone.

    Raises:
        HeadlabError: The mask is another model's, its ablation does not go with `means`, or the
            model's weights cannot hold what the mask does.
    """
    _require_means(mask, means)
    check_silenceable(model, mask)
    silenced_layers = _silenced_layers(model, mask, means)
    module = copy.deepcopy(model.module)
    for part in module.modules():  # headlab's, which would obey the gates of the original
        part._forward_hooks.clear()
        part._forward_pre_hooks.clear()
    with torch.no_grad():
        for layer in silenced_layers:
            _silence(module.get_submodule(layer.path), layer)
    parameter_count = parameters_of(module)
    before, after = _counts_of(model, mask)
    return Shrunk(
        module.eval(),
        mask,
        _removed_heads(model, mask),
        parameter_count,
        parameter_count,
        "folder",
        means,
        before=before,
        after=after,
    )


def _removed_heads(model: Model, mask: Mask) -> tuple[Head, ...]:
    """The heads that a mask of any players closes."""
    kept = kept_parts(model, mask).heads
    return tuple(head for head, stays in zip(model.head_grid.heads, kept, strict=True) if not stays)


def _counts_of(model: Model, mask: Mask) -> tuple[PartCounts | None, PartCounts | None]:
    """What acts before and after; None for masks of heads, whose other parts are not looked for."""
    if model.player_set is None:
        return None, None
    kept = kept_parts(model, mask)
    layers = len(parts_of(model).layers)
    neurons = sum(len(neurons) for _, neurons in kept.neurons)
    kept_neurons = sum(int(neurons.sum()) for _, neurons in kept.neurons)
    before = PartCounts(model.head_grid.size, neurons, layers)
    return before, PartCounts(int(kept.heads.sum()), kept_neurons, layers)


def check_silenceable(model: Model, mask: Mask) -> None:
    """Raise HeadlabError unless a model's weights can hold what a mask does.

    Nothing is computed for it.
    """
    require_in_weights(mask)
    mask.check(model.grid, model.fingerprint)
    model.require_whole("export")
    _require_stock_class(model)
    if kept_parts(model, mask).skipped:
        raise HeadlabError(
            "the mask skips layers whole, which weights of the original's shapes cannot express; "
            "use --as small, or close the layers' attention and feed-forward parts instead",
            code="export.layers_skipped",
        )
    for layer in _silenced_layers(model, mask, None):
        projection = model.module.get_submodule(layer.path)
        place = f"{layer.stack} layer {layer.layer} of {model.name}"
        weight = getattr(projection, "weight", None)
        is_plain = isinstance(projection, nn.Linear | Conv1D) and isinstance(weight, nn.Parameter)
        if not is_plain or weight is None or not weight.is_floating_point():
            raise HeadlabError(
                f"the output projection in {place} is a {type(projection).__name__} without plain "
                "weights, as quantised models have; load the model unquantised to export it",
                code="export.weights_quantised",
            )
        if mask.of_means and projection.bias is None:
            raise HeadlabError(
                f"the output projection in {place} has no bias, so the heads' means have no place "
                "in its weights; choose a mask made with --ablation zero",
                code="export.bias_missing",
            )


def _require_stock_class(model: Model) -> None:
    """Raise HeadlabError for classes that only headlab knows."""
    if is_shrunk(model.module.config) or isinstance(model.module, AllAttentionForCausalLM):
        raise HeadlabError(
            f"{model.name} is a {type(model.module).__name__}, a class of headlab that other "
            "software cannot read, so it cannot be written as a plain folder; use --as small",
            code="export.class_of_headlab",
        )


def _require_means(mask: Mask, means: torch.Tensor | None) -> None:
    """Raise HeadlabError unless there are means just where the mask needs them."""
    require_in_weights(mask)
    if mask.of_means and means is None:
        raise HeadlabError(
            "this mask, or one it was made of, was chosen under mean ablation, and a mask file "
            "holds no means; give those of the heads, from headlab.hooks.head_means",
            code="export.means_missing",
        )
    if means is not None and not mask.of_means:
        raise HeadlabError(
            "this mask was chosen under zero ablation, where a removed head gives 0 and not its "
            "mean; leave the means out",
            code="export.means_unused",
        )


def _silenced_layers(
    model: Model, mask: Mask, means: torch.Tensor | None
) -> tuple[SilencedLayer, ...]:
    """The layers that lose heads, in the order of the grid.

    Raises:
        HeadlabError: Layers share an output projection but not what the mask does to them.
    """
    path_of_module = {module: path for path, module in model.module.named_modules()}
    kept = kept_parts(model, mask)
    layers_by_path: dict[str, list[SilencedLayer]] = {}
    for row, (stack, number, kept_heads) in enumerate(by_layer(model.head_grid, kept.heads)):
        if not len(kept_heads):
            continue
        layer = SilencedLayer(
            stack=stack,
            layer=number,
            path=path_of_module[model.projections[row]],
            removed=~kept_heads,
            mean_outputs=None if means is None else means[row, : len(kept_heads)],
        )
        layers_by_path.setdefault(layer.path, []).append(layer)
    places = parts_of(model).layers if kept.neurons else ()
    for place, (path, kept_neurons) in zip(places, kept.neurons, strict=True):
        neurons = stack_name(place.stack, NEURONS)
        layer = SilencedLayer(neurons, place.number, path, ~kept_neurons, None)
        layers_by_path.setdefault(path, []).append(layer)
    for layers in layers_by_path.values():
        _require_same_heads(model, mask, layers)
    first_layers = [layers[0] for layers in layers_by_path.values()]
    return tuple(layer for layer in first_layers if layer.removed.any())


def _require_same_heads(model: Model, mask: Mask, layers: Sequence[SilencedLayer]) -> None:
    """Raise HeadlabError if layers that share a projection need different weights in it."""
    first_layer = layers[0]
    for layer in layers[1:]:
        is_alike = np.array_equal(layer.removed, first_layer.removed)
        # As each layer has its own means, one bias cannot hold them.
        gives_own_means = mask.of_means and bool(layer.removed.any())
        if is_alike and not gives_own_means:
            continue
        heads = ", ".join(
            str(Head(one.stack, one.layer, int(head)))
            for one in layers
            for head in np.flatnonzero(one.removed)
        )
        raise HeadlabError(
            f"layers {first_layer.layer} and {layer.layer} of {model.name} are one layer used "
            f"twice, so nothing can be silenced in one of them alone ({heads:.200}); use a mask "
            "that removes the same in both, chosen under zero ablation",
            code="export.layers_shared",
        )


def _silence(projection: nn.Module, layer: SilencedLayer) -> None:
    """Set the removed heads' columns of an output projection to zero, in place.

    Their mean output, if they are to give it, is added to the bias.

    Args:
        projection: The output projection.
        layer: Which heads, and their means.
    """
    weight = projection_weight(projection)
    # [output, input]; the weight of GPT-2's Conv1D is the other way round
    weight_by_output = weight if isinstance(projection, nn.Linear) else weight.T
    columns_by_head = weight_by_output.view(len(weight_by_output), len(layer.removed), -1)
    for head in np.flatnonzero(layer.removed):
        columns = columns_by_head[:, head]
        if layer.mean_outputs is not None:
            bias = projection.bias
            assert isinstance(bias, torch.Tensor)  # `check_silenceable` has seen it
            mean_output = layer.mean_outputs[head, : columns.shape[1]].to(columns.device)
            bias += (columns.double() @ mean_output.double()).to(bias.dtype)
        columns.zero_()
