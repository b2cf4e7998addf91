"""Voita et al. (ACL 2019), section 6: parts and tables of `headlab reproduce voita-gates`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from headlab.core import Cell, HeadlabError, Report, RunSpec, Table
from headlab.evaluation import Decoding, bleu_gain, check_bleu, check_model, generation
from headlab.hooks import Model, load
from headlab.reproduce import gates_classifiers as heads
from headlab.reproduce.gates_classifiers import (
    ALL_STACKS,
    ENCODER,
    P_HOLM,
    TRANSLATION,
    GatesPlan,
    by_layer,
)
from headlab.reproduce.gates_translation import (
    Evaluated,
    Say,
    TranslationResults,
    TranslationWork,
    translation_results,
)
from headlab.reproduce.models import open_model
from headlab.results import LearnedGates, Store
from headlab.stats import PairedDifference, holm
from headlab.studies.remaining import heads_by_role, role_counts
from headlab.tasks import SPLITS
from headlab.tasks import task as task_of
from headlab.training import check_pieces
from headlab.training.l0_learn import FORMER_JOINT_NOTE, JOINT_NOTE

# The tables of the translation part of `headlab reproduce voita-gates`.

Row = tuple[Cell, ...]
BLEU = ("BLEU", "low", "high")
BLEU_FORMATS = (".1f", ".1f", ".1f")
P_NOTE = f"{P_HOLM}: for as many comparisons as the table has (Holm 1979)."
BEFORE_GATES = "none, before that"
WITHOUT_GATES = "none"  # rows of models without gates
HALF = 0.5


def gain_columns(unit: str) -> tuple[str, ...]:
    """Columns of a difference."""
    return (f"difference, {unit}", f"low, {unit}", f"high, {unit}", "p", P_HOLM)


GAIN_FORMATS = ("+.2f", "+.2f", "+.2f", ".4f", ".4f")
NATS_FORMATS = ("+.4f", "+.4f", "+.4f", ".4f", ".4f")


def translation_report(results: TranslationResults, seed: int) -> Report:
    """The report of the translation part, with all its tables."""
    tables = (
        bleu_table(results, seed),
        log_probability_table(results, seed),
        layer_table(results),
        first_pruned_table(results),
        scratch_table(results, seed),
        role_table(results),
    )
    forwards = sum(evaluated.forwards for evaluated in results.all_evaluated)
    seconds = sum(
        evaluated.training_seconds + evaluated.evaluation_seconds
        for evaluated in results.all_evaluated
    )
    spec = dict(results.spec) | {"threads": torch.get_num_threads()}
    return Report(
        "gates-translation",
        tables,
        tuple(notes(results)),
        RunSpec.of(spec),
        int(forwards),
        float(seconds),
    )


def notes(results: TranslationResults) -> Iterator[str]:
    """Caveats of the report."""
    # JOINT_NOTE speaks of the runs' own figures, which compare with the untouched model; these
    # tables compare with the one trained on without gates.
    yield from dict.fromkeys(
        note
        for run in results.runs
        for note in run.gates.notes
        if note not in (JOINT_NOTE, FORMER_JOINT_NOTE)
    )
    yield "One training each: intervals and p are over test sentences; what another seed would change is not in them."
    yield (
        "models without gates were trained on just as those with gates: "
        f"{results.plan.gates.steps} steps, the same batches, rates and loss; what differs is the "
        "gates alone"
    )
    if results.was_given:
        yield "the model was given, not trained here, so no architecture was trained from scratch"
    yield (
        "seconds are those that were recorded when a model was trained (its training.json names "
        "the threads); the report's are their sum, with those of translating now"
    )


def _gain_cells(differences: Sequence[PairedDifference]) -> list[Row]:
    """Cells of differences, with Holm's p at the end."""
    if not differences:
        return []
    p_holm = holm(np.array([difference.p for difference in differences]))
    return [(*difference, float(p)) for difference, p in zip(differences, p_holm, strict=True)]


