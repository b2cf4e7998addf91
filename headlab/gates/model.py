"""A model whose heads are known and can be switched: the one object the rest of headlab works with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headlab.errors import HeadlabError
from headlab.gates.state import Active, Owner, activate
from headlab.masks import Mask
from headlab.models.checkpoint import Checkpoint
from headlab.records import HeadGrid

Gates = torch.Tensor | np.ndarray[Any, Any] | Mask


@dataclass(eq=False)
class Model:
    """A loaded model, its head grid, and the means to gate it.

    resumable: a forward pass can start at any layer (see `LayerStates`).  first_token: the answer is read
    at the first token (see `FanOut`).  projections: the output
    projection behind every row of the gate array.
    """

    checkpoint: Checkpoint
    grid: HeadGrid
    projections: tuple[nn.Module, ...]
    resumable: bool
    first_token: bool = False
    owner: Owner = field(default_factory=Owner)

    @property
    def name(self) -> str:
        """Name it was loaded by."""
        return self.checkpoint.name

    @property
    def fingerprint(self) -> str:
        """sha256 of what it was made of."""
        return self.checkpoint.fingerprint

    @property
    def module(self) -> PreTrainedModel:
        """The transformers model; its forward pass is gated only inside `gated`."""
        return self.checkpoint.module

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Its tokenizer."""
        return self.checkpoint.tokenizer

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return self.module.device

    @property
    def dtype(self) -> str:
        """Numbers it computes in, like float32."""
        return str(self.module.dtype).removeprefix("torch.")

    def identity(self) -> dict[str, Any]:
        """What a result records about its model."""
        return self.checkpoint.identity()

    def recorded(self) -> dict[str, Any]:
        """Identity, and precision if it is not float32: other numbers give other scores, so it names a run."""
        return self.identity() | ({} if self.dtype == "float32" else {"dtype": self.dtype})

    @contextmanager
    def active(self, active: Active) -> Iterator[Active]:
        """Apply gates and observers to this thread's forward passes of this model."""
        with activate(self.owner, active):
            yield active


@contextmanager
def gated(model: Model, gates: Gates, *, ablation: str = "zero", means: torch.Tensor | None = None) -> Iterator[Model]:
    """Scale each head's output in every forward pass of this thread, until the block ends.

    gates: a Mask, or bool/float [layer, head] or [row, layer, head] (one coalition per example of the
    batch); 1 keeps a head, 0 removes it.  ablation: a removed head gives 0 ("zero") or its mean over
    a task ("mean", with `means` [layer, head, head_dim] from `headlab.gates.head_means`).
    Raises HeadlabError for a shape that is not the model's, before anything is touched.
    """
    if (ablation == "mean") != (means is not None) or ablation not in ("zero", "mean"):
        raise HeadlabError(
            f'ablation {ablation!r}: use "zero", or "mean" together with means=head_means(model, ...)',
            code="ablation.needs_means",
        )
    tensor = as_gates(model, gates)
    with model.active(Active(gates=tensor, fill=means)):
        yield model


def as_gates(model: Model, gates: Gates) -> torch.Tensor:
    """A float tensor [layer, head] or [row, layer, head] on the model's device, checked."""
    if isinstance(gates, Mask):
        gates.check(model.grid, model.fingerprint)
        gates = model.grid.gates(gates.kept)
    tensor = torch.as_tensor(gates, device=model.device)
    want = (model.grid.layers, model.grid.width)
    if tensor.dim() not in (2, 3) or tuple(tensor.shape[-2:]) != want:
        raise HeadlabError(
            f"gates have shape {tuple(tensor.shape)}; {model.name} has {model.grid}, so pass {want} "
            f"or (rows, {want[0]}, {want[1]})",
            code="gate.shape_mismatch",
        )
    return tensor if tensor.is_floating_point() else tensor.to(model.module.dtype)
