"""The steps of a learning of gates: one draw of gates an example, the task's loss, the penalty, an update."""

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

from headlab.errors import HeadlabError
from headlab.hooks.model import Model, attach, gated
from headlab.inputs import IGNORED, Inputs
from headlab.l0_gates import LearnedGates
from headlab.models.checkpoint import Checkpoint, alone
from headlab.models.embedded import EMBEDDED, fingerprint_delta, is_delta
from headlab.models.files import fingerprint_folder
from headlab.records import Bools, Floats, Ints
from headlab.store import GatesResult
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
    """Gates of some heads of a model, and their updates from where the state is to the last step.

    has_gate: bool [head].  Where the model is trained jointly, it is the learner's own, and what of it requires a
    gradient is trained; else nothing of it is touched.
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
        """Gates first, then the model's trainable weights in name order, each with its rate."""
        named = sorted(self.model.module.named_parameters()) if self.options.along else []
        weights = {name: p for name, p in named if p.requires_grad}
        groups = [{"params": [self.log_alpha], "lr": self.options.gate_rate}]
        groups += [{"params": list(weights.values()), "lr": self.options.model_rate}] if weights else []
        state = State({GATES: self.log_alpha} | weights, AdamW(groups, weight_decay=0.0))
        state.more[HISTORY] = self.now()
        return state

    def run(self, keep: Keep | None, say: Say | None = None, tick: Tick = nothing) -> None:
        """See `Steps`. Raises HeadlabError where something that was trained is not a number at the end."""
        super().run(keep, say, tick)
        self.model.module.eval()
        # An update after the last loss may have left what no later loss tells of.
        lost = [name for name, values in self.state.parameters.items() if not bool(values.isfinite().all())]
        if lost:
            what, rate = ("a gate", "gate_rate") if lost[0] == GATES else (f"the weight {lost[0]}", "model_rate")
            raise HeadlabError(f"{what} became NaN; train with a lower {rate}", code="gate.diverged")

    def chosen(self, step: int) -> Ints:
        """The examples of a step: a function of seed and step alone, as `training.batches.step_batch` has it."""
        lengths, batch = self.inputs.lengths, self.options.batch
        number, at = divmod(step, batches_per_epoch(len(lengths), batch))
        if self._shuffled[0] != number:
            rng = np.random.default_rng((self.options.seed, number))
            self._shuffled = (number, epoch(lengths.tolist(), batch, rng))
        return self._shuffled[1][at]

    @property
    def forwards(self) -> int:
        """Examples that all the steps run through the model."""
        a_round = batches_per_epoch(len(self.inputs.lengths), self.options.batch)
        whole, rest = divmod(self.options.steps, a_round)
        left = sum(len(self.chosen(whole * a_round + at)) for at in range(rest))
        return whole * len(self.inputs.lengths) + left

    def train(self) -> None:
        """Nothing is random in a model that stays."""
        self.module.train(self.options.along)

    def rates(self, step: int) -> Sequence[float]:
        """The gates' rate stays, the model's falls."""
        rates = (self.options.gate_rate, self.options.model_rate_at(step))
        return rates[: len(self.state.optimizer.param_groups)]

    def gradient(self, step: int, chosen: Ints, rows: int) -> float:
        """Of the mean task loss, nats an answer, and of the penalty; its draws depend on seed and step alone."""
        (self.options.weight_at(step) * self.concrete.open(self.log_alpha).sum()).backward()
        uniform = self.uniform(step, len(chosen))
        asked, total = max(1, int(self.inputs.units[chosen].sum())), 0.0
        for at in range(0, len(chosen), rows):
            part = chosen[at : at + rows]
            own = uniform[at : at + rows] if len(uniform) > 1 else uniform
            with torch.enable_grad(), gated(self.model, self.gates(own)):
                logits = self.inputs.logits(self.inputs.tensors(part))
            loss = self.loss(logits, part) / asked
            loss.backward(inputs=list(self.state.parameters.values()))  # weights that stay may ask for a gradient
            total += loss.item()
        return total

    def loss(self, logits: torch.Tensor, part: Ints) -> torch.Tensor:
        """Sum of the answers' cross entropies, nats."""
        wide = logits if logits.dtype == torch.float64 else logits.float()
        target = self.inputs.targets(part)
        return cross_entropy(wide.flatten(0, -2), target.flatten(), ignore_index=IGNORED, reduction="sum")

    def uniform(self, step: int, batch: int) -> torch.Tensor:
        """Draws of a step, float32 [example, gate], or [1, gate] where one serves the batch."""
        rows = batch if self.options.sample == "example" else 1
        rng = np.random.default_rng((self.options.seed, DRAWS, step))
        return torch.as_tensor(rng.random((rows, len(self.log_alpha)), dtype=np.float32)).to(self.model.device)

    def gates(self, uniform: torch.Tensor) -> torch.Tensor:
        """Gates drawn from uniform numbers: [row, layer, head], or [layer, head] for one row; 1 without a gate."""
        drawn = self.concrete.sample(self.log_alpha, uniform)
        shape = (len(uniform), self.model.grid.layers, self.model.grid.width)
        gates = torch.ones(shape, dtype=drawn.dtype, device=drawn.device)
        gates[:, self.rows, self.columns] = drawn
        return gates if len(gates) > 1 else gates[0]

    def clipped(self) -> Sequence[nn.Parameter]:
        """The model's weights."""
        return [p for name, p in self.state.parameters.items() if name != GATES]

    def told(self, step: int, rows: int, kept: int) -> GateStep:
        """See `Steps`."""
        now, state = self.log_alpha.detach(), self.state
        expected = float(self.concrete.open(now).sum())
        return GateStep(
            step + 1, self.options.steps, state.losses[-1], state.seconds, kept, rows, self.options.weight * expected,
            expected, int((now >= self.concrete.even).sum()), len(now),
        )  # fmt: skip

    def history(self) -> tuple[Ints, npt.NDArray[np.float32], Floats, Floats]:
        """Times [time], log_alpha [time, gate], mean loss since the time before and penalty [time], at the end."""
        times = np.array(self.options.times, dtype=np.int64)
        kept = self.state.more[HISTORY]
        losses = np.array(self.state.losses)
        loss = [np.nan, *(losses[a:b].mean() for a, b in pairwise(times.tolist()))]
        penalty = self.options.weight * self.concrete.open(kept.double()).sum(dim=1)
        return times, kept.numpy(), np.array(loss), penalty.numpy()


