"""`headlab prune`: from scores to a mask, and its effect on held-out examples."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headlab.cli.evaluate import as_split, evaluation_record
from headlab.cli.job_command import FlagValues, option_flags
from headlab.cli.output import (
    AsJson,
    CacheRoot,
    Device,
    PlayersFlag,
    TaskSelection,
    check_ablation,
    open_store,
    playing,
    print_json,
    progress_bar,
)
from headlab.cli.score import print_equal_texts
from headlab.core import (
    HEADS,
    Comparison,
    HeadlabError,
    JsonLike,
    JsonRecord,
    Option,
    is_same_model,
    options_as_words,
    parse_options,
)
from headlab.jobs import JobSettings
from headlab.masks import Mask, architecture_of, check_rule, noted
from headlab.methods import (
    DEFAULT_METHOD,
    FIRST_MAP_METHOD,
    ChosenResults,
    options_of,
    options_on,
    remarks_on_choice,
    select,
)
from headlab.methods import method as method_of
from headlab.results import (
    UNCORRECTED,
    HeadScores,
    Listing,
    Result,
    Store,
    check_correction,
    is_of,
    refusal_of_first_look,
)
from headlab.tasks import EqualTexts, Task, equal_texts_notes, equal_texts_record

if TYPE_CHECKING:
    from headlab.evaluation import Evaluator
    from headlab.hooks import Model


# Which of the cached scores are meant, where there are several; a flag that is not given takes any.
SCORES_MADE_WITH = "that the scores were made with"
SCORED_WITH: JobSettings = {
    "dev_size": Option(
        None, f"number of dev examples {SCORES_MADE_WITH}", kind=int, low=1, optional=True
    ),
    "seed": Option(None, f"seed {SCORES_MADE_WITH}", kind=int, low=0, optional=True),
    "ablation": Option(
        None, f"ablation {SCORES_MADE_WITH}, as --ablation of headlab score", optional=True
    ),
}
SCORE_FLAGS = {"dev_size": "--size", "seed": "--seed", "ablation": "--ablation"}  # of headlab score


def prune(
    selection: TaskSelection,
    *,
    method: Annotated[
        str, typer.Option(help="method whose scores choose the heads")
    ] = DEFAULT_METHOD,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            help="option that the scores were made with, as name=value, e.g. estimand=shapley",
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
    ] = UNCORRECTED,
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
    players: PlayersFlag = None,
    device: Device = None,
    cache: CacheRoot = None,
    json: AsJson = False,
) -> None:
    """Make each language's mask from its cached dev scores and evaluate it.

    The masked model is compared with the untouched one.
    """
    import headlab
    from headlab.api import evaluate_language
    from headlab.evaluation import Evaluator

    task = selection.load_task()
    task.check(task.languages[0], split)
    if out is not None and out.suffix == ".json" and len(task.languages) > 1:
        raise HeadlabError(
            f"{out} is one file, but {len(task.languages)} languages have a mask each; "
            "give a folder",
            code="output.one_file_for_many",
        )
    store = open_store(cache)
    scoring_method = method_of(method)
    options = parse_options(option or [], scoring_method.options)
    scoring_method.resolve(options)  # raises for what its scores cannot have been made with
    if scored_with["ablation"] is not None:
        ablation = check_ablation(str(scored_with["ablation"]))
        scored_with = {**scored_with, "ablation": ablation}
    if scoring_method.key == FIRST_MAP_METHOD:
        raise refusal_of_first_look(scoring_method.key)
    check_correction(rule, correction)
    check_rule(rule, has_intervals=scoring_method.signed, k=k, threshold=threshold)
    if rule == "bottom" and (k is None or k < 0):
        raise HeadlabError(
            f"rule bottom removes the k heads of the lowest scores; given k={k}, so say how many "
            "with --k, as --k 8",
            code="rule.k_out_of_range",
        )
    load = playing(partial(headlab.load, device=device), task, players, store)
    model = load(selection.model)
    score_arguments = {
        "--model": selection.model,
        "--task": selection.task,
        "--data": selection.data,
        "--label-map": selection.label_map,
        "--method": scoring_method.key,
        "--players": None if model.players.are_heads else str(model.players),
        "--cache": cache,
    }
    choice = choose_scores(store, model, task, score_arguments, options, scored_with)
    _warn_about_choice(choice, rule)
    rows_by_language: dict[str, tuple[Mask, Comparison]] = {}
    counts_by_language: dict[str, Sequence[EqualTexts]] = {}
    with progress_bar("pruning") as show:
        for number, (language, result) in enumerate(choice.results.items()):
            show(language, number, len(choice.results))
            mask = result.record.mask(rule, k=k, threshold=threshold, correction=correction)
            language_task = task.with_languages([language])
            ablation = result.record.spec["ablation"]
            evaluator = Evaluator(model, language_task, language, as_split(split), size)
            comparison = evaluate_language(evaluator, mask, ablation=ablation)
            assert isinstance(comparison, Comparison)
            rows_by_language[language] = mask, comparison
            counts_by_language[language] = evaluator.equal_texts
            if out is not None:
                mask_path = out if out.suffix == ".json" else out / f"{language}.json"
                mask_with_figures(mask, evaluator, comparison, ablation, size).save(mask_path)
    print_equal_texts(counts_by_language)
    if json:
        print_json(_comparisons_record(rows_by_language, split, counts_by_language))
    else:
        typer.echo(comparison_table(rows_by_language, split))


def _comparisons_record(
    rows_by_language: dict[str, tuple[Mask, Comparison]],
    split: str,
    counts_by_language: Mapping[str, Sequence[EqualTexts]],
) -> JsonRecord:
    languages = {
        language: {"removed": len(mask.removed)}
        | evaluation_record(comparison)
        | equal_texts_record(counts_by_language[language])
        for language, (mask, comparison) in rows_by_language.items()
    }
    return {"split": split, "languages": languages}


def mask_with_figures(
    mask: Mask, evaluator: Evaluator, comparison: Comparison, ablation: str, size: int | None = None
) -> Mask:
    """The mask as stored in its file: with the model's architecture and the comparison's figures.

    Args:
        mask: As its rule chose it.
        evaluator: That the comparison was made with.
        comparison: Of the masked model with the baseline.
        ablation: That the heads were switched off by.
        size: The number of examples that was asked for; None for all.
    """
    task = evaluator.task.name
    note = "; ".join(filter(None, (evaluator.note, *equal_texts_notes(evaluator.equal_texts))))
    figures = {
        comparison.language: evaluation_record(comparison) | ({"note": note} if note else {})
    }
    choice = {"task": task, "ablation": ablation, **mask.chosen}
    examples = {} if size is None else {"size": size}
    noted_choice = noted(choice, evaluator.split, task, figures, ablation=ablation, **examples)
    return replace(
        mask,
        model={**mask.model, "architecture": architecture_of(evaluator.model.module)},
        chosen=noted_choice,
    )


def choose_scores(
    store: Store,
    model: Model,
    task: Task,
    score_arguments: Mapping[str, object],
    options: Mapping[str, JsonLike],
    scored_with: Mapping[str, object],
) -> ChosenResults:
    """One dev result per language of a task, for exactly this model and the current examples.

    Chosen by `headlab.methods.costs.select`, as in the pages.

    Args:
        store: Where the results are.
        model: That they are of.
        task: In the languages that results are needed of.
        score_arguments: Flags and values of the command that makes them, without the language;
            None for one that was not given.
        options: Of the method, that the scores were made with; others are as they come.
        scored_with: The other settings that they were made with, by their names in `SCORED_WITH`;
            None for any.

    Raises:
        HeadlabError: For a language without any.
    """
    listing = store.scan(str(score_arguments.get("--players") or ""))
    method = str(score_arguments["--method"])
    candidates = [
        result
        for result in listing.results
        if is_of(result, None, task.name, method, None) and result.record.language in task.languages
    ]
    usable = [
        result
        for result in candidates
        if made_with(result, options, scored_with) and is_usable(result, model, task)
    ]
    choice = select(usable, task.languages)
    _warn_of_names_passed_over(usable, choice)
    missing_languages = [language for language in task.languages if language not in choice.results]
    if missing_languages:
        raise HeadlabError(
            _missing_scores_message(
                store,
                listing,
                candidates,
                choice,
                missing_languages[0],
                score_arguments,
                options,
                scored_with,
            ),
            code="score.missing",
        )
    return choice


def made_with(
    result: Result[HeadScores], options: Mapping[str, JsonLike], scored_with: Mapping[str, object]
) -> bool:
    """Whether scores were made with these options of their method and these settings.

    A setting of None is any.
    """
    method_options = options_of(result.record)
    spec = result.record.spec
    settings = {
        "dev_size": spec["task"]["size"],
        "seed": spec["seed"],
        "ablation": spec["ablation"],
    }
    same_options = all(method_options[name] == value for name, value in options.items())
    return same_options and all(
        value in (None, settings[name]) for name, value in scored_with.items()
    )


def is_usable(result: Result[HeadScores], model: Model, task: Task) -> bool:
    """Whether scores can choose heads.

    They must be of this model, on dev, on the current examples and labels.
    """
    from headlab.evaluation import classes_for_spec

    spec = result.record.spec
    if not is_same_model(spec["model"]["fingerprint"], model.fingerprint):
        return False
    if spec["task"]["split"] != "dev":
        return False
    examples = task.examples(result.record.language, "dev", spec["task"]["size"])
    same_classes = classes_for_spec(model, task).get("classes") == spec["task"].get("classes")
    same_grid = result.record.grid == model.grid
    same_data = spec["task"]["data_hash"] == task.data_hash(examples)
    return bool(same_classes and same_grid and same_data)


def _missing_scores_message(
    store: Store,
    listing: Listing[HeadScores],
    candidates: Sequence[Result[HeadScores]],
    choice: ChosenResults,
    language: str,
    score_arguments: Mapping[str, object],
    options: Mapping[str, JsonLike],
    scored_with: Mapping[str, object],
) -> str:
    """Why there are no usable scores for a language, and the command that makes them."""
    method = str(score_arguments["--method"])
    language_results = [result for result in candidates if result.record.language == language]
    same_settings = sum(made_with(result, options, scored_with) for result in language_results)
    other_settings = len(language_results) - same_settings
    remarks = ""
    if same_settings:
        kind = "settings than the other languages' or " if choice.results else ""
        remarks += f" ({same_settings} of {kind}another model, split or version of the data)"
    if other_settings:
        remarks += f" ({other_settings} made with other options or settings)"
    skipped = ""
    if listing.problems:
        skipped = f" ({len(listing.problems)} files skipped: see headlab cache)"
    words = ["headlab", "score"]
    for flag, value in score_arguments.items():
        if value is not None:
            words += [flag, str(value)]
    words += options_as_words("-o", options, options_on(method, str(score_arguments["--task"])))
    for name, flag in SCORE_FLAGS.items():
        if scored_with[name] is not None:
            words += [flag, str(scored_with[name])]
    command = shlex.join([*words, "--languages", language])
    description = f"{method} scores of {score_arguments['--model']} for {language}"
    return f"no {description} in {store.root}{remarks}{skipped}; run: {command}"


def _warn_of_names_passed_over(usable: Sequence[Result[HeadScores]], choice: ChosenResults) -> None:
    """Warn of results that name harmful heads where scores of more heads are used instead."""
    passed_over: dict[str, list[str]] = {}
    for result in usable:
        language = result.record.language
        names = options_of(result.record).get("names")
        chosen_result = choice.results.get(language)
        if names is None or chosen_result is None:
            continue
        if options_of(chosen_result.record).get("names") is None:
            passed_over.setdefault(f"names={names}", []).append(language)
    for option, languages in passed_over.items():
        warnings.warn(
            f"used: scores of all heads, not those with {option} ({', '.join(dict.fromkeys(languages))}); "
            f"to prune by these, give -o {option}",
            stacklevel=1,
        )


def _warn_about_choice(choice: ChosenResults, rule: str) -> None:
    """Warn which results are used if there is a choice, and of the limits of this rule."""
    chosen_scores = [result.record for result in choice.results.values()]
    if not chosen_scores:
        return
    first = chosen_scores[0]
    if choice.others:
        used = f"{first.estimand}, {first.spec['ablation']} ablation, seed {first.spec['seed']}"
        keys = ", ".join(result.key[:12] for result in choice.others)
        warnings.warn(f"used: {used}; results of other settings are ignored ({keys})", stacklevel=1)
    for remark in remarks_on_choice(chosen_scores, rule):
        warnings.warn(f"{first.method}: {remark}", stacklevel=1)


def comparison_table(rows_by_language: dict[str, tuple[Mask, Comparison]], split: str) -> str:
    """A Markdown table: untouched and masked accuracy, and the difference with its interval."""
    nouns = {mask.grid.noun for mask, _ in rows_by_language.values()} or {HEADS}
    lines = [
        f"| language | untouched ({split}) | {nouns.pop()} removed | masked ({split}) "
        "| difference, points | 95 % interval | p |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for language, (mask, comparison) in rows_by_language.items():
        cells = (
            language,
            f"{comparison.baseline:.1%}",
            str(len(mask.removed)),
            f"{comparison.accuracy:.1%}",
            f"{100 * comparison.difference:+.1f}",
            f"[{100 * comparison.low:+.1f}, {100 * comparison.high:+.1f}]",
            f"{comparison.p:.3f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
