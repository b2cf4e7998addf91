"""An experiment that is being put together: its widgets' keys, the job's spec, the command line. No streamlit here.

Whoever starts the job reads the values again, as with a new job of the Jobs page.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headlab.errors import HeadlabError
from headlab.methods.table import METHODS
from headlab.options import option_words
from headlab.studies.table import EXPERIMENTS, METHOD, METHOD_OPTIONS, Experiment
from headlab.tasks.base import DEV_SIZE
from headlab.ui.shell import Choice

ABLATIONS = ("zero", "mean")
USUAL: Mapping[str, Any] = {"seed": 0, "dev_size": DEV_SIZE, "test_size": None, "ablation": "zero"}
FLAGS = {"seed": "--seed", "dev_size": "--size", "test_size": "--test-size", "ablation": "--ablation"}
ALL = 100_000  # examples of dev, on the command line: more than any task has
Choices = Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    """What would be computed: an experiment on the sidebar's choice."""

    experiment: str
    choice: Choice

    @property
    def about(self) -> Experiment:
        """What the experiment is."""
        return EXPERIMENTS[self.experiment]

    @property
    def uses_method(self) -> bool:
        """Whether the sidebar's method matters."""
        return METHOD in self.about.options

    def own_options(self) -> list[str]:
        """The experiment's options that have a widget of their own."""
        return [name for name, option in self.about.options.items() if name != METHOD and option.kind is not dict]

    def method_options(self) -> list[str]:
        """Options of the method that can be set."""
        return list(METHODS[self.choice.method].options) if self.uses_method else []

    def key(self, name: str, *of: str) -> str:
        """Key of a widget. of: what else its value depends on."""
        return "-".join(("plan", *of, name))

    def option_key(self, name: str) -> str:
        """Key of the widget of one of the experiment's options."""
        return self.key(name, self.experiment)

    def method_key(self, name: str) -> str:
        """Key of the widget of one of the method's options."""
        return self.key(name, "method", self.choice.method)

    def spec(self, state: Choices) -> dict[str, Any]:
        """The job's spec. state: values of the widgets drawn so far; the rest are at their defaults."""
        options, method = self.about.options, METHODS[self.choice.method].options
        given = {name: state.get(self.option_key(name), options[name].default) for name in self.own_options()}
        own = {name: state.get(self.method_key(name), method[name].default) for name in self.method_options()}
        return {
            "experiment": self.experiment,
            "model": self.choice.model,
            "task": self.choice.task,
            "languages": list(self.choice.languages),
            **({"method": self.choice.method} if self.uses_method else {}),
            **({"method_options": own} if METHOD_OPTIONS in options and own else {}),
            "options": given,
            **{name: state.get(self.key(name), usual) for name, usual in USUAL.items()},
        }

    def trouble(self, spec: Mapping[str, Any]) -> str:
        """Why this cannot be started, or empty."""
        least, have = self.about.least_languages, len(self.choice.languages)
        if have < least:
            return (
                "Choose a language." if least == 1 else f"{self.about.title} takes {least} languages; {have} is chosen."
            )
        try:
            self.about.resolve(resolvable(spec))
        except HeadlabError as error:
            return f"{error}."
        return ""


def resolvable(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a spec as `Experiment.resolve` takes them."""
    beside = {name: spec[name] for name in (METHOD, METHOD_OPTIONS) if spec.get(name) is not None}
    fits = EXPERIMENTS[spec["experiment"]].options
    return {**spec["options"], **{name: value for name, value in beside.items() if name in fits}}


def command(spec: Mapping[str, Any]) -> str:
    """The command line that does the same as a spec."""
    about = EXPERIMENTS[spec["experiment"]]
    words = ["headlab", "experiment", about.key]
    for name in ("model", "task"):
        words += [f"--{name}", str(spec[name])]
    words += ["--languages", ",".join(spec["languages"])]
    if METHOD in about.options and spec.get(METHOD) in METHODS:
        words += ["--method", str(spec[METHOD])]
        words += option_words("-o", spec.get(METHOD_OPTIONS) or {}, METHODS[spec[METHOD]].options)
    words += option_words("--option", _shortened(about, spec), about.options)
    for name, usual in USUAL.items():
        if spec.get(name, usual) != usual:
            words += [FLAGS[name], str(ALL if spec[name] is None else spec[name])]
    words += ["--dtype", str(spec["dtype"])] if spec.get("dtype") else []
    return shlex.join(words)


def _shortened(about: Experiment, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The experiment's own options; of those that hold a method's options only what is not at its default."""
    own = dict(spec["options"])
    if METHOD_OPTIONS in about.options_of:
        own[METHOD_OPTIONS] = spec.get(METHOD_OPTIONS) or {}
    for name, key in about.options_of.items():
        if isinstance(inner := own.get(name), Mapping):
            usual = METHODS[key].options
            own[name] = {k: v for k, v in inner.items() if k not in usual or v != usual[k].default}
    return own
