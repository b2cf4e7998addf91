"""What the study of interactions found: pairs of heads that stand in for each other.

It needs no model, so that reports are shown without PyTorch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from headlab.core import Head, HeadGrid, HeadlabError
from headlab.studies.result import Column, HeadCells, Records, StudyResult, TableName
from headlab.studies.table import HEAD_TEXT

POINTS = "+.2f"
ALPHA = 0.05
"""Level at which pairs are named once their p-values are corrected over all pairs."""
Relation = Literal["stand in", "need", "open"]
LAYER_TEXT = re.compile(r"(?:([a-z]+)\.)?(\d{1,6})")


@dataclass(frozen=True)
class PairInteraction:
    """How two heads interact in a language.

    Attributes:
        language: Its code.
        first: The head of the lower layer, as `head_text` writes it.
        second: The other one.
        interaction: Shapley interaction index, in the unit of the table.
        low: Lower end of its interval.
        high: Upper end.
        p: Two-sided, of this pair alone.
        corrected_p: Corrected over all pairs of the language.
        samples: Coalitions that it was measured at.
    """

    language: Annotated[str, Column("language")]
    first: Annotated[str, Column("head")]
    second: Annotated[str, Column("other head")]
    interaction: Annotated[float, Column("interaction, {unit}", POINTS)]
    low: Annotated[float, Column("low", POINTS)]
    high: Annotated[float, Column("high", POINTS)]
    p: Annotated[float, Column("p", ".4f")]
    corrected_p: Annotated[float, Column("p, all pairs", ".4f")]
    samples: Annotated[int, Column("samples", "d")]

    @property
    def relation(self) -> Relation:
        """What the interval says: they stand in for each other, need each other, or it is open."""
        if self.high < 0:
            return "stand in"
        if self.low > 0:
            return "need"
        return "open"

    @property
    def is_named(self) -> bool:
        """Whether the sign holds once all pairs are tested together."""
        return self.corrected_p <= ALPHA

    def has(self, head: Head, grid: HeadGrid) -> bool:
        """Whether a head of a model is one of the two."""
        return head_text(head, grid) in (self.first, self.second)


@dataclass(frozen=True)
class LossAlone:
    """What the removal of one head costs on dev, with all others there.

    Attributes:
        language: Its code.
        head: The head.
        loss: Fall of the value, in the unit of the table; below 0 it rises.
    """

    language: Annotated[str, Column("language")]
    head: HeadCells
    loss: Annotated[float, Column("loss alone, {unit}", POINTS)]


@dataclass(frozen=True)
class SetLoss:
    """What the removal of a set of heads costs on dev: foreseen, and measured.

    Attributes:
        language: Its code.
        heads: The set, as `head_text` writes heads, comma-separated.
        size: Number of heads.
        alone: Sum of what each of them costs alone.
        foreseen: The same less the interactions of the pairs within the set.
        measured: Fall of the value, all of them removed.
    """

    language: Annotated[str, Column("language")]
    heads: Annotated[str, Column("heads")]
    size: Annotated[int, Column("number of heads", "d")]
    alone: Annotated[float, Column("sum of each alone, {unit}", POINTS)]
    foreseen: Annotated[float, Column("foreseen with pairs", POINTS)]
    measured: Annotated[float, Column("measured", POINTS)]


@dataclass(frozen=True, kw_only=True)
class InteractionsResult(StudyResult):
    """How the pairs of some heads interact, and what follows for sets of them.

    Attributes:
        pairs: Every pair in every language.
        alone: Every head in every language.
        sets: Sets of heads that were removed.
    """

    pairs: Annotated[Records[PairInteraction], TableName("interactions")]
    alone: Annotated[Records[LossAlone], TableName("losses-alone")]
    sets: Annotated[Records[SetLoss], TableName("sets-removed")]

    @property
    def unit(self) -> str:
        """Unit of its numbers."""
        return next(iter(self.pairs.names.get("unit", ("",))), "")

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages, in the order of the report."""
        return tuple(dict.fromkeys(pair.language for pair in self.pairs.rows))

    def of_language(self, language: str) -> tuple[PairInteraction, ...]:
        """The pairs of a language."""
        return tuple(pair for pair in self.pairs.rows if pair.language == language)


# Heads as a user names them.


def head_text(head: Head, grid: HeadGrid) -> str:
    """A head as commands and tables name it: 9.3, or decoder.9.3 where a model has several stacks.

    Args:
        head: The head.
        grid: Of its model.
    """
    return head_name(head, with_stack=len(grid.stacks) > 1)


def head_name(head: Head, *, with_stack: bool) -> str:
    """A head by its layer and number, perhaps with its stack."""
    number = f"{head.layer}.{head.head}"
    return f"{head.stack}.{number}" if with_stack else number


def head_in(grid: HeadGrid, text: str) -> Head:
    """The head of a model that a text of `listed_heads` names.

    Raises:
        HeadlabError: The model has no such head, or several stacks and the text names none.
    """
    match = HEAD_TEXT.fullmatch(text)
    assert match is not None, "such texts have been read before"
    head = Head(_stack_in(grid, match[1], text), int(match[2]), int(match[3]))
    if head not in grid.heads:
        raise HeadlabError(
            f"the model has no head {text}; it has {grid}", code="interactions.head_unknown"
        )
    return head


def heads_of_layer(grid: HeadGrid, text: str) -> tuple[Head, ...]:
    """The heads of a model's layer.

    Args:
        grid: Of the model.
        text: Number of the layer, or stack and number, as decoder.9.

    Raises:
        HeadlabError: The model has no such layer.
    """
    match = LAYER_TEXT.fullmatch(text.strip())
    if match is None:
        raise HeadlabError(
            f"{text[:40]!r} is no layer; give its number, counted from 0",
            code="interactions.layer_malformed",
        )
    stack = _stack_in(grid, match[1], text)
    heads = tuple(head for head in grid.heads if head[:2] == (stack, int(match[2])))
    if not heads:
        raise HeadlabError(
            f"the model has no layer {text}; it has {grid}", code="interactions.layer_unknown"
        )
    return heads


def _stack_in(grid: HeadGrid, stack: str | None, text: str) -> str:
    """The stack of a name; the model's only one if none is named."""
    names = [known.name for known in grid.stacks]
    if stack is None and len(names) == 1:
        return names[0]
    if stack is None or stack not in names:
        number = text.removeprefix(f"{stack}.")
        texts = [f"{name}.{number}" for name in names] if len(names) > 1 else [number]
        raise HeadlabError(
            f"{text} names no stack of this model; write {' or '.join(texts)}",
            code="interactions.stack_unknown",
        )
    return stack


def foreseen_loss(
    heads: Sequence[str],
    alone: Mapping[str, float],
    interactions: Mapping[frozenset[str], float],
) -> float:
    """What the removal of a set is foreseen to cost, from single heads and pairs.

    Where no three heads interact and pairs do so alike at all coalitions, it is exact: each head
    lost takes what it is worth with all others there, and the pairs within the set are then counted
    twice.

    Args:
        heads: The set.
        alone: What each head's removal alone costs.
        interactions: Of pairs; a pair that is missing is taken not to interact.
    """
    total = sum(alone[head] for head in heads)
    for index, first in enumerate(heads):
        for second in heads[index + 1 :]:
            total -= interactions.get(frozenset((first, second)), 0.0)
    return total
