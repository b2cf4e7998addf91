"""What the device's thread computes for one request: figures and attention. Imports torch."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import BatchEncoding

from headlab.core import Evaluation, Head, HeadlabError, memory_errors_explained, one_thread
from headlab.evaluation import (
    Evaluator,
    accuracy_interval,
    answers_to,
    check_tokens,
    compare_as,
    max_text_tokens,
    word_ids,
)
from headlab.hooks import (
    Model,
    attention_of_heads,
    excluded_ids,
    gated_in_this_thread,
    minimal_decoder_inputs,
    not_finite_error,
)
from headlab.masks import Mask, full_mask
from headlab.methods import answers_spec
from headlab.models import Tokenised, readable_tokens, spaced, tokenise, without_unknown_segments
from headlab.results import Store
from headlab.roles.tokenised import NO_WORD, special_ids
from headlab.tasks import Example, Task
from headlab.worker.schemas import (
    MAX_TOKENS,
    Answer,
    AttentionRequest,
    Figure,
    NextToken,
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
        yield compare_as(partial(Figure, done=evaluation.is_complete), baseline, evaluation)


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
        done=evaluation.is_complete,
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
    if evaluator.has_baseline:
        yield from evaluator.stream(None)
        return
    stored_run = store.run(answers_spec(evaluator.dataset))
    digest = full_mask(evaluator.model.grid).digest
    stored_evaluation = None
    with suppress(HeadlabError):  # damaged, in a cache that is read-only and takes no log
        stored_evaluation = stored_run.answers(digest, evaluator.examples)
    if stored_evaluation is not None:
        evaluator.set_baseline(stored_evaluation)
    for evaluation in evaluator.stream(None):
        if evaluation.is_complete and stored_evaluation is None:
            with suppress(HeadlabError):  # a figure needs no cache that can be written
                stored_run.keep_answers(digest, evaluation, evaluator.inputs.units)
        yield evaluation


def evaluations_of_mask(
    evaluator: Evaluator, mask: Mask, ablation: str, store: Store
) -> Iterator[Evaluation]:
    """Evaluations under a mask; a known or stored one comes at once.

    Nothing is stored: people try many masks.

    Args:
        evaluator: Of the examples.
        mask: Of the model's heads.
        ablation: What stands in the place of a removed head.
        store: Where answers under some masks are, such as those of the demo's results.
    """
    if not evaluator.has_evaluation(mask, ablation):
        stored_evaluation = None
        with suppress(HeadlabError):  # damaged, in a cache that is read-only and takes no log
            stored_run = store.run(answers_spec(evaluator.dataset, ablation))
            stored_evaluation = stored_run.answers(mask.digest, evaluator.examples)
        if stored_evaluation is not None:
            evaluator.set_evaluation(mask, stored_evaluation, ablation)
    yield from evaluator.stream(mask, ablation=ablation)


# Attention of chosen heads for one sentence, as the worker sends it.


def attention_weights(model: Model, request: AttentionRequest) -> Weights:
    """Attention of some heads for one sentence or pair, cut to 64 tokens or what the model takes.

    Raises:
        HeadlabError: For unknown heads.
    """
    limit = min(MAX_TOKENS, max_text_tokens(model))
    heads = [Head(*head) for head in request.heads]
    for head in heads:
        model.grid.index(head)
    words = _given_words(model, request)
    tokens = _tokens(model, request, words, limit)
    all_token_ids = _tokens(model, request, words, None).columns["input_ids"][0]
    token_ids = tokens.columns["input_ids"][0]
    inputs = _inputs_of(model, tokens)
    map_heads = _heads_of_maps(model) if request.maps else []
    # Threads that wait for each other take longer, by far on a busy CPU.
    with one_thread(model.device):
        attention_by_head = attention_of_heads(
            model, {**inputs, **_target_inputs(model, heads)}, [*heads, *map_heads]
        )
    weights = {}
    for head in heads:
        weights[_head_key(head)] = attention_by_head[head].double().numpy().round(3).tolist()
    maps = {}
    for head in map_heads:
        shades = (255 * attention_by_head[head]).round().byte().numpy()
        maps[_head_key(head)] = b64encode(shades.tobytes()).decode("ascii")
    separator_ids = set(excluded_ids(model.tokenizer, "separator"))
    special_token_ids = special_ids(model)
    shown_words, word_indices = _words_and_indices(model, tokens, request, words, limit)
    return Weights(
        tokens=_token_texts(model.tokenizer, tokens, all_token_ids),
        ids=list(token_ids),
        weights=weights,
        separators=_positions_of(separator_ids, token_ids),
        special=_positions_of(special_token_ids, token_ids),
        truncated=len(all_token_ids) > len(token_ids),
        words=shown_words,
        places=word_indices,
        maps=maps,
    )


def _heads_of_maps(model: Model) -> list[Head]:
    """Every head that attends from a plain sentence: of an encoder-decoder, the encoder's."""
    heads = list(model.grid.heads)
    if model.module.config.is_encoder_decoder:
        return [head for head in heads if head.stack == "encoder"]
    return heads


