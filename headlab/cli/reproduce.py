"""`headlab reproduce`: published papers, on available models and data."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlab.cli.output import (
    AsJson,
    CacheRoot,
    Device,
    NliModel,
    Seed,
    command_without_paths,
    open_store,
    print_json,
    print_report,
    progress_bar,
    progress_display,
    recorded_command,
    write_report,
)
from headlab.core import HeadlabError, clock_text, write_atomic, write_json
from headlab.tasks import task as task_of
from headlab.training import LmStep

if TYPE_CHECKING:
    from headlab.core import Progress, Report
    from headlab.hooks import Model
    from headlab.reproduce.held import FinishedStep, HeldPlan, HeldTask
    from headlab.results import Store


# `headlab reproduce held`: Held & Yang (2023), on XNLI and part-of-speech tagging.

ShowProgress = Callable[[str, int, int], None]


def held(
    data: Annotated[
        Path, typer.Option("--data", help="folder with xnli/ and ud/ (see docs/tasks.md)")
    ],
    smoke: Annotated[
        bool, typer.Option("--smoke", help="three languages, few examples: minutes, not hours")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="folder for reports (JSON), tables (CSV) and figures")
    ] = None,
    nli_model: NliModel = None,
    udpos_model: Annotated[
        Path | None,
        typer.Option(
            help="model fine-tuned on English part-of-speech tags; default: fine-tuned here first"
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="float32 or bfloat16; default: bfloat16 where the processor has it natively"
        ),
    ] = None,
    seed: Seed = 0,
    device: Device = None,
    cache: CacheRoot = None,
    json: AsJson = False,
) -> None:
    """Reproduce Held & Yang (EACL 2023) on XNLI and universal part-of-speech tags.

    Every table and figure of the paper is made.

    The cost of each step is printed before it starts. It can be interrupted; run the same command
    again to resume.
    """
    from headlab.cli.figures import write_figures
    from headlab.reproduce.held import (
        REAL,
        SMOKE,
        check,
        markdown_texts,
        plan_to_json,
        write_finished,
    )
    from headlab.reproduce.held import TASKS as PARTS
    from headlab.reproduce.models import fast_dtype

    dtype = dtype or fast_dtype(device)
    plan = SMOKE if smoke else REAL
    store = open_store(cache)
    model_folders = {"xnli": nli_model, "udpos": udpos_model}
    folders = {"--nli-model": nli_model, "--udpos-model": udpos_model}
    command = command_without_paths("held", smoke, folders, dtype, seed)
    check(plan, data, model_folders)
    results: list[FinishedStep] = []
    with progress_bar("loading") as show_progress:
        for name in PARTS:
            model = _load_model(
                name, plan, data, model_folders[name], store, device, dtype, show_progress
            )
            study = _held_study(name, model, plan, store, data, seed)
            for result in _run_steps(study, name, show_progress):
                results.append(result)
                if out is not None:
                    write_finished(result, out, command)
                    write_figures(result.report, out / result.step.name)
                if not json:
                    typer.echo("\n\n".join(markdown_texts(result)) + "\n")
    if json:
        print_json(plan_to_json(command, plan, results))


def _held_study(
    name: str, model: Model, plan: HeldPlan, store: Store, data: Path, seed: int
) -> HeldTask:
    from headlab.reproduce.held import HeldTask

    return HeldTask(model, task_of(name, data=data), plan, store, seed)


def _run_steps(study: HeldTask, name: str, show_progress: ShowProgress) -> Any:
    from headlab.reproduce.held import steps

    for step in steps(study.plan):
        if step.task != name:
            continue
        typer.echo(f"{step.name}: {study.cost(step).sentence}", err=True)

        def on_progress(progress: Progress, title: str = step.name) -> None:
            show_progress(f"{title} {progress.note}", progress.done, progress.total)

        yield study.finished_step(step, on_progress)


def _load_model(
    name: str,
    plan: HeldPlan,
    data: Path,
    requested_folder: Path | None,
    store: Store,
    device: str | None,
    dtype: str,
    show_progress: ShowProgress,
) -> Model:
    from headlab.reproduce.held import TAGGER, tagger_folder
    from headlab.reproduce.models import NLI, nli_folder, open_model
    from headlab.training import FinetuneStep

    def progress(step: FinetuneStep) -> None:
        show_progress(f"training, loss {step.loss:.3f}", step.step, step.steps)

    if name == "xnli":
        return open_model(nli_folder(data, requested_folder), NLI, device, dtype)
    folder = requested_folder or tagger_folder(
        task_of(name, data=data), store.root, plan.steps, device or "cpu", progress
    )
    return open_model(folder, TAGGER, device, dtype)


# `headlab reproduce voita-gates`: learned gates, on classifiers and on a translation model.


@dataclass
class TimeLeft:
    """Estimates the time left of a piece of work from its pace since its first progress report."""

    title: str = ""
    started: float = 0.0
    first_done: int = 0

    def time_left(self, title: str, progress: Progress) -> str:
        """The time left in words; empty while it is unknown."""
        if title != self.title:
            self.title = title
            self.started = time.monotonic()
            self.first_done = progress.done
        done_since = progress.done - self.first_done
        if done_since <= 0:
            return ""
        seconds_each = (time.monotonic() - self.started) / done_since
        return f", {clock_text(seconds_each * (progress.total - progress.done))} left"


def voita_gates(
    data: Annotated[
        Path, typer.Option("--data", help="folder with mt/, xnli/ and nli_en/ (see docs/tasks.md)")
    ],
    smoke: Annotated[
        bool, typer.Option("--smoke", help="tiny models, few examples: minutes, not hours")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="folder for reports (JSON) and tables (CSV)")
    ] = None,
    part: Annotated[
        list[str] | None,
        typer.Option(help="intents, xnli or translation; give it several times; default: all"),
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="pair of the translation part; default en-de")
    ] = None,
    translation_model: Annotated[
        str | None,
        typer.Option(
            help="folder or hub id of the translation model to prune; default: one is trained"
        ),
    ] = None,
    nli_model: NliModel = None,
    seed: Seed = 0,
    device: Device = None,
    cache: CacheRoot = None,
    json: AsJson = False,
) -> None:
    """Reproduce Voita et al. (ACL 2019), section 6: heads pruned by L0 gates.

    They are compared with other selections and trainings.

    It can be interrupted; run the same command again to resume. Models are stored in the cache
    folder.
    """
    from headlab.models import pick_device
    from headlab.reproduce import gates
    from headlab.reproduce.gates_classifiers import REAL, SMOKE, TRANSLATION

    plan = SMOKE if smoke else REAL
    store = open_store(cache)
    device_name = str(pick_device(device))
    parts = gates.parts_of(plan, part)
    if TRANSLATION not in parts and (language or translation_model):
        raise HeadlabError(
            "--language and --translation-model belong to --part translation; name it as well",
            code="reproduce.option_of_other_part",
        )
    setup = gates.part_inputs(
        plan, data, nli=nli_model, pair=language, translator=translation_model, device=device_name
    )
    gates.check(setup, parts)
    translator: str | Path | None = translation_model
    if translation_model is not None and Path(translation_model).is_dir():
        translator = Path(translation_model)  # a path, which the command does not say
    command_options = {
        "--smoke": smoke,
        "--part": part,
        "--language": language,
        "--translation-model": translator,
        "--nli-model": nli_model,
        "--seed": seed or None,
        "--device": device,
    }
    command = recorded_command("voita-gates", command_options)
    reports: list[Report] = []
    pace = TimeLeft()
    with progress_display("loading") as show_progress:

        def show_part(title: str, progress: Progress) -> None:
            text = f"{title} {progress.note}".rstrip() + pace.time_left(title, progress)
            show_progress(text, progress.done, progress.total)

        for name in parts:
            report = gates.part_report(setup, name, store, device_name, seed, show_part)
            reports.append(report)
            if out is not None:
                write_report(report, out, command)
    if json:
        print_json(
            {
                "command": command,
                "plan": asdict(setup.plan),
                "reports": {report.name: report.to_json() for report in reports},
            }
        )
        return
    for report in reports:
        print_report(report)


# `headlab reproduce shim`: an All-attention language model with heads pruned.


def shim(
    data: Annotated[
        Path, typer.Option("--data", help="folder with wikitext2/{train,valid,test}.txt")
    ],
    smoke: Annotated[
        bool, typer.Option("--smoke", help="tiny models on 40,000 words: minutes, not hours")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="folder for the report (JSON) and its tables (CSV)")
    ] = None,
    weight: Annotated[
        list[float] | None,
        typer.Option(min=0, help="λ, a pruned model each; give it several times"),
    ] = None,
    seed: Seed = 0,
    device: Device = None,
    cache: CacheRoot = None,
    json: AsJson = False,
) -> None:
    """Reproduce Shim et al. (2021): All-attention pruned by layer-wise gates.

    Perplexity, parameters and speed are measured.

    It can be interrupted; run the same command again to resume. Models are stored in the cache
    folder.
    """
    from headlab.models import pick_device
    from headlab.reproduce import shim as paper
    from headlab.reproduce.shim import REAL, SMOKE, check

    plan = SMOKE if smoke else REAL
    store = open_store(cache)
    device_name = str(pick_device(device))
    plan = replace(plan, weights=tuple(dict.fromkeys(weight))) if weight else plan
    check(plan)
    lines = paper.text_lines(plan, data)
    command_options = {
        "--smoke": smoke,
        "--weight": weight,
        "--seed": seed or None,
        "--device": device,
    }
    command = recorded_command("shim", command_options)
    with progress_display("reading") as show_progress:

        def show_step(name: str, step: LmStep) -> None:
            show_progress(f"{name}: {step.note}", step.step, step.steps)

        results = paper.ShimWork(
            plan, lines, store.root, device=device_name, seed=seed, show=show_step
        ).made_models()
        show_progress("timing", 0, 1)
        report = paper.report(results, device=device_name, spec={"command": command, "seed": seed})
    if out is not None:
        write_report(report, out, command)
    if json:
        print_json({"command": command, **report.to_json()})
    else:
        print_report(report)


# `headlab reproduce voita-roles`: roles of heads, across languages and before and after
# fine-tuning.


def voita_roles(
    data: Annotated[
        Path, typer.Option("--data", help="folder with treebanks in ud/ (see docs/tasks.md)")
    ],
    smoke: Annotated[
        bool, typer.Option("--smoke", help="three languages, 60 trees each, two models")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="folder for reports (JSON) and tables (CSV)")
    ] = None,
    nli_model: NliModel = None,
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16")] = "float32",
    seed: Seed = 0,
    device: Device = None,
    cache: CacheRoot = None,
    json: AsJson = False,
) -> None:
    """Reproduce Voita et al. (ACL 2019): roles of heads, by language.

    The models are multilingual-e5-small and two that were fine-tuned.

    It can be interrupted: the same command resumes after the last finished language.
    """
    from headlab.reproduce import voita
    from headlab.reproduce.models import NLI, nli_folder

    plan = voita.SMOKE if smoke else voita.REAL
    store = open_store(cache)
    voita.languages(plan, data)  # raises early if a treebank is missing
    if NLI in plan.models:
        nli_folder(data, nli_model)
    command = command_without_paths("voita-roles", smoke, {"--nli-model": nli_model}, dtype, seed)
    reports_by_name: dict[tuple[str, str], Report] = {}
    with progress_bar("loading") as show:
        for model_name in plan.models:
            show(f"loading {model_name}", 0, 1)
            model = voita.model_of(model_name, data, nli_model, device, dtype)

            def progress(language: str, step: Any, name: str = model_name) -> None:
                show(f"{name}, {language}: {step.note}", step.done, step.total)

            for language, report in voita.role_reports(model, plan, data, store, seed, progress):
                reports_by_name[model_name, language] = report
    summary = voita.summary(
        reports_by_name, {"command": command, "plan": vars(plan), "seed": seed, "dtype": dtype}
    )
    if out is not None:
        _write_role_reports(summary, reports_by_name, out, command)
    if json:
        records_by_name = {
            f"{model_name}-{language}": report.to_json()
            for (model_name, language), report in reports_by_name.items()
        }
        print_json({"command": command, "summary": summary.to_json(), "reports": records_by_name})
        return
    typer.echo("\n\n".join(f"### {table.title}\n\n{table.markdown()}" for table in summary.tables))
    for note in summary.notes:
        typer.echo(f"\nnote: {note}")


def _write_role_reports(
    summary: Report, reports_by_name: dict[tuple[str, str], Report], folder: Path, command: str
) -> None:
    """Write the summary with its tables as CSV, and each report it is based on.

    The reports have only the roles that heads have.
    """
    from headlab.reproduce.voita import with_roles_only

    write_json(folder / f"{summary.name}.json", {"command": command, **summary.to_json()})
    for table in summary.tables:
        write_atomic(folder / f"{summary.name}-{table.name}.csv", table.csv().encode())
    for (name, language), report in reports_by_name.items():
        write_json(
            folder / f"{name}-{language}.json",
            {"command": command, **with_roles_only(report).to_json()},
        )


def group() -> typer.Typer:
    """The commands of the group, one per paper."""
    papers = typer.Typer(
        help="Reproduce published papers.", no_args_is_help=True, rich_markup_mode=None
    )
    papers.command("held")(held)
    papers.command("voita-roles")(voita_roles)
    papers.command("voita-gates")(voita_gates)
    papers.command("shim")(shim)
    return papers
