"""`headlab reproduce shim`: an All-attention language model pruned for good, beside ordinary Transformers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headlab.cli.output import AsJson, CacheRoot, Device, Seed, open_store, print_json, progress_bar
from headlab.files import write_atomic, write_json

if TYPE_CHECKING:  # they need torch, which takes seconds, and `headlab --help` does not
    from headlab.tables import Report
    from headlab.training.lm.options import LmStep


def shim(
    data: Annotated[Path, typer.Option("--data", help="folder with wikitext2/{train,valid,test}.txt")],
    smoke: Annotated[bool, typer.Option("--smoke", help="tiny models on 40,000 words: minutes, not hours")] = False,
    out: Annotated[Path | None, typer.Option(help="folder for the report (JSON) and its tables (CSV)")] = None,
    weight: Annotated[
        list[float] | None, typer.Option(min=0, help="λ, a pruned model each; give it several times")
    ] = None,
    seed: Seed = 0,
    device: Device = None,
    cache: CacheRoot = None,
    json: AsJson = False,
) -> None:
    """Shim et al. (2021): All-attention pruned by layer-wise gates; perplexity, parameters, speed against heads.

    Interrupt it when you like: the same command goes on where it was. Models are kept in the cache folder.
    """
    from headlab.models.load import pick_device
    from headlab.reproduce import shim as paper
    from headlab.reproduce.shim_plan import REAL, SMOKE

    plan, store, place = SMOKE if smoke else REAL, open_store(cache), str(pick_device(device))
    plan = replace(plan, weights=tuple(weight)) if weight else plan
    lines = paper.text(plan, data)
    command = " ".join(["headlab reproduce shim --data DIR", *["--smoke"] * smoke,
                        *(f"--weight {w:g}" for w in weight or ()), *([f"--seed {seed}"] if seed else [])])  # fmt: skip
    with progress_bar("reading") as show:

        def progress(name: str, step: LmStep) -> None:
            gates = "" if step.open is None else f", {step.open} open"
            show(f"{name}: {step.part}, loss {step.loss:.3f}{gates}", step.step, step.steps)

        found = paper.make(plan, lines, store.root, device=place, seed=seed, show=progress)
        show("timing", 0, 1)
        report = paper.report(found, device=place, spec={"command": command, "seed": seed, "device": place})
    if out is not None:
        _write(report, out, command)
    if json:
        print_json({"command": command, **report.to_json()})
        return
    typer.echo("\n\n".join(f"### {table.title}\n\n{table.markdown()}" for table in report.tables))
    for note in report.notes:
        typer.echo(f"\nnote: {note}")


def _write(report: Report, out: Path, command: str) -> None:
    write_json(out / f"{report.name}.json", {"command": command, **report.to_json()})
    for table in report.tables:
        write_atomic(out / f"{table.name}.csv", table.csv().encode())
