"""What other people's programs and files rely on, compared with what was written down last.

    python tools/public_names.py            say what has been removed, added or changed
    python tools/public_names.py --write    write down what there is now

It goes into `tests/frozen/public_names.json`. `docs/stability.md` says what is public, and how a
public name may go.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import json
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import typer

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools")]

from api_docs import description  # noqa: E402 - after the path to it
from support.synthetic_curves import made_curve  # noqa: E402
from support.synthetic_fronts import made_front  # noqa: E402
from support.synthetic_gates import made_gates  # noqa: E402
from support.synthetic_scores import scores_of  # noqa: E402

import headlab  # noqa: E402
from headlab import former_names  # noqa: E402
from headlab.cli.check import EXIT_CODES  # noqa: E402
from headlab.cli.doctor import FOUND  # noqa: E402
from headlab.cli.info import VARIABLES  # noqa: E402
from headlab.cli.run import FAILED, INTERRUPTED, OK, build  # noqa: E402
from headlab.core import RESULT_FORMAT  # noqa: E402
from headlab.core.run_spec import READER, MethodSpec, ModelSpec, RunSpec, TaskSpec  # noqa: E402
from headlab.dashboard.names import PAGES  # noqa: E402
from headlab.masks import MASK_FORMAT  # noqa: E402
from headlab.methods.table import BUILT_IN as METHODS  # noqa: E402
from headlab.results.store.codecs import codec_of, pack  # noqa: E402
from headlab.sharing.layout import CARD, MASKS_FOLDER, SCORE_FILES, SCORES_FOLDER  # noqa: E402
from headlab.shrink.folder import PROOF_VERSION  # noqa: E402
from headlab.shrink.proof import WrittenRecord  # noqa: E402
from headlab.studies.table import BUILT_IN as STUDIES  # noqa: E402
from headlab.tasks.declared import COLUMNS, KEYS  # noqa: E402

FROZEN = ROOT / "tests" / "frozen" / "public_names.json"
SCHEMA = ROOT / "headlab" / "schemas" / "mask-2.schema.json"
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Pages are part of headlab: what docs/extending.md says of them is for people who change headlab.
NOT_PUBLIC = "headlab.dashboard"
# What public functions give and take, and nobody has to import.
RECORDS = (
    ("headlab.api", "Report"),
    ("headlab.core", "Comparison"),
    ("headlab.core", "Evaluation"),
    ("headlab.core", "Head"),
    ("headlab.core", "HeadGrid"),
    ("headlab.hooks", "Model"),
    ("headlab.methods.work", "Work"),
    ("headlab.results", "Curve"),
    ("headlab.results", "HeadScores"),
    ("headlab.results", "LearnedGates"),
    ("headlab.results", "Store"),
    ("headlab.worker.client", "Client"),
)
ENTRY_POINTS = ("headlab.methods", "headlab.studies", "headlab.tasks", "headlab.jobs")
CONSTRUCTOR = "()"  # stands for it among the members of a class
NOTHING_MORE = "class"  # is said of a class without members
Frozen = dict[str, Any]


def present() -> Frozen:
    """Everything public as it is now, as JSON values."""
    return {
        "names": names(),
        "former modules": former_modules(),
        "entry points": list(ENTRY_POINTS),
        "commands": commands(),
        "exit codes": exit_codes(),
        "variables": sorted(name for name in VARIABLES if name.startswith("HEADLAB_")),
        "methods": {key: options_of(method.options) for key, method in METHODS.items()},
        "experiments": {key: options_of(study.options) for key, study in STUDIES.items()},
        "pages": list(PAGES),
        "routes": routes(),
        "files": files(),
    }


# Names.


def names() -> dict[str, Any]:
    """What each public name is, by its full name."""
    described: dict[str, Any] = {}
    first_names: dict[int, str] = {}  # of classes, which may have a second name in another module
    for module, name in sorted(public_names(), key=lambda pair: (pair[0] != "headlab", pair)):
        full_name = f"{module}.{name}"
        value = getattr(import_module(module), name)
        first_name = first_names.setdefault(id(value), full_name)
        if inspect.isclass(value) and first_name != full_name:
            described[full_name] = f"the same as {first_name}"
            continue
        described[full_name] = describe(value)
        if (module, name) in RECORDS and isinstance(described[full_name], dict):
            described[full_name].pop(CONSTRUCTOR, None)  # headlab makes them
    return described


def public_names() -> set[tuple[str, str]]:
    """Module and name of what `headlab` exports, the documents import, and public functions give."""
    found = {("headlab", name) for name in headlab.__all__} | set(RECORDS)
    for document in DOCUMENTS:
        for block in PYTHON_BLOCK.findall(document.read_text("utf-8")):
            found |= set(imported_names(block))
    return found


def imported_names(block: str) -> Iterator[tuple[str, str]]:
    """Module and name of what a Python block imports from headlab."""
    try:
        tree = ast.parse(block)
    except SyntaxError:  # a part of a file
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not node.module:
            continue
        if node.module.split(".")[0] != "headlab" or node.module.startswith(NOT_PUBLIC):
            continue
        for alias in node.names:
            yield node.module, alias.name


def describe(value: Any) -> Any:
    """What a program relies on of a value: signature, members of a class, type of a constant."""
    if inspect.isclass(value):
        return members(value) or NOTHING_MORE
    if callable(value):
        return signature(value)
    return f"constant, {type(value).__name__}"


def members(kind: type) -> dict[str, str]:
    """The constructor and the public attributes of a class that headlab gave it."""
    described = {}
    fields = getattr(kind, "model_fields", {})
    if fields:
        described.update(dict.fromkeys(fields, "field"))
    elif has_own_constructor(kind):
        described[CONSTRUCTOR] = signature(kind)
    if dataclasses.is_dataclass(kind):
        public_fields = [field for field in dataclasses.fields(kind) if field.name[0] != "_"]
        described.update({field.name: "field" for field in public_fields})
    for base in reversed(kind.__mro__):
        if base.__module__.split(".")[0] != "headlab":
            continue
        for name, member in vars(base).items():
            if not name.startswith("_") and name not in described:
                described[name] = describe_member(member)
    return dict(sorted(described.items()))


def has_own_constructor(kind: type) -> bool:
    """Whether a class takes arguments of its own, and is no builtin type with another name."""
    if issubclass(kind, tuple):
        return True  # of a named tuple
    own = any("__init__" in vars(base) for base in kind.__mro__ if base is not object)
    return own and not issubclass(kind, dict)


def describe_member(member: Any) -> str:
    """What a class's attribute is."""
    if isinstance(member, staticmethod | classmethod):
        return signature(member.__func__)
    if inspect.isfunction(member):
        return signature(member)
    return "attribute"


