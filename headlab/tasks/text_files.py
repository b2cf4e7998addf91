"""Text files as people have them: from bytes to text to lines.

A file that holds no text is described.
"""

from __future__ import annotations

import codecs
import os
import stat
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headlab.core import HeadlabError

FileName = Path | str  # the name of a file, in its errors

# Unicode's categories of controls, format characters and spaces.
INVISIBLE = ("Cc", "Cf", "Zs", "Zl", "Zp")
# Byte-order marks of text that is not UTF-8, with the codec that reads them; UTF-32's begins with
# that of UTF-16.
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True)
class ForeignFormat:
    """A format of files that hold no text.

    Attributes:
        signature: The bytes that it begins with.
        name: With its article.
        advice: What to do with such a file.
    """

    signature: bytes
    name: str
    advice: str


UNPACK = "unpack it and give the file inside"
AS_TEXT = "write its rows as csv or jsonl and give that"
WORKBOOK = ForeignFormat(b"PK\x03\x04", "an Excel workbook", "save it in Excel as CSV UTF-8")
FOREIGN_FORMATS = (
    ForeignFormat(b"PK\x03\x04", "a zip archive", UNPACK),
    ForeignFormat(b"\x1f\x8b", "a gzip file", UNPACK),
    ForeignFormat(b"\xfd7zXZ\x00", "an xz file", UNPACK),
    ForeignFormat(b"\x28\xb5\x2f\xfd", "a zstd file", UNPACK),
    ForeignFormat(b"7z\xbc\xaf\x27\x1c", "a 7z archive", UNPACK),
    ForeignFormat(b"BZh91AY&SY", "a bzip2 file", UNPACK),
    ForeignFormat(b"PAR1", "a Parquet file", AS_TEXT),
    ForeignFormat(b"ARROW1\x00\x00", "an Arrow file", AS_TEXT),
    ForeignFormat(b"\xff\xff\xff\xff", "an Arrow stream", AS_TEXT),
    ForeignFormat(b"Obj\x01", "an Avro file", AS_TEXT),
    ForeignFormat(b"SQLite format 3\x00", "an SQLite database", AS_TEXT),
    ForeignFormat(b"\x93NUMPY", "a NumPy file", AS_TEXT),
    ForeignFormat(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Excel workbook", WORKBOOK.advice),
    ForeignFormat(b"%PDF-", "a PDF file", "copy its text into a text file"),
    ForeignFormat(
        b"version https://git-lfs.github.com/spec/",
        "a pointer of Git LFS and not the file itself",
        "run git lfs pull in its repository",
    ),
)


def read_lines(path: Path) -> list[str]:
    """Lines of a text file. Raises HeadlabError as `read_text` does."""
    return lines_of(read_text(path))


def lines_of(text: str) -> list[str]:
    """Lines of a text, without their ends.

    Lines end as on Linux, as on Windows, as an old Mac ended them where no line ends otherwise, and
    as an editor leaves them that ended the lines of Windows once more.
    """
    # not splitlines: a sentence may contain a form feed or a Unicode line separator
    while "\r\n" in text:
        text = text.replace("\r\n", "\n")
    if "\n" not in text:
        text = text.replace("\r", "\n")
    return text.removesuffix("\n").split("\n")


def paragraphs(text: str) -> Iterator[list[tuple[int, str]]]:
    """The lines of each paragraph, numbered from 1; blank lines separate paragraphs."""
    paragraph: list[tuple[int, str]] = []
    for number, line in enumerate([*lines_of(text), ""], start=1):
        if not is_blank(line):
            paragraph.append((number, line))
        elif paragraph:
            yield paragraph
            paragraph = []


def is_blank(line: str) -> bool:
    """Whether a line is empty, or has only spaces and tabs."""
    return not line or line.isspace()


def is_missing(path: Path) -> bool:
    """Whether nothing is at a path.

    A link to nowhere or a folder is something, which reading it refuses.
    """
    return not os.path.lexists(path)


def is_visible(text: str) -> bool:
    """Whether a text has a character that is neither a space nor a control or format character."""
    return any(unicodedata.category(character) not in INVISIBLE for character in text)


def read_text(path: Path) -> str:
    """The text of a file, line ends unchanged.

    Raises HeadlabError for a file that cannot be read, for one that holds no text, and as
    `decode_text` does.
    """
    try:
        # Reading a pipe might never end.
        if not path.is_dir() and not stat.S_ISREG(path.stat().st_mode):
            raise HeadlabError(
                f"cannot read {path}, which is a pipe or a device; give a file",
                code="data.not_a_file",
            )
        data = path.read_bytes()
    except OSError as error:
        raise HeadlabError(
            f"cannot read {path} ({error.strerror}); check the data folder", code="data.unreadable"
        ) from error
    except ValueError as error:  # a NUL, or half of a surrogate pair, in its name
        raise HeadlabError(
            f"cannot read {str(path)!r:.200}, which no file can be called ({error})",
            code="data.unreadable",
        ) from error
    text = decode_text(data, path)
    require_no_nul(text, path, code="data.not_text")
    return text


def decode_text(data: bytes, file_name: FileName) -> str:
    """Bytes as text, line ends unchanged.

    UTF-8, or UTF-16 and UTF-32 where a byte-order mark says so.

    Raises HeadlabError naming `where` for a format that holds no text, and line and byte of what is
    not UTF-8.
    """
    foreign = foreign_format(data)
    if foreign is not None:
        raise HeadlabError(f"{file_name} is {foreign.name}; {foreign.advice}", code="data.not_text")
    codec = next((codec for mark, codec in BYTE_ORDER_MARKS if data.startswith(mark)), "utf-8-sig")
    try:
        return data.decode(codec)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = error.start - data.rfind(b"\n", 0, error.start)
        as_written = ""
        if codec != "utf-8-sig":
            as_written = f", nor {codec.upper()} as its first bytes say"
        raise HeadlabError(
            f"{file_name}, line {line}, byte {byte}: not UTF-8{as_written}; save the file as "
            "UTF-8 (in Excel as CSV UTF-8)",
            code="data.not_utf8",
        ) from error


def foreign_format(data: bytes) -> ForeignFormat | None:
    """The format of a file that holds no text, by its first bytes; None for any other."""
    if data.startswith(WORKBOOK.signature) and b"xl/workbook" in data:
        return WORKBOOK
    for foreign in FOREIGN_FORMATS:
        if data.startswith(foreign.signature):
            return foreign
    return None


def require_no_nul(text: str, file_name: FileName, *, code: str) -> None:
    """Raise HeadlabError naming `file_name` and line of a NUL character.

    Args:
        code: Of that error.
    """
    if "\0" not in text:
        return
    line = text.count("\n", 0, text.index("\0")) + 1
    guess = ""
    if 4 * text.count("\0") > len(text):
        guess = " (it looks like UTF-16)"
    raise HeadlabError(
        f"{file_name}, line {line}: a NUL character, which no text has{guess}; save the file as "
        "text in UTF-8",
        code=code,
    )
