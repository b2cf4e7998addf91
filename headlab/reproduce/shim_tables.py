"""The tables of `headlab reproduce shim`, made from the records in the models' folders."""

from __future__ import annotations

from collections.abc import Mapping

from headlab.reproduce.shim_plan import (
    ALL_ON,
    AS_LONG,
    SPLIT,
    START,
    Found,
    large_name,
    layer_parameters,
    pruned_name,
    seconds,
    settings,
    shown,
    trained,
)
from headlab.tables import Cell, Table
from headlab.training.lm.options import TRANSFORMER
from headlab.training.lm.perplexity import perplexity_ratio
from headlab.training.lm.speed import Speed

NAMES = {"warm_up": "sparsity warm-up", "open_start": "open start", "scale": "output scaling"}
PERPLEXITY = ("perplexity", "low", "high")
PERPLEXITY_FORMATS = (".2f", ".2f", ".2f")
RATIO_FORMATS = (".3f", ".3f", ".3f")


def compared(found: Found, timed: Mapping[str, Speed]) -> Table:
    """Perplexity, parameters and speed of every model beside the unpruned ones and ordinary Transformers."""
    columns = ("model", "steps", "heads", "heads removed, %", "parameters", "of layers", "of layers, % of the unpruned",
               *PERPLEXITY, "× trained on", "× low", "× high", "× after removal alone",
               "speed, ×", "speed low", "speed high", "layers' speed, ×", "layers' low", "layers' high",
               "seconds")  # fmt: skip
    formats = ("", "d", "d", ".1f", ",d", ",d", ".1f", *PERPLEXITY_FORMATS, *RATIO_FORMATS, ".3f",
               ".2f", ".2f", ".2f", ".2f", ".2f", ".2f", ".0f")  # fmt: skip
    rows = [_row(name, found, timed) for name in shown(found.plan) if found.folders[name] is not None]
    return Table(
        "shim-models",
        "All-attention models, pruned and not, beside ordinary Transformers: perplexity a word of the test text, "
        "parameters and speed",
        columns, formats, tuple(rows),
        (
            f"× trained on: perplexity divided by that of {AS_LONG}, which had as many steps; paired by passage.",
            f"× after removal alone: against {START}, before the fine-tuning; the updates that the weights had along "
            "with the gates are in it.",
            f"Speed: of a forward pass, against {START} in the same round; median and quartiles over "
            f"{found.plan.rounds} rounds. Layers: without the table of words.",
            f"Seconds: of training and judging; of pruned models, without those of {START}.",
        ),
    )  # fmt: skip


def equal_sizes(found: Found) -> Table:
    """Each All-attention model beside an ordinary Transformer with as many parameters and as many steps."""
    pairs = [("none", AS_LONG, TRANSFORMER)]
    pairs += [(f"{w:g}", pruned_name(w), large_name(w)) for w in found.plan.weights]
    rows: list[tuple[Cell, ...]] = []
    for weight, ours, other in pairs:
        one, two = found.record(ours), found.record(other)
        if one and two:
            size = (len(two["heads"]), two["heads"][0], two["options"]["persistent"], two["parameters"]["layers"])
            own = (sum(one["heads"]), one["parameters"]["layers"], *_perplexity(found, ours))
            rows.append((weight, *own, *size, *_perplexity(found, other), *_against(found, other, ours)))
    return Table(
        "shim-equal", "All-attention models against ordinary Transformers of their size, trained for as many steps",
        ("λ", "heads", "parameters of layers", *PERPLEXITY, "transformer: layers",
         "transformer: heads a layer", "transformer: inner width",
         "transformer: of layers", *(f"transformer: {name}" for name in PERPLEXITY), "× the transformer's", "× low",
         "× high"),
        ("", "d", ",d", *PERPLEXITY_FORMATS, "d", "d", "d", ",d", *PERPLEXITY_FORMATS, *RATIO_FORMATS), tuple(rows),
        ("Below 1: the All-attention model is better. λ none: it is not pruned.",
         "A Transformer as large as a pruned model has its size from the first step on, and one rate that rises and "
         "falls over all steps."),
    )  # fmt: skip


def kept_by_layer(found: Found) -> Table:
    """Heads that stay in each layer as λ grows."""
    plan = found.plan
    layers = tuple(f"layer {n + 1}" for n in range(plan.model.layers))
    rows: list[tuple[Cell, ...]] = []
    for weight in plan.weights:
        gates = found.record(pruned_name(weight)).get("gates")
        if gates is not None:
            rows.append((weight, *map(sum, gates["kept"]), *gates["heads"], gates["undecided"]))
    return Table(
        "shim-layers", "Heads that stay in each layer, by λ", ("λ", *layers, "kept", "of", "undecided"),
        ("g", *("d" for _ in layers), "d", "d", "d"), tuple(rows),
        ("Undecided: gates neither open nor closed with a probability of 0.9 or more.",),
    )  # fmt: skip


