"""A run of learned gates on the page: its figures at a glance, the map over the training, loss and penalty."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from headlab.l0_gates import LearnedGates
from headlab.plots.gates import course, kept_by_layer, kept_by_stack, open_map
from headlab.ui.figures import figure
from headlab.ui.gates_read import SPLITS, Sweep, accuracy_name, run_words, worth

MINUS = "\N{MINUS SIGN}"


def at_a_glance(gates: LearnedGates) -> None:
    """Heads kept, gates undecided, and what that is worth on each split."""
    with st.container(horizontal=True, gap="medium"):
        size, gated = gates.grid.size, int(gates.gated.sum())
        st.metric("Heads kept", f"{int(gates.kept.sum())} of {size}", width="content")
        st.metric("Undecided", f"{gates.undecided()} of {gated} gates", width="content")
        for split in SPLITS:
            if (found := worth(gates, split)) is not None:
                gain = f"{100 * found.difference:+.1f} points [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"
                name = f"{accuracy_name(gates).capitalize()} on {split}"
                st.metric(
                    name, f"{100 * found.accuracy:.1f} %", gain.replace("-", MINUS),
                    delta_color="gray", delta_arrow="off", width="content",
                )  # fmt: skip


def training(gates: LearnedGates, key: str) -> None:
    """How the gates opened and closed, and what the loss did meanwhile."""
    name = f"gates-{gates.language}-{gates.weight:g}"
    left, right = st.columns([6, 5], gap="large")
    with left:
        st.markdown("##### How likely each gate is open")
        figure(open_map(gates), f"{name}-map", key=f"gates-map-{key}", alt="P(open) of every gate over the training")
        st.caption(
            "P(g ≠ 0). Blue: open; orange: closed; pale: as likely as not; blank: a head without a gate, which stays."
        )
    with right:
        st.markdown("##### Loss, penalty and open heads")
        figure(course(gates), f"{name}-course", key=f"gates-course-{key}", alt="Loss, penalty and open heads by step")
        st.caption("Loss is the mean of the task's since the point before; penalty is λ times the sum of P(open).")


def kept_where(sweep: Sweep) -> None:
    """Heads that each run keeps, by layer; and by stack where a model has several."""
    every, grid = [run.gates for run in sweep.runs], sweep.first.grid
    fig = kept_by_layer([run_words(gates) for gates in every], [gates.kept for gates in every], grid)
    figure(fig, f"gates-{sweep.first.language}-layers", key="gates-layers", alt="Heads kept in each layer, by λ")
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
        figure(fig, name, key="gates-stacks", alt="Share of each stack's heads that is kept, by λ")
    else:
        told = ", ".join(f"{kept[stack][0]} of {size} in {stack}" for stack, size in sizes.items())
        st.markdown(f"Heads kept by stack: {told}.")
