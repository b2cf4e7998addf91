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
    DataFolder,
    Here,
    ModelName,
    flags_of,
    print_json,
    progress_bar,
    stepping,
)
from headlab.errors import HeadlabError
from headlab.files import write_atomic, write_json
from headlab.options import parse_options
from headlab.records import HEAD, Head
from headlab.roles.report import having, heads_of
from headlab.roles.table import FILE, NAME, OPTIONS, resolve
from headlab.studies.table import JOBS
from headlab.tables import Report, Table
from headlab.tasks.base import DEV_SIZE, TREEBANK
from headlab.tasks.udpos import read_trees, treebank, treebank_languages

if TYPE_CHECKING:  # importing torch takes seconds, and `headlab --help` does not need it
    from headlab.roles.sentences import Sentences

Reports = Mapping[str, Report]


@flags_of(JOBS["roles"], before="frequencies")
def roles(
    *,
    model: ModelName = MODEL,
    task: Annotated[
        str | None,
        typer.Option(
            "--task", help="task by name or declaration: measures are taken on its examples"
        ),
    ] = None,
    language: Annotated[str, typer.Option("--language", help="of the sentences")] = "en",
    conllu: Annotated[
        Path | None,
        typer.Option("--conllu", help="gold trees; default: the treebank of --data, if it has one"),
    ] = None,
    data: DataFolder = None,
    frequencies: Annotated[
        Path | None,
        typer.Option(
            help="text file that word frequencies are counted in; default: package wordfreq"
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", help="name=value of the roles, e.g. positional=0.8"),
    ] = None,
    here: Here,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="folder for the reports: JSON, and a CSV file a table"),
    ] = None,
    json: AsJson = False,
    **settings: Any,
) -> None:
    """Measure heads and find their roles: positional, syntactic, rare word, separator, first and same token, induction.

    Syntactic roles need gold trees. A cached report is read, not computed again.
    """
    chosen = resolve(parse_options(option or [], OPTIONS))
    given = sentences_of(task, language, conllu, data, **settings)
    from headlab.roles.sentences import corpus_frequencies
    from headlab.roles.study import study

    store = here.store()
    counted = None if frequencies is None else corpus_frequencies(frequencies)
    loaded = here.load(model)
    reports: dict[str, Report] = {}
    with progress_bar(NAME) as show:
        for name, found in given.items():
            reports[name] = study(
                loaded,
                found,
                options=chosen,
                store=store,
                frequencies=counted,
                on_progress=stepping(show, name),
            )
    if out is not None:
        write_reports(reports, out)
    print_json(as_json(reports)) if json else typer.echo("\n\n".join(readable(reports)))


def sentences_of(
    task: str | None,
    language: str,
    conllu: Path | None,
    data: Path | None,
    split: str,
    size: int | None,
) -> dict[str, Sentences]:
    """The sentences to analyse, by name: trees, the examples of a task, or both.

    Raises HeadlabError if there are neither.
    """
    import headlab
    from headlab.cli.evaluate import as_split
    from headlab.roles.sentences import of_task, of_trees

    found: dict[str, Sentences] = {}
    if conllu is not None:
        sentences = of_trees(read_trees(conllu), language, FILE, size)
        found[TREEBANK] = replace(sentences, file=conllu)
    elif language in treebank_languages(data, None if task is None else split):
        sentences = of_trees(treebank(data, language, as_split(split)), language, split, size)
        found[TREEBANK] = replace(sentences, data=data)
    if task is not None:
        asked = headlab.task(task, language, data=data)
        asked.check(language, split)
        found[asked.name] = of_task(
            asked, language, as_split(split), size or (DEV_SIZE if split == "dev" else None)
        )
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
        "heads": [{**head._asdict(), **told} for head, told in _heads(reports).items()],
        "reports": {name: report.to_json() for name, report in reports.items()},
    }


def _heads(reports: Reports) -> dict[Head, dict[str, Any]]:
    """{head: measures and roles}, preferring the task's report for measures and the trees' report for roles."""
    out: dict[Head, dict[str, Any]] = {}
    for name, report in reports.items():
        for head, values in _rows(report.table("measures")):
            out.setdefault(head, {"roles": []})["measures"] = {"on": name, **values}
    for name, report in reports.items():
        judged: dict[Head, list[dict[str, Any]]] = {}
        for head, values in _rows(report.table("roles")):
            judged.setdefault(head, []).append({"on": name, **values})
        for head, found in judged.items():
            out[head]["roles"] = out[head]["roles"] or found
    return out


def _rows(table: Table) -> Iterator[tuple[Head, dict[str, Any]]]:
    """(head, {column: value}) for each row of a table with one or more rows per head."""
    for head, row in zip(heads_of(table), table.rows, strict=True):
        yield (
            head,
            {name: cell for name, cell in zip(table.columns, row, strict=True) if name not in HEAD},
        )


def readable(reports: Reports) -> Iterator[str]:
    """Each report's short tables, the heads that have a role, and the notes."""
    for name, report in reports.items():
        spec = report.spec["task"]
        yield f"# {name}: {spec['size']} sentences of {spec['language']} ({spec['split']})"
        kept = replace(having(report.table(NAME)), title="Heads that have a role", notes=())
        for table in (report.table("role-counts"), report.table("relations"), kept):
            if table.rows:
                yield f"## {table.title}\n\n{table.markdown()}"
        yield "\n".join(f"- {note}" for note in report.notes)
    yield "Measures, every head's roles and examples: --json or --out FOLDER"


def write_reports(reports: Reports, folder: Path) -> None:
    """Write a folder per report: report.json and one CSV file per table. Raises HeadlabError if that fails."""
    for name, report in reports.items():
        write_json(folder / name / "report.json", report.to_json())
        for table in report.tables:
            write_atomic(folder / name / f"{table.name}.csv", table.csv().encode())
