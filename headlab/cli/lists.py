"""`headlab models|families|tasks|report`: what is available, and results as one HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from headlab.cli.output import AsJson, CacheRoot, DataFolder, open_store, print_json
from headlab.core import HeadlabError
from headlab.tasks import SPLITS, Task

# `headlab models|families|tasks`: lists of what is available.


def models(json: AsJson = False) -> None:
    """List the embedded models and their fingerprints; folders and hub ids work as models too."""
    from headlab.models import EMBEDDED, fingerprint

    rows = [
        {
            "name": embedded.name,
            "task": embedded.task,
            "summary": embedded.summary,
            "fingerprint": _text_or_reason(fingerprint, embedded.name),
        }
        for embedded in EMBEDDED.values()
    ]
    if json:
        print_json({"models": rows})
        return
    for row in rows:
        typer.echo(
            f"{row['name']}  {row['summary']}\n"
            f"  task {row['task']}, fingerprint {row['fingerprint']}"
        )
    typer.echo(
        "A local folder or a hub id (safetensors) works as well: headlab score --model FOLDER ..."
    )


def families(json: AsJson = False) -> None:
    """List the model types of transformers that were tried, and which of them can be gated."""
    from headlab.models import tried_families as tried_families

    trials = tried_families()
    families_by_type = trials["families"]
    if json:
        print_json(
            {
                model_type: {"gated": family["gated"], "why": family["why"]}
                for model_type, family in families_by_type.items()
            }
        )
        return
    for is_gated, label in ((True, "gated"), (False, "refused")):
        model_types = [
            model_type
            for model_type, family in families_by_type.items()
            if family["gated"] == is_gated
        ]
        typer.echo(f"{len(model_types)} {label}: {', '.join(model_types)}")
    typer.echo(
        f"Tried as tiny models with transformers {trials['transformers']}; "
        "--json has the reasons. Another type is tried when a model of it is loaded."
    )


def _text_or_reason(get_text: Any, name: str) -> str:
    try:
        return str(get_text(name))
    except HeadlabError as error:
        return f"not available: {error}"


def tasks(
    name: Annotated[
        str | None,
        typer.Option("--task", help="show one task: a name, or a declaration of your own (.toml)"),
    ] = None,
    data: DataFolder = None,
    json: AsJson = False,
) -> None:
    """List tasks: labels, languages, and whether their examples are on this machine."""
    import headlab
    from headlab.tasks import registry_problems, task_names

    # --data holds the files of built-in tasks; it applies to a declared task only if --task names
    # it
    if name:
        rows = [task_row(name, headlab.task(name, data=data), data)]
        unreadable = []
    else:
        rows = [_task_row_or_advice(key, data) for key in task_names()]
        unreadable = registry_problems()
    if json:
        print_json({"tasks": rows, "problems": unreadable})
        return
    for row in rows:
        _print_task(row)
    for problem in unreadable:
        typer.echo(f"! {problem}")


def _task_row_or_advice(name: str, data: Path | None) -> dict[str, Any]:
    """One row of the list.

    An error becomes its advice, so that the other tasks are still listed.
    """
    from headlab.tasks import TASKS, task

    try:
        return task_row(name, task(name, data=data if name in TASKS else None), data)
    except HeadlabError as error:
        return {"name": name, "source": "", "here": False, "advice": str(error)}


def task_row(name: str, task: Task, data: Path | None) -> dict[str, Any]:
    """One task as JSON.

    Its `sizes` are the examples per split of its first language, if they are on this machine.
    """
    from headlab.tasks.resolve import source

    source_words, is_here, advice = source(name, data)
    sizes = dict[str, int]()
    for split in SPLITS if is_here else ():
        try:
            sizes[split] = len(task.read(task.languages[0], split, task.seed))
        except HeadlabError as error:
            advice = advice or str(error)
    return {
        **task.card(),
        "source": source_words,
        "here": is_here,
        "advice": advice,
        "sizes": sizes,
    }


def _print_task(row: Mapping[str, Any]) -> None:
    if "labels" in row:
        labels_words = "texts to be generated"
        if row["labels"]:
            labels_words = f"{len(row['labels'])} labels ({', '.join(row['labels'])})"
        typer.echo(f"{row['name']}: {labels_words}")
        typer.echo(f"  languages {', '.join(row['languages'])}")
        typer.echo(f"  examples: {row['source']}")
        if row["sizes"]:
            sizes = ", ".join(f"{split} {size}" for split, size in row["sizes"].items())
            typer.echo(f"  examples per split: {sizes} ({row['languages'][0]})")
    else:
        typer.echo(f"{row['name']}: cannot be read")
    if row["advice"]:
        typer.echo(f"  ! {row['advice']}")


# `headlab report`: results as one HTML file.


def report(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="keys or beginnings of keys, run folders, reports (JSON), masks (JSON)",
            metavar="RUN...",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="HTML file to write; report.html if neither it nor --site is given"
        ),
    ] = None,
    site: Annotated[
        Path | None,
        typer.Option("--site", help="folder of pages to write: maps, scatter, a page a head"),
    ] = None,
    title: Annotated[
        str, typer.Option("--title", help="title of the report; default: the models' names")
    ] = "",
    task: Annotated[
        list[Path] | None,
        typer.Option(
            "--task",
            help="declaration of a task (.toml), if its results do not know its path; repeatable",
        ),
    ] = None,
    paths: Annotated[
        bool,
        typer.Option(
            "--paths/--no-paths",
            help="whether its commands name files by their paths on this machine",
        ),
    ] = True,
    cache: CacheRoot = None,
    json: AsJson = False,
) -> None:
    """Write results as one HTML file: maps, curves, tables, masks and commands.

    The commands reproduce the results.

    The file needs no network and no scripts, and can be printed. With --site, a folder of pages is
    written that any server can host; they work when opened from the disk too.
    """
    from headlab.report.build import summary, write_report
    from headlab.report.site.build import write_site

    store = open_store(cache)
    written: dict[str, Any] = {}
    if site is not None:
        document, bytes_by_page = write_site(
            runs, site, store, title=title, declarations=task or (), paths=paths, out=out
        )
        written |= {"site": str(site), "pages": bytes_by_page}
        if out is not None:
            written |= {"out": str(out), "bytes": out.stat().st_size}
    else:
        out = out or Path("report.html")
        document, size = write_report(
            runs, out, store, title=title, declarations=task or (), paths=paths
        )
        written |= {"out": str(out), "bytes": size}
    if json:
        print_json({**written, "sections": summary(document)})
        return
    for section in document.sections:
        typer.echo(f"{section.title} ({section.kind})")
    if "site" in written:
        megabytes = sum(written["pages"].values()) / 1e6
        typer.echo(f"{site}: {len(written['pages'])} pages, {megabytes:.2f} MB; open index.html")
    if "out" in written:
        typer.echo(f"{written['out']}: {written['bytes'] / 1e6:.2f} MB")
