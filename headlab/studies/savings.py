"""What a mask saves, and a smaller vocabulary: parameters, multiply-accumulates and measured time.

As a record and in words; without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import scipy

from headlab.core import (
    HEADS,
    MIXED_NOUNS,
    Bools,
    Cell,
    Floats,
    HeadlabError,
    Json,
    Report,
    RunSpec,
    Table,
    nouns_of_kinds,
    read_players,
)

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

    def masked_heads(self, kept_heads: Bools) -> int:
        """Number of heads that are off in groups with a head left: they stay in the weights.

        Args:
            kept_heads: bool [head], of the whole grid.
        """
        groups = kept_heads[self.first_head : self.first_head + self.heads].reshape(
            -1, self.group_size
        )
        return int((~groups)[groups.any(axis=1)].sum())

    def saved_parameters(self, removed_groups: int) -> int:
        """Parameters saved by removing so many groups."""
        parameters = removed_groups * self.parameters
        is_empty = removed_groups == self.heads // self.group_size
        if removed_groups and is_empty:
            parameters += self.rest
        return parameters


@dataclass(frozen=True)
class VocabularyCost:
    """What the vocabulary of a model costs.

    Attributes:
        pieces: Rows of the embeddings.
        parameters: Of one piece: its row, and what it has in an output layer of its own.
        macs_token: Multiply-accumulates of one piece per token: those of an output layer.
    """

    pieces: int
    parameters: int
    macs_token: int = 0

    @property
    def all_parameters(self) -> int:
        """Parameters of all pieces."""
        return self.pieces * self.parameters


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
        vocabulary: What its vocabulary costs; None in what was written before this was counted.
    """

    parameters: int
    macs: tuple[int, int, int]
    layers: tuple[LayerCost, ...]
    note: str = ""
    vocabulary: VocabularyCost | None = None

    def cut_to(self, pieces: int) -> Costs:
        """The costs of the model with so many pieces of its vocabulary.

        Args:
            pieces: How many stay.

        Raises:
            HeadlabError: What the vocabulary costs is not known.
        """
        vocabulary = self.vocabulary
        if vocabulary is None:
            raise HeadlabError(
                "what the vocabulary of this model costs is not known: it has no embedding for each "
                "token, or was counted by an older version of headlab; leave --vocabulary out",
                code="costs.vocabulary_unknown",
            )
        removed_pieces = vocabulary.pieces - pieces
        constant, linear, square = self.macs
        return replace(
            self,
            parameters=self.parameters - removed_pieces * vocabulary.parameters,
            macs=(constant, linear - removed_pieces * vocabulary.macs_token, square),
            vocabulary=replace(vocabulary, pieces=pieces),
        )

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

    def masked_heads(self, kept_heads: Bools) -> int:
        """Number of heads that are off but stay in the weights, with one that is on.

        Args:
            kept_heads: bool [head].
        """
        return sum(layer.masked_heads(kept_heads) for layer in self.layers)

    @property
    def noun(self) -> str:
        """What is removed, in a word."""
        return "heads"

    @property
    def are_known(self) -> bool:
        """Whether it is known what leaves the weights with each head."""
        return bool(self.layers)

    def unknown(self, note: str) -> Costs:
        """The costs of the model where nothing can be removed from the weights.

        Args:
            note: Why it cannot.
        """
        return Costs(self.parameters, self.macs, (), note, self.vocabulary)

    def per_parameter(self, values: Floats) -> Floats:
        """Each head's value per parameter removed with it, float [head].

        Heads that can only be removed together share one value.

        Args:
            values: float [head].
        """
        values_per_parameter = np.empty_like(values)
        for layer in self.layers:
            if layer.heads:
                layer_heads = slice(layer.first_head, layer.first_head + layer.heads)
                groups = values[layer_heads].reshape(-1, layer.group_size)
                values_of_groups = groups.sum(axis=1) / layer.parameters
                values_per_parameter[layer_heads] = np.repeat(values_of_groups, layer.group_size)
        return values_per_parameter

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
            a, b, c = (checked_count(number) for number in value["macs"])
            layers = tuple(_layer_cost_from(row) for row in value["layers"])
            return Costs(
                checked_count(value["parameters"]),
                (a, b, c),
                layers,
                str(value["note"]),
                _vocabulary_cost_from(value.get("vocabulary")),  # absent from older records
            )
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise HeadlabError(
                f"this is not the cost of a model ({type(error).__name__}: {error})",
                code="costs.malformed",
            ) from error


def _layer_cost_from(row: Any) -> LayerCost:
    layer = LayerCost(*(checked_count(number) for number in row))
    if layer.heads % layer.group_size:
        raise ValueError(f"{layer.heads} heads in groups of {layer.group_size}")
    return layer


