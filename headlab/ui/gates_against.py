"""Masks of other methods with as many heads as the gates keep: which heads they share, and what they are worth."""

from __future__ import annotations

import secrets
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from headlab.l0_gates import LearnedGates
from headlab.masks import Mask, removal_order
from headlab.records import Bools
from headlab.scores import HeadScores, kept_without
from headlab.stats.agreement import by_chance
from headlab.tables import Cell, Table
from headlab.ui.background import Latest
from headlab.ui.experiments_store import part
from headlab.ui.gates_read import Sweep, accuracy_name, worth
from headlab.ui.live import follow
from headlab.ui.presses import button
from headlab.ui.prune_figures import Figure, Known, Question, figures
from headlab.ui.results import matching, select
from headlab.ui.shell import Choice, guarded, listing
from headlab.ui.shell_worker import client

SHAPLEY = "shapley"
METHODS = (SHAPLEY, "gradient")
KNOWN, ASKED, ASKER = "_figures", "_gates_asked", "_gates_asker"  # the first is the Prune page's too
POLL_SECONDS, FIRST_SECONDS = 0.5, 0.3


@dataclass(frozen=True)
class Sized(Question):
    """A question about as many examples as the gates' masks were measured on."""

    examples: int = 0

    @property
    def size(self) -> int:
        """Examples asked for."""
        return self.examples


def scores_for(choice: Choice, sweep: Sweep) -> dict[str, HeadScores]:
    """{method: its scores of the same weights in the same language}, of those methods that have any in the cache."""
    language, fingerprint = sweep.first.language, part(sweep.first.spec, "model", "fingerprint")
    out = {}
    for method in METHODS:
        results = matching(listing().results, choice.model, choice.task, method)
        same = [r for r in results if part(r.scores.spec, "model", "fingerprint") == fingerprint]
        scores = select(same, [language]).first
        if scores is not None and scores.grid == sweep.first.grid:
            out[method] = scores
    return out


def called(scores: HeadScores) -> str:
    """A method with the estimand of its scores, where there are several of that method's name."""
    return f"{scores.method} ({scores.estimand})" if scores.method == SHAPLEY else scores.method


def as_many(gates: LearnedGates, scores: HeadScores) -> Bools:
    """Heads kept when as many leave as the gates close, lowest score first, of those that have a gate; bool [head]."""
    values = np.where(gates.gated, scores.values, np.inf)
    return kept_without(removal_order(values)[: int((~gates.kept).sum())], gates.grid.size)


def mask_of(gates: LearnedGates, scores: HeadScores) -> Mask:
    """The same as a mask, with what it was chosen by."""
    kept = as_many(gates, scores)
    chosen = {
        "rule": "as many as learned gates keep", "method": scores.method, "k": int((~kept).sum()),
        "languages": [scores.language], "score": dict(scores.spec), "gates": dict(gates.spec),
    }  # fmt: skip
    return Mask(gates.grid, kept, dict(scores.spec.get("model", {})), chosen)


def flattered(scores: Mapping[str, HeadScores], split: str) -> str:
    """A sentence on the methods whose scores are of the split that their masks are measured on; empty for none."""
    names = [called(own) for own in scores.values() if part(own.spec, "task", "split") == split]
    if not names:
        return ""
    other = "dev" if split == "test" else "test"
    return f"The heads of {' and '.join(names)} were chosen on {split} itself, which flatters them: compare on {other}."


