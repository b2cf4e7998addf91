"""Running a reproduction step by step; each result is written as soon as it is finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headlab.files import write_atomic, write_json
from headlab.hooks.model import Model
from headlab.records import Progress
from headlab.reproduce.held import Plan, Step
from headlab.store import Store
from headlab.studies.run import Cost, Pieces, forecast, run_experiment
from headlab.tables import Report
from headlab.tasks.base import Task


@dataclass(frozen=True)
class Found:
    """A finished step."""

    step: Step
    report: Report


@dataclass
class Held:
    """The steps of one task: its model, its data, and the store of finished pieces."""

    model: Model
    task: Task
    plan: Plan
    store: Store
    seed: int = 0

    def __post_init__(self) -> None:
        self._every = self._pieces(self.plan.languages(self.task), self.plan.test[self.task.name])
        self._curves = self._pieces(self.plan.curved(self.task), self.plan.curve)

    def _pieces(self, languages: tuple[str, ...], test: int) -> Pieces:
        return Pieces(
            self.model, self.task.restricted(languages), self.store, seed=self.seed, dev_size=self.plan.dev,
            test_size=test,
        )  # fmt: skip

    def pieces(self, step: Step) -> Pieces:
        """The pieces that a step is built from."""
        return self._curves if step.curves else self._every

    def cost(self, step: Step) -> Cost:
        """Forecast cost of a step, given what is in the store."""
        return forecast(step.experiment, self.pieces(step), step.options)

    def done(self, step: Step, on_progress: Callable[[Progress], None]) -> Found:
        """Run a step, or load its stored report."""
        report = run_experiment(step.experiment, self.pieces(step), options=step.options, on_progress=on_progress)
        return Found(step, report)


def keep(found: Found, folder: Path, command: str) -> Path:
    """Write a report as JSON with the command that made it, and its tables as CSV beside it."""
    path = folder / f"{found.step.name}.json"
    write_json(path, {"command": command, **found.report.to_json()})
    for table in found.report.tables:
        write_atomic(folder / f"{found.step.name}-{table.name}.csv", table.csv().encode())
    return path


def texts(found: Found) -> Iterator[str]:
    """A report as Markdown, one table or note at a time."""
    for table in found.report.tables:
        yield f"### {found.step.task}: {table.title}\n\n{table.markdown()}"
    yield from (f"note: {note}" for note in found.report.notes)


def as_json(command: str, plan: Plan, every: list[Found]) -> Mapping[str, Any]:
    """All reports of a run as one JSON object, by task and experiment."""
    reports: dict[str, dict[str, Any]] = {}
    for found in every:
        name = found.step.name.removeprefix(f"{found.step.task}-")
        reports.setdefault(found.step.task, {})[name] = found.report.to_json()
    return {"command": command, "plan": dict(vars(plan)), "reports": reports}
