"""Figures on the structure of this code, and the picture of its levels.

    python tools/house.py            print the figures, one a line
    python tools/house.py --json     print them for scripts
    python tools/house.py --write    write the picture of the levels into docs/architecture.md

The figures are meant to be compared with those of another day. `docs/contributing.md` says what
each counts.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from messages import ROOT, trees

ARCHITECTURE = ROOT / "docs" / "architecture.md"
BEGIN = "<!-- made by python tools/house.py --write -->\n"
END = "<!-- end -->\n"
# A part imports from lower levels, and within its own level from the parts to its left; the parts
# of a set in STRANGERS do not import from each other.
LEVELS = {
    "records, tables and files": ("core",),
    "statistics, masks, tasks": ("stats", "masks", "tasks"),
    "models and their heads": ("models", "hooks"),
    "what was computed": ("results",),
    "answers under a mask": ("evaluation",),
    "what is computed of heads": ("methods", "roles", "training", "shrink"),
    "pictures, and one question a file": (
        "pictures",
        "cluster",
        "studies",
        "api",
        "charts",
        "plots",
    ),
    "kinds of jobs": ("jobs",),
    "whole pieces of work": ("worker", "reproduce", "report", "doctor", "sharing"),
    "what a person uses": ("former_names", "notebooks", "cli", "dashboard", "app", "pages"),
}
ORDER = [part for parts in LEVELS.values() for part in parts]
STRANGERS = (
    {"stats", "masks", "tasks"},
    {"methods", "roles", "training"},
    {"cluster", "studies", "api"},
    {"worker", "reproduce", "report", "doctor"},
    {"notebooks", "cli", "dashboard"},
)


def part(path: str) -> str:
    """The part of the house that a file is in: a folder or file below headlab/ or at the top."""
    names = Path(path).with_suffix("").parts
    if names[0] == "headlab" and len(names) > 1:
        return names[1]
    return names[0]


def module(path: str) -> str:
    """The name that a file is imported by."""
    names = Path(path).with_suffix("").parts
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


@cache
def modules() -> dict[str, str]:
    """Paths of the library's files by the names of their modules."""
    return {module(path): path for path in trees() if path.startswith("headlab/")}


@cache
def imported(path: str) -> tuple[str, ...]:
    """Every module that a file imports, also inside functions, by its full name.

    A function that a package exports is not the module of the same name: `from headlab.masks import
    compare`.
    """
    names: list[str] = []
    for node in imports(path):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
            continue
        assert node.level == 0, f"{path}:{node.lineno} imports relatively"
        package = str(node.module)
        for alias in node.names:
            full_name = f"{package}.{alias.name}"
            is_module = full_name in modules() and alias.name not in exported(package)
            names.append(full_name if is_module else package)
    return tuple(names)


@cache
def exported(package: str) -> frozenset[str]:
    """The names that a package's `__init__.py` imports from its modules; none for a module."""
    path = modules().get(package, "")
    if not path.endswith("__init__.py"):
        return frozenset()
    names = set()
    for node in imports(path):
        if isinstance(node, ast.ImportFrom) and node.module != package:
            names |= {alias.asname or alias.name for alias in node.names}
    return frozenset(names)


def imports(path: str) -> Iterator[ast.Import | ast.ImportFrom]:
    """The import statements of a file."""
    return (
        node for node in ast.walk(trees()[path]) if isinstance(node, ast.Import | ast.ImportFrom)
    )


def own_imports(path: str) -> set[str]:
    """Modules of headlab that a file imports, itself left out."""
    return {name for name in imported(path) if name.split(".")[0] == "headlab"} - {module(path)}


def longest_chain() -> list[str]:
    """The longest chain of modules each of which imports the next.

    The package itself is left out, since it imports a name only when it is used.

    Raises:
        CycleError: Modules import each other.
    """
    paths = [path for path in trees() if module(path) != "headlab"]
    return longest_path({module(path): own_imports(path) - {"headlab"} for path in paths})


def height() -> list[str]:
    """The longest chain of parts of the house each of which imports from the next.

    Raises:
        CycleError: Parts import from each other.
    """
    parts_below: dict[str, set[str]] = {}
    for path in trees():
        if path == "headlab/__init__.py":
            continue
        imported_parts = {name.split(".")[1] for name in own_imports(path) if "." in name}
        parts_below.setdefault(part(path), set()).update(imported_parts - {part(path)})
    return longest_path(parts_below)


