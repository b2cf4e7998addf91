"""Score jobs: head scores by one method.

Curve jobs: accuracy as heads are removed in the order of their scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
)

from headlab.core import (
    HEADS,
    NEURONS,
    HeadlabError,
    Option,
    noun_of,
    part,
    players_phrase,
    read_players,
)
from headlab.jobs import (
    ABLATION,
    NO_CONTEXT,
    OPTION_LIMITS,
    SEED,
    Ablation,
    CommandContext,
    Estimate,
    Flag,
    ForecastBasis,
    JobPart,
    JobPlace,
    JobSettings,
    Lab,
    Name,
    Options,
    Outcome,
    RunningJob,
    Seed,
    SplitName,
    TaskJob,
    Tick,
    estimate,
    examples_of_dev,
    examples_of_test,
    is_about,
    keys_of,
    listed_languages,
    pace_words,
    result_for_each_language,
    seed_and_ablation,
    setting,
    spec_fields,
    within_limits,
)
from headlab.methods import DEFAULT_METHOD, METHODS, REFUSED_IN_A_LANGUAGE, Part, costs, method
from headlab.results import Curve, HeadScores, removed_counts
from headlab.tasks import DEV_SIZE, has_classes_of_map, task

if TYPE_CHECKING:
    from headlab.hooks import Model
    from headlab.tasks import Task


PLAYERS = Option(
    HEADS,
    "what is switched instead of heads: kv-groups, attention, feed-forward, neurons:N (N groups a "
    "layer) or layers; several joined by commas, as in heads,neurons:8",
    label="What is switched",
    tip="Heads, or other parts of the model, one by one or together.",
)
# Any text is a sentence's matter: `read_players` says what fits.
PlayersText = Annotated[str, StringConstraints(max_length=300)]


class MethodJob(TaskJob):
    """A job on head scores by one method, in some languages of a task ("all": in every one).

    players: what is switched and scored instead of heads, like "kv-groups" or "heads,neurons:8".
    """

    method: Name = DEFAULT_METHOD
    options: Options = Field(default_factory=dict)
    seed: Seed = setting(SEED)
    ablation: Ablation = setting(ABLATION)
    players: PlayersText = setting(PLAYERS)

    places: ClassVar[tuple[JobPlace, ...]] = ("here", "ray")
    on_jobs_page: ClassVar[bool] = True

    def resolve(self) -> Self:
        """The job with every default filled in.

        Raises:
            HeadlabError: For an unknown task, language, method or option.
        """
        method(self.method)  # an unknown one is refused before the task is read
        job = self.resolved_on(self.chosen_task())
        within_limits(job.options, OPTION_LIMITS)
        return job

    def resolved_on(self, task: Task) -> Self:
        """The job with every default and the task's languages filled in.

        Unlike `resolve`, it holds the options to no upper limits: a command may exceed those of a
        job.

        Args:
            task: The job's task, in the job's languages.

        Raises:
            HeadlabError: For an unknown method or option, and for unknown players.
        """
        chosen_method = method(self.method).for_task(task.likelihood)
        costs.require_stand_in(chosen_method, self.ablation, self.options)
        return self.model_copy(
            update={
                "players": str(read_players(self.players)),
                "method": chosen_method.key,
                "languages": list(task.languages),
                "options": chosen_method.recorded(chosen_method.resolve(self.options)),
            }
        )

    @model_serializer(mode="wrap")
    def _without_heads(self, fields_of: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The fields; heads are not named, as in jobs of earlier versions."""
        fields: dict[str, Any] = fields_of(self)
        if fields.get("players") == HEADS:
            del fields["players"]
        return fields

    def model_in(self, lab: Lab, task: Task, tick: Tick | None = None) -> Model:
        """The job's model, of which the job's players are switched.

        Args:
            lab: What the job works with.
            task: On which groups of neurons are formed.
            tick: Called between batches while they are.

        Raises:
            HeadlabError: The model has no such players.
        """
        model = lab.need(self.model)
        if self.players == HEADS:
            return model
        from headlab.methods import model_with_players  # imports torch

        return model_with_players(model, task, self.players, store=lab.store, tick=tick)

    def check_model(self, model: Model) -> None:
        """Refuse a model that the method cannot score, before anything is computed.

        Raises:
            HeadlabError: It has too many heads, or a decoder where the method is for encoders, or
                the method cannot score what is switched.
        """
        options = method(self.method).resolve(self.options)
        costs.require_players(method(self.method), model.grid, options)
        costs.require_few_heads(method(self.method), model.grid.size, model.grid.noun)
        costs.require_encoder(method(self.method), model.grid)
        costs.require_candidates(self.options, model.grid)
        costs.require_stand_in(method(self.method), self.ablation, self.options)

    def method_title(self) -> str:
        """The method as pages write it; its key if it is unknown here."""
        if self.method in METHODS:
            return METHODS[self.method].title
        return self.method


