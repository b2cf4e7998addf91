"""Training steps: examples as tensors, batches, updates, and checkpoints.

A checkpoint resumes bit for bit.
"""

from __future__ import annotations

import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn
from torch.nn import Parameter
from torch.nn.functional import cross_entropy
from torch.optim import AdamW
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headlab.core import (
    EXAMPLE_TOO_LARGE,
    Floats,
    HeadlabError,
    Ints,
    JsonLike,
    do_nothing,
    is_out_of_memory,
    write_atomic,
)
from headlab.evaluation import (
    MAX_TOKENS,
    NO_TARGET,
    PADDING_SIDE,
    Rows,
    labels_of_tokens,
    pad_rows,
    position_count,
)
from headlab.models import (
    TokenNeeds,
    WordSpaces,
    missing_segment_ids,
    spaced,
    token_needs,
    tokenise,
    without_unknown_segments,
    word_spaces,
)
from headlab.tasks import Example
from headlab.training.options import FinetuneStep, Gated, StepOptions, step_batch

# A training checkpoint: trained weights, AdamW's moments, step; one safetensors file, no pickle.

KINDS = ("weight", "mean", "square")
EXTRA = "more"


@dataclass
class State:
    """What a run needs to resume.

    Parameters by name, their optimizer, losses of finished steps, seconds spent.

    Attributes:
        row_limit: Greatest number of examples computed together, if memory limited it (0: it did
            not).
        extra_tensors: Further tensors that the run needs, by name.
    """

    parameters: Mapping[str, Parameter]
    optimizer: AdamW
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    row_limit: int = 0
    extra_tensors: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """Number of finished steps."""
        return len(self.losses)

    def save(self, path: Path, key: str) -> None:
        """Write the state atomically; `key` names the run it belongs to."""
        tensors: dict[str, torch.Tensor] = {}
        for name, parameter in self.parameters.items():
            moments = self.optimizer.state[parameter]
            # unused parameters have no gradient, so no moments
            mean, square = (
                moments.get(kind, torch.zeros_like(parameter)) for kind in ("exp_avg", "exp_avg_sq")
            )
            values = (parameter.detach(), mean, square)
            tensors |= {
                f"{kind}/{name}": v.cpu().contiguous()
                for kind, v in zip(KINDS, values, strict=True)
            }
        tensors |= {
            f"{EXTRA}/{name}": value.cpu().contiguous()
            for name, value in self.extra_tensors.items()
        }
        facts = {
            "key": key,
            "losses": json.dumps(self.losses),
            "seconds": repr(self.seconds),
            "rows": str(self.row_limit),
        }
        write_atomic(path, save(tensors, metadata=facts))

    def resume(
        self,
        path: Path,
        key: str,
        fits: Callable[[Mapping[str, torch.Tensor], int], bool] = lambda more, steps: True,
    ) -> None:
        """Resume from this run's checkpoint if there is one.

        One that cannot be used is skipped with a warning.

        Args:
            fits: Whether the extra tensors are right after that many steps.
        """
        if not path.exists():
            return
        try:
            with safe_open(path, framework="pt") as file:
                facts = file.metadata() or {}
                if facts.get("key") != key:
                    raise ValueError("it belongs to another run")
                values_by_parameter = {
                    name: tuple(file.get_tensor(f"{kind}/{name}") for kind in KINDS)
                    for name in self.parameters
                }
                extra_names = [name for name in file.keys() if name.startswith(f"{EXTRA}/")]  # noqa: SIM118 - no mapping
                extra_tensors = {
                    name.removeprefix(f"{EXTRA}/"): file.get_tensor(name) for name in extra_names
                }
            losses = [float(x) for x in json.loads(facts["losses"])]
            seconds = float(facts["seconds"])
            rows = int(facts.get("rows", 0))
            self._check(values_by_parameter)
            if not fits(extra_tensors, len(losses)):
                raise ValueError("it does not fit its number of steps")
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            logging.getLogger(__name__).warning(
                "checkpoint %s is not used (%s); starting afresh", path.name, error
            )
            return
        self.losses = losses
        self.seconds = seconds
        self.row_limit = rows
        self.extra_tensors = extra_tensors
        self._load(values_by_parameter)

    def _check(self, values_by_parameter: Mapping[str, tuple[torch.Tensor, ...]]) -> None:
        for name, parameter in self.parameters.items():
            if any(t.shape != parameter.shape for t in values_by_parameter[name]):
                raise ValueError(f"{name} has another shape")

    def _load(self, values_by_parameter: Mapping[str, tuple[torch.Tensor, ...]]) -> None:
        for name, parameter in self.parameters.items():
            weight, mean, square = values_by_parameter[name]
            with torch.no_grad():
                parameter.copy_(weight)
            self.optimizer.state[parameter] = {
                "step": torch.tensor(float(self.step)),
                "exp_avg": mean.to(parameter.device),
                "exp_avg_sq": square.to(parameter.device),
            }


