"""Which tokens of a batch look and which are looked at, and which of them do not count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from headlab.gates.model import Model

Side = tuple[torch.Tensor, torch.Tensor]


def excluded_ids(tokenizer: Any, exclude: str) -> list[int]:
    """Token ids that do not count as targets: the separator / end of sentence, all specials, or none."""
    if exclude == "none":
        return []
    if exclude == "special":
        return sorted(tokenizer.all_special_ids)
    return sorted({i for i in (tokenizer.sep_token_id, tokenizer.eos_token_id) if i is not None})


def sides(model: Model, inputs: Mapping[str, torch.Tensor], stack: str) -> tuple[Side, Side]:
    """Those that look and those looked at in a stack: token ids, and whether they are real, int and bool [row, token].

    inputs: model inputs with masks; of a sequence-to-sequence model those of the decoder too.
    """
    source = (inputs["input_ids"], inputs["attention_mask"].bool())
    if not model.module.config.is_encoder_decoder or stack == "encoder":
        return source, source
    target = (inputs["decoder_input_ids"], inputs["decoder_attention_mask"].bool())
    return target, source if stack == "cross" else target


def started(model: Model, rows: int) -> dict[str, torch.Tensor]:
    """What a sequence-to-sequence model's decoder takes where the encoder alone is asked: its first token, [row, 1]."""
    ids = torch.full((rows, 1), int(model.module.config.decoder_start_token_id), device=model.device)
    return {"decoder_input_ids": ids, "decoder_attention_mask": torch.ones_like(ids)}
