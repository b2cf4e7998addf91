"""Frozen records passed between modules, and content keys; nothing here plots or saves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt

from headlab.core.equality import ComparedByContent
from headlab.core.errors import HeadlabError
from headlab.core.json_types import Json, json_at
from headlab.core.shown import Shown

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Number = TypeVar("Number", bound=np.generic)  # of an array whose type a function leaves as it is


def canonical_json(value: object) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text. Refuses NaN.

    Args:
        value: A JSON value, in which any mapping may stand for an object.
    """
    return json.dumps(
        value,
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
        default=_plain_object,
    )


def _plain_object(value: object) -> dict[object, object]:
    """A mapping as a dict, for `json`, which knows no other mapping."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def content_key(value: object) -> str:
    """sha256 (hex) of the canonical JSON of a value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def arrays_sha256(*arrays: tuple[npt.NDArray[np.generic], str]) -> str:
    """sha256 (hex) of the bytes of some arrays, each as the type named, one after the other."""
    digest = hashlib.sha256()
    for array, kind in arrays:
        digest.update(np.ascontiguousarray(array, kind).tobytes())
    return digest.hexdigest()


def part(spec: object, *path: str) -> Any:
    """The value at a path in a spec, or None; `json_at` where its type is looked at."""
    return json_at(spec, *path)


class Head(NamedTuple):
    """One attention head: stack name, layer and head, both counted from 0."""

    stack: str
    layer: int
    head: int

    def __str__(self) -> str:
        place = f"{self.layer}.{self.head}"
        if self.stack == "encoder":
            return place
        return f"{self.stack} {place}"


# The columns of a table that name a head.
HEAD_COLUMNS = Head._fields
HEAD_FORMATS = ("", "d", "d")
STACKS = ("encoder", "decoder", "cross")  # in the order of every grid
HEADS = "heads"
# What can be switched, in the order of every grid that has several kinds.
PLAYER_KINDS = (HEADS, "kv-groups", "attention", "feed-forward", "neurons", "layers")
# What players of a kind are called where they are counted: one, and several.
KIND_NOUNS = {
    HEADS: ("head", "heads"),
    "kv-groups": ("key–value group", "key–value groups"),
    "attention": ("attention block", "attention blocks"),
    "feed-forward": ("feed-forward block", "feed-forward blocks"),
    "neurons": ("group of neurons", "groups of neurons"),
    "layers": ("layer", "layers"),
}
MIXED_NOUNS = ("player", "players")


def nouns_of_kinds(kinds: Iterable[str]) -> tuple[str, str]:
    """What players of these kinds are called where they are counted: one, and several.

    Args:
        kinds: Some of `PLAYER_KINDS`; none stands for heads.
    """
    distinct = list(dict.fromkeys(kinds)) or [HEADS]
    return KIND_NOUNS[distinct[0]] if len(distinct) == 1 else MIXED_NOUNS


def stack_name(base: str, kind: str) -> str:
    """Name of the players of a kind in a stack of the model: "encoder", "encoder-neurons"."""
    return base if kind == HEADS else f"{base}-{kind}"


def base_and_kind(name: str) -> tuple[str, str]:
    """Inverse of `stack_name`: the stack of the model, and what is switched in it.

    Any name that `stack_name` does not give is a stack of heads.
    """
    for base in STACKS:
        kind = name.removeprefix(f"{base}-")
        if kind != name and kind in PLAYER_KINDS[1:]:
            return base, kind
    return name, HEADS


