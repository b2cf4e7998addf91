"""Tasks with one thing wrong: declared ones, data of built-in ones, and uploads."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import count
from pathlib import Path

from support.fuzzing import spoil
from support.saved_models import save_family

import headlab
from bad_inputs.case import Answer, BadInput, answer_to, process_answer
from bad_inputs.task_faults import (
    FIELD_VALUES,
    FILE_FAULTS,
    JSON_VALUES,
    SPECIAL,
    declarations_with_odd_values,
    fields_of,
)
from bad_inputs.task_samples import DECLARATION, DECLARED_SAMPLES, SAMPLES, TaskSample
from headlab.hooks import Model
from headlab.tasks import Draft, Upload, save_task
from headlab.tasks.own import format_of

SIZE = 4  # examples that a model answers
LANGUAGES_READ = 2
SYSTEMATIC_SHARE = 0.75  # of the inputs, until all are used up; the others are spoiled at random


def inputs(folder: Path, seed: int) -> Iterator[BadInput]:
    """Yield inputs without end.

    Args:
        folder: What may be written to; an input gets a folder of its own in it.
        seed: What the inputs are drawn from.
    """
    rng = random.Random(f"task files {seed}")
    kinds_of_faults = _systematic_inputs()
    for faults in kinds_of_faults:
        rng.shuffle(faults)
    for number in count():
        input_folder = folder / f"input-{number}"
        faults = kinds_of_faults[number % len(kinds_of_faults)]
        if faults and rng.random() < SYSTEMATIC_SHARE:
            yield faults.pop()(input_folder)
        elif rng.random() < 0.5:
            yield _task_input(input_folder, *_spoiled_sample(rng))
        else:
            yield _upload_input(input_folder, *_spoiled_draft(rng))


def sample_answers(folder: Path) -> dict[str, Answer]:
    """What headlab answers to the samples while nothing is wrong with them, by title.

    Args:
        folder: What may be written to.
    """
    answers = {}
    for sample in SAMPLES:
        answers[sample.title] = _attempt_task(folder / "sample", sample)
    for upload in UPLOADS:
        answers[f"upload of {upload.title}"] = _attempt_upload(folder / "sample", upload)
    return answers


InputOfFolder = Callable[[Path], BadInput]  # makes an input, of the folder that it gets


def _systematic_inputs() -> list[list[InputOfFolder]]:
    """Every fault of every sample once: a list for each kind of fault."""
    tasks = (
        _file_faults(),
        _field_faults(),
        _path_faults(),
        _declaration_faults(),
        _file_name_faults(),
    )
    drafts = (_upload_faults(), _draft_faults())
    kinds: list[list[InputOfFolder]] = []
    for task_faults in tasks:
        kinds.append(
            [partial(_task_input, wrong=wrong, sample=sample) for wrong, sample in task_faults]
        )
    for draft_faults in drafts:
        kinds.append(
            [partial(_upload_input, wrong=wrong, sample=sample) for wrong, sample in draft_faults]
        )
    return kinds


# A task that is read from its files, and answered by a tiny model.


def _task_input(input_folder: Path, wrong: str, sample: TaskSample) -> BadInput:
    files = {name: data.hex() for name, data in sample.files.items()}
    content = json.dumps([sample.title, sample.task, sample.data, dict(sample.special), files])
    return BadInput(
        f"{sample.title}: {wrong}",
        content.encode("utf-8", "surrogatepass"),
        partial(_attempt_task, input_folder, sample),
        partial(_attempt_command, input_folder, sample),
    )


def _attempt_task(input_folder: Path, sample: TaskSample) -> Answer:
    with _sample_files(input_folder, sample):
        return answer_to(partial(_read, input_folder, sample))


def _read(input_folder: Path, sample: TaskSample) -> None:
    """Read the first languages of a task, and let a model answer it if there is one for it."""
    data = input_folder / sample.data if sample.data else None
    task = headlab.task(_task_argument(input_folder, sample), data=data)
    languages = task.languages[:LANGUAGES_READ]
    for language in languages:
        task.examples(language)
    if sample.family:
        model = _model(input_folder.parent, sample.family)
        headlab.evaluate(model, task.with_languages(languages), size=SIZE)


def _attempt_command(input_folder: Path, sample: TaskSample) -> Answer:
    family = sample.family or "bert-tokens"
    model = _model_folder(input_folder.parent, family)
    data = ["--data", str(input_folder / sample.data)] if sample.data else []
    arguments = [
        "evaluate",
        "--model",
        str(model),
        "--task",
        _task_argument(input_folder, sample),
        *data,
        "--size",
        str(SIZE),
    ]
    with _sample_files(input_folder, sample):
        return process_answer([*arguments, "--device", "cpu"], input_folder)


def _task_argument(input_folder: Path, sample: TaskSample) -> str:
    return str(input_folder / sample.task) if sample.is_declared else sample.task


@contextmanager
def _sample_files(input_folder: Path, sample: TaskSample) -> Iterator[None]:
    """Write the files of a sample, and remove them when the block ends."""
    input_folder.mkdir(parents=True)
    try:
        for name, data in sample.files.items():
            path = input_folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            kind = sample.special.get(name)
            if kind is None:
                path.write_bytes(data)
            else:
                _put_special(path, kind, data)
        yield
    finally:
        shutil.rmtree(input_folder)


def _put_special(path: Path, kind: str, data: bytes) -> None:
    """Put something else where a file belongs.

    Args:
        path: Of the file.
        kind: One of `SPECIAL`.
        data: Content of the file.
    """
    targets = {
        "a link to nowhere": "nowhere",
        "a link to itself": path.name,
        "a link to its folder": ".",
        "a link to /dev/zero": "/dev/zero",
        "a link to /dev/null": "/dev/null",
    }
    if kind in targets:
        path.symlink_to(targets[kind])
    elif kind in ("a folder", "a full folder"):
        path.mkdir()
        if kind == "a full folder":
            (path / path.name).write_bytes(data)
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a link to a pipe":
        os.mkfifo(path.with_name("pipe"))
        path.symlink_to("pipe")
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as listening:
            os.chdir(path.parent)  # the path of a socket must be short
            listening.bind(path.name)
            os.chdir("..")
    elif kind == "unreadable":
        path.write_bytes(data)
        path.chmod(0)


@cache
def _model_folder(folder: Path, family: str) -> Path:
    return save_family(folder / f"model-{family}", family)


@cache
def _model(folder: Path, family: str) -> Model:
    return headlab.load(_model_folder(folder, family), device="cpu")


# What is wrong, and the sample with that fault.
SampleFaults = Iterator[tuple[str, TaskSample]]


def _with_file(sample: TaskSample, name: str, data: bytes) -> TaskSample:
    return replace(sample, files={**sample.files, name: data})


def _file_faults() -> SampleFaults:
    for sample in SAMPLES:
        for name, data in sample.files.items():
            for wrong, fault in FILE_FAULTS.items():
                faulty = fault(data)
                if faulty != data:
                    yield f"{wrong}, {name}", _with_file(sample, name, faulty)


def _field_faults() -> SampleFaults:
    """Put another value in one field: every one of the first line of JSON, the first 12 of tables."""
    for sample in SAMPLES:
        data = sample.files[sample.data_file]
        if sample.data_file.endswith(".jsonl"):
            first_row = json.loads(data.split(b"\n")[0])
            for key in first_row:
                for value in JSON_VALUES:
                    values = {name: json.dumps(entry) for name, entry in first_row.items()}
                    values[key] = value
                    fields = ", ".join(
                        f"{json.dumps(name)}: {text}" for name, text in values.items()
                    )
                    line = b"{" + fields.encode("utf-8", "surrogatepass") + b"}\n"
                    changed_data = line + data.split(b"\n", 1)[1]
                    yield (
                        f"{key} = {value[:40]}",
                        _with_file(sample, sample.data_file, changed_data),
                    )
            continue
        for start, end in fields_of(data)[:12]:
            for number, value in enumerate(FIELD_VALUES):
                if (start + number) % 3 == 0:  # a third of them is enough
                    changed_data = data[:start] + value + data[end:]
                    wrong = f"{value[:20]!r} for {data[start:end][:20]!r}"
                    yield wrong, _with_file(sample, sample.data_file, changed_data)


def _path_faults() -> SampleFaults:
    for sample in SAMPLES:
        for name in sample.files:
            for kind in SPECIAL:
                yield f"{kind} for {name}", replace(sample, special={name: kind})


ODD_FILE_NAMES = (
    "日本.dev",
    "de.DEV",
    "de.validation",
    "de",
    "dev",
    "..dev",
    "de..dev",
    "de.dev.dev",
    "-.dev",
    "_.dev",
    "1.dev",
    "de .dev",
    "de\n.dev",
    "d" * 21 + ".dev",
    "d" * 200 + ".dev",
    "zh-Hans-CN.dev",
    "de@x.dev",
    "DE.dev",
    "de.dev ",
    "\u202ede.dev",
    "é.dev",
    "e\u0301.dev",
    "*.dev",
    "[a].dev",
    "{language}.dev",
    "meta.dev",
    "README.dev",
    "de.train",
    "de.test",
    "en-de.dev",
    "en-.dev",
    "-de.dev",
    "zh-zh.dev",
    "en-EN.dev",
)


def _file_name_faults() -> SampleFaults:
    """Call the file with examples so that its name says another language or split, or none."""
    for sample in SAMPLES:
        folder, _, name = sample.data_file.rpartition("/")
        suffix = name.rpartition(".")[2]
        for odd_name in ODD_FILE_NAMES:
            path = f"{folder}/{odd_name}.{suffix}".lstrip("/")
            files = {}
            for file_path, data in sample.files.items():
                files[path if file_path == sample.data_file else file_path] = data
            yield f"its file is called {odd_name!r:.40}", replace(sample, files=files)


def _declaration_faults() -> SampleFaults:
    for wrong, number, declaration in declarations_with_odd_values():
        yield wrong, _with_file(DECLARED_SAMPLES[number], DECLARATION, declaration)


def _spoiled_sample(rng: random.Random) -> tuple[str, TaskSample]:
    sample = rng.choice(SAMPLES)
    name = rng.choice(sorted(sample.files))
    return f"{name} spoiled", _with_file(sample, name, spoil(rng, [sample.files[name]]))


# Files that are uploaded and saved as a task.


@dataclass(frozen=True)
class UploadSample:
    """What the page sends.

    Attributes:
        title: What it is, in a few words.
        file_name: Of the upload.
        data: Content of the file.
        columns: By their meaning.
        language: Of the file.
        fields: Other fields of `Draft`, in place of the usual ones.
    """

    title: str
    file_name: str
    data: bytes
    columns: Mapping[str, str]
    language: str | None = "de"
    fields: Mapping[str, object] = field(default_factory=dict)

    def draft(self) -> Draft:
        """The draft of a task, as the page makes it."""
        upload = Upload(self.file_name, self.data, self.language)
        usual_fields: dict[str, object] = {
            "name": "mine",
            "columns": self.columns,
            "files": (upload,),
            "share": 0.5,
        }
        return Draft(format=format_of(upload), **{**usual_fields, **self.fields})  # type: ignore[arg-type]


def _uploads() -> Iterator[UploadSample]:
    """The declared samples of one file, as uploads: their columns are those of the declaration."""
    for sample in DECLARED_SAMPLES[1:9]:
        lines = sample.files[DECLARATION].decode().partition("[columns]\n")[2].splitlines()
        columns = {}
        for line in lines:
            meaning, _, column = line.partition(" = ")
            columns[meaning] = json.loads(column)
        yield UploadSample(sample.title, sample.data_file, sample.files[sample.data_file], columns)


UPLOADS = (*_uploads(),)


def _upload_input(input_folder: Path, wrong: str, sample: UploadSample) -> BadInput:
    content = repr(sample).encode("utf-8", "surrogatepass")
    attempt = partial(_attempt_upload, input_folder, sample)
    return BadInput(
        f"upload of {sample.title}: {wrong}",
        content,
        attempt,
        partial(_attempt_uploaded, input_folder, sample),
    )


def _attempt_upload(input_folder: Path, sample: UploadSample) -> Answer:
    try:
        return answer_to(partial(_save, input_folder, sample))
    finally:
        shutil.rmtree(input_folder, ignore_errors=True)


def _save(input_folder: Path, sample: UploadSample) -> None:
    """Save an upload, and read all of what was saved."""
    draft = sample.draft()
    saved_task = save_task(draft, input_folder)
    task = headlab.task(input_folder / "tasks" / draft.name / f"{draft.name}.toml")
    for language, split in saved_task.sizes:
        task.examples(language, split)


def _attempt_uploaded(input_folder: Path, sample: UploadSample) -> Answer:
    """Save an upload, and give its data to a command as the data of a declared task.

    An upload that headlab refuses is given to the command too.
    """
    refusal = answer_to(partial(_save, input_folder, sample))
    shutil.rmtree(input_folder, ignore_errors=True)
    titles = [upload.title for upload in UPLOADS]
    declared_sample = DECLARED_SAMPLES[1 + titles.index(sample.title)]
    answer = _attempt_command(
        input_folder, _with_file(declared_sample, declared_sample.data_file, sample.data)
    )
    return answer if answer.words else refusal


def _upload_faults() -> Iterator[tuple[str, UploadSample]]:
    for sample in UPLOADS:
        for wrong, fault in FILE_FAULTS.items():
            faulty = fault(sample.data)
            if faulty != sample.data:
                yield wrong, replace(sample, data=faulty)


DRAFT_NAMES = (
    "",
    " ",
    ".",
    "..",
    "../x",
    "x/y",
    "x" * 61,
    "x" * 5000,
    "日本",
    "a\0b",
    "\ud800",
    "-x",
    "_x",
    "xnli",
    "intents",
    "treebank",
    "CON",
    "a.b",
    "\n",
)
FILE_NAMES = (
    "",
    "csv",
    ".csv",
    "x",
    "x.xlsx",
    "x.csv.gz",
    "x.CSV",
    "x.txt",
    "x.conll",
    "x.tsv",
    "x.jsonl",
    "../../x.csv",
    "/etc/passwd.csv",
    "x" * 5000 + ".csv",
    "\0.csv",
    "\ud800.csv",
    "\x1b[2J.csv",
    "a\nb.csv",
    "x.csv.",
    "x.csv/",
    "x.conllu",
    "x.ndjson",
)
DRAFT_LANGUAGES = (
    None,
    "",
    " ",
    "de ",
    "../de",
    "de.dev",
    "日本",
    "d" * 21,
    "1",
    "-",
    "a\0",
    "\ud800",
    "DE",
    "zh-Hans-CN",
)
DRAFT_COLUMNS: tuple[Mapping[str, str], ...] = (
    {},
    {"text": ""},
    {"text": "review"},
    {"text": "review", "label": "review"},
    {"text": "none", "label": "stars"},
    {"": "review"},
    {"txt": "review"},
    {"text": "\ud800", "label": "stars"},
    {"text": "a\nb", "label": "stars"},
    {"text": '"', "label": "\\"},
    {"words": "1", "labels": "9"},
    {"words": "FORM", "labels": "NONE"},
    {"text": "review", "label": "stars", "split": "stars"},
    {"text": "review", "label": "stars", "language": "stars"},
    {"text": "review", "label": "stars", "group": "review"},
    {"text": "review", "label": "stars", "id": "stars"},
    {"text": "x" * 5000, "label": "stars"},
    {"columns": "x"},
)
DRAFT_FIELDS: Mapping[str, tuple[object, ...]] = {
    "name": DRAFT_NAMES,
    "share": (None, 0.0, 1.0, -1.0, 2.0, 1e-300, float("nan"), float("inf")),
    "division": (-1, 0, 1, 3, 10**30),
    "splits": (
        {"dev": "x"},
        {"dev": ""},
        {"dev": "test"},
        {"x": "y"},
        {"dev": "a/b"},
        {"dev": "\ud800"},
        {"dev": "\n"},
    ),
    "aligned": (True,),
    "columns": DRAFT_COLUMNS,
    "files": ((),),
}


def _draft_faults() -> Iterator[tuple[str, UploadSample]]:
    for sample in UPLOADS:
        for name, values in DRAFT_FIELDS.items():
            for value in values:
                yield f"{name} = {value!r:.60}", replace(sample, fields={name: value})
        for file_name in FILE_NAMES:
            yield f"the file is called {file_name!r:.60}", replace(sample, file_name=file_name)
        for language in DRAFT_LANGUAGES:
            yield f"the language is {language!r:.60}", replace(sample, language=language)


def _spoiled_draft(rng: random.Random) -> tuple[str, UploadSample]:
    sample = rng.choice(UPLOADS)
    return "spoiled", replace(sample, data=spoil(rng, [sample.data]))
