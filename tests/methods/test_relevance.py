"""Relevance by LRP: conserved on every architecture, equal to weight ratios neuron by neuron, and the method on it."""

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
from support.tiny_models import FAMILIES, VOCAB, tiny_batch, tiny_model, tiny_module
from support.tiny_task import tiny_task, tiny_tokenizer
from test_inputs import PAIRS, WORDS
from test_memory import FULL, room_for
from test_memory import evaluator as memory_evaluator
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
    pairs = module.config.is_encoder_decoder  # type: ignore[union-attr]
    found: torch.Tensor = module(**batch, **({"use_cache": False} if pairs else {})).logits
    return found


class Watched:
    """Every embedding, every output to which a bias was added, and every layer's input, of one pass."""

    def __init__(self, module: nn.Module) -> None:
        self.sources: list[torch.Tensor] = []
        self.biased: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.layers: list[tuple[torch.Tensor, int]] = []
        self.module = module

    @contextmanager
    def __call__(self) -> Iterator[None]:
        blocks = {
            b for part in self.module.modules() if isinstance(part, nn.ModuleList) for b in part
        }
        hooks = []
        for part in self.module.modules():
            if isinstance(part, nn.Embedding):
                hooks.append(part.register_forward_hook(self._source))
            if isinstance(part, nn.Linear | Conv1D | nn.LayerNorm) and part.bias is not None:
                hooks.append(part.register_forward_hook(self._bias))
            if part in blocks and len(list(part.children())) > 1:
                hooks.append(part.register_forward_pre_hook(self._layer, with_kwargs=True))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _source(self, _part: nn.Module, _args: object, out: torch.Tensor) -> torch.Tensor:
        out = out.detach().requires_grad_()
        self.sources.append(out)
        return out

    def _bias(self, part: nn.Module, _args: object, out: torch.Tensor) -> None:
        self.biased.append((part.bias.detach(), out))

    def _layer(
        self, _part: nn.Module, args: tuple[torch.Tensor, ...], named: dict[str, torch.Tensor]
    ) -> None:
        self.layers.append((args[0] if args else named["hidden_states"], len(self.biased)))


def share(output: torch.Tensor, values: torch.Tensor, tensor: torch.Tensor) -> float:
    """Sum of values times the output's gradient at a tensor; 0 where the output does not depend on it."""
    if not tensor.requires_grad:
        return 0.0
    (slope,) = torch.autograd.grad(output, tensor, retain_graph=True, allow_unused=True)
    return 0.0 if slope is None else float((values * slope).sum())


def highest(logits: torch.Tensor) -> torch.Tensor:
    return logits.flatten(1).max(dim=1).values.sum()


def close(family: str) -> float:
    """Llama's norms compute in float32, whatever it is loaded in."""
    return 1e-5 if family == "llama" else 1e-9


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_what_the_embeddings_have_and_the_biases_take_is_the_logit(family: str) -> None:
    model = tiny_model(family)
    watched = Watched(model.module)
    batch = tiny_batch(model.module)
    with watched(), relevance(model) as heads:
        top = highest(forward(model.module, batch))
    heads.of(top, keep_graph=True)
    absorbed = sum(share(top, bias, out) for bias, out in watched.biased)
    passed = sum(share(top, source.detach(), source) for source in watched.sources)
    assert passed + absorbed == pytest.approx(top.item(), abs=close(family))
    assert abs(passed) > 0.01


@pytest.mark.parametrize(
    "family",
    sorted(f for f in FAMILIES if list(FAMILIES[f].grid) != ["encoder", "decoder", "cross"]),
)
def test_relevance_is_conserved_at_every_layer(family: str) -> None:
    if family in ("albert", "xlm"):
        pytest.skip("a layer of this architecture is no module of its own")
    model = tiny_model(family)
    watched = Watched(model.module)
    batch = tiny_batch(model.module)
    with watched(), relevance(model) as heads:
        top = highest(forward(model.module, batch))
    heads.of(top, keep_graph=True)
    assert len(watched.layers) == 3
    for layer, before in watched.layers:
        absorbed = sum(share(top, bias, out) for bias, out in watched.biased[before:])
        assert share(top, layer.detach(), layer) + absorbed == pytest.approx(
            top.item(), abs=close(family)
        )


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_rules_change_no_value_and_stay_in_their_block(family: str) -> None:
    model = tiny_model(family)
    batch = tiny_batch(model.module)
    with torch.no_grad():
        plain = forward(model.module, batch)
    for constant in (True, False):
        with relevance(model, attention_constant=constant) as heads:
            top = highest(forward(model.module, batch))
        assert top.item() == pytest.approx(float(highest(plain)), abs=1e-12)
        found = heads.of(top)
        assert found.shape == (3, model.grid.layers, model.grid.width)
        layer, head = model.grid.flat.T
        assert (found[:, layer, head] != 0).any(dim=0).all()
    with torch.no_grad():
        assert torch.equal(forward(model.module, batch), plain)


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
    return make_gateable(Checkpoint("small", "test", "small", module.double().eval(), None))


