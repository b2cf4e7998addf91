"""Running a method: its inputs, its snapshots (saved and inspected), and the final record."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType, NoneType
from typing import Any, Protocol, TypeVar

import numpy as np

from headlab.errors import HeadlabError, require_seed, require_type
from headlab.evaluator import Batch, Dataset, Evaluator
from headlab.extensions import implementation
from headlab.hooks.model import Model, not_finite
from headlab.hooks.tokens import tokens_version
from headlab.inputs import classes_of
from headlab.json_types import Json, JsonRecord, plain_object
from headlab.methods.game import Game
from headlab.methods.method import Method
from headlab.methods.model_game import ModelGame
from headlab.methods.table import DEFAULT_METHOD
from headlab.methods.table import method as method_of
from headlab.models.checkpoint import made_now
from headlab.parallel import Tick, spread
from headlab.records import Floats, HeadGrid, Ints, Progress
from headlab.run_spec import FORMAT, MethodSpec, ModelSpec, RunSpec, TaskSpec
from headlab.scores import HeadScores
from headlab.stats import jackknife_interval
from headlab.store import ANSWERS, Result, Run, Store, read_arrays
from headlab.store.folder import Arrays as Arrays
from headlab.tasks.base import DEV_SIZE, Split, Task
from headlab.tasks.equal_texts import equal_texts_record
from headlab.value_functions import value_of

# Input and output of a method.

HOME = "headlab.methods"  # package of the modules that the table names by one word


def _ignore(_: object) -> None:
    """Default for `report` and `save`: do nothing."""


class Helpers(Protocol):
    """Other devices, with the same model on each."""

    @property
    def kind(self) -> str:
        """Kind of the devices: "cpu" or "cuda"."""

    def game(self, own: ModelGame) -> Game:
        """The same game as `own`, computed on these devices."""

    def outcome(self, name: str, work: Work) -> Outcome:
        """The outcome of a method (see `Method.whole`) run on one of these devices."""


@dataclass(frozen=True)
class Work:
    """One method on one language: the evaluator, the options, and callbacks to report and to save.

    saved: arrays of an earlier, interrupted run of the same spec.  save: stores arrays so that a later
    run can resume from here.  helpers: other devices that do the work; None uses this one only.
    """

    evaluator: Evaluator
    seed: int
    options: Mapping[str, Any]
    ablation: str = "zero"
    report: Callable[[Progress], None] = _ignore
    saved: Arrays | None = None
    save: Callable[[Arrays], None] = _ignore
    helpers: Helpers | None = None


@dataclass(frozen=True)
class Outcome:
    """Result of a method, flat arrays [head]; fields as in `HeadScores`."""

    values: Floats
    low: Floats | None = None
    high: Floats | None = None
    samples: Ints | None = None
    p_values: Floats | None = None
    level: float = 0.95
    halves: Floats | None = None

    def scores(self, grid: HeadGrid, spec: RunSpec, forwards: int, seconds: float) -> HeadScores:
        """The record of this outcome; method and language are taken from the spec."""
        chosen, options = method_of(spec.method.name), spec.method.options or {}
        return HeadScores(
            grid=grid,
            language=spec.task.language,
            method=chosen.key,
            estimand=str(options.get("estimand", chosen.estimand)),
            unit=chosen.unit_of(options),
            example_forwards=forwards,
            seconds=seconds,
            spec=spec,
            signed=chosen.signed,
            **vars(self),
        )


@contextmanager
def reporting(work: Work, forwards_per_unit: int, total: int, note: str) -> Iterator[None]:
    """Report progress between batches, in units of `forwards_per_unit` forward passes, until the block ends."""
    evaluator, tick = work.evaluator, work.evaluator.tick

    def counted() -> None:
        work.report(Progress(min(evaluator.forwards // forwards_per_unit, total), total, note))
        tick()

    evaluator.tick = counted
    try:
        yield
    finally:
        evaluator.tick = tick


def sizes(
    work: Work,
    batches: Iterable[Batch],
    part: Callable[[Evaluator, Batch, Tick], tuple[Floats, Floats]],
    of: Callable[[Floats], Floats] = np.asarray,
    most: float = math.inf,
) -> Outcome:
    """Sizes of heads, averaged over examples: `of` the sum of the parts over that of their weights, [head].

    Intervals at 95 % and halves cover the sampling of the examples.  part: sums of a batch's examples, none below 0,
    [row, layer, head], and their weights, [row] or [row, layer]; or one row for the whole batch, which then stands for
    an example.  It is given an evaluator of its own, whose forward passes are not counted if it fails.  most: no size
    is above.
    """
    evaluator = work.evaluator
    examples, flat = evaluator.examples, tuple(evaluator.model.grid.flat.T)
    sums, weights = np.zeros((2, len(examples), len(flat[0])))
    groups = [e.cluster for e in examples]

    def run(batch: Batch, tick: Tick) -> tuple[Floats, Floats, int]:
        lane = copy(evaluator)
        lane.forwards = 0
        return *part(lane, batch, tick), lane.forwards

    done = 0
    for batch, (found, own, forwards) in spread(
        batches, run, on=evaluator.model, tick=evaluator.tick
    ):
        rows = batch.rows[: len(own)]
        sums[rows] = found[:, *flat]
        weights[rows] = own[:, flat[0]] if own.ndim > 1 else own[:, None]
        if len(rows) < len(batch.rows):
            groups[rows[0]] = f"batch of {rows[0]}"
        evaluator.forwards, done = evaluator.forwards + forwards, done + len(batch.rows)
        work.report(Progress(done, len(examples), "examples"))
    low, high = jackknife_interval(sums, weights, groups, of, most=most) or (None, None)
    halves = [
        of(part.sum(axis=0) / weight.sum(axis=0))
        for part, weight in zip(np.array_split(sums, 2), np.array_split(weights, 2), strict=True)
        if weight.any(axis=0).all()
    ]
    values, samples = of(sums.sum(axis=0) / weights.sum(axis=0)), (weights > 0).sum(axis=0)
    return Outcome(
        values, low, high, samples, halves=np.stack(halves) if len(halves) == 2 else None
    )


# Running an estimator: save and report its snapshots, and return the outcome of the last one.

# Share of a run's time that its checkpoints may take.
SHARE = 0.01


class Snapshot(Protocol):
    """State of an estimator."""

    def outcome(self) -> Outcome:
        """The current outcome."""

    def arrays(self) -> Arrays:
        """Arrays from which the run can resume with bit-identical results."""

    def progress(self) -> Progress:
        """Current progress."""


S = TypeVar("S", bound=Snapshot)


def game_of(work: Work) -> Game:
    """The game of a piece of work, on this device or on its helpers."""
    if work.saved is not None:
        work.evaluator.forwards = int(work.saved.get("forwards", 0))
    own = ModelGame(
        work.evaluator, work.ablation, value_of(str(work.options.get("value", "accuracy")))
    )
    return own if work.helpers is None else work.helpers.game(own)


class Saver:
    """Saves a run's state, at intervals such that saving takes one hundredth of the run's time.

    save: stores arrays.  clock: seconds.  The first offer is saved at once; one that came too soon is saved by `flush`.
    """

    def __init__(
        self, save: Callable[[Arrays], None], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._save, self._clock = save, clock
        self._due = -math.inf
        self._waiting: Callable[[], Arrays] | None = None

    def offer(self, arrays: Callable[[], Arrays]) -> None:
        """Save these arrays if the last save is old enough; `arrays` is called only when they are saved."""
        self._waiting = arrays
        if self._clock() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Save the arrays offered last, unless they have been saved."""
        arrays, self._waiting = self._waiting, None
        if arrays is None:
            return
        began = self._clock()
        self._save(arrays())
        ended = self._clock()
        self._due = ended + (ended - began) / SHARE


