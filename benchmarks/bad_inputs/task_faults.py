"""What can be wrong with a task: bytes of a file, a field, what is in a file's place, a declaration."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping

from bad_inputs.task_samples import DECLARATION, DECLARED_SAMPLES
from headlab.tasks.declared import COLUMNS, KEYS

Fault = Callable[[bytes], bytes]

# The bytes of a file.


def encode_in(codec: str) -> Fault:
    """Write the text in another encoding, without the letters that it lacks."""
    return lambda data: data.decode().replace("w5", "schön").encode(codec, "ignore")


def replace_bytes(old_bytes: bytes, new_bytes: bytes, times: int = -1) -> Fault:
    """Replace some bytes by others."""
    return lambda data: data.replace(old_bytes, new_bytes, times)


def change_lines(change: Callable[[list[bytes]], list[bytes]]) -> Fault:
    """Change the list of lines."""
    return lambda data: b"\n".join(change(data.split(b"\n")))


def insert_line(line: bytes, index: int) -> Fault:
    """Add a line."""
    return change_lines(lambda lines: [*lines[:index], line, *lines[index:]])


def zip_as(name: str) -> Fault:
    """Put the file into a zip archive, under a name."""

    def zip_archive(data: bytes) -> bytes:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr(zipfile.ZipInfo(name), data)
        return buffer.getvalue()

    return zip_archive


def put_before(prefix: bytes) -> Fault:
    """Put bytes before the file."""
    return lambda data: prefix + data


def put_behind(suffix: bytes) -> Fault:
    """Put bytes behind the file."""
    return lambda data: data + suffix


def as_json_list(indent: int | None) -> Fault:
    """Turn lines of JSON into one list, and other files into a list of their lines."""

    def as_list(data: bytes) -> bytes:
        lines = data.decode().splitlines()
        try:
            values = [json.loads(line) for line in lines]
        except ValueError:
            values = lines
        return json.dumps(values, indent=indent).encode()

    return as_list


WIDE_TEXT = b"w4 " * 50_000
FILE_FAULTS: Mapping[str, Fault] = {
    **{
        f"saved as {codec}": encode_in(codec)
        for codec in (
            "utf-8-sig",
            "utf-16",
            "utf-16-le",
            "utf-16-be",
            "utf-32",
            "utf-32-le",
            "cp1252",
            "latin-1",
            "cp437",
            "shift_jis",
            "utf-7",
            "mac_roman",
            "cp500",
        )
    },
    "two byte-order marks": put_before(b"\xef\xbb\xbf\xef\xbb\xbf"),
    "half a byte-order mark": put_before(b"\xef\xbb"),
    "UTF-16's mark before UTF-8": put_before(b"\xff\xfe"),
    "UTF-32's mark before UTF-8": put_before(b"\xff\xfe\0\0"),
    "line ends of an old Mac": replace_bytes(b"\n", b"\r"),
    "line ends of Windows": replace_bytes(b"\n", b"\r\n"),
    "line ends of Windows, twice": replace_bytes(b"\n", b"\r\r\n"),
    "mixed line ends": replace_bytes(b"\n", b"\r\n", 2),
    "one line end of an old Mac": replace_bytes(b"\n", b"\r", 1),
    "Unicode's line separator": replace_bytes(b"\n", "\u2028".encode()),
    "no line end at the end": lambda data: data.rstrip(b"\n"),
    "blank lines at the end": put_behind(b"\n\n\n"),
    "a line of spaces at the end": put_behind(b"   \n"),
    "a line of tabs at the end": put_behind(b"\t\t\n"),
    "a line of commas at the end": put_behind(b",,,\n"),
    "a blank line first": put_before(b"\n"),
    "a line of spaces first": put_before(b"  \n"),
    "a blank line inside": insert_line(b"", 2),
    "a line of spaces inside": insert_line(b"  \t ", 2),
    "a comment first": put_before(b"# made by hand\n"),
    "a comment inside": insert_line(b"# made by hand", 2),
    "a line for Excel": put_before(b"sep=;\n"),
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "a zip archive": zip_as("x.csv"),
    "an Excel workbook": zip_as("xl/workbook.xml"),
    "an old Excel workbook": put_before(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
    "Parquet": put_before(b"PAR1"),
    "Arrow": put_before(b"ARROW1\0\0"),
    "Avro": put_before(b"Obj\x01"),
    "SQLite": put_before(b"SQLite format 3\0"),
    "a pickle": put_before(b"\x80\x04\x95"),
    "NumPy": put_before(b"\x93NUMPY\x01\0"),
    "PDF": put_before(b"%PDF-1.7\n"),
    "a web page": lambda data: b"<!DOCTYPE html>\n<html><body>" + data + b"</body></html>",
    "a pointer of Git LFS": lambda data: (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"
    ),
    "nothing": lambda data: b"",
    "spaces alone": lambda data: b"  \n \n",
    "a line end alone": lambda data: b"\n",
    "a byte-order mark alone": lambda data: b"\xef\xbb\xbf",
    "NULs alone": lambda data: bytes(64),
    "the first line alone": lambda data: data.split(b"\n")[0] + b"\n",
    "the first line alone, without its end": lambda data: data.split(b"\n")[0],
    "no first line": change_lines(lambda lines: lines[1:]),
    "the first line twice": change_lines(lambda lines: [lines[0], *lines]),
    "the first line once more at the end": lambda data: data + data.split(b"\n")[0] + b"\n",
    "all of it twice": lambda data: data * 2,
    "lines in reverse": change_lines(lambda lines: lines[::-1]),
    "every line twice": change_lines(lambda lines: [line for line in lines for _ in range(2)]),
    "cut in the middle": lambda data: data[: len(data) // 2],
    "cut before its last bytes": lambda data: data[:-4],
    "a separator behind the first line": replace_bytes(b"\n", b",\n", 1),
    "a comma behind every line": replace_bytes(b"\n", b",\n"),
    "a tab behind every line": replace_bytes(b"\n", b"\t\n"),
    "a space behind every line": replace_bytes(b"\n", b" \n"),
    "a space before every line": replace_bytes(b"\n", b"\n "),
    "semicolons": lambda data: data.replace(b",", b";").replace(b"\t", b";"),
    "commas": replace_bytes(b"\t", b","),
    "tabs": replace_bytes(b",", b"\t"),
    "vertical bars": lambda data: data.replace(b",", b"|").replace(b"\t", b"|"),
    "spaces for tabs": replace_bytes(b"\t", b" "),
    "two tabs for one": replace_bytes(b"\t", b"\t\t"),
    "a space behind every comma": replace_bytes(b",", b", "),
    "upper case": bytes.upper,
    "quotes around everything": lambda data: b'"' + data.replace(b'"', b'""') + b'"',
    "a quote that is not closed": replace_bytes(b"w5", b'"w5', 1),
    "a quote at the start of a field": replace_bytes(b"w4", b'"w4', 1),
    "a quote inside a field": replace_bytes(b"w5", b'w"5'),
    "typographic quotes": replace_bytes(b'"', "“".encode()),
    "single quotes": replace_bytes(b'"', b"'"),
    "a backslash before quotes": replace_bytes(b'"', b'\\"'),
    "a NUL in a text": replace_bytes(b"w5", b"w\0 5", 1),
    "a NUL at the end": put_behind(b"\0"),
    "a control character": replace_bytes(b"w5", b"w\x1b[2J5"),
    "a bell alone for a text": replace_bytes(b"w5", b"\x07"),
    "half of a surrogate pair": replace_bytes(b"w5", b"\xed\xa0\x80", 1),
    "half of a surrogate pair, escaped": replace_bytes(b"w5", b"\\ud800", 1),
    "a byte of no encoding": replace_bytes(b"w5", b"\xff", 1),
    "a zero-width space for a text": replace_bytes(b"w5", "\u200b".encode()),
    "a no-break space in a text": replace_bytes(b"w4 w5", "w4\u00a0w5".encode()),
    "text from right to left": replace_bytes(b"w5", "\u202eשלום".encode()),
    "accents alone": replace_bytes(b"w5", "\u0301".encode()),
    "a field of 150,000 characters": replace_bytes(b"w5", WIDE_TEXT, 1),
    "a field of 2,000,000 characters": replace_bytes(b"w5", b"w" * 2_000_000, 1),
    "a line of 150,000 separators": put_behind(b"\t" * 75_000 + b"," * 75_000 + b"\n"),
    "a million characters without a line end": put_behind(b"x" * 1_000_000),
    "one JSON list": as_json_list(None),
    "one JSON list over lines": as_json_list(1),
    "a comma behind the last field of JSON": replace_bytes(b"}", b",}"),
    "a comma behind every object of JSON": replace_bytes(b"}\n", b"},\n"),
    "a comment in JSON": insert_line(b"// made by hand", 1),
    "objects over lines": replace_bytes(b", ", b",\n "),
    "single quotes in JSON": replace_bytes(b'"', b"'"),
    "NaN": put_behind(b"NaN\n"),
    "a number of 5,000 digits": put_behind(b"9" * 5000 + b"\n"),
    "brackets nested deep": put_behind(b"[" * 100_000 + b"\n"),
    "objects nested deep": put_behind(b'{"a":' * 50_000 + b"\n"),
    "a number for a label": replace_bytes(b"a\n", b"1\n"),
    "a number with a fraction for a label": replace_bytes(b"a\n", b"1.0\n", 1),
    "a space behind a label": replace_bytes(b"a\n", b"a \n", 1),
    "an unknown label": replace_bytes(b"b\n", b"zebra\n", 1),
    "an empty label": replace_bytes(b"a\n", b"\n", 1),
    "a label in upper case": replace_bytes(b"a\n", b"A\n", 1),
    "nan for a label": replace_bytes(b"a\n", b"nan\n", 1),
    "_ for a label": replace_bytes(b"NOUN", b"_"),
    "another tag": replace_bytes(b"NOUN", b"noun"),
    "ids of words from 0": replace_bytes(b"\n1\t", b"\n0\t"),
    "an id of a word of 5,000 digits": replace_bytes(b"\n3\t", b"\n" + b"3" * 5000 + b"\t"),
    "no blank line between sentences": replace_bytes(b"\n\n", b"\n"),
    "IOB tags": replace_bytes(b" a\n", b" B-a\n"),
    "a superscript number": replace_bytes(b"\t0\n", "\t²\n".encode()),
    "a number of another script": replace_bytes(b"\t1\n", "\t١\n".encode()),
}

# A value in one line of JSON, and in a field of a table.

JSON_VALUES: tuple[str, ...] = (
    "null",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "1.0",
    "1.5",
    "1e999",
    "1e-999",
    "-0.0",
    "9" * 400,
    "9" * 5000,
    "NaN",
    "Infinity",
    "-Infinity",
    '""',
    '" "',
    '"\\n"',
    '"\\u0000"',
    '"\\ud800"',
    '"\\ud83d\\ude00"',
    '"\\u200b"',
    '"1"',
    '"a"',
    '"' + "x" * 5000 + '"',
    "[]",
    "{}",
    '["a"]',
    "[[]]",
    '[["a"]]',
    "[null]",
    "[1]",
    "[true]",
    '[""]',
    '["a", "a"]',
    '["a", "b", "c"]',
    '{"a": 1}',
    '{"a": {"b": []}}',
    '{"a": 1, "a": 2}',
    '["a", 1]',
    '["w6", " w6"]',
    '["0", "1"]',
)
FIELD_VALUES: tuple[bytes, ...] = (
    b"",
    b" ",
    b"\t",
    b'""',
    b'"',
    b"'",
    b"\\N",
    b"NA",
    b"null",
    b"None",
    b"true",
    b"0",
    b"1",
    b"01",
    b"1.0",
    b"-1",
    b"1e999",
    b"9" * 400,
    "½".encode(),
    "١".encode(),
    "²".encode(),
    b"A",
    b"a ",
    "ａ".encode(),
    "\u200b".encode(),
    "\u202ea".encode(),
    "é".encode(),
    "e\u0301".encode(),
    b"a|b",
    b"a,b",
    b"a;b",
    b"../x",
    b"x/y",
    b"{language}",
    b"{split}",
    b"x" * 5000,
    b"[1]",
    b"de",
    b"dev",
    b"validation",
    b"#",
    b"-DOCSTART-",
    b"=1+1",
    b"\x7f",
    b"\x0c",
    b"\x0b",
    b"\x1c",
    b"\x85",
    b"\xc2\x85",
    "\u2028".encode(),
)


def fields_of(data: bytes) -> list[tuple[int, int]]:
    """Where the fields of a file begin and end: what stands between tabs, commas and line ends."""
    return [match.span() for match in re.finditer(rb"[^\t,\n]+", data)]


# What stands in the place of a file.

SPECIAL = (
    "a folder",
    "a full folder",
    "a pipe",
    "a link to nowhere",
    "a link to itself",
    "a link to a pipe",
    "a link to its folder",
    "a link to /dev/zero",
    "a link to /dev/null",
    "a socket",
    "missing",
    "unreadable",
)

# A declaration: every documented key, with every odd value.

TOML_VALUES: tuple[str, ...] = (
    '""',
    '" "',
    '"x"',
    '"mine"',
    '"de"',
    '"a"',
    '"csv"',
    '"FORM"',
    '"review"',
    '"../x"',
    '"/etc/passwd"',
    '"{language}"',
    '"{split}"',
    '"{language}.{split}"',
    '"{language}{language}.csv"',
    '"{}"',
    '"{x}.csv"',
    '"*"',
    '"**/*.csv"',
    '"[a"',
    '"a/b"',
    '"."',
    '".."',
    '"~"',
    '"$HOME"',
    '"nul"',
    '"' + "x" * 300 + '"',
    '"' + "x/" * 3000 + '"',
    '"\\u0000"',
    '"\\u001b[2J"',
    '"\\n"',
    '"\\U0001F600"',
    '"日本"',
    '"é"',
    '"-"',
    '"_x"',
    '"xnli"',
    '"treebank"',
    "0",
    "1",
    "2",
    "3",
    "-1",
    "1.0",
    "1e400",
    "nan",
    "inf",
    "9" * 19,
    "9" * 300,
    "true",
    "false",
    "2026-11-27",
    "12:30:00",
    "2026-11-27T12:30:00Z",
    "[]",
    '[""]',
    '["a"]',
    '["a", "a"]',
    '["a", "b"]',
    '["b", "a", "c"]',
    "[1, 2]",
    "[true]",
    "[[]]",
    "[1.5]",
    '[" a", "a"]',
    '["de", "en"]',
    '["de", "xx_"]',
    '["../de"]',
    "{}",
    '{ a = "b" }',
    '{ dev = "x" }',
    '{ dev = "" }',
    '{ dev = "test" }',
    "{ dev = 1 }",
    '{ dev = "a/b" }',
    '{ dev = ".." }',
    '{ dev = "*" }',
    "{ a = {} }",
    "{ a = 1, b = 0 }",
    "{ a = -1 }",
    '{ "" = "a" }',
    '{ text = "" }',
    '{ text = "review" }',
    '{ text = "review", label = "review" }',
    '{ words = "1", labels = "9" }',
    '{ text = "nothing", label = "stars" }',
    '{ Text = "review" }',
    "[" * 60 + "]" * 60,
    "[{}]",
)
TOML_FAULTS: Mapping[str, str] = {
    "a key twice": 'name = "mine"\n',
    "a table twice": "[columns]\n",
    "an unknown key": 'colums = "x"\n',
    "an unknown table": "[more]\nx = 1\n",
    "a key without a value": "labels =\n",
    "a string that is not closed": 'labels = "a\n',
    "a bare word": "labels = a\n",
    "a byte-order mark inside": "\ufeff\n",
    "a table of tables": "[[columns]]\n",
    "a dotted key": 'columns.text = "review"\n',
    "an escape that is none": 'x = "\\q"\n',
    "a merge conflict": "<<<<<<< HEAD\n",
    "JSON": '{"name": "mine"}\n',
    "YAML": "name: mine\n",
    "brackets nested deep": "labels = " + "[" * 5000 + "\n",
    "a key of 100,000 letters": "x" * 100_000 + " = 1\n",
}


def _without_key(text: str, key: str) -> str:
    """Lines of TOML without those that set a key."""
    lines = [line for line in text.splitlines() if not line.startswith(f"{key} =")]
    return "".join(f"{line}\n" for line in lines)


def declarations_with_odd_values() -> Iterator[tuple[str, int, bytes]]:
    """Every declared sample without each key, with every odd value of it, and with odd TOML.

    Yields:
        What is wrong, the number of the sample, and its declaration.
    """
    for number, sample in enumerate(DECLARED_SAMPLES):
        text = sample.files[DECLARATION].decode()
        head, _, columns = text.partition("[columns]\n")
        for key in KEYS:
            other_lines = _without_key(head, key)
            columns_table = "" if key == "columns" else f"[columns]\n{columns}"
            yield f"no {key} in {sample.title}", number, f"{other_lines}{columns_table}".encode()
            for value in TOML_VALUES:
                wrong = f"{key} = {value[:40]} in {sample.title}"
                yield wrong, number, f"{other_lines}{key} = {value}\n{columns_table}".encode()
        for column in COLUMNS:
            without_column = f"{head}[columns]\n{_without_key(columns, column)}"
            yield f"no columns.{column} in {sample.title}", number, without_column.encode()
            for value in TOML_VALUES:
                wrong = f"columns.{column} = {value[:40]} in {sample.title}"
                yield wrong, number, f"{without_column}{column} = {value}\n".encode()
        for wrong, line in TOML_FAULTS.items():
            yield f"{wrong} in the declaration of {sample.title}", number, f"{line}{text}".encode()