# A model that is trained jointly with its gates: a copy to train, and the folder that it becomes.

FOLDER = "model"  # in the run's folder


def trainable_copy(model: Model, frozen_embeddings: bool) -> Model:
    """The model again with the same weights, which may be trained; embeddings stay where asked.

    Raises HeadlabError for half precision, whose steps would be lost in rounding.
    """
    given = model.module
    if given.dtype not in (torch.float32, torch.float64):
        name = str(given.dtype).removeprefix("torch.")
        raise HeadlabError(
            f"{model.name} was loaded in {name}; joint training needs float32, so load it in that dtype",
            code="training.not_float32",
        )
    # built, not copied: the given one's layers may have been wrapped, and a copy would call the given ones
    with alone(), torch.random.fork_rng(devices=[]):
        module = type(given)(type(given.config).from_dict(given.config.to_dict()))
    nn.Module.to(module, device=given.device, dtype=given.dtype)
    module.load_state_dict(given.state_dict())
    if getattr(given, "generation_config", None) is not None:  # of what writes texts; its configuration lacks it
        module.generation_config = deepcopy(given.generation_config)
    copy = attach(Checkpoint(model.name, "trained", "", module, model.tokenizer))
    if frozen_embeddings:
        for part in module.modules():
            if isinstance(part, nn.Embedding):
                part.requires_grad_(False)
    return copy


def check_place(out: Path | None) -> Path:
    """Where a trained model goes. Raises HeadlabError if that is nowhere, or taken by what no training made."""
    if out is None:
        raise HeadlabError(
            "a model that is trained jointly needs a place: give a store, or a folder with out",
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


def found_again(done: GatesResult, out: Path | None) -> LearnedGates:
    """A finished run's gates, with the model that was trained jointly in `out`, if that is given.

    Where the model is not below the run's folder any more, a note says so.  Raises HeadlabError if it should be
    copied, and for a place that is taken.
    """
    gates, source = done.gates, done.trained_folder
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
    """The whole model; of an embedded one, whose base is everywhere, only what can have changed."""
    module: PreTrainedModel = model.module
    still = {name for name, p in module.named_parameters() if not p.requires_grad}
    if original.name in EMBEDDED and still:
        return changed_made(module, {n: t for n, t in module.state_dict().items() if n not in still})
    return whole_made(module, model.tokenizer)
