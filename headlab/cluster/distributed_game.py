"""A run on many devices: what one device does, and the game or method computed on all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import torch

from headlab import __version__
from headlab.cluster.pool import DeviceCall, Pool
from headlab.core import Floats, HeadlabError, Ints, import_implementation, value_function_of
from headlab.evaluation import Evaluator, assumed_classes
from headlab.hooks import Model, load
from headlab.methods import HOME, HeadGame, Options, Outcome, Work, method
from headlab.methods.game import Query
from headlab.methods.model_game import ModelGame, round_on
from headlab.methods.pair_game import ModelPairGame
from headlab.models import EMBEDDED
from headlab.tasks import DEV_SIZE, Example, Split, Task

# One device of many: it holds the model and answers the game's questions.


@dataclass(frozen=True)
class Origin:
    """A model as another process can load it.

    Attributes:
        name: Name that the model was loaded by.
        revision: Revision of a hub id, else None.
        fingerprint: Fingerprint of the model.
        dtype: Number format that it computes in.
    """

    name: str
    revision: str | None
    fingerprint: str
    dtype: str

    @classmethod
    def of(cls, model: Model) -> Origin:
        """Where a loaded model came from.

        Raises:
            HeadlabError: For one that is spread over devices.
        """
        model.require_whole("Ray")
        hub = model.name not in EMBEDDED and not Path(model.name).is_dir()
        revision = str(model.identity()["revision"]) if hub else None
        return cls(model.name, revision, model.fingerprint, model.dtype)


@dataclass(frozen=True)
class Setting:
    """What the questions are about: one language of a task with its examples, and the ablation."""

    task: Task
    language: str
    split: Split
    ablation: str

    @classmethod
    def of(cls, evaluator: Evaluator, ablation: str) -> Setting:
        """The setting of an evaluator."""
        task = evaluator.task
        language = evaluator.language
        rows = {str(evaluator.split): evaluator.examples}
        if ablation == "mean":  # the mean is over dev, whatever is evaluated
            dev = task.examples(language, "dev", DEV_SIZE)
            rows["dev"] = max(dev, rows.get("dev", ()), key=len)
        # The label map as it was found here: a device lacks what it was found on.
        classes = assumed_classes(evaluator.model, task)
        label_map = task.label_map if classes is None else dict(classes)
        task = replace(
            task, languages=(language,), read=partial(_read_split, rows), label_map=label_map
        )
        return cls(task, language, evaluator.split, ablation)

    def evaluator(self, model: Model, size: int) -> Evaluator:
        """An evaluator of the same examples.

        Args:
            size: Number of examples of the split.
        """
        return Evaluator(model, self.task, self.language, self.split, size)


def _read_split(
    rows: Mapping[str, tuple[Example, ...]], _language: str, split: Split, _seed: int
) -> tuple[Example, ...]:
    return rows[split]


@dataclass(frozen=True)
class SettingJob:
    """A setting, sent before its first question.

    Attributes:
        size: Number of examples.
        value: Key of the value function.
        pairs: The pairs whose interactions are asked for, int [pair, 2]; None if none are.
    """

    setting: Setting
    size: int
    value: str = "accuracy"
    pairs: Ints | None = None


class Replica:
    """The model on one device.

    Args:
        origin: The model.
        version: Version of headlab in the process that asks.
        device: Device to load the model on.
        threads: CPU threads of this process.
        load: Loads a model.

    Raises:
        HeadlabError: The model of that name has another fingerprint, or headlab another version.
    """

    def __init__(
        self,
        origin: Origin,
        version: str,
        device: str | None = None,
        threads: int | None = None,
        load: Callable[..., Model] = load,
    ) -> None:
        if version != __version__:
            raise HeadlabError(
                f"a Ray worker has headlab {__version__}, this process {version}; install the same "
                "version everywhere",
                code="ray.other_version",
            )
        if threads is not None:
            torch.set_num_threads(threads)
        self._model = load(origin.name, revision=origin.revision, device=device, dtype=origin.dtype)
        if self._model.fingerprint != origin.fingerprint:
            raise HeadlabError(
                f"a Ray worker has another model under the name {origin.name} "
                f"({self._model.fingerprint[:12]}, not {origin.fingerprint[:12]}); put the same "
                "files on every machine",
                code="ray.other_model",
            )
        self._games: dict[str, ModelGame] = {}
        self._jobs: dict[str, SettingJob] = {}

    def hello(self) -> str:
        """The model's device; answers once the model is loaded."""
        return str(self._model.device)

    def meet(self, key: str, job: SettingJob) -> None:
        """Accept a setting; later calls name it by its key."""
        evaluator = job.setting.evaluator(self._model, job.size)
        self._jobs[key] = job
        value = value_function_of(job.value)
        if job.pairs is None:
            self._games[key] = ModelGame(evaluator, job.setting.ablation, value)
        else:
            self._games[key] = ModelPairGame(
                evaluator, job.setting.ablation, value, pairs=job.pairs
            )

    def answer(self, key: str, ask: Query) -> tuple[Floats, int, float]:
        """The answer to a question, and the forward passes and seconds it took."""
        game = self._games[key]
        start = time.perf_counter()
        forwards_before = game.evaluator.forwards
        answer: Floats = getattr(game, ask.question)(**ask.arrays)
        return answer, game.evaluator.forwards - forwards_before, time.perf_counter() - start

    def outcome(
        self, key: str, name: str, options: Options, seed: int
    ) -> tuple[Outcome, int, float]:
        """The outcome of a method that plays no game, and the forwards and seconds that it took."""
        job = self._jobs[key]
        start = time.perf_counter()
        work = Work(
            job.setting.evaluator(self._model, job.size), seed, options, job.setting.ablation
        )
        outcome: Outcome = import_implementation(method(name).module, HOME).run(work)
        return outcome, work.evaluator.forwards, time.perf_counter() - start


