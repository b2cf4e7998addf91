"""Checkpoints whose config says that transformers 4 pruned heads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

CONFIG_NAME = "config.json"
PRUNED_HEADS = "pruned_heads"


@dataclass(frozen=True)
class PrunedLayers:
    """The pruned heads of a config, or of a config within it.

    Attributes:
        path: Names of the fields that lead to them, such as `encoder.pruned_heads`.
        line: Of the file, from 1, where the name stands.
        heads: How many heads are listed.
        layers: In how many layers.
    """

    path: str
    line: int
    heads: int
    layers: int

    @property
    def words(self) -> str:
        """What was found, in short."""
        heads = f"{self.heads} head{'s' * (self.heads != 1)}"
        return f"{self.path}: {heads} in {self.layers} layer{'s' * (self.layers != 1)}"


def pruned_layers(content: bytes) -> list[PrunedLayers]:
    """What a config.json says of pruned heads; nothing where no layer lists any.

    Args:
        content: Of the file.

    Raises:
        ValueError: It is not valid JSON.
    """
    try:
        config = json.loads(content)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    lines = lines_with_the_name(content)
    tables = list(_tables(config))
    found = []
    for index, (path, table) in enumerate(tables):
        counts = [len(heads) for heads in table.values() if isinstance(heads, list) and heads]
        if counts:
            line = lines[index] if len(lines) == len(tables) else 1
            found.append(PrunedLayers(path, line, sum(counts), len(counts)))
    return found


def lines_with_the_name(content: bytes) -> list[int]:
    """The lines of a file in which the name stands, in order."""
    name = f'"{PRUNED_HEADS}"'.encode()
    numbers = []
    for number, line in enumerate(content.split(b"\n"), 1):
        numbers += [number] * line.count(name)
    return numbers


def _tables(config: object) -> Iterator[tuple[str, dict[str, object]]]:
    """Path and table of every `pruned_heads`, in the order of the file."""
    unvisited: list[tuple[str, object]] = [("", config)]
    while unvisited:
        path, value = unvisited.pop()
        if not isinstance(value, dict):
            continue
        if path.rpartition(".")[2] == PRUNED_HEADS:
            yield path, value
            continue
        fields = [(f"{path}.{name}".lstrip("."), field) for name, field in value.items()]
        unvisited += reversed(fields)
