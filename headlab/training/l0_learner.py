"""Training steps for gates: one gate sample per example, the task loss, the penalty, an update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import AdamW
from transformers import PreTrainedModel

from headlab.encoding import IGNORED
from headlab.errors import HeadlabError
from headlab.hooks.model import Model, attach, gated
from headlab.inputs import Inputs
from headlab.l0_gates import LearnedGates
from headlab.models.checkpoint import Checkpoint, alone
from headlab.models.embedded import EMBEDDED, fingerprint_delta, is_delta
from headlab.models.files import fingerprint_folder
from headlab.models.smollm import NAME as SMOLLM
from headlab.records import Bools, Floats, Ints
from headlab.store import Result, trained_folder
from headlab.training.l0_options import GateOptions, GateStep
from headlab.training.options import Indices, batches_per_epoch, epoch
from headlab.training.output import (
    LIBRARIES,
    MODEL_CONFIG,
    Made,
    changed_made,
    check_out,
    copy_folder,
    versions_of,
    whole_made,
    write_folder,
)
from headlab.training.steps import DRAWS, GATES, HISTORY, GateSteps, Keep, State, nothing

Tick = Callable[[], None]
Say = Callable[[GateStep], None]


class Learner(GateSteps[GateStep]):
    """Trains the gates of some heads of a model, from the current state to the last step.

    has_gate: bool [head].  In joint training the model belongs to the learner, and its parameters that require a
    gradient are trained too; otherwise the model is not changed.
    """

    options: GateOptions
    lower = "lower rates, or with dtype float32"
    smaller = "train the gates alone, or a smaller model"

    def __init__(self, model: Model, inputs: Inputs, options: GateOptions, has_gate: Bools) -> None:
        self.model, self.inputs, self.options = model, inputs, options
        self.rows, self.columns = (torch.as_tensor(part) for part in model.grid.flat[has_gate].T)
        self.concrete = options.concrete
        first = torch.full((int(has_gate.sum()),), self.concrete.start(options.start))
        self.log_alpha = nn.Parameter(first.to(model.device))
        super().__init__(model.module, options, self._state())
        self._shuffled: tuple[int, list[Indices]] = (-1, [])

    def _state(self) -> State:
        """Gates first, then the model's trainable weights in name order, each with its learning rate."""
        named = sorted(self.model.module.named_parameters()) if self.options.along else []
        weights = {name: p for name, p in named if p.requires_grad}
        groups = [{"params": [self.log_alpha], "lr": self.options.gate_rate}]
        groups += [{"params": list(weights.values()), "lr": self.options.model_rate}] if weights else []
        state = State({GATES: self.log_alpha} | weights, AdamW(groups, weight_decay=0.0))
        state.more[HISTORY] = self.now()
        return state

    def run(self, keep: Keep | None, say: Say | None = None, tick: Tick = nothing) -> None:
        """See `Steps`. Raises HeadlabError if a trained value is not finite at the end."""
        super().run(keep, say, tick)
        self.model.module.eval()
        # The last update may have produced a NaN that no later loss would show.
        lost = [name for name, values in self.state.parameters.items() if not bool(values.isfinite().all())]
        if lost:
            what, rate = ("a gate", "gate_rate") if lost[0] == GATES else (f"the weight {lost[0]}", "model_rate")
            raise HeadlabError(f"{what} became NaN; train with a lower {rate}", code="gate.diverged")

    def chosen(self, step: int) -> Ints:
        """The examples of a step: a function of seed and step alone, as in `training.options.step_batch`."""
        lengths, batch = self.inputs.lengths, self.options.batch
        number, at = divmod(step, batches_per_epoch(len(lengths), batch))
        if self._shuffled[0] != number:
            rng = np.random.default_rng((self.options.seed, number))
            self._shuffled = (number, epoch(lengths.tolist(), batch, rng))
        return self._shuffled[1][at]

    @property
    def forwards(self) -> int:
        """Number of examples run through the model over all steps."""
        a_round = batches_per_epoch(len(self.inputs.lengths), self.options.batch)
        whole, rest = divmod(self.options.steps, a_round)
        left = sum(len(self.chosen(whole * a_round + at)) for at in range(rest))
        return whole * len(self.inputs.lengths) + left

    def train(self) -> None:
        """Training mode for a jointly trained model only; an unchanged one has no dropout."""
        self.module.train(self.options.along)

    def rates(self, step: int) -> Sequence[float]:
        """The gates' learning rate is constant, the model's falls."""
        rates = (self.options.gate_rate, self.options.model_rate_at(step))
        return rates[: len(self.state.optimizer.param_groups)]

    def gradient(self, step: int, chosen: Ints, rows: int) -> float:
        """Gradient of the mean task loss (nats per answer) plus the penalty; samples depend on seed and step alone."""
        (self.options.weight_at(step) * self.concrete.open(self.log_alpha).sum()).backward()
        uniform = self.uniform(step, len(chosen))
        asked, total = max(1, int(self.inputs.units[chosen].sum())), 0.0
        for at in range(0, len(chosen), rows):
            part = chosen[at : at + rows]
            own = uniform[at : at + rows] if len(uniform) > 1 else uniform
            with torch.enable_grad(), gated(self.model, self.gates(own)):
                logits = self.inputs.logits(self.inputs.tensors(part))
            loss = self.loss(logits, part) / asked
            loss.backward(inputs=list(self.state.parameters.values()))  # frozen ones may require a gradient
            total += loss.item()
        return total

    def loss(self, logits: torch.Tensor, part: Ints) -> torch.Tensor:
        """Summed cross-entropy of the answers, nats."""
        wide = logits if logits.dtype == torch.float64 else logits.float()
        target = self.inputs.targets(part)
        return cross_entropy(wide.flatten(0, -2), target.flatten(), ignore_index=IGNORED, reduction="sum")

    def uniform(self, step: int, batch: int) -> torch.Tensor:
        """Uniform samples of a step, float32 [example, gate], or [1, gate] if the batch shares one."""
        rows = batch if self.options.sample == "example" else 1
        rng = np.random.default_rng((self.options.seed, DRAWS, step))
        return torch.as_tensor(rng.random((rows, len(self.log_alpha)), dtype=np.float32)).to(self.model.device)

    def gates(self, uniform: torch.Tensor) -> torch.Tensor:
        """Gates from uniform samples: [row, layer, head], or [layer, head] for one row; 1 for heads without a gate."""
        drawn = self.concrete.sample(self.log_alpha, uniform)
        shape = (len(uniform), self.model.grid.layers, self.model.grid.width)
        gates = torch.ones(shape, dtype=drawn.dtype, device=drawn.device)
        gates[:, self.rows, self.columns] = drawn
        return gates if len(gates) > 1 else gates[0]

    def clipped(self) -> Sequence[nn.Parameter]:
        """The model's weights, without the gates."""
        return [p for name, p in self.state.parameters.items() if name != GATES]

    def step_record(self, step: int, rows: int, kept: int) -> GateStep:
        """See `Steps`."""
        now, state = self.log_alpha.detach(), self.state
        expected = float(self.concrete.open(now).sum())
        return GateStep(
            step + 1, self.options.steps, state.losses[-1], state.seconds, kept, rows, self.options.weight * expected,
            expected, int((now >= self.concrete.even).sum()), len(now),
        )  # fmt: skip

    def history(self) -> tuple[Ints, npt.NDArray[np.float32], Floats, Floats]:
        """Steps [time], log_alpha [time, gate], mean loss since the previous time and penalty [time]; after the run."""
        times = np.array(self.options.times, dtype=np.int64)
        kept = self.state.more[HISTORY]
        losses = np.array(self.state.losses)
        loss = [np.nan, *(losses[a:b].mean() for a, b in pairwise(times.tolist()))]
        penalty = self.options.weight * self.concrete.open(kept.double()).sum(dim=1)
        return times, kept.numpy(), np.array(loss), penalty.numpy()


