"""Is it right: what headlab computes on the device, against the same on the processor."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import headlab
from headlab.core import HeadlabError, Progress, Report
from headlab.evaluation import Evaluator
from headlab.hooks import Model
from headlab.hooks import model as hooks
from headlab.masks import Mask
from headlab.methods.model_game import ModelGame
from headlab.results import Store
from headlab.roles import of_task
from headlab.roles.study import study
from headlab.worker.model_host import hold, hold_device

from .record import Record
from .setting import Setting, random_mask

# Methods that are compared, with their options; the seed is the same on both devices.
METHODS: dict[str, Mapping[str, Any]] = {
    "leave-one-out": {},
    "gradient": {},
    "relevance": {},
    "confidence": {},
}


class Stopped(Exception):
    """Raised in a run to stop it as a user would."""


def run(setting: Setting, record: Record) -> None:
    """Every kind of result, in float64, where rounding decides nothing, and in float32."""
    for dtype in ("float64", "float32"):
        models = _models(setting, dtype)
        for name, comparison in _comparisons(setting).items():
            record.measure(f"{name}, {dtype}", partial(comparison, setting, *models))
    processor, device = _models(setting, "float64")
    record.measure(
        "a run stopped and resumed", lambda: stopped_and_resumed(setting, device, device)
    )
    record.measure(
        "begun on the processor", lambda: stopped_and_resumed(setting, processor, device)
    )
    record.measure("two threads at once", lambda: two_threads(setting, device))
    record.measure("a batch that does not fit", lambda: too_large_a_batch(setting, device))
    record.measure("two workers and one device", lambda: two_workers(setting))


def _models(setting: Setting, dtype: str) -> tuple[Model, Model]:
    """The same model on the processor and on the device."""
    return setting.main.load("cpu", dtype), setting.main.load(setting.device, dtype)


def _comparisons(setting: Setting) -> dict[str, Callable[[Setting, Model, Model], dict[str, Any]]]:
    methods = {name: _method_comparison(name, options) for name, options in METHODS.items()}
    shapley = {"samples": setting.sizes.draws, "target": None}
    return {
        "shapley": _method_comparison("shapley", shapley),
        **methods,
        "evaluate": evaluations,
        "attention": attention_weights,
        "roles": roles,
    }


def _method_comparison(
    method: str, options: Mapping[str, Any]
) -> Callable[[Setting, Model, Model], dict[str, Any]]:
    def compare(setting: Setting, processor: Model, device: Model) -> dict[str, Any]:
        processor_scores = scores(setting, processor, method, options)
        device_scores = scores(setting, device, method, options)
        return comparison_figures(device_scores, processor_scores)

    return compare


def scores(
    setting: Setting, model: Model, method: str, options: Mapping[str, Any], **run_arguments: Any
) -> Any:
    """Values of every head by one method, float [head]."""
    subject = setting.main
    return headlab.score(
        model,
        subject.task,
        language=subject.language,
        method=method,
        size=setting.sizes.examples,
        **options,
        **run_arguments,
    ).values


def comparison_figures(values: Any, expected_values: Any) -> dict[str, Any]:
    """Values beside what they should be: the largest difference, and how many are not equal."""
    values = np.asarray(values, dtype=np.float64)
    expected_values = np.asarray(expected_values, dtype=np.float64)
    gap = np.abs(values - expected_values)
    return {
        "largest difference": float(gap.max()),
        "largest value": float(np.abs(expected_values).max()),
        "values": int(gap.size),
        "not equal to 1e-9": int((gap > 1e-9).sum()),
    }


def evaluations(setting: Setting, processor: Model, device: Model) -> dict[str, Any]:
    """Answers under a mask, from the public function that the README shows."""
    subject = setting.main
    answers = []
    for model in (processor, device):
        evaluator = Evaluator(model, subject.task, subject.language, "dev", setting.sizes.examples)
        answers.append(evaluator.evaluate(random_mask(model)).predicted)
    return {"answers": len(answers[0]), "other answers": int((answers[0] != answers[1]).sum())}


def attention_weights(setting: Setting, processor: Model, device: Model) -> dict[str, Any]:
    """Attention of every head on one sentence."""
    subject = setting.main
    example = subject.task.examples(subject.language, "dev", 1)[0]
    weights = []
    for model in (processor, device):
        inputs = model.tokenizer([example.text], return_tensors="pt").to(model.device)
        by_head = hooks.attention_of_heads(model, inputs, model.grid.heads)
        weights.append(torch.stack([by_head[head] for head in model.grid.heads]).double().numpy())
    return comparison_figures(weights[1], weights[0])


def roles(setting: Setting, processor: Model, device: Model) -> dict[str, Any]:
    """Numbers with decimals of the report on roles, row by row.

    A row is named by its other cells. Where a head attends equally to two tokens, rounding decides
    which position it prefers; such a row has another name on each device, and is counted.
    """
    subject = setting.main
    sentences = of_task(subject.task, subject.language, "dev", setting.sizes.examples)
    processor_rows = numbers_by_row(study(processor, sentences))
    device_rows = numbers_by_row(study(device, sentences))
    same_rows = sorted(set(processor_rows) & set(device_rows))
    figures = comparison_figures(
        [number for row in same_rows for number in device_rows[row]],
        [number for row in same_rows for number in processor_rows[row]],
    )
    return figures | {
        "rows": len(processor_rows),
        "other rows": len(set(processor_rows) ^ set(device_rows)),
    }


def numbers_by_row(report: Report) -> dict[tuple[str, ...], list[float]]:
    """{table and other cells of a row: the row's numbers with decimals}, of a whole report."""
    rows = {}
    for table in report.tables:
        for row in table.rows:
            name = tuple(str(cell) for cell in row if not isinstance(cell, float))
            rows[(table.name, *name)] = [cell for cell in row if isinstance(cell, float)]
    return rows


# What happens to a run on the device.


def stopped_and_resumed(
    setting: Setting, starting_model: Model, finishing_model: Model
) -> dict[str, Any]:
    """Compare a run that is stopped on one model and finished on another with one without a stop."""
    options = {"samples": setting.sizes.draws, "target": None}
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        snapshots = 0

        def stop_after_a_few(_: Progress) -> None:
            nonlocal snapshots
            snapshots += 1
            if snapshots > 2:
                raise Stopped

        try:
            scores(
                setting,
                starting_model,
                "shapley",
                options,
                store=store,
                on_progress=stop_after_a_few,
            )
        except Stopped:
            pass
        else:
            return {"error": "the run ended before it could be stopped"}
        resumed_scores = scores(setting, finishing_model, "shapley", options, store=store)
    return comparison_figures(resumed_scores, scores(setting, finishing_model, "shapley", options))


def two_threads(setting: Setting, device: Model) -> dict[str, Any]:
    """Compare two evaluations of one model at once with the same ones in turn."""
    subject = setting.main
    masks = [random_mask(device, seed) for seed in range(2)]

    def answers(mask: Mask) -> Any:
        evaluator = Evaluator(device, subject.task, subject.language, "dev", setting.sizes.examples)
        return evaluator.evaluate(mask).predicted

    answers_in_turn = [answers(mask) for mask in masks]
    with ThreadPoolExecutor(2) as pool:
        answers_at_once = list(pool.map(answers, masks * 4))
    differing = 0
    for number, predictions in enumerate(answers_at_once):
        differing += int((predictions != answers_in_turn[number % 2]).sum())
    return {"answers": sum(map(len, answers_at_once)), "other answers": differing}


def too_large_a_batch(setting: Setting, device: Model) -> dict[str, Any]:
    """Compare gains of batches that do not fit, and are halved, with gains of batches that fit."""
    subject = setting.main
    evaluator = Evaluator(device, subject.task, subject.language, "dev", setting.sizes.examples)
    rows = np.arange(len(evaluator.examples))
    all_heads = np.ones((len(rows), device.grid.size), dtype=bool)
    expected_gains = ModelGame(evaluator).marginals(all_heads, all_heads, rows)
    game = ModelGame(evaluator, tokens=1 << 30)
    with LimitedMemory(setting) as refusals:
        gains = game.marginals(all_heads, all_heads, rows)
    return comparison_figures(gains, expected_gains) | {"batches refused": refusals()}


class LimitedMemory:
    """Let the device refuse large batches until the block ends.

    A GPU gives this process 300 MB above what it holds; on a processor, whose memory nobody can
    limit that way, passes of more rows than examples raise the same error.

    Yields:
        A function that gives the number of batches refused so far.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._refused = 0
        self._original = ModelGame._marginal_gains

    def __enter__(self) -> Callable[[], int]:
        if self._setting.on_card:
            torch.cuda.empty_cache()
            total_bytes = torch.cuda.mem_get_info()[1]
            held_bytes = torch.cuda.memory_reserved()
            torch.cuda.set_per_process_memory_fraction((held_bytes + (300 << 20)) / total_bytes)
        max_rows = max(1, self._setting.sizes.examples // 2)
        limited_memory = self

        def fan_or_refusal(
            game: ModelGame, kept: Any, wanted: Any, examples: Any, donors: Any
        ) -> Any:
            try:
                if not limited_memory._setting.on_card and len(kept) > max_rows:
                    raise MemoryError("more rows than this measurement allows")
                return limited_memory._original(game, kept, wanted, examples, donors)
            except (MemoryError, torch.OutOfMemoryError):
                limited_memory._refused += 1
                raise

        ModelGame._marginal_gains = fan_or_refusal  # type: ignore[method-assign]
        return lambda: self._refused

    def __exit__(self, *_: object) -> None:
        ModelGame._marginal_gains = self._original  # type: ignore[method-assign]
        if self._setting.on_card:
            torch.cuda.set_per_process_memory_fraction(1.0)
            torch.cuda.empty_cache()


def two_workers(setting: Setting) -> dict[str, Any]:
    """Whether a second worker is refused the device that a first one holds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def hold_the_device() -> Any:
            if setting.on_card:
                return hold_device(torch.device(setting.device), folder)
            return hold("processor", setting.device, folder)

        with hold_the_device():
            try:
                hold_the_device()
            except HeadlabError as error:
                return {"refused": error.code == "device.in_use", "message": str(error)}
    return {"error": "the second worker was given the device too"}
