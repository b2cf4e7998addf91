"""A model's inputs: tokens that count, positions of answers, and choices packed into one row."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextvars import ContextVar

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headlab.core import HeadlabError

# Query and key tokens of a batch, and tokens that do not count.

Tokens = tuple[torch.Tensor, torch.Tensor]


def excluded_ids(tokenizer: PreTrainedTokenizerBase, exclude: str) -> list[int]:
    """Token ids that do not count as attention targets.

    Args:
        tokenizer: The tokenizer of the ids.
        exclude: "none", "special" for all special tokens, or else the separator and the end of
            sentence.
    """
    if exclude == "none":
        return []
    if exclude == "special":
        return sorted(tokenizer.all_special_ids)
    separators = (tokenizer.sep_token_id, tokenizer.eos_token_id)
    return sorted({token_id for token_id in separators if token_id is not None})


def query_and_key_tokens(inputs: Mapping[str, torch.Tensor], stack: str) -> tuple[Tokens, Tokens]:
    """Query and key tokens of a stack.

    Each are ids, int [row, token], and whether they are real, bool [row, token].

    Args:
        inputs: Model inputs with masks; for a sequence-to-sequence model also those of the decoder,
            unless it is a classifier, which makes them from the source's.
    """
    source = (inputs["input_ids"], inputs["attention_mask"].bool())
    if stack == "encoder" or "decoder_input_ids" not in inputs:
        return source, source
    target = (inputs["decoder_input_ids"], inputs["decoder_attention_mask"].bool())
    return target, source if stack == "cross" else target


# Inputs of language models beside those of transformers: positions at which answers are read, and
# choices packed behind their common context.

_answer_positions: ContextVar[torch.Tensor | None] = ContextVar("headlab_asked", default=None)
_teaching_lock = threading.Lock()
TAUGHT_ATTRIBUTE = "_headlab_positions"


def teach_positions(module: PreTrainedModel) -> None:
    """Let a language model's passes take `asked` and `segments` among their inputs.

    May be called repeatedly.

    `asked`, int [row, answer], are the positions whose scores are requested; the output then is
    [row, answer, vocabulary]. `segments`, int [row, token], are 0 for a context, n for its n-th
    continuation and -1 for padding; a continuation sees the context and itself, as if it alone
    followed. `UNREAD_INPUTS`, which only headlab reads, are left out.
    """
    with _teaching_lock:
        if not hasattr(module, TAUGHT_ATTRIBUTE):
            head: nn.Module | None = module.get_output_embeddings()
            if head is None:
                raise _positions_unread_error(module)
            module.register_forward_pre_hook(_take_own_inputs, with_kwargs=True)
            head.register_forward_pre_hook(_gather_answer_positions)
            module.register_forward_hook(_require_positions_read)
            setattr(module, TAUGHT_ATTRIBUTE, True)


UNREAD_INPUTS = ("wanted", "choice")  # inputs that only headlab reads
POSITION_INPUTS = ("asked", "segments", *UNREAD_INPUTS)


def plain_inputs(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Inputs without those that only `teach_positions` makes known to a model.

    Every row is then one text.
    """
    return {name: tensor for name, tensor in inputs.items() if name not in POSITION_INPUTS}


def _require_positions_read(module: nn.Module, _args: object, _output: object) -> None:
    if _answer_positions.get() is not None:
        _answer_positions.set(None)
        raise _positions_unread_error(module)


def _positions_unread_error(module: nn.Module) -> HeadlabError:
    return HeadlabError(
        f"{type(module).__name__} has no output layer over tokens that can be found, so it cannot "
        "be evaluated at selected tokens; use another model for tasks of likelihood",
        code="model.positions_unread",
    )


def _take_own_inputs(
    _module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[tuple[object, ...], dict[str, object]]:
    module_inputs = {name: value for name, value in kwargs.items() if name not in POSITION_INPUTS}
    _answer_positions.set(_tensor_or_none(kwargs, "asked"))
    segments = _tensor_or_none(kwargs, "segments")
    if segments is not None:
        module_inputs |= _mask_and_positions(segments)
    return args, module_inputs


def _tensor_or_none(inputs: Mapping[str, object], name: str) -> torch.Tensor | None:
    tensor = inputs.get(name)
    assert tensor is None or isinstance(tensor, torch.Tensor)
    return tensor


def _mask_and_positions(segments: torch.Tensor) -> dict[str, torch.Tensor]:
    """Attention mask and positions of rows that hold several texts.

    The tokens of a text see its own tokens and the context before them.

    Args:
        segments: The text of every token, int [row, token]; 0 is the context that all of a row
            share, negative numbers are padding.

    Returns:
        `attention_mask`, bool [row, 1, query, key], and `position_ids`, int [row, token].
    """
    token_count = segments.shape[1]
    is_not_after = torch.ones(
        token_count, token_count, dtype=torch.bool, device=segments.device
    ).tril()
    is_seen_in_segment = (segments[:, :, None] == segments[:, None, :]) & is_not_after
    is_context = segments == 0
    is_text = segments >= 0
    is_seen = is_seen_in_segment | (is_not_after & is_context[:, None, :])
    # Nothing looks at padding, by which it is known, and padding looks at the first token alone.
    is_seen &= is_text[:, :, None]
    is_seen[:, :, 0] |= ~is_text
    position_in_segment = is_seen_in_segment.sum(dim=-1) - 1
    context_length = is_context.sum(dim=1, keepdim=True)
    positions = position_in_segment + context_length * (segments > 0)
    return {"attention_mask": is_seen[:, None], "position_ids": positions * is_text}


def _gather_answer_positions(
    _head: nn.Module, args: tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor, ...] | None:
    positions = _answer_positions.get()
    if positions is None:
        return None
    _answer_positions.set(None)
    hidden, *other_args = args
    indices = positions.to(hidden.device)[..., None].expand(-1, -1, hidden.shape[-1])
    return (hidden.gather(1, indices), *other_args)
