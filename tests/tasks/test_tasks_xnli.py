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
    return [
        (f"{language} {p}", f"{language} {p}{label}", str(label))
        for p in premises
        for label in (1, 0, 2)
    ]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(name: str, table: Sequence[Row], header: str = "premise\thypothesis\tlabel") -> Path:
        path = tmp_path / "xnli" / f"{name}.tsv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join([header, *("\t".join(row) for row in table)]) + "\n", "utf-8")
        return path

    return put


def ids(folder: Path, language: str) -> list[str]:
    return [e.id for e in xnli_task(folder).examples(language)]


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
    groups = [
        [e.group for e in xnli_task(tmp_path).examples(language)] for language in ("en", "de")
    ]
    assert groups[0] == groups[1]
    assert len(set(groups[0])) == 4
    assert [groups[0][at : at + 3].count(groups[0][at]) for at in (0, 3, 6, 9)] == [3, 3, 3, 3]


def test_without_english_the_first_language_says_which_rows_belong_together(
    write: Write, tmp_path: Path
) -> None:
    write("de.dev", rows("de"))
    write("sw.dev", rows("sw", ("a", "a", "a", "a")))
    assert xnli_task(tmp_path).languages == ("de", "sw")
    assert ids(tmp_path, "de") == ids(tmp_path, "sw")
    assert len({e.group for e in xnli_task(tmp_path).examples("sw")}) == 4


def test_the_meta_file_says_it_before_any_premise(write: Write, tmp_path: Path) -> None:
    write("en.dev", rows("en"))
    meta = tmp_path / "xnli" / "meta.dev.tsv"
    meta.write_text(
        "promptID\tgenre\n" + "\n".join(f"{i % 2}\tx" for i in range(12)) + "\n", "utf-8"
    )
    assert [e.group for e in xnli_task(tmp_path).examples("en")] in (
        ["0"] * 6 + ["1"] * 6,
        ["1"] * 6 + ["0"] * 6,
    )
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
    at=st.integers(0, 150),
    cut=st.integers(0, 6),
    put=st.binary(max_size=4) | st.sampled_from([b"\t", b"\n", b"0"]),
)
def test_whatever_is_in_a_file_is_read_or_refused_in_a_sentence(
    write: Write, tmp_path: Path, at: int, cut: int, put: bytes
) -> None:
    path = write("de.dev", rows("de"))
    text = path.read_bytes()
    path.write_bytes(text[:at] + put + text[at + cut :])
    message = ""
    examples = []
    try:
        examples = list(xnli_task(tmp_path).examples("de"))
    except HeadlabError as error:
        message = str(error)
    assert bool(examples) != (f"{path}, line " in message)
    assert all(0 <= e.label < 3 for e in examples)


def test_rows_of_the_shared_data_are_aligned_and_three_share_a_premise() -> None:
    data = data_with("xnli")
    xnli = task("xnli", data=data)
    assert xnli.languages == (LANGUAGES[0], *sorted(LANGUAGES[1:]))
    english = xnli.examples("en")
    for language in ("sw", "th"):
        examples = xnli.examples(language)
        assert [(e.id, e.group, e.label) for e in examples] == [
            (e.id, e.group, e.label) for e in english
        ]
        assert [e.text for e in examples] != [e.text for e in english]
    assert len({e.group for e in english}) * 3 == len(english)
