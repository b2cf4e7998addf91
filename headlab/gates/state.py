"""What is being done to a model right now, per thread: gates, replacement values, observers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch

from headlab.errors import HeadlabError
from headlab.gates.resume import Pass

Observer = Callable[[int, torch.Tensor], None]


class Owner:
    """Identity of one attached model; gates of one owner never reach another's modules."""


@dataclass
class Active:
    """Gates and observers of one `with` block.

    gates: [layer, head], [row, layer, head] or [row, layer, head, query]; None leaves heads alone.
    fill: what a closed head gives instead of 0, [layer, head, head_dim].  contexts, weights: called
    with (layer row, tensor): a layer's [row, query, head, head_dim] before gating, or its attention
    weights [row, head, query, key].
    """

    gates: torch.Tensor | None = None
    fill: torch.Tensor | None = None
    contexts: Observer | None = None
    weights: Observer | None = None
    weight_layers: frozenset[int] | None = None
    states: Pass | None = None
    calls: dict[int, int] = field(default_factory=dict)


_active: ContextVar[Mapping[int, Active]] = ContextVar("headlab_active", default={})  # noqa: B039 - never mutated


def active_for(owner: Owner) -> Active | None:
    """What this thread is doing to the owner's model; None if nothing."""
    return _active.get().get(id(owner))


@contextmanager
def activate(owner: Owner, active: Active) -> Iterator[Active]:
    """Make `active` hold for this thread and this model until the block ends, however it ends."""
    token = _active.set({**_active.get(), id(owner): active})
    try:
        yield active
    finally:
        _active.reset(token)


@dataclass(frozen=True)
class Site:
    """Where an attention module stands: its rows in the gate array, one per call in a forward pass."""

    owner: Owner
    rows: tuple[int, ...]
    heads: int

    def row(self, active: Active) -> int:
        """The gate row of this call; a module shared by several layers is called once for each."""
        if len(self.rows) == 1:
            return self.rows[0]
        count = active.calls.get(self.rows[0], 0)
        active.calls[self.rows[0]] = count + 1
        return self.rows[count % len(self.rows)]


def apply_gates(context: torch.Tensor, active: Active, row: int, heads: int) -> torch.Tensor:
    """Scale each head's output: context [row, query, head, head_dim] -> the same shape."""
    if active.contexts is not None:
        active.contexts(row, context)
    if active.gates is None:
        return context
    gate = _gate_of(active, row, heads, len(context)).to(context.dtype)
    out = context * gate
    if active.fill is not None:
        out = out + (1 - gate) * active.fill[row, :heads, : context.shape[-1]].to(context.dtype)[None, None]
    return out


def _gate_of(active: Active, row: int, heads: int, batch: int) -> torch.Tensor:
    """Gates of one layer, broadcastable to [row, query, head, head_dim]."""
    gates = active.gates
    assert gates is not None
    if gates.dim() == 2:
        return gates[row, :heads][None, None, :, None]
    gate = gates[:, row, :heads]
    if active.states is not None and active.states.rows is not None:
        gate = gate[active.states.rows]
    if len(gate) != batch:
        raise HeadlabError(
            f"gates have {len(gate)} rows, the batch has {batch}; pass one row of gates per example",
            code="gate.rows_mismatch",
        )
    return gate[:, None, :, None] if gate.dim() == 2 else gate.transpose(1, 2)[..., None]
