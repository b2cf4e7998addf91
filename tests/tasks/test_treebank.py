"""Gold trees from CoNLL-U: what is read, and that what is broken is refused with its line."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from conllu import parse
from conllu.exceptions import ParseException
from conllu.parser import parse_id_value
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.expected_errors import raises
from support.shared_data import data_with

from headlab.core import HeadlabError
from headlab.tasks import Tree, read_trees, treebank, treebank_languages
from headlab.tasks.conllu_text import conllu_sentences, is_id
from headlab.tasks.text_files import read_text

SENTENCE = [
    ("1", "They", "2", "nsubj"),
    ("2-3", "cannot", "_", "_"),
    ("2", "can", "0", "root"),
    ("3", "not", "2", "advmod:neg"),
    ("3.1", "go", "_", "_"),
]


def conllu_line(
    number: str,
    form: str,
    head: str,
    relation: str,
) -> str:
    fields = [number, form, "_", "X", "_", "_", head, relation, "_", "_"]
    return "\t".join(fields)


def conllu_text(*sentences: list[tuple[str, str, str, str]]) -> str:
    """A file of sentences, given by ID, FORM, HEAD and DEPREL of their lines."""
    content = ""
    for rows in sentences:
        lines = ["# sent_id = a b", *(conllu_line(*row) for row in rows)]
        content += "\n".join(lines) + "\n\n"
    return content


def write_treebank(folder: Path, content: str) -> Path:
    path = folder / "a.conllu"
    path.write_text(content, encoding="utf-8")
    return path


def random_tree(rng: random.Random, size: int) -> Tree:
    order = rng.sample(range(size), size)
    governors = [-1] * size
    for place, word in enumerate(order[1:], start=1):
        governors[word] = order[rng.randrange(place)]
    relations = []
    for governor in governors:
        if governor < 0:
            relations.append("root")
        else:
            relations.append(rng.choice(["nsubj", "obj", "amod"]))
    words = tuple(f"w{i}" for i in range(size))
    return Tree("x", words, tuple(governors), tuple(relations))


def test_words_governors_and_relations_are_read(tmp_path: Path) -> None:
    (tree,) = read_trees(write_treebank(tmp_path, conllu_text(SENTENCE)))
    assert tree == Tree(
        "a b",
        ("They", "can", "not"),
        (1, -1, 1),
        ("nsubj", "root", "advmod"),
        2,
    )


def rows_of_tree(tree: Tree) -> list[tuple[str, str, str, str]]:
    """ID, FORM, HEAD and DEPREL of each word."""
    words = zip(tree.words, tree.governors, tree.relations, strict=True)
    return [
        (str(number), word, str(governor + 1), relation)
        for number, (word, governor, relation) in enumerate(words, start=1)
    ]


def test_trees_come_back_as_they_were_written(tmp_path: Path) -> None:
    rng = random.Random(0)
    trees = [random_tree(rng, rng.randrange(1, 12)) for _ in range(30)]
    rows_of_trees = [rows_of_tree(tree) for tree in trees]
    path = write_treebank(tmp_path, conllu_text(*rows_of_trees))
    trees_read = read_trees(path)
    for tree_read, tree in zip(trees_read, trees, strict=True):
        assert tree_read.words == tree.words
        assert tree_read.governors == tree.governors
        assert tree_read.relations == tree.relations
    for tree_read, tokens in zip(trees_read, parse(path.read_text()), strict=True):
        governors = [token["head"] - 1 for token in tokens]
        assert governors == list(tree_read.governors)


BROKEN = {
    "no root": ([("1", "a", "2", "x"), ("2", "b", "1", "x")], 2, "HEAD", "root_missing", ()),
    "two roots": ([("1", "a", "0", "root"), ("2", "b", "0", "root")], 3, "HEAD", "root_twice", ("line 2",)),
    "a cycle": ([("1", "a", "0", "root"), ("2", "b", "3", "x"), ("3", "c", "2", "x")], 3, "HEAD", "cycle", ()),
    "a word of its own": ([("1", "a", "0", "root"), ("2", "b", "2", "x")], 3, "HEAD", "cycle", ()),
    "no word": ([("1", "a", "0", "root"), ("2", "b", "7", "x")], 3, "HEAD", "head_out_of_range", (7, 2)),
    "no governor": ([("1", "a", "_", "root")], 2, "HEAD", "head_invalid", ("'_'",)),
    "no relation": ([("1", "a", "0", "_")], 2, "DEPREL", "column_empty", ("'_'",)),
    "no form": ([("1", " ", "0", "root")], 2, "FORM", "column_empty", ("' '",)),
    "another number": ([("1", "a", "0", "root"), ("3", "b", "1", "x")], 3, "ID", "id_out_of_order", ("'3'", "word 2")),
    "only a merged token": ([("1-2", "ab", "_", "_")], 2, "ID", "sentence_empty", ()),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_tree_is_refused_with_its_line_and_column(tmp_path: Path, name: str) -> None:
    rows, line, column, code, values = BROKEN[name]
    path = write_treebank(tmp_path, conllu_text(rows))
    place = f"a.conllu, line {line}, column {column}: "
    with raises(f"treebank.{code}", place, *values):
        read_trees(path)


def test_a_sentence_has_the_last_id_before_its_words_or_its_number(tmp_path: Path) -> None:
    word_line = conllu_line("1", "a", "0", "root")
    lines = (
        "# sent_id = x",
        "",
        word_line,
        "",
        word_line,
        "# sent_id = y",
        "",
        "# sent_id = z",
        "#sent_id=é ü ",
        word_line,
    )
    trees = read_trees(write_treebank(tmp_path, "\n".join(lines) + "\n"))
    assert [tree.id for tree in trees] == ["x", "2", "é ü"]


@given(
    st.text("0123456789-._ x", max_size=8)
    | st.from_regex(r"[0-9]{1,3}[-.][0-9]{1,3}", fullmatch=True)
)
def test_ids_are_those_of_the_package_conllu(text: str) -> None:
    try:
        parse_id_value(text)
        is_known = bool(text)
    except ParseException:
        is_known = False
    assert is_id(text) == is_known


@pytest.mark.parametrize("content", ["", "\n\n", "# only a comment\n"])
def test_a_file_without_a_tree_is_refused(tmp_path: Path, content: str) -> None:
    with raises("treebank.empty", "line 1"):
        read_trees(write_treebank(tmp_path, content))


def test_a_line_of_another_length_is_refused(tmp_path: Path) -> None:
    with raises("treebank.fields_mismatch", "line 1", 2):
        read_trees(write_treebank(tmp_path, "1\tword\n"))


def assert_path_to_root(tree: Tree, word: int) -> None:
    path = [word]
    while tree.governors[path[-1]] >= 0:
        path.append(tree.governors[path[-1]])
        assert len(path) <= len(tree.words)


@settings(
    deadline=None,
    max_examples=120,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(st.tuples(st.integers(0, 400), st.sampled_from("\t\n 012-.#_aé:")), max_size=8),
    st.integers(0, 3),
)
def test_whatever_is_in_a_file_it_is_trees_or_one_sentence(
    tmp_path: Path,
    edits: list[tuple[int, str]],
    removed_length: int,
) -> None:
    content = conllu_text(SENTENCE, SENTENCE)
    for position, character in edits:
        position %= len(content)
        beginning = content[:position]
        rest = content[position + removed_length :]
        content = beginning + character + rest
    trees = ()
    message = "a.conllu, line "
    try:
        trees = read_trees(write_treebank(tmp_path, content))
    except HeadlabError as error:
        message = str(error)
    assert "a.conllu, line " in message
    for tree in trees:
        assert len(tree.words) > 0
        assert len(tree.governors) == len(tree.words)
        assert len(tree.relations) == len(tree.words)
        assert tree.governors.count(-1) == 1
        for word in range(len(tree.words)):
            assert_path_to_root(tree, word)


def test_the_treebanks_of_a_data_folder_are_found_by_language_and_split(tmp_path: Path) -> None:
    (tmp_path / "ud").mkdir()
    (tmp_path / "ud" / "xx.dev.conllu").write_text(conllu_text(SENTENCE))
    assert treebank_languages(tmp_path) == treebank_languages(tmp_path, "dev") == ("xx",)
    assert treebank_languages(tmp_path, "test") == ()
    assert len(treebank(tmp_path, "xx", "dev")) == 1
    for language, split in (("xx", "test"), ("yy", "dev")):
        with raises("treebank.missing", f"ud/{language}.{split}.conllu", "has xx"):
            treebank(tmp_path, language, split)  # type: ignore[arg-type]


@pytest.mark.data
def test_treebanks_are_read_as_the_package_conllu_reads_them() -> None:
    for path in sorted((data_with("ud") / "ud").glob("*.test.conllu")):
        text = read_text(path)[:100_000]
        beginning = text.rpartition("\n\n")[0]
        sentences = conllu_sentences(beginning, path)
        sentences_of_package = parse(beginning)
        for sentence, package_tokens in zip(sentences, sentences_of_package, strict=True):
            words = list(sentence.words(needs_tags=True))
            package_words = [token for token in package_tokens if isinstance(token["id"], int)]
            for word, package_word in zip(words, package_words, strict=True):
                assert word.fields["UPOS"] == package_word["upos"]
                assert word.fields["FORM"] == package_word["form"]
                assert word.fields["HEAD"] == str(package_word["head"])


@pytest.mark.data
def test_a_treebank_that_is_here_is_read_whole() -> None:
    trees = treebank(data_with("ud"), "tr", "dev")
    assert sum(len(tree.words) for tree in trees) > 5000
    relations = {relation for tree in trees for relation in tree.relations}
    assert {"nsubj", "obj", "amod", "advmod"} <= relations
