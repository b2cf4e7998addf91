"""Voita et al. (ACL 2019), section 6: the parts of `headlab reproduce voita-gates`, and their tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from headlab.core import Cell, HeadlabError, Report, RunSpec, Table
from headlab.evaluation import Decoding, bleu, check_bleu, check_model, generation
from headlab.hooks import Model, load
from headlab.reproduce import gates_classifiers as heads
from headlab.reproduce.gates_classifiers import ENCODER, EVERY, P_HOLM, TRANSLATION, Plan, by_layer
from headlab.reproduce.gates_translation import Evaluated, Say, Translated, Work, translated
from headlab.reproduce.models import opened
from headlab.results import LearnedGates, Store
from headlab.stats import Paired, holm
from headlab.studies.remaining import heads_by_role, staying
from headlab.tasks import SPLITS
from headlab.tasks import task as task_of
from headlab.training import check_pieces
from headlab.training.l0_learn import ALONG, ALONG_BEFORE

# The tables of the translation part of `headlab reproduce voita-gates`.

Row = tuple[Cell, ...]
BLEU = ("BLEU", "low", "high")
BLEU_FORMATS = (".1f", ".1f", ".1f")
P_NOTE = f"{P_HOLM}: for as many comparisons as the table has (Holm 1979)."
BEFORE, NONE = "none, before that", "none"  # rows of models without gates
HALF = 0.5


def gain_columns(unit: str) -> tuple[str, ...]:
    """Columns of a difference."""
    return (f"difference, {unit}", f"low, {unit}", f"high, {unit}", "p", P_HOLM)


GAIN_FORMATS = ("+.2f", "+.2f", "+.2f", ".4f", ".4f")
NATS_FORMATS = ("+.4f", "+.4f", "+.4f", ".4f", ".4f")


def translation_report(found: Translated, seed: int) -> Report:
    """The report of the translation part, with all its tables."""
    tables = (
        against(found, seed),
        surer(found, seed),
        layers(found),
        first(found),
        scratch(found, seed),
        roles(found),
    )
    forwards = sum(one.forwards for one in found.all)
    seconds = sum(one.seconds + one.judging for one in found.all)
    spec = dict(found.spec) | {"threads": torch.get_num_threads()}
    return Report(
        "gates-translation",
        tables,
        tuple(notes(found)),
        RunSpec.of(spec),
        int(forwards),
        float(seconds),
    )


def notes(found: Translated) -> Iterator[str]:
    """Caveats of the report."""
    # ALONG describes what the runs measured themselves; these tables compare with the model trained on.
    yield from dict.fromkeys(
        note for run in found.runs for note in run.gates.notes if note not in (ALONG, ALONG_BEFORE)
    )
    yield "One training each: intervals and p are over test sentences; what another seed would change is not in them."
    yield (
        f"models without gates were trained on just as those with gates: {found.plan.gates.steps} steps, the same "
        "batches, rates and loss; what differs is the gates alone"
    )
    if found.given:
        yield "the model was given, not trained here, so no architecture was trained from scratch"
    yield (
        "seconds are those that were recorded when a model was trained (its training.json names the threads); the "
        "report's are their sum, with those of translating now"
    )


def _gains(found: Sequence[Paired]) -> list[Row]:
    """Cells of differences, with Holm's p at the end."""
    if not found:
        return []
    return [
        (*one, float(p))
        for one, p in zip(found, holm(np.array([one.p for one in found])), strict=True)
    ]


def _evaluated(found: Translated) -> list[tuple[Row, Evaluated]]:
    """Each row's gates, λ, heads left by stack and undecided ones, and its model; the first is the reference."""
    sizes = [n for _, n in found.runs[0].gates.kept_by_stack(0).values()]
    out: list[tuple[Row, Evaluated]] = [((NONE, None, *sizes, None), found.longer),
                                     ((BEFORE, None, *sizes, None), found.base)]  # fmt: skip
    for run in found.runs:
        left = [kept for kept, _ in run.gates.kept_by_stack().values()]
        out.append(((run.series, run.weight, *left, run.gates.undecided()), run.evaluated))
    return out


def _columns(found: Translated) -> tuple[str, ...]:
    return (
        "gates on",
        "λ",
        *(f"{name} heads" for name in found.runs[0].gates.kept_by_stack(0)),
        "undecided",
    )


