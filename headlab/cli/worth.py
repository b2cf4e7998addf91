"""`headlab worth`: what a mask saves in parameters and multiply-accumulates, and in time on this machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headlab.cli.experiment import markdown
from headlab.cli.output import (
    MODEL,
    TASK,
    AsJson,
    DataFolder,
    Device,
    Dtype,
    Languages,
    ModelName,
    Seed,
    print_json,
    progress_bar,
    split_languages,
)
from headlab.errors import HeadlabError
from headlab.masks import load_mask

EVERY = "all"  # languages

if TYPE_CHECKING:
    from headlab.masks import Mask
    from headlab.studies.savings import Worth
    from headlab.tasks.base import Task


def worth(
    mask: Annotated[Path, typer.Option(help="mask file")],
    model: ModelName = MODEL,
    task: Annotated[
        str | None, typer.Option(help="task whose examples are run; default: the embedded task's sentences")
    ] = None,
    data: DataFolder = None,
    languages: Languages = EVERY,
    batch_sizes: Annotated[str, typer.Option(help="examples in a batch, comma-separated")] = "1,8,32",
    rounds: Annotated[int, typer.Option(min=6, help="rounds in each of which all models have their turn")] = 15,
    seed: Seed = 0,
    device: Device = None,
    dtype: Dtype = "float32",
    json: AsJson = False,
) -> None:
    """Count and time a model untouched, masked and with the mask's heads taken out.

    Without --device the processor is timed and, where there is one, a GPU too.
    """
    import headlab

    _check_asked(task, data, languages)
    found, sizes = load_mask(mask), _sizes(batch_sizes)
    chosen = None if task is None else headlab.task(task, split_languages(languages), data=data)
    worths = [
        _on(place, found, model, chosen, sizes, rounds, seed, dtype)
        for place in ([device] if device is not None else _devices())
    ]
    every = replace(worths[0], speeds=tuple(speed for one in worths for speed in one.speeds))
    print_json(every.to_json()) if json else typer.echo(markdown(every.report()))


def _check_asked(task: str | None, data: Path | None, languages: str) -> None:
    """Raise HeadlabError for options of a task where none is named: they would change nothing."""
    given = " and ".join(["--data"] * (data is not None) + ["--languages"] * (languages != EVERY))
    if task is None and given:
        raise HeadlabError(
            f"{given} is given, but no task whose examples that chooses: give --task, too, like --task {TASK}, or "
            f"leave out {given}",
            code="option.needs_task",
        )


def _on(
    device: str, mask: Mask, model: str, task: Task | None, sizes: list[int], rounds: int, seed: int, dtype: str
) -> Worth:
    import headlab
    from headlab.studies.savings_run import measure

    with progress_bar(f"worth on {device}") as show:
        loaded = headlab.load(model, device=device, dtype=dtype)
        return measure(
            loaded, mask, task=task, batch_sizes=sizes, rounds=rounds, seed=seed,
            told=lambda done, total, note: show(f"{device}, {note}", done, total),
        )  # fmt: skip


def _devices() -> list[str]:
    import torch

    return ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def _sizes(text: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise HeadlabError(
            f"batch sizes are {text!r}; give whole numbers of 1 or more, like 1,8,32", code="worth.batch_sizes_invalid"
        )
    return found