class ScoreJob(MethodJob):
    """Head scores of a model by one method, in some languages of a task ("all": in every one).

    label_map: {label: class of the model, by its name or number}; none matches names, or tries all
    orders on dev.
    """

    split: SplitName = "dev"
    size: int = setting(examples_of_dev("number of examples of the split"))

    key: ClassVar[str] = "score"
    name: ClassVar[str] = "Scores"
    about: ClassVar[str] = "The score of each head in each language."
    summary: ClassVar[str] = "Head scores, and where they are computed."
    page: ClassVar[str] = "heads"
    help_order: ClassVar[tuple[str, ...]] = ("seed", "size", "ablation", "players")

    def subject(self) -> str:
        """The method, and what it scores if these are not heads."""
        return _with_players_words(self.method_title(), self.players)

    @classmethod
    def settings(cls) -> JobSettings:
        """The size, then how the scores are made."""
        settings = super().settings()
        return {name: settings[name] for name in ("players", "size", "seed", "ablation")}

    def forecast(self, known: ForecastBasis) -> Estimate:
        """Cost of the languages that the store lacks."""
        measure_request = replace(self.plain_passes(), players=self.players)
        if not method(self.method).costs.in_walks:
            measure_request = replace(
                measure_request, method=self.method, options=dict(self.options)
            )
        return estimate(
            [scores_part(self, listed_languages(self.languages), known)], measure_request
        )

    def run(self, lab: Lab, running: RunningJob) -> Outcome:
        """Score every language; stored scores are not computed again."""
        task = lab.task(self.task, self.label_map)
        self.check_model(self.model_in(lab, task, running.tick))
        return keys_of(self.scores(lab, running, task))

    def scores(self, lab: Lab, running: RunningJob, task: Task) -> dict[str, HeadScores]:
        """Scores by language: from the store, or computed and stored.

        Args:
            lab: What the job works with.
            running: The job.
            task: That it is on.

        Raises:
            HeadlabError: Some language has no scores by this method. The others have been scored
                and stored by then.
        """
        languages = listed_languages(self.languages)
        refusals: dict[str, HeadlabError] = {}

        def score_language(index: int, language: str, tick: Tick) -> HeadScores | None:
            job_part = JobPart(self.method, language, language, index, len(languages))
            try:
                return self.score(lab, running, task, job_part, tick)
            except HeadlabError as error:
                if len(languages) == 1 or error.code not in REFUSED_IN_A_LANGUAGE:
                    raise
                refusals[language] = error
                return None

        scores_by_language = result_for_each_language(lab, running, languages, score_language)
        if refusals:
            raise _refusals_in_one(refusals, len(languages))
        return {name: scores for name, scores in scores_by_language.items() if scores is not None}

    def score(
        self, lab: Lab, running: RunningJob, task: Task, job_part: JobPart, tick: Tick
    ) -> HeadScores:
        """Scores of one language: from the store, or computed and stored.

        Args:
            lab: What the job works with.
            running: The job, or another one that needs these scores.
            task: That the job is on.
            job_part: The part of the running job's work that these scores are.
            tick: Called between batches; may raise to stop.
        """
        from headlab.methods import score  # imports torch

        options: dict[str, Any] = dict(self.options)
        return score(
            self.model_in(lab, task, tick),
            task,
            language=job_part.language,
            method=self.method,
            seed=self.seed,
            split=self.split,
            size=self.size,
            ablation=self.ablation,
            store=lab.watched_store(running, job_part.language),
            on_progress=running.part_progress(job_part),
            tick=tick,
            helpers=lab.helpers,
            **options,
        )

    def commands(self, context: CommandContext = NO_CONTEXT) -> list[list[str]]:
        """The command; none for another split than dev, on which Python alone scores."""
        if self.split == "dev":
            return super().commands(context)
        return []

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """The job that would compute the scores of a spec, which must be of the dev split."""
        return cls.model_construct(
            **spec_fields(spec),
            **seed_and_ablation(spec),
            method=part(spec, "method", "name"),
            options=spec["method"]["options"],
            size=part(spec, "task", "size"),
            **_players_of(spec),
        )


