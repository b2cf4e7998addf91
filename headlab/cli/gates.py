"""`headlab gates`: learn which heads to keep with L0 gates, for one penalty or several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headlab.cli.job_run import print_line
from headlab.cli.output import (
    AsJson,
    ComputeSettings,
    ShowProgress,
    chosen_task,
    print_json,
    progress_display,
)
from headlab.core import (
    Floats,
    HeadGrid,
    HeadlabError,
    Ints,
    JsonLike,
    JsonRecord,
    clock_text,
    content_key,
)
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
    compute: ComputeSettings,
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
    check_mask_files(job.weights, out)
    (language,) = job.language_codes
    task = chosen_task(job.task, language, data, job.label_map)
    task.check(language, "dev")
    lab = LocalLab(compute.store(), compute.load, device=compute.device)
    with progress_display("loading") as show_progress:
        runs = job.learn_gates(
            lab, LocalJob(show_progress, print_line), task, _watch_factory(show_progress)
        )
    mask_files = {} if out is None else write_masks(runs, out)
    model_folders = trained_model_folders(runs, lab.store)
    if json:
        print_json(runs_record(runs, mask_files, model_folders))
        return
    lines = []
    for file_kind, paths in (("mask", mask_files), ("model", model_folders)):
        lines += [f"{file_kind} of λ = {weight:g}: {path}" for weight, path in paths.items()]
    typer.echo("\n\n".join([gates_table(runs).markdown(), *run_notes(runs), *lines]))


def check_mask_files(weights: Sequence[float], folder: Path | None) -> None:
    """Raise HeadlabError, before training starts, if the masks could not be written."""
    if folder is None:
        return
    existing_path = next((path for path in (folder, *folder.parents) if path.exists()), None)
    if existing_path is not None and not existing_path.is_dir():
        raise HeadlabError(
            f"--out is {folder}, but {existing_path} is a file; name a folder for the masks",
            code="output.file_in_path",
        )
    weights_by_file_name: dict[str, float] = {}
    for weight in weights:
        same_name_weight = weights_by_file_name.setdefault(_file_name(weight), weight)
        if same_name_weight != weight:
            raise HeadlabError(
                f"masks of λ = {same_name_weight!r} and λ = {weight!r} would have the same file "
                "name; give one of them",
                code="gate.same_mask_file",
            )


def _file_name(weight: float) -> str:
    return f"gates-{weight:.12g}.json"


def _watch_factory(show_progress: ShowProgress) -> Callable[[str, float], Watch[GateStep]]:
    """A function from (language, λ) to the callbacks that show how far that run is."""
    from headlab.training import Watch

    def watch_run(language: str, weight: float) -> Watch[GateStep]:
        # (steps done, steps), where the bar stays while the gates are measured.
        last_position = (0, 1)

        def show_step(step: GateStep) -> None:
            nonlocal last_position
            last_position = (step.step, step.steps)
            text = f"λ {weight:g}: loss {step.loss:.3f}, {step.open} of {step.gates} open"
            show_progress(f"{text}, {clock_text(step.seconds_left)} left", *last_position)

        def show_measuring() -> None:
            show_progress(f"λ {weight:g}: measuring", *last_position)

        return Watch(show_step, measuring=show_measuring)

    return watch_run


def write_masks(runs: Sequence[LearnedGates], folder: Path) -> dict[float, str]:
    """Write a mask file for each λ; returns {λ: path}."""
    paths_by_weight = {}
    for run in runs:
        path = folder / _file_name(run.weight)
        run.mask().save(path)
        paths_by_weight[run.weight] = str(path)
    return paths_by_weight


def trained_model_folders(runs: Sequence[LearnedGates], store: Store) -> dict[float, str]:
    """Folders of the jointly trained models, {λ: path}.

    If one is missing, a note of its run says so.
    """
    paths_by_weight = {}
    for run in runs:
        if not run.trained:
            continue
        stored_run = store.run(dict(run.spec)).result(LearnedGates)
        if stored_run is None:
            continue
        folder = trained_folder(stored_run)
        if folder:
            paths_by_weight[stored_run.record.weight] = str(folder)
    return paths_by_weight


def runs_record(
    runs: Sequence[LearnedGates],
    mask_paths: Mapping[float, str],
    model_folders: Mapping[float, str],
) -> JsonRecord:
    """All runs with their shared spec as JSON.

    Args:
        runs: Of one model and task, one for each λ.
        mask_paths: Files of the masks, by λ.
        model_folders: Folders of the jointly trained models, by λ.
    """
    spec = runs[0].spec
    shared_fields = {name: spec[name] for name in ("model", "task", "judged", "seed")}
    return {
        **shared_fields,
        "grid": runs[0].grid.to_json(),
        "runs": [_run_record(run, mask_paths, model_folders) for run in runs],
    }


def _run_record(
    run: LearnedGates, mask_paths: Mapping[float, str], model_folders: Mapping[float, str]
) -> JsonRecord:
    mask = run.mask()
    record: dict[str, JsonLike] = {
        "weight": run.weight,
        "kept": int(run.kept.sum()),
        "heads": run.grid.size,
        "gates": int(run.has_gate.sum()),
        "undecided": run.undecided_count(),
        "stacks": {
            name: {"kept": kept_count, "heads": head_count}
            for name, (kept_count, head_count) in run.kept_by_stack().items()
        },
        "mask": _values_by_stack(run.grid, run.kept.astype(int)),
        "mask_digest": mask.digest,
        "open_probability": _values_by_stack(run.grid, run.open_probability[-1].round(6)),
        "steps": run.steps.tolist(),
        "loss": [None, *run.loss[1:].tolist()],
        "penalty": run.penalty.tolist(),
        "measured": dict(run.measured),
        "trained": dict(run.trained),
        "options": dict(run.spec["options"]),
        "notes": list(run.notes),
        "example_forwards": run.example_forwards,
        "seconds": run.seconds,
        "run": content_key(dict(run.spec)),
        "values_sha256": run.values_sha256(),
    }
    if run.weight in mask_paths:
        record["file"] = mask_paths[run.weight]
    if run.weight in model_folders:
        record["model_folder"] = model_folders[run.weight]
    return record


def _values_by_stack(grid: HeadGrid, head_values: Ints | Floats) -> JsonRecord:
    """{stack: [layer][head]}, also for a single stack."""
    rows = grid.nest(head_values)
    if isinstance(rows, dict):
        return rows
    return {grid.stacks[0].name: rows}
