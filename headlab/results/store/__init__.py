"""Results on disk: one folder per run, named by the hash of its spec and written atomically."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import numpy as np

from headlab.core import (
    CHOOSE_CACHE,
    Bools,
    Evaluation,
    Floats,
    HeadlabError,
    Ints,
    Json,
    JsonRecord,
    Report,
    RunSpec,
    append_line,
    as_path,
    demo_results,
    former_specs,
    read_json,
    sync_folder,
    write_atomic,
    write_json,
)
from headlab.core import default_root as default_root
from headlab.results.l0_gates import LearnedGates
from headlab.results.scores import Curve, HeadScores
from headlab.results.store.codecs import ANSWERS_KIND as ANSWERS_KIND
from headlab.results.store.codecs import (
    CODECS,
    Record,
    codec_of,
    pack,
    pack_evaluation,
    read_evaluation,
    read_result,
    read_right_answers,
)
from headlab.results.store.codecs import GATES_KIND as GATES_KIND
from headlab.results.store.codecs import REPORT_KIND as REPORT_KIND
from headlab.results.store.codecs import Result as Result
from headlab.results.store.codecs import pack_answers as pack_answers
from headlab.results.store.codecs import trained_folder as trained_folder
from headlab.results.store.codecs import unpack_answers as unpack_answers
from headlab.results.store.folder import MAX_ARRAY_BYTES as MAX_ARRAY_BYTES
from headlab.results.store.folder import RESULT_FORMAT as RESULT_FORMAT
from headlab.results.store.folder import Array, Arrays, npz
from headlab.results.store.folder import kind_of as kind_of
from headlab.results.store.folder import read_arrays as read_arrays
from headlab.results.store.importance import (
    NEURONS_FOLDER,
    keep_importance,
    read_importance,
)
from headlab.results.store.labels import MAX_NAME_LENGTH as MAX_NAME_LENGTH
from headlab.results.store.labels import MAX_NOTE_LENGTH as MAX_NOTE_LENGTH
from headlab.results.store.labels import NO_LABEL as NO_LABEL
from headlab.results.store.labels import ResultLabel as ResultLabel
from headlab.results.store.labels import has_labels, read_label, write_label
from headlab.results.store.places import NO_PLACES as NO_PLACES
from headlab.results.store.places import FilePlaces as FilePlaces
from headlab.results.store.places import note_places, noted_places
from headlab.results.store.removal import bytes_in as bytes_in
from headlab.results.store.removal import reason_to_stay as reason_to_stay
from headlab.results.store.removal import remove_folder, sweep_removed
from headlab.tasks import SAVED_FOLDER, Example, Task

if TYPE_CHECKING:  # importing torch takes seconds, and lists of results do not need it
    from headlab.hooks import Model

# Runs, and the store that holds them.

Content = TypeVar("Content")
T = TypeVar("T")
Stamp = tuple[tuple[int, int, int], ...]
# A file written more recently may change again without a new modification time.
SETTLED_NANOSECONDS = 2_000_000_000
RUN_KEY_ARRAY = "run"  # the array of a checkpoint that holds the key of its run
CHECKPOINT_NAMES = ("checkpoint.npz", "checkpoint.safetensors")  # of a method, and of training


@dataclass(frozen=True)
class Listing(Generic[T]):
    """Every readable result of a kind, and a sentence for each one that was skipped."""

    results: tuple[Result[T], ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class StoredRun:
    """The folder of one spec: result, checkpoint, log.

    Attributes:
        folder: Where it is written.
        spec: What it computes.
        on_stored: Called with the run whenever part of it has been stored, and with whether that
            was all.
        demo: The folder of the demo's results, in which a file is read that `folder` lacks; None
            to do without.
    """

    folder: Path
    spec: RunSpec
    on_stored: Callable[[StoredRun, bool], None] = lambda run, finished: None
    demo: Path | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "spec", RunSpec.of(self.spec))

    @property
    def key(self) -> str:
        """sha256 of the spec: the folder's name."""
        return self.spec.key

    @property
    def is_finished(self) -> bool:
        """Whether a result exists, readable or not."""
        return self._path_of("result.npz").exists()

    @property
    def has_begun(self) -> bool:
        """Whether anything of it has been stored."""
        is_in_demo = self.demo is not None and (self.demo / self.key).is_dir()
        return is_in_demo or self.folder.exists()

    def of_spec(self, spec: Mapping[str, Json]) -> StoredRun:
        """The run of another spec in the same store.

        Args:
            spec: The other spec.
        """
        run_spec = RunSpec.of(spec)
        return replace(self, folder=self.folder.parent / run_spec.key, spec=run_spec)

    def _path_of(self, name: str) -> Path:
        """Where a file is read: in the run's own folder, unless only the demo's results have it.

        Args:
            name: Of the file.
        """
        own_path = self.folder / name
        if self.demo is None or os.path.lexists(own_path):
            return own_path
        demo_path = self.demo / self.key / name
        return demo_path if demo_path.exists() else own_path

    def make_folder(self) -> None:
        """Make the folder and write its spec if they are missing.

        A wrong spec is replaced, which is logged.
        """
        path = self.folder / "spec.json"
        try:
            if read_json(path) == self.spec:
                # The process that made the folder may have died before it did this.
                sync_folder(self.folder.parent)
                return
            problem = "another run's"
        except HeadlabError as error:
            problem = str(error) if path.exists() else ""
        write_json(path, self.spec.to_json(), CHOOSE_CACHE)
        if problem:
            self.log(f"spec.json written again: {problem}")

    def result(self, kind: type[T]) -> Result[T] | None:
        """The finished result, or None.

        Args:
            kind: HeadScores, Curve, Report or LearnedGates.

        Raises:
            HeadlabError: If a file exists but is invalid or of another kind.
        """
        if not self.is_finished:
            return None
        result = read_result(self._path_of("result.npz").parent, kind)
        # A process may have been killed between writing the result and this.
        self._sweep()
        return result

    def kept_report(self) -> Report | None:
        """The finished report, or None.

        Also None if the file is invalid, with the reason in the log, so that the report is made
        again.
        """
        report = self._sound("report", lambda: self.result(Report))
        if report is None:
            return None
        return report.record

    def _sound(self, subject: str, reader: Callable[[], Content | None]) -> Content | None:
        """What `reader` reads; None if that fails, with the reason in the log."""
        try:
            return reader()
        except HeadlabError as error:
            self.log(f"{subject} skipped: {error}")
            return None

    def finish(self, record: Record, meta: JsonRecord) -> None:
        """Write the result atomically, then delete the checkpoints."""
        data = pack(record, meta)
        self.make_folder()
        write_atomic(self.folder / "result.npz", data, CHOOSE_CACHE)
        self._sweep()
        self.on_stored(self, True)

    def _sweep(self) -> None:
        """Delete the checkpoints of a finished run; one that cannot be deleted does no harm."""
        for path in (self.folder / name for name in CHECKPOINT_NAMES):
            if not os.path.lexists(path):
                continue
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                with suppress(HeadlabError):  # a cache that is read-only takes no log either
                    self.log(f"{path.name} stays ({error.strerror})")

    def answers(self, digest: str, examples: Sequence[Example]) -> Evaluation | None:
        """Answers under the mask with this digest on the run's examples, or None.

        Also None if the file is damaged or foreign, with the reason in the log, so that the answers
        are made again.
        """
        path = self._path_of(f"{digest}.npz")
        if not os.path.lexists(path):
            return None
        return self._sound(
            f"answers under {digest[:12]}",
            lambda: read_evaluation(path, digest, self.spec, examples),
        )

    def right_answers(self, digest: str) -> Bools | None:
        """Which answers under the mask with this digest are right, bool [answer], or None.

        Also None if the file is damaged or foreign, with the reason in the log.
        """
        path = self._path_of(f"{digest}.npz")
        if not os.path.lexists(path):
            return None
        return self._sound(
            f"answers under {digest[:12]}", lambda: read_right_answers(path, digest, self.spec)
        )

    def keep_answers(self, digest: str, evaluation: Evaluation, units: Ints) -> None:
        """Store a complete evaluation.

        Args:
            units: int [example], answers per example.
        """
        data = pack_evaluation(digest, evaluation, units, self.spec)
        self.make_folder()
        write_atomic(self.folder / f"{digest}.npz", data, CHOOSE_CACHE)
        self.on_stored(self, True)

    def checkpoint(self) -> dict[str, Array] | None:
        """Arrays saved by an interrupted run.

        None, to start over, if the file is missing, damaged or another run's.
        """
        path = self.folder / "checkpoint.npz"

        def read_own_arrays() -> dict[str, Array]:
            arrays = read_arrays(path)
            if str(arrays.pop(RUN_KEY_ARRAY, "")) != self.key:
                raise HeadlabError("checkpoint.npz is another run's", code="checkpoint.other_run")
            return arrays

        if not os.path.lexists(path):
            return None
        return self._sound("checkpoint", read_own_arrays)

    def save(self, arrays: Arrays) -> None:
        """Store arrays as the checkpoint from which the run can resume."""
        self.make_folder()
        data = npz({**arrays, RUN_KEY_ARRAY: np.array(self.key)})
        write_atomic(self.folder / "checkpoint.npz", data, CHOOSE_CACHE)
        self.on_stored(self, False)

    def log(self, line: str) -> None:
        """Append a line to the run's log."""
        append_line(self.folder / "log.txt", line, CHOOSE_CACHE)


