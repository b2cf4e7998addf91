"""Experiments: the pieces they are assembled from, their cost, and the stored report.

The cost is at the device's pace.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
from cachetools import LRUCache

from headlab.core import (
    Bools,
    Comparison,
    Evaluation,
    Ints,
    Json,
    ModelSpec,
    Omissions,
    OptionValue,
    Progress,
    Report,
    RunSpec,
    TaskSpec,
    as_plain_object,
    content_key,
    import_implementation,
    read_ablation,
    require_seed,
    shown_progress,
)
from headlab.evaluation import Dataset, Evaluator, classes_for_spec, compare
from headlab.hooks import Model, tokens_version
from headlab.masks import Mask
from headlab.methods import (
    BACKWARD_PASS_COST,
    METHODS,
    RANDOM_METHOD,
    Forecast,
    Helpers,
    Part,
    Work,
    answers_spec,
    expected_forwards,
    forecast_of,
    is_alike,
    is_encoder,
    make_spec,
    outcome_of,
    score,
    seconds_per_forward,
    stored_result,
)
from headlab.methods import method as method_of
from headlab.methods import pace as pace_of
from headlab.methods.costs import require_stand_in
from headlab.models import origin_now
from headlab.results import (
    REPORT_KIND,
    RESULT_FORMAT,
    Curve,
    HeadScores,
    Store,
    StoredRun,
    removed_counts,
)
from headlab.studies.curves import curve_spec, prune_curve
from headlab.studies.front_so_far import ShowFront
from headlab.studies.result import shown_parts
from headlab.studies.table import HOME, Experiment, SaySentence, method_with_options, study
from headlab.tasks import DEV_SIZE, Example, Split, Task, notes_by_language

# The pieces: scores, answers and curves, from the store or computed and stored.

CACHED_EVALUATORS = 3  # splits whose tokens are cached
CACHED_EVALUATIONS = 512  # evaluations cached in memory


Kind = Literal["scores", "answers", "curve", "passes"]
Piece = TypeVar("Piece", HeadScores, Evaluation, Curve)


@dataclass(frozen=True)
class Ask:
    """A piece that an experiment needs.

    Attributes:
        kind: What its pace depends on: scores of `method`, plain answers, a curve, or other passes.
        language: Of the examples.
        description: Equal for equal pieces.
        forwards: Forward passes of one example each; 0 if it is available.
        method: Of scores.
        missing: Whether it must be computed, be it without a forward pass; None where `forwards`
            says so.
    """

    kind: Kind
    language: str
    description: str
    forwards: int
    method: str = ""
    missing: bool | None = None

    @property
    def is_missing(self) -> bool:
        """Whether it must be computed."""
        if self.missing is None:
            return self.forwards > 0
        return self.missing


@dataclass
class Pieces:
    """The pieces that experiments are assembled from: scores, answers under masks and curves.

    Each comes from the store or is computed and stored there, so a second experiment costs nothing
    for what it shares with the first.

    Attributes:
        model: The model.
        task: The task.
        store: Where pieces are looked up and stored; None caches in memory only.
        seed: Of methods and resampling, unless a call gives another.
        dev_size: Examples of dev; None for all.
        test_size: Examples of test; None for all.
        ablation: What stands in a switched-off head's place.
        tick: Called between batches; may raise to stop, and finished pieces stay stored.
        report: Called during computation, with the forward passes done in this object's life.
        show_front: Called with what is known of a front while it is measured.
        paces: Seconds of a plain forward pass by task, language and split, timed once for all
            forecasts.
        helpers: Other devices, which interactions are computed on; None for this one alone.
        forwards: Passes (one example each) on missing pieces.
    """

    model: Model
    task: Task
    store: Store | None = None
    seed: int = 0
    dev_size: int | None = DEV_SIZE
    test_size: int | None = None
    ablation: str = "zero"
    tick: Callable[[], None] = lambda: None
    report: Callable[[Progress], None] = lambda _: None
    show_front: ShowFront = lambda _: None
    paces: MutableMapping[tuple[str | None, ...], float] = field(default_factory=dict)
    helpers: Helpers | None = None
    forwards: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._examples_read: dict[tuple[str, Split, int], Sequence[Example]] = {}
        self._scores: dict[str, HeadScores] = {}
        self._datasets: dict[tuple[str, Split], Dataset] = {}
        self._omissions: dict[tuple[str, Split], Omissions] = {}
        self._answers_specs: dict[tuple[str, Split], RunSpec] = {}
        self._stored_scores: list[HeadScores] | None = None
        self._answers: LRUCache[tuple[str, Split, str], Evaluation] = LRUCache(CACHED_EVALUATIONS)
        self._evaluators: LRUCache[tuple[str, Split], Evaluator] = LRUCache(CACHED_EVALUATORS)
        self._task_read_once = replace(self.task, read=self._read_once)

    @property
    def languages(self) -> tuple[str, ...]:
        """The task's languages."""
        return self.task.languages

    def size(self, split: Split) -> int | None:
        """Number of examples to use of a split, None for all."""
        if split == "dev":
            return self.dev_size
        return self.test_size

    def examples(self, language: str, split: Split) -> tuple[Example, ...]:
        """The examples used of a split."""
        return self.dataset(language, split).examples

    def group_names(self, language: str, numbers: Ints, split: Split) -> tuple[str, ...]:
        """The names of a curve's groups, [answer].

        Args:
            language: Of the curve.
            numbers: The groups as the curve stores them: indices in sorted order, int [answer].
            split: Of the curve.
        """
        names = np.unique([example.cluster for example in self.examples(language, split)])
        return tuple(names[numbers].tolist())

    def size_and_hash(self, language: str, split: Split) -> tuple[int, str]:
        """Number of examples used of a split, and the sha256 of their content."""
        return len(self.examples(language, split)), self._answers_spec(
            language, split
        ).task.data_hash

    def contrasts_hash(self) -> str:
        """sha256 of all examples' counterfactuals; empty where the ablation does not read them."""
        hashes = [
            self._answers_spec(language, split).contrasts
            for split in SPLITS
            for language in self.languages
        ]
        return content_key(hashes) if any(hashes) else ""

    def identity(self) -> dict[str, Json]:
        """What a result records about the model, including its precision."""
        return self._answers_spec(self.languages[0], "dev").model.to_json()

    def scores(
        self, language: str, method: str, *, seed: int | None = None, **options: OptionValue
    ) -> HeadScores:
        """Scores of every head on dev. Options are the method's; errors as in `headlab.score`."""
        available = self.available_scores(language, method, seed=seed, **options)
        if available is not None:
            return self._note_omissions(language, "dev", available)
        spec = self.score_spec(language, method, seed, options)
        forwards_before = self.forwards
        expected_passes = self.expected_forwards(language, method, **options)

        def on_progress(step: Progress) -> None:
            forwards_done = forwards_before + expected_passes * step.done // max(1, step.total)
            note = f"{method} of {language}: {_step_text(step)}"
            self.report(Progress(forwards_done, forwards_done, note))

        scores = score(
            self.model,
            self._task_read_once,
            language=language,
            method=method,
            seed=self._seed(seed),
            split="dev",
            size=self.dev_size,
            ablation=self.ablation,
            store=self.store,
            on_progress=on_progress,
            tick=self.tick,
            helpers=None,
            progress=False,
            **options,
        )
        self._scores[spec.key] = scores
        self.forwards = forwards_before + scores.example_forwards
        return self._note_omissions(language, "dev", scores)

    def available_scores(
        self, language: str, method: str, *, seed: int | None = None, **options: OptionValue
    ) -> HeadScores | None:
        """As `scores`, but None if they are not computed yet.

        Raises:
            HeadlabError: A stored file cannot be trusted.
        """
        spec = self.score_spec(language, method, seed, options)
        key = spec.key
        if key in self._scores:
            return self._scores[key]
        if method == RANDOM_METHOD:
            work = Work(self.evaluator(language, "dev"), self._seed(seed), {}, self.ablation)
            outcome = outcome_of(METHODS[RANDOM_METHOD], work)
            self._scores[key] = outcome.scores(self.model.grid, spec, 0, 0.0)
        elif self.store is not None:
            stored_scores = stored_result(self.store.run(spec), self.model.grid)
            if stored_scores is not None:
                self._scores[key] = stored_scores.record
        return self._scores.get(key)

    def expected_forwards(self, language: str, method: str, **options: OptionValue) -> int:
        """Expected forward passes for these scores, by `headlab.methods.expected_forwards`."""
        scoring_method = method_of(method).for_task(self.task.likelihood)
        resolved_options = scoring_method.resolve(options)
        similar_scores = [
            scores
            for scores in self.stored_scores()
            if is_alike(scores, scoring_method, resolved_options)
        ]
        forwards, *_ = expected_forwards(
            scoring_method,
            resolved_options,
            self.model.grid.size,
            len(self.examples(language, "dev")),
            similar_scores,
            resumable=self.model.resumable,
            has_slopes=is_encoder(self.model.grid),
            likelihood=bool(self.task.likelihood),
        )
        return forwards

    def languages_in_turn(self, title: str, say: SaySentence) -> Iterator[str]:
        """The languages in turn; before each one `say` is given its code and its number."""
        for number, language in enumerate(self.languages, 1):
            say(f"{title}, {language} ({number} of {len(self.languages)})")
            yield language

    def study_scores(self, language: str, options: Mapping[str, OptionValue]) -> HeadScores:
        """Scores by the method that a study's options name."""
        method, method_options = method_with_options(options)
        return self.scores(language, method, seed=None, **method_options)

    def available_study_scores(
        self, options: Mapping[str, OptionValue]
    ) -> dict[str, HeadScores | None]:
        """As `study_scores`, of every language; None where they are not computed yet."""
        method, method_options = method_with_options(options)
        return {
            language: self.available_scores(language, method, seed=None, **method_options)
            for language in self.languages
        }

    def answers(
        self, language: str, kept_heads: Bools | None = None, split: Split = "test"
    ) -> Evaluation:
        """Answers with some heads switched off.

        Args:
            language: Of the examples.
            kept_heads: bool [head]; None for the untouched model.
            split: Of the examples.

        Raises:
            HeadlabError: `kept_heads` does not have one entry per head.
        """
        mask = self._mask_of(kept_heads)
        available = self._available_answers(language, mask, split)
        if available is not None:
            return self._note_omissions(language, split, available)
        evaluator = self.evaluator(language, split)
        forwards_before = self.forwards
        removed_count = len(mask.removed)
        note = f"{split} answers in {language}, {self.model.grid.count_words(removed_count)} gone"
        evaluator_forwards_before = evaluator.forwards

        def count_forwards() -> None:
            self.forwards = forwards_before + evaluator.forwards - evaluator_forwards_before
            self.report(Progress(self.forwards, self.forwards, note))

        def between_batches() -> None:
            count_forwards()
            self.tick()

        evaluator.tick = between_batches
        evaluation = evaluator.evaluate(mask, ablation=self.ablation)
        answers_run = self._answers_run(language, split)
        if answers_run is not None:
            answers_run.keep_answers(mask.digest, evaluation, evaluator.inputs.units)
        count_forwards()
        self._answers[language, split, mask.digest] = evaluation
        return self._note_omissions(language, split, evaluation)

    def all_answers(
        self, language: str, masks: Sequence[Bools | None], split: Split = "test"
    ) -> list[Evaluation]:
        """Answers under several masks, in the order given."""
        return [self.answers(language, kept_heads, split) for kept_heads in masks]

    def mask_digest(self, kept_heads: Bools | None) -> str:
        """The key under which a mask's answers are stored."""
        return self._mask_of(kept_heads).digest

    def comparison(self, language: str, kept_heads: Bools, split: Split = "test") -> Comparison:
        """A mask compared with the untouched model, paired over answers and resampled by group."""
        baseline = self.answers(language, None, split)
        return compare(baseline, self.answers(language, kept_heads, split), self.seed)

    def has_answers(
        self, language: str, kept_heads: Bools | None = None, split: Split = "test"
    ) -> bool:
        """Whether these answers are already available."""
        return self._available_answers(language, self._mask_of(kept_heads), split) is not None

    def curve(self, language: str, scores: HeadScores, points: int | None = None) -> Curve:
        """Accuracy on test as heads are removed, lowest score first.

        Arguments and errors are as in `headlab.prune_curve`.
        """
        available = self.available_curve(language, scores, points)
        if available is not None:
            return self._note_omissions(language, "test", available)
        forwards_before = self.forwards

        def on_progress(step: Progress) -> None:
            forwards_done = forwards_before + step.done
            note = f"curve of {language}: {_step_text(step)}"
            self.report(Progress(forwards_done, forwards_done, note))

        curve = prune_curve(
            self.model,
            self._task_read_once,
            language=language,
            scores=scores,
            size=self.test_size,
            points=points,
            ablation=self.ablation,
            store=self.store,
            on_progress=on_progress,
            tick=self.tick,
            seed=self.seed,
        )
        self.forwards = forwards_before + curve.example_forwards
        return self._note_omissions(language, "test", curve)

    def available_curve(
        self, language: str, scores: HeadScores, points: int | None = None
    ) -> Curve | None:
        """As `curve`, but None if it is not in the store.

        Raises:
            HeadlabError: A stored file cannot be trusted.
        """
        spec = curve_spec(
            self.dataset(language, "test"),
            scores,
            points=points,
            ablation=self.ablation,
            seed=self.seed,
        )
        stored_curve = None if self.store is None else self.store.run(spec).result(Curve)
        if stored_curve is None:
            return None
        return stored_curve.record

    @property
    def players(self) -> str:
        """What is switched, as specs say it: empty for heads."""
        return "" if self.model.players.are_heads else str(self.model.players)

    def stored_scores(self) -> list[HeadScores]:
        """Stored scores of this model and task, read once; forecasts are based on them."""
        if self._stored_scores is None:
            stored_results = [] if self.store is None else self.store.scan(self.players).results
            model_and_task = (self.model.identity()["name"], self.task.name)
            self._stored_scores = []
            for result in stored_results:
                spec = result.record.spec
                if (spec.model.name, spec.task.name) == model_and_task:
                    self._stored_scores.append(result.record)
        return self._stored_scores

    def evaluator(self, language: str, split: Split) -> Evaluator:
        """An evaluator of the split's examples.

        A few are cached, with their tokens but no layer inputs.
        """
        evaluator = self._evaluators.get((language, split))
        if evaluator is None:
            # Masks seldom leave the first layers alone, so layer inputs are not worth caching from
            # one to the next.
            evaluator = Evaluator(
                self.model,
                self._task_read_once,
                language,
                split,
                self.size(split),
                state_bytes=0,
                tick=self.tick,
            )
            self._evaluators[language, split] = evaluator
        return evaluator

    def _read_once(self, language: str, split: Split, seed: int) -> Sequence[Example]:
        key = language, split, seed
        if key not in self._examples_read:
            self._examples_read[key] = self.task.read(language, split, seed)
        return self._examples_read[key]

    def omission_notes(self) -> tuple[str, ...]:
        """What was omitted of the examples that were used.

        There is a sentence for each language and split of which examples were cut or words have no
        answer.
        """
        sentences = sorted(
            (language_and_split, omissions.sentence)
            for language_and_split, omissions in self._omissions.items()
        )
        return tuple(
            f"{language}, {split}: {sentence}."
            for (language, split), sentence in sentences
            if sentence
        )

    def _note_omissions(self, language: str, split: Split, piece: Piece) -> Piece:
        """Remember for the report what was omitted of a piece's examples.

        Older pieces do not say it.

        Returns:
            The piece.
        """
        if piece.omissions is not None:
            self._omissions[language, split] = piece.omissions
        return piece

    def dataset(self, language: str, split: Split) -> Dataset:
        """The examples used of a split, for the model, without their tokens."""
        if (language, split) not in self._datasets:
            examples = self._task_read_once.examples(language, split, self.size(split))
            self._datasets[language, split] = Dataset(
                self.model, self._task_read_once, language, split, examples
            )
        return self._datasets[language, split]

    def score_spec(
        self, language: str, method: str, seed: int | None, options: Mapping[str, OptionValue]
    ) -> RunSpec:
        """Spec of a language's scores: everything they depend on.

        Its key names them in the store.

        Raises:
            HeadlabError: The method does not go with the ablation.
        """
        scoring_method = method_of(method).for_task(self.task.likelihood)
        require_stand_in(scoring_method, self.ablation, options)
        return make_spec(
            self.dataset(language, "dev"),
            scoring_method,
            scoring_method.resolve(options),
            self._seed(seed),
            self.ablation,
        )

    def _seed(self, seed: int | None) -> int:
        """The seed of a method: that of the pieces, unless another is given."""
        return self.seed if seed is None else seed

    def _answers_spec(self, language: str, split: Split) -> RunSpec:
        """Spec of the answers on a split: everything they depend on except the mask."""
        if (language, split) not in self._answers_specs:
            self._answers_specs[language, split] = answers_spec(
                self.dataset(language, split), self.ablation
            )
        return self._answers_specs[language, split]

    def _answers_run(self, language: str, split: Split) -> StoredRun | None:
        if self.store is None:
            return None
        return self.store.run(self._answers_spec(language, split))

    def _mask_of(self, kept_heads: Bools | None) -> Mask:
        grid = self.model.grid
        return Mask(
            grid,
            np.ones(grid.size, bool) if kept_heads is None else kept_heads,
            self.model.identity(),
        )

    def _available_answers(self, language: str, mask: Mask, split: Split) -> Evaluation | None:
        key = language, split, mask.digest
        evaluation = self._answers.get(key)
        if evaluation is not None:
            return evaluation
        answers_run = self._answers_run(language, split)
        if answers_run is None:
            return None
        evaluation = answers_run.answers(mask.digest, self.examples(language, split))
        if evaluation is not None:
            self._answers[key] = evaluation
        return evaluation

    def ask_scores(
        self,
        language: str,
        method: str,
        *,
        seed: int | None = None,
        options: Mapping[str, OptionValue] | None = None,
    ) -> Ask:
        """The cost of `self.scores`; arguments as there."""
        method_key = method_of(method).key
        method_options = dict(options or {})
        description = f"{method_key} scores of {language}{_options_text(method_options, seed)}"
        if self.available_scores(language, method, seed=seed, **method_options) is not None:
            return Ask("scores", language, description, 0, method_key, missing=False)
        forwards = self.expected_forwards(language, method, **method_options)
        return Ask("scores", language, description, forwards, method_key, missing=True)

    def ask_study_scores(self, options: Mapping[str, OptionValue]) -> list[Ask]:
        """The cost of `self.study_scores` in every language."""
        method, method_options = method_with_options(options)
        return [
            self.ask_scores(language, method, options=method_options) for language in self.languages
        ]

    def ask_answers(
        self,
        language: str,
        masks: Sequence[Bools | None],
        *,
        unknown_masks: int = 0,
        split: Split = "test",
    ) -> Ask:
        """The cost of the answers under these masks.

        Args:
            language: Of the examples.
            masks: Kept heads, bool [head] each; None is the untouched model.
            unknown_masks: Number of further masks, which depend on scores not computed yet.
            split: Of the examples.
        """
        masks_by_digest = {self.mask_digest(kept_heads): kept_heads for kept_heads in masks}
        missing_masks = unknown_masks
        for kept_heads in masks_by_digest.values():
            if not self.has_answers(language, kept_heads, split):
                missing_masks += 1
        mask_count = len(masks_by_digest) + unknown_masks
        description = f"{split} answers in {language} under {mask_count} masks"
        forwards = missing_masks * len(self.examples(language, split))
        return Ask("answers", language, description, forwards)

    def ask_curve(
        self,
        language: str,
        method: str,
        *,
        seed: int | None = None,
        options: Mapping[str, OptionValue] | None = None,
        points: int | None = None,
    ) -> Ask:
        """The cost of the curve on test of a method's scores, without that of the scores."""
        scores = self.available_scores(language, method, seed=seed, **dict(options or {}))
        available_curve = None if scores is None else self.available_curve(language, scores, points)
        point_count = len(removed_counts(self.model.grid.size, points))
        description = f"curve of {language} by {method}{_options_text(options or {}, seed)}"
        forwards = 0
        if available_curve is None:
            forwards = point_count * len(self.examples(language, "test"))
        return Ask("curve", language, description, forwards)

    def ask_passes(self, language: str, description: str, forwards: int) -> Ask:
        """The cost of `forwards` plain forward passes for another purpose."""
        return Ask("passes", language, description, forwards)