# Training examples as token ids with their answers, and their loss.


@dataclass(frozen=True)
class Encoded:
    """Examples tokenised once, without padding.

    Attributes:
        tokens: Model inputs by name, one list per example.
        targets: One label per example, or one per token with -100 where there is none.
        needs: What they hold beyond the tokenizer's output.
    """

    tokenizer: PreTrainedTokenizerBase
    tokens: dict[str, Rows]
    targets: Rows
    words: bool
    needs: TokenNeeds = field(default_factory=TokenNeeds, kw_only=True)

    @property
    def lengths(self) -> list[int]:
        """Number of tokens of every example."""
        return [len(row) for row in self.tokens["input_ids"]]

    def count_answers(self, rows: Ints) -> int:
        """Number of answers in the given examples."""
        return sum(label != NO_TARGET for i in rows for label in self.targets[i])

    def inputs(self, rows: Ints, device: torch.device) -> dict[str, torch.Tensor]:
        """Model inputs of the given examples, padded to the longest of them."""
        columns = {name: [values[i] for i in rows] for name, values in self.tokens.items()}
        padded_batch = self.tokenizer.pad(columns, return_tensors="pt", padding_side=PADDING_SIDE)
        return {name: t.to(device) for name, t in padded_batch.items()}

    def labels(self, rows: Ints, device: torch.device) -> torch.Tensor:
        """Correct answers, int [row, 1] or [row, token]."""
        return pad_rows([self.targets[i] for i in rows], NO_TARGET).to(device)

    def loss(self, logits: torch.Tensor, rows: Ints) -> torch.Tensor:
        """Summed cross-entropy of the answers, nats."""
        target = self.labels(rows, logits.device)
        return cross_entropy(
            logits.reshape(-1, logits.shape[-1]),
            target.flatten(),
            ignore_index=NO_TARGET,
            reduction="sum",
        )


def encode(
    tokenizer: PreTrainedTokenizerBase,
    base: PreTrainedModel,
    examples: Sequence[Example],
    max_length: int,
) -> Encoded:
    """Tokenise examples of one kind, as a model that is evaluated on them is given them.

    A word is labelled at its first token, and one that was cut off has no target.

    Args:
        tokenizer: Of the base.
        base: The model that is trained.
        examples: All of texts, of pairs, or of words.
        max_length: Tokens of an example, at most; the base's own limit applies too.
    """
    words = bool(examples[0].words)
    pairs = [example.pair for example in examples]
    second_texts = None if all(pair is None for pair in pairs) else [pair or "" for pair in pairs]
    texts: Sequence[str | list[str]] = [example.text for example in examples]
    spaces: WordSpaces = "none"
    if words:
        spaces = word_spaces(tokenizer, labels_words=True)
        texts = [spaced(example.words, spaces) for example in examples]
    segment_ids = missing_segment_ids(tokenizer, base.config)
    needs = token_needs(segment_ids, spaces, pairs=second_texts is not None, words=words)
    limit = min(max_length, position_count(base) or MAX_TOKENS)
    columns_and_words = tokenise(
        tokenizer, texts, second_texts, split=words, segments=needs.segments, max_tokens=limit
    )
    tokens = without_unknown_segments(columns_and_words.columns, base.config)
    if words:
        targets = [
            labels_of_tokens(columns_and_words.word_ids(row), e.labels)
            for row, e in enumerate(examples)
        ]
    else:
        targets = [[e.label] for e in examples]
    return Encoded(tokenizer, tokens, targets, words, needs=needs)