def dense(part: nn.Module, inputs: list[Neuron]) -> list[Neuron]:
    return [
        Neuron.summed(inputs, w, b)
        for w, b in zip(part.weight.tolist(), part.bias.tolist(), strict=True)
    ]


def passed(inputs: list[Neuron], function: Callable[[torch.Tensor], torch.Tensor]) -> list[Neuron]:
    """Through an activation function, relevance as it is."""
    return [Neuron(float(function(torch.tensor(u.value).double())), [(u, 1.0)]) for u in inputs]


def norm(part: nn.LayerNorm, inputs: list[Neuron]) -> list[Neuron]:
    return Neuron.normed(inputs, part.weight.tolist(), part.bias.tolist(), part.eps)


def residual(left: list[Neuron], right: list[Neuron]) -> list[Neuron]:
    return [Neuron.summed([a, b], [1, 1]) for a, b in zip(left, right, strict=True)]


def bert_by_neurons(
    model: Model, hidden: torch.Tensor, weights_part: float
) -> tuple[list[Neuron], list[list[Neuron]]]:
    """Logits from the embeddings [token, width], and every head's neurons, [layer × head].

    Args:
        weights_part: Of the relevance of a weight times a value, what the weight takes.
    """
    tokens = [[Neuron(float(x)) for x in row] for row in hidden]
    heads: list[list[Neuron]] = []
    for layer in model.module.bert.encoder.layer:
        own = layer.attention.self
        size = layer.attention.self.attention_head_size
        q, k, v = (
            [dense(part, token) for token in tokens] for part in (own.query, own.key, own.value)
        )
        contexts: list[list[Neuron]] = [[] for _ in tokens]
        for h in range(2):
            at = range(h * size, (h + 1) * size)
            for t, context in enumerate(contexts):
                scores = [
                    Neuron.product_sum([q[t][i] for i in at], [key[i] for i in at], 0.5, size**-0.5)
                    for key in k
                ]
                found = Neuron.softmaxed(scores)
                context += [
                    Neuron.product_sum(found, [value[i] for value in v], weights_part) for i in at
                ]
            heads.append([neuron for context in contexts for neuron in context[-size:]])
        for t, token in enumerate(tokens):
            mixed = residual(dense(layer.attention.output.dense, contexts[t]), token)
            mixed = norm(layer.attention.output.LayerNorm, mixed)
            inner = passed(dense(layer.intermediate.dense, mixed), nn.functional.gelu)
            tokens[t] = norm(
                layer.output.LayerNorm, residual(dense(layer.output.dense, inner), mixed)
            )
    pooled = passed(dense(model.module.bert.pooler.dense, tokens[0]), torch.tanh)
    return dense(model.module.classifier, pooled), heads


@pytest.mark.parametrize("constant", [True, False])
def test_relevance_equals_weight_ratios_followed_neuron_by_neuron(constant: bool) -> None:
    model = small_bert()
    ids = torch.tensor([[5, 17, 40]])
    with torch.no_grad():
        embedded = model.module.bert.embeddings(ids)[0]
    with relevance(model, attention_constant=constant) as heads:
        logits = model.module(input_ids=ids).logits
    neurons, of_heads = bert_by_neurons(model, embedded, 0.0 if constant else 0.5)
    assert_allclose([n.value for n in neurons], logits[0].detach(), atol=1e-12)
    best = int(logits[0].argmax())
    ratios = neurons[best].relevance()
    want = [sum(ratios.get(id(neuron), 0.0) for neuron in head) for head in of_heads]
    assert_allclose(heads.of(logits[0, best])[0].flatten(), want, atol=1e-10)
    assert min(abs(r) for r in want) > 1e-6


def test_relevance_is_the_gradient_at_the_gate() -> None:
    """Of the last layer, by a gate that carries a gradient itself."""
    model = small_bert()
    ids = torch.tensor([[5, 17, 40]])
    with relevance(model) as heads:
        logits = model.module(input_ids=ids).logits
    best = int(logits[0].argmax())
    gates = torch.ones(2, 2, dtype=torch.float64, requires_grad=True)
    with torch.enable_grad(), gated(model, gates), Rules("a test"):
        moved = model.module(input_ids=ids).logits[0, best]
    # To the rules, the gate is a factor as good as the head's output: it has half of their product's relevance.
    (slope,) = torch.autograd.grad(moved, gates)
    assert_allclose(slope[1] * 2, heads.of(logits[0, best])[0, 1], rtol=1e-9)


