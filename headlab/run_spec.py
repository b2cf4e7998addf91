"""The spec of a result: everything that its numbers depend on, whose hash names its folder in the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from headlab.json_types import Json, JsonFields, without_missing
from headlab.records import content_key

FORMAT = 1  # of specs and results; others cannot be read
SCORE = "score"  # the kind of a spec that names none

# Parts of a spec. What a spec lacks is an empty text or None; what this version of headlab does not write, or writes
# as another type, stands in `more` as it was found.


@dataclass(frozen=True)
class ModelSpec:
    """The model of a result.

    Attributes:
        name: As it was loaded by.
        revision: Of its files.
        fingerprint: sha256 of its files.
        dtype: Of its weights; empty for float32.
        more: Further fields, such as where inputs are padded.
    """

    name: str = ""
    revision: str = ""
    fingerprint: str = ""
    dtype: str = ""
    more: Mapping[str, Json] = field(default_factory=dict)

    @staticmethod
    def from_json(value: Mapping[str, Json]) -> ModelSpec:
        """Inverse of `to_json`."""
        fields = JsonFields(value)
        return ModelSpec(
            name=fields.text("name"),
            revision=fields.text("revision"),
            fingerprint=fields.text("fingerprint"),
            dtype=fields.text("dtype"),
            more=fields.rest(),
        )

    def to_json(self) -> dict[str, Json]:
        """The fields that are known, as JSON values."""
        fields: dict[str, Json] = {
            "name": self.name,
            "revision": self.revision,
            "fingerprint": self.fingerprint,
            "dtype": self.dtype,
        }
        return {**dict(without_missing(fields)), **self.more}


@dataclass(frozen=True)
class TaskSpec:
    """The examples of a result, and how the model was given them.

    Attributes:
        name: Of the task.
        language: Of the examples; of a report, those of all languages, joined by commas.
        split: Of the task; of a report, those of all splits, joined by commas.
        size: Number of examples.
        sizes: Of a report, the numbers of examples by split.
        seed: Of the task, which draws its examples.
        data_hash: sha256 of the examples.
        more: Further fields: classes of the model, tokens that its tokenizer does not give.
    """

    name: str = ""
    language: str = ""
    split: str = ""
    size: int | None = None
    sizes: Mapping[str, Json] | None = None
    seed: int | None = None
    data_hash: str = ""
    more: Mapping[str, Json] = field(default_factory=dict)

    @staticmethod
    def from_json(value: Mapping[str, Json]) -> TaskSpec:
        """Inverse of `to_json`."""
        fields = JsonFields(value)
        return TaskSpec(
            name=fields.text("name"),
            language=fields.text("language"),
            split=fields.text("split"),
            size=fields.integer("size"),
            sizes=fields.object("sizes"),
            seed=fields.integer("seed"),
            data_hash=fields.text("data_hash"),
            more=fields.rest(),
        )

    def to_json(self) -> dict[str, Json]:
        """The fields that are known, as JSON values."""
        fields: dict[str, Json] = {
            "name": self.name,
            "language": self.language,
            "split": self.split,
            "size": self.size,
            "sizes": None if self.sizes is None else dict(self.sizes),
            "seed": self.seed,
            "data_hash": self.data_hash,
        }
        return {**dict(without_missing(fields)), **self.more}


@dataclass(frozen=True)
class MethodSpec:
    """The method of scores.

    Attributes:
        name: Its key.
        options: All its options by name; None if they are not known.
        version: Of the method with these options; None for the first.
        more: Further fields.
    """

    name: str = ""
    options: Mapping[str, Json] | None = None
    version: int | None = None
    more: Mapping[str, Json] = field(default_factory=dict)

    @staticmethod
    def from_json(value: Mapping[str, Json]) -> MethodSpec:
        """Inverse of `to_json`."""
        fields = JsonFields(value)
        return MethodSpec(
            name=fields.text("name"),
            options=fields.object("options"),
            version=fields.integer("version"),
            more=fields.rest(),
        )

    def to_json(self) -> dict[str, Json]:
        """The fields that are known, as JSON values."""
        fields: dict[str, Json] = {
            "name": self.name,
            "options": None if self.options is None else dict(self.options),
            "version": self.version,
        }
        return {**dict(without_missing(fields)), **self.more}


@dataclass(frozen=True, eq=False)
class RunSpec(Mapping[str, Any]):  # Any: what an item of another version is, nobody has looked at
    """Everything that the numbers of a result depend on.

    It is a mapping of its JSON as well: `spec["task"]["name"]` is what `spec.task.name` is, and it equals every
    mapping with the same items. Specs of other versions may lack any part, which is then empty or None, and have
    further ones.

    Attributes:
        model: The model.
        task: The examples.
        ablation: How a removed head is replaced, "zero" or "mean".
        seed: Of the method, or of the resampling of a curve or report.
        format: `FORMAT` of all results that this version reads.
        kind: Of the result; empty for scores.
        method: The method, of scores.
        means: sha256 of the examples of which heads' means are taken, of mean ablation.
        experiment: Name of the study, of reports.
        version: Of the study or of the training of gates.
        options: Of the study or of the training of gates.
        order: How the scores were made that a curve removes heads by.
        removed: Numbers of removed heads of a curve, ascending.
        judged: Numbers and hashes of examples by split, of gates.
        frequencies: Where word frequencies are from, of roles.
        device: Kind of device of answers; empty for the processor.
        method_versions: Of a report that uses methods of renewed settings, {name in its tables: version}.
        more: Fields that this version of headlab does not write.
    """

    model: ModelSpec = field(default_factory=ModelSpec)
    task: TaskSpec = field(default_factory=TaskSpec)
    ablation: str = ""
    seed: int | None = None
    format: int | None = None
    kind: str = ""
    method: MethodSpec = field(default_factory=MethodSpec)
    means: str = ""
    experiment: str = ""
    version: int | None = None
    options: Mapping[str, Json] | None = None
    order: Mapping[str, Json] | None = None
    removed: tuple[int, ...] | None = None
    judged: Mapping[str, Json] | None = None
    frequencies: Mapping[str, Json] | None = None
    device: str = ""
    method_versions: Mapping[str, Json] | None = None
    more: Mapping[str, Json] = field(default_factory=dict)

    @staticmethod
    def of(value: Mapping[str, Json]) -> RunSpec:
        """A spec as it is, or the spec of a JSON object: `from_json` where that is still to be done."""
        return value if isinstance(value, RunSpec) else RunSpec.from_json(value)

    @staticmethod
    def from_json(value: Mapping[str, Json]) -> RunSpec:
        """Inverse of `to_json`: any object is a spec, and its JSON has the same canonical form."""
        fields = JsonFields(value)
        return RunSpec(
            format=fields.integer("format"),
            kind=fields.text("kind"),
            experiment=fields.text("experiment"),
            version=fields.integer("version"),
            model=ModelSpec.from_json(fields.filled_object("model")),
            task=TaskSpec.from_json(fields.filled_object("task")),
            frequencies=fields.object("frequencies"),
            judged=fields.object("judged"),
            ablation=fields.text("ablation"),
            means=fields.text("means"),
            method=MethodSpec.from_json(fields.filled_object("method")),
            options=fields.object("options"),
            seed=fields.integer("seed"),
            order=fields.object("order"),
            removed=fields.integers("removed"),
            device=fields.text("device"),
            method_versions=fields.object("method_versions"),
            more=fields.rest(),
        )

    def to_json(self) -> dict[str, Json]:
        """The fields that are known, as JSON values; a copy that may be changed at its first level."""
        return dict(self._fields)

    @cached_property
    def _fields(self) -> dict[str, Json]:
        """The items of the mapping."""
        fields: dict[str, Json] = {
            "format": self.format,
            "kind": self.kind,
            "experiment": self.experiment,
            "version": self.version,
            "model": self.model.to_json() or None,
            "task": self.task.to_json() or None,
            "frequencies": _copied(self.frequencies),
            "judged": _copied(self.judged),
            "ablation": self.ablation,
            "means": self.means,
            "method": self.method.to_json() or None,
            "options": _copied(self.options),
            "seed": self.seed,
            "order": _copied(self.order),
            "removed": None if self.removed is None else list(self.removed),
            "device": self.device,
            "method_versions": _copied(self.method_versions),
        }
        return {**dict(without_missing(fields)), **self.more}

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


def _copied(fields: Mapping[str, Json] | None) -> dict[str, Json] | None:
    return None if fields is None else dict(fields)
