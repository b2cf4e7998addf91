"""Relevance by LRP: conserved on every architecture, and equal to weight ratios of neurons.

And the method that makes scores of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from reference import Neuron
from support.expected_errors import raises
from support.full_memory import EXAMPLE_TOO_LARGE, room_for
from support.full_memory import evaluator as memory_evaluator
from support.several_answers import PAIRS, WORDS
from support.tiny_models import FAMILIES, VOCAB, tiny_batch, tiny_model, tiny_module
from support.tiny_task import tiny_task, tiny_tokenizer
from torch import nn
from transformers import BertConfig, BertForSequenceClassification
from transformers.activations import ACT2FN
from transformers.pytorch_utils import Conv1D

from headlab.evaluation import NO_TARGET, Evaluator
from headlab.hooks import ActiveGates, Model, gated, make_gateable
from headlab.hooks.relevance import Rules, relevance
from headlab.methods import METHODS, method
from headlab.methods import relevance as relevance_method
from headlab.methods.run import score
from headlab.methods.work import Work
from headlab.models.checkpoint import Checkpoint
from headlab.studies.table import STUDIES
from headlab.tasks import Task

TASKS: dict[str, Task] = {
    "bert": tiny_task(),
    "deberta-v2": tiny_task(),
    "bert-tokens": WORDS,
    "marian": PAIRS,
}


def forward(module: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Logits, without a cache that a decoder would fill."""
    options = {}
    if module.config.is_encoder_decoder:  # type: ignore[union-attr]
        options["use_cache"] = False
    logits: torch.Tensor = module(**batch, **options).logits
    return logits


class PassRecorder:
    """Keeps tensors of one forward pass of a module.

    Attributes:
        embeddings: Outputs of embeddings; relevance is followed down to these.
        biases: Each bias with the output that it was added to, in the order of the pass.
        layers: Each layer's input, with the number of biases that were added before it.
    """

    def __init__(self, module: nn.Module) -> None:
        self.embeddings: list[torch.Tensor] = []
        self.biases: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.layers: list[tuple[torch.Tensor, int]] = []
        self.module = module

    @contextmanager
    def recording(self) -> Iterator[None]:
        layers = set()
        for part in self.module.modules():
            if isinstance(part, nn.ModuleList):
                layers.update(part)
        hooks = []
        for part in self.module.modules():
            if isinstance(part, nn.Embedding):
                hooks.append(part.register_forward_hook(self._keep_embeddings))
            may_have_bias = isinstance(part, nn.Linear | Conv1D | nn.LayerNorm)
            if may_have_bias and part.bias is not None:
                hooks.append(part.register_forward_hook(self._keep_bias))
            is_module_of_parts = len(list(part.children())) > 1
            if part in layers and is_module_of_parts:
                hooks.append(part.register_forward_pre_hook(self._keep_layer, with_kwargs=True))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _keep_embeddings(
        self,
        _part: nn.Module,
        _args: object,
        output: torch.Tensor,
    ) -> torch.Tensor:
        embeddings = output.detach().requires_grad_()
        self.embeddings.append(embeddings)
        return embeddings

    def _keep_bias(
        self,
        part: nn.Module,
        _args: object,
        output: torch.Tensor,
    ) -> None:
        self.biases.append((part.bias.detach(), output))

    def _keep_layer(
        self,
        _part: nn.Module,
        args: tuple[torch.Tensor, ...],
        keywords: dict[str, torch.Tensor],
    ) -> None:
        layer_input = args[0] if args else keywords["hidden_states"]
        self.layers.append((layer_input, len(self.biases)))


def share(
    output: torch.Tensor,
    values: torch.Tensor,
    tensor: torch.Tensor,
) -> float:
    """Sum of values times the output's gradient at a tensor; 0 if it is independent of that."""
    if not tensor.requires_grad:
        return 0.0
    (slope,) = torch.autograd.grad(output, tensor, retain_graph=True, allow_unused=True)
    if slope is None:
        return 0.0
    return float((values * slope).sum())


def sum_of_top_logits(logits: torch.Tensor) -> torch.Tensor:
    """Of each example, the largest logit."""
    largest_logits = logits.flatten(1).max(dim=1).values
    return largest_logits.sum()