@pytest.mark.parametrize("constant", [True, False])
def test_fused_attention_and_attention_in_steps_have_one_relevance(constant: bool) -> None:
    found = []
    for attention in ("sdpa", "eager"):
        module = tiny_module("bert").requires_grad_(False)
        module.set_attn_implementation(attention)
        batch = tiny_batch(module)
        embedded = module.bert.embeddings(batch.pop("input_ids")).requires_grad_()
        with torch.enable_grad(), Rules("a test", attention_constant=constant):
            top = highest(module(inputs_embeds=embedded, **batch).logits)
        found.append(torch.autograd.grad(top, embedded)[0] * embedded.detach())
    assert_allclose(found[0], found[1], atol=1e-10)


def slopes(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> list[torch.Tensor]:
    """Each input's relevance for the sum of what a function gives, under the rules."""
    own = [x.clone().requires_grad_() for x in inputs]
    with torch.enable_grad(), Rules("a test"):
        out = function(*own)
    with torch.no_grad():
        assert_allclose(out, function(*inputs), atol=1e-12)
    found = torch.autograd.grad(out.sum(), own, allow_unused=True)
    return [
        torch.zeros_like(x) if g is None else x.detach() * g
        for x, g in zip(own, found, strict=True)
    ]


@pytest.fixture
def x(rng: np.random.Generator) -> torch.Tensor:
    found = torch.as_tensor(rng.normal(size=(4, 6)))
    found[0, 0] = 0.0
    return found


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
    (found,) = slopes(ACT2FN[name], x)
    assert_allclose(found, ACT2FN[name](x), atol=1e-12)


def test_an_activation_in_place_passes_its_relevance_on(x: torch.Tensor) -> None:
    for function in (lambda z: nn.functional.relu(z * 1, inplace=True), lambda z: (z * 1).relu_()):
        (found,) = slopes(function, x)
        assert_allclose(found, x.clamp(min=0), atol=1e-12)


def test_a_gate_is_held_constant_and_other_factors_share(x: torch.Tensor) -> None:
    y = x.flip(0) + 0.3
    for act in ("silu", "gelu_new", "relu", "sigmoid"):
        gate, value = slopes(lambda a, b, act=act: ACT2FN[act](a) * b, x, y)
        assert_allclose(gate, 0, atol=1e-12)
        assert_allclose(value, ACT2FN[act](x) * y, atol=1e-12)
    for function in (lambda a, b: a * b, lambda a, b: a.tanh() * b.tanh()):
        left, right = slopes(function, x, y)
        assert_allclose(left, function(x, y) / 2, atol=1e-12)
        assert_allclose(right, function(x, y) / 2, atol=1e-12)


def test_factors_of_a_product_of_matrices_share(x: torch.Tensor) -> None:
    for function in (
        lambda a, b: a @ b.T,
        lambda a, b: torch.matmul(a, other=b.T),
        lambda a, b: torch.einsum("ij,kj->ik", a, b),
        lambda a, b: torch.addmm(torch.zeros(4, 4).double(), a, b.T),
        lambda a, b: torch.zeros(1, 4, 4).double().baddbmm(batch1=a[None], batch2=b.T[None]),
    ):
        left, right = slopes(function, x, x.flip(1))
        assert_allclose(
            [left.sum(), right.sum()], [float(function(x, x.flip(1)).sum()) / 2] * 2, atol=1e-12
        )


def test_norms_are_held_at_their_scale(x: torch.Tensor) -> None:
    weight = torch.linspace(1, 2, 6).double()
    bias = torch.linspace(-1, 1, 6).double()
    rest = bias.sum() * len(x)
    for function, absorbed in (
        (lambda z: nn.functional.layer_norm(z, (6,), weight, bias), rest),
        (lambda z: nn.functional.layer_norm(z, (6,)), 0),
        (lambda z: nn.functional.rms_norm(z, (6,), weight), 0),
        (lambda z: z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + 1e-6), 0),
        (lambda z: z * torch.pow(z.square().mean(-1, keepdim=True) + 1e-6, -0.5), 0),
        (lambda z: z / torch.sqrt(z.square().mean(-1, keepdim=True) + 1e-6), 0),
    ):
        (found,) = slopes(function, x)
        assert float(found.sum()) == pytest.approx(float(function(x).sum() - absorbed), abs=1e-9)


def test_an_operation_without_a_rule_is_refused_by_name(x: torch.Tensor) -> None:
    with torch.enable_grad(), Rules("BertModel"):
        assert torch.equal(torch.cos(x), x.cos())  # nothing to propagate
        with raises("relevance.operation_unknown", "'cos'", "BertModel"):
            torch.cos(x.clone().requires_grad_())
    (slope,) = torch.autograd.grad(torch.cos(w := x.clone().requires_grad_()).sum(), w)
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
        logits = Cosine.apply(model.module(**tiny_batch(model.module)).logits)
    with raises("relevance.operation_unknown", "'Cosine'", "BertFor"):
        heads.of(highest(logits))


