"""Shim et al. (2021): an All-attention language model, its heads pruned permanently.

Ordinary Transformers stand beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TypedDict, cast

import torch

from headlab.core import (
    Cell,
    Floats,
    HeadlabError,
    Json,
    JsonLike,
    Report,
    RunSpec,
    Table,
    content_key,
    do_nothing,
    read_json,
)
from headlab.models.allattention import AllAttentionForCausalLM, parameter_counts
from headlab.models.embedded import TRAINING_FILE
from headlab.models.load import read_model
from headlab.reproduce.models import VERSION, as_written
from headlab.results import ADAPTERS_FOLDER
from headlab.training import (
    TRANSFORMER,
    AllClosed,
    LmGateOptions,
    LmOptions,
    LmStep,
    RelativeSpeed,
    model_config_of,
    perplexity_ratio,
    prune_lm,
    read_sums,
    speeds,
    train_lm,
)
from headlab.training.lm_text import Lines, data_hash, read_lines
from headlab.training.steps import Watch

# What `headlab reproduce shim` trains and prunes, at which sizes, and what each model is called.

START = "all-attention"
AS_LONG = "all-attention, trained on"
TECHNIQUES = ("warm_up", "open_start", "scale")
ALL_ON = "all three"
SPLIT = "test"


@dataclass(frozen=True)
class ShimPlan:
    """Sizes of a reproduction.

    Attributes:
        words: Of the training text; None for all.
        held_words: Of the evaluation texts; None for all.
        model: How the model is trained.
        gates: How it is pruned.
        weights: λ, one pruned model each.
        ablated: λ at which the techniques are left out in turn.
        rounds: Of timing.
    """

    words: int | None
    held_words: int | None
    model: LmOptions
    gates: LmGateOptions
    weights: tuple[float, ...]
    ablated: float
    rounds: int

    @property
    def as_long(self) -> int:
        """Total steps of a pruned model; the models it is compared with are trained for as many."""
        return self.model.steps + self.gates.steps + self.gates.tune_steps


REAL = ShimPlan(
    words=None,
    held_words=40_000,
    model=LmOptions(vocabulary=5000, width=192, persistent=256, block=64, batch=16, steps=1000),
    gates=LmGateOptions(steps=250, tune_steps=100, batch=16, block=64),
    weights=(0.003, 0.01, 0.03),
    ablated=0.01,
    rounds=15,
)
SMOKE = ShimPlan(
    words=40_000,
    held_words=5_000,
    model=LmOptions(
        vocabulary=1000,
        layers=3,
        heads=4,
        width=64,
        persistent=64,
        block=64,
        batch=8,
        steps=200,
        learning_rate=3e-3,
    ),
    gates=LmGateOptions(
        steps=100,
        tune_steps=40,
        batch=8,
        block=64,
        gate_rate=0.1,
        model_rate=1e-3,
        tune_rate=1e-3,
    ),
    weights=(0.01, 0.03, 0.06),
    ablated=0.03,
    rounds=7,
)


class RunOptions(TypedDict, total=False):
    """The options of a training that the tables use.

    Attributes:
        steps: Of training.
        batch: Windows of each step.
        tune_steps: Of pruning.
        persistent: Vectors a head, of training from scratch.
    """

    steps: int
    batch: int
    tune_steps: int
    persistent: int


class TextTokens(TypedDict):
    """The text that a model was trained on: its number of tokens."""

    tokens: int


class SecondsTaken(TypedDict):
    """Seconds of training and of evaluating a model."""

    seconds: float
    judging: float


class ParameterCountsRecord(TypedDict):
    """Number of parameters of a model, and of its layers."""

    whole: int
    layers: int


class RecordedPerplexity(TypedDict):
    """Perplexity per word with its interval, as in `headlab.training.lm_perplexity.Perplexity`."""

    word: float | None
    low: float | None
    high: float | None
    words: int


class RecordedRatio(TypedDict):
    """One perplexity divided by another."""

    value: float


class RecordedGates(TypedDict):
    """Learned gates.

    Attributes:
        kept: 1 or 0, [layer][head].
        heads: Their number: kept, and in all.
        undecided: Number of undecided gates.
        loss: Of each step.
    """

    kept: list[list[int]]
    heads: list[int]
    undecided: int
    loss: list[float | None]


class LmRecord(TypedDict, total=False):
    """What training.json says of a language model, as far as it is read here.

    Nothing where there is no model.

    Attributes:
        options: of a training from scratch.
        pruned: the options of a pruning.
        data: that it was trained on.
        took: how long it took.
        parameters: how many it has.
        heads: of each layer.
        perplexity: by split.
        gates: of a pruned model.
        ratios: of its perplexity to the unpruned model's, after each part of the pruning, by split.
    """

    options: RunOptions
    pruned: RunOptions
    data: TextTokens
    took: SecondsTaken
    parameters: ParameterCountsRecord
    heads: list[int]
    perplexity: Mapping[str, RecordedPerplexity]
    gates: RecordedGates
    ratios: Mapping[str, Mapping[str, RecordedRatio]]


@dataclass
class MadeModels:
    """The models that were made.

    Attributes:
        plan: What was made.
        data: Hash of the text.
        folders: By model name; None if every gate closed.
    """

    plan: ShimPlan
    data: str
    folders: dict[str, Path | None] = field(default_factory=dict)

    def record(self, name: str) -> LmRecord:
        """How a model was made; empty if there is none."""
        folder = self.folders[name]
        if folder is None:
            return {}
        with as_written(folder):
            record = cast("LmRecord", read_json(folder / TRAINING_FILE))
            _check_record(record)
        return record

    def sums(self, name: str) -> Floats:
        """A model's sums over passages of the test text.

        Raises:
            HeadlabError: They are from another text.
        """
        folder = self.folders[name]
        sums_by_split = (
            None if folder is None else read_sums(folder, self.data, self.plan.model.block)
        )
        if sums_by_split is None:
            raise HeadlabError(
                f"{folder} was measured on another text; delete it and run the command again",
                code="reproduce.other_text",
            )
        return sums_by_split[SPLIT]

    @property
    def seconds(self) -> float:
        """Seconds of training and evaluating all models, earlier runs included."""
        return sum(seconds(self.record(name)) for name in self._one_name_a_model())

    @property
    def windows(self) -> int:
        """Number of text windows that all models were trained on."""
        windows = 0
        for name in self._one_name_a_model():
            record = self.record(name)
            options = record.get("pruned") or record["options"]
            steps = options.get("steps", 0) + options.get("tune_steps", 0)
            windows += steps * options["batch"]
        return windows

    def _one_name_a_model(self) -> list[str]:
        """One name per model; some have several."""
        return list(
            {folder: name for name, folder in self.folders.items() if folder is not None}.values()
        )


def _check_record(record: LmRecord) -> None:
    """Read every entry of a record that the tables use; missing or non-numeric ones raise early."""
    perplexity = record["perplexity"][SPLIT]
    sizes = record["parameters"]
    numbers: list[float] = [
        record["took"]["seconds"],
        record["took"]["judging"],
        sizes["whole"],
        sizes["layers"],
        perplexity["words"],
        record["data"]["tokens"],
        record["heads"][0],
        *record["heads"],
    ]
    interval = (perplexity["word"], perplexity["low"], perplexity["high"])
    numbers += [value for value in interval if value is not None]
    options = record.get("pruned") or record["options"]
    numbers += [options["steps"], options["batch"], options.get("tune_steps", 0)]
    if "pruned" in record:
        gates = record["gates"]
        numbers += [
            record["ratios"]["removed"][SPLIT]["value"],
            gates["undecided"],
            gates["heads"][0],
            gates["heads"][1],
            *map(sum, gates["kept"]),
        ]
        numbers.append(max(loss for loss in gates["loss"] if loss is not None))
    else:
        numbers.append(options["persistent"])
    for value in numbers:
        float(value)


def seconds(record: LmRecord) -> float:
    """Seconds of training and evaluating a model."""
    return float(record["took"]["seconds"] + record["took"]["judging"])


def pruned_name(weight: float) -> str:
    """Name of a pruned model."""
    return f"pruned, λ = {weight:g}"


def large_name(weight: float) -> str:
    """Name of the ordinary Transformer that is as large as a pruned model."""
    return f"{TRANSFORMER} as large as λ = {weight:g}"


def settings(plan: ShimPlan) -> dict[str, LmGateOptions]:
    """Options of each pruned model, by name.

    There is each λ with all techniques, and one λ without each of them and without all.
    """
    options_by_name = {
        pruned_name(weight): replace(plan.gates, weight=weight) for weight in plan.weights
    }
    all_techniques = replace(plan.gates, weight=plan.ablated)
    options_by_name[pruned_name(plan.ablated)] = all_techniques
    for name in TECHNIQUES:
        options_by_name[f"without {name}"] = replace(all_techniques, **{name: False})
    options_by_name["without all three"] = replace(
        all_techniques, **dict.fromkeys(TECHNIQUES, False)
    )
    return options_by_name


def check(plan: ShimPlan) -> None:
    """Raise HeadlabError if some model of the plan has unusable options.

    It is raised before hours are spent.
    """
    for options in trained_options(plan).values():
        options.check()
    for gates in settings(plan).values():
        gates.check()


def trained_options(plan: ShimPlan) -> dict[str, LmOptions]:
    """Options of the models trained from scratch before any pruning, by name.

    The first model is the one to prune.
    """
    longer = replace(plan.model, steps=plan.as_long)
    return {START: plan.model, AS_LONG: longer, TRANSFORMER: replace(longer, kind=TRANSFORMER)}


def as_large(plan: ShimPlan, layers: int) -> LmOptions:
    """An ordinary Transformer with about so many parameters in its layers.

    Heads and inner width shrink alike. It also has fewer layers if too little of either would be
    left.

    Args:
        plan: Of the reproduction.
        layers: Parameters of the layers.
    """
    full_size = trained_options(plan)[TRANSFORMER]
    share = min(1.0, layers / layer_parameters(full_size))
    sizes = [
        (depth, heads)
        for depth in range(full_size.layers, 0, -1)
        for heads in range(max(1, round(share * full_size.heads)), 0, -1)
    ]
    for depth, heads in sizes:
        smaller = replace(
            full_size,
            layers=depth,
            heads=heads,
            head_size=full_size.width // full_size.heads,
            persistent=1,
        )
        parameters_at_1 = layer_parameters(smaller)  # with an inner width of 1
        parameters_at_2 = layer_parameters(replace(smaller, persistent=2))
        inner = 1 + round((layers - parameters_at_1) / (parameters_at_2 - parameters_at_1))
        if inner >= 1:
            return replace(smaller, persistent=inner)
    return smaller


def layer_parameters(options: LmOptions, heads: list[int] | None = None) -> int:
    """Parameters in the layers of a model.

    Args:
        options: Of the model.
        heads: Per layer, in place of the options' own.
    """
    config = model_config_of(options, vocabulary=2)
    if heads is not None:
        config.heads_per_layer = heads
    return parameter_counts(config).layers


def shown_models(plan: ShimPlan) -> list[str]:
    """Models of the main table, in its order; speeds are relative to the first."""
    return [
        START,
        AS_LONG,
        *map(pruned_name, plan.weights),
        TRANSFORMER,
        *map(large_name, plan.weights),
    ]


# The tables of `headlab reproduce shim`, made from the records in the models' folders.

NAMES = {"warm_up": "sparsity warm-up", "open_start": "open start", "scale": "output scaling"}
PERPLEXITY_FORMATS = {"perplexity": ".2f", "low": ".2f", "high": ".2f"}  # by column


def model_table(models: MadeModels, speed_by_model: Mapping[str, RelativeSpeed]) -> Table:
    """Perplexity, parameters and speed of pruned, unpruned and ordinary Transformers."""
    format_by_column = {
        "model": "",
        "steps": "d",
        "heads": "d",
        "heads removed, %": ".1f",
        "parameters": ",d",
        "of layers": ",d",
        "of layers, % of the unpruned": ".1f",
        **PERPLEXITY_FORMATS,
        "× trained on": ".3f",
        "× low": ".3f",
        "× high": ".3f",
        "× after removal alone": ".3f",
        "speed, ×": ".2f",
        "speed low": ".2f",
        "speed high": ".2f",
        "layers' speed, ×": ".2f",
        "layers' low": ".2f",
        "layers' high": ".2f",
        "seconds": ".0f",
    }
    rows = [
        _row(name, models, speed_by_model)
        for name in shown_models(models.plan)
        if models.folders[name] is not None
    ]
    return Table(
        "shim-models",
        "All-attention models, pruned and not, and ordinary Transformers: perplexity a word of the "
        "test text, parameters and speed",
        tuple(format_by_column),
        tuple(format_by_column.values()),
        tuple(rows),
        (
            f"× trained on: perplexity divided by that of {AS_LONG}, which had as many steps; "
            "paired by passage.",
            f"× after removal alone: against {START}, before the fine-tuning; it includes the "
            "updates that the weights had while the gates were learned.",
            f"Speed: of a forward pass, against {START} in the same round; median and quartiles "
            f"over {models.plan.rounds} rounds. Layers: without the table of words.",
            f"Seconds: of training and judging; of pruned models, without those of {START}.",
        ),
    )


def equal_size_table(models: MadeModels) -> Table:
    """Each All-attention model beside an ordinary Transformer.

    Both have as many parameters and as many steps.
    """
    pairs = [("none", AS_LONG, TRANSFORMER)]
    pairs += [
        (f"{weight:g}", pruned_name(weight), large_name(weight)) for weight in models.plan.weights
    ]
    format_by_column = {
        "λ": "",
        "heads": "d",
        "parameters of layers": ",d",
        **PERPLEXITY_FORMATS,
        "transformer: layers": "d",
        "transformer: heads a layer": "d",
        "transformer: inner width": "d",
        "transformer: of layers": ",d",
        **{f"transformer: {name}": form for name, form in PERPLEXITY_FORMATS.items()},
        "× the transformer's": ".3f",
        "× low": ".3f",
        "× high": ".3f",
    }
    rows: list[tuple[Cell, ...]] = []
    for weight_text, all_attention, transformer in pairs:
        record = models.record(all_attention)
        transformer_record = models.record(transformer)
        if not record or not transformer_record:
            continue
        row = (
            weight_text,
            sum(record["heads"]),
            record["parameters"]["layers"],
            *_perplexity_cells(models, all_attention),
            len(transformer_record["heads"]),
            transformer_record["heads"][0],
            transformer_record["options"]["persistent"],
            transformer_record["parameters"]["layers"],
            *_perplexity_cells(models, transformer),
            *_ratio_cells(models, transformer, all_attention),
        )
        rows.append(row)
    return Table(
        "shim-equal",
        "All-attention models against ordinary Transformers of their size, trained for as many "
        "steps",
        tuple(format_by_column),
        tuple(format_by_column.values()),
        tuple(rows),
        (
            "Below 1: the All-attention model is better. λ none: it is not pruned.",
            "A Transformer as large as a pruned model has its size from the first step on, and one "
            "rate that rises and falls over all steps.",
        ),
    )


def layer_table(models: MadeModels) -> Table:
    """Heads kept in each layer, by λ."""
    plan = models.plan
    layers = tuple(f"layer {n + 1}" for n in range(plan.model.layers))
    rows: list[tuple[Cell, ...]] = []
    for weight in plan.weights:
        gates = models.record(pruned_name(weight)).get("gates")
        if gates is not None:
            rows.append((weight, *map(sum, gates["kept"]), *gates["heads"], gates["undecided"]))
    return Table(
        "shim-layers",
        "Heads that stay in each layer, by λ",
        ("λ", *layers, "kept", "of", "undecided"),
        ("g", *("d" for _ in layers), "d", "d", "d"),
        tuple(rows),
        ("Undecided: gates neither open nor closed with a probability of 0.9 or more.",),
    )


def technique_table(models: MadeModels) -> Table:
    """One λ with the paper's three techniques, without each of them, and without all."""
    plan = models.plan
    with_all = pruned_name(plan.ablated)
    format_by_column = {
        "techniques": "",
        "heads kept": "d",
        "undecided": "d",
        "highest loss, nats": ".3f",
        "× after removal alone": ".3f",
        **PERPLEXITY_FORMATS,
        "× all three": ".3f",
        "× low": ".3f",
        "× high": ".3f",
    }
    rows: list[tuple[Cell, ...]] = []
    for name in settings(plan):
        if name != with_all and not name.startswith("without"):
            continue
        technique = name.removeprefix("without ")
        title = ALL_ON if name == with_all else f"without {NAMES.get(technique, technique)}"
        record = models.record(name)
        if not record:
            rows.append((title, 0, *(None,) * (len(format_by_column) - 2)))
            continue
        gates = record["gates"]
        row = (
            title,
            gates["heads"][0],
            gates["undecided"],
            max(loss for loss in gates["loss"] if loss is not None),
            record["ratios"]["removed"][SPLIT]["value"],
            *_perplexity_cells(models, name),
            *_ratio_cells(models, with_all, name),
        )
        rows.append(row)
    return Table(
        "shim-techniques",
        f"The three techniques of the paper at λ = {plan.ablated:g}, left out in turn",
        tuple(format_by_column),
        tuple(format_by_column.values()),
        tuple(rows),
        (
            "Without a technique other numbers of heads stay at the same λ, so look at both.",
            "× after removal alone: perplexity against the unpruned model, before fine-tuning.",
        ),
    )


