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
def write_texts(tmp_path: Path):
    """Writes texts for the task lm by language and split: `en_dev` is the file `lm/en.dev.txt`."""

    def write(**files: str) -> Path:
        (tmp_path / "lm").mkdir(exist_ok=True)
        for name, text in files.items():
            file_name = name.replace("_", ".") + ".txt"
            (tmp_path / "lm" / file_name).write_text(text, "utf-8")
        return tmp_path

    return write


def test_windows_are_whole_words_of_one_document(write_texts):
    other_text = LONG_TEXT.replace("word", "text")
    data = write_texts(
        en_dev=f"{LONG_TEXT}\n\n{other_text}\nmore\n",
        de_dev=LONG_TEXT,
    )
    task = headlab.task("lm", data=data)
    assert task.languages == ("en", "de")
    assert task.labels == ()
    assert task.likelihood == "tokens"
    examples = task.examples("en", "dev", None)
    documents = {example.id.rpartition("-")[0] for example in examples}
    assert documents == {"dev-1", "dev-3"}
    groups = {example.group for example in examples}
    assert groups == {"dev-1", "dev-3"}
    for group, document in (("dev-1", LONG_TEXT), ("dev-3", other_text)):
        windows = [example for example in examples if example.group == group]
        windows.sort(key=lambda example: int(example.id.rpartition("-")[2]))
        targets = [str(window.target) for window in windows]
        assert all(len(target) >= WINDOW for target in targets)
        assert document.startswith(" ".join(targets))
    assert examples != sorted(examples, key=lambda row: row.id)  # a prefix is a random subset
    same_task = headlab.task("lm", data=write_texts())
    assert examples == same_task.examples("en", "dev", None)


def test_a_text_without_spaces_is_divided_by_its_letters(write_texts):
    data = write_texts(zh_dev="字" * 600)
    examples = headlab.task("lm", data=data).examples("zh")
    lengths = sorted(len(str(example.target)) for example in examples)
    assert lengths == [WINDOW, 600 - WINDOW]


def test_a_line_that_looks_like_a_title_is_one_in_wikitext_alone(write_texts):
    data = write_texts(en_dev=f"= Title =\n{LONG_TEXT}\n\n{LONG_TEXT}\n")
    examples = headlab.task("lm", data=data).examples("en", "dev", None)
    assert len({example.group for example in examples}) == 2


def test_a_text_shorter_than_a_window_and_a_missing_file_are_told(write_texts):
    data = write_texts(en_dev="short\n")
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
    task = headlab.task("lm", data=data_with("wikitext2"))
    examples = task.examples("en", "dev", None)
    articles = {example.group for example in examples}
    # the 60 articles of its validation part
    assert 50 < len(articles) < 70
    assert len(examples) > 3_000


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
        *rows: object,
        language: str = "en",
        text: str = DECLARATION,
        ending: str = "jsonl",
    ) -> Path:
        lines = []
        for row in rows:
            lines.append(row if isinstance(row, str) else json.dumps(row))
        path = tmp_path / f"{language}.dev.{ending}"
        path.write_text("\n".join(lines), "utf-8")
        (tmp_path / "mine.toml").write_text(text, "utf-8")
        return tmp_path / "mine.toml"

    return write


def choices_and_labels(declaration: Path) -> dict[str, tuple[tuple[str, ...], int]]:
    """The choices of each English example and which of them is right, by its text."""
    examples = headlab.task(declaration).examples("en")
    return {example.text: (example.choices, example.label) for example in examples}


def test_choices_are_declared_by_their_columns(declare):
    second_row = {"question": "Grass is ", "options": ["red", "green"], "gold": "green"}
    declaration = declare(ROW, second_row)
    task = headlab.task(declaration)
    assert task.labels == ()
    assert task.likelihood == "choices"
    assert task.languages == ("en",)
    assert choices_and_labels(declaration) == {
        "The sky is": ((" blue", " made of cheese"), 0),
        "Grass is": ((" red", " green"), 1),
    }
    csv_declaration = DECLARATION.replace("jsonl", "csv")
    csv_rows = (
        "question,options,gold",
        "Grass is,red|green,1",
        'Snow is,"[""white"", ""black""]",white',
    )
    assert choices_and_labels(declare(*csv_rows, text=csv_declaration, ending="csv")) == {
        "Grass is": ((" red", " green"), 1),
        "Snow is": ((" white", " black"), 0),
    }


