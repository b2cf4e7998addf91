"""A model with other players than heads, and the self-test that their gates work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from headlab.core import (
    HEADS,
    LAYERS,
    NEURONS,
    HeadGrid,
    HeadlabError,
    Players,
    read_players,
)
from headlab.hooks.find import first_output, logits, probe_inputs
from headlab.hooks.model import Model, check_resuming, gated_in_this_thread, require_close
from headlab.hooks.parts import Parts, find_parts, gate_parts
from headlab.hooks.players import NeuronGroups, player_set_of
from headlab.hooks.state import ActiveGates, in_this_thread

# Kinds of players that need gates on a kind of part.
NEURON_KINDS = frozenset({"feed-forward", NEURONS})
MAX_VARIANTS = 16  # of a model in memory; anybody's masks may have groups of their own
OPEN_SHARE = 0.6  # of the players of the rows of the self-test


def with_players(model: Model, players: Players | str, groups: NeuronGroups | None = None) -> Model:
    """The same model, of which other things than heads are switched on and off.

    Its grid, and every gate array, mask and score, is of these players. The module is the same, so
    passes of the model with its heads alone are gated as before.

    Args:
        model: A model that `headlab.load` returns.
        players: What is switched, as `headlab.core.read_players` reads it.
        groups: The group of every neuron, by layer, where neurons are players (see
            `headlab.methods.player_groups`).

    Raises:
        HeadlabError: The model has no such players, or gates on them do not have exactly the effect
            that they should; the message says why.
    """
    if isinstance(players, str):
        players = read_players(players)
    variants = model.variants
    key = (str(players), groups if NEURONS in players.kinds else None)
    # Whatever gates are open around the call, the self-test is of a model with none.
    with variants.lock, model.active(ActiveGates()):
        if model.player_set is None:
            variants.by_players.setdefault((HEADS, None), model)
        variant = variants.by_players.pop(key, None)
        if variant is None:
            variant = _made_with(variants.by_players[HEADS, None], players, groups)
        variants.by_players[key] = variant  # as the one used last
        for other in list(variants.by_players)[:-MAX_VARIANTS]:
            if other != (HEADS, None):
                del variants.by_players[other]
        return variant


def with_players_of(model: Model, grid: HeadGrid) -> Model:
    """The same model, of which the players of a grid are switched, as a mask or scores have it.

    Args:
        model: A model that `headlab.load` returns.
        grid: The players, with their groups of neurons.

    Raises:
        HeadlabError: The model has no such players.
    """
    if grid.has_only_heads:
        return with_players(model, Players())
    groups: list[tuple[int, ...]] = []
    for base in ("encoder", "decoder"):  # the order of `Parts.layers`
        for stack in grid.stacks:
            if stack.base == base and stack.members is not None:
                groups += stack.members
    count = max((max(layer_groups) + 1 for layer_groups in groups if layer_groups), default=0)
    return with_players(model, Players(grid.kinds, count), tuple(groups) or None)


def parts_of(model: Model) -> Parts:
    """The layers of a model and their feed-forward parts, whatever gates are open on it."""
    with model.active(ActiveGates()):
        return find_parts(model.module, model.calls, model.head_grid)


def neurons_of(model: Model) -> tuple[int, ...]:
    """The number of neurons of each layer's feed-forward part.

    Raises:
        HeadlabError: Their feed-forward parts were not found, with the reason.
    """
    parts = parts_of(model)
    if parts.why_no_neurons:
        raise HeadlabError(
            f"headlab cannot gate feed-forward parts of {model.name} (model type "
            f"{model.module.config.model_type}): {parts.why_no_neurons}; use other players",
            code="players.no_feed_forward",
        )
    return parts.neurons


def _made_with(model: Model, players: Players, groups: NeuronGroups | None) -> Model:
    """`with_players`, made anew from the model with its heads."""
    model.require_whole("players other than heads")
    parts = parts_of(model)
    if NEURONS in players.kinds:
        groups = _checked_groups(model, players, parts, groups)
    try:
        player_set = player_set_of(players, model.grid, parts, heads_per_group(model), groups)
    except HeadlabError as error:
        model_type = model.module.config.model_type
        raise HeadlabError(
            f"{model.name} (model type {model_type}): {error}", code=error.code
        ) from error
    baseline_logits = logits(model.module)
    needed = set()
    if NEURON_KINDS & set(players.kinds):
        needed.add(NEURONS)
    if LAYERS in players.kinds:
        needed.add(LAYERS)
    missing = needed - model.variants.gated
    gate_parts(parts, model.owner, neurons=NEURONS in missing, layers=LAYERS in missing)
    model.variants.gated |= missing
    variant = replace(model, grid=player_set.grid, player_set=player_set)
    check_players(variant, parts, baseline_logits)
    return variant


def _checked_groups(
    model: Model, players: Players, parts: Parts, groups: NeuronGroups | None
) -> NeuronGroups | None:
    """Groups of neurons that fit a model.

    Raises:
        HeadlabError: There are none, or they are another model's, or of another number.
    """
    if groups is None:
        raise HeadlabError(
            f"{players} needs the group of every neuron; headlab.methods.player_groups forms them "
            "on examples of a task",
            code="players.groups_missing",
        )
    if parts.why_no_neurons:  # said where the players are made
        return None
    counts = [len(set(layer_groups)) for layer_groups in groups if layer_groups]
    sizes = tuple(map(len, groups))
    is_other_number = bool(players.groups) and set(counts) != {players.groups}
    if sizes != parts.neurons or is_other_number:
        raise HeadlabError(
            f"the groups of neurons are not those of {model.name} for {players}: its layers have "
            f"{_joined(parts.neurons)} neurons; form them again",
            code="players.groups_mismatch",
        )
    return groups


def _joined(numbers: Sequence[int]) -> str:
    """Numbers as text: one where all are equal."""
    return "/".join(map(str, numbers)) if len(set(numbers)) > 1 else str(numbers[0])


def heads_per_group(model: Model) -> list[int]:
    """For each row of the grid of heads, how many of them share keys and values.

    It is what headlab's own attention function repeats keys and values by.
    """
    shared_by_row = []
    for call in model.calls:
        shared = 1
        if call.through_function and call.heads:
            shared = int(getattr(call.module, "num_key_value_groups", 1) or 1)
        shared_by_row.append(shared if call.heads % shared == 0 else 1)
    return shared_by_row


# The self-test on a probe input.


def check_players(variant: Model, parts: Parts, baseline_logits: torch.Tensor) -> None:
    """Check that gates of players have the effect that they should; raise HeadlabError if not.

    Closed gates must equal zeroed columns of the projections, and layers that give what they take;
    rows with gates of their own must equal each row alone. If passes that start midway differ
    from full ones, the model is marked as one whose passes are always full.
    """
    player_set = variant.player_set
    assert player_set is not None
    grid = variant.grid
    module = variant.module
    open_gates = np.ones((grid.layers, grid.width))
    with gated_in_this_thread(variant, open_gates):
        require_close(
            variant,
            logits(module),
            baseline_logits,
            "all gates at 1 change the output",
            code="model.open_gates_differ",
        )
    gates_by_row = [_some_closed(variant, seed) for seed in (0, 1)]
    logits_by_row = []
    for gates in gates_by_row:
        with gated_in_this_thread(variant, gates):
            gated_logits = logits(module)
        with _without(variant, parts, gates):
            require_close(
                variant,
                gated_logits,
                logits(module),
                f"closed gates of {player_set.players} differ from zeroed weights and skipped "
                "layers",
                code="model.closed_gate_differs",
            )
        logits_by_row.append(gated_logits)
    both = _logits_of_rows(variant, np.stack(gates_by_row))
    if both is not None:
        require_close(
            variant,
            both,
            torch.cat(logits_by_row),
            f"gates of {player_set.players} reach other rows than their own",
            code="model.rows_differ",
        )
    if variant.resumable:
        check_resuming(variant, gates_by_row[0], baseline_logits, logits_by_row[0])


def _some_closed(variant: Model, seed: int) -> npt.NDArray[np.float64]:
    """Gates with some players of every kind closed; of whole layers one, or others show nothing."""
    grid = variant.grid
    rng = np.random.default_rng(seed)
    is_open = rng.random(grid.size) < OPEN_SHARE
    kinds = np.array([grid.kind_of(player) for player in grid.heads])
    for kind in grid.kinds:
        of_kind = np.flatnonzero(kinds == kind)
        if kind == LAYERS:
            is_open[of_kind] = True
        is_open[rng.choice(of_kind)] = False
    return grid.gates(is_open.astype(np.float64))


def _logits_of_rows(variant: Model, gates: npt.NDArray[np.float64]) -> torch.Tensor | None:
    """`logits` of rows with gates of their own; None for a model that takes one row at a time."""
    inputs = {
        name: value.repeat(len(gates), 1) for name, value in probe_inputs(variant.module).items()
    }
    with torch.inference_mode(), gated_in_this_thread(variant, gates):
        try:
            return first_output(variant.module(**inputs)).clone()
        except ValueError:  # a classifier without a padding token
            return None


@dataclass
class _CallNumber:
    """Number of the calls of a module so far."""

    calls: int = 0

    def next(self, count: int) -> int:
        """The number of this call among the layers that the module stands for."""
        number = self.calls % count
        self.calls += 1
        return number


@contextmanager
def _without(variant: Model, parts: Parts, gates: npt.NDArray[np.float64]) -> Iterator[None]:
    """The slow way to close players: zeroed columns, call by call, and layers that give their input.

    Passes of other threads, as of a job's batches that run meanwhile, are left alone. Everything is
    restored at the end.
    """
    player_set = variant.player_set
    assert player_set is not None
    closed_heads = player_set.closed_heads(gates)
    columns_by_module: dict[nn.Module, list[npt.NDArray[np.bool_]]] = {}
    for row, call in enumerate(variant.calls):
        if call.heads:
            closed = closed_heads[row, : call.heads]
            columns_by_module.setdefault(call.projection, []).append(closed)
    if player_set.neuron_cells:
        for number, down in enumerate(parts.downs):
            closed = player_set.closed_neurons(gates, number)
            columns_by_module.setdefault(down, []).append(closed)
    skipped_by_module: dict[nn.Module, list[bool]] = {}
    if player_set.layer_rows:
        for row, module in zip(player_set.layer_rows, parts.modules, strict=True):
            skipped_by_module.setdefault(module, []).append(not gates[row, 0])
    with ExitStack() as undo:
        for module, closed_by_call in columns_by_module.items():
            zeroed = in_this_thread(_restored_columns(closed_by_call))
            undo.callback(module.register_forward_hook(zeroed).remove)
        for module, skipped_by_call in skipped_by_module.items():
            skipped = in_this_thread(_input_given(skipped_by_call))
            undo.callback(module.register_forward_hook(skipped, with_kwargs=True).remove)
        yield


def _restored_columns(
    closed_by_call: Sequence[npt.NDArray[np.bool_]],
) -> Callable[[nn.Module, tuple[torch.Tensor, ...], torch.Tensor], torch.Tensor]:
    """A hook that gives what a linear layer would give with some of its columns zeroed.

    Args:
        closed_by_call: Which blocks of columns are zeroed, for each layer that it stands for.
    """
    number = _CallNumber()

    def hook(
        module: nn.Module, args: tuple[torch.Tensor, ...], _output: torch.Tensor
    ) -> torch.Tensor:
        closed = closed_by_call[number.next(len(closed_by_call))]
        weight = module.weight
        assert isinstance(weight, torch.Tensor)
        weight = weight.detach().clone()
        is_linear = isinstance(module, nn.Linear)
        blocks = weight.shape[1 if is_linear else 0] // max(len(closed), 1)
        columns = torch.as_tensor(np.repeat(closed, blocks), device=weight.device)
        bias = module.bias
        if is_linear:
            weight[:, columns] = 0
            return nn.functional.linear(args[0], weight, bias)  # type: ignore[arg-type] # a Parameter or None
        weight[columns] = 0
        return args[0] @ weight + bias  # type: ignore[operator] # a Conv1D has one

    return hook


def _input_given(
    skipped_by_call: Sequence[bool],
) -> Callable[[nn.Module, tuple[object, ...], dict[str, object], object], object]:
    """A hook that gives a layer's input in place of its output, where the layer is skipped."""
    number = _CallNumber()

    def hook(
        _module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], output: object
    ) -> object:
        if not skipped_by_call[number.next(len(skipped_by_call))]:
            return output
        states = args[0] if args else kwargs["hidden_states"]
        if isinstance(output, tuple):
            return (states, *output[1:])
        return states

    return hook
