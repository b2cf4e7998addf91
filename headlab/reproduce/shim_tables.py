"""The tables of `headlab reproduce shim`, made from the records in the models' folders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headlab.errors import HeadlabError
from headlab.files import read_json
from headlab.models.adapter import TRAINING
from headlab.models.allattention.config import AllAttentionConfig
from headlab.models.allattention.sizes import parameters
from headlab.records import Floats
from headlab.reproduce.shim_plan import ALL_ON, AS_LONG, START, Plan, pruned_name, settings, shown
from headlab.tables import Cell, Table
from headlab.training.lm.judged import read_sums
from headlab.training.lm.perplexity import perplexity_ratio
from headlab.training.lm.speed import Speed

SPLIT = "test"
NAMES = {"warm_up": "sparsity warm-up", "open_start": "open start", "scale": "output scaling"}
Folders = Mapping[str, Path | None]


def compared(plan: Plan, folders: Folders, timed: Mapping[str, Speed]) -> Table:
    """Perplexity, parameters and speed of every model beside the unpruned ones and ordinary Transformers."""
    columns = ("model", "steps", "heads", "heads removed, %", "parameters", "of layers", "of layers, % of the unpruned",
               "perplexity", "low", "high", "× trained on", "× low", "× high", "× after removal alone",
               "speed, ×", "speed low", "speed high", "layers' speed, ×", "layers' low", "layers' high")  # fmt: skip
    formats = ("", "d", "d", ".1f", ",d", ",d", ".1f", ".2f", ".2f", ".2f", ".3f", ".3f", ".3f", ".3f",
               ".2f", ".2f", ".2f", ".2f", ".2f", ".2f")  # fmt: skip
    rows = [_row(name, plan, folders, timed) for name in shown(plan) if folders[name] is not None]
    return Table(
        "shim-models",
        "All-attention models, pruned and not, beside ordinary Transformers: perplexity a word of the test text, "
        "parameters and speed",
        columns, formats, tuple(rows),
        (
            f"× trained on: perplexity divided by that of {AS_LONG}, which had as many steps; paired by passage.",
            f"Speed: of a forward pass, against {START} in the same round; median and quartiles over {plan.rounds} "
            "rounds. Layers: without the table of words.",
        ),
    )  # fmt: skip


def kept_by_layer(plan: Plan, folders: Folders) -> Table:
    """Heads that stay in each layer as λ grows."""
    layers = tuple(f"layer {n + 1}" for n in range(plan.model.layers))
    rows: list[tuple[Cell, ...]] = []
    for weight in plan.weights:
        gates = _record(folders[pruned_name(weight)]).get("gates")
        if gates is not None:
            rows.append((weight, *map(sum, gates["kept"]), *gates["heads"], gates["undecided"]))
    return Table(
        "shim-layers", "Heads that stay in each layer, by λ", ("λ", *layers, "kept", "of", "undecided"),
        ("g", *("d" for _ in layers), "d", "d", "d"), tuple(rows),
        ("Undecided: gates neither open nor closed with a probability of 0.9 or more.",),
    )  # fmt: skip


def techniques(plan: Plan, folders: Folders) -> Table:
    """One λ with the paper's three techniques, without each of them, and without all."""
    whole = pruned_name(plan.ablated)
    rows: list[tuple[Cell, ...]] = []
    for name in settings(plan):
        if name != whole and not name.startswith("without"):
            continue
        record, called = _record(folders[name]), ALL_ON if name == whole else _called(name)
        if not record:
            rows.append((called, 0, *(None,) * 9))
            continue
        gates, found = record["gates"], record["perplexity"][SPLIT]
        ratio, alone = _against(plan, folders, whole, name), record["ratios"]["removed"][SPLIT]["value"]
        highest = max(x for x in gates["loss"] if x is not None)
        told = (found["word"], found["low"], found["high"])
        rows.append((called, gates["heads"][0], gates["undecided"], highest, alone, *told, *ratio))
    return Table(
        "shim-techniques", f"The three techniques of the paper at λ = {plan.ablated:g}, left out in turn",
        ("techniques", "heads kept", "undecided", "highest loss, nats", "× after removal alone", "perplexity", "low",
         "high", "× all three", "× low", "× high"),
        ("", "d", "d", ".3f", ".3f", ".2f", ".2f", ".2f", ".3f", ".3f", ".3f"), tuple(rows),
        ("Without a technique other numbers of heads stay at the same λ, so look at both.",
         "× after removal alone: perplexity against the unpruned model, before fine-tuning."),
    )  # fmt: skip


