"""Gates learned at one λ or at several (Voita et al. 2019), and their control.

They are loaded from the cache where they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import AdamW
from transformers import PreTrainedModel

from headlab.core import (
    RESULT_FORMAT,
    Bools,
    HeadlabError,
    Ints,
    JsonLike,
    JsonObject,
    JsonRecord,
    ModelSpec,
    RunSpec,
    TaskSpec,
    content_key,
    do_nothing,
    is_same_model,
    omission_fields,
)
from headlab.evaluation import (
    NO_TARGET,
    Evaluator,
    Inputs,
    classes_for_spec,
    read_inputs,
    recorded_accuracy,
)
from headlab.hooks import Model, gated_in_this_thread, make_gateable, token_needs_of, tokens_version
from headlab.masks import Mask
from headlab.models import (
    EMBEDDED,
    Checkpoint,
    TokenNeeds,
    building_alone,
    checkpoint_beside,
    fingerprint_delta,
    identity_of,
    is_delta,
    origin_now,
)
from headlab.results import GATES_KIND, LearnedGates, Result, Store, StoredRun, trained_folder
from headlab.tasks import Example, Split, Task, count_equal_texts, equal_texts_notes
from headlab.training.l0_options import VERSION, GateOptions, GateStep, learned_on
from headlab.training.options import Indices, batches_per_epoch, epoch
from headlab.training.output import (
    LIBRARIES,
    MODEL_CONFIG,
    TrainingOutput,
    changed_output,
    check_out,
    copy_folder,
    how_it_went,
    versions_of,
    whole_output,
    write_folder,
)
from headlab.training.steps import GATES as OF_GATES
from headlab.training.steps import (
    HISTORY,
    GateSteps,
    State,
    StateSaver,
    Watch,
    own_randomness,
    trained_parameters,
)
from headlab.training.translation import check_mask, freeze_without_heads

# Training steps: one gate sample per example, the task loss, the penalty, an update.

Tick = Callable[[], None]
Say = Callable[[GateStep], None]


class Learner(GateSteps[GateStep]):
    """Trains the gates of some heads of a model, from the current state to the last step.

    In joint training the model belongs to the learner, and its parameters that require a gradient
    are trained too; otherwise the model is not changed.

    Args:
        model: The model.
        inputs: What the gates are learned on.
        options: How they are learned.
        has_gate: Which heads have one, bool [head].
    """

    options: GateOptions
    lower = "lower rates, or with dtype float32"
    smaller = "train the gates alone, or a smaller model"

    def __init__(self, model: Model, inputs: Inputs, options: GateOptions, has_gate: Bools) -> None:
        self.model = model
        self.inputs = inputs
        self.options = options
        self.rows, self.columns = (torch.as_tensor(part) for part in model.grid.flat[has_gate].T)
        initial_log_alpha = torch.full(
            (int(has_gate.sum()),), options.concrete.start(options.start)
        )
        self.log_alpha = nn.Parameter(initial_log_alpha.to(model.device))
        super().__init__(model.module, options, self._state())
        self._shuffled: tuple[int, list[Indices]] = (-1, [])

    def _state(self) -> State:
        """Gates first, then the model's trainable weights in name order.

        Each has its learning rate.
        """
        weights = trained_parameters(self.model.module) if self.options.is_joint else {}
        groups = [{"params": [self.log_alpha], "lr": self.options.gate_rate}]
        groups += (
            [{"params": list(weights.values()), "lr": self.options.model_rate}] if weights else []
        )
        state = State({OF_GATES: self.log_alpha} | weights, AdamW(groups, weight_decay=0.0))
        state.extra_tensors[HISTORY] = self.current_log_alpha()
        return state

    def run(
        self, saver: StateSaver | None, say: Say | None = None, tick: Tick = do_nothing
    ) -> None:
        """See `Steps`. Raises HeadlabError if a trained value is not finite at the end."""
        super().run(saver, say, tick)
        self.model.module.eval()
        # The last update may have produced a NaN that no later loss would show.
        not_finite = [
            name
            for name, values in self.state.parameters.items()
            if not bool(values.isfinite().all())
        ]
        if not_finite:
            culprit, rate = (
                ("a gate", "gate_rate")
                if not_finite[0] == OF_GATES
                else (f"the weight {not_finite[0]}", "model_rate")
            )
            raise HeadlabError(
                f"{culprit} became NaN; train with a lower {rate}", code="gate.diverged"
            )

    def batch_at(self, step: int) -> Ints:
        """The examples of a step: a function of seed and step alone.

        As in `training.options.step_batch`.
        """
        lengths = self.inputs.lengths
        batch = self.options.batch
        epoch_number, batch_number = divmod(step, batches_per_epoch(len(lengths), batch))
        if self._shuffled[0] != epoch_number:
            rng = np.random.default_rng((self.options.seed, epoch_number))
            self._shuffled = (epoch_number, epoch(lengths.tolist(), batch, rng))
        return self._shuffled[1][batch_number]

    @property
    def forwards(self) -> int:
        """Number of examples run through the model over all steps."""
        epoch_batches = batches_per_epoch(len(self.inputs.lengths), self.options.batch)
        whole_epochs, other_batches = divmod(self.options.steps, epoch_batches)
        other_forwards = sum(
            len(self.batch_at(whole_epochs * epoch_batches + number))
            for number in range(other_batches)
        )
        return whole_epochs * len(self.inputs.lengths) + other_forwards

    def train(self) -> None:
        """Training mode for a jointly trained model only; an unchanged one has no dropout."""
        self.module.train(self.options.is_joint)

    def gradient(self, step: int, batch: Ints, rows: int) -> float:
        """Gradient of the mean task loss (nats per answer) plus the penalty.

        Samples depend on seed and step alone.
        """
        (
            self.options.weight_at(step)
            * self.options.concrete.probability_open(self.log_alpha).sum()
        ).backward()
        uniform = self.uniform(step, len(batch))
        answers = max(1, int(self.inputs.units[batch].sum()))
        total_loss = 0.0
        for start in range(0, len(batch), rows):
            part_rows = batch[start : start + rows]
            part_uniform = uniform[start : start + rows] if len(uniform) > 1 else uniform
            with torch.enable_grad(), gated_in_this_thread(self.model, self.gates(part_uniform)):
                logits = self.inputs.logits(self.inputs.tensors(part_rows))
            loss = self.loss(logits, part_rows) / answers
            # frozen ones may require a gradient
            loss.backward(inputs=list(self.state.parameters.values()))
            total_loss += loss.item()
        return total_loss

    def loss(self, logits: torch.Tensor, rows: Ints) -> torch.Tensor:
        """Summed cross-entropy of the answers, nats."""
        logits_at_least_float32 = logits if logits.dtype == torch.float64 else logits.float()
        target = self.inputs.targets(rows)
        return cross_entropy(
            logits_at_least_float32.flatten(0, -2),
            target.flatten(),
            ignore_index=NO_TARGET,
            reduction="sum",
        )

    def uniform(self, step: int, batch: int) -> torch.Tensor:
        """Uniform samples of a step, float32 [example, gate].

        They are [1, gate] if the batch shares one.
        """
        return self.uniform_samples(step, batch if self.options.sample == "example" else 1)

    def gates(self, uniform: torch.Tensor) -> torch.Tensor:
        """Gates from uniform samples: [row, layer, head], or [layer, head] for one row.

        1 for heads without a gate.
        """
        samples = self.options.concrete.sample(self.log_alpha, uniform)
        shape = (len(uniform), self.model.grid.layers, self.model.grid.width)
        gates = torch.ones(shape, dtype=samples.dtype, device=samples.device)
        gates[:, self.rows, self.columns] = samples
        return gates if len(gates) > 1 else gates[0]

    def parameters_to_clip(self) -> Sequence[nn.Parameter]:
        """The model's weights, without the gates."""
        return [p for name, p in self.state.parameters.items() if name != OF_GATES]

    def step_record(self, step: int, rows: int, saved_steps: int) -> GateStep:
        """See `Steps`."""
        state = self.state
        gates = self.log_alpha.detach()
        expected_open = float(self.options.concrete.probability_open(gates).sum())
        return GateStep(
            step + 1,
            self.options.steps,
            state.losses[-1],
            state.seconds,
            saved_steps,
            rows,
            self.options.weight * expected_open,
            expected_open,
            self.open(),
            len(gates),
        )