def check_examples(examples: Sequence[Example], labels: Sequence[str]) -> None:
    """Raise HeadlabError unless there are examples that can be trained on.

    They are all of one kind, with labels among two names or more.
    """
    if not examples:
        raise HeadlabError("given no examples; give at least one", code="training.no_examples")
    if any(e.target is not None for e in examples):
        raise HeadlabError(
            "the task asks for texts to be generated; finetune trains classifiers of texts and words",
            code="training.task_generates",
        )
    if any(e.choices for e in examples):
        raise HeadlabError(
            "the task is for language models, which need no fine-tuning for it; finetune trains classifiers of texts "
            "and words",
            code="training.task_generates",
        )
    words = bool(examples[0].words)
    if any(bool(e.words) != words or len(e.words) != len(e.labels) for e in examples):
        raise HeadlabError(
            "examples must all be texts with one label, or all words with a label each",
            code="training.examples_mixed",
        )
    answers = {label for e in examples for label in (e.labels if words else (e.label,))}
    if len(labels) < 2 or not all(0 <= label < len(labels) for label in answers):
        raise HeadlabError(
            f"labels must be indices from 0 to {len(labels) - 1}, of two or more label names",
            code="training.labels_invalid",
        )


def example_facts(examples: Sequence[Example], labels: Sequence[str]) -> Sequence[JsonLike]:
    """What the weights depend on in the examples: texts, answers, label names."""
    texts = [
        list(e.words) if e.words else e.text if e.pair is None else [e.text, e.pair]
        for e in examples
    ]
    return [texts, [list(e.labels) if e.words else e.label for e in examples], list(labels)]


# Training steps: batches, updates, checkpoints; smaller parts of a batch if memory is short.

CHECKPOINT_SHARE = 0.05
Computed = TypeVar("Computed")
StepRecord = TypeVar("StepRecord")


@dataclass
class StateSaver:
    """Where and how often the state is saved.

    Every `every_steps` steps, within a share of the time.

    Attributes:
        every_steps: Steps between two checkpoints.
        share: Share of the time that saving may take, at most.
        seconds: Duration of the last save.
        saved_at: When it ended, in seconds of `time.perf_counter`.
        step: The last step on disk.
    """

    path: Path
    key: str
    every_steps: int
    share: float = CHECKPOINT_SHARE
    seconds: float = 0.0
    saved_at: float = 0.0
    step: int = 0

    def due(self, step: int, is_last_step: bool) -> bool:
        """Whether to save the state now.

        Always after the last step, as the evaluation may take long.
        """
        seconds_since_save = time.perf_counter() - self.saved_at
        return is_last_step or (
            step % self.every_steps == 0
            and seconds_since_save >= self.seconds * (1 / self.share - 1)
        )

    def save(self, state: State) -> None:
        """Save the state."""
        started_at = time.perf_counter()
        state.save(self.path, self.key)
        self.saved_at = time.perf_counter()
        self.seconds = self.saved_at - started_at
        self.step = state.step


@dataclass(frozen=True)
class Watch(Generic[StepRecord]):
    """Callbacks of a training; each may raise to stop.

    Attributes:
        progress: After each step.
        tick: Between passes.
        measuring: Once, before the result of learning gates is measured.
        checkpoint_every: Steps between two checkpoints, None for as many as the training is made
            for; more if writing them would take more than `checkpoint_share` of the time.
    """

    progress: Callable[[StepRecord], None] | None = None
    tick: Callable[[], None] = do_nothing
    measuring: Callable[[], None] = do_nothing
    checkpoint_every: int | None = None
    checkpoint_share: float = CHECKPOINT_SHARE

    def state_saver(self, path: Path, key: str, default_steps: int) -> StateSaver:
        """Where and how often the state is saved. every: steps, if `checkpoint_every` is None."""
        return StateSaver(
            path,
            key,
            default_steps if self.checkpoint_every is None else self.checkpoint_every,
            self.checkpoint_share,
        )


