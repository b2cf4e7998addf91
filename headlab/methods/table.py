"""The table of methods: command line, pages and documents read it; it needs no model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headlab.errors import HeadlabError
from headlab.values import VALUES, value_of


@dataclass(frozen=True)
class Option:
    """One option of a method.

    choices, if any, are all it may be; numbers lie in [low, high], or strictly between if `open`; None
    fits if `optional`.
    """

    default: Any
    help: str
    choices: tuple[str, ...] = ()
    kind: type = str
    low: float = -math.inf
    high: float = math.inf
    open: bool = False
    optional: bool = False

    def fits(self, value: Any) -> bool:
        """Whether a value has the right type and lies in range."""
        good = type(value) is self.kind or (self.kind is float and type(value) is int)
        if not good or (self.choices and value not in self.choices):
            return False
        if self.kind not in (int, float):
            return True
        try:
            number = float(value)
        except OverflowError:
            return False
        return self.low < number < self.high if self.open else self.low <= number <= self.high

    @property
    def range(self) -> str:
        """What fits, in words."""
        return self._numbers() + (", or none" if self.optional else "")

    def _numbers(self) -> str:
        if self.choices:
            return " or ".join(self.choices)
        if self.open:
            above = f"above {self.low:g}" if self.high == math.inf else f"between {self.low:g} and {self.high:g}"
            return f"a {self.kind.__name__} {above}"
        return self.kind.__name__ + (f" of {self.low:g} or more" if self.low > -math.inf else "")


@dataclass(frozen=True)
class Method:
    """One way to score heads.

    signed: positive = helps, negative = harms (else only larger = more).  intervals: gives intervals and
    p-values.  module: where its `run(work)` lives, below headlab.methods.  caution: what to know before
    its intervals are trusted.  most_heads: of a model that it can be run on.  whole: plays no game whose parts
    several devices could share, so one runs all of it.
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
    caution: str = ""
    most_heads: int | None = None
    whole: bool = False

    def unit_of(self, options: Mapping[str, Any]) -> str:
        """Unit of the scores that these options give."""
        return value_of(str(options["value"])).unit if "value" in options else self.unit

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
    if value is None and option.optional:
        return None
    if not option.fits(value):
        raise HeadlabError(f"method {method}: {name} is {value!r}, but must be {option.range}")
    return option.kind(value)


LEVEL = Option(0.95, "confidence level of the intervals", kind=float, low=0, high=1, open=True)
TARGET = Option(
    0.01,
    "half-width that is enough, in the value's unit; None draws all samples",
    kind=float,
    low=0,
    open=True,
    optional=True,
)
STOP = Option("sign", "a head is done when its sign is decided or it is narrow enough, or only then", ("sign", "width"))
VALUE = Option("accuracy", "what a coalition is worth on an example", tuple(VALUES))
COALITIONS = "coalitions with fewer than half the heads gone, or of all sizes"
TOP50 = Option("shapley-top50", COALITIONS, ("shapley-top50", "shapley"))
FULL = Option("shapley", COALITIONS, ("shapley-top50", "shapley"))
ALIASES = {"tmab": "shapley"}


METHODS: dict[str, Method] = {
    method.key: method
    for method in (
        Method(
            "shapley",
            "Shapley value (TMAB)",
            "samples × heads forwards, each from its head's layer on; heads that are decided leave",
            "Held & Yang, EACL 2023, section 3.2",
            "shapley-top50",
            "accuracy",
            True,
            True,
            "tmab",
            {
                "estimand": TOP50,
                "value": VALUE,
                "samples": Option(8192, "samples a head at most", kind=int, low=1),
                "target": TARGET,
                "stop": STOP,
                "level": LEVEL,
            },
        ),
        Method(
            "monte-carlo",
            "Shapley value (plain permutations)",
            "samples × heads forwards, each from the layer that changed on",
            "Castro, Gómez & Tejada 2009; Held & Yang, EACL 2023, equation 3",
            "shapley",
            "accuracy",
            True,
            True,
            "monte_carlo",
            {
                "estimand": FULL,
                "value": VALUE,
                "samples": Option(1024, "orders at most; one sample is one example and one order", kind=int, low=1),
                "target": TARGET,
                "stop": STOP,
                "level": LEVEL,
            },
        ),
        Method(
            "paper",
            "Shapley value (the paper's recipe)",
            "orders × examples × heads forwards: days",
            "Held & Yang, EACL 2023, equation 4; its intervals are not anytime-valid",
            "shapley-top50",
            "accuracy",
            True,
            True,
            "paper",
            {
                "estimand": TOP50,
                "value": VALUE,
                "samples": Option(100, "orders at most; one sample is one order and all examples", kind=int, low=1),
                "delta": Option(0.1, "chance of error that Equation 4 is given", kind=float, low=0, high=1, open=True),
            },
            caution="intervals by Equation 4, range 1, looked at after every sample without paying for it: "
            "not anytime-valid",
        ),
        Method(
            "exact",
            "Shapley value (every coalition)",
            "2 ^ heads × examples forwards: up to 16 heads",
            "Shapley 1953",
            "shapley-top50",
            "accuracy",
            True,
            True,
            "exact",
            {"estimand": TOP50, "value": VALUE},
            most_heads=16,
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
                "batch_size": Option(32, "examples a batch (changes the scores of form batch only)", kind=int, low=1),
            },
            whole=True,
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
            whole=True,
        ),
        Method("random", "Random", "none", "baseline", "random", "none", False, False, "random", {}),
    )
}


def method(key: str) -> Method:
    """A method by its key. Raises HeadlabError listing the keys."""
    key = ALIASES.get(key, key)
    if key not in METHODS:
        raise HeadlabError(f"unknown method {key!r}; use one of {', '.join(METHODS)}")
    return METHODS[key]
