"""Training examples as token ids with their answers, and the loss they are trained by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import PreTrainedTokenizerBase

from headlab.errors import HeadlabError
from headlab.inputs import IGNORED, Rows, first_tokens, padded, positions
from headlab.records import Ints
from headlab.tasks.base import Example


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
