"""A model whose heads are known, gated and observed, and the self-test that its gates work."""

from __future__ import annotations

import threading
from collections import ChainMap
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headlab.core import (
    Head,
    HeadGrid,
    HeadlabError,
    Players,
    Rows,
    is_streaming,
    memory_errors_explained,
    require_flag,
    require_type,
    run_halving,
    streaming_sizes,
)
from headlab.core.devices import on_device
from headlab.hooks.find import (
    MODEL_ERRORS,
    PROBE_TOKENS,
    AttentionCall,
    WeightsThere,
    find_heads,
    first_output,
    grid_of,
    logits,
    probe_inputs,
)
from headlab.hooks.players import PlayerSet
from headlab.hooks.positions import excluded_ids as excluded_ids
from headlab.hooks.positions import query_and_key_tokens as query_and_key_tokens
from headlab.hooks.state import (
    SITE_ATTRIBUTE,
    ActiveGates,
    FanOut,
    LayerStates,
    Owner,
    Site,
    activate,
    active_for,
    apply_gates,
    open_block,
    wrap_feed_forward,
    wrap_layer,
)
from headlab.masks import Mask
from headlab.models import (
    AccelerateHook,
    Checkpoint,
    SegmentIds,
    WordSpaces,
    classifies_words,
    input_device,
    missing_segment_ids,
    word_spaces,
)
from headlab.tasks import LabelOrder

# A model whose heads are known and can be gated: the object that the rest of headlab works with.

Gates = torch.Tensor | npt.NDArray[np.generic] | Mask
GATE_TYPES = (torch.Tensor, np.ndarray, Mask, list, tuple)  # nested lists are taken as arrays
MODEL_WORDS = "a model that headlab.load returns"


class PlayerVariants:
    """One model with several kinds of players: the same module, gated once for each kind of part.

    Attributes:
        by_players: {text of the players and their groups of neurons: the model with them}.
        gated: The kinds of parts that have gates: "neurons", "layers".
        importance: {what it was measured on: the importance of every neuron, by layer}.
        lock: Held while one is made.
    """

    def __init__(self) -> None:
        self.by_players: dict[Hashable, Model] = {}
        self.gated: set[str] = set()
        self.importance: dict[Hashable, list[npt.NDArray[np.float64]]] = {}
        self.lock = threading.RLock()


