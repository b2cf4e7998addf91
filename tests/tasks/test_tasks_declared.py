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
    """Set a time a second after that of the file before, as the clock of the disk may not have ticked since."""
    second = next(SECONDS)
    os.utime(path, (second, second))


@pytest.fixture
def declare(tmp_path: Path) -> Declare:
    def write(lines: str, files: dict[str, str | bytes] | None = None, name: str = "mine") -> Path:
        for file, text in (files or {}).items():
            path = tmp_path / file
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            set_a_later_time(path)
        path = tmp_path / f"{name}.toml"
        path.write_text(f'name = "{name}"\n{lines}\n', "utf-8")
        set_a_later_time(path)
        return path

    return write


def csv_task(columns: str = TEXT_COLUMNS, **settings: str) -> str:
    """The lines of a declaration without its name, with a file by language and split."""
    setting_lines = "\n".join(f"{key} = {value}" for key, value in settings.items())
    return f'format = "csv"\nfiles = "{{language}}.{{split}}.csv"\n{setting_lines}\n{columns}'


FILES_OF_TWO_LANGUAGES = {
    "en.dev.csv": 'review,stars\n"good, really\nso",1\n"a ""bad"" one",0\n',
    "de.dev.csv": "review,stars\ngut,1\nschlecht,0\n",
    "de.train.csv": "review,stars\nmittel,½\n",
}


def test_csv_by_language_and_split_in_the_files_names(declare: Declare) -> None:
    task = headlab.task(str(declare(csv_task(), FILES_OF_TWO_LANGUAGES)))
    assert task.name == "mine"
    assert task.languages == ("en", "de")
    assert task.labels == ("0", "1", "½")
    assert task.aligned is False
    english = task.examples("en")
    assert {example.text for example in english} == {"good, really\nso", 'a "bad" one'}
    assert {(example.id, example.group, task.labels[example.label]) for example in english} == {
        ("dev-0", "dev-0", "1"),
        ("dev-1", "dev-1", "0"),
    }
    assert [example.text for example in task.examples("de", "train")] == ["mittel"]
    with raises("task.no_examples", "train", "en"):
        task.examples("en", "train")
    with raises("data.unreadable", "en.test.csv"):
        task.examples("en", "test")


def test_one_tsv_file_with_a_column_for_everything(declare: Declare) -> None:
    lines = (
        'format = "tsv"',
        'files = "all.tsv"',
        'splits = { dev = "valid" }',
        "[columns]",
        'text = "a"',
        'pair = "b"',
        'label = "c"',
        'group = "g"',
        'id = "i"',
        'language = "l"',
        'split = "s"',
    )
    rows = (
        "i\tg\tl\ts\ta\tb\tc",
        'x\tp\tde\tvalid\t"eins\tzwei\tja',
        "y\tp\tsw\tvalid\tmoja\tmbili\tnein",
    )
    path = declare("\n".join(lines), {"all.tsv": "\n".join(rows) + "\n"})
    task = headlab.task(str(path), "de")
    (example,) = task.examples("de")
    assert example.id == "x"
    assert example.text == '"eins'
    assert example.pair == "zwei"
    assert example.group == "p"
    assert task.labels == ("ja", "nein")
    assert headlab.task(str(path)).languages == ("de", "sw")


def test_jsonl_with_a_label_for_each_word(declare: Declare) -> None:
    rows = [{"tokens": ["Hà Nội", "đẹp"], "tags": ["B", "A"]}, {"tokens": ["x"], "tags": ["C"]}]
    json_lines = "\n\n".join(json.dumps(row) for row in rows)
    path = declare(
        f'format = "jsonl"\nfiles = "{{split}}/{{language}}.jsonl"\n{WORD_COLUMNS}',
        {"dev/vi.jsonl": json_lines},
    )
    task = headlab.task(str(path))
    examples_by_text = {example.text: example for example in task.examples("vi")}
    example = examples_by_text["Hà Nội đẹp"]
    assert example.words == ("Hà Nội", "đẹp")
    assert [task.labels[label] for label in example.labels] == ["B", "A"]


def test_csv_words_are_parted_by_spaces_and_labels_may_be_listed(declare: Declare) -> None:
    declaration = csv_task(WORD_COLUMNS, labels='["X", "Y"]')
    path = declare(declaration, {"en.dev.csv": "tokens,tags\na b,Y X\n"})
    (example,) = headlab.task(str(path)).examples("en")
    assert example.words == ("a", "b")
    assert example.labels == (1, 0)


