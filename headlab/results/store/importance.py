"""Importance of neurons, kept in the cache so that another process need not measure it again.

Groups of neurons are made of it. A file is named by what it was measured on, and says so inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from headlab.core import (
    CHOOSE_CACHE,
    Floats,
    HeadlabError,
    Json,
    canonical_json,
    content_key,
    write_atomic,
)
from headlab.results.store.folder import npz, read_arrays

NEURONS_FOLDER = "neurons"
"""The folder of these files, beside the runs."""
IMPORTANCE_FORMAT = 1
SPEC_ARRAY = "spec"


def importance_path(root: Path, spec: Mapping[str, Json]) -> Path:
    """The file of an importance.

    Args:
        root: Folder of the store.
        spec: What it is measured on.
    """
    return root / NEURONS_FOLDER / f"{content_key(_with_format(spec))}.npz"


def read_importance(
    root: Path, spec: Mapping[str, Json], neurons: Sequence[int]
) -> list[Floats] | None:
    """The importance of every neuron, by layer, as it was kept.

    Args:
        root: Folder of the store.
        spec: What it is measured on.
        neurons: Number of neurons of each layer.

    Returns:
        None if there is no file, or one that is damaged, of something else, or of other layers.
    """
    try:
        arrays = read_arrays(importance_path(root, spec))
    except HeadlabError:
        return None
    spec_text = arrays.pop(SPEC_ARRAY, None)
    if spec_text is None or str(spec_text) != canonical_json(_with_format(spec)):
        return None
    names = list(map(str, range(len(neurons))))
    if sorted(arrays) != sorted(names):
        return None
    importance = [arrays[name] for name in names]
    for values, size in zip(importance, neurons, strict=True):
        if values.shape != (size,) or values.dtype != np.float64:
            return None
        if not np.isfinite(values).all() or (values < 0).any():
            return None
    return importance


def keep_importance(root: Path, spec: Mapping[str, Json], importance: Sequence[Floats]) -> None:
    """Keep the importance of every neuron; a cache that cannot be written stays as it is.

    Args:
        root: Folder of the store.
        spec: What it is measured on.
        importance: float64 [neuron], by layer.
    """
    arrays = {str(layer): np.asarray(values) for layer, values in enumerate(importance)}
    arrays[SPEC_ARRAY] = np.array(canonical_json(_with_format(spec)))
    with suppress(HeadlabError):
        write_atomic(importance_path(root, spec), npz(arrays), CHOOSE_CACHE)


def _with_format(spec: Mapping[str, Json]) -> dict[str, Json]:
    """A spec with the version of the file's format."""
    return {**spec, "format": IMPORTANCE_FORMAT}
