"""Commands that headlab accepts, small enough to be run a thousand times, and the files that they take."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import typer
from support.fuzzing import TREES
from support.saved_models import save_classifier
from support.synthetic_text import write_splits

from headlab.cli.run import build, main

WORDS = ("anna", "bert", "sees", "hears", "likes", "the", "small", "green", "bird", "tree")
DECLARATION = """name = "mine"
format = "tsv"
files = "{language}.{split}.tsv"
columns = { text = "review", label = "stars" }
"""
BYTES_OF_OTHER_KINDS: Mapping[str, bytes] = {
    "a list": b"[1, 2]",
    "a number": b"7",
    "null": b"null",
    "a text": b'"mask"',
    "an empty object": b"{}",
    "nothing": b"",
    "a blank line": b"\n",
    "half an object": b'{"grid": {"enc',
    "deep lists": b"[" * 5000 + b"]" * 5000,
    "NaN": b'{"grid": NaN}',
    "a name twice": b'{"a": 1, "a": 2}',
    "a huge number": b'{"version": 1e999}',
    "many digits": b'{"version": ' + b"9" * 5000 + b"}",
    "a lone surrogate": b'{"model": {"name": "\\ud800"}}',
    "zero bytes": b"\0" * 64,
    "no UTF-8": b"\xff\xfe\xfa",
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "a byte-order mark": b"\xef\xbb\xbf{}",
    "an archive": b"PK\x03\x04broken",
    "an array file": b"\x93NUMPY\x01\x00v\x00broken",
    "a TOML table": b"[mask]\nx = 1\n",
}


@dataclass(frozen=True)
class Command:
    """A command line that headlab accepts.

    Attributes:
        name: The command and its subcommand.
        positionals: Its arguments without a flag.
        flags: {flag: its value, None for a switch}.
        computes: Whether it needs a model; others end within milliseconds.
    """

    name: tuple[str, ...]
    positionals: tuple[str, ...] = ()
    flags: Mapping[str, str | None] | None = None
    computes: bool = False

    @property
    def arguments(self) -> list[str]:
        """All of it as a list of arguments."""
        words = [*self.name, *self.positionals]
        for flag, value in (self.flags or {}).items():
            words += [flag] if value is None else [flag, value]
        return words


@dataclass(frozen=True)
class Flag:
    """A flag that a command knows.

    Attributes:
        spellings: "--option" and "-o".
        kind: int, float, str, Path or bool; of each value where it may be repeated.
    """

    spellings: tuple[str, ...]
    kind: type


ON_TASK = {"--model": "model", "--languages": "de"}
FEW_EXAMPLES = {"--size": "6"}
MASK = "mask.json"
TINY_LM = {
    "--steps": "2",
    "--layers": "1",
    "--heads": "2",
    "--width": "8",
    "--block": "8",
    "--batch": "4",
}
COMMANDS = (
    Command(
        ("score",), flags={**ON_TASK, **FEW_EXAMPLES, "--method": "leave-one-out"}, computes=True
    ),
    Command(("score",), flags={**ON_TASK, **FEW_EXAMPLES, "-o": "samples=16"}, computes=True),
    Command(("score",), flags={**ON_TASK, **FEW_EXAMPLES, "--method": "gradient"}, computes=True),
    Command(
        ("score",),
        flags={
            **ON_TASK,
            **FEW_EXAMPLES,
            "--method": "leave-one-out",
            "--players": "heads,neurons:2",
        },
        computes=True,
    ),
    Command(
        ("score",),
        flags={
            **ON_TASK,
            **FEW_EXAMPLES,
            "--task": "mine.toml",
            "--label-map": "0=turn_on,1=turn_off",
        },
        computes=True,
    ),
    Command(
        ("curve",),
        flags={
            **ON_TASK,
            **FEW_EXAMPLES,
            "--method": "random",
            "--dev-size": "6",
            "--points": "3",
            "--json": None,
        },
        computes=True,
    ),
    Command(("evaluate",), flags={**ON_TASK, **FEW_EXAMPLES, "--mask": MASK}, computes=True),
    Command(
        ("evaluate",),
        flags={
            **ON_TASK,
            **FEW_EXAMPLES,
            "--mask": MASK,
            "--changes": "out/changes.csv",
            "--split": "test",
        },
        computes=True,
    ),
    Command(
        ("check",),
        (MASK,),
        {
            **ON_TASK,
            "--task": "intents",
            "--size": "24",
            "--within": "99",
            "--junit": "out/junit.xml",
        },
        computes=True,
    ),
    Command(("doctor",), ("scripts",), {"--max-files": "20", "--json": None}),
    Command(("push",), (MASK, "other.json"), {"--to": "./out/shared", "--license": "mit"}),
    Command(("pull",), ("./shared",), {"--mask": "mask", "--out": "out/pulled.json"}),
    Command(("pull",), ("./shared",), {"--scores": "all", "--cache": "out/cache"}),
    Command(("pull",), ("./shared",), {"--out": "out/pulled.json", "--model": "model"}, True),
    Command(
        ("prune",),
        flags={
            **ON_TASK,
            **FEW_EXAMPLES,
            "--method": "random",
            "--rule": "bottom",
            "--k": "2",
            "--out": "out/mask.json",
        },
        computes=True,
    ),
    Command(
        ("prune",),
        flags={
            **ON_TASK,
            **FEW_EXAMPLES,
            "--method": "random",
            "--rule": "threshold",
            "--threshold": "0.1",
        },
        computes=True,
    ),
    Command(
        ("shrink",),
        flags={
            **FEW_EXAMPLES,
            "--mask": MASK,
            "--model": "model",
            "--repeats": "6",
            "--out": "out/smaller",
        },
        computes=True,
    ),
    Command(
        ("export",),
        flags={
            **FEW_EXAMPLES,
            "--mask": MASK,
            "--as": "folder",
            "--model": "model",
            "--out": "out/written",
        },
        computes=True,
    ),
    Command(
        ("worth",),
        flags={"--mask": MASK, "--model": "model", "--rounds": "6", "--batch-sizes": "1"},
        computes=True,
    ),
    Command(
        ("front",),
        flags={
            **ON_TASK,
            **FEW_EXAMPLES,
            "--method": "random",
            "--test-size": "6",
            "--points": "3",
            "--out": "out/front.json",
        },
        computes=True,
    ),
    Command(
        ("front",),
        flags={
            **ON_TASK,
            **FEW_EXAMPLES,
            "--method": "random",
            "--test-size": "6",
            "--points": "3",
            "--players": "heads,neurons:2",
        },
        computes=True,
    ),
    Command(
        ("interactions",),
        flags={**ON_TASK, **FEW_EXAMPLES, "--heads": "0.0,1.1", "--samples": "4"},
        computes=True,
    ),
    Command(
        ("experiment",),
        ("targeted",),
        {
            **ON_TASK,
            **FEW_EXAMPLES,
            "--method": "leave-one-out",
            "--test-size": "6",
            "--option": "runs=20",
        },
        computes=True,
    ),
    Command(("experiment",), flags={"--list": None, "--json": None}),
    Command(
        ("roles",),
        flags={
            "--model": "model",
            "--task": "intents",
            "--language": "de",
            **FEW_EXAMPLES,
            "--out": "out/roles",
        },
        computes=True,
    ),
    Command(
        ("roles",),
        flags={"--model": "model", "--conllu": "trees.conllu", "--frequencies": "words.txt"},
        computes=True,
    ),
    Command(("report",), (MASK,), {"--out": "out/report.html", "--title": "Heads"}),
    Command(
        ("gates",),
        flags={
            "--model": "model",
            "--language": "de",
            "--weight": "0.1",
            "-o": "steps=2",
            "--out": "out/gates",
        },
        computes=True,
    ),
    Command(
        ("finetune",),
        ("intents",),
        {
            **FEW_EXAMPLES,
            "--base": "model",
            "--method": "full",
            "--steps": "2",
            "--languages": "de",
            "--out": "out/tuned",
        },
        computes=True,
    ),
    Command(
        ("finetune",),
        flags={
            **FEW_EXAMPLES,
            "--base": "model",
            "--method": "lora",
            "--epochs": "0.001",
            "--languages": "de",
            "--out": "out/lora",
        },
        computes=True,
    ),
    Command(("models",)),
    Command(("families",)),
    Command(("tasks",), flags={"--task": "mine.toml"}),
    Command(("cache",), flags={"--cache": "cache"}),
    Command(
        ("app",),
        flags={"--port": "18599", "--address": "127.0.0.1", "--cache": "cache"},
        computes=True,
    ),
    Command(("info",), flags={"--cache": "cache"}),
    Command(
        ("worker",), flags={"--port": "0", "--host": "127.0.0.1", "--cache": "cache"}, computes=True
    ),
    Command(
        ("reproduce", "shim"),
        flags={"--data": "data", "--smoke": None, "--out": "out/shim"},
        computes=True,
    ),
    Command(
        ("train", "translation"),
        flags={"--data": "data", "--out": "out/translation", "-o": "steps=2", "--size": "4"},
        computes=True,
    ),
    Command(
        ("train", "lm"),
        flags={"--data": "data/wikitext2", "--out": "out/lm", **TINY_LM},
        computes=True,
    ),
    Command(
        ("train", "lm-prune"),
        ("lm",),
        {
            "--data": "data/wikitext2",
            "--out": "out/pruned",
            "--steps": "2",
            "--tune-steps": "2",
            "--batch": "4",
        },
        computes=True,
    ),
    Command(("mask", "show"), (MASK,)),
    Command(("mask", "validate"), (MASK,), {"--json": None}),
    Command(("mask", "diff"), (MASK, "other.json")),
    Command(("mask", "combine"), (MASK, "other.json"), {"--out": "out/both.json", "--how": "or"}),
    Command(("mask", "convert"), (MASK,), {"--to": "array", "--out": "out/mask.npy"}),
    Command(("mask", "convert"), ("0:1 1:2",), {"--grid": "2x3", "--count-from": "0"}),
    Command(
        ("mask", "convert"),
        ("array.json",),
        {"--from": "array", "--stack": "encoder", "--lists": "removed"},
    ),
    Command(
        ("mask", "snippet"), (MASK,), {"--model": "model", "--out": "out/snippet.py"}, computes=True
    ),
)


def known_flags() -> dict[tuple[str, ...], list[Flag]]:
    """The flags of every command, by its name and subcommand, as the command line declares them."""
    flags: dict[tuple[str, ...], list[Flag]] = {}
    top = typer.main.get_command(build())
    for name, command in top.commands.items():  # type: ignore[attr-defined] # a group's
        subcommands = getattr(command, "commands", {})
        if not subcommands:
            flags[(name,)] = _flags_of(command)
        for subname, subcommand in subcommands.items():
            flags[(name, subname)] = _flags_of(subcommand)
    return flags


def _flags_of(command: Any) -> list[Flag]:
    """The flags of one command."""
    options = [param for param in command.params if param.opts[0].startswith("-")]
    return [Flag(tuple(option.opts), _kind(option)) for option in options]


def _kind(option: typer.core.TyperOption) -> type:
    """The type of an option's value, or of each of its values."""
    if option.is_flag:
        return bool
    annotation = str(option.type_descriptor.annotation)
    for kind in (int, float, Path):
        if kind.__name__ in annotation:
            return kind
    return str


