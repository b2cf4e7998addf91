"""A run on many devices: what one device does, and the game or method that is computed on all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch

from headlab import __version__
from headlab.cluster.pool import Call, Pool
from headlab.errors import HeadlabError
from headlab.evaluator import Evaluator
from headlab.extensions import implementation
from headlab.hooks.loading import load
from headlab.hooks.model import Model
from headlab.inputs import classes_of
from headlab.methods.game import Ask
from headlab.methods.model_game import ModelGame, round_on
from headlab.methods.run import HOME, Outcome, Work
from headlab.methods.screen import Scale
from headlab.methods.table import method
from headlab.models.embedded import EMBEDDED
from headlab.records import Bools, Floats, Ints
from headlab.tasks.base import DEV_SIZE, Example, Likelihood, Split, Task
from headlab.value_functions import value_of

# One device of many: it holds the model and answers the game's questions.


@dataclass(frozen=True)
class Origin:
    """A model as another process can load it.  revision: of a hub id, else None."""

    name: str
    revision: str | None
    fingerprint: str
    dtype: str

    @classmethod
    def of(cls, model: Model) -> Origin:
        """Where a loaded model came from."""
        hub = model.name not in EMBEDDED and not Path(model.name).is_dir()
        revision = str(model.identity()["revision"]) if hub else None
        return cls(model.name, revision, model.fingerprint, model.dtype)


@dataclass(frozen=True)
class Setting:
    """What the questions are about: one language of a task, its examples included, and how heads are removed.

    rows: the examples by split.  label_map: as it was found here, as a helper lacks what it is found on.
    """

    task: str
    labels: tuple[str, ...]
    aligned: bool
    seed: int
    language: str
    split: Split
    ablation: str
    rows: Mapping[str, tuple[Example, ...]]
    label_map: Mapping[str, str] | None = None
    likelihood: Likelihood = ""

    @classmethod
    def of(cls, evaluator: Evaluator, ablation: str) -> Setting:
        """The setting of an evaluator."""
        task, rows = evaluator.task, {str(evaluator.split): evaluator.examples}
        if ablation == "mean":  # the mean is over dev, whatever is evaluated
            dev = task.examples(evaluator.language, "dev", DEV_SIZE)
            rows["dev"] = max(dev, rows.get("dev", ()), key=len)
        classes = classes_of(evaluator.model, task).get("classes", task.label_map)
        place = evaluator.language, evaluator.split
        return cls(task.name, task.labels, task.aligned, task.seed, *place, ablation, rows, classes, task.likelihood)

    def evaluator(self, model: Model, size: int) -> Evaluator:
        """An evaluator of the same examples.  size: number of examples of the split."""
        languages, named = (self.language,), self.label_map
        task = Task(
            self.task, self.labels, languages, self.aligned, self._read, self.seed, label_map=named,
            likelihood=self.likelihood,
        )  # fmt: skip
        return Evaluator(model, task, self.language, self.split, size)

    def _read(self, _language: str, split: Split, _seed: int) -> tuple[Example, ...]:
        return self.rows[split]


@dataclass(frozen=True)
class Job:
    """A setting, sent before its first question.  size: number of examples.  value: key of the value function."""

    setting: Setting
    size: int
    value: str = "accuracy"


class Replica:
    """The model on one device.  threads: CPU threads of this process.

    Raises HeadlabError if the model of that name has another fingerprint, or headlab another version.
    """

    def __init__(
        self, origin: Origin, version: str, device: str | None = None, threads: int | None = None,
        load: Callable[..., Model] = load,
    ) -> None:  # fmt: skip
        if version != __version__:
            raise HeadlabError(
                f"a Ray worker has headlab {__version__}, this process {version}; install the same version everywhere",
                code="ray.other_version",
            )
        if threads is not None:
            torch.set_num_threads(threads)
        self._model = load(origin.name, revision=origin.revision, device=device, dtype=origin.dtype)
        if self._model.fingerprint != origin.fingerprint:
            raise HeadlabError(
                f"a Ray worker has another model under the name {origin.name} "
                f"({self._model.fingerprint[:12]}, not {origin.fingerprint[:12]}); put the same files on every machine",
                code="ray.other_model",
            )
        self._games: dict[str, ModelGame] = {}
        self._jobs: dict[str, Job] = {}

    def hello(self) -> str:
        """The model's device; answers once the model is loaded."""
        return str(self._model.device)

    def meet(self, key: str, job: Job) -> None:
        """Accept a setting; later calls name it by its key."""
        evaluator = job.setting.evaluator(self._model, job.size)
        self._jobs[key] = job
        self._games[key] = ModelGame(evaluator, job.setting.ablation, value_of(job.value))

    def answer(self, key: str, ask: Ask) -> tuple[Floats, int, float]:
        """The answer to a question, and the forward passes and seconds it took."""
        game, began = self._games[key], time.perf_counter()
        before = game.evaluator.forwards
        found = getattr(game, ask.question)(**ask.arrays)
        return found, game.evaluator.forwards - before, time.perf_counter() - began

    def outcome(self, key: str, name: str, options: Mapping[str, Any], seed: int) -> tuple[Outcome, int, float]:
        """The outcome of a method that plays no game, and the forward passes and seconds it took."""
        job, began = self._jobs[key], time.perf_counter()
        work = Work(job.setting.evaluator(self._model, job.size), seed, options, job.setting.ablation)
        found: Outcome = implementation(method(name).module, HOME).run(work)
        return found, work.evaluator.forwards, time.perf_counter() - began


