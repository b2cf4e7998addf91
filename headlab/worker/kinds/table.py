"""The kinds of jobs by key, and the requests for them, as types made from the kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import Field, create_model

from headlab.worker.kinds.kind import HOMES, Kind, kind_of
from headlab.worker.schemas import Strict

KINDS: Mapping[str, Kind[Any]] = MappingProxyType({key: kind_of(key) for key in HOMES})
# By kind: the function that checks and fills in a job's params.
CHECKS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = MappingProxyType(
    {key: kind.check for key, kind in KINDS.items()}
)


def _request(kind: Kind[Any]) -> type[Strict]:
    """The type of a request for a job of a kind: its key, its spec, and where it runs."""
    fields: dict[str, Any] = {
        "kind": (Literal[kind.key], ...),
        "spec": (kind.spec, ...),
        "place": (kind.places, "here"),
    }
    return create_model(f"{kind.key.capitalize()}Job", __base__=Strict, __doc__=kind.says, **fields)


if TYPE_CHECKING:
    Submission = Any
else:
    Submission = Annotated[Union[tuple(map(_request, KINDS.values()))], Field(discriminator="kind")]  # noqa: UP007
