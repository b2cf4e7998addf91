"""Tasks made from files that were sent: what is read, every error of them, and what is saved."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.expected_errors import expect_error, raises
from support.saved_models import save_classifier
from typer.testing import CliRunner

import headlab
from headlab.cli.run import build
from headlab.core import MAX_SENT_BYTES
from headlab.tasks import (
    SAVED_FOLDER,
    Draft,
    Upload,
    registry_problems,
    save_task,
    task,
    task_names,
)
from headlab.tasks.own import MAX_LABELS, check_draft, kind_of
from headlab.tasks.udpos import sentences

COLUMNS = {"text": "text", "label": "label"}
ROWS = b"text,label\n" + b"".join(f"say {i},{'ab'[i % 2]}\r\n".encode() for i in range(20))
EMPTY_FIELDS = "\t_" * 6
TWO_SENTENCES = f"""# sent_id = a
1-2\tzum\t_\t_{EMPTY_FIELDS}
1\tzu\t_\tADP{EMPTY_FIELDS}
2\tdem\t_\tDET{EMPTY_FIELDS}

1\tHaus\t_\tNOUN{EMPTY_FIELDS}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HEADLAB_TASKS", raising=False)
    return tmp_path / "cache"


def draft(data: bytes = ROWS, name: str = "x.csv", **draft_settings: object) -> Draft:
    upload = Upload(name, data, "de")
    plain_draft = Draft("mine", kind_of(name), COLUMNS, (upload,), share=0.5)
    return replace(plain_draft, **draft_settings)  # type: ignore[arg-type]


def error_codes(draft: Draft) -> list[str]:
    return [error.code for error in check_draft(draft).errors]


def test_a_saved_task_has_every_row_once_in_dev_or_test(cache: Path) -> None:
    draft_check = save_task(draft(), cache)
    assert draft_check.sizes == {("de", "dev"): 10, ("de", "test"): 10}
    saved_task = task("mine")
    assert saved_task.labels == ("a", "b")
    assert saved_task.languages == ("de",)
    assert task_names()[-1] == "mine"
    assert registry_problems() == []
    examples = [*saved_task.examples("de", "dev"), *saved_task.examples("de", "test")]
    texts = [example.text for example in examples]
    assert sorted(texts) == sorted(f"say {i}" for i in range(20))


def test_a_share_is_taken_of_every_language_and_groups_stay_whole(cache: Path) -> None:
    lines = ["text,label,l,g"]
    for i in range(40):
        label = "ab"[i % 2]
        language = "de" if i < 20 else "en"
        lines.append(f"say {i},{label},{language},{i // 4}")
    content = ("\n".join(lines) + "\n").encode()
    columns = COLUMNS | {"language": "l", "group": "g"}
    files = (Upload("x.csv", content),)
    draft_check = save_task(draft(content, columns=columns, files=files, share=0.4), cache)
    assert draft_check.sizes == {
        ("de", "dev"): 8,
        ("de", "test"): 12,
        ("en", "dev"): 8,
        ("en", "test"): 12,
    }
    saved_task = task("mine")
    for language in ("de", "en"):
        dev_groups = {example.group for example in saved_task.examples(language, "dev")}
        test_groups = {example.group for example in saved_task.examples(language, "test")}
        assert not dev_groups & test_groups


def test_rows_of_an_aligned_task_stay_together(cache: Path) -> None:
    german = Upload("de.csv", ROWS.replace(b"say", b"de"), "de")
    english = Upload("en.csv", ROWS.replace(b"say", b"en"), "en")
    save_task(draft(files=(german, english), aligned=True), cache)
    saved_task = task("mine")
    german_numbers = [example.text[3:] for example in saved_task.examples("de")]
    english_numbers = [example.text[3:] for example in saved_task.examples("en")]
    assert german_numbers == english_numbers
    one_row_less = ROWS.rsplit(b"\r\n", 2)[0] + b"\r\n"
    files_of_two_lengths = (german, replace(english, data=one_row_less))
    with raises("data.rows_mismatch"):
        save_task(replace(draft(files=files_of_two_lengths, aligned=True), name="other"), cache)
    assert not (cache / SAVED_FOLDER / "other").exists()


