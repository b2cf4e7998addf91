"""The steps of a training: examples as tensors, batches, updates, and a state on disk that resumes to the bit."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn
from torch.nn import Parameter
from torch.nn.functional import cross_entropy
from torch.optim import AdamW
from transformers import PreTrainedTokenizerBase

from headlab.errors import HeadlabError
from headlab.files import write_atomic
from headlab.inputs import IGNORED, Rows, first_tokens, padded, positions
from headlab.parallel import TOO_LARGE, out_of_memory
from headlab.records import Ints
from headlab.tasks.base import Example
from headlab.training.options import FinetuneStep, step_batch

# A training's state on disk: trained weights, AdamW's moments, step; one safetensors file, no pickle.

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


# Training examples as token ids with their answers, and the loss they are trained by.


@dataclass(frozen=True)
class Encoded:
    """Examples tokenised once, without padding.

    tokens: what the tokenizer gives, by name, a list an example.  targets: an example's one label, or one a
    token with -100 where none is asked for.
    """

    tokenizer: PreTrainedTokenizerBase
    tokens: dict[str, Rows]
    targets: Rows
    words: bool

    @property
    def lengths(self) -> list[int]:
        """Tokens of every example."""
        return [len(row) for row in self.tokens["input_ids"]]

    def asked(self, rows: Ints) -> int:
        """How many answers some examples ask for."""
        return sum(label != IGNORED for i in rows for label in self.targets[i])

    def inputs(self, rows: Ints, device: torch.device) -> dict[str, torch.Tensor]:
        """Model inputs of some examples, no wider than the longest of them."""
        picked = {name: [values[i] for i in rows] for name, values in self.tokens.items()}
        return {name: t.to(device) for name, t in self.tokenizer.pad(picked, return_tensors="pt").items()}

    def labels(self, rows: Ints, device: torch.device) -> torch.Tensor:
        """Right answers, int [row, 1] or [row, token]."""
        left = self.words and self.tokenizer.padding_side == "left"
        return padded([self.targets[i] for i in rows], IGNORED, left).to(device)

    def loss(self, logits: torch.Tensor, rows: Ints) -> torch.Tensor:
        """Sum of the answers' cross entropies, in nats."""
        target = self.labels(rows, logits.device)
        return cross_entropy(
            logits.reshape(-1, logits.shape[-1]), target.flatten(), ignore_index=IGNORED, reduction="sum"
        )


def encode(tokenizer: PreTrainedTokenizerBase, config: Any, examples: Sequence[Example], max_length: int) -> Encoded:
    """Tokenise examples of one kind; a word is labelled at its first token, and one that was cut off is not asked for.

    max_length: in tokens; the base's own limit holds too.
    """
    longest = min(max_length, positions(config))
    words = bool(examples[0].words)
    texts: list[Any] = [list(e.words) if words else e.text for e in examples]
    pairs = [e.pair for e in examples]
    second = None if all(p is None for p in pairs) else [p or "" for p in pairs]
    found = tokenizer(texts, second, truncation=True, max_length=longest, is_split_into_words=words)
    tokens = {name: found[name] for name in found}
    if words:
        targets = [first_tokens(found.word_ids(row), e.labels) for row, e in enumerate(examples)]
    else:
        targets = [[e.label] for e in examples]
    return Encoded(tokenizer, tokens, targets, words)


def check_examples(examples: Sequence[Example], labels: Sequence[str]) -> None:
    """Raise HeadlabError unless there are examples, with labels among two names or more, all of one kind."""
    if not examples:
        raise HeadlabError("given no examples; give at least one", code="training.no_examples")
    if any(e.target is not None for e in examples):
        raise HeadlabError(
            "the task asks for texts to be generated; finetune trains classifiers of texts and words",
            code="training.task_generates",
        )
    words = bool(examples[0].words)
    if any(bool(e.words) != words or len(e.words) != len(e.labels) for e in examples):
        raise HeadlabError(
            "examples must all be texts with one label, or all words with a label each", code="training.examples_mixed"
        )
    answers = {a for e in examples for a in (e.labels if words else (e.label,))}
    if len(labels) < 2 or not all(0 <= a < len(labels) for a in answers):
        raise HeadlabError(
            f"labels must be indices from 0 to {len(labels) - 1}, of two or more label names",
            code="training.labels_invalid",
        )


def facts(examples: Sequence[Example], labels: Sequence[str]) -> list[list[Any]]:
    """What the weights depend on of the examples: texts, answers, label names."""
    texts = [list(e.words) if e.words else e.text if e.pair is None else [e.text, e.pair] for e in examples]
    return [texts, [list(e.labels) if e.words else e.label for e in examples], list(labels)]


# The steps of a training: batches, updates, checkpoints; smaller parts of a batch where memory is short.

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
