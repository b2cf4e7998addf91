"""Any task of lm-evaluation-harness with some heads off, compared with the untouched model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypedDict, TypeVar

import lm_eval
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import AGGREGATION_REGISTRY
from lm_eval.tasks import TaskManager
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from headlab.core import HeadlabError, Json
from headlab.evaluation.context import context_length, default_context
from headlab.evaluation.encoding import predicts_next
from headlab.evaluation.harness.answers import AnswerSettings, check_answer_length, written_answer
from headlab.evaluation.harness.continuations import (
    Continuation,
    ContinuationTokens,
    continuation_tokens,
    log_likelihoods,
    text_tokens,
)
from headlab.evaluation.harness.metrics import Figures, HarnessRun, TaskGroup, figures
from headlab.evaluation.harness.notes import TaskNotes
from headlab.hooks import Model, as_gate_tensor
from headlab.masks import Mask, full_mask

Arguments_co = TypeVar("Arguments_co", covariant=True)


class Request(Protocol[Arguments_co]):
    """What the harness asks of a model.

    Those of a task also have `task_name`, `doc_id` and `repeats`.
    """

    @property
    def args(self) -> Arguments_co:
        """What is asked: texts, and the settings of an answer."""


Likelihoods = Sequence[Request[tuple[str, str]]]  # a context and its continuation each
RollingLikelihoods = Sequence[Request[tuple[str]]]  # a text each
Generations = Sequence[Request[tuple[str, dict[str, Json]]]]  # a context and the settings each


class HarnessTask(Protocol):
    """What headlab uses of a task of the harness."""

    @property
    def task_name(self) -> str:
        """Its name."""

    def aggregation(self) -> Mapping[str, object]:
        """Of each metric, the function of all documents."""


class MetricAverage(Protocol):
    """How a group averages a metric over its tasks.

    Attributes:
        metric: Name of the metric.
        weight_by_size: Whether a task counts as often as it has documents.
    """

    metric: str
    weight_by_size: bool


class HarnessGroup(Protocol):
    """What headlab uses of a group of tasks of the harness."""

    @property
    def aggregate_metric_list(self) -> Sequence[MetricAverage] | None:
        """The metrics that it averages."""

    def get_all_tasks(self) -> Iterable[HarnessTask]:
        """Its tasks, with those of its subgroups."""


class HarnessTasks(TypedDict):
    """What the harness's loader gives.

    Attributes:
        tasks: Tasks by name.
        groups: Groups of tasks by name.
    """

    tasks: dict[str, HarnessTask]
    groups: dict[str, HarnessGroup]


class GatedLM(TemplateLM):  # type: ignore[misc] # lm_eval ships no types
    """A decoder for `lm_eval.simple_evaluate`, with the heads of a mask off.

    Contexts that are too long lose their beginning, as in the harness's own models.

    Args:
        model: a decoder language model.
        mask: of its heads; None for all heads on.

    Attributes:
        notes: what a user has to know of how tasks were answered so far.

    Raises:
        HeadlabError: for a model that is no decoder language model, and for another model's mask.
    """

    def __init__(self, model: Model, mask: Mask | None = None) -> None:
        super().__init__()
        if not predicts_next(model):
            raise HeadlabError(
                f"{model.name} is a {type(model.module).__name__}; lm-evaluation-harness needs a "
                "decoder language model",
                code="model.not_language_model",
            )
        self.model = model
        self.tokenizer = model.tokenizer
        self.notes = TaskNotes(limit=default_context(model))
        self._gates = as_gate_tensor(model, full_mask(model.grid) if mask is None else mask)

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text."""
        end = self.tokenizer.eos_token_id
        if end is None:
            raise HeadlabError(
                f"the tokenizer of {self.model.name} has no end token, which lm-evaluation-harness "
                "needs; set eos_token and save it into the folder",
                code="tokenizer.no_end",
            )
        return int(end)

    @property
    def prefix_token_id(self) -> int:
        """The token before a text without a context."""
        start = self.tokenizer.bos_token_id
        if start is None:
            return self.eot_token_id
        return int(start)

    def tok_encode(
        self,
        string: str,
        add_special_tokens: bool | None = None,
        **_: object,
    ) -> list[int]:
        """Tokens of a text, after a start token where the tokenizer puts one."""
        if add_special_tokens is None:
            return text_tokens(self.model, string)
        return list(self.tokenizer(string, add_special_tokens=add_special_tokens)["input_ids"])

    def loglikelihood(
        self,
        requests: Likelihoods,
        disable_tqdm: bool = False,
    ) -> list[tuple[float, bool]]:
        """Log-probability of each continuation, and whether greedy decoding gives it."""
        continuations = []
        for request in requests:
            context, text = request.args
            continuations.append(Continuation(_task(request), _document(request), context, text))
        tokens = continuation_tokens(self.model, continuations, self.prefix_token_id, self.notes)
        return log_likelihoods(self.model, self._gates, tokens, self.notes)

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[object, list[int], list[int]]], **_: object
    ) -> list[tuple[float, bool]]:
        tokens = []
        for _texts, context, rest in requests:
            tokens.append(ContinuationTokens(context or [self.prefix_token_id], rest))
        return log_likelihoods(self.model, self._gates, tokens, self.notes)

    def loglikelihood_rolling(
        self,
        requests: RollingLikelihoods,
        disable_tqdm: bool = False,
    ) -> list[float]:
        """Log-probability of whole texts, in windows that fit the model."""
        windows: list[ContinuationTokens] = []
        text_numbers: list[int] = []
        for number, request in enumerate(requests):
            task = _task(request)
            document = _document(request)
            tokens = self.tok_encode(request.args[0])
            if not tokens:
                self.notes.tokenless[task].add(document)
            limit = context_length(self.model)
            for window in get_rolling_token_windows(tokens, self.prefix_token_id, limit, 1):
                context, rest = make_disjoint_window(window)
                windows.append(ContinuationTokens(context, rest, task, document))
                text_numbers.append(number)
        sums = [0.0] * len(requests)
        scores = log_likelihoods(self.model, self._gates, windows, self.notes)
        for number, (log_likelihood, _) in zip(text_numbers, scores, strict=True):
            sums[number] += log_likelihood
        return sums

    def generate_until(self, requests: Generations, disable_tqdm: bool = False) -> list[str]:
        """Greedy continuations up to a text that ends them, one request after the other."""
        answers: dict[tuple[str, str], str] = {}  # the same request has the same answer
        texts = []
        for request in requests:
            context, settings = request.args
            key = (context, repr(settings))
            if key not in answers:
                answers[key] = self._answer(request, context, AnswerSettings.of(settings))
            texts.append(answers[key])
        return texts

    def _answer(self, request: object, context: str, settings: AnswerSettings) -> str:
        task = _task(request)
        check_answer_length(self.model, task, settings)
        self._note_settings(request, settings)
        tokens = self.tok_encode(context) or [self.prefix_token_id]
        room = context_length(self.model) - settings.max_tokens
        if len(tokens) > room:
            self.notes.cut[task].add(_document(request))
        return written_answer(self.model, self._gates, tokens[-room:], settings, self.eot_token_id)

    def _note_settings(self, request: object, settings: AnswerSettings) -> None:
        task = _task(request)
        if settings.sampling:
            self.notes.sampling[task] = settings.sampling
        if settings.unused:
            self.notes.unused[task] = settings.unused
        repeats = getattr(request, "repeats", None) or 1
        if repeats > 1:
            self.notes.repeats[task] = repeats


