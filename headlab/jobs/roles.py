"""Role jobs: the roles of heads, on gold trees of a treebank or on the texts of a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from headlab.core import HeadlabError, Option, Report, options_as_words, parse_options, part
from headlab.jobs import (
    DATA,
    MAX_EXAMPLES,
    NO_CONTEXT,
    OPTION_FLAG,
    SUBJECT_FLAGS,
    CommandContext,
    Estimate,
    Flag,
    FlagValue,
    ForecastBasis,
    Job,
    JobPart,
    JobSettings,
    Lab,
    Languages,
    Measured,
    MeasureRequest,
    Name,
    Options,
    Outcome,
    RunningJob,
    SplitName,
    Tick,
    estimate,
    keys_of,
    listed_languages,
    pairs_of,
    result_for_each_language,
    setting,
    setting_words,
    spec_fields,
    within_limits,
)
from headlab.methods import Part
from headlab.results import Result, store_with_demo
from headlab.roles import (
    FILE,
    NAME,
    OPTIONS,
    VERSION,
    Frequencies,
    Sentences,
    of_task,
    of_trees,
    resolve,
)
from headlab.tasks import (
    DATA_VARIABLE,
    DEV_SIZE,
    SPLITS,
    TREEBANK,
    Split,
    subfolder,
    task,
    treebank,
    treebank_languages,
)
from headlab.tasks.udpos import FOLDER, SUFFIX

LIMITS = {"examples": 100}  # of sentences shown per role
WARM_UP_SENTENCES = 4  # run untimed before a forecast's timing
TIMED_SENTENCES = 32
MAX_CACHED_COUNTS = 256  # treebanks whose number of sentences is cached


class RolesJob(Job):
    """Roles of a model's heads in some languages ("all": every one of the source).

    source: gold trees of the worker's treebanks, or the texts of a task, which have no syntax.
    task: for source "task", else ignored.  size: sentences; None for all, or for 512 of a task's
    dev split.  options: as in `headlab.roles.table`.
    """

    model: Name
    task: Name | None = None
    languages: Languages
    source: Literal["treebank", "task"] = "treebank"
    split: SplitName = setting(
        Option(
            "dev", "split of the treebank and the task: dev, test or train", SPLITS, label="Split"
        )
    )
    size: int | None = setting(
        Option(
            None,
            "sentences; default all trees, 512 examples",
            kind=int,
            low=1,
            high=MAX_EXAMPLES,
            optional=True,
            label="At most",
            tip="Sentences of each language, at most; empty: all trees, or 512 examples of a task's "
            "dev.",
            empty="all",
        )
    )
    options: Options = Field(default_factory=dict)

    key: ClassVar[str] = NAME
    name: ClassVar[str] = "Roles of heads"
    about: ClassVar[str] = "What the heads attend to."
    summary: ClassVar[str] = "Roles of heads, computed on the worker's own device."
    page: ClassVar[str] = "roles"
    refusal_status: ClassVar[int | None] = 422

    def resolve(self) -> Self:
        """The job with every default filled in.

        Raises:
            HeadlabError: For anything unknown or a missing treebank.
        """
        resolved = self._of_treebank() if self.source == "treebank" else self._of_task()
        options = within_limits(resolve(self.options), LIMITS)
        return resolved.model_copy(update={"options": options})

    def _of_treebank(self) -> Self:
        """The job without a task, and with its languages, each of which has a readable treebank."""
        available = treebank_languages(None)
        languages = list(available)
        if self.languages != "all":
            languages = list(dict.fromkeys(self.languages))
        missing = [language for language in languages if language not in available]
        if missing or not languages:
            raise HeadlabError(
                f"the worker has no treebank of {', '.join(missing) or 'any language'}, it has "
                f"{', '.join(available) or 'none'}; start it with {DATA_VARIABLE} naming a folder "
                f"that holds {FOLDER}/LANGUAGE.{self.split}.{SUFFIX}, or take the texts of a task "
                "(source task), which have no syntax",
                code="treebank.missing",
            )
        for language in languages:
            tree_count(language, self.split)
        return self.model_copy(update={"languages": languages, "task": None})

    def _of_task(self) -> Self:
        """The job with the languages of its task and the number of its sentences filled in."""
        if self.task is None:
            raise HeadlabError(
                "source task needs the name of a task; give one, or use source treebank",
                code="roles.task_unnamed",
            )
        chosen_task = task(self.task, self.languages)
        chosen_task.examples(chosen_task.languages[0], self.split, 1)
        return self.model_copy(
            update={"languages": list(chosen_task.languages), "size": self.examples_size()}
        )

    def examples_size(self) -> int | None:
        """How many examples of a task are taken, at most; None for all.

        By default, these are all of every split but dev.
        """
        if not self.size and self.split == "dev":
            return DEV_SIZE
        return self.size

    def sentences(self, lab: Lab, language: str, size: int | None) -> Sentences:
        """The sentences of a language, at most `size` of them."""
        if self.source == "treebank":
            return self.treebank_sentences(language, size)
        return self.task_sentences(lab, language, size)

    def treebank_sentences(
        self, language: str, size: int | None, data: Path | None = None
    ) -> Sentences:
        """Trees of a treebank.

        Args:
            language: Its code.
            size: Sentences, at most; None for all.
            data: Folder that the treebank is below; None for $HEADLAB_DATA.

        Raises:
            HeadlabError: There is no such treebank, or it cannot be read.
        """
        trees = of_trees(treebank(data, language, self.split), language, self.split, size)
        return replace(trees, data=data)

    def task_sentences(self, lab: Lab, language: str, size: int | None) -> Sentences:
        """Examples of the task.

        Args:
            lab: What the job works with.
            language: Its code.
            size: Examples, at most; None for all.

        Raises:
            HeadlabError: The task lacks the language or the split.
        """
        chosen_task = lab.task(str(self.task)).with_languages([language])
        chosen_task.check(language, self.split)
        return of_task(chosen_task, language, self.split, size)

    def run(self, lab: Lab, running: RunningJob) -> Outcome:
        """One report per language; stored reports are not made again."""
        languages = listed_languages(self.languages)
        lab.need(self.model)  # before any sentence is read

        def find_roles(index: int, language: str, tick: Tick) -> Report:
            part = JobPart(NAME, language, language, index, len(languages))
            sentences = self.sentences(lab, language, self.size)
            return self.report(lab, running, sentences, part, tick)

        return keys_of(result_for_each_language(lab, running, languages, find_roles))

    def report(
        self,
        lab: Lab,
        running: RunningJob,
        sentences: Sentences,
        part: JobPart,
        tick: Tick,
        frequencies: Frequencies | None = None,
    ) -> Report:
        """The roles that heads have on some sentences: from the store, or found and stored.

        Args:
            lab: What the job works with.
            running: The job.
            sentences: Of one language.
            part: That the report is of the work of the running job.
            tick: Called between batches; may raise to stop.
            frequencies: Of words, counted in a text; None for those of the package wordfreq.
        """
        from headlab.roles.study import study  # imports torch

        return study(
            lab.need(self.model),
            sentences,
            options=self.options,
            store=lab.watched_store(running, part.language),
            frequencies=frequencies,
            on_progress=running.part_progress(part),
            tick=tick,
        )

    # The forecast.

    def forecast(self, known: ForecastBasis) -> Estimate:
        """Cost of one pass over the sentences of the languages whose report the store lacks."""
        stored_reports = [
            report
            for report in store_with_demo(known.root).reports().results
            if report.record.name == NAME and _is_of_model(report, self.model)
        ]
        languages = listed_languages(self.languages)
        sizes = {language: self._size(language) for language in languages}
        missing = []
        for language in languages:
            size = sizes[language]
            if not any(self._would_make(report, language, size) for report in stored_reports):
                missing.append(language)
        measure_request = MeasureRequest(
            model=self.model, task=self.task or TREEBANK, language=languages[0], job=self
        )
        if not missing:
            nothing = Part(0, None, ("the reports are in the cache already",))
            return estimate([nothing], measure_request)
        forwards = sum(sizes[language] for language in missing)
        pace, pace_basis = self._pace(stored_reports, known)
        missing_words = f"{len(missing)} languages" if len(missing) > 1 else missing[0]
        words = f"one pass over {forwards:,} sentences of {missing_words}"
        measure_request = replace(measure_request, language=missing[0])
        return estimate([Part(forwards, pace, (words, pace_basis))], measure_request)

    def measure(self, lab: Lab, request: MeasureRequest, tick: Callable[[], None]) -> Measured:
        """Time per sentence now, by a study of a few that is not stored."""
        from headlab.roles.study import study  # imports torch

        model = lab.need(self.model)
        for size in (WARM_UP_SENTENCES, TIMED_SENTENCES):  # the first batch of a model is slow
            sentences = self.sentences(lab, request.language, min(size, self.size or size))
            report = study(model, sentences, options=self.options, tick=tick)
        seconds = report.seconds / max(1, report.example_forwards)
        return Measured(heads=model.grid.size, seconds=seconds)

    def _size(self, language: str) -> int:
        """Number of sentences of a language."""
        if self.source == "task":
            return len(task(str(self.task)).examples(language, self.split, self.size))
        count = tree_count(language, self.split)
        if self.size is None:
            return count
        return min(self.size, count)

    def _would_make(self, result: Result[Report], language: str, size: int) -> bool:
        """Whether a report is what the job would make, as far as can be known without the model."""
        spec = result.record.spec
        name = TREEBANK if self.source == "treebank" else self.task
        asked_task = {"name": name, "language": language, "split": self.split, "size": size}
        return (
            _has_values(spec.get("task"), asked_task)
            and _has_values(spec.get("options"), self.options)
            and spec.get("version") == VERSION
        )

    def _pace(
        self, stored_reports: Sequence[Result[Report]], known: ForecastBasis
    ) -> tuple[float | None, str]:
        """Seconds a sentence, and the basis.

        They are of earlier reports on such a device, or as just timed.
        """
        reports = [
            result.record
            for result in stored_reports
            if result.meta.get("device", known.device) == known.device
        ]
        paces = [
            report.seconds / report.example_forwards
            for report in reports
            if report.example_forwards
        ]
        plural = "s" if len(paces) > 1 else ""
        return known.median_pace(paces, f"{len(paces)} report{plural} of its roles")

    # Its command, and back.

    @classmethod
    def flags(cls) -> tuple[Flag, ...]:
        """The model, the sentences, the options."""
        return (
            SUBJECT_FLAGS["model"],
            Flag("--task", "task by name or declaration: measures are taken on its examples"),
            Flag("--language", "language of the sentences", default="en"),
            Flag(
                "--conllu",
                "gold trees; default: the treebank of --data, if it has one",
                Path,
                command_only=True,
            ),
            DATA,
            *cls.setting_flags(),
            Flag(
                "--frequencies",
                "text file that word frequencies are counted in; default: package wordfreq",
                Path,
                command_only=True,
            ),
            Flag(
                "--option",
                "option of the roles as name=value, e.g. positional=0.8",
                short=OPTION_FLAG,
                repeated=True,
            ),
        )

    @classmethod
    def from_flags(cls, values: Mapping[str, FlagValue]) -> Self:
        """The job of a command. Raises HeadlabError for an option that is unknown."""
        task_name = values.get("task")
        return cls.model_construct(
            model=str(values.get("model") or SUBJECT_FLAGS["model"].default),
            task=None if task_name is None else str(task_name),
            source="treebank" if task_name is None else "task",
            languages=[str(values.get("language", "en"))],
            options=parse_options(pairs_of(values, "option"), OPTIONS),
            **cls._setting_fields(values),
        )

    def commands(self, context: CommandContext = NO_CONTEXT) -> list[list[str]]:
        """One command per language."""
        file_words: list[str] = []
        settings = dict(type(self).settings())
        if str(self.split) == FILE:
            file_words = ["--conllu", context.trees or "FILE"]
            settings.pop("split")
        values = {name: self.field_value(name) for name in settings}
        words = [*file_words, *setting_words(values, settings)]
        words += options_as_words(OPTION_FLAG, self.options or {}, OPTIONS)
        if context.frequencies is not None:
            words += ["--frequencies", context.frequencies]
        words += context.dtype_words
        return self.commands_by_language(context, words)

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """The job that makes a stored report."""
        options = part(spec, "options")
        fields = spec_fields(spec)
        fields.pop("label_map", None)
        on_trees = fields["task"] == TREEBANK
        if on_trees:
            fields["task"] = None
        return cls.model_construct(
            **fields,
            source="treebank" if on_trees else "task",
            split=part(spec, "task", "split") or "dev",
            size=part(spec, "task", "size"),
            options=dict(options) if isinstance(options, Mapping) else {},
        )

    @classmethod
    def has_all_fields(cls, spec: Mapping[str, Any]) -> bool:
        """Whether the spec has the options too."""
        return super().has_all_fields(spec) and isinstance(spec.get("options"), Mapping)

    def options_known(self) -> JobSettings:
        """The thresholds of roles."""
        return OPTIONS


def tree_count(language: str, split: Split) -> int:
    """Number of trees in the worker's treebank. Raises HeadlabError if it is missing or broken."""
    folder = subfolder(None, FOLDER)
    path = (folder or Path()) / f"{language}.{split}.{SUFFIX}"
    if folder is None or not path.is_file():
        raise HeadlabError(
            f"the worker has no {split} treebank of {language}; choose another split or language",
            code="treebank.missing",
        )
    stat = path.stat()
    return _cached_tree_count(folder, language, split, (str(path), stat.st_mtime_ns, stat.st_size))


@lru_cache(MAX_CACHED_COUNTS)
def _cached_tree_count(
    folder: Path, language: str, split: Split, stamp: tuple[str, int, int]
) -> int:
    return len(treebank(folder.parent, language, split))


def _is_of_model(result: Result[Report], model: str) -> bool:
    """Whether a report is of this model."""
    return bool(part(result.record.spec, "model", "name") == model)


def _has_values(record: object, values: Mapping[str, object]) -> bool:
    """Whether a part of a spec has these values."""
    if not isinstance(record, Mapping):
        return False
    return all(record.get(name) == value for name, value in values.items())
