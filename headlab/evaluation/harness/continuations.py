"""Log-probabilities of what a task of lm-evaluation-harness asks for, with some heads off."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from headlab.core import HeadlabError, one_thread, run_in_parallel
from headlab.evaluation.context import context_length
from headlab.evaluation.encoding import (
    NO_TARGET,
    TokenQueries,
    adds_no_token,
    log_probabilities,
    shared_length,
    tokens_of_texts,
)
from headlab.evaluation.evaluator import Batch, length_sorted_batches, token_budget
from headlab.evaluation.harness.notes import TaskNotes
from headlab.hooks import ActiveGates, Model
from headlab.models import tokenizer_output


@dataclass(frozen=True)
class Continuation:
    """A text whose log-probability is asked for, given the text before it.

    Attributes:
        task: name of its task.
        document: number of its document; None where it belongs to none.
        context: the text before it; may be empty.
        text: the continuation itself.
    """

    task: str
    document: Hashable
    context: str
    text: str


@dataclass(frozen=True)
class ContinuationTokens:
    """A continuation as tokens, with the tokens that it is conditioned on.

    Attributes:
        context: tokens before it, at least one.
        tokens: tokens that are scored, at least one.
        task: name of its task.
        document: number of its document.
    """

    context: list[int]
    tokens: list[int]
    task: str = ""
    document: Hashable = None


def text_tokens(model: Model, text: str) -> list[int]:
    """Tokens of a text, after a start token where the tokenizer puts one and the text has none."""
    start = model.tokenizer.bos_token
    if start and text.startswith(start):
        return list(tokenizer_output(model.tokenizer, text, add_special_tokens=False)["input_ids"])
    return tokens_of_texts(model, [text])[0]


def continuation_tokens(
    model: Model, continuations: Sequence[Continuation], prefix: int, notes: TaskNotes
) -> list[ContinuationTokens]:
    """Tokens of continuations, those of one document and context conditioned on the same tokens.

    A tokenizer may merge the end of a context with a continuation.  The context of all of them
    then ends before the merged token, as in headlab's own choices.

    Args:
        model: whose tokenizer is used.
        continuations: what a task asks for.
        prefix: the token before a continuation that no other token stands before.
        notes: where documents are counted whose tokens are merged.

    Raises:
        HeadlabError: for a continuation without a token, naming its document.
    """
    alternatives = defaultdict[Hashable, list[int]](list)
    for index, continuation in enumerate(continuations):
        document = ("alone", index) if continuation.document is None else continuation.document
        alternatives[continuation.task, document, continuation.context].append(index)
    tokens_by_index: dict[int, ContinuationTokens] = {}
    for indices in alternatives.values():
        choices = [continuations[index] for index in indices]
        tokens_by_index |= zip(indices, _choice_tokens(model, choices, prefix, notes), strict=True)
    return [tokens_by_index[index] for index in range(len(continuations))]


def _choice_tokens(
    model: Model, choices: Sequence[Continuation], prefix: int, notes: TaskNotes
) -> list[ContinuationTokens]:
    """Tokens of the continuations of one context."""
    task = choices[0].task
    document = choices[0].document
    context = choices[0].context
    for choice in choices:
        if not choice.text.strip():
            notes.blank[task].add(document)
    if not context:
        return [_without_context(model, choice, prefix) for choice in choices]
    # White space goes to the continuation, as in the harness: tokenizers join it to words.
    stripped_context = context.rstrip()
    context_tokens = text_tokens(model, stripped_context)
    unstripped_tokens = context_tokens
    if stripped_context != context:
        unstripped_tokens = text_tokens(model, context)
    continued_rows = [text_tokens(model, context + choice.text) for choice in choices]
    for choice, continued in zip(choices, continued_rows, strict=True):
        if (
            not choice.text
            or adds_no_token(context_tokens, continued)
            or continued == unstripped_tokens
        ):
            raise _empty(model, choice)
    shared_tokens = shared_length(context_tokens, continued_rows)
    if shared_tokens < len(context_tokens):
        notes.merged[task].add(document)
    shared_context = continued_rows[0][:shared_tokens] or [prefix]
    return [
        ContinuationTokens(shared_context, continued[shared_tokens:], task, document)
        for continued in continued_rows
    ]


def _without_context(model: Model, choice: Continuation, prefix: int) -> ContinuationTokens:
    """Tokens of a continuation that no text stands before, after the prefix token."""
    tokens = list(
        tokenizer_output(model.tokenizer, choice.text, add_special_tokens=False)["input_ids"]
    )
    if tokens[:1] == [prefix]:
        tokens = tokens[1:]
    if not tokens:
        raise _empty(model, choice)
    return ContinuationTokens([prefix], tokens, choice.task, choice.document)


def _empty(model: Model, choice: Continuation) -> HeadlabError:
    return HeadlabError(
        f"{choice.task}, document {choice.document}: the tokenizer of {model.name} gives "
        f"{choice.text!r:.60}, which is to follow {choice.context[-40:]!r}, no token, so it has no "
        "probability; give a longer choice, or leave the document out",
        code="data.choice_empty",
    )


def log_likelihoods(
    model: Model, gates: torch.Tensor, continuations: Sequence[ContinuationTokens], notes: TaskNotes
) -> list[tuple[float, bool]]:
    """Log-probability of each continuation in nats, and whether it is what greedy decoding gives.

    Contexts that are too long for the model lose their beginning.

    Args:
        model: a decoder.
        gates: of its heads, float [layer, head].
        continuations: with their contexts.
        notes: where documents are counted whose context is cut.

    Raises:
        HeadlabError: for a continuation that is too long itself, naming its document.
    """
    limit = context_length(model)
    rows = []
    asked_positions = []
    for continuation in continuations:
        tokens = continuation.tokens
        if len(tokens) > limit:
            raise HeadlabError(
                f"{continuation.task}, document {continuation.document}: {len(tokens):,} tokens to "
                f"score, and headlab takes {limit:,} with {model.name}; leave the document out, or "
                "use a model that takes more",
                code="data.text_too_long",
            )
        row = [*continuation.context, *tokens[:-1]]
        if len(row) > limit:
            notes.cut[continuation.task].add(continuation.document)
            row = row[-limit:]
        rows.append(row)
        asked_positions.append(list(range(len(row) - len(tokens), len(row))))
    names = [str(number) for number in range(len(rows))]
    targets = [continuation.tokens for continuation in continuations]
    inputs = TokenQueries(model, "lm-eval", names, rows, asked_positions, targets)
    with one_thread(model.device):
        batches = list(length_sorted_batches(inputs, np.arange(len(rows)), token_budget(model)))

    def scores_of_batch(batch: Batch, _tick: Callable[[], None]) -> Iterable[tuple[float, bool]]:
        return _batch_scores(model, gates, inputs, batch)

    scores_by_row: dict[int, tuple[float, bool]] = {}
    for batch, scores in run_in_parallel(batches, scores_of_batch, model=model, tick=lambda: None):
        scores_by_row |= zip(batch.rows.tolist(), scores, strict=True)
    return [scores_by_row[row] for row in range(len(rows))]


def _batch_scores(
    model: Model,
    gates: torch.Tensor,
    inputs: TokenQueries,
    batch: Batch,
) -> list[tuple[float, bool]]:
    """Log-probability of each continuation of a batch, and whether greedy decoding gives it."""
    with torch.inference_mode(), model.active(ActiveGates(gates=gates)):
        logits = inputs.logits(batch.inputs).float()
    targets = inputs.targets(batch.rows)
    sums = log_probabilities(logits, targets).sum(dim=-1)
    greedy = ((logits.argmax(dim=-1) == targets) | (targets == NO_TARGET)).all(dim=-1)
    return list(zip(sums.tolist(), greedy.tolist(), strict=True))
