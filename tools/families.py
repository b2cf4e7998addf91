"""Writes headlab/models/families.json and docs/families.md: the model types that can be gated.

A tiny random model of every type that reads text is made and attached as `headlab.load` does it.
"""

from __future__ import annotations

import inspect
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING, PreTrainedModel
from transformers.models.auto import modeling_auto as auto

from headlab.core import HeadlabError
from headlab.hooks import Model, make_gateable
from headlab.models.checkpoint import Checkpoint, building_alone

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "headlab" / "models" / "families.json"
PAGE = ROOT / "docs" / "families.md"
CLASSES = (
    auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
)
LARGEST = 30_000_000  # parameters; a type that ignores the sizes below is left out
# A size for every name that configurations have for it.
WIDTH = 32
LAYERS = 2
HEADS = 4
LONGEST = 64
SIZES = (
    dict.fromkeys(("hidden_size", "d_model", "n_embd", "emb_dim", "dim", "embedding_size"), WIDTH)
    | dict.fromkeys(
        (
            "num_hidden_layers",
            "n_layer",
            "n_layers",
            "num_layers",
            "encoder_layers",
            "decoder_layers",
            "num_decoder_layers",
        ),
        LAYERS,
    )
    | dict.fromkeys(
        (
            "num_attention_heads",
            "n_head",
            "n_heads",
            "num_heads",
            "encoder_attention_heads",
            "decoder_attention_heads",
            "attention_heads",
        ),
        HEADS,
    )
    | dict.fromkeys(
        ("head_dim", "d_kv", "attention_head_size", "v_head_dim", "rotary_dim"), WIDTH // HEADS
    )
    | dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim"), WIDTH // HEADS // 2)
    | dict.fromkeys(
        (
            "intermediate_size",
            "d_ff",
            "ffn_dim",
            "encoder_ffn_dim",
            "decoder_ffn_dim",
            "d_inner",
            "hidden_dim",
            "ffn_hidden_size",
        ),
        48,
    )
    | dict.fromkeys(
        (
            "max_position_embeddings",
            "n_positions",
            "n_ctx",
            "max_encoder_position_embeddings",
            "max_decoder_position_embeddings",
        ),
        LONGEST,
    )
    | dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 16)
    | dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4)
    | {
        "num_key_value_heads": 2,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "vocab_size": 97,
    }
    | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0}
)
HYBRID = {"layer_types": ["linear_attention", "full_attention"]}
SPECIAL: dict[str, dict[str, Any]] = {
    "big_bird": {"attention_type": "original_full"},
    "longformer": {"attention_window": [8, 8]},
    "led": {"attention_window": 8},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "funnel": {"block_sizes": [1, 1], "num_decoder_layers": 1},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "jamba": {"attn_layer_offset": 1, "attn_layer_period": 2},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
    **dict.fromkeys(
        ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "qwen4_exp_text", "bailing_hybrid"),
        HYBRID,
    ),
}


def kinds() -> list[str]:
    """All model types with a class that reads text."""
    return sorted({kind for classes in CLASSES for kind in classes})


def tiny_model(kind: str) -> PreTrainedModel:
    """A tiny random model of a type.

    Raises:
        Exception: Whatever its configuration or class raises for such sizes.
    """
    class_names = next(classes[kind] for classes in CLASSES if kind in classes)
    class_name = class_names if isinstance(class_names, str) else class_names[0]
    model_class = getattr(transformers, class_name)
    config_class = CONFIG_MAPPING[kind]
    parameter_names = {
        *config_class().to_dict(),
        *inspect.signature(config_class.__init__).parameters,
    }
    other_names = getattr(config_class, "attribute_map", {})
    sizes = {
        name: size
        for name, size in SIZES.items()
        if name in parameter_names and name not in other_names
    }
    if "qk_rope_head_dim" in sizes:  # their heads' width is the sum of two
        sizes.pop("head_dim", None)
    config = config_class(**(sizes | SPECIAL.get(kind, {})))
    with torch.device("meta"):
        parameter_count = sum(parameter.numel() for parameter in model_class(config).parameters())
        if parameter_count > LARGEST:
            raise ValueError(f"{parameter_count:,} parameters")
    torch.manual_seed(0)
    module: PreTrainedModel = model_class(config)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3)
    return module.eval()


def gateable_model(module: PreTrainedModel) -> Model:
    """A tiny model made gateable.

    Raises:
        HeadlabError: It cannot be gated.
    """
    kind = module.config.model_type
    return make_gateable(Checkpoint(kind, "tiny", kind, module, None))  # type: ignore[arg-type] # no text is read


def verdict(kind: str) -> dict[str, Any] | None:
    """{"gated": bool, "why": text}; None for a type of which no tiny model runs."""
    with building_alone(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = tiny_model(kind)
        except Exception:  # whatever a configuration raises for sizes it does not know
            return None
        try:
            model = gateable_model(module)
        except HeadlabError as error:
            if error.code == "model.not_for_text":
                return None
            return {"gated": False, "why": str(error)}
    stacks = ", ".join(stack.name for stack in model.grid.stacks)
    return {"gated": True, "why": f"{type(module).__name__}: {stacks}"}


def table() -> dict[str, Any]:
    """The table of all types, and the version of transformers that it holds for."""
    verdicts = {kind: verdict(kind) for kind in kinds()}
    return {
        "transformers": transformers.__version__,
        "families": {k: v for k, v in verdicts.items() if v is not None},
    }


def page(families_table: dict[str, Any]) -> str:
    """The document."""
    families: dict[str, dict[str, Any]] = families_table["families"]
    gated_stacks = {}
    refusals = {}
    for kind, family in families.items():
        if family["gated"]:
            gated_stacks[kind] = family["why"]
        else:
            refusals[kind] = reason(family["why"])
    version = families_table["transformers"]
    lines = [
        "# Model families",
        "",
        f"Written by `python tools/families.py` with transformers {version}: a tiny random model "
        "of every type that reads text was made and attached as `headlab.load` does it, with "
        "[the proof](architecture.md#hooks-on-heads) that each gate closes its head and nothing "
        "else. `headlab families --json` prints the same.",
        "",
        "Types of which such a model could not be made or run, most of them for images or sound, "
        "are not in the table; `headlab.load` tries them all the same.",
        "",
        f"## Gated: {len(gated_stacks)}",
        "",
        "| model type | class: stacks of heads |",
        "| --- | --- |",
        *(f"| `{kind}` | {stacks} |" for kind, stacks in gated_stacks.items()),
        "",
        f"## Refused: {len(refusals)}",
        "",
        "| model type | why |",
        "| --- | --- |",
        *(f"| `{kind}` | {refusal} |" for kind, refusal in refusals.items()),
        "",
    ]
    return "\n".join(lines)


def reason(explanation: str) -> str:
    """What an error says of a model type, without its class and the remedy."""
    return explanation.partition(" cannot be gated: ")[2].partition("; ")[0] or explanation


def main() -> int:
    """Write the table and the page; with names of types as arguments, print their verdicts only."""
    requested_types = sys.argv[1:]
    if requested_types:
        for kind in requested_types:
            sys.stdout.write(f"{kind}: {verdict(kind)}\n")
        return 0
    families_table = table()
    TABLE.write_text(json.dumps(families_table, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(families_table), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
