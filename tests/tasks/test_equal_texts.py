"""Equal texts: how rows are divided, what is counted of texts in dev and test, and where a result says it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.saved_models import save_classifier
from typer.testing import CliRunner

from headlab.cli.run import build
from headlab.report.build import document, find_results, html_of_document
from headlab.results import Store
from headlab.tasks import (
    SAVED_FOLDER,
    SPLITS,
    Draft,
    Example,
    Split,
    Task,
    Upload,
    count_equal_texts,
    equal_texts,
    read_declaration,
    save_task,
    task,
)
from headlab.tasks.equal_texts import DividedRow, comparable, dev_rows, text_of
from headlab.tasks.intents.classes import LABELS
from headlab.tasks.own import DraftCheck, check_draft

COLUMNS = {"text": "text", "label": "label"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HEADLAB_TASKS", raising=False)
    return tmp_path / "cache"


def labelled_rows(texts: Iterable[str]) -> list[dict[str, object]]:
    """Rows of these texts, whose labels are a and b in turn."""
    rows: list[dict[str, object]] = []
    for index, text in enumerate(texts):
        label = "ab"[index % 2]
        rows.append({"text": text, "label": label})
    return rows


def upload(
    rows: list[dict[str, object]],
    language: str | None = "de",
    split: Split | None = None,
    name: str = "",
) -> Upload:
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    content = "\n".join(lines).encode()
    file_name = name or f"{language}.{split}.jsonl"
    return Upload(file_name, content, language, split)


def check_divided_rows(
    rows: list[dict[str, object]],
    columns: dict[str, str] = COLUMNS,
    **draft_settings: object,
) -> DraftCheck:
    files = (upload(rows),)
    draft = Draft("mine", "jsonl", columns, files, share=0.5)
    changed_draft = replace(draft, **draft_settings)  # type: ignore[arg-type]
    return check_draft(changed_draft)


def column_values(file: bytes, column: str) -> list[str]:
    """The values of a column of a JSON Lines file, each as JSON."""
    values = []
    for line in file.decode().splitlines():
        row = json.loads(line)
        value = json.dumps(row[column], ensure_ascii=False)
        values.append(value)
    return values


def values_by_file(draft_check: DraftCheck, column: str = "text") -> dict[str, list[str]]:
    """The values of a column, each as JSON, by the name of the file."""
    assert not draft_check.errors, draft_check.errors
    values = {}
    for name, file in draft_check.files.items():
        values[name] = column_values(file, column)
    return values


def shared_values(
    draft_check: DraftCheck,
    language: str = "de",
    column: str = "text",
) -> set[str]:
    """The values of a column that dev and test both have."""
    values = values_by_file(draft_check, column)
    dev_values = values[f"{language}.dev.jsonl"]
    test_values = values[f"{language}.test.jsonl"]
    return {*dev_values} & {*test_values}


# The division by share.


def test_reported_11_equal_texts_go_to_the_same_side() -> None:
    rows = labelled_rows(f"say {n % 9}" for n in range(40))
    draft_check = check_divided_rows(rows)
    check_of_version_1 = check_divided_rows(rows, division=1)
    assert shared_values(check_of_version_1)
    assert not shared_values(draft_check)
    sizes = draft_check.sizes
    assert sum(sizes.values()) == 40
    assert abs(sizes["de", "dev"] - 20) <= 3
    phrase = "40 rows have the text of another row"
    assert any(phrase in note for note in draft_check.notes)


def with_other_spaces(text: str) -> str:
    return text.replace(" ", "\u00a0")


def decomposed(text: str) -> str:
    return text.replace("ü", "u\u0308")


@pytest.mark.parametrize(
    "variant",
    [
        str.upper,
        "  {} ".format,
        with_other_spaces,
        decomposed,
    ],
    ids=["case", "outer spaces", "other spaces", "decomposed"],
)
def test_reported_11_texts_are_compared_without_case_spaces_and_unicode_form(
    variant: Callable[[str], str],
) -> None:
    texts = [f"prüfe  das {number}" for number in range(20)]
    rows = [{"text": text, "label": "a"} for text in texts]
    rows += [{"text": variant(text), "label": "b"} for text in texts]
    values = values_by_file(check_divided_rows(rows))
    dev = {comparable(json.loads(text)) for text in values["de.dev.jsonl"]}
    test = {comparable(json.loads(text)) for text in values["de.test.jsonl"]}
    assert len(dev) == len(test) == 10
    assert not dev & test


def test_reported_11_a_pair_is_equal_when_both_texts_are() -> None:
    rows = []
    for n in range(60):
        row = {
            "text": f"a {n % 3}",
            "pair": f"b {n % 10}",
            "label": "xy"[n % 2],
        }
        rows.append(row)
    columns = COLUMNS | {"pair": "pair"}
    draft_check = check_divided_rows(rows, columns)
    files_by_pair: dict[tuple[str, str], set[str]] = {}
    for name, data in draft_check.files.items():
        for line in data.decode().splitlines():
            row = json.loads(line)
            pair = (row["text"], row["pair"])
            files = files_by_pair.setdefault(pair, set())
            files.add(name)
    assert len(files_by_pair) == 30
    assert all(len(files) == 1 for files in files_by_pair.values())
    assert shared_values(draft_check)  # a first text alone may be on both sides


def test_reported_11_sentences_of_labelled_words_are_texts() -> None:
    rows = []
    for n in range(32):
        words = ["go", str(n % 8)]
        labels = ["V", "ON"[n % 2]]
        rows.append({"words": words, "labels": labels})
    columns = {"words": "words", "labels": "labels"}
    draft_check = check_divided_rows(rows, columns)
    assert not shared_values(draft_check, column="words")


def test_reported_11_choices_are_equal_in_any_order_and_lm_texts_are_their_targets() -> None:
    choice_rows = []
    for n in range(32):
        choices = ["yes", "no"] if n % 2 else ["no", "yes"]
        row = {
            "context": f"so {n % 8}",
            "choices": choices,
            "answer": 0,
        }
        choice_rows.append(row)
    columns = {
        "context": "context",
        "choices": "choices",
        "answer": "answer",
    }
    choice_check = check_divided_rows(choice_rows, columns)
    assert not shared_values(choice_check, column="context")
    text_rows = [{"text": f"a line {n % 8}"} for n in range(32)]
    text_check = check_divided_rows(text_rows, {"text": "text"})
    assert not shared_values(text_check)
    pair_rows = []
    for n in range(32):
        text = f"ein Satz {n % 8}"
        target = f"a sentence {n}"
        pair_rows.append({"text": text, "target": target})
    columns = {"text": "text", "target": "target"}
    pair_check = check_divided_rows(pair_rows, columns)
    assert not shared_values(pair_check)


def test_reported_11_groups_with_an_equal_text_are_tied() -> None:
    rows = []
    for n in range(40):
        row = {
            "text": f"say {n}",
            "label": "ab"[n % 2],
            "prompt": f"p{n // 4}",
        }
        rows.append(row)
    rows[39]["text"] = rows[0]["text"]
    columns = COLUMNS | {"group": "prompt"}
    draft_check = check_divided_rows(rows, columns)
    groups = values_by_file(draft_check, "prompt")
    dev = {*groups["de.dev.jsonl"]}
    test = {*groups["de.test.jsonl"]}
    assert not dev & test
    tied_groups = {'"p0"', '"p9"'}
    assert tied_groups <= dev or tied_groups <= test


def row_number(text: str) -> int:
    """The number at the end of a text that is quoted as JSON."""
    _, number = text.split()
    return int(number.removesuffix('"'))


def test_reported_11_equal_texts_in_one_language_tie_the_rows_of_an_aligned_task() -> None:
    german = labelled_rows(f"sag {n}" for n in range(30))
    french = labelled_rows(f"dis {n}" for n in range(30))
    german[7]["text"] = german[3]["text"]
    french[20]["text"] = french[7]["text"]
    rows_with_equal_texts = {3, 7, 20}
    files = (upload(german, "de"), upload(french, "fr"))
    for ordered_files in (files, files[::-1]):
        draft_check = check_divided_rows([], files=ordered_files, aligned=True)
        texts = values_by_file(draft_check)
        german_dev = set(map(row_number, texts["de.dev.jsonl"]))
        tied_rows_in_dev = german_dev & {3, 20}
        assert tied_rows_in_dev in ({3, 20}, set())
        assert not shared_values(draft_check, "de")
        assert not shared_values(draft_check, "fr")
        # row i is on one side in every language
        french_dev = set(map(row_number, texts["fr.dev.jsonl"]))
        other_german_rows = german_dev - rows_with_equal_texts
        other_french_rows = french_dev - rows_with_equal_texts
        assert other_german_rows == other_french_rows
        sizes = draft_check.sizes
        assert sizes["de", "dev"] == sizes["fr", "dev"]


def test_reported_11_one_file_given_for_two_languages_is_said_and_divided_alike() -> None:
    rows = labelled_rows(f"say {n}" for n in range(20))
    german_file = upload(rows, "de")
    french_file = upload(rows[::-1], "fr")
    draft_check = check_divided_rows([], files=(german_file, french_file))
    texts = values_by_file(draft_check)
    assert {*texts["de.dev.jsonl"]} == {*texts["fr.dev.jsonl"]}
    phrase = "20 of the 20 texts in fr are in de too"
    assert any(phrase in note for note in draft_check.notes)


def test_reported_11_every_language_keeps_dev_and_test_where_it_can() -> None:
    rows = labelled_rows(["same"] * 18)
    rows += [
        {"text": "x", "label": "a"},
        {"text": "y", "label": "b"},
    ]
    for share in (0.1, 0.5, 0.9):
        draft_check = check_divided_rows(rows, share=share)
        assert set(draft_check.sizes) == {("de", "dev"), ("de", "test")}
    rows_of_one_text = labelled_rows(["same"] * 6)
    check_of_one_text = check_divided_rows(rows_of_one_text)
    assert check_of_one_text.sizes == {("de", "dev"): 6}


def test_reported_11_without_equal_texts_the_division_is_that_of_version_1() -> None:
    rows = labelled_rows(f"say {n}" for n in range(31))
    for share in (0.1, 0.35, 0.5, 0.9):
        draft_check = check_divided_rows(rows, share=share)
        check_of_version_1 = check_divided_rows(rows, share=share, division=1)
        assert draft_check.files == check_of_version_1.files


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.sampled_from(["", "g", "h"]),
            st.integers(0, 12),
        ),
        min_size=1,
    ),
    st.floats(0.05, 0.95),
    st.booleans(),
)
def test_reported_11_no_text_and_no_group_is_ever_on_both_sides(
    languages_groups_and_numbers: list[tuple[str, str, int]],
    share: float,
    is_aligned: bool,
) -> None:
    rows = []
    for language, group, number in languages_groups_and_numbers:
        text = (str(number),)
        rows.append(DividedRow(0, language, group, text))
    dev_indices = dev_rows(rows, share, is_aligned=is_aligned, version=2)
    dev = []
    test = []
    for index, row in enumerate(rows):
        if index in dev_indices:
            dev.append(row)
        else:
            test.append(row)
    dev_texts = {row.text for row in dev}
    test_texts = {row.text for row in test}
    assert not dev_texts & test_texts
    dev_groups = {row.group for row in dev}
    test_groups = {row.group for row in test}
    assert not dev_groups & test_groups - {""}
    assert {row.language for row in rows} == {row.language for row in dev}


# Tasks as headlab saved them at 8cdf9dd, where a division had no version.

EARLIER_LINES = [f"sag {n % 7},{'ab'[n % 2]},{n // 2}\n" for n in range(16)]
EARLIER_ROWS = "text,label,prompt\n" + "".join(EARLIER_LINES)
ALIGNED_DEV_ROWS = [0, 1, 3, 6, 11, 14]
GROUPED_DEV_ROWS = [2, 3, 6, 7, 14, 15]
EARLIER_DECLARATION = """name = "mine"
format = "csv"
files = "{language}.{split}.csv"
labels = ["a", "b"]
aligned = true

