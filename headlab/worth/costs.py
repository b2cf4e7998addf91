"""What a model costs, and what would be left of that without some of its heads: arithmetic, no torch and no run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from headlab.errors import HeadlabError
from headlab.records import Bools, Floats

TOKENS = 32  # of the text that multiply-accumulates are told for where no text is at hand


@dataclass(frozen=True)
class LayerCost:
    """What the heads of one layer cost.

    first: flat index of its first head.  heads: how many it has.  together: heads that leave only with each other
    (of grouped queries, those that share a key and a value).  Of each such group: parameters; macs_token,
    multiply-accumulates for every token; macs_pair, for every pair of tokens.  rest: parameters that go with the last
    of the heads.
    """

    first: int
    heads: int
    together: int
    parameters: int
    macs_token: int
    macs_pair: int
    rest: int = 0

    def macs(self, tokens: int) -> int:
        """Multiply-accumulates of one group on a text of so many tokens."""
        return self.macs_token * tokens + self.macs_pair * tokens**2

    def gone(self, kept: Bools) -> int:
        """Groups of which no head is left. kept: bool [head], of the whole grid."""
        own = kept[self.first : self.first + self.heads].reshape(-1, self.together)
        return int((~own.any(axis=1)).sum())

    def saved(self, gone: int) -> int:
        """Parameters that so many groups take with them."""
        return gone * self.parameters + (self.rest if gone and gone == self.heads // self.together else 0)


@dataclass(frozen=True)
class Left:
    """What a model costs: parameters, and multiply-accumulates of a forward pass on one text of `tokens` tokens."""

    parameters: int
    macs: int
    tokens: int


@dataclass(frozen=True)
class Costs:
    """A model's costs, and its layers' shares of them.

    macs: multiply-accumulates of a forward pass on one text, by powers of its tokens (1, n, n squared); of a
    sequence-to-sequence model with a target as long.  layers: by row of the gate array; empty where heads cannot be
    taken out, and `note` says why.
    """

    parameters: int
    macs: tuple[int, int, int]
    layers: tuple[LayerCost, ...]
    note: str = ""

    def untouched(self, tokens: int = TOKENS) -> Left:
        """The model as it is."""
        return Left(self.parameters, sum(c * tokens**power for power, c in enumerate(self.macs)), tokens)

    def shrunk(self, kept: Bools, tokens: int = TOKENS) -> Left:
        """The model when the heads that are not kept have been taken out; of grouped queries only whole groups go.

        kept: bool [head].  Raises HeadlabError where heads of this model cannot be taken out.
        """
        if not self.layers:
            raise HeadlabError(
                self.note or "the heads of this model cannot be taken out", code="costs.heads_not_removable"
            )
        size = sum(layer.heads for layer in self.layers)
        if kept.shape != (size,):
            raise HeadlabError(f"the mask has {kept.size} heads; this model has {size}", code="mask.shape_mismatch")
        whole, gone = self.untouched(tokens), [layer.gone(kept) for layer in self.layers]
        parameters = sum(layer.saved(n) for n, layer in zip(gone, self.layers, strict=True))
        macs = sum(n * layer.macs(tokens) for n, layer in zip(gone, self.layers, strict=True))
        return Left(whole.parameters - parameters, whole.macs - macs, tokens)

    def per_head(self) -> Floats:
        """A head's part of the parameters, float [head]; a group's are shared out among its heads."""
        return np.concatenate([np.full(layer.heads, layer.parameters / layer.together) for layer in self.layers])

    @property
    def even(self) -> bool:
        """Whether every head costs as much as any other."""
        return len({(layer.parameters / layer.together, layer.together) for layer in self.layers}) <= 1

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        return asdict(self) | {"macs": list(self.macs), "layers": [list(asdict(one).values()) for one in self.layers]}

    @staticmethod
    def from_json(value: Any) -> Costs:
        """Inverse of `to_json`. Raises HeadlabError for what is none."""
        try:
            a, b, c = (_count(v) for v in value["macs"])
            layers = tuple(_layer(row) for row in value["layers"])
            return Costs(_count(value["parameters"]), (a, b, c), layers, str(value["note"]))
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise HeadlabError(
                f"these are no costs of a model ({type(error).__name__}: {error})", code="costs.malformed"
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
    """Shares that are saved, 0..1: of parameters and of multiply-accumulates."""
    return {
        "parameters": 1 - after.parameters / before.parameters,
        "macs": 1 - after.macs / before.macs if before.macs else 0.0,
    }