def _positions_of(wanted_ids: Collection[int], token_ids: Sequence[int]) -> list[int]:
    return [position for position, token in enumerate(token_ids) if token in wanted_ids]


def _head_key(head: Head) -> str:
    return f"{head.stack}.{head.layer}.{head.head}"


def _token_texts(tokenizer: Any, tokens: Tokenised, all_token_ids: Sequence[int]) -> list[str]:
    """The text of every token that is left of a sentence.

    Args:
        tokenizer: Of the model.
        tokens: The sentence, cut.
        all_token_ids: All its tokens: the rest of the last token's character may be cut off.
    """
    token_ids = tokens.columns["input_ids"][0]
    if not tokenizer.is_fast:  # it does not say which tokens are left
        return readable_tokens(tokenizer, token_ids)
    return tokens.of_row(0, readable_tokens(tokenizer, all_token_ids))


def _given_words(model: Model, request: AttentionRequest) -> list[str]:
    """The sentence as words, where the model labels words; empty for a text."""
    labels_words = type(model.module).__name__.endswith("ForTokenClassification")
    if request.words:
        return list(request.words)
    if labels_words and request.pair is None:
        return request.text.split()
    return []


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


def _inputs_of(model: Model, tokens: Tokenised) -> dict[str, torch.Tensor]:
    """Inputs of a model for one sentence, each int [1, token].

    Raises:
        HeadlabError: The model has no embedding of a token.
    """
    columns = without_unknown_segments(tokens.columns, model.module.config)
    check_tokens(model, [columns["input_ids"][0]])
    return {name: torch.tensor(rows, device=model.device) for name, rows in columns.items()}


def _words_and_indices(
    model: Model, tokens: Tokenised, request: AttentionRequest, words: Sequence[str], limit: int
) -> tuple[list[str], list[int]]:
    """A sentence's words, and the index of each token's word, -1 for none.

    Both are empty where they are not known.

    Args:
        model: Whose tokenizer made the tokens.
        tokens: The sentence, cut.
        request: The sentence or pair.
        words: Words of the sentence, where the model labels words; else empty.
        limit: Number of tokens to which the sentence was cut.
    """
    if not tokens.batch.is_fast:
        return _words_and_indices_of_python(model, tokens, request, words, limit)
    texts = [request.text, request.pair or ""]
    # A tokenizer counts words anew in the second text of a pair.
    word_numbers: dict[tuple[int, int], int] = {}
    word_indices = []
    text_indices = tokens.of_row(0, tokens.batch.sequence_ids(0))
    for text_index, word in zip(text_indices, tokens.word_ids(0), strict=True):
        if word is None or text_index is None:
            word_indices.append(NO_WORD)
        else:
            word_indices.append(word_numbers.setdefault((text_index, word), len(word_numbers)))
    if words:
        return [words[word] for _, word in word_numbers], word_indices
    shown_words = [
        _word_text(tokens.batch, texts[text_index], text_index, word)
        for text_index, word in word_numbers
    ]
    return shown_words, word_indices


def _words_and_indices_of_python(
    model: Model, tokens: Tokenised, request: AttentionRequest, words: Sequence[str], limit: int
) -> tuple[list[str], list[int]]:
    """`_words_and_indices` for tokenizers in Python, which do not know which word a token is of."""
    if request.pair is not None and not words:
        return [], []
    shown_words = list(words) or request.text.split()
    given_words = spaced(shown_words, model.word_spaces if words else "none")
    try:
        token_words = word_ids(model.tokenizer, given_words, tokens.columns["input_ids"][0], limit)
    except HeadlabError:
        return [], []
    word_indices = [NO_WORD if word is None else word for word in token_words]
    return shown_words, word_indices


def _word_text(batch: BatchEncoding, text: str, text_index: int, word: int) -> str:
    span = batch.word_to_chars(0, word, text_index)
    return text[span.start : span.end].strip()


