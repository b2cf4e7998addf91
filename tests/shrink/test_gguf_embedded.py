"""SmolLM2 without groups of heads, as llama.cpp answers with it: token by token as the masked model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.llama_cpp import ask_llama_cpp, greedy_continuation, with_llama_cpp
from support.tiny_llama import UNSEEN_TEXTS

import headlab
from headlab.core import HeadlabError
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.shrink.gguf_folder import write_gguf_folder
from headlab.studies.savings_run import different_batches

pytestmark = [pytest.mark.soak, with_llama_cpp]

REMOVED_GROUPS = {(3, 0), (3, 1), (3, 2), (7, 1), (12, 0), (12, 2), (20, 2), (29, 0)}
"""(layer, group): eight groups in five layers, all three of layer 3."""
HEADS_OF_GROUP = 3
PROMPT_COUNT = 50
CONTINUATION = 24


@pytest.fixture(scope="module")
def model() -> Model:
    pytest.importorskip("gguf", reason="gguf is not installed; `make decoder` installs it")
    try:
        return headlab.load("smollm2-135m", device="cpu")
    except HeadlabError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def mask(model: Model) -> Mask:
    is_kept = [
        (head.layer, head.head // HEADS_OF_GROUP) not in REMOVED_GROUPS for head in model.grid.heads
    ]
    return Mask(model.grid, np.array(is_kept), model.identity())


def written(model: Model, mask: Mask, folder: Path, number_type: str) -> Path:
    batches = different_batches(model, None, rows=8, size=16, seed=0)
    options: dict[str, Any] = {"compared_on": {"task": None}, "number_type": number_type}
    write_gguf_folder(model, mask, folder / number_type, batches, **options)
    return folder / number_type / "model.gguf"


def token_ids(model: Model, count: int) -> list[list[int]]:
    """Tokens of English sentences of the embedded task."""
    examples = headlab.task("intents").examples("en", "test")[:count]
    return [list(model.tokenizer(example.text)["input_ids"]) for example in examples]


def test_llama_cpp_continues_fifty_prompts_as_the_masked_model(model, mask, tmp_path):
    file = written(model, mask, tmp_path, "float32")
    prompts = token_ids(model, PROMPT_COUNT)
    answer = ask_llama_cpp(file, tmp_path, UNSEEN_TEXTS, prompts, count=CONTINUATION, context=1024)
    assert answer.tokens == [model.tokenizer(text)["input_ids"] for text in UNSEEN_TEXTS]
    compared_tokens = 0
    for prompt, continuation in zip(prompts, answer.continuations, strict=True):
        expected = greedy_continuation(model, mask, prompt, CONTINUATION)
        assert continuation[: len(expected)] == expected
        compared_tokens += len(expected)
    assert compared_tokens > PROMPT_COUNT * CONTINUATION / 2
