"""Learned gates as figures: a run's training, the trade-off over λ, and other methods' masks for comparison."""

from __future__ import annotations

import secrets
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import streamlit as st

from headlab.charts.chart import Chart
from headlab.charts.gates import MaskDots, accuracy_chart
from headlab.core import Bools, Cell, JsonLike, Table, current_fingerprint, fingerprint_of, part
from headlab.dashboard.frame import (
    Choice,
    LatestValue,
    errors_as_sentences,
    matching_scores,
    stored_results,
    worker_client,
)
from headlab.dashboard.frame.stored_scores import comparable_scores
from headlab.dashboard.panels.accuracy import Known, Question, figures, interval_of_difference
from headlab.dashboard.panels.stored_gates import Sweep, hover, run_words, splits_of
from headlab.dashboard.widgets import button, figure, redraw_every, set_widget, show_table
from headlab.masks import Mask, removal_order
from headlab.methods import DEFAULT_METHOD, LIVE_METHOD, METHODS
from headlab.plots.gates import course, kept_by_layer, kept_by_stack, open_map
from headlab.results import HeadScores, LearnedGates, kept_without
from headlab.stats import by_chance
from headlab.training.l0_table import SPLITS, accuracy_name, gates_table, learned_on, worth
from headlab.worker import Figure

# One run of learned gates: key figures, the map over training, loss and penalty.


def at_a_glance(gates: LearnedGates) -> None:
    """Heads kept, undecided gates, and accuracy on each split."""
    with st.container(horizontal=True, gap="medium"):
        size, gated = gates.grid.size, int(gates.gated.sum())
        st.metric("Heads kept", f"{int(gates.kept.sum())} of {size}", width="content")
        st.metric("Undecided", f"{gates.undecided()} of {gated} gates", width="content")
        for split in SPLITS:
            if (found := worth(gates, split)) is not None:
                name = f"{accuracy_name(gates).capitalize()} on {split}"
                st.metric(
                    name, f"{100 * found.accuracy:.1f} %", found.gain,
                    delta_color="gray", delta_arrow="off", width="content",
                )  # fmt: skip


def training(gates: LearnedGates, key: str) -> None:
    """How the gates opened and closed during training, and the loss."""
    name, about = (
        f"gates-{gates.language}-{gates.weight:g}",
        f"{gates.language}, λ = {gates.weight:g}",
    )
    left, right = st.columns([6, 5], gap="large")
    with left:
        st.markdown("##### How likely each gate is open")
        alt = "P(open) of every gate over the training"
        figure(open_map(gates), f"{name}-map", key=f"gates-map-{key}", alt=alt, about=about)
        st.caption(
            "P(g ≠ 0). Blue: open; orange: closed; pale: as likely as not; blank: a head without a gate, which stays."
        )
    with right:
        st.markdown("##### Loss, penalty and open heads")
        alt = "Loss, penalty and open heads by step"
        figure(course(gates), f"{name}-course", key=f"gates-course-{key}", alt=alt, about=about)
        st.caption(
            "Loss is the mean of the task's since the point before; penalty is λ times the sum of P(open)."
        )


def kept_where(sweep: Sweep) -> None:
    """Heads that each run keeps, by layer, and by stack if the model has several."""
    every, grid = sweep.gates, sweep.first.grid
    fig = kept_by_layer(
        [run_words(gates) for gates in every], [gates.kept for gates in every], grid
    )
    figure(
        fig,
        f"gates-{sweep.first.language}-layers",
        key="gates-layers",
        alt="Heads kept in each layer, by λ",
        about=sweep.first.language,
    )
    st.caption("Numbers are heads kept; the darker, the larger their share of the layer.")
    if len(grid.stacks) > 1:
        _by_stack(every)


def _by_stack(every: Sequence[LearnedGates]) -> None:
    by_run = [gates.kept_by_stack() for gates in every]
    kept = {stack: [found[stack][0] for found in by_run] for stack in by_run[0]}
    sizes = {stack: size for stack, (_, size) in by_run[0].items()}
    if len(every) > 1:
        fig = kept_by_stack([gates.weight for gates in every], kept, sizes)
        name = f"gates-{every[0].language}-stacks"
        figure(
            fig,
            name,
            key="gates-stacks",
            alt="Share of each stack's heads that is kept, by λ",
            about=every[0].language,
        )
    else:
        told = ", ".join(f"{kept[stack][0]} of {size} in {stack}" for stack, size in sizes.items())
        st.markdown(f"Heads kept by stack: {told}.")


