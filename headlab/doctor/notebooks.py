"""The Python of a notebook's cells, without what only IPython understands."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

PYTHON_CELLS = ("time", "timeit", "capture", "prun", "python", "python3", "debug")
"""Cell magics below which the cell is Python."""
MEASURING_LINE = re.compile(r"%(?:time|timeit|prun|memit)\s(?:\s*-\w+(?:\s+\d+)?)*\s*(.*)")
"""A line that measures a statement; lines are given without their indentation."""
IPYTHON_LINE = re.compile(
    r"(?:[%!?]"  # %matplotlib inline, !pip install, ?name
    r"|[\w.\[\]'\", ]+=\s*[%!]\s*\w"  # files = !ls
    r"|[%\w.*]+\?{1,2}\s*$)"  # name?
)
LINE_END = re.compile(r"\r\n|\r|\n")  # as Python has it; str.splitlines knows more
OPENING = "([{"
CLOSING = ")]}"
QUOTES = ("'", '"')


@dataclass(frozen=True)
class CodeCell:
    """A cell with Python.

    Attributes:
        number: Its place among all cells of the notebook, from 1.
        source: Its lines, those of IPython replaced; line numbers are those of the cell.
    """

    number: int
    source: str


class NotPython(ValueError):
    """A notebook of another language."""


def code_cells(content: bytes) -> list[CodeCell]:
    """The Python cells of a notebook, in order.

    Args:
        content: Of the file, as formats 3 and 4 have it.

    Raises:
        NotPython: The notebook is of another language, which the error names.
        ValueError: It is no notebook.
    """
    try:
        notebook = json.loads(content)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(notebook, dict):
        raise ValueError("no notebook: not a JSON object")
    language = language_of(notebook)
    if language and not language.lower().startswith(("python", "ipython")):
        raise NotPython(language)
    cells = notebook.get("cells")
    worksheets = notebook.get("worksheets")  # of format 3
    if cells is None and isinstance(worksheets, list):
        cells = []
        for worksheet in worksheets:
            if isinstance(worksheet, dict) and isinstance(worksheet.get("cells"), list):
                cells += worksheet["cells"]
    if not isinstance(cells, list):
        raise ValueError("no notebook: it has no list of cells")
    sources = ((number, source_of(cell)) for number, cell in enumerate(cells, 1))
    return [CodeCell(number, as_python(source)) for number, source in sources if source.strip()]


def language_of(notebook: Mapping[str, object]) -> str:
    """The language that a notebook names; empty where it names none."""
    metadata = notebook.get("metadata")
    if not isinstance(metadata, dict):
        return ""
    for section, name in (("language_info", "name"), ("kernelspec", "language")):
        table = metadata.get(section)
        if isinstance(table, dict) and isinstance(table.get(name), str):
            return str(table[name])
    return ""


def source_of(cell: object) -> str:
    """The source of a cell of code; empty for another."""
    if not isinstance(cell, dict) or cell.get("cell_type") != "code":
        return ""
    source = cell.get("source", cell.get("input", ""))
    if isinstance(source, list):
        return "".join(line for line in source if isinstance(line, str))
    return source if isinstance(source, str) else ""


def as_python(source: str) -> str:
    """A cell's source with `pass` in place of what only IPython understands.

    Empty for a cell of another language, such as one that begins with `%%bash`.
    """
    lines = LINE_END.split(source)
    first = next((index for index, line in enumerate(lines) if line.strip()), None)
    if first is not None and lines[first].startswith("%%"):
        if not is_python_cell(lines[first]):
            return ""
        lines[first] = "pass"
    return "\n".join(python_lines(lines))


def is_python_cell(magic: str) -> bool:
    """Whether a cell is Python below its first line, `%%time` or `%%writefile train.py`."""
    words = magic.removeprefix("%%").split()
    if not words:
        return False
    is_python_file = words[0] in ("writefile", "file") and words[-1].endswith(".py")
    return words[0] in PYTHON_CELLS or is_python_file


def python_lines(lines: list[str]) -> Iterator[str]:
    """Lines with `pass` in place of those that are IPython's, where a statement may begin.

    Args:
        lines: Of a cell.
    """
    state = LineState()
    shell_goes_on = False
    for line in lines:
        if shell_goes_on:
            shell_goes_on = line.rstrip().endswith("\\")
            yield ""
        elif state.may_begin and IPYTHON_LINE.match(line.lstrip()):
            shell_goes_on = line.rstrip().endswith("\\")
            yield without_magic(line)
        else:
            state.read(line)
            yield line


def without_magic(line: str) -> str:
    """A line of IPython as Python: what `%time` measures, else `pass`."""
    indentation = line[: len(line) - len(line.lstrip())]
    measured = MEASURING_LINE.fullmatch(line.lstrip())
    if measured is None:
        return f"{indentation}pass"
    statement = measured.group(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(statement)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return f"{indentation}pass"
    return f"{indentation}{statement or 'pass'}"


@dataclass
class LineState:
    """What is open at the end of the lines that were read.

    Attributes:
        brackets: How many brackets are.
        quote: The quotation marks of a text that goes on, empty for none.
        continues: Whether a backslash ended the last line.
    """

    brackets: int = 0
    quote: str = ""
    continues: bool = False

    @property
    def may_begin(self) -> bool:
        """Whether a statement may begin on the next line."""
        return not (self.brackets or self.quote or self.continues)

    def read(self, line: str) -> None:
        """Read a line, to its end or to a comment."""
        index = 0
        while index < len(line):
            character = line[index]
            if character == "\\":
                index += 2
                continue
            if self.quote:
                if line.startswith(self.quote, index):
                    index += len(self.quote)
                    self.quote = ""
                    continue
            elif character == "#":
                break
            elif character in QUOTES:
                is_triple = line.startswith(3 * character, index)
                self.quote = 3 * character if is_triple else character
                index += len(self.quote)
                continue
            elif character in OPENING:
                self.brackets += 1
            elif character in CLOSING:
                self.brackets = max(0, self.brackets - 1)
            index += 1
        self.continues = index > len(line)
        if len(self.quote) == 1 and not self.continues:
            self.quote = ""  # a text in single quotation marks ends with its line
