"""Model families whose heads are found by the probe alone, and the table of all families."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from support.expected_errors import raises
from support.tiny_models import tiny_batch, tiny_module
from torch import nn
from transformers import PreTrainedModel

from headlab.cli import main
from headlab.hooks import Model, attention_of_heads, gated, head_means

sys.path.append(str(Path(__file__).parents[2] / "tools"))
import families

# The inputs of a model, by name.
Batch = dict[str, torch.Tensor]
# By model type, how the names of the modules end that give its heads their values. None are given
# where such a module also gives the queries, or is shared.
VALUE_MODULES = {
    "mpnet": ("attn.v",),
    "rembert": ("self.value",),
    "roformer": ("self.value",),
    "big_bird": ("self.value",),
    "megatron-bert": ("self.value",),
    "longformer": ("self.value", "value_global"),
    "funnel": ("attention.v_head",),
    "gpt_neo": ("attention.v_proj",),
    "gptj": ("attn.v_proj",),
    "xglm": ("self_attn.v_proj",),
    "openai-gpt": (),
    "falcon": (),
    "mpt": (),
    "led": (),
    "longt5": (),
    "afmoe": ("self_attn.v_proj",),
    "nllb-moe": (),
}


@pytest.fixture(scope="module", params=sorted(VALUE_MODULES))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(kind: str) -> Model:
    return families.gateable_model(tiny(kind))


def tiny(kind: str) -> PreTrainedModel:
    """In doubles, where the family can compute with them."""
    module = families.tiny_model(kind)
    return module if kind in ("afmoe", "xglm") else module.double()


def assert_close(got: torch.Tensor, want: torch.Tensor) -> None:
    tolerance = 1e-9 if want.dtype == torch.float64 else 2e-4
    assert_allclose(got, want, atol=tolerance)


@pytest.fixture(scope="module")
def batch(model: Model) -> Batch:
    return tiny_batch(model.module)


def logits(model: Model, batch: Batch) -> torch.Tensor:
    with torch.no_grad():
        return model.module(**batch).logits.clone()


def test_open_gates_change_nothing_and_rows_have_gates_of_their_own(
    kind: str,
    model: Model,
    batch: Batch,
) -> None:
    rng = np.random.default_rng(0)
    gates = rng.random((3, model.grid.layers, model.grid.width)) < 0.5
    with torch.no_grad():
        baseline = tiny(kind)(**batch).logits
    assert_close(logits(model, batch), baseline)
    with gated(model, gates):
        logits_by_row = logits(model, batch)
    assert (logits_by_row - baseline).abs().max() > 1e-6
    for row in range(3):
        with gated(model, gates[row]):
            assert_close(logits_by_row[row], logits(model, batch)[row])


def test_a_closed_gate_is_a_head_without_values(
    kind: str,
    model: Model,
    batch: Batch,
) -> None:
    """A second derivation of which block of the projection belongs to which head."""
    if not VALUE_MODULES[kind]:
        pytest.skip(
            "its values come out of one projection with queries and keys, or are shared by layers"
        )
    value_modules = [linear_modules(model, name_end) for name_end in VALUE_MODULES[kind]]
    key_value_heads = getattr(model.module.config, "num_key_value_heads", None)
    groups = int(key_value_heads or model.grid.width)
    heads_of_group = model.grid.width // groups
    for layer in range(model.grid.layers):
        gates = np.ones((model.grid.layers, model.grid.width))
        # Heads that share their values are closed together.
        gates[layer, heads_of_group : 2 * heads_of_group] = 0
        with gated(model, gates):
            got = logits(model, batch)
        parameters = []
        for modules in value_modules:
            parameters += modules[layer].parameters()
        original_weights = [parameter.detach().clone() for parameter in parameters]
        with torch.no_grad():
            for parameter in parameters:
                parameter.unflatten(0, (groups, -1))[1] = 0
        want = logits(model, batch)
        with torch.no_grad():
            for parameter, weights in zip(parameters, original_weights, strict=True):
                parameter.copy_(weights)
        assert_close(got, want)


def linear_modules(model: Model, name_end: str) -> list[nn.Linear]:
    """The linear modules whose names end so, in the order of layers."""
    modules = []
    for name, module in model.module.named_modules():
        if isinstance(module, nn.Linear) and name.endswith(name_end):
            modules.append(module)
    return modules


WITHOUT_WEIGHTS = ("longformer", "led", "longt5", "funnel")


def test_means_of_heads_are_finite(
    kind: str,
    model: Model,
    batch: Batch,
) -> None:
    if kind == "funnel":
        with raises("ablation.tokens_merged"):
            head_means(model, [batch])
        return
    means = head_means(model, [batch])
    assert means.shape[:2] == (model.grid.layers, model.grid.width)
    assert bool(means.isfinite().all())


def test_weights_of_heads_are_those_of_the_model_or_refused(
    kind: str,
    model: Model,
    batch: Batch,
) -> None:
    head = model.grid.heads[-1]
    one_example = {name: value[:1] for name, value in batch.items()}
    if kind in WITHOUT_WEIGHTS:
        with raises("model.no_attention_weights"):
            attention_of_heads(model, one_example, [head])
        return
    weights = attention_of_heads(model, one_example, [head])[head]
    assert_allclose(weights.sum(-1), np.ones(len(weights)), atol=1e-4)


@pytest.mark.parametrize("kind", ["lfm2", "jamba", "recurrent_gemma", "qwen3_next"])
def test_layers_of_a_hybrid_keep_their_numbers(kind: str) -> None:
    model = families.gateable_model(families.tiny_model(kind))
    assert model.grid.to_json() == {"decoder": [0, 4]}
    assert [head.layer for head in model.grid.heads] == [1] * 4
    one_example = {
        "input_ids": torch.tensor([[5, 6, 7, 8]]),
        "attention_mask": torch.ones(1, 4, dtype=torch.long),
    }
    baseline = logits(model, one_example)
    gates = model.grid.gates(np.array([1, 0, 1, 1]))
    with gated(model, gates):
        gated_logits = logits(model, one_example)
    weight = model.projections[1].weight
    with torch.no_grad():
        weight.unflatten(1, (4, -1))[:, 1] = 0
    assert_close(gated_logits, logits(model, one_example))
    assert (gated_logits - baseline).abs().max() > 1e-6


def test_a_layer_with_fewer_heads_than_the_configuration_says_is_found() -> None:
    """As in a shrunk model that had as many heads as the probe has tokens before."""
    module = families.tiny_model("bert")
    module.config.num_attention_heads = 6
    assert families.gateable_model(module).grid.to_json() == {"encoder": [4, 4]}


@pytest.mark.parametrize(
    ("family", "value_names"), [("bert", r"layer\.1\..*value"), ("gpt_neo", r"h\.1\..*v_proj")]
)
def test_a_layer_whose_heads_all_give_0_has_heads(family: str, value_names: str) -> None:
    """As in a model whose heads were switched off in the weights."""
    full_grid = families.gateable_model(families.tiny_model(family).double()).grid
    module = families.tiny_model(family).double()
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if re.search(value_names, name):
                weight.zero_()
    assert families.gateable_model(module).grid == full_grid


def test_attention_that_has_tokens_before_examples_is_refused_for_that_reason() -> None:
    with raises("model.tokens_first", "FSMTForConditionalGeneration (model type fsmt)"):
        families.gateable_model(families.tiny_model("fsmt").double())


def test_heads_that_are_mixed_before_their_projection_are_refused() -> None:
    module = tiny_module("bert")
    for layer in module.bert.encoder.layer:
        layer.attention.output.dense = nn.Sequential(
            nn.LayerNorm(24, dtype=torch.float64), nn.Linear(24, 24).double()
        )
    with raises("model.heads_mixed", "BertForSequenceClassification"):
        families.gateable_model(module)


def test_attention_without_gates_beside_gated_attention_is_refused() -> None:
    """Of two layers, one has its heads in another order than the projection's blocks."""
    module = families.tiny_model("gpt_neo").double()
    attention = module.transformer.h[1].attn.attention
    project = attention.out_proj.forward
    attention.out_proj = nn.Identity()
    attention.out_proj.forward = lambda contexts: project(contexts.roll(1, -1))
    with raises("model.heads_mixed", "gpt_neo"):
        families.gateable_model(module)


@pytest.mark.parametrize("kind", ["mamba", "xlnet", "convbert", "fnet"])
def test_what_is_refused_is_refused_for_the_reason_in_the_table(kind: str) -> None:
    table = json.loads(families.TABLE.read_text())
    assert families.verdict(kind) == table["families"][kind]


def test_the_table_holds_for_this_version_and_the_page_is_made_from_it() -> None:
    table = json.loads(families.TABLE.read_text())
    page = families.PAGE.read_text(encoding="utf-8")
    assert page == families.page(table), "run: python tools/families.py"
    assert len(table["families"]) >= 90
    for kind in ("bert", "mpnet", "longt5"):
        assert families.verdict(kind) == table["families"][kind]


@pytest.mark.soak
def test_every_family_of_the_table_is_what_it_says() -> None:
    table = json.loads(families.TABLE.read_text())
    assert families.table() == table


def test_the_command_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    table = json.loads(families.TABLE.read_text())
    assert main(["families", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == table["families"]
    assert main(["families"]) == 0
    gateable_line, refused_line, _ = capsys.readouterr().out.splitlines()
    assert "mpnet" in gateable_line
    assert "fnet" in refused_line
