"""The game that estimators play: players are there or not, and the game says what each is worth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch

from headlab.evaluator import Evaluator
from headlab.gates import Active, FanOut, LayerStates, as_gates
from headlab.methods.batches import Batch, halving, token_budget
from headlab.records import Bools, Floats, Ints
from headlab.values import FINE, Value, value_of

# Pairs of coalitions between two snapshots: a few seconds on two cores, enough rows for a GPU.
ROUND = {"cpu": 16, "cuda": 256}


class Game(Protocol):
    """What an estimator knows of a model: players, examples, and what coalitions are worth.

    Values are shares of `span`, so that gains lie in [-1, 1]; positive = the player helps.  steps: levels
    a gain is counted in (see `headlab.values.Value`).  round: samples that suit one call.
    """

    @property
    def players(self) -> int:
        """Number of players."""
        ...

    @property
    def examples(self) -> int:
        """Number of examples."""
        ...

    @property
    def weights(self) -> Floats | None:
        """Share of the value that each example has, [example]; None where all count alike."""
        ...

    @property
    def span(self) -> float:
        """What a gain of 1 is in the value's unit."""
        ...

    @property
    def steps(self) -> int:
        """Levels that a gain of 1 is counted in."""
        ...

    @property
    def round(self) -> int:
        """Samples that suit one call."""
        ...

    def values(self, kept: Bools, examples: Ints) -> Floats:
        """Value of each row: kept bool [row, player], examples int [row] -> float [row] in [0, 1]."""
        ...

    def gains(self, orders: Ints, examples: Ints, wanted: Bools | None = None) -> Floats:
        """v(before) - v(after) at each step of each walk: orders int [row, step], examples int [row].

        Row r starts with all players and loses orders[r, 0], orders[r, 1], ... on example examples[r].
        wanted: bool [player]; what only other players' gains need is not computed, and their gains are 0.
        Returns float [row, step].
        """
        ...

    def marginals(self, kept: Bools, wanted: Bools, examples: Ints) -> Floats:
        """v(kept with p) - v(kept without p) for every wanted player p of every row, 0 for the others.

        kept, wanted: bool [row, player].  examples: int [row].  Returns float [row, player].
        """
        ...


