"""A model with fewer pieces: embeddings cut, ids renumbered, the rest untouched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from transformers import (
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
)

from headlab.core import HeadlabError
from headlab.shrink.model import Shrunk, parameters_of
from headlab.shrink.vocabulary import ID_ENDING
from headlab.shrink.vocabulary_cut import SmallerVocabulary, VocabularyCut, require_fewer_pieces

ID_LISTS = ("suppress_tokens", "begin_suppress_tokens")
"""Settings of a model that are lists of token ids."""
ID_LISTS_OF_LISTS = ("bad_words_ids",)
"""Settings that are lists of words, each a list of token ids."""


def with_vocabulary(shrunk: Shrunk, vocabulary: SmallerVocabulary) -> Shrunk:
    """A model without the pieces that its new vocabulary lacks.

    Args:
        shrunk: The model; its module is changed.
        vocabulary: Cut from the original's.

    Raises:
        HeadlabError: The model keeps weights by token in places that headlab does not know.
    """
    cut_embeddings(shrunk.module, vocabulary.cut)
    parameters_after = parameters_of(shrunk.module)
    return replace(shrunk, parameters_after=parameters_after, vocabulary=vocabulary)


def cut_embeddings(module: PreTrainedModel, cut: VocabularyCut) -> None:
    """Take the rows of pieces that are gone out of a model, and renumber its special tokens.

    Args:
        module: Changed in place.
        cut: Which pieces stay.

    Raises:
        HeadlabError: Weights by token are left over, or no piece goes.
    """
    require_fewer_pieces(cut)
    kept_ids = torch.from_numpy(cut.kept_ids)
    size = cut.size_before
    with torch.no_grad():
        for tensor in tensors_by_token(module, size):
            # transformers keeps the first rows when it makes embeddings smaller.
            rows = tensor if tensor.shape[0] == size else tensor.T
            rows[: len(kept_ids)] = rows[kept_ids.to(rows.device)].clone()
    module.resize_token_embeddings(len(kept_ids), mean_resizing=False)
    module.tie_weights()
    left_over = [
        name
        for name, tensor in _named_tensors(module)
        if size in tensor.shape and not _is_of_layers(name)
    ]
    if left_over:
        raise HeadlabError(
            f"{type(module).__name__} keeps weights by token in {left_over[0]}, where headlab does "
            "not cut them; leave the vocabulary with --vocabulary keep",
            code="vocabulary.weights_unknown",
        )
    _renumber(module.config, cut)
    if getattr(module, "generation_config", None) is not None:
        _renumber(module.generation_config, cut)


def _named_tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _is_of_layers(name: str) -> bool:
    """Whether a weight belongs to a numbered layer, which has none by token."""
    return any(part.isdigit() for part in name.split("."))


def tensors_by_token(module: PreTrainedModel, size: int) -> Iterator[torch.Tensor]:
    """Every tensor with a row or a column for each token, once.

    Args:
        module: The model.
        size: How many tokens it has.
    """
    addresses: set[int] = set()
    for name, tensor in _named_tensors(module):
        is_by_token = tensor.dim() > 0 and size in (tensor.shape[0], tensor.shape[-1])
        is_known = tensor.data_ptr() in addresses
        if is_by_token and not is_known and not _is_of_layers(name):
            addresses.add(tensor.data_ptr())
            yield tensor


def _renumber(config: PretrainedConfig | GenerationConfig, cut: VocabularyCut) -> None:
    """Give the token ids that a configuration names their new numbers, in place."""
    for name, value in list(vars(config).items()):
        if name.endswith(ID_ENDING) or name in ID_LISTS:
            setattr(config, name, renumbered(value, cut))
        elif name in ID_LISTS_OF_LISTS and value:
            kept_words = [word for word in value if all(map(cut.keeps, word))]
            setattr(config, name, [renumbered(word, cut) for word in kept_words] or None)


def renumbered(ids: int | Sequence[int] | None, cut: VocabularyCut) -> int | list[int] | None:
    """New numbers of token ids; of a list those that are left."""
    if ids is None:
        return None
    if isinstance(ids, int):
        is_known = 0 <= ids < cut.size_before
        return int(cut.new_ids[ids]) if is_known else ids
    return [int(cut.new_ids[number]) for number in ids if cut.keeps(number)]


ID_INPUTS = ("input_ids", "decoder_input_ids")
"""Inputs of a model that are token ids."""


def renumbered_batch(
    batch: Mapping[str, torch.Tensor], cut: VocabularyCut
) -> dict[str, torch.Tensor]:
    """A batch for the model with the smaller vocabulary.

    Args:
        batch: For the original; all its pieces stay.
        cut: Which pieces stay.
    """
    new_ids = torch.from_numpy(cut.new_ids)
    renumbered_inputs: dict[str, Any] = dict(batch)
    for name in ID_INPUTS:
        if name in batch:
            renumbered_inputs[name] = new_ids.to(batch[name].device)[batch[name]]
    return renumbered_inputs


def kept_columns(logits: torch.Tensor, cut: VocabularyCut) -> torch.Tensor:
    """Of logits for every piece those of pieces that stay; other logits as they are.

    Args:
        logits: Float [..., piece], or [..., label].
        cut: Which pieces stay.
    """
    if logits.shape[-1] != cut.size_before:
        return logits
    return logits[..., torch.from_numpy(cut.kept_ids).to(logits.device)]


def covered_batches(
    batches: Sequence[Mapping[str, torch.Tensor]], cut: VocabularyCut
) -> list[dict[str, torch.Tensor]]:
    """The examples of some batches of which all pieces stay.

    Args:
        batches: For the original.
        cut: Which pieces stay.

    Raises:
        HeadlabError: There is none.
    """
    kept = torch.from_numpy(cut.is_kept)
    covered: list[dict[str, torch.Tensor]] = []
    for batch in batches:
        is_covered = torch.ones(len(batch["input_ids"]), dtype=torch.bool)
        for name in ID_INPUTS:
            if name in batch:
                is_covered &= kept[batch[name].cpu()].all(dim=1)
        if is_covered.any():
            covered.append(
                {name: tensor[is_covered.to(tensor.device)] for name, tensor in batch.items()}
            )
    if batches and not covered:
        raise HeadlabError(
            "no example that the models could be compared on has only pieces that stay; add texts "
            "like them with --texts",
            code="vocabulary.nothing_covered",
        )
    return covered
