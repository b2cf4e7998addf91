"""Which class of a model is which label: by name, as stated, or found on dev; refused where it cannot be told."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from reference import orders_compared
from support.expected_errors import raises
from support.saved_models import save_family
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.cli.main import main
from headlab.cluster.distributed_game import Setting
from headlab.evaluation import Evaluator, label_order
from headlab.hooks import Model, gated
from headlab.masks import load_mask, seen
from headlab.methods.run import score
from headlab.tasks import (
    CHANCE_LEVEL,
    Example,
    Split,
    Task,
    are_nameless,
    columns_by_map,
    columns_by_name,
    has_classes_of_map,
    map_hint,
    match_before_examples,
    read_label_map,
    try_orders,
    write_label_map,
)
from headlab.tasks.labels import PLACEHOLDER, class_text, sure_classes

NLI = ("entailment", "neutral", "contradiction")


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (("contradiction", "neutral", "entailment"), (2, 1, 0)),
        (("CONTRADICTION", "Neutral", "ENTAILMENT"), (2, 1, 0)),
        (("contradictory", "neutral", "entail", "other"), (2, 1, 0)),
        (("LABEL_0", "LABEL_1", "LABEL_2"), None),
        (("entailment", "ENTAILMENT", "neutral", "contradiction"), (0, 2, 3)),
        (("Entailment", "ENTAILMENT", "neutral", "contradiction"), None),  # either could be meant
        (("entailment", "neutral"), None),
    ],
)
def test_names_match_without_case_and_by_synonyms(names, columns):
    assert columns_by_name(NLI, names) == columns


def test_names_of_punctuation_are_not_taken_for_one_another():
    assert columns_by_name((".", ",", "``"), (",", "``", ".")) == (2, 0, 1)
    assert columns_by_name(("not_entailment",), ("Not-Entailment",)) == (0,)
    assert columns_by_name((".", ","), ("!", "?")) is None


@pytest.mark.parametrize("names", [("LABEL_0", "LABEL_1"), ("0", "1"), ("label 0", "Class-1"), ()])
def test_default_names_say_nothing(names):
    assert are_nameless(names)
    assert not are_nameless((*names, "neutral"))


def test_a_label_map_names_classes_or_counts_them():
    names = ("LABEL_0", "LABEL_1", "LABEL_2")
    assert columns_by_map(
        "xnli", NLI, names, dict(zip(NLI, ("LABEL_2", "label_1", "0"), strict=True))
    ) == (2, 1, 0)
    whole = dict(zip(NLI, names, strict=True))
    with raises("label_map.labels_mismatch", "neutral"):
        columns_by_map("xnli", NLI, names, {k: v for k, v in whole.items() if k != "neutral"})
    with raises("label_map.labels_mismatch", "other"):
        columns_by_map("xnli", NLI, names, whole | {"other": "0"})
    with raises("label_map.class_unknown", "LABEL_7"):
        columns_by_map("xnli", NLI, names, whole | {"neutral": "LABEL_7"})
    with raises("label_map.class_unknown", 3):
        columns_by_map("xnli", NLI, names, whole | {"neutral": "3"})
    with raises("label_map.class_twice"):
        columns_by_map("xnli", NLI, names, whole | {"neutral": "LABEL_0"})


@given(some.lists(some.lists(some.integers(0, 9), min_size=3, max_size=3), min_size=3, max_size=3))
def test_the_best_order_is_that_of_counting_every_example(rows):
    counts = np.array(rows)
    found = try_orders(counts)
    assert (found.right, found.next, found.p) == pytest.approx(orders_compared(counts.tolist()))


def test_a_wrong_order_is_hardly_ever_surely_the_best():
    """Weak models, whose right order is right only a little more often: the error rate is below the level."""
    rng = np.random.default_rng(5)
    wrong = 0
    told = 0
    for _ in range(4000):
        edge = rng.choice([0.0, 0.02, 0.1])
        answers = np.full((3, 3), (1 - edge) / 9) + np.diag([edge / 3] * 3)
        found = try_orders(rng.multinomial(256, answers.ravel()).reshape(3, 3))
        sure = found.p <= CHANCE_LEVEL
        told += sure
        wrong += sure and found.columns != (0, 1, 2)
    assert wrong <= 4000 * CHANCE_LEVEL + 3 * (4000 * CHANCE_LEVEL) ** 0.5
    assert told < 4000 / 10


def labelled(model: Model, order: tuple[int, ...], noise: float) -> Task:
    """The tiny task's texts, with labels that the model has right in this order of its classes, but for some noise."""
    tiny = tiny_task()
    evaluator = Evaluator(model, tiny_task(), "xx", "dev")
    answers = evaluator.evaluate().predicted
    place = {column: label for label, column in enumerate(order)}

    def read(language: str, split: Split, seed: int) -> list[Example]:
        rng = np.random.default_rng(1)
        out = []
        for again in range(10):
            for example, answer in zip(evaluator.examples, answers.tolist(), strict=True):
                label = int(rng.integers(5)) if rng.random() < noise else place[answer]
                out.append(replace(example, id=f"{again}-{example.id}", label=label))
        return out

    return replace(tiny, read=read, languages=("xx",))


