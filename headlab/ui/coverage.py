"""What is cached, what it cost and what is missing, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from headlab.methods.costs import cost_of, spec_of, target_of
from headlab.methods.table import METHODS, Method
from headlab.scores import HeadScores
from headlab.ui.names import language_title, plain
from headlab.ui.results import Found
from headlab.ui.shell import Choice, listing
from headlab.ui.shell import found as results_of
from headlab.value_functions import shown_unit


def draw(choice: Choice) -> None:
    """What the cache has of the sidebar's choice, what it cost, and what was skipped there."""
    results = results_of(choice)
    st.subheader("What is cached, what is missing")
    table = by_language(results, choice.languages)
    height = 38 + 35 * min(len(table), 20)
    st.dataframe(table, hide_index=True, column_config=columns(results), height=height, placeholder="–")
    if results.scores:
        st.download_button(
            "Download this table as CSV",
            table.to_csv(index=False),
            f"costs-{choice.model}-{choice.task}-{choice.method}.csv".replace("/", "_"),
            "text/csv",
            on_click="ignore",
            icon=":material/download:",
        )
    if results.variant:
        st.caption(
            plain(f"All of one kind: {results.variant}.")
            + " Also cached (see Settings in the sidebar): " * bool(results.others)
            + plain("; ".join(results.others))
        )
    every = {key: results_of(choice, key) for key in METHODS}
    st.dataframe(by_method(METHODS, every, choice.languages), hide_index=True)
    problems = listing(HeadScores).problems
    if problems:
        with st.expander(f"{len(problems)} cache folders were skipped", icon=":material/warning:"):
            st.markdown("\n".join(f"- {plain(problem)}" for problem in problems))


def by_method(methods: Mapping[str, Method], found: Mapping[str, Found], languages: Sequence[str]) -> pd.DataFrame:
    """One row per method: for how many of the chosen languages it is cached, and which it lacks."""
    rows = [
        {
            "Method": method.title,
            "Key": key,
            "Cached": f"{len(found[key].scores)} of {len(languages)}",
            "Missing": _listed(found[key].missing, len(languages)),
            "Intervals": "yes" if method.intervals else "no",
            "Cost": method.cost,
            "From": method.paper,
        }
        for key, method in methods.items()
    ]
    return pd.DataFrame(rows)


def _listed(missing: Sequence[str], all_of: int) -> str:
    if not missing:
        return "none"
    return "all" if len(missing) == all_of else ", ".join(missing)


def by_language(found: Found, languages: Sequence[str]) -> pd.DataFrame:
    """One row per chosen language: what its result is based on and what it cost, or that it is missing.

    Half-widths are in the unit shown (accuracies in points); columns that a method does not provide are left out.
    """
    rows = [_row(language, found.scores.get(language)) for language in languages]
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def _row(language: str, s: HeadScores | None) -> dict[str, object]:
    if s is None:
        return {"Language": language_title(language), "Result": "missing"}
    cost, factor = cost_of(s), shown_unit(s.unit)[0]
    least, median, most = cost.samples or (None, None, None)
    return {
        "Language": language_title(language),
        "Result": "cached",
        "Helpful": cost.helpful,
        "Harmful": cost.harmful,
        "Narrow": cost.narrow,
        "Undecided": cost.wide,
        "Half-width, median": None if cost.median_width is None else factor * cost.median_width,
        "Half-width, largest": None if cost.largest_width is None else factor * cost.largest_width,
        "Samples, least": least,
        "Samples, median": median,
        "Samples, most": most,
        "Example forwards": cost.forwards,
        "Seconds": round(cost.seconds, 1),
        "Examples": spec_of(s, "task", "size"),
    }


def columns(found: Found) -> dict[str, Any]:
    """Formats and help texts of the columns of `by_language`."""
    number = st.column_config.NumberColumn
    unit = shown_unit(found.first.unit)[1] if found.first else "points"
    target = f"{shown_unit(found.first.unit)[0] * target_of(found.first):g} {unit}" if found.first else "the target"
    samples = {"least": ("Samples min", 92), "median": ("median", 68), "most": ("max", 64)}
    return {
        "Language": st.column_config.TextColumn(pinned=True),
        "Result": st.column_config.TextColumn(width=64),
        "Helpful": number(width=62, help="Heads whose interval lies above 0"),
        "Harmful": number(width=66, help="Heads whose interval lies below 0"),
        "Narrow": number(width=62, help=f"Undecided, but with a half-width of {target} or less"),
        "Undecided": number(width=80, help=f"Undecided, with a half-width above {target}"),
        "Half-width, median": number("Half-width", width=84, format="%.3f", help=f"Median over the heads, in {unit}"),
        "Half-width, largest": number("largest", width=68, format="%.3f", help=f"Largest half-width, in {unit}"),
        **{
            f"Samples, {which}": number(label, width=wide, format="localized", help=f"Samples a head, {which}")
            for which, (label, wide) in samples.items()
        },
        "Example forwards": number("Forwards", width=88, format="localized", help="Of one example, parts of one too"),
        "Seconds": number(width=76, format="localized"),
        "Examples": number(width=76),
    }
