"""What the current mask saves: parameters and multiply-accumulates at once, time on request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from headlab.errors import HeadlabError
from headlab.masks import Mask, mask_from_json
from headlab.studies.savings import NO_SPEED, Costs, Left, Savings, saved
from headlab.ui.figures import show
from headlab.ui.job_actions import asked, start
from headlab.ui.job_format import Job
from headlab.ui.names import plain
from headlab.ui.presses import button
from headlab.ui.shell import Choice, client, supervisor

MILLION, KIND = 1e6, "worth"
ASKED, AGAIN = "_prune_asked", "_prune_again"  # kind of this page's last job; whether to rerun the page
HELP = "Runs the untouched, the masked and the shrunk model in turn, on examples of this task, on the worker's device."


def draw(choice: Choice, loaded: Mapping[str, Any], mask: Mask, known: Sequence[Job]) -> None:
    """The section. loaded: the worker's description of the model.  known: jobs, from `jobs`."""
    if st.session_state.pop(AGAIN, False):
        st.rerun()  # a job was started in a fragment: rerun the whole page
    st.markdown("##### What you save")
    counts(loaded, mask)
    if not mask.removed:
        return
    measured = newest(known, choice.model, mask)
    label = "Measure the speed" if measured is None else "Measure the speed again"
    button(label, icon="speed", key="worth-measure", help=HELP, on_press=_start, args=(choice, mask))
    if st.session_state.get(ASKED) == KIND:
        asked("What it measures appears here when it is done.")
    if measured is not None:
        times(measured)


def counts(loaded: Mapping[str, Any], mask: Mask) -> None:
    """Parameters and multiply-accumulates without the heads that are off; calculated, nothing is run."""
    given = loaded.get("costs")
    if given is None:
        st.caption("The worker does not say what this model's heads cost: it is from an older version.")
        return
    costs = Costs.from_json(given)
    whole = costs.untouched()
    if not costs.layers:
        _sizes(whole, whole)
        st.caption(f"{NO_SPEED} No head of this model can be removed: {plain(costs.note.rstrip('.'))}.")
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
                label, f"{value / MILLION:,.1f} M", delta, delta_color="blue" if gone else "gray", delta_arrow="off",
                width="content",
            )  # fmt: skip


def _grouped(costs: Costs, mask: Mask) -> str:
    """A sentence if some heads that are off cannot be removed from the weights, else empty."""
    stay = 0
    for layer in costs.layers:
        off = ~mask.kept[layer.first : layer.first + layer.heads].reshape(-1, layer.together)
        stay += int(off[~off.all(axis=1)].sum())
    return f" Heads that share a key and a value with one that is on stay: {stay}." if stay else ""


def spec_of(choice: Choice, mask: Mask) -> dict[str, Any]:
    """The spec of the job that measures a mask: only its effect, so that equal masks make the same job."""
    alone = Mask(mask.grid, mask.kept, mask.model, {}, {}, "2000-01-01T00:00:00+00:00")
    return {
        **choice.about, "languages": list(choice.languages), "mask": alone.to_json(),
    }  # fmt: skip


def _start(choice: Choice, mask: Mask) -> None:
    begin(KIND, spec_of(choice, mask))


def begin(kind: str, spec: Mapping[str, Any]) -> None:
    """Queue a job from this page."""
    st.session_state[ASKED], st.session_state[AGAIN] = kind, True
    start(kind, spec)


def jobs() -> Sequence[Job]:
    """The jobs that measure a mask's speed; none if no worker is connected."""
    return [job for job in client().jobs() if job.get("kind") == KIND] if supervisor().connected else []


def newest(jobs: Sequence[Job], model: str, mask: Mask) -> Savings | None:
    """The result of the newest finished job for exactly this mask on this model; None if there is none."""
    for job in sorted(jobs, key=lambda job: -int(job["id"])):
        params, found = job.get("params") or {}, (job.get("result") or {}).get("worth")
        if job["state"] == "done" and found is not None and params.get("model") == model:
            try:
                if mask_from_json(params.get("mask")).digest == mask.digest:
                    return Savings.from_json(found)
            except HeadlabError:  # from an older version: treated as not measured
                continue
    return None


def times(worth: Savings) -> None:
    """The measured times: a row per device and batch size."""
    rows = []
    for speed in worth.speeds:
        row = {"Device": speed.device, "Batch": speed.rows, "Tokens": speed.tokens, "Unpruned, ms": speed.milliseconds}
        for name, ratio in (("Masked", speed.masked), ("Taken out", speed.shrunk)):
            told = "–" if ratio is None else f"{ratio.ratio:.2f} × [{ratio.low:.2f}, {ratio.high:.2f}]"
            row |= {name: told + ("" if ratio is None or ratio.sure else ", may be the same")}
        rows.append(row)
    number = st.column_config.NumberColumn(format="%.1f")
    st.dataframe(pd.DataFrame(rows), hide_index=True, column_config={"Unpruned, ms": number})
    st.caption(worth.sentences()[-1] + " × of the unpruned model's time, below 1 is faster.")
    with st.expander("All that was measured"):
        for table in worth.report().tables:
            show(table, f"worth-{table.name}")
