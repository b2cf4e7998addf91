"""The command lines equivalent to jobs and results, with notes on what a command cannot express.

How each kind of job reads on the command line is said here alone, with the flags that `JOBS` declares: pages print it
for a job or a form, the report for a stored result, whose spec `job_of` turns into the job that makes it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from headlab.errors import HeadlabError
from headlab.labels import write_map
from headlab.masks import Mask
from headlab.masks.snippet import UNVERSIONED
from headlab.methods.table import METHODS
from headlab.options import Option, option_words, written
from headlab.records import part
from headlab.roles.table import FILE
from headlab.roles.table import NAME as ROLES
from headlab.roles.table import OPTIONS as ROLE_OPTIONS
from headlab.store.folder import kind_of
from headlab.store.places import NOT_KNOWN, Places
from headlab.studies.table import (
    EXPERIMENTS,
    FRONT,
    JOBS,
    METHOD,
    METHOD_OPTIONS,
    Experiment,
    Settings,
)
from headlab.tasks import BUILT_IN, SOURCES, TASKS, declaration_of
from headlab.tasks.base import DEV_SIZE, TREEBANK
from headlab.training.l0_options import ALL as EVERY
from headlab.training.l0_options import GateOptions

ALL_EXAMPLES = 100_000  # more than any task has, for commands without a value for "all"
WALK = "front "  # prefix of the method name of a walk along a front's order
LANGUAGES = "--languages"
COMMIT = re.compile(r"[0-9a-f]{40}")  # the revision of a model of the hub
MASK_FILE = "MASK.json"  # stands for a mask that is no file of its own
Spec = Mapping[str, Any]
WHERE: Settings = {
    name: Option(None, "") for name in ("model", "task", "data", "label_map", "languages")
}
ON_TASK: Settings = {name: option for name, option in WHERE.items() if name != "languages"}
ON_SENTENCES: Settings = {name: WHERE[name] for name in ("model", "task", "data")}
DTYPE: Settings = {"dtype": Option("float32", "")}


def word(value: Any) -> str:
    """A detail of a job as one word: entries with commas between, None as the number of all examples."""
    if isinstance(value, Mapping):
        return write_map(value)
    if value is None:
        return str(ALL_EXAMPLES)
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def said(details: Spec, known: Settings, always: Sequence[str] = ()) -> list[str]:
    """The flags of a job's details, without those that are missing or, but for `always`, at their defaults."""
    words: list[str] = []
    for name, option in known.items():
        if name in details and (name in always or details[name] != option.default):
            words += [f"--{(option.flag or name).replace('_', '-')}", word(details[name])]
    return words


def lines(kind: str, details: Spec, *, paths: bool = True) -> list[list[str]]:
    """The commands equivalent to a job of this kind, each as words; empty if there are none.

    A declared task is named by its file, which can be read wherever the command is typed; its name is known only where
    $HEADLAB_TASKS or the cache folder is the same.

    Args:
        kind: Of the job.
        details: Of the job.
        paths: Whether a declared task's file is named; otherwise it is the task's name.
    """
    if kind not in LINES:
        return []
    task = details.get("task")
    declaration = declaration_of(task) if paths and isinstance(task, str) else None
    if declaration is not None:
        details = {**details, "task": str(declaration)}
    return LINES[kind](details)


def shell_lines(kind: str, details: Spec) -> str:
    """The same, quoted for a shell, one command per line."""
    return "\n".join(map(shlex.join, lines(kind, details)))


def _method(details: Spec, options: str) -> list[str]:
    """The method and its non-default options; all options of an unknown method. options: the detail that holds them."""
    key = str(details[METHOD])
    known = METHODS[key].options if key in METHODS else {}
    return ["--method", key, *option_words("-o", details.get(options) or {}, known)]


def _scores(kind: str, details: Spec) -> list[list[str]]:
    words = _method(details, "options")
    return [
        ["headlab", kind, *said(details, WHERE), *words, *said(details, {**JOBS[kind], **DTYPE})]
    ]


