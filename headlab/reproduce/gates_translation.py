"""Gates on a translation model's three stacks.

Training, pruning, and the same architecture from scratch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict, cast

from headlab.core import (
    HeadlabError,
    JsonLike,
    JsonObject,
    Progress,
    Report,
    as_number,
    content_key,
    read_json,
)
from headlab.evaluation import Bleu, Evaluator, Likelihood, likelihood, translated_bleu
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.models.embedded import TRAINING_FILE
from headlab.reproduce.gates_classifiers import ENCODER, Translator
from headlab.reproduce.models import VERSION, as_written, open_model
from headlab.results import ADAPTERS_FOLDER, LearnedGates, Result, Store, trained_folder
from headlab.roles import of_task
from headlab.roles.study import study
from headlab.tasks import Example, Split, Task
from headlab.training import (
    GateOptions,
    NoVocabulary,
    TranslationOptions,
    learn_gates,
    train_on,
    train_translation,
)

Say = Callable[[str, Progress], None]
BASE = "trained"
LONGER = "trained on"


@dataclass(frozen=True)
class Evaluated:
    """Quality of a model's translations of the test sentences, and what that cost.

    Attributes:
        bleu: Of greedy translations.
        log_probability: Of the correct translations.
        training_seconds: Of the model's training, as recorded then; for a model that started from
            the base, from there on.
        forwards: Examples run through the model in all.
        evaluation_seconds: Seconds of this evaluation.
    """

    bleu: Bleu
    log_probability: Likelihood
    training_seconds: float
    forwards: int
    evaluation_seconds: float


@dataclass(frozen=True)
class Pruned:
    """One run: its gates, and the evaluation of the pruned model."""

    series: str
    weight: float
    gates: LearnedGates
    evaluated: Evaluated


@dataclass(frozen=True)
class TrainedModel:
    """A model that was trained here, or given.

    Attributes:
        model: The model.
        seconds: Of all stages of its training.
        forwards: Of all stages of its training.
    """

    model: Model
    seconds: float = 0.0
    forwards: int = 0


@dataclass
class TranslationWork:
    """Everything that a step needs.

    Attributes:
        given: The model to prune, if none is to be trained.
    """

    plan: Translator
    task: Task
    store: Store
    device: str
    seed: int
    say: Say
    given: Model | None = None
    _sentences: tuple[Example, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._sentences = self.task.examples(self.plan.pair, "train", self.plan.sentences)

    @property
    def limited_task(self) -> Task:
        """The task with at most the plan's number of train sentences."""
        task = self.task
        sentences = self._sentences

        def read(language: str, split: Split, seed: int) -> Sequence[Example]:
            if split == "train":
                return sentences
            return task.read(language, split, seed)

        return replace(task, read=read)

    @property
    def options(self) -> TranslationOptions:
        """Options for training from scratch."""
        return replace(self.plan.model, seed=self.seed)

    @property
    def further_options(self) -> GateOptions:
        """Options for continued training, with gates or without."""
        return replace(self.plan.gates, seed=self.seed)

    def spec(self, base: Model) -> JsonObject:
        """Everything the results depend on."""
        plan = self.plan
        examples_by_split = {"train": self._sentences}
        for split, size in plan.evaluated_sizes.items():
            examples_by_split[split] = self.task.examples(plan.pair, split, size)
        return {
            "pair": plan.pair,
            "model": dict(base.spec_identity()),
            "options": None if self.given is not None else dict(self.options.record()),
            "gates": {
                name: value
                for name, value in plan.gates.record().items()
                if name not in ("weight", "stacks")
            },
            "encoder": list(plan.encoder),
            "every": list(plan.every),
            "data": {
                split: {"sentences": len(examples), "data_hash": self.task.data_hash(examples)}
                for split, examples in examples_by_split.items()
            },
            "seed": self.seed,
            "device": self.device,
        }


class TrainingCost(TypedDict):
    """What a training took, as its training.json says."""

    seconds: float
    example_forwards: int


