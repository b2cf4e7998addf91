"""Requests that the worker accepts and its answers: the only types in its interface."""

from __future__ import annotations

import logging
import traceback
from typing import Annotated, Any, Literal

from pydantic import (
    Base64Bytes,
    BaseModel,
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    PlainSerializer,
    StringConstraints,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    create_model,
)

from headlab.core import (
    MAX_SENT_BYTES,
    MEMORY_FULL_WORDS,
    Change,
    HeadGrid,
    HeadlabError,
    Omissions,
    PlayerCells,
    SlopeUse,
    is_out_of_memory,
)
from headlab.jobs import (
    MAX_EXAMPLES,
    Ablation,
    JobPlace,
    LabelMap,
    Language,
    Name,
    OnTask,
    SplitName,
    Strict,
)
from headlab.masks import Mask, mask_from_json
from headlab.results import SCORE_ARRAYS, SCORE_VALUES, SIGNED_FIELD, HeadScores
from headlab.studies.front_so_far import FrontSoFar
from headlab.studies.player_costs import PlayerCosts
from headlab.studies.savings import Costs

# The description of a model in memory.


def _grid_of(value: object, as_object: ValidatorFunctionWrapHandler) -> HeadGrid:
    """The heads of a model, from what was sent of them.

    Args:
        value: The heads, or {stack: heads per layer}.
        as_object: Gives back such an object, and refuses anything else.
    """
    if isinstance(value, HeadGrid):
        return value
    return HeadGrid.from_json(as_object(value))


def _costs_of(value: object, as_object: ValidatorFunctionWrapHandler) -> Costs:
    """The costs of a model, from what was sent of them. Raises HeadlabError if they are malformed.

    Args:
        value: The costs, or an object with their fields.
        as_object: Gives back an object, and refuses anything else.
    """
    if isinstance(value, Costs):
        return value
    return Costs.from_json(as_object(value))


def _player_costs_of(value: object, as_object: ValidatorFunctionWrapHandler) -> PlayerCosts:
    """As `_costs_of`, of a model's players.

    Args:
        value: The costs, or an object with their fields.
        as_object: Gives back an object, and refuses anything else.
    """
    if isinstance(value, PlayerCosts):
        return value
    return PlayerCosts.from_json(as_object(value))


def _player_cells_of(value: object, as_object: ValidatorFunctionWrapHandler) -> PlayerCells:
    """As `_costs_of`, of what a model's players contain.

    Args:
        value: The cells, or an object with their fields.
        as_object: Gives back an object, and refuses anything else.
    """
    if isinstance(value, PlayerCells):
        return value
    return PlayerCells.from_json(as_object(value))


class LoadedModel(Strict):
    """A model in memory; grid is {stack: heads per layer}.

    architecture: its class and model_type in transformers.  projections: for each layer, in the
    grid's order, the path of the module that takes the heads' outputs.  source: what
    `from_pretrained` takes to load it without headlab, None where that is impossible.  costs: of
    its heads, with the fields of `headlab.studies.savings.Costs`.
    former_fingerprints: under which earlier versions of headlab recorded the same model.
    bytes_a_parameter: in a file of its weights as headlab writes it; None from an older worker.
    """

    name: str
    revision: str
    fingerprint: str
    grid: Annotated[
        HeadGrid,
        GetPydanticSchema(lambda _grid, schema_of: schema_of(dict[str, list[int]])),
        WrapValidator(_grid_of),
        PlainSerializer(HeadGrid.to_json, return_type=dict[str, list[int]]),
    ]
    device: str
    note: str
    architecture: dict[str, str] = Field(default_factory=dict)
    projections: list[str] = Field(default_factory=list)
    source: str | None = None
    costs: (
        Annotated[
            Costs,
            GetPydanticSchema(lambda _costs, schema_of: schema_of(dict)),
            WrapValidator(_costs_of),
            PlainSerializer(Costs.to_json, return_type=dict),
            WithJsonSchema({"type": "object", "additionalProperties": True}),
        ]
        | None
    ) = None
    former_fingerprints: list[str] = Field(default_factory=list)
    bytes_a_parameter: int | None = None

    @property
    def identity(self) -> dict[str, str]:
        """What masks and results say of the model."""
        return {"name": self.name, "revision": self.revision, "fingerprint": self.fingerprint}


