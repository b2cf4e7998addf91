"""`headlab evaluate`: accuracy, and for translations BLEU, with or without a mask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlab.cli.output import (
    TASK,
    AsJson,
    Device,
    DeviceMap,
    PlayersFlag,
    Seed,
    TaskSelection,
    check_ablation,
    print_json,
    progress_bar,
)
from headlab.core import (
    ABLATIONS,
    Comparison,
    Evaluation,
    HeadlabError,
    JsonLike,
    Table,
    omission_fields,
    players_of,
    read_players,
    require_own_output,
    write_atomic,
)
from headlab.masks import Mask, load_mask
from headlab.tasks import DEV_SIZE, Split, Task, equal_texts_notes, equal_texts_record

if TYPE_CHECKING:
    from headlab.evaluation import Decoding, Evaluator
    from headlab.hooks import Model
    from headlab.stats import PairedDifference

LanguageDetails = Mapping[str, Any]


def evaluate(
    selection: TaskSelection,
    mask: Annotated[
        Path | None, typer.Option(help="mask file; compared with the untouched model")
    ] = None,
    split: Annotated[str, typer.Option(help="dev (to choose heads) or test (to report)")] = "dev",
    size: Annotated[
        int | None, typer.Option(min=1, help="examples; default 512 of dev, all of test")
    ] = None,
    ablation: Annotated[
        str | None,
        typer.Option(
            help=f"{' | '.join(ABLATIONS)}, its sizes as streaming:4,64; default: as the mask was chosen"
        ),
    ] = None,
    changes: Annotated[
        Path | None,
        typer.Option(help="CSV file to write: every answer that the mask changes, with its text"),
    ] = None,
    bleu: Annotated[
        bool, typer.Option("--bleu", help="translate, and compute BLEU with its interval")
    ] = False,
    beams: Annotated[
        int | None,
        typer.Option(min=1, help="beam size of the translations, with --bleu; default 1 (greedy)"),
    ] = None,
    lm_eval: Annotated[
        str | None,
        typer.Option(help="instead of --task: tasks of lm-evaluation-harness, comma-separated"),
    ] = None,
    lm_eval_folder: Annotated[
        Path | None,
        typer.Option(help="folder of tasks of your own for --lm-eval, as the harness has them"),
    ] = None,
    players: PlayersFlag = None,
    seed: Seed = 0,
    device: Device = None,
    device_map: DeviceMap = None,
    json: AsJson = False,
) -> None:
    """Measure accuracy in each language.

    With a mask, the paired difference from the untouched model is measured too.

    For translations, log-probability is measured too, and BLEU with --bleu.
    """
    import headlab
    from headlab.api import evaluate_language
    from headlab.evaluation import Evaluator

    loaded_mask = load_mask(mask) if mask is not None else None
    ablation = ablation or chosen_ablation(loaded_mask)
    ablation = check_ablation(ablation)
    own_task_options = {
        "--changes": changes,
        "--bleu": bleu,
        "--beams": beams,
        "--label-map": selection.label_map,
        "--data": selection.data,
        "--task": selection.task != TASK,
        "--languages": selection.languages != "all",
        "--split": split != "dev",
    }
    check_harness(lm_eval, lm_eval_folder, ablation, own_task_options)
    load = partial(headlab.load, selection.model, device=device, device_map=device_map)
    check_players(players, loaded_mask)
    if loaded_mask is not None:
        load = partial(load_for_mask, load, loaded_mask)
    if lm_eval is not None:
        print_harness_metrics(
            load, task_names(lm_eval), loaded_mask, size, seed, lm_eval_folder, json
        )
        return
    size = size or (DEV_SIZE if split == "dev" else None)
    task = selection.load_task()
    task.check(task.languages[0], split)
    check_changes(changes, loaded_mask, task)
    decoding = checked_decoding(task, split, bleu, beams)
    if decoding is not None and loaded_mask is not None:
        require_own_output(ablation, "translations are written")
    model = load()
    if loaded_mask is not None:
        loaded_mask.check(model.grid, model.fingerprint)
    results_by_language: dict[str, Comparison | Evaluation] = {}
    details_by_language: dict[str, dict[str, JsonLike]] = {}
    change_tables: list[Table] = []
    with progress_bar("evaluating") as show:
        for number, language in enumerate(task.languages):
            show(language, number, len(task.languages))
            evaluator = Evaluator(
                model, task.with_languages([language]), language, as_split(split), size
            )
            request = EvaluationRequest(evaluator, loaded_mask, ablation, seed)
            print_notes(evaluator)
            results_by_language[language] = evaluate_language(
                evaluator, loaded_mask, ablation=ablation, seed=seed
            )
            if task.labels:
                details = assumed_classes(request)
            else:
                details = translation_figures(request, decoding) | normalised_accuracy(request)
            details_by_language[language] = details | equal_texts_record(evaluator.equal_texts)
            if changes is not None:
                change_tables.append(change_table(request))
    if changes is not None:
        save_changes(change_tables, changes)
    print_results(results_by_language, details_by_language, json)


def check_players(players: str | None, mask: Mask | None) -> None:
    """Raise HeadlabError if --players names others than a mask switches, or there is no mask.

    Args:
        players: As of --players; None for those of the mask.
        mask: The mask, if there is one.
    """
    if players is None:
        return
    if mask is None:
        raise HeadlabError(
            "--players says what a mask switches; give --mask with it", code="option.needs_mask"
        )
    asked_for = read_players(players)
    of_mask = players_of(mask.grid)
    if asked_for != of_mask:
        raise HeadlabError(
            f"the mask switches {of_mask}, and --players asks for {asked_for}; leave --players out, "
            "or give a mask of these",
            code="mask.other_players",
        )


def load_for_mask(load: Callable[[], Model], mask: Mask) -> Model:
    """A model of which the players of a mask are switched."""
    from headlab.hooks import with_players_of

    model = load()
    if mask.grid.has_only_heads:
        return model
    mask.check_model(model.fingerprint)
    return with_players_of(model, mask.grid)


def print_notes(evaluator: Evaluator) -> None:
    """Print on stderr what to know beside the figures of a language."""
    for note in (evaluator.inputs.note, *equal_texts_notes(evaluator.equal_texts)):
        if note:
            typer.echo(f"{evaluator.language}: {note}", err=True)


def print_results(
    results_by_language: Mapping[str, Comparison | Evaluation],
    details_by_language: Mapping[str, LanguageDetails],
    json: bool,
) -> None:
    """Print the figures of all languages."""
    from headlab.api import evaluation_line

    if json:
        records = {}
        for language, result in results_by_language.items():
            details = dict(details_by_language.get(language, {}))
            records[language] = evaluation_record(result) | details
        print_json({"languages": records})
        return
    for language, result in results_by_language.items():
        typer.echo(evaluation_line(result))
        if "log_probability" in details_by_language[language]:
            typer.echo("\n".join(detail_lines(details_by_language[language])))


def check_harness(
    tasks: str | None, folder: Path | None, ablation: str, own_task_options: Mapping[str, Any]
) -> None:
    """Raise HeadlabError for what the harness cannot do.

    Args:
        tasks: of the harness, comma-separated; None without them.
        folder: of further tasks.
        ablation: of the heads that are switched off.
        own_task_options: options by flag, none of which goes with the harness's tasks.
    """
    if tasks is None:
        if folder is not None:
            raise HeadlabError(
                "--lm-eval-folder holds tasks for --lm-eval; give that too",
                code="option.needs_lm_eval",
            )
        return
    if ablation != "zero":
        raise HeadlabError(
            f"--lm-eval removes heads by zero ablation, and {ablation} ablation is asked for, by "
            "--ablation or by the mask, whose heads were chosen under it; give --ablation zero to "
            "measure it anyway",
            code="lm_eval.ablation",
        )
    unusable_flags = [
        flag for flag, value in own_task_options.items() if value not in (None, False)
    ]
    if unusable_flags:
        raise HeadlabError(
            f"{unusable_flags[0]} is for headlab's own tasks and has no effect with --lm-eval; "
            "leave one of them out",
            code="lm_eval.option_unused",
        )


def task_names(text: str) -> list[str]:
    """The names in a comma-separated list, without the spaces around them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def print_harness_metrics(
    load: Callable[[], Model],
    tasks: Sequence[str],
    mask: Mask | None,
    size: int | None,
    seed: int,
    folder: Path | None,
    json: bool,
) -> None:
    """Print what lm-evaluation-harness measures, and on stderr how that differs from its tasks.

    Args:
        load: gives the model.
        tasks: names of its tasks or groups.
        mask: of heads to switch off.
        size: number of documents of each task; None for all.
        seed: of the intervals.
        folder: of further tasks.
        json: whether to print JSON.

    Raises:
        HeadlabError: where it is not installed.
    """
    try:
        from headlab.evaluation.lm_eval import harness_figures
    except ModuleNotFoundError as error:
        raise HeadlabError(
            f"--lm-eval needs a package that is not installed ({error.name}): "
            "pip install 'headlab[lm-eval]'",
            code="package.lm_eval_missing",
        ) from error
    notes: list[str] = []
    figures = harness_figures(
        load(),
        tasks,
        mask,
        size=size,
        seed=seed,
        folder=None if folder is None else str(folder),
        tell=notes.append,
    )
    for note in notes:
        typer.echo(note, err=True)
    if json:
        print_json({"tasks": figures, "notes": notes})
        return
    for line in harness_lines(figures):
        typer.echo(line)