@dataclass(frozen=True)
class Stack:
    """The heads of one stack, or other players of one kind.

    `heads[l]` is the number of players in layer l (layers may differ): of query heads, or of
    what the name says (`stack_name`).

    Attributes:
        name: "encoder", "decoder" or "cross" for heads; "encoder-neurons" and the like for others.
        heads: Number of players in each layer.
        members: For groups of neurons, the group of every neuron of each layer; None for players
            that the name alone defines.
        is_of_heads: Whether its players are heads although its name is one of other players, as a
            mask file of heads may call them.
    """

    name: str
    heads: tuple[int, ...]
    members: tuple[tuple[int, ...], ...] | None = None
    is_of_heads: bool = False

    @property
    def base(self) -> str:
        """The stack of the model that its players are in."""
        return self.name if self.is_of_heads else base_and_kind(self.name)[0]

    @property
    def kind(self) -> str:
        """What its players are, one of `PLAYER_KINDS`."""
        return HEADS if self.is_of_heads else base_and_kind(self.name)[1]

    @property
    def title(self) -> str:
        """How people read its name: "encoder" for heads, else "encoder groups of neurons"."""
        if self.kind == HEADS:
            return self.name
        return f"{self.base} {KIND_NOUNS[self.kind][1]}"

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.heads)

    @property
    def size(self) -> int:
        """Number of heads in all layers."""
        return sum(self.heads)


