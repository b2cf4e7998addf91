"""Encoder gates of a classifier compared with other methods' masks.

Also the plans of `reproduce voita-gates`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from headlab.core import (
    Bools,
    Cell,
    Evaluation,
    HeadGrid,
    HeadlabError,
    Json,
    Progress,
    Report,
    RunSpec,
    Table,
)
from headlab.evaluation import Evaluator
from headlab.hooks import Model, load
from headlab.masks import Mask, removal_order
from headlab.methods import score
from headlab.models import EMBEDDED
from headlab.reproduce.models import NLI, nli_folder, open_model
from headlab.results import HeadScores, LearnedGates, Store, kept_heads_without
from headlab.studies.differences import (
    COLUMNS,
    FORMATS,
    MeanDifference,
    difference,
    gain_of,
    gain_over,
    holm_of_differences,
)
from headlab.tasks import SPLITS, Example, Split, Task, read_tsv_columns, whole_number
from headlab.tasks import task as task_of
from headlab.tasks.xnli import COLUMNS as PAIR
from headlab.training import GateOptions, GateStep, TranslationOptions, Watch, sweep

# What `headlab reproduce voita-gates` trains and prunes, and at which sizes.

INTENTS = "intents"
XNLI = "xnli"
TRANSLATION = "translation"
ENCODER = "encoder"
ALL_STACKS = "all"
MODELS = {INTENTS: "e5-small-intents", XNLI: NLI}


@dataclass(frozen=True)
class Classifier:
    """Gates on a classifier's heads, compared with other choices of as many heads.

    Attributes:
        task: Its name.
        weights: λ, one run each.
        gates: How they are learned.
        samples: Per head, of Shapley values.
        randoms: Random masks of as many heads.
        test: Examples that results are reported on; None for all.
    """

    task: str
    weights: tuple[float, ...]
    gates: GateOptions
    samples: int
    randoms: int
    test: int | None

    @property
    def model(self) -> str:
        """Name of the model, which was fine-tuned on English."""
        return MODELS[self.task]


@dataclass(frozen=True)
class Translator:
    """A translation model trained from scratch, and gates trained jointly with it.

    Attributes:
        pair: Languages, as in "en-de".
        sentences: Of the train split; None for all.
        model: How the model is trained.
        gates: How gates are learned.
        encoder: λ of runs with gates on the encoder alone.
        every: λ of runs with gates on all three stacks.
        scratch: Those λ of `encoder` whose architecture is also trained from scratch.
        dev: Sentences of dev.
        test: Sentences of test; None for all.
        roles: Sentences used to find heads' roles.
    """

    pair: str
    sentences: int | None
    model: TranslationOptions
    gates: GateOptions
    encoder: tuple[float, ...]
    every: tuple[float, ...]
    scratch: tuple[float, ...]
    dev: int
    test: int | None
    roles: int

    @property
    def evaluated_sizes(self) -> dict[Split, int | None]:
        """Number of sentences of each split that models are evaluated on."""
        return {"dev": self.dev, "test": self.test}

    def for_pair(self, pair: str | None, is_given: bool) -> Translator:
        """The same for another pair.

        Args:
            pair: None for its own.
            is_given: Whether it is for a user's model, at the default learning rate.
        """
        gates = self.gates
        if is_given:
            gates = replace(gates, model_rate=GateOptions.model_rate)
        return replace(self, pair=pair or self.pair, gates=gates)

    @property
    def steps(self) -> int:
        """Total steps of all trainings.

        They are the base, each run, the base trained on, and both phases of the models trained from
        scratch.
        """
        base_steps = self.model.steps
        further_steps = self.gates.steps
        trained_on = 1 + len(self.runs())
        from_scratch = len(self.scratch) * (base_steps + further_steps)
        return base_steps + trained_on * further_steps + from_scratch

    def runs(self) -> list[tuple[str, float]]:
        """(series, λ) of every run."""
        encoder_runs = [(ENCODER, weight) for weight in self.encoder]
        return encoder_runs + [(ALL_STACKS, weight) for weight in self.every]

    def options(self, series: str, weight: float, seed: int) -> GateOptions:
        """Options of one run."""
        return replace(
            self.gates,
            weight=weight,
            stacks=ENCODER if series == ENCODER else ALL_STACKS,
            dev_size=self.dev,
            test_size=self.test,
            seed=seed,
        )


@dataclass(frozen=True)
class GatesPlan:
    """The parts of a reproduction."""

    classifiers: tuple[Classifier, ...]
    translator: Translator


REAL = GatesPlan(
    (
        Classifier(
            INTENTS,
            weights=(0.0003, 0.001, 0.003, 0.01, 0.03),
            gates=GateOptions(steps=300),
            samples=512,
            randoms=5,
            test=None,
        ),
        Classifier(
            XNLI,
            weights=(0.001, 0.003, 0.01, 0.03),
            gates=GateOptions(steps=250, batch=16, size=4000, dev_size=256),
            samples=256,
            randoms=3,
            test=600,
        ),
    ),
    Translator(
        "en-de",
        sentences=None,
        model=TranslationOptions(steps=3000),
        gates=GateOptions(steps=300, batch=64, trained="all", model_rate=3e-4),
        encoder=(0.01, 0.02, 0.03, 0.1),
        every=(0.003, 0.01, 0.03),
        scratch=(0.03,),
        dev=512,
        test=None,
        roles=512,
    ),
)
SMOKE = GatesPlan(
    (
        Classifier(
            INTENTS,
            weights=(0.003, 0.03),
            gates=GateOptions(steps=40, batch=16, size=400, gate_rate=0.3, dev_size=64),
            samples=4,
            randoms=3,
            test=128,
        ),
        Classifier(
            XNLI,
            weights=(0.003, 0.03),
            gates=GateOptions(steps=12, batch=8, size=300, gate_rate=0.3, dev_size=48),
            samples=2,
            randoms=2,
            test=60,
        ),
    ),
    Translator(
        "en-de",
        sentences=2000,
        model=TranslationOptions(
            steps=120,
            batch=32,
            vocabulary=1000,
            width=64,
            feed_forward=128,
            encoder_layers=2,
            decoder_layers=2,
            encoder_heads=4,
            decoder_heads=4,
            warmup=40,
            dropout=0.1,
        ),
        gates=GateOptions(steps=60, batch=32, trained="all", model_rate=5e-4, gate_rate=0.3),
        encoder=(0.01, 0.03),
        every=(0.01, 0.03),
        scratch=(0.01,),
        dev=64,
        test=128,
        roles=64,
    ),
)


# Encoder gates of a classifier, compared with Shapley, gradient and random choices of as many
# heads.

SOURCE = "en"
GATES = "gates (L0)"
RANDOM = "random, mean"
# Gates may close most heads, so Shapley values use coalitions of all sizes, not only those of more
# than half.
SHAPLEY = "Shapley, all sizes"
ESTIMAND = "shapley"
METHODS = {SHAPLEY: "shapley", "gradient": "gradient"}
P_HOLM = "p, Holm"
NLI_TRAIN = Path("nli_en") / "train.tsv"
Say = Callable[[str, Progress], None]


def model_of(plan: Classifier, data: Path, nli: Path | None, device: str | None) -> Model:
    """The classifier. Raises HeadlabError if its files are missing."""
    if plan.model in EMBEDDED:
        return load(plan.model, device=device)
    return open_model(nli_folder(data, nli), plan.model, device, "float32")


def check(plan: Classifier, data: Path, nli: Path | None) -> None:
    """Raise HeadlabError for a missing model or missing examples."""
    if plan.model not in EMBEDDED:
        try:
            nli_folder(data, nli)
        except HeadlabError as error:
            raise HeadlabError(
                f"{error}, or leave out part {plan.task} by naming the other parts with --part",
                code=error.code,
            ) from error
    task = task_for(plan, data)
    for split in SPLITS:
        task.examples(SOURCE, split, 1)


def task_for(plan: Classifier, data: Path) -> Task:
    """The task, with a train split; that of XNLI is a separate file without any XNLI pair."""
    task = task_of(plan.task, data=data)
    if plan.task == XNLI:
        return replace(task, read=partial(_read_split, task, data / NLI_TRAIN))
    return task


def _read_split(task: Task, path: Path, language: str, split: Split, seed: int) -> list[Example]:
    """Examples of a split, as `task.read` gives them.

    The English train split is read from `path`.
    """
    if split != "train" or language != SOURCE:
        return list(task.read(language, split, seed))
    if not path.is_file():
        raise HeadlabError(
            f"gates are learned on {path.parent.name}/{path.name} below the data folder, and it "
            "is missing",
            code="reproduce.train_missing",
        )
    examples = []
    for line_number, (premise, hypothesis, label_text) in enumerate(
        read_tsv_columns(path, PAIR), start=2
    ):
        label_index = whole_number(label_text, path, line_number, "label", len(task.labels))
        examples.append(Example(f"train-{line_number}", premise, label_index, hypothesis))
    return examples


@dataclass(frozen=True)
class ComparedMasks:
    """A run of gates, and masks of as many heads to compare it with, by method."""

    gates: LearnedGates
    masks: Mapping[str, list[Bools]]


def learned_gates(
    model: Model, task: Task, plan: Classifier, store: Store, seed: int, say: Say
) -> list[LearnedGates]:
    """Gates for every λ, learned on English or loaded from the store."""
    options = replace(plan.gates, test_size=plan.test, seed=seed)

    def watch(weight: float) -> Watch[GateStep]:
        return Watch(lambda step: say(f"{plan.task}, λ = {weight:g}", step.progress))

    return sweep(model, task, SOURCE, plan.weights, options=options, store=store, watch=watch)


def scores_by_name(
    model: Model, task: Task, plan: Classifier, store: Store, seed: int, say: Say
) -> dict[str, HeadScores]:
    """Scores of English by method.

    They are those to compare, and random ones, each with its own seed.
    """
    names = METHODS | {f"{RANDOM} {number}": "random" for number in range(plan.randoms)}
    scores = {}
    for number, (name, method) in enumerate(names.items()):
        options: dict[str, Any] = {}
        if method == "shapley":
            options = {"samples": plan.samples, "target": None, "estimand": ESTIMAND}
        scores[name] = score(
            model,
            task,
            language=SOURCE,
            method=method,
            size=plan.gates.dev_size,
            store=store,
            seed=seed + number if method == "random" else seed,
            on_progress=partial(say, f"{plan.task}, {name}"),
            **options,
        )
    return scores


def compared_masks(
    grid: HeadGrid, gates: LearnedGates, scores: Mapping[str, HeadScores]
) -> ComparedMasks:
    """The gates' mask, and masks from the scores that keep as many heads."""
    removed_count = int((~gates.kept).sum())
    masks: dict[str, list[Bools]] = {GATES: [gates.kept]}
    for name, method_scores in scores.items():
        order = removal_order(method_scores.values)
        kept_heads = kept_heads_without(order[:removed_count], grid.size)
        choice = RANDOM if name.startswith(RANDOM) else name
        masks.setdefault(choice, []).append(kept_heads)
    return ComparedMasks(gates, masks)