# A model trained jointly with its gates: a copy to train, and the folder it is written to.

FOLDER = "model"  # in the run's folder


def trainable_copy(model: Model, frozen_embeddings: bool) -> Model:
    """A trainable copy of the model with the same weights, its embeddings frozen on request.

    Raises HeadlabError for half precision, in which rounding would swallow the updates, and for a
    model that is spread over devices.
    """
    model.require_whole("joint training")
    original = model.module
    if original.dtype not in (torch.float32, torch.float64):
        name = str(original.dtype).removeprefix("torch.")
        raise HeadlabError(
            f"{model.name} was loaded in {name}; joint training needs float32, so load it in that dtype",
            code="training.not_float32",
        )
    # rebuilt, not deep-copied: the original's layers may be wrapped, and copied wrappers would call
    # the originals
    with building_alone(), torch.random.fork_rng(devices=[]):
        module = type(original)(type(original.config).from_dict(original.config.to_dict()))
    nn.Module.to(module, device=original.device, dtype=original.dtype)
    module.load_state_dict(original.state_dict())
    if (
        getattr(original, "generation_config", None) is not None
    ):  # of text generators; not part of the config
        module.generation_config = deepcopy(original.generation_config)
    copy = make_gateable(Checkpoint(model.name, "trained", "", module, model.tokenizer))
    if frozen_embeddings:
        for part in module.modules():
            if isinstance(part, nn.Embedding):
                part.requires_grad_(False)
    return copy


