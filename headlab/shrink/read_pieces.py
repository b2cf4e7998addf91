"""Reading the vocabulary of a model: its kind, and whether it can be cut."""

from __future__ import annotations

from typing import NoReturn

import torch
from transformers import MarianTokenizer, PreTrainedModel

from headlab.core import HeadlabError
from headlab.hooks import Model
from headlab.shrink.marian_pieces import MarianPieces
from headlab.shrink.pieces import Pieces
from headlab.shrink.tokenizers_pieces import KINDS, TokenizersPieces


def read_pieces(model: Model) -> Pieces:
    """The pieces of a model's tokenizer.

    Raises:
        HeadlabError: It is neither Marian's nor one that the library tokenizers runs, it cannot be
            cut, or has pieces that the model has no embedding of.
    """
    pieces: Pieces
    if isinstance(model.tokenizer, MarianTokenizer):
        pieces = MarianPieces(model.tokenizer)
    elif getattr(model.tokenizer, "backend_tokenizer", None) is not None:
        pieces = TokenizersPieces(model.tokenizer)
    else:
        _refuse(model, "is neither Marian's nor one that the library tokenizers runs")
    obstacle = pieces.obstacle()
    if obstacle is not None:
        _refuse(model, obstacle)
    if not has_embedding_rows(model.module):
        _refuse(model, "has no embedding of its own for each token")
    rows = embedding_rows(model.module)
    if pieces.largest_id >= rows:
        _refuse(model, f"has ids up to {pieces.largest_id}, but the model has {rows} embeddings")
    return pieces


def _refuse(model: Model, what: str) -> NoReturn:
    raise HeadlabError(
        f"the tokenizer of {model.name} {what}; headlab cuts plain vocabularies of "
        f"{', '.join(KINDS)}, and Marian's. Keep the vocabulary with --vocabulary keep",
        code="vocabulary.tokenizer_unknown",
    )


def has_embedding_rows(module: PreTrainedModel) -> bool:
    """Whether a model has a row of embeddings for each token."""
    try:
        embeddings = module.get_input_embeddings()
    except NotImplementedError:  # as of CANINE, which hashes characters
        return False
    return isinstance(getattr(embeddings, "weight", None), torch.Tensor)


def embedding_rows(module: PreTrainedModel) -> int:
    """How many tokens a model has an embedding of; the tokenizer may have fewer."""
    weight = module.get_input_embeddings().weight
    assert isinstance(weight, torch.Tensor)
    return weight.shape[0]