@dataclass
class ModelGame:
    """The game whose players are a model's heads.

    Rows of one batch carry each its own coalition, and each is computed from the layer where it departs
    from a row that is computed anyway.  tokens: of one batch at most; None: what suits the device.
    """

    evaluator: Evaluator
    ablation: str = "zero"
    value: Value = field(default_factory=lambda: value_of("accuracy"))
    tokens: int | None = None

    def __post_init__(self) -> None:
        self._budget = self.tokens or token_budget(self.evaluator.model)

    @property
    def players(self) -> int:
        """Heads of the model."""
        return self.evaluator.model.grid.size

    @property
    def examples(self) -> int:
        """Examples of the evaluator."""
        return len(self.evaluator.examples)

    @property
    def weights(self) -> Floats | None:
        """Share of all answers that each example asks for."""
        return self.evaluator.weights

    @property
    def span(self) -> float:
        """What a gain of 1 is in the value's unit."""
        return self.value.span

    @property
    def steps(self) -> int:
        """Levels that a gain of 1 is counted in: a share of several answers needs fine ones."""
        return self.value.steps if (self.evaluator.inputs.units == 1).all() else FINE

    @property
    def round(self) -> int:
        """Samples that suit one call."""
        return ROUND.get(self.evaluator.model.device.type, ROUND["cpu"])

    def values(self, kept: Bools, examples: Ints) -> Floats:
        """See `Game.values`; every row is a full forward pass."""
        out = np.zeros(len(kept))

        def run(batch: Batch) -> None:
            gates = as_gates(self.evaluator.model, self.evaluator.model.grid.gates(kept[batch.places]))
            out[batch.places] = self._worth(examples[batch.places], Active(gates=gates, fill=self._fill()))

        self._in_batches(examples, kept, np.ones(len(kept), np.int64), run)
        return out

    def gains(self, orders: Ints, examples: Ints, wanted: Bools | None = None) -> Floats:
        """See `Game.gains`; a walk keeps its layers' inputs and goes on at the layer that changed."""
        out = np.zeros(orders.shape)
        asked = np.ones(orders.shape, dtype=bool) if wanted is None else wanted[orders]

        def run(batch: Batch) -> None:
            out[batch.places] = self._walk(orders[batch.places], examples[batch.places], asked[batch.places])

        self._in_batches(examples, asked, np.ones(len(orders), np.int64), run)
        return out * asked

    def _walk(self, orders: Ints, examples: Ints, asked: Bools) -> Floats:
        model = self.evaluator.model
        rows, layers = np.arange(len(orders)), model.grid.layers
        gates = as_gates(model, np.ones((len(orders), layers, model.grid.width), dtype=bool))
        states = LayerStates(layers) if model.resumable else None
        value = np.zeros((len(orders), orders.shape[1] + 1))
        # Step s needs its value if the head that left at s or the one that leaves next is asked for.
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
                states.begin(torch.as_tensor(np.where(due, pending, layers), device=model.device))
            active = Active(gates=gates, fill=self._fill(), states=states)
            found = self._worth(examples, active, inputs, computed=int(due.sum()))
            value[due, step] = found[due]
            pending = np.where(due | first, layers, pending)
            self.evaluator.tick()
        return value[:, :-1] - value[:, 1:]

    def marginals(self, kept: Bools, wanted: Bools, examples: Ints) -> Floats:
        """See `Game.marginals`; each player's row branches off the row of its coalition at the player's layer."""
        out = np.zeros(kept.shape)
        rows = np.flatnonzero(wanted.any(axis=1))

        def run(batch: Batch) -> None:
            places = rows[batch.places]
            out[places] += self._fan(kept[places], batch.wanted, examples[places])

        self._in_batches(examples[rows], wanted[rows], 1 + wanted[rows].sum(axis=1), run)
        return out

    def _fan(self, kept: Bools, wanted: Bools, examples: Ints) -> Floats:
        model = self.evaluator.model
        row, player = np.nonzero(wanted)
        by_layer = np.argsort(model.grid.flat[player, 0], kind="stable")
        row, player = row[by_layer], player[by_layer]
        layer, head = model.grid.flat[player].T
        base = np.arange(len(kept))
        origin = np.concatenate([base, row])
        gates = model.grid.gates(kept)[origin]
        gates[len(base) + np.arange(len(row)), layer, head] ^= True
        start = np.concatenate([np.zeros_like(base), layer])
        how = None
        if model.resumable:
            how = FanOut(start, origin, model.grid.layers, first_token=model.first_token)
        copies = torch.as_tensor(origin, device=model.device)
        inputs = {name: tensor[copies] for name, tensor in self.evaluator.tensors(examples).items()}
        active = Active(gates=as_gates(model, gates), fill=self._fill(), states=how)
        value = self._worth(examples[origin], active, inputs)
        out = np.zeros(kept.shape)
        out[row, player] = (value[row] - value[len(base) :]) * np.where(kept[row, player], 1, -1)
        return out

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

    def _in_batches(self, examples: Ints, wanted: Bools, rows: Ints, run: Callable[[Batch], None]) -> None:
        """Run over all rows in batches; where memory runs out, in ever smaller ones."""
        self._fill()  # before the batches, since it runs batches of its own

        def one(batch: Batch) -> None:
            before = self.evaluator.forwards
            try:
                run(batch)
            except (RuntimeError, MemoryError):
                self.evaluator.forwards = before  # it may be tried again, in parts
                raise
            self.evaluator.tick()

        batches = [Batch(part, wanted[part]) for part in self._parts(examples, rows)]
        if halving(batches, one):
            self._budget = max(1, self._budget // 2)

    def _parts(self, examples: Ints, rows: Ints) -> list[Ints]:
        """Places in `examples`, sorted by length and cut where a batch, padded, would exceed the budget."""
        lengths = self.evaluator.lengths[examples]
        parts: list[list[int]] = [[]]
        total = 0
        for place in np.argsort(lengths, kind="stable"):
            if parts[-1] and (total + rows[place]) * lengths[place] > self._budget:
                parts.append([])
                total = 0
            parts[-1].append(int(place))
            total += int(rows[place])
        return [np.array(part, dtype=np.int64) for part in parts if part]