@dataclass(eq=False)
class Model:
    """A loaded model, its head grid, and what is needed to gate it.

    Attributes:
        checkpoint: The loaded weights, tokenizer and configuration.
        grid: The heads, stack by stack.
        resumable: A forward pass can start at any layer (see `LayerStates`).
        first_token: The answer is read at the first token (see `FanOut`).
        projections: The output projection for every row of the gate array.
        observed: All attention goes through `gated_sdpa`, which also gives its weights.
        gives_weights: `gated_sdpa` or the model itself gives attention weights, token by token.
        owner: Its identity, which its gates belong to.
        orders: The order of its classes, for the tasks seen so far (see
            `headlab.evaluation.inputs.label_order`).
        calls: The attention computation of every row of the grid of heads.
        player_set: What is switched instead of heads; None for heads. `grid` is then of these
            players (see `headlab.hooks.player_models.with_players`).
        variants: The same model with other players, as far as they have been asked for.
    """

    checkpoint: Checkpoint
    grid: HeadGrid
    projections: tuple[nn.Module, ...]
    resumable: bool
    first_token: bool = False
    observed: bool = True
    gives_weights: bool = True
    owner: Owner = field(default_factory=Owner)
    orders: dict[Hashable, LabelOrder] = field(default_factory=dict, repr=False)
    calls: tuple[AttentionCall, ...] = field(default=(), repr=False)
    player_set: PlayerSet | None = field(default=None, repr=False)
    variants: PlayerVariants = field(default_factory=PlayerVariants, repr=False)

    @property
    def head_grid(self) -> HeadGrid:
        """Its heads, whatever is switched."""
        return self.grid if self.player_set is None else self.player_set.heads

    @property
    def depth(self) -> int:
        """Number of rows of the grid of heads: the layers of a pass that starts midway."""
        return self.head_grid.layers

    @property
    def players(self) -> Players:
        """What is switched: heads, unless another kind was asked for."""
        return Players() if self.player_set is None else self.player_set.players

    @cached_property
    def layer_of_row(self) -> npt.NDArray[np.int64]:
        """The layer that a row of the gate array is in, int [row]: nothing before it changes."""
        if self.player_set is None:
            return np.arange(self.grid.layers)
        return self.player_set.layer_of_row

    def require_ablation(self, ablation: str) -> None:
        """Raise HeadlabError if what is switched cannot be replaced that way."""
        if is_streaming(ablation):
            self._require_streaming()
        if ablation == "mean" and self.player_set is not None and not self.player_set.of_heads:
            raise HeadlabError(
                f"headlab knows means of heads only, and {self.player_set.players} are switched; "
                "use ablation zero",
                code="ablation.players",
            )

    def _require_streaming(self) -> None:
        """Raise HeadlabError unless what is switched can see the first and last tokens alone."""
        if self.player_set is not None and not self.player_set.of_heads:
            raise HeadlabError(
                f"streaming cuts what heads see of a text, and {self.player_set.players} are switched; switch heads, "
                "kv-groups or attention, or use ablation zero",
                code="ablation.players",
            )
        others = [stack.name for stack in self.head_grid.stacks if stack.base != "decoder"]
        if others:
            raise HeadlabError(
                f"streaming is for decoders, whose heads see the tokens before a token, and {self.name} has a stack of "
                f"another kind ({', '.join(others)}); use ablation zero",
                code="ablation.streaming_decoders",
            )
        calls = [call for call in self.calls if call.heads]
        is_plain = all(
            call.through_function and not getattr(call.module, "persistent", 0) for call in calls
        )
        if not is_plain:
            raise HeadlabError(
                f"{type(self.module).__name__} computes its attention itself, so headlab cannot cut what its heads "
                "see; use ablation zero",
                code="ablation.streaming_attention",
            )

    @property
    def name(self) -> str:
        """Name under which it was loaded."""
        return self.checkpoint.name

    @property
    def fingerprint(self) -> str:
        """sha256 of the files and configuration it was built from."""
        return self.checkpoint.fingerprint

    @property
    def module(self) -> PreTrainedModel:
        """The transformers model; its forward passes are gated only inside `gated`."""
        return self.checkpoint.module

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Its tokenizer."""
        return self.checkpoint.tokenizer

    @cached_property
    def missing_segment_ids(self) -> SegmentIds:
        """Segment ids that it was trained with and its tokenizer leaves out."""
        return missing_segment_ids(self.tokenizer, self.module.config)

    @cached_property
    def word_spaces(self) -> WordSpaces:
        """Which words given one by one get a space before them."""
        return word_spaces(self.tokenizer, labels_words=classifies_words(self.module))

    @property
    def device(self) -> torch.device:
        """The device of its inputs and outputs; its weights may be spread over several."""
        return input_device(self.module)

    @property
    def is_offloaded(self) -> bool:
        """Whether weights are brought from the CPU's memory or the disk for each pass.

        Only one pass may run at a time then.
        """
        return any(weight.is_meta for weight in self.module.parameters())

    def require_whole(self, use: str) -> None:
        """Raise HeadlabError if the model is spread over several devices.

        Args:
            use: What it would be used for.
        """
        if hasattr(self.module, "hf_device_map"):
            raise HeadlabError(
                f"{self.name} was loaded with a device_map, which {use} cannot use; load it on one "
                "device",
                code="device_map.not_whole",
            )

    @property
    def dtype(self) -> str:
        """Number format it computes in, like float32."""
        return str(self.module.dtype).removeprefix("torch.")

    def identity(self) -> dict[str, str]:
        """Name, revision and fingerprint, as results record them."""
        return self.checkpoint.identity()

    def spec_identity(self) -> dict[str, str]:
        """Identity, and what else a run's key includes.

        That is a dtype other than float32, and where inputs are padded: earlier versions of headlab
        padded where a tokenizer said, which on the left made answers depend on their batch.
        """
        fields = self.identity()
        if self.dtype != "float32":
            fields["dtype"] = self.dtype
        if getattr(self.tokenizer, "padding_side", "right") == "left":
            fields["padded"] = "right"
        return fields

    @contextmanager
    def active(self, active: ActiveGates) -> Iterator[ActiveGates]:
        """Apply gates and observers to this thread's forward passes of this model."""
        with activate(self.owner, self.expanded(active)):
            yield active

    def expanded(self, active: ActiveGates) -> ActiveGates:
        """What is in effect, with gates of players as those of heads, neurons and layers."""
        if self.player_set is None:
            return active
        return self.player_set.expanded(active)


