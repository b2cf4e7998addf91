"""`headlab gates`: learn which heads to keep with L0 gates, for one penalty or several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlab.cli.output import (
    MODEL,
    TASK,
    AsJson,
    DataFolder,
    Here,
    LabelMap,
    ModelName,
    Say,
    TaskName,
    chosen_task,
    clock,
    flags_of,
    print_json,
    shown,
)
from headlab.errors import HeadlabError
from headlab.l0_gates import LearnedGates
from headlab.options import parse_options
from headlab.records import HeadGrid, content_key
from headlab.store import Store, trained_folder
from headlab.studies.table import JOBS
from headlab.training.l0_options import ALL, GateOptions, options_of
from headlab.training.l0_table import gates_table, run_notes

if TYPE_CHECKING:  # importing torch takes seconds, and `headlab --help` does not need it
    from headlab.training.l0_options import GateStep
    from headlab.training.steps import Watch

OWN = {"weight": "--weight", "stacks": "--stacks", "trained": "--train-model"}


@flags_of({"stacks": GateOptions.table()["stacks"], **JOBS["gates"]})
def gates(
    *,
    model: ModelName = MODEL,
    task: TaskName = TASK,
    data: DataFolder = None,
    label_map: LabelMap = None,
    language: Annotated[
        str, typer.Option("--language", help="language to train and evaluate on")
    ] = "en",
    weight: Annotated[
        list[float] | None,
        typer.Option(
            "--weight", "--lambda", min=0, help="λ, nats for an open gate; several make a sweep"
        ),
    ] = None,
    train_model: Annotated[
        bool, typer.Option("--train-model", help="train the model jointly with its gates")
    ] = False,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", help="name=value of the learning, e.g. steps=800"),
    ] = None,
    here: Here,
    out: Annotated[
        Path | None, typer.Option("--out", help="folder for the masks, a file for each λ")
    ] = None,
    json: AsJson = False,
    **own: Any,
) -> None:
    """Learn which heads to keep, with gates and a penalty λ for each open gate (Voita et al. 2019).

    A cached run is read, not repeated. It can be interrupted; run the same command again to resume.
    """
    options = chosen_options(option or [], own["stacks"], train_model, own["seed"])
    weights = list(dict.fromkeys(weight or [options.weight]))
    check_files(weights, out)
    from headlab.training.l0_learn import sweep

    asked = chosen_task(task, language, data, label_map)
    asked.check(language, "dev")
    store, loaded = here.store(), here.load(model)
    with shown("loading") as show:
        found = sweep(
            loaded, asked, language, weights, options=options, store=store, watch=_watching(show)
        )
    files = {} if out is None else write_masks(found, out)
    models = trained_models(found, store)
    if json:
        print_json(as_json(found, files, models))
    else:
        made = (("mask", files), ("model", models))
        lines = [
            f"{what} of λ = {w:g}: {path}" for what, paths in made for w, path in paths.items()
        ]
        typer.echo("\n\n".join([gates_table(found).markdown(), *run_notes(found), *lines]))


def chosen_options(pairs: list[str], stacks: str, train_model: bool, seed: int) -> GateOptions:
    """The options of all runs. Raises HeadlabError for one that is invalid or has its own flag."""
    given = parse_options(pairs, GateOptions.table())
    for name in OWN:
        if name in given:
            raise HeadlabError(
                f"{name} is set by {OWN[name]}, not by -o", code="option.set_elsewhere"
            )
    return options_of(given | {"stacks": stacks, "trained": ALL if train_model else "gates"}, seed)


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


def _watching(show: Say) -> Callable[[float], Watch[GateStep]]:
    from headlab.training.steps import Watch

    def watch(weight: float) -> Watch[GateStep]:
        last = (0, 1)

        def say(step: GateStep) -> None:
            nonlocal last
            last = (step.step, step.steps)
            words = f"λ {weight:g}: loss {step.loss:.3f}, {step.open} of {step.gates} open, {clock(step.left)} left"
            show(words, *last)

        return Watch(say, measuring=lambda: show(f"λ {weight:g}: measuring", *last))

    return watch


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
) -> dict[str, Any]:
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
) -> dict[str, Any]:
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


def _nested(grid: HeadGrid, flat: Any) -> dict[str, Any]:
    """{stack: [layer][head]}, also for a single stack."""
    rows = grid.nest(flat)
    return rows if isinstance(rows, dict) else {grid.stacks[0].name: rows}
