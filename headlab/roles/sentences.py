"""Sentences to evaluate heads on, with what is known of them without a model.

Trees, relations and frequencies.
"""

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

    Attributes:
        name: "treebank", or the task's.
        language: Of the sentences.
        split: Of the treebank or task.
        trees: Trees of a treebank.
        examples: Examples of the task.
        data_hash: Sha256 of everything that a report depends on.
        seed: Of their order.
        task: Of the examples.
        file: The CoNLL-U file that was named, if one was.
        data: The data folder that the treebank was looked for in, if one was.
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
    """Trees of a treebank: all, or some that are chosen at random; in their order.

    Args:
        trees: The trees.
        language: Of the trees.
        split: Of the treebank.
        size: Number of trees, chosen by `seed` and their number; None for all.
        seed: Of the choice.

    Raises:
        HeadlabError: There are no trees, or the size is below 1.
    """
    if not trees:
        raise HeadlabError(
            f"no trees in {language} to find roles on; give one or more", code="roles.no_trees"
        )
    if size is not None and size < 1:
        raise HeadlabError(
            f"asked for {size} trees; ask for 1 or more", code="roles.size_too_small"
        )
    selected_trees = tuple(trees)
    if size is not None and size < len(selected_trees):
        random_indices = np.random.default_rng([seed, 11]).permutation(len(selected_trees))[:size]
        selected_trees = tuple(selected_trees[index] for index in sorted(random_indices.tolist()))
    content = []
    for tree in selected_trees:
        content.append([list(tree.words), list(tree.governors), list(tree.relations)])
    return Sentences(TREEBANK, language, split, selected_trees, (), content_key(content), seed)


def of_task(
    task: Task, language: str, split: Split = "dev", size: int | None = DEV_SIZE
) -> Sentences:
    """Examples of a task as its model receives them.

    They are texts, pairs of texts, words, or sources with their targets.

    Raises:
        HeadlabError: The task does not have the language or split.
    """
    examples = task.examples(language, split, size)
    model_examples = examples
    if task.likelihood:  # texts for attention, whatever is asked of them
        model_examples = tuple(Example(e.id, e.full_text, group=e.group) for e in examples)
    return Sentences(
        task.name, language, split, (), model_examples, task.data_hash(examples), task.seed, task
    )


# Which word should attend to which, according to a gold tree, and the best fixed offset.

TargetWords = Mapping[int, frozenset[int]]


def correct_targets(tree: Tree, is_complete: Bools, causal: bool) -> dict[str, TargetWords]:
    """The words that each word should attend to, by syntactic role, as far as it can be asked.

    Args:
        tree: The sentence's gold tree.
        is_complete: Whether the model receives all of the word, bool [word].
        causal: Whether words see only those before them, so that a word is asked only about
            earlier ones.
    """
    targets_by_role: dict[str, dict[int, frozenset[int]]] = {}
    for word, (governor, relation) in enumerate(zip(tree.governors, tree.relations, strict=True)):
        if governor < 0 or relation not in RELATIONS:
            continue
        if not is_complete[word] or not is_complete[governor]:
            continue
        for direction, query, target in (
            (TO_GOVERNOR, word, governor),
            (TO_DEPENDENT, governor, word),
        ):
            if causal and target > query:
                continue
            targets_by_query = targets_by_role.setdefault(syntactic(relation, direction), {})
            targets_by_query[query] = targets_by_query.get(query, frozenset()) | {target}
    return dict(targets_by_role)


def best_offsets(targets_of_sentences: Iterable[Mapping[str, TargetWords]]) -> dict[str, int]:
    """The offset that is right for most words of each role.

    Of several such offsets it is the nearest, before rather than after.

    Args:
        targets_of_sentences: The result of `correct_targets` for each sentence.
    """
    counts: dict[str, Counter[int]] = {}
    for targets_by_role in targets_of_sentences:
        for role, targets_by_query in targets_by_role.items():
            offset_counts = counts.setdefault(role, Counter())
            for query, targets in targets_by_query.items():
                offset_counts.update(target - query for target in targets)
    return {
        role: min(offset_counts, key=lambda o: (-offset_counts[o], abs(o), o))
        for role, offset_counts in counts.items()
    }


