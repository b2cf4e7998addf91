"""Masks: which heads are kept, how that was chosen, and the JSON file that carries it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from headlab.errors import HeadlabError
from headlab.files import parse_json, read_json, write_json
from headlab.records import Bools, Floats, Head, HeadGrid, content_key

MASK_VERSION = 1
Rule = Literal["harmful", "bottom", "threshold"]
# Above this share of heads gone, most models are near chance: say so instead of letting it pass.
RISKY_SHARE = 0.5


@dataclass(frozen=True)
class Mask:
    """Heads kept (True) and removed (False) of one model.

    kept: bool [head] in the grid's order.  model: name, revision and fingerprint of the model it was
    made for.  chosen: how (method, rule, task, languages, ...), free form.
    """

    grid: HeadGrid
    kept: Bools
    model: Mapping[str, Any] = field(default_factory=dict)
    chosen: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kept.shape != (self.grid.size,):
            raise HeadlabError(f"mask has shape {self.kept.shape}; {self.grid} needs ({self.grid.size},)")

    @property
    def removed(self) -> tuple[Head, ...]:
        """Heads that are switched off, in grid order."""
        return tuple(head for head, kept in zip(self.grid.heads, self.kept, strict=True) if not kept)

    @property
    def digest(self) -> str:
        """sha256 of what the mask does (grid and kept heads), whatever it was chosen by."""
        return content_key([self.grid.to_json(), self.kept.tolist()])

    def to_json(self) -> dict[str, Any]:
        """The mask file's content; see docs/mask-format.md."""
        return {
            "format": "headlab-mask",
            "version": MASK_VERSION,
            "model": dict(self.model),
            "grid": self.grid.to_json(),
            "kept": self._rows(),
            "removed": len(self.removed),
            "chosen": dict(self.chosen),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def _rows(self) -> dict[str, list[list[int]]]:
        nested = self.grid.nest(self.kept.astype(np.int64))
        return nested if isinstance(nested, dict) else {self.grid.stacks[0].name: nested}

    def save(self, path: str | Path) -> None:
        """Write the mask file, whole or not at all. Raises HeadlabError if it cannot be written."""
        write_json(Path(path), self.to_json())

    def check(self, grid: HeadGrid, fingerprint: str | None) -> None:
        """Raise HeadlabError, with the reason, unless the mask belongs to this model."""
        if self.grid != grid:
            raise HeadlabError(
                f"the mask is for a model with {self.grid}; this model has {grid}. Load the model it was made for"
            )
        made_for = self.model.get("fingerprint")
        if fingerprint and made_for and made_for != fingerprint:
            name = self.model.get("name", "another model")
            raise HeadlabError(
                f"the mask was made for {name} (fingerprint {str(made_for)[:12]}); this model's is {fingerprint[:12]}. "
                "The shapes agree, but heads of one model say nothing about another's"
            )


def full_mask(grid: HeadGrid) -> Mask:
    """The mask that keeps every head."""
    return Mask(grid, np.ones(grid.size, bool))


def load_mask(path: str | Path) -> Mask:
    """Read a mask file. Raises HeadlabError if it is missing, broken or of an unknown version."""
    return mask_from_json(read_json(Path(path)), str(path))


def mask_from_text(text: bytes | str, what: str = "the uploaded file") -> Mask:
    """Read a mask from JSON text. Raises HeadlabError naming `what`."""
    return mask_from_json(parse_json(text, what), what)


def mask_from_json(value: Any, what: str = "mask") -> Mask:
    """Read a mask from parsed JSON, trusting nothing. Raises HeadlabError that names the bad part."""
    if not isinstance(value, dict) or value.get("format") != "headlab-mask":
        raise HeadlabError(
            f'{what} is not a headlab mask: it lacks "format": "headlab-mask". Export one from the Prune page'
        )
    if value.get("version") != MASK_VERSION:
        raise HeadlabError(
            f"{what} has mask version {value.get('version')!r}; this headlab reads version {MASK_VERSION}"
        )
    grid = _read_grid(value.get("grid"), what)
    flat = grid.unnest(_lists(value.get("kept"), what), f"{what}: kept").tolist()
    if not all(type(v) in (int, bool) and v in (0, 1) for v in flat):
        raise HeadlabError(f"{what}: every entry of kept must be 0 or 1")
    model, chosen = value.get("model"), value.get("chosen", {})
    if not isinstance(model, dict) or not isinstance(chosen, dict):
        raise HeadlabError(f"{what}: model and chosen must be objects")
    if not all(isinstance(model.get(key), str) and model[key] for key in ("name", "fingerprint")):
        raise HeadlabError(f"{what}: model must hold the name and the fingerprint of the model it was made for")
    return Mask(grid, np.array(flat, dtype=bool), model, chosen)


def _lists(kept: Any, what: str) -> dict[str, Any]:
    if not isinstance(kept, dict):
        raise HeadlabError(f"{what}: kept must be an object {{stack: [layer][head]}}")
    return kept


def _read_grid(value: Any, what: str) -> HeadGrid:
    good = (
        isinstance(value, dict)
        and value
        and all(
            isinstance(heads, list) and heads and all(type(n) is int and 0 <= n <= 4096 for n in heads)
            for heads in value.values()
        )
    )
    if not good:
        raise HeadlabError(f'{what}: grid must be an object like {{"encoder": [12, 12, 12]}}, heads per layer')
    return HeadGrid.from_json(value)


def removal_order(values: Floats) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Flat indices from the least useful head up; a tie removes the higher (layer, head) first."""
    return np.argsort(-values, kind="stable")[::-1].astype(np.int64)


def choose(
    grid: HeadGrid,
    values: Floats,
    high: Floats | None,
    rule: str,
    *,
    k: int | None = None,
    threshold: float | None = None,
) -> Bools:
    """Heads kept (bool [head]) by a rule.

    harmful: remove heads whose upper bound `high` lies below 0.  bottom: remove exactly `k`, the
    lowest values.  threshold: remove values below `threshold`.  Raises HeadlabError for an unknown
    rule, a missing or unfitting option, or `harmful` without intervals; warns when most heads go.
    """
    kept = np.ones(grid.size, bool)
    if rule == "harmful":
        _only(rule, k=k, threshold=threshold)
        if high is None:
            raise HeadlabError("rule harmful needs intervals, which this method does not give; use rule bottom with k")
        kept = ~(high < 0)
    elif rule == "bottom":
        _only(rule, threshold=threshold)
        if k is None or not 0 <= k <= grid.size:
            raise HeadlabError(f"rule bottom removes k heads; given k={k}, this model has {grid.size} heads ({grid})")
        kept[removal_order(values)[:k]] = False
    elif rule == "threshold":
        _only(rule, k=k)
        if threshold is None or not np.isfinite(threshold):
            raise HeadlabError(f"rule threshold needs a finite threshold; given {threshold}")
        kept = values >= threshold
    else:
        raise HeadlabError(f"unknown rule {rule!r}; use harmful, bottom or threshold")
    warn_if_risky(kept)
    return kept


def _only(rule: str, **unused: float | None) -> None:
    given = [name for name, value in unused.items() if value is not None]
    if given:
        raise HeadlabError(f"rule {rule} takes no {' or '.join(given)}; leave it out, or choose the rule that uses it")


def warn_if_risky(kept: Bools) -> str | None:
    """Warn (and return the sentence) when a mask removes so much that accuracy rarely survives."""
    gone = int((~kept).sum())
    if gone <= RISKY_SHARE * kept.size:
        return None
    sentence = (
        f"this mask removes {gone} of {kept.size} heads; "
        "few models keep their accuracy beyond half: check it on dev first"
    )
    warnings.warn(sentence, UserWarning, stacklevel=3)
    return sentence