# Other methods' masks of the same size as the gates': which heads they share, and their accuracy.

COMPARED_METHODS = (DEFAULT_METHOD, LIVE_METHOD)
KNOWN, ASKED, ASKER = (
    "_figures",
    "_gates_asked",
    "_gates_asker",
)  # the first is shared with the Prune page
POLL_SECONDS, FIRST_SECONDS = 0.5, 0.3


def scores_for(choice: Choice, sweep: Sweep) -> dict[str, HeadScores]:
    """{method: its cached scores for the same weights and language}, for the methods that have any."""
    language, fingerprint = sweep.first.language, fingerprint_of(sweep.first.spec)
    out = {}
    for method in COMPARED_METHODS:
        results = matching_scores(
            stored_results(HeadScores).results, choice.model, choice.task, method, choice.label_map
        )
        same = [r for r in results if fingerprint_of(r.record.spec) == fingerprint]
        scores = comparable_scores(same, [language]).first
        if scores is not None and scores.grid == sweep.first.grid:
            out[method] = scores
    return out


def called(scores: HeadScores) -> str:
    """A method's name, with the estimand of its scores if the method has several."""
    has_several_estimands = "estimand" in METHODS[scores.method].options
    return f"{scores.method} ({scores.estimand})" if has_several_estimands else scores.method


def as_many(gates: LearnedGates, scores: HeadScores) -> Bools:
    """Heads kept, bool [head], when as many gated heads are removed as the gates close, lowest score first."""
    values = np.where(gates.gated, scores.values, np.inf)
    return kept_without(removal_order(values)[: int((~gates.kept).sum())], gates.grid.size)


def mask_of(gates: LearnedGates, scores: HeadScores) -> Mask:
    """The same as a mask, with a record of how it was chosen."""
    kept = as_many(gates, scores)
    chosen: dict[str, JsonLike] = {
        "rule": "as many as learned gates keep", "method": scores.method, "k": int((~kept).sum()),
        "languages": [scores.language], "score": dict(scores.spec), "gates": dict(gates.spec),
    }  # fmt: skip
    return Mask(gates.grid, kept, dict(scores.spec.get("model", {})), chosen)


def flattered(scores: Mapping[str, HeadScores], split: str) -> str:
    """A sentence on the methods whose masks are measured on the split they were scored on; empty if there are none."""
    names = [called(own) for own in scores.values() if part(own.spec, "task", "split") == split]
    if not names:
        return ""
    other = "dev" if split == "test" else "test"
    return (
        f"The heads of {' and '.join(names)} were chosen on {split} itself, which gives an optimistic estimate: "
        f"compare on {other}."
    )


def measured(gates: LearnedGates, mask: Mask) -> bool:
    """Whether this mask's accuracy is known: it is the run's own and stored with it, or this session asked for it."""
    own = mask.digest == gates.mask().digest and any(worth(gates, split) for split in SPLITS)
    weights = current_fingerprint(mask.model.get("fingerprint"))
    about = {weights, part(gates.spec, "task", "name"), mask.digest, gates.language}
    return own or any(about <= set(key) for key in _known())


def overlap(
    sweep: Sweep,
    scores: Mapping[str, HeadScores],
    known: Mapping[tuple[str, str], Figure],
    split: str,
) -> Table:
    """A row per run and method: heads that both keep, how many a random choice would share, and the mask's accuracy.

    known: accuracy of the method's mask on the split, by run key and method, where known.
    """
    rows: list[tuple[Cell, ...]] = []
    accuracy = f"{accuracy_name(sweep.first)}, %"
    for run in sweep.runs:
        gates, gated = run.record, run.record.gated
        for method, found in scores.items():
            both = int((gates.kept & as_many(gates, found))[gated].sum())
            kept = int(gates.kept[gated].sum())
            row = (
                gates.weight,
                called(found),
                kept,
                int(gated.sum()),
                both,
                *by_chance(int(gated.sum()), kept, kept),
            )
            rows.append((*row, *_worth(known.get((run.key, method)))))
    return Table(
        f"gates-overlap-{sweep.first.language}", "The heads that Shapley and gradient would have kept",
        ("λ", "method", "kept", "of", "in both", "by chance", "chance, low", "chance, high", accuracy,
         "difference, points", "low, points", "high, points"),
        ("g", "", "d", "d", "d", ".1f", "d", "d", ".1f", "+.1f", "+.1f", "+.1f"), tuple(rows),
        ("kept, of: among the heads that have a gate. by chance: what a random choice of as many heads shares with "
         f"the gates', with the range that holds at least 95 % of them. accuracy: of the method's mask, on {split}.",
         "shapley-top50: what a head contributes while fewer than half of the heads are removed, so not suited to "
         "masks that keep fewer than half; shapley: at all numbers of heads.",
         *filter(None, [flattered(scores, split)])),
    )  # fmt: skip


