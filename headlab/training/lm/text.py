"""Text to train and to judge a language model on: read from files, cut into tokens line by line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerBase

from headlab.errors import HeadlabError
from headlab.records import Ints, content_key
from headlab.tasks.folder import read_text
from headlab.training.lm.tokens import END, with_ends

SPLITS = ("train", "valid", "test")
HELD_OUT = 20  # of one file, every twentieth part at the end is a split: valid, then test
TOGETHER = 1000  # lines that are cut into tokens at once
Lines = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Corpus:
    """A text as tokens: ids int64 [token], an end token first, so that every other one can be predicted.

    line_tokens, line_words: int [line]; the end of a line counts as one of each, as is usual with WikiText.
    """

    ids: Ints
    line_tokens: Ints
    line_words: Ints

    @property
    def asked(self) -> int:
        """Tokens that are predicted."""
        return len(self.ids) - 1


def read_lines(data: Path, words: int | None = None, held_words: int | None = None) -> dict[str, list[str]]:
    """Lines of train, valid and test: of a folder's train.txt, valid.txt, test.txt, or of one file's parts.

    One file: its last tenth is held out, half of it valid and half test.  words: take so many words of train.
    held_words: of valid and of test.  Raises HeadlabError for what is missing, empty or no UTF-8.
    """
    found = {split: _lines(data / f"{split}.txt") for split in SPLITS} if data.is_dir() else _parts(_lines(data), data)
    most = {split: words if split == "train" else held_words for split in SPLITS}
    return {split: _first(lines, n) if (n := most[split]) is not None else lines for split, lines in found.items()}


def data_hash(lines: Lines) -> str:
    """sha256 of the lines of every split."""
    return content_key({split: list(part) for split, part in lines.items()})


def encode(tokenizer: PreTrainedTokenizerBase, lines: Sequence[str]) -> Corpus:
    """The lines as tokens, one after another."""
    backend = tokenizer.backend_tokenizer
    rows: list[list[int]] = []
    for at in range(0, len(lines), TOGETHER):  # what the library keeps of a line is many times its length
        found = backend.encode_batch_fast(with_ends(lines[at : at + TOGETHER]), add_special_tokens=False)
        rows += [line.ids for line in found]
    first = tokenizer.convert_tokens_to_ids(END)
    ids = np.concatenate([np.array([first]), *(np.array(row, dtype=np.int64) for row in rows)]).astype(np.int64)
    words = np.array([len(line.split()) + 1 for line in lines], dtype=np.int64)
    return Corpus(ids, np.array([len(row) for row in rows], dtype=np.int64), words)


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        needed = f"a folder needs {', '.join(f'{s}.txt' for s in SPLITS)}, or give one text file"
        raise HeadlabError(f"there is no file {path}; {needed}", code="file.missing")
    # Not splitlines: it would also cut at characters that stand within a line.
    lines = read_text(path).replace("\r\n", "\n").removesuffix("\n").split("\n")
    if not any(line.strip() for line in lines):
        raise HeadlabError(f"{path} has no words; give a text file", code="file.no_words")
    return lines


def _parts(lines: list[str], path: Path) -> dict[str, list[str]]:
    held = len(lines) // HELD_OUT
    if not held:
        raise HeadlabError(
            f"{path} has {len(lines)} lines, too few to hold some out; give {HELD_OUT} or more, or a folder with "
            f"{', '.join(f'{s}.txt' for s in SPLITS)}",
            code="lm.lines_too_few",
        )
    return {"train": lines[: -2 * held], "valid": lines[-2 * held : -held], "test": lines[-held:]}


def _first(lines: Sequence[str], words: int) -> list[str]:
    """Lines from the start up to so many words, one at least."""
    total = np.cumsum([len(line.split()) + 1 for line in lines])
    return list(lines[: int(np.searchsorted(total, words)) + 1])
