"""Options and progress records of learning gates.

Command line, pages and jobs read them, and no model is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from headlab.core import (
    STACKS,
    Bools,
    HeadGrid,
    HeadlabError,
    Json,
    Options,
    OptionValue,
    Progress,
    option,
    require_seed,
    require_type,
)
from headlab.results import HardConcrete
from headlab.tasks import DEV_SIZE, Example, Split, Task
from headlab.training.options import Gated, StepMade

# The split that gates are learned on; pages and jobs use this too, and no model is needed.


def learned_on(
    task: Task, language: str, split: str, size: int | None
) -> tuple[Split, tuple[Example, ...]]:
    """The split and its examples, `size` of them or all.

    Auto: train, or dev if the task has no train split.

    Raises HeadlabError for a language or split that the task does not have, and for examples that
    cannot be read.
    """
    if split == "auto":
        task.check(language, "train")
        # empty if there is no train split; damaged files raise
        rows = tuple(task.read(language, "train", task.seed))
        if rows:
            return ("train", rows[:size])
        return ("dev", task.examples(language, "dev", size))
    return split, task.examples(language, split, size)  # type: ignore[return-value, arg-type] # an option's choice


NAME = "gates"
VERSION = 2  # of the results: a change in how they are computed gets a new one
ALL = "all"
JOINT_OPTIONS = ("model_rate", "embeddings", "clip")  # options of joint training only
RATES = "learning rate of the"


@dataclass(frozen=True)
class GateOptions(Gated, Options):
    """Everything that learned gates depend on, besides model, examples and thread count."""

    whose = "gates: "

    weight: float = option(0.01, "λ, penalty in nats for a gate that is open", kind=float, low=0)
    steps: int = option(400, "training steps", kind=int, low=1)
    batch: int = option(32, "examples a step", kind=int, low=1)
    gate_rate: float = option(
        0.05, f"{RATES} gates, the same at every step", kind=float, low=0, open=True
    )
    model_rate: float = option(
        2e-5,
        f"{RATES} model where it is trained jointly, falling to 0",
        kind=float,
        low=0,
        open=True,
    )
    trained: str = option(
        "gates", "the gates alone, or all: the model jointly with them", ("gates", ALL)
    )
    stacks: str = option(
        ALL, "stacks whose heads have gates: names with a comma between them, or all"
    )
    start: float = option(0.9, "P(gate ≠ 0) at the beginning", kind=float, low=0, high=1, open=True)
    sample: str = option(
        "example", "gates drawn for each example, or once a batch", ("example", "batch")
    )
    warmup: float = option(
        0.0, "share of the steps over which λ rises linearly from 0", kind=float, low=0, high=1
    )
    history: int = option(
        60,
        "number of times the gates are recorded, evenly spaced, besides the start",
        kind=int,
        low=1,
    )
    split: str = option(
        "auto", "learned on; auto: train where there is one, else dev", ("auto", "train", "dev")
    )
    size: int | None = option(
        None, "examples of that split, or none for all", kind=int, low=1, optional=True
    )
    dev_size: int = option(DEV_SIZE, "dev examples that the mask is measured on", kind=int, low=1)
    test_size: int | None = option(
        None,
        "test examples that the mask is measured on, or none for all",
        kind=int,
        low=1,
        optional=True,
    )
    embeddings: str = option(
        "frozen", "embeddings of a model trained jointly", ("frozen", "trained")
    )
    clip: float | None = option(
        1.0,
        "greatest norm of the gradient of a model that is trained jointly, or none",
        kind=float,
        low=0,
        open=True,
        optional=True,
    )
    temperature: float = option(
        HardConcrete.temperature, "of the distribution", kind=float, low=0, open=True
    )
    low: float = option(
        HardConcrete.low, "lower end of the stretched distribution", kind=float, high=0, open=True
    )
    high: float = option(
        HardConcrete.high, "upper end of the stretched distribution", kind=float, low=1, open=True
    )
    seed: int = 0

    def check(self) -> None:
        """Raise HeadlabError for an unusable value."""
        super().check()
        require_type("seed", self.seed, int, "an int of at least 0")  # it is recorded as it is
        require_seed(self.seed)
        if not self._stacks() or not set(self._stacks()) <= {*STACKS, ALL}:
            raise HeadlabError(
                f"gates: stacks is {self.stacks!r:.60}; name some of {', '.join(STACKS)}, or {ALL}",
                code="gate.stacks_invalid",
            )
        self.concrete.check(self.start)

    def canonical(self) -> GateOptions:
        """The options in canonical form, so that equal runs have one key.

        1 is 1.0, and stacks are in grid order.
        """
        typed_values = (
            (name, getattr(self, name), option_of_name.kind)
            for name, option_of_name in self.table().items()
        )
        values_by_name: dict[str, OptionValue] = {
            name: value if value is None else kind(value) for name, value, kind in typed_values
        }
        names = self._stacks()
        kept_names = [name for name in STACKS if name in names]
        values_by_name["stacks"] = ALL if ALL in names else ",".join(kept_names)
        return GateOptions.of(values_by_name, seed=self.seed)

    def record(self) -> dict[str, Json]:
        """The options that have an effect, by name, ready for JSON.

        A spec stores the seed beside them.
        """
        omitted_names = ("seed",) if self.is_joint else ("seed", *JOINT_OPTIONS)
        return {
            name: value
            for name, value in asdict(self.canonical()).items()
            if name not in omitted_names
        }

    @property
    def is_joint(self) -> bool:
        """Whether the model is trained jointly."""
        return self.trained == ALL

    @property
    def rising(self) -> int:
        """Steps over which λ rises linearly from 0."""
        return round(self.steps * self.warmup)

    def heads_with_gate(self, grid: HeadGrid) -> Bools:
        """Heads that get a gate, bool [head].

        Raises HeadlabError for a stack that the model does not have.
        """
        names = self._stacks()
        gated_stacks = (
            {s.name for s in grid.stacks}
            if ALL in names
            else {grid.stack(name).name for name in names}
        )
        return np.array([head.stack in gated_stacks for head in grid.heads], dtype=bool)

    def _stacks(self) -> list[str]:
        return [name.strip() for name in self.stacks.split(",") if name.strip()]


def options_of(values: Mapping[str, object], seed: int = 0) -> GateOptions:
    """Checked options from names and values, defaults for the rest.

    Raises HeadlabError for what does not fit.
    """
    return GateOptions.of(values, seed=seed).canonical()


@dataclass(frozen=True, slots=True)
class GateStep(StepMade):
    """A training step of gates, with its penalty (nats).

    Attributes:
        expected: Σ P(gate ≠ 0).
        open: Gates at least as likely to be 1 as to be 0, out of `gates`.
    """

    penalty: float = 0.0
    expected: float = 0.0
    open: int = 0
    gates: int = 0

    @property
    def progress(self) -> Progress:
        """The step as the progress record that every run reports."""
        note = f"step {self.step} of {self.steps}, loss {self.loss:.3f}, {self.open} of {self.gates} gates open"
        return Progress(self.step, self.steps, note)