[columns]
text = "text"
label = "label"
"""


def earlier_draft(has_groups: bool) -> Draft:
    """A draft with the division of version 1, as earlier programs send it."""
    german = Upload("de.csv", EARLIER_ROWS.encode(), "de")
    french_rows = EARLIER_ROWS.replace("sag", "dis")
    french = Upload("fr.csv", french_rows.encode(), "fr")
    if has_groups:
        columns = COLUMNS | {"group": "prompt"}
        return Draft("mine", "csv", columns, (german,), share=0.4, division=1)
    return Draft(
        "mine",
        "csv",
        COLUMNS,
        (german, french),
        aligned=True,
        share=0.4,
        division=1,
    )


@pytest.mark.parametrize(
    ("has_groups", "dev_row_numbers"),
    [
        (False, ALIGNED_DEV_ROWS),
        (True, GROUPED_DEV_ROWS),
    ],
)
def test_reported_11_a_division_of_version_1_is_byte_for_byte_the_same(
    has_groups: bool, dev_row_numbers: list[int]
) -> None:
    draft_check = check_draft(earlier_draft(has_groups))
    header, *lines = EARLIER_ROWS.encode().splitlines(keepends=True)
    dev_lines = [lines[row] for row in dev_row_numbers]
    test_lines = []
    for row, line in enumerate(lines):
        if row not in dev_row_numbers:
            test_lines.append(line)
    files = draft_check.files
    assert files["de.dev.csv"] == header + b"".join(dev_lines)
    assert files["de.test.csv"] == header + b"".join(test_lines)
    if not has_groups:
        assert draft_check.declaration == EARLIER_DECLARATION


def test_reported_11_an_earlier_task_stays_when_its_file_is_sent_again(cache: Path) -> None:
    folder = cache / SAVED_FOLDER / "mine"
    draft = earlier_draft(has_groups=False)
    save_task(draft, cache)
    saved_files = content_by_name(folder)
    draft_check = save_task(replace(draft, division=2), cache)
    assert content_by_name(folder) == saved_files
    assert draft_check.sizes["de", "dev"] == len(ALIGNED_DEV_ROWS)
    assert read_declaration(folder / "mine.toml").division is None


def content_by_name(folder: Path) -> dict[str, bytes]:
    """What is in the files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_reported_11_a_new_declaration_names_the_version(cache: Path) -> None:
    draft = earlier_draft(has_groups=False)
    save_task(replace(draft, division=2), cache)
    declaration_file = cache / SAVED_FOLDER / "mine" / "mine.toml"
    declaration = read_declaration(declaration_file)
    assert declaration.division == 2
    saved_task = task("mine")
    dev = {example.text for example in saved_task.examples("de", "dev")}
    test = {example.text for example in saved_task.examples("de", "test")}
    assert not dev & test


