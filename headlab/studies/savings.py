"""What a mask saves: parameters, multiply-accumulates and measured time.

As a record and in words; without torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binom

from headlab.core import Bools, Cell, Floats, HeadlabError, Json, Report, RunSpec, Table

# What a model costs with and without some of its heads: arithmetic only, without torch or a forward
# pass.

DEFAULT_TOKENS = (
    32  # length of the text that multiply-accumulates are given for, if no real text is available
)


@dataclass(frozen=True)
class LayerCost:
    """What the heads of one layer cost.

    Attributes:
        first_head: Flat index of its first head.
        heads: Number of heads.
        group_size: Size of a group of heads that can only be removed together (with grouped
            queries, those that share a key and a value).
        parameters: Of one group.
        macs_token: Multiply-accumulates of one group per token.
        macs_pair: Multiply-accumulates of one group per pair of tokens.
        rest: Further parameters removed with the layer's last head.
    """

    first_head: int
    heads: int
    group_size: int
    parameters: int
    macs_token: int
    macs_pair: int
    rest: int = 0

    def macs(self, tokens: int) -> int:
        """Multiply-accumulates of one group on a text of `tokens` tokens."""
        return self.macs_token * tokens + self.macs_pair * tokens**2

    def removed_groups(self, kept_heads: Bools) -> int:
        """Number of groups with no head left.

        Args:
            kept_heads: bool [head], of the whole grid.
        """
        groups = kept_heads[self.first_head : self.first_head + self.heads].reshape(
            -1, self.group_size
        )
        return int((~groups.any(axis=1)).sum())

    def saved_parameters(self, removed_groups: int) -> int:
        """Parameters saved by removing so many groups."""
        parameters = removed_groups * self.parameters
        is_empty = removed_groups == self.heads // self.group_size
        if removed_groups and is_empty:
            parameters += self.rest
        return parameters


@dataclass(frozen=True)
class ModelCost:
    """What a model costs.

    Attributes:
        parameters: Their number.
        macs: Multiply-accumulates of a forward pass on one text.
        tokens: Length of the text.
    """

    parameters: int
    macs: int
    tokens: int


@dataclass(frozen=True)
class Costs:
    """A model's costs, and its layers' shares of them.

    Attributes:
        parameters: Their number.
        macs: Multiply-accumulates of a forward pass on one text of n tokens, as coefficients of 1,
            n and n squared; for a sequence-to-sequence model the target is as long as the text.
        layers: By row of the gate array; empty where heads cannot be removed from the weights.
        note: Why they cannot; else empty.
    """

    parameters: int
    macs: tuple[int, int, int]
    layers: tuple[LayerCost, ...]
    note: str = ""

    def baseline(self, tokens: int = DEFAULT_TOKENS) -> ModelCost:
        """The cost of the untouched model on a text of `tokens` tokens."""
        macs = sum(coefficient * tokens**power for power, coefficient in enumerate(self.macs))
        return ModelCost(self.parameters, macs, tokens)

    def shrunk(self, kept_heads: Bools, tokens: int = DEFAULT_TOKENS) -> ModelCost:
        """The cost of the model without the heads that are not kept.

        Grouped queries are removed in whole groups.

        Args:
            kept_heads: bool [head].
            tokens: Length of the text.

        Raises:
            HeadlabError: Heads cannot be removed from this model's weights, or the mask has another
                number of heads.
        """
        if not self.layers:
            raise HeadlabError(
                self.note or "the heads of this model cannot be removed",
                code="costs.heads_not_removable",
            )
        size = sum(layer.heads for layer in self.layers)
        if kept_heads.shape != (size,):
            raise HeadlabError(
                f"the mask has {kept_heads.size} heads; this model has {size}",
                code="mask.shape_mismatch",
            )
        cost = self.baseline(tokens)
        parameters = cost.parameters
        macs = cost.macs
        for layer in self.layers:
            removed_groups = layer.removed_groups(kept_heads)
            parameters -= layer.saved_parameters(removed_groups)
            macs -= removed_groups * layer.macs(tokens)
        return ModelCost(parameters, macs, tokens)

    @property
    def are_even(self) -> bool:
        """Whether all heads cost the same."""
        costs_of_heads = {
            (layer.parameters / layer.group_size, layer.group_size) for layer in self.layers
        }
        return len(costs_of_heads) <= 1

    def to_json(self) -> dict[str, Json]:
        """Everything, as JSON values."""
        return asdict(self) | {
            "macs": list(self.macs),
            "layers": [list(asdict(layer).values()) for layer in self.layers],
        }

    @staticmethod
    def from_json(value: Any) -> Costs:
        """Inverse of `to_json`. Raises HeadlabError for malformed values."""
        try:
            a, b, c = (_checked_count(number) for number in value["macs"])
            layers = tuple(_layer_cost_from(row) for row in value["layers"])
            return Costs(_checked_count(value["parameters"]), (a, b, c), layers, str(value["note"]))
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise HeadlabError(
                f"this is not the cost of a model ({type(error).__name__}: {error})",
                code="costs.malformed",
            ) from error


def _layer_cost_from(row: Any) -> LayerCost:
    layer = LayerCost(*(_checked_count(number) for number in row))
    if layer.heads % layer.group_size:
        raise ValueError(f"{layer.heads} heads in groups of {layer.group_size}")
    return layer


def _checked_count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.40} is not a count")
    return value


def saved_shares(before: ModelCost, after: ModelCost) -> Mapping[str, float]:
    """Shares saved, 0 to 1, of parameters and of multiply-accumulates."""
    return {
        "parameters": 1 - after.parameters / before.parameters,
        "macs": 1 - after.macs / before.macs if before.macs else 0.0,
    }


# A ratio of times, with the interval of its median.

LEVEL = 0.95


class Ratio(NamedTuple):
    """Time of one model over that of another; below 1 is faster.

    Attributes:
        ratio: Median over rounds.
        low: Lower end of its interval.
        high: Upper end.
        level: Of the interval.
        rounds: Number of rounds.
    """

    ratio: float
    low: float
    high: float
    level: float
    rounds: int

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes 1, equal speed."""
        return not self.low <= 1 <= self.high


