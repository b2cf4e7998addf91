"""Running a method: looked up in the store, or computed with checkpoints and stored.

A look at a run; its pace.
"""

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
    import_implementation,
    require_own_output,
    require_seed,
    require_type,
    shown_progress,
)
from headlab.evaluation import Evaluator
from headlab.hooks import Model, not_finite_error
from headlab.methods.costs import require_players, require_stand_in
from headlab.methods.method import Method
from headlab.methods.spec import make_spec
from headlab.methods.superseded import with_version
from headlab.methods.table import DEFAULT_METHOD, HOME
from headlab.methods.table import method as method_of
from headlab.methods.work import Arrays, EstimatorSnapshot, Helpers, Work
from headlab.methods.work import Outcome as Outcome
from headlab.models import origin_now
from headlab.results import HeadScores, Result, Store, StoredRun, read_arrays
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
    progress: bool | None = None,
    tick: Callable[[], None] | None = None,
    helpers: Helpers | None = None,
    **options: Any,
) -> HeadScores:
    """Score every head of a model in one language.

    Args:
        model: The model.
        task: The task.
        language: May be omitted when the task has only one.
        method: A key of `headlab.methods.table.METHODS`.
        seed: Seed of all that is drawn at random.
        split: Of the task.
        size: Number of examples; None for all.
        ablation: What stands in the place of a removed head, one of `headlab.core.ABLATIONS`.
        store: Where a finished result is looked up and stored, and from which an interrupted run
            resumes; None stores nothing.
        on_progress: Called as steps finish; may raise to stop.
        progress: Whether a bar shows the progress; None for one in a notebook and on a terminal,
            unless `on_progress` is given.
        tick: Called between batches; may raise to stop.
        helpers: Other devices that do the work, with bit-identical results.
        **options: The method's.

    Raises:
        HeadlabError: Arguments are invalid.
    """
    require_type("task", task, Task, "a task that headlab.task returns")
    method_row = method_of(method).for_task(task.likelihood)
    require_type("store", store, (Store, NoneType), "headlab.results.store.Store of a folder")
    seed = require_seed(seed)
    resolved_options = method_row.resolve(options)
    require_players(method_row, model.grid, resolved_options)
    require_one_device(model, helpers, ablation)
    require_stand_in(method_row, ablation, resolved_options)
    model.require_ablation(ablation)
    evaluator = Evaluator(model, task, only_language(task, language), split, size)
    spec = make_spec(evaluator.dataset, method_row, resolved_options, seed, ablation)
    stored_run = None
    if store is not None:
        stored_run = store.run(spec)
        store.note_places(spec, model, task)
        finished = stored_result(stored_run, model.grid)
        if finished is not None:
            # Older results do not hold the omissions.
            return replace(finished.record, omissions=evaluator.omissions_under(ablation))
    evaluator.tick = tick or evaluator.tick
    title = f"{method_row.key}, {evaluator.language}"
    with shown_progress(title, progress, on_progress) as report:
        return _compute(evaluator, method_row, spec, stored_run, report, helpers)


def require_one_device(model: Model, helpers: Helpers | None, ablation: str) -> None:
    """Raise HeadlabError if other devices, which know heads only, are to do more than they can.

    They switch no other players, and put in no outputs on other texts.
    """
    if helpers is not None:
        require_own_output(ablation, "other devices compute")
    if helpers is not None and model.player_set is not None:
        raise HeadlabError(
            f"other devices switch heads only, and {model.players} are asked for; compute on this "
            "device alone",
            code="players.other_devices",
        )


def stored_result(run: StoredRun, grid: HeadGrid) -> Result[HeadScores] | None:
    """The finished result of a run, or that of an earlier version of its method.

    An earlier version's result has the same settings. It does not count if it has no intervals, or
    is from before the settings were renewed (see `Method`).

    Args:
        run: The run.
        grid: Of the run's model.

    Raises:
        HeadlabError: The result is of other heads: earlier versions of headlab found fewer of them
            in some architectures, or numbered the layers otherwise.
    """
    method = run.spec.method
    requested_version = method.version or 1
    oldest = method_of(method.name).renewed_in(method.options or {})
    for version in range(requested_version, oldest - 1, -1):
        spec = with_version(run.spec, version)
        earlier_run = run.of_spec(spec)
        result = earlier_run.result(HeadScores)
        if result is None:
            continue
        if result.record.grid != grid:
            raise HeadlabError(
                f"the scores in {earlier_run.folder} are of other heads than this model's: an earlier "
                "version of headlab missed some of them or numbered their layers otherwise; delete that "
                "folder and run the score again",
                code="result.grid_mismatch",
            )
        if version == requested_version or result.record.low is not None:
            return result
    return None


