"""Sentences to evaluate heads on, and what is known of them without a model: trees, relations, frequencies."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np

from headlab.core import Bools, HeadlabError, Json, TaskSpec, content_key
from headlab.roles.table import RELATIONS, TO_DEPENDENT, TO_GOVERNOR, syntactic
from headlab.tasks import DEV_SIZE, TREEBANK, Example, Split, Task, Tree, read_lines

# The sentences that heads are evaluated on: trees of a treebank, or the examples of a task.


@dataclass(frozen=True)
class Sentences:
    """Sentences of one language: trees, or examples of `task`; the other is empty.

    name: "treebank", or the task's.  data_hash: sha256 of everything a report depends on.  seed: of their order.
    file, data: the CoNLL-U file that was named, or the data folder that the treebank was looked for in, if one was.
    """

    name: str
    language: str
    split: str
    trees: tuple[Tree, ...] = ()
    examples: tuple[Example, ...] = ()
    data_hash: str = ""
    seed: int = 0
    task: Task | None = field(default=None, compare=False, repr=False)
    file: Path | None = field(default=None, compare=False, repr=False)
    data: Path | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.trees) or len(self.examples)

    def spec(self) -> TaskSpec:
        """The part of a report's spec that describes the sentences."""
        return TaskSpec(
            name=self.name,
            language=self.language,
            split=self.split,
            size=len(self),
            seed=self.seed,
            data_hash=self.data_hash,
        )


def of_trees(
    trees: Sequence[Tree], language: str, split: str, size: int | None = None, *, seed: int = 0
) -> Sentences:
    """Trees of a treebank: all in their order (size None), or `size` random ones, which depend on seed and number.

    Raises HeadlabError for no trees, and for a size below 1.
    """
    if not trees:
        raise HeadlabError(
            f"no trees in {language} to find roles on; give one or more", code="roles.no_trees"
        )
    if size is not None and size < 1:
        raise HeadlabError(
            f"asked for {size} trees; ask for 1 or more", code="roles.size_too_small"
        )
    chosen = tuple(trees)
    if size is not None and size < len(chosen):
        picked = np.random.default_rng([seed, 11]).permutation(len(chosen))[:size]
        chosen = tuple(chosen[place] for place in sorted(picked.tolist()))
    told = [[list(tree.words), list(tree.governors), list(tree.relations)] for tree in chosen]
    return Sentences(TREEBANK, language, split, chosen, (), content_key(told), seed)


def of_task(
    task: Task, language: str, split: Split = "dev", size: int | None = DEV_SIZE
) -> Sentences:
    """Examples of a task as its model receives them: texts, pairs of texts, words, sources with their targets.

    Raises HeadlabError for a language or split that the task does not have.
    """
    examples = task.examples(language, split, size)
    shown = examples
    if task.likelihood:  # texts for attention, whatever is asked of them
        shown = tuple(Example(e.id, e.whole, group=e.group) for e in examples)
    return Sentences(
        task.name, language, split, (), shown, task.data_hash(examples), task.seed, task
    )


# Which word should attend to which, according to a gold tree, and the best fixed offset.

Wanted = Mapping[int, frozenset[int]]


def wanted(tree: Tree, whole: Bools, causal: bool) -> dict[str, Wanted]:
    """{role: {query word: words it should attend to}} of every syntactic role, only what can be asked.

    whole: bool [word], whether the model receives all of the word.  causal: words see only those before them, so a word
    is asked only about earlier ones.
    """
    out: dict[str, dict[int, set[int]]] = {}
    for word, (governor, relation) in enumerate(zip(tree.governors, tree.relations, strict=True)):
        if governor < 0 or relation not in RELATIONS or not (whole[word] and whole[governor]):
            continue
        for direction, looks, target in (
            (TO_GOVERNOR, word, governor),
            (TO_DEPENDENT, governor, word),
        ):
            if target < looks or not causal:
                out.setdefault(syntactic(relation, direction), {}).setdefault(looks, set()).add(
                    target
                )
    return {
        role: {word: frozenset(found) for word, found in asked.items()}
        for role, asked in out.items()
    }