def without_names(model: Model) -> Model:
    model.module.config.id2label = {at: f"LABEL_{at}" for at in range(5)}
    model.orders.clear()
    return model


@pytest.fixture
def model() -> Model:
    """A classifier that gives each of its five answers to some of the tiny task's examples."""
    made = tiny_model("bert", torch.float32, seed=3, tokenizer=tiny_tokenizer())
    texts = [example.text for example in tiny_task().examples("xx", "dev")]
    with torch.no_grad():
        logits = made.module(**made.tokenizer(texts, padding=True, return_tensors="pt")).logits
        made.module.classifier.weight /= logits.std(dim=0)[:, None]
        made.module.classifier.bias.copy_(-(logits / logits.std(dim=0)).mean(dim=0))
    return made


ORDER = (3, 0, 4, 1, 2)


def test_nameless_classes_are_found_on_dev_whatever_is_switched_off(model):
    task = labelled(model, ORDER, 0.2)
    without_names(model)
    with (
        gated(model, np.zeros((model.grid.layers, model.grid.width))),
        pytest.warns(UserWarning, match="a = LABEL_3"),
    ):
        found = label_order(model, task)
    assert found.columns == ORDER
    assert Evaluator(model, task, "xx", "dev", None).evaluate().accuracy > 0.75


def test_the_order_is_that_of_the_task_whatever_languages_are_chosen(model):
    """A job on some languages has the classes that it has in a worker, whose live figures are of all languages."""
    clear = labelled(model, ORDER, 0.2)
    unclear = labelled(model, ORDER, 1.0)

    def read(language: str, split: Split, seed: int) -> list[Example]:
        return list((clear if language == "xx" else unclear).read(language, split, seed))

    task = replace(clear, read=read, languages=("xx", "yy"))
    without_names(model)
    with pytest.warns(UserWarning, match=r"a = LABEL_3, .* dev answers \(xx\) right"):
        found = label_order(model, task.restricted(["yy"]))
    assert found.columns == ORDER
    assert label_order(model, task) is found
    assert task.restricted(["yy"]).restricted(["yy"]).unrestricted() == task
    assert task.unrestricted() == task


def test_what_was_assumed_is_part_of_a_result(model):
    task = labelled(model, ORDER, 0.2)
    named = score(model, task, language="xx", method="random", size=24).spec
    assert "classes" not in named["task"]
    without_names(model)
    with pytest.warns(UserWarning, match="they are taken for a = LABEL_3, b = LABEL_0"):
        found = score(model, task, language="xx", method="random", size=24).spec
    assert found["task"]["classes"]["a"] == "LABEL_3"
    stated = replace(task, label_map=dict(found["task"]["classes"]))
    assert score(model, stated, language="xx", method="random", size=24).spec == found


def test_a_helper_elsewhere_gets_the_order_that_was_found(model):
    """It has the examples of one split alone, which may not be dev."""
    task = labelled(model, ORDER, 0.2)
    without_names(model)
    with pytest.warns(UserWarning, match="a = LABEL_3"):
        here = Evaluator(model, task, "xx", "test", 24)
    setting = Setting.of(here, "zero")
    model.orders.clear()
    there = setting.evaluator(model, 24)
    assert (there.evaluate().predicted == here.evaluate().predicted).all()
    assert label_order(model, there.task).columns == ORDER


def test_what_was_assumed_and_a_model_worse_than_guessing_are_said_beside_figures(model):
    task = labelled(model, ORDER, 0.2)
    assert Evaluator(model, task, "xx", "dev", 24).note == ""  # it has the labels' names
    stated = replace(task, label_map={label: str(at) for at, label in enumerate(task.labels)})
    wrong = Evaluator(model, stated, "xx", "dev", None)
    assert wrong.note == ""  # the same classes as by name
    with pytest.warns(UserWarning, match="significantly fewer than guessing"):
        wrong.evaluate()
    assert "significantly fewer than guessing one of 5 labels" in wrong.note
    without_names(model)
    with pytest.warns(UserWarning, match="a = LABEL_3"):
        found = Evaluator(model, task, "xx", "dev", None)
    found.evaluate()
    assert found.note == label_order(model, task).note
    assert Evaluator(model, stated, "xx", "dev", 24).note == "Label map: " + ", ".join(
        f"{label} = LABEL_{at}" for at, label in enumerate(task.labels)
    )