def parameter_table(models: MadeModels) -> Table:
    """Share of the layers' parameters left after head removal.

    Beside it, what the share would be in an ordinary Transformer.
    """
    plan = models.plan
    all_heads = plan.model.heads * plan.model.layers
    options_by_name = trained_options(plan)
    kinds = [options_by_name[START], options_by_name[TRANSFORMER]]
    rows: list[tuple[Cell, ...]] = []
    for weight in plan.weights:
        record = models.record(pruned_name(weight))
        if record:
            heads = record["heads"]
            percents_left = [
                100 * layer_parameters(options, heads) / layer_parameters(options)
                for options in kinds
            ]
            rows.append((weight, 100 * (1 - sum(heads) / all_heads), *percents_left))
    return Table(
        "shim-parameters",
        "Parameters that are left in the layers when heads go, in % of the unpruned model's",
        (
            "λ",
            "heads removed, %",
            "all-attention, %",
            "ordinary Transformer with the same heads, %",
        ),
        ("g", ".1f", ".1f", ".1f"),
        tuple(rows),
        ("The last column is computed: its feed-forward parts stay.",),
    )


def notes(models: MadeModels) -> tuple[str, ...]:
    """Caveats of the tables."""
    plan = models.plan
    model = plan.model
    gates = plan.gates
    record = models.record(START)
    words_judged = record["perplexity"][SPLIT]["words"]
    first_words = "" if plan.held_words is None else "the first "
    sentences = [
        f"Trained on {record['data']['tokens']:,} tokens and judged on {first_words}"
        f"{words_judged:,} words of the test text; {model.layers} layers of {model.heads} heads, "
        f"{model.width} wide, {model.persistent} persistent vectors a head, windows of "
        f"{model.block} tokens; {plan.as_long} steps of {model.batch} windows in all for every "
        f"model but {START}. The paper's models are many times as large and trained on 103 million "
        "words.",
        "The text of Shim et al. was not at hand, only its abstract: how long λ rises, how open "
        "gates begin and how outputs are scaled is our reading.",
        f"Rates: one rise and fall over all steps, up to {model.learning_rate:g}; for pruned "
        f"models over {model.steps} steps, then {gates.model_rate:g} falling to 0 beside the "
        f"gates and {gates.tune_rate:g} falling to 0 in the fine-tuning. What differs is not in "
        "the pruning alone.",
        "One training each: how much another seed would change is not in the intervals, which are "
        "over passages.",
        "The report's seconds are of training and judging all models, whenever that was; its "
        f"{models.windows:,} forwards are the windows trained on.",
    ]
    for name in settings(plan):
        if models.folders[name] is None:
            sentences.append(f"{name}: every gate closed, so there is no model.")
    return tuple(sentences)


