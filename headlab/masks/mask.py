"""The mask: which heads of which model are kept, how they were chosen, and its JSON file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict, TypeGuard, cast

import numpy as np

from headlab import __version__
from headlab.core import (
    ABLATION_CHOICES,
    HEADS,
    NEURONS,
    STACKS,
    Bools,
    ComparedByContent,
    Head,
    HeadGrid,
    HeadlabError,
    JsonLike,
    JsonRecord,
    Shown,
    as_path,
    base_and_kind,
    content_key,
    is_ablation,
    is_beyond_weights,
    is_of_other_texts,
    is_same_model,
    is_text,
    json_with_rows,
    parse_json,
    read_json,
    write_atomic,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Permitted values of a mask file's fields: the same as in schemas/mask-2.schema.json and
# schemas/mask-3.schema.json, with messages in words.

MAX_HEADS = 4096
MAX_NEURONS = 1 << 20
# Limits of numbers, counts and nesting, so that all can be shown and saved.
MAX_NUMBER = 1e300
MAX_COUNT = 2**53
MAX_DEPTH = 100
SPLITS = ("train", "dev", "test")
TIME_PATTERN = re.compile(  # as in the schema
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})"
)
STACK_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,39}")
MAX_LINE_LENGTH = 80
# How far a difference may lie from that of two accuracies that were rounded to three digits.
ROUNDING_ALLOWANCE = 0.002
# Ablation of a combined mask whose parts were chosen under several, not all zero.
MIXED_ABLATION = "mixed"


def is_ablation_or_mixed(value: object) -> bool:
    """Whether a value is an ablation, or stands for several."""
    return value == MIXED_ABLATION or is_ablation(value)


def is_string(value: object) -> TypeGuard[str]:
    """Whether a value is text."""
    return isinstance(value, str)


def is_name_or_null(value: object) -> bool:
    """Whether a value is non-empty text or null."""
    return value is None or (is_string(value) and value != "")


def is_list_of_strings(value: object) -> bool:
    """Whether a value is a list of texts."""
    return isinstance(value, list) and all(map(is_string, value))


def is_number(
    value: object, low: float = -MAX_NUMBER, high: float = MAX_NUMBER
) -> TypeGuard[int | float]:
    """Whether a value is a number in these limits; true, false, infinity and NaN are not."""
    if not isinstance(value, int | float) or type(value) not in (int, float):
        return False
    return low <= value <= high


def is_whole_number(value: object, low: int = 0) -> TypeGuard[int | float]:
    """Whether a value is a whole number from `low` to 2 ** 53; 3.0 is one, as in JSON Schema."""
    return is_number(value, low, MAX_COUNT) and float(value).is_integer()


def is_time(value: object) -> bool:
    """Whether a value is a date and time with its zone in RFC 3339 format."""
    if not is_string(value) or TIME_PATTERN.fullmatch(value) is None:
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:  # month 99
        return False
    return True


def is_object(value: object) -> TypeGuard[JsonRecord]:
    """Whether a value is an object."""
    return isinstance(value, Mapping)


def is_object_of_strings(value: object) -> bool:
    """Whether a value is an object of texts."""
    return is_object(value) and all(map(is_string, value.values()))


def is_object_of_counts(value: object) -> bool:
    """Whether a value is an object of whole numbers."""
    return is_object(value) and all(map(is_whole_number, value.values()))


def as_safe_line(value: str, max_length: int = MAX_LINE_LENGTH) -> str:
    """Text from a file as one line of at most `max_length` characters.

    Control characters, which a terminal would obey, are replaced.
    """
    line = "".join(
        character if character.isprintable() else "?" for character in value[: max_length + 1]
    )
    if len(line) <= max_length:
        return line
    return line[: max_length - 1] + "…"


class FieldRule(NamedTuple):
    """Permitted values of a field: as a test, and in words."""

    fits: Callable[[object], bool]
    words: str


TEXT = FieldRule(is_string, "text")
NAME_OR_NULL = FieldRule(is_name_or_null, "text, or null where it is of no one model")
NUMBER = FieldRule(is_number, "a number")
SHARE = FieldRule(partial(is_number, low=0, high=1), "a number from 0 to 1")
COUNT = FieldRule(is_whole_number, "a whole number of 0 or more")
COUNTS = FieldRule(is_object_of_counts, "an object of whole numbers of 0 or more")
POSITIVE_COUNT = FieldRule(partial(is_whole_number, low=1), "a whole number of 1 or more")
NAMES_OF_ABLATIONS = ", ".join(f'"{name}"' for name in ABLATION_CHOICES)
ABLATION = FieldRule(is_ablation, f"one of {NAMES_OF_ABLATIONS}")
ABLATIONS = FieldRule(
    is_ablation_or_mixed,
    f'one of {NAMES_OF_ABLATIONS}, "mixed"',
)
OBJECT = FieldRule(is_object, "an object")
MODEL_FIELDS = {"name": NAME_OR_NULL, "fingerprint": NAME_OR_NULL, "revision": NAME_OR_NULL}
ARCHITECTURE_FIELDS = {"class": TEXT, "model_type": TEXT}
CHOICE_FIELDS = {
    "rule": TEXT,
    "k": COUNT,
    "threshold": NUMBER,
    "weight": NUMBER,
    "method": TEXT,
    "estimand": TEXT,
    "task": TEXT,
    "languages": FieldRule(is_list_of_strings, "a list of texts"),
    "ablation": ABLATIONS,
    "score": OBJECT,
    "evaluated": OBJECT,
}
SPLIT_FIELDS = {
    "task": TEXT,
    "languages": OBJECT,
    "size": POSITIVE_COUNT,
    "ablation": ABLATION,
    "label_map": OBJECT,
}
ACCURACY_FIELDS = {
    "accuracy": SHARE,
    "n": POSITIVE_COUNT,
    "accuracy_low": NUMBER,
    "accuracy_high": NUMBER,
    "baseline": SHARE,
    "difference": NUMBER,
    "low": NUMBER,
    "high": NUMBER,
    "p": SHARE,
    "flipped_right": COUNT,
    "flipped_wrong": COUNT,
    "note": TEXT,
    "examples": COUNT,
    "examples_cut": COUNT,
    "token_limit": COUNT,
    "words_left_out": COUNTS,
}
TOP_FIELDS = {
    "model": OBJECT,
    "removed": COUNT,
    "chosen": OBJECT,
    "versions": FieldRule(is_object_of_strings, "an object of texts"),
    "created": FieldRule(is_time, "a time like 2026-11-21T09:30:00+00:00"),
}


class RecordedAccuracy(TypedDict, total=False):
    """One language's figures on one split, as docs/mask-format.md lists them.

    They are shares, not percentages.

    Attributes:
        accuracy: Accuracy under the mask; always there, like `n`.
        n: Number of answers that the accuracy is over.
        accuracy_low: Lower bound of the 95 % interval of the accuracy.
        accuracy_high: Its upper bound.
        baseline: Accuracy of the model with all heads on, on the same examples.
        difference: accuracy - baseline.
        low: Lower bound of the paired 95 % interval of the difference.
        high: Its upper bound.
        p: Two-sided p-value of the difference.
        flipped_right: Number of answers that are right with the mask only.
        flipped_wrong: Number of answers that are wrong with the mask only.
        note: What to know besides the figures.
        examples: Number of examples.
        examples_cut: How many of them were cut to `token_limit`.
        token_limit: Maximum number of tokens of an example.
        words_left_out: Number of labelled words without an answer, by reason.
    """

    accuracy: float
    n: int
    accuracy_low: float
    accuracy_high: float
    baseline: float
    difference: float
    low: float
    high: float
    p: float
    flipped_right: int
    flipped_wrong: int
    note: str
    examples: int
    examples_cut: int
    token_limit: int
    words_left_out: Mapping[str, int]


# Lower and upper ends of the intervals.
INTERVAL_FIELDS: tuple[
    tuple[Literal["low", "accuracy_low"], Literal["high", "accuracy_high"]], ...
] = (
    ("low", "high"),
    ("accuracy_low", "accuracy_high"),
)


class RecordedSplit(TypedDict, total=False):
    """The accuracies of a mask on one split.

    Attributes:
        task: Name of the task; always there, like `languages`.
        languages: The figures of each language.
        size: Number of examples that were requested of each language.
        ablation: What a removed head outputs, one of `headlab.core.ABLATIONS`.
        label_map: The model's class for each label.
    """

    task: str
    languages: Mapping[str, RecordedAccuracy]
    size: int
    ablation: str
    label_map: Mapping[str, str]


class ChoiceRecord(TypedDict, total=False):
    """The fields of `chosen` that headlab writes; docs/mask-format.md says what is checked of them.

    Attributes:
        rule: The rule by which the heads were removed.
        k: Number of heads that the rule removed.
        threshold: The threshold of rule threshold.
        weight: λ of the learned gates.
        step: Training step of the learned gates that the mask was taken at.
        correction: Correction of the p-values of rule harmful.
        method: The method that gave the scores.
        estimand: What the scores estimate.
        task: Name of the task.
        languages: The languages that it was chosen for.
        ablation: What a removed head outputs.
        order: The order of a front whose first heads were removed.
        score: Spec of the scores.
        gates: Spec of the learned gates.
        front: Spec of the front.
        combined: How each part of a combined mask was chosen.
        note: What to know of a combined mask.
    """

    rule: str
    k: int
    threshold: float
    weight: float
    step: int
    correction: str
    method: str
    estimand: str
    task: str
    languages: list[str]
    ablation: str
    order: str
    score: JsonRecord
    gates: JsonRecord
    front: JsonRecord
    combined: list[JsonRecord]
    note: str


def check_fields(value: JsonRecord, source: str) -> None:
    """Check everything but grid and heads against format version 2.

    Args:
        value: The parsed mask file.
        source: What the mask was read from, for messages.

    Raises:
        HeadlabError: A part does not conform; the message names it.
    """
    for field_name in ("model", "chosen", "versions"):
        for problem in _problems_for_json(value.get(field_name), field_name, source):
            raise problem
    _check_object(value, TOP_FIELDS, ("model",), source, "")
    model = _require_object(value["model"], source, "model")
    _check_object(model, MODEL_FIELDS, ("name", "fingerprint"), source, "model.")
    if model.get("architecture") is not None:
        architecture = _require_object(model["architecture"], source, "model.architecture")
        _check_object(
            architecture,
            ARCHITECTURE_FIELDS,
            tuple(ARCHITECTURE_FIELDS),
            source,
            "model.architecture.",
        )
    choice = _require_object(value.get("chosen", {}), source, "chosen")
    _check_object(choice, CHOICE_FIELDS, (), source, "chosen.")
    accuracies_by_split = _require_object(choice.get("evaluated", {}), source, "chosen.evaluated")
    check_recorded_accuracies(accuracies_by_split, source)


def check_recorded_accuracies(accuracies_by_split: JsonRecord, source: str) -> None:
    """Check that a value is {split: {task, languages: {language: {accuracy, n, ...}}}}.

    Raises:
        HeadlabError: It is not.
    """
    for split, split_value in accuracies_by_split.items():
        place = f"chosen.evaluated.{split}"
        if split not in SPLITS:
            raise HeadlabError(
                f"{source}: chosen.evaluated may hold {', '.join(SPLITS)}; it holds {split!r}",
                code="mask.split_unknown",
            )
        split_record = _require_object(split_value, source, place)
        _check_object(split_record, SPLIT_FIELDS, ("task", "languages"), source, f"{place}.")
        languages = _require_object(split_record["languages"], source, f"{place}.languages")
        for language, figures in languages.items():
            _check_accuracy(figures, source, f"{place}.languages.{as_safe_line(language)}")


def _check_accuracy(figures: JsonLike, source: str, place: str) -> None:
    """Raise HeadlabError unless the figures of one language are valid and agree with each other."""
    figure = _require_object(figures, source, place)
    _check_object(figure, ACCURACY_FIELDS, ("accuracy", "n"), source, f"{place}.")
    if "examples_cut" in figure:
        _check_object(figure, ACCURACY_FIELDS, ("examples", "token_limit"), source, f"{place}.")
    contradiction = contradiction_in(cast("RecordedAccuracy", figure))
    if contradiction:
        raise HeadlabError(
            f"{source}: {place} contradicts itself: {contradiction}; correct or remove it",
            code="mask.figure_contradictory",
        )


def contradiction_in(figure: RecordedAccuracy) -> str:
    """A clause on how the numbers of an evaluation contradict each other; empty if they do not."""
    for low, high in INTERVAL_FIELDS:
        if low in figure and high in figure and figure[low] > figure[high]:
            return f"{low} {figure[low]:g} is above {high} {figure[high]:g}"
    if "difference" in figure and "baseline" in figure:
        recorded_difference = figure["difference"]
        computed_difference = figure["accuracy"] - figure["baseline"]
        if abs(recorded_difference - computed_difference) > ROUNDING_ALLOWANCE:
            return (
                f"difference is {recorded_difference:g}, but accuracy - baseline is "
                f"{computed_difference:g}"
            )
    return ""


def invalid_fields_of(value: JsonRecord, fields: Mapping[str, FieldRule]) -> list[str]:
    """The fields of an object that have invalid values."""
    return [name for name, field in fields.items() if name in value and not field.fits(value[name])]


def _problems_for_json(value: JsonLike, place: str, source: str) -> Iterator[HeadlabError]:
    """Errors for values that JSON cannot represent or that are nested too deeply.

    Args:
        value: Any part of a mask file.
        place: Its path in the file, as `chosen.score`.
        source: What the mask was read from, for messages.
    """
    # Values and names of fields to look at, each with its path and depth.
    pending: list[tuple[JsonLike, str, int]] = [(value, place, 0)]
    while pending:
        value, place, depth = pending.pop()
        if isinstance(value, str) and not is_text(value):
            yield HeadlabError(
                f"{source}: {as_safe_line(place)} holds half of a surrogate pair, which is not valid "
                "text; write the character itself",
                code="mask.text_surrogate",
            )
        elif isinstance(value, float) and not math.isfinite(value):
            yield HeadlabError(
                f"{source}: {as_safe_line(place)} holds infinity or NaN, which JSON does not allow; leave "
                "it out",
                code="mask.number_not_finite",
            )
        elif isinstance(value, Mapping | list | tuple):
            if depth == MAX_DEPTH:
                yield HeadlabError(
                    f"{source}: {as_safe_line(place)} is nested more than {MAX_DEPTH} levels deep; "
                    "simplify it",
                    code="mask.nested_too_deep",
                )
                continue
            parts: Iterable[tuple[str | int, JsonLike]] = (
                value.items() if isinstance(value, Mapping) else enumerate(value)
            )
            for name, part in parts:
                pending += [(name, place, depth), (part, f"{place}.{name}", depth + 1)]


def _require_object(value: object, source: str, place: str) -> JsonRecord:
    """A value that must be an object. Raises HeadlabError, naming its place, for any other."""
    if not is_object(value):
        raise HeadlabError(f"{source}: {place} must be an object", code="mask.field_not_object")
    return value


def _check_object(
    value: JsonRecord,
    fields: Mapping[str, FieldRule],
    required_fields: tuple[str, ...],
    source: str,
    prefix: str,
) -> None:
    """Check the fields of an object.

    Args:
        value: The object.
        fields: The rules of the fields that it may have.
        required_fields: The fields that it must have.
        source: What the mask was read from, for messages.
        prefix: The object's path in the file, with a dot at its end.

    Raises:
        HeadlabError: A required field is missing, or a field has an invalid value.
    """
    for name in required_fields:
        if name not in value:
            raise HeadlabError(
                f"{source}: {prefix}{name} is missing; it must be {fields[name].words}",
                code="mask.field_missing",
            )
    for name in invalid_fields_of(value, fields):
        raise HeadlabError(
            f"{source}: {prefix}{name} must be {fields[name].words}", code="mask.field_invalid"
        )


# The mask: which heads of which model are kept, and how they were chosen.

MASK_VERSION = 2
"""Version of the files of masks of heads."""
PLAYERS_VERSION = 3
"""Version of the files of masks of other players, which older versions of headlab do not read."""
MASK_FORMAT = "headlab-mask"


@dataclass(frozen=True, eq=False)
class Mask(ComparedByContent, Shown):
    """Heads kept (True) and removed (False) of one model, or other players.

    Attributes:
        grid: The heads of the model, or what else of it is switched.
        kept: bool [head] in the grid's order.
        model: Name, revision, fingerprint and architecture of the model that it was made for.
        chosen: How its heads were chosen (method, rule and its options, task, languages), and under
            `evaluated` its accuracies.
        versions: Versions of the software that made it; None for a new mask, whose file then
            records the software that writes it.
        created: When it was made, UTC; None for a new mask, whose file then records the time of
            writing.
    """

    grid: HeadGrid
    kept: Bools
    model: JsonRecord = field(default_factory=dict)
    chosen: JsonRecord = field(default_factory=dict)
    versions: Mapping[str, str] | None = None
    created: str | None = None

    def __post_init__(self) -> None:
        if self.kept.shape != (self.grid.size,):
            raise HeadlabError(
                f"mask has shape {self.kept.shape}; {self.grid} needs ({self.grid.size},)",
                code="mask.shape_mismatch",
            )

    @property
    def removed(self) -> tuple[Head, ...]:
        """Heads that are switched off, in grid order."""
        return tuple(
            head for head, is_kept in zip(self.grid.heads, self.kept, strict=True) if not is_kept
        )

    @property
    def ablation(self) -> str | None:
        """The ablation under which its heads were chosen; None if not recorded.

        It is "mixed" for a combined mask whose parts were chosen under several, not all zero.
        """
        return ablation_of(self.chosen)

    @property
    def of_means(self) -> bool:
        """Whether it, or a mask that it was combined from, was chosen under mean ablation.

        Removed heads do not have that ablation: they output 0.
        """
        ablations = set(_ablations(self.chosen))
        # Several that are recorded one by one may be without means.
        is_unknown_mix = MIXED_ABLATION in ablations and not self.of_other_texts
        return "mean" in ablations or is_unknown_mix

    @property
    def of_other_texts(self) -> str:
        """As `beyond_weights`, of ablations that give outputs on another text alone."""
        ablations = {name for name in _ablations(self.chosen) if name and is_of_other_texts(name)}
        return min(ablations, default="")

    @property
    def beyond_weights(self) -> str:
        """The ablation that it, or a mask it was combined from, was chosen under; or "".

        Only one under which no weights hold what closed heads give: their output on another text,
        or on the first and last tokens alone.
        """
        ablations = {name for name in _ablations(self.chosen) if name and is_beyond_weights(name)}
        return min(ablations, default="")

    @property
    def digest(self) -> str:
        """sha256 of what the mask does (grid and kept heads), however it was chosen."""
        parts: list[JsonLike] = [self.grid.to_json(), self.kept.tolist()]
        if any(stack.is_of_heads for stack in self.grid.stacks):
            parts.append(HEADS)  # as other players have these names too
        members = self.grid.members_json()
        return content_key([*parts, members] if members else parts)

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the model it was made for; None if it names none."""
        fingerprint = self.model.get("fingerprint")
        if fingerprint:
            return str(fingerprint)
        return None

    @property
    def name(self) -> str:
        """Name of the model it was made for; empty if it names none."""
        return str(self.model.get("name") or "")

    @property
    def architecture(self) -> Mapping[str, str] | None:
        """Class and model type of the model it was made for; None if they are not recorded."""
        return cast("Mapping[str, str] | None", self.model.get("architecture"))

    @property
    def choice(self) -> ChoiceRecord:
        """How it was chosen, by the fields that headlab writes; `chosen` may hold others."""
        return cast("ChoiceRecord", self.chosen)

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages it was chosen for; none where they are not recorded."""
        languages = self.chosen.get("languages")
        if isinstance(languages, list | tuple):
            return tuple(map(str, languages))
        return ()

    @property
    def evaluated(self) -> Mapping[str, RecordedSplit]:
        """Its recorded accuracies by split; none for a mask without any."""
        return cast("Mapping[str, RecordedSplit]", self.chosen.get("evaluated", {}))

    def to_json(self) -> dict[str, JsonLike]:
        """The mask file's content; see docs/mask-format.md.

        Raises HeadlabError where stack names, `model`, `chosen` or `versions` do not conform to the
        format.
        """
        for stack in self.grid.stacks:
            if not STACK_PATTERN.fullmatch(stack.name):
                raise HeadlabError(
                    f"the mask: {as_safe_line(stack.name)!r} is not a stack name, like encoder or "
                    "my_stack",
                    code="stack.name_invalid",
                )
        value: dict[str, JsonLike] = {
            "format": MASK_FORMAT,
            "version": MASK_VERSION if self.grid.has_only_heads else PLAYERS_VERSION,
            "model": {"name": None, "fingerprint": None, **self.model},
            "grid": self.grid.to_json(),
            **self._members_field(),
            "kept": self.rows(),
            "removed": len(self.removed),
            "chosen": dict(self.chosen),
            "versions": dict(installed_versions() if self.versions is None else self.versions),
            "created": self.created or datetime.now(UTC).isoformat(timespec="seconds"),
        }
        check_fields(value, "the mask")
        return value

    def _members_field(self) -> dict[str, JsonLike]:
        """The groups of neurons as a field of the file; none where there are none."""
        members = self.grid.members_json()
        return {"members": members} if members else {}

    def rows(self) -> dict[str, list[list[int]]]:
        """{stack: [layer][head]}, 1 = kept."""
        return {
            stack: [[int(bit) for bit in layer] for layer in layers]
            for stack, layers in self.grid.layers_by_stack(self.kept).items()
        }

    def save(self, path: str | Path) -> None:
        """Write the mask file atomically. Raises HeadlabError if it cannot be written."""
        write_atomic(Path(path), self.to_text().encode())

    def to_text(self) -> str:
        """The mask file: JSON in which the heads of a layer are a line."""
        return json_with_rows(self.to_json()) + "\n"

    def require_heads(self, use: str) -> None:
        """Raise HeadlabError unless heads alone are switched.

        Args:
            use: What takes masks of heads only, with a verb.
        """
        if not self.grid.has_only_heads:
            raise HeadlabError(
                f"the mask switches {', '.join(self.grid.kinds)}, and {use} masks of heads only",
                code="mask.not_of_heads",
            )

    def check_model(self, fingerprint: str | None) -> None:
        """Raise HeadlabError if the mask was made for another model, whatever its players are.

        Called before players other than heads are made of a model, which takes passes of it.

        Args:
            fingerprint: Of the model; None if it is not known.
        """
        made_for = self.fingerprint
        if fingerprint and made_for and not is_same_model(made_for, fingerprint):
            name = as_safe_line(str(self.model.get("name") or "another model"))
            raise HeadlabError(
                f"the mask was made for {name} (fingerprint {as_safe_line(made_for[:12])}); this model's "
                f"is {fingerprint[:12]}, and what one model has says nothing about another. Load the "
                "model it was made for",
                code="mask.other_model",
            )

    def check(self, grid: HeadGrid, fingerprint: str | None) -> None:
        """Raise HeadlabError, with the reason, unless the mask belongs to this model.

        A mask that names no model (fingerprint None) only needs to have the same grid.
        """
        if self.grid.kinds != grid.kinds:
            raise HeadlabError(
                f"the mask switches {', '.join(self.grid.kinds)}, and here {', '.join(grid.kinds)} "
                "are switched; give a mask of these, or ask for the players of the mask",
                code="mask.other_players",
            )
        if self.grid != grid and self.grid.to_json() == grid.to_json():
            raise HeadlabError(
                "the mask has other groups of neurons than these: they were formed on another task "
                "or by another version; form them again, or use the groups of the mask",
                code="mask.other_groups",
            )
        if self.grid != grid:
            raise HeadlabError(
                f"the mask is for a model with {self.grid}; this model has {grid}. Load the model "
                "it was made for",
                code="mask.other_grid",
            )
        made_for = self.fingerprint
        if fingerprint and made_for and not is_same_model(made_for, fingerprint):
            name = as_safe_line(str(self.model.get("name") or "another model"))
            raise HeadlabError(
                f"the mask was made for {name} (fingerprint {as_safe_line(made_for[:12])}); this model's "
                f"is {fingerprint[:12]}. The shapes agree, but heads of one model say nothing "
                "about those of another",
                code="mask.other_model",
            )


def ablation_of(choice: JsonRecord) -> str | None:
    """The ablation that a mask was chosen under; None if it is not recorded.

    It stands in a field of its own, in the spec of the scores, in the masks that it was combined
    from, or in the mask that was changed by hand.
    """
    score = choice.get("score")
    score_ablation = score.get("ablation") if isinstance(score, Mapping) else None
    ablation = choice.get("ablation") or score_ablation
    parts = choice.get("combined")
    if ablation is None and isinstance(parts, list):
        return common_ablation({ablation_of(part) for part in parts if isinstance(part, Mapping)})
    started_from = choice.get("started_from")
    if ablation is None and isinstance(started_from, Mapping):
        return ablation_of(started_from)
    if ABLATIONS.fits(ablation):
        return str(ablation)
    return None


def _ablations(choice: JsonRecord) -> Iterator[str | None]:
    """The ablation a mask was chosen under, and those of the masks it was made from."""
    yield ablation_of(choice)
    parts = choice.get("combined")
    for part in (
        *(parts if isinstance(parts, list | tuple) else ()),
        choice.get("started_from"),
    ):
        if isinstance(part, Mapping):
            yield from _ablations(part)


def common_ablation(ablations: Set[str | None]) -> str | None:
    """The common ablation of several masks.

    It is `MIXED_ABLATION` if they have several, not all zero, and None if it is unknown.
    """
    if len(ablations) == 1:
        return next(iter(ablations))
    if not ablations <= {"zero", None}:
        return MIXED_ABLATION
    return None


def full_mask(grid: HeadGrid) -> Mask:
    """The mask that keeps every head."""
    return Mask(grid, np.ones(grid.size, bool))


@cache
def installed_versions() -> dict[str, str]:
    """Installed versions of headlab, torch and transformers, which are not imported for that.

    A new mask records them.
    """
    versions_by_package = {"headlab": __version__}
    for name in ("torch", "transformers"):
        try:
            versions_by_package[name] = version(name)
        except PackageNotFoundError:  # pages that use a remote worker need neither
            continue
    return versions_by_package


def architecture_of(module: PreTrainedModel) -> dict[str, str]:
    """{"class", "model_type"} of a transformers model, as a mask records its architecture."""
    return {"class": type(module).__name__, "model_type": str(module.config.model_type)}


# Reading mask files of every version; their content is not trusted.

AS_WRITTEN = "as_written"  # fields of a version 1 file that do not conform to version 2


def load_mask(path: str | Path) -> Mask:
    """Read a mask file. Raises HeadlabError if it is missing, broken or of an unknown version."""
    return mask_from_json(read_json(as_path("path", path)), str(path))


def mask_from_text(text: bytes | str, source: str = "the uploaded file") -> Mask:
    """Read a mask from JSON text. Raises HeadlabError naming `source`."""
    return mask_from_json(parse_json(text, source), source)


def mask_from_json(value: object, source: str = "mask") -> Mask:
    """Read a mask of version 1, 2 or 3 from parsed JSON.

    Args:
        value: The parsed file.
        source: What it was read from, for messages.

    Raises:
        HeadlabError: It is not a valid mask; the message names the bad part.
    """
    if not isinstance(value, dict) or value.get("format") != MASK_FORMAT:
        raise HeadlabError(
            f'{source} is not a headlab mask: it lacks "format": "headlab-mask". Export one from '
            "the Prune page, or make one of another tool's file with headlab mask convert",
            code="mask.not_a_mask",
        )
    version_number = value.get("version")
    if not is_number(version_number) or version_number not in (1, MASK_VERSION, PLAYERS_VERSION):
        raise _unreadable_version(version_number, source)
    if version_number == PLAYERS_VERSION:
        return _mask_of(value, _read_players_grid(value, source), source)
    if version_number == 1:
        value = _as_version_2(value, source)
    check_fields(value, source)
    return _mask_of(value, _read_grid(value.get("grid"), source), source)


def _mask_of(value: JsonRecord, grid: HeadGrid, source: str) -> Mask:
    """The mask in a file's content of version 2 or 3. Raises HeadlabError that names the bad part.

    Args:
        value: The content.
        grid: Its heads or other players.
        source: What it was read from, for messages.
    """
    kept_heads = _read_kept(value.get("kept"), grid, source)
    removed_count = int((~kept_heads).sum())
    if value.get("removed", removed_count) != removed_count:
        raise HeadlabError(
            f"{source}: removed is {value['removed']}, but kept has {removed_count} zeros; correct "
            "one of them",
            code="mask.removed_mismatch",
        )
    creation_time = value.get("created")
    return Mask(
        grid,
        kept_heads,
        _require_object(value["model"], source, "model"),
        _require_object(value.get("chosen", {}), source, "chosen"),
        cast("Mapping[str, str]", value.get("versions", {})),  # as check_fields found
        None if creation_time is None else str(creation_time),
    )


def _unreadable_version(found_version: object, source: str) -> HeadlabError:
    """The error for a mask of a version that this headlab does not read."""
    known_versions = f"this headlab reads versions 1 to {PLAYERS_VERSION}"
    if is_number(found_version) and found_version > PLAYERS_VERSION:
        return HeadlabError(
            f"{source} has mask version {found_version}, which a newer headlab wrote; "
            f"{known_versions}, so update headlab to use it",
            code="mask.version_newer",
        )
    return HeadlabError(
        f"{source} has mask version {str(found_version)[:40]!r}; {known_versions}, so export the "
        "mask again",
        code="mask.version_unknown",
    )


def _as_version_2(value: JsonRecord, source: str) -> dict[str, JsonLike]:
    """The content of a version 1 file as version 2.

    In version 1 `chosen` was free-form, `evaluated` had one split, and times were unchecked.
    """
    model = value.get("model")
    choice = value.get("chosen", {})
    if not is_object(model) or not is_object(choice):
        raise HeadlabError(
            f"{source}: model and chosen must be objects", code="mask.field_not_object"
        )
    if not all(isinstance(model.get(key), str) and model[key] for key in ("name", "fingerprint")):
        raise HeadlabError(
            f"{source}: model must hold the name and the fingerprint of the model it was made for",
            code="mask.model_unnamed",
        )
    optional_fields = {key: model[key] for key in ("revision", "architecture") if key in model}
    model_fields = {}
    for key, part in model.items():
        if key not in optional_fields or (key == "revision" and NAME_OR_NULL.fits(part)):
            model_fields[key] = part
    content = {
        key: part for key, part in value.items() if key in ("format", "grid", "kept", "created")
    }
    if invalid_fields_of(content, TOP_FIELDS):  # an invalid time
        del content["created"]
    return content | {
        "model": model_fields,
        "chosen": _choice_as_version_2(dict(choice)),
        "versions": {},
    }


def _choice_as_version_2(choice: dict[str, JsonLike]) -> dict[str, JsonLike]:
    """`chosen` of a version 1 file as version 2.

    Fields that do not conform are kept under `AS_WRITTEN`, as they were. `choice` may be changed.
    """
    evaluated = choice.get("evaluated")
    split = evaluated.get("split") if is_object(evaluated) else None
    if is_object(evaluated) and isinstance(split, str):
        split_record = {key: part for key, part in evaluated.items() if key != "split"}
        choice["evaluated"] = {split: split_record}
    invalid_fields = invalid_fields_of(choice, CHOICE_FIELDS)
    if "evaluated" in choice and "evaluated" not in invalid_fields:
        try:
            check_recorded_accuracies(
                _require_object(choice["evaluated"], "", "chosen.evaluated"), ""
            )
        except HeadlabError:
            invalid_fields.append("evaluated")
    if not invalid_fields:
        return choice
    fields_as_written = {
        key: evaluated if key == "evaluated" else choice[key] for key in invalid_fields
    }
    valid_fields = {key: part for key, part in choice.items() if key not in invalid_fields}
    return valid_fields | {AS_WRITTEN: fields_as_written}


def _read_kept(value: object, grid: HeadGrid, source: str) -> Bools:
    """The heads that a file keeps, bool [head], from its field `kept`.

    Raises:
        HeadlabError: It is not {stack: [layer][head]} of 0 and 1 in the shape of the grid.
    """
    if not isinstance(value, dict):
        raise HeadlabError(
            f"{source}: kept must be an object {{stack: [layer][head]}}", code="mask.kept_malformed"
        )
    # Values that are no lists are passed over here: `unnest` refuses them.
    for layers in value.values():
        for bits in layers if isinstance(layers, list) else []:
            for bit in bits if isinstance(bits, list) else []:
                if type(bit) not in (bool, int, float) or bit not in (0, 1):
                    raise HeadlabError(
                        f"{source}: every head in kept must have one number, 0 or 1",
                        code="mask.kept_not_binary",
                    )
    return np.array(grid.unnest(value, f"{source}: kept"), dtype=bool)


def _read_grid(value: object, source: str) -> HeadGrid:
    """The heads in a file's field `grid`, whatever its stacks are called."""
    if not isinstance(value, dict) or not value or not all(map(_is_stack, value.items())):
        raise HeadlabError(
            f'{source}: grid must be an object like {{"encoder": [12, 12, 12]}}, heads per layer',
            code="mask.grid_malformed",
        )
    heads_by_stack = {name: [int(count) for count in heads] for name, heads in value.items()}
    return HeadGrid.of_heads(heads_by_stack)


