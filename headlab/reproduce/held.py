"""Held & Yang (EACL 2023) reproduced: which experiments are run, and at which sizes.

They are run step by step and written as they finish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headlab.core import (
    HeadlabError,
    JsonLike,
    OptionValue,
    Progress,
    Report,
    content_key,
    write_atomic,
    write_json,
)
from headlab.hooks import Model
from headlab.methods import Forecast
from headlab.reproduce.models import nli_folder
from headlab.results import ADAPTERS_FOLDER, Store
from headlab.studies.run import Pieces, forecast, run_experiment
from headlab.tasks import Task, udpos, xnli
from headlab.tasks import task as task_of
from headlab.training import FinetuneStep, find_base
from headlab.training.finetune import finetune
from headlab.training.options import options_of
from headlab.training.steps import example_facts

XNLI = "xnli"
UDPOS = "udpos"
TASKS = (XNLI, UDPOS)
# English is what the models were fine-tuned on; the others are far from it in different ways.
PAPERS = {XNLI: xnli.LANGUAGES, UDPOS: udpos.LANGUAGES}
SMOKE_LANGUAGES: Mapping[str, tuple[str, ...]] = {
    XNLI: ("en", "zh", "sw"),
    UDPOS: ("en", "zh", "tr"),
}
CURVES: Mapping[str, tuple[str, ...]] = {XNLI: ("en", "sw"), UDPOS: ("en", "tr")}


@dataclass(frozen=True)
class HeldPlan:
    """Sizes of a reproduction.

    Attributes:
        dev: Examples of dev per language.
        test: Examples of test per language, by task: a sentence of many words is many answers.
        curve: Test examples of a curve, evaluated at every point of every order.
        few: Whether only three languages of each task are taken.
        samples: Per head, at most, by task.
        target: Half-width to reach.
        randoms: Random masks and orders.
        points: Per curve.
        k: Heads removed per language in runs that do not remove the harmful ones.
        steps: Of the fine-tuning on English part-of-speech tags.
        orders: Samples of monte-carlo.
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
        if self.few:
            return SMOKE_LANGUAGES[task.name]
        return tuple(name for name in PAPERS[task.name] if name in task.languages)

    def curve_languages(self, task: Task) -> tuple[str, ...]:
        """Languages that curves are drawn for."""
        if self.few:
            return CURVES[task.name][:1]
        return CURVES[task.name]


REAL = HeldPlan(
    dev=512,
    test={XNLI: 999, UDPOS: 400},
    curve=256,
    few=False,
    samples={XNLI: 512, UDPOS: 256},
    target=0.01,
    randoms=10,
    points=13,
    k=10,
    steps=400,
    orders=128,
)
SMOKE = HeldPlan(
    dev=64,
    test={XNLI: 128, UDPOS: 128},
    curve=64,
    few=True,
    samples={XNLI: 16, UDPOS: 16},
    target=None,
    randoms=3,
    points=5,
    k=5,
    steps=40,
    orders=4,
)


@dataclass(frozen=True)
class Step:
    """One experiment on one task.

    Attributes:
        curves: On the plan's languages and examples for curves.
    """

    task: str
    experiment: str
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    curves: bool = False

    @property
    def name(self) -> str:
        """Base name of its files."""
        k = self.options.get("k")
        return f"{self.task}-{self.experiment}" + (f"-{k}" if k else "")


def shapley(plan: HeldPlan, task: str) -> dict[str, OptionValue]:
    """Options of the Shapley scores that all experiments use.

    A coalition's value is the probability of the correct label: its gains vary less than those of
    accuracy, so that fewer samples suffice.
    """
    return {"value": "probability", "samples": plan.samples[task], "target": plan.target}


def steps(plan: HeldPlan) -> Iterator[Step]:
    """All experiments, in an order in which pieces made earlier are reused."""
    orders: dict[str, OptionValue] = {
        "value": "probability",
        "samples": plan.orders,
        "target": None,
    }
    for task in TASKS:
        shapley_options = shapley(plan, task)
        scores: dict[str, OptionValue] = {"method": "shapley", "method_options": shapley_options}
        walk: dict[str, OptionValue] = {
            "method_options": shapley_options,
            "monte_carlo_options": orders,
            "runs": plan.randoms,
            "points": plan.points,
        }
        yield Step(task, "agreement", scores)
        yield Step(task, "heads", scores)
        yield Step(task, "separators", scores)
        for k in (None, plan.k):  # the harmful heads, then equally many in every language
            # the paper's table has no leave-one-out, which would double the cost
            yield Step(
                task, "targeted", scores | {"k": k, "runs": plan.randoms, "leave_one_out": False}
            )
            yield Step(task, "transfer", scores | {"k": k})
            yield Step(task, "gap", scores | {"k": k})
        yield Step(task, "iterative", walk, curves=True)