def report(model: Model, task: Task, plan: Classifier, store: Store, seed: int, say: Say) -> Report:
    """Accuracy of all choices at each λ on the English test examples."""
    scores = scores_by_name(model, task, plan, store, seed, say)
    masks_by_weight = [
        compared_masks(model.grid, gates, scores)
        for gates in learned_gates(model, task, plan, store, seed, say)
    ]
    evaluator = Evaluator(model, task, SOURCE, "test", plan.test, state_bytes=0)
    rows: list[ChoiceRow] = []
    for number, masks in enumerate(masks_by_weight):
        say(f"{plan.task}, test", Progress(number, len(masks_by_weight)))
        rows += _rows(evaluator, masks, seed)
    spec: dict[str, Json] = {
        "model": dict(model.spec_identity()),
        "task": plan.task,
        "options": plan.gates.record(),
        "weights": list(plan.weights),
        "shapley": {"samples": plan.samples, "estimand": ESTIMAND},
        "randoms": plan.randoms,
        "test": plan.test,
        "seed": seed,
    }
    forwards = sum(masks.gates.example_forwards for masks in masks_by_weight)
    forwards += sum(method_scores.example_forwards for method_scores in scores.values())
    seconds = sum(masks.gates.seconds for masks in masks_by_weight)
    seconds += sum(method_scores.seconds for method_scores in scores.values())
    notes = tuple(dict.fromkeys(note for masks in masks_by_weight for note in masks.gates.notes))
    return Report(
        f"gates-{plan.task}",
        (_table(plan, rows, evaluator), _layers(plan, masks_by_weight)),
        notes,
        RunSpec.of(spec),
        int(forwards) + evaluator.forwards,
        float(seconds),
    )


