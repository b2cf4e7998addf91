"""Stored Pareto fronts: which ones fit, and their points as dots, lists and tables. No streamlit here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from headlab.charts.front import FrontDot
from headlab.core import Bools, HeadGrid, Report, is_number, is_same_model
from headlab.dashboard.names import counted
from headlab.dashboard.panels.stored_reports import StoredJob, differences
from headlab.jobs.table import ExperimentJob, FrontJob
from headlab.report.commands import QUESTION
from headlab.results import Result, kept_without
from headlab.studies import BOUND, STUDIES, typed_result
from headlab.studies.pareto import FrontResult, Point, TestedLanguage, cost_of, pareto

ABOUT = STUDIES["front"]


WEAKEST, MEAN, HEADS, PARAMETERS = (
    "weakest language",
    "mean of the languages",
    "heads kept",
    "parameters kept",
)

MILLION = 1e6


@dataclass(frozen=True)
class Front:
    """A front with its points.

    Attributes:
        result: The stored report.
        front: What it found.
        points: Its models.
        grid: Of the front's model.
    """

    result: Result[Report]
    front: FrontResult
    points: tuple[Point, ...]
    grid: HeadGrid

    @property
    def report(self) -> Report:
        """The front's report."""
        return self.result.record

    @property
    def answer(self) -> Point:
        """The point that answers the question."""
        answer = self.front.answer
        return self.point(answer.order, answer.removed)

    @property
    def loss(self) -> float | None:
        """Points that may be lost; None if the question was another."""
        return self.front.loss

    @property
    def counted(self) -> bool:
        """Whether parameters are known for every point."""
        return all(point.parameters is not None for point in self.points)

    def point(self, order: str, removed: int) -> Point:
        """The point with this order and number of heads removed. Raises KeyError if there is none."""
        for point in self.points:
            if (point.order, point.removed) == (order, removed):
                return point
        raise KeyError((order, removed))

    def kept(self, point: Point) -> Bools:
        """Heads that a point keeps, bool [head]."""
        order = self.front.removal_order(point.order, self.grid)
        return kept_without(order[: point.removed], self.grid.size)


def read_front(result: Result[Report], grid: HeadGrid) -> Front:
    """A front of this model. Raises HeadlabError if the report is not a front, or is of another model."""
    front = typed_result(result.record, FrontResult)
    for order in dict.fromkeys(point.order for point in front.points):
        front.removal_order(order, grid)
    return Front(result, front, front.points, grid)


def matching_fronts(
    results: Sequence[Result[Report]], fingerprint: str, task: str, languages: Sequence[str]
) -> list[Result[Report]]:
    """Fronts of this model and task, the newest first; those of exactly these languages before the rest."""
    fronts = [r for r in results if r.record.name == ABOUT.key and _of(r, fingerprint, task)]
    return sorted(
        fronts,
        key=lambda r: (is_on_languages(r, languages), str(r.meta.get("created", ""))),
        reverse=True,
    )


def is_on_languages(result: Result[Report], languages: Sequence[str]) -> bool:
    """Whether a front is on exactly these languages."""
    return set(languages_of_front(result)) == set(languages)


def _of(result: Result[Report], fingerprint: str, task: str) -> bool:
    spec = result.record.spec
    return bool(
        is_same_model(spec["model"].get("fingerprint"), fingerprint)
        and spec["task"].get("name") == task
    )


def languages_of_front(result: Result[Report]) -> list[str]:
    """Codes of the languages that a front is on."""
    return str(result.record.spec["task"].get("language", "")).split(",")


def front_label(result: Result[Report]) -> str:
    """A front in one line: question, languages, method that ordered the heads, and date."""
    options, languages = result.record.spec["options"], languages_of_front(result)
    named = ", ".join(languages) if len(languages) < 5 else f"{len(languages)} languages"
    created = str(result.meta.get("created", ""))[:16].replace("T", " ")
    return f"{question_words(options)} · {named} · {options.get('method', 'method not recorded')} · {created}"


