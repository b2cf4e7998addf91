"""`headlab train translation`: a translation model of Marian's shape from a TSV, its vocabulary included."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlab.cli.output import AsJson, DataFolder, Device, Seed, print_json
from headlab.cli.steps_shown import Say, shown, step_words
from headlab.errors import HeadlabError
from headlab.masks import load_mask
from headlab.options import parse_options
from headlab.tasks.base import DEV_SIZE

if TYPE_CHECKING:
    from headlab.generation import Decoding
    from headlab.hooks.model import Model
    from headlab.tasks.base import Task
    from headlab.training.options import FinetuneStep

TASK = "translation"
OptionsHelp = "name=value, like steps=2000 or encoder_heads=4; docs/translation.md lists them"


def translation(
    out: Annotated[Path, typer.Option(help="folder to write")],
    data: DataFolder = None,
    language: Annotated[str, typer.Option(help="the pair, source first")] = "en-de",
    task: Annotated[str, typer.Option(help="translation, or a declaration of your own (.toml)")] = TASK,
    option: Annotated[list[str] | None, typer.Option("--option", "-o", help=OptionsHelp)] = None,
    mask: Annotated[Path | None, typer.Option(help="mask file: its heads are off from the first step on")] = None,
    size: Annotated[int, typer.Option(min=1, help="dev sentences that are measured at the end")] = DEV_SIZE,
    beams: Annotated[int, typer.Option(min=1, help="of the translations that BLEU is counted of; 1: greedy")] = 1,
    device: Device = None,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Train on the train split, then measure dev: token accuracy, log-probability, BLEU. Run it again to go on."""
    import headlab
    from headlab.generation import Decoding, check_bleu
    from headlab.models.load import pick_device
    from headlab.training.scratch.options import OPTIONS, translation_options
    from headlab.training.scratch.translation import train_translation

    given = parse_options(option or [], OPTIONS)
    if "seed" in given:
        raise HeadlabError("give the seed with --seed", code="option.seed_elsewhere")
    options = translation_options(given | {"seed": seed})
    chosen, decoding = headlab.task(task, [language], data=data), Decoding(beams)
    check_bleu(chosen, language, "dev", decoding)
    steps: list[dict[str, float]] = []
    with shown("reading") as say:

        def progress(step: FinetuneStep) -> None:
            steps.append({"step": step.step, "loss": round(step.loss, 4), "seconds": round(step.seconds, 1)})
            say(step_words(step), step.step, step.steps)

        folder = train_translation(
            chosen.examples(language, "train"), pair=language, out=out, options=options,
            mask=None if mask is None else load_mask(mask), device=str(pick_device(device)), progress=progress,
            measure=dev_measure(chosen, language, size, decoding, say),
        )  # fmt: skip
    report(folder, steps, json)


def dev_measure(
    task: Task, language: str, size: int, decoding: Decoding, say: Say
) -> Callable[[Model], Mapping[str, Any]]:
    """What measures a model on dev: token accuracy, log-probability and BLEU with their intervals, ready for JSON."""

    def measure(model: Model) -> Mapping[str, Any]:
        from headlab.evaluator import Evaluator, accuracy_interval
        from headlab.generation import translated_bleu
        from headlab.likelihood import likelihood

        say("measuring", 0, size)
        evaluator = Evaluator(model, task, language, "dev", size)
        found = evaluator.evaluate()
        low, high = accuracy_interval(found)
        bleu = translated_bleu(evaluator, decoding=decoding)
        accuracy = {"accuracy": found.accuracy, "accuracy_low": low, "accuracy_high": high, "tokens": found.n}
        sure = {name: value for name, value in likelihood(evaluator).record().items() if name != "answers"}
        return {"dev": accuracy | sure | bleu.record() | decoding.record()}

    return measure


def report(folder: Path, steps: list[dict[str, float]], json: bool) -> None:
    """What the training wrote down about itself."""
    from headlab.files import read_json

    record: dict[str, Any] = read_json(folder / "training.json")
    if json:
        print_json({"folder": str(folder), "training": record, "steps": steps})
        return
    for entry in steps[:: max(1, len(steps) // 20)]:
        typer.echo(f"step {entry['step']:5.0f}  loss {entry['loss']:.4f}  {entry['seconds']:.0f} s")
    heads = ", ".join(f"{name} {sum(layers)}" for name, layers in record["heads"].items())
    typer.echo(f"heads: {heads}; {len(record['removed'])} of them off from the start")
    typer.echo(f"{record['parameters']:,} parameters, {record['tokens']:,} tokens in the vocabulary")
    dev = record["measured"]["dev"]
    typer.echo(f"dev: {dev['accuracy']:.1%} of the tokens [{dev['accuracy_low']:.1%}, {dev['accuracy_high']:.1%}]")
    low, high = dev["log_probability_low"], dev["log_probability_high"]
    typer.echo(f"dev: log-probability {dev['log_probability']:.3f} nats a token [{low:.3f}, {high:.3f}]")
    typer.echo(f"dev: BLEU {dev['bleu']:.1f} [{dev['bleu_low']:.1f}, {dev['bleu_high']:.1f}]  {dev['signature']}")
