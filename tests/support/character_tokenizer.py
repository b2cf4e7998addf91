"""A tokenizer of characters that merges one pair of them across the border of two texts."""

from __future__ import annotations

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

END = 1  # the end token, which precedes a text that has nothing before it


def character_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character, and one for `()`, without a start token."""
    characters = "printxy( )a"
    vocabulary = {"[PAD]": 0, "</s>": END}
    for character in [*dict.fromkeys(characters), "()"]:
        vocabulary[character] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocabulary, [("(", ")")]))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", eos_token="</s>")
