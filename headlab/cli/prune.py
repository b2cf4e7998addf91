"""`headlab prune`: from scores to a mask, and what the mask does on examples that did not choose it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from headlab.cli.evaluate import as_split, record
from headlab.cli.output import (
    MODEL,
    TASK,
    AsJson,
    CacheRoot,
    Device,
    Languages,
    ModelName,
    TaskName,
    open_store,
    print_json,
    progress_bar,
    split_languages,
)  # fmt: skip
from headlab.errors import HeadlabError
from headlab.masks import Mask
from headlab.records import Comparison
from headlab.store import Listing, Result, Store, matches
from headlab.tasks.base import Task


def prune(
    model: ModelName = MODEL,
    task: TaskName = TASK,
    languages: Languages = "all",
    method: Annotated[str, typer.Option(help="method whose scores choose the heads")] = "shapley",
    rule: Annotated[str, typer.Option(help="harmful (interval below 0), bottom (exactly k), threshold")] = "harmful",
    k: Annotated[int | None, typer.Option(help="rule bottom: heads to remove")] = None,
    threshold: Annotated[float | None, typer.Option(help="rule threshold: remove scores below it")] = None,
    split: Annotated[str, typer.Option(help="where the mask is judged; chosen on dev, so judge on test")] = "test",
    size: Annotated[int | None, typer.Option(min=1, help="examples to judge on; default: all of the split")] = None,
    out: Annotated[Path | None, typer.Option(help="mask file (one language) or folder (several)")] = None,
    device: Device = None,
    cache: CacheRoot = None,
    json: AsJson = False,
) -> None:
    """Make each language's mask from its cached dev scores and compare it with the untouched model."""
    import headlab

    chosen = headlab.task(task, split_languages(languages))
    chosen.check(chosen.languages[0], split)
    if out is not None and out.suffix == ".json" and len(chosen.languages) > 1:
        raise HeadlabError(f"{out} is one file, but {len(chosen.languages)} languages have a mask each; give a folder")
    loaded = headlab.load(model, device=device)
    store = open_store(cache)
    listing = store.scan()
    results = {
        language: latest(listing, store, loaded.identity(), chosen, method, language) for language in chosen.languages
    }
    rows: dict[str, tuple[Mask, Comparison]] = {}
    with progress_bar("pruning") as show:
        for number, (language, result) in enumerate(results.items()):
            show(language, number, len(results))
            mask = result.scores.mask(rule, k=k, threshold=threshold)
            if out is not None:
                mask.save(out if out.suffix == ".json" else out / f"{language}.json")
            part, ablation = chosen.restricted([language]), result.scores.spec["ablation"]
            report = headlab.evaluate(loaded, part, mask, split=as_split(split), size=size, ablation=ablation)
            comparison = report[language]
            assert isinstance(comparison, Comparison)
            rows[language] = mask, comparison
    if json:
        print_json(
            {
                "split": split,
                "languages": {name: {"removed": len(m.removed)} | record(c) for name, (m, c) in rows.items()},
            }
        )
    else:
        typer.echo(table(rows, split))


def latest(listing: Listing, store: Store, model: Mapping[str, Any], task: Task, method: str, language: str) -> Result:
    """The dev result with most samples of just this model and today's examples.

    Raises HeadlabError if there is none, or if several variants (estimand, ablation, seed) have as many.
    """
    found = [r for r in listing.results if matches(r, None, task.name, method, language)]
    results = [r for r in found if fits(r, model, task, language)]
    if not results:
        older = f" ({len(found)} of another model, split or version of the data)" if found else ""
        torn = f" ({len(listing.problems)} files skipped: see headlab cache)" if listing.problems else ""
        raise HeadlabError(
            f"no {method} scores of {model['name']} for {language} in {store.root}{older}{torn}; run: headlab score "
            f"--model {model['name']} --task {task.name} --method {method} --languages {language}"
        )
    most = max(map(samples, results))
    best = [r for r in results if samples(r) == most]
    if len(best) > 1:
        keys = ", ".join(r.key[:12] for r in best)
        raise HeadlabError(
            f"{len(best)} {method} results for {language} have equally many samples but differ in options, ablation or "
            f"seed ({keys}); keep one of them in {store.root}, or name another folder with --cache"
        )
    return best[0]


def fits(result: Result, model: Mapping[str, Any], task: Task, language: str) -> bool:
    """Whether scores may choose heads: of this model, on dev, on the examples the task gives today."""
    spec = result.scores.spec
    if spec["model"]["fingerprint"] != model["fingerprint"] or spec["task"]["split"] != "dev":
        return False
    return bool(spec["task"]["data_hash"] == task.data_hash(task.examples(language, "dev", spec["task"]["size"])))


def samples(result: Result) -> int:
    """Samples behind a result; 0 where the method draws none."""
    return 0 if result.scores.samples is None else int(result.scores.samples.sum())


def table(rows: dict[str, tuple[Mask, Comparison]], split: str) -> str:
    """A Markdown table: accuracy untouched and masked, difference in points with its interval."""
    lines = [
        f"| language | untouched ({split}) | heads removed | masked ({split}) "
        "| difference, points | 95 % interval | p |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for language, (mask, c) in rows.items():
        cells = (
            language, f"{c.baseline:.1%}", str(len(mask.removed)), f"{c.accuracy:.1%}", f"{100 * c.difference:+.1f}",
            f"[{100 * c.low:+.1f}, {100 * c.high:+.1f}]", f"{c.p:.3f}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
