"""All files of a path examined: findings, what was not read, and why."""

from __future__ import annotations

import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headlab.core import HeadlabError, JsonLike, file_mode, reason_of, size_text
from headlab.doctor.advice import ADVICE
from headlab.doctor.checkpoints import pruned_layers
from headlab.doctor.files import MAX_BYTES, CandidateFile, Walk, kind_of
from headlab.doctor.notebooks import NotPython, code_cells
from headlab.doctor.python_source import ParseError, source_findings

DEFAULT_MAX_FILES = 100_000
KINDS = ("Python", "notebook", "config")
OTHER_LANGUAGE = "notebooks of other languages"
MAX_REASON = 120  # letters of a reason
TOO_DEEP = "nested too deeply for Python's parser"


@dataclass(frozen=True)
class Finding:
    """A place that uses what transformers 5 lacks.

    Attributes:
        path: Of the file.
        line: Of the file, or of the cell.
        cell: Of a notebook, from 1; None elsewhere.
        kind: Key of `ADVICE`.
        found: What stands there, in short.
    """

    path: Path
    line: int
    cell: int | None
    kind: str
    found: str

    @property
    def place(self) -> str:
        """File and line, or file, cell and line."""
        return place_words(self.path, self.cell, self.line)

    def record(self) -> dict[str, str | int | None]:
        """The finding as JSON, with its advice."""
        advice = ADVICE[self.kind]
        return {
            "file": str(self.path),
            "line": self.line,
            "cell": self.cell,
            "kind": self.kind,
            "found": self.found,
            "does": advice.does,
            "instead": advice.instead,
        }


@dataclass(frozen=True)
class UnreadFile:
    """A file, a cell or a folder that could not be read.

    Attributes:
        path: Of the file or folder.
        line: Of the file or cell where reading ended; None where there is none.
        cell: Of a notebook, from 1; None for all of a file.
        reason: In words.
    """

    path: Path
    line: int | None
    cell: int | None
    reason: str

    @property
    def place(self) -> str:
        """File, cell and line, as far as they are known."""
        return place_words(self.path, self.cell, self.line)

    def record(self) -> dict[str, str | int | None]:
        """The place and the reason as JSON."""
        return {
            "file": str(self.path),
            "line": self.line,
            "cell": self.cell,
            "reason": self.reason,
        }


@dataclass
class Examination:
    """What was found in a path, and what was not looked at.

    Attributes:
        path: The path that was examined.
        findings: In the order of files and lines.
        unread: What could not be read.
        files: Number of files read, by their kind.
        skipped: Number of files and folders left out, by the reason.
        max_files: Number of files after which it ends.
        is_complete: Whether it did not end there.
    """

    path: Path
    max_files: int = DEFAULT_MAX_FILES
    findings: list[Finding] = field(default_factory=list)
    unread: list[UnreadFile] = field(default_factory=list)
    files: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    is_complete: bool = True

    @property
    def file_count(self) -> int:
        """Number of files read."""
        return sum(self.files.values())

    @property
    def unread_files(self) -> int:
        """Number of files of which something could not be read, and of folders."""
        return len({unread.path for unread in self.unread})

    def record(self) -> dict[str, JsonLike]:
        """All of it as JSON."""
        return {
            "path": str(self.path),
            "complete": self.is_complete,
            "read": {kind: self.files[kind] for kind in KINDS},
            "skipped": dict(sorted(self.skipped.items())),
            "unread": [unread.record() for unread in self.unread],
            "findings": [finding.record() for finding in self.findings],
        }

    def examine_file(self, candidate: CandidateFile) -> None:
        """Read a file and note what is found, or why it could not be read."""
        path = candidate.path
        try:
            with path.open("rb") as file:
                content = file.read(MAX_BYTES[candidate.kind])
            findings = list(self._findings_in(candidate, content))
        except NotPython:
            self.skipped[OTHER_LANGUAGE] += 1
            return
        except SyntaxError as error:
            self.unread.append(UnreadFile(path, error.lineno, None, syntax_words(error)))
            return
        except (RecursionError, MemoryError):
            self.unread.append(UnreadFile(path, None, None, TOO_DEEP))
            return
        except (OSError, ValueError) as error:
            reason = one_line(reason_of(error))
            self.unread.append(UnreadFile(path, None, None, reason))
            return
        self.files[candidate.kind] += 1
        self.findings += findings

    def _findings_in(self, candidate: CandidateFile, content: bytes) -> Iterator[Finding]:
        """The findings of a file."""
        path = candidate.path
        if candidate.kind == "config":
            for layers in pruned_layers(content):
                yield Finding(path, layers.line, None, "checkpoint", layers.words)
        elif candidate.kind == "Python":
            for finding in source_findings(content):
                yield Finding(path, finding.line, None, finding.kind, finding.found)
        else:
            yield from self._findings_in_cells(path, content)

    def _findings_in_cells(self, path: Path, content: bytes) -> Iterator[Finding]:
        """The findings of a notebook; a cell that cannot be parsed is noted, the others are read."""
        for cell in code_cells(content):
            try:
                findings = source_findings(cell.source)
            except ParseError as error:
                line = error.lineno if isinstance(error, SyntaxError) else None
                words = syntax_words(error) if isinstance(error, SyntaxError) else TOO_DEEP
                self.unread.append(UnreadFile(path, line, cell.number, words))
                continue
            for finding in findings:
                yield Finding(path, finding.line, cell.number, finding.kind, finding.found)