def tolerance(family: str) -> float:
    """Llama's norms compute in float32, whatever it is loaded in."""
    return 1e-5 if family == "llama" else 1e-9


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_what_the_embeddings_have_and_the_biases_take_is_the_logit(family: str) -> None:
    model = tiny_model(family)
    recorder = PassRecorder(model.module)
    batch = tiny_batch(model.module)
    with recorder.recording(), relevance(model) as heads:
        top_logits = sum_of_top_logits(forward(model.module, batch))
    heads.relevance_for(top_logits, keep_graph=True)
    of_biases = 0.0
    for bias, output in recorder.biases:
        of_biases += share(top_logits, bias, output)
    of_embeddings = 0.0
    for embeddings in recorder.embeddings:
        of_embeddings += share(top_logits, embeddings.detach(), embeddings)
    want = pytest.approx(top_logits.item(), abs=tolerance(family))
    assert of_embeddings + of_biases == want
    assert abs(of_embeddings) > 0.01


FAMILIES_OF_ONE_STACK = [
    family
    for family in sorted(FAMILIES)
    if list(FAMILIES[family].grid) != ["encoder", "decoder", "cross"]
]


@pytest.mark.parametrize("family", FAMILIES_OF_ONE_STACK)
def test_relevance_is_conserved_at_every_layer(family: str) -> None:
    if family in ("albert", "xlm"):
        pytest.skip("a layer of this architecture is no module of its own")
    model = tiny_model(family)
    recorder = PassRecorder(model.module)
    batch = tiny_batch(model.module)
    with recorder.recording(), relevance(model) as heads:
        top_logits = sum_of_top_logits(forward(model.module, batch))
    heads.relevance_for(top_logits, keep_graph=True)
    assert len(recorder.layers) == 3
    for layer_input, biases_below in recorder.layers:
        biases_above = recorder.biases[biases_below:]
        of_biases = sum(share(top_logits, bias, output) for bias, output in biases_above)
        of_layer = share(top_logits, layer_input.detach(), layer_input)
        want = pytest.approx(top_logits.item(), abs=tolerance(family))
        assert of_layer + of_biases == want


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_rules_change_no_value_and_stay_in_their_block(family: str) -> None:
    model = tiny_model(family)
    batch = tiny_batch(model.module)
    with torch.no_grad():
        plain_logits = forward(model.module, batch)
    layer, head = model.grid.flat.T
    for constant in (True, False):
        with relevance(model, attention_constant=constant) as heads:
            top_logits = sum_of_top_logits(forward(model.module, batch))
        want = float(sum_of_top_logits(plain_logits))
        assert top_logits.item() == pytest.approx(want, abs=1e-12)
        head_relevance = heads.relevance_for(top_logits)
        assert head_relevance.shape == (3, model.grid.layers, model.grid.width)
        relevance_of_heads = head_relevance[:, layer, head]
        assert (relevance_of_heads != 0).any(dim=0).all()
    with torch.no_grad():
        assert torch.equal(forward(model.module, batch), plain_logits)


def small_bert() -> Model:
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=6,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=5,
        max_position_embeddings=16,
        num_labels=3,
    )
    torch.manual_seed(3)
    module = BertForSequenceClassification(config)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.4)  # biases and norms too
    return make_gateable(
        Checkpoint(
            name="small",
            revision="test",
            fingerprint="small",
            module=module.double().eval(),
            tokenizer=None,
        )
    )


def dense(part: nn.Module, inputs: list[Neuron]) -> list[Neuron]:
    weights_by_row = part.weight.tolist()
    biases = part.bias.tolist()
    outputs = []
    for weights, bias in zip(weights_by_row, biases, strict=True):
        outputs.append(Neuron.weighted_sum(inputs, weights, bias))
    return outputs


def activate(
    inputs: list[Neuron], function: Callable[[torch.Tensor], torch.Tensor]
) -> list[Neuron]:
    """Values through an activation function; all relevance is passed on."""
    outputs = []
    for neuron in inputs:
        value = function(torch.tensor(neuron.value).double())
        outputs.append(Neuron(float(value), [(neuron, 1.0)]))
    return outputs


