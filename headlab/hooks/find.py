"""Finding a model's heads in one forward pass, not from its class name, and proving where each of them goes.

The probe has the same text twice. In the second row, whatever attention gives (the weights of a softmax, or the output
of SDPA) is multiplied by a factor of each head's own. The projection of these heads is the first linear layer whose
input, block by block, is the first row's times those factors: that block is the head's output, and nothing else is.
Its second row is then set back to the first, so that the next layer starts equal again, and after the last layer the
rows still differ only if some attention went elsewhere.
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
from headlab.hooks.state import NAME, SITE, Active, Owner, Site, activate, register
from headlab.models import alone, home
from headlab.models.shrunk_cut import Headless

PROBE_TOKENS = 6
SAME, SCALED, OTHER, ROWS = (
    0,
    1,
    2,
    3,
)  # rows of the probe; in OTHER, a token differs, which shows who looks ahead
# What attention calls: a softmax over the tokens, or all of it at once.
ATTENTION = (torch.softmax, torch.Tensor.softmax, torch.special.softmax, functional.softmax,
             functional.scaled_dot_product_attention)  # fmt: skip
COUNTS = (
    "num_attention_heads",
    "encoder_attention_heads",
    "decoder_attention_heads",
    "num_heads",
    "n_head",
    "n_heads",
)
# What a model raises that was made for other input, or whose configuration is not that of its weights.
FAILURES = (
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
class Call:
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
    vocab = int(getattr(model.config.get_text_config(), "vocab_size", 100))
    ids = (torch.arange(PROBE_TOKENS, device=home(model)) * 7 + 5)[None] % vocab
    end = getattr(
        model.config, "eos_token_id", None
    )  # some classifiers read the state at the end of sentence
    if model.config.is_encoder_decoder and isinstance(end, int) and 0 <= end < vocab:
        ids[:, -1] = end
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = ids.flip(1)
    return inputs


def logits(module: PreTrainedModel) -> torch.Tensor:
    """First output for the probe input: logits, or hidden states for a model without a task head."""
    with torch.inference_mode():
        return first_output(module(**probe_inputs(module))).clone()


def first_output(outputs: Mapping[str, object]) -> torch.Tensor:
    """The first output that has rows: logits, or hidden states."""
    tensors = (value for value in outputs.values() if isinstance(value, torch.Tensor))
    return next(tensor for tensor in tensors if tensor.dim() >= 2)


class Probe(TorchFunctionMode):
    """Scale the heads of the row SCALED, and find their projections.

    counts: numbers of heads that the configuration names.  pending: heads that were scaled and have not reached a
    projection; None if there are none.  attention: the module that called `gated_sdpa` for them, if one did.
    tokens_first: whether heads came to a layer in the order [token, row, ...], in which headlab cannot gate them.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        texts = model.config.get_text_config()
        self.counts = {n for name in COUNTS if isinstance(n := getattr(texts, name, None), int)}
        self.names = {module: name for name, module in model.named_modules()}
        self.calls: list[Call] = []
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
        """As the function does, but for those of attention."""
        output = func(*args, **(kwargs or {}))
        if func in ATTENTION and isinstance(output, torch.Tensor):
            self._scale(output)
        return output

    def _scale(self, out: torch.Tensor) -> None:
        heads = self._by_head(out)
        if heads is not None:
            self.pending = heads.shape[1]
            heads[SCALED] *= _factors(heads.shape[1], out).view(-1, *[1] * (heads.dim() - 2))

    def _by_head(self, out: torch.Tensor) -> torch.Tensor | None:
        """A view [row, head, ...]; None for what has no heads, like a router's softmax over experts."""
        if out.dim() >= 4 and len(out) == ROWS:
            second = out.shape[1] not in self.counts and out.shape[2] in self.counts - {
                PROBE_TOKENS
            }
            return out.movedim(2, 1) if second else out
        if out.dim() == 3 and len(out) > ROWS and len(out) % ROWS == 0:
            return out.view(ROWS, -1, *out.shape[1:])
        return None

    def enters(
        self, module: nn.Module, args: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor, ...] | None:
        """Called before a linear layer: record it if the heads that were scaled are its input."""
        if self.pending is None or not args:
            return None
        given, heads = args[0], self.pending
        if given.dim() != 3 or len(given) != ROWS:
            self.tokens_first |= (
                given.dim() == 3 and given.shape[1] == ROWS and _takes(given.movedim(1, 0), heads)
            )
            return None
        if not _takes(given, heads):
            return None
        ahead = not near(given[OTHER, 0], given[SAME, 0])
        site = module if self.attention is None else self.attention
        self.calls.append(Call(self.names[site], site, heads, module, ahead))
        self.pending = self.attention = None
        given = given.clone()
        given[SCALED] = given[SAME]
        return (given, *args[1:])

    def attends(self, module: nn.Module) -> None:
        """Called by `gated_sdpa`."""
        self.attention = module

    def passes(self, module: nn.Module) -> None:
        """Called before a layer without heads, which is a row of 0 heads: layers keep their numbers."""
        self.calls.append(Call(self.names[module], module, 0, module))


