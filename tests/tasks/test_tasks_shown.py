"""Tasks where they are chosen: the worker's list, the command line and the dashboard, whatever is missing."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.checked_jobs import checked_fields
from support.expected_errors import raises
from support.tiny_models import tiny_model
from support.tiny_task import tiny_tokenizer
from typer.testing import CliRunner

from headlab.cli.run import build
from headlab.dashboard.frame import sidebar, task_languages
from headlab.evaluation import NO_TARGET, WordInputs
from headlab.tasks import TASKS, Example, Split, Task, task_names
from headlab.worker import catalogue
from headlab.worker.schemas import SentencesRequest

ROOT = Path(__file__).parents[2]
Declare = Callable[[str], Path]
DECLARATION_LINES = (
    'format = "csv"\nfiles = "{language}.{split}.csv"\ncolumns = { text = "t", label = "l" }\n'
)


@pytest.fixture
def declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Declare:
    """A declared task `mine` with one German dev row and the files given, named by the operator."""
    monkeypatch.delenv("HEADLAB_DATA", raising=False)

    def write(rows: str = "t,l\nja,1\n") -> Path:
        (tmp_path / "de.dev.csv").write_text(rows, "utf-8")
        (tmp_path / "mine.toml").write_text('name = "mine"\n' + DECLARATION_LINES, "utf-8")
        (tmp_path / "broken.toml").write_text("x =", "utf-8")
        paths = [str(tmp_path / f"{name}.toml") for name in ("mine", "broken")]
        monkeypatch.setenv("HEADLAB_TASKS", os.pathsep.join(paths))
        return tmp_path / "mine.toml"

    return write


def test_the_worker_lists_every_task_and_says_what_is_missing(declare: Declare) -> None:
    declare()
    cards = {card.name: card for card in catalogue.tasks()}
    assert tuple(cards) == (*TASKS, "mine")
    assert cards["mine"].languages == ["de"]
    assert cards["mine"].labels == ["1"]
    assert cards["mine"].advice == ""
    tasks_without_data = []
    for name, card in cards.items():
        if "set HEADLAB_DATA" in card.advice:
            tasks_without_data.append(name)
    assert tasks_without_data == ["xnli", "udpos", "translation", "lm"]
    tasks_without_labels = {name for name, card in cards.items() if not card.labels}
    # in these, texts are written or continued
    assert tasks_without_labels == {
        "translation",
        "lm",
        "repeats",
        "ioi",
        "agreement",
        "needle",
    }
    assert all(card.languages for card in cards.values())


def test_a_task_whose_files_are_broken_does_not_hide_the_others(declare: Declare) -> None:
    declare("t,l\nja\n")
    cards = {card.name: card for card in catalogue.tasks()}
    assert cards["mine"].languages == []
    assert cards["mine"].labels == []
    assert "de.dev.csv, line 2: 1 fields" in cards["mine"].advice
    assert cards["slots"].advice == ""


def test_no_request_reaches_a_declaration_by_its_path(declare: Declare) -> None:
    path = declare()
    (sentence,) = catalogue.sentences(SentencesRequest(task="mine", language="de"))
    assert sentence.text == "ja"
    for name in (str(path), f"../{path.parent.name}/mine.toml", "mine.toml", "broken"):
        with raises("task.unknown"):
            catalogue.sentences(SentencesRequest(task=name, language="de"))
        with raises("task.unknown"):
            checked_fields("score", {"model": "e5-small-intents", "task": name, "languages": "all"})


def test_the_worker_makes_tasks_by_name_only() -> None:
    """`headlab.tasks.task` takes no path; what takes one stays out of the worker and the dashboard."""
    for package in ("worker", "dashboard"):
        modules = sorted((ROOT / "headlab" / package).rglob("*.py"))
        assert modules
        for path in modules:
            source = path.read_text(encoding="utf-8")
            assert not re.search(
                r"tasks\.(resolve|declared)|headlab\.task\(|import resolve\b|declared_(?:task|source)|read_declaration",
                source,
            ), path


def test_sentences_of_a_token_task_have_words_and_their_labels() -> None:
    sentences = catalogue.sentences(SentencesRequest(task="slots", language="th", n=40))
    for sentence in sentences:
        assert sentence.label is None
        assert len(sentence.words) == len(sentence.labels) > 0
    labels = {label for sentence in sentences for label in sentence.labels}
    assert {"O", "name"} <= labels
    (intent,) = catalogue.sentences(SentencesRequest(task="intents", language="th", n=1))
    assert intent.words == []
    assert intent.labels == []
    assert intent.label


def test_the_command_line_lists_where_examples_come_from(
    declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_task = {name: TASKS[name] for name in ("udpos",)}
    monkeypatch.setattr("headlab.tasks.registry.TASKS", one_task)
    path = declare()
    ud = path.parent / "ud"
    ud.mkdir()
    (ud / "de.test.conllu").write_text("1\tJa\t_\tINTJ" + "\t_" * 6 + "\n", "utf-8")
    command = ["tasks", "--json", "--data", str(path.parent)]
    result = CliRunner().invoke(build(), command)
    printed = json.loads(result.stdout)
    udpos, mine = printed["tasks"]
    assert udpos["name"] == "udpos"
    assert udpos["languages"] == ["de"]
    assert udpos["here"] is True
    assert udpos["sizes"] == {"train": 0, "test": 1}
    assert "de.dev.conllu" in udpos["advice"]
    assert mine["name"] == "mine"
    assert mine["sizes"] == {"train": 0, "dev": 1}
    (problem,) = printed["problems"]
    assert "broken.toml" in problem
    printed_list = CliRunner().invoke(build(), ["tasks"]).stdout
    assert "! the data of task udpos are in no folder here: set HEADLAB_DATA" in printed_list
    assert "! HEADLAB_TASKS: " in printed_list
    printed_task = CliRunner().invoke(build(), ["tasks", "--task", str(path)]).stdout
    assert printed_task.startswith("mine: 1 labels (1)")
    assert f"examples: {path.parent}, as mine.toml declares" in printed_task


def test_the_dashboard_offers_declared_tasks_and_says_what_is_missing(declare: Declare) -> None:
    declare()
    assert task_languages("mine") == ["de"]
    assert "is not valid TOML" in " ".join(sidebar.notes_on_task("mine"))
    assert "set HEADLAB_DATA" in sidebar.notes_on_task("xnli")[0]
    declare("t,l\nja\n")
    assert "line 2: 1 fields" in sidebar.notes_on_task("mine")[0]
    assert task_names()[-1] == "mine"


def test_words_with_spaces_and_words_of_several_tokens_are_each_judged_once() -> None:
    def read(language: str, split: Split, seed: int) -> list[Example]:
        return [Example("0", "w4 w5 w6", words=("w4 w5", "w6"), labels=(1, 0))]

    model = tiny_model("bert-tokens", tokenizer=tiny_tokenizer())
    task = Task("t", ("a", "b", "c", "d", "e"), ("xx",), False, read)
    inputs = WordInputs(model, task, task.examples("xx"))
    np.testing.assert_array_equal(inputs.answers, [1, 0])
    (targets,) = inputs.targets(np.array([0])).tolist()
    assert targets == [NO_TARGET, 1, NO_TARGET, 0, NO_TARGET]


def test_examples_of_language_models_are_shown_with_what_is_right() -> None:
    (ioi,) = catalogue.sentences(SentencesRequest(task="ioi", language="en", split="dev", n=1))
    (repeats,) = catalogue.sentences(
        SentencesRequest(task="repeats", language="en", split="dev", n=1)
    )
    example = TASKS["ioi"](None).examples("en")[0]
    assert ioi.text == example.text
    assert f" {ioi.label}" == example.choices[example.label]
    words = repeats.text.removeprefix("Words: ").split()
    assert words[:28] == words[28:]
    assert repeats.label is None
