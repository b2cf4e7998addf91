"""Stored Pareto fronts: which ones fit, and their points as dots, lists and tables.

No streamlit here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from headlab.charts.front import FrontDot
from headlab.core import (
    HEADS,
    HeadGrid,
    HeadlabError,
    Report,
    integer_in,
    is_number,
    is_same_model,
    nouns_of_kinds,
    players_phrase,
    read_players,
)
from headlab.dashboard.names import count_words, with_minus_signs
from headlab.dashboard.pages.prune.point_words import (
    HEADS_KEPT,
    PARAMETERS_KEPT,
    WholeModel,
    drawn_cost,
    hover_text,
)
from headlab.dashboard.panels.stored import StoredJob, report_differences
from headlab.jobs.table import ExperimentJob, FrontJob
from headlab.report.commands import QUESTION
from headlab.results import Result
from headlab.studies import BOUND, CUT, PLAYERS, STUDIES, VOCABULARY, typed_result
from headlab.studies.pareto import (
    FrontResult,
    Point,
    TestedLanguage,
    pareto,
    require_players_of_front,
)

FRONT_STUDY = STUDIES["front"]


def full_sizes() -> int:
    """How many sizes the full front measures."""
    return integer_in({"points": FRONT_STUDY.options["points"].default}, "points")


WEAKEST_LANGUAGE = "weakest language"
MEAN_OF_LANGUAGES = "mean of the languages"


@dataclass(frozen=True)
class StoredFront:
    """A front with its points.

    Attributes:
        result: The stored report.
        study_result: The study's typed result.
        points: Its models.
        grid: Of the heads, or other players, of the front's model.
    """

    result: Result[Report]
    study_result: FrontResult
    points: tuple[Point, ...]
    grid: HeadGrid

    @property
    def report(self) -> Report:
        """The front's report."""
        return self.result.record

    @property
    def answer(self) -> Point:
        """The point that answers the question."""
        answer = self.study_result.answer
        return self.point(answer.order, answer.heads_removed)

    @property
    def loss(self) -> float | None:
        """Points that may be lost; None if the question was another."""
        return self.study_result.loss

    @property
    def has_parameters(self) -> bool:
        """Whether parameters are known for every point."""
        return all(point.parameters is not None for point in self.points)

    def point(self, order: str, removed_count: int) -> Point:
        """The point with this order and number of heads, or other players, removed.

        Raises:
            KeyError: If there is none.
        """
        for point in self.points:
            if (point.order, point.heads_removed) == (order, removed_count):
                return point
        raise KeyError((order, removed_count))


def read_front(result: Result[Report], grid: HeadGrid) -> StoredFront:
    """A front of this model.

    Args:
        result: The stored report.
        grid: Of the heads, or other players, that are shown.

    Raises:
        HeadlabError: If the report is not a front, or is of another model or other players.
    """
    require_players_of_front(result.record, grid)
    front = typed_result(result.record, FrontResult)
    for order in dict.fromkeys(point.order for point in front.points):
        front.removal_order(order, grid)
    return StoredFront(result, front, front.points, grid)


def matching_fronts(
    results: Sequence[Result[Report]],
    fingerprint: str,
    task: str,
    languages: Sequence[str],
    players: str = HEADS,
) -> list[Result[Report]]:
    """Fronts of this model and task that remove these players.

    Args:
        results: Stored reports of any study.
        fingerprint: Of the model's weights.
        task: Name of the task.
        languages: Codes of languages.
        players: What is removed, as `headlab.core.read_players` reads it.

    Returns:
        Those of exactly these languages, then the rest; in each, the newest first.
    """
    fronts = []
    for result in results:
        is_front = result.record.name == FRONT_STUDY.key
        if not is_front or players_of_front(result) != players:
            continue
        if _is_of_model_and_task(result, fingerprint, task):
            fronts.append(result)

    def rank(result: Result[Report]) -> tuple[bool, str]:
        return is_on_languages(result, languages), str(result.meta.get("created", ""))

    return sorted(fronts, key=rank, reverse=True)


def is_on_languages(result: Result[Report], languages: Sequence[str]) -> bool:
    """Whether a front is on exactly these languages."""
    return set(languages_of_front(result)) == set(languages)


def _is_of_model_and_task(result: Result[Report], fingerprint: str, task: str) -> bool:
    spec = result.record.spec
    return bool(
        is_same_model(spec["model"].get("fingerprint"), fingerprint)
        and spec["task"].get("name") == task
    )


def languages_of_front(result: Result[Report]) -> list[str]:
    """Codes of the languages that a front is on."""
    return str(result.record.spec["task"].get("language", "")).split(",")


def players_of_front(result: Result[Report]) -> str:
    """What a front removes, as `headlab.core.read_players` reads it."""
    return str(result.record.spec.players or HEADS)


