"""`headlab reproduce voita-gates`: gates that learn, on classifiers and on a translation model."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headlab.cli.output import (
    AsJson,
    CacheRoot,
    Device,
    NliModel,
    Seed,
    open_store,
    print_json,
    recorded_command,
    say_report,
    write_report,
)
from headlab.cli.steps_shown import clock, shown
from headlab.errors import HeadlabError

if TYPE_CHECKING:  # they need torch, which takes seconds, and `headlab --help` does not
    from headlab.records import Progress
    from headlab.tables import Report


@dataclass
class Pace:
    """Time left of what is under way, at its pace since it was first heard of."""

    title: str = ""
    begun: float = 0.0
    first: int = 0

    def left(self, title: str, progress: Progress) -> str:
        """In words; nothing as long as it is not known."""
        if title != self.title:
            self.title, self.begun, self.first = title, time.monotonic(), progress.done
        made = progress.done - self.first
        if made <= 0:
            return ""
        return f", {clock((time.monotonic() - self.begun) / made * (progress.total - progress.done))} left"


def voita_gates(
    data: Annotated[Path, typer.Option("--data", help="folder with mt/, xnli/ and nli_en/ (see docs/tasks.md)")],
    smoke: Annotated[bool, typer.Option("--smoke", help="tiny models, few examples: minutes, not hours")] = False,
    out: Annotated[Path | None, typer.Option(help="folder for reports (JSON) and tables (CSV)")] = None,
    part: Annotated[
        list[str] | None, typer.Option(help="intents, xnli or translation; give it several times; default: all")
    ] = None,
    language: Annotated[str | None, typer.Option(help="pair of the translation part; default en-de")] = None,
    translation_model: Annotated[
        str | None, typer.Option(help="folder or hub id of the translation model to prune; default: one is trained")
    ] = None,
    nli_model: NliModel = None,
    seed: Seed = 0,
    device: Device = None,
    cache: CacheRoot = None,
    json: AsJson = False,
) -> None:
    """Voita et al. (ACL 2019), section 6: heads pruned by L0 gates, beside other choices and other ways to train.

    Interrupt it when you like: the same command goes on where it was. Models are kept in the cache folder.
    """
    from headlab.models.load import pick_device
    from headlab.reproduce import gates
    from headlab.reproduce.gates_classifiers import REAL, SMOKE, TRANSLATION

    plan, store, place = SMOKE if smoke else REAL, open_store(cache), str(pick_device(device))
    parts = gates.parts_of(plan, part)
    if TRANSLATION not in parts and (language or translation_model):
        raise HeadlabError(
            "--language and --translation-model belong to --part translation; name it, too",
            code="reproduce.option_of_other_part",
        )
    given = gates.given(plan, data, nli=nli_model, pair=language, translator=translation_model, device=place)
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
            show(f"{title} {progress.note}".rstrip() + pace.left(title, progress), progress.done, progress.total)

        for name in parts:
            found = gates.found(given, name, store, place, seed, say)
            reports.append(found)
            if out is not None:
                write_report(found, out, command)
    if json:
        print_json({"command": command, "plan": asdict(given.plan), "reports": {r.name: r.to_json() for r in reports}})
        return
    for report in reports:
        say_report(report)
