"""Which class of a model stands for which label of a task.

By name, as stated, or found on examples with labels.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from headlab.core import HeadlabError, Ints

MAX_LABELS_TO_ORDER = 6  # labels; of more, there are too many orders to try
CHANCE_LEVEL = (
    0.001  # probability, at most, that a wrong order is found surely better than the right one
)
# A name that is read as one among others, with commas between them.
ORDINARY = re.compile(r"[\w.+/-]+( [\w.+/-]+)*")
# What a model is named by default, or by a converter that knew no names.
NAMELESS = re.compile(r"(label|class)?[\s_-]*\d+", re.IGNORECASE)
SYNONYMS = (
    ("entailment", "entail", "entails", "entailed"),
    ("contradiction", "contradict", "contradicts", "contradictory"),
    ("not_entailment", "non_entailment", "no_entailment"),
    ("positive", "pos"),
    ("negative", "neg"),
)


@dataclass(frozen=True)
class LabelOrder:
    """The column of a model's logits for each of a task's labels.

    Attributes:
        assumed: {label: the model's own name of its class}, where that name is not the label's;
            results record it.
        note: What was assumed and why, in a sentence; empty if nothing was.
    """

    columns: tuple[int, ...]
    assumed: Mapping[str, str] | None = None
    note: str = ""

    @property
    def caption(self) -> str:
        """What stands beside every figure: the note, or the label map.

        It is empty where the names of the classes are the labels'.
        """
        if self.note or self.assumed is None:
            return self.note
        return "Label map: " + ", ".join(
            f"{label} = {name}" for label, name in self.assumed.items()
        )


def columns_by_name(labels: Sequence[str], names: Sequence[str]) -> tuple[int, ...] | None:
    """The class of each label by its name, else None.

    The name is the same but for case or punctuation, or a known synonym.
    """
    for key in (str, str.casefold, plain, meaning):
        columns = _matches(labels, names, key)
        if columns is not None:
            return columns
    return None


def _matches(
    labels: Sequence[str], names: Sequence[str], key: Callable[[str], str]
) -> tuple[int, ...] | None:
    """The class of each label where just one has its name, else None.

    No two labels may have the same class.

    Args:
        labels: Of the task.
        names: Of the model's classes.
        key: What is compared of a name.
    """
    columns_by_key: dict[str, list[int]] = {}
    for column, name in enumerate(names):
        columns_by_key.setdefault(key(name), []).append(column)
    columns: list[int] = []
    for label in labels:
        matches = columns_by_key.get(key(label), [])
        if len(matches) != 1:
            return None
        columns += matches
    if len(set(columns)) < len(labels):
        return None
    return tuple(columns)


def plain(name: str) -> str:
    """A name without case, spaces and punctuation; unchanged if nothing is left."""
    return re.sub(r"[\W_]+", "_", name.casefold()).strip("_") or name


def meaning(name: str) -> str:
    """The first synonym of a name."""
    return next((words[0] for words in SYNONYMS if plain(name) in words), plain(name))


def are_nameless(names: Sequence[str]) -> bool:
    """Whether a model's names of its classes say nothing, like LABEL_0."""
    return all(NAMELESS.fullmatch(name) for name in names)


def read_label_map(text: str) -> dict[str, str]:
    """{"entailment": "LABEL_2", ...} from "entailment=LABEL_2,...", or from a JSON object.

    A JSON object may have names with commas.

    Raises HeadlabError for any other form, for a label that is there twice, and for an empty name.
    """
    pairs = _pairs(text)
    label_map = dict(pairs)
    if (
        not pairs
        or len(label_map) < len(pairs)
        or not all(label and class_name for label, class_name in pairs)
    ):
        raise HeadlabError(
            f"the label map is {text!r:.100}; write each label once with the model's class for it, like "
            'LABEL=CLASS,LABEL=CLASS, or as a JSON object of texts where names have commas: {"LABEL": "CLASS"}',
            code="label_map.malformed",
        )
    return label_map


def _pairs(text: str) -> list[tuple[str, str]]:
    """The (label, class) pairs that a text tells.

    None if it is JSON that is not an object of texts.
    """
    if text.lstrip().startswith("{"):
        try:
            pairs: list[tuple[str, Any]] = json.loads(text, object_pairs_hook=list)
        except (ValueError, RecursionError):
            return []
        are_texts = all(isinstance(class_name, str) for _, class_name in pairs)
        return pairs if are_texts else []
    parts = (part.partition("=") for part in text.split(","))
    return [(label.strip(), class_name.strip()) for label, _, class_name in parts]


def write_label_map(label_map: Mapping[str, str]) -> str:
    """A label map as `read_label_map` takes it, on one line."""
    plain_text = ",".join(f"{label}={name}" for label, name in label_map.items())
    typed_as_it_is = plain_text.isprintable() and not plain_text.lstrip().startswith("{")
    if typed_as_it_is and _pairs(plain_text) == list(label_map.items()):
        return plain_text
    return printable_json(dict(label_map))


def printable_json(value: object) -> str:
    """A value as JSON that can be printed.

    It is on one line, with escapes where a character has no picture.
    """
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return json.dumps(value)


# How a label map is typed: for an error that asks for one.

PLACEHOLDER = "CLASS"
MAX_LISTED_LABELS = 20  # labels and classes that a hint lists in full


def sure_classes(labels: Sequence[str], names: Sequence[str]) -> dict[str, int]:
    """The class of each label whose name says it without a doubt; other labels are left out.

    A label and a class belong together where their names mean the same and no other name, of
    either, does.
    """
    columns: dict[str, int] = {}
    for key in (str, certain_meaning):
        label_keys = Counter(map(key, labels))
        class_keys = Counter(map(key, names))
        for label in labels:
            if label in columns or label_keys[key(label)] != 1 or class_keys[key(label)] != 1:
                continue
            column = next(number for number, name in enumerate(names) if key(name) == key(label))
            if column not in columns.values():
                columns[label] = column
    return columns


def certain_meaning(name: str) -> str:
    """The first synonym of a name, without case.

    It has one mark for spaces, hyphens and underscores between words.

    Unlike `meaning` it keeps other punctuation, so that C++ is not C.
    """
    text = re.sub(r"[\s_-]+", "_", name.casefold()).strip("_") or name
    return next((words[0] for words in SYNONYMS if text in words), text)


def class_text(names: Sequence[str], column: int) -> str:
    """How a label map names a class: by its name or its number.

    The number stands where the name is that of no other class or of several.
    """
    name = names[column]
    if not name or list(names).count(name) > 1:
        return str(column)
    return name


def map_hint(labels: Sequence[str], names: Sequence[str]) -> str:
    """How to say which class is which label: what to type, in a clause.

    A class is paired with a label only where `sure_classes` is; the others are for the reader to
    choose.

    Args:
        labels: Of the task.
        names: The model's own names of its classes; at least as many as there are labels.
    """
    columns = sure_classes(labels, names)
    placeholder = PLACEHOLDER
    while placeholder.casefold() in {name.casefold() for name in names}:
        placeholder = f"{placeholder}_"
    shown_labels = labels if len(labels) <= MAX_LISTED_LABELS else labels[:2]
    class_texts = dict.fromkeys(shown_labels, placeholder)
    for label in shown_labels:
        if label in columns:
            class_texts[label] = class_text(names, columns[label])
    text = write_label_map(class_texts)
    remarks = []
    if len(shown_labels) < len(labels):
        remarks.append(f"and so on, for all {len(labels)} labels: {list_names(labels)}")
    if placeholder in class_texts.values():
        remarks.append(
            f"in place of each {placeholder} one of the model's classes: {list_names(names)}, or "
            f"its number, 0 to {len(names) - 1}"
        )
    remarks.append("in Python: label_map of the task")
    remarks.append(f"in the app, by names alone: Label map in the sidebar{in_the_app(text)}")
    return f"--label-map {shlex.quote(text)} ({'; '.join(remarks)})"


def in_the_app(text: str) -> str:
    """How a field of the app takes what a command takes in quotes, as the end of a clause."""
    in_a_shell = shlex.quote(text)
    if in_a_shell == text:
        return ""
    if in_a_shell == f"'{text}'":
        return ", without the outer quotes"
    return f", as {text}"


def quoted_if_odd(name: str) -> str:
    """A name as one of several with commas between them: an odd one stands between quotes."""
    if ORDINARY.fullmatch(name):
        return name
    return printable_json(name)


def list_names(names: Sequence[str]) -> str:
    """Names that are to be told apart and typed.

    Odd ones are between quotes, the same ones have their numbers.
    """
    counts = Counter(names)
    texts = []
    for number, name in enumerate(names[:MAX_LISTED_LABELS]):
        text = quoted_if_odd(name)
        if counts[name] > 1:
            text += f" (number {number})"
        texts.append(text)
    list_text = ", ".join(texts)
    if len(names) > MAX_LISTED_LABELS:
        list_text += f", … ({len(names)} in all)"
    return list_text


def has_classes_of_map(stored_task: Mapping[str, Any], label_map: Mapping[str, str] | None) -> bool:
    """Whether a result's classes are those of a label map; without a map, any are.

    Args:
        stored_task: The task in the result's spec, which has names: what a number in the map stands
            for is known to the model alone, so that such a map is never the same.
    """
    if label_map is None:
        return True
    stored_classes = stored_task.get("classes") or {label: label for label in label_map}
    folded_classes = {label: name.casefold() for label, name in stored_classes.items()}
    return folded_classes == {label: name.casefold() for label, name in label_map.items()}


def check_label_map(task: str, labels: Sequence[str], label_map: Mapping[str, str]) -> None:
    """Raise HeadlabError unless a label map names each of a task's labels and nothing else."""
    lacking = [label for label in labels if label not in label_map]
    unknown = [label for label in label_map if label not in labels]
    problem = ""
    if lacking:
        problem = f"has no class for {lacking[0]!r}"
    elif unknown:
        problem = f"names {unknown[0]!r:.60}, which is no label"
    if problem:
        raise HeadlabError(
            f"the label map of task {task} {problem}; give one class for each of "
            f"{list_names(labels)}",
            code="label_map.labels_mismatch",
        )


def columns_by_map(
    task: str, labels: Sequence[str], names: Sequence[str], label_map: Mapping[str, str]
) -> tuple[int, ...]:
    """The class of each label as `label_map` has it, by name or by number.

    Raises HeadlabError unless every label has a class of its own.
    """
    check_label_map(task, labels, label_map)
    columns = [_class_column(names, label_map[label]) for label in labels]
    if len(set(columns)) < len(columns):
        raise HeadlabError(
            f"the label map of task {task} gives two labels one class; give each its own",
            code="label_map.class_twice",
        )
    return tuple(columns)


def _class_column(names: Sequence[str], class_name: str) -> int:
    """The class that a label map names.

    Raises HeadlabError for one that the model does not have.
    """
    for key in (str, str.casefold):
        columns = [column for column, name in enumerate(names) if key(name) == key(class_name)]
        if len(columns) == 1:
            return columns[0]
    if class_name.isascii() and class_name.isdigit() and int(class_name) < len(names):
        return int(class_name)
    raise HeadlabError(
        f"the label map names class {class_name!r:.60}; the model's classes are "
        f"{list_names(names)}, or 0 to {len(names) - 1}",
        code="label_map.class_unknown",
    )


def match_before_examples(
    task: str, labels: Sequence[str], names: Sequence[str], label_map: Mapping[str, str] | None
) -> tuple[bool | None, str]:
    """Whether it is known which class is which label before any example is read.

    Args:
        task: Name of the task, in the sentence.
        labels: Of the task.
        names: The model's own names of its classes.
        label_map: The label map, if any.

    Returns:
        True or False, or None where examples with labels must tell; and a sentence that says why.

    Raises:
        HeadlabError: The label map does not fit the labels or the classes.
    """
    classes = first_names_of(names)
    if label_map is not None:
        columns_by_map(task, labels, names, label_map)
        return True, f"The label map gives each of the {len(labels)} labels of task {task} a class."
    if columns_by_name(labels, names) is not None:
        sentence = f"The model's classes have the names of the {len(labels)} labels of task {task}."
        return True, sentence
    advice = f"Say which is which: {map_hint(labels, names)}."
    if len(names) < len(labels):
        finding = (
            f"The model has {len(names)} classes ({classes}), fewer than the {len(labels)} labels "
            f"of task {task}"
        )
        return False, f"{finding}. Choose the task that it was trained on."
    if len(names) != len(labels) or not are_nameless(names):
        finding = (
            f"The model has {len(names)} classes ({classes}), task {task} has {len(labels)} labels"
        )
        return False, (
            f"{finding}, and their names do not match. Choose the task that it was trained on. "
            f"{advice}"
        )
    if len(labels) > MAX_LABELS_TO_ORDER:
        return False, (
            f"The model's classes are {classes}, which says nothing, and too many to try all "
            f"orders. {advice}"
        )
    return None, (
        f"The model's classes are {classes}, which says nothing: all orders are tried on dev "
        f"examples. {advice}"
    )


def first_names_of(names: Sequence[str]) -> str:
    """The first names of many."""
    first_names = ", ".join(map(quoted_if_odd, names[:4]))
    if len(names) > 4:
        return f"{first_names}…"
    return first_names


def is_below_chance(right_answers: int, answers: int, labels: int) -> bool:
    """Whether so few right answers are surely worse than guessing one of the labels at random."""
    # takes a second to import, which pages that only read a label map need not wait for
    from scipy.stats import binom

    return labels > 1 and bool(binom.cdf(right_answers, answers, 1 / labels) < CHANCE_LEVEL)


@dataclass(frozen=True)
class BestOrder:
    """The best order of a model's classes on some examples.

    Attributes:
        accuracy, runner_up_accuracy: Its share of right answers, and the runner-up's.
        p_value: Of its being better, corrected for all orders.
    """

    columns: tuple[int, ...]
    accuracy: float
    runner_up_accuracy: float
    p_value: float


def try_orders(counts: Ints) -> BestOrder:
    """Compare all orders of the classes.

    Two orders differ only on examples that one of them has right and the other wrong. If the other
    is at least as good, its share of these is one half or more, so the best one's is tested against
    one half (the sign test), and its p-value against each other order is corrected for their number
    (Bonferroni).

    Args:
        counts: Examples by answer and label, int [class, label].
    """
    from scipy.stats import binom

    labels = np.arange(counts.shape[1])
    orders = np.array(list(permutations(range(len(counts)), counts.shape[1])))
    hits = counts[orders, labels]  # [order, label]
    right_counts = hits.sum(axis=1)
    best_order = int(right_counts.argmax())
    differs = orders != orders[best_order]
    won = (hits[best_order] * differs).sum(axis=1)
    lost = (hits * differs).sum(axis=1)
    is_other = np.arange(len(orders)) != best_order
    p_values = np.asarray(binom.sf(won - 1, won + lost, 0.5))[is_other]
    total = max(1, int(counts.sum()))
    runner_up = int(right_counts[is_other].max(initial=0))
    p_value = float(min(1.0, p_values.max(initial=0.0) * is_other.sum()))
    return BestOrder(
        tuple(orders[best_order].tolist()),
        int(right_counts[best_order]) / total,
        runner_up / total,
        p_value,
    )
