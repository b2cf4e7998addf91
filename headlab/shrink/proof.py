"""The proof that a smaller model answers as the masked one: both run on the same real inputs."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from headlab.errors import HeadlabError
from headlab.gates import Model, gated
from headlab.masks import Mask

Inputs = Sequence[Mapping[str, torch.Tensor]]
# Largest difference that rounding makes, for each 1 + largest logit: float sums in another order.
TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "bfloat16": 5e-2, "float16": 1e-2}
HASHED = 16  # hex digits of the inputs' sha256


@dataclass(frozen=True)
class Proof:
    """What the comparison saw.

    max_logit_difference: largest difference between masked and shrunk, over all logits of real tokens.  tolerance: the
    most that is taken for rounding.  max_logit: largest logit of the masked model.  mask_changes: largest difference
    between untouched and masked, so that one can see that the mask does something on these inputs.  other_answers:
    rows or tokens with another largest logit.  examples: different rows compared.  inputs: sha256 of their token ids,
    shortened.
    """

    max_logit_difference: float
    tolerance: float
    max_logit: float
    mask_changes: float
    other_answers: int
    examples: int
    inputs: str

    @property
    def holds(self) -> bool:
        """Whether the smaller model answers as the masked one."""
        return self.max_logit_difference <= self.tolerance < math.inf

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self) | {"holds": self.holds}

    def check(self, what: str) -> None:
        """Raise HeadlabError, naming what was compared, unless it holds."""
        if not math.isfinite(self.tolerance + self.mask_changes):
            raise HeadlabError(
                f"{what} cannot be compared: the original itself answers NaN or inf on these examples, so nothing was "
                "written; use --dtype float32, and if that is the same, other weights: these are broken",
                code="shrink.original_not_finite",
            )
        if not self.holds:
            raise HeadlabError(
                f"{what} differs from the masked model by up to {self.max_logit_difference:.3g} in its logits, more "
                f"than the {self.tolerance:.3g} that rounding makes, so nothing was written; please report this",
                code="shrink.model_differs",
            )


def prove(model: Model, mask: Mask, module: nn.Module, inputs: Inputs, *, numbers: str | None = None) -> Proof:
    """Compare a model under a mask with a module that should answer the same, on batches of model inputs.

    numbers: that the module's weights were rounded to; None are the model's.  Raises HeadlabError if there is no batch.
    """

    def other(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        with torch.inference_mode():
            return logits_of(module, batch)

    return compare(model, mask, other, inputs, numbers=numbers)


def compare(
    model: Model, mask: Mask, other: Callable[[Mapping[str, torch.Tensor]], torch.Tensor], inputs: Inputs, *,
    numbers: str | None = None,
) -> Proof:  # fmt: skip
    """The same, with a function from a batch to logits."""
    if not inputs:
        raise HeadlabError("there is no example to compare the models on; give one or more", code="shrink.no_examples")
    largest = changes = difference = 0.0
    others, digest, different = 0, hashlib.sha256(), set[bytes]()
    for batch in inputs:
        with torch.inference_mode():
            untouched = logits_of(model.module, batch)
            with gated(model, mask):
                masked = logits_of(model.module, batch)
        real = real_tokens(batch, masked)
        masked, got = masked[real].double(), other(batch).to(masked.device)[real].double()
        difference = _larger(difference, got - masked)
        changes = _larger(changes, untouched[real].double() - masked)
        largest = _larger(largest, masked)
        others += int((got.argmax(-1) != masked.argmax(-1)).sum())
        digest.update(batch["input_ids"].cpu().numpy().tobytes())
        different |= rows_of(batch)
    tolerance = TOLERANCE[numbers or model.dtype] * (1 + largest)
    return Proof(difference, tolerance, largest, changes, others, len(different), digest.hexdigest()[:HASHED])


def logits_of(module: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """A model's logits, or the hidden states of one without a head."""
    return first_tensor(module(**batch))


def first_tensor(out: Mapping[str, Any]) -> torch.Tensor:
    """What a model answers with, behind its loss if it has one: a tensor of two dimensions or more."""
    return next(value for value in out.values() if isinstance(value, torch.Tensor) and value.dim() >= 2)


def real_tokens(batch: Mapping[str, torch.Tensor], logits: torch.Tensor) -> torch.Tensor:
    """bool, which rows of the logits [row, label] or tokens of [row, token, label] are no padding."""
    shape = logits.shape[:-1]
    mask = batch.get("decoder_attention_mask" if "decoder_input_ids" in batch else "attention_mask")
    if mask is None or mask.shape != shape:
        return torch.ones(shape, dtype=torch.bool, device=logits.device)
    return mask.bool()


def rows_of(batch: Mapping[str, torch.Tensor]) -> set[bytes]:
    """The rows of a batch, without padding, each once."""
    ids, mask = batch["input_ids"].cpu(), batch.get("attention_mask")
    real = torch.ones_like(ids).bool() if mask is None else mask.cpu().bool()
    return {row[there].numpy().tobytes() for row, there in zip(ids, real, strict=True)}


def _larger(so_far: float, values: torch.Tensor) -> float:
    """The larger of a number and the largest absolute value; infinite where there is a NaN."""
    found = values.abs().max() if values.numel() else torch.zeros(())
    return max(so_far, float(found.nan_to_num(torch.inf)))