@dataclass(frozen=True)
class HeadGrid:
    """All heads of a model, stack by stack and layer by layer.

    This is the order of every flat array [head].
    """

    stacks: tuple[Stack, ...]

    @cached_property
    def heads(self) -> tuple[Head, ...]:
        """Every head, in flat order."""
        heads = []
        for stack in self.stacks:
            for layer, head_count in enumerate(stack.heads):
                heads += [Head(stack.name, layer, head) for head in range(head_count)]
        return tuple(heads)

    @cached_property
    def _index(self) -> dict[Head, int]:
        return {head: index for index, head in enumerate(self.heads)}

    @property
    def size(self) -> int:
        """Number of heads in all stacks."""
        return len(self.heads)

    @property
    def layers(self) -> int:
        """Number of layers in all stacks: the first axis of a gate array."""
        return sum(stack.layers for stack in self.stacks)

    @cached_property
    def rows(self) -> tuple[str, ...]:
        """Name of the stack of every row of a gate array."""
        return tuple(stack.name for stack in self.stacks for _ in range(stack.layers))

    @property
    def width(self) -> int:
        """Most heads in any layer: the second axis of a gate array."""
        return max(max(stack.heads, default=0) for stack in self.stacks)

    @cached_property
    def flat(self) -> npt.NDArray[np.int64]:
        """int64 [head, 2]: (row in a gate array, column) of every head in flat order."""
        first_rows = {}
        row = 0
        for stack in self.stacks:
            first_rows[stack.name] = row
            row += stack.layers
        places = [(first_rows[head.stack] + head.layer, head.head) for head in self.heads]
        return np.array(places, dtype=np.int64).reshape(-1, 2)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of players that it has, in the order of `PLAYER_KINDS`."""
        present = {stack.kind for stack in self.stacks}
        return tuple(kind for kind in PLAYER_KINDS if kind in present)

    @property
    def has_only_heads(self) -> bool:
        """Whether its players are heads, as in most grids."""
        return self.kinds in ((), (HEADS,))

    @property
    def noun(self) -> str:
        """What its players are called where they are counted."""
        return nouns_of_kinds(self.kinds)[1]

    def count_words(self, count: int) -> str:
        """A number of its players with their noun: "1 head", "12 groups of neurons"."""
        one, several = nouns_of_kinds(self.kinds)
        return f"{count:,} {one if count == 1 else several}"

    def kind_of(self, player: Head) -> str:
        """What a player is, one of `PLAYER_KINDS`."""
        return self.stack(player.stack).kind

    def stack(self, name: str) -> Stack:
        """The stack of this name. Raises HeadlabError listing the existing names."""
        for stack in self.stacks:
            if stack.name == name:
                return stack
        raise HeadlabError(
            f"unknown stack {name!r}; this model has "
            f"{', '.join(stack.name for stack in self.stacks)}",
            code="stack.unknown",
        )

    def index(self, head: Head) -> int:
        """Flat index of a head. Raises HeadlabError if the model has no such head."""
        try:
            return self._index[head]
        except KeyError:
            raise HeadlabError(
                f"unknown head {tuple(head)}; this model has {self}", code="head.unknown"
            ) from None

    def gates(self, flat: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Flat [..., head] -> gate array [..., layer, width]; cells without a head hold 0."""
        gates = np.zeros((*flat.shape[:-1], self.layers, self.width), dtype=flat.dtype)
        gates[..., self.flat[:, 0], self.flat[:, 1]] = flat
        return gates

    def nest(self, flat: npt.NDArray[np.generic]) -> Json:
        """Flat [head] as nested lists.

        They are [layer][head], or {stack: [layer][head]} if there is more than one stack.
        """
        layers_by_stack: dict[str, Json] = {}
        for stack, layers in self.layers_by_stack(flat).items():
            layers_by_stack[stack] = [[*values] for values in layers]
        if len(self.stacks) > 1:
            return layers_by_stack
        return layers_by_stack[self.stacks[0].name]

    def layers_by_stack(self, flat: npt.NDArray[np.generic]) -> dict[str, list[list[float]]]:
        """Flat [head] -> {stack: [layer][head]}, of numbers or of booleans."""
        layers: dict[str, list[list[float]]] = {stack.name: [] for stack in self.stacks}
        for stack_name, _, values in by_layer(self, flat):
            layers[stack_name].append(values.tolist())
        return layers

    def unnest(self, values_by_layer: Json, source: str = "values") -> Floats | Ints | Bools:
        """Inverse of `nest`. Raises HeadlabError if the shape is not this grid's."""
        layers_by_stack = (
            values_by_layer
            if isinstance(values_by_layer, dict)
            else {self.stacks[0].name: values_by_layer}
        )
        if set(layers_by_stack) != {stack.name for stack in self.stacks}:
            raise HeadlabError(
                f"{source}: given stacks {sorted(map(str, layers_by_stack))}; this model has "
                f"{self}",
                code="grid.stacks_mismatch",
            )
        flat: list[float] = []
        for stack in self.stacks:
            layers = layers_by_stack[stack.name]
            rows = []
            if isinstance(layers, list):
                rows = [row for row in layers if isinstance(row, list)]
            if not isinstance(layers, list) or len(rows) < len(layers):
                raise HeadlabError(
                    f"{source}: stack {stack.name} must be a list of layers, each a list of heads",
                    code="grid.stack_malformed",
                )
            heads_by_layer = tuple(map(len, rows))
            if heads_by_layer != stack.heads:
                raise HeadlabError(
                    f"{source}: stack {stack.name} has {grid_text(heads_by_layer)}; this model "
                    f"has {self}",
                    code="grid.layers_mismatch",
                )
            flat += self._numbers(rows, source)
        return np.array(flat)

    @staticmethod
    def _numbers(rows: Iterable[Iterable[Json]], source: str) -> Iterator[float]:
        """The numbers of some layers, head by head. Raises HeadlabError for anything else."""
        for row in rows:
            for value in row:
                if not isinstance(value, int | float):
                    raise HeadlabError(
                        f"{source}: every head must have one number", code="grid.value_not_number"
                    )
                yield value

    def to_json(self) -> dict[str, list[int]]:
        """{stack: heads per layer}."""
        return {stack.name: list(stack.heads) for stack in self.stacks}

    def members_json(self) -> dict[str, list[list[int]]]:
        """{stack: [layer][neuron], the neuron's group} of the stacks of groups; empty for heads."""
        return {
            stack.name: [list(groups) for groups in stack.members]
            for stack in self.stacks
            if stack.members is not None
        }

    @property
    def members_sha256(self) -> str:
        """sha256 of the groups of neurons; empty where there are none."""
        members = self.members_json()
        return content_key(members) if members else ""

    @staticmethod
    def from_json(value: Json | Mapping[str, list[int]], members: Json = None) -> HeadGrid:
        """Inverse of `to_json` and `members_json`.

        Stacks are put in model order, because JSON may have sorted them by name.

        Args:
            value: {stack: heads per layer}.
            members: {stack: [layer][neuron]}, where some stacks are groups of neurons.

        Raises:
            TypeError: It is not {stack: heads per layer}, or the members are not of its stacks.
        """
        if not isinstance(value, Mapping):
            raise TypeError("a grid is {stack: heads per layer}")
        groups_by_stack = _groups_by_stack(value, members)
        stacks = []
        for name in sorted(value, key=_stack_order):
            stacks.append(Stack(name, _head_counts(value[name]), groups_by_stack.get(name)))
        return HeadGrid(tuple(stacks))

    @staticmethod
    def of_heads(counts: Mapping[str, list[int]]) -> HeadGrid:
        """A grid whose players are heads, whatever its stacks are called.

        Stacks are put in model order.

        Args:
            counts: {stack: heads per layer}.
        """
        places = {name: place for place, name in enumerate(STACKS)}
        stacks = []
        for name in sorted(counts, key=lambda name: places.get(name, len(STACKS))):
            has_other_name = base_and_kind(name)[1] != HEADS
            stacks.append(Stack(name, _head_counts(counts[name]), is_of_heads=has_other_name))
        return HeadGrid(tuple(stacks))

    def __str__(self) -> str:
        return ", ".join(f"{stack.title} {grid_text(stack.heads)}" for stack in self.stacks)


