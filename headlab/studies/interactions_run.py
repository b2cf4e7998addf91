"""Making a report of interactions: the heads, their pairs by sampling, and sets removed on dev."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from headlab.core import (
    Bools,
    Floats,
    HeadGrid,
    Ints,
    OptionValue,
    Progress,
    display_unit,
    integer_in,
    number_in,
    text_in,
    value_function_of,
)
from headlab.methods.game import Query
from headlab.methods.interactions import (
    chosen_halvings,
    estimate,
    expected_draws,
    pair_plan,
    passes_of_draw,
    restored_tally,
    started_tally,
)
from headlab.methods.pair_game import ModelPairGame, all_pairs, pairs_with
from headlab.methods.run import require_one_device
from headlab.methods.tmab import ScreenedTally
from headlab.methods.work import Arrays, Saver, saves_of
from headlab.results import StoredRun
from headlab.stats import holm
from headlab.studies.interactions import (
    InteractionsResult,
    LossAlone,
    PairInteraction,
    SetLoss,
    foreseen_loss,
    head_in,
    head_text,
)
from headlab.studies.interactions_choice import chosen_heads
from headlab.studies.result import Records, typed_result
from headlab.studies.run import Ask, Pieces, report_spec, run_experiment
from headlab.studies.table import INTERACTIONS, OF, SaySentence, study
from headlab.tasks import Split

SPLIT: Split = "dev"
PAIRS_REMOVED = 8
"""Pairs of the largest interactions that are removed, to compare with what is foreseen."""
TYPICAL_SETS = 4
"""Larger sets that are removed, about: of 2, 4, 8, ... heads, and of all."""
NOTES = (
    "Below 0, two heads stand in for each other; above 0, they need each other.",
    "Each interval holds at 95 % for its pair. The last p is corrected over all pairs of a language "
    "(Holm).",
    "A set is foreseen by the sum of what each of its heads costs alone, less the interactions of its "
    "pairs. Interactions are means over coalitions of all sizes, and sets are removed from the whole "
    "model, so the two may differ.",
)


def run(pieces: Pieces, options: Mapping[str, OptionValue], say: SaySentence) -> InteractionsResult:
    """The interactions in each language; each one's report is stored by itself.

    Args:
        pieces: Of the study.
        options: Resolved.
        say: Given a sentence on where the work is.

    Raises:
        HeadlabError: The heads are not the model's, or none are stored to choose from.
    """
    if len(pieces.languages) == 1:
        return _LanguageRun.of(pieces, options).result()
    results = []
    for language in pieces.languages_in_turn("pairs", say):
        results.append(_result_of_language(pieces, language, options))
    return _joined(results)


def cost(pieces: Pieces, options: Mapping[str, OptionValue]) -> list[Ask]:
    """The cost of the languages whose report is not stored, in whole passes."""
    asks = []
    for language in pieces.languages:
        own_pieces = _pieces_of(pieces, language)
        description = f"interactions in {language}"
        forwards = 0
        if not _is_stored(own_pieces, options):
            forwards = _LanguageRun.of(own_pieces, options).expected_passes
        asks.append(pieces.ask_passes(language, description, forwards))
    return asks


def _pieces_of(pieces: Pieces, language: str) -> Pieces:
    """The pieces of one language."""
    if pieces.languages == (language,):
        return pieces
    return replace(pieces, task=pieces.task.with_languages((language,)))


def _is_stored(pieces: Pieces, options: Mapping[str, OptionValue]) -> bool:
    """Whether the report of these pieces is stored."""
    stored_run = _stored_run(pieces, options)
    return stored_run is not None and stored_run.kept_report() is not None


def _stored_run(pieces: Pieces, options: Mapping[str, OptionValue]) -> StoredRun | None:
    """Where the report of these pieces is stored; None if nowhere."""
    if pieces.store is None:
        return None
    return pieces.store.run(report_spec(study(INTERACTIONS), pieces, options))


def _result_of_language(
    pieces: Pieces, language: str, options: Mapping[str, OptionValue]
) -> InteractionsResult:
    """The result of one language: from its own report, which is stored if it is not yet."""
    own_pieces = _pieces_of(pieces, language)
    forwards_before = pieces.forwards

    def on_progress(step: Progress) -> None:
        done = forwards_before + step.done
        pieces.report(Progress(done, done, step.note))

    report = run_experiment(INTERACTIONS, own_pieces, options=options, on_progress=on_progress)
    pieces.forwards = forwards_before + own_pieces.forwards
    return typed_result(report, InteractionsResult)


def _joined(results: Sequence[InteractionsResult]) -> InteractionsResult:
    """The results of several languages as one."""
    first = results[0]
    notes = dict.fromkeys(note for result in results for note in result.notes)
    return InteractionsResult(
        pairs=replace(first.pairs, rows=sum((result.pairs.rows for result in results), ())),
        alone=replace(first.alone, rows=sum((result.alone.rows for result in results), ())),
        sets=replace(first.sets, rows=sum((result.sets.rows for result in results), ())),
        notes=tuple(notes),
    )


def _save_nothing(_: Arrays) -> None:
    """Save in no store."""


@dataclass
class _LanguageRun:
    """A run in one language.

    Attributes:
        pieces: Of the language.
        game: The model's, with the pairs of the chosen heads; played on helpers if there are any.
        heads: Flat indices of these heads.
        tally: Samples so far.
        run: Where it is stored; None if nowhere.
        values: Value of each coalition measured on all examples so far, by its bits.
        forwards_before: Passes of earlier, interrupted runs.
        first_forwards: Passes that had been counted when it started.
    """

    pieces: Pieces
    game: ModelPairGame
    heads: Ints
    tally: ScreenedTally
    run: StoredRun | None
    values: dict[bytes, float] = field(default_factory=dict)
    forwards_before: int = 0
    first_forwards: int = field(init=False, default=0)

    @classmethod
    def of(cls, pieces: Pieces, options: Mapping[str, OptionValue]) -> _LanguageRun:
        """The run of these pieces, from its last checkpoint on."""
        (language,) = pieces.languages
        value = value_function_of(text_in(options, "value"))
        heads = chosen_heads(pieces, language, options)
        evaluator = pieces.evaluator(language, SPLIT)
        pairs = all_pairs(heads)
        if options.get(OF) is not None:
            one_head = pieces.model.grid.index(head_in(pieces.model.grid, text_in(options, OF)))
            pairs = pairs_with(one_head, heads)
            heads = np.union1d(heads, [one_head])
        game = ModelPairGame(evaluator, pieces.ablation, value, pairs=pairs)
        if pieces.helpers is not None:
            require_one_device(pieces.model, pieces.helpers, pieces.ablation)
            shared_game = pieces.helpers.game(game)
            assert isinstance(shared_game, ModelPairGame), "helpers play a game of pairs as one"
            game = shared_game
        plan = pair_plan(value.span, integer_in(options, "samples"), number_in(options, "target"))
        tally = started_tally(game, plan, chosen_halvings(game, plan))
        stored_run = _stored_run(pieces, options)
        language_run = cls(pieces, game, heads, tally, stored_run)
        saved = None if stored_run is None else stored_run.checkpoint()
        if saved is not None:
            language_run._restore(saved)
        return language_run

    @property
    def grid(self) -> HeadGrid:
        """Of the model."""
        return self.pieces.model.grid

    @property
    def language(self) -> str:
        """Its code."""
        return self.pieces.languages[0]

    @property
    def set_count(self) -> int:
        """Coalitions that are measured on all examples, about: all heads, each alone, and sets."""
        return 1 + len(self.heads) + min(PAIRS_REMOVED, len(self.game.pairs)) + TYPICAL_SETS

    @property
    def expected_passes(self) -> int:
        """Whole passes that take as long as the run, about."""
        passes_of_sets = self.set_count * self.game.examples
        reach = int(self.tally.reach)
        draws = expected_draws(self.tally.plan, reach, self.game.examples)
        return self._passes_of_draws(draws) + passes_of_sets

    def _passes_of_draws(self, draws: int) -> int:
        """Whole passes that so many draws take, about."""
        return int(draws * passes_of_draw(self.game, int(self.tally.reach)))

    # Its steps.

    def result(self) -> InteractionsResult:
        """Sample the pairs, remove the sets, and say what was found."""
        evaluator = self.game.evaluator
        forwards_at_start = self.pieces.forwards - evaluator.forwards + self.forwards_before

        def count_and_tick() -> None:
            self.pieces.forwards = forwards_at_start + evaluator.forwards
            self.pieces.tick()

        self.first_forwards = self.pieces.forwards
        evaluator.tick = count_and_tick
        save = _save_nothing if self.run is None else self.run.save
        with saves_of(save) as saver:
            self._sample(saver)
            sets = self._removed_sets(saver)
        return self._found(sets)

    def _sample(self, saver: Saver) -> None:
        """Sample the pairs until each is narrow or has all its samples."""
        for tally in estimate(self.game, self.tally, seed=self.pieces.seed):
            self.tally = tally
            self._note_step(saver, self._passes_of_draws(tally.draws), self._words_of_draws())

    def _words_of_draws(self) -> str:
        """How far the samples are."""
        plan = self.tally.plan
        words = f"pairs of {self.language}: {self.tally.draws:,} of {plan.samples:,} draws"
        if plan.target is None:
            return words
        pairs = len(self.tally.active)
        return f"{words}; {pairs - int(self.tally.active.sum())} of {pairs} pairs done"

    def _removed_sets(self, saver: Saver) -> list[Ints]:
        """Measure the whole model, each head alone, and sets of heads; returns these sets."""
        self._measure([self._kept_without(())], saver)
        self._measure([self._kept_without((head,)) for head in self.heads], saver)
        sets = self._sets()
        self._measure([self._kept_without(heads) for heads in sets], saver)
        return sets

    def _measure(self, coalitions: Sequence[Bools], saver: Saver) -> None:
        """Measure coalitions on all examples, those that have not been."""
        examples = np.arange(self.game.examples)
        missing = {kept.tobytes(): kept for kept in coalitions}
        missing = {bits: kept for bits, kept in missing.items() if bits not in self.values}
        queries = (
            Query("values", {"kept": np.tile(kept, (len(examples), 1)), "examples": examples})
            for kept in missing.values()
        )
        for kept, values in zip(missing.values(), self.game.answers(queries), strict=True):
            self.values[kept.tobytes()] = float(np.average(values, weights=self.game.weights))
            passes = self._passes_of_draws(self.tally.draws)
            passes += len(self.values) * len(examples)
            self._note_step(saver, passes, f"sets of {self.language} removed")

    def _note_step(self, saver: Saver, passes: int, words: str) -> None:
        """Offer what there is to be saved, and report the progress.

        Args:
            saver: Of the run.
            passes: How many of the expected passes are done.
            words: What is under way.
        """
        saver.offer(partial(self._arrays, self.pieces.forwards - self.first_forwards))
        self.game.evaluator.tick()
        done = self.first_forwards + passes
        self.pieces.report(Progress(done, done, words))

    def _kept_without(self, heads: Sequence[int] | Ints) -> Bools:
        kept = np.ones(self.grid.size, bool)
        kept[list(heads)] = False
        return kept

    def _sets(self) -> list[Ints]:
        """Sets of heads to remove: pairs of large interactions, growing sets, and all.

        Growing sets take the heads that cost least alone first, as whoever removes heads does.
        """
        interactions = np.abs(self.tally.outcome().values)
        largest = np.argsort(-interactions, kind="stable")[:PAIRS_REMOVED]
        sets = [np.sort(self.game.pairs[pair]) for pair in largest]
        if len(self.game.pairs) < len(all_pairs(self.heads)):
            return sets  # of larger ones, some pairs would be unknown
        by_loss = self.heads[np.argsort(self._losses_alone(), kind="stable")]
        size = 4
        while size < len(self.heads):
            sets.append(np.sort(by_loss[:size]))
            size *= 2
        if len(self.heads) > 2:
            sets.append(np.sort(self.heads))
        return sets

    def _loss(self, heads: Sequence[int] | Ints) -> float:
        """Fall of the value without these heads, a share of the span."""
        whole = self.values[self._kept_without(()).tobytes()]
        return whole - self.values[self._kept_without(heads).tobytes()]

    def _losses_alone(self) -> Floats:
        return np.array([self._loss((head,)) for head in self.heads])

    # What is stored of it.

    def _arrays(self, forwards: int) -> Arrays:
        kept = [np.frombuffer(bits, bool) for bits in self.values]
        return {
            **self.tally.arrays(),
            "measured_kept": np.array(kept, bool).reshape(len(kept), self.grid.size),
            "measured_values": np.array(list(self.values.values()), np.float64),
            "forwards": np.array(forwards),
        }

    def _restore(self, saved: Mapping[str, np.ndarray]) -> None:
        self.tally = restored_tally(saved, self.tally)
        kept = saved.get("measured_kept")
        values = saved.get("measured_values")
        if not self.tally.draws or kept is None or values is None:
            return
        if kept.shape != (len(values), self.grid.size) or kept.dtype != bool:
            return
        for coalition, value in zip(kept, values, strict=True):
            self.values[coalition.tobytes()] = float(value)
        self.forwards_before = int(saved.get("forwards", 0))

    # What it found.

    def _found(self, sets: Sequence[Ints]) -> InteractionsResult:
        value = self.game.value
        factor, unit = display_unit(value.unit)
        names = {"unit": (unit,)}
        scale = factor * value.span
        heads = self.grid.heads
        text = {int(head): head_text(heads[head], self.grid) for head in self.heads}
        outcome = self.tally.outcome()
        assert outcome.low is not None
        assert outcome.high is not None
        assert outcome.samples is not None
        assert outcome.p_values is not None
        corrected_p = holm(outcome.p_values)
        pairs = [
            PairInteraction(
                self.language,
                text[int(first)],
                text[int(second)],
                factor * float(outcome.values[index]),
                factor * float(outcome.low[index]),
                factor * float(outcome.high[index]),
                float(outcome.p_values[index]),
                float(corrected_p[index]),
                int(outcome.samples[index]),
            )
            for index, (first, second) in enumerate(self.game.pairs)
        ]
        losses = scale * self._losses_alone()
        alone = {
            text[int(head)]: float(loss) for head, loss in zip(self.heads, losses, strict=True)
        }
        interactions = {frozenset((pair.first, pair.second)): pair.interaction for pair in pairs}
        set_losses = []
        for indices in sets:
            names_of_set = [text[int(head)] for head in indices]
            set_losses.append(
                SetLoss(
                    self.language,
                    ", ".join(names_of_set),
                    len(names_of_set),
                    sum(alone[name] for name in names_of_set),
                    foreseen_loss(names_of_set, alone, interactions),
                    scale * self._loss(indices),
                )
            )
        pairs.sort(key=lambda pair: -abs(pair.interaction))
        return InteractionsResult(
            pairs=Records("How each two heads interact.", tuple(pairs), names=names),
            alone=Records(
                "What each head costs, removed alone, on dev.",
                tuple(
                    LossAlone(self.language, heads[head], alone[text[int(head)]])
                    for head in self.heads
                ),
                names=names,
            ),
            sets=Records(
                "What sets of heads cost, foreseen and measured, on dev.",
                tuple(set_losses),
                names=names,
            ),
            notes=(*NOTES, *self._notes_on_screen()),
        )

    def _notes_on_screen(self) -> tuple[str, ...]:
        reach = int(self.tally.reach)
        if reach == 1:
            return ()
        return (
            f"Interactions that a gradient foresaw not to exist were computed in one draw of {reach}, at "
            "least, and weighted.",
        )
