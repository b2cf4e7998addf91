"""The resident model and its evaluators: what the device's thread does when asked. Imports torch."""

from __future__ import annotations

import gc
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from headlab.errors import HeadlabError
from headlab.evaluator import Evaluator, accuracy_interval, compare
from headlab.gates import Model, attention, load
from headlab.masks import Mask, mask_from_json
from headlab.methods.peek import peek
from headlab.methods.run import score
from headlab.methods.work import Progress
from headlab.models.load import pick_device
from headlab.records import Evaluation, Head
from headlab.store import Run, Store
from headlab.tasks import Task, task
from headlab.worker.jobs import Running
from headlab.worker.schemas import (
    MAX_TOKENS,
    AttentionRequest,
    EvaluateRequest,
    Figure,
    LoadedModel,
    ScoreSpec,
    SplitName,
    Weights,
)
from headlab.worker.snapshots import WatchedStore

# Each evaluator keeps up to 192 MiB of layer inputs, so that a toggle starts at the layer it changed.
EVALUATOR_BYTES = 384 << 20
EVALUATORS = 64
PART = 1000  # a job's progress is counted in thousandths of a language
Key = tuple[str, str, SplitName, int]


class Resident:
    """One model on one device.

    loader: name -> model; tasks: name -> task.  state_bytes: memory that all evaluators together may
    hold; the one used longest ago goes first.
    """

    def __init__(
        self,
        cache: Path,
        device: str | None = None,
        *,
        loader: Callable[[str], Model] | None = None,
        tasks: Callable[[str], Task] = task,
        state_bytes: int = EVALUATOR_BYTES,
    ) -> None:
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(os.cpu_count() or 1)
        self._device = pick_device(device)
        self._load = loader or (lambda name: load(name, device=str(self._device)))
        self._tasks, self._store, self._limit = tasks, Store(cache), state_bytes
        self._model: Model | None = None
        self._name: str | None = None
        self._evaluators: OrderedDict[Key, Evaluator] = OrderedDict()
        self.tick: Callable[[], None] = lambda: None

    @property
    def device(self) -> str:
        """Where the model lives."""
        return str(self._device)

    @property
    def resident(self) -> str | None:
        """Name of the model in memory."""
        return self._name

    def load(self, model: str) -> LoadedModel:
        """Make a model the resident one, freeing the one before."""
        loaded = self._need(model)
        identity = loaded.identity()
        return LoadedModel(
            name=identity["name"],
            revision=identity["revision"],
            fingerprint=loaded.fingerprint,
            grid=loaded.grid.to_json(),
            device=str(loaded.device),
            note=loaded.checkpoint.note,
        )

    def _need(self, name: str) -> Model:
        if self._model is None or self._name != name:
            self._free()
            self._model, self._name = self._load(name), name
        return self._model

    def _free(self) -> None:
        self._model = self._name = None
        self._evaluators.clear()
        gc.collect()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _evaluator(self, request: EvaluateRequest) -> Evaluator:
        key: Key = (request.task, request.language, request.split, request.size)
        found = self._evaluators.get(key)
        if found is None:
            chosen = self._tasks(request.task)
            chosen.check(request.language, request.split)
            found = Evaluator(self._need(request.model), chosen, request.language, request.split, request.size)
            found.tick = lambda: self.tick()
            self._evaluators[key] = found
            if len(self._evaluators) > EVALUATORS:
                self._evaluators.popitem(last=False)
        self._evaluators.move_to_end(key)
        return found

    def _make_room(self) -> None:
        """Drop the kept layer inputs of the evaluators not used for longest until the rest fits."""
        held = sum(e.bytes for e in self._evaluators.values())
        for evaluator in self._evaluators.values():
            if held <= self._limit:
                return
            held -= evaluator.bytes
            evaluator.forget_states()

    def evaluate(self, request: EvaluateRequest) -> Iterator[Figure]:
        """Figures over a growing part of the examples; with a mask, paired with the untouched model."""
        model = self._need(request.model)
        mask = None if request.mask is None else _mask_of(request, model)
        evaluator = self._evaluator(request)
        figures: Iterator[Figure] = map(_figure, evaluator.stream(None))
        if mask is not None:
            figures = _paired(evaluator.stream(None), evaluator.stream(mask, ablation=request.ablation))
        for figure in figures:
            self._make_room()  # many languages may be under way at once
            yield figure

    def attention(self, request: AttentionRequest) -> Weights:
        """Attention of the chosen heads for one sentence, cut to 64 tokens."""
        model = self._need(request.model)
        heads = [Head(*head) for head in request.heads]
        for head in heads:
            model.grid.index(head)
        texts = (request.text,) if request.pair is None else (request.text, request.pair)
        cut = model.tokenizer(*texts, truncation=True, max_length=MAX_TOKENS)["input_ids"]
        full = model.tokenizer(*texts)["input_ids"]
        inputs = model.tokenizer(*texts, truncation=True, max_length=MAX_TOKENS, return_tensors="pt").to(model.device)
        found = attention(model, inputs, heads)
        return Weights(
            tokens=[str(token) for token in model.tokenizer.convert_ids_to_tokens(cut)],
            weights={f"{h.stack}.{h.layer}.{h.head}": _rounded(found[h]) for h in heads},
            truncated=len(full) > len(cut),
        )

    def run(self, running: Running) -> None:
        """Score the languages of a job one after the other; what the store has already is not computed again."""
        spec = ScoreSpec.model_validate(running.job.params)
        languages = _languages(spec)
        chosen = self._tasks(spec.task)
        model = self._need(spec.model)

        def begun(run: Run) -> None:
            running.look = lambda: peek(run, model.grid)

        store = WatchedStore(self._store.root, begun)
        for at, language in enumerate(languages):
            running.progress(at * PART, len(languages) * PART, language, fresh=True)
            score(
                model,
                chosen,
                language=language,
                method=spec.method,
                seed=spec.seed,
                split=spec.split,
                size=spec.size,
                ablation=spec.ablation,
                store=store,
                on_progress=_reporter(running, language, at, len(languages)),
                tick=running.tick,
                **spec.options,
            )
        running.progress(len(languages) * PART, len(languages) * PART, f"{', '.join(languages)} done")


