"""The Prune page's own views: the board of switches with the method's suggestion, and what the current mask saves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import streamlit as st

from headlab.core import HeadGrid, HeadlabError, shown_unit
from headlab.dashboard.frame import Choice, StoredScores, supervisor, worker_client
from headlab.dashboard.names import head_words, language_title, languages_words, plain
from headlab.dashboard.panels.history import History
from headlab.dashboard.panels.job_actions import asked, start
from headlab.dashboard.panels.job_format import languages_in
from headlab.dashboard.panels.suggestion import (
    CORRECTIONS,
    MEAN_OF_LANGUAGES,
    RULES,
    Suggestion,
    expected_false,
    origin_of_mask,
    pooled_scores,
    removal_warning,
    suggested_heads,
    usable_rules,
)
from headlab.dashboard.widgets import Button, button, button_row, head_switches, show_table
from headlab.jobs.job import Job
from headlab.jobs.worth import WorthJob
from headlab.masks import Mask, mask_from_json
from headlab.methods.costs import remarks_on_choice
from headlab.pictures import head_map, map_of
from headlab.results import HeadScores
from headlab.studies.savings import NO_SPEED, Costs, Left, Savings, saved
from headlab.worker.schemas import JobRow

# The board: the grid of switches, its toolbar, the method's suggestion, and the list of heads.

GRID = "prune-grid"
HOW = (
    "Click a head to switch it off or on; Shift-click takes the rectangle from the last one clicked; "
    "a number at the edge takes its whole layer or column. Keys: arrows, Home, End, Enter."
)


def pick_scores(found: StoredScores) -> HeadScores | None:
    """The widget that chooses whose scores colour the grid and feed the suggestion; not drawn if there is no choice."""
    if len(found.scores) < 2:
        return pooled_scores(found.scores, MEAN_OF_LANGUAGES)
    source = st.selectbox(
        "Colours and suggestion from one language, or the mean of all",
        [MEAN_OF_LANGUAGES, *found.scores],
        key="from",
        bind="query-params",
    )
    return pooled_scores(found.scores, source)


def toolbar(history: History) -> None:
    """Undo, redo, reset."""
    button_row(
        Button("Undo", "prune-undo", history.undo, icon="undo", disabled=not history.can_undo),
        Button("Redo", "prune-redo", history.redo, icon="redo", disabled=not history.can_redo),
        Button(
            "Reset",
            "prune-reset",
            history.reset,
            icon="restart_alt",
            disabled=not history.mask.removed,
            help="All heads on",
        ),
    )


def switches(history: History, scores: HeadScores | None, together: Sequence[int]) -> None:
    """The grid itself, coloured by the scores if there are any.

    Args:
        history: Of the mask that the grid shows and changes.
        scores: Those that colour the heads; None for none.
        together: As in `headgrid.draw_map`.
    """
    if scores is None:
        head_values = head_map(np.full(history.grid.size, np.nan), history.grid)
    else:
        head_values = map_of(scores)
    head_switches(
        head_values, history.mask.kept, key=GRID, on_switch=history.switch, together=together
    )


def suggestion(
    history: History, found: StoredScores, scores: HeadScores | None, on_test: Callable[[], None]
) -> None:
    """A rule over the scores, its effect, and the button that applies it.

    Args:
        history: Of the mask that the button changes.
        found: The stored scores of all languages.
        scores: Those that the rule is applied to; None where there are none.
        on_test: Draws what the current mask does on test; called where it is the one suggested.
    """
    with st.expander("Take the method's suggestion", icon=":material/auto_fix_high:"):
        if scores is None:
            st.markdown(
                "There is no suggestion yet: no scores of this method are cached for these languages."
            )
            return
        rule = _rule(scores)
        kept = suggested_heads(scores, rule)
        removed_heads = int((~kept).sum())
        scored_languages = language_title(scores.language)
        if scores.language == MEAN_OF_LANGUAGES:
            scored_languages = f"the mean over {languages_words([*found.scores])}"
        st.markdown(
            f"**{removed_heads} of {kept.size} heads** would be off, by {scores.method} of "
            f"{plain(scored_languages)}."
        )
        if sentence := expected_false(scores, rule, removed_heads):
            st.caption(sentence)
        if warning := removal_warning(kept):
            st.warning(warning)
        button(
            "Switch these off",
            key="prune-suggest",
            kind="primary",
            disabled=not removed_heads,
            on_press=history.put,
            args=(kept, origin_of_mask(scores, rule, list(found.scores))),
        )
        if not removed_heads:
            st.caption(
                "The rule chooses no head, so there is nothing to switch off. **Reset** switches all heads on."
            )
        if removed_heads and np.array_equal(kept, history.mask.kept):
            on_test()


def _rule(scores: HeadScores) -> Suggestion:
    rules = usable_rules(scores)
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
        label, words = "Corrected for testing many heads", CORRECTIONS.__getitem__
        how = st.radio(
            label, list(CORRECTIONS), format_func=words, key="correct", bind="query-params"
        )
        return Suggestion(rule, correction=how)
    return Suggestion(rule)


def twin(history: History) -> None:
    """The same switches as ordinary widgets."""
    grid = history.grid
    several_stacks = len(grid.stacks) > 1

    def label_of(head_index: int) -> str:
        return head_words(grid.heads[head_index], several_stacks)

    # A new list for every state that did not come from it, applied only when the button is pressed: on its own, a
    # list also sends what it showed before, and would revert a click in the grid.
    key = f"twin-heads-{history.stamp}"

    def switch_listed() -> None:
        kept = np.ones(grid.size, bool)
        kept[st.session_state[key]] = False
        history.by_hand(kept)

    with st.expander("The same switches as a list", icon=":material/list:"):
        st.multiselect(
            "Heads that are off",
            list(range(grid.size)),
            default=np.flatnonzero(~history.mask.kept).tolist(),
            format_func=label_of,
            key=key,
        )
        button("Switch exactly these off", key="twin-listed", on_press=switch_listed)
        _whole_layers(history, several_stacks)


def _whole_layers(history: History, several_stacks: bool) -> None:
    heads_by_layer = _heads_by_layer(history.grid, several_stacks)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        layer = st.selectbox("A whole layer", list(heads_by_layer), key="twin-layer", width=150)
        head_indices = heads_by_layer[layer]
        button_row(
            Button("Switch it off", "twin-layer-off", history.switch, (head_indices, False)),
            Button("Switch it on", "twin-layer-on", history.switch, (head_indices, True)),
        )
    counts_of_layers = []
    for name, head_indices in heads_by_layer.items():
        removed_heads = int((~history.mask.kept[head_indices]).sum())
        if removed_heads:
            counts_of_layers.append(f"{name} {removed_heads}")
    st.caption(f"Heads off: {', '.join(counts_of_layers) or 'none'}.")


def _heads_by_layer(grid: HeadGrid, several_stacks: bool) -> dict[str, list[int]]:
    """Indices of the heads of each layer, by the layer's name.

    Args:
        grid: The heads.
        several_stacks: Whether the name of a layer says which stack it is in.
    """
    heads_by_layer: dict[str, list[int]] = {}
    for index, head in enumerate(grid.heads):
        name = f"layer {head.layer}"
        if several_stacks:
            name = f"{head.stack} {name}"
        heads_by_layer.setdefault(name, []).append(index)
    return heads_by_layer


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
    return [row for row in worker_client().jobs() if row.kind == WorthJob.key]


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
            show_table(table, f"worth-{table.name}")
