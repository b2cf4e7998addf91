"""Print every message that a user can get, by its code; --write updates the golden file.

The messages are read from the syntax trees and nothing is imported, so that messages that no test
provokes are there too.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "tests" / "golden" / "messages.txt"
BASE = "HeadlabError"
# A line without wording: the message was made elsewhere, where it has a line of its own.
UNWORDED = re.compile(r"[^:]*: \{[^{}]*\}")
# Stands for the code of another error whose message is a part of this one.
INNER = "*"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class CallSite:
    """A call that may give an error its code.

    Attributes:
        path: The file, from the root.
        call: The construction of the error, or a call that passes the code on to one.
        enclosing: The nodes around the call, from the module down to the innermost.
    """

    path: str
    call: ast.Call
    enclosing: tuple[ast.AST, ...]

    @property
    def place(self) -> str:
        """Its file and line."""
        return f"{self.path}:{self.call.lineno}"

    @property
    def code(self) -> ast.expr | None:
        """The expression of the argument `code`; None if there is none."""
        for keyword in self.call.keywords:
            if keyword.arg == "code":
                return keyword.value
        return None

    def codes(self) -> list[str]:
        """The codes that it may give; `INNER` for expressions that are no literal."""
        return [] if self.code is None else list(_literals(self.code))

    def passes_on(self) -> bool:
        """Whether each code is a literal, another error's, or a parameter of the function."""
        if self.code is None:
            return False
        return _is_passed_on(self.code, _parameters(self.enclosing))

    def lines(self) -> list[str]:
        """Its lines in the file: one for each code and wording."""
        texts = []
        for argument in self.call.args:
            is_literal = isinstance(argument, ast.Constant)
            if not is_literal or isinstance(argument.value, str):
                texts.append(argument)
        wordings = []
        for message in self._message(texts):
            wordings += _wordings(message, self.enclosing)
        codes = self.codes()
        if len(codes) == len(wordings):
            # They belong together, like `trouble or "..."` and `trouble_code or "..."`.
            pairs = list(zip(codes, wordings, strict=True))
        else:
            pairs = list(product(codes, wordings))
        lines = []
        for code, text in pairs:
            line = f"{code}: {text}"
            lines.append(line.replace("\n", "\\n"))
        return lines

    def _message(self, args: list[ast.expr]) -> list[ast.expr]:
        """The message among the arguments, in a list; empty if there are no arguments.

        It is the first argument of an error, and the last text among the arguments of another call.
        """
        called_name = _name(self.call.func)
        if called_name[:1].isupper() or called_name == "__init__":
            return args[:1]
        texts: list[ast.expr] = [
            arg for arg in args if isinstance(arg, ast.Constant | ast.JoinedStr)
        ]
        return (texts or args)[-1:]


def files() -> list[Path]:
    """The files that ship."""
    return [
        *sorted(ROOT.glob("headlab/**/*.py")),
        *sorted(ROOT.glob("pages/*.py")),
        ROOT / "app.py",
    ]


@cache
def trees() -> dict[str, ast.Module]:
    """Syntax trees by the paths of their files from the root."""
    trees_by_path = {}
    for path in files():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        trees_by_path[str(path.relative_to(ROOT))] = tree
    return trees_by_path


def errors(source_trees: dict[str, ast.Module]) -> dict[str, ast.ClassDef | None]:
    """The exception and its subclasses, by their names."""
    kinds: dict[str, ast.ClassDef | None] = {BASE: None}
    classes = []
    for tree in source_trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes.append(node)
    kinds_before = 0
    while len(kinds) > kinds_before:  # until a round finds no further subclass
        kinds_before = len(kinds)
        for class_node in classes:
            if class_node.name not in kinds and any(
                _name(base) in kinds for base in class_node.bases
            ):
                kinds[class_node.name] = class_node
    return kinds


def constructions(source_trees: dict[str, ast.Module]) -> Iterator[CallSite]:
    """Every construction of an error that must be given its code."""
    kinds = errors(source_trees)
    kinds_with_own_code = set()
    for name, kind in kinds.items():
        if kind is not None and _gives_its_own_code(kind):
            kinds_with_own_code.add(name)
    for call_site in calls(source_trees):
        enclosing_kinds = [
            node.name
            for node in call_site.enclosing
            if isinstance(node, ast.ClassDef) and node.name in kinds
        ]
        in_subclass = bool(enclosing_kinds) and enclosing_kinds[-1] != BASE
        called_name = _name(call_site.call.func)
        constructs_base = called_name == "__init__" and in_subclass
        if constructs_base or called_name in kinds.keys() - kinds_with_own_code:
            yield call_site


def calls(source_trees: dict[str, ast.Module]) -> Iterator[CallSite]:
    """Every call in the source."""
    for path, tree in source_trees.items():
        unvisited: list[tuple[ast.AST, tuple[ast.AST, ...]]] = [(tree, ())]
        while unvisited:
            node, enclosing = unvisited.pop()
            if isinstance(node, ast.Call):
                yield CallSite(path, node, enclosing)
            for child in ast.iter_child_nodes(node):
                unvisited.append((child, (*enclosing, node)))


