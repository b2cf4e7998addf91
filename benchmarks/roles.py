"""Roles of 144 heads: seconds for 1,000 sentences, and whether memory grows with their number.

The embedded model on the English training treebank of a data folder, every number of sentences in a process of its own.

`python benchmarks/roles.py --data DIR` writes results/roles.json; `--smoke` looks at few sentences and writes nothing.
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

from machine import installed, machine, write  # noqa: E402 - beside this file

OUT = ROOT / "benchmarks" / "results" / "roles.json"
COUNTS = (1000, 4000)
SMOKE = (50, 100)
MODEL = "e5-small-intents"
LANGUAGE = "en"
LIMIT_SECONDS = 180.0
LIMIT_GROWTH = 0.15
PACKAGES = ("headlab", "torch", "transformers", "numpy", "wordfreq")


def once(data: Path, count: int) -> dict[str, Any]:
    """Seconds of a study, and this process's highest resident memory in MiB before and after."""
    import headlab
    from headlab.roles import of_trees
    from headlab.roles.study import study
    from headlab.tasks import treebank

    model = headlab.load(MODEL)
    trees = treebank(data, LANGUAGE, "train")
    study(model, of_trees(trees, LANGUAGE, "train", 50))  # everything is loaded and in use
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began = time.perf_counter()
    report = study(model, of_trees(trees, LANGUAGE, "train", count))
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    tokens = report.table("measures").column("tokens")[0]
    heads = len(report.table("measures").rows)
    return {
        "sentences": count,
        "heads": heads,
        "tokens": tokens,
        "seconds": seconds,
        "before": before,
        "peak": after,
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
    given = parser.parse_args()
    if given.once:
        print(json.dumps(once(given.data, given.once)))
        return 0
    about = machine()
    rows = []
    for count in SMOKE if given.smoke else COUNTS:
        command = [sys.executable, __file__, "--data", str(given.data), "--once", str(count)]
        rows.append(
            json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        )
    print("| sentences | tokens | seconds | peak memory, MiB |\n| ---: | ---: | ---: | ---: |")
    for row in rows:
        print(
            f"| {row['sentences']:,} | {row['tokens']:,} | {row['seconds']:.1f} | {row['peak']:.0f} |"
        )
    if given.smoke:
        return 0
    growth = rows[-1]["peak"] / rows[0]["peak"] - 1
    kept = rows[0]["seconds"] <= LIMIT_SECONDS and growth <= LIMIT_GROWTH
    write(
        OUT,
        {
            "command": "python benchmarks/roles.py --data DIR",
            "date": datetime.now(UTC).date().isoformat(),
            "machine": about,
            "packages": {package: installed(package) for package in PACKAGES},
            "limits": {
                "seconds of 1,000 sentences": LIMIT_SECONDS,
                "growth of peak memory": LIMIT_GROWTH,
            },
            "rows": rows,
            "kept": kept,
        },
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
