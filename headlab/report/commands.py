"""The command lines that make a result or a mask again; what a command cannot say is a note beside it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headlab.errors import HeadlabError
from headlab.masks import Mask
from headlab.methods.table import METHODS
from headlab.options import option_words, written
from headlab.roles.table import FILE
from headlab.roles.table import NAME as ROLES
from headlab.roles.table import OPTIONS as ROLE_OPTIONS
from headlab.store.folder import kind_of
from headlab.studies.pareto import ABOUT as FRONT
from headlab.studies.pareto import resolve
from headlab.studies.table import EXPERIMENTS, METHOD, METHOD_OPTIONS
from headlab.tasks import TASKS
from headlab.training.l0_options import ALL as EVERY
from headlab.training.l0_options import OPTIONS as GATE_OPTIONS

# The command lines that make a result again, from its spec alone; what a command cannot say is a note beside it.

DEV_EXAMPLES = 512  # the default size of the split that chooses
TREES = "treebank"
WALK = "front "  # what the method of a walk along a front's order begins with
LANGUAGES = "--languages"
EMBEDDED_TASKS = ("intents", "slots")
Spec = Mapping[str, Any]


@dataclass(frozen=True)
class Again:
    """How results are made again. commands: each in words, in their order; none where there is none.  notes: beside."""

    commands: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """The commands as a shell reads them."""
        return tuple(map(" ".join, self.quoted))

    @property
    def quoted(self) -> tuple[tuple[str, ...], ...]:
        """The words of each command as a shell reads them."""
        return tuple(tuple(map(shlex.quote, words)) for words in self.commands)


def part(spec: Any, *path: str) -> Any:
    """What a spec says at a place, None where it says nothing."""
    value = spec
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def again(kind: str, spec: Spec, *, dev_size: int | None = None) -> Again:
    """How a run of this kind and spec is made again.

    dev_size: of a curve, how many examples ordered its heads, where that is known.  A spec that is not whole gives no
    command and a note.
    """
    try:
        words, notes = WORDS[kind](spec, dev_size)
    except (HeadlabError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return Again((), ("Its spec does not say all that a command needs.",))
    if not words:
        return Again((), tuple(notes))
    return Again((tuple(words),), (*notes, *_shared(spec)))


def _shared(spec: Spec) -> Iterator[str]:
    """What no command says, whatever its kind."""
    task = str(part(spec, "task", "name"))
    if part(spec, "model", "revision") == "folder":
        yield "The model is a folder: give the path that it has where you are."
    if task == TREES:
        yield "Treebanks are looked for in $HEADLAB_DATA; name another folder with --data."
    elif task not in EMBEDDED_TASKS:
        where = "" if task in TASKS else ", or the declaration of the task with --task FILE.toml"
        yield f"The files of {task} are looked for in $HEADLAB_DATA; name another folder with --data{where}."
    if part(spec, "task", "seed"):
        yield f"The task's own seed was {part(spec, 'task', 'seed')}, which is set from Python alone."


def _start(command: str, spec: Spec, languages: str = LANGUAGES) -> list[str]:
    return [
        "headlab", command, "--model", str(spec["model"]["name"]), "--task", str(spec["task"]["name"]), languages,
        str(spec["task"]["language"]),
    ]  # fmt: skip


def _unless(flag: str, value: Any, usual: Any) -> list[str]:
    return [] if value == usual else [flag, str(value)]


def _dtype(spec: Spec) -> list[str]:
    return _unless("--dtype", part(spec, "model", "dtype") or "float32", "float32")


def _precise(spec: Spec, notes: list[str]) -> None:
    """Note a precision that a command without --dtype cannot ask for."""
    if _dtype(spec):
        notes.append(f"It was made in {part(spec, 'model', 'dtype')}: from Python, headlab.load(…, dtype=…).")


def _score(spec: Spec, _: int | None) -> tuple[list[str], list[str]]:
    method, notes = METHODS[part(spec, "method", "name")], list[str]()
    _precise(spec, notes)
    if part(spec, "task", "split") != "dev":
        return [], [*notes, "Scores of another split than dev are made from Python: headlab.score(…, split=…)."]
    words = [*_start("score", spec), "--method", method.key]
    words += option_words("-o", spec["method"]["options"], method.options)
    words += _unless("--seed", spec["seed"], 0) + _unless("--size", part(spec, "task", "size"), DEV_EXAMPLES)
    return words + _unless("--ablation", spec["ablation"], "zero"), notes


def _curve(spec: Spec, dev_size: int | None) -> tuple[list[str], list[str]]:
    order, notes = spec["order"], list[str]()
    if order["method"].startswith(WALK):
        return [], [_walk(order)]
    method, removed, heads = METHODS[order["method"]], spec["removed"], spec["removed"][-1]
    _precise(spec, notes)
    same = {"task": part(spec, "task", "name"), "split": "dev", "language": part(spec, "task", "language")}
    same |= {"seed": spec["seed"], "ablation": spec["ablation"]}
    other = [name for name, value in same.items() if order.get(name) != value]
    if other:
        told = ", ".join(f"{name} {order.get(name)}" for name in other)
        notes.append(f"Its heads were ordered by other scores ({told}): from Python, headlab.prune_curve(…, scores=…).")
        return [], notes
    if dev_size is None:
        notes.append(f"How many dev examples ordered the heads is not told in its spec; {DEV_EXAMPLES} is the default.")
    words = [*_start("curve", spec), "--method", method.key]
    words += option_words("-o", order["options"] or {}, method.options)
    words += [*_unless("--split", part(spec, "task", "split"), "test"), "--size", str(part(spec, "task", "size"))]
    words += _unless("--dev-size", dev_size or DEV_EXAMPLES, DEV_EXAMPLES)
    words += [] if len(removed) == heads + 1 else ["--points", str(len(removed))]
    return words + _unless("--seed", spec["seed"], 0) + _unless("--ablation", spec["ablation"], "zero"), notes


def _walk(order: Spec) -> str:
    return (
        f"headlab front makes it on its way: over {order['language']}, along the order "
        f"{order['method'][len(WALK) :]} by {part(order, 'options', 'of')} scores, {order['ablation']} ablation, seed "
        f"{order['seed']}. Report the front itself for its command."
    )


def _gates(spec: Spec, _: int | None) -> tuple[list[str], list[str]]:
    options = dict(spec["options"])
    words = [*_start("gates", spec, "--language"), "--weight", written(options.pop("weight"))]
    words += _unless("--stacks", options.pop("stacks", EVERY), EVERY)
    words += ["--train-model"] if options.pop("trained", "gates") == EVERY else []
    words += option_words("-o", options, GATE_OPTIONS)
    return words + _unless("--seed", spec["seed"], 0) + _dtype(spec), []


def _report(spec: Spec, _: int | None) -> tuple[list[str], list[str]]:
    name = str(spec.get("experiment"))
    if name == ROLES:
        return _roles(spec)
    if name == FRONT.key:
        return _front(spec)
    if name not in EXPERIMENTS:
        return [], [f"No command is known here for reports of {name}."]
    about, options = EXPERIMENTS[name], dict(spec["options"])
    words = ["headlab", "experiment", name, *_start("", spec)[2:]]
    if METHOD in about.options:
        chosen = METHODS[options.pop(METHOD)]
        words += ["--method", chosen.key, *option_words("-o", options.pop(METHOD_OPTIONS, {}), chosen.options)]
    few = {key: _few(about.options_of.get(key), value) for key, value in options.items()}
    words += option_words("--option", few, about.options)
    return words + _sizes(spec), []


def _sizes(spec: Spec) -> list[str]:
    """How many examples of dev and test, as far as that is told, and the rest that all reports have."""
    sizes = {split: max(part(spec, "task", "sizes", split), default=0) for split in ("dev", "test")}
    words = [*_unless("--size", sizes["dev"], DEV_EXAMPLES), *_unless("--test-size", sizes["test"], 0)]
    words += _unless("--seed", spec["seed"], 0) + _unless("--ablation", spec["ablation"], "zero")
    return words + _dtype(spec)


def _front(spec: Spec) -> tuple[list[str], list[str]]:
    options, chosen = dict(spec["options"]), METHODS[spec["options"][METHOD]]
    words = [*_start(FRONT.key, spec), "--method", chosen.key]
    words += option_words("-o", options[METHOD_OPTIONS], chosen.options)
    words += ["--every"] if options["points"] is None else []
    for name in ("within", "heads", "by", "orders", "points"):
        words += [] if options[name] is None else _unless(f"--{name}", options[name], FRONT.options[name].default)
    return words + _sizes(spec), []


def _few(method: str | None, value: Any) -> Any:
    """Of an option that holds a method's options, those that are not at their defaults."""
    if method is None or not isinstance(value, Mapping):
        return value
    known = METHODS[method].options
    return {name: inner for name, inner in value.items() if name not in known or inner != known[name].default}


