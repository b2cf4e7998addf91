"""The only place that touches a forward pass: switching heads off, watching them, starting midway."""

from headlab.gates.look import excluded_ids, sides, started
from headlab.gates.model import Model, as_gates, gated
from headlab.gates.observe import attention, head_means, sum_weights
from headlab.gates.open import load
from headlab.gates.resume import FanOut, LayerStates, Trunk
from headlab.gates.sites import attach
from headlab.gates.state import Active

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
    "load",
    "sides",
    "started",
    "sum_weights",
]
