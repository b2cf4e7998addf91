"""Types of JSON values: as they are read, before anything is known of them, and as they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

# A value that was read from JSON and has not been looked at yet.
Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
JsonObject: TypeAlias = dict[str, "Json"]

# A value that can be written as JSON: its lists may be any sequences, and its objects any mappings.
JsonLike: TypeAlias = (
    bool | int | float | str | Sequence["JsonLike"] | Mapping[str, "JsonLike"] | None
)
JsonRecord: TypeAlias = Mapping[str, "JsonLike"]
