"""What the current mask saves: parameters and multiply-accumulates at once, time on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd
import streamlit as st

from headlab.core import LAYERS, HeadlabError, duration_text, nouns_of_kinds, percent_text
from headlab.dashboard.frame import Choice, supervisor, task_languages, worker_client
from headlab.dashboard.names import languages_words, plain
from headlab.dashboard.pages.prune.state import PruneState, start_on_page
from headlab.dashboard.panels.jobs import forecast_seconds, languages_in, show_started_job
from headlab.dashboard.panels.masks import ModelPlayers, why_not_removable
from headlab.dashboard.widgets import Button, button_row, show_table
from headlab.jobs.table import WorthJob
from headlab.masks import Mask, full_mask, mask_from_json
from headlab.studies.pareto import can_be_chosen, emptied_stacks
from headlab.studies.savings import (
    LARGE_SHARE,
    Costs,
    ModelCost,
    Ratio,
    Savings,
    no_speed,
    saved_shares,
)
from headlab.worker import JobRow

MILLION = 1e6

USUAL_ROUNDS = int(WorthJob.model_fields["rounds"].default)
ESTIMATE_EXAMPLES = 4
"""Examples of a pass of an estimate, at small batch sizes."""
ESTIMATE_SECONDS = 20.0
"""What an estimate may take; a machine that is too slow for it gets a shorter one."""


class ShortMeasurement(NamedTuple):
    """What an estimate of the speed measures.

    Attributes:
        rounds: Of all models; 6 or more, as an interval of the median needs.
        batch_sizes: Examples of a batch.
    """

    rounds: int
    batch_sizes: tuple[int, ...]

    @property
    def examples(self) -> int:
        """Examples that each model answers in all rounds, which its cost is proportional to."""
        return self.rounds * sum(max(ESTIMATE_EXAMPLES, size) for size in self.batch_sizes)


ESTIMATES = (ShortMeasurement(9, (1, 32)), ShortMeasurement(6, (1, 8)), ShortMeasurement(6, (1,)))
"""The longest one first."""
MEASURE_HELP = (
    "Runs the untouched, the masked and the shrunk model in turn, on examples of this task, on "
    "the worker's device."
)
TIMED_WITHOUT = (
    "What is timed is the model with zeros in place of these {}, and without them: as they were "
    "chosen under another ablation, neither answers as this mask does."
)


def draw_savings(choice: Choice, players: ModelPlayers, mask: Mask, jobs: Sequence[JobRow]) -> None:
    """The section.

    Args:
        choice: Whose model the mask is of, and on whose examples it is measured.
        players: What is known of the model's heads, or of what else the mask switches.
        mask: The current one.
        jobs: From `measuring_jobs`.
    """
    state = PruneState.of_session()
    state.rerun_if_due()  # a job was started in this fragment
    st.markdown("##### What you save")
    costs = players.costs
    if costs is None:
        st.caption(players.why_unknown)
    else:
        draw_counts(costs, mask)
    if costs is not None and len(task_languages(choice.task)) > 1:
        _draw_vocabulary(costs)
    if mask.removed:
        draw_speed(choice, mask, jobs, "worth")


def draw_speed(
    choice: Choice, mask: Mask, jobs: Sequence[JobRow], key: str, *, is_folded: bool = False
) -> None:
    """Buttons that estimate or measure the speed of a mask, and what was measured of it.

    Args:
        choice: Whose model the mask is of, and on whose examples it is measured.
        mask: The mask.
        jobs: From `measuring_jobs`.
        key: What the keys of the buttons start with; names this part of the page.
        is_folded: Whether the tables are folded, where the page has said the times in words.
    """
    measurement = newest_measured(jobs, choice.model, mask, choice.task, choice.languages)
    # What is removed makes no difference to a forecast: it is asked for once, not for every mask.
    no_removal = full_mask(mask.grid)
    buttons = []
    if measurement is None:
        estimate, seconds = fitting_estimate(forecast_seconds(estimate_job(choice, no_removal)))
        buttons.append(
            Button(
                f"Estimate the speed{_cost_words(seconds)}",
                f"{key}-estimate",
                start_on_page,
                (estimate_job(choice, mask, estimate), key),
                icon="timer",
                help=estimate_help(estimate),
            )
        )
    again = " again" if measurement is not None and not measurement.is_estimate else ""
    buttons.append(
        Button(
            f"Measure the speed{again}{_cost_words(forecast_seconds(worth_job(choice, no_removal)))}",
            f"{key}-measure",
            start_on_page,
            (worth_job(choice, mask), key),
            icon="speed",
            help=MEASURE_HELP,
        )
    )
    button_row(*buttons)
    if why_not_removable(mask):
        st.caption(TIMED_WITHOUT.format(mask.grid.noun))
    if PruneState.of_session().last_job == key:
        show_started_job("What it measures appears here when it is done.")
    if measurement is not None:
        draw_times(measurement, key, is_folded=is_folded)


def fitting_estimate(longest_seconds: float | None) -> tuple[ShortMeasurement, float | None]:
    """The longest estimate that this machine does in time, and how long it takes.

    Args:
        longest_seconds: How long the longest one takes; None if it is not known.

    Returns:
        The shortest one if none is done in time; the longest one while nothing is known.
    """
    longest = ESTIMATES[0]
    if longest_seconds is None:
        return longest, None
    for estimate in ESTIMATES:
        seconds = longest_seconds * estimate.examples / longest.examples
        if seconds <= ESTIMATE_SECONDS:
            break
    return estimate, seconds


def estimate_help(estimate: ShortMeasurement) -> str:
    """What is measured, for its button.

    Args:
        estimate: What is measured.
    """
    sizes = " and ".join(map(str, estimate.batch_sizes))
    noun = "batch size" if len(estimate.batch_sizes) == 1 else "batch sizes"
    return (
        f"{estimate.rounds} rounds of short passes at {noun} {sizes}: the same measurement in "
        "short, so with wider intervals."
    )


def _cost_words(seconds: float | None) -> str:
    """How long a measurement takes, for its button; empty while that is not known."""
    return "" if seconds is None else f" (about {duration_text(max(1.0, seconds))})"


def draw_counts(costs: Costs, mask: Mask) -> None:
    """Parameters and multiply-accumulates without the heads, or other players, that are off.

    Calculated, nothing is run. They are those of a model that can be written: where what the mask
    was chosen under keeps the heads in the weights, those of the untouched model, and none where
    the mask leaves no layer.

    Args:
        costs: What they cost.
        mask: Which are off.
    """
    nouns = nouns_of_kinds(mask.grid.kinds)
    untouched = costs.baseline()
    if not costs.are_known:
        _draw_sizes(untouched, untouched)
        st.caption(
            f"{no_speed(nouns)} No {nouns[0]} of this model can be removed: "
            f"{plain(costs.note.rstrip('.'))}."
        )
        return
    reason = why_not_removable(mask)
    if reason:
        _draw_sizes(untouched, untouched)
        st.caption(f"This mask saves nothing. {reason}")
        return
    if not can_be_chosen(mask.grid, mask.kept):
        st.caption(_without_layers(mask))
        return
    _draw_sizes(untouched, costs.shrunk(mask.kept))
    sentences = [no_speed(nouns)]
    if mask.removed:
        sentences.insert(0, f"After removing the {nouns[1]} that are off from the weights.")
    masked_heads = costs.masked_heads(mask.kept)
    if masked_heads:
        sentences.append(
            f"Heads that share a key and a value with one that is on stay: {masked_heads}."
        )
    st.caption(" ".join(sentences))


def _without_layers(mask: Mask) -> str:
    """Why there is no model to count, in a sentence.

    Args:
        mask: That leaves a stack without a layer.
    """
    emptied = [stack.base for stack in emptied_stacks(mask.grid, mask.kept) if stack.kind == LAYERS]
    return (
        "There is nothing to count: this mask closes every layer of the "
        f"{' and the '.join(emptied)}, and no model can be written without one."
    )


def _draw_vocabulary(costs: Costs) -> None:
    """How much of a model is its vocabulary, if that is much, and how to cut it."""
    if costs.vocabulary is None:  # the worker is from an older version
        return
    share = costs.vocabulary.all_parameters / costs.parameters
    if share >= LARGE_SHARE:
        st.caption(
            f"{100 * share:.0f} % of the parameters are vocabulary. *Write the model* can keep that "
            "of your languages alone."
        )


def _draw_sizes(untouched: ModelCost, remaining: ModelCost) -> None:
    """Draw what the model without the removed heads has, and how much less that is.

    Args:
        untouched: What the model has with all of its heads.
        remaining: What it has without those that are removed.
    """
    shares = saved_shares(untouched, remaining)
    with st.container(horizontal=True, gap="medium"):
        for label, value, name in (
            ("Parameters", remaining.parameters, "parameters"),
            (f"Multiply-accumulates, {remaining.tokens} tokens", remaining.macs, "macs"),
        ):
            saved_percent = round(100 * shares[name], 1)
            st.metric(
                label,
                f"{value / MILLION:,.1f} M",
                f"−{saved_percent} %" if saved_percent else "unchanged",
                delta_color="blue" if saved_percent else "gray",
                delta_arrow="off",
                width="content",
            )


def estimate_job(choice: Choice, mask: Mask, estimate: ShortMeasurement = ESTIMATES[0]) -> WorthJob:
    """The job that measures a mask in few rounds of short passes.

    Args:
        choice: Whose model the mask is of, and on whose examples it is measured.
        mask: The mask.
        estimate: What is measured.
    """
    short_passes = {
        "rounds": estimate.rounds,
        "batch_sizes": list(estimate.batch_sizes),
        "examples": ESTIMATE_EXAMPLES,
    }
    return worth_job(choice, mask).model_copy(update=short_passes)


def worth_job(choice: Choice, mask: Mask) -> WorthJob:
    """The job that measures a mask: only its effect, so that equal masks make the same job."""
    effect = Mask(mask.grid, mask.kept, mask.model, {}, {}, "2000-01-01T00:00:00+00:00")
    return WorthJob.model_construct(
        languages=list(choice.languages), mask=effect.to_json(), **choice.job_fields
    )


def measuring_jobs() -> Sequence[JobRow]:
    """The jobs that measure a mask's speed; none if no worker is connected."""
    if not supervisor().is_connected:
        return []
    return [row for row in worker_client().jobs() if row.kind == WorthJob.key]