def test_choices_that_are_integers_are_texts(declare):
    integers = {"question": "2+2 is", "options": [3, 4], "gold": 4}
    integer_and_text = {"question": "2+3 is", "options": [5, "six"], "gold": 0}
    assert choices_and_labels(declare(integers, integer_and_text)) == {
        "2+2 is": ((" 3", " 4"), 1),
        "2+3 is": ((" 5", " six"), 0),
    }


def test_choices_without_a_context_are_whole_texts(declare):
    two_choices = {"options": ["A cat sleeps.", "A cat sleep."], "gold": 0}
    without_context = DECLARATION.replace('context = "question"\n', "")
    for row, settings in (
        ({"question": " "} | two_choices, {}),
        (two_choices, {"text": without_context}),
    ):
        path = declare(row, **settings)
        (example,) = headlab.task(path).examples("en")
        assert example.text == ""
        assert example.choices == ("A cat sleeps.", "A cat sleep.")
        assert example.label == 0
        assert example.full_text == "A cat sleeps."  # what pages show, and roles are found on


def test_an_example_knows_its_file_and_line_which_enter_no_hash(declare):
    path = declare(ROW, ROW | {"question": "Snow is"})
    task = headlab.task(path)
    examples = sorted(task.examples("en"), key=lambda example: example.id)
    rows_path = path.with_name("en.dev.jsonl")
    assert [example.reference for example in examples] == [
        f"dev-0 ({rows_path}, line 1)",
        f"dev-1 ({rows_path}, line 2)",
    ]
    without_place = [replace(example, place="") for example in examples]
    assert without_place == examples
    assert task.data_hash(without_place) == task.data_hash(examples)


def test_a_row_too_long_for_the_model_is_named_by_file_and_line(declare, write_texts):
    model = tiny_model("llama-lm", tokenizer=tiny_tokenizer())
    long_row = ROW | {"question": "w5 " * 70}
    choice_task = headlab.task(declare(ROW, long_row))
    with raises("data.text_too_long", "dev-1", "en.dev.jsonl, line 2"):
        Evaluator(model, choice_task, "en")
    data = write_texts(en_dev="\n\n" + "w5 " * 200)
    text_task = headlab.task("lm", data=data)
    with raises("data.text_too_long", "dev-3-", "en.dev.txt, in the document from line 3"):
        Evaluator(model, text_task, "en")


@pytest.mark.parametrize("language", ["zh-CN", "zh_Hant", "jpn_Jpan"])
def test_a_language_that_writes_no_spaces_gets_none(declare, language: str):
    path = declare(
        {"question": "天空是", "options": ["蓝色", "绿色"], "gold": 0},
        language=language,
    )
    example = headlab.task(path).examples(language)[0]
    assert example.choices == ("蓝色", "绿色")


@pytest.mark.parametrize(
    ("wrong_values", "code", "explanation"),
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
    declare, wrong_values: dict, code: str, explanation: str
):
    wrong_row = ROW | wrong_values
    task = headlab.task(declare(ROW, wrong_row))
    with raises(code, "line 2", explanation):
        task.examples("en")


def test_a_column_of_texts_alone_is_for_a_language_model(declare):
    text_column = DECLARATION.partition("[columns]")[0] + '[columns]\ntext = "said"\n'
    task = headlab.task(declare({"said": "Some words."}, text=text_column))
    assert task.labels == ()
    assert task.likelihood == "tokens"
    example = task.examples("en")[0]
    assert example.text == ""
    assert example.target == "Some words."


def test_another_choice_is_another_task(declare):
    hashes = []
    for options in (["blue", "red"], ["blue", "green"]):
        task = headlab.task(declare(ROW | {"options": options}))
        hashes.append(task.data_hash(task.examples("en")))
    assert hashes[0] != hashes[1]
