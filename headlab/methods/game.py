"""The cooperative game that estimators sample: coalitions of players and their values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from headlab.core import Floats, Ints, drawn_donors
from headlab.methods.screen import Scale

Question = Literal[
    "values",
    "gains",
    "marginals",
    "screened",
    "slopes",
    "margins",
    "interactions",
    "screened_interactions",
]


@dataclass(frozen=True)
class Query:
    """One query to a game.

    Attributes:
        question: Name of the method of `ModelGame` that answers it, and says what is asked.
        arrays: The method's arguments.
    """

    question: Question
    arrays: Mapping[str, npt.NDArray[np.generic]]


class Game(Protocol):
    """An estimator's view of a model: players, examples, and the values of coalitions.

    Values are shares of `span`, so that gains lie in [-1, 1]; where one is positive, the player
    helps.
    """

    @property
    def players(self) -> int:
        """Number of players."""

    @property
    def examples(self) -> int:
        """Number of examples."""

    @property
    def lengths(self) -> Ints:
        """Relative cost of each example, int [example].

        Examples of similar length are best batched together.
        """

    @property
    def weights(self) -> Floats | None:
        """Weight of each example in the value, [example]; None where all are equal.

        The weights sum to 1.
        """

    @property
    def span(self) -> float:
        """Size of a gain of 1 in the value's unit."""

    @property
    def steps(self) -> int:
        """Number of levels of a gain of 1 (see `headlab.core.value_functions.ValueFunction`)."""

    @property
    def round(self) -> int:
        """Suitable number of samples for one call."""

    @property
    def costs(self) -> Floats:
        """Cost of a player's gain in "marginals" and "screened", float [player].

        It is a share of a full pass.
        """

    @property
    def scale(self) -> Scale | None:
        """Bins of the gains that "screened" predicts.

        None where prediction is impossible or would save nothing.
        """

    def answers(self, asks: Iterable[Query]) -> Iterator[Floats]:
        """The answers to independent queries, in their order.

        A game with several devices reads queries ahead; each is computed on its own, so that the
        answers do not depend on the number of devices.
        """


def donor_arguments(
    game: Game, seed: int, numbers: npt.ArrayLike, examples: Ints
) -> dict[str, npt.NDArray[np.generic]]:
    """The argument of a query that says which examples' outputs stand in closed players' places.

    There is none where no other example's do. A donor is drawn with its coalition, from its number,
    so it is part of what is averaged; both values of a gain have the same.

    Args:
        game: The game, which may say that it `draws_donors`.
        seed: Of the run.
        numbers: The number of each row's draw, int [row], or one for all rows.
        examples: The example of each row, int [row].
    """
    if not getattr(game, "draws_donors", False):
        return {}
    return {"donors": drawn_donors(seed, numbers, examples, game.examples)}


def in_turn(game: Game, asks: Iterable[Query]) -> Iterator[Floats]:
    """`Game.answers` for a game that handles one query at a time.

    It has a method for each question.
    """
    for ask in asks:
        yield getattr(game, ask.question)(**ask.arrays)