def _with_players_words(text: str, players: str) -> str:
    """A heading, with what is switched if that is not heads."""
    return text if players == HEADS else f"{text} of {players_phrase(players)}"


def _players_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The players of a result's spec, as a field of a job; none for heads."""
    players = spec.get("players")
    return {"players": players} if players else {}


def _refusals_in_one(refusals: Mapping[str, HeadlabError], language_count: int) -> HeadlabError:
    """One error for all languages that have no scores by a method.

    Args:
        refusals: Errors by language.
        language_count: Number of languages that were asked for.
    """
    reasons = "; ".join(
        str(error) if str(error).startswith(f"{language}: ") else f"{language}: {error}"
        for language, error in refusals.items()
    )
    scored_count = language_count - len(refusals)
    return HeadlabError(
        f"{len(refusals)} of {language_count} languages could not be scored, and the scores of the other "
        f"{scored_count} are stored. {reasons}",
        code="score.languages_refused",
    )


class CurveJob(MethodJob):
    """Accuracy on `split` as heads are removed, lowest scores first.

    Scores are of `method` on the dev split.

    size: examples of the split, None for all.  points: number of removed-head counts to evaluate,
    None for the default ones.
    """

    split: SplitName = setting(
        Option(
            "test",
            "split to measure the curve on; heads are ordered on dev, so use test",
            ("test", "dev"),
            label="Accuracy on",
            tip="Heads are ordered on dev, so measure on test.",
        )
    )
    size: int | None = setting(
        examples_of_test("examples to measure on; default: all of the split")
    )
    points: int | None = setting(
        Option(
            None,
            "counts of removed heads to measure, evenly spaced; default: every one",
            kind=int,
            low=2,
            high=4096,
            optional=True,
            label="Points",
            tip="How many counts of removed heads to measure; empty: every count.",
            empty="every one",
        )
    )

    key: ClassVar[str] = "curve"
    name: ClassVar[str] = "Pruning curve"
    about: ClassVar[str] = "Accuracy as heads are removed one by one, the lowest scores first."
    summary: ClassVar[str] = (
        "Pruning curves, and where the scores that order the heads are computed."
    )
    command_only: ClassVar[JobSettings] = {
        "dev_size": examples_of_dev("dev examples that order the heads")
    }

    def subject(self) -> str:
        """The curve and the method that orders its heads."""
        return _with_players_words(f"{self.name}, {self.method_title()}", self.players)

    @classmethod
    def form_settings(cls) -> JobSettings:
        """All but the size: the form measures on all examples of the split."""
        return {name: option for name, option in cls.settings().items() if name != "size"}

    @classmethod
    def method_flag(cls) -> Flag:
        """The flag of the method whose scores order the heads."""
        help = f"method whose dev scores order the heads: {', '.join(METHODS)}"
        return replace(super().method_flag(), help=help)

    @classmethod
    def command_settings(cls) -> JobSettings:
        """What is measured, then the scores that order the heads, then how both are made."""
        settings = {**cls.settings(), **cls.command_only}
        order = ("split", "size", "dev_size", "points", "players", "seed", "ablation")
        return {name: settings[name] for name in order}

    def ordering(self, dev_size: int = DEV_SIZE) -> ScoreJob:
        """The scores that order the heads: those of a score job with the same settings, on dev.

        Args:
            dev_size: Examples of dev; a command may ask for more than a job.
        """
        shared_fields = {name: getattr(self, name) for name in MethodJob.model_fields}
        return ScoreJob.model_construct(**shared_fields, size=dev_size)

    def check_model(self, model: Model) -> None:
        """Refuse what the model cannot do, before anything is computed.

        Raises:
            HeadlabError: It has too many heads for the method, or fewer than there are points.
        """
        super().check_model(model)
        removed_counts(model.grid.size, self.points)  # raises

    def forecast(self, known: ForecastBasis) -> Estimate:
        """Cost of the missing scores and of the points, each one forward pass per example."""
        languages = listed_languages(self.languages)
        scores = scores_part(self.ordering(), languages, known)
        measure_request = replace(self.plain_passes(), players=self.players)
        return estimate([scores, self._points_part(languages, known)], measure_request)

    def _points_part(self, languages: list[str], known: ForecastBasis) -> Part:
        """Cost of measuring the curves that the store lacks."""
        curves = [curve.record for curve in known.curves]
        missing = []
        for language in languages:
            if not any(self._would_make(curve, language) for curve in curves):
                missing.append(language)
        if not missing:
            return Part(0, None, ("the curves are in the cache already",))
        pace, pace_basis = self._pace(known)
        heads = known.heads_of(self.model)
        if heads is None:
            return Part(None, pace, (_unknown_count(self.players),))
        points = self.points or heads + 1
        examples = len(task(self.task).examples(missing[0], self.split, self.size))
        plural = "s" if len(missing) > 1 else ""
        words = f"{points} points of {examples} examples in {len(missing)} language{plural}"
        return Part(points * examples * len(missing), pace, (words, pace_basis))

    def _pace(self, known: ForecastBasis) -> tuple[float | None, str]:
        """Seconds a forward pass in earlier curves on this device or as timed, and the basis."""
        paces = [
            curve.record.seconds / curve.record.example_forwards
            for curve in known.curves
            if curve.meta.get("device") == known.device
            and is_about(curve.record, self.model, self.task)
            and curve.record.example_forwards
        ]
        plural = "s" if len(paces) > 1 else ""
        basis = f"{len(paces)} curve{plural} computed on such a device ({known.device})"
        return known.median_pace(paces, basis)

    def _would_make(self, curve: Curve, language: str) -> bool:
        """Whether a curve is what the job would compute, as far as is known without the model."""
        order = curve.spec["order"]
        stored_settings = (
            curve.language,
            curve.split,
            order["method"],
            order["options"],
            order["seed"],
            curve.spec["seed"],
            curve.spec["ablation"],
        )
        options: dict[str, Any] = dict(self.options)
        job_settings = (
            language,
            self.split,
            self.method,
            options,
            self.seed,
            self.seed,
            self.ablation,
        )
        if not is_about(curve, self.model, self.task) or stored_settings != job_settings:
            return False
        if not has_classes_of_map(curve.spec["task"], self.label_map):
            return False
        if (self.points or curve.grid.size + 1) != len(curve.removed):
            return False
        examples = task(self.task).examples(language, self.split, self.size)
        return bool(curve.spec["task"]["size"] == len(examples))

    def run(self, lab: Lab, running: RunningJob) -> Outcome:
        """Compute for each language the scores, if the store lacks them, then the curve."""
        chosen_task = lab.task(self.task, self.label_map)
        self.check_model(self.model_in(lab, chosen_task, running.tick))
        return keys_of(self.curves(lab, running, chosen_task, self.ordering()))

    def curves(
        self, lab: Lab, running: RunningJob, task: Task, ordering: ScoreJob
    ) -> dict[str, Curve]:
        """Curves by language, and the scores that order their heads: stored ones, or computed.

        Args:
            lab: What the job works with.
            running: The job.
            task: That it is on.
            ordering: The scores that order the heads, see `ordering`.
        """
        from headlab.studies.curves import prune_curve  # imports torch

        languages = listed_languages(self.languages)
        parts = 2 * len(languages)

        def measure_curve(index: int, language: str, tick: Tick) -> Curve:
            scoring = JobPart(self.method, language, language, 2 * index, parts)
            walking = JobPart(self.key, language, f"{language}, curve", 2 * index + 1, parts)
            scores = ordering.score(lab, running, task, scoring, tick)
            return prune_curve(
                self.model_in(lab, task, tick),
                task,
                language=language,
                scores=scores,
                split=self.split,
                size=self.size,
                points=self.points,
                ablation=self.ablation,
                store=lab.watched_store(running, language),
                on_progress=running.part_progress(walking),
                tick=tick,
                seed=self.seed,
            )

        return result_for_each_language(lab, running, languages, measure_curve, parts=2)

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """The job that makes a stored curve."""
        order = spec["order"]
        removed_counts = spec["removed"]
        every_count = len(removed_counts) == removed_counts[-1] + 1
        return cls.model_construct(
            **spec_fields(spec),
            **seed_and_ablation(spec),
            method=order["method"],
            options=order["options"] or {},
            split=part(spec, "task", "split"),
            size=part(spec, "task", "size"),
            points=None if every_count else len(removed_counts),
            **_players_of(spec),
        )


