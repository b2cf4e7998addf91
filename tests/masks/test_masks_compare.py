"""Two masks compared and several combined, against slow derivations with sets."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from support.expected_errors import raises

from headlab.cli.evaluate import chosen_ablation
from headlab.masks import (
    Mask,
    combine_masks,
    compare_masks,
    mask_from_json,
    noted,
    parse_grid,
    removed_by_layer,
    removed_by_stack,
)

GRID = parse_grid("encoder=2x4,decoder=3/3/2,cross=3x3")
MODEL = {"name": "m", "fingerprint": "f" * 64}


def drawn(rng, chosen=None, model=MODEL):
    return Mask(GRID, rng.random(GRID.size) > 0.4, model, chosen or {})


def test_a_comparison_equals_the_sets_of_heads(rng):
    for _ in range(20):
        a = drawn(rng)
        b = drawn(rng)
        found = compare_masks(a, b)
        left = set(a.removed)
        right = set(b.removed)
        assert (set(found.only_a), set(found.only_b), set(found.both)) == (
            left - right,
            right - left,
            left & right,
        )
        assert found.jaccard == reference.jaccard(left, right)
        table = removed_by_layer(found)
        assert sum(table.column("only A")) == len(left - right)
        for stack, layer, *_, value in table.rows:
            in_layer = [{h for h in heads if h[:2] == (stack, layer)} for heads in (left, right)]
            assert value == reference.jaccard(*in_layer)
        *stacks, whole = removed_by_stack(found).rows
        assert [row[0] for row in stacks] == ["encoder", "decoder", "cross"]
        assert list(whole[1:-1]) == [sum(row[i] for row in stacks) for i in range(1, 7)]


def test_two_masks_that_remove_nothing_are_alike():
    none = Mask(GRID, np.ones(GRID.size, bool))
    assert compare_masks(none, none).jaccard == 1
    assert compare_masks(none, Mask(GRID, np.zeros(GRID.size, bool))).jaccard == 0


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_combining_keeps_what_all_any_or_most_keep(count, rng):
    masks = [drawn(rng) for _ in range(count)]
    gone = [set(mask.removed) for mask in masks]
    assert set(combine_masks(masks, "and").removed) == set.union(*gone)
    assert set(combine_masks(masks, "or").removed) == set.intersection(*gone)
    assert set(combine_masks(masks, "majority").removed) == reference.removed_by_most(gone)


def test_a_combined_mask_says_of_what(rng):
    figures = {"de": {"accuracy": 0.5, "n": 10}}
    parts = [
        drawn(
            rng,
            noted(
                {"rule": "harmful", "method": "shapley", "languages": [name], **more},
                "dev",
                "intents",
                figures,
            ),
        )
        for name, more in (("de", {"ablation": "mean"}), ("th", {"score": {"ablation": "mean"}}))
    ]
    made = combine_masks(parts, "majority")
    assert (made.model, made.chosen["rule"], made.chosen["method"]) == (
        MODEL,
        "combined: majority",
        "shapley",
    )
    assert (made.chosen["languages"], made.ablation) == (["de", "th"], "mean")
    assert [part["removed"] for part in made.chosen["combined"]] == [
        len(mask.removed) for mask in parts
    ]
    assert "evaluated" not in str(made.chosen)  # what a part was worth says nothing of the whole
    assert made.to_json()["chosen"] == made.chosen


def test_masks_of_several_models_and_single_ones_are_not_combined(rng):
    with raises("mask.too_few"):
        combine_masks([drawn(rng)], "and")
    with raises("mask.way_unknown", "and, or, majority"):
        combine_masks([drawn(rng), drawn(rng)], "xor")
    with raises("mask.other_model", "m"):
        combine_masks([drawn(rng), drawn(rng, model={"name": "n", "fingerprint": "e" * 64})], "and")
    with raises("mask.other_grid"):
        combine_masks([drawn(rng), Mask(parse_grid("2x2"), np.ones(4, bool))], "and")


def test_a_combined_mask_claims_no_model_that_was_not_checked(rng):
    def named(name, fingerprint=None):
        return drawn(rng, model={"name": name, "fingerprint": fingerprint})

    half = combine_masks([named(None), drawn(rng)], "or")
    assert (half.model, half.chosen["note"][:36]) == (MODEL, "1 of the 2 masks have no fingerprint")
    assert combine_masks([named("A"), named("B")], "or").model == {
        "name": None,
        "fingerprint": None,
    }
    same = combine_masks([named("A"), named("A")], "or")
    assert (same.model["name"], "note" in same.chosen) == ("A", False)
    assert "note" not in combine_masks([drawn(rng), drawn(rng)], "or").chosen


@pytest.mark.parametrize(
    ("ablations", "together"),
    [
        (("mean", "zero"), "mixed"),
        (("mean", None), "mixed"),
        (("mean", "mean"), "mean"),
        (("zero", "zero"), "zero"),
        (("zero", None), None),
        (("mixed", "zero"), "mixed"),
    ],
)
def test_mean_ablation_does_not_get_lost_in_combining(ablations, together, rng):
    parts = [
        drawn(rng, {} if ablation is None else {"ablation": ablation}) for ablation in ablations
    ]
    made = combine_masks(parts, "or")
    assert made.ablation == made.chosen.get("ablation") == together
    assert mask_from_json(made.to_json()).ablation == together
    if together == "mixed":
        with raises("ablation.ambiguous", "--ablation"):
            chosen_ablation(made)
