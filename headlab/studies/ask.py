"""What an experiment will need, and what each piece takes where the store lacks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from headlab.methods.table import method as method_of
from headlab.records import Bools
from headlab.scores import counts
from headlab.tasks.base import Split

if TYPE_CHECKING:
    from headlab.studies.pieces import Pieces


Kind = Literal["scores", "answers", "curve", "passes"]


@dataclass(frozen=True)
class Ask:
    """A piece of an experiment.

    what: in words, equal for equal pieces.  forwards: examples to be answered for it; 0 where it is there.
    kind: whose pace it goes at: scores of `method`, plain answers, a curve's, or other passes.
    """

    kind: Kind
    language: str
    what: str
    forwards: int
    method: str = ""


def ask_scores(
    pieces: Pieces, language: str, method: str, *, seed: int | None = None, options: Mapping[str, Any] | None = None
) -> Ask:
    """The scores that `pieces.scores` would give; arguments as there."""
    chosen, given = method_of(method), dict(options or {})
    what = f"{chosen.key} scores of {language}"
    what += "".join(f", {name} {value}" for name, value in given.items()) + ("" if seed is None else f", seed {seed}")
    there = pieces.found(language, method, seed=seed, **given) is not None
    return Ask("scores", language, what, 0 if there else pieces.expected(language, method, **given), chosen.key)


def ask_answers(
    pieces: Pieces, language: str, masks: Sequence[Bools | None], *, unknown: int = 0, split: Split = "test"
) -> Ask:
    """Answers under these masks, None being the untouched model.

    unknown: further masks that depend on scores which are not there yet.
    """
    wanted = {} if not masks else {pieces.digest(kept): kept for kept in masks}
    lacking = unknown + sum(not pieces.has_answers(language, kept, split) for kept in wanted.values())
    what = f"{split} answers in {language} under {len(wanted) + unknown} masks"
    return Ask("answers", language, what, lacking * len(pieces.examples(language, split)))


def ask_curve(
    pieces: Pieces,
    language: str,
    method: str,
    *,
    seed: int | None = None,
    options: Mapping[str, Any] | None = None,
    points: int | None = None,
) -> Ask:
    """The curve on test of a method's scores, the scores not counted."""
    scores = pieces.found(language, method, seed=seed, **dict(options or {}))
    found = None if scores is None else pieces.found_curve(language, scores, points)
    steps = len(counts(pieces.model.grid.size, points))
    what = f"curve of {language} by {method}" + "".join(f", {k} {v}" for k, v in (options or {}).items())
    what += "" if seed is None else f", seed {seed}"
    return Ask("curve", language, what, 0 if found is not None else steps * len(pieces.examples(language, "test")))


def ask_passes(language: str, what: str, forwards: int) -> Ask:
    """So many plain forward passes for something else."""
    return Ask("passes", language, what, forwards)