# Dev and test are both given: how many of their texts are equal, said once, by one function.


def examples(*texts: str, label: int = 0) -> list[Example]:
    made_examples = []
    for number, text in enumerate(texts):
        made_examples.append(Example(str(number), text, label))
    return made_examples


def test_reported_11_counts_are_of_the_examples_of_the_result() -> None:
    examples_by_split = {
        "dev": examples("a", "b", "c", "D "),
        "test": examples("d", "c", "e", label=1),
        "train": examples("e"),
    }

    def read(language: str, split: Split, seed: int) -> list[Example]:
        return examples_by_split[split]

    toy_task = Task("toy", ("x", "y"), ("en",), False, read)
    dev = examples_by_split["dev"]
    test = examples_by_split["test"]
    (count,) = equal_texts(toy_task, "en", "dev", dev)
    assert count.record() == {"examples": 4, "equal": 2, "contradicted": 2}
    (count_of_three,) = equal_texts(toy_task, "en", "dev", dev[:3])
    assert count_of_three.record() == {"examples": 3, "equal": 1, "contradicted": 1}
    (test_count,) = equal_texts(toy_task, "en", "test", test)
    expected_note = "2 of the 3 test texts are in dev too, 2 of them with another answer"
    assert test_count.note.startswith(expected_note)