ADAPTERS_FOLDER = "adapters"
"""The folder of trained adapters, beside the runs."""
MODELS_FOLDER = "models"
"""The folder of models that a worker has written, beside the runs."""
OTHER_FOLDERS = (ADAPTERS_FOLDER, MODELS_FOLDER, NEURONS_FOLDER, SAVED_FOLDER)
"""Folders beside the runs that hold no results; the last one has the tasks saved on pages."""


class Store:
    """A folder of runs, and perhaps the demo's results below it, which are only read.

    Attributes:
        root: The folder, in which everything is written.
        demo: The folder of the demo's results; None for a store without them.
    """

    def __init__(self, root: str | Path | None = None, *, demo: Path | None = None) -> None:
        """Open a store.

        Args:
            root: Its folder; None for $HEADLAB_CACHE or the usual one.
            demo: The folder of the demo's results, as `demo_results` gives it. A run of one's own
                takes precedence over one of the demo's.
        """
        self.root = default_root() if root is None else as_path("root", root)
        self.demo = demo
        self._seen: dict[tuple[Callable[[Path], object], Path], tuple[Stamp, object]] = {}

    def run(self, spec: Mapping[str, Json]) -> StoredRun:
        """The run of a spec, finished or not.

        One that an earlier version of headlab finished, when it knew the same model by another
        fingerprint, is taken where there is none of today's.
        """
        run_spec = RunSpec.of(spec)
        found_run = StoredRun(self.root / run_spec.key, run_spec, demo=self.demo)
        if found_run.has_begun:
            return found_run
        for former_spec in former_specs(run_spec):
            former_run = found_run.of_spec(former_spec)
            holds_answers = former_spec.kind == ANSWERS_KIND and former_run.has_begun
            if former_run.is_finished or holds_answers:
                return former_run
        return found_run

    def runs_with_answers(self, digest: str) -> list[StoredRun]:
        """Every run that holds answers under the mask with this digest.

        A folder whose spec cannot be read is left out.
        """
        runs = []
        keys: set[str] = set()
        for root in (self.root, self.demo):
            for path in sorted(root.glob(f"*/{digest}.npz")) if root is not None else ():
                with suppress(HeadlabError):
                    run_spec = RunSpec.of(read_json(path.parent / "spec.json"))
                    if run_spec.key not in keys:
                        keys.add(run_spec.key)
                        runs.append(StoredRun(self.root / run_spec.key, run_spec, demo=self.demo))
        return runs

    def folder_of(self, key: str) -> Path:
        """The folder in which the result with this key is, or would be.

        Args:
            key: Of a result.
        """
        own_folder = self.root / key
        if self.demo is None or (own_folder / "result.npz").exists():
            return own_folder
        demo_folder = self.demo / key
        return demo_folder if demo_folder.is_dir() else own_folder

    def note_places(
        self,
        spec: Mapping[str, Json],
        model: Model,
        task: Task | None = None,
        **files: Path | None,
    ) -> None:
        """Note where the files of a result are on this machine.

        A report's commands can then name them.

        Args:
            spec: Spec of the result.
            model: Its model; the folder of one that was read from a folder is noted.
            task: Its task, if any; its declaration and its folder of data are noted.
            files: Further files, by their names in `FilePlaces`.
        """
        paths = {"model": model.checkpoint.folder, **files}
        if task is not None:
            paths |= {"declaration": task.declaration, "data": task.data}
        places = FilePlaces(**paths)
        note_places(self.root, spec, places)

    def places(self, spec: Mapping[str, Json]) -> FilePlaces:
        """Where the files of a result are on this machine, as far as known.

        Args:
            spec: Spec of the result.
        """
        return noted_places(self.root, spec)

    def importance(self, spec: Mapping[str, Json], neurons: Sequence[int]) -> list[Floats] | None:
        """The importance of every neuron, by layer, float64 [neuron]; None if it is not kept.

        Args:
            spec: What it is measured on.
            neurons: Number of neurons of each layer.
        """
        importance = read_importance(self.root, spec, neurons)
        if importance is None and self.demo is not None:
            importance = read_importance(self.demo, spec, neurons)
        return importance

    def keep_importance(self, spec: Mapping[str, Json], importance: Sequence[Floats]) -> None:
        """Keep the importance of every neuron, where the cache can be written.

        Args:
            spec: What it is measured on.
            importance: float64 [neuron], by layer.
        """
        keep_importance(self.root, spec, importance)

    @property
    def has_labels(self) -> bool:
        """Whether any result has a name or a note."""
        return has_labels(self.root)

    def label(self, key: str) -> ResultLabel:
        """The name and note that a person gave to a result; empty ones if none were given.

        Args:
            key: Of the result.
        """
        return read_label(self.root, key)

    def set_label(self, key: str, label: ResultLabel) -> None:
        """Keep a name and a note of a result, which may be one of the demo's.

        Args:
            key: Of the result.
            label: Both; empty ones remove what was given before.

        Raises:
            HeadlabError: The result is gone, a text is too long, or the cache cannot be written.
        """
        if not (self.folder_of(key) / "result.npz").exists():
            raise HeadlabError(
                f"result {key[:12]} is not in the cache any more, so it cannot be named; compute it "
                "again first",
                code="label.result_gone",
            )
        write_label(self.root, key, label)

    def folders(self) -> Iterator[Path]:
        """Run folders in name order, each once: where its result is, one's own first."""
        if self.demo is None:
            yield from _run_folders(self.root)
            return
        names = {folder.name for root in (self.root, self.demo) for folder in _run_folders(root)}
        for name in sorted(names):
            yield self.folder_of(name)

    def remove(self, result: Result[HeadScores]) -> str:
        """Remove finished scores, unless another process uses their folder.

        They are gone in one step, so that a process that is killed meanwhile leaves all or none.

        Args:
            result: The scores.

        Returns:
            Why they stay, in a clause; empty if they are gone.

        Raises:
            HeadlabError: The cache cannot be written.
        """
        if self.is_of_demo(result):
            return "it comes with headlab"
        return remove_folder(self.root / result.key)

    def is_of_demo(self, result: Result[Any]) -> bool:
        """Whether a result is one of the demo's, which are only read."""
        return self.demo is not None and result.folder.parent == self.demo

    def sweep(self) -> None:
        """Delete what removals have left that were killed before they were done."""
        sweep_removed(self.root)

    def scan(self, players: str | None = "") -> Listing[HeadScores]:
        """Read every score of heads; also names the folders whose kind cannot be told.

        Args:
            players: Of what else the scores are, as `spec.players` says it; None for all scores.
        """
        return self.listing(HeadScores, players)

    def curves(self, players: str | None = "") -> Listing[Curve]:
        """Read every curve of heads; `players` as in `scan`."""
        return self.listing(Curve, players)

    def reports(self, players: str | None = "") -> Listing[Report]:
        """Read every report of heads; `players` as in `scan`."""
        return self.listing(Report, players)

    def gates(self) -> Listing[LearnedGates]:
        """Read all learned gates."""
        return self.listing(LearnedGates)

    def listing(self, kind: type[T], players: str | None = "") -> Listing[T]:
        """Every finished result of a kind.

        A damaged, foreign or older folder gives a sentence instead.

        Args:
            kind: Of the records.
            players: What scores, curves and reports are of, as `spec.players` says it; empty for
                heads, so that nobody takes other players for heads; None for all.
        """
        results: list[Result[T]] = []
        problems: list[str] = []
        reader = cast("Callable[[Path], Result[T]]", _READERS[kind])
        for folder in self.folders():
            if not (folder / "result.npz").exists() and (folder / "spec.json").exists():
                continue  # started but not finished, which is not a problem
            kind_name = self._read(_kind, folder)
            if kind_name == codec_of(kind).kind or (not kind_name and kind is HeadScores):
                try:
                    result = self._read(reader, folder)
                except HeadlabError as error:
                    problems.append(f"skipped: {error}")
                    continue
                if players is None or _players_of(result.record) in (None, players):
                    results.append(result)
        return Listing(tuple(results), tuple(problems))

    def _read(self, reader: Callable[[Path], Content], folder: Path) -> Content:
        """The contents of a folder, cached until its files change."""
        stamp = _stamp(folder)
        cache_entry = self._seen.get((reader, folder))
        if cache_entry is not None and cache_entry[0] == stamp:
            return cast(Content, cache_entry[1])
        content = reader(folder)
        if all(time.time_ns() - modified_ns > SETTLED_NANOSECONDS for _, modified_ns, _ in stamp):
            self._seen[reader, folder] = stamp, content
        return content

    def find(
        self,
        *,
        model: str | None = None,
        task: str | None = None,
        method: str | None = None,
        language: str | None = None,
    ) -> list[Result[HeadScores]]:
        """Results whose model name, task name, method and language are as given (None: any)."""
        results = self.scan().results
        return [result for result in results if is_of(result, model, task, method, language)]


