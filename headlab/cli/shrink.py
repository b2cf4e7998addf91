"""`headlab shrink`: from a mask to a smaller model in a folder, with the proof that it answers the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlab.cli.output import (
    MODEL,
    AsJson,
    DataFolder,
    Device,
    Dtype,
    Languages,
    ModelName,
    Seed,
    print_json,
    split_languages,
)
from headlab.errors import HeadlabError
from headlab.masks import full_mask, load_mask

if TYPE_CHECKING:
    from headlab.gates import Model
    from headlab.shrink import Shrunk
    from headlab.shrink.folder import Written
    from headlab.shrink.proof import Inputs
    from headlab.tasks.base import Task
    from headlab.worth.ratio import Ratio

ROWS = 16  # examples of a batch that models are compared and timed on


def shrink(
    mask: Annotated[Path, typer.Option(help="mask file: what headlab prune, front or the Prune page wrote")],
    out: Annotated[Path, typer.Option(help="folder of the smaller model; one that shrink wrote is replaced")],
    model: ModelName = MODEL,
    task: Annotated[
        str | None, typer.Option(help="task whose examples are compared; default: the embedded task's sentences")
    ] = None,
    data: DataFolder = None,
    languages: Languages = "all",
    size: Annotated[int, typer.Option(min=1, help="examples that are compared, drawn over the languages' dev")] = 128,
    repeats: Annotated[int, typer.Option(min=6, help="rounds in which both models are timed")] = 15,
    onnx: Annotated[bool, typer.Option("--onnx", help="write model.onnx too, and compare it (extra onnx)")] = False,
    seed: Seed = 0,
    device: Device = None,
    dtype: Dtype = "float32",
    json: AsJson = False,
) -> None:
    """Take the heads a mask removes out of the weights, prove that the answers stay, and write the smaller model."""
    import headlab
    from headlab.shrink import shrink_model
    from headlab.shrink.card import Speed
    from headlab.shrink.folder import check_out, write_shrunk

    loaded_mask = load_mask(mask)
    check_out(out)
    if onnx:
        from headlab.shrink.onnx import require_onnx

        require_onnx(dtype)
    chosen = _task(task, languages, data)
    loaded = headlab.load(model, device=device, dtype=dtype)
    shrunk = shrink_model(loaded, loaded_mask)
    inputs = _inputs(loaded, chosen, size, seed)
    timed = _timed(loaded, shrunk, inputs, repeats, seed)
    of = {"task": task, "languages": list(chosen.languages) if chosen else [], "split": "dev", "seed": seed}
    where = f"{loaded.device.type}, batches of {ROWS} examples, {repeats} rounds in turn"
    speed = Speed(timed.ratio, timed.low, timed.high, where)
    written = write_shrunk(loaded, shrunk, out, inputs, of=of, speed=speed, onnx=onnx)
    if json:
        print_json(_record(loaded, shrunk, written, timed))
    else:
        typer.echo(_words(loaded, shrunk, written, timed))


def _task(name: str | None, languages: str, data: Path | None) -> Task | None:
    """The task whose examples are compared, if one is named."""
    import headlab

    if name is not None:
        return headlab.task(name, split_languages(languages), data=data)
    if data is not None or languages != "all":
        raise HeadlabError("--data and --languages are a task's; name it with --task, or leave them out")
    return None


def _inputs(model: Model, task: Task | None, size: int, seed: int) -> Inputs:
    """Batches of real examples, the last one smaller if need be."""
    from headlab.worth.sample import batches_of

    batches = batches_of(model, task, rows=min(size, ROWS), count=-(-size // ROWS), seed=seed)
    rest = size - ROWS * (len(batches) - 1)
    return [*batches[:-1], {name: tensor[:rest] for name, tensor in batches[-1].items()}]


def _timed(model: Model, shrunk: Shrunk, inputs: Inputs, repeats: int, seed: int) -> Ratio:
    """Time of the smaller model over that of the untouched one, taken as a copy without headlab's hooks."""
    from headlab.shrink import shrink_model
    from headlab.worth.latency import latency_ratio

    untouched = shrink_model(model, full_mask(model.grid)).module
    return latency_ratio(untouched, shrunk.module, inputs[:2], repeats=repeats, seed=seed)


def _record(model: Model, shrunk: Shrunk, written: Written, timed: Ratio) -> dict[str, Any]:
    """What --json prints."""
    return {
        "folder": str(written.folder),
        "parameters_before": shrunk.parameters_before,
        "parameters_after": shrunk.parameters_after,
        "heads_before": model.grid.size,
        "heads_removed": shrunk.gone,
        "heads_masked": [list(head) for head in shrunk.masked],
        "max_logit_difference": written.proof.max_logit_difference,
        "tolerance": written.proof.tolerance,
        "examples": written.proof.examples,
        "latency_ratio": timed.ratio,
        "latency_interval": [timed.low, timed.high],
        "fingerprint": written.fingerprint,
        "onnx": written.onnx,
    }


def _words(model: Model, shrunk: Shrunk, written: Written, timed: Ratio) -> str:
    """The same in lines of text."""
    before, after, proof = shrunk.parameters_before, shrunk.parameters_after, written.proof
    lines = [
        f"{written.folder}: {shrunk.gone} of {model.grid.size} heads are gone",
        f"parameters    {before:,} -> {after:,} ({(after - before) / before:+.1%})",
        f"logits        differ from the masked model's by {proof.max_logit_difference:.2g} at most on {proof.examples} "
        f"examples ({proof.tolerance:.2g} is rounding)",
        f"forward pass  {timed.ratio:.2f} of the untouched model's time [{timed.low:.2f}, {timed.high:.2f}]"
        + ("" if timed.sure else ": no difference that this timing can tell"),
    ]
    if shrunk.masked:
        heads = ", ".join(map(str, shrunk.masked[:8])) + (", …" if len(shrunk.masked) > 8 else "")
        lines.append(
            f"still there   {len(shrunk.masked)} heads whose group keeps others, silenced in the weights: {heads}"
        )
    if written.onnx:
        lines.append(f"{written.onnx['file']}    differs by {written.onnx['max_logit_difference']:.2g} at most")
    return "\n".join(lines)
