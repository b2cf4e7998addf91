"""A job that is being put together: its widgets' keys, and the spec that their values say. No streamlit here.

Whoever starts the job reads the values again: a number that was typed just before the click comes in the same
request, and the page has not run with it yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headlab.methods.table import METHODS

PREFIX = "new-"  # of the keys of its widgets
SIZE = 512
STEPS, RATE = 400, 1e-3
ABLATIONS = ("zero", "mean")
SPLITS = ("test", "dev")  # a curve is judged on test: its order was chosen on dev
Choices = Mapping[str, Any]


@dataclass(frozen=True)
class Draft:
    """A new job's widgets, by the sidebar's choice from which they start.

    A key holds what its widget depends on, so that a widget starts again when that changes.
    """

    model: str
    task: str
    languages: tuple[str, ...]
    method: str

    def key(self, name: str, *of: str) -> str:
        """Key of a widget. of: what else its value depends on."""
        start = {"model": self.model, "task": self.task, "method": self.method}.get(name, "")
        if name == "languages":
            start = ",".join(self.languages)
        return PREFIX + "-".join((name, start, *of))

    def kind(self, state: Choices) -> str:
        """Kind of job."""
        return str(state.get(self.key("kind")) or "score")

    def place(self, state: Choices) -> str:
        """Where it is to run."""
        return str(state.get(self.key("place")) or "here")

    def spec(self, state: Choices) -> dict[str, Any]:
        """The job's spec. state: values of the widgets drawn so far; the rest are at their defaults."""
        kind = self.kind(state)
        task = str(state.get(self.key("task")) or self.task)
        seed = state.get(self.key("seed"), 0)
        if kind == "finetune":
            steps, rate = state.get(self.key("steps"), STEPS), state.get(self.key("rate"), RATE)
            return {"task": task, "steps": steps, "learning_rate": rate, "seed": seed}
        method = str(state.get(self.key("method")) or self.method)
        about = {
            "model": str(state.get(self.key("model")) or self.model),
            "task": task,
            "languages": list(state.get(self.key("languages", task), self.languages)),
            "method": method,
            "options": self.options(method, state),
            "seed": seed,
            "ablation": state.get(self.key("ablation")) or ABLATIONS[0],
        }
        if kind == "curve":
            return {
                **about,
                "split": state.get(self.key("split")) or SPLITS[0],
                "points": state.get(self.key("points")),
            }
        return {**about, "size": state.get(self.key("size"), SIZE)}

    def options(self, method: str, state: Choices) -> dict[str, Any]:
        """The options of a method."""
        options = METHODS[method].options
        return {name: state.get(self.key("option", method, name), o.default) for name, o in options.items()}


def main_options(method: str) -> list[str]:
    """The options that most people set: how much is drawn, and what is estimated."""
    return [name for name in ("estimand", "form", "samples", "target") if name in METHODS[method].options]


def other_options(method: str) -> list[str]:
    """The rest."""
    return [name for name in METHODS[method].options if name not in main_options(method)]


def fitting(languages: Iterable[str], of: Iterable[str]) -> list[str]:
    """Those of the languages that a task has, in the task's order."""
    wanted = set(languages)
    return [language for language in of if language in wanted]
