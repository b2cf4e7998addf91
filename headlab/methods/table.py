"""The table of methods, read by the command line, the pages and the documentation.

It needs no model.
"""

from __future__ import annotations

from collections.abc import Mapping

from headlab.core import (
    VALUE_FUNCTIONS,
    HeadlabError,
    Option,
    OptionValue,
    Registry,
    integer_in,
    optional_integer_in,
    wrong_key_text,
    wrong_kind_text,
)
from headlab.methods.method import (
    BACKWARD_PASS_COST,
    Method,
    MethodCost,
    Options,
    Screening,
    one_forward_an_example,
    walk_length,
)
from headlab.results import ANYTIME, INTERVALS

__all__ = [
    "ATTENTION_METHOD",
    "BUILT_IN",
    "DEFAULT_METHOD",
    "FIRST_MAP_METHOD",
    "HOME",
    "LIVE_METHOD",
    "METHODS",
    "ORDERINGS",
    "RANDOM_METHOD",
    "REFUSED_IN_A_LANGUAGE",
    "RIVALS",
    "Method",
    "MethodCost",
    "method",
]

HOME = "headlab.methods"
"""Package of the modules that a method names by one word."""
DEFAULT_METHOD = "shapley"
"""The method where none is named."""
FIRST_MAP_METHOD = "smoothed"
"""The method that pages offer first where a model has no scores: it takes seconds a language."""
LIVE_METHOD = "gradient"
"""The method whose scores a page may ask for outside the list of jobs, as they take seconds."""
RANDOM_METHOD = "random"
"""The baseline that draws its scores: drawing them again is faster than reading them."""
ATTENTION_METHOD = "confidence"
"""The method whose scores pages show beside another's, as they are cheap and say something else."""

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
STOP = Option(
    "sign",
    "a head is done when its sign is decided or it is narrow enough, or only then",
    ("sign", "width"),
)
INTERVAL = Option(
    ANYTIME,
    "anytime holds at every look; planned holds approximately, at five looks at most, after a fraction of the "
    "samples; average holds on average over the heads: it ends the run, and marks no head",
    INTERVALS,
    label="Intervals",
    tip="anytime: they hold at every look. planned: approximate, at five looks at most, sooner. average: the run "
    "ends when values are near on average over the heads.",
    recorded_default=False,
)
NAMES = Option(
    None,
    "harmful heads to name: twice as many candidates are chosen by slopes before the first sample, only these are "
    "sampled and tested, and the run ends once so many of them are named together (Benjamini-Hochberg), or with samples",
    kind=int,
    low=1,
    optional=True,
    label="Harmful heads to name",
    tip="Only twice as many candidates, chosen by slopes before, are sampled and tested; the run ends once so many are "
    "named together.",
    empty="all heads are sampled",
    recorded_default=False,
)
CANDIDATES_A_NAME = 2
"""Candidates that are sampled for each harmful head that is to be named."""
VALUE = Option(
    "accuracy",
    "how an answer is valued; on tasks of likelihood (continuations by a language model) "
    "log-probability unless it is set",
    tuple(VALUE_FUNCTIONS),
)
LATER_VALUE = Option(
    "accuracy",
    "how an answer is valued: accuracy, or in finer steps (log-probability, say)",
    tuple(VALUE_FUNCTIONS),
    recorded_default=False,
)
"""The same option of a method that has results from before it had the option."""
LIKELIHOOD_DEFAULTS: Mapping[str, OptionValue] = {"value": "log-probability"}
"""On tasks of likelihood, accuracy needs six times as many samples to a sign, or more."""
COALITIONS = "coalitions with fewer than half the heads removed, or of all sizes"
TOP50 = Option("shapley-top50", COALITIONS, ("shapley-top50", "shapley"))
FULL = Option("shapley", COALITIONS, ("shapley-top50", "shapley"))
ALIASES = {"tmab": "shapley"}

REFUSED_IN_A_LANGUAGE = frozenset(
    {
        "ablation.counterfactual_length",
        "ablation.no_counterfactual",
        "method.slopes_disagree",
        "method.slopes_not_finite",
        "method.margins_constant",
        "method.margins_not_finite",
    }
)
"""Codes of errors that say of one language that it has no scores; others may have some."""

