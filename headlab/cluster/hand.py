"""What one device does in a run of many: it holds the model and answers questions to the game."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from headlab import __version__
from headlab.errors import HeadlabError
from headlab.evaluator import Evaluator
from headlab.gates import Model, load
from headlab.methods.game import Ask
from headlab.methods.model_game import ModelGame
from headlab.methods.table import method
from headlab.methods.work import Outcome, Work
from headlab.models.embedded import EMBEDDED
from headlab.records import Floats
from headlab.tasks.base import DEV_SIZE, Example, Split, Task
from headlab.values import value_of


@dataclass(frozen=True)
class Origin:
    """A model as another process can load it. revision: of a hub id, else None."""

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

    rows: the examples by split.
    """

    task: str
    labels: tuple[str, ...]
    aligned: bool
    seed: int
    language: str
    split: Split
    ablation: str
    rows: Mapping[str, tuple[Example, ...]]

    @classmethod
    def of(cls, evaluator: Evaluator, ablation: str) -> Setting:
        """The setting of an evaluator."""
        task, rows = evaluator.task, {str(evaluator.split): evaluator.examples}
        if ablation == "mean":  # the mean is over dev, whatever is evaluated
            dev = task.examples(evaluator.language, "dev", DEV_SIZE)
            rows["dev"] = max(dev, rows.get("dev", ()), key=len)
        return cls(task.name, task.labels, task.aligned, task.seed, evaluator.language, evaluator.split, ablation, rows)

    def evaluator(self, model: Model, size: int) -> Evaluator:
        """An evaluator of the same examples. size: how many of the split are asked about."""
        task = Task(self.task, self.labels, (self.language,), self.aligned, self._read, self.seed)
        return Evaluator(model, task, self.language, self.split, size)

    def _read(self, _language: str, split: Split, _seed: int) -> tuple[Example, ...]:
        return self.rows[split]


@dataclass(frozen=True)
class Job:
    """A setting to be met before its first question. size: examples asked about.  value: key of the value function."""

    setting: Setting
    size: int
    value: str = "accuracy"


class Hand:
    """The model on one device. threads: on a processor, for this process.

    Raises HeadlabError if the model that it finds under the name is another one, or headlab of another version.
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
                f"a Ray worker finds another model under the name {origin.name} "
                f"({self._model.fingerprint[:12]}, not {origin.fingerprint[:12]}); put the same files on every machine",
                code="ray.other_model",
            )
        self._games: dict[str, ModelGame] = {}
        self._jobs: dict[str, Job] = {}

    def hello(self) -> str:
        """Answers once the model is there: its device."""
        return str(self._model.device)

    def meet(self, key: str, job: Job) -> None:
        """Take a setting, to be named by its key from now on."""
        evaluator = job.setting.evaluator(self._model, job.size)
        self._jobs[key] = job
        self._games[key] = ModelGame(evaluator, job.setting.ablation, value_of(job.value))

    def answer(self, key: str, ask: Ask) -> tuple[Floats, int, float]:
        """The answer to a question, the forward passes and the seconds it took."""
        game, began = self._games[key], time.perf_counter()
        before = game.evaluator.forwards
        found = getattr(game, ask.question)(**ask.arrays)
        return found, game.evaluator.forwards - before, time.perf_counter() - began

    def outcome(self, key: str, name: str, options: Mapping[str, Any], seed: int) -> tuple[Outcome, int, float]:
        """A whole method, for those that play no game, the forward passes and the seconds it took."""
        job, began = self._jobs[key], time.perf_counter()
        work = Work(job.setting.evaluator(self._model, job.size), seed, options, job.setting.ablation)
        found: Outcome = import_module(f"headlab.methods.{method(name).module}").run(work)
        return found, work.evaluator.forwards, time.perf_counter() - began
