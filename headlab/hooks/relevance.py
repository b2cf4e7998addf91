"""Layer-wise relevance propagation: passes in which gradient times value is a value's relevance."""

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
from headlab.hooks.state import ActiveGates

Operation = Callable[..., object]
TensorOperation = Callable[..., torch.Tensor]
Output = TypeVar("Output")
# Marks a gate of Arras et al. 2017, which is no head's gate: an output of an activation function
# that no later operation has mixed across neurons.
GATE_ATTRIBUTE = "_headlab_gate"
# Operations by the rule that they follow; names are without leading and trailing underscores: `add`
# for `__add__` and `add_`.
OPERATIONS_BY_KIND = {
    # Sums, and operations that move or select values: their gradient is their rule. `clamp` only
    # prevents overflow.
    "moving": """
        add radd iadd sub rsub isub neg sum mean cumsum max amax maximum where
        masked_fill masked_scatter clamp clip nan_to_num dropout get getitem setitem
        select narrow gather index_select take_along_dim index_add index_copy scatter
        scatter_add transpose permute movedim swapaxes swapdims t view view_as reshape
        flatten unflatten squeeze unsqueeze expand expand_as repeat repeat_interleave
        tile contiguous clone cat concat stack chunk split split_with_sizes tensor_split
        unbind roll flip pad tril triu to type type_as float double half bfloat16 cpu
        cuda requires_grad
    """,
    "activation": """
        relu relu6 leaky_relu prelu elu selu celu gelu silu mish tanh sigmoid logsigmoid
        softplus hardtanh hardswish hardsigmoid erf square pow
    """,
    "product": "mul rmul imul multiply",
    "mixing": "linear conv1d matmul rmatmul imatmul bmm mm mv einsum addmm baddbmm",
    "division": "div divide truediv itruediv true_divide",
    "constant": "rsqrt sqrt reciprocal rdiv rtruediv var std norm",
    "softmax": "softmax",
    "layer norm": "layer_norm",
    "rms norm": "rms_norm",
    "attention": "scaled_dot_product_attention",
}
# Activations with a backward pass of their own, which a TorchFunctionMode does not see.
FUNCTIONS_WITH_BACKWARD = ("GeLUFunction",)
OPERATIONS_WITH_SUMMAND = ("addmm", "baddbmm")  # their first argument is a summand


