"""What a row of the table of methods says: how a method scores heads, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Literal, TypeVar

from headlab.core import (
    HeadlabError,
    Option,
    OptionValue,
    require_known_options,
    resolve_options,
    value_function_of,
)

Options = Mapping[str, OptionValue]
RecordedValue = TypeVar("RecordedValue")
# When a run looks at its intervals to see whether a head is done.
IntervalCheck = Literal["every sample", "every cycle", "all heads together"]

ALL_SIZES = "shapley"
"""The estimand that counts coalitions of all sizes."""
BACKWARD_PASS_COST = 3.0
"""A forward and its backward pass, in forward passes."""


@dataclass(frozen=True)
class Screening:
    """Gains that need not be computed, because a gradient foresees them.

    Attributes:
        largest_weight: The largest weight that a computed gain gets where a target width is given.
        computed_with_target: Share of the gains that were computed in runs with a target width.
        computed_without_target: The same for runs without one.
    """

    largest_weight: int
    computed_with_target: float
    computed_without_target: float


@dataclass(frozen=True)
class MethodCost:
    """What a method costs, so that every forecast of it is made in the same way.

    Attributes:
        words: A clause for readers, such as "1 forward an example".
        max_forwards: How many forward passes of one example each it takes at most for one
            language, given its resolved options, the number of heads, and that of examples.
        pass_cost: One of these passes, in plain forward passes.
        starts_at_head: Whether most of them start at the layer of a head, where the model's
            layers can be resumed; they then take about half a plain pass.
        screening: Gains it leaves out, where the model's layers can be resumed.
        slope_forwards: How many of these passes take slopes, where the model has any, given its
            resolved options and the number of examples; no screening leaves them out.
        in_walks: Whether its batches are walks of many passes, which take too long to be timed
            while somebody waits for a forecast.
        assumed: Whether the package that brings the method says nothing but `words`.
    """

    words: str
    max_forwards: Callable[[Options, int, int], int]
    pass_cost: float = 1.0
    starts_at_head: bool = False
    screening: Screening | None = None
    slope_forwards: Callable[[Options, int], int] | None = None
    in_walks: bool = False
    assumed: bool = False


def one_forward_an_example(options: Options, heads: int, examples: int) -> int:
    """The cost of a method that looks at each example once."""
    return examples


def walk_length(options: Options, heads: int) -> int:
    """The number of heads that one order removes.

    All of them, or half where only small removals count.
    """
    if options["estimand"] == ALL_SIZES:
        return heads
    return (heads + 1) // 2


def recorded_version(version: int) -> int | None:
    """A method's version as a spec records it; None for the first, which is left out."""
    return version if version > 1 else None


