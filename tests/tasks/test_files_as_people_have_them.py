"""Files as people have them: read where their meaning is certain, else refused in a sentence that says what to do."""

from __future__ import annotations

import gzip
import io
import json
import os
import zipfile
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from support.expected_errors import expect_error, raises

import headlab
from headlab.tasks import Draft, Example, Upload, save_task
from headlab.tasks.own import check_draft, format_of
from headlab.tasks.translation import translation_task
from headlab.tasks.udpos import udpos_task
from headlab.tasks.xnli import xnli_task

TEXT_COLUMNS = {"text": "text", "label": "label"}
WORD_COLUMNS = {"words": "1", "labels": "2"}
TEXTS_AND_LABELS = [("good, really", "yes"), ("bad", "no")]
CSV = 'text,label\n"good, really",yes\nbad,no\n'
TSV = "text\tlabel\ngood, really\tyes\nbad\tno\n"
SEMICOLONS = "text;label\ngood, really;yes\nbad;no\n"
LONG_TEXT = "good " * 30_000
CONLL_2003 = (
    "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\nPeter NNP B-NP B-PER\n"
)
XTREME = "EU\tB-ORG\nrejects\tO\n\nPeter\tB-PER\n"
LABELLED_SENTENCES = {("EU rejects", ("B-ORG", "O")), ("Peter", ("B-PER",))}
# A file that was read is remembered by its size and time, and the disk's clock ticks slowly.
SECONDS = count(1_000_000_000)