def _experiment(details: Spec) -> list[list[str]]:
    about = EXPERIMENTS[details["experiment"]]
    uses_method = METHOD in about.options and details.get(METHOD) is not None
    return [[
        "headlab", "experiment", about.key, *said(details, WHERE),
        *(_method(details, METHOD_OPTIONS) if uses_method else ()),
        *option_words("--option", _shortened(about, details), about.options),
        *said(details, {**JOBS["experiment"], **DTYPE}),
    ]]  # fmt: skip


def _shortened(about: Experiment, details: Spec) -> dict[str, Any]:
    """The experiment's own options; those that hold a method's options keep only non-default ones."""
    own = dict(details["options"])
    if METHOD_OPTIONS in about.options_of:
        own[METHOD_OPTIONS] = details.get(METHOD_OPTIONS) or {}
    for name, key in about.options_of.items():
        if isinstance(inner := own.get(name), Mapping):
            usual = METHODS[key].options
            own[name] = {k: v for k, v in inner.items() if k not in usual or v != usual[k].default}
    return own


def exactly(value: float) -> str:
    """A number as text: `%g` where that is exact, else all digits."""
    return short if float(short := f"{value:g}") == value else str(value)


def _front(details: Spec) -> list[list[str]]:
    options, usual = details["options"], FRONT.options
    question = "heads" if options.get("heads") is not None else "within"
    asked = {name: usual[name] for name in ("by", "orders", "points")}
    return [[
        "headlab", FRONT.key, *said(details, WHERE), f"--{question}", exactly(options[question]),
        *(["--every"] if options["points"] is None else []),
        *said({name: value for name, value in options.items() if value is not None}, asked),
        *_method(details, METHOD_OPTIONS), *said(details, {**JOBS[FRONT.key], **DTYPE}),
    ]]  # fmt: skip


def _gates(details: Spec) -> list[list[str]]:
    """One command per language; weights keep every digit, since another weight is another run."""
    options, given = dict(details.get("options") or {}), details.get("weights")
    stacks, trained = options.pop("stacks", EVERY), options.pop("trained", None)
    weights = (
        [repr(w) for w in given if isinstance(w, int | float)]
        if isinstance(given, list | tuple)
        else []
    )
    return [[
        "headlab", "gates", *said(details, ON_TASK), "--language", language,
        *(word for weight in weights for word in ("--weight", weight)),
        *([] if stacks == EVERY else ["--stacks", str(stacks)]), *(["--train-model"] if trained == EVERY else []),
        *option_words("-o", options, GateOptions.table()), *said(details, {**JOBS["gates"], **DTYPE}),
    ] for language in details.get("languages") or ()]  # fmt: skip


def _roles(details: Spec) -> list[list[str]]:
    """One command per language."""
    file = ["--conllu", str(details.get("trees", "FILE"))] if details.get("split") == FILE else []
    known = {name: option for name, option in JOBS[ROLES].items() if not (file and name == "split")}
    return [[
        "headlab", ROLES, *said(details, ON_SENTENCES), "--language", language, *file, *said(details, known),
        *option_words("-o", details.get("options") or {}, ROLE_OPTIONS),
        *said(details, {"frequencies": Option(None, ""), **DTYPE}),
    ] for language in details.get("languages") or ()]  # fmt: skip


def _worth(details: Spec) -> list[list[str]]:
    known = {**WHERE, **JOBS["worth"]}
    return [
        ["headlab", "worth", "--mask", MASK_FILE, *said(details, known, ("rounds", "batch_sizes"))]
    ]


def _evaluate(details: Spec) -> list[list[str]]:
    """The accuracy of a mask, and the list of the answers that it changes."""
    settings: Settings = {name: Option(None, "") for name in ("mask", "split", "size", "changes")}
    return [["headlab", "evaluate", *said(details, {**WHERE, **settings}, ("split",))]]


def _finetune(details: Spec) -> list[list[str]]:
    return [
        [
            "headlab",
            "finetune",
            str(details["task"]),
            *said(details, JOBS["finetune"], ("steps", "learning_rate")),
        ]
    ]


LINES: Mapping[str, Callable[[Spec], list[list[str]]]] = {
    "score": partial(_scores, "score"),
    "curve": partial(_scores, "curve"),
    "experiment": _experiment,
    FRONT.key: _front,
    "gates": _gates,
    ROLES: _roles,
    "worth": _worth,
    "evaluate": _evaluate,
    "finetune": _finetune,
}


