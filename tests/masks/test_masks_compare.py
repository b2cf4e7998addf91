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


def random_mask(rng, choice=None, model=MODEL):
    is_kept = rng.random(GRID.size) > 0.4
    return Mask(GRID, is_kept, model, choice or {})


def test_a_comparison_equals_the_sets_of_heads(rng):
    for _ in range(20):
        first_mask = random_mask(rng)
        second_mask = random_mask(rng)
        comparison = compare_masks(first_mask, second_mask)
        first_removed = set(first_mask.removed)
        second_removed = set(second_mask.removed)
        assert set(comparison.only_a) == first_removed - second_removed
        assert set(comparison.only_b) == second_removed - first_removed
        assert set(comparison.removed_by_both) == first_removed & second_removed
        assert comparison.jaccard == reference.jaccard(first_removed, second_removed)
        table = removed_by_layer(comparison)
        removed_by_first_alone = first_removed - second_removed
        assert sum(table.column("only A")) == len(removed_by_first_alone)
        for stack, layer, *_, jaccard in table.rows:
            place = (stack, layer)
            first_of_layer = {head for head in first_removed if head[:2] == place}
            second_of_layer = {head for head in second_removed if head[:2] == place}
            assert jaccard == reference.jaccard(first_of_layer, second_of_layer)
        *stacks, total = removed_by_stack(comparison).rows
        assert [row[0] for row in stacks] == ["encoder", "decoder", "cross"]
        sums = []
        for column in range(1, 7):
            sums.append(sum(row[column] for row in stacks))
        assert list(total[1:-1]) == sums


def test_two_masks_that_remove_nothing_are_alike():
    mask_of_all_heads = Mask(GRID, np.ones(GRID.size, bool))
    assert compare_masks(mask_of_all_heads, mask_of_all_heads).jaccard == 1
    mask_of_no_heads = Mask(GRID, np.zeros(GRID.size, bool))
    assert compare_masks(mask_of_all_heads, mask_of_no_heads).jaccard == 0


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_combining_keeps_what_all_any_or_most_keep(count, rng):
    masks = [random_mask(rng) for _ in range(count)]
    removed_sets = [set(mask.removed) for mask in masks]
    kept_by_all = combine_masks(masks, "and")
    kept_by_any = combine_masks(masks, "or")
    kept_by_most = combine_masks(masks, "majority")
    assert set(kept_by_all.removed) == set.union(*removed_sets)
    assert set(kept_by_any.removed) == set.intersection(*removed_sets)
    assert set(kept_by_most.removed) == reference.removed_by_most(removed_sets)


def test_a_combined_mask_says_of_what(rng):
    figures = {"de": {"accuracy": 0.5, "n": 10}}
    shapley = {"rule": "harmful", "method": "shapley"}
    german_choice = shapley | {"languages": ["de"], "ablation": "mean"}
    thai_choice = shapley | {"languages": ["th"], "score": {"ablation": "mean"}}
    parts = [
        random_mask(rng, noted(choice, "dev", "intents", figures))
        for choice in (german_choice, thai_choice)
    ]
    combined = combine_masks(parts, "majority")
    assert combined.model == MODEL
    assert combined.chosen["rule"] == "combined: majority"
    assert combined.chosen["method"] == "shapley"
    assert combined.chosen["languages"] == ["de", "th"]
    assert combined.ablation == "mean"
    removed_counts = [part["removed"] for part in combined.chosen["combined"]]
    assert removed_counts == [len(mask.removed) for mask in parts]
    # The accuracy of a part says nothing of the combined mask.
    assert "evaluated" not in str(combined.chosen)
    assert combined.to_json()["chosen"] == combined.chosen


def test_masks_of_several_models_and_a_mask_alone_are_not_combined(rng):
    with raises("mask.too_few"):
        combine_masks([random_mask(rng)], "and")
    with raises("mask.way_unknown", "and, or, majority"):
        combine_masks([random_mask(rng), random_mask(rng)], "xor")
    other_model = {"name": "n", "fingerprint": "e" * 64}
    mask_of_other_model = random_mask(rng, model=other_model)
    with raises("mask.other_model", "m"):
        combine_masks([random_mask(rng), mask_of_other_model], "and")
    grid = parse_grid("2x2")
    mask_of_other_grid = Mask(grid, np.ones(4, bool))
    with raises("mask.other_grid"):
        combine_masks([random_mask(rng), mask_of_other_grid], "and")


def test_a_combined_mask_claims_no_model_that_was_not_checked(rng):
    def mask_of_model(name, fingerprint=None):
        return random_mask(rng, model={"name": name, "fingerprint": fingerprint})

    partly_known = combine_masks([mask_of_model(None), random_mask(rng)], "or")
    assert partly_known.model == MODEL
    assert partly_known.chosen["note"][:36] == "1 of the 2 masks have no fingerprint"
    masks = [mask_of_model("A"), mask_of_model("B")]
    of_two_models = combine_masks(masks, "or")
    assert of_two_models.model == {"name": None, "fingerprint": None}
    masks = [mask_of_model("A"), mask_of_model("A")]
    of_one_name = combine_masks(masks, "or")
    assert of_one_name.model["name"] == "A"
    assert "note" not in of_one_name.chosen
    masks = [random_mask(rng), random_mask(rng)]
    assert "note" not in combine_masks(masks, "or").chosen


@pytest.mark.parametrize(
    ("ablations", "combined_ablation"),
    [
        (("mean", "zero"), "mixed"),
        (("mean", None), "mixed"),
        (("mean", "mean"), "mean"),
        (("zero", "zero"), "zero"),
        (("zero", None), None),
        (("mixed", "zero"), "mixed"),
    ],
)
def test_mean_ablation_does_not_get_lost_in_combining(ablations, combined_ablation, rng):
    parts = []
    for ablation in ablations:
        choice = {} if ablation is None else {"ablation": ablation}
        parts.append(random_mask(rng, choice))
    combined = combine_masks(parts, "or")
    assert combined.ablation == combined.chosen.get("ablation") == combined_ablation
    assert mask_from_json(combined.to_json()).ablation == combined_ablation
    if combined_ablation == "mixed":
        with raises("ablation.ambiguous", "--ablation"):
            chosen_ablation(combined)
