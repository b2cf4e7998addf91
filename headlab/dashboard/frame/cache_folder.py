"""The contents of the cache folder, read again only when one of its files has changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import streamlit as st

from headlab.core import (
    HEADS,
    HeadGrid,
    HeadlabError,
    Report,
    duration_text,
    fingerprint_of,
    remember_former_fingerprints,
)
from headlab.dashboard.frame.background import wait_for_result
from headlab.dashboard.frame.stored_scores import of_own_heads
from headlab.dashboard.frame.worker_supervisor import worker_client
from headlab.dashboard.names import plain
from headlab.dashboard.widgets import remember_head_groups
from headlab.methods import spec_of
from headlab.results import (
    HeadScores,
    LearnedGates,
    Listing,
    Result,
    Store,
    default_root,
    store_with_demo,
)
from headlab.worker import LoadedModel

FolderStamp = str
"""Name, time and size of every file, as one text.

Streamlit takes long to hash many small values.
"""
LISTED_KINDS = (HeadScores, Report, LearnedGates)
"""What pages list."""
RESIDENT_SECONDS = 1.0
"""A model that is there sooner was in the worker's memory already."""
ReadContent = TypeVar("ReadContent")
ResultKind = TypeVar("ResultKind")
ResultOfPlayers = TypeVar("ResultOfPlayers", HeadScores, Report)


def stored_results(kind: type[ResultKind], players: str = HEADS) -> Listing[ResultKind]:
    """Every readable result of a kind in the cache folder, re-read only when it changed.

    Args:
        kind: HeadScores, Report or LearnedGates.
        players: What scores and reports are of, as `headlab.core.read_players` reads it.

    Returns:
        The results. Those of other heads than their model's are problems.

    Raises:
        HeadlabError: The folder cannot be read.
    """
    if players != HEADS and kind is Report:
        reports = _of_players(_read_folder(_reports_of_players), players)
        return cast(Listing[ResultKind], Listing(reports, stored_results(Report).problems))
    if players != HEADS:
        scores = _of_players(_read_folder(_scores_of_players), players)
        return cast(Listing[ResultKind], Listing(scores, stored_results(HeadScores).problems))
    return cast(Listing[ResultKind], _read_folder(lambda root, stamp: _listing(root, stamp, kind)))


def stored_players(model: str, task: str) -> list[str]:
    """What else than heads the stored scores of a model on a task are of, in order of their words.

    Args:
        model: Name of the model.
        task: Name of the task.
    """
    players = set()
    for result in _read_folder(_scores_of_players):
        spec = result.record.spec
        if spec.model.name == model and spec.task.name == task:
            players.add(spec.players)
    return sorted(players)


def _of_players(
    results: Sequence[Result[ResultOfPlayers]], players: str
) -> tuple[Result[ResultOfPlayers], ...]:
    """The results of these players."""
    return tuple(result for result in results if result.record.spec.players == players)


@st.cache_resource(show_spinner=False)
def _grids_by_fingerprint() -> dict[str, HeadGrid]:
    """Heads of every model that the worker has loaded for a page, by fingerprint."""
    return {}


@st.cache_resource(show_spinner=False)
def _fingerprints_by_name() -> dict[str, str]:
    """Of every model that the worker has loaded for a page."""
    return {}


@st.cache_resource(show_spinner=False)
def _load_seconds() -> dict[str, float]:
    """How long each model took to load when it was last loaded for a page, by name."""
    return {}


def loading_words(name: str, seconds: float | None = None) -> str:
    """What is said while a model is loading.

    Args:
        name: Of the model.
        seconds: How long it took the last time; None if that is not known.
    """
    words = f"Loading {plain(name)} …"
    if seconds is not None:
        words += f" It took {duration_text(seconds)} the last time."
    return words


