"""One pass over sentences with running sums for every head: attention measures, and hits for each role."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from headlab.core import Floats
from headlab.core.parallel import Tick, spread
from headlab.evaluation import Batch, cut, token_budget
from headlab.hooks import Model, sum_weights
from headlab.roles.tokenised import Given, Question, Scene, scene
from headlab.stats import TERMS, ratio_sums

# Sums over query tokens: largest weight, entropy, distance, weight on separators and on the first token.
MEASURES = (
    "confidence",
    "entropy, nats",
    "distance, tokens",
    "separator share",
    "first-token share",
)
TOKENS = (
    1 << 14
)  # per batch at most, padding included: one layer's weights take tokens times heads times width


@dataclass
class Sums:
    """Running sums for all heads, [layer row, head column, ...].

    measures: [..., MEASURES].  tokens: number of query tokens, [layer row].  roles: {role: [..., TERMS]}, as in
    `ratio_sums`.
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

    def add(self, other: Sums) -> None:
        """Add the sums of another part."""
        self.measures += other.measures
        self.tokens += other.tokens
        for name, values in other.roles.items():
            self.role(name)[...] += values


def look(
    model: Model, given: Given, exclude: str, offsets: Mapping[str, int], tick: Tick
) -> Iterator[tuple[int, Sums]]:
    """Yields (number of sentences, their sums) batch by batch, in an order independent of the number of cores.

    exclude: tokens that do not count as targets of confidence.  offsets: of the syntactic baselines.
    """

    def run(batch: Batch, lane_tick: Tick) -> Sums:
        lane_tick()
        return sums_of(model, given, batch, exclude, offsets)

    for batch, found in spread(batches(model, given), run, on=model, tick=tick):
        yield len(batch.rows), found


def batches(model: Model, given: Given) -> list[Batch]:
    """All sentences, sorted by length."""
    return list(cut(given, np.arange(len(given)), min(token_budget(model), TOKENS)))


def evaluated_layers(model: Model, given: Given) -> dict[int, str]:
    """{layer row of a gate array: its stack}, for the stacks that are evaluated."""
    return {row: stack for row, stack in enumerate(model.grid.rows) if stack in given.stacks}


def answers(here: Scene, weights: torch.Tensor) -> Iterator[tuple[Question, torch.Tensor]]:
    """Each question with the key that every head's queries attend to most, int [row, head, query]; -1 for a tie."""
    most: dict[str, torch.Tensor] = {}
    for question in here.questions:
        if question.among not in most:
            seen = weights if question.among != "words" else _merged(here, weights)
            most[question.among] = _most(
                seen.masked_fill(~here.targets[question.among][:, None], -1)
            )
        yield question, most[question.among]


def right(question: Question, most: torch.Tensor) -> torch.Tensor:
    """Whether each query asked attends most to a correct key, bool [row, head, query]."""
    wide = question.right[:, None].expand(-1, most.shape[1], -1, -1)
    return (
        wide.gather(3, most.clamp(min=0)[..., None]).squeeze(3)
        & question.asked[:, None]
        & (most >= 0)
    )


def _most(weights: torch.Tensor) -> torch.Tensor:
    """The key of the largest weight; -1 for a tie (few bits, or all keys masked), as the first is arbitrary."""
    largest, place = weights.max(dim=3)
    return place.masked_fill((weights == largest[..., None]).sum(dim=3) > 1, -1)


def sums_of(
    model: Model, given: Given, batch: Batch, exclude: str, offsets: Mapping[str, int]
) -> Sums:
    """What the heads attend to in one batch, summed over its sentences."""
    out, stacks = Sums.of(model), evaluated_layers(model, given)
    scenes = {stack: scene(model, given, batch, stack, exclude, offsets) for stack in given.stacks}
    counts = {
        stack: [_counts(question) for question in scenes[stack].questions] for stack in scenes
    }

    def observe(row: int, weights: torch.Tensor) -> None:
        here, wide = scenes[stacks[row]], weights.shape[1]
        out.measures[row, :wide] = _measured(here, weights)
        out.tokens[row] = float(here.looking.sum())
        for (question, most), count in zip(
            answers(here, weights), counts[stacks[row]], strict=True
        ):
            hits = right(question, most).sum(dim=2).T
            out.role(question.role)[row, :wide] = ratio_sums(_numbers(hits), *count)

    sum_weights(model, batch.inputs, observe, stacks)
    return out


def _counts(question: Question) -> tuple[Floats, Floats]:
    """Number of queries asked in each sentence, and how many of them would be right by chance."""
    by_chance = question.chance.masked_fill(~question.asked, 0).sum(dim=1)
    return _numbers(question.asked.sum(dim=1)), _numbers(by_chance)


def _merged(here: Scene, weights: torch.Tensor) -> torch.Tensor:
    """Weights between words [row, head, word, word]: mean over the query word's tokens, sum over the key word's."""
    if here.merge is None:
        raise ValueError("words are asked about where none are known")
    means, sums = (part.to(weights.dtype)[:, None] for part in here.merge)
    return means @ weights @ sums


def _measured(here: Scene, weights: torch.Tensor) -> Floats:
    """Sums of MEASURES over query tokens, float [head, MEASURES]; distance is 0 across stacks."""
    largest = weights.masked_fill(~here.counted[:, None, None, :], 0).amax(dim=3)
    entropy = torch.special.entr(weights).sum(dim=3)
    query, key = (torch.arange(size, device=weights.device) for size in weights.shape[2:])
    away = (query[:, None] - key[None, :]).abs().to(weights.dtype)
    distance = (weights * away).sum(dim=3) if here.square else torch.zeros_like(largest)
    shares = (
        weights.masked_fill(~which[:, None, None, :], 0).sum(dim=3)
        for which in (here.separator, here.first)
    )
    found = torch.stack([largest, entropy, distance, *shares], dim=-1)
    return _numbers(
        found.masked_fill(~here.looking[:, None, :, None], 0).sum(dim=(0, 2), dtype=torch.float64)
    )


def _numbers(values: torch.Tensor) -> Floats:
    return np.asarray(values.cpu().numpy(), dtype=np.float64)
