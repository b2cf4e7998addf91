"""Every printed command of a real report, run in another folder, gives the report's figures."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path

import pytest
import torch
import transformers as hf
from support.cached_scores import made_scores
from support.printed_commands import command_arguments, commands_in
from support.saved_models import letter_tokenizer, save_model
from support.tiny_models import SMALL_OPTIONS

from headlab.cli.run import main
from headlab.core import Table
from headlab.jobs.finetune import FinetuneJob
from headlab.jobs.score import ScoreJob
from headlab.masks import load_mask, seen
from headlab.report.commands import again
from headlab.results import FilePlaces, Store
from headlab.results.store.places import FOLDER, note_places
from headlab.tasks import read_label_map, write_label_map
from headlab.tasks.labels import PLACEHOLDER

LABELS = ("it's so", "no, never", "a = b")
CLASSES = ("first, of three", "second = 2", '"third"')
LABEL_MAP = dict(zip(LABELS, (CLASSES[2], CLASSES[0], CLASSES[1]), strict=True))
LANGUAGES = ("de", "th")
SIZES = {"train": 12, "dev": 16, "test": 18}


def bash_words(line: str) -> list[str]:
    """The arguments of a `headlab` command, as bash takes them from the line."""
    script = f"headlab() {{ printf '%s\\0' \"$@\"; }}; {line}"
    stdout = subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout
    return stdout.decode().split("\0")[:-1]


def notes_in(path: Path) -> list[str]:
    """The notes of a report."""
    text = path.read_text(encoding="utf-8")
    return [unescape(note) for note in re.findall('<p class="note"><bdi>(.*?)</bdi>', text)]


def save_three_classes(folder: Path) -> None:
    """Save a tiny classifier; the names of its classes are none of the task's labels."""
    options = SMALL_OPTIONS | {
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "num_labels": len(LABELS),
        "id2label": dict(enumerate(CLASSES)),
        "label2id": {name: number for number, name in enumerate(CLASSES)},
    }
    config = hf.BertConfig(**options)
    torch.manual_seed(0)
    module = hf.BertForSequenceClassification(config)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.5)
    save_model(folder, module, letter_tokenizer())


def declare(folder: Path, name: str = "mine") -> Path:
    """Write a declared task, with a file for each language and split; gives the declaration."""
    folder.mkdir(parents=True)
    for language in LANGUAGES:
        for split, size in SIZES.items():
            lines = ["text\tlabel"]
            for number in range(size):
                label = LABELS[number % len(LABELS)]
                lines.append(f"{language} {split} text {number * 7 % 13}\t{label}")
            file = folder / f"{language}.{split}.tsv"
            file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    declaration = folder / f"{name}.toml"
    declaration.write_text(
        f'name = "{name}"\nformat = "tsv"\nfiles = "{{language}}.{{split}}.tsv"\n'
        '[columns]\ntext = "text"\nlabel = "label"\n',
        encoding="utf-8",
    )
    return declaration


@dataclass(frozen=True)
class PrintedReport:
    """A report, and the results that it shows.

    Attributes:
        folder: The folder that the results were made in.
        commands: The commands that the report prints.
        masks: The files of the masks.
    """

    folder: Path
    commands: tuple[str, ...]
    masks: tuple[Path, ...]

    @property
    def store(self) -> Store:
        return Store(self.folder / "cache")


FRONT_FLAGS = ["--method", "gradient", "--size", "10", "--test-size", "10", "--points", "3"]
FRONT_FLAGS += ["--within", "60", "--by", "estimate"]
SCORE_FLAGS = ["--method", "shapley", "-o", "samples=8", "-o", "target=none", "--size", "12"]


