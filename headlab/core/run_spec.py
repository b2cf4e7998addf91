"""The spec of a result: everything that its numbers depend on.

Its hash names the result's folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Self

from headlab.core.fingerprints import former_fingerprints
from headlab.core.json_types import Json, JsonFields, without_missing
from headlab.core.records import content_key

RESULT_FORMAT = 1  # of specs and results; others cannot be read
SCORE_KIND = "score"  # the kind of a spec that names none

# What a spec lacks is an empty text or None; what this version of headlab does not write, or writes
# as another type, stands in `more` as it was found.

# Metadata of a field: how it is taken from a JSON object, given the object and the field's name.
READER = "read"
TEXT = {READER: JsonFields.text}
INTEGER = {READER: JsonFields.integer}
INTEGERS = {READER: JsonFields.integers}
OBJECT = {READER: JsonFields.object}


@dataclass(frozen=True)
class SpecPart:
    """An object of JSON with fields that are known by name and type.

    They are declared in the order in which they are written.

    Attributes:
        more: Further fields.
    """

    more: Mapping[str, Json] = field(default_factory=dict, kw_only=True)

    @classmethod
    def from_json(cls, value: Mapping[str, Json]) -> Self:
        """Inverse of `to_json`.

        Any object can be read, and its JSON has the same canonical form.
        """
        json_fields = JsonFields(value)
        known_values = {}
        for known_field in fields(cls):
            if READER in known_field.metadata:
                reader = known_field.metadata[READER]
                known_values[known_field.name] = reader(json_fields, known_field.name)
        return cls(**known_values, more=json_fields.rest())

    def to_json(self) -> dict[str, Json]:
        """The fields that say something, as JSON values.

        A copy that may be changed at its first level.
        """
        known_values = {}
        for known_field in fields(self):
            if READER in known_field.metadata:
                known_values[known_field.name] = _as_json(getattr(self, known_field.name))
        return {**dict(without_missing(known_values)), **self.more}


def _as_json(
    value: str | int | tuple[int, ...] | Mapping[str, Json] | SpecPart | None,
) -> Json:
    """The value of a field as JSON; None for a part that says nothing."""
    if isinstance(value, SpecPart):
        return value.to_json() or None
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return list(value)
    return value


@dataclass(frozen=True)
class ModelSpec(SpecPart):
    """The model of a result.

    Attributes:
        name: The name that it was loaded by.
        revision: Revision of its files.
        fingerprint: sha256 of its files.
        dtype: Number format of its weights; empty for float32.
        more: Further fields, such as where inputs are padded.
    """

    name: str = field(default="", metadata=TEXT)
    revision: str = field(default="", metadata=TEXT)
    fingerprint: str = field(default="", metadata=TEXT)
    dtype: str = field(default="", metadata=TEXT)


@dataclass(frozen=True)
class TaskSpec(SpecPart):
    """The examples of a result, and how the model was given them.

    Attributes:
        name: Name of the task.
        language: Language of the examples; in the spec of a report, all languages, joined by
            commas.
        split: Split of the task; in the spec of a report, all splits, joined by commas.
        size: Number of examples.
        sizes: Numbers of examples by split, in the spec of a report.
        seed: Seed of the task, which draws its examples.
        data_hash: sha256 of the examples.
        more: Further fields: classes of the model, tokens that its tokenizer does not give.
    """

    name: str = field(default="", metadata=TEXT)
    language: str = field(default="", metadata=TEXT)
    split: str = field(default="", metadata=TEXT)
    size: int | None = field(default=None, metadata=INTEGER)
    sizes: Mapping[str, Json] | None = field(default=None, metadata=OBJECT)
    seed: int | None = field(default=None, metadata=INTEGER)
    data_hash: str = field(default="", metadata=TEXT)


@dataclass(frozen=True)
class MethodSpec(SpecPart):
    """The method of scores.

    Attributes:
        name: Key of the method.
        options: All its options by name; None if they are not known.
        version: Version of the method with these options; None for the first.
        more: Further fields.
    """

    name: str = field(default="", metadata=TEXT)
    options: Mapping[str, Json] | None = field(default=None, metadata=OBJECT)
    version: int | None = field(default=None, metadata=INTEGER)


def read_part(spec_part: type[SpecPart]) -> Mapping[str, Callable[[JsonFields, str], SpecPart]]:
    """Metadata of a field that is a part of a spec; a missing part is read as an empty one.

    Args:
        spec_part: Class of the part.
    """
    return {READER: lambda json_fields, name: spec_part.from_json(json_fields.filled_object(name))}


@dataclass(frozen=True, eq=False)
class RunSpec(Mapping[str, Any], SpecPart):  # Any: nobody has looked at items of other versions
    """Everything that the numbers of a result depend on.

    It is a mapping of its JSON as well: `spec["task"]["name"]` is what `spec.task.name` is, and it
    equals every mapping with the same items. Specs of other versions may lack any part, which is
    then empty or None, and have further ones.

    Attributes:
        format: `RESULT_FORMAT` of all results that this version reads.
        kind: Kind of the result; empty for scores.
        experiment: Name of the study, for reports.
        version: Version of the study or of the training of gates.
        model: The model.
        task: The examples.
        frequencies: Where word frequencies are from, for roles.
        judged: Numbers and hashes of examples by split, for gates.
        ablation: How a removed head is replaced, one of `headlab.core.ABLATIONS`.
        means: sha256 of the examples of which heads' means are taken, for mean ablation.
        contrasts: sha256 of the examples' counterfactuals, for counterfactual ablation.
        method: The method, for scores.
        options: Options of the study or of the training of gates.
        seed: Seed of the method, or of the resampling of a curve or report.
        order: How the scores were made that a curve removes heads by.
        removed: Numbers of removed heads of a curve, ascending.
        device: Kind of device that gave answers; empty for the processor.
        method_versions: {name in its tables: version}, for a report that uses methods of renewed
            settings.
        players: What is switched, like "heads,neurons:8"; empty for heads.
        groups: sha256 of the groups of neurons; empty where none are switched.
        more: Fields that this version of headlab does not write.
    """

    format: int | None = field(default=None, metadata=INTEGER)
    kind: str = field(default="", metadata=TEXT)
    experiment: str = field(default="", metadata=TEXT)
    version: int | None = field(default=None, metadata=INTEGER)
    model: ModelSpec = field(default_factory=ModelSpec, metadata=read_part(ModelSpec))
    task: TaskSpec = field(default_factory=TaskSpec, metadata=read_part(TaskSpec))
    frequencies: Mapping[str, Json] | None = field(default=None, metadata=OBJECT)
    judged: Mapping[str, Json] | None = field(default=None, metadata=OBJECT)
    ablation: str = field(default="", metadata=TEXT)
    means: str = field(default="", metadata=TEXT)
    contrasts: str = field(default="", metadata=TEXT)
    method: MethodSpec = field(default_factory=MethodSpec, metadata=read_part(MethodSpec))
    options: Mapping[str, Json] | None = field(default=None, metadata=OBJECT)
    seed: int | None = field(default=None, metadata=INTEGER)
    order: Mapping[str, Json] | None = field(default=None, metadata=OBJECT)
    removed: tuple[int, ...] | None = field(default=None, metadata=INTEGERS)
    device: str = field(default="", metadata=TEXT)
    method_versions: Mapping[str, Json] | None = field(default=None, metadata=OBJECT)
    players: str = field(default="", metadata=TEXT)
    groups: str = field(default="", metadata=TEXT)

    @staticmethod
    def of(value: Mapping[str, Json]) -> RunSpec:
        """The spec of a JSON object; a spec is returned as it is."""
        if isinstance(value, RunSpec):
            return value
        return RunSpec.from_json(value)

    def to_json(self) -> dict[str, Json]:
        """The fields that say something, as JSON values.

        A copy that may be changed at its first level.
        """
        return dict(self._fields)

    @cached_property
    def _fields(self) -> dict[str, Json]:
        """The items of the mapping."""
        return super().to_json()

    @cached_property
    def key(self) -> str:
        """sha256 of the JSON, which names the folder of the result.

        Raises:
            ValueError: A text has a lone surrogate, which JSON may hold but UTF-8 may not.
        """
        return content_key(self._fields)

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __or__(self, changes: Mapping[str, Json]) -> dict[str, Json]:
        """The JSON with some fields changed, as of a dict."""
        return {**self._fields, **changes}


def former_specs(spec: RunSpec) -> list[RunSpec]:
    """A spec as earlier versions of headlab would have recorded it.

    There is one for each earlier fingerprint of its model.
    """
    fingerprint = spec.model.fingerprint
    return [
        RunSpec.from_json(_replace_in_object(spec, fingerprint, earlier))
        for earlier in former_fingerprints(fingerprint)
    ]


def _replace_in_object(fields: Mapping[str, Json], text: str, replacement: str) -> dict[str, Json]:
    """A copy of a JSON object in which one text stands for another, where it is a whole value."""
    return {name: _replace_text(value, text, replacement) for name, value in fields.items()}


def _replace_text(value: Json, text: str, replacement: str) -> Json:
    """The same of any JSON value."""
    if isinstance(value, dict):
        return _replace_in_object(value, text, replacement)
    if isinstance(value, list):
        return [_replace_text(item, text, replacement) for item in value]
    return replacement if value == text else value
