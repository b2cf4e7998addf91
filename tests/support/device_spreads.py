"""All that headlab computes with a model, for models that should agree, and where to put a model's layers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch

from headlab.evaluation import Evaluator, translations
from headlab.hooks import ActiveGates, FanOut, Gates, LayerStates, Model, Trunk, gated, head_means
from headlab.hooks.find import first_output
from headlab.masks import Mask
from headlab.methods.run import score
from headlab.roles import of_task
from headlab.roles.study import study
from headlab.tasks import Example, Task
from support.tiny_models import tiny_batch
from support.tiny_task import tiny_task

METHODS = {
    "shapley": {"samples": 48, "target": None},
    "monte-carlo": {"samples": 24, "target": None},
    "leave-one-out": {},
    "gradient": {},
}


def places(module: torch.nn.Module, first: str, second: str) -> dict[str, str]:
    """A device for every weight: the layers but the first, and a last norm, on the second device."""
    found: dict[str, str] = {}
    for weight in module.state_dict():
        layer = re.match(r".*?\.(\d+)\.", weight)
        path = layer[0].rstrip(".") if layer else weight.rpartition(".")[0] or weight
        found[path] = second if path.endswith("ln_f") or (layer and int(layer[1])) else first
    return found


def everything(model: Model) -> dict[str, Any]:
    """Answers, gated ones, resumed ones, means, scores and roles."""
    batch = {name: tensor.to(model.device) for name, tensor in tiny_batch(model.module).items()}
    rng = np.random.default_rng(0)
    gates = rng.random((3, model.grid.layers, model.grid.width)) < 0.6
    means = head_means(model, [batch])
    found: dict[str, Any] = {
        "open": _logits(model, batch, np.ones_like(gates)),
        "rows": _logits(model, batch, gates),
    }
    found["mean"] = _logits(model, batch, gates[0], ablation="mean", means=means)
    found["means"] = means.cpu().numpy()
    if model.resumable:
        found["resumed"] = _resumed(model, batch, gates, rng)
        found["branched"] = _branched(model, batch, gates)
    if model.module.config.is_encoder_decoder:
        task = Task("made-up", (), ("aa-bb",), False, _pairs)
        mask = Mask(model.grid, rng.random(model.grid.size) < 0.7)
        found["translations"] = translations(Evaluator(model, task, "aa-bb"), mask)
    elif model.module.can_generate():
        task = Task("choices", (), ("xx",), False, _choices, likelihood="choices")
    else:
        task = tiny_task()
        for method in ("relevance", "confidence"):
            found[method] = score(model, task, language="xx", method=method, size=6).values
        rows = study(model, of_task(task, "xx")).table("roles").rows
        found["roles"] = [
            [round(cell, 4) if isinstance(cell, float) else cell for cell in row] for row in rows
        ]
    language = task.languages[0]
    for method, options in METHODS.items():
        for ablation in ("zero", "mean") if method == "shapley" else ("zero",):
            found[f"{method} {ablation}"] = score(
                model, task, language=language, method=method, size=8, ablation=ablation, **options
            ).values
    return found


def _logits(
    model: Model, batch: dict[str, torch.Tensor], gates: Gates, **more: Any
) -> np.ndarray[Any, Any]:
    with torch.no_grad(), gated(model, gates, **more):
        return np.asarray(first_output(model.module(**batch)).cpu().numpy())


def _resumed(
    model: Model, batch: Any, gates: np.ndarray[Any, Any], rng: np.random.Generator
) -> np.ndarray[Any, Any]:
    """A pass that starts at another layer for each row."""
    states = LayerStates(model.grid.layers)
    start = np.arange(3) % model.grid.layers
    lower = torch.ones(gates.shape, device=model.device)
    with torch.no_grad(), model.active(ActiveGates(gates=lower, states=states)):
        model.module(**batch)
    for row, layer in enumerate(start.tolist()):
        lower[row, layer:] = torch.as_tensor(gates[row, layer:]).to(lower)
    states.begin(torch.as_tensor(start))
    with torch.no_grad(), model.active(ActiveGates(gates=lower, states=states)):
        return np.asarray(first_output(model.module(**batch)).cpu().numpy())


def _branched(model: Model, batch: Any, gates: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A pass whose rows all leave another's at the last layer; none runs before."""
    trunk = Trunk(model.grid.layers)
    last = model.grid.layers - 1
    how = FanOut(np.full(3, last), np.arange(3), model.grid.layers, trunk=trunk)
    with torch.no_grad():
        for states in (trunk, how):
            with model.active(
                ActiveGates(
                    gates=torch.as_tensor(gates).to(model.device, torch.float32), states=states
                )
            ):
                found = first_output(model.module(**batch))
    return np.asarray(found.cpu().numpy())


def _pairs(*_: object) -> list[Example]:
    rng = np.random.default_rng(3)
    sides = [
        [" ".join(f"w{w}" for w in rng.integers(4, 97, n)) for n in (1 + at % 3, 4)]
        for at in range(5)
    ]
    return [Example(str(row), source, target=target) for row, (source, target) in enumerate(sides)]


def _choices(*_: object) -> list[Example]:
    """Choices of several tokens, which share the row of their context."""
    rng = np.random.default_rng(4)
    texts = [
        [" ".join(f"w{w}" for w in rng.integers(4, 97, n)) for n in (3 + at % 3, 2, 1 + at % 2)]
        for at in range(8)
    ]
    return [
        Example(str(row), text, 0, choices=(f" {a}", f" {b}"))
        for row, (text, a, b) in enumerate(texts)
    ]
