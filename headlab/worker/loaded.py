"""What the worker tells of the model it holds, and the record that all its shapes are made of."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Strict(BaseModel):
    """A record that takes no field it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LoadedModel(Strict):
    """The resident model; grid is {stack: heads per layer}.

    architecture: its class and model_type in transformers.  projections: for each layer, in the grid's order, the path
    of the module that takes the heads' outputs.  source: what `from_pretrained` takes to load it without headlab,
    None where it is not a folder of its own.  costs: of its heads, as `headlab.studies.savings.Costs` has them.
    """

    name: str
    revision: str
    fingerprint: str
    grid: dict[str, list[int]]
    device: str
    note: str
    architecture: dict[str, str] = Field(default_factory=dict)
    projections: list[str] = Field(default_factory=list)
    source: str | None = None
    costs: dict[str, Any] | None = None
