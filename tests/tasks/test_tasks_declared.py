"""A user's own task: csv, tsv and jsonl by a declaration, its errors, and who may ask for it."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.expected_errors import raises

import headlab
import headlab.tasks.registry
from headlab.core import HeadlabError
from headlab.tasks.text_files import is_visible

TEXT_COLUMNS = 'columns = { text = "review", label = "stars" }'
WORD_COLUMNS = 'columns = { words = "tokens", labels = "tags" }'
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(is_visible)
Declare = Callable[..., Path]


SECONDS = count(1_000_000_000)


def set_a_later_time(path: Path) -> None:
    """Files of one size follow each other faster than the clock of the disk ticks: each is a second younger here."""
    second = next(SECONDS)
    os.utime(path, (second, second))


@pytest.fixture
def declare(tmp_path: Path) -> Declare:
    def put(lines: str, files: dict[str, str | bytes] | None = None, name: str = "mine") -> Path:
        for file, text in (files or {}).items():
            path = tmp_path / file
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            set_a_later_time(path)
        path = tmp_path / f"{name}.toml"
        path.write_text(f'name = "{name}"\n{lines}\n', "utf-8")
        set_a_later_time(path)
        return path

    return put


def csv_task(columns: str = TEXT_COLUMNS, **settings: str) -> str:
    rest = "\n".join(f"{key} = {value}" for key, value in settings.items())
    return f'format = "csv"\nfiles = "{{language}}.{{split}}.csv"\n{rest}\n{columns}'


FILES_OF_TWO_LANGUAGES = {
    "en.dev.csv": 'review,stars\n"good, really\nso",1\n"a ""bad"" one",0\n',
    "de.dev.csv": "review,stars\ngut,1\nschlecht,0\n",
    "de.train.csv": "review,stars\nmittel,½\n",
}


def test_csv_by_language_and_split_in_the_files_names(declare: Declare) -> None:
    task = headlab.task(str(declare(csv_task(), FILES_OF_TWO_LANGUAGES)))
    assert (task.name, task.languages, task.labels, task.aligned) == (
        "mine",
        ("en", "de"),
        ("0", "1", "½"),
        False,
    )
    examples_by_text = {e.text: e for e in task.examples("en")}
    assert set(examples_by_text) == {"good, really\nso", 'a "bad" one'}
    assert {(e.id, e.group, task.labels[e.label]) for e in examples_by_text.values()} == {
        ("dev-0",) * 2 + ("1",),
        ("dev-1",) * 2 + ("0",),
    }
    assert [e.text for e in task.examples("de", "train")] == ["mittel"]
    with raises("task.no_examples", "train", "en"):
        task.examples("en", "train")
    with raises("data.unreadable", "en.test.csv"):
        task.examples("en", "test")


def test_one_tsv_file_with_a_column_for_everything(declare: Declare) -> None:
    columns = (
        'text = "a"\npair = "b"\nlabel = "c"\ngroup = "g"\nid = "i"\nlanguage = "l"\nsplit = "s"'
    )
    text = 'i\tg\tl\ts\ta\tb\tc\nx\tp\tde\tvalid\t"eins\tzwei\tja\ny\tp\tsw\tvalid\tmoja\tmbili\tnein\n'
    path = declare(
        f'format = "tsv"\nfiles = "all.tsv"\nsplits = {{ dev = "valid" }}\n[columns]\n{columns}',
        {"all.tsv": text},
    )
    task = headlab.task(str(path), "de")
    (example,) = task.examples("de")
    assert (example.id, example.text, example.pair, example.group, task.labels) == (
        "x",
        '"eins',
        "zwei",
        "p",
        ("ja", "nein"),
    )
    assert headlab.task(str(path)).languages == ("de", "sw")


def test_jsonl_with_a_label_for_each_word(declare: Declare) -> None:
    rows = [{"tokens": ["Hà Nội", "đẹp"], "tags": ["B", "A"]}, {"tokens": ["x"], "tags": ["C"]}]
    text = "\n\n".join(json.dumps(row) for row in rows)
    path = declare(
        f'format = "jsonl"\nfiles = "{{split}}/{{language}}.jsonl"\n{WORD_COLUMNS}',
        {"dev/vi.jsonl": text},
    )
    task = headlab.task(str(path))
    examples_by_text = {e.text: e for e in task.examples("vi")}
    assert examples_by_text["Hà Nội đẹp"].words == ("Hà Nội", "đẹp")
    assert [task.labels[i] for i in examples_by_text["Hà Nội đẹp"].labels] == ["B", "A"]


def test_csv_words_are_parted_by_spaces_and_labels_may_be_listed(declare: Declare) -> None:
    path = declare(
        csv_task(WORD_COLUMNS, labels='["X", "Y"]'), {"en.dev.csv": "tokens,tags\na b,Y X\n"}
    )
    (example,) = headlab.task(str(path)).examples("en")
    assert (example.words, example.labels) == (("a", "b"), (1, 0))


def test_other_data_of_the_same_declaration(declare: Declare, tmp_path: Path) -> None:
    path = declare(
        csv_task(), FILES_OF_TWO_LANGUAGES | {"more/fr.dev.csv": "review,stars\nbon,1\n"}
    )
    assert headlab.task(str(path), data=tmp_path / "more").languages == ("fr",)
    with raises("data.not_a_folder"):
        headlab.task(str(path), data=tmp_path / "none")


def test_a_file_is_read_again_once_it_has_changed(declare: Declare) -> None:
    path = declare(csv_task(), FILES_OF_TWO_LANGUAGES)
    assert len(headlab.task(str(path)).examples("de")) == 2
    (path.parent / "de.dev.csv").write_text(
        FILES_OF_TWO_LANGUAGES["de.dev.csv"] + "neu,1\n", "utf-8"
    )
    assert len(headlab.task(str(path)).examples("de")) == 3


def test_test_rows_teach_no_label_and_other_languages_none_either(declare: Declare) -> None:
    columns = 'columns = { text = "t", label = "l", language = "c", split = "s" }'
    rows = "t,l,c,s\na,x,de,dev\nb,y,de,test\nc,z,fr,train\n"
    path = declare(
        f'format = "csv"\nfiles = "all.csv"\nlanguages = ["de"]\n{columns}', {"all.csv": rows}
    )
    assert headlab.task(str(path)).labels == ("x",)
    with raises("data.label_unknown", "line 3", "column l", "'y'", "x"):
        headlab.task(str(path)).examples("de", "test")


def test_one_file_a_split_of_one_named_language(declare: Declare) -> None:
    path = declare(
        f'format = "csv"\nfiles = "{{split}}.csv"\nlanguages = ["de"]\n{TEXT_COLUMNS}',
        {"dev.csv": FILES_OF_TWO_LANGUAGES["de.dev.csv"]},
    )
    assert headlab.task(str(path)).languages == ("de",)
    assert len(headlab.task(str(path)).examples("de")) == 2


def test_aligned_rows_keep_their_place_and_must_be_as_many(declare: Declare) -> None:
    columns = 'columns = { text = "t", label = "l", group = "g" }'
    english = "t,l,g\n" + "".join(f"en{i},0,g{i // 2}\n" for i in range(8))
    files = {"en.dev.csv": english, "de.dev.csv": english.replace("en", "de")}
    task = headlab.task(str(declare(csv_task(columns, aligned="true"), files)))
    assert task.aligned
    assert [e.text[2:] for e in task.examples("de")] == [e.text[2:] for e in task.examples("en")]
    files["de.dev.csv"] = english.replace("g0", "h")
    task = headlab.task(str(declare(csv_task(columns, aligned="true"), files)))
    with raises("data.rows_differ", "de.dev.csv", "line 2", "column g", "'h'", "en", "'g0'"):
        task.examples("de")
    files["de.dev.csv"] = "t,l,g\na,0,g0\n"
    task = headlab.task(str(declare(csv_task(columns, aligned="true"), files)))
    with raises("data.rows_mismatch", "de", 1, "en", 8):
        task.examples("de")


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(TEXT, st.sampled_from("xy")), min_size=1, max_size=5))
def test_csv_and_jsonl_read_back_what_was_written(
    declare: Declare, rows: list[tuple[str, str]]
) -> None:
    json_lines = "\n".join(json.dumps({"review": text, "stars": label}) for text, label in rows)
    csv_text = io.StringIO(newline="")
    csv.writer(csv_text).writerows([("review", "stars"), *rows])
    for file_format, text in (("csv", csv_text.getvalue()), ("jsonl", json_lines)):
        path = declare(
            f'format = "{file_format}"\nfiles = "{{language}}.{{split}}.{file_format}"\n{TEXT_COLUMNS}',
            {f"de.dev.{file_format}": text},
        )
        task = headlab.task(str(path))
        rows_by_id = {e.id: (e.text, task.labels[e.label]) for e in task.examples("de")}
        assert [rows_by_id[f"dev-{i}"] for i in range(len(rows))] == rows


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("x = [", ("declaration.not_toml",)),
        ("much = 1", ("declaration.key_unknown", "'much'")),
        ('format = "csv"', ("declaration.key_missing", "files, columns")),
        ('format = "xls"\nfiles = "a"\ncolumns = {}', ("declaration.format_unknown", "'xls'")),
        (
            'format = "csv"\nfiles = "../a.csv"\ncolumns = {}',
            ("declaration.files_invalid", "a.csv"),
        ),
        ('format = "csv"\nfiles = "/a.csv"\ncolumns = {}', ("declaration.files_invalid", "a.csv")),
        ("format = 1", ("declaration.key_invalid", "format", 1, "a text")),
        ("division = true", ("declaration.key_invalid", "division", "True", "a whole number")),
        (
            csv_task('columns = { text = "a", label = "b", target = "c" }'),
            ("declaration.columns_mismatch",),
        ),
        (
            csv_task('columns = { text = "a", label = "b", words = "c", labels = "d" }'),
            ("declaration.columns_mismatch",),
        ),
        (csv_task('columns = { txt = "a" }'), ("declaration.column_unknown", "'txt'")),
        (
            csv_task('columns = { text = 1, label = "b" }'),
            ("declaration.column_invalid", "columns.text", 1),
        ),
        (
            csv_task('columns = { text = "a", label = "b", split = "c" }'),
            ("declaration.place_ambiguous", "split"),
        ),
        (csv_task(splits='{ dev = "x", test = "x" }'), ("declaration.split_names_equal",)),
        (
            csv_task(splits='{ validation = "x" }'),
            ("declaration.split_invalid", "splits.validation"),
        ),
        (csv_task(labels='["a", "a"]'), ("declaration.list_invalid", "labels")),
        (csv_task(languages='["de", "../de"]'), ("declaration.language_invalid", "'../de'")),
        (csv_task(), ("data.files_missing",)),
    ],
)
def test_a_wrong_declaration_is_a_sentence_with_its_file(
    declare: Declare, lines: str, expected: tuple[object, ...]
) -> None:
    path = declare(lines)
    code, *values = expected
    with raises(str(code), path, *values):
        headlab.task(str(path))


@pytest.mark.parametrize(
    ("text", "code", "values"),
    [
        ("review,stars\nfine\n", "data.fields_mismatch", ("line 2", 1, 2)),
        ("review,stars\nfine,9\n", "data.label_unknown", ("line 2, column stars", "'9'")),
        ("review,stars\n,1\n", "data.text_invalid", ("line 2, column review", "''")),
        ('review,stars\n"a\nb",1\nc,x\n', "data.label_unknown", ("line 4, column stars", "'x'")),
        ('review,stars\na,1\n"b"x,1\n', "data.csv_malformed", ("line 3",)),
        ('review,stars\na,1\n"b,1\n', "data.csv_malformed", ("line 3",)),
        ("review,points\na,1\n", "data.column_missing", ("line 2", "column stars")),
        ("stars,stars\na,1\n", "data.column_twice", ("line 1", "'stars'")),
        (b"review,stars\n\xff,1\n", "data.not_utf8", ("line 2, byte 1",)),
    ],
)
def test_a_wrong_row_is_named_by_file_line_and_column(
    declare: Declare, text: str | bytes, code: str, values: tuple[object, ...]
) -> None:
    path = declare(csv_task(labels='["0", "1"]'), {"de.dev.csv": text})
    with raises(code, f"{path.parent / 'de.dev.csv'}, ", *values):
        headlab.task(str(path)).examples("de")


@pytest.mark.parametrize(
    ("row", "code", "place", "values"),
    [
        (
            '{"tokens": ["a"], "tags": ["X", "X"]}',
            "data.labels_mismatch",
            "line 1, column tags",
            (2, 1),
        ),
        ('{"tokens": "a", "tags": ["X"]}', "data.texts_invalid", "line 1, column tokens", ("'a'",)),
        ('{"tokens": [], "tags": []}', "data.texts_invalid", "line 1, column tokens", ("[]",)),
        ('{"tokens": [1], "tags": ["X"]}', "data.texts_invalid", "line 1, column tokens", ("[1]",)),
        ('{"tokens": ["a"]}', "data.column_missing", "line 1", ("column tags",)),
        ('["tokens"]', "data.json_not_object", "line 1", ("'[\"tokens\"]'",)),
        ('{"tokens": ["a"],', "data.json_malformed", "line 1, character 18", ()),
        ("[" * 100_000, "data.json_unusable", "line 1", ()),
    ],
)
def test_a_wrong_jsonl_line_is_named(
    declare: Declare, row: str, code: str, place: str, values: tuple[object, ...]
) -> None:
    path = declare(
        f'format = "jsonl"\nfiles = "{{language}}.{{split}}.jsonl"\nlabels = ["X"]\n{WORD_COLUMNS}',
        {"de.dev.jsonl": row},
    )
    with raises(code, f"de.dev.jsonl, {place}", *values):
        headlab.task(str(path)).examples("de")


def test_an_id_that_stands_twice_is_named(declare: Declare) -> None:
    path = declare(
        csv_task('columns = { text = "t", label = "l", id = "i" }'),
        {"de.dev.csv": "t,l,i\na,0,x\nb,0,x\n"},
    )
    with raises("data.id_twice", "line 3", "column i", "'x'", "line 2"):
        headlab.task(str(path)).examples("de")


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    at=st.integers(0, 60),
    cut=st.integers(0, 5),
    put=st.binary(max_size=3) | st.sampled_from([b'"', b",", b"\n", b"{"]),
)
@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_whatever_is_in_a_file_is_read_or_refused_in_a_sentence(
    declare: Declare, kind: str, at: int, cut: int, put: bytes
) -> None:
    rows = {
        "csv": b'review,stars\n"a, b",1\nc,0\n',
        "tsv": b"review\tstars\na\t1\n",
        "jsonl": b'{"review": "a", "stars": 1}\n',
    }
    text = rows[kind][:at] + put + rows[kind][at + cut :]
    path = declare(
        f'format = "{kind}"\nfiles = "{{language}}.{{split}}.{kind}"\n{TEXT_COLUMNS}',
        {f"de.dev.{kind}": text},
    )
    is_refused_by_line = False
    examples = []
    try:
        examples = list(headlab.task(str(path)).examples("de"))
    except HeadlabError as error:
        codes_of_whole_files = ("data.labels_missing", "data.json_not_lines")
        is_refused_by_line = (
            f"de.dev.{kind}, line " in str(error) or error.code in codes_of_whole_files
        )
    assert bool(examples) != is_refused_by_line


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(at=st.integers(0, 140), cut=st.integers(0, 9), put=st.text('"{}[]=\n,.x', max_size=3))
def test_whatever_is_in_a_declaration_is_read_or_refused_in_a_sentence(
    declare: Declare, at: int, cut: int, put: str
) -> None:
    path = declare(csv_task(), FILES_OF_TWO_LANGUAGES)
    text = path.read_text("utf-8")
    path.write_text(text[:at] + put + text[at + cut :], "utf-8")
    message = ""
    examples = []
    try:
        examples = list(headlab.task(str(path)).examples("de"))
    except HeadlabError as error:
        message = str(error)
    assert bool(examples) != bool(message)


def test_a_request_names_only_what_the_operator_has_declared(
    declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = declare(csv_task(), FILES_OF_TWO_LANGUAGES)
    for name in (str(path), "mine", "../mine.toml", "mine.toml"):
        with raises("task.unknown"):
            headlab.tasks.task(name)
    with raises("task.unknown", path, "HEADLAB_TASKS"):
        headlab.tasks.task(str(path))
    monkeypatch.setenv("HEADLAB_TASKS", f"{path}{os.pathsep}")
    assert "mine" in headlab.tasks.task_names()
    assert headlab.tasks.task("mine", ["de"]).languages == ("de",)
    assert headlab.tasks.source_of("mine").here
    with raises("task.unknown"):
        headlab.tasks.task(str(path))


def test_broken_and_doubled_declarations_harm_no_other(
    declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    good_declaration = declare(csv_task(), FILES_OF_TWO_LANGUAGES)
    broken_declaration = declare("x =", name="broken")
    second_of_one_name = declare(csv_task(), name="other")
    named_as_xnli = declare(csv_task(), name="xnli")
    second_of_one_name.write_text(good_declaration.read_text("utf-8"), "utf-8")
    monkeypatch.setenv(
        "HEADLAB_TASKS",
        os.pathsep.join(
            map(
                str,
                (
                    broken_declaration,
                    good_declaration,
                    second_of_one_name,
                    named_as_xnli,
                    "nowhere.toml",
                ),
            )
        ),
    )
    assert headlab.tasks.task_names() == (*headlab.tasks.registry.TASKS, "mine")
    with raises("task.unknown", "broken.toml", "other.toml", "nowhere.toml"):
        headlab.tasks.task("broken")
    for name in (
        named_as_xnli,
        declare(csv_task(), FILES_OF_TWO_LANGUAGES, name="treebank"),
    ):  # the latter stands for trees in reports
        with raises("declaration.name_taken"):
            headlab.task(str(name))


def test_what_results_depend_on_names_them(declare: Declare) -> None:
    """Labels are matched by name, groups are resampled together: other ones, other results."""

    def sha(columns: str = TEXT_COLUMNS, **more: str) -> str:
        task = headlab.task(str(declare(csv_task(columns, **more), FILES_OF_TWO_LANGUAGES)))
        return task.data_hash([*task.examples("de")])

    usual = sha()
    assert sha() == usual
    assert sha(labels='["½", "1", "0"]') != usual
    assert sha(aligned="true") != usual
    assert sha('columns = { text = "review", label = "stars", group = "stars" }') != usual


def test_a_file_that_is_gone_is_a_sentence(declare: Declare, tmp_path: Path) -> None:
    path = declare(csv_task(), FILES_OF_TWO_LANGUAGES)
    (tmp_path / "fr.dev.csv").symlink_to(tmp_path / "nowhere.csv")
    with raises("data.unreadable", "fr.dev.csv", "No such file"):
        headlab.task(str(path))


def test_half_a_surrogate_pair_is_no_text(declare: Declare) -> None:
    lines = 'format = "jsonl"\nfiles = "{language}.{split}.jsonl"\n' + TEXT_COLUMNS
    path = declare(lines, {"en.dev.jsonl": '{"review": "\\ud800", "stars": "1"}\n'})
    with raises("data.text_invalid", "en.dev.jsonl", "line 1", "column review"):
        headlab.task(str(path)).examples("en")
