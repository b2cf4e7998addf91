"""Which models may be asked for: any where only this machine reaches the worker, elsewhere those its owner named."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from headlab.errors import HeadlabError
from headlab.worker.schemas import Name, Refusal

VARIABLE = "HEADLAB_MODELS"
PATH_LIKE = ("/", "./", "../", "~")


class Allowed:
    """Embedded models and those named here, letter by letter: no other text reaches the disk or the hub.

    A folder is followed to its place once; a name that leads elsewhere later is refused. Raises
    HeadlabError for a name that nobody could ask for.
    """

    def __init__(self, named: Iterable[str] = ()) -> None:
        self._places = {name: _first_place(name) for name in named}

    def __call__(self, model: str) -> str:
        """The model, if it may be asked for. Raises Refusal (404)."""
        embedded = embedded_names()
        if model in embedded:
            return model
        if model not in self._places:
            served = ", ".join((*embedded, *self._places))
            raise Refusal(
                f"this worker is open to other machines and serves {served} only, not {model!r}; whoever runs it can "
                f"add a model with --allow or {VARIABLE}",
                404,
                code="model.not_allowed",
            )
        if _place(model) != self._places[model]:
            raise Refusal(
                f"{model} is not where it was when the worker started, so it is not opened; start the worker again "
                "if that is meant",
                404,
                code="model.moved",
            )
        return model


def embedded_names() -> tuple[str, ...]:
    """Models that come with headlab: the folders of their adapters. Takes no torch to know, so it never waits."""
    root = Path(str(files("headlab") / "embedded"))
    return tuple(sorted(path.parent.name for path in root.glob("*/adapter_config.json")))


def admit_local(model: str) -> str:
    """Any model: for a worker that only this machine can reach."""
    return model


def admit_embedded(model: str) -> str:
    """Embedded models only. Raises Refusal (404)."""
    return Allowed()(model)


def named_models(given: Iterable[str] = ()) -> tuple[str, ...]:
    """Models named by --allow and, separated by commas, in $HEADLAB_MODELS; each once."""
    told = os.environ.get(VARIABLE, "").split(",")
    return tuple(dict.fromkeys(name.strip() for name in (*given, *told) if name.strip()))


def _first_place(name: str) -> str | None:
    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError as error:
        raise HeadlabError(
            f"a request cannot name the model {name[:80]!r}; give a shorter, printable name", code="model.name_invalid"
        ) from error
    place = _place(name)
    if place is None and name.startswith(PATH_LIKE):
        raise HeadlabError(
            f"the model {name} is not a folder here; give an existing folder, or a name from the hub",
            code="model.folder_missing",
        )
    return place


def _place(name: str) -> str | None:
    """Where a folder really is, links followed; None for what is not a folder, as names from the hub."""
    try:
        return str(Path(name).resolve()) if Path(name).is_dir() else None
    except (OSError, ValueError, RuntimeError):  # too long, not encodable, a loop of links
        return None
