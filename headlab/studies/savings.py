"""What a mask saves: parameters, multiply-accumulates and measured time, as a record and in words; without torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binom

from headlab.core import Bools, Cell, Floats, HeadlabError, Json, Report, RunSpec, Table

# What a model costs with and without some of its heads: arithmetic only, without torch or a forward pass.

TOKENS = (
    32  # length of the text that multiply-accumulates are given for, if no real text is available
)


@dataclass(frozen=True)
class LayerCost:
    """What the heads of one layer cost.

    first: flat index of its first head.  heads: number of heads.  together: size of a group of heads that can only
    be removed together (with grouped queries, those that share a key and a value).  Per group: parameters;
    macs_token, multiply-accumulates per token; macs_pair, per pair of tokens.  rest: further parameters removed
    with the layer's last head.
    """

    first: int
    heads: int
    together: int
    parameters: int
    macs_token: int
    macs_pair: int
    rest: int = 0

    def macs(self, tokens: int) -> int:
        """Multiply-accumulates of one group on a text of `tokens` tokens."""
        return self.macs_token * tokens + self.macs_pair * tokens**2

    def gone(self, kept: Bools) -> int:
        """Number of groups with no head left. kept: bool [head], of the whole grid."""
        own = kept[self.first : self.first + self.heads].reshape(-1, self.together)
        return int((~own.any(axis=1)).sum())

    def saved(self, gone: int) -> int:
        """Parameters saved by removing `gone` groups."""
        return gone * self.parameters + (
            self.rest if gone and gone == self.heads // self.together else 0
        )


@dataclass(frozen=True)
class Left:
    """What a model costs: parameters, and multiply-accumulates of a forward pass on one text of `tokens` tokens."""

    parameters: int
    macs: int
    tokens: int


@dataclass(frozen=True)
class Costs:
    """A model's costs, and its layers' shares of them.

    macs: multiply-accumulates of a forward pass on one text of n tokens, as coefficients of 1, n and n squared; for
    a sequence-to-sequence model the target is as long as the text.  layers: by row of the gate array; empty where
    heads cannot be removed from the weights, and `note` says why.
    """

    parameters: int
    macs: tuple[int, int, int]
    layers: tuple[LayerCost, ...]
    note: str = ""

    def untouched(self, tokens: int = TOKENS) -> Left:
        """The cost of the untouched model on a text of `tokens` tokens."""
        return Left(
            self.parameters, sum(c * tokens**power for power, c in enumerate(self.macs)), tokens
        )

    def shrunk(self, kept: Bools, tokens: int = TOKENS) -> Left:
        """The cost of the model without the heads that are not kept; grouped queries are removed in whole groups.

        kept: bool [head].  Raises HeadlabError if heads cannot be removed from this model's weights.
        """
        if not self.layers:
            raise HeadlabError(
                self.note or "the heads of this model cannot be removed",
                code="costs.heads_not_removable",
            )
        size = sum(layer.heads for layer in self.layers)
        if kept.shape != (size,):
            raise HeadlabError(
                f"the mask has {kept.size} heads; this model has {size}", code="mask.shape_mismatch"
            )
        whole, gone = self.untouched(tokens), [layer.gone(kept) for layer in self.layers]
        parameters = sum(layer.saved(n) for n, layer in zip(gone, self.layers, strict=True))
        macs = sum(n * layer.macs(tokens) for n, layer in zip(gone, self.layers, strict=True))
        return Left(whole.parameters - parameters, whole.macs - macs, tokens)

    @property
    def even(self) -> bool:
        """Whether all heads cost the same."""
        return (
            len({(layer.parameters / layer.together, layer.together) for layer in self.layers}) <= 1
        )

    def to_json(self) -> dict[str, Json]:
        """Everything, as JSON values."""
        return asdict(self) | {
            "macs": list(self.macs),
            "layers": [list(asdict(one).values()) for one in self.layers],
        }

    @staticmethod
    def from_json(value: Any) -> Costs:
        """Inverse of `to_json`. Raises HeadlabError for malformed values."""
        try:
            a, b, c = (_count(v) for v in value["macs"])
            layers = tuple(_layer(row) for row in value["layers"])
            return Costs(_count(value["parameters"]), (a, b, c), layers, str(value["note"]))
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise HeadlabError(
                f"this is not the cost of a model ({type(error).__name__}: {error})",
                code="costs.malformed",
            ) from error


def _layer(row: Any) -> LayerCost:
    layer = LayerCost(*(_count(v) for v in row))
    if layer.heads % layer.together:
        raise ValueError(f"{layer.heads} heads in groups of {layer.together}")
    return layer


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.40} is not a count")
    return value


def saved(before: Left, after: Left) -> Mapping[str, float]:
    """Shares saved, 0 to 1, of parameters and of multiply-accumulates."""
    return {
        "parameters": 1 - after.parameters / before.parameters,
        "macs": 1 - after.macs / before.macs if before.macs else 0.0,
    }


# A ratio of times, with the interval of its median.

LEVEL = 0.95


class Ratio(NamedTuple):
    """Time of one model over that of another (below 1 is faster): median over rounds and its interval at `level`."""

    ratio: float
    low: float
    high: float
    level: float
    rounds: int

    @property
    def sure(self) -> bool:
        """Whether the interval excludes 1, equal speed."""
        return not self.low <= 1 <= self.high


def ratio_of(before: Floats, after: Floats, level: float = LEVEL) -> Ratio:
    """Median over rounds of after / before, with its interval. before, after: seconds, float [round]."""
    ratios = after / before
    low, high = median_interval(ratios, level)
    return Ratio(float(np.median(ratios)), low, high, level, len(ratios))


def median_interval(values: Floats, level: float = LEVEL) -> tuple[float, float]:
    """Distribution-free interval for the median of the distribution of `values`, float [draw] (from the sign test).

    Its ends are the values of rank k and n + 1 - k, for the largest k with 1 - 2 P(Binomial(n, 1/2) < k) >= level;
    draws must be independent.  Raises HeadlabError for too few values.
    """
    n = len(values)
    k = int(
        binom.ppf((1 - level) / 2, n, 0.5)
    )  # the smallest with P(Binomial <= k) at the tail or above
    if k < 1:
        raise HeadlabError(
            f"{n} values are too few for a {level:.0%} interval of their median; measure more",
            code="ratio.values_too_few",
        )
    ordered = np.sort(values)
    return float(ordered[k - 1]), float(ordered[n - k])


# What a mask saves, as a record: counted and timed, with explanatory sentences.

NAME = "worth"
NO_SPEED = (
    "A mask alone saves no computation: a head that is off is computed like any other and then multiplied by zero. "
    "Only heads removed from the weights (headlab shrink) save parameters, multiply-accumulates and time."
)
NOISE = (
    "Times are of this machine now; every round times all models and batch sizes in turn, each batch size on its own "
    "examples. An interval is of the median over rounds and says nothing about another machine, other lengths or other "
    "libraries."
)


@dataclass(frozen=True)
class Speed:
    """How long a forward pass takes on one device at one batch size, on real examples.

    rows: batch size.  tokens: per row, padding included.  milliseconds: of a batch through the untouched model,
    median over rounds.  masked, shrunk: time over that of the untouched model, below 1 is faster; shrunk is None
    where heads cannot be removed from the weights.  between: 95 % interval of `milliseconds`, None if not measured.
    """

    device: str
    rows: int
    tokens: int
    milliseconds: float
    masked: Ratio
    shrunk: Ratio | None
    between: tuple[float, float] | None = None

    def throughput(self, ratio: float = 1.0) -> float:
        """Examples per second at `ratio` times the untouched model's time."""
        return self.rows / (self.milliseconds / 1000 * ratio)


