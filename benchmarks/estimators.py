"""Shapley estimators side by side: headlab, the paper's recipe, Captum, SHAP and shapiq on the same model.

    sh tools/install.sh .venv-bench requirements.txt requirements-bench.txt
    .venv-bench/bin/python benchmarks/estimators.py              about 25 minutes on two cores
    .venv-bench/bin/python benchmarks/estimators.py --smoke      few examples, under 3 minutes

Writes estimators.json and estimators.png to benchmarks/results (with --smoke: to the work folder)
after every part, so that an interrupted run leaves what it has. The reference and the run to the
guaranteed half-width are kept in the work folder, and the next run continues them; --minutes gives
all parts more time. --others sw zh-CN and --xnli MODEL (with the data's folder in $HEADLAB_DATA) race
in other settings too. --newer PYTHON races shapiq's newest approximators too, for which that Python
(3.12 or newer) needs requirements-bench-shapiq.txt; their package does not run on older ones.
What is measured and how: docs/performance.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT)]

from comparison import exactness, guarantee, peers, race, report  # noqa: E402 - after the path to them
from comparison.costs import Costs, forward_seconds, measure  # noqa: E402
from comparison.setting import OTHER_SHARES, Setting, long_run  # noqa: E402

from headlab.core import HeadlabError  # noqa: E402
from headlab.methods.tmab import ALL_SIZES, TOP50  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
OTHERS_KEYS = (
    "speedup_to_equal_error",
    "speedup_over_previous",
    "best_peer",
    "equal_error",
    "race",
    "not_run",
    "reference",
)
# Seeds of the other settings, and how much more time XNLI gets than a language: its examples are pairs.
OTHER_SEEDS = 3
XNLI_TIME = 3
# Estimates of a run of shapiq's newest approximators that is checked against exact values; each is of
# twice as many coalitions as the one before.
CHECKED_ESTIMATES = 4


def parsed_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--smoke", action="store_true", help="few examples, a wide target, short runs"
    )
    parser.add_argument(
        "--minutes", type=float, help="time for all parts together (25; with --smoke 0.8)"
    )
    parser.add_argument("--language", default="de", help="language of the dev examples")
    parser.add_argument(
        "--others", nargs="*", default=[], metavar="LANGUAGE", help="languages that race besides"
    )
    parser.add_argument(
        "--xnli", metavar="MODEL", help="a model fine-tuned on XNLI that races besides, in German"
    )
    parser.add_argument(
        "--newer", type=Path, metavar="PYTHON", help="a Python with requirements-bench-shapiq.txt"
    )
    parser.add_argument("--seeds", type=int, help="runs of each estimator (8; with --smoke 1)")
    parser.add_argument(
        "--work", type=Path, help="folder of what later runs take up (below the temporary folder)"
    )
    parser.add_argument("--out", type=Path, help="folder of the results")
    return parser.parse_args()


def setting_of(arguments: argparse.Namespace) -> Setting:
    """What the command line asks for."""
    work = arguments.work or Path(tempfile.gettempdir()) / "headlab-benchmark"
    work.mkdir(parents=True, exist_ok=True)
    smoke = arguments.smoke
    return Setting(
        language=arguments.language,
        size=24 if smoke else 512,
        minutes=arguments.minutes or (0.8 if smoke else 25.0),
        seeds=arguments.seeds or (1 if smoke else 8),
        target=0.2 if smoke else 0.01,
        rows=1 if smoke else 4,
        walks=(3, 2) if smoke else (16, 8),
        work=work,
        newer=arguments.newer,
    )


def settings_of_others(arguments: argparse.Namespace, setting: Setting) -> list[Setting]:
    """The other languages, and XNLI, which only race.

    They have fewer seeds, and divide among them the time of the part `others`.
    """
    shares_and_fields: list[tuple[int, dict[str, Any]]] = [
        (1, {"language": language}) for language in arguments.others
    ]
    if arguments.xnli:
        xnli_fields = {"model_name": arguments.xnli, "task_name": "xnli", "language": "de"}
        shares_and_fields.append((XNLI_TIME, xnli_fields))
    shares = sum(share for share, _ in shares_and_fields)
    minutes = setting.minutes * setting.shares["others"] / max(shares, 1)
    common_fields = {
        "shares": OTHER_SHARES,
        "newer": None,
        "seeds": min(setting.seeds, OTHER_SEEDS),
    }
    return [
        replace(setting, minutes=share * minutes, **common_fields, **fields)
        for share, fields in shares_and_fields
    ]


def say(text: str) -> None:
    """Print a line of progress, with the minutes since the start."""
    print(f"[{(time.perf_counter() - START) / 60:5.1f} min] {text}", flush=True)


def costs_part(setting: Setting) -> tuple[Costs, dict[str, Any]]:
    """What forward passes and gains cost."""
    say("costs of a forward pass and of a gain, in turns")
    costs = measure(setting, setting.seconds("costs"))
    figures = {
        "resume_speedup": costs.resume_speedup(),
        "seconds_a_gain": dict(costs.gain),
        "seconds_a_forward": {
            "padded to 128": costs.padded_forward,
            "sorted by length": costs.sorted_forward,
        },
        "order_variance": {
            "shapley": costs.order_variance,
            "shapley-top50": costs.order_variance_top50,
        },
    }
    return costs, figures


def guarantee_part(setting: Setting, costs: Costs) -> dict[str, Any]:
    """Seconds to the guaranteed half-width on all heads.

    Of headlab's runs, of runs of its first version, and of the paper's recipe, whose cost is worked
    out.
    """
    say(f"headlab to a half-width of {setting.target:g} on all heads ({TOP50})")
    seeds = guarantee.SEEDS[: setting.seeds]
    plan = guarantee.plan(setting.target)
    seconds_a_seed = setting.seconds("guarantee") / len(seeds)
    cycle = setting.game.examples
    present_runs = []
    former_runs = []
    for seed in seeds:
        present_runs.append(long_run(setting, plan, seed, TOP50, 0.6 * seconds_a_seed))
        former_runs.append(long_run(setting, plan, seed, TOP50, 0.4 * seconds_a_seed, former=True))
    ours = [guarantee.ours(seed_run, setting.target, cycle) for seed_run in present_runs]
    previous = [guarantee.ours(seed_run, setting.target, cycle) for seed_run in former_runs]
    named = [guarantee.seconds_to_named_heads(seed_run, cycle) for seed_run in present_runs]
    named_by_previous = [
        guarantee.seconds_to_named_heads(seed_run, cycle) for seed_run in former_runs
    ]
    paper = guarantee.recipe_costs(setting, costs)
    speedups = guarantee.speedups(paper, ours)
    ratios = {assumption: asdict(ratio) for assumption, ratio in speedups.items()}
    ratio_to_previous = race.ratio_of_means(
        [seed_run.seconds for seed_run in previous], [seed_run.seconds for seed_run in ours]
    )
    return {
        "speedup_to_guarantee": ratios["range 1, padded to 128"],
        "speedups_to_guarantee": ratios,
        "speedup_over_previous": report.over_previous("guarantee", ratio_to_previous),
        "guarantee": {
            "half_width": setting.target,
            "ours": [vars(seed_run) for seed_run in ours],
            "previous": [vars(seed_run) for seed_run in previous],
            "paper_extrapolated": paper,
        },
        "seconds_to_named_heads": {
            "language": setting.language,
            "ours": [vars(seed_run) for seed_run in named],
            "previous": [vars(seed_run) for seed_run in named_by_previous],
        },
    }


def race_part(
    setting: Setting, forward: float
) -> tuple[list[race.Run], dict[str, float], race.Reference]:
    """Run a race.

    Returns:
        Its runs, the seconds that peers without an estimate in time would need, and the values that
        errors are measured against.
    """
    say(f"{setting.title}: long reference run of another seed (shapley)")
    seconds = setting.seconds("reference")
    reference_run = long_run(setting, race.REFERENCE_PLAN, race.REFERENCE_SEED, ALL_SIZES, seconds)
    reference = race.Reference.of_long_run(reference_run)
    say(f"race on single examples; the reference has {reference.samples} samples a head")
    return *race.race(setting, forward), reference


def others_part(settings: Sequence[Setting]) -> dict[str, Any]:
    """The race in other languages and with another model."""
    figures_by_title = {}
    for setting in settings:
        comparison_figures = report.race_figures(*race_part(setting, forward_seconds(setting)))
        figures_by_title[setting.title] = {name: comparison_figures[name] for name in OTHERS_KEYS}
    return {"others": figures_by_title}


def run_parts(setting: Setting, other_settings: Sequence[Setting], write: Any) -> None:
    """Run all parts in order, and write each as it is done."""
    costs, cost_figures = costs_part(setting)
    write(cost_figures)
    runs, late_peers, reference = race_part(setting, costs.sorted_forward)
    write(report.race_figures(runs, late_peers, reference))
    write(guarantee_part(setting, costs))
    say("peers with the whole dev set in every evaluation")
    whole_set_runs, late_on_whole_set = race.whole_set(setting, costs.sorted_forward)
    write(report.race_figures(runs + whole_set_runs, late_peers | late_on_whole_set, reference))
    write(others_part(other_settings))


def main() -> int:
    """Check the wrappers, measure, write; 2 for what a user can put right."""
    arguments = parsed_arguments()
    try:
        peers.require()
        setting = setting_of(arguments)
        if arguments.smoke:
            say("every estimator on a tiny model, against its exact values")
            starts = {peer.title: peer.start for peer in peers.PEERS}
            exactness.check({**race.HEADLAB, **starts})
            if arguments.newer:
                newer_starts = {peer.title: peer.start for peer in peers.newer(arguments.newer)}
                exactness.check(newer_starts, CHECKED_ESTIMATES)
        folder = arguments.out or (setting.work if arguments.smoke else RESULTS)
        command = " ".join(["python", "benchmarks/estimators.py", *sys.argv[1:]])
        figures = report.provenance(command)
        figures["setting"] = {
            name: getattr(setting, name)
            for name in ("language", "size", "minutes", "seeds", "target")
        }
        figures["setting"]["heads"] = setting.game.players

        def write(part: dict[str, Any]) -> None:
            speedups_so_far = figures.get("speedup_over_previous", {})
            speedups_of_part = part.get("speedup_over_previous", {})
            figures.update(
                part,
                speedup_over_previous=report.merged_speedups(speedups_so_far, speedups_of_part),
                finished=False,
                minutes_taken=(time.perf_counter() - START) / 60,
            )
            figures["goals"] = report.goals(figures)
            report.write(folder / "estimators.json", figures)

        run_parts(setting, settings_of_others(arguments, setting), write)
        report.write(folder / "estimators.json", figures | {"finished": True})
        report.draw(folder / "estimators.png", figures)
    except HeadlabError as error:
        print(f"headlab: {error}", file=sys.stderr)
        return 2
    print(report.table(figures))
    for goal in figures["goals"]:
        verdict = "met" if goal["met"] else "MISSED"
        print(f"{goal['goal']}: {goal['reached']:.3g} times (goal {goal['times']:g}): {verdict}")
    say(f"written to {folder}")
    return 0


START = time.perf_counter()

if __name__ == "__main__":
    sys.exit(main())