def _takes(given: torch.Tensor, heads: int) -> bool:
    """Whether these inputs of a linear layer, [row, token, ...], are the outputs of scaled heads side by side."""
    if given.shape[-1] % heads:
        return False
    if (
        not given.any()
    ):  # heads that were switched off in the weights: nothing to see, but they are heads
        return True
    same, scaled = given.unflatten(-1, (heads, -1))[[SAME, SCALED]]
    return not near(scaled, same) and near(scaled / _factors(heads, given)[:, None], same)


def _factors(heads: int, like: torch.Tensor) -> torch.Tensor:
    return torch.arange(2, 2 + heads, device=like.device, dtype=like.dtype)


def near(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Whether two tensors are equal but for rounding; models of doubles also have a softmax of floats."""
    tolerance = 1e-4 if want.dtype in (torch.float64, torch.float32) else 3e-2
    return torch.allclose(got, want, rtol=tolerance, atol=tolerance * float(want.abs().max()))


def find(model: PreTrainedModel, untouched: torch.Tensor) -> list[Call]:
    """Every attention computation of one forward pass, in order. Raises HeadlabError with the reason if one is lost.

    Its attention goes through `gated_sdpa` from now on, if that changes nothing.

    Args:
        untouched: `logits` of the model as it was loaded.
    """
    _use_function(model, untouched)
    with ExitStack() as undo:
        probe = Probe(model)
        undo.enter_context(_hooked(model, probe))
        try:
            with torch.inference_mode(), probe:
                out = first_output(_run(model, probe))
        except FAILURES as error:
            raise _refused(
                model, f"its heads could not be probed ({error})", "model.heads_not_found"
            ) from error
    if not probe.calls and probe.pending is None:
        raise _refused(model, "it computes no softmax over the tokens that each head attends to",
                       "model.heads_not_found")  # fmt: skip
    if probe.tokens_first:
        raise _refused(model, "its attention orders what it computes as [token, example, ...], and headlab gates "
                       "[example, token, ...] only", "model.tokens_first")  # fmt: skip
    if probe.pending is not None or not near(out[SCALED], out[SAME]):
        raise _refused(model, "no linear layer takes the outputs of its heads side by side, or they are mixed before",
                       "model.heads_mixed")  # fmt: skip
    return probe.calls


def _use_function(model: PreTrainedModel, untouched: torch.Tensor) -> None:
    register()
    own = model.config._attn_implementation
    same = False
    with alone():
        with suppress(*FAILURES):  # else it computes attention by itself
            model.set_attn_implementation(NAME)
            same = near(logits(model), untouched)  # else it hands over less than it does itself
        if not same:
            with suppress(*FAILURES):
                model.set_attn_implementation(own)


def _refused(model: PreTrainedModel, why: str, code: str) -> HeadlabError:
    return HeadlabError(
        f"{type(model).__name__} (model type {model.config.model_type}) cannot be gated: {why}; choose another model",
        code=code,
    )


def _run(model: PreTrainedModel, probe: Probe) -> Mapping[str, object]:
    inputs = {name: value.repeat(ROWS, 1) for name, value in probe_inputs(model).items()}
    for name in {"input_ids", "decoder_input_ids"} & set(inputs):
        inputs[name][OTHER, 1] = inputs[name][OTHER, 2]
    try:
        return model(**inputs)  # type: ignore[no-any-return] # a ModelOutput
    except ValueError:  # a classifier without a padding token takes one row at a time
        probe.calls.clear()
        return model.base_model(**inputs)  # type: ignore[no-any-return] # a ModelOutput


@contextmanager
def _hooked(model: PreTrainedModel, probe: Probe) -> Iterator[None]:
    """Tell the probe what its modules do."""
    modules, owner = list(model.modules()), Owner()
    with ExitStack() as undo:
        for number, module in enumerate(modules):
            setattr(module, SITE, Site(owner, (number,), 0))
            undo.callback(delattr, module, SITE)
            if isinstance(module, Headless):
                undo.callback(
                    module.register_forward_pre_hook(lambda module, _: probe.passes(module)).remove
                )
            if isinstance(module, nn.Linear | Conv1D):
                undo.callback(module.register_forward_pre_hook(probe.enters).remove)
        undo.enter_context(
            activate(owner, Active(contexts=lambda number, _: probe.attends(modules[number])))
        )
        yield


def stack_of(name: str, model: PreTrainedModel, *, ahead: bool) -> str:
    """encoder, decoder or cross, from a module's path.

    Args:
        ahead: Whether some token sees those after it.
    """
    if re.search(
        r"cross_?attn|crossattention|cross_attention|encoder_attn|EncDecAttention|encoder_attention",
        name,
        re.IGNORECASE,
    ):
        return "cross"
    if model.config.is_encoder_decoder:
        return "decoder" if re.search(r"(^|[._])decoder\.", name) else "encoder"
    return "encoder" if ahead else "decoder"


def causal(model: PreTrainedModel) -> bool:
    """Whether a single-stack model says that its attention is causal."""
    flags = [
        bool(m.is_causal)
        for m in model.modules()
        if hasattr(m, "is_causal") and "tention" in type(m).__name__
    ]
    return any(flags) or bool(getattr(model.config, "is_decoder", False))


def grid_of(calls: list[Call], model: PreTrainedModel) -> tuple[HeadGrid, list[Call]]:
    """The head grid, and the calls in the order of its rows.

    A layer without attention is a row of 0 heads, so that layers keep the model's own numbers.
    """
    own = [call for call in calls if call.heads and not call.through_function]
    ahead = any(call.ahead for call in own) if own else not causal(model)
    stacks: dict[str, list[Call]] = {}
    for call in calls:
        stacks.setdefault(stack_of(call.name, model, ahead=ahead), []).append(call)
    # headlab's own language models have always numbered the layers that have heads left.
    whole = not model.config.model_type.startswith("headlab")
    layers = {
        name: _every_layer(stacks[name], model) if whole else stacks[name]
        for name in STACKS
        if name in stacks
    }
    grid = HeadGrid(
        tuple(Stack(name, tuple(call.heads for call in rows)) for name, rows in layers.items())
    )
    return grid, [call for rows in layers.values() for call in rows]


def _every_layer(calls: list[Call], model: PreTrainedModel) -> list[Call]:
    """The calls of a stack, and its layers without attention; just the calls where these are not one for a layer."""
    places = [re.match(r"(.*?)\.(\d+)\.", call.name) for call in calls]
    lists = {place[1] if place else "" for place in places}
    numbers = [int(place[2]) for place in places if place]
    if len(lists) > 1 or "" in lists or any(b <= a for a, b in pairwise(numbers)):
        return calls
    path, found = lists.pop(), dict(zip(numbers, calls, strict=True))
    layers = enumerate(model.get_submodule(path).children())
    return [found.get(at) or Call(f"{path}.{at}", layer, 0, layer) for at, layer in layers]


class WeightsThere(TorchDispatchMode):
    """Raises RuntimeError for an operation with a weight that is not in memory, whose result torch leaves undefined.

    A module that uses another's weight without calling it does that: accelerate brings weights for calls.
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
