"""Measuring what a mask is worth: counts, then passes of the untouched, the masked and the shrunk model in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn

from headlab.errors import HeadlabError
from headlab.gates import Active, Model, as_gates
from headlab.masks import Mask
from headlab.models.versions import versions
from headlab.records import Floats
from headlab.shrink import Shrunk, shrink_model
from headlab.tasks.base import Task
from headlab.worth.costs import Left
from headlab.worth.count import macs_of, made_up, parameters_of
from headlab.worth.latency import ROUNDS, Pass, timed
from headlab.worth.ratio import median_interval, ratio_of
from headlab.worth.sample import SENTENCES, Batches, batches_of, tokens_of
from headlab.worth.worth import Speed, Worth

BATCH_SIZES = (1, 8, 32)
ROWS = 32  # examples of a pass that is timed: as many whole batches as fit, one at least
Told = Callable[[int, int, str], None]


def measure(
    untouched: Model,
    mask: Mask,
    *,
    task: Task | None = None,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    rounds: int = ROUNDS,
    seed: int = 0,
    tick: Callable[[], None] = lambda: None,
    told: Told = lambda done, total, note: None,
) -> Worth:
    """Parameters and multiply-accumulates of a model untouched, masked and shrunk, and how long each takes.

    task: whose examples give the lengths; None takes the embedded task's sentences.  rounds: of passes of all three,
    6 or more.  tick: called between passes; may raise to stop.  told: called with rounds done, their number and a
    note.  Where the heads cannot be taken out the record says why, and only the mask is timed.  Raises
    HeadlabError for another model's mask, a batch size below 1 or a task that does not fit.
    """
    mask.check(untouched.grid, untouched.fingerprint)
    if not batch_sizes or min(batch_sizes) < 1:
        raise HeadlabError(
            f"batch sizes are {list(batch_sizes)}; give one or more, each 1 or more", code="worth.batch_sizes_invalid"
        )
    shrunk, refused = _shrunk(untouched, mask)
    module = None if shrunk is None else shrunk.module
    samples = {
        n: batches_of(untouched, task, rows=n, count=max(1, ROWS // n), seed=seed) for n in dict.fromkeys(batch_sizes)
    }
    tokens = tokens_of(samples[min(samples)])
    seconds = timed(
        [_passes(untouched, mask, module, batches) for batches in samples.values()], untouched.device, rounds=rounds,
        seed=seed, tick=tick, told=lambda turn: told(turn, rounds, f"round {turn + 1}"),
    )  # fmt: skip
    told(rounds, rounds, "done")
    device = _device(untouched.device)
    speeds = tuple(_speed(device, *sample, each) for sample, each in zip(samples.items(), seconds, strict=True))
    spec = {
        "model": untouched.recorded(), "mask": mask.digest, "task": None if task is None else task.name,
        "languages": [] if task is None else list(task.languages),
        "sentences": SENTENCES if task is None else None, "batch_sizes": list(samples), "rounds": rounds,
        "seed": seed, "threads": torch.get_num_threads(), "versions": versions(),
    }  # fmt: skip
    whole = _counted(untouched.module, untouched, tokens)
    left = None if module is None else _counted(module, untouched, tokens)
    still = 0 if shrunk is None else len(shrunk.masked)
    return Worth(untouched.grid.size, len(mask.removed), whole, left, speeds, refused, still, spec)


def _shrunk(model: Model, mask: Mask) -> tuple[Shrunk | None, str]:
    """The model without the mask's heads, and why there is none."""
    try:
        return shrink_model(model, mask), ""
    except HeadlabError as error:
        return None, str(error).rstrip(".")


def _counted(module: nn.Module, model: Model, tokens: int) -> Left:
    return Left(parameters_of(module), macs_of(module, made_up(model.module, tokens)), tokens)


def _passes(model: Model, mask: Mask, shrunk: nn.Module | None, batches: Batches) -> Sequence[Pass]:
    """Passes of the untouched, the masked and, where there is one, the shrunk model over the batches."""
    gates = as_gates(model, mask)

    def untouched() -> None:
        for batch in batches:
            model.module(**batch)

    def masked() -> None:
        with model.active(Active(gates=gates)):
            untouched()

    def without() -> None:
        assert shrunk is not None
        for batch in batches:
            shrunk(**batch)

    return [untouched, masked] + ([] if shrunk is None else [without])


def _speed(device: str, rows: int, batches: Batches, seconds: Floats) -> Speed:
    """What was timed at one batch size. seconds: [round, pass]."""
    ratios = [ratio_of(seconds[:, 0], seconds[:, at]) for at in range(1, seconds.shape[1])]
    each = 1000 * seconds[:, 0] / len(batches)
    between = median_interval(each)
    shrunk = ratios[1] if len(ratios) > 1 else None
    return Speed(device, rows, tokens_of(batches), float(np.median(each)), ratios[0], shrunk, between)


def _device(device: torch.device) -> str:
    """A device by the name people know it by."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{device.type} ({threads} thread{'s' * (threads != 1)})"
