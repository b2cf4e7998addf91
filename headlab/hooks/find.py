"""Finding a model's heads in one forward pass, not from its class name, and proving where they go.

The probe has the same text twice. In the second row, whatever attention gives (the weights of a
softmax, or the output of SDPA) is multiplied by a factor of each head's own. The projection of
these heads is the first linear layer whose input, block by block, is the first row's times those
factors: that block is the head's output, and nothing else is. Its second row is then set back to
the first, so that the next layer starts equal again, and after the last layer the rows still differ
only if some attention went elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from headlab.core import STACKS, HeadGrid, HeadlabError, Stack
from headlab.hooks.state import (
    IMPLEMENTATION_NAME,
    SITE_ATTRIBUTE,
    ActiveGates,
    Owner,
    Site,
    activate,
    register,
)
from headlab.models import building_alone, input_device
from headlab.models.shrunk_cut import HeadlessAttention

PROBE_TOKENS = 6
# Rows of the probe; a token differs in CHANGED_ROW, which shows who looks ahead.
UNSCALED_ROW = 0
SCALED_ROW = 1
CHANGED_ROW = 2
PROBE_ROWS = 3
# What attention calls: a softmax over the tokens, or all of it at once.
ATTENTION_FUNCTIONS = (
    torch.softmax,
    torch.Tensor.softmax,
    torch.special.softmax,
    functional.softmax,
    functional.scaled_dot_product_attention,
)
HEAD_COUNT_FIELDS = (
    "num_attention_heads",
    "encoder_attention_heads",
    "decoder_attention_heads",
    "num_heads",
    "n_head",
    "n_heads",
)
# What a model raises that was made for other input, or whose configuration is not that of its
# weights.
MODEL_ERRORS = (
    ValueError,
    TypeError,
    RuntimeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    NameError,
    ImportError,
    StopIteration,
)


@dataclass
class AttentionCall:
    """One attention computation of the probe.

    Attributes:
        module: Where it is gated: the attention module that called `gated_sdpa`, or else the
            projection itself.
        projection: What takes the heads' outputs; the attention module itself for a layer without
            heads.
        ahead: Whether a token sees those after it.
    """

    name: str
    module: nn.Module
    heads: int
    projection: nn.Module
    ahead: bool = False

    @property
    def through_function(self) -> bool:
        """Whether it is gated in `gated_sdpa`."""
        return self.module is not self.projection


def probe_inputs(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """A short artificial input that any text model accepts."""
    vocabulary_size = int(getattr(model.config.get_text_config(), "vocab_size", 100))
    token_ids = (torch.arange(PROBE_TOKENS, device=input_device(model)) * 7 + 5)[
        None
    ] % vocabulary_size
    # Some classifiers read the state at the end of the sentence.
    end_of_sentence = getattr(model.config, "eos_token_id", None)
    if (
        model.config.is_encoder_decoder
        and isinstance(end_of_sentence, int)
        and 0 <= end_of_sentence < vocabulary_size
    ):
        token_ids[:, -1] = end_of_sentence
    inputs = {"input_ids": token_ids, "attention_mask": torch.ones_like(token_ids)}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = token_ids.flip(1)
    return inputs


def logits(module: PreTrainedModel) -> torch.Tensor:
    """First output for the probe input: logits, or hidden states without a task head."""
    with torch.inference_mode():
        return first_output(module(**probe_inputs(module))).clone()


def first_output(outputs: Mapping[str, object]) -> torch.Tensor:
    """The first output that has rows: logits, or hidden states."""
    tensors = (value for value in outputs.values() if isinstance(value, torch.Tensor))
    return next(tensor for tensor in tensors if tensor.dim() >= 2)


class Probe(TorchFunctionMode):
    """Scale the heads of SCALED_ROW, and find their projections.

    Attributes:
        counts: Numbers of heads that the configuration names.
        names: The path of each module.
        calls: The attention computations found so far.
        pending: Number of heads that were scaled and have not reached a projection; None if there
            are none.
        attention: The module that called `gated_sdpa` for them, if one did.
        tokens_first: Whether heads came to a layer in the order [token, row, ...], in which headlab
            cannot gate them.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        text_config = model.config.get_text_config()
        counts = (getattr(text_config, name, None) for name in HEAD_COUNT_FIELDS)
        self.counts = {count for count in counts if isinstance(count, int)}
        self.names = {module: name for name, module in model.named_modules()}
        self.calls: list[AttentionCall] = []
        self.pending: int | None = None
        self.attention: nn.Module | None = None
        self.tokens_first = False

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Call the function, and scale what one of `ATTENTION_FUNCTIONS` gives."""
        output = func(*args, **(kwargs or {}))
        if func in ATTENTION_FUNCTIONS and isinstance(output, torch.Tensor):
            self._scale(output)
        return output

    def _scale(self, attention_output: torch.Tensor) -> None:
        """Multiply the outputs of SCALED_ROW by a factor of each head's own."""
        by_head = self._by_head(attention_output)
        if by_head is not None:
            self.pending = by_head.shape[1]
            factors = _head_factors(self.pending, attention_output)
            by_head[SCALED_ROW] *= factors.view(-1, *[1] * (by_head.dim() - 2))

    def _by_head(self, attention_output: torch.Tensor) -> torch.Tensor | None:
        """A view [row, head, ...]; None for what has no heads, like a router over experts."""
        if attention_output.dim() >= 4 and len(attention_output) == PROBE_ROWS:
            _, size, next_size, *_ = attention_output.shape
            heads_come_third = size not in self.counts and next_size in self.counts - {PROBE_TOKENS}
            if heads_come_third:
                return attention_output.movedim(2, 1)
            return attention_output
        if (
            attention_output.dim() == 3
            and len(attention_output) > PROBE_ROWS
            and len(attention_output) % PROBE_ROWS == 0
        ):
            return attention_output.view(PROBE_ROWS, -1, *attention_output.shape[1:])
        return None

    def enters(
        self, module: nn.Module, args: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor, ...] | None:
        """Called before a linear layer: record it if the heads that were scaled are its input."""
        if self.pending is None or not args:
            return None
        layer_input = args[0]
        heads = self.pending
        if layer_input.dim() != 3 or len(layer_input) != PROBE_ROWS:
            if layer_input.dim() == 3 and layer_input.shape[1] == PROBE_ROWS:
                self.tokens_first |= _holds_scaled_heads(layer_input.movedim(1, 0), heads)
            return None
        if not _holds_scaled_heads(layer_input, heads):
            return None
        looks_ahead = not is_close(layer_input[CHANGED_ROW, 0], layer_input[UNSCALED_ROW, 0])
        site = module if self.attention is None else self.attention
        self.calls.append(AttentionCall(self.names[site], site, heads, module, looks_ahead))
        self.pending = self.attention = None
        layer_input = layer_input.clone()
        layer_input[SCALED_ROW] = layer_input[UNSCALED_ROW]
        return (layer_input, *args[1:])

    def attends(self, module: nn.Module) -> None:
        """Called by `gated_sdpa`."""
        self.attention = module

    def passes(self, module: nn.Module) -> None:
        """Called before a layer without heads, which is a row of 0 heads.

        Layers keep their numbers.
        """
        self.calls.append(AttentionCall(self.names[module], module, 0, module))