@contextmanager
def gated(
    model: Model,
    gates: Gates,
    *,
    ablation: str = "zero",
    means: torch.Tensor | None = None,
    threads: bool = False,
) -> Iterator[Model]:
    """Scale each head's output in every forward pass of this thread, until the block ends.

    `asyncio.to_thread`, which carries this thread's context, is gated too, until the block ends.
    Without `threads`, a pass of the model in another thread gives an `UngatedPassWarning`, once a
    block.

    Args:
        model: A model that `headlab.load` returns.
        gates: A Mask, or bool or float [layer, head] or [row, layer, head] (one coalition per
            example of the batch); 1 keeps a head, 0 removes it.
        ablation: What a removed head outputs: 0 ("zero"), its mean over a task ("mean"), or what it
            reads from the first and last tokens alone ("streaming", or with sizes
            "streaming:4,64"), in passes without a cache.
        means: The means for "mean", [layer, head, head_dim], from `headlab.hooks.head_means`.
        threads: Whether to gate every pass that begins in the block, in every thread that has no
            gates of its own: for `ThreadPoolExecutor`, the thread of a streamer of `generate`, and
            the like.

    Raises:
        HeadlabError: The gates do not fit, or another block gates every thread; nothing has been
            changed then.
    """
    require_flag("threads", threads)
    active = model.expanded(_active_gates_of(model, gates, ablation, means))
    with open_block(model.owner, active, model.name, everywhere=threads):
        yield model


@contextmanager
def gated_in_this_thread(
    model: Model, gates: Gates, *, ablation: str = "zero", means: torch.Tensor | None = None
) -> Iterator[Model]:
    """`gated` for headlab's own passes: of this thread alone, without warnings in other threads."""
    with model.active(_active_gates_of(model, gates, ablation, means)):
        yield model


def _active_gates_of(
    model: Model, gates: Gates, ablation: str, means: torch.Tensor | None
) -> ActiveGates:
    """The gates of a `with` block; arguments as in `gated`.

    Raises:
        HeadlabError: The ablation is unknown or does not go with `means`, or the gates do not fit.
    """
    has_means = means is not None
    if is_streaming(ablation) and not has_means:
        sizes = streaming_sizes(ablation)
        model.require_ablation(ablation)
        return ActiveGates(gates=as_gate_tensor(model, gates), streaming=sizes)
    if ablation not in ("zero", "mean") or has_means != (ablation == "mean"):
        raise HeadlabError(
            f'ablation {ablation!r}: use "zero", "streaming", or "mean" together with '
            "means=head_means(model, ...)",
            code="ablation.needs_means",
        )
    model.require_ablation(ablation)
    return ActiveGates(gates=as_gate_tensor(model, gates), fill=means)


def as_gate_tensor(model: Model, gates: Gates) -> torch.Tensor:
    """A float tensor [layer, head] or [row, layer, head] on the model's device, checked."""
    require_type("gates", gates, GATE_TYPES, "an array, or a mask from headlab.load_mask")
    if isinstance(gates, Mask):
        gates.check(model.grid, model.fingerprint)
        gates = model.grid.gates(gates.kept)
    tensor = on_device(torch.as_tensor(gates), model.device)
    expected_shape = (model.grid.layers, model.grid.width)
    if tensor.dim() not in (2, 3) or tuple(tensor.shape[-2:]) != expected_shape:
        raise HeadlabError(
            f"gates have shape {tuple(tensor.shape)}; {model.name} has {model.grid}, so pass "
            f"{expected_shape} or (rows, {expected_shape[0]}, {expected_shape[1]})",
            code="gate.shape_mismatch",
        )
    if tensor.is_floating_point():
        return tensor
    return tensor.to(model.module.dtype)


