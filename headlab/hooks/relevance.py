"""Layer-wise relevance propagation: forward passes in which gradient times value is the value's relevance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar, cast

import torch
from torch import nn
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import Node
from torch.overrides import TorchFunctionMode

from headlab.core import HeadlabError
from headlab.hooks.model import Model
from headlab.hooks.state import Active

Operation = Callable[..., object]
TensorOperation = Callable[..., torch.Tensor]
Output = TypeVar("Output")
GATE = "_headlab_gate"  # marks outputs of an activation function that no later operation has mixed across neurons
# Operations by the rule they follow; names without leading and trailing underscores: `add` for `__add__` and `add_`.
KINDS = {
    # Sums, and operations that move or select values: their gradient is their rule. `clamp` only prevents overflow.
    "moving": """add radd iadd sub rsub isub neg sum mean cumsum max amax maximum where masked_fill masked_scatter
        clamp clip nan_to_num dropout get getitem setitem select narrow gather index_select take_along_dim index_add
        index_copy scatter scatter_add transpose permute movedim swapaxes swapdims t view view_as reshape flatten
        unflatten squeeze unsqueeze expand expand_as repeat repeat_interleave tile contiguous clone cat concat stack
        chunk split split_with_sizes tensor_split unbind roll flip pad tril triu to type type_as float double half
        bfloat16 cpu cuda requires_grad""",
    "activation": """relu relu6 leaky_relu prelu elu selu celu gelu silu mish tanh sigmoid logsigmoid softplus hardtanh
        hardswish hardsigmoid erf square pow""",
    "product": "mul rmul imul multiply",
    "mixing": "linear conv1d matmul rmatmul imatmul bmm mm mv einsum addmm baddbmm",
    "division": "div divide truediv itruediv true_divide",
    "constant": "rsqrt sqrt reciprocal rdiv rtruediv var std norm",
    "softmax": "softmax",
    "layer norm": "layer_norm",
    "rms norm": "rms_norm",
    "attention": "scaled_dot_product_attention",
}
FUNCTIONS = (
    "GeLUFunction",
)  # activations with a backward pass of their own, which a TorchFunctionMode does not see
ADDING = ("addmm", "baddbmm")  # their first argument is a summand


class Rules(TorchFunctionMode):
    """While active, this thread's operations are differentiated by their LRP rules; no value changes.

    Attributes:
        user: Model class named in the HeadlabError for an operation without a rule.
        attention_constant: Attention weights are constants that scale values (Ali et al. 2022);
            otherwise they pass on half of the relevance.
    """

    def __init__(self, user: str, *, attention_constant: bool = True) -> None:
        super().__init__()
        self.user, self.attention_constant = user, attention_constant

    def __torch_function__(
        self,
        func: Operation,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """The operation, with weights as constants, so that a tensor with a gradient depends on a head."""
        args, named = _each(args, kwargs or {}, _weight_constant)
        carrying = list(_carrying((args, named)))
        if not carrying:
            return func(*args, **named)
        spelled = getattr(func, "__name__", str(func))
        name = spelled.strip("_")
        kind = _kinds().get(name, "")
        gates = [tensor for tensor in carrying if hasattr(tensor, GATE)]
        if kind == "activation":
            return _mark(_activation(cast(TensorOperation, func), spelled, args, named))
        if kind == "moving":
            output = func(*args, **named)
            return _mark(output) if len(gates) == len(carrying) else output
        if kind == "product":
            output = _product(func, args, named, len(carrying), len(gates))
            return _mark(output) if gates else output
        return self._other(kind, name, func, args, named)

    def _other(
        self,
        kind: str,
        name: str,
        func: Operation,
        args: tuple[Any, ...],  # the operation decides what they are
        named: dict[str, Any],
    ) -> object:
        """Operations whose results are not gates."""
        if kind == "mixing":
            first = 1 if name in ADDING else 0
            factors, others = _shared(args[first:], named)
            return func(*args[:first], *factors, **others)
        if kind == "division":  # a divisor normalises
            divisors, others = _each(args[1:], named, _constant)
            return func(args[0], *divisors, **others)
        if kind == "layer norm":
            return _layer_norm(cast(TensorOperation, func), *args, **named)
        if kind == "rms norm":
            return _rms_norm(cast(TensorOperation, func), *args, **named)
        if kind == "attention":
            return self._attention(func, *args, **named)
        if kind == "constant" or (kind == "softmax" and self.attention_constant):
            constants, others = _each(args, named, _constant)
            return func(*constants, **others)
        output = func(*args, **named)
        if kind != "softmax" and any(True for _ in _carrying(output)):
            raise no_rule(name, self.user)
        return output

    def _attention(
        self,
        func: Operation,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *args: object,
        **named: object,
    ) -> object:
        """Treated as its parts would be: two matrix products with a softmax between them."""
        if self.attention_constant:
            constants, others = _each(args, named, _constant)
            return func(query.detach(), key.detach(), value, *constants, **others)
        biases, others = _each(args, named, lambda bias: _sloped(bias, 0.5))
        return func(
            _sloped(query, 0.25), _sloped(key, 0.25), _sloped(value, 0.5), *biases, **others
        )


def no_rule(name: str, user: str) -> HeadlabError:
    """The error for an operation through which relevance cannot be propagated."""
    return HeadlabError(
        f"relevance has no rule for the operation {name!r}, which {user} uses; choose another method, such as gradient",
        code="relevance.operation_unknown",
    )


class HeadRelevance:
    """Outputs of the heads in one forward pass, and their relevance for the model's outputs."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.contexts: dict[int, torch.Tensor] = {}
        self._ruled = False

    def keep(self, row: int, context: torch.Tensor) -> None:
        """Store the output of a layer's heads, [row, query, head, head_dim]; layers below need no gradient."""
        self.contexts[row] = context if context.requires_grad else context.requires_grad_()

    def of(self, outputs: torch.Tensor, *, again: bool = False) -> torch.Tensor:
        """Relevance of every head for outputs of the pass, float64 [row, layer, head], in the outputs' unit.

        Relevance is gradient times output, which is the gradient at the head's gate.

        Args:
            outputs: At most one per row.
            again: Another call follows for this pass.
        """
        if not self._ruled:
            _rule_functions(outputs, type(self.model.module).__name__)
            self._ruled = True
        layers = list(self.contexts)
        found = torch.autograd.grad(
            outputs.sum(),
            [self.contexts[layer] for layer in layers],
            retain_graph=again,
            allow_unused=True,
        )
        grid = self.model.grid
        rows = max(len(context) for context in self.contexts.values())
        out = torch.zeros(rows, grid.layers, grid.width, dtype=torch.float64, device=outputs.device)
        for layer, gradient in zip(layers, found, strict=True):
            if gradient is not None:  # a layer that no output depends on
                context = self.contexts[layer].detach()
                out[:, layer, : context.shape[2]] = (context * gradient).sum(
                    dim=(1, 3), dtype=torch.float64
                )
        return out