def ratio_of(before: Floats, after: Floats, level: float = LEVEL) -> Ratio:
    """Median over rounds of after / before, with its interval.

    Args:
        before: Seconds, float [round].
        after: Seconds, float [round].
        level: Of the interval.
    """
    ratios = after / before
    low, high = median_interval(ratios, level)
    return Ratio(float(np.median(ratios)), low, high, level, len(ratios))


def median_interval(values: Floats, level: float = LEVEL) -> tuple[float, float]:
    """Distribution-free interval for the median of the distribution of `values`.

    It inverts the sign test.

    Its ends are the values of rank k and n + 1 - k, for the largest k with
    1 - 2 P(Binomial(n, 1/2) < k) >= level.

    Args:
        values: Independent draws, float [draw].
        level: Of the interval.

    Raises:
        HeadlabError: There are too few values.
    """
    n = len(values)
    # the smallest k with P(Binomial <= k) at the tail or above
    k = int(binom.ppf((1 - level) / 2, n, 0.5))
    if k < 1:
        raise HeadlabError(
            f"{n} values are too few for a {level:.0%} interval of their median; measure more",
            code="ratio.values_too_few",
        )
    sorted_values = np.sort(values)
    return float(sorted_values[k - 1]), float(sorted_values[n - k])


# What a mask saves, as a record: counted and timed, with explanatory sentences.

NAME = "worth"
NO_SPEED = (
    "A mask alone saves no computation: a head that is off is computed like any other and then "
    "multiplied by zero. Only heads removed from the weights save parameters, "
    "multiply-accumulates and time."
)
NOISE = (
    "Times are of this machine now; every round times all models and batch sizes in turn, each "
    "batch size on its own examples. An interval is of the median over rounds and says nothing "
    "about another machine, other lengths or other libraries."
)


@dataclass(frozen=True)
class MeasuredSpeed:
    """How long a forward pass takes on one device at one batch size, on real examples.

    Attributes:
        device: Its name.
        rows: Batch size.
        tokens: Per row, padding included.
        milliseconds: Of a batch through the untouched model, median over rounds.
        masked_ratio: Time of the masked model over that of the untouched one; below 1 is faster.
        shrunk_ratio: The same of the shrunk model; None where heads cannot be removed from the
            weights.
        milliseconds_interval: 95 % interval of `milliseconds`; None if not measured.
    """

    device: str
    rows: int
    tokens: int
    milliseconds: float
    masked_ratio: Ratio
    shrunk_ratio: Ratio | None
    milliseconds_interval: tuple[float, float] | None = None

    def throughput(self, ratio: float = 1.0) -> float:
        """Examples per second at `ratio` times the untouched model's time."""
        return self.rows / (self.milliseconds / 1000 * ratio)


