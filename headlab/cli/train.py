"""`headlab finetune` and `headlab train`: fine-tuning for a task, and training from scratch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from headlab.cli.job_command import FlagValues, command, values_of
from headlab.cli.job_run import local_lab, print_line, run_announced
from headlab.cli.output import AsJson, print_json, progress_display
from headlab.core import EMPTY_CELL
from headlab.jobs.finetune import FinetuneJob, Finetuning
from headlab.jobs.lm import LmJob, LmPruneJob
from headlab.jobs.local import LocalJob
from headlab.jobs.translation import TranslationJob

if TYPE_CHECKING:
    from headlab.jobs import Outcome
    from headlab.jobs.training import LoggedOutcome, LoggedStep, TrainingJob, TrainingOutcome


# `headlab finetune`: a model for a task, trained on one language, by default English.


def finetune(
    flags: Annotated[FlagValues, values_of(FinetuneJob.flags())],
    *,
    data: Path | None,
    device: str | None,
    json: AsJson = False,
) -> None:
    """Fine-tune on one language, then measure dev accuracy in every language.

    All weights are trained, or a LoRA.
    """
    lab = local_lab(device, data=data)
    training = Finetuning.from_flags(flags, lab)
    with progress_display("training") as show:
        outcome: Outcome = training.run(lab, LocalJob(show, print_line))
    if json:
        print_json(outcome)
    else:
        print_finetuning(cast("LoggedOutcome", outcome))


def print_finetuning(outcome: LoggedOutcome) -> None:
    """Print the record that a fine-tuning wrote."""
    print_steps(outcome["steps"])
    for name, value in outcome["training"].items():
        if name != "files":  # their sha256 matters only when the folder is replaced
            typer.echo(f"{name}: {value}")


def print_steps(log: Sequence[LoggedStep]) -> None:
    """Print about twenty of a training's steps."""
    for entry in log[:: max(1, len(log) // 20)]:
        typer.echo(f"step {entry['step']:5.0f}  loss {entry['loss']:.4f}  {entry['seconds']:.0f} s")


# `headlab train lm` and `headlab train lm-prune`: train a language model on a text, and remove
# heads from it.


def train_lm(job: LmJob, *, device: str | None, json: AsJson = False) -> None:
    """Train a language model on a text and measure its perplexity on held-out parts.

    It can be interrupted; run the same command again to resume.
    """
    outcome = run_training(job, device)
    if json:
        print_json(outcome)
    else:
        print_lm(cast("TrainingOutcome", outcome))


def train_lm_prune(job: LmPruneJob, *, device: str | None, json: AsJson = False) -> None:
    """Learn a gate per head, remove heads with closed gates, and fine-tune the rest.

    The method is that of Shim et al. (2021).

    Fine-tuning uses --model-rate unless -o tune_rate=… sets another learning rate.
    It can be interrupted; run the same command again to resume.
    """
    outcome = run_training(job, device)
    if json:
        print_json(outcome)
    else:
        print_lm(cast("TrainingOutcome", outcome))


def run_training(job: TrainingJob, device: str | None, data: Path | None = None) -> Outcome:
    """What a training from scratch comes to; its cost is printed on stderr first.

    Args:
        job: As its flags say it.
        device: That it is trained on; None for a GPU where there is one.
        data: Folder of its task's files.
    """
    lab = local_lab(device, data=data)
    return run_announced(job.resolve(), lab, progress_display("reading"))


def print_lm(outcome: TrainingOutcome) -> None:
    """Print what the training of a language model came to."""
    record = outcome["training"]
    heads = record["heads"]
    sizes = record["parameters"]
    typer.echo(f"{outcome['folder']}: {sum(heads)} heads ({'/'.join(map(str, heads))} by layer)")
    typer.echo(f"parameters: {sizes['whole']:,}, {sizes['layers']:,} of them in the layers")
    for split, perplexity in record["perplexity"].items():
        word, low, high, token = (
            _number_text(perplexity[name]) for name in ("word", "low", "high", "token")
        )
        size = f"{perplexity['words']:,} words in {perplexity['passages']} passages"
        typer.echo(
            f"{split}: perplexity {word} a word [{low}, {high}], {token} a token, over {size}"
        )
    for split, ratio in record.get("ratios", {}).get("tuned", {}).items():
        value, low, high = (_number_text(ratio[name], 3) for name in ("value", "low", "high"))
        typer.echo(
            f"{split}: × {value} [{low}, {high}] the unpruned model's, which was not trained on"
        )


def _number_text(value: float | None, digits: int = 2) -> str:
    if value is None:
        return EMPTY_CELL
    return f"{value:.{digits}f}"


# `headlab train translation`: a Marian translation model and its vocabulary, trained from a TSV
# file.


def train_translation(
    job: TranslationJob, *, data: Path | None, device: str | None, json: AsJson = False
) -> None:
    """Train on the train split, then measure token accuracy, log-probability and BLEU on dev.

    It can be interrupted; run the same command again to resume.
    """
    outcome = run_training(job, device, data)
    if json:
        print_json(outcome)
    else:
        print_translation(cast("LoggedOutcome", outcome))


def print_translation(outcome: LoggedOutcome) -> None:
    """Print what the training of a translation model came to."""
    record = outcome["training"]
    print_steps(outcome["steps"])
    heads = ", ".join(f"{name} {sum(layers)}" for name, layers in record["heads"].items())
    typer.echo(f"heads: {heads}; {len(record['removed'])} of them off from the start")
    typer.echo(
        f"{record['parameters']:,} parameters, {record['tokens']:,} tokens in the vocabulary"
    )
    dev = record["measured"]["dev"]
    low = dev["accuracy_low"]
    high = dev["accuracy_high"]
    typer.echo(f"dev: {dev['accuracy']:.1%} of the tokens [{low:.1%}, {high:.1%}]")
    low = dev["log_probability_low"]
    high = dev["log_probability_high"]
    typer.echo(
        f"dev: log-probability {dev['log_probability']:.3f} nats a token [{low:.3f}, {high:.3f}]"
    )
    low = dev["bleu_low"]
    high = dev["bleu_high"]
    typer.echo(f"dev: BLEU {dev['bleu']:.1f} [{low:.1f}, {high:.1f}]  {dev['signature']}")


# `headlab train`: models trained from scratch, on the user's own files.


def group() -> typer.Typer:
    """The commands of the group, one per kind of model."""
    app = typer.Typer(
        help="Models trained from scratch, on files of your own.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    app.command("translation")(command(train_translation))
    app.command("lm")(command(train_lm))
    app.command("lm-prune")(command(train_lm_prune))
    # Without a callback, typer would turn a group with a single command into that command.
    app.callback()(_group_callback)
    return app


def _group_callback() -> None:
    """Models trained from scratch, on files of your own."""