def norm(part: nn.LayerNorm, inputs: list[Neuron]) -> list[Neuron]:
    return Neuron.layer_norm(
        inputs,
        part.weight.tolist(),
        part.bias.tolist(),
        part.eps,
    )


def residual(branch: list[Neuron], stream: list[Neuron]) -> list[Neuron]:
    """The sum of a branch and the stream that goes by it."""
    pairs = zip(branch, stream, strict=True)
    sums = []
    for pair in pairs:
        sums.append(Neuron.weighted_sum(list(pair), [1, 1]))
    return sums


def bert_by_neurons(
    model: Model,
    hidden: torch.Tensor,
    weights_part: float,
) -> tuple[list[Neuron], list[list[Neuron]]]:
    """Logits from the embeddings [token, width], and every head's neurons, [layer × head].

    Args:
        model: A BERT of two heads a layer.
        hidden: The embeddings.
        weights_part: The share that an attention weight takes of the relevance of its product with
            a value; the value takes the rest.
    """
    tokens = [[Neuron(float(number)) for number in embedding] for embedding in hidden]
    heads: list[list[Neuron]] = []
    for layer in model.module.bert.encoder.layer:
        attention = layer.attention.self
        size = attention.attention_head_size
        queries = [dense(attention.query, token) for token in tokens]
        keys = [dense(attention.key, token) for token in tokens]
        values = [dense(attention.value, token) for token in tokens]
        contexts: list[list[Neuron]] = [[] for _ in tokens]
        for head in range(2):
            columns = slice(head * size, (head + 1) * size)
            for query, context in zip(queries, contexts, strict=True):
                scores = [
                    Neuron.product_sum(query[columns], key[columns], 0.5, size**-0.5)
                    for key in keys
                ]
                weights = Neuron.softmax(scores)
                head_values = [value[columns] for value in values]
                for value_neurons in zip(*head_values, strict=True):
                    mixed_value = Neuron.product_sum(weights, list(value_neurons), weights_part)
                    context.append(mixed_value)
            heads.append([neuron for context in contexts for neuron in context[-size:]])
        for index, (token, context) in enumerate(zip(tokens, contexts, strict=True)):
            mixture = residual(dense(layer.attention.output.dense, context), token)
            mixture = norm(layer.attention.output.LayerNorm, mixture)
            inner = dense(layer.intermediate.dense, mixture)
            inner = activate(inner, nn.functional.gelu)
            output = residual(dense(layer.output.dense, inner), mixture)
            tokens[index] = norm(layer.output.LayerNorm, output)
    pooler_sums = dense(model.module.bert.pooler.dense, tokens[0])
    pooler_output = activate(pooler_sums, torch.tanh)
    return dense(model.module.classifier, pooler_output), heads


@pytest.mark.parametrize("constant", [True, False])
def test_relevance_equals_weight_ratios_followed_neuron_by_neuron(constant: bool) -> None:
    model = small_bert()
    ids = torch.tensor([[5, 17, 40]])
    with torch.no_grad():
        embeddings = model.module.bert.embeddings(ids)[0]
    with relevance(model, attention_constant=constant) as heads:
        logits = model.module(input_ids=ids).logits
    weights_part = 0.0 if constant else 0.5
    logit_neurons, head_neurons = bert_by_neurons(model, embeddings, weights_part)
    logit_values = [neuron.value for neuron in logit_neurons]
    assert_allclose(logit_values, logits[0].detach(), atol=1e-12)
    predicted_class = int(logits[0].argmax())
    ratios = logit_neurons[predicted_class].relevance()
    want = []
    for head in head_neurons:
        want.append(sum(ratios.get(id(neuron), 0.0) for neuron in head))
    head_relevance = heads.relevance_for(logits[0, predicted_class])
    got = head_relevance[0].flatten()
    assert_allclose(got, want, atol=1e-10)
    assert min(abs(head_relevance) for head_relevance in want) > 1e-6