def write_files(folder: Path) -> None:
    """Write what the commands take, and odd things too, into an empty working directory."""
    with contextlib.redirect_stdout(io.StringIO()):
        save_classifier(folder / "model")
    for name, removed_heads in (("mask.json", "0:1 1:2"), ("other.json", "0:0 1:2")):
        _run("mask", "convert", removed_heads, "--model", "model", "--out", name)
    (folder / "cache").mkdir()  # a folder of this name is where results go
    (folder / "array.json").write_text("[[1, 0, 1], [0, 0, 1]]", encoding="utf-8")
    (folder / "mine.toml").write_text(DECLARATION, encoding="utf-8")
    for split in ("dev", "test"):
        rows = ""
        for row in range(8):
            review = f"{WORDS[row % 10]} {WORDS[3 * row % 10]}"
            rows += f"{review}\t{row % 2}\n"
        (folder / f"de.{split}.tsv").write_text("review\tstars\n" + rows, encoding="utf-8")
    write_splits(folder / "data" / "wikitext2", train=400)
    translations = folder / "data" / "mt"
    translations.mkdir()
    for split in ("train", "dev", "test"):
        rows = ""
        for row in range(40):
            rows += f"{WORDS[row % 10]} sees\t{WORDS[row % 7]} sieht\n"
        file = translations / f"en-de.{split}.tsv"
        file.write_text("source\ttarget\n" + rows, encoding="utf-8")
    (folder / "trees.conllu").write_text(TREES, encoding="utf-8")
    (folder / "words.txt").write_text(" ".join(WORDS) + "\n", encoding="utf-8")
    (folder / "scripts").mkdir()
    (folder / "scripts" / "clean.py").write_text("answers = model(**batch)\n", encoding="utf-8")
    _run("score", "--model", "model", "--languages", "de", "--method", "random", "--size", "6")
    scored_run = next(path.parent for path in folder.rglob("result.npz"))
    _run("push", MASK, str(scored_run), "--to", "./shared")
    tiny_lm = list(chain.from_iterable(TINY_LM.items()))
    _run("train", "lm", "--data", "data/wikitext2", "--out", "lm", *tiny_lm)
    _write_odd(folder / "odd")


def _run(*arguments: str) -> None:
    """Run a command that must succeed."""
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(output):
        exit_status = main(arguments)
    if exit_status:
        raise RuntimeError(f"headlab {' '.join(arguments)}: {output.getvalue()}")


def _write_odd(folder: Path) -> None:
    """Write files and folders that no command can use."""
    (folder / "empty").mkdir(parents=True)
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to("loop")
    (folder / "broken").symlink_to("nowhere")
    (folder / "null").symlink_to("/dev/null")
    for number, content in enumerate(BYTES_OF_OTHER_KINDS.values()):
        (folder / f"{number}.json").write_bytes(content)
    (folder / "config.json").mkdir()


def remove_outputs(folder: Path, kept_names: frozenset[str]) -> None:
    """Remove what a command wrote into its working directory; `kept_names` were there before."""
    for path in folder.iterdir():
        if path.name in kept_names:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
