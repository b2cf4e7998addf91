"""Configuration files of shrunk models, which no class with attention heads can take for a whole one's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

SEALED = "headlab_sealed"  # the true values of what the file has a sentence for
SENTENCE = "attention heads were taken out of this model; headlab.load_shrunk reads it"
# Every configuration of transformers that has heads wants a number, or a configuration, for at least one of these.
# The base of all configurations wants none: AutoTokenizer reads the file by it where headlab is not there.
NAMES = (
    "attention_heads", "decoder_attention_heads", "encoder_attention_heads", "n_head", "n_heads", "num_attention_heads",
    "num_heads", "num_key_value_heads", "hidden_size", "initializer_range", "num_hidden_layers", "audio_config",
    "text_config", "vision_config",
)  # fmt: skip


class Sealed:
    """What stands before a configuration class of transformers: its file has sentences where numbers belong.

    A class of transformers fills weights it does not find with random numbers.  So that none gets so far, whatever it
    calls its weights, none can make its configuration of this file.
    """

    @classmethod
    def from_dict(cls, config_dict: Mapping[str, Any], **options: Any) -> Any:
        """As the family's, of a file or of plain values."""
        return super().from_dict(opened(config_dict), **options)  # type: ignore[misc]

    def to_json_string(self, use_diff: bool = True) -> str:
        """As the family's, with some of its values put aside."""
        facts = json.loads(super().to_json_string(use_diff=use_diff))  # type: ignore[misc]
        aside = {name: facts[name] for name in NAMES if name in facts}
        return json.dumps(facts | dict.fromkeys(NAMES, SENTENCE) | {SEALED: aside}, indent=2, sort_keys=True) + "\n"


def opened(facts: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration's values without sentences."""
    plain = {name: value for name, value in facts.items() if name != SEALED and value != SENTENCE}
    aside: Mapping[str, Any] = facts.get(SEALED, {})
    return plain | dict(aside)
