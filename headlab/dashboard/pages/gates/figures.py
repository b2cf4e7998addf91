"""Learned gates as figures: a run's training, and the trade-off over λ.

Other methods' masks are shown for comparison.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import streamlit as st

from headlab.charts.chart import Chart
from headlab.charts.gates import MaskDots, accuracy_chart
from headlab.core import (
    Bools,
    Cell,
    JsonLike,
    Table,
    ablation_title,
    current_fingerprint,
    fingerprint_of,
    part,
)
from headlab.dashboard.frame import (
    Choice,
    LatestValue,
    comparable_scores,
    errors_as_sentences,
    matching_scores,
    stored_results,
    worker_client,
)
from headlab.dashboard.panels.masks import (
    AccuracyQuestion,
    KnownFigures,
    interval_of_difference,
    session_figures,
    stream_figures,
)
from headlab.dashboard.panels.stored import Sweep, measured_splits, run_hover_text, run_words
from headlab.dashboard.widgets import (
    PageState,
    button,
    draw_figure,
    redraw_every,
    set_widget,
    show_table,
)
from headlab.masks import Mask, removal_order
from headlab.methods import DEFAULT_METHOD, LIVE_METHOD, METHODS
from headlab.plots.gates import (
    kept_by_layer_figure,
    kept_by_stack_figure,
    open_probability_map,
    training_figure,
)
from headlab.results import HeadScores, LearnedGates, kept_heads_without
from headlab.stats import expected_overlap
from headlab.training.l0_table import (
    SPLITS,
    MaskAccuracy,
    accuracy_name,
    gates_table,
    learned_on,
    worth,
)
from headlab.worker import Client, Figure

RunAndMethod = tuple[str, str]
"""Keys of a run and of another method: the mask of that method that is as large as the run's."""

# One run of learned gates: key figures, the map over training, loss and penalty.


def draw_key_figures(gates: LearnedGates) -> None:
    """Heads kept, undecided gates, and accuracy on each split."""
    with st.container(horizontal=True, gap="medium"):
        gate_count = int(gates.has_gate.sum())
        heads_kept = f"{int(gates.kept.sum())} of {gates.grid.size}"
        st.metric("Heads kept", heads_kept, width="content")
        st.metric("Undecided", f"{gates.undecided_count()} of {gate_count} gates", width="content")
        for split in SPLITS:
            mask_worth = worth(gates, split)
            if mask_worth is not None:
                st.metric(
                    f"{accuracy_name(gates).capitalize()} on {split}",
                    f"{100 * mask_worth.accuracy:.1f} %",
                    mask_worth.gain,
                    delta_color="gray",
                    delta_arrow="off",
                    width="content",
                )


def draw_training(gates: LearnedGates, key: str) -> None:
    """How the gates opened and closed during training, and the loss.

    Args:
        gates: Of the run.
        key: What ends the keys of the figures.
    """
    file_name = f"gates-{gates.language}-{gates.weight:g}"
    subject = f"{gates.language}, λ = {gates.weight:g}"
    map_column, course_column = st.columns([6, 5], gap="large")
    with map_column:
        st.markdown("##### How likely each gate is open")
        draw_figure(
            open_probability_map(gates),
            f"{file_name}-map",
            key=f"gates-map-{key}",
            alt="P(open) of every gate over the training",
            subject_details=subject,
        )
        st.caption(
            "P(g ≠ 0). Strong colour: open; pale: closed; blank: a head without a gate, which stays."
        )
    with course_column:
        st.markdown("##### Loss, penalty and open heads")
        draw_figure(
            training_figure(gates),
            f"{file_name}-course",
            key=f"gates-course-{key}",
            alt="Loss, penalty and open heads by step",
            subject_details=subject,
        )
        st.caption(
            "Loss is the mean of the task's since the point before; penalty is λ times the sum of "
            "P(open)."
        )


