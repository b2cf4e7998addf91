"""The Prune page's own views: the board of switches with the method's suggestion, and what the current mask saves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import streamlit as st

from headlab.errors import HeadlabError
from headlab.jobs.job import Job
from headlab.jobs.worth import WorthJob
from headlab.masks import Mask, mask_from_json
from headlab.methods.costs import remarks_on_choice
from headlab.pictures import head_map, map_of
from headlab.records import Bools, HeadGrid
from headlab.scores import HeadScores
from headlab.studies.savings import NO_SPEED, Costs, Left, Savings, saved
from headlab.ui.figures import show
from headlab.ui.headgrid import head_switches
from headlab.ui.history import History
from headlab.ui.job_actions import asked, start
from headlab.ui.job_format import languages_in
from headlab.ui.names import head_words, language_title, languages_words, plain
from headlab.ui.presses import Button, button, row
from headlab.ui.results import (
    CORRECTED,
    MEAN,
    RULES,
    Found,
    Suggestion,
    expected_false,
    how_chosen,
    pooled,
    risk,
    rules_for,
    suggest,
)
from headlab.ui.shell import Choice, client, supervisor
from headlab.value_functions import shown_unit
from headlab.worker.schemas import JobRow

# The board: the grid of switches, its toolbar, the method's suggestion, and the list of heads.

GRID = "prune-grid"
HOW = (
    "Click a head to switch it off or on; Shift-click takes the rectangle from the last one clicked; "
    "a number at the edge takes its whole layer or column. Keys: arrows, Home, End, Enter."
)


def pick_scores(found: Found) -> HeadScores | None:
    """The widget that chooses whose scores colour the grid and feed the suggestion; not drawn if there is no choice."""
    if len(found.scores) < 2:
        return pooled(found.scores, MEAN)
    source = st.selectbox(
        "Colours and suggestion from one language, or the mean of all",
        [MEAN, *found.scores],
        key="from",
        bind="query-params",
    )
    return pooled(found.scores, source)


def toolbar(now: History) -> None:
    """Undo, redo, reset."""
    row(
        Button("Undo", "prune-undo", now.undo, icon="undo", disabled=not now.can_undo),
        Button("Redo", "prune-redo", now.redo, icon="redo", disabled=not now.can_redo),
        Button(
            "Reset",
            "prune-reset",
            now.reset,
            icon="restart_alt",
            disabled=bool(now.kept.all()),
            help="All heads on",
        ),
    )


def switches(now: History, scores: HeadScores | None, together: Sequence[int]) -> None:
    """The grid itself, coloured by the scores if there are any. together: as in `headgrid.draw_map`."""
    shown = head_map(np.full(now.grid.size, np.nan), now.grid) if scores is None else map_of(scores)
    head_switches(shown, now.kept, key=GRID, on_switch=now.switch, together=together)


def suggestion(
    now: History, found: Found, scores: HeadScores | None, on_test: Callable[[], None]
) -> None:
    """A rule over the scores, its effect, and the button that applies it.

    on_test: draws what the current mask does on test; called where it is the one suggested.
    """
    with st.expander("Take the method's suggestion", icon=":material/auto_fix_high:"):
        if scores is None:
            st.markdown(
                "There is no suggestion yet: no scores of this method are cached for these languages."
            )
            return
        wanted = _rule(scores)
        kept = suggest(scores, wanted)
        off = int((~kept).sum())
        whose = language_title(scores.language)
        if scores.language == MEAN:
            whose = f"the mean over {languages_words([*found.scores])}"
        st.markdown(
            f"**{off} of {kept.size} heads** would be off, by {scores.method} of {plain(whose)}."
        )
        if false_ones := expected_false(scores, wanted, off):
            st.caption(false_ones)
        if sentence := risk(kept):
            st.warning(sentence)
        chosen = how_chosen(scores, wanted, list(found.scores))
        button(
            "Switch these off", key="prune-suggest", kind="primary", disabled=not off, on_press=now.put,
            args=(kept, chosen),
        )  # fmt: skip
        if not off:
            st.caption(
                "The rule chooses no head, so there is nothing to switch off. **Reset** switches all heads on."
            )
        if off and np.array_equal(kept, now.kept):
            on_test()


def _rule(scores: HeadScores) -> Suggestion:
    rules = rules_for(scores)
    rule = st.radio(
        "Rule", rules, captions=[RULES[r] for r in rules], key="rule", bind="query-params"
    )
    for remark in remarks_on_choice([scores], rule):
        st.caption(f"Caution: {plain(remark)}.")
    if rule == "bottom":
        size = scores.grid.size
        return Suggestion(
            rule,
            k=st.slider(
                "k, heads to switch off", 0, size, min(10, size), key="k", bind="query-params"
            ),
        )
    if rule == "threshold":
        factor, unit = shown_unit(scores.unit)
        low, high = (float(f(scores.values)) * factor for f in (np.min, np.max))
        first = min(max(0.0, low), high)
        shown = st.number_input(
            f"Threshold ({unit})",
            value=first,
            step=(high - low) / 100 or 0.01,
            format="%.4g",
            key="threshold",
        )
        return Suggestion(rule, threshold=shown / factor)
    if rule == "harmful" and scores.p_values is not None:
        label, words = "Corrected for testing many heads", CORRECTED.__getitem__
        how = st.radio(
            label, list(CORRECTED), format_func=words, key="correct", bind="query-params"
        )
        return Suggestion(rule, correction=how)
    return Suggestion(rule)


def twin(now: History) -> None:
    """The same switches as ordinary widgets."""
    several = len(now.grid.stacks) > 1

    def words(index: int) -> str:
        return head_words(now.grid.heads[index], several)

    # A new list for every state that did not come from it, applied only when the button is pressed: on its own, a
    # list also sends what it showed before, and would revert a click in the grid.
    key = f"twin-heads-{now.stamp}"

    def listed() -> None:
        kept = np.ones(now.grid.size, bool)
        kept[st.session_state[key]] = False
        now.by_hand(kept)

    with st.expander("The same switches as a list", icon=":material/list:"):
        off = np.flatnonzero(~now.kept).tolist()
        st.multiselect(
            "Heads that are off",
            list(range(now.grid.size)),
            default=off,
            format_func=words,
            key=key,
        )
        button("Switch exactly these off", key="twin-listed", on_press=listed)
        _whole_layers(now, several)


def _whole_layers(now: History, several: bool) -> None:
    layers = {
        (f"{stack} " if several else "") + f"layer {layer}": (stack, layer)
        for stack, layer in dict.fromkeys((head.stack, head.layer) for head in now.grid.heads)
    }

    with st.container(horizontal=True, vertical_alignment="bottom"):
        layer = layers[st.selectbox("A whole layer", list(layers), key="twin-layer", width=150)]
        heads = _heads_of(now.grid, layer)
        row(
            Button("Switch it off", "twin-layer-off", now.switch, (heads, False)),
            Button("Switch it on", "twin-layer-on", now.switch, (heads, True)),
        )
    off = [
        f"{name} {n}"
        for name, layer in layers.items()
        if (n := int((~now.kept[_heads_of(now.grid, layer)]).sum()))
    ]
    st.caption("Heads off: " + (", ".join(off) if off else "none") + ".")


def _heads_of(grid: HeadGrid, layer: tuple[str, int]) -> Bools:
    return np.array([(h.stack, h.layer) == layer for h in grid.heads], bool)


# What the current mask saves: parameters and multiply-accumulates at once, time on request.

MILLION = 1e6
ASKED = "_prune_asked"
"""Session key: the kind of this page's last job."""
AGAIN = "_prune_again"
"""Session key: whether to rerun the page."""
HELP = "Runs the untouched, the masked and the shrunk model in turn, on examples of this task, on the worker's device."


