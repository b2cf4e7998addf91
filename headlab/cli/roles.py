"""`headlab roles`: what heads attend to, and which roles they have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headlab.cli.job_run import print_line
from headlab.cli.output import (
    AsJson,
    ComputeSettings,
    ShowProgress,
    print_json,
    progress_bar,
    progress_callback,
)
from headlab.core import (
    HEAD_COLUMNS,
    Head,
    HeadlabError,
    Json,
    Report,
    Table,
    write_atomic,
    write_json,
)
from headlab.jobs import JobPart
from headlab.jobs.local import LocalJob, LocalLab
from headlab.jobs.table import RolesJob
from headlab.roles import FILE, NAME, heads_of, resolve, rows_with_role
from headlab.tasks import TREEBANK, read_trees, treebank_languages

if TYPE_CHECKING:  # importing torch takes seconds, and `headlab --help` does not need it
    from headlab.core import Progress
    from headlab.roles import Sentences

Reports = Mapping[str, Report]


def roles(
    job: RolesJob,
    *,
    conllu: Path | None,
    data: Path | None,
    frequencies: Path | None,
    compute: ComputeSettings,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="folder for the reports: JSON, and a CSV file a table"),
    ] = None,
    json: AsJson = False,
) -> None:
    """Measure heads and find their roles.

    Roles are positional, syntactic, rare word, separator, first token, same token and induction.

    Syntactic roles need gold trees. A cached report is read, not computed again.
    """
    resolve(job.options)  # raises, before anything is read
    lab = LocalLab(compute.store(), compute.load, device=compute.device, data=data)
    sentences_by_name = sentences_of(job, lab, conllu, data)
    from headlab.roles import corpus_frequencies

    word_frequencies = None if frequencies is None else corpus_frequencies(frequencies)
    lab.need(job.model)
    reports: dict[str, Report] = {}
    with progress_bar(NAME) as show:
        progress = RolesProgress(show)
        for index, (name, sentences) in enumerate(sentences_by_name.items()):
            part = JobPart(NAME, sentences.language, name, index, len(sentences_by_name))
            reports[name] = job.report(
                lab, progress, sentences, part, progress.tick, word_frequencies
            )
    if out is not None:
        write_reports(reports, out)
    if json:
        print_json(roles_record(reports))
    else:
        typer.echo("\n\n".join(report_sections(reports)))


class RolesProgress(LocalJob):
    """Progress of the reports, one after the other."""

    def __init__(self, show: ShowProgress) -> None:
        """Nothing is analysed yet.

        Args:
            show: Shows what is analysed, and how much of how much is done.
        """
        super().__init__(show, print_line)

    def part_progress(self, part: JobPart) -> Callable[[Progress], None]:
        """A callback that shows how far the report is."""
        return progress_callback(self._show_progress, part.label)


def sentences_of(
    job: RolesJob, lab: LocalLab, conllu: Path | None, data: Path | None
) -> dict[str, Sentences]:
    """The sentences to analyse, by name: trees, the examples of a task, or both.

    Args:
        job: With one language.
        lab: What it works with.
        conllu: A file of gold trees, in place of the treebank.
        data: Folder of the treebank.

    Raises:
        HeadlabError: There are neither.
    """
    from headlab.roles import of_trees

    (language,) = job.language_codes
    sentences_by_name: dict[str, Sentences] = {}
    split_of_task = None if job.task is None else job.split
    if conllu is not None:
        trees = of_trees(read_trees(conllu), language, FILE, job.size)
        sentences_by_name[TREEBANK] = replace(trees, file=conllu)
    elif language in treebank_languages(data, split_of_task):
        sentences_by_name[TREEBANK] = job.treebank_sentences(language, job.size, data)
    if job.task is not None:
        examples = job.task_sentences(lab, language, job.examples_size())
        sentences_by_name[examples.name] = examples
    if not sentences_by_name:
        raise HeadlabError(
            f"no sentences to find roles on in {language}: give gold trees with --conllu, a data "
            f"folder with ud/{language}.{job.split}.conllu by --data, or a --task",
            code="roles.no_sentences",
        )
    return sentences_by_name


def roles_record(reports: Reports) -> dict[str, Json]:
    """Every head with its measures, its roles and their data, and the reports themselves."""
    return {
        "heads": [{**head._asdict(), **entry} for head, entry in _entries_by_head(reports).items()],
        "reports": {name: report.to_json() for name, report in reports.items()},
    }


def _entries_by_head(reports: Reports) -> dict[Head, dict[str, Json]]:
    """{head: measures and roles}.

    Measures are of the task's report where there is one, and roles of the trees' report.
    """
    entries_by_head: dict[Head, dict[str, Json]] = {}
    for name, report in reports.items():
        for head, values in _rows_by_head(report.table("measures")):
            entries_by_head.setdefault(head, {"roles": []})["measures"] = {"on": name, **values}
    for name, report in reports.items():
        roles_by_head: dict[Head, list[Json]] = {}
        for head, values in _rows_by_head(report.table("roles")):
            roles_by_head.setdefault(head, []).append({"on": name, **values})
        for head, head_roles in roles_by_head.items():
            entry = entries_by_head[head]
            entry["roles"] = entry["roles"] or head_roles
    return entries_by_head


def _rows_by_head(table: Table) -> Iterator[tuple[Head, dict[str, Json]]]:
    """(head, {column: value}) for each row of a table with one or more rows per head."""
    for head, row in zip(heads_of(table), table.rows, strict=True):
        cells_by_column = dict(zip(table.columns, row, strict=True))
        yield (
            head,
            {name: cell for name, cell in cells_by_column.items() if name not in HEAD_COLUMNS},
        )


def report_sections(reports: Reports) -> Iterator[str]:
    """Each report's short tables, the heads that have a role, and the notes."""
    for name, report in reports.items():
        spec = report.spec["task"]
        yield f"# {name}: {spec['size']} sentences of {spec['language']} ({spec['split']})"
        heads_with_role = replace(
            rows_with_role(report.table(NAME)), title="Heads that have a role", notes=()
        )
        for table in (report.table("role-counts"), report.table("relations"), heads_with_role):
            if table.rows:
                yield f"## {table.title}\n\n{table.markdown()}"
        yield "\n".join(f"- {note}" for note in report.notes)
    yield "Measures, every head's roles and examples: --json or --out FOLDER"


def write_reports(reports: Reports, folder: Path) -> None:
    """Write a folder per report: report.json and one CSV file per table.

    Raises:
        HeadlabError: If that fails.
    """
    for name, report in reports.items():
        write_json(folder / name / "report.json", report.to_json())
        for table in report.tables:
            write_atomic(folder / name / f"{table.name}.csv", table.csv().encode())
