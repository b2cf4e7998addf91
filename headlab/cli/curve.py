"""`headlab curve`: accuracy as heads leave, least helpful first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlab.cli.evaluate import as_split
from headlab.cli.output import (
    MODEL,
    TASK,
    AsJson,
    CacheRoot,
    DataFolder,
    Device,
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
from headlab.methods.costs import refuse
from headlab.methods.table import METHODS
from headlab.methods.table import method as method_of
from headlab.options import parse_options
from headlab.scores import Curve
from headlab.tasks.base import DEV_SIZE

if TYPE_CHECKING:  # it needs torch, which takes seconds, and `headlab --help` does not
    from headlab.records import Progress

POINT = 0.01


def curve(
    model: ModelName = MODEL,
    task: TaskName = TASK,
    data: DataFolder = None,
    languages: Languages = "all",
    method: Annotated[str, typer.Option(help=f"method whose dev scores order the heads: {', '.join(METHODS)}")] = (
        "shapley"
    ),
    option: MethodOptions = None,
    split: Annotated[
        str, typer.Option(help="where the curve is measured; ordered on dev, so measure on test")
    ] = "test",
    size: Annotated[int | None, typer.Option(min=1, help="examples to measure on; default: all of the split")] = None,
    dev_size: Annotated[int, typer.Option(min=1, help="dev examples that order the heads")] = DEV_SIZE,
    points: Annotated[
        int | None, typer.Option(min=2, help="counts of removed heads to measure, evenly spaced; default: every one")
    ] = None,
    seed: Seed = 0,
    ablation: Annotated[str, typer.Option(help="what a removed head gives: zero or mean")] = "zero",
    device: Device = None,
    cache: CacheRoot = None,
    json: AsJson = False,
) -> None:
    """Remove heads one after another, lowest dev score first, and watch the accuracy.

    Scores come from the cache or are made first. It can be interrupted; run the same command again to resume.
    """
    import headlab
    from headlab.scores import counts

    check_ablation(ablation)
    about = method_of(method)
    options = about.resolve(parse_options(option or [], about.options))
    chosen = headlab.task(task, split_languages(languages), data=data)
    chosen.check(chosen.languages[0], split)
    loaded = headlab.load(model, device=device)
    refuse(about, loaded.grid.size)
    counts(loaded.grid.size, points)  # refused before anything is scored
    store, found = open_store(cache), dict[str, Curve]()
    with progress_bar("loading") as show:
        for number, language in enumerate(chosen.languages):
            place = f"{language} ({number + 1}/{len(chosen.languages)})"
            scores = headlab.score(
                loaded, chosen, language=language, method=about.key, seed=seed, size=dev_size, ablation=ablation,
                store=store, on_progress=_shown(show, f"{about.key} {place}"), **options,
            )  # fmt: skip
            found[language] = headlab.prune_curve(
                loaded, chosen, language=language, scores=scores, split=as_split(split), size=size, points=points,
                ablation=ablation, store=store, on_progress=_shown(show, f"curve {place}"), seed=seed,
            )  # fmt: skip
    if json:
        print_json({"split": split, "languages": {language: record(c) for language, c in found.items()}})
    else:
        typer.echo("\n\n".join(table(c) for c in found.values()))


def _shown(show: Callable[[str, int, int], None], title: str) -> Callable[[Progress], None]:
    def on_progress(step: Progress) -> None:
        show(title, step.done, step.total)

    return on_progress


def record(curve: Curve) -> dict[str, Any]:
    """One language's curve as JSON: lists [point], and the heads in the order they go."""
    arrays = ("removed", "accuracy", "difference", "low", "high", "p_values")
    return {name: getattr(curve, name).tolist() for name in arrays} | {
        "n": curve.n,
        "ordering": curve.ordering,
        "order": [list(curve.grid.heads[i]) for i in curve.order.tolist()],
        "area": curve.area,
        "heads_until_point_lost": {by: curve.heads_until(POINT, by) for by in ("estimate", "interval")},
        "caution": curve.caution,
        "seconds": curve.seconds,
        "example_forwards": curve.example_forwards,
        "values_sha256": curve.values_sha256(),
    }


def table(curve: Curve) -> str:
    """A Markdown table with a line a point, and the two numbers that sum a curve up."""
    lines = [
        f"{curve.language}: ordered by {curve.ordering}, measured on {curve.n} answers of {curve.split}",
        "",
        "| heads removed | accuracy | difference, points | 95 % interval | p |",
        "| ---: | ---: | ---: | ---: | ---: |",
    ]
    columns = (curve.removed, curve.accuracy, curve.difference, curve.low, curve.high, curve.p_values)
    for gone, accuracy, difference, low, high, p in zip(*columns, strict=True):
        span = f"[{100 * low:+.1f}, {100 * high:+.1f}]"
        lines.append(f"| {gone} | {accuracy:.1%} | {100 * difference:+.1f} | {span} | {p:.3f} |")
    estimate, sure = (curve.heads_until(POINT, by) for by in ("estimate", "interval"))
    lines += [
        "",
        f"mean accuracy over the curve {curve.area:.1%}; heads until 1 point is lost: {estimate} by the estimate, "
        f"{sure} by the interval",
    ]
    return "\n".join([*lines, f"note: {curve.caution}"] if curve.caution else lines)