def as_bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def write_file(path: Path, content: str | bytes) -> Path:
    """Write a file whose time differs from that of every file written before it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(as_bytes(content))
    second = next(SECONDS)
    os.utime(path, (second, second))
    return path


def declare(
    folder: Path,
    file_format: str,
    content: str | bytes,
    columns: dict[str, str] | None = None,
    further_lines: str = "",
) -> str:
    """The path of the declaration of a task with one file."""
    write_file(folder / f"de.dev.{file_format}", content)
    columns = columns or TEXT_COLUMNS
    columns_in_toml = ", ".join(f'{meaning} = "{column}"' for meaning, column in columns.items())
    lines = (
        'name = "mine"',
        f'format = "{file_format}"',
        f'files = "{{language}}.{{split}}.{file_format}"',
        further_lines,
        f"columns = {{ {columns_in_toml} }}",
    )
    return str(write_file(folder / "mine.toml", "\n".join(lines)))


def texts_and_labels(folder: Path, file_format: str, content: str | bytes) -> set[tuple[str, str]]:
    """Texts and labels of a task that a declaration describes."""
    task = headlab.task(declare(folder, file_format, content))
    return {(example.text, task.labels[example.label]) for example in task.examples("de")}


def sentences_and_labels(task: headlab.tasks.Task) -> set[tuple[str, tuple[str, ...]]]:
    """Sentences of a task of labelled words, each with its labels by name."""
    return {
        (example.text, tuple(task.labels[label] for label in example.labels))
        for example in task.examples("de")
    }


def draft(file_format: str, content: bytes, columns: dict[str, str] | None = None) -> Draft:
    upload = Upload(f"x.{file_format}", content, "de")
    return Draft("mine", file_format, columns or TEXT_COLUMNS, (upload,), share=0.5)


def examples_of_upload(
    folder: Path, file_format: str, content: bytes, columns: dict[str, str] | None = None
) -> list[Example]:
    """The examples of a task that was saved from an upload."""
    save_task(draft(file_format, content, columns), folder)
    task = headlab.task(folder / "tasks" / "mine" / "mine.toml")
    return [*task.examples("de", "dev"), *task.examples("de", "test")]


READABLE = {
    "a blank last line of a tsv": ("tsv", TSV + "\n"),
    "a line of spaces in a tsv": ("tsv", TSV.replace("bad", "   \nbad")),
    "a line of tabs in a tsv": ("tsv", TSV + "\t\n"),
    "blank lines before the header": ("tsv", "\n \n" + TSV),
    "a line of spaces in a csv": ("csv", CSV + "  \n"),
    "rows that were emptied in Excel": ("csv", CSV + ",\n,\n"),
    "semicolons": ("csv", SEMICOLONS),
    "semicolons as Excel writes them": (
        "csv",
        b"\xef\xbb\xbf" + SEMICOLONS.replace("\n", "\r\n").encode(),
    ),
    "a line that tells Excel the separator": ("csv", "sep=;\n" + SEMICOLONS),
    "a line that tells Excel of commas": ("csv", "sep=,\r\n" + CSV),
    "UTF-16, as Excel's Unicode text": ("tsv", TSV.encode("utf-16")),
    "UTF-16 the other way": ("csv", b"\xfe\xff" + CSV.encode("utf-16-be")),
    "UTF-32": ("csv", CSV.encode("utf-32")),
    "UTF-8 with a mark": ("tsv", TSV.encode("utf-8-sig")),
    "line ends of an old Mac": ("tsv", TSV.replace("\n", "\r")),
    "line ends of an old Mac in a csv": ("csv", CSV.replace("\n", "\r")),
    "line ends of Windows ended once more": ("tsv", TSV.replace("\n", "\r\r\n")),
    "mixed line ends": ("tsv", TSV.replace("yes\n", "yes\r\n")),
    "no line end at the end": ("tsv", TSV.removesuffix("\n")),
    "a column without a name at the end": (
        "tsv",
        TSV.replace("label", "label\t").replace("yes", "yes\t"),
    ),
    "columns without names at the end": ("csv", CSV.replace("\n", ",,\n")),
}


@pytest.mark.parametrize("name", READABLE)
def test_reported_22_what_is_certain_is_read(tmp_path: Path, name: str) -> None:
    file_format, content = READABLE[name]
    assert texts_and_labels(tmp_path, file_format, content) == set(TEXTS_AND_LABELS)
    examples = examples_of_upload(tmp_path / "cache", file_format, as_bytes(content))
    assert {example.text for example in examples} == {text for text, _ in TEXTS_AND_LABELS}


def test_reported_22_a_field_of_150_000_characters_is_read(tmp_path: Path) -> None:
    content = f"text,label\n{LONG_TEXT},yes\nbad,no\n"
    assert (LONG_TEXT, "yes") in texts_and_labels(tmp_path, "csv", content)
    examples = examples_of_upload(tmp_path / "cache", "csv", content.encode())
    assert max(len(example.text) for example in examples) == len(LONG_TEXT)


@pytest.mark.parametrize(
    ("content", "labels"), [(CONLL_2003, "4"), (XTREME, "2"), (XTREME.replace("\t", " "), "2")]
)
def test_reported_22_one_token_a_line_is_read_as_conll(
    tmp_path: Path, content: str, labels: str
) -> None:
    columns = {"words": "1", "labels": labels}
    task = headlab.task(declare(tmp_path, "conll", content, columns))
    assert sentences_and_labels(task) == LABELLED_SENTENCES
    examples = examples_of_upload(tmp_path / "cache", "conll", content.encode(), columns)
    assert {example.text for example in examples} == {text for text, _ in LABELLED_SENTENCES}


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        ("# id 3f2a domain=en", "EU rejects"),
        ("# sent_id = 7", "EU rejects"),
        ("#\tSYM", "# EU rejects"),
    ],
)
def test_reported_22_comments_are_told_from_tokens(
    tmp_path: Path, comment: str, words: str
) -> None:
    task = headlab.task(
        declare(tmp_path, "conll", f"{comment}\nEU\tB-ORG\nrejects\tO\n", WORD_COLUMNS)
    )
    assert [example.text for example in task.examples("de")] == [words]


GERMEVAL = (
    "#\thttp://example.org [2009-10-17]\n1\tEU\tB-ORG\tO\n2\trejects\tO\tO\n\n"
    "#\tn-tv\n1\tPeter\tB-PER\tO\n"
)
CONLL_2012 = (
    "#begin document (bc); part 000\nbc 0 EU B-ORG\nbc 1 rejects O\n\n"
    "bc 0 Peter B-PER\n\n#end document\n"
)
NEW_DOCUMENTS = "# newdoc\n# Two sentences\nEU\tB-ORG\nrejects\tO\n\n# newpar\nPeter\tB-PER\n"


@pytest.mark.parametrize(
    ("content", "words", "labels"),
    [(GERMEVAL, "2", "3"), (CONLL_2012, "3", "4"), (NEW_DOCUMENTS, "1", "2")],
)
def test_reported_22_comments_of_known_corpora_are_left_out(
    tmp_path: Path, content: str, words: str, labels: str
) -> None:
    columns = {"words": words, "labels": labels}
    task = headlab.task(declare(tmp_path, "conll", content, columns))
    assert sentences_and_labels(task) == LABELLED_SENTENCES


@pytest.mark.parametrize(
    "comment", ["# newdoc", "# newpar", "# a remark", "#", "# a b c d e f g h i", "#x\ty"]
)
def test_reported_22_conllu_may_begin_with_any_comment(tmp_path: Path, comment: str) -> None:
    word = "{}\t{}\t_\tNOUN" + "\t_" * 6 + "\n"
    content = f"{comment}\n# sent_id = 1\n{word.format(1, 'Haus')}{word.format(2, 'Hund')}\n"
    task = headlab.task(declare(tmp_path, "conllu", content, {"words": "FORM", "labels": "UPOS"}))
    assert [example.text for example in task.examples("de")] == ["Haus Hund"]
    assert format_of(Upload("x.conllu", content.encode())) == "conllu"


@pytest.mark.parametrize("labels", [("3.1", "3.10"), ("1", "01"), ("+", "-"), ("-1", "1")])
def test_reported_22_labels_that_are_two_stay_two(tmp_path: Path, labels: tuple[str, str]) -> None:
    content = "text,label\n" + "".join(f"text {label},{label}\n" for label in labels)
    assert set(headlab.task(declare(tmp_path, "csv", content)).labels) == {*labels}


def test_reported_22_tokens_with_another_number_of_fields_are_named(tmp_path: Path) -> None:
    with raises("data.fields_mismatch", "line 5", 1, 2):
        headlab.task(declare(tmp_path, "conll", "a\tX\nb\tX\n\nc\tX\nd\n", WORD_COLUMNS))


@pytest.mark.parametrize("file_format", ["tsv", "conllu"])
def test_reported_22_tokens_that_were_declared_as_another_format_are_named(
    tmp_path: Path, file_format: str
) -> None:
    columns = TEXT_COLUMNS if file_format == "tsv" else {"words": "FORM", "labels": "UPOS"}
    with raises("data.tokens_as_rows", f"de.dev.{file_format}", 'format = "conll"'):
        headlab.task(declare(tmp_path, file_format, XTREME, columns))


@pytest.mark.parametrize(
    ("name", "content", "file_format"),
    [
        ("x.tsv", XTREME, "conll"),
        ("x.txt", CONLL_2003, "conll"),
        ("x.conll", CONLL_2003, "conll"),
        ("x.conll", "1\tEU\t_\tPROPN" + "\t_" * 6 + "\n", "conllu"),
        ("x.tsv", TSV, "tsv"),
        ("x.tsv", "text\tlabel\n好\tyes\n\n坏\tno\n", "tsv"),
    ],
)
def test_reported_22_the_format_of_an_upload_is_told_by_its_contents_too(
    name: str, content: str, file_format: str
) -> None:
    assert format_of(Upload(name, content.encode())) == file_format


def test_reported_22_a_text_file_of_sentences_is_no_file_of_tokens() -> None:
    with raises("upload.not_tokens", "x.txt"):
        format_of(Upload("x.txt", b"It rains.\nIt is dry.\n"))


def zip_archive(name: str) -> bytes:
    """A zip archive with one file of this name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, "<workbook/>")
    return buffer.getvalue()