def _leading_cells_of_models(results: TranslationResults) -> list[tuple[Row, Evaluated]]:
    """The leading cells of each model's row, with the model; the first is the reference.

    The cells are the stacks with gates, λ, the number of heads kept in each stack, and that of
    undecided gates.
    """
    head_counts = [head_count for _, head_count in results.runs[0].gates.kept_by_stack(0).values()]
    rows: list[tuple[Row, Evaluated]] = [
        ((WITHOUT_GATES, None, *head_counts, None), results.without_gates),
        ((BEFORE_GATES, None, *head_counts, None), results.base),
    ]
    for run in results.runs:
        kept_counts = [kept_count for kept_count, _ in run.gates.kept_by_stack().values()]
        rows.append(
            ((run.series, run.weight, *kept_counts, run.gates.undecided_count()), run.evaluated)
        )
    return rows


def _leading_columns(results: TranslationResults) -> tuple[str, ...]:
    """Titles of the cells of `_leading_cells_of_models`."""
    return (
        "gates on",
        "λ",
        *(f"{name} heads" for name in results.runs[0].gates.kept_by_stack(0)),
        "undecided",
    )


def bleu_table(results: TranslationResults, seed: int) -> Table:
    """BLEU against the number of heads kept in each stack."""
    models = _leading_cells_of_models(results)
    gains = _gain_cells(
        [
            bleu_gain(results.without_gates.bleu, evaluated.bleu, seed=seed)
            for _, evaluated in models[1:]
        ]
    )
    no_gain: Row = (None,) * len(GAIN_FORMATS)
    rows: list[Row] = []
    for (leading_cells, evaluated), gain in zip(models, (no_gain, *gains), strict=True):
        was_given = results.was_given and evaluated is results.base
        seconds = None if was_given else evaluated.training_seconds
        rows.append((*leading_cells, *_bleu_cells(evaluated), *gain, seconds))
    columns = _leading_columns(results)
    how_made = f"It was trained for {_steps(results)} steps"
    if results.was_given:
        how_made = "It was given"
    return Table(
        "gates-bleu",
        f"Translation {results.plan.pair}: BLEU on test against the heads that stay",
        (*columns, *BLEU, *gain_columns("BLEU"), "trained, s"),
        ("", "g", *("d" for _ in columns[2:]), *BLEU_FORMATS, *GAIN_FORMATS, ".0f"),
        tuple(rows),
        (
            f"{results.base.bleu.n} sentences, greedy, {results.base.bleu.signature}. A model of "
            f"{results.parameters:,} parameters. {how_made} (row '{BEFORE_GATES}'), and then for "
            f"{results.plan.gates.steps} more with gates, or just as long without any: the first "
            "row, which the others are compared with, sentence by sentence.",
            f"{P_NOTE} trained, s: seconds; from there on, but for row '{BEFORE_GATES}'.",
        ),
    )


def _steps(results: TranslationResults) -> int:
    """Steps of the base's training."""
    return results.plan.model.steps


def _bleu_cells(evaluated: Evaluated) -> Row:
    """BLEU with its interval."""
    return (evaluated.bleu.score, evaluated.bleu.low, evaluated.bleu.high)


def log_probability_table(results: TranslationResults, seed: int) -> Table:
    """Log-probability of the correct translations, for the same models."""
    models = _leading_cells_of_models(results)
    gains = _gain_cells(
        [
            generation.gain(
                results.without_gates.log_probability, evaluated.log_probability, seed=seed
            )
            for _, evaluated in models[1:]
        ]
    )
    no_gain: Row = (None,) * len(NATS_FORMATS)
    rows: list[Row] = []
    for (leading_cells, evaluated), gain in zip(models, (no_gain, *gains), strict=True):
        nats = evaluated.log_probability
        rows.append((*leading_cells[:-1], nats.mean, nats.low, nats.high, *gain))
    columns = _leading_columns(results)[:-1]
    return Table(
        "gates-log-probability",
        f"Translation {results.plan.pair}: mean log-probability of test's translations",
        (*columns, "nats a token", "low", "high", *gain_columns("nats")),
        ("", "g", *("d" for _ in columns[2:]), ".3f", ".3f", ".3f", *NATS_FORMATS),
        tuple(rows),
        (
            f"{len(results.base.log_probability.nats)} tokens, each given the right ones before "
            f"it. {P_NOTE}",
        ),
    )