def _vocabulary_cost_from(value: Any) -> VocabularyCost | None:
    if value is None:
        return None
    names = ("pieces", "parameters", "macs_token")
    return VocabularyCost(*(checked_count(value[name]) for name in names))


def checked_count(value: Any) -> int:
    """A whole number of 0 or more. Raises ValueError for anything else."""
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
    k = int(scipy.stats.binom.ppf((1 - level) / 2, n, 0.5))
    if k < 1:
        raise HeadlabError(
            f"{n} values are too few for a {level:.0%} interval of their median; measure more",
            code="ratio.values_too_few",
        )
    sorted_values = np.sort(values)
    return float(sorted_values[k - 1]), float(sorted_values[n - k])


# What a mask saves, as a record: counted and timed, with explanatory sentences.

NAME = "worth"
LARGE_SHARE = 0.25  # of the parameters: a vocabulary from there on is worth a sentence


def no_speed(nouns: tuple[str, str]) -> str:
    """Why a mask saves nothing by itself, in sentences.

    Args:
        nouns: What is off, as it is called where it is counted: one, and several.
    """
    one, several = nouns
    article = "an" if one[0] in "aeio" else "a"
    return (
        f"A mask alone saves no computation: {article} {one} that is off is computed like any "
        f"other and then multiplied by zero. Only {several} removed from the weights save "
        "parameters, multiply-accumulates and time."
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
        cut_ratio: The same of the model whose vocabulary is cut; None where it is not.
    """

    device: str
    rows: int
    tokens: int
    milliseconds: float
    masked_ratio: Ratio
    shrunk_ratio: Ratio | None
    milliseconds_interval: tuple[float, float] | None = None
    cut_ratio: Ratio | None = None

    def throughput(self, ratio: float = 1.0) -> float:
        """Examples per second at `ratio` times the untouched model's time."""
        return self.rows / (self.milliseconds / 1000 * ratio)


@dataclass(frozen=True)
class VocabularyShare:
    """How much of a model is its vocabulary.

    Attributes:
        pieces: Rows of the embeddings.
        parameters: Of all pieces: in the embeddings, and in an output layer of their own.
        can_be_cut: Whether its tokenizer is of a kind whose vocabulary can be cut, and there is
            more than one language to choose from.
    """

    pieces: int
    parameters: int
    can_be_cut: bool


@dataclass(frozen=True)
class CutModel:
    """The model with the heads removed, where they can be, and its vocabulary cut to languages.

    Attributes:
        languages: Their codes.
        pieces: How many stay.
        vocabulary_parameters: Of the pieces that stay.
        cost: Of the model.
    """

    languages: tuple[str, ...]
    pieces: int
    vocabulary_parameters: int
    cost: ModelCost


@dataclass(frozen=True)
class Savings:
    """What a mask saves, and a smaller vocabulary.

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
        bytes_a_parameter: In the file of weights; None in older measurements.
        vocabulary: How much of the model is its vocabulary; None in older measurements.
        cut: The model with its vocabulary cut; None where it is kept.
    """

    heads: int
    removed_heads: int
    baseline: ModelCost
    shrunk: ModelCost | None
    speeds: tuple[MeasuredSpeed, ...]
    refusal: str = ""
    still_masked: int = 0
    spec: Mapping[str, Json] = field(default_factory=dict)
    bytes_a_parameter: int | None = None
    vocabulary: VocabularyShare | None = None
    cut: CutModel | None = None

    def sentences(self) -> tuple[str, ...]:
        """What the numbers say, in sentences, bad news first."""
        sentences = [
            no_speed(self._nouns),
            *(_speed_sentence(speed, self._players) for speed in self.speeds),
        ]
        if self.shrunk is None:
            sentences.append(
                f"Its {self._players} cannot be removed from the weights: {self.refusal}."
            )
        else:
            shares = saved_shares(self.baseline, self.shrunk)
            sentences.append(
                f"Removing {self.removed_heads - self.still_masked} of {self.heads} "
                f"{self._players} saves "
                f"{shares['parameters']:.1%} of the parameters and {shares['macs']:.1%} of the "
                f"multiply-accumulates at {self.baseline.tokens} tokens."
            )
        sentences += self._vocabulary_sentences()
        if self.still_masked:
            sentences.append(
                "Heads that are off but share a key and a value with one that is on stay masked: "
                f"{self.still_masked}."
            )
        if self.speeds:
            sentences += [*_timed_on_sentences(self.spec), NOISE]
        return tuple(sentences)

    @property
    def _nouns(self) -> tuple[str, str]:
        """What the mask switches, as it is called where it is counted: one, and several."""
        players = self.spec.get("players")
        if not players:
            return nouns_of_kinds([HEADS])
        try:
            return nouns_of_kinds(read_players(str(players)).kinds)
        except HeadlabError:  # of a newer version
            return MIXED_NOUNS

    @property
    def _players(self) -> str:
        """What the mask switches, in words."""
        return self._nouns[1]

    def _vocabulary_sentences(self) -> Iterator[str]:
        """What a cut vocabulary saves, or how much of the model is vocabulary, if that is much."""
        vocabulary = self.vocabulary
        if vocabulary is None:
            return
        if self.cut is not None:
            saved_share = saved_shares(self.baseline, self.cut.cost)["parameters"]
            with_or_without = f"Without the {self._players} and with"
            if self.shrunk is None:
                with_or_without = f"Its {self._players} stay, and with"
            yield (
                f"{with_or_without} a vocabulary of {', '.join(self.cut.languages)} "
                f"({self.cut.pieces:,} of {vocabulary.pieces:,} pieces) it has "
                f"{self.cut.cost.parameters:,} parameters, {saved_share:.1%} fewer."
            )
            return
        share = vocabulary.parameters / self.baseline.parameters
        if vocabulary.can_be_cut and share >= LARGE_SHARE:
            form = "--vocabulary cut --as folder" if self.shrunk is None else "--as small"
            yield (
                f"The vocabulary is {share:.0%} of the model ({vocabulary.parameters:,} of "
                f"{self.baseline.parameters:,} parameters): `headlab export --mask mask.json "
                f"--languages de,th {form}` cuts it to the languages that you name."
            )

    def report(self) -> Report:
        """The same as a report with tables."""
        tables = [self._sizes()]
        if self.speeds:
            tables.append(self._times())
        return Report(NAME, tuple(tables), self.sentences(), RunSpec.of(self.spec))

    def _sizes(self) -> Table:
        """The counted costs, a row a model."""
        rows: list[tuple[Cell, ...]] = []
        for model in self._models():
            shares = saved_shares(self.baseline, model.cost).values()
            vocabulary_share = None
            if model.vocabulary_parameters is not None:
                vocabulary_share = model.vocabulary_parameters / model.cost.parameters
            counts = (model.cost.parameters, model.cost.macs)
            size = (self._bytes_of(model.cost), vocabulary_share)
            rows.append((model.name, model.heads, *counts, *shares, *size))
        return Table(
            "worth-size",
            "Parameters, and multiply-accumulates of a forward pass on one text of "
            f"{self.baseline.tokens} tokens",
            (
                "model",
                self._players,
                "parameters",
                "multiply-accumulates",
                "parameters saved",
                "multiply-accumulates saved",
                "bytes",
                "vocabulary",
            ),
            ("", "d", ",d", ",d", ".1%", ".1%", ",d", ".1%"),
            tuple(rows),
            ("vocabulary: the share of the parameters that belong to single pieces of it.",),
        )

    def _models(self) -> Sequence[CountedModel]:
        """The models that were counted."""
        kept_count = self.heads - self.removed_heads
        vocabulary = None if self.vocabulary is None else self.vocabulary.parameters
        models = [
            CountedModel("untouched", self.baseline, self.heads, vocabulary),
            CountedModel("masked", self.baseline, kept_count, vocabulary),
        ]
        heads_in_weights = kept_count
        if self.shrunk is not None:
            heads_in_weights += self.still_masked
            models.append(CountedModel("shrunk", self.shrunk, heads_in_weights, vocabulary))
        if self.cut is not None:
            cut = self.cut
            models.append(
                CountedModel(self._cut_name, cut.cost, heads_in_weights, cut.vocabulary_parameters)
            )
        return models

    @property
    def _cut_name(self) -> str:
        """What the model with its vocabulary cut is called in tables."""
        return f"{'masked' if self.shrunk is None else 'shrunk'}, vocabulary cut"

    def _bytes_of(self, cost: ModelCost) -> int | None:
        """Size of a model's weights; None if that of a parameter is not known."""
        if self.bytes_a_parameter is None:
            return None
        return cost.parameters * self.bytes_a_parameter

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
            ratios = {
                "masked": speed.masked_ratio,
                "shrunk": speed.shrunk_ratio,
                self._cut_name: speed.cut_ratio,
            }
            for name, ratio in ratios.items():
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
        return {
            "heads": self.heads,
            "removed": self.removed_heads,
            "still_masked": self.still_masked,
            "tokens": self.baseline.tokens,
            "parameters": self._for_each_model(lambda cost: cost.parameters),
            "macs": self._for_each_model(lambda cost: cost.macs),
            "bytes": self._for_each_model(self._bytes_of),
            "bytes_a_parameter": self.bytes_a_parameter,
            "vocabulary": self._vocabulary_to_json(),
            "refused": self.refusal or None,
            "speed": [_speed_to_json(speed) for speed in self.speeds],
            "notes": list(self.sentences()),
            "spec": dict(self.spec),
        }

    def _for_each_model(self, figure: Callable[[ModelCost], int | None]) -> dict[str, Json]:
        """A figure of each model; a masked model costs as much as the baseline."""
        return {
            "untouched": figure(self.baseline),
            "masked": figure(self.baseline),
            "shrunk": None if self.shrunk is None else figure(self.shrunk),
            "cut": None if self.cut is None else figure(self.cut.cost),
        }

    def _vocabulary_to_json(self) -> dict[str, Json] | None:
        """How much of the model is its vocabulary, and to what it is cut."""
        if self.vocabulary is None:
            return None
        cut = self.cut
        return {
            **asdict(self.vocabulary),
            "share": self.vocabulary.parameters / self.baseline.parameters,
            "cut": None
            if cut is None
            else {
                "languages": list(cut.languages),
                "pieces": cut.pieces,
                "parameters": cut.vocabulary_parameters,
                "share": cut.vocabulary_parameters / cut.cost.parameters,
            },
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
            # What follows is absent from older measurements.
            parameter_bytes = value.get("bytes_a_parameter")
            vocabulary = value.get("vocabulary")
            return Savings(
                heads=int(value["heads"]),
                removed_heads=int(value["removed"]),
                baseline=ModelCost(int(parameters["untouched"]), int(macs["untouched"]), tokens),
                shrunk=shrunk,
                speeds=tuple(_speed_from_json(row) for row in value["speed"]),
                refusal=str(value["refused"] or ""),
                still_masked=int(value["still_masked"]),
                spec={**value["spec"]},
                bytes_a_parameter=None if parameter_bytes is None else int(parameter_bytes),
                vocabulary=None if vocabulary is None else _vocabulary_share_from(vocabulary),
                cut=None if vocabulary is None else _cut_model_from(value),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise HeadlabError(
                f"this is not a measurement of a mask's savings ({type(error).__name__}: {error})",
                code="worth.malformed",
            ) from error


class CountedModel(NamedTuple):
    """A row of the table of sizes.

    Attributes:
        name: What the model is called.
        cost: What it costs.
        heads: Its number of heads.
        vocabulary_parameters: Of its vocabulary; None if not known.
    """

    name: str
    cost: ModelCost
    heads: int
    vocabulary_parameters: int | None


def _vocabulary_share_from(value: Mapping[str, Any]) -> VocabularyShare:
    return VocabularyShare(
        int(value["pieces"]), int(value["parameters"]), bool(value["can_be_cut"])
    )


def _cut_model_from(value: Mapping[str, Any]) -> CutModel | None:
    """The model with its vocabulary cut, in what `Savings.to_json` gives; None where it is kept."""
    cut = value["vocabulary"]["cut"]
    if cut is None:
        return None
    tokens = int(value["tokens"])
    cost = ModelCost(int(value["parameters"]["cut"]), int(value["macs"]["cut"]), tokens)
    languages = tuple(map(str, cut["languages"]))
    return CutModel(languages, int(cut["pieces"]), int(cut["parameters"]), cost)


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
        "cut": None if speed.cut_ratio is None else speed.cut_ratio._asdict(),
    }


def _speed_from_json(row: Mapping[str, Any]) -> MeasuredSpeed:
    """Inverse of `_speed_to_json`.

    Raises KeyError, TypeError or ValueError for malformed values.
    """
    masked, shrunk = (
        None if row[name] is None else Ratio(**row[name]) for name in ("masked", "shrunk")
    )
    cut = row.get("cut")  # absent from older measurements, like the interval
    if masked is None:
        raise ValueError("no ratio of the masked model")
    interval = row.get("milliseconds_interval")
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
        cut_ratio=None if cut is None else Ratio(**cut),
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
        examples = (
            f"sentences of {task} in {', '.join(names) or 'all its languages'}, as plain texts"
        )
    measurement = f"{spec['rounds']} rounds, seed {spec.get('seed')}"
    yield f"Timed: {model.get('name')} on {examples}; {measurement}."


def _speed_sentence(speed: MeasuredSpeed, players: str) -> str:
    """The timings at one device and batch size, in words."""
    place = f"On {speed.device} at batch size {speed.rows}"
    clauses = [f"{place}: masked, a pass takes {_ratio_text(speed.masked_ratio)}"]
    if speed.shrunk_ratio is not None:
        clauses.append(f"with the {players} removed {_ratio_text(speed.shrunk_ratio)}")
    if speed.cut_ratio is not None:
        clauses.append(f"with the vocabulary cut {_ratio_text(speed.cut_ratio)}")
    return ", ".join(clauses) + "."


def _ratio_text(ratio: Ratio) -> str:
    text = f"{ratio.ratio:.2f} of the untouched model's time [{ratio.low:.2f}, {ratio.high:.2f}]"
    if ratio.is_clear:
        return text
    return f"{text}, not distinguishable from equal speed"
