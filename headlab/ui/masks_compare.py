"""Two masks side by side: their maps, what only one of them removes, and the accuracies they carry."""

from __future__ import annotations

import numpy as np
import streamlit as st

from headlab.errors import HeadlabError
from headlab.masks import Mask, compare
from headlab.masks.compare import Difference, accuracy_table, by_layer_table, by_stack_table
from headlab.records import Floats, Head
from headlab.ui.experiments_report import show
from headlab.ui.headgrid import head_map
from headlab.ui.names import head_words
from headlab.ui.plain import plain

READING = (
    "A and B: blue heads are kept, empty ones are off. Between them: orange heads only A switches off, blue ones only "
    "B, hatched ones both, empty ones neither. Rows are layers, columns are heads, both counted from 0."
)


def maps(names: tuple[str, str], a: Mask, b: Mask) -> Difference | None:
    """Maps and counts of two masks, and what they differ in; of different grids the maps, and why there is no more."""
    try:
        found = compare(a, b)
    except HeadlabError as error:
        found = None
        st.warning(f"{error}.")
    places = st.columns(2 if found is None else 3, gap="medium")
    with places[0]:
        _map("A", names[0], a)
    with places[-1]:
        _map("B", names[1], b)
    if found is not None:
        with places[1]:
            _difference(found)
        st.caption(READING)
        _counts(found)
    return found


def _map(letter: str, name: str, mask: Mask) -> None:
    kept = mask.kept.astype(np.float64)
    tips = ["kept" if on else "off" for on in mask.kept]
    title = f"{letter}: {len(mask.removed)} of {mask.grid.size} off"
    head_map(kept, mask.grid, key=f"masks-map-{letter}", title=title, limit=1.0, tips=tips, signed=False, compact=True)
    st.caption(plain(name))


def _difference(found: Difference) -> None:
    values = difference_values(found)
    words = {-1.0: "only A switches it off", 1.0: "only B switches it off", 0.0: "both keep it"}
    tips = ["both switch it off" if np.isnan(value) else words[value] for value in values]
    title = f"Apart: {len(found.only_a) + len(found.only_b)}"
    head_map(values, found.grid, key="masks-map-apart", title=title, limit=1.0, tips=tips, compact=True)


def difference_values(found: Difference) -> Floats:
    """Float [head]: -1 where only A removes, 1 where only B does, 0 where both keep, NaN where both remove."""
    return np.where(found.a & found.b, np.nan, found.b.astype(np.float64) - found.a)


def _counts(found: Difference) -> None:
    with st.container(horizontal=True, gap="medium"):
        for label, value in (
            ("Only A", str(len(found.only_a))), ("Only B", str(len(found.only_b))), ("Both", str(len(found.both))),
            ("Jaccard", f"{found.jaccard:.2f}"),
        ):  # fmt: skip
            st.metric(label, value, width="content", help=HELP[label])


HELP = {
    "Only A": "Heads that A switches off and B keeps",
    "Only B": "Heads that B switches off and A keeps",
    "Both": "Heads that both switch off",
    "Jaccard": "Both, as a share of what either switches off: 1 = the same mask",
}


def tables(a: Mask, b: Mask, found: Difference) -> None:
    """What only one of two masks removes, head by head, layer by layer and stack by stack, and their accuracies."""
    accuracies = accuracy_table({"A": a, "B": b})
    if accuracies.rows:
        show(accuracies, "masks")
    else:
        st.caption(
            "Neither mask carries accuracies: the Prune page notes those it has seen when it exports a mask, and "
            "headlab evaluate measures them."
        )
    show(by_layer_table(found), "masks")
    if len(found.grid.stacks) > 1:
        show(by_stack_table(found), "masks")
    _only("Only A switches off", found.only_a, found)
    _only("Only B switches off", found.only_b, found)


def _only(words: str, heads: tuple[Head, ...], found: Difference) -> None:
    several = len(found.grid.stacks) > 1
    listed = "; ".join(head_words(head, several) for head in heads) or "none"
    with st.expander(f"{words}: {len(heads)}"):
        st.markdown(f"{listed}.")
