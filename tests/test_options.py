"""What a page prints as a command, the command line reads back as the same values."""

from __future__ import annotations

import json
import math
import operator
import shlex
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from support.expected_errors import raises

from headlab.cli.run import build
from headlab.core import (
    HeadGrid,
    Option,
    Stack,
    integer_in,
    number_in,
    options_as_words,
    parse_options,
)
from headlab.jobs import Job
from headlab.jobs.experiment import ExperimentJob
from headlab.jobs.gates import WEIGHT_OPTION
from headlab.jobs.reading import read_command
from headlab.jobs.score import ScoreJob
from headlab.jobs.table import BUILT_IN_KINDS, job_from_params
from headlab.jobs.worth import MASK_PLACEHOLDER
from headlab.masks import full_mask
from headlab.methods import METHODS
from headlab.roles import OPTIONS as ROLES
from headlab.studies.table import (
    METHOD,
    METHOD_OPTIONS,
    OF,
    STUDIES,
    Experiment,
    offered_experiments,
)
from headlab.training import GateOptions, LmGateOptions, LmOptions, TranslationOptions

TABLES: dict[str, Mapping[str, Option]] = {
    **{f"score {key}": method.options for key, method in METHODS.items()},
    **{f"experiment {key}": study.options for key, study in offered_experiments().items()},
    "front": STUDIES["front"].options,
    "interactions": STUDIES["interactions"].options,
    "roles": ROLES,
    "gates": GateOptions.table(),
}
EVERY_OPTION = [(name, option) for name, table in TABLES.items() for option in table]


def values_besides(option: Option) -> Iterator[Any]:
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
        numbers = [option.kind(number) for number in (low, high, (low + high) / 2)]
        yield from (number for number in numbers if option.fits(number))
    if option.kind is float:
        yield from (number for number in (1e-7, 0.1 + 0.2) if option.fits(number))


@pytest.mark.parametrize(("table", "name"), EVERY_OPTION, ids=lambda word: word)
def test_every_option_goes_through_a_command_line_and_back(table: str, name: str) -> None:
    option_table = TABLES[table]
    option = option_table[name]
    values = [value for value in values_besides(option) if value != option.default]
    assert values
    for value in values:
        line = shlex.join(["headlab", *options_as_words("-o", {name: value}, option_table)])
        _, *words = shlex.split(line)
        assert words[::2] == ["-o"]
        read_options = parse_options(words[1::2], option_table)
        assert read_options == {name: value}
        assert type(read_options[name]) is type(value)
    assert list(options_as_words("-o", {name: option.default}, option_table)) == []


FRONT_OPTIONS = {
    name: value
    for name, value in STUDIES["front"].resolve({}).items()
    if not name.startswith(METHOD)
}
MASK = full_mask(HeadGrid((Stack("encoder", (2, 2)),))).to_json()
REQUIRED_FIELDS: dict[str, dict[str, Any]] = {  # what a job of each kind has to say
    "score": {"model": "m", "task": "intents", "languages": ["de"]},
    "curve": {"model": "m", "task": "intents", "languages": ["de"]},
    "experiment": {"model": "m", "task": "intents", "languages": ["de"], "experiment": "targeted"},
    "front": {"model": "m", "task": "intents", "languages": ["de"], "options": FRONT_OPTIONS},
    "gates": {"model": "m", "task": "intents", "languages": ["de"]},
    "interactions": {
        "model": "m",
        "task": "intents",
        "languages": ["de"],
        "options": {"heads": "9.3,9.4", "value": "accuracy", "samples": 16384, "target": 0.01},
    },
    "roles": {"model": "m", "languages": ["de"]},
    "worth": {"model": "m", "task": "intents", "languages": ["de"], "mask": MASK},
    "finetune": {"task": "intents"},
    "write": {"model": "m", "form": "small", "mask": MASK},
    "shrink": {"mask": "mask.json", "out": "smaller"},
    "export": {"mask": "mask.json", "out": "written"},
    "train lm": {"data": "text.txt"},
    "train lm-prune": {"model": "lm", "data": "text.txt"},
    "train translation": {"out": "model"},
}
EVERY_SETTING = [(kind, name) for kind, job in BUILT_IN_KINDS.items() for name in job.settings()]


