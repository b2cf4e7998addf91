"""The proof, on a made-up input, that gates do what they say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from headlab.errors import HeadlabError
from headlab.gates.model import Model, as_gates, gated
from headlab.gates.probe import logits, probe_inputs
from headlab.gates.resume import FanOut, LayerStates
from headlab.gates.state import Active


def self_test(model: Model, untouched: torch.Tensor) -> None:
    """Prove on the probe input that gates do what they say; raise HeadlabError if not."""
    grid, module = model.grid, model.module
    kept = np.ones((grid.layers, grid.width))
    with gated(model, kept):
        _require_close(
            model, logits(module), untouched, "all gates at 1 change the output", code="model.open_gates_differ"
        )
    rng = np.random.default_rng(0)
    sizes = [n for stack in grid.stacks for n in stack.heads]
    column: dict[int, int] = {}
    for row, heads in enumerate(sizes):
        if not heads:
            continue
        # A shared projection serves several rows: close the same head in all of them.
        head = column.setdefault(id(model.projections[row]), int(rng.integers(heads)))
        kept[row, head] = 0
    with gated(model, kept):
        closed = logits(module)
    with _zeroed_columns(model, kept, sizes):
        _require_close(
            model,
            closed,
            logits(module),
            "a closed gate differs from zeroed columns of the output projection",
            code="model.closed_gate_differs",
        )
    if model.resumable:
        _test_resume(model, kept, untouched, closed)


def _close(got: torch.Tensor, want: torch.Tensor) -> bool:
    tolerance = 1e-9 if want.dtype == torch.float64 else 2e-4 if want.dtype == torch.float32 else 5e-2
    return got.shape == want.shape and torch.allclose(got, want, atol=tolerance * float(1 + want.abs().max()), rtol=0)


def _require_close(model: Model, got: torch.Tensor, want: torch.Tensor, problem: str, *, code: str) -> None:
    if _close(got, want):
        return
    raise HeadlabError(
        f"self-test failed for {type(model.module).__name__} (model type {model.module.config.model_type}): {problem}. "
        "headlab would report wrong numbers for this architecture, so it stops here; please report it",
        code=code,
    )


@contextmanager
def _zeroed_columns(model: Model, kept: np.ndarray[Any, Any], sizes: Sequence[int]) -> Iterator[None]:
    """The slow way to remove a head: zero its columns of the output projection, and put them back."""
    saved: list[tuple[nn.Parameter, torch.Tensor]] = []
    try:
        for row, projection in enumerate(model.projections):
            if not sizes[row]:
                continue
            weight: nn.Parameter = projection.weight  # type: ignore[assignment] # Linear and Conv1D both hold a Parameter
            saved.append((weight, weight.detach().clone()))
            inputs = 1 if isinstance(projection, nn.Linear) else 0
            width = weight.shape[inputs] // sizes[row]
            for head in np.flatnonzero(kept[row, : sizes[row]] == 0):
                with torch.no_grad():
                    weight.narrow(inputs, int(head) * width, width).zero_()
        yield
    finally:
        with torch.no_grad():
            for weight, old in reversed(saved):
                weight.copy_(old)


def _test_resume(model: Model, kept: np.ndarray[Any, Any], untouched: torch.Tensor, closed: torch.Tensor) -> None:
    """A pass resumed in the middle, or branching there, must equal a full one; else the model is run in full."""
    half = model.grid.layers // 2
    gates = as_gates(model, kept)[None].repeat(1, 1, 1)
    lower = gates.clone()
    lower[:, half:] = 1
    states = LayerStates(model.grid.layers)
    try:
        with model.active(Active(gates=lower, states=states)):
            logits(model.module)
        states.begin(torch.tensor([half], device=model.device))
        with model.active(Active(gates=gates, states=states)):
            resumed = logits(model.module)
        _require_close(
            model, resumed, closed, "a resumed pass differs from a full one", code="model.resumed_pass_differs"
        )
        branched = _branched(model, lower, gates, half, first_token=False)
        _require_close(
            model, branched, closed, "a branched pass differs from a full one", code="model.branched_pass_differs"
        )
    except (HeadlabError, RuntimeError, IndexError, ValueError):
        model.resumable = model.first_token = False
        return
    if model.first_token:
        try:
            model.first_token = _close(_branched(model, lower, gates, half, first_token=True), closed)
        except (RuntimeError, IndexError, ValueError):  # it reads tokens that were left out
            model.first_token = False


def _branched(model: Model, below: torch.Tensor, gates: torch.Tensor, layer: int, *, first_token: bool) -> torch.Tensor:
    """Output for `gates`, computed on a copy of the probe rows that branches off those with `below` at a layer."""
    inputs = probe_inputs(model.module)
    rows = len(next(iter(inputs.values())))
    origin = np.tile(np.arange(rows), 2)
    start = np.repeat([0, layer], rows)
    both = torch.cat([below.expand(rows, -1, -1), gates.expand(rows, -1, -1)])
    doubled = {name: value[torch.as_tensor(origin, device=value.device)] for name, value in inputs.items()}
    how = FanOut(start, origin, model.grid.layers, first_token=first_token)
    with model.active(Active(gates=both, states=how)), torch.inference_mode():
        out = model.module(**doubled)
    return next(v for v in out.values() if isinstance(v, torch.Tensor) and v.dim() >= 2)[rows:].clone()
