"""Figures and tables on a page, with buttons that save them: SVG or PNG, and CSV."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from importlib import resources
from types import MappingProxyType
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st
from pandas.io.formats.style import Styler

from headlab.charts.chart import Chart
from headlab.core import EMPTY_CELL, Cell, Report, Table, is_p_column, p_value_text
from headlab.dashboard.names import (
    CHOICE_KEY,
    head_key,
    language_title,
    plain,
    plain_name,
    with_minus_signs,
)
from headlab.dashboard.widgets import notices
from headlab.dashboard.widgets.presses import download_button, uninterrupted
from headlab.plots import PRINT_WIDTH, figure_for_file
from headlab.plots.drawing import plotly_figure
from headlab.plots.report import heads_by_row
from headlab.report.again import Again

SAVE_BUTTONS_HTML = """<div class="save"><span class="told" role="status"></span><span>Save figure</span>
<button type="button" data-kind="svg">SVG</button><button type="button" data-kind="png">PNG</button></div>"""
# The save buttons click plotly's camera button, which by itself saves what is on the screen.
PLOTLY_CONFIG = {"displaylogo": False, "modeBarButtons": [["toImage"]]}
AREA_BUTTONS = [["toImage"], ["lasso2d", "select2d"]]
"""Buttons of a figure on which an area can be drawn."""


def draw_figure(
    fig: go.Figure | Chart,
    name: str,
    *,
    key: str | None = None,
    alt: str = "",
    subject_details: str = "",
    subject: tuple[str, ...] | None = None,
    on_point: Callable[[], None] | None = None,
    on_area: Callable[[], None] | None = None,
) -> None:
    """Draw a figure, and below it buttons that save it as SVG or PNG.

    The files' names say what it shows.

    The saved figure is that of `headlab.plots.figure_for_file`, whatever the theme and the window's
    width; the browser renders it, so it needs neither the network nor the server.

    Args:
        fig: The figure.
        name: Of the file, before what it is of.
        key: Widget key, by default from the name.
        alt: Text alternative; the saved figure's title, up to a semicolon.
        subject_details: What else it is of.
        subject: Model and task that it is of, by default the sidebar's.
        on_point: Called when a point is clicked; session state then holds the point under the key.
        on_area: Called when an area is drawn; session state then holds the points in it under the
            key.
    """
    if isinstance(fig, Chart):
        fig = plotly_figure(fig)
    chart_key = re.sub(r"[^\w-]", "-", key or f"figure-{name}")
    if subject is None:
        subject = chosen_model_and_task()
    file_stem = file_stem_of(name, subject)
    config: dict[str, Any] = {
        **PLOTLY_CONFIG,
        "toImageButtonOptions": {"filename": file_stem},
    }
    select_options: dict[str, Any] = {}
    if on_point:
        select_options = {"on_select": uninterrupted(on_point), "selection_mode": "points"}
    if on_area:
        config["modeBarButtons"] = AREA_BUTTONS
        select_options = {
            "on_select": uninterrupted(on_area),
            "selection_mode": ("box", "lasso"),  # streamlit gives no clicks while these are on
        }
    st.plotly_chart(fig, key=chart_key, config=config, alt=alt or None, **select_options)
    title, _, _ = alt.partition(";")
    subtitle = ", ".join(part for part in (*subject, subject_details) if part)
    printed_figure = figure_for_file(fig, name, title, subtitle)
    data = {
        "chart": chart_key,
        "name": file_stem,
        "figure": printed_figure.to_json(),
        "width": PRINT_WIDTH,
        "height": printed_figure.layout.height,
    }
    _save_buttons()(key=f"save-{chart_key}", data=data)


def chosen_model_and_task() -> tuple[str, ...]:
    """Model and task of the sidebar; empty outside the app."""
    choice = st.session_state.get(CHOICE_KEY)
    if choice is None:
        return ()
    return (choice.model, choice.task)


def file_stem_of(name: str, subject: tuple[str, ...]) -> str:
    """The name of a file to save, without its ending: what it holds, of which model and task."""
    return "-".join((name, *map(plain_name, subject)))


@cache
def _save_buttons() -> Callable[..., Any]:
    files = resources.files("headlab.dashboard") / "static"
    css = (files / "savefigure.css").read_text("utf-8")
    js = (files / "savefigure.js").read_text("utf-8")
    renderer: Callable[..., Any] = st.components.v2.component(
        "headlab-savefigure", html=SAVE_BUTTONS_HTML, css=css, js=js
    )
    return renderer


# Tables.

LANGUAGE_COLUMN = "language"
MAX_TABLE_HEIGHT = 420
"""Pixels of a table, unless a page says otherwise; what does not fit scrolls."""
MAX_STYLED_CELLS = 20_000
RESULT_KEY = re.compile(r"[0-9a-f]{64}")
"""Key of a stored result."""
NUMBER_FORMAT = re.compile(r"[+]?(\.\d+)?[dfeg]")
THOUSAND = 1000


def show_table(table: Table, key: str) -> None:
    """Draw a table with its notes and a CSV download."""
    st.markdown(f"##### {plain(table.title)}")
    heads = heads_by_row(table)
    selection_options: dict[str, Any] = {}
    if heads:
        selection_options = {
            "on_select": uninterrupted(no_row_action),
            "selection_mode": "single-row",
            "key": f"table-{key[:12]}-{table.name}",
        }
    frame = data_frame(table)
    styled_formats = _formats_for_text(table, frame)
    selection = st.dataframe(
        with_p_values(frame, styled_formats),
        hide_index=True,
        column_config=_number_columns(table, styled_formats),
        placeholder=EMPTY_CELL,
        height=table_height(len(table.rows)),
        **selection_options,
    )
    if heads:
        st.caption("Tick a row to see all that is known of its head.")
        for row in selection["selection"]["rows"]:
            params = {"head": head_key(heads[row])}
            if LANGUAGE_COLUMN in table.columns:
                params["focus"] = str(table.column(LANGUAGE_COLUMN)[row])
            st.switch_page("pages/head.py", query_params=notices.without_bound(params))
    for note in table.notes:
        st.caption(plain(with_minus_signs(note)))
    key_suffix = f"-{key[:8]}" if RESULT_KEY.fullmatch(key) else ""  # of two reports
    name = f"{file_stem_of(table.name, chosen_model_and_task())}{key_suffix}.csv"
    download_button(
        "Download this table as CSV",
        table.csv,
        name,
        "text/csv",
        key=f"csv-{key[:12]}-{table.name}",
    )


def number_text(value: float, number_format: str) -> str:
    """A number as text says it: with a minus sign, and commas between thousands.

    Args:
        value: The number.
        number_format: As `format` takes it, like ".1f" or "+.2f"; whole numbers may have "d".
    """
    if number_format.endswith("d"):
        value = int(value)
    if abs(value) >= THOUSAND and number_format[-1] in "df":
        number_format = (
            number_format.replace("+", "+,") if "+" in number_format else f",{number_format}"
        )
    return with_minus_signs(f"{value:{number_format}}")


def _formats_for_text(table: Table, frame: pd.DataFrame) -> dict[str, str]:
    """The formats of columns that Streamlit writes otherwise than text does.

    It writes a hyphen before numbers below 0, and no commas between thousands. Empty for tables that
    are too large to be styled.

    Args:
        table: The table.
        frame: The same as displayed.
    """
    formats: dict[str, str] = {}
    if frame.size > MAX_STYLED_CELLS:
        return formats
    for name, number_format in zip(table.columns, table.formats, strict=True):
        is_written = NUMBER_FORMAT.fullmatch(number_format) and not is_p_column(name)
        if not is_written or not pd.api.types.is_numeric_dtype(frame[name]):
            continue
        if frame[name].min() < 0 or frame[name].max() >= THOUSAND:
            formats[name] = number_format
    return formats


def _number_columns(table: Table, styled_formats: Collection[str]) -> dict[str, Any]:
    """How a table's columns of numbers are written, by their names.

    p-values are written by `with_p_values`, but for tables that are too large for it.

    Args:
        table: The table.
        styled_formats: Names of the columns that `with_p_values` writes too.
    """
    is_large = len(table.rows) * len(table.columns) > MAX_STYLED_CELLS
    column_config: dict[str, Any] = {}
    for name, number_format in zip(table.columns, table.formats, strict=True):
        if is_p_column(name) and is_large:
            column_config[name] = st.column_config.NumberColumn(format="%.2g")
        elif name in styled_formats:
            continue
        elif NUMBER_FORMAT.fullmatch(number_format) and not is_p_column(name):
            column_config[name] = st.column_config.NumberColumn(format=f"%{number_format}")
    return column_config


def table_height(row_count: int, max_height: int = MAX_TABLE_HEIGHT) -> int:
    """Pixels of a table that shows all its rows, up to `max_height` pixels."""
    return min(38 + 35 * max(1, row_count), max_height)


def no_row_action() -> None:
    """Nothing: the run that follows reads which row it was."""


def data_frame(table: Table) -> pd.DataFrame:
    """A table as displayed; numbers stay numbers, so that columns can be sorted."""
    shown_rows = table.shown_cells()
    columns = {}
    for column_index, name in enumerate(table.columns):
        cells = [row[column_index] for row in table.rows]
        if not NUMBER_FORMAT.fullmatch(table.formats[column_index]) or not _are_numbers(cells):
            cells = [row[column_index] for row in shown_rows]
        columns[name] = cells
    if LANGUAGE_COLUMN in columns:
        columns[LANGUAGE_COLUMN] = [language_title(str(cell)) for cell in columns[LANGUAGE_COLUMN]]
    return pd.DataFrame(columns, columns=list(table.columns))


def _are_numbers(cells: Sequence[Cell]) -> bool:
    """Whether each cell is a number or empty."""
    return all(
        cell is None or (isinstance(cell, int | float) and not isinstance(cell, bool))
        for cell in cells
    )


def with_p_values(
    rows: pd.DataFrame,
    formats: Mapping[str, str] = MappingProxyType({}),
    empty_text: str = EMPTY_CELL,
) -> pd.DataFrame | Styler:
    """The rows with p-values, and other numbers, as text says them, like < 0.001 and −1.5.

    They stay numbers, so that columns can be sorted.

    Large tables are as they were: streamlit draws no style of more cells than pandas' limit, and
    takes long before.

    Args:
        rows: The rows.
        formats: Of columns of numbers that are written by `number_text`, by their names.
        empty_text: What stands in cells of these columns that have no number.
    """
    if rows.size > MAX_STYLED_CELLS:
        return rows
    writers: dict[Any, Callable[[float], str]] = {}
    for name in rows:
        if is_p_column(str(name)) and pd.api.types.is_numeric_dtype(rows[name]):
            writers[name] = p_value_text
        elif str(name) in formats and pd.api.types.is_numeric_dtype(rows[name]):
            writers[name] = partial(number_text, number_format=formats[str(name)])
    if not writers:
        return rows
    return rows.style.format(writers, na_rep=empty_text)


# How a result was made, and which ones could not be read.


def show_how_made(
    facts: Sequence[tuple[str, str]], commands: Again, record: Report | Table, name: str, key: str
) -> None:
    """Draw how a result was made, and a button that saves it.

    Args:
        facts: Names and values.
        commands: That make it again.
        record: What is saved.
        name: Of its file.
        key: Of the result.
    """
    show_named_values(facts)
    show_commands(commands)
    file = f"{name}-{key[:12]}.json"
    data = partial(json.dumps, record.to_json(), indent=1)
    download_button(
        "Download all of it as JSON", data, file, "application/json", key=f"json-{key[:12]}"
    )


def show_commands(commands: Again) -> None:
    """Draw the commands that make a stored result again, and what they leave out."""
    if commands.commands:
        st.caption("The same from a terminal; what is in the cache is not computed again:")
        st.code("\n".join(commands.lines), language="bash", wrap_lines=True)
    for note in commands.notes:
        st.caption(plain(note))


def show_named_values(rows: Sequence[tuple[str, str]]) -> None:
    """Draw (name, value) pairs, a row each."""
    st.table(
        pd.DataFrame(rows, columns=["what", "value"]),
        border="horizontal",
        hide_index=True,
        hide_header=True,
    )


def show_skipped(problems: Sequence[str], noun: str) -> None:
    """Draw why some of the cache's results were skipped, if any were.

    Args:
        problems: A sentence for each.
        noun: For one of them, like "report".
    """
    if problems:
        skipped_words = f"{noun}s were" if len(problems) > 1 else f"{noun} was"
        with st.expander(f"{len(problems)} {skipped_words} skipped"):
            for sentence in problems:
                st.markdown(plain(sentence))