def test_relevance_is_the_gradient_at_the_gate() -> None:
    """Of the last layer, by a gate that carries a gradient itself."""
    model = small_bert()
    ids = torch.tensor([[5, 17, 40]])
    with relevance(model) as heads:
        logits = model.module(input_ids=ids).logits
    predicted_class = int(logits[0].argmax())
    gates = torch.ones(2, 2, dtype=torch.float64, requires_grad=True)
    with torch.enable_grad(), gated(model, gates), Rules("a test"):
        gated_logit = model.module(input_ids=ids).logits[0, predicted_class]
    # By the rules, the gate and the head's output are factors alike: each takes half of the
    # relevance.
    (slope,) = torch.autograd.grad(gated_logit, gates)
    head_relevance = heads.relevance_for(logits[0, predicted_class])
    of_last_layer = head_relevance[0, 1]
    assert_allclose(slope[1] * 2, of_last_layer, rtol=1e-9)


@pytest.mark.parametrize("constant", [True, False])
def test_fused_attention_and_attention_in_steps_have_one_relevance(constant: bool) -> None:
    def relevance_of_embeddings(attention: str) -> torch.Tensor:
        module = tiny_module("bert").requires_grad_(False)
        module.set_attn_implementation(attention)
        batch = tiny_batch(module)
        ids = batch.pop("input_ids")
        embeddings = module.bert.embeddings(ids).requires_grad_()
        with torch.enable_grad(), Rules("a test", attention_constant=constant):
            top_logits = sum_of_top_logits(module(inputs_embeds=embeddings, **batch).logits)
        (slopes,) = torch.autograd.grad(top_logits, embeddings)
        return slopes * embeddings.detach()

    with_fused_attention = relevance_of_embeddings("sdpa")
    with_attention_in_steps = relevance_of_embeddings("eager")
    assert_allclose(with_fused_attention, with_attention_in_steps, atol=1e-10)


def relevance_of_inputs(
    function: Callable[..., torch.Tensor], *inputs: torch.Tensor
) -> list[torch.Tensor]:
    """Each input's relevance for the sum of what a function gives, under the rules."""
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    with torch.enable_grad(), Rules("a test"):
        output = function(*leaves)
    with torch.no_grad():
        assert_allclose(output, function(*inputs), atol=1e-12)
    slopes = torch.autograd.grad(output.sum(), leaves, allow_unused=True)
    relevances = []
    for leaf, slope in zip(leaves, slopes, strict=True):
        if slope is None:
            slope = torch.zeros_like(leaf)
        relevances.append(leaf.detach() * slope)
    return relevances


@pytest.fixture
def x(rng: np.random.Generator) -> torch.Tensor:
    """Random numbers and a zero."""
    numbers = torch.as_tensor(rng.normal(size=(4, 6)))
    numbers[0, 0] = 0.0
    return numbers


@pytest.mark.parametrize(
    "name",
    [
        "gelu",
        "gelu_new",
        "gelu_fast",
        "gelu_python",
        "quick_gelu",
        "relu",
        "relu2",
        "silu",
        "mish",
        "tanh",
    ],
)
def test_an_activation_passes_its_relevance_on(name: str, x: torch.Tensor) -> None:
    """However it is put together: R(x) = f(x)."""
    (relevance_of_x,) = relevance_of_inputs(ACT2FN[name], x)
    assert_allclose(relevance_of_x, ACT2FN[name](x), atol=1e-12)


def test_an_activation_in_place_passes_its_relevance_on(x: torch.Tensor) -> None:
    for function in (
        lambda z: nn.functional.relu(z * 1, inplace=True),
        lambda z: (z * 1).relu_(),
    ):
        (relevance_of_x,) = relevance_of_inputs(function, x)
        assert_allclose(relevance_of_x, x.clamp(min=0), atol=1e-12)


def test_a_gate_is_held_constant_and_other_factors_share(x: torch.Tensor) -> None:
    y = x.flip(0) + 0.3
    for act in ("silu", "gelu_new", "relu", "sigmoid"):

        def gated_value(v: torch.Tensor, w: torch.Tensor, act: str = act) -> torch.Tensor:
            return ACT2FN[act](v) * w

        gate, value = relevance_of_inputs(gated_value, x, y)
        assert_allclose(gate, 0, atol=1e-12)
        want = ACT2FN[act](x) * y
        assert_allclose(value, want, atol=1e-12)
    for function in (
        lambda v, w: v * w,
        lambda v, w: v.tanh() * w.tanh(),
    ):
        relevance_of_x, relevance_of_y = relevance_of_inputs(function, x, y)
        half = function(x, y) / 2
        assert_allclose(relevance_of_x, half, atol=1e-12)
        assert_allclose(relevance_of_y, half, atol=1e-12)


