"""Quantised checkpoints: which can be read as ordinary numbers, and why others cannot.

headlab computes with ordinary numbers only: a gate is checked against zeroed columns of a
projection, and packed integers have none.  So a checkpoint is either dequantised while it is
loaded, or refused before that.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TypedDict, cast

import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING, AutoHfQuantizer

from headlab.core import HeadlabError, JsonObject, first_line

WAY_ON = "use the unquantised checkpoint"

# What a configuration says of how its weights are quantised.

# with which bitsandbytes is meant, whatever the method's name
FLAGS = {
    "load_in_4bit": 4,
    "load_in_8bit": 8,
}
BITS = ("bits", "num_bits", "nbits", "w_bit", "weight_bits")
BITSANDBYTES = "bitsandbytes"
# Names of packages that dequantise a scheme: the scheme, the package as it is imported, and as pip
# knows it.
PACKAGES = {
    BITSANDBYTES: (BITSANDBYTES, "bitsandbytes"),
    "compressed-tensors": ("compressed_tensors", "compressed-tensors"),
}
STATED_ONLY = "gguf"  # a scheme of other files: safetensors that name it hold ordinary numbers


@dataclass(frozen=True)
class Quantisation:
    """How a configuration says that its weights are quantised.

    Attributes:
        settings: What it says, which is also what transformers reads.
        scheme: Transformers' name of the method, without the number of bits.
        known: Whether transformers has this method; it reads weights of another one as if they were
            not quantised.
    """

    settings: JsonObject
    scheme: str
    known: bool

    @property
    def title(self) -> str:
        """The scheme and its number of bits, as in `gptq (4 bits)`."""
        bits_of_flags = [bits for flag, bits in FLAGS.items() if self.settings.get(flag)]
        bits_of_settings = [
            self.settings[name] for name in BITS if type(self.settings.get(name)) is int
        ]
        bits = [*bits_of_flags, *bits_of_settings][:1]
        if bits:
            return f"{self.scheme} ({bits[0]} bits)"
        return self.scheme

    @property
    def dequantises_itself(self) -> bool:
        """Whether transformers can dequantise the weights while it reads them."""
        kind = AUTO_QUANTIZATION_CONFIG_MAPPING.get(self.scheme)
        return kind is not None and "dequantize" in inspect.signature(kind).parameters


def require_described(settings: object, name: str) -> None:
    """Raise HeadlabError for a `quantization_config` that names no method.

    Args:
        settings: its value in `config.json`.
        name: the model, in messages.
    """
    is_flagged = isinstance(settings, dict) and any(settings.get(flag) for flag in FLAGS)
    method = settings.get("quant_method") if isinstance(settings, dict) else None
    if is_flagged or (method is not None and not isinstance(method, (list, dict))):
        return
    looks_like_mlx = isinstance(settings, dict) and {"group_size", "bits"} <= {*settings}
    guess = ", as MLX writes it" if looks_like_mlx else ""
    raise HeadlabError(
        f"{name} has a quantization_config in its config.json that names no quant_method{guess}, "
        f"so nothing tells how to read its weights; {WAY_ON}",
        code="model.quantisation_unnamed",
    )


def quantisation_of(config: PretrainedConfig, name: str) -> Quantisation | None:
    """How a configuration says that the weights are quantised; None if it says nothing.

    Args:
        config: a model's configuration.
        name: the model, in messages.

    Raises:
        HeadlabError: it names no method.
    """
    stated_settings = [getattr(part, "quantization_config", None) for part in _parts(config)]
    settings = next((value for value in stated_settings if value is not None), None)
    if settings is None:
        return None
    if not isinstance(settings, dict) and hasattr(settings, "to_dict"):
        settings = settings.to_dict()  # transformers replaces it once it has read the weights
    require_described(settings, name)
    checked_settings = cast(JsonObject, settings)
    if any(checked_settings.get(flag) for flag in FLAGS):
        return Quantisation(checked_settings, BITSANDBYTES, known=True)
    method = checked_settings["quant_method"]
    return Quantisation(
        checked_settings, str(method), known=method in AUTO_QUANTIZATION_CONFIG_MAPPING
    )


def _parts(config: PretrainedConfig) -> list[PretrainedConfig]:
    """The configurations in which transformers looks for a `quantization_config`."""
    return [config, config.get_text_config(decoder=True)]


# Reading such a checkpoint as ordinary numbers.


class DeviceOptions(TypedDict, total=False):
    """Options of `from_pretrained` that say where weights go, and in which format.

    Attributes:
        device_map: The name of a strategy, or the device of each module path.
        dtype: Number format of the weights.
    """

    device_map: str | dict[str, str | int]
    dtype: torch.dtype


def dequantising_options(config: PretrainedConfig, name: str) -> DeviceOptions:
    """What `from_pretrained` takes to read a checkpoint's weights as ordinary numbers.

    Nothing for unquantised ones.

    Args:
        config: its configuration, which is told to dequantise.
        name: the model, in messages.

    Raises:
        HeadlabError: the scheme cannot be dequantised, its package is missing, or cannot work here.
    """
    quantisation = quantisation_of(config, name)
    if quantisation is None:
        return {}
    if quantisation.scheme == STATED_ONLY:
        forget_quantisation(config)
        return {}
    if not quantisation.known:
        return {}
    if quantisation.dequantises_itself:
        quantisation.settings["dequantize"] = True
    elif quantisation.scheme != BITSANDBYTES:
        raise HeadlabError(
            f"{name} is quantised with {quantisation.title}, which cannot be turned back into the "
            f"ordinary numbers that headlab computes with; {WAY_ON}",
            code="model.quantised",
        )
    # or else each scheme chooses a device of its own
    on_cpu: DeviceOptions = {"device_map": {"": "cpu"}}
    with quantised_reading(quantisation, name):
        quantizer = AutoHfQuantizer.from_config(dict(quantisation.settings), pre_quantized=True)
        quantizer.validate_environment(weights_only=True, **on_cpu)
    return on_cpu


def shows_fit_in_headers(config: PretrainedConfig, name: str) -> bool:
    """Whether names and shapes in a checkpoint's files tell if its weights fit a class.

    They do not for bitsandbytes, which packs weights.

    Args:
        config: its configuration.
        name: the model, in messages.

    Raises:
        HeadlabError: as `quantisation_of`.
    """
    quantisation = quantisation_of(config, name)
    return quantisation is None or quantisation.scheme != BITSANDBYTES


@contextmanager
def quantised_reading(quantisation: Quantisation | None, name: str) -> Iterator[None]:
    """Say of any error in the block that a quantised checkpoint could not be read.

    Args:
        quantisation: of the checkpoint; with None, errors stay as they are.
        name: the model, in messages.
    """
    try:
        yield
    except HeadlabError:
        raise
    except (
        Exception
    ) as error:  # of a package that may be broken, or made for other devices: any kind
        if quantisation is None:
            raise
        raise _not_read(quantisation, name, error) from error


def _not_read(quantisation: Quantisation, name: str, error: Exception) -> HeadlabError:
    module, package = PACKAGES.get(quantisation.scheme, ("", ""))
    if module and find_spec(module) is None:
        return HeadlabError(
            f"{name} is quantised with {quantisation.title}, and the package that reads this is "
            f"missing; {WAY_ON}, or run: pip install {package}",
            code="model.quantisation_package",
        )
    reason = first_line(error).rstrip(".")
    return HeadlabError(
        f"{name} is quantised with {quantisation.title}, which cannot be read here ({reason}); "
        f"{WAY_ON}",
        code="model.quantised",
    )


def dequantise_module(module: PreTrainedModel) -> PreTrainedModel:
    """A model that was read with `dequantising_options`.

    Its layers are ordinary, and no trace of its quantisation is left.
    """
    quantizer = getattr(module, "hf_quantizer", None)
    if quantizer is not None and not getattr(quantizer.quantization_config, "dequantize", False):
        module = module.dequantize()
    forget_quantisation(module.config)
    return module


def forget_quantisation(config: PretrainedConfig) -> None:
    """Take what is said of quantised weights out of a configuration."""
    for part in _parts(config):
        if hasattr(part, "quantization_config"):
            del part.quantization_config


# Quantised weights told by their names, where the configuration says nothing of them.

NAMES = {
    r"\.(qweight|qzeros|g_idx)$": "gptq or awq",
    r"\.(SCB|absmax|nested_absmax|quant_map|nested_quant_map|weight_format)$|\.quant_state\.bitsandbytes__": (
        "bitsandbytes"
    ),
    r"\.(weight_packed|weight_shape|weight_g_idx)$": "compressed-tensors",
    r"\.(weight_scale|weight_scale_inv|weight_scale_2|input_scale)$": "fp8 or the like",
    r"\.(q_weight|q_scale|q_scale_max|q_groups|q_invperm|trellis)$": "exl2 or exl3",
    r"\.(codes|codebooks)$": "aqlm",
    r"\.W_q$": "hqq",
    r"\._weight_qdata$": "torchao",
    r"\.weight\._(data|scale)$": "quanto",
    r"_(blocks|scales)$": "mxfp4",
    r"\.biases$": "MLX",
}


def quantised_clause(names: Collection[str], config: PretrainedConfig, name: str) -> str:
    """What an error about weights that do not fit adds if they are quantised.

    Empty if they are not.

    Args:
        names: of the stored weights.
        config: the model's configuration.
        name: the model, in messages.
    """
    schemes = [
        scheme for pattern, scheme in NAMES.items() if any(re.search(pattern, key) for key in names)
    ]
    quantisation = quantisation_of(config, name)
    if quantisation is not None and not quantisation.known:
        schemes.insert(0, quantisation.title)
    if not schemes:
        return ""
    return f"its weights are quantised with {schemes[0]}, which is not read this way: {WAY_ON}"
