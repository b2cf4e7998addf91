"""Made-up trees, a tokenizer that splits words, and attention weights, for tests of roles."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from tokenizers import pre_tokenizers
from transformers import PreTrainedTokenizerFast

from headlab.roles import Frequencies
from headlab.tasks import Tree
from support.tiny_models import VOCAB
from support.tiny_task import tiny_tokenizer

RELATIONS = ("nsubj", "obj", "amod", "advmod", "det")
# The rarest word is w4, then comes w5, and so on.
FREQUENCIES = Frequencies({f"w{i}": i / 100 for i in range(4, VOCAB)}, {"source": "made up"})


def cutting_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer that makes `<s> ... </s>`, and the tokens w5 and w6 of the word "w5+w6"."""
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split("+", "removed")]
    )
    return tokenizer


def random_tree(rng: np.random.Generator, size: int, name: str = "t") -> Tree:
    """A random tree over words of one to three tokens."""
    order = rng.permutation(size).tolist()
    governors = [-1] * size
    for step, word in enumerate(order[1:], start=1):
        governors[word] = order[int(rng.integers(step))]
    words = []
    for _ in range(size):
        token_count = rng.integers(1, 4)
        words.append("+".join(f"w{rng.integers(4, 30)}" for _ in range(token_count)))
    relations = []
    for governor in governors:
        relations.append("root" if governor < 0 else RELATIONS[rng.integers(len(RELATIONS))])
    return Tree(name, tuple(words), tuple(governors), tuple(relations))


def random_trees(count: int, seed: int = 0, low: int = 3, high: int = 10) -> list[Tree]:
    """So many random trees, of `low` to `high` - 1 words each."""
    rng = np.random.default_rng(seed)
    return [random_tree(rng, int(rng.integers(low, high)), f"t{number}") for number in range(count)]


def sum_weights_by_aims(
    aims: dict[tuple[int, int], Callable[[list[int], int], int]], heads: int
) -> Callable[..., None]:
    """A `sum_weights` with heads that attend as `aims` says; others attend to all tokens alike.

    Args:
        aims: For (layer row, head), a function that gives the index of the key for the token ids
            of a sentence and the index of a query; indices count real tokens only.
        heads: Number of heads in each layer.
    """

    def give(
        model: object,
        inputs: dict[str, torch.Tensor],
        observe: Callable[..., None],
        rows: Iterable[int],
    ) -> None:
        real = inputs["attention_mask"].bool()
        count, width = real.shape
        for layer in rows:
            weights = real[:, None, None, :].expand(count, heads, width, width).double().clone()
            for (row, head), key_of in aims.items():
                if row != layer:
                    continue
                for sentence in range(count):
                    positions = real[sentence].nonzero().flatten().tolist()
                    ids = inputs["input_ids"][sentence, positions].tolist()
                    for query, position in enumerate(positions):
                        key_position = positions[key_of(ids, query)]
                        weights[sentence, head, position, key_position] = 9.0
            observe(layer, weights / weights.sum(dim=3, keepdim=True))

    return give