def _read_trained(
    work: TranslationWork, folder: Path, name: str, start: TrainedModel | None = None
) -> TrainedModel:
    """A written model, under a name that does not depend on its path.

    Args:
        work: What the step needs.
        folder: Of the model.
        name: Of the model.
        start: The model that it started from, whose cost is added.
    """
    with as_written(folder):
        record = cast("TrainingCost", read_json(folder / TRAINING_FILE))
        seconds = float(record["seconds"])
        forwards = int(record["example_forwards"])
    model = open_model(folder, name, work.device, "float32")
    return TrainedModel(
        model,
        seconds + (start.seconds if start else 0),
        forwards + (start.forwards if start else 0),
    )


def place_of(work: TranslationWork, made_of: JsonLike) -> Path:
    """Folder of a training, named by everything it depends on."""
    examples = work.limited_task.read(work.plan.pair, "train", 0)
    sentences = [[example.text, example.target] for example in examples]
    key = content_key([VERSION, made_of, sentences, work.device.split(":")[0]])
    return work.store.root / ADAPTERS_FOLDER / f"mt-{key[:24]}"


def _removed_places(mask: Mask | None) -> list[JsonLike]:
    """[stack, layer, head] of every head that a mask removes; none without a mask."""
    removed_heads = () if mask is None else mask.removed
    return [[head.stack, head.layer, head.head] for head in removed_heads]


def train(work: TranslationWork, name: str, mask: Mask | None = None) -> TrainedModel:
    """A model trained from scratch, or found in the store.

    Args:
        work: What the step needs.
        name: Of the model.
        mask: Its removed heads are off from the first step.
    """
    removed_places = _removed_places(mask)
    folder = place_of(work, [work.options.record(), removed_places])
    if not (folder / "config.json").is_file():
        try:
            train_translation(
                work.limited_task.read(work.plan.pair, "train", 0),
                pair=work.plan.pair,
                out=folder,
                options=work.options,
                mask=mask,
                device=work.device,
                progress=lambda step: work.say(
                    name, Progress(step.step, step.steps, f"loss {step.loss:.3f}")
                ),
            )
        except NoVocabulary as error:
            remedy = (
                "here it has one size for all pairs, so name another with --language, or give "
                "--translation-model"
            )
            raise NoVocabulary(error.size, error.why, remedy) from error
    return _read_trained(work, folder, name)


def train_longer(
    work: TranslationWork, name: str, start: TrainedModel, mask: Mask | None = None
) -> TrainedModel:
    """A model trained on as the pruned ones are, but without gates; or found in the store."""
    removed_places = _removed_places(mask)
    folder = place_of(
        work,
        [start.model.spec_identity(), work.further_options.record(), work.seed, removed_places],
    )
    if not (folder / "config.json").is_file():
        train_on(
            start.model,
            work.limited_task,
            work.plan.pair,
            out=folder,
            options=work.further_options,
            mask=mask,
            progress=lambda step: work.say(
                name, Progress(step.step, step.steps, f"loss {step.loss:.3f}")
            ),
        )
    return _read_trained(work, folder, name, start)


def evaluate(
    work: TranslationWork, trained: TrainedModel, model_title: str, mask: Mask | None = None
) -> Evaluated:
    """BLEU of a model's greedy translations of test, and log-probability of the references."""
    work.say(f"{model_title}: translating", Progress(0, 1))
    start = time.perf_counter()
    evaluator = Evaluator(
        trained.model, work.task, work.plan.pair, "test", work.plan.test, state_bytes=0
    )
    bleu = translated_bleu(evaluator, mask, seed=work.seed)
    log_probability = likelihood(evaluator, mask, seed=work.seed)
    evaluation_seconds = time.perf_counter() - start
    return Evaluated(
        bleu,
        log_probability,
        trained.seconds,
        trained.forwards + evaluator.forwards,
        evaluation_seconds,
    )


