"""The commands of a report make the same results again."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from support import cached_reports, synthetic_gates
from support.printed_commands import command_arguments, commands_in
from support.saved_models import save_classifier
from support.synthetic_curves import made_curve
from support.synthetic_fronts import spec_of

from headlab.cli.run import main
from headlab.core import parse_options
from headlab.jobs.experiment import ExperimentJob
from headlab.jobs.gates import GatesJob
from headlab.report.again import Again, joined
from headlab.report.commands import again
from headlab.results import Store
from headlab.roles import OPTIONS as ROLE_OPTIONS
from headlab.roles import resolve
from headlab.studies.table import STUDIES, offered_experiments

SCORE_FLAGS = ["--method", "shapley", "-o", "samples=8", "-o", "target=none", "--seed", "1"]


@pytest.mark.slow
def test_running_a_reports_commands_gives_the_same_keys(tmp_path, monkeypatch):
    """Scores and a curve of a tiny model; the printed commands are run with an empty cache."""
    monkeypatch.chdir(tmp_path)
    save_classifier(tmp_path / "tiny")
    scored_flags = ["--model", "tiny", "--languages", "de", *SCORE_FLAGS]
    curve_flags = ["--size", "10", "--dev-size", "12", "--points", "3"]
    assert main(["score", *scored_flags, "--size", "12", "--cache", "one"]) == 0
    assert main(["curve", *scored_flags, *curve_flags, "--cache", "one"]) == 0
    keys = sorted(folder.name for folder in Store(Path("one")).folders())
    assert len(keys) == 2
    assert main(["report", *keys, "--cache", "one", "--out", "report.html"]) == 0
    lines = commands_in(Path("report.html"))
    assert len(lines) == 2
    for line in lines:
        assert main([*shlex.split(line)[1:], "--cache", "other"]) == 0
    assert sorted(folder.name for folder in Store(Path("other")).folders()) == keys


@pytest.mark.parametrize("name", offered_experiments())
@pytest.mark.parametrize("options_differ", [False, True])
def test_an_experiments_command_asks_for_the_same_options(name, options_differ):
    spec = dict(cached_reports.made_report(name).spec)
    study = STUDIES[name]
    if options_differ:  # every whole number is one more than its default, where that fits
        options = {}
        for key, option in study.options.items():
            is_number = option.kind is int and isinstance(option.default, int)
            if is_number and option.fits(option.default + 1):
                options[key] = option.default + 1
        if "method" in study.options:
            options |= {"method": "monte-carlo", "method_options": {"samples": 77}}
        spec |= {"options": study.resolve(options), "seed": 3, "ablation": "mean"}
        spec["model"] = {**spec["model"], "dtype": "bfloat16"}
    (line,) = again("report", spec).lines
    command, arguments = command_arguments(line)
    assert command == "experiment"
    job = ExperimentJob.from_flags(arguments)
    assert study.resolve(job.study_options()) == spec["options"]
    assert arguments["key"] == name
    assert arguments["languages"] == "de,th"
    assert (arguments["size"], arguments["test_size"]) == (512, 1000)
    assert arguments["seed"] == spec["seed"]
    assert arguments["ablation"] == spec["ablation"]
    assert arguments["dtype"] == ("bfloat16" if options_differ else "float32")


@pytest.mark.parametrize(
    "options",
    [{}, {"stacks": "encoder", "size": 7, "sample": "batch"}, {"trained": "all", "clip": None}],
)
def test_the_command_of_gates_asks_for_the_same_options(options):
    gates = synthetic_gates.made_gates(seed=2, **options)
    (line,) = again("gates", gates.spec).lines
    _, arguments = command_arguments(line)
    job = GatesJob.from_flags(arguments)
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
    remake = again("report", spec)
    _, arguments = command_arguments(remake.lines[0])
    assert resolve(parse_options(arguments["option"], ROLE_OPTIONS)) == spec["options"]
    assert (arguments["task"], arguments["language"], arguments["split"], arguments["size"]) == (
        None,
        "de",
        "test",
        60,
    )
    assert str(arguments["frequencies"]) == "FILE"
    assert any("name it in place of FILE" in note for note in remake.notes)


@pytest.mark.parametrize(
    "options",
    [{}, {"heads": 3, "points": None}, {"within": 2.5, "by": "estimate", "orders": "mean,own"}],
)
def test_the_command_of_a_front_asks_the_same_question(options):
    spec = spec_of(**options)
    (line,) = again("report", spec).lines
    command, arguments = command_arguments(line)
    assert command == "front"
    front_options = {
        name: arguments[name] for name in ("method", "within", "heads", "by", "orders")
    }
    front_options |= {"points": None if arguments["every"] else arguments["points"]}
    assert STUDIES["front"].resolve(front_options) == spec["options"]
    assert (arguments["languages"], arguments["size"], arguments["test_size"]) == (
        "de,th",
        512,
        1000,
    )


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
    specs = {
        "experiment": cached_reports.made_report("heads").spec,
        "gates": synthetic_gates.made_gates().spec,
        "front": spec_of(),
    }
    spec = json.loads(json.dumps(dict(specs[kind])))
    kind_of_result = "gates" if kind == "gates" else "report"
    assert again(kind_of_result, spec).lines
    *outer_names, field = path.split(".")
    part = spec
    for name in outer_names:
        part = part[name]
    del part[field]
    remake = again(kind_of_result, spec)
    assert remake.lines == ()
    assert remake.notes == ("Its spec does not say all that a command needs.",)


def test_a_method_of_a_package_is_named_with_all_its_options():
    spec = dict(cached_reports.made_report("gap").spec)
    spec["options"] = {**spec["options"], "method": "elsewhere", "method_options": {"base": 2.0}}
    remake = again("report", spec)
    assert "--method elsewhere -o base=2.0" in remake.lines[0]
    assert "The method elsewhere comes with a package that has to be installed." in remake.notes


def test_a_loss_of_many_digits_is_asked_for_to_the_last():
    (line,) = again("report", spec_of(within=0.1234567)).lines
    assert command_arguments(line)[1]["within"] == 0.1234567


def test_a_curve_of_other_scores_has_no_command_but_a_reason():
    spec = dict(made_curve().spec)
    beginning = "headlab curve --model e5-small-intents --task intents --languages de"
    assert again("curve", spec).lines[0].startswith(beginning)
    assert any("512 is the default" in note for note in again("curve", spec).notes)
    assert "--dev-size 64" in again("curve", spec, dev_size=64).lines[0]
    remake = again("curve", spec | {"order": {**spec["order"], "language": "th"}})
    assert remake.lines == ()
    assert "ordered by other scores (language th)" in remake.notes[0]


def test_a_walk_of_a_front_names_the_front_that_makes_it():
    spec = dict(made_curve().spec)
    order = {
        "method": "front mean",
        "language": "de,th",
        "options": {"of": "gradient", "scores": {}},
    }
    remake = again("curve", spec | {"order": {**spec["order"], **order}})
    assert remake.lines == ()
    (note,) = remake.notes
    assert (
        "headlab front makes it on its way: over de,th, along the order mean by gradient scores"
        in note
    )


def test_commands_that_differ_in_their_language_alone_are_one():
    def score_command(language: str, *flags: str) -> Again:
        return Again((("headlab", "score", "--languages", language, *flags),), ("note",))

    remake = joined(
        [
            score_command("de"),
            score_command("th", "--seed", "1"),
            score_command("fr"),
            score_command("de"),
        ]
    )
    assert remake.lines == (
        "headlab score --languages de,fr",
        "headlab score --languages th --seed 1",
    )
    assert remake.notes == ("note",)


def test_what_a_command_cannot_say_is_a_note():
    spec = synthetic_gates.made_gates(model_of_its_own=None).spec
    task = {**spec["task"], "name": "mine", "seed": 4}
    model = {**spec["model"], "revision": "folder"}
    notes = " ".join(again("gates", {**spec, "task": task, "model": model}).notes)
    assert "give the path that it has where you are" in notes
    assert "--task FILE.toml" in notes
    assert "seed was 4" in notes
