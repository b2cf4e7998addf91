"""Runs of learned gates as a table: what each penalty keeps, and the accuracy of its mask.

No model is needed.
"""

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

    Attributes:
        n: Answers.
        accuracy, baseline: Shares of correct answers, with the mask and of the unpruned model.
        difference: Paired, low and high its 95 % interval, p two-sided; 0.01 = one point.
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
        text = (
            f"{100 * self.difference:+.1f} points [{100 * self.low:+.1f}, {100 * self.high:+.1f}]"
        )
        return text.replace("-", "\N{MINUS SIGN}")


def worth(gates: LearnedGates, split: str) -> MaskAccuracy | None:
    """The accuracy of the gates' mask on a split; None if it was not measured or cannot be read."""
    figures = gates.measured.get(split)
    if not isinstance(figures, Mapping):
        return None
    values = [figures.get(name) for name in MaskAccuracy._fields]
    if not all(map(is_number, values)):
        return None
    return MaskAccuracy(*values)  # type: ignore[arg-type] # numbers, as is_number says


def learned_with(gates: LearnedGates) -> dict[str, Json]:
    """The options of the training."""
    training_options = gates.spec.get("options")
    if isinstance(training_options, Mapping):
        return dict(training_options)
    return {}


def learned_on(gates: LearnedGates) -> str:
    """The split that the gates were learned on."""
    return str(part(gates.spec, "task", "split") or learned_with(gates).get("split") or "?")


def accuracy_name(gates: LearnedGates) -> str:
    """Name of the accuracy: of answers, or of a translation's tokens.

    A token is given those before it.
    """
    if part(gates.spec, "task", "name") == TRANSLATION:
        return "token accuracy"
    return "accuracy"


def gates_table(runs: Sequence[LearnedGates]) -> Table:
    """A row per run: weight, heads kept, undecided gates, and accuracy by measured split.

    Heads kept are given by stack, too.

    Args:
        runs: At least one, all of one model, task and language.
    """
    first_run = runs[0]
    splits = [split for split in SPLITS if any(worth(gates, split) for gates in runs)]
    stacks = (
        [stack.name for stack in first_run.grid.stacks] if len(first_run.grid.stacks) > 1 else []
    )
    names = (
        "λ",
        "heads kept",
        "heads",
        "gates",
        "undecided",
        *(f"{stack} kept" for stack in stacks),
    )
    parts = (
        f"{accuracy_name(first_run)}, %",
        "difference, points",
        "low, points",
        "high, points",
        "p",
        "p, Holm",
    )
    formats = (".1f", *("+.1f",) * 3, *(".3f",) * 2)
    cells_by_group = [
        _heads_kept_cells(runs, stacks),
        *(_accuracy_cells(runs, split) for split in splits),
    ]
    return Table(
        f"gates-{first_run.language}",
        "Heads kept and accuracy at each λ",
        (*names, *(f"{split} {part}" for split in splits for part in parts)),
        ("g", *("d" for _ in names[1:]), *formats * len(splits)),
        tuple(
            tuple(cell for cells in row for cell in cells)
            for row in zip(*cells_by_group, strict=True)
        ),
        (
            "undecided: gates that are neither 0 nor 1 with 90 % or more at the end; a head is kept whose gate is "
            "likelier 1 than 0.",
            "difference: from the untouched model on the same examples, with its interval of 95 %.",
            *dict.fromkeys(map(_training_sentence, runs)),
            ONE_SEED,
        ),
    )


def _heads_kept_cells(
    runs: Sequence[LearnedGates], stacks: Sequence[str]
) -> list[tuple[Cell, ...]]:
    return [
        (
            gates.weight,
            int(gates.kept.sum()),
            gates.grid.size,
            int(gates.has_gate.sum()),
            gates.undecided_count(),
            *(gates.kept_by_stack()[stack][0] for stack in stacks),
        )
        for gates in runs
    ]


def _accuracy_cells(runs: Sequence[LearnedGates], split: str) -> list[tuple[Cell, ...]]:
    """For each run: accuracy, difference and its interval in points, p, and corrected p.

    The correction is for all runs.
    """
    accuracies = [worth(gates, split) for gates in runs]
    corrected_p_values = iter(
        holm(np.array([accuracy.p for accuracy in accuracies if accuracy is not None])).tolist()
    )
    return [
        (None,) * 6
        if accuracy is None
        else (
            *(
                100 * x
                for x in (accuracy.accuracy, accuracy.difference, accuracy.low, accuracy.high)
            ),
            accuracy.p,
            next(corrected_p_values),
        )
        for accuracy in accuracies
    ]


def _training_sentence(gates: LearnedGates) -> str:
    training_options = learned_with(gates)
    what_happened_to_model = (
        "the model was trained jointly"
        if training_options.get("trained") == ALL
        else "the model stayed as it is"
    )
    batch = training_options.get("batch", "?")
    return f"The gates were learned in {gates.steps[-1]} steps of {batch} examples of {learned_on(gates)}; {what_happened_to_model}."


def run_notes(runs: Sequence[LearnedGates]) -> list[str]:
    """The runs' notes, each once; prefixed with λ if not shared by all runs."""
    weights_by_note = {
        note: [gates.weight for gates in runs if note in gates.notes]
        for gates in runs
        for note in gates.notes
    }
    return [
        note if len(weights) == len(runs) else f"λ = {', '.join(f'{w:g}' for w in weights)}: {note}"
        for note, weights in weights_by_note.items()
    ]