@dataclass(frozen=True)
class Savings:
    """What a mask saves.

    Attributes:
        heads: Number of heads of the grid.
        removed_heads: How many the mask switches off.
        baseline: Cost of the untouched model; a masked model costs as much.
        shrunk: Cost of the shrunk model; None where heads cannot be removed from the weights.
        speeds: Measured times, by device and batch size.
        refusal: Why heads cannot be removed; else empty.
        still_masked: Heads that are off but remain in the shrunk model (part of a group of
            queries).
        spec: What was measured.
    """

    heads: int
    removed_heads: int
    baseline: ModelCost
    shrunk: ModelCost | None
    speeds: tuple[MeasuredSpeed, ...]
    refusal: str = ""
    still_masked: int = 0
    spec: Mapping[str, Json] = field(default_factory=dict)

    def sentences(self) -> tuple[str, ...]:
        """What the numbers say, in sentences, bad news first."""
        sentences = [NO_SPEED, *(_speed_sentence(speed) for speed in self.speeds)]
        if self.shrunk is None:
            sentences.append(f"Its heads cannot be removed from the weights: {self.refusal}.")
        else:
            shares = saved_shares(self.baseline, self.shrunk)
            sentences.append(
                f"Removing {self.removed_heads - self.still_masked} of {self.heads} heads saves "
                f"{shares['parameters']:.1%} of the parameters and {shares['macs']:.1%} of the "
                f"multiply-accumulates at {self.baseline.tokens} tokens."
            )
        if self.still_masked:
            sentences.append(
                "Heads that are off but share a key and a value with one that is on stay masked: "
                f"{self.still_masked}."
            )
        if self.speeds:
            sentences += [*_timed_on_sentences(self.spec), NOISE]
        return tuple(sentences)

    def report(self) -> Report:
        """The same as a report with tables."""
        tables = [self._sizes()]
        if self.speeds:
            tables.append(self._times())
        return Report(NAME, tuple(tables), self.sentences(), RunSpec.of(self.spec))

    def _sizes(self) -> Table:
        """The counted costs, a row a model."""
        rows: list[tuple[Cell, ...]] = []
        for name, cost, heads in self._models():
            shares = saved_shares(self.baseline, cost).values()
            rows.append((name, heads, cost.parameters, cost.macs, *shares))
        return Table(
            "worth-size",
            "Parameters, and multiply-accumulates of a forward pass on one text of "
            f"{self.baseline.tokens} tokens",
            (
                "model",
                "heads",
                "parameters",
                "multiply-accumulates",
                "parameters saved",
                "multiply-accumulates saved",
            ),
            ("", "d", ",d", ",d", ".1%", ".1%"),
            tuple(rows),
        )

    def _models(self) -> Sequence[tuple[str, ModelCost, int]]:
        """Each model's name, its cost and its number of heads."""
        kept_count = self.heads - self.removed_heads
        models = [("untouched", self.baseline, self.heads), ("masked", self.baseline, kept_count)]
        if self.shrunk is not None:
            models.append(("shrunk", self.shrunk, kept_count + self.still_masked))
        return models

    def _times(self) -> Table:
        """The measured times: a row for each device, batch size and model."""
        columns = {
            "device": "",
            "batch size": "d",
            "tokens": "d",
            "model": "",
            "ms a batch": ".2f",
            "ms low": ".2f",
            "ms high": ".2f",
            "examples a second": ".1f",
            "time ratio": ".3f",
            "low": ".3f",
            "high": ".3f",
        }
        rows: list[tuple[Cell, ...]] = []
        for speed in self.speeds:
            setting = (speed.device, speed.rows, speed.tokens)
            low, high = speed.milliseconds_interval or (None, None)
            milliseconds: tuple[float | None, ...] = (speed.milliseconds, low, high)
            no_ratio = (None, None, None)
            rows.append((*setting, "untouched", *milliseconds, speed.throughput(), *no_ratio))
            for name, ratio in (("masked", speed.masked_ratio), ("shrunk", speed.shrunk_ratio)):
                if ratio is not None:
                    milliseconds = (speed.milliseconds * ratio.ratio, None, None)
                    times = (speed.throughput(ratio.ratio), ratio.ratio, ratio.low, ratio.high)
                    rows.append((*setting, name, *milliseconds, *times))
        return Table(
            "worth-speed",
            "Measured time of a forward pass, as a ratio to the untouched model's in the same "
            "round",
            tuple(columns),
            tuple(columns.values()),
            tuple(rows),
            (
                "time ratio: below 1 is faster; low, high and ms low, ms high: 95 % interval of "
                "the median over rounds.",
            ),
        )

    def to_json(self) -> dict[str, Json]:
        """What `headlab worth --json` prints."""
        shrunk = self.shrunk
        return {
            "heads": self.heads,
            "removed": self.removed_heads,
            "still_masked": self.still_masked,
            "tokens": self.baseline.tokens,
            **_for_each_model(
                "parameters",
                self.baseline.parameters,
                None if shrunk is None else shrunk.parameters,
            ),
            **_for_each_model("macs", self.baseline.macs, None if shrunk is None else shrunk.macs),
            "refused": self.refusal or None,
            "speed": [_speed_to_json(speed) for speed in self.speeds],
            "notes": list(self.sentences()),
            "spec": dict(self.spec),
        }

    @staticmethod
    def from_json(value: Any) -> Savings:
        """Inverse of `to_json`. Raises HeadlabError for malformed values."""
        try:
            tokens = int(value["tokens"])
            parameters = value["parameters"]
            macs = value["macs"]
            shrunk = None
            if parameters["shrunk"] is not None:
                shrunk = ModelCost(int(parameters["shrunk"]), int(macs["shrunk"]), tokens)
            return Savings(
                heads=int(value["heads"]),
                removed_heads=int(value["removed"]),
                baseline=ModelCost(int(parameters["untouched"]), int(macs["untouched"]), tokens),
                shrunk=shrunk,
                speeds=tuple(_speed_from_json(row) for row in value["speed"]),
                refusal=str(value["refused"] or ""),
                still_masked=int(value["still_masked"]),
                spec={**value["spec"]},
            )
        except (KeyError, TypeError, ValueError) as error:
            raise HeadlabError(
                f"this is not a measurement of a mask's savings ({type(error).__name__}: {error})",
                code="worth.malformed",
            ) from error


