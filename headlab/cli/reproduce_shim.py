"""`headlab reproduce shim`: an All-attention language model pruned for good, beside ordinary Transformers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from headlab.cli.output import (
    AsJson,
    CacheRoot,
    Device,
    Seed,
    open_store,
    print_json,
    recorded_command,
    say_report,
    write_report,
)
from headlab.cli.steps_shown import lm_words, shown
from headlab.training.lm.options import LmStep


def shim(
    data: Annotated[Path, typer.Option("--data", help="folder with wikitext2/{train,valid,test}.txt")],
    smoke: Annotated[bool, typer.Option("--smoke", help="tiny models on 40,000 words: minutes, not hours")] = False,
    out: Annotated[Path | None, typer.Option(help="folder for the report (JSON) and its tables (CSV)")] = None,
    weight: Annotated[
        list[float] | None, typer.Option(min=0, help="λ, a pruned model each; give it several times")
    ] = None,
    seed: Seed = 0,
    device: Device = None,
    cache: CacheRoot = None,
    json: AsJson = False,
) -> None:
    """Shim et al. (2021): All-attention pruned by layer-wise gates; perplexity, parameters, speed against heads.

    Interrupt it when you like: the same command goes on where it was. Models are kept in the cache folder.
    """
    from headlab.models.load import pick_device
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
            say(f"{name}: {lm_words(step)}", step.step, step.steps)

        found = paper.Work(plan, lines, store.root, device=place, seed=seed, show=show).done()
        say("timing", 0, 1)
        report = paper.report(found, device=place, spec={"command": command, "seed": seed})
    if out is not None:
        write_report(report, out, command)
    if json:
        print_json({"command": command, **report.to_json()})
    else:
        say_report(report)
