"""Records are equal if their content is, also where they hold arrays."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from support.cached_scores import made_scores

from headlab import Mask, load_mask
from headlab.core.equality import has_same_content


def test_a_mask_equals_the_mask_that_was_saved(tmp_path) -> None:
    mask = made_scores("de", "shapley").mask("bottom", k=2)
    path = tmp_path / "mask.json"
    mask.save(path)
    saved = load_mask(path)
    assert saved == load_mask(path)
    assert dataclasses.replace(saved, versions=None, created=None) == mask
    other = Mask(mask.grid, ~mask.kept, mask.model, mask.chosen)
    assert mask != other
    assert mask not in [other, "mask.json", None]


def test_scores_equal_scores_of_the_same_values_and_no_others() -> None:
    scores = made_scores("de", "shapley")
    assert scores == made_scores("de", "shapley")
    assert scores != made_scores("de", "leave-one-out")
    values = scores.values.copy()
    values[3] += 1e-12
    assert scores != dataclasses.replace(scores, values=values)


@pytest.mark.parametrize(
    ("one", "other", "are_same"),
    [
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), True),
        (np.array([1, 2]), np.array([1.0, 2.0]), False),
        (np.array([1, 2]), [1, 2], False),
        (np.array(["a"]), np.array(["a"]), True),
        (np.zeros(2), np.zeros(3), False),
        ({"a": np.ones(1)}, {"a": np.ones(1)}, True),
        ({"a": np.ones(1)}, {"b": np.ones(1)}, False),
        ((np.ones(1), "x"), (np.ones(1), "x"), True),
        ((np.ones(1),), (np.ones(1), np.ones(1)), False),
        (None, None, True),
        (None, np.ones(1), False),
        ("ab", "ab", True),
    ],
)
def test_content_is_compared_to_the_last_element(one, other, are_same) -> None:
    assert has_same_content(one, other) is are_same
    assert has_same_content(other, one) is are_same
