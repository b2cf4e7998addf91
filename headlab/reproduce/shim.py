"""Shim et al. (2021) done again: an All-attention language model, its heads pruned for good, beside ordinary ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from headlab.models.allattention.modelling import AllAttentionForCausalLM
from headlab.models.load import read
from headlab.records import content_key
from headlab.reproduce.made import VERSION
from headlab.reproduce.shim_plan import (
    START,
    Found,
    Plan,
    as_large,
    large_name,
    pruned_name,
    settings,
    shown,
    trained,
)
from headlab.reproduce.shim_tables import compared, equal_sizes, kept_by_layer, notes, shares_left, techniques
from headlab.store import ADAPTERS
from headlab.tables import Report
from headlab.training.lm.gates import AllClosed
from headlab.training.lm.options import LmGateOptions, LmOptions, LmStep
from headlab.training.lm.prune import prune_lm
from headlab.training.lm.speed import speeds
from headlab.training.lm.steps import Watch, nothing
from headlab.training.lm.text import Lines, data_hash, read_lines
from headlab.training.lm.train import train_lm

FOLDER = "wikitext2"  # below the data
Show = Callable[[str, LmStep], None]


def text(plan: Plan, data: Path) -> dict[str, list[str]]:
    """The lines that the plan trains and judges on. Raises HeadlabError where they are not there."""
    return read_lines(data / FOLDER, plan.words, plan.held_words)


class Work:
    """Trains and prunes what is not below `root` yet; each model is a folder there. Goes on where it was stopped."""

    def __init__(
        self, plan: Plan, lines: Lines, root: Path, *, device: str, seed: int, show: Show,
        tick: Callable[[], None] = nothing,
    ) -> None:  # fmt: skip
        self.plan, self.lines, self.root, self.device = plan, lines, root, device
        self.seed, self.show, self.tick = seed, show, tick
        self.found = Found(plan, data_hash(lines))
        self.models = len(trained(plan)) + len(settings(plan)) + len(plan.weights)

    def done(self) -> Found:
        """All models of the plan: the ordinary ones of equal sizes last, as pruning decides how large they are."""
        for name, options in trained(self.plan).items():
            self._trained(name, options)
        for name, gates in settings(self.plan).items():
            self._pruned(name, replace(gates, seed=self.seed))
        for weight in self.plan.weights:
            record = self.found.record(pruned_name(weight))
            if record:
                self._trained(large_name(weight), as_large(self.plan, record["parameters"]["layers"]))
            else:
                self.found.folders[large_name(weight)] = None
        return self.found

    def _trained(self, name: str, options: LmOptions) -> None:
        options = replace(options, seed=self.seed)
        out = self.place_of(options.record())
        if not (out / "config.json").is_file():
            train_lm(self.lines, out, options, device=self.device, watch=self._watch(name))
        self.found.folders[name] = out

    def _pruned(self, name: str, gates: LmGateOptions) -> None:
        start = self.found.folders[START]
        assert start is not None  # it is trained first
        out: Path | None = self.place_of([start.name, gates.record()])
        if out is not None and not (out / "config.json").is_file():
            try:
                prune_lm(start, self.lines, out, gates, device=self.device, watch=self._watch(name))
            except AllClosed:
                out = None
        self.found.folders[name] = out

    def place_of(self, made_of: Any) -> Path:
        """Where a training is kept, by what it is made of."""
        key = content_key([VERSION, self.found.data, made_of, self.device.split(":")[0]])
        return self.root / ADAPTERS / f"lm-{key[:24]}"

    def _watch(self, name: str) -> Watch:
        title = f"{len(self.found.folders) + 1} of {self.models}, {name}"
        return Watch(lambda step: self.show(title, step), self.tick)


def loaded(names: Mapping[str, Path], device: str) -> dict[str, AllAttentionForCausalLM]:
    """Models by name."""
    models = {name: read(str(folder), device=device).module for name, folder in names.items()}
    return {name: model for name, model in models.items() if isinstance(model, AllAttentionForCausalLM)}


def report(found: Found, *, device: str, spec: Mapping[str, Any], tick: Callable[[], None] = nothing) -> Report:
    """What was found, as tables; speeds are measured now, side by side."""
    plan = found.plan
    there = {name: folder for name in shown(plan) if (folder := found.folders[name]) is not None}
    timed = speeds(loaded(there, device), tokens=plan.model.block, rounds=plan.rounds, tick=tick)
    tables = (compared(found, timed), equal_sizes(found), kept_by_layer(found), techniques(found), shares_left(found))
    spec = {**spec, "device": device, "threads": torch.get_num_threads(), "data": found.data, "plan": asdict(plan)}
    return Report("shim", tables, notes(found), spec, found.windows, round(found.seconds, 1))
