"""The worker's client: its methods return what `headlab.worker.schemas` describes."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar, overload

import httpx
from pydantic import JsonValue, TypeAdapter, ValidationError

from headlab.core import HeadGrid, HeadlabError, JsonRecord
from headlab.jobs import JobPlace
from headlab.masks import Mask, full_mask
from headlab.methods import Forecast
from headlab.results import HeadScores
from headlab.studies.front_so_far import FrontSoFar
from headlab.worker.schemas import (
    AttentionRequest,
    Changed,
    Deleted,
    EvaluateRequest,
    ExampleCard,
    Figure,
    Finding,
    Health,
    JobLog,
    JobRow,
    LoadedModel,
    LoadedPlayers,
    ModelCard,
    SavedTask,
    Submitted,
    TaskCard,
    Weights,
)

if TYPE_CHECKING:
    from headlab.jobs import Job

CONNECT_SECONDS = 3.0
QUICK_SECONDS = 10.0
ANSWER_SECONDS = 120.0
LOAD_SECONDS = 900.0  # a model may have to be downloaded first
# Many sessions share a client, each with one stream per language: one that waited for a slot could
# block all others.
# Idle connections expire here well before the worker closes them: a request sent as it closes one
# would be lost.
CONNECTION_LIMITS = httpx.Limits(
    max_connections=None, max_keepalive_connections=32, keepalive_expiry=2.0
)
OVERLOADED_STATUSES = frozenset({429, 502, 503, 504})  # statuses of what may be answered later
Json = dict[str, JsonValue]
T = TypeVar("T")


class Client:
    """Client of a worker; connections are pooled, so one client may serve many threads.

    Every method raises HeadlabError with the worker's message, or with advice if it cannot be
    reached.
    """

    def __init__(self, base_url: str | Callable[[], str], token: str | None = None) -> None:
        """Connect when the first request is made.

        Args:
            base_url: The worker's address, or a function that returns it and restarts a worker that
                has died.
            token: Sent with every request; None for $HEADLAB_TOKEN.
        """
        self._url = base_url
        token = token or os.environ.get("HEADLAB_TOKEN")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # Loading the certificate authorities takes 20 ms, which plain http can skip.
        https = isinstance(base_url, str) and base_url.startswith("https")
        # No proxy from the environment: the worker is on this machine or its address was given.
        self._http = httpx.Client(
            headers=headers,
            trust_env=False,
            limits=CONNECTION_LIMITS,
            timeout=_timeout(ANSWER_SECONDS),
            verify=https,
        )

    def close(self) -> None:
        """Close the pooled connections."""
        self._http.close()

    def health(self) -> Health:
        """Whether the worker is available, and its state."""
        return self._answer(HEALTH, "GET", "/health", seconds=QUICK_SECONDS)

    def models(self) -> list[ModelCard]:
        """Every embedded model; a folder or the name of one of the hub can be loaded as well."""
        return self._answer(MODEL_CARDS, "GET", "/models")

    def tasks(self) -> list[TaskCard]:
        """Every task."""
        return self._answer(TASK_CARDS, "GET", "/tasks")

    def load_model(self, name: str) -> LoadedModel:
        """Load a model."""
        return self._answer(LOADED_MODEL, "POST", "/model", {"model": name}, LOAD_SECONDS)

    def players(self, model: str, grid: HeadGrid) -> LoadedPlayers:
        """What a model's players cost, and where they are.

        Args:
            model: Name of the model.
            grid: The players; not heads alone, whose costs `load_model` gives.

        Raises:
            HeadlabError: The model has no such players, or, of code `request.path_unknown`, the
                worker is of an earlier version, which knows no costs of players.
        """
        request = {"model": model, "mask": full_mask(grid).to_json()}
        return self._answer(LOADED_PLAYERS, "POST", "/players", request, LOAD_SECONDS)

    def sentences(
        self, task: str, language: str, split: str = "dev", n: int = 50
    ) -> list[ExampleCard]:
        """The first n examples of a split."""
        request = {"task": task, "language": language, "split": split, "n": n}
        return self._answer(EXAMPLE_CARDS, "POST", "/sentences", request)

    def check_model(
        self, model: str, task: str | None = None, label_map: Mapping[str, str] | None = None
    ) -> list[Finding]:
        """What a model's files tell before its weights are read."""
        request = {"model": model, "task": task, "label_map": label_map}
        return self._answer(FINDINGS, "POST", "/check", request)

    def save_task(self, draft: JsonRecord) -> SavedTask:
        """Save a task made from files.

        Args:
            draft: As `headlab.tasks.own.Draft.to_json` gives it.
        """
        return self._answer(SAVED_TASK, "POST", "/tasks", draft)

    def attention(self, request: AttentionRequest) -> Weights:
        """Attention of some heads for one sentence or pair.

        Args:
            request: The heads and the sentence, and whether the model's answers are wanted too. The
                worker checks its fields, so that it may be made with `model_construct`.
        """
        fields = request.model_dump(warnings=False)
        return self._answer(WEIGHTS, "POST", "/attention", fields, LOAD_SECONDS)

    def evaluate(self, request: EvaluateRequest) -> Iterator[Figure]:
        """Yield figures over a growing number of examples; the last is `done`.

        Closing the iterator stops the work at the worker's next batch.

        Args:
            request: Which mask is measured, and on what. The worker checks its fields, so that it
                may be made with `model_construct`.

        Raises:
            HeadlabError: There is no further figure: of code `worker.request_superseded` after a
                newer request of the same session, task, language and split,
                `worker.stopped_midway` if the worker or the connection ended.
        """
        body = _json_of(request)
        with self._readable_errors("/evaluate"), self._stream("/evaluate", body) as answer:
            yield from _figures(answer)

    def changes(
        self,
        model: str,
        task: str,
        language: str,
        mask: Mask,
        split: str = "dev",
        size: int = 512,
        *,
        label_map: Mapping[str, str] | None = None,
        ablation: str = "zero",
    ) -> Changed:
        """The answers that a mask changes, the first 2,000 of them."""
        request = {
            "model": model,
            "task": task,
            "language": language,
            "mask": mask.to_json(),
            "split": split,
            "size": size,
            "label_map": label_map,
            "ablation": ablation,
        }
        return self._answer(CHANGED_ANSWERS, "POST", "/changes", request, LOAD_SECONDS)

    def gradient(
        self,
        model: str,
        task: str,
        language: str,
        split: str = "dev",
        size: int = 512,
        form: str = "example",
        normalise: bool = False,
        label_map: Mapping[str, str] | None = None,
    ) -> HeadScores:
        """Gradient importance of every head, at once rather than as a job; the worker stores it."""
        request = {"model": model, "task": task, "language": language, "split": split, "size": size}
        request |= {"form": form, "normalise": normalise, "label_map": label_map}
        return scores_of(self._answer(JSON_OBJECT, "POST", "/gradient", request, LOAD_SECONDS))

    @overload
    def submit(self, kind: Job, *, place: JobPlace = "here") -> Submitted: ...

    @overload
    def submit(
        self, kind: str = "score", spec: Mapping[str, JsonValue] | None = None, place: str = "here"
    ) -> Submitted: ...

    def submit(
        self,
        kind: str | Job = "score",
        spec: Mapping[str, JsonValue] | None = None,
        place: str = "here",
    ) -> Submitted:
        """Queue a job of any kind. The same work submitted twice is one job.

        Args:
            kind: A job, or the key of its kind.
            spec: The job's fields where `kind` is a key; ignored where it is a job.
            place: "here", or "ray" if the `ray` of `health` is not empty.

        Returns:
            The job's id and state.
        """
        request = {**_job_request(kind, spec), "place": place}
        return self._answer(SUBMITTED_JOB, "POST", "/jobs", request)

    @overload
    def forecast(self, kind: Job) -> Forecast: ...

    @overload
    def forecast(self, kind: str, spec: Mapping[str, JsonValue]) -> Forecast: ...

    def forecast(self, kind: str | Job, spec: Mapping[str, JsonValue] | None = None) -> Forecast:
        """What a job will cost.

        Args:
            kind: A job, or the key of its kind.
            spec: The job's fields where `kind` is a key; ignored where it is a job.
        """
        request = _job_request(kind, spec)
        return self._answer(FORECAST, "POST", "/forecast", request, LOAD_SECONDS)

    def jobs(self) -> list[JobRow]:
        """The newest jobs, newest first."""
        return self._answer(JOB_ROWS, "GET", "/jobs")

    def job(self, job: int) -> JobRow:
        """One job, by its id."""
        return self._answer(JOB_ROW, "GET", f"/jobs/{int(job)}")

    def snapshot(self, job: int) -> tuple[JobRow, HeadScores | None]:
        """A job and, while it runs, the current language's scores so far, None without any."""
        path = f"/jobs/{int(job)}/snapshot"
        with self._readable_errors(path):
            answer = self._answer(JSON_OBJECT, "GET", path, seconds=QUICK_SECONDS)
            row = JOB_ROW.validate_python(answer.get("job"), extra="ignore")
        scores = answer.get("scores")
        if scores is None:
            return row, None
        return row, scores_of(scores)

    def front_so_far(self, job: int) -> tuple[JobRow, FrontSoFar | None]:
        """A job and, while it runs, what is measured of its front, None without any.

        Args:
            job: Its id.
        """
        path = f"/jobs/{int(job)}/snapshot"
        with self._readable_errors(path):
            answer = self._answer(JSON_OBJECT, "GET", path, seconds=QUICK_SECONDS)
            row = JOB_ROW.validate_python(answer.get("job"), extra="ignore")
            return row, FRONT_SO_FAR.validate_python(answer.get("front"), extra="ignore")

    def cancel(self, job: int) -> JobRow:
        """Cancel a job; a running one ends at its next batch."""
        return self._answer(JOB_ROW, "POST", f"/jobs/{int(job)}/cancel")

    def resume(self, job: int) -> JobRow:
        """Queue a cancelled or failed job again; it continues from its checkpoint."""
        return self._answer(JOB_ROW, "POST", f"/jobs/{int(job)}/resume")

    def log(self, job: int) -> list[str]:
        """A job's log, oldest line first, each with its time in UTC."""
        return self._answer(JOB_LOG, "GET", f"/jobs/{int(job)}/log").lines

    def delete(self, job: int) -> Deleted:
        """Delete a job that is not running, with its log and checkpoints; finished results stay."""
        return self._answer(DELETED_JOB, "DELETE", f"/jobs/{int(job)}")

    def _base_url(self) -> str:
        return (self._url if isinstance(self._url, str) else self._url()).rstrip("/")

    def _answer(
        self,
        answer_type: TypeAdapter[T],
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        seconds: float = ANSWER_SECONDS,
    ) -> T:
        """The answer to a request, validated; fields that a newer worker adds are ignored."""
        with self._readable_errors(path):
            response = self._response_to(method, path, body, seconds)
            return answer_type.validate_json(response.content, extra="ignore")

    def _response_to(
        self, method: str, path: str, body: Mapping[str, object] | None, seconds: float
    ) -> httpx.Response:
        """The response to a request, which must be a success."""

        def send() -> httpx.Response:
            return self._http.request(
                method, self._base_url() + path, json=body, timeout=_timeout(seconds)
            )

        response = self._send_with_retry(send, changes=method != "GET")
        _raise_for_status(response)
        return response

    @contextmanager
    def _stream(self, path: str, body: str) -> Iterator[httpx.Response]:
        """The answer to a request as it arrives.

        Args:
            body: JSON.
        """

        def send() -> httpx.Response:
            request = self._http.build_request(
                "POST",
                self._base_url() + path,
                content=body,
                headers={"Content-Type": "application/json"},
                timeout=_timeout(LOAD_SECONDS),
            )
            return self._http.send(request, stream=True)

        answer = self._send_with_retry(send, changes=False)  # asking for figures changes nothing
        try:
            if answer.status_code != 200:
                answer.read()
                _raise_for_status(answer)
            yield answer
        finally:
            answer.close()

    def _send_with_retry(
        self, send: Callable[[], httpx.Response], *, changes: bool = True
    ) -> httpx.Response:
        """Send, and once more if nothing can have reached the worker, which may have restarted.

        Args:
            send: Sends the request.
            changes: Whether the request may change something; if not, it is also sent again when a
                connection breaks.
        """
        try:
            return send()
        except (httpx.ReadError, httpx.RemoteProtocolError):
            if changes:
                raise
        except httpx.ConnectError:
            if isinstance(self._url, str):
                raise
        return send()

    @contextmanager
    def _readable_errors(self, path: str) -> Iterator[None]:
        """Turn transport errors into HeadlabError."""
        try:
            yield
        except httpx.TimeoutException as error:
            raise HeadlabError(
                f"the worker did not answer in time ({path}); it may be loading a model: try "
                "again in a moment",
                code="worker.timed_out",
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise self._unreachable_error(error) from error
        except ValueError as error:
            address = self._url if isinstance(self._url, str) else "the local worker's address"
            raise HeadlabError(
                f"what answers at {address} is not a headlab worker; {self._advice()}",
                code="worker.not_a_worker",
            ) from error

    def _unreachable_error(self, error: Exception) -> HeadlabError:
        """The error that says what happened to the worker, and what happens next."""
        event = "the worker is not running"
        if isinstance(error, httpx.ReadError | httpx.WriteError | httpx.RemoteProtocolError):
            event = "the worker ended before it had answered"
        if callable(self._url):
            return HeadlabError(
                f"{event}; it starts again by itself, and its jobs go on where they were: try "
                "again in a moment",
                code="worker.unreachable",
            )
        return HeadlabError(f"{event}; {self._advice()}", code="worker.unreachable")

    def _advice(self) -> str:
        if callable(self._url):
            return "try again in a moment"
        return f"check that it runs at {self._url}, or start the app without HEADLAB_WORKER"


# Answers, as types that validate.

HEALTH = TypeAdapter(Health)
MODEL_CARDS = TypeAdapter(list[ModelCard])
TASK_CARDS = TypeAdapter(list[TaskCard])
LOADED_MODEL = TypeAdapter(LoadedModel)
LOADED_PLAYERS = TypeAdapter(LoadedPlayers)
EXAMPLE_CARDS = TypeAdapter(list[ExampleCard])
WEIGHTS = TypeAdapter(Weights)
FIGURE = TypeAdapter(Figure)
CHANGED_ANSWERS = TypeAdapter(Changed)
FINDINGS = TypeAdapter(list[Finding])
SAVED_TASK = TypeAdapter(SavedTask)
JOB_ROW = TypeAdapter(JobRow)
JOB_ROWS = TypeAdapter(list[JobRow])
JOB_LOG = TypeAdapter(JobLog)
SUBMITTED_JOB = TypeAdapter(Submitted)
DELETED_JOB = TypeAdapter(Deleted)
FORECAST = TypeAdapter(Forecast)
FRONT_SO_FAR = TypeAdapter(FrontSoFar | None)
JSON_OBJECT = TypeAdapter(Json)


def _json_of(request: EvaluateRequest) -> str:
    """A request as it is sent. Raises HeadlabError for a mask that cannot be written."""
    try:
        return request.model_dump_json()
    except ValueError:
        if request.mask is not None:
            request.mask.to_json()  # whose error says what is wrong with it
        raise


def _job_request(kind: str | Job, spec: Mapping[str, JsonValue] | None) -> dict[str, object]:
    """The kind and the fields of a job, as a request has them."""
    if isinstance(kind, str):
        return {"kind": kind, "spec": dict(spec or {})}
    return {"kind": kind.key, "spec": kind.params()}


def _raise_for_status(answer: httpx.Response) -> None:
    """Raise HeadlabError for anything but success.

    It has the worker's own message if the answer has one.
    """
    if answer.is_success:
        return
    try:
        error = error_of(answer.json())
    except (ValueError, KeyError, TypeError, AttributeError):
        error = _error_of_status(answer.status_code)
    raise error


def _error_of_status(status: int) -> HeadlabError:
    """The error of an answer that gives no reason, as a proxy's or an overloaded server's."""
    if status in OVERLOADED_STATUSES:
        return HeadlabError(
            f"the worker, or a server between, has too much to do to answer ({status}); try again "
            "in a moment",
            code="worker.overloaded",
        )
    return HeadlabError(
        f"the worker answered {status}; is it a headlab worker of this version?",
        code="worker.answer_unknown",
    )


def _figures(answer: httpx.Response) -> Iterator[Figure]:
    """The figures of an answer.

    Raises:
        HeadlabError: If it ends before the last one, ValueError for anything else.
    """
    lines = answer.iter_lines()
    is_first = True
    try:
        for line in lines:
            figure = _figure_of(line)
            if figure.done:
                _read_to_end(lines)
                yield figure
                return
            yield figure
            is_first = False
    except (httpx.ReadError, httpx.RemoteProtocolError) as error:
        raise _stopped_midway() from error
    except ValueError as error:
        if is_first:
            raise
        raise _stopped_midway() from error  # the connection was cut in the middle of a line
    raise _stopped_midway()


def _figure_of(line: str) -> Figure:
    """The figure in a line. Raises the HeadlabError in it, and ValueError if there is neither."""
    try:
        return FIGURE.validate_json(line, extra="ignore")
    except ValidationError:
        _raise_error_in(line)
        raise


def _raise_error_in(line: str) -> None:
    """Raise the HeadlabError in a line, if there is one, and ValueError if it is no JSON."""
    record = json.loads(line)
    if not isinstance(record, dict):
        return
    if "error" in record:
        raise error_of(record)
    if record.get("superseded"):  # of an older worker, which gives no sentence
        raise HeadlabError(
            "a newer request of the same session ended this one; read the newer one's figures",
            code="worker.request_superseded",
        )


def _read_to_end(lines: Iterator[str]) -> None:
    """Read what ends an answer behind its figures, so that its connection can be used again."""
    with suppress(httpx.HTTPError):
        deque(lines, maxlen=0)


def _stopped_midway() -> HeadlabError:
    return HeadlabError(
        "the worker stopped while it was answering; try again", code="worker.stopped_midway"
    )


def scores_of(answer: JsonValue) -> HeadScores:
    """The scores that a worker sent. Raises HeadlabError if they are malformed."""
    try:
        if not isinstance(answer, dict):
            raise TypeError("not an object")
        return HeadScores.from_json(answer)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise HeadlabError(
            f"the worker's answer about a running job cannot be read ({type(error).__name__}); "
            "is it a headlab worker of this version?",
            code="worker.snapshot_malformed",
        ) from error


def error_of(record: Mapping[str, object]) -> HeadlabError:
    """The error in a worker's answer; older workers give no code.

    Raises:
        KeyError: If there is none.
    """
    return HeadlabError(str(record["error"]), code=str(record.get("code", "worker.error")))


def _timeout(seconds: float) -> httpx.Timeout:
    return httpx.Timeout(seconds, connect=CONNECT_SECONDS)
