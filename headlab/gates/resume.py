"""Starting a forward pass at the layer that changed: rows of one batch may each start elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class LayerStates:
    """Inputs of every layer for the rows of one batch, kept so that later passes can start midway.

    inputs[l]: [row, token, width], what layer l was given; inputs[layers] is the last layer's output.
    start: int [row], first layer to recompute; rows below their start take what is kept.
    frozen: passes read what is kept and leave it as it is, so that many can start from the same point.
    """

    def __init__(self, layers: int) -> None:
        self.inputs: list[torch.Tensor | None] = [None] * (layers + 1)
        self.start: torch.Tensor | None = None
        self.rows: torch.Tensor | None = None
        self.frozen = False

    @property
    def bytes(self) -> int:
        """Memory held by the kept inputs."""
        return sum(t.numel() * t.element_size() for t in self.inputs if t is not None)

    def begin(self, start: torch.Tensor | None, *, frozen: bool = False) -> None:
        """Set where each row starts in the next pass; None recomputes all from the first layer."""
        self.start, self.rows, self.frozen = start, None, frozen

    def keep(self, layer: int, value: torch.Tensor) -> None:
        """Remember the input of a layer, unless frozen."""
        if not self.frozen:
            self.inputs[layer] = value


def run_layer(
    inner: Callable[..., Any],
    layer: int,
    states: LayerStates,
    hidden: torch.Tensor,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> torch.Tensor:
    """One layer of a pass that may start midway: recompute the rows that reached their start, keep the rest."""
    kept = states.inputs[layer + 1]
    rows = None if states.start is None or kept is None else (states.start <= layer).nonzero()[:, 0]
    if kept is not None and rows is not None and len(rows) == 0:
        return kept
    if kept is None or rows is None or len(rows) == len(hidden):
        states.keep(layer, hidden)
        out: torch.Tensor = inner(hidden, *args, **kwargs)
        states.keep(layer + 1, out)
        return out
    states.rows = rows
    try:
        part = inner(hidden[rows], *_take(args, rows, len(hidden)), **_take(kwargs, rows, len(hidden)))
    finally:
        states.rows = None
    out = kept.clone()
    out[rows] = part
    states.keep(layer + 1, out)
    return out


def _take(value: Any, rows: torch.Tensor, batch: int) -> Any:
    """The chosen rows of every per-row tensor in nested arguments; what is shared by all rows stays."""
    if isinstance(value, torch.Tensor):
        return value[rows] if value.dim() > 1 and len(value) == batch else value
    if isinstance(value, tuple | list):
        return type(value)(_take(v, rows, batch) for v in value)
    if isinstance(value, dict):
        return {k: _take(v, rows, batch) for k, v in value.items()}
    return value


def wrap_layer(layer: nn.Module, index: int, current: Callable[[], LayerStates | None]) -> None:
    """Let a layer's forward pass consult `current()`: without kept states it runs as it always did."""
    inner = layer.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        states = current()
        if states is None:
            return inner(*args, **kwargs)
        if args:
            hidden, rest, named = args[0], args[1:], kwargs
        else:
            named = dict(kwargs)
            hidden, rest = named.pop("hidden_states"), ()
        return run_layer(inner, index, states, hidden, rest, named)

    layer.forward = forward
