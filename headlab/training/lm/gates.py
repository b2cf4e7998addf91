"""Layer-wise gates on a language model's heads (Shim et al., 2021): learned, then heads removed for good."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.optim import AdamW
from transformers import PreTrainedTokenizerBase

from headlab.errors import HeadlabError
from headlab.gates import Model, attach, gated
from headlab.learned import LearnedGates
from headlab.models.allattention.modelling import AllAttentionForCausalLM
from headlab.models.checkpoint import Checkpoint
from headlab.records import Floats, Ints
from headlab.training.lm.options import LmGateOptions
from headlab.training.lm.steps import LmSteps, decayed
from headlab.training.lm.text import Corpus
from headlab.training.state import State

GATES, HISTORY = "log_alpha", "history"
DRAWS = 1  # sets the stream of the gates' draws apart from that of the windows
LEAST_OPEN = 1e-6  # a layer whose gates are all 0 stays at 0


class GateSteps(LmSteps):
    """Updates of a language model along with one Hard Concrete gate a head, drawn once a step."""

    part = "gates"

    def __init__(self, model: Model, corpus: Corpus, options: LmGateOptions) -> None:
        module = model.module
        self.attached, self.chosen, self.concrete = model, options, options.concrete
        grid = model.grid
        self.log_alpha = nn.Parameter(torch.full((grid.size,), options.first, device=module.device))
        self.rows, self.columns = (torch.as_tensor(part, device=module.device) for part in grid.flat.T)
        self.heads = torch.tensor([n for s in grid.stacks for n in s.heads], device=module.device)
        parameters = {name: p for name, p in sorted(module.named_parameters()) if p.requires_grad}
        # The gates' group first: it alone keeps its rate.
        groups = [{"params": [self.log_alpha], "weight_decay": 0.0}, *decayed(module, options.weight_decay)]
        state = State({GATES: self.log_alpha} | parameters, AdamW(groups, lr=options.gate_rate))
        state.more[HISTORY] = self._now()
        super().__init__(module, corpus, options, state)

    def objective(
        self, step: int, ids: torch.Tensor, follow: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | float]:
        """Loss under gates drawn for the step, and λ · Σ P(gate ≠ 0)."""
        rng = np.random.default_rng((self.options.seed, DRAWS, step))
        uniform = torch.as_tensor(rng.random(len(self.log_alpha), np.float32), device=self.device)
        with gated(self.attached, self.by_layer(self.concrete.sample(self.log_alpha, uniform))):
            loss = self.loss(ids, follow)
        return loss, self.chosen.weight_at(step) * self.concrete.open(self.log_alpha).sum()

    def by_layer(self, gates: torch.Tensor) -> torch.Tensor:
        """Gates [head] -> [layer, head], each layer's multiplied by heads / sum of gates where outputs are scaled."""
        wide = torch.zeros(len(self.heads), self.attached.grid.width, dtype=gates.dtype, device=gates.device)
        wide = wide.index_put((self.rows, self.columns), gates)
        if not self.chosen.scale:
            return wide
        return wide * (self.heads / wide.sum(dim=1).clamp(min=LEAST_OPEN))[:, None]

    def set_rates(self, step: int) -> None:
        """The gates' rate stays, the model's falls."""
        first, *others = self.state.optimizer.param_groups
        first["lr"] = self.chosen.gate_rate
        for group in others:
            group["lr"] = self.options.rate(step)

    def made(self, steps: int) -> None:
        """Keep the gates of this time, where it is one that is kept."""
        if steps in self.chosen.times:
            self.state.more[HISTORY] = torch.cat([self.state.more[HISTORY], self._now()])

    def _now(self) -> torch.Tensor:
        """The gates' parameters as they are, [1, head]: a copy, which later steps do not change."""
        return self.log_alpha.detach().to("cpu", copy=True)[None]

    def fits(self, more: object, steps: int) -> bool:
        """See `LmSteps.fits`: the history must have come as far as the steps."""
        history = more.get(HISTORY) if isinstance(more, Mapping) else None
        wanted = (sum(time <= steps for time in self.chosen.times), len(self.log_alpha))
        return super().fits(more, steps) and history is not None and tuple(history.shape) == wanted

    def open(self) -> int | None:
        """Gates that are at least as likely to be 1 as to be 0."""
        return int((self.log_alpha.detach() >= self.concrete.even).sum())

    def learned(self, spec: Mapping[str, object]) -> LearnedGates:
        """The record of what was learned."""
        times: Ints = np.array(self.chosen.times)
        history = self.state.more[HISTORY]
        penalty: Floats = self.chosen.weight * self.concrete.open(history.double()).sum(dim=1).numpy()
        means = [float(np.mean(self.state.losses[a:b])) for a, b in pairwise(times)]
        return LearnedGates(
            self.attached.grid, "", times, history.numpy(), np.array([np.nan, *means]), penalty,
            float(self.chosen.weight), self.options.steps * self.options.batch, self.state.seconds, self.concrete, {},
            dict(spec),
        )  # fmt: skip


def attached(module: AllAttentionForCausalLM, tokenizer: PreTrainedTokenizerBase, name: str) -> Model:
    """The model with its heads known, to be gated while it is trained."""
    return attach(Checkpoint(name, "training", "", module, tokenizer))


class AllClosed(HeadlabError):
    """Every gate closed: no attention would be left."""


def check_some_left(gates: LearnedGates) -> None:
    """Raise AllClosed if every gate is closed."""
    if not gates.kept.any():
        raise AllClosed(
            f"all {gates.grid.size} gates closed at weight {gates.weight:g}; choose a lower weight, or fewer steps",
            code="gate.all_closed",
        )