def question_words(options: Mapping[str, object]) -> str:
    """What a front was asked, in words; another program may have written options that say it in no way."""
    heads, points = options.get("heads"), options.get("within")
    if is_number(points):
        by = "lower bound" if options.get("by") == BOUND else "estimate"
        return f"within {counted(points, 'point')} by the {by}"
    return f"best with {counted(heads, 'head')}" if is_number(heads) else "question not recorded"


def other_settings(result: Result[Report], form_job: FrontJob) -> list[str]:
    """The settings of a front that are not those of the form, in words."""
    stored = StoredJob.of(result.record)
    question = question_words(stored.job.options)
    without_question = replace(stored, job=_without_question(stored.job))
    settings = differences(without_question, _without_question(form_job))
    if question == question_words(form_job.options):
        return settings
    return [question, *settings]


def _without_question(job: ExperimentJob) -> ExperimentJob:
    """A front's job without its question, which is told in words."""
    options = {name: value for name, value in job.options.items() if name not in QUESTION}
    return job.model_copy(update={"options": options})


def front_dots(front: Front, cost: str, value: str) -> list[FrontDot]:
    """The points as they are drawn. cost: HEADS or PARAMETERS.  value: WEAKEST or MEAN."""
    points = front.points
    costs = (
        cost_of(points) / MILLION
        if cost == PARAMETERS
        else np.array([p.kept for p in points], float)
    )
    values = [100 * (p.worst if value == WEAKEST else p.mean) for p in points]
    lows = [100 * (p.worst_bound if value == WEAKEST else p.mean_low) for p in points]
    best = pareto(costs, np.array(values))
    rows = zip(points, costs.tolist(), values, lows, best.tolist(), strict=True)
    return [FrontDot(p.order, p.removed, c, v, low, b, hover_text(p)) for p, c, v, low, b in rows]


def offered_points(front: Front) -> list[Point]:
    """The answer and the Pareto-optimal points, fewest heads first."""
    cost = PARAMETERS if front.counted else HEADS
    best = {(dot.order, dot.removed) for dot in front_dots(front, cost, WEAKEST) if dot.best}
    best.add((front.answer.order, front.answer.removed))
    points = sorted(dict.fromkeys(front.points), key=lambda p: (p.kept, -p.worst))
    return [p for p in points if (p.order, p.removed) in best]


def hover_text(point: Point) -> str:
    """Hover text of a point."""
    lines = [f"<b>{point.kept} heads kept</b>, {point.removed} off (order {point.order})"]
    if point.parameters is not None:
        lines.append(f"{point.parameters / MILLION:.2f} million parameters after shrinking")
    lines.append(
        f"weakest: {point.weakest} {100 * point.worst:+.1f} points, bound {100 * point.worst_bound:+.1f}"
    )
    lines.append(
        f"mean {100 * point.mean:+.1f} [{100 * point.mean_low:+.1f}, {100 * point.mean_high:+.1f}]"
    )
    return "<br>".join(lines).replace("-", "−")


def confirmed_table(front: Front) -> pd.DataFrame:
    """The answer's accuracy on test: a row per language, and one for their mean."""
    rows = front.front.confirmed.rows
    columns = {
        "Language": [row.language for row in rows],
        "Accuracy %": [row.accuracy for row in rows],
        "Difference": [row.difference for row in rows],
        "95 % interval": [interval_words(row) for row in rows],
    }
    if front.loss is not None:
        columns["p of the loss"] = [row.p_loss for row in rows]
    return pd.DataFrame(columns)


def interval_words(row: TestedLanguage) -> str | None:
    """The interval of a difference on test; None where there is none."""
    if row.low is None or row.high is None:
        return None
    return f"{row.low:+.1f} … {row.high:+.1f}"


def point_label(point: Point, *, answer: bool = False) -> str:
    """A point as a list entry."""
    told = (
        f"{point.kept} heads · weakest {point.weakest} {100 * point.worst:+.1f} · mean {100 * point.mean:+.1f} "
        f"· order {point.order}"
    )
    return f"{told}{' · the answer' if answer else ''}".replace("-", "−")
