"""`headlab train lm` and `headlab train lm-prune`: a language model from a text, and its heads removed for good."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlab.cli.output import AsJson, Device, Seed, print_json
from headlab.cli.steps_shown import lm_words, shown
from headlab.errors import HeadlabError
from headlab.options import Option, parse_options
from headlab.tables import NOTHING
from headlab.training.lm.options import (
    GATE_OPTIONS,
    OPTIONS,
    LmGateOptions,
    LmOptions,
    LmStep,
    lm_gate_options,
    lm_options,
)

if TYPE_CHECKING:  # it needs torch, which takes seconds, and `headlab --help` does not
    from headlab.training.lm.train import Watch

TextData = Annotated[
    Path, typer.Option("--data", help="text file, or folder with train.txt, valid.txt and test.txt; a line a paragraph")
]
Words = Annotated[int | None, typer.Option(min=1, help="take so many words of the training text; default all")]
OutFolder = Annotated[Path, typer.Option(help="folder to write")]
Others = Annotated[
    list[str] | None, typer.Option("--option", "-o", help="name=value of what has no option here, like clip=0.5")
]
Micro = Annotated[int | None, typer.Option(help=OPTIONS["micro_batch"].help)]
Batch = Annotated[int, typer.Option(help=OPTIONS["batch"].help)]


def lm(
    data: TextData,
    out: OutFolder = Path("lm"),
    kind: Annotated[str, typer.Option(help=OPTIONS["kind"].help)] = LmOptions.kind,
    tokenizer: Annotated[str, typer.Option(help=OPTIONS["tokenizer"].help)] = LmOptions.tokenizer,
    vocabulary: Annotated[int, typer.Option(help=OPTIONS["vocabulary"].help)] = LmOptions.vocabulary,
    layers: Annotated[int, typer.Option(help=OPTIONS["layers"].help)] = LmOptions.layers,
    heads: Annotated[int, typer.Option(help=OPTIONS["heads"].help)] = LmOptions.heads,
    width: Annotated[int, typer.Option(help=OPTIONS["width"].help)] = LmOptions.width,
    persistent: Annotated[int, typer.Option(help=OPTIONS["persistent"].help)] = LmOptions.persistent,
    positions: Annotated[str, typer.Option(help=OPTIONS["positions"].help)] = LmOptions.positions,
    block: Annotated[int, typer.Option(help=OPTIONS["block"].help)] = LmOptions.block,
    batch: Batch = LmOptions.batch,
    micro_batch: Micro = None,
    steps: Annotated[int, typer.Option(help=OPTIONS["steps"].help)] = LmOptions.steps,
    learning_rate: Annotated[float, typer.Option(help=OPTIONS["learning_rate"].help)] = LmOptions.learning_rate,
    dropout: Annotated[float, typer.Option(help=OPTIONS["dropout"].help)] = LmOptions.dropout,
    option: Others = None,
    words: Words = None,
    device: Device = None,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Train a language model on a text and measure its perplexity on held-out parts.

    Interrupt it when you like: the same command goes on where it was.
    """
    flags = {
        "kind": kind, "tokenizer": tokenizer, "vocabulary": vocabulary, "layers": layers, "heads": heads,
        "width": width, "persistent": persistent, "positions": positions, "block": block, "batch": batch,
        "micro_batch": micro_batch, "steps": steps, "learning_rate": learning_rate, "dropout": dropout, "seed": seed,
    }  # fmt: skip
    options = lm_options(flags | _others(option, OPTIONS, flags))
    from headlab.models.load import pick_device
    from headlab.training.lm.text import read_lines
    from headlab.training.lm.train import train_lm

    with _watch() as watch:
        train_lm(read_lines(data, words), out, options, device=str(pick_device(device)), watch=watch)
    _report(out, json)