class LoadedPlayers(Strict):
    """Players of a model in memory that are no heads: what they cost, and where they are.

    costs: with the fields of `headlab.studies.player_costs.PlayerCosts`.  downs, layers: the paths
    of each layer's down projection and of the layer; empty where no player needs them.  cells: what
    the players contain, with the fields of `headlab.core.PlayerCells`, where the costs do not say it
    because nothing can be removed from the weights; an older worker does not say it there.
    """

    costs: Annotated[
        PlayerCosts,
        GetPydanticSchema(lambda _costs, schema_of: schema_of(dict)),
        WrapValidator(_player_costs_of),
        PlainSerializer(PlayerCosts.to_json, return_type=dict),
        WithJsonSchema({"type": "object", "additionalProperties": True}),
    ]
    downs: list[str] = Field(default_factory=list)
    layers: list[str] = Field(default_factory=list)
    cells: (
        Annotated[
            PlayerCells,
            GetPydanticSchema(lambda _cells, schema_of: schema_of(dict)),
            WrapValidator(_player_cells_of),
            PlainSerializer(PlayerCells.cells_to_json, return_type=dict),
            WithJsonSchema({"type": "object", "additionalProperties": True}),
        ]
        | None
    ) = None

    @property
    def player_cells(self) -> PlayerCells | None:
        """What the players contain; None where an older worker does not say it."""
        return self.costs.player_set if self.cells is None else self.cells


MAX_BODY = 1 << 20
MAX_SENT = MAX_BODY + MAX_SENT_BYTES * 4 // 3  # of a task's files, in base64
MAX_CHARACTERS = 2000
MAX_TOKENS = 64
MAX_HEADS = 48
MAX_SENTENCES = 1000
Sentence = Annotated[str, StringConstraints(min_length=1, max_length=MAX_CHARACTERS)]
Size = Annotated[int, Field(ge=1, le=MAX_EXAMPLES)]
State = Literal["queued", "running", "done", "failed", "cancelled"]


def _mask_of(value: object, as_object: ValidatorFunctionWrapHandler) -> Mask:
    """The mask in a request. Raises HeadlabError for an object that is not one.

    Args:
        value: The mask, or what was sent.
        as_object: Gives back a JSON object, and refuses anything else.
    """
    if isinstance(value, Mask):
        return value
    return mask_from_json(as_object(value), "the mask")


def _schema_of_object(_mask: object, schema_of: GetCoreSchemaHandler) -> Any:
    """The schema of any object."""
    return schema_of(dict)


SentMask = Annotated[
    Mask,
    GetPydanticSchema(_schema_of_object),
    WrapValidator(_mask_of),
    PlainSerializer(Mask.to_json, return_type=dict),
    WithJsonSchema({"type": "object", "additionalProperties": True}),
]


class ModelRequest(Strict):
    """A model to load and describe."""

    model: Name


class PlayersRequest(Strict):
    """A model whose players, those of any mask of them, are to be described."""

    model: Name
    mask: SentMask


class EvaluateRequest(OnTask):
    """Accuracy of a mask (None: the untouched model) in one language.

    label_map: {label: class of the model, by its name or number}; none matches names, or tries all
    orders on dev.
    session: id of the caller. A newer request with the same session, task, language and split ends
    the older one with an error of code worker.request_superseded.
    """

    model: Name
    language: Language
    mask: SentMask | None = None
    split: SplitName = "dev"
    size: Size = 512
    ablation: Ablation = "zero"
    session: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = None


class AttentionRequest(Strict):
    """Attention of some heads, each (stack, layer, head), for one sentence or pair.

    words: the sentence as a task that labels words has it; a token classifier otherwise gets the
    text split at spaces.
    task: to be told the model's answers with these heads on and off too, or of a decoder the next
    tokens; label_map as for any work on a task.
    maps: whether to send small maps of all heads that attend from this sentence, too.
    """

    model: Name
    text: Sentence
    heads: Annotated[list[tuple[Name, int, int]], Field(min_length=1, max_length=MAX_HEADS)]
    pair: Sentence | None = None
    words: Annotated[list[Sentence], Field(max_length=MAX_CHARACTERS)] = Field(default_factory=list)
    task: Name | None = None
    label_map: LabelMap = None
    maps: bool = False


class SentencesRequest(Strict):
    """The first n examples of a split of a task."""

    task: Name
    language: Language
    split: SplitName = "dev"
    n: Annotated[int, Field(ge=1, le=MAX_SENTENCES)] = 50


class GradientRequest(OnTask):
    """Gradient importance of every head in one language.

    Form, normalise: as in the method's options.
    """

    model: Name
    language: Language
    split: SplitName = "dev"
    size: Size = 512
    form: Literal["example", "token", "batch"] = "example"
    normalise: bool = False


