"""Tasks of likelihood from files: windows of texts, and declared choices; what is wrong with a row is said by line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.expected_errors import raises
from support.shared_data import data_with
from support.tiny_models import tiny_model
from support.tiny_task import tiny_tokenizer

import headlab
from headlab.evaluation import Evaluator
from headlab.tasks.texts import WINDOW

LONG_TEXT = " ".join(f"word{n}" for n in range(200))


@pytest.fixture
def put(tmp_path: Path):
    def write(**files: str) -> Path:
        (tmp_path / "lm").mkdir(exist_ok=True)
        for name, text in files.items():
            (tmp_path / "lm" / f"{name.replace('_', '.')}.txt").write_text(text, "utf-8")
        return tmp_path

    return write


def test_windows_are_whole_words_of_one_document(put):
    task = headlab.task(
        "lm",
        data=put(
            en_dev=f"{LONG_TEXT}\n\n{LONG_TEXT.replace('word', 'text')}\nmore\n", de_dev=LONG_TEXT
        ),
    )
    assert (task.languages, task.labels, task.likelihood) == (("en", "de"), (), "tokens")
    rows = task.examples("en", "dev", None)
    by_document = {
        group: [row for row in rows if row.group == group] for group in {row.group for row in rows}
    }
    assert {row.id.rpartition("-")[0] for row in rows} == set(by_document) == {"dev-1", "dev-3"}
    for group, own in by_document.items():
        own.sort(key=lambda row: int(row.id.rpartition("-")[2]))
        whole = " ".join(str(row.target) for row in own)
        assert all(len(str(row.target)) >= WINDOW for row in own)
        assert (LONG_TEXT if group == "dev-1" else LONG_TEXT.replace("word", "text")).startswith(
            whole
        )
    assert rows != sorted(rows, key=lambda row: row.id)  # a prefix is a random subset
    assert rows == headlab.task("lm", data=put()).examples("en", "dev", None)


def test_a_text_without_spaces_is_cut_by_its_letters(put):
    rows = headlab.task("lm", data=put(zh_dev="字" * 600)).examples("zh")
    assert sorted(len(str(row.target)) for row in rows) == [WINDOW, 600 - WINDOW]


def test_a_line_that_looks_like_a_title_is_one_in_wikitext_alone(put):
    rows = headlab.task("lm", data=put(en_dev=f"= Title =\n{LONG_TEXT}\n\n{LONG_TEXT}\n")).examples(
        "en", "dev", None
    )
    assert len({row.group for row in rows}) == 2


def test_a_text_shorter_than_a_window_and_a_missing_file_are_told(put):
    data = put(en_dev="short\n")
    with raises("data.text_too_short", "en.dev.txt", WINDOW):
        headlab.task("lm", data=data).examples("en")
    with raises("data.unreadable", "en.test.txt"):
        headlab.task("lm", data=data).examples("en", "test")
    with raises("task.no_examples", "train"):
        headlab.task("lm", data=data).examples("en", "train")


def test_without_texts_the_task_says_what_to_give(tmp_path: Path):
    with raises("data.folder_missing", "lm/en.dev.txt", "HEADLAB_DATA"):
        headlab.task("lm", data=tmp_path).examples("en")


def test_articles_of_wikitext_are_documents():
    rows = headlab.task("lm", data=data_with("wikitext2")).examples("en", "dev", None)
    assert 50 < len({row.group for row in rows}) < 70  # the 60 articles of its validation part
    assert len(rows) > 3_000


DECLARATION = """name = "mine"
format = "jsonl"
files = "{language}.{split}.jsonl"