BROKEN = (
    "{}",
    '{"a": 1}',
    '{"a": "0"',
    '{"a": "0", "a": "1"}',
    '{"a": ""}',
    '{"a": {"b": "0"}}',
    '["a"]',
    "{" * 10_000,
)


@pytest.mark.parametrize("text", ["", "a", "a=", "=0", "a=0,a=1", "a=0,,b=1", "a=0;b=1,", *BROKEN])
def test_a_malformed_label_map_is_refused(text):
    with raises("label_map.malformed"):
        read_label_map(text)


@given(some.dictionaries(some.text(min_size=1), some.text(min_size=1), min_size=1, max_size=4))
def test_any_label_map_is_read_as_it_is_written(told):
    assert read_label_map(write_label_map(told)) == told


def test_a_label_map_is_text_where_it_can_be():
    told = {"a": "LABEL_0", "b c": "x=y", "d": "1"}
    assert write_label_map(told) == "a=LABEL_0,b c=x=y,d=1"
    assert read_label_map('{"a, b": "LABEL_0", "c": "1"}') == {"a, b": "LABEL_0", "c": "1"}
    assert read_label_map(" a = LABEL_0 , b c=x=y,d=1") == told


@pytest.mark.parametrize(
    ("classes", "told", "same"),
    [
        (None, {"a": "a", "b": "b"}, True),
        (None, {"a": "b", "b": "a"}, False),
        (None, {"a": "A", "b": "B"}, True),
        ({"a": "LABEL_1", "b": "LABEL_0"}, None, True),
        ({"a": "LABEL_1", "b": "LABEL_0"}, {"a": "label_1", "b": "label_0"}, True),
        (
            {"a": "LABEL_1", "b": "LABEL_0"},
            {"a": "1", "b": "0"},
            False,
        ),  # the model may count otherwise
        (None, {"a": "1", "b": "0"}, False),
        ({"a": "good", "b": "bad"}, {"a": "bad", "b": "good"}, False),
        ({"a": "good", "b": "bad"}, {"a": "good"}, False),
    ],
)
def test_whether_a_result_has_the_classes_of_a_label_map(classes, told, same):
    assert has_classes_of_map({} if classes is None else {"classes": classes}, told) is same


def test_what_cannot_be_told_is_refused_and_may_be_stated(model):
    task = labelled(model, ORDER, 1.0)  # labels that have nothing to do with the answers
    without_names(model)
    with raises("model.labels_unknown", "--label-map", "LABEL_0", "dev answers"):
        Evaluator(model, task, "xx")
    stated = replace(task, label_map={label: str(at) for at, label in enumerate(task.labels)})
    assert Evaluator(model, stated, "xx").evaluate().n == 240


def test_many_nameless_classes_are_refused(model):
    without_names(model)
    many = replace(tiny_task(), labels=tuple("abcdefg"))
    model.module.config.id2label = {at: f"LABEL_{at}" for at in range(7)}
    with raises("model.labels_unknown", "7 labels"):
        label_order(model, many)


def test_other_names_are_refused_and_may_be_stated(model):
    model.module.config.id2label = dict(enumerate(("joy", "fear", "anger", "love", "calm")))
    with raises("model.labels_mismatch", "joy", "--label-map"):
        label_order(model, tiny_task())
    told = dict(zip(tiny_task().labels, ("fear", "joy", "anger", "love", "calm"), strict=True))
    assert label_order(model, replace(tiny_task(), label_map=told)).columns == (1, 0, 2, 3, 4)