def draw_heads_kept_by_layer(sweep: Sweep) -> None:
    """Heads that each run keeps, by layer, and by stack if the model has several."""
    grid = sweep.first_gates.grid
    run_labels = [run_words(gates) for gates in sweep.gates]
    kept_heads = [gates.kept for gates in sweep.gates]
    draw_figure(
        kept_by_layer_figure(run_labels, kept_heads, grid),
        f"gates-{sweep.first_gates.language}-layers",
        key="gates-layers",
        alt="Heads kept in each layer, by λ",
        subject_details=sweep.first_gates.language,
    )
    st.caption("Numbers are heads kept; the darker, the larger their share of the layer.")
    if len(grid.stacks) > 1:
        _draw_heads_kept_by_stack(sweep.gates)


def _draw_heads_kept_by_stack(runs: Sequence[LearnedGates]) -> None:
    sizes: dict[str, int] = {}
    kept_counts: dict[str, list[int]] = {}
    for gates in runs:
        for stack, (kept_count, size) in gates.kept_by_stack().items():
            sizes[stack] = size
            kept_counts.setdefault(stack, []).append(kept_count)
    if len(runs) > 1:
        draw_figure(
            kept_by_stack_figure([gates.weight for gates in runs], kept_counts, sizes),
            f"gates-{runs[0].language}-stacks",
            key="gates-stacks",
            alt="Share of each stack's heads that is kept, by λ",
            subject_details=runs[0].language,
        )
        return
    stack_words = []
    for stack, size in sizes.items():
        stack_words.append(f"{kept_counts[stack][0]} of {size} in {stack}")
    st.markdown(f"Heads kept by stack: {', '.join(stack_words)}.")


# Other methods' masks of the same size as the gates': which heads they share, and their accuracy.

COMPARED_METHODS = (DEFAULT_METHOD, LIVE_METHOD)
POLL_SECONDS = 0.5
FIRST_SECONDS = 0.3


@dataclass
class MaskMeasurement(PageState):
    """The measurement of other methods' masks on the Gates page of one session.

    Attributes:
        asker: Tells the worker which of its questions about masks are this page's: a new one
            replaces the last.
        question_keys: Of the questions about the masks that are measured; empty if none are.
        progress: Number of masks that are measured so far; None if none are being measured.
    """

    key = "_gates_asked"
    asker: str = field(default_factory=lambda: secrets.token_hex(8))
    question_keys: tuple[tuple[str, ...], ...] = ()
    progress: LatestValue[int] | None = None


def scores_by_method(choice: Choice, sweep: Sweep) -> dict[str, HeadScores]:
    """Cached scores for the same weights and language, by the methods that have any."""
    language = sweep.first_gates.language
    fingerprint = fingerprint_of(sweep.first_gates.spec)
    scores_of_methods = {}
    for method in COMPARED_METHODS:
        results = matching_scores(
            stored_results(HeadScores).results, choice.model, choice.task, method, choice.label_map
        )
        same_weights = [
            result for result in results if fingerprint_of(result.record.spec) == fingerprint
        ]
        scores = comparable_scores(same_weights, [language]).first_scores
        if scores is not None and scores.grid == sweep.first_gates.grid:
            scores_of_methods[method] = scores
    return scores_of_methods


def method_words(scores: HeadScores) -> str:
    """A method's name, with the estimand of its scores if the method has several."""
    has_several_estimands = "estimand" in METHODS[scores.method].options
    if has_several_estimands:
        return f"{scores.method} ({scores.estimand})"
    return scores.method


def kept_by_scores(gates: LearnedGates, scores: HeadScores) -> Bools:
    """Heads kept when as many gated heads are removed as the gates close, lowest score first.

    Args:
        gates: They say how many heads are removed.
        scores: They say which.

    Returns:
        Bool [head].
    """
    values = np.where(gates.has_gate, scores.values, np.inf)
    removed_count = int((~gates.kept).sum())
    return kept_heads_without(removal_order(values)[:removed_count], gates.grid.size)


def mask_of_scores(gates: LearnedGates, scores: HeadScores) -> Mask:
    """`kept_by_scores` as a mask, with a record of how it was chosen."""
    kept_heads = kept_by_scores(gates, scores)
    origin: dict[str, JsonLike] = {
        "rule": "as many as learned gates keep",
        "method": scores.method,
        "k": int((~kept_heads).sum()),
        "languages": [scores.language],
        "score": dict(scores.spec),
        "gates": dict(gates.spec),
    }
    return Mask(gates.grid, kept_heads, dict(scores.spec.get("model", {})), origin)


