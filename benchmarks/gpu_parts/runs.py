"""Does it run at all: models on the device in every number format, against the processor's float64."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from support.tiny_models import tiny_batch, tiny_module

from headlab.evaluation import Evaluator
from headlab.hooks import (
    ActiveGates,
    FanOut,
    LayerStates,
    Model,
    Trunk,
    as_gate_tensor,
    gated,
    make_gateable,
)
from headlab.hooks.find import first_output
from headlab.models.checkpoint import Checkpoint

from .record import Record
from .setting import Setting, Subject, random_gates, tensor_float_32

Inputs = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Format:
    """A number format: its name in the figures, torch's name of it, and whether TF32 is used."""

    name: str
    dtype: str
    tf32: bool = False


FORMATS = (
    Format("float64", "float64"),
    Format("float32", "float32"),
    Format("tf32", "float32", tf32=True),
    Format("bfloat16", "bfloat16"),
    Format("float16", "float16"),
)


def run(setting: Setting, record: Record) -> None:
    """All models in all formats."""
    subjects, missing = setting.subjects()
    if missing:
        record.add("not here", missing)
    for subject in subjects:
        reference = _reference(setting, subject)
        for number_format in FORMATS:
            with tensor_float_32(number_format.tf32):
                record.measure(
                    f"{subject.name}, {number_format.name}",
                    partial(compare_subject, setting, subject, number_format, reference),
                )
    for family in setting.sizes.families:
        record.measure(f"tiny {family}", partial(compare_family, setting, family))


# Real models with their examples.


@dataclass(frozen=True)
class Reference:
    """Logits of the processor in float64 for some coalitions, and the right answers.

    Attributes:
        logits: Float [row, ...], one coalition and one example a row.
        is_counted: Bool, of the shape of the answers: where an answer counts.
    """

    logits: torch.Tensor
    is_counted: torch.Tensor


def _reference(setting: Setting, subject: Subject) -> Reference:
    evaluator = subject.evaluator("cpu", "float64", setting.sizes.examples)
    rows = np.arange(len(evaluator.examples))
    gates = random_gates(evaluator.model, len(rows))
    logits = gated_logits(evaluator, gates)
    is_counted = evaluator.targets(rows, logits) >= 0
    return Reference(logits, is_counted.cpu())


def gated_logits(evaluator: Evaluator, gates: np.ndarray[Any, Any]) -> torch.Tensor:
    """Logits of all examples, each under its own coalition, on the processor in float64.

    Args:
        evaluator: The model and its examples.
        gates: Bool [example, layer, head].
    """
    rows = np.arange(len(evaluator.examples))
    active = ActiveGates(gates=as_gate_tensor(evaluator.model, gates))
    with torch.inference_mode(), evaluator.model.active(active):
        logits = evaluator.logits(evaluator.tensors(rows))
        return logits.double().cpu()


def compare_subject(
    setting: Setting, subject: Subject, number_format: Format, reference: Reference
) -> dict[str, Any]:
    """One model in one format: loaded with its self-test, then compared with the processor."""
    evaluator = subject.evaluator(
        setting.device,
        number_format.dtype,
        setting.sizes.examples,
    )
    model = evaluator.model
    gates = random_gates(model, len(evaluator.examples))
    figures = {"resumable": model.resumable, "first_token": model.first_token}
    figures |= differences(gated_logits(evaluator, gates), reference)
    if model.resumable:
        figures["resumed, largest difference"] = resumed_difference(evaluator, gates)
        figures["branching, largest difference"] = branching_difference(evaluator, gates)
    return figures


def differences(logits: torch.Tensor, reference: Reference) -> dict[str, Any]:
    """How far logits are from the reference, and how many answers differ.

    Returns:
        Largest difference, the size of the largest logit, the number of answers, the number of
        those that differ, and the margins of these by which the reference chose its answer.
    """
    is_counted = reference.is_counted
    gap = (logits - reference.logits)[is_counted]
    reference_logits = reference.logits[is_counted]
    best_two = reference_logits.topk(2, dim=-1).values
    answers = logits[is_counted].argmax(dim=-1)
    is_other_answer = answers != reference_logits.argmax(dim=-1)
    margins = best_two[:, 0] - best_two[:, 1]
    margins_of_others = margins[is_other_answer].tolist()
    return {
        "largest difference": float(gap.abs().max()),
        "largest logit": float(reference_logits.abs().max()),
        "answers": int(is_counted.sum()),
        "other answers": int(is_other_answer.sum()),
        "margins of these": sorted(margins_of_others, reverse=True)[:5],
    }


