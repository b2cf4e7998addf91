"""The commands of a report make the same result again: run, or read back as the command line reads them."""

from __future__ import annotations

import json
import re
import shlex
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import typer
from support import cached_reports, synthetic_gates
from support.saved_models import save_classifier
from support.synthetic_curves import made_curve
from support.synthetic_fronts import spec_of

from headlab.cli.main import build, main
from headlab.core import parse_options
from headlab.jobs.experiment import ExperimentJob
from headlab.jobs.gates import GatesJob
from headlab.report.again import Again, joined
from headlab.report.commands import again
from headlab.results import Store
from headlab.roles import OPTIONS as ROLE_OPTIONS
from headlab.roles import resolve
from headlab.studies.table import STUDIES, offered_experiments

SCORE = [
    "--method",
    "shapley",
    "-o",
    "samples=8",
    "-o",
    "target=none",
    "--seed",
    "1",
    "--size",
    "12",
]


def given(line: str) -> tuple[str, dict[str, Any]]:
    """The name of a command and its arguments, as the command line reads them."""
    words = shlex.split(line)
    command = typer.main.get_command(build()).commands[words[1]]  # type: ignore[attr-defined] # a group
    return words[1], command.make_context(words[1], words[2:]).params


def commands_in(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    return [
        unescape(re.sub("<[^>]+>", "", pre))
        for pre in re.findall("<pre><code>(.*?)</code></pre>", text)
    ]


@pytest.mark.slow
def test_running_a_reports_commands_gives_the_same_keys(tmp_path, monkeypatch):
    """A score and a curve of a tiny model; the commands as they stand in the file, in an empty cache."""
    monkeypatch.chdir(tmp_path)
    save_classifier(tmp_path / "tiny")
    about = ["--model", "tiny", "--languages", "de", *SCORE[:-2]]
    assert main(["score", *about, "--size", "12", "--cache", "one"]) == 0
    assert (
        main(
            ["curve", *about, "--size", "10", "--dev-size", "12", "--points", "3", "--cache", "one"]
        )
        == 0
    )
    keys = sorted(folder.name for folder in Store(Path("one")).folders())
    assert len(keys) == 2
    assert main(["report", *keys, "--cache", "one", "--out", "report.html"]) == 0
    lines = commands_in(Path("report.html"))
    assert len(lines) == 2
    for line in lines:
        assert main([*shlex.split(line)[1:], "--cache", "other"]) == 0
    assert sorted(folder.name for folder in Store(Path("other")).folders()) == keys


@pytest.mark.parametrize("name", offered_experiments())
@pytest.mark.parametrize("other", [False, True])
def test_an_experiments_command_asks_for_the_same_options(name, other):
    spec = dict(cached_reports.made_up(name).spec)
    about = STUDIES[name]
    if other:  # every option that has a neighbour has another value than its default
        changed = {
            key: option.default + 1
            for key, option in about.options.items()
            if option.kind is int
            and isinstance(option.default, int)
            and option.fits(option.default + 1)
        }
        changed |= (
            {"method": "monte-carlo", "method_options": {"samples": 77}}
            if "method" in about.options
            else {}
        )
        spec |= {"options": about.resolve(changed), "seed": 3, "ablation": "mean"}
        spec["model"] = {**spec["model"], "dtype": "bfloat16"}
    (line,) = again("report", spec).lines
    command, asked = given(line)
    assert command == "experiment"
    job = ExperimentJob.from_flags(asked)
    assert about.resolve(job.study_options()) == spec["options"]
    assert (asked["key"], asked["languages"], asked["size"], asked["test_size"]) == (
        name,
        "de,th",
        512,
        1000,
    )
    assert (asked["seed"], asked["ablation"], asked["dtype"]) == (
        spec["seed"],
        spec["ablation"],
        "bfloat16" if other else "float32",
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"stacks": "encoder", "size": 7, "sample": "batch"}, {"trained": "all", "clip": None}],
)
def test_the_command_of_gates_asks_for_the_same_options(options):
    gates = synthetic_gates.made_gates(seed=2, **options)
    (line,) = again("gates", gates.spec).lines
    _, asked = given(line)
    job = GatesJob.from_flags(asked)
    (weight,) = job.weights
    assert job.gate_options(weight).record() == gates.spec["options"]
    assert (job.languages, job.seed) == (["de"], 2)


