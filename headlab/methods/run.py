"""Running a method: looked up in the store, or computed with checkpoints and stored; a look at a run; its pace."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import replace
from types import MappingProxyType, NoneType
from typing import Any

import numpy as np

from headlab.core import (
    HeadGrid,
    HeadlabError,
    Json,
    Progress,
    RunSpec,
    implementation,
    require_seed,
    require_type,
)
from headlab.evaluation import Evaluator
from headlab.hooks import Model, not_finite
from headlab.methods.method import Method
from headlab.methods.spec import make_spec, recorded_version
from headlab.methods.table import DEFAULT_METHOD, HOME
from headlab.methods.table import method as method_of
from headlab.methods.work import Arrays, Helpers, Snapshot, Work
from headlab.methods.work import Outcome as Outcome
from headlab.models import made_now
from headlab.results import HeadScores, Result, Run, Store, read_arrays
from headlab.tasks import DEV_SIZE, Split, Task, equal_texts_record, only_language

# Running a method: spec, checkpoint, progress, record. Used by library, command line and worker.


def score(
    model: Model,
    task: Task,
    *,
    language: str | None = None,
    method: str = DEFAULT_METHOD,
    seed: int = 0,
    split: Split = "dev",
    size: int | None = DEV_SIZE,
    ablation: str = "zero",
    store: Store | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    tick: Callable[[], None] | None = None,
    helpers: Helpers | None = None,
    **options: Any,
) -> HeadScores:
    """Score every head of a model in one language.

    language: may be omitted when the task has only one.  method: a key of `headlab.methods.table.METHODS`;
    options are the method's.  store: where a finished result is looked up and stored, and from which an
    interrupted run resumes; None stores nothing.  on_progress: called as steps finish.  tick:
    called between batches; either may raise to stop.  helpers: other devices that do the work, with bit-identical
    results.  Raises HeadlabError for invalid arguments.
    """
    chosen = method_of(method)
    require_type("store", store, (Store, NoneType), "headlab.results.store.Store of a folder")
    seed = require_seed(seed)
    resolved = chosen.resolve(options)
    evaluator = Evaluator(model, task, only_language(task, language), split, size)
    spec = make_spec(evaluator.dataset, chosen, resolved, seed, ablation)
    run = store.run(spec) if store is not None else None
    if store is not None:
        store.note_places(spec, model, task)
    done = stored(run, model.grid) if run is not None else None
    if done is not None:
        return replace(
            done.record, omissions=evaluator.omissions
        )  # which older results do not hold
    evaluator.tick = tick or evaluator.tick
    return _compute(evaluator, chosen, spec, run, on_progress or (lambda _: None), helpers)


def stored(run: Run, grid: HeadGrid) -> Result[HeadScores] | None:
    """The finished result of a run, or that of an earlier version of its method with the same settings.

    One of an earlier version without intervals does not count, nor one from before the settings were renewed (see
    `Method`).  grid: of the run's model.  Raises HeadlabError for a result of other heads: earlier versions of headlab
    found fewer of them in some architectures, or numbered the layers otherwise.
    """
    method = run.spec.method
    requested_version = method.version or 1
    oldest = method_of(method.name).renewed_in(method.options or {})
    for version in range(requested_version, oldest - 1, -1):
        earlier_method = replace(method, version=recorded_version(version))
        spec = replace(run.spec, method=earlier_method)
        earlier = Run(run.folder.parent / spec.key, spec)
        result = earlier.result(HeadScores)
        if result is None:
            continue
        if result.record.grid != grid:
            raise HeadlabError(
                f"the scores in {earlier.folder} are of other heads than this model's: an earlier version of headlab "
                "missed some of them or numbered their layers otherwise; delete that folder and run the score again",
                code="result.grid_mismatch",
            )
        if version == requested_version or result.record.low is not None:
            return result
    return None


def _compute(
    evaluator: Evaluator,
    chosen: Method,
    spec: RunSpec,
    run: Run | None,
    on_progress: Callable[[Progress], None],
    helpers: Helpers | None,
) -> HeadScores:
    saved = run.checkpoint() if run is not None else None
    before, started = (
        float(saved["seconds"]) if saved and "seconds" in saved else 0.0,
        time.perf_counter(),
    )

    def spent() -> float:
        """Seconds of computing, in this process or summed over the helpers' devices."""
        return before + (time.perf_counter() - started if helpers is None else evaluator.elsewhere)

    def save(arrays: Arrays) -> None:
        if run is not None:
            run.save({**arrays, "seconds": np.array(spent())})

    work = Work(
        evaluator=evaluator,
        seed=spec.seed or 0,
        options=spec.method.options or {},
        ablation=spec.ablation,
        report=on_progress,
        saved=saved,
        save=save,
        helpers=helpers,
    )
    outcome = outcome_of(chosen, work)
    if not np.isfinite(outcome.values).all():
        first = evaluator.model.grid.heads[int(np.flatnonzero(~np.isfinite(outcome.values))[0])]
        place = f"layer {first.layer}, head {first.head}, in {evaluator.language}"
        raise not_finite(
            evaluator.model,
            f"a {chosen.key} score that is not finite for {place}",
            code="model.answers_not_finite",
        )
    scores = outcome.scores(evaluator.model.grid, spec, evaluator.forwards, spent())
    scores = replace(scores, omissions=evaluator.omissions)
    if run is not None:
        device = evaluator.model.device.type if helpers is None else helpers.kind
        run.finish(scores, made_now(device) | equal_texts_record(evaluator.equal_texts))
    return scores