OBJECTS = [{"text": text, "label": label} for text, label in TEXTS_AND_LABELS]
NOT_READABLE = {
    "gzip": ("csv", gzip.compress(CSV.encode()), "data.not_text", "gzip"),
    "a zip archive": ("csv", zip_archive("x.csv"), "data.not_text", "zip archive"),
    "an Excel workbook": ("csv", zip_archive("xl/workbook.xml"), "data.not_text", "CSV UTF-8"),
    "an old Excel workbook": (
        "csv",
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99),
        "data.not_text",
        "CSV UTF-8",
    ),
    "Parquet": ("csv", b"PAR1" + bytes(99), "data.not_text", "Parquet"),
    "Arrow": ("jsonl", b"ARROW1\0\0" + bytes(99), "data.not_text", "Arrow"),
    "Git LFS": (
        "csv",
        b"version https://git-lfs.github.com/spec/v1\noid x\n",
        "data.not_text",
        "git lfs pull",
    ),
    "Windows-1252": (
        "csv",
        "text,label\nschön,yes\nbad,no\n".encode("cp1252"),
        "data.not_utf8",
        "line 2, byte 4",
    ),
    "half of UTF-16": ("csv", CSV.encode("utf-16")[:-1], "data.not_utf8", "UTF-16"),
    "a list of JSON": ("jsonl", json.dumps(OBJECTS), "data.json_not_lines", "jq"),
    "a list of JSON over lines": (
        "jsonl",
        json.dumps(OBJECTS, indent=1),
        "data.json_not_lines",
        "jq",
    ),
    "an object over lines": (
        "jsonl",
        json.dumps(OBJECTS[0], indent=1),
        "data.json_not_lines",
        "jq",
    ),
    "a comma behind the last field": (
        "jsonl",
        '{"text": "a", "label": "yes",}',
        "data.json_malformed",
        "line 1",
    ),
    "a comment in JSON": (
        "jsonl",
        f"{json.dumps(OBJECTS[0])}\n// more\n",
        "data.json_malformed",
        "line 2",
    ),
    "a name twice in an object": (
        "jsonl",
        '{"text": "a", "text": "b", "label": "x"}',
        "data.json_unusable",
        "'text'",
    ),
    "no label": ("jsonl", '{"text": "a", "label": null}', "data.text_invalid", "column label"),
    "a truth value as a label": (
        "jsonl",
        '{"text": "a", "label": true}',
        "data.text_invalid",
        "column label",
    ),
    "a list as a text": (
        "jsonl",
        '{"text": ["a"], "label": "x"}',
        "data.text_invalid",
        "column text",
    ),
    "the header once more": ("csv", CSV + CSV, "data.header_twice", "line 4"),
    "a separator behind the last field": (
        "csv",
        CSV.replace("no", "no,"),
        "data.fields_mismatch",
        "field is empty",
    ),
    "a name that stands twice": ("csv", "text,label,text\na,b,c\n", "data.column_twice", "'text'"),
    "numbers that are written in two ways": (
        "csv",
        "text,label\na,1\nb,1.0\n",
        "data.labels_alike",
        "'1.0'",
    ),
    "labels with spaces": (
        "csv",
        "text,label\na,yes\nb,yes \nc,no\n",
        "data.labels_alike",
        "'yes '",
    ),
}


