"""Gate jobs: gates that learn which heads to keep, in each language and at each weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headlab.errors import HeadlabError
from headlab.l0_gates import LearnedGates
from headlab.labels import same_classes
from headlab.records import content_key
from headlab.store import Result, Store
from headlab.tasks import task
from headlab.tasks.base import Task
from headlab.training.l0_options import GateOptions, GateStep, learned_on, options_of
from headlab.worker.kinds.kind import (
    PART,
    Estimate,
    Kind,
    Known,
    Lab,
    Part,
    StepProgress,
    about,
    median_pace,
    named,
    task_of,
    total,
    within,
)
from headlab.worker.runner import Running
from headlab.worker.schemas import GatesSpec, MeasureRequest

if TYPE_CHECKING:  # it imports torch
    from headlab.training.steps import Watch

WEIGHT = "weight"
MOST = {
    "steps": 100_000,
    "batch": 4096,
    "history": 1000,
    "size": 1_000_000,
}  # a request may not ask for more
LEARNED = {
    "gates": 2,
    "all": 3,
}  # forward passes that a training example costs: it goes forward and back
JUDGED = ("dev", "test")


def fill(spec: GatesSpec) -> GatesSpec:
    """The spec with every default filled in. Raises HeadlabError for anything unknown or invalid."""
    if WEIGHT in spec.options:
        raise HeadlabError(
            "give a job's weights as a list beside its options; take weight out of the options",
            code="gate.weight_misplaced",
        )
    chosen, options = task_of(spec, spec.languages), of(spec, spec.weights[0])
    full = within(
        {name: getattr(options, name) for name in GateOptions.table() if name != WEIGHT}, MOST, ","
    )
    for language in chosen.languages:
        examples(chosen, language, options)
    weights = sorted(set(map(float, spec.weights)))
    return spec.model_copy(
        update={"languages": list(chosen.languages), "options": full, "weights": weights}
    )


def of(spec: GatesSpec, weight: float) -> GateOptions:
    """Options of the training at one weight. Raises HeadlabError for invalid ones."""
    return options_of({**spec.options, WEIGHT: float(weight)}, spec.seed)


def examples(chosen: Task, language: str, options: GateOptions) -> int:
    """Number of training examples. Raises HeadlabError for a language or a split that the task does not have."""
    return len(learned_on(chosen, language, options.split, options.size)[1])


def run(lab: Lab, running: Running, spec: GatesSpec) -> Mapping[str, Any]:
    """One run per language and weight; stored runs are not repeated."""
    from headlab.training.l0_learn import Given, learn

    languages = named(spec.languages)
    model, chosen = lab.need(spec.model), lab.task(spec.task, spec.label_map)
    keys: list[str] = []
    parts = len(languages) * len(spec.weights)
    for language in languages:
        given = Given(model, chosen, language, of(spec, spec.weights[0]))
        for weight in spec.weights:
            watch = RunProgress(running, f"{language}, λ {weight:g}", len(keys), parts)
            store = lab.watched(running, language)
            keys.append(
                content_key(
                    learn(given, of(spec, weight), store=store, watch=watch.callbacks()).spec
                )
            )
    running.progress(parts * PART, parts * PART, f"{', '.join(languages)} done")
    return {"keys": keys}


class RunProgress:
    """Progress of one of several runs; serves live requests between passes."""

    def __init__(self, running: Running, name: str, at: int, of: int) -> None:
        self._running, self._name, self._at, self._of = running, name, at * PART, of * PART
        self._steps = StepProgress(running)
        running.progress(self._at, self._of, name, fresh=True)

    def callbacks(self) -> Watch[GateStep]:
        """The callbacks of the training."""
        from headlab.training.steps import Watch  # imports torch

        return Watch(self.step, self._running.tick, self.measuring)

    def step(self, made: GateStep) -> None:
        """Called after each step; the first may continue from a checkpoint. The last share is left for measuring."""
        note = f"{self._name}: step {made.step} of {made.steps}, {made.open} of {made.gates} open"
        done = self._at + PART * made.step // (made.steps + 1)
        self._steps.made(made, done, self._of, f"{note}, loss {made.loss:.3f}")

    def measuring(self) -> None:
        """Called before the mask is evaluated."""
        self._running.progress(
            self._at + PART - 1, self._of, f"{self._name}: measuring", fresh=True
        )


def foresee(spec: GatesSpec, known: Known) -> Estimate:
    """Cost of the runs that the store lacks: their steps, and two passes over the examples that evaluate each mask."""
    kept = [r for r in Store(known.root).gates().results if _about(r, spec)]
    languages, options, chosen = named(spec.languages), of(spec, spec.weights[0]), task(spec.task)
    sizes = {name: examples(chosen, name, options) for name in languages} if kept else {}
    asked = [(name, weight) for name in languages for weight in spec.weights]
    left = [
        (name, weight)
        for name, weight in asked
        if not any(_same(r, spec, name, weight, sizes) for r in kept)
    ]
    ask = MeasureRequest(model=spec.model, **about(spec), language=languages[0])
    if not left:
        return total([Part(0, None, ("these gates are in the cache already",))], ask)
    judged = {name: _judged(chosen, name, options) for name, _ in left}
    forwards = sum(forwards_of(options, judged[name]) for name, _ in left)
    pace, paced = _pace(kept, known)
    there = f"; {len(asked) - len(left)} of {len(asked)} runs are in the cache already" * (
        len(left) < len(asked)
    )
    many = f"{len(left)} runs" if len(left) > 1 else "one run"
    words = f"{many} of {options.steps} steps of {options.batch} examples, each worth {LEARNED[options.trained]} forwards"
    return total([Part(forwards, pace, (f"{words}, and the masks measured{there}", paced))], ask)


def forwards_of(options: GateOptions, judged: int) -> int:
    """Cost of a run in forward passes of one example.  judged: examples that its mask is evaluated on."""
    return options.steps * options.batch * LEARNED[options.trained] + 2 * judged


def _judged(chosen: Task, language: str, options: GateOptions) -> int:
    sizes = (options.dev_size, options.test_size)
    return sum(
        _count(chosen, language, split, size) for split, size in zip(JUDGED, sizes, strict=True)
    )


def _count(chosen: Task, language: str, split: Any, size: int | None) -> int:
    try:
        return len(chosen.examples(language, split, size))
    except HeadlabError:  # a split that the task does not have is not measured
        return 0


def _pace(kept: Sequence[Result[LearnedGates]], known: Known) -> tuple[float | None, str]:
    """Seconds per forward pass in earlier runs of the model on such a device, or as just timed; and its basis."""
    seen = [
        pace
        for result in kept
        if result.meta.get("device") == known.device and (pace := _took(result))
    ]
    many = f"{len(seen)} runs" if len(seen) > 1 else "a run"
    return median_pace(seen, known, f"{many} of such gates on such a device ({known.device})")


def _took(result: Result[LearnedGates]) -> float:
    """Seconds per forward pass; 0 where the record does not say."""
    told = [part for part in result.record.measured.values() if isinstance(part, Mapping)]
    try:
        judged = sum(int(part.get("examples") or 0) for part in told)
        given = {
            name: value
            for name, value in result.record.spec["options"].items()
            if name in GateOptions.table()
        }
        return float(result.record.seconds) / forwards_of(options_of(given), judged)
    except (HeadlabError, AttributeError, TypeError, ValueError, ArithmeticError):
        return 0.0


def _about(result: Result[LearnedGates], spec: GatesSpec) -> bool:
    own = result.record.spec
    names = (own.get(name, {}).get("name") for name in ("model", "task"))
    return tuple(names) == (spec.model, spec.task)


def _same(
    result: Result[LearnedGates],
    spec: GatesSpec,
    language: str,
    weight: float,
    sizes: Mapping[str, int],
) -> bool:
    """Whether a stored run is what the job would compute, as far as can be known without the model."""
    own = result.record.spec
    got = (
        result.record.language,
        own.get("seed"),
        own.get("options"),
        own.get("task", {}).get("size"),
    )
    want = (language, spec.seed, of(spec, weight).record(), sizes[language])
    return got == want and same_classes(own.get("task", {}), spec.label_map)


GATES: Kind[GatesSpec] = Kind(
    "gates",
    GatesSpec,
    fill,
    run,
    foresee,
    "Learned gates, trained on the worker's own device.",
    status=422,
)
