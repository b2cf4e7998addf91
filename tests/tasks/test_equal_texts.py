"""Equal texts: how rows are divided, what is counted of texts in dev and test, and where a result says it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

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


def upload(
    rows: list[dict[str, object]],
    language: str | None = "de",
    split: Split | None = None,
    name: str = "",
):
    lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    return Upload(name or f"{language}.{split}.jsonl", lines.encode(), language, split)


def divided(
    rows: list[dict[str, object]], columns: dict[str, str] = COLUMNS, **more: object
) -> DraftCheck:
    draft = Draft("mine", "jsonl", columns, (upload(rows),), share=0.5)
    return check_draft(replace(draft, **more))  # type: ignore[arg-type]


def sides(checked: DraftCheck, column: str = "text") -> dict[str, list[str]]:
    """The values of a column by file."""
    assert not checked.errors, checked.errors
    return {
        name: [
            json.dumps(json.loads(line)[column], ensure_ascii=False)
            for line in data.decode().splitlines()
        ]
        for name, data in checked.files.items()
    }


def shared(checked: DraftCheck, language: str = "de", column: str = "text") -> set[str]:
    of_split = sides(checked, column)
    return {*of_split[f"{language}.dev.jsonl"]} & {*of_split[f"{language}.test.jsonl"]}


# The division by share.


def test_reported_11_equal_texts_go_to_the_same_side() -> None:
    rows = [{"text": f"say {number % 9}", "label": "ab"[number % 2]} for number in range(40)]
    checked = divided(rows)
    assert shared(divided(rows, division=1))
    assert not shared(checked)
    assert sum(checked.sizes.values()) == 40
    assert abs(checked.sizes["de", "dev"] - 20) <= 3
    assert any("40 rows have the text of another row" in note for note in checked.notes)


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
    rows = [{"text": text, "label": "a"} for text in texts] + [
        {"text": variant(text), "label": "b"} for text in texts
    ]
    of_split = sides(divided(rows))
    dev, test = (
        {comparable(json.loads(text)) for text in of_split[f"de.{split}.jsonl"]}
        for split in ("dev", "test")
    )
    assert len(dev) == len(test) == 10
    assert not dev & test


def test_reported_11_a_pair_is_equal_when_both_texts_are() -> None:
    rows = [{"text": f"a {n % 3}", "pair": f"b {n % 10}", "label": "xy"[n % 2]} for n in range(60)]
    checked = divided(rows, COLUMNS | {"pair": "pair"})
    places: dict[tuple[str, str], set[str]] = {}
    for name, data in checked.files.items():
        for line in data.decode().splitlines():
            row = json.loads(line)
            places.setdefault((row["text"], row["pair"]), set()).add(name)
    assert len(places) == 30
    assert all(len(files) == 1 for files in places.values())
    assert shared(checked)  # a first text alone may be on both sides


def test_reported_11_sentences_of_labelled_words_are_texts() -> None:
    rows = [{"words": ["go", str(n % 8)], "labels": ["V", "ON"[n % 2]]} for n in range(32)]
    checked = divided(rows, {"words": "words", "labels": "labels"})
    assert not shared(checked, column="words")


def test_reported_11_choices_are_equal_in_any_order_and_lm_texts_are_their_targets() -> None:
    rows = [
        {
            "context": f"so {n % 8}",
            "choices": ["yes", "no"] if n % 2 else ["no", "yes"],
            "answer": 0,
        }
        for n in range(32)
    ]
    columns = {"context": "context", "choices": "choices", "answer": "answer"}
    assert not shared(divided(rows, columns), column="context")
    lines = [{"text": f"a line {n % 8}"} for n in range(32)]
    assert not shared(divided(lines, {"text": "text"}))
    targets = [{"text": f"ein Satz {n % 8}", "target": f"a sentence {n}"} for n in range(32)]
    assert not shared(divided(targets, {"text": "text", "target": "target"}))


def test_reported_11_groups_with_an_equal_text_are_tied() -> None:
    rows = [{"text": f"say {n}", "label": "ab"[n % 2], "prompt": f"p{n // 4}"} for n in range(40)]
    rows[39]["text"] = rows[0]["text"]
    of_split = sides(divided(rows, COLUMNS | {"group": "prompt"}), "prompt")
    dev = {*of_split["de.dev.jsonl"]}
    test = {*of_split["de.test.jsonl"]}
    assert not dev & test
    assert {'"p0"', '"p9"'} <= dev or {'"p0"', '"p9"'} <= test


def test_reported_11_equal_texts_in_one_language_tie_the_rows_of_an_aligned_task() -> None:
    german = [{"text": f"sag {n}", "label": "ab"[n % 2]} for n in range(30)]
    french = [{"text": f"dis {n}", "label": "ab"[n % 2]} for n in range(30)]
    german[7]["text"] = german[3]["text"]
    french[20]["text"] = french[7]["text"]
    files = (upload(german, "de"), upload(french, "fr"))
    for checked in (
        divided([], files=files, aligned=True),
        divided([], files=files[::-1], aligned=True),
    ):
        of_split = sides(checked)
        dev = [int(text.split()[1][:-1]) for text in of_split["de.dev.jsonl"]]
        assert {number for number in (3, 20) if number in dev} in ({3, 20}, set())
        assert not shared(checked, "de")
        assert not shared(checked, "fr")
        # row i is on one side in every language
        tied = {3: 3, 7: 3, 20: 20}
        french_dev = [int(text.split()[1][:-1]) for text in of_split["fr.dev.jsonl"]]
        plain_rows = set(range(30)) - {*tied}
        assert plain_rows & {*dev} == plain_rows & {*french_dev}
        assert checked.sizes["de", "dev"] == checked.sizes["fr", "dev"]


def test_reported_11_one_file_given_for_two_languages_is_said_and_divided_alike() -> None:
    rows = [{"text": f"say {n}", "label": "ab"[n % 2]} for n in range(20)]
    checked = divided([], files=(upload(rows, "de"), upload(rows[::-1], "fr")))
    of_split = sides(checked)
    assert {*of_split["de.dev.jsonl"]} == {*of_split["fr.dev.jsonl"]}
    assert any("20 of the 20 texts in fr are in de too" in note for note in checked.notes)


def test_reported_11_every_language_keeps_dev_and_test_where_it_can() -> None:
    rows = [{"text": "same", "label": "ab"[n % 2]} for n in range(18)] + [
        {"text": "x", "label": "a"},
        {"text": "y", "label": "b"},
    ]
    for share in (0.1, 0.5, 0.9):
        checked = divided(rows, share=share)
        assert set(checked.sizes) == {("de", "dev"), ("de", "test")}
    alone = divided([{"text": "same", "label": "ab"[n % 2]} for n in range(6)])
    assert alone.sizes == {("de", "dev"): 6}


def test_reported_11_without_equal_texts_the_division_is_that_of_before() -> None:
    rows = [{"text": f"say {n}", "label": "ab"[n % 2]} for n in range(31)]
    for share in (0.1, 0.35, 0.5, 0.9):
        assert divided(rows, share=share).files == divided(rows, share=share, division=1).files


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from(["", "g", "h"]), st.integers(0, 12)),
        min_size=1,
    ),
    st.floats(0.05, 0.95),
    st.booleans(),
)
def test_reported_11_no_text_and_no_group_is_ever_on_both_sides(
    told: list[tuple[str, str, int]], share: float, aligned: bool
) -> None:
    rows = [DividedRow(0, language, group, (str(number),)) for language, group, number in told]
    dev = dev_rows(rows, share, is_aligned=aligned, version=2)
    test = set(range(len(rows))) - dev
    assert not {rows[index].text for index in dev} & {rows[index].text for index in test}
    assert not {rows[index].group for index in dev} & {rows[index].group for index in test} - {""}
    assert {row.language for row in rows} == {rows[index].language for index in dev}


# Tasks that were saved before, written by headlab at 8cdf9dd.

BEFORE = (
    "text,label,prompt\n" + "".join(f"sag {n % 7},{'ab'[n % 2]},{n // 2}\n" for n in range(16))
).encode()
ALIGNED_DEV = [0, 1, 3, 6, 11, 14]  # rows
GROUPED_DEV = [2, 3, 6, 7, 14, 15]
DECLARED_BEFORE = """name = "mine"
format = "csv"
files = "{language}.{split}.csv"
labels = ["a", "b"]
aligned = true