class Steps(ABC, Generic[StepRecord]):
    """Training steps, from the current state to the last.

    A subclass defines what differs: batches, their gradient, learning rates, and the progress
    record of a step.
    """

    lower = "a lower learning rate"  # advice if the loss is not finite
    smaller = "freeze embeddings or layers, or train a LoRA"  # advice if the optimizer does not fit in memory

    def __init__(self, module: nn.Module, options: StepOptions, state: State) -> None:
        self.module = module
        self.options = options
        self.state = state
        self.device = next(module.parameters()).device

    def run(
        self,
        saver: StateSaver | None,
        say: Callable[[StepRecord], None] | None = None,
        tick: Callable[[], None] = do_nothing,
    ) -> None:
        """Run the remaining steps.

        They resume from the checkpoint of `saver` if there is one of this run.

        Args:
            say: Called after each step.
            tick: Called before each step; both may raise to stop.
        """
        if saver is not None:
            self.state.resume(saver.path, saver.key, self.fits)
            saver.step = self.state.step
        started_at = time.perf_counter() - self.state.seconds
        for step in range(self.state.step, self.options.steps):
            tick()
            batch = self.batch_at(step)
            self.state.losses.append(self.step(step, batch))
            self.after_step(step + 1)
            self.state.seconds = time.perf_counter() - started_at
            if saver is not None and saver.due(step + 1, step + 1 == self.options.steps):
                saver.save(self.state)
            if say is not None:
                say(
                    self.step_record(
                        step, self.rows_together(len(batch)), 0 if saver is None else saver.step
                    )
                )

    def step(self, step: int, batch: Ints) -> float:
        """One update; its randomness depends on seed and step alone. Returns the mean loss.

        Raises HeadlabError if the loss is not finite, or if a single example or the optimizer does
        not fit in memory.
        """
        self.train()
        for group, rate in zip(self.state.optimizer.param_groups, self.rates(step), strict=True):
            group["lr"] = rate

        def run(rows: int) -> float:
            torch.manual_seed(dropout_seed(self.options.seed, step))
            self.state.optimizer.zero_grad()
            return self.gradient(step, batch, rows)

        loss = retry_with_fewer_rows(self.state, self.rows_together(len(batch)), run)
        if not np.isfinite(loss):
            raise HeadlabError(
                f"the loss of step {step + 1} is {loss}; train with {self.lower}",
                code="training.loss_not_finite",
            )
        self.update()
        return loss

    def update(self) -> None:
        """One optimizer step with the current gradients.

        Raises HeadlabError if it does not fit in memory.
        """
        if self.options.clip is not None and (clipped_parameters := self.parameters_to_clip()):
            nn.utils.clip_grad_norm_(clipped_parameters, self.options.clip)
        with fits_in_memory("the optimizer state does", self.smaller):
            self.state.optimizer.step()

    def rows_together(self, batch: int) -> int:
        """Number of examples of a batch that are computed together."""
        return min(n for n in (batch, self.options.micro_batch, self.state.row_limit) if n)

    @abstractmethod
    def batch_at(self, step: int) -> Ints:
        """What a step is computed on: a function of seed and step alone.

        So a resumed run needs no history.
        """

    @abstractmethod
    def gradient(self, step: int, batch: Ints, rows: int) -> float:
        """Add up the gradient of the batch's mean loss over parts of `rows` rows.

        Returns that loss.
        """

    @abstractmethod
    def step_record(self, step: int, rows: int, saved_steps: int) -> StepRecord:
        """The progress record of a step.

        Args:
            rows: Number of examples computed together.
            saved_steps: Number of steps that are on disk.
        """

    def rates(self, step: int) -> Sequence[float]:
        """Learning rate of each optimizer group."""
        return [self.options.rate(step)] * len(self.state.optimizer.param_groups)

    def train(self) -> None:
        """Switch the module to training mode."""
        self.module.train()

    def parameters_to_clip(self) -> Sequence[Parameter]:
        """The parameters whose gradient is clipped."""
        return list(self.state.parameters.values())

    def after_step(self, steps: int) -> None:
        """Called after each step with the number of finished steps."""

    def fits(self, extra_tensors: Mapping[str, torch.Tensor], steps: int) -> bool:
        """Whether a checkpoint's further tensors are right after that many steps."""
        return steps <= self.options.steps


GATES = "log_alpha"
HISTORY = "history"
DRAWS = 1  # separates the random stream of gate samples from that of the batches


class GateSteps(Steps[StepRecord]):
    """Updates of gates, with or without the model; the state records the gates at certain steps.

    The gates are the first of the optimizer's groups.
    """

    options: Gated
    log_alpha: Parameter

    def rates(self, step: int) -> Sequence[float]:
        """The gates' learning rate is constant, the model's falls."""
        _, *others = super().rates(step)
        return [self.options.gate_rate, *others]

    def uniform_samples(self, step: int, rows: int = 1) -> torch.Tensor:
        """Uniform samples of a step, float32 [row, gate]: a function of seed and step alone."""
        rng = np.random.default_rng((self.options.seed, DRAWS, step))
        return torch.as_tensor(
            rng.random((rows, len(self.log_alpha)), np.float32), device=self.device
        )

    def open(self) -> int:
        """Number of gates that are at least as likely to be 1 as to be 0."""
        return int((self.log_alpha.detach() >= self.options.concrete.even_log_alpha).sum())

    def history(self) -> tuple[Ints, npt.NDArray[np.float32], Floats, Floats]:
        """Steps [time], log_alpha [time, gate], mean loss and penalty [time]; after the run.

        A loss is the mean since the previous time.
        """
        times = np.array(self.options.times, dtype=np.int64)
        log_alpha = self.state.extra_tensors[HISTORY]
        losses = np.array(self.state.losses)
        loss = [np.nan, *(losses[a:b].mean() for a, b in pairwise(times.tolist()))]
        penalty = self.options.weight * self.options.concrete.probability_open(
            log_alpha.double()
        ).sum(dim=1)
        return times, log_alpha.numpy(), np.array(loss), penalty.numpy()

    def current_log_alpha(self) -> torch.Tensor:
        """A copy of the gates' current parameters, [1, gate], which later steps do not change."""
        return self.log_alpha.detach().to("cpu", copy=True)[None]

    def after_step(self, steps: int) -> None:
        """Record the gates if this step is one of `times`."""
        if steps in self.options.times:
            self.state.extra_tensors[HISTORY] = torch.cat(
                [self.state.extra_tensors[HISTORY], self.current_log_alpha()]
            )

    def fits(self, extra_tensors: Mapping[str, torch.Tensor], steps: int) -> bool:
        """See `Steps`: the history must match the number of steps."""
        expected_shape = (sum(time <= steps for time in self.options.times), len(self.log_alpha))
        return (
            super().fits(extra_tensors, steps)
            and HISTORY in extra_tensors
            and tuple(extra_tensors[HISTORY].shape) == expected_shape
        )


