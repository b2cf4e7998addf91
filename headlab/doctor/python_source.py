"""Python source that switches heads off as transformers 4 did, found in its syntax tree."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

MASK_NAMES = frozenset({"head_mask", "decoder_head_mask", "cross_attn_head_mask"})
"""The arguments by which models of transformers 4 were given masks."""
PRUNING_METHODS = frozenset({"prune_heads", "_prune_heads"})
MASK_METHODS = frozenset({"get_head_mask"})
ATTENTION_MASK_METHODS = frozenset({"invert_attention_mask", "get_extended_attention_mask"})
METHODS = PRUNING_METHODS | MASK_METHODS | ATTENTION_MASK_METHODS
REMOVED_FUNCTIONS = frozenset(
    {"find_pruneable_heads_and_indices", "prune_layer", "prune_conv1d_layer"}
)
MOVED_FUNCTIONS = frozenset({"prune_linear_layer", "apply_chunking_to_forward"})
"""Functions that are in `transformers.pytorch_utils` still, and in no other module any more."""
HOME_OF_MOVED = "transformers.pytorch_utils"
PRUNED_HEADS = "pruned_heads"
WORDS = (
    b"head_mask",
    b"prune",
    b"invert_attention_mask",
    b"get_extended_attention_mask",
    b"apply_chunking_to_forward",
)
"""Of which every name that is looked for holds one."""
PARTS_OF_MODELS = (
    "model",
    "bert",
    "gpt",
    "encoder",
    "decoder",
    "layer",
    "attention",
    "attn",
    "transformer",
    "forward",
)
"""Of what is called so, an argument by position may be a mask: `self.bert(ids, None, head_mask)`."""
MASK_POSITION = 2
"""The first position at which a model of transformers 4 took a mask, from 0."""
ANYTHING = ""
"""The maker of what a variable holds, where it is not known."""
NAME_PARTS = 6
ParseError = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What Python's parser raises for text that it cannot read."""


@dataclass(frozen=True)
class SourceFinding:
    """A place in a source.

    Attributes:
        line: Its number, from 1.
        kind: Key of `headlab.doctor.advice.ADVICE`.
        found: What stands there, in short.
    """

    line: int
    kind: str
    found: str


@dataclass
class OwnNames:
    """What a source defines itself, which transformers never sees, and what its names mean.

    Attributes:
        mask_functions: Functions that take a mask.
        mask_methods: For each class, the methods that take a mask; a model's is `forward`.
        classes: Classes.
        methods: The `METHODS` that a class of the source defines.
        instances: Variables and attributes that hold a model of such a class.
        pipelines: Variables that hold a pipeline.
        modules: Full names of what is imported, by the names that it has here.
    """

    mask_functions: set[str] = field(default_factory=set)
    mask_methods: dict[str, set[str]] = field(default_factory=dict)
    classes: set[str] = field(default_factory=set)
    methods: set[str] = field(default_factory=set)
    instances: set[str] = field(default_factory=set)
    pipelines: set[str] = field(default_factory=set)
    modules: dict[str, str] = field(default_factory=dict)


