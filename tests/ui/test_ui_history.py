"""The mask under the user's hands, and the link that carries it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from streamlit.testing.v1 import AppTest
from support.app_pages import shown
from support.expected_errors import raises

from headlab.core import HeadGrid, Stack
from headlab.dashboard.panels.history import (
    MAX_STATES,
    MaskHistory,
    kept_heads_of_link_text,
    mask_link_text,
)

GRID = HeadGrid((Stack("encoder", (12,) * 12),))
RAGGED = HeadGrid((Stack("encoder", (3, 2)), Stack("cross", (4,))))


def without(grid, *off):
    kept = np.ones(grid.size, bool)
    kept[list(off)] = False
    return kept


def switch_off(now, *heads):
    now.switch(heads, False)


def test_undo_and_redo_walk_the_same_states():
    now = MaskHistory(GRID)
    masks = [without(GRID, *range(i)) for i in range(1, 5)]
    for i in range(4):
        switch_off(now, i)
    back = []
    while now.can_undo:
        back.append(now.mask.kept)
        now.undo()
    assert [m.tolist() for m in back] == [m.tolist() for m in reversed(masks)]
    assert now.mask.kept.all()
    for mask in masks:
        now.redo()
        assert np.array_equal(now.mask.kept, mask)
    assert not now.can_redo


def test_a_change_after_undo_drops_what_was_undone():
    now = MaskHistory(GRID)
    switch_off(now, 1)
    now.undo()
    switch_off(now, 2)
    assert not now.can_redo
    now.undo()
    assert now.mask.kept.all()


def test_a_click_changes_its_own_heads_only():
    now = MaskHistory(GRID)
    switch_off(now, 1, 2)
    now.undo()  # pressed before the next click, and taken after it was made
    switch_off(now, 3)
    assert np.flatnonzero(~now.mask.kept).tolist() == [3]
    now.switch([3, 4], True)
    assert now.mask.kept.all()


def test_the_list_is_told_of_every_change_but_its_own():
    now = MaskHistory(GRID)
    now.set_by_hand(without(GRID, 1))
    assert now.stamp == 0
    for change in (
        lambda: switch_off(now, 2),
        now.undo,
        now.redo,
        now.reset,
        lambda: now.set_mask(without(GRID, 5), {}),
    ):
        before = now.stamp
        change()
        assert now.stamp == before + 1
    assert now.mask.chosen == {}
    switch_off(now, 3)
    assert np.flatnonzero(~now.mask.kept).tolist() == [3, 5]
    assert now.mask.chosen["rule"] == "by hand"


def test_walking_past_either_end_changes_nothing():
    now = MaskHistory(GRID)
    now.undo()
    now.redo()
    assert (now.position, now.stamp) == (0, 0)


def test_reset_can_be_undone():
    now = MaskHistory(GRID)
    switch_off(now, 3, 4)
    now.reset()
    assert now.mask.kept.all()
    now.undo()
    assert np.flatnonzero(~now.mask.kept).tolist() == [3, 4]


def test_a_long_session_keeps_the_newest_states():
    now = MaskHistory(GRID)
    for i in range(MAX_STATES + 20):
        now.set_mask(without(GRID, i % 144), {})
    assert len(now.masks) == MAX_STATES
    assert np.flatnonzero(~now.mask.kept).tolist() == [(MAX_STATES + 19) % 144]


def test_clicks_after_a_suggestion_remember_where_they_started():
    now = MaskHistory(GRID)
    now.set_mask(without(GRID, 1), {"rule": "harmful", "method": "shapley"})
    switch_off(now, 2)
    switch_off(now, 3)
    assert now.mask.chosen == {
        "rule": "by hand",
        "started_from": {"rule": "harmful", "method": "shapley"},
    }


def test_the_history_keeps_its_own_copy():
    now = MaskHistory(GRID)
    mask = without(GRID, 1)
    now.set_mask(mask, {})
    mask[:] = False
    assert np.flatnonzero(~now.mask.kept).tolist() == [1]


def test_every_mask_says_what_is_known_of_its_model_now():
    history = MaskHistory(GRID, {"fingerprint": "f" * 64})
    switch_off(history, 1)
    identity = {"name": "owner/model", "revision": "main", "fingerprint": "f" * 64}
    history.name_model(identity)
    switch_off(history, 2)
    assert np.flatnonzero(~history.mask.kept).tolist() == [1, 2]
    assert [mask.model for mask in history.masks] == [identity] * 3
    assert history.mask.created is None  # a file records when it is written


@given(some.lists(some.booleans(), min_size=9, max_size=9))
def test_any_mask_survives_the_link(bits):
    kept = np.array(bits)
    assert np.array_equal(kept_heads_of_link_text(mask_link_text(kept), RAGGED), kept)


def test_a_12_by_12_mask_takes_24_characters():
    text = mask_link_text(without(GRID, 0, 143))
    assert len(text) == 24
    assert text[0] == "g"
    assert text[-1] == "B"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "link.mask_mismatch"),
        ("!", "link.mask_malformed"),
        ("A", "link.mask_malformed"),
        ("AAAA", "link.mask_mismatch"),
        ("A" * 48, "link.mask_mismatch"),
        ("é" * 24, "link.mask_malformed"),
        ("AAAAAAAAAAAAAAAAAAAAAA==A", "link.mask_malformed"),
        ("<script>", "link.mask_malformed"),
        ("A" * 23 + "=", "link.mask_mismatch"),
    ],
)
def test_a_broken_link_is_refused_with_what_fits(text, code):
    with raises(code, "encoder 12×12"):
        kept_heads_of_link_text(text, GRID)


def test_bits_beyond_the_last_head_are_refused():
    fits = mask_link_text(without(RAGGED, 8))  # 9 heads: 2 bytes, the last 7 bits unused
    assert kept_heads_of_link_text(fits, RAGGED).sum() == 8
    with raises("link.mask_mismatch"):
        kept_heads_of_link_text("AAE", RAGGED)


def page():
    import numpy as np
    import streamlit as st

    from headlab.core import HeadGrid, Stack
    from headlab.dashboard.panels.history import apply_mask_link, history_of, write_mask_link

    now = history_of("f" * 64, HeadGrid((Stack("encoder", (12,) * 12),)))
    st.button("click", on_click=lambda: now.set_mask(np.arange(144) != 7, {}))
    st.button("undo", on_click=now.undo)
    arrived = "here" not in st.session_state
    st.session_state["here"] = True
    st.warning(apply_mask_link(now, arrived) or "no trouble")
    write_mask_link(now)
    st.text(",".join(map(str, np.flatnonzero(~now.mask.kept))))


def run(link=None):
    app = AppTest.from_function(page)
    if link:
        app.query_params["m"] = link
    return app.run()


def test_a_link_gives_its_mask_and_later_clicks_change_the_link():
    app = run(mask_link_text(without(GRID, 3, 9)))
    assert app.text[0].value == "3,9"
    app.button[0].click().run()
    assert app.text[0].value == "7"
    assert mask_link_text(without(GRID, 7)) in app.query_params["m"]
    app.button[1].click().run()
    assert app.text[0].value == "3,9"


def test_a_broken_link_gives_a_sentence_and_a_whole_model():
    app = run("nonsense")
    assert not app.exception
    assert "cannot be read" in shown(app.warning[0]) or "does not fit" in shown(app.warning[0])
    assert app.text[0].value == ""
    assert "m" not in app.query_params
    assert app.run().warning[0].value != "no trouble"
    assert app.button[0].click().run().warning[0].value == "no trouble"


def test_a_link_of_a_state_that_was_left_takes_nothing_back():
    app = run(mask_link_text(without(GRID, 3, 9)))
    app.button[0].click().run()
    app.query_params["m"] = mask_link_text(without(GRID, 3, 9))  # the browser's link lags behind
    app.run()
    assert app.text[0].value == "7"


def test_the_way_back_to_a_link_of_this_session_takes_no_click_back():
    app = run(mask_link_text(without(GRID, 3, 9)))
    app.button[0].click().run()
    app.query_params["m"] = mask_link_text(without(GRID, 3, 9))  # of the browser's history
    del app.session_state["here"]  # the page is arrived at
    assert app.run().text[0].value == "7"


def test_undoing_everything_takes_the_mask_out_of_the_link():
    app = run()
    app.button[0].click().run()
    assert app.query_params["m"]
    app.button[1].click().run()
    assert "m" not in app.query_params
    assert app.text[0].value == ""