def _holds_scaled_heads(layer_input: torch.Tensor, heads: int) -> bool:
    """Whether a layer's input, [row, token, ...], is the outputs of scaled heads side by side."""
    if layer_input.shape[-1] % heads:
        return False
    if not layer_input.any():
        # Heads that were switched off in the weights: nothing to see, but they are heads.
        return True
    unscaled_row, scaled_row = layer_input.unflatten(-1, (heads, -1))[[UNSCALED_ROW, SCALED_ROW]]
    factors = _head_factors(heads, layer_input)[:, None]
    return not is_close(scaled_row, unscaled_row) and is_close(scaled_row / factors, unscaled_row)


def _head_factors(heads: int, tensor: torch.Tensor) -> torch.Tensor:
    """The factor of each head, [head], of a tensor's type and on its device."""
    return torch.arange(2, 2 + heads, device=tensor.device, dtype=tensor.dtype)


def is_close(tensor: torch.Tensor, reference: torch.Tensor) -> bool:
    """Whether two tensors are equal but for rounding.

    Models of doubles also have a softmax of floats.
    """
    tolerance = 1e-4 if reference.dtype in (torch.float64, torch.float32) else 3e-2
    return torch.allclose(
        tensor, reference, rtol=tolerance, atol=tolerance * float(reference.abs().max())
    )


