"""What a page prints as a command, the command line reads back as the same values."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import pytest
import typer
from errors import raises
from fake_client import job
from headlab.worker.kinds.kind import HOMES, kind_of
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from headlab.cli.experiment import options_of
from headlab.cli.main import build
from headlab.labels import read_map
from headlab.methods.table import METHODS
from headlab.options import Option, integer_in, number_in, option_words, parse_options
from headlab.report.commands import shell_lines
from headlab.roles.table import OPTIONS as ROLES
from headlab.studies.table import EXPERIMENTS, FRONT, METHOD, METHOD_OPTIONS, Experiment
from headlab.studies.table import JOBS as SETTINGS_OF
from headlab.training.l0_options import GateOptions
from headlab.ui import job_views

TABLES: dict[str, Mapping[str, Option]] = {
    **{f"score {key}": method.options for key, method in METHODS.items()},
    **{f"experiment {key}": about.options for key, about in EXPERIMENTS.items()},
    "front": FRONT.options,
    "roles": ROLES,
    "gates": GateOptions.table(),
}
EVERY = [(name, option) for name, table in TABLES.items() for option in table]


def others(option: Option) -> Iterator[Any]:
    """Values that an option may have besides its default."""
    if option.optional:
        yield None
    if option.choices:
        yield from option.choices
    elif option.kind is bool:
        yield from (True, False)
    elif option.kind is str:
        yield from ("a word", "1", "true", "null", "1,2", "x=y", "ä 'b' \"c\"")
    elif option.kind is dict:
        yield from ({}, {"samples": 8, "target": None})
    else:
        low = option.low if option.low > -math.inf else min(option.high, 8) - 8
        high = option.high if option.high < math.inf else low + 8
        yield from (v for v in map(option.kind, (low, high, (low + high) / 2)) if option.fits(v))
    if option.kind is float:
        yield from (v for v in (1e-7, 0.1 + 0.2) if option.fits(v))


@pytest.mark.parametrize(("table", "name"), EVERY, ids=lambda word: word)
def test_every_option_goes_through_a_command_line_and_back(table: str, name: str) -> None:
    known = TABLES[table]
    values = [value for value in others(known[name]) if value != known[name].default]
    assert values
    for value in values:
        line = shlex.join(["headlab", *option_words("-o", {name: value}, known)])
        _, *words = shlex.split(line)
        assert words[::2] == ["-o"]
        found = parse_options(words[1::2], known)
        assert found == {name: value}
        assert type(found[name]) is type(value)
    assert list(option_words("-o", {name: known[name].default}, known)) == []


BARE: dict[str, dict[str, Any]] = {  # the least that a job of each kind says
    "score": {"method": "shapley"},
    "curve": {"method": "shapley"},
    "experiment": {"experiment": "targeted", "options": {}},
    "front": {"method": "shapley", "options": FRONT.resolve({})},
    "gates": {"languages": ["de"]},
    "roles": {"languages": ["de"]},
    "worth": {},
    "finetune": {"task": "intents"},
}
EVERY_SETTING = [(kind, name) for kind, known in SETTINGS_OF.items() for name in known]


@pytest.mark.parametrize(("kind", "name"), EVERY_SETTING, ids=lambda word: word)
def test_every_setting_of_a_job_goes_through_its_command_and_back(kind: str, name: str) -> None:
    known = SETTINGS_OF[kind][name]
    values = [value for value in others(known) if value != known.default]
    assert values
    for value in values:
        found = asked(shell_lines(kind, BARE[kind] | {name: value}))[known.flag or name]
        assert found == value
        assert type(found) is type(value)
    for untold in (
        asked(shell_lines(kind, BARE[kind] | told)) for told in ({}, {name: known.default})
    ):
        assert untold[known.flag or name] in (
            known.default,
            None,
        )  # a preset may say what is not given


def test_every_kind_of_job_has_settings_and_fields_of_their_names() -> None:
    assert set(SETTINGS_OF) == set(HOMES)
    for kind, known in SETTINGS_OF.items():
        fields = kind_of(kind).spec.model_fields
        for name in set(known) - ({"dev_size"} if kind == "curve" else set()):
            low, high = known[name].low, known[name].high
            if name == "batch_sizes":
                continue
            assert fields[name].default == known[name].default
            for value in (v for v in (low - 1, high + 1) if math.isfinite(v)):
                with pytest.raises(ValidationError, match=name):
                    kind_of(kind).spec.model_validate({name: known[name].kind(value)})


# Jobs of every kind, whatever their names and numbers, through the command that is printed for them.

NAMES = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=12)
TASKS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,12}", fullmatch=True)
LANGUAGES = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,5}", fullmatch=True).filter(
    lambda name: name != "all"
)
OWN_FLAGS = ("weight", "trained", "stacks")  # options of gates that have a flag of their own
COUNTS, SEEDS, RATES = st.integers(1, 100_000), st.integers(0, 2**63 - 1), st.floats(1e-6, 0.999)
MAPS = st.none() | st.dictionaries(NAMES, NAMES, min_size=1, max_size=4)
WHERE = {
    "model": NAMES,
    "task": TASKS,
    "label_map": MAPS,
    "languages": st.lists(LANGUAGES, min_size=1, max_size=3),
}
HOW = {"seed": SEEDS, "ablation": st.sampled_from(["zero", "mean"])}


def values_of(table: Mapping[str, Option]) -> st.SearchStrategy[dict[str, Any]]:
    """Some options of a table, with their defaults or other values."""
    each = {
        name: st.sampled_from([option.default, *others(option)]) for name, option in table.items()
    }
    return st.fixed_dictionaries({}, optional=each)


def with_method(of: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A job with the options of one method."""
    return st.one_of(
        st.fixed_dictionaries({**of, "method": st.just(key), "options": values_of(method.options)})
        for key, method in METHODS.items()
    )