def _step_seconds(stored_gates: Result[LearnedGates]) -> float:
    """Seconds of a run's steps alone; those of its gates include the evaluation on dev and test."""
    with as_written(stored_gates.folder):
        return as_number(stored_gates.meta["step_seconds"]) * int(stored_gates.record.steps[-1])


def learn_and_evaluate(work: TranslationWork, base: Model, series: str, weight: float) -> Pruned:
    """Gates learned jointly with the trained model, and the evaluation of the pruned model."""
    title = f"{series} gates, λ = {weight:g}"
    options = work.plan.options(series, weight, work.seed)
    gates = learn_gates(
        base,
        work.limited_task,
        work.plan.pair,
        options=options,
        store=work.store,
        on_progress=lambda step: work.say(title, step.progress),
    )
    stored_gates = work.store.run(gates.spec).result(LearnedGates)
    assert stored_gates is not None  # it was just learned, or found
    folder = trained_folder(stored_gates)
    if folder is None:
        raise HeadlabError(
            f"the model that was trained jointly with the {title}, is no longer in the cache; to "
            f"train it again, delete folder {stored_gates.key[:12]}… of the cache and run the "
            "same command",
            code="reproduce.model_gone",
        )
    trained = TrainedModel(
        open_model(folder, title, work.device, "float32"),
        _step_seconds(stored_gates),
        gates.example_forwards,
    )
    evaluated = evaluate(work, trained, title, Mask(gates.grid, gates.kept))
    return Pruned(series, weight, gates, evaluated)


@dataclass(frozen=True)
class TranslationResults:
    """Results of the translation part.

    Attributes:
        plan: What was trained.
        base: The model to prune.
        without_gates: The same, trained on as the pruned ones are, without gates.
        runs: The pruned models.
        scratch: By λ, the architecture of a run of the encoder series, trained from scratch and
            then on like these.
        roles: Of the base's heads.
        parameters: Of the base.
        was_given: Whether the base was given.
        spec: Everything the results depend on.
    """

    plan: Translator
    base: Evaluated
    without_gates: Evaluated
    runs: Sequence[Pruned]
    scratch: Mapping[float, Evaluated]
    roles: Report
    parameters: int
    was_given: bool
    spec: JsonObject

    @property
    def all_evaluated(self) -> tuple[Evaluated, ...]:
        """Every model that was evaluated."""
        return (
            self.base,
            self.without_gates,
            *(run.evaluated for run in self.runs),
            *self.scratch.values(),
        )


def from_scratch(work: TranslationWork, pruned: Pruned) -> Evaluated:
    """A run's architecture with its heads off from the first step.

    It is trained for as many steps in each phase.
    """
    name = f"from scratch, λ = {pruned.weight:g}"
    mask = pruned.gates.mask()
    return evaluate(
        work, train_longer(work, f"{name}, trained on", train(work, name, mask), mask), name
    )


def translation_results(work: TranslationWork) -> TranslationResults:
    """Run every step of the part; what is in the store is not made again."""
    plan = work.plan
    base = train(work, BASE) if work.given is None else TrainedModel(work.given)
    longer = train_longer(work, LONGER, TrainedModel(base.model))
    runs = [learn_and_evaluate(work, base.model, series, weight) for series, weight in plan.runs()]
    scratch_weights = () if work.given is not None else plan.scratch
    scratch = {
        run.weight: from_scratch(work, run)
        for run in runs
        if run.series == ENCODER and run.weight in scratch_weights
    }
    sentences = of_task(work.task, plan.pair, "dev", plan.roles)
    roles = study(
        base.model,
        sentences,
        options={"examples": 0},
        store=work.store,
        on_progress=lambda parameter: work.say("roles", parameter),
    )
    parameters = sum(parameter.numel() for parameter in base.model.module.parameters())
    return TranslationResults(
        plan,
        evaluate(work, base, BASE),
        evaluate(work, longer, LONGER),
        runs,
        scratch,
        roles,
        parameters,
        work.given is not None,
        work.spec(base.model),
    )