def outcome_of(chosen: Method, work: Work) -> Outcome:
    """The outcome of a method; one that uses no game runs on a helper if there is one."""
    if chosen.whole and work.helpers is not None:
        return work.helpers.outcome(chosen.key, work)
    found: Outcome = implementation(chosen.module, HOME).run(work)
    return found


# Inspecting a run in progress, from its last checkpoint.


def peek(run: Run, grid: HeadGrid) -> HeadScores | None:
    """Scores from a run's last checkpoint, or None if it has none yet.

    grid: of the run's model.  None: no checkpoint or a corrupt one, a method that saves none, or a run that has
    drawn nothing or, like `exact`, has no result before its end. Intervals of a run that checks them
    after whole cycles of examples only (`shapley`) are provisional within a cycle.  Reads one file
    and touches no model, so any thread may call it.
    """
    try:
        saved = read_arrays(run.folder / "checkpoint.npz")
    except HeadlabError:  # not written yet, removed because the run ended, or corrupt
        return None
    outcome = _outcome(run, saved, grid.size)
    if outcome is None or not _told(outcome):
        return None
    return outcome.scores(
        grid, run.spec, int(saved.get("forwards", 0)), float(saved.get("seconds", 0.0))
    )


def _outcome(run: Run, saved: Arrays, players: int) -> Outcome | None:
    """The outcome of the saved snapshot; None if the method's module cannot restore one."""
    method = run.spec.method
    restore = getattr(implementation(method_of(method.name).module, HOME), "restore", None)
    if restore is None:
        return None
    snapshot: Snapshot = restore(saved, method.options or {}, players)
    return snapshot.outcome()


def _told(outcome: Outcome) -> bool:
    """Whether an outcome has samples and finite values."""
    drawn = outcome.samples is None or bool(outcome.samples.any())
    return drawn and bool(np.isfinite(outcome.values).all())


# How long a forward pass of some work takes here and now, timed over a few batches.

BATCHES, SECONDS = 8, 1.0  # enough, whichever comes first
EXAMPLES = 48  # of plain passes: spread evenly over the split, since examples differ in length
# Small batches: a click waits for the ones under way, and a full one of a language model takes three seconds.
TIMED_SHARE = 4


class Enough(Exception):
    """Raised to end the work once it has been timed."""


class Stopwatch:
    """Times the batches of an evaluator, without what others do between them."""

    def __init__(self, evaluator: Evaluator, tick: Callable[[], None]) -> None:
        self._evaluator, self._tick = evaluator, tick
        self._since, self._counted = time.perf_counter(), evaluator.forwards
        self._open = 0.0  # seconds since forwards were last counted
        self.seconds, self.forwards, self.batches = 0.0, 0, 0

    def __call__(self) -> None:
        """Called between batches, and while they are under way. Raises Enough once enough has been timed."""
        self.take()
        if self.batches and (self.batches >= BATCHES or self.seconds >= SECONDS):
            raise Enough
        self._tick()
        self._since = time.perf_counter()

    def take(self) -> None:
        """Count the forward passes and seconds since the last call."""
        now, counted = time.perf_counter(), self._evaluator.forwards
        self._open += now - self._since
        self._since = now
        if counted > self._counted:
            self.seconds, self._open = self.seconds + self._open, 0.0
            self.forwards, self._counted = self.forwards + counted - self._counted, counted
            self.batches += 1

    @property
    def pace(self) -> float:
        """Seconds per forward pass."""
        return self.seconds / max(1, self.forwards)


def timed(
    evaluator: Evaluator,
    method: str | None = None,
    options: Mapping[str, Json] = MappingProxyType({}),
) -> float:
    """Seconds per forward pass of a method, or of a plain one (None), on this device now; nothing is stored."""
    count, whole = (
        len(evaluator.examples),
        evaluator.model.grid.gates(np.ones(evaluator.model.grid.size, bool)),
    )
    batches = evaluator.cut(
        np.unique(np.linspace(0, count - 1, min(EXAMPLES, count)).astype(np.int64)), TIMED_SHARE
    )
    middle = len(batches) // 2  # batches are sorted by length: the usual one first
    batches = [
        batches[place]
        for place in sorted(range(len(batches)), key=lambda place: abs(place - middle))
    ]
    lane = copy(evaluator)
    lane.state_bytes = 0  # or a batch would go on from its own earlier pass
    deque(lane.answers(batches[:1], whole, "zero"), maxlen=0)  # the first batch of a model is slow
    lane.tick = watch = Stopwatch(lane, evaluator.tick)
    with suppress(Enough):
        if method is None:
            deque(lane.answers(batches, whole, "zero"), maxlen=0)
        else:
            chosen = method_of(method)
            outcome_of(chosen, Work(lane, 0, chosen.resolve(options)))
        watch.take()
    return watch.pace
