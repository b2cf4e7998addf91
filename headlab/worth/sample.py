"""Batches of real examples to run a model on: of a task, or of the embedded one's sentences for any text model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from headlab.errors import HeadlabError
from headlab.gates import Model
from headlab.inputs import encode, pad, read
from headlab.tasks import task as task_of
from headlab.tasks.base import Example, Task

SENTENCES = "intents"
POOL = 512  # examples of each language that batches are drawn from
Batches = list[dict[str, torch.Tensor]]


def batches_of(model: Model, task: Task | None, *, rows: int, count: int, seed: int) -> Batches:
    """So many batches of dev examples, each of a language drawn by lot and padded to its longest.

    task: None takes the sentences of the embedded task as plain texts, whatever the model was made for.  Raises
    HeadlabError if the model does not fit the task.
    """
    rng = np.random.default_rng(seed)
    source = task_of(SENTENCES) if task is None else task
    if task is None and model.tokenizer is None:
        raise HeadlabError(f"{model.name} has no tokenizer, so there is nothing to run it on; give its folder one")
    batches = []
    for _ in range(count):
        language = str(rng.choice(source.languages))
        drawn, whole = _drawn(source, language, rows, rng), np.arange(rows)
        if task is not None:
            batches.append(read(model, task, drawn, language).tensors(whole))
        else:
            tokens = encode(model, [example.text for example in drawn])
            batches.append(_with_target(model, pad(model, tokens, whole)))
    return batches


def _drawn(task: Task, language: str, count: int, rng: np.random.Generator) -> list[Example]:
    pool = task.examples(language, "dev", POOL)
    return [pool[i] for i in rng.choice(len(pool), count, replace=len(pool) < count)]


def _with_target(model: Model, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A sequence-to-sequence model is given as many target tokens: a pass over a target that is there."""
    if not model.module.config.is_encoder_decoder:
        return inputs
    return inputs | {"decoder_input_ids": inputs["input_ids"], "decoder_attention_mask": inputs["attention_mask"]}


def tokens_of(batches: Sequence[dict[str, torch.Tensor]]) -> int:
    """Tokens that a row of the batches has, padding counted: the median over batches."""
    return int(np.median([batch["input_ids"].shape[1] for batch in batches]))
