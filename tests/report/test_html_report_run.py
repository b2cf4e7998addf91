"""Every command of a real report is run as it is printed, in another folder, and gives the report's figures."""

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
from support.cached_scores import made_up
from support.saved_models import letter_tokenizer, save
from support.tiny_models import SMALL
from test_html_report_commands import commands_in, given

from headlab.cli.main import main
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
MAP = dict(zip(LABELS, (CLASSES[2], CLASSES[0], CLASSES[1]), strict=True))
LANGUAGES = ("de", "th")
SIZES = {"train": 12, "dev": 16, "test": 18}


def bash_words(line: str) -> list[str]:
    """The arguments of a `headlab` command, as bash takes them from the line."""
    script = f"headlab() {{ printf '%s\\0' \"$@\"; }}; {line}"
    printed = subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout
    return printed.decode().split("\0")[:-1]


def notes_in(path: Path) -> list[str]:
    """The notes of a report."""
    text = path.read_text(encoding="utf-8")
    return [unescape(note) for note in re.findall('<p class="note"><bdi>(.*?)</bdi>', text)]


def save_model(folder: Path) -> None:
    """A tiny classifier whose names of its classes are none of the task's labels."""
    config = hf.BertConfig(
        **SMALL
        | {"num_hidden_layers": 2, "num_attention_heads": 3, "num_labels": len(LABELS)}
        | {
            "id2label": dict(enumerate(CLASSES)),
            "label2id": {name: at for at, name in enumerate(CLASSES)},
        }
    )
    torch.manual_seed(0)
    module = hf.BertForSequenceClassification(config)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.5)
    save(folder, module, letter_tokenizer())


def declare(folder: Path, name: str = "mine") -> Path:
    """A task of one's own: its declaration, and a file for each language and split."""
    folder.mkdir(parents=True)
    for language in LANGUAGES:
        for split, size in SIZES.items():
            lines = [
                f"{language} {split} text {number * 7 % 13}\t{LABELS[number % len(LABELS)]}"
                for number in range(size)
            ]
            file = folder / f"{language}.{split}.tsv"
            file.write_text("\n".join(["text\tlabel", *lines]) + "\n", encoding="utf-8")
    declaration = folder / f"{name}.toml"
    declaration.write_text(
        f'name = "{name}"\nformat = "tsv"\nfiles = "{{language}}.{{split}}.tsv"\n'
        '[columns]\ntext = "text"\nlabel = "label"\n',
        encoding="utf-8",
    )
    return declaration


@dataclass(frozen=True)
class Reported:
    """A report and what it is about.

    Attributes:
        folder: That its results were made in.
        masks: Their files.
    """

    folder: Path
    commands: tuple[str, ...]
    masks: tuple[Path, ...]

    @property
    def store(self) -> Store:
        return Store(self.folder / "cache")


FRONT = [
    "--method",
    "gradient",
    "--size",
    "10",
    "--test-size",
    "10",
    "--points",
    "3",
    "--within",
    "60",
]
FRONT += ["--by", "estimate"]
SCORES = ["--method", "shapley", "-o", "samples=8", "-o", "target=none", "--size", "12"]


