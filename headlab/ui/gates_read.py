"""Learned gates as the page reads them: accuracy run by run, tables, and the run to open."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import streamlit as st

from headlab.l0_gates import LearnedGates
from headlab.records import canonical_json
from headlab.stats import holm
from headlab.store import GatesResult
from headlab.tables import Cell, Table
from headlab.tasks.translation import NAME as TRANSLATION

SPLITS = ("dev", "test")
OPTIONS, WEIGHT, TRAINED, ALL = "options", "weight", "trained", "all"
ONE_SEED = (
    "Intervals and p are over examples: what another seed of the learning would keep is not in them. p, Holm: "
    "corrected for the runs of this table, each split for itself."
)


class Worth(NamedTuple):
    """A mask's accuracy on one split, against the unpruned model.

    n: answers.  accuracy, baseline: shares of correct answers, with the mask and of the unpruned model.  difference:
    paired, low and high its 95 % interval, p two-sided; 0.01 = one point.
    """

    n: int
    examples: int
    accuracy: float
    baseline: float
    difference: float
    low: float
    high: float
    p: float

    @property
    def ends(self) -> tuple[float, float]:
        """Accuracy of the unpruned model plus the ends of the difference's interval, in percent."""
        return 100 * (self.baseline + self.low), 100 * (self.baseline + self.high)

    @property
    def words(self) -> str:
        """'91.3 %, −0.4 points [−1.1, +0.2]'."""
        ends = f"{100 * self.low:+.1f}, {100 * self.high:+.1f}"
        told = f"{100 * self.accuracy:.1f} %, {100 * self.difference:+.1f} points [{ends}]"
        return told.replace("-", "\N{MINUS SIGN}")


def worth(gates: LearnedGates, split: str) -> Worth | None:
    """The accuracy of the gates' mask on a split; None if it was not measured or cannot be read."""
    given = gates.measured.get(split)
    values = [given.get(name) if isinstance(given, Mapping) else None for name in Worth._fields]
    if not all(map(_is_number, values)):
        return None
    return Worth(*values)  # type: ignore[arg-type] # checked above