BANDWIDTH_DRAWS = 64
"""First draws of slopes, from whose margins the bandwidth is chosen."""
SLOPE_BANDWIDTH = 0.5
"""How far accuracy is smoothed for slopes, in standard deviations of the margins."""
FIRST_SLOPE_DRAWS = 256
"""Draws of slopes that `shapley` takes before its first sample."""
SLOPE_DRAWS_A_SAMPLE = 3
"""Draws of slopes that it takes for each draw of samples, until there are `MOST_SLOPE_DRAWS`."""
MOST_SLOPE_DRAWS = 1024
"""Draws of slopes that `shapley` joins with its samples, at most."""
MIN_WORTH_EXAMPLES = 128
"""Examples, where there are as many, on which is measured what all heads together are worth."""
PLANNED_COST = 1.3
"""Samples that a planned interval needs, over those that a single look at it would need.

It is for earlier looks and made-up gains.
"""
AVERAGE_COST = 0.5
"""The same of average intervals, thanks to slopes."""
SMOOTHED_PASS_COST = 1.9
"""A pass of `smoothed` in plain ones: many have a backward pass."""


def shapley_forwards(options: Options, heads: int, examples: int) -> int:
    """Every sample computes one gain of every head that is sampled; and there are slopes."""
    names = optional_integer_in({"names": None, **options}, "names")
    heads_sampled = heads if names is None else min(heads, CANDIDATES_A_NAME * names)
    return integer_in(options, "samples") * heads_sampled + joined_slope_forwards(options, examples)


def joined_slope_forwards(options: Options, examples: int) -> int:
    """Passes for the slopes that `shapley` joins with its samples.

    One a draw; the others find the bandwidth and what all heads are worth.
    """
    samples = integer_in(options, "samples")
    draws = min(MOST_SLOPE_DRAWS, FIRST_SLOPE_DRAWS + SLOPE_DRAWS_A_SAMPLE * samples)
    if options.get("names") is not None:  # candidates are chosen by all slopes
        draws = MOST_SLOPE_DRAWS
    return draws + 2 * min(MIN_WORTH_EXAMPLES, examples) + BANDWIDTH_DRAWS


def draws_forwards(options: Options, heads: int, examples: int) -> int:
    """Every sample is a pass with a backward pass; the others find what all heads are worth."""
    samples = integer_in(options, "samples")
    return samples + 2 * worth_examples(samples, examples) + BANDWIDTH_DRAWS


