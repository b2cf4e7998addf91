"""`headlab prune`: from scores to a mask, and its effect on held-out examples."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headlab.cli.evaluate import as_split, record
from headlab.cli.job_command import FlagValues, option_flags
from headlab.cli.output import (
    AsJson,
    CacheRoot,
    Device,
    OnTask,
    check_ablation,
    open_store,
    print_json,
    progress_bar,
)
from headlab.cli.score import say_equal_texts
from headlab.core import (
    Comparison,
    HeadlabError,
    JsonLike,
    JsonRecord,
    Option,
    is_same_model,
    option_words,
    parse_options,
)
from headlab.jobs import Settings
from headlab.masks import Mask, architecture_of, noted
from headlab.methods import DEFAULT_METHOD, METHODS, Chosen, options_of, remarks_on_choice, select
from headlab.methods import method as method_of
from headlab.results import RAW, HeadScores, Listing, Result, Store, matches
from headlab.tasks import EqualTexts, Task, equal_texts_notes, equal_texts_record

if TYPE_CHECKING:
    from headlab.evaluation import Evaluator
    from headlab.hooks import Model


# Which of the cached scores are meant, where there are several; a flag that is not given takes any.
WITH = "that the scores were made with"
SCORED_WITH: Settings = {
    "dev_size": Option(None, f"number of dev examples {WITH}", kind=int, low=1, optional=True),
    "seed": Option(None, f"seed {WITH}", kind=int, low=0, optional=True),
    "ablation": Option(None, f"ablation {WITH}: zero or mean", optional=True),
}
SCORE_FLAGS = {"dev_size": "--size", "seed": "--seed", "ablation": "--ablation"}  # of headlab score


def prune(
    on: OnTask,
    *,
    method: Annotated[
        str, typer.Option(help="method whose scores choose the heads")
    ] = DEFAULT_METHOD,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            help="name=value that the scores were made with, e.g. estimand=shapley",
        ),
    ] = None,
    rule: Annotated[
        str, typer.Option(help="harmful (interval below 0), bottom (exactly k), threshold")
    ] = "harmful",
    correction: Annotated[
        str,
        typer.Option(
            help="rule harmful: raw (each head's own interval), holm, bh (Benjamini-Hochberg)"
        ),
    ] = RAW,
    k: Annotated[int | None, typer.Option(help="rule bottom: heads to remove")] = None,
    threshold: Annotated[
        float | None, typer.Option(help="rule threshold: remove scores below it")
    ] = None,
    scored_with: Annotated[FlagValues, option_flags(SCORED_WITH, *SCORED_WITH)],
    split: Annotated[
        str, typer.Option(help="split to evaluate the mask on; it was chosen on dev, so use test")
    ] = "test",
    size: Annotated[
        int | None, typer.Option(min=1, help="examples to evaluate on; default: all of the split")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="mask file (one language) or folder (several)")
    ] = None,
    device: Device = None,
    cache: CacheRoot = None,
    json: AsJson = False,
) -> None:
    """Make each language's mask from its cached dev scores and compare the masked with the untouched model."""
    import headlab
    from headlab.api import evaluated
    from headlab.evaluation import Evaluator

    chosen = on.chosen()
    chosen.check(chosen.languages[0], split)
    if out is not None and out.suffix == ".json" and len(chosen.languages) > 1:
        raise HeadlabError(
            f"{out} is one file, but {len(chosen.languages)} languages have a mask each; give a folder",
            code="output.one_file_for_many",
        )
    loaded = headlab.load(on.model, device=device)
    store = open_store(cache)
    about = method_of(method)
    options = parse_options(option or [], about.options)
    about.resolve(options)  # raises for what its scores cannot have been made with
    if scored_with["ablation"] is not None:
        check_ablation(str(scored_with["ablation"]))
    asked = {
        "--model": on.model, "--task": on.task, "--data": on.data, "--label-map": on.label_map, "--method": about.key,
        "--cache": cache,
    }  # fmt: skip
    results = latest(store, loaded, chosen, asked, options, scored_with)
    _tell(results, rule)
    rows: dict[str, tuple[Mask, Comparison]] = {}
    counts_by_language: dict[str, Sequence[EqualTexts]] = {}
    with progress_bar("pruning") as show:
        for number, (language, result) in enumerate(results.results.items()):
            show(language, number, len(results.results))
            mask = result.record.mask(rule, k=k, threshold=threshold, correction=correction)
            part, ablation = chosen.restricted([language]), result.record.spec["ablation"]
            evaluator = Evaluator(loaded, part, language, as_split(split), size)
            comparison = evaluated(evaluator, mask, ablation=ablation)
            assert isinstance(comparison, Comparison)
            rows[language] = mask, comparison
            counts_by_language[language] = evaluator.equal_texts
            if out is not None:
                place = out if out.suffix == ".json" else out / f"{language}.json"
                with_figures(mask, evaluator, comparison, ablation, size).save(place)
    say_equal_texts(counts_by_language)
    print_json(_as_json(rows, split, counts_by_language)) if json else typer.echo(
        table(rows, split)
    )


def _as_json(
    rows: dict[str, tuple[Mask, Comparison]],
    split: str,
    counts_by_language: Mapping[str, Sequence[EqualTexts]],
) -> JsonRecord:
    languages = {
        name: {"removed": len(mask.removed)}
        | record(seen)
        | equal_texts_record(counts_by_language[name])
        for name, (mask, seen) in rows.items()
    }
    return {"split": split, "languages": languages}


