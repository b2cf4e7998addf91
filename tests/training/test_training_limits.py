"""Seeds beyond torch's range, and what does not fit in memory, in all trainings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.expected_errors import raises
from support.synthetic_text import GATE_OPTIONS, TINY_OPTIONS, made_splits
from support.toy_language import toy_examples

from headlab.models.allattention.modelling import AllAttentionForCausalLM
from headlab.training import TranslationOptions
from headlab.training.lm_prune import prune_lm
from headlab.training.lm_train import train_lm
from headlab.training.steps import dropout_seed, torch_seed
from headlab.training.translation import train_translation

LARGE_SEED = 2**70 + 3


@pytest.mark.parametrize(
    "seed",
    [0, 1, 42, 10**9],
)
def test_ordinary_seeds_give_the_numbers_they_always_gave(seed: int):
    assert torch_seed(seed) == seed
    assert dropout_seed(seed, 6) == seed * 1_000_003 + 7


def test_a_large_seed_trains_and_prunes_a_language_model(tmp_path: Path):
    start = train_lm(
        made_splits(), tmp_path / "lm", replace(TINY_OPTIONS, steps=2, seed=LARGE_SEED)
    )
    prune_lm(
        start,
        made_splits(),
        tmp_path / "pruned",
        replace(GATE_OPTIONS, steps=2, tune_steps=1, seed=LARGE_SEED),
    )


def test_a_large_seed_trains_a_translation_model(tmp_path: Path):
    pytest.importorskip("sentencepiece")
    options = TranslationOptions(
        steps=2,
        batch=8,
        vocabulary=40,
        width=8,
        feed_forward=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_heads=2,
        decoder_heads=2,
        seed=LARGE_SEED,
    )
    train_translation(toy_examples("train"), pair="aa-bb", out=tmp_path / "mt", options=options)


def raise_memory_full(*_: Any, **__: Any) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_an_optimizer_that_does_not_fit_in_memory_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.optim.AdamW, "step", raise_memory_full)
    with raises("memory.training_too_large", "the optimizer state", "less width"):
        train_lm(made_splits(), tmp_path / "lm", TINY_OPTIONS)


@pytest.mark.parametrize(
    ("module_class", "failing_method"),
    [(AllAttentionForCausalLM, "__init__"), (torch.nn.Module, "to")],
    ids=["__init__", "to"],
)
def test_a_model_that_does_not_fit_in_memory_is_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module_class: type[torch.nn.Module],
    failing_method: str,
):
    monkeypatch.setattr(module_class, failing_method, raise_memory_full)
    with raises("memory.training_too_large", "the model", "less width"):
        train_lm(made_splits(), tmp_path / "lm", TINY_OPTIONS)


def test_another_error_of_the_optimizer_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def raise_another_error(*_: Any, **__: Any) -> None:
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(torch.optim.AdamW, "step", raise_another_error)
    with pytest.raises(RuntimeError, match="shapes differ"):
        train_lm(made_splits(), tmp_path / "lm", TINY_OPTIONS)
