"""The game whose players are the heads of a model, or whatever else of it is switched."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field

import numpy as np
import torch

from headlab.core import (
    FINE_STEPS,
    RESAMPLE,
    Bools,
    Floats,
    HeadlabError,
    Ints,
    Tick,
    ValueFunction,
    answer_margins,
    is_of_other_texts,
    run_in_parallel,
    smoothed_value,
    surrogate,
    value_function_of,
)
from headlab.core.devices import on_device
from headlab.evaluation import Evaluator, StandIn, token_budget, width_of
from headlab.hooks import (
    ActiveGates,
    FanOut,
    LayerStates,
    Model,
    Trunk,
    as_gate_tensor,
    gradient_by_gates,
)
from headlab.methods.costs import is_encoder
from headlab.methods.game import Game, Query, in_turn
from headlab.methods.sampling import Draws
from headlab.methods.screen import NEARNESS_SCALE, SIZE_SCALE, Scale, feasible, nearness
from headlab.methods.work import Work

# Rows of coalitions computed together, cut in half where they do not fit in memory.


@dataclass(frozen=True)
class CoalitionBatch:
    """Rows to be computed together.

    Attributes:
        rows: Their indices in the caller's arrays, int [row].
        wanted: The players that are asked for in each row, bool [row, player].
    """

    rows: Ints
    wanted: Bools

    def halves(self) -> tuple[CoalitionBatch, ...]:
        """Two halves of the batch: of its rows or, for a single row, of the row's players.

        There are none where the batch cannot be cut.
        """
        if len(self.rows) > 1:
            middle = len(self.rows) // 2
            return (
                CoalitionBatch(self.rows[:middle], self.wanted[:middle]),
                CoalitionBatch(self.rows[middle:], self.wanted[middle:]),
            )
        players = np.flatnonzero(self.wanted[0])
        if len(players) < 2:
            return ()
        is_first_half = np.isin(np.arange(self.wanted.shape[1]), players[: len(players) // 2])
        return (
            CoalitionBatch(self.rows, self.wanted & is_first_half),
            CoalitionBatch(self.rows, self.wanted & ~is_first_half),
        )


# Samples between two snapshots: a few seconds on two cores, and enough rows to fill a GPU. No
# result depends on it.
ROUND = {"cpu": 16, "cuda": 256}
# A pass with a backward pass stores its layers' activations, about GRADED_WIDTHS hidden widths per
# token and layer. It gets a share of a batch's tokens: a fixed one on a GPU, on a CPU the share
# that stays below GRADED_BYTES per lane.
GRADED_CUDA = 1 / 8
GRADED_BYTES = 256 << 20
GRADED_WIDTHS = 10
# Maximum number of coalitions in such a pass: their branches take far more work than they do, and
# on a CPU several batches run in parallel. A GPU takes all at once.
MAX_TRUNKS = {"cpu": 8}
# Cost of the last layer, in layers, where only the first token's output is needed.
LAST_LAYER_COST = 1 / 3
# Minimum cost of any row, in passes.
MIN_ROW_COST = 0.05


def round_on(kind: str) -> int:
    """Suitable number of samples for one call on a kind of device ("cpu", "cuda")."""
    return ROUND.get(kind, ROUND["cpu"])


def graded_share(model: Model, tokens: int) -> float:
    """Share of a batch's tokens allowed in a pass with a backward pass."""
    if model.device.type == "cuda":
        return GRADED_CUDA
    item_bytes = torch.finfo(model.module.dtype).bits // 8
    layer_bytes = tokens * width_of(model) * GRADED_WIDTHS * item_bytes
    return min(1.0, GRADED_BYTES / (layer_bytes * model.depth))