@dataclass(frozen=True)
class Method:
    """One way to score heads: a row of the table of methods.

    Attributes:
        key: What users type.
        title: What pages show.
        cost: What it costs. Text alone is read as one forward pass an example, which forecasts
            say is an assumption.
        paper: Where it is from.
        estimand: What it estimates, unless an option `estimand` says so.
        unit: Of its scores, unless an option `value` says so.
        signed: Whether positive scores help and negative ones harm; otherwise larger ones are
            more important.
        intervals: Whether it gives intervals.
        module: Where its `run(work)` is: a module of `headlab.methods`, or a full dotted path.
        options: Its options by name.
        caution: A caveat about its intervals, in a clause.
        most_heads: The largest number of heads it can score.
        encoders_only: Whether models with a decoder are refused, as it says nothing true of them.
        whole: Whether one device must run all of it, as it uses no game that several could share.
        raw_unit: The unit of scores that are not normalised, if it is another one.
        version: Raised when the same settings give other numbers. Results that earlier versions
            stored stay valid.
        renewed: {option: {value: version}}: settings that have meant something else since that
            version. Earlier results with them stay readable, are shown as such, and never stand
            for new ones.
        renewal: What is different about those earlier results, in a clause.
        interval_check: When a run looks at its intervals to see whether a head is done.
        stops_at_sign: Whether heads are sampled until their sign is decided, whatever the options.
        sign_lean: By how much values lean away from 0 when sampling ends at a decided sign, in a
            clause.
        likelihood_defaults: Defaults of options on tasks of likelihood, where they are others.
        revised: {option: {value: version}}: settings that give other numbers since that version,
            of the same meaning. Earlier results with them stay valid.
        sees_players: Whether it can score other players than heads (docs/methods.md): it asks for
            nothing but the model's answers and gradients under gates.
        takes_other_texts: Whether outputs on other texts may stand in the place of what it closes
            (ablation `resample` and `counterfactual`): it asks its game for values with donors.
    """

    key: str
    title: str
    cost: MethodCost | str
    paper: str
    estimand: str
    unit: str
    signed: bool
    intervals: bool
    module: str
    options: Mapping[str, Option]
    caution: str = ""
    most_heads: int | None = None
    encoders_only: bool = False
    whole: bool = False
    raw_unit: str = ""
    version: int = 1
    renewed: Mapping[str, Mapping[OptionValue, int]] = field(default_factory=dict)
    renewal: str = ""
    interval_check: IntervalCheck = "every sample"
    stops_at_sign: bool = False
    sign_lean: str = ""
    likelihood_defaults: Mapping[str, OptionValue] = field(default_factory=dict)
    revised: Mapping[str, Mapping[OptionValue, int]] = field(default_factory=dict)
    sees_players: bool = False
    takes_other_texts: bool = False

    @property
    def costs(self) -> MethodCost:
        """What it costs, also where its row has only words."""
        if isinstance(self.cost, MethodCost):
            return self.cost
        return MethodCost(str(self.cost), one_forward_an_example, assumed=True)

    def max_forwards(self, options: Options, heads: int, examples: int) -> int:
        """How many forward passes of one example each it takes at most for one language.

        Args:
            options: Resolved options.
            heads: The number of heads of the model.
            examples: The number of examples.

        Raises:
            HeadlabError: The function that a package gives for it fails, or gives no whole number
                of at least 0.
        """
        try:
            forwards: object = self.costs.max_forwards(options, heads, examples)
        except Exception as error:  # a package's own code may raise anything
            raise self._unknown_cost(f"{type(error).__name__}: {error}") from error
        if isinstance(forwards, bool) or not isinstance(forwards, Integral) or int(forwards) < 0:
            raise self._unknown_cost(f"{forwards!r} instead of a whole number of at least 0")
        return int(forwards)

    def slope_forwards(self, options: Options, examples: int) -> int:
        """How many of the forward passes take slopes, where the model has any.

        Args:
            options: Resolved options.
            examples: The number of examples.
        """
        if self.costs.slope_forwards is None:
            return 0
        return self.costs.slope_forwards(options, examples)

    def _unknown_cost(self, reason: str) -> HeadlabError:
        return HeadlabError(
            f"method {self.key} does not say how many forward passes it takes ({reason}); mend `max_forwards` of its "
            "cost in the package that brings it",
            code="method.cost_unknown",
        )

    def renewed_in(self, options: Mapping[str, object]) -> int:
        """The version since which these settings mean what they do; 1 if they always have.

        Args:
            options: Options of the method; those that are left out are at their defaults.
        """
        return self._newest(self.renewed, options)

    def _newest(
        self,
        versions: Mapping[str, Mapping[OptionValue, int]],
        options: Mapping[str, object],
    ) -> int:
        """The newest version that a table gives for these options; 1 if it gives none.

        Args:
            versions: {option: {value: version}}.
            options: Options of the method; those that are left out are at their defaults.
        """
        newest = 1
        for name, version_by_value in versions.items():
            option_value = options.get(name, self.options[name].default)
            for value, version in version_by_value.items():
                if value == option_value:
                    newest = max(newest, version)
        return newest

    def version_of(self, options: Mapping[str, object]) -> int:
        """The version that results with these options are stored as.

        Args:
            options: Options of the method; those that are left out are at their defaults.
        """
        return max(self.version, self.renewed_in(options), self._newest(self.revised, options))

    def unit_of(self, options: Mapping[str, object]) -> str:
        """The unit of the scores under these options."""
        if self.raw_unit and options.get("normalise") is False:
            return self.raw_unit
        if "value" in options:
            return value_function_of(str(options["value"])).unit
        return self.unit

    def recorded(self, options: Mapping[str, RecordedValue]) -> dict[str, RecordedValue]:
        """The options that specs of results record.

        Args:
            options: Resolved options.
        """
        recorded_options: dict[str, RecordedValue] = {}
        for name, value in options.items():
            option = self.options[name]
            if option.recorded_default or value != option.default:
                recorded_options[name] = value
        return recorded_options

    def with_unrecorded(
        self, recorded_options: Mapping[str, RecordedValue]
    ) -> dict[str, RecordedValue | OptionValue]:
        """Options as specs record them, with those that are not recorded at their defaults.

        Args:
            recorded_options: Options of a spec.
        """
        options: dict[str, RecordedValue | OptionValue] = {}
        for name, option in self.options.items():
            if not option.recorded_default:
                options[name] = option.default
        return options | dict(recorded_options)

    def for_task(self, likelihood: str) -> Method:
        """The method with the defaults that its options have on a task.

        Args:
            likelihood: Of the task (`headlab.tasks.Task.likelihood`); empty for tasks with labels.
        """
        if not likelihood or not self.likelihood_defaults:
            return self
        options = dict(self.options)
        for name, default in self.likelihood_defaults.items():
            options[name] = replace(options[name], default=default)
        return replace(self, options=options)

    def resolve(self, given_options: Mapping[str, object]) -> dict[str, OptionValue]:
        """All options: the given ones checked, the others at their default.

        Raises:
            HeadlabError: An option is unknown or has an invalid value.
        """
        require_known_options(
            self.options, given_options, f"method {self.key} has", code="method.option_unknown"
        )
        return resolve_options(
            self.options, given_options, f"method {self.key}", code="method.option_invalid"
        )