# A model trained jointly with its gates: a copy to train, and the folder it is written to.

FOLDER = "model"  # in the run's folder


def trainable_copy(model: Model, frozen_embeddings: bool) -> Model:
    """A trainable copy of the model with the same weights, its embeddings frozen on request.

    Raises HeadlabError for half precision, in which rounding would swallow the updates.
    """
    given = model.module
    if given.dtype not in (torch.float32, torch.float64):
        name = str(given.dtype).removeprefix("torch.")
        raise HeadlabError(
            f"{model.name} was loaded in {name}; joint training needs float32, so load it in that dtype",
            code="training.not_float32",
        )
    # rebuilt, not deep-copied: the original's layers may be wrapped, and copied wrappers would call the originals
    with alone(), torch.random.fork_rng(devices=[]):
        module = type(given)(type(given.config).from_dict(given.config.to_dict()))
    nn.Module.to(module, device=given.device, dtype=given.dtype)
    module.load_state_dict(given.state_dict())
    if getattr(given, "generation_config", None) is not None:  # of text generators; not part of the config
        module.generation_config = deepcopy(given.generation_config)
    copy = attach(Checkpoint(model.name, "trained", "", module, model.tokenizer))
    if frozen_embeddings:
        for part in module.modules():
            if isinstance(part, nn.Embedding):
                part.requires_grad_(False)
    return copy


