"""Candidate orders in which heads leave, made of the scores in every language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from headlab.masks import removal_order
from headlab.records import Floats, Ints
from headlab.scores import HeadScores
from headlab.worth.costs import Costs


class Order(NamedTuple):
    """One nested family of masks. values: float [head], the lowest leaves first.  order: int [head], as they leave."""

    key: str
    values: Floats
    order: Ints


def candidate_orders(
    names: Sequence[str], scores: Mapping[str, HeadScores], costs: Costs
) -> tuple[list[Order], list[str]]:
    """The orders of these names that differ from each other, and a sentence for each that is left out.

    scores: of every language, by one method.
    """
    found, told = list[Order](), list[str]()
    every = np.stack([one.values for one in scores.values()])
    for name in names:
        for key, values in _values(name, every, list(scores), costs).items():
            order = Order(key, values, removal_order(values))
            same = next((one.key for one in found if np.array_equal(one.order, order.order)), None)
            if same is None:
                found.append(order)
            else:
                told.append(f"Order {key} is order {same} here.")
        if name == "cost" and (why := no_order_by_cost(costs)):
            told.append(f"There is no order by cost: {why}.")
    return found, told


def no_order_by_cost(costs: Costs) -> str:
    """Why heads cannot be ordered by what they cost; empty if they can."""
    if not costs.layers:
        return costs.note.rstrip(".") or "what a head of this model costs cannot be told"
    return "all heads of this model cost alike" if costs.even else ""


def _values(name: str, every: Floats, languages: Sequence[str], costs: Costs) -> dict[str, Floats]:
    """{key: value of every head, the lowest leaves first}. every: scores [language, head]."""
    if name == "own":
        return {f"own {language}": row for language, row in zip(languages, every, strict=True)}
    if name == "weakest":
        return {name: weakest_first(every)}
    if name == "mean":
        return {name: every.mean(axis=0)}
    return {} if no_order_by_cost(costs) else {name: per_parameter(every.mean(axis=0), costs)}


def weakest_first(every: Floats) -> Floats:
    """A head's value by its best rank in any language; of equal ones, the mean of its ranks; [head].

    every: scores [language, head].  Ranks rise with the score, from 1; so a head leaves late if any language needs it.
    """
    ranks = np.stack([rankdata(row) for row in every])
    return np.asarray(ranks.max(axis=0) + ranks.mean(axis=0) / (4 * ranks.shape[1]), dtype=np.float64)


def per_parameter(values: Floats, costs: Costs) -> Floats:
    """A head's score per parameter that goes with it, float [head]; heads that leave only together share theirs."""
    out = np.empty_like(values)
    for layer in costs.layers:
        if layer.heads:
            own = slice(layer.first, layer.first + layer.heads)
            groups = values[own].reshape(-1, layer.together)
            out[own] = np.repeat(groups.sum(axis=1) / layer.parameters, layer.together)
    return out


def counts_of(size: int, points: int | None, heads: int | None) -> list[int]:
    """How many heads are gone at each point: evenly spaced, and where just `heads` are left."""
    from headlab.curves.settings import counts

    return sorted({*counts(size, None if points is None or points > size else points),
                   *([] if heads is None else [size - heads])})  # fmt: skip
