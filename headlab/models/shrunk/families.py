"""Where each family of models keeps its heads: which modules, which rows and columns of which weights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedModel

OWN_STACK = "own"  # the only stack of a model, whose name depends on whether it looks back only


@dataclass(frozen=True)
class Family:
    """Names of a family's attention modules and of what is in them, relative to each.

    places: (end of a module's path, its stack).  core: where the attention is computed.  rows: projections whose
    outputs are heads, the query's first.  fused: query, key and value side by side in one.  out: the projection of
    the heads' outputs.  size: the core's attribute with a head's width.  counts, widths: the core's attributes that
    hold its number of heads, and the width of all of them.  biased: the first layer computes a bias for the heads of
    all layers.
    """

    places: tuple[tuple[str, str], ...]
    rows: tuple[str, ...]
    out: str
    size: str
    core: str = ""
    fused: bool = False
    counts: tuple[str, ...] = ()
    widths: tuple[str, ...] = ()
    biased: bool = False


BERT = Family(
    ((r"layer\.\d+\.attention", OWN_STACK), (r"layer\.\d+\.crossattention", "cross")),
    ("self.query", "self.key", "self.value"),
    "output.dense",
    "attention_head_size",
    core="self",
    counts=("num_attention_heads",),
    widths=("all_head_size",),
)
DISTILBERT = Family(
    ((r"layer\.\d+\.attention", OWN_STACK),),
    ("q_lin", "k_lin", "v_lin"),
    "out_lin",
    "attention_head_size",
    counts=("n_heads",),
)
BART = Family(
    (
        (r"encoder\.layers\.\d+\.self_attn", "encoder"),
        (r"decoder\.layers\.\d+\.self_attn", "decoder"),
        (r"decoder\.layers\.\d+\.encoder_attn", "cross"),
    ),
    ("q_proj", "k_proj", "v_proj"),
    "out_proj",
    "head_dim",
    counts=("num_heads",),
)
T5 = Family(
    (
        (r"encoder\.block\.\d+\.layer\.0\.SelfAttention", "encoder"),
        (r"decoder\.block\.\d+\.layer\.0\.SelfAttention", "decoder"),
        (r"decoder\.block\.\d+\.layer\.1\.EncDecAttention", "cross"),
    ),
    ("q", "k", "v"),
    "o",
    "key_value_proj_dim",
    counts=("n_heads",),
    widths=("inner_dim",),
    biased=True,
)
GPT2 = Family(
    ((r"h\.\d+\.attn", "decoder"),), ("c_attn",), "c_proj", "head_dim", fused=True, counts=("num_heads",),
    widths=("split_size",),
)  # fmt: skip
LLAMA = Family(((r"layers\.\d+\.self_attn", "decoder"),), ("q_proj", "k_proj", "v_proj"), "o_proj", "head_dim")
FAMILIES = {
    "bert": BERT,
    "roberta": BERT,
    "xlm-roberta": BERT,
    "camembert": BERT,
    "electra": BERT,
    "distilbert": DISTILBERT,
    "marian": BART,
    "bart": BART,
    "mbart": BART,
    "t5": T5,
    "mt5": T5,
    "gpt2": GPT2,
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": LLAMA,
    "qwen3": LLAMA,
}
PREFIX = "headlab-shrunk-"
HEADS, MASKED = "headlab_heads", "headlab_masked"  # what a shrunk model's configuration has beside its family's


@dataclass(frozen=True)
class Unit:
    """One attention layer of a model, with the heads it has now.

    path: of the module whose parts `Family` names.  heads: query heads.  group: query heads that share a key and a
    value.  size: a head's width.
    """

    path: str
    stack: str
    layer: int
    module: nn.Module
    core: nn.Module
    heads: int
    group: int
    size: int


def base_type(config: Any) -> str:
    """The family's own model type, whether or not heads are gone."""
    return str(config.model_type).removeprefix(PREFIX)


def units(module: PreTrainedModel) -> list[Unit]:
    """Every attention layer of a model of a known family, stack by stack in the order of its layers."""
    family = FAMILIES[base_type(module.config)]
    found: list[Unit] = []
    layers: dict[str, int] = {}
    for path, stack in _places(module, family):
        part = module.get_submodule(path)
        core = part.get_submodule(family.core)
        size, rows = int(getattr(core, family.size)), [part.get_submodule(name) for name in family.rows]
        heads = outputs(rows[0]) // size // (3 if family.fused else 1)
        group = 1 if family.fused or not heads else heads * size // outputs(rows[1])
        found.append(Unit(path, stack, layers.setdefault(stack, 0), part, core, heads, group, size))
        layers[stack] += 1
    return found


def stacks(module: PreTrainedModel) -> list[str]:
    """The stacks that the family's models may have, in the order of its places."""
    own = "decoder" if getattr(module.config, "is_decoder", False) else "encoder"
    return [own if stack == OWN_STACK else stack for _, stack in FAMILIES[base_type(module.config)].places]


def _places(module: PreTrainedModel, family: Family) -> Iterator[tuple[str, str]]:
    """(path, stack) of every attention module."""
    for (ending, _), stack in zip(family.places, stacks(module), strict=True):
        for path, _ in module.named_modules():
            if re.search(rf"(?:^|\.){ending}$", path):
                yield path, stack


def outputs(projection: Any) -> int:
    """Outputs of a Linear or of GPT-2's Conv1D, which keeps its weight the other way round."""
    return int(projection.weight.shape[0 if isinstance(projection, nn.Linear) else 1])