def resumed_difference(evaluator: Evaluator, gates: np.ndarray[Any, Any]) -> float:
    """Largest difference between logits of a pass resumed at the middle layer and of a full pass."""
    model = evaluator.model
    rows = np.arange(len(evaluator.examples))
    middle = model.grid.layers // 2
    lower_gates = gates.copy()
    lower_gates[:, middle:] = True
    states = LayerStates(model.grid.layers)
    inputs = evaluator.tensors(rows)
    with torch.inference_mode():
        lower = ActiveGates(gates=as_gate_tensor(model, lower_gates), states=states)
        with model.active(lower):
            evaluator.logits(inputs)
        states.begin(torch.full((len(rows),), middle))
        full = ActiveGates(gates=as_gate_tensor(model, gates), states=states)
        with model.active(full):
            resumed_logits = evaluator.logits(inputs).double().cpu()
    difference = resumed_logits - gated_logits(evaluator, gates)
    return float(difference.abs().max())


def branching_difference(evaluator: Evaluator, gates: np.ndarray[Any, Any]) -> float:
    """Largest difference between logits of rows that branch off a trunk and of full passes.

    Row r branches at layer r modulo the layers, where its coalition begins to differ from the
    trunk's.
    """
    model = evaluator.model
    layers = model.grid.layers
    rows = np.arange(len(evaluator.examples))
    start = np.sort(rows % layers)
    trunk_gates = gates.copy()
    for row, layer in enumerate(start.tolist()):
        trunk_gates[row, layer:] = True
    trunk = Trunk(layers, first_token=model.first_token)
    branches = FanOut(
        start,
        rows,
        layers,
        first_token=model.first_token,
        trunk=trunk,
    )
    inputs = evaluator.tensors(rows)
    with torch.inference_mode():
        on_trunk = ActiveGates(gates=as_gate_tensor(model, trunk_gates), states=trunk)
        with model.active(on_trunk):
            evaluator.logits(inputs)
        on_branches = ActiveGates(gates=as_gate_tensor(model, gates), states=branches)
        with model.active(on_branches):
            branching_logits = evaluator.logits(inputs).double().cpu()
    difference = branching_logits - gated_logits(evaluator, gates)
    return float(difference.abs().max())


# Tiny models with random weights, of every kind of architecture.


def compare_family(setting: Setting, family: str) -> dict[str, Any]:
    """A tiny model of one family in every format: the largest difference of its gated outputs."""
    module = tiny_module(family)
    batch = tiny_batch(module)
    model = gateable_tiny_model(family, module)
    gates = random_gates(model, len(batch["input_ids"]))
    reference = tiny_output(model, batch, gates)
    figures: dict[str, Any] = {}
    for number_format in FORMATS:
        with tensor_float_32(number_format.tf32):
            dtype = getattr(torch, number_format.dtype)
            module = tiny_module(family).to(device=setting.device, dtype=dtype)
            model = gateable_tiny_model(family, module)
            output = tiny_output(model, batch, gates)
        difference = output - reference
        figures[number_format.name] = float(difference.abs().max())
    figures["largest output"] = float(reference.abs().max())
    figures["resumable"] = model.resumable
    return figures


def gateable_tiny_model(family: str, module: Any) -> Model:
    """A tiny model whose heads are found and whose gates are tested, on its device."""
    no_tokenizer: Any = None  # no text is read
    checkpoint = Checkpoint(
        f"tiny {family}",
        "random",
        family,
        module,
        no_tokenizer,
    )
    return make_gateable(checkpoint)


def tiny_output(model: Model, batch: Inputs, gates: np.ndarray[Any, Any]) -> torch.Tensor:
    """Outputs of a tiny model, each row under its own coalition, on the processor in float64."""
    inputs = {name: tensor.to(model.device) for name, tensor in batch.items()}
    with torch.inference_mode(), gated(model, gates):
        return first_output(model.module(**inputs)).double().cpu()
