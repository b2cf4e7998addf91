"""Experiments: the pieces they are assembled from, their cost at the device's pace, and the report that is stored."""

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
    content_key,
    implementation,
    plain_object,
    require_seed,
)
from headlab.evaluation import Dataset, Evaluator, classes_of, compare
from headlab.hooks import Model, tokens_version
from headlab.masks import Mask
from headlab.methods import (
    BACKWARD_PASS_COST,
    METHODS,
    RANDOM_METHOD,
    Forecast,
    Part,
    Work,
    alike,
    answers_spec,
    expected_forwards,
    make_spec,
    outcome_of,
    score,
    stored,
    sum_of,
    timed,
)
from headlab.methods import method as method_of
from headlab.methods import pace as pace_of
from headlab.models import made_now
from headlab.results import FORMAT, REPORT, Curve, HeadScores, Run, Store, counts
from headlab.studies.curves import curve_spec, prune_curve
from headlab.studies.result import shown_parts
from headlab.studies.table import HOME, Experiment, Say, scored_with, study
from headlab.tasks import DEV_SIZE, Example, Split, Task, notes_by_language

# The pieces: scores, answers and curves, from the store or computed and stored.

EVALUATORS = 3  # splits whose tokens are cached
REMEMBERED = 512  # evaluations cached in memory


Kind = Literal["scores", "answers", "curve", "passes"]
Piece = TypeVar("Piece", HeadScores, Evaluation, Curve)


@dataclass(frozen=True)
class Ask:
    """A piece that an experiment needs.

    Attributes:
        kind: What its pace depends on: scores of `method`, plain answers, a curve, or other passes.
        language: Of the examples.
        what: A description, equal for equal pieces.
        forwards: Forward passes of one example each; 0 if it is available.
        method: Of scores.
        missing: Whether it must be computed, be it without a forward pass; None where `forwards`
            says so.
    """

    kind: Kind
    language: str
    what: str
    forwards: int
    method: str = ""
    missing: bool | None = None

    @property
    def is_missing(self) -> bool:
        """Whether it must be computed."""
        return self.forwards > 0 if self.missing is None else self.missing


