"""What may be asked of the worker and what it answers: the only shapes that cross its door."""

from __future__ import annotations

import logging
import traceback
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from headlab.errors import HeadlabError

# What the worker tells of the model it holds, and the record that all its shapes are made of.


class Strict(BaseModel):
    """A record that takes no field it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LoadedModel(Strict):
    """The resident model; grid is {stack: heads per layer}.

    architecture: its class and model_type in transformers.  projections: for each layer, in the grid's order, the path
    of the module that takes the heads' outputs.  source: what `from_pretrained` takes to load it without headlab,
    None where it is not a folder of its own.  costs: of its heads, as `headlab.studies.savings.Costs` has them.
    """

    name: str
    revision: str
    fingerprint: str
    grid: dict[str, list[int]]
    device: str
    note: str
    architecture: dict[str, str] = Field(default_factory=dict)
    projections: list[str] = Field(default_factory=list)
    source: str | None = None
    costs: dict[str, Any] | None = None


MAX_BODY = 1 << 20
MAX_CHARACTERS = 2000
MAX_TOKENS = 64
MAX_HEADS = 48
MAX_SENTENCES = 1000
Name = Annotated[str, StringConstraints(min_length=1, max_length=300, pattern=r"^[^\x00-\x1f\x7f]+$")]
Language = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,19}$")]
Sentence = Annotated[str, StringConstraints(min_length=1, max_length=MAX_CHARACTERS)]
Size = Annotated[int, Field(ge=1, le=100_000)]
Ablation = Literal["zero", "mean"]
SplitName = Literal["train", "dev", "test"]
Place = Literal["here", "ray"]
Seed = Annotated[int, Field(ge=0, lt=1 << 63)]
State = Literal["queued", "running", "done", "failed", "cancelled"]


class Refusal(HeadlabError):
    """A request that is refused with an HTTP status of its own."""

    def __init__(self, sentence: str, status: int, *, code: str) -> None:
        super().__init__(sentence, code=code)
        self.status = status


class ModelRequest(Strict):
    """A model to be loaded and described."""

    model: Name


class EvaluateRequest(Strict):
    """Accuracy of a mask (None: the untouched model) in one language.

    session: who asks. A newer request of the same session for the same task, language and split ends
    the older one.
    """

    model: Name
    task: Name
    language: Language
    mask: dict[str, Any] | None = None
    split: SplitName = "dev"
    size: Size = 512
    ablation: Ablation = "zero"
    session: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = None


class AttentionRequest(Strict):
    """Attention of some heads, each (stack, layer, head), for one sentence or pair."""

    model: Name
    text: Sentence
    heads: Annotated[list[tuple[Name, int, int]], Field(min_length=1, max_length=MAX_HEADS)]
    pair: Sentence | None = None


class SentencesRequest(Strict):
    """Some examples of a task, to read and to look at."""

    task: Name
    language: Language
    split: SplitName = "dev"
    n: Annotated[int, Field(ge=1, le=MAX_SENTENCES)] = 50


class GradientRequest(Strict):
    """Gradient importance of every head in one language; form, normalise: as in the method's options."""

    model: Name
    task: Name
    language: Language
    split: SplitName = "dev"
    size: Size = 512
    form: Literal["example", "token", "batch"] = "example"
    normalise: bool = False


class MeasureRequest(Strict):
    """Work to be timed for a moment; method None: plain forward passes.

    experiment: details of an experiment job, whose cost is wanted in place of a pace.  roles: details of a role job,
    whose pace is wanted.
    """

    model: Name
    task: Name
    language: Language
    method: Name | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    experiment: dict[str, Any] | None = None
    roles: dict[str, Any] | None = None


class Health(Strict):
    """Whether the worker can be asked, and what it holds.

    device, model: None until torch has been imported and a model loaded.  ray: where jobs placed on Ray
    go, in a word; empty where they cannot.  state: the folder of its job list, below the cache.
    note: what a reader should know, or empty.
    """

    ok: bool
    device: str | None
    model: str | None
    jobs_running: int
    jobs_waiting: int
    ray: str
    version: str
    pid: int
    state: str
    note: str


class ModelCard(Strict):
    """A model that can be asked for by name; fingerprint None if its files are not on this machine."""

    name: str
    summary: str
    embedded: bool
    fingerprint: str | None


class TaskCard(Strict):
    """A task: labels, languages, and whether row i means the same in all of them.

    advice: what to do before its examples can be read, where they are not on this machine; labels and
    languages are empty where even these cannot be known.
    """

    name: str
    labels: list[str]
    languages: list[str]
    aligned: bool
    advice: str = ""


