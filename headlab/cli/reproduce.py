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
    open_store,
    print_json,
    progress_bar,
    recorded_command,
    say_report,
    shown,
    without_places,
    write_report,
)
from headlab.core import HeadlabError, clock, write_atomic, write_json
from headlab.tasks import task as task_of
from headlab.training import LmStep

if TYPE_CHECKING:
    from headlab.core import Progress, Report
    from headlab.hooks import Model
    from headlab.reproduce.held import Found, Held, Plan
    from headlab.results import Store


# `headlab reproduce held`: Held & Yang (2023), on XNLI and part-of-speech tagging.

Show = Callable[[str, int, int], None]


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
    """Reproduce Held & Yang (EACL 2023): every table and figure, on XNLI and on universal part-of-speech tags.

    The cost of each step is printed before it starts. It can be interrupted; run the same command again to resume.
    """
    from headlab.cli.figures import write_figures
    from headlab.reproduce.held import REAL, SMOKE, as_json, check, keep, texts
    from headlab.reproduce.held import TASKS as PARTS
    from headlab.reproduce.models import fast_dtype

    dtype = dtype or fast_dtype(device)
    plan, store = SMOKE if smoke else REAL, open_store(cache)
    given = {"xnli": nli_model, "udpos": udpos_model}
    folders = {"--nli-model": nli_model, "--udpos-model": udpos_model}
    command = without_places("held", smoke, folders, dtype, seed)
    check(plan, data, given)
    every: list[Found] = []
    with progress_bar("loading") as show:
        for name in PARTS:
            model = _model(name, plan, data, given[name], store, device, dtype, show)
            for found in _steps(_held(name, model, plan, store, data, seed), name, show):
                every.append(found)
                if out is not None:
                    keep(found, out, command)
                    write_figures(found.report, out / found.step.name)
                if not json:
                    typer.echo("\n\n".join(texts(found)) + "\n")
    if json:
        print_json(as_json(command, plan, every))


def _held(name: str, model: Model, plan: Plan, store: Store, data: Path, seed: int) -> Held:
    from headlab.reproduce.held import Held

    return Held(model, task_of(name, data=data), plan, store, seed)


def _steps(part: Held, name: str, show: Show) -> Any:
    from headlab.reproduce.held import steps

    for step in (s for s in steps(part.plan) if s.task == name):
        typer.echo(f"{step.name}: {part.cost(step).sentence}", err=True)

        def on_progress(now: Progress, title: str = step.name) -> None:
            show(f"{title} {now.note}", now.done, now.total)

        yield part.done(step, on_progress)


def _model(
    name: str,
    plan: Plan,
    data: Path,
    given: Path | None,
    store: Store,
    device: str | None,
    dtype: str,
    show: Show,
) -> Model:
    from headlab.reproduce.held import TAGGER, tagger_folder
    from headlab.reproduce.models import NLI, nli_folder, opened
    from headlab.training import FinetuneStep

    def progress(step: FinetuneStep) -> None:
        show(f"training, loss {step.loss:.3f}", step.step, step.steps)

    if name == "xnli":
        return opened(nli_folder(data, given), NLI, device, dtype)
    folder = given or tagger_folder(
        task_of(name, data=data), store.root, plan.steps, device or "cpu", progress
    )
    return opened(folder, TAGGER, device, dtype)


# `headlab reproduce voita-gates`: learned gates, on classifiers and on a translation model.


@dataclass
class Pace:
    """Estimates the time left of a piece of work from its pace since its first progress report."""

    title: str = ""
    begun: float = 0.0
    first: int = 0

    def left(self, title: str, progress: Progress) -> str:
        """The time left in words; empty while it is unknown."""
        if title != self.title:
            self.title, self.begun, self.first = title, time.monotonic(), progress.done
        made = progress.done - self.first
        if made <= 0:
            return ""
        return f", {clock((time.monotonic() - self.begun) / made * (progress.total - progress.done))} left"


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
    """Reproduce Voita et al. (ACL 2019), section 6: heads pruned by L0 gates, against other selections and training.

    It can be interrupted; run the same command again to resume. Models are stored in the cache folder.
    """
    from headlab.models import pick_device
    from headlab.reproduce import gates
    from headlab.reproduce.gates_classifiers import REAL, SMOKE, TRANSLATION

    plan, store, place = SMOKE if smoke else REAL, open_store(cache), str(pick_device(device))
    parts = gates.parts_of(plan, part)
    if TRANSLATION not in parts and (language or translation_model):
        raise HeadlabError(
            "--language and --translation-model belong to --part translation; name it as well",
            code="reproduce.option_of_other_part",
        )
    given = gates.given(
        plan, data, nli=nli_model, pair=language, translator=translation_model, device=place
    )
    gates.check(given, parts)
    own = None if translation_model is None else Path(translation_model)
    command = recorded_command("voita-gates", {
        "--smoke": smoke, "--part": part, "--language": language,
        "--translation-model": own if own is not None and own.is_dir() else translation_model,
        "--nli-model": nli_model, "--seed": seed or None, "--device": device,
    })  # fmt: skip
    reports: list[Report] = []
    pace = Pace()
    with shown("loading") as show:

        def say(title: str, progress: Progress) -> None:
            show(
                f"{title} {progress.note}".rstrip() + pace.left(title, progress),
                progress.done,
                progress.total,
            )

        for name in parts:
            found = gates.found(given, name, store, place, seed, say)
            reports.append(found)
            if out is not None:
                write_report(found, out, command)
    if json:
        print_json(
            {
                "command": command,
                "plan": asdict(given.plan),
                "reports": {r.name: r.to_json() for r in reports},
            }
        )
        return
    for report in reports:
        say_report(report)


