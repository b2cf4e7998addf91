"""Gate jobs: gates that learn which heads to keep, in each language and at each weight."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import Field

from headlab.core import HeadlabError, content_key, options_as_words, parse_options, part
from headlab.jobs import (
    NO_CONTEXT,
    OPTION_FLAG,
    SEED,
    UNITS_A_PART,
    CommandContext,
    Estimate,
    Flag,
    FlagValue,
    ForecastBasis,
    JobSettings,
    Lab,
    Options,
    Outcome,
    RunningJob,
    Seed,
    StepProgress,
    TaskJob,
    Weight,
    estimate,
    flag_of,
    listed_languages,
    pairs_of,
    setting,
    spec_fields,
    subject_flags,
    within_limits,
)
from headlab.methods import Part
from headlab.results import LearnedGates, Result, store_with_demo
from headlab.tasks import Split, Task, has_classes_of_map, task
from headlab.training import ALL, GateOptions, GateStep, learned_on, options_of

if TYPE_CHECKING:  # it imports torch
    from headlab.training import Watch

WEIGHT_OPTION = "weight"
LIMITS = {
    "steps": 100_000,
    "batch": 4096,
    "history": 1000,
    "size": 1_000_000,
}
"""The largest numbers that a request may ask for."""
FORWARDS_LEARNED = {"gates": 2, "all": 3}
"""Forward passes that a training example costs, as it goes forward and back: by what is trained."""
EVALUATED_SPLITS: tuple[Split, ...] = ("dev", "test")


class GatesJob(TaskJob):
    """Gates of a model's heads, learned on a task in some languages, one run per weight.

    Languages may be "all".

    weights: λ, nats per open gate.  options: as in `headlab.training.l0_options`, except the
    weight.
    """

    weights: Annotated[list[Weight], Field(min_length=1, max_length=20)] = Field(
        default_factory=lambda: [GateOptions().weight]
    )
    options: Options = Field(default_factory=dict)
    seed: Seed = setting(SEED)

    key: ClassVar[str] = "gates"
    name: ClassVar[str] = "Learned gates"
    about: ClassVar[str] = "Gates that learn which heads to keep."
    summary: ClassVar[str] = "Learned gates, trained on the worker's own device."
    page: ClassVar[str] = "gates"
    refusal_status: ClassVar[int | None] = 422

    def resolve(self) -> Self:
        """The job with every default filled in.

        Raises:
            HeadlabError: For anything unknown or invalid.
        """
        if WEIGHT_OPTION in self.options:
            raise HeadlabError(
                "give a job's weights as a list beside its options; take weight out of the options",
                code="gate.weight_misplaced",
            )
        chosen_task = self.chosen_task()
        options = self.gate_options(self.weights[0])
        names = [name for name in GateOptions.table() if name != WEIGHT_OPTION]
        values = within_limits({name: getattr(options, name) for name in names}, LIMITS, ",")
        for language in chosen_task.languages:
            examples_of(chosen_task, language, options)
        return self.model_copy(
            update={
                "languages": list(chosen_task.languages),
                "options": values,
                "weights": sorted(set(map(float, self.weights))),
            }
        )

    def gate_options(self, weight: float) -> GateOptions:
        """Options of the training at one weight. Raises HeadlabError for invalid ones."""
        return options_of({**self.options, WEIGHT_OPTION: float(weight)}, self.seed)

    def run(self, lab: Lab, running: RunningJob) -> Outcome:
        """One run per language and weight; stored runs are not repeated."""
        languages = listed_languages(self.languages)
        total_runs = len(languages) * len(self.weights)
        run_numbers = count()

        def watch_run(language: str, weight: float) -> Watch[GateStep]:
            name = f"{language}, λ {weight:g}"
            return RunProgress(running, name, next(run_numbers), total_runs).callbacks()

        gates = self.learn_gates(lab, running, lab.task(self.task, self.label_map), watch_run)
        running.progress(
            total_runs * UNITS_A_PART, total_runs * UNITS_A_PART, f"{', '.join(languages)} done"
        )
        return {"keys": [content_key(gates_of_run.spec) for gates_of_run in gates]}

    def learn_gates(
        self,
        lab: Lab,
        running: RunningJob,
        task: Task,
        watch_run: Callable[[str, float], Watch[GateStep]],
    ) -> list[LearnedGates]:
        """The gates of each language at each weight, in this order.

        They are read from the store, or learned and stored.

        Args:
            lab: What the job works with.
            running: The job.
            task: The job's task, loaded.
            watch_run: The callbacks of one run, given its language and its weight; called before
                the run begins.
        """
        from headlab.training import sweep  # imports torch

        model = lab.need(self.model)
        gates: list[LearnedGates] = []
        for language in listed_languages(self.languages):
            gates += sweep(
                model,
                task,
                language,
                self.weights,
                options=self.gate_options(self.weights[0]),  # `sweep` sets each weight in turn
                store=lab.watched_store(running, language),
                watch=partial(watch_run, language),
            )
        return gates

    # The forecast.

    def forecast(self, known: ForecastBasis) -> Estimate:
        """Cost of the missing runs: their steps, and two passes over the examples of evaluation."""
        stored_runs = [
            run for run in store_with_demo(known.root).gates().results if self._is_about(run)
        ]
        languages = listed_languages(self.languages)
        options = self.gate_options(self.weights[0])
        chosen_task = task(self.task)
        sizes: dict[str, int] = {}
        if stored_runs:
            sizes = {name: examples_of(chosen_task, name, options) for name in languages}
        forwards = 0
        missing = 0
        for language in languages:
            missing_here = 0
            for weight in self.weights:
                if not any(self._would_make(run, language, weight, sizes) for run in stored_runs):
                    missing_here += 1
            if missing_here:
                evaluated = _evaluated_examples(chosen_task, language, options)
                forwards += missing_here * forwards_of(options, evaluated)
                missing += missing_here
        measure_request = self.plain_passes()
        if not missing:
            nothing = Part(0, None, ("these gates are in the cache already",))
            return estimate([nothing], measure_request)
        pace, pace_basis = self._pace(stored_runs, known)
        words = self._runs_words(options, missing, len(languages) * len(self.weights))
        return estimate([Part(forwards, pace, (words, pace_basis))], measure_request)

    def _runs_words(self, options: GateOptions, missing: int, total: int) -> str:
        """The runs that are missing, in words."""
        runs = f"{missing} runs" if missing > 1 else "one run"
        forwards = FORWARDS_LEARNED[options.trained]
        steps = f"{options.steps} steps of {options.batch} examples, each worth {forwards} forwards"
        words = f"{runs} of {steps}, and the masks measured"
        if missing < total:
            words += f"; {total - missing} of {total} runs are in the cache already"
        return words

    def _pace(
        self, stored_runs: Sequence[Result[LearnedGates]], known: ForecastBasis
    ) -> tuple[float | None, str]:
        """Seconds a forward pass, and the basis.

        They are of earlier runs on such a device, or as just timed.
        """
        on_device = [run for run in stored_runs if run.meta.get("device") == known.device]
        paces = [pace for pace in map(_pace_of, on_device) if pace]
        runs = f"{len(paces)} runs" if len(paces) > 1 else "a run"
        return known.median_pace(paces, f"{runs} of such gates on such a device ({known.device})")

    def _is_about(self, result: Result[LearnedGates]) -> bool:
        """Whether a stored run is of this job's model and task."""
        spec = result.record.spec
        names = (spec.get(name, {}).get("name") for name in ("model", "task"))
        return tuple(names) == (self.model, self.task)

    def _would_make(
        self,
        result: Result[LearnedGates],
        language: str,
        weight: float,
        sizes: Mapping[str, int],
    ) -> bool:
        """Whether a stored run is what the job would compute, as far as that is known."""
        spec = result.record.spec
        task_record = spec.get("task", {})
        stored_settings = (
            result.record.language,
            spec.get("seed"),
            spec.get("options"),
            task_record.get("size"),
        )
        job_settings = (language, self.seed, self.gate_options(weight).record(), sizes[language])
        return stored_settings == job_settings and has_classes_of_map(task_record, self.label_map)

    # Its command, and back.

    @classmethod
    def flags(cls) -> tuple[Flag, ...]:
        """Where it is done, one language, the weights, what is trained, the options, the seed."""
        stacks = GateOptions.table()["stacks"]
        return (
            *subject_flags(("model", "task", "label_map")),
            Flag("--language", "language to train and evaluate on", default="en"),
            Flag(
                "--weight",
                "λ, nats for an open gate; several make a sweep",
                float,
                low=0,
                short="--lambda",
                repeated=True,
            ),
            Flag("--train-model", "train the model jointly with its gates", bool, False),
            Flag(
                "--option",
                "option of the learning as name=value, e.g. steps=800",
                short=OPTION_FLAG,
                repeated=True,
            ),
            flag_of("stacks", stacks),
            *cls.setting_flags(),
        )

    @classmethod
    def from_flags(cls, values: Mapping[str, FlagValue]) -> Self:
        """The job of a command.

        Raises:
            HeadlabError: For an option that is invalid or has its own flag.
        """
        options = parse_options(pairs_of(values, "option"), GateOptions.table())
        for name, flag in OWN_FLAGS.items():
            if name in options:
                raise HeadlabError(
                    f"{name} is set by {flag}, not by -o", code="option.set_elsewhere"
                )
        options["stacks"] = str(values.get("stacks") or ALL)
        options["trained"] = ALL if values.get("train_model") else "gates"
        weights = values.get("weight") or [GateOptions().weight]
        assert isinstance(weights, list)
        fields = cls._subject_fields(values)
        fields["languages"] = [str(values.get("language", "en"))]
        return cls.model_construct(
            **fields,
            weights=list(dict.fromkeys(map(float, weights))),
            options=options,
            **cls._setting_fields(values),
        )

    def commands(self, context: CommandContext = NO_CONTEXT) -> list[list[str]]:
        """One command per language; weights keep every digit, as another weight is another run."""
        options: dict[str, Any] = dict(self.options)
        stacks = options.pop("stacks", ALL)
        trained = options.pop("trained", None)
        words: list[str] = []
        for weight in self.weights:
            words += ["--weight", repr(weight)]
        if stacks != ALL:
            words += ["--stacks", str(stacks)]
        if trained == ALL:
            words.append("--train-model")
        words += options_as_words(OPTION_FLAG, options, GateOptions.table())
        words += [*self.setting_words(context), *context.dtype_words]
        return self.commands_by_language(context, words)

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """The job that makes a stored run."""
        options = {name: value for name, value in spec["options"].items() if name != WEIGHT_OPTION}
        return cls.model_construct(
            **spec_fields(spec),
            weights=[spec["options"][WEIGHT_OPTION]],
            options=options,
            seed=spec.get("seed", 0),
        )

    @classmethod
    def has_all_fields(cls, spec: Mapping[str, Any]) -> bool:
        """Whether the spec has the weight too."""
        return super().has_all_fields(spec) and isinstance(
            part(spec, "options", WEIGHT_OPTION), int | float
        )

    def options_known(self) -> JobSettings:
        """The options of the training."""
        return GateOptions.table()


