"""Fronts as the Prune page finds them: which one, its points as dots, its command line. No streamlit here."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from headlab.methods.table import METHODS
from headlab.options import option_words
from headlab.plots.lines import FrontDot
from headlab.records import Bools, HeadGrid
from headlab.scores import kept_without
from headlab.store import ReportResult
from headlab.studies.pareto import ABOUT, CHOICE, CONFIRMED, Point, cost_of, pareto, read_order, read_points
from headlab.tables import Report

WEAKEST, MEAN, HEADS, PARAMETERS = "weakest language", "mean of the languages", "heads kept", "parameters kept"
FLAGS = {"seed": "--seed", "dev_size": "--size", "test_size": "--test-size", "ablation": "--ablation"}
USUAL: Mapping[str, Any] = {"seed": 0, "dev_size": 512, "test_size": None, "ablation": "zero"}
MILLION = 1e6


@dataclass(frozen=True)
class Front:
    """A front with its points. grid: of the model whose front it is."""

    result: ReportResult
    points: tuple[Point, ...]
    grid: HeadGrid

    @property
    def report(self) -> Report:
        """What was found."""
        return self.result.report

    @property
    def answer(self) -> Point:
        """The point that answers the question."""
        table = self.report.table(CHOICE)
        return self.point(table.column("order")[0], table.column("heads removed")[0])

    @property
    def loss(self) -> float | None:
        """Points that may be lost, where that was asked."""
        found: float | None = self.report.spec["options"].get("within")
        return found

    @property
    def counted(self) -> bool:
        """Whether parameters are known."""
        return all(point.parameters is not None for point in self.points)

    def point(self, order: str, removed: int) -> Point:
        """A point by its order and its heads removed. Raises KeyError."""
        for point in self.points:
            if (point.order, point.removed) == (order, removed):
                return point
        raise KeyError((order, removed))

    def kept(self, point: Point) -> Bools:
        """Heads that a point keeps, bool [head]."""
        return kept_without(read_order(self.report, point.order, self.grid)[: point.removed], self.grid.size)


def read_front(result: ReportResult, grid: HeadGrid) -> Front:
    """A front of this model. Raises HeadlabError for a report that is none, or of another model."""
    front = Front(result, tuple(read_points(result.report)), grid)
    for name in dict.fromkeys(point.order for point in front.points):
        read_order(result.report, name, grid)
    return front


def matching(
    results: Sequence[ReportResult], fingerprint: str, task: str, languages: Sequence[str]
) -> list[ReportResult]:
    """Fronts of this model and task, the newest first; those of just these languages before the rest."""
    own = [r for r in results if r.report.name == ABOUT.key and _of(r, fingerprint, task)]
    return sorted(own, key=lambda r: (_languages(r) == list(languages), str(r.meta.get("created", ""))), reverse=True)


def _of(result: ReportResult, fingerprint: str, task: str) -> bool:
    spec = result.report.spec
    return bool(spec["model"].get("fingerprint") == fingerprint and spec["task"].get("name") == task)


def _languages(result: ReportResult) -> list[str]:
    return str(result.report.spec["task"].get("language", "")).split(",")


def label(result: ReportResult) -> str:
    """A front in a line: its question, its languages, how it was ordered and when."""
    options, languages = result.report.spec["options"], _languages(result)
    asked = f"best with {options['heads']} heads" if options.get("within") is None else (
        f"within {options['within']:g} points by the {'lower bound' if options['by'] == 'bound' else 'estimate'}"
    )  # fmt: skip
    named = ", ".join(languages) if len(languages) < 5 else f"{len(languages)} languages"
    return f"{asked} · {named} · {options['method']} · {str(result.meta.get('created', ''))[:16].replace('T', ' ')}"


def dots_of(front: Front, cost: str, value: str) -> list[FrontDot]:
    """The points as they are drawn. cost: heads or parameters.  value: of the weakest language or of the mean."""
    points = front.points
    costs = cost_of(points) / MILLION if cost == PARAMETERS else np.array([p.kept for p in points], float)
    values = [100 * (p.worst if value == WEAKEST else p.mean) for p in points]
    lows = [100 * (p.worst_bound if value == WEAKEST else p.mean_low) for p in points]
    best = pareto(costs, np.array(values))
    rows = zip(points, costs.tolist(), values, lows, best.tolist(), strict=True)
    return [FrontDot(p.order, p.removed, c, v, low, b, hover(p)) for p, c, v, low, b in rows]


def offers(front: Front) -> list[Point]:
    """The answer, and the points that no other beats; the fewest heads first."""
    cost = PARAMETERS if front.counted else HEADS
    best = {(dot.order, dot.removed) for dot in dots_of(front, cost, WEAKEST) if dot.best}
    best.add((front.answer.order, front.answer.removed))
    points = sorted(dict.fromkeys(front.points), key=lambda p: (p.kept, -p.worst))
    return [p for p in points if (p.order, p.removed) in best]


def hover(point: Point) -> str:
    """What the pointer shows of a point."""
    lines = [f"<b>{point.kept} heads kept</b>, {point.removed} off (order {point.order})"]
    if point.parameters is not None:
        lines.append(f"{point.parameters / MILLION:.2f} million parameters, taken out")
    lines.append(f"weakest: {point.weakest} {100 * point.worst:+.1f} points, bound {100 * point.worst_bound:+.1f}")
    lines.append(f"mean {100 * point.mean:+.1f} [{100 * point.mean_low:+.1f}, {100 * point.mean_high:+.1f}]")
    return "<br>".join(lines).replace("-", "−")


def confirmed(front: Front) -> pd.DataFrame:
    """What the answer does on test: a row a language, and one for their mean."""
    table = front.report.table(CONFIRMED)
    low, high = table.column("low, points"), table.column("high, points")
    found = {
        "Language": table.column("language"),
        "Accuracy %": table.column("accuracy, %"),
        "Difference": table.column("difference, points"),
        "95 % interval": [None if a is None else f"{a:+.1f} … {b:+.1f}" for a, b in zip(low, high, strict=True)],
    }
    if front.loss is not None:
        found["p of the loss"] = table.column("p of the loss")
    return pd.DataFrame(found)


def words(point: Point, *, answer: bool = False) -> str:
    """A point in a list."""
    told = (
        f"{point.kept} heads · weakest {point.weakest} {100 * point.worst:+.1f} · mean {100 * point.mean:+.1f} "
        f"· order {point.order}"
    )
    return f"{told}{' · the answer' if answer else ''}".replace("-", "−")


def command(spec: Mapping[str, Any]) -> str:
    """The command line that makes the same front as a job of this spec."""
    options, line = spec["options"], ["headlab", "front"]
    for name in ("model", "task"):
        line += [f"--{name}", str(spec[name])]
    line += ["--languages", ",".join(spec["languages"])]
    question = "heads" if options.get("heads") is not None else "within"
    line += [f"--{question}", f"{options[question]:g}"]
    for name in ("by", "orders"):
        line += [f"--{name}", options[name]] if options[name] != ABOUT.options[name].default else []
    points = options["points"]
    line += ["--every"] if points is None else ["--points", str(points)] * (points != ABOUT.options["points"].default)
    method = str(spec["method"])
    line += ["--method", method] if method != "shapley" else []
    usual = METHODS[method].options if method in METHODS else {}
    line += option_words("-o", spec.get("method_options") or {}, usual)
    for name, value in USUAL.items():
        given = spec.get(name, value)
        line += [FLAGS[name], str(100_000 if given is None else given)] if given != value else []
    return shlex.join(line)
