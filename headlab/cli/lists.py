"""`headlab models|tasks|cache`: what there is."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headlab.cli.output import TASK, AsJson, CacheRoot, open_store, print_json
from headlab.errors import HeadlabError
from headlab.store import CurveResult, Result


def models(json: AsJson = False) -> None:
    """Embedded models and their fingerprints; folders and hub ids work as well."""
    from headlab.models.embedded import EMBEDDED, fingerprint

    rows = [
        {"name": e.name, "task": e.task, "summary": e.summary, "fingerprint": _or_reason(fingerprint, e.name)}
        for e in EMBEDDED.values()
    ]
    if json:
        print_json({"models": rows})
        return
    for row in rows:
        typer.echo(f"{row['name']}  {row['summary']}\n  task {row['task']}, fingerprint {row['fingerprint']}")
    typer.echo("A local folder or a hub id (safetensors) works as well: headlab score --model FOLDER ...")


def _or_reason(function: Any, name: str) -> str:
    try:
        return str(function(name))
    except HeadlabError as error:
        return f"not available: {error}"


def tasks(
    name: Annotated[str | None, typer.Option("--task", help="show one task with its sizes")] = None,
    json: AsJson = False,
) -> None:
    """Tasks, their labels and languages."""
    import headlab
    from headlab.tasks import TASKS

    rows: list[dict[str, Any]] = [dict(headlab.task(key).card()) for key in ([name] if name else TASKS)]
    if json:
        print_json({"tasks": rows})
        return
    for row in rows:
        typer.echo(f"{row['name']}: {len(row['labels'])} labels ({', '.join(row['labels'])})")
        typer.echo(f"  languages {', '.join(row['languages'])}")
        typer.echo(f"  examples per split: {', '.join(sizes(str(row['name'])))}")


def sizes(name: str = TASK) -> list[str]:
    """'dev 512' and so on, of the task's first language."""
    import headlab
    from headlab.tasks.base import SPLITS

    task = headlab.task(name)
    return [f"{split} {len(task.read(task.languages[0], split, task.seed))}" for split in SPLITS]


def cache(cache: CacheRoot = None, json: AsJson = False) -> None:
    """Results in the cache, and what was skipped and why."""
    store = open_store(cache)
    listing, curves = store.scan(), store.curves()
    problems = [*listing.problems, *curves.problems]
    if json:
        rows, more = [row(r) for r in listing.results], [curve_row(r) for r in curves.results]
        print_json({"root": str(store.root), "results": rows, "curves": more, "problems": problems})
        return
    for result in listing.results:
        typer.echo(
            "{key:.12}  {model}  {task}/{language}  {method} ({estimand})  {seconds:.0f} s".format(**row(result))
        )
    for curve in curves.results:
        typer.echo(
            "{key:.12}  {model}  {task}/{language}  curve by {ordering}, {points} points  {seconds:.0f} s".format(
                **curve_row(curve)
            )
        )
    for problem in problems:
        typer.echo(f"! {problem}")
    count = len(listing.results) + len(curves.results)
    typer.echo(f"{count} results, {len(problems)} skipped, in {store.root}")


def row(result: Result) -> dict[str, Any]:
    """One result as JSON."""
    scores, spec = result.scores, result.scores.spec
    return {
        "key": result.key,
        "model": spec["model"]["name"],
        "task": spec["task"]["name"],
        "language": scores.language,
        "method": scores.method,
        "estimand": scores.estimand,
        "options": spec["method"]["options"],
        "seconds": scores.seconds,
        "example_forwards": scores.example_forwards,
        "values_sha256": scores.values_sha256(),
    }


def curve_row(result: CurveResult) -> dict[str, Any]:
    """One curve as JSON."""
    curve = result.curve
    return {
        "key": result.key,
        "model": curve.spec["model"]["name"],
        "task": curve.spec["task"]["name"],
        "language": curve.language,
        "split": curve.split,
        "ordering": curve.ordering,
        "points": len(curve.removed),
        "area": curve.area,
        "seconds": curve.seconds,
        "example_forwards": curve.example_forwards,
        "values_sha256": curve.values_sha256(),
    }