# From a stored result's spec to the job that makes it again.


@dataclass(frozen=True)
class Again:
    """How results are made again. commands: each as words, in order; may be empty.  notes: what they leave out."""

    commands: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """The commands, quoted for a shell."""
        return tuple(map(" ".join, self.quoted))

    @property
    def quoted(self) -> tuple[tuple[str, ...], ...]:
        """The words of each command, quoted for a shell."""
        return tuple(tuple(map(shlex.quote, words)) for words in self.commands)


def job_of(kind: str, spec: Spec) -> tuple[str, dict[str, Any]]:
    """The kind and details of the job that makes a result of this spec; sizes are actual, not as requested.

    The details include a dtype other than float32, which no job can ask for.
    """
    if kind == "report":
        kind = {ROLES: ROLES, FRONT.key: FRONT.key}.get(str(spec.get("experiment")), "experiment")
    languages = [name for name in str(part(spec, "task", "language") or "").split(",") if name]
    details = {"model": part(spec, "model", "name"), **on_task(spec), "languages": languages}
    details |= {"dtype": dtype} if (dtype := part(spec, "model", "dtype")) else {}
    told = {"seed": spec.get("seed", 0), "ablation": spec.get("ablation", "zero")}
    told = {name: value for name, value in told.items() if name not in UNTOLD_OF.get(kind, ())}
    return kind, details | DETAILS[kind](spec) | told


def _score_details(spec: Spec) -> dict[str, Any]:
    return {METHOD: part(spec, "method", "name"), "options": spec["method"]["options"],
            "size": part(spec, "task", "size")}  # fmt: skip


def _curve_details(spec: Spec) -> dict[str, Any]:
    order, removed = spec["order"], spec["removed"]
    points = None if len(removed) == removed[-1] + 1 else len(removed)
    return {METHOD: order["method"], "options": order["options"] or {}, "split": part(spec, "task", "split"),
            "size": part(spec, "task", "size"), "points": points}  # fmt: skip


def _gates_details(spec: Spec) -> dict[str, Any]:
    options = {name: value for name, value in spec["options"].items() if name != "weight"}
    return {"weights": [spec["options"]["weight"]], "options": options}


def _report_details(spec: Spec) -> dict[str, Any]:
    """Details of an experiment or a front: the method and its options are separate from the other options."""
    given = spec.get("options")
    options = dict(given) if isinstance(given, Mapping) else {}
    beside = {name: options.pop(name) for name in (METHOD, METHOD_OPTIONS) if name in options}
    sizes = {
        f"{split}_size": largest(part(spec, "task", "sizes", split)) for split in ("dev", "test")
    }
    return {"experiment": spec.get("experiment"), **beside, "options": options, **sizes}


def largest(sizes: Any) -> int | None:
    """The largest number of examples in a report's list of them, a number a language; None without one."""
    counts = [size for size in sizes if isinstance(size, int)] if isinstance(sizes, list) else []
    return max(counts, default=None)


def _roles_details(spec: Spec) -> dict[str, Any]:
    name, options = part(spec, "task", "name"), part(spec, "options")
    counted = part(spec, "frequencies", "source") not in (None, "none", "wordfreq")
    return {
        "task": None if name == TREEBANK else name,
        "source": "treebank" if name == TREEBANK else "task",
        "split": part(spec, "task", "split") or "dev",
        "size": part(spec, "task", "size"),
        "options": dict(options) if isinstance(options, Mapping) else {},
        **({"frequencies": "FILE"} if counted else {}),
    }


UNTOLD_OF = {
    "gates": ("ablation",),
    ROLES: ("seed", "ablation"),
}  # details that jobs of a kind do not have
DETAILS: Mapping[str, Callable[[Spec], dict[str, Any]]] = {
    "score": _score_details,
    "curve": _curve_details,
    "experiment": _report_details,
    FRONT.key: _report_details,
    "gates": _gates_details,
    ROLES: _roles_details,
}


