"""The cooperative game that estimators sample: coalitions of players, and the value of each coalition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from headlab.methods.screen import Scale
from headlab.records import Bools, Floats, Ints

Question = Literal["values", "gains", "marginals", "screened"]


@dataclass(frozen=True)
class Ask:
    """One query to a game. arrays: the arguments of the game's method named by `question`."""

    question: Question
    arrays: Mapping[str, np.ndarray[Any, Any]]


class Game(Protocol):
    """An estimator's view of a model: players, examples, and the values of coalitions.

    Values are shares of `span`, so that gains lie in [-1, 1]; positive = the player helps.  steps: number of levels
    of a gain of 1 (see `headlab.value_functions.Value`).  round: suitable number of samples for one call.
    """

    @property
    def players(self) -> int:
        """Number of players."""
        ...

    @property
    def examples(self) -> int:
        """Number of examples."""
        ...

    @property
    def lengths(self) -> Ints:
        """Relative cost of each example, int [example]: examples of similar length are best batched together."""
        ...

    @property
    def weights(self) -> Floats | None:
        """Weight of each example in the value, [example], summing to 1; None where all are equal."""
        ...

    @property
    def span(self) -> float:
        """Size of a gain of 1 in the value's unit."""
        ...

    @property
    def steps(self) -> int:
        """Number of levels of a gain of 1."""
        ...

    @property
    def round(self) -> int:
        """Suitable number of samples for one call."""
        ...

    @property
    def costs(self) -> Floats:
        """Cost of a player's gain in `marginals` and `screened`, float [player], as a share of a full pass."""
        ...

    @property
    def scale(self) -> Scale | None:
        """Bins of the gains that `screened` predicts; None where prediction is impossible or would save nothing."""
        ...

    def values(self, kept: Bools, examples: Ints) -> Floats:
        """Value of each row: kept bool [row, player], examples int [row] -> float [row] in [0, 1]."""
        ...

    def gains(self, orders: Ints, examples: Ints, wanted: Bools | None = None) -> Floats:
        """v(before) - v(after) at each step of each walk: orders int [row, step], examples int [row].

        Row r starts with all players and removes orders[r, 0], orders[r, 1], ... on example examples[r].
        wanted: bool [player]; values needed only for other players' gains are not computed, and those gains are 0.
        Returns float [row, step].
        """
        ...

    def marginals(self, kept: Bools, wanted: Bools, examples: Ints) -> Floats:
        """v(kept with p) - v(kept without p) for every wanted player p of every row, 0 for the others.

        kept, wanted: bool [row, player].  examples: int [row].  Returns float [row, player].
        """
        ...

    def screened(self, kept: Bools, wanted: Bools, examples: Ints, halvings: Ints, uniforms: Floats) -> Floats:
        """Bin, predicted gain and computed gain of every player in every row; the last is NaN where not computed.

        kept, wanted, examples: as in `marginals`; players that are not wanted have no gain.  halvings: int [bin,
        player]; a gain is computed with probability 2 ** -halvings.  uniforms: float [row, player] in [0, 1); a gain
        is computed where its number is below the probability.  Returns float [3, row, player].
        """
        ...

    def answers(self, asks: Iterable[Ask]) -> Iterator[Floats]:
        """The answers to independent queries, in their order.

        A game with several devices reads queries ahead; each is computed on its own, so that the answers do not
        depend on the number of devices.
        """
        ...


def in_turn(game: Game, asks: Iterable[Ask]) -> Iterator[Floats]:
    """`Game.answers` for a game that handles one query at a time."""
    for ask in asks:
        yield getattr(game, ask.question)(**ask.arrays)
