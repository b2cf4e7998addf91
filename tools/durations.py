"""Write the table of the files that take longest into docs/contributing.md; the suite begins with them.

make test PYTEST="--durations=0" > run.log; python tools/durations.py run.log
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "contributing.md"
LINE = re.compile(r"^([\d.]+)s (setup|call|teardown) +(tests/\S+?\.py)::", re.MULTILINE)
TABLE = re.compile(r"(?<=\| --- \| --- \| --- \|\n)(\| .*\n)+")
SHORTEST = 5.0  # seconds


def table(log: str) -> str:
    """Rows of the files that take longest, in a log of pytest with --durations=0, and one of all others."""
    whole = Counter[str]()
    fixtures = Counter[str]()
    for seconds, phase, file in LINE.findall(log):
        whole[file] += float(seconds)
        fixtures[file] += float(seconds) * (phase != "call")
    if not whole:
        raise SystemExit(
            "there are no durations in this log; make it with: make test PYTEST=--durations=0"
        )
    long = [file for file, seconds in whole.most_common() if seconds >= SHORTEST]
    rows = [f"| `{file}` | {fixtures[file]:.0f} | {whole[file]:.0f} |" for file in long]
    sums = [sum(some[file] for file in whole if file not in long) for some in (fixtures, whole)]
    rest = f"| {len(whole) - len(long)} other files | {sums[0]:.0f} | {sums[1]:.0f} |"
    return (
        "\n".join([*rows, rest, f"| all | {fixtures.total():.0f} | {whole.total():.0f} |"]) + "\n"
    )


def main() -> None:
    """The log's name is the one argument."""
    rows = table(Path(sys.argv[1]).read_text("utf-8"))
    PAGE.write_text(TABLE.sub(lambda _: rows, PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