def with_figures(
    mask: Mask, evaluator: Evaluator, seen: Comparison, ablation: str, size: int | None = None
) -> Mask:
    """The mask as stored in its file: with the model's architecture, and its results on the evaluation split.

    size: the number of examples that was asked for; None for all.
    """
    task = evaluator.task.name
    note = "; ".join(filter(None, (evaluator.note, *equal_texts_notes(evaluator.equal_texts))))
    figures = {seen.language: record(seen) | ({"note": note} if note else {})}
    about = {"task": task, "ablation": ablation, **mask.chosen}
    examples = {} if size is None else {"size": size}
    chosen = noted(about, evaluator.split, task, figures, ablation=ablation, **examples)
    return replace(
        mask,
        model={**mask.model, "architecture": architecture_of(evaluator.model.module)},
        chosen=chosen,
    )


def latest(
    store: Store,
    model: Model,
    task: Task,
    asked: Mapping[str, object],
    options: Mapping[str, JsonLike],
    scored_with: Mapping[str, object],
) -> Chosen:
    """One dev result per language of a task, for exactly this model, its classes and the current examples.

    Chosen by `headlab.methods.costs.select`, as in the pages.

    Args:
        store: Where the results are.
        model: That they are of.
        task: In the languages that results are needed of.
        asked: Options of the command that makes them, without the language; None for one that was not given.
        options: Of the method, that the scores were made with; others are as they come.
        scored_with: The other settings that they were made with, by their names in `SCORED_WITH`; None for any.

    Raises:
        HeadlabError: For a language without any.
    """
    listing = store.scan()
    named = [
        r for r in listing.results if matches(r, None, task.name, str(asked["--method"]), None)
    ]
    named = [r for r in named if r.record.language in task.languages]
    usable = [r for r in named if made_with(r, options, scored_with) and fits(r, model, task)]
    chosen = select(usable, task.languages)
    lacking = [language for language in task.languages if language not in chosen.results]
    if lacking:
        raise HeadlabError(
            _missing(store, listing, named, chosen, lacking[0], asked, options, scored_with),
            code="score.missing",
        )
    return chosen


def made_with(
    result: Result[HeadScores], options: Mapping[str, JsonLike], scored_with: Mapping[str, object]
) -> bool:
    """Whether scores were made with these options of their method, and these settings; None is any setting."""
    method_options, spec = options_of(result.record), result.record.spec
    settings = {
        "dev_size": spec["task"]["size"],
        "seed": spec["seed"],
        "ablation": spec["ablation"],
    }
    same_options = all(method_options[name] == value for name, value in options.items())
    return same_options and all(
        value in (None, settings[name]) for name, value in scored_with.items()
    )


def fits(result: Result[HeadScores], model: Model, task: Task) -> bool:
    """Whether scores can be used to choose heads: of this model, on dev, on the task's current examples and labels."""
    from headlab.evaluation import classes_of

    spec = result.record.spec
    if (
        not is_same_model(spec["model"]["fingerprint"], model.fingerprint)
        or spec["task"]["split"] != "dev"
    ):
        return False
    examples = task.examples(result.record.language, "dev", spec["task"]["size"])
    same = classes_of(model, task).get("classes") == spec["task"].get("classes")
    same &= result.record.grid == model.grid
    return bool(same and spec["task"]["data_hash"] == task.data_hash(examples))


def _missing(
    store: Store,
    listing: Listing[HeadScores],
    named: Sequence[Result[HeadScores]],
    chosen: Chosen,
    language: str,
    asked: Mapping[str, object],
    options: Mapping[str, JsonLike],
    scored_with: Mapping[str, object],
) -> str:
    """Why there are no usable scores for a language, and the command that makes them."""
    own = [r for r in named if r.record.language == language]
    older = sum(made_with(r, options, scored_with) for r in own)
    kind = "settings than the other languages' or " if chosen.results else ""
    others = f" ({older} of {kind}another model, split or version of the data)" if older else ""
    others += (
        f" ({len(own) - older} made with other options or settings)" if len(own) > older else ""
    )
    torn = (
        f" ({len(listing.problems)} files skipped: see headlab cache)" if listing.problems else ""
    )
    words = [
        str(word)
        for option, value in asked.items()
        if value is not None
        for word in (option, value)
    ]
    words += option_words("-o", options, METHODS[str(asked["--method"])].options)
    for name, flag in SCORE_FLAGS.items():
        if scored_with[name] is not None:
            words += [flag, str(scored_with[name])]
    command = shlex.join(["headlab", "score", *words, "--languages", language])
    what = f"{asked['--method']} scores of {asked['--model']} for {language}"
    return f"no {what} in {store.root}{others}{torn}; run: {command}"


def _tell(chosen: Chosen, rule: str) -> None:
    """Warn which results are used if there is a choice, and of what limits a choice by this rule."""
    for result in list(chosen.results.values())[:1]:
        scores = result.record
        used = f"{scores.estimand}, {scores.spec['ablation']} ablation, seed {scores.spec['seed']}"
        if chosen.others:
            keys = ", ".join(r.key[:12] for r in chosen.others)
            warnings.warn(
                f"used: {used}; results of other settings are ignored ({keys})", stacklevel=1
            )
        for text in remarks_on_choice([one.record for one in chosen.results.values()], rule):
            warnings.warn(f"{scores.method}: {text}", stacklevel=1)


def table(rows: dict[str, tuple[Mask, Comparison]], split: str) -> str:
    """A Markdown table: untouched and masked accuracy, and the difference in points with its interval."""
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
