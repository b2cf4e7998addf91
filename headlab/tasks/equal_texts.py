"""Equal texts: counted in dev and test, and kept on one side by a division by share."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import cast

import numpy as np

from headlab.core import HeadlabError, Ints, JsonLike
from headlab.tasks.base import Example, Split, Task

# Heads are chosen on dev and reported on test, so a text that is in both makes the report too good.
OTHER_SPLITS: Mapping[Split, tuple[Split, ...]] = {
    "train": ("dev", "test"),
    "dev": ("test",),
    "test": ("dev",),
}

UNSEEN = ", so figures on test are not of unseen texts alone"
CONSEQUENCES: Mapping[tuple[Split, Split], str] = {
    ("dev", "test"): UNSEEN,
    ("test", "dev"): UNSEEN,
    ("test", "train"): UNSEEN,
    ("train", "test"): UNSEEN,
    ("dev", "train"): ", so figures on dev are not of unseen texts alone",
    ("train", "dev"): ", so figures on dev are not of unseen texts alone",
}

# What is compared in files of one's own, which are small and at hand.
COMPARED_SPLITS: tuple[tuple[Split, Split], ...] = (
    ("test", "dev"),
    ("dev", "train"),
    ("test", "train"),
)

Text = tuple[str, ...]
Answer = tuple[str | int, ...]


def comparable(text: str) -> str:
    """A text as it is compared.

    It is in Unicode's composed form (NFC), without case, with single spaces.
    """
    folded_text = unicodedata.normalize("NFC", text).casefold()
    return " ".join(unicodedata.normalize("NFC", folded_text).split())


def text_of(example: Example) -> Text:
    """What a model is given of an example, as it is compared.

    That is a text, both texts of a pair, the words of a sentence, a context with its choices in any
    order, or the text of which every token is predicted. Labels, and texts to be generated, are
    answers.
    """
    if example.choices:
        return (comparable(example.text), *sorted(map(comparable, example.choices)))
    if example.target is not None and not example.text:
        return (comparable(example.target),)
    if example.pair is not None:
        return comparable(example.text), comparable(example.pair)
    return (comparable(example.text),)


def answer_of(example: Example) -> Answer:
    """The right answer to an example.

    Its label, the labels of its words, its choice or its text to be generated.
    """
    if example.choices:
        return (comparable(example.choices[example.label]),)
    if example.target is not None:
        return (comparable(example.target),)
    return example.labels or (example.label,)


@dataclass(frozen=True)
class EqualTexts:
    """How many examples of one split have a text that another split of the same language has too.

    Attributes:
        split, other: The two splits.
        examples: Of `split`, those that were compared.
        equal: Of these, those whose text is in `other`.
        contradicted: Of the equal ones, those whose answer no equal text of `other` has.
    """

    split: Split
    other: Split
    examples: int
    equal: int
    contradicted: int

    def record(self) -> dict[str, int]:
        """The numbers, as they stand in JSON."""
        return {"examples": self.examples, "equal": self.equal, "contradicted": self.contradicted}

    @property
    def note(self) -> str:
        """The numbers in a sentence without its full stop.

        Empty where no text is in both splits.
        """
        if not self.equal:
            return ""
        verb = "is" if self.equal == 1 else "are"
        answers = ""
        if self.contradicted:
            answers = f", {self.contradicted:,} of them with another answer"
        return (
            f"{self.equal:,} of the {self.examples:,} {self.split} texts {verb} in {self.other} "
            f"too{answers}{CONSEQUENCES[self.split, self.other]}"
        )


def count_equal_texts(
    examples: Sequence[Example], split: Split, other_examples: Iterable[Example], other: Split
) -> EqualTexts:
    """Count the examples of a split whose texts are in another one."""
    answers_by_text: dict[Text, set[Answer]] = {}
    for example in other_examples:
        answers_by_text.setdefault(text_of(example), set()).add(answer_of(example))
    equal = [example for example in examples if text_of(example) in answers_by_text]
    contradicted = [
        example for example in equal if answer_of(example) not in answers_by_text[text_of(example)]
    ]
    return EqualTexts(split, other, len(examples), len(equal), len(contradicted))


def equal_texts(
    task: Task, language: str, split: Split, examples: Sequence[Example]
) -> tuple[EqualTexts, ...]:
    """Count the examples of a split that a task has in another split of the language too.

    Args:
        task: the task that the examples are of.
        language: their language.
        split: their split.
        examples: those that a result is on, all of the split or some.

    Returns:
        One count for each other split whose examples are on this machine and can be read. None is
        fetched for it.
    """
    counts = []
    for other_split in OTHER_SPLITS[split]:
        other_examples = _present_examples(task, language, other_split)
        if other_examples:
            counts.append(count_equal_texts(examples, split, other_examples, other_split))
    return tuple(counts)


def _present_examples(task: Task, language: str, split: Split) -> Sequence[Example]:
    """All examples of a split; none where they are not on this machine or cannot be read."""
    if not task.present(language, split):
        return ()
    try:
        return tuple(task.read(language, split, task.seed))
    # The caller computes a result on another split, which must not fail for this one.
    except HeadlabError:
        return ()


def equal_texts_record(counts: Iterable[EqualTexts]) -> dict[str, JsonLike]:
    """The counts as they stand in a result's JSON and beside a stored result.

    Empty where no text is in two splits.
    """
    record: dict[str, JsonLike] = {count.other: count.record() for count in counts if count.equal}
    if record:
        return {"equal_texts": record}
    return {}


def equal_texts_notes(counts: Iterable[EqualTexts]) -> list[str]:
    """What the counts say in sentences without their full stop.

    None where no text is in two splits.
    """
    return [count.note for count in counts if count.note]


def notes_by_language(task: Task, size: int | None) -> list[str]:
    """What the first dev examples of each language have in common with test, in sentences.

    Args:
        size: Of dev; None for all.
    """
    notes = []
    for language in task.languages:
        examples = _present_examples(task, language, "dev")[:size]
        notes += [
            f"{language}: {note}"
            for note in equal_texts_notes(equal_texts(task, language, "dev", examples))
        ]
    return notes


def notes_of_record(stored_result: Mapping[str, object], split: str) -> list[str]:
    """The sentences of counts that `equal_texts_record` wrote beside a result on a split."""
    records_by_split = stored_result.get("equal_texts")
    if not isinstance(records_by_split, Mapping):
        return []
    counts = [
        EqualTexts(cast(Split, split), other_split, **numbers)
        for other_split, numbers in records_by_split.items()
    ]
    return equal_texts_notes(counts)


# What files of one's own have in common, before they become a task.

SAME_FILE = 0.5  # share of a language's texts in another language from which both may be one file


def notes_of_examples(
    examples: Mapping[tuple[str, Split], Sequence[Example]], *, is_divided: bool
) -> Iterator[str]:
    """Say which texts of a task's examples are equal, in sentences without their full stop.

    Args:
        examples: those of each language and split.
        is_divided: whether rows with equal texts were put on the same side.

    Yields:
        A sentence for each language that has texts in two splits, or equal texts with different
        answers, and for two languages that share most of their texts; and one on what the division
        did.
    """
    by_language: dict[str, list[Example]] = {}
    for (language, _), members in examples.items():
        by_language.setdefault(language, []).extend(members)
    if is_divided:
        yield from _repeated_texts_note(by_language)
    for language in by_language:
        for split, other_split in COMPARED_SPLITS:
            count = count_equal_texts(
                examples.get((language, split), ()),
                split,
                examples.get((language, other_split), ()),
                other_split,
            )
            if count.note:
                yield f"{language}: {count.note}"
        yield from _contradictions(language, by_language[language])
    yield from _same_languages(by_language)


def _repeated_texts_note(examples: Mapping[str, Sequence[Example]]) -> Iterator[str]:
    """How many rows have the text of another row."""
    counts = Counter(map(text_of, chain.from_iterable(examples.values())))
    rows = sum(count for count in counts.values() if count > 1)
    if rows:
        yield (
            f"{rows:,} rows have the text of another row; rows with equal texts are all in dev or "
            "all in test"
        )


def _contradictions(language: str, examples: Sequence[Example]) -> Iterator[str]:
    """How many texts of a language have several answers, with the first two places."""
    first_examples: dict[Text, Example] = {}
    contradictions: dict[Text, tuple[Example, Example]] = {}
    for example in examples:
        text = text_of(example)
        earlier = first_examples.setdefault(text, example)
        if answer_of(earlier) != answer_of(example):
            contradictions.setdefault(text, (earlier, example))
    if contradictions:
        earlier, later = next(iter(contradictions.values()))
        subject = "1 text has"
        if len(contradictions) > 1:
            subject = f"{len(contradictions):,} texts have"
        yield (
            f"{language}: {subject} different answers in different rows, such as {earlier.place} "
            f"and {later.place}"
        )


def _same_languages(examples: Mapping[str, Sequence[Example]]) -> Iterator[str]:
    """Languages of which at least half of the texts are in an earlier language too."""
    texts_by_language = {
        language: [text_of(example) for example in members]
        for language, members in examples.items()
    }
    earlier_texts: dict[str, set[Text]] = {}
    for language, texts in texts_by_language.items():
        for earlier, known_texts in earlier_texts.items():
            equal = len([text for text in texts if text in known_texts])
            if equal >= SAME_FILE * len(texts):
                yield (
                    f"{equal:,} of the {len(texts):,} texts in {language} are in {earlier} too; "
                    "check that no file was given for two languages"
                )
                break
        earlier_texts[language] = set(texts)


# The division of rows into dev and test by share, each version of which stays as it is.

# 1: a share of the groups of each language, file by file.
# 2: also, rows with equal texts are on the same side, and so are row i of all languages of an
# aligned task.
VERSIONS = (1, 2)
FIRST_VERSION = VERSIONS[0]
NEWEST_VERSION = VERSIONS[-1]
SEED = (0, 29)


@dataclass(frozen=True)
class DividedRow:
    """What the division looks at of a row.

    Attributes:
        file: Number of its file.
        language: Of the row.
        group: The name of what it belongs to; empty for a group of its own.
        text: As `text_of` gives it.
    """

    file: int
    language: str
    group: str
    text: Text


def dev_rows(
    rows: Sequence[DividedRow], share: float, *, is_aligned: bool, version: int
) -> set[int]:
    """Divide the rows of all files of a task.

    Args:
        rows: of all files, in their order.
        share: of the rows that become dev, between 0 and 1.
        is_aligned: whether row i means the same in every language.
        version: one of VERSIONS.

    Returns:
        The indices of the rows that become dev; the others become test.
    """
    if version == FIRST_VERSION:
        return _by_groups_alone(rows, share)
    return _by_components(rows, share, is_aligned)


def _by_groups_alone(rows: Sequence[DividedRow], share: float) -> set[int]:
    """Version 1: a random share of each language's groups, so that no group is in both."""
    groups_by_place: dict[tuple[int, str], dict[object, list[int]]] = {}
    for index, row in enumerate(rows):
        groups = groups_by_place.setdefault((row.file, row.language), {})
        groups.setdefault(row.group or index, []).append(index)
    dev = set[int]()
    for groups in groups_by_place.values():
        members = list(groups.values())
        # One seed, so that rows that mean the same in every language stay together.
        order = np.random.default_rng(SEED).permutation(len(members))
        dev_size = max(1, min(round(share * len(members)), len(members) - 1))
        for group in order[:dev_size]:
            dev.update(members[group])
    return dev


