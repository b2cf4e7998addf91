"""`headlab export`, `shrink` and `worth`: verified models without heads, and what a mask saves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from headlab.cli.experiment import report_markdown
from headlab.cli.job_command import FlagValues, values_of
from headlab.cli.job_run import local_lab, print_line, run_announced
from headlab.cli.output import (
    AsJson,
    Device,
    Dtype,
    chosen_task,
    print_json,
    progress_bar,
)
from headlab.core import Head, size_text
from headlab.jobs import SUBJECT_FLAGS, Outcome, check_about_task, label_map_of, languages_of
from headlab.jobs.export import DUO, SHRUNK_FORMS
from headlab.jobs.local import LocalJob, task_files
from headlab.jobs.table import ExportJob, ShrinkJob, WorthJob
from headlab.jobs.vocabulary import is_cut, require_languages
from headlab.jobs.written_model import ComparedOn, WrittenModelJob, difference_text

if TYPE_CHECKING:
    from headlab.jobs.export import DuoOutcome, ExportOutcome, SmallOutcome
    from headlab.jobs.shrink import ShrinkOutcome
    from headlab.jobs.vocabulary import VocabularyOutcome
    from headlab.shrink import VocabularyCut
    from headlab.studies.savings import Savings


# `headlab shrink`: from a mask to a smaller model in a folder, verified to give the same answers.

MAX_HEADS_NAMED = 8  # of those that are silenced


def shrink(job: ShrinkJob, *, data: Path | None, device: str | None, json: AsJson = False) -> None:
    """Remove a mask's heads from the weights and write the smaller model.

    Its answers are verified to be those of the masked model.
    """
    outcome = _written(job, data, device)
    if json:
        print_json(outcome)
    else:
        typer.echo(_outcome_text(cast("ShrinkOutcome", outcome), job.compared_count))


def export(job: ExportJob, *, data: Path | None, device: str | None, json: AsJson = False) -> None:
    """Write a model with a mask built in, in a form that other software reads.

    Its answers are verified to be those of the masked model.
    """
    outcome = _written(job, data, device)
    if json:
        print_json(outcome)
    elif job.form == DUO:
        typer.echo(_duo_text(cast("DuoOutcome", outcome)))
    elif job.form in SHRUNK_FORMS:
        typer.echo(_outcome_text(cast("SmallOutcome", outcome), job.compared_count))
    else:
        typer.echo(_export_text(cast("ExportOutcome", outcome), job.compared_count))


def _written(job: WrittenModelJob, data: Path | None, device: str | None) -> Outcome:
    """Run a job that writes a model, announced; gives its outcome.

    Args:
        job: As the command says it.
        data: Folder of the task's files, if one is given.
        device: To compute on.
    """
    job.check_has_task(data)
    lab = local_lab(device, "float64" if job.dtype == "float64" else "float32", data)
    with task_files(job, data):  # a forecast may look into the task's files
        return run_announced(job.resolve(), lab, progress_bar(job.key))


def _logits_line(outcome: ExportOutcome | ShrinkOutcome, size: int) -> str:
    """How far the written model's logits are from the masked model's.

    Args:
        outcome: What was written.
        size: Examples that were asked for.
    """
    examples = outcome["examples"]
    size_remark = "" if examples == size else f" (of {size} asked for)"
    has_removed = outcome["heads_removed"] or outcome.get("heads_silenced")
    has_removed = has_removed or bool(outcome.get("players", {}).get("removed"))
    whose = "masked model" if has_removed or outcome.get("heads_masked") else "original"
    return (
        f"logits        differ from the {whose}'s by {difference_text(outcome)} on {examples} different examples{size_remark} "
        f"({outcome['tolerance']:.2g} is rounding), computed in {outcome['computed_in']}"
    )


def _export_text(outcome: ExportOutcome, size: int) -> str:
    """A plain folder as lines of text.

    Args:
        outcome: What was written.
        size: Examples that were asked for.
    """
    lines = [
        *_lines_of_form(outcome),
        *_vocabulary_lines(outcome),
        _logits_line(outcome, size),
        f"              and by {outcome['random_input']['max_logit_difference']:.2g} on random "
        "input",
        f"answers       {outcome['equal_answers']:.2%} equal",
    ]
    if outcome["means_of"] is not None:
        examples_by_language = outcome["means_of"]["examples"]
        counts = ", ".join(f"{code} {count}" for code, count in examples_by_language.items())
        lines.append(f"removed heads give their mean output on dev examples: {counts}")
    return "\n".join(lines)


def _duo_text(outcome: DuoOutcome) -> str:
    """A table of key-value groups that stream, as lines of text."""
    readers = " and ".join(outcome["readers"])
    lines = [
        f"{outcome['folder']}: {outcome['streaming']} of {outcome['groups']} key-value groups see the first "
        f"{outcome['sink_size']:,} and the last {outcome['recent_size']:,} tokens alone; "
        + (
            f"read by {readers} with a sparsity of {outcome['sparsity']!r}"
            if readers
            else "neither DuoAttention nor kvpress takes such a model"
        ),
        f"logits        under the files as under the mask; {outcome['untouched_difference']:.2g} at most from the "
        "untouched model's, on random texts",
    ]
    if "note" in outcome:
        lines.append(f"note          {outcome['note']}")
    return "\n".join(lines)


def _vocabulary_lines(outcome: VocabularyOutcome) -> list[str]:
    """What a smaller vocabulary loses; nothing where it was kept."""
    if "pieces_after" not in outcome:
        return []
    lines = [
        f"vocabulary    {outcome['pieces_before']:,} -> {outcome['pieces_after']:,} pieces; of texts "
        "that were held out"
    ]
    for language, pieces_lost in outcome["pieces_lost"].items():
        lines.append(
            f"              {language}: {pieces_lost:.2%} of the pieces are gone, "
            f"{outcome['texts_changed'][language]:.2%} of the texts are split otherwise"
        )
    for language, figure in outcome["accuracy"].items():
        low, high = 100 * figure["low"], 100 * figure["high"]
        lines.append(
            f"accuracy      {language}: {figure['accuracy']:.1%} on {figure['n']:,} examples of "
            f"test, untouched {figure['baseline']:.1%}: {100 * figure['difference']:+.1f} points "
            f"[{low:+.1f}, {high:+.1f}]"
        )
    return lines


def _lines_of_form(outcome: ExportOutcome) -> list[str]:
    """What was written, who reads it, and its size."""
    size_after = f"{size_text(outcome['bytes_after'])} of {outcome['dtype_after']}"
    if "file" in outcome:
        removed = (
            f"{outcome['heads_removed']} of {outcome['heads_before']} heads removed, in "
            f"{outcome['groups_removed']} groups"
        )
        if "players" in outcome:
            removed = f"{_removed_words(outcome)} removed"
        return [
            f"{outcome['file']}: {removed}; read by llama.cpp",
            f"weights       {size_text(outcome['bytes_before'])} of {outcome['dtype_before']} -> "
            f"{size_after}",
        ]
    shapes = "the original's shapes"
    if "pieces_after" in outcome:
        shapes = f"{size_text(outcome['bytes_before'])} before"
    silenced = f"{outcome['heads_silenced']} of {outcome['heads_before']} heads"
    if "players" in outcome:
        silenced = _removed_words(outcome)
    return [
        f"{outcome['folder']}: {silenced} silenced; read by transformers without headlab",
        f"weights       {size_after}, {shapes}",
    ]


def _removed_words(outcome: ExportOutcome | ShrinkOutcome | SmallOutcome) -> str:
    """What of other players than heads is gone, or silenced."""
    from headlab.shrink import removed_words  # imports torch

    heads = cast("int", outcome.get("heads_silenced") or outcome["heads_removed"])
    return removed_words(outcome["players"], outcome["heads_before"], heads)


def _outcome_text(outcome: ShrinkOutcome | SmallOutcome, size: int) -> str:
    """The output as lines of text.

    Args:
        outcome: What the smaller model is.
        size: Examples that were asked for.
    """
    parameters_before = outcome["parameters_before"]
    parameters_after = outcome["parameters_after"]
    relative_change = (parameters_after - parameters_before) / parameters_before
    low, high = outcome["latency_interval"]
    timing_remark = "" if not low <= 1 <= high else ": no difference that this timing can resolve"
    heads = f"{outcome['heads_removed']} of {outcome['heads_before']} heads removed"
    if not outcome["heads_removed"] and not outcome["heads_masked"]:
        heads = f"all {outcome['heads_before']} heads stay"
    if "players" in outcome:
        heads = f"{_removed_words(outcome)} removed"
    lines = [
        f"{outcome['folder']}: {heads}",
        f"parameters    {parameters_before:,} -> {parameters_after:,} ({relative_change:+.1%})",
        f"weights       {size_text(outcome['bytes_before'])} of {outcome['dtype_before']} -> "
        f"{size_text(outcome['bytes_after'])} of {outcome['dtype_after']}",
        *_vocabulary_lines(cast("VocabularyOutcome", outcome)),
        _logits_line(outcome, size),
        *_rounding_lines(outcome),
        f"forward pass  {outcome['latency_ratio']:.2f} of the untouched model's time "
        f"[{low:.2f}, {high:.2f}]{timing_remark}",
    ]
    silenced_heads = outcome["heads_masked"]
    if silenced_heads:
        heads = ", ".join(
            str(Head(str(stack), int(layer), int(head)))
            for stack, layer, head in silenced_heads[:MAX_HEADS_NAMED]
        )
        ellipsis = ", …" if len(silenced_heads) > MAX_HEADS_NAMED else ""
        lines.append(
            f"still there   {len(silenced_heads)} heads whose group keeps others, "
            f"silenced in the weights: {heads}{ellipsis}"
        )
    onnx = outcome["onnx"]
    if onnx:
        lines.append(f"{onnx['file']}    differs by {onnx['max_logit_difference']:.2g} at most")
    return "\n".join(lines)


def _rounding_lines(outcome: ShrinkOutcome) -> list[str]:
    """A line of text if weights were rounded, else none."""
    cut_alone = outcome["cut_alone"]
    if cut_alone is None:
        return []
    return [
        f"rounding      to {outcome['dtype_after']} makes that; the cut alone differs by "
        f"{cut_alone['max_logit_difference']:.2g} ({cut_alone['tolerance']:.2g} is rounding)"
    ]


# `headlab worth`: what a mask saves in parameters, multiply-accumulates, and time on this machine.


def worth(
    flags: Annotated[FlagValues, values_of(WorthJob.flags())],
    *,
    task: str | None,
    data: Path | None,
    label_map: str | None,
    languages: str,
    device: Device = None,
    dtype: Dtype = "float32",
    json: AsJson = False,
) -> None:
    """Count and time a model untouched, masked, and with the mask's heads removed from the weights.

    With --vocabulary cut also with its vocabulary cut to --languages. Without --device, the CPU is
    timed, and a GPU too if there is one.
    """
    # refused before the mask is read
    compared_on = _compared_on(
        task, languages, data, label_map, cuts_vocabulary=is_cut(str(flags["vocabulary"]))
    )
    job = WorthJob.from_flags(flags)
    devices = _device_names() if device is None else [device]
    savings: list[Savings] = []
    cut: VocabularyCut | None = None
    for device_name in devices:
        lab = local_lab(device_name, dtype)
        with progress_bar(f"worth on {device_name}") as show:
            running = LocalJob(partial(_show_on_device, show, device_name), print_line)
            if cut is None:  # it is the same for all devices
                cut = job.vocabulary_cut(lab, running, compared_on)
            savings.append(job.savings(lab, running, compared_on, cut))
    speeds = tuple(speed for on_device in savings for speed in on_device.speeds)
    savings_on_all = replace(savings[0], speeds=speeds)
    if json:
        print_json(savings_on_all.to_json())
    else:
        typer.echo(report_markdown(savings_on_all.report()))


def _compared_on(
    task_name: str | None,
    languages: str,
    data: Path | None,
    label_map: str | None,
    *,
    cuts_vocabulary: bool,
) -> ComparedOn:
    """Whose examples are run: a task's, or sentences where none is named.

    Where the vocabulary is cut, sentences are in the languages that it is cut to.

    Args:
        task_name: The task.
        languages: As the command has them.
        data: Folder of the task's files.
        label_map: As the command has it.
        cuts_vocabulary: Whether the languages are also those of the vocabulary.

    Raises:
        HeadlabError: Something is said about a task without one, where it would have no effect, or
            the vocabulary is to be cut and no languages are named.
    """
    names = languages_of(languages)
    if cuts_vocabulary:
        require_languages(names)
    if task_name is not None:
        return ComparedOn(chosen_task(task_name, names, data, label_map_of(label_map)))
    about_task = {"--data": data, "--label-map": label_map}
    if cuts_vocabulary:
        check_about_task(about_task)
        sentences = chosen_task(str(SUBJECT_FLAGS["task"].default), names, None, None)
        return ComparedOn(None, sentences)
    check_about_task({**about_task, "--languages": None if languages == "all" else languages})
    return ComparedOn(None)


def _show_on_device(
    show: Callable[[str, int, int], None], device: str, note: str, done: int, total: int
) -> None:
    """Show how far a measurement is, and on which device."""
    show(f"{device}, {note}", done, total)


def _device_names() -> list[str]:
    import torch

    return ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
