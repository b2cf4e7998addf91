"""What llama.cpp makes of a GGUF file, asked in a process without headlab."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from headlab.hooks import Model, gated
from headlab.masks import Mask

NEAR_TIE = 1e-3
"""Logits this close may change places by rounding."""

with_llama_cpp = pytest.mark.skipif(
    find_spec("xllamacpp") is None, reason="xllamacpp (llama.cpp) has no wheel for this machine"
)


@dataclass(frozen=True)
class Answer:
    """What llama.cpp says of texts and prompts.

    Attributes:
        tokens: Of every text, start and end tokens included.
        continuations: Of every prompt.
    """

    tokens: list[list[int]]
    continuations: list[list[int]]


def ask_llama_cpp(
    file: Path,
    folder: Path,
    texts: Sequence[str] = (),
    prompts: Sequence[Sequence[int]] = (),
    *,
    count: int = 1,
    context: int = 128,
    keeps_cache: bool = False,
    python: str = sys.executable,
) -> Answer:
    """Tokens of texts, and greedy continuations of prompts.

    Args:
        file: A GGUF file.
        folder: For the request and the answer.
        texts: To split.
        prompts: Token ids.
        count: Tokens of a continuation.
        context: Tokens that are held at most.
        keeps_cache: Whether a prompt goes on from what it has in common with the last one.
        python: That runs it; it has xllamacpp.
    """
    request = {
        "texts": list(texts),
        "prompts": [list(prompt) for prompt in prompts],
        "count": count,
        "context": context,
        "keeps_cache": keeps_cache,
    }
    request_file, answer_file = folder / "request.json", folder / "answer.json"
    request_file.write_text(json.dumps(request), "utf-8")
    answer_file.unlink(missing_ok=True)
    process = Path(__file__).with_name("llama_cpp_process.py")
    run = subprocess.run(
        [python, process, file, request_file, answer_file],
        capture_output=True,
        text=True,
        errors="replace",
    )
    assert answer_file.is_file(), run.stderr[-3000:]
    return Answer(**json.loads(answer_file.read_text("utf-8")))


def greedy_continuation(
    model: Model, mask: Mask | None, prompt: Sequence[int], count: int
) -> list[int]:
    """The masked model's likeliest tokens one after another, up to the end token or a near tie.

    Args:
        model: A decoder.
        mask: Heads that stay; None for all.
        prompt: Token ids.
        count: Tokens at most.
    """
    if mask is not None:
        with gated(model, mask):
            return greedy_continuation(model, None, prompt, count)
    continuation: list[int] = []
    unread_ids = list(prompt)
    cache = None
    while len(continuation) < count:
        with torch.inference_mode():
            output = model.module(
                input_ids=torch.tensor([unread_ids]), past_key_values=cache, use_cache=True
            )
        logits, cache = output.logits[0, -1], output.past_key_values
        best, second = logits.topk(2).values.tolist()
        likeliest = int(logits.argmax())
        if best - second < NEAR_TIE or likeliest == model.tokenizer.eos_token_id:
            break
        continuation.append(likeliest)
        unread_ids = [likeliest]
    return continuation
