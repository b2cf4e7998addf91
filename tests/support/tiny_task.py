"""A made-up task and tokenizer for the tiny models."""

from __future__ import annotations

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from headlab.tasks import Example, Split, Task
from support.tiny_models import LABELS, VOCAB

SIZES = {"dev": 24, "test": 30, "train": 12}


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer that makes one token of each word, with `<s> ... </s>` around the text."""
    vocabulary = {
        "[PAD]": 0,
        "<s>": 1,
        "</s>": 2,
        "[UNK]": 3,
        **{f"w{i}": i for i in range(4, VOCAB)},
    }
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
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


def read_tiny(language: str, split: Split, seed: int) -> list[Example]:
    """Examples of random words, two in each group; the same for the same arguments."""
    rng = np.random.default_rng([seed, ord(language[0]), len(split), ord(split[0])])
    examples = []
    for number in range(SIZES[split]):
        words = rng.integers(4, VOCAB, rng.integers(2, 9))
        text = " ".join(f"w{word}" for word in words)
        label = int(rng.integers(len(LABELS)))
        group = str(number // 2)
        examples.append(Example(f"{language}/{split}/{number}", text, label, group=group))
    return examples


def tiny_task() -> Task:
    """Two languages, five labels, random words and labels."""
    return Task("tiny", LABELS, ("xx", "yy"), False, read_tiny)
