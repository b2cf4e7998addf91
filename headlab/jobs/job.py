"""What a kind of job is: its fields, its check, its forecast, its work, and how it reads.

From such a class alone come its command and flags, its request and schema over HTTP, its form on
the Jobs page, the line under "The same from a terminal" and the way back from it, and its row in
the list of jobs.
"""

from __future__ import annotations

import shlex
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from pydantic import ValidationError

from headlab.core import (
    HEADS,
    HeadlabError,
    Option,
    ablation_title,
    canonical_json,
    options_as_words,
    parse_options,
    part,
    read_ablation,
)
from headlab.jobs.command import (
    METHOD_OPTIONS_FLAG,
    NO_CONTEXT,
    OPTION_FLAG,
    SUBJECT_FLAGS,
    CommandContext,
    Flag,
    FlagValue,
    flag_of,
    label_map_of,
    languages_of,
    pairs_of,
    setting_words,
    subject_flags,
    subject_words,
)
from headlab.jobs.fields import JobPlace, JobSettings, Languages, Name, OnTask, Strict, reason_of
from headlab.jobs.known import Measured, MeasureRequest
from headlab.masks import mask_from_json
from headlab.methods import DEFAULT_METHOD, METHODS, is_encoder, method, method_on, options_on
from headlab.tasks import check_label_map, declaration_of, language_title, language_titles
from headlab.tasks import task as task_named

if TYPE_CHECKING:
    from headlab.jobs.known import Estimate, ForecastBasis
    from headlab.jobs.lab import Lab, RunningJob
    from headlab.tasks import Task

Details = list[tuple[str, str]]
Outcome = Mapping[str, Any]
"""What a finished job says, ready for JSON: `keys` of stored results, or figures of its own."""


OPTION_LIMITS = {"batch_size": 1024}
"""Upper limits of options that determine how much is held in memory at once."""


class Refusal(HeadlabError):
    """A refused request, with its HTTP status."""

    def __init__(self, sentence: str, status: int, *, code: str) -> None:
        super().__init__(sentence, code=code)
        self.status = status