@dataclass(frozen=True)
class MeasuredSavings:
    """What a mask saves as measured.

    Attributes:
        savings: The figures.
        task: Name of the task on whose examples it was measured.
        languages: Codes of the languages of these examples.
    """

    savings: Savings
    task: str
    languages: tuple[str, ...]

    @property
    def is_estimate(self) -> bool:
        """Whether it was measured in fewer rounds than a measurement takes."""
        rounds = self.savings.spec.get("rounds")
        return isinstance(rounds, int) and rounds < USUAL_ROUNDS

    def time_words(self) -> list[str]:
        """The times of the smaller model, one a batch size; none where it was not timed."""
        lines = []
        for speed in self.savings.speeds:
            ratio = speed.shrunk_ratio
            if ratio is None:
                continue
            words = (
                f"batch of {speed.rows}: {speed.milliseconds * ratio.ratio:,.1f} ms, "
                f"{percent_text(ratio.ratio)} of the whole model's time "
                f"[{100 * ratio.low:.0f}, {100 * ratio.high:.0f}]"
            )
            if not ratio.is_clear:
                words += ", may be the same"
            lines.append(f"{words} (estimate)" if self.is_estimate else words)
        return lines


def newest_measured(
    jobs: Sequence[JobRow], model: str, mask: Mask, task: str = "", languages: Sequence[str] = ()
) -> MeasuredSavings | None:
    """The result of the newest finished job for exactly this mask on this model.

    None if there is none.

    Args:
        jobs: All that are known.
        model: Name of the model.
        mask: The mask.
        task: Whose examples were to be used; empty for any.
        languages: Codes; of several results those on exactly these languages go first.
    """
    return measurements_by_mask(jobs, model, task, languages).get(mask.digest)


