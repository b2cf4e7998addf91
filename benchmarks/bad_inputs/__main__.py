"""Attempt bad inputs from the command line.

    python benchmarks/bad_inputs                                 2,000 of each family
    python benchmarks/bad_inputs task-files --count 200          some of one family
    python benchmarks/bad_inputs task-files --number 713         one input again, with its traceback
    python benchmarks/bad_inputs task-files --list accepted      what was wrong with those taken

`python benchmarks/reliability.py inputs` runs all of them and writes the results.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), str(ROOT / "tests")]

from bad_inputs.case import Verdict  # noqa: E402 - beside this file
from bad_inputs.runner import FAMILIES, attempts, family_inputs, measure  # noqa: E402


def main() -> int:
    """Attempt what is asked for; 1 if any got a traceback, an HTTP 500 or no answer."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--count", type=int, default=2000, help="inputs of each family")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--number", type=int, help="only this input of the family, in this process")
    parser.add_argument("--real", action="store_true", help="with --number: for real")
    parser.add_argument("--list", choices=list(Verdict), help="print those with this verdict")
    arguments = parser.parse_args()
    families = arguments.families or list(FAMILIES)
    if unknown := set(families) - set(FAMILIES):
        parser.error(f"no families: {', '.join(sorted(unknown))}; there are {', '.join(FAMILIES)}")
    if arguments.number is not None:
        return attempt_once(families[0], arguments.seed, arguments.number, arguments.real)
    if arguments.list:
        return list_attempts(families, arguments.count, arguments.seed, Verdict(arguments.list))
    counts = measure(families, arguments.count, arguments.seed)
    print(json.dumps(counts, indent=1, ensure_ascii=False))
    return int(any(counts[name] for name in ("tracebacks", "hangs", "http_500")))


def attempt_once(family: str, seed: int, number: int, for_real: bool) -> int:
    """Attempt one input again, and print what is wrong with it, its content and the answer."""
    with tempfile.TemporaryDirectory(prefix="headlab-bad-inputs-") as folder:
        os.chdir(folder)
        bad_input = next(islice(family_inputs(family, Path(folder), seed), number, None))
        print(bad_input.wrong, bad_input.content[:4000], sep="\n")
        answer = bad_input.attempt_for_real() if for_real else bad_input.attempt()
        print(answer.verdict.value, answer.words, sep="\n")
        os.chdir(ROOT)
    return int(answer.verdict not in (Verdict.ACCEPTED, Verdict.REFUSED))


def list_attempts(families: list[str], count: int, seed: int, verdict: Verdict) -> int:
    """Print what is wrong with every input that got this verdict, and the words of the answer."""
    for family in families:
        for attempt in attempts(family, count, seed):
            if attempt.answer.verdict == verdict:
                print(family, attempt.begun.number, attempt.begun.wrong, sep="\t")
                print(f"\t{attempt.answer.words[-400:]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
