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

from headlab.cli.main import build
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
from headlab.tasks.intents.templates import LABELS
from headlab.tasks.own import DraftCheck, check_draft

COLUMNS = {"text": "text", "label": "label"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HEADLAB_TASKS", raising=False)
    return tmp_path / "cache"


def labelled_rows(texts: Iterable[str]) -> list[dict[str, object]]:
    """Rows of these texts, whose labels are a and b in turn."""
    return [{"text": text, "label": "ab"[index % 2]} for index, text in enumerate(texts)]


def upload(
    rows: list[dict[str, object]],
    language: str | None = "de",
    split: Split | None = None,
    name: str = "",
) -> Upload:
    lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    return Upload(name or f"{language}.{split}.jsonl", lines.encode(), language, split)


def check_divided_rows(
    rows: list[dict[str, object]], columns: dict[str, str] = COLUMNS, **draft_settings: object
) -> DraftCheck:
    draft = Draft("mine", "jsonl", columns, (upload(rows),), share=0.5)
    return check_draft(replace(draft, **draft_settings))  # type: ignore[arg-type]


def column_values(file: bytes, column: str) -> list[str]:
    """The values of a column of a JSON Lines file, each as JSON."""
    rows = [json.loads(line) for line in file.decode().splitlines()]
    return [json.dumps(row[column], ensure_ascii=False) for row in rows]


def values_by_file(draft_check: DraftCheck, column: str = "text") -> dict[str, list[str]]:
    """The values of a column, each as JSON, by the name of the file."""
    assert not draft_check.errors, draft_check.errors
    return {name: column_values(file, column) for name, file in draft_check.files.items()}


def shared_values(draft_check: DraftCheck, language: str = "de", column: str = "text") -> set[str]:
    """The values of a column that dev and test both have."""
    values = values_by_file(draft_check, column)
    return {*values[f"{language}.dev.jsonl"]} & {*values[f"{language}.test.jsonl"]}


# The division by share.


def test_reported_11_equal_texts_go_to_the_same_side() -> None:
    rows = labelled_rows(f"say {n % 9}" for n in range(40))
    draft_check = check_divided_rows(rows)
    assert shared_values(check_divided_rows(rows, division=1))
    assert not shared_values(draft_check)
    assert sum(draft_check.sizes.values()) == 40
    assert abs(draft_check.sizes["de", "dev"] - 20) <= 3
    assert any("40 rows have the text of another row" in note for note in draft_check.notes)


@pytest.mark.parametrize(
    "variant",
    [
        str.upper,
        "  {} ".format,
        lambda text: text.replace(" ", "\u00a0"),
        lambda text: text.replace("ü", "u\u0308"),
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
    rows = [{"text": f"a {n % 3}", "pair": f"b {n % 10}", "label": "xy"[n % 2]} for n in range(60)]
    draft_check = check_divided_rows(rows, COLUMNS | {"pair": "pair"})
    files_by_pair: dict[tuple[str, str], set[str]] = {}
    for name, data in draft_check.files.items():
        for line in data.decode().splitlines():
            row = json.loads(line)
            files_by_pair.setdefault((row["text"], row["pair"]), set()).add(name)
    assert len(files_by_pair) == 30
    assert all(len(files) == 1 for files in files_by_pair.values())
    assert shared_values(draft_check)  # a first text alone may be on both sides


def test_reported_11_sentences_of_labelled_words_are_texts() -> None:
    rows = [{"words": ["go", str(n % 8)], "labels": ["V", "ON"[n % 2]]} for n in range(32)]
    draft_check = check_divided_rows(rows, {"words": "words", "labels": "labels"})
    assert not shared_values(draft_check, column="words")


def test_reported_11_choices_are_equal_in_any_order_and_lm_texts_are_their_targets() -> None:
    choice_rows = []
    for n in range(32):
        choices = ["yes", "no"] if n % 2 else ["no", "yes"]
        choice_rows.append({"context": f"so {n % 8}", "choices": choices, "answer": 0})
    columns = {"context": "context", "choices": "choices", "answer": "answer"}
    assert not shared_values(check_divided_rows(choice_rows, columns), column="context")
    text_rows = [{"text": f"a line {n % 8}"} for n in range(32)]
    assert not shared_values(check_divided_rows(text_rows, {"text": "text"}))
    pair_rows = [{"text": f"ein Satz {n % 8}", "target": f"a sentence {n}"} for n in range(32)]
    columns = {"text": "text", "target": "target"}
    assert not shared_values(check_divided_rows(pair_rows, columns))


def test_reported_11_groups_with_an_equal_text_are_tied() -> None:
    rows = [{"text": f"say {n}", "label": "ab"[n % 2], "prompt": f"p{n // 4}"} for n in range(40)]
    rows[39]["text"] = rows[0]["text"]
    groups = values_by_file(check_divided_rows(rows, COLUMNS | {"group": "prompt"}), "prompt")
    dev = {*groups["de.dev.jsonl"]}
    test = {*groups["de.test.jsonl"]}
    assert not dev & test
    assert {'"p0"', '"p9"'} <= dev or {'"p0"', '"p9"'} <= test


def row_number(text: str) -> int:
    """The number at the end of a text that is quoted as JSON."""
    return int(text.split()[1].removesuffix('"'))


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
        german_dev = {row_number(text) for text in texts["de.dev.jsonl"]}
        assert german_dev & {3, 20} in ({3, 20}, set())
        assert not shared_values(draft_check, "de")
        assert not shared_values(draft_check, "fr")
        # row i is on one side in every language
        french_dev = {row_number(text) for text in texts["fr.dev.jsonl"]}
        assert german_dev - rows_with_equal_texts == french_dev - rows_with_equal_texts
        assert draft_check.sizes["de", "dev"] == draft_check.sizes["fr", "dev"]


def test_reported_11_one_file_given_for_two_languages_is_said_and_divided_alike() -> None:
    rows = labelled_rows(f"say {n}" for n in range(20))
    draft_check = check_divided_rows([], files=(upload(rows, "de"), upload(rows[::-1], "fr")))
    texts = values_by_file(draft_check)
    assert {*texts["de.dev.jsonl"]} == {*texts["fr.dev.jsonl"]}
    assert any("20 of the 20 texts in fr are in de too" in note for note in draft_check.notes)


def test_reported_11_every_language_keeps_dev_and_test_where_it_can() -> None:
    rows = labelled_rows(["same"] * 18)
    rows += [{"text": "x", "label": "a"}, {"text": "y", "label": "b"}]
    for share in (0.1, 0.5, 0.9):
        draft_check = check_divided_rows(rows, share=share)
        assert set(draft_check.sizes) == {("de", "dev"), ("de", "test")}
    rows_of_one_text = labelled_rows(["same"] * 6)
    assert check_divided_rows(rows_of_one_text).sizes == {("de", "dev"): 6}


def test_reported_11_without_equal_texts_the_division_is_that_of_version_1() -> None:
    rows = labelled_rows(f"say {n}" for n in range(31))
    for share in (0.1, 0.35, 0.5, 0.9):
        draft_check = check_divided_rows(rows, share=share)
        assert draft_check.files == check_divided_rows(rows, share=share, division=1).files


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from(["", "g", "h"]), st.integers(0, 12)),
        min_size=1,
    ),
    st.floats(0.05, 0.95),
    st.booleans(),
)
def test_reported_11_no_text_and_no_group_is_ever_on_both_sides(
    languages_groups_and_numbers: list[tuple[str, str, int]], share: float, is_aligned: bool
) -> None:
    rows = [
        DividedRow(0, language, group, (str(number),))
        for language, group, number in languages_groups_and_numbers
    ]
    dev_indices = dev_rows(rows, share, is_aligned=is_aligned, version=2)
    dev = [row for index, row in enumerate(rows) if index in dev_indices]
    test = [row for index, row in enumerate(rows) if index not in dev_indices]
    assert not {row.text for row in dev} & {row.text for row in test}
    assert not {row.group for row in dev} & {row.group for row in test} - {""}
    assert {row.language for row in rows} == {row.language for row in dev}


