"""Running an estimator: its snapshots saved, reported and, at the end, answered with."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Protocol, TypeVar

import numpy as np

from headlab.errors import HeadlabError
from headlab.methods.game import Game
from headlab.methods.model_game import ModelGame
from headlab.methods.work import Arrays, Outcome, Work
from headlab.progress import Progress
from headlab.values import value_of

# Of a run's time that its checkpoints may take.
SHARE = 0.01


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


def game_of(work: Work) -> Game:
    """The game that a piece of work is about, on this device or on those that it is shared with."""
    if work.saved is not None:
        work.evaluator.forwards = int(work.saved.get("forwards", 0))
    own = ModelGame(work.evaluator, work.ablation, value_of(str(work.options.get("value", "accuracy"))))
    return own if work.helpers is None else work.helpers.game(own)


class Saver:
    """Keeps what a run has so far, as often as costs a hundredth of its time.

    save: keeps arrays.  clock: seconds.  The first offer is kept at once; one that came too soon is kept by `flush`.
    """

    def __init__(self, save: Callable[[Arrays], None], clock: Callable[[], float] = time.perf_counter) -> None:
        self._save, self._clock = save, clock
        self._due = -math.inf
        self._waiting: Callable[[], Arrays] | None = None

    def offer(self, arrays: Callable[[], Arrays]) -> None:
        """Keep these arrays, if the last ones are old enough; they are asked for when they are kept."""
        self._waiting = arrays
        if self._clock() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Keep the arrays offered last, unless they are kept."""
        arrays, self._waiting = self._waiting, None
        if arrays is None:
            return
        began = self._clock()
        self._save(arrays())
        ended = self._clock()
        self._due = ended + (ended - began) / SHARE


@contextmanager
def saving(save: Callable[[Arrays], None], clock: Callable[[], float] = time.perf_counter) -> Iterator[Saver]:
    """A saver for a run, as `Saver`; if the run is broken off in order, what it has then is kept."""
    saver = Saver(save, clock)
    try:
        yield saver
    except BaseException:
        with suppress(HeadlabError):  # why the run ended matters more; the last checkpoint stands
            saver.flush()
        raise


def drive(work: Work, start: S, snapshots: Iterable[S]) -> Outcome:
    """Save and report every snapshot; the outcome of the last one."""
    last = start
    work.report(last.progress())
    with saving(work.save) as saver:
        for snapshot in snapshots:
            saver.offer(partial(_arrays, snapshot, work.evaluator.forwards))
            work.report(snapshot.progress())
            last = snapshot
    return last.outcome()


def _arrays(snapshot: Snapshot, forwards: int) -> Arrays:
    return {**snapshot.arrays(), "forwards": np.array(forwards)}
