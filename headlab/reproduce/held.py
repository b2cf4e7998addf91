"""Held & Yang (EACL 2023) reproduced: which experiments, on which tasks, at which sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headlab.tasks import udpos, xnli
from headlab.tasks.base import Task

XNLI, UDPOS = "xnli", "udpos"
TASKS = (XNLI, UDPOS)
# English is what the models were fine-tuned on; the others are far from it in different ways.
PAPERS = {XNLI: xnli.LANGUAGES, UDPOS: udpos.LANGUAGES}
FEW: Mapping[str, tuple[str, ...]] = {XNLI: ("en", "zh", "sw"), UDPOS: ("en", "zh", "tr")}
CURVES: Mapping[str, tuple[str, ...]] = {XNLI: ("en", "sw"), UDPOS: ("en", "tr")}


@dataclass(frozen=True)
class Plan:
    """Sizes of a reproduction.

    dev, test: examples per language, of test by task: a sentence of many words is many answers.  curve: test examples
    of a curve, evaluated at every point of every order.  few: only three languages of each task.  samples: per head, at
    most, by task.  target: half-width to reach.  randoms: random masks and orders.  points: per curve.  k: heads
    removed per language in runs that do not remove the harmful ones.  steps: of the fine-tuning on English
    part-of-speech tags.
    """

    dev: int
    test: Mapping[str, int]
    curve: int
    few: bool
    samples: Mapping[str, int]
    target: float | None
    randoms: int
    points: int
    k: int
    steps: int
    orders: int

    def languages(self, task: Task) -> tuple[str, ...]:
        """The paper's languages that the data have; with `few`, the fixed three."""
        return FEW[task.name] if self.few else tuple(name for name in PAPERS[task.name] if name in task.languages)

    def curved(self, task: Task) -> tuple[str, ...]:
        """Languages that curves are drawn for."""
        return CURVES[task.name][:1] if self.few else CURVES[task.name]


REAL = Plan(512, {XNLI: 999, UDPOS: 400}, 256, False, {XNLI: 512, UDPOS: 256}, 0.01, 10, 13, 10, 400, 128)
SMOKE = Plan(64, {XNLI: 128, UDPOS: 128}, 64, True, {XNLI: 16, UDPOS: 16}, None, 3, 5, 5, 40, 4)


@dataclass(frozen=True)
class Step:
    """One experiment on one task.  curves: on the plan's languages and examples for curves."""

    task: str
    experiment: str
    options: Mapping[str, Any] = field(default_factory=dict)
    curves: bool = False

    @property
    def name(self) -> str:
        """Base name of its files."""
        k = self.options.get("k")
        return f"{self.task}-{self.experiment}" + (f"-{k}" if k else "")


def shapley(plan: Plan, task: str) -> dict[str, Any]:
    """Options of the Shapley scores that all experiments use.

    A coalition's value is the probability of the correct label: its gains vary less than those of accuracy, so that
    fewer samples suffice.
    """
    return {"value": "probability", "samples": plan.samples[task], "target": plan.target}


def steps(plan: Plan) -> Iterator[Step]:
    """All experiments, in an order in which pieces made earlier are reused."""
    orders = {"value": "probability", "samples": plan.orders, "target": None}
    for task in TASKS:
        own = shapley(plan, task)
        scores = {"method": "shapley", "method_options": own}
        walk = {"method_options": own, "monte_carlo_options": orders, "runs": plan.randoms, "points": plan.points}
        yield Step(task, "agreement", scores)
        yield Step(task, "heads", scores)
        yield Step(task, "separators", scores)
        for k in (None, plan.k):  # the harmful heads, then equally many in every language
            # the paper's table has no leave-one-out, which would double the cost
            yield Step(task, "targeted", scores | {"k": k, "runs": plan.randoms, "leave_one_out": False})
            yield Step(task, "transfer", scores | {"k": k})
            yield Step(task, "gap", scores | {"k": k})
        yield Step(task, "iterative", walk, curves=True)
