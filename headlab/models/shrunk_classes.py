"""Classes and configuration files of shrunk models.

They are transformers' own where these can express it, else extended ones.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import cast

import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, AutoTokenizer, PretrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING

from headlab.core import HeadlabError, JsonObject
from headlab.models.checkpoint import LoadingInfo
from headlab.models.shrunk_cut import (
    FAMILIES,
    HEADS_KEY,
    LLAMA,
    NEURONS_KEY,
    PREFIX,
    attention_layers,
    base_type,
)
from headlab.models.shrunk_rest import Rest, parts_of_layers, shrink_structure, sizes_left

# Configuration files of shrunk models, which no class with attention heads can mistake for a full
# model's.

SEALED_KEY = (
    "headlab_sealed"  # the true values of the fields that the file replaces with a sentence
)
SENTENCE = "parts were taken out of this model; headlab.load_shrunk reads it"
# What stands there in files of headlab 0.1.
FORMER_SENTENCE = "attention heads were taken out of this model; headlab.load_shrunk reads it"
# Every transformers configuration with heads requires a number, or a configuration, for at least
# one of these. The base configuration requires none: AutoTokenizer reads the file with it where
# headlab is not installed.
SEALED_NAMES = (
    "attention_heads",
    "decoder_attention_heads",
    "encoder_attention_heads",
    "n_head",
    "n_heads",
    "num_attention_heads",
    "num_heads",
    "num_key_value_heads",
    "hidden_size",
    "initializer_range",
    "num_hidden_layers",
    "audio_config",
    "text_config",
    "vision_config",
)


class SealedConfig:
    """Mixin for a configuration class of transformers: its file has sentences in place of numbers.

    A transformers class fills missing weights with random numbers.  To prevent that, whatever the
    weights are called, no such class can build its configuration from this file.
    """

    @classmethod
    def from_dict(
        cls, config_dict: JsonObject, **options: object
    ) -> PretrainedConfig | tuple[PretrainedConfig, JsonObject]:
        """As the family's, from a file's values or from plain ones."""
        config: PretrainedConfig | tuple[PretrainedConfig, JsonObject]
        config = super().from_dict(unsealed(config_dict), **options)  # type: ignore[misc]
        return config

    def to_json_string(self, use_diff: bool = True) -> str:
        """As the family's, with the values of NAMES moved to SEALED."""
        values = json.loads(super().to_json_string(use_diff=use_diff))  # type: ignore[misc]
        sealed_values = {name: values[name] for name in SEALED_NAMES if name in values}
        return (
            json.dumps(
                values | dict.fromkeys(SEALED_NAMES, SENTENCE) | {SEALED_KEY: sealed_values},
                indent=2,
                sort_keys=True,
            )
            + "\n"
        )


def unsealed(values: JsonObject) -> JsonObject:
    """A configuration's values with the sealed ones restored."""
    plain_values = {
        name: value
        for name, value in values.items()
        if name != SEALED_KEY and value not in (SENTENCE, FORMER_SENTENCE)
    }
    sealed_values = cast(JsonObject, values.get(SEALED_KEY, {}))
    return plain_values | dict(sealed_values)


# Configuration and model classes of shrunk models: transformers' own, with fewer heads and neurons.

CLASS_PREFIX = "Shrunk"


class ShrunkModel:
    """Mixin for a transformers class of models without some heads and neurons.

    The full model is built, then these are removed from its layers.
    """

    config: PretrainedConfig

    def __init__(self, config: PretrainedConfig, *arguments: object, **options: object) -> None:
        super().__init__(config, *arguments, **options)  # type: ignore[call-arg]
        # Llama's classifiers build their base with AutoModel, which has already cut it.
        if not any(isinstance(part, ShrunkModel) for part in self.modules() if part is not self):  # type: ignore[attr-defined]
            heads = getattr(config, HEADS_KEY, None) or {}
            neurons = getattr(config, NEURONS_KEY, None) or {}
            shrink_structure(self, heads, neurons)  # type: ignore[arg-type]

    @classmethod
    def from_pretrained(
        cls, *arguments: object, output_loading_info: bool = False, **options: object
    ) -> PreTrainedModel | tuple[PreTrainedModel, LoadingInfo]:
        """Load a model as the transformers class does.

        A model whose weights of attentions or feed-forward parts are missing is refused.

        The transformers class would fill them with random numbers.

        Raises HeadlabError if weights of an attention or of a feed-forward part are missing.
        """
        module: PreTrainedModel
        loading_info: LoadingInfo
        module, loading_info = super().from_pretrained(  # type: ignore[misc]
            *arguments, output_loading_info=True, **options
        )
        prefixes = tuple(f"{path}." for path in parts_of_layers(module))
        absent_weights = sorted(
            name for name in loading_info["missing_keys"] if name.startswith(prefixes)
        )
        if absent_weights:
            raise HeadlabError(
                f"this shrunk model has no weights for {len(absent_weights)} parts of the layers of a "
                f"{cls.__name__} ({absent_weights[0]}…); it is a "
                f"{', '.join(module.config.architectures or ['model of another class'])}: load it "
                "as that, or with headlab.load_shrunk",
                code="model.other_class",
            )
        if output_loading_info:
            return (module, loading_info)
        return module