class Health(Strict):
    """Whether the worker is available, and its state.

    device, model: None until torch has been imported and a model loaded.  ray: one word for where
    Ray jobs run; empty if they cannot.  state: the folder of its job list, relative to the cache.
    note: a message for the user, or empty.
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
    """A model that can be requested by name.

    Fingerprint is None if its files are not on this machine.
    """

    name: str
    summary: str
    embedded: bool
    fingerprint: str | None


class TaskCard(Strict):
    """A task: labels, languages, and whether row i means the same in all of them.

    advice: how to get its examples if they are not on this machine; labels and languages are empty
    if these are unknown too.
    """

    name: str
    labels: list[str]
    languages: list[str]
    aligned: bool
    advice: str = ""


class CheckRequest(Strict):
    """A model to check before its weights are read, and a task.

    The task, if any, is the one whose labels its classes should be.
    """

    model: Name
    task: Name | None = None
    label_map: LabelMap = None


class Finding(Strict):
    """One check of a model.  ok: whether it passed; None if only loading can tell.

    classes: their names, if any.
    """

    what: str
    ok: bool | None
    words: str
    classes: list[str] = Field(default_factory=list)


class Sent(Strict):
    """A file of a task.  name: its owner's, for messages.

    language, split: of all its rows, if no column says it.
    """

    name: Name
    data: Base64Bytes
    language: Language | None = None
    split: SplitName | None = None


class TaskRequest(Strict):
    """A task to save; fields as in a declaration.  share: of the rows that become dev.

    division: by which version.
    """

    name: Annotated[str, StringConstraints(max_length=60)]
    format: Literal["csv", "tsv", "jsonl", "conllu", "conll"]
    columns: Annotated[dict[Name, Name], Field(max_length=10)]
    sent: Annotated[list[Sent], Field(min_length=1, max_length=200)]
    splits: dict[SplitName, Name] = Field(default_factory=dict)
    aligned: bool = False
    share: Annotated[float, Field(gt=0, lt=1)] | None = None
    division: Literal[1, 2] = 1


class SavedTask(Strict):
    """A saved task.  path: of its declaration, below the worker's cache.

    sizes: {language: {split: examples}}.
    """

    name: str
    path: str
    declaration: str
    labels: list[str]
    sizes: dict[str, dict[str, int]]


class ExampleCard(Strict):
    """One example of a task.

    text: of a language model's task, with the tokens that it is to predict.  label: its name, or
    the right choice; None where each word has a label instead, or a text is generated or predicted.
    """

    id: str
    text: str
    label: str | None
    pair: str | None = None
    words: list[str] = Field(default_factory=list)
    labels: list[str] = Field(default_factory=list)


class Figure(Strict):
    """Accuracy over the examples seen so far, one line of the answer to an evaluate request.

    Without a mask, low and high are the 95 % interval of the accuracy; with one, the paired
    bootstrap interval of `difference` = accuracy - baseline.  note: which class was taken for which
    label, and whether the untouched model is surely worse than guessing; empty if there is nothing
    to say.  equal_texts: of the last line alone, {other split: how many of the examples have a text
    that it has too}.  omissions: what of the examples was cut or has no answer, as in
    `headlab.core.records.Omissions`.
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
    note: str = ""
    equal_texts: dict[str, dict[str, int]] = Field(default_factory=dict)
    omissions: Omissions | None = None


def is_last(record: BaseModel) -> bool:
    """Whether a record ends the answer to its request.

    Of figures it is the one over all examples, else the only one.
    """
    return not isinstance(record, Figure) or record.done


class Changed(Strict):
    """The answers of one language that a mask changes, the first 2,000 of `total`."""

    language: str
    total: int
    answers: list[Change]


class Answer(Strict):
    """What a model says of a text or of one of its words.

    With the heads in question on, and with them off.

    word: None where the text itself has a label.  on, off: labels.  p_on, p_off: the probability
    that the model gives each, among the task's labels.
    """

    word: str | None
    on: str
    p_on: float
    off: str
    p_off: float


class NextToken(Strict):
    """What a language model expects behind one token of a sentence.

    With the heads in question on, and with them off.

    position: of the token that does follow, in `tokens` of `Weights`; after the last token of a
    sentence the number of tokens, as none follows.  p_on, p_off: the probability of the token that
    follows, none where none does.  top_on, top_off: the most probable token, written as `tokens`
    are;
    p_top_on, p_top_off: its probability.
    """

    position: int
    p_on: float | None
    p_off: float | None
    top_on: str
    p_top_on: float
    top_off: str
    p_top_off: float


