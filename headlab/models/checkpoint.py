"""A model as it comes from disk, the lock under which one is built, and the versions that computed a result."""

from __future__ import annotations

import platform
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from headlab import __version__

# A model as it comes from disk, before anything is known of its heads, and the lock under which one is built.

# A model as it comes from disk, before anything is known of its heads.


@dataclass(frozen=True)
class Checkpoint:
    """Weights in memory and where they came from.

    fingerprint: sha256 of what the model was made of (files and configuration), never of floats in
    memory, which differ between processors.  note: what a reader should know, for example that the
    base came from another source than usual.
    """

    name: str
    revision: str
    fingerprint: str
    module: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    note: str = ""

    def identity(self) -> dict[str, Any]:
        """What a result records about its model."""
        return {"name": self.name, "revision": self.revision, "fingerprint": self.fingerprint}


# Building models one at a time and without chatter.

_BUILDING = threading.RLock()


@contextmanager
def alone() -> Iterator[None]:
    """Let no other thread build a model meanwhile, and keep transformers and peft from reporting expected things.

    While it loads a model, transformers swaps `PreTrainedModel.tie_weights` and torch's default dtype for the whole
    process; two loads that overlap put each other's back, and every model made later is untied, or float64.
    """
    with _BUILDING:
        level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            with warnings.catch_warnings():
                # peft 0.21 still asks transformers 5 for this by its old name
                warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
                # Marian's tokenizer wants it for a method that transformers no longer calls
                warnings.filterwarnings("ignore", "Recommended: pip install sacremoses", UserWarning)
                yield
        finally:
            logging.set_verbosity(level)
            if bar:
                logging.enable_progress_bar()


# What computed a result: the versions that are kept beside it.


def versions() -> dict[str, str]:
    """Versions of what computed a result."""
    return {
        "headlab": __version__,
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