@contextmanager
def saving(
    save: Callable[[Arrays], None], clock: Callable[[], float] = time.perf_counter
) -> Iterator[Saver]:
    """A `Saver` for a run; if the run ends with an exception, its last state is saved."""
    saver = Saver(save, clock)
    try:
        yield saver
    except BaseException:
        with suppress(HeadlabError):  # why the run ended matters more; the last checkpoint remains
            saver.flush()
        raise


def drive(work: Work, start: S, snapshots: Iterable[S]) -> Outcome:
    """Save and report every snapshot; returns the outcome of the last one."""
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


# Running a method: spec, checkpoint, progress, record. Used by library, command line and worker.


def make_spec(
    dataset: Dataset, chosen: Method, options: JsonRecord, seed: int, ablation: str
) -> RunSpec:
    """Everything the numbers depend on; its key names the run."""
    version = _recorded_version(chosen.version_of(options))
    method = MethodSpec(chosen.key, plain_object(options), version)
    return replace(_evaluation_spec(dataset, ablation), method=method, seed=seed)


def answers_spec(dataset: Dataset, ablation: str = "zero") -> RunSpec:
    """Everything that answers depend on except the mask; its key names their folder.

    The kind of device is part of it, unless it is the processor: a masked model's answers are compared with these one
    by one, and another kind of device may round an answer the other way.
    """
    device = dataset.model.device.type
    return replace(
        _evaluation_spec(dataset, ablation),
        kind=ANSWERS,
        device="" if device == "cpu" else device,
    )


def _evaluation_spec(dataset: Dataset, ablation: str) -> RunSpec:
    """What every result of some examples depends on."""
    task = dataset.task
    examples = TaskSpec(
        name=task.name,
        language=dataset.language,
        split=dataset.split,
        size=len(dataset.examples),
        seed=task.seed,
        data_hash=task.data_hash(dataset.examples),
        more={
            **classes_of(dataset.model, task),
            **tokens_version(dataset.model, dataset.examples),
        },
    )
    means = ""
    if ablation == "mean":  # over these examples, whichever split is scored or evaluated
        means = task.data_hash(task.examples(dataset.language, "dev", DEV_SIZE))
    return RunSpec(
        format=FORMAT,
        model=ModelSpec.from_json(dataset.model.recorded()),
        task=examples,
        ablation=ablation,
        means=means,
    )


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
    require_type("store", store, (Store, NoneType), "headlab.store.Store of a folder")
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
        earlier_method = replace(method, version=_recorded_version(version))
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


def _recorded_version(version: int) -> int | None:
    """A method's version as a spec records it; None for the first, which is left out."""
    return version if version > 1 else None


def only_language(task: Task, language: str | None) -> str:
    """The given language, or the task's only one. Raises HeadlabError if it is ambiguous or not the task's."""
    require_type("task", task, Task, "a task that headlab.task returns")
    if language is None:
        if len(task.languages) != 1:
            raise HeadlabError(
                f"task {task.name} has {len(task.languages)} languages; say which, e.g. language={task.languages[0]!r}",
                code="language.ambiguous",
            )
        return task.languages[0]
    task.check(language, "dev")
    return language


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
