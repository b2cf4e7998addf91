"""`headlab evaluate`: accuracy, and BLEU of translations, with or without a mask."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlab.cli.output import (
    MODEL,
    TASK,
    AsJson,
    DataFolder,
    Device,
    Languages,
    ModelName,
    Seed,
    TaskName,
    check_ablation,
    print_json,
    progress_bar,
    split_languages,
)
from headlab.masks import Mask, load_mask
from headlab.records import Comparison, Evaluation
from headlab.tasks.base import DEV_SIZE, Split, Task

if TYPE_CHECKING:
    from headlab.gates import Model


def evaluate(
    model: ModelName = MODEL,
    task: TaskName = TASK,
    data: DataFolder = None,
    languages: Languages = "all",
    mask: Annotated[Path | None, typer.Option(help="mask file; compared with the untouched model")] = None,
    split: Annotated[str, typer.Option(help="dev (to choose heads) or test (to report)")] = "dev",
    size: Annotated[int | None, typer.Option(min=1, help="examples; default 512 of dev, all of test")] = None,
    ablation: Annotated[str | None, typer.Option(help="zero or mean; default: as the mask was chosen")] = None,
    bleu: Annotated[bool, typer.Option("--bleu", help="translate, and count BLEU with its interval")] = False,
    beams: Annotated[int, typer.Option(min=1, help="of the translations; 1: the likeliest token each time")] = 1,
    seed: Seed = 0,
    device: Device = None,
    json: AsJson = False,
) -> None:
    """Accuracy in each language, BLEU too if asked; with a mask, the paired difference, its interval, p and flips."""
    import headlab
    from headlab.api import describe

    loaded_mask = load_mask(mask) if mask is not None else None
    ablation = ablation or chosen_ablation(loaded_mask)
    check_ablation(ablation)
    size = size or (DEV_SIZE if split == "dev" else None)
    chosen = headlab.task(task, split_languages(languages), data=data)
    chosen.check(chosen.languages[0], split)
    loaded = headlab.load(model, device=device)
    if loaded_mask is not None:
        loaded_mask.check(loaded.grid, loaded.fingerprint)
    rows: dict[str, Comparison | Evaluation] = {}
    bleus: dict[str, Mapping[str, Any]] = {}
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
            if bleu:
                settings = (as_split(split), size, ablation, beams, seed)
                bleus[language] = bleu_row(loaded, chosen, language, loaded_mask, *settings)
    if json:
        found = {language: record(row) | ({"bleu": bleus[language]} if bleu else {}) for language, row in rows.items()}
        print_json({"languages": found})
        return
    for language, row in rows.items():
        typer.echo(describe(row))
        if bleu:
            typer.echo(bleu_words(bleus[language]))


def bleu_row(
    model: Model, task: Task, language: str, mask: Mask | None, split: Split, size: int | None, ablation: str,
    beams: int, seed: int,
) -> dict[str, Any]:  # fmt: skip
    """BLEU of one language as JSON; with a mask, beside the untouched model's, with the paired difference."""
    from headlab.bleu import gain
    from headlab.evaluator import Evaluator
    from headlab.generation import Decoding, translated_bleu

    evaluator, decoding = Evaluator(model, task, language, split, size), Decoding(beams)
    whole = translated_bleu(evaluator, decoding=decoding, seed=seed)
    if mask is None:
        return whole.record() | decoding.record()
    masked = translated_bleu(evaluator, mask, ablation=ablation, decoding=decoding, seed=seed)
    difference, low, high, p = gain(whole, masked, seed=seed)
    paired = {"baseline": whole.score, "difference": difference, "low": low, "high": high, "p": p}
    return masked.record() | paired | decoding.record()


def bleu_words(row: Mapping[str, Any]) -> str:
    """One language's BLEU as a line of text."""
    words = f"       BLEU {row['bleu']:.1f}  [{row['bleu_low']:.1f}, {row['bleu_high']:.1f}]"
    if "difference" in row:
        words += (
            f"  untouched {row['baseline']:.1f}  difference {row['difference']:+.1f} "
            f"[{row['low']:+.1f}, {row['high']:+.1f}]  p={row['p']:.3g}"
        )
    return f"{words}  n={row['sentences']}  {row['signature']}|beams:{row['beams']}"


def chosen_ablation(mask: Mask | None) -> str:
    """The ablation under which a mask's heads were chosen; zero where the mask does not say."""
    return (None if mask is None else mask.ablation) or "zero"


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
