"""Heads that see the first and last tokens alone: slow loops, bits, passes midway, refusals."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from support.expected_errors import raises
from support.players_by_hand import playing
from support.streaming_by_hand import by_hand, closed_by_hand
from support.tiny_llama import tiny_llama
from support.tiny_models import tiny_model
from support.tiny_task import tiny_tokenizer

from headlab import gated
from headlab.core import (
    ABLATION_CHOICES,
    ABLATIONS,
    StreamingSizes,
    is_ablation,
    read_ablation,
    replacement_of,
    streaming_sizes,
)
from headlab.hooks import ActiveGates, Model
from headlab.hooks.state import FanOut, LayerStates

CLASSES = ("LlamaForCausalLM", "Gemma2ForCausalLM", "Qwen2ForCausalLM", "MistralForCausalLM")
# A window that is longer than any text here.
OPTIONS = {"Gemma2ForCausalLM": {"sliding_window": 64}}
LENGTHS = (12, 7, 3)
SIZES = StreamingSizes(2, 3)


@cache
def model_of(name: str) -> Model:
    model = (
        tiny_model("gpt2", tokenizer=tiny_tokenizer())
        if name == "gpt2"
        else tiny_llama(class_name=name, **OPTIONS.get(name, {}))
    )
    model.module.double()
    return model


def batch_of(model: Model, *, left: bool = False) -> dict[str, torch.Tensor]:
    """Texts of several lengths, padded on one side."""
    rng = np.random.default_rng(3)
    vocabulary = model.module.config.vocab_size
    ids = torch.as_tensor(rng.integers(5, vocabulary, (len(LENGTHS), max(LENGTHS))))
    places = torch.arange(max(LENGTHS))
    lengths = torch.as_tensor(LENGTHS)[:, None]
    mask = places >= max(LENGTHS) - lengths if left else places < lengths
    inputs = {"input_ids": torch.where(mask, ids, 0), "attention_mask": mask.long()}
    if left:
        inputs["position_ids"] = (mask.long().cumsum(1) - 1).clamp(min=0)
    return inputs


def output_of(model: Model, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    return model.module.base_model(**inputs).last_hidden_state


def tokens_of(output: torch.Tensor, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """The outputs of the real tokens, text by text."""
    is_token = inputs["attention_mask"].bool()
    return [row[mask] for row, mask in zip(output, is_token, strict=True)]


def random_gates(model: Model, rows: int | None = None) -> torch.Tensor:
    shape = (model.grid.layers, model.grid.width)
    if rows is not None:
        shape = (rows, *shape)
    return torch.as_tensor(np.random.default_rng(5).random(shape) < 0.5).double()


def slow_output(
    model: Model, inputs: dict[str, torch.Tensor], gates: torch.Tensor, sizes: StreamingSizes
) -> list[torch.Tensor]:
    """By a plain attention with a list of keys for each head, one text at a time."""
    slow = by_hand(model.module)
    outputs = []
    for row, mask in enumerate(inputs["attention_mask"].bool()):
        row_gates = gates[row] if gates.dim() == 3 else gates
        closed = [(int(layer), int(head)) for layer, head in (row_gates == 0).nonzero()]
        with torch.no_grad(), closed_by_hand(closed, *sizes):
            output = slow.base_model(input_ids=inputs["input_ids"][row, mask][None])
        outputs.append(output.last_hidden_state[0])
    return outputs


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("name", [*CLASSES, "gpt2"])
def test_closed_heads_give_what_a_list_of_keys_gives(name: str, left: bool) -> None:
    model = model_of(name)
    inputs = batch_of(model, left=left)
    for sizes in (SIZES, StreamingSizes(0, 1), StreamingSizes(1, 5)):
        for rows in (None, len(LENGTHS)):
            gates = random_gates(model, rows)
            expected = slow_output(model, inputs, gates, sizes)
            with torch.no_grad(), model.active(ActiveGates(gates=gates, streaming=sizes)):
                outputs = tokens_of(output_of(model, inputs), inputs)
            # Softmax is taken in float32 where scores are softly limited.
            tolerance = 1e-4 if name.startswith("Gemma2") else 1e-9
            for output, slow in zip(outputs, expected, strict=True):
                assert_allclose(output.numpy(), slow.numpy(), atol=tolerance)


def test_a_window_of_the_layer_stays_and_one_that_is_narrower_is_as_if_it_were_the_layers() -> None:
    wide, narrow = (tiny_llama(class_name="MistralForCausalLM", sliding_window=w) for w in (5, 3))
    inputs = batch_of(wide)
    gates = torch.zeros(wide.grid.layers, wide.grid.width)
    with torch.no_grad():
        for model, sizes, expected in ((wide, "0,8", wide), (wide, "0,3", narrow)):
            with gated(model, gates, ablation=f"streaming:{sizes}"):
                outputs = tokens_of(output_of(model, inputs), inputs)
            own = tokens_of(output_of(expected, inputs), inputs)
            for output, other in zip(outputs, own, strict=True):
                assert_allclose(output.numpy(), other.numpy(), atol=1e-4)
        assert not torch.allclose(output_of(wide, inputs), output_of(narrow, inputs), atol=1e-2)


def test_key_value_groups_stream_together() -> None:
    model = model_of("LlamaForCausalLM")
    variant = playing(model, "kv-groups")
    inputs = batch_of(model)
    gates = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    of_heads = gates.repeat_interleave(2, dim=1)
    expected = slow_output(model, inputs, of_heads, SIZES)
    with torch.no_grad(), variant.active(ActiveGates(gates=gates, streaming=SIZES)):
        outputs = tokens_of(output_of(model, inputs), inputs)
    for output, slow in zip(outputs, expected, strict=True):
        assert_allclose(output.numpy(), slow.numpy(), atol=1e-9)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("name", [*CLASSES, "gpt2"])
def test_sizes_as_long_as_the_text_change_nothing_to_the_bit(name: str, left: bool) -> None:
    model = model_of(name)
    inputs = batch_of(model, left=left)
    gates = torch.zeros(model.grid.layers, model.grid.width)
    with torch.no_grad():
        untouched = tokens_of(output_of(model, inputs), inputs)
        for sizes in ((2, 10), (0, 12), (11, 1), (3, 4)):
            with gated(model, gates, ablation=f"streaming:{sizes[0]},{sizes[1]}"):
                outputs = tokens_of(output_of(model, inputs), inputs)
            for output, own, length in zip(outputs, untouched, LENGTHS, strict=True):
                assert torch.equal(output, own) == (length <= sum(sizes))
        # Open gates change nothing under any sizes.
        with gated(model, torch.ones_like(gates), ablation="streaming:0,1"):
            outputs = tokens_of(output_of(model, inputs), inputs)
        assert all(torch.equal(output, own) for output, own in zip(outputs, untouched, strict=True))


def test_gates_between_mix_both_outputs_and_have_slopes() -> None:
    model = model_of("gpt2")  # it computes nothing in float32
    inputs = batch_of(model)
    gates = random_gates(model, len(LENGTHS))
    gates[:, 1] = torch.tensor([0.0, 0.25, 0.75, 1.0])

    def total(some_gates: torch.Tensor) -> torch.Tensor:
        with model.active(ActiveGates(gates=some_gates, streaming=SIZES)):
            output = output_of(model, inputs)
        return (output * inputs["attention_mask"][..., None]).tanh().sum()

    graded = gates.clone().requires_grad_()
    value = total(graded)
    (slopes,) = torch.autograd.grad(value, graded)
    with torch.no_grad():
        # The pass that takes slopes and the one that leaves out what is open give the same.
        assert_allclose(float(value), float(total(gates)), atol=1e-9)
        for place in ((0, 0, 0), (0, 1, 1), (1, 1, 3), (1, 2, 2)):
            ends = []
            for step in (1e-6, -1e-6):
                moved = gates.clone()
                moved[place] += step
                ends.append(float(total(moved)))
            assert_allclose(float(slopes[place]), (ends[0] - ends[1]) / 2e-6, atol=1e-5)
    # A text that is seen whole has none.
    assert not slopes[LENGTHS.index(3)].any()
    assert slopes[0].all()


def test_gates_of_single_tokens_reach_those_tokens() -> None:
    model = model_of("LlamaForCausalLM")
    inputs = {"input_ids": batch_of(model)["input_ids"][:1]}
    tokens = inputs["input_ids"].shape[1]
    gates = torch.ones(1, model.grid.layers, model.grid.width, tokens, dtype=torch.float64)
    gates[0, -1, :, -1] = 0
    with torch.no_grad():
        own = output_of(model, inputs)
        with model.active(ActiveGates(gates=gates, streaming=SIZES)):
            output = output_of(model, inputs)
        closed = torch.ones(model.grid.layers, model.grid.width, dtype=torch.float64)
        closed[-1] = 0
        with model.active(ActiveGates(gates=closed, streaming=SIZES)):
            streaming = output_of(model, inputs)
    assert torch.equal(output[:, :-1], own[:, :-1])
    assert_allclose(output[:, -1].numpy(), streaming[:, -1].numpy(), atol=1e-12)
    assert not torch.equal(output[:, -1], own[:, -1])


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "gpt2"])
def test_passes_that_start_midway_equal_full_ones(name: str) -> None:
    model = model_of(name)
    assert model.resumable
    inputs = batch_of(model)
    rows = len(LENGTHS)
    gates = random_gates(model, rows)
    lower = gates.clone()
    lower[:, 1:] = 1
    states = LayerStates(model.depth)
    with torch.no_grad():
        with model.active(ActiveGates(gates=gates, streaming=SIZES)):
            full = model.module(**inputs).logits
        with model.active(ActiveGates(gates=lower, streaming=SIZES, states=states)):
            model.module(**inputs)
        states.begin(torch.tensor([1, 3, 1]))
        with model.active(ActiveGates(gates=gates, streaming=SIZES, states=states)):
            resumed = model.module(**inputs).logits
        origin = np.tile(np.arange(rows), 2)
        doubled = {key: value[torch.as_tensor(origin)] for key, value in inputs.items()}
        fan_out = FanOut(np.repeat([0, 1], rows), origin, model.depth)
        both = torch.cat([lower, gates])
        with model.active(ActiveGates(gates=both, streaming=SIZES, states=fan_out)):
            branched = model.module(**doubled).logits[rows:]
    is_token = inputs["attention_mask"].bool() if full.dim() == 3 else torch.ones(rows, dtype=bool)
    assert_allclose(branched[is_token].numpy(), full[is_token].numpy(), atol=1e-9)
    is_token[1] = False  # it was to be taken as it was
    assert_allclose(resumed[is_token].numpy(), full[is_token].numpy(), atol=1e-9)


def test_generating_without_a_cache_is_that_of_a_slow_loop_and_with_one_is_refused() -> None:
    model = model_of("LlamaForCausalLM")
    inputs = {"input_ids": batch_of(model)["input_ids"][:1]}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    gates = random_gates(model)
    settings = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None}
    with gated(model, gates, ablation="streaming:2,3"):
        written = model.module.generate(**inputs, **settings, use_cache=False)
        with raises("ablation.streaming_cache", "use_cache=False"):
            model.module.generate(**inputs, **settings)
    slow = by_hand(model.module)
    closed = [(int(layer), int(head)) for layer, head in (gates == 0).nonzero()]
    ids = inputs["input_ids"]
    with torch.no_grad(), closed_by_hand(closed, *SIZES):
        for _ in range(5):
            ids = torch.cat([ids, slow(input_ids=ids).logits[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(written, ids)
    assert not torch.equal(written, model.module.generate(**inputs, **settings))


def test_ablations_are_recorded_with_their_sizes() -> None:
    assert read_ablation("streaming") == "streaming:4,64"
    assert read_ablation("streaming:007,08") == "streaming:7,8"
    assert read_ablation("mean") == "mean"
    assert tuple(map(read_ablation, ABLATIONS)) == ABLATION_CHOICES
    assert streaming_sizes("streaming:0,1") == (0, 1)
    assert streaming_sizes("zero") is None
    assert is_ablation("streaming:4,64")
    assert not any(map(is_ablation, ("streaming", "streaming:04,64", "streams", "", None, 4)))
    assert (
        replacement_of("streaming:4,64")
        == "what it reads from the first 4 and the last 64 tokens alone"
    )


@pytest.mark.parametrize(
    "text",
    [
        "streaming:",
        "streaming:4",
        "streaming:4,0",
        "streaming:-1,4",
        "streaming:4,64,2",
        "streaming: 4,64",
        "streaming:4.5,64",
        "streaming:4,1000000000",
        "streaming:٤,64",
        "streaming64",
    ],
)
def test_sizes_that_do_not_fit_are_refused_with_what_does(text: str) -> None:
    with raises("ablation.streaming_sizes", "streaming:4,64"):
        read_ablation(text)


@pytest.mark.parametrize(
    ("family", "players", "code", "words"),
    [
        ("bert", "heads", "ablation.streaming_decoders", "encoder"),
        ("marian", "heads", "ablation.streaming_decoders", "encoder"),
        ("bloom", "heads", "ablation.streaming_attention", "Bloom"),
        ("llama", "feed-forward", "ablation.players", "feed-forward"),
        ("llama", "heads,layers", "ablation.players", "layers"),
    ],
)
def test_what_cannot_stream_is_refused(family: str, players: str, code: str, words: str) -> None:
    variant = playing(tiny_model(family, tokenizer=tiny_tokenizer()), players)
    gates = torch.ones(variant.grid.layers, variant.grid.width)
    with raises(code, words), gated(variant, gates, ablation="streaming"):
        pass