def test_the_command_says_the_classes_where_they_are_not_the_labels(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("headlab.tasks.registry.TASKS", {"tiny": lambda _: tiny_task()})
    folder = save_family(tmp_path / "bert", "bert")
    asked = [
        "evaluate",
        "--model",
        str(folder),
        "--task",
        "tiny",
        "--languages",
        "xx",
        "--size",
        "24",
        "--json",
    ]
    assert main(asked) == 0
    plain = json.loads(capsys.readouterr().out)["languages"]["xx"]
    assert "classes" not in plain
    turned = dict(zip("abcde", "bcdea", strict=True))
    assert (
        main([*asked, "--label-map", ",".join(f"{label}={name}" for label, name in turned.items())])
        == 0
    )
    assert json.loads(capsys.readouterr().out)["languages"]["xx"]["classes"] == turned


def test_a_pruned_mask_says_the_label_map_of_its_figures(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("headlab.tasks.registry.TASKS", {"tiny": lambda _: tiny_task()})
    turned = dict(zip("abcde", "bcdea", strict=True))
    asked = [
        "--model",
        str(save_family(tmp_path / "bert", "bert")),
        "--task",
        "tiny",
        "--languages",
        "xx",
        "--cache",
    ]
    asked += [
        str(tmp_path),
        "--label-map",
        ",".join(f"{label}={name}" for label, name in turned.items()),
    ]
    assert main(["score", *asked, "--method", "leave-one-out", "--size", "8"]) == 0
    out = tmp_path / "mask.json"
    prune = [
        "prune",
        *asked,
        "--method",
        "leave-one-out",
        "--rule",
        "bottom",
        "--k",
        "1",
        "--size",
        "8",
    ]
    assert main([*prune, "--out", str(out)]) == 0
    told = "Label map: a = b, b = c, c = d, d = e, e = a"
    (figure,) = (one.figure for one in seen(load_mask(out)))
    assert figure["note"] == told
    capsys.readouterr()
    assert main(["mask", "show", str(out)]) == 0
    assert told in capsys.readouterr().out


def typed_in(hint: str) -> str:
    """The label map of a hint, as a shell gives it to the command."""
    flag, text = shlex.split(
        hint[: hint.rindex(" (")].split(" (in place of each ")[0].split(" (and so on")[0]
    )
    assert flag == "--label-map"
    return text


ODD = (
    "yes, of course",
    "a = b",
    "it's",
    'say "no"',
    "two\nlines",
    " spaced ",
    "{",
    "$HOME `id`",
    "ü, ß",
)


@pytest.mark.parametrize(
    ("labels", "names", "pairs"),
    [
        (NLI, ("LABEL_0", "LABEL_1", "LABEL_2"), {}),
        (("contradiction", "entailment"), ("entailment", "other"), {"entailment": 0}),
        (NLI, ("entails", "NEUTRAL", "class c"), {"entailment": 0, "neutral": 1}),
        (("good", "bad"), ("positive", "negative"), {}),
        (("pos", "neg"), ("Negative", "Positive", "mixed"), {"pos": 1, "neg": 0}),
        (("a", "b"), ("A", "a", "B", "b "), {"a": 1}),  # either of the last two could be meant
        (("x", "y"), ("X", "X"), {}),
        (("0", "1"), ("1", "two"), {"1": 0}),
        (("C++", "Go"), ("C", "go"), {"Go": 1}),
    ],
)
def test_reported_21_a_hint_pairs_only_what_has_one_meaning(labels, names, pairs):
    assert sure_classes(labels, names) == pairs
    stated = read_label_map(typed_in(map_hint(labels, names)))
    assert list(stated) == list(labels)
    for label, text in stated.items():
        assert text == (class_text(names, pairs[label]) if label in pairs else PLACEHOLDER)


@pytest.mark.parametrize(
    "names", [ODD, tuple(reversed(ODD)), ("same", "same", *ODD[2:]), ("0", *ODD[1:])]
)
def test_reported_21_what_a_hint_prints_is_typed_and_read_back(names):
    hint = map_hint(ODD, names)
    assert hint.isprintable()
    stated = read_label_map(typed_in(hint))
    sure = sure_classes(ODD, names)
    free = [column for column in range(len(names)) if column not in sure.values()]
    for label, text in stated.items():
        if text == PLACEHOLDER:  # a reader fills it in
            stated[label] = class_text(names, free.pop())
    columns = columns_by_map("odd", ODD, names, read_label_map(write_label_map(stated)))
    assert sorted(columns) == list(range(len(names)))
    assert all(columns[ODD.index(label)] == column for label, column in sure.items())


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (["yes", "no"], "sidebar)"),
        (["yes, sure", "no"], "sidebar, without the outer quotes)"),
        (["it's", "no"], "sidebar, as it's=CLASS,no=CLASS)"),
    ],
)
def test_reported_21_a_hint_says_what_the_app_takes(labels, told):
    assert map_hint(labels, ["x", "y"]).endswith(told)


def test_reported_21_a_placeholder_is_no_class_of_the_model():
    (text,) = {*read_label_map(typed_in(map_hint(("x", "y"), ("class", "CLASS_")))).values()}
    assert text.casefold() not in ("class", "class_")


def test_reported_21_no_label_map_is_advised_where_classes_are_too_few():
    model = without_names(tiny_model("bert"))
    tiny = tiny_task()
    with raises("model.labels_mismatch", 5, 7) as error:
        label_order(model, replace(tiny, labels=(*tiny.labels, "f", "g")))
    assert "--label-map" not in str(error.value)
    fits, sentence = match_before_examples("tiny", ("a", "b", "c"), ("x", "y"), None)
    assert fits is False
    assert "--label-map" not in sentence


def test_reported_21_of_many_labels_the_hint_says_that_all_are_needed():
    labels = tuple(f"label {number}" for number in range(30))
    hint = map_hint(labels, tuple(f"class {number}" for number in range(31)))
    assert "all 30 labels" in hint
    assert len(hint) < 1500


def test_reported_21_a_label_map_is_printed_on_one_line():
    stated = {"two\nlines": "x", "\u2028": "\x00"}
    assert write_label_map(stated).isprintable()
    assert read_label_map(write_label_map(stated)) == stated
