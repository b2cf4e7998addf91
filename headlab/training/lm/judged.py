"""A language model judged on held-out text, the sums by passage kept so that others can be paired with it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from headlab.errors import HeadlabError
from headlab.files import read_json
from headlab.records import Floats
from headlab.training.lm.perplexity import Ratio, passages, perplexity, perplexity_ratio, token_nats
from headlab.training.lm.steps import Watch
from headlab.training.lm.text import Corpus

FILE = "perplexity.json"
JUDGED = ("valid", "test")
Sums = Mapping[str, Floats]  # by split, float [passage, 3]


class Judge:
    """Judges models on the held-out splits of a text. seconds: what that took so far."""

    def __init__(self, texts: Mapping[str, Corpus], block: int, watch: Watch) -> None:
        self.texts, self.block, self.watch, self.seconds = texts, block, watch, 0.0

    def __call__(self, model: PreTrainedModel) -> dict[str, Floats]:
        """Sums over passages of each split: nats, words, tokens."""
        begun = time.perf_counter()
        nats = {split: token_nats(model, self.texts[split], self.block, self.watch.tick) for split in JUDGED}
        self.seconds += time.perf_counter() - begun
        return {split: passages(self.texts[split], found) for split, found in nats.items()}


def told(sums: Sums) -> dict[str, Any]:
    """Perplexities with their intervals by split, ready for JSON."""
    return {split: perplexity(part).record() for split, part in sums.items()}


def kept(sums: Sums, data: str, block: int) -> dict[str, Any]:
    """What goes into the model's folder: the sums, and what they were made on."""
    return {"data": data, "block": block, "columns": ["nats", "words", "tokens"],
            "passages": {split: part.tolist() for split, part in sums.items()}}  # fmt: skip


def read_sums(folder: Path, data: str, block: int) -> dict[str, Floats] | None:
    """Sums of the model in a folder, if it was judged on this text in windows of this length; else None."""
    if not (folder / FILE).is_file():
        return None
    value = read_json(folder / FILE)
    try:
        if (value["data"], value["block"]) != (data, block):
            return None
        found = {split: np.array(value["passages"][split], dtype=np.float64) for split in JUDGED}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise HeadlabError(
            f"{folder / FILE} is not what a training writes ({error}); delete it", code="lm.sums_unreadable"
        ) from error
    if not all(part.ndim == 2 and part.shape[1] == 3 and np.isfinite(part).all() for part in found.values()):
        raise HeadlabError(f"{folder / FILE} does not hold three numbers a passage; delete it", code="lm.sums_invalid")
    return found


def against(before: Sums, after: Sums) -> dict[str, Ratio]:
    """Ratios of perplexities by split."""
    return {split: perplexity_ratio(before[split], after[split]) for split in JUDGED}
