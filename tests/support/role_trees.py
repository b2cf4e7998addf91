"""Made-up trees, a tokenizer that cuts words, and weights made by hand, for tests of roles."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from headlab.roles import Frequencies
from headlab.tasks import Tree
from support.tiny_models import VOCAB

RELATIONS = ("nsubj", "obj", "amod", "advmod", "det")
# w4 is rare, then w5, and so on.
FREQUENCIES = Frequencies({f"w{i}": i / 100 for i in range(4, VOCAB)}, {"source": "made up"})


def cutting_tokenizer() -> PreTrainedTokenizerFast:
    """`<s> ... </s>`; a word "w5+w6" has the tokens w5 and w6."""
    vocabulary = {
        "[PAD]": 0,
        "<s>": 1,
        "</s>": 2,
        "[UNK]": 3,
        **{f"w{i}": i for i in range(4, VOCAB)},
    }
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split("+", "removed")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    names = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        **names,
        model_input_names=["input_ids", "attention_mask"],
    )


def tree(rng: np.random.Generator, size: int, name: str = "t") -> Tree:
    """A random tree over words of one to three tokens."""
    order = rng.permutation(size).tolist()
    governors = [-1] * size
    for place, word in enumerate(order[1:], start=1):
        governors[word] = order[int(rng.integers(place))]
    words = tuple(
        "+".join(f"w{rng.integers(4, 30)}" for _ in range(rng.integers(1, 4))) for _ in range(size)
    )
    relations = tuple(
        "root" if g < 0 else RELATIONS[rng.integers(len(RELATIONS))] for g in governors
    )
    return Tree(name, words, tuple(governors), relations)


def trees(count: int, seed: int = 0, low: int = 3, high: int = 10) -> list[Tree]:
    """Random trees."""
    rng = np.random.default_rng(seed)
    return [tree(rng, int(rng.integers(low, high)), f"t{i}") for i in range(count)]


def made_weights(
    aims: dict[tuple[int, int], Callable[[list[int], int], int]], heads: int
) -> Callable[..., None]:
    """A `sum_weights` whose heads look where they are told; all others look at everything alike.

    Args:
        aims: {(layer row, head): (token ids of a sentence, query) -> key}, counted among real
            tokens.
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
            for (row, head), aim in aims.items():
                if row == layer:
                    for sentence in range(count):
                        places = real[sentence].nonzero().flatten().tolist()
                        ids = inputs["input_ids"][sentence, places].tolist()
                        for query, place in enumerate(places):
                            weights[sentence, head, place, places[aim(ids, query)]] = 9.0
            observe(layer, weights / weights.sum(dim=3, keepdim=True))

    return give
