"""The task `translation`: its files, their errors, and a declaration of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.expected_errors import raises
from support.toy_language import toy_folder, toy_rows

import headlab
from headlab.tasks import languages_of_pair, source_of, task

DECLARATION = """
name = "mine"
format = "jsonl"
files = "{split}.jsonl"
languages = ["aa-bb"]
[columns]
text = "from"
target = "to"
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return toy_folder(tmp_path / "data")


def test_rows_become_examples_with_targets_in_an_order_that_stays(data: Path):
    translation = task("translation", data=data)
    assert translation.languages == ("aa-bb",)
    assert translation.labels == ()
    for split in ("train", "dev", "test"):
        examples = translation.examples("aa-bb", split)
        sentence_pairs = [(example.text, example.target) for example in examples]
        assert sorted(sentence_pairs) == sorted(toy_rows(split))
        ids = [example.id for example in examples]
        examples_read_again = task("translation", data=data).examples("aa-bb", split)
        assert ids == [example.id for example in examples_read_again]
        assert ids != sorted(ids)
        assert all(example.group == example.id for example in examples)


def test_a_pair_without_a_train_file_has_none_but_dev_must_be_there(data: Path):
    (data / "mt/aa-bb.train.tsv").unlink()
    translation = task("translation", data=data)
    with raises("task.no_examples", "train"):
        translation.examples("aa-bb", "train")
    (data / "mt/aa-bb.dev.tsv").unlink()
    with raises("data.unreadable", "aa-bb.dev.tsv"):
        translation.examples("aa-bb", "dev")


@pytest.mark.parametrize("text", ["?", "7", "é", "字", "😀", "$"])
def test_a_sign_alone_is_a_side(data: Path, text: str):
    (data / "mt/aa-bb.dev.tsv").write_text(f"source\ttarget\n{text}\t{text}\n")
    (example,) = task("translation", data=data).examples("aa-bb", "dev")
    assert example.target == text


@pytest.mark.parametrize(
    ("pair", "advice"),
    [("en-DE", "write en-de, in"), ("en-ZH", "write en-zh, in"), ("aa-aa", "name two languages")],
)
def test_a_pair_that_is_read_as_one_language_is_refused(data: Path, pair: str, advice: str):
    for split in ("train", "dev"):
        (data / f"mt/{pair}.{split}.tsv").write_text("source\ttarget\nbala\ttik\n")
        with raises("translation.pair_invalid", f"pair {pair}", advice):
            task("translation", data=data).examples(pair, split)
    assert task("translation", data=data).examples("aa-bb", "dev")


def test_files_that_are_no_pair_are_left_out(data: Path):
    for name in ("notes.dev.tsv", "de.test.tsv", "aa-.dev.tsv"):
        (data / "mt" / name).write_text("source\ttarget\n")
    assert task("translation", data=data).languages == ("aa-bb",)


@pytest.mark.parametrize(
    ("text", "code", "place", "values"),
    [
        ("source\ttarget\nbala\ttik\n \ttik\n", "data.text_empty", "line 3, column source", ()),
        ("source\ttarget\nbala\t\n", "data.text_empty", "line 2, column target", ()),
        ("source\ttarget\nbala\t\u200b \ufeff\n", "data.text_empty", "line 2, column target", ()),
        ("source\ttarget\n\u0301\ttik\n", "data.text_empty", "line 2, column source", ()),
        ("source\ttarget\nbala\n", "data.fields_mismatch", "line 2", (1, 2)),
        ("from\tto\nbala\ttik\n", "data.column_missing", "line 1", ("source, target",)),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_place(
    data: Path, text: str, code: str, place: str, values: tuple[object, ...]
):
    (data / "mt/aa-bb.dev.tsv").write_text(text)
    with raises(code, f"aa-bb.dev.tsv, {place}", *values):
        task("translation", data=data).examples("aa-bb")


def test_quotes_are_part_of_a_sentence(data: Path):
    (data / "mt/aa-bb.dev.tsv").write_text('target\tsource\n"tik" "\t"bala\n')
    (example,) = task("translation", data=data).examples("aa-bb")
    assert example.text == '"bala'
    assert example.target == '"tik" "'


def test_without_a_folder_a_sentence_says_where_files_belong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("HEADLAB_DATA", raising=False)
    assert not source_of("translation").is_present
    assert "mt/en-de.dev.tsv" in source_of("translation").advice
    with raises("data.folder_missing", "HEADLAB_DATA", "source and target"):
        task("translation").examples("en-de")
    assert source_of("translation", toy_folder(tmp_path / "d")).is_present


@pytest.mark.parametrize(
    ("language", "sides"),
    [
        ("en-de", ("en", "de")),
        ("en-zh-CN", ("en", "zh-CN")),
        ("en-US-de", ("en-US", "de")),
        ("zh-Hans-CN-en", ("zh-Hans-CN", "en")),
        ("eng_Latn-deu_Latn", ("eng_Latn", "deu_Latn")),
        ("EN-DE", ("EN", "DE")),
        ("zh", ("zh", "zh")),
        ("zh-CN", ("zh-CN", "zh-CN")),
    ],
)
def test_a_pair_has_two_sides_and_a_language_that_is_none_is_both(
    language: str, sides: tuple[str, str]
):
    assert languages_of_pair(language) == sides


def test_a_declaration_may_name_a_target_in_place_of_a_label(tmp_path: Path):
    (tmp_path / "mine.toml").write_text(DECLARATION)
    (tmp_path / "dev.jsonl").write_text('{"from": "bala dumo", "to": "sen tik"}\n')
    declared_task = headlab.task(str(tmp_path / "mine.toml"))
    (example,) = declared_task.examples("aa-bb")
    assert example.text == "bala dumo"
    assert example.target == "sen tik"
    assert example.label == -1
    assert declared_task.labels == ()
    (tmp_path / "dev.jsonl").write_text('{"from": "bala", "to": " "}\n')
    with raises("data.text_invalid", "line 1", "column to", "' '"):
        headlab.task(str(tmp_path / "mine.toml")).examples("aa-bb")


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (('target = "to"', 'target = "to"\nlabel = "l"'), ("declaration.columns_mismatch",)),
        (('text = "from"', 'words = "from"'), ("declaration.columns_mismatch",)),
        (("languages", 'labels = ["x"]\nlanguages'), ("declaration.labels_unused",)),
    ],
)
def test_a_declaration_of_targets_has_no_labels(
    tmp_path: Path, change: tuple[str, str], refusal: tuple[object, ...]
):
    (tmp_path / "mine.toml").write_text(DECLARATION.replace(*change))
    with raises(*refusal):
        headlab.task(str(tmp_path / "mine.toml"))