@cache
def shrunk_config(family: str) -> type[PretrainedConfig]:
    """The configuration class of a family's shrunk models, with a model type of its own."""
    full_config = CONFIG_MAPPING[family]
    return type(
        f"{CLASS_PREFIX}{full_config.__name__}",
        (SealedConfig, full_config),
        {"model_type": PREFIX + family, "__module__": __name__},
    )


@cache
def shrunk_class(full_class: type, family: str) -> type[PreTrainedModel]:
    """The class of shrunk models that corresponds to the transformers class `full_class`."""
    names = {"config_class": shrunk_config(family), "__module__": __name__}
    return type(f"{CLASS_PREFIX}{full_class.__name__}", (ShrunkModel, full_class), names)


def is_shrunk(config: PretrainedConfig) -> bool:
    """Whether a configuration is a shrunk model's."""
    return str(getattr(config, "model_type", "")).startswith(PREFIX)


def class_named(config: PretrainedConfig, name: str) -> type[PreTrainedModel] | None:
    """The class named in a shrunk model's configuration; None for other models and names."""
    full_class: object = getattr(transformers, name.removeprefix(CLASS_PREFIX), None)
    if not is_shrunk(config):
        return None
    if not isinstance(full_class, type) or not issubclass(full_class, PreTrainedModel):
        return None
    hashable_class: type = full_class  # mypy finds no hash in type[PreTrainedModel]
    return shrunk_class(hashable_class, config.model_type.removeprefix(PREFIX))


def make_known(model_type: str | None = None) -> None:
    """Register shrunk models with transformers' Auto classes; may be called repeatedly.

    Raises HeadlabError for a family that cannot be shrunk.

    Args:
        model_type: Of one family only, like "headlab-shrunk-bert"; None for all.
    """
    families = list(FAMILIES) if model_type is None else [model_type.removeprefix(PREFIX)]
    for family in families:
        if family not in FAMILIES:
            raise HeadlabError(
                f"{model_type} is not a shrunk model that this headlab knows; update headlab",
                code="model.type_unknown",
            )
        _register(family)


def make_known_folder(folder: Path) -> None:
    """Let transformers read this folder if it holds a shrunk model.

    Raises what transformers raises for bad files.
    """
    config, _ = PretrainedConfig.get_config_dict(folder)
    model_type = config.get("model_type")
    if isinstance(model_type, str) and model_type.startswith(PREFIX):
        make_known(model_type)


@cache
def _register(family: str) -> None:
    full_config = CONFIG_MAPPING[family]
    smaller_config = shrunk_config(family)
    AutoConfig.register(smaller_config.model_type, smaller_config, exist_ok=True)
    for name in modeling_auto.__all__:
        auto = getattr(modeling_auto, name)
        mapping = getattr(auto, "_model_mapping", None)
        if mapping is not None and full_config in mapping:
            full_class = mapping[full_config]
            auto.register(smaller_config, shrunk_class(full_class, family), exist_ok=True)
    if full_config in TOKENIZER_MAPPING:
        AutoTokenizer.register(
            smaller_config, tokenizer_class=TOKENIZER_MAPPING[full_config], exist_ok=True
        )


# Shrunk models that a family's own configuration can express: transformers reads them without
# headlab.

NOT_COPIED = ("transformers_version", "architectures")


def plain_config(module: PreTrainedModel, rest: Rest) -> PretrainedConfig | None:
    """The family's own configuration of what is left of a model.

    None where one of headlab's is needed. It exists if the layers that stay have equally many
    neurons and all their heads, or if it is a Llama-like model whose layers all keep the same
    number of heads (its configuration has head_dim, so the width of all heads need not be that of
    the hidden states).
    """
    fields, uneven_neurons = sizes_left(module, rest)
    if is_shrunk(module.config) or uneven_neurons:
        return None
    layers = [
        layer
        for layer in attention_layers(module)
        if layer.stack in rest.heads and rest.stays(layer.stack, layer.layer)
    ]
    if all(len(rest.heads[layer.stack][layer.layer]) == layer.heads for layer in layers):
        return _config(module, fields)
    sizes = {
        (len(rest.heads[layer.stack][layer.layer]), layer.group, layer.size) for layer in layers
    }
    if FAMILIES[base_type(module.config)] is not LLAMA or len(sizes) != 1:
        return None
    ((heads, group, size),) = sizes
    if not heads:
        return None
    try:
        names = {
            "num_attention_heads": heads,
            "num_key_value_heads": heads // group,
            "head_dim": size,
        }
        return _config(module, fields | names)
    # Llama's requires a hidden size divisible by the number of heads.
    except (ValueError, StrictDataclassError):
        return None


def _config(module: PreTrainedModel, sizes: dict[str, object]) -> PretrainedConfig:
    values = {
        name: value for name, value in module.config.to_dict().items() if name not in NOT_COPIED
    }
    config: PretrainedConfig = type(module.config).from_dict(values | sizes)
    return config
