"""Encoder gates of a classifier compared with other methods' masks, and the plans of `reproduce voita-gates`."""

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
from headlab.reproduce.models import NLI, nli_folder, opened
from headlab.results import HeadScores, LearnedGates, Store, kept_without
from headlab.studies.differences import (
    COLUMNS,
    FORMATS,
    Difference,
    holm_of_differences,
    difference,
    gain_of,
    gain_over,
)
from headlab.tasks import SPLITS, Example, Split, Task, read_table, whole_number
from headlab.tasks import task as task_of
from headlab.tasks.xnli import COLUMNS as PAIR
from headlab.training import GateOptions, GateStep, TranslationOptions, Watch, sweep

# What `headlab reproduce voita-gates` trains and prunes, and at which sizes.

INTENTS, XNLI, TRANSLATION = "intents", "xnli", "translation"
ENCODER, EVERY = "encoder", "all"
MODELS = {INTENTS: "e5-small-intents", XNLI: NLI}


@dataclass(frozen=True)
class Classifier:
    """Gates on a classifier's heads, compared with other choices of as many heads.

    weights: λ, one run each.  gates: how they are learned.  samples: per head, of Shapley values.  randoms: random
    masks of as many heads.  test: examples that results are reported on (None: all).
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

    sentences: of the train split (None: all).  encoder: λ of runs with gates on the encoder alone; every: of runs with
    gates on all three stacks.  scratch: those λ of `encoder` whose architecture is also trained from scratch.  dev,
    test: sentences (None: all).  roles: sentences used to find heads' roles.
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
    def evaluated(self) -> dict[Split, int | None]:
        """Number of sentences of each split that models are evaluated on."""
        return {"dev": self.dev, "test": self.test}

    def of(self, pair: str | None, given: bool) -> Translator:
        """The same for another pair (None: its own); given: for a user's model, at the default learning rate."""
        gates = replace(self.gates, model_rate=GateOptions.model_rate) if given else self.gates
        return replace(self, pair=pair or self.pair, gates=gates)

    @property
    def steps(self) -> int:
        """Total steps: the base, each run, the base trained on, and both phases of the models trained from scratch."""
        alone, on = self.model.steps, self.gates.steps
        return alone + on * (1 + len(self.runs())) + (alone + on) * len(self.scratch)

    def runs(self) -> list[tuple[str, float]]:
        """(series, λ) of every run."""
        return [(ENCODER, w) for w in self.encoder] + [(EVERY, w) for w in self.every]

    def options(self, series: str, weight: float, seed: int) -> GateOptions:
        """Options of one run."""
        return replace(
            self.gates, weight=weight, stacks=ENCODER if series == ENCODER else EVERY, dev_size=self.dev,
            test_size=self.test, seed=seed,
        )  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """The parts of a reproduction."""

    classifiers: tuple[Classifier, ...]
    translator: Translator


REAL = Plan(
    (
        Classifier(INTENTS, (0.0003, 0.001, 0.003, 0.01, 0.03), GateOptions(steps=300), 512, 5, None),
        Classifier(
            XNLI, (0.001, 0.003, 0.01, 0.03), GateOptions(steps=250, batch=16, size=4000, dev_size=256), 256, 3, 600,
        ),
    ),
    Translator(
        "en-de", None, TranslationOptions(steps=3000), GateOptions(steps=300, batch=64, trained="all", model_rate=3e-4),
        (0.01, 0.02, 0.03, 0.1), (0.003, 0.01, 0.03), (0.03,), 512, None, 512,
    ),
)  # fmt: skip
SMOKE = Plan(
    (
        Classifier(
            INTENTS, (0.003, 0.03), GateOptions(steps=40, batch=16, size=400, gate_rate=0.3, dev_size=64), 4, 3, 128
        ),
        Classifier(
            XNLI, (0.003, 0.03), GateOptions(steps=12, batch=8, size=300, gate_rate=0.3, dev_size=48), 2, 2, 60
        ),
    ),
    Translator(
        "en-de", 2000,
        TranslationOptions(steps=120, batch=32, vocabulary=1000, width=64, feed_forward=128, encoder_layers=2,
                           decoder_layers=2, encoder_heads=4, decoder_heads=4, warmup=40, dropout=0.1),
        GateOptions(steps=60, batch=32, trained="all", model_rate=5e-4, gate_rate=0.3),
        (0.01, 0.03), (0.01, 0.03), (0.01,), 64, 128, 64,
    ),
)  # fmt: skip


