"""Running an experiment: its cost at the device's pace, its pieces, and the report that is stored."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np

from headlab.errors import HeadlabError
from headlab.evaluator import Evaluator
from headlab.extensions import implementation
from headlab.methods.costs import pace as pace_of
from headlab.models.checkpoint import versions
from headlab.records import Progress, content_key
from headlab.store import FORMAT, REPORT
from headlab.studies.pieces import Ask, Pieces
from headlab.studies.table import FRONT, Experiment, experiment
from headlab.tables import Report, duration

# How long a forward pass takes: from stored results, or by timing a few batches.

EXAMPLES = 48  # of one split, spread evenly over it, since examples differ in length
# Cost of a forward and its backward pass, in forward passes.
BACKWARD = 3.0
PARTIAL = ("shapley", "leave-one-out", "exact", "monte-carlo")


class Pace:
    """Seconds per forward pass of each piece, with a record, in words, of what the estimates are based on."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._timed: float | None = None
        self._rests: dict[str, None] = {}

    @property
    def words(self) -> str:
        """What the estimates so far are based on."""
        return "; ".join(self._rests)

    def of(self, ask: Ask) -> float:
        """Seconds per forward pass of this piece."""
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
        """Median seconds per forward pass in the stored curves of this model and task; None without any."""
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
        """Cost of one of the piece's forward passes, in plain ones."""
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
    """Seconds per plain forward pass on this device now, on examples from the whole split; nothing is stored."""
    model, count = evaluator.model, len(evaluator.examples)
    rows = np.unique(np.linspace(0, count - 1, min(EXAMPLES, count)).astype(np.int64))
    batches, gates = evaluator.cut(rows), model.grid.gates(np.ones(model.grid.size, bool))
    deque(evaluator.answers(batches[:1], gates, "zero"), maxlen=0)  # the first batch of a model is slow
    began = time.perf_counter()
    deque(evaluator.answers(batches, gates, "zero"), maxlen=0)
    return (time.perf_counter() - began) / len(rows)


