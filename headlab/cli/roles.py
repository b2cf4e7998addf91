"""`headlab roles`: what heads attend to, and which roles they have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlab.cli.output import (
    MODEL,
    AsJson,
    CacheRoot,
    DataFolder,
    Device,
    DeviceMap,
    Dtype,
    ModelName,
    open_store,
    print_json,
    progress_bar,
)
from headlab.errors import HeadlabError
from headlab.files import write_atomic, write_json
from headlab.options import parse_options
from headlab.roles.table import FILE, NAME, OPTIONS, resolve
from headlab.tables import Report, Table
from headlab.tasks.base import DEV_SIZE, TREEBANK
from headlab.tasks.udpos import read_trees, treebank, treebank_languages

if TYPE_CHECKING:  # importing torch takes seconds, and `headlab --help` does not need it
    from headlab.records import Progress
    from headlab.roles.sentences import Sentences

HEAD = ("stack", "layer", "head")
Reports = Mapping[str, Report]


def roles(
    model: ModelName = MODEL,
    task: Annotated[
        str | None, typer.Option("--task", help="task by name or declaration: measures are taken on its examples")
    ] = None,
    language: Annotated[str, typer.Option("--language", help="of the sentences")] = "en",
    conllu: Annotated[
        Path | None, typer.Option("--conllu", help="gold trees; default: the treebank of --data, if it has one")
    ] = None,
    data: DataFolder = None,
    split: Annotated[str, typer.Option(help="of treebank and task: dev, test or train")] = "dev",
    size: Annotated[
        int | None, typer.Option("--size", min=1, help="sentences; default all trees, 512 examples")
    ] = None,
    frequencies: Annotated[
        Path | None, typer.Option(help="text file that word frequencies are counted in; default: package wordfreq")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", help="name=value of the roles, e.g. positional=0.8")
    ] = None,
    device: Device = None,
    device_map: DeviceMap = None,
    dtype: Dtype = "float32",
    cache: CacheRoot = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="folder for the reports: JSON, and a CSV file a table")
    ] = None,
    json: AsJson = False,
) -> None:
    """Measure heads and find their roles: positional, syntactic, rare word, separator, first and same token, induction.

    Syntactic roles need gold trees. A cached report is read, not computed again.
    """
    chosen = resolve(parse_options(option or [], OPTIONS))
    given = sentences_of(task, language, conllu, data, split, size)
    import headlab
    from headlab.roles.sentences import corpus_frequencies
    from headlab.roles.study import study

    store = open_store(cache)
    counted = None if frequencies is None else corpus_frequencies(frequencies)
    loaded = headlab.load(model, device=device, dtype=dtype, device_map=device_map)
    reports: dict[str, Report] = {}
    with progress_bar(NAME) as show:
        for name, found in given.items():

            def tell(step: Progress, name: str = name) -> None:
                show(name, step.done, step.total)

            reports[name] = study(
                loaded, found, options=chosen, store=store, frequencies=counted, on_progress=tell
            )  # fmt: skip
    if out is not None:
        write_reports(reports, out)
    print_json(as_json(reports)) if json else typer.echo("\n\n".join(readable(reports)))


def sentences_of(
    task: str | None, language: str, conllu: Path | None, data: Path | None, split: str, size: int | None
) -> dict[str, Sentences]:
    """The sentences to analyse, by name: trees, the examples of a task, or both.

    Raises HeadlabError if there are neither.
    """
    import headlab
    from headlab.cli.evaluate import as_split
    from headlab.roles.sentences import of_task, of_trees

    found: dict[str, Sentences] = {}
    if conllu is not None:
        found[TREEBANK] = of_trees(read_trees(conllu), language, FILE, size)
    elif language in treebank_languages(data, None if task is None else split):
        found[TREEBANK] = of_trees(treebank(data, language, as_split(split)), language, split, size)
    if task is not None:
        asked = headlab.task(task, language, data=data)
        asked.check(language, split)
        found[asked.name] = of_task(asked, language, as_split(split), size or (DEV_SIZE if split == "dev" else None))
    if not found:
        raise HeadlabError(
            f"no sentences to find roles on in {language}: give gold trees with --conllu, a data folder with "
            f"ud/{language}.{split}.conllu by --data, or a --task",
            code="roles.no_sentences",
        )
    return found


def as_json(reports: Reports) -> dict[str, Any]:
    """Every head with its measures and roles and the data they come from, and the reports themselves."""
    return {
        "heads": [{**dict(zip(HEAD, head, strict=True)), **told} for head, told in _heads(reports).items()],
        "reports": {name: report.to_json() for name, report in reports.items()},
    }


def _heads(reports: Reports) -> dict[tuple[Any, ...], dict[str, Any]]:
    """{head: measures and roles}, preferring the task's report for measures and the trees' report for roles."""
    out: dict[tuple[Any, ...], dict[str, Any]] = {}
    for name, report in reports.items():
        for head, values in _rows(report.table("measures")):
            out.setdefault(head, {"roles": []})["measures"] = {"on": name, **values}
    for name, report in reports.items():
        judged: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for head, values in _rows(report.table("roles")):
            judged.setdefault(head, []).append({"on": name, **values})
        for head, found in judged.items():
            out[head]["roles"] = out[head]["roles"] or found
    return out


def _rows(table: Table) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """(head, {column: value}) for each row of a table with one or more rows per head."""
    for row in table.rows:
        told = dict(zip(table.columns, row, strict=True))
        yield tuple(told.pop(name) for name in HEAD), told


def readable(reports: Reports) -> Iterator[str]:
    """Each report's short tables, the heads that have a role, and the notes."""
    for name, report in reports.items():
        spec = report.spec["task"]
        yield f"# {name}: {spec['size']} sentences of {spec['language']} ({spec['split']})"
        for table in (report.table("role-counts"), report.table("relations"), having(report.table("roles"))):
            if table.rows:
                yield f"## {table.title}\n\n{table.markdown()}"
        yield "\n".join(f"- {note}" for note in report.notes)
    yield "Measures, every head's roles and examples: --json or --out FOLDER"


def having(table: Table) -> Table:
    """A table of roles, with only the rows of heads that have the role."""
    kept = tuple(row for row, has in zip(table.rows, table.column("has it"), strict=True) if has)
    return replace(table, title="Heads that have a role", rows=kept, notes=())


def write_reports(reports: Reports, folder: Path) -> None:
    """Write a folder per report: report.json and one CSV file per table. Raises HeadlabError if that fails."""
    for name, report in reports.items():
        write_json(folder / name / "report.json", report.to_json())
        for table in report.tables:
            write_atomic(folder / name / f"{table.name}.csv", table.csv().encode())