@pytest.mark.parametrize("name", NOT_READABLE)
def test_reported_22_what_is_not_certain_is_refused_in_one_sentence(
    tmp_path: Path, name: str
) -> None:
    file_format, content, code, value = NOT_READABLE[name]
    with raises(code, value):
        headlab.task(declare(tmp_path, file_format, content)).examples("de")
    (error, *_) = check_draft(draft(file_format, as_bytes(content))).errors
    expect_error(error, code, value)


@pytest.mark.parametrize(
    ("file_format", "content", "value"),
    [
        ("csv", "Text,label\na,b\n", "'Text'"),
        ("csv", "text, label\na,b\n", "' label'"),
        ("csv", "good,yes\nbad,no\n", "first row must hold the names of the columns"),
        ("csv", "text|label\na|b\n", "vertical bars"),
        ("tsv", SEMICOLONS, ".csv"),
    ],
)
def test_reported_22_a_column_that_is_missing_is_said_with_what_it_looks_like(
    tmp_path: Path, file_format: str, content: str, value: str
) -> None:
    with raises("data.column_missing", value):
        headlab.task(declare(tmp_path, file_format, content))


def test_reported_22_a_nul_is_no_text_however_the_file_is_given(tmp_path: Path) -> None:
    with raises("data.not_text", "line 2", "NUL"):
        headlab.task(declare(tmp_path, "csv", "text,label\na\0b,yes\n"))
    with raises("data.not_text", "UTF-16"):
        headlab.task(declare(tmp_path, "csv", CSV.encode("utf-16-le")))


def test_reported_22_what_is_no_regular_file_is_refused_and_never_waited_for(
    tmp_path: Path,
) -> None:
    path = declare(tmp_path, "csv", CSV)
    os.mkfifo(tmp_path / "fr.dev.csv")
    with raises("data.not_a_file", "fr.dev.csv"):
        headlab.task(path)
    (tmp_path / "fr.dev.csv").unlink()
    (tmp_path / "fr.dev.csv").mkdir()
    with raises("data.unreadable", "fr.dev.csv", "Is a directory"):
        headlab.task(path)
    with raises("task.unknown"):
        headlab.task(str(tmp_path))
    for name in ("\0.toml", "\ud800.toml", "x" * 300 + ".toml"):
        with raises("data.unreadable"):
            headlab.task(name)


