"""Which class of a model is which label: by name, as stated, or found on dev.

It is refused where none of them tells.
"""

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

from headlab.cli.run import main
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
    columns = columns_by_name((".", ",", "``"), (",", "``", "."))
    assert columns == (2, 0, 1)
    assert columns_by_name(("not_entailment",), ("Not-Entailment",)) == (0,)
    assert columns_by_name((".", ","), ("!", "?")) is None


@pytest.mark.parametrize(
    "names",
    [
        ("LABEL_0", "LABEL_1"),
        ("0", "1"),
        ("label 0", "Class-1"),
        (),
    ],
)
def test_default_names_say_nothing(names):
    assert are_nameless(names)
    assert not are_nameless((*names, "neutral"))


def test_a_label_map_names_classes_or_counts_them():
    names = ("LABEL_0", "LABEL_1", "LABEL_2")
    mixed_map = dict(zip(NLI, ("LABEL_2", "label_1", "0"), strict=True))
    assert columns_by_map("xnli", NLI, names, mixed_map) == (2, 1, 0)
    label_map = dict(zip(NLI, names, strict=True))
    without_neutral = dict(label_map)
    del without_neutral["neutral"]
    with raises("label_map.labels_mismatch", "neutral"):
        columns_by_map("xnli", NLI, names, without_neutral)
    with raises("label_map.labels_mismatch", "other"):
        columns_by_map("xnli", NLI, names, label_map | {"other": "0"})
    with raises("label_map.class_unknown", "LABEL_7"):
        columns_by_map("xnli", NLI, names, label_map | {"neutral": "LABEL_7"})
    with raises("label_map.class_unknown", 3):
        columns_by_map("xnli", NLI, names, label_map | {"neutral": "3"})
    with raises("label_map.class_twice"):
        columns_by_map("xnli", NLI, names, label_map | {"neutral": "LABEL_0"})


@given(some.lists(some.lists(some.integers(0, 9), min_size=3, max_size=3), min_size=3, max_size=3))
def test_the_best_order_is_that_of_counting_every_example(rows):
    counts = np.array(rows)
    order = try_orders(counts)
    accuracy, runner_up_accuracy, p_value = orders_compared(counts.tolist())
    assert order.accuracy == pytest.approx(accuracy)
    assert order.runner_up_accuracy == pytest.approx(runner_up_accuracy)
    assert order.p_value == pytest.approx(p_value)


def test_a_wrong_order_is_hardly_ever_surely_the_best():
    """The error rate is below the level for weak models, too.

    Their right order is right only a little more often than the others.
    """
    rng = np.random.default_rng(5)
    wrong_orders = 0
    significant_orders = 0
    for _ in range(4000):
        edge = rng.choice([0.0, 0.02, 0.1])
        all_alike = np.full((3, 3), (1 - edge) / 9)
        probabilities = all_alike + np.diag([edge / 3] * 3)
        counts = rng.multinomial(256, probabilities.ravel())
        best_order = try_orders(counts.reshape(3, 3))
        is_significant = best_order.p_value <= CHANCE_LEVEL
        significant_orders += is_significant
        wrong_orders += is_significant and best_order.columns != (0, 1, 2)
    expected_count = 4000 * CHANCE_LEVEL
    assert wrong_orders <= expected_count + 3 * expected_count**0.5
    assert significant_orders < 4000 / 10


def task_in_order(model: Model, order: tuple[int, ...], noise: float) -> Task:
    """The tiny task's texts with labels that the model has right, but for some noise.

    Args:
        model: A classifier.
        order: The class of each label with which the model is right.
        noise: Share of the labels that are random.
    """
    tiny = tiny_task()
    evaluator = Evaluator(model, tiny_task(), "xx", "dev")
    answers = evaluator.evaluate().predicted
    label_by_class = {column: label for label, column in enumerate(order)}

    def read(language: str, split: Split, seed: int) -> list[Example]:
        rng = np.random.default_rng(1)
        examples = []
        for copy in range(10):
            for example, answer in zip(evaluator.examples, answers.tolist(), strict=True):
                label = label_by_class[answer]
                if rng.random() < noise:
                    label = int(rng.integers(5))
                example_id = f"{copy}-{example.id}"
                examples.append(replace(example, id=example_id, label=label))
        return examples

    return replace(tiny, read=read, languages=("xx",))


