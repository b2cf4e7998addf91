"""Parquet data sets on the Hugging Face hub; every failure is raised as a HeadlabError."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headlab.core import (
    CHOOSE_HUB_CACHE,
    HeadlabError,
    is_disk_error,
    require_known_home,
    unwritable_error,
)
from headlab.tasks.base import Split

NAMES: Mapping[Split, str] = {"train": "train", "dev": "validation", "test": "test"}


@dataclass(frozen=True)
class HubRows:
    """Columns of one split of one part of a data set.

    Attributes:
        place: Its name in error messages.
    """

    place: str
    columns: Mapping[str, Sequence[object]]


@dataclass(frozen=True)
class HubData:
    """A data set that a task is read from.

    Attributes:
        columns: Those to read.
        revision: A commit, or None if none is pinned.
    """

    task: str
    repository: str
    columns: tuple[str, ...]
    revision: str | None = None

    def read(self, part: str, split: Split) -> HubRows:
        """A split, with classes as names; empty columns if the data set lacks the split.

        Files come from the local cache, else from the network: only those of this split, since a
        whole part may be a thousand times larger.  Raises HeadlabError if the network, package,
        data set or a column is missing.
        """
        place = f"{self.repository}, {part}, {NAMES[split]} (hub)"
        files = self._files(f"{part}/{NAMES[split]}-*.parquet", place)
        if not files:
            return HubRows(place, dict.fromkeys(self.columns, ()))
        rows = self._table(files, place)
        absent = [name for name in self.columns if name not in rows.column_names]
        if absent:
            raise HeadlabError(
                f"{place}: no column {', '.join(absent)}; it has {', '.join(rows.column_names)}",
                code="data.column_missing",
            )
        return HubRows(place, {name: _values(rows, name) for name in self.columns})

    def present(self, part: str, split: Split) -> bool:
        """Whether a split's files are on this machine, so that reading it fetches nothing."""
        return bool(self._cached(f"{part}/{NAMES[split]}-*.parquet"))

    def _files(self, pattern: str, place: str) -> list[Path]:
        """Paths of the split's parquet files on this machine."""
        from huggingface_hub.constants import HF_HUB_CACHE
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

        require_known_home(HF_HUB_CACHE, CHOOSE_HUB_CACHE)
        try:
            return self._cached(pattern) or self._fetched(pattern)
        except LocalEntryNotFoundError as error:
            raise HeadlabError(
                f"{place} is not in the local cache, and the hub cannot be reached; run once with "
                f"network access, {self._folder_advice()}",
                code="hub.unreachable",
            ) from error
        except HfHubHTTPError as error:
            raise HeadlabError(
                f"the hub has no {place} that you may read ({_first_line(error)}); {self._folder_advice()}",
                code="hub.data_unknown",
            ) from error
        except Exception as error:  # the hub's client has a client of its own, and that another one
            if is_disk_error(error):
                raise unwritable_error(Path(HF_HUB_CACHE), error, CHOOSE_HUB_CACHE) from error
            raise HeadlabError(
                f"{place} could not be fetched completely ({type(error).__name__}); try again, "
                f"{self._folder_advice()}",
                code="hub.fetch_failed",
            ) from error

    def _cached(self, pattern: str) -> list[Path]:
        from huggingface_hub.errors import LocalEntryNotFoundError

        try:
            files = self._fetched(pattern, local=True)
        except LocalEntryNotFoundError:
            return []
        # an interrupted download leaves some of the files, like "00000-of-00004" alone
        if not files or files[0].stem.rpartition("-of-")[2] != f"{len(files):05d}":
            return []
        return files

    def _fetched(self, pattern: str, *, local: bool = False) -> list[Path]:
        from huggingface_hub import snapshot_download

        folder = snapshot_download(
            self.repository,
            repo_type="dataset",
            revision=self.revision,
            allow_patterns=[pattern],
            local_files_only=local,
        )
        return sorted(Path(folder).glob(pattern))

    def _table(self, files: Sequence[Path], place: str) -> Any:
        """The files as one table of the package `datasets`, which knows the class names."""
        try:
            # takes two seconds to import, and only this method needs it
            from datasets import Dataset
            from datasets.exceptions import DatasetsError
        except ImportError as error:
            raise HeadlabError(
                f"{place} is read by the package datasets, which cannot be imported ({error}): "
                f"pip install 'headlab[hub]', {self._folder_advice()}",
                code="package.datasets_missing",
            ) from error
        try:
            return Dataset.from_parquet([str(file) for file in files])
        except (OSError, ValueError, TypeError, DatasetsError) as error:
            raise HeadlabError(
                f"{place} cannot be read ({_first_line(error)}); delete {files[0]}, so that it is "
                f"fetched again, {self._folder_advice()}",
                code="hub.data_unreadable",
            ) from error

    def _folder_advice(self) -> str:
        """What else a person can do than fetch the data, as the end of a sentence."""
        return f"or name a folder with the files of task {self.task} by --data or $HEADLAB_DATA"


def _values(rows: Any, name: str) -> list[object]:
    """A column as Python values; classes, or lists of classes, as names instead of numbers."""
    kind = rows.features[name]
    values = list(rows[name])
    names = getattr(kind, "names", None) or getattr(getattr(kind, "feature", None), "names", None)
    if names is None:
        return values
    return [_class_names(value, names) for value in values]


def _class_names(value: object, names: Sequence[str]) -> object:
    """The name of a class, or of each in a list.

    None for a number without a name, like -1 for no label.
    """
    if isinstance(value, list):
        return [_class_names(number, names) for number in value]
    if not isinstance(value, int) or not 0 <= value < len(names):
        return None
    return names[value]


def _first_line(error: Exception) -> str:
    """The first line of an error, or its class name if it has no message."""
    return next(iter(str(error).splitlines()), "")[:200] or type(error).__name__