@pytest.fixture(scope="module")
def reported(tmp_path_factory) -> Iterator[Reported]:
    """Results of every kind, of a task by its path with a label map, made in one folder and reported from another."""
    folder = tmp_path_factory.mktemp("Lena's results")
    save_model(folder / "my models" / "tiny")
    declare(folder / "Aufgaben für uns")
    on = ["--model", str(folder / "my models" / "tiny"), "--task", "Aufgaben für uns/mine.toml"]
    on += ["--label-map", write_label_map(MAP)]
    prune = ["prune", *on, "--method", "shapley", "--languages", "de"]
    commands = [
        ["score", *on, *SCORES, "--seed", "1"],
        ["score", *on, *SCORES, "--seed", "2", "--ablation", "mean", "--languages", "de"],
        ["score", *on, *SCORES, "-o", "estimand=shapley", "--languages", "de"],
        ["curve", *on, "--method", "gradient", "--dev-size", "12", "--size", "10", "--points", "3"],
        [
            "experiment",
            "heads",
            *on,
            "--method",
            "shapley",
            "-o",
            "samples=8",
            "-o",
            "target=none",
            "--size",
            "12",
        ],
        ["front", *on, *FRONT, "--out", "masks/front ü.json"],
        ["gates", *on, "--language", "de", "--weight", "0.125", "-o", "steps=3", "--out", "masks"],
        ["roles", *on[:4], "--language", "de", "--size", "8"],
        [
            *prune,
            "--seed",
            "2",
            "--ablation",
            "mean",
            "--rule",
            "bottom",
            "--k",
            "2",
            "--out",
            "masks/its 'best'.json",
        ],
        [
            *prune,
            "--seed",
            "1",
            "--rule",
            "bottom",
            "--k",
            "1",
            "--size",
            "9",
            "--out",
            "masks/one.json",
        ],
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("HEADLAB_CACHE", raising=False)
        for words in commands:
            assert main(words) == 0, words
        (folder / "elsewhere").mkdir()
        patch.chdir(folder / "elsewhere")
        store = Store(folder / "cache")
        keys = [path.name for path in store.folders() if (path / "result.npz").exists()]
        masks = sorted((folder / "masks").glob("*.json"))
        assert (
            main(
                [
                    "report",
                    *keys,
                    *map(str, masks),
                    "--cache",
                    str(store.root),
                    "--out",
                    "report.html",
                ]
            )
            == 0
        )
        yield Reported(folder, tuple(commands_in(Path("report.html"))), tuple(masks))


@pytest.mark.slow
def test_reported_20_every_command_of_a_report_runs_as_printed(
    reported, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADLAB_CACHE", raising=False)
    names = [bash_words(line)[0] for line in reported.commands]
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
    recorded = {path: load_mask(path) for path in reported.masks}
    for line in reported.commands:
        words = bash_words(line)
        capsys.readouterr()
        asked = ["--json"] if words[0] == "evaluate" else []
        assert main([*words, *asked]) == 0, (line, capsys.readouterr().err)
        if not asked:
            continue
        figures = json.loads(capsys.readouterr().out)["languages"]
        mask = recorded[Path(words[words.index("--mask") + 1])]
        for stated in seen(mask):
            if stated.split == "test":
                assert figures[stated.language]["accuracy"] == pytest.approx(
                    stated.figure["accuracy"]
                )
    ours = Store(tmp_path / "cache")
    theirs = reported.store
    assert {path.name for path in theirs.folders()} <= {path.name for path in ours.folders()}
    for listing in ("scan", "curves", "gates"):
        found, stored = (
            {r.key: r.record.values_sha256() for r in getattr(s, listing)().results}
            for s in (ours, theirs)
        )
        assert stored.items() <= found.items()
    tables, stored_tables = (
        {r.key: r.record.tables for r in store.reports().results} for store in (ours, theirs)
    )
    assert stored_tables.items() <= tables.items()
    made = {
        path.name: load_mask(path).digest
        for folder in (".", "gates")
        for path in Path(folder).glob("*.json")
    }
    assert made == {path.name: mask.digest for path, mask in recorded.items()}


def test_reported_20_without_a_note_of_its_path_a_task_is_told_to_the_report(
    reported, tmp_path, monkeypatch
):
    """As of results that an earlier version stored, or that came from another machine."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(reported.store.root, tmp_path / "cache", ignore=shutil.ignore_patterns(FOLDER))
    keys = [result.key for result in Store(tmp_path / "cache").scan().results]
    assert main(["report", *keys, "--out", "without.html"]) == 0
    (note,) = {text for text in notes_in(Path("without.html")) if "FILE.toml" in text}
    assert "mine" in note
    declaration = reported.folder / "Aufgaben für uns" / "mine.toml"
    assert main(["report", *keys, "--out", "with.html", "--task", str(declaration)]) == 0
    assert not any("FILE.toml" in text for text in notes_in(Path("with.html")))
    assert all(
        given(line)[1]["task"] == str(declaration) for line in commands_in(Path("with.html"))
    )


def test_reported_20_a_report_can_leave_paths_out(reported, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADLAB_TASKS", str(reported.folder / "Aufgaben für uns" / "mine.toml"))
    words = [*(result.key for result in reported.store.scan().results), *map(str, reported.masks)]
    assert main(["report", *words, "--cache", str(reported.store.root), "--out", "with.html"]) == 0
    assert (
        main(
            [
                "report",
                *words,
                "--cache",
                str(reported.store.root),
                "--out",
                "without.html",
                "--no-paths",
            ]
        )
        == 0
    )
    model = str(reported.folder / "my models" / "tiny")  # the name that it has in the results
    for name, has_paths in (("with.html", True), ("without.html", False)):
        typed = {word for line in commands_in(Path(name)) for word in bash_words(line)} - {model}
        assert any(str(reported.folder) in word for word in typed) == has_paths
    assert any("give its path in place of mine" in note for note in notes_in(Path("without.html")))
    assert not any(
        str(reported.folder) in note.replace(model, "") for note in notes_in(Path("without.html"))
    )


def test_reported_20_a_moved_task_is_not_named_by_its_old_path(reported, tmp_path):
    store = Store(tmp_path)
    (result, *_) = reported.store.scan().results
    spec = result.record.spec
    gone = tmp_path / "gone.toml"
    gone.touch()
    note_places(store.root, spec, FilePlaces(declaration=gone))
    assert store.places(spec).declaration == gone
    gone.unlink()
    assert store.places(spec) == FilePlaces()


def test_reported_20_a_relative_model_stays_where_it_leads_there(tmp_path, monkeypatch):
    folder = tmp_path / "models" / "tiny"
    folder.mkdir(parents=True)
    spec = {
        **made_up("de", "shapley", "0" * 64).spec,
        "model": {"name": "models/tiny", "revision": "folder"},
    }
    monkeypatch.chdir(tmp_path)
    found = again("score", spec, places=FilePlaces(model=folder))
    assert given(found.lines[0])[1]["model"] == "models/tiny"
    assert any(str(tmp_path) in note for note in found.notes)  # that is where to run it
    monkeypatch.chdir(tmp_path / "models")
    found = again("score", spec, places=FilePlaces(model=folder))
    assert given(found.lines[0])[1]["model"] == str(folder)
    assert found.notes == ()


@pytest.mark.parametrize("name", ["xnli", "udpos", "mine"])
def test_reported_20_a_data_folder_is_in_the_command(tmp_path, name):
    spec = dict(made_up("de", "shapley", "0" * 64).spec)
    spec["task"] = {**spec["task"], "name": name}
    data = tmp_path / "my data"
    declaration = tmp_path / "it's mine.toml"
    data.mkdir()
    declaration.touch()
    note_places(tmp_path, spec, FilePlaces(data=data, declaration=declaration))
    found = again("score", spec, places=Store(tmp_path).places(spec))
    _, asked = given(found.lines[0])
    assert asked["data"] == data
    assert asked["task"] == (str(declaration) if name == "mine" else name)
    assert not any("HEADLAB_DATA" in note for note in found.notes)


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
    assert given(job.terminal_lines())[1]["task"] == str(declaration)
    assert bash_words(FinetuneJob(task="mine").terminal_lines())[1] == str(declaration)
    spec = dict(made_up("de", "shapley", "0" * 64).spec)
    spec["task"] = {**spec["task"], "name": "mine"}
    found = again("score", spec)
    assert given(found.lines[0])[1]["task"] == str(declaration)
    assert not any("FILE.toml" in note for note in found.notes)


def test_reported_20_what_no_command_can_say_is_a_note():
    spec = dict(made_up("de", "shapley", "0" * 64).spec)
    hub = {**spec["model"], "revision": "c0ffee" * 6 + "c0ff"}
    assert any("c0ffee" in note for note in again("score", {**spec, "model": hub}).notes)
    twice = again(
        "score", {**spec, "task": {**spec["task"], "classes": {"a": "same", "b": "same"}}}
    )
    assert twice.commands == ()
    assert any("--label-map" in note for note in twice.notes)


TREES = "1\tIt\t_\t_\t_\t_\t2\tnsubj\t_\t_\n2\trains\t_\t_\t_\t_\t0\troot\t_\t_\n\n"


def test_reported_20_roles_name_the_files_they_are_of(reported, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my trees.conllu").write_text(TREES * 3, encoding="utf-8")
    Path("my words.txt").write_text("it rains it pours\n", encoding="utf-8")
    model = str(reported.folder / "my models" / "tiny")
    files = ["--conllu", "my trees.conllu", "--frequencies", "my words.txt"]
    assert main(["roles", "--model", model, "--language", "de", *files]) == 0
    (report,) = Store(tmp_path / "cache").reports().results
    assert main(["report", report.key]) == 0
    (line,) = commands_in(Path("report.html"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(bash_words(line)) == 0
    assert [again.key for again in Store(Path("cache")).reports().results] == [report.key]


def test_reported_20_the_command_for_missing_scores_makes_them(
    reported, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(reported.folder)
    prune = ["prune", "--model", "my models/tiny", "--task", "Aufgaben für uns/mine.toml"]
    prune += [
        "--label-map",
        write_label_map(MAP),
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
    line = capsys.readouterr().err.strip().split("; run: ")[1]
    assert main(bash_words(line)) == 0
    assert main(prune) == 0


def test_reported_21_the_label_map_of_an_error_is_typed_and_taken(
    reported, tmp_path, monkeypatch, capsys
):
    """The words of the error, with a class in place of each placeholder, as a shell gives them to the command."""
    monkeypatch.chdir(tmp_path)
    score = [
        "score",
        "--model",
        str(reported.folder / "my models" / "tiny"),
        "--languages",
        "de",
        "--size",
        "8",
    ]
    score += [
        "--task",
        str(reported.folder / "Aufgaben für uns" / "mine.toml"),
        "--method",
        "gradient",
    ]
    capsys.readouterr()
    assert main(score) == 2
    error = capsys.readouterr().err
    typed = error[error.index("--label-map") : error.index(f" (in place of each {PLACEHOLDER}")]
    flag, text = bash_words(f"headlab {typed}")
    stated = read_label_map(text)
    # nothing is paired that nobody knows
    assert stated == dict.fromkeys(sorted(LABELS), PLACEHOLDER)
    assert all(json.dumps(name, ensure_ascii=False) in error for name in CLASSES)
    assert main([*score, flag, write_label_map({label: MAP[label] for label in stated})]) == 0
    (result,) = Store(tmp_path / "cache").scan().results
    assert result.record.spec["task"]["classes"] == MAP
