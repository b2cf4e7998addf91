"""Seconds until Shapley estimators are within an error of 0.003: headlab, Captum, SHAP and shapiq.

    .venv-bench/bin/python benchmarks/to_error.py --newer .venv-shapiq/bin/python
    .venv-bench/bin/python benchmarks/to_error.py --smoke      one seed, short runs; writes nothing
    .venv-bench/bin/python benchmarks/to_error.py --model e5-small-slots --task slots --error 0.006 --seeds 3
    .venv-bench/bin/python benchmarks/to_error.py --seconds-to     headlab alone, about six minutes

Takes about two hours on two cores, in parts: every finished run is kept in the work folder, and the
next call of the command goes on. On Linux a run waits until other programs leave the processor
alone, and is done again if they did not meanwhile. Another model, task or language is held against a
larger error with `--error`, since its reference has to be five times as exact. Figures are added to
benchmarks/results/estimators.json, whose other figures are those of benchmarks/estimators.py. How
the peers are called is said there.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT)]

from comparison import guarantee, peers, race, report  # noqa: E402 - after the path to them
from comparison.setting import Setting, long_run  # noqa: E402
from comparison.to_error import Arrival, Entrant, arrival, entrants, points_of_run, speedups  # noqa: E402

import headlab  # noqa: E402
from headlab.core import HeadlabError  # noqa: E402
from headlab.methods.tmab import ALL_SIZES, TOP50  # noqa: E402
from headlab.results import ANYTIME, AVERAGE, PLANNED  # noqa: E402

RESULT_FILE = ROOT / "benchmarks" / "results" / "estimators.json"
REFERENCE_FILE = RESULT_FILE.with_name("references.json")
REFERENCE_SECONDS = 600.0
"""How long the reference goes on sampling before its standard error is looked at again."""
REFERENCE_SHARE = 0.2
"""Of the error that is raced to: the standard error that the reference must have."""
ERROR = 0.003
HEADLINE_RACE = f"e5-small-intents, intents, de, {ERROR:g}"
"""The race whose speedups stand at the top of the figures."""
SECONDS_OF_SAMPLES_ALONE = 900.0
"""That they may take to intervals of ±0.01."""
SMOKE_SECONDS = 3.0
"""How long each run takes with --smoke."""


def parsed_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="one seed, short runs; writes nothing")
    parser.add_argument("--language", default="de", help="language of the dev examples")
    parser.add_argument("--model", default="e5-small-intents")
    parser.add_argument("--task", default="intents")
    parser.add_argument("--seeds", type=int, default=8, help="runs of each estimator")
    parser.add_argument("--error", type=float, default=ERROR, help="root mean square over heads")
    parser.add_argument("--seconds", type=float, help="that a run may take at most")
    parser.add_argument(
        "--reference", action="store_true", help="sample the reference only, which times nothing"
    )
    parser.add_argument(
        "--seconds-to",
        action="store_true",
        help="measure headlab alone instead: seconds to the first map, and to intervals of ±0.01",
    )
    parser.add_argument(
        "--newer", type=Path, metavar="PYTHON", help="a Python with requirements-bench-shapiq.txt"
    )
    parser.add_argument(
        "--work", type=Path, help="folder of finished runs (below the temporary folder)"
    )
    return parser.parse_args()


def setting_of(arguments: argparse.Namespace) -> Setting:
    """What the command line asks for."""
    work = arguments.work or Path(tempfile.gettempdir()) / "headlab-benchmark"
    work.mkdir(parents=True, exist_ok=True)
    return Setting(
        language=arguments.language,
        size=24 if arguments.smoke else 512,
        minutes=0.0,
        seeds=1 if arguments.smoke else arguments.seeds,
        target=0.01,
        rows=1,
        walks=(1, 1),
        work=work,
        model_name=arguments.model,
        task_name=arguments.task,
        newer=arguments.newer,
    )


def reference_of(setting: Setting, standard_error: float, is_smoke: bool) -> race.Reference:
    """A long run of headlab's samples with a seed of its own, until it is exact enough.

    A reference that was once exact enough is kept beside the results: it holds no times, so that
    another machine can race against it.
    """
    if is_smoke:
        return _longer_reference(setting, SMOKE_SECONDS)
    references = json.loads(REFERENCE_FILE.read_text("utf-8")) if REFERENCE_FILE.exists() else {}
    key = setting.reference_key(race.REFERENCE_SEED)
    name = f"{setting.model_name}, {setting.title}"
    kept = references.get(name)
    if kept and kept["key"] == key and kept["standard_error"] <= standard_error:
        return race.Reference(
            np.array(kept["values"]), np.array(kept["errors"]), kept["samples_a_head"]
        )
    reference = _longer_reference(setting, 0.0)
    while reference.noise > standard_error:
        if reference.samples >= race.REFERENCE_PLAN.samples:
            raise HeadlabError(
                f"the reference has all {reference.samples} samples and is known to "
                f"{reference.noise:.5f} only; race to a larger --error",
                code="benchmark.reference_too_noisy",
            )
        reference = _longer_reference(setting, REFERENCE_SECONDS)
        print(f"reference: {reference.noise:.5f} of {standard_error:.5f}", flush=True)
    references[name] = {
        "key": key,
        "standard_error": reference.noise,
        "samples_a_head": reference.samples,
        "values": reference.values.round(9).tolist(),
        "errors": reference.error.round(9).tolist(),
    }
    report.write(REFERENCE_FILE, references)
    return reference


def _longer_reference(setting: Setting, seconds: float) -> race.Reference:
    run = long_run(setting, race.REFERENCE_PLAN, race.REFERENCE_SEED, ALL_SIZES, seconds)
    return race.Reference.of_long_run(run)


def arrivals_of(
    setting: Setting,
    reference: race.Reference,
    error: float,
    all_entrants: Sequence[Entrant],
    *,
    only_when_quiet: bool,
) -> dict[str, list[Arrival]]:
    """When every run reached the error, by estimator; seeds in turn, so that all age alike."""
    arrivals: dict[str, list[Arrival]] = {entrant.title: [] for entrant in all_entrants}
    for seed in range(1, setting.seeds + 1):
        for entrant in all_entrants:
            if seed > entrant.seeds:
                continue
            points = points_of_run(setting, entrant, seed, only_when_quiet=only_when_quiet)
            reached = arrival(points, reference, error)
            arrivals[entrant.title].append(reached)
            how = "measured" if reached.is_measured else "extrapolated"
            print(f"  {entrant.title}, seed {seed}: {reached.seconds:.1f} s, {how}", flush=True)
    return arrivals


def estimator_figures(
    all_entrants: Sequence[Entrant], arrivals: dict[str, list[Arrival]]
) -> dict[str, dict[str, Any]]:
    """What the table says of each estimator, by its title."""
    return {
        entrant.title: {
            "seconds": float(np.mean([run.seconds for run in arrivals[entrant.title]])),
            "seeds": len(arrivals[entrant.title]),
            "measured": sum(run.is_measured for run in arrivals[entrant.title]),
            "seconds_a_run": entrant.seconds,
            "uses": entrant.uses,
            "runs": [vars(run) for run in arrivals[entrant.title]],
        }
        for entrant in all_entrants
    }


def seconds_to(setting: Setting, seconds: float) -> dict[str, float]:
    """How long headlab takes to its first map, and to narrow intervals of each kind.

    The model is loaded, and has computed before; nothing is stored. The estimand is the default
    one. What `shapley` takes is held against its samples alone, without slopes, in the same run.

    Args:
        setting: The model and its examples.
        seconds: That the samples alone may take at most.

    Raises:
        HeadlabError: They have not come to their end in this time.
    """
    setting.game.values(np.ones((1, setting.game.players), bool), np.zeros(1, np.int64))
    seconds_by_goal = {}
    runs: dict[str, tuple[str, dict[str, Any]]] = {"first_map": ("smoothed", {})}
    for interval in (AVERAGE, PLANNED, ANYTIME):
        options = {"target": setting.target, "stop": "width", "interval": interval}
        runs[f"{interval}_{setting.target:g}"] = ("shapley", options)
    for goal, (method, options) in runs.items():
        started_at = time.perf_counter()
        headlab.score(
            setting.model,
            setting.task,
            language=setting.language,
            method=method,
            size=setting.size,
            **options,
        )
        seconds_by_goal[goal] = time.perf_counter() - started_at
        print(f"{goal}: {seconds_by_goal[goal]:.1f} s", flush=True)
    with tempfile.TemporaryDirectory() as empty_folder:
        fresh_setting = replace(setting, work=Path(empty_folder))
        samples_alone = long_run(fresh_setting, guarantee.plan(setting.target), 0, TOP50, seconds)
    if not samples_alone.tally.is_finished:
        raise HeadlabError(
            f"the samples alone have not come to ±{setting.target:g} within {seconds:g} s; measure on an idle machine",
            code="benchmark.unfinished",
        )
    seconds_by_goal[f"anytime_{setting.target:g}_by_samples_alone"] = samples_alone.seconds
    return seconds_by_goal


def options_without_work(options: Sequence[str]) -> list[str]:
    """The options of the command line without the work folder, a place on one machine.

    Args:
        options: All of them, as typed.
    """
    remaining = []
    is_value_of_work = False
    for option in options:
        if is_value_of_work:
            is_value_of_work = False
        elif option == "--work":
            is_value_of_work = True
        elif not option.startswith("--work="):
            remaining.append(option)
    return remaining


def main() -> int:
    """Run what is missing, print, and add the figures; 2 for what a user can put right."""
    arguments = parsed_arguments()
    try:
        peers.require()
        setting = setting_of(arguments)
        if arguments.seconds_to:
            stored = json.loads(RESULT_FILE.read_text("utf-8"))
            command = " ".join(["python", "benchmarks/to_error.py", "--seconds-to"])
            # Seconds until ten heads are named are those of benchmarks/naming.py.
            measured_seconds = seconds_to(setting, SECONDS_OF_SAMPLES_ALONE)
            stored["seconds_to"] = {**stored.get("seconds_to", {}), **measured_seconds}
            stored["seconds_to_made"] = report.provenance(command)
            report.write(RESULT_FILE, stored)
            return 0
        standard_error = REFERENCE_SHARE * arguments.error
        reference = reference_of(setting, standard_error, arguments.smoke)
        print(f"reference: {reference.samples} samples a head, noise {reference.noise:.5f}")
        if arguments.reference:
            return 0
        most_seconds = SMOKE_SECONDS if arguments.smoke else arguments.seconds
        all_entrants = list(entrants(setting, most_seconds))
        arrivals = arrivals_of(
            setting,
            reference,
            arguments.error,
            all_entrants,
            only_when_quiet=not arguments.smoke,
        )
    except HeadlabError as error:
        print(f"headlab: {error}", file=sys.stderr)
        return 2
    rows = speedups(arrivals)
    for title, ratio in rows.items():
        print(f"{title}: {ratio}")
    if arguments.smoke:
        return 0
    command = " ".join(["python", "benchmarks/to_error.py", *options_without_work(sys.argv[1:])])
    figures: dict[str, Any] = {
        "error": arguments.error,
        "speedups": rows,
        "estimators": estimator_figures(all_entrants, arrivals),
        "reference": {
            "samples_a_head": reference.samples,
            "standard_error": reference.noise,
            "error_of_nothing": float(
                np.sqrt(reference.squared_error(np.zeros(setting.game.players)))
            ),
        },
        **report.provenance(command),
    }
    stored = json.loads(RESULT_FILE.read_text("utf-8"))
    race_name = f"{setting.model_name}, {setting.title}, {arguments.error:g}"
    stored.setdefault("to_error", {})[race_name] = figures
    if race_name == HEADLINE_RACE and arguments.seconds is None:
        stored[f"speedup_at_{ERROR:g}"] = rows
    report.write(RESULT_FILE, stored)
    return 0


if __name__ == "__main__":
    sys.exit(main())
