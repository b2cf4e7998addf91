"""The cooperative game that estimators sample: coalitions of players, and the value of each coalition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from headlab.core import Floats, Ints
from headlab.methods.screen import Scale

Question = Literal["values", "gains", "marginals", "screened"]


@dataclass(frozen=True)
class Ask:
    """One query to a game. arrays: the arguments of `ModelGame`'s method of this name, which says what is asked."""

    question: Question
    arrays: Mapping[str, npt.NDArray[np.generic]]


class Game(Protocol):
    """An estimator's view of a model: players, examples, and the values of coalitions.

    Values are shares of `span`, so that gains lie in [-1, 1]; positive = the player helps.  steps: number of levels
    of a gain of 1 (see `headlab.core.value_functions.Value`).  round: suitable number of samples for one call.
    """

    @property
    def players(self) -> int:
        """Number of players."""

    @property
    def examples(self) -> int:
        """Number of examples."""

    @property
    def lengths(self) -> Ints:
        """Relative cost of each example, int [example]: examples of similar length are best batched together."""

    @property
    def weights(self) -> Floats | None:
        """Weight of each example in the value, [example], summing to 1; None where all are equal."""

    @property
    def span(self) -> float:
        """Size of a gain of 1 in the value's unit."""

    @property
    def steps(self) -> int:
        """Number of levels of a gain of 1."""

    @property
    def round(self) -> int:
        """Suitable number of samples for one call."""

    @property
    def costs(self) -> Floats:
        """Cost of a player's gain in "marginals" and "screened", float [player], as a share of a full pass."""

    @property
    def scale(self) -> Scale | None:
        """Bins of the gains that "screened" predicts; None where prediction is impossible or would save nothing."""

    def answers(self, asks: Iterable[Ask]) -> Iterator[Floats]:
        """The answers to independent queries, in their order.

        A game with several devices reads queries ahead; each is computed on its own, so that the answers do not
        depend on the number of devices.
        """


def in_turn(game: Game, asks: Iterable[Ask]) -> Iterator[Floats]:
    """`Game.answers` for a game that handles one query at a time, with a method for each question."""
    for ask in asks:
        yield getattr(game, ask.question)(**ask.arrays)