def loaded_model(name: str) -> LoadedModel:
    """The worker's description of a model, which it loads; from then on its heads are known.

    Meanwhile the page says what is loading, and for how long.
    """
    start = time.monotonic()
    with st.spinner(loading_words(name, _load_seconds().get(name)), show_time=True):
        model = wait_for_result(partial(worker_client().load_model, name))
    seconds = time.monotonic() - start
    if seconds > RESIDENT_SECONDS:
        _load_seconds()[name] = seconds
    remember_former_fingerprints(model.fingerprint, model.former_fingerprints)
    _grids_by_fingerprint()[model.fingerprint] = model.grid
    _fingerprints_by_name()[name] = model.fingerprint
    if model.costs is not None:
        remember_head_groups(model.fingerprint, model.costs)
    return model


def cached_grid(model: str) -> HeadGrid | None:
    """The heads of a model that has cached results or was loaded for a page; None for others."""
    for result in stored_results(HeadScores).results:
        if spec_of(result.record, "model", "name") == model:
            return result.record.grid
    return _grids_by_fingerprint().get(_fingerprints_by_name().get(model, ""))


def known_grid(fingerprint: str) -> HeadGrid | None:
    """All heads of a model that was loaded for a page or has scores; None if neither is so.

    Args:
        fingerprint: Of its weights.
    """
    grid = _grids_by_fingerprint().get(fingerprint)
    if grid is not None:
        return grid
    for result in stored_results(HeadScores).results:
        if fingerprint_of(result.record.spec) == fingerprint:
            return result.record.grid
    return None


def stored_specs() -> list[Mapping[str, Any]]:
    """The spec of every stored result that pages list; errors as of `stored_results`."""
    return _read_folder(_specs)


def _read_folder(read_content: Callable[[Path, FolderStamp], ReadContent]) -> ReadContent:
    """What is read of the cache folder.

    Args:
        read_content: Of the folder and its stamp, cached by both; the stamp tells known models too.

    Raises:
        HeadlabError: The folder cannot be read.
    """
    root = default_root()
    try:
        return read_content(root, "\n".join((_folder_stamp(root), *_grids_by_fingerprint())))
    except OSError as error:
        raise HeadlabError(
            f"cannot read the cache folder {root} ({error.strerror}); set HEADLAB_CACHE to another",
            code="store.unreadable",
        ) from error


@st.cache_resource(max_entries=2 * len(LISTED_KINDS), show_spinner=False)
def _listing(root: Path, stamp: FolderStamp, kind: type) -> Listing[Any]:
    return of_own_heads(store_of_folder(root).listing(kind), _grids_by_fingerprint())


@st.cache_resource(max_entries=2, show_spinner=False)
def _specs(root: Path, stamp: FolderStamp) -> list[Mapping[str, Any]]:
    specs: list[Mapping[str, Any]] = []
    for kind in LISTED_KINDS:
        specs += [result.record.spec for result in _listing(root, stamp, kind).results]
    specs += [result.record.spec for result in _scores_of_players(root, stamp)]
    return specs


@st.cache_resource(max_entries=2, show_spinner=False)
def _scores_of_players(root: Path, stamp: FolderStamp) -> tuple[Result[HeadScores], ...]:
    """The scores of other players than heads."""
    listing = store_of_folder(root).scan(None)
    return tuple(result for result in listing.results if result.record.spec.players)


@st.cache_resource(max_entries=2, show_spinner=False)
def _reports_of_players(root: Path, stamp: FolderStamp) -> tuple[Result[Report], ...]:
    """The reports on other players than heads."""
    listing = store_of_folder(root).reports(None)
    return tuple(result for result in listing.results if result.record.spec.players)


@st.cache_resource(max_entries=2, show_spinner=False)
def store_of_folder(root: Path) -> Store:
    """The store of a folder, one for all sessions: it re-reads only the results that changed."""
    return store_with_demo(root)


def _folder_stamp(root: Path) -> FolderStamp:
    """Name, time and size of every result file: changes whenever the listing may."""
    lines = []
    for path in sorted(root.glob("*/*")) if root.is_dir() else ():
        if path.name in ("spec.json", "result.npz"):
            stat = path.stat()
            lines.append(f"{path.parent.name}/{path.name} {stat.st_mtime_ns} {stat.st_size}")
    return "\n".join(lines)
