"""Commands that make results again, and notes on what a command cannot express."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

LANGUAGES = "--languages"


@dataclass(frozen=True)
class Again:
    """How results are made again.

    Attributes:
        commands: Each as words, in order; may be empty.
        notes: What they leave out.
    """

    commands: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for words in self.commands:
            for word in words:
                if not isinstance(word, str):  # a file of anybody's may hold anything
                    raise TypeError(f"{word!r:.40} is no word of a command")

    @property
    def lines(self) -> tuple[str, ...]:
        """The commands, quoted for a shell."""
        return tuple(map(" ".join, self.quoted))

    @property
    def quoted(self) -> tuple[tuple[str, ...], ...]:
        """The words of each command, quoted for a shell."""
        return tuple(tuple(map(shlex.quote, words)) for words in self.commands)


def joined(parts: Sequence[Again]) -> Again:
    """All of them as one, each note once; commands that differ only in languages are merged."""
    languages_by_command: dict[tuple[str, ...], list[str]] = {}
    for words in (words for part in parts for words in part.commands):
        command, languages = _without_languages(words)
        languages_by_command.setdefault(command, []).append(languages)
    commands = [
        _with_languages(command, ",".join(dict.fromkeys(languages)))
        for command, languages in languages_by_command.items()
    ]
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    return Again(tuple(commands), tuple(notes))


def _without_languages(words: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """A command with an empty text for its languages, and the languages; empty if it names none."""
    if LANGUAGES not in words:
        return words, ""
    index = words.index(LANGUAGES) + 1
    return (*words[:index], "", *words[index + 1 :]), words[index]


def _with_languages(command: tuple[str, ...], languages: str) -> tuple[str, ...]:
    """Inverse of `_without_languages`."""
    if LANGUAGES not in command:
        return command
    index = command.index(LANGUAGES) + 1
    return (*command[:index], languages, *command[index + 1 :])
