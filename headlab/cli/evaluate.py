"""`headlab evaluate`: accuracy, and for translations BLEU, with or without a mask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlab.cli.output import (
    MODEL,
    TASK,
    AsJson,
    DataFolder,
    Device,
    LabelMap,
    Languages,
    ModelName,
    Seed,
    TaskName,
    check_ablation,
    chosen_task,
    print_json,
    progress_bar,
    split_languages,
)
from headlab.errors import HeadlabError
from headlab.masks import Mask, load_mask
from headlab.records import Comparison, Evaluation
from headlab.tasks.base import DEV_SIZE, Split, Task

if TYPE_CHECKING:
    from headlab.generation import Decoding
    from headlab.hooks.model import Model
    from headlab.stats import Paired

Written = Mapping[str, Mapping[str, Any]]


def evaluate(
    model: ModelName = MODEL,
    task: TaskName = TASK,
    data: DataFolder = None,
    label_map: LabelMap = None,
    languages: Languages = "all",
    mask: Annotated[Path | None, typer.Option(help="mask file; compared with the untouched model")] = None,
    split: Annotated[str, typer.Option(help="dev (to choose heads) or test (to report)")] = "dev",
    size: Annotated[int | None, typer.Option(min=1, help="examples; default 512 of dev, all of test")] = None,
    ablation: Annotated[str | None, typer.Option(help="zero or mean; default: as the mask was chosen")] = None,
    bleu: Annotated[bool, typer.Option("--bleu", help="translate, and count BLEU with its interval")] = False,
    beams: Annotated[
        int | None,
        typer.Option(min=1, help="beam size of the translations, with --bleu; default 1 (greedy)"),
    ] = None,
    seed: Seed = 0,
    device: Device = None,
    json: AsJson = False,
) -> None:
    """Measure accuracy in each language; with a mask, also the paired difference from the untouched model.

    For translations, log-probability is measured too, and BLEU with --bleu.
    """
    import headlab
    from headlab.api import describe

    loaded_mask = load_mask(mask) if mask is not None else None
    ablation = ablation or chosen_ablation(loaded_mask)
    check_ablation(ablation)
    size = size or (DEV_SIZE if split == "dev" else None)
    chosen = chosen_task(task, split_languages(languages), data, label_map)
    chosen.check(chosen.languages[0], split)
    decoding = decoding_of(chosen, split, bleu, beams)
    loaded = headlab.load(model, device=device)
    if loaded_mask is not None:
        loaded_mask.check(loaded.grid, loaded.fingerprint)
    rows: dict[str, Comparison | Evaluation] = {}
    more: dict[str, Written] = {}
    with progress_bar("evaluating") as show:
        for number, language in enumerate(chosen.languages):
            show(language, number, len(chosen.languages))
            part = headlab.evaluate(
                loaded,
                chosen.restricted([language]),
                loaded_mask,
                split=as_split(split),
                size=size,
                ablation=ablation,
                seed=seed,
            )
            rows[language] = part[language]
            asked = Asked(loaded, chosen, loaded_mask, as_split(split), size, ablation, seed)
            more[language] = classes(asked, language) if chosen.labels else written(asked, language, decoding)
    if json:
        print_json(
            {"languages": {language: record(row) | dict(more.get(language, {})) for language, row in rows.items()}}
        )
        return
    for language, row in rows.items():
        typer.echo(describe(row))
        if "log_probability" in more[language]:
            typer.echo("\n".join(words_of(more[language])))


def decoding_of(task: Task, split: str, bleu: bool, beams: int | None) -> Decoding | None:
    """How to translate; None without BLEU. Raises HeadlabError early if BLEU could not be measured."""
    if not bleu:
        if beams is not None:
            raise HeadlabError("--beams applies to translations; give --bleu with it", code="option.needs_bleu")
        return None
    from headlab.generation import Decoding, check_bleu

    decoding = Decoding(beams or 1)
    for language in task.languages:
        check_bleu(task, language, as_split(split), decoding)
    return decoding


@dataclass(frozen=True)
class Asked:
    """The settings that all languages share."""

    model: Model
    task: Task
    mask: Mask | None
    split: Split
    size: int | None
    ablation: str
    seed: int


def classes(asked: Asked, language: str) -> Written:
    """The model's class for each label, as JSON; nothing where its names are the labels."""
    from headlab.inputs import label_order

    assumed = label_order(asked.model, asked.task.restricted([language])).assumed  # found while evaluating
    return {} if assumed is None else {"classes": assumed}


def written(asked: Asked, language: str, decoding: Decoding | None) -> Written:
    """Log-probability of one language's reference translations, and BLEU if `decoding` is given, as JSON.

    With a mask, also the untouched model's value and the paired difference.
    """
    from headlab import bleu, generation
    from headlab.evaluator import Evaluator
    from headlab.generation import translated_bleu

    evaluator = Evaluator(asked.model, asked.task, language, asked.split, asked.size)
    mask, seed, ablation = asked.mask, asked.seed, asked.ablation
    sure = generation.likelihood(evaluator, seed=seed)
    if mask is None:
        found = {"log_probability": sure.record()}
    else:
        less = generation.likelihood(evaluator, mask, ablation=ablation, seed=seed)
        found = {"log_probability": less.record() | paired(sure.mean, generation.gain(sure, less, seed=seed))}
    if decoding is None:
        return found
    whole = translated_bleu(evaluator, decoding=decoding, seed=seed)
    if mask is None:
        return found | {"bleu": whole.record() | decoding.record()}
    fewer = translated_bleu(evaluator, mask, ablation=ablation, decoding=decoding, seed=seed)
    row = fewer.record() | paired(whole.score, bleu.gain(whole, fewer, seed=seed)) | decoding.record()
    return found | {"bleu": row}


def paired(baseline: float, found: Paired) -> dict[str, float]:
    """The untouched model's value and the difference from it, as JSON."""
    return {"baseline": baseline, **found._asdict()}


def words_of(more: Written) -> Iterator[str]:
    """One language's log-probability and BLEU as lines of text."""
    row = more["log_probability"]
    yield (
        f"       log-probability {row['log_probability']:.3f} nats a token  [{row['log_probability_low']:.3f}, "
        f"{row['log_probability_high']:.3f}]{paired_words(row, '.3f')}"
    )
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
    difference, low, high = (format(row[name], f"+{form}") for name in ("difference", "low", "high"))
    return f"  untouched {row['baseline']:{form}}  difference {difference} [{low}, {high}]  p={row['p']:.3g}"


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


def record(row: Comparison | Evaluation) -> dict[str, Any]:
    """One language as JSON."""
    if isinstance(row, Evaluation):
        from headlab.evaluator import accuracy_interval

        low, high = accuracy_interval(row)
        return {"accuracy": row.accuracy, "n": row.n, "accuracy_low": low, "accuracy_high": high}
    names = ("accuracy", "n", "baseline", "difference", "low", "high", "p", "flipped_right", "flipped_wrong")
    return {name: getattr(row, name) for name in names}
