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
from headlab.shrink import Shrunk, shrink_model
from headlab.tasks.base import Task
from headlab.worth.costs import Left
from headlab.worth.count import macs_of, made_up, parameters_of
from headlab.worth.latency import ROUNDS, timed
from headlab.worth.ratio import ratio_of
from headlab.worth.sample import Batches, batches_of, tokens_of
from headlab.worth.worth import Speed, Worth

BATCH_SIZES = (1, 8, 32)
ROWS = 32  # examples of a pass that is timed, whatever the batch size
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
    6 or more.  tick: called between passes; may raise to stop.  told: called with batch sizes done, their number
    and a note.  Where the heads cannot be taken out the record says why, and only the mask is timed.  Raises
    HeadlabError for another model's mask, a batch size below 1 or a task that does not fit.
    """
    mask.check(untouched.grid, untouched.fingerprint)
    if not batch_sizes or min(batch_sizes) < 1:
        raise HeadlabError(f"batch sizes are {list(batch_sizes)}; give one or more, each 1 or more")
    shrunk, refused = _shrunk(untouched, mask)
    module = None if shrunk is None else shrunk.module
    samples = {
        n: batches_of(untouched, task, rows=n, count=max(1, ROWS // n), seed=seed) for n in dict.fromkeys(batch_sizes)
    }
    tokens, speeds = tokens_of(samples[min(samples)]), []
    for number, (rows, batches) in enumerate(samples.items()):
        told(number, len(samples), f"batch size {rows}")
        speeds.append(_speed(untouched, mask, module, rows, batches, rounds, seed, tick))
    told(len(samples), len(samples), "done")
    spec = {
        "model": untouched.recorded(), "mask": mask.digest, "task": None if task is None else task.name,
        "languages": [] if task is None else list(task.languages), "batch_sizes": list(samples), "rounds": rounds,
        "seed": seed, "threads": torch.get_num_threads(), "versions": versions(),
    }  # fmt: skip
    whole = _counted(untouched.module, untouched, tokens)
    left = None if module is None else _counted(module, untouched, tokens)
    still = 0 if shrunk is None else len(shrunk.masked)
    return Worth(untouched.grid.size, len(mask.removed), whole, left, tuple(speeds), refused, still, spec)


def _shrunk(model: Model, mask: Mask) -> tuple[Shrunk | None, str]:
    """The model without the mask's heads, and why there is none."""
    try:
        return shrink_model(model, mask), ""
    except HeadlabError as error:
        return None, str(error).rstrip(".")


def _counted(module: nn.Module, model: Model, tokens: int) -> Left:
    return Left(parameters_of(module), macs_of(module, made_up(model.module, tokens)), tokens)


def _speed(
    model: Model, mask: Mask, shrunk: nn.Module | None, rows: int, batches: Batches, rounds: int, seed: int,
    tick: Callable[[], None],
) -> Speed:  # fmt: skip
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

    passes = [untouched, masked] + ([] if shrunk is None else [without])
    seconds = timed(passes, model.device, rounds=rounds, seed=seed, tick=tick)
    ratios = [ratio_of(seconds[:, 0], seconds[:, at]) for at in range(1, len(passes))]
    each = 1000 * float(np.median(seconds[:, 0])) / len(batches)
    device = _device(model.device)
    return Speed(device, rows, tokens_of(batches), each, ratios[0], ratios[1] if shrunk is not None else None)


def _device(device: torch.device) -> str:
    """A device by the name people know it by."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{device.type} ({threads} thread{'s' * (threads != 1)})"