class ExampleCard(Strict):
    """One example of a task.  label: its name; None where words have labels instead, one a word, or a text is made."""

    id: str
    text: str
    label: str | None
    pair: str | None = None
    words: list[str] = Field(default_factory=list)
    labels: list[str] = Field(default_factory=list)


class Figure(Strict):
    """Accuracy over the examples seen so far, one line of the answer to an evaluate request.

    Without a mask low and high are the 95 % interval of the accuracy; with one, the paired
    bootstrap interval of `difference` = accuracy - baseline.
    """

    language: str
    n: int
    total: int
    accuracy: float
    low: float
    high: float
    done: bool
    baseline: float | None = None
    difference: float | None = None
    p: float | None = None
    flipped_right: int | None = None
    flipped_wrong: int | None = None


class Weights(Strict):
    """Attention by "stack.layer.head": [query][key], three decimals.

    separators: which tokens end or part texts (such as </s>), by their place.  truncated: the sentence was longer.
    """

    tokens: list[str]
    weights: dict[str, list[list[float]]]
    separators: list[int]
    truncated: bool


class Job(Strict):
    """One row of the job list.

    done, total: in the job's own parts; seconds_left may be unknown.  result: what a job that is done
    leaves to be read, such as the keys of its results in the store.
    """

    id: int
    kind: str
    params: dict[str, Any]
    place: Place
    state: State
    done: int
    total: int
    note: str
    error: str | None
    result: dict[str, Any] | None
    seconds_left: float | None
    attempts: int
    created: float
    started: float | None
    ended: float | None


class Scores(Strict):
    """Scores of every head; fields as in `headlab.scores.HeadScores`, arrays flat [head] in the grid's order."""

    grid: dict[str, list[int]]
    language: str
    method: str
    estimand: str
    unit: str
    example_forwards: int
    seconds: float
    level: float
    spec: dict[str, Any]
    values: list[float]
    low: list[float] | None
    high: list[float] | None
    samples: list[int] | None
    p_values: list[float] | None


class Snapshot(Strict):
    """A job and, while it runs, the scores so far of the language it is at; None where there are none to see."""

    job: Job
    scores: Scores | None = None


class Submitted(Strict):
    """The job that will do the work; the same spec asked twice is one job."""

    id: int
    state: State


class JobLog(Strict):
    """What happened to a job, oldest first, each line with its time in UTC."""

    lines: list[str]


class Deleted(Strict):
    """A job is off the list."""

    deleted: Literal[True] = True


class Forecast(Strict):
    """What a job will cost: forward passes and seconds, None where they cannot be known; basis: why, in words."""

    forwards: int | None
    seconds: float | None
    basis: str


class Measured(Strict):
    """What was seen of a model just now: its heads, and seconds a forward pass of the work in question.

    resumable: whether a pass can start at any layer.  forecast: the cost of an experiment, where that was asked for.
    """

    heads: int
    seconds: float
    resumable: bool = True
    forecast: Forecast | None = None


class Problem(Strict):
    """Why a request was refused: a sentence, and which problem it is, in a code that stays when sentences change."""

    error: str
    code: str


# The scores that a job asks for.

Languages = Annotated[list[Language], Field(min_length=1, max_length=200)] | Literal["all"]
Options = Annotated[dict[Name, bool | int | float | str | None], Field(max_length=32)]


class ScoreSpec(Strict):
    """Head scores of a model by one method, in some languages of a task ("all": in every one)."""

    model: Name
    task: Name
    languages: Languages
    method: Name = "shapley"
    options: Options = Field(default_factory=dict)
    seed: Seed = 0
    split: SplitName = "dev"
    size: Size = 512
    ablation: Ablation = "zero"


# What is said and what is logged when something fails: neither ever carries a sentence or a token.

LOG_NAME = "worker.log"


def sentence_of(error: BaseException) -> str:
    """What the asker is told."""
    if isinstance(error, HeadlabError):
        return str(error)
    return f"the worker failed ({type(error).__name__}); see the worker's log, .worker/{LOG_NAME} below the cache"


def code_of(error: BaseException) -> str:
    """The code that goes with `sentence_of`."""
    return error.code if isinstance(error, HeadlabError) else "worker.failed"


def log_failure(log: logging.Logger, what: str, error: BaseException) -> None:
    """Log types and places, not messages: those of foreign exceptions may quote what a user wrote."""
    lines = [f"{what}: {type(error).__name__}"]
    seen: BaseException | None = error
    while seen is not None:
        lines += [f"  {type(seen).__name__}"]
        lines += [
            f"    {frame.filename}:{frame.lineno} in {frame.name}" for frame in traceback.extract_tb(seen.__traceback__)
        ]
        seen = seen.__cause__ or seen.__context__
    log.error("%s", "\n".join(lines))
