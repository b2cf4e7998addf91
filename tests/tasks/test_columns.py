"""Which column means what: by name, by value, by the model's classes, and never without a match."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headlab.tasks import read_label_map
from headlab.tasks.columns import (
    NAMES,
    columns_named_as_values,
    guess_columns,
    label_each_word,
    labels_beside_classes,
    plain_header,
    unsure_meanings,
)

NLI = ("text", "pair", "label", "language")
CLASSES = ("entailment", "neutral", "contradiction")


def columns_of(header: str, rows: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The values of each column by its name, from lines of a table without quotes."""
    values = zip(*(row.split(",") for row in rows), strict=True)
    return dict(zip(header.split(","), values, strict=True))


def guessed_columns(
    header: str, *rows: str, classes: Sequence[str] = (), meanings: Sequence[str] = NLI
) -> dict[str, str]:
    return guess_columns(columns_of(header, rows), meanings, classes)


@pytest.mark.parametrize(
    "header",
    [
        "lang,premise,hypothesis,gold",
        "LANGUAGE,Sentence1,Sentence2,Gold_Label",
        "locale,text_a,text_b,y",
        "\ufefflanguage, sentence 1 , sentence 2 ,gold label",
        "lang,textA,textB,goldLabel",
        "lang,text1,text2,class",
        "lang,question1,question2,category",
        "Sprache,Prämisse,Hypothese,Klasse",
        "sprache,Satz1,Satz2,Kategorie",
        "langue,prémisse,hypothèse,étiquette",
        "Langue,Phrase 1,Phrase 2,Catégorie",
    ],
)
def test_reported_13_headers_are_known_in_any_case_and_three_languages(header: str) -> None:
    language, text, pair, label = header.split(",")
    expected_columns = {"text": text, "pair": pair, "label": label, "language": language}
    assert (
        guessed_columns(header, "de,Es regnet,Es ist nass,0", "fr,Il pleut,Il fait beau,2")
        == expected_columns
    )


@pytest.mark.parametrize(
    "label", ["intent", "target", "tag", "y", "gold_label", "CLASS", "Absicht", "etiquette"]
)
def test_reported_13_a_column_of_labels_is_known_by_its_name(label: str) -> None:
    assert guessed_columns(f"utterance,{label}", "go on,a", "stop,b") == {
        "text": "utterance",
        "label": label,
    }


def test_reported_13_nothing_is_guessed_without_a_match() -> None:
    assert guessed_columns("eins,zwei,drei", "a b,c,1", "d,e,2") == {}


@pytest.mark.parametrize(
    ("header", "rows", "left_out"),
    [
        ("text,label,category", ("a,x,y", "b,z,w"), "label"),
        ("text,sentence,label", ("a,b,x", "c,d,y"), "text"),
        ("text,lang,locale,label", ("a,de,de,x", "b,fr,fr,y"), "language"),
        ("text,label", tuple(f"text {n},0.{n}" for n in range(30)), "label"),  # scores
        ("text,label", tuple(f"text {n},another {n}" for n in range(30)), "label"),  # free text
        ("source,label", tuple(f"{'web' if n % 2 else 'mail'},{n % 2}" for n in range(30)), "text"),
        ("text,lang,label", ("a,quite good,x", "b,not bad,y"), "language"),
    ],
)
def test_reported_13_what_is_ambiguous_or_does_not_fit_is_left_to_a_person(
    header: str, rows: tuple[str, ...], left_out: str
) -> None:
    assert left_out not in guessed_columns(header, *rows)


@pytest.mark.parametrize(
    ("header", "rows", "unsure"),
    [
        (
            "Lang,text,label",
            ("German,a,x", "deu,b,y"),
            {"language"},  # named so, but these are no codes
        ),
        ("lang,locale,text,label", ("de,de,a,x", "fr,fr,b,y"), {"language"}),
        ("from,into,text,label", ("de,en,a,x", "de,en,b,y"), {"language"}),  # two columns of codes
        (
            "premise,hypothesis,sentence1,sentence2,label",
            ("a,b,c,d,x", "e,f,g,h,y"),
            {"text", "pair"},
        ),
        ("text,label", ("a,x", "b,y"), set()),
        ("lang,premise,hypothesis,gold", ("de,a,b,x", "fr,c,d,y"), set()),
    ],
)
def test_reported_13_what_a_column_may_mean_is_asked_for_and_never_taken_as_absent(
    header: str, rows: tuple[str, ...], unsure: set[str]
) -> None:
    columns = columns_of(header, rows)
    assert unsure_meanings(columns, NLI, guess_columns(columns, NLI)) == unsure


def test_reported_13_a_first_row_that_is_no_header_is_seen() -> None:
    assert columns_named_as_values({"de": ("de", "fr"), "Es regnet": ("Il pleut", "It rains")}) == [
        "de"
    ]
    assert columns_named_as_values({"lang": ("de", "fr"), "text": ("a text", "texts")}) == []