def without_names(model: Model) -> Model:
    model.module.config.id2label = {column: f"LABEL_{column}" for column in range(5)}
    model.orders.clear()
    return model


@pytest.fixture
def model() -> Model:
    """A classifier that gives each of its five answers to some of the tiny task's examples."""
    classifier = tiny_model("bert", torch.float32, seed=3, tokenizer=tiny_tokenizer())
    texts = [example.text for example in tiny_task().examples("xx", "dev")]
    inputs = classifier.tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = classifier.module(**inputs).logits
        deviations = logits.std(dim=0)
        scaled_logits = logits / deviations
        classifier.module.classifier.weight /= deviations[:, None]
        classifier.module.classifier.bias.copy_(-scaled_logits.mean(dim=0))
    return classifier


ORDER = (3, 0, 4, 1, 2)


def test_nameless_classes_are_found_on_dev_whatever_is_switched_off(model):
    task = task_in_order(model, ORDER, 0.2)
    without_names(model)
    with (
        gated(model, np.zeros((model.grid.layers, model.grid.width))),
        pytest.warns(UserWarning, match="a = LABEL_3"),
    ):
        order = label_order(model, task)
    assert order.columns == ORDER
    evaluation = Evaluator(model, task, "xx", "dev", None).evaluate()
    assert evaluation.accuracy > 0.75


def test_the_order_is_that_of_the_task_whatever_languages_are_chosen(model):
    """A job on some languages has the classes of the worker's live figures of all languages."""
    clear = task_in_order(model, ORDER, 0.2)
    unclear = task_in_order(model, ORDER, 1.0)

    def read(language: str, split: Split, seed: int) -> list[Example]:
        task = clear if language == "xx" else unclear
        return list(task.read(language, split, seed))

    task = replace(clear, read=read, languages=("xx", "yy"))
    without_names(model)
    with pytest.warns(UserWarning, match=r"a = LABEL_3, .* dev answers \(xx\) right"):
        order = label_order(model, task.with_languages(["yy"]))
    assert order.columns == ORDER
    assert label_order(model, task) is order
    assert task.with_languages(["yy"]).with_languages(["yy"]).with_all_languages() == task
    assert task.with_all_languages() == task


def test_what_was_assumed_is_part_of_a_result(model):
    task = task_in_order(model, ORDER, 0.2)
    spec_with_names = score(model, task, language="xx", method="random", size=24).spec
    assert "classes" not in spec_with_names["task"]
    without_names(model)
    with pytest.warns(UserWarning, match="they are taken for a = LABEL_3, b = LABEL_0"):
        spec = score(model, task, language="xx", method="random", size=24).spec
    assert spec["task"]["classes"]["a"] == "LABEL_3"
    with_map = replace(task, label_map=dict(spec["task"]["classes"]))
    assert score(model, with_map, language="xx", method="random", size=24).spec == spec


def test_a_helper_elsewhere_gets_the_order_that_was_found(model):
    """It has the examples of one split alone, which may not be dev."""
    task = task_in_order(model, ORDER, 0.2)
    without_names(model)
    with pytest.warns(UserWarning, match="a = LABEL_3"):
        local_evaluator = Evaluator(model, task, "xx", "test", 24)
    setting = Setting.of(local_evaluator, "zero")
    model.orders.clear()
    helper_evaluator = setting.evaluator(model, 24)
    helper_predictions = helper_evaluator.evaluate().predicted
    local_predictions = local_evaluator.evaluate().predicted
    assert (helper_predictions == local_predictions).all()
    assert label_order(model, helper_evaluator.task).columns == ORDER


def test_what_was_assumed_and_a_model_worse_than_guessing_are_said_beside_figures(model):
    task = task_in_order(model, ORDER, 0.2)
    assert Evaluator(model, task, "xx", "dev", 24).note == ""  # it has the labels' names
    with_map = replace(task, label_map=map_by_number(task))
    wrong = Evaluator(model, with_map, "xx", "dev", None)
    assert wrong.note == ""  # the same classes as by name
    with pytest.warns(UserWarning, match="significantly fewer than guessing"):
        wrong.evaluate()
    assert "significantly fewer than guessing one of 5 labels" in wrong.note
    without_names(model)
    with pytest.warns(UserWarning, match="a = LABEL_3"):
        evaluator = Evaluator(model, task, "xx", "dev", None)
    evaluator.evaluate()
    assert evaluator.note == label_order(model, task).note
    pairs = []
    for number, label in enumerate(task.labels):
        pairs.append(f"{label} = LABEL_{number}")
    evaluator_with_map = Evaluator(model, with_map, "xx", "dev", 24)
    assert evaluator_with_map.note == f"Label map: {', '.join(pairs)}"