def _roles(spec: Spec) -> tuple[list[str], list[str]]:
    task, notes = spec["task"], list[str]()
    words = ["headlab", ROLES, "--model", str(spec["model"]["name"])]
    words += [] if task["name"] == TREES else ["--task", task["name"]]
    words += ["--language", task["language"]]
    words += ["--conllu", "FILE"] if task["split"] == FILE else _unless("--split", task["split"], "dev")
    words += ["--size", str(task["size"]), *option_words("-o", spec["options"], ROLE_OPTIONS)]
    source = part(spec, "frequencies", "source")
    if source not in (None, "none", "wordfreq"):
        words += ["--frequencies", "FILE"]
        notes.append(f"Word frequencies were counted in a text of yours ({source}): name it in place of FILE.")
    elif source == "none":
        notes.append(
            "Made without word frequencies: where the package wordfreq is installed, rare words are judged too."
        )
    return words + _dtype(spec), notes


WORDS = {"score": _score, "curve": _curve, "gates": _gates, "report": _report}


def joined(every: Sequence[Again]) -> Again:
    """All of them, each note once; commands that differ in nothing but the languages are one with all languages."""
    merged: dict[tuple[str, ...], list[str]] = {}
    for words in (words for one in every for words in one.commands):
        at = words.index(LANGUAGES) + 1 if LANGUAGES in words else 0
        merged.setdefault((*words[:at], "", *words[at + 1 :]) if at else words, []).append(words[at] if at else "")
    commands = []
    for words, languages in merged.items():
        at = words.index(LANGUAGES) + 1 if LANGUAGES in words else 0
        commands.append((*words[:at], ",".join(dict.fromkeys(languages)), *words[at + 1 :]) if at else words)
    return Again(tuple(commands), tuple(dict.fromkeys(note for one in every for note in one.notes)))


