"""Which stored result stands for a language: the one rule that pages and command line share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headlab.methods.table import METHODS
from headlab.records import canonical_json
from headlab.scores import HeadScores
from headlab.store import Result

# Parts of a task's spec that differ from language to language; dev sets need not be of one size.
PER_LANGUAGE = ("language", "data_hash", "size")
# Options that say how precisely, not what: they may differ between results shown side by side.
# `round` is of results stored before there was a target.
PRECISION = ("samples", "target", "stop", "round")


@dataclass(frozen=True)
class Chosen:
    """One result a language, all of one variant, so that languages can be compared.

    results: by language, in the order asked for.  others: the best result of each variant left aside.
    """

    results: Mapping[str, Result] = field(default_factory=dict)
    others: tuple[Result, ...] = ()


def spec_of(scores: HeadScores, *path: str) -> Any:
    """A part of what the numbers depend on, None where the spec lacks it."""
    value: Any = scores.spec
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def settings(scores: HeadScores) -> dict[str, Any]:
    """The options that say what is estimated, those not written down at the method's defaults."""
    known = METHODS.get(scores.method)
    defaults = {} if known is None else {name: option.default for name, option in known.options.items()}
    every = {**defaults, **(spec_of(scores, "method", "options") or {})}
    return {name: value for name, value in every.items() if name not in PRECISION}


def variant(scores: HeadScores) -> str:
    """Everything but the language and the precision: two maps of one variant may stand side by side."""
    task = {k: v for k, v in (spec_of(scores, "task") or {}).items() if k not in PER_LANGUAGE}
    parts = [spec_of(scores, "model"), task, spec_of(scores, "ablation"), scores.method, settings(scores)]
    return canonical_json([*parts, scores.estimand, spec_of(scores, "seed"), scores.grid.to_json()])


def median_width(scores: HeadScores) -> float:
    """Median half-width over the heads, in the score's unit; 0 where the method has no intervals."""
    width = scores.half_width
    return 0.0 if width is None else float(np.median(width))


def _rank(result: Result) -> tuple[int, float, str, str]:
    """Larger is better: more examples, then narrower intervals, then made later, then any fixed order."""
    size = spec_of(result.scores, "task", "size") or 0
    return int(size), -median_width(result.scores), str(result.meta.get("created") or ""), result.key


def _usual(result: Result) -> bool:
    """Whether a result is of its method's default settings."""
    known = METHODS.get(result.scores.method)
    if known is None:
        return False
    defaults = {name: option.default for name, option in known.options.items() if name not in PRECISION}
    return settings(result.scores) == defaults


def select(results: Iterable[Result], languages: Sequence[str]) -> Chosen:
    """The best result of each language, of the variant that covers most of the languages.

    Between results that differ only in precision (`PRECISION`), the one on more examples wins, then the
    one with the smaller median half-width, then the later `created`. Between variants that cover equally
    many languages, the method's default settings win, then the better result by the same rule.  results:
    of one model name, task and method.
    """
    variants: dict[str, dict[str, Result]] = {}
    for result in sorted(results, key=_rank):
        if result.scores.language in languages:
            variants.setdefault(variant(result.scores), {})[result.scores.language] = result
    ranked = sorted(variants.values(), key=_merit, reverse=True)
    if not ranked:
        return Chosen()
    best = ranked[0]
    others = tuple(max(group.values(), key=_rank) for group in ranked[1:])
    return Chosen({name: best[name] for name in languages if name in best}, others)


def _merit(group: Mapping[str, Result]) -> tuple[int, bool, tuple[int, float, str, str]]:
    top = max(group.values(), key=_rank)
    return len(group), _usual(top), max(map(_rank, group.values()))