def _reporter(running: Running, language: str, at: int, languages: int) -> Callable[[Progress], None]:
    """Progress of one language as progress of the job; the first one may come from a checkpoint."""
    fresh = True

    def report(progress: Progress) -> None:
        nonlocal fresh
        share = progress.done / progress.total if progress.total else 0.0
        note = f"{language}: {progress.note or f'{progress.done} of {progress.total}'}"
        running.progress(at * PART + int(PART * share), languages * PART, note, fresh=fresh)
        fresh = False

    return report


def _languages(spec: ScoreSpec) -> Sequence[str]:
    if isinstance(spec.languages, str):
        raise HeadlabError('a job names its languages; "all" is filled in when it is submitted')
    return spec.languages


def _mask_of(request: EvaluateRequest, model: Model) -> Mask:
    mask = mask_from_json(request.mask, "the mask")
    mask.check(model.grid, model.fingerprint)
    return mask


def _paired(whole: Iterator[Evaluation], masked: Iterator[Evaluation]) -> Iterator[Figure]:
    """Both grow together, so that the first comparison does not wait for all of the baseline."""
    before: Evaluation | None = None
    for after in masked:
        while before is None or before.n < after.n:
            before = next(whole)
        yield _compared(before, after)


def _figure(seen: Evaluation) -> Figure:
    low, high = accuracy_interval(seen)
    return Figure(
        language=seen.language, n=seen.n, total=seen.total, accuracy=seen.accuracy, low=low, high=high, done=seen.done
    )


def _compared(before: Evaluation, after: Evaluation) -> Figure:
    both = compare(before, after)
    return Figure(
        language=both.language,
        n=both.n,
        total=both.total,
        accuracy=both.accuracy,
        low=both.low,
        high=both.high,
        done=both.n == both.total,
        baseline=both.baseline,
        difference=both.difference,
        p=both.p,
        flipped_right=both.flipped_right,
        flipped_wrong=both.flipped_wrong,
    )


def _rounded(weights: torch.Tensor) -> list[list[float]]:
    rounded: list[list[float]] = weights.double().numpy().round(3).tolist()
    return rounded