def signature(function: Any) -> str:
    """Names, kinds and defaults of parameters, without their types."""
    parameters = []
    for parameter in inspect.signature(function).parameters.values():
        default = parameter.default
        if default is not parameter.empty and callable(default):
            default = Named(getattr(default, "__name__", type(default).__name__))
        elif dataclasses.is_dataclass(default):
            default = Named(type(default).__name__)
        parameters.append(parameter.replace(annotation=parameter.empty, default=default))
    return str(inspect.Signature(parameters))


@dataclasses.dataclass(frozen=True)
class Named:
    """A default that is called by its name, as its `repr` is long or has an address of memory."""

    name: str

    def __repr__(self) -> str:
        return self.name


def former_modules() -> dict[str, str]:
    """The present name of every module that has a former one."""
    paths = [*former_names.PAGES]
    for modules in former_names.ROOMS.values():
        paths += modules
    former = [f"headlab.{path}" for path in sorted(paths)]
    return {name: str(former_names.present_name(name)) for name in former}


# Commands, requests, options.


def commands() -> dict[str, list[str]]:
    """Arguments and options of every command."""
    found: dict[str, list[str]] = {}

    def gather(group: Any, prefix: str) -> None:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                gather(command, f"{prefix}{name} ")
                continue
            words = []
            for parameter in command.params:
                if parameter.param_type_name == "argument":
                    words.append(str(parameter.name).upper())
                else:
                    words += [*parameter.opts, *parameter.secondary_opts]
            found[f"headlab {prefix}{name}"] = sorted(set(words) - {"--help"})

    gather(typer.main.get_command(build()), "")
    return dict(sorted(found.items()))


def exit_codes() -> dict[str, int]:
    """What the shell gets, by what happened."""
    verdicts = {f"check: {verdict.value}": code for verdict, code in EXIT_CODES.items()}
    return {"ok": OK, "found": FOUND, "failed": FAILED, "interrupted": INTERRUPTED, **verdicts}