def _options_text(options: Mapping[str, OptionValue], seed: int | None) -> str:
    """Options and seed as they stand in the description of a piece; empty without any."""
    texts = [f", {name} {value}" for name, value in options.items()]
    if seed is not None:
        texts.append(f", seed {seed}")
    return "".join(texts)


def _step_text(step: Progress) -> str:
    return step.note or f"{step.done} of {step.total}"


# How long a forward pass takes: from stored results, or by timing a few batches.


class Pace:
    """Seconds per forward pass of each piece, and in words what these estimates are based on."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._seconds_timed: float | None = None
        self._grounds: dict[str, None] = {}

    @property
    def basis(self) -> str:
        """What the estimates so far are based on."""
        return "; ".join(self._grounds)

    def seconds_a_forward(self, ask: Ask) -> float:
        """Seconds per forward pass of this piece."""
        if ask.kind == "scores":
            model_name = self._pieces.model.identity()["name"]
            stored_pace = pace_of(
                self._pieces.stored_scores(), model_name, self._pieces.task.name, ask.method
            )
            if stored_pace is not None:
                pace = _milliseconds(stored_pace)
                self._note(f"{ask.method} at {pace} a forward, as in the cache's results")
                return stored_pace
        if ask.kind == "curve" and self._stored_pace_of_curves is not None:
            pace = _milliseconds(self._stored_pace_of_curves)
            self._note(f"curves at {pace} a forward, as in the cache's")
            return self._stored_pace_of_curves
        return self._timed_pace(ask) * self._forwards_a_pass(ask)

    def _note(self, ground: str) -> None:
        """Add a ground of the estimates; each is named once."""
        self._grounds[ground] = None

    @cached_property
    def _stored_pace_of_curves(self) -> float | None:
        """Median seconds per forward pass in the stored curves of this model and task.

        None without any.
        """
        pieces = self._pieces
        stored_curves = () if pieces.store is None else pieces.store.curves(pieces.players).results
        return pace_of(
            (result.record for result in stored_curves),
            pieces.model.identity()["name"],
            pieces.task.name,
        )

    def _forwards_a_pass(self, ask: Ask) -> float:
        """Cost of one of the piece's forward passes, in plain ones."""
        if ask.kind != "scores":
            return 1.0
        costs = method_of(ask.method).costs
        if costs.pass_cost == BACKWARD_PASS_COST:
            self._note("a backward pass as two forwards")
        elif costs.pass_cost != 1:
            self._note(f"{ask.method} at {costs.pass_cost:g} forwards a pass")
        if costs.assumed:
            self._note(f"{ask.method} at one forward an example, which is assumed ({costs.words})")
        if not costs.starts_at_head or not self._pieces.model.resumable:
            return costs.pass_cost
        layers = self._pieces.model.depth
        self._note(
            f"{ask.method} at about half a forward, since each starts at the layer of a head"
        )
        return costs.pass_cost * (layers + 1) / (2 * layers)

    def _timed_pace(self, ask: Ask) -> float:
        if self._seconds_timed is None:
            split: Split = "dev" if ask.kind == "scores" else "test"
            paces = self._pieces.paces
            key = (self._pieces.task.name, ask.language, split)
            if not paces.get(key):
                paces[key] = seconds_per_forward(self._pieces.evaluator(ask.language, split))
            self._seconds_timed = paces[key]
            pace = _milliseconds(self._seconds_timed)
            self._note(f"{pace} a forward, as timed on {split} examples of {ask.language}")
        return self._seconds_timed


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"


