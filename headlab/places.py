"""Where a loaded model's heads meet its output projections, by the paths that transformers gives its modules."""

from __future__ import annotations

from pathlib import Path

from headlab.hooks.model import Model
from headlab.masks import Place, architecture_of
from headlab.masks.snippet import UNVERSIONED
from headlab.models.embedded import EMBEDDED, is_delta


def place_of(model: Model) -> Place:
    """Paths, class and source of a model, for scripts that run without headlab, wherever they are started."""
    name, revision = model.name, model.checkpoint.revision
    paths = {module: path for path, module in model.module.named_modules()}
    projections = [paths[projection] for projection in model.projections]
    kind = architecture_of(model.module)
    if revision == UNVERSIONED:  # a relative path would be taken for a hub id in another folder
        folder = str(Path(name).resolve())
        return Place(projections, kind, None if is_delta(Path(name)) else folder, revision, folder)
    return Place(projections, kind, None if name in EMBEDDED else name, revision, name)
