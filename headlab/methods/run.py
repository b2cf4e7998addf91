"""Running a method: spec, checkpoint, progress, record. Library, command line and worker all come here."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import numpy as np
import torch

from headlab.errors import HeadlabError
from headlab.evaluator import Evaluator
from headlab.gates import Model
from headlab.methods.table import Method
from headlab.methods.table import method as method_of
from headlab.methods.work import Arrays, Helpers, Outcome, Work
from headlab.models.versions import versions
from headlab.progress import Progress
from headlab.records import content_key
from headlab.scores import HeadScores
from headlab.store import FORMAT, Result, Run, Store
from headlab.tasks.base import DEV_SIZE, Split, Task


def make_spec(
    evaluator: Evaluator, chosen: Method, options: Mapping[str, Any], seed: int, ablation: str
) -> dict[str, Any]:
    """Everything the numbers depend on; its sha256 names the run."""
    task = evaluator.task
    spec = {
        "format": FORMAT,
        "model": evaluator.model.recorded(),
        "task": {
            "name": task.name,
            "language": evaluator.language,
            "split": evaluator.split,
            "size": len(evaluator.examples),
            "seed": task.seed,
            "data_hash": task.data_hash(evaluator.examples),
        },
        "ablation": ablation,
        "method": {"name": chosen.key, "options": dict(options), **_version(chosen.version)},
        "seed": seed,
    }
    if ablation == "mean":  # of heads over these examples, whatever the split is that is scored or judged
        spec["means"] = task.data_hash(task.examples(evaluator.language, "dev", DEV_SIZE))
    return spec


def score(
    model: Model,
    task: Task,
    *,
    language: str | None = None,
    method: str = "shapley",
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

    language: may be left out when the task has one.  method: a key of `headlab.methods.table.METHODS`;
    options are the method's.  store: where a finished result is looked up and kept, and where an
    interrupted run goes on from; None keeps nothing.  on_progress: called as steps finish.  tick:
    called between batches; either may raise to stop.  helpers: other devices that do the work, to the same
    bits.  Raises HeadlabError for anything that does not fit.
    """
    chosen = method_of(method)
    if seed < 0:
        raise HeadlabError(f"seed is {seed}; choose 0 or more", code="seed.invalid")
    resolved = chosen.resolve(options)
    evaluator = Evaluator(model, task, only_language(task, language), split, size)
    spec = make_spec(evaluator, chosen, resolved, seed, ablation)
    run = store.run(spec) if store is not None else None
    done = stored(run) if run is not None else None
    if done is not None:
        return done.scores
    evaluator.tick = tick or evaluator.tick
    return _compute(evaluator, chosen, spec, run, on_progress or (lambda _: None), helpers)


def stored(run: Run) -> Result | None:
    """The finished result of a run, or what an earlier version of its method gave for the same settings."""
    method = run.spec["method"]
    plain = {name: value for name, value in method.items() if name != "version"}
    for version in range(int(method.get("version", 1)), 0, -1):
        spec = {**run.spec, "method": {**plain, **_version(version)}}
        if (found := Run(run.folder.parent / content_key(spec), spec).result()) is not None:
            return found
    return None


def _version(version: int) -> dict[str, int]:
    """How a spec tells a method's version: the first one is not told."""
    return {"version": version} if version > 1 else {}


def only_language(task: Task, language: str | None) -> str:
    """The language given, or the task's only one. Raises HeadlabError if it is not clear which."""
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
    spec: Mapping[str, Any],
    run: Run | None,
    on_progress: Callable[[Progress], None],
    helpers: Helpers | None,
) -> HeadScores:
    saved = run.checkpoint() if run is not None else None
    before, started = float(saved["seconds"]) if saved and "seconds" in saved else 0.0, time.perf_counter()

    def spent() -> float:
        """Seconds of computing: of this process, or all those of the devices that it is done on."""
        return before + (time.perf_counter() - started if helpers is None else evaluator.elsewhere)

    def save(arrays: Arrays) -> None:
        if run is not None:
            run.save({**arrays, "seconds": np.array(spent())})

    options = spec["method"]["options"]
    work = Work(evaluator, int(spec["seed"]), options, str(spec["ablation"]), on_progress, saved, save, helpers)
    outcome = _run(chosen, work)
    scores = outcome.scores(evaluator.model.grid, spec, evaluator.forwards, spent())
    if run is not None:
        run.finish(
            scores,
            {
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "versions": versions(),
                "threads": torch.get_num_threads(),
                "device": evaluator.model.device.type if helpers is None else helpers.kind,
            },
        )
    return scores


def _run(chosen: Method, work: Work) -> Outcome:
    if chosen.whole and work.helpers is not None:
        return work.helpers.outcome(chosen.key, work)
    found: Outcome = import_module(f"headlab.methods.{chosen.module}").run(work)
    return found