def again(
    kind: str,
    spec: Spec,
    *,
    dev_size: int | None = None,
    places: Places = NOT_KNOWN,
    paths: bool = True,
) -> Again:
    """How a run of this kind and spec is made again.

    Args:
        kind: Of the result.
        spec: Of the result. An incomplete one gives a note and no command.
        dev_size: For a curve, how many examples ordered its heads, if known.
        places: Where its files are on this machine.
        paths: Whether a declared task is named by its file, where that is known.
    """
    try:
        if reason := _cannot(kind, spec):
            return Again((), (reason,))
        job, details = job_of(kind, spec)
        _require(job, spec)
        details |= {} if dev_size is None else {"dev_size": dev_size}
        commands = lines(job, located(details, places), paths=paths)
        notes = (*_beside(job, spec, dev_size, places), *_shared(spec, places, paths))
    except (HeadlabError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return Again((), ("Its spec does not say all that a command needs.",))
    return Again(tuple(map(tuple, commands)), notes)


@dataclass(frozen=True)
class Known:
    """What a store knows of results besides their specs.

    Attributes:
        dev_size: From the key of scores to the number of their examples; None if they are not in the store.
        places: From the spec of a result to where its files are.
        paths: Whether commands may name files by their paths.
    """

    dev_size: Callable[[str], int | None] = lambda _: None
    places: Callable[[Spec], Places] = lambda _: NOT_KNOWN
    paths: bool = True

    def again(self, kind: str, spec: Spec) -> Again:
        """How a run of this kind and spec is made again."""
        return again(
            kind, spec, dev_size=self.scored(spec), places=self.places(spec), paths=self.paths
        )

    def scored(self, spec: Spec) -> int | None:
        """How many examples the scores are of that ordered a curve; None for another result, or if unknown."""
        key = part(spec, "order", "run")
        return None if key is None else self.dev_size(str(key))


# Names that mean a file, as the path that it has here.


def located(details: Spec, places: Places) -> dict[str, Any]:
    """The details of a job with paths in place of names, where it is known which files they mean.

    Args:
        details: Of the job, as `job_of` gives them.
        places: Where its files are on this machine.
    """
    paths: dict[str, Any] = {"model": model_word(str(details["model"]), places.model)}
    if places.data is not None:
        paths["data"] = str(places.data)
    if places.declaration is not None and details.get("task") not in (None, *TASKS):
        paths["task"] = str(places.declaration)
    if places.trees is not None:
        paths["trees"] = str(places.trees)
    if places.corpus is not None and "frequencies" in details:
        paths["frequencies"] = str(places.corpus)
    return {**details, **paths}


def model_word(name: str, folder: Path | None) -> str:
    """What `--model` takes: the name in the results, or the model's folder if the name does not lead there.

    A name that leads to the folder stays as it is, because it is part of the keys of the results.

    Args:
        name: Of the model, as the results have it.
        folder: That the model was read from, if it was one and it is known.
    """
    if folder is None or leads_to(name, folder):
        return name
    return str(folder)


def leads_to(name: str, folder: Path) -> bool:
    """Whether a name is a path, from the working directory, of this folder."""
    try:
        return Path(name).samefile(folder)
    except (OSError, ValueError):  # there is nothing of this name, or no file can have it
        return False


def _require(job: str, spec: Spec) -> None:
    """Raise LookupError unless a spec has all that a command of this kind needs: a default would be another run."""
    named = [
        part(spec, *path) for path in (("model", "name"), ("task", "name"), ("task", "language"))
    ]
    there = [isinstance(name, str) and bool(name) for name in named]
    there += [name in spec for name in ("seed", "ablation") if name not in UNTOLD_OF.get(job, ())]
    if job in ("experiment", FRONT.key):
        there += [
            bool(part(spec, "task", "sizes", "dev")),
            isinstance(part(spec, "task", "sizes", "test"), list),
        ]
    if job not in ("score", "curve"):
        there += [isinstance(spec.get("options"), Mapping)]
    if job == "gates":
        there += [isinstance(part(spec, "options", "weight"), int | float)]
    if not all(there):
        raise LookupError("it does not say all that a command needs")


def _cannot(kind: str, spec: Spec) -> str:
    """Why no command makes this result, or empty."""
    classes = part(spec, "task", "classes") or {}
    if len({*classes.values()}) < len(classes):
        return (
            "Two of the model's classes have the same name, and the spec has their names alone: no command can tell "
            "them apart. Type it with the classes' numbers in --label-map."
        )
    if kind == "score" and part(spec, "task", "split") != "dev":
        return "Scores of another split than dev are made from Python: headlab.score(…, split=…)."
    if kind == "report" and str(name := spec.get("experiment")) not in (
        ROLES,
        FRONT.key,
        *EXPERIMENTS,
    ):
        return f"No command is known here for reports of {name}."
    if kind != "curve":
        return ""
    order = spec["order"]
    if order["method"].startswith(WALK):
        return (
            f"headlab front makes it on its way: over {order['language']}, along the order "
            f"{order['method'][len(WALK) :]} by {part(order, 'options', 'of')} scores, {order['ablation']} ablation, "
            f"seed {order['seed']}. Report the front itself for its command."
        )
    same = {
        "task": part(spec, "task", "name"),
        "split": "dev",
        "language": part(spec, "task", "language"),
    }
    same |= {"seed": spec["seed"], "ablation": spec["ablation"]}
    told = ", ".join(
        f"{name} {order.get(name)}" for name, value in same.items() if order.get(name) != value
    )
    return (
        f"Its heads were ordered by other scores ({told}): from Python, headlab.prune_curve(…, scores=…)."
        * bool(told)
    )


def _beside(job: str, spec: Spec, dev_size: int | None, places: Places) -> Iterator[str]:
    """Notes on what a command of this kind leaves out."""
    methods = (
        part(spec, *path) for path in (("method", "name"), ("order", "method"), ("options", METHOD))
    )
    for method in methods:
        if isinstance(method, str) and method not in METHODS:
            yield f"The method {method} comes with a package that has to be installed."
    if job == "curve" and dev_size is None:
        yield f"How many dev examples ordered the heads is not recorded in its spec; {DEV_SIZE} is the default."
    source = part(spec, "frequencies", "source") if job == ROLES else None
    if source == "none":
        yield "Made without word frequencies: where the package wordfreq is installed, rare words are judged too."
    elif source not in (None, "wordfreq") and places.corpus is None:
        yield f"Word frequencies were counted in a text of yours ({source}): name it in place of FILE."


def _shared(spec: Spec, places: Places, paths: bool) -> Iterator[str]:
    """Notes that hold for commands of every kind."""
    yield from _of_model(spec, places)
    yield from _of_task(str(part(spec, "task", "name")), places, paths)
    if part(spec, "task", "seed"):
        yield f"The task's own seed was {part(spec, 'task', 'seed')}, which is set from Python alone."


def _of_model(spec: Spec, places: Places) -> Iterator[str]:
    """What to know of the model in a command."""
    name, revision = str(part(spec, "model", "name")), part(spec, "model", "revision")
    if COMMIT.fullmatch(str(revision)):
        yield f"The model's revision was {revision}; the commands load the newest one of the hub."
    if revision != UNVERSIONED:
        return
    if places.model is None:
        yield "The model is a folder: give the path that it has where you are."
    elif leads_to(name, places.model) and not Path(name).is_absolute():
        yield f"The model's path is relative: run the commands in {Path.cwd()}."


def _of_task(task: str, places: Places, paths: bool) -> Iterator[str]:
    """What to know of the task in a command: where its files are looked for. paths: as in `again`."""
    if task == TREEBANK:
        if places.trees is None and places.data is None:
            yield "Treebanks are looked for in $HEADLAB_DATA; name another folder with --data."
    elif task in TASKS and task not in BUILT_IN:
        yield f"The task {task} comes with a package that has to be installed."
    elif task in SOURCES:
        if places.data is None:
            yield f"The files of {task} are looked for in $HEADLAB_DATA; name another folder with --data."
    elif task not in BUILT_IN and not paths:
        yield f"The task {task} is declared in a file: give its path in place of {task}, like --task FILE.toml."
    elif task not in BUILT_IN and places.declaration is None and declaration_of(task) is None:
        yield (
            f"Where the declaration of the task {task} is, is not known here: give its path in place of {task}, like "
            "--task FILE.toml; a report made with headlab report --task FILE.toml has it."
        )


def joined(every: Sequence[Again]) -> Again:
    """All of them as one, each note once; commands that differ only in languages are merged."""
    merged: dict[tuple[str, ...], list[str]] = {}
    for words in (words for one in every for words in one.commands):
        at = words.index(LANGUAGES) + 1 if LANGUAGES in words else 0
        merged.setdefault((*words[:at], "", *words[at + 1 :]) if at else words, []).append(
            words[at] if at else ""
        )
    commands = []
    for words, languages in merged.items():
        at = words.index(LANGUAGES) + 1 if LANGUAGES in words else 0
        commands.append(
            (*words[:at], ",".join(dict.fromkeys(languages)), *words[at + 1 :]) if at else words
        )
    return Again(tuple(commands), tuple(dict.fromkeys(note for one in every for note in one.notes)))


# How a mask was made: the commands that choose its heads again, as far as the file records them.

MADE_FROM = ("score", "gates", "front")  # keys of the specs in a file that a mask was made from
RULES = ("harmful", "bottom", "threshold")
QUESTION = (
    "within",
    "heads",
    "by",
)  # options that pose a front's question; only the mask that answers it has one
CACHE = "headlab prune takes scores of the cache: give both commands the same --cache."
UNTOLD = "The file does not record how its heads were chosen."
NO_COMMAND = "No command makes this mask from them; in Python, scores.mask(…) and curve.mask(k) do."
BARE = (
    "The file does not record the front's number of examples, points and seed, the method's options, or the orders "
    "that were tried; the defaults are used here."
)


NOT_SHRUNK = "Its heads were chosen under mean ablation, so headlab shrink refuses it: removed from the weights, they give 0."


@dataclass(frozen=True)
class MaskFile:
    """A mask whose commands are to be told.

    Attributes:
        mask: As its file has it.
        model: Name or path of its model, as `--model` takes it.
        out: File that a command writes it to.
        known: What the store of the report knows.
    """

    mask: Mask
    model: str
    out: str
    known: Known = field(default_factory=Known)

    def spec(self, name: str) -> Mapping[str, Any]:
        """The spec that its heads were chosen by, of the kind "score", "gates" or "front"; empty without one."""
        spec = self.mask.chosen.get(name)
        return spec if isinstance(spec, Mapping) else {}


def cut(file: MaskFile) -> Again:
    """How a mask is made again: the commands for what its heads were chosen by, then the one that writes the mask.

    If no command does it, or the file does not say how, a note says so.
    """
    rule = str(file.mask.chosen.get("rule") or "")
    ways: dict[str, Callable[[MaskFile], Again]] = {
        "front": _mask_of_front,
        "gates": _mask_of_gates,
    }
    ways |= dict.fromkeys(RULES, _pruned)
    try:
        return ways.get(rule, _otherwise)(file)
    except (HeadlabError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return Again((), ("The file does not record all that a command for its mask needs.",))


def _pruned(file: MaskFile) -> Again:
    """A mask chosen from scores by a rule, or as the first heads of a curve's order, which those scores gave."""
    chosen, spec = file.mask.choice, file.spec("score")
    if "pooled" in chosen:
        return Again(
            (),
            (
                "Its heads were chosen by mean scores over languages: only the Prune page does that.",
            ),
        )
    if not spec:
        return Again((), ("The file does not record the scores that its heads were chosen by.",))
    made = file.known.again(kind_of(spec), spec)
    of_scores = part(spec, "order") or spec.get("task")
    if (
        not made.commands
        or part(of_scores, "split") != "dev"
        or chosen.get("method") not in METHODS
    ):
        return Again(made.commands, (*made.notes, NO_COMMAND))
    where = located({**on_task(spec), "model": file.model}, file.known.places(spec))
    words = [
        "headlab",
        "prune",
        *said({**where, "languages": [str(part(of_scores, "language"))]}, WHERE),
        *_scores_of(chosen["method"], spec, file.known.scored(spec)),
        *("--rule", str(chosen["rule"])),
    ]
    words += ["--correction", str(chosen["correction"])] if "correction" in chosen else []
    words += ["--k", str(int(chosen["k"]))] if "k" in chosen else []
    words += [f"--threshold={chosen['threshold']}"] if "threshold" in chosen else []
    return Again((*made.commands, (*words, "--out", file.out)), (*made.notes, CACHE))


def _scores_of(key: str, spec: Spec, dev_size: int | None) -> list[str]:
    """The flags of `headlab prune` that single out scores, whatever other ones the cache has.

    Args:
        key: Of the method.
        spec: Of the scores, or of the curve that they ordered.
        dev_size: Number of their examples for a curve, whose spec does not say it; None if unknown.
    """
    known = METHODS[key].options
    recorded = part(spec, "method", "options") or part(spec, "order", "options") or {}
    words = ["--method", key]
    for name, value in recorded.items():
        if name in known:
            words += ["-o", f"{name}={written(value)}"]
    size = part(spec, "task", "size") if kind_of(spec) == "score" else dev_size
    for flag, value in (
        ("--dev-size", size),
        ("--seed", spec.get("seed")),
        ("--ablation", spec.get("ablation")),
    ):
        if value is not None:
            words += [flag, str(value)]
    return words


def on_task(spec: Spec) -> dict[str, Any]:
    """The task of a spec, as the details of a job have it, with the model's class of each label if that is recorded."""
    classes = part(spec, "task", "classes")
    return {"task": part(spec, "task", "name"), **({"label_map": classes} if classes else {})}


def _mask_of_gates(file: MaskFile) -> Again:
    """A mask from learned gates, whose command writes a folder of masks."""
    chosen, spec = file.mask.choice, file.spec("gates")
    made, steps = file.known.again(kind_of(spec), spec), part(spec, "options", "steps")
    if not made.commands:
        return made
    (words,) = made.commands
    notes = [f"It writes the mask as gates/gates-{float(chosen['weight']):.12g}.json."]
    if chosen.get("step") != steps:
        notes.append(
            f"This mask is of step {chosen.get('step')} of {steps}; the command writes that of the last step; in "
            "Python, use gates.mask(time)."
        )
    return Again(((*words, "--out", "gates"),), (*made.notes, *notes))


def _mask_of_front(file: MaskFile) -> Again:
    """A mask from a front: the answer to its question, or another model, which is the best of its size on its order."""
    mask, chosen, spec = file.mask, file.mask.choice, file.spec("front")
    of_front, notes = spec or _bare(mask, file.model), () if spec else (BARE,)
    if not any(name in chosen for name in QUESTION):
        order = str(chosen["order"])
        if order.startswith("own ") and len(chosen["languages"]) > 1:
            told = f"It is a front's model along the order {order}, not its answer: make its mask on the Prune page."
            return Again((), (told,))
        question = {"within": None, "heads": int(mask.kept.sum()), "orders": order.split()[0]}
        of_front = {**of_front, "options": {**of_front["options"], **question}}
    made = file.known.again("report", of_front)
    if not made.commands:
        return made
    return Again(((*made.commands[0], "--out", file.out),), (*made.notes, *notes))


def _bare(mask: Mask, model: str) -> dict[str, Any]:
    """The spec of a front, reconstructed as far as possible from a mask that does not carry it."""
    chosen = mask.choice
    asked = {name: mask.chosen[name] for name in ("method", *QUESTION) if name in chosen}
    return {
        "experiment": FRONT.key, "model": {**mask.model, "name": model}, "options": FRONT.resolve(asked), "seed": 0,
        "task": {"name": chosen["task"], "language": ",".join(chosen["languages"]),
                 "sizes": {"dev": [DEV_SIZE], "test": []}},
        "ablation": chosen.get("ablation", "zero"),
    }  # fmt: skip


def _otherwise(file: MaskFile) -> Again:
    """A mask by a rule that no command has: what the file says about it."""
    rule = str(file.mask.chosen.get("rule") or "")
    made = [
        file.known.again(kind_of(spec), spec) for name in MADE_FROM if (spec := file.spec(name))
    ]
    if made:
        return joined([*made, Again((), (UNTOLD,))])
    if rule == "by hand":
        return Again(
            (), ("Its heads were switched by hand on the Prune page: no command does that.",)
        )
    if rule.startswith("combined: "):
        how = rule.removeprefix("combined: ")
        return Again(
            (),
            (
                "It was combined of other masks, which the file does not hold: headlab mask combine … --how "
                f"{how} --out {file.out}",
            ),
        )
    return Again((), (UNTOLD,))
