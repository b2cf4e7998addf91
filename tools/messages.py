"""Every message a user can be told, by its code, as the source has it; prints them, and --write updates the file.

Read off the syntax trees, so nothing is imported: a message that no test provokes is there too.
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
BARE = re.compile(r"[^:]*: \{[^{}]*\}")  # a message that was made elsewhere, where it has its line
INNER = "*"  # where the code is another error's, and its message a part of this one
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Told:
    """A place that gives an error its code.

    Attributes:
        call: The construction, or what passes the code on to one.
    """

    path: str
    call: ast.Call
    around: tuple[ast.AST, ...]  # from the module down to what the call stands in

    @property
    def place(self) -> str:
        """Where it stands."""
        return f"{self.path}:{self.call.lineno}"

    @property
    def code(self) -> ast.expr | None:
        """The expression that gives the code."""
        return next((word.value for word in self.call.keywords if word.arg == "code"), None)

    def codes(self) -> list[str]:
        """The codes it may give; `INNER` for one that comes from elsewhere, and for what is no code at all."""
        return [] if self.code is None else list(_literals(self.code))

    def passes_on(self) -> bool:
        """Whether all of its codes are literal, another error's, or given to the function around it."""
        return self.code is not None and _given(self.code, _parameters(self.around))

    def lines(self) -> list[str]:
        """What the file says of it, a line for each code and wording."""
        texts = [
            arg
            for arg in self.call.args
            if not isinstance(arg, ast.Constant) or isinstance(arg.value, str)
        ]
        wordings = [text for arg in self._message(texts) for text in _wordings(arg, self.around)]
        codes = self.codes()
        # as many of both: `trouble or "..."` beside `trouble_code or "..."`, so they go together
        pairs = (
            zip(codes, wordings, strict=True)
            if len(codes) == len(wordings)
            else product(codes, wordings)
        )
        return [f"{code}: {text}".replace("\n", "\\n") for code, text in pairs]

    def _message(self, args: list[ast.expr]) -> list[ast.expr]:
        """The message among the arguments: the first of an error's, the last that is a text of another call's."""
        if _name(self.call.func)[:1].isupper() or _name(self.call.func) == "__init__":
            return args[:1]
        texts: list[ast.expr] = [
            arg for arg in args if isinstance(arg, ast.Constant | ast.JoinedStr)
        ]
        return (texts or args)[-1:]


def files() -> list[Path]:
    """What ships."""
    return [
        *sorted(ROOT.glob("headlab/**/*.py")),
        *sorted(ROOT.glob("pages/*.py")),
        ROOT / "app.py",
    ]


@cache
def trees() -> dict[str, ast.Module]:
    """{path from the root: syntax tree}."""
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in files()
    }


def errors(found: dict[str, ast.Module]) -> dict[str, ast.ClassDef | None]:
    """The exception and its subclasses, by their names."""
    kinds: dict[str, ast.ClassDef | None] = {BASE: None}
    classes = [
        node for tree in found.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    ]
    while more := [
        c for c in classes if c.name not in kinds and any(_name(base) in kinds for base in c.bases)
    ]:
        kinds |= {c.name: c for c in more}
    return kinds


def constructions(found: dict[str, ast.Module]) -> Iterator[Told]:
    """Every construction of an error that has to be given its code."""
    kinds = errors(found)
    own = {name for name, kind in kinds.items() if kind is not None and _gives_its_own(kind)}
    for told in calls(found):
        within = [
            node for node in told.around if isinstance(node, ast.ClassDef) and node.name in kinds
        ]
        above = _name(told.call.func) == "__init__" and within and within[-1].name != BASE
        if above or _name(told.call.func) in kinds.keys() - own:
            yield told


