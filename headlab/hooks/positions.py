"""A model's inputs: which of their tokens count, where answers are read, and choices packed into one row."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextvars import ContextVar

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headlab.core import HeadlabError

# Query and key tokens of a batch, and tokens that do not count.

Side = tuple[torch.Tensor, torch.Tensor]


def excluded_ids(tokenizer: PreTrainedTokenizerBase, exclude: str) -> list[int]:
    """Token ids that do not count as attention targets: separator and end of sentence, all special tokens, or none."""
    if exclude == "none":
        return []
    if exclude == "special":
        return sorted(tokenizer.all_special_ids)
    return sorted({i for i in (tokenizer.sep_token_id, tokenizer.eos_token_id) if i is not None})


def sides(inputs: Mapping[str, torch.Tensor], stack: str) -> tuple[Side, Side]:
    """Query and key tokens of a stack: for each, ids int [row, token] and whether they are real, bool [row, token].

    Args:
        inputs: Model inputs with masks; for a sequence-to-sequence model also those of the decoder,
            unless it is a classifier, which makes them from the source's.
    """
    source = (inputs["input_ids"], inputs["attention_mask"].bool())
    if stack == "encoder" or "decoder_input_ids" not in inputs:
        return source, source
    target = (inputs["decoder_input_ids"], inputs["decoder_attention_mask"].bool())
    return target, source if stack == "cross" else target


# Inputs of language models beside those of transformers: positions at which answers are read, and choices packed
# behind their common context.

_asked: ContextVar[torch.Tensor | None] = ContextVar("headlab_asked", default=None)
_taught = threading.Lock()
TAUGHT = "_headlab_positions"


def teach_positions(module: PreTrainedModel) -> None:
    """Let a language model's passes take `asked` and `segments` among their inputs; may be called repeatedly.

    asked: int [row, answer], positions whose scores are wanted: the output then is [row, answer, vocabulary].
    segments: int [row, token], 0 for a context, n for its n-th continuation, -1 for padding: a continuation sees the
    context and itself, as if it alone followed.  Other inputs that the model does not know, of `PLAIN`, are left out.
    """
    with _taught:
        if not hasattr(module, TAUGHT):
            head: nn.Module | None = module.get_output_embeddings()
            if head is None:
                raise _unread(module)
            module.register_forward_pre_hook(_taken, with_kwargs=True)
            head.register_forward_pre_hook(_gathered)
            module.register_forward_hook(_require_read)
            setattr(module, TAUGHT, True)


PLAIN = ("wanted", "choice")  # inputs that only headlab reads
OWN = ("asked", "segments", *PLAIN)


def plain(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Inputs without those that only `teach_positions` makes known to a model: every row is then one text."""
    return {name: tensor for name, tensor in inputs.items() if name not in OWN}


def _require_read(module: nn.Module, _args: object, _out: object) -> None:
    if _asked.get() is not None:
        _asked.set(None)
        raise _unread(module)


def _unread(module: nn.Module) -> HeadlabError:
    return HeadlabError(
        f"{type(module).__name__} has no output layer over tokens that can be found, so it cannot be evaluated at "
        "selected tokens; use another model for tasks of likelihood",
        code="model.positions_unread",
    )


def _taken(
    _module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[tuple[object, ...], dict[str, object]]:
    module_inputs = {name: value for name, value in kwargs.items() if name not in OWN}
    _asked.set(_tensor_or_none(kwargs, "asked"))
    segments = _tensor_or_none(kwargs, "segments")
    if segments is not None:
        module_inputs |= _laid_out(segments)
    return args, module_inputs


def _tensor_or_none(inputs: Mapping[str, object], name: str) -> torch.Tensor | None:
    tensor = inputs.get(name)
    assert tensor is None or isinstance(tensor, torch.Tensor)
    return tensor


def _laid_out(segments: torch.Tensor) -> dict[str, torch.Tensor]:
    """Attention mask, bool [row, 1, query, key], and position of every token, int [row, token]."""
    before = torch.ones(
        segments.shape[1], segments.shape[1], dtype=torch.bool, device=segments.device
    ).tril()
    own = (segments[:, :, None] == segments[:, None, :]) & before
    context = segments == 0
    seen = own | (before & context[:, None, :] & (segments >= 0)[:, :, None])
    place = own.sum(dim=-1) - 1 + context.sum(dim=1, keepdim=True) * (segments > 0)
    return {"attention_mask": seen[:, None], "position_ids": place * (segments >= 0)}


def _gathered(_head: nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...] | None:
    positions = _asked.get()
    if positions is None:
        return None
    _asked.set(None)
    hidden, *others = args
    indices = positions.to(hidden.device)[..., None].expand(-1, -1, hidden.shape[-1])
    return (hidden.gather(1, indices), *others)