@dataclass(frozen=True)
class Savings:
    """What a mask saves.

    heads, removed: heads of the grid, and how many the mask switches off.  untouched, shrunk: counted costs (a masked
    model costs as much as the untouched one); shrunk is None where heads cannot be removed from the weights, and
    `refused` says why.  still: heads that are off but remain in the shrunk model (part of a group of queries).
    """

    heads: int
    removed: int
    untouched: Left
    shrunk: Left | None
    speeds: tuple[Speed, ...]
    refused: str = ""
    still: int = 0
    spec: Mapping[str, Json] = field(default_factory=dict)

    def sentences(self) -> tuple[str, ...]:
        """What the numbers say, in sentences, bad news first."""
        out = [NO_SPEED, *(_told(speed) for speed in self.speeds)]
        if self.shrunk is None:
            out.append(f"Its heads cannot be removed from the weights: {self.refused}.")
        else:
            share = saved(self.untouched, self.shrunk)
            out.append(
                f"Removing {self.removed - self.still} of {self.heads} heads saves {share['parameters']:.1%} of the "
                f"parameters and {share['macs']:.1%} of the multiply-accumulates at {self.untouched.tokens} tokens."
            )
        if self.still:
            out.append(
                f"Heads that are off but share a key and a value with one that is on stay masked: {self.still}."
            )
        return (*out, *((*_timed_on(self.spec), NOISE) if self.speeds else ()))

    def report(self) -> Report:
        """The same as a report with tables."""
        return Report(
            NAME,
            (self._sizes(), *((self._times(),) if self.speeds else ())),
            self.sentences(),
            RunSpec.of(self.spec),
        )

    def _sizes(self) -> Table:
        rows: list[tuple[Cell, ...]] = []
        for name, left, heads in self._models():
            rows.append(
                (name, heads, left.parameters, left.macs, *saved(self.untouched, left).values())
            )
        return Table(
            "worth-size",
            f"Parameters, and multiply-accumulates of a forward pass on one text of {self.untouched.tokens} tokens",
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

    def _models(self) -> Sequence[tuple[str, Left, int]]:
        masked = self.heads - self.removed
        out = [("untouched", self.untouched, self.heads), ("masked", self.untouched, masked)]
        return out if self.shrunk is None else [*out, ("shrunk", self.shrunk, masked + self.still)]

    def _times(self) -> Table:
        rows: list[tuple[Cell, ...]] = []
        for s in self.speeds:
            ms: tuple[float | None, ...] = (s.milliseconds, *(s.between or (None, None)))
            rows.append(
                (s.device, s.rows, s.tokens, "untouched", *ms, s.throughput(), None, None, None)
            )
            for name, ratio in (("masked", s.masked), ("shrunk", s.shrunk)):
                if ratio is not None:
                    ms = (s.milliseconds * ratio.ratio, None, None)
                    times = (s.throughput(ratio.ratio), ratio.ratio, ratio.low, ratio.high)
                    rows.append((s.device, s.rows, s.tokens, name, *ms, *times))
        return Table(
            "worth-speed",
            "Measured time of a forward pass, as a ratio to the untouched model's in the same round",
            ("device", "batch size", "tokens", "model", "ms a batch", "ms low", "ms high", "examples a second",
             "time ratio", "low", "high"),
            ("", "d", "d", "", ".2f", ".2f", ".2f", ".1f", ".3f", ".3f", ".3f"),
            tuple(rows),
            ("time ratio: below 1 is faster; low, high and ms low, ms high: 95 % interval of the median over rounds.",),
        )  # fmt: skip

    def to_json(self) -> dict[str, Json]:
        """What `headlab worth --json` prints."""
        shrunk = self.shrunk
        return {
            "heads": self.heads,
            "removed": self.removed,
            "still_masked": self.still,
            "tokens": self.untouched.tokens,
            **_three(
                "parameters",
                self.untouched.parameters,
                None if shrunk is None else shrunk.parameters,
            ),
            **_three("macs", self.untouched.macs, None if shrunk is None else shrunk.macs),
            "refused": self.refused or None,
            "speed": [_speed(speed) for speed in self.speeds],
            "notes": list(self.sentences()),
            "spec": dict(self.spec),
        }

    @staticmethod
    def from_json(value: Any) -> Savings:
        """Inverse of `to_json`. Raises HeadlabError for malformed values."""
        try:
            tokens = int(value["tokens"])
            left = {k: (value["parameters"][k], value["macs"][k]) for k in ("untouched", "shrunk")}
            shrunk = (
                None
                if left["shrunk"][0] is None
                else Left(int(left["shrunk"][0]), int(left["shrunk"][1]), tokens)
            )
            untouched = Left(int(left["untouched"][0]), int(left["untouched"][1]), tokens)
            counts = (int(value["heads"]), int(value["removed"]))
            speeds = tuple(_read_speed(row) for row in value["speed"])
            refused, still = str(value["refused"] or ""), int(value["still_masked"])
            return Savings(*counts, untouched, shrunk, speeds, refused, still, {**value["spec"]})
        except (KeyError, TypeError, ValueError) as error:
            raise HeadlabError(
                f"this is not a measurement of a mask's savings ({type(error).__name__}: {error})",
                code="worth.malformed",
            ) from error


def _three(name: str, untouched: int, shrunk: int | None) -> dict[str, Json]:
    return {name: {"untouched": untouched, "masked": untouched, "shrunk": shrunk}}


def _speed(speed: Speed) -> dict[str, Json]:
    about = {name: getattr(speed, name) for name in ("device", "rows", "tokens", "milliseconds")}
    ratios = {
        name: r and r._asdict() for name, r in (("masked", speed.masked), ("shrunk", speed.shrunk))
    }
    between = None if speed.between is None else list(speed.between)
    return about | {
        "milliseconds_interval": between,
        "examples_a_second": speed.throughput(),
        **ratios,
    }


def _read_speed(row: Mapping[str, Any]) -> Speed:
    ratios = [None if row[name] is None else Ratio(**row[name]) for name in ("masked", "shrunk")]
    if ratios[0] is None:
        raise ValueError("no ratio of the masked model")
    counts = (str(row["device"]), int(row["rows"]), int(row["tokens"]), float(row["milliseconds"]))
    between = row.get("milliseconds_interval")  # absent from older measurements
    if between is not None:
        low, high = map(float, between)
        between = low, high
    return Speed(*counts, ratios[0], ratios[1], between)


def _timed_on(spec: Mapping[str, Json]) -> Iterator[str]:
    """A sentence on the model and examples that were timed, if the spec names them."""
    model = spec.get("model")
    if not isinstance(model, Mapping) or "rounds" not in spec:
        return
    languages = spec.get("languages")
    names = map(str, languages) if isinstance(languages, list) else ()
    ran = f"examples of {spec.get('task')} in {', '.join(names)}"
    if not spec.get("task"):
        ran = f"sentences of {spec.get('sentences') or 'the embedded task'} in all its languages, as plain texts"
    yield f"Timed: {model.get('name')} on {ran}; {spec['rounds']} rounds, seed {spec.get('seed')}."


def _told(speed: Speed) -> str:
    """The timings at one device and batch size, in words."""
    words = [
        f"On {speed.device} at batch size {speed.rows}: masked, a pass takes {_times(speed.masked)}"
    ]
    if speed.shrunk is not None:
        words.append(f"with the heads removed {_times(speed.shrunk)}")
    return ", ".join(words) + "."


def _times(ratio: Ratio) -> str:
    told = f"{ratio.ratio:.2f} of the untouched model's time [{ratio.low:.2f}, {ratio.high:.2f}]"
    return told if ratio.sure else f"{told}, not distinguishable from equal speed"