def test_reported_11_nothing_is_fetched_for_the_count() -> None:
    def read(language: str, split: Split, seed: int) -> list[Example]:
        assert split == "dev", "the other split would be fetched"
        return examples("a")

    def is_present(language: str, split: Split) -> bool:
        return split == "dev"

    toy_task = Task("toy", ("x", "y"), ("en",), False, read, present=is_present)
    english = toy_task.examples("en")
    assert equal_texts(toy_task, "en", "dev", english) == ()


def test_reported_11_which_texts_of_an_example_are_compared() -> None:
    pair = Example("1", "A  b", pair="C")
    assert text_of(pair) == ("a b", "c")
    words = Example("1", "a b", words=("a", "b"), labels=(0, 1))
    assert text_of(words) == ("a b",)
    continued_text = Example("1", "", target="The end")
    assert text_of(continued_text) == ("the end",)
    translated_text = Example("1", "x", target="the end")
    assert text_of(translated_text) == ("x",)
    choice = Example("1", "", 0, choices=(" b", " a"))
    assert text_of(choice) == ("", "a", "b")
    count = count_equal_texts(examples("a"), "dev", examples("b"), "test")
    assert not count.note


@pytest.fixture
def declaration(tmp_path: Path) -> Path:
    """A task of which three of ten test texts are dev texts too, one of them with another label."""
    folder = tmp_path / "twice"
    folder.mkdir()
    dev_rows = [f"turn {n},{LABELS[n % 3]}" for n in range(10)]
    test_rows = [
        f"Turn  0,{LABELS[0]}",
        f"turn 1,{LABELS[1]}",
        f"turn 2,{LABELS[0]}",
    ]
    test_rows += [f"leave {n},{LABELS[n % 3]}" for n in range(7)]
    for split, rows in (("dev", dev_rows), ("test", test_rows)):
        lines = ["text,label", *rows]
        table = "\n".join(lines) + "\n"
        (folder / f"de.{split}.csv").write_text(table, "utf-8")
    declaration = (
        'name = "twice"',
        'format = "csv"',
        'files = "{language}.{split}.csv"',
        "[columns]",
        'text = "text"',
        'label = "label"',
    )
    (folder / "twice.toml").write_text("\n".join(declaration) + "\n")
    return folder / "twice.toml"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    return save_classifier(folder / "mine")


