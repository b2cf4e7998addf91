"""The history of the mask that the user edits, and the link that carries the mask."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from streamlit.testing.v1 import AppTest
from support.app_pages import shown_text
from support.expected_errors import raises

from headlab.core import HeadGrid, Stack
from headlab.dashboard.panels.masks.history import (
    ABLATION_MARK,
    MAX_STATES,
    MaskHistory,
    kept_heads_of_link_text,
    link_text_of,
    mask_link_text,
    origin_of_link,
)
from headlab.masks import Mask

GRID = HeadGrid((Stack("encoder", (12,) * 12),))
RAGGED_GRID = HeadGrid(
    (
        Stack("encoder", (3, 2)),
        Stack("cross", (4,)),
    )
)


def kept_heads_without(grid, *removed_heads):
    kept_heads = np.ones(grid.size, bool)
    kept_heads[list(removed_heads)] = False
    return kept_heads


def switch_off(history, *heads):
    history.switch(heads, False)


def test_undo_and_redo_walk_the_same_states():
    history = MaskHistory(GRID)
    kept_by_step = [kept_heads_without(GRID, *range(i)) for i in range(1, 5)]
    for i in range(4):
        switch_off(history, i)
    for kept_heads in reversed(kept_by_step):
        assert np.array_equal(history.mask.kept, kept_heads)
        history.undo()
    assert not history.can_undo
    assert history.mask.kept.all()
    for kept_heads in kept_by_step:
        history.redo()
        assert np.array_equal(history.mask.kept, kept_heads)
    assert not history.can_redo


def test_a_change_after_undo_drops_what_was_undone():
    history = MaskHistory(GRID)
    switch_off(history, 1)
    history.undo()
    switch_off(history, 2)
    assert not history.can_redo
    history.undo()
    assert history.mask.kept.all()


def test_a_click_changes_only_its_own_heads():
    history = MaskHistory(GRID)
    switch_off(history, 1, 2)
    history.undo()  # an undo that arrives after the next click was made
    switch_off(history, 3)
    assert np.flatnonzero(~history.mask.kept).tolist() == [3]
    history.switch([3, 4], True)
    assert history.mask.kept.all()


def test_the_stamp_changes_with_every_change_but_those_by_hand():
    history = MaskHistory(GRID)
    history.set_by_hand(kept_heads_without(GRID, 1))
    assert history.stamp == 0
    for change in (
        lambda: switch_off(history, 2),
        history.undo,
        history.redo,
        history.reset,
        lambda: history.set_mask(kept_heads_without(GRID, 5), {}),
    ):
        stamp_before = history.stamp
        change()
        assert history.stamp == stamp_before + 1
    assert history.mask.chosen == {}
    switch_off(history, 3)
    assert np.flatnonzero(~history.mask.kept).tolist() == [3, 5]
    assert history.mask.chosen["rule"] == "by hand"


def test_walking_past_either_end_changes_nothing():
    history = MaskHistory(GRID)
    history.undo()
    history.redo()
    assert history.position == 0
    assert history.stamp == 0


def test_reset_can_be_undone():
    history = MaskHistory(GRID)
    switch_off(history, 3, 4)
    history.reset()
    assert history.mask.kept.all()
    history.undo()
    assert np.flatnonzero(~history.mask.kept).tolist() == [3, 4]


def test_a_long_session_keeps_the_newest_states():
    history = MaskHistory(GRID)
    for i in range(MAX_STATES + 20):
        history.set_mask(kept_heads_without(GRID, i % 144), {})
    assert len(history.masks) == MAX_STATES
    assert np.flatnonzero(~history.mask.kept).tolist() == [(MAX_STATES + 19) % 144]


def test_clicks_after_a_suggestion_remember_where_they_started():
    history = MaskHistory(GRID)
    history.set_mask(kept_heads_without(GRID, 1), {"rule": "harmful", "method": "shapley"})
    switch_off(history, 2)
    switch_off(history, 3)
    assert history.mask.chosen == {
        "rule": "by hand",
        "started_from": {"rule": "harmful", "method": "shapley"},
    }


def test_the_history_keeps_its_own_copy():
    history = MaskHistory(GRID)
    kept_heads = kept_heads_without(GRID, 1)
    history.set_mask(kept_heads, {})
    kept_heads[:] = False
    assert np.flatnonzero(~history.mask.kept).tolist() == [1]


def test_every_mask_names_its_model_as_it_is_known_now():
    history = MaskHistory(GRID, {"fingerprint": "f" * 64})
    switch_off(history, 1)
    identity = {"name": "owner/model", "revision": "main", "fingerprint": "f" * 64}
    history.name_model(identity)
    switch_off(history, 2)
    assert np.flatnonzero(~history.mask.kept).tolist() == [1, 2]
    assert [mask.model for mask in history.masks] == [identity] * 3
    assert history.mask.created is None  # a mask gets its time when its file is written


@given(some.lists(some.booleans(), min_size=9, max_size=9))
def test_any_mask_survives_the_link(bits):
    kept_heads = np.array(bits)
    assert np.array_equal(
        kept_heads_of_link_text(mask_link_text(kept_heads), RAGGED_GRID), kept_heads
    )


@pytest.mark.parametrize("ablation", ["zero", "mean", "resample", "streaming:0,16", "mixed"])
def test_a_link_keeps_the_ablation_that_its_mask_was_chosen_under(ablation):
    kept_heads = kept_heads_without(GRID, 3)
    sender = MaskHistory(GRID)
    sender.set_mask(kept_heads, {"rule": "bottom", "ablation": ablation})
    link_text = link_text_of(sender.mask)
    assert (link_text == mask_link_text(kept_heads)) == (ablation == "zero")
    bits, _, ablation_of_link = link_text.partition(ABLATION_MARK)
    assert np.array_equal(kept_heads_of_link_text(bits, GRID), kept_heads)
    mask = Mask(GRID, kept_heads, {}, origin_of_link(ablation_of_link))
    assert (mask.ablation or "zero") == ablation


def test_a_link_of_an_unknown_ablation_is_refused():
    with raises("link.mask_malformed", "ablation that headlab does not know"):
        origin_of_link("streaming:4")


def test_heads_switched_by_hand_keep_the_ablation_they_started_from():
    history = MaskHistory(GRID)
    history.set_mask(kept_heads_without(GRID, 1), {"rule": "bottom", "ablation": "mean"})
    switch_off(history, 2)
    assert history.mask.ablation == "mean"
    assert history.mask.of_means
    history.switch([1, 2], True)
    switch_off(history, 5)
    assert history.mask.ablation is None
    history.set_mask(history.mask.kept, {"rule": "bottom", "ablation": "resample"})
    assert history.mask.ablation == "resample"
    assert history.mask.beyond_weights == "resample"


def test_a_mask_is_of_its_start_only_while_a_head_of_that_is_off():
    history = MaskHistory(GRID)
    history.set_mask(kept_heads_without(GRID, 0, 1), {"rule": "bottom", "ablation": "mean"})
    switch_off(history, 5)
    history.switch([0], True)
    assert history.mask.ablation == "mean"  # head 1 is
    history.switch([1], True)
    assert np.flatnonzero(~history.mask.kept).tolist() == [5]
    assert history.mask.chosen == {"rule": "by hand"}
    assert link_text_of(history.mask) == mask_link_text(kept_heads_without(GRID, 5))
    switch_off(history, 0)  # by hand now
    assert history.mask.ablation is None
    for _ in range(2):
        history.undo()
    assert history.mask.ablation == "mean"
    switch_off(history, 6)
    assert history.mask.chosen["started_from"] == {"rule": "bottom", "ablation": "mean"}


def test_heads_added_to_a_mask_do_not_keep_its_ablation():
    history = MaskHistory(GRID)
    start = {"rule": "bottom", "ablation": "mean"}
    history.set_mask(kept_heads_without(GRID, 0), start)
    added = {"rule": "by hand", "added": {"role": "positional"}, "started_from": start}
    history.set_mask(kept_heads_without(GRID, 0, 5), added)
    switch_off(history, 7)
    assert history.mask.chosen == {"rule": "by hand", "started_from": added}
    history.switch([0], True)
    assert history.mask.ablation is None
    assert history.mask.chosen["started_from"] == {
        "rule": "by hand",
        "added": {"role": "positional"},
    }


def test_a_mask_made_by_hand_elsewhere_stands_for_its_start():
    history = MaskHistory(GRID)
    switch_off(history, 9)
    origin = {"rule": "by hand", "started_from": {"rule": "bottom", "ablation": "mean"}}
    history.set_mask(kept_heads_without(GRID, 3), origin)
    switch_off(history, 4)
    assert history.mask.ablation == "mean"
    history.switch([3], True)
    assert history.mask.ablation is None


def test_a_12_by_12_mask_takes_24_characters():
    text = mask_link_text(kept_heads_without(GRID, 0, 143))
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
    # The 9 heads take 2 bytes, of which the last 7 bits are unused.
    text = mask_link_text(kept_heads_without(RAGGED_GRID, 8))
    assert kept_heads_of_link_text(text, RAGGED_GRID).sum() == 8
    with raises("link.mask_mismatch"):
        kept_heads_of_link_text("AAE", RAGGED_GRID)


def page():
    import numpy as np
    import streamlit as st

    from headlab.core import HeadGrid, Stack
    from headlab.dashboard.panels.masks.history import apply_mask_link, history_of, write_mask_link

    grid = HeadGrid((Stack("encoder", (12,) * 12),))
    history = history_of("f" * 64, grid)
    st.button("click", on_click=lambda: history.set_mask(np.arange(144) != 7, {}))
    st.button("undo", on_click=history.undo)
    is_first_run = "page_was_drawn" not in st.session_state
    st.session_state["page_was_drawn"] = True
    st.warning(apply_mask_link(history, is_first_run) or "no trouble")
    write_mask_link(history)
    removed_indices = np.flatnonzero(~history.mask.kept)
    st.text(",".join(map(str, removed_indices)))
    st.text(history.mask.ablation)


def run(link=None):
    app = AppTest.from_function(page)
    if link:
        app.query_params["m"] = link
    return app.run()


def test_a_link_gives_its_mask_and_later_clicks_change_the_link():
    app = run(mask_link_text(kept_heads_without(GRID, 3, 9)))
    assert app.text[0].value == "3,9"
    app.button[0].click().run()
    assert app.text[0].value == "7"
    assert mask_link_text(kept_heads_without(GRID, 7)) in app.query_params["m"]
    app.button[1].click().run()
    assert app.text[0].value == "3,9"


def test_a_link_with_an_ablation_gives_a_mask_chosen_under_it():
    link_text = f"{mask_link_text(kept_heads_without(GRID, 3, 9))}.streaming:4,64"
    app = run(link_text)
    assert app.text[0].value == "3,9"
    assert app.text[1].value == "streaming:4,64"
    assert link_text in app.query_params["m"]
    assert app.warning[0].value == "no trouble"
    refused = run(link_text.replace("64", "x"))
    assert refused.text[0].value == ""
    assert "ablation that headlab does not know" in refused.warning[0].value


def test_a_broken_link_gives_a_warning_and_a_model_with_all_heads_on():
    app = run("nonsense")
    assert not app.exception
    warning = shown_text(app.warning[0])
    assert "cannot be read" in warning or "does not fit" in warning
    assert app.text[0].value == ""
    assert "m" not in app.query_params
    assert app.run().warning[0].value != "no trouble"
    assert app.button[0].click().run().warning[0].value == "no trouble"


def test_an_outdated_link_takes_nothing_back():
    older_link = mask_link_text(kept_heads_without(GRID, 3, 9))
    app = run(older_link)
    app.button[0].click().run()
    app.query_params["m"] = older_link  # as the browser still has it
    app.run()
    assert app.text[0].value == "7"


def test_the_browsers_way_back_to_an_earlier_link_takes_no_click_back():
    older_link = mask_link_text(kept_heads_without(GRID, 3, 9))
    app = run(older_link)
    app.button[0].click().run()
    app.query_params["m"] = older_link  # from the browser's history
    del app.session_state["page_was_drawn"]  # as when the page is opened anew
    assert app.run().text[0].value == "7"


def test_undoing_everything_takes_the_mask_out_of_the_link():
    app = run()
    app.button[0].click().run()
    assert app.query_params["m"]
    app.button[1].click().run()
    assert "m" not in app.query_params
    assert app.text[0].value == ""
