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
from support.expected_errors import expect, raises
from support.saved_models import save_classifier
from typer.testing import CliRunner

import headlab
from headlab.cli.main import build
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
TWO_SENTENCES = f"# sent_id = a\n1-2\tzum\t_\t_{EMPTY_FIELDS}\n1\tzu\t_\tADP{EMPTY_FIELDS}\n2\tdem\t_\tDET{EMPTY_FIELDS}\n\n1\tHaus\t_\tNOUN{EMPTY_FIELDS}\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HEADLAB_TASKS", raising=False)
    return tmp_path / "cache"


def draft(data: bytes = ROWS, name: str = "x.csv", **draft_settings: object) -> Draft:
    kind = kind_of(name)
    plain_draft = Draft("mine", kind, COLUMNS, (Upload(name, data, "de"),), share=0.5)
    return replace(plain_draft, **draft_settings)  # type: ignore[arg-type]


def error_codes(draft: Draft) -> list[str]:
    return [error.code for error in check_draft(draft).errors]


def test_a_saved_task_has_every_row_once_in_dev_or_test(cache: Path) -> None:
    draft_check = save_task(draft(), cache)
    assert draft_check.sizes == {("de", "dev"): 10, ("de", "test"): 10}
    saved_task = task("mine")
    assert (saved_task.labels, saved_task.languages, task_names()[-1], registry_problems()) == (
        ("a", "b"),
        ("de",),
        "mine",
        [],
    )
    texts = [e.text for split in ("dev", "test") for e in saved_task.examples("de", split)]  # type: ignore[arg-type]
    assert sorted(texts) == sorted(f"say {i}" for i in range(20))


def test_a_share_is_taken_of_every_language_and_groups_stay_whole(cache: Path) -> None:
    rows = b"text,label,l,g\n" + b"".join(
        f"say {i},{'ab'[i % 2]},{('de', 'en')[i // 20]},{i // 4}\n".encode() for i in range(40)
    )
    columns = COLUMNS | {"language": "l", "group": "g"}
    draft_check = save_task(
        draft(rows, columns=columns, files=(Upload("x.csv", rows),), share=0.4), cache
    )
    assert draft_check.sizes == {
        (language, split): n for language in ("de", "en") for split, n in (("dev", 8), ("test", 12))
    }
    saved_task = task("mine")
    for language in ("de", "en"):
        dev, test = (
            {e.group for e in saved_task.examples(language, split)} for split in ("dev", "test")
        )  # type: ignore[arg-type]
        assert not dev & test


def test_rows_of_an_aligned_task_stay_together(cache: Path) -> None:
    files = tuple(
        Upload(f"{code}.csv", ROWS.replace(b"say", code.encode()), code) for code in ("de", "en")
    )
    save_task(draft(files=files, aligned=True), cache)
    saved_task = task("mine")
    assert [e.text[3:] for e in saved_task.examples("de")] == [
        e.text[3:] for e in saved_task.examples("en")
    ]
    files_of_two_lengths = (files[0], replace(files[1], data=ROWS.rsplit(b"\r\n", 2)[0] + b"\r\n"))
    with raises("data.rows_mismatch"):
        save_task(replace(draft(files=files_of_two_lengths, aligned=True), name="other"), cache)
    assert not (cache / SAVED_FOLDER / "other").exists()


def test_files_of_their_own_are_kept_byte_by_byte(cache: Path) -> None:
    bom = b"\xef\xbb\xbf" + ROWS
    files = (Upload("a.csv", bom, "de", "dev"), Upload("b.csv", ROWS, "de", "test"))
    save_task(draft(files=files, share=None), cache)
    folder = cache / SAVED_FOLDER / "mine"
    assert {p.name: p.read_bytes() for p in folder.iterdir() if p.suffix == ".csv"} == {
        "de.dev.csv": bom,
        "de.test.csv": ROWS,
    }


def test_a_column_tells_split_and_language(cache: Path) -> None:
    rows = b"text\tlabel\tl\ts\n" + b"".join(
        f"say {i}\t{'ab'[i % 2]}\tde\t{'valid' if i < 6 else 'test'}\n".encode() for i in range(9)
    )
    columns = COLUMNS | {"language": "l", "split": "s"}
    draft = Draft("mine", "tsv", columns, (Upload("x.tsv", rows),), splits={"dev": "valid"})
    assert save_task(draft, cache).sizes == {("de", "dev"): 6, ("de", "test"): 3}
    assert error_codes(replace(draft, splits={})) == ["data.split_unknown"] * 6
    assert [p.name for p in sorted((cache / SAVED_FOLDER / "mine").iterdir())] == [
        "data.tsv",
        "mine.toml",
    ]