@pytest.fixture(autouse=True)
def mask_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that the command of a job on a mask names, in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path(MASK_PLACEHOLDER).write_text(json.dumps(MASK))


def read_back(line: str) -> Job:
    """The job of a line; its command and `read_command` read the same one."""
    job = read_command(line)
    assert type(job).from_flags(parameters_of(line)) == job
    return job


@pytest.mark.parametrize(("kind", "name"), EVERY_SETTING, ids=lambda word: word)
def test_every_setting_of_a_job_goes_through_its_command_and_back(kind: str, name: str) -> None:
    job_class = BUILT_IN_KINDS[kind]
    setting = job_class.settings()[name]
    values = [value for value in values_besides(setting) if value != setting.default]
    assert values
    for value in [*values, setting.default]:
        job = job_class.model_validate(REQUIRED_FIELDS[kind] | {name: value})
        read_value = read_back(job.terminal_lines()).field_value(name)
        assert read_value == value
        assert type(read_value) is type(value)
    default_job = job_class.model_validate(REQUIRED_FIELDS[kind])
    assert read_back(default_job.terminal_lines()).field_value(name) == setting.default


@pytest.mark.parametrize(("kind", "name"), EVERY_SETTING, ids=lambda word: word)
def test_a_request_beyond_the_limits_of_a_setting_is_refused(kind: str, name: str) -> None:
    job_class = BUILT_IN_KINDS[kind]
    setting = job_class.settings()[name]
    assert job_class.model_fields[name].default == setting.default
    limits = [limit for limit in (setting.low - 1, setting.high + 1) if math.isfinite(limit)]
    assert limits or setting.choices or name == "players"  # `read_players` says what fits
    for limit in limits:
        with pytest.raises(ValidationError, match=name):
            job_class.model_validate(REQUIRED_FIELDS[kind] | {name: setting.kind(limit)})


# Jobs of every kind with any names and numbers, through the command that is printed for them.

NAMES = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=12)
TASKS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,12}", fullmatch=True)
LANGUAGES = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,5}", fullmatch=True).filter(
    lambda name: name != "all"
)
OPTIONS_WITH_FLAGS = ("weight", "trained", "stacks")  # options of gates that have their own flags
COUNTS = st.integers(1, 100_000)
SEEDS = st.integers(0, 2**63 - 1)
RATES = st.floats(1e-6, 0.999)
MAPS = st.none() | st.dictionaries(NAMES, NAMES, min_size=1, max_size=4)
LANGUAGE_LISTS = st.lists(LANGUAGES, min_size=1, max_size=3)
INPUT_FIELDS = {
    "model": NAMES,
    "task": TASKS,
    "label_map": MAPS,
    "languages": LANGUAGE_LISTS | st.just("all"),
}
RUN_FIELDS = {"seed": SEEDS, "ablation": st.sampled_from(["zero", "mean"])}


def values_of(table: Mapping[str, Option]) -> st.SearchStrategy[dict[str, Any]]:
    """Some options of a table, with their defaults or other values."""
    return st.fixed_dictionaries(
        {}, optional={name: value_of(option) for name, option in table.items()}
    )


def value_of(option: Option) -> st.SearchStrategy[Any]:
    return st.sampled_from([option.default, *values_besides(option)])


