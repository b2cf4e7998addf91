"""A training's state on disk: trained weights, AdamW's moments, step; one safetensors file, no pickle."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch.nn import Parameter
from torch.optim import AdamW

from headlab.files import write_atomic

KINDS = ("weight", "mean", "square")
MORE = "more"


def _any(more: Mapping[str, torch.Tensor], steps: int) -> bool:
    return True


@dataclass
class State:
    """What a run needs to go on: parameters by name, their optimizer, losses of the steps made, seconds spent.

    rows: greatest number of examples computed together, where more did not fit in memory (0: no limit was met).
    more: what else the run needs, tensors by name.
    """

    parameters: Mapping[str, Parameter]
    optimizer: AdamW
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    rows: int = 0
    more: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """Steps made."""
        return len(self.losses)

    def save(self, path: Path, key: str) -> None:
        """Write the state whole or not at all; `key` names the run it belongs to."""
        tensors: dict[str, torch.Tensor] = {}
        for name, parameter in self.parameters.items():
            moments = self.optimizer.state[parameter]
            # what the model does not use has no gradient, so no moments
            mean, square = (moments.get(kind, torch.zeros_like(parameter)) for kind in ("exp_avg", "exp_avg_sq"))
            values = (parameter.detach(), mean, square)
            tensors |= {f"{kind}/{name}": v.cpu().contiguous() for kind, v in zip(KINDS, values, strict=True)}
        tensors |= {f"{MORE}/{name}": value.cpu().contiguous() for name, value in self.more.items()}
        facts = {"key": key, "losses": json.dumps(self.losses), "seconds": repr(self.seconds), "rows": str(self.rows)}
        write_atomic(path, save(tensors, metadata=facts))

    def resume(self, path: Path, key: str, fits: Callable[[Mapping[str, torch.Tensor], int], bool] = _any) -> None:
        """Go on from a file if there is one of this run; one that cannot be read is skipped with a warning.

        fits: whether what else it holds is right after so many steps.
        """
        if not path.exists():
            return
        try:
            with safe_open(path, framework="pt") as file:
                facts = file.metadata() or {}
                if facts.get("key") != key:
                    raise ValueError("it belongs to another run")
                stored = {name: tuple(file.get_tensor(f"{kind}/{name}") for kind in KINDS) for name in self.parameters}
                named = [name for name in file.keys() if name.startswith(f"{MORE}/")]  # noqa: SIM118 - no mapping
                more = {name.removeprefix(f"{MORE}/"): file.get_tensor(name) for name in named}
            losses, seconds = [float(x) for x in json.loads(facts["losses"])], float(facts["seconds"])
            rows = int(facts.get("rows", 0))
            self._check(stored)
            if not fits(more, len(losses)):
                raise ValueError("it does not fit its number of steps")
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            logging.getLogger(__name__).warning("checkpoint %s is not used (%s); starting afresh", path.name, error)
            return
        self.losses, self.seconds, self.rows, self.more = losses, seconds, rows, more
        self._load(stored)

    def _check(self, stored: Mapping[str, tuple[torch.Tensor, ...]]) -> None:
        for name, parameter in self.parameters.items():
            if any(t.shape != parameter.shape for t in stored[name]):
                raise ValueError(f"{name} has another shape")

    def _load(self, stored: Mapping[str, tuple[torch.Tensor, ...]]) -> None:
        for name, parameter in self.parameters.items():
            weight, mean, square = stored[name]
            with torch.no_grad():
                parameter.copy_(weight)
            self.optimizer.state[parameter] = {
                "step": torch.tensor(float(self.step)),
                "exp_avg": mean.to(parameter.device),
                "exp_avg_sq": square.to(parameter.device),
            }