def test_a_file_for_each_split_is_kept_byte_by_byte(cache: Path) -> None:
    rows_with_mark = b"\xef\xbb\xbf" + ROWS
    files = (Upload("a.csv", rows_with_mark, "de", "dev"), Upload("b.csv", ROWS, "de", "test"))
    save_task(draft(files=files, share=None), cache)
    saved_tables = (cache / SAVED_FOLDER / "mine").glob("*.csv")
    assert {path.name: path.read_bytes() for path in saved_tables} == {
        "de.dev.csv": rows_with_mark,
        "de.test.csv": ROWS,
    }


def test_a_column_tells_split_and_language(cache: Path) -> None:
    lines = ["text\tlabel\tl\ts"]
    for i in range(9):
        split = "valid" if i < 6 else "test"
        lines.append(f"say {i}\t{'ab'[i % 2]}\tde\t{split}")
    upload = Upload("x.tsv", ("\n".join(lines) + "\n").encode())
    columns = COLUMNS | {"language": "l", "split": "s"}
    named_splits = Draft("mine", "tsv", columns, (upload,), splits={"dev": "valid"})
    assert save_task(named_splits, cache).sizes == {("de", "dev"): 6, ("de", "test"): 3}
    assert error_codes(replace(named_splits, splits={})) == ["data.split_unknown"] * 6
    saved_files = sorted((cache / SAVED_FOLDER / "mine").iterdir())
    assert [path.name for path in saved_files] == ["data.tsv", "mine.toml"]