# Encoder gates of a classifier, compared with Shapley, gradient and random choices of as many heads.

SOURCE = "en"
GATES, RANDOM = "gates (L0)", "random, mean"
# Gates may close most heads, so Shapley values use coalitions of all sizes, not only those of more than half.
SHAPLEY, ESTIMAND = "Shapley, all sizes", "shapley"
METHODS = {SHAPLEY: "shapley", "gradient": "gradient"}
P_HOLM = "p, Holm"
NLI_TRAIN = Path("nli_en") / "train.tsv"
Say = Callable[[str, Progress], None]


def model_of(plan: Classifier, data: Path, nli: Path | None, device: str | None) -> Model:
    """The classifier. Raises HeadlabError if its files are missing."""
    if plan.model in EMBEDDED:
        return load(plan.model, device=device)
    return opened(nli_folder(data, nli), plan.model, device, "float32")


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
    return (
        replace(task, read=partial(_with_train, task, data / NLI_TRAIN))
        if plan.task == XNLI
        else task
    )


def _with_train(task: Task, path: Path, language: str, split: Split, seed: int) -> list[Example]:
    if split != "train" or language != SOURCE:
        return list(task.read(language, split, seed))
    if not path.is_file():
        raise HeadlabError(
            f"gates are learned on {path.parent.name}/{path.name} below the data folder, and it is missing",
            code="reproduce.train_missing",
        )
    rows = enumerate(read_table(path, PAIR), start=2)
    return [
        Example(
            f"train-{n}",
            premise,
            whole_number(label, path, n, "label", len(task.labels)),
            hypothesis,
        )
        for n, (premise, hypothesis, label) in rows
    ]


@dataclass(frozen=True)
class Choices:
    """A run of gates, and masks of as many heads to compare it with, by method."""

    gates: LearnedGates
    masks: Mapping[str, list[Bools]]


def learned(
    model: Model, task: Task, plan: Classifier, store: Store, seed: int, say: Say
) -> list[LearnedGates]:
    """Gates for every λ, learned on English or loaded from the store."""
    options = replace(plan.gates, test_size=plan.test, seed=seed)

    def watch(weight: float) -> Watch[GateStep]:
        return Watch(lambda step: say(f"{plan.task}, λ = {weight:g}", step.progress))

    return sweep(model, task, SOURCE, plan.weights, options=options, store=store, watch=watch)


def scored(
    model: Model, task: Task, plan: Classifier, store: Store, seed: int, say: Say
) -> dict[str, HeadScores]:
    """Scores of English by method: those to compare, and the random ones, each with its own seed."""
    names = METHODS | {f"{RANDOM} {n}": "random" for n in range(plan.randoms)}
    out = {}
    for n, (name, method) in enumerate(names.items()):
        own = {"samples": plan.samples, "target": None, "estimand": ESTIMAND}
        options: dict[str, Any] = own if method == "shapley" else {}
        out[name] = score(
            model, task, language=SOURCE, method=method, size=plan.gates.dev_size, store=store,
            seed=seed + n if method == "random" else seed,
            on_progress=partial(say, f"{plan.task}, {name}"), **options,
        )  # fmt: skip
    return out


def choices(grid: HeadGrid, gates: LearnedGates, scores: Mapping[str, HeadScores]) -> Choices:
    """The gates' mask, and masks from the scores that keep as many heads."""
    masks: dict[str, list[Bools]] = {GATES: [gates.kept]}
    for name, found in scores.items():
        kept = kept_without(removal_order(found.values)[: int((~gates.kept).sum())], grid.size)
        masks.setdefault(RANDOM if name.startswith(RANDOM) else name, []).append(kept)
    return Choices(gates, masks)