@contextmanager
def relevance(model: Model, *, attention_constant: bool = True) -> Iterator[HeadRelevance]:
    """Observe one forward pass of this thread for `HeadRelevance.of`, which is called after the block.

    Rules: Bach et al. 2015, equation 56, for sums, where a bias absorbs its share; Voita et al. 2019, A.2, for
    activations; Ali et al. 2022 for normalisation and constant attention, otherwise Achtibat et al. 2024, propositions
    3.1 and 3.3.  Raises HeadlabError for an operation without a rule.
    """
    found = HeadRelevance(model)
    rules = Rules(type(model.module).__name__, attention_constant=attention_constant)
    with torch.enable_grad(), model.active(Active(contexts=found.keep)), rules:
        yield found


@cache
def _kinds() -> dict[str, str]:
    return {name: kind for kind, names in KINDS.items() for name in names.split()}


Change = Callable[[torch.Tensor], torch.Tensor]


def _each(
    args: tuple[object, ...], named: Mapping[str, object], change: Change
) -> tuple[tuple[object, ...], dict[str, object]]:
    """An operation's arguments with each tensor changed, also tensors inside dicts, lists and tuples."""
    changed_args = tuple(_changed(value, change) for value in args)
    return changed_args, {name: _changed(value, change) for name, value in named.items()}


def _changed(value: object, change: Change) -> object:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {name: _changed(part, change) for name, part in value.items()}
    if type(value) is tuple:
        return tuple(_changed(part, change) for part in value)
    if type(value) is list:
        return [_changed(part, change) for part in value]
    return value


