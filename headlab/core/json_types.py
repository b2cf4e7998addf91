"""Types of JSON values, as they are read and written, and checks of what was read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

# A value that was read from JSON and has not been looked at yet.
Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
JsonObject: TypeAlias = dict[str, "Json"]

# A value that can be written as JSON: its lists may be any sequences, and its objects any mappings.
JsonLike: TypeAlias = (
    bool | int | float | str | Sequence["JsonLike"] | Mapping[str, "JsonLike"] | None
)
JsonRecord: TypeAlias = Mapping[str, "JsonLike"]


def json_at(value: object, *path: str) -> Json:
    """The value at a path of names below a JSON object; None where the path leads nowhere.

    Args:
        value: The object, or anything else, in which no path leads anywhere.
        path: Names, the outermost first.
    """
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    value_so_far: Json = value  # type: ignore[assignment] # what an object of JSON holds is JSON
    return value_so_far


def as_plain_json(value: JsonLike) -> Json:
    """The same value of lists and dicts, whatever sequences and mappings it was of."""
    if isinstance(value, Mapping):
        return as_plain_object(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_plain_json(item) for item in value]
    return value


def as_plain_object(record: JsonRecord) -> JsonObject:
    """The same object of lists and dicts; see `as_plain_json`."""
    return {name: as_plain_json(value) for name, value in record.items()}


def as_object(value: Json | Mapping[str, Json]) -> dict[str, Json]:
    """An object of JSON, from whatever mapping holds it. Raises TypeError for anything else."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r:.40} is not an object")
    return dict(value)


def as_list(value: Json) -> list[Json]:
    """A list of JSON. Raises TypeError for anything else."""
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.40} is not a list")
    return value


def as_text(value: Json) -> str:
    """A text of JSON. Raises TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not a text")
    return value


def as_number(value: Json) -> float:
    """A number of JSON, also a whole one.

    Raises:
        TypeError: For anything else, true and false among them.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r:.40} is not a number")
    return value


class JsonFields:
    """The fields of a JSON object, taken one by one; whatever has another type than expected stays.

    Args:
        value: The object; it is not changed.
    """

    def __init__(self, value: Mapping[str, Json]) -> None:
        self._left = dict(value)

    def text(self, name: str) -> str:
        """Take a text that is not empty; empty if the field is missing or is no such text."""
        value = self._left.get(name)
        if not isinstance(value, str) or not value:
            return ""
        del self._left[name]
        return value

    def integer(self, name: str) -> int | None:
        """Take a whole number; None if the field is missing or is none (true and 1.0 are none)."""
        value = self._left.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            return None
        del self._left[name]
        return value

    def integers(self, name: str) -> tuple[int, ...] | None:
        """Take a list of whole numbers; None if the field is missing or is no such list."""
        value = self._left.get(name)
        if not isinstance(value, list):
            return None
        numbers = [item for item in value if isinstance(item, int) and not isinstance(item, bool)]
        if len(numbers) < len(value):
            return None
        del self._left[name]
        return tuple(numbers)

    def object(self, name: str) -> dict[str, Json] | None:
        """Take an object; None if the field is missing or is none."""
        value = self._left.get(name)
        if not isinstance(value, dict):
            return None
        del self._left[name]
        return value

    def filled_object(self, name: str) -> dict[str, Json]:
        """Take an object that is not empty.

        An empty one if the field is missing or is no such object.
        """
        value = self._left.get(name)
        if not isinstance(value, dict) or not value:
            return {}
        del self._left[name]
        return value

    def rest(self) -> dict[str, Json]:
        """The fields that have not been taken, in their order."""
        return dict(self._left)


def without_missing(fields: Mapping[str, Json]) -> Iterator[tuple[str, Json]]:
    """The fields of an object that say something: all but None and an empty text."""
    for name, value in fields.items():
        if value is not None and value != "":
            yield name, value
