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
    OnTask,
    Seed,
    check_ablation,
    print_json,
    progress_bar,
)
from headlab.core import (
    Comparison,
    Evaluation,
    HeadlabError,
    JsonLike,
    Table,
    omission_fields,
    write_atomic,
)
from headlab.masks import Mask, load_mask
from headlab.tasks import DEV_SIZE, Split, Task, equal_texts_notes, equal_texts_record

if TYPE_CHECKING:
    from headlab.evaluation import Decoding, Evaluator
    from headlab.hooks import Model
    from headlab.stats import Paired

Written = Mapping[str, Any]


def evaluate(
    on: OnTask,
    mask: Annotated[
        Path | None, typer.Option(help="mask file; compared with the untouched model")
    ] = None,
    split: Annotated[str, typer.Option(help="dev (to choose heads) or test (to report)")] = "dev",
    size: Annotated[
        int | None, typer.Option(min=1, help="examples; default 512 of dev, all of test")
    ] = None,
    ablation: Annotated[
        str | None, typer.Option(help="zero or mean; default: as the mask was chosen")
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
    seed: Seed = 0,
    device: Device = None,
    device_map: DeviceMap = None,
    json: AsJson = False,
) -> None:
    """Measure accuracy in each language; with a mask, also the paired difference from the untouched model.

    For translations, log-probability is measured too, and BLEU with --bleu.
    """
    import headlab
    from headlab.api import evaluated
    from headlab.evaluation import Evaluator

    loaded_mask = load_mask(mask) if mask is not None else None
    ablation = ablation or chosen_ablation(loaded_mask)
    check_ablation(ablation)
    others = {
        "--changes": changes, "--bleu": bleu, "--beams": beams, "--label-map": on.label_map, "--data": on.data,
        "--task": on.task != TASK, "--languages": on.languages != "all", "--split": split != "dev",
    }  # fmt: skip
    check_harness(lm_eval, lm_eval_folder, ablation, others)
    if lm_eval is not None:
        load = partial(headlab.load, on.model, device=device, device_map=device_map)
        harness(load, task_names(lm_eval), loaded_mask, size, seed, lm_eval_folder, json)
        return
    size = size or (DEV_SIZE if split == "dev" else None)
    chosen = on.chosen()
    chosen.check(chosen.languages[0], split)
    check_changes(changes, loaded_mask, chosen)
    decoding = decoding_of(chosen, split, bleu, beams)
    loaded = headlab.load(on.model, device=device, device_map=device_map)
    if loaded_mask is not None:
        loaded_mask.check(loaded.grid, loaded.fingerprint)
    rows: dict[str, Comparison | Evaluation] = {}
    more: dict[str, dict[str, JsonLike]] = {}
    changed: list[Table] = []
    with progress_bar("evaluating") as show:
        for number, language in enumerate(chosen.languages):
            show(language, number, len(chosen.languages))
            evaluator = Evaluator(
                loaded, chosen.restricted([language]), language, as_split(split), size
            )
            asked = Asked(evaluator, loaded_mask, ablation, seed)
            say_notes(evaluator)
            rows[language] = evaluated(evaluator, loaded_mask, ablation=ablation, seed=seed)
            more[language] = (
                classes(asked) if chosen.labels else written(asked, decoding) | normalised(asked)
            )
            more[language] |= equal_texts_record(evaluator.equal_texts)
            changed += [changed_answers(asked)] if changes is not None else []
    if changes is not None:
        save_changes(changed, changes)
    show_rows(rows, more, json)


def say_notes(evaluator: Evaluator) -> None:
    """Print on stderr what to know beside the figures of a language."""
    for note in (evaluator.inputs.note, *equal_texts_notes(evaluator.equal_texts)):
        if note:
            typer.echo(f"{evaluator.language}: {note}", err=True)


def show_rows(
    rows: Mapping[str, Comparison | Evaluation], more: Mapping[str, Written], json: bool
) -> None:
    """Print the figures of all languages."""
    from headlab.api import describe

    if json:
        print_json(
            {
                "languages": {
                    language: record(row) | dict(more.get(language, {}))
                    for language, row in rows.items()
                }
            }
        )
        return
    for language, row in rows.items():
        typer.echo(describe(row))
        if "log_probability" in more[language]:
            typer.echo("\n".join(words_of(more[language])))


def check_harness(
    tasks: str | None, folder: Path | None, ablation: str, others: Mapping[str, Any]
) -> None:
    """Raise HeadlabError for what the harness cannot do. others: options by flag, none of which goes with its tasks."""
    if tasks is None:
        if folder is not None:
            raise HeadlabError(
                "--lm-eval-folder holds tasks for --lm-eval; give that too",
                code="option.needs_lm_eval",
            )
        return
    if ablation != "zero":
        raise HeadlabError(
            f"--lm-eval removes heads by zero ablation, and {ablation} ablation is asked for, by --ablation or by the "
            "mask, whose heads were chosen under it; give --ablation zero to measure it anyway",
            code="lm_eval.ablation",
        )
    if given := [flag for flag, value in others.items() if value not in (None, False)]:
        raise HeadlabError(
            f"{given[0]} is for headlab's own tasks and has no effect with --lm-eval; leave one of them out",
            code="lm_eval.option_unused",
        )


def task_names(text: str) -> list[str]:
    """The names in a comma-separated list, without the spaces around them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def harness(
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
        from headlab.evaluation.lm_eval import compared
    except ModuleNotFoundError as error:
        raise HeadlabError(
            f"--lm-eval needs a package that is not installed ({error.name}): pip install 'headlab[lm-eval]'",
            code="package.lm_eval_missing",
        ) from error
    notes: list[str] = []
    figures = compared(
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
        figures: rows by task and metric, as `headlab.evaluation.harness.metrics.figures` gives them.
    """
    columns = []
    for task, rows in figures.items():
        for name, row in rows.items():
            metric = name.removesuffix(f",{row['filter']}")
            label = f"{metric} {DIRECTIONS[row['higher_is_better']]}"
            columns.append((task, row["filter"], label, harness_words(metric, row)))
    task_width = max((len(task) for task, _, _, _ in columns), default=0)
    filter_width = max((len(filter_name) for _, filter_name, _, _ in columns), default=0)
    label_width = max((len(label) for _, _, label, _ in columns), default=0)
    filters_differ = any(filter_name != NO_FILTER for _, filter_name, _, _ in columns)
    for task, filter_name, label, words in columns:
        cells = [f"{task:{task_width}}", f"{label:{label_width}}", words]
        if filters_differ:
            cells.insert(1, f"{filter_name:{filter_width}}")
        yield "  ".join(cells)


def harness_words(metric: str, row: Mapping[str, Any]) -> str:
    """A metric's value, its difference from the untouched model, and its number of documents."""
    value = row[metric]
    numbers = [number for number in (value, row.get("baseline")) if number is not None]
    form = ".4f"
    if any(abs(number) >= LARGE for number in numbers):
        form = ".4g"
    text = "no number"
    if value is not None:
        text = f"{value:{form}}"
    if row.get("difference") is not None:
        text += paired_words(row, form)
    if "no_interval" in row:
        text += f" (no interval: {row['no_interval']})"
    text += f"  n={row['n']}"
    if row["cut"]:
        text += f"  cut={row['cut']}"
    return text


def decoding_of(task: Task, split: str, bleu: bool, beams: int | None) -> Decoding | None:
    """How to translate; None without BLEU. Raises HeadlabError early if BLEU could not be measured."""
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
class Asked:
    """What is asked of one language."""

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
    if not task.named:
        raise HeadlabError(
            f"--changes lists labels, but task {task.name} has none; leave it out, or choose a task that labels texts "
            "or words, or has choices",
            code="changes.no_labels",
        )


def changed_answers(asked: Asked) -> Table:
    """The answers that the mask changes in one language."""
    from headlab.evaluation import changes, table

    assert asked.mask is not None
    return table(
        changes(asked.evaluator, asked.mask, ablation=asked.ablation), asked.evaluator.language
    )


def save_changes(tables: Sequence[Table], file: Path) -> None:
    """Write the changed answers of all languages as one CSV file."""
    rows = tuple(row for one in tables for row in one.rows)
    write_atomic(file, replace(tables[0], rows=rows).csv().encode())
    many = f"{len(rows):,} answer{'s' * (len(rows) != 1)}"
    typer.echo(f"{many} changed: {file}", err=True)


def classes(asked: Asked) -> dict[str, JsonLike]:
    """The model's class for each label, as JSON; nothing where its names are the labels."""
    from headlab.evaluation import label_order

    assumed = label_order(
        asked.evaluator.model, asked.evaluator.task
    ).assumed  # found while evaluating
    return {} if assumed is None else {"classes": assumed}


def written(asked: Asked, decoding: Decoding | None) -> dict[str, JsonLike]:
    """Log-probability of one language's reference translations, and BLEU if `decoding` is given, as JSON.

    With a mask, also the untouched model's value and the paired difference.
    """
    from headlab.evaluation import bleu, generation, translated_bleu

    evaluator = asked.evaluator
    mask, seed, ablation = asked.mask, asked.seed, asked.ablation
    sure = now = generation.likelihood(evaluator, seed=seed)
    change: dict[str, float] = {}
    if mask is not None:
        now = generation.likelihood(evaluator, mask, ablation=ablation, seed=seed)
        change = paired(sure.mean, generation.gain(sure, now, seed=seed))
    found: dict[str, JsonLike] = {
        "log_probability": now.record() | change | generation.text_rates(evaluator, now, seed=seed)
    }
    if decoding is None:
        return found
    whole = translated_bleu(evaluator, decoding=decoding, seed=seed)
    if mask is None:
        return found | {"bleu": whole.record() | decoding.record()}
    fewer = translated_bleu(evaluator, mask, ablation=ablation, decoding=decoding, seed=seed)
    row = (
        fewer.record() | paired(whole.score, bleu.gain(whole, fewer, seed=seed)) | decoding.record()
    )
    return found | {"bleu": row}


def normalised(asked: Asked) -> dict[str, JsonLike]:
    """Accuracy of choices by log-probability a byte, as JSON; nothing for other tasks.

    With a mask, also the untouched model's value and the paired difference.
    """
    if not asked.evaluator.examples[0].choices:
        return {}
    import numpy as np

    from headlab.evaluation import normalised
    from headlab.stats import paired_bootstrap, share_interval

    groups, whole = tuple(e.cluster for e in asked.evaluator.examples), normalised(asked.evaluator)
    now = (
        whole
        if asked.mask is None
        else normalised(asked.evaluator, asked.mask, ablation=asked.ablation)
    )
    low, high = share_interval(now, groups, np.random.default_rng(asked.seed))
    found: dict[str, JsonLike] = {
        "accuracy_normalised": float(now.mean()),
        "accuracy_normalised_low": low,
        "accuracy_normalised_high": high,
    }
    if asked.mask is None:
        return found
    change = paired_bootstrap(whole, now, groups, np.random.default_rng(asked.seed))
    return found | {"normalised": paired(float(whole.mean()), change)}


def paired(baseline: float, found: Paired) -> dict[str, float]:
    """The untouched model's value and the difference from it, as JSON."""
    return {"baseline": baseline, **found._asdict()}


def words_of(more: Written) -> Iterator[str]:
    """One language's log-probability and BLEU as lines of text."""
    row, unit = more["log_probability"], "choice" if "accuracy_normalised" in more else "token"
    yield (
        f"       log-probability {row['log_probability']:.3f} nats a {unit}  [{row['log_probability_low']:.3f}, "
        f"{row['log_probability_high']:.3f}]{paired_words(row, '.3f')}"
    )
    if "bits_per_byte" in row:
        yield "       " + "   ".join(
            f"{words} {row[name]:.3f}  [{row[f'{name}_low']:.3f}, {row[f'{name}_high']:.3f}]"
            for name, words in (
                ("bits_per_byte", "bits per byte"),
                ("word_perplexity", "word perplexity"),
            )
            if name in row
        )
    if (share := more.get("accuracy_normalised")) is not None:
        low, high = more["accuracy_normalised_low"], more["accuracy_normalised_high"]
        change = paired_words(more["normalised"], ".1%") if "normalised" in more else ""
        yield f"       accuracy by log-probability per byte {share:.1%}  [{low:.1%}, {high:.1%}]{change}"
    if "bleu" in more:
        row = more["bleu"]
        yield (
            f"       BLEU {row['bleu']:.1f}  [{row['bleu_low']:.1f}, {row['bleu_high']:.1f}]{paired_words(row, '.1f')}"
            f"  n={row['sentences']}  {row['signature']}|beams:{row['beams']}"
        )


def paired_words(row: Mapping[str, Any], form: str) -> str:
    """The difference from the untouched model in words; empty if there is none."""
    if "difference" not in row:
        return ""
    told = f"  untouched {row['baseline']:{form}}  difference {row['difference']:+{form}}"
    return told + (
        f" [{row['low']:+{form}}, {row['high']:+{form}}]  p={row['p']:.3g}" if "low" in row else ""
    )


def chosen_ablation(mask: Mask | None) -> str:
    """The ablation under which a mask's heads were chosen; zero by default. Raises HeadlabError if it is mixed."""
    found = (None if mask is None else mask.ablation) or "zero"
    if found == "mixed":
        raise HeadlabError(
            "the mask combines others, some chosen under mean ablation and some not; say with --ablation which to use",
            code="ablation.ambiguous",
        )
    return found


def as_split(text: str) -> Split:
    """A checked split as its literal type."""
    return "test" if text == "test" else "train" if text == "train" else "dev"


def record(row: Comparison | Evaluation) -> dict[str, JsonLike]:
    """One language as JSON."""
    if isinstance(row, Evaluation):
        from headlab.evaluation import accuracy_interval

        low, high = accuracy_interval(row)
        figures = {"accuracy": row.accuracy, "n": row.n, "accuracy_low": low, "accuracy_high": high}
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
        figures = {name: getattr(row, name) for name in names}
    return {**figures, **omission_fields(row.omissions)}
