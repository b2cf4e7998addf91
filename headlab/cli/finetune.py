"""`headlab finetune`: a model for a task, trained on one language, English unless another is named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlab.cli.output import AsJson, DataFolder, Device, Seed, Size, print_json, split_languages
from headlab.cli.steps_shown import shown, step_words
from headlab.errors import HeadlabError
from headlab.tasks.base import DEV_SIZE

if TYPE_CHECKING:
    from headlab.tasks.base import Example, Task
    from headlab.training.options import FinetuneOptions, FinetuneStep

TASK, TRAIN_LANGUAGE = "intents", "en"


def finetune(
    task: Annotated[str | None, typer.Argument(metavar="TASK", help="task to train on; default intents")] = None,
    task_named: Annotated[str | None, typer.Option("--task", help="the same, as an option")] = None,
    data: DataFolder = None,
    language: Annotated[str, typer.Option(help="whose train split is trained on")] = TRAIN_LANGUAGE,
    languages: Annotated[str, typer.Option(help='measured on dev at the end: comma-separated, or "all"')] = "all",
    size: Size = DEV_SIZE,
    base: Annotated[str | None, typer.Option(help="hub id or folder of an encoder; default: the embedded one")] = None,
    method: Annotated[str | None, typer.Option(help="full or lora; default: lora on the embedded base")] = None,
    preset: Annotated[str | None, typer.Option(help="named hyper-parameters; default: those that fit")] = None,
    out: Annotated[Path | None, typer.Option(help="folder to write; default adapter, or model")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="training steps")] = None,
    epochs: Annotated[float | None, typer.Option(help="passes over the examples, in place of steps")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="examples a step")] = None,
    micro_batch: Annotated[int | None, typer.Option(min=1, help="examples computed together")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="highest learning rate")] = None,
    max_length: Annotated[int | None, typer.Option(min=3, help="longest text, in tokens")] = None,
    rank: Annotated[int | None, typer.Option(min=1, help="of the LoRA")] = None,
    targets: Annotated[str | None, typer.Option(help="layers of the LoRA, comma-separated")] = None,
    freeze_embeddings: Annotated[bool | None, typer.Option(help="leave the embeddings as they are")] = None,
    freeze_layers: Annotated[int | None, typer.Option(min=0, help="lowest layers that stay as they are")] = None,
    device: Device = None,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Train on one language, all weights or a LoRA, then measure dev accuracy in every language."""
    import headlab
    from headlab.training.options import options_of, usual

    chosen = headlab.task(_one_of(task, task_named), data=data)
    examples = chosen.examples(language, "train")
    method = method or ("lora" if _embedded(base) else "full")
    options = options_of(
        preset or usual(bool(examples[0].words), method, _embedded(base)), method, len(examples),
        epochs=epochs, seed=seed, steps=steps, batch=batch, micro_batch=micro_batch, learning_rate=learning_rate,
        max_length=max_length, rank=rank, targets=_names(targets), freeze_embeddings=freeze_embeddings,
        freeze_layers=freeze_layers,
    )  # fmt: skip
    measured = chosen if languages == "all" else chosen.restricted(split_languages(languages))
    out = out or Path("adapter" if method == "lora" and _embedded(base) else "model")
    folder, log = _train(base, chosen.labels, examples, measured, size, out, options, device)
    report(folder, log, json)


def _one_of(task: str | None, named: str | None) -> str:
    if task and named and task != named:
        raise HeadlabError(f"two tasks given, {task} and {named}; give one of them", code="option.two_tasks")
    return task or named or TASK


def _embedded(base: str | None) -> bool:
    from headlab.training.output import EMBEDDED_BASE

    return base is None or base == EMBEDDED_BASE


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def _train(
    base: str | None, labels: tuple[str, ...], examples: tuple[Example, ...], measured: Task, size: int, out: Path,
    options: FinetuneOptions, device: str | None,
) -> tuple[Path, list[dict[str, float]]]:  # fmt: skip
    """Train with a bar; the folder, and a line for each step."""
    from headlab.models.load import pick_device
    from headlab.training.finetune import finetune as train
    from headlab.training.finetune import on_dev
    from headlab.training.output import check_out, find_base

    check_out(out)
    place = pick_device(device)
    log: list[dict[str, float]] = []
    with shown("training") as say:

        def progress(step: FinetuneStep) -> None:
            log.append({"step": step.step, "loss": round(step.loss, 4), "seconds": round(step.seconds, 1)})
            say(step_words(step), step.step, step.steps)

        evaluate = on_dev(measured, size, lambda language, done: say(f"measuring {language}", done, size))
        folder = train(
            find_base(base), examples, labels, out=out, options=options, device=str(place), progress=progress,
            evaluate=evaluate,
        )  # fmt: skip
    return folder, log


def report(folder: Path, log: list[dict[str, float]], json: bool) -> None:
    """What the training wrote down about itself."""
    from headlab.files import read_json

    record: dict[str, Any] = read_json(folder / "training.json")
    if json:
        print_json({"folder": str(folder), "training": record, "steps": log})
        return
    for entry in log[:: max(1, len(log) // 20)]:
        typer.echo(f"step {entry['step']:4.0f}  loss {entry['loss']:.4f}  {entry['seconds']:.0f} s")
    for name, value in record.items():
        if name != "files":  # their sha256 is for whoever replaces the folder
            typer.echo(f"{name}: {value}")