def _told(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"


# Running an experiment: its cost, its pieces, and the report that is stored.

SPLITS = ("dev", "test")


@dataclass(frozen=True)
class Cost:
    """The expected cost of an experiment.

    forwards: forward passes, one example each.  seconds: None where the pace is unknown.  words: what the estimate
    is based on.  lacking: the pieces missing from the store.
    """

    forwards: int
    seconds: float | None
    words: str
    lacking: tuple[Ask, ...] = ()

    def __str__(self) -> str:
        if not self.forwards:
            return self.words
        often = "" if self.seconds is None else f", about {duration(self.seconds)}"
        return f"{self.forwards:,} forwards{often}: {self.words}"


def run_experiment(
    key: str,
    pieces: Pieces,
    *,
    options: Mapping[str, Any] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Report:
    """The report of an experiment: looked up in the store, or made from its pieces and stored.

    on_progress: called during the work, counted in forward passes; the total grows if the forecast was too low.
    Raises HeadlabError for options, languages or a model that do not fit; however it ends, finished pieces stay in
    the store.
    """
    about, resolved = prepared(key, pieces, options)
    spec = report_spec(about, pieces, resolved)  # errors come before the work, not after it
    run = None if pieces.store is None else pieces.store.run(spec)
    kept = None if run is None else run.kept_report()
    if kept is not None:
        return kept
    before, began = pieces.forwards, time.perf_counter()
    with _Watch(pieces, _expected(about, pieces, resolved), on_progress) as watch:
        tables, notes = _module(about).run(pieces, resolved, watch.say)
    report = Report(
        about.key, tuple(tables), tuple(notes), spec, pieces.forwards - before, time.perf_counter() - began,
    )  # fmt: skip
    if run is not None:
        run.finish(report, {"created": datetime.now(UTC).isoformat(timespec="seconds"), "versions": versions()})
    return report


def forecast(key: str, pieces: Pieces, options: Mapping[str, Any] | None = None) -> Cost:
    """The expected cost of an experiment; times a few batches if the store has no pace to go by."""
    about, resolved = prepared(key, pieces, options)
    if pieces.store is not None and pieces.store.run(report_spec(about, pieces, resolved)).kept_report() is not None:
        return Cost(0, 0.0, "the report is in the cache already")
    lacking = _lacking(about, pieces, resolved)
    if not lacking:
        return Cost(0, 0.0, "every piece is in the cache already")
    pace = Pace(pieces)
    seconds = [ask.forwards * pace.of(ask) for ask in lacking]
    return Cost(sum(a.forwards for a in lacking), sum(seconds), f"{_named(lacking)}; {pace.words}", tuple(lacking))


def prepared(key: str, pieces: Pieces, options: Mapping[str, Any] | None) -> tuple[Experiment, dict[str, Any]]:
    """An experiment and its resolved options. Raises HeadlabError for what does not fit."""
    about = FRONT if key == FRONT.key else experiment(key)
    least, given = about.least_languages, len(pieces.languages)
    if given < least:
        raise HeadlabError(
            f"experiment {key} compares languages; it needs {least} or more, given {given}",
            code="experiment.languages_too_few",
        )
    if pieces.seed < 0:
        raise HeadlabError(f"seed is {pieces.seed}; choose 0 or more", code="seed.invalid")
    return about, about.resolve(options or {})


def report_spec(about: Experiment, pieces: Pieces, options: Mapping[str, Any]) -> dict[str, Any]:
    """Spec of a report: everything it depends on; its sha256 names the run."""
    sizes: dict[str, list[int]] = {}
    hashes: list[str] = []
    for split in ("dev", "test"):
        found = [pieces.data_of(language, split) for language in pieces.languages]
        sizes[split], hashes = [n for n, _ in found], hashes + [sha for _, sha in found]
    return {
        "format": FORMAT,
        "kind": REPORT,
        "experiment": about.key,
        "version": about.version,
        "model": pieces.identity(),
        "task": {
            "name": pieces.task.name,
            "language": ",".join(pieces.languages),
            "split": ",".join(SPLITS),
            "sizes": sizes,
            "seed": pieces.task.seed,
            "data_hash": content_key(hashes),
        },
        "ablation": pieces.ablation,
        "options": dict(options),
        "seed": pieces.seed,
    }


def _module(about: Experiment) -> ModuleType:
    return implementation(about.module, "headlab.studies")


def _lacking(about: Experiment, pieces: Pieces, options: Mapping[str, Any]) -> list[Ask]:
    asked: Sequence[Ask] = _module(about).cost(pieces, options)
    return [ask for ask in {ask.what: ask for ask in asked}.values() if ask.forwards]


def _expected(about: Experiment, pieces: Pieces, options: Mapping[str, Any]) -> int:
    return sum(ask.forwards for ask in _lacking(about, pieces, options))


def _named(lacking: Sequence[Ask]) -> str:
    """The missing pieces by kind, in words."""
    kinds: dict[str, tuple[int, set[str]]] = {}
    for ask in lacking:
        kind = f"{ask.method} scores" if ask.kind == "scores" else ask.kind
        forwards, languages = kinds.get(kind, (0, set()))
        kinds[kind] = forwards + ask.forwards, languages | {ask.language}
    return "; ".join(
        f"{kind} of {len(languages)} language{'s' if len(languages) > 1 else ''} ({forwards:,})"
        for kind, (forwards, languages) in kinds.items()
    )


class _Watch:
    """Progress of an experiment: what its pieces report, prefixed with the experiment's latest message."""

    def __init__(self, pieces: Pieces, expected: int, on_progress: Callable[[Progress], None] | None) -> None:
        self._pieces, self._expected, self._tell = pieces, expected, on_progress or (lambda _: None)
        self._first, self._said, self._most = pieces.forwards, "", 0

    def __enter__(self) -> _Watch:
        self._before, self._pieces.report = self._pieces.report, self._step
        return self

    def __exit__(self, *_: object) -> None:
        self._pieces.report = self._before

    def say(self, text: str) -> None:
        """Set the experiment's message and report it."""
        self._said = text
        self._step(Progress(self._pieces.forwards, 0))

    def _step(self, step: Progress) -> None:
        done = self._most = max(self._most, step.done - self._first)  # a piece may take fewer than expected
        note = ": ".join(part for part in (self._said, step.note) if part)
        self._tell(replace(step, done=done, total=max(self._expected, done), note=note))