class Job(Strict):
    """One kind of work that takes longer than a click.

    The fields of a subclass say everything the work depends on. Fields made by `setting` are flags
    of its command and widgets of its form; `model`, `task`, `label_map`, `languages`, `method` and
    `options` have flags and widgets of their own, which read the same for every kind.

    Attributes:
        key: What people type behind `headlab`; it names the kind in requests and in the list of
            jobs.
        name: Of the kind, as a heading.
        about: What it computes, in one sentence, for the form.
        summary: For the documentation of the interface.
        page: The page that shows its results; empty for the Jobs page itself.
        on_jobs_page: Whether the form for new jobs offers it.
        main_settings: Settings that this form shows at once; it folds the others.
        places: Where a worker may run it; nowhere if its command alone does, as for work on files
            of the machine where it is typed.
        refusal_status: HTTP status of a job that `resolve` refuses, if it is not that of a wrong
            request.
        assembled: Whether it is put together from pieces that other jobs may need too.
        has_command: Whether its key is a command; if not, its `commands` are those of another kind.
        command_only: Settings of its command alone.
        help_order: Its settings in the order of its command's help, if it writes them in another
            one.
    """

    key: ClassVar[str]
    name: ClassVar[str]
    about: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    page: ClassVar[str] = ""
    on_jobs_page: ClassVar[bool] = False
    main_settings: ClassVar[tuple[str, ...]] = ()
    places: ClassVar[tuple[JobPlace, ...]] = ("here",)
    refusal_status: ClassVar[int | None] = None
    assembled: ClassVar[bool] = False
    has_command: ClassVar[bool] = True
    command_only: ClassVar[JobSettings] = {}
    help_order: ClassVar[tuple[str, ...]] = ()

    # The work.

    def resolve(self) -> Self:
        """The job with every default filled in, so that equal work has equal fields.

        Raises:
            HeadlabError: For anything unknown or invalid.
        """
        return self

    @abstractmethod
    def forecast(self, known: ForecastBasis) -> Estimate:
        """What it will cost. The job is resolved."""

    @abstractmethod
    def run(self, lab: Lab, running: RunningJob) -> Outcome:
        """Do the work. The job is resolved, and its model's files are on this machine."""

    def measure(self, lab: Lab, request: MeasureRequest, tick: Callable[[], None]) -> Measured:
        """Measure what a forecast lacks; called in the device's thread for requests of this job."""
        raise NotImplementedError(f"jobs of kind {self.key} ask for plain passes to be timed")

    def resolve_or_refuse(self) -> Self:
        """As `resolve`, with the HTTP status of this kind in the error."""
        try:
            return self.resolve()
        except HeadlabError as error:
            if self.refusal_status is None or isinstance(error, Refusal):
                raise
            raise Refusal(str(error), self.refusal_status, code=error.code) from error

    def with_checked_fields(self) -> Self:
        """The job with its fields checked one by one, as those of a request are.

        See `resolve` for the check of the whole.

        Raises:
            HeadlabError: For a field that does not fit.
        """
        try:
            return type(self).model_validate(self.params())
        except ValidationError as error:
            problem = error.errors()[0]
            field = str(problem["loc"][0]) if problem["loc"] else self.key
            option = self.settings().get(field)
            advice = (
                f"choose {option.range}" if option else reason_of(problem["type"], problem["msg"])
            )
            raise HeadlabError(
                f"{field.replace('_', ' ')} is {problem['input']!r:.40}; {advice}",
                code="job.field_invalid",
            ) from error

    def params(self) -> dict[str, Any]:
        """The fields that were given, ready for JSON, whether they fit or not."""
        return self.model_dump(exclude_unset=True, warnings=False)

    def queued_params(self) -> dict[str, Any]:
        """The fields, as the list of jobs keeps them. The job is resolved.

        Raises:
            Refusal: They are no JSON, as a package may have it (422).
        """
        params: dict[str, Any] = {}
        try:
            params = self.model_dump()
            problem = _json_problem(params)
        except ValueError as error:  # pydantic's, whatever a serializer of a package raises
            problem = str(error)
        if problem:
            raise Refusal(
                f"the fields of a job of kind {self.key} are no JSON object ({problem:.200}), so "
                "it cannot be queued; mend their types, or `resolve`, in the package that brings "
                "it",
                422,
                code="job.params_invalid",
            )
        return params

    # What people read.

    @classmethod
    def settings(cls) -> JobSettings:
        """The fields made by `setting`, by name, as options with their limits, flags and labels."""
        options = {}
        for name, field in cls.model_fields.items():
            for item in field.metadata:
                if isinstance(item, Option):
                    options[name] = item
        return options

    @classmethod
    def form_settings(cls) -> JobSettings:
        """The settings that the form for new jobs asks for."""
        return cls.settings()

    @classmethod
    def has_field(cls, field: str) -> bool:
        """Whether jobs of this kind have a field of this name."""
        return field in cls.model_fields

    def field_value(self, field: str) -> Any:
        """The value of a field; None if jobs of this kind have none of this name."""
        if self.has_field(field):
            return getattr(self, field, None)
        return None

    @property
    def language_codes(self) -> list[str]:
        """The languages by their codes; none before "all" is filled in."""
        languages = self.field_value("languages")
        if isinstance(languages, list | tuple):
            return list(languages)
        return []

    @property
    def players_switched(self) -> str:
        """What is switched, as `headlab.core.read_players` reads it; heads for most kinds."""
        return str(self.field_value("players") or HEADS)

    def subject(self) -> str:
        """What is computed, as a heading without the languages."""
        return self.name

    def subject_key(self) -> str:
        """What is computed, by the key that people type."""
        return str(self.field_value("method") or self.key)

    def title(self) -> str:
        """The job as a heading: what is computed, and for which languages."""
        if not self.language_codes:
            return self.subject()
        return f"{self.subject()} for {language_titles(self.language_codes)}"

    def describe(self) -> str:
        """The job in few words: what is computed and the languages, by their keys."""
        if not self.language_codes:
            return self.subject_key()
        return f"{self.subject_key()} for {', '.join(self.language_codes)}"

    def details(self) -> Details:
        """What the job computes, as (name, value) pairs."""
        rows = [("What", self.name), *self._about_rows()]
        plain_fields = {"model": "Model", "task": "Task", "ablation": "Ablation"}
        for field, label in plain_fields.items():
            value = self.field_value(field)
            if value is not None:
                text = str(value)
                rows.append((label, ablation_title(text) if field == "ablation" else text))
        if self.has_field("split"):
            rows.append(
                ("Examples", f"{self.field_value('size') or 'all'} of {self.field_value('split')}")
            )
        if self.language_codes:
            rows.append(("Languages", ", ".join(map(language_title, self.language_codes))))
        mask = self.field_value("mask")
        if isinstance(mask, Mapping):
            rows.append((_off_label(mask), str(mask.get("removed", "?"))))
        if self.field_value("seed") is not None:
            rows.append(("Seed", str(self.field_value("seed"))))
        rows += self._option_rows()
        shown_fields = {*plain_fields, "split", "method", "languages", "seed", "experiment"}
        shown_fields |= {"options", "method_options", "training"}
        if self.players_switched == HEADS:
            shown_fields.add("players")
        if isinstance(mask, Mapping):
            shown_fields.add("mask")
        if self.has_field("split"):
            shown_fields.add("size")
        for field in type(self).model_fields:
            if field not in shown_fields:
                rows.append(
                    (field.capitalize().replace("_", " "), value_text(self.field_value(field)))
                )
        return rows

    def _about_rows(self) -> Details:
        """What comes first in `details`, behind the name of the kind."""
        method = METHODS.get(str(self.field_value("method")))
        if method:
            return [("Method", f"{method.title} ({method.key})")]
        return []

    def _option_rows(self) -> Details:
        """The options; one that differs from its default shows this too."""
        rows = []
        options = self.options_known()
        for name, value in (self.field_value("options") or {}).items():
            default_value = options[name].default if name in options else value
            remark = "" if value == default_value else f" (default {value_text(default_value)})"
            rows.append((f"Option {name}", value_text(value) + remark))
        return rows

    def options_known(self) -> JobSettings:
        """What may stand in `options`: by default the options of the method."""
        key = str(self.field_value("method"))
        if key not in METHODS:
            return {}
        return method_on(key, str(self.field_value("task"))).options

    # Its command, and back.

    @classmethod
    def flags(cls) -> tuple[Flag, ...]:
        """What its command takes, in the order of its help; the flags of the command alone too."""
        flags = list(subject_flags([field for field in SUBJECT_FLAGS if cls.has_field(field)]))
        if cls.has_field("method"):
            flags.append(cls.method_flag())
        if cls.has_field("options"):
            flags.append(METHOD_OPTIONS_FLAG)
        return (*flags, *cls.setting_flags())

    @classmethod
    def method_flag(cls) -> Flag:
        """The flag of the method."""
        return Flag("--method", f"one of {', '.join(METHODS)}", default=DEFAULT_METHOD)

    @classmethod
    def setting_flags(cls) -> tuple[Flag, ...]:
        """The flags of its settings, and of those that its command alone has."""
        settings = cls.command_settings()
        return tuple(
            replace(flag_of(name, settings[name]), command_only=name in cls.command_only)
            for name in cls.help_order or settings
        )

    @classmethod
    def command_settings(cls) -> JobSettings:
        """The settings in the order of its command."""
        return {**cls.settings(), **cls.command_only}

    @classmethod
    def from_flags(cls, values: Mapping[str, FlagValue]) -> Self:
        """The job of a command.

        Args:
            values: By the flags' keys; what is missing takes its default.

        Raises:
            HeadlabError: For a value that cannot be read, and for an unknown method.
        """
        fields = cls._subject_fields(values)
        if cls.has_field("method"):
            fields["method"] = method(str(values.get("method") or DEFAULT_METHOD)).key
        fields |= cls._setting_fields(values)
        job = cls.model_construct(**fields)
        if cls.has_field("options"):
            options = parse_options(pairs_of(values, "option"), job.options_known())
            job = job.model_copy(update={"options": options})
        return job

    @classmethod
    def _subject_fields(cls, values: Mapping[str, FlagValue]) -> dict[str, Any]:
        """The model, the task, the label map and the languages of a command that this kind has."""
        fields: dict[str, Any] = {}
        for name, flag in SUBJECT_FLAGS.items():
            if cls.has_field(name):
                fields[name] = values.get(flag.key, flag.default)
        if cls.has_field("languages"):
            fields["languages"] = languages_of(str(fields["languages"]))
        if cls.has_field("label_map"):
            fields["label_map"] = label_map_of(fields["label_map"])
        return fields

    @classmethod
    def _setting_fields(cls, values: Mapping[str, FlagValue]) -> dict[str, Any]:
        """The settings of a command by their fields' names."""
        fields = {}
        for name, option in cls.settings().items():
            fields[name] = values.get(flag_of(name, option).key, option.default)
        if "ablation" in fields:
            fields["ablation"] = read_ablation(str(fields["ablation"]))
        return fields

    @classmethod
    def program_words(cls) -> list[str]:
        """The words that its command begins with."""
        return ["headlab", *cls.key.split()]

    def commands(self, context: CommandContext = NO_CONTEXT) -> list[list[str]]:
        """The commands that do this work, each as words; none if there are none.

        Args:
            context: What a command names besides the job.
        """
        words = [*self.program_words(), *self.subject_words(context), *self.method_words("options")]
        return [[*words, *self.setting_words(context), *context.dtype_words]]

    def terminal_lines(self) -> str:
        """The commands, quoted for a shell, one a line.

        A declared task is named by its file, which can be read wherever the command is typed; its
        name is known only where $HEADLAB_TASKS or the cache folder is the same.
        """
        declaration = declaration_of(self.field_value("task")) if self.field_value("task") else None
        context = CommandContext(task=None if declaration is None else str(declaration))
        return "\n".join(map(shlex.join, self.commands(context)))

    def commands_by_language(self, context: CommandContext, words: list[str]) -> list[list[str]]:
        """A command for each language, for kinds whose command takes one.

        Args:
            context: Paths in place of names.
            words: What follows the language, the same in every command.
        """
        subject_words = self.subject_words(context, languages=False)
        return [
            ["headlab", self.key, *subject_words, "--language", language, *words]
            for language in self.language_codes
        ]

    def subject_words(self, context: CommandContext, *, languages: bool = True) -> list[str]:
        """The flags of the model, the task, its data, the label map and the languages.

        Args:
            context: Paths in place of names.
            languages: Whether the languages are among them.
        """
        return subject_words(
            context,
            model=self.field_value("model"),
            task=self.field_value("task"),
            label_map=self.field_value("label_map"),
            languages=self.field_value("languages") if languages else None,
        )

    def method_words(self, field: str) -> list[str]:
        """The flags of the method and its non-default options; all options of an unknown method.

        Args:
            field: That holds the options.
        """
        key = self.field_value("method")
        if key is None:
            return []
        options = options_on(str(key), str(self.field_value("task")))
        words = options_as_words(OPTION_FLAG, self.field_value(field) or {}, options)
        return ["--method", str(key), *words]

    def setting_words(self, context: CommandContext, always: Sequence[str] = ()) -> list[str]:
        """The flags of the settings that are not at their defaults.

        Args:
            context: Has the values of settings that the job itself lacks.
            always: Settings whose flag is written whatever its value.
        """
        values = {
            name: self.field_value(name) for name in type(self).settings() if hasattr(self, name)
        }
        for name in type(self).command_only:
            value = getattr(context, name, None)
            if value is not None:
                values[name] = value
        return setting_words(values, type(self).command_settings(), always)

    # How a stored result is made again.

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """The job that makes a result; sizes are actual, not as requested, and nothing is checked.

        Args:
            spec: Of the stored result; what another version or program wrote may lack anything.

        Raises:
            LookupError: No job of this kind makes a result.
        """
        raise LookupError(f"no result is made by a job of kind {cls.key}")

    @classmethod
    def has_all_fields(cls, spec: Mapping[str, Any]) -> bool:
        """Whether a result's spec has all that the job needs.

        A default in its place would be another run.
        """
        paths = (("model", "name"), ("task", "name"), ("task", "language"))
        texts = [part(spec, *path) for path in paths]
        settings = [name for name in ("seed", "ablation") if cls.has_field(name)]
        return all(isinstance(text, str) and text for text in texts) and set(settings) <= set(spec)