def lm_prune(
    model: Annotated[Path, typer.Argument(help="folder that headlab train lm wrote")],
    data: TextData,
    out: OutFolder = Path("lm-pruned"),
    weight: Annotated[float, typer.Option(help=GATE_OPTIONS["weight"].help)] = LmGateOptions.weight,
    warm_up: Annotated[bool, typer.Option(help=GATE_OPTIONS["warm_up"].help)] = True,
    open_start: Annotated[bool, typer.Option(help=GATE_OPTIONS["open_start"].help)] = True,
    scale: Annotated[bool, typer.Option(help=GATE_OPTIONS["scale"].help)] = True,
    steps: Annotated[int, typer.Option(help=GATE_OPTIONS["steps"].help)] = LmGateOptions.steps,
    tune_steps: Annotated[int, typer.Option(help=GATE_OPTIONS["tune_steps"].help)] = LmGateOptions.tune_steps,
    gate_rate: Annotated[float, typer.Option(help=GATE_OPTIONS["gate_rate"].help)] = LmGateOptions.gate_rate,
    model_rate: Annotated[
        float, typer.Option(help=GATE_OPTIONS["model_rate"].help + ", and of the fine-tuning")
    ] = LmGateOptions.model_rate,
    batch: Batch = LmGateOptions.batch,
    micro_batch: Micro = None,
    option: Others = None,
    words: Words = None,
    device: Device = None,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Learn a gate a head, remove heads whose gates closed for good, and fine-tune what is left (Shim et al., 2021).

    Interrupt it when you like: the same command goes on where it was.
    """
    flags = {
        "weight": weight, "warm_up": warm_up, "open_start": open_start, "scale": scale, "steps": steps,
        "tune_steps": tune_steps, "gate_rate": gate_rate, "model_rate": model_rate, "batch": batch,
        "micro_batch": micro_batch, "seed": seed,
    }  # fmt: skip
    others = _others(option, GATE_OPTIONS, flags)
    if "block" in others:
        raise HeadlabError("block is that of the model's own training; leave it out", code="lm.block_fixed")
    options = lm_gate_options({"tune_rate": model_rate} | flags | others | {"block": _block_of(model)})
    from headlab.models.load import pick_device
    from headlab.training.lm.prune import prune_lm
    from headlab.training.lm.text import read_lines

    with _watch() as watch:
        prune_lm(model, read_lines(data, words), out, options, device=str(pick_device(device)), watch=watch)
    _report(out, json)


def _others(pairs: list[str] | None, options: Mapping[str, Option], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Options given as name=value. Raises HeadlabError for one that has an option of its own."""
    given = parse_options(pairs or [], options)
    for name in given:
        if name in flags:
            raise HeadlabError(f"{name} is set by --{name.replace('_', '-')}, not by -o", code="option.set_elsewhere")
    return given


def _block_of(model: Path) -> int:
    """Tokens a window of the model's own training. Raises HeadlabError for another folder."""
    from headlab.files import read_json
    from headlab.training.lm.train import FILE

    if not (model / FILE).is_file():
        raise HeadlabError(
            f"{model} is not a folder that headlab train lm wrote; train a model first", code="lm.folder_missing"
        )
    found = read_json(model / FILE)
    block = found.get("block") if isinstance(found, dict) else None
    if type(block) is not int or block < 1:
        raise HeadlabError(
            f"{model / FILE} does not give the window length; train the model again", code="lm.window_unknown"
        )
    return block


@contextmanager
def _watch() -> Iterator[Watch]:
    """What follows a training."""
    from headlab.training.lm.train import Watch

    with shown("reading") as say:

        def progress(step: LmStep) -> None:
            say(lm_words(step), step.step, step.steps)

        yield Watch(progress)


def _report(out: Path, json: bool) -> None:
    """What the training wrote down about itself."""
    from headlab.files import read_json

    record: dict[str, Any] = read_json(out / "training.json")
    if json:
        print_json({"folder": str(out), "training": record})
        return
    heads, sizes = record["heads"], record["parameters"]
    typer.echo(f"{out}: {sum(heads)} heads ({'/'.join(map(str, heads))} by layer)")
    typer.echo(f"parameters: {sizes['whole']:,}, {sizes['layers']:,} of them in the layers")
    for split, found in record["perplexity"].items():
        words = f"perplexity {_number(found['word'])} a word [{_number(found['low'])}, {_number(found['high'])}]"
        told = f"{found['words']:,} words in {found['passages']} passages"
        typer.echo(f"{split}: {words}, {_number(found['token'])} a token, over {told}")
    for split, ratio in record.get("ratios", {}).get("tuned", {}).items():
        value, low, high = (_number(ratio[name], 3) for name in ("value", "low", "high"))
        typer.echo(f"{split}: × {value} [{low}, {high}] the unpruned model's, which was not trained on")


def _number(value: float | None, digits: int = 2) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"