# Which scores the store lacks, and what these will cost.


def scores_part(job: ScoreJob, languages: Sequence[str], known: ForecastBasis) -> Part:
    """Cost of the scores that the store lacks.

    Raises:
        HeadlabError: The model has too many heads for the method.
    """
    stored_results = [
        result for result in known.results if is_about(result.record, job.model, job.task)
    ]
    available = {
        result.record.language
        for result in stored_results
        if result.record.language in languages and _would_make(job, result.record)
    }
    missing = [language for language in languages if language not in available]
    if not missing:
        return Part(0, None, ("the scores are in the cache already",))
    pace, pace_basis = _pace(job, known)
    heads = known.heads_of(job.model)
    if heads is None:
        return Part(None, pace, (_unknown_count(job.players),))
    chosen_method = method(job.method)
    costs.require_few_heads(chosen_method, heads, noun_of(job.players))
    examples = task(job.task).examples(missing[0], job.split, job.size)
    similar_scores = [
        result.record
        for result in stored_results
        if costs.is_alike(result.record, chosen_method, job.options)
    ]
    forwards, forwards_basis = costs.expected_forwards(
        chosen_method,
        job.options,
        heads,
        len(examples),
        similar_scores,
        resumable=known.measured is None or known.measured.resumable,
        has_slopes=known.has_slopes(job.model) and job.players == HEADS,
        likelihood=bool(task(job.task).likelihood),
    )
    words = [*_cached_words(len(available), len(languages)), forwards_basis]
    if forwards:
        words.append(pace_basis)
    if NEURONS in read_players(job.players).kinds:
        words.append(GROUPS_WORDS)
    return Part(forwards * len(missing), pace, tuple(words))


