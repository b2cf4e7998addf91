"""Learned gates as the page reads them: what they are worth, run by run, and as tables. No streamlit here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from headlab.learned import LearnedGates
from headlab.records import canonical_json
from headlab.scores import HeadScores
from headlab.store import GatesResult
from headlab.tables import Cell, Table

SPLITS = ("test", "dev")  # where they are reported first
OPTIONS, WEIGHT, TRAINED, ALL = "options", "weight", "trained", "all"


class Worth(NamedTuple):
    """What a mask is worth on one split.

    n: answers.  accuracy, baseline: shares of right answers, with it and of the untouched model.  difference: paired,
    low and high its interval of 95 %, p two-sided; 0.01 = one point.
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
        """Accuracy of the untouched model plus the ends of the difference's interval, in percent."""
        return 100 * (self.baseline + self.low), 100 * (self.baseline + self.high)

    @property
    def words(self) -> str:
        """'91.3 %, −0.4 points [−1.1, +0.2]'."""
        ends = f"{100 * self.low:+.1f}, {100 * self.high:+.1f}"
        told = f"{100 * self.accuracy:.1f} %, {100 * self.difference:+.1f} points [{ends}]"
        return told.replace("-", "\N{MINUS SIGN}")


def worth(gates: LearnedGates, split: str) -> Worth | None:
    """What the gates' mask was worth on a split, None where that was not measured or cannot be read."""
    given = gates.measured.get(split)
    values = [given.get(name) if isinstance(given, Mapping) else None for name in Worth._fields]
    if not all(isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in values):
        return None
    return Worth(*values)  # type: ignore[arg-type] # checked above


@dataclass(frozen=True)
class Sweep:
    """Runs that differ in their weight only, the lowest first."""

    runs: tuple[GatesResult, ...]

    @property
    def first(self) -> LearnedGates:
        """One of them, for what they all share."""
        return self.runs[0].gates

    @property
    def along(self) -> bool:
        """Whether the model was trained along, so that each run's mask is of a model of its own."""
        return options_of(self.first).get(TRAINED) == ALL

    @property
    def weights(self) -> list[str]:
        """The runs' weights as a link names them."""
        return [f"{run.gates.weight:.12g}" for run in self.runs]


def options_of(gates: LearnedGates) -> dict[str, Any]:
    """What the learning was told."""
    given = gates.spec.get(OPTIONS)
    return dict(given) if isinstance(given, Mapping) else {}


def sweeps(results: Sequence[GatesResult]) -> list[Sweep]:
    """Runs of one language put together, the sweep with most runs first."""
    groups: dict[str, list[GatesResult]] = {}
    for result in results:
        same = {name: value for name, value in options_of(result.gates).items() if name != WEIGHT}
        groups.setdefault(canonical_json({**result.gates.spec, OPTIONS: same}), []).append(result)
    made = [Sweep(tuple(sorted(runs, key=lambda run: (run.gates.weight, run.key)))) for runs in groups.values()]
    return sorted(made, key=lambda sweep: (-len(sweep.runs), sweep.runs[0].key))


def run_words(gates: LearnedGates) -> str:
    """A run in few words: its weight and how many heads it keeps."""
    return f"λ {gates.weight:g} · {int(gates.kept.sum())}"


def hover(gates: LearnedGates, split: str) -> str:
    """What the pointer shows of a run in the trade-off."""
    found = worth(gates, split)
    lines = [f"λ = {gates.weight:g}: {int(gates.kept.sum())} of {gates.grid.size} heads kept",
             f"{gates.undecided()} undecided"]  # fmt: skip
    return "<br>".join([*lines, *([f"{split}: {found.words}"] if found else [])])


def table_of(sweep: Sweep) -> Table:
    """A row a run: weight, heads kept, those undecided, by stack, and accuracy on each split."""
    grid, splits = sweep.first.grid, [s for s in ("dev", "test") if any(worth(r.gates, s) for r in sweep.runs)]
    stacks = [stack.name for stack in grid.stacks] if len(grid.stacks) > 1 else []
    names = ["λ", "kept", "of", "undecided", *(f"{stack} kept" for stack in stacks)]
    parts = ("accuracy, %", "difference, points", "low, points", "high, points", "p")
    columns = (*names, *(f"{split} {part}" for split in splits for part in parts))
    formats = ("g", *("d" for _ in names[1:]), *(form for _ in splits for form in (".1f", *("+.1f",) * 3, ".3f")))
    rows = tuple(tuple(_cells(run.gates, stacks, splits)) for run in sweep.runs)
    return Table(
        f"gates-{sweep.first.language}", "What each λ keeps, and what that is worth", columns, formats, rows,
        ("undecided: P(open) between 10 and 90 % at the end; such a gate counts as the likelier of the two.",
         "difference: from the untouched model on the same examples, with its interval of 95 %. The gates were learned "
         f"on the split {learned_on(sweep.first)}.",),
    )  # fmt: skip


def learned_on(gates: LearnedGates) -> str:
    """The split that the gates were learned on."""
    task = gates.spec.get("task")
    return str(task.get("split") if isinstance(task, Mapping) else None or options_of(gates).get("split") or "?")


def _cells(gates: LearnedGates, stacks: Sequence[str], splits: Sequence[str]) -> Iterator[Cell]:
    yield from (gates.weight, int(gates.kept.sum()), gates.grid.size, gates.undecided())
    by_stack = gates.kept_by_stack()
    yield from (by_stack[stack][0] for stack in stacks)
    for split in splits:
        found = worth(gates, split)
        if found is None:
            yield from (None,) * 5
        else:
            yield from (100 * value for value in (found.accuracy, found.difference, found.low, found.high))
            yield found.p


def every_gate(gates: LearnedGates) -> Table:
    """A row a head: P(open) at the beginning and at the end, and whether it is kept."""
    likely, gated, kept = gates.open_probability, gates.gated, gates.kept
    rows = tuple(
        (*head, float(likely[0, at]), float(likely[-1, at]), bool(kept[at]), bool(gated[at]))
        for at, head in enumerate(gates.grid.heads)
    )
    columns = ("stack", "layer", "head", "P(open) at first", "P(open) at last", "kept", "has a gate")
    title = f"Every gate at λ = {gates.weight:g}"
    return Table(f"gates-heads-{gates.language}", title, columns, ("", "d", "d", ".3f", ".3f", "", ""), rows)


def as_scores(gates: LearnedGates) -> HeadScores:
    """P(open) at the end as a score: lowest first, the heads that go are those whose gates are closed."""
    likely = np.asarray(gates.open_probability[-1], np.float64)
    return HeadScores(
        gates.grid, gates.language, "gates", likely, "P(open)", "probability", gates.example_forwards, gates.seconds,
        spec=gates.spec,
    )  # fmt: skip
