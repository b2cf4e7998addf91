"""What a method costs, where it cannot run and what its intervals are worth; and what a result did cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headlab.errors import HeadlabError
from headlab.methods.best import spec_of
from headlab.methods.table import METHODS, Method
from headlab.records import Bools
from headlab.scores import HeadScores


def refuse(method: Method, heads: int) -> None:
    """Raise HeadlabError if a method cannot be run for so many heads."""
    most = method.most_heads
    if most is not None and heads > most:
        raise HeadlabError(
            f"{method.key} needs 2 ** {heads} coalitions for this model's {heads} heads; it is for up to {most} heads. "
            "Use shapley, whose intervals say how far off it may be"
        )


def caution(method: str) -> str:
    """What to know before trusting a method's intervals, or empty."""
    return METHODS[method].caution if method in METHODS else ""


def most_forwards(method: Method, options: Mapping[str, Any], heads: int, examples: int) -> int:
    """Forward passes that a method takes for one language at most; most of Shapley's are parts of one."""
    samples = int(options.get("samples", 0))
    walks = heads if options.get("estimand") == "shapley" else (heads + 1) // 2
    counts = {
        "shapley": samples * heads * (2 if options.get("estimand") == "shapley" else 1),
        "monte-carlo": samples * walks,
        "paper": samples * examples * walks,
        "leave-one-out": heads * examples,
        "gradient": examples,
        "confidence": examples,
    }
    return 2**heads * examples if method.key == "exact" else counts.get(method.key, 0)


def pace(results: Iterable[HeadScores], model: str, task: str) -> float | None:
    """Seconds a forward pass took in the stored results of a model and task, by their median; None without any."""
    seen = [
        s.seconds / s.example_forwards
        for s in results
        if s.example_forwards and (spec_of(s, "model", "name"), spec_of(s, "task", "name")) == (model, task)
    ]
    return float(np.median(seen)) if seen else None


@dataclass(frozen=True)
class Cost:
    """What a result rests on and what it cost; half-widths in the score's unit, None where there are none.

    samples: least, median and most of any head.  helpful, harmful: heads whose sign is decided.
    narrow: undecided, but at least as narrow as the run's target (or, where it had none, the method's
    default one).  wide: the rest.
    """

    forwards: int
    seconds: float
    samples: tuple[int, float, int] | None
    helpful: int | None
    harmful: int | None
    narrow: int | None
    wide: int | None
    median_width: float | None
    largest_width: float | None


def cost_of(scores: HeadScores) -> Cost:
    """The cost of a result."""
    drawn, width = scores.samples, scores.half_width
    samples = None if drawn is None else (int(drawn.min()), float(np.median(drawn)), int(drawn.max()))
    if width is None:
        return Cost(scores.example_forwards, scores.seconds, samples, *(None,) * 6)
    open_ = ~(scores.helpful | scores.harmful)
    narrow: Bools = open_ & (width <= target_of(scores))
    return Cost(
        scores.example_forwards,
        scores.seconds,
        samples,
        int(scores.helpful.sum()),
        int(scores.harmful.sum()),
        int(narrow.sum()),
        int((open_ & ~narrow).sum()),
        float(np.median(width)),
        float(width.max()),
    )


def target_of(scores: HeadScores) -> float:
    """The half-width that a run was to reach, in the score's unit; the default one where it had none."""
    given = spec_of(scores, "method", "options", "target")
    if given is not None:
        return float(given)
    known = METHODS.get(scores.method)
    option = known.options.get("target") if known is not None else None
    return float((option or METHODS["shapley"].options["target"]).default)