def techniques(found: Found) -> Table:
    """One λ with the paper's three techniques, without each of them, and without all."""
    plan = found.plan
    whole = pruned_name(plan.ablated)
    rows: list[tuple[Cell, ...]] = []
    for name in settings(plan):
        if name != whole and not name.startswith("without"):
            continue
        record, called = found.record(name), ALL_ON if name == whole else _called(name)
        if not record:
            rows.append((called, 0, *(None,) * 9))
            continue
        gates, alone = record["gates"], record["ratios"]["removed"][SPLIT]["value"]
        highest = max(x for x in gates["loss"] if x is not None)
        told = (gates["heads"][0], gates["undecided"], highest, alone)
        rows.append((called, *told, *_perplexity(found, name), *_against(found, whole, name)))
    return Table(
        "shim-techniques", f"The three techniques of the paper at λ = {plan.ablated:g}, left out in turn",
        ("techniques", "heads kept", "undecided", "highest loss, nats", "× after removal alone", "perplexity", "low",
         "high", "× all three", "× low", "× high"),
        ("", "d", "d", ".3f", ".3f", ".2f", ".2f", ".2f", ".3f", ".3f", ".3f"), tuple(rows),
        ("Without a technique other numbers of heads stay at the same λ, so look at both.",
         "× after removal alone: perplexity against the unpruned model, before fine-tuning."),
    )  # fmt: skip


def shares_left(found: Found) -> Table:
    """What removing heads leaves of the layers' parameters, and what it would leave of an ordinary Transformer's."""
    plan, rows = found.plan, []
    for weight in plan.weights:
        record = found.record(pruned_name(weight))
        if record:
            heads, all_heads = record["heads"], plan.model.heads * plan.model.layers
            kinds = [trained(plan)[name] for name in (START, TRANSFORMER)]
            left = [100 * layer_parameters(kind, heads) / layer_parameters(kind) for kind in kinds]
            rows.append((weight, 100 * (1 - sum(heads) / all_heads), *left))
    return Table(
        "shim-parameters", "Parameters that are left in the layers when heads go, in % of the unpruned model's",
        ("λ", "heads removed, %", "all-attention, %", "ordinary Transformer with the same heads, %"),
        ("g", ".1f", ".1f", ".1f"), tuple(rows), ("The last column is computed: its feed-forward parts stay.",),
    )  # fmt: skip


def notes(found: Found) -> tuple[str, ...]:
    """What to know before believing the tables."""
    plan, record = found.plan, found.record(START)
    model, gates, judged = plan.model, plan.gates, record["perplexity"][SPLIT]["words"]
    first = "" if plan.held_words is None else "the first "
    said = [
        f"Trained on {record['data']['tokens']:,} tokens and judged on {first}{judged:,} words of the test text; "
        f"{model.layers} layers of {model.heads} heads, {model.width} wide, {model.persistent} persistent vectors a "
        f"head, windows of {model.block} tokens; {plan.as_long} steps of {model.batch} windows in all for every model "
        f"but {START}. The paper's models are many times as large and trained on 103 million words.",
        "The text of Shim et al. was not at hand, only its abstract: how long λ rises, how open gates begin and how "
        "outputs are scaled is our reading.",
        f"Rates: one rise and fall over all steps, up to {model.learning_rate:g}; for pruned models over "
        f"{model.steps} steps, then {gates.model_rate:g} falling to 0 beside the gates and {gates.tune_rate:g} "
        "falling to 0 in the fine-tuning. What differs is not in the pruning alone.",
        "One training each: how much another seed would change is not in the intervals, which are over passages.",
        f"The report's seconds are of training and judging all models, whenever that was; its {found.windows:,} "
        "forwards are the windows trained on.",
    ]
    closed = [name for name in settings(plan) if found.folders[name] is None]
    return (*said, *(f"{name}: every gate closed, so there is no model." for name in closed))


def _row(name: str, found: Found, timed: Mapping[str, Speed]) -> tuple[Cell, ...]:
    plan, record, start = found.plan, found.record(name), found.record(START)
    sizes, all_heads = record["parameters"], sum(start["heads"])
    is_pruned = "gates" in record
    removed = 100 * (1 - sum(record["heads"]) / all_heads) if is_pruned else None
    after = record["ratios"]["removed"][SPLIT]["value"] if is_pruned else None
    return (
        name, plan.model.steps if name == START else plan.as_long, sum(record["heads"]), removed, sizes["whole"],
        sizes["layers"], 100 * sizes["layers"] / start["parameters"]["layers"], *_perplexity(found, name),
        *_against(found, AS_LONG, name), after, *timed[name], seconds(record),
    )  # fmt: skip


def _perplexity(found: Found, name: str) -> tuple[Cell, ...]:
    told = found.record(name)["perplexity"][SPLIT]
    return tuple(told[column] for column in ("word", "low", "high"))


def _against(found: Found, base: str, name: str) -> tuple[Cell, ...]:
    """Ratio of two models' perplexities with its interval; empty where the base is not there."""
    if found.folders[base] is None:
        return None, None, None
    return tuple(perplexity_ratio(found.sums(base), found.sums(name)))


def _called(name: str) -> str:
    technique = name.removeprefix("without ")
    return f"without {NAMES.get(technique, technique)}"
