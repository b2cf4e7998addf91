"""The steps of a language model's training, from where its state is to the last."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import AdamW
from transformers import PreTrainedModel

from headlab.errors import HeadlabError
from headlab.records import Ints
from headlab.training.lm.options import LmStep
from headlab.training.lm.text import Corpus
from headlab.training.lm.windows import StepOptions, step_windows
from headlab.training.state import State
from headlab.training.steps import Keep, dropout_seed, fits_in_memory, fitting

SMALLER = "train a model of less width, fewer layers or a smaller vocabulary"


def nothing() -> None:
    """Called between passes where nobody has to be asked."""


@dataclass(frozen=True)
class Watch:
    """Who looks on: progress is called after each step, tick between passes; both may raise to stop.

    checkpoint_every: steps between two writings of the state, which take no more than checkpoint_share of the time.
    """

    progress: Callable[[LmStep], None] | None = None
    tick: Callable[[], None] = nothing
    checkpoint_every: int = 50
    checkpoint_share: float = 0.05


class LmSteps:
    """Updates of a language model on windows of a text. part: what progress calls them."""

    part = "training"

    def __init__(self, model: PreTrainedModel, corpus: Corpus, options: StepOptions, state: State) -> None:
        self.model, self.corpus, self.options, self.state = model, corpus, options, state
        self.device = model.device

    def run(self, keep: Keep, watch: Watch) -> None:
        """Make the steps that are left, from those in the file that `keep` names, if there is one of this run."""
        self.state.resume(keep.path, keep.key, self.fits)
        keep.step = self.state.step
        begun = time.perf_counter() - self.state.seconds
        for step in range(self.state.step, self.options.steps):
            watch.tick()
            self.state.losses.append(self.step(step))
            self.made(step + 1)
            self.state.seconds = time.perf_counter() - begun
            if keep.due(step + 1, step + 1 == self.options.steps):
                keep.save(self.state)
            if watch.progress:
                told = (self.part, step + 1, self.options.steps, self.state.losses[-1], self.state.seconds)
                watch.progress(LmStep(*told, keep.step, self.open()))

    def step(self, step: int) -> float:
        """One update. Returns the mean loss, nats a token. Raises HeadlabError if it is not a number."""
        self.model.train()
        self.set_rates(step)
        starts = step_windows(self.corpus.asked, self.options, step)

        def run(rows: int) -> float:
            torch.manual_seed(dropout_seed(self.options.seed, step))
            self.state.optimizer.zero_grad()
            return self._added(step, starts, rows)

        together = min(n for n in (len(starts), self.options.micro_batch, self.state.rows) if n)
        loss = fitting(self.state, together, run)
        if not np.isfinite(loss):
            raise HeadlabError(
                f"the loss of step {step + 1} is {loss}; train with a lower learning rate",
                code="training.loss_not_finite",
            )
        if self.options.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip)
        with fits_in_memory("the optimizer's means do", SMALLER):
            self.state.optimizer.step()
        return loss

    def _added(self, step: int, starts: Ints, rows: int) -> float:
        """Gradient of the batch's objective, added up over parts. Returns the mean loss."""
        total = 0.0
        for at in range(0, len(starts), rows):
            part = starts[at : at + rows]
            share = len(part) / len(starts)
            places = part[:, None] + np.arange(self.options.block + 1)
            ids = torch.as_tensor(self.corpus.ids[places], device=self.device)
            loss, penalty = self.objective(step, ids[:, :-1], ids[:, 1:])
            ((loss + penalty) * share).backward()
            total += loss.item() * share
        return total

    def objective(
        self, step: int, ids: torch.Tensor, follow: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | float]:
        """Mean loss of some windows, nats a token, and what is added to it."""
        return self.loss(ids, follow), 0.0

    def loss(self, ids: torch.Tensor, follow: torch.Tensor) -> torch.Tensor:
        """Mean nats of the tokens that follow, both int [window, token]."""
        return cross_entropy(self.model(ids).logits.flatten(0, 1), follow.flatten())

    def set_rates(self, step: int) -> None:
        """Give each group of weights its learning rate."""
        for group in self.state.optimizer.param_groups:
            group["lr"] = self.options.rate(step)

    def made(self, steps: int) -> None:
        """Called after each step with how many are made."""

    def fits(self, more: object, steps: int) -> bool:
        """Whether what a checkpoint holds beside weights is right after so many steps."""
        return steps <= self.options.steps

    def open(self) -> int | None:
        """Gates that are open, where there are any."""
        return None


def decayed(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """AdamW's groups: matrices with weight decay; norms, biases and vectors of positions and heads without."""
    named = sorted((name, p) for name, p in model.named_parameters() if p.requires_grad)
    matrices = [p for name, p in named if name.endswith("weight") and p.dim() > 1]
    others = [p for name, p in named if not (name.endswith("weight") and p.dim() > 1)]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def new_state(model: nn.Module, weight_decay: float) -> State:
    """All parameters in name order, and an AdamW over them; its rates are set step by step."""
    parameters = {name: p for name, p in sorted(model.named_parameters()) if p.requires_grad}
    return State(parameters, AdamW(decayed(model, weight_decay), lr=1e-3))
