"""`headlab score`: scores of every head, kept in the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlab.cli.output import (
    MODEL,
    TASK,
    AsJson,
    CacheRoot,
    Device,
    Languages,
    ModelName,
    Seed,
    Size,
    TaskName,
    check_ablation,
    open_store,
    parse_options,
    print_json,
    progress_bar,
    split_languages,
)  # fmt: skip
from headlab.methods.table import METHODS
from headlab.methods.table import method as method_of
from headlab.scores import HeadScores

if TYPE_CHECKING:  # it needs torch, which takes seconds, and `headlab --help` does not
    from headlab.methods.work import Progress


def score(
    model: ModelName = MODEL,
    task: TaskName = TASK,
    languages: Languages = "all",
    method: Annotated[str, typer.Option(help=f"one of {', '.join(METHODS)}")] = "shapley",
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", help="name=value of the method, e.g. samples=512")
    ] = None,
    seed: Seed = 0,
    size: Size = 512,
    ablation: Annotated[str, typer.Option(help="what a removed head gives: zero or mean")] = "zero",
    device: Device = None,
    cache: CacheRoot = None,
    json: AsJson = False,
) -> None:
    """Score every head on dev. Interrupt it when you like: the same command goes on where it stopped."""
    import headlab

    check_ablation(ablation)
    method_of(method).resolve(given := parse_options(option or []))
    chosen = headlab.task(task, split_languages(languages))
    loaded = headlab.load(model, device=device)
    found: dict[str, HeadScores] = {}
    with progress_bar("loading") as show:
        for number, language in enumerate(chosen.languages):
            title = f"{method} {language} ({number + 1}/{len(chosen.languages)})"

            def on_progress(step: Progress, title: str = title) -> None:
                show(title, step.done, step.total)

            found[language] = headlab.score(
                loaded, chosen, language=language, method=method, seed=seed, size=size, ablation=ablation,
                store=open_store(cache), on_progress=on_progress, **given,
            )  # fmt: skip
    print_json({"languages": {k: record(v) for k, v in found.items()}}) if json else print_table(found)


def record(scores: HeadScores) -> dict[str, Any]:
    """One language's scores as JSON; arrays are `[layer][head]`."""
    nest = scores.grid.nest
    arrays = {name: getattr(scores, name) for name in ("values", "half_width", "low", "high", "samples", "p_values")}
    return {name: None if array is None else nest(array) for name, array in arrays.items()} | {
        "estimand": scores.estimand,
        "unit": scores.unit,
        "level": scores.level,
        "seconds": scores.seconds,
        "example_forwards": scores.example_forwards,
        "values_sha256": scores.values_sha256(),
    }


def print_table(found: dict[str, HeadScores]) -> None:
    """A line a language: what was found and what it cost."""
    for language, scores in found.items():
        width = scores.half_width
        bounds = (
            "no intervals"
            if width is None
            else (
                f"helpful {int(scores.helpful.sum())}, harmful {int(scores.harmful.sum())} of {scores.grid.size}; "
                f"half-width median {float(sorted(width)[len(width) // 2]):.4f}, largest {float(width.max()):.4f}"
            )
        )
        typer.echo(
            f"{language:6} {scores.estimand}: {bounds}; {scores.example_forwards} forwards, {scores.seconds:.0f} s"
        )