def spec_fields(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The model, the task, the label map and the languages of a spec, as fields of a job."""
    languages = str(part(spec, "task", "language") or "")
    fields: dict[str, Any] = {
        "model": part(spec, "model", "name"),
        "task": part(spec, "task", "name"),
        "languages": [language for language in languages.split(",") if language],
    }
    classes = part(spec, "task", "classes")
    if classes:
        fields["label_map"] = classes
    return fields


def seed_and_ablation(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The seed and the ablation of a result's spec, as fields of a job."""
    return {"seed": spec.get("seed", 0), "ablation": spec.get("ablation", "zero")}


def _off_label(mask: Mapping[str, Any]) -> str:
    """What a mask's number of players off is called: "Heads off", "Groups of neurons off".

    Args:
        mask: As in a mask file.
    """
    try:
        noun = mask_from_json(mask).grid.noun
    except HeadlabError:  # from another version, or no mask at all
        noun = HEADS
    return f"{noun[0].upper()}{noun[1:]} off"


def value_text(value: object) -> str:
    """A field's value, for people."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


def listed_languages(languages: list[str] | str) -> list[str]:
    """The languages of a resolved job. Raises HeadlabError for "all" in place of a list."""
    if isinstance(languages, str):
        raise HeadlabError(
            'a job names its languages; "all" is filled in when it is submitted',
            code="job.languages_unnamed",
        )
    return languages


def within_limits(
    options: dict[str, Any], limits: Mapping[str, int], number_format: str = ""
) -> dict[str, Any]:
    """The options, unchanged.

    Args:
        options: By name.
        limits: The largest number that a job may ask for, by the option's name.
        number_format: Of the limits in the message.

    Raises:
        Refusal: An option exceeds its limit (422).
    """
    for name, limit in limits.items():
        value = options.get(name)
        if isinstance(value, int) and value > limit:
            raise Refusal(
                f"{name} is {value}; a job may ask for {limit:{number_format}} at most",
                422,
                code="job.number_too_large",
            )
    return options


def checked_outcome(kind: str, outcome: object) -> Outcome:
    """What a job of a kind returned, unchanged.

    Args:
        kind: Its key.
        outcome: What `Job.run` returned; that of a package may be anything.

    Raises:
        HeadlabError: It cannot be kept with the job.
    """
    problem = _json_problem(outcome)
    if not problem:
        return cast("Outcome", outcome)
    raise HeadlabError(
        f"what a job of kind {kind} returned is no JSON object ({problem:.200}), so it cannot be "
        "kept; mend `run` in the package that brings it",
        code="job.outcome_invalid",
    )


def _json_problem(record: object) -> str:
    """Why something cannot be written as a JSON object; empty if it can."""
    if not isinstance(record, Mapping):
        return f"it is of type {type(record).__name__}"
    try:
        canonical_json(record)
    except (TypeError, ValueError, RecursionError) as error:
        return str(error)
    return ""


class TaskJob(Job, OnTask):
    """A job of a model on some languages of a task ("all": every one)."""

    model: Name
    languages: Languages

    def resolve(self) -> Self:
        """The job with its languages filled in.

        Raises:
            HeadlabError: For an unknown task or language.
        """
        return self.model_copy(update={"languages": list(self.chosen_task().languages)})

    def chosen_task(self) -> Task:
        """The task in these languages.

        Raises:
            HeadlabError: The task or a language is unknown, or the label map is one of other
                labels.
        """
        task = task_named(self.task, self.languages).with_label_map(self.label_map)
        if self.label_map is not None:
            check_label_map(task.name, task.labels, self.label_map)
        return task

    def plain_passes(self) -> MeasureRequest:
        """A request to time plain forward passes on the first language."""
        return MeasureRequest(
            model=self.model,
            task=self.task,
            label_map=self.label_map,
            language=listed_languages(self.languages)[0],
        )


MAX_PACES = 1000
"""Paces that are remembered for a model."""


def measured_by(lab: Lab, request: MeasureRequest, tick: Callable[[], None]) -> Measured:
    """Number of a model's players, and how long a forward pass of some work takes now.

    Args:
        lab: Where it is measured.
        request: The work; a job may measure it in its own way, else a few batches are timed.
        tick: Called between batches.
    """
    if isinstance(request.job, Job):
        return request.job.measure(lab, request, tick)
    from headlab.evaluation import Evaluator  # these import torch
    from headlab.methods import players_to_time, seconds_per_forward

    model = lab.need(request.model)
    paces = lab.paces  # of this model: between batches another may be needed
    if request.players != HEADS:
        model = players_to_time(model, request.players)
    key = (request.task, request.method, canonical_json(request.options), request.players)
    if key not in paces:
        evaluator = Evaluator(model, lab.task(request.task, request.label_map), request.language)
        evaluator.tick = tick
        paces[key] = seconds_per_forward(evaluator, request.method, request.options)
    return Measured(
        heads=model.grid.size,
        seconds=paces[key],
        resumable=model.resumable,
        is_encoder=is_encoder(model.grid),
    )