def test_factors_of_a_product_of_matrices_share(x: torch.Tensor) -> None:
    for function in (
        lambda v, w: v @ w.T,
        lambda v, w: torch.matmul(v, other=w.T),
        lambda v, w: torch.einsum("ij,kj->ik", v, w),
        lambda v, w: torch.addmm(torch.zeros(4, 4).double(), v, w.T),
        lambda v, w: torch.zeros(1, 4, 4).double().baddbmm(batch1=v[None], batch2=w.T[None]),
    ):
        y = x.flip(1)
        relevance_of_x, relevance_of_y = relevance_of_inputs(function, x, y)
        half_of_sum = float(function(x, y).sum()) / 2
        assert_allclose(relevance_of_x.sum(), half_of_sum, atol=1e-12)
        assert_allclose(relevance_of_y.sum(), half_of_sum, atol=1e-12)


def test_norms_are_held_at_their_scale(x: torch.Tensor) -> None:
    weight = torch.linspace(1, 2, 6).double()
    bias = torch.linspace(-1, 1, 6).double()
    of_bias = bias.sum() * len(x)
    for function, absorbed_relevance in (
        (lambda z: nn.functional.layer_norm(z, (6,), weight, bias), of_bias),
        (lambda z: nn.functional.layer_norm(z, (6,)), 0),
        (lambda z: nn.functional.rms_norm(z, (6,), weight), 0),
        (lambda z: z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + 1e-6), 0),
        (lambda z: z * torch.pow(z.square().mean(-1, keepdim=True) + 1e-6, -0.5), 0),
        (lambda z: z / torch.sqrt(z.square().mean(-1, keepdim=True) + 1e-6), 0),
    ):
        (relevance_of_x,) = relevance_of_inputs(function, x)
        want = float(function(x).sum() - absorbed_relevance)
        got = float(relevance_of_x.sum())
        assert got == pytest.approx(want, abs=1e-9)


def test_an_operation_without_a_rule_is_refused_by_name(x: torch.Tensor) -> None:
    with torch.enable_grad(), Rules("BertModel"):
        assert torch.equal(torch.cos(x), x.cos())  # nothing to propagate
        with raises("relevance.operation_unknown", "'cos'", "BertModel"):
            torch.cos(x.clone().requires_grad_())
    leaf = x.clone().requires_grad_()
    cosine = torch.cos(leaf)
    (slope,) = torch.autograd.grad(cosine.sum(), leaf)
    assert_allclose(slope, -torch.sin(x))


