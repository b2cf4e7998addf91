"""`headlab train lm` and `headlab train lm-prune`: a language model from a text, and its heads removed for good."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlab.cli.output import AsJson, Device, Seed, print_json, progress_bar
from headlab.errors import HeadlabError

if TYPE_CHECKING:  # they need torch, which takes seconds, and `headlab --help` does not
    from headlab.training.lm.options import LmStep
    from headlab.training.lm.steps import Watch

TextData = Annotated[
    Path, typer.Option("--data", help="text file, or folder with train.txt, valid.txt and test.txt; a line a paragraph")
]
Words = Annotated[int | None, typer.Option(min=1, help="take so many words of the training text; default all")]
OutFolder = Annotated[Path, typer.Option(help="folder to write")]


def lm(
    data: TextData,
    out: OutFolder = Path("lm"),
    kind: Annotated[str, typer.Option(help="all-attention or transformer")] = "all-attention",
    tokenizer: Annotated[str, typer.Option(help="bpe or word")] = "bpe",
    vocabulary: Annotated[int, typer.Option(min=3, help="entries of the vocabulary at most")] = 8000,
    layers: Annotated[int, typer.Option(min=1, help="layers")] = 6,
    heads: Annotated[int, typer.Option(min=1, help="heads a layer")] = 8,
    width: Annotated[int, typer.Option(min=1, help="width of the hidden states")] = 256,
    persistent: Annotated[
        int, typer.Option(min=1, help="persistent vectors a head; inner width of a transformer's feed-forward part")
    ] = 512,
    positions: Annotated[str, typer.Option(help="relative or learned")] = "relative",
    block: Annotated[int, typer.Option(min=1, help="tokens a window")] = 128,
    batch: Annotated[int, typer.Option(min=1, help="windows a step")] = 16,
    micro_batch: Annotated[int | None, typer.Option(min=1, help="windows computed together")] = None,
    steps: Annotated[int, typer.Option(min=1, help="training steps")] = 3000,
    learning_rate: Annotated[float, typer.Option(help="highest learning rate")] = 1e-3,
    dropout: Annotated[float, typer.Option(help="share of numbers left out while training")] = 0.1,
    words: Words = None,
    device: Device = None,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Train a language model on a text and measure its perplexity on held-out parts.

    Interrupt it when you like: the same command goes on where it was.
    """
    from headlab.models.load import pick_device
    from headlab.training.lm.options import LmOptions
    from headlab.training.lm.text import read_lines
    from headlab.training.lm.train import train_lm

    options = LmOptions(
        kind=kind, tokenizer=tokenizer, vocabulary=vocabulary, layers=layers, heads=heads, width=width,
        persistent=persistent, positions=positions, block=block, batch=batch, micro_batch=micro_batch, steps=steps,
        learning_rate=learning_rate, dropout=dropout, seed=seed,
    )  # fmt: skip
    options.check()
    with _watch() as watch:
        train_lm(read_lines(data, words), out, options, device=str(pick_device(device)), watch=watch)
    _report(out, json)


def lm_prune(
    model: Annotated[Path, typer.Argument(help="folder that headlab train lm wrote")],
    data: TextData,
    out: OutFolder = Path("lm-pruned"),
    weight: Annotated[float, typer.Option(min=0, help="λ, penalty in nats for a gate that is open")] = 0.01,
    warm_up: Annotated[bool, typer.Option(help="let λ rise from 0")] = True,
    open_start: Annotated[bool, typer.Option(help="begin with gates that are likely open")] = True,
    scale: Annotated[bool, typer.Option(help="multiply a layer's output by heads / sum of gates")] = True,
    steps: Annotated[int, typer.Option(min=1, help="steps with gates")] = 1000,
    tune_steps: Annotated[int, typer.Option(min=0, help="steps of fine-tuning after the heads are gone")] = 500,
    gate_rate: Annotated[float, typer.Option(help="learning rate of the gates")] = 0.05,
    model_rate: Annotated[float, typer.Option(help="learning rate of the model beside the gates, and after")] = 3e-4,
    batch: Annotated[int, typer.Option(min=1, help="windows a step")] = 16,
    micro_batch: Annotated[int | None, typer.Option(min=1, help="windows computed together")] = None,
    words: Words = None,
    device: Device = None,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Learn a gate a head, remove heads whose gates closed for good, and fine-tune what is left (Shim et al., 2021).

    Interrupt it when you like: the same command goes on where it was.
    """
    from headlab.models.load import pick_device
    from headlab.training.lm.options import LmGateOptions
    from headlab.training.lm.prune import prune_lm
    from headlab.training.lm.text import read_lines

    options = LmGateOptions(
        weight=weight, warm_up=warm_up, open_start=open_start, scale=scale, steps=steps, tune_steps=tune_steps,
        gate_rate=gate_rate, model_rate=model_rate, tune_rate=model_rate, batch=batch, micro_batch=micro_batch,
        seed=seed,
    )  # fmt: skip
    options = replace(options, block=_block_of(model))
    options.check()
    with _watch() as watch:
        prune_lm(model, read_lines(data, words), out, options, device=str(pick_device(device)), watch=watch)
    _report(out, json)


def _block_of(model: Path) -> int:
    """Tokens a window of the model's own training. Raises HeadlabError for another folder."""
    from headlab.files import read_json
    from headlab.training.lm.judged import FILE

    if not (model / FILE).is_file():
        raise HeadlabError(f"{model} is no folder that headlab train lm wrote; train a model first")
    found = read_json(model / FILE)
    block = found.get("block") if isinstance(found, dict) else None
    if type(block) is not int or block < 1:
        raise HeadlabError(f"{model / FILE} does not tell the length of a window; train the model again")
    return block


@contextmanager
def _watch() -> Iterator[Watch]:
    """A bar that follows a training."""
    from headlab.training.lm.steps import Watch

    with progress_bar("reading") as show:

        def progress(step: LmStep) -> None:
            gates = "" if step.open is None else f", {step.open} gates open"
            show(f"{step.part}, loss {step.loss:.3f}{gates}", step.step, step.steps)

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
        words = f"perplexity {found['word']:.2f} a word [{found['low']:.2f}, {found['high']:.2f}]"
        typer.echo(f"{split}: {words}, {found['token']:.2f} a token, over {found['passages']} passages")
    for split, ratio in record.get("ratios", {}).get("tuned", {}).items():
        typer.echo(f"{split}: × {ratio['value']:.3f} the unpruned model's [{ratio['low']:.3f}, {ratio['high']:.3f}]")
