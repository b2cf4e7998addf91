"""A pruned decoder as a GGUF file, which llama.cpp reads: really smaller, without headlab.

llama.cpp's architecture `llama` has one number of heads and of neurons for all layers; `deci` has
one for every layer, and takes a layer of 0 heads for one without attention. Their layers compute
the same. The width of a head is only read where the first layer has one, so that a first layer that
lost all its heads gets a group of zeros in their place. A layer of 0 neurons would be passed by with
its attention, so that it gets neurons of zeros, which give nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import PretrainedConfig, PreTrainedModel

from headlab.core import Head, HeadlabError
from headlab.hooks import Model
from headlab.models.shrunk_classes import CLASS_PREFIX
from headlab.models.shrunk_cut import attention_layers
from headlab.models.shrunk_rest import stack_layers
from headlab.shrink.gguf_tokens import TokenFields, token_fields
from headlab.shrink.kept_parts import kept_parts
from headlab.shrink.model import Shrunk
from headlab.shrink.proof import short_name

if TYPE_CHECKING:
    from gguf import GGMLQuantizationType, GGUFWriter
    from gguf.gguf_reader import ReaderTensor

CLASSES = ("LlamaForCausalLM", "MistralForCausalLM")
"""Classes of transformers whose layers are those of llama.cpp's `llama`."""
NUMBER_TYPES = ("float32", "float16", "q8_0")
"""What weights can be written in: 32 and 16 bits, and 8 bits with a factor for every 32 numbers."""
EXACT_TYPE = "float32"
QUANTISED_BLOCK = 32
"""Numbers that share a factor in q8_0; a row has to be a multiple of it."""
ROTATION_RULES = ("default", "linear", "llama3")
"""Rules by which rotary positions are slowed down that a factor for every frequency expresses."""
ROTATION_FACTORS = "rope_freqs.weight"
"""Tensor of these factors in GGUF."""
EVEN_ARCHITECTURE = "llama"
UNEVEN_ARCHITECTURE = "deci"

Array = npt.NDArray[Any]