def check_place(out: Path | None) -> Path:
    """The folder for a trained model.

    Raises HeadlabError if it is None, or holds something no training made.
    """
    if out is None:
        raise HeadlabError(
            "joint training needs somewhere to write the model: give a store, or a folder with out",
            code="training.place_missing",
        )
    check_out(out)
    return out


def write_model(
    model: Model, original: Model, out: Path, record: JsonRecord, needs: TokenNeeds
) -> dict[str, str]:
    """Write the trained model as a folder that `headlab.load` reads.

    Returns what it is then known by.

    Args:
        model: The trained model.
        original: The model that it was copied from.
        out: The folder to write.
        record: How it was trained.
        needs: What it was given beyond its tokenizer's output.
    """
    full_record = {**record, "base": original.identity(), "versions": versions_of(LIBRARIES)}
    write_folder(out, _output_of(model, original, needs), full_record)
    return {
        "name": f"{original.name} trained with gates",
        "revision": "folder",
        "fingerprint": _fingerprint(out),
        "folder": out.name,
    }


def _fingerprint(folder: Path) -> str:
    if is_delta(folder):
        return fingerprint_delta(folder)
    return identity_of(folder).fingerprint


def stored_gates(finished_result: Result[LearnedGates], out: Path | None) -> LearnedGates:
    """Gates of a finished run; a jointly trained model is copied to `out` if that is given.

    Adds a note if the model is no longer below the run's folder.  Raises HeadlabError if it should
    be copied then, and if `out` is taken.
    """
    gates = finished_result.record
    source = trained_folder(finished_result)
    if not gates.trained or (out is None and source is not None):
        return gates
    way_on = f"to train it again, delete folder {finished_result.key[:12]}… of the cache and run the same command"
    if out is None:
        note = f"the model that was trained jointly is not in the cache, but was written elsewhere, or deleted; {way_on}"
        return replace(gates, notes=(*gates.notes, note))
    if not _is_model_there(out, str(gates.trained.get("fingerprint"))):
        if source is None:
            raise HeadlabError(
                f"these gates are in the cache, but not the model that was trained jointly; {way_on}",
                code="training.model_gone",
            )
        check_out(out)
        copy_folder(source, out)
    return replace(gates, trained={**gates.trained, "folder": out.name})


