"""The game that estimators play: players are there or not, and the game says what each is worth."""

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
    """One question to a game. arrays: the arguments of its method of that name."""

    question: Question
    arrays: Mapping[str, np.ndarray[Any, Any]]


class Game(Protocol):
    """What an estimator knows of a model: players, examples, and what coalitions are worth.

    Values are shares of `span`, so that gains lie in [-1, 1]; positive = the player helps.  steps: levels
    a gain is counted in (see `headlab.value_functions.Value`).  round: samples that suit one call.
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
        """What an example costs, relative to the others, int [example]: examples of one length go well together."""
        ...

    @property
    def weights(self) -> Floats | None:
        """Share of the value that each example has, [example]; None where all count alike."""
        ...

    @property
    def span(self) -> float:
        """What a gain of 1 is in the value's unit."""
        ...

    @property
    def steps(self) -> int:
        """Levels that a gain of 1 is counted in."""
        ...

    @property
    def round(self) -> int:
        """Samples that suit one call."""
        ...

    @property
    def costs(self) -> Floats:
        """What a player's gain costs in `marginals` and `screened`, float [player], as a share of a full pass."""
        ...

    @property
    def scale(self) -> Scale | None:
        """Bins of what `screened` foresees; None where nothing can be foreseen, or would save nothing."""
        ...

    def values(self, kept: Bools, examples: Ints) -> Floats:
        """Value of each row: kept bool [row, player], examples int [row] -> float [row] in [0, 1]."""
        ...

    def gains(self, orders: Ints, examples: Ints, wanted: Bools | None = None) -> Floats:
        """v(before) - v(after) at each step of each walk: orders int [row, step], examples int [row].

        Row r starts with all players and loses orders[r, 0], orders[r, 1], ... on example examples[r].
        wanted: bool [player]; what only other players' gains need is not computed, and their gains are 0.
        Returns float [row, step].
        """
        ...

    def marginals(self, kept: Bools, wanted: Bools, examples: Ints) -> Floats:
        """v(kept with p) - v(kept without p) for every wanted player p of every row, 0 for the others.

        kept, wanted: bool [row, player].  examples: int [row].  Returns float [row, player].
        """
        ...

    def screened(self, kept: Bools, wanted: Bools, examples: Ints, halvings: Ints, uniforms: Floats) -> Floats:
        """Of every player of every row: its bin, its gain as foreseen, and the gain, NaN where it was not computed.

        kept, wanted, examples: as in `marginals`; players that are not wanted have no gain.  halvings: int [bin,
        player], of the probability that a gain is computed.  uniforms: float [row, player] in [0, 1); one below the
        probability has its gain computed.  Returns float [3, row, player].
        """
        ...

    def answers(self, asks: Iterable[Ask]) -> Iterator[Floats]:
        """The answers to questions that do not depend on each other, in their order.

        A game with several devices takes questions ahead of the answers taken from it; each is computed
        by itself, so that the answers do not depend on how many devices there are.
        """
        ...


def in_turn(game: Game, asks: Iterable[Ask]) -> Iterator[Floats]:
    """`Game.answers` of a game that works on one question at a time."""
    for ask in asks:
        yield getattr(game, ask.question)(**ask.arrays)
