"""Requesting and finding learned gates: the job's spec, and the stored runs of a model and task."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from headlab.errors import HeadlabError
from headlab.records import canonical_json
from headlab.report.commands import part
from headlab.report.parts import told
from headlab.store import GatesListing, GatesResult
from headlab.training.l0_options import GateOptions, options_of
from headlab.ui.experiments import Shelf, facts_table, origin, shelved, weights_of
from headlab.ui.gates_read import WEIGHT, Sweep, learned_on, learned_with, sweeps
from headlab.ui.shell import Choice, Stamp, languages_of, listed, store

# Gates to learn: weights, options and the job's spec.

WEIGHTS = "0.003, 0.01, 0.03, 0.1"
MAIN = ("steps", "trained", "stacks", "start")  # those that most people set
MOST = 20  # weights per job
COMMA = re.compile(r"(?<![\w.+-])\d+,\d+(?![\w.])")  # between whole numbers, where some write a decimal comma


@dataclass(frozen=True)
class Plan:
    """What one job would learn: gates of a model on a task, in some languages, at every weight."""

    choice: Choice
    languages: tuple[str, ...]

    def spec(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The job's spec. state: values of the widgets drawn so far; the rest are at their defaults.

        Raises HeadlabError for invalid weights.
        """
        known = GateOptions.table()
        return {
            "model": self.choice.model,
            "task": self.choice.task,
            "languages": list(self.languages),
            "weights": weights_from(str(state.get(key("weights"), WEIGHTS))),
            "options": {name: state.get(key(name), known[name].default) for name in others()},
            "seed": state.get(key("seed"), 0),
        }


def key(name: str) -> str:
    """Key of a widget."""
    return f"gates-plan-{name}"


def others() -> tuple[str, ...]:
    """Every option except the weight, the commonly set ones first."""
    return (*MAIN, *(name for name in GateOptions.table() if name not in MAIN and name != WEIGHT))


def weights_from(text: str) -> list[float]:
    """'0.01, 0.03' as distinct ascending numbers. Raises HeadlabError for invalid or ambiguous weights."""
    if (unclear := COMMA.search(text)) is not None:
        one = unclear.group()
        raise HeadlabError(
            f"{one!r:.40} may be one weight or two; write {one.replace(',', '.'):.40} for one, a space after the comma "
            "for two",
            code="gate.weight_ambiguous",
        )
    words = text.replace(";", " ").replace(",", " ").split()
    found = {_weight(word) for word in words}
    if not found or len(found) > MOST:
        raise HeadlabError(
            f"{len(found)} weights are given; name 1 to {MOST}, with commas between, such as {WEIGHTS}",
            code="gate.weight_count_out_of_range",
        )
    return sorted(found)


def _weight(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise HeadlabError(
            f"{word!r:.40} is not a weight; name numbers of 0 or more, with commas between: {WEIGHTS}",
            code="gate.weight_invalid",
        )
    return value


def trouble(spec: Mapping[str, Any]) -> str:
    """Why this cannot be started; empty if it can."""
    try:
        options_of(dict(spec["options"]), spec["seed"])
    except HeadlabError as error:
        return f"{error}."
    return ""


# Stored gates: the runs of a model and task, by language and sweep.

TOLD = (WEIGHT, "trained", "stacks", "steps", "split", "size")  # options that every label already states


def listing() -> GatesListing:
    """All readable gates in the cache folder, re-read only when the folder changed."""
    return listed(_scan)


@st.cache_resource(max_entries=2, show_spinner=False)
def _scan(root: Path, stamp: Stamp) -> GatesListing:
    return store(root).gates()


def shelf(choice: Choice) -> Shelf[Sweep]:
    """All gates learned for the chosen model on the chosen task."""
    found, offered, weights = listing(), set(languages_of(choice.task)), weights_of(choice.model)
    runs: dict[str, list[GatesResult]] = {}
    for result in found.results:
        spec, language = result.gates.spec, result.gates.language
        about = (part(spec, "model", "name"), part(spec, "task", "name"))
        if about == (choice.model, choice.task) and (language in choice.languages or language not in offered):
            runs.setdefault(language, []).append(result)
    made = {name: sorted(sweeps(own), key=lambda sweep: not _same(sweep, weights)) for name, own in runs.items()}
    return shelved(choice, made, found.problems, weights)


def fingerprint(sweep: Sweep) -> str:
    """Fingerprint of the weights that the training started from."""
    return str(part(sweep.first.spec, "model", "fingerprint") or "")


def _same(sweep: Sweep, weights: str | None) -> bool:
    return weights is None or fingerprint(sweep) == weights


def label(sweep: Sweep, weights: str | None = None) -> str:
    """A sweep in one line: how many runs, what was learned, on what."""
    options, spec = learned_with(sweep.first), sweep.first.spec
    many = f"{len(sweep.runs)} runs" if len(sweep.runs) > 1 else f"one run, λ = {sweep.first.weight:g}"
    words = [many, "model trained jointly" if sweep.along else "model frozen"]
    gated = {head.stack for head, has in zip(sweep.first.grid.heads, sweep.first.gated, strict=True) if has}
    stacks = [stack.name for stack in sweep.first.grid.stacks]
    if len(stacks) > 1:
        words.append("gates on all stacks" if gated == set(stacks) else f"gates on {', '.join(sorted(gated))} only")
    words.append(f"{options['steps']} steps" if "steps" in options else "")
    words.append(f"learned on {part(spec, 'task', 'size') or 'all'} examples of {learned_on(sweep.first)}")
    seed = options.get("seed", spec.get("seed"))
    words.append(f"seed {seed}" if seed else "")
    return " · ".join([*(word for word in words if word), *origin(fingerprint(sweep), weights, None)])


def labels(sweeps: Sequence[Sweep], weights: str | None = None) -> list[str]:
    """Distinct labels of sweeps shown together: a select box finds an entry by its text."""
    settings = [_settings(sweep) for sweep in sweeps]
    varied = [name for name in dict.fromkeys(n for own in settings for n in own) if _differ(settings, name)]
    more = [[f"{name.replace('_', ' ')} {told(own[name])}" for name in varied if name in own] for own in settings]
    lines = [" · ".join([label(sweep, weights), *words]) for sweep, words in zip(sweeps, more, strict=True)]
    return [
        f"{line} ({sweep.runs[0].key[:6]})" if lines.count(line) > 1 else line
        for sweep, line in zip(sweeps, lines, strict=True)
    ]


def _settings(sweep: Sweep) -> dict[str, Any]:
    """A sweep's settings that its label does not state."""
    options = {name: value for name, value in learned_with(sweep.first).items() if name not in TOLD}
    return {**options, "dtype": dtype(sweep.runs[0]) or "float32", "version": sweep.first.spec.get("version")}


def _differ(settings: Sequence[Mapping[str, Any]], name: str) -> bool:
    return len({canonical_json(own[name]) for own in settings if name in own}) > 1


def facts(result: GatesResult) -> list[tuple[str, str]]:
    """How a run was made, as (name, value) pairs."""
    gates = result.gates
    rows = facts_table(gates.spec, result.meta, (gates.example_forwards, gates.seconds), ("Run", result.key))
    kept = f"{result.trained_folder or gates.trained.get('folder') or 'not kept'}"
    rows = [row for row in rows if row[0] != "Option weight"]  # which is λ
    return [("λ", f"{gates.weight:g}"), *([("Trained model", kept)] if gates.trained else []), *rows]


def dtype(result: GatesResult) -> str:
    """The precision that the model was loaded in; empty for float32."""
    return str(part(result.gates.spec, "model", "dtype") or "")
