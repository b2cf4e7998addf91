"""Looking at a running job: which run it is computing, and its scores so far as the worker sends them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headlab.errors import HeadlabError
from headlab.records import Evaluation, HeadGrid, Ints
from headlab.scores import HeadScores
from headlab.store import Record, Run, Store
from headlab.store.folder import Arrays

ARRAYS = ("values", "low", "high", "samples", "p_values")
PLAIN = ("language", "method", "estimand", "unit", "example_forwards", "seconds", "level")


@dataclass(frozen=True)
class WatchedRun(Run):
    """A run that calls `kept` when it has stored something new."""

    kept: Callable[[], None] = lambda: None

    def save(self, arrays: Arrays) -> None:
        """See `Run.save`."""
        super().save(arrays)
        self.kept()


class WatchedStore(Store):
    """A store that calls `begun` with each run asked for, about to be computed, and `kept` when it stores something."""

    def __init__(self, root: Path, begun: Callable[[Run], None], kept: Callable[[], None] = lambda: None) -> None:
        super().__init__(root)
        self._begun, self._kept = begun, kept

    def run(self, spec: Mapping[str, Any]) -> Run:
        """The run of a spec, finished or not."""
        run = super().run(spec)
        self._begun(run)
        return WatchedRun(run.folder, run.spec, self._kept)


@dataclass(frozen=True)
class KeptRun(Run):
    """A run that calls `told` with itself once it has stored something, and with whether that was all."""

    told: Callable[[Run, bool], None] = lambda run, finished: None

    def save(self, arrays: Arrays) -> None:
        """See `Run.save`."""
        super().save(arrays)
        self.told(self, False)

    def finish(self, record: Record, meta: Mapping[str, Any]) -> None:
        """See `Run.finish`."""
        super().finish(record, meta)
        self.told(self, True)

    def keep_answers(self, digest: str, evaluation: Evaluation, units: Ints) -> None:
        """See `Run.keep_answers`."""
        super().keep_answers(digest, evaluation, units)
        self.told(self, True)


class KeptStore(Store):
    """A store that calls `told` for runs that something was stored of, not for those only looked up."""

    def __init__(self, root: Path, told: Callable[[Run, bool], None]) -> None:
        super().__init__(root)
        self._told = told

    def run(self, spec: Mapping[str, Any]) -> Run:
        """The run of a spec, finished or not."""
        run = super().run(spec)
        return KeptRun(run.folder, run.spec, self._told)


def told(scores: HeadScores) -> dict[str, Any]:
    """Scores as plain values: the fields of `headlab.worker.schemas.Scores`; only finished ones have halves."""
    arrays = {name: getattr(scores, name) for name in ARRAYS}
    plain = {name: getattr(scores, name) for name in PLAIN}
    lists = {name: None if array is None else array.tolist() for name, array in arrays.items()}
    return {"grid": scores.grid.to_json(), "spec": dict(scores.spec), **plain, **lists}


def scores_of(answer: Mapping[str, Any]) -> HeadScores | None:
    """The scores in a worker's answer; None if there are none. Raises HeadlabError if they are malformed."""
    given = answer.get("scores")
    if given is None:
        return None
    try:
        grid = HeadGrid.from_json(given["grid"])
        arrays = {name: _array(given[name], np.int64 if name == "samples" else np.float64) for name in ARRAYS}
        if any(array is not None and array.shape != (grid.size,) for array in arrays.values()):
            raise ValueError("another size than the grid's")
        fields: dict[str, Any] = {name: given[name] for name in PLAIN} | arrays
        return HeadScores(grid, spec=given["spec"], **fields)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise HeadlabError(
            f"the worker's answer about a running job cannot be read ({type(error).__name__}); "
            "is it a headlab worker of this version?",
            code="worker.snapshot_malformed",
        ) from error


def _array(values: Any, kind: type) -> np.ndarray[Any, Any] | None:
    return None if values is None else np.array(values, kind)
