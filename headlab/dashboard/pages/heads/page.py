"""One map per language on one scale, one head in every language, and what is being computed."""

from __future__ import annotations

import streamlit as st

from headlab.core import Head
from headlab.dashboard.frame import page, scores_of
from headlab.dashboard.names import head_from, head_key, language_title, plain
from headlab.dashboard.pages.heads.card import draw_card, draw_details
from headlab.dashboard.pages.heads.sharpening import (
    draw_sharpening,
    in_place_of_maps,
    offer_sharper,
)
from headlab.dashboard.pages.heads.tables import table_of_heads
from headlab.dashboard.panels import contrast, job_offer
from headlab.dashboard.panels.page_report import offer_page_report
from headlab.dashboard.widgets import (
    download,
    draw_map,
    draw_small_maps,
    heads_gated_together,
    how_to_read_maps,
    keep_known_choice,
    pick_scale,
    set_widget,
    uninterrupted,
)
from headlab.methods.table import ATTENTION_METHOD
from headlab.pictures import maps_of


def pick(language, head, languages):
    set_widget("head", head_key(head))
    if language in languages and language != st.session_state.get("focus"):
        set_widget("focus", language)


def select(scores):
    """The widgets that match a click: language and head by name."""
    first = next(iter(scores.values()))
    heads = [head_key(head) for head in first.grid.heads]
    for param, what, options in (("focus", "language", list(scores)), ("head", "head", heads)):
        keep_known_choice(param, what, options)
    left, right = st.columns(2)
    focus = left.selectbox(
        "Language", list(scores), format_func=str, key="focus", bind="query-params"
    )
    best = int(first.values.argmax())
    head = right.selectbox(
        "Head (stack.layer.head)", heads, index=best, key="head", bind="query-params"
    )
    return focus, head_from(head)


def tables(choice, scores, confidence, head):
    st.subheader(f"Head {plain(head_key(head))} in numbers")
    draw_details(scores, confidence, head)
    st.subheader("Every head")
    table = table_of_heads(scores)
    name = f"heads-{choice.model}-{choice.task}-{choice.method}.csv".replace("/", "_")
    download("Download every head as CSV", table.to_csv(index=False), name, "text/csv")
    shown = table.drop(columns=["method", "estimand", "unit", "note"], errors="ignore")

    def open_row():
        for row in st.session_state["every-head"]["selection"]["rows"]:
            of = table.iloc[row]
            pick(of["language"], Head(of["stack"], int(of["layer"]), int(of["head"])), scores)

    fine = {name: st.column_config.NumberColumn(format="%.2g") for name in ("p", "p_holm")}
    st.dataframe(
        shown, hide_index=True, height=320, column_config=fine, key="every-head", on_select=uninterrupted(open_row),
        selection_mode="single-row",
    )  # fmt: skip
    unit = table["unit"].iloc[0]
    note = " (0.01 = one point)" if unit == "accuracy" else ""
    st.caption(
        f"{len(table):,} rows: every head in every chosen language; tick one to open it. Values in {plain(unit)}{note}."
    )


def sharpening(choice, scores, head):
    draw_sharpening(choice, scores, head, lambda language, clicked: pick(language, clicked, scores))


def body(choice, results, confidence):
    scores = results.scores
    top, (left, right), below = st.container(), st.columns([10, 11], gap="large"), st.container()
    with below:
        st.subheader("Language by language")
        maps = maps_of(scores, common=pick_scale(len(scores)))
    with left:
        focus, head = select(scores)
        draw_map(
            maps[focus], key="large", title=language_title(focus), selected=head,
            on_click=lambda h: pick(focus, h, scores), together=heads_gated_together(scores[focus]),
        )  # fmt: skip
        offer_sharper(choice, scores[focus])
    with right:
        draw_card(scores, confidence, head, focus)
    with top:
        sharpening(choice, scores, head)
    draw_small_maps(
        maps,
        key="small",
        selected=head,
        on_click=lambda language, clicked: pick(language, clicked, scores),
        together=heads_gated_together(scores[focus]),
        missing=in_place_of_maps(choice, results),
    )
    if results.missing:
        st.caption(f"Not cached: {plain(', '.join(map(language_title, results.missing)))}.")
        job_offer.offer(choice, results.missing, results.like)
    for note in results.notes:
        st.caption(f"{plain(note)}.")
    contrast.draw(scores[focus], head, lambda clicked: pick(focus, clicked, scores))
    tables(choice, scores, confidence, head)
    offer_page_report(choice, scores)


def draw_page() -> None:
    """Draw the page."""
    with page("heads") as choice:
        results = scores_of(choice)
        if not choice.languages:
            st.info("No language is chosen. Pick some in the sidebar, or press All.")
        elif not results.scores:
            st.info(
                plain(
                    f"No {choice.method} results of {choice.model} on {choice.task} are cached for these languages."
                )
            )
            known = st.session_state.get("head")
            sharpening(choice, {}, head_from(known) if known else None)
            draw_small_maps({}, key="small", missing=in_place_of_maps(choice, results))
            job_offer.offer(choice, results.missing)
        else:
            st.markdown(how_to_read_maps(results.scores))
            body(choice, results, scores_of(choice, ATTENTION_METHOD).scores)