SIZES = {"dev_size": st.just(512) | COUNTS, "test_size": st.none() | COUNTS}


def of_study(about: Experiment, method: str | None) -> st.SearchStrategy[dict[str, Any]]:
    """A job of an experiment, or of the front, with the method that it uses, if any."""
    plain = {
        n: o
        for n, o in about.options.items()
        if n not in (METHOD, METHOD_OPTIONS, "within", "heads")
    }
    own = {
        name: st.sampled_from([o.default, *others(o)])
        for name, o in plain.items()
        if o.kind is not dict
    }
    own |= {
        name: values_of(METHODS[key].options)
        for name, key in about.options_of.items()
        if name in plain
    }
    own |= {
        name: st.lists(
            st.sampled_from(allowed), min_size=about.fewest.get(name, 1), unique=True
        ).map(",".join)
        for name, allowed in about.lists.items()
    }
    key = method or about.options_of.get(METHOD_OPTIONS)
    return st.fixed_dictionaries(
        {**WHERE, **HOW, **SIZES, "experiment": st.just(about.key), "options": st.fixed_dictionaries(own),
         **({} if method is None else {METHOD: st.just(method)}),
         **({} if key is None else {METHOD_OPTIONS: values_of(METHODS[key].options)})}
    )  # fmt: skip


def of_experiments() -> st.SearchStrategy[dict[str, Any]]:
    """A job of any experiment with any method that it may use."""
    return st.one_of(
        of_study(about, method)
        for about in EXPERIMENTS.values()
        for method in (about.options[METHOD].choices if METHOD in about.options else [None])
    )


def of_fronts() -> st.SearchStrategy[dict[str, Any]]:
    """A job of a front, which asks for a loss or for a number of heads."""
    asked = st.fixed_dictionaries(
        {"within": st.floats(0, 100), "heads": st.none()}
    ) | st.fixed_dictionaries({"within": st.none(), "heads": st.integers(0, 500)})
    jobs = st.one_of(of_study(FRONT, method) for method in FRONT.options[METHOD].choices)
    return st.tuples(jobs, asked).map(
        lambda pair: {**pair[0], "options": {**pair[0]["options"], **pair[1]}}
    )


JOBS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "experiment": of_experiments(),
    "front": of_fronts(),
    "roles": st.fixed_dictionaries(
        {"model": NAMES, "task": st.none() | TASKS, "languages": st.lists(LANGUAGES, min_size=1, max_size=3),
         "split": st.sampled_from(["dev", "test", "train"]), "size": st.none() | COUNTS, "options": values_of(ROLES)}
    ),
    "score": with_method({**WHERE, **HOW, "size": COUNTS}),
    "curve": with_method(
        {**WHERE, **HOW, "size": st.none() | COUNTS, "split": st.sampled_from(["test", "dev"]),
         "points": st.none() | st.integers(2, 4096)}
    ),
    "gates": st.fixed_dictionaries(
        {**WHERE, "weights": st.lists(st.floats(0, 10), min_size=1, max_size=3, unique=True), "seed": SEEDS,
         "options": values_of({k: v for k, v in GateOptions.table().items() if k not in OWN_FLAGS})}
    ),
    "worth": st.fixed_dictionaries(
        {**WHERE, "seed": SEEDS, "rounds": st.integers(6, 99), "batch_sizes": st.lists(COUNTS, min_size=1, max_size=3)}
    ),
    "finetune": st.fixed_dictionaries({"task": TASKS, "steps": COUNTS, "learning_rate": RATES, "seed": SEEDS}),
}  # fmt: skip


def check_study(kind: str, details: dict[str, Any]) -> None:
    """The printed line asks for the same options of the experiment and of its method, by whatever flags."""
    about = FRONT if kind == "front" else EXPERIMENTS[details["experiment"]]
    found = asked(shell_lines(kind, details))
    beside = {name: details[name] for name in (METHOD, METHOD_OPTIONS) if name in details}
    if kind == "front":
        given = {name: found[name] for name in ("orders", "within", "heads", "by", METHOD)}
        of_method = parse_options(found["option"] or (), METHODS[details[METHOD]].options)
        given |= {"points": None if found["every"] else found["points"], METHOD_OPTIONS: of_method}
        read = FRONT.resolve(given)
    else:
        read = options_of(
            about, found["method"], found["method_option"] or [], found["option"] or []
        )
    assert read == about.resolve({**details["options"], **beside})
    assert found["languages"] == ",".join(details["languages"])
    assert details["label_map"] is None or read_map(found["label_map"]) == details["label_map"]
    assert (found["size"], found["test_size"]) == (details["dev_size"], details["test_size"])
    assert {name: found[name] for name in ("model", "task", *HOW)} == {
        n: details[n] for n in ("model", "task", *HOW)
    }