def _task(request: object) -> str:
    """Name of a request's task."""
    return getattr(request, "task_name", None) or "lm-eval"


def _document(request: object) -> int | None:
    """Number of a request's document; None where it has none."""
    return getattr(request, "doc_id", None)


class LoadedTasks(TaskManager):  # type: ignore[misc] # lm_eval ships no types
    """The harness's loader of tasks, which keeps what it loaded last."""

    loaded: HarnessTasks

    def load(self, task_list: object) -> HarnessTasks:
        """Tasks and groups by name."""
        self.loaded = super().load(task_list)
        return self.loaded

    def aggregations(self) -> dict[str, dict[str, str]]:
        """Of each task and metric, the name of its function of all documents."""
        names: dict[str, dict[str, str]] = {}
        for name, task in self.loaded["tasks"].items():
            functions = task.aggregation()
            names[name] = {metric: _aggregation_name(functions[metric]) for metric in functions}
        return names

    def task_groups(self) -> dict[str, TaskGroup]:
        """The groups that average metrics over their tasks."""
        groups: dict[str, TaskGroup] = {}
        for name, group in self.loaded["groups"].items():
            tasks = tuple(task.task_name for task in group.get_all_tasks())
            configs = group.aggregate_metric_list or ()
            by_size = {config.metric: config.weight_by_size for config in configs}
            groups[name] = TaskGroup(tasks, by_size)
        return groups


