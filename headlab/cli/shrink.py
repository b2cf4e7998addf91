"""`headlab shrink` and `headlab worth`: a smaller model, verified to give the same answers, and what a mask saves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlab.cli.experiment import markdown
from headlab.cli.job_command import FlagValues, values_of
from headlab.cli.output import (
    MODEL,
    TASK,
    AsJson,
    DataFolder,
    Device,
    Dtype,
    LabelMap,
    Languages,
    ModelName,
    Seed,
    chosen_task,
    print_json,
    progress_bar,
)
from headlab.errors import HeadlabError
from headlab.jobs.command import label_map_of, languages_of
from headlab.jobs.worth import WorthJob
from headlab.masks import full_mask, load_mask, mask_from_json

if TYPE_CHECKING:
    from headlab.hooks.model import Model
    from headlab.shrink import Shrunk
    from headlab.shrink.folder import Written
    from headlab.shrink.proof import WrittenRecord
    from headlab.studies.savings import Ratio, Savings
    from headlab.tasks.base import Task


# `headlab shrink`: from a mask to a smaller model in a folder, verified to give the same answers.

EVERY = "all"  # languages
ROWS, TIMED = 16, 2  # examples per batch, for comparison and timing, and number of batches timed
WeightsDtype = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        help="dtype of the weights: float32, float64, bfloat16, float16; default: the model's own",
    ),
]


def shrink(
    mask: Annotated[
        Path, typer.Option(help="mask file: what headlab prune, front or the Prune page wrote")
    ],
    out: Annotated[
        Path, typer.Option(help="folder of the smaller model; one that shrink wrote is replaced")
    ],
    model: ModelName = MODEL,
    task: Annotated[
        str | None,
        typer.Option(
            help="task whose examples are compared; default: the embedded task's sentences"
        ),
    ] = None,
    data: DataFolder = None,
    label_map: LabelMap = None,
    languages: Languages = EVERY,
    size: Annotated[
        int, typer.Option(min=1, help="examples that are compared, drawn over the languages' dev")
    ] = 128,
    repeats: Annotated[int, typer.Option(min=6, help="rounds in which both models are timed")] = 15,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="write model.onnx too, and compare it (extra onnx)")
    ] = False,
    seed: Seed = 0,
    device: Device = None,
    dtype: WeightsDtype = None,
    json: AsJson = False,
) -> None:
    """Remove a mask's heads from the weights, verify that the answers stay the same, and write the smaller model."""
    from headlab.shrink import shrink_model
    from headlab.shrink.folder import check_out, require_onnx, write_shrunk
    from headlab.shrink.model import check_numbers
    from headlab.shrink.proof import Speed
    from headlab.studies.savings_run import different_batches

    loaded_mask = load_mask(mask)
    check_out(out, model)
    check_numbers(dtype)
    if onnx:
        require_onnx("float32")
    chosen = _task(task, languages, data, label_map)
    loaded = _loaded(model, device, dtype)
    shrunk = shrink_model(loaded, loaded_mask)
    inputs = different_batches(loaded, chosen, rows=ROWS, size=size, seed=seed)
    timed = _timed(loaded, shrunk, chosen, repeats, seed)
    of = {
        "task": task,
        "languages": list(chosen.languages) if chosen else [],
        "split": "dev",
        "seed": seed,
        "size": size,
    }
    where = f"{loaded.device.type}, {loaded.dtype}, {TIMED} batches of {ROWS} examples, {repeats} rounds in turn"
    speed = Speed(timed.ratio, timed.low, timed.high, where)
    written = write_shrunk(loaded, shrunk, out, inputs, of=of, speed=speed, onnx=onnx, dtype=dtype)
    if json:
        print_json(_record(written, timed))
    else:
        typer.echo(_words(shrunk, written, timed))


def _loaded(name: str, device: str | None, dtype: str | None) -> Model:
    """The model to compute with: in float64 if its weights are float64 or are to be written so, else in float32."""
    import headlab
    from headlab.shrink.model import stored

    found = headlab.load(name, device=device, dtype="float64" if dtype == "float64" else "float32")
    return (
        headlab.load(name, device=device, dtype="float64")
        if stored(found) == "float64" != found.dtype
        else found
    )


def _task(
    name: str | None, languages: str, data: Path | None, label_map: str | None
) -> Task | None:
    """The task whose examples are run; None if none is named.

    Raises HeadlabError for options about a task without one, where they would have no effect.
    """
    if name is not None:
        return chosen_task(name, languages_of(languages), data, label_map_of(label_map))
    about = {
        "--data": data,
        "--label-map": label_map,
        "--languages": None if languages == EVERY else languages,
    }
    if given := " and ".join(flag for flag, value in about.items() if value is not None):
        raise HeadlabError(
            f"{given} would be about a task, but none is given; add --task, like --task {TASK}, or leave {given} out",
            code="option.needs_task",
        )
    return None


