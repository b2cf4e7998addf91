"""What the cache folder holds, read again only when one of its files changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import streamlit as st

from headlab.errors import HeadlabError
from headlab.store import Store, default_root

Stamp = tuple[tuple[str, int, int], ...]  # name, time and size of files
L = TypeVar("L")


def listed(scan: Callable[[Path, Stamp], L]) -> L:
    """What a scan lists of the cache folder. scan: of folder and stamp, cached by both. Raises HeadlabError."""
    root = default_root()
    try:
        return scan(root, _stamp(root))
    except OSError as error:
        raise HeadlabError(
            f"cannot read the cache folder {root} ({error.strerror}); set HEADLAB_CACHE to another",
            code="store.unreadable",
        ) from error


@st.cache_resource(max_entries=2, show_spinner=False)
def store(root: Path) -> Store:
    """The store of a folder, one for all sessions: it reads again only the results that changed."""
    return Store(root)


def _stamp(root: Path) -> Stamp:
    """Name, time and size of every file that makes a result: changes whenever the listing may."""
    names = ("spec.json", "result.npz")
    stats = [(p, p.stat()) for p in sorted(root.glob("*/*")) if p.name in names] if root.is_dir() else []
    return tuple((str(p.relative_to(root)), s.st_mtime_ns, s.st_size) for p, s in stats)