# The run's side: its game is played, or its method run, on the devices of a pool.


class SharedGame(ModelGame):
    """A model's game whose questions are answered by a pool.

    Args:
        local_game: The same game on this process's model.
        pool: The devices.
    """

    def __init__(self, local_game: HeadGame, pool: Pool) -> None:
        super().__init__(
            local_game.evaluator, local_game.ablation, local_game.value, local_game.tokens
        )
        self._pool = pool
        self._key = uuid4().hex
        self._job = SettingJob(
            Setting.of(local_game.evaluator, local_game.ablation),
            self.examples,
            local_game.value.key,
        )

    @property
    def round(self) -> int:
        """Number of samples that suit one call of a device of the pool.

        A GPU takes many, but no more than half of its share of a cycle of examples: each has work
        then.
        """
        half_share = self.examples // (2 * self._pool.size)
        return max(round_on("cpu"), min(round_on(self._pool.kind), half_share))

    def answers(self, asks: Iterable[Query]) -> Iterator[Floats]:
        """See `Game.answers`; the devices of the pool work in parallel."""
        yield from _count_forwards(
            self._pool,
            self.evaluator,
            (self._call(ask) for ask in asks),
        )

    def _call(self, ask: Query) -> DeviceCall[tuple[Floats, int, float]]:
        return DeviceCall(self._key, self._job, "answer", (ask,))


class SharedPairGame(SharedGame, ModelPairGame):
    """A model's game of pairs whose questions are answered by a pool.

    Args:
        local_game: The same game on this process's model.
        pool: The devices.
    """

    def __init__(self, local_game: ModelPairGame, pool: Pool) -> None:
        super().__init__(local_game, pool)
        self.pairs = local_game.pairs
        self._job = replace(self._job, pairs=local_game.pairs)


@dataclass(frozen=True)
class Team:
    """What `headlab.score` takes to run on a pool: see `headlab.methods.work.Helpers`."""

    pool: Pool

    @property
    def kind(self) -> str:
        """Kind of its devices: "cpu" or "cuda"."""
        return self.pool.kind

    def game(self, local_game: HeadGame) -> SharedGame:
        """The game of a run, played on the pool; one of pairs if the local one is."""
        if isinstance(local_game, ModelPairGame):
            return SharedPairGame(local_game, self.pool)
        return SharedGame(local_game, self.pool)

    def outcome(self, name: str, work: Work) -> Outcome:
        """A method that plays no game, run whole on one device of the pool."""
        job = SettingJob(Setting.of(work.evaluator, work.ablation), len(work.evaluator.examples))
        arguments = (name, dict(work.options), work.seed)
        call: DeviceCall[tuple[Outcome, int, float]] = DeviceCall(
            uuid4().hex, job, "outcome", arguments
        )
        return next(_count_forwards(self.pool, work.evaluator, [call]))


Answer = TypeVar("Answer")


def _count_forwards(
    pool: Pool, evaluator: Evaluator, calls: Iterable[DeviceCall[tuple[Answer, int, float]]]
) -> Iterator[Answer]:
    """The pool's answers; the forward passes and seconds they took are added to the evaluator's."""
    for answer, forwards, seconds in pool.ask(calls, evaluator.tick):
        evaluator.forwards += forwards
        evaluator.seconds_elsewhere += seconds
        yield answer
