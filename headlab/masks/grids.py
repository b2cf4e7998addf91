"""The head grid where a mask's file does not say it: typed by hand, or from a config.json."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headlab.errors import HeadlabError
from headlab.masks.fields import MAX_HEADS, STACK, shown
from headlab.records import HeadGrid, Stack

PART = re.compile(r"(?:([A-Za-z_][A-Za-z0-9_-]{0,39})=)?(?:([0-9]{1,4})[x×]([0-9]{1,4})|([0-9]{1,4}(?:/[0-9]{1,4})*))")
LAYERS, HEADS = ("num_hidden_layers", "n_layer", "n_layers"), ("num_attention_heads", "n_head", "n_heads")
BACKWARD = ("gpt2", "openai-gpt", "ctrl", "gpt_neo", "gptj", "gpt_neox", "llama")  # they only look back


def parse_grid(text: str, stack: str = "encoder") -> HeadGrid:
    """A grid as typed: "12x12" (layers x heads), "4/4/3" (heads of each layer), "encoder=6x8,decoder=6x8,cross=6x8".

    stack: the name of the only stack, where none is given.  Raises HeadlabError for what is none of these.
    """
    if not STACK.fullmatch(stack):
        raise HeadlabError(
            f"stack {shown(stack)!r} is not a stack name; give encoder, decoder or cross", code="stack.name_invalid"
        )
    stacks: dict[str, list[int]] = {}
    for part in text.split(","):
        found = PART.fullmatch(part.strip())
        name = (found.group(1) or stack) if found else stack
        if found is None or name in stacks:
            raise HeadlabError(
                f"grid {text[:80]!r} cannot be read; write layers x heads as 12x12, the heads of each layer as 4/4/3, "
                "or stacks as encoder=6x8,decoder=6x8,cross=6x8",
                code="grid.malformed",
            )
        _, layers, heads, uneven = found.groups()
        stacks[name] = [int(heads)] * int(layers) if layers else [int(n) for n in uneven.split("/")]
    _require_sizes(stacks.values(), f"grid {text[:80]!r}")
    return HeadGrid.from_json(stacks)


def grid_of_config(config: Mapping[str, Any], what: str) -> HeadGrid:
    """The grid of a config.json of one stack. Raises HeadlabError where it has several, or does not say."""
    if config.get("is_encoder_decoder"):
        raise HeadlabError(
            f"{what} belongs to an encoder-decoder, and pruned_heads does not say whose heads they are",
            code="grid.ambiguous",
        )
    layers, heads = (next((config[name] for name in names if name in config), None) for names in (LAYERS, HEADS))
    if type(layers) is not int or type(heads) is not int:
        raise HeadlabError(
            f"{what} does not say how many layers and heads its model has; give --grid or --model", code="grid.unknown"
        )
    _require_sizes([[heads] * min(layers, MAX_HEADS + 1)], what)
    backward = config.get("is_decoder") is True or config.get("model_type") in BACKWARD
    return HeadGrid((Stack("decoder" if backward else "encoder", (heads,) * layers),))


def model_of_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a config.json tells of its model, as a mask names it: no fingerprint, as the weights are not seen."""
    name, classes, family = (config.get(key) for key in ("_name_or_path", "architectures", "model_type"))
    found: dict[str, Any] = {"name": name if isinstance(name, str) and name else None, "fingerprint": None}
    if isinstance(classes, list) and classes and isinstance(classes[0], str) and isinstance(family, str):
        found["architecture"] = {"class": classes[0], "model_type": family}
    return found


def _require_sizes(stacks: Any, what: str) -> None:
    for heads in stacks:
        if not heads or len(heads) > MAX_HEADS or not all(0 <= n <= MAX_HEADS for n in heads):
            raise HeadlabError(
                f"{what} has sizes that no model has; there are 1 to {MAX_HEADS} layers and heads",
                code="grid.sizes_out_of_range",
            )
