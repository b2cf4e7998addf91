"""Where a loaded model's heads meet its output projections, by the paths that transformers gives its modules."""

from __future__ import annotations

from pathlib import Path

from headlab.gates import Model
from headlab.masks import Place, architecture_of
from headlab.models.delta import is_delta
from headlab.models.embedded import EMBEDDED


def place_of(model: Model) -> Place:
    """Paths, class and source of a model, for scripts that run without headlab."""
    paths = {module: path for path, module in model.module.named_modules()}
    projections = [paths[projection] for projection in model.projections]
    whole = model.name not in EMBEDDED and not is_delta(Path(model.name))
    return Place(projections, architecture_of(model.module), model.name if whole else None)
