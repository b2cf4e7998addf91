"""`headlab prune`: from scores to a mask, and what the mask does on examples that did not choose it."""

from __future__ import annotations

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
from headlab.store import Result


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
    loaded = headlab.load(model, device=device)
    rows: dict[str, tuple[Mask, Comparison]] = {}
    with progress_bar("pruning") as show:
        for number, language in enumerate(chosen.languages):
            show(language, number, len(chosen.languages))
            result = latest(
                open_store(cache).find(model=model, task=task, method=method, language=language), method, language
            )
            mask = result.scores.mask(rule, k=k, threshold=threshold)
            report = headlab.evaluate(loaded, chosen.restricted([language]), mask, split=as_split(split), size=size)
            comparison = report[language]
            assert isinstance(comparison, Comparison)
            rows[language] = mask, comparison
    save(rows, out)
    if json:
        print_json(
            {
                "split": split,
                "languages": {name: {"removed": len(m.removed)} | record(c) for name, (m, c) in rows.items()},
            }
        )
    else:
        typer.echo(table(rows, split))


def latest(results: list[Result], method: str, language: str) -> Result:
    """The result with most samples. Raises HeadlabError if there is none."""
    if not results:
        raise HeadlabError(
            f"no {method} scores for {language} in the cache; run: headlab score --method {method} --languages {language}"
        )
    return max(results, key=lambda r: 0 if r.scores.samples is None else int(r.scores.samples.sum()))


def save(rows: dict[str, tuple[Mask, Any]], out: Path | None) -> None:
    """Write the mask, or one mask a language into a folder."""
    if out is None:
        return
    for language, (mask, _) in rows.items():
        mask.save(out if len(rows) == 1 and out.suffix == ".json" else out / f"{language}.json")


def table(rows: dict[str, tuple[Mask, Comparison]], split: str) -> str:
    """A Markdown table: accuracy untouched and masked, difference in points with its interval."""
    head = f"| language | untouched ({split}) | heads removed | masked ({split}) | difference, points | 95 % interval | p |"
    lines = [head, "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for language, (mask, c) in rows.items():
        bounds = f"[{100 * c.low:+.1f}, {100 * c.high:+.1f}]"
        lines.append(
            f"| {language} | {c.baseline:.1%} | {len(mask.removed)} | {c.accuracy:.1%} | {100 * c.difference:+.1f} | {bounds} | {c.p:.3f} |"
        )
    return "\n".join(lines)
