"""The steps of a training: examples as tensors, batches, updates, and a state on disk that resumes to the bit."""

from __future__ import annotations

import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

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

    def resume(
        self, path: Path, key: str, fits: Callable[[Mapping[str, torch.Tensor], int], bool] = lambda more, steps: True
    ) -> None:
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
Told = TypeVar("Told")


class Pace(Protocol):
    """What steps are told: the options of every training say it."""

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


class RatedPace(Pace, Protocol):
    """The same, with one learning rate for all weights."""

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


def nothing() -> None:
    """Called between passes where nobody has to be asked."""


class Steps(ABC, Generic[Told]):
    """Updates of what is trained, from where its state is to the last step.

    A training says what differs: its batches, their gradient, the rates, and what it tells of a step.
    """

    lower = "a lower learning rate"  # what helps where the loss is not a number
    smaller = "freeze embeddings or layers, or train a LoRA"  # and where the optimizer does not fit in memory

    def __init__(self, module: nn.Module, options: Pace, state: State) -> None:
        self.module, self.options, self.state = module, options, state
        self.device = next(module.parameters()).device

    def run(
        self, keep: Keep | None, say: Callable[[Told], None] | None = None, tick: Callable[[], None] = nothing
    ) -> None:
        """Make the steps that are left, from those in the file that `keep` names, if there is one of this run.

        say: called after each step.  tick: called between passes; both may raise to stop.
        """
        if keep is not None:
            self.state.resume(keep.path, keep.key, self.fits)
            keep.step = self.state.step
        begun = time.perf_counter() - self.state.seconds
        for step in range(self.state.step, self.options.steps):
            tick()
            chosen = self.chosen(step)
            self.state.losses.append(self.step(step, chosen))
            self.made(step + 1)
            self.state.seconds = time.perf_counter() - begun
            if keep is not None and keep.due(step + 1, step + 1 == self.options.steps):
                keep.save(self.state)
            if say is not None:
                say(self.told(step, self.together(len(chosen)), 0 if keep is None else keep.step))

    def step(self, step: int, chosen: Ints) -> float:
        """One update; what is random in it depends on seed and step alone. Returns the mean loss.

        Raises HeadlabError if the loss is not a number, or if a single example or the optimizer does not fit in memory.
        """
        self.train()
        for group, rate in zip(self.state.optimizer.param_groups, self.rates(step), strict=True):
            group["lr"] = rate

        def run(rows: int) -> float:
            torch.manual_seed(dropout_seed(self.options.seed, step))
            self.state.optimizer.zero_grad()
            return self.gradient(step, chosen, rows)

        loss = fitting(self.state, self.together(len(chosen)), run)
        if not np.isfinite(loss):
            raise HeadlabError(
                f"the loss of step {step + 1} is {loss}; train with {self.lower}", code="training.loss_not_finite"
            )
        self.update()
        return loss

    def update(self) -> None:
        """One step of the optimizer, with the gradients that are there. Raises HeadlabError without memory for it."""
        if self.options.clip is not None and (clipped := self.clipped()):
            nn.utils.clip_grad_norm_(clipped, self.options.clip)
        with fits_in_memory("the optimizer state does", self.smaller):
            self.state.optimizer.step()

    def together(self, batch: int) -> int:
        """How many examples of a batch are computed together."""
        return min(n for n in (batch, self.options.micro_batch, self.state.rows) if n)

    @abstractmethod
    def chosen(self, step: int) -> Ints:
        """What a step is made with, a function of seed and step alone, so that a resumed run needs no history."""

    @abstractmethod
    def gradient(self, step: int, chosen: Ints, rows: int) -> float:
        """Add up the gradient of the batch's mean loss over parts of so many rows. Returns that loss."""

    @abstractmethod
    def rates(self, step: int) -> Sequence[float]:
        """Learning rate of each of the optimizer's groups."""

    @abstractmethod
    def told(self, step: int, rows: int, kept: int) -> Told:
        """What is said of a step. rows: computed together.  kept: steps that are on disk."""

    def train(self) -> None:
        """Let what is random in a training be so."""
        self.module.train()

    def clipped(self) -> Sequence[Parameter]:
        """Whose gradient is kept short."""
        return list(self.state.parameters.values())

    def made(self, steps: int) -> None:
        """Called after each step with how many are made."""

    def fits(self, more: Mapping[str, torch.Tensor], steps: int) -> bool:
        """Whether what a checkpoint holds beside weights is right after so many steps."""
        return steps <= self.options.steps


GATES, HISTORY = "log_alpha", "history"
DRAWS = 1  # sets the stream of the gates' draws apart from that of the batches


class GatePace(Pace, Protocol):
    """What steps that learn gates are told: when the gates are kept, too."""

    @property
    def times(self) -> tuple[int, ...]:
        """After how many steps: 0 and the last among them."""
        ...


class GateSteps(Steps[Told]):
    """Updates of gates, of a model along with them or not; the state keeps what the gates were at some times."""

    options: GatePace
    log_alpha: Parameter

    def now(self) -> torch.Tensor:
        """The gates' parameters as they are, [1, gate]: a copy, which later steps do not change."""
        return self.log_alpha.detach().to("cpu", copy=True)[None]

    def made(self, steps: int) -> None:
        """Keep the gates of this time, where it is one that is kept."""
        if steps in self.options.times:
            self.state.more[HISTORY] = torch.cat([self.state.more[HISTORY], self.now()])

    def fits(self, more: Mapping[str, torch.Tensor], steps: int) -> bool:
        """See `Steps`: the history must have come as far as the steps."""
        wanted = (sum(time <= steps for time in self.options.times), len(self.log_alpha))
        return super().fits(more, steps) and HISTORY in more and tuple(more[HISTORY].shape) == wanted


class ExampleSteps(Steps[FinetuneStep]):
    """Updates on examples that were tokenised once."""

    options: RatedPace

    def __init__(self, module: nn.Module, encoded: Encoded, options: RatedPace, state: State) -> None:
        super().__init__(module, options, state)
        self.encoded = encoded

    def chosen(self, step: int) -> Ints:
        """See `Steps`."""
        return step_batch(self.encoded.lengths, self.options.batch, self.options.seed, step)

    def rates(self, step: int) -> Sequence[float]:
        """One for all."""
        return [self.options.rate(step)] * len(self.state.optimizer.param_groups)

    def gradient(self, step: int, chosen: Ints, rows: int) -> float:
        """See `Steps`."""
        asked, total = max(1, self.encoded.asked(chosen)), 0.0
        for at in range(0, len(chosen), rows):
            part = chosen[at : at + rows]
            logits = self.module(**self.encoded.inputs(part, self.device)).logits
            loss = self.encoded.loss(logits, part) / asked
            loss.backward()
            total += loss.item()
        return total

    def told(self, step: int, rows: int, kept: int) -> FinetuneStep:
        """See `Steps`."""
        state = self.state
        return FinetuneStep(
            step + 1, self.options.steps, state.losses[-1], state.seconds, kept, rows, self.options.rate(step)
        )


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