class ChoiceRow(NamedTuple):
    """One choice of heads at one λ.

    Attributes:
        leading_cells: λ, heads kept, undecided gates, name of the choice, and accuracy.
        gain: Over the baseline.
        over_gates: Its gain over the gates' choice; None of that choice itself.
    """

    leading_cells: tuple[Cell, ...]
    gain: MeanDifference
    over_gates: MeanDifference | None


def _rows(evaluator: Evaluator, compared: ComparedMasks, seed: int) -> Iterator[ChoiceRow]:
    """A row for each choice of heads at one λ."""
    grid = evaluator.model.grid
    baseline = evaluator.evaluate()
    answers: dict[str, list[Evaluation]] = {
        name: [evaluator.evaluate(Mask(grid, kept_heads)) for kept_heads in masks]
        for name, masks in compared.masks.items()
    }
    gates_gain = gain_of(baseline, answers[GATES])
    kept_count = int(compared.gates.kept.sum())
    undecided_count = compared.gates.undecided_count()
    for name, evaluations in answers.items():
        gain = gain_of(baseline, evaluations)
        over_gates = None if name == GATES else difference(gain_over(gain, gates_gain), seed)
        accuracy = 100 * sum(evaluation.accuracy for evaluation in evaluations) / len(evaluations)
        yield ChoiceRow(
            (compared.gates.weight, kept_count, undecided_count, name, accuracy),
            difference(gain, seed),
            over_gates,
        )