def _worth(figure: Figure | None) -> tuple[Cell, ...]:
    if figure is None:
        return (None,) * 4
    low, high = interval_of_difference(figure) or (None, None)
    shares = (figure.accuracy, figure.difference, low, high)
    return tuple(None if share is None else 100 * share for share in shares)


def questions(
    choice: Choice, sweep: Sweep, scores: Mapping[str, HeadScores], split: str
) -> dict[tuple[str, str], Question]:
    """{(run key, method): question for the worker about the method's mask}, on the runs' examples."""
    out: dict[tuple[str, str], Question] = {}
    asker = st.session_state.setdefault(ASKER, secrets.token_hex(8))
    for run in sweep.runs:
        found = worth(run.record, split)
        if found is None:
            continue
        for method, own in scores.items():
            mask = mask_of(run.record, own)
            fingerprint = str(fingerprint_of(own.spec))
            asked = mask if mask.removed else None
            out[run.key, method] = Question.of(
                choice.model, fingerprint, choice.task, split, asked, asker, choice.label_map,
                examples=int(found.examples),
            )  # fmt: skip
    return out


def seen(asked: Mapping[tuple[str, str], Question], language: str) -> dict[tuple[str, str], Figure]:
    """The final figures that this session has for these masks."""
    known = _known()
    return {key: known[q.key(language)] for key, q in asked.items() if q.key(language) in known}


def _known() -> Known:
    known: Known = st.session_state.setdefault(KNOWN, {})
    return known


def offer(asked: Mapping[tuple[str, str], Question], language: str) -> None:
    """The button that asks the worker for the missing figures, and its progress."""
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
    with errors_as_sentences():
        worker = worker_client()
        st.session_state[ASKED] = (
            key,
            LatestValue(lambda: _answers(worker, missing, language, known)),
        )


def _answers(
    worker: Any, missing: Sequence[Question], language: str, known: Known
) -> Generator[int]:
    """Number of masks answered so far, one at a time: a session's newer question would cancel the older one."""
    for done, question in enumerate(missing):
        with closing(figures(worker, question, [language], known)) as values:
            for _ in values:
                yield done
    yield len(missing)


def _follow(live: LatestValue[int], left: int) -> None:
    live.wait(1, FIRST_SECONDS)

    def look() -> None:
        with errors_as_sentences():
            if live.done:
                _end(live)
            st.caption(
                f"Asking the worker: mask {1 + (live.value or 0)} of those that are not measured yet …"
            )

    redraw_every(look, None if live.done else POLL_SECONDS)()


def _end(live: LatestValue[int]) -> None:
    error = live.error
    st.session_state.pop(ASKED, None)
    if error is not None:
        raise error
    st.rerun()


# The trade-off over λ: accuracy against heads kept, a dot per run, with other methods' masks of the same size.

GATES = "learned gates"
READING = (
    "Bars: 95 % interval of the difference to the model with all heads (dotted), on the same examples. Click a point "
    "to see its run."
)
CHART, WEIGHT = (
    "gates-tradeoff",
    "weight",
)  # keys of the figure, and of the widget that chooses the run


def draw(choice: Choice, sweep: Sweep, at: int) -> None:
    """The trade-off with its table. at: index of the run to highlight."""
    splits = splits_of(sweep)
    if not splits:
        st.info("These runs have no accuracy for their masks; learn the gates again to measure it.")
        show_table(gates_table(sweep.gates), f"gates-{sweep.first.language}")
        return
    split = st.radio("Accuracy on", splits, horizontal=True, key="gates-split")
    scores = scores_for(choice, sweep)
    asked = questions(choice, sweep, scores, split)
    known = seen(asked, sweep.first.language)
    fig = of_sweep(
        sweep, split, known, at, names={method: called(own) for method, own in scores.items()}
    )
    name = f"gates-{sweep.first.language}-{split}"
    figure(
        fig,
        name,
        key=CHART,
        alt="Accuracy against heads kept",
        on_point=choose,
        about=f"{sweep.first.language}, {split}",
    )
    drawn = {
        method: own for method, own in scores.items() if any(method == other for _, other in known)
    }
    st.caption(
        " ".join(filter(None, [READING, _caution(sweep, split, splits), flattered(drawn, split)]))
    )
    show_table(gates_table(sweep.gates), f"gates-{sweep.first.language}")
    _beside(sweep, scores, known, split)
    offer(asked, sweep.first.language)