def options_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The default of every option, by its name."""
    return {name: option.default for name, option in options.items()}


def routes() -> dict[str, Any]:
    """The fields of every request and answer of the worker, the optional ones with a mark."""
    openapi = description()
    schemas = openapi["components"]["schemas"]
    found: dict[str, Any] = {"paths": [], "records": {}}
    for path, operations in openapi["paths"].items():
        found["paths"] += [f"{verb.upper()} {path}" for verb in operations]
    for name, schema in sorted(schemas.items()):
        required = schema.get("required", [])
        fields = schema.get("properties", {})
        found["records"][name] = [
            field if field in required else f"{field}?" for field in sorted(fields)
        ]
    return found


# Files.


def files() -> dict[str, Any]:
    """What stands in each kind of file that people keep and hand on."""
    return {
        "mask": {"format": MASK_FORMAT, "schema": json.loads(SCHEMA.read_text("utf-8"))},
        "result": {"format": RESULT_FORMAT, "spec.json": spec_fields(), "result.npz": results()},
        "task": {"fields": list(KEYS), "columns": list(COLUMNS)},
        "proof.json": {"version": PROOF_VERSION, "fields": sorted(WrittenRecord.__annotations__)},
        "shared folder": [CARD, f"{MASKS_FOLDER}/", f"{SCORES_FOLDER}/", *SCORE_FILES],
    }


def spec_fields() -> dict[str, list[str]]:
    """The fields of spec.json, and those of its parts."""
    parts = {"model": ModelSpec, "task": TaskSpec, "method": MethodSpec}
    return {
        name: [field.name for field in dataclasses.fields(kind) if READER in field.metadata]
        for name, kind in {"spec": RunSpec, **parts}.items()
    }


def results() -> dict[str, Any]:
    """Arrays and description of each kind of result, of a made-up one that has all there may be."""
    heads = np.linspace(-1, 1, 4)
    scores = scores_of(
        "de",
        heads,
        samples=np.full(4, 8),
        p_values=np.full(4, 0.5),
        halves=np.stack([heads, heads]) / 100,
        sampling_error=np.full(4, 0.1),
        sample_means=heads / 100,
        spec={"format": 1},
    )
    described = {}
    for record in (scores, made_curve(), made_gates(), made_front()):
        kind = codec_of(type(record)).kind
        with np.load(io.BytesIO(pack(record, {})), allow_pickle=False) as file:
            arrays = {
                name: f"{file[name].dtype.name} of {file[name].ndim} dimensions"
                for name in sorted(file.files)
                if name != "about"
            }
            about = json.loads(str(file["about"]))
        described[kind] = {"arrays": arrays, "about": shape_of(about)}
    return described


def shape_of(value: Any) -> Any:
    """A JSON value with the type of every value in its place; lists by their first entry."""
    if isinstance(value, dict):
        return {name: shape_of(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [shape_of(entry) for entry in value[:1]]
    return "nothing" if value is None else type(value).__name__


# The comparison.


def read_frozen() -> Frozen:
    """What was written down last."""
    frozen: Frozen = json.loads(FROZEN.read_text("utf-8"))
    return frozen


def changes(frozen: Any, now: Any, place: str = "") -> list[str]:
    """A line for everything that was removed, added or changed.

    Args:
        frozen: What was written down.
        now: What there is.
        place: Where in the file both stand.
    """
    if isinstance(frozen, dict) and isinstance(now, dict):
        lines = []
        for name in sorted({*frozen, *now}):
            inner = f"{place} › {name}" if place else name
            if name not in now:
                lines.append(f"removed: {inner}{_value(frozen[name])}")
            elif name not in frozen:
                lines.append(f"added: {inner}{_value(now[name])}")
            else:
                lines += changes(frozen[name], now[name], inner)
        return lines
    if _is_set(frozen) and _is_set(now):
        removed = [f"removed: {place} › {name}" for name in frozen if name not in now]
        return removed + [f"added: {place} › {name}" for name in now if name not in frozen]
    if frozen != now:
        return [f"changed: {place}: {_short(frozen)} is now {_short(now)}"]
    return []


def _is_set(value: Any) -> bool:
    """Whether a value is a list of names, of which the order means nothing."""
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)


def _value(value: Any) -> str:
    """What stood under a name, where it is short enough to be said."""
    return "" if isinstance(value, dict | list) else f" ({_short(value)})"


def _short(value: Any) -> str:
    """A value as JSON."""
    return json.dumps(value, ensure_ascii=False)


def advice(lines: list[str]) -> str:
    """The changes, and what to do about each kind; empty if there are none."""
    if not lines:
        return ""
    said = [f"{len(lines)} public names, commands or file fields are not as they were:", *lines, ""]
    if any(not line.startswith("added") for line in lines):
        said.append(
            "Removed or changed: programs and files of others stop working. Keep the former name "
            "or form beside the new one, as docs/stability.md says; a file gets a new version "
            "number, and a reader for the former one. Say it in CHANGELOG.md."
        )
    if any(line.startswith("added") for line in lines):
        said.append("Added: from now on it is kept. Say it in CHANGELOG.md.")
    said.append("Then run: python tools/public_names.py --write")
    return "\n".join(said)


def as_text(value: Frozen) -> str:
    """The contents of the file."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    """Compare, or write; 1 if something has changed."""
    now: Frozen = json.loads(as_text(present()))
    if "--write" in sys.argv[1:]:
        FROZEN.parent.mkdir(exist_ok=True)
        FROZEN.write_text(as_text(now), encoding="utf-8")
        return 0
    said = advice(changes(read_frozen(), now))
    sys.stdout.write(f"{said}\n" if said else "Everything public is as it was written down.\n")
    return 1 if said else 0


if __name__ == "__main__":
    raise SystemExit(main())