def check_job(kind: str, details: dict[str, Any]) -> None:
    """What each printed line says is what the job was given."""
    languages = details.get("languages")
    for at, line in enumerate(shell_lines(kind, details).splitlines()):
        found = asked(line)
        if kind == "gates":
            assert (found["language"], found["weight"]) == (languages[at], details["weights"])
            known = GateOptions.table()
        elif kind == "roles":
            assert found["language"] == languages[at]
            known = ROLES
        elif languages is not None:
            assert found["languages"] == ",".join(languages)
            known = METHODS[details["method"]].options if "method" in details else {}
        if "options" in details:
            given = {k: v for k, v in details["options"].items() if v != known[k].default}
            read = parse_options(found["option"] or (), known)
            assert (read, [type(v) for v in read.values()]) == (
                given,
                [type(v) for v in given.values()],
            )
        if details.get("label_map") is not None:
            assert read_map(found["label_map"]) == details["label_map"]
        if kind == "worth":
            assert found["batch_sizes"] == ",".join(map(str, details["batch_sizes"]))
        same = set(details) - {"languages", "options", "label_map", "batch_sizes", "weights"}
        assert {name: found[name] for name in same} == {name: details[name] for name in same}


@pytest.mark.parametrize("cases", [60, pytest.param(2000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", JOBS)
def test_a_job_is_read_back_from_its_command(
    kind: str, cases: int, record_property: Callable[[str, object], None]
) -> None:
    @settings(max_examples=cases, deadline=None)
    @given(JOBS[kind])
    def check(details: dict[str, Any]) -> None:
        (check_study if kind in ("experiment", "front") else check_job)(kind, details)

    record_property("commands", cases)
    check()


def test_what_is_no_option_is_said_as_one_and_a_word_without_a_value_is_refused() -> None:
    assert list(option_words("-o", {"unknown": True}, {})) == ["-o", "unknown=true"]
    for pair in ("samples", "=5"):
        with raises("option.malformed", repr(pair)):
            parse_options([pair], {})


@cache
def commands() -> Mapping[str, Any]:
    """The commands of headlab, by name."""
    group: Any = typer.main.get_command(build())
    return dict(group.commands)


def asked(line: str) -> dict[str, Any]:
    """The arguments of a command as the command line reads them."""
    words = shlex.split(line)
    command = commands()[words[1]]
    return dict(command.make_context(words[1], words[2:]).params)


def test_a_boolean_option_of_a_job_is_printed_as_the_command_reads_it() -> None:
    spec = {"model": "m", "task": "intents", "languages": ["de", "fr"], "method": "gradient", "seed": 3,
            "options": {"form": "token", "normalise": True}}  # fmt: skip
    found = asked(job_views.terminal(job(1, kind="score", params=spec)))
    assert (
        METHODS["gradient"].resolve(parse_options(found["option"], METHODS["gradient"].options))[
            "normalise"
        ]
        is True
    )
    assert (found["seed"], found["languages"]) == (3, "de,fr")


def test_the_command_of_a_front_says_a_methods_options_as_the_command_reads_them() -> None:
    options = {
        **{name: option.default for name, option in FRONT.options.items()},
        "heads": None,
        "within": 1.0,
    }
    spec = {"model": "m", "task": "intents", "languages": ["de"], "method": "shapley", "options": options,
            "method_options": {"target": None, "samples": 64}}  # fmt: skip
    found = asked(job_views.terminal(job(1, kind="front", params=spec)))
    assert parse_options(found["option"], METHODS["shapley"].options) == {
        "target": None,
        "samples": 64,
    }


def test_the_command_of_a_worth_job_says_all_that_it_was_given() -> None:
    spec = {"model": "m", "task": "intents", "languages": ["de"], "mask": {}, "batch_sizes": [2, 16], "rounds": 9,
            "seed": 4}  # fmt: skip
    found = asked(job_views.terminal(job(1, kind="worth", params=spec)))
    assert (found["batch_sizes"], found["rounds"], found["seed"]) == ("2,16", 9, 4)


def test_the_command_of_a_fine_tuning_says_all_that_it_was_given() -> None:
    spec = {"task": "intents", "steps": 12, "learning_rate": 0.0003, "seed": 2}
    found = asked(job_views.terminal(job(1, kind="finetune", params=spec)))
    assert {name: found[name] for name in spec} == spec


def test_a_number_is_read_only_from_an_option_that_holds_one() -> None:
    options = {"samples": 512, "level": 0.95, "target": None, "stop": "sign"}
    assert (integer_in(options, "samples"), number_in(options, "level")) == (512, 0.95)
    for name in ("target", "stop"):
        with pytest.raises(TypeError, match=name):
            number_in(options, name)
