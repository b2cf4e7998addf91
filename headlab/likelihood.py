"""How likely a model finds the right answers: mean log-probability a token of given translations, and its gain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from headlab.errors import HeadlabError
from headlab.evaluator import Batch, Evaluator
from headlab.hooks.model import as_gates
from headlab.hooks.state import Active
from headlab.inputs import IGNORED
from headlab.masks.mask import Mask, full_mask
from headlab.parallel import Tick, one_thread, spread
from headlab.records import Floats
from headlab.stats import Paired, group_bootstrap
from headlab.stats.bootstrap import DRAWS

STREAM = 31  # sets these draws apart from others of the same seed


@dataclass(frozen=True)
class Likelihood:
    """Mean log-probability of the right answers, nats an answer (of a translation: a token, given those before it).

    low, high: its 95 % interval.  nats: float [answer].  groups: label [answer]; those of one are resampled together.
    """

    mean: float
    low: float
    high: float
    nats: Floats
    groups: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        """What to print about it, ready for JSON."""
        return {"log_probability": self.mean, "log_probability_low": self.low, "log_probability_high": self.high,
                "answers": len(self.nats)}  # fmt: skip


def likelihood(
    evaluator: Evaluator, mask: Mask | None = None, *, ablation: str = "zero", seed: int = 0, draws: int = DRAWS
) -> Likelihood:
    """Of the evaluator's examples, under a mask (None: the untouched model).

    Two answers are made up for the interval: one that is sure, and one that is guessed among all.  seed: of the
    resampling.  Raises HeadlabError for another model's mask, and for answers that are no numbers.
    """
    nats, choices = nats_of(evaluator, full_mask(evaluator.model.grid) if mask is None else mask, ablation)
    units = zip(evaluator.examples, evaluator.inputs.units.tolist(), strict=True)
    groups = tuple(example.group or example.id for example, n in units for _ in range(n))
    made_up = (0.0, -float(np.log(choices)))
    rng = np.random.default_rng([seed, STREAM])
    low, high, _ = group_bootstrap(nats[None], groups, rng, made_up=made_up, draws=draws)
    return Likelihood(float(nats.mean()), float(low[0]), float(high[0]), nats, groups)


def gain(before: Likelihood, after: Likelihood, *, seed: int = 0, draws: int = DRAWS) -> Paired:
    """Nats an answer that one model is surer than another of the same answers, by group.

    Raises HeadlabError where the answers are not the same.
    """
    if before.groups != after.groups:
        raise HeadlabError(
            "the two are of different answers; compare models with one tokenizer on one language",
            code="likelihood.other_answers",
        )
    difference = after.nats - before.nats
    low, high, p = group_bootstrap(difference[None], before.groups, np.random.default_rng([seed, STREAM]), draws=draws)
    return Paired(float(difference.mean()), float(low[0]), float(high[0]), float(p[0]))


def nats_of(evaluator: Evaluator, mask: Mask, ablation: str) -> tuple[Floats, int]:
    """Log-probability of each answer, float64 [answer], and among how many it is chosen."""
    model, inputs = evaluator.model, evaluator.inputs
    gates = as_gates(model, mask)
    with one_thread(model.device):
        fill = evaluator.fill(ablation)

    def run(batch: Batch, _: Tick) -> tuple[list[Floats], int]:
        with torch.inference_mode(), model.active(Active(gates=gates, fill=fill)):
            logits = inputs.logits(batch.inputs)
        targets = inputs.targets(batch.rows).flatten()
        wide = logits if logits.dtype == torch.float64 else logits.float()
        lost = cross_entropy(wide.flatten(0, -2), targets, ignore_index=IGNORED, reduction="none")
        found = -lost[targets != IGNORED].double().cpu().numpy()
        return np.split(found, np.cumsum(inputs.units[batch.rows])[:-1]), logits.shape[-1]

    rows: dict[int, Floats] = {}
    choices = 1
    batches = evaluator.cut(np.arange(len(evaluator.examples)))
    for batch, (found, wide) in spread(batches, run, device=model.device, tick=evaluator.tick):
        evaluator.forwards += len(batch.rows)
        rows |= zip(batch.rows.tolist(), found, strict=True)
        choices = wide
    nats = np.concatenate([rows[row] for row in range(len(rows))])
    if not np.isfinite(nats).all():
        raise HeadlabError(
            f"{model.name} answers with numbers that are not finite; load it with dtype float32",
            code="model.answers_not_finite",
        )
    return nats, choices
