"""The models in memory and their evaluators: the work of the device's thread. Imports torch."""

from __future__ import annotations

import logging
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch

from headlab.core import (
    THREADS_VARIABLE,
    HeadGrid,
    HeadlabError,
    LockedFile,
    RunSpec,
    allowed_processors,
    canonical_json,
    former_fingerprints,
    is_folder,
    lock_file,
    unwritable_error,
)
from headlab.evaluation import Evaluator, changes, label_order, predicts_next
from headlab.hooks import Model, load, script_model_of, with_players_of
from headlab.jobs import (
    Measured,
    MeasureRequest,
    Refusal,
    RunningJob,
    WatchedStore,
    measured_by,
)
from headlab.jobs.table import job_class
from headlab.masks import Mask
from headlab.methods import LIVE_METHOD, Helpers, score, scores_so_far
from headlab.models import base_folder, cache_folder, expected_bytes, pick_device
from headlab.results import Store, StoredRun, store_with_demo
from headlab.shrink import bytes_in, dtype_to_write
from headlab.studies.player_costs_run import player_costs
from headlab.studies.savings_run import costs_of
from headlab.tasks import Task, equal_texts_record, task
from headlab.worker.answers import (
    answers_of,
    attention_weights,
    evaluations_of_baseline,
    evaluations_of_mask,
    figure_of_baseline,
    figures_of_mask,
    next_tokens_of,
)
from headlab.worker.resident import EvaluatorKey, ResidentModels
from headlab.worker.runner import WorkerJob
from headlab.worker.schemas import (
    AttentionRequest,
    Changed,
    EvaluateRequest,
    Figure,
    GradientRequest,
    LoadedModel,
    LoadedPlayers,
    PlayersRequest,
    Scores,
    Weights,
)

log = logging.getLogger(__name__)

# One worker per GPU: a lock that ends with its process, whatever cache a worker uses.


def hold_device(device: torch.device, folder: Path | None = None) -> LockedFile | None:
    """Lock a GPU for as long as the returned file stays open; None for a CPU, which is shared.

    Args:
        device: Of this process.
        folder: Of the lock files; None for the system's temporary one.

    Raises:
        HeadlabError: If another worker of this user holds the GPU: two models would not fit where
            one was measured to.
    """
    if device.type != "cuda":
        return None
    # Its UUID, as its number depends on which GPUs a process can see.
    return hold(str(torch.cuda.get_device_properties(device).uuid), str(device), folder)


def hold(name: str, device: str, folder: Path | None = None) -> LockedFile:
    """Lock a device by its own name, whatever this process calls it."""
    path = (folder or Path(tempfile.gettempdir())) / f"headlab-{os.getuid()}-{name}.lock"
    try:
        file = lock_file(path, opener=_open_own_file)
        if file is None:
            raise HeadlabError(
                f"another headlab worker (process {_pid_in(path)}) holds {device}; stop it, use "
                "it with HEADLAB_WORKER, or give this one another device with --device",
                code="device.in_use",
            )
        file.truncate(0)
        file.write(str(os.getpid()).encode())
    except OSError as error:
        raise unwritable_error(path, error) from error
    if file.notice:
        log.warning("%s", file.notice)
    return file


def _open_own_file(path: str, flags: int) -> int:
    """Open a file in a folder of all users, so that no other user reads it.

    No link of another user is followed.
    """
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _pid_in(path: Path) -> str:
    """The process id that the holder of a lock wrote into its file."""
    return path.read_bytes()[:20].decode("ascii", "replace").strip() or "unknown"


# Fetching a model's files from the hub, so that the device's thread never waits for the network.

HUB_ID = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")
MAX_FETCHES = 4


def comes_from_hub(model: str) -> bool:
    """Whether a model's name is one of the hub: not that of an embedded model or a folder."""
    return HUB_ID.fullmatch(model) is not None and not is_folder(model)


def fetch_files(model: str) -> None:
    """Fetch a hub model's files to this machine; does nothing for embedded models and folders.

    Raises HeadlabError.
    """
    from headlab.models import hub_folder

    if comes_from_hub(model):
        hub_folder(model, None)


