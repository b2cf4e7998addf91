"""Shim et al. (2021) done again: an All-attention language model, its heads pruned for good, beside ordinary ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headlab.models.allattention.modelling import AllAttentionForCausalLM
from headlab.models.load import read
from headlab.records import content_key
from headlab.reproduce.shim_plan import START, Plan, settings, shown, trained
from headlab.reproduce.shim_tables import compared, kept_by_layer, notes, shares_left, techniques
from headlab.store import ADAPTERS
from headlab.tables import Report
from headlab.training.lm.gates import AllClosed
from headlab.training.lm.options import LmGateOptions, LmStep
from headlab.training.lm.prune import prune_lm
from headlab.training.lm.speed import speeds
from headlab.training.lm.steps import Watch, nothing
from headlab.training.lm.text import Lines, data_hash, read_lines
from headlab.training.lm.train import train_lm

FOLDER = "wikitext2"  # below the data
Show = Callable[[str, LmStep], None]


@dataclass
class Found:
    """Folders of the models by name; None where every gate closed."""

    plan: Plan
    folders: dict[str, Path | None] = field(default_factory=dict)


def text(plan: Plan, data: Path) -> dict[str, list[str]]:
    """The lines that the plan trains and judges on. Raises HeadlabError where they are not there."""
    return read_lines(data / FOLDER, plan.words)


def make(
    plan: Plan, lines: Lines, root: Path, *, device: str, seed: int, show: Show, tick: Callable[[], None] = nothing
) -> Found:
    """Train and prune what is not below `root` yet; each model is a folder there. Goes on where it was stopped."""
    found, data = Found(plan), data_hash(lines)

    def place(made_of: Any) -> Path:
        return root / ADAPTERS / f"lm-{content_key([data, made_of, device.split(':')[0]])[:24]}"

    def watch(name: str) -> Watch:
        return Watch(lambda step: show(name, step), tick)

    for name, options in trained(plan).items():
        options = replace(options, seed=seed)
        out = place(options.record())
        if not (out / "config.json").is_file():
            train_lm(lines, out, options, device=device, watch=watch(name))
        found.folders[name] = out
    start = found.folders[START]
    assert start is not None
    for name, gates in settings(plan).items():
        gates = replace(gates, seed=seed)
        out = place([start.name, gates.record()])
        found.folders[name] = pruned(start, lines, out, gates, device, watch(name))
    return found


def pruned(start: Path, lines: Lines, out: Path, gates: LmGateOptions, device: str, watch: Watch) -> Path | None:
    """The folder of a pruned model, made first if it is not there; None if every gate closed."""
    if not (out / "config.json").is_file():
        try:
            prune_lm(start, lines, out, gates, device=device, watch=watch)
        except AllClosed:
            return None
    return out


def loaded(names: Mapping[str, Path], device: str) -> dict[str, AllAttentionForCausalLM]:
    """Models by name."""
    models = {name: read(str(folder), device=device).module for name, folder in names.items()}
    return {name: model for name, model in models.items() if isinstance(model, AllAttentionForCausalLM)}


def report(found: Found, *, device: str, spec: Mapping[str, Any], tick: Callable[[], None] = nothing) -> Report:
    """What was found, as tables; speeds are measured now, side by side."""
    plan = found.plan
    there = {name: folder for name in shown(plan) if (folder := found.folders[name]) is not None}
    timed = speeds(loaded(there, device), tokens=plan.model.block, rounds=plan.rounds, tick=tick)
    tables = (compared(plan, found.folders, timed), kept_by_layer(plan, found.folders),
              techniques(plan, found.folders), shares_left(plan, found.folders))  # fmt: skip
    return Report("shim", tables, notes(plan, found.folders), spec)