def calls(found: dict[str, ast.Module]) -> Iterator[Told]:
    """Every call in the source."""
    for path, tree in found.items():
        waiting: list[tuple[ast.AST, tuple[ast.AST, ...]]] = [(tree, ())]
        while waiting:
            node, around = waiting.pop()
            if isinstance(node, ast.Call):
                yield Told(path, node, around)
            waiting += [(child, (*around, node)) for child in ast.iter_child_nodes(node)]


def listing(found: dict[str, ast.Module]) -> str:
    """The file: a line for each code and message, sorted."""
    lines = {line for one in calls(found) if one.code is not None for line in one.lines()}
    said = {line for line in lines if not BARE.fullmatch(line)}
    worded = {INNER, *(line.partition(":")[0] for line in said)}
    bare = {line for line in lines - said if line.partition(":")[0] not in worded}
    return "".join(f"{line}\n" for line in sorted(said | bare))


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    return ""


def _gives_its_own(kind: ast.ClassDef) -> bool:
    makers = [
        node for node in kind.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    return any("code" not in _parameters((maker,)) for maker in makers)


def _parameters(around: tuple[ast.AST, ...]) -> set[str]:
    within = [node for node in around if isinstance(node, Function)]
    return {arg.arg for node in within for arg in (*node.args.args, *node.args.kwonlyargs)}


def _choices(node: ast.expr) -> list[ast.expr]:
    """What an expression may come to: the sides of `a if b else c` and of `a or b`, the default of a look-up."""
    match node:
        case ast.IfExp(body=one, orelse=other):
            return [*_choices(one), *_choices(other)]
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


def _given(node: ast.expr, parameters: set[str]) -> bool:
    def good(choice: ast.expr) -> bool:
        match choice:
            case ast.Constant(value=str()):
                return True
            case ast.Attribute(attr=name):
                return name == "code" or name.endswith("_code")
            case ast.Name(id="code"):
                return "code" in parameters
        return False

    return all(good(choice) for choice in _choices(node))


def _wordings(node: ast.expr, around: tuple[ast.AST, ...]) -> list[str]:
    """A message as it stands in the source, with what is put into it in braces."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=values):
            return ["".join(map(_part, values))]
        case ast.IfExp() | ast.BoolOp():
            return [text for choice in _choices(node) for text in _wordings(choice, around)]
        case ast.Name(id=name) if values := _assigned(name, around):
            return [text for value in values for text in _wordings(value, around[:-1])]
        case ast.Call(func=ast.Name(id=name)) if values := _returned(name, around):
            return [text for value in values for text in _wordings(value, around[:1])]
    return [f"{{{ast.unparse(node)}}}"]


def _part(node: ast.expr) -> str:
    if isinstance(node, ast.FormattedValue):
        shown = "" if node.conversion < 0 else f"!{chr(node.conversion)}"
        form = (
            f":{''.join(map(_part, node.format_spec.values))}"
            if isinstance(node.format_spec, ast.JoinedStr)
            else ""
        )
        return f"{{{ast.unparse(node.value)}{shown}{form}}}"
    if isinstance(node, ast.Constant):
        return str(node.value)
    return ast.unparse(node)


def _assigned(name: str, around: tuple[ast.AST, ...]) -> list[ast.expr]:
    """What a name stands for in the function around it, else in the module."""
    for home in reversed([node for node in around if isinstance(node, Function | ast.Module)]):
        inner = ast.walk(home) if isinstance(home, Function) else home.body
        found = [
            n.value for n in inner if isinstance(n, ast.Assign) and name in map(_name, n.targets)
        ]
        if found:
            return found
    return []


def _returned(name: str, around: tuple[ast.AST, ...]) -> list[ast.expr]:
    """What a function of the same module returns."""
    module = around[0]
    homes = [
        n for n in getattr(module, "body", ()) if isinstance(n, ast.FunctionDef) and n.name == name
    ]
    return [
        n.value
        for home in homes
        for n in ast.walk(home)
        if isinstance(n, ast.Return) and n.value is not None
    ]


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
