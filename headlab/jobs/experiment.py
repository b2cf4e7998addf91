"""Experiment jobs: an analysis from a paper.

Front jobs: the choice of a smaller model among nested masks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field

from headlab.core import (
    HEADS,
    HeadGrid,
    HeadlabError,
    content_key,
    options_as_words,
    parse_options,
    part,
    players_phrase,
)
from headlab.jobs import (
    ABLATION,
    CHOOSING,
    METHOD_OPTIONS_FLAG,
    NO_CONTEXT,
    OPTION_FLAG,
    OPTION_LIMITS,
    SEED,
    TESTING,
    Ablation,
    CommandContext,
    Details,
    Estimate,
    Flag,
    FlagValue,
    ForecastBasis,
    Job,
    Lab,
    Measured,
    MeasureRequest,
    Name,
    NestedOptions,
    Options,
    Outcome,
    Refusal,
    RunningJob,
    Seed,
    TaskJob,
    WatchedStore,
    examples_of_dev,
    examples_of_test,
    flag_of,
    listed_languages,
    pairs_of,
    seed_and_ablation,
    setting,
    setting_words,
    spec_fields,
    subject_flags,
    value_text,
    within_limits,
)
from headlab.methods import DEFAULT_METHOD, METHODS, Forecast, method, options_on
from headlab.results import HeadScores, Store, StoredRun
from headlab.studies import (
    EXPERIMENT,
    METHOD,
    METHOD_OPTIONS,
    PLAYERS,
    STUDIES,
    VOCABULARY,
    Experiment,
    studies_of,
    study_run_by,
)
from headlab.tasks import Example, Split, Task

if TYPE_CHECKING:
    from headlab.core import Progress, Report, Tick
    from headlab.hooks import Model
    from headlab.studies.run import Pieces

# Upper limits of options that are counts, and of the length of a text.
LIMITS = {
    "runs": 1000,
    "samples": 1 << 20,
    "points": 4096,
    "k": 1 << 20,
    "top": 1 << 20,
    "examples": 100_000,
}
MAX_TEXT = 1000


class ExperimentJob(TaskJob):
    """An experiment on some languages of a task ("all": every one).

    method, method_options: of the scores, if the experiment uses any.  options: the experiment's
    own. dev_size, test_size: examples of each split, None for all.
    """

    experiment: Name
    method: Name = DEFAULT_METHOD
    method_options: Options = Field(default_factory=dict)
    options: NestedOptions = Field(default_factory=dict)
    dev_size: int | None = setting(
        examples_of_dev(CHOOSING, flag="size", tip="Examples that heads are chosen on.")
    )
    test_size: int | None = setting(
        examples_of_test(
            TESTING, tip="Examples that accuracy is reported on; empty: all there are."
        )
    )
    seed: Seed = setting(SEED)
    ablation: Ablation = setting(ABLATION)

    key: ClassVar[str] = EXPERIMENT
    name: ClassVar[str] = "Experiment"
    about: ClassVar[str] = "An analysis from a paper, with its tables and figures."
    summary: ClassVar[str] = "An experiment, run on the worker's own device."
    page: ClassVar[str] = "experiments"
    refusal_status: ClassVar[int | None] = 422
    assembled: ClassVar[bool] = True

    def study(self) -> Experiment:
        """The experiment itself.

        Raises:
            HeadlabError: For an unknown one, or one that another job runs.
        """
        return study_run_by(self.key, self.experiment)

    def known_study(self) -> Experiment | None:
        """The experiment itself; None if it is unknown here."""
        return studies_of(self.key).get(self.experiment)

    def study_options(self) -> dict[str, Any]:
        """The options as the experiment takes them, the method and its options among them."""
        study_option_table = self.study().options
        options: dict[str, Any] = dict(self.options)
        if METHOD in study_option_table:
            options[METHOD] = method(self.method).key
        if METHOD_OPTIONS in study_option_table and self.method_options:
            options[METHOD_OPTIONS] = dict(self.method_options)
        return options

    def resolve(self) -> Self:
        """The job with every default filled in.

        Raises:
            HeadlabError: For anything unknown or invalid, or if the task's data are missing.
        """
        study = self.study()
        chosen_task = self.chosen_task()
        study.check_languages(len(chosen_task.languages))
        for name, words in ((METHOD, "method"), (METHOD_OPTIONS, "options of the method")):
            if name in self.options:
                raise HeadlabError(
                    f"give the {words} beside the options of {study.key}, not among them",
                    code="experiment.option_misplaced",
                )
        method(self.method)
        options = study.resolve(self.study_options(), chosen_task.likelihood)
        for split in ("dev", "test"):
            chosen_task.examples(chosen_task.languages[0], split, 1)
        chosen_method = options.pop(METHOD, DEFAULT_METHOD)
        resolved_options = options.pop(METHOD_OPTIONS, None)
        method_options = dict(resolved_options) if isinstance(resolved_options, Mapping) else {}
        return self.model_copy(
            update={
                "languages": list(chosen_task.languages),
                "method": chosen_method,
                "method_options": within_limits_of_jobs(
                    within_limits(method_options, OPTION_LIMITS)
                ),
                "options": within_limits_of_jobs(options),
            }
        )

    # What people read.

    def subject(self) -> str:
        """The title of the experiment."""
        study = self.known_study()
        if study is None:
            return f"Experiment {self.experiment}"
        return study.title

    def subject_key(self) -> str:
        """The key of the experiment."""
        return self.experiment

    def _about_rows(self) -> Details:
        """The experiment, then the method."""
        return [("Experiment", f"{self.subject()} ({self.experiment})"), *super()._about_rows()]

    def _option_rows(self) -> Details:
        """The experiment's options, then those of the method.

        An option of the method that differs from its default shows this too.
        """
        rows = [(f"Option {name}", value_text(value)) for name, value in self.options.items()]
        method_rows = Job._option_rows(self.model_copy(update={"options": self.method_options}))
        return [*rows, *method_rows]

    # The work.

    def pieces(
        self, lab: Lab, tick: Callable[[], None], running: RunningJob | None = None
    ) -> Pieces:
        """The pieces that the experiment is assembled from.

        Args:
            lab: What the job works with.
            tick: Called between batches.
            running: Is notified of what is stored.
        """
        store = lab.store
        chosen_task = lab.task(self.task, self.label_map).with_languages(
            listed_languages(self.languages)
        )
        if running is not None:
            log = PieceLog(running, self.model_on(chosen_task, lab, tick).grid)
            store = WatchedStore(lab.store.root, demo=lab.store.demo, on_stored=log)
        pieces = self.pieces_on(chosen_task, lab, store, tick)
        if running is not None:
            pieces.show_front = running.show_front
        return pieces

    def pieces_on(self, task: Task, lab: Lab, store: Store, tick: Callable[[], None]) -> Pieces:
        """The pieces that the experiment is assembled from, on a task that is loaded already.

        Args:
            task: In the languages of the experiment.
            lab: What the job works with.
            store: Where the pieces are stored.
            tick: Called between batches.
        """
        from headlab.studies.run import Pieces

        return Pieces(
            self.model_on(task, lab, tick),
            _task_with_ticks(task, tick),
            store,
            seed=self.seed,
            dev_size=self.dev_size,
            test_size=self.test_size,
            ablation=self.ablation,
            tick=tick,
            paces=lab.paces,
            helpers=lab.helpers,
        )

    def model_on(self, task: Task, lab: Lab, tick: Tick | None = None) -> Model:
        """The model, with what the experiment switches on and off.

        Args:
            task: Of the experiment.
            lab: Has the model.
            tick: Called between batches where players are formed on examples.
        """
        return lab.need(self.model)

    def report(self, pieces: Pieces, on_progress: Callable[[Progress], None]) -> Report:
        """The report: from the store, or made of its pieces and stored.

        Args:
            pieces: That it is assembled from.
            on_progress: Called during the work, counted in forward passes.
        """
        from headlab.studies.run import run_experiment

        options = self.study_options()
        return run_experiment(self.experiment, pieces, options=options, on_progress=on_progress)

    def cost(self, pieces: Pieces) -> Forecast:
        """Cost of what the store lacks; a few batches are timed if it has no pace to go by.

        Args:
            pieces: That the report is assembled from.
        """
        from headlab.studies.run import forecast

        return forecast(self.experiment, pieces, self.study_options())

    def run(self, lab: Lab, running: RunningJob) -> Outcome:
        """Make the report; stored pieces are not computed again."""
        running.progress(0, 0, "checking the cache", fresh=True)
        pieces = self.pieces(lab, running.tick, running)
        fresh = True

        def on_progress(step: Progress) -> None:
            nonlocal fresh
            running.progress(step.done, step.total, step.note, fresh=fresh)
            fresh = False

        report = self.report(pieces, on_progress)
        forwards = max(1, pieces.forwards)
        running.progress(forwards, forwards, "the report is stored")
        return {"keys": [content_key(report.spec)]}

    def forecast(self, known: ForecastBasis) -> Estimate:
        """Forecast by the device's thread, which has the model: every piece's key depends on it."""
        if known.measured is not None and known.measured.forecast is not None:
            return Estimate(known.measured.forecast)
        unknown = Forecast(
            forwards=None, seconds=None, basis="what the cache lacks for it is not known yet"
        )
        if known.measured is not None:
            return Estimate(unknown)
        return Estimate(unknown, replace(self.plain_passes(), job=self))

    def measure(self, lab: Lab, request: MeasureRequest, tick: Callable[[], None]) -> Measured:
        """Cost of what the store lacks, at the device's present pace."""
        pieces = self.pieces(lab, tick)
        cost = self.cost(pieces)
        return Measured(heads=pieces.model.head_grid.size, seconds=0.0, forecast=cost)

    # Its command, and back.

    @classmethod
    def flags(cls) -> tuple[Flag, ...]:
        """The experiment, where it is done, the method and both kinds of options, the settings."""
        return (
            Flag("key", f"one of {', '.join(studies_of(cls.key))}"),
            *subject_flags(),
            Flag(
                "--method",
                f"method whose scores are used (default {DEFAULT_METHOD}), where the experiment "
                "has one",
            ),
            replace(METHOD_OPTIONS_FLAG, name=OPTION_FLAG, short="", parameter="method_option"),
            Flag("--option", "name=value of the experiment (--list shows them)", repeated=True),
            *cls.setting_flags(),
        )

    @classmethod
    def from_flags(cls, values: Mapping[str, FlagValue]) -> Self:
        """The job of a command.

        Raises:
            HeadlabError: For an experiment or an option that is unknown or invalid.
        """
        study = study_run_by(cls.key, str(values.get("key") or ""))
        options = parse_options(pairs_of(values, "option"), study.options)
        if values.get("method") is not None:
            _check_takes_method(study)
            options[METHOD] = method(str(values["method"])).key
        method_pairs = pairs_of(values, "method_option")
        if method_pairs:
            _check_takes_method_options(study, options)
            chosen_method = method(str(options.get(METHOD, DEFAULT_METHOD)))
            given_options = parse_options(method_pairs, chosen_method.options)
            chosen_method.resolve(given_options)  # raises; the others' defaults are the task's
            options[METHOD_OPTIONS] = given_options
        study.resolve(options)  # raises for what does not fit
        method_key = options.pop(METHOD, DEFAULT_METHOD)
        method_options = options.pop(METHOD_OPTIONS, {})
        return cls.model_construct(
            experiment=study.key,
            method=method_key,
            method_options=method_options,
            options=options,
            **cls._subject_fields(values),
            **cls._setting_fields(values),
        )

    def commands(self, context: CommandContext = NO_CONTEXT) -> list[list[str]]:
        """The command of the experiment; none if it is unknown here."""
        study = self.known_study()
        if study is None:
            return []
        words = ["headlab", self.key, study.key, *self.subject_words(context)]
        if METHOD in study.options and self.method is not None:
            words += self.method_words("method_options")
        words += options_as_words("--option", self._options_to_write(study), study.options)
        return [[*words, *self.setting_words(context), *context.dtype_words]]

    def _options_to_write(self, study: Experiment) -> dict[str, Any]:
        """The experiment's own options.

        Those that hold a method's options keep only the ones that differ from their defaults.
        """
        options: dict[str, Any] = dict(self.options)
        if METHOD_OPTIONS in study.options_of:
            options[METHOD_OPTIONS] = self.method_options or {}
        for name, key in study.options_of.items():
            inner = options.get(name)
            if isinstance(inner, Mapping):
                method_option_table = options_on(key, str(self.task))
                options[name] = {
                    inner_name: value
                    for inner_name, value in inner.items()
                    if inner_name not in method_option_table
                    or value != method_option_table[inner_name].default
                }
        return options

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """The job that makes a stored report.

        The method and its options are separate from the other options.
        """
        stored_options = spec.get("options")
        options = dict(stored_options) if isinstance(stored_options, Mapping) else {}
        return cls.model_construct(
            **spec_fields(spec),
            **seed_and_ablation(spec),
            dev_size=largest_size(part(spec, "task", "sizes", "dev")),
            test_size=largest_size(part(spec, "task", "sizes", "test")),
            experiment=spec.get("experiment"),
            method=options.pop(METHOD, None),
            method_options=options.pop(METHOD_OPTIONS, {}),
            options=options,
        )

    @classmethod
    def has_all_fields(cls, spec: Mapping[str, Any]) -> bool:
        """Whether the spec has the number of examples and the options too."""
        has_sizes = bool(part(spec, "task", "sizes", "dev"))
        has_sizes = has_sizes and isinstance(part(spec, "task", "sizes", "test"), list)
        return (
            super().has_all_fields(spec) and has_sizes and isinstance(spec.get("options"), Mapping)
        )