def _row(
    name: str, models: MadeModels, speed_by_model: Mapping[str, RelativeSpeed]
) -> tuple[Cell, ...]:
    """The row of a model in the main table."""
    plan = models.plan
    record = models.record(name)
    start = models.record(START)
    sizes = record["parameters"]
    removed_percent = None
    after_removal = None
    if "gates" in record:  # it was pruned
        removed_percent = 100 * (1 - sum(record["heads"]) / sum(start["heads"]))
        after_removal = record["ratios"]["removed"][SPLIT]["value"]
    return (
        name,
        plan.model.steps if name == START else plan.as_long,
        sum(record["heads"]),
        removed_percent,
        sizes["whole"],
        sizes["layers"],
        100 * sizes["layers"] / start["parameters"]["layers"],
        *_perplexity_cells(models, name),
        *_ratio_cells(models, AS_LONG, name),
        after_removal,
        *speed_by_model[name],
        seconds(record),
    )


def _perplexity_cells(models: MadeModels, name: str) -> tuple[Cell, ...]:
    """A model's perplexity on the test text, with its interval."""
    perplexity = models.record(name)["perplexity"][SPLIT]
    return perplexity["word"], perplexity["low"], perplexity["high"]


def _ratio_cells(models: MadeModels, base: str, name: str) -> tuple[Cell, ...]:
    """Ratio of two models' perplexities with its interval; empty if the base is missing."""
    if models.folders[base] is None:
        return None, None, None
    return tuple(perplexity_ratio(models.sums(base), models.sums(name)))