# Its two models: one is given, one is fine-tuned by headlab's own command.

TAGGER = "e5-small-udpos"


def tagger_folder(
    task: Task, root: Path, steps: int, device: str, progress: Callable[[FinetuneStep], None]
) -> Path:
    """Folder of the embedded base fine-tuned on English tags, below `root`.

    Trained first if it is missing.

    As `headlab finetune --task udpos --method full --steps N` does it.  Raises HeadlabError without
    English data.
    """
    examples = task.examples("en", "train")
    base = find_base()
    options = options_of("small", "full", len(examples), steps=steps)
    key = content_key([example_facts(examples, task.labels), options.record(), base.sha256])
    folder = root / ADAPTERS_FOLDER / f"{TAGGER}-{key[:12]}"
    if not (folder / "config.json").is_file():
        finetune(
            base,
            examples,
            task.labels,
            out=folder,
            options=options,
            device=device,
            progress=progress,
        )
    return folder


def check(plan: HeldPlan, data: Path, given: Mapping[str, Path | None]) -> None:
    """Raise HeadlabError, before hours are spent, for a missing model or missing examples."""
    nli_folder(data, given[XNLI])
    for name in TASKS:
        task = task_of(name, data=data)
        for language in plan.languages(task):
            for split in ("dev", "test"):
                task.examples(language, split, 1)
    tagger = given[UDPOS]
    if tagger is None:
        task_of(UDPOS, data=data).examples("en", "train", 1)
    elif not (tagger / "config.json").is_file():
        raise HeadlabError(
            f"{tagger} holds no model; name the folder of one with --udpos-model, or leave it out",
            code="reproduce.tagger_missing",
        )


# Running them; each result is written as soon as it is finished.


@dataclass(frozen=True)
class FinishedStep:
    """A finished step."""

    step: Step
    report: Report


@dataclass
class HeldTask:
    """The steps of one task: its model, its data, and the store of finished pieces."""

    model: Model
    task: Task
    plan: HeldPlan
    store: Store
    seed: int = 0

    def __post_init__(self) -> None:
        self._every = self._pieces(self.plan.languages(self.task), self.plan.test[self.task.name])
        self._curves = self._pieces(self.plan.curve_languages(self.task), self.plan.curve)

    def _pieces(self, languages: tuple[str, ...], test: int) -> Pieces:
        return Pieces(
            self.model,
            self.task.with_languages(languages),
            self.store,
            seed=self.seed,
            dev_size=self.plan.dev,
            test_size=test,
        )

    def pieces(self, step: Step) -> Pieces:
        """The pieces that a step is built from."""
        if step.curves:
            return self._curves
        return self._every

    def cost(self, step: Step) -> Forecast:
        """Forecast cost of a step, given what is in the store."""
        return forecast(step.experiment, self.pieces(step), step.options)

    def finished_step(self, step: Step, on_progress: Callable[[Progress], None]) -> FinishedStep:
        """Run a step, or load its stored report."""
        report = run_experiment(
            step.experiment, self.pieces(step), options=step.options, on_progress=on_progress
        )
        return FinishedStep(step, report)


def write_finished(finished: FinishedStep, folder: Path, command: str) -> Path:
    """Write a report as JSON with the command that made it, and its tables as CSV beside it."""
    path = folder / f"{finished.step.name}.json"
    write_json(path, {"command": command, **finished.report.to_json()})
    for table in finished.report.tables:
        write_atomic(folder / f"{finished.step.name}-{table.name}.csv", table.csv().encode())
    return path


def markdown_texts(finished: FinishedStep) -> Iterator[str]:
    """A report as Markdown, one table or note at a time."""
    for table in finished.report.tables:
        yield f"### {finished.step.task}: {table.title}\n\n{table.markdown()}"
    yield from (f"note: {note}" for note in finished.report.notes)


def plan_to_json(
    command: str, plan: HeldPlan, finished_steps: list[FinishedStep]
) -> dict[str, JsonLike]:
    """All reports of a run as one JSON object, by task and experiment."""
    reports: dict[str, dict[str, JsonLike]] = {}
    for finished in finished_steps:
        name = finished.step.name.removeprefix(f"{finished.step.task}-")
        reports.setdefault(finished.step.task, {})[name] = finished.report.to_json()
    return {"command": command, "plan": dict(vars(plan)), "reports": reports}
