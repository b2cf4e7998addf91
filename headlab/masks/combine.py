"""Several masks made one: what all keep, what any keeps, or what most keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headlab.errors import HeadlabError
from headlab.masks.compare import same_grid
from headlab.masks.fields import shown
from headlab.masks.mask import Mask, common_ablation
from headlab.records import Bools

WAYS = {
    "and": "keeps the heads that all of them keep",
    "or": "keeps the heads that at least one of them keeps",
    "majority": "removes the heads that more than half of them remove",
}


def combine(masks: Sequence[Mask], how: str) -> Mask:
    """One mask of several of one model; `WAYS` says what each way keeps.

    Where some masks name a model by its fingerprint and others do not, `chosen["note"]` says so.

    Raises HeadlabError for another way, for none or a single mask, and for masks of more than one model.
    """
    if how not in WAYS:
        raise HeadlabError(f"unknown way to combine masks {how!r}; use {', '.join(WAYS)}", code="mask.way_unknown")
    if len(masks) < 2:
        raise HeadlabError(f"{len(masks)} mask is given; name two or more to combine", code="mask.too_few")
    grid, model = same_grid(masks), _one_model(masks)
    kept = combined(np.array([mask.kept for mask in masks]).reshape(len(masks), grid.size), how)
    parts = [_told(mask) for mask in masks]
    chosen: dict[str, Any] = {"rule": f"combined: {how}", "combined": parts}
    for name in ("method", "estimand", "task"):
        found = {part.get(name) for part in parts}
        if len(found) == 1 and None not in found:
            chosen[name] = found.pop()
    if (ablation := common_ablation({mask.ablation for mask in masks})) is not None:
        chosen["ablation"] = ablation
    loose = [mask for mask in masks if not mask.model.get("fingerprint")]
    if loose and len(loose) < len(masks):
        chosen["note"] = (
            f"{len(loose)} of the {len(masks)} masks have no fingerprint, so whether they are of this model was not "
            "checked"
        )
    languages = [language for part in parts for language in part.get("languages", [])]
    return Mask(grid, kept, model, chosen | ({"languages": list(dict.fromkeys(languages))} if languages else {}))


def combined(kept: Bools, how: str) -> Bools:
    """Heads kept, bool [head], of the masks' bool [mask, head]; a head on which a majority is split stays."""
    if how == "majority":
        return np.asarray(2 * (~kept).sum(axis=0) <= len(kept))
    return np.asarray(kept.all(axis=0) if how == "and" else kept.any(axis=0))


def _told(mask: Mask) -> dict[str, Any]:
    """How a part was chosen, without what it alone was worth and without the whole spec of its scores."""
    told = {name: value for name, value in mask.chosen.items() if name not in ("evaluated", "score", "gates")}
    ablation = {} if mask.ablation is None else {"ablation": mask.ablation}
    return told | ablation | {"removed": len(mask.removed)}


def _one_model(masks: Sequence[Mask]) -> Mapping[str, Any]:
    named = {mask.model["fingerprint"]: mask.model for mask in masks if mask.model.get("fingerprint")}
    if len(named) > 1:
        names = ", ".join(f"{shown(str(model.get('name')))} ({shown(str(key)[:12])})" for key, model in named.items())
        raise HeadlabError(
            f"the masks were made for different models: {names}. The shapes agree, but heads of one model say nothing "
            "about another's",
            code="mask.other_model",
        )
    if not named and len({mask.model.get("name") for mask in masks}) > 1:
        return {"name": None, "fingerprint": None}  # of no one model, as far as anyone knows
    return next(iter(named.values()), masks[0].model)