class ExampleSteps(Steps[FinetuneStep]):
    """Training steps on tokenised examples."""

    def __init__(
        self, module: nn.Module, encoded: Encoded, options: StepOptions, state: State
    ) -> None:
        super().__init__(module, options, state)
        self.encoded = encoded

    def batch_at(self, step: int) -> Ints:
        """See `Steps`."""
        return step_batch(self.encoded.lengths, self.options.batch, self.options.seed, step)

    def gradient(self, step: int, batch: Ints, rows: int) -> float:
        """See `Steps`."""
        answers = max(1, self.encoded.count_answers(batch))
        total_loss = 0.0
        for start in range(0, len(batch), rows):
            part_rows = batch[start : start + rows]
            logits = self.module(**self.encoded.inputs(part_rows, self.device)).logits
            loss = self.encoded.loss(logits, part_rows) / answers
            loss.backward()
            total_loss += loss.item()
        return total_loss

    def step_record(self, step: int, rows: int, saved_steps: int) -> FinetuneStep:
        """See `Steps`."""
        state = self.state
        return FinetuneStep(
            step + 1,
            self.options.steps,
            state.losses[-1],
            state.seconds,
            saved_steps,
            rows,
            self.options.rate(step),
        )


def dropout_seed(seed: int, step: int) -> int:
    """Torch seed of a step's dropout: a function of seed and step alone.

    It is in torch's range for any seed.
    """
    return (seed * 1_000_003 + step + 1) % (1 << 63)


def torch_seed(seed: int) -> int:
    """The seed reduced to torch's range; unchanged if it is within it."""
    return seed % (1 << 63)


def own_randomness(device: torch.device) -> AbstractContextManager[None]:
    """A block that leaves torch's generators as they were, those of the device included."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def trained_parameters(module: nn.Module) -> dict[str, Parameter]:
    """The parameters that require a gradient, in name order."""
    return {name: p for name, p in sorted(module.named_parameters()) if p.requires_grad}


@contextmanager
def fits_in_memory(subject_and_verb: str, advice: str) -> Iterator[None]:
    """For work that smaller batches do not shrink: what to say when memory is full.

    Out of memory becomes a HeadlabError that says what did not fit.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise HeadlabError(
            f"{subject_and_verb} not fit in the device's memory; {advice}",
            code="memory.training_too_large",
        ) from error


def retry_with_fewer_rows(state: State, rows: int, run: Callable[[int], Computed]) -> Computed:
    """Result of `run(rows)`.

    Each time that memory is full, it is called again with half as many rows.

    Raises HeadlabError if a single row does not fit.

    Args:
        state: Its `rows` is set to the new number after each failure, so that later steps start
            with it.
        rows: Number of examples computed together at first.
        run: Takes a number of rows; starts afresh on each call.
    """
    while True:
        try:
            return run(rows)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if rows == 1:
                raise HeadlabError(EXAMPLE_TOO_LARGE, code="memory.example_too_large") from error
        # outside the handler, so that the failed pass's tensors are free
        halved_rows = -(-rows // 2)
        logging.getLogger(__name__).warning(
            "%d examples together do not fit in the device's memory; going on with %d, their gradients added up",
            rows,
            halved_rows,
        )
        state.row_limit = rows = halved_rows
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
