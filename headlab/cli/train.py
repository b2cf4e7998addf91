"""`headlab finetune` and `headlab train`: fine-tuning for a task, and training from scratch on the user's files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from headlab.cli.job_command import FlagValues, command, option_flags, values_of
from headlab.cli.output import (
    AsJson,
    DataFolder,
    Device,
    Say,
    Seed,
    lm_words,
    print_json,
    shown,
    step_words,
)
from headlab.errors import HeadlabError
from headlab.jobs.command import languages_of
from headlab.jobs.finetune import FinetuneJob, training_flags
from headlab.masks import load_mask
from headlab.options import Option, OptionValue, parse_options
from headlab.tables import NOTHING
from headlab.tasks.base import DEV_SIZE
from headlab.training.options import LmGateOptions, LmOptions, LmStep

if TYPE_CHECKING:
    from headlab.generation import Decoding
    from headlab.hooks.model import Model
    from headlab.tasks.base import Example, Task
    from headlab.training.options import FinetuneOptions, FinetuneStep
    from headlab.training.steps import Watch


# `headlab finetune`: a model for a task, trained on one language, by default English.


def finetune(
    job: FinetuneJob,
    *,
    data: Path | None,
    language: str,
    languages: str,
    size: int,
    base: str | None,
    method: str | None,
    preset: str | None,
    out: Path | None,
    epochs: float | None,
    targets: str | None,
    training: Annotated[FlagValues, values_of(list(training_flags()))],
    device: str | None,
    json: AsJson = False,
) -> None:
    """Fine-tune on one language, all weights or a LoRA, then measure dev accuracy in every language."""
    import headlab
    from headlab.training.options import default_preset, options_of

    task = headlab.task(job.task, data=data)
    examples = task.examples(language, "train")
    method = method or ("lora" if _embedded(base) else "full")
    options = options_of(
        preset or default_preset(bool(examples[0].words), method, _embedded(base)),
        method,
        len(examples),
        epochs=epochs,
        seed=job.seed,
        targets=_names(targets),
        **cast("Mapping[str, OptionValue]", training),  # each is given once
    )
    measured_task = task if languages == "all" else task.restricted(languages_of(languages))
    out = out or Path("adapter" if method == "lora" and _embedded(base) else "model")
    folder, log = _train(base, task.labels, examples, measured_task, size, out, options, device)
    report(folder, log, json)


def _embedded(base: str | None) -> bool:
    from headlab.training.output import EMBEDDED_BASE

    return base is None or base == EMBEDDED_BASE


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def _train(
    base: str | None, labels: tuple[str, ...], examples: tuple[Example, ...], measured: Task, size: int, out: Path,
    options: FinetuneOptions, device: str | None,
) -> tuple[Path, list[dict[str, float]]]:  # fmt: skip
    """Train with a progress bar; returns the folder and a log entry for each step."""
    from headlab.models.load import pick_device
    from headlab.training.finetune import finetune as train
    from headlab.training.finetune import on_dev
    from headlab.training.output import check_out, find_base

    check_out(out)
    place = pick_device(device)
    log: list[dict[str, float]] = []
    with shown("training") as say:

        def progress(step: FinetuneStep) -> None:
            log.append(
                {"step": step.step, "loss": round(step.loss, 4), "seconds": round(step.seconds, 1)}
            )
            say(step_words(step), step.step, step.steps)

        evaluate = on_dev(
            measured, size, lambda language, done: say(f"measuring {language}", done, size)
        )
        folder = train(
            find_base(base), examples, labels, out=out, options=options, device=str(place), progress=progress,
            evaluate=evaluate,
        )  # fmt: skip
    return folder, log


def report(folder: Path, log: list[dict[str, float]], json: bool) -> None:
    """Print the record that a fine-tuning run wrote."""
    for name, value in recorded(folder, log, json).items():
        if name != "files":  # their sha256 matters only when the folder is replaced
            typer.echo(f"{name}: {value}")


def recorded(folder: Path, log: list[dict[str, float]] | None, json: bool) -> dict[str, Any]:
    """Print a training's steps and return its record; with `json`, print both as JSON and return an empty dict.

    log: the steps; None prints none.
    """
    from headlab.files import read_json

    record: dict[str, Any] = read_json(folder / "training.json")
    if json:
        print_json(
            {"folder": str(folder), "training": record, **({} if log is None else {"steps": log})}
        )
        return {}
    for entry in (log or [])[:: max(1, len(log or []) // 20)]:
        typer.echo(f"step {entry['step']:5.0f}  loss {entry['loss']:.4f}  {entry['seconds']:.0f} s")
    return record


# `headlab train lm` and `headlab train lm-prune`: train a language model on a text, and remove heads from it.

TextData = Annotated[
    Path,
    typer.Option(
        "--data",
        help="text file, or folder with train.txt, valid.txt and test.txt; a line a paragraph",
    ),
]
Words = Annotated[
    int | None,
    typer.Option(min=1, help="use only the first N words of the training text; default all"),
]
OutFolder = Annotated[Path, typer.Option(help="folder to write")]
Others = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", help="name=value of any other option, like clip=0.5"),
]


LM_FLAGS = (
    "kind",
    "tokenizer",
    "vocabulary",
    "layers",
    "heads",
    "width",
    "persistent",
    "positions",
    "block",
    "batch",
    "micro_batch",
    "steps",
    "learning_rate",
    "dropout",
)


def lm(
    data: TextData,
    *,
    out: OutFolder = Path("lm"),
    training: Annotated[FlagValues, option_flags(LmOptions.table(), *LM_FLAGS)],
    option: Others = None,
    words: Words = None,
    device: Device = None,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Train a language model on a text and measure its perplexity on held-out parts.

    It can be interrupted; run the same command again to resume.
    """
    flags = {**training, "seed": seed}
    options = LmOptions.of(flags | _others(option, LmOptions.table(), flags))
    from headlab.models.load import pick_device
    from headlab.training.lm_text import read_lines
    from headlab.training.lm_train import train_lm

    with _watch() as watch:
        train_lm(
            read_lines(data, words), out, options, device=str(pick_device(device)), watch=watch
        )
    _report(out, json)