def test_other_data_of_the_same_declaration(declare: Declare, tmp_path: Path) -> None:
    french_file = {"more/fr.dev.csv": "review,stars\nbon,1\n"}
    path = declare(csv_task(), FILES_OF_TWO_LANGUAGES | french_file)
    assert headlab.task(str(path), data=tmp_path / "more").languages == ("fr",)
    with raises("data.not_a_folder"):
        headlab.task(str(path), data=tmp_path / "none")


def test_a_file_is_read_again_once_it_has_changed(declare: Declare) -> None:
    path = declare(csv_task(), FILES_OF_TWO_LANGUAGES)
    assert len(headlab.task(str(path)).examples("de")) == 2
    longer_file = FILES_OF_TWO_LANGUAGES["de.dev.csv"] + "neu,1\n"
    (path.parent / "de.dev.csv").write_text(longer_file, "utf-8")
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
    declaration = csv_task(columns, aligned="true")
    english = "t,l,g\n" + "".join(f"en{i},0,g{i // 2}\n" for i in range(8))
    files = {"en.dev.csv": english, "de.dev.csv": english.replace("en", "de")}
    task = headlab.task(str(declare(declaration, files)))
    assert task.aligned
    row_numbers_by_language = [
        [example.text[2:] for example in task.examples(language)] for language in ("de", "en")
    ]
    assert row_numbers_by_language[0] == row_numbers_by_language[1]
    files["de.dev.csv"] = english.replace("g0", "h")
    task = headlab.task(str(declare(declaration, files)))
    with raises("data.rows_differ", "de.dev.csv", "line 2", "column g", "'h'", "en", "'g0'"):
        task.examples("de")
    files["de.dev.csv"] = "t,l,g\na,0,g0\n"
    task = headlab.task(str(declare(declaration, files)))
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
    csv_lines = io.StringIO(newline="")
    csv.writer(csv_lines).writerows([("review", "stars"), *rows])
    for file_format, content in (("csv", csv_lines.getvalue()), ("jsonl", json_lines)):
        files = f'files = "{{language}}.{{split}}.{file_format}"'
        path = declare(
            f'format = "{file_format}"\n{files}\n{TEXT_COLUMNS}', {f"de.dev.{file_format}": content}
        )
        task = headlab.task(str(path))
        rows_by_id = {
            example.id: (example.text, task.labels[example.label])
            for example in task.examples("de")
        }
        assert [rows_by_id[f"dev-{i}"] for i in range(len(rows))] == rows


@pytest.mark.parametrize(
    ("lines", "refusal"),
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
def test_a_wrong_declaration_is_refused_in_a_sentence_with_its_file(
    declare: Declare, lines: str, refusal: tuple[object, ...]
) -> None:
    path = declare(lines)
    code, *values = refusal
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
    start=st.integers(0, 60),
    removed_length=st.integers(0, 5),
    inserted=st.binary(max_size=3) | st.sampled_from([b'"', b",", b"\n", b"{"]),
)
@pytest.mark.parametrize("file_format", ["csv", "tsv", "jsonl"])
def test_whatever_is_in_a_file_is_read_or_refused_in_a_sentence(
    declare: Declare, file_format: str, start: int, removed_length: int, inserted: bytes
) -> None:
    contents = {
        "csv": b'review,stars\n"a, b",1\nc,0\n',
        "tsv": b"review\tstars\na\t1\n",
        "jsonl": b'{"review": "a", "stars": 1}\n',
    }
    content = contents[file_format]
    content = content[:start] + inserted + content[start + removed_length :]
    files = f'files = "{{language}}.{{split}}.{file_format}"'
    file_name = f"de.dev.{file_format}"
    path = declare(f'format = "{file_format}"\n{files}\n{TEXT_COLUMNS}', {file_name: content})
    examples = []
    is_refused_by_line = False
    is_refused_as_a_whole = False
    try:
        examples = list(headlab.task(str(path)).examples("de"))
    except HeadlabError as error:
        is_refused_by_line = f"{file_name}, line " in str(error)
        is_refused_as_a_whole = error.code in ("data.labels_missing", "data.json_not_lines")
    assert bool(examples) != (is_refused_by_line or is_refused_as_a_whole)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    start=st.integers(0, 140),
    removed_length=st.integers(0, 9),
    inserted=st.text('"{}[]=\n,.x', max_size=3),
)
def test_whatever_is_in_a_declaration_is_read_or_refused_in_a_sentence(
    declare: Declare, start: int, removed_length: int, inserted: str
) -> None:
    path = declare(csv_task(), FILES_OF_TWO_LANGUAGES)
    text = path.read_text("utf-8")
    path.write_text(text[:start] + inserted + text[start + removed_length :], "utf-8")
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
    assert headlab.tasks.source_of("mine").is_present
    with raises("task.unknown"):
        headlab.tasks.task(str(path))