GROUPS_WORDS = "forming the groups of neurons is not counted: a gradient over 256 examples, once"


def _unknown_count(players: str) -> str:
    """What a forecast says where the number of players is not known."""
    return f"how many {noun_of(players)} the model has is not known yet"


def _cached_words(available: int, languages: int) -> list[str]:
    """A clause on how many languages cost nothing; none if all do cost something."""
    if not available:
        return []
    verb = "is" if available == 1 else "are"
    return [f"{available} of {languages} languages {verb} in the cache already"]


def _pace(job: ScoreJob, known: ForecastBasis) -> tuple[float | None, str]:
    """Seconds a forward pass in earlier scores on such a device or as timed, and the basis."""
    chosen_method = method(job.method)
    on_device = [
        result.record
        for result in known.results
        if result.meta.get("device") == known.device
        and is_about(result.record, job.model, job.task)
    ]
    comparable = [scores for scores in on_device if costs.is_current(scores, chosen_method)]
    pace = costs.pace(comparable, job.model, job.task, job.method)
    if pace is None:
        return known.measured_pace(job.method)
    plural = "s" if len(comparable) > 1 else ""
    basis = f"as in {len(comparable)} result{plural} computed on such a device ({known.device})"
    return pace, pace_words(pace, basis)


def _would_make(job: ScoreJob, scores: HeadScores) -> bool:
    """Whether a result is what a job would compute, as far as can be known without the model.

    The version of the method does not matter: see `headlab.methods.run.stored_result`.
    """
    stored_task = scores.spec["task"]
    stored_settings = (
        scores.spec["method"]["name"],
        scores.spec["method"]["options"],
        scores.spec["seed"],
        scores.spec["ablation"],
        stored_task["split"],
    )
    options: dict[str, Any] = dict(job.options)
    job_settings = (job.method, options, job.seed, job.ablation, job.split)
    if stored_settings != job_settings or not has_classes_of_map(stored_task, job.label_map):
        return False
    # A split may have fewer examples than were asked for; then all of them were taken.
    examples = task(job.task).examples(stored_task["language"], job.split, job.size)
    return bool(stored_task["size"] == len(examples))
