"""`headlab reproduce voita-gates`: gates that learn, on classifiers and on a translation model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headlab.cli.output import AsJson, CacheRoot, Device, NliModel, Seed, open_store, print_json, progress_bar
from headlab.files import write_atomic, write_json

if TYPE_CHECKING:  # they need torch, which takes seconds, and `headlab --help` does not
    from headlab.progress import Progress
    from headlab.tables import Report


def voita_gates(
    data: Annotated[Path, typer.Option("--data", help="folder with mt/, xnli/ and nli_en/ (see docs/tasks.md)")],
    smoke: Annotated[bool, typer.Option("--smoke", help="tiny models, few examples: minutes, not hours")] = False,
    out: Annotated[Path | None, typer.Option(help="folder for reports (JSON) and tables (CSV)")] = None,
    part: Annotated[
        list[str] | None, typer.Option(help="intents, xnli or translation; give it several times; default: all")
    ] = None,
    nli_model: NliModel = None,
    seed: Seed = 0,
    device: Device = None,
    cache: CacheRoot = None,
    json: AsJson = False,
) -> None:
    """Voita et al. (ACL 2019), section 6: heads pruned by L0 gates, beside other choices and other ways to train.

    Interrupt it when you like: the same command goes on where it was. Models are kept in the cache folder.
    """
    from headlab.models.load import pick_device
    from headlab.reproduce import gates
    from headlab.reproduce.gates_plan import REAL, SMOKE

    plan, store, place = SMOKE if smoke else REAL, open_store(cache), str(pick_device(device))
    parts = gates.parts_of(plan, part)
    gates.check(plan, parts, data, nli_model)
    command = " ".join([
        "headlab reproduce voita-gates --data DIR", *["--smoke"] * smoke,
        *["--nli-model FOLDER"] * (nli_model is not None), *([f"--seed {seed}"] if seed else []),
    ])  # fmt: skip
    reports: list[Report] = []
    with progress_bar("loading") as show:

        def say(title: str, progress: Progress) -> None:
            show(f"{title} {progress.note}".rstrip(), progress.done, progress.total)

        for name in parts:
            found = gates.found(plan, name, data, nli_model, store, place, seed, say)
            reports.append(found)
            if out is not None:
                _write(found, out, command)
    if json:
        print_json({"command": command, "plan": asdict(plan), "reports": {r.name: r.to_json() for r in reports}})
        return
    for report in reports:
        typer.echo("\n\n".join(f"### {table.title}\n\n{table.markdown()}" for table in report.tables))
        for note in report.notes:
            typer.echo(f"\nnote: {note}\n")


def _write(report: Report, out: Path, command: str) -> None:
    write_json(out / f"{report.name}.json", {"command": command, **report.to_json()})
    for table in report.tables:
        write_atomic(out / f"{table.name}.csv", table.csv().encode())
