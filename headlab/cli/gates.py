"""`headlab gates`: learn which heads to keep with L0 gates, for one penalty or several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headlab.cli.job_run import say_line
from headlab.cli.output import (
    AsJson,
    Here,
    Say,
    chosen_task,
    print_json,
    shown,
)
from headlab.core import Floats, HeadGrid, HeadlabError, Ints, JsonRecord, clock, content_key
from headlab.jobs.local import LocalJob, LocalLab
from headlab.jobs.table import GatesJob
from headlab.results import LearnedGates, Store, trained_folder
from headlab.training import gates_table, run_notes

if TYPE_CHECKING:  # importing torch takes seconds, and `headlab --help` does not need it
    from headlab.training import GateStep, Watch


def gates(
    job: GatesJob,
    *,
    data: Path | None,
    here: Here,
    out: Annotated[
        Path | None, typer.Option("--out", help="folder for the masks, a file for each λ")
    ] = None,
    json: AsJson = False,
) -> None:
    """Learn which heads to keep, with gates and a penalty λ for each open gate (Voita et al. 2019).

    A cached run is read, not repeated. It can be interrupted; run the same command again to resume.
    """
    for weight in job.weights:
        job.gate_options(weight)  # raises, before anything is read
    check_files(job.weights, out)
    (language,) = job.languages_named
    task = chosen_task(job.task, language, data, job.label_map)
    task.check(language, "dev")
    lab = LocalLab(here.store(), here.load, device=here.device)
    with shown("loading") as show:
        runs = job.learned(lab, LocalJob(show, say_line), task, _watching(show))
    mask_files = {} if out is None else write_masks(runs, out)
    model_folders = trained_models(runs, lab.store)
    if json:
        print_json(as_json(runs, mask_files, model_folders))
        return
    lines = []
    for what, paths in (("mask", mask_files), ("model", model_folders)):
        lines += [f"{what} of λ = {weight:g}: {path}" for weight, path in paths.items()]
    typer.echo("\n\n".join([gates_table(runs).markdown(), *run_notes(runs), *lines]))


def check_files(weights: Sequence[float], out: Path | None) -> None:
    """Raise HeadlabError, before training starts, if the masks could not be written."""
    if out is None:
        return
    there = next((path for path in (out, *out.parents) if path.exists()), None)
    if there is not None and not there.is_dir():
        raise HeadlabError(
            f"--out is {out}, but {there} is a file; name a folder for the masks",
            code="output.file_in_path",
        )
    names: dict[str, float] = {}
    for weight in weights:
        other = names.setdefault(_file(weight), weight)
        if other != weight:
            raise HeadlabError(
                f"masks of λ = {other!r} and λ = {weight!r} would have the same file name; give one of them",
                code="gate.same_mask_file",
            )


def _file(weight: float) -> str:
    return f"gates-{weight:.12g}.json"


def _watching(show: Say) -> Callable[[str, float], Watch[GateStep]]:
    """Callbacks that show how far the run of a weight is; the command has one language."""
    from headlab.training import Watch

    def watch_run(language: str, weight: float) -> Watch[GateStep]:
        last = (0, 1)

        def show_step(step: GateStep) -> None:
            nonlocal last
            last = (step.step, step.steps)
            words = f"λ {weight:g}: loss {step.loss:.3f}, {step.open} of {step.gates} open, {clock(step.left)} left"
            show(words, *last)

        return Watch(show_step, measuring=lambda: show(f"λ {weight:g}: measuring", *last))

    return watch_run


def write_masks(found: Sequence[LearnedGates], out: Path) -> dict[float, str]:
    """Write a mask file for each λ; returns {λ: path}."""
    files = {}
    for learned in found:
        path = out / _file(learned.weight)
        learned.mask().save(path)
        files[learned.weight] = str(path)
    return files


def trained_models(found: Sequence[LearnedGates], store: Store) -> dict[float, str]:
    """Folders of the jointly trained models, {λ: path}; if one is missing, a note of its run says so."""
    done = [
        store.run(dict(learned.spec)).result(LearnedGates) for learned in found if learned.trained
    ]
    return {
        run.record.weight: str(folder)
        for run in done
        if run is not None and (folder := trained_folder(run))
    }


def as_json(
    found: Sequence[LearnedGates], files: Mapping[float, str], models: Mapping[float, str]
) -> JsonRecord:
    """All runs with their shared spec as JSON. files, models: paths by λ, of masks and of jointly trained models."""
    first = found[0].spec
    shared = {name: first[name] for name in ("model", "task", "judged", "seed")}
    return {
        **shared,
        "grid": found[0].grid.to_json(),
        "runs": [_run(learned, files, models) for learned in found],
    }


def _run(
    learned: LearnedGates, files: Mapping[float, str], models: Mapping[float, str]
) -> JsonRecord:
    mask = learned.mask()
    return {
        "weight": learned.weight,
        "kept": int(learned.kept.sum()),
        "heads": learned.grid.size,
        "gates": int(learned.gated.sum()),
        "undecided": learned.undecided(),
        "stacks": {
            name: {"kept": kept, "heads": heads}
            for name, (kept, heads) in learned.kept_by_stack().items()
        },
        "mask": _nested(learned.grid, learned.kept.astype(int)),
        "mask_digest": mask.digest,
        "open_probability": _nested(learned.grid, learned.open_probability[-1].round(6)),
        "steps": learned.steps.tolist(),
        "loss": [None, *learned.loss[1:].tolist()],
        "penalty": learned.penalty.tolist(),
        "measured": dict(learned.measured),
        "trained": dict(learned.trained),
        "options": dict(learned.spec["options"]),
        "notes": list(learned.notes),
        "example_forwards": learned.example_forwards,
        "seconds": learned.seconds,
        "run": content_key(dict(learned.spec)),
        "values_sha256": learned.values_sha256(),
        **({"file": files[learned.weight]} if learned.weight in files else {}),
        **({"model_folder": models[learned.weight]} if learned.weight in models else {}),
    }


def _nested(grid: HeadGrid, flat: Ints | Floats) -> JsonRecord:
    """{stack: [layer][head]}, also for a single stack."""
    rows = grid.nest(flat)
    return rows if isinstance(rows, dict) else {grid.stacks[0].name: rows}