def map_by_number(task: Task) -> dict[str, str]:
    """The label map that takes the labels for the model's classes in order."""
    return {label: str(number) for number, label in enumerate(task.labels)}


BROKEN_JSON = (
    "{}",
    '{"a": 1}',
    '{"a": "0"',
    '{"a": "0", "a": "1"}',
    '{"a": ""}',
    '{"a": {"b": "0"}}',
    '["a"]',
    "{" * 10_000,
)


@pytest.mark.parametrize(
    "text",
    ["", "a", "a=", "=0", "a=0,a=1", "a=0,,b=1", "a=0;b=1,", *BROKEN_JSON],
)
def test_a_malformed_label_map_is_refused(text):
    with raises("label_map.malformed"):
        read_label_map(text)


@given(some.dictionaries(some.text(min_size=1), some.text(min_size=1), min_size=1, max_size=4))
def test_any_label_map_is_read_as_it_is_written(label_map):
    assert read_label_map(write_label_map(label_map)) == label_map


def test_a_label_map_is_text_where_it_can_be():
    label_map = {"a": "LABEL_0", "b c": "x=y", "d": "1"}
    assert write_label_map(label_map) == "a=LABEL_0,b c=x=y,d=1"
    assert read_label_map('{"a, b": "LABEL_0", "c": "1"}') == {"a, b": "LABEL_0", "c": "1"}
    assert read_label_map(" a = LABEL_0 , b c=x=y,d=1") == label_map


@pytest.mark.parametrize(
    ("classes", "label_map", "are_equal"),
    [
        (None, {"a": "a", "b": "b"}, True),
        (None, {"a": "b", "b": "a"}, False),
        (None, {"a": "A", "b": "B"}, True),
        ({"a": "LABEL_1", "b": "LABEL_0"}, None, True),
        ({"a": "LABEL_1", "b": "LABEL_0"}, {"a": "label_1", "b": "label_0"}, True),
        # the model may count otherwise
        ({"a": "LABEL_1", "b": "LABEL_0"}, {"a": "1", "b": "0"}, False),
        (None, {"a": "1", "b": "0"}, False),
        ({"a": "good", "b": "bad"}, {"a": "bad", "b": "good"}, False),
        ({"a": "good", "b": "bad"}, {"a": "good"}, False),
    ],
)
def test_whether_a_result_has_the_classes_of_a_label_map(classes, label_map, are_equal):
    task_record = {} if classes is None else {"classes": classes}
    assert has_classes_of_map(task_record, label_map) is are_equal


def test_what_cannot_be_told_is_refused_and_may_be_stated(model):
    task = task_in_order(model, ORDER, 1.0)  # labels that have nothing to do with the answers
    without_names(model)
    with raises("model.labels_unknown", "--label-map", "LABEL_0", "dev answers"):
        Evaluator(model, task, "xx")
    with_map = replace(task, label_map=map_by_number(task))
    assert Evaluator(model, with_map, "xx").evaluate().n == 240


def test_many_nameless_classes_are_refused(model):
    without_names(model)
    task = replace(tiny_task(), labels=tuple("abcdefg"))
    model.module.config.id2label = {column: f"LABEL_{column}" for column in range(7)}
    with raises("model.labels_unknown", "7 labels"):
        label_order(model, task)


def test_other_names_are_refused_and_may_be_stated(model):
    names = ("joy", "fear", "anger", "love", "calm")
    model.module.config.id2label = dict(enumerate(names))
    with raises("model.labels_mismatch", "joy", "--label-map"):
        label_order(model, tiny_task())
    task = tiny_task()
    names_of_labels = ("fear", "joy", "anger", "love", "calm")
    label_map = dict(zip(task.labels, names_of_labels, strict=True))
    with_map = replace(task, label_map=label_map)
    assert label_order(model, with_map).columns == (1, 0, 2, 3, 4)