def examine(
    path: Path,
    *,
    max_files: int = DEFAULT_MAX_FILES,
    report: Callable[[int, Path], None] | None = None,
) -> Examination:
    """Find what transformers 5 lacks in Python files, notebooks and checkpoints.

    Nothing of what is read is run or imported.

    Args:
        path: A file, or a folder with files in it and below it.
        max_files: Number of files after which it ends.
        report: Called after every file with the number of files read, and its path.

    Raises:
        HeadlabError: There is nothing at the path, or nothing that can be examined.
    """
    examination = Examination(path, max_files)
    mode = file_mode(path)
    if mode is None:
        raise HeadlabError(
            f"there is no file or folder {path}; check the path", code="doctor.path_missing"
        )
    if not stat.S_ISDIR(mode):
        _examine_one(examination, mode)
        return examination
    walk = Walk(path)
    examination.skipped = walk.skipped
    for number, candidate in enumerate(walk):
        if number == max_files:
            examination.is_complete = False
            break
        examination.examine_file(candidate)
        if report is not None:
            report(examination.file_count, candidate.path)
    for folder in walk.unread:
        examination.unread.append(UnreadFile(folder.path, None, None, folder.reason))
    if not examination.files and not examination.unread:
        skipped = ", ".join(f"{reason} ({count:,})" for reason, count in walk.skipped.items())
        raise HeadlabError(
            f"{path} holds no Python file, notebook or config.json to examine"
            + (f" (left out: {skipped})" if skipped else "")
            + "; name the folder of your code or of a checkpoint",
            code="doctor.nothing_to_examine",
        )
    return examination


def _examine_one(examination: Examination, mode: int) -> None:
    """Examine a file that a user named, whatever it is called."""
    path = examination.path
    kind = "config" if path.suffix.lower() == ".json" else kind_of(path.name)
    if not kind or not stat.S_ISREG(mode):
        raise HeadlabError(
            f"{path} is no Python file (.py), notebook (.ipynb) or config.json; name one of these, "
            "or a folder",
            code="doctor.unknown_kind",
        )
    if path.stat().st_size > MAX_BYTES[kind]:
        raise HeadlabError(
            f"{path} is larger than {size_text(MAX_BYTES[kind])}, the most that is read of such a "
            "file; split it",
            code="doctor.too_large",
        )
    examination.examine_file(CandidateFile(path, kind))
    if not examination.files:
        reason = "a notebook of another language"
        if examination.unread:
            unread = examination.unread[0]
            where = "" if unread.line is None else f"line {unread.line}: "
            reason = where + unread.reason
        raise HeadlabError(
            f"{path} cannot be examined ({reason}); mend it, or name another file",
            code="doctor.unreadable",
        )


def place_words(path: Path, cell: int | None, line: int | None) -> str:
    """A place as editors read it, `train.py:12`, or with the cell of a notebook."""
    if cell is None:
        return str(path) if line is None else f"{path}:{line}"
    line_words = "" if line is None else f", line {line}"
    return f"{path}, cell {cell}{line_words}"


def syntax_words(error: SyntaxError) -> str:
    """What Python's parser says, on one line; a newer Python may say otherwise."""
    version = ".".join(map(str, sys.version_info[:2]))
    return one_line(f"Python {version} cannot parse it: {error.msg or 'invalid syntax'}")


def one_line(text: str) -> str:
    """A text as one line that is not too long, without control characters."""
    line = "".join(letter if letter.isprintable() else " " for letter in text[:MAX_REASON])
    return line.strip()
