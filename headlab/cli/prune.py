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
from headlab.store import Result, Store, matches


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
    results = {language: latest(store, loaded.identity(), task, method, language) for language in chosen.languages}
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


def latest(store: Store, model: Mapping[str, Any], task: str, method: str, language: str) -> Result:
    """The result with most samples of just this model. Raises HeadlabError if there is none."""
    listing = store.scan()
    found = [r for r in listing.results if matches(r, None, task, method, language)]
    results = [r for r in found if r.scores.spec["model"]["fingerprint"] == model["fingerprint"]]
    if not results:
        older = f" ({len(found)} of another model or version)" if found else ""
        torn = f" ({len(listing.problems)} files skipped: see headlab cache)" if listing.problems else ""
        raise HeadlabError(
            f"no {method} scores of {model['name']} for {language} in {store.root}{older}{torn}; run: headlab score "
            f"--model {model['name']} --task {task} --method {method} --languages {language}"
        )
    return max(results, key=lambda r: 0 if r.scores.samples is None else int(r.scores.samples.sum()))


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
