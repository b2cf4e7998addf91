"""A model as it comes from disk, before anything is known of its heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase


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