def best_offsets(asked: Iterable[Mapping[str, Wanted]]) -> dict[str, int]:
    """{role: the offset that is right for most words}; of several, the nearest, before rather than after."""
    counts: dict[str, Counter[int]] = {}
    for roles in asked:
        for role, words in roles.items():
            found = counts.setdefault(role, Counter())
            found.update(target - word for word, targets in words.items() for target in targets)
    return {
        role: min(found, key=lambda o: (-found[o], abs(o), o)) for role, found in counts.items()
    }


# Word frequencies: from the package wordfreq, or counted in a corpus that the user gives.

PARTS = re.compile(r"[\s'’‐–_./-]+")


@dataclass(frozen=True)
class Frequencies:
    """Frequencies of words; a word that is not in the table has 0.

    about: their source, for the report's spec.  clean: how a word is spelled in the table.  digits: whether words with
    digits have frequencies of their own in it.  file: the text that they were counted in, if it was one.
    """

    table: Mapping[str, float]
    about: Mapping[str, Json]
    clean: Callable[[str], str] = field(default=str.lower, compare=False, repr=False)
    digits: bool = True
    file: Path | None = field(default=None, compare=False, repr=False)

    def of(self, word: str) -> float:
        """Frequency of a word; of one not in the table, from its parts ("n't", "well-known"): 1 / sum of 1 / f."""
        text = self.clean(word)
        if text in self.table:
            return float(self.table[text])
        parts = [float(self.table.get(part, 0)) for part in PARTS.split(text) if part]
        return 1 / sum(1 / part for part in parts) if parts and all(parts) else 0.0

    def rarest(self, words: Sequence[str]) -> list[bool]:
        """Which words are the least frequent, ties included. A string without letters is not a word here."""
        found = [self.of(word) if self._known(word) else None for word in words]
        least = min((value for value in found if value is not None), default=None)
        return [value is not None and value == least for value in found]

    def _known(self, word: str) -> bool:
        """Whether the table could have a word: the package has none for "1990s" or "20th"."""
        return any(map(str.isalpha, word)) and (self.digits or not any(map(str.isdigit, word)))


def corpus_frequencies(path: Path) -> Frequencies:
    """Word counts of a text file; words are separated by spaces and converted to lower case.

    Raises HeadlabError for a file that cannot be read, is not UTF-8 or is empty.
    """
    counts: Counter[str] = Counter()
    for line in read_lines(path):
        counts.update(line.lower().split())
    if not counts:
        raise HeadlabError(
            f"{path} has no words; give a text file with one sentence a line", code="file.no_words"
        )
    told = hashlib.sha256(
        "\n".join(f"{word} {n}" for word, n in sorted(counts.items())).encode()
    ).hexdigest()
    about: dict[str, Json] = {"source": "corpus", "words": counts.total(), "sha256": told}
    return Frequencies(counts, about, file=path)


def package_frequencies(language: str) -> Frequencies | str:
    """Frequencies of the package wordfreq for a language, or a sentence that says why there are none.

    Words are looked up as the sentences have them, so Chinese and Japanese need no word splitter; Chinese in simplified
    script.
    """
    try:
        import wordfreq
    except ImportError:
        return "the package wordfreq is not installed (pip install 'headlab[roles]'); or give a corpus by --frequencies"
    spoken = (
        language if language in wordfreq.available_languages() else language.partition("-")[0]
    )  # "pt-BR"
    if spoken not in wordfreq.available_languages():
        return f"the package wordfreq has no frequencies for {language}; give a corpus by --frequencies"
    about = {"source": "wordfreq", "version": version("wordfreq")}
    return Frequencies(wordfreq.get_frequency_dict(spoken), about, _spelling(spoken), digits=False)


def _spelling(language: str) -> Callable[[str], str]:
    """A function that spells words of a language as the package does."""
    from langcodes import Language
    from wordfreq.preprocess import preprocess_text

    asked, script = Language.get(language), _simplified() if language == "zh" else {}

    def clean(word: str) -> str:
        return str(preprocess_text(word, asked)).translate(script)

    return clean


def _simplified() -> dict[int, str]:
    """The package's table from traditional to simplified characters; its own reader needs a word splitter."""
    import msgpack
    from wordfreq.util import data_path

    with gzip.open(data_path("_chinese_mapping.msgpack.gz")) as file:
        return dict(msgpack.load(file, raw=False, strict_map_key=False))