# Shim et al. (2021) reproduced: the text, the models and the report.

FOLDER = "wikitext2"  # below the data
ShowStep = Callable[[str, LmStep], None]


def text_lines(plan: ShimPlan, data: Path) -> dict[str, list[str]]:
    """The lines that the plan trains and evaluates on. Raises HeadlabError if they are missing."""
    return read_lines(data / FOLDER, plan.words, plan.held_words)


class ShimWork:
    """Trains and prunes the models missing below `root`, a folder each.

    Resumes where it was stopped.
    """

    def __init__(
        self,
        plan: ShimPlan,
        lines: Lines,
        root: Path,
        *,
        device: str,
        seed: int,
        show: ShowStep,
        tick: Callable[[], None] = do_nothing,
    ) -> None:
        self.plan = plan
        self.lines = lines
        self.root = root
        self.device = device
        self.seed = seed
        self.show = show
        self.tick = tick
        self.found = MadeModels(plan, data_hash(lines))
        self.models = len(trained_options(plan)) + len(settings(plan)) + len(plan.weights)

    def made_models(self) -> MadeModels:
        """All models of the plan.

        Those of equal sizes come last, as pruning decides how large they are.
        """
        for name, options in trained_options(self.plan).items():
            self._train(name, options)
        for name, gates in settings(self.plan).items():
            self._prune(name, replace(gates, seed=self.seed))
        for weight in self.plan.weights:
            record = self.found.record(pruned_name(weight))
            if record:
                self._train(large_name(weight), as_large(self.plan, record["parameters"]["layers"]))
            else:
                self.found.folders[large_name(weight)] = None
        return self.found

    def _train(self, name: str, options: LmOptions) -> None:
        options = replace(options, seed=self.seed)
        folder = self.place_of(options.record())
        if not (folder / "config.json").is_file():
            train_lm(self.lines, folder, options, device=self.device, watch=self._watch(name))
        self.found.folders[name] = folder

    def _prune(self, name: str, gates: LmGateOptions) -> None:
        start = self.found.folders[START]
        assert start is not None  # it is trained first
        folder: Path | None = self.place_of([start.name, gates.record()])
        if folder is not None and not (folder / "config.json").is_file():
            try:
                prune_lm(
                    start, self.lines, folder, gates, device=self.device, watch=self._watch(name)
                )
            except AllClosed:
                folder = None
        self.found.folders[name] = folder

    def place_of(self, made_of: JsonLike) -> Path:
        """Folder of a training, named by everything it depends on."""
        key = content_key([VERSION, self.found.data, made_of, self.device.split(":")[0]])
        return self.root / ADAPTERS_FOLDER / f"lm-{key[:24]}"

    def _watch(self, name: str) -> Watch[LmStep]:
        title = f"{len(self.found.folders) + 1} of {self.models}, {name}"
        return Watch(lambda step: self.show(title, step), self.tick)


