"""The models in memory on one device: one, or two that are both small. Imports torch."""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from cachetools import LRUCache

from headlab.core import HeadlabError, is_folder
from headlab.evaluation import Evaluator
from headlab.hooks import Model
from headlab.jobs import MAX_PACES, SplitName
from headlab.models import expected_bytes
from headlab.studies.savings import Costs
from headlab.worker.runner import other_model_in_use

SMALL_BYTES = 2 * 10**9
"""A model takes less than this if another may stay in memory beside it."""
MOST_MODELS = 2
EVALUATORS = 64
"""How many evaluators are kept, of all models together."""
FILES_READ = (".safetensors", ".json", ".model", ".txt")
"""How the names of weights, configurations, tokenizers and vocabularies end."""
EvaluatorKey = tuple[str, str, SplitName, int, str, str]
"""Model, task with its label map, split, number of examples, language, players."""
FolderStamp = tuple[tuple[str, int, int], ...]


def folder_stamp(name: str) -> FolderStamp:
    """Name, size and time of change of every file of a model's folder that loading it reads.

    Empty for other models, and for a folder that cannot be read (loading it says why).
    """
    if not is_folder(name):
        return ()
    stamps = []
    try:
        for path in Path(name).iterdir():
            if path.suffix in FILES_READ:
                status = path.stat()
                stamps.append((path.name, status.st_size, status.st_mtime_ns))
    except OSError:
        return ()
    return tuple(sorted(stamps))


def weight_bytes(module: torch.nn.Module) -> int:
    """Memory that a model's weights take; those that two layers share count once."""
    tensors = {*module.parameters(), *module.buffers()}
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@dataclass
class ResidentModel:
    """A model in memory, with what was measured of it.

    Attributes:
        name: By which it is requested.
        model: Ready for gates.
        bytes: Memory that its weights take.
        stamp: Of its folder when it was loaded.
        paces: Seconds a forward pass, as timed for forecasts.
        costs: Parameters and operations of its heads; None until they are asked for.
        bytes_a_parameter: In a file of its weights as headlab writes it; None until asked for.
    """

    name: str
    model: Model
    bytes: int
    stamp: FolderStamp
    paces: MutableMapping[tuple[str | None, ...], float] = field(
        default_factory=lambda: LRUCache(MAX_PACES)
    )
    costs: Costs | None = None
    bytes_a_parameter: int | None = None


class ResidentModels:
    """Models in memory and their evaluators, in order of use.

    A second model stays beside the first if both take less than `SMALL_BYTES`; otherwise a model is
    freed before another is loaded, as the device may hold no more than one.

    Attributes:
        names: Of the models in memory, the one used last at the end; may be read in any thread.
        model_of_job: Name of the running job's model, which is not freed for another request.
    """

    def __init__(
        self,
        load: Callable[[str], Model],
        device: torch.device,
        expect_bytes: Callable[[str], int | None] = expected_bytes,
    ) -> None:
        """Nothing is loaded yet.

        Args:
            load: Gives the model of a name.
            device: That models are on.
            expect_bytes: Gives the memory that a model is going to take; None if unknown.
        """
        self._load = load
        self._device = device
        self._expect_bytes = expect_bytes
        self._models: OrderedDict[str, ResidentModel] = OrderedDict()
        # In order of use. An LRUCache of a library measures a value once and shows no such order;
        # these grow, and those used longest ago lose their layer inputs before they are dropped.
        self._evaluators: OrderedDict[EvaluatorKey, Evaluator] = OrderedDict()
        self.model_of_job: str | None = None
        self.names: tuple[str, ...] = ()

    def get(self, name: str | None) -> ResidentModel | None:
        """A model if it is in memory."""
        return None if name is None else self._models.get(name)

    def begin_job(self, name: str | None) -> None:
        """Keep a model for a job; a folder that changes meanwhile is loaded again after it."""
        if name is not None:
            self._free_if_changed(name)
        self.model_of_job = name

    def end_job(self) -> None:
        """No job computes any more."""
        self.model_of_job = None

    def need(self, name: str) -> ResidentModel:
        """A model, loaded if it is not in memory, or no longer as its folder is now.

        Raises:
            HeadlabError: It cannot be loaded, or turns out too large to stay beside the model of
                the running job.
        """
        if name != self.model_of_job:
            self._free_if_changed(name)
        if name not in self._models:
            self._make_room_for(name)
            self._models[name] = self._loaded(name)
        self._models.move_to_end(name)
        self.names = tuple(self._models)
        return self._models[name]

    def _free_if_changed(self, name: str) -> None:
        """Free a model whose folder is not as it was; one whose folder has gone stays."""
        if name in self._models:
            stamp = folder_stamp(name)
            if stamp and self._models[name].stamp != stamp:
                self._free(name)

    def may_join(self, name: str) -> bool:
        """Whether a model can be used now without freeing the running job's one."""
        if self.model_of_job in (None, name) or name in self._models:
            return True
        return self.model_of_job in self._may_stay(name)

    def _may_stay(self, name: str) -> list[str]:
        """The models in memory that are small enough to stay beside a new one."""
        expected = self._expect_bytes(name) if self._models else None
        if expected is None or expected >= SMALL_BYTES:
            return []
        return [other for other in self._models if self._models[other].bytes < SMALL_BYTES]

    def _make_room_for(self, name: str) -> None:
        """Free the models that may not stay beside a new one, those used longest ago first."""
        may_stay = self._may_stay(name)
        for other in [other for other in self._models if other not in may_stay]:
            self._free(other)
        while len(self._models) >= MOST_MODELS:
            names_by_use = [other for other in self._models if other != self.model_of_job]
            self._free(names_by_use[0])

    def _loaded(self, name: str) -> ResidentModel:
        """Load a model; alone, if there is no memory for it beside another."""
        stamp = folder_stamp(name)
        try:
            model = self._load(name)
        except HeadlabError as error:
            if error.code != "memory.model_too_large" or not self._models:
                raise
        else:
            size = weight_bytes(model.module)
            if size < SMALL_BYTES or not self._models:
                return ResidentModel(name, model, size, stamp)
            del model  # larger than its files said
        if self.model_of_job in self._models:
            raise other_model_in_use(str(self.model_of_job), name)
        self.free_all()
        model = self._load(name)
        return ResidentModel(name, model, weight_bytes(model.module), stamp)

    def free_all(self) -> None:
        """Free every model."""
        for name in list(self._models):
            self._free(name)

    def _free(self, name: str) -> None:
        del self._models[name]
        self.names = tuple(self._models)
        for key in [key for key in self._evaluators if key[0] == name]:
            del self._evaluators[key]
        gc.collect()  # a model is held in reference cycles
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def evaluator(self, key: EvaluatorKey, make: Callable[[], Evaluator]) -> Evaluator:
        """The evaluator of a key, made if there is none; the one used longest ago is dropped."""
        evaluator = self._evaluators.get(key)
        if evaluator is None:
            evaluator = self._evaluators[key] = make()
            if len(self._evaluators) > EVALUATORS:
                self._evaluators.popitem(last=False)
        self._evaluators.move_to_end(key)
        return evaluator

    def evaluators(self) -> Iterator[Evaluator]:
        """All evaluators, the one used longest ago first."""
        return iter(self._evaluators.values())