class Fetches:
    """Models being fetched, in one thread each; one requested twice is fetched once.

    May be called from any thread.
    """

    def __init__(self, fetch: Callable[[str], None] = fetch_files) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._downloads: dict[str, Future[None]] = {}

    def start(self, model: str) -> Future[None]:
        """A future that is done once the files are there, or fails.

        Raises:
            Refusal: Too many are on their way from the hub (429); a model that is here is never
                refused.
        """
        with self._lock:
            download = self._downloads.get(model)
            if download is None:
                if (
                    comes_from_hub(model)
                    and sum(map(comes_from_hub, self._downloads)) >= MAX_FETCHES
                ):
                    raise Refusal(
                        f"{MAX_FETCHES} models are already being fetched from the hub; try again "
                        "when one has arrived",
                        429,
                        code="worker.fetches_too_many",
                    )
                download = self._downloads[model] = Future()
                # One caller who leaves does not cancel it for the others.
                download.set_running_or_notify_cancel()
                # Ends with the process; a partial download stays.
                threading.Thread(
                    target=self._run, args=(model, download), name="fetch", daemon=True
                ).start()
        return download

    def _run(self, model: str, download: Future[None]) -> None:
        problem: Exception | None = None
        try:
            self._fetch(model)
        except Exception as error:  # raised for whoever waits for the model
            problem = error
        with self._lock:
            del self._downloads[model]
        if problem is None:
            download.set_result(None)
        else:
            download.set_exception(problem)


# Remote devices for a job: connected and released without holding up the device's thread.

LOOK_SECONDS = 0.05
T = TypeVar("T")
HelpersForModel = Callable[[Model], AbstractContextManager[Helpers]]


class Background:
    """Enters and exits contexts in its own thread, one after the other."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "helping")

    @contextmanager
    def using(self, context: AbstractContextManager[T], tick: Callable[[], None]) -> Iterator[T]:
        """A context for the duration of a block.

        Its exit is not waited for, but the next context is entered only after it.

        Args:
            context: Entered and exited in this object's thread.
            tick: Called while it is entered; may raise to stop.

        Yields:
            What the context gives.
        """
        entered = self._thread.submit(context.__enter__)
        try:
            while not entered.done():
                tick()
                wait([entered], LOOK_SECONDS)
            yield entered.result()
        finally:
            self._thread.submit(_exit_context, context, entered)


def _exit_context(context: AbstractContextManager[Any], entered: Future[Any]) -> None:
    if entered.exception() is None:
        context.__exit__(None, None, None)


def _grid_of_run(model: Model, spec: RunSpec) -> HeadGrid | None:
    """The players of a run on a model; None if they are not in memory.

    Args:
        model: With its heads.
        spec: Of the run.
    """
    if not spec.players:
        return model.grid
    for variant in model.variants.by_players.values():
        is_same_kind = str(variant.players) == spec.players
        if is_same_kind and variant.grid.members_sha256 == spec.groups:
            return variant.grid
    return None


# Each evaluator caches up to 192 MiB of layer inputs, so that a toggle starts at the layer it
# changed.
EVALUATOR_BYTES = 384 << 20
MAX_CHANGED_ANSWERS = 2000
FETCH_SECONDS = 0.05  # between two checks whether a job's model has been fetched


def embedded_base() -> Path:
    """Folder of the embedded models' base model, converted on the first call."""
    return base_folder(cache_folder())