def run_headlab(*arguments: object) -> tuple[dict[str, object], str]:
    """What a command prints as JSON, and what it says on stderr."""
    command = [*map(str, arguments), "--json"]
    result = CliRunner().invoke(build(), command)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), result.stderr


def counts_of_german(printed: Any) -> Any:
    return printed["languages"]["de"]["equal_texts"]


EXPECTED_COUNTS = {"examples": 10, "equal": 3, "contradicted": 1}


@pytest.mark.parametrize(
    ("split", "other_split"),
    [
        ("dev", "test"),
        ("test", "dev"),
    ],
)
def test_reported_11_evaluate_says_the_number(
    declaration: Path, model: Path, split: str, other_split: str
) -> None:
    evaluation, messages = run_headlab(
        "evaluate", "--model", model, "--task", declaration, "--split", split
    )
    expected_counts = {other_split: EXPECTED_COUNTS}
    assert counts_of_german(evaluation) == expected_counts
    assert messages.count(f"de: 3 of the 10 {split} texts are in {other_split} too") == 1


def test_reported_11_score_curve_prune_and_the_report_say_the_number(
    declaration: Path, model: Path, cache: Path
) -> None:
    arguments = ("--model", model, "--task", declaration, "--cache", cache)
    arguments = (*arguments, "--method", "leave-one-out")
    scores, messages = run_headlab("score", *arguments)
    assert counts_of_german(scores) == {"test": EXPECTED_COUNTS}
    assert "de: 3 of the 10 dev texts are in test too" in messages
    scores_again, _ = run_headlab("score", *arguments)
    assert scores_again == scores
    curve, _ = run_headlab("curve", *arguments)
    assert counts_of_german(curve) == {"dev": EXPECTED_COUNTS}
    mask_file = cache / "mask.json"
    rule = ("--rule", "bottom", "--k", 1)
    pruning, _ = run_headlab("prune", *arguments, *rule, "--out", mask_file)
    assert counts_of_german(pruning) == {"dev": EXPECTED_COUNTS}

    store = Store(cache)
    result_names = []
    for folder in store.folders():
        if (folder / "result.npz").exists():
            result_names.append(folder.name)
    results = find_results(result_names, store)
    page = html_of_document(document(results)).decode()
    assert page.count("de: 3 of the 10 dev texts are in test too") == 1
    assert page.count("de: 3 of the 10 test texts are in dev too") == 1
    assert "equal_texts" not in page
    mask_results = find_results([str(mask_file)], store)
    page_of_mask = html_of_document(document(mask_results)).decode()
    assert "3 of the 10 test texts are in dev too" in page_of_mask


def test_reported_11_the_page_is_told_the_number_and_the_contradictions() -> None:
    dev_rows = labelled_rows(f"say {n}" for n in range(10))
    test_rows = [{"text": "say 0", "label": "b"}, *dev_rows[:4]]
    dev_file = upload(dev_rows, "de", "dev")
    test_file = upload(test_rows, "de", "test")
    draft = Draft("mine", "jsonl", COLUMNS, (dev_file, test_file))
    draft_check = check_draft(draft)
    expected_note = (
        "de: 5 of the 5 test texts are in dev too, 1 of them with another answer, "
        "so figures on test are not"
    )
    assert [note for note in draft_check.notes if note.startswith(expected_note)]
    (contradiction,) = [note for note in draft_check.notes if "different answers" in note]
    assert "de.dev.jsonl, line 1 and de.test.jsonl, line 1" in contradiction


def test_reported_11_files_without_equal_texts_say_nothing() -> None:
    files = []
    for split in SPLITS:
        rows = labelled_rows(f"{split} {n}" for n in range(6))
        files.append(upload(rows, "de", split))
    draft = Draft("mine", "jsonl", COLUMNS, tuple(files))
    draft_check = check_draft(draft)
    assert draft_check.notes == ()
    label_counts = np.array([*draft_check.label_counts.values()])
    assert label_counts.sum() == 18