def test_the_command_says_the_classes_where_they_are_not_the_labels(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("headlab.tasks.registry.TASKS", {"tiny": lambda _: tiny_task()})
    folder = save_family(tmp_path / "bert", "bert")
    evaluate = ["evaluate", "--model", str(folder), "--task", "tiny", "--languages", "xx"]
    evaluate += ["--size", "24", "--json"]
    assert main(evaluate) == 0
    by_name = json.loads(capsys.readouterr().out)["languages"]["xx"]
    assert "classes" not in by_name
    assert main([*evaluate, "--label-map", write_label_map(ROTATED_MAP)]) == 0
    by_map = json.loads(capsys.readouterr().out)["languages"]["xx"]
    assert by_map["classes"] == ROTATED_MAP


ROTATED_MAP = dict(zip("abcde", "bcdea", strict=True))


def test_a_pruned_mask_says_the_label_map_of_its_figures(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("headlab.tasks.registry.TASKS", {"tiny": lambda _: tiny_task()})
    folder = save_family(tmp_path / "bert", "bert")
    flags = ["--model", str(folder), "--task", "tiny", "--languages", "xx"]
    flags += ["--cache", str(tmp_path), "--label-map", "a=b,b=c,c=d,d=e,e=a"]
    flags += ["--method", "leave-one-out", "--size", "8"]
    assert main(["score", *flags]) == 0
    mask_file = tmp_path / "mask.json"
    prune = ["prune", *flags, "--rule", "bottom", "--k", "1", "--out", str(mask_file)]
    assert main(prune) == 0
    note = "Label map: a = b, b = c, c = d, d = e, e = a"
    (evidence,) = seen(load_mask(mask_file))
    assert evidence.figure["note"] == note
    capsys.readouterr()
    assert main(["mask", "show", str(mask_file)]) == 0
    assert note in capsys.readouterr().out


def label_map_text(hint: str) -> str:
    """The label map of a hint, as a shell gives it to the command."""
    arguments = hint[: hint.rindex(" (")]
    for remark in (" (in place of each ", " (and so on"):
        arguments = arguments.split(remark)[0]
    flag, text = shlex.split(arguments)
    assert flag == "--label-map"
    return text


ODD_NAMES = (
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
    label_map = read_label_map(label_map_text(map_hint(labels, names)))
    assert list(label_map) == list(labels)
    for label, text in label_map.items():
        if label in pairs:
            assert text == class_text(names, pairs[label])
        else:
            assert text == PLACEHOLDER


@pytest.mark.parametrize(
    "names",
    [
        ODD_NAMES,
        tuple(reversed(ODD_NAMES)),
        ("same", "same", *ODD_NAMES[2:]),
        ("0", *ODD_NAMES[1:]),
    ],
)
def test_reported_21_what_a_hint_prints_is_typed_and_read_back(names):
    hint = map_hint(ODD_NAMES, names)
    assert hint.isprintable()
    label_map = read_label_map(label_map_text(hint))
    known_classes = sure_classes(ODD_NAMES, names)
    free = []
    for column in range(len(names)):
        if column not in known_classes.values():
            free.append(column)
    for label, text in label_map.items():
        if text == PLACEHOLDER:  # a reader fills it in
            label_map[label] = class_text(names, free.pop())
    map_read = read_label_map(write_label_map(label_map))
    columns = columns_by_map("odd", ODD_NAMES, names, map_read)
    assert sorted(columns) == list(range(len(names)))
    for label, column in known_classes.items():
        assert columns[ODD_NAMES.index(label)] == column


@pytest.mark.parametrize(
    ("labels", "ending"),
    [
        (["yes", "no"], "sidebar)"),
        (["yes, sure", "no"], "sidebar, without the outer quotes)"),
        (["it's", "no"], "sidebar, as it's=CLASS,no=CLASS)"),
    ],
)
def test_reported_21_a_hint_says_what_the_app_takes(labels, ending):
    assert map_hint(labels, ["x", "y"]).endswith(ending)


def test_reported_21_a_placeholder_is_no_class_of_the_model():
    hint = map_hint(("x", "y"), ("class", "CLASS_"))
    label_map = read_label_map(label_map_text(hint))
    (text,) = {*label_map.values()}
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
    names = tuple(f"class {number}" for number in range(31))
    hint = map_hint(labels, names)
    assert "all 30 labels" in hint
    assert len(hint) < 1500


def test_reported_21_a_label_map_is_printed_on_one_line():
    label_map = {"two\nlines": "x", "\u2028": "\x00"}
    assert write_label_map(label_map).isprintable()
    assert read_label_map(write_label_map(label_map)) == label_map
