"""headlab finds the method and the task, and the method gives what it says."""

import headlab
import numpy as np
import pytest
import torch
from headlab.methods import METHODS


@pytest.fixture
def model(folder):
    """The tiny model, loaded by headlab."""
    return headlab.load(folder)


def test_headlab_finds_both():
    assert METHODS["first-token"].title == "Attention to the first token"
    assert headlab.task("weather").languages == ("en", "de")
    assert METHODS.problems == []


def test_splits_share_no_text():
    task = headlab.task("weather")
    for language in task.languages:
        texts = [
            {example.text for example in task.examples(language, split, None)}
            for split in ("train", "dev", "test")
        ]
        assert len(set.union(*texts)) == sum(map(len, texts))


def test_values_are_shares_of_every_head(model):
    scores = headlab.score(model, headlab.task("weather"), language="de", method="first-token")
    assert scores.values.shape == (model.grid.size,)
    assert (scores.values > 0).all()
    assert (scores.values < 1).all()
    assert scores.unit == "share"


def test_values_are_what_the_model_itself_gives(model):
    """A second, slower way: one text at a time, with the attention that transformers returns."""
    task = headlab.task("weather")
    scores = headlab.score(model, task, language="en", method="first-token", size=4)
    sums = np.zeros((2, 3))
    tokens = 0
    model.module.set_attn_implementation("eager")
    for example in task.examples("en", "dev", 4):
        inputs = model.tokenizer(example.text, return_tensors="pt")
        with torch.inference_mode():
            attentions = model.module(**inputs, output_attentions=True).attentions
        for layer, weights in enumerate(attentions):  # [1, head, query, key]
            sums[layer] += weights[0, :, :, 0].sum(1).double().numpy()
        tokens += inputs["input_ids"].shape[1]
    np.testing.assert_allclose(scores.values.reshape(2, 3), sums / tokens, atol=1e-6)
