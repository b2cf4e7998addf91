"""One pass over sentences with running sums for every head.

They are attention measures, and hits for each role.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from headlab.core import Floats, Tick, run_in_parallel
from headlab.evaluation import Batch, length_sorted_batches, token_budget
from headlab.hooks import Model, sum_weights
from headlab.roles.tokenised import Question, StackView, TokenisedSentences, stack_view
from headlab.stats import TERMS, ratio_sums

# Sums over query tokens: largest weight, entropy, distance, weight on separators and on the first
# token.
MEASURES = (
    "confidence",
    "entropy, nats",
    "distance, tokens",
    "separator share",
    "first-token share",
)
# Of a batch at most, padding included: one layer's weights take tokens times heads times width.
BATCH_TOKENS = 1 << 14


@dataclass
class Sums:
    """Running sums for all heads.

    Attributes:
        measures: Sums of MEASURES over query tokens, [layer row, head column, measure].
        tokens: Number of query tokens, [layer row].
        roles: Sums of each role as in `ratio_sums`, [layer row, head column, term].
    """

    measures: Floats
    tokens: Floats
    roles: dict[str, Floats] = field(default_factory=dict)

    @staticmethod
    def of(model: Model) -> Sums:
        """Zero sums for a model."""
        grid = model.grid
        return Sums(np.zeros((grid.layers, grid.width, len(MEASURES))), np.zeros(grid.layers))

    def role(self, name: str) -> Floats:
        """The sums of a role, to add to."""
        return self.roles.setdefault(name, np.zeros((*self.measures.shape[:2], len(TERMS))))

    def only_roles(self) -> Sums:
        """The sums without measures."""
        return Sums(np.zeros_like(self.measures), np.zeros_like(self.tokens), self.roles)

    def add(self, part_sums: Sums) -> None:
        """Add the sums of another part."""
        self.measures += part_sums.measures
        self.tokens += part_sums.tokens
        for name, values in part_sums.roles.items():
            self.role(name)[...] += values


def sums_by_batch(
    model: Model,
    tokenised: TokenisedSentences,
    exclude: str,
    offsets: Mapping[str, int],
    tick: Tick,
) -> Iterator[tuple[int, Sums]]:
    """Sums batch by batch, in an order independent of the number of cores.

    Args:
        model: The model whose heads are studied.
        tokenised: The sentences.
        exclude: Tokens that do not count as targets of confidence.
        offsets: The fixed offset that each syntactic role is compared with.
        tick: Called between batches; may raise to stop.

    Yields:
        The number of sentences of a batch, and their sums.
    """

    def run(batch: Batch, lane_tick: Tick) -> Sums:
        lane_tick()
        return sums_of(model, tokenised, batch, exclude, offsets)

    for batch, batch_sums in run_in_parallel(
        batches(model, tokenised), run, model=model, tick=tick
    ):
        yield len(batch.rows), batch_sums


def batches(model: Model, tokenised: TokenisedSentences) -> list[Batch]:
    """All sentences, sorted by length."""
    max_tokens = min(token_budget(model), BATCH_TOKENS)
    return list(length_sorted_batches(tokenised, np.arange(len(tokenised)), max_tokens))


def evaluated_layers(model: Model, tokenised: TokenisedSentences) -> dict[int, str]:
    """The stack of each layer row of a gate array, for the stacks that are evaluated."""
    return {row: stack for row, stack in enumerate(model.grid.rows) if stack in tokenised.stacks}


def most_attended_keys(
    view: StackView, weights: torch.Tensor
) -> Iterator[tuple[Question, torch.Tensor]]:
    """Each question with the key that every head's queries attend to most.

    Args:
        view: One stack's view of a batch.
        weights: Attention weights of a layer of the stack, [row, head, query, key].

    Yields:
        The question and the keys, int [row, head, query]; -1 for a tie.
    """
    keys_by_kind: dict[str, torch.Tensor] = {}
    for question in view.questions:
        key_kind = question.key_kind
        if key_kind not in keys_by_kind:
            kind_weights = weights
            if key_kind == "words":
                kind_weights = _merged_to_words(view, weights)
            is_target = view.targets[key_kind][:, None]
            keys_by_kind[key_kind] = _most_attended(kind_weights.masked_fill(~is_target, -1))
        yield question, keys_by_kind[key_kind]


def attends_correctly(question: Question, keys: torch.Tensor) -> torch.Tensor:
    """Whether each query that is asked attends most to a correct key, bool [row, head, query].

    Args:
        question: The question.
        keys: The key that each query attends to most, int [row, head, query]; -1 for a tie.
    """
    is_correct = question.is_correct[:, None].expand(-1, keys.shape[1], -1, -1)
    is_correct_key = is_correct.gather(3, keys.clamp(min=0)[..., None]).squeeze(3)
    return is_correct_key & question.is_asked[:, None] & (keys >= 0)


def _most_attended(weights: torch.Tensor) -> torch.Tensor:
    """The key of the largest weight, int [row, head, query].

    It is -1 for a tie (few bits, or all keys masked), as the first key is arbitrary.
    """
    largest, key = weights.max(dim=3)
    is_tie = (weights == largest[..., None]).sum(dim=3) > 1
    return key.masked_fill(is_tie, -1)


def sums_of(
    model: Model,
    tokenised: TokenisedSentences,
    batch: Batch,
    exclude: str,
    offsets: Mapping[str, int],
) -> Sums:
    """What the heads attend to in one batch, summed over its sentences.

    Args:
        model: The model whose heads are studied.
        tokenised: The sentences.
        batch: Some of them.
        exclude: Tokens that do not count as targets of confidence.
        offsets: The fixed offset that each syntactic role is compared with.
    """
    sums = Sums.of(model)
    stack_of_layer = evaluated_layers(model, tokenised)
    views: dict[str, StackView] = {}
    counts: dict[str, list[tuple[Floats, Floats]]] = {}
    for stack in tokenised.stacks:
        view = stack_view(model, tokenised, batch, stack, exclude, offsets)
        views[stack] = view
        counts[stack] = [_counts(question) for question in view.questions]

    def observe(layer: int, weights: torch.Tensor) -> None:
        stack = stack_of_layer[layer]
        view = views[stack]
        heads = weights.shape[1]
        sums.measures[layer, :heads] = _measure_sums(view, weights)
        sums.tokens[layer] = float(view.is_query.sum())
        questions_and_keys = most_attended_keys(view, weights)
        for (question, keys), count in zip(questions_and_keys, counts[stack], strict=True):
            hits = attends_correctly(question, keys).sum(dim=2).T
            sums.role(question.role)[layer, :heads] = ratio_sums(_numbers(hits), *count)

    sum_weights(model, batch.inputs, observe, stack_of_layer)
    return sums


def _counts(question: Question) -> tuple[Floats, Floats]:
    """Number of queries asked in each sentence, and how many of them would be right by chance."""
    by_chance = question.chance.masked_fill(~question.is_asked, 0).sum(dim=1)
    return _numbers(question.is_asked.sum(dim=1)), _numbers(by_chance)


def _merged_to_words(view: StackView, weights: torch.Tensor) -> torch.Tensor:
    """Weights between words, [row, head, word, word].

    They are means over the tokens of the query's word, and sums over those of the key's.
    """
    if view.merge is None:
        raise ValueError("words are asked about where none are known")
    means, sums = (part.to(weights.dtype)[:, None] for part in view.merge)
    return means @ weights @ sums


def _measure_sums(view: StackView, weights: torch.Tensor) -> Floats:
    """Sums of MEASURES over query tokens, float [head, measure]; distance is 0 across stacks."""
    largest = _weights_on(view.counts_as_target, weights).amax(dim=3)
    entropy = torch.special.entr(weights).sum(dim=3)
    distance = torch.zeros_like(largest)
    if view.within_stack:
        query = torch.arange(weights.shape[2], device=weights.device)
        key = torch.arange(weights.shape[3], device=weights.device)
        token_distance = (query[:, None] - key[None, :]).abs().to(weights.dtype)
        distance = (weights * token_distance).sum(dim=3)
    separator_share = _weights_on(view.is_separator, weights).sum(dim=3)
    first_token_share = _weights_on(view.is_first, weights).sum(dim=3)
    # [row, head, query, measure]
    measures = torch.stack([largest, entropy, distance, separator_share, first_token_share], dim=-1)
    of_queries = measures.masked_fill(~view.is_query[:, None, :, None], 0)
    return _numbers(of_queries.sum(dim=(0, 2), dtype=torch.float64))


def _weights_on(is_counted: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Weights on some keys, bool [row, key]; 0 on the others."""
    return weights.masked_fill(~is_counted[:, None, None, :], 0)


def _numbers(values: torch.Tensor) -> Floats:
    return np.asarray(values.cpu().numpy(), dtype=np.float64)