# Tasks as headlab saved them at 8cdf9dd, where a division had no version.

EARLIER_ROWS = "text,label,prompt\n" + "".join(
    f"sag {n % 7},{'ab'[n % 2]},{n // 2}\n" for n in range(16)
)
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
    french = Upload("fr.csv", EARLIER_ROWS.replace("sag", "dis").encode(), "fr")
    if has_groups:
        columns = COLUMNS | {"group": "prompt"}
        return Draft("mine", "csv", columns, (german,), share=0.4, division=1)
    return Draft("mine", "csv", COLUMNS, (german, french), aligned=True, share=0.4, division=1)


@pytest.mark.parametrize(
    ("has_groups", "dev_row_numbers"), [(False, ALIGNED_DEV_ROWS), (True, GROUPED_DEV_ROWS)]
)
def test_reported_11_a_division_of_version_1_is_byte_for_byte_the_same(
    has_groups: bool, dev_row_numbers: list[int]
) -> None:
    draft_check = check_draft(earlier_draft(has_groups))
    header, *lines = EARLIER_ROWS.encode().splitlines(keepends=True)
    dev_lines = [lines[row] for row in dev_row_numbers]
    test_lines = [line for row, line in enumerate(lines) if row not in dev_row_numbers]
    assert draft_check.files["de.dev.csv"] == header + b"".join(dev_lines)
    assert draft_check.files["de.test.csv"] == header + b"".join(test_lines)
    if not has_groups:
        assert draft_check.declaration == EARLIER_DECLARATION