def against(found: Translated, seed: int) -> Table:
    """BLEU against the number of heads kept in each stack."""
    whole, *others = _evaluated(found)
    gains = _gains([bleu.gain(found.longer.bleu, one.bleu, seed=seed) for _, one in others])
    empty: Row = (None,) * len(GAIN_FORMATS)
    rows = [
        (*about, *_bleu(one), *cells, None if found.given and one is found.base else one.seconds)
        for (about, one), cells in zip((whole, *others), (empty, *gains), strict=True)
    ]
    columns, before = (
        _columns(found),
        "It was given" if found.given else f"It was trained for {_steps(found)} steps",
    )
    return Table(
        "gates-bleu",
        f"Translation {found.plan.pair}: BLEU on test against the heads that stay",
        (*columns, *BLEU, *gain_columns("BLEU"), "trained, s"),
        ("", "g", *("d" for _ in columns[2:]), *BLEU_FORMATS, *GAIN_FORMATS, ".0f"),
        tuple(rows),
        (
            f"{found.base.bleu.n} sentences, greedy, {found.base.bleu.signature}. A model of {found.parameters:,} "
            f"parameters. {before} (row '{BEFORE}'), and then for {found.plan.gates.steps} more with gates, or just as "
            "long without any: the first row, which the others are compared with, sentence by sentence.",
            f"{P_NOTE} trained, s: seconds; from there on, but for row '{BEFORE}'.",
        ),
    )  # fmt: skip


def _steps(found: Translated) -> int:
    return found.plan.model.steps


def _bleu(one: Evaluated) -> Row:
    return (one.bleu.score, one.bleu.low, one.bleu.high)


def surer(found: Translated, seed: int) -> Table:
    """Log-probability of the correct translations, for the same models."""
    whole, *others = _evaluated(found)
    gains = _gains([generation.gain(found.longer.sure, one.sure, seed=seed) for _, one in others])
    empty: Row = (None,) * len(NATS_FORMATS)
    rows = [
        (*about[:-1], one.sure.mean, one.sure.low, one.sure.high, *cells)
        for (about, one), cells in zip((whole, *others), (empty, *gains), strict=True)
    ]
    columns = _columns(found)[:-1]
    return Table(
        "gates-log-probability",
        f"Translation {found.plan.pair}: mean log-probability of test's translations",
        (*columns, "nats a token", "low", "high", *gain_columns("nats")),
        ("", "g", *("d" for _ in columns[2:]), ".3f", ".3f", ".3f", *NATS_FORMATS),
        tuple(rows),
        (f"{len(found.base.sure.nats)} tokens, each given the right ones before it. {P_NOTE}",),
    )


def layers(found: Translated) -> Table:
    """Heads kept in each layer of each stack, by λ."""
    columns = tuple(
        f"{stack.name} {n}"
        for stack in found.runs[0].gates.grid.stacks
        for n in range(stack.layers)
    )
    rows: list[Row] = [(run.series, run.weight, *by_layer(run.gates)) for run in found.runs]
    title = "Heads that stay, by type and layer"
    return Table(
        "gates-layers",
        title,
        ("gates on", "λ", *columns),
        ("", "g", *("d" for _ in columns)),
        tuple(rows),
    )


def first(found: Translated) -> Table:
    """Which type of head is pruned first when all have gates."""
    runs = [run.gates for run in found.runs if run.series == EVERY]
    stacks = [stack.name for stack in found.runs[0].gates.grid.stacks]
    rows: list[Row] = []
    for gates in runs:
        left = [100 * kept / of for kept, of in gates.kept_by_stack().values()]
        rows.append(
            (gates.weight, *halved(gates).values(), *left, ", ".join(soonest(gates)) or None)
        )
    return Table(
        "gates-first",
        "Which type of head is pruned first when all have gates",
        (
            "λ",
            *(f"{name}: half gone at step" for name in stacks),
            *(f"{name}: left, %" for name in stacks),
            "first",
        ),
        ("g", *("d" for _ in stacks), *(".0f" for _ in stacks), ""),
        tuple(rows),
        (
            f"half gone: the first of {len(runs[0].steps) if runs else 0} times at which gates are kept, evenly spaced "
            f"over {found.plan.gates.steps} steps, with half of the type's heads or fewer left; – where there is none. "
            "left: at the end. first: of those with half gone, the soonest.",
        ),
    )


def halved(gates: LearnedGates) -> dict[str, int | None]:
    """{stack: the first recorded step at which at most half of its heads are left}."""
    by_time = [gates.kept_by_stack(time) for time in range(len(gates.steps))]
    out: dict[str, int | None] = {}
    for name in by_time[0]:
        gone = [n for n, stacks in enumerate(by_time) if stacks[name][0] <= HALF * stacks[name][1]]
        out[name] = int(gates.steps[gone[0]]) if gone else None
    return out


def soonest(gates: LearnedGates) -> list[str]:
    """Of the stacks that lost half of their heads, those that did so first."""
    steps = {name: step for name, step in halved(gates).items() if step is not None}
    return [name for name, step in steps.items() if step == min(steps.values())]


