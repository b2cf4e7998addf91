"""Finding the heads of a checkpoint and making them switchable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from headlab.errors import HeadlabError
from headlab.gates.model import Model
from headlab.gates.probe import Call, grid_of, logits, watch
from headlab.gates.resume import Pass, wrap_feed_forward, wrap_layer
from headlab.gates.sdpa import SITE
from headlab.gates.selftest import self_test
from headlab.gates.state import Site, active_for, apply_gates
from headlab.models.checkpoint import Checkpoint


def attach(checkpoint: Checkpoint) -> Model:
    """Find the heads of a checkpoint, make them switchable, and prove it on a made-up input.

    Raises HeadlabError naming the architecture when the heads cannot be found or a gate does not do
    exactly what zeroing the output projection's columns does.
    """
    module = checkpoint.module.eval()
    try:
        untouched = logits(module)
    except (ValueError, TypeError, RuntimeError, IndexError, KeyError, AttributeError) as error:
        raise HeadlabError(
            f"{type(module).__name__} cannot be run on a short made-up text ({error}); "
            "headlab works with text models only",
            code="model.not_for_text",
        ) from error
    calls, through_function = watch(module)
    grid, rows = grid_of(calls, module)
    by_row = [call for _, call in sorted(zip(rows, calls, strict=True), key=lambda pair: pair[0])]
    projections = tuple(call.projection for call in by_row if call.projection is not None)
    model = Model(checkpoint, grid, projections, resumable=False)
    _place_sites(model, by_row, through_function)
    module.register_forward_pre_hook(lambda *_: _restart_count(model))
    model.resumable = _make_resumable(model, by_row)
    self_test(model, untouched)
    return model


def _place_sites(model: Model, calls: Sequence[Call], through_function: bool) -> None:
    rows: dict[nn.Module, list[int]] = {}
    for row, call in enumerate(calls):
        rows.setdefault(call.module, []).append(row)
    for module, own in rows.items():
        site = Site(model.owner, tuple(own), calls[own[0]].heads)
        if through_function:
            setattr(module, SITE, site)
        else:
            module.register_forward_pre_hook(_gate_projection(site))


def _gate_projection(site: Site) -> Callable[[nn.Module, tuple[Any, ...]], tuple[Any, ...] | None]:
    """The same gate, where the attention function cannot be reached: on the projection's input."""

    def hook(_module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        active = active_for(site.owner)
        if active is None:
            return None
        context = args[0].unflatten(-1, (site.heads, -1))
        return (apply_gates(context, active, site.row(active), site.heads).flatten(-2), *args[1:])

    return hook


def _restart_count(model: Model) -> None:
    active = active_for(model.owner)
    if active is not None:
        active.calls.clear()


def _make_resumable(model: Model, calls: Sequence[Call]) -> bool:
    """Wrap the layers so that a pass may start midway, where layers are separate modules in one list."""
    if len(model.grid.stacks) != 1:
        return False
    names = dict(model.module.named_modules())
    for path, modules in names.items():
        if not isinstance(modules, nn.ModuleList) or len(modules) != len(calls):
            continue
        if all(call.name.startswith(f"{path}.{row}.") for row, call in enumerate(calls)):
            if not _layers_give_tensors(model, list(modules)):
                return False
            for row, layer in enumerate(modules):
                wrap_layer(layer, row, lambda: _states(model))
            model.first_token = wrap_feed_forward(modules[-1], lambda: _states(model))
            return True
    return False


def _layers_give_tensors(model: Model, layers: Sequence[nn.Module]) -> bool:
    plain: list[bool] = []
    hooks = [
        layer.register_forward_hook(lambda _m, _a, out: plain.append(isinstance(out, torch.Tensor))) for layer in layers
    ]
    try:
        logits(model.module)
    finally:
        for hook in hooks:
            hook.remove()
    return all(plain)


def _states(model: Model) -> Pass | None:
    active = active_for(model.owner)
    return active.states if active is not None else None