def test_reported_11_an_earlier_task_stays_when_its_file_is_sent_again(cache: Path) -> None:
    folder = cache / SAVED_FOLDER / "mine"
    save_task(earlier_draft(has_groups=False), cache)
    saved_files = {path.name: path.read_bytes() for path in folder.iterdir()}
    draft_check = save_task(replace(earlier_draft(has_groups=False), division=2), cache)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == saved_files
    assert draft_check.sizes["de", "dev"] == len(ALIGNED_DEV_ROWS)
    assert read_declaration(folder / "mine.toml").division is None


def test_reported_11_a_new_declaration_names_the_version(cache: Path) -> None:
    save_task(replace(earlier_draft(has_groups=False), division=2), cache)
    declaration = read_declaration(cache / SAVED_FOLDER / "mine" / "mine.toml")
    assert declaration.division == 2
    saved_task = task("mine")
    dev = {example.text for example in saved_task.examples("de", "dev")}
    test = {example.text for example in saved_task.examples("de", "test")}
    assert not dev & test


# Dev and test are both given: how many of their texts are equal, said once, by one function.


def examples(*texts: str, label: int = 0) -> list[Example]:
    return [Example(str(number), text, label) for number, text in enumerate(texts)]


def test_reported_11_counts_are_of_the_examples_of_the_result() -> None:
    examples_by_split = {
        "dev": examples("a", "b", "c", "D "),
        "test": examples("d", "c", "e", label=1),
        "train": examples("e"),
    }

    def read(language: str, split: Split, seed: int) -> list[Example]:
        return examples_by_split[split]

    toy_task = Task("toy", ("x", "y"), ("en",), False, read)
    (count,) = equal_texts(toy_task, "en", "dev", examples_by_split["dev"])
    assert count.record() == {"examples": 4, "equal": 2, "contradicted": 2}
    (count_of_three,) = equal_texts(toy_task, "en", "dev", examples_by_split["dev"][:3])
    assert count_of_three.record() == {"examples": 3, "equal": 1, "contradicted": 1}
    (test_count,) = equal_texts(toy_task, "en", "test", examples_by_split["test"])
    expected_note = "2 of the 3 test texts are in dev too, 2 of them with another answer"
    assert test_count.note.startswith(expected_note)