def shares_left(plan: Plan, folders: Folders) -> Table:
    """What removing heads leaves of the layers' parameters, and what it would leave of an ordinary Transformer's."""
    rows: list[tuple[Cell, ...]] = []
    for weight in plan.weights:
        record = _record(folders[pruned_name(weight)])
        if record:
            heads, all_heads = record["heads"], plan.model.heads * plan.model.layers
            left = [100 * _layers(plan, heads, plain) / _layers(plan, None, plain) for plain in (False, True)]
            rows.append((weight, 100 * (1 - sum(heads) / all_heads), *left))
    return Table(
        "shim-parameters", "Parameters that are left in the layers when heads go, in % of the unpruned model's",
        ("λ", "heads removed, %", "all-attention, %", "ordinary Transformer with the same heads, %"),
        ("g", ".1f", ".1f", ".1f"), tuple(rows), ("The last column is computed: its feed-forward parts stay.",),
    )  # fmt: skip


def notes(plan: Plan, folders: Folders) -> tuple[str, ...]:
    """What to know before believing the tables."""
    record, model = _record(folders[START]), plan.model
    said = [
        f"Trained on {record['data']['tokens']:,} tokens; {model.layers} layers of {model.heads} heads, "
        f"{model.width} wide, {model.persistent} persistent vectors a head, windows of {model.block} tokens; "
        f"{plan.as_long} steps of {model.batch} windows in all for every model but {START}. The paper's models are "
        "many times as large and trained on 103 million words.",
        "One training each: how much another seed would change is not in the intervals, which are over passages.",
    ]
    closed = [name for name, folder in folders.items() if folder is None]
    return (*said, *(f"{name}: every gate closed, so there is no model." for name in closed))


def _row(name: str, plan: Plan, folders: Folders, timed: Mapping[str, Speed]) -> tuple[Cell, ...]:
    record, start = _record(folders[name]), _record(folders[START])
    sizes, found, all_heads = record["parameters"], record["perplexity"][SPLIT], sum(start["heads"])
    is_pruned = "gates" in record
    removed = 100 * (1 - sum(record["heads"]) / all_heads) if is_pruned else None
    after = record["ratios"]["removed"][SPLIT]["value"] if is_pruned else None
    return (
        name, plan.model.steps if name == START else plan.as_long, sum(record["heads"]), removed, sizes["whole"],
        sizes["layers"], 100 * sizes["layers"] / start["parameters"]["layers"], found["word"], found["low"],
        found["high"], *_against(plan, folders, AS_LONG, name), after, *timed[name],
    )  # fmt: skip


def _against(plan: Plan, folders: Folders, base: str, name: str) -> tuple[Cell, Cell, Cell]:
    """Ratio of two models' perplexities with its interval; empty where the base is not there."""
    if folders[base] is None:
        return None, None, None
    before, after = (_sums(plan, folders, which) for which in (base, name))
    value, low, high = perplexity_ratio(before, after)
    return value, low, high


def _sums(plan: Plan, folders: Folders, name: str) -> Floats:
    folder = folders[name]
    assert folder is not None
    found = read_sums(folder, _record(folder)["data"]["sha256"], plan.model.block)
    if found is None:
        raise HeadlabError(f"{folder} was judged on another text; delete it and run the command again")
    return found[SPLIT]


def _record(folder: Path | None) -> dict[str, Any]:
    found: dict[str, Any] = {} if folder is None else read_json(folder / TRAINING)
    return found


def _called(name: str) -> str:
    technique = name.removeprefix("without ")
    return f"without {NAMES.get(technique, technique)}"


def _layers(plan: Plan, heads: list[int] | None, plain: bool) -> int:
    """Parameters of the layers of either kind with these heads, or all."""
    model = plan.model
    found = AllAttentionConfig(
        hidden_size=model.width, head_size=model.width // model.heads,
        heads_per_layer=heads or [model.heads] * model.layers, persistent=0 if plain else model.persistent,
        feed_forward=model.persistent if plain else 0, positions=model.positions,
        max_position_embeddings=model.block, pre_norm=model.pre_norm,
    )  # fmt: skip
    return parameters(found).layers
