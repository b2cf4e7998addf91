"""From a name to a model whose heads can be switched."""

from __future__ import annotations

from headlab.gates.model import Model
from headlab.gates.sites import attach
from headlab.models.load import read


def load(name: str, *, revision: str | None = None, device: str | None = None, dtype: str = "float32") -> Model:
    """Load a model and make its heads switchable.

    name: an embedded name (`headlab models` lists them), a local folder, or a hub id.  revision: of
    the hub id.  device: "cpu", "cuda", ...; None takes a GPU where there is one.  dtype: "float32",
    "float64", "bfloat16" or "float16".  Weights are read from safetensors only, and no code that
    comes with a model is run.  Raises HeadlabError for an unknown or unfitting model.
    """
    return attach(read(name, revision=revision, device=device, dtype=dtype))