def _aggregation_name(aggregation: object) -> str:
    """The name under which the harness knows an aggregation, or that of a task's own function."""
    registered_functions: Mapping[str, object] = dict(AGGREGATION_REGISTRY.items())
    for name, function in registered_functions.items():
        if function is aggregation:
            return name
    return f"{getattr(aggregation, '__name__', aggregation)}, the task's own"


def harness_figures(
    model: Model,
    tasks: Sequence[str],
    mask: Mask | None = None,
    *,
    size: int | None = None,
    seed: int = 0,
    folder: str | None = None,
    tell: Callable[[str], None] = warnings.warn,
) -> Figures:
    """{task: {metric: row}} of tasks of the harness; with a mask, paired with the untouched model.

    Args:
        model: a decoder language model.
        tasks: names of tasks or groups of the harness.
        mask: of heads to switch off; None for the untouched model alone.
        size: number of documents of each task; None for all.
        seed: of the intervals.
        folder: of further tasks, as YAML files.
        tell: called with each note on how tasks were answered, a sentence.

    Returns:
        Rows as `headlab.evaluation.harness.metrics.figures` describes them.

    Raises:
        HeadlabError: for tasks that the harness does not know or whose data it cannot fetch.
    """
    if not hasattr(TaskManager, "load"):
        raise HeadlabError(
            "the installed lm-evaluation-harness is too old: pip install --upgrade 'headlab[lm-eval]'",
            code="package.lm_eval_old",
        )
    models = [GatedLM(model)]
    if mask is not None:
        models.append(GatedLM(model, mask))
    runs = _harness_runs(models, tasks, size, folder)
    sentences = [sentence for gated_model in models for sentence in gated_model.notes.sentences()]
    for sentence in dict.fromkeys(sentences):
        tell(sentence)
    cut_documents = {task: len(documents) for task, documents in models[-1].notes.cut.items()}
    return figures(runs, seed, cut_documents)


def _harness_runs(
    models: Sequence[GatedLM],
    tasks: Sequence[str],
    size: int | None,
    folder: str | None,
) -> list[HarnessRun]:
    """What the harness finds for each model. Raises HeadlabError where it fails."""
    try:
        manager = LoadedTasks(include_path=folder)
        runs = []
        for gated_model in models:
            results = lm_eval.simple_evaluate(
                model=gated_model,
                tasks=list(tasks),
                limit=size,
                task_manager=manager,
                bootstrap_iters=0,
            )
            runs.append(HarnessRun(results, manager.aggregations(), manager.task_groups()))
    except HeadlabError:
        raise
    except OverflowError as error:
        raise HeadlabError(
            f"lm-evaluation-harness cannot compute a perplexity of {', '.join(tasks)}: it is too large "
            "for a number, as where words are not separated by spaces; leave that metric out of a copy "
            "of the task (--lm-eval-folder)",
            code="lm_eval.overflow",
        ) from error
    except Exception as error:  # the harness and the loaders of its tasks raise what they like
        raise HeadlabError(
            f"lm-evaluation-harness could not run {', '.join(tasks)} "
            f"({type(error).__name__}: {error}); check the names (lm-eval ls tasks), and that their "
            "data can be fetched",
            code="lm_eval.failed",
        ) from error
    return runs
