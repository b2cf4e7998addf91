"""A run's part of the pool: its game is played, or its method run, on the devices there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from uuid import uuid4

from headlab.cluster.hand import Job, Setting
from headlab.cluster.pool import Call, Pool
from headlab.evaluator import Evaluator
from headlab.methods.game import Ask
from headlab.methods.model_game import ModelGame, round_on
from headlab.methods.screen import Scale
from headlab.methods.work import Outcome, Work
from headlab.records import Bools, Floats, Ints


@dataclass
class SharedGame:
    """A model's game whose questions are answered by a pool. own: the same game on this process's model."""

    own: ModelGame
    pool: Pool
    job: Job
    key: str = field(default_factory=lambda: uuid4().hex)

    @property
    def players(self) -> int:
        """Heads of the model."""
        return self.own.players

    @property
    def examples(self) -> int:
        """Examples of the evaluator."""
        return self.own.examples

    @property
    def lengths(self) -> Ints:
        """Tokens of each example."""
        return self.own.lengths

    @property
    def weights(self) -> Floats | None:
        """Share of all answers that each example asks for."""
        return self.own.weights

    @property
    def span(self) -> float:
        """What a gain of 1 is in the value's unit."""
        return self.own.span

    @property
    def steps(self) -> int:
        """Levels that a gain of 1 is counted in."""
        return self.own.steps

    @property
    def round(self) -> int:
        """Samples that suit one call of a device there."""
        return round_on(self.pool.kind)

    @property
    def costs(self) -> Floats:
        """What a player's gain costs, as a share of a full pass."""
        return self.own.costs

    @property
    def scale(self) -> Scale | None:
        """Bins of what is foreseen."""
        return self.own.scale

    def values(self, kept: Bools, examples: Ints) -> Floats:
        """See `Game.values`."""
        return next(self.answers([Ask("values", {"kept": kept, "examples": examples})]))

    def gains(self, orders: Ints, examples: Ints, wanted: Bools | None = None) -> Floats:
        """See `Game.gains`."""
        more = {} if wanted is None else {"wanted": wanted}
        return next(self.answers([Ask("gains", {"orders": orders, "examples": examples, **more})]))

    def marginals(self, kept: Bools, wanted: Bools, examples: Ints) -> Floats:
        """See `Game.marginals`."""
        return next(self.answers([Ask("marginals", {"kept": kept, "wanted": wanted, "examples": examples})]))

    def screened(self, kept: Bools, wanted: Bools, examples: Ints, halvings: Ints, uniforms: Floats) -> Floats:
        """See `Game.screened`."""
        given = {"kept": kept, "wanted": wanted, "examples": examples, "halvings": halvings, "uniforms": uniforms}
        return next(self.answers([Ask("screened", given)]))

    def answers(self, asks: Iterable[Ask]) -> Iterator[Floats]:
        """See `Game.answers`; as many at once as the pool has devices for."""
        calls = (Call(self.key, self.job, "answer", (ask,)) for ask in asks)
        evaluator = self.own.evaluator
        for found, forwards, seconds in self.pool.ask(calls, evaluator.tick):
            evaluator.forwards += forwards
            evaluator.elsewhere += seconds
            yield found


@dataclass(frozen=True)
class Team:
    """What `headlab.score` takes to run on a pool: see `headlab.methods.work.Helpers`."""

    pool: Pool

    @property
    def kind(self) -> str:
        """What its devices are: "cpu" or "cuda"."""
        return self.pool.kind

    def game(self, own: ModelGame) -> SharedGame:
        """The game of a run, played on the pool."""
        return SharedGame(own, self.pool, _job(own.evaluator, own.ablation, own.value.key))

    def outcome(self, name: str, work: Work) -> Outcome:
        """A method that plays no game, run whole on one device of the pool."""
        job = _job(work.evaluator, work.ablation, "accuracy")
        call = Call(uuid4().hex, job, "outcome", (name, dict(work.options), work.seed))
        found, forwards, seconds = next(self.pool.ask([call], work.evaluator.tick))
        work.evaluator.forwards += forwards
        work.evaluator.elsewhere += seconds
        outcome: Outcome = found
        return outcome


def _job(evaluator: Evaluator, ablation: str, value: str) -> Job:
    return Job(Setting.of(evaluator, ablation), len(evaluator.examples), value)
