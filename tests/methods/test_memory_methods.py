"""Methods that make passes of their own, on a device whose memory is full."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from numpy.testing import assert_allclose
from support.expected_errors import raises
from support.full_memory import EXAMPLE_TOO_LARGE, FAMILIES, evaluator, room_for

from headlab.evaluation import Evaluator
from headlab.methods import confidence, gradient, method
from headlab.methods.work import Work


def work(evaluator: Evaluator, key: str, **options: Any) -> Work:
    return Work(evaluator, 0, method(key).resolve(options))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("form", ["example", "token", "batch"])
def test_gradients_are_the_same_from_smaller_batches(family: str, form: str) -> None:
    much_memory = evaluator(family)
    little_memory = evaluator(family)
    want = gradient.run(work(much_memory, "gradient", form=form))
    with room_for(little_memory.model, 5) as row_counts:
        got = gradient.run(work(little_memory, "gradient", form=form))
    assert_allclose(got.values, want.values, rtol=1e-9)
    assert max(row_counts) > 5
    assert little_memory.forwards == much_memory.forwards


def test_a_backward_pass_that_did_not_fit_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    little_memory = evaluator()
    backward = torch.autograd.grad

    def backward_of_6_rows(loss: Any, gates: torch.Tensor, **options: Any) -> Any:
        if len(gates) > 6:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return backward(loss, gates, **options)

    monkeypatch.setattr(torch.autograd, "grad", backward_of_6_rows)
    gradient.run(work(little_memory, "gradient"))
    assert little_memory.forwards == 24


@pytest.mark.parametrize("family", FAMILIES)
def test_confidence_is_the_same_from_smaller_batches(family: str) -> None:
    much_memory = evaluator(family)
    little_memory = evaluator(family)
    want = confidence.run(work(much_memory, "confidence"))
    with room_for(little_memory.model, 5) as row_counts:
        got = confidence.run(work(little_memory, "confidence"))
    assert_allclose(got.values, want.values, rtol=1e-9)
    assert max(row_counts) > 5
    assert little_memory.forwards == much_memory.forwards


@pytest.mark.parametrize(
    ("key", "module"),
    [("gradient", gradient), ("confidence", confidence)],
)
def test_one_row_that_does_not_fit_is_reported(key: str, module: Any) -> None:
    no_memory = evaluator()
    with room_for(no_memory.model, 0), raises(EXAMPLE_TOO_LARGE):
        module.run(work(no_memory, key))
