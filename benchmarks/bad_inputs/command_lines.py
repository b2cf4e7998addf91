"""Command lines that headlab accepts, with one thing wrong.

The commands are those of `commands.py`: every command of headlab on a model of six heads. What is
wrong is drawn from the seed: a value, a flag, the order, the content of a file, where the output
goes, or a variable of the environment. Commands of `reproduce` besides `shim` need data that this
folder cannot hold; they are tried with flags whose values are refused before data are read.

A wrong value that is legal may mean hours of work (`-o samples=1000000000`). Such a command is ended
where it begins to compute, in process and for real (`until_computing.py`), and counts as accepted.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, Any
from unittest import mock

import huggingface_hub.constants

import headlab
from bad_inputs import until_computing
from bad_inputs.case import ROOT, WORDS_KEPT, Answer, BadInput, Verdict, answer_of_process
from bad_inputs.commands import (
    BYTES_OF_OTHER_KINDS,
    COMMANDS,
    Command,
    Flag,
    known_flags,
    remove_outputs,
    write_files,
)
from headlab.cli.run import main
from headlab.methods import METHODS
from headlab.studies.table import STUDIES
from headlab.training import GateOptions, LmOptions, TranslationOptions

TEXTS = (
    "", " ", "\t", "\n", "-", "--", "---", "x", "none", "None", "null", "nan", "all", ",", ",,",
    "a,b", "=", "a=", "=a", "a=b", "a==b", ":", "::", "/", ".", "..", "../..", "~", "~nobody", "*",
    "?", "[", "]", "{}", "[]", '"', "'", "\\", "%s", "%(x)s", "{0}", "$HOME", "`id`", ";", "|",
    "&", "<a>", "[red]x[/red]", "[/]", "\x1b[2J", "\x07", "\x00", "a\x00b", "\x7f", "\u2028",
    "\u202e", "\ufeff", "\ud800", "é", "e\u0301", "ß", "İ", "日本語", "ไทย", "😀", "\U0010ffff",
    "a" * 255, "a" * 256, "a" * 257, "a" * 5000, "é" * 200, "a/" * 300, "x/" + "y" * 300, "de de",
    "DE", "de,de", "de,", "xx", "shapley ", "Shapley", "SHAPLEY", "cpu,", "cuda:99", "cuda:-1",
    "meta", "cpu:7", "http://x", "a:b:c", "owner/name", "owner//name", "a..b/c",
    "http://127.0.0.1:1/x", "file:///dev/null", "\\\\x\\y",
)  # fmt: skip
NUMBERS = (
    "-1", "-0", "0", "1", "2", "3", "7", "+5", "1.5", "-0.5", "0.0", "1e3", "1e-400", "1e400",
    "-1e400", "nan", "inf", "-inf", "Infinity", "1_000", "٣", "½", "²", "0x10", "0b1", "1,5",
    "1 000", " 5", "5 ", "five", "", " ", "--", "9" * 30, "9" * 5000, "-" + "9" * 30, "2147483648",
    "4294967296", "9223372036854775807", "9223372036854775808", "18446744073709551616", "1e308",
    "True", "1/2", "1j", "\ud800", "\x00", "1\x00", "1\n",
)  # fmt: skip
PATHS = (
    "", " ", ".", "missing", "missing/inside", "odd/empty", "odd/fifo", "odd/loop", "odd/broken",
    "odd/null", "odd/loop/inside", "odd/fifo/inside", "odd/config.json", "mask.json/inside",
    "model", "model/config.json", "words.txt", "/dev/null", "/dev/null/inside", "/dev/full",
    "/dev/zero", "/dev/tty", "/proc/self/mem", "/proc/nothing/x", "/proc/1/environ",
    "/sys/nothing", "/sys/kernel/x", "~", "~nobody/x", "-", "--", "a\x00b", "\ud800", "\udcff",
    "\n", "a\nb", "\x1b[2J", "a" * 255, "a" * 256, "é" * 200, "a/" * 3000, "x" * 5000, "nul",
    "con", "http://x/y", "file:///x", "*", "?", "日本語", "odd", "data", "mine.toml", "de.dev.tsv",
    "trees.conllu", "cache", "lm",
)  # fmt: skip
FLAGS_OF_NAME_OR_PATH = ("--model", "--task", "--base", "--translation-model", "--warm", "--allow")
OUTPUT_FLAGS = ("--out", "--changes", "--cache", "--junit", "--to")
# Files of the working directory, which no command may write over.
PATHS_IN_USE = (
    "model",
    "words.txt",
    "odd",
    "data",
    "mine.toml",
    "de.dev.tsv",
    "trees.conllu",
    "lm",
    "scripts",
    "shared",
    "model/config.json",
)
SURPLUS = (
    "--verbose", "--version", "-v", "-h", "--no-json", "--json=1", "--json=", "--seed=", "--size=",
    "-", "--", "---", "-o", "-x", "--out", "--model", "--", "extra", "", " ", "\ud800", "a\x00b",
    "--\ud800", "--日本", "--" + "x" * 5000, "-ooo", "-o=", "-1", "@file", "--help=1", "-oseed=1",
    "--option=", "--languages=", "--k", "--heads=1", "--lambda=-1",
)  # fmt: skip
CONFLICTS: Sequence[tuple[str, ...]] = (
    ("--device", "cpu", "--device-map", "auto"), ("--device-map", "auto"),
    ("--device-map", "sequential"), ("--within", "1", "--heads", "3"),
    ("--rule", "harmful", "--k", "2"), ("--rule", "bottom"), ("--rule", "threshold"),
    ("--rule", "bottom", "--k", "999"), ("--rule", "harmful", "--correction", "holm"),
    ("--grid", "2x3", "--model", "model"), ("--stack", "decoder"), ("--json",),
    ("--steps", "2", "--epochs", "1"), ("--task", "mine.toml"), ("--bleu",), ("--beams", "3"),
    ("--lm-eval", "arc_easy"), ("--lm-eval-folder", "data"), ("--workers", "2"),
    ("--every", "--points", "2"), ("--onnx", "--dtype", "float16"), ("--dtype", "float16"),
    ("--dtype", "bfloat16"), ("--dtype", "float64"), ("--train-model",), ("--stacks", "decoder"),
    ("--language", "zz"), ("--languages", "zz"), ("--label-map", "a=b"),
    ("--label-map", "turn_on=0"), ("--split", "train"), ("--split", "test"), ("--split", "none"),
    ("--targets", "query"), ("--targets", ","), ("--rank", "0"), ("--preset", "x"),
    ("--freeze-layers", "99"), ("--freeze-embeddings",), ("--from", "pairs"), ("--from", "json"),
    ("--to", "pairs"), ("--count-from", "1"), ("--lists", "removed"), ("--orders", "x"),
    ("--by", "x"), ("--by", "heads"), ("--full",), ("--list",), ("--how", "majority"),
    ("--ray", ""), ("--ray", "x"), ("--part", "x"), ("--part", "intents", "--part", "intents"),
    ("--dropout", "1"), ("--dropout", "2"), ("--kind", "x"), ("--tokenizer", "x"),
    ("--heads", "5"), ("--width", "7"), ("--persistent", "-1"), ("--micro-batch", "3"),
    ("--words", "1"), ("--max-length", "1"), ("--vocabulary", "1"), ("--positions", "x"),
    ("--method", "exact"), ("--method", "paper"), ("--method", "relevance"),
    ("--method", "nothing"), ("--ablation", "mean"), ("--ablation", "x"),
    ("--players", "neurons:0"), ("--players", "neurons:99999"), ("--players", "neurons"),
    ("--players", "hats"), ("--players", "layers,layers"), ("--players", "layers:2"),
    ("--players", "layers", "--method", "confidence"), ("--players", ""),
    ("--ablation", "resample"), ("--ablation", "counterfactual"), ("--ablation", "streaming"),
    ("--ablation", "resample", "--size", "1"), ("--ablation", "resample", "--method", "gradient"),
    ("--ablation", "streaming:4"), ("--ablation", "streaming:4,0"), ("--ablation", "streaming:-1,4"),
    ("--ablation", "streaming:4,99999999"),
)  # fmt: skip
# Odd values by variable of the environment.
VARIABLES: Mapping[str, Sequence[str]] = {
    "HEADLAB_CACHE": PATHS,
    "HEADLAB_DATA": PATHS,
    "HEADLAB_TASKS": (
        *PATHS,
        "mine.toml:mine.toml",
        ":::",
        "odd/0.json",
        "odd/6.json",
    ),
    "HEADLAB_MODELS": TEXTS,
    "HEADLAB_TOKEN": TEXTS,
    "COLUMNS": NUMBERS,
    "TERM": TEXTS,
    "HF_HUB_CACHE": PATHS,
    "HOME": PATHS,
    "TMPDIR": PATHS,
}
CHANNELS = (
    "stdout is closed",
    "stdout is full",
    "stdout is missing",
    "stdout takes ASCII only",
    "stderr is closed",
    "stderr is full",
    "stderr is missing",
)
OTHERWISE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}


@dataclass(frozen=True)
class CommandLine:
    """A command line with one thing wrong.

    Attributes:
        wrong: What that is.
        arguments: What follows `headlab`.
        channel: One of `CHANNELS`, or empty: output goes where it should.
        environment: Variables of this command.
    """

    wrong: str
    arguments: Sequence[str]
    channel: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        """All of it as bytes."""
        parts = [list(self.arguments), self.channel, dict(self.environment)]
        return json.dumps(parts).encode()


# A way to spoil a command, of which the flags are given too.
Way = Callable[[random.Random, Command, Sequence[Flag]], CommandLine]


def odd_value(rng: random.Random, flag: Flag) -> str:
    """A value that does not fit a flag, or only just."""
    if flag.spellings[0] in OUTPUT_FLAGS:
        free_paths = [path for path in PATHS if path not in PATHS_IN_USE]
        return rng.choice(free_paths)
    if flag.kind in (int, float):
        return rng.choice(NUMBERS)
    files = tuple(f"odd/{number}.json" for number in range(len(BYTES_OF_OTHER_KINDS)))
    if flag.kind is Path:
        return rng.choice(PATHS + files)
    if flag.spellings[0] in FLAGS_OF_NAME_OR_PATH:
        return rng.choice(TEXTS + PATHS + files)
    return rng.choice(TEXTS)


def wrong_value(rng: random.Random, command: Command, flags: Sequence[Flag]) -> CommandLine:
    """One flag has an odd value, whether or not the command had that flag."""
    flags_with_value = [flag for flag in flags if flag.kind is not bool]
    if not flags_with_value:
        return surplus(rng, command, flags)
    flag = rng.choice(flags_with_value)
    value = odd_value(rng, flag)
    spelling = rng.choice(flag.spellings)
    other_flags = {}
    for name, flag_value in (command.flags or {}).items():
        if name not in flag.spellings:
            other_flags[name] = flag_value
    arguments = replace(command, flags=other_flags).arguments
    added_arguments = [spelling, value]
    if spelling.startswith("--") and rng.random() < 0.3:
        added_arguments = [f"{spelling}={value}"]
    wrong = f"{spelling} is {value[:40]!r}"
    return CommandLine(wrong, [*arguments, *added_arguments])


def wrong_positional(rng: random.Random, command: Command, flags: Sequence[Flag]) -> CommandLine:
    """One argument without a flag is odd, or there is none."""
    if not command.positionals:
        return surplus(rng, command, flags)
    positionals = list(command.positionals)
    index = rng.randrange(len(positionals))
    kind = Path if rng.random() < 0.7 else str
    value = odd_value(rng, Flag(("",), kind))
    if rng.random() < 0.9:
        positionals[index] = value
    else:
        del positionals[index]
    wrong = f"argument {index + 1} is {value[:40]!r}"
    spoilt_command = replace(command, positionals=tuple(positionals))
    return CommandLine(wrong, spoilt_command.arguments)


def wrong_option(rng: random.Random, command: Command, flags: Sequence[Flag]) -> CommandLine:
    """A name=value has an odd name or value."""
    spellings = []
    for flag in flags:
        for spelling in flag.spellings:
            if spelling in ("-o", "--option"):
                spellings.append(spelling)
    if not spellings:
        return wrong_value(rng, command, flags)
    tables = [METHODS[name].options for name in METHODS]
    tables += [study.options for study in STUDIES.values()]
    tables += [GateOptions.table(), LmOptions.table(), TranslationOptions.table()]
    option_names = sorted({name for table in tables for name in table})
    name = rng.choice(option_names) if rng.random() < 0.9 else rng.choice(TEXTS)
    pair = f"{name}={rng.choice(NUMBERS + TEXTS)}"
    arguments = [*command.arguments, rng.choice(spellings), pair]
    return CommandLine(f"an option is {pair[:60]!r}", arguments)


def no_value(rng: random.Random, command: Command, flags: Sequence[Flag]) -> CommandLine:
    """A flag lacks its value: at the end, or before another flag."""
    flag = rng.choice(flags).spellings[-1]
    arguments = command.arguments
    index = rng.randrange(len(command.name), len(arguments) + 1)
    wrong = f"{flag} without a value, as part {index}"
    return CommandLine(wrong, [*arguments[:index], flag, *arguments[index:]])


def surplus(rng: random.Random, command: Command, flags: Sequence[Flag]) -> CommandLine:
    """There is something more on the line."""
    arguments = command.arguments
    index = rng.randrange(len(arguments) + 1)
    part = rng.choice(SURPLUS)
    wrong = f"{part[:40]!r} as part {index}"
    return CommandLine(wrong, [*arguments[:index], part, *arguments[index:]])


def lack(rng: random.Random, command: Command, flags: Sequence[Flag]) -> CommandLine:
    """A part of the line is missing."""
    arguments = command.arguments
    index = rng.randrange(len(arguments))
    wrong = f"without part {index}, {arguments[index]}"
    return CommandLine(wrong, arguments[:index] + arguments[index + 1 :])


def other_order(rng: random.Random, command: Command, flags: Sequence[Flag]) -> CommandLine:
    """The parts of the line stand in another order."""
    arguments = command.arguments
    first_index = rng.randrange(len(arguments))
    second_index = rng.randrange(len(arguments))
    moved_part = arguments[first_index]
    arguments[first_index] = arguments[second_index]
    arguments[second_index] = moved_part
    wrong = f"parts {first_index} and {second_index} exchanged"
    return CommandLine(wrong, arguments)


def misspelling(rng: random.Random, command: Command, flags: Sequence[Flag]) -> CommandLine:
    """A letter of the line is replaced, doubled or missing."""
    arguments = command.arguments
    index = rng.choice([number for number, part in enumerate(arguments) if part])
    part = arguments[index]
    letter_index = rng.randrange(len(part))
    letter = part[letter_index]
    replacements = ("", letter * 2, letter.upper(), "_", "\ud800", "\x00", " ", "é")
    replacement = rng.choice(replacements)
    beginning = part[:letter_index]
    rest = part[letter_index + 1 :]
    arguments[index] = beginning + replacement + rest
    return CommandLine(f"{part} is {arguments[index]!r}", arguments)


def conflict(rng: random.Random, command: Command, flags: Sequence[Flag]) -> CommandLine:
    """A flag is added that does not go with the others, or is there twice."""
    conflicting_flags = rng.choice(CONFLICTS)
    wrong = f"also {' '.join(conflicting_flags)}"
    return CommandLine(wrong, [*command.arguments, *conflicting_flags])


def other_channel(rng: random.Random, command: Command, flags: Sequence[Flag]) -> CommandLine:
    """The output cannot be written."""
    channel = rng.choice(CHANNELS)
    printing_flags = rng.choice(((), ("--json",), ("--help",)))
    return CommandLine(channel, [*command.arguments, *printing_flags], channel)


def other_environment(rng: random.Random, command: Command, flags: Sequence[Flag]) -> CommandLine:
    """A variable of the environment has an odd value."""
    name = rng.choice(list(VARIABLES))
    # No process can have the others in its environment.
    values = []
    for value in VARIABLES[name]:
        if "\0" not in value and "\ud800" not in value:
            values.append(value)
    value = rng.choice(values)
    return CommandLine(
        f"{name} is {value[:40]!r}",
        command.arguments,
        environment={name: value},
    )


# The ways to spoil a command, and how often each is drawn.
WAYS: Mapping[Way, int] = {
    wrong_value: 12,
    wrong_positional: 3,
    wrong_option: 4,
    no_value: 1,
    surplus: 2,
    lack: 1,
    other_order: 1,
    misspelling: 2,
    conflict: 3,
    other_channel: 1,
    other_environment: 2,
}


def inputs(folder: Path, seed: int) -> Iterator[BadInput]:
    """Yield command lines without end; see `case.py`.

    Args:
        folder: The working directory.
        seed: What is drawn.
    """
    # The package read the environment when it was imported.
    huggingface_hub.constants.HF_HUB_OFFLINE = True
    write_files(folder)
    # The examples are made when they are first read, which takes seconds for 15 languages.
    intents = headlab.task("intents")
    intents.examples("en", "train")
    for language in intents.languages:
        intents.examples(language, "dev")
    input_names = frozenset(path.name for path in folder.iterdir())
    rng = random.Random(seed)
    flags = known_flags()
    papers = []
    for name in flags:
        if name[0] == "reproduce" and name[1] != "shim":
            papers.append(Command(name))
    while True:
        command = rng.choice(COMMANDS if rng.random() < 0.97 else papers)
        (way,) = rng.choices(list(WAYS), list(WAYS.values()))
        line = way(rng, command, flags[command.name])
        wrong = f"{' '.join(command.name)}: {line.wrong}"
        yield BadInput(
            wrong=wrong.encode("utf-8", "backslashreplace").decode(),
            content=line.content,
            attempt=partial(attempt, line, folder, input_names),
            attempt_for_real=partial(attempt_for_real, line, folder, input_names),
        )


def attempt(line: CommandLine, folder: Path, input_names: frozenset[str]) -> Answer:
    """Run a command line in this process.

    Args:
        line: The command line.
        folder: The working directory.
        input_names: Names in it that stay; everything else is removed afterwards.
    """
    environment = OTHERWISE | dict(line.environment)
    try:
        with mock.patch.dict(os.environ, environment), _output(line.channel) as (stdout, stderr):
            exit_status = _run(line.arguments)
            output = _stream_bytes(stdout)
            errors = _stream_bytes(stderr)
    finally:
        remove_outputs(folder, input_names)
    if isinstance(exit_status, Answer):
        return exit_status
    if line.channel and exit_status:
        # Nobody could read a sentence; that no traceback was raised is all that can be asked.
        return Answer(Verdict.REFUSED, f"{line.channel}, exit status {exit_status}")
    return answer_of_process(exit_status, output, errors)


def _run(arguments: Sequence[str]) -> int | Answer:
    """The exit status of a command, 0 if it began to compute; an answer if it raised an exception."""
    try:
        with until_computing.ended_when_computing():
            return main(arguments)
    except until_computing.Computing:
        return 0
    except BaseException:
        return Answer(Verdict.TRACEBACK, traceback.format_exc()[-WORDS_KEPT:])


@contextlib.contextmanager
def _output(channel: str) -> Iterator[tuple[IO[str], IO[str]]]:
    """Streams in place of stdout and stderr, which encode as those of a terminal do."""
    encoding = "ascii" if "ASCII" in channel else "utf-8"
    streams: list[Any] = []
    for name, errors in (("stdout", "strict"), ("stderr", "backslashreplace")):
        if channel == f"{name} is missing":
            streams.append(None)
            continue
        unusable = channel in (f"{name} is closed", f"{name} is full")
        raw: Any = _unusable(channel) if unusable else io.BytesIO()
        streams.append(io.TextIOWrapper(raw, encoding=encoding, errors=errors))
    stdout, stderr = streams
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        yield stdout, stderr
    for stream in filter(None, streams):
        with contextlib.suppress(OSError, ValueError):
            stream.close()


def _unusable(channel: str) -> IO[bytes]:
    """A file that cannot be written to: one on a full disk, or a pipe that nobody reads."""
    if "full" in channel:
        return open("/dev/full", "wb")  # noqa: PTH123 - closed with its stream
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "wb")


def _stream_bytes(stream: Any) -> bytes:
    """The bytes that were written to a stream; none if they cannot be read back."""
    if stream is None:
        return b""
    with contextlib.suppress(OSError, ValueError):
        stream.flush()
    if isinstance(stream.buffer, io.BytesIO):
        return stream.buffer.getvalue()
    return b""


def attempt_for_real(line: CommandLine, folder: Path, input_names: frozenset[str]) -> Answer:
    """Run a command line in a process of its own; arguments as for `attempt`."""
    script = Path(until_computing.__file__)
    command = [sys.executable, str(script), *line.arguments]
    variables = {
        **os.environ,
        **OTHERWISE,
        "PYTHONPATH": str(ROOT),
        **line.environment,
    }
    if "ASCII" in line.channel:
        variables["PYTHONIOENCODING"] = "ascii"
    if line.channel.endswith("missing"):
        descriptor = 1 if line.channel.startswith("stdout") else 2
        command = ["sh", "-c", f'exec "$@" {descriptor}>&-', "sh", *command]
    streams: dict[str, Any] = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    with contextlib.ExitStack() as stack:
        if line.channel.endswith(("closed", "full")):
            stream_name = line.channel.split()[0]
            streams[stream_name] = stack.enter_context(_unusable(line.channel))
        try:
            process = subprocess.run(
                command,
                cwd=folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                **streams,
            )
        except (ValueError, OSError) as error:
            return Answer(Verdict.REFUSED, f"the system does not run it: {error}")
        finally:
            remove_outputs(folder, input_names)
    stderr = process.stderr or b""
    if line.channel and process.returncode > 0 and not stderr:
        return Answer(Verdict.REFUSED, f"{line.channel}, exit status {process.returncode}")
    return answer_of_process(process.returncode, process.stdout or b"", stderr)