def with_method(fields: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A job with the options of one method."""
    jobs = []
    for key, method in METHODS.items():
        method_fields = {"method": st.just(key), "options": values_of(method.options)}
        jobs.append(st.fixed_dictionaries(fields | method_fields))
    return st.one_of(jobs)


SIZES = {"dev_size": st.just(512) | COUNTS, "test_size": st.none() | COUNTS}


def study_fields(study: Experiment, method: str | None) -> st.SearchStrategy[dict[str, Any]]:
    """A job of an experiment, or of the front, with the method that it uses, if any."""
    options: dict[str, st.SearchStrategy[Any]] = {}
    for name, option in study.options.items():
        if name in (METHOD, METHOD_OPTIONS, "within", "heads"):
            continue
        if option.kind is not dict:
            options[name] = value_of(option)
        if name in study.options_of:
            options[name] = values_of(METHODS[study.options_of[name]].options)
    for name, choices in study.lists.items():
        min_size = study.fewest.get(name, 1)
        words = st.lists(st.sampled_from(choices), min_size=min_size, unique=True)
        options[name] = words.map(",".join)
    fields = {
        **INPUT_FIELDS,
        **RUN_FIELDS,
        **SIZES,
        "experiment": st.just(study.key),
        "options": st.fixed_dictionaries(options),
    }
    if method is not None:
        fields[METHOD] = st.just(method)
    method_of_options = method or study.options_of.get(METHOD_OPTIONS)
    if method_of_options is not None:
        fields[METHOD_OPTIONS] = values_of(METHODS[method_of_options].options)
    return st.fixed_dictionaries(fields)


def experiment_fields() -> st.SearchStrategy[dict[str, Any]]:
    """A job of any experiment with any method that it may use."""
    return st.one_of(
        study_fields(study, method)
        for study in offered_experiments().values()
        for method in (study.options[METHOD].choices if METHOD in study.options else [None])
    )


def role_fields() -> st.SearchStrategy[dict[str, Any]]:
    """A job on the trees of a treebank, or on the texts of a task."""
    treebank_fields = {
        "model": NAMES,
        "languages": LANGUAGE_LISTS,
        "split": st.sampled_from(["dev", "test", "train"]),
        "size": st.none() | COUNTS,
        "options": values_of(ROLES),
    }
    task_fields = {**treebank_fields, "task": TASKS, "source": st.just("task")}
    return st.fixed_dictionaries(treebank_fields) | st.fixed_dictionaries(task_fields)


def gate_options() -> st.SearchStrategy[dict[str, Any]]:
    """Options of the training of gates, among them those with a flag of their own."""
    without_flags = options_but(GateOptions.table(), *OPTIONS_WITH_FLAGS)
    with_flags = st.fixed_dictionaries(
        {},
        optional={
            "stacks": st.sampled_from(["all", "encoder", "encoder,decoder"]),
            "trained": st.sampled_from(["gates", "all"]),
        },
    )
    return st.builds(operator.or_, without_flags, with_flags)


def front_fields() -> st.SearchStrategy[dict[str, Any]]:
    """A job of a front, which asks for a loss or for a number of heads."""
    front = STUDIES["front"]
    by_loss = st.fixed_dictionaries({"within": st.floats(0, 100), "heads": st.none()})
    by_heads = st.fixed_dictionaries({"within": st.none(), "heads": st.integers(0, 500)})
    fields_of_job = st.one_of(
        study_fields(front, method) for method in front.options[METHOD].choices
    )

    players = st.sampled_from(["heads", "kv-groups", "heads,neurons:8", "layers,feed-forward"])

    def with_options(
        fields: dict[str, Any], options: dict[str, Any], players: str
    ) -> dict[str, Any]:
        return {**fields, "options": {**fields["options"], **options, "players": players}}

    return st.builds(with_options, fields_of_job, by_loss | by_heads, players)


def interactions_fields() -> st.SearchStrategy[dict[str, Any]]:
    """A job of the interactions of named heads, of a layer's, or of the largest by a method."""
    numbers = st.lists(st.tuples(COUNTS, COUNTS), min_size=2, max_size=5, unique=True)
    heads = numbers.map(lambda heads: ",".join(f"{layer}.{head}" for layer, head in sorted(heads)))
    named = st.fixed_dictionaries({"heads": heads}) | st.fixed_dictionaries(
        {"layer": COUNTS.map(str)}
    )
    settings = st.fixed_dictionaries(
        {
            "value": st.sampled_from(["accuracy", "probability"]),
            "samples": COUNTS,
            "target": st.floats(0.001, 1),
        }
    )
    settings = settings | settings.map(lambda options: {OF: "7.200000", **options})
    inputs = {
        **INPUT_FIELDS,
        **RUN_FIELDS,
        "dev_size": SIZES["dev_size"],
        "experiment": st.just("interactions"),
    }

    def with_options(
        fields: dict[str, Any], choice: dict[str, Any], options: dict[str, Any]
    ) -> dict[str, Any]:
        return {**fields, "options": {**choice, **options}}

    largest = st.fixed_dictionaries({"top": st.integers(2, 64)})
    scored = st.one_of(
        st.fixed_dictionaries(
            {
                **inputs,
                METHOD: st.just(method),
                METHOD_OPTIONS: values_of(METHODS[method].options),
            }
        )
        for method in STUDIES["interactions"].options[METHOD].choices
    )
    return st.one_of(
        st.builds(with_options, st.fixed_dictionaries(inputs), named, settings),
        st.builds(with_options, scored, largest, settings),
    )


def options_but(table: Mapping[str, Option], *names: str) -> st.SearchStrategy[dict[str, Any]]:
    """Some options of a training, without those of the given names.

    Left out are options that limit one another or follow from a file.
    """
    return values_of({name: option for name, option in table.items() if name not in names})


PATHS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_./ -]{0,9}[a-z]", fullmatch=True)
FIELDS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "experiment": experiment_fields(),
    "front": front_fields(),
    "interactions": interactions_fields(),
    "roles": role_fields(),
    "score": with_method({**INPUT_FIELDS, **RUN_FIELDS, "size": COUNTS}),
    "curve": with_method(
        {
            **INPUT_FIELDS,
            **RUN_FIELDS,
            "size": st.none() | COUNTS,
            "split": st.sampled_from(["test", "dev"]),
            "points": st.none() | st.integers(2, 4096),
        }
    ),
    "gates": st.fixed_dictionaries(
        {
            **INPUT_FIELDS,
            "languages": LANGUAGE_LISTS,
            "weights": st.lists(st.floats(0, 10), min_size=1, max_size=3, unique=True),
            "seed": SEEDS,
            "options": gate_options(),
        }
    ),
    "worth": st.fixed_dictionaries(
        {
            **INPUT_FIELDS,
            "mask": st.just(MASK),
            "seed": SEEDS,
            "rounds": st.integers(6, 99),
            "batch_sizes": st.lists(st.integers(1, 1024), min_size=1, max_size=3),
        }
    ),
    "finetune": st.fixed_dictionaries(
        {"task": TASKS, "steps": st.integers(1, 20_000), "learning_rate": RATES, "seed": SEEDS}
    ),
    "shrink": st.fixed_dictionaries(
        {
            **INPUT_FIELDS,
            "mask": PATHS,
            "out": PATHS,
            "task": st.none() | TASKS,
            "size": COUNTS,
            "repeats": st.integers(6, 99),
            "onnx": st.booleans(),
            "seed": SEEDS,
            "dtype": st.none() | st.sampled_from(["float64", "bfloat16"]),
        }
    ),
    "export": st.fixed_dictionaries(
        {
            **INPUT_FIELDS,
            "mask": st.none() | PATHS,
            "out": PATHS,
            "texts": st.none() | PATHS,
            "vocabulary": st.sampled_from([None, "keep", "cut"]),
            "test_size": st.none() | COUNTS,
            "form": st.sampled_from(["folder", "small", "onnx", "gguf", "duo"]),
            "task": st.none() | TASKS,
            "size": COUNTS,
            "repeats": st.integers(6, 99),
            "seed": SEEDS,
            "dtype": st.none() | st.sampled_from(["float64", "bfloat16", "q8_0"]),
        }
    ),
    "train lm": st.fixed_dictionaries(
        {
            "data": PATHS,
            "out": PATHS,
            "words": st.none() | COUNTS,
            "training": options_but(LmOptions.table(), "width", "heads", "head_size"),
        }
    ),
    "train lm-prune": st.fixed_dictionaries(
        {
            "model": PATHS,
            "data": PATHS,
            "out": PATHS,
            "words": st.none() | COUNTS,
            "training": options_but(LmGateOptions.table(), "block", "start", "low", "high"),
        }
    ),
    "train translation": st.fixed_dictionaries(
        {
            "out": PATHS,
            "task": TASKS,
            "language": LANGUAGES,
            "mask": st.none() | PATHS,
            "size": COUNTS,
            "beams": st.integers(1, 9),
            "training": options_but(
                TranslationOptions.table(), "width", "encoder_heads", "decoder_heads"
            ),
        }
    ),
}