def store_with_demo(root: Path | None = None) -> Store:
    """The store that commands, worker and pages use: one's own folder, and the demo's results.

    Args:
        root: One's own folder; None for $HEADLAB_CACHE or the usual one.
    """
    return Store(root, demo=demo_results())


def _run_folders(root: Path) -> Iterator[Path]:
    """The folders of runs in a folder, in name order."""
    if not root.is_dir():
        return
    for folder in sorted(root.iterdir()):
        if folder.is_dir() and not folder.name.startswith(".") and folder.name not in OTHER_FOLDERS:
            yield folder


def _stamp(folder: Path) -> Stamp:
    """Inode, modification time and size of each file of a result; missing files are skipped."""
    stats = []
    for name in ("spec.json", "result.npz"):
        with suppress(OSError):  # the reader reports it
            stats.append((folder / name).stat())
    return tuple((status.st_ino, status.st_mtime_ns, status.st_size) for status in stats)


# One function per kind, since what was read is cached by function and folder.
_READERS: Mapping[type, Callable[[Path], object]] = {
    kind: partial(read_result, kind=kind) for kind in CODECS
}


def _kind(folder: Path) -> str:
    """The kind of result in a folder; empty if its spec cannot be read, which `scan` reports."""
    try:
        return kind_of(read_json(folder / "spec.json"))
    except HeadlabError:
        return ""


def _players_of(record: object) -> str | None:
    """What scores, a curve or a report are of, empty for heads; None for other results."""
    return record.spec.players if isinstance(record, HeadScores | Curve | Report) else None


def is_of(
    result: Result[HeadScores],
    model: str | None,
    task: str | None,
    method: str | None,
    language: str | None,
) -> bool:
    """Whether a result has this model, task, method and language (None: any)."""
    scores = result.record
    wanted_names = (model, task, method, language)
    names = (scores.spec.model.name, scores.spec.task.name, scores.method, scores.language)
    return all(
        requested_name is None or requested_name == name
        for requested_name, name in zip(wanted_names, names, strict=True)
    )
