"""Pages about errors: one for each code, made from the messages in tests/golden/messages.txt.

A page says what the message is, what the area of the code is about and where to read on. A file
docs/errors/CODE.md, where there is one, says more of that code: why it comes up, what to do.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
MESSAGES = ROOT / "tests" / "golden" / "messages.txt"
NOTES = ROOT / "docs" / "errors"
LIST_MARK = "<!-- list of all codes -->"
INNER = "*"
"""Stands in the file of messages for the code of another error."""


class Area(NamedTuple):
    """What the codes with one beginning are about.

    Attributes:
        about: A few words.
        page: Where to read on, from the pages of errors.
        words: Of the link to it.
    """

    about: str
    page: str
    words: str


CLI = ("../cli.md", "the command line")
STATISTICS = ("../statistics.md", "the statistics")
TASKS = ("../tasks.md", "tasks and data")
ARCHITECTURE = ("../architecture.md", "how headlab is built")
FAULTS = ("../faults.md", "faults: what survives what")
SECURITY = ("../security.md", "security")
MASKS = ("../mask-format.md", "the mask file")
FAMILIES = ("../families.md", "models that are known")
INSTALL = ("../install.md", "installation")
ROLES = ("../roles.md", "roles of heads")
SHRINK = ("../shrink.md", "smaller models")
EXPORT = ("../export.md", "serving a pruned model")
GATES = ("../gates.md", "gates that learn")
SHARING = ("../howto/share-a-mask.md", "sharing a mask")
WORKER = ("../api.md", "the worker's interface")
AREAS: Mapping[str, Area] = {
    "ablation": Area("what stands in a switched-off head's place", *STATISTICS),
    "adapter": Area("the files of a trained adapter", "../finetune.md", "fine-tuning"),
    "answers": Area("stored answers of a model", *FAULTS),
    "app": Area("the dashboard's start", "../install.md", "installation"),
    "argument": Area("an argument of a function", "../reference/library.md", "the library"),
    "arrays": Area("files of numbers in the cache", *FAULTS),
    "band": Area("curves drawn as one band", "../curves.md", "curves"),
    "beam": Area("how translations are searched for", "../translation.md", "translation"),
    "bleu": Area("the score of translations", "../translation.md", "translation"),
    "changes": Area("answers that a mask changes", *CLI),
    "check": Area("`headlab check`, which judges a mask", *CLI),
    "checkpoint": Area("a run that was interrupted and goes on", *FAULTS),
    "command": Area("a command as it was typed", *CLI),
    "costs": Area("what heads cost", "../front.md", "the choice by cost"),
    "curve": Area("accuracy as heads are removed", "../curves.md", "curves"),
    "data": Area("the files of a task", *TASKS),
    "declaration": Area("the file that declares a task", *TASKS),
    "device": Area("the device that computes", "../gpu.md", "on a GPU"),
    "device_map": Area("a model over several devices", "../gpu.md", "on a GPU"),
    "doctor": Area("`headlab doctor`, which reads projects", *CLI),
    "duo": Area("which key–value groups stream", *EXPORT),
    "dtype": Area("the precision of a model's weights", "../gpu.md", "on a GPU"),
    "evaluation": Area("comparing a model with itself", *STATISTICS),
    "experiment": Area("a study and its options", "../experiments.md", "experiments"),
    "export": Area("a pruned model for other software", *EXPORT),
    "figure": Area("pictures of results", "../report.md", "the report"),
    "file": Area("a file that is read or written", *FAULTS),
    "front": Area("the choice of a model by cost", "../front.md", "the choice by cost"),
    "gate": Area("gates that learn which heads to keep", *GATES),
    "gguf": Area("a file for llama.cpp", *EXPORT),
    "grid": Area("the shape of a model's heads", *MASKS),
    "head": Area("the name of a head", *MASKS),
    "home": Area("the folder of the person", *INSTALL),
    "hub": Area("models and data on the hub", "../howto/own-model.md", "a model of your own"),
    "interactions": Area(
        "pairs of heads that interact", "../interactions.md", "interactions of heads"
    ),
    "intents": Area("the task of voice commands", "../data-card.md", "the data card"),
    "job": Area("the queue of jobs", *WORKER),
    "json": Area("a file of JSON", *FAULTS),
    "label": Area("names given to results", "../cli.md", "the command line"),
    "label_map": Area("which class stands for which label", *TASKS),
    "language": Area("which language is meant", *TASKS),
    "latency": Area("how long a pass takes", "../worth.md", "what masks save"),
    "likelihood": Area("tasks answered by likelihood", *TASKS),
    "link": Area("a link into the dashboard", "../architecture.md", "how headlab is built"),
    "lm": Area("language models and their text", "../all-attention.md", "All-attention models"),
    "lm_eval": Area("tasks of lm-evaluation-harness", *CLI),
    "mask": Area("a mask and its file", *MASKS),
    "memory": Area("memory that is too small", "../gpu.md", "on a GPU"),
    "method": Area("a method that scores heads", "../methods.md", "methods"),
    "model": Area("a model's files, class and answers", *FAMILIES),
    "onnx": Area("a model as an ONNX file", *EXPORT),
    "option": Area("an option of a command", *CLI),
    "output": Area("where something is written", *CLI),
    "package": Area("a package that is not installed", *INSTALL),
    "players": Area("what is switched: heads or other players", "../methods.md", "methods"),
    "ratio": Area("the interval of a ratio", "../worth.md", "what masks save"),
    "ray": Area("many devices, through Ray", "../scaling.md", "many devices"),
    "relevance": Area("relevance by layer-wise propagation", "../methods.md", "methods"),
    "report": Area("a stored report", "../report.md", "the report"),
    "reproduce": Area("a paper reproduced", "../howto/reproduce-a-paper.md", "a paper reproduced"),
    "request": Area("a request to the worker", *WORKER),
    "result": Area("a stored result", *FAULTS),
    "roles": Area("what heads attend to", *ROLES),
    "rule": Area("the rule that makes a mask of scores", *MASKS),
    "run": Area("a run that was stored", *FAULTS),
    "score": Area("scores of heads", "../methods.md", "methods"),
    "seed": Area("the seed of what is drawn", *STATISTICS),
    "share": Area("pushing and pulling masks and scores", *SHARING),
    "shrink": Area("a smaller model", *SHRINK),
    "shrunk": Area("the folder of a smaller model", *SHRINK),
    "snippet": Area("a mask as a script", *MASKS),
    "split": Area("train, dev and test", *TASKS),
    "stack": Area("encoder, decoder and cross attention", *MASKS),
    "store": Area("the cache", *FAULTS),
    "table": Area("a report's tables", "../report.md", "the report"),
    "task": Area("a task and its examples", *TASKS),
    "terminal": Area("a question that needs a terminal", *CLI),
    "token": Area("the worker's password", *SECURITY),
    "tokenizer": Area("how a model cuts texts", *FAMILIES),
    "training": Area("training", "../finetune.md", "fine-tuning"),
    "translation": Area("translation models", "../translation.md", "translation"),
    "treebank": Area("a file of parsed sentences", *ROLES),
    "upload": Area("data sent to the dashboard", "../howto/own-data.md", "your own data"),
    "value": Area("what a coalition of heads is worth", *STATISTICS),
    "vocabulary": Area("a model with fewer words", *EXPORT),
    "worker": Area("the process that owns the device", *WORKER),
    "worth": Area("what a mask saves", "../worth.md", "what masks save"),
}
"""By the part of a code before its first full stop."""


@cache
def messages_by_code() -> Mapping[str, tuple[str, ...]]:
    """The wordings of every code, in the order of the file; without those of inner errors."""
    wordings: dict[str, list[str]] = {}
    for line in MESSAGES.read_text(encoding="utf-8").splitlines():
        code, _, wording = line.partition(": ")
        if code != INNER:
            wordings.setdefault(code, []).append(wording)
    return {code: tuple(texts) for code, texts in wordings.items()}


def codes_by_area() -> dict[str, list[str]]:
    """All codes by what stands before their first full stop."""
    areas: dict[str, list[str]] = {}
    for code in messages_by_code():
        areas.setdefault(code.partition(".")[0], []).append(code)
    return areas


def write_pages(folder: Path) -> None:
    """Write the page of every code, and the list of them.

    Args:
        folder: Of the pages, with their index.
    """
    for code in messages_by_code():
        (folder / f"{code}.md").write_text(page(code), encoding="utf-8")
    index = folder / "index.md"
    text = index.read_text(encoding="utf-8").replace(LIST_MARK, list_of_codes())
    index.write_text(text, encoding="utf-8")


def page(code: str) -> str:
    """The page of a code.

    Args:
        code: Like `mask.not_a_mask`.
    """
    area_name = code.partition(".")[0]
    area = AREAS[area_name]
    wordings = messages_by_code()[code]
    lines = ["---", "orphan: true", "---", "", f"# {code}", ""]
    lines += [f"This error is about {area.about}. It says:", ""]
    for wording in wordings:
        lines += [f"> {in_words(wording)}", "", "<!-- -->", ""]
    note = NOTES / f"{code}.md"
    if note.exists():
        lines += [note.read_text(encoding="utf-8").strip(), ""]
    else:
        lines += ["What to do stands in the message; ⟨such words⟩ are what was given.", ""]
    lines += [f"Read on: [{area.words}]({area.page}).", ""]
    others = [other for other in codes_by_area()[area_name] if other != code]
    if others:
        links = ", ".join(f"[{other}]({other}.md)" for other in others)
        lines += [f"Others about {area.about}: {links}.", ""]
    lines += ["[All errors](index.md)", ""]
    return "\n".join(lines)


def list_of_codes() -> str:
    """All codes by their areas, each with a link to its page."""
    lines = []
    for area_name, codes in sorted(codes_by_area().items()):
        links = ", ".join(f"[{code}]({code}.md)" for code in codes)
        lines += [f"## {area_name}", "", f"{AREAS[area_name].about.capitalize()}: {links}.", ""]
    return "\n".join(lines)


FIELD = re.compile(r"\{((?:[^{}]|\{[^{}]*\})*)\}")


def in_words(wording: str) -> str:
    """A wording with what is filled in at run time named in words.

    Args:
        wording: As the source has it.
    """
    text = FIELD.sub(lambda match: f"⟨{field_name(match.group(1))}⟩", wording)
    for character in "\\`*_<>[]#|":
        text = text.replace(character, f"\\{character}")
    return text


def field_name(field: str) -> str:
    """What is filled in, in words.

    Args:
        field: The expression between braces, with its conversion and format.
    """
    expression = re.split(r"![rsa](?=:|$)|:(?![^(\[]*[)\]])", field)[0]
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except SyntaxError:
        return "value"
    return name_of(tree).replace("_", " ").strip().lower() or "value"


def name_of(node: ast.expr) -> str:
    """The name that says most of an expression's value.

    Args:
        node: The expression.
    """
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Call() as call, attr="__name__"):
            return f"type of {name_of(call)}"
        case ast.Attribute(value=value, attr="name" | "value"):
            return name_of(value)
        case ast.Attribute(attr=name):
            return name
        case ast.Call(func=ast.Name(id="len"), args=[inner]):
            return f"number of {name_of(inner)}"
        case ast.Call(args=[inner, *_]):
            return name_of(inner)
        case ast.Call(func=ast.Attribute(value=value)):
            return name_of(value)
        case ast.Call(func=function):
            return name_of(function)
        case ast.GeneratorExp(generators=[first, *_]) | ast.ListComp(generators=[first, *_]):
            return name_of(first.iter)
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            return key
        case ast.Subscript(value=value) | ast.Starred(value=value):
            return name_of(value)
        case ast.BinOp(left=left) | ast.Compare(left=left):
            return name_of(left)
        case ast.UnaryOp(operand=operand):
            return name_of(operand)
        case ast.IfExp(body=body):
            return name_of(body)
        case ast.BoolOp(values=[first, *_]):
            return name_of(first)
        case ast.Constant(value=value):
            return str(value)
        case ast.Tuple(elts=[first, *_]) | ast.List(elts=[first, *_]):
            return name_of(first)
    return "value"