def test_reported_22_files_that_match_and_are_left_out_are_named(tmp_path: Path) -> None:
    path = declare(tmp_path, "csv", CSV)
    (tmp_path / "de.dev.csv").rename(tmp_path / "de.validation.csv")
    with raises("data.files_missing", "de.validation.csv", "'validation'", "splits"):
        headlab.task(path)
    (tmp_path / "de.validation.csv").rename(tmp_path / "日本.dev.csv")
    with raises("data.files_missing", "日本.dev.csv"):
        headlab.task(path)


def test_reported_22_of_thousands_of_languages_a_few_are_listed(tmp_path: Path) -> None:
    codes = ", ".join(f'"a{number}"' for number in range(3000))
    path = declare(
        tmp_path, "csv", CSV, further_lines=f'languages = [{codes}]\nlabels = ["yes", "no"]'
    )
    with raises("task.language_unknown", "2,960 more") as caught:
        headlab.task(path, ["de"])
    assert len(str(caught.value)) < 1000


def test_reported_22_rows_that_are_compared_by_place_have_no_blank_line_between_them(
    tmp_path: Path,
) -> None:
    rows = "premise\thypothesis\tlabel\np\th\t0\n{}p\tg\t1\n"
    write_file(tmp_path / "xnli" / "de.dev.tsv", rows.format("") + " \n\n")
    assert len(xnli_task(tmp_path).examples("de")) == 2
    write_file(tmp_path / "xnli" / "de.dev.tsv", rows.format("  \n"))
    with raises("data.row_blank", "line 3"):
        xnli_task(tmp_path).examples("de")
    aligned_task = declare(
        tmp_path, "tsv", TSV.replace("bad", "\nbad"), further_lines="aligned = true"
    )
    with raises("data.row_blank", "line 3"):
        headlab.task(aligned_task).examples("de")


def test_reported_22_translations_may_end_with_blank_lines(tmp_path: Path) -> None:
    write_file(tmp_path / "mt" / "en-de.dev.tsv", "source\ttarget\t\nHouse\tHaus\t\n\n")
    (example,) = translation_task(tmp_path).examples("en-de")
    assert example.text == "House"
    assert example.target == "Haus"


def test_reported_22_treebanks_may_part_sentences_with_spaces_and_name_the_format_of_tokens(
    tmp_path: Path,
) -> None:
    word = "1\t{}\t_\tNOUN" + "\t_" * 6 + "\n"
    write_file(
        tmp_path / "ud" / "de.dev.conllu", word.format("Haus") + "  \n" + word.format("Hund")
    )
    assert {example.text for example in udpos_task(tmp_path).examples("de")} == {"Haus", "Hund"}
    write_file(tmp_path / "ud" / "de.dev.conllu", XTREME)
    with raises("treebank.fields_mismatch", 'format = "conll"'):
        udpos_task(tmp_path).examples("de")


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, float("nan"), float("inf")])
def test_reported_19_a_share_that_leaves_a_split_empty_is_refused(
    tmp_path: Path, share: float
) -> None:
    with raises("upload.share_invalid", share):
        save_task(replace(draft("csv", CSV.encode()), share=share), tmp_path)


def test_reported_19_an_upload_with_a_name_that_no_folder_can_have_is_refused(
    tmp_path: Path,
) -> None:
    for name in ("x" * 5000, "a\0b", "../x"):
        with raises("declaration.name_invalid"):
            save_task(replace(draft("csv", CSV.encode()), name=name), tmp_path)
    with raises("upload.division_unknown", -1):
        save_task(replace(draft("csv", CSV.encode()), division=-1), tmp_path)


def test_reported_19_a_link_to_nowhere_is_no_absent_file(tmp_path: Path) -> None:
    rows = "premise\thypothesis\tlabel\np\th\t0\n"
    write_file(tmp_path / "xnli" / "de.dev.tsv", rows)
    meta = tmp_path / "xnli" / "meta.dev.tsv"
    meta.symlink_to("nowhere")
    with raises("data.unreadable", "meta.dev.tsv"):
        xnli_task(tmp_path).examples("de")
    (tmp_path / "xnli" / "de.train.tsv").symlink_to("nowhere")
    with raises("data.unreadable", "de.train.tsv"):
        xnli_task(tmp_path).examples("de", "train")


@pytest.mark.parametrize("text", ["\u200b", "\x7f", "\u202e", "\ufeff\u00a0"])
def test_reported_22_a_text_that_nobody_sees_is_no_text(tmp_path: Path, text: str) -> None:
    with raises("data.text_invalid", "line 2", "column text"):
        headlab.task(declare(tmp_path, "csv", f"text,label\n{text},yes\nbad,no\n")).examples("de")