def find_heads(model: PreTrainedModel, baseline_logits: torch.Tensor) -> list[AttentionCall]:
    """Every attention computation of one forward pass, in order.

    The model's attention goes through `gated_sdpa` from now on, if that changes nothing.

    Args:
        model: The model.
        baseline_logits: `logits` of the model as it was loaded.

    Raises:
        HeadlabError: The heads of an attention computation cannot be found; the message says why.
    """
    _use_gated_attention(model, baseline_logits)
    with ExitStack() as undo:
        probe = Probe(model)
        undo.enter_context(_watching(model, probe))
        try:
            with torch.inference_mode(), probe:
                output = first_output(_run_probe(model, probe))
        except MODEL_ERRORS as error:
            raise _not_gateable(
                model, f"its heads could not be probed ({error})", "model.heads_not_found"
            ) from error
    if not probe.calls and probe.pending is None:
        raise _not_gateable(
            model,
            "it computes no softmax over the tokens that each head attends to",
            "model.heads_not_found",
        )
    if probe.tokens_first:
        raise _not_gateable(
            model,
            "its attention orders what it computes as [token, example, ...], and headlab gates "
            "[example, token, ...] only",
            "model.tokens_first",
        )
    if probe.pending is not None or not is_close(output[SCALED_ROW], output[UNSCALED_ROW]):
        raise _not_gateable(
            model,
            "no linear layer takes the outputs of its heads side by side, or they are mixed before",
            "model.heads_mixed",
        )
    return probe.calls


def _use_gated_attention(model: PreTrainedModel, baseline_logits: torch.Tensor) -> None:
    """Let attention go through `gated_sdpa`, unless the model's logits differ then."""
    register()
    own_implementation = model.config._attn_implementation
    gives_same_logits = False
    with building_alone():
        with suppress(*MODEL_ERRORS):  # else it computes attention by itself
            model.set_attn_implementation(IMPLEMENTATION_NAME)
            # else it hands over less than it does itself
            gives_same_logits = is_close(logits(model), baseline_logits)
        if not gives_same_logits:
            with suppress(*MODEL_ERRORS):
                model.set_attn_implementation(own_implementation)


def _not_gateable(model: PreTrainedModel, reason: str, code: str) -> HeadlabError:
    """The error for a model whose heads cannot be gated."""
    return HeadlabError(
        f"{type(model).__name__} (model type {model.config.model_type}) cannot be gated: {reason}; "
        "choose another model",
        code=code,
    )


def _run_probe(model: PreTrainedModel, probe: Probe) -> Mapping[str, object]:
    """The model's outputs for the rows of the probe."""
    inputs = {name: value.repeat(PROBE_ROWS, 1) for name, value in probe_inputs(model).items()}
    for name in {"input_ids", "decoder_input_ids"} & set(inputs):
        inputs[name][CHANGED_ROW, 1] = inputs[name][CHANGED_ROW, 2]
    try:
        return model(**inputs)  # type: ignore[no-any-return] # a ModelOutput
    except ValueError:  # a classifier without a padding token takes one row at a time
        probe.calls.clear()
        return model.base_model(**inputs)  # type: ignore[no-any-return] # a ModelOutput


