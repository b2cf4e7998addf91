"""The control for pruning: a model trained exactly as with gates, but without them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from headlab.errors import HeadlabError
from headlab.hooks.model import Model
from headlab.inputs import Inputs, read
from headlab.masks import Mask
from headlab.records import content_key
from headlab.tasks.base import Task
from headlab.training.atomic_folder import checkpoint_beside
from headlab.training.l0_learner import Learner, Say, check_place, trainable_copy, write_model
from headlab.training.l0_options import GateOptions, learned_on
from headlab.training.output import took
from headlab.training.steps import Keep
from headlab.training.translation import checked, finish

CHECKPOINT_STEPS = 20
# Options that concern only gates, of which there are none here.
UNUSED = ("weight", "gate_rate", "stacks", "start", "sample", "warmup", "history", "temperature", "low", "high",
          "dev_size", "test_size")  # fmt: skip


class Ungated(Learner):
    """Joint training's steps, batches, learning rates and loss, with each head on or off throughout."""

    def __init__(self, model: Model, inputs: Inputs, options: GateOptions, mask: Mask | None) -> None:
        super().__init__(model, inputs, options, np.zeros(model.grid.size, bool))
        kept = np.ones(model.grid.size, bool) if mask is None else mask.kept
        self._open = torch.as_tensor(model.grid.gates(kept), device=model.device, dtype=model.module.dtype)

    def gates(self, uniform: torch.Tensor) -> torch.Tensor:
        """1 or 0 for each head, [layer, head]; nothing is sampled."""
        return self._open


def train_on(
    model: Model,
    task: Task,
    language: str,
    *,
    out: Path,
    options: GateOptions,
    mask: Mask | None = None,
    progress: Say = lambda _: None,
) -> Path:
    """Train a copy of a model as `learn_gates` trains it jointly, but without gates, and write the folder `out`.

    mask: for the same layers and heads; its removed heads are off, and their output is 0 in the folder's weights.  An
    interrupted run resumes.  Raises HeadlabError for options, a mask or a path that do not fit.
    """
    options.check()
    if not options.along:
        raise HeadlabError(
            f"trained is {options.trained!r}, which leaves the model as it is; give trained='all'",
            code="training.trained_in_part",
        )
    check_place(out)
    checked(model, mask)
    split, examples = learned_on(task, language, options.split, options.size)
    told = {
        "kind": "trained on",
        "base": model.recorded(),
        "language": language,
        "options": {name: value for name, value in options.record().items() if name not in UNUSED},
        "seed": options.seed,
        "data": {"split": split, "examples": len(examples), "sha256": task.data_hash(examples)},
        "removed": [] if mask is None else [list(head) for head in mask.removed],
    }
    key = content_key(told)
    keep = Keep(checkpoint_beside(out, key), key, CHECKPOINT_STEPS)
    with torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else []):
        trained = trainable_copy(model, options.embeddings == "frozen")
        learner = Ungated(trained, read(trained, task, examples, language), options, mask)
        learner.run(keep, progress)
    finish(trained, mask)
    write_model(
        trained, model, out, told | {"example_forwards": learner.forwards} | took(learner.state, model.device.type)
    )
    keep.path.unlink(missing_ok=True)
    return out