def listing(source_trees: dict[str, ast.Module]) -> str:
    """The file's text: a line for each code and message, sorted.

    A line without wording is there only if no other line has its code.
    """
    lines: set[str] = set()
    for call_site in calls(source_trees):
        if call_site.code is not None:
            lines.update(call_site.lines())
    complete_lines = {line for line in lines if not UNWORDED.fullmatch(line)}
    codes_with_wording = {INNER}
    for line in complete_lines:
        codes_with_wording.add(line.partition(":")[0])
    other_lines = set()
    for line in lines - complete_lines:
        if line.partition(":")[0] not in codes_with_wording:
            other_lines.add(line)
    shown_lines = sorted(complete_lines | other_lines)
    return "".join(f"{line}\n" for line in shown_lines)


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    return ""


def _gives_its_own_code(kind: ast.ClassDef) -> bool:
    """Whether an error's class has an `__init__` that takes no code."""
    for node in kind.body:
        is_constructor = isinstance(node, ast.FunctionDef) and node.name == "__init__"
        if is_constructor and "code" not in _parameters((node,)):
            return True
    return False


def _parameters(enclosing: tuple[ast.AST, ...]) -> set[str]:
    """The names of all parameters of the functions among the nodes."""
    names = set()
    for node in enclosing:
        if isinstance(node, Function):
            arguments = (*node.args.args, *node.args.kwonlyargs)
            names |= {argument.arg for argument in arguments}
    return names


def _choices(node: ast.expr) -> list[ast.expr]:
    """The expressions that may be the value, such as both sides of `a if b else c` and `a or b`."""
    match node:
        case ast.IfExp(body=body, orelse=alternative):
            return [*_choices(body), *_choices(alternative)]
        case ast.BoolOp(op=ast.Or(), values=values):
            return [choice for value in values for choice in _choices(value)]
        case ast.Call(func=ast.Name(id="str"), args=[inner]):
            return _choices(inner)
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value="code"), default]):
            return _choices(default)
    return [node]


def _literals(node: ast.expr) -> Iterator[str]:
    for choice in _choices(node):
        literal = isinstance(choice, ast.Constant) and isinstance(choice.value, str)
        yield choice.value if literal else INNER  # type: ignore[attr-defined]


def _is_passed_on(node: ast.expr, parameters: set[str]) -> bool:
    """Whether every value is a literal, another error's code, or the parameter `code`."""

    def is_given(choice: ast.expr) -> bool:
        match choice:
            case ast.Constant(value=str()):
                return True
            case ast.Attribute(attr=name):
                return name == "code" or name.endswith("_code")
            case ast.Name(id="code"):
                return "code" in parameters
        return False

    return all(is_given(choice) for choice in _choices(node))


def _wordings(node: ast.expr, enclosing: tuple[ast.AST, ...]) -> list[str]:
    """The wordings of a message as in the source, with inserted expressions in braces."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=values):
            return ["".join(map(_part, values))]
        case ast.IfExp() | ast.BoolOp():
            return [text for choice in _choices(node) for text in _wordings(choice, enclosing)]
        case ast.Name(id=name) if values := _assigned_values(name, enclosing):
            return [text for value in values for text in _wordings(value, enclosing[:-1])]
        case ast.Call(func=ast.Name(id=name)) if values := _returned_values(name, enclosing):
            return [text for value in values for text in _wordings(value, enclosing[:1])]
    return [f"{{{ast.unparse(node)}}}"]


def _part(node: ast.expr) -> str:
    """A part of an f-string as it stands in the source."""
    if isinstance(node, ast.FormattedValue):
        conversion = ""
        if node.conversion >= 0:
            conversion = f"!{chr(node.conversion)}"
        format_spec = ""
        if isinstance(node.format_spec, ast.JoinedStr):
            parts = map(_part, node.format_spec.values)
            format_spec = ":" + "".join(parts)
        expression = ast.unparse(node.value)
        return f"{{{expression}{conversion}{format_spec}}}"
    if isinstance(node, ast.Constant):
        return str(node.value)
    return ast.unparse(node)


def _assigned_values(name: str, enclosing: tuple[ast.AST, ...]) -> list[ast.expr]:
    """The values assigned to a name, in the innermost function or module that assigns it."""
    scopes = [node for node in enclosing if isinstance(node, Function | ast.Module)]
    for scope in reversed(scopes):
        nodes = ast.walk(scope) if isinstance(scope, Function) else scope.body
        assigned_values = [
            node.value
            for node in nodes
            if isinstance(node, ast.Assign) and name in map(_name, node.targets)
        ]
        if assigned_values:
            return assigned_values
    return []


def _returned_values(name: str, enclosing: tuple[ast.AST, ...]) -> list[ast.expr]:
    """The values that a function of the same module returns."""
    returned_values = []
    for function in getattr(enclosing[0], "body", ()):
        if not isinstance(function, ast.FunctionDef) or function.name != name:
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None:
                returned_values.append(node.value)
    return returned_values


def main() -> None:
    """Print the messages, or write them into the file."""
    text = listing(trees())
    if "--write" in sys.argv[1:]:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
