"""What it takes to write a pruned model for other software: seconds, memory, bytes.

    python benchmarks/export.py             SmolLM2 as GGUF in every number type; three minutes
    python benchmarks/export.py --smoke     one number type; writes nothing

Needs `make decoder`. Each export is a command of its own, as a user types it, without eight groups of
heads in five layers. Memory is the highest resident memory of the process, over that of a process
that loads the model and asks it once. Figures are written to results/export.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT)]

from machine import commit, machine_facts, write_json  # noqa: E402 - after the path to it

import headlab  # noqa: E402
from headlab.masks import Mask  # noqa: E402

RESULT_FILE = ROOT / "benchmarks" / "results" / "export.json"
MODEL = "smollm2-135m"
REMOVED_GROUPS = {(3, 0), (3, 1), (3, 2), (7, 1), (12, 0), (12, 2), (20, 2), (29, 0)}
"""(layer, group)."""
HEADS_OF_GROUP = 3
EXAMPLES = 32
"""That are compared."""
NUMBER_TYPES = ("float32", "float16", "q8_0")
# A process that runs its arguments as headlab's command, or only loads the model, and then says
# its highest resident memory in KiB.
RUN = """
import resource, sys
from headlab.cli.run import main
code = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""
LOAD = """
import resource, sys, torch, headlab
model = headlab.load(sys.argv[1])
with torch.inference_mode():
    model.module(**model.tokenizer("A sentence.", return_tensors="pt"))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


def write_mask(path: Path) -> None:
    """A mask without the groups."""
    model = headlab.load(MODEL)
    is_kept = [
        (head.layer, head.head // HEADS_OF_GROUP) not in REMOVED_GROUPS for head in model.grid.heads
    ]
    Mask(model.grid, np.array(is_kept), model.identity()).save(path)


def run(script: str, *arguments: str) -> tuple[str, float, float]:
    """Standard output of a process, its seconds, and its highest memory in MiB."""
    started_at = time.perf_counter()
    process = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    seconds = time.perf_counter() - started_at
    if process.returncode != 0:
        sys.exit(process.stderr)
    return process.stdout, seconds, int(process.stderr.split()[-1]) / 1024


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="one number type; writes nothing")
    is_smoke = parser.parse_args().smoke
    rows: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        mask_file = Path(folder) / "mask.json"
        write_mask(mask_file)
        _, load_seconds, load_memory = run(LOAD, MODEL)
        for number_type in NUMBER_TYPES[-1:] if is_smoke else NUMBER_TYPES:
            words = ["export", "--model", MODEL, "--mask", str(mask_file), "--as", "gguf"]
            words += ["--out", str(Path(folder) / number_type), "--dtype", number_type, "--json"]
            words += ["--size", str(EXAMPLES)]
            output, seconds, memory = run(RUN, *words)
            outcome = json.loads(output)
            kept_fields = ("bytes_before", "bytes_after", "max_logit_difference", "equal_answers")
            rows[number_type] = {
                "seconds": seconds,
                "memory_mib": memory,
                "memory_over_loading": memory / load_memory,
                **{name: outcome[name] for name in kept_fields},
            }
            print(number_type, json.dumps(rows[number_type]), flush=True)
    figures = {
        "command": " ".join(["python", "benchmarks/export.py", *sys.argv[1:]]),
        "commit": commit(),
        "machine": machine_facts(),
        "model": MODEL,
        "groups_removed": len(REMOVED_GROUPS),
        "examples": EXAMPLES,
        "load": {"seconds": load_seconds, "memory_mib": load_memory},
        "gguf": rows,
    }
    if not is_smoke:
        write_json(RESULT_FILE, figures)


if __name__ == "__main__":
    main()
