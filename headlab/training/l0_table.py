"""Runs of learned gates as a table: what each penalty keeps, and the accuracy of its mask; no model is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from headlab.core import Cell, Json, Table, is_number, part
from headlab.results import LearnedGates
from headlab.stats import holm
from headlab.tasks.translation import NAME as TRANSLATION
from headlab.training.l0_options import ALL

SPLITS = ("dev", "test")
ONE_SEED = (
    "Intervals and p are over examples: they do not cover what another training seed would keep. p, Holm: "
    "corrected for the runs of this table, separately for each split."
)


class MaskAccuracy(NamedTuple):
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
    def gain(self) -> str:
        """'−0.4 points [−1.1, +0.2]'."""
        told = (
            f"{100 * self.difference:+.1f} points [{100 * self.low:+.1f}, {100 * self.high:+.1f}]"
        )
        return told.replace("-", "\N{MINUS SIGN}")


def worth(gates: LearnedGates, split: str) -> MaskAccuracy | None:
    """The accuracy of the gates' mask on a split; None if it was not measured or cannot be read."""
    given = gates.measured.get(split)
    values = [
        given.get(name) if isinstance(given, Mapping) else None for name in MaskAccuracy._fields
    ]
    return MaskAccuracy(*values) if all(map(is_number, values)) else None  # type: ignore[arg-type]


def learned_with(gates: LearnedGates) -> dict[str, Json]:
    """The options of the training."""
    given = gates.spec.get("options")
    return dict(given) if isinstance(given, Mapping) else {}


def learned_on(gates: LearnedGates) -> str:
    """The split that the gates were learned on."""
    return str(part(gates.spec, "task", "split") or learned_with(gates).get("split") or "?")


def accuracy_name(gates: LearnedGates) -> str:
    """Name of the accuracy: of answers, or of a translation's tokens, each given those before it."""
    return "token accuracy" if part(gates.spec, "task", "name") == TRANSLATION else "accuracy"


def gates_table(runs: Sequence[LearnedGates]) -> Table:
    """A row per run: weight, heads kept, undecided gates, heads kept by stack, and accuracy on each measured split.

    runs: at least one, all of one model, task and language.
    """
    first, splits = runs[0], [split for split in SPLITS if any(worth(run, split) for run in runs)]
    stacks = [stack.name for stack in first.grid.stacks] if len(first.grid.stacks) > 1 else []
    names = (
        "λ",
        "heads kept",
        "heads",
        "gates",
        "undecided",
        *(f"{stack} kept" for stack in stacks),
    )
    parts = (
        f"{accuracy_name(first)}, %",
        "difference, points",
        "low, points",
        "high, points",
        "p",
        "p, Holm",
    )
    forms = (".1f", *("+.1f",) * 3, *(".3f",) * 2)
    found = [_kept_cells(runs, stacks), *(_worth_cells(runs, split) for split in splits)]
    return Table(
        f"gates-{first.language}", "Heads kept and accuracy at each λ",
        (*names, *(f"{split} {part}" for split in splits for part in parts)),
        ("g", *("d" for _ in names[1:]), *forms * len(splits)),
        tuple(tuple(cell for cells in row for cell in cells) for row in zip(*found, strict=True)),
        ("undecided: gates that are neither 0 nor 1 with 90 % or more at the end; a head is kept whose gate is "
         "likelier 1 than 0.",
         "difference: from the untouched model on the same examples, with its interval of 95 %.",
         *dict.fromkeys(map(_learned, runs)), ONE_SEED),
    )  # fmt: skip


def _kept_cells(runs: Sequence[LearnedGates], stacks: Sequence[str]) -> list[tuple[Cell, ...]]:
    return [
        (run.weight, int(run.kept.sum()), run.grid.size, int(run.gated.sum()), run.undecided(),
         *(run.kept_by_stack()[stack][0] for stack in stacks))
        for run in runs
    ]  # fmt: skip


def _worth_cells(runs: Sequence[LearnedGates], split: str) -> list[tuple[Cell, ...]]:
    """For each run: accuracy, difference and its interval in points, p, and p corrected for all runs."""
    found = [worth(run, split) for run in runs]
    corrected = iter(holm(np.array([one.p for one in found if one is not None])).tolist())
    return [
        (None,) * 6 if one is None
        else (*(100 * x for x in (one.accuracy, one.difference, one.low, one.high)), one.p, next(corrected))
        for one in found
    ]  # fmt: skip


def _learned(gates: LearnedGates) -> str:
    given = learned_with(gates)
    along = (
        "the model was trained jointly"
        if given.get("trained") == ALL
        else "the model stayed as it is"
    )
    batch = given.get("batch", "?")
    return f"The gates were learned in {gates.steps[-1]} steps of {batch} examples of {learned_on(gates)}; {along}."


def run_notes(runs: Sequence[LearnedGates]) -> list[str]:
    """The runs' notes, each once; prefixed with λ if not shared by all runs."""
    of = {
        note: [run.weight for run in runs if note in run.notes]
        for run in runs
        for note in run.notes
    }
    return [
        note if len(weights) == len(runs) else f"λ = {', '.join(f'{w:g}' for w in weights)}: {note}"
        for note, weights in of.items()
    ]
