"""A small game whose gains slopes foresee, and runs of `shapley` on it and on a tiny model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headlab.core import Bools, Floats, Ints
from headlab.hooks import Model
from headlab.methods import joined
from headlab.methods.joined import JoinedTally
from headlab.methods.run import score
from headlab.methods.sampling import SamplingPlan
from headlab.methods.smoothed import SlopePlan
from headlab.methods.table import MOST_SLOPE_DRAWS
from headlab.results import HeadScores
from support.table_game import TableGame, right
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

PLAYERS = 5
EXAMPLES = 16


@dataclass
class SlopedGame(TableGame):
    """A game that knows its gains and gives them as slopes.

    Attributes:
        slope_factor: What the slopes are multiplied by: 1 for true ones.
        slope_order: Whose gain stands at each player's place: its own unless given.
        margin_spread: Standard deviation of the margins; 0 for equal ones.
    """

    slope_factor: float = 1.0
    slope_order: tuple[int, ...] = tuple(range(PLAYERS))
    margin_spread: float = 1.0

    def slopes(self, kept: Bools, examples: Ints, bandwidth: Floats) -> Floats:
        gains = self.marginals(kept, np.ones_like(kept), examples)
        return self.slope_factor * gains[:, list(self.slope_order)]

    def margins(self, kept: Bools, examples: Ints) -> Floats:
        margins = self.margin_spread * np.where(np.arange(len(kept)) % 2, 1.0, -1.0)
        return np.stack([np.ones(len(kept)), margins, margins**2], axis=1)


def worth(example: int, present: frozenset[int]) -> float:
    """A vote: right where enough of the weights are present, more of them in later examples."""
    weights = (0.4, 0.25, 0.2, 0.1, 0.05)
    votes = sum(weights[player] for player in present)
    return float(votes > 0.1 + 0.7 * example / EXAMPLES)


def sloped_game(**fields: Any) -> SlopedGame:
    return SlopedGame(PLAYERS, EXAMPLES, worth, foresight=right, **fields)


def slope_plan_of(estimand: str = "shapley") -> SlopePlan:
    return SlopePlan(MOST_SLOPE_DRAWS, 1.0, estimand, 0.95)


def tallies_of(
    game: SlopedGame, plan: SamplingPlan, estimand: str = "shapley", **settings: Any
) -> list[JoinedTally]:
    settings = {"seed": 0, **settings}
    return list(joined.estimate(game, plan, slope_plan_of(estimand), **settings))


def shapley_scores(model: Model, **settings: object) -> HeadScores:
    settings = {"language": "xx", "method": "shapley", "size": 16, "samples": 32, **settings}
    return score(model, tiny_task(), **settings)


def bert() -> Model:
    return tiny_model("bert", tokenizer=tiny_tokenizer())