# Running an experiment: its cost, its pieces, and the report that is stored.

SPLITS: tuple[Split, ...] = ("dev", "test")


def run_experiment(
    key: str,
    pieces: Pieces,
    *,
    options: Mapping[str, OptionValue] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    progress: bool | None = None,
) -> Report:
    """The report of an experiment: looked up in the store, or made from its pieces and stored.

    However it ends, finished pieces stay in the store.

    Args:
        key: Of the study.
        pieces: What the report is made from.
        options: Of the study; those not given are at their defaults.
        on_progress: Called during the work, counted in forward passes; the total grows if the
            forecast was too low.
        progress: Whether a bar shows the progress; None for one in a notebook and on a terminal,
            unless `on_progress` is given.

    Raises:
        HeadlabError: Options, languages or the model do not fit.
    """
    experiment, resolved_options = experiment_with_options(key, pieces, options)
    # errors come before the work, not after it
    spec = report_spec(experiment, pieces, resolved_options)
    report_run = None if pieces.store is None else pieces.store.run(spec)
    if pieces.store is not None:
        pieces.store.note_places(spec, pieces.model, pieces.task)
    stored_report = None if report_run is None else report_run.kept_report()
    if stored_report is not None:
        return stored_report
    forwards_before = pieces.forwards
    start = time.perf_counter()
    forwards_expected = sum(
        ask.forwards for ask in _missing_asks(experiment, pieces, resolved_options)
    )
    with (
        shown_progress(experiment.key, progress, on_progress) as report_progress,
        _ProgressOfExperiment(pieces, forwards_expected, report_progress) as watch,
    ):
        outcome = import_implementation(experiment.module, HOME).run(
            pieces, resolved_options, watch.say
        )
    tables, notes = shown_parts(outcome)
    notes = (*notes, *pieces.omission_notes(), *notes_by_language(pieces.task, pieces.dev_size))
    forwards = pieces.forwards - forwards_before
    report = Report(experiment.key, tables, notes, spec, forwards, time.perf_counter() - start)
    if report_run is not None:
        report_run.finish(report, origin_now())
    return report


