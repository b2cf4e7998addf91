"""What a coalition is worth on an example: the three value functions against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from numpy.testing import assert_allclose, assert_array_equal
from support.expected_errors import raises
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.core import CLIP, VALUE_FUNCTIONS, value_function_of, value_of_answers
from headlab.evaluation import Evaluator

KEYS = tuple(VALUE_FUNCTIONS)


@pytest.fixture
def logits() -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    return 4 * torch.randn(40, 7, generator=generator, dtype=torch.float64)


@pytest.fixture
def labels() -> torch.Tensor:
    generator = torch.Generator().manual_seed(6)
    return torch.randint(7, (40,), generator=generator)


@pytest.mark.parametrize("key", KEYS)
def test_a_value_is_what_its_definition_says(
    key: str, logits: torch.Tensor, labels: torch.Tensor
) -> None:
    values = value_of_answers(value_function_of(key), logits, labels)
    slow_values = []
    for row, label in zip(logits, labels, strict=True):
        slow_value = reference.worth(key, row.tolist(), int(label))
        slow_values.append(slow_value)
    assert_allclose(values, slow_values, atol=1e-12)
    assert 0 <= values.min() < values.max() <= 1


@pytest.mark.parametrize("key", KEYS)
def test_several_answers_count_by_their_mean(
    key: str, logits: torch.Tensor, labels: torch.Tensor
) -> None:
    """A token without a label (with a negative one) does not count."""
    is_unlabelled = torch.arange(40) % 7 == 3
    labels = labels.masked_fill(is_unlabelled, -100)
    value = value_function_of(key)
    values = value_of_answers(value, logits.reshape(8, 5, 7), labels.reshape(8, 5))
    for row in range(8):
        slow_values = []
        for token in range(5 * row, 5 * row + 5):
            if token % 7 != 3:
                label = int(labels[token])
                slow_value = reference.worth(key, logits[token].tolist(), label)
                slow_values.append(slow_value)
        mean_value = np.mean(slow_values)
        assert float(values[row]) == pytest.approx(mean_value, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_values_stay_in_their_interval_however_sure_the_model_is(dtype: torch.dtype) -> None:
    sure_and_unsure = torch.tensor(
        [
            [200.0, -200.0, 0.0],
            [0.0, 0.0, 0.0],
        ],
        dtype=dtype,
    )
    right_labels = torch.tensor([0, 0])
    wrong_labels = torch.tensor([1, 1])
    value_of_a_third = {
        "probability": 1 / 3,
        "log-probability": 1 - np.log(3) / 10,
    }
    for key in KEYS:
        value = value_function_of(key)
        if_right = value_of_answers(value, sure_and_unsure, right_labels)
        if_wrong = value_of_answers(value, sure_and_unsure, wrong_labels)
        assert if_right[0] == 1
        assert 0 <= float(if_wrong[0]) < 1e-100
        if key != "accuracy":
            assert_allclose(float(if_right[1]), value_of_a_third[key], atol=1e-6)


def test_log_probabilities_are_clipped_at_ten_nats() -> None:
    assert CLIP == value_function_of("log-probability").span == 10
    nats = torch.tensor([-1.0, -9.0, -11.0])
    # the first label has exactly this log-probability
    nats_of_other_label = torch.log1p(-nats.exp())
    logits = torch.stack([nats, nats_of_other_label], dim=1)
    labels = torch.zeros(3, dtype=torch.long)
    values = value_of_answers(value_function_of("log-probability"), logits, labels)
    assert_allclose(values, [0.9, 0.1, 0.0], atol=1e-5)


def test_spans_units_and_steps_fit_the_values() -> None:
    units = {key: value.unit for key, value in VALUE_FUNCTIONS.items()}
    assert units == {
        "accuracy": "accuracy",
        "probability": "probability",
        "log-probability": "nats",
    }
    for key, value in VALUE_FUNCTIONS.items():
        assert key == value.key
        assert value.title
        steps = value_function_of(key).steps
        if key == "accuracy":
            assert steps == 1  # gains are whole as they are
        else:
            assert steps > 1


def test_an_unknown_value_function_is_refused() -> None:
    with raises("value.unknown", "'f1'", "accuracy, probability, log-probability"):
        value_function_of("f1")


@pytest.mark.parametrize("key", KEYS)
def test_the_evaluator_gives_the_value_of_every_example(key: str) -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 12)
    rows = np.array([3, 0, 7, 3])
    with torch.inference_mode():
        values = evaluator.worth(rows, value_function_of(key))
    assert values.dtype == np.float64
    assert evaluator.forwards == 4
    for row, value in zip(rows, values, strict=True):
        inputs = evaluator.tensors(np.array([row]))
        with torch.no_grad():
            (logits,) = model.module(**inputs).logits
        label = int(evaluator.examples[row].label)
        slow_value = reference.worth(key, logits.tolist(), label)
        assert value == pytest.approx(slow_value, abs=1e-9)
    if key == "accuracy":
        assert_array_equal(values, evaluator.evaluate().correct[rows])