# Word frequencies: from the package wordfreq, or counted in a corpus that the user gives.

PARTS = re.compile(r"[\s'’‐–_./-]+")


@dataclass(frozen=True)
class Frequencies:
    """Frequencies of words; a word that is not in the table has 0.

    Attributes:
        table: Frequencies by word.
        about: Their source, for the report's spec.
        clean: Spells a word as the table does.
        digits: Whether words with digits have frequencies of their own in the table.
        file: The text that they were counted in, if it was one.
    """

    table: Mapping[str, float]
    about: Mapping[str, Json]
    clean: Callable[[str], str] = field(default=str.lower, compare=False, repr=False)
    digits: bool = True
    file: Path | None = field(default=None, compare=False, repr=False)

    def of(self, word: str) -> float:
        """Frequency of a word.

        That of a word that is not in the table is made of its parts ("n't", "well-known"): it is
        1 / sum of 1 / f.
        """
        text = self.clean(word)
        if text in self.table:
            return float(self.table[text])
        frequencies = [float(self.table.get(part, 0)) for part in PARTS.split(text) if part]
        if not frequencies or not all(frequencies):
            return 0.0
        return 1 / sum(1 / frequency for frequency in frequencies)

    def rarest(self, words: Sequence[str]) -> list[bool]:
        """Which words are the least frequent, ties included.

        A string without letters is not a word here.
        """
        frequencies = [self.of(word) if self._known(word) else None for word in words]
        known_frequencies = [value for value in frequencies if value is not None]
        lowest = min(known_frequencies, default=None)
        return [value is not None and value == lowest for value in frequencies]

    def _known(self, text: str) -> bool:
        """Whether the table could have a word: the package has none for "1990s" or "20th"."""
        has_letters = any(map(str.isalpha, text))
        has_digits = any(map(str.isdigit, text))
        return has_letters and (self.digits or not has_digits)


def corpus_frequencies(path: Path) -> Frequencies:
    """Word counts of a text file; words are separated by spaces and converted to lower case.

    Raises:
        HeadlabError: The file cannot be read, is not UTF-8 or is empty.
    """
    counts: Counter[str] = Counter()
    for line in read_lines(path):
        counts.update(line.lower().split())
    if not counts:
        raise HeadlabError(
            f"{path} has no words; give a text file with one sentence a line", code="file.no_words"
        )
    lines = [f"{word} {count}" for word, count in sorted(counts.items())]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    about: dict[str, Json] = {"source": "corpus", "words": counts.total(), "sha256": digest}
    return Frequencies(counts, about, file=path)


def package_frequencies(language: str) -> Frequencies | str:
    """Frequencies of the package wordfreq for a language, or why there are none.

    Words are looked up as the sentences have them, so Chinese and Japanese need no word splitter;
    Chinese is looked up in simplified script.
    """
    try:
        import wordfreq
    except ImportError:
        return (
            "the package wordfreq is not installed (pip install 'headlab[roles]'); or give a corpus by "
            "--frequencies"
        )
    package_language = language
    if language not in wordfreq.available_languages():  # it may have "pt" for "pt-BR"
        package_language = language.partition("-")[0]
    if package_language not in wordfreq.available_languages():
        return f"the package wordfreq has no frequencies for {language}; give a corpus by --frequencies"
    table = wordfreq.get_frequency_dict(package_language)
    about = {"source": "wordfreq", "version": version("wordfreq")}
    return Frequencies(table, about, _spelling(package_language), digits=False)


def _spelling(language: str) -> Callable[[str], str]:
    """A function that spells words of a language as the package does."""
    from langcodes import Language
    from wordfreq.preprocess import preprocess_text

    package_language = Language.get(language)
    characters = _simplified_characters() if language == "zh" else {}

    def clean(word: str) -> str:
        return str(preprocess_text(word, package_language)).translate(characters)

    return clean


def _simplified_characters() -> dict[int, str]:
    """The package's table from traditional to simplified characters.

    The package's own reader of it needs a word splitter.
    """
    import msgpack
    from wordfreq.util import data_path

    with gzip.open(data_path("_chinese_mapping.msgpack.gz")) as file:
        return dict(msgpack.load(file, raw=False, strict_map_key=False))