def check_place(out: Path | None) -> Path:
    """The folder for a trained model. Raises HeadlabError if it is None, or holds something no training made."""
    if out is None:
        raise HeadlabError(
            "joint training needs somewhere to write the model: give a store, or a folder with out",
            code="training.place_missing",
        )
    check_out(out)
    return out


def write_model(model: Model, original: Model, out: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    """Write the trained model as a folder that `headlab.load` reads. Returns what it is then known by."""
    whole = {**record, "base": original.identity(), "versions": versions_of(LIBRARIES)}
    write_folder(out, _made(model, original), whole)
    return {
        "name": f"{original.name} trained with gates",
        "revision": "folder",
        "fingerprint": _fingerprint(out),
        "folder": out.name,
    }


def _fingerprint(folder: Path) -> str:
    return fingerprint_delta(folder) if is_delta(folder) else fingerprint_folder(folder)


def found_again(done: Result[LearnedGates], out: Path | None) -> LearnedGates:
    """Gates of a finished run; a jointly trained model is copied to `out` if that is given.

    Adds a note if the model is no longer below the run's folder.  Raises HeadlabError if it should be copied then, and
    if `out` is taken.
    """
    gates, source = done.record, trained_folder(done)
    if not gates.trained or (out is None and source is not None):
        return gates
    again = f"to train it again, delete folder {done.key[:12]}… of the cache and run the same command"
    if out is None:
        lost = f"the model that was trained jointly is not in the cache, but was written elsewhere, or deleted; {again}"
        return replace(gates, notes=(*gates.notes, lost))
    if not _holds(out, str(gates.trained.get("fingerprint"))):
        if source is None:
            raise HeadlabError(
                f"these gates are in the cache, but not the model that was trained jointly; {again}",
                code="training.model_gone",
            )
        check_out(out)
        copy_folder(source, out)
    return replace(gates, trained={**gates.trained, "folder": out.name})


def _holds(out: Path, fingerprint: str) -> bool:
    return (out / MODEL_CONFIG).is_file() and _fingerprint(out) == fingerprint


def _made(model: Model, original: Model) -> Made:
    """The whole model; of an embedded one, whose base is in the package, only the weights that can have changed."""
    module: PreTrainedModel = model.module
    still = {name for name, p in module.named_parameters() if not p.requires_grad}
    if original.name in EMBEDDED and original.name != SMOLLM and still:
        return changed_made(module, {n: t for n, t in module.state_dict().items() if n not in still})
    return whole_made(module, model.tokenizer)
