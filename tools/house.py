"""What a reader of this code meets, in figures: files, lines, imports, levels; --json, or --write for the picture.

    python tools/house.py            the figures, one a line
    python tools/house.py --json     the same for scripts
    python tools/house.py --write    the picture of the levels in docs/architecture.md, from the code

The longest chain counts modules that import each other one after the other, at any depth of the code.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from messages import ROOT, trees

ARCHITECTURE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- made by python tools/house.py --write -->\n", "<!-- end -->\n"
# A part imports from lower levels, and within its own from those to its left; strangers do not know each other.
LEVELS = {
    "records and files": (
        "errors",
        "extensions",
        "files",
        "fingerprints",
        "records",
        "options",
        "tables",
        "value_functions",
    ),
    "statistics, masks, tasks": (
        "stats",
        "bleu",
        "labels",
        "masks",
        "tasks",
        "scores",
        "l0_gates",
        "devices",
        "parallel",
    ),
    "models and their heads": ("models", "hooks"),
    "results on disk": ("store",),
    "answers under a mask": (
        "context",
        "encoding",
        "inputs",
        "evaluator",
        "changes",
        "generation",
        "harness",
        "lm_eval",
    ),
    "what is computed of heads": ("methods", "roles", "training", "shrink"),
    "pictures, and one question a file": ("pictures", "plots", "cluster", "studies", "api"),
    "whole pieces of work": ("worker", "reproduce", "report"),
    "what a person uses": ("cli", "ui", "app", "pages"),
}
ORDER = [part for parts in LEVELS.values() for part in parts]
STRANGERS = (
    {"extensions", "files", "records", "options", "tables", "value_functions"},
    {"stats", "masks", "tasks", "parallel"},
    {"methods", "roles", "training"},
    {"cluster", "studies", "api"},
    {"worker", "reproduce", "report"},
    {"cli", "ui"},
)


def part(path: str) -> str:
    """The part of the house a file belongs to: its name or its folder's below headlab/."""
    first, *rest = Path(path).with_suffix("").parts
    return (rest[0] if first == "headlab" else first) if rest else first


def module(path: str) -> str:
    """The name that a file is imported by."""
    names = Path(path).with_suffix("").parts
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


@cache
def modules() -> dict[str, str]:
    """{module: path} of the library."""
    return {module(path): path for path in trees() if path.startswith("headlab/")}


@cache
def imported(path: str) -> tuple[str, ...]:
    """Every module a file names in an import, at any depth, `from package import module` spelled out."""
    found: list[str] = []
    for node in imports(path):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        else:
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [name if name in modules() else str(node.module) for name in whole]
    return tuple(found)


def imports(path: str) -> Iterator[ast.Import | ast.ImportFrom]:
    """The import statements of a file."""
    return (node for node in ast.walk(trees()[path]) if isinstance(node, ast.Import | ast.ImportFrom))


def own_imports(path: str) -> set[str]:
    """Modules of headlab that a file imports."""
    return {name for name in imported(path) if name.split(".")[0] == "headlab"} - {module(path)}


def longest_chain() -> list[str]:
    """The longest row of modules each of which imports the next; the package itself, which looks names up, left out."""
    graph = {module(path): own_imports(path) - {"headlab"} for path in trees() if module(path) != "headlab"}
    below: dict[str, list[str]] = {}
    for name in TopologicalSorter(graph).static_order():
        below[name] = [name, *max((below[other] for other in sorted(graph.get(name, ()))), key=len, default=[])]
    return max(below.values(), key=len)


def figures() -> dict[str, Any]:
    """The figures by name."""
    texts = {path: (ROOT / path).read_text(encoding="utf-8").splitlines() for path in trees()}
    many = sorted(len(own_imports(path)) for path in trees())
    lines = sum(map(len, texts.values()))
    spent = sum((node.end_lineno or 0) - node.lineno + 1 for path in trees() for node in imports(path))
    return {
        "files": len(texts),
        "lines": lines,
        "own_imports_p90": many[int(0.9 * len(many))],
        "longest_chain": len(longest_chain()),
        "levels": len(LEVELS),
        "import_lines_share": round(spent / lines, 4),
        "files_to_add": files_to_add((ROOT / "docs" / "extending.md").read_text(encoding="utf-8")),
    }


def files_to_add(page: str) -> dict[str, int]:
    """{what: files that its example is made of}, counted on the page; each example begins with its file's path."""
    found = {}
    for section in page.split("\n## A ")[1:]:
        found[section.split("\n", 1)[0]] = len(re.findall(r"^```\w+\n# \S+\.\w+", section, re.MULTILINE))
    return found


def picture() -> str:
    """The levels as a diagram, the highest first: a box a level, with its parts."""
    names = [f"L{number}" for number in range(len(LEVELS), 0, -1)]
    boxes = [
        f'    {name}["<b>{title}</b><br/>{", ".join(parts)}"]'
        for name, (title, parts) in zip(names, reversed(LEVELS.items()), strict=True)
    ]
    return "\n".join(["```mermaid", "flowchart TD", *boxes, "    " + " --> ".join(names), "```", ""])


def written(text: str) -> str:
    """The page with the picture as it is now."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + picture() + END + rest.split(END, 1)[1]


def main() -> None:
    """Print the figures, or write the picture."""
    if "--write" in sys.argv:
        ARCHITECTURE.write_text(written(ARCHITECTURE.read_text(encoding="utf-8")), encoding="utf-8")
    elif "--json" in sys.argv:
        sys.stdout.write(json.dumps(figures()) + "\n")
    else:
        lines = [f"{name}: {value}" for name, value in figures().items()]
        sys.stdout.write("\n".join([*lines, " > ".join(longest_chain()), ""]))


if __name__ == "__main__":
    main()