[columns]
text = "text"
label = "label"
"""


def before(group: bool) -> Draft:
    """A draft without the version of its division, as programs of before send it."""
    files = (Upload("de.csv", BEFORE, "de"), Upload("fr.csv", BEFORE.replace(b"sag", b"dis"), "fr"))
    if group:
        return Draft("mine", "csv", COLUMNS | {"group": "prompt"}, files[:1], share=0.4, division=1)
    return Draft("mine", "csv", COLUMNS, files, aligned=True, share=0.4, division=1)


@pytest.mark.parametrize(("group", "dev"), [(False, ALIGNED_DEV), (True, GROUPED_DEV)])
def test_reported_11_a_division_of_before_is_byte_for_byte_the_same(
    group: bool, dev: list[int]
) -> None:
    checked = check_draft(before(group))
    header, *lines = BEFORE.splitlines(keepends=True)
    assert checked.files["de.dev.csv"] == header + b"".join(lines[row] for row in dev)
    assert checked.files["de.test.csv"] == header + b"".join(
        line for row, line in enumerate(lines) if row not in dev
    )
    if not group:
        assert checked.declaration == DECLARED_BEFORE


def test_reported_11_a_task_saved_before_stays_when_its_file_is_sent_again(cache: Path) -> None:
    save_task(before(group=False), cache)
    saved = {path.name: path.read_bytes() for path in (cache / SAVED_FOLDER / "mine").iterdir()}
    again = save_task(replace(before(group=False), division=2), cache)
    assert {
        path.name: path.read_bytes() for path in (cache / SAVED_FOLDER / "mine").iterdir()
    } == saved
    assert again.sizes["de", "dev"] == len(ALIGNED_DEV)
    assert read_declaration(cache / SAVED_FOLDER / "mine" / "mine.toml").division is None


def test_reported_11_a_new_declaration_names_the_version(cache: Path) -> None:
    save_task(replace(before(group=False), division=2), cache)
    declared = read_declaration(cache / SAVED_FOLDER / "mine" / "mine.toml")
    assert declared.division == 2
    dev, test = ({e.text for e in task("mine").examples("de", split)} for split in ("dev", "test"))
    assert not dev & test


# Both files given: the number, once, from one function.


def examples(*texts: str, label: int = 0) -> list[Example]:
    return [Example(str(number), text, label) for number, text in enumerate(texts)]


def test_reported_11_counts_are_of_the_examples_of_the_result() -> None:
    of_split = {
        "dev": examples("a", "b", "c", "D "),
        "test": examples("d", "c", "e", label=1),
        "train": examples("e"),
    }
    made = Task("made", ("x", "y"), ("en",), False, lambda language, split, seed: of_split[split])
    (count,) = equal_texts(made, "en", "dev", of_split["dev"])
    assert count.record() == {"examples": 4, "equal": 2, "contradicted": 2}
    (first,) = equal_texts(made, "en", "dev", of_split["dev"][:3])
    assert first.record() == {"examples": 3, "equal": 1, "contradicted": 1}
    (reported,) = equal_texts(made, "en", "test", of_split["test"])
    assert reported.note.startswith(
        "2 of the 3 test texts are in dev too, 2 of them with another answer"
    )


def test_reported_11_nothing_is_fetched_for_the_count() -> None:
    def read(language: str, split: Split, seed: int) -> list[Example]:
        assert split == "dev", "the other split would be fetched"
        return examples("a")

    made = Task(
        "made", ("x", "y"), ("en",), False, read, present=lambda language, split: split == "dev"
    )
    assert equal_texts(made, "en", "dev", made.examples("en")) == ()


def test_reported_11_texts_of_examples() -> None:
    assert text_of(Example("1", "A  b", pair="C")) == ("a b", "c")
    assert text_of(Example("1", "a b", words=("a", "b"), labels=(0, 1))) == ("a b",)
    assert text_of(Example("1", "", target="The end")) == ("the end",)
    assert text_of(Example("1", "x", target="the end")) == ("x",)
    assert text_of(Example("1", "", 0, choices=(" b", " a"))) == ("", "a", "b")
    assert not count_equal_texts(examples("a"), "dev", examples("b"), "test").note


@pytest.fixture
def twice(tmp_path: Path) -> Path:
    """A task of which three of ten test texts are dev texts too, one of them with another label."""
    folder = tmp_path / "twice"
    folder.mkdir()
    header = "text,label\n"
    dev = [f"turn {n},{LABELS[n % 3]}" for n in range(10)]
    test = [f"Turn  0,{LABELS[0]}", f"turn 1,{LABELS[1]}", f"turn 2,{LABELS[0]}"]
    test += [f"leave {n},{LABELS[n % 3]}" for n in range(7)]
    for split, rows in (("dev", dev), ("test", test)):
        (folder / f"de.{split}.csv").write_text(header + "\n".join(rows) + "\n", "utf-8")
    (folder / "twice.toml").write_text(
        'name = "twice"\nformat = "csv"\nfiles = "{language}.{split}.csv"\n[columns]\ntext = "text"\nlabel = "label"\n'
    )
    return folder / "twice.toml"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_classifier(tmp_path_factory.mktemp("models") / "mine")


def headlab(*words: object) -> tuple[dict[str, object], str]:
    """What a command prints as JSON, and what it says on stderr."""
    answer = CliRunner().invoke(build(), [*map(str, words), "--json"])
    assert answer.exit_code == 0, answer.output
    return json.loads(answer.stdout), answer.stderr


NUMBERS = {"examples": 10, "equal": 3, "contradicted": 1}


@pytest.mark.parametrize(("split", "other"), [("dev", "test"), ("test", "dev")])
def test_reported_11_evaluate_says_the_number(
    twice: Path, model: Path, split: str, other: str
) -> None:
    printed, said = headlab("evaluate", "--model", model, "--task", twice, "--split", split)
    assert printed["languages"]["de"]["equal_texts"] == {other: NUMBERS}  # type: ignore[index]
    assert said.count(f"de: 3 of the 10 {split} texts are in {other} too") == 1


def test_reported_11_score_curve_prune_and_the_report_say_the_number(
    twice: Path, model: Path, cache: Path
) -> None:
    asked = ("--model", model, "--task", twice, "--cache", cache)
    printed, said = headlab("score", *asked, "--method", "leave-one-out")
    assert printed["languages"]["de"]["equal_texts"] == {"test": NUMBERS}  # type: ignore[index]
    assert "de: 3 of the 10 dev texts are in test too" in said
    again, _ = headlab("score", *asked, "--method", "leave-one-out")
    assert again == printed
    curve, _ = headlab("curve", *asked, "--method", "leave-one-out")
    assert curve["languages"]["de"]["equal_texts"] == {"dev": NUMBERS}  # type: ignore[index]
    mask = cache / "mask.json"
    pruned, _ = headlab(
        "prune", *asked, "--method", "leave-one-out", "--rule", "bottom", "--k", 1, "--out", mask
    )
    assert pruned["languages"]["de"]["equal_texts"] == {"dev": NUMBERS}  # type: ignore[index]
    store = Store(cache)
    items = find_results(
        [folder.name for folder in store.folders() if (folder / "result.npz").exists()], store
    )
    page = html_of_document(document(items)).decode()
    assert page.count("de: 3 of the 10 dev texts are in test too") == 1
    assert page.count("de: 3 of the 10 test texts are in dev too") == 1
    assert "equal_texts" not in page
    assert (
        "3 of the 10 test texts are in dev too"
        in html_of_document(document(find_results([str(mask)], store))).decode()
    )


def test_reported_11_the_page_is_told_the_number_and_the_contradictions() -> None:
    rows = [{"text": f"say {n}", "label": "ab"[n % 2]} for n in range(10)]
    files = (
        upload(rows, "de", "dev"),
        upload([{"text": "say 0", "label": "b"}, *rows[:4]], "de", "test"),
    )
    checked = check_draft(Draft("mine", "jsonl", COLUMNS, files))
    expected = "de: 5 of the 5 test texts are in dev too, 1 of them with another answer, so figures on test are not"
    assert [note for note in checked.notes if note.startswith(expected)]
    (said,) = [note for note in checked.notes if "different answers" in note]
    assert "de.dev.jsonl, line 1 and de.test.jsonl, line 1" in said


def test_reported_11_files_without_equal_texts_say_nothing() -> None:
    files = tuple(
        upload([{"text": f"{split} {n}", "label": "ab"[n % 2]} for n in range(6)], "de", split)
        for split in SPLITS
    )
    assert check_draft(Draft("mine", "jsonl", COLUMNS, files)).notes == ()
    assert (
        np.array([*check_draft(Draft("mine", "jsonl", COLUMNS, files)).label_counts.values()]).sum()
        == 18
    )
