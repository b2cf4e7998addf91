"""The mask: which heads are kept, of what model, and how that was chosen."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from headlab import __version__
from headlab.errors import HeadlabError
from headlab.files import write_json
from headlab.masks.fields import MIXED, STACK, ablations, check_fields, shown
from headlab.records import Bools, Head, HeadGrid, content_key

MASK_VERSION = 2
FORMAT = "headlab-mask"


@dataclass(frozen=True)
class Mask:
    """Heads kept (True) and removed (False) of one model.

    kept: bool [head] in the grid's order.  model: name, revision, fingerprint and architecture of the model it was
    made for.  chosen: how (method, rule and its options, task, languages), and under `evaluated` what it was worth.
    versions: of what made it; created: when, UTC.  None where it is new: the file then says what wrote it, and when.
    """

    grid: HeadGrid
    kept: Bools
    model: Mapping[str, Any] = field(default_factory=dict)
    chosen: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] | None = None
    created: str | None = None

    def __post_init__(self) -> None:
        if self.kept.shape != (self.grid.size,):
            raise HeadlabError(
                f"mask has shape {self.kept.shape}; {self.grid} needs ({self.grid.size},)", code="mask.shape_mismatch"
            )

    @property
    def removed(self) -> tuple[Head, ...]:
        """Heads that are switched off, in grid order."""
        return tuple(head for head, kept in zip(self.grid.heads, self.kept, strict=True) if not kept)

    @property
    def ablation(self) -> str | None:
        """The ablation under which its heads were chosen; None where it does not say.

        "mixed" for a mask made of others of which some, but not all, were chosen under mean ablation.
        """
        return ablation_of(self.chosen)

    @property
    def digest(self) -> str:
        """sha256 of what the mask does (grid and kept heads), whatever it was chosen by."""
        return content_key([self.grid.to_json(), self.kept.tolist()])

    def to_json(self) -> dict[str, Any]:
        """The mask file's content; see docs/mask-format.md.

        Raises HeadlabError where `model`, `chosen` or `versions` are not what the format says.
        """
        for stack in self.grid.stacks:
            if not STACK.fullmatch(stack.name):
                raise HeadlabError(
                    f"the mask: {shown(stack.name)!r} is not a stack name, like encoder or my_stack",
                    code="stack.name_invalid",
                )
        value = {
            "format": FORMAT,
            "version": MASK_VERSION,
            "model": {"name": None, "fingerprint": None, **self.model},
            "grid": self.grid.to_json(),
            "kept": self.rows(),
            "removed": len(self.removed),
            "chosen": dict(self.chosen),
            "versions": dict(installed() if self.versions is None else self.versions),
            "created": self.created or datetime.now(UTC).isoformat(timespec="seconds"),
        }
        check_fields(value, "the mask")
        return value

    def rows(self) -> dict[str, list[list[int]]]:
        """{stack: [layer][head]}, 1 = kept."""
        nested = self.grid.nest(self.kept.astype(np.int64))
        return nested if isinstance(nested, dict) else {self.grid.stacks[0].name: nested}

    def save(self, path: str | Path) -> None:
        """Write the mask file, whole or not at all. Raises HeadlabError if it cannot be written."""
        write_json(Path(path), self.to_json())

    def check(self, grid: HeadGrid, fingerprint: str | None) -> None:
        """Raise HeadlabError, with the reason, unless the mask belongs to this model.

        A mask that names no model (fingerprint None) only has to have the grid.
        """
        if self.grid != grid:
            raise HeadlabError(
                f"the mask is for a model with {self.grid}; this model has {grid}. Load the model it was made for",
                code="mask.other_grid",
            )
        made_for = self.model.get("fingerprint")
        if fingerprint and made_for and made_for != fingerprint:
            name, theirs = shown(str(self.model.get("name") or "another model")), shown(str(made_for)[:12])
            raise HeadlabError(
                f"the mask was made for {name} (fingerprint {theirs}); this model's is {fingerprint[:12]}. "
                "The shapes agree, but heads of one model say nothing about another's",
                code="mask.other_model",
            )


def ablation_of(chosen: Mapping[str, Any]) -> str | None:
    """What `chosen` says of the ablation: itself, in the spec of its scores, or in the masks it was combined of."""
    score, parts = chosen.get("score"), chosen.get("combined")
    found = chosen.get("ablation") or (score.get("ablation") if isinstance(score, Mapping) else None)
    if found is None and isinstance(parts, list):
        return common_ablation({ablation_of(part) for part in parts if isinstance(part, Mapping)})
    return str(found) if ablations(found) else None


def common_ablation(found: Set[str | None]) -> str | None:
    """What the ablations of several masks are together."""
    if len(found) == 1:
        return next(iter(found))
    return MIXED if found & {"mean", MIXED} else None


def full_mask(grid: HeadGrid) -> Mask:
    """The mask that keeps every head."""
    return Mask(grid, np.ones(grid.size, bool))


@cache
def installed() -> dict[str, str]:
    """Versions of headlab, torch and transformers here, as a new mask records them; imports neither."""
    found = {"headlab": __version__}
    for name in ("torch", "transformers"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a page that asks a worker elsewhere needs neither
            continue
    return found


def architecture_of(module: Any) -> dict[str, str]:
    """{"class", "model_type"} of a transformers model, as a mask names the architecture it was made for."""
    return {"class": type(module).__name__, "model_type": str(module.config.model_type)}