def _compute(
    evaluator: Evaluator,
    method: Method,
    spec: RunSpec,
    stored_run: StoredRun | None,
    on_progress: Callable[[Progress], None],
    helpers: Helpers | None,
) -> HeadScores:
    """Run a method from its last snapshot on.

    Its result is stored if there is a run to store it in.
    """
    snapshot = stored_run.checkpoint() if stored_run is not None else None
    seconds_before = 0.0
    if snapshot and "seconds" in snapshot:
        seconds_before = float(snapshot["seconds"])
    started_at = time.perf_counter()

    def seconds_spent() -> float:
        """Seconds of computing, in this process or summed over the helpers' devices."""
        if helpers is not None:
            return seconds_before + evaluator.seconds_elsewhere
        return seconds_before + (time.perf_counter() - started_at)

    def save(arrays: Arrays) -> None:
        if stored_run is not None:
            stored_run.save({**arrays, "seconds": np.array(seconds_spent())})

    work = Work(
        evaluator=evaluator,
        seed=spec.seed or 0,
        options=spec.method.options or {},
        ablation=spec.ablation,
        report=on_progress,
        saved=snapshot,
        save=save,
        helpers=helpers,
    )
    outcome = outcome_of(method, work)
    is_finite = np.isfinite(outcome.values)
    if not is_finite.all():
        head = evaluator.model.grid.heads[int(np.flatnonzero(~is_finite)[0])]
        head_name = f"layer {head.layer}, head {head.head}, in {evaluator.language}"
        raise not_finite_error(
            evaluator.model,
            f"a {method.key} score that is not finite for {head_name}",
            code="model.answers_not_finite",
        )
    scores = outcome.scores(evaluator.model.grid, spec, evaluator.forwards, seconds_spent())
    scores = replace(scores, omissions=evaluator.omissions_under(spec.ablation))
    if stored_run is not None:
        device = evaluator.model.device.type if helpers is None else helpers.kind
        stored_run.finish(scores, origin_now(device) | equal_texts_record(evaluator.equal_texts))
    return scores


def outcome_of(method: Method, work: Work) -> Outcome:
    """The outcome of a method; one that uses no game runs on a helper if there is one.

    Raises:
        HeadlabError: The method cannot score what is switched.
    """
    require_players(method, work.evaluator.model.grid, work.options)
    require_one_device(work.evaluator.model, work.helpers, work.ablation)
    require_stand_in(method, work.ablation, work.options)
    if method.whole and work.helpers is not None:
        return work.helpers.outcome(method.key, work)
    outcome: Outcome = import_implementation(method.module, HOME).run(work)
    return outcome


# Inspecting a run in progress, from its last checkpoint.


def scores_so_far(run: StoredRun, grid: HeadGrid) -> HeadScores | None:
    """Scores from a run's last checkpoint, or None if it has none yet.

    Intervals of a run that checks them after whole cycles of examples only (`shapley`) are
    provisional within a cycle. Reads one file and touches no model, so any thread may call it.

    Args:
        run: The run.
        grid: Of the run's model.

    Returns:
        None if there is no checkpoint or a corrupt one, if the method saves none, or if the run has
        drawn nothing or, like one of `exact`, has no result before its end.
    """
    try:
        saved = read_arrays(run.folder / "checkpoint.npz")
    except HeadlabError:  # not written yet, removed because the run ended, or corrupt
        return None
    outcome = _saved_outcome(run, saved, grid.size)
    if outcome is None or not _has_values(outcome):
        return None
    forwards = int(saved.get("forwards", 0))
    seconds = float(saved.get("seconds", 0.0))
    return outcome.scores(grid, run.spec, forwards, seconds)