def test_broken_and_doubled_declarations_harm_no_other(
    declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    good_declaration = declare(csv_task(), FILES_OF_TWO_LANGUAGES)
    broken_declaration = declare("x =", name="broken")
    second_of_one_name = declare(csv_task(), name="other")
    second_of_one_name.write_text(good_declaration.read_text("utf-8"), "utf-8")
    named_as_xnli = declare(csv_task(), name="xnli")
    paths = (
        broken_declaration,
        good_declaration,
        second_of_one_name,
        named_as_xnli,
        "nowhere.toml",
    )
    monkeypatch.setenv("HEADLAB_TASKS", os.pathsep.join(map(str, paths)))
    assert headlab.tasks.task_names() == (*headlab.tasks.registry.TASKS, "mine")
    with raises("task.unknown", "broken.toml", "other.toml", "nowhere.toml"):
        headlab.tasks.task("broken")
    # the name treebank stands for trees in reports
    named_as_treebank = declare(csv_task(), FILES_OF_TWO_LANGUAGES, name="treebank")
    for path in (named_as_xnli, named_as_treebank):
        with raises("declaration.name_taken"):
            headlab.task(str(path))


def test_the_data_hash_depends_on_all_that_results_depend_on(declare: Declare) -> None:
    """Labels are matched by name, groups are resampled together: other ones, other results."""

    def data_hash(columns: str = TEXT_COLUMNS, **settings: str) -> str:
        declaration = declare(csv_task(columns, **settings), FILES_OF_TWO_LANGUAGES)
        task = headlab.task(str(declaration))
        return task.data_hash([*task.examples("de")])

    default_hash = data_hash()
    assert data_hash() == default_hash
    assert data_hash(labels='["½", "1", "0"]') != default_hash
    assert data_hash(aligned="true") != default_hash
    grouped_columns = 'columns = { text = "review", label = "stars", group = "stars" }'
    assert data_hash(grouped_columns) != default_hash


def test_a_missing_file_is_refused_in_a_sentence(declare: Declare, tmp_path: Path) -> None:
    path = declare(csv_task(), FILES_OF_TWO_LANGUAGES)
    (tmp_path / "fr.dev.csv").symlink_to(tmp_path / "nowhere.csv")
    with raises("data.unreadable", "fr.dev.csv", "No such file"):
        headlab.task(str(path))


def test_half_a_surrogate_pair_is_no_text(declare: Declare) -> None:
    lines = 'format = "jsonl"\nfiles = "{language}.{split}.jsonl"\n' + TEXT_COLUMNS
    path = declare(lines, {"en.dev.jsonl": '{"review": "\\ud800", "stars": "1"}\n'})
    with raises("data.text_invalid", "en.dev.jsonl", "line 1", "column review"):
        headlab.task(str(path)).examples("en")


def test_a_column_of_counterfactuals_is_in_no_hash_and_may_have_gaps(declare: Declare) -> None:
    rows = "context,choices,answer,other\nthe cat,is|are,is,the cats\nthe dogs,is|are,are,\n"
    files = {"en.dev.csv": rows, "en.test.csv": rows}
    columns = 'context = "context", choices = "choices", answer = "answer"'
    with_column = declare(
        csv_task(f'columns = {{ {columns}, counterfactual = "other" }}'), files, "mine"
    )
    examples = headlab.task(with_column).examples("en", "dev")
    assert [example.counterfactuals for example in examples] == [("the cats",), ()]
    hash_with = headlab.task(with_column).data_hash(examples)
    without = headlab.task(declare(csv_task(f"columns = {{ {columns} }}"), files, "mine"))
    assert without.data_hash(without.examples("en", "dev")) == hash_with
    labelled = "review,stars,other\nfine,good,poor\nbad,poor,great\n"
    texts = declare(
        csv_task('columns = { text = "review", label = "stars", counterfactual = "other" }'),
        {"en.dev.csv": labelled, "en.test.csv": labelled},
        "texts",
    )
    contrasts = [example.counterfactuals for example in headlab.task(texts).examples("en", "dev")]
    assert contrasts == [("poor",), ("great",)]
    with raises("declaration.columns_mismatch", "columns.counterfactual"):
        headlab.task(
            declare(
                csv_task('columns = { words = "a", labels = "b", counterfactual = "c" }'),
                {},
                "words",
            )
        )
