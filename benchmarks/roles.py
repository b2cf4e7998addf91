"""Roles of 144 heads: seconds for 1,000 sentences, and whether memory grows with their number.

The embedded model on the English training treebank of a data folder; every number of sentences in a
process of its own.

`python benchmarks/roles.py --data DIR` writes results/roles.json; `--smoke` looks at few sentences
and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from machine import installed_version, machine_facts, write_json  # noqa: E402 - beside this file

RESULT_FILE = ROOT / "benchmarks" / "results" / "roles.json"
COUNTS = (1000, 4000)
SMOKE = (50, 100)
MODEL = "e5-small-intents"
LANGUAGE = "en"
LIMIT_SECONDS = 180.0
LIMIT_GROWTH = 0.15
PACKAGES = ("headlab", "torch", "transformers", "numpy", "wordfreq")


def study_figures(data: Path, count: int) -> dict[str, Any]:
    """Figures of one study: seconds, and this process's peak memory in MiB before and after it."""
    import headlab
    from headlab.roles import of_trees
    from headlab.roles.study import study
    from headlab.tasks import treebank

    model = headlab.load(MODEL)
    trees = treebank(data, LANGUAGE, "train")
    study(model, of_trees(trees, LANGUAGE, "train", 50))  # everything is loaded and in use
    memory_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began = time.perf_counter()
    report = study(model, of_trees(trees, LANGUAGE, "train", count))
    seconds = time.perf_counter() - began
    memory_after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    measures = report.table("measures")
    tokens = measures.column("tokens")[0]
    heads = len(measures.rows)
    return {
        "sentences": count,
        "heads": heads,
        "tokens": tokens,
        "seconds": seconds,
        "before": memory_before,
        "peak": memory_after,
    }


def main() -> int:
    """Measure, print, write; 1 if a promise is not kept (never with --smoke)."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with ud/en.train.conllu")
    parser.add_argument(
        "--smoke", action="store_true", help="few sentences, to see that it works; writes nothing"
    )
    parser.add_argument("--once", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        print(json.dumps(study_figures(arguments.data, arguments.once)))
        return 0
    machine = machine_facts()
    rows = []
    for count in SMOKE if arguments.smoke else COUNTS:
        command = [sys.executable, __file__, "--data", str(arguments.data), "--once", str(count)]
        process = subprocess.run(command, check=True, capture_output=True, text=True)
        rows.append(json.loads(process.stdout))
    print("| sentences | tokens | seconds | peak memory, MiB |\n| ---: | ---: | ---: | ---: |")
    for row in rows:
        figures = f"{row['tokens']:,} | {row['seconds']:.1f} | {row['peak']:.0f}"
        print(f"| {row['sentences']:,} | {figures} |")
    if arguments.smoke:
        return 0
    growth = rows[-1]["peak"] / rows[0]["peak"] - 1
    limits_kept = rows[0]["seconds"] <= LIMIT_SECONDS and growth <= LIMIT_GROWTH
    write_json(
        RESULT_FILE,
        {
            "command": "python benchmarks/roles.py --data DIR",
            "date": datetime.now(UTC).date().isoformat(),
            "machine": machine,
            "packages": {package: installed_version(package) for package in PACKAGES},
            "limits": {
                "seconds of 1,000 sentences": LIMIT_SECONDS,
                "growth of peak memory": LIMIT_GROWTH,
            },
            "rows": rows,
            "kept": limits_kept,
        },
    )
    return 0 if limits_kept else 1


if __name__ == "__main__":
    sys.exit(main())
