"""Text to train and evaluate a language model on.

It is read from files, cut into tokens and into windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from headlab.core import HeadlabError, Ints, content_key, is_file, is_folder
from headlab.tasks import read_text
from headlab.training.options import BPE, Windows

# A tokenizer learned from a text: whole words, or byte-level pieces that can spell any text.

END = "<|end|>"
UNKNOWN = "<unk>"
WORDS = r"\n| ?[^ \n]+| +"  # a word with the space before it, or the end of a line
BYTES = 256  # entries of a byte-level vocabulary before any is learned


def make_tokenizer(
    lines: Sequence[str], kind: str = BPE, vocabulary: int = 8000
) -> PreTrainedTokenizerFast:
    """A tokenizer with at most `vocabulary` entries, the same for the same lines.

    A line end is a token of its own.

    bpe: byte-level pairs within words between spaces, so that any text can be encoded (Sennrich et
    al., 2016).  word: the most frequent words; all others share one token.  Raises HeadlabError for
    a vocabulary too small.
    """
    if vocabulary <= (BYTES + 2 if kind == BPE else 2):
        raise HeadlabError(
            f"a vocabulary of {vocabulary} is too small; {kind} needs more than {BYTES + 2}",
            code="vocabulary.too_small",
        )
    backend = _pieces(lines, vocabulary) if kind == BPE else _words(lines, vocabulary)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=END,
        eos_token=END,
        pad_token=END,
        unk_token=UNKNOWN,
        model_input_names=["input_ids", "attention_mask"],
    )


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
        vocab_size=vocabulary,
        special_tokens=[END, UNKNOWN],
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(with_ends(lines), trainer)
    return tokenizer


def _words(lines: Sequence[str], vocabulary: int) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(
        Regex(r"\n|[^ \n]+"), behavior="removed", invert=True
    )
    trainer = trainers.WordLevelTrainer(
        vocab_size=vocabulary, special_tokens=[END, UNKNOWN], show_progress=False
    )
    tokenizer.train_from_iterator(with_ends(lines), trainer)
    return tokenizer


def with_ends(lines: Sequence[str]) -> list[str]:
    """Lines with their ends."""
    return [f"{line}\n" for line in lines]


# Text to train and evaluate a language model on: read from files, tokenised line by line.

SPLITS = ("train", "valid", "test")
HELD_OUT = 20  # the last two twentieths of a single file are valid and test
LINES_AT_ONCE = 1000  # lines tokenised at once
Lines = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Corpus:
    """A text as tokens: ids int64 [token], an end token first.

    So every other token can be predicted.

    Attributes:
        line_tokens, line_words: int [line]; a line end counts as one of each, as is usual with
            WikiText.
    """

    ids: Ints
    line_tokens: Ints
    line_words: Ints

    @property
    def predicted_tokens(self) -> int:
        """Number of tokens to predict."""
        return len(self.ids) - 1


def read_lines(
    data: Path, words: int | None = None, held_words: int | None = None
) -> dict[str, list[str]]:
    """Lines of train, valid and test.

    From a folder's train.txt, valid.txt, test.txt, or from parts of one file.

    One file: its last tenth is held out, half as valid and half as test.

    Raises HeadlabError for files that are missing, empty or not UTF-8.

    Args:
        words: How many words of train to use.
        held_words: Of valid and of test.
    """
    if is_folder(data):
        lines_by_split = {split: _read_file(data / f"{split}.txt") for split in SPLITS}
    else:
        lines_by_split = _split_file(_read_file(data), data)
    for split, lines in lines_by_split.items():
        max_words = words if split == "train" else held_words
        if max_words is not None:
            lines_by_split[split] = _first_lines(lines, max_words)
    return lines_by_split


def data_hash(lines: Lines) -> str:
    """sha256 of the lines of every split."""
    return content_key({split: list(part) for split, part in lines.items()})


def encode(tokenizer: PreTrainedTokenizerBase, lines: Sequence[str]) -> Corpus:
    """The lines as one sequence of tokens."""
    backend = tokenizer.backend_tokenizer
    rows: list[list[int]] = []
    for start in range(
        0, len(lines), LINES_AT_ONCE
    ):  # the library's encoding of a line takes many times its length
        encodings = backend.encode_batch_fast(
            with_ends(lines[start : start + LINES_AT_ONCE]), add_special_tokens=False
        )
        rows += [line.ids for line in encodings]
    end_token = tokenizer.convert_tokens_to_ids(END)
    ids = np.concatenate(
        [np.array([end_token]), *(np.array(row, dtype=np.int64) for row in rows)]
    ).astype(np.int64)
    words = np.array([len(line.split()) + 1 for line in lines], dtype=np.int64)
    return Corpus(ids, np.array([len(row) for row in rows], dtype=np.int64), words)


def _read_file(path: Path) -> list[str]:
    if not is_file(path):
        what_is_needed = (
            f"a folder needs {', '.join(f'{s}.txt' for s in SPLITS)}, or give one text file"
        )
        raise HeadlabError(f"there is no file {path}; {what_is_needed}", code="file.missing")
    # Not splitlines: it would also split at characters that occur within a line.
    lines = read_text(path).replace("\r\n", "\n").removesuffix("\n").split("\n")
    if not any(line.strip() for line in lines):
        raise HeadlabError(f"{path} has no words; give a text file", code="file.no_words")
    return lines


def _split_file(lines: list[str], path: Path) -> dict[str, list[str]]:
    held_out = len(lines) // HELD_OUT
    if not held_out:
        raise HeadlabError(
            f"{path} has {len(lines)} lines, too few to hold any out; give {HELD_OUT} or more, or a folder with "
            f"{', '.join(f'{s}.txt' for s in SPLITS)}",
            code="lm.lines_too_few",
        )
    return {
        "train": lines[: -2 * held_out],
        "valid": lines[-2 * held_out : -held_out],
        "test": lines[-held_out:],
    }


def _first_lines(lines: Sequence[str], words: int) -> list[str]:
    """Lines from the start until they reach `words` words, at least one line."""
    total = np.cumsum([len(line.split()) + 1 for line in lines])
    return list(lines[: int(np.searchsorted(total, words)) + 1])


# The windows of text of a step: a function of seed and step, so that a resumed run needs no
# history.


def step_windows(tokens: int, options: Windows, step: int) -> Ints:
    """Starts of a step's windows, int [batch], in a text with `asked` tokens to predict.

    Each epoch starts cutting the text at a different place and shuffles the windows.  Raises
    HeadlabError for a text shorter than a batch.
    """
    epoch_steps = steps_an_epoch(tokens, options)
    epoch, batch_number = divmod(step, epoch_steps)
    rng = np.random.default_rng((options.seed, epoch))
    offset = int(rng.integers(options.block))
    windows = rng.permutation(_windows_in(tokens, options))[
        batch_number * options.batch : (batch_number + 1) * options.batch
    ]
    return offset + options.block * windows.astype(np.int64)


def steps_an_epoch(tokens: int, options: Windows) -> int:
    """Whole batches in one pass over the text. Raises HeadlabError if there is none."""
    batches = _windows_in(tokens, options) // options.batch
    if not batches:
        raise HeadlabError(
            f"the text has {tokens} tokens, fewer than {options.batch} windows of {options.block}; "
            "give a longer one, or a smaller batch or block",
            code="lm.text_too_short",
        )
    return batches


def _windows_in(tokens: int, options: Windows) -> int:
    """Number of windows that fit wherever the first one begins."""
    return max(0, tokens - options.block + 1) // options.block
