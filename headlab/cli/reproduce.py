"""`headlab reproduce`: papers done again, whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlab.cli.output import (
    AsJson,
    CacheRoot,
    Device,
    NliModel,
    Seed,
    open_store,
    print_json,
    progress_bar,
    without_places,
)
from headlab.tasks import task as task_of

if TYPE_CHECKING:  # they need torch, which takes seconds, and `headlab --help` does not
    from headlab.hooks.model import Model
    from headlab.reproduce.held import Plan
    from headlab.reproduce.run import Found, Held
    from headlab.store import Store

Show = Callable[[str, int, int], None]


def held(
    data: Annotated[Path, typer.Option("--data", help="folder with xnli/ and ud/ (see docs/tasks.md)")],
    smoke: Annotated[bool, typer.Option("--smoke", help="three languages, few examples: minutes, not hours")] = False,
    out: Annotated[Path | None, typer.Option(help="folder for reports (JSON), tables (CSV) and figures")] = None,
    nli_model: NliModel = None,
    udpos_model: Annotated[
        Path | None,
        typer.Option(help="model fine-tuned on English part-of-speech tags; default: fine-tuned here first"),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="float32 or bfloat16; default: bfloat16 where the processor has it natively")
    ] = None,
    seed: Seed = 0,
    device: Device = None,
    cache: CacheRoot = None,
    json: AsJson = False,
) -> None:
    """Held & Yang (EACL 2023): every table and figure, on XNLI and on universal part-of-speech tags.

    What each step costs is said before it begins. Interrupt it when you like: the same command goes on.
    """
    from headlab.cli.figures import write_figures
    from headlab.reproduce.held import REAL, SMOKE
    from headlab.reproduce.held import TASKS as PARTS
    from headlab.reproduce.models import check, fast_dtype
    from headlab.reproduce.run import as_json, keep, texts

    dtype = dtype or fast_dtype(device)
    plan, store = SMOKE if smoke else REAL, open_store(cache)
    given = {"xnli": nli_model, "udpos": udpos_model}
    folders = {"--nli-model": nli_model, "--udpos-model": udpos_model}
    command = without_places("held", smoke, folders, dtype, seed)
    check(plan, data, given)
    every: list[Found] = []
    with progress_bar("loading") as show:
        for name in PARTS:
            model = _model(name, plan, data, given[name], store, device, dtype, show)
            for found in _steps(_held(name, model, plan, store, data, seed), name, show):
                every.append(found)
                if out is not None:
                    keep(found, out, command)
                    write_figures(found.report, out / found.step.name)
                if not json:
                    typer.echo("\n\n".join(texts(found)) + "\n")
    if json:
        print_json(as_json(command, plan, every))


def _held(name: str, model: Model, plan: Plan, store: Store, data: Path, seed: int) -> Held:
    from headlab.reproduce.run import Held

    return Held(model, task_of(name, data=data), plan, store, seed)


def _steps(part: Held, name: str, show: Show) -> Any:
    from headlab.records import Progress
    from headlab.reproduce.held import steps

    for step in (s for s in steps(part.plan) if s.task == name):
        typer.echo(f"{step.name}: {part.cost(step)}", err=True)

        def on_progress(now: Progress, title: str = step.name) -> None:
            show(f"{title} {now.note}", now.done, now.total)

        yield part.done(step, on_progress)


def _model(
    name: str, plan: Plan, data: Path, given: Path | None, store: Store, device: str | None, dtype: str, show: Show
) -> Model:
    from headlab.reproduce.models import NLI, TAGGER, nli_folder, opened, tagger_folder
    from headlab.training.options import FinetuneStep

    def progress(step: FinetuneStep) -> None:
        show(f"training, loss {step.loss:.3f}", step.step, step.steps)

    if name == "xnli":
        return opened(nli_folder(data, given), NLI, device, dtype)
    folder = given or tagger_folder(task_of(name, data=data), store.root, plan.steps, device or "cpu", progress)
    return opened(folder, TAGGER, device, dtype)
