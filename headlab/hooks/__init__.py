"""All intervention in forward passes: switching heads off, observing them, starting at a later layer."""

from __future__ import annotations

from headlab.hooks.model import (
    Model,
    as_gates,
    attach,
    attention,
    excluded_ids,
    gated,
    head_means,
    sides,
    started,
    sum_weights,
)
from headlab.hooks.state import Active, FanOut, LayerStates, Trunk

__all__ = [
    "Active",
    "FanOut",
    "LayerStates",
    "Model",
    "Trunk",
    "as_gates",
    "attach",
    "attention",
    "excluded_ids",
    "gated",
    "head_means",
    "sides",
    "started",
    "sum_weights",
]