def caution_of_same_split(scores: Mapping[str, HeadScores], split: str) -> str:
    """A sentence on the methods whose masks are measured on the split they were scored on.

    Args:
        scores: By method.
        split: Whose accuracies are shown.

    Returns:
        The sentence; empty if there is no such method.
    """
    names = []
    for method_scores in scores.values():
        if part(method_scores.spec, "task", "split") == split:
            names.append(method_words(method_scores))
    if not names:
        return ""
    other_split = "dev" if split == "test" else "test"
    return (
        f"The heads of {' and '.join(names)} were chosen on {split} itself, which gives an "
        f"optimistic estimate: compare on {other_split}."
    )


def caution_of_other_ablations(scores: Mapping[str, HeadScores]) -> str:
    """A sentence on the methods whose scores are of another ablation than that of learned gates.

    Args:
        scores: By method.

    Returns:
        The sentence; empty if there is no such method.
    """
    titles = [
        f"{method_words(method_scores)} under {ablation_title(ablation)} ablation"
        for method_scores in scores.values()
        if (ablation := str(method_scores.spec.get("ablation", "zero"))) != "zero"
    ]
    if not titles:
        return ""
    return (
        f"Every head that is off gives zeros here, as one with a closed gate does; the heads of "
        f"{' and '.join(titles)} were chosen otherwise."
    )


def accuracy_is_known(gates: LearnedGates, mask: Mask) -> bool:
    """Whether this mask's accuracy is known.

    It is if it was stored with the run, as the mask is the run's own, or if this session measured
    it.
    """
    if mask.digest == gates.mask().digest and any(worth(gates, split) for split in SPLITS):
        return True
    weights = current_fingerprint(mask.model.get("fingerprint"))
    identity = {weights, part(gates.spec, "task", "name"), mask.digest, gates.language}
    return any(identity <= set(question_key) for question_key in session_figures())


def overlap_table(
    sweep: Sweep,
    scores: Mapping[str, HeadScores],
    known_figures: Mapping[RunAndMethod, Figure],
    split: str,
) -> Table:
    """A row per run and method: heads that both keep, and the mask's accuracy.

    Beside the shared heads is how many a random choice would share.

    Args:
        sweep: The runs.
        scores: By method.
        known_figures: The accuracies of the methods' masks on the split, where they are known.
        split: Its name.
    """
    rows: list[tuple[Cell, ...]] = []
    for run in sweep.runs:
        gates = run.record
        gated = gates.has_gate
        gate_count = int(gated.sum())
        kept_count = int(gates.kept[gated].sum())
        for method, method_scores in scores.items():
            kept_by_both = gates.kept & kept_by_scores(gates, method_scores)
            rows.append(
                (
                    gates.weight,
                    method_words(method_scores),
                    kept_count,
                    gate_count,
                    int(kept_by_both[gated].sum()),
                    *expected_overlap(gate_count, kept_count, kept_count),
                    *_figure_cells(known_figures.get((run.key, method))),
                )
            )
    notes = [
        "kept, of: among the heads that have a gate. by chance: what a random choice of as many "
        "heads shares with the gates', with the range that holds at least 95 % of them. accuracy: "
        f"of the method's mask, on {split}.",
        "shapley-top50: what a head contributes while fewer than half of the heads are removed, "
        "so not suited to masks that keep fewer than half; shapley: at all numbers of heads.",
    ]
    cautions = (caution_of_same_split(scores, split), caution_of_other_ablations(scores))
    notes += filter(None, cautions)
    format_by_column = {
        "λ": "g",
        "method": "",
        "kept": "d",
        "of": "d",
        "in both": "d",
        "by chance": ".1f",
        "chance, low": "d",
        "chance, high": "d",
        f"{accuracy_name(sweep.first_gates)}, %": ".1f",
        "difference, points": "+.1f",
        "low, points": "+.1f",
        "high, points": "+.1f",
    }
    return Table(
        f"gates-overlap-{sweep.first_gates.language}",
        "The heads that Shapley and gradient would have kept",
        tuple(format_by_column),
        tuple(format_by_column.values()),
        tuple(rows),
        tuple(notes),
    )