def test_reported_13_the_model_s_classes_tell_the_labels() -> None:
    rows = ("a,web,NEUTRAL,1", "b,mail,Entailment,0")
    assert "label" not in guessed_columns("text,category,tag,y", *rows)
    assert guessed_columns("text,category,tag,y", *rows, classes=CLASSES)["label"] == "tag"
    assert (
        guessed_columns("text,what,where", "a,NEUTRAL,x", "b,entailment,y", classes=CLASSES)[
            "label"
        ]
        == "what"
    )
    assert guessed_columns("text,what,where", "a,0,x", "b,2,y", classes=CLASSES)["label"] == "what"
    # either could be
    assert "label" not in guessed_columns("text,what,where", "a,0,1", "b,2,0", classes=CLASSES)
    assert "label" not in guessed_columns("text,what", "a,0", "b,3", classes=CLASSES)
    assert (
        guessed_columns("text,what", "a,pos", "b,neg", classes=("Negative", "Positive"))["label"]
        == "what"
    )


def test_reported_13_language_codes_tell_their_column() -> None:
    assert guessed_columns("text,where,label", "a,de,x", "b,en,y")["language"] == "where"
    assert guessed_columns("text,where,label", "a,zh-CN,x", "b,pt_BR,y")["language"] == "where"
    assert "language" not in guessed_columns("text,where,label", "a,no,x", "b,si,y")  # no and yes
    assert "language" not in guessed_columns("text,where,label", "a,web,x", "b,de,y")


def test_reported_13_columns_of_the_other_kinds() -> None:
    words_and_tags = {"tokens": (["a", "b"], ["c"]), "ner_tags": (["X", "O"], ["O"])}
    assert label_each_word(words_and_tags)
    assert not label_each_word(words_and_tags | {"ner_tags": (["X"], ["O"])})
    assert not label_each_word(
        words_and_tags | {"pos_tags": (["N", "N"], ["V"])}
    )  # which of the two?
    assert guessed_columns(
        "Quelle,Übersetzung", "das,this", "es,it", meanings=("text", "target")
    ) == {
        "text": "Quelle",
        "target": "Übersetzung",
    }
    choices = {"question": ("a", "b"), "options": (["x", "y"], ["z", "w"]), "gold": (0, 1)}
    expected_columns = {"context": "question", "choices": "options", "answer": "gold"}
    assert guess_columns(choices, ("context", "choices", "answer")) == expected_columns


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "lang",
                "text",
                "label",
                "gold",
                "premise",
                "hypothesis",
                "target",
                "tag",
                "x",
                "locale",
            ]
        ),
        st.lists(
            st.sampled_from(["de", "en", "0", "1", "neutral", "a longer text", None]),
            min_size=3,
            max_size=3,
        ),
        min_size=1,
    ),
    st.sampled_from([(), CLASSES]),
)
def test_reported_13_no_column_is_ever_chosen_twice(
    values: dict[str, list[str | None]], classes: tuple[str, ...]
) -> None:
    columns = guess_columns(values, NAMES, classes)
    assert len({*columns.values()}) == len(columns)
    assert {*columns.values()} <= {*values}


def test_reported_13_labels_beside_the_model_s_classes() -> None:
    assert labels_beside_classes({"NEUTRAL": 3, "Entail": 2}, CLASSES, "m")[0]
    fits, advice = labels_beside_classes({"0": 3, "2": 2}, CLASSES, "m")
    assert not fits
    assert "0=entailment,2=contradiction" in advice
    fits, advice = labels_beside_classes({"neutral": 3, "maybe": 2}, CLASSES, "m")
    assert not fits
    assert advice.startswith("1 of the 2 labels is not a class of m (2 times): maybe. ")
    assert "--label-map" in advice
    fits, advice = labels_beside_classes(dict.fromkeys("abcd", 1), CLASSES, "m")
    assert advice.startswith("None of the 4 labels is a class of m: a, b, c, d. ")
    assert "--label-map" not in advice  # four labels cannot have a class each
    assert not labels_beside_classes({"a": 1}, ("LABEL_0", "LABEL_1"), "m")[0]


def test_reported_21_a_label_map_of_numbers_is_whole_and_can_be_typed() -> None:
    classes = tuple(f"class {number}, of 'many'" for number in range(20))
    _, advice = labels_beside_classes({str(number): 1 for number in range(20)}, classes, "m")
    label_map = shlex.split(advice.split("--label-map ")[1])[0]
    assert read_label_map(label_map) == {str(number): name for number, name in enumerate(classes)}
    assert f"type {label_map} into Label map" in advice


def test_reported_21_a_class_that_only_its_number_names_is_not_typed_into_the_app() -> None:
    """Only the command line has a way to say which of two classes of one name is meant."""
    _, advice = labels_beside_classes({"0": 1, "1": 1}, ("same", "same"), "m")
    assert "--label-map 0=0,1=1 into the command" in advice
    assert "sidebar" not in advice


def test_a_header_is_compared_without_case_accents_and_marks() -> None:
    assert (
        plain_header("\ufeff Gold-Label ")
        == plain_header("goldLabel")
        == plain_header("GOLD LABEL")
        == "gold_label"
    )
    assert plain_header("Étiquette") == "etiquette"