def _is_model_there(out: Path, fingerprint: str) -> bool:
    return (out / MODEL_CONFIG).is_file() and is_same_model(_fingerprint(out), fingerprint)


def _output_of(model: Model, original: Model, needs: TokenNeeds) -> TrainingOutput:
    """The whole model, or the weights that can have changed.

    The latter are enough for an embedded model, whose base is in the package.
    """
    module: PreTrainedModel = model.module
    frozen_names = {name for name, p in module.named_parameters() if not p.requires_grad}
    if frozen_names and (embedded := EMBEDDED.get(original.name)) is not None and embedded.adapter:
        return changed_output(
            module, {n: t for n, t in module.state_dict().items() if n not in frozen_names}
        )
    return whole_output(module, model.tokenizer, needs)


# Examples and sweeps.

# Examples that gates are learned and evaluated on, read and evaluated once for a whole sweep.

MEASURED_SPLITS: tuple[Split, ...] = ("dev", "test")
JOINT_NOTE = "the mask is of the model that was trained jointly with its gates; it is compared with the untouched model"
# The same note, as results stored by earlier versions have it.
FORMER_JOINT_NOTE = (
    "the mask is of the model that was trained along; it is compared with the untouched one"
)


@dataclass
class GatesDataset:
    """Examples of one language: those to learn on, from `split`, and those to evaluate masks on.

    Depends on every option but λ, so one instance serves a sweep.

    Attributes:
        notes: Caveats about the choice of splits.
    """

    model: Model
    task: Task
    language: str
    options: GateOptions
    split: Split = field(init=False)
    examples: tuple[Example, ...] = field(init=False)
    examples_by_split: dict[Split, tuple[Example, ...]] = field(init=False, default_factory=dict)
    notes: tuple[str, ...] = field(init=False)
    _evaluators: dict[Split, Evaluator] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        notes = []
        self.split, self.examples = learned_on(
            self.task, self.language, self.options.split, self.options.size
        )
        if self.split == "dev":
            notes.append(
                "the gates were learned on dev, so dev gives an optimistic estimate; judge on test"
            )
        for split, size in zip(
            MEASURED_SPLITS, (self.options.dev_size, self.options.test_size), strict=True
        ):
            try:
                self.examples_by_split[split] = self.task.examples(self.language, split, size)
            except HeadlabError as error:  # a user's task may lack the split
                notes.append(f"not measured on {split}: {error}")
        notes += self._equal_texts_notes()
        if self.options.is_joint:
            notes.append(JOINT_NOTE)
        self.notes = tuple(notes)

    def _equal_texts_notes(self) -> list[str]:
        """What the texts to judge gates on have in common with those to learn them on."""
        counts = [
            count_equal_texts(examples, split, self.examples, self.split)
            for split, examples in self.examples_by_split.items()
            if split != self.split
        ]
        return equal_texts_notes(counts)

    @cached_property
    def _inputs(self) -> Inputs:
        return read_inputs(self.model, self.task, self.examples, self.language)

    def inputs(self, jointly_trained: Model | None = None) -> Inputs:
        """The examples to learn on, tokenised for this model.

        Or for `other`, if one is trained jointly.
        """
        if jointly_trained is None:
            return self._inputs
        return read_inputs(jointly_trained, self.task, self.examples, self.language)

    @cached_property
    def _hashes(self) -> dict[str, str]:
        return {"learned": self.task.data_hash(self.examples)} | {
            split: self.task.data_hash(examples)
            for split, examples in self.examples_by_split.items()
        }

    def spec(self, options: GateOptions) -> RunSpec:
        """Everything that gates learned with these options depend on; its key names the run."""
        task = TaskSpec(
            name=self.task.name,
            language=self.language,
            split=self.split,
            size=len(self.examples),
            seed=self.task.seed,
            data_hash=self._hashes["learned"],
            more={
                **classes_for_spec(self.model, self.task),
                **tokens_version(self.model, self.examples),
            },
        )
        return RunSpec(
            format=RESULT_FORMAT,
            kind=GATES_KIND,
            version=VERSION,
            model=ModelSpec.from_json(self.model.spec_identity()),
            task=task,
            judged={
                split: {"size": len(examples), "data_hash": self._hashes[split]}
                for split, examples in self.examples_by_split.items()
            },
            ablation="zero",
            options=options.record(),
            seed=options.seed,
        )

    def measure_mask(
        self, gates: LearnedGates, tick: Tick, jointly_trained: Model | None = None
    ) -> tuple[dict[str, JsonRecord], int]:
        """Accuracy of the gates' mask by split, paired with the untouched model.

        Also the example forwards that took.

        Args:
            gates: The learned gates.
            tick: Called between batches.
            jointly_trained: The model that the mask belongs to, if any.
        """
        accuracies: dict[str, JsonRecord] = {}
        mask = gates.mask()
        forwards = 0
        for split in self.examples_by_split:
            evaluator = self._evaluators.setdefault(split, self._evaluator(split, self.model))
            gated_evaluator = (
                evaluator if jointly_trained is None else self._evaluator(split, jointly_trained)
            )
            evaluator.tick = gated_evaluator.tick = tick
            forwards_before = evaluator.forwards
            baseline = evaluator.evaluate()
            evaluation = gated_evaluator.evaluate(mask)
            forwards += evaluator.forwards - forwards_before
            forwards += gated_evaluator.forwards if jointly_trained is not None else 0
            figures = recorded_accuracy(baseline, evaluation, self.options.seed)
            accuracies[split] = {
                "n": figures["n"],
                "examples": len(gated_evaluator.examples),
                **cast("JsonRecord", figures),
                "kept": int(mask.kept.sum()),
                "undecided": gates.undecided_count(),
                **omission_fields(gated_evaluator.omissions),
            }
        return accuracies, forwards

    def omission_notes(self, learned_on: Inputs) -> tuple[str, ...]:
        """What was cut or has no answer of examples that gates were learned or judged on.

        Args:
            learned_on: The examples that the gates were learned on.
        """
        omissions = {
            f"learned on {self.split}": learned_on.omitted.of_first(len(learned_on.lengths))
        }
        for split, evaluator in self._evaluators.items():
            omissions[f"measured on {split}"] = evaluator.omissions
        return tuple(
            f"{place}: {omitted.sentence}"
            for place, omitted in omissions.items()
            if omitted.sentence
        )

    def _evaluator(self, split: Split, model: Model) -> Evaluator:
        # one pass per mask, and no two masks are similar: no layer inputs worth caching
        return Evaluator(
            model,
            self.task,
            self.language,
            split,
            len(self.examples_by_split[split]),
            state_bytes=0,
        )