class Rules(TorchFunctionMode):
    """While active, this thread's operations are differentiated by their LRP rules.

    No value changes.

    Attributes:
        user: Model class named in the HeadlabError for an operation without a rule.
        attention_constant: Attention weights are constants that scale values (Ali et al. 2022);
            otherwise they pass on half of the relevance.
    """

    def __init__(self, user: str, *, attention_constant: bool = True) -> None:
        super().__init__()
        self.user = user
        self.attention_constant = attention_constant

    def __torch_function__(
        self,
        func: Operation,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Call the operation by its rule.

        Weights are constants, so that every tensor with a gradient depends on a head.
        """
        args, keywords = _change_arguments(args, kwargs or {}, _weight_as_constant)
        tensors_with_gradient = list(_tensors_with_gradient((args, keywords)))
        if not tensors_with_gradient:
            return func(*args, **keywords)
        function_name = getattr(func, "__name__", str(func))
        name = function_name.strip("_")
        kind = _kind_by_operation().get(name, "")
        gate_tensors = [
            tensor for tensor in tensors_with_gradient if hasattr(tensor, GATE_ATTRIBUTE)
        ]
        if kind == "activation":
            return _mark_as_gate(
                _activation(cast(TensorOperation, func), function_name, args, keywords)
            )
        if kind == "moving":
            output = func(*args, **keywords)
            if len(gate_tensors) == len(tensors_with_gradient):
                return _mark_as_gate(output)
            return output
        if kind == "product":
            output = _product(func, args, keywords, len(tensors_with_gradient), len(gate_tensors))
            if gate_tensors:
                return _mark_as_gate(output)
            return output
        return self._apply_unmarked(kind, name, func, args, keywords)

    def _apply_unmarked(
        self,
        kind: str,
        name: str,
        func: Operation,
        args: tuple[Any, ...],  # the operation decides what they are
        keywords: dict[str, Any],
    ) -> object:
        """Operations whose results are not gates."""
        if kind == "mixing":
            first_factor = 1 if name in OPERATIONS_WITH_SUMMAND else 0
            factors, changed_keywords = _share_relevance(args[first_factor:], keywords)
            return func(*args[:first_factor], *factors, **changed_keywords)
        if kind == "division":  # a divisor normalises
            divisors, changed_keywords = _change_arguments(args[1:], keywords, _as_constant)
            return func(args[0], *divisors, **changed_keywords)
        if kind == "layer norm":
            return _layer_norm(cast(TensorOperation, func), *args, **keywords)
        if kind == "rms norm":
            return _rms_norm(cast(TensorOperation, func), *args, **keywords)
        if kind == "attention":
            return self._attention(func, *args, **keywords)
        if kind == "constant" or (kind == "softmax" and self.attention_constant):
            constants, changed_keywords = _change_arguments(args, keywords, _as_constant)
            return func(*constants, **changed_keywords)
        output = func(*args, **keywords)
        if kind != "softmax" and any(True for _ in _tensors_with_gradient(output)):
            raise no_rule_error(name, self.user)
        return output

    def _attention(
        self,
        func: Operation,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *args: object,
        **keywords: object,
    ) -> object:
        """Attention, by the rules of its parts: two matrix products with a softmax between them."""
        if self.attention_constant:
            constants, changed_keywords = _change_arguments(args, keywords, _as_constant)
            return func(query.detach(), key.detach(), value, *constants, **changed_keywords)
        biases, changed_keywords = _change_arguments(
            args, keywords, lambda bias: _with_slope(bias, 0.5)
        )
        return func(
            _with_slope(query, 0.25),
            _with_slope(key, 0.25),
            _with_slope(value, 0.5),
            *biases,
            **changed_keywords,
        )


def no_rule_error(name: str, user: str) -> HeadlabError:
    """The error for an operation through which relevance cannot be propagated."""
    return HeadlabError(
        f"relevance has no rule for the operation {name!r}, which {user} uses; choose another "
        "method, such as gradient",
        code="relevance.operation_unknown",
    )


class HeadRelevance:
    """Outputs of the heads in one forward pass, and their relevance for the model's outputs."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.contexts: dict[int, torch.Tensor] = {}
        self._ruled = False

    def keep(self, row: int, context: torch.Tensor) -> None:
        """Store the output of a layer's heads, [row, query, head, head_dim].

        Layers below need no gradient.
        """
        self.contexts[row] = context if context.requires_grad else context.requires_grad_()

    def relevance_for(self, outputs: torch.Tensor, *, keep_graph: bool = False) -> torch.Tensor:
        """Relevance of every head for outputs of the pass, float64 [row, layer, head].

        It is in the unit of the outputs.

        Relevance is gradient times output, which is the gradient at the head's gate.

        Args:
            outputs: At most one per row.
            keep_graph: Whether another call follows for this pass.
        """
        if not self._ruled:
            _rule_functions(outputs, type(self.model.module).__name__)
            self._ruled = True
        layers = list(self.contexts)
        gradients = torch.autograd.grad(
            outputs.sum(),
            [self.contexts[layer] for layer in layers],
            retain_graph=keep_graph,
            allow_unused=True,
        )
        grid = self.model.grid
        rows = max(len(context) for context in self.contexts.values())
        relevance_of_heads = torch.zeros(
            rows, grid.layers, grid.width, dtype=torch.float64, device=outputs.device
        )
        for layer, gradient in zip(layers, gradients, strict=True):
            if gradient is not None:  # a layer that no output depends on
                context = self.contexts[layer].detach()
                relevance_of_heads[:, layer, : context.shape[2]] = (context * gradient).sum(
                    dim=(1, 3), dtype=torch.float64
                )
        return relevance_of_heads


@contextmanager
def relevance(model: Model, *, attention_constant: bool = True) -> Iterator[HeadRelevance]:
    """Observe one forward pass of this thread for `HeadRelevance.relevance_for`.

    That is called after the block.

    Rules: Bach et al. 2015, equation 56, for sums, where a bias absorbs its share; Voita et al.
    2019, A.2, for activations; Ali et al. 2022 for normalisation and constant attention, otherwise
    Achtibat et al. 2024, propositions 3.1 and 3.3.

    Args:
        model: The model of the pass.
        attention_constant: As in `Rules`.

    Raises:
        HeadlabError: An operation has no rule.
    """
    head_relevance = HeadRelevance(model)
    rules = Rules(type(model.module).__name__, attention_constant=attention_constant)
    with torch.enable_grad(), model.active(ActiveGates(contexts=head_relevance.keep)), rules:
        yield head_relevance


@cache
def _kind_by_operation() -> dict[str, str]:
    """The key in `OPERATIONS_BY_KIND` of every operation's name."""
    return {name: kind for kind, names in OPERATIONS_BY_KIND.items() for name in names.split()}


TensorChange = Callable[[torch.Tensor], torch.Tensor]


def _change_arguments(
    args: tuple[object, ...], keywords: Mapping[str, object], change: TensorChange
) -> tuple[tuple[object, ...], dict[str, object]]:
    """An operation's arguments with each tensor changed.

    Tensors inside dicts, lists and tuples are changed too.
    """
    changed_args = tuple(_change_tensors(value, change) for value in args)
    return changed_args, {name: _change_tensors(value, change) for name, value in keywords.items()}


def _change_tensors(value: object, change: TensorChange) -> object:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {name: _change_tensors(part, change) for name, part in value.items()}
    if type(value) is tuple:
        return tuple(_change_tensors(part, change) for part in value)
    if type(value) is list:
        return [_change_tensors(part, change) for part in value]
    return value


def _tensors_with_gradient(value: object) -> Iterator[torch.Tensor]:
    """Tensors among arguments or results that require a gradient, that is, depend on a head."""
    if isinstance(value, torch.Tensor):
        if value.requires_grad:
            yield value
    elif isinstance(value, dict | tuple | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors_with_gradient(part)


def _as_constant(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach()


def _weight_as_constant(tensor: torch.Tensor) -> torch.Tensor:
    # One without a gradient stays a Parameter: accelerate, which brings weights for a pass, asks
    # for that.
    if isinstance(tensor, nn.Parameter) and tensor.requires_grad:
        return tensor.detach()
    return tensor


def _mark_as_gate(output: Output) -> Output:
    for tensor in _tensors_with_gradient(output):
        setattr(tensor, GATE_ATTRIBUTE, True)
    return output


def _with_slope(
    x: torch.Tensor, slope: torch.Tensor | float, value: torch.Tensor | None = None
) -> torch.Tensor:
    """A value (by default x itself) whose derivative with respect to x is `slope`."""
    if not x.requires_grad and value is None:
        return x  # such as a mask, whose infinities cannot be subtracted
    constant_x = x.detach()
    if value is None:
        value = constant_x
    return value + slope * (x - constant_x)


def _share_relevance(
    args: tuple[object, ...], keywords: dict[str, object]
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Factors of a product, each with an equal part of its relevance.

    Achtibat et al. 2024, proposition 3.2.
    """
    count = sum(1 for _ in _tensors_with_gradient((args, keywords)))
    if count <= 1:
        return args, keywords
    return _change_arguments(args, keywords, lambda factor: _with_slope(factor, 1 / count))


def _product(
    func: Operation,
    args: tuple[object, ...],
    keywords: dict[str, object],
    gradient_count: int,
    gate_count: int,
) -> object:
    """A product, differentiated by its rule.

    If one of several factors is a gate (see `GATE_ATTRIBUTE`), it is constant, so that the others
    get all the relevance (Arras et al. 2017). Otherwise all get equal parts of it.

    Args:
        func: The operation.
        args: Its arguments.
        keywords: Its keyword arguments.
        gradient_count: How many of the tensors among these require a gradient.
        gate_count: How many of those are gates.
    """
    if gradient_count > 1 and gate_count == 1:
        factors, changed_keywords = _change_arguments(args, keywords, _gate_as_constant)
    else:
        factors, changed_keywords = _share_relevance(args, keywords)
    return func(*factors, **changed_keywords)


def _gate_as_constant(tensor: torch.Tensor) -> torch.Tensor:
    if hasattr(tensor, GATE_ATTRIBUTE):
        return tensor.detach()
    return tensor


def _activation(
    func: TensorOperation, function_name: str, args: tuple[object, ...], keywords: dict[str, object]
) -> torch.Tensor:
    """f(x) as x times the constant f(x) / x.

    Relevance is passed on unchanged (Voita et al. 2019, A.2).
    """
    x = cast("torch.Tensor", args[0] if args else keywords.pop("input"))
    exponent = keywords.get("exponent", 1)
    if function_name.strip("_") == "pow" and len(args) > 1:
        exponent = args[1]
    constant_x = x.detach()
    # An in-place operation would change the ratio's denominator.
    in_place = keywords.get("inplace") or (
        function_name.endswith("_") and not function_name.endswith("__")
    )
    value = func(constant_x.clone() if in_place else constant_x, *args[1:], **keywords)
    if not isinstance(exponent, int | float) or exponent < 0:
        return value  # a normaliser, such as the -1/2th power of a mean square
    slope = torch.nan_to_num(value / constant_x, nan=0.0, posinf=0.0, neginf=0.0)
    return _with_slope(x, slope, value)


def _layer_norm(
    func: TensorOperation,
    x: torch.Tensor,
    shape: Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Layer norm with its standard deviation held constant (Ali et al. 2022)."""
    constant_x = x.detach()
    dims = tuple(range(-len(shape), 0))
    scale = torch.rsqrt(constant_x.var(dim=dims, keepdim=True, unbiased=False) + eps)
    centred_change = x - constant_x
    centred_change = centred_change - centred_change.mean(dim=dims, keepdim=True)
    slope = scale if weight is None else scale * weight
    return func(constant_x, shape, weight, bias, eps) + slope * centred_change


def _rms_norm(
    func: TensorOperation,
    x: torch.Tensor,
    shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """RMS norm with its mean square held constant, like the standard deviation of a layer norm."""
    constant_x = x.detach()
    dims = tuple(range(-len(shape), 0))
    epsilon = torch.finfo(x.dtype).eps if eps is None else eps
    scale = torch.rsqrt(constant_x.square().mean(dim=dims, keepdim=True) + epsilon)
    slope = scale if weight is None else scale * weight
    return _with_slope(x, slope, func(constant_x, shape, weight, eps))


def _rule_functions(outputs: torch.Tensor, user: str) -> None:
    """Apply the activation rule to functions with their own backward pass in a graph."""
    pending_nodes: list[Node | None] = [outputs.grad_fn]
    visited_nodes: set[Node] = set()
    while pending_nodes:
        node = pending_nodes.pop()
        if node is None or node in visited_nodes:
            continue
        visited_nodes.add(node)
        pending_nodes += [child for child, _ in node.next_functions]
        own_node = _of_own_function(node)
        if own_node is not None:
            function = type(own_node)._forward_cls  # type: ignore[attr-defined] # torch sets it on the class that it makes
            if function.__name__ not in FUNCTIONS_WITH_BACKWARD:
                raise no_rule_error(function.__name__, user)
            own_node.register_hook(_ratio_hook(*own_node.saved_tensors, function))


def _of_own_function(node: object) -> BackwardCFunction | None:
    """The node, if it is of a function with its own backward pass."""
    if isinstance(node, BackwardCFunction):
        return node
    return None


def _ratio_hook(
    x: torch.Tensor, function: type[torch.autograd.Function]
) -> Callable[[object, Sequence[torch.Tensor]], tuple[torch.Tensor]]:
    """A hook that uses f(x) / x as the derivative."""
    with torch.no_grad():
        ratio = torch.nan_to_num(function.apply(x) / x, nan=0.0, posinf=0.0, neginf=0.0)
    return lambda _, output_gradients: (output_gradients[0] * ratio,)
