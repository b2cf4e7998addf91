"""All that headlab computes with a model, for models that should agree, and device maps."""

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


def device_map_of(module: torch.nn.Module, first_device: str, second_device: str) -> dict[str, str]:
    """A device map with all layers but the first, and GPT-2's last norm, on the second device."""
    device_map: dict[str, str] = {}
    for weight in module.state_dict():
        layer = re.match(r".*?\.(\d+)\.", weight)
        if layer:
            path = layer[0].rstrip(".")
            is_on_second = int(layer[1]) > 0
        else:
            path = weight.rpartition(".")[0] or weight
            is_on_second = False
        is_on_second = is_on_second or path.endswith("ln_f")
        device_map[path] = second_device if is_on_second else first_device
    return device_map


def all_results(model: Model) -> dict[str, Any]:
    """Logits, means, translations, scores and roles, by the names of what was computed."""
    batch = {}
    for name, tensor in tiny_batch(model.module).items():
        batch[name] = tensor.to(model.device)
    rng = np.random.default_rng(0)
    random_numbers = rng.random((3, model.grid.layers, model.grid.width))
    gates = random_numbers < 0.6
    means = head_means(model, [batch])
    results: dict[str, Any] = {
        "open": _logits(model, batch, np.ones_like(gates)),
        "rows": _logits(model, batch, gates),
    }
    results["mean"] = _logits(
        model,
        batch,
        gates[0],
        ablation="mean",
        means=means,
    )
    results["means"] = means.cpu().numpy()
    if model.resumable:
        results["resumed"] = _resumed_logits(model, batch, gates, rng)
        results["branched"] = _branched_logits(model, batch, gates)
    if model.module.config.is_encoder_decoder:
        task = Task("made-up", (), ("aa-bb",), False, _translation_examples)
        kept_heads = rng.random(model.grid.size) < 0.7
        mask = Mask(model.grid, kept_heads)
        evaluator = Evaluator(model, task, "aa-bb")
        results["translations"] = translations(evaluator, mask)
    elif model.module.can_generate():
        task = Task("choices", (), ("xx",), False, _choice_examples, likelihood="choices")
    else:
        task = tiny_task()
        for method in ("relevance", "confidence"):
            scores = score(model, task, language="xx", method=method, size=6)
            results[method] = scores.values
        report = study(model, of_task(task, "xx"))
        results["roles"] = []
        for row in report.table("roles").rows:
            rounded_row = [_round_if_float(cell) for cell in row]
            results["roles"].append(rounded_row)
    language = task.languages[0]
    for method, options in METHODS.items():
        ablations = ("zero", "mean") if method == "shapley" else ("zero",)
        for ablation in ablations:
            scores = score(
                model,
                task,
                language=language,
                method=method,
                size=8,
                ablation=ablation,
                **options,
            )
            results[f"{method} {ablation}"] = scores.values
    return results


def _round_if_float(cell: Any) -> Any:
    """A cell of a table; numbers to four digits."""
    if isinstance(cell, float):
        return round(cell, 4)
    return cell


def _logits(
    model: Model, batch: dict[str, torch.Tensor], gates: Gates, **gate_options: Any
) -> np.ndarray[Any, Any]:
    with torch.no_grad(), gated(model, gates, **gate_options):
        logits = first_output(model.module(**batch))
    return np.asarray(logits.cpu().numpy())


def _resumed_logits(
    model: Model, batch: Any, gates: np.ndarray[Any, Any], rng: np.random.Generator
) -> np.ndarray[Any, Any]:
    """Logits of a pass that starts at another layer for each row."""
    states = LayerStates(model.grid.layers)
    start = np.arange(3) % model.grid.layers
    lower = torch.ones(gates.shape, device=model.device)
    with torch.no_grad(), model.active(ActiveGates(gates=lower, states=states)):
        model.module(**batch)
    for row, layer in enumerate(start.tolist()):
        upper_gates = torch.as_tensor(gates[row, layer:])
        lower[row, layer:] = upper_gates.to(lower)
    states.begin(torch.as_tensor(start))
    with torch.no_grad(), model.active(ActiveGates(gates=lower, states=states)):
        logits = first_output(model.module(**batch))
    return np.asarray(logits.cpu().numpy())


def _branched_logits(model: Model, batch: Any, gates: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Logits of a pass whose rows all branch off a trunk at the last layer, and none before it."""
    trunk = Trunk(model.grid.layers)
    last_layer = model.grid.layers - 1
    first_layers = np.full(3, last_layer)
    fan_out = FanOut(first_layers, np.arange(3), model.grid.layers, trunk=trunk)
    with torch.no_grad():
        for states in (trunk, fan_out):
            gates_on_device = torch.as_tensor(gates).to(model.device, torch.float32)
            active_gates = ActiveGates(gates=gates_on_device, states=states)
            with model.active(active_gates):
                logits = first_output(model.module(**batch))
    return np.asarray(logits.cpu().numpy())


def _translation_examples(*_: object) -> list[Example]:
    """Sources of one to three random words, targets of four."""
    rng = np.random.default_rng(3)
    examples = []
    for row in range(5):
        source = _random_words(rng, 1 + row % 3)
        target = _random_words(rng, 4)
        examples.append(Example(str(row), source, target=target))
    return examples


def _choice_examples(*_: object) -> list[Example]:
    """Contexts with two choices of several tokens, which share the row of their context."""
    rng = np.random.default_rng(4)
    examples = []
    for row in range(8):
        context = _random_words(rng, 3 + row % 3)
        first_choice = _random_words(rng, 2)
        second_choice = _random_words(rng, 1 + row % 2)
        choices = (f" {first_choice}", f" {second_choice}")
        examples.append(Example(str(row), context, 0, choices=choices))
    return examples


def _random_words(rng: np.random.Generator, count: int) -> str:
    words = [f"w{number}" for number in rng.integers(4, 97, count)]
    return " ".join(words)