CHECKPOINT_STEPS = 20
CHECKPOINT = "checkpoint.safetensors"


def learn_gates(
    model: Model,
    task: Task,
    language: str,
    *,
    options: GateOptions | None = None,
    store: Store | None = None,
    out: Path | None = None,
    on_progress: Say = lambda _: None,
    tick: Tick = do_nothing,
) -> LearnedGates:
    """Learn which heads of a model stay open, and evaluate the resulting mask.

    They are learned on a task in one language.

    The loss is the mean task loss (nats per answer) + λ·Σ P(gate ≠ 0): Voita et al. (2019), section
    6.1. Deterministic for a given seed, thread count and processor.

    Raises HeadlabError for arguments that do not fit.

    Args:
        store: Where finished gates are looked up and stored, and interrupted runs resume; None
            stores nothing.
        out: Folder for the jointly trained model, copied there if the run is already finished;
            None: below the run's folder in the store.
        on_progress: Called after each step.
        tick: Called between passes; either may raise to stop.
    """
    chosen_options = options or GateOptions()
    chosen_options.check()
    watch = Watch(on_progress, tick)
    return learn(
        GatesDataset(model, task, language, chosen_options),
        chosen_options,
        store=store,
        out=out,
        watch=watch,
    )


def sweep(
    model: Model,
    task: Task,
    language: str,
    weights: Sequence[float],
    *,
    options: GateOptions | None = None,
    store: Store | None = None,
    watch: Callable[[float], Watch[GateStep]] = lambda weight: Watch(),
) -> list[LearnedGates]:
    """Learn gates for several λ in turn, each as in `learn_gates`.

    The untouched model is evaluated once.

    Raises HeadlabError if no λ is given, and as `learn_gates` does.

    Args:
        watch: Callbacks for the run of a given λ.
    """
    if not weights:
        raise HeadlabError(
            "a sweep needs values of λ; give at least one weight", code="gate.weights_missing"
        )
    options_of_runs = [
        replace(options or GateOptions(), weight=float(weight)) for weight in weights
    ]
    for run_options in options_of_runs:
        run_options.check()
    dataset = GatesDataset(model, task, language, options_of_runs[0])
    return [
        learn(dataset, run_options, store=store, watch=watch(run_options.weight))
        for run_options in options_of_runs
    ]