def forecast(
    key: str, pieces: Pieces, options: Mapping[str, OptionValue] | None = None
) -> Forecast:
    """The expected cost of an experiment; times a few batches if the store has no pace to go by."""
    experiment, resolved_options = experiment_with_options(key, pieces, options)
    if _is_stored(experiment, pieces, resolved_options):
        return forecast_of([Part(0, None, ("the report is in the cache already",))])
    missing = _missing_asks(experiment, pieces, resolved_options)
    if not missing:
        return forecast_of([Part(0, None, ("every piece is in the cache already",))])
    pace = Pace(pieces)
    paces = [pace.seconds_a_forward(ask) for ask in missing]
    notes = (_missing_text(missing), pace.basis)  # the basis is known once every pace is
    parts = [
        Part(ask.forwards, seconds_a_forward, notes)
        for ask, seconds_a_forward in zip(missing, paces, strict=True)
    ]
    return forecast_of(parts)


def missing_pieces(
    key: str, pieces: Pieces, options: Mapping[str, OptionValue] | None = None
) -> tuple[Ask, ...]:
    """The pieces of an experiment that have to be computed; none if its report is stored."""
    experiment, resolved_options = experiment_with_options(key, pieces, options)
    if _is_stored(experiment, pieces, resolved_options):
        return ()
    return tuple(_missing_asks(experiment, pieces, resolved_options))