NO_FILTER = "none"  # the harness's name for answers as they are
# Where better lies, as in the harness's tables.
DIRECTIONS = {True: "\N{UPWARDS ARROW}", False: "\N{DOWNWARDS ARROW}", None: " "}
LARGE = 1e6  # numbers from here on are printed with an exponent


def harness_lines(figures: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[str]:
    """The metrics of the harness as lines of text, one for each task, filter and metric.

    Args:
        figures: rows by task and metric, as `headlab.evaluation.harness.metrics.figures` gives
            them.
    """
    rows = []
    for task, rows_by_metric in figures.items():
        for name, row in rows_by_metric.items():
            metric = name.removesuffix(f",{row['filter']}")
            label = f"{metric} {DIRECTIONS[row['higher_is_better']]}"
            rows.append((task, row["filter"], label, harness_words(metric, row)))
    task_width = max((len(task) for task, _, _, _ in rows), default=0)
    filter_width = max((len(filter_name) for _, filter_name, _, _ in rows), default=0)
    label_width = max((len(label) for _, _, label, _ in rows), default=0)
    filters_differ = any(filter_name != NO_FILTER for _, filter_name, _, _ in rows)
    for task, filter_name, label, words in rows:
        cells = [f"{task:{task_width}}", f"{label:{label_width}}", words]
        if filters_differ:
            cells.insert(1, f"{filter_name:{filter_width}}")
        yield "  ".join(cells)


def harness_words(metric: str, row: Mapping[str, Any]) -> str:
    """A metric's value, its difference from the untouched model, and its number of documents."""
    value = row[metric]
    numbers = [number for number in (value, row.get("baseline")) if number is not None]
    number_format = ".4f"
    if any(abs(number) >= LARGE for number in numbers):
        number_format = ".4g"
    text = "no number"
    if value is not None:
        text = f"{value:{number_format}}"
    if row.get("difference") is not None:
        text += difference_words(row, number_format)
    if "no_interval" in row:
        text += f" (no interval: {row['no_interval']})"
    text += f"  n={row['n']}"
    if row["cut"]:
        text += f"  cut={row['cut']}"
    return text


def checked_decoding(task: Task, split: str, bleu: bool, beams: int | None) -> Decoding | None:
    """How to translate; None without BLEU.

    Raises:
        HeadlabError: Early if BLEU could not be measured.
    """
    if not bleu:
        if beams is not None:
            raise HeadlabError(
                "--beams applies to translations; give --bleu with it", code="option.needs_bleu"
            )
        return None
    from headlab.evaluation import Decoding, check_bleu

    decoding = Decoding(beams or 1)
    for language in task.languages:
        check_bleu(task, language, as_split(split), decoding)
    return decoding


@dataclass(frozen=True)
class EvaluationRequest:
    """What is measured in one language: with which mask, and which ablation and seed."""

    evaluator: Evaluator
    mask: Mask | None
    ablation: str
    seed: int


def check_changes(file: Path | None, mask: Mask | None, task: Task) -> None:
    """Raise HeadlabError early if changed answers are asked for that there cannot be."""
    if file is None:
        return
    if mask is None:
        raise HeadlabError(
            "--changes lists the answers that a mask changes; give --mask with it",
            code="option.needs_mask",
        )
    if not task.has_named_answers:
        raise HeadlabError(
            f"--changes lists labels, but task {task.name} has none; leave it out, or choose a "
            "task that labels texts or words, or has choices",
            code="changes.no_labels",
        )


def change_table(request: EvaluationRequest) -> Table:
    """The answers that the mask changes in one language."""
    from headlab.evaluation import changes, table

    assert request.mask is not None
    return table(
        changes(request.evaluator, request.mask, ablation=request.ablation),
        request.evaluator.language,
    )


def save_changes(tables: Sequence[Table], file: Path) -> None:
    """Write the changed answers of all languages as one CSV file."""
    rows = tuple(row for table in tables for row in table.rows)
    write_atomic(file, replace(tables[0], rows=rows).csv().encode())
    count_text = f"{len(rows):,} answer{'s' * (len(rows) != 1)}"
    typer.echo(f"{count_text} changed: {file}", err=True)


def assumed_classes(request: EvaluationRequest) -> dict[str, JsonLike]:
    """The model's class for each label, as JSON; nothing where its names are the labels."""
    from headlab.evaluation import label_order

    evaluator = request.evaluator
    classes_by_label = label_order(evaluator.model, evaluator.task).assumed
    if classes_by_label is None:
        return {}
    return {"classes": classes_by_label}


def translation_figures(
    request: EvaluationRequest, decoding: Decoding | None
) -> dict[str, JsonLike]:
    """Log-probability of one language's reference translations, and BLEU with `decoding`, as JSON.

    With a mask, also the untouched model's value and the paired difference.
    """
    from headlab.evaluation import bleu_gain, gain, likelihood, text_rates, translated_bleu

    evaluator = request.evaluator
    mask = request.mask
    seed = request.seed
    ablation = request.ablation
    baseline_likelihood = masked_likelihood = likelihood(evaluator, seed=seed)
    difference: dict[str, float] = {}
    if mask is not None:
        masked_likelihood = likelihood(evaluator, mask, ablation=ablation, seed=seed)
        difference = paired_figures(
            baseline_likelihood.mean, gain(baseline_likelihood, masked_likelihood, seed=seed)
        )
    figures: dict[str, JsonLike] = {
        "log_probability": masked_likelihood.record()
        | difference
        | text_rates(evaluator, masked_likelihood, seed=seed)
    }
    if decoding is None:
        return figures
    baseline_bleu = translated_bleu(evaluator, decoding=decoding, seed=seed)
    if mask is None:
        return figures | {"bleu": baseline_bleu.record() | decoding.record()}
    masked_bleu = translated_bleu(evaluator, mask, ablation=ablation, decoding=decoding, seed=seed)
    bleu_figures = (
        masked_bleu.record()
        | paired_figures(baseline_bleu.score, bleu_gain(baseline_bleu, masked_bleu, seed=seed))
        | decoding.record()
    )
    return figures | {"bleu": bleu_figures}


def normalised_accuracy(request: EvaluationRequest) -> dict[str, JsonLike]:
    """Accuracy of choices by log-probability a byte, as JSON; nothing for other tasks.

    With a mask, also the untouched model's value and the paired difference.
    """
    if not request.evaluator.examples[0].choices:
        return {}
    import numpy as np

    from headlab.evaluation import right_by_bytes
    from headlab.stats import paired_bootstrap, share_interval

    evaluator = request.evaluator
    clusters = tuple(example.cluster for example in evaluator.examples)
    baseline_correct = right_by_bytes(evaluator)
    correct = baseline_correct
    if request.mask is not None:
        correct = right_by_bytes(evaluator, request.mask, ablation=request.ablation)
    low, high = share_interval(correct, clusters, np.random.default_rng(request.seed))
    figures: dict[str, JsonLike] = {
        "accuracy_normalised": float(correct.mean()),
        "accuracy_normalised_low": low,
        "accuracy_normalised_high": high,
    }
    if request.mask is None:
        return figures
    difference = paired_bootstrap(
        baseline_correct, correct, clusters, np.random.default_rng(request.seed)
    )
    return figures | {"normalised": paired_figures(float(baseline_correct.mean()), difference)}


def paired_figures(baseline: float, difference: PairedDifference) -> dict[str, float]:
    """The untouched model's value and the difference from it, as JSON."""
    return {"baseline": baseline, **difference._asdict()}


def detail_lines(figures: LanguageDetails) -> Iterator[str]:
    """One language's log-probability and BLEU as lines of text."""
    row = figures["log_probability"]
    unit = "choice" if "accuracy_normalised" in figures else "token"
    low = row["log_probability_low"]
    high = row["log_probability_high"]
    yield (
        f"       log-probability {row['log_probability']:.3f} nats a {unit}  "
        f"[{low:.3f}, {high:.3f}]{difference_words(row, '.3f')}"
    )
    if "bits_per_byte" in row:
        rates = []
        for name, label in (
            ("bits_per_byte", "bits per byte"),
            ("word_perplexity", "word perplexity"),
        ):
            if name in row:
                low = row[f"{name}_low"]
                high = row[f"{name}_high"]
                rates.append(f"{label} {row[name]:.3f}  [{low:.3f}, {high:.3f}]")
        yield "       " + "   ".join(rates)
    share = figures.get("accuracy_normalised")
    if share is not None:
        low = figures["accuracy_normalised_low"]
        high = figures["accuracy_normalised_high"]
        difference = ""
        if "normalised" in figures:
            difference = difference_words(figures["normalised"], ".1%")
        yield (
            f"       accuracy by log-probability per byte {share:.1%}  "
            f"[{low:.1%}, {high:.1%}]{difference}"
        )
    if "bleu" in figures:
        row = figures["bleu"]
        low = row["bleu_low"]
        high = row["bleu_high"]
        yield (
            f"       BLEU {row['bleu']:.1f}  [{low:.1f}, {high:.1f}]{difference_words(row, '.1f')}"
            f"  n={row['sentences']}  {row['signature']}|beams:{row['beams']}"
        )


def difference_words(row: Mapping[str, Any], number_format: str) -> str:
    """The difference from the untouched model in words; empty if there is none."""
    if "difference" not in row:
        return ""
    baseline = f"{row['baseline']:{number_format}}"
    difference = f"{row['difference']:+{number_format}}"
    text = f"  untouched {baseline}  difference {difference}"
    if "low" in row:
        low = f"{row['low']:+{number_format}}"
        high = f"{row['high']:+{number_format}}"
        text += f" [{low}, {high}]  p={row['p']:.3g}"
    return text


def chosen_ablation(mask: Mask | None) -> str:
    """The ablation under which a mask's heads were chosen; zero by default.

    Raises:
        HeadlabError: If it is mixed.
    """
    ablation = (None if mask is None else mask.ablation) or "zero"
    if ablation == "mixed":
        raise HeadlabError(
            "the mask combines others that were chosen under several ablations; say with --ablation "
            "which to use",
            code="ablation.ambiguous",
        )
    return ablation


def as_split(text: str) -> Split:
    """A checked split as its literal type."""
    if text == "test":
        return "test"
    if text == "train":
        return "train"
    return "dev"


def evaluation_record(result: Comparison | Evaluation) -> dict[str, JsonLike]:
    """One language as JSON."""
    if isinstance(result, Evaluation):
        from headlab.evaluation import accuracy_interval

        low, high = accuracy_interval(result)
        figures = {
            "accuracy": result.accuracy,
            "n": result.n,
            "accuracy_low": low,
            "accuracy_high": high,
        }
    else:
        names = (
            "accuracy",
            "n",
            "baseline",
            "difference",
            "low",
            "high",
            "p",
            "flipped_right",
            "flipped_wrong",
        )
        figures = {name: getattr(result, name) for name in names}
    return {**figures, **omission_fields(result.omissions)}