def _figure_cells(mask_figure: Figure | None) -> tuple[Cell, ...]:
    """Accuracy, difference and its interval, each times 100; None where they are not known."""
    if mask_figure is None:
        return (None,) * 4
    low, high = interval_of_difference(mask_figure) or (None, None)
    shares = (mask_figure.accuracy, mask_figure.difference, low, high)
    return tuple(None if share is None else 100 * share for share in shares)


def questions_about_masks(
    choice: Choice, sweep: Sweep, scores: Mapping[str, HeadScores], split: str
) -> dict[RunAndMethod, AccuracyQuestion]:
    """The questions to the worker about the methods' masks, on the runs' examples."""
    questions_by_mask: dict[RunAndMethod, AccuracyQuestion] = {}
    asker = MaskMeasurement.of_session().asker
    for run in sweep.runs:
        run_worth = worth(run.record, split)
        if run_worth is None:
            continue
        for method, method_scores in scores.items():
            mask = mask_of_scores(run.record, method_scores)
            questions_by_mask[run.key, method] = AccuracyQuestion.unchecked(
                choice.model,
                str(fingerprint_of(method_scores.spec)),
                choice.task,
                split,
                mask if mask.removed else None,
                asker,
                choice.label_map,
                examples=int(run_worth.examples),
                ablation="zero",  # as of a closed gate
            )
    return questions_by_mask


def final_figures_of(
    questions_by_mask: Mapping[RunAndMethod, AccuracyQuestion], language: str
) -> dict[RunAndMethod, Figure]:
    """The final figures that this session has for these masks."""
    known_figures = session_figures()
    figures_by_mask = {}
    for run_and_method, question in questions_by_mask.items():
        question_key = question.key(language)
        if question_key in known_figures:
            figures_by_mask[run_and_method] = known_figures[question_key]
    return figures_by_mask


def offer_measuring(
    questions_by_mask: Mapping[RunAndMethod, AccuracyQuestion], language: str
) -> None:
    """The button that asks the worker for the missing figures, and its progress."""
    known_figures = session_figures()
    missing = []
    for question in questions_by_mask.values():
        if question.key(language) not in known_figures:
            missing.append(question)
    if not missing:
        return
    question_keys = tuple(question.key(language) for question in questions_by_mask.values())
    measurement = MaskMeasurement.of_session()
    if measurement.progress is not None and measurement.question_keys == question_keys:
        _draw_progress(measurement.progress)
        return
    examples = sum(question.size for question in missing)
    button(
        f"Measure these masks on {missing[0].split}",
        key="gates-compare",
        icon="play_arrow",
        on_press=_measure,
        args=(question_keys, missing, language),
        help=(
            f"The worker answers {examples:,} examples under {len(missing)} masks, ahead of its "
            "jobs."
        ),
    )


def _measure(
    question_keys: tuple[tuple[str, ...], ...], missing: Sequence[AccuracyQuestion], language: str
) -> None:
    """Ask the worker for the missing figures, in place of those that are being asked for.

    Args:
        question_keys: Of the questions about all masks of the figure.
        missing: The questions about those that are not measured yet.
        language: Whose examples are answered.
    """
    known_figures = session_figures()
    measurement = MaskMeasurement.of_session()
    if measurement.progress is not None:
        measurement.progress.stop()
    with errors_as_sentences():
        worker = worker_client()
        measurement.progress = LatestValue(
            lambda: _measured_masks(worker, missing, language, known_figures)
        )
        measurement.question_keys = question_keys


def _measured_masks(
    worker: Client, missing: Sequence[AccuracyQuestion], language: str, known_figures: KnownFigures
) -> Generator[int]:
    """Measure masks one at a time, as a session's newer question would cancel the older one.

    Yields:
        The number of masks that are measured so far, with every figure that arrives.
    """
    for measured_count, question in enumerate(missing):
        with closing(stream_figures(worker, question, [language], known_figures)) as values:
            for _ in values:
                yield measured_count
    yield len(missing)