def worth_examples(samples: int, examples: int) -> int:
    """On how many examples `smoothed` measures what all heads together are worth."""
    return min(examples, max(MIN_WORTH_EXAMPLES, samples // 4))


def permutation_forwards(options: Options, heads: int, examples: int) -> int:
    """Every sample removes the heads of one order one after another, on one example."""
    return integer_in(options, "samples") * walk_length(options, heads)


def paper_forwards(options: Options, heads: int, examples: int) -> int:
    """Every sample removes the heads of one order one after another, on all examples."""
    return permutation_forwards(options, heads, examples) * examples


def every_coalition_forwards(options: Options, heads: int, examples: int) -> int:
    """Every set of heads, on all examples."""
    return (1 << heads) * examples


def every_head_forwards(options: Options, heads: int, examples: int) -> int:
    """Every head once, on all examples."""
    return heads * examples


def no_forwards(options: Options, heads: int, examples: int) -> int:
    """No model is needed."""
    return 0


BUILT_IN: dict[str, Method] = {
    method.key: method
    for method in (
        Method(
            key="shapley",
            title="Shapley value (TMAB)",
            cost=MethodCost(
                "samples × heads forwards at most, each from its head's layer on: gains that a gradient flags as "
                "uncertain, and a sample of the others; decided heads are dropped; and up to 1,024 forwards and backwards for slopes",
                shapley_forwards,
                starts_at_head=True,
                # The shares are observed; the weight is that of `headlab.methods.tmab`.
                screening=Screening(
                    largest_weight=4, computed_with_target=0.35, computed_without_target=0.15
                ),
                slope_forwards=joined_slope_forwards,
            ),
            paper="Held & Yang, EACL 2023, section 3.2",
            estimand="shapley-top50",
            unit="accuracy",
            signed=True,
            sees_players=True,
            takes_other_texts=True,
            intervals=True,
            module="joined",
            options={
                "estimand": TOP50,
                "value": VALUE,
                "samples": Option(8192, "samples a head at most", kind=int, low=1),
                "target": BY_CYCLES,
                "stop": STOP,
                "level": LEVEL,
                "interval": INTERVAL,
                "names": NAMES,
            },
            version=4,
            revised={"value": {"probability": 5, "log-probability": 5}},
            interval_check="every cycle",
            sign_lean="in simulations large ones by a tenth and small ones by half or more",
            likelihood_defaults=LIKELIHOOD_DEFAULTS,
        ),
        Method(
            key="smoothed",
            title="Shapley value (smoothed gradient)",
            cost=MethodCost(
                "1 forward and backward a draw, and 1 forward",
                draws_forwards,
                pass_cost=SMOOTHED_PASS_COST,
            ),
            paper="of headlab's own; akin to expected gradients, Erion et al., Nature Machine "
            "Intelligence 2021",
            estimand="shapley-top50",
            unit="accuracy",
            signed=True,
            sees_players=True,
            takes_other_texts=True,
            intervals=False,
            module="smoothed",
            options={
                "estimand": TOP50,
                "value": VALUE,
                "samples": Option(
                    256,
                    "draws: one example and one coalition each",
                    kind=int,
                    low=BANDWIDTH_DRAWS,
                ),
                "bandwidth": Option(
                    SLOPE_BANDWIDTH,
                    "how far accuracy is smoothed, in standard deviations of the margins",
                    kind=float,
                    low=0,
                    open=True,
                ),
                "level": LEVEL,
            },
            encoders_only=True,
            likelihood_defaults=LIKELIHOOD_DEFAULTS,
        ),
        Method(
            key="monte-carlo",
            title="Shapley value (plain permutations)",
            cost=MethodCost(
                "samples × heads forwards, each from the layer that changed on",
                permutation_forwards,
                starts_at_head=True,
                in_walks=True,
            ),
            paper="Castro, Gómez & Tejada 2009; Held & Yang, EACL 2023, equation 3",
            estimand="shapley",
            unit="accuracy",
            signed=True,
            sees_players=True,
            takes_other_texts=True,
            intervals=True,
            module="monte_carlo",
            options={
                "estimand": FULL,
                "value": VALUE,
                "samples": Option(
                    1024, "orders at most; one sample is one example and one order", kind=int, low=1
                ),
                "target": TARGET,
                "stop": STOP,
                "level": LEVEL,
            },
            interval_check="all heads together",
            likelihood_defaults=LIKELIHOOD_DEFAULTS,
        ),
        Method(
            key="paper",
            title="Shapley value (the paper's recipe)",
            cost=MethodCost(
                "orders × examples × heads forwards: days", paper_forwards, in_walks=True
            ),
            paper="Held & Yang, EACL 2023, equation 4; its intervals are not anytime-valid",
            estimand="shapley-top50",
            unit="accuracy",
            signed=True,
            sees_players=True,
            takes_other_texts=True,
            intervals=True,
            module="paper",
            options={
                "estimand": TOP50,
                "value": VALUE,
                "samples": Option(
                    100, "orders at most; one sample is one order and all examples", kind=int, low=1
                ),
                "delta": Option(
                    0.1,
                    "chance of error that Equation 4 is given",
                    kind=float,
                    low=0,
                    high=1,
                    open=True,
                ),
            },
            caution="intervals by Equation 4, range 1, checked after every sample without correction for repeated "
            "looks: not anytime-valid",
            stops_at_sign=True,
            sign_lean="in simulations by 0.001 to 0.003 on 0.1",
            likelihood_defaults=LIKELIHOOD_DEFAULTS,
        ),
        Method(
            key="exact",
            title="Shapley value (every coalition)",
            cost=MethodCost(
                "2 ^ heads × examples forwards: up to 16 heads",
                every_coalition_forwards,
                starts_at_head=True,
            ),
            paper="Shapley 1953",
            estimand="shapley-top50",
            unit="accuracy",
            signed=True,
            sees_players=True,
            takes_other_texts=True,
            intervals=True,
            module="exact",
            options={"estimand": TOP50, "value": VALUE},
            most_heads=16,
            likelihood_defaults=LIKELIHOOD_DEFAULTS,
        ),
        Method(
            key="gradient",
            title="Gradient importance",
            cost=MethodCost(
                "1 forward and backward an example",
                one_forward_an_example,
                pass_cost=BACKWARD_PASS_COST,
            ),
            paper="Michel, Levy & Neubig, NeurIPS 2019",
            estimand="gradient",
            unit="loss",
            signed=False,
            sees_players=True,
            intervals=True,
            module="gradient",
            options={
                "form": Option(
                    "example",
                    "absolute value per example (the paper), per token (its BERT code), or per batch",
                    ("example", "token", "batch"),
                ),
                "normalise": Option(
                    False, "divide each layer's scores by their Euclidean length", kind=bool
                ),
                "batch_size": Option(
                    32, "examples a batch (changes the scores of form batch only)", kind=int, low=1
                ),
            },
            whole=True,
            version=2,
            renewed={"form": {"token": 3}},
            renewal="form token before version 3 of the method: a classifier's last layer is divided by the number of "
            "tokens there, not by that of sentences as in the published code, so it is too low against the others",
        ),
        Method(
            key="leave-one-out",
            title="Leave one out",
            cost=MethodCost(
                "heads × examples forwards, each started at the head's layer",
                every_head_forwards,
                starts_at_head=True,
            ),
            paper="Michel, Levy & Neubig, NeurIPS 2019, section 3.2",
            estimand="leave-one-out",
            unit="accuracy",
            signed=True,
            sees_players=True,
            takes_other_texts=True,
            intervals=True,
            module="leave_one_out",
            options={"level": LEVEL, "value": LATER_VALUE},
            version=2,
        ),
        Method(
            key="confidence",
            title="Confidence (largest attention weight)",
            cost=MethodCost("1 forward an example", one_forward_an_example),
            paper="Voita et al., ACL 2019, section 4",
            estimand="confidence",
            unit="attention weight",
            signed=False,
            intervals=True,
            module="confidence",
            options={
                "exclude": Option(
                    "separator",
                    "tokens that do not count as targets",
                    ("separator", "special", "none"),
                ),
            },
            whole=True,
            version=2,
        ),
        Method(
            key="relevance",
            title="Relevance (LRP)",
            cost=MethodCost(
                "1 forward an example and 1 backward an answer",
                one_forward_an_example,
                pass_cost=BACKWARD_PASS_COST,
            ),
            paper="Voita et al., ACL 2019, section 4",
            estimand="relevance",
            unit="share of relevance",
            signed=False,
            intervals=True,
            module="relevance",
            options={
                "attention_constant": Option(
                    True, "treat attention weights as constants", kind=bool
                ),
                "normalise": Option(
                    True, "share of its layer's relevance, not its size in logits", kind=bool
                ),
            },
            whole=True,
            raw_unit="logit",
            version=2,
        ),
        Method(
            key="random",
            title="Random",
            cost=MethodCost("none", no_forwards),
            paper="baseline",
            estimand="random",
            unit="none",
            signed=False,
            sees_players=True,
            takes_other_texts=True,
            intervals=False,
            module="random",
            options={},
        ),
    )
}


# What heads can be ordered by: the method, and the options that define the ordering.
ORDERINGS: Mapping[str, tuple[str, Options]] = {
    "random": ("random", {}),
    "monte-carlo": ("monte-carlo", {}),
    "shapley": ("shapley", {}),
    "gradient": ("gradient", {"form": "example"}),
    "gradient-token": ("gradient", {"form": "token"}),
    "gradient-batch": ("gradient", {"form": "batch"}),
    "leave-one-out": ("leave-one-out", {}),
    "confidence": ("confidence", {}),
    "relevance": ("relevance", {}),
}
# What chooses heads besides the method that is asked for, random choices apart, where choices are
# compared.
RIVALS: Mapping[str, tuple[str, Options]] = {
    "gradient (example)": ("gradient", {"form": "example"}),
    "gradient (token)": ("gradient", {"form": "token"}),
    "gradient (batch)": ("gradient", {"form": "batch"}),
    "leave-one-out": ("leave-one-out", {}),
}


def _misfit(key: str, entry: object) -> str:
    """Why a package's entry is no method of this key; empty if it is one."""
    if not isinstance(entry, Method):
        return wrong_kind_text(entry, "a Method of headlab.methods.table")
    if key in ALIASES:
        return f"{key} is another name of {ALIASES[key]}"
    cost: object = entry.cost  # a package may give anything
    if not isinstance(cost, MethodCost | str):
        return f"its cost, {cost!r:.60}, is neither a MethodCost nor a text"
    return wrong_key_text(entry.key, key)


METHODS: Mapping[str, Method] = Registry(BUILT_IN, "headlab.methods", _misfit)


def method(key: str) -> Method:
    """A method by its key. Raises HeadlabError listing the keys."""
    key = ALIASES.get(key, key)
    if key not in METHODS:
        raise HeadlabError(
            f"unknown method {key!r}; use one of {', '.join(METHODS)}", code="method.unknown"
        )
    return METHODS[key]
