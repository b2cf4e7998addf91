"""A tokenizer made from a text: whole words, or pieces of words that never run out."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from headlab.errors import HeadlabError
from headlab.training.lm.options import BPE

END, UNKNOWN = "<|end|>", "<unk>"
WORDS = r"\n| ?[^ \n]+| +"  # a word with the space before it, or the end of a line
BYTES = 256  # what a byte-level vocabulary holds before it learns anything


def make_tokenizer(lines: Sequence[str], kind: str = BPE, vocabulary: int = 8000) -> PreTrainedTokenizerFast:
    """A tokenizer with at most so many entries, the same for the same lines. The end of a line is a token of its own.

    bpe: byte pairs within words between spaces, byte level, so that every text can be written (Sennrich et al.,
    2016).  word: the most frequent words; all others are one token.  Raises HeadlabError for a vocabulary too small.
    """
    if vocabulary <= (BYTES + 2 if kind == BPE else 2):
        raise HeadlabError(
            f"a vocabulary of {vocabulary} is too small; {kind} needs more than {BYTES + 2}",
            code="vocabulary.too_small",
        )
    made = _pieces(lines, vocabulary) if kind == BPE else _words(lines, vocabulary)
    return PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token=END, eos_token=END, pad_token=END, unk_token=UNKNOWN,
        model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip


def _pieces(lines: Sequence[str], vocabulary: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[END, UNKNOWN], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(with_ends(lines), trainer)
    return tokenizer


def _words(lines: Sequence[str], vocabulary: int) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n|[^ \n]+"), behavior="removed", invert=True)
    trainer = trainers.WordLevelTrainer(vocab_size=vocabulary, special_tokens=[END, UNKNOWN], show_progress=False)
    tokenizer.train_from_iterator(with_ends(lines), trainer)
    return tokenizer


def with_ends(lines: Sequence[str]) -> list[str]:
    """Lines with their ends."""
    return [f"{line}\n" for line in lines]