def measurements_by_mask(
    jobs: Sequence[JobRow], model: str, task: str = "", languages: Sequence[str] = ()
) -> dict[str, MeasuredSavings]:
    """For each mask, by its digest, the result that stands for its speed on this model.

    An estimate stands back behind a measurement, and what is older behind what is newer.

    Args:
        jobs: All that are known.
        model: Name of the model.
        task: Whose examples were to be used; empty for any.
        languages: Codes; of several results those on exactly these languages go first.
    """
    ranked: list[tuple[tuple[bool, bool, int], str, MeasuredSavings]] = []
    for job in jobs:
        params = job.params
        stored_savings = (job.result or {}).get("worth")
        fits = params.get("model") == model and task in ("", params.get("task"))
        if job.state != "done" or stored_savings is None or not fits:
            continue
        try:
            digest = mask_from_json(params.get("mask")).digest
            measurement = MeasuredSavings(
                Savings.from_json(stored_savings),
                str(params.get("task")),
                tuple(params.get("languages") or ()),
            )
        except HeadlabError:  # from an older version: treated as not measured
            continue
        is_on_others = set(languages_in(job)) != set(languages)
        ranked.append(((is_on_others, measurement.is_estimate, -job.id), digest, measurement))
    by_mask: dict[str, MeasuredSavings] = {}
    for _, digest, measurement in sorted(ranked, key=lambda entry: entry[0]):
        by_mask.setdefault(digest, measurement)
    return by_mask