@dataclass
class _Component:
    """Rows that must be on one side.

    Attributes:
        rank: Place in the random order.
        sizes: Rows by language.
    """

    rank: int
    rows: list[int] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)


def _by_components(rows: Sequence[DividedRow], share: float, is_aligned: bool) -> set[int]:
    """Version 2: rows that must be on one side go to dev or test together."""
    totals: dict[str, int] = {}
    for row in rows:
        totals[row.language] = totals.get(row.language, 0) + 1
    dev_sizes = {
        language: max(1, min(round(share * total), total - 1)) for language, total in totals.items()
    }
    dev, test = _deal(_components(rows, is_aligned), dev_sizes)
    for language in totals:  # heads are chosen on dev, so every language needs some
        if not _has_language(dev, language):
            _move(_smallest_component(test, language), test, dev)
    for language in totals:
        if not _has_language(test, language):
            _give_to_test(dev, test, language)
    return set(chain.from_iterable(component.rows for component in dev))


def _deal(
    components: Sequence[_Component], dev_sizes: Mapping[str, int]
) -> tuple[list[_Component], list[_Component]]:
    """Divide components into dev and test, in their order.

    A component goes to dev if the numbers of dev rows of its languages, added up, then come closer
    to those wanted.

    Args:
        components: In random order.
        dev_sizes: Number of dev rows wanted, by language.
    """
    still_wanted = dict(dev_sizes)
    dev: list[_Component] = []
    test: list[_Component] = []
    for component in components:
        improvement = sum(
            abs(still_wanted[language]) - abs(still_wanted[language] - size)
            for language, size in component.sizes.items()
        )
        if improvement <= 0:
            test.append(component)
            continue
        dev.append(component)
        for language, size in component.sizes.items():
            still_wanted[language] -= size
    return dev, test