def _cells(rows: Sequence[ChoiceRow]) -> Iterator[tuple[Cell, ...]]:
    """The table's rows, with p adjusted over its column."""
    p_of_gains = holm_of_differences([row.gain for row in rows])
    p_over_gates = iter(
        holm_of_differences([row.over_gates for row in rows if row.over_gates is not None])
    )
    for row, p_holm in zip(rows, p_of_gains, strict=True):
        cells_over_gates: tuple[Cell, ...] = (None,) * 5
        if row.over_gates is not None:
            cells_over_gates = (*row.over_gates.cells, next(p_over_gates))
        yield (*row.leading_cells, *row.gain.cells, p_holm, *cells_over_gates)


def _table(plan: Classifier, rows: Sequence[ChoiceRow], evaluator: Evaluator) -> Table:
    """The table of all choices."""
    columns = (*COLUMNS, P_HOLM)
    formats = (*FORMATS, FORMATS[-1])
    against = tuple(f"against gates: {name}" for name in columns)
    return Table(
        f"gates-{plan.task}-test",
        f"{plan.task}, English: accuracy on test of the heads that gates keep, and of as many by "
        "other choices",
        ("λ", "heads left", "undecided", "chosen by", "accuracy, %", *columns, *against),
        ("g", "d", "d", "", ".1f", *formats, *formats),
        tuple(_cells(rows)),
        (
            f"Differences: from the whole model, {100 * evaluator.evaluate().accuracy:.1f} % on "
            f"{len(evaluator.examples)} examples, and from the gates' choice; paired, resampled "
            "by group.",
            "Intervals and p are over test examples: the gates are those of one training seed. p, "
            "Holm: corrected for all rows of its column.",
            f"Gates are learned on train, the model as it is; Shapley's values ({plan.samples} "
            f"samples a head, at all numbers of heads) and the gradient on {plan.gates.dev_size} "
            f"dev examples; random: the mean of {plan.randoms} masks. undecided: gates that are "
            "neither 0 nor 1 with 90 % or more.",
        ),
    )


def _layers(plan: Classifier, masks_by_weight: list[ComparedMasks]) -> Table:
    """Heads that gates keep in each layer."""
    columns = tuple(
        f"{stack.name} {layer}"
        for stack in masks_by_weight[0].gates.grid.stacks
        for layer in range(stack.layers)
    )
    rows = tuple((compared.gates.weight, *by_layer(compared.gates)) for compared in masks_by_weight)
    title = f"{plan.task}: heads that gates keep in each layer"
    return Table(
        f"gates-{plan.task}-layers", title, ("λ", *columns), ("g", *("d" for _ in columns)), rows
    )


def by_layer(gates: LearnedGates) -> tuple[int, ...]:
    """Heads kept in each layer, stack after stack."""
    kept_by_layer = gates.grid.gates(gates.kept.astype(float))
    return tuple(int(row.sum()) for row in kept_by_layer)