def _read_players_grid(value: JsonRecord, source: str) -> HeadGrid:
    """The players of a file of version 3, after its other fields were checked.

    Raises:
        HeadlabError: Its grid has stacks of other names, or the members of its groups of neurons
            are missing or not those of the grid.
    """
    check_fields(value, source)
    counts = _read_grid(value.get("grid"), source).to_json()
    for name in counts:
        if base_and_kind(name)[0] not in STACKS:
            raise HeadlabError(
                f"{source}: {as_safe_line(name)!r} is no stack of players, like encoder, "
                "encoder-neurons or decoder-layers",
                code="mask.players_unknown",
            )
    members = value.get("members")
    grouped = {name for name in counts if base_and_kind(name)[1] == NEURONS}
    if not grouped and members is None:
        return HeadGrid.from_json(counts)
    if not isinstance(members, dict) or set(members) != grouped or not grouped:
        raise HeadlabError(
            f"{source}: members must say of every stack of neurons which group each neuron is in",
            code="mask.members_missing",
        )
    for groups_by_layer in members.values():
        _require_groups(groups_by_layer, source)
    try:
        return HeadGrid.from_json(counts, members)
    except TypeError as error:
        raise HeadlabError(
            f"{source}: members do not fit the grid: {error}", code="mask.members_mismatch"
        ) from error


def _are_whole_numbers(values: list[object]) -> bool:
    """Whether a list is of whole numbers, and not longer than a layer may have neurons."""
    return len(values) <= MAX_NEURONS and all(type(value) is int for value in values)


def _require_groups(groups_by_layer: object, source: str) -> None:
    """Raise HeadlabError for anything but lists of whole numbers, one for each layer."""
    layers = groups_by_layer if isinstance(groups_by_layer, list) else [None]
    for groups in layers:
        if not isinstance(groups, list) or not _are_whole_numbers(groups):
            raise HeadlabError(
                f"{source}: members must be lists of whole numbers, [layer][neuron], of at most "
                f"{MAX_NEURONS:,} neurons",
                code="mask.members_malformed",
            )


def _is_stack(item: tuple[str, object]) -> bool:
    """Whether an item of a grid's object is the name of a stack and the heads of its layers."""
    name, heads = item
    if not STACK_PATTERN.fullmatch(name) or not isinstance(heads, list) or not heads:
        return False
    return all(is_whole_number(count) and count <= MAX_HEADS for count in heads)
