"""Permanent pruning of a language model: gates, removal, and short fine-tuning.

After Shim et al. (2021); a smaller folder is written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.optim import AdamW
from transformers import PreTrainedTokenizerBase

from headlab.core import HeadlabError, Json, JsonLike, RunSpec, content_key
from headlab.hooks import Model, gated_in_this_thread, make_gateable
from headlab.models import Checkpoint, read_config, read_model
from headlab.models.allattention import (
    AllAttentionConfig,
    AllAttentionForCausalLM,
    remove_heads,
)
from headlab.results import LearnedGates
from headlab.training.lm_text import Corpus, Lines, data_hash, encode
from headlab.training.lm_train import (
    Judge,
    LmSteps,
    Sums,
    checkpoint_beside_folder,
    new_model,
    new_state,
    optimizer_groups,
    perplexities,
    perplexity_ratios,
    read_sums,
    training_facts,
    write_lm,
)
from headlab.training.options import LmGateOptions, LmStep
from headlab.training.output import check_out
from headlab.training.steps import (
    GATES,
    HISTORY,
    GateSteps,
    State,
    StateSaver,
    Watch,
    own_randomness,
    trained_parameters,
)

# Layer-wise gates on a language model's heads (Shim et al., 2021), learned before heads are removed
# permanently.

LEAST_OPEN = 1e-6  # a layer whose gates are all 0 stays at 0


class LmGateSteps(GateSteps[LmStep], LmSteps):
    """Joint training of a language model and one Hard Concrete gate per head.

    Gates are sampled once per step.
    """

    options: LmGateOptions
    part = "gates"

    def __init__(self, model: Model, corpus: Corpus, options: LmGateOptions) -> None:
        module = model.module
        self.attached = model
        self.options = options
        grid = model.grid
        self.log_alpha = nn.Parameter(
            torch.full((grid.size,), options.initial_log_alpha, device=module.device)
        )
        self.rows, self.columns = (
            torch.as_tensor(part, device=module.device) for part in grid.flat.T
        )
        self.heads = torch.tensor([n for s in grid.stacks for n in s.heads], device=module.device)
        groups = [
            {"params": [self.log_alpha], "weight_decay": 0.0},
            *optimizer_groups(module, options.weight_decay),
        ]
        state = State(
            {GATES: self.log_alpha} | trained_parameters(module),
            AdamW(groups, lr=options.gate_rate),
        )
        state.extra_tensors[HISTORY] = self.current_log_alpha()
        super().__init__(module, corpus, options, state)

    def objective(
        self, step: int, ids: torch.Tensor, follow: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | float]:
        """Loss under the gates sampled for the step, and λ · Σ P(gate ≠ 0)."""
        concrete = self.options.concrete
        with gated_in_this_thread(
            self.attached,
            self.by_layer(concrete.sample(self.log_alpha, self.uniform_samples(step)[0])),
        ):
            loss = self.loss(ids, follow)
        return loss, self.options.weight_at(step) * concrete.probability_open(self.log_alpha).sum()

    def by_layer(self, gates: torch.Tensor) -> torch.Tensor:
        """Gates [head] -> [layer, head].

        With output scaling, each layer's are multiplied by heads / sum of gates.
        """
        gates_by_layer = torch.zeros(
            len(self.heads), self.attached.grid.width, dtype=gates.dtype, device=gates.device
        )
        gates_by_layer = gates_by_layer.index_put((self.rows, self.columns), gates)
        if not self.options.scale:
            return gates_by_layer
        return (
            gates_by_layer * (self.heads / gates_by_layer.sum(dim=1).clamp(min=LEAST_OPEN))[:, None]
        )

    def learned_gates(self, spec: Mapping[str, Json]) -> LearnedGates:
        """The learned gates as a record."""
        options = self.options
        state = self.state
        return LearnedGates(
            self.attached.grid,
            "",
            *self.history(),
            float(options.weight),
            options.steps * options.batch,
            state.seconds,
            options.concrete,
            {},
            RunSpec.of(spec),
        )


def with_located_heads(
    module: AllAttentionForCausalLM, tokenizer: PreTrainedTokenizerBase, name: str
) -> Model:
    """The model with its heads located, so that they can be gated during training."""
    return make_gateable(Checkpoint(name, "training", "", module, tokenizer))


class AllClosed(HeadlabError):
    """Every gate closed: no attention would be left."""


def check_some_left(gates: LearnedGates) -> None:
    """Raise AllClosed if every gate is closed."""
    if not gates.kept.any():
        raise AllClosed(
            f"all {gates.grid.size} gates closed at weight {gates.weight:g}; choose a lower weight, or fewer steps",
            code="gate.all_closed",
        )


# Permanent pruning: gates, removal with persistent vectors, short fine-tuning, a smaller folder.


class TuneSteps(LmSteps):
    """Fine-tuning after head removal."""

    part = "fine-tuning"


PARTS = (LmGateSteps.part, TuneSteps.part)


@dataclass(frozen=True)
class Pruning:
    """What to prune: a checkpoint of a language model, text and its hash, options, device."""

    checkpoint: Checkpoint
    texts: dict[str, Corpus]
    data: str
    options: LmGateOptions
    device: str

    @property
    def key(self) -> str:
        """sha256 of everything the result depends on."""
        return content_key(
            {
                "model": self.checkpoint.fingerprint,
                "data": self.data,
                "options": self.options.record(),
            }
        )


def prune_lm(
    folder: Path,
    lines: Lines,
    out: Path,
    options: LmGateOptions | None = None,
    *,
    device: str = "cpu",
    watch: Watch[LmStep] | None = None,
) -> LearnedGates:
    """Learn gates on a trained model, remove heads whose gates closed, and fine-tune.

    The result is evaluated, and the folder `out` written.

    Shim et al. (2021). An interrupted run resumes (from files beside `out`) and ends with the same
    weights. training.json holds P(gate ≠ 0) of every head, and perplexity before, after removal and
    after fine-tuning, with ratios to the unpruned model on the same passages.

    Args:
        folder: Output of `train_lm`, of either kind; it is not changed.
        lines: The text, by split.
        out: The folder to write.
        options: How the gates are learned and the smaller model is fine-tuned.
        device: Where it is computed.
        watch: Callbacks.

    Returns:
        The gates.

    Raises:
        HeadlabError: Another model, unusable options or text, or no head would remain.
    """
    options = options or LmGateOptions()
    watch = watch or Watch()
    options.check()
    check_out(out)
    check_apart(folder, out)
    checkpoint = read_model(str(folder), device=device)
    if not isinstance(checkpoint.module, AllAttentionForCausalLM):
        raise _other_model(folder)
    texts = {split: encode(checkpoint.tokenizer, part) for split, part in lines.items()}
    pruning = Pruning(checkpoint, texts, data_hash(lines), options, device)
    judge = Judge(texts, options.block, watch)
    sums_before = read_sums(folder, pruning.data, options.block) or judge(checkpoint.module)
    place = torch.device(device)
    with own_randomness(place):
        gates, smaller = _learn_and_remove(pruning, out, watch)
        sums_after_removal = judge(smaller)
        state = _fine_tune(pruning, smaller, out, watch) if options.tune_steps else None
    sums_after = sums_after_removal if state is None else judge(smaller)
    record = _record(
        pruning, gates, sums_before, {"removed": sums_after_removal, "tuned": sums_after}
    )
    record |= training_facts(smaller, device, state, judge, gates.seconds)
    write_lm(out, smaller, checkpoint.tokenizer, sums_after, record, pruning.data, options.block)
    for part in PARTS:
        _state_saver(pruning, out, part, watch).path.unlink(missing_ok=True)
    return gates


def config_of(folder: Path) -> AllAttentionConfig:
    """The configuration of a trained language model.

    Args:
        folder: What `train_lm` or `prune_lm` wrote.

    Raises:
        HeadlabError: It cannot be read, or is that of another model.
    """
    config = read_config(folder)
    if not isinstance(config, AllAttentionConfig):
        raise _other_model(folder)
    return config


def _other_model(folder: Path) -> HeadlabError:
    return HeadlabError(
        f"{folder} is not a language model that headlab train lm made; give the folder of one",
        code="lm.folder_missing",
    )


def check_apart(folder: Path, out: Path) -> None:
    """Raise HeadlabError if writing `out` would overwrite the model in `folder`."""
    model = folder.resolve()
    result = out.resolve()
    if model == result or model in result.parents or result in model.parents:
        raise HeadlabError(
            f"{out} would replace the model {folder}; name another folder",
            code="output.is_model",
        )


def _state_saver(pruning: Pruning, out: Path, part: str, watch: Watch[LmStep]) -> StateSaver:
    return checkpoint_beside_folder(out, content_key([pruning.key, part]), watch)


def _learn_and_remove(
    pruning: Pruning, out: Path, watch: Watch[LmStep]
) -> tuple[LearnedGates, AllAttentionForCausalLM]:
    """The learned gates, and the trained model without the heads whose gates closed."""
    source: AllAttentionForCausalLM = pruning.checkpoint.module  # type: ignore[assignment] # asserted by prune_lm
    # rebuilt: the given one must not change, and attaching below wraps a model's layers
    model = new_model(source.config, source.device)
    model.load_state_dict(source.state_dict())
    steps = LmGateSteps(
        with_located_heads(model, pruning.checkpoint.tokenizer, pruning.checkpoint.name),
        pruning.texts["train"],
        pruning.options,
    )
    steps.run(_state_saver(pruning, out, steps.part, watch), watch.progress, watch.tick)
    gates = steps.learned_gates(
        {
            "model": dict(pruning.checkpoint.identity()),
            "data": pruning.data,
            **pruning.options.record(),
        }
    )
    check_some_left(gates)
    model.train(False)
    return gates, remove_heads(model, gates.mask(), rescale=pruning.options.scale)


def _fine_tune(
    pruning: Pruning, model: AllAttentionForCausalLM, out: Path, watch: Watch[LmStep]
) -> State:
    """Fine-tune in place; returns the final state."""
    state = new_state(model, pruning.options.weight_decay)
    steps = TuneSteps(model, pruning.texts["train"], pruning.options.tuning(), state)
    steps.run(_state_saver(pruning, out, steps.part, watch), watch.progress, watch.tick)
    model.train(False)
    return state


def _record(
    pruning: Pruning, gates: LearnedGates, sums_before: Sums, sums_by_stage: Mapping[str, Sums]
) -> dict[str, JsonLike]:
    """How the model was made, ready for JSON."""
    ratios_by_stage = {
        name: perplexity_ratios(sums_before, part) for name, part in sums_by_stage.items()
    }
    return {
        "pruned": pruning.options.record(),
        "model": pruning.checkpoint.fingerprint,
        "data": {"sha256": pruning.data, "tokens": pruning.texts["train"].predicted_tokens},
        "gates": {
            "open_probability": gates.grid.nest(gates.open_probability[-1].round(4)),
            "kept": gates.grid.nest(gates.kept.astype(int)),
            "undecided": gates.undecided_count(),
            "heads": [int(gates.kept.sum()), gates.grid.size],
            "seconds": round(gates.seconds, 1),
            "steps": gates.steps.tolist(),
            "open": gates.open_probability.sum(axis=1).round(3).tolist(),
            "loss": [None if math.isnan(x) else round(float(x), 4) for x in gates.loss],
        },
        "perplexities": {
            name: perplexities(part)
            for name, part in {"before": sums_before, **sums_by_stage}.items()
        },
        "ratios": {
            name: {s: r._asdict() for s, r in part.items()}
            for name, part in ratios_by_stage.items()
        },
    }