def loaded_models(names: Mapping[str, Path], device: str) -> dict[str, AllAttentionForCausalLM]:
    """Models by name."""
    models = {name: read_model(str(folder), device=device).module for name, folder in names.items()}
    return {
        name: model for name, model in models.items() if isinstance(model, AllAttentionForCausalLM)
    }


def report(
    models: MadeModels,
    *,
    device: str,
    spec: Mapping[str, Json],
    tick: Callable[[], None] = do_nothing,
) -> Report:
    """The results as tables; speeds are measured now, side by side."""
    plan = models.plan
    folders: dict[str, Path] = {}
    for name in shown_models(plan):
        folder = models.folders[name]
        if folder is not None:
            folders[name] = folder
    speed_by_model = speeds(
        loaded_models(folders, device), tokens=plan.model.block, rounds=plan.rounds, tick=tick
    )
    tables = (
        model_table(models, speed_by_model),
        equal_size_table(models),
        layer_table(models),
        technique_table(models),
        parameter_table(models),
    )
    spec = {
        **spec,
        "device": device,
        "threads": torch.get_num_threads(),
        "data": models.data,
        "plan": asdict(plan),
    }
    return Report(
        "shim", tables, notes(models), RunSpec.of(spec), models.windows, round(models.seconds, 1)
    )
