"""What the current mask saves: parameters and multiply-accumulates at once, time on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from headlab.core import HeadlabError
from headlab.dashboard.frame import Choice, supervisor, worker_client
from headlab.dashboard.names import languages_words, plain
from headlab.dashboard.pages.prune.state import PruneState, start_on_page
from headlab.dashboard.panels.job_actions import asked
from headlab.dashboard.panels.job_format import languages_in
from headlab.dashboard.widgets import button, show_table
from headlab.jobs.table import WorthJob
from headlab.masks import Mask, mask_from_json
from headlab.studies.savings import NO_SPEED, Costs, Left, Savings, saved
from headlab.worker import JobRow

# What the current mask saves: parameters and multiply-accumulates at once, time on request.

MILLION = 1e6


HELP = "Runs the untouched, the masked and the shrunk model in turn, on examples of this task, on the worker's device."


def draw_savings(choice: Choice, costs: Costs | None, mask: Mask, known: Sequence[JobRow]) -> None:
    """The section.

    Args:
        choice: Whose model the mask is of, and on whose examples it is measured.
        costs: What the model's heads cost; None where the worker does not say it.
        mask: The current one.
        known: Jobs, from `jobs`.
    """
    state = PruneState.of_session()
    state.rerun_if_due()  # a job was started in this fragment
    st.markdown("##### What you save")
    draw_counts(costs, mask)
    if not mask.removed:
        return
    measured = newest_measured(known, choice.model, mask, choice.task, choice.languages)
    label = "Measure the speed" if measured is None else "Measure the speed again"
    button(
        label,
        icon="speed",
        key="worth-measure",
        help=HELP,
        on_press=start_on_page,
        args=(worth_job(choice, mask),),
    )
    if state.last_job == WorthJob.key:
        asked("What it measures appears here when it is done.")
    if measured is not None:
        draw_times(measured)


def draw_counts(costs: Costs | None, mask: Mask) -> None:
    """Parameters and multiply-accumulates without the heads that are off; calculated, nothing is run.

    Args:
        costs: What the model's heads cost; None where the worker does not say it.
        mask: The heads that are off.
    """
    if costs is None:
        st.caption(
            "The worker does not say what this model's heads cost: it is from an older version."
        )
        return
    whole = costs.untouched()
    if not costs.layers:
        _sizes(whole, whole)
        st.caption(
            f"{NO_SPEED} No head of this model can be removed: {plain(costs.note.rstrip('.'))}."
        )
        return
    left = costs.shrunk(mask.kept)
    _sizes(whole, left)
    about = "After removing the heads that are off from the weights. " if mask.removed else ""
    st.caption(f"{about}{NO_SPEED}{_grouped(costs, mask)}")


def _sizes(whole: Left, left: Left) -> None:
    share = saved(whole, left)
    with st.container(horizontal=True, gap="medium"):
        for label, value, name in (
            ("Parameters", left.parameters, "parameters"),
            (f"Multiply-accumulates, {left.tokens} tokens", left.macs, "macs"),
        ):
            gone = round(100 * share[name], 1)
            delta = f"−{gone} %" if gone else "unchanged"
            st.metric(
                label,
                f"{value / MILLION:,.1f} M",
                delta,
                delta_color="blue" if gone else "gray",
                delta_arrow="off",
                width="content",
            )


def _grouped(costs: Costs, mask: Mask) -> str:
    """A sentence if some heads that are off cannot be removed from the weights, else empty."""
    stay = 0
    for layer in costs.layers:
        off = ~mask.kept[layer.first : layer.first + layer.heads].reshape(-1, layer.together)
        stay += int(off[~off.all(axis=1)].sum())
    return f" Heads that share a key and a value with one that is on stay: {stay}." if stay else ""


def worth_job(choice: Choice, mask: Mask) -> WorthJob:
    """The job that measures a mask: only its effect, so that equal masks make the same job."""
    effect = Mask(mask.grid, mask.kept, mask.model, {}, {}, "2000-01-01T00:00:00+00:00")
    return WorthJob.model_construct(
        languages=list(choice.languages), mask=effect.to_json(), **choice.about
    )


def measuring_jobs() -> Sequence[JobRow]:
    """The jobs that measure a mask's speed; none if no worker is connected."""
    if not supervisor().connected:
        return []
    return [row for row in worker_client().jobs() if row.kind == WorthJob.key]


@dataclass(frozen=True)
class MeasuredSavings:
    """What a mask saves as measured, and the examples that it was measured on: their task and languages."""

    savings: Savings
    task: str
    languages: tuple[str, ...]


def newest_measured(
    jobs: Sequence[JobRow], model: str, mask: Mask, task: str = "", languages: Sequence[str] = ()
) -> MeasuredSavings | None:
    """The result of the newest finished job for exactly this mask on this model; None if there is none.

    Args:
        jobs: All that are known.
        model: Name of the model.
        mask: The mask.
        task: Whose examples were to be used; empty for any.
        languages: Codes; of several results those on exactly these languages go first.
    """

    def rank(job: JobRow) -> tuple[bool, int]:
        return set(languages_in(job)) != set(languages), -job.id

    for job in sorted(jobs, key=rank):
        params = job.params
        found = (job.result or {}).get("worth")
        fits = params.get("model") == model and task in ("", params.get("task"))
        if job.state == "done" and found is not None and fits:
            try:
                if mask_from_json(params.get("mask")).digest == mask.digest:
                    named = tuple(params.get("languages") or ())
                    return MeasuredSavings(Savings.from_json(found), str(params.get("task")), named)
            except HeadlabError:  # from an older version: treated as not measured
                continue
    return None


def draw_times(measured: MeasuredSavings) -> None:
    """The measured times: a row per device and batch size, and the examples that they are of."""
    worth, rows = measured.savings, []
    for speed in worth.speeds:
        row = {
            "Device": speed.device,
            "Batch": speed.rows,
            "Tokens": speed.tokens,
            "Unpruned, ms": speed.milliseconds,
        }
        for name, ratio in (("Masked", speed.masked), ("Removed", speed.shrunk)):
            told = (
                "–" if ratio is None else f"{ratio.ratio:.2f} × [{ratio.low:.2f}, {ratio.high:.2f}]"
            )
            row |= {name: told + ("" if ratio is None or ratio.sure else ", may be the same")}
        rows.append(row)
    number = st.column_config.NumberColumn(format="%.1f")
    st.dataframe(pd.DataFrame(rows), hide_index=True, column_config={"Unpruned, ms": number})
    examples = f"On examples of {measured.task} in {languages_words(measured.languages)}."
    st.caption(
        f"{worth.sentences()[-1]} × of the unpruned model's time, below 1 is faster. {plain(examples)}"
    )
    with st.expander("All measurements"):
        for table in worth.report().tables:
            show_table(table, f"worth-{table.name}")