# The run's side: its game is played, or its method run, on the devices of a pool.


@dataclass
class SharedGame:
    """A model's game whose questions are answered by a pool.  own: the same game on this process's model."""

    own: ModelGame
    pool: Pool
    job: Job
    key: str = field(default_factory=lambda: uuid4().hex)

    @property
    def players(self) -> int:
        """Number of heads of the model."""
        return self.own.players

    @property
    def examples(self) -> int:
        """Number of examples of the evaluator."""
        return self.own.examples

    @property
    def lengths(self) -> Ints:
        """Tokens of each example."""
        return self.own.lengths

    @property
    def weights(self) -> Floats | None:
        """See `Game.weights`."""
        return self.own.weights

    @property
    def span(self) -> float:
        """See `Game.span`."""
        return self.own.span

    @property
    def steps(self) -> int:
        """See `Game.steps`."""
        return self.own.steps

    @property
    def round(self) -> int:
        """Number of samples that suit one call of a device of the pool."""
        return round_on(self.pool.kind)

    @property
    def costs(self) -> Floats:
        """See `Game.costs`."""
        return self.own.costs

    @property
    def scale(self) -> Scale | None:
        """See `Game.scale`."""
        return self.own.scale

    def values(self, kept: Bools, examples: Ints) -> Floats:
        """See `Game.values`."""
        return next(self.answers([Ask("values", {"kept": kept, "examples": examples})]))

    def gains(self, orders: Ints, examples: Ints, wanted: Bools | None = None) -> Floats:
        """See `Game.gains`."""
        more = {} if wanted is None else {"wanted": wanted}
        return next(self.answers([Ask("gains", {"orders": orders, "examples": examples, **more})]))

    def marginals(self, kept: Bools, wanted: Bools, examples: Ints) -> Floats:
        """See `Game.marginals`."""
        return next(self.answers([Ask("marginals", {"kept": kept, "wanted": wanted, "examples": examples})]))

    def screened(self, kept: Bools, wanted: Bools, examples: Ints, halvings: Ints, uniforms: Floats) -> Floats:
        """See `Game.screened`."""
        given = {"kept": kept, "wanted": wanted, "examples": examples, "halvings": halvings, "uniforms": uniforms}
        return next(self.answers([Ask("screened", given)]))

    def answers(self, asks: Iterable[Ask]) -> Iterator[Floats]:
        """See `Game.answers`; the devices of the pool work in parallel."""
        calls = (Call(self.key, self.job, "answer", (ask,)) for ask in asks)
        evaluator = self.own.evaluator
        for found, forwards, seconds in self.pool.ask(calls, evaluator.tick):
            evaluator.forwards += forwards
            evaluator.elsewhere += seconds
            yield found


@dataclass(frozen=True)
class Team:
    """What `headlab.score` takes to run on a pool: see `headlab.methods.run.Helpers`."""

    pool: Pool

    @property
    def kind(self) -> str:
        """Kind of its devices: "cpu" or "cuda"."""
        return self.pool.kind

    def game(self, own: ModelGame) -> SharedGame:
        """The game of a run, played on the pool."""
        return SharedGame(own, self.pool, _job(own.evaluator, own.ablation, own.value.key))

    def outcome(self, name: str, work: Work) -> Outcome:
        """A method that plays no game, run whole on one device of the pool."""
        job = _job(work.evaluator, work.ablation, "accuracy")
        call = Call(uuid4().hex, job, "outcome", (name, dict(work.options), work.seed))
        found, forwards, seconds = next(self.pool.ask([call], work.evaluator.tick))
        work.evaluator.forwards += forwards
        work.evaluator.elsewhere += seconds
        outcome: Outcome = found
        return outcome


def _job(evaluator: Evaluator, ablation: str, value: str) -> Job:
    return Job(Setting.of(evaluator, ablation), len(evaluator.examples), value)