def source_findings(source: str | bytes) -> list[SourceFinding]:
    """The places in Python source that use what transformers 5 lacks, by line.

    Args:
        source: Bytes are decoded as Python does it, by the coding that the first lines name.

    Raises:
        SyntaxError: Python cannot parse it.
        ValueError: It holds a zero, as do `RecursionError` and `MemoryError`, which say that it is
            nested too deeply.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes such as "\d"
        tree = ast.parse(source)
    if not may_hold_findings(source):
        return []
    names = own_names(tree)
    findings = set(_findings_below(tree, names))
    return sorted(findings, key=lambda finding: (finding.line, finding.kind, finding.found))


def may_hold_findings(source: str | bytes) -> bool:
    """Whether any of the words stands in a source, which saves the walk over most trees."""
    content = source.encode("utf-8", "replace") if isinstance(source, str) else source
    return any(word in content for word in WORDS)


def own_names(tree: ast.Module) -> OwnNames:
    """What a source defines and imports."""
    names = OwnNames()
    made_by: dict[str, set[str]] = {}  # what is called to make the values of a variable
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef():
                _note_class(node, names)
            case ast.FunctionDef() | ast.AsyncFunctionDef() if _takes_mask(node):
                names.mask_functions.add(node.name)
            case ast.arg(arg=name):
                made_by.setdefault(name, set()).add(ANYTHING)
            case ast.Import():
                for alias in node.names:
                    top_name = alias.name.partition(".")[0]
                    names.modules[alias.asname or top_name] = (
                        alias.name if alias.asname else top_name
                    )
            case ast.ImportFrom(module=str(module), level=0):
                for alias in node.names:
                    names.modules[alias.asname or alias.name] = f"{module}.{alias.name}"
            case ast.Assign(targets=targets, value=value):
                maker = _last_name(value.func) if isinstance(value, ast.Call) else ANYTHING
                for target in filter(None, map(_last_name, targets)):
                    made_by.setdefault(target, set()).add(maker)
    models = {name for name, methods in names.mask_methods.items() if "forward" in methods}
    # One name may stand for several things; it is taken for the source's own only if all are.
    names.instances = {name for name, makers in made_by.items() if makers <= models}
    names.pipelines = {name for name, makers in made_by.items() if "pipeline" in makers}
    return names


def _note_class(node: ast.ClassDef, names: OwnNames) -> None:
    names.classes.add(node.name)
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            if statement.name in METHODS:
                names.methods.add(statement.name)
            if _takes_mask(statement):
                names.mask_methods.setdefault(node.name, set()).add(statement.name)


def _takes_mask(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    return any(argument.arg in MASK_NAMES for argument in arguments)


def _findings_below(tree: ast.Module, names: OwnNames) -> Iterator[SourceFinding]:
    """The findings of a tree, in no order; without recursion, as trees may be deep."""
    starred: set[ast.AST] = set()  # dictionaries that were found as the arguments of a call
    unvisited: list[tuple[ast.AST, str]] = [(tree, "")]
    while unvisited:
        node, class_name = unvisited.pop()
        if isinstance(node, ast.Call):
            starred.update(keyword.value for keyword in node.keywords if keyword.arg is None)
            yield from _of_call(node, class_name, names)
        elif isinstance(node, ast.Dict) and node not in starred:
            yield from _of_dictionary(node)
        elif isinstance(node, ast.Subscript):
            yield from _of_subscript(node)
        elif isinstance(node, ast.Attribute):
            yield from _of_attribute(node, class_name, names)
        elif isinstance(node, ast.ImportFrom):
            yield from _of_import(node)
        elif isinstance(node, ast.ClassDef):
            yield from _of_class(node)
            class_name = node.name
        unvisited += [(child, class_name) for child in ast.iter_child_nodes(node)]


def _of_call(call: ast.Call, class_name: str, names: OwnNames) -> Iterator[SourceFinding]:
    callee = _last_name(call.func)
    if callee in ("getattr", "hasattr", "setattr") and len(call.args) > 1:
        yield from _of_attribute_by_name(call, callee, names)
        return
    if _is_own(call.func, class_name, names):
        return
    passed_names = set(_names_passed(call))
    for name in sorted(passed_names & MASK_NAMES):
        yield SourceFinding(
            call.lineno, _kind_of_keyword(callee, names), f"{name}= in {_words(call.func)}(…)"
        )
    if PRUNED_HEADS in passed_names:
        kind = "config-keyword" if callee != "dict" else "config-key"
        yield SourceFinding(call.lineno, kind, f"{PRUNED_HEADS}= in {_words(call.func)}(…)")
    if callee == "setdefault" and call.args and _is_mask_key(call.args[0]):
        yield SourceFinding(call.lineno, "mask-key", f"the key {_text_of(call.args[0])!r}")
    if any(part in callee.lower() for part in PARTS_OF_MODELS):
        for argument in call.args[MASK_POSITION:]:
            if _last_name(argument) in MASK_NAMES:
                found = f"{_last_name(argument)} by position in {_words(call.func)}(…)"
                yield SourceFinding(call.lineno, "mask-position", found)


def _kind_of_keyword(callee: str, names: OwnNames) -> str:
    """The kind of a mask that is passed by name."""
    if callee == "dict":
        return "mask-key"
    if callee == "generate":
        return "mask-generate"
    if callee == "pipeline" or callee in names.pipelines:
        return "mask-pipeline"
    return "mask-keyword"


def _names_passed(call: ast.Call) -> Iterator[str]:
    """The names of arguments with a value, those of a starred dictionary too."""
    for keyword in call.keywords:
        if keyword.arg is not None:
            if not _is_none(keyword.value):
                yield keyword.arg
        elif isinstance(keyword.value, ast.Dict):
            for key, value in zip(keyword.value.keys, keyword.value.values, strict=True):
                if key is not None and _text_of(key) and not _is_none(value):
                    yield _text_of(key)


def _of_attribute_by_name(call: ast.Call, callee: str, names: OwnNames) -> Iterator[SourceFinding]:
    name = _text_of(call.args[1])
    if name not in METHODS or name in names.methods or callee == "setattr":
        return
    kind = "method-asked-for" if callee == "hasattr" else _kind_of_method(name)
    yield SourceFinding(call.lineno, kind, f"{callee}({_words(call.args[0])}, {name!r})")


def _of_dictionary(node: ast.Dict) -> Iterator[SourceFinding]:
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None or _is_none(value):
            continue
        if _is_mask_key(key):
            yield SourceFinding(key.lineno, "mask-key", f"the key {_text_of(key)!r}")
        elif _text_of(key) == PRUNED_HEADS:
            yield SourceFinding(key.lineno, "config-key", f"the key {PRUNED_HEADS!r}")


def _of_subscript(node: ast.Subscript) -> Iterator[SourceFinding]:
    if isinstance(node.ctx, ast.Store) and _is_mask_key(node.slice):
        found = f"{_words(node.value)}[{_text_of(node.slice)!r}] ="
        yield SourceFinding(node.lineno, "mask-key", found)


def _of_attribute(node: ast.Attribute, class_name: str, names: OwnNames) -> Iterator[SourceFinding]:
    is_super = isinstance(node.value, ast.Call) and _last_name(node.value.func) == "super"
    line = node.end_lineno or node.lineno  # of the name, where a chain of calls has several lines
    if node.attr in METHODS:
        if is_super or node.attr not in names.methods:
            yield SourceFinding(line, _kind_of_method(node.attr), _words(node))
    elif node.attr == PRUNED_HEADS and _is_config(node.value):
        kind = "config-read" if isinstance(node.ctx, ast.Load) else "config-set"
        yield SourceFinding(line, kind, _words(node))
    elif node.attr in REMOVED_FUNCTIONS | MOVED_FUNCTIONS:
        module = _module_of(node.value, names)
        if module.partition(".")[0] == "transformers":
            yield from _of_function(line, module, node.attr)


def _of_import(node: ast.ImportFrom) -> Iterator[SourceFinding]:
    module = node.module or ""
    if node.level == 0 and module.partition(".")[0] == "transformers":
        for alias in node.names:
            yield from _of_function(alias.lineno, module, alias.name)


def _of_function(line: int, module: str, name: str) -> Iterator[SourceFinding]:
    """The finding of a function of transformers, if it is none of that module."""
    if name in REMOVED_FUNCTIONS:
        yield SourceFinding(line, "function-removed", f"{module}.{name}")
    is_home = module in (HOME_OF_MOVED, "transformers")
    if name in MOVED_FUNCTIONS and not is_home:
        yield SourceFinding(line, "function-moved", f"{module}.{name}")


def _of_class(node: ast.ClassDef) -> Iterator[SourceFinding]:
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "_prune_heads":
            found = f"def _prune_heads in class {node.name}"
            yield SourceFinding(statement.lineno, "hook-defined", found)


def _kind_of_method(name: str) -> str:
    if name in PRUNING_METHODS:
        return "prune-heads"
    return "get-head-mask" if name in MASK_METHODS else "attention-mask"


def _is_own(function: ast.expr, class_name: str, names: OwnNames) -> bool:
    """Whether a call is of what the source itself defines with such an argument."""
    match function:
        case ast.Name(id=name):
            return name in names.mask_functions | names.classes | names.instances
        case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
            own_methods = names.mask_methods.get(class_name, set())
            return name in own_methods | names.instances
    return False


def _module_of(node: ast.expr, names: OwnNames) -> str:
    """The full name of a module or of what is in it; empty for what was not imported."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in names.modules:
        return ""
    return ".".join([names.modules[node.id], *reversed(parts)])


def _is_config(node: ast.expr) -> bool:
    name = _last_name(node).lower()
    return "config" in name or name == "cfg"


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _text_of(node: ast.expr) -> str:
    """The text of a literal; empty for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ""


def _is_mask_key(node: ast.expr) -> bool:
    return _text_of(node) in MASK_NAMES


def _last_name(node: ast.expr) -> str:
    """The last name of `a.b.c`; empty for what has none."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _words(node: ast.expr) -> str:
    """A name, its first parts left out where there are many: `self.bert`, `….generate`."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < NAME_PARTS:
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "…")
    if len(parts) == 2 and parts[1] == "…" and isinstance(node, ast.Call):
        parts[1] = f"{_last_name(node.func) or '…'}(…)"
    return ".".join(reversed(parts))
