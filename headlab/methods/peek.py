"""A look at a run that is under way, from what it has saved so far."""

from __future__ import annotations

from importlib import import_module

import numpy as np

from headlab.errors import HeadlabError
from headlab.methods.drive import Snapshot
from headlab.methods.table import method as method_of
from headlab.methods.work import Arrays, Outcome
from headlab.records import HeadGrid
from headlab.scores import HeadScores
from headlab.store import Run, read_arrays


def peek(run: Run, grid: HeadGrid) -> HeadScores | None:
    """Scores as a run's last checkpoint gives them, or None where it gives none.

    grid: of the run's model.  None: no checkpoint or a torn one, a method that saves none, a run that has
    drawn nothing or, as `exact`, has no answer before its end. Intervals of a run that looks at them
    after whole cycles of examples only (`shapley`) are provisional in the middle of one.  Reads one file
    and touches no model, so any thread may call it.
    """
    try:
        saved = read_arrays(run.folder / "checkpoint.npz")
    except HeadlabError:  # not there yet, gone because the run ended, or torn: there is nothing to see
        return None
    outcome = _outcome(run, saved, grid.size)
    if outcome is None or not _told(outcome):
        return None
    return outcome.scores(grid, run.spec, int(saved.get("forwards", 0)), float(saved.get("seconds", 0.0)))


def _outcome(run: Run, saved: Arrays, players: int) -> Outcome | None:
    """The snapshot's answer; None if the method's module cannot restore one."""
    module = import_module(f"headlab.methods.{method_of(run.spec['method']['name']).module}")
    restore = getattr(module, "restore", None)
    if restore is None:
        return None
    snapshot: Snapshot = restore(saved, run.spec["method"]["options"], players)
    return snapshot.outcome()


def _told(outcome: Outcome) -> bool:
    """Whether an outcome says anything yet."""
    drawn = outcome.samples is None or bool(outcome.samples.any())
    return drawn and bool(np.isfinite(outcome.values).all())