def _carrying(value: object) -> Iterator[torch.Tensor]:
    """Tensors among arguments or results that require a gradient, that is, depend on a head."""
    if isinstance(value, torch.Tensor):
        if value.requires_grad:
            yield value
    elif isinstance(value, dict | tuple | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _carrying(part)


def _constant(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach()


def _weight_constant(tensor: torch.Tensor) -> torch.Tensor:
    # One without a gradient stays a Parameter: accelerate, which brings weights for a pass, asks for that.
    return tensor.detach() if isinstance(tensor, nn.Parameter) and tensor.requires_grad else tensor


def _mark(output: Output) -> Output:
    for tensor in _carrying(output):
        setattr(tensor, GATE, True)
    return output


def _sloped(
    x: torch.Tensor, slope: torch.Tensor | float, value: torch.Tensor | None = None
) -> torch.Tensor:
    """A value (by default x itself) whose derivative with respect to x is `slope`."""
    if not x.requires_grad and value is None:
        return x  # such as a mask, whose infinities cannot be subtracted
    fixed = x.detach()
    return (fixed if value is None else value) + slope * (x - fixed)


def _shared(
    args: tuple[object, ...], named: dict[str, object]
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Factors of a product, each given an equal part of its relevance (Achtibat et al. 2024, proposition 3.2)."""
    count = sum(1 for _ in _carrying((args, named)))
    if count <= 1:
        return args, named
    return _each(args, named, lambda factor: _sloped(factor, 1 / count))


def _product(
    func: Operation, args: tuple[object, ...], named: dict[str, object], carrying: int, gates: int
) -> object:
    """The product with a gate held constant, so that the other factor gets all the relevance (Arras et al. 2017)."""
    if carrying > 1 and gates == 1:
        factors, others = _each(args, named, _gate_constant)
    else:
        factors, others = _shared(args, named)
    return func(*factors, **others)


def _gate_constant(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach() if hasattr(tensor, GATE) else tensor


def _activation(
    func: TensorOperation, spelled: str, args: tuple[object, ...], named: dict[str, object]
) -> torch.Tensor:
    """f(x) as x times the constant f(x) / x: relevance is passed on unchanged (Voita et al. 2019, A.2)."""
    x = cast("torch.Tensor", args[0] if args else named.pop("input"))
    exponent = named.get("exponent", 1)
    if spelled.strip("_") == "pow" and len(args) > 1:
        exponent = args[1]
    fixed = x.detach()
    # An in-place operation would change the ratio's denominator.
    in_place = named.get("inplace") or (spelled.endswith("_") and not spelled.endswith("__"))
    value = func(fixed.clone() if in_place else fixed, *args[1:], **named)
    if not isinstance(exponent, int | float) or exponent < 0:
        return value  # a normaliser, such as the -1/2th power of a mean square
    return _sloped(x, torch.nan_to_num(value / fixed, nan=0.0, posinf=0.0, neginf=0.0), value)


def _layer_norm(
    func: TensorOperation,
    x: torch.Tensor,
    shape: Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Layer norm with its standard deviation held constant (Ali et al. 2022)."""
    given, over = x.detach(), tuple(range(-len(shape), 0))
    scale = torch.rsqrt(given.var(dim=over, keepdim=True, unbiased=False) + eps)
    moved = x - given
    moved = moved - moved.mean(dim=over, keepdim=True)
    slope = scale if weight is None else scale * weight
    return func(given, shape, weight, bias, eps) + slope * moved


def _rms_norm(
    func: TensorOperation,
    x: torch.Tensor,
    shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """RMS norm with its mean square held constant, like the standard deviation of a layer norm."""
    given, over = x.detach(), tuple(range(-len(shape), 0))
    small = torch.finfo(x.dtype).eps if eps is None else eps
    scale = torch.rsqrt(given.square().mean(dim=over, keepdim=True) + small)
    return _sloped(x, scale if weight is None else scale * weight, func(given, shape, weight, eps))


def _rule_functions(outputs: torch.Tensor, user: str) -> None:
    """Apply the activation rule to functions with their own backward pass in the graph of these outputs."""
    waiting: list[Node | None] = [outputs.grad_fn]
    seen: set[Node] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting += [below for below, _ in node.next_functions]
        own_node = _of_own_function(node)
        if own_node is not None:
            function = type(own_node)._forward_cls  # type: ignore[attr-defined] # torch sets it on the class that it makes
            if function.__name__ not in FUNCTIONS:
                raise no_rule(function.__name__, user)
            own_node.register_hook(_passing(*own_node.saved_tensors, function))


def _of_own_function(node: object) -> BackwardCFunction | None:
    """The node, if it is of a function with its own backward pass."""
    return node if isinstance(node, BackwardCFunction) else None


def _passing(
    x: torch.Tensor, function: type[torch.autograd.Function]
) -> Callable[[object, Sequence[torch.Tensor]], tuple[torch.Tensor]]:
    """A hook that uses f(x) / x as the derivative."""
    with torch.no_grad():
        ratio = torch.nan_to_num(function.apply(x) / x, nan=0.0, posinf=0.0, neginf=0.0)
    return lambda _, above: (above[0] * ratio,)