def _has_language(components: Sequence[_Component], language: str) -> bool:
    return any(language in component.sizes for component in components)


def _smallest_component(components: Sequence[_Component], language: str) -> _Component:
    """The component of a language with the fewest rows."""
    return min(
        (c for c in components if language in c.sizes), key=lambda component: len(component.rows)
    )


def _move(component: _Component, source: list[_Component], target: list[_Component]) -> None:
    source.remove(component)
    target.append(component)


def _give_to_test(dev: list[_Component], test: list[_Component], language: str) -> None:
    """Move the smallest component of a language to test.

    It is moved only if every language then still has dev rows.
    """
    component = _smallest_component(dev, language)
    remaining = [dev_component for dev_component in dev if dev_component is not component]
    if all(_has_language(remaining, code) for code in component.sizes):
        _move(component, dev, test)


def _components(rows: Sequence[DividedRow], is_aligned: bool) -> list[_Component]:
    """The rows that must be on one side.

    They are tied by groups, equal texts and, where aligned, by their place.

    In random order: that of the groups of the longest language, so that without equal texts the
    rows that have the same place in several languages stay together, and version 1's division comes
    out.
    """
    groups = _group_numbers(rows)
    ties = [
        *_ties([row.text for row in rows]),
        *_ties([row.group or index for index, row in enumerate(rows)]),
    ]
    if is_aligned:
        ties += _ties(_row_positions(rows))
    labels = _component_numbers(len(rows), ties)
    ranks = np.argsort(np.random.default_rng(SEED).permutation(max(groups) + 1))
    components: dict[int, _Component] = {}
    for index, (row, label) in enumerate(zip(rows, labels.tolist(), strict=True)):
        rank = int(ranks[groups[index]])
        component = components.setdefault(label, _Component(rank))
        component.rank = min(component.rank, rank)
        component.rows.append(index)
        component.sizes[row.language] = component.sizes.get(row.language, 0) + 1
    return sorted(components.values(), key=lambda component: component.rank)


