"""Methods that make passes of their own, on a device whose memory is full."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from numpy.testing import assert_allclose
from support.expected_errors import raises
from test_memory import FAMILIES, FULL, evaluator, room_for

from headlab.evaluation import Evaluator
from headlab.methods import confidence, gradient, method
from headlab.methods.work import Work


def work(found: Evaluator, key: str, **options: Any) -> Work:
    return Work(found, 0, method(key).resolve(options))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("form", ["example", "token", "batch"])
def test_gradients_are_the_same_from_smaller_batches(family: str, form: str) -> None:
    big = evaluator(family)
    small = evaluator(family)
    want = gradient.run(work(big, "gradient", form=form))
    with room_for(small.model, 5) as tried:
        got = gradient.run(work(small, "gradient", form=form))
    assert_allclose(got.values, want.values, rtol=1e-9)
    assert max(tried) > 5
    assert small.forwards == big.forwards


def test_a_backward_pass_that_did_not_fit_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    small = evaluator()
    backward = torch.autograd.grad

    def full(loss: Any, gates: torch.Tensor, **more: Any) -> Any:
        if len(gates) > 6:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return backward(loss, gates, **more)

    monkeypatch.setattr(torch.autograd, "grad", full)
    gradient.run(work(small, "gradient"))
    assert small.forwards == 24


@pytest.mark.parametrize("family", FAMILIES)
def test_confidence_is_the_same_from_smaller_batches(family: str) -> None:
    big = evaluator(family)
    small = evaluator(family)
    want = confidence.run(work(big, "confidence"))
    with room_for(small.model, 5) as tried:
        got = confidence.run(work(small, "confidence"))
    assert_allclose(got.values, want.values, rtol=1e-9)
    assert max(tried) > 5
    assert small.forwards == big.forwards


@pytest.mark.parametrize(("key", "module"), [("gradient", gradient), ("confidence", confidence)])
def test_one_row_that_does_not_fit_is_said(key: str, module: Any) -> None:
    none = evaluator()
    with room_for(none.model, 0), raises(FULL):
        module.run(work(none, key))