def gradient_by_gates(model: Model, objective: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
    """Gradient of a sum over rows by the gates of the rows, of the shape of the gates.

    Args:
        model: Whose gates they are.
        objective: The sum, computed under these gates.
        gates: A tensor that takes part in gradients.

    Raises:
        HeadlabError: The model gives no gradient.
    """
    gradient = None
    reason = "its answers do not depend on the gates in a way that can be differentiated"
    if objective.requires_grad:
        try:
            (gradient,) = torch.autograd.grad(objective, gates, allow_unused=True)
        except RuntimeError as error:  # among them that memory ran out, which callers handle
            has_no_derivative = isinstance(error, NotImplementedError) or "derivative" in str(error)
            if not has_no_derivative:
                raise
            reason = str(error).partition("\n")[0]
    if gradient is None:
        raise HeadlabError(
            f"{model.name} gives no gradient ({reason}), as models with quantised weights may not; "
            "use a method that needs none, such as leave-one-out, or load the weights as ordinary "
            "numbers",
            code="model.gradient_missing",
        )
    return gradient


# The self-test on a probe input: gates have the effect that they should.


def not_finite_error(model: Model | Checkpoint, outputs: str, *, code: str) -> HeadlabError:
    """The error for outputs of a model that are not finite.

    Args:
        outputs: Which ones, and where.
    """
    remedy = "its weights are damaged or overflow; load others"
    if model.module.dtype != torch.float32:
        remedy = "load it with dtype float32"
    return HeadlabError(f"{model.name} gives {outputs}; {remedy}", code=code)


def check_gates(model: Model, baseline_logits: torch.Tensor) -> None:
    """Check on the probe input that gates have the intended effect; raise HeadlabError if not."""
    grid = model.grid
    module = model.module
    gates = np.ones((grid.layers, grid.width))
    with gated_in_this_thread(model, gates):
        require_close(
            model,
            logits(module),
            baseline_logits,
            "all gates at 1 change the output",
            code="model.open_gates_differ",
        )
    rng = np.random.default_rng(0)
    heads_by_row = [heads for stack in grid.stacks for heads in stack.heads]
    closed_head: dict[int, int] = {}
    for row, heads in enumerate(heads_by_row):
        if not heads:
            continue
        # Rows may share a projection: close the same head in all of them.
        head = closed_head.setdefault(id(model.projections[row]), int(rng.integers(heads)))
        gates[row, head] = 0
    with gated_in_this_thread(model, gates):
        gated_logits = logits(module)
    with _with_zeroed_columns(model, gates, heads_by_row):
        require_close(
            model,
            gated_logits,
            logits(module),
            "a closed gate differs from zeroed columns of the output projection",
            code="model.closed_gate_differs",
        )
    if model.resumable:
        check_resuming(model, gates, baseline_logits, gated_logits)


def _is_close(tensor: torch.Tensor, reference: torch.Tensor) -> bool:
    """Whether logits equal a finite reference but for rounding."""
    if not bool(reference.isfinite().all()):
        # Their size gives no tolerance, and heads that overflow give no score.
        return False
    tolerance = {torch.float64: 1e-9, torch.float32: 2e-4}.get(reference.dtype, 5e-2)
    max_difference = tolerance * float(1 + reference.abs().max())
    return tensor.shape == reference.shape and torch.allclose(
        tensor, reference, atol=max_difference, rtol=0
    )


def require_close(
    model: Model, tensor: torch.Tensor, reference: torch.Tensor, problem: str, *, code: str
) -> None:
    """Raise HeadlabError unless logits equal a reference but for rounding.

    Args:
        model: Whose logits they are.
        tensor: The logits.
        reference: What they should be.
        problem: What it means if they are not, in a clause.
        code: Of the error.
    """
    if _is_close(tensor, reference):
        return
    if not bool(reference.isfinite().all()):
        raise not_finite_error(
            model,
            "outputs that are not finite once a head is closed",
            code="model.answers_not_finite",
        )
    raise HeadlabError(
        f"self-test failed for {type(model.module).__name__} (model type "
        f"{model.module.config.model_type}): {problem}. headlab would report wrong numbers for "
        "this architecture, so it stops here; please report it",
        code=code,
    )


@contextmanager
def _with_zeroed_columns(
    model: Model, gates: npt.NDArray[np.generic], heads_by_row: Sequence[int]
) -> Iterator[None]:
    """The slow way to remove heads: zero their columns of the output projection.

    The columns are restored at the end.
    """
    with torch.no_grad(), ExitStack() as undo:
        for row, projection in enumerate(model.projections):
            if not heads_by_row[row]:
                continue
            weight: torch.Tensor = projection.weight  # type: ignore[assignment] # Linear and Conv1D both hold a Parameter
            if weight.is_meta:  # accelerate brings it for each pass
                hook = cast(AccelerateHook, projection._hf_hook)
                undo.callback(setattr, hook, "weights_map", hook.weights_map)
                weight = hook.weights_map["weight"].clone()
                hook.weights_map = ChainMap({"weight": weight}, hook.weights_map)
            else:
                undo.callback(weight.copy_, weight.detach().clone())
            input_dim = 1 if isinstance(projection, nn.Linear) else 0
            head_dim = weight.shape[input_dim] // heads_by_row[row]
            for head in np.flatnonzero(gates[row, : heads_by_row[row]] == 0):
                weight.narrow(input_dim, int(head) * head_dim, head_dim).zero_()
        yield


def check_resuming(
    model: Model,
    head_gates: npt.NDArray[np.generic],
    baseline_logits: torch.Tensor,
    gated_logits: torch.Tensor,
) -> None:
    """Check that passes that resume or branch midway equal full ones.

    Otherwise the model is marked as not resumable.
    """
    middle_layer = model.depth // 2
    gates = as_gate_tensor(model, head_gates)[None].repeat(1, 1, 1)
    lower_gates = gates.clone()
    lower_gates[:, torch.as_tensor(model.layer_of_row >= middle_layer)] = 1
    states = LayerStates(model.depth)
    try:
        with model.active(ActiveGates(gates=lower_gates, states=states)):
            logits(model.module)
        states.begin(torch.tensor([middle_layer]))
        with model.active(ActiveGates(gates=gates, states=states)):
            resumed_logits = logits(model.module)
        require_close(
            model,
            resumed_logits,
            gated_logits,
            "a resumed pass differs from a full one",
            code="model.resumed_pass_differs",
        )
        branched_logits = _branched_output(
            model, lower_gates, gates, middle_layer, first_token=False
        )
        require_close(
            model,
            branched_logits,
            gated_logits,
            "a branched pass differs from a full one",
            code="model.branched_pass_differs",
        )
    except (HeadlabError, RuntimeError, IndexError, ValueError):
        model.resumable = model.first_token = False
        return
    if model.first_token:
        try:
            model.first_token = _is_close(
                _branched_output(model, lower_gates, gates, middle_layer, first_token=True),
                gated_logits,
            )
        except (RuntimeError, IndexError, ValueError):  # the model reads tokens that were left out
            model.first_token = False


def _branched_output(
    model: Model, lower_gates: torch.Tensor, gates: torch.Tensor, layer: int, *, first_token: bool
) -> torch.Tensor:
    """Output for `gates`, computed on copies of the probe rows that branch off others.

    They branch at `layer`, off rows that are gated by `lower_gates`.
    """
    inputs = probe_inputs(model.module)
    rows = len(next(iter(inputs.values())))
    origin = np.tile(np.arange(rows), 2)
    start = np.repeat([0, layer], rows)
    all_gates = torch.cat([lower_gates.expand(rows, -1, -1), gates.expand(rows, -1, -1)])
    doubled_inputs = {
        name: value[torch.as_tensor(origin, device=value.device)] for name, value in inputs.items()
    }
    fan_out = FanOut(start, origin, model.depth, first_token=first_token)
    with model.active(ActiveGates(gates=all_gates, states=fan_out)), torch.inference_mode():
        outputs = model.module(**doubled_inputs)
    return first_output(outputs)[rows:].clone()


# Finding the heads of a checkpoint and making them gateable.


def make_gateable(checkpoint: Checkpoint) -> Model:
    """Find the heads of a checkpoint, make them gateable, and check this on a probe input.

    Raises HeadlabError naming the architecture when the heads cannot be found or a gate does not
    have exactly the effect of zeroing the output projection's columns.
    """
    module = checkpoint.module.eval()
    is_spread = hasattr(module, "hf_device_map")
    try:
        with WeightsThere() if is_spread else nullcontext():  # type: ignore[no-untyped-call] # torch's own
            baseline_logits = logits(module)
    except MODEL_ERRORS as error:
        if is_spread:
            raise HeadlabError(
                f"{type(module).__name__} cannot be run with its weights where the device_map puts "
                f"them ({error}); give another device_map, or load it on one device",
                code="device_map.not_running",
            ) from error
        raise HeadlabError(
            f"{type(module).__name__} cannot be run on a short made-up text ({error}); "
            "headlab works with text models only",
            code="model.not_for_text",
        ) from error
    if not bool(baseline_logits.isfinite().all()):
        raise not_finite_error(
            checkpoint,
            "outputs that are not finite on a short made-up text",
            code="model.answers_not_finite",
        )
    calls = find_heads(module, baseline_logits)
    grid, by_row = grid_of(calls, module)
    all_observed = all(call.through_function for call in calls if call.heads)
    model = Model(
        checkpoint,
        grid,
        tuple(call.projection for call in by_row),
        resumable=False,
        observed=all_observed,
        calls=tuple(by_row),
    )
    _place_sites(model, by_row)
    module.register_forward_pre_hook(lambda *_: model.owner.begin_pass())
    module.register_forward_hook(lambda *_: model.owner.end_pass(), always_call=True)
    model.resumable = _make_resumable(model, by_row)
    check_gates(model, baseline_logits)
    model.gives_weights = all_observed or _gives_weights(model)
    return model


def _place_sites(model: Model, calls: Sequence[AttentionCall]) -> None:
    """Tell every attention module its rows in the gate array, and gate it.

    Args:
        model: The model.
        calls: The attention computation of every row.
    """
    rows: dict[nn.Module, list[int]] = {}
    for row, call in enumerate(calls):
        rows.setdefault(call.module, []).append(row)
    for module, module_rows in rows.items():
        first_call = calls[module_rows[0]]
        site = Site(model.owner, tuple(module_rows), first_call.heads)
        if first_call.through_function or not site.heads:
            setattr(module, SITE_ATTRIBUTE, site)
        else:
            module.register_forward_pre_hook(_gate_projection(site))


def _gate_projection(
    site: Site,
) -> Callable[[nn.Module, tuple[torch.Tensor, ...]], tuple[torch.Tensor, ...] | None]:
    """The same gate on the projection's input.

    It is for models whose attention function cannot be replaced.
    """

    def hook(_module: nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...] | None:
        active = active_for(site.owner)
        if active is None:
            return None
        head_outputs, *other_args = args
        context = head_outputs.unflatten(-1, (site.heads, -1))
        gated_context = apply_gates(context, active, site.row(), site.heads)
        return (gated_context.flatten(-2), *other_args)

    return hook


def _make_resumable(model: Model, calls: Sequence[AttentionCall]) -> bool:
    """Wrap the layers so that a pass can start midway.

    Returns:
        Whether that is possible: the layers are separate modules in one list.
    """
    if len(model.grid.stacks) != 1:
        return False
    names = dict(model.module.named_modules())
    for path, modules in names.items():
        if not isinstance(modules, nn.ModuleList) or len(modules) != len(calls):
            continue
        if all(call.name.startswith(f"{path}.{row}.") for row, call in enumerate(calls)):
            if not _layers_give_tensors(model, list(modules)):
                return False
            for row, layer in enumerate(modules):
                wrap_layer(layer, row, model.owner)
            model.first_token = wrap_feed_forward(modules[-1], model.owner)
            return True
    return False


def _layers_give_tensors(model: Model, layers: Sequence[nn.Module]) -> bool:
    """Whether every layer gives a tensor and nothing else."""
    gives_tensor: list[bool] = []
    hooks = [
        layer.register_forward_hook(
            lambda _module, _args, output: gives_tensor.append(isinstance(output, torch.Tensor))
        )
        for layer in layers
    ]
    try:
        logits(model.module)
    finally:
        for hook in hooks:
            hook.remove()
    return bool(gives_tensor) and all(gives_tensor)  # a list of lists is no layer that runs


# Decoder inputs where only the encoder is used.


def decoder_start_token(model: Model) -> int:
    """The token that a model's decoder begins with.

    Raises:
        HeadlabError: The model's configuration does not say it.
    """
    start = model.module.config.decoder_start_token_id
    if not isinstance(start, int) or isinstance(start, bool):
        raise HeadlabError(
            f"the config.json of {model.name} has {start!r:.40} for decoder_start_token_id, the "
            "token that its decoder begins with; put the token there that it was trained with, "
            "most often that of padding",
            code="model.decoder_start_missing",
        )
    return start


def minimal_decoder_inputs(model: Model, rows: int) -> dict[str, torch.Tensor]:
    """Minimal decoder inputs, one token, [row, 1].

    They are for a sequence-to-sequence model of which only the encoder is used.
    """
    ids = torch.full((rows, 1), decoder_start_token(model), device=model.device)
    return {"decoder_input_ids": ids, "decoder_attention_mask": torch.ones_like(ids)}


# Reading attention weights and outputs of heads during a forward pass, storing only what is needed.

Inputs = Mapping[str, torch.Tensor]


def sum_weights(
    model: Model,
    inputs: Inputs,
    observe: Callable[[int, torch.Tensor], None],
    layers: Iterable[int] | None = None,
) -> None:
    """Observe the attention weights of one forward pass, layer by layer.

    Calls `observe(layer row, weights [row, head, query, key])`.

    Only one layer's weights are in memory at a time, on the model's device.

    Args:
        model: The model.
        inputs: Inputs of the pass.
        observe: Called for every layer.
        layers: Gate rows to observe (all if None).
    """
    observed_rows = None if layers is None else frozenset(layers)

    def at_home(row: int, weights: torch.Tensor) -> None:
        observe(row, weights.to(model.device))

    with torch.inference_mode():
        if not model.observed:
            _eager_weights(model, inputs, at_home, observed_rows)
            return
        with model.active(ActiveGates(weights=at_home, weight_layers=observed_rows)):
            model.module(**inputs)


def _eager_weights(
    model: Model,
    inputs: Inputs,
    observe: Callable[[int, torch.Tensor], None],
    observed_rows: frozenset[int] | None,
) -> None:
    """`sum_weights` for architectures outside the attention interface.

    They may return their weights on request.
    """
    if not model.gives_weights:
        raise HeadlabError(
            f"{type(model.module).__name__} does not give attention weights; choose another model "
            "for this view",
            code="model.no_attention_weights",
        )
    for row, weights in enumerate(_own_weights(model, inputs)):
        if observed_rows is None or row in observed_rows:
            observe(row, weights)


def _own_weights(model: Model, inputs: Inputs) -> list[torch.Tensor]:
    """What a model itself gives as the attention weights of all layers, in the grid's order."""
    with model.active(ActiveGates()):
        outputs = model.module(**inputs, output_attentions=True)
    stacks = model.head_grid.stacks
    names = ["attentions"] if len(stacks) == 1 else [f"{stack.name}_attentions" for stack in stacks]
    return [weights for name in names for weights in outputs.get(name) or ()]


def _gives_weights(model: Model) -> bool:
    """Whether a model's own weights are [row, head, query, key] of the whole text.

    Some models give weights of a window or of parts of the text.
    """
    try:
        with torch.inference_mode():
            weights_by_layer = _own_weights(model, probe_inputs(model.module))
    except MODEL_ERRORS:
        return False
    expected_shapes = [
        (1, heads, PROBE_TOKENS, PROBE_TOKENS)
        for stack in model.grid.stacks
        for heads in stack.heads
    ]
    shapes = [None if weights is None else tuple(weights.shape) for weights in weights_by_layer]
    return shapes == expected_shapes


def attention_of_heads(
    model: Model, inputs: Inputs, heads: Sequence[Head]
) -> dict[Head, torch.Tensor]:
    """Attention weights of the given heads, {head: float32 [query, key]}.

    They are those of the first row, on the CPU.

    Raises:
        HeadlabError: The model does not have a head, the sentence does not fit in memory, or
            weights are not finite.
    """
    grid = model.head_grid
    row_and_column = {head: tuple(grid.flat[grid.index(head)]) for head in heads}
    weights_by_head: dict[Head, torch.Tensor] = {}

    def keep(row: int, weights: torch.Tensor) -> None:
        for head, (head_row, column) in row_and_column.items():
            if head_row == row:
                weights_by_head[head] = weights[0, column].float().cpu().clone()

    with memory_errors_explained():
        sum_weights(model, inputs, keep, {int(grid_row) for grid_row, _ in row_and_column.values()})
    for head, weights in weights_by_head.items():
        if not bool(weights.isfinite().all()):
            head_text = f"layer {head.layer}, head {head.head}"
            raise not_finite_error(
                model,
                f"attention weights that are not finite for this sentence, in {head_text}",
                code="model.answers_not_finite",
            )
    return weights_by_head


def head_means(model: Model, batches: Iterable[Inputs]) -> torch.Tensor:
    """Mean output of every head over the real tokens of some batches: [layer, head, head_dim].

    It is the output of a removed head under `ablation="mean"`. Sums are in float64. Padding
    (attention_mask 0) is left out; for the decoder and cross heads of a sequence-to-sequence model,
    decoder_attention_mask is used (all positions count if it is not given).
    """
    grid = model.head_grid
    sums: dict[int, torch.Tensor] = {}
    counts: dict[int, float] = {}
    for inputs in batches:

        def run(part: Rows, inputs: Inputs = inputs) -> None:
            part_inputs = {name: tensor[part.rows] for name, tensor in inputs.items()}
            for row, (total, count) in _head_sums(model, part_inputs).items():
                sums[row] = sums[row] + total if row in sums else total
                counts[row] = counts.get(row, 0.0) + count

        run_halving([Rows(np.arange(len(inputs["attention_mask"])))], run)
    if not sums:
        raise HeadlabError(
            "no examples to take the heads' means over; give at least one",
            code="ablation.no_examples",
        )
    head_dim = max(total.shape[1] for total in sums.values())  # stacks may differ in head_dim
    means = torch.zeros(grid.layers, grid.width, head_dim, dtype=torch.float64, device=model.device)
    for row, total in sums.items():
        means[row, : len(total), : total.shape[1]] = total / counts[row]
    return means


def _head_sums(model: Model, inputs: Inputs) -> dict[int, tuple[torch.Tensor, float]]:
    """{layer row: (sum of every head's output [head, head_dim], tokens)} over one batch."""
    has_decoder = model.module.config.is_encoder_decoder
    sums_by_row: dict[int, tuple[torch.Tensor, float]] = {}
    stack_by_row = model.head_grid.rows

    def add(row: int, context: torch.Tensor) -> None:
        reads_source = not has_decoder or stack_by_row[row] == "encoder"
        mask = inputs.get("attention_mask" if reads_source else "decoder_attention_mask")
        is_token = torch.ones(context.shape[:2], device=context.device) if mask is None else mask
        is_token = is_token.to(context.device, torch.float64)
        if reads_source:
            context = context[:, : is_token.shape[1]]  # Longformer pads the text to whole windows
        if context.shape[1] != is_token.shape[1]:
            raise HeadlabError(
                f"{type(model.module).__name__} merges tokens between layers, so its heads have no "
                "mean over tokens; "
                'use ablation "zero"',
                code="ablation.tokens_merged",
            )
        total = torch.einsum("bqhd,bq->hd", context.to(torch.float64), is_token)
        sums_by_row[row] = (total, float(is_token.sum()))

    with torch.inference_mode(), model.active(ActiveGates(contexts=add)):
        model.module(**inputs)
    return sums_by_row
