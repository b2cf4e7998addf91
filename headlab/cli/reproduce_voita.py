"""`headlab reproduce voita-roles`: what heads do, over languages and before and after fine-tuning."""

from __future__ import annotations

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
from headlab.files import write_atomic, write_json

if TYPE_CHECKING:  # they need torch, which takes seconds, and `headlab --help` does not
    from headlab.tables import Report


def voita_roles(
    data: Annotated[Path, typer.Option("--data", help="folder with treebanks in ud/ (see docs/tasks.md)")],
    smoke: Annotated[bool, typer.Option("--smoke", help="three languages, 60 trees each, two models")] = False,
    out: Annotated[Path | None, typer.Option(help="folder for reports (JSON) and tables (CSV)")] = None,
    nli_model: NliModel = None,
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16")] = "float32",
    seed: Seed = 0,
    device: Device = None,
    cache: CacheRoot = None,
    json: AsJson = False,
) -> None:
    """Voita et al. (ACL 2019): roles of the heads of multilingual-e5-small and of two fine-tuned ones, by language.

    Interrupt it when you like: the same command goes on after the last language it finished.
    """
    from headlab.reproduce import voita
    from headlab.reproduce.models import NLI, nli_folder

    plan, store = voita.SMOKE if smoke else voita.REAL, open_store(cache)
    voita.languages(plan, data)  # what is lacking is said before minutes are spent
    if NLI in plan.models:
        nli_folder(data, nli_model)
    command = without_places("voita-roles", smoke, {"--nli-model": nli_model}, dtype, seed)
    reports: dict[tuple[str, str], Report] = {}
    with progress_bar("loading") as show:
        for name in plan.models:
            show(f"loading {name}", 0, 1)
            model = voita.model_of(name, data, nli_model, device, dtype)

            def progress(language: str, step: Any, name: str = name) -> None:
                show(f"{name}, {language}: {step.note}", step.done, step.total)

            for language, report in voita.studied(model, plan, data, store, seed, progress):
                reports[name, language] = report
    found = voita.summary(reports, {"command": command, "plan": vars(plan), "seed": seed, "dtype": dtype})
    if out is not None:
        _write(found, reports, out, command)
    if json:
        every = {f"{name}-{language}": report.to_json() for (name, language), report in reports.items()}
        print_json({"command": command, "summary": found.to_json(), "reports": every})
        return
    typer.echo("\n\n".join(f"### {table.title}\n\n{table.markdown()}" for table in found.tables))
    for note in found.notes:
        typer.echo(f"\nnote: {note}")


def _write(found: Report, reports: dict[tuple[str, str], Report], out: Path, command: str) -> None:
    """The summary with its tables as CSV, and every report it rests on, of its roles those that heads have."""
    from headlab.reproduce.voita import had

    write_json(out / f"{found.name}.json", {"command": command, **found.to_json()})
    for table in found.tables:
        write_atomic(out / f"{found.name}-{table.name}.csv", table.csv().encode())
    for (name, language), report in reports.items():
        write_json(out / f"{name}-{language}.json", {"command": command, **had(report).to_json()})