def learn(
    dataset: GatesDataset,
    options: GateOptions,
    *,
    store: Store | None,
    out: Path | None = None,
    watch: Watch[GateStep] | None = None,
) -> LearnedGates:
    """`learn_gates` on a dataset already read.

    `options` may differ from the dataset's in λ only.
    """
    has_gate = options.heads_with_gate(dataset.model.grid)  # raises before anything is learned
    spec = dataset.spec(options)
    stored_run = None if store is None else store.run(spec)
    if store is not None:
        store.note_places(spec, dataset.model, dataset.task)
    finished_result = None if stored_run is None else stored_run.result(LearnedGates)
    if finished_result is not None:
        return stored_gates(finished_result, out)
    model_folder = out if stored_run is None or out is not None else stored_run.folder / FOLDER
    model_folder = check_place(model_folder) if options.is_joint else None
    watch = watch or Watch()
    device = dataset.model.device
    with own_randomness(device):
        trained_copy = (
            trainable_copy(dataset.model, options.embeddings == "frozen")
            if options.is_joint
            else None
        )
        learner = Learner(
            trained_copy or dataset.model, dataset.inputs(trained_copy), options, has_gate
        )
        if stored_run is not None:
            stored_run.make_folder()
        learner.run(_state_saver(stored_run, watch), watch.progress, watch.tick)
    gates = _gates_of(dataset, learner, spec, has_gate)
    if trained_copy is not None and model_folder is not None:
        record: JsonObject = {"gates": options.record(), "seed": options.seed}
        identity = write_model(
            trained_copy,
            dataset.model,
            model_folder,
            record,
            token_needs_of(dataset.model, dataset.examples),
        )
        gates = replace(gates, trained=identity)
        trained_copy.checkpoint = replace(
            trained_copy.checkpoint, fingerprint=identity["fingerprint"]
        )
    watch.measuring()
    started_at = time.perf_counter()
    accuracies, forwards = dataset.measure_mask(gates, watch.tick, trained_copy)
    seconds = gates.seconds + time.perf_counter() - started_at
    notes = (*gates.notes, *dataset.omission_notes(learner.inputs))
    gates = replace(
        gates,
        measured=accuracies,
        example_forwards=gates.example_forwards + forwards,
        seconds=seconds,
        notes=notes,
    )
    if stored_run is not None:
        stored_run.finish(gates, _run_facts(learner))
    return gates


def _state_saver(stored_run: StoredRun | None, watch: Watch[GateStep]) -> StateSaver | None:
    if stored_run is None:
        return None
    return watch.state_saver(stored_run.folder / CHECKPOINT, stored_run.key, CHECKPOINT_STEPS)