def test_the_command_of_roles_asks_for_the_same_sentences_and_options():
    spec = {
        "experiment": "roles",
        "model": {"name": "m", "revision": "r", "fingerprint": "f"},
        "options": resolve({"rare": 0.4}),
        "task": {"name": "treebank", "language": "de", "split": "test", "size": 60},
        "frequencies": {"source": "corpus"},
    }
    found = again("report", spec)
    _, asked = given(found.lines[0])
    assert resolve(parse_options(asked["option"], ROLE_OPTIONS)) == spec["options"]
    assert (asked["task"], asked["language"], asked["split"], asked["size"]) == (
        None,
        "de",
        "test",
        60,
    )
    assert str(asked["frequencies"]) == "FILE"
    assert any("name it in place of FILE" in note for note in found.notes)


@pytest.mark.parametrize(
    "options",
    [{}, {"heads": 3, "points": None}, {"within": 2.5, "by": "estimate", "orders": "mean,own"}],
)
def test_the_command_of_a_front_asks_the_same_question(options):
    spec = spec_of(**options)
    (line,) = again("report", spec).lines
    command, asked = given(line)
    assert command == "front"
    found = {name: asked[name] for name in ("method", "within", "heads", "by", "orders")}
    found |= {"points": None if asked["every"] else asked["points"]}
    assert STUDIES["front"].resolve(found) == spec["options"]
    assert (asked["languages"], asked["size"], asked["test_size"]) == ("de,th", 512, 1000)


LACKING = {
    "experiment": ("task.language", "task.sizes", "options", "seed", "ablation", "model.name"),
    "gates": ("task.language", "options", "options.weight", "seed"),
    "front": ("task.language", "task.sizes", "options", "seed", "ablation"),
}


@pytest.mark.parametrize(
    ("kind", "path"), [(kind, path) for kind, paths in LACKING.items() for path in paths]
)
def test_a_spec_that_lacks_one_thing_gives_a_note_and_no_command_with_a_default(
    kind: str, path: str
):
    spec = synthetic_gates.made_gates().spec if kind == "gates" else spec_of()
    spec = cached_reports.made_up("heads").spec if kind == "experiment" else spec
    spec = json.loads(json.dumps(dict(spec)))
    assert again("gates" if kind == "gates" else "report", spec).lines
    *outer, last = path.split(".")
    place = spec
    for name in outer:
        place = place[name]
    del place[last]
    found = again("gates" if kind == "gates" else "report", spec)
    assert found.lines == ()
    assert found.notes == ("Its spec does not say all that a command needs.",)


def test_a_method_of_a_package_is_named_with_all_its_options():
    spec = dict(cached_reports.made_up("gap").spec)
    spec["options"] = {**spec["options"], "method": "elsewhere", "method_options": {"base": 2.0}}
    found = again("report", spec)
    assert "--method elsewhere -o base=2.0" in found.lines[0]
    assert "The method elsewhere comes with a package that has to be installed." in found.notes


def test_a_loss_of_many_digits_is_asked_for_to_the_last():
    (line,) = again("report", spec_of(within=0.1234567)).lines
    assert given(line)[1]["within"] == 0.1234567


def test_a_curve_of_other_scores_has_no_command_but_a_reason():
    spec = dict(made_curve().spec)
    assert (
        again("curve", spec)
        .lines[0]
        .startswith("headlab curve --model e5-small-intents --task intents --languages de")
    )
    assert any("512 is the default" in note for note in again("curve", spec).notes)
    assert "--dev-size 64" in again("curve", spec, dev_size=64).lines[0]
    other = again("curve", spec | {"order": {**spec["order"], "language": "th"}})
    assert other.lines == ()
    assert "ordered by other scores (language th)" in other.notes[0]


def test_a_walk_of_a_front_names_the_front_that_makes_it():
    spec = dict(made_curve().spec)
    order = {
        "method": "front mean",
        "language": "de,th",
        "options": {"of": "gradient", "scores": {}},
    }
    found = again("curve", spec | {"order": {**spec["order"], **order}})
    assert found.lines == ()
    (note,) = found.notes
    assert (
        "headlab front makes it on its way: over de,th, along the order mean by gradient scores"
        in note
    )


def test_commands_that_differ_in_their_language_alone_are_one():
    def one(language: str, *more: str) -> Again:
        return Again((("headlab", "score", "--languages", language, *more),), ("note",))

    found = joined([one("de"), one("th", "--seed", "1"), one("fr"), one("de")])
    assert found.lines == (
        "headlab score --languages de,fr",
        "headlab score --languages th --seed 1",
    )
    assert found.notes == ("note",)


def test_what_a_command_cannot_say_is_a_note():
    spec = synthetic_gates.made_gates(model_of_its_own=None).spec
    task = {**spec["task"], "name": "mine", "seed": 4}
    notes = " ".join(
        again(
            "gates", {**spec, "task": task, "model": {**spec["model"], "revision": "folder"}}
        ).notes
    )
    assert "give the path that it has where you are" in notes
    assert "--task FILE.toml" in notes
    assert "seed was 4" in notes
