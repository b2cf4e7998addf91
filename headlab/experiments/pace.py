"""How long a forward takes: as stored results took, or as a few batches do that are timed."""

from __future__ import annotations

import time
from collections import deque
from functools import cached_property

import numpy as np

from headlab.evaluator import Evaluator
from headlab.experiments.ask import Ask
from headlab.experiments.pieces import Pieces
from headlab.methods.costs import pace as pace_of

EXAMPLES = 48  # of one split; spread over it, since its examples differ in length
# A forward and its backward pass, in forwards.
BACKWARD = 3.0
PARTIAL = ("shapley", "leave-one-out", "exact", "monte-carlo")


class Pace:
    """Seconds a forward of a piece takes; what it rests on, in words, grows as it is asked."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._timed: float | None = None
        self._rests: dict[str, None] = {}

    @property
    def words(self) -> str:
        """What the answers so far rest on."""
        return "; ".join(self._rests)

    def of(self, ask: Ask) -> float:
        """Seconds a forward of this piece."""
        if ask.kind == "scores":
            name = self._pieces.model.identity()["name"]
            seen = pace_of(self._pieces.known_scores(), name, self._pieces.task.name, ask.method)
            if seen is not None:
                self._rests[f"{ask.method} at {_told(seen)} a forward, as in the cache's results"] = None
                return seen
        if ask.kind == "curve" and (known := self._curves) is not None:
            self._rests[f"curves at {_told(known)} a forward, as in the cache's"] = None
            return known
        return self._plain(ask) * self._share(ask)

    @cached_property
    def _curves(self) -> float | None:
        """Seconds a forward took in the stored curves of the model and task, by their median."""
        pieces = self._pieces
        own = pieces.model.identity()["name"], pieces.task.name
        listed = [] if pieces.store is None else [r.curve for r in pieces.store.curves().results]
        seen = [
            curve.seconds / curve.example_forwards
            for curve in listed
            if curve.example_forwards and (curve.spec["model"]["name"], curve.spec["task"]["name"]) == own
        ]
        return float(np.median(seen)) if seen else None

    def _share(self, ask: Ask) -> float:
        """What a forward costs, in plain ones."""
        if ask.kind != "scores":
            return 1.0
        if ask.method in ("gradient", "relevance"):
            self._rests["a backward pass as two forwards"] = None
            return BACKWARD
        if ask.method in PARTIAL and self._pieces.model.resumable:
            layers = self._pieces.model.grid.layers
            self._rests[f"{ask.method} at about half a forward, since each starts at the layer of a head"] = None
            return (layers + 1) / (2 * layers)
        return 1.0

    def _plain(self, ask: Ask) -> float:
        if self._timed is None:
            split = "dev" if ask.kind == "scores" else "test"
            self._timed = timed(self._pieces.evaluator(ask.language, "dev" if split == "dev" else "test"))
            self._rests[f"{_told(self._timed)} a forward, as just timed on {split} examples of {ask.language}"] = None
        return self._timed


def timed(evaluator: Evaluator) -> float:
    """Seconds a plain forward takes on this device now, over examples from the whole split; nothing is kept."""
    model, count = evaluator.model, len(evaluator.examples)
    rows = np.unique(np.linspace(0, count - 1, min(EXAMPLES, count)).astype(np.int64))
    batches, gates = evaluator.cut(rows), model.grid.gates(np.ones(model.grid.size, bool))
    deque(evaluator.answers(batches[:1], gates, "zero"), maxlen=0)  # the first batch of a model is slow
    began = time.perf_counter()
    deque(evaluator.answers(batches, gates, "zero"), maxlen=0)
    return (time.perf_counter() - began) / len(rows)


def _told(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"