def _timed(model: Model, shrunk: Shrunk, task: Task | None, repeats: int, seed: int) -> Ratio:
    """Time of the smaller model divided by that of the untouched one, a copy without headlab's hooks."""
    from headlab.shrink import shrink_model
    from headlab.studies.savings_run import batches_of, latency_ratio

    untouched = shrink_model(model, full_mask(model.grid)).module
    inputs = batches_of(model, task, rows=ROWS, count=TIMED, seed=seed)
    return latency_ratio(untouched, shrunk.module, inputs, repeats=repeats, seed=seed)


SHOWN = (
    "parameters_before", "parameters_after", "heads_before", "heads_removed", "heads_masked", "max_logit_difference",
    "tolerance", "cut_alone", "examples", "computed_in", "dtype_before", "dtype_after", "bytes_before", "bytes_after",
)  # fmt: skip


def _record(written: Written, timed: Ratio) -> dict[str, Any]:
    """The output of --json."""
    facts = dict(written.record)
    return {
        "folder": str(written.folder),
        **{name: facts[name] for name in SHOWN},
        "latency_ratio": timed.ratio,
        "latency_interval": [timed.low, timed.high],
        "fingerprint": written.fingerprint,
        "onnx": written.record.get("onnx"),
    }


def _words(shrunk: Shrunk, written: Written, timed: Ratio) -> str:
    """The output as lines of text."""
    from headlab.shrink.proof import size_words

    found, proof = written.record, written.proof
    before, after = shrunk.parameters_before, shrunk.parameters_after
    asked = found["compared_on"]["size"]
    fewer = "" if proof.examples == asked else f" (of {asked} asked for)"
    lines = [
        f"{written.folder}: {shrunk.gone} of {found['heads_before']} heads removed",
        f"parameters    {before:,} -> {after:,} ({(after - before) / before:+.1%})",
        f"weights       {size_words(found['bytes_before'])} of {found['dtype_before']} -> "
        f"{size_words(found['bytes_after'])} of {found['dtype_after']}",
        f"logits        differ from the masked model's by {proof.max_logit_difference:.2g} at most on {proof.examples} "
        f"different examples{fewer} ({proof.tolerance:.2g} is rounding), computed in "
        f"{found['computed_in']}",
        *_rounding(found),
        f"forward pass  {timed.ratio:.2f} of the untouched model's time [{timed.low:.2f}, {timed.high:.2f}]"
        + ("" if timed.sure else ": no difference that this timing can resolve"),
    ]
    if shrunk.masked:
        heads = ", ".join(map(str, shrunk.masked[:8])) + (", …" if len(shrunk.masked) > 8 else "")
        lines.append(
            f"still there   {len(shrunk.masked)} heads whose group keeps others, silenced in the weights: {heads}"
        )
    if onnx := found.get("onnx"):
        lines.append(f"{onnx['file']}    differs by {onnx['max_logit_difference']:.2g} at most")
    return "\n".join(lines)


def _rounding(record: WrittenRecord) -> list[str]:
    """A line of text if weights were rounded, else none."""
    if record["cut_alone"] is None:
        return []
    return [
        f"rounding      to {record['dtype_after']} makes that; the cut alone differs by "
        f"{record['cut_alone']['max_logit_difference']:.2g} ({record['cut_alone']['tolerance']:.2g} is rounding)"
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

    Without --device, the CPU is timed, and a GPU too if there is one.
    """
    loaded_task = _task(task, languages, data, label_map)  # refused before the mask is read
    job = WorthJob.from_flags(flags)
    devices = _devices() if device is None else [device]
    savings = [_measured_on(place, job, loaded_task, dtype) for place in devices]
    speeds = tuple(speed for on_device in savings for speed in on_device.speeds)
    savings_on_all = replace(savings[0], speeds=speeds)
    if json:
        print_json(savings_on_all.to_json())
    else:
        typer.echo(markdown(savings_on_all.report()))


def _measured_on(device: str, job: WorthJob, task: Task | None, dtype: str) -> Savings:
    """What the mask saves on a device.

    Args:
        device: Its name.
        job: With the mask, and how it is timed.
        task: Whose examples are run; None for the embedded task's sentences.
        dtype: Of the weights.
    """
    import headlab
    from headlab.studies.savings_run import measure

    with progress_bar(f"worth on {device}") as show:

        def on_progress(done: int, total: int, note: str) -> None:
            show(f"{device}, {note}", done, total)

        return measure(
            headlab.load(job.model, device=device, dtype=dtype),
            mask_from_json(job.mask, "the mask"),
            task=task,
            batch_sizes=job.batch_sizes,
            rounds=job.rounds,
            seed=job.seed,
            told=on_progress,
        )


def _devices() -> list[str]:
    import torch

    return ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