def _ratio_words(ratio: Ratio | None) -> str:
    """A ratio of times with its interval, and whether it may be 1."""
    if ratio is None:
        return "–"
    words = f"{ratio.ratio:.2f} × [{ratio.low:.2f}, {ratio.high:.2f}]"
    if ratio.is_clear:
        return words
    return f"{words}, may be the same"


def draw_times(measurement: MeasuredSavings, key: str, *, is_folded: bool) -> None:
    """The measured times: a row per device and batch size, and the examples that they are of.

    Args:
        measurement: What was measured.
        key: What the keys of its tables start with.
        is_folded: Whether all of it is folded, where the page has said the times in words.
    """
    if measurement.is_estimate:
        st.caption(
            f"**An estimate**, from {measurement.savings.spec.get('rounds')} rounds: its intervals "
            "are wide. *Measure the speed* takes more rounds."
        )
    if not is_folded:
        _draw_table_of_times(measurement)
    with st.expander("All measurements"):
        if is_folded:
            _draw_table_of_times(measurement)
        for table in measurement.savings.report().tables:
            show_table(table, f"{key}-{table.name}")


def _draw_table_of_times(measurement: MeasuredSavings) -> None:
    savings = measurement.savings
    rows = []
    for speed in savings.speeds:
        row = {
            "Device": speed.device,
            "Batch": speed.rows,
            "Tokens": speed.tokens,
            "Unpruned, ms": speed.milliseconds,
            "Masked": _ratio_words(speed.masked_ratio),
            "Removed": _ratio_words(speed.shrunk_ratio),
        }
        if speed.cut_ratio is not None:
            row["Vocabulary cut"] = _ratio_words(speed.cut_ratio)
        rows.append(row)
    number = st.column_config.NumberColumn(format="%.1f")
    st.dataframe(pd.DataFrame(rows), hide_index=True, column_config={"Unpruned, ms": number})
    examples = f"On examples of {measurement.task} in {languages_words(measurement.languages)}."
    st.caption(
        f"{savings.sentences()[-1]} × of the unpruned model's time, below 1 is faster. "
        f"{plain(examples)}"
    )