def test_conllu_is_read_as_the_task_udpos_reads_it(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "x.conllu").write_text(TWO_SENTENCES, "utf-8")
    files = (Upload("x.conllu", TWO_SENTENCES.encode(), "de", "dev"),)
    save_task(Draft("mine", "conllu", {"words": "FORM", "labels": "UPOS"}, files), cache)
    saved_task = task("mine")
    words = {
        tuple(zip(e.words, (saved_task.labels[i] for i in e.labels), strict=True))
        for e in saved_task.examples("de")
    }
    assert {tuple(w for w, _ in s) for s in words} == {
        tuple(w for w, _ in s) for s in sentences(tmp_path / "x.conllu")
    }
    without_labels = Draft("other", "conllu", {"words": "FORM", "labels": "XPOS"}, files)
    assert error_codes(without_labels) == ["data.texts_invalid"] * 2  # _ is no value
    divided_draft = replace(
        without_labels,
        columns={"words": "FORM", "labels": "UPOS"},
        share=0.5,
        files=(replace(files[0], split=None),),
    )
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
        expect(error, error.code, "x.csv", f"line {line}")
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
def test_a_strange_file_is_one_sentence(data: bytes, code: str, values: tuple[str, ...]) -> None:
    (error,) = check_draft(draft(data)).errors
    expect(error, code, *values)


def test_too_much_is_refused_at_once(cache: Path) -> None:
    with raises("upload.too_large", 100, 16):
        save_task(draft(ROWS + b"a" * (100 << 20)), cache)
    more_than_half = b"a" * (MAX_SENT_BYTES // 2 + 1)
    with raises("upload.too_large"):
        check_draft(
            draft(
                files=(Upload("a.csv", more_than_half, "de"), Upload("b.csv", more_than_half, "en"))
            )
        )


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
    assert not (cache / SAVED_FOLDER).exists() or not list((cache / SAVED_FOLDER).iterdir())


def test_no_task_is_written_over(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("intents", "treebank"):
        with raises("upload.taken", name):
            save_task(replace(draft(), name=name), cache)
    save_task(draft(), cache)
    contents = {path: path.read_bytes() for path in cache.rglob("*") if path.is_file()}
    save_task(draft(), cache)  # the same again
    with raises("upload.taken", "mine"):
        save_task(draft(ROWS + b"more,a\n"), cache)
    assert {path: path.read_bytes() for path in cache.rglob("*") if path.is_file()} == contents
    declaration = tmp_path / "theirs.toml"
    declaration.write_text(
        'name = "theirs"\nformat = "csv"\nfiles = "{language}.{split}.csv"\n[columns]\ntext = "t"\nlabel = "l"\n'
    )
    monkeypatch.setenv("HEADLAB_TASKS", str(declaration))
    with raises("upload.taken", "theirs"):
        save_task(replace(draft(), name="theirs"), cache)


def test_a_folder_that_cannot_be_written_is_a_sentence_and_leaves_nothing(cache: Path) -> None:
    cache.mkdir()
    (cache / SAVED_FOLDER).write_text("a file where the folder belongs")
    with raises("file.unwritable"):
        save_task(draft(), cache)
    assert [path.name for path in cache.iterdir()] == [SAVED_FOLDER]


def test_two_files_cannot_be_one_place() -> None:
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
    rows = [
        {**dict.fromkeys(columns.values(), "x"), columns["label"]: each}
        for each in (label or "a", "other")
    ]
    if (
        any("\ud800" <= c <= "\udfff" for c in label + "".join(columns.values()))
        or len(set(columns.values())) < 3
    ):
        return
    data = "\n".join(map(json.dumps, rows)).encode()
    draft_check = check_draft(
        Draft("mine", "jsonl", columns, (Upload("x.jsonl", data, "de"),), share=0.5)
    )
    declaration = tomllib.loads(draft_check.declaration)
    assert declaration["columns"] == dict(columns)
    assert declaration.get("labels", []) == list(draft_check.labels)


def test_the_command_line_answers_on_just_the_rows_of_the_page(cache: Path, tmp_path: Path) -> None:
    """The written declaration, unchanged, by its path and by its name."""
    from headlab.tasks.intents.templates import LABELS

    rows = b"text,label\n" + b"".join(f"turn it {i},{LABELS[i % 3]}\n".encode() for i in range(30))
    draft_check = save_task(draft(rows), cache)
    path = cache / SAVED_FOLDER / "mine" / "mine.toml"
    model = save_classifier(tmp_path / "model")
    assert headlab.task(path).labels == draft_check.labels
    arguments = ["evaluate", "--model", str(model), "--languages", "de", "--split", "dev", "--json"]
    for name in (str(path), "mine"):
        answer = CliRunner().invoke(build(), [*arguments, "--task", name])
        assert answer.exit_code == 0, answer.output
        assert (
            json.loads(answer.stdout)["languages"]["de"]["n"]
            == draft_check.sizes["de", "dev"]
            == 15
        )