FRONT = STUDIES["front"]


def _players_in_words(players: str) -> str:
    """Players in words, or as they were written by another program that knows others."""
    try:
        return players_phrase(players)
    except HeadlabError:
        return players


class FrontJob(ExperimentJob):
    """A front on some languages of a task ("all": every one).

    method, method_options: of the scores that order the heads.  options: orders, points, within,
    heads, by, vocabulary and players, as in docs/front.md.  dev_size, test_size: examples of each split,
    None for all.
    """

    experiment: Literal["front"] = "front"
    dev_size: int | None = setting(
        examples_of_dev(
            CHOOSING,
            flag="size",
            tip="Examples that the model is chosen on. More examples can detect smaller losses.",
        )
    )
    test_size: int | None = setting(examples_of_test(TESTING))

    key: ClassVar[str] = FRONT.job
    name: ClassVar[str] = FRONT.title
    about: ClassVar[str] = "The smallest model that is good enough in every language."
    summary: ClassVar[str] = "A front of smaller models, computed on the worker's own device."
    page: ClassVar[str] = "prune"

    def subject(self) -> str:
        """The front, and the method that orders the heads."""
        name = self.name
        if self.players_switched != HEADS:
            name = f"{name}, {_players_in_words(self.players_switched)}"
        if self.method not in METHODS:
            if self.method:
                return f"{name}, {self.method}"
            return name
        return f"{name}, {METHODS[self.method].title}"

    def model_on(self, task: Task, lab: Lab, tick: Tick | None = None) -> Model:
        """The model, whose players are those of the front.

        Raises:
            HeadlabError: The players are unknown, or the model has none of that kind.
        """
        model = super().model_on(task, lab)
        if self.players_switched == HEADS:
            return model
        from headlab.methods import model_with_players  # imports torch

        return model_with_players(model, task, self.players_switched, store=lab.store, tick=tick)

    @property
    def players_switched(self) -> str:
        """What the front removes, as it was asked for; heads by default."""
        return str(self.options.get(PLAYERS) or HEADS)

    def _about_rows(self) -> Details:
        """The method."""
        return Job._about_rows(self)

    @classmethod
    def flags(cls) -> tuple[Flag, ...]:
        """Where it is done, the question, the method and its options, the settings."""
        return (
            *subject_flags(),
            *(flag_of(name, FRONT.options[name]) for name in QUESTION),
            Flag("--every", "measure every count of removed heads, whatever --points", bool, False),
            Flag("--method", "method whose dev scores order the heads", default=DEFAULT_METHOD),
            METHOD_OPTIONS_FLAG,
            *cls.setting_flags(),
        )

    @classmethod
    def from_flags(cls, values: Mapping[str, FlagValue]) -> Self:
        """The job of a command. Raises HeadlabError for a method or an option that is unknown."""
        chosen_method = method(str(values.get("method") or DEFAULT_METHOD))
        options = {name: values.get(name, FRONT.options[name].default) for name in QUESTION}
        if values.get("every"):
            options["points"] = None
        return cls.model_construct(
            method=chosen_method.key,
            method_options=parse_options(pairs_of(values, "option"), chosen_method.options),
            options=options,
            **cls._subject_fields(values),
            **cls._setting_fields(values),
        )

    def commands(self, context: CommandContext = NO_CONTEXT) -> list[list[str]]:
        """The command of the front."""
        question = "heads" if self.options.get("heads") is not None else "within"
        words = ["headlab", self.key, *self.subject_words(context)]
        words += [f"--{question}", exact_text(self.options[question])]
        if self.options["points"] is None:
            words.append("--every")
        given_options = {name: value for name, value in self.options.items() if value is not None}
        flag_names = ("by", "orders", "points", VOCABULARY, PLAYERS)
        flag_options = {name: FRONT.options[name] for name in flag_names}
        words += [*setting_words(given_options, flag_options), *self.method_words("method_options")]
        return [[*words, *self.setting_words(context), *context.dtype_words]]