LM_GATE_FLAGS = (
    "weight",
    "warm_up",
    "open_start",
    "scale",
    "steps",
    "tune_steps",
    "gate_rate",
    "model_rate",
    "batch",
    "micro_batch",
)


def lm_prune(
    model: Annotated[Path, typer.Argument(help="folder that headlab train lm wrote")],
    data: TextData,
    *,
    out: OutFolder = Path("lm-pruned"),
    training: Annotated[FlagValues, option_flags(LmGateOptions.table(), *LM_GATE_FLAGS)],
    option: Others = None,
    words: Words = None,
    device: Device = None,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Learn a gate per head, remove heads whose gates are closed, and fine-tune the rest (Shim et al., 2021).

    Fine-tuning uses --model-rate unless -o tune_rate=… sets another learning rate.
    It can be interrupted; run the same command again to resume.
    """
    flags = {**training, "seed": seed}
    others = _others(option, LmGateOptions.table(), flags)
    if "block" in others:
        raise HeadlabError(
            "block is that of the model's own training; leave it out", code="lm.block_fixed"
        )
    options = LmGateOptions.of(
        {"tune_rate": flags["model_rate"]} | flags | others | {"block": _block_of(model)}
    )
    from headlab.models.load import pick_device
    from headlab.training.lm_prune import prune_lm
    from headlab.training.lm_text import read_lines

    with _watch() as watch:
        prune_lm(
            model,
            read_lines(data, words),
            out,
            options,
            device=str(pick_device(device)),
            watch=watch,
        )
    _report(out, json)


def _others(
    pairs: list[str] | None, options: Mapping[str, Option], flags: Mapping[str, Any]
) -> dict[str, Any]:
    """Options given as name=value. Raises HeadlabError for one that has its own flag."""
    given = parse_options(pairs or [], options)
    for name in given:
        if name in flags:
            raise HeadlabError(
                f"{name} is set by --{name.replace('_', '-')}, not by -o",
                code="option.set_elsewhere",
            )
    return given


def _block_of(model: Path) -> int:
    """Window length, in tokens, of the model's training. Raises HeadlabError if it is not a language model's folder."""
    from headlab.files import read_json
    from headlab.training.lm_train import FILE

    if not (model / FILE).is_file():
        raise HeadlabError(
            f"{model} is not a folder that headlab train lm wrote; train a model first",
            code="lm.folder_missing",
        )
    found = read_json(model / FILE)
    block = found.get("block") if isinstance(found, dict) else None
    if type(block) is not int or block < 1:
        raise HeadlabError(
            f"{model / FILE} does not give the window length; train the model again",
            code="lm.window_unknown",
        )
    return block


@contextmanager
def _watch() -> Iterator[Watch[LmStep]]:
    """A watch that shows training progress."""
    from headlab.training.steps import Watch

    with shown("reading") as say:

        def progress(step: LmStep) -> None:
            say(lm_words(step), step.step, step.steps)

        yield Watch(progress)


def _report(out: Path, json: bool) -> None:
    """Print the record that the training of a language model wrote."""
    if not (record := recorded(out, None, json)):
        return
    heads, sizes = record["heads"], record["parameters"]
    typer.echo(f"{out}: {sum(heads)} heads ({'/'.join(map(str, heads))} by layer)")
    typer.echo(f"parameters: {sizes['whole']:,}, {sizes['layers']:,} of them in the layers")
    for split, found in record["perplexity"].items():
        words = f"perplexity {_number(found['word'])} a word [{_number(found['low'])}, {_number(found['high'])}]"
        told = f"{found['words']:,} words in {found['passages']} passages"
        typer.echo(f"{split}: {words}, {_number(found['token'])} a token, over {told}")
    for split, ratio in record.get("ratios", {}).get("tuned", {}).items():
        value, low, high = (_number(ratio[name], 3) for name in ("value", "low", "high"))
        typer.echo(
            f"{split}: × {value} [{low}, {high}] the unpruned model's, which was not trained on"
        )


def _number(value: float | None, digits: int = 2) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"


# `headlab train translation`: a Marian translation model and its vocabulary, trained from a TSV file.

TASK = "translation"
OptionsHelp = "name=value, like steps=2000 or encoder_heads=4; docs/translation.md lists them"


def translation(
    out: Annotated[Path, typer.Option(help="folder to write")],
    data: DataFolder = None,
    language: Annotated[str, typer.Option(help="the pair, source first")] = "en-de",
    task: Annotated[
        str, typer.Option(help="translation, or a declaration of your own (.toml)")
    ] = TASK,
    option: Annotated[list[str] | None, typer.Option("--option", "-o", help=OptionsHelp)] = None,
    mask: Annotated[
        Path | None, typer.Option(help="mask file: its heads are off from the first step on")
    ] = None,
    size: Annotated[
        int, typer.Option(min=1, help="dev sentences that are measured at the end")
    ] = DEV_SIZE,
    beams: Annotated[
        int, typer.Option(min=1, help="beam size of the translations for BLEU; 1 is greedy")
    ] = 1,
    device: Device = None,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Train on the train split, then measure token accuracy, log-probability and BLEU on dev.

    It can be interrupted; run the same command again to resume.
    """
    import headlab
    from headlab.generation import Decoding, check_bleu
    from headlab.models.load import pick_device
    from headlab.training.options import TranslationOptions
    from headlab.training.translation import train_translation

    given = parse_options(option or [], TranslationOptions.table())
    if "seed" in given:
        raise HeadlabError("give the seed with --seed", code="option.seed_elsewhere")
    options = TranslationOptions.of(given | {"seed": seed})
    chosen, decoding = headlab.task(task, [language], data=data), Decoding(beams)
    check_bleu(chosen, language, "dev", decoding)
    steps: list[dict[str, float]] = []
    with shown("reading") as say:

        def progress(step: FinetuneStep) -> None:
            steps.append(
                {"step": step.step, "loss": round(step.loss, 4), "seconds": round(step.seconds, 1)}
            )
            say(step_words(step), step.step, step.steps)

        folder = train_translation(
            chosen.examples(language, "train"), pair=language, out=out, options=options,
            mask=None if mask is None else load_mask(mask), device=str(pick_device(device)), progress=progress,
            measure=dev_measure(chosen, language, size, decoding, say),
        )  # fmt: skip
    report_translation(folder, steps, json)


def dev_measure(
    task: Task, language: str, size: int, decoding: Decoding, say: Say
) -> Callable[[Model], Mapping[str, Any]]:
    """A function that measures a model on dev: token accuracy, log-probability and BLEU with intervals, as JSON."""

    def measure(model: Model) -> Mapping[str, Any]:
        from headlab.evaluator import Evaluator, accuracy_interval
        from headlab.generation import likelihood, translated_bleu

        say("measuring", 0, size)
        evaluator = Evaluator(model, task, language, "dev", size)
        found = evaluator.evaluate()
        low, high = accuracy_interval(found)
        bleu = translated_bleu(evaluator, decoding=decoding)
        accuracy = {
            "accuracy": found.accuracy,
            "accuracy_low": low,
            "accuracy_high": high,
            "tokens": found.n,
        }
        sure = {
            name: value
            for name, value in likelihood(evaluator).record().items()
            if name != "answers"
        }
        return {"dev": accuracy | sure | bleu.record() | decoding.record()}

    return measure


def report_translation(folder: Path, steps: list[dict[str, float]], json: bool) -> None:
    """Print the record that the training of a translation model wrote."""
    if not (record := recorded(folder, steps, json)):
        return
    heads = ", ".join(f"{name} {sum(layers)}" for name, layers in record["heads"].items())
    typer.echo(f"heads: {heads}; {len(record['removed'])} of them off from the start")
    typer.echo(
        f"{record['parameters']:,} parameters, {record['tokens']:,} tokens in the vocabulary"
    )
    dev = record["measured"]["dev"]
    typer.echo(
        f"dev: {dev['accuracy']:.1%} of the tokens [{dev['accuracy_low']:.1%}, {dev['accuracy_high']:.1%}]"
    )
    low, high = dev["log_probability_low"], dev["log_probability_high"]
    typer.echo(
        f"dev: log-probability {dev['log_probability']:.3f} nats a token [{low:.3f}, {high:.3f}]"
    )
    typer.echo(
        f"dev: BLEU {dev['bleu']:.1f} [{dev['bleu_low']:.1f}, {dev['bleu_high']:.1f}]  {dev['signature']}"
    )


# `headlab train`: models trained from scratch, on the user's own files.


def group() -> typer.Typer:
    """The commands of the group, one per kind of model."""
    made = typer.Typer(
        help="Models trained from scratch, on files of your own.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    made.command("translation")(translation)
    made.command("lm")(command(lm))
    made.command("lm-prune")(command(lm_prune))
    # Without a callback, typer would turn a group with a single command into that command.
    made.callback()(_nothing)
    return made


def _nothing() -> None:
    """Models trained from scratch, on files of your own."""