class ModelHost:
    """The models of one device, and the evaluators of their tasks."""

    def __init__(
        self,
        cache: Path,
        device: str | None = None,
        *,
        loader: Callable[[str], Model] | None = None,
        tasks: Callable[[str], Task] = task,
        base: Callable[[], Path] = embedded_base,
        state_bytes: int = EVALUATOR_BYTES,
        fetch: Callable[[str], None] = fetch_files,
        make_helpers: HelpersForModel | None = None,
        expect_bytes: Callable[[str], int | None] = expected_bytes,
    ) -> None:
        """Hold the device; no model is loaded yet.

        Args:
            cache: Folder of results.
            device: Its name; None for a GPU where there is one.
            loader: Gives the model of a name.
            tasks: Gives the task of a name.
            base: Gives the folder that fine-tuning starts from.
            state_bytes: Layer inputs that all evaluators together may cache; those of the least
                recently used one are dropped first.
            fetch: Brings a model's files to this machine, in its own thread.
            make_helpers: Gives the devices of Ray jobs, for one model; None without Ray.
            expect_bytes: Gives the memory that a model is going to take; None if unknown.
        """
        if not os.environ.get(THREADS_VARIABLE):
            torch.set_num_threads(allowed_processors())
        self._device = pick_device(device)
        self._lock = hold_device(self._device)
        self.device = str(self._device)
        self.store = store_with_demo(cache)
        self._tasks = tasks
        self._state_limit = state_bytes
        load_model = loader or (lambda name: load(name, device=str(self._device)))
        self._models = ResidentModels(load_model, self._device, expect_bytes)
        self.base = base
        self._fetches = Fetches(fetch)
        self._make_helpers = make_helpers
        self.helpers: Helpers | None = None
        self.languages_at_once = 1  # live requests come first, in the device's one thread
        self._background = Background()
        self.tick: Callable[[], None] = lambda: None

    @property
    def residents(self) -> tuple[str, ...]:
        """Names of the models in memory, the one used last at the end; from any thread."""
        return self._models.names

    def may_join(self, model: str) -> bool:
        """Whether a model can be used without freeing the running job's one."""
        return self._models.may_join(model)

    @property
    def paces(self) -> MutableMapping[tuple[str | None, ...], float]:
        """Seconds a forward pass of the model that was needed last, as timed for forecasts."""
        resident = self._models.get(self.residents[-1])
        assert resident is not None
        return resident.paces

    def load(self, model: str) -> LoadedModel:
        """Load a model unless it is in memory, and describe it."""
        resident = self._models.need(model)
        model_in_memory = resident.model
        place = script_model_of(model_in_memory)
        resident.costs = resident.costs or costs_of(model_in_memory)
        if resident.bytes_a_parameter is None:
            resident.bytes_a_parameter = bytes_in(1, dtype_to_write(model_in_memory))
        return LoadedModel(
            **model_in_memory.identity(),
            grid=model_in_memory.grid,
            device=str(model_in_memory.device),
            note=model_in_memory.checkpoint.note,
            architecture=dict(place.architecture),
            projections=list(place.projections),
            source=place.source,
            costs=resident.costs,
            former_fingerprints=list(former_fingerprints(model_in_memory.fingerprint)),
            bytes_a_parameter=resident.bytes_a_parameter,
        )

    def players(self, request: PlayersRequest) -> LoadedPlayers:
        """What a model's players cost, and where they are.

        Raises:
            HeadlabError: The mask is of another model, of heads, or the model has no such players.
        """
        model = self._model_of_mask(request.model, request.mask)
        if model.player_set is None:
            raise HeadlabError(
                "the mask is of heads, whose costs come with the model (/model); send a mask of "
                "other players",
                code="players.are_heads",
            )
        resident = self._models.need(request.model)
        resident.costs = resident.costs or costs_of(resident.model)
        place = script_model_of(model)
        costs = player_costs(model, resident.costs)
        return LoadedPlayers(
            costs=costs,
            downs=list(place.downs),
            layers=list(place.layers),
            cells=place.players if costs.player_set is None else None,
        )

    def task(self, name: str, label_map: Mapping[str, str] | None = None) -> Task:
        """A task by its name, with the classes that stand for its labels where these are stated."""
        return self._tasks(name).with_label_map(label_map)

    def fetch(self, model: str) -> Future[None]:
        """Fetch a model's files to this machine; may be called from any thread."""
        return self._fetches.start(model)

    def need(self, name: str) -> Model:
        """A model, loaded unless it is in memory."""
        return self._models.need(name).model

    def _model_for(self, request: EvaluateRequest) -> Model:
        """The model of a request, of which the players of its mask are switched.

        Raises:
            HeadlabError: The mask is of another model, or the model has no such players.
        """
        if request.mask is None:
            return self.need(request.model)
        return self._model_of_mask(request.model, request.mask)

    def _model_of_mask(self, name: str, mask: Mask) -> Model:
        """A model, of which the players of a mask are switched; errors as of `_model_for`.

        Args:
            name: Of the model.
            mask: The mask.
        """
        model = self.need(name)
        if not mask.grid.has_only_heads:
            mask.check_model(model.fingerprint)
            model = with_players_of(model, mask.grid)
        mask.check(model.grid, model.fingerprint)
        return model

    def _evaluator_for(self, request: EvaluateRequest, model: Model) -> Evaluator:

        def make() -> Evaluator:
            chosen_task = self.task(request.task, request.label_map)
            chosen_task.check(request.language, request.split)
            evaluator = Evaluator(model, chosen_task, request.language, request.split, request.size)
            evaluator.tick = lambda: self.tick()
            return evaluator

        key: EvaluatorKey = (
            request.model,
            f"{request.task} {canonical_json(request.label_map)}",
            request.split,
            request.size,
            request.language,
            f"{model.players} {model.grid.members_sha256}",
        )
        return self._models.evaluator(key, make)

    @property
    def cached_bytes(self) -> tuple[int, ...]:
        """Bytes of layer inputs that each evaluator caches."""
        return tuple(evaluator.bytes for evaluator in self._models.evaluators())

    def _make_room(self) -> None:
        """Drop cached layer inputs, least recently used evaluators first, until the rest fits."""
        for evaluator in self._models.evaluators():
            if sum(self.cached_bytes) <= self._state_limit:
                return
            evaluator.forget_states()

    def evaluate(self, request: EvaluateRequest) -> Iterator[Figure]:
        """Figures over a growing part of the examples; with a mask, paired with the baseline."""
        mask = request.mask
        evaluator = self._evaluator_for(request, self._model_for(request))
        baselines = evaluations_of_baseline(evaluator, self.store)
        figures: Iterator[Figure] = map(figure_of_baseline, baselines)
        if mask is not None:
            evaluations = evaluations_of_mask(evaluator, mask, request.ablation, self.store)
            figures = figures_of_mask(baselines, evaluations)
        for figure in figures:
            self._make_room()  # many languages may be under way at once
            # The first figures do not wait for them.
            equal_texts = evaluator.equal_texts if figure.done else ()
            notes = {"note": evaluator.note, **equal_texts_record(equal_texts)}
            yield figure.model_copy(update=notes)

    def changes(self, request: EvaluateRequest) -> Changed:
        """The answers that a mask changes; what was evaluated before is not evaluated again."""
        if request.mask is None:
            raise Refusal(
                "changed answers are those of a mask; send one", 422, code="changes.no_mask"
            )
        evaluator = self._evaluator_for(request, self._model_for(request))
        changed_answers = changes(evaluator, request.mask, ablation=request.ablation)
        self._make_room()
        return Changed(
            language=request.language,
            total=len(changed_answers),
            answers=changed_answers[:MAX_CHANGED_ANSWERS],
        )

    def attention(self, request: AttentionRequest) -> Weights:
        """Attention of the chosen heads for one sentence, and the model's answers without them.

        Of a decoder these are the next tokens. The sentence is cut to 64 tokens.
        """
        model = self.need(request.model)
        weights = attention_weights(model, request)
        if request.task is None:
            return weights
        try:
            if predicts_next(model):
                return weights.model_copy(update={"next_tokens": next_tokens_of(model, request)})
            task = self.task(request.task, request.label_map)
            return weights.model_copy(
                update={
                    "answers": answers_of(model, task, request),
                    "note": label_order(model, task).caption,
                }
            )
        except HeadlabError as error:  # attention is there without them
            return weights.model_copy(update={"note": str(error)})

    def gradient(self, request: GradientRequest) -> Scores:
        """Gradient importance of every head: from the store, or computed and stored."""
        scores = score(
            self.need(request.model),
            self.task(request.task, request.label_map),
            language=request.language,
            method=LIVE_METHOD,
            split=request.split,
            size=request.size,
            store=self.store,
            tick=lambda: self.tick(),
            progress=False,
            form=request.form,
            normalise=request.normalise,
        )
        return Scores.from_scores(scores)

    def measure(self, request: MeasureRequest) -> Measured:
        """Number of heads of a model, and how long a forward pass takes over a few batches."""
        return measured_by(self, request, lambda: self.tick())

    def run(self, running: WorkerJob) -> Mapping[str, Any]:
        """Run a job of any kind; its model's files are fetched first, while live requests go on."""
        model = running.job.params.get("model")
        if model is not None and model not in self.residents:
            download = self.fetch(model)
            while not download.done():
                running.tick()
                wait([download], FETCH_SECONDS)
            download.result()
        running.model = model
        self._models.begin_job(model)
        try:
            with self._ray_devices(running):
                job = job_class(running.job.kind).model_validate(running.job.params)
                return job.run(self, running)
        finally:
            self._models.end_job()

    @contextmanager
    def _ray_devices(self, running: WorkerJob) -> Iterator[None]:
        """Remote devices for the duration of a job placed on Ray.

        Live requests go on while they connect.
        """
        if running.job.place == "here":
            yield
            return
        if self._make_helpers is None:
            raise HeadlabError(
                "this worker has no Ray to compute on; start it with --ray, or submit the job "
                "with place here",
                code="worker.no_ray",
            )
        running.log("on Ray")
        with self._background.using(
            self._make_helpers(self.need(str(running.model))), running.tick
        ) as self.helpers:
            try:
                yield
            finally:
                self.helpers = None

    def watched_store(self, running: RunningJob, language: str) -> Store:
        """The store, which tells the running job of the run that is about to be computed.

        Its scores so far can be looked at from then on.
        """

        def note_run(run: StoredRun) -> None:
            kind = str(run.spec.get("kind", "scores"))
            if run.is_finished:
                running.log(f"{language}: {kind} in the cache already")
                return
            running.record_folder(run.folder.name, language)
            running.log(f"{language}: {kind} started")
            resident = self._models.get(self._models.model_of_job)
            grid = None if resident is None else _grid_of_run(resident.model, run.spec)
            running.scores_so_far = lambda: (
                None if grid is None or "method" not in run.spec else scores_so_far(run, grid)
            )

        return WatchedStore(
            self.store.root,
            demo=self.store.demo,
            on_begin=note_run,
            on_stored=lambda *_: running.note_stored(),
        )