# `headlab reproduce shim`: an All-attention language model with heads pruned, against ordinary Transformers.


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
    """Reproduce Shim et al. (2021): All-attention pruned by layer-wise gates; perplexity, parameters and speed.

    It can be interrupted; run the same command again to resume. Models are stored in the cache folder.
    """
    from headlab.models import pick_device
    from headlab.reproduce import shim as paper
    from headlab.reproduce.shim import REAL, SMOKE, check

    plan, store, place = SMOKE if smoke else REAL, open_store(cache), str(pick_device(device))
    plan = replace(plan, weights=tuple(dict.fromkeys(weight))) if weight else plan
    check(plan)
    lines = paper.text(plan, data)
    given = {"--smoke": smoke, "--weight": weight, "--seed": seed or None, "--device": device}
    command = recorded_command("shim", given)
    with shown("reading") as say:

        def show(name: str, step: LmStep) -> None:
            say(f"{name}: {step.note}", step.step, step.steps)

        found = paper.Work(plan, lines, store.root, device=place, seed=seed, show=show).done()
        say("timing", 0, 1)
        report = paper.report(found, device=place, spec={"command": command, "seed": seed})
    if out is not None:
        write_report(report, out, command)
    if json:
        print_json({"command": command, **report.to_json()})
    else:
        say_report(report)


# `headlab reproduce voita-roles`: roles of heads, across languages and before and after fine-tuning.


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
    """Reproduce Voita et al. (ACL 2019): head roles of multilingual-e5-small and two fine-tuned models, by language.

    It can be interrupted: the same command resumes after the last finished language.
    """
    from headlab.reproduce import voita
    from headlab.reproduce.models import NLI, nli_folder

    plan, store = voita.SMOKE if smoke else voita.REAL, open_store(cache)
    voita.languages(plan, data)  # raises early if a treebank is missing
    if NLI in plan.models:
        nli_folder(data, nli_model)
    command = without_places("voita-roles", smoke, {"--nli-model": nli_model}, dtype, seed)
    reports: dict[tuple[str, str], Report] = {}
    with progress_bar("loading") as show:
        for name in plan.models:
            show(f"loading {name}", 0, 1)
            model = voita.model_of(name, data, nli_model, device, dtype)

            def progress(language: str, step: Any, name: str = name) -> None:
                show(f"{name}, {language}: {step.note}", step.done, step.total)

            for language, report in voita.studied(model, plan, data, store, seed, progress):
                reports[name, language] = report
    found = voita.summary(
        reports, {"command": command, "plan": vars(plan), "seed": seed, "dtype": dtype}
    )
    if out is not None:
        _write(found, reports, out, command)
    if json:
        every = {
            f"{name}-{language}": report.to_json() for (name, language), report in reports.items()
        }
        print_json({"command": command, "summary": found.to_json(), "reports": every})
        return
    typer.echo("\n\n".join(f"### {table.title}\n\n{table.markdown()}" for table in found.tables))
    for note in found.notes:
        typer.echo(f"\nnote: {note}")


def _write(found: Report, reports: dict[tuple[str, str], Report], out: Path, command: str) -> None:
    """Write the summary with its tables as CSV, and each report it is based on, with only the roles that heads have."""
    from headlab.reproduce.voita import had

    write_json(out / f"{found.name}.json", {"command": command, **found.to_json()})
    for table in found.tables:
        write_atomic(out / f"{found.name}-{table.name}.csv", table.csv().encode())
    for (name, language), report in reports.items():
        write_json(out / f"{name}-{language}.json", {"command": command, **had(report).to_json()})