def _draw_progress(progress: LatestValue[int]) -> None:
    progress.wait(1, FIRST_SECONDS)

    def draw() -> None:
        with errors_as_sentences():
            if progress.done:
                _end_measuring(progress)
            st.caption(
                f"Asking the worker: mask {1 + (progress.value or 0)} of those that are not "
                "measured yet …"
            )

    redraw_every(draw, None if progress.done else POLL_SECONDS)()


def _end_measuring(progress: LatestValue[int]) -> None:
    """Draw the page with the new figures, or raise the error that ended the measurement."""
    measurement = MaskMeasurement.of_session()
    measurement.progress = None
    measurement.question_keys = ()
    if progress.error is not None:
        raise progress.error
    st.rerun()


# The trade-off over λ: accuracy against heads kept, a dot per run, with other methods' masks of the
# same size.

GATES_SERIES = "learned gates"
READING = (
    "Bars: 95 % interval of the difference to the model with all heads (dotted), on the same "
    "examples. Click a point to see its run."
)
TRADE_OFF_CHART = "gates-tradeoff"
"""Widget key of the figure."""
WEIGHT_LIST = "weight"
"""Widget key of the list that chooses the run."""


def draw_trade_off(choice: Choice, sweep: Sweep, run_number: int) -> None:
    """The trade-off with its table, below its heading.

    Args:
        choice: The sidebar's.
        sweep: The runs.
        run_number: Index of the run to highlight.
    """
    language = sweep.first_gates.language
    st.subheader(f"{accuracy_name(sweep.first_gates).capitalize()} against heads kept")
    splits = measured_splits(sweep)
    if not splits:
        st.info("These runs have no accuracy for their masks; learn the gates again to measure it.")
        show_table(gates_table(sweep.gates), f"gates-{language}")
        return
    split = st.radio("Accuracy on", splits, horizontal=True, key="gates-split")
    scores = scores_by_method(choice, sweep)
    questions_by_mask = questions_about_masks(choice, sweep, scores, split)
    known_figures = final_figures_of(questions_by_mask, language)
    names = {method: method_words(method_scores) for method, method_scores in scores.items()}
    draw_figure(
        trade_off_chart(sweep, split, known_figures, run_number, names=names),
        f"gates-{language}-{split}",
        key=TRADE_OFF_CHART,
        alt="Accuracy against heads kept",
        on_point=show_clicked_run,
        subject_details=f"{language}, {split}",
    )
    drawn_methods = {method for _, method in known_figures}
    drawn_scores = {method: scores[method] for method in scores if method in drawn_methods}
    sentences = (
        READING,
        _caution(sweep, split, splits),
        caution_of_same_split(drawn_scores, split),
        caution_of_other_ablations(drawn_scores),
    )
    st.caption(" ".join(filter(None, sentences)))
    show_table(gates_table(sweep.gates), f"gates-{language}")
    _draw_overlap(sweep, scores, known_figures, split)
    offer_measuring(questions_by_mask, language)


def _caution(sweep: Sweep, split: str, splits: list[str]) -> str:
    if learned_on(sweep.first_gates) == split:
        return f"The gates were learned on {split} itself: judge them on test."
    if split == "test" and splits[0] != "test":
        return (
            "A λ that is chosen by these numbers is chosen on test: choose it on dev, and look "
            "here once."
        )
    return ""


def show_clicked_run() -> None:
    """Show the run of the clicked point."""
    weight = weight_of_click(st.session_state.get(TRADE_OFF_CHART))
    if weight:
        set_widget(WEIGHT_LIST, weight)


def weight_of_click(event: Any) -> str:
    """The run of a clicked point, as the figure names it; empty if there is none.

    Args:
        event: What streamlit keeps of the figure; None before the first click.
    """
    points = event["selection"]["points"] if event else []
    if not points:
        return ""
    custom_data = points[-1].get("customdata")
    if isinstance(custom_data, list | tuple) and custom_data:
        custom_data = custom_data[0]
    if isinstance(custom_data, str):
        return custom_data
    return ""