def _caution(sweep: Sweep, split: str, splits: list[str]) -> str:
    if learned_on(sweep.first) == split:
        return f"The gates were learned on {split} itself: judge them on test."
    if split == "test" and splits[0] != "test":
        return "A λ that is chosen by these numbers is chosen on test: choose it on dev, and look here once."
    return ""


def choose() -> None:
    """Show the run of the clicked point."""
    weight = clicked(st.session_state.get(CHART))
    if weight:
        set_widget(WEIGHT, weight)


def clicked(event: Any) -> str:
    """The run of a clicked point, as the figure names it; empty if there is none."""
    points = event["selection"]["points"] if event else []
    found = points[-1].get("customdata") if points else None
    found = found[0] if isinstance(found, list | tuple) and found else found
    return found if isinstance(found, str) else ""


def _beside(
    sweep: Sweep,
    scores: Mapping[str, HeadScores],
    known: Mapping[tuple[str, str], Figure],
    split: str,
) -> None:
    lacking = [method for method in COMPARED_METHODS if method not in scores]
    if scores:
        show_table(overlap(sweep, scores, known, split), f"overlap-{sweep.first.language}")
    if lacking:
        st.caption(
            f"No {' or '.join(lacking)} scores of this model in this language are cached: with them, the heads that "
            f"{'they' if len(lacking) > 1 else 'it'} would have kept appear here. The Heads page computes them."
        )
    if scores and sweep.along:
        st.caption(
            "The model was trained jointly with the gates; the other methods' masks are of the original model."
        )


def of_sweep(
    sweep: Sweep, split: str, known: Mapping[tuple[str, str], Figure], at: int, *, names: Mapping[str, str],
) -> Chart:  # fmt: skip
    """The figure: the runs measured on the split, and other methods' masks whose accuracy is known.

    names: {method: display name of its scores}.
    """
    every = zip(sweep.runs, sweep.weights, strict=True)
    measured = [(run, w, at) for run, at in every if (w := worth(run.record, split)) is not None]
    found, weights = [(run, w) for run, w, _ in measured], [at for *_, at in measured]
    ends = np.array([w.ends for _, w in found])
    kept = np.array([int(run.record.kept.sum()) for run, _ in found])
    told = [hover(run.record, split) for run, _ in found]
    own = np.array([100 * w.accuracy for _, w in found])
    series = {GATES: MaskDots(kept, own, ends[:, 0], ends[:, 1], told, weights)}
    for method in dict.fromkeys(method for _, method in known):
        name = names.get(method, method)
        series[f"{name}, as many heads"] = _dots(sweep, method, name, known)
    ringed = next((place for place, (run, _) in enumerate(found) if run is sweep.runs[at]), None)
    size, measure = sweep.first.grid.size, f"{accuracy_name(sweep.first)} on {split}"
    return accuracy_chart(series, 100 * found[0][1].baseline, size, measure, highlighted=ringed)


def _ends(figure: Figure) -> tuple[float, float]:
    """The interval of the difference, put at the untouched model's accuracy."""
    if figure.baseline is None:
        return figure.accuracy, figure.accuracy
    return figure.baseline + figure.low, figure.baseline + figure.high


def _dots(sweep: Sweep, method: str, name: str, known: Mapping[tuple[str, str], Figure]) -> MaskDots:
    there = [
        (run, at)
        for run, at in zip(sweep.runs, sweep.weights, strict=True)
        if (run.key, method) in known
    ]
    rows = [(int(run.record.kept.sum()), known[run.key, method]) for run, _ in there]
    low, high = 100 * np.array([_ends(figure) for _, figure in rows]).T
    told = [f"{name}: {kept} heads kept\n{100 * f.accuracy:.1f} %, interval {a:.1f} to {b:.1f}"
            for (kept, f), a, b in zip(rows, low, high, strict=True)]  # fmt: skip
    kept, found = (
        np.array([kept for kept, _ in rows]),
        np.array([100 * f.accuracy for _, f in rows]),
    )
    return MaskDots(kept, found, low, high, told, [at for _, at in there])