def overlap(
    sweep: Sweep, scores: Mapping[str, HeadScores], known: Mapping[tuple[str, str], Figure], split: str
) -> Table:
    """A row a run and method: heads that both keep, how many a random choice would share, and the mask's worth.

    known: what the method's mask is worth on the split, by run's key and method, as far as it is known.
    """
    rows: list[tuple[Cell, ...]] = []
    accuracy = f"{accuracy_name(sweep.first)}, %"
    for run in sweep.runs:
        gates, gated = run.gates, run.gates.gated
        for method, found in scores.items():
            both = int((gates.kept & as_many(gates, found))[gated].sum())
            kept = int(gates.kept[gated].sum())
            row = gates.weight, called(found), kept, int(gated.sum()), both, *by_chance(int(gated.sum()), kept, kept)
            rows.append((*row, *_worth(known.get((run.key, method)))))
    return Table(
        f"gates-overlap-{sweep.first.language}", "The heads that Shapley and gradient would have kept",
        ("λ", "method", "kept", "of", "in both", "by chance", "chance, low", "chance, high", accuracy,
         "difference, points", "low, points", "high, points"),
        ("g", "", "d", "d", "d", ".1f", "d", "d", ".1f", "+.1f", "+.1f", "+.1f"), tuple(rows),
        ("kept, of: among the heads that have a gate. by chance: what a random choice of as many heads shares with "
         f"the gates', with the range that holds at least 95 % of them. accuracy: of the method's mask, on {split}.",
         "shapley-top50: what a head gains where fewer than half the heads are gone, so not made for masks that keep "
         "fewer than half; shapley: at all numbers of heads.",
         *filter(None, [flattered(scores, split)])),
    )  # fmt: skip


def _worth(figure: Figure | None) -> tuple[Cell, ...]:
    if figure is None:
        return (None,) * 4
    told = (figure.accuracy, figure.difference, figure.low, figure.high)
    return tuple(None if value is None else 100 * value for value in told)


def questions(
    choice: Choice, sweep: Sweep, scores: Mapping[str, HeadScores], split: str
) -> dict[tuple[str, str], Question]:
    """{(run's key, method): what the worker is asked about the method's mask}, on the examples of the runs."""
    out: dict[tuple[str, str], Question] = {}
    asker = st.session_state.setdefault(ASKER, secrets.token_hex(8))
    for run in sweep.runs:
        found = worth(run.gates, split)
        if found is None:
            continue
        for method, own in scores.items():
            mask = mask_of(run.gates, own)
            fingerprint = str(part(own.spec, "model", "fingerprint"))
            asked = mask if mask.removed else None
            out[run.key, method] = Sized(
                choice.model, fingerprint, choice.task, split, asked, asker, examples=int(found.examples)
            )
    return out


def seen(asked: Mapping[tuple[str, str], Question], language: str) -> dict[tuple[str, str], Figure]:
    """The final figures that this session has of these masks."""
    known = _known()
    return {key: known[q.key(language)] for key, q in asked.items() if q.key(language) in known}


def _known() -> Known:
    known: Known = st.session_state.setdefault(KNOWN, {})
    return known


def offer(asked: Mapping[tuple[str, str], Question], language: str) -> None:
    """The button that has the worker answer what is not known yet, and how far it is."""
    missing = [q for q in asked.values() if q.key(language) not in _known()]
    if not missing:
        return
    key = tuple(q.key(language) for q in asked.values())
    held = st.session_state.get(ASKED)
    if held is not None and held[0] == key:
        _follow(held[1], len(missing))
        return
    examples = sum(q.size for q in missing)
    button(
        f"Measure these masks on {missing[0].split}", key="gates-compare", icon="play_arrow",
        on_press=_ask, args=(key, missing, language),
        help=f"The worker answers {examples:,} examples under {len(missing)} masks, ahead of its jobs.",
    )  # fmt: skip


def _ask(key: tuple[Any, ...], missing: Sequence[Question], language: str) -> None:
    known, held = _known(), st.session_state.get(ASKED)
    if held is not None:
        held[1].stop()
    with guarded():
        worker = client()
        st.session_state[ASKED] = key, Latest(lambda: _answers(worker, missing, language, known))


def _answers(worker: Any, missing: Sequence[Question], language: str, known: Known) -> Generator[int]:
    """How many masks have their answer, mask after mask: a newer question of one session would end the older."""
    for done, question in enumerate(missing):
        with closing(figures(worker, question, [language], known)) as values:
            for _ in values:
                yield done
    yield len(missing)


def _follow(live: Latest[int], left: int) -> None:
    live.wait(1, FIRST_SECONDS)

    def look() -> None:
        with guarded():
            if live.done:
                _end(live)
            st.caption(f"Asking the worker: mask {1 + (live.value or 0)} of those that are not measured yet …")

    follow(look, None if live.done else POLL_SECONDS)()


def _end(live: Latest[int]) -> None:
    error = live.error
    st.session_state.pop(ASKED, None)
    if error is not None:
        raise error
    st.rerun()