def layer_table(results: TranslationResults) -> Table:
    """Heads kept in each layer of each stack, by λ."""
    columns = tuple(
        f"{stack.name} {layer}"
        for stack in results.runs[0].gates.grid.stacks
        for layer in range(stack.layers)
    )
    rows: list[Row] = [(run.series, run.weight, *by_layer(run.gates)) for run in results.runs]
    title = "Heads that stay, by type and layer"
    return Table(
        "gates-layers",
        title,
        ("gates on", "λ", *columns),
        ("", "g", *("d" for _ in columns)),
        tuple(rows),
    )


def first_pruned_table(results: TranslationResults) -> Table:
    """Which type of head is pruned first when all have gates."""
    gates_by_weight = [run.gates for run in results.runs if run.series == ALL_STACKS]
    stacks = [stack.name for stack in results.runs[0].gates.grid.stacks]
    rows: list[Row] = []
    for gates in gates_by_weight:
        kept_percents = [
            100 * kept_count / head_count
            for kept_count, head_count in gates.kept_by_stack().values()
        ]
        steps = half_gone_steps(gates).values()
        first_stacks = ", ".join(first_half_gone(gates)) or None
        rows.append((gates.weight, *steps, *kept_percents, first_stacks))
    recorded_times = len(gates_by_weight[0].steps) if gates_by_weight else 0
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
            f"half gone: the first of {recorded_times} times at which gates are kept, evenly "
            f"spaced over {results.plan.gates.steps} steps, with half of the type's heads or fewer "
            "left; – where there is none. left: at the end. first: of those with half gone, the "
            "soonest.",
        ),
    )


def half_gone_steps(gates: LearnedGates) -> dict[str, int | None]:
    """{stack: the first recorded step at which at most half of its heads are left}."""
    steps_by_stack: dict[str, int | None] = dict.fromkeys(gates.kept_by_stack(0))
    for time, step in enumerate(gates.steps):
        for stack, (kept_count, head_count) in gates.kept_by_stack(time).items():
            if steps_by_stack[stack] is None and kept_count <= HALF * head_count:
                steps_by_stack[stack] = int(step)
    return steps_by_stack


def first_half_gone(gates: LearnedGates) -> list[str]:
    """Of the stacks that lost half of their heads, those that did so first."""
    steps = {name: step for name, step in half_gone_steps(gates).items() if step is not None}
    return [name for name, step in steps.items() if step == min(steps.values())]


def scratch_table(results: TranslationResults, seed: int) -> Table:
    """Pruned models compared with the same architectures trained from scratch."""
    pairs = [
        (run, results.scratch[run.weight])
        for run in results.runs
        if run.series == ENCODER and run.weight in results.scratch
    ]
    gains = _gain_cells(
        [bleu_gain(run.evaluated.bleu, from_scratch.bleu, seed=seed) for run, from_scratch in pairs]
    )
    rows: list[Row] = []
    for (run, from_scratch), gain in zip(pairs, gains, strict=True):
        encoder_heads, _ = run.gates.kept_by_stack()[ENCODER]
        scores = (*_bleu_cells(run.evaluated), *_bleu_cells(from_scratch))
        rows.append((run.weight, encoder_heads, *scores, *gain, from_scratch.training_seconds))
    note = "The model was given: none was trained from scratch."
    if rows:
        note = (
            "difference: from scratch minus pruned, on the same sentences. Both: "
            f"{_steps(results)} steps as the model that is pruned, then "
            f"{results.plan.gates.steps} at the rates and with the loss of the gates. {P_NOTE}"
        )
    names = tuple(f"{kind}: {name}" for kind in ("pruned", "from scratch") for name in BLEU)
    return Table(
        "gates-scratch",
        "Pruned from a trained model, against the same heads from the first step on, for as many "
        "steps in all",
        ("λ", "encoder heads", *names, *gain_columns("BLEU"), "from scratch: trained, s"),
        ("g", "d", *BLEU_FORMATS, *BLEU_FORMATS, *GAIN_FORMATS, ".0f"),
        tuple(rows),
        (note,),
    )


