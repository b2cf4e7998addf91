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

SMALL_BYTES = 2 * 10**9
"""A model takes less than this if another may stay in memory beside it."""
MOST_MODELS = 2
EVALUATORS = 64
"""How many evaluators are kept, of all models together."""
EvaluatorKey = tuple[str, str, SplitName, int, str]
"""Model, task with its label map, split, number of examples, language."""
FolderStamp = tuple[tuple[str, int, int], ...]


def folder_stamp(name: str) -> FolderStamp:
    """Name, size and time of change of every file in a model's folder.

    Empty for other models, and for a folder that cannot be read (loading it says why).
    """
    if not is_folder(name):
        return ()
    stamps = []
    try:
        for path in Path(name).iterdir():
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
    """

    name: str
    model: Model
    bytes: int
    stamp: FolderStamp
    paces: MutableMapping[tuple[str | None, ...], float] = field(
        default_factory=lambda: LRUCache(MAX_PACES)
    )
    costs: Costs | None = None


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

    def need(self, name: str) -> ResidentModel:
        """A model, loaded if it is not in memory, or no longer as its folder is now.

        Raises:
            HeadlabError: It cannot be loaded.
        """
        resident = self._models.get(name)
        stamp = folder_stamp(name)
        if resident is not None and stamp and resident.stamp != stamp:
            self._free(name)
            resident = None
        if resident is None:
            self._make_room_for(name)
            model = self._load_with_room(name)
            resident = ResidentModel(name, model, weight_bytes(model.module), stamp)
            if resident.bytes >= SMALL_BYTES:
                self.free_all()
            self._models[name] = resident
        self._models.move_to_end(name)
        self.names = tuple(self._models)
        return resident

    def may_join(self, name: str) -> bool:
        """Whether a model can be used now without freeing the running job's one."""
        if self.model_of_job in (None, name) or name in self._models:
            return True
        model_of_job = self.get(self.model_of_job)
        return model_of_job is not None and self._fits_beside(name, model_of_job)

    def _fits_beside(self, name: str, resident: ResidentModel) -> bool:
        expected = self._expect_bytes(name)
        return expected is not None and max(expected, resident.bytes) < SMALL_BYTES

    def _make_room_for(self, name: str) -> None:
        """Free the models that may not stay beside a new one, those used longest ago first."""
        for other_name, resident in list(self._models.items()):
            if not self._fits_beside(name, resident):
                self._free(other_name)
        while len(self._models) >= MOST_MODELS:
            names_by_use = [other for other in self._models if other != self.model_of_job]
            self._free(names_by_use[0])

    def _load_with_room(self, name: str) -> Model:
        """Load a model; alone, if there is no memory for it beside another."""
        try:
            return self._load(name)
        except HeadlabError as error:
            if error.code != "memory.model_too_large" or not self._models:
                raise
        self.free_all()
        return self._load(name)

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