def _is_stored(experiment: Experiment, pieces: Pieces, options: Mapping[str, OptionValue]) -> bool:
    """Whether the report is in the store."""
    if pieces.store is None:
        return False
    return pieces.store.run(report_spec(experiment, pieces, options)).kept_report() is not None


def experiment_with_options(
    key: str, pieces: Pieces, options: Mapping[str, OptionValue] | None
) -> tuple[Experiment, dict[str, OptionValue]]:
    """An experiment and its resolved options. Raises HeadlabError for what does not fit."""
    experiment = study(key)
    experiment.check_languages(len(pieces.languages))
    require_seed(pieces.seed)
    given = options or {}
    resolved_options = experiment.resolve(given, pieces.task.likelihood)
    if experiment.settles:
        implementation = import_implementation(experiment.settles, HOME)
        resolved_options = implementation.settled_options(pieces, given, resolved_options)
    return experiment, resolved_options


def report_spec(
    experiment: Experiment, pieces: Pieces, options: Mapping[str, OptionValue]
) -> RunSpec:
    """Spec of a report: everything it depends on; its sha256 names the run."""
    sizes: dict[str, Json] = {}
    hashes: list[str] = []
    for split in SPLITS:
        sizes_and_hashes = [pieces.size_and_hash(language, split) for language in pieces.languages]
        sizes[split] = [size for size, _ in sizes_and_hashes]
        hashes += [data_hash for _, data_hash in sizes_and_hashes]
    examples = pieces.examples(pieces.languages[0], SPLITS[0])
    task = TaskSpec(
        name=pieces.task.name,
        language=",".join(pieces.languages),
        split=",".join(SPLITS),
        sizes=sizes,
        seed=pieces.task.seed,
        data_hash=content_key(hashes),
        more={
            **classes_for_spec(pieces.model, pieces.task),
            **tokens_version(pieces.model, examples),
        },
    )
    versions: dict[str, Json] = {
        name: version for name, (_, version) in experiment.renewed(options).items()
    }
    return RunSpec(
        format=RESULT_FORMAT,
        kind=REPORT_KIND,
        experiment=experiment.key,
        version=experiment.version_on(pieces.model.grid.kinds),
        model=ModelSpec.from_json(pieces.identity()),
        task=task,
        ablation=read_ablation(pieces.ablation),
        contrasts=pieces.contrasts_hash(),
        options=as_plain_object(options),
        seed=pieces.seed,
        method_versions=versions or None,
        players=pieces.players,
        groups=pieces.model.grid.members_sha256,
    )