def test_conllu_is_read_as_the_task_udpos_reads_it(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.conllu"
    path.write_text(TWO_SENTENCES, "utf-8")
    dev_upload = Upload("x.conllu", TWO_SENTENCES.encode(), "de", "dev")
    columns = {"words": "FORM", "labels": "UPOS"}
    save_task(Draft("mine", "conllu", columns, (dev_upload,)), cache)
    saved_task = task("mine")
    words_of_saved_task = set()
    for example in saved_task.examples("de"):
        label_names = [saved_task.labels[label] for label in example.labels]
        assert len(label_names) == len(example.words)
        words_of_saved_task.add(example.words)
    words_by_udpos = {tuple(word for word, _ in sentence) for sentence in sentences(path)}
    assert words_of_saved_task == words_by_udpos
    columns_without_values = {"words": "FORM", "labels": "XPOS"}  # _ is no value
    without_labels = Draft("other", "conllu", columns_without_values, (dev_upload,))
    assert error_codes(without_labels) == ["data.texts_invalid"] * 2
    undivided_upload = replace(dev_upload, split=None)
    divided_draft = replace(without_labels, columns=columns, share=0.5, files=(undivided_upload,))
    draft_check = save_task(divided_draft, cache)
    assert draft_check.sizes == {("de", "dev"): 1, ("de", "test"): 1}


def test_every_error_is_told_with_its_line_and_nothing_is_saved(cache: Path) -> None:
    draft_with_errors = draft(b'text,label\nok,a\nragged\n,b\nx,y,z\n"two\nlines",b\nfine,\n')
    errors = check_draft(draft_with_errors).errors
    assert [error.code for error in errors] == [
        "data.fields_mismatch",
        "data.text_invalid",
        "data.fields_mismatch",
        "data.text_invalid",
    ]
    for error, line in zip(errors, (3, 4, 5, 8), strict=True):
        expect_error(error, error.code, "x.csv", f"line {line}")
    with raises("data.fields_mismatch", "line 3", 3):
        save_task(draft_with_errors, cache)
    assert not (cache / SAVED_FOLDER).exists()


@pytest.mark.parametrize(
    ("data", "code", "values"),
    [
        (b"", "upload.empty", ("x.csv",)),
        (b" \n\n", "upload.empty", ("x.csv",)),
        (b"text,label\n", "upload.no_rows", ("x.csv",)),
        (b"text,label\na\0b,1\n", "upload.not_text", ("x.csv", "line 2")),
        ("text,label\nä,1\n".encode("latin-1"), "data.not_utf8", ("line 2, byte 1",)),
        (b"text\nalone\n", "data.column_missing", ("line 2", "label")),
        (b"text,text\na,b\n", "data.column_twice", ("line 1", "'text'")),
        (b'text,label\n"a"b,1\n', "data.csv_malformed", ("line 2",)),
        (b'text,label\n"a,1\n', "data.csv_malformed", ("line 2",)),
        (b"text,label\na,1\nb,1\n", "upload.label_single", ("label", "'1'")),
        (
            b"text,label\n" + b"".join(b"a,%d\n" % i for i in range(MAX_LABELS + 1)),
            "upload.labels_too_many",
            ("200",),
        ),
    ],
)
def test_a_strange_file_is_refused_in_one_sentence(
    data: bytes, code: str, values: tuple[str, ...]
) -> None:
    (error,) = check_draft(draft(data)).errors
    expect_error(error, code, *values)


def test_too_much_is_refused_at_once(cache: Path) -> None:
    with raises("upload.too_large", 100, 16):
        save_task(draft(ROWS + b"a" * (100 << 20)), cache)
    more_than_half = b"a" * (MAX_SENT_BYTES // 2 + 1)
    files = (Upload("a.csv", more_than_half, "de"), Upload("b.csv", more_than_half, "en"))
    with raises("upload.too_large"):
        check_draft(draft(files=files))


@pytest.mark.parametrize(
    "name",
    [
        "../../x.csv",
        "/etc/passwd.csv",
        "x\0.csv",
        "a\nb.csv",
        "CON.csv",
        ".csv.csv",
        "é" * 200 + ".csv",
    ],
)
def test_no_file_name_becomes_a_path(cache: Path, name: str) -> None:
    save_task(draft(files=(Upload(name, ROWS, "de"),)), cache)
    saved_files = [
        path.relative_to(cache).as_posix() for path in cache.rglob("*") if path.is_file()
    ]
    assert sorted(saved_files) == [
        f"tasks/mine/{file}" for file in ("de.dev.csv", "de.test.csv", "mine.toml")
    ]


@pytest.mark.parametrize(
    "name", ["../up", "a/b", "", ".hidden", "x" * 61, "a b", "a\0", "a\n", "ä"]
)
def test_a_task_name_that_could_be_a_path_is_refused(cache: Path, name: str) -> None:
    with raises("declaration.name_invalid"):
        save_task(replace(draft(), name=name), cache)
    assert not cache.exists()


def test_a_column_that_no_task_has_is_refused_before_it_is_written(cache: Path) -> None:
    plain_draft = draft()
    for key in ('id = "text"\ngroup', 'text = "x" #', "nonsense"):
        with raises("upload.column_unknown"):
            save_task(replace(plain_draft, columns={**plain_draft.columns, key: "text"}), cache)
    assert not cache.exists()


@pytest.mark.parametrize("language", ["../de", "d e", "", "1", "de\0"])
def test_a_language_that_could_be_a_path_is_refused(cache: Path, language: str) -> None:
    with raises("upload.no_language" if not language else "upload.language_invalid"):
        save_task(replace(draft(), files=(Upload("x.csv", ROWS, language),)), cache)
    folder = cache / SAVED_FOLDER
    assert not folder.exists() or not list(folder.iterdir())


def contents_by_path(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_no_task_is_written_over(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("intents", "treebank"):
        with raises("upload.taken", name):
            save_task(replace(draft(), name=name), cache)
    save_task(draft(), cache)
    saved_contents = contents_by_path(cache)
    save_task(draft(), cache)  # the same again
    with raises("upload.taken", "mine"):
        save_task(draft(ROWS + b"more,a\n"), cache)
    assert contents_by_path(cache) == saved_contents
    declaration = tmp_path / "theirs.toml"
    files = 'files = "{language}.{split}.csv"'
    columns = '[columns]\ntext = "t"\nlabel = "l"'
    declaration.write_text(f'name = "theirs"\nformat = "csv"\n{files}\n{columns}\n')
    monkeypatch.setenv("HEADLAB_TASKS", str(declaration))
    with raises("upload.taken", "theirs"):
        save_task(replace(draft(), name="theirs"), cache)


def test_a_folder_that_cannot_be_written_is_refused_in_a_sentence_and_leaves_nothing(
    cache: Path,
) -> None:
    cache.mkdir()
    (cache / SAVED_FOLDER).write_text("a file where the folder belongs")
    with raises("file.unwritable"):
        save_task(draft(), cache)
    assert [path.name for path in cache.iterdir()] == [SAVED_FOLDER]


def test_files_for_one_place_or_for_none_are_refused() -> None:
    with raises("upload.place_twice", "a.csv", "b.csv"):
        check_draft(draft(files=(Upload("a.csv", ROWS, "de"), Upload("b.csv", ROWS, "de"))))
    with raises("upload.no_split", "x.csv"):
        check_draft(draft(share=None))
    with raises("upload.no_language", "x.csv"):
        check_draft(draft(files=(Upload("x.csv", ROWS),)))
    with raises("upload.column_twice", "text", "label"):
        check_draft(draft(columns={"text": "text", "label": "text"}))
    with raises("upload.none"):
        check_draft(draft(files=()))
    draft_check = check_draft(draft(files=(Upload("x.csv", ROWS, "de", "test"),), share=None))
    assert [error.code for error in draft_check.errors] == ["upload.no_dev"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("A.CSV", "csv"), ("x.y.tsv", "tsv"), ("x.ndjson", "jsonl"), ("x.conll", "conllu")],
)
def test_the_format_is_told_by_the_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind


@pytest.mark.parametrize("name", ["x.xlsx", "csv", "", "x.csv.gz"])
def test_another_ending_is_refused(name: str) -> None:
    with raises("upload.format_unknown"):
        kind_of(name)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.dictionaries(
        st.sampled_from(["text", "label", "group"]), st.text(min_size=1, max_size=8), min_size=3
    ),
    st.text(),
)
def test_a_declaration_says_what_it_was_given(columns: Mapping[str, str], label: str) -> None:
    given_text = label + "".join(columns.values())
    has_surrogates = any("\ud800" <= character <= "\udfff" for character in given_text)
    if has_surrogates or len(set(columns.values())) < 3:
        return
    row = dict.fromkeys(columns.values(), "x")
    rows = [{**row, columns["label"]: label or "a"}, {**row, columns["label"]: "other"}]
    upload = Upload(
        "x.jsonl",
        "\n".join(map(json.dumps, rows)).encode(),
        "de",
    )
    draft_check = check_draft(Draft("mine", "jsonl", columns, (upload,), share=0.5))
    declaration = tomllib.loads(draft_check.declaration)
    assert declaration["columns"] == dict(columns)
    assert declaration.get("labels", []) == list(draft_check.labels)


def test_the_command_line_answers_on_just_the_rows_of_the_page(cache: Path, tmp_path: Path) -> None:
    """The written declaration, unchanged, by its path and by its name."""
    from headlab.tasks.intents.classes import LABELS

    lines = ["text,label", *(f"turn it {i},{LABELS[i % 3]}" for i in range(30))]
    draft_check = save_task(draft(("\n".join(lines) + "\n").encode()), cache)
    declaration = cache / SAVED_FOLDER / "mine" / "mine.toml"
    model = save_classifier(tmp_path / "model")
    assert headlab.task(declaration).labels == draft_check.labels
    arguments = ("evaluate", "--model", str(model), "--languages", "de", "--split", "dev", "--json")
    for name in (str(declaration), "mine"):
        result = CliRunner().invoke(build(), [*arguments, "--task", name])
        assert result.exit_code == 0, result.output
        evaluation = json.loads(result.stdout)["languages"]["de"]
        assert evaluation["n"] == draft_check.sizes["de", "dev"] == 15
