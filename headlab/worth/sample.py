"""Batches of real examples to run a model on: of a task, or of the embedded one's sentences for any text model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
    rng, source = np.random.default_rng(seed), _source(model, task)
    batches = []
    for _ in range(count):
        language = str(rng.choice(source.languages))
        batches.append(_batch(model, task, _drawn(source, language, rows, rng), language))
    return batches


def different_batches(model: Model, task: Task | None, *, rows: int, size: int, seed: int) -> Batches:
    """`size` dev examples, none twice, in batches of up to so many rows; fewer where there are no more.

    Languages are drawn by lot, batch by batch; of each, the first `POOL` examples are drawn from.  task and errors as
    in `batches_of`.
    """
    rng, source = np.random.default_rng(seed), _source(model, task)
    languages, pools, met = list(source.languages), dict[str, list[Example]](), set[Any]()
    batches, left = list[dict[str, torch.Tensor]](), size
    while languages and left:
        language = str(rng.choice(languages))
        if language not in pools:
            pool = source.examples(language, "dev", POOL)
            pools[language] = [pool[i] for i in rng.permutation(len(pool))]
        drawn = _unmet(pools[language], min(rows, left), met)
        if not pools[language]:
            languages.remove(language)
        if drawn:
            batches.append(_batch(model, task, drawn, language))
            left -= len(drawn)
    return batches


def _unmet(pool: list[Example], count: int, met: set[Any]) -> list[Example]:
    """Up to so many examples off the end of a pool whose texts were not met before."""
    drawn: list[Example] = []
    while pool and len(drawn) < count:
        example = pool.pop()
        said = (example.text, example.pair, example.words, example.target)
        if said not in met:
            met.add(said)
            drawn.append(example)
    return drawn


def _source(model: Model, task: Task | None) -> Task:
    if task is None and model.tokenizer is None:
        raise HeadlabError(
            f"{model.name} has no tokenizer, so there is nothing to run it on; give its folder one",
            code="tokenizer.missing",
        )
    return task_of(SENTENCES) if task is None else task


def _batch(model: Model, task: Task | None, drawn: list[Example], language: str) -> dict[str, torch.Tensor]:
    whole = np.arange(len(drawn))
    if task is not None:
        return read(model, task, drawn, language).tensors(whole)
    return _with_target(model, pad(model, encode(model, [example.text for example in drawn]), whole))


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