@dataclass
class Pieces:
    """The pieces that experiments are assembled from: scores, answers under masks and curves.

    Each comes from the store or is computed and stored there, so a second experiment costs nothing for what it
    shares with the first.  store: None caches in memory only.  dev_size, test_size: examples of each split, None
    for all.  tick: called between batches; may raise to stop, and finished pieces stay stored.  report: called
    during computation, with the forward passes done in this object's life.  paces: seconds of a plain forward pass by
    task, language and split, timed once for all forecasts.  forwards: passes (one example each) on missing pieces.
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
    paces: MutableMapping[tuple[str | None, ...], float] = field(default_factory=dict)
    forwards: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._read: dict[tuple[str, Split, int], Sequence[Example]] = {}
        self._scores: dict[str, HeadScores] = {}
        self._datasets: dict[tuple[str, Split], Dataset] = {}
        self._omissions: dict[tuple[str, Split], Omissions] = {}
        self._specs: dict[tuple[str, Split], RunSpec] = {}
        self._known: list[HeadScores] | None = None
        self._answers: LRUCache[tuple[str, Split, str], Evaluation] = LRUCache(REMEMBERED)
        self._evaluators: LRUCache[tuple[str, Split], Evaluator] = LRUCache(EVALUATORS)
        self._task = replace(self.task, read=self._read_once)

    @property
    def languages(self) -> tuple[str, ...]:
        """The task's languages."""
        return self.task.languages

    def size(self, split: Split) -> int | None:
        """Number of examples to use of a split, None for all."""
        return self.dev_size if split == "dev" else self.test_size

    def examples(self, language: str, split: Split) -> tuple[Example, ...]:
        """The examples used of a split."""
        return self.dataset(language, split).examples

    def groups(self, language: str, numbers: Ints, split: Split) -> tuple[str, ...]:
        """The names of a curve's groups, [answer], of which it stores the indices in sorted order."""
        names = np.unique([one.cluster for one in self.examples(language, split)])
        return tuple(names[numbers].tolist())

    def data_of(self, language: str, split: Split) -> tuple[int, str]:
        """Number of examples used of a split, and the sha256 of their content."""
        return len(self.examples(language, split)), self._spec(language, split).task.data_hash

    def identity(self) -> dict[str, Json]:
        """What a result records about the model, including its precision."""
        return self._spec(self.languages[0], "dev").model.to_json()

    def scores(
        self, language: str, method: str, *, seed: int | None = None, **options: OptionValue
    ) -> HeadScores:
        """Scores of every head on dev. Options are the method's; errors as in `headlab.score`."""
        found = self.found(language, method, seed=seed, **options)
        if found is not None:
            return self._noted(language, "dev", found)
        spec = self.score_spec(language, method, seed, options)
        before, expected = self.forwards, self.expected(language, method, **options)

        def on_progress(step: Progress) -> None:
            done = before + expected * step.done // max(1, step.total)
            self.report(Progress(done, done, f"{method} of {language}: {_words(step)}"))

        scores = score(
            self.model,
            self._task,
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
            **options,
        )
        self._scores[spec.key] = scores
        self.forwards = before + scores.example_forwards
        return self._noted(language, "dev", scores)

    def found(
        self, language: str, method: str, *, seed: int | None = None, **options: OptionValue
    ) -> HeadScores | None:
        """As `scores`, but None if they are not computed yet. Raises HeadlabError for a file that cannot be trusted."""
        spec = self.score_spec(language, method, seed, options)
        key = spec.key
        if key not in self._scores:
            if method == RANDOM_METHOD:
                work = Work(self.evaluator(language, "dev"), self._seed(seed), {}, self.ablation)
                self._scores[key] = outcome_of(METHODS[RANDOM_METHOD], work).scores(
                    self.model.grid, spec, 0, 0.0
                )
            elif (
                self.store is not None
                and (kept := stored(self.store.run(spec), self.model.grid)) is not None
            ):
                self._scores[key] = kept.record
        return self._scores.get(key)

    def expected(self, language: str, method: str, **options: OptionValue) -> int:
        """Expected forward passes for these scores; see `headlab.methods.costs.expected_forwards`."""
        chosen = method_of(method)
        resolved = chosen.resolve(options)
        seen = [s for s in self.known_scores() if alike(s, chosen, resolved)]
        heads, examples = self.model.grid.size, len(self.examples(language, "dev"))
        resumable = self.model.resumable
        return expected_forwards(chosen, resolved, heads, examples, seen, resumable=resumable)[0]

    def each(self, title: str, say: Say) -> Iterator[str]:
        """The languages in turn, each told to `say`."""
        for number, language in enumerate(self.languages, 1):
            say(f"{title}, {language} ({number} of {len(self.languages)})")
            yield language

    def scored(self, language: str, options: Mapping[str, OptionValue]) -> HeadScores:
        """Scores by the method that a study's options name."""
        method, method_options = scored_with(options)
        return self.scores(language, method, seed=None, **method_options)

    def known(self, options: Mapping[str, OptionValue]) -> dict[str, HeadScores | None]:
        """As `scored`, of every language; None where they are not computed yet."""
        method, method_options = scored_with(options)
        return {
            name: self.found(name, method, seed=None, **method_options) for name in self.languages
        }

    def answers(
        self, language: str, kept: Bools | None = None, split: Split = "test"
    ) -> Evaluation:
        """Answers with some heads switched off. kept: bool [head]; None for the untouched model.

        Raises HeadlabError if kept does not have one entry per head.
        """
        mask = self._mask(kept)
        found = self._lookup(language, mask, split)
        if found is not None:
            return self._noted(language, split, found)
        evaluator = self.evaluator(language, split)
        before, heads = self.forwards, len(mask.removed)
        note = f"{split} answers in {language}, {heads} head{'' if heads == 1 else 's'} gone"
        first = evaluator.forwards

        def counted() -> None:
            self.forwards = before + evaluator.forwards - first
            self.report(Progress(self.forwards, self.forwards, note))

        def between() -> None:
            counted()
            self.tick()

        evaluator.tick = between
        evaluation = evaluator.evaluate(mask, ablation=self.ablation)
        run = self._answers_run(language, split)
        if run is not None:
            run.keep_answers(mask.digest, evaluation, evaluator.inputs.units)
        counted()
        self._answers[language, split, mask.digest] = evaluation
        return self._noted(language, split, evaluation)

    def all_answers(
        self, language: str, masks: Sequence[Bools | None], split: Split = "test"
    ) -> list[Evaluation]:
        """Answers under several masks, in the order given."""
        return [self.answers(language, kept, split) for kept in masks]

    def digest(self, kept: Bools | None) -> str:
        """The key under which a mask's answers are stored."""
        return self._mask(kept).digest

    def compared(self, language: str, kept: Bools, split: Split = "test") -> Comparison:
        """A mask compared with the untouched model, paired over the answers and resampled by group."""
        whole = self.answers(language, None, split)
        return compare(whole, self.answers(language, kept, split), self.seed)

    def has_answers(self, language: str, kept: Bools | None = None, split: Split = "test") -> bool:
        """Whether these answers are already available."""
        return self._lookup(language, self._mask(kept), split) is not None

    def curve(self, language: str, scores: HeadScores, points: int | None = None) -> Curve:
        """Accuracy on test as heads are removed, lowest score first; arguments and errors as `headlab.prune_curve`."""
        found = self.found_curve(language, scores, points)
        if found is not None:
            return self._noted(language, "test", found)
        before = self.forwards

        def on_progress(step: Progress) -> None:
            self.report(
                Progress(
                    before + step.done, before + step.done, f"curve of {language}: {_words(step)}"
                )
            )

        curve = prune_curve(
            self.model, self._task, language=language, scores=scores, size=self.test_size, points=points,
            ablation=self.ablation, store=self.store, on_progress=on_progress, tick=self.tick, seed=self.seed,
        )  # fmt: skip
        self.forwards = before + curve.example_forwards
        return self._noted(language, "test", curve)

    def found_curve(
        self, language: str, scores: HeadScores, points: int | None = None
    ) -> Curve | None:
        """As `curve`, but None if it is not in the store. Raises HeadlabError for a file that cannot be trusted."""
        spec = curve_spec(
            self.dataset(language, "test"),
            scores,
            points=points,
            ablation=self.ablation,
            seed=self.seed,
        )
        kept = None if self.store is None else self.store.run(spec).result(Curve)
        return None if kept is None else kept.record

    def known_scores(self) -> list[HeadScores]:
        """Stored scores of this model and task, read once; forecasts are based on them."""
        if self._known is None:
            listed = [] if self.store is None else self.store.scan().results
            own = self.model.identity()["name"], self.task.name
            self._known = [
                r.record
                for r in listed
                if (r.record.spec.model.name, r.record.spec.task.name) == own
            ]
        return self._known

    def evaluator(self, language: str, split: Split) -> Evaluator:
        """An evaluator of the split's examples; a few are cached, with their tokens but no layer inputs."""
        evaluator = self._evaluators.get((language, split))
        if evaluator is None:
            # Masks seldom leave the first layers alone, so layer inputs are not worth caching from one to the next.
            evaluator = Evaluator(
                self.model,
                self._task,
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
        if key not in self._read:
            self._read[key] = self.task.read(language, split, seed)
        return self._read[key]

    def omission_notes(self) -> tuple[str, ...]:
        """A sentence for each language and split that was used, of which examples were cut or words have no answer."""
        sentences = sorted(
            (where, omissions.sentence) for where, omissions in self._omissions.items()
        )
        return tuple(
            f"{language}, {split}: {words}." for (language, split), words in sentences if words
        )

    def _noted(self, language: str, split: Split, piece: Piece) -> Piece:
        """The piece; what was omitted of its examples is remembered for the report. Older pieces do not say it."""
        if piece.omissions is not None:
            self._omissions[language, split] = piece.omissions
        return piece

    def dataset(self, language: str, split: Split) -> Dataset:
        """The examples used of a split, for the model, without their tokens."""
        if (language, split) not in self._datasets:
            examples = self._task.examples(language, split, self.size(split))
            self._datasets[language, split] = Dataset(
                self.model, self._task, language, split, examples
            )
        return self._datasets[language, split]

    def score_spec(
        self, language: str, method: str, seed: int | None, options: Mapping[str, OptionValue]
    ) -> RunSpec:
        """Spec of a language's scores: everything they depend on; it names them in the store."""
        chosen = method_of(method)
        return make_spec(
            self.dataset(language, "dev"),
            chosen,
            chosen.resolve(options),
            self._seed(seed),
            self.ablation,
        )

    def _seed(self, seed: int | None) -> int:
        """The seed of a method: that of the pieces, unless another is given."""
        return self.seed if seed is None else seed

    def _spec(self, language: str, split: Split) -> RunSpec:
        """Spec of the answers on a split: everything they depend on except the mask."""
        if (language, split) not in self._specs:
            self._specs[language, split] = answers_spec(
                self.dataset(language, split), self.ablation
            )
        return self._specs[language, split]

    def _answers_run(self, language: str, split: Split) -> Run | None:
        return None if self.store is None else self.store.run(self._spec(language, split))

    def _mask(self, kept: Bools | None) -> Mask:
        grid = self.model.grid
        return Mask(grid, np.ones(grid.size, bool) if kept is None else kept, self.model.identity())

    def _lookup(self, language: str, mask: Mask, split: Split) -> Evaluation | None:
        key = language, split, mask.digest
        evaluation = self._answers.get(key)
        if evaluation is None and (run := self._answers_run(language, split)) is not None:
            evaluation = run.answers(mask.digest, self.examples(language, split))
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
        key = method_of(method).key
        method_options = dict(options or {})
        what = f"{key} scores of {language}{_with(method_options, seed)}"
        if self.found(language, method, seed=seed, **method_options) is not None:
            return Ask("scores", language, what, 0, key, missing=False)
        forwards = self.expected(language, method, **method_options)
        return Ask("scores", language, what, forwards, key, missing=True)

    def ask_scored(self, options: Mapping[str, OptionValue]) -> list[Ask]:
        """The cost of `self.scored` in every language."""
        method, method_options = scored_with(options)
        return [self.ask_scores(name, method, options=method_options) for name in self.languages]

    def ask_answers(
        self,
        language: str,
        masks: Sequence[Bools | None],
        *,
        unknown: int = 0,
        split: Split = "test",
    ) -> Ask:
        """The cost of the answers under these masks; None is the untouched model.

        unknown: number of further masks, which depend on scores not computed yet.
        """
        wanted = {} if not masks else {self.digest(kept): kept for kept in masks}
        lacking = unknown + sum(
            not self.has_answers(language, kept, split) for kept in wanted.values()
        )
        what = f"{split} answers in {language} under {len(wanted) + unknown} masks"
        return Ask("answers", language, what, lacking * len(self.examples(language, split)))

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
        scores = self.found(language, method, seed=seed, **dict(options or {}))
        found = None if scores is None else self.found_curve(language, scores, points)
        steps = len(counts(self.model.grid.size, points))
        what = f"curve of {language} by {method}{_with(options or {}, seed)}"
        return Ask(
            "curve",
            language,
            what,
            0 if found is not None else steps * len(self.examples(language, "test")),
        )

    def ask_passes(self, language: str, what: str, forwards: int) -> Ask:
        """The cost of `forwards` plain forward passes for another purpose."""
        return Ask("passes", language, what, forwards)


def _with(options: Mapping[str, OptionValue], seed: int | None) -> str:
    return "".join(f", {name} {value}" for name, value in options.items()) + (
        "" if seed is None else f", seed {seed}"
    )


def _words(step: Progress) -> str:
    return step.note or f"{step.done} of {step.total}"


# How long a forward pass takes: from stored results, or by timing a few batches.


class Pace:
    """Seconds per forward pass of each piece, with a record, in words, of what the estimates are based on."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._timed: float | None = None
        self._rests: dict[str, None] = {}

    @property
    def words(self) -> str:
        """What the estimates so far are based on."""
        return "; ".join(self._rests)

    def of(self, ask: Ask) -> float:
        """Seconds per forward pass of this piece."""
        if ask.kind == "scores":
            name = self._pieces.model.identity()["name"]
            seen = pace_of(self._pieces.known_scores(), name, self._pieces.task.name, ask.method)
            if seen is not None:
                self._rests[
                    f"{ask.method} at {_told(seen)} a forward, as in the cache's results"
                ] = None
                return seen
        if ask.kind == "curve" and (known := self._curves) is not None:
            self._rests[f"curves at {_told(known)} a forward, as in the cache's"] = None
            return known
        return self._plain(ask) * self._share(ask)

    @cached_property
    def _curves(self) -> float | None:
        """Median seconds per forward pass in the stored curves of this model and task; None without any."""
        pieces = self._pieces
        listed = () if pieces.store is None else pieces.store.curves().results
        return pace_of(
            (r.record for r in listed), pieces.model.identity()["name"], pieces.task.name
        )

    def _share(self, ask: Ask) -> float:
        """Cost of one of the piece's forward passes, in plain ones."""
        if ask.kind != "scores":
            return 1.0
        costs = method_of(ask.method).costs
        if costs.pass_cost == BACKWARD_PASS_COST:
            self._rests["a backward pass as two forwards"] = None
        elif costs.pass_cost != 1:
            self._rests[f"{ask.method} at {costs.pass_cost:g} forwards a pass"] = None
        if costs.assumed:
            self._rests[
                f"{ask.method} at one forward an example, which is assumed ({costs.words})"
            ] = None
        if not costs.starts_at_head or not self._pieces.model.resumable:
            return costs.pass_cost
        layers = self._pieces.model.grid.layers
        self._rests[
            f"{ask.method} at about half a forward, since each starts at the layer of a head"
        ] = None
        return costs.pass_cost * (layers + 1) / (2 * layers)

    def _plain(self, ask: Ask) -> float:
        if self._timed is None:
            split: Split = "dev" if ask.kind == "scores" else "test"
            paces, key = self._pieces.paces, (self._pieces.task.name, ask.language, split)
            self._timed = paces[key] = paces.get(key) or timed(
                self._pieces.evaluator(ask.language, split)
            )
            self._rests[
                f"{_told(self._timed)} a forward, as timed on {split} examples of {ask.language}"
            ] = None
        return self._timed


def _told(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"


# Running an experiment: its cost, its pieces, and the report that is stored.

SPLITS: tuple[Split, ...] = ("dev", "test")


def run_experiment(
    key: str,
    pieces: Pieces,
    *,
    options: Mapping[str, OptionValue] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Report:
    """The report of an experiment: looked up in the store, or made from its pieces and stored.

    on_progress: called during the work, counted in forward passes; the total grows if the forecast was too low.
    Raises HeadlabError for options, languages or a model that do not fit; however it ends, finished pieces stay in
    the store.
    """
    about, resolved = prepared(key, pieces, options)
    spec = report_spec(about, pieces, resolved)  # errors come before the work, not after it
    run = None if pieces.store is None else pieces.store.run(spec)
    if pieces.store is not None:
        pieces.store.note_places(spec, pieces.model, pieces.task)
    kept = None if run is None else run.kept_report()
    if kept is not None:
        return kept
    before, began = pieces.forwards, time.perf_counter()
    expected = sum(ask.forwards for ask in _missing(about, pieces, resolved))
    with _Watch(pieces, expected, on_progress) as watch:
        outcome = implementation(about.module, HOME).run(pieces, resolved, watch.say)
    tables, notes = shown_parts(outcome)
    notes = (*notes, *pieces.omission_notes(), *notes_by_language(pieces.task, pieces.dev_size))
    forwards = pieces.forwards - before
    report = Report(about.key, tables, notes, spec, forwards, time.perf_counter() - began)
    if run is not None:
        run.finish(report, made_now())
    return report


def forecast(
    key: str, pieces: Pieces, options: Mapping[str, OptionValue] | None = None
) -> Forecast:
    """The expected cost of an experiment; times a few batches if the store has no pace to go by."""
    about, resolved = prepared(key, pieces, options)
    if _is_stored(about, pieces, resolved):
        return sum_of([Part(0, None, ("the report is in the cache already",))])
    missing = _missing(about, pieces, resolved)
    if not missing:
        return sum_of([Part(0, None, ("every piece is in the cache already",))])
    pace = Pace(pieces)
    paces = [pace.of(ask) for ask in missing]
    words = (_named(missing), pace.words)
    return sum_of(
        [
            Part(ask.forwards, seconds_a_forward, words)
            for ask, seconds_a_forward in zip(missing, paces, strict=True)
        ]
    )


def missing_pieces(
    key: str, pieces: Pieces, options: Mapping[str, OptionValue] | None = None
) -> tuple[Ask, ...]:
    """The pieces of an experiment that have to be computed; none if its report is stored."""
    about, resolved = prepared(key, pieces, options)
    if _is_stored(about, pieces, resolved):
        return ()
    return tuple(_missing(about, pieces, resolved))


def _is_stored(about: Experiment, pieces: Pieces, options: Mapping[str, OptionValue]) -> bool:
    """Whether the report is in the store."""
    if pieces.store is None:
        return False
    return pieces.store.run(report_spec(about, pieces, options)).kept_report() is not None


def prepared(
    key: str, pieces: Pieces, options: Mapping[str, OptionValue] | None
) -> tuple[Experiment, dict[str, OptionValue]]:
    """An experiment and its resolved options. Raises HeadlabError for what does not fit."""
    about = study(key)
    about.check_languages(len(pieces.languages))
    require_seed(pieces.seed)
    return about, about.resolve(options or {})


def report_spec(about: Experiment, pieces: Pieces, options: Mapping[str, OptionValue]) -> RunSpec:
    """Spec of a report: everything it depends on; its sha256 names the run."""
    sizes: dict[str, Json] = {}
    hashes: list[str] = []
    for split in SPLITS:
        sizes_and_hashes = [pieces.data_of(language, split) for language in pieces.languages]
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
        more={**classes_of(pieces.model, pieces.task), **tokens_version(pieces.model, examples)},
    )
    versions: dict[str, Json] = {
        name: version for name, (_, version) in about.renewed(options).items()
    }
    return RunSpec(
        format=FORMAT,
        kind=REPORT,
        experiment=about.key,
        version=about.version,
        model=ModelSpec.from_json(pieces.identity()),
        task=task,
        ablation=pieces.ablation,
        options=plain_object(options),
        seed=pieces.seed,
        method_versions=versions or None,
    )


def _missing(about: Experiment, pieces: Pieces, options: Mapping[str, OptionValue]) -> list[Ask]:
    """The different pieces that have to be computed."""
    needed: Sequence[Ask] = implementation(about.module, HOME).cost(pieces, options)
    different = {ask.what: ask for ask in needed}
    return [ask for ask in different.values() if ask.is_missing]


def _named(missing: Sequence[Ask]) -> str:
    """The missing pieces by kind, in words."""
    kinds: dict[str, tuple[int, set[str]]] = {}
    for ask in missing:
        kind = f"{ask.method} scores" if ask.kind == "scores" else ask.kind
        forwards, languages = kinds.get(kind, (0, set()))
        kinds[kind] = forwards + ask.forwards, languages | {ask.language}
    return "; ".join(
        f"{kind} of {len(languages)} language{'s' if len(languages) > 1 else ''} ({forwards:,})"
        for kind, (forwards, languages) in kinds.items()
    )


class _Watch:
    """Progress of an experiment: what its pieces report, prefixed with the experiment's latest message."""

    def __init__(
        self, pieces: Pieces, expected: int, on_progress: Callable[[Progress], None] | None
    ) -> None:
        self._pieces, self._expected, self._tell = pieces, expected, on_progress or (lambda _: None)
        self._first, self._said, self._most = pieces.forwards, "", 0

    def __enter__(self) -> _Watch:
        self._before, self._pieces.report = self._pieces.report, self._step
        return self

    def __exit__(self, *_: object) -> None:
        self._pieces.report = self._before

    def say(self, text: str) -> None:
        """Set the experiment's message and report it."""
        self._said = text
        self._step(Progress(self._pieces.forwards, 0))

    def _step(self, step: Progress) -> None:
        done = self._most = max(
            self._most, step.done - self._first
        )  # a piece may take fewer than expected
        note = ": ".join(part for part in (self._said, step.note) if part)
        self._tell(replace(step, done=done, total=max(self._expected, done), note=note))
