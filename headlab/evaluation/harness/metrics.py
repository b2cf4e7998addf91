"""The metrics of tasks and groups of lm-evaluation-harness, and what a mask does to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypedDict, cast

import numpy as np

from headlab.evaluation.harness.statistics import (
    DocumentValue,
    Values,
    document_count,
    paired_interval,
    shares,
)
from headlab.stats import PairedDifference, stratified_bootstrap

MetricRow: TypeAlias = dict[str, bool | int | float | str | None]
Figures = dict[str, dict[str, MetricRow]]  # by task or group, and by metric
NO_NUMBER = "the harness gives no number"
UNNAMED_AGGREGATION = "mean"  # what the harness does with a metric that names no aggregation


class HarnessResults(TypedDict):
    """What `simple_evaluate` of the harness gives, as far as it is read here.

    Attributes:
        samples: by task, what was found for each document: its number, the filter of its answer,
            the names of its metrics, and the value of each under that name.
        results: by task or group, and by "metric,filter", the metric of all documents.
        higher_is_better: by task or group, and by metric.
    """

    samples: Mapping[str, Sequence[Mapping[str, DocumentValue]]]
    results: Mapping[str, Mapping[str, DocumentValue]]
    higher_is_better: Mapping[str, Mapping[str, bool | None]]


@dataclass(frozen=True)
class TaskGroup:
    """A group of tasks, over which metrics are averaged.

    Attributes:
        tasks: names of all its tasks, those of its subgroups included.
        by_size: of each averaged metric, whether a task counts as often as it has documents.
    """

    tasks: tuple[str, ...]
    by_size: Mapping[str, bool]


@dataclass(frozen=True)
class HarnessRun:
    """What the harness found for one model.

    Attributes:
        results: what its `simple_evaluate` gives.
        aggregations: of each task and metric, the name of the function that computes the metric
            of all documents.
        groups: of tasks, by name.
    """

    results: HarnessResults
    aggregations: Mapping[str, Mapping[str, str]]
    groups: Mapping[str, TaskGroup] = field(default_factory=dict)

    def values(self, task: str) -> dict[tuple[str, str], dict[str, DocumentValue]]:
        """{(metric, filter): {document: value}} of a task."""
        values: dict[tuple[str, str], dict[str, DocumentValue]] = defaultdict(dict)
        for sample in self.results["samples"][task]:
            filter_name = str(sample["filter"])
            for metric in cast("Sequence[str]", sample["metrics"]):
                values[metric, filter_name][str(sample["doc_id"])] = sample[metric]
        return dict(values)

    def value(self, name: str, metric: str, filter_name: str) -> float | None:
        """A metric as the harness gives it; None where that is no finite number."""
        value = self.results["results"][name][f"{metric},{filter_name}"]
        if isinstance(value, int | float | np.number) and np.isfinite(value):
            return float(value)
        return None

    def higher_is_better(self, name: str, metric: str) -> bool | None:
        """Whether more of a metric is better; None where the task does not say."""
        return self.results["higher_is_better"].get(name, {}).get(metric)

    def aggregation(self, task: str, metric: str) -> str:
        """Name of the function that computes a metric of all documents."""
        return self.aggregations[task].get(metric, UNNAMED_AGGREGATION)


def figures(
    runs: Sequence[HarnessRun], seed: int, cut_by_task: Mapping[str, int] | None = None
) -> Figures:
    """{task or group: {metric: row}}, the last run's, with the difference from the first.

    A task with several filters has a row for each, named `metric,filter` as in the harness.  A row
    holds the metric under its name, `n` (documents), `filter`, `aggregation`, `higher_is_better`
    and `cut` (documents of which the beginning was cut).  Of two runs it also holds `baseline` and
    `difference`, and `low`, `high` and `p` or, as `no_interval`, why there are none.

    Args:
        runs: without a mask, and with it, if there is one.
        seed: of the intervals.
        cut_by_task: number of documents that were cut, by task.
    """
    cut_by_task = cut_by_task or {}
    table: Figures = {}
    for task in runs[0].results["samples"]:
        table[task] = _task_rows(task, runs, seed, cut_by_task.get(task, 0))
    for name, group in runs[0].groups.items():
        rows = _group_rows(name, group, runs, seed)
        if rows:
            cut_documents = sum(cut_by_task.get(task, 0) for task in group.tasks)
            table[name] = {key: row | {"cut": cut_documents} for key, row in rows.items()}
    return table


def _task_rows(
    task: str, runs: Sequence[HarnessRun], seed: int, cut_documents: int
) -> dict[str, MetricRow]:
    values_by_run = [run.values(task) for run in runs]
    names = [name for name in values_by_run[-1] if all(name in values for values in values_by_run)]
    several_filters = len({filter_name for _, filter_name in names}) > 1
    rows = {}
    for metric, filter_name in names:
        aggregation = runs[0].aggregation(task, metric)
        row = _row(task, metric, filter_name, runs)
        row["n"] = document_count(
            aggregation, list(values_by_run[-1][metric, filter_name].values())
        )
        row["aggregation"] = aggregation
        row["cut"] = cut_documents
        if len(runs) > 1:
            before, after = (values[metric, filter_name] for values in values_by_run)
            row |= _interval_fields(row, _task_interval(row, before, after, seed))
        rows[f"{metric},{filter_name}" if several_filters else metric] = row
    return rows


def _task_interval(
    row: MetricRow,
    before: Mapping[str, DocumentValue],
    after: Mapping[str, DocumentValue],
    seed: int,
) -> PairedDifference | str:
    """Difference in a task's metric with its interval, or why there is none.

    Args:
        row: of the metric.
        before: value of each document without the mask.
        after: the same with it.
        seed: of the resampling.
    """
    if row["difference"] is None:  # what is kept of a document may then be anything
        return NO_NUMBER
    if before.keys() != after.keys():
        return "the two models were measured on different documents"
    documents = tuple(before)
    values_before = list(before.values())
    values_after = [after[document] for document in documents]
    return paired_interval(str(row["aggregation"]), values_before, values_after, documents, seed)


def _group_rows(
    name: str,
    group: TaskGroup,
    runs: Sequence[HarnessRun],
    seed: int,
) -> dict[str, MetricRow]:
    """Rows of the metrics that a group averages over its tasks."""
    keys = [key.rsplit(",", 1) for key in runs[0].results["results"].get(name, {}) if "," in key]
    names = [(metric, filter_name) for metric, filter_name in keys if metric in group.by_size]
    several_filters = len({filter_name for _, filter_name in names}) > 1
    values_by_run = [{task: run.values(task) for task in group.tasks} for run in runs]
    rows = {}
    for metric, filter_name in names:
        tasks = [task for task in group.tasks if (metric, filter_name) in values_by_run[0][task]]
        strata_by_run = []
        for values in values_by_run:
            strata_by_run.append([values[task].get((metric, filter_name), {}) for task in tasks])
        row = _row(name, metric, filter_name, runs)
        row["n"] = sum(len(values) for values in strata_by_run[-1])
        row["tasks"] = len(tasks)
        by_size = group.by_size[metric]
        row["aggregation"] = "mean of tasks by size" if by_size else "mean of tasks"
        if len(runs) > 1:
            means = all(runs[0].aggregation(task, metric) == "mean" for task in tasks)
            interval: PairedDifference | str = "the metric of its tasks is no share of documents"
            if means:
                interval = _group_interval(tasks, *strata_by_run, by_size=by_size, seed=seed)
            row |= _interval_fields(row, interval)
        rows[f"{metric},{filter_name}" if several_filters else metric] = row
    return rows


def _group_interval(
    tasks: Sequence[str],
    before: Sequence[Mapping[str, DocumentValue]],
    after: Sequence[Mapping[str, DocumentValue]],
    *,
    by_size: bool,
    seed: int,
) -> PairedDifference | str:
    """Difference in a mean over tasks with its interval, or why there is none.

    Args:
        tasks: names of the tasks.
        before: value of each document of each task without the mask.
        after: the same with it.
        by_size: whether a task counts as often as it has documents.
        seed: of the resampling.
    """
    if any(
        task_before.keys() != task_after.keys()
        for task_before, task_after in zip(before, after, strict=True)
    ):
        return "the two models were measured on different documents"
    pooled_before: list[DocumentValue] = []
    pooled_after: list[DocumentValue] = []
    names: list[str] = []
    strata = []
    for task, task_before, task_after in zip(tasks, before, after, strict=True):
        documents = tuple(task_before)
        values_before: Values = [task_before[document] for document in documents]
        values_after: Values = [task_after[document] for document in documents]
        if not shares([*values_before, *values_after]):
            return "the metric of its tasks is no share of documents"
        gain = np.array(values_after, dtype=np.float64) - np.array(values_before, dtype=np.float64)
        strata.append((gain[None], documents))
        pooled_before += values_before
        pooled_after += values_after
        names += [f"{task}/{document}" for document in documents]
    if by_size:
        return paired_interval("mean", pooled_before, pooled_after, tuple(names), seed)
    low, high, p = stratified_bootstrap(strata, np.random.default_rng(seed))
    difference = float(np.mean([gain.mean() for gain, _ in strata]))
    return PairedDifference(difference, float(low[0]), float(high[0]), float(p[0]))


def _row(name: str, metric: str, filter_name: str, runs: Sequence[HarnessRun]) -> MetricRow:
    """A metric's value, filter and direction, and with two runs the difference between them."""
    value = runs[-1].value(name, metric, filter_name)
    row: MetricRow = {
        metric: value,
        "filter": filter_name,
        "higher_is_better": runs[0].higher_is_better(name, metric),
    }
    if len(runs) > 1:
        baseline = runs[0].value(name, metric, filter_name)
        row["baseline"] = baseline
        row["difference"] = None
        if baseline is not None and value is not None:
            row["difference"] = value - baseline
    return row


def _interval_fields(row: MetricRow, interval: PairedDifference | str) -> MetricRow:
    """The interval of a row's difference as fields, or why there is none.

    An interval counts only where its difference is the harness's own: a task may compute a metric
    in a way of its own.
    """
    difference = row["difference"]
    if not isinstance(difference, float):
        return {"no_interval": NO_NUMBER}
    if isinstance(interval, str):
        return {"no_interval": interval}
    if not np.isclose(interval.difference, difference, rtol=1e-6, atol=1e-9):
        return {"no_interval": "the harness computes it in another way than headlab"}
    return {"low": interval.low, "high": interval.high, "p": interval.p}