def _is_number(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


@dataclass(frozen=True)
class Sweep:
    """Runs that differ only in their weight λ, lowest first."""

    runs: tuple[GatesResult, ...]

    @property
    def first(self) -> LearnedGates:
        """One run's gates, for what all runs share."""
        return self.runs[0].gates

    @property
    def along(self) -> bool:
        """Whether the model was trained jointly, so that each run's mask belongs to its own model."""
        return learned_with(self.first).get(TRAINED) == ALL

    @property
    def weights(self) -> list[str]:
        """The runs' weights λ as written in links."""
        return [f"{run.gates.weight:.12g}" for run in self.runs]


def learned_with(gates: LearnedGates) -> dict[str, Any]:
    """The options of the training."""
    given = gates.spec.get(OPTIONS)
    return dict(given) if isinstance(given, Mapping) else {}


def sweeps(results: Sequence[GatesResult]) -> list[Sweep]:
    """Runs of one language grouped into sweeps, the one with most runs first."""
    groups: dict[str, list[GatesResult]] = {}
    for result in results:
        same = {name: value for name, value in learned_with(result.gates).items() if name != WEIGHT}
        groups.setdefault(canonical_json({**result.gates.spec, OPTIONS: same}), []).append(result)
    made = [Sweep(tuple(sorted(runs, key=lambda run: (run.gates.weight, run.key)))) for runs in groups.values()]
    return sorted(made, key=lambda sweep: (-len(sweep.runs), sweep.runs[0].key))


def run_words(gates: LearnedGates) -> str:
    """A run in short: its weight λ and the number of heads it keeps."""
    return f"λ {gates.weight:g} · {int(gates.kept.sum())}"


def hover(gates: LearnedGates, split: str) -> str:
    """Hover text of a run in the trade-off."""
    found = worth(gates, split)
    lines = [f"λ = {gates.weight:g}: {int(gates.kept.sum())} of {gates.grid.size} heads kept",
             f"{gates.undecided()} undecided"]  # fmt: skip
    return "<br>".join([*lines, *([f"{split}: {found.words}"] if found else [])])


def splits_of(sweep: Sweep) -> list[str]:
    """Splits that any run was measured on; those suitable for choosing λ come first."""
    found = [split for split in SPLITS if any(worth(run.gates, split) for run in sweep.runs)]
    return sorted(found, key=lambda split: split == learned_on(sweep.first))


def accuracy_name(gates: LearnedGates) -> str:
    """Name of the accuracy: of answers, or of a translation's tokens, each given those before it."""
    task = gates.spec.get("task")
    return "token accuracy" if isinstance(task, Mapping) and task.get("name") == TRANSLATION else "accuracy"


def table_of(sweep: Sweep) -> Table:
    """A row per run: weight, heads kept, undecided gates, heads kept by stack, and accuracy on each split."""
    grid, splits = sweep.first.grid, [s for s in SPLITS if any(worth(r.gates, s) for r in sweep.runs)]
    stacks = [stack.name for stack in grid.stacks] if len(grid.stacks) > 1 else []
    names = ["λ", "kept", "of", "undecided", *(f"{stack} kept" for stack in stacks)]
    parts = (f"{accuracy_name(sweep.first)}, %", "difference, points", "low, points", "high, points", "p", "p, Holm")
    columns = (*names, *(f"{split} {part}" for split in splits for part in parts))
    formats = (
        "g",
        *("d" for _ in names[1:]),
        *(form for _ in splits for form in (".1f", *("+.1f",) * 3, *(".3f",) * 2)),
    )
    found = [_worth_cells(sweep, split) for split in splits]
    rows = [
        (*_kept_cells(run.gates, stacks), *(cell for split in found for cell in split[at]))
        for at, run in enumerate(sweep.runs)
    ]
    return Table(
        f"gates-{sweep.first.language}", "Heads kept and accuracy at each λ", columns, formats, tuple(rows),
        ("undecided: gates that are neither 0 nor 1 with 90 % or more at the end; a head is kept whose gate is "
         "likelier 1 than 0.",
         "difference: from the untouched model on the same examples, with its interval of 95 %. The gates were learned "
         f"on the split {learned_on(sweep.first)}.", ONE_SEED,),
    )  # fmt: skip


def learned_on(gates: LearnedGates) -> str:
    """The split that the gates were learned on."""
    task = gates.spec.get("task")
    return str(task.get("split") if isinstance(task, Mapping) else None or learned_with(gates).get("split") or "?")


def _kept_cells(gates: LearnedGates, stacks: Sequence[str]) -> tuple[Cell, ...]:
    by_stack = gates.kept_by_stack()
    told = (gates.weight, int(gates.kept.sum()), gates.grid.size, gates.undecided())
    return (*told, *(by_stack[stack][0] for stack in stacks))


def _worth_cells(sweep: Sweep, split: str) -> list[tuple[Cell, ...]]:
    """For each run: accuracy, difference and its interval in points, p, and p corrected for the sweep's runs."""
    found = [worth(run.gates, split) for run in sweep.runs]
    corrected = iter(holm(np.array([one.p for one in found if one is not None])).tolist())
    return [
        (None,) * 6 if one is None
        else (*(100 * x for x in (one.accuracy, one.difference, one.low, one.high)), one.p, next(corrected))
        for one in found
    ]  # fmt: skip


def every_gate(gates: LearnedGates) -> Table:
    """A row per head: P(g ≠ 0) at the first and last step, P(g = 1) at the last, and whether it is kept."""
    likely, gated, kept = gates.open_probability, gates.gated, gates.kept
    whole = np.where(gated, gates.concrete.one(gates.log_alpha[-1]), 1.0)
    rows: list[tuple[Cell, ...]] = []
    for at, head in enumerate(gates.grid.heads):
        told = (float(likely[0, at]), float(likely[-1, at]), float(whole[at]), bool(kept[at]), bool(gated[at]))
        rows.append((*head, *told))
    columns = ("stack", "layer", "head", "P(g ≠ 0) at first", "P(g ≠ 0) at last", "P(g = 1) at last", "kept",
               "has a gate")  # fmt: skip
    title = f"Every gate at λ = {gates.weight:g}"
    return Table(f"gates-heads-{gates.language}", title, columns, ("", "d", "d", *(".3f",) * 3, "", ""), tuple(rows))


# Which run the Gates page opens when another page names one.

ASKED = "_gates_run"


def remember(run: str) -> None:
    """Make the page open at the run with this key, whatever was shown before."""
    st.session_state[ASKED] = run


def begin(by_language: Mapping[str, Sequence[Sweep]]) -> None:
    """Set the widgets to the run asked for, once; a run that is not here changes nothing."""
    asked = st.session_state.pop(ASKED, None)
    for language, every in by_language.items():
        for sweep in every:
            for run, weight in zip(sweep.runs, sweep.weights, strict=True):
                if run.key == asked:
                    st.session_state["focus"], st.session_state["weight"] = language, weight
                    st.session_state[sweep_key(language, every)] = sweep.runs[0].key


def sweep_key(language: str, every: Sequence[Sweep]) -> str:
    """Key of the widget that chooses one of a language's sweeps."""
    return f"gates-sweep-{language}-{len(every)}"