QUESTION = ("within", "heads", "by", "orders", "points", VOCABULARY, PLAYERS)
"""The front's options that are flags of its command."""


def _check_takes_method(study: Experiment) -> None:
    """Raise HeadlabError for an experiment that uses no method of the user's choice."""
    if METHOD not in study.options:
        raise HeadlabError(
            f"experiment {study.key} does not choose a method; leave --method out",
            code="experiment.takes_no_method",
        )


def _check_takes_method_options(study: Experiment, options: Mapping[str, Any]) -> None:
    """Raise HeadlabError for options of a method that are not used, or are given already.

    Args:
        study: The experiment.
        options: That are given by its own flag.
    """
    if METHOD_OPTIONS not in study.options:
        raise HeadlabError(
            f"experiment {study.key} takes no options of a method; leave -o out",
            code="experiment.takes_no_method_options",
        )
    if METHOD_OPTIONS in options:
        raise HeadlabError(
            f"options of the method are given by -o and by --option {METHOD_OPTIONS}; use one",
            code="option.given_twice",
        )


def exact_text(value: Any) -> str:
    """A number as text: `%g` where that is exact, else all digits."""
    short_text = f"{value:g}"
    if float(short_text) == value:
        return short_text
    return str(value)


def largest_size(sizes: object) -> int | None:
    """The largest number of examples in a report's list of them.

    Args:
        sizes: A number for each language; anything else is taken for no list.

    Returns:
        None without any number.
    """
    if not isinstance(sizes, list):
        return None
    return max((size for size in sizes if isinstance(size, int)), default=None)


