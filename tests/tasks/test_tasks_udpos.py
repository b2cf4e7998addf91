"""The task `udpos`: CoNLL-U from a folder, its order, its errors, and every file of the shared data."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.expected_errors import raises
from support.shared_data import data_with

from headlab.core import HeadlabError
from headlab.tasks import task
from headlab.tasks.udpos import LABELS, LANGUAGES, sentences, udpos_task

Write = Callable[..., Path]
FORM_CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0 \t\r\n")
FORM = st.text(FORM_CHARACTERS, min_size=1).filter(str.strip)


def word_line(number: int | str, form: str, upos: str = "NOUN") -> str:
    return f"{number}\t{form}\t_\t{upos}\t_\t_\t_\t_\t_\t_"


TWO_SENTENCES = "\n".join(
    [
        "# sent_id = a",
        "# text = zum Haus",
        word_line("1-2", "zum", "_"),
        word_line(1, "zu", "ADP"),
        word_line(2, "dem", "DET"),
        word_line(3, "Haus"),
        "",
        word_line(1, "_", "SYM"),
        word_line("1.1", "left", "VERB"),
        word_line(2, "Hà  Nội", "PROPN"),
        "",
        "",
    ]
)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_treebank(text: str | bytes, name: str = "de.dev") -> Path:
        path = tmp_path / "ud" / f"{name}.conllu"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
        return path

    return write_treebank


def test_words_are_the_syntactic_ones(write: Write) -> None:
    adp, det, noun, propn, sym = map(LABELS.index, ("ADP", "DET", "NOUN", "PROPN", "SYM"))
    assert list(sentences(write(TWO_SENTENCES))) == [
        (("zu", adp), ("dem", det), ("Haus", noun)),
        (("_", sym), ("Hà Nội", propn)),
    ]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.lists(st.tuples(FORM, st.sampled_from(LABELS)), min_size=1, max_size=4), max_size=4)
)
def test_words_read_back_as_they_were_written(
    write: Write, rows: list[list[tuple[str, str]]]
) -> None:
    lines = []
    expected_sentences = []
    for row in rows:
        lines += [word_line(number, form, tag) for number, (form, tag) in enumerate(row, start=1)]
        lines.append("")
        expected_sentences.append(tuple((form, LABELS.index(tag)) for form, tag in row))
    path = write("".join(f"{line}\n" for line in lines))
    assert list(sentences(path)) == expected_sentences


def test_an_example_has_its_words_their_labels_and_is_a_group_of_its_own(
    write: Write, tmp_path: Path
) -> None:
    write(TWO_SENTENCES)
    examples_by_id = {example.id: example for example in udpos_task(tmp_path).examples("de")}
    example = examples_by_id["dev-0"]
    assert example.text == "zu dem Haus"
    assert example.words == ("zu", "dem", "Haus")
    assert [LABELS[label] for label in example.labels] == ["ADP", "DET", "NOUN"]
    assert {example.group for example in examples_by_id.values()} == {"dev-0", "dev-1"}


def test_the_order_depends_on_the_seed_alone(write: Write, tmp_path: Path) -> None:
    write("".join(word_line(1, f"w{i}") + "\n\n" for i in range(50)))

    def texts(seed: int) -> list[str]:
        return [example.text for example in udpos_task(tmp_path, seed).examples("de")]

    assert texts(seed=0) == texts(seed=0) != texts(seed=1)
    assert sorted(texts(seed=0)) == sorted(texts(seed=1)) != texts(seed=0)


def test_the_last_sentence_needs_no_empty_line_and_windows_ends_are_read(write: Write) -> None:
    path = write(TWO_SENTENCES.rstrip("\n").replace("\n", "\r\n"))
    assert len(list(sentences(path))) == 2


def test_the_languages_are_those_of_the_folder_english_first(write: Write, tmp_path: Path) -> None:
    for name in ("de.dev", "sw.test", "en.train", "notes", "xx.other"):
        write(TWO_SENTENCES, name)
    assert udpos_task(tmp_path).languages == ("en", "de", "sw")
    assert udpos_task().languages == LANGUAGES or os.environ.get("HEADLAB_DATA")


def test_train_is_empty_without_a_file_and_a_missing_test_file_is_named(
    write: Write, tmp_path: Path
) -> None:
    write(TWO_SENTENCES)
    with raises("task.no_examples", "train", "de"):
        udpos_task(tmp_path).examples("de", "train")
    with raises("data.unreadable", "de.test.conllu"):
        udpos_task(tmp_path).examples("de", "test")


@pytest.mark.parametrize(
    ("line", "code", "place", "values"),
    [
        ("1\tHaus\tNOUN", "treebank.fields_mismatch", "line 2", (3,)),
        (word_line(1, "Haus") + "\t_", "treebank.fields_mismatch", "line 2", (11,)),
        (word_line(1, "Haus", "_"), "treebank.tag_unknown", "line 2, column UPOS", ("'_'", 17)),
        (word_line(1, "Haus", "noun"), "treebank.tag_unknown", "line 2, column UPOS", ("'noun'",)),
        (word_line(1, " "), "treebank.field_empty", "line 2, column FORM", ()),
        (word_line("x", "Haus"), "treebank.id_invalid", "line 2, column ID", ("'x'",)),
        (
            word_line("9" * 5000, "Haus"),
            "treebank.id_invalid",
            "line 2, column ID",
            ("'" + "9" * 59,),
        ),
        (word_line("3-2", "Haus"), "treebank.id_invalid", "line 2, column ID", ("'3-2'",)),
        (word_line(2, "Haus"), "treebank.id_out_of_order", "line 2, column ID", ("'2'", "word 1")),
        (
            word_line("_", "Haus"),
            "treebank.id_out_of_order",
            "line 2, column ID",
            ("'_'", "word 1"),
        ),
        (
            word_line(1, "a") + "\n" + word_line(1, "b"),
            "treebank.id_out_of_order",
            "line 3, column ID",
            ("'1'", "word 2"),
        ),
    ],
)
def test_a_broken_line_is_named_by_file_line_and_column(
    write: Write, line: str, code: str, place: str, values: tuple[object, ...]
) -> None:
    path = write(f"# sent_id = a\n{line}\n\n")
    with raises(code, f"{path}, {place}", *values):
        list(sentences(path))


def test_bytes_that_are_no_utf_8_are_named_by_line(write: Write) -> None:
    with raises("data.not_utf8", "line 2", "byte 10"):
        list(sentences(write(TWO_SENTENCES.encode().replace(b"zum", b"\xff"))))


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_whatever_is_in_a_file_is_read_or_refused_in_a_sentence(
    write: Write, data: st.DataObject
) -> None:
    content = bytearray(TWO_SENTENCES.encode())
    special_bytes = [b"\t", b"\n", b"-", b"1", b"  ", b"_", b"#", "\u2028".encode()]
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content)))
        end = start + data.draw(st.integers(0, 8))
        content[start:end] = data.draw(st.binary(max_size=4) | st.sampled_from(special_bytes))
    path = write(bytes(content))
    message = ""
    rows = []
    try:
        rows = list(sentences(path))
    except HeadlabError as error:
        message = str(error)
    # a file that begins as one of another format is refused as a whole
    is_refused = f"{path}, line " in message or f"{path} is " in message
    assert bool(rows) != is_refused
    for form, label in (word for row in rows for word in row):
        assert form.strip()
        assert 0 <= label < len(LABELS)


def test_treebanks_of_the_shared_data_lose_no_sentence_and_no_word() -> None:
    data = data_with("ud")
    udpos = task("udpos", data=data)
    assert set(LANGUAGES) <= set(udpos.languages)
    # merged tokens, spaces in words, no lemmas, a word "_"
    for language in ("de", "fr", "th", "tr", "vi"):
        examples = udpos.examples(language, "test")
        lines = (data / "ud" / f"{language}.test.conllu").read_text("utf-8").split("\n")
        word_lines = [line for line in lines if line.partition("\t")[0].isdigit()]
        assert sum(len(example.words) for example in examples) == len(word_lines)
        id_lines = [line for line in lines if line.startswith("# sent_id")]
        ids = {example.id for example in examples}
        assert len(ids) == len(examples) == len(id_lines)
