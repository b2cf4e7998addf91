"""headlab: which attention heads help, do nothing or do harm in each language."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headlab import former_names

if TYPE_CHECKING:
    from headlab.api import evaluate as evaluate
    from headlab.core import HeadlabError as HeadlabError
    from headlab.hooks import gated as gated
    from headlab.hooks import load as load
    from headlab.masks import Mask as Mask
    from headlab.masks import load_mask as load_mask
    from headlab.methods.run import score as score
    from headlab.shrink import load_shrunk as load_shrunk
    from headlab.studies.curves import prune_curve as prune_curve
    from headlab.tasks.resolve import task as task

__version__ = "0.1.0"
# Looked up when first used, so that `import headlab` does not import torch.
_HOMES = {
    "HeadlabError": "headlab.core.errors",
    "Mask": "headlab.masks",
    "load_mask": "headlab.masks",
    "load_shrunk": "headlab.shrink.folder",
    "evaluate": "headlab.api",
    "gated": "headlab.hooks",
    "load": "headlab.hooks.loading",
    "prune_curve": "headlab.studies.curves",
    "score": "headlab.methods.run",
    "task": "headlab.tasks.resolve",
}
SHOWN_BY = "headlab.notebooks"
"""The module that records ask how they are shown (`headlab.core.Shown`)."""
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headlab' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


former_names.install()
