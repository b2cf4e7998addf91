"""A model as loaded from disk, the lock for building models, and package versions.

The versions are those behind a result.
"""

from __future__ import annotations

import platform
import threading
import warnings
from collections.abc import Collection, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypedDict

import numpy as np
import torch
import transformers
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from headlab import __version__
from headlab.core import JsonObject

# A model as loaded from disk, before its heads are known.


@dataclass(frozen=True)
class Checkpoint:
    """Weights in memory and their origin.

    Attributes:
        fingerprint: Sha256 of what the model was built from (files and configuration), never of
            floats in memory, which differ between CPUs.
        note: A remark for the reader, for example that the base came from an alternative source.
        folder: That the user named; None for an embedded model and one of the hub.
    """

    name: str
    revision: str
    fingerprint: str
    module: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    note: str = ""
    folder: Path | None = None

    def identity(self) -> dict[str, str]:
        """Name, revision and fingerprint, as results record them."""
        return {"name": self.name, "revision": self.revision, "fingerprint": self.fingerprint}


class AccelerateHook(Protocol):
    """What accelerate hangs on a module whose weights it spreads over devices.

    Attributes:
        execution_device: The device that the module computes on.
        weights_map: The weights by name that it brings for each pass.
    """

    execution_device: int | str | torch.device
    weights_map: MutableMapping[str, torch.Tensor]


def input_device(module: PreTrainedModel) -> torch.device:
    """The device of a model's inputs and outputs, also where its layers are on several."""
    # accelerate's; weights that it brings for each pass have no device
    hook: AccelerateHook | None = getattr(module, "_hf_hook", None)
    if hook is None:
        return module.device
    return torch.device(hook.execution_device)


# What `from_pretrained` reports where it is asked for with `output_loading_info`.


class LoadingInfo(TypedDict):
    """Differences between the weights of a checkpoint's files and those of a class.

    Attributes:
        missing_keys: Weights of the class that the files lack.
        unexpected_keys: Weights of the files that the class does not take.
        mismatched_keys: Name, shape in the files and shape in the class, of weights of another
            shape.
    """

    missing_keys: Collection[str]
    unexpected_keys: Collection[str]
    mismatched_keys: Collection[tuple[str, Sequence[int], Sequence[int]]]


# Building models one at a time and without log output.

_BUILDING = threading.RLock()


@contextmanager
def building_alone() -> Iterator[None]:
    """Hold the lock for building models, and silence expected messages of transformers and peft.

    While it loads a model, transformers swaps `PreTrainedModel.tie_weights` and torch's default
    dtype for the whole process; two overlapping loads restore each other's values, and every later
    model is then untied, or float64.
    """
    with _BUILDING:
        level = logging.get_verbosity()
        bar = logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            with warnings.catch_warnings():
                # peft 0.21 still asks transformers 5 for this by its old name
                warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
                # Marian's tokenizer recommends it for a method that transformers no longer calls
                warnings.filterwarnings(
                    "ignore", "Recommended: pip install sacremoses", UserWarning
                )
                # accelerate's, of paths that name a weight, not a module; `headlab.load` has
                # refused any other
                warnings.filterwarnings("ignore", "The following device_map keys", UserWarning)
                yield
        finally:
            logging.set_verbosity(level)
            if bar:
                logging.enable_progress_bar()


# Versions of the software that computed a result, stored with it.


def software_versions() -> dict[str, str]:
    """Versions of headlab, its main dependencies and Python, and the machine type.

    They are stored with a result.
    """
    return {
        "headlab": __version__,
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def origin_now(device: str = "") -> JsonObject:
    """When and by which versions a result is made, as stored with it.

    Args:
        device: The one that computes it, which is then stored too, with the number of threads.
    """
    origin: JsonObject = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": dict(software_versions()),
    }
    if device:
        origin |= {"threads": torch.get_num_threads(), "device": device}
    return origin