def _gates_of(
    dataset: GatesDataset, learner: Learner, spec: RunSpec, has_gate: Bools
) -> LearnedGates:
    """The learned gates, not yet measured."""
    times, log_alpha, loss, penalty = learner.history()
    log_alpha_of_heads = np.full((len(times), dataset.model.grid.size), np.nan, np.float32)
    log_alpha_of_heads[:, has_gate] = log_alpha
    return LearnedGates(
        dataset.model.grid,
        dataset.language,
        times,
        log_alpha_of_heads,
        loss,
        penalty,
        float(learner.options.weight),
        learner.forwards,
        learner.state.seconds,
        learner.options.concrete,
        {},
        spec,
        {},
        dataset.notes,
    )


def _run_facts(learner: Learner) -> JsonObject:
    """How the gates were computed; forecasts use step_seconds."""
    rows = {"rows_that_fitted": learner.state.row_limit} if learner.state.row_limit else {}
    pace = {"step_seconds": learner.state.seconds / learner.options.steps}
    return origin_now(learner.model.device.type) | pace | rows


# The control for pruning: a model trained exactly as with gates, but without them.

# Options that concern only gates, of which there are none here.
OPTIONS_OF_GATES = (
    "weight",
    "gate_rate",
    "stacks",
    "start",
    "sample",
    "warmup",
    "history",
    "temperature",
    "low",
    "high",
    "dev_size",
    "test_size",
)


class Ungated(Learner):
    """Joint training's steps, batches, learning rates and loss, with gates that stay.

    Each head is on or off throughout.
    """

    def __init__(
        self, model: Model, inputs: Inputs, options: GateOptions, mask: Mask | None
    ) -> None:
        super().__init__(model, inputs, options, np.zeros(model.grid.size, bool))
        is_open = np.ones(model.grid.size, bool) if mask is None else mask.kept
        self._open = torch.as_tensor(
            model.grid.gates(is_open), device=model.device, dtype=model.module.dtype
        )

    def gates(self, uniform: torch.Tensor) -> torch.Tensor:
        """1 or 0 for each head, [layer, head]; nothing is sampled."""
        return self._open


def train_on(
    model: Model,
    task: Task,
    language: str,
    *,
    out: Path,
    options: GateOptions,
    mask: Mask | None = None,
    progress: Say = lambda _: None,
) -> Path:
    """Train a copy of a model as in joint training, but without gates.

    The folder `out` is written. Joint training is that of `learn_gates`.

    An interrupted run resumes.

    Raises HeadlabError for options, a mask or a path that do not fit.

    Args:
        mask: For the same layers and heads; its removed heads are off, and their output is 0 in the
            folder's weights.
    """
    options.check()
    if not options.is_joint:
        raise HeadlabError(
            f"trained is {options.trained!r}, which leaves the model as it is; give trained='all'",
            code="training.trained_in_part",
        )
    check_place(out)
    check_mask(model, mask)
    split, examples = learned_on(task, language, options.split, options.size)
    facts: dict[str, JsonLike] = {
        "kind": "trained on",
        "base": model.spec_identity(),
        "language": language,
        "options": {
            name: value for name, value in options.record().items() if name not in OPTIONS_OF_GATES
        },
        "seed": options.seed,
        "data": {
            "split": split,
            "examples": len(examples),
            "sha256": task.data_hash(examples),
            **tokens_version(model, examples),
        },
        "removed": [] if mask is None else [list(head) for head in mask.removed],
    }
    key = content_key(facts)
    keep = StateSaver(checkpoint_beside(out, key), key, CHECKPOINT_STEPS)
    with own_randomness(model.device):
        trained_copy = trainable_copy(model, options.embeddings == "frozen")
        learner = Ungated(
            trained_copy, read_inputs(trained_copy, task, examples, language), options, mask
        )
        learner.run(keep, progress)
    freeze_without_heads(trained_copy, mask)
    record = (
        facts
        | {"example_forwards": learner.forwards}
        | how_it_went(learner.state, model.device.type)
    )
    write_model(trained_copy, model, out, record, token_needs_of(model, examples))
    keep.path.unlink(missing_ok=True)
    return out
