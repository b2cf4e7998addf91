"""What headlab is, what the maps show, what is cached, and where to go next."""

import streamlit as st

from headlab.methods.table import METHODS
from headlab.pictures import common_limit
from headlab.store import default_root
from headlab.ui import headgrid, job_actions, job_offer, overview_coverage
from headlab.ui.names import head_key, page_link, plain
from headlab.ui.shell import found, listing, page

INTRO = (
    "Which attention heads help, which do nothing and which do harm, language by language: look at the maps, "
    "switch heads off, watch the accuracy move, and leave with a mask."
)


def open_head(language, head):
    st.session_state["_open"] = {"focus": language, "head": head_key(head)}


def maps(choice, results):
    if not results.scores:
        what = f"({default_root()}) has no {choice.method} results of {choice.model} on {choice.task}"
        st.info(f"The cache folder {plain(what)} for these languages. Compute them below, or choose another method.")
        return
    st.markdown(headgrid.reading(results.scores) + " Click a head to see it in every language.")
    limit = common_limit(results.scores.values())
    headgrid.small_multiples(results.scores, limit, key="overview", on_click=open_head)


def cached(choice, results):
    st.subheader("What is cached, what is missing")
    table = overview_coverage.by_language(results, choice.languages)
    height = 38 + 35 * min(len(table), 20)
    columns = overview_coverage.columns(results)
    st.dataframe(table, hide_index=True, column_config=columns, height=height, placeholder="–")
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
    if results.missing:
        job_offer.offer(choice, results.missing, results.first)
    if job_actions.progress():
        page_link("heads", "Heads: watch its map sharpen")
    every = {key: found(choice, key) for key in METHODS}
    st.dataframe(overview_coverage.by_method(METHODS, every, choice.languages), hide_index=True)
    problems = listing().problems
    if problems:
        with st.expander(f"{len(problems)} cache folders were skipped", icon=":material/warning:"):
            st.markdown("\n".join(f"- {plain(problem)}" for problem in problems))


def onward():
    with st.container(horizontal=True, gap="medium"):
        page_link("heads", "Heads: one head in every language")
        page_link("languages", "Languages: who shares which heads")
        page_link("prune", "Prune: switch heads off")
        page_link("attention", "Attention: what a head looks at")


with page("headlab", INTRO) as choice:
    if "_open" in st.session_state:
        st.switch_page("pages/heads.py", query_params=st.session_state.pop("_open"))
    if not choice.languages:
        st.info("No language is chosen. Pick some in the sidebar, or press All.")
    else:
        results = found(choice)
        maps(choice, results)
        onward()
        cached(choice, results)
