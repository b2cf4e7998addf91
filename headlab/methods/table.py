"""The table of methods, read by the command line, the pages and the documentation; it needs no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headlab.errors import HeadlabError
from headlab.extensions import Registry
from headlab.options import Option, check_known, resolved
from headlab.value_functions import VALUES, value_of


@dataclass(frozen=True)
class Method:
    """One way to score heads.

    signed: positive = helps, negative = harms (otherwise larger = more important).  intervals: gives intervals.
    module: of its `run(work)`, below headlab.methods, or the full dotted path.  caution: caveat about its
    intervals.  most_heads: maximum number of heads of a model.  whole: uses no game that several devices could
    share, so one device runs all of it.  raw_unit: of scores that are not normalised, if different.  version:
    increased when the same settings give other numbers; results stored by earlier versions stay valid.  renewed:
    {option: {value: version}}, settings that have meant something else since that version: results stored by earlier
    versions stay readable, are shown as such, and never stand for new ones.  renewal: what is different about those
    earlier results, in a clause.  stops_at_sign: heads are sampled until their sign is decided, whatever the options.
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
    raw_unit: str = ""
    version: int = 1
    renewed: Mapping[str, Mapping[Any, int]] = field(default_factory=dict)
    renewal: str = ""
    stops_at_sign: bool = False

    def renewed_in(self, options: Mapping[str, Any]) -> int:
        """The version since which these settings mean what they do; 1 if they always have.

        Args:
            options: Options of the method; those that are left out are at their defaults.
        """
        newest = 1
        for name, versions in self.renewed.items():
            given = options.get(name, self.options[name].default)
            newest = max(newest, *(version for value, version in versions.items() if value == given), 1)
        return newest

    def version_of(self, options: Mapping[str, Any]) -> int:
        """The version that results with these options are stored as.

        Args:
            options: Options of the method; those that are left out are at their defaults.
        """
        return max(self.version, self.renewed_in(options))

    def unit_of(self, options: Mapping[str, Any]) -> str:
        """Unit of the scores under these options."""
        if self.raw_unit and options.get("normalise") is False:
            return self.raw_unit
        return value_of(str(options["value"])).unit if "value" in options else self.unit

    def resolve(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All options: given ones checked, others at their default. Raises HeadlabError for unknown or invalid ones."""
        check_known(self.options, given, f"method {self.key} has", code="method.option_unknown")
        return resolved(self.options, given, f"method {self.key}", code="method.option_invalid")


LEVEL = Option(0.95, "confidence level of the intervals", kind=float, low=0, high=1, open=True)
TARGET = Option(
    0.01,
    "target half-width, in the value's unit; None draws all samples",
    kind=float,
    low=0,
    open=True,
    optional=True,
)
# `shapley` drops heads after whole cycles only, where its intervals are exactly valid.
BY_CYCLES = Option(
    0.01,
    "target half-width, in the value's unit, checked once each example has been drawn equally often: at least one "
    "sample per example; None draws all samples",
    kind=float,
    low=0,
    open=True,
    optional=True,
)
STOP = Option("sign", "a head is done when its sign is decided or it is narrow enough, or only then", ("sign", "width"))
VALUE = Option("accuracy", "how an answer is valued", tuple(VALUES))
COALITIONS = "coalitions with fewer than half the heads removed, or of all sizes"
TOP50 = Option("shapley-top50", COALITIONS, ("shapley-top50", "shapley"))
FULL = Option("shapley", COALITIONS, ("shapley-top50", "shapley"))
ALIASES = {"tmab": "shapley"}


BUILT_IN: dict[str, Method] = {
    method.key: method
    for method in (
        Method(
            "shapley",
            "Shapley value (TMAB)",
            "samples × heads forwards at most, each from its head's layer on: gains that a gradient flags as "
            "uncertain, and a sample of the others; decided heads are dropped",
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
                "target": BY_CYCLES,
                "stop": STOP,
                "level": LEVEL,
            },
            version=3,
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
            caution="intervals by Equation 4, range 1, checked after every sample without correction for repeated "
            "looks: not anytime-valid",
            stops_at_sign=True,
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
            True,
            "gradient",
            {
                "form": Option(
                    "example",
                    "absolute value per example (the paper), per token (its BERT code), or per batch",
                    ("example", "token", "batch"),
                ),
                "normalise": Option(False, "divide each layer's scores by their Euclidean length", kind=bool),
                "batch_size": Option(32, "examples a batch (changes the scores of form batch only)", kind=int, low=1),
            },
            whole=True,
            version=2,
            renewed={"form": {"token": 3}},
            renewal="form token before version 3 of the method: a classifier's last layer is divided by the number of "
            "tokens there, not by that of sentences as in the published code, so it is too low against the others",
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
            version=2,
        ),
        Method(
            "confidence",
            "Confidence (largest attention weight)",
            "1 forward an example",
            "Voita et al., ACL 2019, section 4",
            "confidence",
            "attention weight",
            False,
            True,
            "confidence",
            {
                "exclude": Option("separator", "tokens that do not count as targets", ("separator", "special", "none")),
            },
            whole=True,
            version=2,
        ),
        Method(
            "relevance",
            "Relevance (LRP)",
            "1 forward an example and 1 backward an answer",
            "Voita et al., ACL 2019, section 4",
            "relevance",
            "share of relevance",
            False,
            True,
            "relevance",
            {
                "attention_constant": Option(True, "treat attention weights as constants", kind=bool),
                "normalise": Option(True, "share of its layer's relevance, not its size in logits", kind=bool),
            },
            whole=True,
            raw_unit="logit",
            version=2,
        ),
        Method("random", "Random", "none", "baseline", "random", "none", False, False, "random", {}),
    )
}


def _fits(key: str, entry: object) -> bool:
    return isinstance(entry, Method) and entry.key == key and key not in ALIASES


METHODS: Mapping[str, Method] = Registry(BUILT_IN, "headlab.methods", _fits)


def method(key: str) -> Method:
    """A method by its key. Raises HeadlabError listing the keys."""
    key = ALIASES.get(key, key)
    if key not in METHODS:
        raise HeadlabError(f"unknown method {key!r}; use one of {', '.join(METHODS)}", code="method.unknown")
    return METHODS[key]
