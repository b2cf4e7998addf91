"""How a mask came about: the command that chooses its heads again, as far as the file tells it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headlab.errors import HeadlabError
from headlab.htmlreport.commands import DEV_EXAMPLES, LANGUAGES, Again, again, joined, part
from headlab.masks import Mask
from headlab.methods.table import METHODS
from headlab.store.folder import kind_of
from headlab.studies.pareto import ABOUT as FRONT
from headlab.studies.pareto import resolve

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
    ways: dict[str, Callable[[Mask, str, str], Again]] = {"front": _front, "gates": _gates}
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


def _gates(mask: Mask, model: str, file: str) -> Again:
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


def _front(mask: Mask, model: str, file: str) -> Again:
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