def _stack_order(name: str) -> tuple[int, int]:
    """Where a stack of this name stands in a grid."""
    base, kind = base_and_kind(name)
    place = STACKS.index(base) if base in STACKS else len(STACKS)
    return PLAYER_KINDS.index(kind), place


def _groups_by_stack(
    counts: Mapping[str, object], members: Json
) -> dict[str, tuple[tuple[int, ...], ...]]:
    """The group of every neuron, by stack. Raises TypeError for anything else.

    Args:
        counts: {stack: groups per layer}.
        members: {stack: [layer][neuron]}; None where no stack has any.
    """
    if members is None:
        return {}
    if not isinstance(members, Mapping):
        raise TypeError("the members of groups are {stack: the group of every neuron, by layer}")
    groups_by_stack = {}
    for name, layers in members.items():
        group_counts = _head_counts(counts.get(name))
        is_of_layers = isinstance(layers, list) and len(layers) == len(group_counts)
        if base_and_kind(name)[1] != "neurons" or not is_of_layers:
            raise TypeError(f"{name} is no stack of groups of neurons, by layer")
        groups_by_layer = tuple(map(_head_counts, cast("list[object]", layers)))
        for groups, count in zip(groups_by_layer, group_counts, strict=True):
            if set(groups) != set(range(count)):
                raise TypeError(f"every group of {name} has a neuron, and every neuron a group")
        groups_by_stack[name] = groups_by_layer
    return groups_by_stack


def _head_counts(counts: object) -> tuple[int, ...]:
    """The number of heads in each layer of a stack. Raises TypeError for anything else."""
    if not isinstance(counts, list) or not all(isinstance(count, int) for count in counts):
        raise TypeError("the heads of a stack are a list of whole numbers")
    return tuple(counts)


def grid_text(heads: tuple[int, ...]) -> str:
    """'12×12' for equal layers, else the number of heads in each layer."""
    if len(set(heads)) == 1:
        return f"{len(heads)}×{heads[0]}"
    return f"{len(heads)} layers of {'/'.join(map(str, heads))} heads"


# Why a labelled word has no answer, as in JSON.
WITHOUT_TOKEN = "without_token"
BEYOND_LIMIT = "beyond_limit"


