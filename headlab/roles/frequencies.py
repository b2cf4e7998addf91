"""How frequent words are: from the package wordfreq, or counted in a corpus that the user gives."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from headlab.errors import HeadlabError
from headlab.tasks.folder import read_lines

PARTS = re.compile(r"[\s'’‐–_./-]+")


@dataclass(frozen=True)
class Frequencies:
    """Frequencies of words; a word that is not there has 0.

    about: what they are from, for the report's spec.  clean: how a word is spelled in the table.  digits: whether
    words with digits have frequencies of their own there.
    """

    table: Mapping[str, float]
    about: Mapping[str, Any]
    clean: Callable[[str], str] = field(default=str.lower, compare=False, repr=False)
    digits: bool = True

    def of(self, word: str) -> float:
        """How frequent a word is; of one that is not there, by its parts ("n't", "well-known"): 1 / sum of 1 / f."""
        text = self.clean(word)
        if text in self.table:
            return float(self.table[text])
        parts = [float(self.table.get(part, 0)) for part in PARTS.split(text) if part]
        return 1 / sum(1 / part for part in parts) if parts and all(parts) else 0.0

    def rarest(self, words: Sequence[str]) -> list[bool]:
        """Which words are the least frequent: all that tie. What has no letter is not a word here."""
        found = [self.of(word) if self._known(word) else None for word in words]
        least = min((value for value in found if value is not None), default=None)
        return [value is not None and value == least for value in found]

    def _known(self, word: str) -> bool:
        """Whether a word is one that the table could have: the package has none for "1990s" or "20th"."""
        return any(map(str.isalpha, word)) and (self.digits or not any(map(str.isdigit, word)))


def corpus_frequencies(path: Path) -> Frequencies:
    """Counts of the words of a text file, which are what stands between spaces, in lower case.

    Raises HeadlabError for a file that cannot be read, is no UTF-8 or is empty.
    """
    counts: Counter[str] = Counter()
    for line in read_lines(path):
        counts.update(line.lower().split())
    if not counts:
        raise HeadlabError(f"{path} has no words; give a text file with one sentence a line", code="file.no_words")
    told = hashlib.sha256("\n".join(f"{word} {n}" for word, n in sorted(counts.items())).encode()).hexdigest()
    return Frequencies(counts, {"source": "corpus", "words": counts.total(), "sha256": told})


def package_frequencies(language: str) -> Frequencies | str:
    """Frequencies of the package wordfreq for a language, or a sentence that says why there are none.

    Words are looked up as the sentences have them, so Chinese and Japanese need no word splitter; Chinese ones in
    simplified script.
    """
    try:
        import wordfreq
    except ImportError:
        return "the package wordfreq is not installed (pip install 'headlab[roles]'); or give a corpus by --frequencies"
    spoken = language if language in wordfreq.available_languages() else language.partition("-")[0]  # "pt-BR"
    if spoken not in wordfreq.available_languages():
        return f"the package wordfreq has no frequencies for {language}; give a corpus by --frequencies"
    about = {"source": "wordfreq", "version": version("wordfreq")}
    return Frequencies(wordfreq.get_frequency_dict(spoken), about, _spelling(spoken), digits=False)


def _spelling(language: str) -> Callable[[str], str]:
    """How the package spells the words of a language."""
    from langcodes import Language
    from wordfreq.preprocess import preprocess_text

    asked, script = Language.get(language), _simplified() if language == "zh" else {}

    def clean(word: str) -> str:
        return str(preprocess_text(word, asked)).translate(script)

    return clean


def _simplified() -> dict[int, Any]:
    """The package's table from traditional to simplified characters; its own reader of it wants a word splitter."""
    import msgpack
    from wordfreq.util import data_path

    with gzip.open(data_path("_chinese_mapping.msgpack.gz")) as file:
        return dict(msgpack.load(file, raw=False, strict_map_key=False))
