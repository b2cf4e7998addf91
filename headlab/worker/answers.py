"""What the device's thread computes for one request: figures and attention. Imports torch."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import BatchEncoding

from headlab.core import Evaluation, Head, HeadlabError
from headlab.core.parallel import one_thread
from headlab.evaluation import (
    Evaluator,
    accuracy_interval,
    answers_to,
    check_tokens,
    compare_as,
    longest,
    word_ids,
)
from headlab.hooks import Model, attention, excluded_ids, started
from headlab.masks import Mask, full_mask
from headlab.methods import answers_spec
from headlab.models import Tokenised, readable, spaced, tokenise, without_unknown_segments
from headlab.results import Store
from headlab.roles.tokenised import NO_WORD, special_ids
from headlab.tasks import Example, Task
from headlab.worker.schemas import (
    MAX_TOKENS,
    Answer,
    AttentionRequest,
    Figure,
    Weights,
)

# Evaluations as the figures that the worker sends.


def figures_of_mask(
    baselines: Iterator[Evaluation], evaluations: Iterator[Evaluation]
) -> Iterator[Figure]:
    """Figures of a mask, each over the same examples as an evaluation of it.

    Both evaluations grow side by side, so the first figure does not wait for the whole baseline.

    Args:
        baselines: Evaluations of the untouched model, over ever more examples.
        evaluations: Those of the masked model.
    """
    baseline: Evaluation | None = None
    for evaluation in evaluations:
        while baseline is None or baseline.n < evaluation.n:
            baseline = next(baselines)
        yield compare_as(partial(Figure, done=evaluation.done), baseline, evaluation)


def figure_of_baseline(evaluation: Evaluation) -> Figure:
    """Accuracy of the untouched model over the examples seen."""
    low, high = accuracy_interval(evaluation)
    return Figure(
        language=evaluation.language,
        n=evaluation.n,
        total=evaluation.total,
        accuracy=evaluation.accuracy,
        low=low,
        high=high,
        done=evaluation.done,
        omissions=evaluation.omissions,
    )


def evaluations_of_baseline(evaluator: Evaluator, store: Store) -> Iterator[Evaluation]:
    """Evaluations of the untouched model.

    A known or stored one comes at once; else they grow as they are computed, and the last one is
    stored.

    Args:
        evaluator: Of the examples.
        store: Where the answers of earlier processes are.
    """
    if evaluator.knows:
        yield from evaluator.stream(None)
        return
    run = store.run(answers_spec(evaluator.dataset))
    digest = full_mask(evaluator.model.grid).digest
    stored_evaluation = None
    with suppress(HeadlabError):  # damaged, in a cache that is read-only and takes no log
        stored_evaluation = run.answers(digest, evaluator.examples)
    if stored_evaluation is not None:
        evaluator.know(stored_evaluation)
    for evaluation in evaluator.stream(None):
        if evaluation.done and stored_evaluation is None:
            with suppress(HeadlabError):  # a figure needs no cache that can be written
                run.keep_answers(digest, evaluation, evaluator.inputs.units)
        yield evaluation


# Attention of chosen heads for one sentence, as the worker sends it.


def weights_of(model: Model, request: AttentionRequest) -> Weights:
    """Attention of some heads for one sentence or pair, cut to 64 tokens or what the model takes.

    Raises HeadlabError for unknown heads.
    """
    limit = min(MAX_TOKENS, longest(model))
    heads = [Head(*head) for head in request.heads]
    for head in heads:
        model.grid.index(head)
    words = _given_words(model, request)
    tokens = _tokens(model, request, words, limit)
    whole = _tokens(model, request, words, None).columns["input_ids"][0]
    columns = without_unknown_segments(tokens.columns, model.module.config)
    cut = columns["input_ids"][0]
    check_tokens(model, [cut])
    inputs = {name: torch.tensor(rows, device=model.device) for name, rows in columns.items()}
    pairs = bool(
        model.module.config.is_encoder_decoder
    )  # in which only the encoder attends from a plain sentence
    every = [
        head for head in model.grid.heads if request.maps and (not pairs or head.stack == "encoder")
    ]
    with one_thread(
        model.device
    ):  # threads that wait for each other take longer, by far on a busy CPU
        found = attention(model, {**inputs, **_target(model, heads)}, [*heads, *every])
    ends, special = set(excluded_ids(model.tokenizer, "separator")), special_ids(model)
    shown_words, places = _words(model, tokens, request, words, limit)
    return Weights(
        tokens=_token_texts(model.tokenizer, tokens, whole),
        ids=list(cut),
        weights={_key(head): found[head].double().numpy().round(3).tolist() for head in heads},
        separators=[place for place, token in enumerate(cut) if token in ends],
        special=[place for place, token in enumerate(cut) if token in special],
        truncated=len(whole) > len(cut),
        words=shown_words,
        places=places,
        maps={
            _key(head): b64encode((255 * found[head]).round().byte().numpy().tobytes()).decode(
                "ascii"
            )
            for head in every
        },
    )


def _key(head: Head) -> str:
    return f"{head.stack}.{head.layer}.{head.head}"


def _token_texts(tokenizer: Any, tokens: Tokenised, whole: Sequence[int]) -> list[str]:
    """The text of every token that is left of a sentence.

    Args:
        tokenizer: Of the model.
        tokens: The sentence, cut.
        whole: All its tokens: the rest of the last token's character may be cut off.
    """
    cut = tokens.columns["input_ids"][0]
    if not tokenizer.is_fast:  # it does not say which tokens are left
        return readable(tokenizer, cut)
    return tokens.of_row(0, readable(tokenizer, whole))


def _given_words(model: Model, request: AttentionRequest) -> list[str]:
    """The sentence as words, where the model labels words; empty for a text."""
    labels_words = type(model.module).__name__.endswith("ForTokenClassification")
    return list(request.words) or (
        request.text.split() if labels_words and request.pair is None else []
    )


def _tokens(
    model: Model, request: AttentionRequest, words: Sequence[str], max_tokens: int | None
) -> Tokenised:
    """Tokens of a request's sentence or pair, as an evaluation gives them to the model.

    Args:
        model: The model whose attention is asked for.
        request: The sentence or pair.
        words: Words of the sentence, where the model labels words; else empty.
        max_tokens: Tokens to cut the sentence to; None for all.
    """
    segment_ids = model.missing_segment_ids
    is_pair = request.pair is not None and not words
    return tokenise(
        model.tokenizer,
        [spaced(words, model.word_spaces) if words else request.text],
        [request.pair or ""] if is_pair else None,
        split=bool(words),
        segments=segment_ids.of_pairs if is_pair else segment_ids.of_texts,
        max_tokens=max_tokens,
    )


def _words(
    model: Model, tokens: Tokenised, request: AttentionRequest, words: Sequence[str], limit: int
) -> tuple[list[str], list[int]]:
    """A sentence's words, and the index of each token's word, -1 for none; both empty where they are not known.

    limit: number of tokens to which the sentence was cut.
    """
    if not tokens.batch.is_fast:
        return _words_of_python(model, tokens, request, words, limit)
    texts = [request.text, request.pair or ""]
    indices: dict[tuple[int, int], int] = {}  # words are counted anew in the second text of a pair
    places = []
    for side, word in zip(
        tokens.of_row(0, tokens.batch.sequence_ids(0)), tokens.word_ids(0), strict=True
    ):
        if word is None or side is None:
            places.append(NO_WORD)
        else:
            places.append(indices.setdefault((side, word), len(indices)))
    if words:
        return [words[word] for _, word in indices], places
    return [_word(tokens.batch, texts[side], side, word) for side, word in indices], places


def _words_of_python(
    model: Model, tokens: Tokenised, request: AttentionRequest, words: Sequence[str], limit: int
) -> tuple[list[str], list[int]]:
    """`_words` for tokenizers in Python, which do not know which word a token is of."""
    if request.pair is not None and not words:
        return [], []
    shown_words = list(words) or request.text.split()
    given_words = spaced(shown_words, model.word_spaces if words else "none")
    try:
        known = word_ids(model.tokenizer, given_words, tokens.columns["input_ids"][0], limit)
    except HeadlabError:
        return [], []
    return shown_words, [NO_WORD if place is None else place for place in known]


def _word(batch: BatchEncoding, text: str, side: int, word: int) -> str:
    span = batch.word_to_chars(0, word, side)
    return text[span.start : span.end].strip()


def answers_of(model: Model, task: Task, request: AttentionRequest) -> list[Answer]:
    """What the model says of a request's whole sentence, with its heads on and with them off."""
    kept = np.ones(model.grid.size, dtype=bool)
    kept[[model.grid.index(Head(*head)) for head in request.heads]] = False
    masks = (full_mask(model.grid), Mask(model.grid, kept, model.identity()))
    words = tuple(_given_words(model, request))
    example = Example("", request.text, 0, request.pair, words=words, labels=(0,) * len(words))
    of, (on, off) = answers_to(model, task, example, masks)
    told = []
    for word, before, after in zip(of, on, off, strict=True):
        first, then = int(before.argmax()), int(after.argmax())
        told.append(
            Answer(
                word=word,
                on=task.labels[first],
                p_on=before[first],
                off=task.labels[then],
                p_off=after[then],
            )
        )
    return told


def _target(model: Model, heads: list[Head]) -> dict[str, torch.Tensor]:
    """Further inputs of an encoder-decoder model. Raises HeadlabError for heads that attend from a target."""
    if not model.module.config.is_encoder_decoder:
        return {}
    for head in heads:
        if head.stack != "encoder":
            raise HeadlabError(
                f"head {head} attends from a translation, and a plain sentence has none; choose encoder heads",
                code="head.of_translation",
            )
    return started(model, 1)