@dataclass(frozen=True)
class Omissions:
    """What of some examples did not reach the model, or has no answer.

    Means and `n` are over what is left.

    Attributes:
        examples: Number of examples.
        examples_cut: Number of examples that were longer than the limit, and lost what is beyond
            it.
        token_limit: Maximum number of tokens of an example.
        words_left_out: Number of labelled words without an answer, by reason (WITHOUT_TOKEN,
            BEYOND_LIMIT); None for tasks that do not label words.
        beyond_donors: Share of the positions that are beyond the end of the text whose outputs
            stand in a closed player's place, so that 0 stands there; None where no other text's do.
    """

    examples: int
    examples_cut: int
    token_limit: int
    words_left_out: Mapping[str, int] | None = None
    beyond_donors: float | None = None

    @property
    def sentence(self) -> str:
        """The omissions in words, without a full stop; empty if there are none."""
        parts = list[str]()
        if self.examples_cut:
            verb = "was" if self.examples_cut == 1 else "were"
            parts.append(
                f"{self.examples_cut:,} of {self.examples:,} examples {verb} cut to "
                f"{self.token_limit:,} tokens"
            )
        left_out = {reason: count for reason, count in (self.words_left_out or {}).items() if count}
        if left_out:
            text_by_reason = {BEYOND_LIMIT: "beyond the limit", WITHOUT_TOKEN: "without a token"}
            total = sum(left_out.values())
            noun, verb = ("word", "is") if total == 1 else ("words", "are")
            reasons = ", ".join(
                f"{count:,} {text_by_reason.get(reason, reason)}"
                for reason, count in sorted(left_out.items())
            )
            parts.append(f"{total:,} labelled {noun} {verb} not counted: {reasons}")
        if self.beyond_donors:
            parts.append(
                f"{100 * self.beyond_donors:.1f} % of the positions are beyond the end of the other "
                "text, and a closed player gives 0 there"
            )
        return "; ".join(parts)

    def to_json(self) -> dict[str, Json]:
        """The fields as JSON values; `words_left_out` only where words are labelled.

        `beyond_donors` only where another text's outputs stand in a closed player's place.
        """
        fields: dict[str, Json] = {
            "examples": self.examples,
            "examples_cut": self.examples_cut,
            "token_limit": self.token_limit,
        }
        if self.words_left_out is not None:
            fields["words_left_out"] = dict(self.words_left_out)
        if self.beyond_donors is not None:
            fields["beyond_donors"] = self.beyond_donors
        return fields

    @staticmethod
    def from_json(value: object) -> Omissions:
        """Inverse of `to_json`. Raises HeadlabError for anything else."""
        if not isinstance(value, Mapping):
            raise _invalid_omissions(value)
        # A missing field becomes -1, which `_is_count` refuses.
        counts = [value.get(name, -1) for name in ("examples", "examples_cut", "token_limit")]
        counts_by_reason = value.get("words_left_out")
        if counts_by_reason is not None and not (
            isinstance(counts_by_reason, Mapping)
            and all(isinstance(reason, str) for reason in counts_by_reason)
        ):
            raise _invalid_omissions(value)
        if not all(_is_count(count) for count in (*counts, *(counts_by_reason or {}).values())):
            raise _invalid_omissions(value)
        words_left_out = None
        if counts_by_reason is not None:
            words_left_out = {reason: int(count) for reason, count in counts_by_reason.items()}
        beyond_donors = value.get("beyond_donors")
        if beyond_donors is not None:
            is_share = isinstance(beyond_donors, int | float) and not isinstance(
                beyond_donors, bool
            )
            if not is_share or not 0 <= beyond_donors <= 1:
                raise _invalid_omissions(value)
            beyond_donors = float(beyond_donors)
        examples, examples_cut, token_limit = (int(count) for count in counts)
        return Omissions(examples, examples_cut, token_limit, words_left_out, beyond_donors)


def omission_fields(omissions: Omissions | None) -> dict[str, Json]:
    """The fields that a result's JSON has about omissions.

    None where they are unknown, as in older results.
    """
    if omissions is None:
        return {}
    return omissions.to_json()