def role_table(results: TranslationResults) -> Table:
    """Which roles the remaining heads had before pruning."""
    return Table(
        "gates-roles",
        "Roles that heads had before pruning, and how many of them stay",
        ("gates on", "λ", "role", "stay", "of", "by chance", "chance, low", "chance, high"),
        ("", "g", "", "d", "d", ".1f", "d", "d"),
        tuple(_role_rows(results)),
        (
            "by chance: of as many heads drawn at random from those with gates, with the range of "
            "95 % of draws. A head may have several roles.",
        ),
    )


def _role_rows(results: TranslationResults) -> Iterator[Row]:
    for run in results.runs:
        gates = run.gates
        for role_count in role_counts(
            heads_by_role(results.roles, gates.grid), gates.kept, gates.has_gate
        ):
            yield (
                run.series,
                run.weight,
                role_count.role,
                role_count.kept_heads,
                role_count.removable_heads,
                *role_count.chance,
            )


# Voita et al. (ACL 2019), section 6, reproduced: the parts of `headlab reproduce voita-gates`.


@dataclass(frozen=True)
class PartInputs:
    """Inputs of the parts.

    Attributes:
        nli: Folder of the NLI model (None: beside the data).
        translator: The translation model to prune; None trains one.
    """

    plan: GatesPlan
    data: Path
    nli: Path | None = None
    translator: Model | None = None


def parts_of(plan: GatesPlan, requested: Sequence[str] | None) -> tuple[str, ...]:
    """Names of the requested parts, in the plan's order. Raises HeadlabError for an unknown one."""
    all_parts = (*(classifier.task for classifier in plan.classifiers), TRANSLATION)
    unknown = [name for name in requested or () if name not in all_parts]
    if unknown:
        raise HeadlabError(
            f"unknown part {unknown[0]!r}; this plan has {', '.join(all_parts)}",
            code="reproduce.part_unknown",
        )
    return tuple(name for name in all_parts if not requested or name in requested)


def part_inputs(
    plan: GatesPlan,
    data: Path,
    *,
    nli: Path | None,
    pair: str | None,
    translator: str | None,
    device: str,
) -> PartInputs:
    """The plan for the user's pair and translation model.

    Args:
        translator: A folder or a hub id.
    """
    own_model = None if translator is None else _opened_translator(translator, device)
    plan = replace(plan, translator=plan.translator.for_pair(pair, own_model is not None))
    return PartInputs(plan, data, nli, own_model)


def _opened_translator(name: str, device: str) -> Model:
    folder = Path(name)
    if folder.is_dir():
        return open_model(folder, folder.resolve().name, device, "float32")
    return load(name, device=device, dtype="float32")


def check(inputs: PartInputs, parts: Sequence[str]) -> None:
    """Raise HeadlabError, before hours are spent, if a model, examples or a package are missing."""
    for classifier in inputs.plan.classifiers:
        if classifier.task in parts:
            heads.check(classifier, inputs.data, inputs.nli)
    if TRANSLATION in parts:
        pair = inputs.plan.translator.pair
        task = task_of(TRANSLATION, pair, data=inputs.data)
        for split in SPLITS:
            task.examples(pair, split, 1)
        check_bleu(task, pair, "test", Decoding())
        if inputs.translator is None:
            check_pieces()
        else:
            check_model(inputs.translator, pair)


def part_report(
    inputs: PartInputs, part: str, store: Store, device: str, seed: int, say: Say
) -> Report:
    """One part's report."""
    for classifier in inputs.plan.classifiers:
        if classifier.task == part:
            model = heads.model_of(classifier, inputs.data, inputs.nli, device)
            return heads.report(
                model, heads.task_for(classifier, inputs.data), classifier, store, seed, say
            )
    plan = inputs.plan.translator
    task = task_of(TRANSLATION, plan.pair, data=inputs.data)
    work = TranslationWork(plan, task, store, device, seed, say, inputs.translator)
    return translation_report(translation_results(work), seed)
