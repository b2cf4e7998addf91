"""Gates that are to be learned: at which weights, with which options; the job's spec and the command line.

No streamlit here: whoever starts the job reads the values again, as with a new job of the Jobs page.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headlab.errors import HeadlabError
from headlab.options import option_words
from headlab.training.l0.options import OPTIONS, options_of
from headlab.ui.shell import Choice

WEIGHTS = "0.003, 0.01, 0.03, 0.1"
WEIGHT = "weight"  # the one option that has several values
MAIN = ("steps", "trained", "stacks", "start")  # those that most people set
FLAGS = {"stacks": "--stacks", "trained": "--train-model"}  # options that have a flag of their own
MOST = 20  # weights of one job
COMMA = re.compile(r"(?<![\w.+-])\d+,\d+(?![\w.])")  # between whole numbers, where some write a decimal point


@dataclass(frozen=True)
class Plan:
    """What one job would learn: gates of a model on a task, in some languages, at every weight."""

    choice: Choice
    languages: tuple[str, ...]

    def spec(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The job's spec. state: values of the widgets drawn so far; the rest are at their defaults.

        Raises HeadlabError for weights that are none.
        """
        return {
            "model": self.choice.model,
            "task": self.choice.task,
            "languages": list(self.languages),
            "weights": weights_from(str(state.get(key("weights"), WEIGHTS))),
            "options": {name: state.get(key(name), OPTIONS[name].default) for name in others()},
            "seed": state.get(key("seed"), 0),
        }


def key(name: str) -> str:
    """Key of a widget."""
    return f"gates-plan-{name}"


def others() -> tuple[str, ...]:
    """Every option but the weight, those that most people set first."""
    return (*MAIN, *(name for name in OPTIONS if name not in MAIN and name != WEIGHT))


def weights_from(text: str) -> list[float]:
    """'0.01, 0.03' as numbers, each once and rising. Raises HeadlabError for what is not a weight, or may be two."""
    if (unclear := COMMA.search(text)) is not None:
        one = unclear.group()
        raise HeadlabError(
            f"{one!r:.40} may be one weight or two; write {one.replace(',', '.'):.40} for one, a space after the comma "
            "for two",
            code="gate.weight_ambiguous",
        )
    words = text.replace(";", " ").replace(",", " ").split()
    found = {_weight(word) for word in words}
    if not found or len(found) > MOST:
        raise HeadlabError(
            f"{len(found)} weights are given; name 1 to {MOST}, with commas between, such as {WEIGHTS}",
            code="gate.weight_count_out_of_range",
        )
    return sorted(found)


def _weight(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise HeadlabError(
            f"{word!r:.40} is not a weight; name numbers of 0 or more, with commas between: {WEIGHTS}",
            code="gate.weight_invalid",
        )
    return value


def trouble(spec: Mapping[str, Any]) -> str:
    """Why this cannot be started, or empty."""
    try:
        options_of(dict(spec["options"]), spec["seed"])
    except HeadlabError as error:
        return f"{error}."
    return ""


def command(spec: Mapping[str, Any], dtype: str = "") -> str:
    """The command lines that do the same as a spec, one a language. dtype: of the model, where it is not the usual."""
    more = ["--dtype", dtype] if dtype else []
    return "\n".join(shlex.join([*_words(spec, language), *more]) for language in spec.get("languages") or ())


def _words(spec: Mapping[str, Any], language: str) -> Iterator[str]:
    yield from ("headlab", "gates", "--model", str(spec["model"]), "--task", str(spec["task"]), "--language", language)
    for weight in _listed(spec.get("weights")):
        yield from ("--weight", repr(weight))  # all its digits: another weight is another run
    options = spec.get("options") or {}
    for name, flag in FLAGS.items():
        if options.get(name, OPTIONS[name].default) != OPTIONS[name].default:
            yield from (flag, str(options[name])) if name == "stacks" else (flag,)
    yield from option_words("-o", {name: value for name, value in options.items() if name not in FLAGS}, OPTIONS)
    if spec.get("seed"):
        yield from ("--seed", str(spec["seed"]))


def _listed(weights: Any) -> Sequence[float]:
    return [w for w in weights if isinstance(w, int | float)] if isinstance(weights, list | tuple) else []
