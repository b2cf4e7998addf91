"""Let atheris search for bytes that a reader neither reads nor refuses.

    python tests/support/fuzz_guided.py mask --runs 100000

Needs atheris (requirements-soak.txt). The search ends at the first such bytes and writes them to a
file in the current folder.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import atheris

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

with atheris.instrument_imports(
    include=["headlab.masks", "headlab.results.store", "headlab.tasks", "headlab.core.files"]
):
    from support import fuzzing


def main() -> None:
    """Search for such bytes for one reader."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reader")
    parser.add_argument("--runs", type=int, default=100_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        reader = fuzzing.readers(Path(folder))[arguments.reader]
        corpus = Path(folder) / "corpus"
        for number, valid_bytes in enumerate(reader.valid_bytes):
            fuzzing.write_younger(corpus / str(number), valid_bytes)
        # A process inherits its parent's peak of memory, so a limit would count what pytest used.
        command = [
            sys.argv[0],
            f"-runs={arguments.runs}",
            "-max_len=65536",
            "-rss_limit_mb=0",
            str(corpus),
        ]
        atheris.Setup(command, lambda data: fuzzing.can_read(reader, data) and None)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