def _for_each_model(name: str, baseline: int, shrunk: int | None) -> dict[str, Json]:
    """{name: its figure for each model}; a masked model costs as much as the baseline."""
    return {name: {"untouched": baseline, "masked": baseline, "shrunk": shrunk}}


def _speed_to_json(speed: MeasuredSpeed) -> dict[str, Json]:
    """The timings at one batch size, as JSON values."""
    return {
        "device": speed.device,
        "rows": speed.rows,
        "tokens": speed.tokens,
        "milliseconds": speed.milliseconds,
        "milliseconds_interval": None
        if speed.milliseconds_interval is None
        else list(speed.milliseconds_interval),
        "examples_a_second": speed.throughput(),
        "masked": speed.masked_ratio._asdict(),
        "shrunk": None if speed.shrunk_ratio is None else speed.shrunk_ratio._asdict(),
    }


def _speed_from_json(row: Mapping[str, Any]) -> MeasuredSpeed:
    """Inverse of `_speed_to_json`.

    Raises KeyError, TypeError or ValueError for malformed values.
    """
    masked, shrunk = (
        None if row[name] is None else Ratio(**row[name]) for name in ("masked", "shrunk")
    )
    if masked is None:
        raise ValueError("no ratio of the masked model")
    interval = row.get("milliseconds_interval")  # absent from older measurements
    if interval is not None:
        low, high = map(float, interval)
        interval = (low, high)
    return MeasuredSpeed(
        device=str(row["device"]),
        rows=int(row["rows"]),
        tokens=int(row["tokens"]),
        milliseconds=float(row["milliseconds"]),
        masked_ratio=masked,
        shrunk_ratio=shrunk,
        milliseconds_interval=interval,
    )


def _timed_on_sentences(spec: Mapping[str, Json]) -> Iterator[str]:
    """A sentence on the model and examples that were timed, if the spec names them."""
    model = spec.get("model")
    if not isinstance(model, Mapping) or "rounds" not in spec:
        return
    languages = spec.get("languages")
    names = map(str, languages) if isinstance(languages, list) else ()
    if spec.get("task"):
        examples = f"examples of {spec.get('task')} in {', '.join(names)}"
    else:
        task = spec.get("sentences") or "the embedded task"
        examples = f"sentences of {task} in all its languages, as plain texts"
    measurement = f"{spec['rounds']} rounds, seed {spec.get('seed')}"
    yield f"Timed: {model.get('name')} on {examples}; {measurement}."


def _speed_sentence(speed: MeasuredSpeed) -> str:
    """The timings at one device and batch size, in words."""
    place = f"On {speed.device} at batch size {speed.rows}"
    clauses = [f"{place}: masked, a pass takes {_ratio_text(speed.masked_ratio)}"]
    if speed.shrunk_ratio is not None:
        clauses.append(f"with the heads removed {_ratio_text(speed.shrunk_ratio)}")
    return ", ".join(clauses) + "."


def _ratio_text(ratio: Ratio) -> str:
    text = f"{ratio.ratio:.2f} of the untouched model's time [{ratio.low:.2f}, {ratio.high:.2f}]"
    if ratio.is_clear:
        return text
    return f"{text}, not distinguishable from equal speed"
