"""The game whose players are the heads of a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field

import numpy as np
import torch

from headlab.core import FINE, Bools, Floats, Ints, Value, surrogate, value_of
from headlab.core.devices import on_device
from headlab.core.parallel import Tick, one_thread, spread
from headlab.evaluation import Evaluator, token_budget, width_of
from headlab.hooks import Active, FanOut, LayerStates, Model, Trunk, as_gates
from headlab.methods.game import Ask, Game, in_turn
from headlab.methods.screen import SIZES, TURNS, Scale, feasible, nearness
from headlab.methods.work import Work

# Rows of coalitions computed together, cut in half where they do not fit in memory.


@dataclass(frozen=True)
class Batch:
    """Rows to be computed together. places: their indices in the caller's arrays.  wanted: players of each row."""

    places: Ints
    wanted: Bools

    def cut(self) -> tuple[Batch, ...]:
        """Two halves of the batch, by rows or, for a single row, by players; nothing where it cannot be cut."""
        if len(self.places) > 1:
            middle = len(self.places) // 2
            return (
                Batch(self.places[:middle], self.wanted[:middle]),
                Batch(self.places[middle:], self.wanted[middle:]),
            )
        asked = np.flatnonzero(self.wanted[0])
        if len(asked) < 2:
            return ()
        first = np.isin(np.arange(self.wanted.shape[1]), asked[: len(asked) // 2])
        return Batch(self.places, self.wanted & first), Batch(self.places, self.wanted & ~first)


# Samples between two snapshots: a few seconds on two cores, and enough rows to fill a GPU. No result depends on it.
ROUND = {"cpu": 16, "cuda": 256}
# A pass with a backward pass stores its layers' activations, about GRADED_WIDTHS hidden widths per token and layer. It
# gets a share of a batch's tokens: a fixed one on a GPU, on a CPU the share that stays below GRADED_BYTES per lane.
GRADED_CUDA, GRADED_BYTES, GRADED_WIDTHS = 1 / 8, 256 << 20, 10
# Maximum number of coalitions in such a pass: their branches take far more work than they do, and on a CPU several
# batches run in parallel. A GPU takes all at once.
TRUNKS = {"cpu": 8}
# Cost of the last layer, in layers, where only the first token's output is needed; minimum cost of any row.
LAST, OVERHEAD = 1 / 3, 0.05


def round_on(kind: str) -> int:
    """Suitable number of samples for one call on a kind of device ("cpu", "cuda")."""
    return ROUND.get(kind, ROUND["cpu"])


def graded_share(model: Model, tokens: int) -> float:
    """Share of a batch's tokens allowed in a pass with a backward pass."""
    if model.device.type == "cuda":
        return GRADED_CUDA
    item = torch.finfo(model.module.dtype).bits // 8
    return min(
        1.0, GRADED_BYTES / (tokens * model.grid.layers * width_of(model) * GRADED_WIDTHS * item)
    )


@dataclass
class ModelGame:
    """The game whose players are a model's heads.

    Each row of a batch has its own coalition, and is computed from the layer where it departs from a row that is
    computed anyway.  tokens: maximum per batch; None chooses by device.
    """

    evaluator: Evaluator
    ablation: str = "zero"
    value: Value = field(default_factory=lambda: value_of("accuracy"))
    tokens: int | None = None

    def __post_init__(self) -> None:
        self._budget = self.tokens or token_budget(self.evaluator.model)

    @property
    def players(self) -> int:
        """Number of heads of the model."""
        return self.evaluator.model.grid.size

    @property
    def examples(self) -> int:
        """Number of examples of the evaluator."""
        return len(self.evaluator.examples)

    @property
    def lengths(self) -> Ints:
        """Tokens of each example."""
        return self.evaluator.lengths

    @property
    def weights(self) -> Floats | None:
        """Share of all answers that belong to each example; None where all have equally many."""
        return self.evaluator.weights

    @property
    def span(self) -> float:
        """Size of a gain of 1 in the value's unit."""
        return self.value.span

    @property
    def steps(self) -> int:
        """Number of levels of a gain of 1: a share of several answers needs fine ones."""
        return self.value.steps if (self.evaluator.inputs.units == 1).all() else FINE

    @property
    def round(self) -> int:
        """Suitable number of samples for one call."""
        return round_on(self.evaluator.model.device.type)

    @property
    def costs(self) -> Floats:
        """See `Game.costs`: the layers from the head's own to the last."""
        grid, spared = (
            self.evaluator.model.grid,
            1 - LAST if self.evaluator.model.first_token else 0.0,
        )
        if not self.evaluator.model.resumable:
            return np.ones(grid.size)
        left = grid.layers - grid.flat[:, 0] - spared
        return np.asarray(np.maximum(left / (grid.layers - spared), OVERHEAD), dtype=np.float64)

    @property
    def scale(self) -> Scale | None:
        """See `Game.scale`: for resumable models, gains are predicted from the gradient at the gates."""
        if not self.evaluator.model.resumable:
            return None
        return TURNS if self.value.key == "accuracy" else SIZES

    def values(self, kept: Bools, examples: Ints) -> Floats:
        """Value of each row, by a full forward pass: kept bool [row, player], examples int [row] -> float [row]."""
        out = np.zeros(len(kept))
        model = self.evaluator.model

        def run(lane: ModelGame, batch: Batch) -> Floats:
            gates = as_gates(model, model.grid.gates(kept[batch.places]))
            return lane._worth(examples[batch.places], Active(gates=gates, fill=lane._fill()))

        for batch, found in self._in_batches(examples, kept, np.ones(len(kept), np.int64), run):
            out[batch.places] = found
        return out

    def gains(self, orders: Ints, examples: Ints, wanted: Bools | None = None) -> Floats:
        """v(before) - v(after) at each step of each walk: orders int [row, step], examples int [row].

        Row r starts with all players and removes orders[r, 0], orders[r, 1], ... on example examples[r]; it stores its
        layers' inputs and resumes at the layer that changed.  wanted: bool [player]; values needed only for other
        players' gains are not computed, and those gains are 0.  Returns float [row, step].
        """
        out = np.zeros(orders.shape)
        asked = np.ones(orders.shape, dtype=bool) if wanted is None else wanted[orders]

        def run(lane: ModelGame, batch: Batch) -> Floats:
            return lane._walk(orders[batch.places], examples[batch.places], asked[batch.places])

        for batch, found in self._in_batches(examples, asked, np.ones(len(orders), np.int64), run):
            out[batch.places] = found
        return out * asked

    def _walk(self, orders: Ints, examples: Ints, asked: Bools) -> Floats:
        model = self.evaluator.model
        rows, layers = np.arange(len(orders)), model.grid.layers
        gates = as_gates(model, np.ones((len(orders), layers, model.grid.width), dtype=bool))
        states = LayerStates(layers) if model.resumable else None
        value = np.zeros((len(orders), orders.shape[1] + 1))
        # The value at step s is needed if the head removed at s or the next one is wanted.
        edge = np.zeros((len(orders), 1), dtype=bool)
        needed = np.hstack([edge, asked]) | np.hstack([asked, edge])
        pending = np.zeros(len(orders), np.int64)
        inputs = self.evaluator.tensors(examples)
        for step in range(orders.shape[1] + 1):
            if step:
                layer, head = model.grid.flat[orders[:, step - 1]].T
                gates[rows, layer, head] = 0
                pending = np.minimum(pending, layer)
            due = needed[:, step]
            if not due.any():
                continue
            first = states is None or states.inputs[-1] is None  # it computes every row, due or not
            if states is not None and not first:
                states.begin(torch.as_tensor(np.where(due, pending, layers)))
            active = Active(gates=gates, fill=self._fill(), states=states)
            found = self._worth(examples, active, inputs, computed=int(due.sum()))
            value[due, step] = found[due]
            pending = np.where(due | first, layers, pending)
            self.evaluator.tick()
        return value[:, :-1] - value[:, 1:]

    def marginals(self, kept: Bools, wanted: Bools, examples: Ints) -> Floats:
        """v(kept with p) - v(kept without p) for every wanted player p of every row, 0 for the others.

        kept, wanted: bool [row, player].  examples: int [row].  Returns float [row, player].  Each player's row
        branches off the row of its coalition at the player's layer.
        """
        out = np.zeros(kept.shape)
        rows = np.flatnonzero(wanted.any(axis=1))

        def run(lane: ModelGame, batch: Batch) -> Floats:
            places = rows[batch.places]
            return lane._fan(kept[places], batch.wanted, examples[places])

        for batch, found in self._in_batches(
            examples[rows], wanted[rows], 1 + wanted[rows].sum(axis=1), run
        ):
            out[rows[batch.places]] += found  # the players of one row may come in several batches
        return out

    def _fan(self, kept: Bools, wanted: Bools, examples: Ints) -> Floats:
        model = self.evaluator.model
        row, player = np.nonzero(wanted)
        trunk = Trunk(model.grid.layers, first_token=model.first_token)
        inputs = self.evaluator.tensors(examples)
        gates = as_gates(model, model.grid.gates(kept))
        states = trunk if model.resumable else None
        values = self._worth(
            examples, Active(gates=gates, fill=self._fill(), states=states), inputs
        )
        toggled_values = self._branched(gates, examples, inputs, trunk, (row, player))
        gains = np.zeros(kept.shape)
        gains[row, player] = (values[row] - toggled_values) * np.where(kept[row, player], 1, -1)
        return gains

    def _toggled_values(
        self,
        trunk_gates: torch.Tensor,
        row: Ints,
        player: Ints,
        examples: Ints,
        inputs: dict[str, torch.Tensor],
        trunk: Trunk,
    ) -> Floats:
        """Values of coalitions with one player toggled, which branch off the trunk at the player's layer.

        A model that is not resumable computes them in full passes.

        Args:
            trunk_gates: Gates of the coalitions, [trunk row, layer, head].
            row: The trunk row that each toggled coalition is a copy of, int [toggled]; its players'
                layers do not decrease.
            player: The toggled player of each, int [toggled].
            examples: Of the trunk's rows.
            inputs: Of the trunk's rows.
            trunk: Layer inputs of the trunk's rows.

        Returns:
            float [toggled].
        """
        model = self.evaluator.model
        layer, head = model.grid.flat[player].T
        states = None
        if model.resumable:
            states = FanOut(
                layer, row, model.grid.layers, first_token=model.first_token, trunk=trunk
            )
        copied_rows, layers, heads = on_device(np.stack([row, layer, head]), model.device)
        gates = trunk_gates.detach()[copied_rows]
        toggled = torch.arange(len(row), device=model.device), layers, heads
        gates[toggled] = 1 - gates[toggled]
        active = Active(gates=gates, fill=self._fill(), states=states)
        copied_inputs = {name: tensor[copied_rows] for name, tensor in inputs.items()}
        return self._worth(examples[row], active, copied_inputs)

    def screened(
        self, kept: Bools, wanted: Bools, examples: Ints, halvings: Ints, uniforms: Floats
    ) -> Floats:
        """Bin, predicted gain and computed gain of every player in every row; the last is NaN where not computed.

        One backward pass predicts the gains of a coalition, and rows branch off its layers.  kept, wanted, examples: as
        in `marginals`; players that are not wanted have no gain.  halvings: int [bin, player]; a gain is computed with
        probability 2 ** -halvings.  uniforms: float [row, player] in [0, 1); a gain is computed where its number is
        below the probability.  Returns float [3, row, player].
        """
        out = np.full((3, *kept.shape), np.nan)
        rows = np.flatnonzero(wanted.any(axis=1))

        def run(lane: ModelGame, batch: Batch) -> Floats:
            at = rows[batch.places]
            return lane._screened(kept[at], batch.wanted, examples[at], halvings, uniforms[at])

        model = self.evaluator.model
        each, most = (
            np.full(len(rows), 1 / graded_share(model, self._budget)),
            TRUNKS.get(model.device.type),
        )
        for batch, found in self._in_batches(examples[rows], wanted[rows], each, run, most):
            row, player = np.nonzero(batch.wanted)
            out[:, rows[batch.places][row], player] = found[:, row, player]
        return out

    def _screened(
        self, kept: Bools, wanted: Bools, examples: Ints, halvings: Ints, uniforms: Floats
    ) -> Floats:
        trunk = Trunk(
            self.evaluator.model.grid.layers, first_token=self.evaluator.model.first_token
        )
        with torch.inference_mode(
            False
        ):  # the caller may be in inference mode, which forbids gradients
            inputs = self.evaluator.tensors(examples)
            gates = as_gates(
                self.evaluator.model, self.evaluator.model.grid.gates(kept)
            ).requires_grad_()
            value, bins, foreseen = self._foreseen(gates, kept, examples, inputs, trunk)
        odds = 2.0 ** -halvings[bins, np.arange(kept.shape[1])]
        row, player = np.nonzero(wanted & (uniforms < odds))
        gains = np.full(kept.shape, np.nan)
        toggled_values = self._branched(gates, examples, inputs, trunk, (row, player))
        gains[row, player] = (value[row] - toggled_values) * np.where(kept[row, player], 1, -1)
        return np.stack([bins, foreseen, gains])

    def _foreseen(
        self,
        gates: torch.Tensor,
        kept: Bools,
        examples: Ints,
        inputs: dict[str, torch.Tensor],
        trunk: Trunk,
    ) -> tuple[Floats, Ints, Floats]:
        """Value of each coalition [row], and the bin and the predicted gain of all its players, [row, player].

        gates: of the coalitions, [row, layer, head], with a gradient.  kept: the same, bool [row, player].
        """
        model, evaluator, fill = self.evaluator.model, self.evaluator, self._fill()
        active = Active(gates=gates, fill=None if fill is None else fill.clone(), states=trunk)
        with torch.enable_grad(), model.active(active):
            logits = evaluator.logits(inputs)
            aim, level = surrogate(self.value, logits, evaluator.targets(examples, logits))
            (slopes,) = torch.autograd.grad(aim.sum(), gates)
        value = evaluator.worth_of(examples, self.value, logits.detach())
        layer, head = model.grid.flat.T
        slope = slopes.cpu().double().numpy()[:, layer, head]
        if self.value.key != "accuracy":
            foreseen = feasible(slope, value, kept)
            return value, SIZES.of(np.where(np.isnan(slope), np.nan, -np.abs(foreseen))), foreseen
        moved = np.where(kept, -slope, slope)
        return value, TURNS.of(nearness(level.cpu().double().numpy(), moved)), np.zeros(kept.shape)

    def _branched(
        self, gates: torch.Tensor, examples: Ints, inputs: dict[str, torch.Tensor], trunk: Trunk,
        toggled: tuple[Ints, Ints],
    ) -> Floats:  # fmt: skip
        """Value of a coalition with one player toggled, for every (row, player); float [toggled].

        gates: of the coalitions, [row, layer, head].
        """
        by_layer = np.argsort(self.evaluator.model.grid.flat[toggled[1], 0], kind="stable")
        tokens = int(next(iter(inputs.values())).shape[1])
        parts = max(1, math.ceil(self.costs[toggled[1]].sum() * tokens / self._budget))
        out = np.zeros(len(by_layer))
        for part in range(min(parts, len(by_layer))):
            places = by_layer[part::parts]  # each part has layers of all depths
            row, player = toggled[0][places], toggled[1][places]
            out[places] = self._toggled_values(gates, row, player, examples, inputs, trunk)
            self.evaluator.tick()
        return out

    def answers(self, asks: Iterable[Ask]) -> Iterator[Floats]:
        """See `Game.answers`; one query at a time."""
        return in_turn(self, asks)

    def _fill(self) -> torch.Tensor | None:
        return self.evaluator.fill(self.ablation)

    def _worth(
        self,
        rows: Ints,
        active: Active,
        inputs: dict[str, torch.Tensor] | None = None,
        computed: int | None = None,
    ) -> Floats:
        evaluator = self.evaluator
        before = evaluator.forwards
        with torch.inference_mode(), evaluator.model.active(active):
            found = evaluator.worth(rows, self.value, inputs)
        if computed is not None:
            evaluator.forwards = before + computed
        return found

    def _in_batches(
        self, examples: Ints, wanted: Bools, rows: Ints | Floats, run: Callable[[ModelGame, Batch], Floats],
        most: int | None = None,
    ) -> Iterator[tuple[Batch, Floats]]:  # fmt: skip
        """Results of `run` for all rows, batch by batch; in smaller batches where memory runs out.

        rows: weight of each row in a batch.  most: maximum rows per batch, however few tokens they have.
        """
        tick, done = self.evaluator.tick, 0
        self._prepare()

        def one(batch: Batch, lane_tick: Tick) -> tuple[Floats, int]:
            lane = self._lane(lane_tick)
            return run(lane, batch), lane.evaluator.forwards

        batches = [Batch(part, wanted[part]) for part in self._parts(examples, rows, most)]
        for batch, (found, forwards) in spread(batches, one, on=self.evaluator.model, tick=tick):
            self.evaluator.forwards += forwards
            done += 1
            yield batch, found
        if done > len(batches):
            self._budget = max(1, self._budget // 2)

    def _prepare(self) -> None:
        """Compute the fill values before the batches start, since this runs batches of its own."""
        with one_thread(self.evaluator.model.device):
            self._fill()

    def _lane(self, tick: Tick) -> ModelGame:
        """A copy of this game for one thread, with its own counter, so that failed passes are not counted."""
        lane = copy(self)
        lane.evaluator = copy(self.evaluator)
        lane.evaluator.forwards, lane.evaluator.tick = 0, tick
        return lane

    def _parts(self, examples: Ints, rows: Ints | Floats, most: int | None = None) -> list[Ints]:
        """Indices into `examples`, sorted by length, cut where a padded batch would exceed the budget or `most`."""
        lengths = self.evaluator.lengths[examples]
        parts: list[list[int]] = [[]]
        total = 0.0
        for place in np.argsort(lengths, kind="stable"):
            full = len(parts[-1]) == most or (total + rows[place]) * lengths[place] > self._budget
            if parts[-1] and full:
                parts.append([])
                total = 0.0
            parts[-1].append(int(place))
            total += float(rows[place])
        return [np.array(part, dtype=np.int64) for part in parts if part]


def game_of(work: Work) -> Game:
    """The game of a piece of work, on this device or on its helpers."""
    if work.saved is not None:
        work.evaluator.forwards = int(work.saved.get("forwards", 0))
    own = ModelGame(
        work.evaluator, work.ablation, value_of(str(work.options.get("value", "accuracy")))
    )
    return own if work.helpers is None else work.helpers.game(own)