@contextmanager
def _watching(model: PreTrainedModel, probe: Probe) -> Iterator[None]:
    """Tell the probe what its modules do."""
    modules = list(model.modules())
    owner = Owner()
    with ExitStack() as undo:
        for number, module in enumerate(modules):
            setattr(module, SITE_ATTRIBUTE, Site(owner, (number,), 0))
            undo.callback(delattr, module, SITE_ATTRIBUTE)
            if isinstance(module, HeadlessAttention):
                undo.callback(
                    module.register_forward_pre_hook(lambda module, _: probe.passes(module)).remove
                )
            if isinstance(module, nn.Linear | Conv1D):
                undo.callback(module.register_forward_pre_hook(probe.enters).remove)
        undo.enter_context(
            activate(owner, ActiveGates(contexts=lambda number, _: probe.attends(modules[number])))
        )
        yield


def stack_of(name: str, model: PreTrainedModel, *, looks_ahead: bool) -> str:
    """encoder, decoder or cross, from a module's path.

    Args:
        looks_ahead: Whether some token sees those after it.
    """
    if re.search(
        r"cross_?attn|crossattention|cross_attention|encoder_attn|EncDecAttention|encoder_attention",
        name,
        re.IGNORECASE,
    ):
        return "cross"
    if model.config.is_encoder_decoder:
        if re.search(r"(^|[._])decoder\.", name):
            return "decoder"
        return "encoder"
    return "encoder" if looks_ahead else "decoder"


def is_causal(model: PreTrainedModel) -> bool:
    """Whether a single-stack model says that its attention is causal."""
    flags = [
        bool(module.is_causal)
        for module in model.modules()
        if hasattr(module, "is_causal") and "tention" in type(module).__name__
    ]
    return any(flags) or bool(getattr(model.config, "is_decoder", False))


def grid_of(
    calls: list[AttentionCall], model: PreTrainedModel
) -> tuple[HeadGrid, list[AttentionCall]]:
    """The head grid, and the calls in the order of its rows.

    A layer without attention is a row of 0 heads, so that layers keep the model's own numbers.
    """
    calls_at_projections = [call for call in calls if call.heads and not call.through_function]
    if calls_at_projections:
        looks_ahead = any(call.ahead for call in calls_at_projections)
    else:
        looks_ahead = not is_causal(model)
    stacks: dict[str, list[AttentionCall]] = {}
    for call in calls:
        stacks.setdefault(stack_of(call.name, model, looks_ahead=looks_ahead), []).append(call)
    # headlab's own language models have always numbered the layers that have heads left.
    keeps_layer_numbers = not model.config.model_type.startswith("headlab")
    grid_stacks = []
    calls_by_row: list[AttentionCall] = []
    for name in STACKS:
        if name not in stacks:
            continue
        rows = stacks[name]
        if keeps_layer_numbers:
            rows = _with_layers_without_heads(rows, model)
        grid_stacks.append(Stack(name, tuple(call.heads for call in rows)))
        calls_by_row += rows
    return HeadGrid(tuple(grid_stacks)), calls_by_row


def _with_layers_without_heads(
    calls: list[AttentionCall], model: PreTrainedModel
) -> list[AttentionCall]:
    """The calls of a stack and its layers without attention, in order.

    Just the calls where these are not one for every layer.
    """
    matches = [re.match(r"(.*?)\.(\d+)\.", call.name) for call in calls]
    list_paths = {match[1] if match else "" for match in matches}
    numbers = [int(match[2]) for match in matches if match]
    is_ascending = all(number < next_number for number, next_number in pairwise(numbers))
    if len(list_paths) > 1 or "" in list_paths or not is_ascending:
        return calls
    path = list_paths.pop()
    call_by_number = dict(zip(numbers, calls, strict=True))
    rows = []
    for number, layer in enumerate(model.get_submodule(path).children()):
        headless_call = AttentionCall(f"{path}.{number}", layer, 0, layer)
        rows.append(call_by_number.get(number) or headless_call)
    return rows


class WeightsThere(TorchDispatchMode):
    """Raises RuntimeError for an operation with a weight that is not in memory.

    Torch leaves the result of such an operation undefined. A module that uses another's weight
    without calling it does that: accelerate brings weights for calls.
    """

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """The operation, unless some of its tensors have no numbers."""
        tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]
        if len({tensor.is_meta for tensor in tensors}) > 1:
            raise RuntimeError("a weight that is not in memory is used outside its module")
        return func(*args, **(kwargs or {}))