class Weights(Strict):
    """Attention by "stack.layer.head": [query][key], to three decimals.

    tokens: as people read them: letters and not the symbols of a byte-level tokenizer, ▁ for a
    space, and of a letter that several tokens share, the letter and its part, like 戏[1/2].  ids: of
    the tokens; equal ones are one token.
    separators: positions of tokens that end or separate texts (such as </s>).  special: of all
    special tokens, <s> included.  truncated: the sentence was longer.  words: of the sentence, as
    far as the tokenizer knows them;
    places: for every token, the index of its word, -1 for none.  answers: of the whole sentence, if
    a task was named;
    note: why there are none, or which class was taken for which label.  next_tokens: of a decoder
    in place of answers, in the order of the sentence.  maps: as weights, of every head, but in
    base64: one byte a weight, which is a 255th, row by row.
    """

    tokens: list[str]
    ids: list[int] = Field(default_factory=list)
    weights: dict[str, list[list[float]]]
    separators: list[int] = Field(default_factory=list)
    special: list[int] = Field(default_factory=list)
    truncated: bool
    words: list[str] = Field(default_factory=list)
    places: list[int] = Field(default_factory=list)
    answers: list[Answer] = Field(default_factory=list)
    note: str = ""
    next_tokens: list[NextToken] = Field(default_factory=list)
    maps: dict[str, str] = Field(default_factory=dict)


class JobRow(Strict):
    """One row of the job list.

    done, total: in the job's own units.  seconds_left: None where unknown.  result: what a finished
    job returned, such as the keys of its results in the store.
    """

    id: int
    kind: str
    params: dict[str, Any]
    place: JobPlace
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


# The fields of the JSON of scores, which `headlab.results.scores` names, as `create_model` takes
# them.
SCORE_FIELDS: dict[str, Any] = {
    "grid": (dict[str, list[int]], ...),
    **{name: (plain_type, ...) for name, plain_type in SCORE_VALUES.items()},
    "spec": (dict[str, object], ...),
    **{
        name: (about.json_type, None if about.added_later else ...)
        for name, about in SCORE_ARRAYS.items()
        if not about.in_files_only
    },
    SIGNED_FIELD: (bool, ...),
}
ScoreFields = create_model("ScoreFields", __base__=Strict, **SCORE_FIELDS)


class Scores(ScoreFields):  # type: ignore[misc, valid-type] # mypy knows no class that is made
    """Scores of every head.

    Fields as in `headlab.results.scores.HeadScores`, arrays flat [head] in the grid's order.
    members: {stack: [layer][neuron]}, the group of every neuron, where groups of neurons are scored.
    """

    members: dict[str, list[list[int]]] | None = None
    omissions: Omissions | None = None
    slopes: SlopeUse | None = None

    @staticmethod
    def from_scores(scores: HeadScores) -> Scores:
        """Scores as they are sent."""
        return Scores(**scores.to_json())


class Snapshot(Strict):
    """A job and, while it runs, what is computed so far; None where there is nothing.

    scores: of the current language.  front: the models of a front that are measured.
    """

    job: JobRow
    scores: Scores | None = None
    front: FrontSoFar | None = None


class Submitted(Strict):
    """The job that will do the work; the same spec submitted twice is one job."""

    id: int
    state: State


class JobLog(Strict):
    """A job's log, oldest line first, each with its time in UTC."""

    lines: list[str]


class Deleted(Strict):
    """A job was deleted."""

    deleted: Literal[True] = True


class Problem(Strict):
    """Why a request was refused: a sentence and a code.

    The code stays when sentences change.
    """

    error: str
    code: str


# What is reported and logged when something fails: neither ever contains a user's sentence or a
# token.

LOG_NAME = "worker.log"


def sentence_of(error: BaseException) -> str:
    """The message that the client receives."""
    if isinstance(error, HeadlabError):
        return str(error)
    if is_out_of_memory(error):
        return MEMORY_FULL_WORDS
    return f"the worker failed ({type(error).__name__}); see the worker's log, .worker/{LOG_NAME} below the cache"


def code_of(error: BaseException) -> str:
    """The code that goes with `sentence_of`."""
    if isinstance(error, HeadlabError):
        return error.code
    return "worker.failed"


def log_failure(log: logging.Logger, subject: str, error: BaseException) -> None:
    """Log types and locations of exceptions, not messages, which may quote what a user wrote."""
    lines = [f"{subject}: {type(error).__name__}"]
    exception: BaseException | None = error
    while exception is not None:
        lines += [f"  {type(exception).__name__}"]
        lines += [
            f"    {frame.filename}:{frame.lineno} in {frame.name}"
            for frame in traceback.extract_tb(exception.__traceback__)
        ]
        exception = exception.__cause__ or exception.__context__
    log.error("%s", "\n".join(lines))