def make(family: str) -> Evaluator:
    task = TASKS[family]
    return Evaluator(
        tiny_model(family, tokenizer=tiny_tokenizer()), task, task.languages[0], "dev", 5
    )


def work(evaluator: Evaluator, **options: bool) -> Work:
    return Work(evaluator, 0, method("relevance").resolve(options))


def one_by_one(evaluator: Evaluator, constant: bool) -> np.ndarray:
    """Relevance of every answer, each from a pass of its own on its own example: [answer, head]."""
    out = []
    model = evaluator.model
    layer, head = model.grid.flat.T
    for row in range(len(evaluator.examples)):
        rows = np.array([row])
        targets = evaluator.inputs.targets(rows)
        for place in torch.nonzero(targets.reshape(1, -1)[0] != NO_TARGET).flatten().tolist():
            with relevance(model, attention_constant=constant) as heads:
                logits = (
                    evaluator.logits(evaluator.tensors(rows)).reshape(-1, 1)
                    if targets.dim() == 1
                    else None
                )
                if logits is None:
                    logits = evaluator.logits(evaluator.tensors(rows))[0, place][:, None]
            out.append(heads.of(logits.max())[0, layer, head].numpy())
    return np.array(out)


@pytest.mark.parametrize("family", TASKS)
@pytest.mark.parametrize("constant", [True, False])
def test_scores_are_shares_of_a_layer_averaged_over_answers(family: str, constant: bool) -> None:
    evaluator = make(family)
    every = np.abs(one_by_one(evaluator, constant))
    assert len(every) == evaluator.inputs.units.sum()
    raw = relevance_method.run(work(evaluator, attention_constant=constant, normalise=False))
    assert_allclose(raw.values, every.mean(axis=0), rtol=1e-9)
    wanted = np.concatenate(
        [
            (part / part.sum(axis=1, keepdims=True)).mean(axis=0)
            for part in layers(evaluator.model, every)
        ]
    )
    found = relevance_method.run(work(evaluator, attention_constant=constant))
    assert_allclose(found.values, wanted, rtol=1e-9)
    assert (found.samples == len(evaluator.examples)).all()
    assert [
        float(part.sum()) for part in layers(evaluator.model, found.values[None])
    ] == pytest.approx([1.0] * evaluator.model.grid.layers)


def layers(model: Model, flat: np.ndarray) -> list[np.ndarray]:
    """[..., head] cut into layers."""
    ends = np.cumsum([n for stack in model.grid.stacks for n in stack.heads])
    return np.split(flat, ends[:-1], axis=-1)


def test_a_layer_that_no_answer_depends_on_has_no_shares() -> None:
    found = relevance_method.layer_shares(torch.tensor([[0.0, 0.0], [-1.0, 3.0]]))
    assert found.tolist() == [[0.0, 0.0], [0.25, 0.75]]


def test_scores_say_what_they_are() -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    plain = score(model, tiny_task(), language="xx", method="relevance", size=4)
    raw = score(model, tiny_task(), language="xx", method="relevance", size=4, normalise=False)
    assert (plain.unit, raw.unit) == ("share of relevance", "logit")
    assert plain.example_forwards == 4
    assert (plain.samples == 4).all()


@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
def test_relevance_is_the_same_from_smaller_batches(family: str) -> None:
    big = memory_evaluator(family)
    small = memory_evaluator(family)
    want = relevance_method.run(work(big))
    with room_for(small.model, 5) as tried:
        got = relevance_method.run(work(small))
    assert_allclose(got.values, want.values, rtol=1e-9)
    assert max(tried) > 5
    assert small.forwards == big.forwards
    with room_for(small.model, 0), raises(FULL):
        relevance_method.run(work(small))


def test_weights_get_no_gradient_and_gates_of_others_stay() -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    relevance_method.run(work(Evaluator(model, tiny_task(), "xx", "dev", 4)))
    assert all(parameter.grad is None for parameter in model.module.parameters())
    batch = tiny_batch(model.module)
    with pytest.raises(ZeroDivisionError), relevance(model):
        _ = 1 / 0
    seen: list[int] = []
    with torch.no_grad(), model.active(ActiveGates(contexts=lambda row, context: seen.append(row))):
        model.module(**batch)
    assert seen == [0, 1, 2]


def test_relevance_runs_only_where_it_is_asked_for_by_name() -> None:
    assert inspect.signature(score).parameters["method"].default != "relevance"
    defaults = [option.default for about in STUDIES.values() for option in about.options.values()]
    assert not [d for d in defaults if "relevance" in str(d)]
    assert next(iter(METHODS)) != "relevance"