def _draw_overlap(
    sweep: Sweep,
    scores: Mapping[str, HeadScores],
    known_figures: Mapping[RunAndMethod, Figure],
    split: str,
) -> None:
    """The heads that the gates share with other methods, and which methods have no scores here."""
    if scores:
        table = overlap_table(sweep, scores, known_figures, split)
        show_table(table, f"overlap-{sweep.first_gates.language}")
    lacking = [method for method in COMPARED_METHODS if method not in scores]
    if lacking:
        st.caption(
            f"No {' or '.join(lacking)} scores of this model in this language are cached: with "
            f"them, the heads that {'they' if len(lacking) > 1 else 'it'} would have kept appear "
            "here. The Heads page computes them."
        )
    if scores and sweep.is_trained_jointly:
        st.caption(
            "The model was trained jointly with the gates; the other methods' masks are of the "
            "original model."
        )


def trade_off_chart(
    sweep: Sweep,
    split: str,
    known_figures: Mapping[RunAndMethod, Figure],
    run_number: int,
    *,
    names: Mapping[str, str],
) -> Chart:
    """The runs measured on the split, and other methods' masks whose accuracy is known.

    Args:
        sweep: The runs; at least one of them is measured on the split.
        split: Its name.
        known_figures: The accuracies of the methods' masks, where they are known.
        run_number: Index of the run to highlight.
        names: Display names of the methods' scores, by method.
    """
    worths: list[MaskAccuracy] = []
    weights = []
    kept_counts = []
    hover_texts = []
    highlighted_index = None
    for index, (run, weight) in enumerate(zip(sweep.runs, sweep.weights, strict=True)):
        run_worth = worth(run.record, split)
        if run_worth is None:
            continue
        if index == run_number:
            highlighted_index = len(worths)
        worths.append(run_worth)
        weights.append(weight)
        kept_counts.append(int(run.record.kept.sum()))
        hover_texts.append(run_hover_text(run.record, split))
    ends = np.array([run_worth.ends for run_worth in worths])
    accuracies = np.array([100 * run_worth.accuracy for run_worth in worths])
    series = {
        GATES_SERIES: MaskDots(
            np.array(kept_counts), accuracies, ends[:, 0], ends[:, 1], hover_texts, weights
        )
    }
    for method in dict.fromkeys(method for _, method in known_figures):
        name = names.get(method, method)
        series[f"{name}, as many heads"] = _dots_of_method(sweep, method, name, known_figures)
    head_count = sweep.first_gates.grid.size
    measure = f"{accuracy_name(sweep.first_gates)} on {split}"
    return accuracy_chart(
        series, 100 * worths[0].baseline, head_count, measure, highlighted=highlighted_index
    )


def _ends(mask_figure: Figure) -> tuple[float, float]:
    """The interval of the difference, put at the untouched model's accuracy."""
    if mask_figure.baseline is None:
        return mask_figure.accuracy, mask_figure.accuracy
    return mask_figure.baseline + mask_figure.low, mask_figure.baseline + mask_figure.high


def _dots_of_method(
    sweep: Sweep, method: str, name: str, known_figures: Mapping[RunAndMethod, Figure]
) -> MaskDots:
    """The masks of one method whose accuracy is known.

    Args:
        sweep: The runs whose sizes the masks have.
        method: Its key.
        name: Its display name.
        known_figures: The accuracies; of at least one mask of this method.
    """
    weights = []
    kept_counts = []
    mask_figures = []
    for run, weight in zip(sweep.runs, sweep.weights, strict=True):
        mask_figure = known_figures.get((run.key, method))
        if mask_figure is not None:
            weights.append(weight)
            kept_counts.append(int(run.record.kept.sum()))
            mask_figures.append(mask_figure)
    accuracies = np.array([100 * mask_figure.accuracy for mask_figure in mask_figures])
    low, high = 100 * np.array([_ends(mask_figure) for mask_figure in mask_figures]).T
    hover_texts = []
    for kept_count, accuracy, lower_end, upper_end in zip(
        kept_counts, accuracies, low, high, strict=True
    ):
        hover_texts.append(
            f"{name}: {kept_count} heads kept\n{accuracy:.1f} %, "
            f"interval {lower_end:.1f} to {upper_end:.1f}"
        )
    return MaskDots(np.array(kept_counts), accuracies, low, high, hover_texts, weights)