def within_limits_of_jobs(options: dict[str, Any]) -> dict[str, Any]:
    """The options, unchanged. Raises Refusal (422) if one exceeds its limit."""
    for name, value in options.items():
        if isinstance(value, dict):
            within_limits_of_jobs(within_limits(value, OPTION_LIMITS))
        if isinstance(value, str) and len(value) > MAX_TEXT:
            raise Refusal(
                f"{name} has {len(value)} characters; a job may have {MAX_TEXT} at most",
                422,
                code="job.text_too_long",
            )
    return within_limits(options, LIMITS)


def _task_with_ticks(task: Task, tick: Callable[[], None]) -> Task:
    """The task, calling `tick` before it reads a split: many languages may take a while."""

    def read(language: str, split: Split, seed: int) -> Sequence[Example]:
        tick()
        return task.read(language, split, seed)

    return replace(task, read=read)


class PieceLog:
    """Logs the pieces of a running job, each once, and lets unfinished scores be looked at."""

    def __init__(self, running: RunningJob, grid: HeadGrid) -> None:
        self.running = running
        self._grid = grid
        self._keys_seen: set[str] = set()

    def __call__(self, run: StoredRun, finished: bool) -> None:
        """Called when part of a run has been stored.

        Args:
            run: The run.
            finished: Whether all of it is stored.
        """
        kind = str(run.spec.get("kind", "scores"))
        language = str(run.spec["task"]["language"])
        if run.key not in self._keys_seen:
            self._keys_seen.add(run.key)
            if kind in ("scores", "curve"):
                self.running.record_folder(run.folder.name, language)
            if not finished or kind == "answers":
                self.running.log(f"{language}: {_run_label(run)} started")
        if finished and kind != "answers":
            self.running.log(f"{language}: {_run_label(run)} stored")
        self.running.scores_so_far = lambda: (
            None if finished or kind != "scores" else _scores_so_far(run, self._grid)
        )
        self.running.note_stored()


def _scores_so_far(run: StoredRun, grid: HeadGrid) -> HeadScores | None:
    from headlab.methods import scores_so_far

    return scores_so_far(run, grid)


def _run_label(run: StoredRun) -> str:
    """The method or the order of a run, and its kind."""
    kind = str(run.spec.get("kind", "scores"))
    method_record = run.spec.get("method") or run.spec.get("order")
    if not isinstance(method_record, Mapping):
        return kind
    name = method_record.get("name") or method_record.get("method")
    return f"{name} {kind}" if name else kind
