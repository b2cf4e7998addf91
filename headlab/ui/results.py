"""Which cached result stands for a language: pure functions of a store listing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headlab.records import HeadGrid, canonical_json
from headlab.scores import HeadScores
from headlab.store import Result

# Parts of a task's spec that differ from language to language; dev sets need not be of one size.
PER_LANGUAGE = ("language", "data_hash", "size")


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


def spec_of(scores: HeadScores, *path: str) -> Any:
    """A part of what the numbers depend on, None where the spec lacks it."""
    value: Any = scores.spec
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def matching(
    results: Iterable[Result], model: str | None = None, task: str | None = None, method: str | None = None
) -> list[Result]:
    """The results of a model, task and method; None matches all."""
    wanted = ((model, ("model", "name")), (task, ("task", "name")), (method, ("method", "name")))
    return [
        result for result in results
        if all(value is None or spec_of(result.scores, *path) == value for value, path in wanted)
    ]  # fmt: skip


def _variant(scores: HeadScores) -> str:
    """Everything but the language that must agree before two maps may stand side by side."""
    task = {k: v for k, v in (spec_of(scores, "task") or {}).items() if k not in PER_LANGUAGE}
    parts = [spec_of(scores, "model"), task, spec_of(scores, "ablation"), spec_of(scores, "method"), scores.estimand]
    return canonical_json([*parts, spec_of(scores, "seed"), scores.grid.to_json()])


def describe_variant(scores: HeadScores) -> str:
    """What distinguishes a variant, in words."""
    options = {**(spec_of(scores, "method", "options") or {})}
    options.pop("estimand", None)
    words = [scores.estimand, f"{spec_of(scores, 'ablation')} ablation", f"{spec_of(scores, 'task', 'split')} split"]
    words += [f"{key} {value}" for key, value in sorted(options.items()) if value is not None]
    return ", ".join((*words, f"seed {spec_of(scores, 'seed')}"))


def _recency(result: Result) -> tuple[int, float, str]:
    """Larger is better: more examples, then newer, then any fixed order."""
    file = result.folder / "result.npz"
    return spec_of(result.scores, "task", "size") or 0, file.stat().st_mtime if file.exists() else 0.0, result.key


def select(results: Sequence[Result], languages: Sequence[str]) -> Found:
    """The variant that covers most of the languages (then the newest), one result a language."""
    variants: dict[str, dict[str, Result]] = {}
    for result in sorted(results, key=_recency):
        if result.scores.language in languages:
            variants.setdefault(_variant(result.scores), {})[result.scores.language] = result
    if not variants:
        return Found(missing=tuple(languages))
    ranked = sorted(variants.values(), key=lambda v: (len(v), max(map(_recency, v.values()))), reverse=True)
    best, others = ranked[0], [next(iter(v.values())).scores for v in ranked[1:]]
    return Found(
        scores={name: best[name].scores for name in languages if name in best},
        missing=tuple(name for name in languages if name not in best),
        variant=describe_variant(next(iter(best.values())).scores),
        others=tuple(map(describe_variant, others)),
    )