OWN_FLAGS = {"weight": "--weight", "stacks": "--stacks", "trained": "--train-model"}
"""Options of the training that have a flag of their own."""


class RunProgress:
    """Progress of one of several runs; serves live requests between passes."""

    def __init__(self, running: RunningJob, name: str, run_number: int, runs: int) -> None:
        self._running = running
        self._name = name
        self._done = run_number * UNITS_A_PART
        self._total = runs * UNITS_A_PART
        self._steps = StepProgress(running)
        running.progress(self._done, self._total, name, fresh=True)

    def callbacks(self) -> Watch[GateStep]:
        """The callbacks of the training."""
        from headlab.training import Watch  # imports torch

        return Watch(self.step, self._running.tick, self.measuring)

    def step(self, gate_step: GateStep) -> None:
        """Called after each step; the first may continue from a checkpoint.

        The last share is left for measuring.
        """
        note = (
            f"{self._name}: step {gate_step.step} of {gate_step.steps}, "
            f"{gate_step.open} of {gate_step.gates} open"
        )
        done = self._done + UNITS_A_PART * gate_step.step // (gate_step.steps + 1)
        self._steps.report_step(gate_step, done, self._total, f"{note}, loss {gate_step.loss:.3f}")

    def measuring(self) -> None:
        """Called before the mask is evaluated."""
        self._running.progress(
            self._done + UNITS_A_PART - 1, self._total, f"{self._name}: measuring", fresh=True
        )


