"""The tables of the translation part of `headlab reproduce voita-gates`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headlab.bleu import Bleu, gain
from headlab.experiments.overlap import by_chance
from headlab.experiments.remaining import heads_by_role
from headlab.reproduce.gates_heads import by_layer
from headlab.reproduce.gates_plan import ENCODER
from headlab.reproduce.gates_translation import Translated
from headlab.tables import Cell, Report, Table

GAIN = ("difference, BLEU", "low, BLEU", "high, BLEU", "p")
GAIN_FORMATS = ("+.2f", "+.2f", "+.2f", ".4f")
BLEU = ("BLEU", "low", "high")
BLEU_FORMATS = (".1f", ".1f", ".1f")


def translation_report(found: Translated, spec: dict[str, Any], seed: int) -> Report:
    """All tables of the part."""
    tables = (against(found, seed), layers(found), scratch(found, seed), roles(found))
    notes = tuple(dict.fromkeys(note for run in found.runs for note in run.gates.notes))
    forwards = sum(run.gates.example_forwards for run in found.runs)
    seconds = sum(run.gates.seconds for run in found.runs)
    return Report("gates-translation", tables, notes, spec, int(forwards), float(seconds))


def _bleu(one: Bleu) -> tuple[Cell, ...]:
    return (one.score, one.low, one.high)


def _gain(before: Bleu, after: Bleu, seed: int) -> tuple[Cell, ...]:
    found = gain(before, after, seed=seed)
    return (found.difference, found.low, found.high, found.p)


def against(found: Translated, seed: int) -> Table:
    """BLEU against the heads that stay, stack by stack."""
    whole = found.runs[0].gates.kept_by_stack(0)
    names = tuple(f"{name} heads" for name in whole)
    rows: list[tuple[Cell, ...]] = []
    sizes = [n for _, n in whole.values()]
    rows.append(("none", None, *sizes, None, *_bleu(found.longer), *(None,) * 4))
    for run in found.runs:
        left = [kept for kept, _ in run.gates.kept_by_stack().values()]
        bleu = (*_bleu(run.bleu), *_gain(found.longer, run.bleu, seed))
        rows.append((run.series, run.weight, *left, run.gates.undecided(), *bleu))
    steps, more = found.plan.model.steps, found.plan.gates.steps
    return Table(
        "gates-bleu",
        f"Translation {found.plan.pair}: BLEU on test against the heads that stay",
        ("gates on", "λ", *names, "undecided", *BLEU, *GAIN),
        ("", "g", *("d" for _ in names), "d", *BLEU_FORMATS, *GAIN_FORMATS),
        tuple(rows),
        (
            f"{found.base.n} sentences, greedy, {found.base.signature}. A model of {found.parameters:,} parameters is "
            f"trained for {steps} steps ({found.base.score:.1f}), and then for {more} more with gates, or without any: "
            "the first row, which the others are compared with, sentence by sentence.",
        ),
    )  # fmt: skip


def layers(found: Translated) -> Table:
    """Heads that stay in each layer of each stack as λ grows."""
    columns = tuple(f"{stack.name} {n}" for stack in found.runs[0].gates.grid.stacks for n in range(stack.layers))
    rows: list[tuple[Cell, ...]] = [(run.series, run.weight, *by_layer(run.gates)) for run in found.runs]
    title = "Heads that stay, by type and layer"
    return Table("gates-layers", title, ("gates on", "λ", *columns), ("", "g", *("d" for _ in columns)), tuple(rows))


def scratch(found: Translated, seed: int) -> Table:
    """Pruned from a trained model, and the same architecture trained from nothing."""
    rows: list[tuple[Cell, ...]] = []
    for run in found.runs:
        other = found.scratch.get(run.weight) if run.series == ENCODER else None
        if other is not None:
            left = run.gates.kept_by_stack()[ENCODER][0]
            rows.append((run.weight, left, *_bleu(run.bleu), *_bleu(other), *_gain(run.bleu, other, seed)))
    title = "Pruned from a trained model, against the same heads from the first step on, for as many steps in all"
    pairs = tuple(f"{kind}: {name}" for kind in ("pruned", "from nothing") for name in BLEU)
    return Table(
        "gates-scratch", title, ("λ", "encoder heads", *pairs, *GAIN),
        ("g", "d", *BLEU_FORMATS, *BLEU_FORMATS, *GAIN_FORMATS), tuple(rows),
        ("difference: from nothing minus pruned, on the same sentences.",),
    )  # fmt: skip


def roles(found: Translated) -> Table:
    """Which roles the heads that stay had in the model before it was pruned."""
    return Table(
        "gates-roles",
        "Roles that heads had before pruning, and how many of them stay",
        ("gates on", "λ", "role", "stay", "of", "by chance", "chance, low", "chance, high"),
        ("", "g", "", "d", "d", ".1f", "d", "d"),
        tuple(_role_rows(found)),
        ("by chance: of as many heads drawn at random from those with gates, with the range of 95 % of draws. A head "
         "may have several roles.",),
    )  # fmt: skip


def _role_rows(found: Translated) -> Iterator[tuple[Cell, ...]]:
    for run in found.runs:
        gates = run.gates
        for role, heads in heads_by_role(found.roles, gates.grid).items():
            some = heads & gates.gated
            if some.any():
                stay, of, left = int((some & gates.kept).sum()), int(some.sum()), int((gates.gated & gates.kept).sum())
                yield (run.series, run.weight, role, stay, of, *by_chance(int(gates.gated.sum()), of, left))
