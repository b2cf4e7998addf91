"""From a name to a model whose heads can be gated, and back to where other code finds it."""

from __future__ import annotations

from pathlib import Path

from headlab.hooks.model import Model, make_gateable
from headlab.hooks.player_models import parts_of
from headlab.masks import FOLDER_REVISION, ScriptModel, architecture_of
from headlab.models import EMBEDDED, is_delta
from headlab.models.load import DeviceMap, read_model


def load(
    name: str | Path,
    *,
    revision: str | None = None,
    device: str | None = None,
    dtype: str = "float32",
    device_map: DeviceMap | None = None,
) -> Model:
    """Load a model and make its heads gateable.

    Weights are read from safetensors only, and no code shipped with a model is run.

    Args:
        name: An embedded name (`headlab models` lists them), a local folder, or a hub id.
        revision: Revision of the hub id.
        device: "cpu", "cuda", ...; None uses a GPU if there is one.
        dtype: "float32", "float64", "bfloat16" or "float16".
        device_map: Instead of `device`, for a model that no single one holds: "auto", "balanced",
            "balanced_low_0" or "sequential", or {module path: device, or "disk"}.

    Raises:
        HeadlabError: For an unknown or unsupported model.
    """
    return make_gateable(
        read_model(name, revision=revision, device=device, dtype=dtype, device_map=device_map)
    )


# The output projections of a loaded model's heads, by the module paths of transformers.


def script_model_of(model: Model) -> ScriptModel:
    """Paths, class and source of a model, for scripts that run without headlab."""
    name = model.name
    revision = model.checkpoint.revision
    paths = {module: path for path, module in model.module.named_modules()}
    projections = [paths[projection] for projection in model.projections]
    architecture = architecture_of(model.module)
    downs: list[str] = []
    layers: list[str] = []
    players = model.player_set
    if players is not None:
        parts = parts_of(model)
        if players.neuron_cells:
            downs = [paths[down] for down in parts.downs]
        if players.layer_rows:
            layers = [paths[module] for module in parts.modules]
    if (
        revision == FOLDER_REVISION
    ):  # in another directory, a relative path would be taken for a hub id
        folder = str(Path(name).resolve())
        source = None if is_delta(Path(name)) else folder
        name = folder
    else:
        source = None if name in EMBEDDED else name
    return ScriptModel(
        projections, architecture, source, revision, name, tuple(downs), tuple(layers), players
    )
