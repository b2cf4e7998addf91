"""Pruning a language model for good: gates, removal with persistent vectors, short fine-tuning, a smaller folder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headlab.errors import HeadlabError
from headlab.learned import LearnedGates
from headlab.models.allattention.modelling import AllAttentionForCausalLM
from headlab.models.allattention.remove import remove_heads
from headlab.models.checkpoint import Checkpoint
from headlab.models.load import read
from headlab.records import content_key
from headlab.training.lm.gates import GateSteps, attached, check_some_left
from headlab.training.lm.judged import Judge, Sums, against, read_sums, told
from headlab.training.lm.options import LmGateOptions
from headlab.training.lm.steps import LmSteps, Watch, new_state
from headlab.training.lm.text import Corpus, Lines, data_hash, encode
from headlab.training.lm.train import common, keep_beside, new_model, write_lm
from headlab.training.output import check_out
from headlab.training.state import State
from headlab.training.steps import Keep


class TuneSteps(LmSteps):
    """Fine-tuning of what is left."""

    part = "fine-tuning"


PARTS = (GateSteps.part, TuneSteps.part)


@dataclass(frozen=True)
class Given:
    """What is pruned: a checkpoint of a language model, text and its hash, options, device."""

    checkpoint: Checkpoint
    texts: dict[str, Corpus]
    data: str
    options: LmGateOptions
    device: str

    @property
    def key(self) -> str:
        """sha256 of all that the result depends on."""
        return content_key({"model": self.checkpoint.fingerprint, "data": self.data, "options": self.options.record()})


def prune_lm(
    folder: Path, lines: Lines, out: Path, options: LmGateOptions | None = None, *, device: str = "cpu",
    watch: Watch | None = None,
) -> LearnedGates:  # fmt: skip
    """Learn gates on a trained model, remove heads whose gates closed, fine-tune, judge, and write the folder `out`.

    Shim et al. (2021).  folder: what `train_lm` made, of either kind; it stays as it is.  Goes on where it was stopped
    (files beside `out`) and ends with the same weights.  training.json tells P(gate ≠ 0) of every head, and perplexity
    before, after removal and after fine-tuning, with ratios to the unpruned model on the same passages.  Returns the
    gates.  Raises HeadlabError for another model, unusable options or text, or if no head stays.
    """
    options, watch = options or LmGateOptions(), watch or Watch()
    options.check()
    check_out(out)
    check_apart(folder, out)
    checkpoint = read(str(folder), device=device)
    if not isinstance(checkpoint.module, AllAttentionForCausalLM):
        raise HeadlabError(
            f"{folder} is not a language model that headlab train lm made; give the folder of one",
            code="lm.folder_missing",
        )
    texts = {split: encode(checkpoint.tokenizer, part) for split, part in lines.items()}
    given = Given(checkpoint, texts, data_hash(lines), options, device)
    judge = Judge(texts, options.block, watch)
    before = read_sums(folder, given.data, options.block) or judge(checkpoint.module)
    place = torch.device(device)
    with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
        gates, smaller = _gated(given, out, watch)
        removed = judge(smaller)
        state = _tuned(given, smaller, out, watch) if options.tune_steps else None
    after = removed if state is None else judge(smaller)
    record = _record(given, gates, before, {"removed": removed, "tuned": after})
    record |= common(smaller, device, state, judge, gates.seconds)
    write_lm(out, smaller, checkpoint.tokenizer, after, record, given.data, options.block)
    for part in PARTS:
        _keep(given, out, part, watch).path.unlink(missing_ok=True)
    return gates


def check_apart(folder: Path, out: Path) -> None:
    """Raise HeadlabError if writing `out` would touch the model in `folder`."""
    model, result = folder.resolve(), out.resolve()
    if model == result or model in result.parents or result in model.parents:
        raise HeadlabError(
            f"{out} would take the place of the model {folder}, which stays; name another folder",
            code="output.is_model",
        )


def _keep(given: Given, out: Path, part: str, watch: Watch) -> Keep:
    return keep_beside(out, content_key([given.key, part]), watch)


def _gated(given: Given, out: Path, watch: Watch) -> tuple[LearnedGates, AllAttentionForCausalLM]:
    """The learned gates, and the trained model without the heads whose gates closed."""
    source: AllAttentionForCausalLM = given.checkpoint.module  # type: ignore[assignment] # asserted by prune_lm
    # again: the given one stays, and what is attached below has its layers wrapped
    model = new_model(source.config, source.device)
    model.load_state_dict(source.state_dict())
    steps = GateSteps(attached(model, given.checkpoint.tokenizer, given.checkpoint.name), given.texts["train"],
                      given.options)  # fmt: skip
    steps.run(_keep(given, out, steps.part, watch), watch)
    gates = steps.learned({"model": given.checkpoint.identity(), "data": given.data, **given.options.record()})
    check_some_left(gates)
    model.train(False)
    return gates, remove_heads(model, gates.mask(), rescale=given.options.scale)


def _tuned(given: Given, model: AllAttentionForCausalLM, out: Path, watch: Watch) -> State:
    """Fine-tune in place; the state it ended in."""
    state = new_state(model, given.options.weight_decay)
    steps = TuneSteps(model, given.texts["train"], given.options.tuning(), state)
    steps.run(_keep(given, out, steps.part, watch), watch)
    model.train(False)
    return state


def _record(given: Given, gates: LearnedGates, before: Sums, after: Mapping[str, Sums]) -> dict[str, Any]:
    """How the model was made, ready for JSON."""
    ratios = {name: against(before, part) for name, part in after.items()}
    return {
        "pruned": given.options.record(),
        "model": given.checkpoint.fingerprint,
        "data": {"sha256": given.data, "tokens": given.texts["train"].asked},
        "gates": {
            "open_probability": gates.grid.nest(gates.open_probability[-1].round(4)),
            "kept": gates.grid.nest(gates.kept.astype(int)),
            "undecided": gates.undecided(),
            "heads": [int(gates.kept.sum()), gates.grid.size],
            "seconds": round(gates.seconds, 1),
            "steps": gates.steps.tolist(),
            "open": gates.open_probability.sum(axis=1).round(3).tolist(),
            "loss": [None if math.isnan(x) else round(float(x), 4) for x in gates.loss],
        },
        "perplexities": {name: told(part) for name, part in {"before": before, **after}.items()},
        "ratios": {name: {s: r._asdict() for s, r in part.items()} for name, part in ratios.items()},
    }
