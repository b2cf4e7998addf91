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
            table.append((f"{language} {premise}", f"{language} {premise}{label}", str(label)))
    return table


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_table(
        name: str, table: Sequence[Row], header: str = "premise\thypothesis\tlabel"
    ) -> Path:
        path = tmp_path / "xnli" / f"{name}.tsv"
        path.parent.mkdir(exist_ok=True)
        lines = [header, *("\t".join(row) for row in table)]
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
    assert read_lines(path)[-1] == read_lines(path)[-1].strip()


def test_two_premises_translated_alike_do_not_move_a_row(write: Write, tmp_path: Path) -> None:
    write("en.dev", rows("en"))
    write("de.dev", rows("de", ("a", "a", "c", "c")))
    assert ids(tmp_path, "en") == ids(tmp_path, "de") != sorted(ids(tmp_path, "en"))
    english_groups = groups(tmp_path, "en")
    assert english_groups == groups(tmp_path, "de")
    assert len(set(english_groups)) == 4
    for start in (0, 3, 6, 9):
        assert len(set(english_groups[start : start + 3])) == 1


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
    lines = ["promptID\tgenre", *(f"{i % 2}\tx" for i in range(12))]
    meta.write_text("\n".join(lines) + "\n", "utf-8")
    assert groups(tmp_path, "en") in (["0"] * 6 + ["1"] * 6, ["1"] * 6 + ["0"] * 6)
    meta.write_text("promptID\n1\n", "utf-8")
    with raises("data.rows_mismatch", 12, "meta.dev.tsv", 1):
        xnli_task(tmp_path).examples("en")


def test_languages_with_other_rows_are_refused(write: Write, tmp_path: Path) -> None:
    write("en.dev", rows("en"))
    write("de.dev", rows("de")[:-1])
    with raises("data.rows_mismatch", "de.dev.tsv", 11, "en.dev.tsv", 12):
        xnli_task(tmp_path).examples("de")
    write("de.dev", rows("de")[1:] + rows("de")[:1])
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
    path.write_bytes(content[:start] + inserted + content[start + removed_length :])
    message = ""
    examples = []
    try:
        examples = list(xnli_task(tmp_path).examples("de"))
    except HeadlabError as error:
        message = str(error)
    assert bool(examples) != (f"{path}, line " in message)
    assert all(0 <= example.label < 3 for example in examples)


def test_rows_of_the_shared_data_are_aligned_and_three_share_a_premise() -> None:
    xnli = task("xnli", data=data_with("xnli"))
    assert xnli.languages == (LANGUAGES[0], *sorted(LANGUAGES[1:]))
    english = xnli.examples("en")
    english_texts = [example.text for example in english]
    for language in ("sw", "th"):
        examples = xnli.examples(language)
        for example, english_example in zip(examples, english, strict=True):
            assert example.id == english_example.id
            assert example.group == english_example.group
            assert example.label == english_example.label
        assert [example.text for example in examples] != english_texts
    assert len({example.group for example in english}) * 3 == len(english)
