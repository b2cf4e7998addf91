"""Where a task's examples come from, and whether they can be read right now."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from headlab.tasks.folder import VARIABLE, subfolder


class Source(NamedTuple):
    """Where examples come from, in words.  here: whether that is on this machine.  advice: what to do if not."""

    words: str
    here: bool = True
    advice: str = ""


def folder_or_hub(task: str, data: Path | None, folder: str, repository: str) -> Source:
    """The source of a task that is read from a data folder's part, or from the hub where there is none.

    Raises HeadlabError if the data folder is none.
    """
    found = subfolder(data, folder)
    if found is not None:
        return Source(str(found))
    return Source(
        f"{repository} on the hub", False,
        f"the data of task {task} are in no folder here: set {VARIABLE} (or give --data) to one that holds {folder}/; "
        f"without, they come from the hub ({repository}) or its local cache, which takes the network once",
    )  # fmt: skip
