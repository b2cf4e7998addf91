"""Examples that models are compared on: none twice, and all there are where more are requested."""

from __future__ import annotations

import torch
from support.saved_models import save_classifier
from support.tiny_models import tiny_model
from support.tiny_task import tiny_tokenizer

import headlab
from headlab.shrink.proof import rows_without_padding
from headlab.studies.savings_run import batches_of, different_batches
from headlab.tasks import Example, Task


def test_no_example_is_drawn_twice_and_languages_are_drawn_at_random(tmp_path):
    model = headlab.load(str(save_classifier(tmp_path / "m")))
    task = headlab.task("intents", ["de", "fr"])
    batches = different_batches(model, task, rows=16, size=130, seed=0)
    assert [len(batch["input_ids"]) for batch in batches] == [16] * 8 + [2]
    rows = set().union(*map(rows_without_padding, batches))
    assert len(rows) == 130
    same_batches = different_batches(model, task, rows=16, size=130, seed=0)
    for batch, same_batch in zip(batches, same_batches, strict=True):
        assert torch.equal(batch["input_ids"], same_batch["input_ids"])
    batches_of_another_seed = different_batches(model, task, rows=16, size=130, seed=1)
    rows_of_another_seed = set().union(*map(rows_without_padding, batches_of_another_seed))
    assert rows_of_another_seed != rows


def test_all_examples_are_taken_where_there_are_no_more(tmp_path):
    model = headlab.load(str(save_classifier(tmp_path / "m")))
    task = headlab.task("intents", ["de"])
    batches = different_batches(model, task, rows=100, size=10_000, seed=0)
    texts = {example.text for example in task.examples("de", "dev", 512)}
    assert sum(len(batch["input_ids"]) for batch in batches) == len(texts)
    # A batch for timing has the requested size.
    timing_batches = batches_of(model, task, rows=600, count=1, seed=0)
    assert len(timing_batches[0]["input_ids"]) == 600


def test_choices_without_a_context_are_different_examples():
    pairs = []
    for word in range(4, 10):
        choices = (f"w{word} w5", f"w{word} w6")
        pairs.append(Example(str(word), "", 0, choices=choices))
    task = Task("pairs", (), ("xx",), False, lambda *_: pairs, likelihood="choices")
    model = tiny_model("llama-lm", tokenizer=tiny_tokenizer())
    (batch,) = different_batches(model, task, rows=10, size=10, seed=0)
    assert len(batch["input_ids"]) == len(pairs)
