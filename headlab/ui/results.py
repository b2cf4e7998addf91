"""Which cached result stands for a language, in words: pure functions of a store listing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headlab.methods import costs
from headlab.methods.costs import PRECISION, settings, spec_of
from headlab.records import HeadGrid
from headlab.scores import HeadScores
from headlab.store import Result

__all__ = ["Found", "describe_variant", "matching", "select", "spec_of"]


@dataclass(frozen=True)
class Found:
    """The results of one choice, all of one variant, so that languages can be compared.

    scores: by language, in the order asked for.  missing: languages without a result of this
    variant.  variant: what they share, in words.  others: the variants left aside, in words.
    """

    scores: Mapping[str, HeadScores] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    variant: str = ""
    others: tuple[str, ...] = ()

    @property
    def first(self) -> HeadScores | None:
        """One of the scores, for what they all share (grid, unit, estimand)."""
        return next(iter(self.scores.values()), None)

    @property
    def grid(self) -> HeadGrid | None:
        """The head grid of these scores."""
        return self.first.grid if self.first else None


def matching(
    results: Iterable[Result], model: str | None = None, task: str | None = None, method: str | None = None
) -> list[Result]:
    """The results of a model, task and method; None matches all."""
    wanted = ((model, ("model", "name")), (task, ("task", "name")), (method, ("method", "name")))
    return [
        result for result in results
        if all(value is None or spec_of(result.scores, *path) == value for value, path in wanted)
    ]  # fmt: skip


def describe_variant(scores: Iterable[HeadScores]) -> str:
    """What results of one variant share, in words."""
    every = list(scores)
    first = every[0]
    options = {name: value for name, value in settings(first).items() if name != "estimand"}
    given = [spec_of(s, "method", "options") or {} for s in every]
    same = [name for name in PRECISION if all(g.get(name) == given[0].get(name) for g in given)]
    options |= {name: given[0].get(name) for name in same if name != "round"}
    words = [first.estimand, f"{spec_of(first, 'ablation')} ablation", f"{spec_of(first, 'task', 'split')} split"]
    words += [f"{key} {value}" for key, value in sorted(options.items()) if value is not None]
    words.append(f"seed {spec_of(first, 'seed')}")
    return ", ".join(words) + ("" if len(same) == len(PRECISION) else "; how precise differs by language")


def select(results: Iterable[Result], languages: Sequence[str]) -> Found:
    """The results that stand for these languages; the rule is `headlab.methods.costs.select`."""
    chosen = costs.select(results, languages)
    if not chosen.results:
        return Found(missing=tuple(languages))
    return Found(
        scores={name: result.scores for name, result in chosen.results.items()},
        missing=tuple(name for name in languages if name not in chosen.results),
        variant=describe_variant(result.scores for result in chosen.results.values()),
        others=tuple(describe_variant([result.scores]) for result in chosen.others),
    )