def _missing_asks(
    experiment: Experiment, pieces: Pieces, options: Mapping[str, OptionValue]
) -> list[Ask]:
    """The different pieces that have to be computed."""
    asks: Sequence[Ask] = import_implementation(experiment.module, HOME).cost(pieces, options)
    asks_by_description = {ask.description: ask for ask in asks}
    return [ask for ask in asks_by_description.values() if ask.is_missing]


def _missing_text(missing: Sequence[Ask]) -> str:
    """The missing pieces by kind, in words."""
    cost_by_kind: dict[str, tuple[int, set[str]]] = {}
    for ask in missing:
        kind = f"{ask.method} scores" if ask.kind == "scores" else ask.kind
        forwards, languages = cost_by_kind.get(kind, (0, set()))
        cost_by_kind[kind] = forwards + ask.forwards, languages | {ask.language}
    return "; ".join(
        f"{kind} of {len(languages)} language{'s' if len(languages) > 1 else ''} ({forwards:,})"
        for kind, (forwards, languages) in cost_by_kind.items()
    )


class _ProgressOfExperiment:
    """Reports an experiment's progress: its pieces' reports, after the study's latest message."""

    def __init__(
        self, pieces: Pieces, expected_forwards: int, on_progress: Callable[[Progress], None]
    ) -> None:
        self._pieces = pieces
        self._expected_forwards = expected_forwards
        self._on_progress = on_progress
        self._forwards_before = pieces.forwards
        self._message = ""
        self._forwards_done = 0

    def __enter__(self) -> _ProgressOfExperiment:
        self._report_before = self._pieces.report
        self._pieces.report = self._step
        return self

    def __exit__(self, *_: object) -> None:
        self._pieces.report = self._report_before

    def say(self, text: str) -> None:
        """Set the experiment's message and report it."""
        self._message = text
        self._step(Progress(self._pieces.forwards, 0))

    def _step(self, step: Progress) -> None:
        # The count never falls, though a piece may take fewer passes than expected.
        self._forwards_done = max(self._forwards_done, step.done - self._forwards_before)
        total = max(self._expected_forwards, self._forwards_done)
        note = ": ".join(part for part in (self._message, step.note) if part)
        self._on_progress(replace(step, done=self._forwards_done, total=total, note=note))
