"""`headlab front`: the smallest model that is good enough in every language, or the best one of a size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlab.cli.experiment import markdown, write_report
from headlab.cli.output import (
    MODEL,
    TASK,
    AsJson,
    CacheRoot,
    DataFolder,
    Device,
    Dtype,
    Languages,
    MethodOptions,
    ModelName,
    Seed,
    TaskName,
    check_ablation,
    open_store,
    print_json,
    progress_bar,
    split_languages,
)  # fmt: skip
from headlab.methods.table import method as method_of
from headlab.options import parse_options
from headlab.studies.pareto import ABOUT, BOUND, ORDERS, resolve
from headlab.tasks.base import DEV_SIZE

if TYPE_CHECKING:  # it needs torch, which takes seconds, and `headlab --help` does not
    from headlab.records import Progress

SHOWN = ("front-choice", "front-confirmed")
USUAL = str(ABOUT.options["orders"].default)


def front(
    model: ModelName = MODEL,
    task: TaskName = TASK,
    data: DataFolder = None,
    languages: Languages = "all",
    within: Annotated[
        float | None,
        typer.Option(help="points of accuracy that may be lost in any language (1.0 if heads is not given)"),
    ] = None,
    heads: Annotated[int | None, typer.Option(help="heads to keep: the best such model, in place of --within")] = None,
    by: Annotated[str, typer.Option(help="what tells a loss on dev: bound (95 %, one-sided) or estimate")] = BOUND,
    orders: Annotated[str, typer.Option(help=f"orders to try, comma-separated: {', '.join(ORDERS)}")] = USUAL,
    points: Annotated[
        int | None, typer.Option(min=2, help="counts of removed heads to measure; 0 heads and all among them")
    ] = 25,
    every: Annotated[
        bool, typer.Option("--every", help="measure every count of removed heads, whatever --points")
    ] = False,
    method: Annotated[str, typer.Option(help="method whose dev scores order the heads")] = "shapley",
    option: MethodOptions = None,
    size: Annotated[int, typer.Option("--size", min=1, help="dev examples that choose")] = DEV_SIZE,
    test_size: Annotated[
        int | None, typer.Option("--test-size", min=1, help="test examples that judge; default: all of the split")
    ] = None,
    seed: Seed = 0,
    ablation: Annotated[str, typer.Option(help="what a removed head gives: zero or mean")] = "zero",
    device: Device = None,
    dtype: Dtype = "float32",
    cache: CacheRoot = None,
    out: Annotated[Path | None, typer.Option(help="mask file of the chosen model; or a folder for tables too")] = None,
    full: Annotated[bool, typer.Option("--full", help="print every point of every order, too")] = False,
    json: AsJson = False,
) -> None:
    """Choose a smaller model by what it costs and by its weakest language; chosen on dev, judged on test.

    Scores, walks and answers come from the cache or are made first; what that will cost is printed before it starts.
    It can be interrupted; run the same command again to resume.
    """
    import headlab
    from headlab.studies.pareto import chosen_mask
    from headlab.studies.pareto_run import find_front, forecast
    from headlab.studies.pieces import Pieces

    check_ablation(ablation)
    about = method_of(method)
    options = resolve(
        {"method": about.key, "method_options": parse_options(option or [], about.options), "orders": orders,
         "points": None if every else points, "within": within, "heads": heads, "by": by}
    )  # fmt: skip
    chosen = headlab.task(task, split_languages(languages), data=data)
    loaded, store = headlab.load(model, device=device, dtype=dtype), open_store(cache)
    pieces = Pieces(loaded, chosen, store, seed=seed, dev_size=size, test_size=test_size, ablation=ablation)
    typer.echo(f"front: {forecast(pieces, options)}", err=True)
    with progress_bar("front") as show:

        def on_progress(step: Progress) -> None:
            show(step.note or "front", step.done, step.total)

        report = find_front(pieces, options=options, on_progress=on_progress)
    mask = chosen_mask(report, loaded.grid)
    if out is not None and out.suffix == ".json":
        mask.save(out)
    elif out is not None:
        mask.save(out / "mask.json")
        write_report(report, out)
    if json:
        print_json({"mask": mask.to_json(), "report": report.to_json()})
    else:
        typer.echo(markdown(report if full else _short(report)))


def _short(report: Any) -> Any:
    """The choice and its confirmation alone."""
    from dataclasses import replace

    return replace(report, tables=tuple(report.table(name) for name in SHOWN))