@dataclass
class ModelGame:
    """The game whose players are a model's heads.

    Each row of a batch has its own coalition, and is computed from the layer where it departs from
    a row that is computed anyway.

    Attributes:
        evaluator: Of the model and the examples.
        ablation: What stands in the place of a removed head.
        value: The value function.
        tokens: Maximum number of tokens of a batch; None chooses by device.
    """

    evaluator: Evaluator
    ablation: str = "zero"
    value: ValueFunction = field(default_factory=lambda: value_function_of("accuracy"))
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
        has_one_answer_each = (self.evaluator.inputs.units == 1).all()
        if has_one_answer_each:
            return self.value.steps
        return max(self.value.steps, FINE_STEPS)

    @property
    def round(self) -> int:
        """Suitable number of samples for one call."""
        return round_on(self.evaluator.model.device.type)

    @property
    def costs(self) -> Floats:
        """See `Game.costs`: the layers from the head's own to the last."""
        model = self.evaluator.model
        grid = model.grid
        if not model.resumable:
            return np.ones(grid.size)
        layers_spared = 1 - LAST_LAYER_COST if model.first_token else 0.0
        layers_from_head = model.depth - model.layer_of_row[grid.flat[:, 0]] - layers_spared
        shares = layers_from_head / (model.depth - layers_spared)
        return np.asarray(np.maximum(shares, MIN_ROW_COST), dtype=np.float64)

    @property
    def scale(self) -> Scale | None:
        """See `Game.scale`: in resumable models, the gradient at the gates predicts the gains.

        Not those of probabilities on a decoder's tasks of likelihood: no gain is 0 there, and
        slopes foresee few, so a screen would spare a third of the rows at most, and samples that
        may weigh four times as much make intervals that much wider.
        """
        model = self.evaluator.model
        if not model.resumable:
            return None
        if self.value.key == "accuracy":
            return NEARNESS_SCALE
        if self.evaluator.task.likelihood and not is_encoder(model.grid):
            return None
        return SIZE_SCALE

    def values(self, kept: Bools, examples: Ints, donors: Ints | None = None) -> Floats:
        """Value of each row, by a full forward pass, float [row].

        Args:
            kept: The players that are present, bool [row, player].
            examples: The example of each row, int [row].
            donors: The example whose outputs stand in the place of closed players, int [row], where
                such are drawn (see `draws_donors`); None for the fixed ones of evaluations.
        """
        values = np.zeros(len(kept))
        model = self.evaluator.model

        def run(lane: ModelGame, batch: CoalitionBatch) -> Floats:
            rows = batch.rows
            gates = as_gate_tensor(model, model.grid.gates(kept[rows]))
            stand_in = lane._stand_in(examples[rows], donors_of_rows(donors, rows))
            return lane._worth(examples[rows], stand_in.active(gates))

        row_weights = np.ones(len(kept), np.int64)
        for batch, batch_values in self._in_batches(examples, kept, row_weights, run):
            values[batch.rows] = batch_values
        return values

    def gains(
        self,
        orders: Ints,
        examples: Ints,
        wanted: Bools | None = None,
        donors: Ints | None = None,
    ) -> Floats:
        """v(before) - v(after) at each step of each walk, float [row, step].

        Row r starts with all players and removes orders[r, 0], orders[r, 1], ... on example
        examples[r]; it stores its layers' inputs and resumes at the layer that changed.

        Args:
            orders: The players in the order of their removal, int [row, step].
            examples: The example of each row, int [row].
            wanted: The players whose gains are asked for, bool [player]; None for all. Values that
                only other players' gains need are not computed, and those gains are 0.
            donors: As in `values`; a walk keeps one.
        """
        gains = np.zeros(orders.shape)
        is_wanted = np.ones(orders.shape, dtype=bool) if wanted is None else wanted[orders]

        def run(lane: ModelGame, batch: CoalitionBatch) -> Floats:
            rows = batch.rows
            donors_of_batch = donors_of_rows(donors, rows)
            return lane._walk(orders[rows], examples[rows], is_wanted[rows], donors_of_batch)

        row_weights = np.ones(len(orders), np.int64)
        for batch, batch_gains in self._in_batches(examples, is_wanted, row_weights, run):
            gains[batch.rows] = batch_gains
        return gains * is_wanted

    def _walk(self, orders: Ints, examples: Ints, is_wanted: Bools, donors: Ints | None) -> Floats:
        """`gains` of one batch.

        Args:
            is_wanted: Whether each step's gain is asked for, bool [row, step].
        """
        model = self.evaluator.model
        rows = np.arange(len(orders))
        steps = orders.shape[1]
        layers = model.depth
        all_on = np.ones((len(orders), model.grid.layers, model.grid.width), dtype=bool)
        gates = as_gate_tensor(model, all_on)
        states = LayerStates(layers) if model.resumable else None
        values = np.zeros((len(orders), steps + 1))
        # The value at step s is needed if the head removed at s or the next one is wanted.
        edge = np.zeros((len(orders), 1), dtype=bool)
        value_needed = np.hstack([edge, is_wanted]) | np.hstack([is_wanted, edge])
        first_changed = np.zeros(len(orders), np.int64)  # layer, since the row was last computed
        inputs = self.evaluator.tensors(examples)
        stand_in = self._stand_in(examples, donors)
        for step in range(steps + 1):
            if step:
                grid_row, column = model.grid.flat[orders[:, step - 1]].T
                gates[rows, grid_row, column] = 0
                first_changed = np.minimum(first_changed, model.layer_of_row[grid_row])
            is_due = value_needed[:, step]
            if not is_due.any():
                continue
            # The first pass computes every row, whether it is due or not.
            computes_all_rows = states is None or states.inputs[-1] is None
            if states is not None and not computes_all_rows:
                states.begin(torch.as_tensor(np.where(is_due, first_changed, layers)))
            active = stand_in.active(gates, states)
            values_at_step = self._worth(examples, active, inputs, computed_rows=int(is_due.sum()))
            values[is_due, step] = values_at_step[is_due]
            first_changed = np.where(is_due | computes_all_rows, layers, first_changed)
            self.evaluator.tick()
        return values[:, :-1] - values[:, 1:]

    def marginals(
        self, kept: Bools, wanted: Bools, examples: Ints, donors: Ints | None = None
    ) -> Floats:
        """v(kept with p) - v(kept without p), [row, player].

        It is 0 for players that are not wanted.

        Each player's row branches off the row of its coalition at the player's layer.

        Args:
            kept: The players that are present, bool [row, player].
            wanted: The players whose gains are asked for, bool [row, player].
            examples: The example of each row, int [row].
            donors: As in `values`; both values of a gain have the same.

        Returns:
            float [row, player].
        """
        gains = np.zeros(kept.shape)
        rows_with_players = np.flatnonzero(wanted.any(axis=1))
        players = wanted[rows_with_players]

        def run(lane: ModelGame, batch: CoalitionBatch) -> Floats:
            rows = rows_with_players[batch.rows]
            donors_of_batch = donors_of_rows(donors, rows)
            return lane._marginal_gains(kept[rows], batch.wanted, examples[rows], donors_of_batch)

        for batch, batch_gains in self._in_batches(
            examples[rows_with_players], players, 1 + players.sum(axis=1), run
        ):
            # Added, since the players of one row may come in several batches.
            gains[rows_with_players[batch.rows]] += batch_gains
        return gains

    def _marginal_gains(
        self, kept: Bools, wanted: Bools, examples: Ints, donors: Ints | None
    ) -> Floats:
        """`marginals` of one batch."""
        model = self.evaluator.model
        row, player = np.nonzero(wanted)
        trunk = Trunk(model.depth, first_token=model.first_token)
        inputs = self.evaluator.tensors(examples)
        gates = as_gate_tensor(model, model.grid.gates(kept))
        states = trunk if model.resumable else None
        stand_in = self._stand_in(examples, donors)
        values = self._worth(examples, stand_in.active(gates, states), inputs)
        toggled_values = self._branch_values(gates, examples, inputs, trunk, row, player, stand_in)
        gains = np.zeros(kept.shape)
        gains[row, player] = (values[row] - toggled_values) * np.where(kept[row, player], 1, -1)
        return gains

    def _toggled_values(
        self,
        trunk_gates: torch.Tensor,
        row: Ints,
        players: Ints,
        examples: Ints,
        inputs: dict[str, torch.Tensor],
        trunk: Trunk,
        stand_in: StandIn,
    ) -> Floats:
        """Values of coalitions with one player or more toggled.

        They branch off the trunk at the first of their players' layers.

        A model that is not resumable computes them in full passes.

        Args:
            trunk_gates: Gates of the coalitions, [trunk row, layer, head].
            row: The trunk row that each toggled coalition is a copy of, int [toggled]; the layers
                where they branch off do not decrease.
            players: The toggled players of each, int [toggled, player]; one that comes twice is
                toggled once.
            examples: Of the trunk's rows.
            inputs: Of the trunk's rows.
            trunk: Layer inputs of the trunk's rows.
            stand_in: What stands in closed players' places in the trunk's rows.

        Returns:
            float [toggled].
        """
        model = self.evaluator.model
        grid_rows, columns = np.moveaxis(model.grid.flat[players], -1, 0)
        states = None
        if model.resumable:
            states = FanOut(
                model.layer_of_row[grid_rows].min(axis=1),
                row,
                model.depth,
                first_token=model.first_token,
                trunk=trunk,
            )
        places = on_device(np.stack([row, *grid_rows.T, *columns.T]), model.device)
        copied_rows = places[0]
        gates = trunk_gates.detach()[copied_rows]
        copies = torch.arange(len(row), device=model.device)
        count = players.shape[1]
        toggled = [(copies, places[1 + index], places[1 + count + index]) for index in range(count)]
        toggled_gates = [1 - gates[place] for place in toggled]
        for place, gate in zip(toggled, toggled_gates, strict=True):
            gates[place] = gate
        active = stand_in.taking(row).active(gates, states)
        copied_inputs = {name: tensor[copied_rows] for name, tensor in inputs.items()}
        return self._worth(examples[row], active, copied_inputs)

    def screened(
        self,
        kept: Bools,
        wanted: Bools,
        examples: Ints,
        halvings: Ints,
        uniforms: Floats,
        largest: Floats | float = 1.0,
        donors: Ints | None = None,
    ) -> Floats:
        """Bin, predicted gain and computed gain of every player, float [3, row, player].

        One backward pass predicts the gains of a coalition, and rows branch off its layers. A
        computed gain is NaN where none is computed.

        Args:
            kept: As in `marginals`.
            wanted: As in `marginals`; players that are not wanted have no gain.
            examples: As in `marginals`.
            halvings: A gain is computed with probability 2 ** -halvings, int [bin, player].
            uniforms: Numbers in [0, 1), float [row, player]; a gain is computed where its number is
                below the probability.
            largest: Size of the largest gain that is predicted, a single number.
            donors: As in `marginals`.
        """

        def screen(lane: ModelGame, rows: Ints, wanted_players: Bools) -> Floats:
            draws = Draws(kept[rows], wanted_players, examples[rows])
            stand_in = lane._stand_in(examples[rows], donors_of_rows(donors, rows))
            return lane._screen_batch(draws, halvings, uniforms[rows], float(largest), stand_in)

        return self._screened_in_batches(examples, wanted, screen)

    def _screened_in_batches(
        self, examples: Ints, wanted: Bools, screen: Callable[[ModelGame, Ints, Bools], Floats]
    ) -> Floats:
        """What is screened of each row and column, float [3, row, column]; NaN if not wanted.

        Args:
            examples: The example of each row, int [row].
            wanted: bool [row, column]: of players, or of pairs of them.
            screen: Given a lane, the numbers of some rows and what is wanted of them, returns
                theirs.
        """
        answers = np.full((3, *wanted.shape), np.nan)
        rows_asked = np.flatnonzero(wanted.any(axis=1))

        def run(lane: ModelGame, batch: CoalitionBatch) -> Floats:
            return screen(lane, rows_asked[batch.rows], batch.wanted)

        for batch, batch_answers in self._in_batches(
            examples[rows_asked],
            wanted[rows_asked],
            self._graded_weights(len(rows_asked)),
            run,
            self._max_graded_rows,
        ):
            row, column = np.nonzero(batch.wanted)
            answers[:, rows_asked[batch.rows][row], column] = batch_answers[:, row, column]
        return answers

    def _screen_batch(
        self,
        draws: Draws,
        halvings: Ints,
        uniforms: Floats,
        largest: float,
        stand_in: StandIn,
    ) -> Floats:
        """`screened` of one batch."""
        kept, wanted, examples = draws
        model = self.evaluator.model
        trunk = Trunk(model.depth, first_token=model.first_token)
        # The caller may be in inference mode, which forbids gradients.
        with torch.inference_mode(False):
            inputs = self.evaluator.tensors(examples)
            gates = as_gate_tensor(model, model.grid.gates(kept)).requires_grad_()
            values, bins, foreseen = self._foreseen(gates, draws, inputs, trunk, largest, stand_in)
        probability = 2.0 ** -halvings[bins, np.arange(kept.shape[1])]
        row, player = np.nonzero(wanted & (uniforms < probability))
        gains = np.full(kept.shape, np.nan)
        toggled_values = self._branch_values(gates, examples, inputs, trunk, row, player, stand_in)
        gains[row, player] = (values[row] - toggled_values) * np.where(kept[row, player], 1, -1)
        return np.stack([bins, foreseen, gains])

    def _foreseen(
        self,
        gates: torch.Tensor,
        draws: Draws,
        inputs: dict[str, torch.Tensor],
        trunk: Trunk,
        largest: float,
        stand_in: StandIn,
    ) -> tuple[Floats, Ints, Floats]:
        """The value of each coalition, and the bin and the predicted gain of all its players.

        Args:
            gates: Of the coalitions, with a gradient, [row, layer, head].
            draws: The same coalitions, and the example of each.
            inputs: Of these examples.
            trunk: Where the layers' inputs are stored.
            largest: Size of the largest predicted gain.
            stand_in: What stands in closed players' places.

        Returns:
            Values [row], bins [row, player], and predicted gains [row, player].
        """
        kept, _, examples = draws
        values, level, slope = self.graded_values(gates, examples, inputs, trunk, stand_in)
        if self.value.key != "accuracy":
            foreseen = np.clip(feasible(slope, values, kept), -largest, largest)
            sizes = np.where(np.isnan(slope), np.nan, -np.abs(foreseen))
            return values, SIZE_SCALE.bins_of(sizes), foreseen
        distance = nearness(level, np.where(kept, -slope, slope))
        return values, NEARNESS_SCALE.bins_of(distance), np.zeros(kept.shape)

    def graded_values(
        self,
        gates: torch.Tensor,
        examples: Ints,
        inputs: dict[str, torch.Tensor],
        trunk: Trunk,
        stand_in: StandIn,
    ) -> tuple[Floats, Floats, Floats]:
        """The value of each coalition, with the slopes of what foresees its changes.

        Args:
            gates: Of the coalitions, with a gradient, [row, layer, head].
            examples: The example of each row, int [row].
            inputs: Of these examples.
            trunk: Where the layers' inputs are stored.
            stand_in: What stands in closed players' places.

        Returns:
            Values [row]; the level of `headlab.core.surrogate`, [row]; and its slope by each
            player's gate, [row, player], NaN where the model gives no gradient.
        """
        evaluator = self.evaluator
        model = evaluator.model
        active = stand_in.for_gradients().active(gates, trunk)
        with torch.enable_grad(), model.active(active):
            logits = evaluator.logits(inputs)
            objective, level = surrogate(self.value, logits, evaluator.targets(examples, logits))
            try:
                slopes = gradient_by_gates(model, objective.sum(), gates)
            except HeadlabError as error:
                if error.code != "model.gradient_missing":
                    raise
                slopes = torch.full_like(gates, torch.nan)  # nothing is foreseen
        values = evaluator.worth_of(examples, self.value, logits.detach())
        layer, head = model.grid.flat.T
        slope = slopes.cpu().double().numpy()[:, layer, head]
        return values, level.cpu().double().numpy(), slope

    def slopes(
        self, kept: Bools, examples: Ints, bandwidth: Floats, donors: Ints | None = None
    ) -> Floats:
        """Slope of each coalition's smoothed value by each player's gate, float [row, player].

        It is what the value would change by, were it as linear in the gate as it is at the
        coalition. One backward pass gives the slopes of all players.

        Args:
            kept: The players that are present, bool [row, player].
            examples: The example of each row, int [row].
            bandwidth: Of `headlab.core.smoothed_value`, in logits, a single number.
            donors: As in `values`.
        """
        slopes = np.zeros(kept.shape)

        def run(lane: ModelGame, batch: CoalitionBatch) -> Floats:
            rows = batch.rows
            stand_in = lane._stand_in(examples[rows], donors_of_rows(donors, rows))
            return lane._slopes_of_batch(kept[rows], examples[rows], float(bandwidth), stand_in)

        for batch, batch_slopes in self._in_batches(
            examples, kept, self._graded_weights(len(kept)), run, self._max_graded_rows
        ):
            slopes[batch.rows] = batch_slopes
        return slopes

    def _slopes_of_batch(
        self, kept: Bools, examples: Ints, bandwidth: float, stand_in: StandIn
    ) -> Floats:
        """`slopes` of one batch."""
        evaluator = self.evaluator
        model = evaluator.model
        # The caller may be in inference mode, which forbids gradients.
        with torch.inference_mode(False), torch.enable_grad():
            inputs = evaluator.tensors(examples)
            gates = as_gate_tensor(model, model.grid.gates(kept)).requires_grad_()
            with model.active(stand_in.for_gradients().active(gates)):
                logits = evaluator.logits(inputs)
                labels = evaluator.targets(examples, logits)
                evaluator.require_finite(examples, logits, labels)
                smoothed = smoothed_value(self.value, logits, labels, bandwidth)
                slopes = gradient_by_gates(model, smoothed.sum(), gates)
        layer, head = model.grid.flat.T
        evaluator.tick()
        return np.asarray(slopes.cpu().double().numpy()[:, layer, head])

    def margins(self, kept: Bools, examples: Ints, donors: Ints | None = None) -> Floats:
        """Of the margins of each row's answers: number, sum and sum of squares, float [row, 3].

        A margin says by how many logits the right label leads.

        Args:
            kept: The players that are present, bool [row, player].
            examples: The example of each row, int [row].
            donors: As in `values`.
        """
        moments = np.zeros((len(kept), 3))
        model = self.evaluator.model

        def run(lane: ModelGame, batch: CoalitionBatch) -> Floats:
            rows = batch.rows
            gates = as_gate_tensor(model, model.grid.gates(kept[rows]))
            stand_in = lane._stand_in(examples[rows], donors_of_rows(donors, rows))
            return lane._margins_of_batch(examples[rows], stand_in.active(gates))

        row_weights = np.ones(len(kept), np.int64)
        for batch, batch_moments in self._in_batches(examples, kept, row_weights, run):
            moments[batch.rows] = batch_moments
        return moments

    def _margins_of_batch(self, examples: Ints, active: ActiveGates) -> Floats:
        """`margins` of one batch under these gates."""
        evaluator = self.evaluator
        with torch.inference_mode(), evaluator.model.active(active):
            logits = evaluator.logits(evaluator.tensors(examples))
            labels = evaluator.targets(examples, logits)
            evaluator.require_finite(examples, logits, labels)
            _, margin, has_answer = answer_margins(logits, labels)
        evaluator.tick()
        margin = margin.double().masked_fill(~has_answer, 0.0)
        moments = torch.stack([has_answer.sum(dim=1), margin.sum(dim=1), (margin**2).sum(dim=1)])
        return np.asarray(moments.T.cpu().numpy())

    def _graded_weights(self, rows: int) -> Floats:
        """How many rows of a batch a row with a backward pass counts as, [row]."""
        return np.full(rows, 1 / graded_share(self.evaluator.model, self._budget))

    @property
    def _max_graded_rows(self) -> int | None:
        """Maximum number of rows of a batch with a backward pass; None: no limit of its own."""
        return MAX_TRUNKS.get(self.evaluator.model.device.type)

    def _branch_values(
        self,
        gates: torch.Tensor,
        examples: Ints,
        inputs: dict[str, torch.Tensor],
        trunk: Trunk,
        row: Ints,
        players: Ints,
        stand_in: StandIn,
    ) -> Floats:
        """Values of coalitions with one player or more toggled, float [toggled].

        They are computed in parts that fit in a batch.

        Args:
            gates: Of the coalitions, [trunk row, layer, head].
            examples: Of the trunk's rows.
            inputs: Of the trunk's rows.
            trunk: Layer inputs of the trunk's rows.
            row: The trunk row that each toggled coalition is a copy of, int [toggled].
            players: The toggled player of each, int [toggled], or several, int [toggled, player].
            stand_in: What stands in closed players' places in the trunk's rows.
        """
        model = self.evaluator.model
        if players.ndim == 1:
            players = players[:, None]
        first_layers = model.layer_of_row[model.grid.flat[players, 0]].min(axis=1)
        by_layer = np.argsort(first_layers, kind="stable")
        tokens = int(next(iter(inputs.values())).shape[1])
        passes = self.costs[players].max(axis=1).sum()
        parts = max(1, math.ceil(passes * tokens / self._budget))
        values = np.zeros(len(by_layer))
        for part in range(min(parts, len(by_layer))):
            indices = by_layer[part::parts]  # each part has layers of all depths
            values[indices] = self._toggled_values(
                gates, row[indices], players[indices], examples, inputs, trunk, stand_in
            )
            self.evaluator.tick()
        return values

    def answers(self, asks: Iterable[Query]) -> Iterator[Floats]:
        """See `Game.answers`; one query at a time."""
        return in_turn(self, asks)

    @property
    def draws_donors(self) -> bool:
        """Whether rows are to be asked for with the example whose outputs stand in closed places."""
        return self.ablation == RESAMPLE

    def _stand_in(self, examples: Ints, donors: Ints | None) -> StandIn:
        """What stands in closed players' places in the rows of a batch; arguments as in `values`."""
        return self.evaluator.stand_in(self.ablation, examples, donors)

    def _worth(
        self,
        rows: Ints,
        active: ActiveGates,
        inputs: dict[str, torch.Tensor] | None = None,
        computed_rows: int | None = None,
    ) -> Floats:
        """Value of the model's answers under a state of its hooks, as a share of the span, [row].

        Args:
            rows: Indices of examples, int [row].
            active: The state of the hooks.
            inputs: Of the examples; made here if left out.
            computed_rows: Number of forward passes that are counted; all rows if left out.
        """
        evaluator = self.evaluator
        forwards_before = evaluator.forwards
        with torch.inference_mode(), evaluator.model.active(active):
            values = evaluator.worth(rows, self.value, inputs)
        if computed_rows is not None:
            evaluator.forwards = forwards_before + computed_rows
        return values

    def _in_batches(
        self,
        examples: Ints,
        wanted: Bools,
        row_weights: Ints | Floats,
        compute: Callable[[ModelGame, CoalitionBatch], Floats],
        max_rows: int | None = None,
    ) -> Iterator[tuple[CoalitionBatch, Floats]]:
        """Results of a function for all rows, batch by batch.

        Batches are smaller where memory runs out.

        Args:
            examples: The example of each row, int [row].
            wanted: The players that are asked for in each row, bool [row, player].
            row_weights: How many rows of a batch each of them counts as, [row].
            compute: Given a game for one thread and a batch, returns the batch's result.
            max_rows: Maximum number of rows of a batch, however few tokens they have.
        """
        evaluator_tick = self.evaluator.tick
        batches_done = 0
        self._prepare()

        def compute_batch(batch: CoalitionBatch, lane_tick: Tick) -> tuple[Floats, int]:
            lane = self._lane(lane_tick)
            return compute(lane, batch), lane.evaluator.forwards

        parts = self._parts(examples, row_weights, max_rows)
        batches = [CoalitionBatch(part, wanted[part]) for part in parts]
        for batch, (results, forwards) in run_in_parallel(
            batches, compute_batch, model=self.evaluator.model, tick=evaluator_tick
        ):
            self.evaluator.forwards += forwards
            batches_done += 1
            yield batch, results
        if batches_done > len(batches):
            self._budget = max(1, self._budget // 2)

    def _prepare(self) -> None:
        """Compute what stands in closed places before the batches start, as it runs its own."""
        self.evaluator.prepare(self.ablation)

    def _lane(self, tick: Tick) -> ModelGame:
        """A copy of this game for one thread.

        It has a counter of its own, so that failed passes are not counted.
        """
        lane = copy(self)
        lane.evaluator = copy(self.evaluator)
        lane.evaluator.forwards = 0
        lane.evaluator.tick = tick
        return lane

    def _parts(
        self, examples: Ints, row_weights: Ints | Floats, max_rows: int | None = None
    ) -> list[Ints]:
        """Indices into `examples`, sorted by length, in parts that are a batch each.

        A part ends where a padded batch would exceed the budget of tokens, or `max_rows`.
        """
        lengths = self.evaluator.lengths[examples]
        parts: list[list[int]] = [[]]
        part_weight = 0.0
        for index in np.argsort(lengths, kind="stable"):
            padded_tokens = (part_weight + row_weights[index]) * lengths[index]
            is_full = len(parts[-1]) == max_rows or padded_tokens > self._budget
            if parts[-1] and is_full:
                parts.append([])
                part_weight = 0.0
            parts[-1].append(int(index))
            part_weight += float(row_weights[index])
        return [np.array(part, dtype=np.int64) for part in parts if part]


def donors_of_rows(donors: Ints | None, rows: Ints) -> Ints | None:
    """The donors of some rows; None where none are drawn."""
    return None if donors is None else donors[rows]


def game_of(work: Work) -> Game:
    """The game of a piece of work, on this device or on its helpers."""
    if work.saved is not None:
        work.evaluator.forwards = int(work.saved.get("forwards", 0))
    value = value_function_of(str(work.options.get("value", "accuracy")))
    if is_of_other_texts(work.ablation):  # refused before anything is drawn
        work.evaluator.donor_texts(work.ablation)
    local_game = ModelGame(work.evaluator, work.ablation, value)
    if work.helpers is None:
        return local_game
    return work.helpers.game(local_game)
