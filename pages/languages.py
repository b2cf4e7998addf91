"""Which languages rank the heads alike, which heads they share, and where they part."""

import streamlit as st

from headlab import plots
from headlab.stats import cluster_order
from headlab.ui import heads_maps, jobs_offer
from headlab.ui import languages_tables as tables
from headlab.ui.heads_table import shown_unit
from headlab.ui.links import page_link
from headlab.ui.names import language_title
from headlab.ui.shell import found, page

CHART = "Spearman correlations of head scores, language by language; the tab Table has the same figures"


def csv(table, name, index=False):
    st.download_button(
        "Download this table as CSV",
        lambda: table.to_csv(index=index),
        f"{name}.csv",
        "text/csv",
        key=f"csv-{name}",
        on_click="ignore",
        icon=":material/download:",
    )


def show(table, name, what, otherwise, number="%+.3f"):
    st.caption(what)
    if table.empty:
        st.info(otherwise)
        return
    signed = [column for column in ("lowest", "highest", "mean value") if column in table]
    columns = {column: st.column_config.NumberColumn(format=number) for column in signed}
    st.dataframe(table, hide_index=True, column_config=columns, height=min(420, 38 + 35 * len(table)))
    csv(table, name)


def matrix(scores):
    st.subheader("Do languages rank the heads alike?")
    clustered = st.toggle("Order by similarity", key="clustered", bind="query-params")
    table = tables.agreement_table(scores)
    if clustered:
        order = cluster_order(table.to_numpy())
        table = table.iloc[order, order]
    chart, twin = st.tabs(["Chart", "Table"])
    figure = plots.agreement(table.to_numpy(), list(table.columns))
    chart.plotly_chart(figure, key="agreement", config={"displayModeBar": False}, alt=CHART)
    with twin:
        st.dataframe(table.round(3))
        csv(table, "agreement", index=True)
    st.caption(tables.agreement_note(scores))


def shared(scores):
    st.subheader("Heads that every language needs")
    size, n = next(iter(scores.values())).grid.size, len(scores)
    k = st.slider("Among the top", 1, size, min(20, size), key="top", bind="query-params")
    chance = tables.expected_shared(size, n, k)
    what = f"Heads among the {k} highest of each of the {n} languages; unrelated rankings would share {chance:.2g}."
    nothing = f"No head is among the top {k} of all {n} languages."
    number = "%+.3f" if heads_maps.is_signed(next(iter(scores.values()))) else "%.3f"
    show(tables.shared_top(scores, k), "shared", what, nothing, number)


def specific(scores):
    st.subheader("Heads for a few languages")
    most = len(scores) - 1
    few = st.slider("Positive in at most", 1, most, min(3, most), key="few", bind="query-params") if most > 1 else 1
    what = f"Heads with a positive value in at most {few} of the languages and a negative one in all others."
    if tables.has_intervals(scores):
        what += " “Sure” counts the languages whose interval excludes 0; elsewhere a sign may be noise."
    nothing = "No head is positive in so few languages and negative in all others."
    show(tables.specific_heads(scores, few), "specific", what, nothing)
    if tables.has_intervals(scores):
        what = "Heads that surely help one language and surely harm another (intervals not adjusted for many heads):"
        nothing = "No head has an interval above 0 in one language and below 0 in another."
        show(tables.sign_changes(scores), "sign-changes", what, nothing)


def body(scores):
    first = next(iter(scores.values()))
    names = ", ".join(map(language_title, scores))
    st.caption(f"{len(scores)} languages: {names}. {tables.sample_note(scores)} Values in {shown_unit(first.unit)[1]}.")
    matrix(scores)
    shared(scores)
    if heads_maps.is_signed(first):
        specific(scores)
    else:
        st.info("This method has no signs, so no head can be positive in one language and negative in another.")


with page("Languages") as choice:
    results = found(choice)
    n = len(results.scores)
    if n < 2:
        st.info(
            f"It takes two languages with {choice.method} results to compare; of those chosen, {n or 'none'} has any."
        )
        page_link("overview", "Choose another method on the overview")
    else:
        body(results.scores)
    jobs_offer.panel(choice, results, "With them, these languages can be compared as well.")
