"""Which languages rank the heads alike, which heads they share, and where they differ."""

import streamlit as st

from headlab.charts.studies.agreement import agreement_matrix, dendrogram
from headlab.methods.costs import remarks
from headlab.studies import agreement, heads
from headlab.studies.heads import has_intervals
from headlab.ui import experiments_report, job_offer
from headlab.ui.figures import figure, show
from headlab.ui.names import language_title, page_link, plain
from headlab.ui.presses import give
from headlab.ui.results import sample_note
from headlab.ui.shell import found, languages_of, page
from headlab.value_functions import shown_unit

CHART = (
    "Spearman correlations of head scores, language by language; the tab Pairs has the same figures"
)
TREE = "Tree of languages by how alike they rank the heads; the tab Clusters has the same figures"


def matrix(scores):
    st.subheader("Do languages rank the heads alike?")
    compared = experiments_report.compared(scores)
    result = agreement.agreement_result(compared)
    pairs, languages, clusters, *_ = result.tables()
    st.caption(f"Spearman ρ over {compared.heads} heads.")
    for sentence in result.notes:
        st.markdown(plain(sentence))
    if compared.found.noise is None:
        st.info(f"{experiments_report.noise_note(scores)} {agreement.no_halves()}")
    first = next(iter(scores.values()))
    about = (
        f"{first.method}, estimand {first.estimand}, {len(scores)} languages. {sample_note(scores)}"
    )
    tabs = ["Chart", "Tree", "Pairs", "Each language", "Clusters"]
    chart, tree, twin, each, merged = st.tabs(tabs, key="tab", bind="query-params")
    with chart:
        similar = st.toggle("Order by similarity", key="clustered", bind="query-params")
        figure(agreement_matrix(result, similar=similar), "agreement", alt=CHART, about=about)
    with tree:
        tree_figure = dendrogram(result.merges.rows, result.languages.rows)
        figure(tree_figure, "agreement-clusters", alt=TREE, about=about)
        st.caption(
            "Where two clusters meet: the share of resamples of heads that have the cluster; blue from 80 %."
        )
    for place, table in ((twin, pairs), (each, languages), (merged, clusters)):
        with place:
            show(table, "languages")


def at_most(key, most):
    """Lower a slider's value from another model or more languages: streamlit rejects one above the maximum."""
    if st.session_state.get(key, 0) > most >= 1:
        give(key, most)


def shared(scores):
    st.subheader("Heads that every language needs")
    size = next(iter(scores.values())).grid.size
    at_most("top", size)
    top = st.slider("Among the top", 1, size, min(20, size), key="top", bind="query-params")
    return top, listed(
        heads.shared_table(scores, top), f"No head is among the top {top} of every language."
    )


def specific(scores):
    st.subheader("Heads for a few languages")
    most = len(scores) - 1
    at_most("few", most)
    few = (
        st.slider("Positive in at most", 1, most, min(3, most), key="few", bind="query-params")
        if most > 1
        else 1
    )
    nothing = "No head is positive in so few languages and negative in all others."
    tables = [listed(heads.few_table(scores, few), nothing)]
    if has_intervals(scores):
        nothing = "No head has an interval above 0 in one language and below 0 in another."
        tables.append(listed(heads.specific_table(scores), nothing))
    return few, tables


def listed(table, otherwise):
    if table.rows:
        show(table, "languages")
    else:
        st.markdown(f"##### {plain(table.title)}")
        st.info(otherwise)
    return table


def body(scores):
    first = next(iter(scores.values()))
    names = ", ".join(map(language_title, scores))
    note, unit = sample_note(scores), shown_unit(first.unit)[1]
    st.caption(f"{len(scores)} languages: {plain(names)}. {note} Values in {unit}.")
    for remark in remarks(scores.values()):
        st.caption(f"Caution: {plain(remark)}.")
    matrix(scores)
    top, agnostic = shared(scores)
    if first.signed:
        few, own = specific(scores)
        st.subheader("How many heads, and how certain")
        show(heads.count_table(scores, top, few), "languages")
        experiments_report.draw_heads([agnostic, *own])
    else:
        st.info(
            "This method has no signs, so no head can be positive in one language and negative in another."
        )


def too_few(choice, n):
    if len(languages_of(choice.task)) == 1:
        (only,) = map(language_title, languages_of(choice.task))
        st.info(plain(f"This page compares languages, and task {choice.task} has one: {only}."))
        page_link("heads", "The heads of this language")
        return
    st.info(
        f"A comparison needs two languages with {choice.method} results; of those chosen, {n or 'none'} has any."
    )
    page_link("overview", "Choose another method on the overview")


with page("languages") as choice:
    results = found(choice)
    n = len(results.scores)
    if n < 2:
        too_few(choice, n)
    else:
        body(results.scores)
        experiments_report.save_view(choice, results.scores)
    if len(languages_of(choice.task)) != 1:
        job_offer.panel(choice, results, "With them, these languages can be compared as well.")
