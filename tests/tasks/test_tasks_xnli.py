"""The task `xnli`: rows that are the same pair in every language, whatever the folder lacks, and its errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.expected_errors import raises
from support.shared_data import data_with

from headlab.core import HeadlabError
from headlab.tasks import task
from headlab.tasks.text_files import read_lines
from headlab.tasks.xnli import LANGUAGES, xnli_task

Row = tuple[str, str, str]
Write = Callable[[str, Sequence[Row]], Path]


def rows(language: str, premises: Sequence[str] = ("a", "b", "c", "d")) -> list[Row]:
    """Three rows for each premise, with its three labels."""
    table = []
    for premise in premises:
        for label in (1, 0, 2):
            text = f"{language} {premise}"
            hypothesis = f"{text}{label}"
            table.append((text, hypothesis, str(label)))
    return table


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_table(
        name: str, table: Sequence[Row], header: str = "premise\thypothesis\tlabel"
    ) -> Path:
        path = tmp_path / "xnli" / f"{name}.tsv"
        path.parent.mkdir(exist_ok=True)
        lines = [header]
        for row in table:
            lines.append("\t".join(row))
        path.write_text("\n".join(lines) + "\n", "utf-8")
        return path

    return write_table


def ids(folder: Path, language: str) -> list[str]:
    return [example.id for example in xnli_task(folder).examples(language)]


def groups(folder: Path, language: str) -> list[str]:
    return [example.group for example in xnli_task(folder).examples(language)]


def test_line_ends_of_windows_leave_no_trace_in_the_last_row_either(
    write: Write, tmp_path: Path
) -> None:
    path = write("en.dev", rows("en"))
    examples = xnli_task(tmp_path).examples("en")
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert xnli_task(tmp_path).examples("en") == examples
    last_line = read_lines(path)[-1]
    assert last_line == last_line.strip()


def test_two_premises_translated_alike_do_not_move_a_row(write: Write, tmp_path: Path) -> None:
    write("en.dev", rows("en"))
    write("de.dev", rows("de", ("a", "a", "c", "c")))
    english_ids = ids(tmp_path, "en")
    assert english_ids == ids(tmp_path, "de")
    assert english_ids != sorted(english_ids)
    english_groups = groups(tmp_path, "en")
    assert english_groups == groups(tmp_path, "de")
    assert len(set(english_groups)) == 4
    for start in (0, 3, 6, 9):
        groups_of_three_rows = english_groups[start : start + 3]
        assert len(set(groups_of_three_rows)) == 1


def test_without_english_the_first_language_says_which_rows_belong_together(
    write: Write, tmp_path: Path
) -> None:
    write("de.dev", rows("de"))
    write("sw.dev", rows("sw", ("a", "a", "a", "a")))
    assert xnli_task(tmp_path).languages == ("de", "sw")
    assert ids(tmp_path, "de") == ids(tmp_path, "sw")
    assert len(set(groups(tmp_path, "sw"))) == 4


def test_the_meta_file_says_it_before_any_premise(write: Write, tmp_path: Path) -> None:
    write("en.dev", rows("en"))
    meta = tmp_path / "xnli" / "meta.dev.tsv"
    lines = ["promptID\tgenre"]
    lines += [f"{i % 2}\tx" for i in range(12)]
    meta.write_text("\n".join(lines) + "\n", "utf-8")
    six_of_0 = ["0"] * 6
    six_of_1 = ["1"] * 6
    assert groups(tmp_path, "en") in (six_of_0 + six_of_1, six_of_1 + six_of_0)
    meta.write_text("promptID\n1\n", "utf-8")
    with raises("data.rows_mismatch", 12, "meta.dev.tsv", 1):
        xnli_task(tmp_path).examples("en")


def test_languages_with_other_rows_are_refused(write: Write, tmp_path: Path) -> None:
    write("en.dev", rows("en"))
    write("de.dev", rows("de")[:-1])
    with raises("data.rows_mismatch", "de.dev.tsv", 11, "en.dev.tsv", 12):
        xnli_task(tmp_path).examples("de")
    first_row, *other_rows = rows("de")
    write("de.dev", [*other_rows, first_row])
    with raises("data.labels_differ", "de.dev.tsv", "line 2", "entailment", "neutral"):
        xnli_task(tmp_path).examples("de")


@pytest.mark.parametrize(
    ("table", "code", "place", "value"),
    [
        ([("p", "h", "3")], "data.number_invalid", "line 2, column label", "'3'"),
        ([("p", "h", "0"), ("p", "h", "x")], "data.number_invalid", "line 3, column label", "'x'"),
        ([("p", "h", "0", "more")], "data.fields_mismatch", "line 2", 4),
    ],
)
def test_a_broken_row_is_named(
    write: Write, tmp_path: Path, table: list[Row], code: str, place: str, value: object
) -> None:
    path = write("de.dev", table)
    with raises(code, f"{path}, {place}", value):
        xnli_task(tmp_path).examples("de")


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    start=st.integers(0, 150),
    removed_length=st.integers(0, 6),
    inserted=st.binary(max_size=4) | st.sampled_from([b"\t", b"\n", b"0"]),
)
def test_whatever_is_in_a_file_is_read_or_refused_in_a_sentence(
    write: Write, tmp_path: Path, start: int, removed_length: int, inserted: bytes
) -> None:
    path = write("de.dev", rows("de"))
    content = path.read_bytes()
    content_before = content[:start]
    content_after = content[start + removed_length :]
    path.write_bytes(content_before + inserted + content_after)
    message = ""
    examples = []
    try:
        examples = list(xnli_task(tmp_path).examples("de"))
    except HeadlabError as error:
        message = str(error)
    names_line = f"{path}, line " in message
    assert bool(examples) != names_line
    assert all(0 <= example.label < 3 for example in examples)


def test_rows_of_the_shared_data_are_aligned_and_three_share_a_premise() -> None:
    xnli = task("xnli", data=data_with("xnli"))
    first_language, *other_languages = LANGUAGES
    assert xnli.languages == (first_language, *sorted(other_languages))
    english = xnli.examples("en")
    english_texts = [example.text for example in english]
    for language in ("sw", "th"):
        examples = xnli.examples(language)
        for example, english_example in zip(examples, english, strict=True):
            assert example.id == english_example.id
            assert example.group == english_example.group
            assert example.label == english_example.label
        assert [example.text for example in examples] != english_texts
    english_groups = {example.group for example in english}
    assert len(english_groups) * 3 == len(english)
