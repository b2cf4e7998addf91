"""The steps of a training: batches, updates, checkpoints; smaller parts of a batch where memory is short."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import nn

from headlab.errors import HeadlabError
from headlab.memory import TOO_LARGE, out_of_memory
from headlab.records import Ints
from headlab.training.batches import step_batch
from headlab.training.encoded import Encoded
from headlab.training.options import FinetuneStep
from headlab.training.state import State

CHECKPOINT_SHARE = 0.05
R = TypeVar("R")


class Pace(Protocol):
    """What steps are told, as a `FinetuneOptions` says it; the options of other trainings say it too."""

    @property
    def seed(self) -> int:
        """Of the batches and of dropout."""
        ...

    @property
    def steps(self) -> int:
        """How many there are."""
        ...

    @property
    def batch(self) -> int:
        """Examples of one."""
        ...

    @property
    def micro_batch(self) -> int | None:
        """Examples computed together (None: the batch)."""
        ...

    @property
    def clip(self) -> float | None:
        """Greatest norm of the gradient (None: any)."""
        ...

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        ...


@dataclass
class Keep:
    """Where and how often the state is kept: after every so many steps, within a share of the time.

    seconds: what the last one took.  at: when it was done.  step: up to where the state is on disk.
    """

    path: Path
    key: str
    every: int
    share: float = CHECKPOINT_SHARE
    seconds: float = 0.0
    at: float = 0.0
    step: int = 0

    def due(self, step: int, last: bool) -> bool:
        """Whether to keep the state now; always after the last step, as measuring may take long."""
        waited = time.perf_counter() - self.at
        return last or (step % self.every == 0 and waited >= self.seconds * (1 / self.share - 1))

    def save(self, state: State) -> None:
        """Keep the state."""
        begun = time.perf_counter()
        state.save(self.path, self.key)
        self.at = time.perf_counter()
        self.seconds, self.step = self.at - begun, state.step


class Steps:
    """Updates of a model's trainable parameters, from where its state is to the last."""

    def __init__(self, model: nn.Module, state: State, options: Pace, keep: Keep) -> None:
        self.model, self.state, self.options, self.keep = model, state, options, keep
        self.device = next(model.parameters()).device

    def run(self, encoded: Encoded, progress: Callable[[FinetuneStep], None] | None) -> None:
        """Make the steps that are left. progress: called after each."""
        lengths, options = encoded.lengths, self.options
        begun = time.perf_counter() - self.state.seconds
        self.keep.step = self.state.step
        for step in range(self.state.step, options.steps):
            chosen = step_batch(lengths, options.batch, options.seed, step)
            self.state.losses.append(self.step(step, encoded, chosen))
            self.state.seconds = time.perf_counter() - begun
            if self.keep.due(step + 1, step + 1 == options.steps):
                self.keep.save(self.state)
            if progress:
                progress(self._told(step, len(chosen)))

    def _told(self, step: int, batch: int) -> FinetuneStep:
        loss, rate = self.state.losses[-1], self.options.rate(step)
        seconds, rows = self.state.seconds, self._rows(batch)
        return FinetuneStep(step + 1, self.options.steps, loss, rate, seconds, kept=self.keep.step, rows=rows)

    def _rows(self, batch: int) -> int:
        """How many examples are computed together."""
        return min([batch, *(n for n in (self.options.micro_batch, self.state.rows) if n)])

    def step(self, step: int, encoded: Encoded, chosen: Ints) -> float:
        """One update; its dropout depends on seed, step and the examples computed together. Returns the mean loss.

        Raises HeadlabError if a single example does not fit in memory.
        """
        self.model.train()
        for group in self.state.optimizer.param_groups:
            group["lr"] = self.options.rate(step)
        loss = self._gradient(step, encoded, chosen)
        if not np.isfinite(loss):
            raise HeadlabError(
                f"the loss of step {step + 1} is {loss}; train with a lower learning rate",
                code="training.loss_not_finite",
            )
        if self.options.clip is not None:
            nn.utils.clip_grad_norm_(self.state.parameters.values(), self.options.clip)
        with fits_in_memory("the optimizer's means do", "freeze embeddings or layers, or train a LoRA"):
            self.state.optimizer.step()
        return loss

    def _gradient(self, step: int, encoded: Encoded, chosen: Ints) -> float:
        """Gradient of the batch's mean loss, added up over parts that fit in memory. Returns that loss."""

        def run(rows: int) -> float:
            torch.manual_seed(dropout_seed(self.options.seed, step))
            self.state.optimizer.zero_grad()
            return self._added(encoded, chosen, rows)

        return fitting(self.state, self._rows(len(chosen)), run)

    def _added(self, encoded: Encoded, chosen: Ints, rows: int) -> float:
        asked, total = max(1, encoded.asked(chosen)), 0.0
        for at in range(0, len(chosen), rows):
            part = chosen[at : at + rows]
            loss = encoded.loss(self.model(**encoded.inputs(part, self.device)).logits, part) / asked
            loss.backward()
            total += loss.item()
        return total


def dropout_seed(seed: int, step: int) -> int:
    """What torch draws a step's dropout from: of seed and step alone, and in torch's range whatever the seed."""
    return (seed * 1_000_003 + step + 1) % (1 << 63)


def torch_seed(seed: int) -> int:
    """A seed in torch's range, whatever the seed; itself where it is there."""
    return seed % (1 << 63)


@contextmanager
def fits_in_memory(what: str, do: str) -> Iterator[None]:
    """For work that no smaller batch makes smaller: full memory becomes a sentence that says what did not fit."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        raise HeadlabError(f"{what} not fit in the device's memory; {do}", code="memory.training_too_large") from error


def fitting(state: State, rows: int, run: Callable[[int], R]) -> R:
    """What `run(rows)` gives, with as many rows computed together as fit in memory: half as many after each failure.

    run: begins again whenever it is called.  The number that fitted is kept in the state.  Raises HeadlabError
    if a single row does not fit.
    """
    while True:
        try:
            return run(rows)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            if rows == 1:
                raise HeadlabError(TOO_LARGE, code="memory.example_too_large") from error
        # outside the handler, so that the failed pass's tensors are free
        fewer = -(-rows // 2)
        logging.getLogger(__name__).warning(
            "%d examples together do not fit in the device's memory; going on with %d, their gradients added up",
            rows, fewer,
        )  # fmt: skip
        state.rows = rows = fewer
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
