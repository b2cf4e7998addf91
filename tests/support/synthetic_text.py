"""A made-up language whose words predict each other, and tiny models of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headlab.hooks import Model, make_gateable
from headlab.models.allattention.modelling import AllAttentionConfig, AllAttentionForCausalLM
from headlab.models.checkpoint import Checkpoint, building_alone
from headlab.training import LmGateOptions, LmOptions
from headlab.training.lm_text import Corpus

VOCAB = 97
WORDS = (
    "anna",
    "bert",
    "cara",
    "dora",
    "sees",
    "hears",
    "likes",
    "the",
    "a",
    "small",
    "green",
    "bird",
    "tree",
)
TINY_OPTIONS = LmOptions(
    tokenizer="word",
    vocabulary=20,
    layers=2,
    heads=3,
    width=12,
    persistent=4,
    block=8,
    batch=4,
    steps=6,
    learning_rate=0.02,
    dropout=0.1,
)
GATE_OPTIONS = LmGateOptions(weight=0.0, steps=5, tune_steps=3, batch=4, block=8, gate_rate=0.3)


def made_sentences(count: int, seed: int = 0) -> list[str]:
    """So many sentences in which each word is one of three that may follow the word before it."""
    rng = np.random.default_rng(seed)
    sentences = []
    for _ in range(count):
        word = int(rng.integers(len(WORDS)))
        words = []
        for _ in range(int(rng.integers(4, 9))):
            words.append(WORDS[word])
            word = (3 * word + int(rng.integers(1, 4))) % len(WORDS)
        sentences.append(" ".join(words))
    return sentences


def made_splits(train: int = 60, held_out: int = 20) -> dict[str, list[str]]:
    """The sentences of all splits, `held` of them in "valid" and in "test"."""
    return {
        "train": made_sentences(train),
        "valid": made_sentences(held_out, 1),
        "test": made_sentences(held_out, 2),
    }


def write_splits(folder: Path, **sizes: int) -> Path:
    """Write the splits into a folder, one file each.

    Args:
        folder: The folder, which is made if needed.
        sizes: Arguments of `text`.

    Returns:
        The folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for split, lines in made_splits(**sizes).items():
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def random_corpus(tokens: int, line: int = 5) -> Corpus:
    """So many random tokens to predict, in lines of `line` tokens."""
    ids = np.random.default_rng(0).integers(0, 97, tokens + 1)
    lines = np.diff([*range(0, tokens, line), tokens])
    return Corpus(ids, lines, lines)


def tiny_lm(
    heads: Sequence[int] = (4, 3, 4), seed: int = 0, **options: Any
) -> AllAttentionForCausalLM:
    """A random float64 model whose weights are spread enough that every head matters."""
    sizes = {"persistent": 5, "max_position_embeddings": 6} | options
    config = AllAttentionConfig(
        vocab_size=VOCAB, hidden_size=24, head_size=6, heads_per_layer=heads, **sizes
    )
    with building_alone(), torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        module = AllAttentionForCausalLM(config)
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.4)
    torch.nn.Module.to(module, dtype=torch.float64)
    module.train(False)
    return module


def gateable_model(module: AllAttentionForCausalLM) -> Model:
    """The model, made gateable."""
    return make_gateable(Checkpoint("tiny", "made up", "f" * 64, module, None))  # type: ignore[arg-type] # no text is read
