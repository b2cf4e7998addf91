"""Task files and declarations with one thing wrong: by the path of a declaration, as data of a task, or uploaded."""

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

from support.fuzzing import spoiled
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
SYSTEMATIC_SHARE = 0.75  # of the inputs, as long as there are any; the others are spoiled at random


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
    """What headlab answers to the samples as they are, before anything is wrong with them: by what they are.

    Args:
        folder: What may be written to.
    """
    return {
        **{sample.title: _attempt_task(folder / "sample", sample) for sample in SAMPLES},
        **{
            f"upload of {sample.title}": _attempt_upload(folder / "sample", sample)
            for sample in UPLOADS
        },
    }


InputOfFolder = Callable[[Path], BadInput]  # for the folder of its own


def _systematic_inputs() -> list[list[InputOfFolder]]:
    """Every fault of every sample once, by the kind of fault."""
    tasks = (
        _file_faults(),
        _field_faults(),
        _path_faults(),
        _declaration_faults(),
        _file_name_faults(),
    )
    drafts = (_upload_faults(), _draft_faults())
    return [
        *(
            [partial(_task_input, wrong=wrong, sample=sample) for wrong, sample in faults]
            for faults in tasks
        ),
        *(
            [partial(_upload_input, wrong=wrong, sample=sample) for wrong, sample in faults]
            for faults in drafts
        ),
    ]


# A task that is read from its files, and answered by a tiny model.


def _task_input(input_folder: Path, wrong: str, sample: TaskSample) -> BadInput:
    content = json.dumps(
        [
            sample.title,
            sample.task,
            sample.data,
            {**sample.special},
            {k: v.hex() for k, v in sample.files.items()},
        ]
    )
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
    task = headlab.task(
        _task_argument(input_folder, sample),
        data=input_folder / sample.data if sample.data else None,
    )
    languages = task.languages[:LANGUAGES_READ]
    for language in languages:
        task.examples(language)
    if sample.family:
        headlab.evaluate(
            _model(input_folder.parent, sample.family), task.restricted(languages), size=SIZE
        )


def _attempt_command(input_folder: Path, sample: TaskSample) -> Answer:
    family = sample.family or "bert-tokens"
    model = _model_folder(input_folder.parent, family)
    data = ["--data", str(input_folder / sample.data)] if sample.data else []
    words = [
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
        return process_answer([*words, "--device", "cpu"], input_folder)


def _task_argument(input_folder: Path, sample: TaskSample) -> str:
    return str(input_folder / sample.task) if sample.is_declared else sample.task


@contextmanager
def _sample_files(input_folder: Path, sample: TaskSample) -> Iterator[None]:
    """The files of a sample, as long as the block runs."""
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
        kind: One of `SPECIAL`.
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
    """Another value in one field: of JSON in every place of the first line, of tables in every field."""
    for sample in SAMPLES:
        data = sample.files[sample.data_file]
        if sample.data_file.endswith(".jsonl"):
            first_row = json.loads(data.split(b"\n")[0])
            for key in first_row:
                for value in JSON_VALUES:
                    fields = ", ".join(
                        f"{json.dumps(name)}: {value if name == key else json.dumps(first_row[name])}"
                        for name in first_row
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
                if (start + number) % 3 == 0:  # a third of them is many
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
    """The file with examples under a name that tells another language or split, or nothing."""
    for sample in SAMPLES:
        folder, _, name = sample.data_file.rpartition("/")
        suffix = name.rpartition(".")[2]
        for odd_name in ODD_FILE_NAMES:
            path = f"{folder}/{odd_name}.{suffix}".lstrip("/")
            files = {
                path if name_of_file == sample.data_file else name_of_file: data
                for name_of_file, data in sample.files.items()
            }
            yield f"its file is called {odd_name!r:.40}", replace(sample, files=files)


def _declaration_faults() -> SampleFaults:
    for wrong, number, declaration in declarations_with_odd_values():
        yield wrong, _with_file(DECLARED_SAMPLES[number], DECLARATION, declaration)


def _spoiled_sample(rng: random.Random) -> tuple[str, TaskSample]:
    sample = rng.choice(SAMPLES)
    name = rng.choice(sorted(sample.files))
    return f"{name} spoiled", _with_file(sample, name, spoiled(rng, [sample.files[name]]))


# Files that are uploaded and saved as a task.


@dataclass(frozen=True)
class UploadSample:
    """What the page sends.

    Attributes:
        columns: By their meaning.
        fields: Others of `Draft`, in place of the usual ones.
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
        columns = {
            meaning: json.loads(column)
            for meaning, _, column in (line.partition(" = ") for line in lines)
        }
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
    """Save an upload, and let a command read it; what is refused is given to the command as a declared task."""
    refusal = answer_to(partial(_save, input_folder, sample))
    shutil.rmtree(input_folder, ignore_errors=True)
    declared_sample = DECLARED_SAMPLES[
        1 + next(i for i, upload in enumerate(UPLOADS) if upload.title == sample.title)
    ]
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
    return "spoiled", replace(sample, data=spoiled(rng, [sample.data]))
