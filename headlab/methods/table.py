"""The table of methods: command line, pages and documents read it; it needs no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headlab.errors import HeadlabError


@dataclass(frozen=True)
class Option:
    """One option of a method: its default decides its type; choices, if any, are all it may be."""

    default: Any
    help: str
    choices: tuple[str, ...] = ()
    kind: type = str


@dataclass(frozen=True)
class Method:
    """One way to score heads.

    signed: positive = helps, negative = harms (else only larger = more).  intervals: gives intervals and
    p-values.  module: where its `run(work)` lives, below headlab.methods.
    """

    key: str
    title: str
    cost: str
    paper: str
    estimand: str
    unit: str
    signed: bool
    intervals: bool
    module: str
    options: Mapping[str, Option]

    def resolve(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All options, given ones checked, the rest at their defaults. Raises HeadlabError for unknown ones."""
        unknown = sorted(set(given) - set(self.options))
        if unknown:
            raise HeadlabError(
                f"method {self.key} has no option {', '.join(unknown)}; it has {', '.join(self.options) or 'none'}"
            )
        return {
            name: _checked(self.key, name, option, given.get(name, option.default))
            for name, option in self.options.items()
        }


def _checked(method: str, name: str, option: Option, value: Any) -> Any:
    if value is None and option.default is None:
        return None
    good = type(value) is option.kind or (option.kind is float and type(value) is int)
    if not good or (option.choices and value not in option.choices):
        fits = " or ".join(option.choices) if option.choices else option.kind.__name__
        raise HeadlabError(f"method {method}: {name} is {value!r}, but must be {fits}")
    return option.kind(value)


LEVEL = Option(0.95, "confidence level of the intervals", kind=float)
METHODS: dict[str, Method] = {
    method.key: method
    for method in (
        Method(
            "shapley",
            "Shapley value (sampled orders)",
            "samples × heads forwards, each started at the layer that changed",
            "Held & Yang, EACL 2023; Castro et al. 2009",
            "shapley-top50",
            "accuracy",
            True,
            True,
            "shapley",
            {
                "estimand": Option(
                    "shapley-top50", "walk until half the heads are gone, or to the end", ("shapley-top50", "shapley")
                ),
                "samples": Option(
                    512, "samples a head at most; one sample is one example and two opposite orders", kind=int
                ),
                "target": Option(None, "stop when every head has a decided sign or this half-width", kind=float),
                "level": LEVEL,
                "round": Option(256, "samples between two checkpoints", kind=int),
            },
        ),
        Method(
            "gradient",
            "Gradient importance",
            "1 forward and backward an example",
            "Michel, Levy & Neubig, NeurIPS 2019",
            "gradient",
            "loss",
            False,
            False,
            "gradient",
            {
                "form": Option(
                    "example",
                    "absolute value per example (the paper), per token, or per batch",
                    ("example", "token", "batch"),
                ),
                "normalise": Option(False, "divide each layer's scores by their Euclidean length", kind=bool),
                "batch_size": Option(32, "examples a batch (changes the scores of form batch only)", kind=int),
            },
        ),
        Method(
            "leave-one-out",
            "Leave one out",
            "heads × examples forwards, each started at the head's layer",
            "Michel, Levy & Neubig, NeurIPS 2019, section 3.2",
            "leave-one-out",
            "accuracy",
            True,
            True,
            "leave_one_out",
            {"level": LEVEL},
        ),
        Method(
            "confidence",
            "Confidence (largest attention weight)",
            "1 forward an example",
            "Voita et al., ACL 2019, section 4",
            "confidence",
            "attention weight",
            False,
            False,
            "confidence",
            {
                "exclude": Option("separator", "tokens that do not count as targets", ("separator", "special", "none")),
            },
        ),
        Method("random", "Random", "none", "baseline", "random", "none", False, False, "random", {}),
    )
}


def method(key: str) -> Method:
    """A method by its key. Raises HeadlabError listing the keys."""
    if key not in METHODS:
        raise HeadlabError(f"unknown method {key!r}; use one of {', '.join(METHODS)}")
    return METHODS[key]