def savings(choice: Choice, costs: Costs | None, mask: Mask, known: Sequence[JobRow]) -> None:
    """The section.

    Args:
        choice: Whose model the mask is of, and on whose examples it is measured.
        costs: What the model's heads cost; None where the worker does not say it.
        mask: The current one.
        known: Jobs, from `jobs`.
    """
    if st.session_state.pop(AGAIN, False):
        st.rerun()  # a job was started in a fragment: rerun the whole page
    st.markdown("##### What you save")
    counts(costs, mask)
    if not mask.removed:
        return
    measured = newest(known, choice.model, mask, choice.task, choice.languages)
    label = "Measure the speed" if measured is None else "Measure the speed again"
    button(
        label,
        icon="speed",
        key="worth-measure",
        help=HELP,
        on_press=begin,
        args=(worth_job(choice, mask),),
    )
    if st.session_state.get(ASKED) == WorthJob.key:
        asked("What it measures appears here when it is done.")
    if measured is not None:
        times(measured)


def counts(costs: Costs | None, mask: Mask) -> None:
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


def worth_job(choice: Choice, mask: Mask) -> WorthJob:
    """The job that measures a mask: only its effect, so that equal masks make the same job."""
    effect = Mask(mask.grid, mask.kept, mask.model, {}, {}, "2000-01-01T00:00:00+00:00")
    return WorthJob.model_construct(
        languages=list(choice.languages), mask=effect.to_json(), **choice.about
    )


def begin(job: Job) -> None:
    """Queue a job from this page."""
    st.session_state[ASKED] = job.key
    st.session_state[AGAIN] = True
    start(job)


def jobs() -> Sequence[JobRow]:
    """The jobs that measure a mask's speed; none if no worker is connected."""
    if not supervisor().connected:
        return []
    return [row for row in client().jobs() if row.kind == WorthJob.key]


@dataclass(frozen=True)
class Measured:
    """What a mask saves as measured, and the examples that it was measured on: their task and languages."""

    savings: Savings
    task: str
    languages: tuple[str, ...]


def newest(
    jobs: Sequence[JobRow], model: str, mask: Mask, task: str = "", languages: Sequence[str] = ()
) -> Measured | None:
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
                    return Measured(Savings.from_json(found), str(params.get("task")), named)
            except HeadlabError:  # from an older version: treated as not measured
                continue
    return None


def times(measured: Measured) -> None:
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
            show(table, f"worth-{table.name}")