def job_of_each_line(job: Job) -> list[Job]:
    """The jobs that the lines of a job ask for: one a language where a command takes only one."""
    if job.key not in ("gates", "roles"):
        return [job]
    return [job.model_copy(update={"languages": [name]}) for name in job.language_codes]


def fields_with_defaults(job: Job) -> dict[str, Any]:
    """A job's fields, with the defaults of its options filled in."""
    fields = job.model_dump()
    if isinstance(job, ExperimentJob):
        fields.pop("method_options")
        fields["options"] = job.study().resolve(job.study_options())
    elif job.has_field("options"):
        defaults = {name: option.default for name, option in job.options_known().items()}
        fields["options"] = defaults | dict(job.field_value("options"))
        fields["options"].pop(WEIGHT_OPTION, None)
    return fields


@pytest.mark.parametrize("cases", [60, pytest.param(2000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", [key for key, kind in BUILT_IN_KINDS.items() if kind.has_command])
def test_a_job_is_read_back_from_its_command(
    kind: str, cases: int, record_property: Callable[[str, object], None]
) -> None:
    @settings(max_examples=cases, deadline=None)
    @given(FIELDS[kind])
    def check(fields: dict[str, Any]) -> None:
        job = BUILT_IN_KINDS[kind].model_validate(fields)
        read_jobs = [read_back(line) for line in job.terminal_lines().splitlines()]
        for read_job, printed_job in zip(read_jobs, job_of_each_line(job), strict=True):
            assert type(read_job) is type(printed_job)
            # as JSON, where 1, 1.0 and true differ
            read_fields = json.dumps(fields_with_defaults(read_job))
            assert read_fields == json.dumps(fields_with_defaults(printed_job))

    record_property("commands", cases)
    check()


def test_a_name_that_is_no_option_is_printed_and_a_word_without_a_value_is_refused() -> None:
    assert list(options_as_words("-o", {"unknown": True}, {})) == ["-o", "unknown=true"]
    for pair in ("samples", "=5"):
        with raises("option.malformed", repr(pair)):
            parse_options([pair], {})


@cache
def commands() -> Mapping[str, Any]:
    """The commands of headlab, by name."""
    group: Any = typer.main.get_command(build())
    return dict(group.commands)


def parameters_of(line: str) -> dict[str, Any]:
    """The arguments of a command as the command line reads them."""
    _, *words = shlex.split(line)
    command = commands()[words.pop(0)]
    if hasattr(command, "commands"):  # a group of them
        command = command.commands[words.pop(0)]
    return dict(command.make_context(command.name, words).params)


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("", "command.no_job", "headlab"),
        ("headlab", "command.no_job", "score"),
        ("ls score", "command.no_job", "headlab"),
        ("headlab prune", "command.no_job", "headlab prune"),
        ("headlab score 'de", "command.no_job", "'de"),
        ("headlab score --languages de --fast", "command.flag_unknown", "--fast"),
        ("headlab score --data DIR", "command.flag_unknown", "--languages"),
        ("headlab curve --dev-size 8", "command.flag_unknown", "--dev-size"),
        ("headlab score --method shapley --seed", "command.value_missing", "--seed"),
        ("headlab gates --weight much", "command.value_invalid", "--weight"),
        ("headlab worth", "command.value_invalid", "--mask"),
        ("headlab score de", "command.word_unexpected", "de"),
        ("headlab score --size 0", "job.field_invalid", "from 1 to 100000"),
        ("headlab curve --split no", "job.field_invalid", "test or dev"),
        ("headlab score --method no", "method.unknown", "shapley"),
        ("headlab experiment", "experiment.unknown", "targeted"),
    ],
)
def test_a_line_that_is_no_command_of_a_job_says_what_would_be(
    line: str, code: str, words: str
) -> None:
    with raises(code, words):
        read_command(line)


def test_the_task_of_a_declaration_is_read_back_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declaration = tmp_path / "mood.toml"
    declaration.write_text(
        'name = "mood"\nformat = "csv"\nfiles = "{language}.{split}.csv"\n'
        'columns = { text = "text", label = "label" }\n'
    )
    monkeypatch.setenv("HEADLAB_TASKS", str(declaration))
    job = ScoreJob(model="m", task="mood", languages=["en"])
    assert str(declaration) in job.terminal_lines()
    assert read_command(job.terminal_lines()) == job


def line_of(kind: str, **fields: Any) -> str:
    """The line that is printed for a job of the list."""
    job = job_from_params(kind, {"model": "m", "task": "intents", "languages": ["de"], **fields})
    assert job is not None
    return job.terminal_lines()


def test_a_boolean_option_of_a_job_is_printed_as_the_command_reads_it() -> None:
    line = line_of("score", method="gradient", options={"form": "token", "normalise": True})
    options = parse_options(parameters_of(line)["option"], METHODS["gradient"].options)
    assert options == {"form": "token", "normalise": True}


def test_the_command_of_a_front_says_a_methods_options_as_the_command_reads_them() -> None:
    line = line_of("front", options=FRONT_OPTIONS, method_options={"target": None, "samples": 64})
    options = parse_options(parameters_of(line)["option"], METHODS["shapley"].options)
    assert options == {"target": None, "samples": 64}


def test_a_number_is_read_only_from_an_option_that_holds_one() -> None:
    options = {"samples": 512, "level": 0.95, "target": None, "stop": "sign"}
    assert (integer_in(options, "samples"), number_in(options, "level")) == (512, 0.95)
    for name in ("target", "stop"):
        with pytest.raises(TypeError, match=name):
            number_in(options, name)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (Option(8, "", kind=int, low=1, high=50), "a whole number from 1 to 50"),
        (Option(8, "", kind=int, low=1), "a whole number of 1 or more"),
        (Option(8, "", kind=int), "a whole number"),
        (
            Option(0.5, "", kind=float, low=0, high=1, open=True),
            "a number between 0 and 1, both excluded",
        ),
        (
            Option(None, "", kind=float, low=0, open=True, optional=True),
            "a number above 0, or none",
        ),
        (Option("", ""), "a text"),
        (Option("zero", "", ("zero", "mean")), "zero or mean"),
        (Option(True, "", kind=bool), "true or false"),
        (Option({}, "", kind=dict), "options by name"),
        (Option((), "", kind=tuple), "a value of type tuple"),
    ],
)
def test_an_option_says_in_plain_words_which_values_it_takes(option: Option, words: str) -> None:
    assert option.range == words


@pytest.mark.parametrize("table", TABLES)
def test_no_option_names_a_type_of_python(table: str) -> None:
    for option in TABLES[table].values():
        python_types = {"int", "float", "str", "bool", "dict", "type"}
        assert not python_types & set(option.range.replace(",", "").split()), option.range