def report(model: Model, task: Task, plan: Classifier, store: Store, seed: int, say: Say) -> Report:
    """Accuracy of all choices at each λ on the English test examples."""
    scores = scored(model, task, plan, store, seed, say)
    runs = [
        choices(model.grid, gates, scores) for gates in learned(model, task, plan, store, seed, say)
    ]
    evaluator = Evaluator(model, task, SOURCE, "test", plan.test, state_bytes=0)
    rows: list[Row] = []
    for n, run in enumerate(runs):
        say(f"{plan.task}, test", Progress(n, len(runs)))
        rows += _rows(evaluator, run, seed)
    about: dict[str, Json] = {
        "model": dict(model.recorded()), "task": plan.task, "options": plan.gates.record(), "weights": list(plan.weights),
        "shapley": {"samples": plan.samples, "estimand": ESTIMAND}, "randoms": plan.randoms, "test": plan.test,
        "seed": seed,
    }  # fmt: skip
    forwards = sum(run.gates.example_forwards for run in runs) + sum(
        s.example_forwards for s in scores.values()
    )
    seconds = sum(run.gates.seconds for run in runs) + sum(s.seconds for s in scores.values())
    notes = tuple(dict.fromkeys(note for run in runs for note in run.gates.notes))
    return Report(
        f"gates-{plan.task}", (_table(plan, rows, evaluator), _layers(plan, runs)), notes, RunSpec.of(about),
        int(forwards) + evaluator.forwards, float(seconds),
    )  # fmt: skip


class Row(NamedTuple):
    """One choice of heads at one λ: its leading cells, its gain, and its gain over the gates' choice."""

    told: tuple[Cell, ...]
    gain: Difference
    over: Difference | None


def _rows(evaluator: Evaluator, run: Choices, seed: int) -> Iterator[Row]:
    grid, whole = evaluator.model.grid, evaluator.evaluate()
    answers: dict[str, list[Evaluation]] = {
        name: [evaluator.evaluate(Mask(grid, kept)) for kept in masks]
        for name, masks in run.masks.items()
    }
    own = gain_of(whole, answers[GATES])
    left, undecided = int(run.gates.kept.sum()), run.gates.undecided()
    for name, found in answers.items():
        gain = gain_of(whole, found)
        over = None if name == GATES else difference(gain_over(gain, own), seed)
        accuracy = 100 * sum(one.accuracy for one in found) / len(found)
        yield Row((run.gates.weight, left, undecided, name, accuracy), difference(gain, seed), over)


def _cells(rows: Sequence[Row]) -> Iterator[tuple[Cell, ...]]:
    """The table's rows, with p adjusted over its column."""
    gains = holm_of_differences([row.gain for row in rows])
    over = iter(holm_of_differences([row.over for row in rows if row.over is not None]))
    for row, corrected in zip(rows, gains, strict=True):
        behind = (None,) * 5 if row.over is None else (*row.over.cells, next(over))
        yield (*row.told, *row.gain.cells, corrected, *behind)


def _table(plan: Classifier, rows: Sequence[Row], evaluator: Evaluator) -> Table:
    columns, formats = (*COLUMNS, P_HOLM), (*FORMATS, FORMATS[-1])
    against = tuple(f"against gates: {name}" for name in columns)
    return Table(
        f"gates-{plan.task}-test",
        f"{plan.task}, English: accuracy on test of the heads that gates keep, and of as many by other choices",
        ("λ", "heads left", "undecided", "chosen by", "accuracy, %", *columns, *against),
        ("g", "d", "d", "", ".1f", *formats, *formats),
        tuple(_cells(rows)),
        (
            f"Differences: from the whole model, {100 * evaluator.evaluate().accuracy:.1f} % on "
            f"{len(evaluator.examples)} examples, and from the gates' choice; paired, resampled by group.",
            "Intervals and p are over test examples: the gates are those of one training seed. p, Holm: "
            "corrected for all rows of its column.",
            f"Gates are learned on train, the model as it is; Shapley's values ({plan.samples} samples a head, at all "
            f"numbers of heads) and the gradient on {plan.gates.dev_size} dev examples; random: the mean of "
            f"{plan.randoms} masks. undecided: gates that are neither 0 nor 1 with 90 % or more.",
        ),
    )  # fmt: skip


def _layers(plan: Classifier, runs: list[Choices]) -> Table:
    """Heads that gates keep in each layer."""
    columns = tuple(
        f"{stack.name} {n}" for stack in runs[0].gates.grid.stacks for n in range(stack.layers)
    )
    rows = tuple((run.gates.weight, *by_layer(run.gates)) for run in runs)
    title = f"{plan.task}: heads that gates keep in each layer"
    return Table(
        f"gates-{plan.task}-layers", title, ("λ", *columns), ("g", *("d" for _ in columns)), rows
    )


def by_layer(gates: LearnedGates) -> tuple[int, ...]:
    """Heads kept in each layer, stack after stack."""
    kept = gates.grid.gates(gates.kept.astype(float))
    return tuple(int(row.sum()) for row in kept)