class Cosine(torch.autograd.Function):
    """A function with a backward pass of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.cos()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return -grad * ctx.saved_tensors[0].sin()


def test_a_function_with_a_backward_pass_of_its_own_is_refused_by_name() -> None:
    model = tiny_model("bert")
    with relevance(model) as heads:
        batch = tiny_batch(model.module)
        logits = Cosine.apply(model.module(**batch).logits)
    with raises("relevance.operation_unknown", "'Cosine'", "BertFor"):
        heads.relevance_for(sum_of_top_logits(logits))


def evaluator_of(family: str) -> Evaluator:
    model = tiny_model(family, tokenizer=tiny_tokenizer())
    task = TASKS[family]
    return Evaluator(model, task, task.languages[0], "dev", 5)


def work(evaluator: Evaluator, **options: bool) -> Work:
    return Work(evaluator, 0, method("relevance").resolve(options))


def one_by_one(evaluator: Evaluator, constant: bool) -> np.ndarray:
    """Relevance of every answer, each from a pass of its own on its own example: [answer, head]."""
    relevance_by_answer = []
    model = evaluator.model
    layer, head = model.grid.flat.T
    for row in range(len(evaluator.examples)):
        rows = np.array([row])
        targets = evaluator.inputs.targets(rows)
        targets_of_example = targets.reshape(1, -1)[0]
        has_target = targets_of_example != NO_TARGET
        for position in torch.nonzero(has_target).flatten().tolist():
            with relevance(model, attention_constant=constant) as heads:
                logits = evaluator.logits(evaluator.tensors(rows))[0]
                if targets.dim() > 1:
                    logits = logits[position]
            (head_relevance,) = heads.relevance_for(logits.max())
            relevance_of_heads = head_relevance[layer, head]
            relevance_by_answer.append(relevance_of_heads.numpy())
    return np.array(relevance_by_answer)


@pytest.mark.parametrize("family", TASKS)
@pytest.mark.parametrize("constant", [True, False])
def test_scores_are_shares_of_a_layer_averaged_over_answers(family: str, constant: bool) -> None:
    evaluator = evaluator_of(family)
    sizes = np.abs(one_by_one(evaluator, constant))
    assert len(sizes) == evaluator.inputs.units.sum()
    raw = relevance_method.run(work(evaluator, attention_constant=constant, normalise=False))
    assert_allclose(raw.values, sizes.mean(axis=0), rtol=1e-9)
    mean_shares = []
    for layer_sizes in layers(evaluator.model, sizes):
        shares = layer_sizes / layer_sizes.sum(axis=1, keepdims=True)
        mean_shares.append(shares.mean(axis=0))
    outcome = relevance_method.run(work(evaluator, attention_constant=constant))
    assert_allclose(outcome.values, np.concatenate(mean_shares), rtol=1e-9)
    assert (outcome.samples == len(evaluator.examples)).all()
    shares_by_layer = layers(evaluator.model, outcome.values[None])
    sums = [float(shares.sum()) for shares in shares_by_layer]
    layer_count = evaluator.model.grid.layers
    assert sums == pytest.approx([1.0] * layer_count)


def layers(model: Model, flat: np.ndarray) -> list[np.ndarray]:
    """Values [..., head] cut into layers."""
    heads_by_layer = []
    for stack in model.grid.stacks:
        heads_by_layer += stack.heads
    ends = np.cumsum(heads_by_layer)
    return np.split(flat, ends[:-1], axis=-1)


def test_a_layer_that_no_answer_depends_on_has_no_shares() -> None:
    sizes = torch.tensor([[0.0, 0.0], [-1.0, 3.0]])
    shares = relevance_method.layer_shares(sizes)
    assert shares.tolist() == [[0.0, 0.0], [0.25, 0.75]]


def test_scores_say_what_they_are() -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    settings = {"language": "xx", "method": "relevance", "size": 4}
    shares = score(model, tiny_task(), **settings)
    raw = score(model, tiny_task(), normalise=False, **settings)
    assert shares.unit == "share of relevance"
    assert raw.unit == "logit"
    assert shares.example_forwards == 4
    assert (shares.samples == 4).all()


@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
def test_relevance_is_the_same_from_smaller_batches(family: str) -> None:
    much_memory = memory_evaluator(family)
    little_memory = memory_evaluator(family)
    want = relevance_method.run(work(much_memory))
    with room_for(little_memory.model, 5) as row_counts:
        got = relevance_method.run(work(little_memory))
    assert_allclose(got.values, want.values, rtol=1e-9)
    assert max(row_counts) > 5
    assert little_memory.forwards == much_memory.forwards
    with room_for(little_memory.model, 0), raises(EXAMPLE_TOO_LARGE):
        relevance_method.run(work(little_memory))


def test_weights_get_no_gradient_and_gates_of_others_stay() -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 4)
    relevance_method.run(work(evaluator))
    for parameter in model.module.parameters():
        assert parameter.grad is None
    batch = tiny_batch(model.module)
    with pytest.raises(ZeroDivisionError), relevance(model):
        _ = 1 / 0
    layers_of_contexts: list[int] = []
    gates = ActiveGates(contexts=lambda row, context: layers_of_contexts.append(row))
    with torch.no_grad(), model.active(gates):
        model.module(**batch)
    assert layers_of_contexts == [0, 1, 2]


def test_relevance_runs_only_where_it_is_asked_for_by_name() -> None:
    assert inspect.signature(score).parameters["method"].default != "relevance"
    defaults = []
    for study in STUDIES.values():
        defaults += [option.default for option in study.options.values()]
    assert not [default for default in defaults if "relevance" in str(default)]
    assert next(iter(METHODS)) != "relevance"