# How a mask came about: the command that chooses its heads again, as far as the file tells it.

MADE_FROM = ("score", "gates", "front")  # the specs of what a mask was made from, as a file carries them
RULES = ("harmful", "bottom", "threshold")
QUESTION = ("within", "heads", "by")  # of a front; the mask that answers it carries it
CACHE = "headlab prune takes scores of the cache: where it has others of this method, name an empty --cache for both."
UNTOLD = "How its heads were chosen is not told in the file."
NO_COMMAND = "No command makes this mask of them; in Python scores.mask(…) and curve.mask(k) do."
BARE = (
    "The file does not tell the front's number of examples, points and seed, the method's options and the orders that "
    "were tried; here they are the defaults."
)


def cut(mask: Mask, model: str, file: str) -> Again:
    """How a mask's heads are chosen again: what they were chosen by, then the command that writes the mask.

    model: its name.  file: that is written.  Where no command does it, or the file does not say how, a note says so.
    """
    rule = str(mask.chosen.get("rule") or "")
    ways: dict[str, Callable[[Mask, str, str], Again]] = {"front": _mask_of_front, "gates": _mask_of_gates}
    ways |= dict.fromkeys(RULES, _pruned)
    try:
        return ways.get(rule, _otherwise)(mask, model, file)
    except (HeadlabError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return Again((), ("The file does not say all that a command for its mask needs.",))


def _spec(mask: Mask, name: str) -> Mapping[str, Any]:
    found = mask.chosen.get(name)
    return found if isinstance(found, Mapping) else {}


def _pruned(mask: Mask, model: str, file: str) -> Again:
    """By a rule from scores, or as the beginning of a curve's order, which the scores of the same key gave."""
    chosen, spec = mask.chosen, _spec(mask, "score")
    if "pooled" in chosen:
        return Again((), ("Its heads were chosen by scores' means over languages: the Prune page alone does that.",))
    if not spec:
        return Again((), ("The file does not tell the scores that its heads were chosen by.",))
    made, ordered = again(kind_of(spec), spec), part(spec, "order") or spec.get("task")
    language, split = part(ordered, "language"), part(ordered, "split")
    if not made.commands or split != "dev" or chosen.get("method") not in METHODS:
        return Again(made.commands, (*made.notes, NO_COMMAND))
    words = ["headlab", "prune", "--model", model, "--task", str(part(spec, "task", "name")), LANGUAGES, str(language)]
    words += ["--method", METHODS[chosen["method"]].key, "--rule", str(chosen["rule"])]
    words += ["--k", str(int(chosen["k"]))] if "k" in chosen else []
    words += [f"--threshold={chosen['threshold']}"] if "threshold" in chosen else []
    return Again((*made.commands, (*words, "--out", file)), (*made.notes, CACHE))


def _mask_of_gates(mask: Mask, model: str, file: str) -> Again:
    """By learned gates, whose command writes a folder of masks."""
    spec = _spec(mask, "gates")
    made, steps = again(kind_of(spec), spec), part(spec, "options", "steps")
    if not made.commands:
        return made
    (words,) = made.commands
    notes = [f"It writes the mask as gates/gates-{float(mask.chosen['weight']):.12g}.json."]
    if mask.chosen.get("step") != steps:
        notes.append(
            f"This mask is of step {mask.chosen.get('step')} of {steps}; the command writes that of the last: from "
            "Python, gates.mask(time)."
        )
    return Again(((*words, "--out", "gates"),), (*made.notes, *notes))


def _mask_of_front(mask: Mask, model: str, file: str) -> Again:
    """By a front: the answer to its question, or one more of its models, which is the best of its size on its order."""
    chosen, spec = mask.chosen, _spec(mask, "front")
    own, notes = spec or _bare(mask, model), () if spec else (BARE,)
    if not any(name in chosen for name in QUESTION):
        order = str(chosen["order"])
        if order.startswith("own ") and len(chosen["languages"]) > 1:
            told = f"It is a front's model along the order {order}, not its answer: the Prune page makes it a mask."
            return Again((), (told,))
        asked = {"within": None, "heads": int(mask.kept.sum()), "orders": order.split()[0]}
        own = {**own, "options": {**own["options"], **asked}}
    made = again("report", own)
    if not made.commands:
        return made
    return Again(((*made.commands[0], "--out", file),), (*made.notes, *notes))


def _bare(mask: Mask, model: str) -> dict[str, Any]:
    """The spec of a front as far as a mask tells it that carries none."""
    chosen = mask.chosen
    asked = {name: chosen[name] for name in ("method", *QUESTION) if name in chosen}
    return {
        "experiment": FRONT.key, "model": {**mask.model, "name": model}, "options": resolve(asked), "seed": 0,
        "task": {"name": chosen["task"], "language": ",".join(chosen["languages"]),
                 "sizes": {"dev": [DEV_EXAMPLES], "test": []}},
        "ablation": chosen.get("ablation", "zero"),
    }  # fmt: skip


def _otherwise(mask: Mask, model: str, file: str) -> Again:
    """By no rule that a command has: what is told of it."""
    rule = str(mask.chosen.get("rule") or "")
    made = [again(kind_of(spec), spec) for name in MADE_FROM if (spec := _spec(mask, name))]
    if made:
        return joined([*made, Again((), (UNTOLD,))])
    if rule == "by hand":
        return Again((), ("Its heads were switched by hand on the Prune page: no command does that.",))
    if rule.startswith("combined: "):
        return Again((), (f"It was combined of other masks, which the file does not hold: headlab mask combine … --how "
                          f"{rule.removeprefix('combined: ')} --out {file}",))  # fmt: skip
    return Again((), (UNTOLD,))