def front_label(result: Result[Report]) -> str:
    """A front in one line: question, players, languages, method that ordered them, and date.

    Heads are not named as players. It says where parameters are counted with a cut vocabulary.
    """
    options = result.record.spec["options"]
    languages = languages_of_front(result)
    language_list = ", ".join(languages) if len(languages) < 5 else f"{len(languages)} languages"
    if options.get(VOCABULARY) == CUT:
        language_list += ", vocabulary cut"
    method = options.get("method", "method not recorded")
    created_at = str(result.meta.get("created", ""))[:16].replace("T", " ")
    words = [question_words(options), language_list, str(method), created_at]
    players = players_of_front(result)
    if players != HEADS:
        words.insert(1, players_phrase(players))
    return " · ".join(words)


def question_words(options: Mapping[str, object]) -> str:
    """The question that a front answers; another program's options may not say it."""
    heads = options.get("heads")
    points = options.get("within")
    if is_number(points):
        basis = "lower bound" if options.get("by") == BOUND else "estimate"
        return f"within {count_words(points, 'point')} by the {basis}"
    if is_number(heads):
        one, several = _nouns_of(options)
        return f"best with {heads:,} {one if heads == 1 else several}"
    return "question not recorded"


def _nouns_of(options: Mapping[str, object]) -> tuple[str, str]:
    """What one of those that a front removes is called, and what several are."""
    try:
        return nouns_of_kinds(read_players(str(options.get(PLAYERS) or HEADS)).kinds)
    except HeadlabError:  # another program's
        return "player", "players"


def other_settings(result: Result[Report], form_job: FrontJob) -> list[str]:
    """The settings of a front that are not those of the form, in words."""
    stored_job = StoredJob.of(result.record)
    question = question_words(stored_job.job.options)
    without_question = replace(stored_job, job=_without_question(stored_job.job))
    settings = report_differences(without_question, _without_question(form_job))
    if question == question_words(form_job.options):
        return settings
    return [question, *settings]


def _without_question(job: ExperimentJob) -> ExperimentJob:
    """A front's job without its question, which is told in words."""
    options = {name: value for name, value in job.options.items() if name not in QUESTION}
    return job.model_copy(update={"options": options})


def front_dots(
    front: StoredFront,
    cost: str,
    loss_measure: str,
    whole: WholeModel | None = None,
    times: Mapping[Point, str] | None = None,
) -> list[FrontDot]:
    """The points as they are drawn.

    Args:
        front: The front.
        cost: HEADS_KEPT, PARAMETERS_KEPT in millions, or SIZE_IN_MB.
        loss_measure: WEAKEST_LANGUAGE or MEAN_OF_LANGUAGES.
        whole: The untouched model; None where nothing is known of it.
        times: What is known of a point's speed, in words, for some points.

    Returns:
        A dot for each point, in their order; differences are in points.
    """
    whole = whole or WholeModel(front.grid.size, noun=front.grid.noun)
    times = times or {}
    costs = np.array(
        [drawn_cost(point.heads_kept, point.parameters, cost, whole) for point in front.points]
    )
    differences_in_points = []
    lower_bounds = []
    for point in front.points:
        if loss_measure == WEAKEST_LANGUAGE:
            differences_in_points.append(100 * point.worst)
            lower_bounds.append(100 * point.worst_bound)
        else:
            differences_in_points.append(100 * point.mean)
            lower_bounds.append(100 * point.mean_low)
    is_best = pareto(costs, np.array(differences_in_points))
    dots = []
    for index, point in enumerate(front.points):
        dots.append(
            FrontDot(
                point.order,
                point.heads_removed,
                float(costs[index]),
                differences_in_points[index],
                lower_bounds[index],
                bool(is_best[index]),
                hover_text(point, whole, times.get(point, "")),
            )
        )
    return dots


def offered_points(front: StoredFront) -> list[Point]:
    """The answer and the Pareto-optimal points, the one that keeps fewest first."""
    cost = PARAMETERS_KEPT if front.has_parameters else HEADS_KEPT
    offered_keys = {(front.answer.order, front.answer.heads_removed)}
    for dot in front_dots(front, cost, WEAKEST_LANGUAGE):
        if dot.best:
            offered_keys.add((dot.order, dot.removed))
    points = sorted(dict.fromkeys(front.points), key=lambda point: (point.heads_kept, -point.worst))
    return [point for point in points if (point.order, point.heads_removed) in offered_keys]


def confirmed_table(front: StoredFront) -> pd.DataFrame:
    """The answer's accuracy on test: a row per language, and one for their mean."""
    rows = front.study_result.tested_languages.rows
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
    return with_minus_signs(f"{row.low:+.1f} … {row.high:+.1f}")