[columns]
context = "question"
choices = "options"
answer = "gold"
"""
ROW = {"question": "The sky is", "options": ["blue", "made of cheese"], "gold": 0}


@pytest.fixture
def declare(tmp_path: Path):
    def write(
        *rows: object, language: str = "en", text: str = DECLARATION, ending: str = "jsonl"
    ) -> Path:
        lines = "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows)
        (tmp_path / f"{language}.dev.{ending}").write_text(lines, "utf-8")
        (tmp_path / "mine.toml").write_text(text, "utf-8")
        return tmp_path / "mine.toml"

    return write


def test_choices_are_declared_by_their_columns(declare):
    task = headlab.task(
        declare(ROW, ROW | {"question": "Grass is ", "options": ["red", "green"], "gold": "green"})
    )
    assert (task.labels, task.likelihood, task.languages) == ((), "choices", ("en",))
    found = {row.text: (row.choices, row.label) for row in task.examples("en")}
    assert found == {
        "The sky is": ((" blue", " made of cheese"), 0),
        "Grass is": ((" red", " green"), 1),
    }
    csv = DECLARATION.replace("jsonl", "csv")
    rows = (
        "question,options,gold",
        "Grass is,red|green,1",
        'Snow is,"[""white"", ""black""]",white',
    )
    found = {
        e.text: (e.choices, e.label)
        for e in headlab.task(declare(*rows, text=csv, ending="csv")).examples("en")
    }
    assert found == {"Grass is": ((" red", " green"), 1), "Snow is": ((" white", " black"), 0)}


def test_choices_that_are_integers_are_texts(declare):
    row_of_integer_and_text = {"question": "2+3 is", "options": [5, "six"], "gold": 0}
    path = declare({"question": "2+2 is", "options": [3, 4], "gold": 4}, row_of_integer_and_text)
    answers_by_text = {
        row.text: (row.choices, row.label) for row in headlab.task(path).examples("en")
    }
    assert answers_by_text == {"2+2 is": ((" 3", " 4"), 1), "2+3 is": ((" 5", " six"), 0)}


def test_choices_without_a_context_are_whole_texts(declare):
    two_choices = {"options": ["A cat sleeps.", "A cat sleep."], "gold": 0}
    without_context = DECLARATION.replace('context = "question"\n', "")
    for path in (
        declare({"question": " "} | two_choices),
        declare(two_choices, text=without_context),
    ):
        (example,) = headlab.task(path).examples("en")
        assert (example.text, example.choices, example.label) == (
            "",
            ("A cat sleeps.", "A cat sleep."),
            0,
        )
        assert example.whole == "A cat sleeps."  # what pages show, and roles are found on


def test_an_example_knows_its_file_and_line_which_enter_no_hash(declare):
    path = declare(ROW, ROW | {"question": "Snow is"})
    task = headlab.task(path)
    examples = sorted(task.examples("en"), key=lambda example: example.id)
    references = [f"dev-{n} ({path.with_name('en.dev.jsonl')}, line {n + 1})" for n in range(2)]
    assert [example.reference for example in examples] == references
    without_place = [replace(example, place="") for example in examples]
    assert without_place == examples
    assert task.data_hash(without_place) == task.data_hash(examples)


def test_a_row_too_long_for_the_model_is_named_by_file_and_line(declare, put):
    model = tiny_model("llama-lm", tokenizer=tiny_tokenizer())
    choice_task = headlab.task(declare(ROW, ROW | {"question": "w5 " * 70}))
    with raises("data.text_too_long", "dev-1", "en.dev.jsonl, line 2"):
        Evaluator(model, choice_task, "en")
    text_task = headlab.task("lm", data=put(en_dev="\n\n" + "w5 " * 200))
    with raises("data.text_too_long", "dev-3-", "en.dev.txt, in the document from line 3"):
        Evaluator(model, text_task, "en")


@pytest.mark.parametrize("language", ["zh-CN", "zh_Hant", "jpn_Jpan"])
def test_a_language_that_writes_no_spaces_gets_none(declare, language: str):
    path = declare(
        {"question": "天空是", "options": ["蓝色", "绿色"], "gold": 0}, language=language
    )
    assert headlab.task(path).examples(language)[0].choices == ("蓝色", "绿色")


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        ({"options": ["blue"]}, "data.choices_invalid", "column options"),
        ({"options": ["blue", " "]}, "data.choices_invalid", "column options"),
        ({"options": "blue"}, "data.choices_invalid", "column options"),
        ({"options": "[blue"}, "data.choices_invalid", "column options"),
        ({"options": ["blue", "blue "]}, "data.choices_equal", "column options"),
        ({"gold": 2}, "data.answer_unknown", "from 0 to 1"),
        ({"gold": "green"}, "data.answer_unknown", "green"),
        ({"options": ["1", "2", "3"], "gold": 2}, "data.answer_unknown", "the number of another"),
        ({"options": [True, False]}, "data.choices_invalid", "column options"),
        ({"question": None}, "data.text_invalid", "column question"),
    ],
)
def test_what_is_wrong_with_a_row_is_said_by_line_and_column(
    declare, more: dict, code: str, said: str
):
    with raises(code, "line 2", said):
        headlab.task(declare(ROW, ROW | more)).examples("en")


def test_a_column_of_texts_alone_is_for_a_language_model(declare):
    text = DECLARATION.partition("[columns]")[0] + '[columns]\ntext = "said"\n'
    task = headlab.task(declare({"said": "Some words."}, text=text))
    assert (task.labels, task.likelihood) == ((), "tokens")
    assert (task.examples("en")[0].text, task.examples("en")[0].target) == ("", "Some words.")


def test_another_choice_is_another_task(declare):
    hashes = []
    for options in (["blue", "red"], ["blue", "green"]):
        task = headlab.task(declare(ROW | {"options": options}))
        hashes.append(task.data_hash(task.examples("en")))
    assert hashes[0] != hashes[1]