def examples_of(chosen_task: Task, language: str, options: GateOptions) -> int:
    """Number of training examples.

    Raises:
        HeadlabError: For a language or a split that the task does not have.
    """
    return len(learned_on(chosen_task, language, options.split, options.size)[1])


def forwards_of(options: GateOptions, evaluated_examples: int) -> int:
    """Cost of a run in forward passes of one example.

    Args:
        options: Of the training.
        evaluated_examples: How many examples its mask is evaluated on.
    """
    return (
        options.steps * options.batch * FORWARDS_LEARNED[options.trained] + 2 * evaluated_examples
    )


def _evaluated_examples(chosen_task: Task, language: str, options: GateOptions) -> int:
    """Number of examples that a mask is evaluated on."""
    sizes = (options.dev_size, options.test_size)
    pairs = zip(EVALUATED_SPLITS, sizes, strict=True)
    return sum(_example_count(chosen_task, language, split, size) for split, size in pairs)


def _example_count(chosen_task: Task, language: str, split: Split, size: int | None) -> int:
    try:
        return len(chosen_task.examples(language, split, size))
    except HeadlabError:  # a split that the task does not have is not measured
        return 0


def _pace_of(result: Result[LearnedGates]) -> float:
    """Seconds per forward pass; 0 where the record does not say."""
    split_records = [part for part in result.record.measured.values() if isinstance(part, Mapping)]
    option_table = GateOptions.table()
    try:
        evaluated_examples = sum(int(part.get("examples") or 0) for part in split_records)
        recorded_options = result.record.spec["options"]
        options = {name: value for name, value in recorded_options.items() if name in option_table}
        return float(result.record.seconds) / forwards_of(options_of(options), evaluated_examples)
    except (HeadlabError, AttributeError, TypeError, ValueError, ArithmeticError):
        return 0.0