@pytest.fixture(scope="module")
def printed_report(tmp_path_factory) -> Iterator[PrintedReport]:
    """A report of results of every kind, printed in another folder than that of the results.

    The results are of a task that is named by its path, with a label map.
    """
    folder = tmp_path_factory.mktemp("Lena's results")
    save_three_classes(folder / "my models" / "tiny")
    declare(folder / "Aufgaben für uns")
    model_and_task = ["--model", str(folder / "my models" / "tiny")]
    model_and_task += ["--task", "Aufgaben für uns/mine.toml"]
    with_labels = [*model_and_task, "--label-map", write_label_map(LABEL_MAP)]
    german = ["--languages", "de"]
    other_run = ["--seed", "2", "--ablation", "mean"]
    curve_flags = ["--method", "gradient", "--dev-size", "12", "--size", "10", "--points", "3"]
    gate_flags = ["--language", "de", "--weight", "0.125", "-o", "steps=3"]
    prune = ["prune", *with_labels, "--method", "shapley", *german, "--rule", "bottom"]
    commands = [
        ["score", *with_labels, *SCORE_FLAGS, "--seed", "1"],
        ["score", *with_labels, *SCORE_FLAGS, *other_run, *german],
        ["score", *with_labels, *SCORE_FLAGS, "-o", "estimand=shapley", *german],
        ["curve", *with_labels, *curve_flags],
        ["experiment", "heads", *with_labels, *SCORE_FLAGS],
        ["front", *with_labels, *FRONT_FLAGS, "--out", "masks/front ü.json"],
        ["gates", *with_labels, *gate_flags, "--out", "masks"],
        ["roles", *model_and_task, "--language", "de", "--size", "8"],
        [*prune, *other_run, "--k", "2", "--out", "masks/its 'best'.json"],
        [*prune, "--seed", "1", "--k", "1", "--size", "9", "--out", "masks/one.json"],
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("HEADLAB_CACHE", raising=False)
        Path("cache").mkdir()  # a folder of this name is where results go
        for command in commands:
            assert main(command) == 0, command
        (folder / "elsewhere").mkdir()
        patch.chdir(folder / "elsewhere")
        store = Store(folder / "cache")
        keys = [path.name for path in store.folders() if (path / "result.npz").exists()]
        masks = sorted((folder / "masks").glob("*.json"))
        report = ["report", *keys, *map(str, masks), "--cache", str(store.root)]
        assert main([*report, "--out", "report.html"]) == 0
        yield PrintedReport(folder, tuple(commands_in(Path("report.html"))), tuple(masks))


@pytest.mark.slow
def test_reported_20_every_command_of_a_report_runs_as_printed(
    printed_report, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADLAB_CACHE", raising=False)
    Path("cache").mkdir()
    names = [bash_words(line)[0] for line in printed_report.commands]
    assert {*names} == {
        "score",
        "curve",
        "experiment",
        "front",
        "gates",
        "roles",
        "prune",
        "evaluate",
        "shrink",
    }
    reported_masks = {path: load_mask(path) for path in printed_report.masks}
    for line in printed_report.commands:
        arguments = bash_words(line)
        is_evaluation = arguments[0] == "evaluate"
        if is_evaluation:
            arguments.append("--json")
        capsys.readouterr()
        assert main(arguments) == 0, (line, capsys.readouterr().err)
        if not is_evaluation:
            continue
        figures = json.loads(capsys.readouterr().out)["languages"]
        mask = reported_masks[Path(arguments[arguments.index("--mask") + 1])]
        for evaluation in seen(mask):
            if evaluation.split == "test":
                accuracy = figures[evaluation.language]["accuracy"]
                assert accuracy == pytest.approx(evaluation.figure["accuracy"])
    new_store = Store(tmp_path / "cache")
    reported_store = printed_report.store
    keys = {path.name for path in new_store.folders()}
    assert {path.name for path in reported_store.folders()} <= keys
    assert hashes_in(reported_store).items() <= hashes_in(new_store).items()
    assert tables_in(reported_store).items() <= tables_in(new_store).items()
    mask_paths = [*Path().glob("*.json"), *Path("gates").glob("*.json")]
    digests = {path.name: load_mask(path).digest for path in mask_paths}
    assert digests == {path.name: mask.digest for path, mask in reported_masks.items()}


def hashes_in(store: Store) -> dict[str, str]:
    """Hashes of the values of all scores, curves and gates by their keys."""
    results = [*store.scan().results, *store.curves().results, *store.gates().results]
    return {result.key: result.record.values_sha256() for result in results}


def tables_in(store: Store) -> dict[str, tuple[Table, ...]]:
    """The tables of all reports by their keys."""
    return {result.key: result.record.tables for result in store.reports().results}


def test_reported_20_the_path_of_a_task_that_has_no_note_is_given_to_the_report(
    printed_report, tmp_path, monkeypatch
):
    """As with results that an earlier version stored, or that came from another machine."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(
        printed_report.store.root, tmp_path / "cache", ignore=shutil.ignore_patterns(FOLDER)
    )
    keys = [result.key for result in Store(tmp_path / "cache").scan().results]
    assert main(["report", *keys, "--out", "without.html"]) == 0
    (note,) = {text for text in notes_in(Path("without.html")) if "FILE.toml" in text}
    assert "mine" in note
    declaration = printed_report.folder / "Aufgaben für uns" / "mine.toml"
    assert main(["report", *keys, "--out", "with.html", "--task", str(declaration)]) == 0
    assert not any("FILE.toml" in text for text in notes_in(Path("with.html")))
    for line in commands_in(Path("with.html")):
        _, arguments = command_arguments(line)
        assert arguments["task"] == str(declaration)


def test_reported_20_a_report_can_leave_paths_out(printed_report, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(
        "HEADLAB_TASKS", str(printed_report.folder / "Aufgaben für uns" / "mine.toml")
    )
    items = [
        *(result.key for result in printed_report.store.scan().results),
        *map(str, printed_report.masks),
    ]
    assert (
        main(["report", *items, "--cache", str(printed_report.store.root), "--out", "with.html"])
        == 0
    )
    assert (
        main(
            [
                "report",
                *items,
                "--cache",
                str(printed_report.store.root),
                "--out",
                "without.html",
                "--no-paths",
            ]
        )
        == 0
    )
    model = str(printed_report.folder / "my models" / "tiny")  # the name that it has in the results
    for name, has_paths in (("with.html", True), ("without.html", False)):
        arguments = {word for line in commands_in(Path(name)) for word in bash_words(line)} - {
            model
        }
        assert any(str(printed_report.folder) in word for word in arguments) == has_paths
    assert any("give its path in place of mine" in note for note in notes_in(Path("without.html")))
    assert not any(
        str(printed_report.folder) in note.replace(model, "")
        for note in notes_in(Path("without.html"))
    )


def test_reported_20_a_moved_task_is_not_named_by_its_old_path(printed_report, tmp_path):
    store = Store(tmp_path)
    (result, *_) = printed_report.store.scan().results
    spec = result.record.spec
    old_path = tmp_path / "gone.toml"
    old_path.touch()
    note_places(store.root, spec, FilePlaces(declaration=old_path))
    assert store.places(spec).declaration == old_path
    old_path.unlink()
    assert store.places(spec) == FilePlaces()


def test_reported_20_a_relative_model_stays_where_it_leads_there(tmp_path, monkeypatch):
    folder = tmp_path / "models" / "tiny"
    folder.mkdir(parents=True)
    spec = {
        **made_scores("de", "shapley", "0" * 64).spec,
        "model": {"name": "models/tiny", "revision": "folder"},
    }
    monkeypatch.chdir(tmp_path)
    remake = again("score", spec, places=FilePlaces(model=folder))
    assert command_arguments(remake.lines[0])[1]["model"] == "models/tiny"
    assert any(str(tmp_path) in note for note in remake.notes)  # it says where to run the command
    monkeypatch.chdir(tmp_path / "models")
    remake = again("score", spec, places=FilePlaces(model=folder))
    assert command_arguments(remake.lines[0])[1]["model"] == str(folder)
    assert remake.notes == ()


@pytest.mark.parametrize("name", ["xnli", "udpos", "mine"])
def test_reported_20_a_data_folder_is_in_the_command(tmp_path, name):
    spec = dict(made_scores("de", "shapley", "0" * 64).spec)
    spec["task"] = {**spec["task"], "name": name}
    data = tmp_path / "my data"
    declaration = tmp_path / "it's mine.toml"
    data.mkdir()
    declaration.touch()
    note_places(tmp_path, spec, FilePlaces(data=data, declaration=declaration))
    remake = again("score", spec, places=Store(tmp_path).places(spec))
    _, arguments = command_arguments(remake.lines[0])
    assert arguments["data"] == data
    assert arguments["task"] == (str(declaration) if name == "mine" else name)
    assert not any("HEADLAB_DATA" in note for note in remake.notes)


@pytest.mark.parametrize("way", ["listed", "saved"])
def test_reported_20_a_declared_task_is_printed_as_its_path(tmp_path, monkeypatch, way):
    monkeypatch.chdir(tmp_path)
    declaration = declare(tmp_path / "my cache" / "tasks" / "mine")
    variable = {
        "listed": ("HEADLAB_TASKS", str(declaration)),
        "saved": ("HEADLAB_CACHE", "my cache"),
    }[way]
    monkeypatch.setenv(*variable)
    job = ScoreJob(model="m", task="mine", languages=["de"], method="gradient")
    assert command_arguments(job.terminal_lines())[1]["task"] == str(declaration)
    assert bash_words(FinetuneJob(task="mine").terminal_lines())[1] == str(declaration)
    spec = dict(made_scores("de", "shapley", "0" * 64).spec)
    spec["task"] = {**spec["task"], "name": "mine"}
    remake = again("score", spec)
    assert command_arguments(remake.lines[0])[1]["task"] == str(declaration)
    assert not any("FILE.toml" in note for note in remake.notes)


def test_reported_20_what_no_command_can_say_is_a_note():
    spec = dict(made_scores("de", "shapley", "0" * 64).spec)
    hub = {**spec["model"], "revision": "c0ffee" * 6 + "c0ff"}
    assert any("c0ffee" in note for note in again("score", {**spec, "model": hub}).notes)
    ambiguous = again(
        "score", {**spec, "task": {**spec["task"], "classes": {"a": "same", "b": "same"}}}
    )
    assert ambiguous.commands == ()
    assert any("--label-map" in note for note in ambiguous.notes)


TREES = "1\tIt\t_\t_\t_\t_\t2\tnsubj\t_\t_\n2\trains\t_\t_\t_\t_\t0\troot\t_\t_\n\n"


def test_reported_20_roles_name_the_files_they_are_of(printed_report, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("cache").mkdir()
    Path("my trees.conllu").write_text(TREES * 3, encoding="utf-8")
    Path("my words.txt").write_text("it rains it pours\n", encoding="utf-8")
    model = str(printed_report.folder / "my models" / "tiny")
    files = ["--conllu", "my trees.conllu", "--frequencies", "my words.txt"]
    assert main(["roles", "--model", model, "--language", "de", *files]) == 0
    (report,) = Store(tmp_path / "cache").reports().results
    assert main(["report", report.key]) == 0
    (line,) = commands_in(Path("report.html"))
    (tmp_path / "elsewhere" / "cache").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(bash_words(line)) == 0
    assert [new_report.key for new_report in Store(Path("cache")).reports().results] == [report.key]


def test_reported_20_the_command_for_missing_scores_makes_them(
    printed_report, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(printed_report.folder)
    prune = ["prune", "--model", "my models/tiny", "--task", "Aufgaben für uns/mine.toml"]
    prune += [
        "--label-map",
        write_label_map(LABEL_MAP),
        "--languages",
        "th",
        "--method",
        "gradient",
        "-o",
        "form=token",
    ]
    prune += [
        "--seed",
        "5",
        "--dev-size",
        "7",
        "--ablation",
        "mean",
        "--rule",
        "bottom",
        "--k",
        "1",
    ]
    prune += ["--cache", str(tmp_path / "an empty cache")]
    capsys.readouterr()
    assert main(prune) == 2
    message = capsys.readouterr().err
    assert message.startswith("headlab: [score.missing] ")
    line = message.strip().split("; run: ")[1]
    assert main(bash_words(line)) == 0
    assert main(prune) == 0


def test_reported_21_the_label_map_of_an_error_is_typed_and_taken(
    printed_report, tmp_path, monkeypatch, capsys
):
    """The error's flag is typed with a class in place of each placeholder."""
    monkeypatch.chdir(tmp_path)
    Path("cache").mkdir()
    score = [
        "score",
        "--model",
        str(printed_report.folder / "my models" / "tiny"),
        "--languages",
        "de",
        "--size",
        "8",
    ]
    score += [
        "--task",
        str(printed_report.folder / "Aufgaben für uns" / "mine.toml"),
        "--method",
        "gradient",
    ]
    capsys.readouterr()
    assert main(score) == 2
    error = capsys.readouterr().err
    suggested_flag = error[
        error.index("--label-map") : error.index(f" (in place of each {PLACEHOLDER}")
    ]
    flag, text = bash_words(f"headlab {suggested_flag}")
    suggested_map = read_label_map(text)
    # No label is paired with a class, since nobody knows the pairs.
    assert suggested_map == dict.fromkeys(sorted(LABELS), PLACEHOLDER)
    assert all(json.dumps(name, ensure_ascii=False) in error for name in CLASSES)
    assert (
        main([*score, flag, write_label_map({label: LABEL_MAP[label] for label in suggested_map})])
        == 0
    )
    (result,) = Store(tmp_path / "cache").scan().results
    assert result.record.spec["task"]["classes"] == LABEL_MAP
