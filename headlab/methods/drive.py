"""Running an estimator: its snapshots saved, reported and, at the end, answered with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

import numpy as np

from headlab.methods.game import ModelGame
from headlab.methods.work import Arrays, Outcome, Progress, Work
from headlab.values import value_of


class Snapshot(Protocol):
    """What an estimator knows so far."""

    def outcome(self) -> Outcome:
        """The answer as it stands."""
        ...

    def arrays(self) -> Arrays:
        """What it takes to go on from here, to the same end, bit for bit."""
        ...

    def progress(self) -> Progress:
        """How far it is."""
        ...


S = TypeVar("S", bound=Snapshot)


def game_of(work: Work) -> ModelGame:
    """The game that a piece of work is about."""
    if work.saved is not None:
        work.evaluator.forwards = int(work.saved.get("forwards", 0))
    return ModelGame(work.evaluator, work.ablation, value_of(str(work.options["value"])))


def drive(work: Work, start: S, snapshots: Iterable[S]) -> Outcome:
    """Save and report every snapshot; the outcome of the last one."""
    last = start
    work.report(last.progress())
    for snapshot in snapshots:
        work.save({**snapshot.arrays(), "forwards": np.array(work.evaluator.forwards)})
        work.report(snapshot.progress())
        last = snapshot
    return last.outcome()
