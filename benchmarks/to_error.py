"""Seconds until Shapley estimators are within an error of 0.003: headlab, Captum, SHAP and shapiq.

    .venv-bench/bin/python benchmarks/to_error.py --newer .venv-shapiq/bin/python
    .venv-bench/bin/python benchmarks/to_error.py --smoke      one seed, short runs; writes nothing

Takes about three hours on two cores, in parts: every finished run is kept in the work folder, and
the next call of the command goes on. Figures are added to benchmarks/results/estimators.json, whose
other figures are those of benchmarks/estimators.py. How the peers are called is said there.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT)]

from comparison import peers, race, report  # noqa: E402 - after the path to them
from comparison.setting import Setting, long_run  # noqa: E402
from comparison.to_error import Arrival, arrival, entrants, points_of_run, speedups  # noqa: E402

from headlab.core import HeadlabError  # noqa: E402
from headlab.methods.tmab import ALL_SIZES  # noqa: E402

RESULT_FILE = ROOT / "benchmarks" / "results" / "estimators.json"
REFERENCE_SECONDS = 2400.0
REFERENCE_NOISE = 0.0006
"""Standard error that the reference must have before figures are written."""
ERROR = 0.003
SHORT = 0.05
"""Share of their time that runs take with --smoke."""


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


def reference_of(setting: Setting, is_smoke: bool) -> race.Reference:
    """A long run of headlab's samples with a seed of its own, longer by each call."""
    seconds = SHORT * 60 if is_smoke else REFERENCE_SECONDS
    stored = long_run(setting, race.REFERENCE_PLAN, race.REFERENCE_SEED, ALL_SIZES, 0.0)
    reference = race.Reference.of_long_run(stored)
    if is_smoke or reference.noise > REFERENCE_NOISE:
        longer = long_run(setting, race.REFERENCE_PLAN, race.REFERENCE_SEED, ALL_SIZES, seconds)
        reference = race.Reference.of_long_run(longer)
    return reference


def arrivals_of(
    setting: Setting, reference: race.Reference, is_smoke: bool
) -> dict[str, list[Arrival]]:
    """When every run reached the error, by estimator; seeds in turn, so that all age alike."""
    arrivals: dict[str, list[Arrival]] = {}
    for seed in range(1, setting.seeds + 1):
        for entrant in entrants(setting, SHORT if is_smoke else 1.0):
            points = points_of_run(setting, entrant, seed)
            reached = arrival(points, reference, ERROR)
            arrivals.setdefault(entrant.title, []).append(reached)
            how = "measured" if reached.is_measured else "extrapolated"
            print(f"  {entrant.title}, seed {seed}: {reached.seconds:.1f} s, {how}", flush=True)
    return arrivals


def main() -> int:
    """Run what is missing, print, and add the figures; 2 for what a user can put right."""
    arguments = parsed_arguments()
    try:
        peers.require()
        setting = setting_of(arguments)
        reference = reference_of(setting, arguments.smoke)
        print(f"reference: {reference.samples} samples a head, noise {reference.noise:.5f}")
        arrivals = arrivals_of(setting, reference, arguments.smoke)
    except HeadlabError as error:
        print(f"headlab: {error}", file=sys.stderr)
        return 2
    rows = speedups(arrivals)
    for title, ratio in rows.items():
        print(f"{title}: {ratio}")
    if arguments.smoke:
        return 0
    if reference.noise > REFERENCE_NOISE:
        print("the reference is too noisy still; run the command again", file=sys.stderr)
        return 2
    command = " ".join(["python", "benchmarks/to_error.py", *sys.argv[1:]])
    figures: dict[str, Any] = {
        "speedups": rows,
        "arrivals": {title: [vars(run) for run in runs] for title, runs in arrivals.items()},
        "reference": {"samples_a_head": reference.samples, "standard_error": reference.noise},
        **report.provenance(command),
    }
    stored = json.loads(RESULT_FILE.read_text("utf-8"))
    stored.setdefault(f"to_error_{ERROR:g}", {})[setting.title] = figures
    if setting.title == "intents, de":
        stored[f"speedup_at_{ERROR:g}"] = rows
    report.write(RESULT_FILE, stored)
    return 0


if __name__ == "__main__":
    sys.exit(main())