# Names of a layer's weights in transformers, and in GGUF.
ATTENTION_NAMES = {
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
}
ATTENTION_NORM = "input_layernorm.weight"
LAYER_NAMES = {
    ATTENTION_NORM: "attn_norm.weight",
    **ATTENTION_NAMES,
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
NEURON_NAMES = ("mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight")
STAND_IN_NEURONS = QUANTISED_BLOCK
"""Neurons of zeros in a layer that lost all its own."""
ROTATED = ("self_attn.q_proj.weight", "self_attn.k_proj.weight")
"""Projections whose outputs turn with the position: GGUF has them in another order."""
EMBEDDINGS = "model.embed_tokens.weight"
OUTPUT = "lm_head.weight"
MODEL_NAMES = {
    EMBEDDINGS: "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    OUTPUT: "output.weight",
}


# What llama.cpp's layers can compute.


def require_gguf(model: Model) -> None:
    """Raise HeadlabError unless a model can be written as GGUF here.

    Its package has to be installed, and the model's layers have to be those of llama.cpp's `llama`.
    """
    if find_spec("gguf") is None:
        raise HeadlabError(
            "writing GGUF needs the package gguf, which is not installed; run: pip install "
            "'headlab[gguf]'",
            code="package.gguf_missing",
        )
    class_name = type(model.module).__name__
    if class_name.removeprefix(CLASS_PREFIX) not in CLASSES:
        raise HeadlabError(
            f"{model.name} is a {class_name}; headlab writes GGUF for {' and '.join(CLASSES)}, "
            "whose layers are those of llama.cpp's llama. Use --as folder or --as small",
            code="gguf.class_unknown",
        )
    differences = list(_differences(model.module.config))
    if differences:
        raise HeadlabError(
            f"{model.name} has {', '.join(differences)}, which headlab cannot write as GGUF; use "
            "--as folder or --as small",
            code="gguf.layer_unknown",
        )


def _differences(config: PretrainedConfig) -> Iterator[str]:
    """What a model's layers have that those of llama.cpp's `llama` have not, or headlab not tried."""
    if getattr(config, "attention_bias", False):
        yield "biases in its attention"
    if getattr(config, "mlp_bias", False):
        yield "biases in its feed-forward parts"
    if getattr(config, "sliding_window", None):
        yield f"a sliding window of {config.sliding_window} tokens"
    if config.hidden_act != "silu":
        yield f"the activation {config.hidden_act}"
    rotation = _rotation(config)
    if rotation.get("rope_type", "default") not in ROTATION_RULES:
        yield f"rotary positions scaled by the rule {rotation['rope_type']}"
    if rotation.get("partial_rotary_factor", 1.0) != 1.0:
        yield "rotary positions for a part of every head"


def _rotation(config: PretrainedConfig) -> Mapping[str, Any]:
    """The settings of a model's rotary positions."""
    return getattr(config, "rope_parameters", None) or {}


def require_whole_groups(model: Model, shrunk: Shrunk) -> None:
    """Raise HeadlabError if a mask removes part of a group of heads that share keys and values.

    The message names the nearest masks that can be written.
    """
    if not shrunk.masked_heads:
        return
    raise HeadlabError(
        f"{len(shrunk.masked_heads)} heads of the mask share a key and a value with heads that "
        f"stay ({_listed(shrunk.masked_heads)}), and GGUF can only lose whole groups. The next "
        f"smaller mask keeps them; the next larger one also removes "
        f"{_listed(_partners(model, shrunk))}",
        code="gguf.part_of_group",
    )


def _listed(heads: Sequence[Head]) -> str:
    """Heads as layer.head."""
    return ", ".join(f"{head.layer}.{head.head}" for head in heads)


def _partners(model: Model, shrunk: Shrunk) -> list[Head]:
    """Heads that stay, and share a key and a value with a removed head."""
    group_sizes = [layer.group for layer in attention_layers(model.module)]
    heads = model.head_grid.heads
    kept = kept_parts(model, shrunk.mask).heads
    staying = [head for head, stays in zip(heads, kept, strict=True) if stays]

    def group_of(head: Head) -> tuple[int, int]:
        return head.layer, head.head // group_sizes[head.layer]

    groups = {group_of(head) for head in shrunk.masked_heads}
    return [head for head in staying if group_of(head) in groups]


# What is in the file.


@dataclass(frozen=True)
class LayerSizes:
    """The heads and neurons of a layer in the file.

    Attributes:
        heads: Of queries.
        groups: Of keys and values.
        neurons: Of the feed-forward part.
        is_stand_in: Whether the heads are a group of zeros in the place of none.
        has_stand_in_neurons: Whether the neurons are zeros in the place of none.
    """

    heads: int
    groups: int
    neurons: int
    is_stand_in: bool = False
    has_stand_in_neurons: bool = False


def layers_in_file(model: Model, shrunk: Shrunk) -> list[LayerSizes]:
    """The heads and neurons of every layer in the file.

    Args:
        model: The original.
        shrunk: The model without what is removed.
    """
    layers: list[LayerSizes] = []
    attentions = attention_layers(shrunk.module)
    for attention, layer in zip(attentions, stack_layers(shrunk.module), strict=True):
        layers.append(
            LayerSizes(
                heads=attention.heads,
                groups=attention.heads // attention.group if attention.heads else 0,
                neurons=layer.neurons or STAND_IN_NEURONS,
                has_stand_in_neurons=not layer.neurons,
            )
        )
    if layers[0].heads == 0:
        heads_of_group = max(layer.group for layer in attention_layers(model.module))
        layers[0] = replace(layers[0], heads=heads_of_group, groups=1, is_stand_in=True)
    return layers


@dataclass(frozen=True)
class Place:
    """Where a weight is.

    Attributes:
        name: In the transformers model.
        gguf_name: In the file.
        head_width: Numbers of a head, where the file has their rows in another order; else None.
    """

    name: str
    gguf_name: str
    head_width: int | None = None


def places_of(module: PreTrainedModel) -> Iterator[Place]:
    """All weights of a model.

    A layer without heads has none of attention, its norm included; one without neurons has none of
    these.
    """
    for name, gguf_name in MODEL_NAMES.items():
        if name != OUTPUT or not _is_tied(module):
            yield Place(name, gguf_name)
    feed_forwards = stack_layers(module)
    for number, layer in enumerate(attention_layers(module)):
        for name, gguf_name in LAYER_NAMES.items():
            is_of_attention = name in ATTENTION_NAMES or name == ATTENTION_NORM
            is_there = layer.heads if is_of_attention else True
            if name in NEURON_NAMES:
                is_there = feed_forwards[number].neurons
            if is_there:
                yield Place(
                    f"model.layers.{number}.{name}",
                    f"blk.{number}.{gguf_name}",
                    layer.size if name in ROTATED else None,
                )


def _is_tied(module: PreTrainedModel) -> bool:
    """Whether a model has its embeddings as output; its configuration may say so and be wrong."""
    state = module.state_dict()
    return torch.equal(state[OUTPUT], state[EMBEDDINGS])


def added_tensors(module: PreTrainedModel, layers: Sequence[LayerSizes]) -> dict[str, Array]:
    """What the file has beside the weights, by its names: float32 arrays.

    They are the factors of slowed down positions, a group of zeros in the first layer, and neurons
    of zeros.

    Args:
        module: The model without what is removed.
        layers: The sizes of its layers in the file.
    """
    added: dict[str, Array] = {}
    factors = rotation_factors(module)
    if factors is not None:
        added[ROTATION_FACTORS] = factors
    if layers[0].is_stand_in:
        hidden_width = module.config.hidden_size
        head_width = attention_layers(module)[0].size
        shapes = {
            "attn_norm.weight": (hidden_width,),
            "attn_q.weight": (layers[0].heads * head_width, hidden_width),
            "attn_k.weight": (head_width, hidden_width),
            "attn_v.weight": (head_width, hidden_width),
            "attn_output.weight": (hidden_width, layers[0].heads * head_width),
        }
        for name, shape in shapes.items():
            added[f"blk.0.{name}"] = np.zeros(shape, np.float32)
    for number, layer in enumerate(layers):
        if layer.has_stand_in_neurons:
            hidden_width = module.config.hidden_size
            rows = np.zeros((layer.neurons, hidden_width), np.float32)
            added[f"blk.{number}.ffn_gate.weight"] = rows
            added[f"blk.{number}.ffn_up.weight"] = rows
            added[f"blk.{number}.ffn_down.weight"] = np.ascontiguousarray(rows.T)
    return added


def groups_removed(model: Model, shrunk: Shrunk) -> int:
    """How many groups of heads that share a key and a value are gone."""
    groups_before = sum(layer.heads // layer.group for layer in attention_layers(model.module))
    layers_after = attention_layers(shrunk.module)
    return groups_before - sum(layer.heads // layer.group for layer in layers_after)


# Writing the file.


def write_gguf(
    model: Model, shrunk: Shrunk, path: Path, number_type: str, tokens: TokenFields | None = None
) -> None:
    """Write a pruned decoder as a GGUF file.

    Args:
        model: The original, for its name and tokenizer.
        shrunk: The model without the heads, in whole groups.
        path: Of the file.
        number_type: One of `NUMBER_TYPES`. Norms, and rows that q8_0 cannot hold, are wider.
        tokens: The tokenizer; None for that of the original.

    Raises:
        HeadlabError: The tokenizer splits texts in a way that llama.cpp does not know.
        OSError: The file cannot be written.
    """
    import gguf

    layers = layers_in_file(model, shrunk)
    token_fields_of_file = tokens or token_fields(model)
    is_even = len({(layer.heads, layer.neurons) for layer in layers}) == 1
    architecture = EVEN_ARCHITECTURE if is_even else UNEVEN_ARCHITECTURE
    with closing(gguf.GGUFWriter(path, architecture)) as writer:
        _add_sizes(writer, shrunk.module, layers, number_type, is_even=is_even)
        writer.add_name(short_name(model))
        token_fields_of_file.add_to(writer)
        _write_tensors(writer, shrunk.module, added_tensors(shrunk.module, layers), number_type)


def _write_tensors(
    writer: GGUFWriter, module: PreTrainedModel, added: Mapping[str, Array], number_type: str
) -> None:
    """Write the header and all weights, one at a time: no second copy of them is held.

    Args:
        writer: Of the file, with all its fields.
        module: Has the weights.
        added: Further tensors by name, which are written as they are.
        number_type: The weights are stored in.
    """
    from gguf import GGML_QUANT_SIZES, quants

    state = module.state_dict()
    places = list(places_of(module))
    for name, array in added.items():
        writer.add_tensor_info(name, array.shape, array.dtype, array.nbytes)
    for place in places:
        shape = tuple(state[place.name].shape)
        stored_type = _stored_type(shape, number_type)
        numbers_in_block, bytes_of_block = GGML_QUANT_SIZES[stored_type]
        stored_bytes = math.prod(shape) // numbers_in_block * bytes_of_block
        writer.add_tensor_info(
            place.gguf_name, shape, np.dtype(np.float32), stored_bytes, raw_dtype=stored_type
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for array in added.values():
        writer.write_tensor_data(array)
    for place in places:
        weight = state[place.name].detach().to("cpu", torch.float32).numpy()
        if place.head_width is not None:
            weight = interleaved(weight, place.head_width)
        with np.errstate(over="ignore"):  # the proof sees what became infinite
            stored = quants.quantize(weight, _stored_type(weight.shape, number_type))
        writer.write_tensor_data(stored)


def rotation_factors(module: PreTrainedModel) -> Array | None:
    """By how much each frequency of the rotary positions is slowed down; None where none is.

    Args:
        module: Of Llama's layers.

    Returns:
        float32 [width of a head / 2], the fastest frequency first.
    """
    rotation = _rotation(module.config)
    if rotation.get("rope_type", "default") == "default":
        return None
    slowed_down = module.get_submodule("model.rotary_emb").get_buffer("inv_freq")
    frequencies = slowed_down.detach().cpu().double().numpy()
    exponents = np.arange(len(frequencies)) / len(frequencies)
    plain_frequencies = float(rotation["rope_theta"]) ** -exponents
    return np.asarray(plain_frequencies / frequencies, np.float32)


def _add_sizes(
    writer: GGUFWriter,
    module: PreTrainedModel,
    layers: Sequence[LayerSizes],
    number_type: str,
    *,
    is_even: bool,
) -> None:
    """Add the numbers of layers, heads and neurons, and all widths.

    Args:
        writer: Of the file.
        module: The model without what is removed.
        layers: The sizes of its layers in the file.
        number_type: Of the weights.
        is_even: Whether all layers have as many heads and neurons.
    """
    import gguf

    file_types = {
        "float32": gguf.LlamaFileType.ALL_F32,
        "float16": gguf.LlamaFileType.MOSTLY_F16,
        "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
    }
    config = module.config
    head_width = attention_layers(module)[0].size
    head_counts = [layer.heads for layer in layers]
    group_counts = [layer.groups for layer in layers]
    neuron_counts = [layer.neurons for layer in layers]
    writer.add_file_type(file_types[number_type])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(len(layers))
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(float(_rotation(config).get("rope_theta", 10_000.0)))
    writer.add_rope_dimension_count(head_width)
    # They do not follow from the model's width, as heads are gone.
    writer.add_key_length(head_width)
    writer.add_value_length(head_width)
    if is_even:
        writer.add_head_count(head_counts[0])
        writer.add_head_count_kv(group_counts[0])
        writer.add_feed_forward_length(neuron_counts[0])
    else:
        writer.add_head_count(head_counts)
        writer.add_head_count_kv(group_counts)
        writer.add_feed_forward_length(neuron_counts)


def interleaved(weight: Array, head_width: int) -> Array:
    """Rows of queries or keys in the order of GGUF.

    Of a head, transformers turns number i with number i + half of its width; `llama` in GGUF turns
    neighbours.

    Args:
        weight: [head × width, input].
        head_width: Numbers of a head.
    """
    by_half = weight.reshape(-1, 2, head_width // 2, weight.shape[1])
    return np.ascontiguousarray(by_half.swapaxes(1, 2).reshape(weight.shape))


def in_halves(weight: Array, head_width: int) -> Array:
    """Rows of queries or keys in the order of transformers: `interleaved` backwards."""
    by_pair = weight.reshape(-1, head_width // 2, 2, weight.shape[1])
    return np.ascontiguousarray(by_pair.swapaxes(1, 2).reshape(weight.shape))


def _stored_type(shape: Sequence[int], number_type: str) -> GGMLQuantizationType:
    """What a tensor is stored in: norms in 32 bits, and rows of odd lengths in 16 for q8_0."""
    from gguf import GGMLQuantizationType

    if number_type == EXACT_TYPE or len(shape) == 1:
        return GGMLQuantizationType.F32
    if number_type == "float16" or shape[-1] % QUANTISED_BLOCK:
        return GGMLQuantizationType.F16
    return GGMLQuantizationType.Q8_0


# Reading it back, for the proof.


def read_into(model: Model, shrunk: Shrunk, path: Path) -> bool:
    """Set a smaller model's weights to those of a GGUF file that `write_gguf` wrote.

    What the file lacks becomes NaN, so that no comparison can miss it.

    Args:
        model: The original.
        shrunk: Of the file's shapes; its module is changed.
        path: Of the file.

    Returns:
        Whether any weight changed.

    Raises:
        HeadlabError: The file lacks a tensor, or has another one than headlab writes.
    """
    from gguf import GGUFReader, dequantize

    module = shrunk.module
    tensor_by_name = {tensor.name: tensor for tensor in GGUFReader(path).tensors}
    state = module.state_dict()
    places = list(places_of(module))
    _forget_weights_beside(module, places)
    is_changed = False
    for place in places:
        target = state[place.name]
        tensor = tensor_by_name.pop(place.gguf_name, None)
        if tensor is None or tuple(reversed(tensor.shape.tolist())) != tuple(target.shape):
            raise HeadlabError(
                f"{path.name} lacks {place.gguf_name} of shape {tuple(target.shape)}; please report "
                "this",
                code="gguf.tensor_missing",
            )
        weight = np.asarray(dequantize(_read(path, tensor), tensor.tensor_type), np.float32)
        if place.head_width is not None:
            weight = in_halves(weight, place.head_width)
        stored_weight = torch.from_numpy(weight).reshape(target.shape).to(target)
        is_changed |= not torch.equal(stored_weight, target)
        with torch.no_grad():
            target.copy_(stored_weight)
    for name, array in added_tensors(module, layers_in_file(model, shrunk)).items():
        tensor = tensor_by_name.pop(name, None)
        if tensor is None or not np.array_equal(tensor.data, array):
            raise HeadlabError(
                f"{path.name} has another {name} than headlab writes; please report this",
                code="gguf.tensor_differs",
            )
    if tensor_by_name:
        raise HeadlabError(
            f"{path.name} has tensors that nothing reads: {', '.join(sorted(tensor_by_name)[:4])}; "
            "please report this",
            code="gguf.tensor_unread",
        )
    return is_changed


def _read(path: Path, tensor: ReaderTensor) -> Array:
    """The stored numbers of one tensor, in an array of their own.

    The reader maps the file, and all of its pages that were looked at would stay in memory: a third
    copy of the model.

    Args:
        path: Of the file.
        tensor: As the reader describes it.

    Raises:
        HeadlabError: The file ends before the tensor does.
    """
    stored_bytes = bytearray(int(tensor.n_bytes))
    with path.open("rb") as file:
        file.seek(int(tensor.data_offset))
        read_count = file.readinto(stored_bytes)
    if read_count != len(stored_bytes):
        raise HeadlabError(
            f"{path.name} ends within {tensor.name}; please report this", code="gguf.tensor_cut"
        )
    return np.frombuffer(stored_bytes, tensor.data.dtype).reshape(tensor.data.shape)


def _forget_weights_beside(module: PreTrainedModel, places: Sequence[Place]) -> None:
    """Make all weights NaN that a file does not have, but for norms before no heads."""
    state = module.state_dict()
    known_storage = {state[place.name].data_ptr() for place in places}
    unused_names = {
        f"model.layers.{number}.{ATTENTION_NORM}"
        for number, layer in enumerate(attention_layers(module))
        if layer.heads == 0
    }
    with torch.no_grad():
        for name, weight in state.items():
            if name not in unused_names and weight.data_ptr() not in known_storage:
                weight.fill_(torch.nan)