def longest_path(successors: Mapping[str, set[str]]) -> list[str]:
    """The longest path of a graph without circles, from its start to its end.

    Args:
        successors: The nodes that the edges of each node lead to.

    Raises:
        CycleError: The graph has a circle.
    """
    path_from: dict[str, list[str]] = {}
    for node in TopologicalSorter(successors).static_order():
        paths_onwards = [path_from[successor] for successor in sorted(successors.get(node, ()))]
        path_from[node] = [node, *max(paths_onwards, key=len, default=[])]
    return max(path_from.values(), key=len)


def circles() -> int:
    """The number of circles of modules that import each other, directly or by way of others."""
    imports_by_module = {module(path): own_imports(path) - {"headlab"} for path in trees()}
    count = 0
    while True:
        try:
            longest_path(imports_by_module)
        except CycleError as error:
            count += 1
            circle = set(error.args[1])
            outside_circle = {}
            for name, imported_modules in imports_by_module.items():
                if name not in circle:
                    outside_circle[name] = imported_modules - circle
            imports_by_module = outside_circle
        else:
            return count


def any_count() -> int:
    """How often the library, the app and its pages use `Any`; imports of the name do not count."""
    return sum(
        isinstance(node, ast.Name) and node.id == "Any"
        for path in trees()
        for node in ast.walk(trees()[path])
    )


def mapping_any_count() -> int:
    """How often they use `dict[str, Any]` or another kind of mapping from text to `Any`."""
    mappings = ("Mapping", "dict", "MutableMapping", "OrderedDict")
    return sum(
        isinstance(node, ast.Subscript)
        and getattr(node.value, "id", "") in mappings
        and ast.unparse(node.slice) in ("str, Any", "(str, Any)")
        for path in trees()
        for node in ast.walk(trees()[path])
    )


def loose_modules() -> list[str]:
    """Modules that lie directly in the package, in none of its folders."""
    return [path for path in trees() if path.startswith("headlab/") and path.count("/") == 1]


def figures() -> dict[str, int]:
    """The figures by name."""
    import_counts = sorted(len(own_imports(path)) for path in trees())
    texts = [(ROOT / path).read_text(encoding="utf-8") for path in trees()]
    return {
        "files": len(texts),
        "lines": sum(len(text.splitlines()) for text in texts),
        "longest_chain": len(longest_chain()),
        "height": len(height()),
        "own_imports_p90": import_counts[int(0.9 * len(import_counts))],
        "own_imports_max": import_counts[-1],
        "mapping_any": mapping_any_count(),
        "any": any_count(),
        "loose_modules": len(loose_modules()),
        "circles": circles(),
    }


def picture() -> str:
    """The levels as a diagram, the highest first: a box for each level, with its parts."""
    names = [f"L{number}" for number in range(len(LEVELS), 0, -1)]
    boxes = [
        f'    {name}["<b>{title}</b><br/>{", ".join(parts)}"]'
        for name, (title, parts) in zip(names, reversed(LEVELS.items()), strict=True)
    ]
    return "\n".join(
        ["```mermaid", "flowchart TD", *boxes, "    " + " --> ".join(names), "```", ""]
    )


def with_picture(text: str) -> str:
    """The page's text with the picture as the code is now."""
    text_before, rest = text.split(BEGIN)
    return text_before + BEGIN + picture() + END + rest.split(END, 1)[1]


def main() -> None:
    """Print the figures, or write the picture."""
    if "--write" in sys.argv:
        ARCHITECTURE.write_text(
            with_picture(ARCHITECTURE.read_text(encoding="utf-8")), encoding="utf-8"
        )
    elif "--json" in sys.argv:
        sys.stdout.write(json.dumps(figures()) + "\n")
    else:
        lines = [f"{name}: {value}" for name, value in figures().items()]
        rows = [" > ".join(longest_chain()), " > ".join(height())]
        sys.stdout.write("\n".join([*lines, *rows, ""]))


if __name__ == "__main__":
    main()