def _is_count(value: object) -> bool:
    """Whether a value is a whole number of 0 or more; 3.0 is one, as in JSON."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value >= 0 and (isinstance(value, int) or value.is_integer())


def _invalid_omissions(value: object) -> HeadlabError:
    return HeadlabError(
        f"what was left out is {value!r:.60}, not counts of examples and words",
        code="result.omissions_invalid",
    )


@dataclass(frozen=True)
class SlopeUse:
    """How far values of heads lean on slopes of a smoothed value (docs/statistics.md).

    Attributes:
        draws: Number of draws at which slopes were taken; 0 without slopes.
        share: Weight of the slopes in a value, the mean over the heads, from 0 to 1; the rest is
            that of the samples.
        why_none: Why no slopes are used, in a clause; empty if they are.
    """

    draws: int
    share: float
    why_none: str

    def to_json(self) -> dict[str, Json]:
        """The fields as JSON values."""
        return {"draws": self.draws, "share": self.share, "why_none": self.why_none}

    @staticmethod
    def from_json(value: object) -> SlopeUse:
        """Inverse of `to_json`. Raises HeadlabError for anything else."""
        fields = value if isinstance(value, Mapping) else {}
        draws: Any = fields.get("draws")
        share: Any = fields.get("share")
        why_none = fields.get("why_none")
        is_share = isinstance(share, int | float) and 0 <= share <= 1
        if not (_is_count(draws) and is_share and isinstance(why_none, str)):
            raise HeadlabError(
                f"how far values lean on slopes is {value!r:.60}, not a number of draws, a share "
                "from 0 to 1 and a reason",
                code="result.slopes_invalid",
            )
        return SlopeUse(int(draws), float(share), why_none)


@dataclass(frozen=True, eq=False)
class Evaluation(ComparedByContent, Shown):
    """Right or wrong for each example, so that every comparison is paired.

    Attributes:
        correct: bool [example].
        predicted: int [example], index into the task's labels.
        ids: The examples' ids, in the same order.
        groups: The examples' groups, in the same order.
        total: Number of examples once the evaluation is complete.
        omissions: What of the examples seen has no answer; None where that is unknown.
    """

    language: str
    correct: Bools
    predicted: Ints
    ids: tuple[str, ...]
    groups: tuple[str, ...]
    total: int
    omissions: Omissions | None = None

    @property
    def accuracy(self) -> float:
        """Share of correct answers among the examples seen so far."""
        return float(self.correct.mean())

    @property
    def n(self) -> int:
        """Examples seen; fewer than `total` while an evaluation is under way."""
        return len(self.correct)

    @property
    def is_complete(self) -> bool:
        """Whether all examples were seen."""
        return self.n == self.total


@dataclass(frozen=True)
class Comparison(Shown):
    """A masked model against the baseline on the same examples.

    Attributes:
        n: Number of examples seen.
        total: Number of examples once the evaluation is complete.
        accuracy: Accuracy under the mask.
        baseline: Accuracy of the model with all heads on.
        difference: accuracy - baseline, 0.01 is one point.
        low: Lower bound of the 95 % interval of the difference, by resampling groups.
        high: Its upper bound.
        p: Two-sided p-value of the difference.
        flipped_right: Number of predictions that became right.
        flipped_wrong: Number of predictions that became wrong.
        omissions: As of an `Evaluation`.
    """

    language: str
    n: int
    total: int
    accuracy: float
    baseline: float
    difference: float
    low: float
    high: float
    p: float
    flipped_right: int
    flipped_wrong: int
    omissions: Omissions | None = None


def by_layer(
    grid: HeadGrid, flat: npt.NDArray[Number]
) -> Iterator[tuple[str, int, npt.NDArray[Number]]]:
    """(stack, layer, values [head]) for every layer, in flat order."""
    start = 0
    for stack in grid.stacks:
        for layer, head_count in enumerate(stack.heads):
            yield stack.name, layer, flat[start : start + head_count]
            start += head_count


# Progress of a run.


# Kinds of answers that a mask changes, as in JSON and CSV.
CHANGE_KINDS = ("now right", "now wrong", "wrong otherwise")


@dataclass(frozen=True)
class Change:
    """An answer that differs under a mask.

    Attributes:
        id: Id of the example, as in an evaluation.
        kind: One of CHANGES.
        text: Text of the example.
        pair: Its second text, in tasks on pairs.
        word: The word that is labelled, in tasks that label words.
        label: The right label.
        before: Answer of the baseline.
        after: Answer under the mask.
        p_before: Probability that the baseline gives its answer, among the task's labels.
        p_after: Probability of the answer under the mask, likewise.
    """

    id: str
    kind: str
    text: str
    pair: str | None
    word: str | None
    label: str
    before: str
    after: str
    p_before: float
    p_after: float


@dataclass(frozen=True)
class Progress:
    """Progress of a run: done of total, in the run's own steps, and a short note."""

    done: int
    total: int
    note: str = ""


def do_nothing() -> None:
    """What is called between batches where nobody waits for the device."""