def _saved_outcome(run: StoredRun, saved: Arrays, players: int) -> Outcome | None:
    """The outcome of the saved snapshot; None if the method's module cannot restore one."""
    method = run.spec.method
    module = import_implementation(method_of(method.name).module, HOME)
    restore = getattr(module, "restore", None)
    if restore is None:
        return None
    snapshot: EstimatorSnapshot = restore(saved, method.options or {}, players)
    return snapshot.outcome()


def _has_values(outcome: Outcome) -> bool:
    """Whether an outcome has samples or slopes, and finite values."""
    has_samples = outcome.samples is None or bool(outcome.samples.any())
    if outcome.slopes is not None and outcome.slopes.draws:
        has_samples = True
    return has_samples and bool(np.isfinite(outcome.values).all())


# How long a forward pass of some work takes here and now, timed over a few batches.

# So many batches or seconds are enough, whichever comes first.
TIMED_BATCHES = 8
TIMED_SECONDS = 1.0
# Examples of plain passes: spread evenly over the split, since examples differ in length.
TIMED_EXAMPLES = 48
# Divides the tokens of a batch, as a click waits for the batches under way, and a full one of a
# language model takes three seconds.
TIMED_DIVISOR = 4


class TimedEnough(Exception):
    """Raised to end the work once it has been timed."""


class Stopwatch:
    """Times the batches of an evaluator, without what others do between them."""

    def __init__(self, evaluator: Evaluator, tick: Callable[[], None]) -> None:
        self._evaluator = evaluator
        self._tick = tick
        self._measured_at = time.perf_counter()
        self._forwards_counted = evaluator.forwards
        self._seconds_uncounted = 0.0  # since forward passes were last counted
        self.seconds = 0.0
        self.forwards = 0
        self.batches = 0

    def __call__(self) -> None:
        """Called between batches, and while they are under way.

        Raises:
            TimedEnough: Enough has been timed.
        """
        self.take()
        if self.batches and (self.batches >= TIMED_BATCHES or self.seconds >= TIMED_SECONDS):
            raise TimedEnough
        self._tick()
        self._measured_at = time.perf_counter()

    def take(self) -> None:
        """Count the forward passes and seconds since the last call."""
        time_now = time.perf_counter()
        self._seconds_uncounted += time_now - self._measured_at
        self._measured_at = time_now
        new_forwards = self._evaluator.forwards - self._forwards_counted
        if new_forwards > 0:
            self.seconds += self._seconds_uncounted
            self._seconds_uncounted = 0.0
            self.forwards += new_forwards
            self._forwards_counted += new_forwards
            self.batches += 1

    @property
    def pace(self) -> float:
        """Seconds per forward pass."""
        return self.seconds / max(1, self.forwards)


def seconds_per_forward(
    evaluator: Evaluator,
    method: str | None = None,
    options: Mapping[str, Json] = MappingProxyType({}),
) -> float:
    """Seconds per forward pass of some work on this device now; nothing is stored.

    Args:
        evaluator: Of the model and the examples.
        method: Key of the method that is timed; None for plain passes.
        options: Of the method.
    """
    grid = evaluator.model.grid
    all_gates = grid.gates(np.ones(grid.size, bool))
    size = len(evaluator.examples)
    spread_evenly = np.linspace(0, size - 1, min(TIMED_EXAMPLES, size)).astype(np.int64)
    batches = evaluator.batches_by_tokens(np.unique(spread_evenly), TIMED_DIVISOR)
    # Batches are sorted by length: those of usual lengths come first.
    middle = len(batches) // 2
    usual_first = sorted(range(len(batches)), key=lambda index: abs(index - middle))
    batches = [batches[index] for index in usual_first]
    timed_evaluator = copy(evaluator)
    timed_evaluator.state_bytes = 0  # or a batch would go on from its own earlier pass
    # The first batch of a model is slow, so it runs once before.
    deque(timed_evaluator.answers(batches[:1], all_gates, "zero"), maxlen=0)
    stopwatch = Stopwatch(timed_evaluator, evaluator.tick)
    timed_evaluator.tick = stopwatch
    with suppress(TimedEnough):
        if method is None:
            deque(timed_evaluator.answers(batches, all_gates, "zero"), maxlen=0)
        else:
            method_row = method_of(method).for_task(evaluator.task.likelihood)
            resolved_options = method_row.resolve(options)
            outcome_of(method_row, Work(timed_evaluator, 0, resolved_options, samples_only=True))
        stopwatch.take()
    return stopwatch.pace