def test_reported_11_nothing_is_fetched_for_the_count() -> None:
    def read(language: str, split: Split, seed: int) -> list[Example]:
        assert split == "dev", "the other split would be fetched"
        return examples("a")

    def is_present(language: str, split: Split) -> bool:
        return split == "dev"

    toy_task = Task("toy", ("x", "y"), ("en",), False, read, present=is_present)
    assert equal_texts(toy_task, "en", "dev", toy_task.examples("en")) == ()


def test_reported_11_which_texts_of_an_example_are_compared() -> None:
    assert text_of(Example("1", "A  b", pair="C")) == ("a b", "c")
    assert text_of(Example("1", "a b", words=("a", "b"), labels=(0, 1))) == ("a b",)
    assert text_of(Example("1", "", target="The end")) == ("the end",)
    assert text_of(Example("1", "x", target="the end")) == ("x",)
    assert text_of(Example("1", "", 0, choices=(" b", " a"))) == ("", "a", "b")
    assert not count_equal_texts(examples("a"), "dev", examples("b"), "test").note


@pytest.fixture
def declaration(tmp_path: Path) -> Path:
    """A task of which three of ten test texts are dev texts too, one of them with another label."""
    folder = tmp_path / "twice"
    folder.mkdir()
    dev_rows = [f"turn {n},{LABELS[n % 3]}" for n in range(10)]
    test_rows = [f"Turn  0,{LABELS[0]}", f"turn 1,{LABELS[1]}", f"turn 2,{LABELS[0]}"]
    test_rows += [f"leave {n},{LABELS[n % 3]}" for n in range(7)]
    for split, rows in (("dev", dev_rows), ("test", test_rows)):
        lines = ["text,label", *rows]
        (folder / f"de.{split}.csv").write_text("\n".join(lines) + "\n", "utf-8")
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
    return save_classifier(tmp_path_factory.mktemp("models") / "mine")


def run_headlab(*arguments: object) -> tuple[dict[str, object], str]:
    """What a command prints as JSON, and what it says on stderr."""
    result = CliRunner().invoke(build(), [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), result.stderr


def counts_of_german(printed: Any) -> Any:
    return printed["languages"]["de"]["equal_texts"]


EXPECTED_COUNTS = {"examples": 10, "equal": 3, "contradicted": 1}


@pytest.mark.parametrize(("split", "other_split"), [("dev", "test"), ("test", "dev")])
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
    pruning, _ = run_headlab("prune", *arguments, "--rule", "bottom", "--k", 1, "--out", mask_file)
    assert counts_of_german(pruning) == {"dev": EXPECTED_COUNTS}

    store = Store(cache)
    result_folders = [folder for folder in store.folders() if (folder / "result.npz").exists()]
    results = find_results([folder.name for folder in result_folders], store)
    page = html_of_document(document(results)).decode()
    assert page.count("de: 3 of the 10 dev texts are in test too") == 1
    assert page.count("de: 3 of the 10 test texts are in dev too") == 1
    assert "equal_texts" not in page
    page_of_mask = html_of_document(document(find_results([str(mask_file)], store))).decode()
    assert "3 of the 10 test texts are in dev too" in page_of_mask


def test_reported_11_the_page_is_told_the_number_and_the_contradictions() -> None:
    dev_rows = labelled_rows(f"say {n}" for n in range(10))
    test_rows = [{"text": "say 0", "label": "b"}, *dev_rows[:4]]
    files = (upload(dev_rows, "de", "dev"), upload(test_rows, "de", "test"))
    draft_check = check_draft(Draft("mine", "jsonl", COLUMNS, files))
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
    draft_check = check_draft(Draft("mine", "jsonl", COLUMNS, tuple(files)))
    assert draft_check.notes == ()
    assert np.array([*draft_check.label_counts.values()]).sum() == 18