def _mask_without(model: Model, request: AttentionRequest) -> Mask:
    """The mask that removes the heads of a request and no others."""
    kept_heads = np.ones(model.grid.size, dtype=bool)
    kept_heads[[model.grid.index(Head(*head)) for head in request.heads]] = False
    return Mask(model.grid, kept_heads, model.identity())


def answers_of(model: Model, task: Task, request: AttentionRequest) -> list[Answer]:
    """What the model says of a request's whole sentence, with its heads on and with them off."""
    masks = (full_mask(model.grid), _mask_without(model, request))
    words = tuple(_given_words(model, request))
    example = Example("", request.text, 0, request.pair, words=words, labels=(0,) * len(words))
    answered_words, (baseline_probabilities, masked_probabilities) = answers_to(
        model, task, example, masks
    )
    answers = []
    for word, baseline, masked in zip(
        answered_words, baseline_probabilities, masked_probabilities, strict=True
    ):
        baseline_class = int(baseline.argmax())
        masked_class = int(masked.argmax())
        answers.append(
            Answer(
                word=word,
                on=task.labels[baseline_class],
                p_on=baseline[baseline_class],
                off=task.labels[masked_class],
                p_off=masked[masked_class],
            )
        )
    return answers


def next_tokens_of(model: Model, request: AttentionRequest) -> list[NextToken]:
    """What a decoder expects behind each token of a request's sentence, its heads on and off.

    The sentence is cut as in `attention_weights`. Two forward passes.

    Raises:
        HeadlabError: The sentence does not fit in memory, or probabilities are not finite.
    """
    limit = min(MAX_TOKENS, max_text_tokens(model))
    words = _given_words(model, request)
    tokens = _tokens(model, request, words, limit)
    token_count = len(tokens.columns["input_ids"][0])
    is_cut = len(_tokens(model, request, words, None).columns["input_ids"][0]) > token_count
    inputs = _inputs_of(model, tokens)
    with one_thread(model.device), memory_errors_explained():
        on = _expected_tokens(model, inputs, full_mask(model.grid))
        off = _expected_tokens(model, inputs, _mask_without(model, request))
    # Of a cut sentence, the token that follows the last one is known but not shown.
    last_position = token_count - 1 if is_cut else token_count
    next_tokens = []
    for position in range(1, last_position + 1):
        index = position - 1
        is_known = position < token_count
        next_tokens.append(
            NextToken(
                position=position,
                p_on=on.probabilities[index] if is_known else None,
                p_off=off.probabilities[index] if is_known else None,
                top_on=on.top_texts[index],
                p_top_on=on.top_probabilities[index],
                top_off=off.top_texts[index],
                p_top_off=off.top_probabilities[index],
            )
        )
    return next_tokens


class ExpectedTokens(NamedTuple):
    """What a language model expects behind each token of a sentence.

    Attributes:
        probabilities: Of the token that follows; one less than there are tokens.
        top_texts: The most probable token.
        top_probabilities: Its probability.
    """

    probabilities: list[float]
    top_texts: list[str]
    top_probabilities: list[float]


def _expected_tokens(
    model: Model, inputs: Mapping[str, torch.Tensor], mask: Mask
) -> ExpectedTokens:
    """What a decoder expects in one sentence under a mask, in one forward pass.

    Args:
        model: The decoder.
        inputs: Of the sentence.
        mask: Which of its heads are on.
    """
    with torch.inference_mode(), gated_in_this_thread(model, mask):
        logits = model.module(**inputs).logits[0]
    if not bool(logits.isfinite().all()):
        raise not_finite_error(
            model,
            "probabilities that are not finite for this sentence",
            code="model.answers_not_finite",
        )
    shares = logits.float().softmax(-1)
    following_ids = inputs["input_ids"][0, 1:]
    top_shares, top_ids = shares.max(-1)
    return ExpectedTokens(
        probabilities=shares[:-1].gather(1, following_ids[:, None])[:, 0].tolist(),
        top_texts=[readable_tokens(model.tokenizer, [token])[0] for token in top_ids.tolist()],
        top_probabilities=top_shares.tolist(),
    )


def _target_inputs(model: Model, heads: list[Head]) -> dict[str, torch.Tensor]:
    """Further inputs of an encoder-decoder model.

    Raises:
        HeadlabError: For heads that attend from a target.
    """
    if not model.module.config.is_encoder_decoder:
        return {}
    for head in heads:
        if head.stack != "encoder":
            raise HeadlabError(
                f"head {head} attends from a translation, and a plain sentence has none; "
                "choose encoder heads",
                code="head.of_translation",
            )
    return minimal_decoder_inputs(model, 1)
