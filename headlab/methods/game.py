"""The game that estimators play: players leave one by one, and the game says what each was worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from headlab.evaluator import Evaluator
from headlab.gates import Active, LayerStates, as_gates
from headlab.records import Bools, Ints

# Tokens of one batch of walks: enough to fill the matrix units, few enough to stay in the processor's caches.
WALK_TOKENS = 1024
Gains = npt.NDArray[np.int8]


class Game(Protocol):
    """What an estimator knows of a model: players, examples, and gains along orders."""

    @property
    def players(self) -> int:
        """Number of players."""
        ...

    @property
    def examples(self) -> int:
        """Number of examples."""
        ...

    def gains(self, orders: Ints, examples: Ints) -> Gains:
        """v(before) - v(after) at each step of each walk: orders int [row, step], examples int [row].

        Row r starts with all players and loses orders[r, 0], orders[r, 1], ... on example examples[r].
        Returns int8 [row, step] in {-1, 0, 1}; positive = the player that left had helped.
        """
        ...


@dataclass
class ModelGame:
    """The game whose players are a model's heads and whose value is right (1) or wrong (0).

    Rows of one batch carry each its own coalition and start each at the layer that just changed.
    """

    evaluator: Evaluator
    ablation: str = "zero"
    tokens: int = WALK_TOKENS

    @property
    def players(self) -> int:
        """Heads of the model."""
        return self.evaluator.model.grid.size

    @property
    def examples(self) -> int:
        """Examples of the evaluator."""
        return len(self.evaluator.examples)

    def gains(self, orders: Ints, examples: Ints) -> Gains:
        """See `Game.gains`; walks run in length-sorted batches of about `tokens` tokens."""
        out = np.zeros(orders.shape, dtype=np.int8)
        for part in self._parts(examples):
            out[part] = self._walk(orders[part], examples[part])
        return out

    def _parts(self, examples: Ints) -> list[Ints]:
        """Places in `examples`, sorted by length and cut where a batch, padded, would exceed `tokens`."""
        lengths = self.evaluator.lengths[examples]
        parts: list[list[int]] = [[]]
        for place in np.argsort(lengths, kind="stable"):
            if parts[-1] and (len(parts[-1]) + 1) * lengths[place] > self.tokens:
                parts.append([])
            parts[-1].append(int(place))
        return [np.array(part, dtype=np.int64) for part in parts]

    def _walk(self, orders: Ints, examples: Ints) -> Gains:
        evaluator, model = self.evaluator, self.evaluator.model
        inputs, labels = evaluator.tensors(examples), evaluator.labels[examples]
        flat, rows = model.grid.flat, np.arange(len(orders))
        gates = as_gates(model, np.ones((len(orders), model.grid.layers, model.grid.width), dtype=bool))
        fill = evaluator.fill(self.ablation)
        states = LayerStates(model.grid.layers) if model.resumable else None
        right = np.zeros((len(orders), orders.shape[1] + 1), dtype=np.int8)
        for step in range(orders.shape[1] + 1):
            if step:
                layer, head = flat[orders[:, step - 1]].T
                gates[rows, layer, head] = 0
                if states is not None:
                    states.begin(torch.as_tensor(layer, device=model.device))
            right[:, step] = self._right(inputs, labels, Active(gates=gates, fill=fill, states=states))
            evaluator.tick()
        return right[:, :-1] - right[:, 1:]

    def _right(self, inputs: dict[str, torch.Tensor], labels: Ints, active: Active) -> Bools:
        with torch.inference_mode(), self.evaluator.model.active(active):
            predicted = self.evaluator.logits(inputs).argmax(dim=1).cpu().numpy()
        return np.asarray(predicted == labels)

    def parts(self) -> list[Ints]:
        """Examples in length-sorted batches, for `without_each`."""
        return self._parts(np.arange(self.examples))

    def without_each(self, rows: Ints) -> Gains:
        """v(all) - v(all without h) for every head and the given examples, int8 [head, row]."""
        evaluator, model = self.evaluator, self.evaluator.model
        inputs, labels = evaluator.tensors(rows), evaluator.labels[rows]
        fill = evaluator.fill(self.ablation)
        states = LayerStates(model.grid.layers) if model.resumable else None
        gates = as_gates(model, np.ones((model.grid.layers, model.grid.width), dtype=bool))
        out = np.zeros((model.grid.size, len(rows)), dtype=np.int8)
        whole = self._right(inputs, labels, Active(gates=gates, states=states)).astype(np.int8)
        for player, (layer, head) in enumerate(model.grid.flat):
            if states is not None:
                states.begin(torch.full((len(rows),), int(layer), device=model.device), frozen=True)
            gates[layer, head] = 0
            out[player] = whole - self._right(inputs, labels, Active(gates=gates, fill=fill, states=states))
            gates[layer, head] = 1
            evaluator.tick()
        return out