def scratch(found: Translated, seed: int) -> Table:
    """Pruned models compared with the same architectures trained from scratch."""
    pairs = [
        (run, found.scratch[run.weight])
        for run in found.runs
        if run.series == ENCODER and run.weight in found.scratch
    ]
    gains = _gains([bleu.gain(run.evaluated.bleu, other.bleu, seed=seed) for run, other in pairs])
    rows: list[Row] = [
        (
            run.weight,
            run.gates.kept_by_stack()[ENCODER][0],
            *_bleu(run.evaluated),
            *_bleu(other),
            *cells,
            other.seconds,
        )
        for (run, other), cells in zip(pairs, gains, strict=True)
    ]
    names = tuple(f"{kind}: {name}" for kind in ("pruned", "from scratch") for name in BLEU)
    return Table(
        "gates-scratch",
        "Pruned from a trained model, against the same heads from the first step on, for as many steps in all",
        ("λ", "encoder heads", *names, *gain_columns("BLEU"), "from scratch: trained, s"),
        ("g", "d", *BLEU_FORMATS, *BLEU_FORMATS, *GAIN_FORMATS, ".0f"), tuple(rows),
        (
            f"difference: from scratch minus pruned, on the same sentences. Both: {_steps(found)} steps as the model "
            f"that is pruned, then {found.plan.gates.steps} at the rates and with the loss of the gates. {P_NOTE}",
        ) if rows else ("The model was given: none was trained from scratch.",),
    )  # fmt: skip


def roles(found: Translated) -> Table:
    """Which roles the remaining heads had before pruning."""
    return Table(
        "gates-roles",
        "Roles that heads had before pruning, and how many of them stay",
        ("gates on", "λ", "role", "stay", "of", "by chance", "chance, low", "chance, high"),
        ("", "g", "", "d", "d", ".1f", "d", "d"),
        tuple(_role_rows(found)),
        ("by chance: of as many heads drawn at random from those with gates, with the range of 95 % of draws. A head "
         "may have several roles.",),
    )  # fmt: skip


def _role_rows(found: Translated) -> Iterator[Row]:
    for run in found.runs:
        gates = run.gates
        for stay in staying(heads_by_role(found.roles, gates.grid), gates.kept, gates.gated):
            yield (run.series, run.weight, stay.role, stay.heads, stay.of, *stay.chance)


# Voita et al. (ACL 2019), section 6, reproduced: the parts of `headlab reproduce voita-gates`.


@dataclass(frozen=True)
class Given:
    """Inputs of the parts.

    nli: folder of the NLI model (None: beside the data).  translator: the translation model to prune; None trains one.
    """

    plan: Plan
    data: Path
    nli: Path | None = None
    translator: Model | None = None


def parts_of(plan: Plan, asked: Sequence[str] | None) -> tuple[str, ...]:
    """Names of the requested parts, in the plan's order. Raises HeadlabError for an unknown one."""
    every = (*(one.task for one in plan.classifiers), TRANSLATION)
    unknown = [name for name in asked or () if name not in every]
    if unknown:
        raise HeadlabError(
            f"unknown part {unknown[0]!r}; this plan has {', '.join(every)}",
            code="reproduce.part_unknown",
        )
    return tuple(name for name in every if not asked or name in asked)


def given(
    plan: Plan,
    data: Path,
    *,
    nli: Path | None,
    pair: str | None,
    translator: str | None,
    device: str,
) -> Given:
    """The plan for the user's pair and translation model. translator: a folder or a hub id."""
    own = None if translator is None else _opened(translator, device)
    plan = replace(plan, translator=plan.translator.of(pair, own is not None))
    return Given(plan, data, nli, own)


def _opened(name: str, device: str) -> Model:
    folder = Path(name)
    if folder.is_dir():
        return opened(folder, folder.resolve().name, device, "float32")
    return load(name, device=device, dtype="float32")


def check(given: Given, parts: Sequence[str]) -> None:
    """Raise HeadlabError, before hours are spent, if a model, examples or a package are missing."""
    for one in given.plan.classifiers:
        if one.task in parts:
            heads.check(one, given.data, given.nli)
    if TRANSLATION in parts:
        pair = given.plan.translator.pair
        task = task_of(TRANSLATION, pair, data=given.data)
        for split in SPLITS:
            task.examples(pair, split, 1)
        check_bleu(task, pair, "test", Decoding())
        if given.translator is None:
            check_pieces()
        else:
            check_model(given.translator, pair)


def found(given: Given, part: str, store: Store, device: str, seed: int, say: Say) -> Report:
    """One part's report."""
    for one in given.plan.classifiers:
        if one.task == part:
            model = heads.model_of(one, given.data, given.nli, device)
            return heads.report(model, heads.task_for(one, given.data), one, store, seed, say)
    plan = given.plan.translator
    task = task_of(TRANSLATION, plan.pair, data=given.data)
    work = Work(plan, task, store, device, seed, say, given.translator)
    return translation_report(translated(work), seed)