def _group_numbers(rows: Sequence[DividedRow]) -> list[int]:
    """The number of each row's group among those of its language, from 0.

    Groups are in the order of their first rows.
    """
    numbers_by_language: dict[str, dict[object, int]] = {}
    group_numbers = []
    for index, row in enumerate(rows):
        numbers = numbers_by_language.setdefault(row.language, {})
        group_numbers.append(numbers.setdefault(row.group or index, len(numbers)))
    return group_numbers


def _row_positions(rows: Sequence[DividedRow]) -> list[int]:
    """The place of each row among those of its language, from 0."""
    counts: dict[str, int] = {}
    positions = []
    for row in rows:
        positions.append(counts.get(row.language, 0))
        counts[row.language] = positions[-1] + 1
    return positions


def _ties(keys: Sequence[object]) -> list[tuple[int, int]]:
    """Each row with the first one of the same key."""
    first_indices: dict[object, int] = {}
    return [(first_indices.setdefault(key, index), index) for index, key in enumerate(keys)]


def _component_numbers(size: int, ties: Sequence[tuple[int, int]]) -> Ints:
    """The number of each row's component, int [row].

    Args:
        ties: Pairs of rows that are in the same one.
    """
    # takes a moment to import, which pages that divide nothing need not wait for
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    starts, ends = np.array(ties).T
    graph = coo_array((np.ones(len(ties), dtype=bool), (starts, ends)), shape=(size, size))
    _, labels = connected_components(graph, directed=False)
    return np.asarray(labels, dtype=np.int64)
