"""Sentences with their translations as token ids, and the loss that a translation model is trained by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from headlab.errors import HeadlabError
from headlab.inputs import IGNORED, shifted
from headlab.records import Ints
from headlab.tasks.base import Example
from headlab.training.encoded import Encoded


@dataclass(frozen=True)
class Sentences(Encoded):
    """Sources and targets tokenised once.

    start, padding: tokens that a text begins with, and that fills it up.  smoothing: share of each target's weight
    that is spread over the whole vocabulary (Szegedy et al. 2016, section 7).
    """

    start: int = 0
    padding: int = 0
    smoothing: float = 0.0

    @property
    def lengths(self) -> list[int]:
        """Tokens of every source with its target."""
        return [len(a) + len(b) for a, b in zip(self.tokens["input_ids"], self.targets, strict=True)]

    def inputs(self, rows: Ints, device: torch.device) -> dict[str, torch.Tensor]:
        """Sources, and targets shifted right by one place; nothing looks at what stands behind a target's end."""
        before = shifted(self.labels(rows, device), self.start, self.padding)
        return super().inputs(rows, device) | {"decoder_input_ids": before}

    def loss(self, logits: torch.Tensor, rows: Ints) -> torch.Tensor:
        """Sum of the tokens' cross entropies against the smoothed targets, in nats."""
        target = self.labels(rows, logits.device)
        return cross_entropy(
            logits.flatten(0, 1), target.flatten(), ignore_index=IGNORED, reduction="sum",
            label_smoothing=self.smoothing,
        )  # fmt: skip


def encode_sentences(tokenizer: Any, examples: Sequence[Example], max_length: int, smoothing: float) -> Sentences:
    """Tokenise both sides; what is longer than `max_length` tokens is cut off."""
    found = tokenizer([e.text for e in examples], truncation=True, max_length=max_length)
    targets = tokenizer(text_target=[e.target or "" for e in examples], truncation=True, max_length=max_length)
    tokens = {name: found[name] for name in ("input_ids", "attention_mask")}
    padding = int(tokenizer.pad_token_id)
    return Sentences(tokenizer, tokens, targets["input_ids"], False, padding, padding, smoothing)


def check_sentences(examples: Sequence[Example]) -> None:
    """Raise HeadlabError unless there are examples, each with a target."""
    if not examples:
        raise HeadlabError(
            "given no sentences; give a train split, mt/PAIR.train.tsv below the data folder",
            code="training.no_sentences",
        )
    if any(e.target is None for e in examples):
        raise HeadlabError(
            "the task has labels, not texts to be generated; train translation takes a translation task",
            code="training.task_not_generating",
        )
